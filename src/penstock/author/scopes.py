"""What names mean while a @workflow function is compiled. Called by calls, loops and compiler, which build on it.

A Scope is one workflow being built: the function's own, or the body of a loop in it. A body that reads a name from outside is
given the value as a parameter, so that every workflow that comes out is closed.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.author.lower import Lowering
from penstock.author.symbols import (
    Pairs,
    Seq,
    Static,
    Sym,
    Symbol,
    Unset,
    both,
    to_value,
    type_of,
)
from penstock.graph.expr import Node, reference
from penstock.graph.model import Input, Parameter, Step
from penstock.graph.types import Type


@dataclass
class Scope:
    """One workflow being built: the function's own, or the body of a loop in it."""

    name: str
    outer: Scope | None = None
    env: dict[str, Symbol] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    params: dict[str, Parameter] = field(default_factory=dict)
    inputs: dict[str, Input] = field(default_factory=dict)
    """For a body: what its call has to pass in."""
    guard: bool | Node = True
    local: frozenset[str] = frozenset()
    taken: set[str] = field(default_factory=set)
    """Names of steps; kept beside the steps because a loop that is written out asks ten thousand times."""
    numbers: dict[str, int] = field(default_factory=dict)

    def free(self, wanted: str) -> str:
        """The name itself, or with the first number that makes it free: train, train-2."""
        name = wanted
        while name in self.taken:
            self.numbers[wanted] = self.numbers.get(wanted, 1) + 1
            name = f"{wanted}-{self.numbers[wanted]}"
        return name

    def add(self, step: Step) -> None:
        self.steps.append(step)
        self.taken.add(step.name)

    def give(self, wanted: str, value: Any, type_: Type) -> Sym:
        """A new parameter of this body, filled with `value` from outside."""
        name, number = wanted, 2
        while name in self.params:
            name, number = f"{wanted}_{number}", number + 1
        self.params[name] = Parameter(name=name, type=type_)
        self.inputs[name] = Input(name=name, value=value, type=type_)
        return Sym(reference("params", name), type_)


class Scoped(Lowering):
    """Names, assignment and branches."""

    hint = ""
    """The name that the current statement assigns, for naming what it leaves behind."""
    scope: Scope
    globals: Mapping[str, Any]
    closure: Mapping[str, Any]

    def name(self, node: ast.Name) -> Symbol:
        found = self.find(node.id, self.scope)
        if found is not None:
            return found
        if self.is_local(node.id):
            raise self.error("P312", node, f"{node.id!r} is read before it is assigned", f"assign {node.id!r} first")
        if node.id in self.closure:
            try:
                return Static(self.closure[node.id].cell_contents)
            except ValueError:
                raise self.error(
                    "P312", node, f"{node.id!r} has no value yet", "define it before the workflow is used"
                ) from None
        if node.id in self.globals:
            return Static(self.globals[node.id])
        if hasattr(builtins, node.id):
            return Static(getattr(builtins, node.id))
        raise self.error("P312", node, f"{node.id!r} is not defined", "check the spelling")

    def is_local(self, name: str) -> bool:
        scope: Scope | None = self.scope
        while scope is not None:
            if name in scope.local:
                return True
            scope = scope.outer
        return False

    def find(self, name: str, scope: Scope) -> Symbol | None:
        if name in scope.env:
            return scope.env[name]
        if scope.outer is None:
            return None
        found = self.find(name, scope.outer)
        if found is None or isinstance(found, Static | Unset):
            return found
        scope.env[name] = self.carry_in(name, found, scope)
        return scope.env[name]

    def carry_in(self, name: str, symbol: Symbol, scope: Scope) -> Symbol:
        """The same value as the body sees it: a parameter that its call fills."""
        match symbol:
            case Seq(items, is_tuple):
                return Seq(tuple(self.carry_in(f"{name}_{i}", item, scope) for i, item in enumerate(items)), is_tuple)
            case Pairs(items):
                return Pairs(tuple((key, self.carry_in(f"{name}_{key}", item, scope)) for key, item in items))
            case Static():
                return symbol
            case _:
                return scope.give(name, to_value(symbol), type_of(symbol))

    def assign(self, target: ast.expr, symbol: Symbol) -> None:
        match target:
            case ast.Name(id=name):
                self.scope.env[name] = symbol
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for element, part in zip(elements, self.unpack(target, symbol, len(elements)), strict=True):
                    if isinstance(element, ast.Starred):
                        raise self.error(
                            "P311", element, "* in an assignment has no meaning in a workflow", "name each part"
                        )
                    self.assign(element, part)
            case _:
                raise self.error(
                    "P311",
                    target,
                    "only names can be assigned in a workflow",
                    "change lists and dicts inside a @task, and return them",
                )

    def unpack(self, target: ast.expr, symbol: Symbol, count: int) -> list[Symbol]:
        def check(found: int) -> None:
            if found != count:
                raise self.error("P312", target, f"{count} names for {found} values", "make them equally many")

        match symbol:
            case Seq(items):
                check(len(items))
                return list(items)
            case Static(value):
                try:
                    values = list(value)
                except TypeError:
                    raise self.error(
                        "P312", target, f"{value!r:.40} cannot be unpacked", "give a list or tuple"
                    ) from None
                check(len(values))
                return [Static(item) for item in values]
            case Sym(node, type_) if type_.name in ("any", "list", "tuple"):
                if type_.name == "tuple":
                    check(len(type_.args))
                return [self.element(node, type_, i) for i in range(count)]
            case _:
                raise self.error(
                    "P312", target, f"{type_of(symbol)} cannot be unpacked", "return a tuple from the task"
                )

    @contextmanager
    def guarded(self, condition: bool | Node) -> Iterator[None]:
        before = self.scope.guard
        self.scope.guard = both(before, condition, "&&")
        try:
            yield
        finally:
            self.scope.guard = before

    def under(self, condition: bool | Node, work: Callable[[], Symbol]) -> Symbol:
        with self.guarded(condition):
            return work()
