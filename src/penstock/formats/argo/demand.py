"""The peak demand of an Argo workflow that is queued whole. Called by the gate.

Calls of one group add up, groups follow one another, and of a dag the heaviest set of tasks of which no two are ordered counts;
a loop multiplies. A daemon is held until the template around it ends, so it runs beside everything that comes after it. If a loop has
no known size, or a template calls itself, there is no bound, and the user must declare one.

A template is evaluated once for each set of inputs that the documents give it (see invocations), the called ones first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.formats.argo.invocations import Invocation, Invocations, InvokedCall, Key
from penstock.formats.argo.language.depends import needs_of
from penstock.formats.argo.pods import PLACES, PodShape, shape_of
from penstock.formats.argo.scope import WorkflowRoot, is_pod, root_of, type_of
from penstock.formats.argo.stages import StaticStages, static_stages
from penstock.formats.documents import Document, Library
from penstock.formats.gates.peak import Unbounded, peaks

Demands = dict[str, int]


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand of a whole workflow."""

    resources: Mapping[str, int]
    """Thousandths. An upper bound, valid only if `open` is empty."""
    open: tuple[Unbounded, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """What all pods have in common."""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    alike: bool = True
    """All pods may run on the same machines."""


def demand_of(library: Library, document: Document) -> Demand:
    derived = static_stages(library, document)
    peak = _WorkflowPeak(root_of(library, document), derived)
    shapes = [call.shape for stage in derived.queued() for call in stage.calls]
    resources = peak.whole()
    return Demand(resources, tuple(peak.open.values()), *_common(shapes))


def _common(shapes: list[PodShape]) -> tuple[dict[str, str], tuple[Mapping[str, Any], ...], bool]:
    if not shapes:
        return {}, (), True
    first = shapes[0]
    selector = {
        name: text
        for name, text in first.node_selector.items()
        if all(one.node_selector.get(name) == text for one in shapes)
    }
    tolerations = tuple(one for one in first.tolerations if all(one in other.tolerations for other in shapes))
    alike = all(one.node_selector == selector and len(one.tolerations) == len(tolerations) for one in shapes)
    return selector, tolerations, alike


class _WorkflowPeak:
    """The peak of each invocation below the entrypoint."""

    def __init__(self, root: WorkflowRoot, derived: StaticStages) -> None:
        self.root = root
        self.derived = derived
        self.invocations = Invocations(root, derived.recursive)
        self.open: dict[tuple[str, str, str], Unbounded] = {}
        """By file, path and message: each place is reported once."""
        self.peak: dict[Key, Demands] = {}

    def whole(self) -> Demands:
        for lost in self.derived.unresolved:
            if not lost.exempt:
                message = f"{lost.unresolved.reference} is not among the documents"
                self._open(lost.path, lost.document, message, "give its file as well, or ")
        entry = self.invocations.entry()
        if entry is None:
            return {}
        if is_pod(entry.of.template):
            return self._pods(entry, entry.of.path, entry.of.document)
        self._recursions()
        for here in self.invocations.inner_first(entry):
            self.peak[here.key] = self._template(here)
        return self.peak.get(entry.key, {})

    def _recursions(self) -> None:
        for stage in self.derived.queued():
            if stage.recursive and any(call.shape.resources or call.shape.open for call in stage.calls):
                self._open(stage.path, stage.document, f"{stage.template} calls itself")

    def _template(self, here: Invocation) -> Demands:
        calls = self.invocations.calls(here)
        weights = [self._weight(here, call) for call in calls]
        if type_of(here.of.template) == "dag":
            return _dag(calls, weights)
        most: Demands = {}
        staying: Demands = {}
        for number in sorted({call.group for call in calls if call.group is not None}):
            group = dict(staying)
            for call, weight in zip(calls, weights, strict=True):
                if call.group == number:
                    _add(group, weight)
                    if call.daemon:
                        _add(staying, weight)
            most = {name: max(most.get(name, 0), group.get(name, 0)) for name in {**most, **group}}
        return most

    def _weight(self, here: Invocation, call: InvokedCall) -> Demands:
        if call.callee is None:
            return {}
        if is_pod(call.callee.of.template):
            once = self._pods(call.callee, call.path, here.of.document)
        else:
            once = self.peak.get(call.callee.key, {})
        if once and call.size is None:
            self._open(call.path, here.of.document, f"how often {call.name} runs is only known when it runs")
        times = 1 if call.size is None else call.size
        return {name: amount * times for name, amount in once.items() if times}

    def _pods(self, callee: Invocation, path: str, document: Document) -> Demands:
        shape = shape_of(self.root, callee.of, callee.values)
        unknown = [name for name in shape.open if name not in PLACES]
        if unknown:
            name = callee.of.template.get("name") or "a template"
            self._open(path, document, f"the {', '.join(unknown)} of {name} is only known when it runs")
        return dict(shape.resources)

    def _open(self, path: str, document: Document, message: str, fix: str = "") -> None:
        self.open.setdefault((document.file, path, message), Unbounded(path, document, message, fix))


def _add(total: Demands, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _dag(calls: list[InvokedCall], weights: list[Demands]) -> Demands:
    """A daemon's weight goes on a node of its own, which starts when the daemon does and before nothing else."""
    number = {call.name: at for at, call in enumerate(calls)}
    edges = [
        (number[name], at)
        for at, call in enumerate(calls)
        for name in dict.fromkeys(needs_of(call.raw))
        if name in number and number[name] != at
    ]
    demands: list[Demands] = list(weights)
    for at, call in enumerate(calls):
        if call.daemon:
            edges += [(first, len(demands)) for first, then in edges if then == at]
            demands.append(demands[at])
            demands[at] = {}
    return peaks(demands, edges)
