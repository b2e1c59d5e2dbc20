"""Rules for arithmetic. Added to the table of expressions by compile; assignments calls it for `x += 1`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from penstock.author.compiler.conditions import Conditions, Operand
from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.expressions import Expressions, Rules
from penstock.author.compiler.refusals import Located
from penstock.author.compiler.symbols import Dynamic, Seq, Static, Symbol, as_seq, python, type_of
from penstock.expressions import types
from penstock.expressions.parse import Binary, Call, Const, Node, Unary
from penstock.expressions.types import ANY, FLOAT, INT, STR, Type, list_of

_ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
}
_OF_CONSTANTS: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    **_ARITHMETIC,
    ast.BitOr: ("|", operator.or_),
    ast.BitAnd: ("&", operator.and_),
    ast.BitXor: ("^", operator.xor),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
}
_PYTHON = {"+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floordiv", "%": "mod", "**": "pow"}
_OPEN = ("any", "optional")
"""Types whose values may be anything."""
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}


class Operators:
    def __init__(self, context: CompileContext, expressions: Expressions, conditions: Conditions) -> None:
        self._refusals = context.refusals
        self._expressions = expressions
        self._conditions = conditions

    def rules(self) -> Rules:
        return {ast.BinOp: self.binary, ast.UnaryOp: self.unary}

    def binary(self, node: ast.BinOp) -> Symbol:
        left = (node.left, self._expressions.lower(node.left))
        return self.arithmetic(node, node.op, left, (node.right, self._expressions.lower(node.right)))

    def arithmetic(self, node: Located, op: ast.operator, left: Operand, right: Operand) -> Symbol:
        """`left op right`; `node` is where it is written."""
        x, y = left[1], right[1]
        if type(op) in _OF_CONSTANTS and isinstance(x, Static) and isinstance(y, Static):
            sign, function = _OF_CONSTANTS[type(op)]
            self._check_size(node, sign, x.value, y.value)
            return self._expressions.fold(node, function, x.value, y.value)
        if type(op) not in _ARITHMETIC:
            message = "this operator has no meaning on a value that is only known at run time"
            raise self._refusals.error("P311", node, message, "compute it inside a @task")
        sign, _ = _ARITHMETIC[type(op)]
        first, second = as_seq(x), as_seq(y)
        if sign == "+" and first is not None and second is not None:
            return Seq(first.items + second.items, first.is_tuple)
        return self._at_run_time(node, sign, left, right)

    def _check_size(self, node: Located, sign: str, x: Any, y: Any) -> None:
        """Constants are computed while the workflow is compiled, so their size is limited."""
        if sign in ("**", "<<") and not (isinstance(y, int | float) and abs(y) <= 1000):
            message = "this is too large to compute here"
            raise self._refusals.error("P311", node, message, "compute it inside a @task")
        if (
            sign == "*"
            and any(isinstance(side, str | list | tuple) for side in (x, y))
            and any(isinstance(side, int) and side > 1_000_000 for side in (x, y))
        ):
            raise self._refusals.error("P311", node, "this is too large to build here", "build it inside a @task")

    def _at_run_time(self, node: Located, sign: str, left: Operand, right: Operand) -> Symbol:
        a, b = type_of(left[1]), type_of(right[1])
        x, y = self._expressions.node(*left), self._expressions.node(*right)
        names = {a.name, b.name}
        if names <= {"int", "float"} and (sign in "+-*" or (sign == "/" and _is_not_zero(y))):
            if sign == "/" or "float" in names:
                # A parameter declared as float may be given an int. Python computes with both alike; expressions do not.
                return Dynamic(Binary(sign, _as_double(x), _as_double(y)), FLOAT)
            return Dynamic(Binary(sign, x, y), a)
        if sign == "+" and names == {"str"}:
            return Dynamic(Binary("+", x, y), STR)
        if sign == "+" and names <= {"list", "tuple"}:
            return Dynamic(Binary("+", x, y), list_of(types.join(a.item, b.item)))
        result = _result(sign, a, b, y)
        if result is None:
            message = f"{a} {sign} {b} is only known at run time and has no meaning in a workflow"
            fix = "write an f-string" if sign == "%" and a.name == "str" else "compute it inside a @task"
            raise self._refusals.error("P311", node, message, fix)
        return python(_PYTHON[sign], result, x, y)

    def unary(self, node: ast.UnaryOp) -> Symbol:
        if isinstance(node.op, ast.Not):
            return self._conditions.negation(node)
        of = self._expressions.lower(node.operand)
        if isinstance(of, Static):
            return self._expressions.fold(node, _UNARY[type(node.op)], of.value)
        if isinstance(node.op, ast.USub) and type_of(of).name in ("int", "float"):
            return Dynamic(Unary("-", self._expressions.node(node.operand, of)), type_of(of))
        if isinstance(node.op, ast.USub) and type_of(of).name in ("bool", *_OPEN):
            result = INT if type_of(of).name == "bool" else ANY
            return python("neg", result, self._expressions.node(node.operand, of))
        message = "this operator has no meaning on a value that is only known at run time"
        raise self._refusals.error("P311", node, message, "compute it inside a @task")


def _is_not_zero(node: Node) -> bool:
    return isinstance(node, Const) and node.value != 0


def _result(sign: str, a: Type, b: Type, right: Node) -> Type | None:
    """The type of the operation as Python computes it; None if Python has no such operation."""
    names = {a.name, b.name}
    if names <= {"int", "float", "bool"}:
        if sign == "/" or "float" in names:
            return FLOAT
        if sign == "**":
            return INT if isinstance(right, Const) and isinstance(right.value, int) and right.value >= 0 else ANY
        return INT
    if sign == "%" and a.name == "str":
        return None
    if sign == "*" and names & {"str", "list", "tuple"} and names & {"int", "bool", *_OPEN}:
        many = a if a.name in ("str", "list", "tuple") else b
        return STR if many.name == "str" else list_of(many.item)
    return ANY if names & set(_OPEN) and not names & {"object", "file", "dir", "null"} else None


def _as_double(node: Node) -> Node:
    match node:
        case Const(int(value)):
            return Const(float(value))
        case Const(float()) | Call("double", _):
            return node
        case _:
            return Call("double", (node,))
