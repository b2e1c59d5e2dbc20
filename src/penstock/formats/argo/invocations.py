"""The templates that a run of an Argo workflow invokes, with the inputs that the documents give them. Called by demand.

One template with one set of known inputs is one Invocation. What only the run knows is left out of the inputs, so the
number of invocations is small; a template that calls itself is invoked without inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.formats.argo.known import Values, entry_call, fill, values_inside, workflow_values
from penstock.formats.argo.language.depends import needed_for, needs_of
from penstock.formats.argo.pods import size_of
from penstock.formats.argo.scope import Resolved, WorkflowRoot, calls_of, is_composite, type_of
from penstock.formats.documents import items, part

MOST: Final = 10_000
"""Beyond so many invocations, inputs count as unknown."""

Key = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Invocation:
    """A template and the values that are known inside it."""

    of: Resolved
    values: Values

    @property
    def key(self) -> Key:
        return self.of.qualified, frozenset(self.values.items())


@dataclass(frozen=True, slots=True)
class InvokedCall:
    """A step or task of an invocation."""

    raw: Mapping[str, Any]
    group: int | None
    path: str
    size: int | None
    """How many times it runs; None if only the run can tell."""
    callee: Invocation | None
    """None for a call that cannot be followed."""

    @property
    def name(self) -> str:
        return str(self.raw.get("name") or "")

    @property
    def daemon(self) -> bool:
        callee = None if self.callee is None else self.callee.of
        return callee is not None and callee.scope.effective(callee.template).get("daemon") is True


class Invocations:
    """All invocations of one workflow, found as they are asked for."""

    def __init__(self, root: WorkflowRoot, recursive: Collection[str]) -> None:
        self._root = root
        self._recursive = recursive
        """Qualified names of templates that call themselves."""
        self._calls: dict[Key, list[InvokedCall]] = {}

    def entry(self) -> Invocation | None:
        """The entrypoint, called with the workflow's arguments; None if there is none or it cannot be found."""
        entry = self._root.entry()
        if not isinstance(entry, Resolved):
            return None
        return self._invocation(entry, entry_call(self._root), workflow_values(self._root))

    def calls(self, here: Invocation) -> list[InvokedCall]:
        """The steps of a template, or those tasks of a dag that its target needs."""
        known = self._calls.get(here.key)
        if known is not None:
            return known
        found = []
        for group, raw, path in calls_of(here.of.template, here.of.path):
            callee = here.of.resolve(raw, here.of.at(group, raw), path)
            inner = self._invocation(callee, raw, here.values) if isinstance(callee, Resolved) else None
            found.append(InvokedCall(raw, group, path, size_of(raw, here.values), inner))
        if type_of(here.of.template) == "dag":
            found = _targeted(found, fill(part(here.of.template, "dag").get("target"), here.values))
        self._calls[here.key] = found
        return found

    def inner_first(self, first: Invocation) -> Iterator[Invocation]:
        """Steps and dag templates, the called ones before those that call them. Skips a call back to one that is under way."""
        state = {first.key: self._composites(first)}
        path = [first]
        while path:
            for one in state[path[-1].key]:
                if one.key not in state:
                    state[one.key] = self._composites(one)
                    path.append(one)
                    break
            else:
                yield path.pop()

    def _composites(self, here: Invocation) -> Iterator[Invocation]:
        for call in self.calls(here):
            if call.callee is not None and is_composite(call.callee.of.template):
                yield call.callee

    def _invocation(self, callee: Resolved, call: Mapping[str, Any], around: Values) -> Invocation:
        if callee.qualified in self._recursive or len(self._calls) > MOST:
            declared = items(part(callee.template, "inputs"), "parameters")
            call = {"arguments": {"parameters": [{"name": one.get("name")} for _, one in declared]}}
        return Invocation(callee, values_inside(callee, call, around))


def _targeted(calls: list[InvokedCall], target: Any) -> list[InvokedCall]:
    """The tasks that a dag's target needs; all of them without one, or if only the run knows it."""
    if not isinstance(target, str) or not target.strip() or "{{" in target:
        return calls
    tasks = {call.name: call.raw for call in calls}
    wanted = needed_for(target.split(), lambda name: needs_of(tasks[name]) if name in tasks else [])
    return [call for call in calls if call.name in wanted]
