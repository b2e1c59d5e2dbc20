"""Function steps in warm Python processes on this machine. Found by the registry; called by the engine.

Processes are spawned, not forked (the engine has threads and open sockets), and kept, so that a module is imported once. Each
leads its own session: stopping a task ends everything that it started, also what has left the session. What a function leaves running when
it returns ends then, if it has left the session (see started), otherwise with its worker, at the latest with the engine.

Short tasks are handed over several at a time, as many as a worker is expected to finish in a few milliseconds. Every job has a
ticket in the worker's pipe; whoever reads the ticket has the job. When a worker is idle, or a task takes longer than
expected, the engine reads the tickets of the jobs behind it and gives them to other workers (see worker_main).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock import rights
from penstock.artifacts.values import as_text
from penstock.backends.base import (
    Abilities,
    AttemptEnded,
    AttemptSpec,
    AttemptStarted,
    BackendContext,
    LogPart,
    TakenFiles,
)
from penstock.backends.local.function_table import FunctionTable
from penstock.backends.local.worker_process import WorkerJob, WorkerProcess
from penstock.backends.local.worker_protocol import FunctionSpec, WorkerCall
from penstock.backends.own_error import outcome_of
from penstock.backends.processes import ProcessWatch, kill_group, signal_name
from penstock.graph.model import Function, Outcome, Step

SHORT = 0.002
"""Seconds. Tasks that take less are handed over several at a time …"""
AHEAD = 0.005
"""… so many that they are done in about this time, …"""
MOST = 64
"""… but no more than this."""
PATIENCE = 0.02
"""Seconds after which a running task is reported as started, and the jobs behind it are taken back."""
_STARTS = 3
"""So many workers may fail to start, one after the other, before their jobs are given up."""


class WorkersBackend:
    """A Backend."""

    def __init__(self, context: BackendContext) -> None:
        self.abilities = Abilities(room_for=self.room_for)
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._functions = FunctionTable()
        self._workers: list[WorkerProcess] = []
        self._waiting: deque[WorkerJob] = deque()
        self._where: dict[str, WorkerProcess | None] = {}
        """Attempt id -> the worker that has it; None: it waits."""
        self._count = 0
        self._failed_starts = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._logs = f"logs/{context.engine}"
        rights.make_folder(context.home / self._logs)
        self._spawn()

    # -- what the engine calls ----------------------------------------------------------------------------------------

    def room(self) -> int:
        average = self._functions.average
        depth = 1 if average >= SHORT else min(MOST, max(1, int(2 * AHEAD / (average + 0.00005))))
        return max(0, self._context.jobs * depth - len(self._where))

    def room_for(self, step: Step) -> int:
        """More of what is known to be short; of anything else, as many as there are idle workers."""
        if self._functions.estimate(step) < SHORT:
            return self.room()
        return max(0, self._context.jobs - len(self._where))

    def start(self, specs: Sequence[AttemptSpec]) -> None:
        for spec in specs:
            try:
                job = self._job(spec)
            except Exception as error:
                self._context.inbox.put(AttemptEnded(id=spec.id, outcome=Outcome.ERRORED, message=str(error)))
                continue
            self._where[spec.id] = None
            self._waiting.append(job)
        self._pump()

    def stop(self, id: str, grace: float) -> None:
        if id not in self._where:
            return
        worker = self._where[id]
        if worker is not None:
            self._take_back(worker)  # now the attempt either waits or runs
            worker = self._where[id]
        if worker is None:
            self._waiting = deque(job for job in self._waiting if job.spec.id != id)
            del self._where[id]
            self._context.inbox.put(AttemptEnded(id=id, outcome=Outcome.CANCELLED, message="stopped before it began"))
        elif not worker.stopping:
            worker.stopping = True
            self._end(worker, grace)
        elif grace <= 0:
            self._kill(worker)
        self._pump()

    async def close(self) -> None:
        """Idle workers end by themselves; busy ones are asked to, and killed after a second."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        for worker in list(self._workers):
            if worker.jobs or not worker.ready or not worker.used:
                if worker.jobs:
                    worker.runaways.find()
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
            _remove_empty(self._context.home / folder)

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def _job(self, spec: AttemptSpec) -> WorkerJob:
        action = spec.action
        assert isinstance(action, Function)
        env = {name: as_text(value, self._context.blobs) for name, value in action.env.items()} if action.env else {}
        return WorkerJob(spec, self._functions.of(spec), env)

    def _pump(self) -> None:
        """Hands over what waits, each job to the worker with the least to do."""
        if self._closing:
            return
        parcels: dict[WorkerProcess, list[tuple[int, WorkerJob]]] = {}
        while self._waiting:
            job = self._waiting[0]
            able = [worker for worker in self._workers if not worker.stopping]
            worker = min(able, key=WorkerProcess.burden) if able else None
            if worker is None or (worker.jobs and not _fits(worker, job.known.estimate)):
                if len(self._workers) >= self._context.jobs:
                    break
                worker = self._spawn()
            self._waiting.popleft()
            job.reported = False
            parcels.setdefault(worker, []).append((worker.add(job), job))
            self._where[job.spec.id] = worker
        for worker, jobs in parcels.items():
            self._hand_over(worker, jobs)
        if parcels and self._timer is None:
            self._timer = self._loop.call_later(PATIENCE, self._look)

    def _hand_over(self, worker: WorkerProcess, jobs: list[tuple[int, WorkerJob]]) -> None:
        functions: dict[int, FunctionSpec] = {}
        calls: list[WorkerCall] = []
        first = len(worker.jobs) == len(jobs)
        for ticket, job in jobs:
            known = job.known
            if known.number not in worker.functions:
                worker.functions.add(known.number)
                functions[known.number] = known.function
            calls.append((ticket, known.number, job.spec.inputs, job.env))
        worker.send((functions, calls))
        worker.give_tickets([ticket for ticket, _ in jobs])
        if first:
            worker.since = self._loop.time()
            if worker.ready and jobs[0][1].known.estimate >= SHORT:
                self._report_start(worker, jobs[0][1])

    def _report_start(self, worker: WorkerProcess, job: WorkerJob) -> None:
        if not job.reported:
            job.reported = True
            log: tuple[LogPart, ...] = ((worker.log, worker.log_end, None),)
            self._context.inbox.put(AttemptStarted(id=job.spec.id, pid=worker.pid, log=log))

    def _look(self) -> None:
        """Called now and then while there is work: takes back the jobs behind a task that takes long."""
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
                    self._report_start(worker, next(iter(worker.jobs.values())))
        if moved:
            self._pump()
        if busy and self._timer is None and not self._closing:
            self._timer = self._loop.call_later(PATIENCE, self._look)

    def _take_back(self, worker: WorkerProcess) -> bool:
        """The jobs that the worker has not begun wait again, in front."""
        jobs = worker.take_back()
        for job in reversed(jobs):
            self._where[job.spec.id] = None
            self._waiting.appendleft(job)
        return bool(jobs)

    def _share(self) -> None:
        """If a worker is idle, the jobs of the busiest one are handed over again."""
        if self._waiting or not any(not worker.jobs and worker.ready for worker in self._workers):
            return
        # A worker that is still starting cannot have begun anything.
        busiest = max(self._workers, key=lambda worker: len(worker.jobs) + (bool(worker.jobs) and not worker.ready))
        if (len(busiest.jobs) > 1 or not busiest.ready) and self._take_back(busiest):
            self._pump()

    # -- workers ------------------------------------------------------------------------------------------------------

    def _spawn(self) -> WorkerProcess:
        self._count += 1
        worker = WorkerProcess(self._context, self._count, f"{self._logs}/worker-{self._count}.log")
        self._workers.append(worker)
        worker.watch = ProcessWatch(self._loop, worker.pid, lambda status: self._gone(worker, status))
        self._loop.add_reader(worker.socket.fileno(), self._readable, worker)
        return worker

    def _end(self, worker: WorkerProcess, grace: float) -> None:
        if grace <= 0:
            self._kill(worker)
            return
        assert worker.watch is not None
        worker.watch.until = self._loop.time() + grace
        worker.runaways.ask()
        kill_group(worker.pid, signal.SIGTERM)
        self._loop.call_later(grace, lambda: None if worker.over else self._kill(worker))

    def _kill(self, worker: WorkerProcess) -> None:
        worker.runaways.find()  # those that only lead back to the worker are seen while it lives
        kill_group(worker.pid, signal.SIGKILL)

    def _readable(self, worker: WorkerProcess) -> None:
        reports = self._results(worker)
        if reports:
            self._context.inbox.put_all(reports)
            self._pump()
            if not worker.jobs:
                self._share()

    def _results(self, worker: WorkerProcess, all: bool = False) -> list[AttemptEnded]:
        reports: list[AttemptEnded] = []
        for message in worker.messages(all):
            if message is None:
                worker.ready = True
                self._failed_starts = 0
                worker.since = self._loop.time()
                if worker.jobs and next(iter(worker.jobs.values())).known.estimate >= SHORT:
                    self._report_start(worker, next(iter(worker.jobs.values())))
                continue
            ticket, seconds, cpu, log, result, taken = message
            job = worker.jobs.pop(ticket, None)
            if job is None:
                continue
            worker.forget(job)
            self._functions.measure(job.known, seconds)
            del self._where[job.spec.id]
            part: tuple[LogPart, ...] = ()
            if log is not None:
                part, worker.log_end = ((worker.log, log[0], log[1]),), log[1]
            reports.append(_ended(job.spec.id, result, seconds, part))
            reports[-1].cpu = cpu
            if taken is not None:
                reports[-1].taken = TakenFiles(*taken)
        if reports:
            worker.since = self._loop.time()
        return reports

    def _gone(self, worker: WorkerProcess, status: int) -> None:
        reports = self._results(worker, all=True)
        self._take_back(worker)
        worker.close()
        worker.runaways.end()
        self._workers.remove(worker)
        code = os.waitstatus_to_exitcode(status)
        for job in worker.jobs.values():
            del self._where[job.spec.id]
            reports.append(self._lost(worker, job, code))
        worker.jobs.clear()
        worker.close_log()
        if self._closing:
            return
        if not worker.ready and not worker.stopping:
            self._failed_starts += 1
            if self._failed_starts >= _STARTS:
                reports.extend(self._give_up(worker, code))
        self._context.inbox.put_all(reports)
        self._pump()

    def _lost(self, worker: WorkerProcess, job: WorkerJob, code: int) -> AttemptEnded:
        """The worker has ended while it ran this job."""
        ended = AttemptEnded(id=job.spec.id, outcome=Outcome.CANCELLED, message="stopped")
        ended.seconds = self._loop.time() - worker.since
        with suppress(OSError):
            size = os.path.getsize(self._context.home / worker.log)
            ended.log = ((worker.log, worker.log_end, size),) if size > worker.log_end else ()
        if worker.stopping:
            return ended
        ended.exit_code = code
        if code >= 0:
            ended.outcome, ended.message = Outcome.FAILED, f"the function ended its process with exit code {code}"
            return ended
        ended.outcome, ended.lost = Outcome.ERRORED, True
        ended.message = f"its worker process was ended by {signal_name(-code)}"
        if -code == signal.SIGKILL:
            ended.message += ", perhaps because the machine is out of memory"
        return ended

    def _give_up(self, worker: WorkerProcess, code: int) -> list[AttemptEnded]:
        """Python itself does not start: trying again would never end."""
        self._failed_starts = 0
        why = worker.last_line or (f"exit code {code}" if code >= 0 else signal_name(-code))
        ended = [
            AttemptEnded(id=job.spec.id, outcome=Outcome.ERRORED, message=f"worker processes do not start: {why}")
            for job in self._waiting
        ]
        for job in self._waiting:
            del self._where[job.spec.id]
        self._waiting.clear()
        return ended


def _fits(worker: WorkerProcess, estimate: float) -> bool:
    """May the job wait behind the others of the worker?"""
    return estimate < SHORT and worker.load + estimate < AHEAD and len(worker.jobs) < MOST


def _ended(id: str, result: Any, seconds: float, log: tuple[LogPart, ...]) -> AttemptEnded:
    if type(result) is dict:
        return AttemptEnded(id=id, outcome=Outcome.SUCCEEDED, outputs=result, seconds=seconds, log=log)
    outcome, _, exception, message, trace = result
    found, invalid = outcome_of(outcome)
    return AttemptEnded(
        id=id,
        outcome=found,
        exception=exception,
        message=message,
        traceback=trace,
        invalid=invalid,
        seconds=seconds,
        log=log,
    )


def _remove_empty(folder: Path) -> None:
    for inner in (*folder.glob("*/"), folder):
        with suppress(OSError):
            os.rmdir(inner)
