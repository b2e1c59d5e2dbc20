"""Tokens with which somebody outside answers an attempt, as their digests, and the answers. `Store.answers`; called by the engine, and by
service.answers.

A token follows from the key of the store and the attempt: every engine can make it again, and nothing that is kept tells it without the key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from typing import Any, Final

from penstock.store.drivers.base import Row
from penstock.store.orders import OrderRepository
from penstock.store.records import AnswerRow
from penstock.store.runs import RunRepository
from penstock.store.session import Session

_KEY: Final = "answer-key"
"""The name of the key among the notes of the store."""


def token_of(key: bytes, run: int, created: float, task: str, attempt: int) -> str:
    """256 bits, in digits and letters: in a URL and on a command line it is one word that begins with no dash."""
    text = json.dumps([run, repr(created), task, attempt])
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class AnswerRepository:
    def __init__(self, session: Session, runs: RunRepository, orders: OrderRepository) -> None:
        self._session = session
        self._db = session.db
        self._runs = runs
        self._orders = orders

    def key(self) -> bytes:
        """That tokens are made with: made by whoever needs it first."""
        rows = self._db.rows("meta", (_KEY,))
        if not rows:
            made = os.urandom(32).hex()
            self._session.transact(lambda: self._db.write("add_meta", (_KEY, made)))
            rows = self._db.rows("meta", (_KEY,))
        return bytes.fromhex(rows[0][0])

    def find(self, token: str) -> AnswerRow | None:
        digest = digest_of(token)
        found = next(map(_answer, self._db.rows("answer", (digest,))), None)
        return found if found is not None and hmac.compare_digest(found.digest, digest) else None

    def of(self, run: int, task: str, attempt: int) -> AnswerRow | None:
        return next(map(_answer, self._db.rows("answer_of", (run, task, attempt))), None)

    def waiting_for(self, payload: str) -> list[tuple[int, str, int]]:
        """The attempts that are answered when this payload, and others perhaps, have ended: (run, task, attempt)."""
        return [(run, task, attempt) for run, task, attempt in self._db.rows("payload_waiters", (payload,))]

    def payloads_of(self, run: int, task: str, attempt: int) -> list[str]:
        """What the attempt waits for."""
        return [row[0] for row in self._db.rows("waited_payloads", (run, task, attempt))]

    def forget_payloads(self, run: int, task: str, attempt: int) -> None:
        """It does not wait for them any more."""
        self._session.transact(lambda: self._db.write("drop_payload_waits", (run, task, attempt)))

    def give(self, row: AnswerRow, data: dict[str, Any], now: float, order: bool) -> bool:
        """The answer, and the request to the engine that waits for it; with `order`, the next free worker goes on with the run. False: there
        is one already, or it is too late."""
        text = json.dumps(data)

        def work() -> bool:
            if not self._db.write("give_answer", (text, now, row.digest)):
                return False
            self._runs.request(row.run, "answer", {"task": row.task}, now)
            if order and self._orders.of(row.run) is None:  # what else is ordered comes first
                self._orders.put(row.run, "run", {})
            return True

        return self._session.transact(work, repeatable=False)

    def beat(self, row: AnswerRow, now: float) -> bool:
        """A sign of life. False: there is an answer already, or it is too late."""
        return self._session.transact(lambda: self._db.write("beat_answer", (now, row.digest))) > 0

    def expire(self, row: AnswerRow, now: float) -> bool:
        """Nothing came in time. False: something did."""
        return self._session.transact(lambda: self._db.write("expire_answer", (now, row.digest, row.beat))) > 0


def _answer(row: Row) -> AnswerRow:
    *head, data = row
    return AnswerRow._make((*head, json.loads(data)))
