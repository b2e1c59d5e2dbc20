"""Between what could start and what may: steps that need something of a machine are put in line, and what the queues decide is
acted on. Called by loop.

Within one turn: what has ended gives its quota back, what has become ready asks, the queues decide, and what was admitted is
handed to the machine as permits. All of it is written in the transaction of the turn, so that tasks start only on quota that is
on record. Steps that need nothing pass by, unless a queue is stopped or counts pods.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.engine.attempts import GRACE
from penstock.engine.live import Live, extra
from penstock.engine.machine import Scope, StepState, Task
from penstock.engine.sharing import Sharing
from penstock.graph.model import Http, Step, Suspend, Unit
from penstock.store.base import Disconnected

if TYPE_CHECKING:
    from penstock.engine.blueprint import StepPlan
    from penstock.engine.book import Book
    from penstock.engine.reserved import Lot, Reserved
    from penstock.engine.whole import Whole

LOOK_AHEAD = 4096
"""Tasks of a step whose results are looked up before anything is asked of a queue for them."""
GATE = "penstock/upstream"
"""What holds a stage back until the steps before it are over."""
AHEAD = 2_000
"""Steps of a workflow up to which stages are put in line before their time; beyond, when it has come. Their place is the same."""
SINGLES = 64
"""Workloads of one step that stand in line at once where each task is one; those behind are just like them."""


class Admitting(Sharing):
    capacity: Callable[[], Sequence[Any]] | None = None
    """What there is to share as long as nobody has configured queues, as queue objects; None: as much as anybody asks for."""
    book: Book | None = None
    strict = False
    """Every step queues, also those that need nothing."""
    stale = False
    """Others have decided something, or time has passed that decides something."""
    _alarm: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, capacity: Callable[[], Sequence[Any]] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.capacity = capacity
        self.reserved: dict[tuple[int, str], Reserved] = {}
        self.lots: dict[str, tuple[Reserved, Lot]] = {}
        self.wholes: dict[int, Whole] = {}

    # -- who queues ---------------------------------------------------------------------------------------------------

    def queues_at_all(self) -> bool:
        """Looked at when a run is taken in hand: most stores know no queues, and then nothing is loaded before it is needed."""
        if self.book is None and self.store.queue_objects():
            self._open_book()
        return self.capacity is not None or self.book is not None

    def _must_queue(self, state: StepState) -> bool:
        step = state.plan.step
        if not (step.resources or self.strict) or isinstance(step.action, Suspend | Http):
            return False
        return not state.exempt

    def _open_book(self) -> Book:
        if self.book is None:
            from penstock.engine.book import Book

            self.book = Book(self.store, self.me.id, () if self.capacity is None else self.capacity())
            self.book.load(self.now())
            self.strict = self.book.strict
        return self.book

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
        for live in list(self.lives.values()):
            if not live.ahead:
                self._reserve_ahead(live)
            self._ask(live)
        self._let_idle_go(now)
        while True:
            book.queues.settle(now)
            changed = (news | book.queues.touched) & self.lots.keys()
            news = set()
            if not self._act(sorted(changed), now):
                break
        self._say_why(now)
        self.batch.workloads.update(book.written())
        self._set_alarm(book.queues.next_time(now), now)

    def _decide_alone(self, book: Book, now: float) -> set[str]:
        while True:
            try:
                number = self.store.next_decision()
                news = book.catch_up(now)
                break
            except Disconnected:
                self._reconnect()
        book.version = number
        self.stale = False
        return news

    def _survives(self) -> bool:
        """What is written again is written as a new decision: others have seen later ones by now."""
        if super()._survives():
            return True
        if self.batch.workloads:
            try:
                number = self.store.next_decision()
            except Disconnected:
                return False
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
        return any(not lot.held and not lot.gated for _, lot in self.lots.values())

    # -- what comes back ----------------------------------------------------------------------------------------------

    def _take_back(self, live: Live) -> None:
        machine = live.machine
        whole = self.wholes.get(live.number)
        freed, machine.freed = machine.freed, []
        shrunk: dict[str, Lot] = {}
        for state, permit in freed:
            if whole is not None:
                whole.give_back(state)
            else:
                self._one_back(live, state, permit, shrunk)
        settled, machine.settled_steps = machine.settled_steps, []
        for state in settled:
            unused = machine.withdraw(state)
            if whole is not None:
                whole.step_over(state, len(unused))
                continue
            for permit in unused:
                self._one_back(live, state, permit, shrunk)
            self._step_over(live, state)
        if whole is not None and (freed or settled):
            self._whole_shrinks(whole)
        for lot in shrunk.values():
            if lot.key in self.lots:
                self._give_back(lot)

    def _one_back(self, live: Live, state: StepState, lot: Lot, shrunk: dict[str, Lot]) -> None:
        if lot.key not in self.lots:
            return
        reserved = self.lots[lot.key][0]
        lot.granted[state] -= 1
        if lot.leaving:
            return
        kin = reserved.waiting()
        assert self.book is not None
        if state.hungry and state in reserved.states and not self.book.crowded(lot.key, len(kin)):
            # Nobody else is waiting: who would be admitted next is the next task of this very step.
            lot.granted[state] += 1
            live.machine.permit(state, lot)
            for other in kin:
                if other.asked.get(state, 0) > 0:
                    other.asked[state] -= 1
                    shrunk.setdefault(other.key, other)
                    break
        elif reserved.heir_of(state):
            lot.idle += 1
        else:
            shrunk.setdefault(lot.key, lot)

    def _give_back(self, lot: Lot) -> None:
        """What the lot holds, or stands in line for, is more than it needs."""
        book = self.book
        assert book is not None
        now = self.now()
        if not lot.held:
            if not any(lot.asked.values()):
                self._end_lot(lot, now)
            return
        if not lot.busy and not lot.idle:
            self._end_lot(lot, now)
            return
        workload = book.queues.workloads[lot.key]
        assert workload.admission is not None
        gone = {}
        for states, asked in zip(lot.kinds(), workload.podsets, strict=True):
            tasks = sum(lot.granted.get(state, 0) for state in states) + lot.idle
            left = tasks * states[0].plan.step.replicas
            if asked.count > left:
                gone[asked.name] = asked.count - left
        book.queues.reclaim(lot.key, gone, now)

    def _end_lot(self, lot: Lot, now: float) -> None:
        assert self.book is not None
        reserved, _ = self.lots.pop(lot.key)
        reserved.lots.pop(lot.key, None)
        if reserved.said and not reserved.waiting():
            if not lot.held:
                reserved.live.note("reservation.withdrawn", reserved.name, {"workload": lot.key})
            reserved.said = ""
        if lot.key in self.book.queues.workloads:
            self.book.queues.finish(lot.key, now)
        if not reserved.lots and not reserved.states:
            self.reserved.pop((reserved.live.number, reserved.name), None)

    def _step_over(self, live: Live, state: StepState) -> None:
        reserved = self._reserved_of(live, state, make=False)
        if reserved is None:
            return
        reserved.states.discard(state)
        now = self.now()
        for lot in list(reserved.lots.values()):
            if lot.gated:
                if not reserved.heir_of(state) and not reserved.states:
                    self._end_lot(lot, now)  # it never had to ask
            elif state in lot.asked and (not lot.held or lot.leaving):
                lot.asked[state] = 0
                if not lot.leaving and not any(lot.asked.values()):
                    self._end_lot(lot, now)
            elif lot.held and not lot.busy and not lot.idle:
                self._end_lot(lot, now)

    def _let_idle_go(self, now: float) -> None:
        """Machines that were kept for a stage which did not come."""
        for reserved in list(self.reserved.values()):
            if reserved.states:
                continue
            for lot in list(reserved.lots.values()):
                if lot.idle:
                    lot.idle = 0
                    if not lot.leaving and not lot.busy:
                        self._end_lot(lot, now)

    # -- ahead of time --------------------------------------------------------------------------------------------------

    def _reserve_ahead(self, live: Live) -> None:
        """Put the stages that are known in line at once, gated: they take no part before their time has come, but everybody can
        see that they will, and where they stand then."""
        live.ahead = True
        unit = self.unit_of(live)
        root = live.machine.root
        if unit not in (Unit.STAGE, Unit.REUSE) or len(root.blueprint.plans) > AHEAD:
            return
        now = self.now()
        for plan, outcome, state in zip(root.blueprint.plans, root.outcomes, root.states, strict=True):
            queues = (plan.step.resources or self.strict) and plan.inner is None
            if plan.number >= root.blueprint.main or outcome is not None or state is not None or not queues:
                continue
            if isinstance(plan.step.action, Suspend | Http):
                continue
            reserved = self._reserved_for(live, plan, root)
            assert reserved is not None
            if not reserved.lots and not reserved.states:
                self._new_lot(reserved, {}, now, plan.step)

    # -- asking -------------------------------------------------------------------------------------------------------

    def _ask(self, live: Live) -> None:
        machine = live.machine
        asking, machine.asking = machine.asking, {}
        together: dict[Any, list[StepState]] = {}
        for state in asking:
            self._look_up(live, state)
            if not state.hungry or state.scope.halted:
                continue
            if self.unit_of(live) is Unit.WORKFLOW:
                self._ask_for_all(live, state)
            else:
                reserved = self._reserved_of(live, state)
                assert reserved is not None
                reserved.states.add(state)
                together.setdefault(reserved, []).append(state)
        for reserved, states in together.items():
            self._ask_for(reserved, states)

    def _look_up(self, live: Live, state: StepState) -> None:
        """What is known already, or is being computed here, need not wait for a machine."""
        if live.fresh or state.plan.private:
            return
        tasks = live.machine.preview(state, LOOK_AHEAD - len(state.line))
        known = self._known([task.key for task in tasks if task.key])
        for task in tasks:
            if task.key in self.landed:
                outputs, source = self.landed[task.key]
                self._reuse(live, task, outputs, source)
            elif task.key in known:
                result = known[task.key]
                ttl = task.step.cache.ttl
                if (ttl is None or 0 <= self.now() - result.at <= ttl) and self._whole(result.outputs):
                    self._reuse(live, task, result.outputs, self._origin(result.run, result.task))

    def _known(self, keys: list[str]) -> dict[str, Any]:
        if not keys:
            return {}
        while True:
            try:
                return self.store.lookup(keys)
            except Disconnected:
                self._reconnect()

    def unit_of(self, live: Live) -> Unit:
        return live.machine.blueprint.workflow.unit or Unit.STAGE

    def _reserved_of(self, live: Live, state: StepState, make: bool = True) -> Reserved | None:
        return self._reserved_for(live, state.plan, state.scope, make)

    def _reserved_for(self, live: Live, plan: StepPlan, scope: Scope, make: bool = True) -> Reserved | None:
        from penstock.engine.reserved import Reserved, heirs_of

        step = plan.step
        unit = self.unit_of(live)
        name = scope.prefix + step.name
        chain: tuple[str, ...] = (step.name,)
        if unit is Unit.REUSE:
            if live.chains is None:
                live.chains = heirs_of(live.machine.blueprint.workflow, live.run.params)
            chain = live.chains.get(scope.step_prefix + step.name, chain)
            name = scope.prefix + chain[0]
        elif step.group is not None and unit is Unit.STAGE:
            name = scope.prefix + step.group
        found = self.reserved.get((live.number, name))
        if found is None and make:
            assert self.book is not None
            workflow = live.machine.blueprint.workflow
            queue = self.book.queue_for(step.queue or workflow.queue)
            named = step.priority if step.priority is not None else workflow.priority
            found = Reserved(live, name, queue, *self.book.priority_of(named), unit, chain, self._next_order())
            self.reserved[live.number, name] = found
        return found

    _orders = 0

    def _next_order(self) -> int:
        self._orders += 1
        return self._orders

    def _ask_for(self, reserved: Reserved, states: list[StepState]) -> None:
        from penstock.engine.reserved import MOST_SHAPES, shapes

        book = self.book
        assert book is not None
        now = self.now()
        more: dict[StepState, int] = {}
        for state in states:
            self._inherit(reserved, state)
            lacking = state.hungry - reserved.pending(state)
            if lacking > 0:
                more[state] = lacking
        if not more:
            return
        if reserved.unit is Unit.TASK:
            for state, lacking in more.items():
                gang = state.plan.step.each is not None and state.plan.step.each.gang
                for _ in range(1 if gang else min(lacking, SINGLES - len(reserved.waiting()))):
                    self._new_lot(reserved, {state: lacking if gang else 1}, now)
            return
        gated = next((lot for lot in reserved.lots.values() if lot.gated), None)
        if gated is not None and len(shapes(more)) <= MOST_SHAPES:
            gated.asked, gated.gated, gated.since = more, False, now
            book.queues.resize(gated.key, reserved.podsets(more), now)
            book.queues.ungate(gated.key, GATE, now)
            return
        growing = next((lot for lot in reserved.waiting() if not lot.leaving and lot.asked.keys() >= more.keys()), None)
        if growing is None:
            kinds = shapes(more)
            for at in range(0, len(kinds), MOST_SHAPES):
                some = [state for states in kinds[at : at + MOST_SHAPES] for state in states]
                self._new_lot(reserved, {state: more[state] for state in some}, now)
            return
        for state, lacking in more.items():
            growing.asked[state] += lacking
        book.queues.resize(growing.key, reserved.podsets(growing.asked), now)

    def _inherit(self, reserved: Reserved, state: StepState) -> None:
        """The machines of the stage before."""
        for lot in reserved.lots.values():
            if lot.idle and not lot.leaving:
                many = min(lot.idle, state.hungry)
                lot.idle -= many
                lot.granted = {state: many}
                lot.asked = {state: lot.asked.popitem()[1]}
                reserved.live.machine.permit(state, lot, many)
                if lot.idle:
                    lot.idle = 0
                    self._give_back(lot)

    def _new_lot(self, reserved: Reserved, asked: dict[StepState, int], now: float, gated: Step | None = None) -> None:
        """`gated`: for a step whose time has not come, and of which nobody knows how many tasks it will have."""
        from penstock.engine.reserved import Lot, one_of

        assert self.book is not None
        name = reserved.next_name()
        workload = reserved.workload(name, reserved.podsets(asked) if gated is None else (one_of(gated),))
        lot = Lot(workload.key, dict(asked), now)
        if gated is not None:
            lot.gated = True
            workload.gates = frozenset({GATE})
        reserved.lots[lot.key] = lot
        self.lots[lot.key] = (reserved, lot)
        self.book.submit(workload, reserved.live.number, now)

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
        for reserved, lot in [one for one in self.lots.values() if one[1].leaving]:
            again |= self._leave(reserved, lot, now)
        return again

    def _grant(self, reserved: Reserved, lot: Lot, workload: Any, now: float) -> bool:
        assert self.book is not None
        live = reserved.live
        lot.held = True
        if live.limit is not None:
            self._limit_run(live, now)
        if self.book.queues.config.pods_ready_timeout is not None:
            self.book.queues.ready(lot.key, now)  # what runs on this machine is ready when it is started
        data = {
            "workload": lot.key,
            "queue": workload.admission.cluster_queue,
            "flavors": sorted({flavor for one in workload.admission.podsets for flavor in one.flavors.values()}),
            "held": _amounts(workload.held),
            "waited": round(max(0.0, now - lot.since), 3),
        }
        if reserved.said and len(reserved.waiting()) == 0:
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
        if reserved.unit is Unit.TASK and any(state.hungry > reserved.pending(state) for state in reserved.states):
            self._ask_for(reserved, list(reserved.states))
            return True
        return False

    def _evict(self, reserved: Reserved, lot: Lot, why: dict[str, Any]) -> None:
        """Stop what stands on it. It is gone when all of that has ended."""
        live = reserved.live
        had = dict(lot.granted) if lot.held else dict(lot.asked)
        lot.held = lot.leaving = True
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

    def _displaced(self, live: Live, task: Task, report: Any) -> None:
        """It has been stopped because its place was taken: that is no failure of it."""
        kept = extra(task)
        why, kept.displaced = kept.displaced, None
        live.note("task.preempted", task.path, {"attempt": task.attempt, **why, "seconds": round(report.seconds, 6)})
        live.row(task, "waiting", json.dumps({"reason": {"why": "preempted", **why}}))
        live.machine.free(task)
        flight = self.shares.flights.get(task.key) if task.key else None
        if flight is not None and flight.owner[1] is task:
            self.batch.released.append(task.key)
            for other, twin in self.shares.land(task.key):
                other.machine.again(twin)
        live.machine.again(task)

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
            del self.lots[lot.key], reserved.lots[lot.key]
            renewed = reserved.workload(reserved.next_name(), podsets)
            lot.key = renewed.key
            self.lots[lot.key] = (reserved, lot)
            reserved.lots[lot.key] = lot
            book.submit(renewed, reserved.live.number, now)
        else:
            book.queues.resize(lot.key, podsets, now)
        return True

    # -- a whole workflow ---------------------------------------------------------------------------------------------

    def _ask_for_all(self, live: Live, state: StepState) -> None:
        from penstock.engine.reserved import Lot, Reserved
        from penstock.engine.whole import Whole

        assert self.book is not None
        whole = self.wholes.get(live.number)
        if whole is None:
            workflow = live.machine.blueprint.workflow
            whole = self.wholes[live.number] = Whole(live, workflow, live.run.params)
            queue = self.book.queue_for(workflow.queue)
            reserved = Reserved(
                live,
                "workflow",
                queue,
                *self.book.priority_of(workflow.priority),
                Unit.WORKFLOW,
                ("workflow",),
                self._next_order(),
            )
            self.reserved[live.number, ""] = reserved
            workload = reserved.workload(live.run.id, whole.podsets())
            lot = Lot(workload.key, {}, self.now())
            whole.lot = lot
            reserved.lots[lot.key] = lot
            self.lots[lot.key] = (reserved, lot)
            self.book.submit(workload, live.number, self.now())
        whole.waiting[state] = None
        if whole.lot.held and not whole.lot.leaving:
            self._hand_out(whole)

    def _hand_out(self, whole: Whole) -> None:
        """Let tasks start as far as what is held and not in use goes."""
        for state in list(whole.waiting):
            many = whole.fits(state)
            if many:
                whole.take(state, many)
                whole.live.machine.permit(state, whole.lot, many)
            if not state.hungry:
                del whole.waiting[state]

    def _whole_shrinks(self, whole: Whole) -> None:
        assert self.book is not None
        if not whole.lot.held or whole.lot.leaving:
            return
        started = time.perf_counter()
        if started >= whole.look_again:
            gone = whole.shrink()
            # What is left is worked out anew each time, which may take long: a tenth of the time is spent on it at most.
            done = time.perf_counter()
            whole.look_again = done + 10 * (done - started)
            if gone:
                self.book.queues.reclaim(whole.lot.key, gone, self.now())
        self._hand_out(whole)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _give_up(self, live: Live) -> None:
        """The run is over, or not ours any more: nothing of it stays in line."""
        mine = [lot for reserved, lot in self.lots.values() if reserved.live is live]
        self.wholes.pop(live.number, None)
        if mine and self.book is not None:
            for lot in mine:
                self._end_lot(lot, self.now())
            self.stale = True
        for key in [key for key in self.reserved if key[0] == live.number]:
            del self.reserved[key]

    # -- why ----------------------------------------------------------------------------------------------------------

    def _say_why(self, now: float) -> None:
        """Each wait is written down with its reason, and again when the reason is another."""
        assert self.book is not None
        for reserved in self.reserved.values():
            lot = next((lot for lot in reserved.lots.values() if not lot.held and not lot.gated), None)
            if lot is None:
                continue
            kind = self.book.queues.hold_kind(lot.key, now)
            if kind != reserved.said:
                reserved.said = kind
                hold = self.book.queues.explain(lot.key, now)
                reserved.live.note(
                    "reservation.waiting", reserved.name, {"workload": lot.key, "reason": hold.as_data()}
                )


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
