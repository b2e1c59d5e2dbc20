"""The type of an expression, or why it has none. Called by graph.check and author.

Types are gradual: `any` is compatible with everything, so an untyped workflow has no type errors.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.expressions import types
from penstock.expressions.parse import (
    Binary,
    Call,
    Choice,
    Const,
    Index,
    ListOf,
    Macro,
    MapOf,
    Member,
    Name,
    Node,
    Unary,
    path_of,
    show,
)
from penstock.expressions.signatures import SIGNATURES
from penstock.expressions.types import ANY, BOOL, INT, STR, Type, list_of

Lookup = Callable[[tuple[str, ...]], tuple[Type, int] | None]
"""A path -> the type of its longest known prefix, and how many names that prefix has. None: not a known root."""

_NUMBERS = ("int", "float")


class TypeMismatch(ValueError):
    """The expression cannot have a value, whatever its inputs are."""


def infer(node: Node, lookup: Lookup) -> Type:
    """Raises TypeMismatch with a sentence that says which part does not fit."""
    return _infer(node, lookup, {})


def _infer(node: Node, lookup: Lookup, bound: dict[str, Type]) -> Type:
    def of(part: Node) -> Type:
        return _infer(part, lookup, bound)

    path = path_of(node)
    if path is not None and path[0] not in bound:
        found = lookup(path)
        if found is None:
            return ANY
        result, used = found
        for name in path[used:]:
            result = _member(result, name, node)
        return result
    match node:
        case Const(value):
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise TypeMismatch(f"{show(node)[:80]} does not fit 64 bits")
            return types.of_value(value)
        case Name(id):
            return bound[id]
        case Member(inner, name):
            return _member(of(inner), name, node)
        case Index(inner, index):
            return _index(of(inner), of(index), node)
        case Unary("!", inner):
            _want(of(inner), BOOL, inner, "'!' needs true or false")
            return BOOL
        case Unary(_, inner):
            return _number(of(inner), inner)
        case Binary(op, left, right):
            return _binary(op, of(left), of(right), node)
        case Choice(test, yes, no):
            _want(of(test), BOOL, test, "the test before '?' must be true or false")
            return types.join(of(yes), of(no))
        case ListOf(items):
            return list_of(types.join(*map(of, items)))
        case MapOf(pairs):
            return Type("dict", (types.join(*(of(value) for _, value in pairs)),))
        case Macro(name, inner, var, body):
            source = of(inner)
            source = source.args[0] if source.name == "optional" else source
            if source.name not in ("any", "list", "tuple", "dict"):
                raise TypeMismatch(f"{name} needs a list, and {show(inner)} is {source}")
            item = STR if source.name == "dict" else source.item
            result = _infer(body, lookup, {**bound, var: item})
            if name == "map":
                return list_of(result)
            _want(result, BOOL, body, f"{name} needs a condition")
            return list_of(item) if name == "filter" else BOOL
        case Call(name, args, inner):
            return _call(name, [of(arg) for arg in args], args, None if inner is None else of(inner), node)
        case _:
            return ANY


def _want(given: Type, wanted: Type, node: Node, why: str) -> None:
    if not types.fits(given, wanted):
        raise TypeMismatch(f"{why}, and {show(node)} is {given}")


def _number(given: Type, node: Node) -> Type:
    given = given.args[0] if given.name == "optional" else given
    if given.name not in (*_NUMBERS, "any"):
        raise TypeMismatch(f"{show(node)} is {given}, not a number")
    return given


def _member(of: Type, name: str, node: Node) -> Type:
    if of.name == "optional":
        of = of.args[0]
    if of.name in ("any", "dict"):
        return of.item
    if of.name == "object":
        raise TypeMismatch(f"{show(node)} looks into a Python object, which only a task can do")
    raise TypeMismatch(f"{show(node)} reads the field {name!r} of {of}, which has none")


def _index(of: Type, index: Type, node: Node) -> Type:
    if of.name == "optional":
        of = of.args[0]
    if of.name in ("list", "tuple"):
        _want(index, INT, node, "a list is indexed by an int")
        if (
            isinstance(node, Index)
            and isinstance(node.index, Const)
            and isinstance(node.index.value, int)
            and of.name == "tuple"
        ):
            if of.args and not 0 <= node.index.value < len(of.args):
                raise TypeMismatch(f"{show(node)} is outside {of}")
            return of.args[node.index.value] if of.args else ANY
        return of.item
    if of.name == "dict":
        _want(index, STR, node, "a map is indexed by a string")
        return of.item
    if of.name == "any":
        return ANY
    raise TypeMismatch(f"{show(node)} indexes {of}")


def _binary(op: str, left: Type, right: Type, node: Binary) -> Type:
    if op in ("&&", "||"):
        _want(left, BOOL, node.left, f"{op!r} needs true or false")
        _want(right, BOOL, node.right, f"{op!r} needs true or false")
        return BOOL
    if op in ("==", "!="):
        if types.fits(left, right) or types.fits(right, left) or "null" in (left.name, right.name):
            return BOOL
        raise TypeMismatch(f"{show(node)} compares {left} with {right}, which are never equal")
    if op == "in":
        if right.name not in ("list", "tuple", "dict", "any", "optional"):
            raise TypeMismatch(f"{show(node)} looks into {right}, which is neither a list nor a map")
        return BOOL
    left = left.args[0] if left.name == "optional" else left
    right = right.args[0] if right.name == "optional" else right
    names = {left.name, right.name}
    if op in ("<", "<=", ">", ">="):
        if "any" in names or names <= {"int", "float"} or names in ({"str"}, {"bool"}):
            return BOOL
        raise TypeMismatch(f"{show(node)} compares {left} with {right}")
    if "any" in names:
        return ANY
    if names <= {"int"} or (names <= {"float"} and op != "%"):
        return left
    if op == "+" and (names <= {"str", "file", "dir"}):
        return STR
    if op == "+" and names <= {"list", "tuple"}:
        return list_of(types.join(left.item, right.item))
    if names == {"int", "float"}:
        raise TypeMismatch(f"{show(node)} mixes int and float; write double(...) around the int")
    raise TypeMismatch(f"{show(node)}: {left} {op} {right} has no meaning")


def _call(name: str, given: list[Type], args: tuple[Node, ...], of: Type | None, node: Node) -> Type:
    if of is not None and name != "size":
        _want(of, STR, node, f"{name}() is for strings")
        return BOOL
    if name == "size":
        subject = of if of is not None else given[0]
        if subject.name not in ("any", "str", "list", "tuple", "dict", "optional"):
            raise TypeMismatch(f"{show(node)}: {subject} has no size")
        return INT
    if name in ("min", "max"):
        return types.join(_number(given[0], args[0]), _number(given[1], args[1]))
    if name == "range":
        for type_, arg in zip(given, args, strict=True):
            _want(type_, INT, arg, "range() takes ints")
        return list_of(INT)
    if name == "default":
        wanted = given[0].args[0] if given[0].name == "optional" else given[0]
        return given[1] if wanted.name == "null" else types.join(wanted, given[1])
    return _RESULTS[name]


_RESULTS = {name: types.parse(result) for name, (_, _, result) in SIGNATURES.items()}
