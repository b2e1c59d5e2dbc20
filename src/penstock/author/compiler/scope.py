"""Variables, and the workflow that is being built. Every part of the compiler reads and binds names through ScopeStack.

A scope is one workflow being built: the function's own, or the body of a loop in it. A body that reads a name from outside
gets the value as a parameter, so that every workflow depends on its parameters only.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import CellType
from typing import Any

from penstock.author.compiler.refusals import Refusals
from penstock.author.compiler.symbols import (
    Condition,
    Dynamic,
    Pairs,
    Seq,
    Static,
    Symbol,
    Unbound,
    chosen_from,
    combine,
    to_value,
    type_of,
)
from penstock.expressions.parse import Expr, path_of, reference
from penstock.expressions.types import Type
from penstock.graph.model import Input, Parameter, Step

Variables = dict[str, Symbol]


class WorkflowBuilder:
    """The steps and parameters of one workflow, and the names they have."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.params: dict[str, Parameter] = {}
        self.inputs: dict[str, Input] = {}
        """For the body of a loop: what the step that calls it passes to `params`."""
        # A loop that is written out asks for ten thousand names: a search through `steps` would be too slow.
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}

    def snapshot(self) -> Callable[[], None]:
        """What puts it back to where it is now, as often as it is called."""
        steps, params, inputs = list(self.steps), dict(self.params), dict(self.inputs)
        taken, numbers = set(self._taken), dict(self._numbers)

        def restore() -> None:
            self.steps, self.params, self.inputs = list(steps), dict(params), dict(inputs)
            self._taken, self._numbers = set(taken), dict(numbers)

        return restore

    def free_name(self, wanted: str) -> str:
        """The name of a step: `wanted`, or with the first number that makes it free: train, train-2."""
        name = wanted
        while name in self._taken:
            self._numbers[wanted] = self._numbers.get(wanted, 1) + 1
            name = f"{wanted}-{self._numbers[wanted]}"
        return name

    def reserve(self, name: str) -> None:
        """No later step gets this name."""
        self._taken.add(name)

    def add(self, step: Step) -> None:
        self.steps.append(step)
        self.reserve(step.name)

    def parameter(self, wanted: str, value: Any, type_: Type) -> Dynamic:
        """A new parameter of this body. `value`: what the calling step passes."""
        name, number = wanted, 2
        while name in self.params:
            name, number = f"{wanted}_{number}", number + 1
        self.params[name] = Parameter(name=name, type=type_)
        self.inputs[name] = Input(name=name, value=value, type=type_)
        return Dynamic(reference("params", name), type_)


class LexicalScope:
    """The variables of one workflow being built."""

    def __init__(self, outer: LexicalScope | None = None) -> None:
        self.outer = outer
        self.builder = WorkflowBuilder()
        self.variables: Variables = {}
        self.guard: Condition = True
        """Holds where the current statement runs: the conditions of the branches around it."""
        self.local: frozenset[str] = frozenset()
        """Names that the function assigns somewhere."""

    def find(self, name: str) -> Symbol | None:
        if name in self.variables:
            return self.variables[name]
        if self.outer is None:
            return None
        found = self.outer.find(name)
        if found is None or isinstance(found, Static | Unbound):
            return found
        self.variables[name] = self._carry_in(name, found)
        return self.variables[name]

    def _carry_in(self, name: str, symbol: Symbol) -> Symbol:
        """A symbol of the outer scope as this one sees it: dynamic parts become parameters."""
        match symbol:
            case Seq(items, is_tuple):
                return Seq(tuple(self._carry_in(f"{name}_{i}", item) for i, item in enumerate(items)), is_tuple)
            case Pairs(items):
                return Pairs(tuple((key, self._carry_in(f"{name}_{key}", item)) for key, item in items))
            case Static():
                return symbol
            case _:
                inside = self.builder.parameter(name, to_value(symbol), type_of(symbol))
                return dataclasses.replace(inside, declared=getattr(symbol, "declared", None))

    def is_local(self, name: str) -> bool:
        return name in self.local or (self.outer is not None and self.outer.is_local(name))


def _holds(holder: Symbol, symbol: Symbol) -> bool:
    """Is it the same object, or is that a part of it?"""
    if holder is symbol:
        return True
    match holder:
        case Dynamic(node) if isinstance(symbol, Dynamic):
            return path_of(node) is not None and node in chosen_from(symbol.node)
        case Seq(items):
            return any(_holds(item, symbol) for item in items)
        case Pairs(items):
            return any(_holds(item, symbol) for _, item in items)
        case Static(value) if isinstance(symbol, Static):
            return _holds_value(value, symbol.value)
        case _:
            return False


def _holds_value(holder: Any, value: Any) -> bool:
    if holder is value:
        return isinstance(value, list | dict)
    if isinstance(holder, dict):
        return any(_holds_value(item, value) for item in holder.values())
    return isinstance(holder, list | tuple) and any(_holds_value(item, value) for item in holder)


class ScopeStack:
    """The scope that statements are compiled in, and those around it."""

    def __init__(
        self,
        refusals: Refusals,
        globals: Mapping[str, Any] | None = None,
        closure: Mapping[str, CellType] | None = None,
    ) -> None:
        self._refusals = refusals
        self._globals = globals or {}
        self._closure = closure or {}
        self._current = LexicalScope()
        self.assigned_name = ""
        """The name that the current statement assigns, or "". Loops in the statement are named after it."""

    @property
    def builder(self) -> WorkflowBuilder:
        return self._current.builder

    @property
    def guard(self) -> Condition:
        return self._current.guard

    @property
    def variables(self) -> Mapping[str, Symbol]:
        """Those bound in the current scope, without those of the scopes around it."""
        return self._current.variables

    # -- names

    def look_up(self, node: ast.Name) -> Symbol:
        """What the name stands for: a variable, or a Python object around the function. Raises AuthorError."""
        name = node.id
        found = self._current.find(name)
        if found is not None:
            return found
        error = self._refusals.error
        if self._current.is_local(name):
            raise error("P312", node, f"{name!r} is read before it is assigned", f"assign {name!r} first")
        if name in self._closure:
            try:
                return Static(self._closure[name].cell_contents)
            except ValueError:
                fix = "define it before the workflow is used"
                raise error("P312", node, f"{name!r} has no value yet", fix) from None
        for names in (self._globals, vars(builtins)):
            if name in names:
                return Static(names[name])
        raise error("P312", node, f"{name!r} is not defined", "check the spelling")

    def find(self, name: str) -> Symbol | None:
        """The variable of this name, here or in a scope around."""
        return self._current.find(name)

    def bind(self, name: str, symbol: Symbol) -> None:
        self._current.variables[name] = symbol

    def alias(self, name: str) -> str | None:
        """Another variable that is the same object."""
        symbol = self.variables.get(name)
        if symbol is None:
            return None
        return next((key for key, found in self.variables.items() if key != name and _holds(found, symbol)), None)

    def declare_local(self, names: Iterable[str]) -> None:
        """The function assigns these names: Python never looks them up outside."""
        self._current.local = frozenset(names)

    def replace_variables(self, variables: Variables) -> Variables:
        """Between and after branches. Returns the variables of before."""
        before, self._current.variables = self._current.variables, variables
        return before

    # -- steps

    def emit(self, step: Step) -> None:
        """Adds a step that runs only where the current statement runs."""
        if not isinstance(self.guard, bool):
            own = step.when.node if step.when is not None else True
            whole = combine(self.guard, own, "&&")
            step = dataclasses.replace(step, when=None if isinstance(whole, bool) else Expr.tree(whole))
        self.builder.add(step)

    def snapshot(self) -> Callable[[], None]:
        """What puts names and steps back to where they are now, here and in the scopes around, as often as it is called."""
        parts = []
        scope: LexicalScope | None = self._current
        while scope is not None:
            parts.append((scope, dict(scope.variables), scope.guard, scope.builder.snapshot()))
            scope = scope.outer

        def restore() -> None:
            self._current = parts[0][0]
            for scope, variables, guard, restore_builder in parts:
                scope.variables, scope.guard = dict(variables), guard
                restore_builder()

        return restore

    # -- for a while

    @contextmanager
    def guarded(self, condition: Condition) -> Iterator[None]:
        """What is compiled inside runs only if the condition holds."""
        scope = self._current
        before = scope.guard
        scope.guard = combine(before, condition, "&&")
        try:
            yield
        finally:
            scope.guard = before

    @contextmanager
    def shadowing(self) -> Iterator[None]:
        """What is bound inside is forgotten afterwards."""
        scope = self._current
        saved = scope.variables
        scope.variables = dict(saved)
        try:
            yield
        finally:
            scope.variables = saved

    @contextmanager
    def body(self) -> Iterator[WorkflowBuilder]:
        """A new scope inside the current one."""
        outer = self._current
        self._current = LexicalScope(outer)
        try:
            yield self._current.builder
        finally:
            self._current = outer

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Back in the scope around the current one; what is bound there is forgotten afterwards."""
        inner = self._current
        assert inner.outer is not None
        self._current = inner.outer
        try:
            with self.shadowing():
                yield
        finally:
            self._current = inner
