"""Conditions, and the rules for comparisons, `and`, `or`, `not` and `a if c else b`. Called by statements, loops and comprehensions.

The right side of `and`, `or` and of a chained comparison is compiled under a guard: a task that it calls runs only if
the left side leaves the answer open, as in Python.
"""

from __future__ import annotations

import ast
import enum
import operator
from collections.abc import Callable
from typing import Any

from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.enums import never_equal
from penstock.author.compiler.expressions import Expressions, Rules
from penstock.author.compiler.symbols import (
    Condition,
    Dynamic,
    NoValue,
    Static,
    Symbol,
    choose,
    combine,
    condition_symbol,
    negate,
    truth,
    type_of,
)
from penstock.expressions.parse import Binary, Call, Const, Node
from penstock.expressions.types import BOOL, Type

_COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Is: ("is", operator.is_),
    ast.IsNot: ("is not", operator.is_not),
    ast.In: ("in", lambda a, b: a in b),
    ast.NotIn: ("not in", lambda a, b: a not in b),
}
_EQUALITY = {"is": "==", "is not": "!="}

Operand = tuple[ast.expr, Symbol]


class Conditions:
    def __init__(self, context: CompileContext, expressions: Expressions) -> None:
        self._refusals = context.refusals
        self._scopes = context.scopes
        self._expressions = expressions

    def rules(self) -> Rules:
        return {ast.BoolOp: self.chosen, ast.Compare: self.compare, ast.IfExp: self.if_expression}

    def lower(self, node: ast.expr) -> Condition:
        """The expression as a condition."""
        if isinstance(node, ast.BoolOp):
            return self._logic(node)
        return self._expressions.truth(node, self._expressions.lower(node))

    def _logic(self, node: ast.BoolOp) -> Condition:
        is_or = isinstance(node.op, ast.Or)
        result = self.lower(node.values[0])
        for operand in node.values[1:]:
            if isinstance(result, bool):
                if result is is_or:
                    return result
                result = self.lower(operand)
                continue
            with self._scopes.guarded(negate(result) if is_or else result):
                right = self.lower(operand)
            result = combine(result, truth(condition_symbol(right)), "||" if is_or else "&&")
        return result

    def negation(self, node: ast.UnaryOp) -> Symbol:
        condition = self.lower(node.operand)
        return condition_symbol(not condition if isinstance(condition, bool) else negate(condition))

    def chosen(self, node: ast.BoolOp) -> Symbol:
        """`a or b` as a value: a itself if a is true, else b."""
        is_or = isinstance(node.op, ast.Or)
        symbol = self._expressions.lower(node.values[0])
        for operand in node.values[1:]:
            test = self._expressions.truth(node.values[0], symbol)
            if isinstance(test, bool):
                symbol = symbol if test is is_or else self._expressions.lower(operand)
                continue
            with self._scopes.guarded(negate(test) if is_or else test):
                right = self._expressions.lower(operand)
            if type_of(symbol).name == type_of(right).name == "bool":
                both = Binary("||" if is_or else "&&", test, self._expressions.node(operand, right))
                symbol = Dynamic(both, BOOL)
                continue
            try:
                symbol = choose(test, symbol, right) if is_or else choose(test, right, symbol)
            except NoValue as error:
                raise self._refusals.unusable(operand, right, error) from None
        return symbol

    def compare(self, node: ast.Compare) -> Symbol:
        left = (node.left, self._expressions.lower(node.left))
        result: Condition = True
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            with self._scopes.guarded(result):
                right = (right_node, self._expressions.lower(right_node))
            result = combine(result, self._comparison(node, op, left, right), "&&")
            left = right
        return condition_symbol(result)

    def _comparison(self, node: ast.Compare, op: ast.cmpop, left: Operand, right: Operand) -> Condition:
        sign, function = _COMPARE[type(op)]
        if isinstance(left[1], Static) and isinstance(right[1], Static):
            return bool(self._expressions.fold(node, function, left[1].value, right[1].value).value)
        if sign in _EQUALITY:
            if not any(isinstance(side, Static) and _is_single(side.value) for _, side in (left, right)):
                message, fix = (
                    f"{sign!r} has a meaning only with None and members of an Enum",
                    f"write {_EQUALITY[sign]}",
                )
                raise self._refusals.error("P311", node, message, fix)
            sign = _EQUALITY[sign]
        others = [right[1]] if sign in ("==", "!=") else []
        if sign in ("in", "not in") and isinstance(right[1], Static) and isinstance(right[1].value, list | tuple):
            others = [Static(item) for item in right[1].value]
        instead = next((found for other in others if (found := never_equal(left[1], other)) is not None), None)
        if instead is not None:
            message = "a member of an Enum is never equal to something else"
            raise self._refusals.error("P312", node, message, instead)
        x, y = self._expressions.node(*left), self._expressions.node(*right)
        a, b = type_of(left[1]), type_of(right[1])
        if sign in ("in", "not in"):
            inside: Node = Call("contains", (x,), y) if b.name == "str" else Binary("in", x, y)
            if _is_python(y) or (b.name in ("list", "tuple") and _differ(a, b.item)):
                inside = Call("py_in", (x, y))
            return negate(inside) if sign == "not in" else inside
        if (
            _differ(a, b)
            or _is_python(x)
            or _is_python(y)
            or (sign not in ("==", "!=") and {a.name, b.name} <= {"list", "tuple"})
        ):
            return Call("py_compare", (x, Const(sign), y))
        return Binary(sign, x, y)

    def if_expression(self, node: ast.IfExp) -> Symbol:
        condition = self.lower(node.test)
        if isinstance(condition, bool):
            return self._expressions.lower(node.body if condition else node.orelse)
        with self._scopes.guarded(condition):
            yes = self._expressions.lower(node.body)
        with self._scopes.guarded(negate(condition)):
            no = self._expressions.lower(node.orelse)
        try:
            return choose(condition, yes, no)
        except NoValue as error:
            raise self._refusals.unusable(node, yes, error) from None


def _differ(left: Type, right: Type) -> bool:
    """A bool and a number: they compare in Python, and not in expressions."""
    return "bool" in (left.name, right.name) and bool({left.name, right.name} & {"int", "float"})


def _is_single(value: Any) -> bool:
    """There is no other object like it, so `is` means `==`."""
    return value is None or isinstance(value, enum.Enum)


def _is_python(node: Node) -> bool:
    return isinstance(node, Call) and node.name.startswith("py_")
