"""What a cycle has come to, as data. Made by cycle; kept by queues for those that wait, told to callers, read by explain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.admission.assignment import PodSetChoice


class Victim(NamedTuple):
    key: str
    reason: str
    cluster_queue: str


class Decision(NamedTuple):
    """About one head."""

    workload: str
    cluster_queue: str
    decision: str
    """admit · preempt · noPreemptionCandidates · noFit · skip: lost to a head before it · waitForPreemption: fits when the
    victims of heads before it have left · inadmissible."""
    nominated_mode: str = ""
    """Fit, Preempt or NoFit: what it looked like before anybody was processed."""
    mode: str = ""
    """What it looked like when its turn came, if that is something else."""
    borrowing_level: int = 0
    """How far away the quota is that it would take (see Node.level)."""
    podsets: tuple[PodSetChoice, ...] = ()
    """With what was in the way, where something was."""
    targets: tuple[Victim, ...] = ()
    """Whom it preempts, or would have if it had not been skipped."""
    reason: str = ""
    """Kueue's word for why it waits, say WaitingForQuota."""
    note: str = ""
    """In words, where there is nothing in numbers."""


class Preempted(NamedTuple):
    workload: str
    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class Cycle:
    at: float
    decisions: tuple[Decision, ...] = ()
    """In the order in which the heads were taken."""
    reserved: tuple[str, ...] = ()
    """They have quota now."""
    admitted: tuple[str, ...] = ()
    """Those of them that wait for no checks."""
    preempted: tuple[Preempted, ...] = ()
    """They must stop, and did not know before."""
    skipped_preemptions: dict[str, int] = field(default_factory=dict)
    """By ClusterQueue: not carried out, because of another head."""

    @property
    def changed(self) -> bool:
        return bool(self.reserved or self.preempted)
