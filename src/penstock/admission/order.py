"""The order of Workloads: in one ClusterQueue, and among the heads of one cycle. Called by pending and cycle; candidates and
fair_order use its priorities and times.

Kueue leaves some ties open (the same priority, the same time, no uid). Here the key decides, so that the same input always has the
same result.
"""

from __future__ import annotations

from penstock.admission.model import Config, Workload

_AFTER_PREEMPTOR = 0.001
"""Seconds. A Workload that was preempted while borrowing must come after its preemptor."""


def effective_priority(workload: Workload, config: Config) -> int:
    return workload.priority + workload.boost if config.gate("PriorityBoost", False) else workload.priority


def queue_time(workload: Workload, config: Config) -> float:
    """Since when it counts as waiting. A preempted Workload keeps its creation time, so it comes back near the front. One that
    was evicted for another reason (pods not ready, an admission check) comes after those that were created in the meantime."""
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
    """Ascending: the order in a ClusterQueue. A sticky preemptor and usage-based fair sharing come before it."""
    return (-effective_priority(workload, config), queue_time(workload, config), workload.uid, workload.key)


CycleKey = tuple[int, int, int, float, str, str]


def cycle_key(workload: Workload, borrowing: int, preemptor: bool, config: Config) -> CycleKey:
    """Ascending: the order of heads in a cycle without fair sharing. `preemptor`: it waits for targets of an earlier cycle."""
    first = config.gate("PrioritizePreemptorWorkloads", False) and preemptor
    priority = effective_priority(workload, config) if config.gate("PrioritySortingWithinCohort", True) else 0
    return (0 if first else 1, borrowing, -priority, queue_time(workload, config), workload.uid, workload.key)
