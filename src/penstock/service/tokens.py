"""Tokens: who may call a server, as whom, and what for. Called by the server for every request, and by `penstock token`.

A token is `pst_ID_SECRET`. The store keeps the id and a digest of the secret, so whoever reads the store cannot use it. A secret has 256
random bits: a plain digest of it cannot be guessed, and one that is compared in constant time tells nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.errors import NotAllowed as NotAllowed
from penstock.errors import NotFound, PlanError, Problem, nearest
from penstock.errors import NotSignedIn as NotSignedIn
from penstock.store.runs import NO_LIMIT
from penstock.store.sql import Store
from penstock.store.tokens import AccessToken, AuditEntry

ROLES: Final = ("viewer", "submitter", "operator", "admin")
"""Each may do what those before it may. viewer: look at everything · submitter: start runs, and end or retry those of its own ·
operator: those of everybody, and stop queues · admin: change queues, give tokens."""
SCOPES: Final = ("runs", "payloads", "queues", "cluster", "records", "verbs", "files", "people", "server", "store")
"""The parts of the API, as its routes are tagged. records: usage, cost, flows · verbs: plan, convert · people: tokens, audit · server: metrics, errors ·
store: what commands with --server read of the store."""
PREFIX: Final = "pst"
MOST_NAME: Final = 100


class Identity(NamedTuple):
    """Who calls a server."""

    person: str
    role: str
    token: str
    """The id of the token."""
    groups: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


def create(
    store: Store,
    person: str,
    role: str,
    now: float,
    lifetime: float | None = None,
    note: str = "",
    groups: Sequence[str] = (),
    scopes: Sequence[str] = (),
) -> tuple[AccessToken, str]:
    """A new token, and its text, which nobody can find out afterwards. Raises PlanError."""
    token, text = made(person, role, now, lifetime, note, groups, scopes)
    store.tokens.put(token)
    return token, text


def made(
    person: str,
    role: str,
    now: float,
    lifetime: float | None = None,
    note: str = "",
    groups: Sequence[str] = (),
    scopes: Sequence[str] = (),
) -> tuple[AccessToken, str]:
    """A token that is in no store: that of a server which runs for one person. Raises PlanError."""
    if role not in ROLES:
        fix = f"use one of {', '.join(ROLES)}.{nearest(role, ROLES)}"
        raise PlanError(Problem("P932", f"{role!r} is not a role", fix))
    if not person or len(person) > MOST_NAME or not person.isprintable():
        fix = f"give a name of at most {MOST_NAME} printable characters"
        raise PlanError(Problem("P932", f"{person[:MOST_NAME]!r} is not a name for a person", fix))
    for one in scopes:
        if one not in SCOPES:
            fix = f"use some of {', '.join(SCOPES)}.{nearest(one, SCOPES)}"
            raise PlanError(Problem("P932", f"{one!r} is not a part of the API", fix))
    for one in groups:
        if not one or len(one) > MOST_NAME or not one.isprintable() or set(one) & set(" ,"):
            fix = f"give names of at most {MOST_NAME} printable characters, without spaces and commas"
            raise PlanError(Problem("P932", f"{one[:MOST_NAME]!r} is not a name for a group", fix))
    id, secret = secrets.token_hex(6), secrets.token_hex(32)
    expires = None if lifetime is None else now + lifetime
    lists = tuple(dict.fromkeys(groups)), tuple(dict.fromkeys(scopes))
    token = AccessToken(id, _digest(secret), person, role, note[:MOST_NAME], now, expires, None, *lists)
    return token, f"{PREFIX}_{id}_{secret}"


def id_of(text: str) -> str:
    """The part of a token that may be shown. Empty: it is none."""
    parts = text.split("_")
    return parts[1] if len(parts) == 3 and parts[0] == PREFIX else ""


def identity(token: AccessToken | None, text: str, now: float) -> Identity:
    """Whose token this is. `token`: what is known under its id. Raises NotSignedIn."""
    secret = text.rpartition("_")[2]
    known = token.digest if token is not None else _digest("")
    if not hmac.compare_digest(known, _digest(secret)) or token is None:
        raise NotSignedIn(Problem("P930", "this token is not known", _FIX))
    return still(token, now)


def still(token: AccessToken, now: float) -> Identity:
    """Whose it is, unless it has expired or was revoked. Raises NotSignedIn."""
    if token.revoked is not None:
        raise NotSignedIn(Problem("P930", f"the token {token.id} was revoked", _FIX))
    if token.expires is not None and token.expires <= now:
        raise NotSignedIn(Problem("P930", f"the token {token.id} has expired", _FIX))
    return Identity(token.person, token.role, token.id, token.groups, token.scopes)


def revoke(store: Store, id: str, now: float) -> None:
    """From now on it is of no use, on every server of this store. Raises NotFound."""
    found = id_of(id) or id
    if not store.tokens.revoke(found, now):
        known = [one.id for one in store.tokens.all() if one.revoked is None]
        message = f"there is no token {found!r} that could be revoked"
        raise NotFound(Problem("P933", message, f"penstock token ls shows them.{nearest(found, known)}"))


def audit(store: Store, limit: int, person: str = "", before: int | None = None) -> list[AuditEntry]:
    """What was done through servers, the newest first. `person`: only by this one. `before`: those with a lower number."""
    return store.tokens.audit(NO_LIMIT if before is None else before, limit, person)


def forbidden(who: Identity, wanted: str, what: str) -> NotAllowed:
    message = f"{who.person} ({who.role}) may not {what}"
    return NotAllowed(Problem("P931", message, f"ask an admin for a token with the role {wanted}"))


def out_of_scope(who: Identity, part: str) -> NotAllowed:
    message = f"the token {who.token} is for {', '.join(who.scopes)}, and not for {part}"
    return NotAllowed(Problem("P931", message, "ask an admin for one with this scope, or without scopes"))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


_FIX = "ask an admin of the server for a new one: penstock token create"
