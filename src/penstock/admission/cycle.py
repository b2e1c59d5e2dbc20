"""One scheduling cycle: all heads are nominated on the same snapshot, then processed one after the other, each with what the earlier
ones take. The scheduler makes one SchedulingCycle for each cycle, carries out what it decides and requeues the other heads.

Nothing is copied. What a head takes during the cycle is added to the quota tree, and `end` removes it again; the scheduler then
reserves the quota of the admitted ones. Preemption targets hold their quota until they have stopped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.admission.assignment import Assignment, Mode
from penstock.admission.cache import SchedulerCache
from penstock.admission.candidates import PreemptionTarget
from penstock.admission.decisions import Decision, TargetRecord
from penstock.admission.fair_order import in_fair_order
from penstock.admission.flavors import FlavorAssigner, Pinned, search_counts
from penstock.admission.model import CheckState, FlavorResource, Policy, Usage, Workload
from penstock.admission.order import cycle_key
from penstock.admission.pending import PendingWorkload, RequeueReason
from penstock.admission.preemption import Preemptor
from penstock.admission.queues import Head
from penstock.admission.quota import NO_QUOTA, QuotaNode, minus, plus

_NOTHING = Assignment((), 0, {}, Mode.NO_FIT)


@dataclass(slots=True, eq=False)
class CycleEntry:
    """A head in a cycle, and what was decided about it."""

    pending: PendingWorkload
    workload: Workload
    queue: str
    node: QuotaNode
    preemptor: bool
    assignment: Assignment
    targets: list[PreemptionTarget]
    nominated_mode: str = ""
    mode: str = ""
    requeue_reason: RequeueReason = RequeueReason.GENERIC
    decision: str = ""
    """See `Decision.decision`. Empty until it is decided."""
    reason: str = ""
    note: str = ""

    def decide(self, decision: str, requeue_reason: RequeueReason, reason: str) -> None:
        self.decision, self.requeue_reason, self.reason = decision, requeue_reason, reason

    def record(self) -> Decision:
        return Decision(
            workload=self.workload.key,
            cluster_queue=self.queue,
            decision=self.decision,
            nominated_mode=self.nominated_mode,
            mode=self.mode if self.mode != self.nominated_mode else "",
            borrowing_level=self.assignment.borrowing,
            podsets=self.assignment.podsets,
            targets=tuple(
                TargetRecord(target.key, reason, target.admission.cluster_queue)
                for target, reason in self.targets
                if target.admission is not None
            ),
            reason=self.reason,
            note=self.note,
        )


class SchedulingCycle:
    def __init__(
        self,
        cache: SchedulerCache,
        assigner: FlavorAssigner,
        preemptor: Preemptor,
        now: float,
        waits_for_pods: bool = False,
    ) -> None:
        self.cache = cache
        self.config = cache.config
        self.snapshot = cache.snapshot
        self.assigner = assigner
        self.preemptor = preemptor
        self.now = now
        self.waits_for_pods = waits_for_pods
        """blockAdmission: nothing is admitted while the pods of an admitted Workload are not ready."""
        self.processed: list[CycleEntry] = []
        """In order."""
        self.inadmissible: list[CycleEntry] = []
        """They were not nominated."""
        self.admitted: list[CycleEntry] = []
        self.skipped_preemptions: dict[str, int] = {}
        self._targets: dict[str, PreemptionTarget] = {}
        """Of all entries so far, by key."""
        self._freed: dict[str, list[tuple[QuotaNode, Usage]]] = {}
        """By root: what these targets hold."""
        self._taken: list[tuple[QuotaNode, Usage]] = []

    def run(self, heads: Iterable[Head]) -> None:
        for entry in self._ordered(self.nominate(heads)):
            self.process(entry)
        self.end()

    def end(self) -> None:
        """Remove from the tree what the entries took."""
        for node, usage in reversed(self._taken):
            node.remove(usage)

    # -- nomination ---------------------------------------------------------------------------------------------------

    def nominate(self, heads: Iterable[Head]) -> list[CycleEntry]:
        """The heads that can be processed, with flavors and preemption targets for each."""
        entries: list[CycleEntry] = []
        with self.preemptor.unchanged_usage():
            for head in heads:
                entry = self._nominate(head)
                (self.inadmissible if entry.decision else entries).append(entry)
        return entries

    def _nominate(self, head: Head) -> CycleEntry:
        queue, pending, preemptor = head
        workload = pending.workload
        entry = CycleEntry(pending, workload, queue, self.snapshot.tree.queues[queue], preemptor, _NOTHING, [])
        if any(state in (CheckState.RETRY, CheckState.REJECTED) for state in workload.checks.values()):
            entry.decide("inadmissible", RequeueReason.GENERIC, "PendingEvaluation")
            entry.note = "an admission check has failed"
        elif not self.cache.admits_from(queue, workload.namespace):
            entry.decide("inadmissible", RequeueReason.NAMESPACE, "Misconfigured")
            entry.note = f"ClusterQueue {queue} takes nothing from namespace {workload.namespace}"
        elif workload.unfit:
            entry.decide("inadmissible", RequeueReason.GENERIC, "Misconfigured")
            entry.note = workload.unfit
        else:
            entry.assignment, entry.targets = self._assign(workload, queue)
            entry.nominated_mode = entry.mode = entry.assignment.kind
            workload.scan_progress = entry.assignment.progress
        return entry

    def _assign(
        self, workload: Workload, queue: str, only: Pinned | None = None
    ) -> tuple[Assignment, list[PreemptionTarget]]:
        """At full size, or the largest part of it that fits."""
        whole = self.assigner.assign(workload, queue, only=only)
        if whole.mode is Mode.FIT:
            return whole, []
        if targets := self._find_targets(workload, queue, whole):
            return whole, targets
        if self.config.gate("PartialAdmission", True) and any(
            podset.min_count is not None and podset.count > podset.min_count for podset in workload.podsets
        ):

            def attempt(counts: tuple[int, ...]) -> tuple[Assignment, list[PreemptionTarget]] | None:
                part = self.assigner.assign(workload, queue, counts, only)
                if part.mode is Mode.FIT:
                    return part, []
                targets = self._find_targets(workload, queue, part)
                return (part, targets) if targets else None

            if (smaller := search_counts(workload.podsets, attempt)) is not None:
                return smaller
        return whole, []

    def _find_targets(self, workload: Workload, queue: str, assignment: Assignment) -> list[PreemptionTarget]:
        if assignment.kind != "Preempt":
            return []
        if assignment.mode is Mode.NO_CANDIDATES and len(assignment.needs()) == 1:
            return []  # the flavor search has simulated the same
        return self.preemptor.targets(workload, queue, assignment, self.now)

    # -- processing ---------------------------------------------------------------------------------------------------

    def _ordered(self, entries: list[CycleEntry]) -> Iterable[CycleEntry]:
        if self.config.fair_sharing:
            return in_fair_order(entries, self.config)
        return sorted(
            entries,
            key=lambda entry: cycle_key(entry.workload, entry.assignment.borrowing, entry.preemptor, self.config),
        )

    def process(self, entry: CycleEntry) -> None:
        """Decide about an entry, with what the earlier ones take."""
        self.processed.append(entry)
        overlaps = self._overlaps(entry.targets)
        if overlaps and self.config.gate("RecomputeAssignmentUponPreemptionTargetsOverlap", False):
            self._assign_again(entry)
            overlaps = self._overlaps(entry.targets)
        if entry.mode == "NoFit":
            entry.decide("noFit", RequeueReason.NO_FIT, entry.assignment.no_fit)
        elif entry.mode == "Preempt" and not entry.targets:
            entry.decide("noPreemptionCandidates", RequeueReason.NO_CANDIDATES, "WaitingForQuota")
            self._reserve_resources(entry)
        elif entry.mode == "DeferredFit":
            entry.decide("waitForPreemption", RequeueReason.PREEMPTING, "WaitingForPreemptedWorkloads")
            entry.workload.scan_progress = None
            self._take(entry.node, entry.assignment.usage)
        elif overlaps or not self._fits(entry):
            self._skip(entry, "WaitingForQuota")
            if entry.mode == "Preempt":
                self.skipped_preemptions[entry.queue] = self.skipped_preemptions.get(entry.queue, 0) + 1
        else:
            self._take(entry.node, entry.assignment.usage)
            if entry.mode == "Preempt":
                entry.decide("preempt", RequeueReason.PREEMPTING, "WaitingForPreemptedWorkloads")
                entry.workload.scan_progress = None
                self._targets.update((target.workload.key, target) for target in entry.targets)
                self._freed.setdefault(self.cache.roots[entry.queue], []).extend(self._held_by(entry.targets))
            elif self.config.block_admission and (self.waits_for_pods or self.admitted):
                self._skip(entry, "WaitingForPodsReady")
            else:
                entry.decision = "admit"
                self.admitted.append(entry)

    def _skip(self, entry: CycleEntry, reason: str) -> None:
        entry.decide("skip", RequeueReason.FAILED, reason)
        if not self.config.gate("FlavorFungibilityPreserveScanProgress", True):
            entry.workload.scan_progress = None

    def _assign_again(self, entry: CycleEntry) -> None:
        """Its targets are preempted for another entry: does it fit beside that one, on the same flavors?"""
        workload = entry.workload
        workload.scan_progress = None
        with self.snapshot.without([target.workload for target in self._targets.values()]):
            entry.assignment, entry.targets = self._assign(workload, entry.queue, entry.assignment.flavors())
        workload.scan_progress = entry.assignment.progress
        entry.mode = "DeferredFit" if entry.assignment.mode is Mode.FIT else entry.assignment.kind

    def _reserve_resources(self, entry: CycleEntry) -> None:
        """There is nothing that it may preempt. If its queue cannot reclaim its own quota at any time, no later entry may take
        what it waits for."""
        can_reclaim = self.snapshot.cluster_queues[entry.queue].preemption.reclaim is Policy.ANY
        if not can_reclaim or (entry.preemptor and self.config.gate("PrioritizePreemptorWorkloads", False)):
            self._take(entry.node, resources_to_reserve(entry.node, entry.assignment))

    # -- usage --------------------------------------------------------------------------------------------------------

    def _take(self, node: QuotaNode, usage: Usage) -> None:
        node.add(usage)
        self._taken.append((node, usage))

    def _overlaps(self, targets: list[PreemptionTarget]) -> bool:
        return bool(self._targets) and any(target.workload.key in self._targets for target in targets)

    def _held_by(self, targets: list[PreemptionTarget]) -> list[tuple[QuotaNode, Usage]]:
        nodes = self.snapshot.tree.queues
        return [
            (nodes[target.admission.cluster_queue], target.held)
            for target, _ in targets
            if target.admission is not None
        ]

    def _fits(self, entry: CycleEntry) -> bool:
        """Without its own targets and those of earlier entries. They do not overlap."""
        freed = self._freed.get(self.cache.roots[entry.queue], [])
        if entry.targets:
            freed = freed + self._held_by(entry.targets)
        for node, usage in freed:
            node.remove(usage)
        fits = all(amount <= entry.node.available(fr) for fr, amount in entry.assignment.usage.items())
        for node, usage in reversed(freed):
            node.add(usage)
        return fits


def resources_to_reserve(node: QuotaNode, assignment: Assignment) -> dict[FlavorResource, int]:
    """How much quota of a queue is kept for a head that needs a preemption."""
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
