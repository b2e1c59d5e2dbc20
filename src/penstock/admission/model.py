"""Kueue's objects as plain data: what an administrator configures, and the Workload that queues. Built by read (from manifests)
and by the engine (from reservations); read by everything else here.

Amounts are integers: cpu in thousandths, every other resource in its base unit, UNLIMITED for what does not fit 63 bits.
Times are seconds, of whatever clock the caller keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

UNLIMITED: Final = 2**63 - 1
PODS: Final = "pods"
"""The resource of which every pod is one, where a ClusterQueue covers it."""

Amounts = Mapping[str, int]


class FlavorResource(NamedTuple):
    """What quota is counted in."""

    flavor: str
    resource: str


Usage = Mapping[FlavorResource, int]


class Strategy(StrEnum):
    STRICT = "StrictFIFO"
    BEST_EFFORT = "BestEffortFIFO"


class Stop(StrEnum):
    NONE = "None"
    HOLD = "Hold"
    DRAIN = "HoldAndDrain"


class Policy(StrEnum):
    """Whom a Workload may preempt."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"
    ANY = "Any"


class WhenCan(StrEnum):
    """What a flavor search does with a flavor that could be had by borrowing, or by preempting."""

    STOP = "MayStopSearch"
    NEXT = "TryNextFlavor"


class Preference(StrEnum):
    BORROWING = "BorrowingOverPreemption"
    PREEMPTION = "PreemptionOverBorrowing"


# -- what is configured -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One line of a selector: `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selector:
    """Which labels are meant: all of the requirements. None at all matches everything."""

    requirements: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFlavor:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class Quota:
    nominal: int
    borrowing: int | None = None
    """How much may be used beyond the own quota. None: without limit."""
    lending: int | None = None
    """How much of the own quota others may use. None: all."""


@dataclass(frozen=True, slots=True)
class FlavorQuotas:
    flavor: str
    quotas: Mapping[str, Quota]
    """By resource."""


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    resources: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    within: Policy = Policy.NEVER
    """withinClusterQueue"""
    reclaim: Policy = Policy.NEVER
    """reclaimWithinCohort"""
    borrow: Policy = Policy.NEVER
    """borrowWithinCohort.policy"""
    borrow_threshold: int | None = None
    """borrowWithinCohort.maxPriorityThreshold"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fungibility:
    borrow: WhenCan = WhenCan.STOP
    preempt: WhenCan = WhenCan.NEXT
    preference: Preference | None = None


@dataclass(frozen=True, slots=True)
class CheckRule:
    """An admission check that a ClusterQueue asks for; on all flavors if none is named."""

    name: str
    flavors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQueue:
    name: str
    groups: tuple[ResourceGroup, ...] = ()
    cohort: str | None = None
    strategy: Strategy = Strategy.BEST_EFFORT
    namespaces: Selector | None = field(default_factory=Selector)
    """None matches no namespace."""
    fungibility: Fungibility = field(default_factory=Fungibility)
    preemption: Preemption = field(default_factory=Preemption)
    weight: float = 1.0
    checks: tuple[CheckRule, ...] = ()
    stop: Stop = Stop.NONE
    usage_based: bool = False
    """admissionScope: UsageBasedAdmissionFairSharing"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    name: str
    parent: str | None = None
    groups: tuple[ResourceGroup, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueue:
    name: str
    namespace: str = "default"
    cluster_queue: str
    stop: Stop = Stop.NONE
    weight: float = 1.0

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """WorkloadPriorityClass"""

    name: str
    value: int
    description: str = ""


@dataclass(frozen=True, slots=True)
class Namespace:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """AdmissionCheck: that it exists, and is in order."""

    name: str
    active: bool = True


Object = ResourceFlavor | ClusterQueue | Cohort | LocalQueue | PriorityClass | Namespace | Check
"""What `Queues.apply` takes: everything but Workloads."""


# -- what queues ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    name: str = "main"
    count: int = 1
    min_count: int | None = None
    """Fewer may be admitted, down to this."""
    requests: Amounts = field(default_factory=dict)
    """Of one pod, everything counted in: init containers, overhead, defaults."""
    selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[tuple[Requirement, ...], ...] | None = None
    """Required node affinity: any of the terms, each with all of its requirements."""
    tolerations: tuple[Toleration, ...] = ()
    group: str | None = None
    """podSetGroupName: all pod sets of a group get the same flavors."""


@dataclass(frozen=True, slots=True)
class PodSetAssignment:
    name: str
    count: int
    flavors: Mapping[str, str]
    """Resource -> flavor."""
    usage: Amounts
    """Of all its pods together."""


@dataclass(frozen=True, slots=True)
class Admission:
    cluster_queue: str
    podsets: tuple[PodSetAssignment, ...]


class CheckState(StrEnum):
    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"


@dataclass(frozen=True, slots=True)
class Eviction:
    reason: str
    """Preempted, PodsReadyTimeout, AdmissionCheck, ClusterQueueStopped, LocalQueueStopped, Deactivated…"""
    at: float
    preempted: str = ""
    """Why, if it was preempted: InClusterQueue, InCohortReclamation, InCohortReclaimWhileBorrowing, InCohortFairSharing."""
    by: str = ""
    """The key of the Workload that takes its place."""


@dataclass(slots=True, kw_only=True, eq=False)
class Workload:
    """One gang in line. Who queues it fills the first part and may read the rest; `Queues` alone changes the rest."""

    name: str
    namespace: str = "default"
    uid: str = ""
    queue: str = ""
    """The LocalQueue, in the same namespace."""
    podsets: tuple[PodSet, ...] = ()
    priority: int = 0
    priority_class: str | None = None
    boost: int = 0
    created: float = 0.0
    active: bool = True
    gates: frozenset[str] = frozenset()
    """admission-gated-by: while there are any it is in no line, and keeps its place by its time of creation."""
    max_seconds: float | None = None
    """maximumExecutionTimeSeconds"""
    labels: Mapping[str, str] = field(default_factory=dict)
    unfit: str = ""
    """Why no cycle may consider it (requests above limits, a LimitRange violated), in words; empty if nothing is wrong."""

    reclaimable: dict[str, int] = field(default_factory=dict)
    """Pods, by pod set, that are not needed any more."""
    admission: Admission | None = None
    """It holds quota while this is set; but one that was deactivated only has it until it has stopped, and holds nothing."""
    held: Mapping[FlavorResource, int] = field(default_factory=dict)
    """What it holds now: its admission less what was given back (see state)."""
    reserved_at: float | None = None
    admitted_at: float | None = None
    """Reserved, and all checks are ready."""
    eviction: Eviction | None = None
    """It must stop: `Queues.release` when it has."""
    last_eviction: Eviction | None = None
    """The latest one that is over, which some queue orders go by."""
    checks: dict[str, CheckState] = field(default_factory=dict)
    ready_at: float | None = None
    """PodsReady"""
    was_ready: bool = False
    requeue_at: float | None = None
    requeue_count: int = 0
    held_back: bool = False
    """Requeued=False: not to be queued until somebody says so."""
    run_seconds: float = 0.0
    """In earlier admissions."""
    finished: bool = False
    memory: Any = None
    """Which flavors were tried, by cycles before (see flavors)."""
    sums: Any = field(default=None, init=False, repr=False)
    """What flavors has added up of it already."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What Kueue reads from its own configuration, and its feature gates where they touch decisions."""

    fair_sharing: bool = False
    strategies: tuple[str, ...] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
    half_life: float | None = None
    """admissionFairSharing.usageHalfLifeTime in seconds; None: there is no admission fair sharing."""
    sampling: float = 300.0
    resource_weights: Mapping[str, float] = field(default_factory=dict)
    requeue_by_eviction: bool = True
    """waitForPodsReady.requeuingStrategy.timestamp: Eviction (or Creation)."""
    pods_ready_timeout: float | None = None
    pods_ready_recovery: float | None = None
    block_admission: bool = False
    backoff_base: float = 60.0
    backoff_max: float = 3600.0
    backoff_limit: int | None = None
    ignore_undeclared: bool = False
    """quotaCheckStrategy: IgnoreUndeclared"""
    gates: Mapping[str, bool] = field(default_factory=dict)
    """Feature gates that differ from v0.19.2's defaults."""

    def gate(self, name: str, default: bool) -> bool:
        return self.gates.get(name, default)
