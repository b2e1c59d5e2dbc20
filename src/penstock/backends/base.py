"""The interface between the engine and a backend. Used by the engine; implemented by each backend, ours and others'.

The engine owns the graph. A backend gets an AttemptSpec only when its task may run, and never learns what comes after it. It
reports what happens (AttemptStarted, AttemptEnded) to the engine's Inbox, and calls nothing of the engine.

Authors of backends import these names from penstock.plugins. A backend is found by its name in its package's metadata:

    [project.entry-points."penstock.backends"]
    lsf = "my_package:LsfBackend"
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from penstock.artifacts.blobs import Blobs
from penstock.graph.model import Action, Outcome, Step

LogPart = tuple[str, int, int | None]
"""Part of a file below BackendContext.home: path, first byte, end (None: the end of the file)."""


class Orphan(NamedTuple):
    """A process of a task that outlived its engine."""

    pid: int
    run: str
    """"" if it does not say: a worker, which serves many tasks."""
    task: str


@dataclass(slots=True, kw_only=True)
class AttemptSpec:
    """One attempt of one task, with every value known."""

    id: str
    """Run, task and attempt: `finetune-3/train[2]/1`. The same attempt has the same id after a crash."""
    run: str
    task: str
    attempt: int
    step: Step
    """What the author wrote: declared inputs and outputs with types and paths, replicas, resources."""
    action: Action
    """The step's action with every expression in it replaced by its value."""
    inputs: dict[str, Any]
    """Plain data, and `artifacts.values.Stored` where a value is a file, large, or not JSON."""
    bundle: str = ""
    """The blob with the author's code, for function steps."""
    working_directory: str = ""
    """The folder that commands start in: where `penstock run` was called."""
    since: int = 0
    """The first of the attempts that this one may go on with: `attempt` itself, or an earlier one, if engines died while those ran and
    how they ended is not recorded. 0: not told. A backend whose attempts outlive their engine names them by it, so that there is one."""
    queue: str = ""
    """The queue that the run names, if no quota of ours is held for the task: of a resource step, and of a task on another machine whose cluster has a
    scheduler with queues (PENSTOCK_SCHEDULER). A queue of the cluster is then to hold it back. Empty: there is none, or the quota is held here."""
    counted: bool = False
    """A queue of the cluster has admitted its pods, and counts just these: it needs pods of its own, which go when it ends."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The secrets that the attempt is given: name -> text. They are in place already, except in the inputs of a function. Nothing that
    is kept may hold a text: only a backend that says so in its abilities gets such attempts."""


@dataclass(slots=True, kw_only=True)
class AttemptStarted:
    """The attempt has begun."""

    id: str
    pid: int | None = None
    log: tuple[LogPart, ...] = ()
    begun: bool = True
    """False: it has not begun, but its log has; it says why it waits. Another report follows when it begins."""
    waits: str = ""
    """For what, in words, if it has not begun and that is known. May be told again when it changes."""


class TakenFiles(NamedTuple):
    """Files and folders that an attempt returned and that were changed while it ran: their real paths on this machine. Two attempts that
    overlap and returned the same one may have each other's content."""

    began: float
    ended: float
    """By time.monotonic, after the files were stored."""
    paths: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class AttemptEnded:
    """The attempt is over. Comes exactly once for each AttemptSpec, and no other report follows it."""

    id: str
    outcome: Outcome
    """SUCCEEDED; FAILED, it ran and did not succeed; ERRORED, it could not be run; CANCELLED, it was stopped by `stop`."""
    outputs: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    """Of a command; minus the signal number if a signal ended it."""
    exception: str = ""
    """Type of what a function raised, as `ValueError` or `package.module.Name`."""
    message: str = ""
    """What went wrong, in one line."""
    traceback: str = ""
    cause: str = ""
    """What kind of failure it was, if no program has raised it: OutOfMemory, ImagePullError, NodeLost."""
    invalid: bool = False
    """It failed because its input is not valid: it is not tried again."""
    log: tuple[LogPart, ...] = ()
    seconds: float = 0.0
    """How long it ran."""
    cpu: float | None = None
    """Seconds of processor time that it used; None: not measured."""
    lost: bool = False
    """The attempt ended because its worker did, perhaps for another reason. The engine tries again and does not count it."""
    preempted: bool = False
    """Lost because something of a higher priority took its place. That may happen any number of times."""
    taken: TakenFiles | None = None
    """If it worked in a folder that other attempts work in too: what it returned of it. None: nothing."""


AttemptReport = AttemptStarted | AttemptEnded


class Inbox:
    """Where reports arrive. One engine reads it. Backends put reports into it, from the engine's thread or from any other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[AttemptReport] = []
        self._arrived = asyncio.Event()

    def put(self, report: AttemptReport) -> None:
        """Call it from the engine's thread."""
        self._waiting.append(report)
        self._arrived.set()

    def put_all(self, reports: Sequence[AttemptReport]) -> None:
        """Call it from the engine's thread."""
        self._waiting.extend(reports)
        self._arrived.set()

    def put_from_thread(self, report: AttemptReport) -> None:
        """Call it from any other thread."""
        self._loop.call_soon_threadsafe(self.put, report)

    def wake(self) -> None:
        """Wakes the engine although there is no report."""
        self._arrived.set()

    def take(self) -> list[AttemptReport]:
        """All reports since the last call."""
        reports, self._waiting = self._waiting, []
        self._arrived.clear()
        return reports

    async def wait(self) -> None:
        await self._arrived.wait()


@dataclass(slots=True, kw_only=True)
class BackendContext:
    """What a backend may use."""

    home: Path
    """`.penstock`: logs are below logs/, scratch folders below work/."""
    blobs: Blobs
    inbox: Inbox
    jobs: int
    """How many tasks this machine should run at the same time."""
    engine: str
    """The engine's id. Every process gets it as PENSTOCK_ENGINE, by which its orphans are found."""
    now: Callable[[], float]
    """Wall clock, for display only."""
    environ: Mapping[str, str]
    """What processes of tasks inherit: without secrets and passwords."""
    functions: Mapping[tuple[str, str, str], Callable[..., Any]] = field(default_factory=dict)
    """Functions that this process has already loaded, by (module, name, code). They need not be loaded from a bundle."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a backend can do beyond running attempts. Declared once, when the backend is made."""

    call: Callable[[AttemptSpec], AttemptEnded] | None = None
    """Runs the attempt at once, while the engine waits. Only for work of a millisecond or less: nothing else happens meanwhile.
    The engine then never calls `start`."""
    room_for: Callable[[Step], int] | None = None
    """Room for attempts of this step. For a backend that takes more attempts of steps that it knows to be short."""
    is_ahead: Callable[[], bool] | None = None
    """Has the backend enough queued for a moment? Then the engine may collect several reports before it writes them."""
    masks_secrets: bool = False
    """Keeps the texts of `AttemptSpec.secrets` out of its logs, and of the arguments of processes."""
    reports_start: bool = False
    """AttemptStarted comes when the attempt really begins. Its time limit counts from there, and not from `start`."""
    recorded: Callable[[Sequence[str]], None] | None = None
    """Called with the ids of attempts whose end has been recorded: what was kept of them for another engine can go. Also for attempts
    of a dead engine that nobody goes on with: the id is then that of the first of them (`AttemptSpec.since`). It must not block."""


class Backend(Protocol):
    """One place to run tasks. The engine makes it once, with a BackendContext, when the first task for it is ready."""

    @property
    def abilities(self) -> Abilities: ...

    def room(self) -> int:
        """How many more attempts the backend wants now."""
        ...

    def start(self, specs: Sequence[AttemptSpec]) -> None:
        """Begin these attempts. Returns at once. Does not raise for what is wrong with one spec: that is an AttemptEnded."""
        ...

    def stop(self, id: str, grace: float) -> None:
        """End this attempt with all its processes: ask first, kill after `grace` seconds (0: kill at once). Its AttemptEnded
        follows. An id that is not running is ignored."""
        ...

    async def close(self) -> None:
        """End everything that is left and release what is held. The engine reads no reports after this."""
        ...


BackendFactory = Callable[[BackendContext], Backend]
