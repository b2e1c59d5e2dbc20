"""Function steps in warm Python processes on this machine. Found by its entry point; called by engine.loop.

Processes are spawned, not forked (the engine has threads and open sockets), and kept, so that an import is paid once. Each is
the leader of its own session: stopping a task ends everything that it started.

Short tasks are handed over several at a time, as many as a worker is expected to do in a few milliseconds. Every order has a
ticket in the worker's pipe; whoever reads the ticket has the order. As soon as a worker has nothing to do, or a task takes
longer than was expected, the engine reads the tickets of those behind it and gives them to others (see worker_main).
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.artifacts.values import as_text
from penstock.backends.base import Began, Context, Ended, LogPart, Order, Report
from penstock.backends.prestart import Started, claim
from penstock.backends.watch import Watch, kill_group, signal_name
from penstock.backends.worker_main import HEAD, TICKET, Spec, Work
from penstock.graph.model import Function, Outcome

SHORT = 0.002
"""Tasks that take less are handed over several at a time …"""
AHEAD = 0.005
"""… so many that they are done in about this time, …"""
MOST = 64
"""… but no more than this."""
PATIENCE = 0.02
"""A task that runs longer than this has nobody behind it, and is reported as begun."""
_UNKNOWN = 1.0
_MANY = 10_000
_STARTS = 3
"""So many workers may fail to start, one after the other, before their orders are given up."""


class Known:
    """What all orders of one step have in common."""

    __slots__ = ("estimate", "number", "spec", "step")

    def __init__(self, number: int, step: Any, spec: Spec) -> None:
        self.number = number
        self.step = step
        self.spec = spec
        self.estimate = _UNKNOWN


class Job:
    """One order on its way."""

    __slots__ = ("began", "cost", "env", "known", "order")

    def __init__(self, order: Order, known: Known, env: dict[str, str]) -> None:
        self.order = order
        self.known = known
        self.env = env
        self.began = False
        self.cost = 0.0


class Workers:
    """A Backend."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._workers: list[Worker] = []
        self._waiting: deque[Job] = deque()
        self._where: dict[str, Worker | None] = {}
        """Order id -> who has it; None: nobody yet."""
        self._by_step: dict[tuple[int, str, str], Known] = {}
        self._by_spec: dict[Spec, Known] = {}
        self._by_id: dict[int, Known] = {}
        self._specs = 0
        self._average = _UNKNOWN
        self._count = 0
        self._failed_starts = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._logs = f"logs/{context.engine}"
        (context.home / self._logs).mkdir(parents=True, exist_ok=True)
        self._spawn()

    # -- what the engine calls ----------------------------------------------------------------------------------------

    def room(self) -> int:
        depth = 1 if self._average >= SHORT else min(MOST, max(1, int(2 * AHEAD / (self._average + 0.00005))))
        return max(0, self._context.jobs * depth - len(self._where))

    def room_for(self, step: Any) -> int:
        """More of what is known to be short; of anything else, as many as there are workers without work."""
        known = self._by_id.get(id(step))
        if known is not None and known.step is step and known.estimate < SHORT:
            return self.room()
        return max(0, self._context.jobs - len(self._where))

    def start(self, orders: Sequence[Order]) -> None:
        for order in orders:
            try:
                job = self._job(order)
            except Exception as error:
                self._context.inbox.put(Ended(id=order.id, outcome=Outcome.ERRORED, message=str(error)))
                continue
            self._where[order.id] = None
            self._waiting.append(job)
        self._pump()

    def stop(self, id: str, grace: float) -> None:
        if id not in self._where:
            return
        worker = self._where[id]
        if worker is not None:
            self._take_back(worker)  # from here on it either waits or runs
            worker = self._where[id]
        if worker is None:
            self._waiting = deque(job for job in self._waiting if job.order.id != id)
            del self._where[id]
            self._context.inbox.put(Ended(id=id, outcome=Outcome.CANCELLED, message="stopped before it began"))
        elif not worker.stopping:
            worker.stopping = True
            self._end(worker, grace)
        elif grace <= 0:
            kill_group(worker.pid, signal.SIGKILL)
        self._pump()

    async def close(self) -> None:
        """Idle workers leave by themselves; busy ones are asked, and made to."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        for worker in list(self._workers):
            if worker.jobs or not worker.ready or not worker.used:
                kill_group(worker.pid, signal.SIGTERM if worker.ready and worker.used else signal.SIGKILL)
            worker.leave()
        deadline = self._loop.time() + 1.0
        while self._workers and self._loop.time() < deadline:
            await asyncio.sleep(0.002)
        for worker in list(self._workers):
            kill_group(worker.pid, signal.SIGKILL)
        while self._workers:
            await asyncio.sleep(0.002)
        for folder in (self._logs, f"work/{self._context.engine}"):
            self._remove(self._context.home / folder)

    def _remove(self, folder: Path) -> None:
        """Folders in which nothing was left."""
        for inner in (*folder.glob("*/"), folder):
            with suppress(OSError):
                os.rmdir(inner)

    # -- orders -------------------------------------------------------------------------------------------------------

    def _job(self, order: Order) -> Job:
        action = order.action
        assert isinstance(action, Function)
        key = (id(order.step), order.bundle, order.place)
        known = self._by_step.get(key)
        if known is None or known.step is not order.step:
            spec: Spec = (
                order.bundle,
                action.module,
                action.name,
                action.code,
                order.place,
                tuple((output.name, str(output.type)) for output in order.step.outputs),
                tuple(given.name for given in order.step.inputs if given.type.name == "str"),
            )
            if len(self._by_step) > _MANY:
                self._by_step.clear()
                self._by_spec.clear()
                self._by_id.clear()
            same = self._by_spec.get(spec)
            self._specs += same is None
            known = Known(self._specs if same is None else same.number, order.step, spec)
            if same is not None:
                known.estimate = same.estimate
            self._by_spec[spec] = self._by_step[key] = self._by_id[id(order.step)] = known
        env = {name: as_text(value, self._context.blobs) for name, value in action.env.items()} if action.env else {}
        return Job(order, known, env)

    def _pump(self) -> None:
        """Gives out what waits, to whoever has the least to do."""
        if self._closing:
            return
        parcels: dict[Worker, list[tuple[int, Job]]] = {}
        while self._waiting:
            job = self._waiting[0]
            estimate = job.known.estimate
            able = [worker for worker in self._workers if not worker.stopping]
            worker = min(able, key=Worker.burden) if able else None
            if worker is None or (worker.jobs and not self._fits(worker, estimate)):
                if len(self._workers) >= self._context.jobs:
                    break
                worker = self._spawn()
            self._waiting.popleft()
            job.began = False
            parcels.setdefault(worker, []).append((worker.take(job), job))
            self._where[job.order.id] = worker
        for worker, jobs in parcels.items():
            self._hand_over(worker, jobs)
        if parcels and self._timer is None:
            self._timer = self._loop.call_later(PATIENCE, self._look)

    def _fits(self, worker: Worker, estimate: float) -> bool:
        return estimate < SHORT and worker.load + estimate < AHEAD and len(worker.jobs) < MOST

    def _hand_over(self, worker: Worker, jobs: list[tuple[int, Job]]) -> None:
        specs: dict[int, Spec] = {}
        work: list[Work] = []
        first = len(worker.jobs) == len(jobs)
        for number, job in jobs:
            if job.known.number not in worker.told:
                worker.told.add(job.known.number)
                specs[job.known.number] = job.known.spec
            work.append((number, job.known.number, job.order.inputs, job.env))
        worker.send((specs, work))
        worker.give_tickets([number for number, _ in jobs])
        if first:
            worker.since = self._loop.time()
            if worker.ready and jobs[0][1].known.estimate >= SHORT:
                self._began(worker, jobs[0][1])

    def _began(self, worker: Worker, job: Job) -> None:
        if not job.began:
            job.began = True
            log: tuple[LogPart, ...] = ((worker.log, worker.log_end, None),)
            self._context.inbox.put(Began(id=job.order.id, pid=worker.pid, log=log))

    def _look(self) -> None:
        """Now and then, while there is work: nobody waits behind a task that takes long."""
        self._timer = None
        now, busy, moved = self._loop.time(), False, False
        for worker in self._workers:
            if not worker.jobs:
                continue
            busy = True
            if worker.ready and now - worker.since >= PATIENCE:
                if len(worker.jobs) > 1:
                    moved = self._take_back(worker) or moved
                if worker.jobs:
                    self._began(worker, next(iter(worker.jobs.values())))
        if moved:
            self._pump()
        if busy and self._timer is None and not self._closing:
            self._timer = self._loop.call_later(PATIENCE, self._look)

    def _take_back(self, worker: Worker) -> bool:
        """What the worker has not begun waits again, in front."""
        jobs = worker.take_tickets()
        for job in reversed(jobs):
            self._where[job.order.id] = None
            self._waiting.appendleft(job)
        return bool(jobs)

    def _share(self) -> None:
        """Somebody is idle: half of what lies before the busiest is for them."""
        if self._waiting or not any(not worker.jobs and worker.ready for worker in self._workers):
            return
        # One that is still starting cannot have begun anything.
        busiest = max(self._workers, key=lambda worker: len(worker.jobs) + (bool(worker.jobs) and not worker.ready))
        if (len(busiest.jobs) > 1 or not busiest.ready) and self._take_back(busiest):
            self._pump()

    # -- workers ------------------------------------------------------------------------------------------------------

    def _spawn(self) -> Worker:
        self._count += 1
        worker = Worker(self._context, self._count, f"{self._logs}/worker-{self._count}.log")
        self._workers.append(worker)
        worker.watch = Watch(self._loop, worker.pid, lambda status: self._gone(worker, status))
        self._loop.add_reader(worker.socket.fileno(), self._readable, worker)
        return worker

    def _end(self, worker: Worker, grace: float) -> None:
        kill_group(worker.pid, signal.SIGTERM if grace > 0 else signal.SIGKILL)
        if grace > 0:
            assert worker.watch is not None
            worker.watch.until = self._loop.time() + grace
            self._loop.call_later(grace, lambda: None if worker.over else kill_group(worker.pid, signal.SIGKILL))

    def _readable(self, worker: Worker) -> None:
        reports = self._results(worker)
        if reports:
            self._context.inbox.put_all(reports)
            self._pump()
            if not worker.jobs:
                self._share()

    def _results(self, worker: Worker, all: bool = False) -> list[Report]:
        reports: list[Report] = []
        for message in worker.messages(all):
            if message is None:
                worker.ready = True
                self._failed_starts = 0
                worker.since = self._loop.time()
                if worker.jobs and next(iter(worker.jobs.values())).known.estimate >= SHORT:
                    self._began(worker, next(iter(worker.jobs.values())))
                continue
            number, seconds, log, told = message
            job = worker.jobs.pop(number, None)
            if job is None:
                continue
            worker.done(job)
            self._measure(job, seconds)
            del self._where[job.order.id]
            part: tuple[LogPart, ...] = ()
            if log is not None:
                part, worker.log_end = ((worker.log, log[0], log[1]),), log[1]
            reports.append(_ended(job.order.id, told, seconds, part))
        if reports:
            worker.since = self._loop.time()
        return reports

    def _measure(self, job: Job, seconds: float) -> None:
        known = job.known
        known.estimate = seconds if known.estimate == _UNKNOWN else known.estimate * 0.8 + seconds * 0.2
        self._average = seconds if self._average == _UNKNOWN else self._average * 0.9 + seconds * 0.1

    def _gone(self, worker: Worker, status: int) -> None:
        reports = self._results(worker, all=True)
        self._take_back(worker)
        self._loop.remove_reader(worker.socket.fileno())
        worker.close(self._loop)
        self._workers.remove(worker)
        code = os.waitstatus_to_exitcode(status)
        for job in worker.jobs.values():
            del self._where[job.order.id]
            reports.append(self._lost(worker, job, code))
        worker.jobs.clear()
        worker.tidy()
        if self._closing:
            return
        if not worker.ready and not worker.stopping:
            self._failed_starts += 1
            if self._failed_starts >= _STARTS:
                reports.extend(self._give_up(worker, code))
        self._context.inbox.put_all(reports)
        self._pump()

    def _lost(self, worker: Worker, job: Job, code: int) -> Ended:
        log: tuple[LogPart, ...] = ()
        with suppress(OSError):
            size = os.path.getsize(self._context.home / worker.log)
            log = ((worker.log, worker.log_end, size),) if size > worker.log_end else ()
        seconds = self._loop.time() - worker.since
        if worker.stopping:
            return Ended(id=job.order.id, outcome=Outcome.CANCELLED, message="stopped", log=log, seconds=seconds)
        if code >= 0:
            what = f"the function ended its process with exit code {code}"
            return Ended(
                id=job.order.id, outcome=Outcome.FAILED, exit_code=code, message=what, log=log, seconds=seconds
            )
        what = f"its worker process was ended by {signal_name(-code)}"
        if -code == signal.SIGKILL:
            what += ", perhaps because the machine is out of memory"
        return Ended(
            id=job.order.id, outcome=Outcome.ERRORED, exit_code=code, message=what, log=log, seconds=seconds, lost=True
        )

    def _give_up(self, worker: Worker, code: int) -> list[Ended]:
        """Python itself does not come up: trying for ever would only look like waiting."""
        self._failed_starts = 0
        why = worker.last_line or (f"exit code {code}" if code >= 0 else signal_name(-code))
        ended = [
            Ended(id=job.order.id, outcome=Outcome.ERRORED, message=f"worker processes do not start: {why}")
            for job in self._waiting
        ]
        for job in self._waiting:
            del self._where[job.order.id]
        self._waiting.clear()
        return ended


def _ended(id: str, told: Any, seconds: float, log: tuple[LogPart, ...]) -> Ended:
    if type(told) is dict:
        return Ended(id=id, outcome=Outcome.SUCCEEDED, outputs=told, seconds=seconds, log=log)
    outcome, _, exception, message, trace = told
    return Ended(
        id=id, outcome=Outcome(outcome), exception=exception, message=message, traceback=trace, seconds=seconds, log=log
    )


class Worker:
    """The engine's end of one process."""

    def __init__(self, context: Context, number: int, log: str) -> None:
        self.log = log
        self.log_path = context.home / log
        self.log_end = 0
        self.last_line = ""
        self.jobs: dict[int, Job] = {}
        """By ticket, in the order in which they were given."""
        self.load = 0.0
        self.told: set[int] = set()
        self.ready = self.stopping = self.over = False
        self.since = 0.0
        self.watch: Watch | None = None
        self._count = 0
        self._received = bytearray()
        self._unsent = bytearray()
        self._loop = asyncio.get_running_loop()
        started = claim(context.home, context.engine, log) or Started(
            context.home, context.engine, log, context.environ
        )
        self.socket, self._process = started.socket, started.process
        self._tickets_theirs, self._tickets_ours, self._life = (
            started.tickets_theirs,
            started.tickets_ours,
            started.life,
        )
        self.pid = self._process.pid
        os.set_blocking(self._tickets_theirs, False)  # for both sides: it is one and the same open pipe
        self.socket.setblocking(False)
        scratch = context.home / "work" / context.engine / f"worker-{number}"
        self.send({"blobs": context.blobs.root, "cache": str(context.home / "cache"), "scratch": str(scratch)})

    @property
    def used(self) -> bool:
        """Was it ever given anything?"""
        return self._count > 0

    def burden(self) -> tuple[float, bool]:
        return self.load, not self.ready

    # -- orders -------------------------------------------------------------------------------------------------------

    def take(self, job: Job) -> int:
        self._count += 1
        self.jobs[self._count] = job
        job.cost = job.known.estimate
        self.load += job.cost
        return self._count

    def done(self, job: Job) -> None:
        self.load = max(0.0, self.load - job.cost) if self.jobs else 0.0

    def give_tickets(self, numbers: list[int]) -> None:
        os.write(self._tickets_ours, b"".join(map(TICKET.pack, numbers)))

    def take_tickets(self) -> list[Job]:
        """The orders that it has not begun, which are no longer its own."""
        if not self.jobs:
            return []
        found = []
        with suppress(BlockingIOError):
            while data := os.read(self._tickets_theirs, TICKET.size):
                job = self.jobs.pop(TICKET.unpack(data)[0])
                found.append(job)
                self.done(job)
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
        except OSError:  # it is dying; its watch will tell
            self._unsent.clear()
        self._loop.remove_writer(self.socket.fileno())

    def messages(self, all: bool = False) -> list[Any]:
        with suppress(BlockingIOError, ConnectionError):
            while data := self.socket.recv(262144):
                self._received += data
                if len(data) < 262144 and not all:
                    break
            else:
                self._loop.remove_reader(self.socket.fileno())  # closed; the watch will tell why
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
        """No more orders: an idle worker ends by itself."""
        if self._tickets_ours >= 0:
            os.close(self._tickets_ours)
            self._tickets_ours = -1

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        self.over = True
        self._process.returncode = 0  # it has been waited for
        self.leave()
        loop.remove_writer(self.socket.fileno())
        self.socket.close()
        os.close(self._tickets_theirs)
        os.close(self._life)

    def tidy(self) -> None:
        """A log in which nobody wrote is no log."""
        with suppress(OSError):
            if not self.ready:
                lines = self.log_path.read_text(encoding="utf-8", errors="replace").split("\n")
                self.last_line = next((line.strip() for line in reversed(lines) if line.strip()), "")
            if self.log_path.stat().st_size == 0:
                self.log_path.unlink()
