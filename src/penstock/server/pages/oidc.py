"""Signing in and out through an OpenID provider. Taken in by app.

Between the two visits nothing is kept here: a signed cookie has a random word, from which the server makes state, nonce and verifier again with
its key. So any server of the store can take the answer, and the cookie tells nobody the verifier. Each word is good once.
"""

from __future__ import annotations

import hmac
import secrets
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from penstock.errors import Problem
from penstock.server.access import COOKIE, AccessGate
from penstock.server.api.common import threads_of
from penstock.server.oidc import claims as claims_of
from penstock.server.pages.local import local
from penstock.server.problems import RequestRefused
from penstock.service import tokens
from penstock.service.tokens import Identity
from penstock.store.tokens import AuditEntry

if TYPE_CHECKING:
    from penstock.server.oidc.provider import Provider

router = APIRouter(include_in_schema=False)
WAY: Final = "penstock-way"
"""The cookie between the two visits."""
PATIENCE: Final = 600.0
"""Seconds that one has at the provider."""
NOTE: Final = "signed in at "


def provider_of(request: Request) -> Provider | None:
    found: Provider | None = request.app.state.provider
    return found


def _here(request: Request) -> tuple[Provider, AccessGate]:
    provider = provider_of(request)
    if provider is None:
        fix = "sign in with a token; an admin lets people sign in elsewhere with penstock serve --sign-in FILE"
        raise RequestRefused(404, Problem("P964", "this server knows no place to sign in at", fix))
    return provider, request.app.state.gate


@router.get("/login/oidc")
async def leave(request: Request, next: str = "/") -> Response:
    """To the provider."""
    provider, gate = _here(request)
    word, until, there = secrets.token_urlsafe(24), int(time.time() + PATIENCE), local(next[:1000])
    state, nonce, verifier = (gate.signed(what, word) for what in ("state", "nonce", "verifier"))
    response = RedirectResponse(await provider.door(state, nonce, verifier), 303)
    head = f"{word}.{until}.{there.encode().hex()}"
    secure = provider.settings.url.startswith("https:")
    response.set_cookie(
        WAY,
        f"{head}.{gate.signed('way', head)}",
        int(PATIENCE),
        path="/login",
        httponly=True,
        samesite="lax",
        secure=secure,
    )
    return response


@router.get("/login/oidc/callback")
async def arrive(request: Request, code: str = "", state: str = "", iss: str = "", error: str = "") -> Response:
    """Back from it, with a code."""
    provider, gate = _here(request)
    word, until, there = _way(request, gate)
    if not hmac.compare_digest(state.encode(), gate.signed("state", word).encode()):
        raise _not_ours("the answer belongs to another sign-in (state)")
    if not await threads_of(request).call(lambda store: store.tokens.use_sign_in(word, until, time.time())):
        raise _not_ours("this sign-in has been used")
    metadata = await provider.metadata()
    if (iss or metadata.get("authorization_response_iss_parameter_supported")) and iss != provider.settings.issuer:
        raise _not_ours("the answer comes from another provider (iss)")
    if error or not code:
        message = f"{provider.settings.shown} did not let you in: {(error or 'it gave no code')[:100]}"
        raise RequestRefused(403, Problem("P963", message, "sign in again"))
    found = await provider.claims(code, gate.signed("verifier", word), gate.signed("nonce", word))
    who = await _session(request, provider, found)
    response = RedirectResponse(there, 303)
    secure = provider.settings.url.startswith("https:")
    age = int(provider.settings.session)
    response.set_cookie(COOKIE, gate.cookie(who), max_age=age, httponly=True, samesite="lax", secure=secure)
    response.delete_cookie(WAY, path="/login")
    return response


def _way(request: Request, gate: AccessGate) -> tuple[str, float, str]:
    """The word of the cookie, until when it is good, and where to afterwards. Raises RequestRefused."""
    head, _, signature = request.cookies.get(WAY, "").rpartition(".")
    parts = head.split(".")
    if len(parts) != 3 or not hmac.compare_digest(signature.encode(), gate.signed("way", head).encode()):
        raise _not_ours("this browser has not begun to sign in here, or keeps no cookies")
    word, until, there = parts
    if float(until) < time.time():
        raise _not_ours("it took more than ten minutes")
    return word, float(until), local(bytes.fromhex(there).decode())


async def _session(request: Request, provider: Provider, found: dict[str, Any]) -> Identity:
    """A token that nobody knows, for the cookie to name: it can be seen and revoked as others are. Raises NotAllowed."""
    settings, now = provider.settings, time.time()
    person, groups = claims_of.person_of(settings, found), claims_of.groups_of(settings, found)
    role = claims_of.role_of(settings.roles, groups)
    made = None
    if role is not None:
        made, _ = tokens.made(person, role, now, settings.session, f"{NOTE}{settings.shown}", groups)
    entry = AuditEntry(0, now, person, made.id if made else "", "sign in", settings.shown, 303 if made else 403)

    def keep(store: Any) -> None:
        if made is not None:
            store.tokens.put(made)
        store.tokens.note(entry)

    await threads_of(request).call(keep)
    if made is None:
        raise claims_of.refused(settings, person, groups)
    return tokens.still(made, now)


def _not_ours(why: str) -> RequestRefused:
    return RequestRefused(400, Problem("P961", f"signing in failed: {why}", "sign in again"))


@router.post("/logout")
async def sign_out(request: Request) -> Response:
    """A session that began at the provider is over, on every server; a token goes on, without this browser."""
    provider, gate = provider_of(request), request.app.state.gate
    there = "/login"
    who = await gate.known(request)
    if who is not None and gate.same_origin(request):

        def end(store: Any) -> bool:
            found = store.tokens.by_id(who.token)
            session = found is not None and found.note.startswith(NOTE)
            return session and store.tokens.revoke(who.token, time.time())

        if await threads_of(request).call(end) and provider is not None:
            there = f"/login?{urlencode({'left': '1'})}"
    response = RedirectResponse(there, 303)
    response.delete_cookie(COOKIE)
    return response
