"""expr-lang, the language of Argo's `{{=…}}`, retry expressions and hooks -> Penstock's own. Called by the Argo reader.

Three things differ between the two and are seen to here. Numbers: expr-lang mixes whole and broken ones, so where the kinds are
not known beforehand `a + b` is `plus(a, b)`. Nothing: a field that is not there is nil, which may be compared and which `??`
replaces, so `a.b == nil` is `get(a, "b") == null`. Time: there is no clock in a run, so `now()` is when the run began; a moment
is text, and the difference of two is seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.formats.lang import exprparse as syntax
from penstock.formats.lang.build import checked, compared, joined
from penstock.formats.lang.exprcalls import function, method
from penstock.formats.lang.exprparts import Part, kind_of
from penstock.formats.lang.tags import Tag, split_tags
from penstock.graph.evaluate import EvaluationError
from penstock.graph.expr import (
    Binary,
    Call,
    Choice,
    Const,
    ExpressionError,
    Index,
    ListOf,
    Macro,
    MapOf,
    Member,
    Name,
    Node,
    Unary,
    is_identifier,
    path_of,
)
from penstock.graph.regex import compiled

Resolve = Callable[[tuple[str, ...]], Node]


class UnknownVariable(ExpressionError):
    """`resolve` raises it for a path that leads nowhere: UnknownVariable(("steps", "nobody"))."""

    def __init__(self, path: tuple[str, ...], position: int = 0) -> None:
        super().__init__(f"there is no variable {'.'.join(path)[:140]!r} here", position)
        self.path = path


def compile_expr(text: str, resolve: Resolve, tags: Callable[[Tag], Node] | None = None) -> Node:
    """The value of the expression. Raises ExpressionError.

    `resolve` is asked for the longest path first (("steps", "a", "outputs", "result")), then for shorter ones; what is left
    over is looked for inside the value. With `tags`, simple tags in the text are filled in before it is read, as Argo does
    in retry expressions and hooks."""
    return checked(_translated(text, resolve, tags).node)


def compile_tag(body: str, resolve: Resolve) -> Node:
    """The text that stands in the place of `{{=body}}`: JSON, or a string as it is."""
    part = _moment_as_text(_translated(body, resolve, None))
    return checked(part.node if part.kind == "str" or part.plain else Call("text", (part.node,)))


def compile_output(text: str, resolve: Resolve) -> Node:
    """What Argo keeps of `valueFrom.expression`: the value as Go prints it."""
    part = _moment_as_text(_translated(text, resolve, None))
    if part.kind == "str" or part.plain:
        return checked(part.node)
    return checked(Call("text" if part.kind in ("int", "bool") else "sprintf", _printed(part)))


def _printed(part: Part) -> tuple[Node, ...]:
    return (part.node,) if part.kind in ("int", "bool") else (Const("%v"), part.node)


def _moment_as_text(part: Part) -> Part:
    if part.kind == "time":
        return Part(Call("timestamp", (part.node,)), "str")
    return Part(Call("toInt", (Binary("*", part.node, Const(1e9)),)), "int") if part.kind == "duration" else part


def _translated(text: str, resolve: Resolve, tags: Callable[[Tag], Node] | None) -> Part:
    values: dict[str, Node] = {}
    places = [(0, 0)]
    written = text
    if tags is not None and "{{" in text:
        stem = "tag"
        while stem in text:
            stem += "x"
        written, start = "", 0
        for part in split_tags(text):
            places.append((len(written), start))
            if isinstance(part, str):
                written, start = written + part, start + len(part)
                continue
            name = f"{stem}{len(values)}q"
            values[name] = tags(part)
            written, start = written + name, start + len(part.raw)
    try:
        return Translation(resolve, values).part(syntax.parse(written))
    except RecursionError:
        raise ExpressionError("nested too deep", 0) from None
    except ExpressionError as error:
        begin, origin = max(place for place in places if place[0] <= error.position)
        error.position = min(origin + error.position - begin, len(text))
        raise


# -- trees ------------------------------------------------------------------------------------------------------------


_NUMBERS = ("int", "float")
_MIXED = {"+": "plus", "-": "minus", "*": "times"}


@dataclass(slots=True)
class Translation:
    resolve: Resolve
    tags: dict[str, Node]
    pointers: list[dict[str, Node]] = field(default_factory=list)
    lets: dict[str, Part] = field(default_factory=dict)
    names: int = 0

    def node(self, tree: syntax.Tree) -> Node:
        return self.part(tree).node

    def part(self, tree: syntax.Tree) -> Part:
        match tree:
            case syntax.Literal(value, _):
                return self.literal(value)
            case syntax.Variable() | syntax.Access():
                return self.access(tree)
            case syntax.Pointer(name, at):
                return self.pointer(name, at)
            case syntax.Slice(of, low, high, _):
                bounds = [Const(0) if low is None else self.node(low), *([] if high is None else [self.node(high)])]
                return Part(Call("slice", (self.node(of), *bounds)))
            case syntax.Function():
                return function(self, tree)
            case syntax.Method():
                return method(self, tree)
            case syntax.Unary():
                return self.unary(tree)
            case syntax.Binary():
                return self.binary(tree)
            case syntax.Choice(test, yes, no, _):
                first, second = self.nullable(yes), self.nullable(no)
                same = first.kind if first.kind == second.kind else "any"
                return Part(Choice(self.node(test), first.node, second.node), same)
            case syntax.Array(items, _):
                return Part(ListOf(tuple(self.nullable(item).node for item in items)), "list")
            case syntax.Map(pairs, _):
                return Part(MapOf(tuple((self.node(key), self.nullable(value).node) for key, value in pairs)), "map")
            case syntax.Let(name, value, body, _):
                return self.let(name, value, body)

    def literal(self, value: bool | int | float | str | None) -> Part:
        if isinstance(value, str) and self.tags and (pieces := re.split(f"({'|'.join(self.tags)})", value))[1:]:
            return Part(joined([self.tags.get(piece, Const(piece)) for piece in pieces if piece]), "str")
        kinds = {bool: "bool", int: "int", float: "float", str: "str", type(None): "nil"}
        return Part(Const(value), kinds[type(value)])

    def fresh(self) -> str:
        self.names += 1
        return "it" if self.names == 1 else f"it{self.names}"

    def let(self, name: str, value: syntax.Tree, body: syntax.Tree) -> Part:
        """`let x = v; b` -> `[v].map(x, b)[0]`, which works v out once."""
        given, variable = self.nullable(value), self.fresh()
        kept = dict(self.lets)
        self.lets[name] = Part(Name(variable), given.kind)
        inner = self.part(body)
        self.lets = kept
        return Part(Index(Macro("map", ListOf((given.node,)), variable, inner.node), Const(0)), inner.kind)

    # -- variables and what is in them

    def pointer(self, name: str, at: int) -> Part:
        known = self.pointers[-1] if self.pointers else {}
        if name not in known:
            raise ExpressionError(f"#{name} has no meaning here", at)
        return Part(known[name])

    def access(self, tree: syntax.Variable | syntax.Access) -> Part:
        keys: list[syntax.Access] = []
        root: syntax.Tree = tree
        while isinstance(root, syntax.Access):
            keys.append(root)
            root = root.of
        keys.reverse()
        start, used = self.root(root, keys)
        result = start
        for key in keys[used:]:
            result = self.member(result, key)
        if any(key.optional for key in keys):
            return Part(Call("default", (result.node, Const(None))))
        return result

    def root(self, tree: syntax.Tree, keys: list[syntax.Access]) -> tuple[Part, int]:
        """The value that the keys begin at, and how many of them are spent on finding it."""
        if not isinstance(tree, syntax.Variable):
            return self.part(tree), 0
        if tree.name in self.lets:
            return self.lets[tree.name], 0
        if tree.name in self.tags:
            return Part(Call("atom", (self.tags[tree.name],))), 0
        path = [tree.name]
        for key in keys:
            if not isinstance(key.key, syntax.Literal) or not isinstance(key.key.value, str):
                break
            path.append(key.key.value)
        skipped = 1 if tree.name == "$env" and len(path) > 1 else 0
        for length in range(len(path), skipped, -1):
            try:
                node = self.resolve(tuple(path[skipped:length]))
            except UnknownVariable:
                continue
            kind = kind_of(node)
            return Part(node, kind, plain=length == len(path) == len(keys) + 1 and kind in ("any", "str")), length - 1
        raise UnknownVariable(tuple(path[skipped:]), tree.at)

    def member(self, of: Part, access: syntax.Access) -> Part:
        if of.kind in ("int", "float", "bool", "nil"):
            raise ExpressionError(f"there is nothing inside {'an' if of.kind == 'int' else 'a'} {of.kind}", access.at)
        key = self.part(access.key)
        match key.node:
            case Const(str(name)):
                node: Node = Member(of.node, name) if is_identifier(name) else Index(of.node, Const(name))
                return Part(node, loose=True)
            case Const(int(number)) if number < 0:
                return Part(Call("get", (of.node, key.node)))
        return Part(Index(of.node, key.node), loose=True)

    def nullable(self, tree: syntax.Tree) -> Part:
        """The piece, null where there is nothing: for places that take null as a value."""
        part = self.part(tree)
        match part.node:
            case Member(of, name) if part.loose:
                return Part(Call("get", (of, Const(name))), part.kind)
            case Index(of, key) if part.loose:
                return Part(Call("get", (of, key)), part.kind)
        return part

    def compared_side(self, tree: syntax.Tree, other: syntax.Tree) -> Part:
        """Like `nullable`; and an output may be missing altogether, because its step was skipped."""
        part = self.nullable(tree)
        path = path_of(part.node)
        absent = path is not None and len(path) > 3 and path[0] == "steps" and path[2] == "outputs"
        with_nil = isinstance(other, syntax.Literal) and other.value is None
        if path is not None and (absent or (with_nil and path[0] not in _SURE and len(path) > 1)):
            return Part(Call("default", (part.node, Const(None))), part.kind)
        return part

    # -- operators

    def unary(self, tree: syntax.Unary) -> Part:
        of = self.part(tree.of)
        if tree.op == "!":
            return Part(Unary("!", of.node), "bool")
        if of.kind not in (*_NUMBERS, "duration", "any"):
            raise ExpressionError(f"{tree.op!r} is for numbers, not for {of.kind}", tree.at)
        if tree.op == "+":
            return of
        if isinstance(of.node, Const) and isinstance(of.node.value, int | float):
            return Part(Const(-of.node.value), of.kind)
        return Part(Unary("-", of.node), of.kind)

    def binary(self, tree: syntax.Binary) -> Part:
        match tree.op:
            case "&&" | "||":
                return Part(Binary(tree.op, self.node(tree.left), self.node(tree.right)), "bool")
            case "??":
                return self.coalesced(tree)
            case "==" | "!=":
                left, right = self.compared_side(tree.left, tree.right), self.compared_side(tree.right, tree.left)
                if "time" in (left.kind, right.kind) and "nil" not in (left.kind, right.kind):
                    left, right = _instant(left), _instant(right)
                return Part(compared(tree.op, left.node, right.node), "bool")
            case "in":
                return Part(Binary("in", self.nullable(tree.left).node, self.node(tree.right)), "bool")
            case "contains" | "startsWith" | "endsWith":
                return Part(Call(tree.op, (self.node(tree.right),), self.node(tree.left)), "bool")
            case "matches":
                return self.matches(tree)
            case "..":
                return self.range(tree)
        left, right = self.part(tree.left), self.part(tree.right)
        if tree.op in ("<", "<=", ">", ">="):
            if "time" in (left.kind, right.kind):
                left, right = _instant(left), _instant(right)
            return Part(Binary(tree.op, left.node, right.node), "bool")
        return self.arithmetic(tree, left, right)

    def coalesced(self, tree: syntax.Binary) -> Part:
        left, right = self.part(tree.left), self.nullable(tree.right)
        node = left.node
        if isinstance(node, Call) and node.name == "default" and node.args[1] == Const(None):
            node = node.args[0]
        return Part(Call("default", (node, right.node)), left.kind if left.kind == right.kind else "any")

    def matches(self, tree: syntax.Binary) -> Part:
        left, right = self.node(tree.left), self.node(tree.right)
        if isinstance(right, Const) and isinstance(right.value, str):
            try:
                compiled(right.value)
            except EvaluationError as error:
                raise ExpressionError(str(error), tree.right.at) from None
        return Part(Call("matches", (left, right)), "bool")

    def range(self, tree: syntax.Binary) -> Part:
        first, last = (self.whole(self.part(side)) for side in (tree.left, tree.right))
        end = (
            Const(last.value + 1)
            if isinstance(last, Const) and isinstance(last.value, int)
            else Binary("+", last, Const(1))
        )
        return Part(Call("range", (first, end)), "list")

    def whole(self, part: Part) -> Node:
        return part.node if part.kind == "int" else Call("toInt", (part.node,))

    def arithmetic(self, tree: syntax.Binary, left: Part, right: Part) -> Part:
        op, kinds = tree.op, (left.kind, right.kind)
        if "time" in kinds or "duration" in kinds:
            return self.times(tree, left, right)
        wrong = {"nil", "bool", "map", "list"} & set(kinds) or (
            "str" in kinds and (op != "+" or set(kinds) & set(_NUMBERS))
        )
        if wrong:
            raise ExpressionError(f"{left.kind} {op} {right.kind} has no meaning", tree.at)
        if "str" in kinds:
            return Part(Binary("+", left.node, right.node), "str")
        if op == "**":
            return Part(Call("power", (left.node, right.node)), "float")
        if kinds == ("int", "int") and op != "/":
            return Part(Binary(op, left.node, right.node), "int")
        if op == "%":
            return Part(Call("remainder", (left.node, right.node)), "int")
        if kinds == ("float", "float"):
            return Part(Binary(op, left.node, right.node), "float")
        if set(kinds) == {"int", "float"}:
            return Part(Binary(op, _double(left), _double(right)), "float")
        if op == "/":
            return Part(Call("over", (left.node, right.node)), "float")
        return Part(Call(_MIXED[op], (left.node, right.node)))

    def times(self, tree: syntax.Binary, left: Part, right: Part) -> Part:
        """Moments and durations. What is not known is a moment beside `-`, and a duration beside `+`."""
        op = tree.op
        if op == "-" and left.kind == "time" and right.kind != "duration":
            return Part(Binary("-", _instant(left).node, _instant(right).node), "duration")
        if op == "+" and right.kind == "time":
            left, right = right, left
        if op in "+-" and left.kind in ("time", "any") and right.kind in ("duration", "any"):
            seconds = right.node if right.kind == "duration" else Call("seconds", (right.node,))
            return Part(Call("timestamp", (Binary(op, _instant(left).node, seconds),)), "time")
        if op == "-" and right.kind == "time":
            return Part(Binary("-", _instant(left).node, _instant(right).node), "duration")
        if op in "+-" and left.kind == right.kind == "duration":
            return Part(Binary(op, left.node, right.node), "duration")
        if op in "*/" and "time" not in (left.kind, right.kind):
            return Part(Call({"*": "times", "/": "over"}[op], (left.node, right.node)), "duration")
        raise ExpressionError(f"{left.kind} {op} {right.kind} has no meaning", tree.at)


_SURE = frozenset({"it", "run"})


def _instant(part: Part) -> Part:
    return part if part.kind in ("duration", "float", "int") else Part(Call("epoch", (part.node,)), "float")


def _double(part: Part) -> Node:
    if part.kind != "int":
        return part.node
    if isinstance(part.node, Const) and isinstance(part.node.value, int):
        return Const(float(part.node.value))
    return Call("double", (part.node,))
