"""What a loop goes over: `for a in xs`, `for a, b in zip(xs, ys)`. Called by comprehensions and for_loops."""

from __future__ import annotations

import ast
from collections.abc import Sized

from penstock.author.compiler.bindings import Bindings
from penstock.author.compiler.callees import Callees
from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.enums import as_list, item_hint
from penstock.author.compiler.expressions import Expressions
from penstock.author.compiler.liveness import names_assigned
from penstock.author.compiler.refusals import Located
from penstock.author.compiler.symbols import Dynamic, FString, Pairs, Seq, Static, Symbol, item_type, python, type_of
from penstock.expressions.parse import Call, Const, Expr, ListOf, Macro, Node, reference
from penstock.expressions.types import INT, Type, list_of
from penstock.graph.model import ForEach, Value
from penstock.graph.rewrite import as_node

UNROLL = 10_000
"""At most so many rounds of a loop are written out."""

Axis = dict[str, Value]
"""Loop variable -> what it goes over. Variables of one axis advance together."""


class Axes:
    def __init__(self, context: CompileContext, expressions: Expressions, callees: Callees, bindings: Bindings) -> None:
        self._refusals = context.refusals
        self._scopes = context.scopes
        self._expressions = expressions
        self._callees = callees
        self._bindings = bindings
        self._lengths: dict[tuple[int, Node], int | Node] = {}
        """The results of a loop, in one workflow -> how many they are: a number, or the list that the loop went over."""

    def axis(self, target: ast.expr, iterable: ast.expr) -> Axis:
        """One `for`. Binds its variables to `item.NAME`."""
        if isinstance(iterable, ast.Call) and isinstance(target, ast.Tuple):
            together = self._together(iterable, target)
            if together is not None:
                return together
        symbol = self._expressions.lower(iterable)
        value, item_type = self.items(iterable, symbol)
        variable = loop_variable(target)
        item = Dynamic(reference("item", variable), item_type, item_hint(as_list(symbol)))
        self._bindings.assign(target, item)
        return {variable: value}

    def _together(self, call: ast.Call, target: ast.Tuple) -> Axis | None:
        """`for a, b in zip(x, y)` and `for i, a in enumerate(x)`; None for any other loop."""
        function = self._callees.static_object(call.func)
        strict = [keyword.arg for keyword in call.keywords] == ["strict"]
        names = [one.id for one in target.elts if isinstance(one, ast.Name)]
        if len(names) != len(target.elts) or (call.keywords and not strict):
            return None
        if function is zip and len(names) == len(call.args):
            lists = [(arg, self._expressions.lower(arg)) for arg in call.args]
        elif function is enumerate and len(names) == 2 and len(call.args) == 1:
            source = self._expressions.lower(call.args[0])
            lists = [(call, self._indexes(call.args[0], source)), (call.args[0], source)]
        else:
            return None
        symbols = [symbol for _, symbol in lists]
        must_fit = function is enumerate
        if strict:
            said = self._expressions.lower(call.keywords[0].value)
            if not isinstance(said, Static):
                return None
            must_fit = must_fit or bool(said.value)
            if must_fit:
                self._check_lengths(call, symbols)
        cut = not must_fit and len({self._length(symbol) for symbol in symbols}) > 1
        if cut:  # what may be a dict or text becomes a list
            lists = [
                (node, symbol if _known_length(symbol) is not None else self.listed(node, symbol))
                for node, symbol in lists
            ]
        found = [self.items(node, symbol) for node, symbol in lists]
        values = [value for value, _ in found]
        values = _cut(values) if cut else values
        for name, (_, type_) in zip(names, found, strict=True):
            self._scopes.bind(name, Dynamic(reference("item", name), type_))
        return dict(zip(names, values, strict=True))

    # -- lengths

    def note_length(self, results: Symbol, each: ForEach) -> None:
        """The results of a loop without a filter are as many as what it went over."""
        if isinstance(results, Dynamic) and len(each.axes) == 1:
            items = next(iter(each.axes[0].values()))
            length = self._length_of(items.node) if isinstance(items, Expr) else len(items)
            self._lengths[id(self._scopes.builder), results.node] = length

    def _length(self, symbol: Symbol) -> int | Node | None:
        """Equal for symbols of equal length, as far as that is known now."""
        known = _known_length(symbol)
        return self._length_of(symbol.node) if known is None and isinstance(symbol, Dynamic) else known

    def _length_of(self, node: Node) -> int | Node:
        match node:
            case Macro("map", of, _, _):
                return self._length_of(of)
            case ListOf(items):
                return len(items)
        return self._lengths.get((id(self._scopes.builder), node), node)

    def _indexes(self, node: ast.expr, source: Symbol) -> Symbol:
        length = _known_length(source)
        if length is not None:
            return Static(range(length))
        size = Call("size", (self._expressions.node(node, source),))
        return Dynamic(Call("range", (size,)), list_of(INT))

    def _check_lengths(self, call: ast.Call, symbols: list[Symbol]) -> None:
        lengths = {length for symbol in symbols if (length := _known_length(symbol)) is not None}
        if len(lengths) > 1:
            message = f"zip() of lists that differ in length: {', '.join(map(str, sorted(lengths)))}"
            raise self._refusals.error("P312", call, message, "make them equally long")

    def listed(self, node: ast.expr, symbol: Symbol) -> Symbol:
        """What Python's `for` goes over, as a list: keys of a dict, letters of a text."""
        type_ = type_of(symbol)
        if isinstance(symbol, Static) or type_.name in ("list", "tuple"):
            value, item = self.items(node, symbol)
            return symbol if not isinstance(symbol, Static) else Dynamic(as_node(value), list_of(item))
        if type_.name in ("dict", "str", "any", "optional"):
            return python("list", list_of(item_type(type_)), self._expressions.node(node, symbol))
        self.items(node, symbol)
        return symbol

    def items(self, node: ast.expr, symbol: Symbol) -> tuple[Value, Type]:
        """The list that the symbol is, and the type of its items."""
        symbol = as_list(symbol)
        match symbol:
            case Static(set() | frozenset() as value):
                symbol = self._expressions.fold(node, sorted, value)
            case Static(dict() | str() as value):
                symbol = Static(list(value))
            case Pairs():
                symbol = Static([key for key, _ in symbol.items])
            case Dynamic() | FString() if type_of(symbol).name in ("dict", "str"):
                symbol = self.listed(node, symbol)
        type_ = type_of(symbol)
        if type_.name not in ("any", "list", "tuple") or (
            isinstance(symbol, Static) and not isinstance(symbol.value, list | tuple | range)
        ):
            what = f"{symbol.value!r:.40}" if isinstance(symbol, Static) else str(type_)
            message = f"this is {what}, and a loop needs a list"
            raise self._refusals.error("P312", node, message, "loop over a list")
        return self._expressions.value(node, symbol), type_.item

    def elements(self, where: Located, symbol: Symbol) -> list[Symbol] | None:
        """The items one by one, if their number is known. Refused if there are too many to write out."""
        symbol = as_list(symbol)
        if isinstance(symbol, Seq):
            return list(symbol.items)
        if isinstance(symbol, Pairs):
            return [Static(key) for key, _ in symbol.items]
        if not isinstance(symbol, Static) or not isinstance(symbol.value, list | tuple | range | dict | str):
            return None
        if len(symbol.value) > UNROLL:
            message = f"{len(symbol.value):,} rounds would be written out one by one (at most {UNROLL:,})"
            fix = "make the rounds independent of one another, use a while loop, or build the list inside a @task"
            raise self._refusals.error("P316", where, message, fix)
        return [Static(item) for item in symbol.value]


def _cut(values: list[Value]) -> list[Value]:
    """As long as the shortest of them."""
    known = [len(value) for value in values if not isinstance(value, Expr)]
    sizes = list(dict.fromkeys(Call("size", (value.node,)) for value in values if isinstance(value, Expr)))
    if not sizes:
        return [value[: min(known)] for value in values]
    shortest: Node = Const(min(known)) if known else sizes.pop()
    for size in sizes:
        shortest = Call("min", (size, shortest))
    return [Expr.tree(Call("slice", (as_node(value), Const(0), shortest))) for value in values]


def loop_variable(target: ast.expr) -> str:
    """`v` for `for v in …`; `a_b` for `for (a, b) in …`."""
    if isinstance(target, ast.Name):
        return target.id
    return "_".join(sorted(names_assigned([target]))) or "item"


def _known_length(symbol: Symbol) -> int | None:
    symbol = as_list(symbol)
    if isinstance(symbol, Seq):
        return len(symbol.items)
    if isinstance(symbol, Static) and isinstance(symbol.value, Sized):
        return len(symbol.value)
    return None
