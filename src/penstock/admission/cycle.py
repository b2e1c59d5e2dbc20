"""One scheduling cycle: the head of every line is nominated against the same state, then they are taken one after the other, each
seeing what those before it take. Called by queues; the flavors and the victims come from flavors and preempt.

Nothing is copied. What a head takes in the course of the cycle is added to the tree itself and taken out again at the end; then
those that were admitted get it for good. Victims only learn that they must stop: they hold their quota until they have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.admission import flavors, lifecycle, preempt, tournament
from penstock.admission.assignment import Assignment, Mode
from penstock.admission.decisions import Cycle, Decision, Preempted, Victim
from penstock.admission.hall import Hall
from penstock.admission.lines import Place, Why, selects
from penstock.admission.model import CheckState, FlavorResource, Policy, Usage, Workload
from penstock.admission.order import cycle_key
from penstock.admission.preempt import Target
from penstock.admission.quota import NO_QUOTA, Node, minus, plus
from penstock.admission.state import State


@dataclass(slots=True, eq=False)
class Entry:
    """A head on its way through the cycle."""

    place: Place
    workload: Workload
    queue: str
    node: Node
    preemptor: bool
    assignment: Assignment
    targets: list[Target]
    nominated_mode: str = ""
    mode: str = ""
    why: Why = Why.GENERIC
    decision: str = ""
    reason: str = ""
    note: str = ""


class _Run:
    """What the heads so far have taken."""

    def __init__(self, q: Hall, now: float) -> None:
        self.q = q
        self.now = now
        self.victims: dict[str, Target] = {}
        self.leaving: dict[str, list[tuple[Node, Usage]]] = {}
        """By root: what the victims hold."""
        self.taken: list[tuple[Node, Usage]] = []
        self.admitted: list[Entry] = []
        self.skipped: dict[str, int] = {}

    def take(self, node: Node, usage: Usage) -> None:
        node.add(usage)
        self.taken.append((node, usage))

    def give_back(self) -> None:
        for node, usage in reversed(self.taken):
            node.remove(usage)

    def overlaps(self, targets: list[Target]) -> bool:
        return bool(self.victims) and any(target.workload.key in self.victims for target in targets)

    def preempt(self, entry: Entry) -> None:
        self.victims.update((target.workload.key, target) for target in entry.targets)
        self.leaving.setdefault(self.q.roots[entry.queue], []).extend(self.held_by(entry.targets))

    def held_by(self, targets: list[Target]) -> list[tuple[Node, Usage]]:
        nodes = self.q.state.tree.queues
        return [
            (nodes[target.workload.admission.cluster_queue], target.workload.held)
            for target in targets
            if target.workload.admission is not None
        ]

    def fits(self, entry: Entry) -> bool:
        """With its own victims gone, and those of the heads before it? They are not the same, or it had been skipped."""
        gone = self.leaving.get(self.q.roots[entry.queue], [])
        if entry.targets:
            gone = gone + self.held_by(entry.targets)
        for node, usage in gone:
            node.remove(usage)
        fits = all(amount <= entry.node.available(fr) for fr, amount in entry.assignment.usage.items())
        for node, usage in reversed(gone):
            node.add(usage)
        return fits


def run(q: Hall, now: float, roots: Collection[str] | None = None) -> Cycle:
    """Over the heads of all lines, or of those below some roots. Marks the roots in which another cycle would do more."""
    q.state.cycle += 1
    q.flushed.difference_update(q.trees if roots is None else roots)
    entries: list[Entry] = []
    refused: list[Entry] = []
    q.state.shared = {}
    for queue, place in _pop(q, roots):
        entry = _nominate(q, queue, place, now)
        (refused if entry.decision else entries).append(entry)
    q.state.shared = None
    this = _Run(q, now)
    done: list[Entry] = []
    for entry in _in_turn(q, entries):
        _process(this, entry)
        done.append(entry)
    this.give_back()
    preempted = tuple(_carry_out(q, done, now))
    for entry in this.admitted:
        entry.workload.admission = entry.assignment.admission(entry.queue)
        lifecycle.reserve(q, entry.workload, now)
    parked = {q.roots[entry.queue] for entry in (*done, *refused) if _come_back(q, entry, now)}
    for entry in done:
        if entry.decision == "skip" and q.roots[entry.queue] in parked:
            q.stirred.add(q.roots[entry.queue])  # the one that was in its way does not take part in the next cycle
    by = {found.by for found in preempted}
    for entry in done:
        if entry.decision == "admit" or entry.workload.key in by:
            q.stir(entry.queue)
    reserved = tuple(entry.workload.key for entry in this.admitted)
    return Cycle(
        now,
        tuple(
            q.decisions[entry.workload.key] if entry.decision != "admit" else _told(entry)
            for entry in (*done, *refused)
        ),
        reserved,
        tuple(key for key in reserved if q.workloads[key].admitted_at is not None),
        preempted,
        this.skipped,
    )


def _pop(q: Hall, roots: Collection[str] | None) -> Iterator[tuple[str, Place]]:
    names: Iterable[str] = (
        q.roots if roots is None else (name for root in sorted(roots) for name in q.trees.get(root, ()))
    )
    for name in names:
        if name not in q.why_inactive:
            place = q.lines[name].pop()
            if place is not None:
                yield name, place


# -- nomination -------------------------------------------------------------------------------------------------------


_NOTHING = Assignment((), 0, {}, Mode.NO_FIT)


def _nominate(q: Hall, queue: str, place: Place, now: float) -> Entry:
    workload = place.workload
    preemptor = q.lines[queue].is_preemptor(workload.key)
    entry = Entry(place, workload, queue, q.state.tree.queues[queue], preemptor, _NOTHING, [])
    if any(state in (CheckState.RETRY, CheckState.REJECTED) for state in workload.checks.values()):
        entry.decision, entry.reason, entry.note = "inadmissible", "PendingEvaluation", "an admission check has failed"
    elif not selects(q.cluster_queues[queue].namespaces, q.labels(workload.namespace)):
        entry.decision, entry.reason, entry.why = "inadmissible", "Misconfigured", Why.NAMESPACE
        entry.note = f"ClusterQueue {queue} takes nothing from namespace {workload.namespace}"
    elif workload.unfit:
        entry.decision, entry.reason, entry.note = "inadmissible", "Misconfigured", workload.unfit
    else:
        entry.assignment, entry.targets = _assign(q.state, workload, queue, now)
        entry.nominated_mode = entry.mode = entry.assignment.kind
        workload.memory = entry.assignment.memory
    return entry


def _assign(
    state: State, workload: Workload, queue: str, now: float, only: flavors.Pinned | None = None
) -> tuple[Assignment, list[Target]]:
    """At full size, or as much of it as fits."""
    whole = flavors.assign(state, workload, queue, only=only)
    if whole.mode is Mode.FIT:
        return whole, []
    if whole.kind == "Preempt" and (found := _targets(state, workload, queue, whole, now)):
        return whole, found
    if state.config.gate("PartialAdmission", True) and any(
        podset.min_count is not None and podset.count > podset.min_count for podset in workload.podsets
    ):

        def attempt(counts: tuple[int, ...]) -> tuple[Assignment, list[Target]] | None:
            part = flavors.assign(state, workload, queue, counts, only=only)
            if part.mode is Mode.FIT:
                return part, []
            victims = _targets(state, workload, queue, part, now) if part.kind == "Preempt" else []
            return (part, victims) if victims else None

        if (smaller := flavors.search(workload.podsets, attempt)) is not None:
            return smaller
    return whole, []


def _targets(state: State, workload: Workload, queue: str, assignment: Assignment, now: float) -> list[Target]:
    if assignment.mode is Mode.NO_CANDIDATES and len(assignment.needs()) == 1:
        return []  # which is what the search for a flavor has found out
    return preempt.targets(state, workload, queue, assignment, now)


def _in_turn(q: Hall, entries: list[Entry]) -> Iterable[Entry]:
    if q.config.fair_sharing:
        return tournament.in_turn(q.state, entries)
    return sorted(
        entries, key=lambda entry: cycle_key(entry.workload, entry.assignment.borrowing, entry.preemptor, q.config)
    )


# -- one after the other ----------------------------------------------------------------------------------------------


def _process(this: _Run, entry: Entry) -> None:
    overlaps = this.overlaps(entry.targets)
    if overlaps and this.q.config.gate("RecomputeAssignmentUponPreemptionTargetsOverlap", False):
        _think_again(this, entry)
        overlaps = this.overlaps(entry.targets)
    if entry.mode == "NoFit":
        entry.decision, entry.why, entry.reason = "noFit", Why.NO_FIT, entry.assignment.no_fit
    elif entry.mode == "Preempt" and not entry.targets:
        entry.decision, entry.why, entry.reason = "noPreemptionCandidates", Why.NO_CANDIDATES, "WaitingForQuota"
        _keep_room(this, entry)
    elif entry.mode == "DeferredFit":
        entry.decision, entry.why, entry.reason = "waitForPreemption", Why.PREEMPTING, "WaitingForPreemptedWorkloads"
        entry.workload.memory = None
        this.take(entry.node, entry.assignment.usage)
    elif overlaps or not this.fits(entry):
        _skip(this, entry, "WaitingForQuota")
        if entry.mode == "Preempt":
            this.skipped[entry.queue] = this.skipped.get(entry.queue, 0) + 1
    else:
        this.take(entry.node, entry.assignment.usage)
        if entry.mode == "Preempt":
            this.preempt(entry)
            entry.decision, entry.why, entry.reason = "preempt", Why.PREEMPTING, "WaitingForPreemptedWorkloads"
            entry.workload.memory = None
        elif this.q.config.block_admission and (this.q.unready or this.admitted):
            _skip(this, entry, "WaitingForPodsReady")
        else:
            entry.decision = "admit"
            this.admitted.append(entry)


def _skip(this: _Run, entry: Entry, reason: str) -> None:
    entry.decision, entry.why, entry.reason = "skip", Why.FAILED, reason
    if not this.q.config.gate("FlavorFungibilityPreserveScanProgress", True):
        entry.workload.memory = None


def _think_again(this: _Run, entry: Entry) -> None:
    """Its victims are going anyway, for another: is there room for it beside that one, on the same flavors?"""
    workload, state = entry.workload, this.q.state
    workload.memory = None
    with _without(state, [target.workload for target in this.victims.values()]):
        entry.assignment, entry.targets = _assign(state, workload, entry.queue, this.now, entry.assignment.flavors())
    workload.memory = entry.assignment.memory
    entry.mode = "DeferredFit" if entry.assignment.mode is Mode.FIT else entry.assignment.kind


@contextmanager
def _without(state: State, workloads: list[Workload]) -> Iterator[None]:
    """As if they held nothing, and were nowhere."""
    holders, generations = dict(state.holders), dict(state.generations)
    for queue in {workload.admission.cluster_queue for workload in workloads if workload.admission is not None}:
        state.holders[queue] = dict(state.holders[queue])
    state.drop_all(workloads)
    yield
    state.hold_all(reversed(workloads))
    state.holders.update(holders)
    state.generations = generations


def _keep_room(this: _Run, entry: Entry) -> None:
    """There is nobody that it may preempt. If its queue cannot take its own quota back whenever it wants, nobody behind it may
    take what it is waiting for."""
    q = this.q
    always = q.cluster_queues[entry.queue].preemption.reclaim is Policy.ANY
    if not always or (entry.preemptor and q.config.gate("PrioritizePreemptorWorkloads", False)):
        this.take(entry.node, room(entry.node, entry.assignment))


def room(node: Node, assignment: Assignment) -> dict[FlavorResource, int]:
    """How much of a queue's quota is kept for a head that needs a preemption."""
    if assignment.kind != "Preempt":
        return dict(assignment.usage)
    found = {}
    for fr, amount in assignment.usage.items():
        quota, used = node.quotas.get(fr, NO_QUOTA), node.usage.get(fr, 0)
        if assignment.borrowing == 0:
            found[fr] = max(0, min(amount, minus(quota.nominal, used)))
        elif quota.borrowing is None:
            found[fr] = amount
        else:
            found[fr] = min(amount, minus(plus(quota.nominal, quota.borrowing), used))
    return found


# -- the end of the cycle ---------------------------------------------------------------------------------------------


def _carry_out(q: Hall, entries: list[Entry], now: float) -> Iterator[Preempted]:
    for entry in entries:
        if entry.decision == "preempt":
            for target in entry.targets:
                if target.workload.eviction is None:
                    by = entry.workload.key
                    lifecycle.evict(q, target.workload, lifecycle.PREEMPTED, now, target.reason, by)
                    yield Preempted(target.workload.key, target.reason, by)


def _come_back(q: Hall, entry: Entry, now: float) -> bool:
    """Into line again, or to be parked; is it parked? Where another head has come up, or flavors are left to try, there is more to decide."""
    line, workload = q.lines[entry.queue], entry.workload
    if entry.decision == "admit":
        if line.preemptor == workload.key:
            line.remove(workload.key)
        q.decisions.pop(workload.key, None)
        return False
    q.decisions[workload.key] = _told(entry)
    flavors_left = _flavors_left(q, entry)
    in_line = line.requeue(entry.place, entry.why, now, flavors_left)
    head = line.head()
    if (in_line and flavors_left) or (head is not None and head is not entry.place):
        q.stirred.add(q.roots[entry.queue])
    return not in_line


def _flavors_left(q: Hall, entry: Entry) -> bool:
    """Has its search not come to an end? Where pod sets hinder each other it may go round in circles: once is enough, so that
    those behind get their turn."""
    memory = entry.workload.memory
    if memory is None or not memory.pending:
        return False
    seen = q.scans.setdefault(q.roots[entry.queue], set())
    here = (
        entry.workload.key,
        tuple((name, tuple(sorted(tried.items()))) for name, tried in sorted(memory.tried.items())),
    )
    if here in seen:
        return False
    seen.add(here)
    return True


def _told(entry: Entry) -> Decision:
    return Decision(
        workload=entry.workload.key,
        cluster_queue=entry.queue,
        decision=entry.decision,
        nominated_mode=entry.nominated_mode,
        mode=entry.mode if entry.mode != entry.nominated_mode else "",
        borrowing_level=entry.assignment.borrowing,
        podsets=entry.assignment.podsets,
        targets=tuple(
            Victim(target.workload.key, target.reason, target.workload.admission.cluster_queue)
            for target in entry.targets
            if target.workload.admission is not None
        ),
        reason=entry.reason,
        note=entry.note,
    )
