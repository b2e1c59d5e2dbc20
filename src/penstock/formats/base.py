"""What a format is: its name, the documents it knows, and what it can do with them. Declared once in each format's package.

A format that is not ours is one module with a Format in it and one entry point:

    [project.entry-points."penstock.formats"]
    myformat = "my_package.format:FORMAT"

Every capability may be absent. Its function should import what it needs when it is called: to find the format of a document,
the Format of every format is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from penstock.formats.documents import Document, Library
from penstock.formats.report import Report
from penstock.formats.status import Status, TaskStatus
from penstock.graph.model import Workflow


@dataclass(frozen=True, slots=True)
class Read:
    """A workflow that was read, and what reading kept, changed and lost."""

    workflow: Workflow
    report: Report


@dataclass(frozen=True, slots=True)
class Written:
    """Documents that were written, and what writing kept, changed and lost."""

    documents: list[dict[str, Any]]
    report: Report = field(default_factory=Report)


class ReadFunction(Protocol):
    """The workflow that a document describes. Other documents of the library may be read as well. Raises UserError."""

    def __call__(self, library: Library, document: Document, /) -> Read: ...


class WriteFunction(Protocol):
    """The documents of a checked workflow. `bundle`: the author's code, packed, if the workflow has functions. Raises UserError."""

    def __call__(self, workflow: Workflow, /, *, bundle: bytes | None = None) -> Written: ...


class GateFunction(Protocol):
    """The document, changed so that it waits for a queue. Raises UserError."""

    def __call__(
        self, library: Library, document: Document, unit: str, by: str, report: Report, /
    ) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """How documents of a format wait for a queue."""

    apply: GateFunction
    kinds: frozenset[str]
    """Kinds that can wait by stage or task."""
    whole: frozenset[str]
    """Kinds that can wait as a whole."""
    definitions: frozenset[str] = frozenset()
    """Kinds that do not run by themselves: what runs them waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWatch:
    """How a submitted run is followed, from the objects that the cluster shows."""

    status: Callable[[Mapping[str, Any]], Status]
    children: tuple[str, str] | None = None
    """(resource, label) of the objects that hold the state of the tasks; the label's value is the name of the run."""
    with_children: Callable[[Sequence[TaskStatus], Iterable[Mapping[str, Any]]], tuple[TaskStatus, ...]] | None = None
    """The tasks, with what these objects say of them."""
    pod_labels: tuple[str, str] | None = None
    """Labels of a task's pods that hold the name of the run and of the task, where the status does not name the pods."""


@dataclass(frozen=True, slots=True)
class TraceNote:
    """Something that is not in a trace as it was in the recording."""

    kind: Literal["guessed", "changed", "dropped"]
    text: str
    count: int
    """How many tasks, files or machines it is about."""

    def as_data(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "count": self.count}


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded execution: its workflow, and how long each step took."""

    workflow: Workflow
    runtimes: Mapping[str, float]
    """Seconds, by step."""
    notes: tuple[TraceNote, ...]
    makespan: float | None
    """Seconds from the first start to the last end, as recorded on the machines of that day."""
    machines: Mapping[str, int]
    """What these machines had together, in thousandths as the resources of a step; only what is recorded of all of them."""


class TraceFunction(Protocol):
    """`by_kind`: all tasks of a kind request as much as the largest of them. `grouped`: tasks of a kind that wait for the same
    tasks form one stage. Raises UserError."""

    def __call__(self, text: str, file: str, /, *, by_kind: bool = False, grouped: bool = False) -> Trace: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """Recordings of executions, for the simulator."""

    claims: Callable[[str], bool]
    """Is this text such a recording, well-formed or not? Asked of every JSON file, so it must be fast."""
    read: TraceFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A foreign format and what can be done with it."""

    name: str
    kinds: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """API group -> kind -> how far it is from a run: 0 runs, higher numbers only describe what may run."""
    detect: Callable[[Document], int | None] | None = None
    """The same for documents without apiVersion and kind; None if it is not of this format."""
    starts: Callable[[Document], bool] = lambda document: True
    """Can a document of these kinds be run by itself?"""
    references: Callable[[str, Mapping[str, Any]], str] = lambda field, value: ""
    """The kind of document that a field with such a value refers to by name; empty if to none."""
    beside: tuple[str, ...] = ()
    """Kinds of documents without a name that belong to every workflow beside them."""
    vet: Callable[[Document, Report], None] | None = None
    """Reports what the format's own project would not take. None: what its CRD does not allow."""
    read: ReadFunction | None = None
    plain: ReadFunction | None = None
    """Reads it for other systems, where what `read` makes is for our engine alone. None: as `read` does."""
    write: WriteFunction | None = None
    gate: Gate | None = None
    watch: RunWatch | None = None
    trace: TraceFormat | None = None
