"""The grammar of expr-lang, the language of Argo's expression tags. Called by translate, which interprets the tree.

It follows expr-lang/expr 1.17, operator precedence included: `??` binds tightest, `-2 ** 2` is -4, `1 < x < 5` tests both. Nodes have
the names of expr-lang's own AST.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.expressions.parse import ExpressionError

MAX_TEXT = 65_536
MAX_NESTING = 60
MAX_HEIGHT = 150
"""The most operators in a row or nested: the translation recurses over them."""


@dataclass(frozen=True, slots=True)
class ConstantNode:
    value: bool | int | float | str | None
    at: int


@dataclass(frozen=True, slots=True)
class IdentifierNode:
    name: str
    at: int


@dataclass(frozen=True, slots=True)
class PointerNode:
    """`#` in a predicate, `#acc`, `#index`."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class MemberNode:
    """`of.key`, `of["key"]`, `of[0]`; with `?.` if optional."""

    of: Tree
    key: Tree
    optional: bool
    at: int


@dataclass(frozen=True, slots=True)
class SliceNode:
    of: Tree
    low: Tree | None
    high: Tree | None
    at: int


@dataclass(frozen=True, slots=True)
class CallNode:
    name: str
    args: tuple[Tree, ...]
    at: int


@dataclass(frozen=True, slots=True)
class MethodNode:
    of: Tree
    name: str
    args: tuple[Tree, ...]
    at: int


@dataclass(frozen=True, slots=True)
class UnaryNode:
    op: str
    of: Tree
    at: int


@dataclass(frozen=True, slots=True)
class BinaryNode:
    op: str
    left: Tree
    right: Tree
    at: int


@dataclass(frozen=True, slots=True)
class ConditionalNode:
    test: Tree
    yes: Tree
    no: Tree
    at: int


@dataclass(frozen=True, slots=True)
class ArrayNode:
    items: tuple[Tree, ...]
    at: int


@dataclass(frozen=True, slots=True)
class MapNode:
    pairs: tuple[tuple[Tree, Tree], ...]
    at: int


@dataclass(frozen=True, slots=True)
class LetNode:
    name: str
    value: Tree
    body: Tree
    at: int


Tree = (
    ConstantNode
    | IdentifierNode
    | PointerNode
    | MemberNode
    | SliceNode
    | CallNode
    | MethodNode
    | UnaryNode
    | BinaryNode
    | ConditionalNode
    | ArrayNode
    | MapNode
    | LetNode
)


def children(tree: Tree) -> tuple[Tree, ...]:
    match tree:
        case MemberNode(of, key, _, _):
            return (of, key)
        case SliceNode(of, low, high, _):
            return (of, *(bound for bound in (low, high) if bound is not None))
        case CallNode(_, args, _):
            return args
        case MethodNode(of, _, args, _):
            return (of, *args)
        case UnaryNode(_, of, _):
            return (of,)
        case BinaryNode(_, left, right, _):
            return (left, right)
        case ConditionalNode(test, yes, no, _):
            return (test, yes, no)
        case ArrayNode(items, _):
            return items
        case MapNode(pairs, _):
            return tuple(part for pair in pairs for part in pair)
        case LetNode(_, value, body, _):
            return (value, body)
        case _:
            return ()


def parse(text: str) -> Tree:
    """Raises ExpressionError."""
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"an expression of more than {MAX_TEXT} characters", 0)
    try:
        tree = _Parser(text).whole()
    except RecursionError:  # the caller is deep in the stack already
        raise ExpressionError("nested too deep", 0) from None
    level: list[Tree] = [tree]
    for _ in range(MAX_HEIGHT):
        level = [child for parent in level for child in children(parent)]
        if not level:
            return tree
    raise ExpressionError(f"too many operators in a row, or nested deeper than {MAX_HEIGHT}", 0)


# -- tokens -----------------------------------------------------------------------------------------------------------

_LEXEME = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<bytes>[bB](?=["']))
  | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<raw>`(?:[^`]|``)*`)
  | (?P<number>0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+
      |(?:[0-9][0-9_]*(?:\.(?!\.)[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]*)?)
  | (?P<word>[^\W\d][\w$]*|\$[\w$]*)
  | (?P<op>\?\.|\?\?|\|\||&&|::|==|!=|<=|>=|\*\*|\.\.|[-+*/%^<>!?:.,;()\[\]{}|\#=])
    """,
    re.X | re.S,
)
_WORD_OPERATORS = frozenset("not in or and matches contains startsWith endsWith let if else".split())
_NEXT_WORD = re.compile(r"\s*(\w+)")
_NEGATABLE = frozenset("in matches contains startsWith endsWith".split())
_ESCAPE = re.compile(
    r"\\(u\{[0-9a-fA-F]{1,6}\}|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.S
)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"} | {c: c for c in "\\'\"`?"}
_UNARY = {"not": 50, "!": 50, "-": 90, "+": 90}
_BINARY = {
    "|": 0, "or": 10, "||": 10, "and": 15, "&&": 15, "==": 20, "!=": 20, "<": 20, ">": 20, ">=": 20, "<=": 20, "in": 20,
    "matches": 20, "contains": 20, "startsWith": 20, "endsWith": 20, "..": 25, "+": 30, "-": 30, "*": 60, "/": 60, "%": 60,
    "**": 100, "^": 100, "??": 500,
}  # fmt: skip
_SAME = {"or": "||", "and": "&&", "^": "**", "not": "!"}
PREDICATES = {
    **dict.fromkeys("all none any one filter map find findIndex findLast findLastIndex groupBy".split(), (2, 2)),
    "count": (1, 2),
    "sum": (1, 2),
    "sortBy": (2, 3),
    "reduce": (2, 3),
}
"""Functions whose second argument is a predicate -> how many arguments they take."""


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.kind, self.token, self.start = "", "", 0
        self.depth = 0
        self.predicates = 0

    # -- tokens

    def advance(self) -> None:
        while True:
            match = _LEXEME.match(self.text, self.at)
            if match is None:
                self.stop()
                return
            self.at = match.end()
            if match.lastgroup != "space":
                break
        self.kind, self.token, self.start = match.lastgroup or "", match[0], match.start()
        if self.kind == "bytes":
            raise ExpressionError("bytes are not supported", self.start)
        if self.kind == "word" and self.token in _WORD_OPERATORS:
            self.kind = "op"
        elif self.kind == "number" and self.at < len(self.text) and re.match(r"[\w$]", self.text[self.at]):
            raise ExpressionError(f"{self.token + self.text[self.at]!r} is not a number", self.start)

    def stop(self) -> None:
        if self.at < len(self.text):
            char = self.text[self.at]
            what = "this string has no end" if char in "\"'`" else f"{char!r} has no meaning here"
            raise ExpressionError(what, self.at)
        self.kind, self.token, self.start = "", "", self.at

    def found(self) -> str:
        return repr(self.token) if self.kind else "the end"

    def take(self, *ops: str) -> bool:
        if self.kind == "op" and self.token in ops:
            self.advance()
            return True
        return False

    def sees(self, *ops: str) -> bool:
        return self.kind == "op" and self.token in ops

    def need(self, op: str) -> None:
        if not self.take(op):
            raise ExpressionError(f"expected {op!r}, found {self.found()}", self.start)

    def name(self, what: str) -> str:
        if self.kind != "word":
            raise ExpressionError(f"expected {what}, found {self.found()}", self.start)
        name = self.token
        self.advance()
        return name

    # -- expressions

    def whole(self) -> Tree:
        self.advance()
        if not self.kind:
            raise ExpressionError("the expression is empty", 0)
        tree = self.sequence()
        if self.kind:
            raise ExpressionError(f"expected the end, found {self.found()}", self.start)
        return tree

    def sequence(self) -> Tree:
        """Expressions with `;` between them: the last is the value; the others have no effect."""
        tree = self.expression(0)
        while self.take(";"):
            if self.kind:
                tree = self.expression(0)
        return tree

    def expression(self, lowest: int) -> Tree:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise ExpressionError(f"nested deeper than {MAX_NESTING}", self.start)
        if lowest == 0 and self.sees("let"):
            tree = self.let()
        elif lowest == 0 and self.sees("if"):
            tree = self.condition()
        else:
            tree = self.operators(lowest)
        self.depth -= 1
        return tree

    def operators(self, lowest: int) -> Tree:
        left = self.primary()
        before = ""
        while self.kind == "op":
            negated = self.sees("not")
            op, at = self.token, self.start
            if negated:
                following = _NEXT_WORD.match(self.text, self.at)
                op = following[1] if following else ""
                if op not in _NEGATABLE:
                    raise ExpressionError("expected an operator such as 'in' after 'not'", at)
            level = _BINARY.get(op, -1)
            if level < lowest:
                break
            if negated:
                self.advance()
            self.advance()
            if op == "|":
                left = self.call(self.name("a function after '|'"), at, [left])
            elif before == "??" and op != "??":
                raise ExpressionError(f"{op!r} after '??' needs brackets", at)
            elif op in ("<", "<=", ">", ">="):
                left = self.comparison(left, op, level, at)
            else:
                right = self.expression(level if op in ("**", "^") else level + 1)
                left = BinaryNode(_SAME.get(op, op), left, right, at)
            if negated:
                left = UnaryNode("!", left, at)
            before = op
        return self.choice(left) if lowest == 0 else left

    def comparison(self, left: Tree, op: str, level: int, at: int) -> Tree:
        right = self.expression(level + 1)
        result: Tree = BinaryNode(op, left, right, at)
        while self.sees("<", "<=", ">", ">="):
            op, at = self.token, self.start
            self.advance()
            left, right = right, self.expression(level + 1)
            result = BinaryNode("&&", result, BinaryNode(op, left, right, at), at)
        return result

    def choice(self, test: Tree) -> Tree:
        while self.sees("?"):
            at = self.start
            self.advance()
            if self.take(":"):
                test = ConditionalNode(test, test, self.expression(0), at)
                continue
            yes = self.expression(0)
            self.need(":")
            test = ConditionalNode(test, yes, self.expression(0), at)
        return test

    def let(self) -> Tree:
        at = self.start
        self.advance()
        name = self.name("a name after 'let'")
        self.need("=")
        value = self.expression(0)
        self.need(";")
        return LetNode(name, value, self.sequence(), at)

    def condition(self) -> Tree:
        at = self.start
        self.advance()
        test = self.expression(0)
        self.need("{")
        yes = self.sequence()
        self.need("}")
        self.need("else")
        if self.sees("if"):
            return ConditionalNode(test, yes, self.expression(0), at)
        self.need("{")
        no = self.sequence()
        self.need("}")
        return ConditionalNode(test, yes, no, at)

    def primary(self) -> Tree:
        token, at = self.token, self.start
        if self.kind == "op":
            if token in _UNARY:
                self.advance()
                return self.postfix(UnaryNode(_SAME.get(token, token), self.expression(_UNARY[token]), at))
            if self.take("("):
                tree = self.sequence()
                self.need(")")
                return self.postfix(tree)
            if token in ("#", ".") and self.predicates:
                return self.postfix(self.pointer(at))
            if self.take("::"):
                return self.postfix(self.call(self.name("a function after '::'"), at, []))
            if self.take("["):
                return self.postfix(ArrayNode(tuple(self.until("]")), at))
            if self.take("{"):
                return self.postfix(self.mapping(at))
        if self.kind in ("string", "raw"):
            value = self.string()
            self.advance()
            return self.postfix(ConstantNode(value, at))
        if self.kind == "number":
            number = _number(token, at)
            self.advance()
            return ConstantNode(number, at)
        if self.kind == "word":
            return self.word(token, at)
        raise ExpressionError(f"expected a value, found {self.found()}", at)

    def word(self, token: str, at: int) -> Tree:
        self.advance()
        if token in ("true", "false"):
            return ConstantNode(token == "true", at)
        if token == "nil":
            return ConstantNode(None, at)
        return self.postfix(self.call(token, at, []) if self.sees("(") else IdentifierNode(token, at))

    def pointer(self, at: int) -> Tree:
        if self.sees("."):
            return PointerNode("", at)  # `.field` is `#.field`
        beside = self.at
        self.advance()
        if self.kind == "word" and self.start == beside:
            name = self.token
            self.advance()
            return PointerNode(name, at)
        return PointerNode("", at)

    def string(self) -> str:
        if self.kind == "raw":
            return self.token[1:-1].replace("``", "`")
        start = self.start

        def one(match: re.Match[str]) -> str:
            code = match[1]
            if len(code) == 1:
                if code not in _ESCAPED:
                    raise ExpressionError(f"\\{code} is not an escape", start)
                return _ESCAPED[code]
            number = int(code, 8) if code[0].isdigit() else int(code[1:].strip("{}"), 16)
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                raise ExpressionError(f"\\{code} is not a character", start)
            return chr(number)

        return _ESCAPE.sub(one, self.token[1:-1].replace("\r\n", "\n"))

    def call(self, name: str, at: int, args: list[Tree]) -> Tree:
        self.need("(")
        if name not in PREDICATES:
            return CallNode(name, (*args, *self.until(")")), at)
        low, high = PREDICATES[name]
        given = list(args)
        while not self.take(")"):
            if len(given) > len(args):
                self.need(",")
                if self.take(")"):
                    break
            given.append(self.predicate() if len(given) == 1 else self.expression(0))
        if not low <= len(given) <= high:
            raise ExpressionError(
                f"{name}() takes {low if low == high else f'{low} to {high}'} arguments, {len(given)} given", at
            )
        return CallNode(name, tuple(given), at)

    def predicate(self) -> Tree:
        self.predicates += 1
        if self.take("{"):
            tree = self.sequence()
            self.need("}")
        else:
            tree = self.expression(0)
        self.predicates -= 1
        return tree

    def until(self, end: str) -> list[Tree]:
        items: list[Tree] = []
        while not self.take(end):
            if items:
                self.need(",")
                if self.take(end):
                    break
            items.append(self.expression(0))
        return items

    def mapping(self, at: int) -> Tree:
        pairs: list[tuple[Tree, Tree]] = []
        while not self.take("}"):
            if pairs:
                self.need(",")
                if self.take("}"):
                    break
            key: Tree
            if self.kind in ("string", "raw"):
                key = ConstantNode(self.string(), self.start)
                self.advance()
            elif self.kind in ("word", "number"):
                key = ConstantNode(self.token, self.start)
                self.advance()
            elif self.sees("("):
                key = self.expression(0)
            else:
                raise ExpressionError(f"expected a key, found {self.found()}", self.start)
            self.need(":")
            pairs.append((key, self.expression(0)))
        return MapNode(tuple(pairs), at)

    def postfix(self, tree: Tree) -> Tree:
        while self.sees(".", "?.", "["):
            optional, at = self.token == "?.", self.start
            dotted = self.token != "["
            self.advance()
            if dotted and not (optional and self.sees("[")):
                tree = self.member(tree, optional)
                continue
            if dotted:
                self.advance()
            tree = self.bracket(tree, optional, at)
        return tree

    def member(self, of: Tree, optional: bool) -> Tree:
        at = self.start
        if self.kind != "word" and not (self.kind == "op" and self.token in _WORD_OPERATORS):
            raise ExpressionError(f"expected a name after '.', found {self.found()}", at)
        name = self.token
        self.advance()
        if self.take("("):
            return MethodNode(of, name, tuple(self.until(")")), at)
        return MemberNode(of, ConstantNode(name, at), optional, at)

    def bracket(self, of: Tree, optional: bool, at: int) -> Tree:
        low = None if self.sees(":") else self.expression(0)
        if self.take(":"):
            high = None if self.sees("]") else self.expression(0)
            self.need("]")
            return SliceNode(of, low, high, at)
        self.need("]")
        assert low is not None
        return MemberNode(of, low, optional, at)


def _number(token: str, at: int) -> int | float:
    digits = token.replace("_", "").lower()
    try:
        if digits[:2] in ("0x", "0o", "0b"):
            value: int | float = int(digits, 0)
        elif set(digits) & set(".e"):
            value = float(digits)
        else:
            value = int(digits[:30])
    except ValueError:
        raise ExpressionError(f"{token[:40]!r} is not a number", at) from None
    if value in (float("inf"),) or (isinstance(value, int) and value >= 2**63):
        raise ExpressionError(f"{token[:40]} is too large", at)
    return value
