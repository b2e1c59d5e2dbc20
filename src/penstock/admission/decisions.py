"""The results of a scheduling cycle, as data. cycle makes them; the scheduler keeps the latest decision about each pending Workload and
returns them to its caller; explain reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.admission.assignment import PodSetChoice


class TargetRecord(NamedTuple):
    """A preemption target."""

    key: str
    reason: str
    cluster_queue: str


class Decision(NamedTuple):
    """About one head."""

    workload: str
    cluster_queue: str
    decision: str
    """admit · preempt · noPreemptionCandidates · noFit · skip: an earlier head took the quota · waitForPreemption: it fits when the
    targets of earlier heads have stopped · inadmissible."""
    nominated_mode: str = ""
    """Fit, Preempt or NoFit: the result before any head was processed."""
    mode: str = ""
    """The result when it was processed, if that is different."""
    borrowing_level: int = 0
    """See `QuotaNode.level`."""
    podsets: tuple[PodSetChoice, ...] = ()
    """With the reasons why flavors were rejected."""
    targets: tuple[TargetRecord, ...] = ()
    """The Workloads that it preempts, or would have preempted if it had not been skipped."""
    reason: str = ""
    """Kueue's reason why it waits, for example WaitingForQuota."""
    note: str = ""
    """The reason in words, if it has nothing to do with quota."""


class Preempted(NamedTuple):
    workload: str
    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class Cycle:
    """One scheduling cycle."""

    at: float
    decisions: tuple[Decision, ...] = ()
    """In the order in which the heads were processed."""
    reserved: tuple[str, ...] = ()
    """Workloads that got quota."""
    admitted: tuple[str, ...] = ()
    """Those of them that need not wait for admission checks."""
    preempted: tuple[Preempted, ...] = ()
    """Workloads that must stop, and did not have to before."""
    skipped_preemptions: dict[str, int] = field(default_factory=dict)
    """By ClusterQueue: preemptions that were not issued because of another head."""
