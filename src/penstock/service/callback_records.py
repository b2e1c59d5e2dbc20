"""What was sent of callbacks and what came of it, for screens; and sending again by hand. Called by `penstock callbacks`, the run command and
the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from penstock.errors import NotFound, Problem, RunConflict
from penstock.service.access import check_run
from penstock.service.callbacks.delivery import CallbackDelivery
from penstock.service.callbacks.entries import KIND
from penstock.service.outbox.courier import Courier
from penstock.service.policy import Actor
from penstock.settings import Settings
from penstock.store.deliveries import DeliveryAttempt
from penstock.store.outbox import DEAD, DONE, NEW, OutboxEntry
from penstock.store.records import RunRecord
from penstock.store.sql import Store

STATES: Final = (NEW, DONE, DEAD)
_PAGE: Final = 1000


class CallbackRow(NamedTuple):
    """A callback of a run that has ended, or of one of its items."""

    number: int
    run: str
    callback: str
    end: str
    """How the run has ended."""
    place: int | None
    """Of the item."""
    state: str
    """new: still to be delivered; done; dead: given up."""
    attempts: int
    error: str
    at: float
    next_at: float | None
    """When it is tried next."""
    key: str
    tries: tuple[DeliveryAttempt, ...] = ()

    def as_data(self) -> dict[str, Any]:
        return {**self._asdict(), "tries": [one._asdict() for one in self.tries]}


def of_run(store: Store, run: RunRecord) -> list[CallbackRow]:
    return _rows(store, [entry for entry in store.outbox.of_run(run.number) if entry.kind == KIND])


def page(store: Store, states: Sequence[str], limit: int, before: int | None = None) -> list[CallbackRow]:
    """The newest first."""
    return _rows(store, store.outbox.page([KIND], states or STATES, limit, *([] if before is None else [before])))


def one(store: Store, number: int) -> CallbackRow:
    """With its tries. Raises NotFound."""
    return _rows(store, [_entry(store, number)])[0]._replace(tries=tuple(store.deliveries.of(number)))


def dead(store: Store, since: float = 0.0, run: RunRecord | None = None) -> list[int]:
    """The numbers of those that were given up, written since a time."""
    if run is not None:
        found: Iterable[OutboxEntry] = store.outbox.of_run(run.number)
        return [entry.number for entry in found if (entry.kind, entry.state) == (KIND, DEAD) and entry.at >= since]
    numbers: list[int] = []
    before = 1 << 62
    while entries := store.outbox.page([KIND], [DEAD], _PAGE, before):
        numbers += [entry.number for entry in entries if entry.at >= since]
        before = entries[-1].number
    return numbers


def redeliver(
    store: Store, numbers: Iterable[int], now: float, actor: Actor | None, run: RunRecord | None = None
) -> int:
    """Rows that were given up, or delivered, are delivered once more, with the same keys and all their attempts. `actor`: None if somebody else has
    asked whether they may. `run`: whose they must be. Returns how many. Raises NotFound, RunConflict, UserError; then nothing has changed."""
    entries = [_entry(store, number, run) for number in dict.fromkeys(numbers)]
    for entry in entries:
        if entry.state == NEW:
            raise RunConflict(
                Problem("P525", f"the callback {entry.number} is still to be delivered", "penstock callbacks deliver")
            )
        if entry.state == DONE and not entry.attempts:
            fix = f"name those: penstock callbacks ls {_run_name(store, entry.run)}"
            raise RunConflict(
                Problem("P525", f"nothing was sent of {entry.number}: its items have rows of their own", fix)
            )
    if actor is not None:
        for number in {entry.run for entry in entries}:
            record = store.runs.by_number(number)
            if record is not None:
                check_run(store, record, actor, "redeliver callbacks of")
    return sum(store.deliveries.anew(entry, {**entry.data, "before": entry.attempts}, now) for entry in entries)


def deliver(store: Store, settings: Settings, say: Callable[[str], None]) -> dict[str, int]:
    """Deliver what is due, now and here. Returns how many were done, dead, and are still to be delivered (new)."""
    before = store.deliveries.counts(KIND)
    courier = Courier(settings, CallbackDelivery(settings), say)
    while courier.round(store):
        pass
    after = store.deliveries.counts(KIND)
    found = {state: after.get(state, 0) - before.get(state, 0) for state in (DONE, DEAD)}
    return {**found, NEW: after.get(NEW, 0)}


def _entry(store: Store, number: int, run: RunRecord | None = None) -> OutboxEntry:
    entry = store.outbox.of(number) if 0 <= number < 1 << 62 else None
    if entry is None or entry.kind != KIND or (run is not None and entry.run != run.number):
        of = "" if run is None else f" of {run.id}"
        raise NotFound(Problem("P523", f"there is no callback {number}{of}", "penstock callbacks ls shows them"))
    return entry


def _rows(store: Store, entries: Sequence[OutboxEntry]) -> list[CallbackRow]:
    names = {number: _run_name(store, number) for number in {entry.run for entry in entries}}
    return [
        CallbackRow(
            number=entry.number,
            run=names[entry.run],
            callback=str(entry.data.get("callback", "")),
            end=str(entry.data.get("end", "")),
            place=entry.data.get("place"),
            state=entry.state,
            attempts=entry.attempts,
            error=entry.error,
            at=entry.at,
            next_at=entry.next_at if entry.state == NEW else None,
            key=entry.key,
        )
        for entry in entries
    ]


def _run_name(store: Store, number: int) -> str:
    run = store.runs.by_number(number)
    return run.id if run is not None else f"run {number}, removed"
