"""The engine's end of one worker process: what the worker has, and the messages to and from it. Made and used by workers."""

from __future__ import annotations

import asyncio
import os
import pickle
from contextlib import suppress
from typing import Any

from penstock.backends.base import AttemptSpec, BackendContext
from penstock.backends.local.function_table import KnownFunction
from penstock.backends.local.orphans import EscapedProcesses
from penstock.backends.local.prestart import StartedWorker, claim
from penstock.backends.local.worker_protocol import HEAD, TICKET
from penstock.backends.processes import ProcessWatch

_CHUNK = 262144


class WorkerJob:
    """One attempt, waiting or with a worker."""

    __slots__ = ("cost", "env", "known", "reported", "spec")

    def __init__(self, spec: AttemptSpec, known: KnownFunction, env: dict[str, str]) -> None:
        self.spec = spec
        self.known = known
        self.env = env
        self.reported = False
        """Has its start been reported?"""
        self.cost = 0.0
        """Its share in the load of its worker."""


class WorkerProcess:
    def __init__(self, context: BackendContext, number: int, log: str) -> None:
        self.log = log
        self.log_path = context.home / log
        self.log_end = 0
        """Where the log of the running attempt starts."""
        self.last_line = ""
        self.jobs: dict[int, WorkerJob] = {}
        """By ticket, in the order in which they were handed over."""
        self.load = 0.0
        """Seconds that its jobs are expected to take."""
        self.functions: set[int] = set()
        """Numbers of the functions that it knows."""
        self.ready = self.stopping = self.over = False
        self.since = 0.0
        """Loop time of the last change: ready, given work, or a result."""
        self.watch: ProcessWatch | None = None
        self._tickets = 0
        self._received = bytearray()
        self._unsent = bytearray()
        self._loop = asyncio.get_running_loop()
        self._started = started = claim(context.home, context.engine, log) or StartedWorker(
            context.home, context.engine, log, context.environ
        )
        self.socket = started.socket
        self.pid = started.process.pid
        self.runaways = EscapedProcesses(self.pid, {"PENSTOCK_WORKER_LOG": str(self.log_path)}, family=True)
        """What its tasks have started, and what did not end with its group."""
        os.set_blocking(started.tickets_theirs, False)  # for both sides: it is the same open pipe
        self.socket.setblocking(False)
        scratch = context.home / "work" / context.engine / f"worker-{number}"
        self.send({"blobs": context.blobs, "cache": str(context.home / "cache"), "scratch": str(scratch)})

    @property
    def used(self) -> bool:
        """Was any work ever handed over to it?"""
        return self._tickets > 0

    def burden(self) -> tuple[float, bool]:
        """The worker with the least gets the next job."""
        return self.load, not self.ready

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def add(self, job: WorkerJob) -> int:
        """Returns its ticket."""
        self._tickets += 1
        self.jobs[self._tickets] = job
        job.cost = job.known.estimate
        self.load += job.cost
        return self._tickets

    def forget(self, job: WorkerJob) -> None:
        """The job is done or was taken back: its share in the load ends."""
        self.load = max(0.0, self.load - job.cost) if self.jobs else 0.0

    def give_tickets(self, tickets: list[int]) -> None:
        os.write(self._started.tickets_ours, b"".join(map(TICKET.pack, tickets)))

    def take_back(self) -> list[WorkerJob]:
        """Reads the tickets of the jobs that it has not begun. It then cannot begin them."""
        if not self.jobs:
            return []
        found = []
        with suppress(BlockingIOError):
            while data := os.read(self._started.tickets_theirs, TICKET.size):
                job = self.jobs.pop(TICKET.unpack(data)[0])
                found.append(job)
                self.forget(job)
        return found

    # -- messages -----------------------------------------------------------------------------------------------------

    def send(self, message: Any) -> None:
        data = pickle.dumps(message, protocol=5)
        self._unsent += HEAD.pack(len(data)) + data
        self._write()

    def _write(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            self._loop.add_writer(self.socket.fileno(), self._write)
            return
        except OSError:  # it is ending; its watch reports that
            self._unsent.clear()
        self._loop.remove_writer(self.socket.fileno())

    def messages(self, all: bool = False) -> list[Any]:
        """What has arrived. With `all`, reads until the socket is empty or closed."""
        with suppress(BlockingIOError, ConnectionError):
            while data := self.socket.recv(_CHUNK):
                self._received += data
                if len(data) < _CHUNK and not all:
                    break
            else:
                self._loop.remove_reader(self.socket.fileno())  # closed; the watch reports why
        found, at, received = [], 0, self._received
        while len(received) - at >= HEAD.size:
            size = HEAD.unpack_from(received, at)[0]
            if len(received) - at - HEAD.size < size:
                break
            found.append(pickle.loads(received[at + HEAD.size : at + HEAD.size + size]))
            at += HEAD.size + size
        del received[:at]
        return found

    # -- the end ------------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """There are no more tickets: an idle worker then ends by itself."""
        self._started.close_tickets()

    def close(self) -> None:
        """The process has ended, and was waited for."""
        self.over = True
        self.runaways.orphaned()
        self._loop.remove_reader(self.socket.fileno())
        self._loop.remove_writer(self.socket.fileno())
        self._started.close()

    def close_log(self) -> None:
        """Removes an empty log. Keeps the last line of a worker that never got ready: it says why."""
        with suppress(OSError):
            if not self.ready:
                lines = self.log_path.read_text(encoding="utf-8", errors="replace").split("\n")
                self.last_line = next((line.strip() for line in reversed(lines) if line.strip()), "")
            if self.log_path.stat().st_size == 0:
                self.log_path.unlink()
