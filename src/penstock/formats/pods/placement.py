"""Where a pod may run: node selector, tolerations and affinity, from its description and back. Called by readers and writers of pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.formats.documents import items, part
from penstock.formats.values import frozen, thawed
from penstock.graph.model import Placement, Toleration


def placement_of(spec: Mapping[str, Any]) -> Placement | None:
    """nodeSelector, tolerations and affinity; None if there is none of them."""
    selector = {str(name): str(value) for name, value in part(spec, "nodeSelector").items()}
    tolerations = tuple(_toleration(one) for _, one in items(spec, "tolerations"))
    affinity = spec.get("affinity")
    if not selector and not tolerations and not affinity:
        return None
    return Placement(node_selector=selector, tolerations=tolerations, affinity=frozen(affinity) if affinity else None)


def _toleration(one: Mapping[str, Any]) -> Toleration:
    seconds = one.get("tolerationSeconds")
    return Toleration(
        key=str(one.get("key") or ""),
        operator=str(one.get("operator") or "Equal"),
        value=str(one.get("value") or ""),
        effect=str(one.get("effect") or ""),
        seconds=seconds if isinstance(seconds, int) else None,
    )


def placement_fields(given: Placement | None) -> dict[str, Any]:
    """The fields of a pod spec."""
    if given is None:
        return {}
    found: dict[str, Any] = {}
    if given.node_selector:
        found["nodeSelector"] = dict(given.node_selector)
    if given.tolerations:
        found["tolerations"] = [
            {
                **({"key": one.key} if one.key else {}),
                "operator": one.operator,
                **({"value": one.value} if one.value else {}),
                **({"effect": one.effect} if one.effect else {}),
                **({"tolerationSeconds": one.seconds} if one.seconds is not None else {}),
            }
            for one in given.tolerations
        ]
    if given.affinity:
        found["affinity"] = thawed(given.affinity)
    return found
