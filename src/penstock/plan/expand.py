"""What is known of a workflow before it runs: how many tasks each step has, and whether it runs.

Called by plan.make. A fan-out stays one node with a count, however large. A count that depends on an earlier step is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from penstock.errors import PlanError, Problem
from penstock.expressions.evaluate import ABSENT, EvaluationError, evaluate, resolve
from penstock.expressions.parse import Expr, references
from penstock.graph.antichain import PartialOrder
from penstock.graph.model import MISSING, Input, Nested, Step, Value, Workflow, expressions

MOST_STEPS = 200_000
"""The most steps of expanded nested workflows. Thirty levels that each call the next one twice would be a thousand million."""
ITSELF = "known at run time: it calls itself"
ENUMERATE = 10_000
"""Up to so many items are evaluated one by one, for conditions and nested loops over them. Above, counts are upper bounds."""


@dataclass(frozen=True, slots=True)
class Size:
    """How many. `count` is None if that is only known at run time; `exact` is False if it is an upper bound."""

    count: int | None
    exact: bool = True
    why: str = ""

    def __str__(self) -> str:
        if self.count is None:
            return "?"
        return f"{self.count:,}" if self.exact else f"≤{self.count:,}"

    def times(self, other: Size) -> Size:
        if self.count is None or other.count is None:
            return Size(None, False, self.why or other.why)
        return Size(self.count * other.count, self.exact and other.exact, self.why or other.why)

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"count": self.count}
        if not self.exact:
            data["exact"] = False
        if self.why:
            data["why"] = self.why
        return data


ONE = Size(1)


@dataclass(frozen=True, slots=True)
class Planned:
    """What is known of one step before the run."""

    path: str
    """`outer/inner` for a step of a nested workflow."""
    step: Step
    tasks: Size
    """In one run of the workflow around it."""
    runs: Literal["yes", "no", "maybe"]
    """Will it run? `maybe`: its condition depends on something that is only known later."""
    rounds: int | None = None
    """The most rounds of a while loop."""
    exempt: bool = False
    """It never queues: an exit handler, or declared exempt."""
    inner: Level | None = None
    """The steps of the workflow that this step calls."""
    recursive: bool = False
    """It calls a workflow around it, which is not expanded again."""
    repeats: bool = False
    """The workflow that it calls is called again inside it, an unknown number of times."""

    @property
    def width(self) -> Size:
        """How many of its tasks can run at the same time."""
        if self.runs == "no":
            return Size(0)
        limit = self.step.each.parallel if self.step.each is not None else None
        if limit is None:
            return self.tasks
        if self.tasks.count is None:
            return Size(limit, False)
        return Size(min(limit, self.tasks.count), self.tasks.exact)


@dataclass(frozen=True)
class Level:
    """The steps of one workflow in topological order, and what each waits for."""

    steps: tuple[Planned, ...]
    before: Mapping[str, tuple[str, ...]]
    """Name of a step -> names of the steps it waits for, both of this level."""

    @cached_property
    def graph(self) -> PartialOrder:
        """The same by number, for computations."""
        position = {planned.step.name: i for i, planned in enumerate(self.steps)}
        edges = ((position[up], i) for i, planned in enumerate(self.steps) for up in self.before[planned.step.name])
        return PartialOrder(len(self.steps), edges)

    def walk(self) -> Iterator[tuple[Planned, Size]]:
        """Every step, nested ones after the step that calls them, with how many times its workflow is called."""
        yield from _walk(self, ONE)


def _walk(level: Level, calls: Size) -> Iterator[tuple[Planned, Size]]:
    for planned in level.steps:
        yield planned, calls
        if planned.inner is not None:
            again = Size(None, False, ITSELF) if planned.repeats else calls.times(planned.tasks)
            if planned.rounds is not None:
                again = again.times(Size(planned.rounds, False, "a while loop"))
            yield from _walk(planned.inner, again)


def expand(
    workflow: Workflow, given: Mapping[str, Any], orders: Mapping[str, tuple[list[str], Mapping[str, tuple[str, ...]]]]
) -> Level:
    """`orders`: for the root ("") and each definition, its steps in topological order and what each waits for."""
    definitions = {definition.name: definition for definition in workflow.definitions}
    known = {
        param.name: given.get(param.name, ABSENT if param.default is MISSING else param.default)
        for param in workflow.params
    }
    return _Expansion(definitions, orders).level(workflow, "", known, "", frozenset())


@dataclass(slots=True)
class _Expansion:
    """One pass over a workflow and what it calls, with the room that is left for steps."""

    definitions: Mapping[str, Workflow]
    orders: Mapping[str, tuple[list[str], Mapping[str, tuple[str, ...]]]]
    room: int = MOST_STEPS
    closed: set[str] = field(default_factory=set)
    """Definitions that are called inside themselves, found so far."""

    def level(
        self,
        workflow: Workflow,
        key: str,
        params: Mapping[str, Any],
        prefix: str,
        stack: frozenset[str],
        exempt: bool = False,
    ) -> Level:
        order, before = self.orders[key]
        self.room -= len(order) if prefix else 0
        if self.room < 0:
            raise PlanError(
                Problem(
                    "P405",
                    f"its nested workflows come to more than {MOST_STEPS:,} steps",
                    "call a nested workflow from one step with a for-each instead of from many steps",
                    where=prefix.rstrip("/"),
                )
            )
        scope = {"params": params, **dict.fromkeys(("steps", "item", "inputs", "workflow", "run"), ABSENT)}
        by_name = {step.name: step for step in (*workflow.steps, *workflow.on_exit)}
        exits = {step.name for step in workflow.on_exit}
        planned: list[Planned] = []
        idle: set[str] = set()
        for name in order:
            planned.append(self.step(by_name[name], scope, prefix, exempt or name in exits, stack, idle))
            if planned[-1].runs == "no":
                idle |= _not_given(by_name[name], self.definitions)
        return Level(tuple(planned), before)

    def step(
        self,
        step: Step,
        scope: Mapping[str, Any],
        prefix: str,
        exempt: bool,
        stack: frozenset[str],
        idle: Collection[str],
    ) -> Planned:
        """`idle`: outputs (`step.output`) of skipped steps."""
        tasks, runs = count_tasks(step, scope)
        exempt = exempt or step.exempt
        inner = None
        recursive = repeats = False
        name = step.action.name if isinstance(step.action, Nested) else ""
        if name in stack:
            recursive = True
            if runs != "no":
                self.closed.add(name)
        elif name in self.definitions:
            inner = self.call(step, name, scope, prefix, stack, exempt, idle)
            repeats = name in self.closed
            self.closed.discard(name)
        rounds = None if step.loop is None else step.loop.max_iterations
        return Planned(prefix + step.name, step, tasks, runs, rounds, exempt, inner, recursive, repeats)

    def call(
        self,
        step: Step,
        name: str,
        scope: Mapping[str, Any],
        prefix: str,
        stack: frozenset[str],
        exempt: bool,
        idle: Collection[str],
    ) -> Level:
        target = self.definitions[name]
        changing = set(step.loop.carry) if step.loop is not None else set()
        given = {item.name: item for item in step.inputs}
        params = {}
        for param in target.params:
            known = ABSENT if param.default is MISSING else param.default
            if param.name in changing:
                known = ABSENT
            elif param.name in given:
                known = _known(given[param.name], scope, idle, known)
            params[param.name] = known
        return self.level(target, name, params, f"{prefix}{step.name}/", stack | {name}, exempt)


def _not_given(step: Step, definitions: Mapping[str, Workflow]) -> set[str]:
    """The outputs that a skipped step does not give. A loop gives an empty list."""
    if step.each is not None:
        return set()
    outputs = definitions[step.action.name].outputs if isinstance(step.action, Nested) else step.outputs
    return {f"{step.name}.{output.name}" for output in outputs if output.default is MISSING}


def _known(given: Input, scope: Mapping[str, Any], idle: Collection[str], default: Any) -> Any:
    """The value of a parameter; `default`: its value if none is given."""
    value = given.value
    if idle and any(
        path[0] == "steps" and len(path) > 3 and f"{path[1]}.{path[3]}" in idle
        for expr in expressions(value)
        for path in references(expr.text)
    ):
        if given.default is MISSING:
            return default
        value = given.default
    try:
        return resolve(value, scope)
    except EvaluationError:
        return ABSENT


def count_tasks(step: Step, scope: Mapping[str, Any]) -> tuple[Size, Literal["yes", "no", "maybe"]]:
    """The number of tasks of a step, and whether any of them runs."""
    holds = True if step.when is None else decide(step.when, scope)
    if holds is False:
        return Size(0), "no"
    maybe: Literal["yes", "maybe"] = "yes" if holds else "maybe"
    if step.each is None:
        return ONE, maybe
    size = count_items(step.each.axes, scope)
    if size.count == 0 and size.exact:
        return size, "no"
    if (
        step.when is not None
        and size.count is not None
        and any(path[0] == "item" for path in references(step.when.text))
    ):
        return _count_where(step, scope, size)
    return size, maybe


def decide(when: Expr, scope: Mapping[str, Any]) -> bool | None:
    """A condition evaluated without the items of a for-each; None if it depends on them, or on a value that is not known yet.

    If it is false for every item, the items are not evaluated: the steps that give them may have been skipped as well."""
    try:
        return evaluate(when, {**scope, "item": ABSENT}) is True
    except EvaluationError:
        return None


def count_items(axes: Sequence[Mapping[str, Value]], scope: Mapping[str, Any]) -> Size:
    """Axes multiply, unless one depends on the variables of another: then its lists are counted one by one."""
    total = ONE
    for i, axis in enumerate(axes):
        if any(
            path[0] == "item"
            for items in axis.values()
            for expr in expressions(items)
            for path in references(expr.text)
        ):
            return _count_nested(axes, i, scope, total)
        total = total.times(_axis_size(axis, scope))
    return total


def _axis_size(axis: Mapping[str, Value], scope: Mapping[str, Any]) -> Size:
    why = ""
    for items in axis.values():
        if isinstance(items, tuple):
            return Size(len(items))
        try:
            found = resolve(items, scope)
        except EvaluationError:
            why = why or _reason(items)
            continue
        if isinstance(found, list | tuple | range | dict):
            return Size(len(found))
        why = why or "not a list"
    return Size(None, False, why)


def _reason(items: Value) -> str:
    for expr in expressions(items):
        for path in references(expr.text):
            if path[0] == "steps" and len(path) > 1:
                return f"known once {path[1]} has run"
            if path[0] == "params" and len(path) > 1:
                return f"depends on the parameter {path[1]}"
    return "known at run time"


def each_item(axes: Sequence[Mapping[str, Value]], scope: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of loop variables, in order. Raises EvaluationError if a list is not known."""
    yield from _each(list(axes), scope, {})


def _each(axes: list[Mapping[str, Value]], scope: Mapping[str, Any], item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if not axes:
        yield item
        return
    lists = {name: resolve(items, {**scope, "item": item}) for name, items in axes[0].items()}
    for values in zip(*lists.values(), strict=True):
        yield from _each(axes[1:], scope, {**item, **dict(zip(lists, values, strict=True))})


def _count_nested(axes: Sequence[Mapping[str, Value]], at: int, scope: Mapping[str, Any], outer: Size) -> Size:
    if outer.count is None or outer.count > ENUMERATE:
        return Size(None, False, outer.why or "too many to count before running")
    total = 0
    try:
        for item in each_item(axes[:at], scope):
            size = _axis_size(axes[at], {**scope, "item": item})
            if size.count is None:
                return Size(None, False, size.why)
            total += size.count if at + 1 == len(axes) else _rest(axes, at, scope, item)
            if total > ENUMERATE and at + 1 < len(axes):
                return Size(None, False, "too many to count before running")
    except (EvaluationError, ValueError):
        return Size(None, False, "known at run time")
    return Size(total)


def _rest(axes: Sequence[Mapping[str, Value]], at: int, scope: Mapping[str, Any], item: dict[str, Any]) -> int:
    return sum(1 for _ in zip(_each(list(axes[at:]), scope, item), range(ENUMERATE + 1), strict=False))


def _count_where(step: Step, scope: Mapping[str, Any], size: Size) -> tuple[Size, Literal["yes", "no", "maybe"]]:
    """`when` reads the items: counts those for which it holds, if they are known and few enough."""
    assert step.each is not None and step.when is not None and size.count is not None
    if size.count <= ENUMERATE:
        try:
            held = sum(
                evaluate(step.when, {**scope, "item": item}) is True for item in each_item(step.each.axes, scope)
            )
            return Size(held), "yes" if held else "no"
        except (EvaluationError, ValueError):
            pass
    return Size(size.count, False, "a condition on each item"), "maybe"
