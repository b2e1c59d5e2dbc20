"""Who asks, and may they. Every route names what it needs (`Needs`); a test goes through all routes.

Programs send `Authorization: Bearer TOKEN`. Pages have a cookie that names the token and is signed; it is of no use when the token has
expired or was revoked. What changes something and comes with a cookie must also carry a word that only our own pages know.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from starlette.requests import HTTPConnection, Request

from penstock.errors import Problem
from penstock.server.guard import Rate, Tries, host_of
from penstock.server.problems import RequestRefused
from penstock.server.threads import StoreThreads
from penstock.service import tokens
from penstock.service.access import administers_queue, administers_run
from penstock.service.payloads import verbs
from penstock.service.policy import Actor
from penstock.service.run_records import find
from penstock.service.tokens import Identity, NotAllowed, NotSignedIn
from penstock.store.sql import Store
from penstock.store.tokens import AccessToken, AuditEntry

COOKIE: Final = "penstock"
LIFETIME: Final = 30 * 86400.0
"""Seconds for which a cookie is good, if the token does not expire before."""
REMEMBERED: Final = 10_000
"""Tokens whose submissions are counted."""
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
WORD: Final = "csrf"
"""The field of a form; as a header X-CSRF."""
FRESH: Final = 0.9
"""Seconds for which a stream believes what was read of its token."""
MOST_SEEN: Final = 10_000
ASK: Final = "ask who one is"
"""What every token may."""
_FIX = "give a token: Authorization: Bearer pst_…, or open /login. The address that penstock serve prints has one; an admin gives others: penstock token create"


class AccessGate:
    """`own`: the token of a server that runs for one person, which is in no store. `key`: signs cookies."""

    def __init__(self, threads: StoreThreads, key: bytes, own: AccessToken | None = None) -> None:
        self.threads = threads
        self.tries = Tries()
        self.rate = Rate()
        self._key = key
        self._own = own
        self._seen: OrderedDict[str, tuple[float, AccessToken | None]] = OrderedDict()

    async def who(self, request: HTTPConnection) -> Identity:
        """Raises NotSignedIn, RequestRefused."""
        address = request.client.host if request.client else ""
        if self.tries.too_many(address):
            raise RequestRefused(429, Problem("P941", "too many requests without a good token", "wait a minute"))
        bearer = request.headers.get("authorization", "")
        try:
            if bearer:
                kind, _, text = bearer.partition(" ")
                if kind.lower() != "bearer":
                    raise NotSignedIn(Problem("P930", f"{kind[:20]!r} is not a way to sign in here", _FIX))
                return await self.sign_in(text.strip())
            if COOKIE in request.cookies:
                return await self._of_cookie(request.cookies[COOKIE])
        except NotSignedIn:
            self.tries.bad(address)
            raise
        raise NotSignedIn(Problem("P930", "this needs a token", _FIX))

    async def sign_in(self, text: str) -> Identity:
        """Raises NotSignedIn."""
        return tokens.identity(await self._token(tokens.id_of(text)), text, time.time())

    async def _token(self, id: str) -> AccessToken | None:
        if self._own is not None and id == self._own.id:
            return self._own
        return await self.threads.call(lambda store: store.tokens.by_id(id)) if id else None

    async def still(self, who: Identity) -> None:
        """Is the token that was good a while ago good now? Many who have the same one ask the store once in a while. Raises NotSignedIn."""
        read, token = self._seen.get(who.token, (float("-inf"), None))
        if time.monotonic() - read > FRESH:
            token = await self._token(who.token)
            self._seen[who.token] = (time.monotonic(), token)
            while len(self._seen) > MOST_SEEN:
                self._seen.popitem(last=False)
        if token is None:
            raise NotSignedIn(Problem("P930", "this token is not known", _FIX))
        tokens.still(token, time.time())

    # -- cookies ------------------------------------------------------------------------------------------------------

    def cookie(self, who: Identity) -> str:
        head = f"{who.token}.{int(time.time() + LIFETIME)}"
        return f"{head}.{self.signed('cookie', head)}"

    async def _of_cookie(self, text: str) -> Identity:
        head, _, signature = text.rpartition(".")
        id, _, until = head.partition(".")
        if not hmac.compare_digest(signature.encode(), self.signed("cookie", head).encode()) or not until.isdecimal():
            raise NotSignedIn(Problem("P930", "this cookie is not ours, or of another server", _FIX))
        token = await self._token(id)
        if token is None or int(until) < time.time():
            raise NotSignedIn(Problem("P930", "this cookie is of no use any more", _FIX))
        return tokens.still(token, time.time())

    def word(self, who: Identity) -> str:
        """What forms of our pages carry, so that no other site's page can send them."""
        return self.signed("word", who.token)

    async def check_word(self, request: Request, who: Identity) -> None:
        """Raises NotAllowed."""
        if request.method in SAFE or "authorization" in request.headers:
            return
        given = request.headers.get("x-csrf", "")
        kind = request.headers.get("content-type", "")
        if not given and kind.startswith(("application/x-www-form-urlencoded", "multipart/form-data")):
            found = (await request.form()).get(WORD, "")
            given = found if isinstance(found, str) else ""
        if not self.same_origin(request) or not hmac.compare_digest(given.encode(), self.word(who).encode()):
            fix = "reload the page and try again; programs send Authorization: Bearer TOKEN"
            raise NotAllowed(Problem("P942", "this does not come from a page of this server", fix))

    @staticmethod
    def same_origin(request: Request) -> bool:
        """Is it not from another site's page, as far as the browser says?"""
        origin = request.headers.get("origin", "")
        return not origin or host_of(origin.partition("//")[2]) == host_of(request.headers.get("host", ""))

    async def known(self, request: Request) -> Identity | None:
        """Whose cookie this is, if it is good."""
        try:
            return await self._of_cookie(request.cookies[COOKIE]) if COOKIE in request.cookies else None
        except NotSignedIn:
            return None

    def signed(self, what: str, text: str) -> str:
        """By this server's key, which all servers of the store have."""
        made = hmac.new(self._key, f"{what}:{text}".encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(made).decode().rstrip("=")


class Needs:
    """What a route needs: a role; or, with `own`, that the run or payload in its path is one's own, or in queues that one administers; or, with
    `queue`, that one administers the queue in its path."""

    def __init__(self, role: str, what: str, own: bool = False, queue: bool = False) -> None:
        self.role = role
        self.what = what
        """`cancel runs`: goes after "may not"."""
        self.own = own
        self.queue = queue

    async def __call__(self, request: Request) -> AsyncIterator[Identity]:
        """Files of a form are closed when the request has been answered. Raises NotSignedIn, NotAllowed."""
        try:
            yield await self._checked(request)
        finally:
            await request.close()

    async def _checked(self, request: Request) -> Identity:
        gate: AccessGate = request.app.state.gate
        who = await gate.who(request)
        request.state.who = who
        if gate.rate.too_fast(who.token):
            raise RequestRefused(429, Problem("P965", "this token asks too often", "wait a moment between requests"))
        await gate.check_word(request, who)
        self._in_scope(request, who)
        if who.may(self.role):
            return who
        by = actor_of(who)
        if self.own and who.may("submitter"):
            names = request.path_params
            owner, granted = await gate.threads.call(lambda store: _about(store, names, by))
            if granted:
                return who
            raise tokens.forbidden(who, self.role, f"{self.what} of {owner or 'somebody else'}")
        if self.queue and who.may("submitter"):
            name = request.path_params["name"]
            if await gate.threads.call(lambda store: administers_queue(store, name, by)):
                return who
        raise tokens.forbidden(who, self.role, self.what)

    def _in_scope(self, request: Request, who: Identity) -> None:
        """Raises NotAllowed. Pages have no tag: they show everything."""
        if who.scopes:
            tags = request.scope["route"].tags or ["pages"]
            if tags[0] not in who.scopes and self.what != ASK:
                raise tokens.out_of_scope(who, str(tags[0]))


def actor_of(who: Identity) -> Actor:
    """For the lists of queues."""
    return Actor(who.person, who.groups)


def _about(store: Store, names: Mapping[str, str], by: Actor) -> tuple[str, bool]:
    """Whose run it is, or the newest run of whose payload, and whether `by` may do with it what its owner may. Raises NotFound."""
    run = find(store, names["run"] if "run" in names else verbs.find(store, names["payload"]).run_id or "")
    return run.user, run.user == by.person or bool(administers_run(store, run, by))


def entry_of(who: Identity | None, verb: str, target: str, status: int) -> AuditEntry:
    """Who did what, for the audit."""
    person, token = ("", "") if who is None else (who.person, who.token)
    return AuditEntry(0, time.time(), person, token, verb, target[:200], status)


class Allowance:
    """How many submissions a token has left: so many a minute, and as many at once. `clock`: for tests."""

    def __init__(self, a_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = a_minute
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Token -> how many it had at a time."""

    def take(self, token: str) -> None:
        """Raises RequestRefused, P973."""
        if not self._most:
            return
        now = self._clock()
        had, at = self._left.pop(token, (float(self._most), now))
        left = min(float(self._most), had + (now - at) * self._most / 60.0)
        self._left[token] = (max(0.0, left - 1.0), now) if left >= 1.0 else (left, now)
        while len(self._left) > REMEMBERED:
            self._left.popitem(last=False)
        if left < 1.0:
            fix = "come again in a moment, or have PENSTOCK_SUBMISSIONS raised on the server"
            raise RequestRefused(429, Problem("P973", f"more than {self._most:,} submissions a minute", fix))


async def note(request: Request, verb: str, target: str, status: int) -> None:
    entry = entry_of(getattr(request.state, "who", None), verb, target, status)
    threads: StoreThreads = request.app.state.threads
    await threads.call(lambda store: store.tokens.note(entry))
