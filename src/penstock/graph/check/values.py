"""Rules for a value and for the expressions in it: what they read, and of which type they are. Called by every module of rules."""

from __future__ import annotations

from typing import Any

from penstock.expressions import types
from penstock.expressions.infer import TypeMismatch, infer
from penstock.expressions.parse import Expr, Node, path_of, references, show, simple_path
from penstock.expressions.satisfy import never
from penstock.expressions.secret import CALLBACK
from penstock.expressions.secret import ROOT as SECRETS
from penstock.expressions.template import Template
from penstock.expressions.types import ANY, BOOL, STR, Type, list_of
from penstock.graph.check.context import Context, ReadScope
from penstock.graph.check.paths import check_path, computes_with_secret, report_computed
from penstock.graph.check.scalars import brief
from penstock.graph.model import Value, expressions


def check_value(context: Context, value: Value, wanted: Type, scope: ReadScope, field: str, code: str = "P220") -> Type:
    """Checks every expression in `value`, and that the whole fits `wanted`. Returns the type found."""
    kind = type(value)
    if kind is Expr:
        path = simple_path(value.text)
        if path is None:
            if not _check_references(context, value, scope, field):
                return ANY
        else:
            if len(path) == 4 and "steps" in scope.roots:
                # By far the most frequent case: one look-up decides it.
                known = context.outputs.get(path[1], {}).get(path[3])
                if known is not None and types.fits(known, wanted):
                    return known
            if not check_path(context, path, scope, field):
                return ANY
            found, _ = context.type_of_path(path, scope)
            if types.fits(found, wanted):
                return found
    elif (
        (kind is str and wanted.name == "any") or not _check_parts(context, value, scope, field) or wanted.name == "any"
    ):
        return ANY
    return _check_type(context, value, wanted, scope, field, code)


def check_condition(context: Context, when: Expr, scope: ReadScope) -> None:
    """A step's `when`: a truth value, and one that can be true."""
    before = len(context.problems)
    check_value(context, when, BOOL, scope, "when")
    if len(context.problems) > before:
        return

    def choices(node: Node) -> tuple[Any, ...]:
        path = path_of(node)
        known = path is not None and len(path) == 2 and path[0] == "params"
        return context.params[path[1]].choices if known and path is not None else ()

    def type_of(node: Node) -> Type:
        return type_or_none(context, Expr(show(node)), scope) or ANY

    if never(when.node, type_of, choices):
        context.report(
            "P221",
            f"{when.text} can never hold",
            "correct the condition, or remove the step",
            scope.at("when"),
            scope.source,
        )


def type_or_none(context: Context, value: Value, scope: ReadScope) -> Type | None:
    """The type of a value, or None if its parts do not fit together."""
    try:
        return _type_of(context, value, scope)
    except TypeMismatch:
        return None


def _check_parts(context: Context, value: Value, scope: ReadScope, field: str) -> bool:
    """Checks each expression inside a template, list or map."""
    before = len(context.problems)
    for expr in expressions(value):
        if _check_references(context, expr, scope, field):
            try:
                infer(expr.node, lambda path: context.type_of_path(path, scope))
            except TypeMismatch as error:
                context.report("P220", str(error), "make the types fit", scope.at(field), scope.source)
    return len(context.problems) == before


def _check_references(context: Context, expr: Expr, scope: ReadScope, field: str) -> bool:
    good = True
    for path in references(expr.text):
        good = check_path(context, path, scope, field) and good
        if path[0] in (SECRETS, CALLBACK) and good and computes_with_secret(expr.node):
            good = report_computed(context, path, scope, field)
    return good


def _check_type(context: Context, value: Value, wanted: Type, scope: ReadScope, field: str, code: str) -> Type:
    try:
        found = _type_of(context, value, scope)
    except TypeMismatch as error:
        context.report("P220", str(error), "make the types fit", scope.at(field), scope.source)
        return ANY
    computed = isinstance(value, (Expr, Template))
    if not types.fits(found, wanted) and (computed or not types.accepts(wanted, value)):
        given = value.text if isinstance(value, Expr) else brief(value)
        context.report(
            code,
            f"{given} is {found}, and {wanted} is needed here",
            f"give a value of type {wanted}",
            scope.at(field),
            scope.source,
        )
    return found


def _type_of(context: Context, value: Value, scope: ReadScope) -> Type:
    """Raises TypeMismatch."""
    if isinstance(value, Expr):
        return infer(value.node, lambda path: context.type_of_path(path, scope))
    if isinstance(value, Template):
        return STR
    if isinstance(value, tuple) and any(True for _ in expressions(value)):
        return list_of(types.join(*(_type_of(context, item, scope) for item in value)))
    if isinstance(value, dict) and any(True for _ in expressions(value)):
        return Type("dict", (types.join(*(_type_of(context, item, scope) for item in value.values())),))
    return types.of_value(value)
