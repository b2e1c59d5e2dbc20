"""The functions and methods of expr-lang, of Argo and of sprig, as calls of Penstock's functions. Called by translate for each call."""

from __future__ import annotations

from collections.abc import Callable

from penstock.expressions.parse import (
    Binary,
    Call,
    Const,
    ExpressionError,
    Index,
    ListOf,
    Macro,
    Member,
    Name,
    Node,
    Unary,
)
from penstock.expressions.signatures import SIGNATURES
from penstock.formats.argo.language import grammar
from penstock.formats.argo.language.typed import NOW, FunctionTranslator, TypedNode, kind_of, unknown
from penstock.formats.expression_trees import chain

_RENAMED = {
    "len": "size",
    "int": "toInt",
    "asInt": "toInt",
    "float": "toFloat",
    "asFloat": "toFloat",
    "fromJSON": "json",
    "toJson": "to_json",
    "uniq": "unique",
}
_SAME = (
    "abs ceil first flatten floor fromBase64 fromPairs get groupBy indexOf join jsonpath keys last lastIndexOf lower repeat"
    " replace reverse round sort split toBase64 toPairs trim trimPrefix trimSuffix type upper values"
)
_SIMPLE = _RENAMED | {name: name for name in _SAME.split()}
"""expr-lang's name -> Penstock's, where the arguments are the same."""
_TAKES_NIL = frozenset({"get", "to_json", "type"})
_REFUSED = {
    "splitAfter": "",
    "timezone": "name an offset instead",
    **dict.fromkeys(
        ("bitand", "bitor", "bitxor", "bitnand", "bitshl", "bitshr", "bitushr", "bitnot"), "compute it in a step"
    ),
}


def function(run: FunctionTranslator, call: grammar.CallNode) -> TypedNode:
    """Raises ExpressionError for what has no counterpart."""
    if call.name in _SPECIAL:
        return _SPECIAL[call.name](run, call)
    if call.name in _SIMPLE:
        name = _SIMPLE[call.name]
        return _called(call, name, tuple(_argument(run, name, arg) for arg in call.args))
    if call.name in _REFUSED:
        hint = _REFUSED[call.name]
        raise ExpressionError(
            f"the function {call.name}() has no counterpart here{f'; {hint}' if hint else ''}", call.at
        )
    raise unknown(call.name, [*_SPECIAL, *_SIMPLE], call.at)


def _argument(run: FunctionTranslator, name: str, tree: grammar.Tree) -> Node:
    return (run.nullable(tree) if name in _TAKES_NIL else run.part(tree)).node


def _called(
    call: grammar.CallNode | grammar.MethodNode, name: str, args: tuple[Node, ...], kind: str | None = None
) -> TypedNode:
    low, high, _ = SIGNATURES[name]
    if not low <= len(args) <= high:
        wanted = low if low == high else f"{low} to {high}"
        raise ExpressionError(f"{call.name}() takes {wanted} argument(s), {len(args)} given", call.at)
    node = Call(name, args)
    return TypedNode(node, kind or kind_of(node))


def _count(call: grammar.CallNode, low: int, high: int | None = None) -> None:
    if not low <= len(call.args) <= (high or low):
        raise ExpressionError(f"{call.name}() does not take {len(call.args)} argument(s)", call.at)


# -- predicates -------------------------------------------------------------------------------------------------------


def _macro(run: FunctionTranslator, name: str, of: grammar.Tree, body: grammar.Tree) -> Node:
    source = run.node(of)
    variable = run.fresh()
    run.pointers.append({"": Name(variable)})
    inner = run.part(body)
    run.pointers.pop()
    if name != "map":
        return Macro(name, source, variable, inner.node)
    node = inner.node
    if inner.loose and isinstance(node, Member):
        node = Call("get", (node.of, Const(node.name)))
    elif inner.loose and isinstance(node, Index):
        node = Call("get", (node.of, node.index))
    return Macro("map", source, variable, node)


def _quantified(name: str) -> Callable[[FunctionTranslator, grammar.CallNode], TypedNode]:
    return lambda run, call: TypedNode(_macro(run, name, *call.args), "bool")


def _none(run: FunctionTranslator, call: grammar.CallNode) -> TypedNode:
    return TypedNode(Unary("!", _macro(run, "exists", *call.args)), "bool")


def _found(name: str) -> Callable[[FunctionTranslator, grammar.CallNode], TypedNode]:
    return lambda run, call: TypedNode(Call(name, (_macro(run, "filter", *call.args),)))


def _place(name: str) -> Callable[[FunctionTranslator, grammar.CallNode], TypedNode]:
    """The index of the first, or last, element for which the predicate holds."""
    return lambda run, call: TypedNode(Call(name, (_macro(run, "map", *call.args), Const(True))), "int")


def _counted(run: FunctionTranslator, call: grammar.CallNode) -> TypedNode:
    itself: grammar.Tree = call.args[1] if len(call.args) == 2 else grammar.PointerNode("", call.at)
    return TypedNode(Call("size", (_macro(run, "filter", call.args[0], itself),)), "int")


def _summed(run: FunctionTranslator, call: grammar.CallNode) -> TypedNode:
    inner = _macro(run, "map", *call.args) if len(call.args) == 2 else run.node(call.args[0])
    return TypedNode(Call("sum", (inner,)))


def _by(name: str) -> Callable[[FunctionTranslator, grammar.CallNode], TypedNode]:
    """The sort keys are computed first."""

    def make(run: FunctionTranslator, call: grammar.CallNode) -> TypedNode:
        marks = _macro(run, "map", call.args[0], call.args[1])
        order = [run.node(arg) for arg in call.args[2:]]
        return _called(call, name, (run.node(call.args[0]), marks, *order))

    return make


def _reduced(run: FunctionTranslator, call: grammar.CallNode) -> TypedNode:
    """`#acc + x` and `#acc * x` are sums and products; anything else needs a step."""
    body = call.args[1]
    match body:
        case grammar.BinaryNode("+" | "*" as op, grammar.PointerNode("acc", _), inner, _) if not _uses(
            inner, "acc", "index"
        ):
            pass
        case grammar.BinaryNode("+" | "*" as op, inner, grammar.PointerNode("acc", _), _) if not _uses(
            inner, "acc", "index"
        ):
            pass
        case _:
            raise ExpressionError("reduce() can only add or multiply here; compute it in a step", call.at)
    total = Call("sum" if op == "+" else "product", (_macro(run, "map", call.args[0], inner),))
    if len(call.args) < 3:
        return TypedNode(total)
    return TypedNode(Call("plus" if op == "+" else "times", (run.node(call.args[2]), total)))


def _uses(tree: grammar.Tree, *names: str) -> bool:
    if isinstance(tree, grammar.PointerNode):
        return tree.name in names
    return any(_uses(child, *names) for child in grammar.children(tree))


# -- other functions --------------------------------------------------------------------------------------------------


def _string(run: FunctionTranslator, call: grammar.CallNode) -> TypedNode:
    _count(call, 1)
    part = run.nullable(call.args[0])
    if part.kind == "str":
        return part
    if part.kind in ("int", "bool"):
        return TypedNode(Call("string", (part.node,)), "str")
    if part.kind == "time":
        return TypedNode(Call("date", (Const("2006-01-02 15:04:05 -0700 MST"), part.node)), "str")
    return TypedNode(Call("sprintf", (Const("%v"), part.node)), "str")


def _json(run: FunctionTranslator, call: grammar.CallNode) -> TypedNode:
    _count(call, 1)
    return TypedNode(Call("to_json", (run.nullable(call.args[0]).node, Const(2))), "str")


def _concat(run: FunctionTranslator, call: grammar.CallNode) -> TypedNode:
    if not call.args:
        raise ExpressionError("concat() takes one argument or more", call.at)
    return TypedNode(chain("+", [run.node(arg) for arg in call.args]), "list")


def _take(run: FunctionTranslator, call: grammar.CallNode) -> TypedNode:
    _count(call, 2)
    return TypedNode(Call("slice", (run.node(call.args[0]), Const(0), run.node(call.args[1]))), "list")


def _extreme(two: str, many: str) -> Callable[[FunctionTranslator, grammar.CallNode], TypedNode]:
    def make(run: FunctionTranslator, call: grammar.CallNode) -> TypedNode:
        parts = [run.part(arg) for arg in call.args]
        if not parts:
            raise ExpressionError(f"{call.name}() takes one argument or more", call.at)
        if len(parts) == 2 and all(part.kind in ("int", "float") for part in parts):
            kind = parts[0].kind if parts[0].kind == parts[1].kind else "any"
            return TypedNode(Call(two, (parts[0].node, parts[1].node)), kind)
        return TypedNode(Call(many, (ListOf(tuple(part.node for part in parts)),)))

    return make


def _averaged(run: FunctionTranslator, call: grammar.CallNode) -> TypedNode:
    return TypedNode(Call(call.name, (Call("flatten", (ListOf(tuple(run.node(arg) for arg in call.args)),)),)), "float")


def _edge(method: str) -> Callable[[FunctionTranslator, grammar.CallNode], TypedNode]:
    def make(run: FunctionTranslator, call: grammar.CallNode) -> TypedNode:
        _count(call, 2)
        return TypedNode(Call(method, (run.node(call.args[1]),), run.node(call.args[0])), "bool")

    return make


def _now(run: FunctionTranslator, call: grammar.CallNode) -> TypedNode:
    _count(call, 0, 0)
    return NOW


def _duration(run: FunctionTranslator, call: grammar.CallNode) -> TypedNode:
    _count(call, 1)
    return TypedNode(Call("seconds", (run.node(call.args[0]),)), "duration")


def _date(run: FunctionTranslator, call: grammar.CallNode) -> TypedNode:
    if len(call.args) > 2:
        raise ExpressionError(
            "date() with a time zone has no counterpart here; write the offset into the text", call.at
        )
    return _called(call, "parse_date", tuple(map(run.node, call.args)), "time")


_SPECIAL: dict[str, Callable[[FunctionTranslator, grammar.CallNode], TypedNode]] = {
    "all": _quantified("all"), "any": _quantified("exists"), "one": _quantified("exists_one"), "none": _none,
    "filter": lambda run, call: TypedNode(_macro(run, "filter", *call.args), "list"),
    "map": lambda run, call: TypedNode(_macro(run, "map", *call.args), "list"), "find": _found("first"), "findLast": _found("last"),
    "findIndex": _place("indexOf"), "findLastIndex": _place("lastIndexOf"), "count": _counted, "sum": _summed,
    "groupBy": _by("groupBy"), "sortBy": _by("sortBy"), "reduce": _reduced, "string": _string, "toJSON": _json, "concat": _concat,
    "take": _take, "min": _extreme("min", "smallest"), "max": _extreme("max", "largest"), "mean": _averaged, "median": _averaged,
    "hasPrefix": _edge("startsWith"), "hasSuffix": _edge("endsWith"), "now": _now, "duration": _duration, "date": _date,
}  # fmt: skip

# -- methods ----------------------------------------------------------------------------------------------------------

_ALIASES = {"date_modify": "dateModify", "date_in_zone": "dateInZone", "must_date_modify": "dateModify"}
_WEEK = ListOf(tuple(map(Const, "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split())))
_FIELDS = {"Year": "2006", "Month": "1", "Day": "2", "Hour": "15", "Minute": "4", "Second": "5", "YearDay": "002"}
"""Method of a time -> its digits in Go's layout."""
_SCALES = {"Seconds": 1.0, "Minutes": 60.0, "Hours": 3600.0}
_WHOLE = {"Milliseconds": 1e3, "Microseconds": 1e6, "Nanoseconds": 1e9}


def method(run: FunctionTranslator, call: grammar.MethodNode) -> TypedNode:
    """`sprig.NAME(…)`, and the methods of times and durations. Raises ExpressionError."""
    if isinstance(call.of, grammar.IdentifierNode) and call.of.name == "sprig" and "sprig" not in run.lets:
        return _sprig(run, call)
    of, args = run.part(call.of), [run.part(arg) for arg in call.args]
    if of.kind in ("duration", "any") and not args:
        if call.name in _SCALES:
            return TypedNode(
                of.node if call.name == "Seconds" else Binary("/", of.node, Const(_SCALES[call.name])), "float"
            )
        if call.name in _WHOLE:
            return TypedNode(Call("toInt", (Binary("*", of.node, Const(_WHOLE[call.name])),)), "int")
    if of.kind in ("time", "any"):
        found = _of_moment(call.name, of, args)
        if found is not None:
            return found
    raise ExpressionError(f"the method {call.name[:80]}() has no counterpart here", call.at)


def _of_moment(name: str, of: TypedNode, args: list[TypedNode]) -> TypedNode | None:
    match name, args:
        case "Format", [layout]:
            return TypedNode(Call("date", (layout.node, of.node)), "str")
        case "Add", [by]:
            seconds = by.node if by.kind == "duration" else Call("seconds", (by.node,))
            return TypedNode(Call("timestamp", (Binary("+", Call("epoch", (of.node,)), seconds),)), "time")
        case "Sub" | "Before" | "After" | "Equal", [other]:
            op, kind = {
                "Sub": ("-", "duration"),
                "Before": ("<", "bool"),
                "After": (">", "bool"),
                "Equal": ("==", "bool"),
            }[name]
            return TypedNode(Binary(op, Call("epoch", (of.node,)), Call("epoch", (other.node,))), kind)
        case "UTC", []:
            return TypedNode(Call("timestamp", (Call("epoch", (of.node,)),)), "time")
        case "Unix", []:
            return TypedNode(Call("toInt", (Call("epoch", (of.node,)),)), "int")
        case "UnixMilli", []:
            return TypedNode(Call("toInt", (Binary("*", Call("epoch", (of.node,)), Const(1000.0)),)), "int")
        case "Weekday", []:
            return TypedNode(Call("indexOf", (_WEEK, Call("date", (Const("Monday"), of.node)))), "int")
        case _, [] if name in _FIELDS:
            return TypedNode(Call("toInt", (Call("date", (Const(_FIELDS[name]), of.node)),)), "int")
    return None


def _sprig(run: FunctionTranslator, call: grammar.MethodNode) -> TypedNode:
    plain = call.name[4:5].lower() + call.name[5:] if call.name.startswith("must") else call.name
    name = f"sprig_{_ALIASES.get(call.name, plain)}"
    if call.name == "now" and not call.args:
        return NOW
    if name not in SIGNATURES:
        known = [one.removeprefix("sprig_") for one in SIGNATURES if one.startswith("sprig_")]
        raise unknown(f"sprig.{call.name}", [f"sprig.{one}" for one in known], call.at)
    kind = "time" if name in ("sprig_toDate", "sprig_dateModify") else None
    return _called(call, name, tuple(run.nullable(arg).node for arg in call.args), kind)
