"""Rules for assignments and for expressions that stand alone. Added to the table of statements by compile."""

from __future__ import annotations

import ast
from typing import Any

from penstock.author.compiler.axes import Axes
from penstock.author.compiler.bindings import Bindings
from penstock.author.compiler.conditions import Operand
from penstock.author.compiler.context import CompileContext
from penstock.author.compiler.expressions import Expressions
from penstock.author.compiler.operators import Operators
from penstock.author.compiler.statements import StatementRules
from penstock.author.compiler.symbols import Pairs, Seq, Static, Symbol, Unbound, as_seq, python, type_of
from penstock.expressions.types import Type, join, list_of


class Assignments:
    def __init__(
        self, context: CompileContext, expressions: Expressions, operators: Operators, bindings: Bindings, axes: Axes
    ) -> None:
        self._refusals = context.refusals
        self._scopes = context.scopes
        self._expressions = expressions
        self._operators = operators
        self._bindings = bindings
        self._axes = axes

    def rules(self) -> StatementRules:
        return {
            ast.Assign: self.assign,
            ast.AnnAssign: self.annotated,
            ast.AugAssign: self.augmented,
            ast.Expr: self.expression,
        }

    def assign(self, statement: ast.Assign, live: set[str]) -> None:
        first = statement.targets[0]
        self._scopes.assigned_name = first.id if isinstance(first, ast.Name) else ""
        symbol = self._expressions.lower(statement.value)
        for target in statement.targets:
            if isinstance(target, ast.Subscript):
                self._put(statement, target, (statement.value, symbol))
            else:
                self._bindings.assign(target, symbol)

    def annotated(self, statement: ast.AnnAssign, live: set[str]) -> None:
        if statement.value is not None:
            self._bindings.assign(statement.target, self._expressions.lower(statement.value))

    def augmented(self, statement: ast.AugAssign, live: set[str]) -> None:
        """`x += value`"""
        target = statement.target
        if isinstance(target, ast.Subscript):
            current: ast.expr = ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
            left = (current, self._expressions.lower(current))
            right = (statement.value, self._expressions.lower(statement.value))
            self._put(statement, target, (current, self._operators.arithmetic(statement, statement.op, left, right)))
            return
        if not isinstance(target, ast.Name):
            message = "only names and items of lists and dicts can be assigned in a workflow"
            raise self._refusals.error("P311", target, message, "change objects inside a @task, and return them")
        if type_of(self._scopes.variables.get(target.id, Static(0))).name in ("list", "tuple"):
            self._bindings.refuse_alias(statement, target.id)
        current = ast.copy_location(ast.Name(target.id, ast.Load()), target)
        left = (current, self._expressions.lower(current))
        right = (statement.value, self._expressions.lower(statement.value))
        self._bindings.assign(target, self._operators.arithmetic(statement, statement.op, left, right))

    def expression(self, statement: ast.Expr, live: set[str]) -> None:
        match statement.value:
            case ast.Constant():
                return
            case ast.Call(func=ast.Attribute(attr="append", value=ast.Name(id=name)), args=[item], keywords=[]) if (
                self._bindings.is_changeable(name)
            ):
                self._append(statement, name, item)
            case value:
                self._expressions.lower(value)

    def _append(self, statement: ast.Expr, name: str, item: ast.expr) -> None:
        """`name.append(item)`: the name now stands for a longer list."""
        current = self._changed(statement, name)
        added = self._expressions.lower(item)
        known = as_seq(current)
        if known is not None:
            self._axes.elements(statement, current)
            self._scopes.bind(name, Seq((*known.items, added)))
            return
        node = ast.copy_location(ast.Name(name, ast.Load()), statement)
        one = ast.copy_location(ast.List([item], ast.Load()), item)
        longer = self._operators.arithmetic(statement, ast.Add(), (node, current), (one, Seq((added,))))
        self._scopes.bind(name, longer)

    def _put(self, statement: ast.stmt, target: ast.Subscript, value: Operand) -> None:
        """`name[key] = value`: the name now stands for another list or dict."""
        if not isinstance(target.value, ast.Name) or isinstance(target.slice, ast.Slice):
            message = "only an item of a list or dict that has a name can be assigned in a workflow"
            fix = "give the inner list or dict a name, change that, and put it back"
            raise self._refusals.error("P311", target, message, fix)
        name = target.value.id
        type_ = type_of(self._scopes.variables.get(name, Unbound(name)))
        if type_.name not in ("list", "tuple", "dict", "any", "optional"):
            raise self._refusals.error("P312", target, f"{type_} has no items to assign", "assign a list or dict first")
        current, key = self._changed(statement, name), self._expressions.lower(target.slice)
        if isinstance(key, Static):
            written = _with_item(current, key.value, value[1])
            if written is not None:
                self._scopes.bind(name, written)
                return
        if type_.name == "dict" and type_of(key).name not in ("str", "any", "optional"):
            message = f"the key of a dict must be text, and this is {type_of(key)}"
            raise self._refusals.error("P311", target.slice, message, "write str(…) around it")
        nodes = (
            self._expressions.node(target.value, current),
            self._expressions.node(target.slice, key),
            self._expressions.node(*value),
        )
        empty = isinstance(current, Static) and not current.value
        item = type_of(value[1]) if empty else join(type_.item, type_of(value[1]))
        made = {"dict": Type("dict", (item,)), "list": list_of(item), "tuple": list_of(item)}.get(type_.name, type_)
        self._scopes.bind(name, python("set", made, *nodes))

    def _changed(self, statement: ast.stmt, name: str) -> Symbol:
        """A list or dict that the statement changes. Only one with a name of its own: in Python others would change with it."""
        current = self._scopes.variables.get(name)
        if current is None or isinstance(current, Unbound):
            fix = f"make one in this function: {name} = [] or {name} = {{}}"
            raise self._refusals.error("P311", statement, f"{name!r} is not a list or dict of this function", fix)
        self._bindings.refuse_alias(statement, name)
        if not self._bindings.is_changeable(name):
            message = f"{name!r} is a part of another value, which would change with it"
            raise self._refusals.error("P311", statement, message, f"copy it first: {name} = {name} + []")
        return current


def _with_item(current: Symbol, key: Any, value: Symbol) -> Symbol | None:
    """The list or dict with another item, if it is written out; None if it is not, or has no such place."""
    match current:
        case Static(dict(known)) if isinstance(key, str):
            items: dict[str, Symbol] = {**{name: Static(one) for name, one in known.items()}, key: value}
        case Pairs(pairs) if isinstance(key, str):
            items = {**dict(pairs), key: value}
        case _:
            listed = as_seq(current)
            if listed is None or listed.is_tuple or not isinstance(key, int):
                return None
            if not -len(listed.items) <= key < len(listed.items):
                return None
            at = key % len(listed.items)
            return Seq((*listed.items[:at], value, *listed.items[at + 1 :]))
    if all(isinstance(one, Static) for one in items.values()):
        return Static({name: one.value for name, one in items.items() if isinstance(one, Static)})
    return Pairs(tuple(items.items()))
