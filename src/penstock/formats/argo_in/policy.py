"""How an Argo template is run: retries, time limits, locks, memoization. Called by leaf for steps and by graph for calls of
composite templates.

The model wants numbers where Argo takes text with tags in it. A tag whose value can be told when the document is read is told;
otherwise the Report says what is done instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.formats.argo_in.sheet import text_of
from penstock.formats.argo_in.values import Place, Unknown, constant, constant_text, expression, made, value_of
from penstock.formats.documents import Library, items, part
from penstock.formats.kube import joined
from penstock.graph.expr import (
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
from penstock.graph.model import Backoff, Cache, Lock, Retry, Value
from penstock.graph.places import LARGEST_COUNT
from penstock.graph.template import Template

FOREVER: Final = LARGEST_COUNT
"""Tries of a retryStrategy without a limit."""
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
    """`20`, `1m30s`, `500ms`. None if it is no duration."""
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


def duration_of(given: Any, place: Place, path: str, what: str) -> float | None:
    """Seconds of a field that is a duration, a number or a text with tags. None if there is none, or if it is not known."""
    text = text_of(given)
    if text is None or not text.strip():
        return None
    known = constant_text(text, place, path)
    found = seconds_of(known) if known is not None else None
    if found is None:
        if known is None:
            place.notes.lost(place.document, path, f"how long is only known when it runs; {what}")
        else:
            said = f"{known[:40]!r} is not a duration"
            place.notes.wrong(place.document, path, "P835", said, "write 20, 20s, 5m or 1h30m")
        return None
    if "{{" in text:
        place.notes.changed(place.document, path, f"{text[:60]} is {known}, as far as can be told before the run")
    return min(found, MOST_SECONDS)


def timeout_of(body: Mapping[str, Any], place: Place, path: str) -> float | None:
    """`timeout` and `activeDeadlineSeconds`, whichever is shorter."""
    found = [
        seconds
        for name in ("timeout", "activeDeadlineSeconds")
        if (seconds := duration_of(body.get(name), place, f"{path}.{name}", "there is no limit")) is not None
    ]
    if body.get("timeout") is not None:
        place.notes.changed(
            place.document, f"{path}.timeout", "it is counted from when the step starts, not while it waits"
        )
    shortest = min(found, default=0.0)
    return shortest if shortest > 0 else None


# -- retries ----------------------------------------------------------------------------------------------------------


def retry_of(given: Any, place: Place, path: str) -> Retry | None:
    if not isinstance(given, Mapping):
        return None
    text = text_of(given.get("expression"))
    policy = text_of(given.get("retryPolicy")) or ("Always" if text else "OnFailure")
    if policy not in _POLICIES:
        said = f"{policy[:40]!r} is no retry policy"
        place.notes.wrong(place.document, f"{path}.retryPolicy", "P835", said, f"use {', '.join(_POLICIES)}")
        return None
    if policy == "OnTransientError":
        place.notes.changed(place.document, f"{path}.retryPolicy", "every error counts as transient")
    if given.get("affinity") is not None:
        place.notes.changed(place.document, f"{path}.affinity", "there is one machine here; a retry may go back to it")
    backoff = part(given, "backoff")
    longest = duration_of(backoff.get("maxDuration"), place, f"{path}.backoff.maxDuration", "there is no limit")
    return Retry(
        limit=_limit(given.get("limit"), place, f"{path}.limit"),
        on=_POLICIES[policy],
        backoff=_backoff(backoff, place, f"{path}.backoff"),
        when=_retry_condition(text, place, f"{path}.expression") if text else None,
        within=longest if longest else None,
    )


def _limit(given: Any, place: Place, path: str) -> int:
    text = text_of(given)
    if text is None:
        return FOREVER
    known = constant_text(text, place, path)
    if known is not None and re.fullmatch(r"\s*\d{1,9}\s*", known, re.A):
        if "{{" in text:
            place.notes.changed(place.document, path, f"{text[:60]} is {known}, as far as can be told before the run")
        return min(int(known), FOREVER)
    if known is None:
        place.notes.changed(place.document, path, "the limit is only known when it runs; there is none here")
    else:
        place.notes.wrong(place.document, path, "P835", f"{known[:40]!r} is not a number of tries", "write 3")
    return FOREVER


def _backoff(given: Mapping[str, Any], place: Place, path: str) -> Backoff:
    """Without one Argo tries again at once."""
    first = duration_of(given.get("duration"), place, f"{path}.duration", "there is no pause")
    cap = duration_of(given.get("cap"), place, f"{path}.cap", "pauses grow without limit")
    text = text_of(given.get("factor"))
    known = constant_text(text, place, f"{path}.factor") if text else None
    try:
        factor = max(1.0, float(known)) if known else 1.0
    except ValueError:
        place.notes.wrong(place.document, f"{path}.factor", "P835", f"{str(known)[:40]!r} is not a number", "write 2")
        factor = 1.0
    factor = factor if factor < 1e6 else 1e6
    if not first:
        return Backoff(initial=0.0, factor=factor, jitter=0.0)
    return Backoff(initial=first, factor=factor, longest=cap or MOST_SECONDS, jitter=0.0)


class _RetryPlace(Place):
    """An expression over the last try. What else it reads must be known before the run: whoever decides on a retry sees the try only."""

    def __init__(self, around: Place) -> None:
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
            raise Unknown(f"lastRetry has no {'.'.join(names)[:40]!r}", "read exitCode, status, duration or message")


def _retry_condition(text: str, place: Place, path: str) -> Expr | None:
    """The parts of it, joined by &&, that can be decided by the last try alone."""
    node = expression(text, _RetryPlace(place), path)
    if node is None:
        return None
    if isinstance(node, Const) and not isinstance(node.value, bool):
        place.notes.wrong(
            place.document, path, "P834", f"{text[:60]!r} is no condition", "compare something with lastRetry"
        )
        return None
    parts = _conjuncts(node)
    good = [one for one in parts if not any(used[0] == _NOT_KNOWN for used in references(show(one)))]
    if len(good) < len(parts):
        said = "a part of the condition reads what only the run knows; it is left out, and the rest decides"
        place.notes.changed(
            place.document, path, said, "Compare with lastRetry only, or fail with an exit code of its own."
        )
    if not good:
        return None
    found = good[0]
    for one in good[1:]:
        found = Binary("&&", found, one)
    return made(found, place, path)


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


def locks_of(given: Any, place: Place, path: str, library: Library) -> tuple[Lock, ...]:
    """Mutexes and semaphores; of v3 also the one `mutex` and the one `semaphore`."""
    if not isinstance(given, Mapping):
        return ()
    found: list[Lock] = []
    for number, one in _both(given, "mutex", "mutexes"):
        here = f"{path}.mutexes[{number}]" if number is not None else f"{path}.mutex"
        name = text_of(one.get("name"))
        if not name:
            place.notes.wrong(place.document, here, "P835", "a mutex needs a name", "give it one")
            continue
        found.append(Lock(name=_named(one, name, place, here)))
    for number, one in _both(given, "semaphore", "semaphores"):
        here = f"{path}.semaphores[{number}]" if number is not None else f"{path}.semaphore"
        lock = _semaphore(one, place, here, library)
        if lock is not None:
            found.append(lock)
    return tuple(dict.fromkeys(found))


def _both(given: Mapping[str, Any], one: str, many: str) -> list[tuple[int | None, Mapping[str, Any]]]:
    alone = given.get(one)
    found: list[tuple[int | None, Mapping[str, Any]]] = [(None, alone)] if isinstance(alone, Mapping) else []
    return found + list(items(given, many))


def _named(one: Mapping[str, Any], name: str, place: Place, path: str) -> Value:
    space = text_of(one.get("namespace"))
    return value_of(f"{space}/{name}" if space else name, place, path)


def _semaphore(one: Mapping[str, Any], place: Place, path: str, library: Library) -> Lock | None:
    ref, stored = part(one, "configMapKeyRef"), part(one, "database")
    if ref:
        name, key = text_of(ref.get("name")) or "", text_of(ref.get("key")) or ""
        document = library.find("ConfigMap", constant_text(name, place, path) or "")
        size = (
            None
            if document is None
            else text_of(part(document.data, "data").get(constant_text(key, place, path) or ""))
        )
        limit = int(size) if size is not None and re.fullmatch(r"\d{1,7}", size, re.A) else 0
        if not limit:
            said = f"the size of the semaphore {name[:60]}/{key[:60]} is not here; it counts as 1"
            place.notes.changed(place.document, path, said, "Put the ConfigMap that holds it beside the workflow.")
        return Lock(name=_named(one, f"{name}/{key}", place, path), limit=limit or 1)
    if stored:
        said = "the size of a semaphore in a database is not here; it counts as 1"
        place.notes.changed(place.document, path, said)
        return Lock(name=_named(one, f"database/{text_of(stored.get('key')) or ''}", place, path))
    fix = "give it a configMapKeyRef or a database"
    place.notes.wrong(place.document, path, "P835", "the semaphore says nothing of its size", fix)
    return None


def cache_of(given: Any, place: Place, path: str) -> Cache:
    if not isinstance(given, Mapping):
        return NO_CACHE
    key = text_of(given.get("key"))
    if not key:
        place.notes.wrong(
            place.document, f"{path}.key", "P835", "memoize needs a key", 'give one: key: "{{inputs.parameters.x}}"'
        )
        return NO_CACHE
    memory = text_of(part(given, "cache", "configMap").get("name")) or ""
    ttl = duration_of(given.get("maxAge"), place, f"{path}.maxAge", "it is kept without limit")
    own = value_of(key, place, f"{path}.key")
    rest = own.parts if isinstance(own, Template) else (own,)
    place.notes.changed(place.document, path, "results are remembered by this machine's store, not in a ConfigMap")
    return Cache(key=joined([f"{memory}/" if memory else "", *rest]), ttl=ttl if ttl else None)
