"""expr-lang, the language of Argo's `{{=…}}`, retry expressions and hooks -> Penstock's own. Called by the Argo reader.

The two languages differ in three ways. Numbers: expr-lang mixes ints and floats, so `a + b` of unknown types becomes `plus(a, b)`. Nil: a
missing field is nil, which can be compared and which `??` replaces, so `a.b == nil` becomes `get(a, "b") == null`. Time: a run has no
clock, so `now()` is the start of the run; a time is text, and the difference of two is in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.expressions.evaluate import EvaluationError
from penstock.expressions.parse import (
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
from penstock.expressions.regex import compiled
from penstock.formats.argo.language import grammar
from penstock.formats.argo.language.functions import function, method
from penstock.formats.argo.language.tags import Tag, split_tags
from penstock.formats.argo.language.typed import TypedNode, kind_of
from penstock.formats.expression_trees import checked, compared, joined

Resolve = Callable[[tuple[str, ...]], Node]
Firm = Callable[[tuple[str, ...]], bool]
"""Says of a path that it fails without a value even before `??`: Argo does not get as far as that operator."""


def _never_firm(path: tuple[str, ...]) -> bool:
    return False


class UnknownVariable(ExpressionError):
    """`resolve` raises it for an unknown path: UnknownVariable(("steps", "nobody"))."""

    def __init__(self, path: tuple[str, ...], position: int = 0) -> None:
        super().__init__(f"there is no variable {'.'.join(path)[:140]!r} here", position)
        self.path = path


def compile_expr(
    text: str, resolve: Resolve, tags: Callable[[Tag], Node] | None = None, firm: Firm = _never_firm
) -> Node:
    """The value of the expression. Raises ExpressionError.

    `resolve` is called with the longest path first (("steps", "a", "outputs", "result")), then with shorter ones; the rest of the path
    is read from the value. With `tags`, simple tags in the text are replaced before it is parsed, as Argo does in retry expressions
    and hooks."""
    return checked(_translated(text, resolve, tags, firm).node)


def compile_tag(body: str, resolve: Resolve, firm: Firm = _never_firm) -> Node:
    """The text that replaces `{{=body}}`: JSON, or a string as it is."""
    part = _moment_as_text(_translated(body, resolve, None, firm))
    return checked(part.node if part.kind == "str" or part.plain else Call("text", (part.node,)))


def compile_output(text: str, resolve: Resolve, firm: Firm = _never_firm) -> Node:
    """The value of `valueFrom.expression`: as Go prints it."""
    part = _moment_as_text(_translated(text, resolve, None, firm))
    if part.kind == "str" or part.plain:
        return checked(part.node)
    return checked(Call("text" if part.kind in ("int", "bool") else "sprintf", _printed(part)))


def _printed(part: TypedNode) -> tuple[Node, ...]:
    return (part.node,) if part.kind in ("int", "bool") else (Const("%v"), part.node)


def _moment_as_text(part: TypedNode) -> TypedNode:
    if part.kind == "time":
        return TypedNode(Call("timestamp", (part.node,)), "str")
    return TypedNode(Call("toInt", (Binary("*", part.node, Const(1e9)),)), "int") if part.kind == "duration" else part


def _translated(text: str, resolve: Resolve, tags: Callable[[Tag], Node] | None, firm: Firm) -> TypedNode:
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
        return ExprTranslation(resolve, values, firm).part(grammar.parse(written))
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
class ExprTranslation:
    resolve: Resolve
    tags: dict[str, Node]
    firm: Firm = _never_firm
    pointers: list[dict[str, Node]] = field(default_factory=list)
    lets: dict[str, TypedNode] = field(default_factory=dict)
    names: int = 0

    def node(self, tree: grammar.Tree) -> Node:
        return self.part(tree).node

    def part(self, tree: grammar.Tree) -> TypedNode:
        match tree:
            case grammar.ConstantNode(value, _):
                return self.literal(value)
            case grammar.IdentifierNode() | grammar.MemberNode():
                return self.access(tree)
            case grammar.PointerNode(name, at):
                return self.pointer(name, at)
            case grammar.SliceNode(of, low, high, _):
                bounds = [Const(0) if low is None else self.node(low), *([] if high is None else [self.node(high)])]
                return TypedNode(Call("slice", (self.node(of), *bounds)))
            case grammar.CallNode():
                return function(self, tree)
            case grammar.MethodNode():
                return method(self, tree)
            case grammar.UnaryNode():
                return self.unary(tree)
            case grammar.BinaryNode():
                return self.binary(tree)
            case grammar.ConditionalNode(test, yes, no, _):
                first, second = self.nullable(yes), self.nullable(no)
                same = first.kind if first.kind == second.kind else "any"
                return TypedNode(Choice(self.node(test), first.node, second.node), same)
            case grammar.ArrayNode(items, _):
                return TypedNode(ListOf(tuple(self.nullable(item).node for item in items)), "list")
            case grammar.MapNode(pairs, _):
                return TypedNode(
                    MapOf(tuple((self.node(key), self.nullable(value).node) for key, value in pairs)), "map"
                )
            case grammar.LetNode(name, value, body, _):
                return self.let(name, value, body)

    def literal(self, value: bool | int | float | str | None) -> TypedNode:
        if isinstance(value, str) and self.tags and (pieces := re.split(f"({'|'.join(self.tags)})", value))[1:]:
            return TypedNode(joined([self.tags.get(piece, Const(piece)) for piece in pieces if piece]), "str")
        kinds = {bool: "bool", int: "int", float: "float", str: "str", type(None): "nil"}
        return TypedNode(Const(value), kinds[type(value)])

    def fresh(self) -> str:
        self.names += 1
        return "it" if self.names == 1 else f"it{self.names}"

    def let(self, name: str, value: grammar.Tree, body: grammar.Tree) -> TypedNode:
        """`let x = v; b` -> `[v].map(x, b)[0]`, which evaluates v once."""
        given, variable = self.nullable(value), self.fresh()
        kept = dict(self.lets)
        self.lets[name] = TypedNode(Name(variable), given.kind)
        inner = self.part(body)
        self.lets = kept
        return TypedNode(Index(Macro("map", ListOf((given.node,)), variable, inner.node), Const(0)), inner.kind)

    # -- variables and what is in them

    def pointer(self, name: str, at: int) -> TypedNode:
        known = self.pointers[-1] if self.pointers else {}
        if name not in known:
            raise ExpressionError(f"#{name} has no meaning here", at)
        return TypedNode(known[name])

    def access(self, tree: grammar.IdentifierNode | grammar.MemberNode) -> TypedNode:
        keys: list[grammar.MemberNode] = []
        root: grammar.Tree = tree
        while isinstance(root, grammar.MemberNode):
            keys.append(root)
            root = root.of
        keys.reverse()
        start, used = self.root(root, keys)
        result = start
        for key in keys[used:]:
            result = self.member(result, key)
        if any(key.optional for key in keys):
            return TypedNode(Call("default", (result.node, Const(None))))
        return result

    def root(self, tree: grammar.Tree, keys: list[grammar.MemberNode]) -> tuple[TypedNode, int]:
        """The value of the longest known prefix of the keys, and the length of that prefix."""
        if not isinstance(tree, grammar.IdentifierNode):
            return self.part(tree), 0
        if tree.name in self.lets:
            return self.lets[tree.name], 0
        if tree.name in self.tags:
            return TypedNode(Call("atom", (self.tags[tree.name],))), 0
        path = [tree.name]
        for key in keys:
            if not isinstance(key.key, grammar.ConstantNode) or not isinstance(key.key.value, str):
                break
            path.append(key.key.value)
        skipped = 1 if tree.name == "$env" and len(path) > 1 else 0
        for length in range(len(path), skipped, -1):
            try:
                node = self.resolve(tuple(path[skipped:length]))
            except UnknownVariable:
                continue
            kind = kind_of(node)
            return TypedNode(
                node, kind, plain=length == len(path) == len(keys) + 1 and kind in ("any", "str")
            ), length - 1
        raise UnknownVariable(tuple(path[skipped:]), tree.at)

    def member(self, of: TypedNode, access: grammar.MemberNode) -> TypedNode:
        if of.kind in ("int", "float", "bool", "nil"):
            raise ExpressionError(f"there is nothing inside {'an' if of.kind == 'int' else 'a'} {of.kind}", access.at)
        key = self.part(access.key)
        match key.node:
            case Const(str(name)):
                node: Node = Member(of.node, name) if is_identifier(name) else Index(of.node, Const(name))
                return TypedNode(node, loose=True)
            case Const(int(number)) if number < 0:
                return TypedNode(Call("get", (of.node, key.node)))
        return TypedNode(Index(of.node, key.node), loose=True)

    def nullable(self, tree: grammar.Tree) -> TypedNode:
        """The node, null if it is missing: for places that accept null."""
        part = self.part(tree)
        match part.node:
            case Member(of, name) if part.loose:
                return TypedNode(Call("get", (of, Const(name))), part.kind)
            case Index(of, key) if part.loose:
                return TypedNode(Call("get", (of, key)), part.kind)
        return part

    def compared_side(self, tree: grammar.Tree, other: grammar.Tree) -> TypedNode:
        """Like `nullable`; an output may also be missing because its step was skipped."""
        part = self.nullable(tree)
        path = path_of(part.node)
        absent = path is not None and len(path) > 3 and path[0] == "steps" and path[2] == "outputs"
        with_nil = isinstance(other, grammar.ConstantNode) and other.value is None
        if path is not None and (absent or (with_nil and path[0] not in _SURE and len(path) > 1)):
            return TypedNode(Call("default", (part.node, Const(None))), part.kind)
        return part

    # -- operators

    def unary(self, tree: grammar.UnaryNode) -> TypedNode:
        of = self.part(tree.of)
        if tree.op == "!":
            return TypedNode(Unary("!", of.node), "bool")
        if of.kind not in (*_NUMBERS, "duration", "any"):
            raise ExpressionError(f"{tree.op!r} is for numbers, not for {of.kind}", tree.at)
        if tree.op == "+":
            return of
        if isinstance(of.node, Const) and isinstance(of.node.value, int | float):
            return TypedNode(Const(-of.node.value), of.kind)
        return TypedNode(Unary("-", of.node), of.kind)

    def binary(self, tree: grammar.BinaryNode) -> TypedNode:
        match tree.op:
            case "&&" | "||":
                return TypedNode(Binary(tree.op, self.node(tree.left), self.node(tree.right)), "bool")
            case "??":
                return self.coalesced(tree)
            case "==" | "!=":
                left, right = self.compared_side(tree.left, tree.right), self.compared_side(tree.right, tree.left)
                if "time" in (left.kind, right.kind) and "nil" not in (left.kind, right.kind):
                    left, right = _instant(left), _instant(right)
                return TypedNode(compared(tree.op, left.node, right.node), "bool")
            case "in":
                return TypedNode(Binary("in", self.nullable(tree.left).node, self.node(tree.right)), "bool")
            case "contains" | "startsWith" | "endsWith":
                return TypedNode(Call(tree.op, (self.node(tree.right),), self.node(tree.left)), "bool")
            case "matches":
                return self.matches(tree)
            case "..":
                return self.range(tree)
        left, right = self.part(tree.left), self.part(tree.right)
        if tree.op in ("<", "<=", ">", ">="):
            if "time" in (left.kind, right.kind):
                left, right = _instant(left), _instant(right)
            return TypedNode(Binary(tree.op, left.node, right.node), "bool")
        return self.arithmetic(tree, left, right)

    def coalesced(self, tree: grammar.BinaryNode) -> TypedNode:
        left, right = self.part(tree.left), self.nullable(tree.right)
        if self.firm(_plain_path(tree.left)):
            return left
        node = left.node
        if isinstance(node, Call) and node.name == "default" and node.args[1] == Const(None):
            node = node.args[0]
        return TypedNode(Call("default", (node, right.node)), left.kind if left.kind == right.kind else "any")

    def matches(self, tree: grammar.BinaryNode) -> TypedNode:
        left, right = self.node(tree.left), self.node(tree.right)
        if isinstance(right, Const) and isinstance(right.value, str):
            try:
                compiled(right.value)
            except EvaluationError as error:
                raise ExpressionError(str(error), tree.right.at) from None
        return TypedNode(Call("matches", (left, right)), "bool")

    def range(self, tree: grammar.BinaryNode) -> TypedNode:
        first, last = (self.whole(self.part(side)) for side in (tree.left, tree.right))
        end = (
            Const(last.value + 1)
            if isinstance(last, Const) and isinstance(last.value, int)
            else Binary("+", last, Const(1))
        )
        return TypedNode(Call("range", (first, end)), "list")

    def whole(self, part: TypedNode) -> Node:
        return part.node if part.kind == "int" else Call("toInt", (part.node,))

    def arithmetic(self, tree: grammar.BinaryNode, left: TypedNode, right: TypedNode) -> TypedNode:
        op, kinds = tree.op, (left.kind, right.kind)
        if "time" in kinds or "duration" in kinds:
            return self.times(tree, left, right)
        wrong = {"nil", "bool", "map", "list"} & set(kinds) or (
            "str" in kinds and (op != "+" or set(kinds) & set(_NUMBERS))
        )
        if wrong:
            raise ExpressionError(f"{left.kind} {op} {right.kind} has no meaning", tree.at)
        if "str" in kinds:
            return TypedNode(Binary("+", left.node, right.node), "str")
        if op == "**":
            return TypedNode(Call("power", (left.node, right.node)), "float")
        if kinds == ("int", "int") and op != "/":
            return TypedNode(Binary(op, left.node, right.node), "int")
        if op == "%":
            return TypedNode(Call("remainder", (left.node, right.node)), "int")
        if kinds == ("float", "float"):
            return TypedNode(Binary(op, left.node, right.node), "float")
        if set(kinds) == {"int", "float"}:
            return TypedNode(Binary(op, _double(left), _double(right)), "float")
        if op == "/":
            return TypedNode(Call("over", (left.node, right.node)), "float")
        return TypedNode(Call(_MIXED[op], (left.node, right.node)))

    def times(self, tree: grammar.BinaryNode, left: TypedNode, right: TypedNode) -> TypedNode:
        """Times and durations. An operand of unknown type is a time with `-`, and a duration with `+`."""
        op = tree.op
        if op == "-" and left.kind == "time" and right.kind != "duration":
            return TypedNode(Binary("-", _instant(left).node, _instant(right).node), "duration")
        if op == "+" and right.kind == "time":
            left, right = right, left
        if op in "+-" and left.kind in ("time", "any") and right.kind in ("duration", "any"):
            seconds = right.node if right.kind == "duration" else Call("seconds", (right.node,))
            return TypedNode(Call("timestamp", (Binary(op, _instant(left).node, seconds),)), "time")
        if op == "-" and right.kind == "time":
            return TypedNode(Binary("-", _instant(left).node, _instant(right).node), "duration")
        if op in "+-" and left.kind == right.kind == "duration":
            return TypedNode(Binary(op, left.node, right.node), "duration")
        if op in "*/" and "time" not in (left.kind, right.kind):
            return TypedNode(Call({"*": "times", "/": "over"}[op], (left.node, right.node)), "duration")
        raise ExpressionError(f"{left.kind} {op} {right.kind} has no meaning", tree.at)


def _plain_path(tree: grammar.Tree) -> tuple[str, ...]:
    """`a.b['c']` -> the names; empty for everything else, and if one of them may be missing (`a?.b`)."""
    names: list[str] = []
    while isinstance(tree, grammar.MemberNode) and not tree.optional:
        if not isinstance(tree.key, grammar.ConstantNode) or not isinstance(tree.key.value, str):
            return ()
        names.append(tree.key.value)
        tree = tree.of
    return (tree.name, *reversed(names)) if isinstance(tree, grammar.IdentifierNode) else ()


_SURE = frozenset({"it", "run"})


def _instant(part: TypedNode) -> TypedNode:
    return part if part.kind in ("duration", "float", "int") else TypedNode(Call("epoch", (part.node,)), "float")


def _double(part: TypedNode) -> Node:
    if part.kind != "int":
        return part.node
    if isinstance(part.node, Const) and isinstance(part.node.value, int):
        return Const(float(part.node.value))
    return Call("double", (part.node,))
