"""Rules for attributes, indexes and slices. Added to the table of expressions by compile."""

from __future__ import annotations

import ast
import operator
from typing import Any

from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.enums import part
from penstock.author.compiler.expressions import Expressions, Rules
from penstock.author.compiler.refusals import described, with_article
from penstock.author.compiler.symbols import Dynamic, Pairs, Seq, Static, Symbol, element, python, type_of
from penstock.expressions.parse import Const, Index, Member, Node, is_identifier
from penstock.expressions.types import ANY, STR, list_of

_OPAQUE = frozenset(("int", "float", "bool", "str", "null", "object", "file", "dir"))
"""Types without parts that an expression can read."""


class Subscripts:
    def __init__(self, context: CompileContext, expressions: Expressions) -> None:
        self._refusals = context.refusals
        self._expressions = expressions

    def rules(self) -> Rules:
        return {ast.Attribute: self.attribute, ast.Subscript: self.subscript}

    def attribute(self, node: ast.Attribute) -> Symbol:
        of = self._expressions.lower(node.value)
        if isinstance(of, Static):
            try:
                return Static(getattr(of.value, node.attr))
            except AttributeError:
                message = f"{described(of.value)} has no attribute {node.attr!r}"
                raise self._refusals.error("P312", node, message, "check the spelling") from None
        if not isinstance(of, Dynamic):
            message = f"the attribute {node.attr!r} of this has no meaning in a workflow"
            raise self._refusals.error("P311", node, message, "use it inside a @task")
        of_member = part(of, node.attr)
        if of_member is not None:
            return of_member
        self._check_has_parts(node, of)
        return Dynamic(_member(of.node, node.attr), of.type.item if of.type.name == "dict" else ANY)

    def _check_has_parts(self, node: ast.expr, of: Dynamic) -> None:
        if of.type.name in _OPAQUE:
            message = f"this looks into {with_article(of.type)} that is only known at run time"
            is_object = of.type.name == "object"
            fix = "return a dict or a dataclass instead, or use it inside a @task"
            raise self._refusals.error("P311", node, message, fix if is_object else "do it inside a @task")

    def subscript(self, node: ast.Subscript) -> Symbol:
        of = self._expressions.lower(node.value)
        if isinstance(node.slice, ast.Slice):
            return self._slice(node, of, node.slice)
        index = self._expressions.lower(node.slice)
        if isinstance(index, Static):
            match of:
                case Static(value):
                    return self._expressions.fold(node, operator.getitem, value, index.value)
                case Seq():
                    return self._item(node, of, index.value)
                case Pairs():
                    return self._entry(node, of, index.value)
        container = self._expressions.node(node.value, of)
        type_ = type_of(of)
        if type_.name == "str":
            return python("item", STR, container, self._expressions.node(node.slice, index))
        if isinstance(of, Dynamic):
            self._check_has_parts(node, of)
        match index:
            case Static(int(number)) if not isinstance(number, bool):
                return element(container, type_, number)
            case Static(str(key)):
                return Dynamic(_member(container, key), type_.item)
            case _:
                return Dynamic(Index(container, self._expressions.node(node.slice, index)), type_.item)

    def _item(self, node: ast.expr, of: Seq, index: Any) -> Symbol:
        if not isinstance(index, int) or not -len(of.items) <= index < len(of.items):
            message = f"there is no element {index!r} in this list of {len(of.items)}"
            raise self._refusals.error("P312", node, message, "check the index")
        return of.items[index]

    def _entry(self, node: ast.expr, of: Pairs, key: Any) -> Symbol:
        found = dict(of.items)
        if not isinstance(key, str) or key not in found:
            raise self._refusals.error("P312", node, f"this dict has no {key!r}", "check the spelling")
        return found[key]

    def _slice(self, node: ast.Subscript, of: Symbol, part: ast.Slice) -> Symbol:
        bounds = [
            Static(None) if bound is None else self._expressions.lower(bound)
            for bound in (part.lower, part.upper, part.step)
        ]
        if all(isinstance(bound, Static) for bound in bounds):
            cut = slice(*(bound.value for bound in bounds if isinstance(bound, Static)))
            match of:
                case Seq(items, is_tuple):
                    return Seq(self._expressions.fold(node, operator.getitem, items, cut).value, is_tuple)
                case Static(value):
                    return self._expressions.fold(node, operator.getitem, value, cut)
        if isinstance(of, Dynamic) and of.type.name != "str":
            self._check_has_parts(node, of)
        type_ = type_of(of)
        if type_.name == "dict":
            raise self._refusals.error("P312", node, "a dict cannot be sliced", "loop over its items()")
        given = [
            self._expressions.node(bound_node or node, bound)
            for bound_node, bound in zip((part.lower, part.upper, part.step), bounds, strict=True)
        ]
        if part.step is None:
            given.pop()
        cut_type = type_ if type_.name in ("str", "any", "optional") else list_of(type_.item)
        return python("slice", cut_type, self._expressions.node(node.value, of), *given)


def _member(of: Node, name: str) -> Node:
    return Member(of, name) if is_identifier(name) else Index(of, Const(name))
