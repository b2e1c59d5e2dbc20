"""A run that has ended, and a callback of it → the requests that are to be sent. Called by delivery. Pure.

Secrets stay names here, until `sealed` is given their texts, right before a request is sent.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.expressions.evaluate import EvaluationError, evaluate, resolve
from penstock.expressions.parse import path_of, references
from penstock.expressions.secret import ROOT, SECRETS, filled, secrets_in
from penstock.graph.callback import Callback
from penstock.graph.check.callbacks import url_problem
from penstock.graph.model import expressions
from penstock.graph.stored import Stored

MOST_ITEMS: Final = 100_000
LARGEST: Final = 4 * 2**20
"""Bytes of a body."""
SIGNATURE, KEY = "Penstock-Signature", "Idempotency-Key"
NO_ITEM: Final[Any] = object()


class CannotRender(Exception):
    """No request can be made of it, now or later. The message is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A run, as it was when it ended."""

    id: str
    workflow: str
    user: str = ""
    state: str = ""
    """succeeded, failed, cancelled or invalid."""
    error: str = ""
    started: float = 0.0
    ended: float = 0.0
    params: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    lineage: Mapping[str, Any] | None = None
    """The runs that it follows from, if it does."""

    @property
    def scope(self) -> dict[str, Any]:
        """What the expressions of a callback read."""
        names = ("id", "workflow", "user", "state", "error", "started", "ended")
        run = {name: getattr(self, name) for name in names}
        return {"run": run, "params": self.params, "outputs": self.outputs, ROOT: SECRETS}


class CallbackRequest(NamedTuple):
    """Secrets in it are names."""

    method: str
    url: str
    headers: dict[str, Any]
    """Those of the author."""
    body: Any
    key: str
    secret: str = ""
    """The name of the key that signs it."""
    private: bool = False
    """May the body hold secrets? Otherwise nobody looks for them in what may be a million values."""

    @property
    def names(self) -> set[str]:
        """The secrets that it needs."""
        places = [self.headers, self.body] if self.private else [self.headers]
        found = {name for one in secrets_in(places) for name in one.names}
        return found | ({self.secret} if self.secret else set())


class SealedRequest(NamedTuple):
    """As it is sent."""

    method: str
    url: str
    headers: dict[str, str]
    """That every host may see."""
    own: dict[str, str]
    """For the host of the URL alone: they do not follow a redirect elsewhere."""
    data: bytes | None
    private: bool = False
    """The body holds a secret: it does not follow either."""


def outputs_read(callback: Callback) -> set[str] | None:
    """The outputs whose values its expressions need; None: all."""
    parts = [callback.url, callback.items, callback.filter, callback.body, dict(callback.headers)]
    paths = [path for expr in expressions(parts) for path in references(expr.text) if path[0] == "outputs"]
    return None if any(len(path) == 1 for path in paths) else {path[1] for path in paths}


def chosen_items(callback: Callback, run: EndedRun) -> Iterator[tuple[int, Any]]:
    """(place, item) of those that its filter lets pass. Raises CannotRender."""
    try:
        found = resolve(callback.items, run.scope)
    except EvaluationError as error:
        raise CannotRender(f"its items: {error}") from None
    if not isinstance(found, list | tuple | range):
        raise CannotRender(f"its items are {type(found).__name__} and no list")
    if len(found) > MOST_ITEMS:
        raise CannotRender(f"it has {len(found):,} items; at most {MOST_ITEMS:,} are sent")
    for place, item in enumerate(found):
        if passes(callback, run, item):
            yield place, item


def passes(callback: Callback, run: EndedRun, item: Any = NO_ITEM) -> bool:
    """Does its filter let this pass? Raises CannotRender."""
    if callback.filter is None:
        return True
    try:
        found = evaluate(callback.filter, _scope(run, item))
    except EvaluationError as error:
        raise CannotRender(f"its filter: {error}") from None
    if not isinstance(found, bool):
        raise CannotRender(f"its filter is {found!r:.60}, which is neither true nor false")
    return found


def request_of(callback: Callback, run: EndedRun, key: str, item: Any = NO_ITEM) -> CallbackRequest:
    """Raises CannotRender."""
    scope = _scope(run, item)
    try:
        url = resolve(callback.url, scope)
        headers = {name: resolve(value, scope) for name, value in callback.headers.items()}
        body = default_body(callback, run, item) if callback.body is None else resolve(callback.body, scope)
    except EvaluationError as error:
        raise CannotRender(str(error)) from None
    if not isinstance(url, str):
        raise CannotRender(f"its URL is {type(url).__name__} and not text")
    if wrong := url_problem(url):
        raise CannotRender(wrong)
    if callback.method in ("GET", "DELETE") and callback.body is None:
        body = None
    path = path_of(callback.secret.node) if callback.secret is not None else None
    private = any(ROOT in expr.text for expr in expressions(callback.body))
    return CallbackRequest(callback.method, url, headers, body, key, path[1] if path else "", private)


def default_body(callback: Callback, run: EndedRun, item: Any = NO_ITEM) -> dict[str, Any]:
    found = {
        "callback": callback.name,
        "run": run.id,
        "workflow": run.workflow,
        "state": run.state,
        "error": run.error or None,
        "started": run.started,
        "ended": run.ended,
        "lineage": run.lineage,
    }
    # Not all outputs in the request for each of a thousand items: most of them are those items.
    return {**found, "outputs": dict(run.outputs)} if item is NO_ITEM else {**found, "item": item}


def sealed(request: CallbackRequest, texts: Mapping[str, str], now: float) -> SealedRequest:
    """With the texts of its secrets in place, and its signature. Raises CannotRender."""
    own = {name: _header(name, value, texts) for name, value in request.headers.items()}
    body = filled(request.body, texts) if request.private else request.body
    data = None if body is None else _data(body)
    if data is not None and len(data) > LARGEST:
        raise CannotRender(f"its body has {len(data):,} bytes; at most {LARGEST:,} are sent: send the URL of a file")
    headers = {"User-Agent": "penstock", "Accept": "*/*", KEY: request.key}
    if data is not None:
        headers["Content-Type"] = "text/plain; charset=utf-8" if isinstance(body, str) else "application/json"
    written = {name.lower() for name in own}
    headers = {name: value for name, value in headers.items() if name.lower() not in written}
    if request.secret:
        own[SIGNATURE] = signature(texts[request.secret], int(now), data or b"")
    return SealedRequest(request.method, request.url, headers, own, data, request.private)


def signature(secret: str, at: int, data: bytes) -> str:
    """Of the time and the body: a receiver that also looks at the time cannot be told the same again later."""
    made = hmac.new(secret.encode(), f"{at}.".encode() + data, hashlib.sha256).hexdigest()
    return f"t={at},v1={made}"


def _scope(run: EndedRun, item: Any) -> dict[str, Any]:
    return run.scope if item is NO_ITEM else {**run.scope, "item": item}


def _header(name: str, value: Any, texts: Mapping[str, str]) -> str:
    text = filled(value, texts)
    text = text if isinstance(text, str) else json.dumps(text, separators=(",", ":"), default=described)
    if any((ord(one) < 32 and one != "\t") or ord(one) == 127 for one in text) or not _fits_latin(text):
        raise CannotRender(f"the header {name} holds a character that no header may hold")
    return text


def _fits_latin(text: str) -> bool:
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True


def _data(body: Any) -> bytes:
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False, default=described).encode("utf-8", "replace")


def described(value: Any) -> Any:
    """What JSON has no form for: a value that is kept as a blob is told of, not sent."""
    if isinstance(value, Stored):
        return {"kind": value.kind, "digest": value.digest, "size": value.size, "name": value.name}
    return list(value) if isinstance(value, range) else dict(value) if isinstance(value, Mapping) else str(value)
