"""How an Argo template is run: retries, time limits, locks, memoization. Called by leaf for steps and by graph for calls of
composite templates.

The model needs numbers where Argo allows text with tags. A tag with a known value is replaced; otherwise the Report says what is done
instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.expressions.parse import (
    Binary,
    Call,
    Const,
    Expr,
    Index,
    MapOf,
    Name,
    Node,
    reference,
    references,
    show,
)
from penstock.expressions.template import Template
from penstock.formats.argo.read.template import text_of
from penstock.formats.argo.read.values import (
    TextScope,
    UnknownName,
    as_expr,
    constant,
    constant_text,
    expression,
    value_of,
)
from penstock.formats.documents import Library, items, part
from penstock.formats.values import joined
from penstock.graph.limits import LARGEST_COUNT
from penstock.graph.model import Backoff, Cache, Lock, Retry, Value

FOREVER: Final = LARGEST_COUNT
"""Retries of a retryStrategy without a limit."""
NO_CACHE: Final = Cache(enabled=False)
MOST_SECONDS: Final = 10**10 - 1
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})(h|ms|m|s|us|µs|ns|d)")
_POLICIES: Final[Mapping[str, tuple[str, ...]]] = {
    "Always": ("failed", "errored", "timeout"),
    "OnFailure": ("failed", "timeout"),
    "OnError": ("errored",),
    "OnTransientError": ("errored",),
}
_NOT_KNOWN: Final = "not_known_here"


def seconds_of(text: str) -> float | None:
    """`20`, `1m30s`, `500ms`. None if it is not a duration."""
    text = text.strip().removeprefix("+")
    if not text:
        return None
    if re.fullmatch(r"\d{1,12}(\.\d{0,12})?", text, re.A):
        return float(text)
    at, total = 0, 0.0
    while at < len(text):
        match = _DURATION.match(text, at)
        if match is None:
            return None
        total += float(match[1]) * _UNITS[match[2]]
        at = match.end()
    return total


def duration_of(given: Any, scope: TextScope, path: str, what: str) -> float | None:
    """Seconds of a field that is a duration, a number or a text with tags. None if absent or not known."""
    text = text_of(given)
    if text is None or not text.strip():
        return None
    known = constant_text(text, scope, path)
    found = seconds_of(known) if known is not None else None
    if found is None:
        if known is None:
            scope.notes.lost(scope.document, path, f"how long is only known when it runs; {what}")
        else:
            message = f"{known[:40]!r} is not a duration"
            scope.notes.wrong(scope.document, path, "P835", message, "write 20, 20s, 5m or 1h30m")
        return None
    if "{{" in text:
        scope.notes.changed(scope.document, path, f"{text[:60]} is {known}, as far as can be told before the run")
    return min(found, MOST_SECONDS)


def timeout_of(body: Mapping[str, Any], scope: TextScope, path: str) -> float | None:
    """`timeout` and `activeDeadlineSeconds`, whichever is shorter."""
    found = [
        seconds
        for name in ("timeout", "activeDeadlineSeconds")
        if (seconds := duration_of(body.get(name), scope, f"{path}.{name}", "there is no limit")) is not None
    ]
    if body.get("timeout") is not None:
        scope.notes.changed(
            scope.document, f"{path}.timeout", "it is counted from when the step starts, not while it waits"
        )
    shortest = min(found, default=0.0)
    return shortest if shortest > 0 else None


# -- retries ----------------------------------------------------------------------------------------------------------


def retry_of(given: Any, scope: TextScope, path: str) -> Retry | None:
    if not isinstance(given, Mapping):
        return None
    text = text_of(given.get("expression"))
    policy = text_of(given.get("retryPolicy")) or ("Always" if text else "OnFailure")
    if policy not in _POLICIES:
        message = f"{policy[:40]!r} is no retry policy"
        scope.notes.wrong(scope.document, f"{path}.retryPolicy", "P835", message, f"use {', '.join(_POLICIES)}")
        return None
    if policy == "OnTransientError":
        scope.notes.changed(scope.document, f"{path}.retryPolicy", "every error counts as transient")
    if given.get("affinity") is not None:
        scope.notes.changed(scope.document, f"{path}.affinity", "there is one machine here; a retry may go back to it")
    backoff = part(given, "backoff")
    longest = duration_of(backoff.get("maxDuration"), scope, f"{path}.backoff.maxDuration", "there is no limit")
    return Retry(
        limit=_limit(given.get("limit"), scope, f"{path}.limit"),
        on=_POLICIES[policy],
        backoff=_backoff(backoff, scope, f"{path}.backoff"),
        when=_retry_condition(text, scope, f"{path}.expression") if text else None,
        within=longest if longest else None,
    )


def _limit(given: Any, scope: TextScope, path: str) -> int:
    text = text_of(given)
    if text is None:
        return FOREVER
    known = constant_text(text, scope, path)
    if known is not None and re.fullmatch(r"\s*\d{1,9}\s*", known, re.A):
        if "{{" in text:
            scope.notes.changed(scope.document, path, f"{text[:60]} is {known}, as far as can be told before the run")
        return min(int(known), FOREVER)
    if known is None:
        scope.notes.changed(scope.document, path, "the limit is only known when it runs; there is none here")
    else:
        scope.notes.wrong(scope.document, path, "P835", f"{known[:40]!r} is not a number of tries", "write 3")
    return FOREVER


def _backoff(given: Mapping[str, Any], scope: TextScope, path: str) -> Backoff:
    """Without a backoff Argo retries at once."""
    first = duration_of(given.get("duration"), scope, f"{path}.duration", "there is no pause")
    cap = duration_of(given.get("cap"), scope, f"{path}.cap", "pauses grow without limit")
    text = text_of(given.get("factor"))
    known = constant_text(text, scope, f"{path}.factor") if text else None
    try:
        factor = max(1.0, float(known)) if known else 1.0
    except ValueError:
        scope.notes.wrong(scope.document, f"{path}.factor", "P835", f"{str(known)[:40]!r} is not a number", "write 2")
        factor = 1.0
    factor = factor if factor < 1e6 else 1e6
    if not first:
        return Backoff(initial=0.0, factor=factor, jitter=0.0)
    return Backoff(initial=first, factor=factor, longest=cap or MOST_SECONDS, jitter=0.0)


class _RetryScope(TextScope):
    """An expression over the last attempt. Everything else it reads must be known before the run: a retry condition sees only the attempt."""

    def __init__(self, around: TextScope) -> None:
        self.around = around
        self.notes = around.notes
        self.document = around.document

    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        if names[0] == "lastRetry":
            return _last_retry(names[1:])
        if names == ("retries",):
            return Call("string", (reference("attempt", "number"),))
        found = self.around.look(names, typed=typed)
        if found is None:
            return None
        value = constant(found, self.around)
        return Const(value) if isinstance(value, str | bool | int | float) else Name(_NOT_KNOWN)


def _last_retry(names: tuple[str, ...]) -> Node:
    match names:
        case ("exitCode",):
            return Call("string", (reference("attempt", "exit_code"),))
        case ("status",):
            words = (("failed", "Failed"), ("timeout", "Failed"), ("errored", "Error"))
            phases = MapOf(tuple((Const(own), Const(theirs)) for own, theirs in words))
            return Index(phases, reference("attempt", "outcome"))
        case ("duration",):
            return Call("string", (Call("int", (reference("attempt", "seconds"),)),))
        case ("message",):
            return reference("attempt", "message")
        case _:
            raise UnknownName(
                f"lastRetry has no {'.'.join(names)[:40]!r}", "read exitCode, status, duration or message"
            )


def _retry_condition(text: str, scope: TextScope, path: str) -> Expr | None:
    """The conjuncts that depend only on the last attempt."""
    node = expression(text, _RetryScope(scope), path)
    if node is None:
        return None
    if isinstance(node, Const) and not isinstance(node.value, bool):
        scope.notes.wrong(
            scope.document, path, "P834", f"{text[:60]!r} is not a condition", "compare something with lastRetry"
        )
        return None
    parts = _conjuncts(node)
    good = [one for one in parts if not any(used[0] == _NOT_KNOWN for used in references(show(one)))]
    if len(good) < len(parts):
        message = "a part of the condition reads what only the run knows; it is left out, and the rest decides"
        scope.notes.changed(
            scope.document, path, message, "Compare with lastRetry only, or fail with an exit code of its own."
        )
    if not good:
        return None
    found = good[0]
    for one in good[1:]:
        found = Binary("&&", found, one)
    return as_expr(found, scope, path)


def _conjuncts(node: Node) -> list[Node]:
    found: list[Node] = []
    rest = [node]
    while rest:
        one = rest.pop()
        if isinstance(one, Binary) and one.op == "&&":
            rest += [one.right, one.left]
        else:
            found.append(one)
    return found


# -- locks and memory -------------------------------------------------------------------------------------------------


def locks_of(given: Any, scope: TextScope, path: str, library: Library) -> tuple[Lock, ...]:
    """Mutexes and semaphores, and the single `mutex` and `semaphore` of Argo 3."""
    if not isinstance(given, Mapping):
        return ()
    found: list[Lock] = []
    for number, one in _both(given, "mutex", "mutexes"):
        here = f"{path}.mutexes[{number}]" if number is not None else f"{path}.mutex"
        name = text_of(one.get("name"))
        if not name:
            scope.notes.wrong(scope.document, here, "P835", "a mutex needs a name", "give it one")
            continue
        found.append(Lock(name=_named(one, name, scope, here)))
    for number, one in _both(given, "semaphore", "semaphores"):
        here = f"{path}.semaphores[{number}]" if number is not None else f"{path}.semaphore"
        lock = _semaphore(one, scope, here, library)
        if lock is not None:
            found.append(lock)
    return tuple(dict.fromkeys(found))


def _both(given: Mapping[str, Any], one: str, many: str) -> list[tuple[int | None, Mapping[str, Any]]]:
    alone = given.get(one)
    found: list[tuple[int | None, Mapping[str, Any]]] = [(None, alone)] if isinstance(alone, Mapping) else []
    return found + list(items(given, many))


def _named(one: Mapping[str, Any], name: str, scope: TextScope, path: str) -> Value:
    space = text_of(one.get("namespace"))
    return value_of(f"{space}/{name}" if space else name, scope, path)


def _semaphore(one: Mapping[str, Any], scope: TextScope, path: str, library: Library) -> Lock | None:
    ref, stored = part(one, "configMapKeyRef"), part(one, "database")
    if ref:
        name, key = text_of(ref.get("name")) or "", text_of(ref.get("key")) or ""
        document = library.find("ConfigMap", constant_text(name, scope, path) or "")
        size = (
            None
            if document is None
            else text_of(part(document.data, "data").get(constant_text(key, scope, path) or ""))
        )
        limit = int(size) if size is not None and re.fullmatch(r"\d{1,7}", size, re.A) else 0
        if not limit:
            message = f"the size of the semaphore {name[:60]}/{key[:60]} is not here; it counts as 1"
            scope.notes.changed(scope.document, path, message, "Put the ConfigMap that holds it beside the workflow.")
        return Lock(name=_named(one, f"{name}/{key}", scope, path), limit=limit or 1)
    if stored:
        message = "the size of a semaphore in a database is not here; it counts as 1"
        scope.notes.changed(scope.document, path, message)
        return Lock(name=_named(one, f"database/{text_of(stored.get('key')) or ''}", scope, path))
    fix = "give it a configMapKeyRef or a database"
    scope.notes.wrong(scope.document, path, "P835", "the semaphore has no size", fix)
    return None


def cache_of(given: Any, scope: TextScope, path: str) -> Cache:
    if not isinstance(given, Mapping):
        return NO_CACHE
    key = text_of(given.get("key"))
    if not key:
        scope.notes.wrong(
            scope.document, f"{path}.key", "P835", "memoize needs a key", 'give one: key: "{{inputs.parameters.x}}"'
        )
        return NO_CACHE
    memory = text_of(part(given, "cache", "configMap").get("name")) or ""
    ttl = duration_of(given.get("maxAge"), scope, f"{path}.maxAge", "it is kept without limit")
    own = value_of(key, scope, f"{path}.key")
    rest = own.parts if isinstance(own, Template) else (own,)
    scope.notes.changed(scope.document, path, "results are remembered by this machine's store, not in a ConfigMap")
    return Cache(key=joined([f"{memory}/" if memory else "", *rest]), ttl=ttl if ttl else None)
