"""Calls of methods of texts, lists and dicts. Called by calls for a method that is not a task.

They are computed while the workflow is compiled if everything is constant. On values of the run they are expressions.
"""

from __future__ import annotations

import ast

from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.expressions import Expressions
from penstock.author.compiler.refusals import described, how_to_call
from penstock.author.compiler.symbols import Dynamic, Pairs, Seq, Static, Symbol, python, type_of
from penstock.expressions.parse import Call, Const
from penstock.expressions.python import LIST_METHODS, MAP_METHODS, TEXT_METHODS
from penstock.expressions.types import ANY, BOOL, INT, STR, Type, join, list_of, optional

_PURE: dict[type, frozenset[str]] = {
    str: TEXT_METHODS | {"format"},
    dict: MAP_METHODS,
    list: LIST_METHODS,
    tuple: LIST_METHODS,
}
_OF_TYPE = {"str": TEXT_METHODS, "list": LIST_METHODS, "tuple": LIST_METHODS, "dict": MAP_METHODS}
_OF_ANYTHING = TEXT_METHODS | LIST_METHODS | MAP_METHODS
_TEXT_TESTS = {"startswith": "startsWith", "endswith": "endsWith"}
_LISTS = frozenset("split rsplit splitlines partition rpartition".split())
_NUMBERS = frozenset("count find index rfind rindex".split())
_INSTEAD = {
    "append": ("append works on a list with a name of its own", "copy it first: ys = xs + []; ys.append(y)"),
    "extend": ("extend() changes a list", "write xs = xs + ys"),
    "insert": ("insert() changes a list", "write xs = [x] + xs, or do it inside a @task"),
    "remove": ("remove() changes a list", "write xs = [x for x in xs if x != y]"),
    "pop": ("pop() changes what it is called on", "read xs[-1] and go on with xs[:-1]"),
    "sort": ("sort() changes a list", "write xs = sorted(xs)"),
    "reverse": ("reverse() changes a list", "write xs = xs[::-1]"),
    "clear": ("clear() changes what it is called on", "assign a new one"),
    "update": ("update() changes a dict", "write d[key] = value"),
    "setdefault": ("setdefault() changes a dict", "write d[key] = value under an if"),
    "add": ("add() changes a set", "collect in a list"),
}
"""Methods that change what they are called on."""


class Methods:
    def __init__(self, context: CompileContext, expressions: Expressions) -> None:
        self._refusals = context.refusals
        self._expressions = expressions

    def call(self, node: ast.Call, function: ast.Attribute) -> Symbol:
        """A call of a method that is not a task."""
        of, name = self._expressions.lower(function.value), function.attr
        if isinstance(of, Static) and name not in _PURE.get(type(of.value), frozenset()):
            raise self._not_known(node, name, of)
        if not isinstance(of, Static) and name not in _OF_TYPE.get(type_of(of).name, _OF_ANYTHING):
            message = f".{name}() of a value that is only known at run time has no meaning in a workflow"
            message, fix = _INSTEAD.get(name, (message, "call it inside a @task"))
            raise self._refusals.error("P311", node, message, fix)
        if node.keywords:
            message = f"the arguments of {name}() have names"
            raise self._refusals.error("P311", node, message, f"write them without names: .{name}(…)")
        args = [self._expressions.lower(_as_list(arg)) for arg in node.args]
        if isinstance(of, Static) and all(isinstance(arg, Static) for arg in args):
            given = [arg.value for arg in args if isinstance(arg, Static)]
            answer = self._expressions.fold(node, getattr(of.value, name), *given)
            is_view = isinstance(of.value, dict) and name != "get"
            return Static(list(answer.value)) if is_view else answer
        if isinstance(of, Pairs):
            found = _of_pairs(of, name, args)
            if found is not None:
                return found
        return self._at_run_time(node, function, of, args)

    def _not_known(self, node: ast.Call, name: str, of: Static) -> Exception:
        if isinstance(of.value, str | list | tuple | dict) and name in _INSTEAD:
            return self._refusals.error("P311", node, *_INSTEAD[name])
        found = getattr(of.value, name, None)
        message = f"{described(found) if found is not None else name + '()'} is not a task"
        return self._refusals.error("P313", node, message, how_to_call(found))

    def _at_run_time(self, node: ast.Call, function: ast.Attribute, of: Symbol, args: list[Symbol]) -> Symbol:
        name, type_ = function.attr, type_of(of)
        text = self._expressions.node(function.value, of)
        nodes = [self._expressions.node(_as_list(at), arg) for at, arg in zip(node.args, args, strict=True)]
        if (
            name in _TEXT_TESTS
            and isinstance(of, Dynamic)
            and len(args) == 1
            and type_of(args[0]).name in ("str", "any")
        ):
            return Dynamic(Call(_TEXT_TESTS[name], (nodes[0],), text), BOOL)
        if name == "format":
            message = "format() of a value that is only known at run time has no meaning in a workflow"
            raise self._refusals.error("P311", node, message, "write an f-string")
        return python("method", _result(type_, name, args), text, Const(name), *nodes)


def _as_list(arg: ast.expr) -> ast.expr:
    """`",".join(x for x in xs)` is `",".join([x for x in xs])`."""
    return ast.copy_location(ast.ListComp(arg.elt, arg.generators), arg) if isinstance(arg, ast.GeneratorExp) else arg


def _of_pairs(of: Pairs, name: str, args: list[Symbol]) -> Symbol | None:
    match name, args:
        case "items", []:
            return Seq(tuple(Seq((Static(key), item), True) for key, item in of.items))
        case "keys", []:
            return Static([key for key, _ in of.items])
        case "values", []:
            return Seq(tuple(item for _, item in of.items))
        case "get", [Static(key), *default]:
            return dict(of.items).get(key, default[0] if default else Static(None))
        case _:
            return None


def _result(of: Type, name: str, args: list[Symbol]) -> Type:
    if name in _LISTS:
        return list_of(STR)
    if name in _NUMBERS:
        return INT
    if name in MAP_METHODS:
        item = of.item if of.name == "dict" else ANY
        if name == "get":
            return join(item, type_of(args[1])) if len(args) > 1 else optional(item)
        return list_of({"items": Type("tuple", (STR, item)), "keys": STR, "values": item}[name])
    return BOOL if name.startswith("is") or name in _TEXT_TESTS else STR
