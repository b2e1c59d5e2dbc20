"""Does the rows of the outbox that say that a run with links has ended: decides about its links, and records the runs that they start. Made by
service.couriers.

All that follows from one end (the runs, their orders, what became of the links, and that the row is done) is one transaction. What takes time, the plans of
the new runs, is made before it; if somebody else has decided about the same links meanwhile, it is made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.engine.follow import FOLLOW, row_key
from penstock.errors import NotFound, PenstockError, PlanError, Problem, StoreError, UserError
from penstock.graph.chains import name_of
from penstock.graph.model import Link
from penstock.service.chains.decide import LinkDecision, decide
from penstock.service.chains.making import Maker, Prepared
from penstock.service.payloads.process import PROCESS
from penstock.service.run_records import workflow_of
from penstock.service.submission import LINK
from penstock.settings import Settings
from penstock.store import outbox
from penstock.store.links import DEAD, STARTED, LinkRow
from penstock.store.outbox import OutboxEntry
from penstock.store.records import FINAL, INVALID, Origin, RunRecord
from penstock.store.sql import Store

FAULTS: Final = 8
PAUSE: Final = 1.0
"""Seconds, doubled each time: after a fault of ours a row is tried again so many times."""
TRIES: Final = 20
"""How often what follows is worked out anew because others have decided meanwhile."""


class _Settled(Exception):
    """Somebody else has done this row: nothing of ours is written."""


class Follow(NamedTuple):
    """What is to be recorded about one link."""

    row: LinkRow
    prepared: Prepared | None = None
    """The run that it starts."""
    dropped: bool = False


class PlannedLinks(NamedTuple):
    """What follows from one row of the outbox, as long as `rows` is what was decided before."""

    run: RunRecord
    head: int
    root: int
    rows: Mapping[str, LinkRow]
    own: LinkRow | None
    """Of the run that has ended, with its end; None: a later end is recorded."""
    follows: Sequence[Follow]


class LinkDelivery:
    """`now`: for what is recorded."""

    kind = LINK

    def __init__(self, settings: Settings, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._now = now

    def deliver(self, store: Store, entries: Sequence[OutboxEntry]) -> None:
        for entry in entries:
            try:
                self.one(store, entry)
            except PenstockError:
                raise
            except Exception as error:  # a fault of ours must not hold up the links of others
                tries, said = entry.attempts + 1, f"{type(error).__name__}: {error}"
                state = outbox.NEW if tries < FAULTS else outbox.DEAD
                store.outbox.settle(entry, state, tries, said[:500], self._now() + PAUSE * 2**tries)

    def one(self, store: Store, entry: OutboxEntry) -> list[int]:
        """Does one row. Returns the numbers of the runs that it has started."""
        for _ in range(TRIES):
            try:
                planned = self.plan(store, entry)
            except NotFound as error:
                store.outbox.settle(entry, outbox.DEAD, entry.attempts + 1, str(error))
                return []
            try:
                made = store.links.deciding(lambda: self.record(store, entry, planned))  # noqa: B023  called at once
            except _Settled:
                return []
            if made is not None:
                return made
        store.outbox.settle(entry, outbox.NEW, entry.attempts + 1, "others decide all the time", self._now() + 1.0)
        return []

    # -- before the transaction ---------------------------------------------------------------------------------------

    def plan(self, store: Store, entry: OutboxEntry) -> PlannedLinks:
        """Raises NotFound: a run that is needed has been removed."""
        run, head = _run(store, entry.run), _run(store, int(entry.data.get("head") or entry.run))
        workflow = workflow_of(store, head)
        place, end = str(entry.data.get("place", "")), str(entry.data["end"])
        origin = store.runs.origin(run.number)
        root = origin.root if origin is not None else run.number
        rows = store.links.of_head(head.number)
        own = rows.get(place) or LinkRow(head.number, place, root, run.workflow, STARTED, run.number, at=self._now())
        newest = (run.number, entry.seq) >= (own.run, own.seq)  # a payload that is driven again has another run
        own = own._replace(run=run.number, ended=end, seq=entry.seq) if newest else own
        maker = Maker(self._settings, store, workflow, head, {**rows, place: own}, entry.data.get("groups"))
        follows: list[Follow] = []
        faults: dict[str, UserError] = {}

        def unmet(link: Link) -> str:
            try:
                return maker.passing(link).unmet()
            except StoreError:
                raise
            except UserError as error:
                faults[name_of(link)] = error
                return ""

        if maker.fault is not None:
            row = LinkRow(head.number, PROCESS, root, "", DEAD, why=_said(maker.fault), at=self._now())
            follows.append(Follow(row))
        for decision in decide(maker.links, rows, place, end, (run.number, entry.seq), unmet):
            follows.append(self._follow(maker, decision, root, faults.get(name_of(decision.link))))
        return PlannedLinks(run, head.number, root, rows, own if newest else None, follows)

    def _follow(self, maker: Maker, decision: LinkDecision, root: int, fault: UserError | None) -> Follow:
        link = decision.link
        row = LinkRow(maker.head.number, name_of(link), root, link.workflow, decision.state, at=self._now())
        if decision.state != STARTED:
            return Follow(row._replace(ended=decision.end, why=decision.why), dropped=not decision.state)
        try:
            if fault is not None:
                raise fault
            return Follow(row, maker.prepared(link))
        except StoreError:
            raise
        except UserError as error:
            return Follow(row._replace(state=DEAD, why=_said(error)))

    # -- in the transaction -------------------------------------------------------------------------------------------

    def record(self, store: Store, entry: OutboxEntry, planned: PlannedLinks) -> list[int] | None:
        """The numbers of the runs that it has recorded. None: others have decided since, nothing is written."""
        if store.links.of_head(planned.head) != planned.rows:
            return None
        if planned.own is not None:
            store.links.put(planned.own)
        made: list[int] = []
        why = ""
        many = store.links.started(planned.root)
        for row, prepared, dropped in planned.follows:
            if dropped:
                store.links.drop(row.head, row.name)
                continue
            if prepared is not None and many >= self._settings.links:
                row, prepared = row._replace(state=DEAD, why=_said(_too_many(self._settings.links))), None
            if prepared is not None:
                origin = Origin(root=planned.root, parent=planned.run.number, link=row.name)
                number, known = prepared.record(store, self._now(), origin)
                row = row._replace(run=number, why=known)
                if known:
                    self._known(store, row)
                else:
                    made.append(number)
                many += 1
            store.links.put(row)
            why = why or (row.why if row.state == DEAD else "")
        if not entry.data.get("head"):
            self._tell_others(store, entry, planned.run)
        if not store.outbox.settle(entry, outbox.DEAD if why else outbox.DONE, entry.attempts + 1, why):
            raise _Settled
        return made

    def _known(self, store: Store, row: LinkRow) -> None:
        """The payload has a run already: if it is over, its end is heard of like any other; if not, see _tell_others."""
        run = store.runs.by_number(row.run)
        if run is not None and run.state in FINAL:
            end = INVALID if run.invalid else run.state
            data = {"head": row.head, "place": row.name, "end": end}
            store.outbox.put(run.number, run.seq, LINK, data, row_key(f"{row.head}/{row.name}", run.seq), self._now())

    def _tell_others(self, store: Store, entry: OutboxEntry, run: RunRecord) -> None:
        """Links that have found this run at work, and not started it, are told of its end, too."""
        own = {
            (one["data"].get("head"), one["data"].get("place")) for one in run.options[FOLLOW] if one["kind"] == LINK
        }
        for row in store.links.of_run(run.number):
            if row.name and not row.ended and (row.head, row.name) not in own:
                data = {"head": row.head, "place": row.name, "end": entry.data["end"]}
                key = row_key(f"{row.head}/{row.name}", entry.seq)
                store.outbox.put(run.number, entry.seq, LINK, data, key, self._now())


def _run(store: Store, number: int) -> RunRecord:
    found = store.runs.by_number(number)
    if found is None:
        raise NotFound(
            Problem("P505", "a run of the chain has been removed", "keep the runs of a chain until it has ended")
        )
    return found


def _said(error: UserError) -> str:
    return "; ".join(f"{one.code} {one.message}" for one in error.problems)


def _too_many(most: int) -> PlanError:
    message = f"{most:,} runs have followed from the first one: the chain ends here"
    fix = "give the link a condition that ends it, or let more follow: PENSTOCK_LINKS"
    return PlanError(Problem("P546", message, fix))
