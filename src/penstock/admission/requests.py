"""What a pod asks for, in the amounts quota is counted in. Called by read for every pod set, and by validate for every quantity.

A pod's containers run side by side, so they add up; its init containers run one after the other before them, so only the largest
counts, on top of the sidecars that were started earlier and stay. What the pod does not say is filled in first, from its runtime
class, the limit ranges of its namespace and its own limits (`adjusted`), the way the cluster would fill it in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from penstock.admission.model import UNLIMITED, Amounts, Config, Workload
from penstock.graph import quantity

Doc = Mapping[str, Any]
Exact = dict[str, Fraction]
CPU = "cpu"


# -- quantities -------------------------------------------------------------------------------------------------------


def amount(resource: str, text: str | int | float | Fraction) -> int:
    """Of a request: cpu in thousandths, the rest in base units, rounded up; what does not fit 63 bits is the most there is."""
    value = text if isinstance(text, Fraction) else quantity.exact(text)
    if resource == CPU:
        value *= 1000
    return max(-UNLIMITED, min(UNLIMITED, -((-value).__floor__())))


def limit(resource: str, text: str | int | float) -> int:
    """Of a quota: as `amount`, but cpu counts as unlimited from the last whole core that fits on."""
    found = amount(resource, text)
    return UNLIMITED if resource == CPU and found >= UNLIMITED // 1000 * 1000 else found


def shown(resource: str, found: int) -> str:
    """The text that `amount` and `limit` read as this."""
    if found >= UNLIMITED:
        return "8Ei"
    return quantity.show(found if resource == CPU else found * 1000, resource)


def _exact(listed: object) -> Exact:
    return {name: quantity.exact(text) for name, text in listed.items()} if isinstance(listed, Mapping) else {}


# -- one pod ----------------------------------------------------------------------------------------------------------


def of_pod(spec: Doc) -> dict[str, int]:
    """One pod's requests, all counted in. Less than nothing counts as nothing."""
    return {name: max(0, amount(name, value)) for name, value in sorted(_of_pod(spec).items())}


def _of_pod(spec: Doc) -> Exact:
    found: Exact = {}
    for container in _containers(spec, "containers"):
        _add(found, _requests(container))
    sidecars: Exact = {}
    start: Exact = {}
    for container in _containers(spec, "initContainers"):
        asked = _requests(container)
        if container.get("restartPolicy") == "Always":
            _add(found, asked)
            _add(sidecars, asked)
            asked = sidecars
        else:
            _add(asked, sidecars)
        _most(start, asked)
    _most(found, start)
    for name, value in _exact(_get(spec, "resources").get("requests")).items():
        if name in (CPU, "memory") or name.startswith("hugepages-"):
            found[name] = value
    _add(found, _exact(spec.get("overhead")))
    return found


def _containers(spec: Doc, which: str) -> list[Doc]:
    return [container for container in spec.get(which) or () if isinstance(container, Mapping)]


def _get(doc: Doc, name: str) -> Doc:
    found = doc.get(name)
    return found if isinstance(found, Mapping) else {}


def _requests(container: Doc) -> Exact:
    return _exact(_get(container, "resources").get("requests"))


def _add(to: Exact, more: Exact) -> None:
    for name, value in more.items():
        to[name] = to.get(name, Fraction(0)) + value


def _most(to: Exact, other: Exact) -> None:
    for name, value in other.items():
        to[name] = max(to.get(name, value), value)


# -- what the cluster fills in ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Range:
    """All limit ranges of a namespace in one, for pods or for containers. Quantities as they were written."""

    most: Doc = field(default_factory=dict)
    least: Doc = field(default_factory=dict)
    limits: Doc = field(default_factory=dict)
    """`default`: the limits of what names none."""
    requests: Doc = field(default_factory=dict)
    """`defaultRequest`"""


Ranges = Mapping[str, Range]
"""By type: Pod, Container."""


def ranges_of(limit_ranges: Iterable[Doc]) -> dict[str, Range]:
    """Where several speak of the same, the narrower bound holds, and the first default."""
    found: dict[str, Range] = {}
    for document in limit_ranges:
        for item in _get(document, "spec").get("limits") or ():
            kind = item.get("type", "")
            before = found.get(kind, Range())
            found[kind] = Range(
                _merged(before.most, _get(item, "max"), min),
                _merged(before.least, _get(item, "min"), max),
                _merged(before.limits, _get(item, "default")),
                _merged(before.requests, _get(item, "defaultRequest")),
            )
    return found


def _merged(first: Doc, second: Doc, choose: Callable[..., Any] | None = None) -> dict[str, Any]:
    """Both lists in one; what is in both is chosen by size, or taken from the first."""
    found = dict(first)
    for name, text in second.items():
        if name not in found:
            found[name] = text
        elif choose is not None:
            found[name] = choose(found[name], text, key=quantity.exact)
    return found


def adjusted(spec: Doc, ranges: Ranges, overheads: Mapping[str, Doc]) -> dict[str, Any]:
    """The pod with everything said that goes without saying. `overheads` has, by runtime class, what a pod costs on top."""
    pod = dict(spec)
    overhead = overheads.get(str(pod.get("runtimeClassName")))
    if overhead and not pod.get("overhead"):
        pod["overhead"] = dict(overhead)
    for which in ("initContainers", "containers"):
        if pod.get(which):
            pod[which] = [_filled(container, ranges.get("Container")) for container in _containers(pod, which)]
    if isinstance(pod.get("resources"), Mapping):
        pod = _filled(pod, ranges.get("Pod"))
    return pod


def _filled(holder: Doc, bounds: Range | None) -> dict[str, Any]:
    """A container, or a pod, with its own resources: limits and requests from the range, then missing requests from limits."""
    bounds = bounds or Range()
    resources = dict(_get(holder, "resources"))
    limits = _merged(_get(resources, "limits"), bounds.limits)
    requests = _merged(_merged(_get(resources, "requests"), bounds.requests), limits)
    for name, listed in (("limits", limits), ("requests", requests)):
        if listed:
            resources[name] = listed
    return {**holder, "resources": resources} if resources else dict(holder)


def overheads_of(runtime_classes: Iterable[Doc]) -> dict[str, Doc]:
    return {
        str(_get(document, "metadata").get("name", "")): _get(_get(document, "overhead"), "podFixed")
        for document in runtime_classes
    }


def adjust(workload: Doc, limit_ranges: Iterable[Doc] = (), runtime_classes: Iterable[Doc] = ()) -> dict[str, Any]:
    """A Workload document with all its pod sets adjusted. The limit ranges are those of its namespace."""
    ranges, overheads = ranges_of(limit_ranges), overheads_of(runtime_classes)
    spec = dict(_get(workload, "spec"))
    podsets = []
    for podset in spec.get("podSets") or ():
        template = _get(podset, "template")
        pod = adjusted(_get(template, "spec"), ranges, overheads)
        podsets.append({**podset, "template": {**template, "spec": pod}})
    return {**workload, "spec": {**spec, "podSets": podsets}} if podsets else dict(workload)


# -- what can never run -----------------------------------------------------------------------------------------------


def unfit(podsets: Sequence[tuple[str, Doc]], ranges: Ranges) -> str:
    """Why pods of these names and (adjusted) specs would be refused: requests above limits, or out of range. Empty if none would."""
    found: list[str] = []
    for name, pod in podsets:
        found += _above_limits(name, pod)
    if not found:
        for name, pod in podsets:
            found += _out_of_range(name, pod, ranges)
    return "; ".join(found)


def _holders(name: str, pod: Doc) -> Iterable[tuple[str, Doc]]:
    for which, word in (("initContainers", "init container"), ("containers", "container")):
        for at, container in enumerate(_containers(pod, which)):
            yield f"{word} {container.get('name') or at} of pod set {name}", _get(container, "resources")


def _above_limits(name: str, pod: Doc) -> list[str]:
    holders = [*_holders(name, pod), (f"pod set {name}", _get(pod, "resources"))]
    return [
        f"{who} requests more {resource} than its limit: {asked} of {allowed}"
        for who, resources in holders
        for resource, asked, allowed in _greater(_get(resources, "requests"), _get(resources, "limits"))
    ]


def _out_of_range(name: str, pod: Doc, ranges: Ranges) -> list[str]:
    found = []
    bounds = ranges.get("Container")
    if bounds is not None:
        for who, resources in _holders(name, pod):
            asked, allowed = _get(resources, "requests"), _get(resources, "limits")
            found += _beyond(who, _merged(asked, allowed, min), _merged(asked, allowed, max), bounds)
    bounds = ranges.get("Pod")
    if bounds is not None:
        total = {resource: shown(resource, value) for resource, value in of_pod(pod).items()}
        found += _beyond(f"pod set {name}", total, total, bounds)
    return found


def _beyond(who: str, low: Doc, high: Doc, bounds: Range) -> list[str]:
    above = [
        f"{who} asks for more {resource} than the limit range allows: {asked}, at most {most}"
        for resource, asked, most in _greater(high, bounds.most)
    ]
    return above + [
        f"{who} asks for less {resource} than the limit range allows: {asked}, at least {least}"
        for resource, least, asked in _greater(bounds.least, low)
    ]


def _greater(one: Doc, other: Doc) -> list[tuple[str, Any, Any]]:
    """The resources of which there is more in one, of those that are in both."""
    return [
        (name, one[name], other[name])
        for name in sorted(one)
        if name in other and amount(name, one[name]) > amount(name, other[name])
    ]


# -- one Workload -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Total:
    """What all pods of a pod set ask for, or hold."""

    name: str
    count: int
    requests: Amounts
    flavors: Mapping[str, str]


def totals(workload: Workload, config: Config | None = None) -> list[Total]:
    """Of every pod set, without the pods that are not needed any more."""
    reclaimable = workload.reclaimable if config is None or config.gate("ReclaimablePods", True) else {}
    needed = {p.name: max(0, p.count - reclaimable.get(p.name, 0)) for p in workload.podsets}
    if workload.admission is None:
        return [
            Total(p.name, needed[p.name], {r: times(one, needed[p.name]) for r, one in p.requests.items()}, {})
            for p in workload.podsets
        ]
    found = []
    for held in workload.admission.podsets:
        count, usage = held.count, dict(held.usage)
        if needed.get(held.name, 0) < count:
            left = needed.get(held.name, 0)
            usage = {resource: times(value // count, left) for resource, value in usage.items()}
            count = left
        found.append(Total(held.name, count, usage, held.flavors))
    return found


def times(one: int, count: int) -> int:
    return min(one * count, UNLIMITED)
