"""What the controller needs of a workflow engine: the interface for authors of engines, found by the entry point `penstock.engines`.

An engine tells what it watches, which stages a workflow has and in what state each is, and how a stage is held, let go and stopped. It
decides nothing about quota: the core (`controller.core`) does. Every method is pure: objects in, data out. Nothing is remembered between
two calls; whatever has to be known later is written into the cluster.

A stage is in one of four states:

    ahead     known, but not reached. A Workload keeps its place in the queue
    held      reached, and held: none of its pods runs without a scheduling gate
    open      let go: its pods may be created, and run when they are covered by an admitted Workload
    done      over. What it held is given back

Pods of a queued workflow are born with a scheduling gate (a policy of the API server sees to that). The core removes the gate of a pod that an
admitted Workload covers. So an engine that cannot hold a stage before its pods exist reports it as open: its pods wait one by one, and the
core sizes a Workload by what it sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from penstock.controller.objects import ApiResource, Lookup, Object, Write
from penstock.errors import UserError

State = Literal["ahead", "held", "open", "done"]
Unit = Literal["workflow", "stage", "task", "reuse"]
Outcome = Literal["", "Succeeded", "Failed"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Pods that are alike: how many, and what each asks for."""

    count: int
    requests: Mapping[str, int]
    """Thousandths of a unit, by resource (as in `penstock.graph.quantity`)."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    affinity: Mapping[str, Any] = field(default_factory=dict)
    runtime_class: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of one run, as it is now."""

    key: str
    """Unique in the run, the same each time it is seen."""
    name: str
    """For people: `main[1]`, `train`."""
    state: State
    shapes: tuple[Shape, ...] = ()
    """All its pods, finished ones included. Empty: it asks for nothing, or nobody knows yet."""
    known: bool = True
    """The shapes are complete. If not, the stage is let go without a Workload, and its pods are sized as they wait."""
    gang: bool = True
    """All or nothing. If not, a part may be admitted."""
    queue: str = ""
    """Its own queue, if it names one."""
    finished: tuple[int, ...] = ()
    """For each shape, how many of its pods are over for good: they will not be retried."""
    outcome: Outcome = ""
    vector: bool = False
    """It covers stages that follow one another: the shapes, one for each placement, are what it holds at most at one moment, not pods. A pod is
    covered while the sum fits."""
    needed: tuple[Mapping[str, int], ...] = ()
    """Of such a stage: for each shape, the most that it will still hold. What is beyond is given back."""
    next: tuple[str, ...] = ()
    """Keys of stages that start when this one ends. By `reuse`, one of them that asks for the same takes over what it holds."""
    unknown: str = ""
    """Why the shapes are not complete, for people: `only the run knows cpu of step train`. Empty where pods are meant to wait one by one."""
    by_count: bool = False
    """If a part is admitted, only as many pods are made (`Opening.count`): the others do not wait, they follow as those end."""


@dataclass(frozen=True, slots=True)
class View:
    """One workflow object as its engine sees it."""

    stages: tuple[Stage, ...] = ()
    over: Outcome = ""
    """Set when the run has ended."""
    paused: bool = False
    """The user holds the run: nothing new is let go."""
    problem: str = ""
    """Why it cannot be read; nothing of it is let go."""
    fix: str = ""
    """What to do about the problem, as a sentence."""
    stopping: tuple[str, tuple[str, ...]] | None = None
    """A stage, with its tasks or none for all, whose stop takes several writes and is under way: it is carried through."""


def unread(error: UserError, paused: bool = False) -> View:
    """Of an object whose document is refused: with all its problems and what to do about them."""
    problem = "; ".join(one.message for one in error.problems)
    fixes = dict.fromkeys(one.fix for one in error.problems if one.fix)
    return View(paused=paused, problem=problem, fix=sentence("; ".join(fixes)))


def sentence(text: str) -> str:
    """A fix as it stands in the catalogue, as a sentence of its own."""
    return f"{text[0].upper()}{text[1:].removesuffix('.')}." if text else ""


@dataclass(frozen=True, slots=True)
class Task:
    """Where a pod belongs."""

    stage: str
    """The key of its stage. Empty: exempt, it never waits (exit handlers, hooks, finally)."""
    name: str
    """Unique in the stage. A pod that is made again for the same task, after a retry or an eviction, has the same."""
    queue: str | None = ""
    """The queue that it names, if its pod has no label that says so and the stage says no other. None: not known yet."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One workflow object with everything below it."""

    main: Object
    children: Mapping[str, Sequence[Object]]
    """Kind -> objects that the workflow owns, directly or not; pods too."""
    lookup: Lookup
    now: float
    """Seconds since 1970."""
    memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """For an engine: what it has worked out from these objects, so that it need not do so twice."""

    def of(self, kind: str) -> Sequence[Object]:
        return self.children.get(kind, ())

    @property
    def pods(self) -> Sequence[Object]:
        return self.of("Pod")


@dataclass(frozen=True, slots=True)
class Opening:
    """What was admitted, for an engine that can tell its pods before they exist."""

    count: int | None
    """How many pods may run, if only a part was admitted."""
    flavors: tuple[str, ...]
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Adjusted:
    """A new object, made ready for the queue."""

    object: Object
    warnings: tuple[str, ...] = ()
    """Shown to the user who creates it."""


class Engine(Protocol):
    """One workflow engine. An entry point names an object with these attributes."""

    name: str
    main: Sequence[ApiResource]
    """The kinds that users create and label. Watched if the cluster has them."""
    children: Sequence[ApiResource]
    """Kinds whose objects are owned by a main object, directly or through one another. Pods are always watched."""
    library: Sequence[ApiResource]
    """Kinds that main objects refer to."""

    def queued(self, obj: Object) -> bool:
        """Does this main object wait in a queue by us? Given those with a queue's label; Kueue's own integration may care for some."""

    def adjust(self, obj: Object, unit: Unit, lookup: Lookup) -> Adjusted:
        """A main object when it is created, with its stages held. Raises DocumentError to refuse it."""

    def view(self, seen: Observed, unit: Unit) -> View: ...

    def task_of(self, pod: Object, seen: Observed, unit: Unit) -> Task: ...

    def open(self, seen: Observed, unit: Unit, stage: Stage, opening: Opening) -> Sequence[Write]:
        """Lets a held stage go. Nothing if that is done already. Asked again while the stage is open: what belongs to it may come later."""

    def stop(self, seen: Observed, unit: Unit, stage: str, tasks: Sequence[str]) -> Sequence[Write] | None:
        """The next writes towards a stage, or only some tasks of it, that is held and has no pod without a gate; finished tasks are kept, and no
        failure counts. None when that is reached; nothing while it waits for pods to end."""
