"""The resources that a pod requests, from its Kubernetes description. Called by the readers and gates of Argo, Tekton, JobSet and Job.

Containers run side by side and add up; init containers run one after another before them, so the largest counts, on top of
those that stay (restartPolicy: Always). A missing request is the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from penstock.formats.documents import items, part
from penstock.graph import quantity
from penstock.graph.pods import Exact, pod_total

Amounts = dict[str, int]
"""Thousandths of a unit, by resource."""


def resources_of(spec: Mapping[str, Any]) -> Amounts:
    """Of one pod. What is not a quantity (`{{inputs.parameters.memory}}`) is left out: see `unknown_amounts`."""
    own = _exact(part(spec, "resources", "requests")) or _exact(part(spec, "resources", "limits"))
    total = pod_total(
        [_container(one) for _, one in items(spec, "containers")],
        [(_container(one), one.get("restartPolicy") == "Always") for _, one in items(spec, "initContainers")],
        own,
        _exact(part(spec, "overhead")),
    )
    return {name: quantity.milli(amount) for name, amount in total.items() if amount}


def _container(one: Mapping[str, Any]) -> Exact:
    """Requests, or limits where no request is made."""
    return {**_exact(part(one, "resources", "limits")), **_exact(part(one, "resources", "requests"))}


def container_resources(container: Mapping[str, Any], field: str = "resources") -> Amounts:
    """Requests, or limits where no request is made. Tekton calls the field computeResources."""
    return amounts(part(container, field, "limits")) | amounts(part(container, field, "requests"))


def amounts(listed: Mapping[str, Any]) -> Amounts:
    """The amounts that are quantities; negative ones count as zero."""
    found = {}
    for name, text in listed.items():
        try:
            found[str(name)] = max(0, quantity.parse(text))
        except (ValueError, TypeError):
            continue
    return found


def _exact(listed: Mapping[str, Any]) -> Exact:
    found = {}
    for name, text in listed.items():
        try:
            quantity.parse(text)  # refuses what is larger than any machine
            found[str(name)] = max(Fraction(0), quantity.exact(text))
        except (ValueError, TypeError):
            continue
    return found


def unknown_amounts(listed: Mapping[str, Any]) -> list[str]:
    """Names of resources whose amount is not a quantity."""
    return [str(name) for name, text in listed.items() if str(name) not in amounts({name: text})]


def merged(default: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Two pod descriptions, the second wins: maps are merged, everything else is replaced."""
    found = dict(default)
    for name, value in own.items():
        both = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
        found[name] = merged(found[name], value) if both else value
    return found
