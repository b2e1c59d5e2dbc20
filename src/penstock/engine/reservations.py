"""What runs request of the queues, hold of them and give back: reservations as allocations, and permits for tasks. Called by Admitter,
which lets the scheduler decide in between. Pure: no I/O, no clock; the caller says what time it is.

Requests and releases go in. Grants come out as permits of RunState; evictions as calls of `preempt`, which stops attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from penstock.admission.lifecycle import PREEMPTED
from penstock.admission.model import Eviction, Workload
from penstock.engine.allocation import ActiveReservation, Allocation, QueuedRun, chains_of, podsets, shapes
from penstock.engine.blueprint import StepPlan
from penstock.engine.podsets import MOST_SHAPES, task_podset
from penstock.engine.quota import QuotaSource
from penstock.engine.steps import StepState, Task, WorkflowScope
from penstock.engine.workflow_reservation import WorkflowReservation
from penstock.graph.model import Step, Unit
from penstock.plan.elsewhere import of_this_machine

GATE = "penstock/upstream"
"""What keeps a stage out of admission until the steps before it have ended."""
AHEAD = 2_000
"""Steps of a workflow up to which its stages are queued before they are ready. Their place in the queue is the same either way."""
SINGLES = 4096
"""Workloads of one step that wait at the same time where each task is one; those behind them are just like them."""


class ShrinkPace(Protocol):
    """How often it is worked out what a whole workflow still needs, which may take long."""

    def shrink(self, reservation: WorkflowReservation) -> dict[str, int] | None:
        """`reservation.shrink()`; or None: not now."""
        ...


Preempt: TypeAlias = Callable[[Any, Task, dict[str, Any]], bool]
"""Stops the attempt of a task of a run. False: none runs."""


class Reservations:
    def __init__(
        self,
        quota: QuotaSource,
        preempt: Preempt,
        admitted: Callable[[Any, str], None],
        pace: ShrinkPace,
        evicted: Callable[[Any, str], None] | None = None,
    ) -> None:
        self.quota = quota
        self._preempt = preempt
        self._admitted = admitted
        """Told that something below a path of the run is admitted: time limits count from there."""
        self._pace = pace
        self._evicted = evicted
        """Told which Workload of which run is evicted."""
        self._reservations: dict[tuple[int, str], ActiveReservation] = {}
        self._allocations: dict[str, tuple[ActiveReservation, Allocation]] = {}
        """All of them, by Workload."""
        self._ungated: dict[str, tuple[ActiveReservation, Allocation]] = {}
        """Those that take part in admission: few, where thousands may wait for the steps before them."""
        self._workflows: dict[int, WorkflowReservation] = {}
        """By run, with unit workflow."""
        self._unexplained: dict[ActiveReservation, None] = {}
        """Reservations that have begun to wait since reasons were last recorded."""
        self._chains: dict[int, dict[str, tuple[str, ...]]] = {}
        """Run -> which steps take machines over from each other."""
        self._ahead: set[int] = set()
        """Runs whose stages have been queued."""
        self._order = 0

    def __len__(self) -> int:
        return len(self._allocations)

    def keys(self) -> KeysView[str]:
        return self._allocations.keys()

    def waiting(self) -> Iterator[Allocation]:
        """Those that wait for admission."""
        return (one for _, one in self._ungated.values() if not one.held)

    @property
    def waits(self) -> bool:
        return any(True for _ in self.waiting())

    # -- giving back --------------------------------------------------------------------------------------------------

    def release(
        self,
        run: QueuedRun,
        freed: Sequence[tuple[StepState, Any]],
        settled: Sequence[StepState],
        now: float,
        keep: bool = True,
    ) -> None:
        """Permits that tasks no longer need, and steps that have ended. `keep`: a permit may go to the next task of its step."""
        whole = self._workflows.get(run.number)
        ready = run.state.ready
        shrunk: dict[str, Allocation] = {}
        for state, permit in freed:
            if whole is not None:
                whole.give_back(state)
            else:
                self._release_one(run, state, permit, shrunk, keep)
        for state in settled:
            unused = ready.withdraw(state)
            if whole is not None:
                whole.step_ended(state, len(unused))
                continue
            for permit in unused:
                self._release_one(run, state, permit, shrunk, keep)
            self._step_ended(run, state, now)
        if whole is not None and (freed or settled):
            self._shrink(whole, now)
        for allocation in shrunk.values():
            if allocation.key in self._allocations:
                self._give_back(allocation, now)

    def _release_one(
        self, run: QueuedRun, state: StepState, allocation: Allocation, shrunk: dict[str, Allocation], keep: bool
    ) -> None:
        if allocation.key not in self._allocations:
            return
        reservation = self._allocations[allocation.key][0]
        allocation.granted[state] -= 1
        if allocation.evicting:
            return
        pending = reservation.pending
        idle = not keep or not state.wanted or state not in reservation.steps
        if not idle and not self.quota.contended(allocation.key, len(pending)):
            # Nobody else waits: the next to be admitted is the next task of this step.
            allocation.granted[state] += 1
            run.state.ready.permit(state, allocation)
            for other in pending.values():
                if other.asked.get(state, 0) > 0:
                    other.asked[state] -= 1
                    shrunk.setdefault(other.key, other)
                    break
        elif reservation.has_successor(state):
            allocation.idle += 1
        else:
            shrunk.setdefault(allocation.key, allocation)

    def _give_back(self, allocation: Allocation, now: float) -> None:
        """The allocation holds, or waits for, more than it needs."""
        if not allocation.held:
            if not any(allocation.asked.values()):
                self._end(allocation, now)
            return
        if not allocation.busy and not allocation.idle:
            self._end(allocation, now)
            return
        scheduler = self.quota.scheduler
        workload = scheduler.workloads[allocation.key]
        assert workload.admission is not None
        gone = {}
        for states, asked in zip(allocation.shapes(), workload.podsets, strict=True):
            tasks = sum(allocation.granted.get(state, 0) for state in states) + allocation.idle
            left = tasks * states[0].plan.step.replicas
            if asked.count > left:
                gone[asked.name] = asked.count - left
        scheduler.reclaim(allocation.key, gone, now)

    def _end(self, allocation: Allocation, now: float) -> None:
        reservation, _ = self._allocations.pop(allocation.key)
        self._ungated.pop(allocation.key, None)
        reservation.remove(allocation)
        if reservation.reason and not reservation.pending:
            if not allocation.held:
                reservation.run.note("reservation.withdrawn", reservation.name, {"workload": allocation.key})
            reservation.reason = ""
        if allocation.key in self.quota.scheduler.workloads:
            self.quota.scheduler.finish(allocation.key, now)
        if not reservation.allocations and not reservation.steps:
            self._reservations.pop((reservation.run.number, reservation.name), None)

    def _step_ended(self, run: QueuedRun, state: StepState, now: float) -> None:
        reservation = self._find(run, state.plan, state.scope)
        if reservation is None:
            return
        reservation.steps.discard(state)
        for one in list(reservation.allocations.values()):
            if one.gated:
                if not reservation.has_successor(state) and not reservation.steps:
                    self._end(one, now)  # it never had to ask
            elif state in one.asked and (not one.held or one.evicting):
                one.asked[state] = 0
                if not one.evicting and not any(one.asked.values()):
                    self._end(one, now)
            elif one.held and not one.busy and not one.idle:
                self._end(one, now)

    def release_idle(self, now: float) -> None:
        """Machines that were kept for a stage which did not come."""
        idle = [one for reservation, one in self._ungated.values() if one.idle and not reservation.steps]
        for allocation in idle:
            allocation.idle = 0
            if not allocation.evicting and not allocation.busy and allocation.key in self._allocations:
                self._end(allocation, now)

    def withdraw_waiting(self, now: float) -> None:
        """Nothing more will start here: what waits for quota, or would, need not."""
        for _, allocation in list(self._allocations.values()):
            if not allocation.held and allocation.key in self._allocations:
                self._end(allocation, now)

    def drop(self, run: QueuedRun, now: float) -> bool:
        """The run has ended, or belongs to another engine: it holds nothing and waits for nothing. False: so it was already."""
        mine = [one for reservation, one in self._allocations.values() if reservation.run is run]
        self._workflows.pop(run.number, None)
        for allocation in mine:
            self._end(allocation, now)
        for key in [key for key in self._reservations if key[0] == run.number]:
            del self._reservations[key]
        self._chains.pop(run.number, None)
        self._ahead.discard(run.number)
        return bool(mine)

    # -- asking -------------------------------------------------------------------------------------------------------

    def reserve_ahead(self, run: QueuedRun, needs_quota: Callable[[Step], bool], now: float) -> None:
        """Queue the stages that are known, gated: they take no part in admission before they are ready, but everybody can see
        that they will, and their place in the queue. Once for each run."""
        if run.number in self._ahead:
            return
        self._ahead.add(run.number)
        root = run.state.root
        if _unit(run) not in (Unit.STAGE, Unit.REUSE) or len(root.blueprint.plans) > AHEAD:
            return
        for plan, outcome, state in zip(root.blueprint.plans, root.outcomes, root.states, strict=True):
            if plan.number >= root.blueprint.main or outcome is not None or state is not None or plan.inner is not None:
                continue
            if plan.step.exempt or not needs_quota(plan.step):
                continue
            reservation = self._get(run, plan, root)
            if not reservation.allocations and not reservation.steps:
                self._allocate(reservation, {}, now, plan.step)

    def request(self, run: QueuedRun, states: Iterable[StepState], now: float) -> None:
        """Steps that have tasks to start."""
        together: dict[ActiveReservation, list[StepState]] = {}
        for state in states:
            if _unit(run) is Unit.WORKFLOW:
                self._request_workflow(run, state, now)
            else:
                reservation = self._get(run, state.plan, state.scope)
                reservation.steps.add(state)
                together.setdefault(reservation, []).append(state)
        for reservation, some in together.items():
            self._request(reservation, some, now)

    def _get(self, run: QueuedRun, plan: StepPlan, scope: WorkflowScope) -> ActiveReservation:
        found = self._find(run, plan, scope)
        if found is None:
            name, chain = self._name(run, plan, scope)
            workflow = run.state.blueprint.workflow
            step = plan.step
            queue = self.quota.queue_for(step.queue or workflow.queue)
            priority = self.quota.priority_of(step.priority if step.priority is not None else workflow.priority)
            found = ActiveReservation(run, name, queue, priority, _unit(run), chain, self._next_order())
            self._reservations[run.number, name] = found
        return found

    def _find(self, run: QueuedRun, plan: StepPlan, scope: WorkflowScope) -> ActiveReservation | None:
        return self._reservations.get((run.number, self._name(run, plan, scope)[0]))

    def _name(self, run: QueuedRun, plan: StepPlan, scope: WorkflowScope) -> tuple[str, tuple[str, ...]]:
        """Of the reservation for a step, and the steps of its chain."""
        step = plan.step
        unit = _unit(run)
        name = scope.prefix + step.name
        chain: tuple[str, ...] = (step.name,)
        if unit is Unit.REUSE:
            chains = self._chains.get(run.number)
            if chains is None:
                chains = chains_of(run.state.blueprint.workflow, run.record.params)
                self._chains[run.number] = chains
            chain = chains.get(scope.step_prefix + step.name, chain)
            name = scope.prefix + chain[0]
        if step.group is not None and unit in (Unit.STAGE, Unit.REUSE) and len(chain) == 1:
            name = scope.prefix + step.group
        return name, chain

    def _next_order(self) -> int:
        self._order += 1
        return self._order

    def _request(self, reservation: ActiveReservation, states: list[StepState], now: float) -> None:
        scheduler = self.quota.scheduler
        more: dict[StepState, int] = {}
        for state in states:
            self._inherit(reservation, state, now)
            lacking = state.wanted - reservation.requested(state)
            if lacking > 0:
                more[state] = lacking
        if not more:
            return
        if reservation.unit is Unit.TASK:
            self._request_tasks(reservation, more, now)
            return
        gated = next((one for one in reservation.allocations.values() if one.gated), None)
        if gated is not None and len(shapes(more)) <= MOST_SHAPES:
            gated.asked, gated.gated, gated.since = more, False, now
            self._ungated[gated.key] = (reservation, gated)
            reservation.add(gated)
            self._unexplained[reservation] = None
            scheduler.resize(gated.key, podsets(more), now)
            scheduler.ungate(gated.key, GATE, now)
            return
        for growing in reservation.pending.values():
            if growing.asked.keys() >= more.keys() and scheduler.workloads[growing.key].admission is None:
                for state, lacking in more.items():
                    growing.asked[state] += lacking
                scheduler.resize(growing.key, podsets(growing.asked), now)
                return
        kinds = shapes(more)
        for at in range(0, len(kinds), MOST_SHAPES):
            some = [state for alike in kinds[at : at + MOST_SHAPES] for state in alike]
            self._allocate(reservation, {state: more[state] for state in some}, now)

    def _request_tasks(self, reservation: ActiveReservation, more: Mapping[StepState, int], now: float) -> None:
        for state, lacking in more.items():
            gang = state.plan.step.each is not None and state.plan.step.each.gang
            for _ in range(1 if gang else min(lacking, SINGLES - len(reservation.pending))):
                self._allocate(reservation, {state: lacking if gang else 1}, now)

    def _inherit(self, reservation: ActiveReservation, state: StepState, now: float) -> None:
        """Take over the machines of the stage before."""
        for one in reservation.allocations.values():
            if one.idle and not one.evicting and len(shapes((*one.asked, state))) == 1:
                many = min(one.idle, state.wanted)
                one.idle -= many
                one.granted = {state: many}
                one.asked = {state: one.asked.popitem()[1]}
                reservation.run.state.ready.permit(state, one, many)
                if one.idle:
                    one.idle = 0
                    self._give_back(one, now)

    def _allocate(
        self, reservation: ActiveReservation, asked: dict[StepState, int], now: float, gated: Step | None = None
    ) -> None:
        """`gated`: for a step that is not ready, so nobody knows how many tasks it will have."""
        name = reservation.next_name()
        workload = reservation.workload(name, podsets(asked) if gated is None else (task_podset(gated),))
        allocation = Allocation(workload.key, dict(asked), now)
        if gated is not None:
            allocation.gated = True
            workload.gates = frozenset({GATE})
        self._submit(reservation, allocation, workload, now)

    def _submit(self, reservation: ActiveReservation, allocation: Allocation, workload: Workload, now: float) -> None:
        reservation.add(allocation)
        self._allocations[allocation.key] = (reservation, allocation)
        if not allocation.gated:
            self._ungated[allocation.key] = (reservation, allocation)
            self._unexplained[reservation] = None
        self.quota.submit(workload, reservation.run.number, now)

    # -- a whole workflow ---------------------------------------------------------------------------------------------

    def _request_workflow(self, run: QueuedRun, state: StepState, now: float) -> None:
        whole = self._workflows.get(run.number)
        if whole is None:
            workflow = run.state.blueprint.workflow
            if not self.quota.configured:
                workflow = of_this_machine(workflow)
            whole = self._workflows[run.number] = WorkflowReservation(run, workflow, run.record.params)
            queue, priority = self.quota.queue_for(workflow.queue), self.quota.priority_of(workflow.priority)
            order = self._next_order()
            reservation = ActiveReservation(run, "workflow", queue, priority, Unit.WORKFLOW, ("workflow",), order)
            self._reservations[run.number, ""] = reservation
            workload = reservation.workload(run.record.id, whole.podsets())
            whole.allocation = Allocation(workload.key, {}, now)
            self._submit(reservation, whole.allocation, workload, now)
        whole.waiting[state] = None
        if whole.allocation.held and not whole.allocation.evicting:
            self._hand_out(whole)

    def _hand_out(self, whole: WorkflowReservation) -> None:
        """Let tasks start on what is held and free."""
        for state in list(whole.waiting):
            many = whole.fits(state)
            if many:
                whole.take(state, many)
                whole.run.state.ready.permit(state, whole.allocation, many)
            if not state.wanted:
                del whole.waiting[state]

    def _shrink(self, whole: WorkflowReservation, now: float) -> None:
        if not whole.allocation.held or whole.allocation.evicting:
            return
        gone = self._pace.shrink(whole)
        if gone:
            self.quota.scheduler.reclaim(whole.allocation.key, gone, now)
        self._hand_out(whole)

    def shrink_postponed(self, now: float) -> None:
        for whole in [whole for whole in self._workflows.values() if whole.postponed]:
            whole.postponed = False
            self._shrink(whole, now)

    def is_active(self, whole: WorkflowReservation) -> bool:
        return whole.run.number in self._workflows

    # -- what the scheduler decided -----------------------------------------------------------------------------------

    def apply(self, keys: Iterable[str], now: float) -> bool:
        """Act on what was decided about these Workloads. True: that asks for another decision."""
        again = False
        for key in keys:
            if key not in self._allocations:
                continue
            reservation, allocation = self._allocations[key]
            workload = self.quota.scheduler.workloads.get(key)
            if workload is None:
                # Another engine took this one for dead, and gave its quota away.
                self._evict(reservation, allocation, {"reason": "lost"})
                again |= self._leave(reservation, allocation, now)
            elif workload.eviction is not None and workload.admission is not None and not allocation.evicting:
                # Perhaps before this engine knew that it was admitted at all.
                keeps = self._may_keep(reservation, allocation, workload)
                self._evict(reservation, allocation, _why(workload.eviction), keeps)
            elif workload.admitted_at is not None and workload.eviction is None and not allocation.held:
                again |= self._grant(reservation, allocation, workload, now)
        for reservation, allocation in [one for one in self._ungated.values() if one[1].evicting]:
            again |= self._leave(reservation, allocation, now)
        return again

    def cut_down(self, now: float) -> bool:
        """A loop for which others are preempted, but not for all of it, asks for that part, and for the rest behind it. Otherwise it
        would ask for everything again once they are gone, and those who had borrowed might be admitted before it, without end."""
        scheduler = self.quota.scheduler
        cut = False
        for reservation, allocation in list(self._ungated.values()):
            waits = not allocation.held and scheduler.workloads[allocation.key].admission is None
            decision = scheduler.decisions.get(allocation.key) if waits else None
            if decision is None or decision.decision != "preempt" or reservation.unit in (Unit.TASK, Unit.WORKFLOW):
                continue
            if len(allocation.asked) == 0 or len(allocation.shapes()) > 1:
                continue
            (states,) = allocation.shapes()
            tasks = sum(choice.count for choice in decision.podsets) // states[0].plan.step.replicas
            if not 0 < tasks < sum(allocation.asked.values()):
                continue
            kept, rest = _split(allocation.asked, tasks)
            allocation.asked = kept
            scheduler.resize(allocation.key, podsets(kept), now)
            self._allocate(reservation, rest, now)
            cut = True
        return cut

    def _grant(self, reservation: ActiveReservation, allocation: Allocation, workload: Workload, now: float) -> bool:
        scheduler = self.quota.scheduler
        run = reservation.run
        allocation.held = True
        reservation.pending.pop(allocation.key, None)
        self._admitted(run, reservation.name)
        if scheduler.config.pods_ready_timeout is not None:
            scheduler.ready(allocation.key, now)  # what runs on this machine is ready when it starts
        if not reservation.pending:
            reservation.reason = ""
        data = _admission_data(workload, now - allocation.since)
        whole = self._workflows.get(run.number)
        if whole is not None:
            run.note("reservation.admitted", reservation.name, data)
            whole.admitted(workload)
            self._hand_out(whole)
            return False
        rest = self._hand_permits(run, allocation, workload)
        if rest:
            asked = allocation.asked
            allocation.asked = {state: allocation.granted[state] for state in asked if state in allocation.granted}
        data["tasks"] = allocation.busy
        if allocation.busy:
            run.note("reservation.admitted", reservation.name, data)
        self._give_back(allocation, now)
        if not allocation.busy:
            return True
        if rest and reservation.unit is not Unit.TASK:
            self._allocate(reservation, rest, now)
            return True
        wanted = any(state.wanted for state in reservation.steps)
        if reservation.unit is Unit.TASK and not reservation.pending and wanted:
            self._request(reservation, list(reservation.steps), now)
            return True
        return False

    def _hand_permits(self, run: QueuedRun, allocation: Allocation, workload: Workload) -> dict[StepState, int]:
        """Permits for as many tasks as were admitted. Returns those that were not."""
        assert workload.admission is not None
        rest: dict[StepState, int] = {}
        for states, given in zip(allocation.shapes(), workload.admission.podsets, strict=True):
            tasks = given.count // states[0].plan.step.replicas
            for at, state in enumerate(states):
                if not tasks:
                    rest.update((other, allocation.asked[other]) for other in states[at:])
                    break
                many = min(tasks, allocation.asked[state], state.wanted)
                tasks -= many
                if many:
                    allocation.granted[state] = many
                    run.state.ready.permit(state, allocation, many)
                if not tasks and allocation.asked[state] > many and state.wanted:
                    rest[state] = min(allocation.asked[state] - many, state.wanted)
        return rest

    def _may_keep(self, reservation: ActiveReservation, allocation: Allocation, workload: Workload) -> int:
        """How many of its tasks may go on, although it is preempted."""
        assert workload.eviction is not None
        if workload.eviction.reason != PREEMPTED or not allocation.held or reservation.unit is Unit.WORKFLOW:
            return 0
        if len(allocation.shapes()) != 1 or allocation.idle:
            return 0
        pods = self.quota.scheduler.kept_pods(allocation.key)
        return min(allocation.busy, pods // allocation.shapes()[0][0].plan.step.replicas)

    def _evict(
        self, reservation: ActiveReservation, allocation: Allocation, why: dict[str, Any], keeps: int = 0
    ) -> None:
        """Stop what runs on it, the youngest first, but for so many tasks. The quota is free when what is stopped has ended."""
        run = reservation.run
        if self._evicted is not None:
            self._evicted(run, allocation.key)
        had = dict(allocation.granted) if allocation.held else dict(allocation.asked)
        many = allocation.busy - keeps
        allocation.held = allocation.evicting = True
        allocation.keeps = keeps
        reservation.pending.pop(allocation.key, None)
        part = {"tasks": many, "kept": keeps} if keeps else {}
        run.note("reservation.evicted", reservation.name, {"workload": allocation.key, **part, **why})
        self._stop_tasks(run, allocation, many, why)
        allocation.idle = 0
        if run.number not in self._workflows:
            allocation.asked = {state: had.get(state, 0) for state in allocation.asked}

    def _stop_tasks(self, run: QueuedRun, allocation: Allocation, many: int, why: dict[str, Any]) -> None:
        """First permits that no task has taken, then tasks that have not started, then the youngest."""
        ready = run.state.ready
        for state in list(allocation.granted):
            unused = len(ready.withdraw(state, allocation))
            given = min(unused, many)
            allocation.granted[state] -= given
            many -= given
            if unused > given:
                ready.permit(state, allocation, unused - given)
        for task in sorted((one for one in run.state.live.values() if one.permit is allocation), key=_age)[:many]:
            if not self._preempt(run, task, why):
                allocation.granted[task.state] -= 1
                ready.displace(task)
                run.displaced(task)

    def _leave(self, reservation: ActiveReservation, allocation: Allocation, now: float) -> bool:
        """Give up the quota of what was evicted, once its tasks have stopped. True if that is so, and others may be admitted."""
        if not allocation.evicting or allocation.busy > allocation.keeps:
            return False
        if allocation.keeps and allocation.key in self.quota.scheduler.workloads:
            self._go_on(reservation, allocation, now)
            return True
        scheduler = self.quota.scheduler
        allocation.evicting = allocation.held = False
        allocation.since = now
        allocation.granted = {}
        workload = scheduler.workloads.get(allocation.key)
        if workload is not None:
            scheduler.release(allocation.key, now)
        whole = self._workflows.get(reservation.run.number)
        if whole is not None:
            asked = whole.podsets()
        else:
            covered = {state: reservation.requested(state) - allocation.asked[state] for state in allocation.asked}
            allocation.asked = {
                state: max(0, state.wanted - covered[state]) for state in allocation.asked if state in reservation.steps
            }
            asked = podsets(allocation.asked) if any(allocation.asked.values()) else ()
        if not asked:
            self._end(allocation, now)
        elif workload is None:
            del self._allocations[allocation.key]
            self._ungated.pop(allocation.key, None)
            reservation.remove(allocation)
            renewed = reservation.workload(reservation.next_name(), asked)
            allocation.key = renewed.key
            self._submit(reservation, allocation, renewed, now)
        else:
            reservation.add(allocation)
            self._unexplained[reservation] = None
            scheduler.resize(allocation.key, asked, now)
        return True

    def _go_on(self, reservation: ActiveReservation, allocation: Allocation, now: float) -> None:
        """It has given back what was asked. The tasks that were stopped for it request quota again."""
        allocation.evicting, allocation.keeps = False, 0
        allocation.asked = {state: allocation.granted.get(state, 0) for state in allocation.asked}
        self._give_back(allocation, now)
        if allocation.key in self._allocations:
            self.quota.scheduler.spare(allocation.key, now)
        self._request(reservation, sorted(reservation.steps, key=lambda one: one.plan.number), now)

    # -- why ----------------------------------------------------------------------------------------------------------

    def record_reasons(self, now: float, everybody: bool) -> None:
        """Each wait is recorded with its reason, and again when the reason is another. `everybody`: also those whose wait is
        recorded already."""
        if everybody:
            asked = list(dict.fromkeys(reservation for reservation, one in self._ungated.values() if not one.held))
        else:
            asked = list(self._unexplained)
        self._unexplained.clear()
        scheduler = self.quota.scheduler
        for reservation in asked:
            allocation = next(iter(reservation.pending.values()), None)
            if allocation is None:
                continue
            kind = scheduler.hold_kind(allocation.key, now)
            if kind != reservation.reason:
                reservation.reason = kind
                reason = scheduler.explain(allocation.key, now).as_data()
                data = {"workload": allocation.key, "reason": reason}
                reservation.run.note("reservation.waiting", reservation.name, data)


def _age(task: Task) -> tuple[bool, float]:
    """Sorts the youngest first, and before them those that have not started."""
    started = None if task.execution is None else task.execution.started
    return started is not None, -(started or 0.0)


def _unit(run: QueuedRun) -> Unit:
    return run.state.blueprint.workflow.unit or Unit.STAGE


def _split(asked: Mapping[StepState, int], tasks: int) -> tuple[dict[StepState, int], dict[StepState, int]]:
    """The first so many tasks, and the rest."""
    kept: dict[StepState, int] = {}
    rest: dict[StepState, int] = {}
    for state, wanted in asked.items():
        many = min(tasks, wanted)
        tasks -= many
        if many:
            kept[state] = many
        if wanted > many:
            rest[state] = wanted - many
    return kept, rest


def _why(eviction: Eviction) -> dict[str, Any]:
    data: dict[str, Any] = {"reason": eviction.preempted or eviction.reason}
    if eviction.by:
        data["by"] = eviction.by
    return data


def _admission_data(workload: Workload, waited: float) -> dict[str, Any]:
    assert workload.admission is not None
    held: dict[str, dict[str, int]] = {}
    for fr, amount in sorted(workload.held.items()):
        held.setdefault(fr.flavor, {})[fr.resource] = amount
    return {
        "workload": workload.key,
        "queue": workload.admission.cluster_queue,
        "flavors": sorted({flavor for one in workload.admission.podsets for flavor in one.flavors.values()}),
        "held": held,
        "waited": round(max(0.0, waited), 3),
    }
