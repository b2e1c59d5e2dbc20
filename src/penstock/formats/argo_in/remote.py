"""Argo's http and resource templates: what happens elsewhere. Called by leaf."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from penstock.errors import nearest
from penstock.formats.argo_in.objects import compile_selector
from penstock.formats.argo_in.sheet import text_of
from penstock.formats.argo_in.values import Place, constant, constant_text, expression, made, value_of
from penstock.formats.documents import Library, items, part
from penstock.formats.kube import frozen
from penstock.graph.expr import Call, Const, Expr, ExpressionError, Node, reference
from penstock.graph.model import RESOURCE_ACTIONS, Http, Resource, Value


def _text(given: Mapping[str, Any], name: str, place: Place, path: str) -> Value:
    text = text_of(given.get(name))
    return None if text is None else value_of(text, place, f"{path}.{name}")


# -- objects of the cluster -------------------------------------------------------------------------------------------


def resource_of(given: Mapping[str, Any], place: Place, path: str, extra: dict[str, Any]) -> Resource:
    """`extra` is told what of it has no word in the model, and why it cannot be run here if that is so."""

    def cannot(field: str, why: str) -> None:
        extra["unrunnable"] = why
        place.notes.lost(place.document, f"{path}.{field}", why, "Write the whole object.")

    action = text_of(given.get("action")) or ""
    if action not in RESOURCE_ACTIONS:
        fix = f"use one of {', '.join(RESOURCE_ACTIONS)}.{nearest(action, RESOURCE_ACTIONS)}"
        place.notes.wrong(place.document, f"{path}.action", "P835", f"{action[:40]!r} is no action", fix)
        action = "create"
    manifest = _text(given, "manifest", place, path)
    flags = given.get("flags")
    if not manifest:
        manifest = f"# {' '.join(map(str, flags)) if isinstance(flags, list) else 'no manifest'}"[:200]
        cannot("manifest", "its object is not written in the template")
    elif action == "patch" and text_of(given.get("mergeStrategy")) == "json":
        cannot("mergeStrategy", "a patch is a whole object here, not a list of changes")
    for name in ("flags", "setOwnerReference"):
        if given.get(name):
            place.notes.lost(place.document, f"{path}.{name}", "it is not passed to the cluster from here")
    rest = {str(name): frozen(value) for name, value in given.items() if name not in ("action", "manifest")}
    if rest:
        extra["argo"] = {"resource": rest}
    return Resource(
        manifest=manifest,
        action=action,
        success_condition=_selector(given, "successCondition", place, path),
        failure_condition=_selector(given, "failureCondition", place, path),
    )


def _selector(given: Mapping[str, Any], name: str, place: Place, path: str) -> Expr | None:
    text = text_of(given.get(name))
    if not text or not text.strip():
        return None
    here = f"{path}.{name}"
    known = constant_text(text, place, here)
    if known is None:
        place.notes.lost(place.document, here, "what it compares with is only known when it runs; it is left out")
        return None
    try:
        return made(compile_selector(known), place, here)
    except ExpressionError as error:
        said = f"{known.strip()[:80]!r} cannot be read: {error}"
        place.notes.wrong(place.document, here, "P834", said, "write status.phase == Succeeded")
        return None


# -- requests ---------------------------------------------------------------------------------------------------------


def http_of(given: Mapping[str, Any], place: Place, path: str, library: Library) -> tuple[Http, float]:
    """The request, and how many seconds it may take."""
    url = _text(given, "url", place, path)
    if not url:
        place.notes.wrong(place.document, f"{path}.url", "P835", "the request goes nowhere", "give it a url")
    headers: dict[str, Value] = {}
    for number, one in items(given, "headers"):
        here = f"{path}.headers[{number}]"
        value = _text(one, "value", place, here)
        if value is None:
            value = _secret(part(one, "valueFrom", "secretKeyRef"), place, here, library)
        if value is not None:
            headers[text_of(one.get("name")) or ""] = value
    if given.get("insecureSkipVerify"):
        place.notes.lost(place.document, f"{path}.insecureSkipVerify", "certificates are always looked at")
    condition = text_of(given.get("successCondition"))
    success = None
    if condition and condition.strip():
        here = f"{path}.successCondition"
        node = expression(condition, _AnswerPlace(place, given), here)
        success = made(node, place, here) if node is not None else None
    seconds = given.get("timeoutSeconds")
    limit = float(seconds) if isinstance(seconds, int) and 0 < seconds < 10**9 else 30.0
    method = text_of(given.get("method")) or "GET"
    return Http(
        url=url, method=method, headers=headers, body=_body(given, place, path), success_condition=success
    ), limit


def _body(given: Mapping[str, Any], place: Place, path: str) -> Value:
    text = _text(given, "body", place, path)
    coded = text_of(part(given, "bodyFrom").get("bytes"))
    if text is not None or coded is None:
        return text
    try:
        return base64.b64decode(coded, validate=True).decode()
    except (binascii.Error, ValueError):
        place.notes.lost(place.document, f"{path}.bodyFrom", "a body that is no text is not sent from here")
        return None


def _secret(ref: Mapping[str, Any], place: Place, path: str, library: Library) -> str | None:
    name, key = text_of(ref.get("name")) or "", text_of(ref.get("key")) or ""
    document = library.find("Secret", name)
    if document is not None:
        plain = text_of(part(document.data, "stringData").get(key))
        coded = text_of(part(document.data, "data").get(key))
        if plain is None and coded is not None:
            try:
                plain = base64.b64decode(coded, validate=True).decode()
            except (binascii.Error, ValueError):
                plain = None
        if plain is not None:
            return plain
    said = f"the Secret {name[:60]!r} has no {key[:60]!r} here; the header is not sent"
    place.notes.changed(place.document, path, said, "Put the Secret beside the workflow.")
    return None


class _AnswerPlace(Place):
    """The condition of a request: what was answered, and what was asked as far as that is known."""

    def __init__(self, around: Place, given: Mapping[str, Any]) -> None:
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
