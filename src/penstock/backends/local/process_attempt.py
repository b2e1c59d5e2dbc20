"""One attempt of the process backend, and its processes. Made and changed by process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from penstock.backends.base import AttemptSpec
from penstock.backends.local.files import HostFiles
from penstock.backends.local.pod import HostPod
from penstock.backends.processes import ProcessWatch
from penstock.backends.secrets.masked_log import MaskedLogs
from penstock.graph.model import Part


@dataclass(slots=True, eq=False)
class HostProcess:
    """A replica of a command, or a part of a replica of a pod."""

    number: int
    """Of the replica."""
    files: HostFiles
    words: list[str]
    env: dict[str, str]
    out: str
    err: str
    """Logs, below the home; the same unless an output is what is printed."""
    start: str = ""
    """The folder it starts in; empty: where the engine is."""
    pod: HostPod | None = None
    part: Part | None = None
    pid: int = 0
    watch: ProcessWatch | None = None
    code: int | None = None
    """Exit code, or minus the signal's number; None while it runs."""
    logs: MaskedLogs | None = None
    """If it is given secrets."""
    timer: asyncio.TimerHandle | None = None
    timed_out: bool = False
    error: str = ""
    """$PENSTOCK_ERROR."""
    guarded: bool = False
    """May it write to the files of the replica alone? See guard."""

    @property
    def runs(self) -> bool:
        return self.watch is not None and self.code is None


@dataclass(slots=True, eq=False)
class ProcessAttempt:
    spec: AttemptSpec
    processes: list[HostProcess] = field(default_factory=list)
    """Of a pod: its parts, as they are started."""
    pods: list[HostPod] = field(default_factory=list)
    started: float = 0.0
    stopped: bool = False
    failed: HostProcess | None = None
    """The first process that failed."""
    failed_pod: HostPod | None = None
    """The first pod of which a part failed."""
    error: str = ""
    """Why it could not be run."""

    @property
    def files(self) -> HostFiles:
        """The files that outputs are read from."""
        return self.pods[0].files if self.pods else self.processes[0].files

    @property
    def ending(self) -> bool:
        """Must nothing more of it be started?"""
        return bool(self.stopped or self.error or self.failed or self.failed_pod)

    @property
    def cpu(self) -> float | None:
        """Seconds of processor time that its processes have used; None: of one of them it is not known."""
        watches = [one.watch for one in self.processes if one.watch is not None]
        used = [watch.cpu for watch in watches if watch.cpu is not None]
        return sum(used) if used and len(used) == len(watches) else None

    @property
    def log_names(self) -> list[str]:
        """Below the home, each once."""
        if self.pods:
            return [name for pod in self.pods for name in pod.progress.log.names]
        return list(dict.fromkeys(name for one in self.processes for name in (one.out, one.err)))
