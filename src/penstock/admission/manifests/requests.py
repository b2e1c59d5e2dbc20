"""What a pod requests, in the amounts in which quota is counted. Called by read for each pod set, and by rules and write for quantities.

The containers of a pod run at the same time, so their requests add up. Its init containers run before them, one after the other, so
only the largest counts, plus the sidecars that were started before it. What the pod does not say is filled in first, as in a cluster:
from its runtime class, the limit ranges of its namespace and its own limits (`adjusted`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from penstock.admission.model import UNLIMITED
from penstock.graph import quantity

Doc = Mapping[str, Any]
Exact = dict[str, Fraction]
CPU = "cpu"


# -- quantities -------------------------------------------------------------------------------------------------------


def amount(resource: str, text: str | int | float | Fraction) -> int:
    """Of a request: cpu in thousandths, the rest in base units, rounded up, and cut off at 63 bits."""
    value = text if isinstance(text, Fraction) else quantity.exact(text)
    if resource == CPU:
        value *= 1000
    return max(-UNLIMITED, min(UNLIMITED, -((-value).__floor__())))


def limit(resource: str, text: str | int | float) -> int:
    """Of a quota: as `amount`, but cpu is unlimited from the last whole core that fits into 63 bits."""
    found = amount(resource, text)
    return UNLIMITED if resource == CPU and found >= UNLIMITED // 1000 * 1000 else found


def shown(resource: str, found: int) -> str:
    """The text that `amount` and `limit` read as this amount."""
    if found >= UNLIMITED:
        return "8Ei"
    return quantity.show(found if resource == CPU else found * 1000, resource)


def _exact(listed: object) -> Exact:
    return {name: quantity.exact(text) for name, text in listed.items()} if isinstance(listed, Mapping) else {}


# -- one pod ----------------------------------------------------------------------------------------------------------


def of_pod(spec: Doc) -> dict[str, int]:
    """The requests of one pod. A negative request counts as 0."""
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


# -- defaults ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LimitRangeItem:
    """All LimitRanges of a namespace in one, for pods or for containers. Quantities are as they were written."""

    most: Doc = field(default_factory=dict)
    least: Doc = field(default_factory=dict)
    limits: Doc = field(default_factory=dict)
    """`default`: limits for those that have none."""
    requests: Doc = field(default_factory=dict)
    """`defaultRequest`: requests for those that have none."""


LimitRangeSummary = Mapping[str, LimitRangeItem]
"""By type: Pod, Container."""


def ranges_of(limit_ranges: Iterable[Doc]) -> dict[str, LimitRangeItem]:
    """If several LimitRanges concern the same resource, the narrower bound and the first default hold."""
    found: dict[str, LimitRangeItem] = {}
    for document in limit_ranges:
        for item in _get(document, "spec").get("limits") or ():
            kind = item.get("type", "")
            before = found.get(kind, LimitRangeItem())
            found[kind] = LimitRangeItem(
                _merged(before.most, _get(item, "max"), min),
                _merged(before.least, _get(item, "min"), max),
                _merged(before.limits, _get(item, "default")),
                _merged(before.requests, _get(item, "defaultRequest")),
            )
    return found


def _merged(first: Doc, second: Doc, choose: Callable[..., Any] | None = None) -> dict[str, Any]:
    """Both in one. Of a resource that is in both, `choose` decides, or the first holds."""
    found = dict(first)
    for name, text in second.items():
        if name not in found:
            found[name] = text
        elif choose is not None:
            found[name] = choose(found[name], text, key=quantity.exact)
    return found


def adjusted(spec: Doc, ranges: LimitRangeSummary, overheads: Mapping[str, Doc]) -> dict[str, Any]:
    """The pod with all defaults filled in. `overheads`: the overhead of a pod, by runtime class."""
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


def _filled(holder: Doc, bounds: LimitRangeItem | None) -> dict[str, Any]:
    """A container or a pod: its missing limits and requests from the LimitRange, then missing requests from its limits."""
    bounds = bounds or LimitRangeItem()
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


# -- violations -------------------------------------------------------------------------------------------------------


def unfit(podsets: Sequence[tuple[str, Doc]], ranges: LimitRangeSummary) -> str:
    """Why pods of these names and (adjusted) specs would be refused: requests above limits, or a violated LimitRange. Empty if they
    would not."""
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


def _out_of_range(name: str, pod: Doc, ranges: LimitRangeSummary) -> list[str]:
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


def _beyond(who: str, low: Doc, high: Doc, bounds: LimitRangeItem) -> list[str]:
    above = [
        f"{who} asks for more {resource} than the limit range allows: {asked}, at most {most}"
        for resource, asked, most in _greater(high, bounds.most)
    ]
    return above + [
        f"{who} asks for less {resource} than the limit range allows: {asked}, at least {least}"
        for resource, least, asked in _greater(bounds.least, low)
    ]


def _greater(one: Doc, other: Doc) -> list[tuple[str, Any, Any]]:
    """The resources that are in both and of which there is more in `one`."""
    return [
        (name, one[name], other[name])
        for name in sorted(one)
        if name in other and amount(name, one[name]) > amount(name, other[name])
    ]
