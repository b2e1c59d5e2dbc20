"""An OpenID provider, asked over HTTP: where its doors are, its keys, what it gives for a code. Called by pages.oidc.

What it says is believed only if it is signed with one of its keys, for us, for this sign-in, and now. Algorithms without a key of the
provider's own (none, HS256) are never taken. Keys are kept, and asked for again when one is not known: providers change them.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, urlencode

import httpx2
from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from penstock.errors import Problem
from penstock.server.oidc.settings import SignInSettings, is_safe
from penstock.server.problems import RequestRefused

ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
    "EdDSA",
)
PATIENCE: Final = 10.0
LARGEST: Final = 2**20
KEPT: Final = 3600.0
"""Seconds after which the provider is asked anew where its doors are, and for its keys."""
PAUSE: Final = 5.0
"""Seconds between two questions for keys because of one that is not known."""


class Provider:
    """`clock`: for tests."""

    def __init__(self, settings: SignInSettings, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self._clock = clock
        self._metadata: dict[str, Any] = {}
        self._read = float("-inf")
        self._keys: KeySet | None = None
        self._keyed = float("-inf")
        self._lock = asyncio.Lock()

    async def door(self, state: str, nonce: str, verifier: str) -> str:
        """Where a browser is sent. Raises RequestRefused."""
        metadata = await self.metadata()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        asked = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.callback,
            "scope": " ".join(self.settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        there: str = metadata["authorization_endpoint"]
        return f"{there}{'&' if '?' in there else '?'}{urlencode(asked)}"

    async def exit(self) -> str:
        """Where one signs out of the provider too; empty: it has no such door."""
        with suppress(RequestRefused):
            there = (await self.metadata()).get("end_session_endpoint")
            if isinstance(there, str) and _is_door(there):
                asked = {"client_id": self.settings.client_id, "post_logout_redirect_uri": f"{self.settings.url}/login"}
                return f"{there}{'&' if '?' in there else '?'}{urlencode(asked)}"
        return ""

    async def claims(self, code: str, verifier: str, nonce: str) -> dict[str, Any]:
        """What it says of whoever came with the code: checked. Raises RequestRefused."""
        given = await self._exchange(code, verifier)
        token = given.get("id_token")
        if not isinstance(token, str):
            raise self._wrong("it gave no ID token")
        found = await self._checked(token, nonce, given.get("access_token"))
        metadata = await self.metadata()
        more = metadata.get("userinfo_endpoint")
        wanted = {self.settings.person, self.settings.groups} - found.keys()
        if wanted and isinstance(more, str) and _is_door(more) and isinstance(given.get("access_token"), str):
            told = await self._ask("GET", more, headers={"Authorization": f"Bearer {given['access_token']}"})
            if told.get("sub") != found["sub"]:
                raise self._wrong("it tells of somebody else (sub)")
            found = {**told, **found}
        return found

    async def metadata(self) -> dict[str, Any]:
        """Raises RequestRefused."""
        async with self._lock:
            if self._clock() - self._read > KEPT:
                base = self.settings.issuer.rstrip("/")
                try:
                    found = await self._ask("GET", f"{base}/.well-known/openid-configuration")
                    self._metadata = self._vetted(found)
                except RequestRefused:
                    if not self._metadata:
                        raise
                self._read = self._clock()
        return self._metadata

    def _vetted(self, found: dict[str, Any]) -> dict[str, Any]:
        if found.get("issuer") != self.settings.issuer:
            raise self._wrong(f"it calls itself {str(found.get('issuer'))[:100]!r}, not {self.settings.issuer!r}")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not isinstance(found.get(name), str) or not _is_door(found[name]):
                raise self._wrong(f"its {name} is missing, or is no https address")
        return found

    # -- what it gives ------------------------------------------------------------------------------------------------

    async def _exchange(self, code: str, verifier: str) -> dict[str, Any]:
        metadata = await self.metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.settings.callback,
            "code_verifier": verifier,
        }
        ways = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        headers = {}
        if self.settings.secret and "client_secret_basic" in ways:
            pair = f"{quote(self.settings.client_id, safe='')}:{quote(self.settings.secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form["client_id"] = self.settings.client_id
            if self.settings.secret:
                form["client_secret"] = self.settings.secret
        return await self._ask("POST", metadata["token_endpoint"], data=form, headers=headers)

    async def _checked(self, token: str, nonce: str, access: Any) -> dict[str, Any]:
        """Raises RequestRefused."""
        metadata = await self.metadata()
        taken = [
            one for one in ALGORITHMS if one in (metadata.get("id_token_signing_alg_values_supported") or ["RS256"])
        ]
        registry = jws.JWSRegistry(algorithms=taken, strict_check_header=False)
        try:
            read = await self._verified(token, taken, registry)
            claims = read.claims
            rules = jwt.JWTClaimsRegistry(
                int(self._clock()),
                int(self.settings.skew),
                iss={"essential": True, "value": self.settings.issuer},
                aud={"essential": True, "value": self.settings.client_id},
                sub={"essential": True},
                exp={"essential": True},
                iat={"essential": True},
                nonce={"essential": True, "value": nonce},
            )
            rules.validate(claims)
        except (JoseError, ValueError) as error:
            said = getattr(error, "description", "") or getattr(error, "error", "") or type(error).__name__
            raise self._wrong(f"its ID token is not good: {str(said)[:200]}") from None
        audience = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        party = claims.get("azp")
        if (len(audience) > 1 and party is None) or (party is not None and party != self.settings.client_id):
            raise self._wrong("its ID token is not good: it was made for another client (azp)")
        said = claims.get("at_hash")
        if (
            isinstance(said, str)
            and isinstance(access, str)
            and not _belongs(said, access, str(read.header.get("alg")))
        ):
            raise self._wrong("its ID token is not good: it belongs to another access token (at_hash)")
        return claims

    async def _verified(self, token: str, taken: list[str], registry: jws.JWSRegistry) -> jwt.Token:
        """Asks for the keys again if none of those that are known has made this. Raises JoseError, ValueError, RequestRefused."""
        keys = await self._key_set(fresh=False)
        try:
            return jwt.decode(token, keys, taken, registry)
        except (JoseError, ValueError):
            again = await self._key_set(fresh=True)
            if again is keys:
                raise
            return jwt.decode(token, again, taken, registry)

    async def _key_set(self, fresh: bool) -> KeySet:
        metadata = await self.metadata()
        async with self._lock:
            age = self._clock() - self._keyed
            if self._keys is None or age > KEPT or (fresh and age > PAUSE):
                found = await self._ask("GET", metadata["jwks_uri"])
                given = found.get("keys")
                good = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
                asymmetric = [one for one in good if one.get("kty") in ("RSA", "EC", "OKP") and one.get("use") != "enc"]
                try:
                    self._keys = KeySet.import_key_set({"keys": asymmetric})
                except (JoseError, ValueError, TypeError):
                    raise self._wrong("its keys cannot be read") from None
                self._keyed = self._clock()
            return self._keys

    async def _ask(self, method: str, url: str, **given: Any) -> dict[str, Any]:
        """Raises RequestRefused. Redirects are not followed: what is sent has secrets in it."""
        try:
            async with (
                asyncio.timeout(PATIENCE),
                httpx2.AsyncClient(timeout=PATIENCE, follow_redirects=False) as client,
                client.stream(method, url, **_with_kind(given)) as answer,
            ):
                body = bytearray()
                async for piece in answer.aiter_bytes():
                    body += piece
                    if len(body) > LARGEST:
                        raise self._wrong("its answer is too long")
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, OSError) as error:
            raise self._away(type(error).__name__) from None
        data: Any = None
        with suppress(ValueError):
            data = json.loads(bytes(body))
        if answer.status_code >= 500:
            raise self._away(f"HTTP {answer.status_code}")
        if answer.status_code != 200 or not isinstance(data, dict):
            said = data.get("error") if isinstance(data, Mapping) else None
            raise self._wrong(f"HTTP {answer.status_code}" + (f", {str(said)[:100]}" if said else ""))
        return data

    def _away(self, why: str) -> RequestRefused:
        message = f"{self.settings.shown} does not answer ({why})"
        return RequestRefused(503, Problem("P962", message, "try again; with a token one can sign in meanwhile"))

    def _wrong(self, why: str) -> RequestRefused:
        message = f"signing in at {self.settings.shown} failed: {why}"
        return RequestRefused(
            400, Problem("P961", message, "sign in again; if it happens again, tell an admin of the server")
        )


def _with_kind(given: dict[str, Any]) -> dict[str, Any]:
    return {**given, "headers": {"Accept": "application/json", **given.get("headers", {})}}


def _is_door(address: str) -> bool:
    return is_safe(address.partition("?")[0])


def _belongs(said: str, access: str, algorithm: str) -> bool:
    name = {"256": "sha256", "384": "sha384", "512": "sha512"}.get(algorithm[-3:])
    if name is None:
        return True  # of the Ed curves: not defined in the same way everywhere
    digest = hashlib.new(name, access.encode("ascii", "replace")).digest()
    made = base64.urlsafe_b64encode(digest[: len(digest) // 2]).decode().rstrip("=")
    return hmac.compare_digest(made.encode(), said.encode())
