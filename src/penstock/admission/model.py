"""Kueue's objects as plain data: what an administrator configures, and the Workload that queues. manifests.read and the engine build
them; every other module here reads them.

Amounts are integers: cpu in thousandths, every other resource in its base unit, UNLIMITED for what does not fit into 63 bits.
Times are seconds of the caller's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

UNLIMITED: Final = 2**63 - 1
PODS: Final = "pods"
"""Each pod counts as one of this resource, in a ClusterQueue that covers it."""

Amounts = Mapping[str, int]
"""By resource."""


class FlavorResource(NamedTuple):
    """Quota is counted for each pair of flavor and resource."""

    flavor: str
    resource: str


Usage = Mapping[FlavorResource, int]


class Strategy(StrEnum):
    """queueingStrategy"""

    STRICT = "StrictFIFO"
    BEST_EFFORT = "BestEffortFIFO"


class Stop(StrEnum):
    """stopPolicy"""

    NONE = "None"
    HOLD = "Hold"
    DRAIN = "HoldAndDrain"


class Policy(StrEnum):
    """Which Workloads a Workload may preempt."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"
    ANY = "Any"


class WhenCan(StrEnum):
    """Whether the flavor search stops at a flavor that needs borrowing (whenCanBorrow) or preemption (whenCanPreempt)."""

    STOP = "MayStopSearch"
    NEXT = "TryNextFlavor"


class Preference(StrEnum):
    BORROWING = "BorrowingOverPreemption"
    PREEMPTION = "PreemptionOverBorrowing"


# -- configuration ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class PodToleration:
    """The part of a pod's toleration that decides whether a flavor's taints are tolerated."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression of a selector. `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selector:
    """Labels match if they meet all requirements. A selector without requirements matches everything."""

    requirements: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFlavor:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[PodToleration, ...] = ()


@dataclass(frozen=True, slots=True)
class Quota:
    nominal: int
    borrowing: int | None = None
    """How much more than its own quota the queue may use. None: no limit."""
    lending: int | None = None
    """How much of its own quota others may use. None: all of it."""


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
    """flavorFungibility"""

    borrow: WhenCan = WhenCan.STOP
    preempt: WhenCan = WhenCan.NEXT
    preference: Preference | None = None


@dataclass(frozen=True, slots=True)
class CheckRule:
    """An admission check that a ClusterQueue requires. It applies to all flavors if none is named."""

    name: str
    flavors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQueue:
    name: str
    groups: tuple[ResourceGroup, ...] = ()
    cohort: str | None = None
    strategy: Strategy = Strategy.BEST_EFFORT
    namespaces: Selector | None = field(default_factory=Selector)
    """namespaceSelector. None matches no namespace."""
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
    """AdmissionCheck: that it exists, and whether it is active."""

    name: str
    active: bool = True


Object = ResourceFlavor | ClusterQueue | Cohort | LocalQueue | PriorityClass | Namespace | Check
"""What `Scheduler.apply` takes: every object but Workloads."""


# -- Workloads --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    name: str = "main"
    count: int = 1
    min_count: int | None = None
    """Partial admission: the smallest count that may be admitted."""
    requests: Amounts = field(default_factory=dict)
    """Of one pod, including init containers, overhead and defaults."""
    selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[tuple[Requirement, ...], ...] | None = None
    """Required node affinity: a node matches if it meets all requirements of any term."""
    tolerations: tuple[PodToleration, ...] = ()
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


class CheckResult(NamedTuple):
    """What an admission check answers. `message` says why, for example the error of a check that failed to run."""

    state: CheckState
    message: str = ""


@dataclass(frozen=True, slots=True)
class Eviction:
    reason: str
    """Preempted, PodsReadyTimeout, AdmissionCheck, ClusterQueueStopped, LocalQueueStopped, Deactivated…"""
    at: float
    preempted: str = ""
    """The reason of a preemption: InClusterQueue, InCohortReclamation, InCohortReclaimWhileBorrowing, InCohortFairSharing."""
    by: str = ""
    """The key of the Workload that preempts it."""


@dataclass(slots=True, kw_only=True, eq=False)
class Workload:
    """A group of pods that is admitted together. The caller sets the first part and may read the second; only `Scheduler` changes
    the second part."""

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
    """admission-gated-by: while there are any, it is in no queue. Its position later is by its time of creation."""
    max_seconds: float | None = None
    """maximumExecutionTimeSeconds"""
    labels: Mapping[str, str] = field(default_factory=dict)
    unfit: str = ""
    """Why no cycle may admit it (requests above limits, a violated LimitRange). Empty if nothing is wrong."""

    reclaimable: dict[str, int] = field(default_factory=dict)
    """reclaimablePods: pods, by pod set, that are no longer needed."""
    admission: Admission | None = None
    """It holds quota while this is set, except that a deactivated Workload holds nothing and keeps this until it has stopped."""
    held: Mapping[FlavorResource, int] = field(default_factory=dict)
    """What it holds now: its admission minus the reclaimable pods (see `snapshot.usage_of`)."""
    reserved_at: float | None = None
    admitted_at: float | None = None
    """Since when quota is reserved and all checks are ready."""
    eviction: Eviction | None = None
    """It must stop. The caller calls `Scheduler.release` when it has stopped."""
    last_eviction: Eviction | None = None
    """The latest completed one. The order of a queue may depend on it."""
    checks: dict[str, CheckState] = field(default_factory=dict)
    check_messages: dict[str, str] = field(default_factory=dict)
    """By check, for those that gave one."""
    ready_at: float | None = None
    """PodsReady"""
    was_ready: bool = False
    requeue_at: float | None = None
    requeue_count: int = 0
    held_back: bool = False
    """Requeued=False: not queued until the cause of its eviction is over."""
    run_seconds: float = 0.0
    """How long it ran in earlier admissions."""
    finished: bool = False
    scan_progress: Any = None
    """The flavors that earlier cycles have tried (a `ScanProgress` of `assignment`)."""
    resources: Any = field(default=None, init=False, repr=False)
    """A cache of `flavors.pod_set_resources`."""
    key: str = field(init=False, repr=False)
    """namespace/name. Like `local_queue` it is made once, because it is read very often."""
    local_queue: str = field(init=False, repr=False)
    """The key of its LocalQueue."""

    def __post_init__(self) -> None:
        self.key = f"{self.namespace}/{self.name}"
        self.local_queue = f"{self.namespace}/{self.queue}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The part of Kueue's Configuration, and of its feature gates, that decisions depend on."""

    fair_sharing: bool = False
    strategies: tuple[str, ...] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
    """fairSharing.preemptionStrategies"""
    half_life: float | None = None
    """admissionFairSharing.usageHalfLifeTime in seconds. None: admission fair sharing is off."""
    sampling: float = 300.0
    """admissionFairSharing.usageSamplingInterval"""
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
    """Feature gates that differ from the defaults of v0.19.2."""

    def gate(self, name: str, default: bool) -> bool:
        return self.gates.get(name, default)
