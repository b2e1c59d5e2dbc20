"""Why a Workload waits, as data: which rule, what is short, who has it, who stands before it, what would help. Called by queues
for the engine (each wait is recorded with its reason) and for `why`, `plan` and `queue show`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.admission import flavors
from penstock.admission.assignment import Assignment, Lack, Mode
from penstock.admission.hall import Hall
from penstock.admission.model import FlavorResource, Policy, Strategy, Workload

SHOWN = 5
"""Names that are given of many."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """What of one flavor and resource is not there."""

    flavor: str
    resource: str
    asked: int
    available: int
    potential: int
    """The most that this queue can ever have of it."""
    kind: str
    """quota · exceedsMax · notCovered · taint · affinity · flavorMissing"""
    detail: str = ""
    holders: tuple[tuple[str, str, int], ...] = ()
    """(Workload, ClusterQueue, amount), the largest first."""
    enough: tuple[str, ...] = ()
    """Workloads whose end would free as much as is missing."""

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "flavor": self.flavor, "resource": self.resource, "asked": self.asked, "available": self.available, "most": self.potential, "kind": self.kind,
        }  # fmt: skip
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
    """quota: too little is unused · never: more than there can ever be · no flavor: none goes with its placement · behind: others
    stand before it · preempting: others are being stopped for it · no candidates: nobody may be stopped for it · gated · stopped ·
    no queue · inactive queue · deactivated · backoff · checks · namespace · unfit · leaving · new: nobody has looked at it yet."""
    queue: str
    """The LocalQueue, with its namespace."""
    cluster_queue: str
    rule: str = ""
    """In Kueue's words: the field or strategy that has it so."""
    detail: str = ""
    position: int = 0
    """Its place in the line of its ClusterQueue; 1 is the head."""
    ahead: tuple[str, ...] = ()
    behind: int = 0
    """How many stand before it."""
    short: tuple[Shortage, ...] = ()
    waits_for: tuple[str, ...] = ()
    """Workloads that are being stopped for it."""
    elsewhere: tuple[str, ...] = ()
    """LocalQueues in which it would start now."""
    until: float | None = None

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"why": self.kind, "queue": self.queue, "cluster_queue": self.cluster_queue}
        for name in ("rule", "detail", "position", "behind", "until"):
            if getattr(self, name):
                data[name] = getattr(self, name)
        for name in ("ahead", "waits_for", "elsewhere"):
            if getattr(self, name):
                data[name] = list(getattr(self, name))
        if self.short:
            data["short"] = [one.as_data() for one in self.short]
        return data


def kind_of(queues: Hall, workload: Workload, now: float) -> tuple[str, str, float | None]:
    """(kind, detail, until): what can be said without looking at quotas."""
    local = queues.local_queues.get(f"{workload.namespace}/{workload.queue}")
    if workload.eviction is not None and workload.admission is not None:
        return "leaving", workload.eviction.preempted or workload.eviction.reason, None
    if workload.admission is not None:
        pending = [f"{name}: {state}" for name, state in sorted(workload.checks.items()) if state != "Ready"]
        return "checks", ", ".join(pending), None
    if local is None:
        return "no queue", f"there is no LocalQueue {workload.namespace}/{workload.queue}", None
    if not workload.active:
        return "deactivated", "", None
    if workload.gates:
        return "gated", ", ".join(sorted(workload.gates)), None
    if workload.unfit:
        return "unfit", workload.unfit, None
    if local.stop != "None":
        return "stopped", f"LocalQueue {local.key}: stopPolicy {local.stop}", None
    queue = queues.cluster_queues.get(local.cluster_queue)
    if queue is None:
        return (
            "no queue",
            f"LocalQueue {local.key} points to ClusterQueue {local.cluster_queue}, which does not exist",
            None,
        )
    if queue.stop != "None":
        return "stopped", f"ClusterQueue {queue.name}: stopPolicy {queue.stop}", None
    inactive = queues.inactive(queue.name)
    if inactive:
        return "inactive queue", inactive, None
    if workload.requeue_at is not None and workload.requeue_at > now:
        return "backoff", "", workload.requeue_at
    admits = queues.admits(queue.name)
    if admits is not None and not admits(workload.namespace):
        return "namespace", f"ClusterQueue {queue.name} takes nothing from namespace {workload.namespace}", None
    decision = queues.decisions.get(workload.key)
    if decision is None:
        return "behind", "", None
    kind = _DECIDED.get(str(decision.decision), "behind")
    if kind == "no candidates" and queue.preemption.within == queue.preemption.reclaim == Policy.NEVER:
        kind = "quota"
    return kind, "", None


_DECIDED: Mapping[str, str] = {
    "noFit": "quota",
    "noPreemptionCandidates": "no candidates",
    "preempt": "preempting",
    "waitForPreemption": "preempting",
    "skip": "behind",
    "inadmissible": "unfit",
}


def explain(queues: Hall, key: str, now: float) -> Hold:
    workload = queues.workloads[key]
    kind, detail, until = kind_of(queues, workload, now)
    cluster_queue = queues.queue_of(workload)
    hold = Hold(kind, f"{workload.namespace}/{workload.queue}", cluster_queue, detail=detail, until=until)
    if kind not in ("quota", "no candidates", "preempting", "behind"):
        return hold
    line = queues.pending(cluster_queue)
    place = next((number for number, one in enumerate(line) if one is workload), len(line))
    hold = replace(hold, position=place + 1, behind=place, ahead=tuple(one.key for one in line[:place][:SHOWN]))
    found = fit_of(queues, workload, cluster_queue)
    short = shortages(queues, found, cluster_queue)
    strategy = queues.cluster_queues[cluster_queue].strategy
    if kind == "preempting":
        targets = queues.decisions[key].targets
        return replace(hold, waits_for=tuple(sorted(target.key for target in targets))[:SHOWN], short=short)
    if kind == "quota" and found.mode is Mode.NO_FIT and found.no_fit == "ExceedsMaxQuota":
        kind = "never"
    elif kind == "quota" and found.mode is Mode.NO_FIT and found.no_fit == "NoMatchingFlavor":
        kind = "no flavor"
    elif kind == "behind" and found.kind != "Fit":
        kind = "quota"
    rule = ""
    if kind == "behind":
        rule = (
            "StrictFIFO: nobody passes the head of the line"
            if strategy is Strategy.STRICT
            else "one Workload of a queue at a time"
        )
    elif kind == "no candidates":
        rule = _preemption(queues, cluster_queue)
    elif kind == "quota":
        rule = _limit(queues, short, cluster_queue)
    return replace(hold, kind=kind, rule=rule, short=short, elsewhere=elsewhere(queues, workload, cluster_queue))


def fit_of(queues: Hall, workload: Workload, cluster_queue: str) -> Assignment:
    """As things stand, with as few pods as would do."""
    kept, workload.memory = workload.memory, None
    try:
        counts = [podset.min_count if podset.min_count is not None else podset.count for podset in workload.podsets]
        fewer = counts if counts != [podset.count for podset in workload.podsets] else None
        return flavors.assign(queues.state, workload, cluster_queue, fewer)
    finally:
        workload.memory = kept


def shortages(queues: Hall, found: Assignment, cluster_queue: str) -> tuple[Shortage, ...]:
    lacks: dict[tuple[str, str, str], Lack] = {}
    for podset in found.podsets:
        for lack in podset.reasons:
            if lack.kind != "notNominated":
                lacks.setdefault((lack.flavor, lack.resource, lack.kind), lack)
    return tuple(_shortage(queues, lack, cluster_queue) for lack in lacks.values())


def _shortage(queues: Hall, lack: Lack, cluster_queue: str) -> Shortage:
    holders: list[tuple[str, str, int]] = []
    enough: list[str] = []
    if lack.kind == "quota":
        fr = FlavorResource(lack.flavor, lack.resource)
        holders = _holders(queues, fr, cluster_queue)
        missing = lack.asked - lack.available
        for key, _, amount in holders:
            if missing <= 0:
                break
            enough.append(key)
            missing -= amount
        if missing > 0:
            enough = []
    return Shortage(
        lack.flavor,
        lack.resource,
        lack.asked,
        lack.available,
        lack.potential,
        lack.kind,
        lack.detail,
        tuple(holders[:SHOWN]),
        tuple(enough[:SHOWN]),
    )


def _holders(queues: Hall, fr: FlavorResource, cluster_queue: str) -> list[tuple[str, str, int]]:
    root = queues.roots.get(cluster_queue)
    found = [
        (workload.key, name, workload.held.get(fr, 0))
        for name in (queues.trees.get(root, ()) if root is not None else (cluster_queue,))
        for workload in queues.state.holders.get(name, {}).values()
        if workload.held.get(fr, 0)
    ]
    return sorted(found, key=lambda one: (-one[2], one[0]))


def _preemption(queues: Hall, cluster_queue: str) -> str:
    policy = queues.cluster_queues[cluster_queue].preemption
    return f"preemption: withinClusterQueue {policy.within}, reclaimWithinCohort {policy.reclaim}"


def _limit(queues: Hall, short: Iterable[Shortage], cluster_queue: str) -> str:
    """Which number it comes up against: its own quota, a borrowing limit, or all that the cohort has."""
    node = queues.tree.queues.get(cluster_queue)
    first = next((one for one in short if one.kind == "quota"), None)
    if node is None or first is None:
        return ""
    fr = FlavorResource(first.flavor, first.resource)
    quota = node.quotas.get(fr)
    if node.parent is None:
        return f"nominalQuota of ClusterQueue {cluster_queue}"
    if quota is not None and quota.borrowing is not None and node.parent.available_raw(fr) > first.available:
        return f"borrowingLimit of ClusterQueue {cluster_queue}"
    return f"quota of cohort {node.root.name}"


def elsewhere(queues: Hall, workload: Workload, cluster_queue: str) -> tuple[str, ...]:
    """LocalQueues of the same namespace in which it would start now: it fits, and nobody waits there."""
    found = []
    for local in sorted(queues.local_queues.values(), key=lambda one: one.key):
        name = local.cluster_queue
        if name == cluster_queue or local.namespace != workload.namespace or local.stop != "None":
            continue
        if name not in queues.tree.queues or queues.inactive(name) or queues.pending(name):
            continue
        if fit_of(queues, workload, name).kind == "Fit":
            found.append(local.name)
    return tuple(dict.fromkeys(found))


def fits_ever(queues: Hall, workload: Workload) -> tuple[Shortage, ...]:
    """What it asks for that its queue could not give even if nobody else held anything; nothing if it could."""
    cluster_queue = queues.queue_of(workload)
    if cluster_queue not in queues.tree.queues:
        return ()
    found = fit_of(queues, workload, cluster_queue)
    if found.kind != "NoFit" or found.no_fit == "WaitingForQuota":
        return ()
    return tuple(one for one in shortages(queues, found, cluster_queue) if one.kind != "quota")
