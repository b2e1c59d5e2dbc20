"""Inlines called workflows. Called by workflow.

A nested pipeline returns no results, so Tekton cannot express a called workflow otherwise. Inlined steps get the name of the call as prefix, and the
arguments and outputs of the call are substituted. A loop over a call is unrolled if its items are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import Problem, UserError
from penstock.expressions.evaluate import EvaluationError, resolve
from penstock.expressions.parse import Binary, Const, Expr, Index, Node, path_of, reference, references
from penstock.expressions.parse import replace as replaced
from penstock.expressions.template import Template
from penstock.formats.report import Report
from penstock.formats.values import joined, pieces
from penstock.graph.model import (
    MISSING,
    Edge,
    Nested,
    Step,
    Value,
    Workflow,
    edges_of,
    expressions,
)
from penstock.graph.order import topological
from penstock.graph.rewrite import as_node, map_step

MOST_COPIES = 256
MOST_TEXT = 1 << 20
MOST_STEPS = 5_000
Path = tuple[str, ...]


@dataclass(slots=True)
class FlatWorkflow:
    steps: list[Step] = field(default_factory=list)
    on_exit: list[Step] = field(default_factory=list)
    outputs: dict[str, Value] = field(default_factory=dict)


def flatten(workflow: Workflow, report: Report, problems: list[Problem]) -> FlatWorkflow:
    """What cannot be inlined goes to `problems`."""
    return _Flattener(workflow, report, problems).run()


@dataclass(slots=True)
class _Level:
    """One workflow that is being inlined: the values of its names."""

    prefix: str
    swap: dict[Path, Value]
    when: Expr | None = None
    needs: tuple[Edge, ...] = ()
    chain: tuple[str, ...] = ()
    ends: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Step -> the flat steps whose end is its end."""
    leaves: set[str] = field(default_factory=set)
    """Steps that need no inlining."""


class _Flattener:
    def __init__(self, workflow: Workflow, report: Report, problems: list[Problem]) -> None:
        self.root = workflow
        self.definitions = {one.name: one for one in workflow.definitions}
        self.report = report
        self.problems = problems
        self.flat = FlatWorkflow()
        self._ends: dict[tuple[str, str], list[str]] = {}
        self._origin: dict[str, str] = {}
        """Flat step -> its step of the root."""
        self._root = ""

    def run(self) -> FlatWorkflow:
        level = _Level("", {})
        self._steps(self.root, level)
        place = {step.name: number for number, step in enumerate(self.root.steps)}
        self.flat.steps.sort(key=lambda step: place[self._origin[step.name]])
        for step in self.root.on_exit:
            self._handler(step, level)
        outputs = ((one.name, one.value) for one in self.root.outputs)
        self.flat.outputs = {name: self._change(level)(value) for name, value in outputs}
        return self.flat

    def _wrong(self, code: str, step: Step, message: str, fix: str) -> None:
        self.problems.append(Problem(code, message, fix, where=f"steps.{step.name}", source=step.source))

    # -- one level ----------------------------------------------------------------------------------------------------

    def _steps(self, workflow: Workflow, level: _Level) -> None:
        by_name = {step.name: step for step in workflow.steps}
        waits = {name: {up for up in edges_of(step) if up in by_name} for name, step in by_name.items()}
        for name in topological(waits):
            step = by_name[name]
            if not level.prefix:
                self._root = name
            if isinstance(step.action, Nested):
                self._call(step, level)
            else:
                self._leaf(step, level)

    def _leaf(self, step: Step, level: _Level) -> None:
        name = self._free(level.prefix + step.name)
        own = map_step(step, self._change(level))
        needs = self._needs(step, level)
        level.ends[step.name] = (name,)
        level.leaves.add(step.name)
        level.swap[("steps", step.name)] = _step_node(name)
        self._add(replace(own, name=name, needs=needs, when=_both(level.when, own.when)))

    def _free(self, name: str) -> str:
        """`a-b` may be a step, and step b of a call a."""
        own, number = name, 2
        while own in self._origin:
            own, number = f"{name}-{number}", number + 1
        return own

    def _add(self, step: Step) -> None:
        if len(self.flat.steps) == MOST_STEPS:
            self._wrong("P850", step, f"written out, the workflow has more than {MOST_STEPS} steps", "split it up")
            raise UserError(self.problems)  # every level may double what is still to be written out
        self.flat.steps.append(step)
        self._origin[step.name] = self._root

    def _needs(self, step: Step, level: _Level) -> tuple[Edge, ...]:
        """The dependencies as flat steps. Reading a flat step implies waiting for it; waiting for a call is waiting for its last steps. The first
        steps of a called workflow wait for the dependencies of the call."""
        edges = edges_of(step)
        said = {edge.step for edge in step.needs}
        found: dict[str, Edge] = {}
        for up, outcomes in edges.items():
            names = level.ends.get(up, ())
            plain = up in level.leaves and up not in said and not isinstance(step.action, Nested)
            for name in () if plain else names:
                found[name] = Edge(name, outcomes)
        if not any(up in level.ends for up in edges):
            found |= {edge.step: edge for edge in level.needs if edge.step not in found}
        return tuple(found.values())

    def _handler(self, step: Step, level: _Level) -> None:
        if not isinstance(step.action, Nested):
            self.flat.on_exit.append(map_step(step, self._change(level)))
            return
        target = self.definitions.get(step.action.name)
        if target is None or len(target.steps) != 1 or isinstance(target.steps[0].action, Nested) or target.on_exit:
            self._wrong("P850", step, "what runs at the end has no order in Tekton", "let it be one step")
            return
        inner = _Level(f"{step.name}-", self._params(target, step, level), self._when(step, level))
        (only,) = target.steps
        own = map_step(only, self._change(inner))
        self.flat.on_exit.append(replace(own, name=f"{step.name}-{only.name}", when=_both(inner.when, own.when)))

    # -- calls --------------------------------------------------------------------------------------------------------

    def _call(self, step: Step, level: _Level) -> None:
        assert isinstance(step.action, Nested)
        target = self.definitions.get(step.action.name)
        if target is None or not self._can_be_written_out(step, target, level):
            level.ends[step.name] = ()
            return
        self._tell(step)
        if step.each is None:
            given = self._one(step, target, level, level.prefix + step.name, {})
            outputs = {output.name: given.get(output.name) for output in target.outputs}
        else:
            outputs = self._copies(step, target, level)
        level.ends[step.name] = tuple(self._ends.pop((level.prefix, step.name), ()))
        for name, value in outputs.items():
            level.swap[("steps", step.name, "outputs", name)] = value

    def _can_be_written_out(self, step: Step, target: Workflow, level: _Level) -> bool:
        why = fix = ""
        if target.name in level.chain:
            why, fix = f"{target.name!r} calls itself", "unroll it by hand, or run it with Penstock"
        elif step.loop is not None:
            why, fix = "a while loop has no form in Tekton", "unroll it, or run it with Penstock"
        elif target.on_exit:
            why, fix = f"{target.name!r} has exit handlers of its own", "move them to the workflow itself"
        elif step.trigger is not None:
            why, fix = "a called workflow cannot hang on how others ended", "use `when` over results"
        if why:
            self._wrong("P850", step, f"{step.name!r}: {why}", fix)
        return not why

    def _tell(self, step: Step) -> None:
        near = "say it of the steps inside"
        for what, value in (("retry", step.retry), ("timeout", step.timeout), ("locks", step.locks)):
            if value:
                said = f"{what} of the called workflow {step.name!r}, which is written out"
                self.report.lost(f"steps.{step.name}.{what}", said, near, step.source)

    def _params(self, target: Workflow, step: Step, level: _Level) -> dict[Path, Value]:
        change = self._change(level)
        largest = max(map(_size, level.swap.values()), default=0)
        given: dict[str, Value] = {}
        for one in step.inputs:
            if _size(one.value) + largest * sum(1 for _ in expressions(one.value)) > MOST_TEXT:
                said = f"{step.name!r}: written out, the value of {one.name!r} has more than {MOST_TEXT} characters"
                self._wrong("P850", step, said, "let a step work the value out")
                raise UserError(self.problems)
            given[one.name] = change(one.value)
        found: dict[Path, Value] = {}
        for param in target.params:
            value = given.get(param.name, param.default)
            found["params", param.name] = None if value is MISSING else value
        return found

    def _when(self, step: Step, level: _Level) -> Expr | None:
        return _both(level.when, None if step.when is None else self._change(level)(step.when))

    def _one(
        self, step: Step, target: Workflow, level: _Level, prefix: str, item: Mapping[str, Any]
    ) -> dict[str, Value]:
        """Inlines one call; returns its outputs."""
        outer = replace(level, swap={**level.swap, **{("item", name): value for name, value in item.items()}})
        inner = _Level(
            f"{prefix}-",
            self._params(target, step, outer),
            self._when(step, outer),
            self._needs(step, level),
            (*level.chain, target.name),
        )
        before = len(self.flat.steps)
        self._steps(target, inner)
        made = self.flat.steps[before:]
        followed = {up for one in made for up in edges_of(one)}
        ends = tuple(one.name for one in made if one.name not in followed)
        self._ends.setdefault((level.prefix, step.name), []).extend(ends)
        return {output.name: self._change(inner)(output.value) for output in target.outputs}

    def _copies(self, step: Step, target: Workflow, level: _Level) -> dict[str, Value]:
        assert step.each is not None
        try:
            items = list(combinations(step.each.axes, self._change(level)))
        except (EvaluationError, ValueError):
            self._wrong(
                "P853",
                step,
                f"{step.name!r}: a loop over several steps whose items are known only when it runs",
                "loop over a single step, or write the items out",
            )
            return {}
        if len(items) > MOST_COPIES:
            self._wrong("P853", step, f"{step.name!r}: {len(items)} copies of several steps", "loop over a single step")
            items = items[:1]
        made = [
            self._one(step, target, level, f"{level.prefix}{step.name}-{number}", item)
            for number, item in enumerate(items)
        ]
        return {output.name: tuple(one.get(output.name) for one in made) for output in target.outputs}

    # -- names --------------------------------------------------------------------------------------------------------

    def _change(self, level: _Level) -> Callable[[Value], Value]:
        return lambda value: substitute(value, level.swap)


def _size(value: Value) -> int:
    """Its characters, about."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Expr):
        return len(value.text)
    if isinstance(value, Template):
        return sum(map(_size, value.parts))
    if isinstance(value, tuple | list):
        return sum(map(_size, value)) + len(value)
    return sum(map(_size, value.values())) + len(value) if isinstance(value, dict) else 1


def _step_node(name: str) -> Expr:
    return Expr.tree(reference("steps", name))


def _both(one: Expr | None, other: Value) -> Expr | None:
    """`a && b`, where either may have become a constant."""
    if other is None:
        return one
    node = as_node(other)
    return Expr.tree(node if one is None else Binary("&&", one.node, node))


def combinations(
    axes: tuple[Mapping[str, Value], ...], change: Callable[[Value], Value], item: dict[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Raises EvaluationError if the items are not known, ValueError if lists that advance together differ in length."""
    known = item or {}
    if not axes:
        yield known
        return
    lists = {name: list(resolve(change(value), {"item": known})) for name, value in axes[0].items()}
    for values in zip(*lists.values(), strict=True):
        yield from combinations(axes[1:], change, {**known, **dict(zip(lists, values, strict=True))})


# -- putting values in place of names ---------------------------------------------------------------------------------


def substitute(value: Value, swap: Mapping[Path, Value]) -> Value:
    """The value with paths replaced by values. A single path becomes the value itself; a text that contains it stays text."""
    if not swap:
        return value
    if isinstance(value, Expr):
        return _substituted(value, swap)
    if isinstance(value, Template):
        return _template([one if isinstance(one, str) else _substituted(one, swap) for one in value.parts])
    if isinstance(value, tuple):
        return tuple(substitute(one, swap) for one in value) if any(True for _ in expressions(value)) else value
    if isinstance(value, dict):
        return {key: substitute(one, swap) for key, one in value.items()}
    return value


def _substituted(value: Expr, swap: Mapping[Path, Value]) -> Value:
    node = value.node
    path = path_of(node)
    if path is not None:
        length = next((size for size in range(len(path), 0, -1) if path[:size] in swap), 0)
        if not length:
            return value
        return _inside(swap[path[:length]], path[length:])
    if isinstance(node, Index):
        of = _substituted(Expr.tree(node.of), swap)
        if isinstance(of, tuple) and isinstance(node.index, Const) and isinstance(node.index.value, int):
            return of[node.index.value] if node.index.value < len(of) else value
    touched = set(references(value.text))
    used: dict[Path, Node] = {
        key: as_node(given) for key, given in swap.items() if any(one[: len(key)] == key for one in touched)
    }
    return Expr.tree(replaced(node, used)) if used else value


def _inside(value: Value, rest: Path) -> Value:
    """The value at a path inside a value."""
    if not rest:
        return value
    if isinstance(value, dict) and rest[0] in value:
        return _inside(value[rest[0]], rest[1:])
    node = as_node(value)
    for name in rest:
        node = Index(node, Const(name))
    return Expr.tree(node)


def _template(parts: list[Value]) -> Value:
    return parts[0] if len(parts) == 1 else joined(piece for one in parts for piece in pieces(one))
