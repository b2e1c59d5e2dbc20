"""Calls of Python's own functions. Called by calls for a function that is not a task.

They are computed while the workflow is compiled if their arguments are constants. On values of the run they are expressions.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.author.compiler.callees import Callees
from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.expressions import Expressions
from penstock.author.compiler.refusals import described, how_to_call
from penstock.author.compiler.symbols import (
    Dynamic,
    Pairs,
    Seq,
    Static,
    Symbol,
    as_seq,
    condition_symbol,
    item_type,
    python,
    text_of,
    truth,
    type_of,
)
from penstock.errors import AuthorError
from penstock.expressions import types
from penstock.expressions.parse import Call, Const, ListOf, Node
from penstock.expressions.types import ANY, BOOL, FLOAT, INT, STR, Type, list_of

_PURE: dict[str, Callable[..., Any]] = {
    name: getattr(builtins, name)
    for name in (
        "abs all any bool dict enumerate float int len list max min range reversed round sorted str sum tuple zip"
    ).split()
}


class Argument(NamedTuple):
    symbol: Symbol
    node: Node

    @property
    def type(self) -> Type:
        return type_of(self.symbol)

    @property
    def kind(self) -> str:
        return self.type.name


def _len(given: Argument) -> Symbol:
    symbol, node = given
    return Static(len(symbol.items)) if isinstance(symbol, Seq | Pairs) else Dynamic(Call("size", (node,)), INT)


def _range(*given: Argument) -> Symbol | None:
    if len(given) > 3 or not all(one.kind in ("int", "any") for one in given):
        return None
    return Dynamic(Call("range", tuple(one.node for one in given)), list_of(INT))


def _str(given: Argument) -> Symbol:
    return Dynamic(text_of(given.node), STR)


def _number(name: str, function: str, type_: Type) -> Callable[[Argument], Symbol]:
    def rule(given: Argument) -> Symbol:
        if given.kind in ("int", "float", "str"):
            return Dynamic(Call(function, (given.node,)), type_)
        return python(name, type_, given.node)

    return rule


def _bool(given: Argument) -> Symbol:
    return condition_symbol(truth(given.symbol))


def _list(given: Argument) -> Symbol:
    if given.kind in ("list", "tuple"):
        return Seq(given.symbol.items) if isinstance(given.symbol, Seq) else given.symbol
    return python("list", list_of(item_type(given.type)), given.node)


def _dict(*given: Argument, **named: Argument) -> Symbol | None:
    if not given:
        return Pairs(tuple((key, one.symbol) for key, one in named.items()))
    if len(given) > 1 or named:
        return None
    kind, item = given[0].kind, given[0].type.item
    values = item if kind == "dict" else item.args[1] if item.name == "tuple" and len(item.args) == 2 else ANY
    return python("dict", Type("dict", (values,)), given[0].node)


def _extreme(name: str) -> Callable[..., Symbol | None]:
    def rule(*given: Argument, default: Argument | None = None) -> Symbol | None:
        if [one.kind for one in given] in (["int", "int"], ["float", "float"]):
            return Dynamic(Call(name, tuple(one.node for one in given)), given[0].type)
        if len(given) == 1:
            item = item_type(given[0].type)
            if default is None:
                return python(name, item, given[0].node)
            return python(f"{name}_or", types.join(item, default.type), given[0].node, default.node)
        if default is not None:
            return None
        return python(name, types.join(*(one.type for one in given)), ListOf(tuple(one.node for one in given)))

    return rule


def _sum(of: Argument, start: Argument | None = None) -> Symbol:
    kinds = {item_type(of.type).name, start.kind if start is not None else "int"}
    result = INT if kinds <= {"int", "bool"} else FLOAT if kinds <= {"int", "bool", "float"} else ANY
    return python("sum", result, of.node, *([start.node] if start is not None else []))


def _sorted(of: Argument, *, reverse: Argument | None = None) -> Symbol:
    return python("sorted", list_of(item_type(of.type)), of.node, *([reverse.node] if reverse is not None else []))


def _abs(of: Argument) -> Symbol:
    return python("abs", INT if of.kind == "bool" else of.type, of.node)


def _round(of: Argument, ndigits: Argument | None = None) -> Symbol:
    if ndigits is None or ndigits.kind == "null":
        return python("round", INT, of.node)
    return python("round", INT if of.kind == "bool" else of.type, of.node, ndigits.node)


def _enumerate(of: Argument, start: Argument | None = None) -> Symbol:
    known = as_seq(of.symbol)
    first = start.symbol if start is not None else Static(0)
    if known is not None and isinstance(first, Static):
        return Seq(tuple(Seq((Static(i), one), True) for i, one in enumerate(known.items, first.value)))
    pair = Type("tuple", (INT, item_type(of.type)))
    return python("enumerate", list_of(pair), of.node, *([start.node] if start is not None else []))


def _zip(*given: Argument, strict: Argument | None = None) -> Symbol | None:
    known = [as_seq(one.symbol) for one in given]
    lengths = {len(one.items) for one in known if one is not None}
    if None not in known and (strict is None or len(lengths) == 1):
        rows = zip(*(one.items for one in known if one is not None), strict=False)
        return Seq(tuple(Seq(tuple(row), True) for row in rows))
    row_type = Type("tuple", tuple(item_type(one.type) for one in given))
    return python("zip", list_of(row_type), strict.node if strict else Const(False), *(one.node for one in given))


def _reversed(of: Argument) -> Symbol:
    known = as_seq(of.symbol)
    if known is not None:
        return Seq(known.items[::-1])
    nothing = Const(None)
    return python("slice", list_of(item_type(of.type)), of.node, nothing, nothing, Const(-1))


_AT_RUN_TIME: dict[str, Callable[..., Symbol | None]] = {
    "abs": _abs,
    "all": lambda of: python("all", BOOL, of.node),
    "any": lambda of: python("any", BOOL, of.node),
    "bool": _bool,
    "dict": _dict,
    "enumerate": _enumerate,
    "float": _number("float", "double", FLOAT),
    "int": _number("int", "int", INT),
    "len": _len,
    "list": _list,
    "max": _extreme("max"),
    "min": _extreme("min"),
    "range": _range,
    "reversed": _reversed,
    "round": _round,
    "sorted": _sorted,
    "str": _str,
    "sum": _sum,
    "tuple": _list,
    "zip": _zip,
}
"""Builtin -> its expression over values of the run; None if these arguments have none."""
_LOOPED_OVER = frozenset("all any dict enumerate list max min reversed sorted sum tuple zip".split())
"""Their arguments are lists, or whatever a loop goes over."""
_STOPS_EARLY = frozenset(("all", "any"))
_OPAQUE = frozenset(("object", "file", "dir"))


class Builtins:
    def __init__(self, context: CompileContext, expressions: Expressions, callees: Callees) -> None:
        self._refusals = context.refusals
        self._expressions = expressions
        self._callees = callees

    def call(self, node: ast.Call, function: Static) -> Symbol:
        """A call of a function that is not a task."""
        name = next((name for name, known in _PURE.items() if known is function.value), None)
        if name is None:
            message = f"{described(function.value)} is not a task"
            raise self._refusals.error("P313", node, message, how_to_call(function.value))
        if any(keyword.arg is None for keyword in node.keywords):
            raise self._refusals.error("P311", node, "** has no meaning in a workflow", "write the arguments out")
        if any(keyword.arg == "key" for keyword in node.keywords):
            raise self._only_in_a_task(node, f"{name}(key=…)")
        nodes = [self._as_list(name, arg) for arg in node.args]
        args = [self._expressions.lower(arg) for arg in nodes]
        keywords = {keyword.arg or "": self._expressions.lower(keyword.value) for keyword in node.keywords}
        if all(isinstance(arg, Static) for arg in (*args, *keywords.values())):
            given = [arg.value for arg in args if isinstance(arg, Static)]
            named = {key: arg.value for key, arg in keywords.items() if isinstance(arg, Static)}
            answer = self._expressions.fold(node, _PURE[name], *given, **named)
            is_lazy = isinstance(answer.value, enumerate | zip | reversed)
            return Static(list(answer.value)) if is_lazy else answer
        return self._at_run_time(node, name, args, nodes, keywords)

    def _as_list(self, name: str, arg: ast.expr) -> ast.expr:
        """`sum(x for x in xs)` is `sum([x for x in xs])`."""
        if not isinstance(arg, ast.GeneratorExp) or name not in _LOOPED_OVER:
            return arg
        if name in _STOPS_EARLY and self._callees.any_called(arg):
            message = f"{name}() stops at the first answer that decides, and tasks would run side by side"
            raise self._refusals.error("P311", arg, message, f"run them all: {name}([ … ])")
        return ast.copy_location(ast.ListComp(arg.elt, arg.generators), arg)

    def _at_run_time(
        self, node: ast.Call, name: str, args: list[Symbol], nodes: list[ast.expr], keywords: dict[str, Symbol]
    ) -> Symbol:
        given = [Argument(arg, self._expressions.node(at, arg)) for at, arg in zip(nodes, args, strict=True)]
        named = {
            keyword.arg or "": Argument(symbol, self._expressions.node(keyword.value, symbol))
            for keyword, symbol in zip(node.keywords, keywords.values(), strict=True)
        }
        if name in _LOOPED_OVER and len(given) == 1 and given[0].kind in ("int", "float", "bool", "null"):
            message = f"{name}() needs a list, and this is {given[0].kind}"
            raise self._refusals.error("P312", node, message, f"give {name}() a list")
        found = None
        if not any(one.kind in _OPAQUE for one in given):
            rule = _AT_RUN_TIME[name]
            with contextlib.suppress(TypeError):  # not with these arguments
                found = rule(*given, **named)
        if found is None:
            raise self._only_in_a_task(node, f"{name}()")
        return found

    def _only_in_a_task(self, node: ast.Call, what: str) -> AuthorError:
        message = f"{what} of a value that is only known at run time has no meaning in a workflow"
        return self._refusals.error("P311", node, message, f"call {what} inside a @task")
