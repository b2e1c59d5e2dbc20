"""The rules of order: cycles, steps that can never run, values that may be missing, groups. Called by check.workflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

from penstock.expressions.parse import Binary, Call, Choice, Expr, Macro, Node, children, path_of, references, show
from penstock.graph.check.context import Context
from penstock.graph.check.scalars import cycle_path
from penstock.graph.model import MISSING, Outcome, Step, expressions, step_values
from penstock.graph.order import NotOrdered


def check_order(context: Context) -> None:
    _exit_handlers(context)
    try:
        _ = context.links.order
    except NotOrdered as cycle:
        first = context.steps[cycle.names[0]]
        context.report(
            "P212",
            f"these steps wait for one another: {cycle_path(cycle.names)}",
            "remove one of the dependencies; to repeat steps, use a while loop",
            context.place_of(first.name),
            first.source,
        )
        return
    for rule in ORDERED_RULES:
        rule(context)


def _exit_handlers(context: Context) -> None:
    """A step cannot wait for what runs after everything else."""
    if not context.exits:
        return
    for step in context.workflow.steps:
        for name in (name for name in context.links.edges[step.name] if name in context.exits):
            context.report(
                "P222",
                f"the step {step.name!r} waits for the exit handler {name!r}, which runs after everything else",
                "move one of them",
                f"steps.{step.name}",
                step.source,
            )


def _reachable(context: Context) -> None:
    """Which outcomes can each step have? A step that waits for an impossible one never runs."""
    never_holds = {problem.where for problem in context.problems if problem.code == "P221"}
    edges = context.links.edges
    possible: dict[str, frozenset[Outcome]] = {}
    for name in context.links.order:
        step = context.steps[name]
        waits = edges[name].items()
        starved = [up for up, wanted in waits if wanted and up in possible and wanted.isdisjoint(possible[up])]
        if starved and step.trigger is None:
            up = starved[0]
            wanted, only = (", ".join(sorted(outcomes)) for outcomes in (edges[name][up], possible[up]))
            context.report(
                "P222",
                f"the step {name!r} can never run: it waits for {up!r} to be {wanted}, and {up!r} can only be {only}",
                "correct the outcomes, or remove the step",
                context.place_of(name),
                step.source,
            )
            possible[name] = frozenset({Outcome.OMITTED})
            continue
        dead = bool(never_holds) and f"{context.prefix}{context.place_of(name)}.when" in never_holds
        skips = step.when is not None or step.each is not None or step.loop is not None
        omits = step.trigger is not None or any(not possible.get(up, _NONE) <= wanted for up, wanted in waits)
        possible[name] = _outcomes(dead, skips, omits)


_NONE: Final[frozenset[Outcome]] = frozenset()
_RAN: Final = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.ERRORED, Outcome.CANCELLED})


@cache
def _outcomes(dead: bool, skips: bool, omits: bool) -> frozenset[Outcome]:
    """Of a step whose condition never holds, that may be skipped, that may be omitted."""
    found = {Outcome.SKIPPED} if dead else set(_RAN)
    if skips:
        found.add(Outcome.SKIPPED)
    if omits:
        found.add(Outcome.OMITTED)
    return frozenset(found)


def _missing_values(context: Context) -> None:
    """A value may be missing if its step can be skipped when the step that reads it is not."""
    guarded = {
        name: found for name, step in context.steps.items() if step.when is not None and (found := _conditions(step))
    }
    if not guarded:
        return
    steps = context.steps.values()
    defaults = {(step.name, out.name) for step in steps for out in step.outputs if out.default is not MISSING}
    for step in steps:
        edges = context.links.edges[step.name]
        waits = {up for up, wanted in edges.items() if up in guarded and Outcome.SKIPPED in wanted}
        if not waits:
            continue
        own = _conditions(step)
        settled = {f"inputs.{given.name}" for given in step.inputs if given.default is not MISSING}
        for place, value in step_values(step):
            if place in ("when", "trigger") or place in settled:
                continue
            for path in (path for expr in expressions(value) for path in _surely_read(expr.node)):
                if path[0] != "steps" or len(path) < 4 or path[1] not in waits or guarded[path[1]] <= own:
                    continue
                if (path[1], path[3]) not in defaults:
                    _report_missing(context, step, path, f"{context.place_of(step.name)}.{place}")


def _report_missing(context: Context, step: Step, path: tuple[str, ...], where: str) -> None:
    when = context.steps[path[1]].when
    condition = when.text if isinstance(when, Expr) else "true"
    context.report(
        "P224",
        f"{step.name!r} reads {path[3]!r} of {path[1]!r}, which is skipped unless {condition}",
        f"give the output a default, give {step.name!r} the same condition, or wait for {path[1]!r} to be succeeded",
        where,
        step.source,
        "warning",
    )


def _groups(context: Context) -> None:
    """Steps of one group become ready together, so none may wait for another of them."""
    for step in context.steps.values():
        for up in context.links.edges[step.name] if step.group is not None else ():
            if up in context.steps and context.steps[up].group == step.group:
                context.report(
                    "P225",
                    f"{step.name!r} waits for {up!r}, and both are in the group {step.group!r}",
                    "take one of them out of the group",
                    f"steps.{step.name}.group",
                    step.source,
                )


ORDERED_RULES: Final[tuple[Callable[[Context], None], ...]] = (_reachable, _missing_values, _groups)
"""For workflows without cycles."""


def _conditions(step: Step) -> frozenset[str]:
    """The conditions that must all hold for the step to run at all."""
    if step.when is None:
        return frozenset()
    found = _conjuncts(step.when.node)
    if step.each is None:
        return frozenset(found)
    return frozenset(text for text in found if not any(path[0] == "item" for path in references(text)))


def _conjuncts(node: Node) -> list[str]:
    match node:
        case Binary("&&", left, right):
            return _conjuncts(left) + _conjuncts(right)
        case _:
            return [show(node)]


def _surely_read(node: Node) -> Iterator[tuple[str, ...]]:
    """The paths that are read whatever the values are: not those behind `?`, `&&`, `||`, has(), default() or in a loop."""
    path = path_of(node)
    if path is not None:
        yield path
        return
    match node:
        case Choice(test, _, _):
            yield from _surely_read(test)
        case Binary("&&" | "||", left, _):
            yield from _surely_read(left)
        case Macro(_, of, _, _):
            yield from _surely_read(of)
        case Call("has" | "default", _, _):
            return
        case _:
            for child in children(node):
                yield from _surely_read(child)
