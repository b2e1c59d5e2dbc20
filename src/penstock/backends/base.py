"""What the engine and a backend say to each other. Called by engine.loop; implemented by each backend, ours and others'.

The engine owns the graph: a backend gets an Order only when its task may run, and never learns what comes after it. What
happens comes back as Reports put into the engine's Inbox; a backend calls nothing of the engine.

A backend of your own is a class with the methods of Backend, named in your package's metadata:

    [project.entry-points."penstock.backends"]
    lsf = "my_package:LsfBackend"
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from penstock.artifacts.blobs import Blobs
from penstock.errors import PlanError, Problem, nearest
from penstock.graph.model import Action, Outcome, Step

LogPart = tuple[str, int, int | None]
"""A stretch of a file below Context.home: from byte, to byte (None: to wherever it ends)."""


@dataclass(slots=True, kw_only=True)
class Order:
    """One attempt of one task, with everything in it known."""

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
    """Blob with the author's code, for function steps."""
    place: str = ""
    """The folder that commands start in: where `penstock run` was typed."""


@dataclass(slots=True, kw_only=True)
class Began:
    """The attempt has a process now."""

    id: str
    pid: int | None = None
    log: tuple[LogPart, ...] = ()


@dataclass(slots=True, kw_only=True)
class Ended:
    """The attempt is over. Comes once for each Order, whatever happened, and nothing comes after it."""

    id: str
    outcome: Outcome
    """SUCCEEDED; FAILED, it ran and did not succeed; ERRORED, it could not be run; CANCELLED, it was stopped by `stop`."""
    outputs: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    """Of a command; minus the signal number if a signal ended it."""
    exception: str = ""
    """Type of what a function raised, as `ValueError` or `package.module.Name`."""
    message: str = ""
    """One line for people: what went wrong."""
    traceback: str = ""
    log: tuple[LogPart, ...] = ()
    seconds: float = 0.0
    """How long it ran."""
    lost: bool = False
    """The attempt went down with its worker, which may not be its fault: the engine tries again without counting it."""


Report = Began | Ended


class Inbox:
    """Where reports arrive. One engine reads it; backends put, from the engine's own thread or from any other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[Report] = []
        self._arrived = asyncio.Event()

    def put(self, report: Report) -> None:
        """From the engine's thread."""
        self._waiting.append(report)
        self._arrived.set()

    def put_all(self, reports: Sequence[Report]) -> None:
        """From the engine's thread."""
        self._waiting.extend(reports)
        self._arrived.set()

    def put_from_thread(self, report: Report) -> None:
        self._loop.call_soon_threadsafe(self.put, report)

    def wake(self) -> None:
        """Something else than a report wants to be looked at."""
        self._arrived.set()

    def take(self) -> list[Report]:
        """Everything that has arrived."""
        reports, self._waiting = self._waiting, []
        self._arrived.clear()
        return reports

    async def wait(self) -> None:
        await self._arrived.wait()


@dataclass(slots=True, kw_only=True)
class Context:
    """What a backend may use."""

    home: Path
    """`.penstock`: logs below logs/, scratch folders below work/."""
    blobs: Blobs
    inbox: Inbox
    jobs: int
    """How many tasks this machine should run at the same time."""
    engine: str
    """The engine's own id, given to every process as PENSTOCK_ENGINE so that orphans can be told."""
    now: Callable[[], float]
    """Wall clock, for showing."""
    environ: Mapping[str, str]
    functions: Mapping[tuple[str, str, str], Callable[..., Any]] = field(default_factory=dict)
    """Functions that this very process has at hand, by (module, name, code): they need not be loaded from a bundle."""


class Backend(Protocol):
    """One place to run tasks. Made once for each engine, with `Context`, when the first task for it is ready."""

    def room(self) -> int:
        """How many more orders it would like now."""
        ...

    def start(self, orders: Sequence[Order]) -> None:
        """Begin these. Returns at once and does not raise for what is wrong with one order: that is an Ended."""
        ...

    def stop(self, id: str, grace: float) -> None:
        """End this attempt with all its processes: asked first, made to after `grace` seconds (0: at once). Its Ended
        follows. An id that is not running is ignored."""
        ...

    async def close(self) -> None:
        """End everything that is left and give back what is held. No reports are read after this."""
        ...


class Immediate(Protocol):
    """A backend whose tasks are so small that the engine waits for each (see inline). Not for work of more than a millisecond
    or so: nothing else happens meanwhile."""

    def call(self, order: Order) -> Ended: ...

    async def close(self) -> None: ...


OURS: Mapping[str, str] = {
    "inline": "inline:Inline",
    "workers": "workers:Workers",
    "process": "process:Process",
    "container": "container:Container",
    "http": "http:Http",
    "resource": "resource:Resource",
    "fake": "fake:Fake",
}
"""Our own are found without reading the metadata of everything that is installed, which takes longer than many a workflow."""


def make_backend(name: str, context: Context) -> Any:
    """A Backend or Immediate by its name. Raises PlanError if there is none of that name."""
    return find_backend(name)(context)


def find_backend(name: str) -> Callable[[Context], Any]:
    """Raises PlanError if there is none of that name."""
    if name in OURS:
        module, _, cls = OURS[name].partition(":")
        return lambda context: getattr(importlib.import_module(f"penstock.backends.{module}"), cls)(context)
    from importlib.metadata import entry_points  # reads slowly, and our own need it not

    installed = {point.name: point for point in entry_points(group="penstock.backends")}
    if name not in installed:
        known = sorted({*OURS, *installed})
        raise PlanError(
            Problem("P703", f"there is no backend {name!r}", f"known: {', '.join(known)}.{nearest(name, known)}")
        )
    found: Callable[[Context], Any] = installed[name].load()
    return found
