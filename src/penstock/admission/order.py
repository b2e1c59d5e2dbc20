"""Who comes before whom: inside one ClusterQueue, and among the heads of one cycle. Called by lines and cycle; the victim search
(preempt, fair) asks it for priorities and times.

Kueue leaves some ties open (two Workloads of one priority, one time and no uid). They are settled by key here, so that the same
input always has the same outcome.
"""

from __future__ import annotations

from penstock.admission.model import Config, Workload

_AFTER_PREEMPTOR = 0.001
"""Seconds. A Workload that was preempted while it borrowed must stand behind the one that preempted it."""


def effective_priority(workload: Workload, config: Config) -> int:
    return workload.priority + workload.boost if config.gate("PriorityBoost", False) else workload.priority


def queue_time(workload: Workload, config: Config) -> float:
    """Since when it counts as waiting. A preempted Workload keeps its creation time and so comes back near the front; one that
    failed by itself (never ready, a check said no) goes behind those that came in the meantime."""
    eviction = workload.eviction or workload.last_eviction
    if eviction is None:
        return workload.created
    if eviction.reason == "PodsReadyTimeout" and config.requeue_by_eviction:
        return eviction.at
    if eviction.reason == "AdmissionCheck":
        return eviction.at
    if eviction.preempted == "InCohortReclaimWhileBorrowing" and not config.gate("PrioritySortingWithinCohort", True):
        return eviction.at + _AFTER_PREEMPTOR
    return workload.created


QueueKey = tuple[int, float, str, str]


def queue_key(workload: Workload, config: Config) -> QueueKey:
    """Ascending: the place in its ClusterQueue's line, but for what overrides it (a sticky head, usage-based fair sharing)."""
    return (-effective_priority(workload, config), queue_time(workload, config), workload.uid, workload.key)


CycleKey = tuple[int, int, int, float, str, str]


def cycle_key(workload: Workload, borrowing: int, preemptor: bool, config: Config) -> CycleKey:
    """Ascending: when the head is processed, without fair sharing. `preemptor`: it waits for victims of an earlier cycle."""
    first = config.gate("PrioritizePreemptorWorkloads", False) and preemptor
    priority = effective_priority(workload, config) if config.gate("PrioritySortingWithinCohort", True) else 0
    return (0 if first else 1, borrowing, -priority, queue_time(workload, config), workload.uid, workload.key)
