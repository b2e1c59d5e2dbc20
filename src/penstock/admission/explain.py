"""Why a Workload waits, as data: which rule, what is missing, who holds it, who is before it, what would help. The scheduler has one
Explainer; the engine records its answers as events, and `why`, `plan` and `queue show` show them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.admission.assignment import Assignment, FlavorRejection, Mode
from penstock.admission.cache import SchedulerCache
from penstock.admission.decisions import Decision
from penstock.admission.flavors import FlavorAssigner
from penstock.admission.model import CheckState, FlavorResource, Policy, Stop, Strategy, Workload
from penstock.admission.queues import QueueManager

SHOWN = 5
"""How many names of a long list are given."""
Lines = dict[str, tuple[list[Workload], dict[str, int]]]
"""ClusterQueue -> who waits in it, in order, and the place of each."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is missing of one flavor and resource."""

    flavor: str
    resource: str
    asked: int
    available: int
    potential: int
    """The most that the queue could ever have."""
    kind: str
    """quota · exceedsMax · notCovered · taint · affinity · flavorMissing"""
    detail: str = ""
    holders: tuple[tuple[str, str, int], ...] = ()
    """(Workload, ClusterQueue, amount), the largest first."""
    enough: tuple[str, ...] = ()
    """Workloads whose end would free what is missing."""

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "flavor": self.flavor,
            "resource": self.resource,
            "asked": self.asked,
            "available": self.available,
            "most": self.potential,
            "kind": self.kind,
        }
        if self.detail:
            data["detail"] = self.detail
        if self.holders:
            data["holders"] = [
                {"workload": key, "queue": queue, "amount": amount} for key, queue, amount in self.holders
            ]
        if self.enough:
            data["enough"] = list(self.enough)
        return data


@dataclass(frozen=True, slots=True)
class Hold:
    kind: str
    """quota: too little is unused · never: more than there can ever be · no flavor: no flavor matches its placement · behind: others
    are before it · preempting: others are being preempted for it · no candidates: nothing may be preempted for it · gated · stopped ·
    no queue · inactive queue · deactivated · backoff · checks · namespace · unfit · leaving: it is being evicted."""
    queue: str
    """The LocalQueue, with its namespace."""
    cluster_queue: str
    rule: str = ""
    """In Kueue's words: the field or strategy that causes the wait."""
    detail: str = ""
    position: int = 0
    """In its ClusterQueue. The head is 1."""
    ahead: tuple[str, ...] = ()
    behind: int = 0
    """How many Workloads are before it."""
    short: tuple[Shortage, ...] = ()
    waits_for: tuple[str, ...] = ()
    """Workloads that are being preempted for it."""
    elsewhere: tuple[str, ...] = ()
    """LocalQueues in which it would start now."""
    until: float | None = None

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"why": self.kind, "queue": self.queue, "cluster_queue": self.cluster_queue}
        optional = {
            "rule": self.rule,
            "detail": self.detail,
            "position": self.position,
            "behind": self.behind,
            "until": self.until,
            "ahead": list(self.ahead),
            "waits_for": list(self.waits_for),
            "elsewhere": list(self.elsewhere),
            "short": [one.as_data() for one in self.short],
        }
        return data | {name: value for name, value in optional.items() if value}


_DECIDED: Mapping[str, str] = {
    "noFit": "quota",
    "noPreemptionCandidates": "no candidates",
    "preempt": "preempting",
    "waitForPreemption": "preempting",
    "skip": "behind",
    "inadmissible": "unfit",
}
"""By decision: the kind of Hold."""
_ABOUT_QUOTA = frozenset({"quota", "no candidates", "preempting", "behind"})
"""Kinds for which the rest of the Hold is worked out."""


class Explainer:
    def __init__(
        self,
        cache: SchedulerCache,
        queues: QueueManager,
        assigner: FlavorAssigner,
        decisions: Mapping[str, Decision],
    ) -> None:
        self.cache = cache
        self.queues = queues
        self.assigner = assigner
        self.decisions = decisions

    def hold_of(self, workload: Workload, now: float) -> Hold:
        """Its kind, detail and end: what is known without looking at quota."""
        kind, detail, until = self._kind_of(workload, now)
        return Hold(kind, workload.local_queue, self.cache.queue_of(workload), detail=detail, until=until)

    def _kind_of(self, workload: Workload, now: float) -> tuple[str, str, float | None]:
        if workload.admission is not None:
            if workload.eviction is not None:
                return "leaving", workload.eviction.preempted or workload.eviction.reason, None
            return "checks", _checks_of(workload), None
        local_queue = self.cache.local_queues.get(workload.local_queue)
        if local_queue is None:
            return "no queue", f"there is no LocalQueue {workload.local_queue}", None
        if not workload.active:
            return "deactivated", "", None
        if workload.gates:
            return "gated", ", ".join(sorted(workload.gates)), None
        if workload.unfit:
            return "unfit", workload.unfit, None
        if local_queue.stop is not Stop.NONE:
            return "stopped", f"LocalQueue {local_queue.key}: stopPolicy {local_queue.stop}", None
        name = local_queue.cluster_queue
        queue = self.cache.cluster_queues.get(name)
        if queue is None:
            return "no queue", f"LocalQueue {local_queue.key} points to ClusterQueue {name}, which does not exist", None
        if queue.stop is not Stop.NONE:
            return "stopped", f"ClusterQueue {name}: stopPolicy {queue.stop}", None
        inactive = self.cache.inactive(name)
        if inactive:
            return "inactive queue", inactive, None
        if workload.requeue_at is not None and workload.requeue_at > now:
            return "backoff", "", workload.requeue_at
        if not self.cache.admits_from(name, workload.namespace):
            return "namespace", f"ClusterQueue {name} takes nothing from namespace {workload.namespace}", None
        decision = self.decisions.get(workload.key)
        kind = _DECIDED.get(decision.decision, "behind") if decision is not None else "behind"
        if kind == "no candidates" and queue.preemption.within == queue.preemption.reclaim == Policy.NEVER:
            kind = "quota"
        return kind, "", None

    def explain(self, workload: Workload, now: float, lines: Lines | None = None) -> Hold:
        """`lines`: kept by a caller that asks about many while nothing changes, so that each queue is put in order once."""
        hold = self.hold_of(workload, now)
        if hold.kind not in _ABOUT_QUOTA:
            return hold
        kind, queue = hold.kind, hold.cluster_queue
        pending, places = self._line(queue, {} if lines is None else lines)
        behind = places.get(workload.key, len(pending))
        hold = replace(
            hold, position=behind + 1, behind=behind, ahead=tuple(one.key for one in pending[:behind][:SHOWN])
        )
        found = self.fit_of(workload, queue)
        short = self._shortages(found, queue)
        if kind == "preempting":
            targets = sorted(target.key for target in self.decisions[workload.key].targets)
            return replace(hold, waits_for=tuple(targets[:SHOWN]), short=short)
        if kind == "quota" and found.mode is Mode.NO_FIT and found.no_fit == "ExceedsMaxQuota":
            kind = "never"
        elif kind == "quota" and found.mode is Mode.NO_FIT and found.no_fit == "NoMatchingFlavor":
            kind = "no flavor"
        elif kind == "behind" and found.mode is not Mode.FIT:
            kind = "quota"
        rule = self._rule(kind, queue, short)
        return replace(hold, kind=kind, rule=rule, short=short, elsewhere=self._elsewhere(workload, queue))

    def _line(self, queue: str, lines: Lines) -> tuple[list[Workload], dict[str, int]]:
        if queue not in lines:
            pending = self.queues.in_order(queue)
            lines[queue] = pending, {one.key: number for number, one in enumerate(pending)}
        return lines[queue]

    def fit_of(self, workload: Workload, queue: str) -> Assignment:
        """The flavors that it would get now, with the smallest counts that may be admitted."""
        counts = [podset.min_count if podset.min_count is not None else podset.count for podset in workload.podsets]
        full = counts == [podset.count for podset in workload.podsets]
        return self.assigner.assign_anew(workload, queue, None if full else counts)

    def fits_ever(self, workload: Workload) -> tuple[Shortage, ...]:
        """What it requests that its queue cannot give even if nothing else holds quota. Empty if it can."""
        queue = self.cache.queue_of(workload)
        if queue not in self.cache.snapshot.tree.queues:
            return ()
        found = self.fit_of(workload, queue)
        if found.mode is not Mode.NO_FIT or found.no_fit == "WaitingForQuota":
            return ()
        return tuple(one for one in self._shortages(found, queue) if one.kind != "quota")

    # -- quota --------------------------------------------------------------------------------------------------------

    def _shortages(self, found: Assignment, queue: str) -> tuple[Shortage, ...]:
        rejections: dict[tuple[str, str, str], FlavorRejection] = {}
        for podset in found.podsets:
            for one in podset.reasons:
                if one.kind != "notNominated":
                    rejections.setdefault((one.flavor, one.resource, one.kind), one)
        return tuple(self._shortage(one, queue) for one in rejections.values())

    def _shortage(self, found: FlavorRejection, queue: str) -> Shortage:
        holders: list[tuple[str, str, int]] = []
        enough: list[str] = []
        if found.kind == "quota":
            holders = self._holders(FlavorResource(found.flavor, found.resource), queue)
            missing = found.asked - found.available
            for key, _, amount in holders:
                if missing <= 0:
                    break
                enough.append(key)
                missing -= amount
            if missing > 0:
                enough = []
        return Shortage(
            found.flavor,
            found.resource,
            found.asked,
            found.available,
            found.potential,
            found.kind,
            found.detail,
            tuple(holders[:SHOWN]),
            tuple(enough[:SHOWN]),
        )

    def _holders(self, fr: FlavorResource, queue: str) -> list[tuple[str, str, int]]:
        root = self.cache.roots.get(queue)
        found = [
            (workload.key, name, amount)
            for name in (self.cache.trees[root] if root is not None else (queue,))
            for workload in self.cache.snapshot.holders.get(name, {}).values()
            if (amount := workload.held.get(fr, 0))
        ]
        return sorted(found, key=lambda one: (-one[2], one[0]))

    def _rule(self, kind: str, queue: str, short: Iterable[Shortage]) -> str:
        found = self.cache.cluster_queues[queue]
        if kind == "behind":
            if found.strategy is Strategy.STRICT:
                return "StrictFIFO: nobody passes the head of the line"
            return "one Workload of a queue at a time"
        if kind == "no candidates":
            policy = found.preemption
            return f"preemption: withinClusterQueue {policy.within}, reclaimWithinCohort {policy.reclaim}"
        return self._limit(queue, short) if kind == "quota" else ""

    def _limit(self, queue: str, short: Iterable[Shortage]) -> str:
        """Which limit is reached: its own quota, a borrowing limit, its own or of a cohort that it is in, or the quota of the cohort."""
        node = self.cache.snapshot.tree.queues.get(queue)
        first = next((one for one in short if one.kind == "quota"), None)
        if node is None or first is None:
            return ""
        if node.parent is None:
            return f"nominalQuota of ClusterQueue {queue}"
        fr = FlavorResource(first.flavor, first.resource)
        quota = node.quotas.get(fr)
        if quota is not None and quota.borrowing is not None and node.parent.available_raw(fr) > first.available:
            return f"borrowingLimit of ClusterQueue {queue}"
        for above in node.path():
            if above.is_bounded(fr):
                return f"borrowingLimit of cohort {above.name}"
        return f"quota of cohort {node.root.name}"

    def _elsewhere(self, workload: Workload, queue: str) -> tuple[str, ...]:
        """LocalQueues of the same namespace in which it would start now: it fits, and nothing waits there."""
        found = []
        for _, local_queue in sorted(self.cache.local_queues.items()):
            name = local_queue.cluster_queue
            if (
                name != queue
                and local_queue.namespace == workload.namespace
                and local_queue.stop is Stop.NONE
                and name in self.cache.snapshot.tree.queues
                and not self.cache.inactive(name)
                and not self.queues.pending[name]
                and self.fit_of(workload, name).mode is Mode.FIT
            ):
                found.append(local_queue.name)
        return tuple(dict.fromkeys(found))


def _checks_of(workload: Workload) -> str:
    """The checks that are not ready, with their states and messages."""
    found = []
    for name, state in sorted(workload.checks.items()):
        if state is not CheckState.READY:
            message = workload.check_messages.get(name)
            found.append(f"{name}: {state} ({message})" if message else f"{name}: {state}")
    return ", ".join(found)
