"""The resources of the pod of a TaskRun. Called by task.

Tekton runs the steps of a task one after another, but they are containers of one pod, and Kubernetes reserves the sum of their requests.
Task-level computeResources are divided among the steps, and so is the default of a LimitRange among steps without requests; sidecars
keep their own (tektoncd/pipeline v1.15, docs/compute-resources.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.formats.documents import Library, items, part
from penstock.formats.pods.requests import Amounts, amounts
from penstock.formats.tekton.read.scope import Located

_LIMITED = ("cpu", "memory", "ephemeral-storage")
Asked = tuple[Amounts, Amounts]
"""Requests and limits of one container."""


def asked(container: Located | None) -> Asked:
    """Of a step, sidecar, step template or run; in v1beta1 the field is `resources`."""
    if container is None:
        return {}, {}
    own = container.data if isinstance(container.data, Mapping) else {}
    field = "computeResources" if isinstance(own.get("computeResources"), Mapping) else "resources"
    return amounts(part(own, field, "requests")), amounts(part(own, field, "limits"))


def overridden(own: Asked, other: Asked) -> Asked:
    """The second wins."""
    return own[0] | other[0], own[1] | other[1]


def total(steps: Sequence[Asked], sidecars: Sequence[Asked], whole: Asked, library: Library) -> Amounts:
    """Of the pod. `whole`: task-level computeResources."""
    default, least = _limit_range(library)
    listed = _divided(whole, len(steps)) if any(whole) else list(steps)
    found: Amounts = {}
    for requests, limits in listed:
        share = {name: max(amount // len(listed), least.get(name, 0)) for name, amount in default.items()}
        share |= {name: amount for name, amount in least.items() if name not in share}
        _add(found, limits | {name: amount for name, amount in share.items() if amount} | requests)
    for requests, limits in sidecars:
        _add(found, default | limits | requests)
    return {name: amount for name, amount in found.items() if amount}


def _divided(whole: Asked, steps: int) -> list[Asked]:
    """Each step requests its share. Limits stay with each step, and are the request if there is none."""
    requests, limits = whole
    share = {name: _share(name, amount, steps) for name, amount in (requests or limits).items()}
    return [(share, limits)] * steps


def _share(name: str, amount: int, steps: int) -> int:
    """Bytes are whole numbers; everything else has thousandths."""
    whole = 1000 if name in ("memory", "ephemeral-storage") else 1
    return amount // whole // steps * whole


def _add(found: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        found[name] = found.get(name, 0) + amount


def _limit_range(library: Library) -> tuple[Amounts, Amounts]:
    """Default request and least request of a container, from all LimitRanges among the documents."""
    default: Amounts = {}
    least: Amounts = {}
    for document in library.of_kind("LimitRange"):
        for _, limit in items(document.spec, "limits"):
            if limit.get("type") == "Container":
                for name, amount in _only(limit.get("defaultRequest")).items():
                    default[name] = min(default.get(name, amount), amount)
                for name, amount in _only(limit.get("min")).items():
                    least[name] = max(least.get(name, 0), amount)
    return default, least


def _only(listed: Any) -> Amounts:
    found = amounts(listed) if isinstance(listed, Mapping) else {}
    return {name: amount for name, amount in found.items() if name in _LIMITED}
