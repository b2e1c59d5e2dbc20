"""What is refused before anybody looks at it, and what every answer carries. Put around the app by app.

RequestRefused: a name that is not this server's (another site's page that has its name point here), a body that is too large, too many
requests of one address that had no good token. What comes too fast with a good one is refused by access.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.errors import Problem
from penstock.server.problems import RequestRefused, answer

BODY: Final = 64 * 2**20
"""Bytes of a body, except where files are taken."""
PATIENCE: Final = 60.0
"""Seconds to wait for more of a body."""
MOST_TRIES: Final = 20
"""Bad tokens of one address in WINDOW seconds."""
WINDOW: Final = 60.0
ADDRESSES: Final = 10_000
"""Addresses that are remembered."""
EVERY: Final = 200.0
BURST: Final = 2000.0
"""Requests of one token: so many a second, and so many at once."""
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Tries:
    """How often addresses came with a bad token. `clock`: for tests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, list[float]] = OrderedDict()

    def bad(self, address: str) -> None:
        times = self._seen.setdefault(address, [])
        times.append(self._clock())
        self._seen.move_to_end(address)
        while len(self._seen) > ADDRESSES:
            self._seen.popitem(last=False)

    def too_many(self, address: str) -> bool:
        times = self._seen.get(address)
        if times is None:
            return False
        since = self._clock() - WINDOW
        times[:] = [at for at in times if at > since]
        if not times:
            del self._seen[address]
        return len(times) >= MOST_TRIES


class Rate:
    """How fast requests of one token come: `burst` at once, and `every` a second. What it takes for all is small: some numbers for each token."""

    def __init__(self, every: float = EVERY, burst: float = BURST, clock: Callable[[], float] = time.monotonic) -> None:
        self._every, self._burst, self._clock = every, burst, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def too_fast(self, token: str) -> bool:
        """Counts one more."""
        now = self._clock()
        left, at = self._left.get(token, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._every)
        self._left[token] = (max(0.0, left - 1.0), now)
        self._left.move_to_end(token)
        while len(self._left) > ADDRESSES:
            self._left.popitem(last=False)
        return left < 1.0


class Guard:
    """`hosts`: the names that this server has. `files`: paths that take bodies of any size. `patience`: seconds to wait for more of a body."""

    def __init__(self, app: ASGIApp, hosts: Collection[str], files: str, patience: float = PATIENCE) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._files = files
        self._patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._refused(scope, headers)
        late: RequestRefused | None = None
        """It turned out while the body came."""
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if late is not None and not started:
                return  # what the app makes of it: the answer follows
            if message["type"] == "http.response.start":
                started = True
                given = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    given.setdefault(name, value)
                given.setdefault("Cache-Control", "no-store")
            await send(message)

        if refused is not None:
            await answer(refused.status, refused.problems)(scope, receive, sending)
            return
        taken, ended = 0, False

        async def receiving() -> Message:
            nonlocal taken, ended, late
            try:
                async with asyncio.timeout(None if ended else self._patience):
                    message = await receive()
            except TimeoutError:
                fix = "send it again"
                late = RequestRefused(408, Problem("P944", f"nothing came for {self._patience:g} seconds", fix))
                raise late from None
            taken += len(message.get("body", b""))
            ended = not message.get("more_body", False)
            if taken > BODY and not scope["path"].startswith(self._files):
                late = _too_large()
                raise late
            return message

        try:
            await self._app(scope, receiving, sending)
        except RequestRefused as error:
            if error is not late or started:
                raise
        if late is not None and not started:
            refusal, late = late, None
            await answer(refusal.status, refusal.problems)(scope, receive, sending)

    def _refused(self, scope: Scope, headers: Headers) -> RequestRefused | None:
        host = host_of(headers.get("host", ""))
        if host not in self._hosts:
            fix = "use one of its names; penstock serve --name NAME gives it another one"
            return RequestRefused(421, Problem("P939", f"{host[:100]!r} is not a name of this server", fix))
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > BODY and not scope["path"].startswith(self._files):
            return _too_large()
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            fix = "leave the character with the number 0 out"  # PostgreSQL has no text with it
            return RequestRefused(400, Problem("P946", "the address has a character in it that no name has", fix))
        return None


class Tagged:
    """Whole answers to GET have an ETag, so that what has not changed is not sent again."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        known = [one.strip().removeprefix("W/") for one in Headers(scope=scope).get("if-none-match", "").split(",")]
        start: Message | None = None
        body = bytearray()

        async def sending(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                kind = Headers(raw=message["headers"]).get("content-type", "")
                if message["status"] == 200 and kind.startswith(("application/json", "text/html")):
                    start = message
                    return
            if start is None:
                await send(message)
                return
            body.extend(message.get("body", b""))
            if not message.get("more_body"):
                await _send_tagged(start, bytes(body), known, send)

        await self._app(scope, receive, sending)


async def _send_tagged(start: Message, body: bytes, known: list[str], send: Send) -> None:
    headers = MutableHeaders(raw=list(start["headers"]))
    tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
    headers["ETag"], headers["Cache-Control"] = tag, "private, no-cache"
    if tag in known:
        start, body = {**start, "status": 304}, b""
        del headers["content-length"]
    await send({**start, "headers": headers.raw})
    await send({"type": "http.response.body", "body": body})


def host_of(text: str) -> str:
    """Without the port."""
    if text.startswith("["):
        return text.partition("]")[0] + "]"
    return text.partition(":")[0].lower()


def _too_large() -> RequestRefused:
    fix = "send files as blobs (PUT /api/v1/blobs/DIGEST), and name them"
    return RequestRefused(413, Problem("P940", f"more than {BODY // 2**20} MiB in one request", fix))
