"""In which order, and whether at all: cycles, and steps that no outcome can reach. Called by check, which builds on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.graph.expr import Binary, Call, Choice, Expr, Macro, Node, children, path_of, references, show
from penstock.graph.model import MISSING, Outcome, Step, expressions, step_values
from penstock.graph.order import NotOrdered
from penstock.graph.places import Scope


class Reach(Scope):
    def order(self, exits: set[str]) -> None:
        edges = self.links.edges
        for step in self.workflow.steps:
            for name in (name for name in edges[step.name] if name in exits):
                self.report(
                    "P222",
                    f"the step {step.name!r} waits for the exit handler {name!r}, which runs after everything else",
                    "move one of them",
                    f"steps.{step.name}",
                    step.source,
                )
        try:
            ordered = self.links.order
        except NotOrdered as cycle:
            path = " → ".join([*cycle.names, cycle.names[0]])
            first = self.steps[cycle.names[0]]
            self.report(
                "P212",
                f"these steps wait for one another: {path}",
                "remove one of the dependencies; to repeat steps, use a while loop",
                place_of(first.name, exits),
                first.source,
            )
            return
        self.reachable(ordered, edges, exits)
        self.missing(edges, exits)
        self.groups(edges)

    def reachable(
        self, ordered: list[str], edges: Mapping[str, Mapping[str, frozenset[Outcome]]], exits: set[str]
    ) -> None:
        """Which outcomes can each step have? A step that waits for an impossible one never runs."""
        dead = {problem.where for problem in self.problems if problem.code == "P221"}
        possible: dict[str, frozenset[Outcome]] = {}
        for name in ordered:
            step = self.steps[name]
            starved = [
                up for up, wanted in edges[name].items() if up in possible and wanted and not possible[up] & wanted
            ]
            if starved and step.trigger is None:
                up = starved[0]
                wanted = ", ".join(sorted(edges[name][up]))
                self.report(
                    "P222", f"the step {name!r} can never run: it waits for {up!r} to be {wanted}, and {up!r} can only be {', '.join(sorted(possible[up]))}",
                    "correct the outcomes, or remove the step", place_of(name, exits), step.source,
                )  # fmt: skip
                possible[name] = frozenset({Outcome.OMITTED})
                continue
            outcomes = (
                {Outcome.SKIPPED}
                if f"{self.prefix}{place_of(name, exits)}.when" in dead
                else {Outcome.SUCCEEDED, Outcome.FAILED, Outcome.ERRORED, Outcome.CANCELLED}
            )
            if step.when is not None or step.each is not None or step.loop is not None:
                outcomes.add(Outcome.SKIPPED)
            if step.trigger is not None or any(
                possible.get(up, frozenset()) - wanted for up, wanted in edges[name].items()
            ):
                outcomes.add(Outcome.OMITTED)
            possible[name] = frozenset(outcomes)

    def groups(self, edges: Mapping[str, Mapping[str, frozenset[Outcome]]]) -> None:
        """Steps of one group become ready together, so none may wait for another of them."""
        for step in self.steps.values():
            for up in edges[step.name] if step.group is not None else ():
                if up in self.steps and self.steps[up].group == step.group:
                    self.report(
                        "P225",
                        f"{step.name!r} waits for {up!r}, and both are in the group {step.group!r}",
                        "take one of them out of the group",
                        f"steps.{step.name}.group",
                        step.source,
                    )

    def missing(self, edges: Mapping[str, Mapping[str, frozenset[Outcome]]], exits: set[str]) -> None:
        """Values that may not be there: read of a step that can be skipped, on an occasion on which the reader is not."""
        guarded = {name: occasions for name, step in self.steps.items() if (occasions := _occasions(step))}
        if not guarded:
            return
        defaults = {
            (step.name, out.name) for step in self.steps.values() for out in step.outputs if out.default is not MISSING
        }
        for step in self.steps.values():
            waits = {up for up, wanted in edges[step.name].items() if up in guarded and Outcome.SKIPPED in wanted}
            if not waits:
                continue
            own = _occasions(step)
            settled = {f"inputs.{given.name}" for given in step.inputs if given.default is not MISSING}
            for place, value in step_values(step):
                if place in ("when", "trigger") or place in settled:
                    continue
                for path in (path for expr in expressions(value) for path in _surely_read(expr.node)):
                    if path[0] != "steps" or len(path) < 4 or path[1] not in waits or guarded[path[1]] <= own:
                        continue
                    if (path[1], path[3]) not in defaults:
                        self.may_be_missing(path, f"{place_of(step.name, exits)}.{place}", step)

    def may_be_missing(self, path: tuple[str, ...], where: str, step: Step) -> None:
        self.report(
            "P224",
            f"{step.name!r} reads {path[3]!r} of {path[1]!r}, which is skipped unless {self.condition_of(path[1])}",
            f"give the output a default, give {step.name!r} the same condition, or wait for {path[1]!r} to be succeeded",
            where,
            step.source,
            "warning",
        )

    def condition_of(self, name: str) -> str:
        when = self.steps[name].when
        return when.text if isinstance(when, Expr) else "true"


def place_of(name: str, exits: set[str]) -> str:
    return f"on_exit.{name}" if name in exits else f"steps.{name}"


def _occasions(step: Step) -> frozenset[str]:
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
