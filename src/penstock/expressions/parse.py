"""Expressions: a subset of CEL, parsed once into a small tree. Never `eval`.

An expression reads the roots of its scope (`params.lr`, `steps.prepare.outputs.rows`, `item.shard`, `inputs.x`). Penstock needs the tree
and not only the value: which steps an expression reads, its type, and how to write it in another language. So the parser is here and
not in a library (adr/0003). `evaluate` gives values, `infer` types.

Left out of CEL on purpose: bytes, unsigned integers, timestamps, protobuf messages. Added: `truthy(x)` and `format(x, spec)`
with Python's meaning, and `range(n)`, which the Python front end needs. Also `default(a, b)` and the other functions of
signatures: the expression languages of Argo and Tekton are translated into this one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from penstock.errors import nearest
from penstock.expressions.signatures import SIGNATURES

MAX_TEXT = 65_536
MAX_DIGITS = 3500
"""Python refuses to print much longer ones. A number beyond 64 bits parses and has no value: see evaluate."""
MAX_DEPTH = 100
"""Nested parentheses and conditionals: the parser recurses over them."""
MAX_HEIGHT = 200
"""Depth of the tree, chains of operators included: everything that walks it recurses. Both limits fit Python's own."""


class ExpressionError(ValueError):
    """The text is not an expression. `position` counts characters from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


class UnknownFunction(ExpressionError):
    """A function or method that this language has not."""


# -- the tree ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Const:
    """A literal: text, a number, true, false or null."""

    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Name:
    """A name alone: the root of a path, or a variable of a macro."""

    id: str


@dataclass(frozen=True, slots=True)
class Member:
    """`of.name`"""

    of: Node
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """`of[index]`"""

    of: Node
    index: Node


@dataclass(frozen=True, slots=True)
class Call:
    """A function, or a method when `of` is set."""

    name: str
    args: tuple[Node, ...]
    of: Node | None = None


@dataclass(frozen=True, slots=True)
class Unary:
    """`!of`, `-of`"""

    op: str
    of: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """`left op right`"""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Choice:
    """`test ? yes : no`"""

    test: Node
    yes: Node
    no: Node


@dataclass(frozen=True, slots=True)
class ListOf:
    """`[a, b]`"""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class MapOf:
    """`{key: value}`"""

    items: tuple[tuple[Node, Node], ...]


@dataclass(frozen=True, slots=True)
class Macro:
    """`of.map(var, body)` and the other macros."""

    name: str
    of: Node
    var: str
    body: Node


Node = Const | Name | Member | Index | Call | Unary | Binary | Choice | ListOf | MapOf | Macro


@dataclass(frozen=True, slots=True)
class Expr:
    """An expression in canonical text: two that differ only in spaces and parentheses are equal.

    Made with `Expr.of(text)` or from a tree with `Expr.tree(node)`; never by hand."""

    text: str

    @staticmethod
    def of(text: str) -> Expr:
        return Expr(text) if _SIMPLE.match(text) and _NOT_NAMES.isdisjoint(text.split(".")) else Expr(show(parse(text)))

    @staticmethod
    def tree(node: Node) -> Expr:
        return Expr(show(node))

    @property
    def node(self) -> Node:
        return parse(self.text)

    def __str__(self) -> str:
        return self.text


# -- parsing ----------------------------------------------------------------------------------------------------------

FUNCTIONS: dict[str, int | tuple[int, int]] = {
    name: low if low == high else (low, high) for name, (low, high, _) in SIGNATURES.items()
}
METHODS = {"size": 0, "contains": 1, "startsWith": 1, "endsWith": 1, "matches": 1}
MACROS = ("map", "filter", "all", "exists", "exists_one")
_WORDS = {"true": True, "false": False, "null": None}
_RESERVED = frozenset(
    "as break const continue else for function if import let loop package namespace return var void while in".split()
)
_NOT_NAMES = _RESERVED | _WORDS.keys()
_LEVELS = (("||",), ("&&",), ("==", "!=", "<=", ">=", "<", ">", "in"), ("+", "-"), ("*", "/", "%"))
_LEVEL = {op: level for level, ops in enumerate(_LEVELS) for op in ops}
_LEXEME = re.compile(
    r"""[ \t\r\n\f]*(?:
    (?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
  | (?P<int>0x[0-9a-fA-F]+|\d+)(?P<uint>[uU]\b)?
  | (?P<prefix>[bB][rR]?|[rR][bB]?)?(?P<str>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<op>\|\||&&|==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])
  )""",
    re.X | re.A,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.S)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"} | {c: c for c in "\\'\"`?"}
_SIMPLE = re.compile(r"(?:steps\.(?!\d)\w+\.outputs|params|item|inputs|outputs)\.(?!\d)\w+\Z", re.A)
"""Nearly all expressions of a large graph are plain references, which need no parsing."""


@lru_cache(maxsize=1 << 16)
def parse(text: str) -> Node:
    """Raises ExpressionError. Bounded in length and depth, so that no document can exhaust the stack."""
    if _SIMPLE.match(text):
        return _extend(Name(text.partition(".")[0]), tuple(text.split(".")[1:]))
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"an expression of {len(text)} characters is too long (at most {MAX_TEXT})", 0)
    try:
        node = _Parser(text).whole()
    except RecursionError:  # called from far down the stack
        raise ExpressionError("nested too deep", 0) from None
    if _higher(node, MAX_HEIGHT):
        raise ExpressionError(f"too many operators in a row, or nested deeper than {MAX_HEIGHT}", 0)
    return node


def _higher(node: Node, limit: int) -> bool:
    level: list[Node] = [node]
    while level and limit:
        level = [child for parent in level for child in children(parent)]
        limit -= 1
    return bool(level)


@dataclass(slots=True)
class _Parser:
    """One token ahead, by precedence. `kind`, `token` and `value` are those of the next token."""

    text: str
    at: int = 0
    kind: str = ""
    token: str = ""
    start: int = 0
    depth: int = 0
    value: bool | int | float | str | None = None

    def whole(self) -> Node:
        self.advance()
        if self.kind == "end":
            raise ExpressionError("the expression is empty", 0)
        node = self.choice()
        if self.kind != "end":
            raise self.unexpected("the end")
        return node

    def advance(self) -> None:
        match = _LEXEME.match(self.text, self.at)
        if match is None:
            rest = self.text[self.at :].lstrip(" \t\r\n\f")
            self.start = len(self.text) - len(rest)
            if rest:
                what = "this string has no end" if rest[0] in "\"'" else f"{rest[0]!r} has no meaning here"
                raise ExpressionError(what, self.start)
            self.kind, self.token, self.at = "end", "", len(self.text)
            return
        self.kind = match.lastgroup or ""
        if self.kind == "uint" or match["prefix"]:
            raise ExpressionError(
                "unsigned and byte literals are not supported", match.start("int" if self.kind == "uint" else "prefix")
            )
        self.token, self.start, self.at = match[self.kind], match.start(self.kind), match.end()
        if self.kind == "int":
            if len(self.token) > MAX_DIGITS:
                raise ExpressionError(f"a number of more than {MAX_DIGITS} digits", self.start)
            self.value = int(self.token, 0) if self.token[:2] == "0x" else int(self.token)
        elif self.kind == "float":
            self.value = float(self.token)
            if self.value in (float("inf"), float("-inf")):
                raise ExpressionError(f"{self.token} is too large", self.start)
        elif self.kind == "str":
            self.value = self.unescape(self.token[1:-1])

    def unescape(self, body: str) -> str:
        def one(match: re.Match[str]) -> str:
            code = match[1]
            if code[0] in "xuU" and len(code) > 1:
                number = int(code[1:], 16)
            elif len(code) == 3:
                number = int(code, 8)
            elif code in _ESCAPED:
                return _ESCAPED[code]
            else:
                raise ExpressionError(f"\\{code} is not an escape", self.start)
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                raise ExpressionError(f"\\{code} is not a character", self.start)
            return chr(number)

        return _ESCAPE.sub(one, body)

    def unexpected(self, wanted: str) -> ExpressionError:
        found = f"{self.token!r}" if self.kind != "end" else "the end"
        hint = ""
        if self.token in ("and", "or", "not"):
            hint = f"; write {dict(zip(('and', 'or', 'not'), ('&&', '||', '!'), strict=True))[self.token]}"
        return ExpressionError(f"expected {wanted}, found {found}{hint}", self.start)

    def take(self, op: str) -> bool:
        if self.kind == "op" and self.token == op:
            self.advance()
            return True
        return False

    def need(self, op: str) -> None:
        if not self.take(op):
            raise self.unexpected(f"{op!r}")

    def nest(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError(f"nested deeper than {MAX_DEPTH}", self.start)

    def choice(self) -> Node:
        self.nest()
        node = self.binary()
        if self.take("?"):
            yes = self.binary()  # CEL's grammar: a conditional in the middle needs parentheses
            self.need(":")
            node = Choice(node, yes, self.choice())
        self.depth -= 1
        return node

    def binary(self) -> Node:
        """All five levels in one stack frame: one frame for each would reach Python's limit long before MAX_DEPTH."""
        operands = [self.unary()]
        operators: list[str] = []
        while True:
            level = _LEVEL.get(self.token, -1) if self.kind in ("op", "word") else -1
            while operators and _LEVEL[operators[-1]] >= level:
                right = operands.pop()
                operands.append(Binary(operators.pop(), operands.pop(), right))
            if level < 0:
                return operands[0]
            operators.append(self.token)
            self.advance()
            operands.append(self.unary())

    def unary(self) -> Node:
        signs = []
        start = self.start
        while self.kind == "op" and self.token in "!-":
            signs.append(self.token)
            self.advance()
        node = self.postfix(self.primary())
        while signs and signs[-1] == "-" and isinstance(node, Const) and type(node.value) in (int, float):
            node = Const(-node.value)  # type: ignore[operator]
            signs.pop()
        if len(set(signs)) > 1:
            raise ExpressionError("'!' and '-' in a row need brackets between them", start)
        for op in signs:
            node = Unary(op, node)
        return node

    def postfix(self, node: Node) -> Node:
        while self.kind == "op" and self.token in (".", "["):
            if self.take("["):
                index = self.choice()
                self.need("]")
                node = (
                    _extend(node, (index.value,))
                    if isinstance(index, Const) and isinstance(index.value, str)
                    else Index(node, index)
                )
                continue
            self.advance()
            if self.kind != "word":
                raise self.unexpected("a name after '.'")
            name, start = self.token, self.start
            self.advance()
            node = self.method(node, name, start) if self.take("(") else _extend(node, (name,))
        return node

    def method(self, of: Node, name: str, start: int) -> Node:
        args = self.list_until(")")
        if name in MACROS:
            if len(args) != 2 or not isinstance(args[0], Name):
                raise ExpressionError(f"{name} takes a variable and an expression: list.{name}(x, ...)", start)
            return Macro(name, of, args[0].id, args[1])
        if name not in METHODS:
            raise UnknownFunction(f"there is no method {name}(); there are {', '.join((*METHODS, *MACROS))}", start)
        if len(args) != METHODS[name]:
            raise ExpressionError(f"{name}() takes {METHODS[name]} argument(s), {len(args)} given", start)
        return Call(name, args, of)

    def primary(self) -> Node:
        kind, token, start = self.kind, self.token, self.start
        if kind in ("int", "float", "str"):
            value = self.value
            self.advance()
            return Const(value)
        if kind == "word":
            if token in _WORDS:
                self.advance()
                return Const(_WORDS[token])
            if token in _RESERVED or token in ("and", "or", "not"):
                raise self.unexpected("a value")
            self.advance()
            return self.call(token, start) if self.take("(") else Name(token)
        if self.take("("):
            node = self.choice()
            self.need(")")
            return node
        if self.take("["):
            return ListOf(self.list_until("]"))
        if self.take("{"):
            return self.mapping()
        raise self.unexpected("a value")

    def call(self, name: str, start: int) -> Node:
        args = self.list_until(")")
        arity = FUNCTIONS.get(name)
        if arity is None:
            raise UnknownFunction(f"there is no function {name}().{nearest(name[:80], FUNCTIONS)}", start)
        low, high = (arity, arity) if isinstance(arity, int) else arity
        if not low <= len(args) <= high:
            number = low if low == high else f"{low} to {high}"
            raise ExpressionError(f"{name}() takes {number} argument(s), {len(args)} given", start)
        if name == "has" and not isinstance(args[0], Member):
            raise ExpressionError("has() takes a field: has(a.b)", start)
        return Call(name, args)

    def list_until(self, end: str) -> tuple[Node, ...]:
        items: list[Node] = []
        while not self.take(end):
            items.append(self.choice())
            if not (self.kind == "op" and self.token == end):
                self.need(",")
        return tuple(items)

    def mapping(self) -> Node:
        items: list[tuple[Node, Node]] = []
        while not self.take("}"):
            key = self.choice()
            self.need(":")
            items.append((key, self.choice()))
            if not (self.kind == "op" and self.token == "}"):
                self.need(",")
        return MapOf(tuple(items))


# -- writing ----------------------------------------------------------------------------------------------------------

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.A)


def is_identifier(text: str) -> bool:
    return _IDENTIFIER.match(text) is not None and text not in _NOT_NAMES


def quote(text: str) -> str:
    """A string literal that CEL, and JSON, read back to the same text."""
    out = []
    for char in text:
        code = ord(char)
        if char in '"\\':
            out.append("\\" + char)
        elif char == "\n":
            out.append("\\n")
        elif code < 32 or code == 127 or 0x80 <= code < 0xA0 or code in (0x2028, 0x2029):
            out.append(f"\\u{code:04x}")
        else:
            out.append(char)
    return '"' + "".join(out) + '"'


def show(node: Node, level: int = 0) -> str:
    """Canonical text with the fewest parentheses. `parse(show(n)) == n` for every tree that `parse` can give."""
    match node:
        case Const(value):
            return _show_const(value, level)
        case Name(id):
            return id
        case Member(of, name):
            return f"{show(of, 7)}.{name}" if is_identifier(name) else f"{show(of, 7)}[{quote(name)}]"
        case Index(of, Const(str(name))) if is_identifier(name):
            return f"{show(of, 7)}.{name}"
        case Index(of, index):
            return f"{show(of, 7)}[{show(index)}]"
        case Call(name, args, of):
            inner = ", ".join(map(show, args))
            return f"{show(of, 7)}.{name}({inner})" if of is not None else f"{name}({inner})"
        case Macro(name, of, var, body):
            return f"{show(of, 7)}.{name}({var}, {show(body)})"
        case ListOf(items):
            return "[" + ", ".join(map(show, items)) + "]"
        case MapOf(pairs):
            return "{" + ", ".join(f"{show(key)}: {show(value)}" for key, value in pairs) + "}"
        case Unary(op, of):
            mixed = isinstance(of, Unary) and of.op != op  # `!-x` is not CEL
            return _bracket(op + show(of, 7 if mixed else 6), level > 6)
        case Binary(op, left, right):
            own = _LEVEL[op] + 1
            return _bracket(f"{show(left, own)} {op} {show(right, own + 1)}", level > own)
        case Choice(test, yes, no):
            return _bracket(f"{show(test, 1)} ? {show(yes, 1)} : {show(no)}", level > 0)


def _bracket(text: str, needed: bool) -> str:
    return f"({text})" if needed else text


def _show_const(value: bool | int | float | str | None, level: int) -> str:
    if isinstance(value, str):
        return quote(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    if isinstance(value, float) and "." not in text and "e" not in text:
        text += ".0"
    return _bracket(text, level > 6 and text[0] == "-")


# -- reading the tree -------------------------------------------------------------------------------------------------


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Const() | Name():
            return ()
        case Member(of, _):
            return (of,)
        case Index(of, index):
            return (of, index)
        case Call(_, args, of):
            return args if of is None else (of, *args)
        case Unary(_, of):
            return (of,)
        case Binary(_, left, right):
            return (left, right)
        case Choice(test, yes, no):
            return (test, yes, no)
        case ListOf(items):
            return items
        case MapOf(pairs):
            return tuple(part for pair in pairs for part in pair)
        case Macro(_, of, _, body):
            return (of, body)


def rebuild(node: Node, change: Callable[[Node], Node]) -> Node:
    """The same node with `change` applied to each of its children."""
    match node:
        case Member(of, name):
            return Member(change(of), name)
        case Index(of, index):
            return Index(change(of), change(index))
        case Call(name, args, of):
            return Call(name, tuple(map(change, args)), None if of is None else change(of))
        case Unary(op, of):
            return Unary(op, change(of))
        case Binary(op, left, right):
            return Binary(op, change(left), change(right))
        case Choice(test, yes, no):
            return Choice(change(test), change(yes), change(no))
        case ListOf(items):
            return ListOf(tuple(map(change, items)))
        case MapOf(pairs):
            return MapOf(tuple((change(key), change(value)) for key, value in pairs))
        case Macro(name, of, var, body):
            return Macro(name, change(of), var, change(body))
        case _:
            return node


def path_of(node: Node) -> tuple[str, ...] | None:
    """`steps["a-b"].outputs.x` -> ("steps", "a-b", "outputs", "x"); None for anything that is not a plain path."""
    parts: list[str] = []
    while True:
        match node:
            case Member(of, name):
                parts.append(name)
                node = of
            case Index(of, Const(str(name))):
                parts.append(name)
                node = of
            case Name(id):
                parts.append(id)
                return tuple(reversed(parts))
            case _:
                return None


@lru_cache(maxsize=1 << 16)
def simple_path(text: str) -> tuple[str, ...] | None:
    """The path of a plain reference such as `steps.a.outputs.x`, without parsing; None for any other expression."""
    return tuple(text.split(".")) if _SIMPLE.match(text) else None


@lru_cache(maxsize=1 << 16)
def references(text: str) -> tuple[tuple[str, ...], ...]:
    """Every outermost path that an expression reads, in order, without the variables that its macros bind."""
    simple = simple_path(text)
    if simple is not None:
        return (simple,)
    return tuple(dict.fromkeys(_paths(parse(text), frozenset())))


def _paths(node: Node, bound: frozenset[str]) -> Iterator[tuple[str, ...]]:
    path = path_of(node)
    if path is not None:
        if path[0] not in bound:
            yield path
        return
    if isinstance(node, Macro):
        yield from _paths(node.of, bound)
        yield from _paths(node.body, bound | {node.var})
        return
    for child in children(node):
        yield from _paths(child, bound)


@lru_cache(maxsize=1 << 14)
def reference(*path: str) -> Node:
    """("steps", "a-b", "outputs", "x") -> the tree that reads it."""
    return _extend(Name(path[0]), path[1:])


def replace(node: Node, swap: dict[tuple[str, ...], Node]) -> Node:
    """The same tree with paths replaced; the longest prefix of a path that is in `swap` wins.

    A macro whose variable would capture a name in a replacement gets another variable."""
    return _replace(node, swap, frozenset())


def _replace(node: Node, swap: dict[tuple[str, ...], Node], bound: frozenset[str]) -> Node:
    path = path_of(node)
    if path is not None:
        if path[0] in bound:
            return node
        length = _swapped(path, swap)
        return _extend(swap[path[:length]], path[length:]) if length else node

    def again(part: Node) -> Node:
        return _replace(part, swap, bound)

    match node:
        case Macro(name, of, var, body):
            coming = {
                root
                for path in _paths(body, bound | {var})
                if (length := _swapped(path, swap))
                for root, *_ in _paths(swap[path[:length]], frozenset())
            }
            if var in coming:
                old, var = var, _fresh(var, body, coming)
                body = _replace(body, {(old,): Name(var)}, frozenset())
            return Macro(name, again(of), var, _replace(body, swap, bound | {var}))
        case _:
            return rebuild(node, again)


def _swapped(path: tuple[str, ...], swap: dict[tuple[str, ...], Node]) -> int:
    """The length of the longest prefix that is replaced; 0 if none is."""
    return next((length for length in range(len(path), 0, -1) if path[:length] in swap), 0)


def _fresh(var: str, body: Node, coming: set[str]) -> str:
    """A name like `var` that occurs neither in `body` nor in `coming`."""
    taken = set(coming)
    rest = [body]
    while rest:
        node = rest.pop()
        taken |= {node.id} if isinstance(node, Name) else {node.var} if isinstance(node, Macro) else set()
        rest += children(node)
    while var in taken:
        var += "_"
    return var


def _extend(node: Node, names: tuple[str, ...]) -> Node:
    for name in names:
        node = Member(node, name) if is_identifier(name) else Index(node, Const(name))
    return node
