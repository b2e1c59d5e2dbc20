"""Does the rows of the outbox that say that a run with links has ended: decides about its links, and records the runs that they start. Made by
service.couriers.

All that follows from one end (the runs, their orders, what became of the links, and that the row is done) is one transaction. What takes time, the plans of
the new runs, is made before it; if somebody else has decided about the same links meanwhile, it is made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.engine.follow import FOLLOW
from penstock.errors import NotFound, PlanError, Problem, StoreError, UserError
from penstock.graph.chains import defined, in_order, name_of, target_of
from penstock.graph.model import Link, Workflow
from penstock.service.chains.decide import LinkDecision, decide
from penstock.service.chains.passing import Before, Passing
from penstock.service.run_records import workflow_of
from penstock.service.submission import LINK, Submission
from penstock.settings import Settings
from penstock.store import outbox
from penstock.store.links import DEAD, STARTED, LinkRow
from penstock.store.outbox import OutboxEntry
from penstock.store.records import Origin, RunRecord
from penstock.store.sql import Store

TRIES: Final = 20
"""How often what follows is worked out anew because others have decided meanwhile."""


class _Settled(Exception):
    """Somebody else has done this row: nothing of ours is written."""


class Follow(NamedTuple):
    """What is to be recorded about one link."""

    row: LinkRow
    submission: Submission | None = None
    """Of the run that it starts."""
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
            self.one(store, entry)

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
        own = own._replace(ended=end, seq=entry.seq) if entry.seq >= own.seq else own
        maker = _Maker(self._settings, store, workflow, head, {**rows, place: own}, entry.data.get("groups"))
        follows: list[Follow] = []
        faults: dict[str, UserError] = {}

        def holds(link: Link) -> bool:
            try:
                return maker.passing(link).holds()
            except StoreError:
                raise
            except UserError as error:
                faults[name_of(link)] = error
                return True

        for decision in decide(in_order(workflow), rows, place, end, entry.seq, holds):
            follows.append(self._follow(maker, decision, root, faults.get(name_of(decision.link))))
        newest = own if own.seq == entry.seq else None
        return PlannedLinks(run, head.number, root, rows, newest, follows)

    def _follow(self, maker: _Maker, decision: LinkDecision, root: int, fault: UserError | None) -> Follow:
        link = decision.link
        row = LinkRow(maker.head.number, name_of(link), root, link.workflow, decision.state, at=self._now())
        if decision.state != STARTED:
            return Follow(row._replace(ended=decision.end, why=decision.why), dropped=not decision.state)
        try:
            if fault is not None:
                raise fault
            return Follow(row, maker.submission(link))
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
        for row, submission, dropped in planned.follows:
            if dropped:
                store.links.drop(row.head, row.name)
                continue
            if submission is not None and many >= self._settings.links:
                row, submission = row._replace(state=DEAD, why=_said(_too_many(self._settings.links))), None
            if submission is not None:
                origin = Origin(root=planned.root, parent=planned.run.number, link=row.name)
                run = submission.record(store, self._now(), origin)
                store.orders.put(run.number, "run", {})
                row = row._replace(run=run.number)
                made.append(run.number)
                many += 1
            store.links.put(row)
            why = why or (row.why if row.state == DEAD else "")
        if not store.outbox.settle(entry, outbox.DEAD if why else outbox.DONE, entry.attempts + 1, why):
            raise _Settled
        return made


class _Maker:
    """Makes the runs that the links of one run start."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        workflow: Workflow,
        head: RunRecord,
        rows: Mapping[str, LinkRow],
        groups: Sequence[str] | None,
    ) -> None:
        self.head = head
        self._settings = settings
        self._store = store
        self._workflow = workflow
        self._rows = rows
        self._groups = None if groups is None else tuple(groups)

    def passing(self, link: Link) -> Passing:
        target = target_of(self._workflow, link)
        return Passing(self._settings, link, target, self.head, [self._before(name) for name in link.after or ("",)])

    def _before(self, name: str) -> Before:
        by_name = {name_of(link): link for link in self._workflow.links}
        workflow = defined(self._workflow)[by_name[name].workflow if name else self._workflow.name]
        row = self._rows.get(name)
        run = None if row is None or not row.run else self._store.runs.by_number(row.run)
        return Before(workflow, run if run is not None else self.head if not name else None)

    def submission(self, link: Link) -> Submission:
        """Raises UserError: it cannot be run, or the person who began the chain may not."""
        given, head = self.head.options, self.head
        kept: dict[str, Any] = {name: given[name] for name in ("file", "fail_fast", "fresh", "on") if given.get(name)}
        made = Submission(
            target_of(self._workflow, link),
            self.passing(link).params(),
            person=head.user,
            groups=self._groups,
            place=given.get("place", ""),
            scheduler=self._settings.scheduler,
            **kept,
        )
        for name in ("bundle", "secrets"):
            if name in given:
                made.options[name] = given[name]
        about = {"head": head.number, "place": name_of(link)}
        if self._groups is not None:
            about["groups"] = list(self._groups)
        made.options[FOLLOW] = [*made.options.get(FOLLOW, ()), {"kind": LINK, "data": about}]
        made.copy_files(self._settings)
        made.admit(self._store)
        tracked = self._store.tracking.of(head.number)
        made.tracked = None if tracked is None else (tracked.url, tracked.experiment)
        return made


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
