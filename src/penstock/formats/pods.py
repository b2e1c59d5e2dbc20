"""What a pod asks for, and where it may run, from its Kubernetes description. Called by the readers of Argo, Tekton and JobSet files.

Containers run side by side and add up; init containers run one after another before them, so the largest counts, on top of
those that stay (restartPolicy: Always). A request that is missing is the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.formats.documents import items, part
from penstock.graph import quantity
from penstock.graph.model import Placement, Toleration

Amounts = dict[str, int]
"""Thousandths of a unit, by resource."""


def resources_of(spec: Mapping[str, Any]) -> Amounts:
    """Of one pod. What is not a quantity (`{{inputs.parameters.memory}}`) is left out: see `unknown_amounts`."""
    running = _sum(container_resources(one) for _, one in items(spec, "containers"))
    staying: Amounts = {}
    first: Amounts = {}
    for _, one in items(spec, "initContainers"):
        asked = container_resources(one)
        if one.get("restartPolicy") == "Always":
            staying = _sum((staying, asked))
            running = _sum((running, asked))
            asked = staying
        else:
            asked = _sum((asked, staying))
        first = _most(first, asked)
    whole = _most(running, first)
    own = amounts(part(spec, "resources", "requests")) or amounts(part(spec, "resources", "limits"))
    whole |= {
        name: amount for name, amount in own.items() if name in ("cpu", "memory") or name.startswith("hugepages-")
    }
    return {name: amount for name, amount in _sum((whole, amounts(part(spec, "overhead")))).items() if amount}


def container_resources(container: Mapping[str, Any], field: str = "resources") -> Amounts:
    """Requests, or limits where no request is made. Tekton calls the field computeResources."""
    return amounts(part(container, field, "limits")) | amounts(part(container, field, "requests"))


def amounts(listed: Mapping[str, Any]) -> Amounts:
    found = {}
    for name, text in listed.items():
        try:
            found[str(name)] = max(0, quantity.parse(text))
        except (ValueError, TypeError):
            continue
    return found


def unknown_amounts(listed: Mapping[str, Any]) -> list[str]:
    """Names of resources whose amount is no quantity."""
    return [str(name) for name, text in listed.items() if str(name) not in amounts({name: text})]


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for one in parts:
        for name, amount in one.items():
            total[name] = total.get(name, 0) + amount
    return total


def _most(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def placement_of(spec: Mapping[str, Any]) -> Placement | None:
    """nodeSelector, tolerations and affinity; None if there is none of them."""
    selector = {str(name): str(value) for name, value in part(spec, "nodeSelector").items()}
    tolerations = tuple(_toleration(one) for _, one in items(spec, "tolerations"))
    affinity = spec.get("affinity")
    if not selector and not tolerations and not affinity:
        return None
    return Placement(node_selector=selector, tolerations=tolerations, affinity=_tuples(affinity) if affinity else None)


def _toleration(one: Mapping[str, Any]) -> Toleration:
    seconds = one.get("tolerationSeconds")
    return Toleration(
        key=str(one.get("key") or ""),
        operator=str(one.get("operator") or "Equal"),
        value=str(one.get("value") or ""),
        effect=str(one.get("effect") or ""),
        seconds=seconds if isinstance(seconds, int) else None,
    )


def _tuples(value: Any) -> Any:
    """Lists inside the model are tuples."""
    if isinstance(value, Mapping):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def merged(default: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Two pod descriptions, the second one's word counting: maps are merged, everything else replaced."""
    found = dict(default)
    for name, value in own.items():
        both = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
        found[name] = merged(found[name], value) if both else value
    return found
