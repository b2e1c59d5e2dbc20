"""Steps that wait for payloads: they are answered when the work on all of them has ended. Called by couriers.

Nothing is missed: a step that begins to wait commits that, and then it is looked whether the payloads have ended; a run that ends commits that,
and then it is looked who waits. Whichever commits last, somebody looks after it. Looking twice does no harm: an answer is given once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from penstock.engine.follow import PAYLOAD_ENDED, PAYLOAD_WAIT
from penstock.service.run_records import owner_alive
from penstock.store.outbox import DONE, OutboxEntry
from penstock.store.records import FINAL, PayloadRecord
from penstock.store.sql import Store


class BegunWaits:
    """Rows that say that a step waits."""

    kind = PAYLOAD_WAIT

    def deliver(self, store: Store, entries: Sequence[OutboxEntry]) -> None:
        for entry in entries:
            answer_if_ended(store, entry.run, entry.data["task"], entry.data["attempt"])
            store.outbox.settle(entry, DONE, entry.attempts + 1)


class EndedPayloads:
    """Rows that say that work on a payload has ended."""

    kind = PAYLOAD_ENDED

    def deliver(self, store: Store, entries: Sequence[OutboxEntry]) -> None:
        for entry in entries:
            for run, task, attempt in store.answers.waiting_for(entry.data["payload"]):
                answer_if_ended(store, run, task, attempt)
            store.outbox.settle(entry, DONE, entry.attempts + 1)


def answer_if_ended(store: Store, number: int, task: str, attempt: int) -> None:
    """Answers the attempt if all its payloads have ended."""
    row = store.answers.of(number, task, attempt)
    run = store.runs.by_number(number)
    if row is None or row.state != "open" or run is None or run.state in FINAL:
        store.answers.forget_payloads(number, task, attempt)
        return
    found: dict[str, Any] = {}
    for id in store.answers.payloads_of(number, task, attempt):
        payload = store.payloads.find(id)
        if payload is None or payload.run_state not in FINAL:
            return
        found[id] = _ended(store, payload)
    data = {"outputs": {"payloads": found}}
    store.answers.give(row, data, time.time(), order=owner_alive(store, run) is False)
    store.answers.forget_payloads(number, task, attempt)


def _ended(store: Store, payload: PayloadRecord) -> dict[str, Any]:
    run = store.runs.by_number(payload.run)
    outputs = {} if run is None or run.outputs is None else run.outputs
    return {"state": payload.state, "run": payload.run_id, "outputs": outputs}
