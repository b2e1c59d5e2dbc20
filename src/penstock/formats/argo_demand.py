"""The most that an Argo workflow can hold at one moment, for those who queue it whole. Called by the gate.

Calls of one group add up, groups follow one another, and of a dag the heaviest set of tasks of which no two are ordered counts;
a loop multiplies. A daemon is held until the template around it ends, so it runs beside everything that comes after it. Where a loop has
no known size, or a template calls itself, there is no such bound, and the user must give one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.formats.argo_scope import Resolved, Root, calls_of, is_composite, is_pod, root_of, type_of
from penstock.formats.argo_shape import Shape, shape_of, size_of
from penstock.formats.argo_stages import Stages, stages_of
from penstock.formats.documents import Document, Library
from penstock.formats.peak import Open, peaks

Demands = dict[str, int]
_TASK_NAME = re.compile(r"[A-Za-z0-9_][\w-]*(?:\.[A-Za-z]+)?")
_PLACES = frozenset({"nodeSelector", "tolerations"})


@dataclass(frozen=True, slots=True)
class Demand:
    resources: Mapping[str, int]
    """Thousandths. An upper bound if `open` is empty, and nothing otherwise."""
    open: tuple[Open, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """What all pods have in common."""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    alike: bool = True
    """All pods may run on the same machines."""


def demand_of(library: Library, document: Document) -> Demand:
    derived = stages_of(library, document)
    count = _Count(root_of(library, document), derived)
    shapes = [call.shape for stage in derived.queued() for call in stage.calls]
    resources = count.whole()
    return Demand(resources, tuple(count.open), *_common(shapes))


def _common(shapes: list[Shape]) -> tuple[dict[str, str], tuple[Mapping[str, Any], ...], bool]:
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


class _Count:
    """Peaks of templates, those that are called before those that call them."""

    def __init__(self, root: Root, derived: Stages) -> None:
        self.root = root
        self.derived = derived
        self.open: list[Open] = []
        self.peak: dict[str, Demands] = {}

    def whole(self) -> Demands:
        entry = self.root.entry()
        for lost in self.derived.unresolved:
            if not lost.exempt:
                message = f"{lost.unresolved.said} is not among the documents"
                self.open.append(Open(lost.path, lost.document, message, "give its file as well, or "))
        if not isinstance(entry, Resolved):
            return {}
        if is_pod(entry.template):
            return self._shape(entry, shape_of(self.root, entry), entry.path, entry.document)
        self._recursions()
        for here in self._order(entry):
            self.peak[here.qualified] = self._template(here)
        return self.peak.get(entry.qualified, {})

    def _recursions(self) -> None:
        for stage in self.derived.queued():
            if stage.recursive and any(call.shape.resources or call.shape.open for call in stage.calls):
                self._open(stage.path, stage.document, f"{stage.template} calls itself")

    def _order(self, entry: Resolved) -> Iterator[Resolved]:
        """Composite templates below the entrypoint, the inner ones first; a call back to one that is under way is passed over."""
        state: dict[str, Iterator[Resolved]] = {entry.qualified: self._below(entry)}
        path = [entry]
        while path:
            for one in state[path[-1].qualified]:
                if one.qualified not in state:
                    state[one.qualified] = self._below(one)
                    path.append(one)
                    break
            else:
                yield path.pop()

    def _below(self, here: Resolved) -> Iterator[Resolved]:
        for number, call, path in calls_of(here.template, here.path):
            found = here.resolve(call, here.at(number, call), path)
            if isinstance(found, Resolved) and is_composite(found.template):
                yield found

    def _template(self, here: Resolved) -> Demands:
        calls = list(calls_of(here.template, here.path))
        weights = [self._call(here, number, call, path) for number, call, path in calls]
        daemons = [self._daemon(here, number, call, path) for number, call, path in calls]
        if type_of(here.template) == "dag":
            return _dag([call for _, call, _ in calls], weights, daemons)
        most: Demands = {}
        staying: Demands = {}
        for number in sorted({number for number, _, _ in calls if number is not None}):
            group = dict(staying)
            for at, (other, _, _) in enumerate(calls):
                if other == number:
                    _add(group, weights[at])
                    if daemons[at]:
                        _add(staying, weights[at])
            most = {name: max(most.get(name, 0), group.get(name, 0)) for name in {**most, **group}}
        return most

    def _call(self, here: Resolved, number: int | None, call: Mapping[str, Any], path: str) -> Demands:
        found = here.resolve(call, here.at(number, call), path)
        if not isinstance(found, Resolved):
            return {}
        if is_pod(found.template):
            once = self._shape(found, shape_of(self.root, found, call), path, here.document)
        else:
            once = self.peak.get(found.qualified, {})
        size = size_of(call)
        if once and size is None:
            self._open(path, here.document, f"how often {call.get('name')} runs is only known when it runs")
        return {name: amount * (1 if size is None else size) for name, amount in once.items() if size != 0}

    def _daemon(self, here: Resolved, number: int | None, call: Mapping[str, Any], path: str) -> bool:
        found = here.resolve(call, here.at(number, call), path)
        return isinstance(found, Resolved) and found.scope.effective(found.template).get("daemon") is True

    def _shape(self, found: Resolved, shape: Shape, path: str, document: Document) -> Demands:
        unknown = [name for name in shape.open if name not in _PLACES]
        if unknown:
            name = found.template.get("name") or "a template"
            self._open(path, document, f"the {', '.join(unknown)} of {name} is only known when it runs")
        return dict(shape.resources)

    def _open(self, path: str, document: Document, message: str) -> None:
        self.open.append(Open(path, document, message))


def _add(total: Demands, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _dag(tasks: list[Mapping[str, Any]], weights: list[Demands], daemons: list[bool]) -> Demands:
    """A daemon's weight is laid on a node of its own, which begins when the daemon does and which nothing comes after."""
    number = {str(task.get("name")): at for at, task in enumerate(tasks)}
    edges = [
        (number[name], at)
        for at, task in enumerate(tasks)
        for name in dict.fromkeys(needed(task))
        if name in number and number[name] != at
    ]
    demands: list[Demands] = list(weights)
    for at, daemon in enumerate(daemons):
        if daemon:
            edges += [(first, len(demands)) for first, then in edges if then == at]
            demands.append(demands[at])
            demands[at] = {}
    return peaks(demands, edges)


def needed(task: Mapping[str, Any]) -> list[str]:
    """The tasks that must be over before this one is looked at: an expression waits for all that it mentions."""
    listed = task.get("dependencies")
    found = [str(name) for name in listed] if isinstance(listed, list) else []
    depends = task.get("depends")
    if isinstance(depends, str):
        found += [name.partition(".")[0] for name in _TASK_NAME.findall(depends)]
    return found
