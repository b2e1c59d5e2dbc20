"""Python expression -> Symbol. Every part that meets an expression has an Expressions.

The table has a rule for each type of syntax node that means something in a workflow. The parts that own the rules
(literals, operators, calls …) add them; they have the table, too, and lower their operands through it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from penstock.author.compiler.refusals import Located, Refusals
from penstock.author.compiler.symbols import (
    Condition,
    NoValue,
    Static,
    Symbol,
    to_node,
    to_value,
    truth,
    type_of,
)
from penstock.expressions.parse import Node
from penstock.expressions.types import ANY, Type
from penstock.graph.model import Output, Value

Rule = Callable[[Any], Symbol]
Rules = Mapping[type[ast.expr], Rule]


class Expressions:
    """The table of rules, and conversions of symbols that are refused at the expression they come from."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals
        self._rules: dict[type[ast.expr], Rule] = {}

    def add(self, rules: Rules) -> None:
        self._rules.update(rules)

    def lower(self, node: ast.expr) -> Symbol:
        rule = self._rules.get(type(node))
        if rule is None:
            raise self._refusals.meaningless(node)
        return rule(node)

    def value(self, node: ast.expr, symbol: Symbol) -> Value:
        """The symbol as the input of a step."""
        try:
            return to_value(symbol)
        except NoValue as error:
            raise self._refusals.unusable(node, symbol, error) from None

    def node(self, node: ast.expr, symbol: Symbol) -> Node:
        """The symbol as part of a larger expression."""
        try:
            return to_node(symbol)
        except NoValue as error:
            raise self._refusals.unusable(node, symbol, error) from None

    def truth(self, node: ast.expr, symbol: Symbol) -> Condition:
        """The symbol as a condition."""
        try:
            return truth(symbol)
        except NoValue as error:
            raise self._refusals.unusable(node, symbol, error) from None

    def output(self, name: str, node: ast.expr, symbol: Symbol, declared: Type = ANY) -> Output:
        """The symbol as an output of the workflow that is being built."""
        value = self.value(node, symbol)
        return Output(name=name, value=value, type=declared if declared.name != "any" else type_of(symbol))

    def fold(self, node: Located, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Static:
        """Calls a function of Python on constants, now."""
        try:
            return Static(function(*args, **kwargs))
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            raise self._refusals.error("P312", node, message, "fix the expression") from None
