"""Argo's http and resource templates. Called by leaf."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from penstock.errors import nearest
from penstock.expressions.parse import Call, Const, Expr, ExpressionError, Node, reference
from penstock.expressions.selector import compile_selector
from penstock.formats.argo.read.template import text_of
from penstock.formats.argo.read.values import TextScope, as_expr, constant, constant_text, expression, value_of
from penstock.formats.documents import Library, items, part
from penstock.formats.pods.secrets import from_entry
from penstock.formats.values import frozen
from penstock.graph.model import RESOURCE_ACTIONS, Http, Resource, Value

ACCEPTED: Final = Expr("true")
"""Argo waits for nothing if there is no condition; a resource step of ours waits for the end of kinds that it knows."""


def _text(given: Mapping[str, Any], name: str, scope: TextScope, path: str) -> Value:
    text = text_of(given.get(name))
    return None if text is None else value_of(text, scope, f"{path}.{name}")


# -- objects of the cluster -------------------------------------------------------------------------------------------


def resource_of(given: Mapping[str, Any], scope: TextScope, path: str, extra: dict[str, Any]) -> Resource:
    """Adds to `extra`: fields that the model has no place for, and why it cannot be run here."""

    def cannot(field: str, why: str) -> None:
        extra["unrunnable"] = why
        scope.notes.lost(scope.document, f"{path}.{field}", why, "Write the whole object.")

    action = text_of(given.get("action")) or ""
    if action not in RESOURCE_ACTIONS:
        fix = f"use one of {', '.join(RESOURCE_ACTIONS)}.{nearest(action, RESOURCE_ACTIONS)}"
        scope.notes.wrong(scope.document, f"{path}.action", "P835", f"{action[:40]!r} is not an action", fix)
        action = "create"
    manifest = _text(given, "manifest", scope, path)
    flags = given.get("flags")
    if not manifest:
        manifest = f"# {' '.join(map(str, flags)) if isinstance(flags, list) else 'no manifest'}"[:200]
        cannot("manifest", "its object is not written in the template")
    elif action == "patch" and text_of(given.get("mergeStrategy")) == "json":
        cannot("mergeStrategy", "a patch is a whole object here, not a list of changes")
    for name in ("flags", "setOwnerReference"):
        if given.get(name):
            scope.notes.lost(scope.document, f"{path}.{name}", "it is not passed to the cluster from here")
    rest = {str(name): frozen(value) for name, value in given.items() if name not in ("action", "manifest")}
    if rest:
        extra["argo"] = {"resource": rest}
    return Resource(
        manifest=manifest,
        action=action,
        success_condition=_selector(given, "successCondition", scope, path) or ACCEPTED,
        failure_condition=_selector(given, "failureCondition", scope, path),
    )


def _selector(given: Mapping[str, Any], name: str, scope: TextScope, path: str) -> Expr | None:
    text = text_of(given.get(name))
    if not text or not text.strip():
        return None
    here = f"{path}.{name}"
    known = constant_text(text, scope, here)
    if known is None:
        scope.notes.lost(scope.document, here, "what it compares with is only known when it runs; it is left out")
        return None
    joined_by = "&&" if name == "successCondition" else "||"
    try:
        return as_expr(compile_selector(known, joined_by), scope, here)
    except ExpressionError as error:
        message = f"{known.strip()[:80]!r} cannot be read: {error}"
        scope.notes.wrong(scope.document, here, "P834", message, "write status.phase == Succeeded")
        return None


# -- requests ---------------------------------------------------------------------------------------------------------


def http_of(given: Mapping[str, Any], scope: TextScope, path: str, library: Library) -> tuple[Http, float]:
    """The request, and its timeout in seconds."""
    url = _text(given, "url", scope, path)
    if not url:
        scope.notes.wrong(scope.document, f"{path}.url", "P835", "the request has no url", "give it a url")
    headers: dict[str, Value] = {}
    for number, one in items(given, "headers"):
        here = f"{path}.headers[{number}]"
        value = _text(one, "value", scope, here)
        if value is None:
            value = from_entry(one)
        if value is not None:
            headers[text_of(one.get("name")) or ""] = value
    if given.get("insecureSkipVerify"):
        scope.notes.lost(scope.document, f"{path}.insecureSkipVerify", "certificates are always looked at")
    condition = text_of(given.get("successCondition"))
    success = None
    if condition and condition.strip():
        here = f"{path}.successCondition"
        node = expression(condition, _ResponseScope(scope, given), here)
        success = as_expr(node, scope, here) if node is not None else None
    seconds = given.get("timeoutSeconds")
    limit = float(seconds) if isinstance(seconds, int) and 0 < seconds < 10**9 else 30.0
    method = text_of(given.get("method")) or "GET"
    return Http(
        url=url, method=method, headers=headers, body=_body(given, scope, path), success_condition=success
    ), limit


def _body(given: Mapping[str, Any], scope: TextScope, path: str) -> Value:
    text = _text(given, "body", scope, path)
    coded = text_of(part(given, "bodyFrom").get("bytes"))
    if text is not None or coded is None:
        return text
    try:
        return base64.b64decode(coded, validate=True).decode()
    except (binascii.Error, ValueError):
        scope.notes.lost(scope.document, f"{path}.bodyFrom", "a body that is not text is not sent from here")
        return None


class _ResponseScope(TextScope):
    """The scope of a request's condition: the response, and the known parts of the request."""

    def __init__(self, around: TextScope, given: Mapping[str, Any]) -> None:
        self.around = around
        self.given = given
        self.notes = around.notes
        self.document = around.document

    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        match names:
            case ("response", "statusCode"):
                return reference("response", "status")
            case ("response", "body"):
                return Call("text", (reference("response", "body"),))
            case ("response", "headers", *rest):
                return reference("response", "headers", *(name.lower() for name in rest))
            case ("request", "url" | "method" | "body" as name):
                known = constant_text(text_of(self.given.get(name)) or "", self.around, "")
                return None if known is None else Const(known)
        found = self.around.look(names, typed=typed)
        value = constant(found, self.around) if found is not None else None
        return Const(value) if isinstance(value, str | bool | int | float) else None
