"""A run as the author wrote the workflow: one node for each step, however many tasks it has. Called by the views, by the board that
draws a run, and by `why`.

An outline is measured with tallies. While a run is executed here they come from the engine; otherwise from `tallies.TallyReader`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from penstock.graph.model import Nested, Step, Workflow, edges_of
from penstock.service.task_states import ACTIVE, ENDED
from penstock.store.records import FINAL

Tallies = Mapping[str, Mapping[str, int]]
"""Step path -> number of tasks by state; under `tasks`, how many tasks a looped step has in all."""
Times = Mapping[str, Sequence[float]]
"""Step path -> when its first task started and, if the step is over, when its last ended."""

MOST_DEPTH = 12
MOST_STEPS = 20_000
"""Limits of an outline: a workflow that calls another twice doubles the number of steps at each level."""


class StepNode:
    """One step and its progress."""

    __slots__ = (
        "at_end",
        "before",
        "depth",
        "each",
        "items",
        "looping",
        "name",
        "nested",
        "parent",
        "path",
        "state",
        "step",
        "tally",
        "total",
    )

    def __init__(self, step: Step, path: str, parent: StepNode | None, before: tuple[str, ...]) -> None:
        self.step = step
        self.name = step.name
        self.path = path
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.before = before
        """Paths of the steps that it depends on."""
        self.at_end = False
        """Is it an exit handler?"""
        self.each = step.each is not None
        self.items = _items(step)
        self.looping: bool = step.loop is not None or (parent is not None and parent.looping)
        self.nested = isinstance(step.action, Nested)
        self.state = ""
        """Of the whole step: one of the states of a task, or "" if none of its tasks has started."""
        self.total: int | None = None
        """How many tasks it has, known so far."""
        self.tally: Mapping[str, int] = {}

    @property
    def over(self) -> bool:
        return self.state in ENDED

    @property
    def many(self) -> bool:
        """Can it have more than one task?"""
        return self.each or (self.total or 0) > 1

    def count(self, states: Collection[str]) -> int:
        return sum(some for state, some in self.tally.items() if state in states)


def _items(step: Step) -> int | None:
    """How many items its loop has. None if that is known only at run time."""
    if step.each is None:
        return 1
    product = 1
    for axis in step.each.axes:
        lengths = [len(items) for items in axis.values() if isinstance(items, tuple | list)]
        if len(lengths) < len(axis) or not lengths:
            return None
        product *= min(lengths)
    return product


class Outline:
    def __init__(self, workflow: Workflow) -> None:
        self.nodes: list[StepNode] = []
        """In the author's order; each node comes before those inside it."""
        self._definitions = {definition.name: definition for definition in workflow.definitions}
        self._add(workflow, "", None)
        self.by_path = {node.path: node for node in self.nodes}
        self.groups: dict[str, list[StepNode]] = {}
        """Name of a group -> its steps, at any level."""
        for node in self.nodes:
            if node.step.group is not None:
                self.groups.setdefault(node.step.group, []).append(node)
        self._followers: dict[str, list[StepNode]] = {}
        for node in self.nodes:
            for up in node.before:
                self._followers.setdefault(up, []).append(node)

    def _add(self, workflow: Workflow, prefix: str, parent: StepNode | None) -> None:
        steps = (*workflow.steps, *workflow.on_exit)
        known = {step.name for step in steps}
        for number, step in enumerate(steps):
            before = tuple(prefix + up for up in edges_of(step) if up in known)
            node = StepNode(step, prefix + step.name, parent, before)
            node.at_end = number >= len(workflow.steps)
            self.nodes.append(node)
            if isinstance(step.action, Nested) and node.depth < MOST_DEPTH and len(self.nodes) < MOST_STEPS:
                inner = self._definitions.get(step.action.name)
                if inner is not None:
                    self._add(inner, node.path + "/", node)

    def measure(self, tallies: Tallies, state: str) -> None:
        """Set state, total and tally of each node. `state`: of the run. The tallies must not change afterwards."""
        over = state in FINAL
        for node in self.nodes:
            node.tally = tallies.get(node.path) or {}
        for node in self.nodes:
            self._measure(node, over)

    def _measure(self, node: StepNode, run_over: bool) -> None:
        parent = node.parent
        tally = node.tally
        done, busy = node.count(ENDED), node.count(ACTIVE)
        calls = 1 if parent is None else parent.total
        if node.each:
            known = tally.get("tasks") or (node.items * calls if node.items is not None and calls is not None else None)
            if "tasks" not in tally and done:
                known = done  # the step was skipped or omitted as a whole
        else:
            known = calls
        if node.looping:
            known = None
        node.total = max(known, done + busy) if known is not None else (done + busy or None)
        if run_over if parent is None else parent.over:
            over = True
        elif node.looping:
            # No task is active between two rounds either, so the steps that follow decide.
            top = parent is None or not parent.looping
            over = top and bool(done) and not busy and any(one.tally for one in self._followers.get(node.path, ()))
        elif parent is not None and (parent.each or parent.looping):
            over = False
        else:
            over = bool(done) and not busy and done >= (known or 0)
        node.state = _final_state(tally) if over else _current_state(tally, done)


def _final_state(tally: Mapping[str, int]) -> str:
    for state in ("failed", "errored", "cancelled", "succeeded", "reused", "omitted", "skipped"):
        if tally.get(state):
            return state
    return "cancelled" if any(tally.get(state) for state in ACTIVE) else "omitted"


def _current_state(tally: Mapping[str, int], done: int) -> str:
    return next((state for state in ACTIVE if tally.get(state)), "running" if done or tally.get("tasks") else "")
