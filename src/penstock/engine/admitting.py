"""Between what could start and what may: what has been asked of the queues is decided, and acted on. Called by loop.

Within one turn: what has ended gives its quota back, what has become ready asks (both see lots), the queues decide, and what was
admitted is handed to the machine as permits. All of it is written in the transaction of the turn, so that tasks start only on quota
that is on record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.engine.attempts import GRACE
from penstock.engine.live import Live, extra
from penstock.engine.lots import Lots
from penstock.engine.steps import StepState, Task
from penstock.graph.model import Unit
from penstock.store.base import Disconnected

if TYPE_CHECKING:
    from penstock.engine.book import Book
    from penstock.engine.reserved import Lot, Reserved


ROUNDS = 16
"""How often the queues are asked again within one turn because of what they have just decided."""
PAUSE = 1.0
"""Seconds before they are asked again after that; and between looks at whether somebody waits for another reason by now."""


class Admitting(Lots):
    _alarm: asyncio.TimerHandle | None = None

    # -- one turn -----------------------------------------------------------------------------------------------------

    def _in_line(self) -> bool:
        """Is there anything to ask or to give back?"""
        if self.stale and self.book is not None:
            return True
        for live in self.lives.values():
            machine = live.machine
            if machine.asking or machine.freed or machine.settled_steps:
                return True
        return False

    def _admit(self) -> None:
        """Part of the open transaction."""
        book = self._open_book()
        now = self.now()
        news = self._decide_alone(book, now)
        self.strict = book.strict
        for live in list(self.lives.values()):
            live.settle()
            self._take_back(live)
        if self.stopping:
            self._out_of_line(now)
        for live in list(self.lives.values()) if not self.stopping else ():
            if not live.ahead:
                self._reserve_ahead(live)
            self._ask(live)
        self._let_idle_go(now)
        for whole in [whole for whole in self.wholes.values() if whole.due]:
            whole.due = False
            self._whole_shrinks(whole)
        self._ask_checks(now)
        again = None
        for _ in range(ROUNDS):
            book.queues.settle(now)
            changed = (news | book.queues.touched) & self.lots.keys()
            news = set()
            if not self._act(sorted(changed), now) | self._cut_down(now):
                break
        else:
            again = now + PAUSE
        if any(not lot.held and self._has_checks(lot.key) for _, lot in self.active.values()):
            again = now + PAUSE
        self._say_why(now)
        self.batch.workloads.update(book.written())
        at = book.queues.next_time(now)
        self._set_alarm(at if again is None else again if at is None else min(at, again), now)

    def _decide_alone(self, book: Book, now: float) -> set[str]:
        if self._alone:
            self.stale = False
            return set()
        while True:
            try:
                number = self.store.next_decision()
                news = book.catch_up(now)
                break
            except Disconnected:
                self._reconnect()
        book.version = number
        self.stale = False
        self._alone = True
        return news

    _alone = False
    """This transaction has taken the number of a decision: nobody else decides before it ends."""

    def _commit(self) -> None:
        try:
            super()._commit()
        finally:
            self._alone = False

    def _reconnect(self) -> None:
        self._alone = False
        super()._reconnect()

    def _survives(self) -> bool:
        """What is written again is written as a new decision: others have seen later ones by now."""
        if super()._survives():
            return True
        if self.batch.workloads:
            while True:
                try:
                    number = self.store.next_decision()
                    break
                except Disconnected:
                    self._reconnect()
            rows = self.batch.workloads.items()
            self.batch.workloads = {key: (key, number, *row[2:]) for key, row in rows}
            self.stale = True
        return False

    def _set_alarm(self, at: float | None, now: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if at is not None and self.lots:
            self._alarm = self.loop.call_later(max(0.0, at - now), self.later, self._be_stale)

    def _be_stale(self) -> None:
        self.stale = True

    def _look_at_queues(self) -> None:
        """Have others decided anything that concerns us? Does somebody who is gone hold what we wait for?"""
        if self.book is None:
            if self.store.last_decision() and self.store.queue_objects():
                self._open_book()
                self.stale = True
            return
        if self.waits_in_line():
            others = {engine for _, engine in self.book.owners.values() if engine != self.me.id}
            dead = others & self._dead_engines() if others else set()
            if dead:
                self.bury(dead)
        if self.store.last_decision() > self.book.version:
            self.stale = True

    def waits_in_line(self) -> bool:
        return any(not lot.held for _, lot in self.active.values())

    # -- what was decided ---------------------------------------------------------------------------------------------

    def _act(self, keys: Iterable[str], now: float) -> bool:
        """True if that asks for another decision."""
        assert self.book is not None
        again = False
        for key in keys:
            if key not in self.lots:
                continue
            reserved, lot = self.lots[key]
            workload = self.book.queues.workloads.get(key)
            if workload is None:
                # Somebody has held us for dead, and given away what we had.
                self._evict(reserved, lot, {"reason": "lost"})
                again |= self._leave(reserved, lot, now)
            elif workload.eviction is not None and workload.admission is not None and not lot.leaving:
                # Perhaps before it was known here that it had been admitted at all.
                self._evict(reserved, lot, _said_of(workload.eviction))
            elif workload.admitted_at is not None and workload.eviction is None and not lot.held:
                again |= self._grant(reserved, lot, workload, now)
        for reserved, lot in [one for one in self.active.values() if one[1].leaving]:
            again |= self._leave(reserved, lot, now)
        return again

    def _has_checks(self, key: str) -> bool:
        assert self.book is not None
        if not self.book.queues.checks:
            return False
        workload = self.book.queues.workloads.get(key)
        return workload is not None and workload.admission is not None and bool(workload.checks)

    def _ask_checks(self, now: float) -> None:
        """Whoever has quota and waits for checks asks them again."""
        from penstock.engine.book import answer

        assert self.book is not None
        if not self.book.queues.checks:
            return
        for _, lot in list(self.active.values()):
            workload = None if lot.held else self.book.queues.workloads.get(lot.key)
            if workload is None or workload.admission is None or workload.eviction is not None:
                continue
            for name, state in sorted(workload.checks.items()):
                if state == "Pending":
                    said = answer(name, workload)
                    if said != state:
                        self.book.queues.set_check(lot.key, name, said, now)

    def _cut_down(self, now: float) -> bool:
        """A loop for a part of which others are being stopped asks for that part, and for the rest behind it. Otherwise it would
        ask for everything again once they have gone, and those who had borrowed might be let in before it, without end."""
        assert self.book is not None
        cut = False
        for reserved, lot in list(self.active.values()):
            waits = not lot.held and self.book.queues.workloads[lot.key].admission is None
            decision = self.book.queues.decisions.get(lot.key) if waits else None
            if decision is None or decision.decision != "preempt" or reserved.unit in (Unit.TASK, Unit.WORKFLOW):
                continue
            if len(lot.asked) == 0 or len(lot.kinds()) > 1:
                continue
            (states,) = lot.kinds()
            tasks = sum(choice.count for choice in decision.podsets) // states[0].plan.step.replicas
            if not 0 < tasks < sum(lot.asked.values()):
                continue
            kept: dict[StepState, int] = {}
            rest: dict[StepState, int] = {}
            for state, asked in lot.asked.items():
                many = min(tasks, asked)
                tasks -= many
                kept[state] = many
                if asked > many:
                    rest[state] = asked - many
            lot.asked = {state: many for state, many in kept.items() if many}
            self.book.queues.resize(lot.key, reserved.podsets(lot.asked), now)
            self._new_lot(reserved, rest, now)
            cut = True
        return cut

    def _grant(self, reserved: Reserved, lot: Lot, workload: Any, now: float) -> bool:
        assert self.book is not None
        live = reserved.live
        lot.held = True
        reserved.lined.pop(lot.key, None)
        if live.limit is not None:
            self._limit_run(live, now)
        if live.unarmed:
            self._arm_called(live, reserved.name)
        if self.book.queues.config.pods_ready_timeout is not None:
            self.book.queues.ready(lot.key, now)  # what runs on this machine is ready when it is started
        data = {
            "workload": lot.key,
            "queue": workload.admission.cluster_queue,
            "flavors": sorted({flavor for one in workload.admission.podsets for flavor in one.flavors.values()}),
            "held": _amounts(workload.held),
            "waited": round(max(0.0, now - lot.since), 3),
        }
        if not reserved.lined:
            reserved.said = ""
        whole = self.wholes.get(live.number)
        if whole is not None:
            live.note("reservation.admitted", reserved.name, data)
            whole.admitted(lot, workload)
            self._hand_out(whole)
            return False
        rest: dict[StepState, int] = {}
        for states, given in zip(lot.kinds(), workload.admission.podsets, strict=True):
            tasks = given.count // states[0].plan.step.replicas
            for at, state in enumerate(states):
                if not tasks:
                    rest.update((other, lot.asked[other]) for other in states[at:])
                    break
                many = min(tasks, lot.asked[state], state.hungry)
                tasks -= many
                if many:
                    lot.granted[state] = many
                    live.machine.permit(state, lot, many)
                if not tasks and lot.asked[state] > many and state.hungry:
                    rest[state] = min(lot.asked[state] - many, state.hungry)
        if rest:
            lot.asked = {state: lot.granted.get(state, 0) for state in lot.asked if state in lot.granted}
        data["tasks"] = lot.busy
        if lot.busy:
            live.note("reservation.admitted", reserved.name, data)
        self._give_back(lot)
        if not lot.busy:
            return True
        if rest and reserved.unit is not Unit.TASK:
            self._new_lot(reserved, rest, now)
            return True
        if reserved.unit is Unit.TASK and not reserved.lined and any(state.hungry for state in reserved.states):
            self._ask_for(reserved, list(reserved.states))
            return True
        return False

    def _evict(self, reserved: Reserved, lot: Lot, why: dict[str, Any]) -> None:
        """Stop what stands on it. It is gone when all of that has ended."""
        live = reserved.live
        had = dict(lot.granted) if lot.held else dict(lot.asked)
        lot.held = lot.leaving = True
        reserved.lined.pop(lot.key, None)
        live.note("reservation.evicted", reserved.name, {"workload": lot.key, **why})
        machine = live.machine
        for state in list(lot.granted):
            lot.granted[state] -= len(machine.withdraw(state, lot))
        for task in list(machine.live.values()):
            if task.permit is lot:
                self._displace(live, task, lot, why)
        lot.idle = 0
        if live.number not in self.wholes:
            lot.asked = {state: had.get(state, 0) for state in lot.asked}

    def _displace(self, live: Live, task: Task, lot: Lot, why: dict[str, Any]) -> None:
        kept = extra(task)
        if kept.order and kept.order in self.orders:
            kept.displaced = why
            self._stop_timer(task)
            self.backend(kept.lane).stop(kept.order, GRACE)
            return
        lot.granted[task.state] -= 1
        live.machine.displace(task)
        if kept.shown:
            live.row(task, "waiting")

    def _leave(self, reserved: Reserved, lot: Lot, now: float) -> bool:
        """True if it has left, so that others may be admitted."""
        book = self.book
        assert book is not None
        if lot.busy or not lot.leaving:
            return False
        lot.leaving = lot.held = False
        lot.since = now
        lot.granted = {}
        workload = book.queues.workloads.get(lot.key)
        if workload is not None:
            book.queues.release(lot.key, now)
        whole = self.wholes.get(reserved.live.number)
        if whole is not None:
            podsets = whole.podsets()
        else:
            covered = {state: reserved.pending(state) - lot.asked[state] for state in lot.asked}
            lot.asked = {
                state: max(0, state.hungry - covered[state]) for state in lot.asked if state in reserved.states
            }
            podsets = reserved.podsets(lot.asked) if any(lot.asked.values()) else ()
        if not podsets:
            self._end_lot(lot, now)
        elif workload is None:
            del self.lots[lot.key]
            self.active.pop(lot.key, None)
            reserved.remove(lot)
            renewed = reserved.workload(reserved.next_name(), podsets)
            lot.key = renewed.key
            self.lots[lot.key] = self.active[lot.key] = (reserved, lot)
            reserved.add(lot)
            self.unsaid[reserved] = None
            book.submit(renewed, reserved.live.number, now)
        else:
            reserved.add(lot)
            self.unsaid[reserved] = None
            book.queues.resize(lot.key, podsets, now)
        return True

    # -- why ----------------------------------------------------------------------------------------------------------

    def _say_why(self, now: float) -> None:
        """Each wait is written down with its reason, and again when the reason is another."""
        assert self.book is not None
        if now - self._said_at < PAUSE and now >= self._said_at:
            asked = list(self.unsaid)
        else:
            self._said_at = now
            asked = list(dict.fromkeys(reserved for reserved, lot in self.active.values() if not lot.held))
        self.unsaid.clear()
        for reserved in asked:
            lot = next(iter(reserved.lined.values()), None)
            if lot is None:
                continue
            kind = self.book.queues.hold_kind(lot.key, now)
            if kind != reserved.said:
                reserved.said = kind
                hold = self.book.queues.explain(lot.key, now)
                reserved.live.note(
                    "reservation.waiting", reserved.name, {"workload": lot.key, "reason": hold.as_data()}
                )

    _said_at = 0.0


def _said_of(eviction: Any) -> dict[str, Any]:
    data = {"reason": eviction.preempted or eviction.reason}
    if eviction.by:
        data["by"] = eviction.by
    return data


def _amounts(held: Any) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for fr, amount in sorted(held.items()):
        found.setdefault(fr.flavor, {})[fr.resource] = amount
    return found
