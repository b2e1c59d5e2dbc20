"""Text with expressions in it: `a ${{ x }} b`. Called by graph.codec, author and everything that writes a value as text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.expressions.parse import Const, Expr, ExpressionError, quote, simple_path

_OPEN = re.compile(r"\$?\$\{\{")
_ONLY = re.compile(r"\$\{\{ ([\w.]+) \}\}\Z", re.A)


@dataclass(frozen=True, slots=True)
class Template:
    """Text with expressions in it: at least one Expr and at least one other part."""

    parts: tuple[str | Expr, ...]


def parse_template(text: str) -> str | Expr | Template:
    """`a ${{ x }} b` -> Template; `${{ x }}` alone -> Expr, which keeps its type; no braces -> the text itself.

    `$${{` stands for a literal `${{`. Raises ExpressionError with its position in `text`."""
    if "${{" not in text:
        return text
    only = _ONLY.match(text)
    if only is not None and simple_path(only[1]) is not None:
        return Expr.of(only[1])
    parts: list[str | Expr] = []
    plain = ""
    at = 0
    for match in _OPEN.finditer(text):
        if match.start() < at:
            continue
        plain += text[at : match.start()]
        if len(match[0]) == 4:
            plain += "${{"
            at = match.end()
            continue
        end = _closing(text, match.end())
        inner = text[match.end() : end]
        try:
            found = Expr.of(inner.strip())
        except ExpressionError as error:
            begin = match.end() + len(inner) - len(inner.lstrip())
            raise ExpressionError(str(error), begin + error.position) from None
        at = end + 2
        if isinstance(constant := _constant(found), str):
            plain += constant
            continue
        if plain:
            parts.append(plain)
        plain = ""
        parts.append(found)
    plain += text[at:]
    if plain or not parts:
        parts.append(plain)
    return parts[0] if len(parts) == 1 else Template(tuple(parts))


def _constant(expr: Expr) -> object:
    """`${{ "text" }}` is text: the one way to put a dollar sign right before an expression."""
    return expr.node.value if isinstance(expr.node, Const) else None


def _closing(text: str, start: int) -> int:
    """Where `}}` ends the expression: not inside a string, not where a map literal closes."""
    depth = 0
    at = start
    while at < len(text):
        char = text[at]
        if char in "\"'":
            close = at + 1
            while close < len(text) and text[close] != char:
                close += 2 if text[close] == "\\" else 1
            at = close
        elif char == "{":
            depth += 1
        elif char == "}":
            if depth == 0 and text.startswith("}}", at):
                return at
            depth -= 1
        at += 1
    raise ExpressionError("'${{' has no '}}'; write '$${{' for the characters themselves", start - 3)


def show_template(value: str | Expr | Template) -> str:
    """The inverse of parse_template."""
    if isinstance(value, str):
        return value.replace("${{", "$${{")
    if isinstance(value, Expr):
        return f"${{{{ {value.text} }}}}"
    out = ""
    for part in value.parts:
        if isinstance(part, Expr) and out.endswith("$"):
            bare = out.rstrip("$")
            out = f"{bare}${{{{ {quote(out[len(bare) :])} }}}}"
        out += show_template(part)
    return out
