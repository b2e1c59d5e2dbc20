"""The rules of what a step does: one for each kind of action. Called by check.steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.errors import nearest
from penstock.expressions import types
from penstock.expressions.parse import Expr
from penstock.expressions.template import Template
from penstock.expressions.types import BOOL
from penstock.graph.check.context import OBJECT, Context, ReadScope
from penstock.graph.check.scalars import check_seconds, check_word
from penstock.graph.check.values import check_value, type_or_none
from penstock.graph.model import (
    MISSING,
    RESOURCE_ACTIONS,
    Container,
    Function,
    Http,
    Nested,
    Resource,
    Script,
    Step,
    Suspend,
)


def check_action(context: Context, step: Step, scope: ReadScope) -> None:
    rule = _RULES.get(type(step.action))
    if rule is not None:
        rule(context, step, step.action, scope)


def _is_text(value: object) -> bool:
    return isinstance(value, str | Expr | Template)


def _container(context: Context, step: Step, action: Container, scope: ReadScope) -> None:
    if not action.image or not _is_text(action.image):
        context.report(
            "P233", "the container has no image", "name one: python:3.12", scope.at("container.image"), step.source
        )


def _script(context: Context, step: Step, action: Script, scope: ReadScope) -> None:
    if not _is_text(action.source):
        context.report(
            "P233", "the script is not text", "give its source as text", scope.at("script.source"), step.source
        )


def _function(context: Context, step: Step, action: Function, scope: ReadScope) -> None:
    if not action.module or not action.name:
        context.report(
            "P233", "the function has no name", "give its module and name", scope.at("function"), step.source
        )


def _resource(context: Context, step: Step, action: Resource, scope: ReadScope) -> None:
    check_word(context, action.action, RESOURCE_ACTIONS, scope.at("resource.action"), step.source)
    if not action.manifest or not (_is_text(action.manifest) or isinstance(action.manifest, dict)):
        context.report(
            "P233", "the manifest is empty", "give a Kubernetes object", scope.at("resource.manifest"), step.source
        )
    over_object = ReadScope(scope.where, scope.source, OBJECT, {})
    for name, condition in (
        ("success_condition", action.success_condition),
        ("failure_condition", action.failure_condition),
    ):
        if condition is not None:
            check_value(context, condition, BOOL, over_object, f"resource.{name}")


def _suspend(context: Context, step: Step, action: Suspend, scope: ReadScope) -> None:
    check_seconds(context, action.duration, scope.at("suspend.duration"), step.source)
    if action.payloads is not None and (action.until not in (None, "") or len(step.outputs) > 1):
        message = "it waits for payloads, and has a time or several outputs"
        fix = "keep one output, and `duration` for the limit of time"
        context.report("P537", message, fix, scope.at("suspend.payloads"), step.source)
    if action.duration is not None and action.until not in (None, ""):
        message = "it waits for a duration and until a time"
        context.report("P233", message, "keep one of the two", scope.at("suspend.until"), step.source)


def _http(context: Context, step: Step, action: Http, scope: ReadScope) -> None:
    if not action.url:
        context.report("P233", "the url is empty", "give a url", scope.at("http.url"), step.source)
    if action.success_condition is not None:
        over_response = ReadScope(scope.where, scope.source, frozenset({"response"}), {})
        check_value(context, action.success_condition, BOOL, over_response, "http.success_condition")


def _nested(context: Context, step: Step, action: Nested, scope: ReadScope) -> None:
    target = context.definitions.get(action.name)
    if target is None:
        context.report(
            "P214",
            f"there is no workflow named {action.name!r}",
            f"define it under `definitions`.{nearest(action.name, context.definitions)}",
            scope.at("workflow"),
            step.source,
        )
        return
    params = {param.name: param for param in target.params}
    inputs = {given.name: given for given in step.inputs}
    for name in (name for name in inputs if name not in params):
        context.report(
            "P215",
            f"{action.name!r} has no parameter {name!r}",
            f"remove it.{nearest(name, params)}",
            scope.at(f"inputs.{name}"),
            step.source,
        )
    for name, param in params.items():
        if name in inputs:
            found = type_or_none(context, inputs[name].value, scope)
            if found is not None and not types.fits(found, param.type):
                context.report(
                    "P220",
                    f"{name!r} is {found}, and {action.name!r} takes {param.type}",
                    f"pass a value of type {param.type}",
                    scope.at(f"inputs.{name}"),
                    step.source,
                )
        elif param.default is MISSING:
            context.report(
                "P215",
                f"{action.name!r} needs the parameter {name!r} ({param.type})",
                f"add an input {name!r}",
                scope.at("inputs"),
                step.source,
            )


_RULES: Final[Mapping[type[Any], Callable[[Context, Step, Any, ReadScope], None]]] = {
    Container: _container,
    Script: _script,
    Function: _function,
    Resource: _resource,
    Suspend: _suspend,
    Http: _http,
    Nested: _nested,
}
"""The rules of a Pod are in check.pods: they come last of a step."""
