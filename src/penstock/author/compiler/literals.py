"""Rules for names, constants, f-strings, lists, tuples and dicts. Added to the table of expressions by compile."""

from __future__ import annotations

import ast

from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.expressions import Expressions, Rules
from penstock.author.compiler.symbols import (
    Dynamic,
    FString,
    NoValue,
    Pairs,
    Seq,
    Static,
    Symbol,
    Unbound,
    text_of,
    type_of,
)
from penstock.author.values import is_secret
from penstock.expressions.parse import Call, Const
from penstock.expressions.types import STR


class Literals:
    def __init__(self, context: CompileContext, expressions: Expressions) -> None:
        self._refusals = context.refusals
        self._scopes = context.scopes
        self._expressions = expressions

    def rules(self) -> Rules:
        return {
            ast.Constant: self.constant,
            ast.Name: self.name,
            ast.List: self.list,
            ast.Tuple: self.tuple,
            ast.Dict: self.dict,
            ast.JoinedStr: self.f_string,
        }

    def constant(self, node: ast.Constant) -> Symbol:
        if node.value is Ellipsis or isinstance(node.value, bytes | complex):
            message = f"{node.value!r} has no meaning in a workflow"
            raise self._refusals.error("P311", node, message, "use text, numbers, true/false or None")
        return Static(node.value)

    def name(self, node: ast.Name) -> Symbol:
        found = self._scopes.look_up(node)
        if isinstance(found, Unbound):
            raise self._refusals.unusable(node, found, NoValue(found.name))
        if isinstance(found, Static) and is_secret(found.value):
            return Dynamic(found.value.node, STR)
        return found

    def list(self, node: ast.List) -> Symbol:
        self._refuse_stars(node)
        items = tuple(map(self._expressions.lower, node.elts))
        if all(isinstance(item, Static) for item in items):
            return Static([item.value for item in items if isinstance(item, Static)])
        return Seq(items)

    def tuple(self, node: ast.Tuple) -> Symbol:
        self._refuse_stars(node)
        items = tuple(map(self._expressions.lower, node.elts))
        if all(isinstance(item, Static) for item in items):
            return Static(tuple(item.value for item in items if isinstance(item, Static)))
        return Seq(items, is_tuple=True)

    def _refuse_stars(self, node: ast.List | ast.Tuple) -> None:
        star = next((one for one in node.elts if isinstance(one, ast.Starred)), None)
        if star is not None:
            raise self._refusals.error(
                "P311", star, "* in a list has no meaning in a workflow", f"write {_added(node)}"
            )

    def dict(self, node: ast.Dict) -> Symbol:
        pairs: list[tuple[str, Symbol]] = []
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            if key_node is None:
                raise self._refusals.error("P311", value_node, "** has no meaning in a workflow", "write the keys out")
            key = self._expressions.lower(key_node)
            if not isinstance(key, Static) or not isinstance(key.value, str):
                message = "the key of a dict must be text that is known now"
                fix = "write a constant; or begin with out = {}, and write out[k] = v"
                raise self._refusals.error("P311", key_node, message, fix)
            pairs.append((key.value, self._expressions.lower(value_node)))
        if all(isinstance(value, Static) for _, value in pairs):
            return Static({key: value.value for key, value in pairs if isinstance(value, Static)})
        return Pairs(tuple(dict(pairs).items()))

    def f_string(self, node: ast.JoinedStr) -> Symbol:
        parts: list[str | Dynamic] = []
        for item in node.values:
            part = str(item.value) if isinstance(item, ast.Constant) else self._part(item)
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            elif part != "":
                parts.append(part)
        match parts:
            case []:
                return Static("")
            case [str(text)]:
                return Static(text)
            case [Dynamic(value, type_) as only]:
                return only if type_ == STR else Dynamic(text_of(value), STR)
            case _:
                return FString(tuple(parts))

    def _part(self, item: ast.expr) -> str | Dynamic:
        assert isinstance(item, ast.FormattedValue)
        symbol = self._expressions.lower(item.value)
        spec = self._format_spec(item)
        if isinstance(symbol, Static):
            return self._constant(item, symbol, spec)
        if item.conversion not in (-1, ord("s")):
            raise self._refusals.error("P311", item, "!r of a value has no meaning in a workflow", "drop the !r")
        node = self._expressions.node(item.value, symbol)
        return Dynamic(Call("format", (node, Const(spec))), STR) if spec else Dynamic(node, type_of(symbol))

    def _format_spec(self, item: ast.FormattedValue) -> str:
        if item.format_spec is None:
            return ""
        given = self._expressions.lower(item.format_spec)
        if not isinstance(given, Static):
            message = "a format that is only known at run time has no meaning in a workflow"
            raise self._refusals.error("P311", item, message, "write the format out")
        return str(given.value)

    def _constant(self, item: ast.FormattedValue, symbol: Static, spec: str) -> str:
        value = repr(symbol.value) if item.conversion == ord("r") else symbol.value
        try:
            return format(str(value) if item.conversion == ord("s") else value, spec)
        except (ValueError, TypeError) as error:
            raise self._refusals.error("P311", item, f"this does not format: {error}", "fix the format") from None


def _added(node: ast.List | ast.Tuple) -> str:
    """`xs + [4]` for `[*xs, 4]`."""
    parts: list[str] = []
    plain: list[str] = []
    for one in [*node.elts, None]:
        if one is not None and not isinstance(one, ast.Starred):
            plain.append(ast.unparse(one))
            continue
        if plain:
            parts.append(f"[{', '.join(plain)}]")
        plain = []
        if one is not None:
            parts.append(ast.unparse(one.value))
    return " + ".join(parts) if len(parts) > 1 else f"list({parts[0]})"
