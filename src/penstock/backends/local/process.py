"""Commands as processes of this machine: scripts without an image, commands of containers when the user wants them here, pods (see
pod), and functions with replicas (by function_main). Found by the registry; called by the engine.

A command starts in the folder that the run was started in, or in its step's workdir. Its files are in a folder of the attempt's
own, work/<run>/<task>.<attempt>/, which is made only if it is needed:

    script             the text of a script step, unless a shell can take it as a word
    out/NAME           outputs without a path; $PENSTOCK_OUTPUTS is the folder out
    root/data/x.csv    an input or output whose declared path is /data/x.csv; wherever the command names that path it gets
                       this one (see files); so do the folders that the step mounts (see mounts)

The folder is removed when the attempt has succeeded or was stopped. After a failure it stays, for inspection.

Every replica has its own process, log and folder (work/…/0, work/…/1). All must succeed; when one fails the others are stopped;
the outputs are those of replica 0. Each process leads a session: when it ends or is stopped, everything that it started and that
is still in its group ends with it; what has left its group, with setsid, ends with the attempt. The same holds for each part of a pod: the pod fails with the first part that fails, the
others are then stopped, and sidecars are stopped when all other parts have ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter

from penstock import rights
from penstock.backends.base import Abilities, AttemptEnded, AttemptSpec, AttemptStarted, BackendContext
from penstock.backends.local import command, process_results
from penstock.backends.local.files import is_heavy
from penstock.backends.local.orphans import EscapedProcesses
from penstock.backends.local.pacing import Pacing
from penstock.backends.local.pod import HostPod, PartCommand
from penstock.backends.local.process_attempt import HostProcess, ProcessAttempt
from penstock.backends.local.process_builder import ProcessBuilder
from penstock.backends.local.spawn import NotStarted, spawn
from penstock.backends.processes import ProcessWatch, kill_group
from penstock.backends.secrets.mask import needles_of
from penstock.backends.secrets.masked_log import MaskedLogs
from penstock.graph.model import Outcome, Part, Step

_GRACE = 2.0
"""Seconds in which the other replicas of a failed one may end by themselves, and sidecars that are not needed any more."""


class ProcessBackend:
    """A Backend."""

    def __init__(self, context: BackendContext) -> None:
        self.abilities = Abilities(
            room_for=self.room_for, is_ahead=self.is_ahead, reports_start=True, masks_secrets=True
        )
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._home = str(context.home)
        self._builder = ProcessBuilder(context)
        self._pacing = Pacing(context.jobs)
        self._attempts: dict[str, ProcessAttempt] = {}
        self._queue: deque[ProcessAttempt] = deque()
        """Attempts that start as soon as another ends."""
        self._busy = 0
        self._running: set[int] = set()
        """The numbers of the processes that were started here and have not ended."""
        self._threads: ThreadPoolExecutor | None = None
        self._folders: set[str] = set()
        """Folders that were made, and may be empty at the end."""
        self._closing = False
        self._attempt_over = asyncio.Event()

    # -- what the engine calls ----------------------------------------------------------------------------------------

    def room(self) -> int:
        return max(0, self._pacing.room() - len(self._attempts))

    def room_for(self, step: Step) -> int:
        return max(0, self._pacing.room_for(step.action) - len(self._attempts))

    def is_ahead(self) -> bool:
        """Is enough queued to keep all processors busy for a moment?"""
        return len(self._queue) > self._context.jobs

    def start(self, specs: Sequence[AttemptSpec]) -> None:
        for spec in specs:
            attempt = self._attempts[spec.id] = ProcessAttempt(spec)
            self._queue.append(attempt)
        self._next()
        for attempt in self._queue:
            if not attempt.processes and not attempt.error and command.is_plain(attempt.spec):
                self._builder.build(attempt)  # when another ends, only the process is left to start

    def stop(self, id: str, grace: float) -> None:
        attempt = self._attempts.get(id)
        if attempt is None:
            return
        attempt.stopped = True
        if attempt in self._queue:
            self._queue.remove(attempt)
            self._busy += 1
            self._ended(attempt)
        else:
            self._end(attempt.processes, grace)
            if grace > 0:
                self._runaways(attempt).ask()

    async def close(self) -> None:
        self._closing = True
        for attempt in self._queue:
            del self._attempts[attempt.spec.id]
        self._queue.clear()
        for attempt in self._attempts.values():
            attempt.stopped = True
            self._end(attempt.processes, 1.0)
        while self._attempts:
            self._attempt_over.clear()
            await self._attempt_over.wait()
        if self._threads is not None:
            self._threads.shutdown()
        for folder in self._folders:
            with suppress(OSError):
                os.rmdir(folder)  # if it is empty

    # -- one attempt, from start to end -------------------------------------------------------------------------------

    def _next(self) -> None:
        while self._queue and self._busy < self._context.jobs:
            self._busy += 1
            self._begin(self._queue.popleft())

    def _begin(self, attempt: ProcessAttempt) -> None:
        if attempt.processes or attempt.error:
            self._launch(attempt)
            return
        self._aside(is_heavy(attempt.spec), lambda: self._builder.build(attempt), lambda: self._launch(attempt))

    def _aside(self, heavy: bool, work: Callable[[], object], then: Callable[[], None]) -> None:
        """Copying and hashing files takes time in which the engine has other tasks. Small work is done faster than handed over."""
        if not heavy:
            work()
            then()
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(max(2, self._context.jobs), "files")
        self._loop.run_in_executor(self._threads, work).add_done_callback(lambda _: then())

    def _launch(self, attempt: ProcessAttempt) -> None:
        attempt.started = perf_counter()
        if not attempt.error and not attempt.stopped:
            try:
                for process in attempt.processes:
                    self._spawn(attempt, process)
            except (NotStarted, OSError) as error:
                attempt.error = str(error)
                self._end(attempt.processes, 0.0)
            self._start_parts(attempt)
        if not any(process.runs for process in attempt.processes):
            self._ended(attempt)
            return
        if not attempt.error:
            log = tuple((name, 0, None) for name in attempt.log_names)
            self._context.inbox.put(AttemptStarted(id=attempt.spec.id, pid=attempt.processes[0].pid, log=log))

    def _spawn(self, attempt: ProcessAttempt, process: HostProcess) -> None:
        folder = f"{self._home}/{os.path.dirname(process.err)}"
        if folder not in self._folders or not os.path.isdir(folder):
            rights.make_folder(folder)
            self._folders.add(folder)
        out, err = f"{self._home}/{process.out}", f"{self._home}/{process.err}"
        with suppress(OSError):
            os.unlink(process.error)  # left by the same attempt before a crash
        if attempt.spec.secrets:
            process.logs = MaskedLogs(self._loop, needles_of(attempt.spec.secrets.values()))
        writes = process.files.own if process.guarded else ()
        process.pid = spawn(process.words, process.env, process.start, out, err, process.logs, writes)
        self._running.add(process.pid)
        process.watch = ProcessWatch(self._loop, process.pid, lambda status: self._gone(attempt, process, status))

    def _end(self, processes: Iterable[HostProcess], grace: float) -> None:
        """Asks first, kills after `grace` seconds."""
        running = [process for process in processes if process.runs]
        for process in running:
            if process.watch is not None:
                process.watch.until = self._loop.time() + grace
            kill_group(process.pid, signal.SIGTERM if grace > 0 else signal.SIGKILL)
        if running and grace > 0:
            self._loop.call_later(grace, self._kill, running)

    def _kill(self, processes: list[HostProcess]) -> None:
        for process in processes:
            if process.code is None:
                kill_group(process.pid, signal.SIGKILL)

    def _gone(self, attempt: ProcessAttempt, process: HostProcess, status: int) -> None:
        process.code = os.waitstatus_to_exitcode(status)
        self._running.discard(process.pid)
        if process.logs is not None:
            process.logs.close()
        if process.pod is not None and process.part is not None:
            self._part_gone(attempt, process.pod, process.part, process)
        elif process.code != 0 and attempt.failed is None:
            attempt.failed = process
            self._end(attempt.processes, _GRACE)
        if not any(one.runs for one in attempt.processes):
            self._ended(attempt)

    def _runaways(self, attempt: ProcessAttempt) -> EscapedProcesses:
        since = min((one.pid for one in attempt.processes if one.pid), default=0)
        return EscapedProcesses(
            since,
            {"PENSTOCK_ATTEMPT": attempt.spec.id, "PENSTOCK_ENGINE": self._context.engine, "PENSTOCK_HOME": self._home},
            self._running,
            logs=[f"{self._home}/{log}" for one in attempt.processes for log in {one.out, one.err}],
        )

    def _ended(self, attempt: ProcessAttempt) -> None:
        runaways = self._runaways(attempt) if any(one.pid for one in attempt.processes) else None
        if runaways is not None and runaways.find():
            self._aside(True, runaways.end, lambda: self._over(attempt))
        else:
            self._over(attempt)

    def _over(self, attempt: ProcessAttempt) -> None:
        """Nothing of it runs any more."""
        seconds = perf_counter() - attempt.started if attempt.started else 0.0
        self._busy -= 1
        if attempt.started:
            self._pacing.measure(attempt.spec.step.action, seconds)
        self._next()
        ended = AttemptEnded(id=attempt.spec.id, outcome=Outcome.SUCCEEDED, seconds=seconds, cpu=attempt.cpu)

        succeeded = not attempt.ending

        def fill() -> None:
            if not attempt.error:
                process_results.fill(attempt, ended, self._context.blobs, succeeded, self._home)

        heavy = not attempt.error and not attempt.stopped and process_results.has_large_files(attempt)
        self._aside(heavy, fill, lambda: self._report(attempt, ended))

    def _report(self, attempt: ProcessAttempt, ended: AttemptEnded) -> None:
        if attempt.stopped:
            ended.outcome, ended.outputs, ended.message = Outcome.CANCELLED, {}, "stopped"
        elif attempt.error:
            ended.outcome, ended.message = Outcome.ERRORED, attempt.error
        ended.log = process_results.close_logs(attempt, self._home)
        above = process_results.remove_files(attempt, ended, self._context)
        if above:
            self._folders.add(above)
        del self._attempts[ended.id]
        self._attempt_over.set()
        if not self._closing:
            self._context.inbox.put(ended)

    # -- the parts of a pod -------------------------------------------------------------------------------------------

    def _start_parts(self, attempt: ProcessAttempt) -> None:
        """Starts the parts of its pods that may run now, and stops the sidecars of pods that are over."""
        for pod in attempt.pods:
            if attempt.ending:
                return
            sequence, name = pod.progress.sequence, ""
            try:
                for ready in pod.next():
                    name = ready.part.name
                    self._start_part(attempt, pod, ready)
            except Exception as error:  # no such command, a full disk, a value that has no form as text
                message = str(error) or type(error).__name__
                several = isinstance(error, NotStarted) and len(sequence.parts) > 1
                attempt.error = f"part {name}: {message}" if several else message
                self._end(attempt.processes, 0.0)
            else:
                if sequence.failure is not None:
                    attempt.failed_pod = pod
                    self._end(attempt.processes, _GRACE)
                elif sequence.over:
                    self._end((one for one in attempt.processes if one.pod is pod), _GRACE)

    def _start_part(self, attempt: ProcessAttempt, pod: HostPod, ready: PartCommand) -> None:
        process = HostProcess(
            pod.number, pod.files, ready.words, ready.env, ready.out, ready.err, ready.folder, pod, ready.part
        )
        process.guarded = self._builder.is_guarded(attempt.spec)
        attempt.processes.append(process)
        self._spawn(attempt, process)
        if ready.part.timeout is not None:
            process.timer = self._loop.call_later(ready.part.timeout, self._time_out, process)

    def _time_out(self, process: HostProcess) -> None:
        if process.runs:
            process.timed_out = True
            self._end([process], _GRACE)

    def _part_gone(self, attempt: ProcessAttempt, pod: HostPod, part: Part, process: HostProcess) -> None:
        assert process.code is not None
        if process.timer is not None:
            process.timer.cancel()
        try:
            pod.progress.ended(part.name, process.code, process.timed_out)
        except OSError as error:
            attempt.error = attempt.error or str(error)
            self._end(attempt.processes, 0.0)
        self._start_parts(attempt)
