"""What an expression may read where it stands, and whether it fits there. Called by reach and check, which build on it.

A Place is a spot in a step: which roots are visible (`params`, `steps`, `item`, …) and of what type its own names are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import Problem, Source, nearest
from penstock.graph import types
from penstock.graph.expr import Expr, Node, path_of, references, show, simple_path
from penstock.graph.infer import Lookup, TypeMismatch, infer
from penstock.graph.links import Links
from penstock.graph.model import (
    Nested,
    Step,
    Value,
    Workflow,
    expressions,
)
from penstock.graph.satisfy import never
from penstock.graph.template import Template
from penstock.graph.types import ANY, BOOL, INT, STR, Type, list_of

MOST_PROBLEMS = 200
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,126}[A-Za-z0-9])?\Z", re.A)
VARIABLE = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,126}[A-Za-z0-9_])?\Z", re.A)
LARGEST_COUNT = 10_000_000


def problem(code: str, message: str, fix: str, where: str, source: Source | None, severity: str = "error") -> Problem:
    return Problem(
        code, message, fix, where=where, source=source, severity="warning" if severity == "warning" else "error"
    )


@dataclass(slots=True)
class Place:
    """Where an expression stands: what it may read there."""

    where: str
    source: Source | None
    roots: frozenset[str]
    own: Mapping[str, Type]
    """Types of `item.x`, `inputs.x`, `outputs.x`, keyed by both names with a dot."""
    exit: bool = False


ALWAYS = frozenset({"params", "steps", "run"})
OBJECT = frozenset({"object", "status", "spec", "metadata"})
FIELDS = {
    "run": frozenset({"id", "created"}),
    "attempt": frozenset({"exit_code", "message", "number", "outcome", "seconds"}),
}
"""What there is below a root, where that is always the same."""
ROOTS = {
    (looped, on_exit): (around, around | {"inputs", "attempt"})
    for looped in (False, True)
    for on_exit in (False, True)
    for around in [ALWAYS | ({"item"} if looped else set()) | ({"workflow"} if on_exit else set())]
}
"""(has a for-each, is an exit handler) -> what its inputs may read, and what its action may read besides."""


class Scope:
    """One workflow's names and types, and the problems found in it so far."""

    def __init__(self, workflow: Workflow, definitions: Mapping[str, Workflow], prefix: str, links: Links) -> None:
        self.workflow = workflow
        self.links = links
        self.definitions = definitions
        self.prefix = prefix
        self.problems: list[Problem] = []
        self.params = {param.name: param for param in workflow.params}
        self.steps: dict[str, Step] = {}
        self.outputs: dict[str, dict[str, Type]] = {}

    def report(
        self, code: str, message: str, fix: str, where: str, source: Source | None = None, severity: str = "error"
    ) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(
                problem(code, message, fix, self.prefix + where, source or self.workflow.source, severity)
            )

    # -- names and numbers

    def name(self, name: str, pattern: re.Pattern[str], where: str, source: Source | None) -> None:
        if not pattern.match(name):
            self.report(
                "P211",
                f"{name[:140]!r} is not a usable name",
                "use letters, digits, '-' and '_', at most 128, beginning and ending with a letter or digit",
                where,
                source,
            )

    def unique(self, names: list[str], noun: str, where: str, source: Source | None) -> None:
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            self.report("P210", f"two {noun}s are named {twice!r}", "rename one", f"{where}.{noun}s.{twice}", source)

    def count(self, value: int | None, where: str, source: Source | None, low: int = 1) -> None:
        if value is not None and not low <= value <= LARGEST_COUNT:
            self.report(
                "P231",
                f"{where.rpartition('.')[2]} is {value}",
                f"give a whole number from {low} to {LARGEST_COUNT}",
                where,
                source,
            )

    def seconds(self, value: float | None, where: str, source: Source | None) -> None:
        if value is not None and not 0 < value < 10**10:
            self.report(
                "P231", f"{where.rpartition('.')[2]} is {value} seconds", "give more than 0 seconds", where, source
            )

    def word(self, value: str, known: tuple[str, ...], where: str, source: Source | None) -> None:
        if value not in known:
            self.report(
                "P233",
                f"{value!r} is not one of {', '.join(known)}",
                f"use one of those.{nearest(value, known)}",
                where,
                source,
            )

    # -- what is read

    def known_step(self, name: str, place: Place, what: str) -> bool:
        if name in self.steps:
            return True
        self.report(
            "P201",
            f"there is no step {name!r}",
            f"add it to the workflow, or name another.{nearest(name, self.steps)}",
            f"{place.where}.{what}".lstrip("."),
            place.source,
        )
        return False

    def value(self, value: Value, wanted: Type, place: Place, what: str, code: str = "P220") -> Type:
        """Checks every expression in `value`, and that the whole fits `wanted`. Returns the type found."""
        before = len(self.problems)
        simple = simple_path(value.text) if type(value) is Expr else None
        if simple is not None:
            if len(simple) == 4 and "steps" in place.roots:
                # By far the most frequent case, looked up without ceremony when it is good.
                known = self.outputs.get(simple[1], {}).get(simple[3])
                if known is not None and types.fits(known, wanted):
                    return known
            if not self.path(simple, place, what):
                return ANY
            found, _ = self.find(simple, place)
            if types.fits(found, wanted):
                return found
        elif type(value) is str and wanted.name == "any":
            return ANY
        elif not isinstance(value, Expr):
            for expr in expressions(value):
                self.expression(expr, place, what)
        elif not self.references(value, place, what):
            return ANY
        if len(self.problems) > before or (wanted.name == "any" and not isinstance(value, Expr)):
            return ANY
        where = f"{place.where}.{what}".lstrip(".")
        try:
            found = self.raw_type(value, place)
        except TypeMismatch as error:
            self.report("P220", str(error), "make the types fit", where, place.source)
            return ANY
        if not types.fits(found, wanted) and not (
            not isinstance(value, Expr | Template) and types.accepts(wanted, value)
        ):
            given = value.text if isinstance(value, Expr) else brief(value)
            self.report(
                code,
                f"{given} is {found}, and {wanted} is needed here",
                f"give a value of type {wanted}",
                where,
                place.source,
            )
        return found

    def expression(self, expr: Expr, place: Place, what: str) -> None:
        if self.references(expr, place, what):
            try:
                infer(expr.node, self.lookup(place))
            except TypeMismatch as error:
                self.report("P220", str(error), "make the types fit", f"{place.where}.{what}".lstrip("."), place.source)

    def type_of(self, value: Value, place: Place) -> Type | None:
        try:
            return self.raw_type(value, place)
        except TypeMismatch:
            return None

    def raw_type(self, value: Value, place: Place) -> Type:
        if isinstance(value, Expr):
            return infer(value.node, self.lookup(place))
        if isinstance(value, Template):
            return STR
        if isinstance(value, tuple) and any(True for _ in expressions(value)):
            return list_of(types.join(*(self.raw_type(item, place) for item in value)))
        if isinstance(value, dict) and any(True for _ in expressions(value)):
            return Type("dict", (types.join(*(self.raw_type(item, place) for item in value.values())),))
        return types.of_value(value)

    def references(self, expr: Expr, place: Place, what: str) -> bool:
        good = True
        for path in references(expr.text):
            good = self.path(path, place, what) and good
        return good

    def path(self, path: tuple[str, ...], place: Place, what: str) -> bool:
        root = path[0]
        where = f"{place.where}.{what}".lstrip(".")
        if root not in place.roots:
            known = sorted(place.roots)
            hint = (
                "write steps.NAME.outputs.OUTPUT"
                if root in self.steps
                else f"read one of {', '.join(known)}.{nearest(root, known)}"
            )
            if root in self.params:
                hint = f"write params.{root}"
            self.report("P204", f"{root!r} cannot be read here", hint, where, place.source)
            return False
        if len(path) == 1:
            return True
        if root == "params" and path[1] not in self.params:
            self.report(
                "P203",
                f"there is no parameter {path[1]!r}",
                f"declare it under `params`.{nearest(path[1], self.params)}",
                where,
                place.source,
            )
            return False
        if root == "steps":
            return self.step_path(path, place, what, where)
        if root in FIELDS and path[1] not in FIELDS[root]:
            known = sorted(FIELDS[root])
            self.report(
                "P204",
                f"{'.'.join(path[:2])} cannot be read here",
                f"read one of {', '.join(known)}.{nearest(path[1], known)}",
                where,
                place.source,
            )
            return False
        if root in ("item", "inputs", "outputs") and f"{root}.{path[1]}" not in place.own:
            known = sorted(key.partition(".")[2] for key in place.own if key.startswith(root + "."))
            noun = {"item": "loop variable", "inputs": "input", "outputs": "output"}[root]
            self.report(
                "P205",
                f"this step has no {noun} {path[1]!r}",
                f"known: {', '.join(known) or 'none'}.{nearest(path[1], known)}",
                where,
                place.source,
            )
            return False
        return True

    def step_path(self, path: tuple[str, ...], place: Place, what: str, where: str) -> bool:
        if not self.known_step(path[1], place, what):
            return False
        if len(path) < 3 or path[2] not in ("outputs", "outcome", "exit_code", "succeeded"):
            self.report(
                "P202",
                f"{'.'.join(path)} is neither an output nor an outcome",
                f"write steps.{path[1]}.outputs.OUTPUT or steps.{path[1]}.outcome",
                where,
                place.source,
            )
            return False
        if path[2] != "outputs" or len(path) == 3:
            return True
        known = self.outputs[path[1]]
        if path[3] not in known:
            self.report(
                "P202",
                f"the step {path[1]!r} has no output {path[3]!r}",
                f"declare it under its `outputs`.{nearest(path[3], known)} Known: {', '.join(known) or 'none'}",
                where,
                place.source,
            )
            return False
        return True

    def lookup(self, place: Place) -> Lookup:
        return lambda path: self.find(path, place)

    def find(self, path: tuple[str, ...], place: Place) -> tuple[Type, int]:
        """The type of the longest part of a path that has one, and how long that part is."""
        if path[0] == "params" and len(path) > 1 and path[1] in self.params:
            return self.params[path[1]].type, 2
        if path[0] == "steps" and len(path) > 3 and path[2] == "outputs":
            return self.outputs.get(path[1], {}).get(path[3], ANY), 4
        if path[0] == "steps" and len(path) > 2 and path[2] == "outcome":
            return STR, 3
        if path[0] == "steps" and len(path) > 2 and path[2] in ("exit_code", "succeeded"):
            return INT, 3
        if path[0] in ("item", "inputs", "outputs") and len(path) > 1:
            return place.own.get(f"{path[0]}.{path[1]}", ANY), 2
        if path[0] == "run" and len(path) > 1:
            return STR, 2
        return ANY, len(path)

    def condition(self, when: Expr, place: Place) -> None:
        before = len(self.problems)
        self.value(when, BOOL, place, "when")
        if len(self.problems) > before:
            return

        def choices(node: Node) -> tuple[Any, ...]:
            path = path_of(node)
            known = path is not None and len(path) == 2 and path[0] == "params"
            return self.params[path[1]].choices if known and path is not None else ()

        def type_of(node: Node) -> Type:
            return self.type_of(Expr(show(node)), place) or ANY

        if never(when.node, type_of, choices):
            self.report(
                "P221",
                f"{when.text} can never hold",
                "correct the condition, or remove the step",
                f"{place.where}.when",
                place.source,
            )


def own_output_types(step: Step, definitions: Mapping[str, Workflow]) -> dict[str, Type]:
    """What one task of the step gives."""
    found = {output.name: output.type for output in step.outputs}
    if isinstance(step.action, Nested) and step.action.name in definitions:
        for output in definitions[step.action.name].outputs:
            found.setdefault(output.name, output.type)
    return found


def output_types(step: Step, definitions: Mapping[str, Workflow]) -> dict[str, Type]:
    """What others read of the step: a list for each output if it has a for-each."""
    found = own_output_types(step, definitions)
    return {name: list_of(type_) for name, type_ in found.items()} if step.each is not None else found


def brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
