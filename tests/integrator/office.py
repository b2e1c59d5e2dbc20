"""Runs that have ended and what follows from them, with a clock of the test's own. Used by the tests of callbacks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from penstock.artifacts.values import dumps
from penstock.backends.breaker import BreakerLimits
from penstock.engine import follow
from penstock.graph import codec
from penstock.graph.check import errors
from penstock.graph.model import Workflow
from penstock.service.callbacks.delivery import LIMITS, CallbackDelivery
from penstock.service.outbox.courier import Courier
from penstock.service.submission import Submission
from penstock.settings import Settings
from penstock.store import liveness
from penstock.store.deliveries import DeliveryAttempt
from penstock.store.outbox import OutboxEntry
from penstock.store.records import RunRecord, WriteBatch
from penstock.store.sql import Store
from tests.store.work import write


def workflow(callbacks: Sequence[dict[str, Any]], outputs: Sequence[str] = ("n",), name: str = "one") -> Workflow:
    """With one step, whose output each of its own outputs is."""
    document = {
        "apiVersion": "penstock/v1",
        "kind": "Workflow",
        "name": name,
        "steps": [{"name": "a", "script": {"source": "true"}, "outputs": [{"name": "out"}]}],
        "outputs": [{"name": one, "value": "${{ steps.a.outputs.out }}"} for one in outputs],
        "callbacks": list(callbacks),
    }
    found = codec.from_text(json.dumps(document), "one")
    assert not errors(found), errors(found)
    return found


class Office:
    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self.store = store
        self.now = 1000.0
        self.said: list[str] = []
        self.courier = self.another()

    def another(
        self,
        deliver: Callable[[CallbackDelivery], Any] = lambda made: made,
        draw: float = 1.0,
        limits: BreakerLimits = LIMITS,
    ) -> Courier:
        """A courier. `draw`: where chance has a say, 1 is the longest wait."""
        spares = {"clock": lambda: self.now} if limits is not LIMITS else {}
        made = CallbackDelivery(self.settings, now=lambda: self.now, draw=lambda: draw, limits=limits, **spares)
        return Courier(self.settings, deliver(made), self.said.append, now=lambda: self.now)

    def ended(
        self, found: Workflow, outputs: dict[str, Any] | None = None, end: str = "succeeded", error: str = ""
    ) -> RunRecord:
        """A run of it that has ended so, as an engine records that: the last event, the row of the run and the outbox in one transaction."""
        state = "failed" if end == "invalid" else end
        store, me = self.store, liveness.identity()
        store.peers.register(me)
        run = Submission(found, {}).record(store, now=self.now)
        assert store.runs.take(run.number, me.id, None)
        batch = WriteBatch()
        batch.events.append((run.number, 2, self.now, "run.finished", "", json.dumps({"outcome": state})))
        batch.runs[run.number] = (2, state, self.now, "{}", dumps(outputs or {}), error, 0)
        batch.outbox += follow.rows(run.number, run.id, 2, end, run.options, self.now)
        write(store, batch, me.id)
        store.runs.release(run.number, me.id, state)
        record = store.runs.by_number(run.number)
        assert record is not None and record.state == state
        return record

    def rows(self, run: RunRecord) -> list[OutboxEntry]:
        return self.store.outbox.of_run(run.number)

    def tries(self, row: OutboxEntry) -> list[DeliveryAttempt]:
        return self.store.deliveries.of(row.number)

    def work(self, courier: Courier | None = None) -> None:
        """Deliver what is due."""
        while (courier or self.courier).round(self.store):
            pass

    def later(self, run: RunRecord, courier: Courier | None = None) -> float:
        """Go to the time at which the next of its rows is due, and deliver. Returns how long that was."""
        before = self.now
        self.now = max(self.now, min(row.next_at for row in self.rows(run) if row.state == "new"))
        self.work(courier)
        return self.now - before
