"""The nouns of scheduling: a role of pods, a pod set, the marks that a scheduler reads, and the protocol of a scheduler.

Every other module of this package uses them; plugins.py pins those that authors of a scheduler need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

from penstock.formats.documents import Document, Library
from penstock.formats.pods.requests import resources_of
from penstock.formats.report import Report
from penstock.graph import quantity


@dataclass(frozen=True, slots=True)
class Named:
    """In a path: the item of a list whose `key` is `value`."""

    key: str
    value: str


Path = tuple[str | int | Named, ...]
"""A place in a document: ("spec", "workerGroupSpecs", 0, "template")."""
Amounts = Mapping[str, int]
"""Thousandths of a unit, by resource."""
Data = Mapping[str, Any]


def shown(path: Path) -> str:
    """As problems and reports name a place: `spec.workerGroupSpecs[0].template`."""
    return "".join(map(_step, path)).removeprefix(".")


def _step(one: str | int | Named) -> str:
    if isinstance(one, Named):
        return f"[{one.key}={one.value}]"
    return f"[{one}]" if isinstance(one, int) else f".{one}"


def amounts_text(requests: Amounts) -> str:
    """`2 cpu, 4Gi memory`."""
    return ", ".join(f"{quantity.short(amount, name)} {name}" for name, amount in sorted(requests.items())) or "nothing"


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the metadata of the pods of a role is written."""

    labels: Path
    annotations: Path
    scheduler: Path = ()
    """Of the schedulerName; empty if the object has no place for it."""
    shared: bool = False
    """Other roles read the same labels and annotations, so pods cannot be told apart by them."""


def template_slot(template: Path) -> Slot:
    """Of a pod template with metadata and spec."""
    meta = (*template, "metadata")
    return Slot((*meta, "labels"), (*meta, "annotations"), (*template, "spec", "schedulerName"))


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of one shape that an object makes."""

    name: str
    """As Kueue names the pod set: `head`, `worker`."""
    group: str
    """The name of their task group in YuniKorn: as the operator would name it, if it does."""
    pod: Data
    """The pod as it will exist: its template with all that the operator adds."""
    count: int
    """How many there are when the whole object runs."""
    least: int
    """How many must be there for it to begin: the members of a gang. 0: none of them is waited for."""
    slot: Slot
    late: str = ""
    """Why the gang does not wait for them, if it does not."""
    added: tuple[str, ...] = ()
    """What the operator adds to the template, in words."""

    @property
    def spec(self) -> Data:
        found = self.pod.get("spec")
        return found if isinstance(found, Mapping) else {}

    @property
    def requests(self) -> Amounts:
        return resources_of(self.spec)

    @property
    def members(self) -> int:
        return 0 if self.late else self.least


@dataclass(frozen=True, slots=True)
class JobPodSet:
    """A pod set of a Workload of Kueue: so many pods of this size."""

    name: str
    count: int
    requests: Amounts
    """Of one pod."""
    pod: Data
    least: int | None = None
    """Kueue may admit it with so few (minCount)."""
    topology: Data | None = None
    as_kueue: tuple[int, Amounts] | None = None
    """Count and size as Kueue computes them, where Kueue is known to count too little."""

    @property
    def total(self) -> dict[str, int]:
        return {name: amount * self.count for name, amount in self.requests.items() if amount * self.count}


@dataclass(frozen=True, slots=True)
class JobPods:
    """What a kind says of one object."""

    roles: tuple[Role, ...]
    pod_sets: tuple[JobPodSet, ...] | None = None
    """As Kueue counts them; None: one of each role."""
    notes: tuple[tuple[str, str, str], ...] = ()
    """(place, what, what to do about it): worth saying whichever scheduler it is."""
    unknown: str = ""
    """Why the pods are not known from the documents that there are."""


QueueKind = Literal["object", "pods", "optional", "group", "none"]
"""Where Kueue waits: at the object; at each of its pods; at the object, if the administrator has enabled the integration; at a pod group; nowhere."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A row of the table: a kind of object, and which pods it makes."""

    api_group: str
    kind: str
    job_type: str
    """The last part of the queue's name: `ray` in `root.org.ray`."""
    pods: Callable[[Document, Library], JobPods]
    queued: QueueKind = "object"
    queue_labels: Path = ("metadata", "labels")
    """Where Kueue reads the label with the queue's name."""
    spec: Path = ("spec",)
    remark: str = ""
    """What must be true of the cluster before Kueue queues this kind."""


@dataclass(frozen=True, slots=True)
class JobObject:
    """One document that makes pods, as the table reads it."""

    document: Document
    kind: Kind
    roles: tuple[Role, ...]
    pod_sets: tuple[JobPodSet, ...]
    notes: tuple[tuple[str, str, str], ...] = ()
    unknown: str = ""

    @property
    def title(self) -> str:
        return f"{self.document.kind} {self.document.name}".strip()


# -- what a scheduler is told and what it answers ---------------------------------------------------------------------

Style = Literal["", "Soft", "Hard"]


@dataclass(frozen=True, slots=True)
class Binding:
    """What one object is bound to."""

    queue: str = ""
    """Without the root: `lab.ray`, or as the user wrote it."""
    namespace: str = ""
    app: str = ""
    """The application's id, if the user chose one."""
    gang: bool = True
    style: Style = ""
    timeout: int | None = None
    """Seconds that a gang waits for its last member."""
    priority: str = ""
    allow_preemption: bool | None = None
    user: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Marks:
    """JobLabels and annotations."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def __or__(self, other: Marks) -> Marks:
        return replace(
            self, labels={**self.labels, **other.labels}, annotations={**self.annotations, **other.annotations}
        )

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations)


@dataclass(frozen=True, slots=True)
class JobLabels:
    """What create_labels answers: marks of the object itself, of what Kueue queues of it, and of each of its pods."""

    object: Marks = field(default_factory=Marks)
    queued: Marks = field(default_factory=Marks)
    """Written where the kind has its queue_labels."""
    pods: Marks = field(default_factory=Marks)


@dataclass(frozen=True, slots=True)
class GangMember:
    """One group of a gang."""

    role: str
    name: str
    count: int
    requests: Amounts

    @property
    def total(self) -> dict[str, int]:
        return {name: amount * self.count for name, amount in self.requests.items()}


@dataclass(frozen=True, slots=True)
class Gang:
    """What create_group_labels answers: the groups, the marks that they share, and objects that must exist beside the job."""

    members: tuple[GangMember, ...] = ()
    object: Marks = field(default_factory=Marks)
    pods: Marks = field(default_factory=Marks)
    documents: tuple[Data, ...] = ()

    def of(self, role: str) -> GangMember | None:
        return next((one for one in self.members if one.role == role), None)


@runtime_checkable
class SchedulerPlugin(Protocol):
    """A scheduler of jobs. The four verbs are those of Flyte's RFC 5575; none of them changes anything: `apply` writes what they answer."""

    @property
    def name(self) -> str:
        """As `penstock schedule --with` names it."""

    def queue_name(self, organisation: str, job_type: str) -> str:
        """The queue of an organisation for a type of job."""

    def set_scheduler_name(self, job: JobObject) -> str:
        """What every pod of the job has as schedulerName; empty: what it has already."""

    def create_labels(self, job: JobObject, binding: Binding, report: Report) -> JobLabels:
        """What puts the job into its queue."""

    def create_group_labels(self, job: JobObject, binding: Binding, report: Report) -> Gang:
        """What makes its pods start together; no members: there is no gang."""

    def get_group_labels(self, job: JobObject, gang: Gang, role: Role) -> Marks:
        """What the pods of one role carry of it."""
