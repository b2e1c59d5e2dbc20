"""What runs ask of the queues, hold of them and give back: reservations as lots of Workloads, and permits for tasks. Called by
admitting, which lets the queues decide in between.

Steps that need nothing of a machine pass by, unless a queue is stopped or counts pods.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.engine.live import Live
from penstock.engine.sharing import Sharing
from penstock.engine.steps import Scope, StepState
from penstock.graph.model import Http, Step, Suspend, Unit, Workflow
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
SINGLES = 4096
"""Workloads of one step that stand in line at once where each task is one; those behind are just like them."""


class Lots(Sharing):
    capacity: Callable[[], Sequence[Any]] | None = None
    """What there is to share as long as nobody has configured queues, as queue objects; None: as much as anybody asks for."""
    book: Book | None = None
    strict = False
    """Every step queues, also those that need nothing."""
    stale = False
    """Others have decided something, or time has passed that decides something."""

    def __init__(self, *args: Any, capacity: Callable[[], Sequence[Any]] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.capacity = capacity
        self.reserved: dict[tuple[int, str], Reserved] = {}
        self.lots: dict[str, tuple[Reserved, Lot]] = {}
        self.active: dict[str, tuple[Reserved, Lot]] = {}
        """Those that are not gated: there may be thousands that wait for their time, and few that stand in line or hold anything."""
        self.wholes: dict[int, Whole] = {}
        self.unsaid: dict[Reserved, None] = {}
        """Reservations that have come to stand in line since reasons were last written down."""

    # -- who queues ---------------------------------------------------------------------------------------------------

    def queues_at_all(self) -> bool:
        """Looked at when a run is taken in hand: most stores know no queues, and then nothing is loaded before it is needed."""
        if self.book is None and self.store.queue_objects():
            self._open_book()
        return self.capacity is not None or self.book is not None

    def _must_queue(self, workflow: Workflow, state: StepState) -> bool:
        return self._queues(workflow, state.plan.step) and not state.exempt

    def _queues(self, workflow: Workflow, step: Step) -> bool:
        """Does a step of this workflow have to be let in by a queue?"""
        if isinstance(step.action, Suspend | Http):
            return False
        if step.resources:
            return True
        return self.strict and self.book is not None and self.book.holds_all(step.queue or workflow.queue)

    def _open_book(self) -> Book:
        if self.book is None:
            from penstock.engine.book import Book

            while self.book is None:
                book = Book(self.store, self.me.id, () if self.capacity is None else self.capacity())
                try:
                    book.load(self.now())
                    self.book = book
                except Disconnected:
                    self._reconnect()
            self.strict = self.book.strict
        return self.book

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
        kin = reserved.lined
        assert self.book is not None
        idle = self.stopping or not state.hungry or state not in reserved.states
        if not idle and not self.book.crowded(lot.key, len(kin)):
            # Nobody else is waiting: who would be admitted next is the next task of this very step.
            lot.granted[state] += 1
            live.machine.permit(state, lot)
            for other in kin.values():
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
        self.active.pop(lot.key, None)
        reserved.remove(lot)
        if reserved.said and not reserved.lined:
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
        for lot in [lot for reserved, lot in self.active.values() if lot.idle and not reserved.states]:
            lot.idle = 0
            if not lot.leaving and not lot.busy and lot.key in self.lots:
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
            if plan.number >= root.blueprint.main or outcome is not None or state is not None or plan.inner is not None:
                continue
            if plan.step.exempt or not self._queues(root.blueprint.workflow, plan.step):
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
        for state in sorted(asking, key=lambda one: one.plan.number):  # as they stand in the workflow
            self._look_up(live, state)
            self._lock_first(live, state)
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

    def _lock_first(self, live: Live, state: StepState) -> None:
        """See locking."""

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
                if self._usable(task, result):
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
        if step.group is not None and unit in (Unit.STAGE, Unit.REUSE) and len(chain) == 1:
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
                for _ in range(1 if gang else min(lacking, SINGLES - len(reserved.lined))):
                    self._new_lot(reserved, {state: lacking if gang else 1}, now)
            return
        gated = next((lot for lot in reserved.lots.values() if lot.gated), None)
        if gated is not None and len(shapes(more)) <= MOST_SHAPES:
            gated.asked, gated.gated, gated.since = more, False, now
            self.active[gated.key] = (reserved, gated)
            reserved.add(gated)
            self.unsaid[reserved] = None
            book.queues.resize(gated.key, reserved.podsets(more), now)
            book.queues.ungate(gated.key, GATE, now)
            return
        growing = next(
            (
                lot
                for lot in reserved.lined.values()
                if lot.asked.keys() >= more.keys() and book.queues.workloads[lot.key].admission is None
            ),
            None,
        )
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
        reserved.add(lot)
        self.lots[lot.key] = (reserved, lot)
        if not lot.gated:
            self.active[lot.key] = (reserved, lot)
            self.unsaid[reserved] = None
        self.book.submit(workload, reserved.live.number, now)

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
            reserved.add(lot)
            self.unsaid[reserved] = None
            self.lots[lot.key] = self.active[lot.key] = (reserved, lot)
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
        if started < whole.look_again:
            self.loop.call_later(whole.look_again - started, self.later, lambda: self._shrink_later(whole))
        else:
            gone = whole.shrink()
            # What is left is worked out anew each time, which may take long: a tenth of the time is spent on it at most.
            done = time.perf_counter()
            whole.look_again = done + 10 * (done - started)
            if gone:
                self.book.queues.reclaim(whole.lot.key, gone, self.now())
        self._hand_out(whole)

    def _shrink_later(self, whole: Whole) -> None:
        """It had been looked at a moment before, so it was put off."""
        if whole.live.number in self.wholes:
            whole.due = self.stale = True

    # -- stopping -----------------------------------------------------------------------------------------------------

    def _out_of_line(self, now: float) -> None:
        """Nothing more will be started here: what stands in line, or would, need not."""
        for _, lot in list(self.lots.values()):
            if not lot.held and lot.key in self.lots:
                self._end_lot(lot, now)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _give_up(self, live: Live) -> None:
        """The run is over, or not ours any more: nothing of it stays in line."""
        mine = [lot for reserved, lot in self.lots.values() if reserved.live is live]
        self.wholes.pop(live.number, None)
        if mine and self.book is not None:
            for lot in mine:
                self._end_lot(lot, self.now())
            self.stale = True
            self.inbox.wake()
        for key in [key for key in self.reserved if key[0] == live.number]:
            del self.reserved[key]
