"""Who asks, and may they. Every route names what it needs (`Needs`); a test goes through all routes.

Programs send `Authorization: Bearer TOKEN`. Pages have a cookie that names the token and is signed; it is of no use when the token has
expired or was revoked. What changes something and comes with a cookie must also carry a word that only our own pages know.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Final

from starlette.requests import HTTPConnection, Request

from penstock.errors import Problem
from penstock.server.guard import Tries, host_of
from penstock.server.problems import RequestRefused
from penstock.server.threads import StoreThreads
from penstock.service import tokens
from penstock.service.run_records import find
from penstock.service.tokens import Identity, NotAllowed, NotSignedIn
from penstock.store.tokens import AccessToken, AuditEntry

COOKIE: Final = "penstock"
LIFETIME: Final = 30 * 86400.0
"""Seconds for which a cookie is good, if the token does not expire before."""
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
WORD: Final = "csrf"
"""The field of a form; as a header X-CSRF."""
_FIX = "give a token: Authorization: Bearer pst_…, or open /login. The address that penstock serve prints has one; an admin gives others: penstock token create"


class AccessGate:
    """`own`: the token of a server that runs for one person, which is in no store. `key`: signs cookies."""

    def __init__(self, threads: StoreThreads, key: bytes, own: AccessToken | None = None) -> None:
        self.threads = threads
        self.tries = Tries()
        self._key = key
        self._own = own

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

    # -- cookies ------------------------------------------------------------------------------------------------------

    def cookie(self, who: Identity) -> str:
        head = f"{who.token}.{int(time.time() + LIFETIME)}"
        return f"{head}.{self._signed('cookie', head)}"

    async def _of_cookie(self, text: str) -> Identity:
        head, _, signature = text.rpartition(".")
        id, _, until = head.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signed("cookie", head).encode()) or not until.isdecimal():
            raise NotSignedIn(Problem("P930", "this cookie is not ours, or of another server", _FIX))
        token = await self._token(id)
        if token is None or int(until) < time.time():
            raise NotSignedIn(Problem("P930", "this cookie is of no use any more", _FIX))
        return tokens.still(token, time.time())

    def word(self, who: Identity) -> str:
        """What forms of our pages carry, so that no other site's page can send them."""
        return self._signed("word", who.token)

    async def check_word(self, request: Request, who: Identity) -> None:
        """Raises NotAllowed."""
        if request.method in SAFE or "authorization" in request.headers:
            return
        given = request.headers.get("x-csrf", "")
        kind = request.headers.get("content-type", "")
        if not given and kind.startswith(("application/x-www-form-urlencoded", "multipart/form-data")):
            found = (await request.form()).get(WORD, "")
            given = found if isinstance(found, str) else ""
        origin = request.headers.get("origin", "")
        foreign = origin and host_of(origin.partition("//")[2]) != host_of(request.headers.get("host", ""))
        if foreign or not hmac.compare_digest(given.encode(), self.word(who).encode()):
            fix = "reload the page and try again; programs send Authorization: Bearer TOKEN"
            raise NotAllowed(Problem("P942", "this does not come from a page of this server", fix))

    def _signed(self, what: str, text: str) -> str:
        made = hmac.new(self._key, f"{what}:{text}".encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(made).decode().rstrip("=")


class Needs:
    """What a route needs: a role; or, with `own`, that the run in its path is one's own."""

    def __init__(self, role: str, what: str, own: bool = False) -> None:
        self.role = role
        self.what = what
        """`cancel runs`: goes after "may not"."""
        self.own = own

    async def __call__(self, request: Request) -> Identity:
        """Raises NotSignedIn, NotAllowed."""
        gate: AccessGate = request.app.state.gate
        who = await gate.who(request)
        request.state.who = who
        await gate.check_word(request, who)
        if who.may(self.role):
            return who
        if self.own and who.may("submitter"):
            name = request.path_params["run"]
            run = await gate.threads.call(lambda store: find(store, name))
            if run.user == who.person:
                return who
            raise tokens.forbidden(who, self.role, f"{self.what} of {run.user or 'somebody else'}")
        raise tokens.forbidden(who, self.role, self.what)


async def note(request: Request, verb: str, target: str, status: int) -> None:
    """Who did what, for the audit."""
    who: Identity | None = getattr(request.state, "who", None)
    person, token = ("", "") if who is None else (who.person, who.token)
    entry = AuditEntry(0, time.time(), person, token, verb, target[:200], status)
    threads: StoreThreads = request.app.state.threads
    await threads.call(lambda store: store.tokens.note(entry))
