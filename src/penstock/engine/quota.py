"""What the engine needs of those who decide about quota. Implemented by QuotaReplica, where our own scheduler decides, and by
ClusterQuota, where the Kueue of a cluster does; used by Admitter and Reservations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    # A run that needs no quota does not load the queues.
    from penstock.admission.decisions import Decision
    from penstock.admission.model import Config, PodSet, Workload
    from penstock.graph.model import Step
    from penstock.store.queue_use import QueueUse


class Reason(Protocol):
    """Why a Workload waits."""

    def as_data(self) -> dict[str, Any]: ...


class QuotaScheduler(Protocol):
    """Workloads and what is decided about them. See admission.scheduler."""

    @property
    def config(self) -> Config: ...

    @property
    def workloads(self) -> Mapping[str, Workload]: ...

    @property
    def decisions(self) -> Mapping[str, Decision]: ...

    @property
    def touched(self) -> set[str]:
        """Workloads that have changed since that was last recorded."""
        ...

    @property
    def checks(self) -> Collection[str]:
        """Names of the admission checks that the engine itself has to ask."""
        ...

    def resize(self, key: str, podsets: tuple[PodSet, ...], now: float) -> None: ...

    def ungate(self, key: str, gate: str, now: float) -> None: ...

    def reclaim(self, key: str, counts: Mapping[str, int], now: float) -> None: ...

    def ready(self, key: str, now: float) -> None: ...

    def release(self, key: str, now: float) -> None: ...

    def kept_pods(self, key: str) -> int: ...

    def spare(self, key: str, now: float) -> None: ...

    def finish(self, key: str, now: float) -> None: ...

    def set_check(self, key: str, name: str, state: Any, now: float, *, message: str = "") -> Any: ...

    def settle(self, now: float) -> Any: ...

    def next_time(self, now: float) -> float | None: ...

    def explain(self, key: str, now: float) -> Reason: ...

    def hold_kind(self, key: str, now: float) -> str: ...


class QuotaSource(Protocol):
    """What reservations need of the queues."""

    @property
    def scheduler(self) -> QuotaScheduler: ...

    @property
    def configured(self) -> bool:
        """Are there queues, and not only what this machine has?"""
        ...

    def submit(self, workload: Workload, run: int, now: float) -> None: ...

    def queue_for(self, name: str | None) -> tuple[str, str]: ...

    def priority_of(self, named: str | int | None) -> tuple[int, str | None]: ...

    def contended(self, key: str, own: int) -> bool:
        """Do others wait for what this Workload holds? `own`: how many Workloads of the same reservation wait."""
        ...


class AdmitterQuota(QuotaSource, Protocol):
    """And what the Admitter needs."""

    @property
    def version(self) -> int:
        """Number of the last decision that it knows."""
        ...

    @property
    def owners(self) -> Mapping[str, tuple[int, str]]:
        """Workload -> its run, and the engine that answers for it; of all engines that share the queues by the store."""
        ...

    @property
    def strict(self) -> bool:
        """Is there a queue that must admit even steps that need no resources?"""
        ...

    def holds_all(self, name: str | None) -> bool:
        """Is this such a queue?"""
        ...

    def catch_up(self, now: float, number: int) -> set[str]:
        """Read what other engines have written since the last time, for the decision of this number. Returns the Workloads that they have changed."""
        ...

    def written(self) -> dict[str, tuple[str, int, int, str, str, str]]:
        """The rows of what has changed since the last time, for the number of this decision."""
        ...

    def queue_use(self, at: int) -> Mapping[str, QueueUse]:
        """How each queue is used now, for the records. Empty if there are none, or if they are recorded elsewhere."""
        ...

    @property
    def counts_pods(self) -> bool:
        """Does what is admitted stand for pods, which hold the quota as long as they are there?"""
        ...

    def placed(self, step: Step, planned: Step, key: str) -> Step:
        """A step with what its admission adds to its pods. `planned`: as it was when quota was requested for it."""
        ...

    def ended(self, run: str) -> None:
        """This run is over: it holds nothing and waits for nothing, also not by what an engine that died has left."""
        ...
