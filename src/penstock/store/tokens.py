"""Tokens of people and programs, and what they did, in the database. `Store.tokens`; called by service.tokens and the server."""

from __future__ import annotations

from typing import NamedTuple

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
    revoked: float | None


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
        self._session.transact(lambda: self._db.write("put_token", token[:7]))

    def by_id(self, id: str) -> AccessToken | None:
        return next((AccessToken(*row) for row in self._db.rows("token", (id,))), None)

    def all(self) -> list[AccessToken]:
        return [AccessToken(*row) for row in self._db.rows("tokens")]

    def revoke(self, id: str, now: float) -> bool:
        """False: there is none, or it was revoked before."""
        return self._session.transact(lambda: self._db.write("revoke_token", (now, id))) > 0

    def note(self, entry: AuditEntry) -> None:
        """The store numbers it."""
        self._session.transact(lambda: self._db.write("put_audit", entry[1:]), repeatable=False)

    def audit(self, before: int, limit: int) -> list[AuditEntry]:
        """The newest first, those with a lower number than `before`."""
        return [AuditEntry(*row) for row in self._db.rows("audit", (before, limit))]
