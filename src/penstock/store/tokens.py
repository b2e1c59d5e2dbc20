"""Tokens of people and programs, and what they did, in the database. `Store.tokens`; called by service.tokens and the server."""

from __future__ import annotations

import json
from typing import NamedTuple

from penstock.store.drivers.base import Row
from penstock.store.session import Session


class AccessToken(NamedTuple):
    id: str
    digest: str
    """Of the secret part, which is kept nowhere."""
    person: str
    role: str
    note: str
    created: float
    expires: float | None
    revoked: float | None = None
    groups: tuple[str, ...] = ()
    """For the lists of queues: who may submit, and who administers."""
    scopes: tuple[str, ...] = ()
    """The parts of the API that it is for; empty: all."""


class AuditEntry(NamedTuple):
    """Somebody did something through a server, or tried to."""

    number: int
    at: float
    person: str
    token: str
    """The id of the token; not the token."""
    verb: str
    target: str
    status: int
    """Of the answer, as in HTTP."""


class TokenRepository:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._db = session.db

    def put(self, token: AccessToken) -> None:
        lists = json.dumps(token.groups), json.dumps(token.scopes)
        self._session.transact(lambda: self._db.write("put_token", (*token[:7], *lists)))

    def by_id(self, id: str) -> AccessToken | None:
        return next(map(_token, self._db.rows("token", (id,))), None)

    def all(self) -> list[AccessToken]:
        return list(map(_token, self._db.rows("tokens")))

    def revoke(self, id: str, now: float) -> bool:
        """False: there is none, or it was revoked before."""
        return self._session.transact(lambda: self._db.write("revoke_token", (now, id))) > 0

    def use_sign_in(self, id: str, until: float, now: float) -> bool:
        """False: somebody has come with it before. It is remembered `until` nobody could."""

        def work() -> int:
            self._db.write("drop_sign_ins", (now,))
            return self._db.write("put_sign_in", (id, until))

        return self._session.transact(work, repeatable=False) > 0

    def note(self, entry: AuditEntry) -> None:
        """The store numbers it."""
        self._session.transact(lambda: self._db.write("put_audit", entry[1:]), repeatable=False)

    def audit(self, before: int, limit: int, person: str = "") -> list[AuditEntry]:
        """The newest first, those with a lower number than `before`. `person`: empty is everybody."""
        if person:
            return [AuditEntry(*row) for row in self._db.rows("audit_of", (person, before, limit))]
        return [AuditEntry(*row) for row in self._db.rows("audit", (before, limit))]


def _token(row: Row) -> AccessToken:
    id, digest, person, role, note, created, expires, revoked, groups, scopes = row
    return AccessToken(id, digest, person, role, note, created, expires, revoked, _names(groups), _names(scopes))


def _names(text: str) -> tuple[str, ...]:
    return tuple(map(str, json.loads(text)))
