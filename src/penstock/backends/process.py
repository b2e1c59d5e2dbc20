"""Commands as processes of this machine: scripts without an image, containers' commands when the user wants them here, pods
(see pod), and functions with replicas (by backends.call). Found by its entry point; called by engine.loop.

A command starts in the folder that the run was started in, or in its step's workdir. Its files lie in a folder of the
attempt's own, work/<run>/<task>.<attempt>/, which is made only if there is something to put there:

    script             the text of a script step, unless a shell can take it as a word
    out/NAME           outputs without a path; $PENSTOCK_OUTPUTS is the folder out
    root/data/x.csv    an input or output whose declared path is /data/x.csv; wherever the command names that path it gets
                       this one (see command); so do the folders that the step mounts (see mounts)

The folder goes when the attempt has succeeded or was stopped; after a failure it stays, to be looked at.

Every replica has a process, a log and a folder of its own (work/…/0, work/…/1). All must succeed; when one fails the rest are
stopped; the outputs are those of replica 0. Each process leads a session: when it ends, or is stopped, everything that it
started and that did not leave its group ends with it. So it is with each part of a pod: the pod fails with the first part that
does, the others are then stopped, and the sidecars are stopped when all others have ended.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from penstock.backends import call, command, places, shims
from penstock.backends.base import Began, Context, Ended, LogPart, Order
from penstock.backends.command import STDOUT, Files
from penstock.backends.pod import HostPod, Start
from penstock.backends.spawn import NotStarted, spawn
from penstock.backends.watch import Watch, kill_group, signal_name
from penstock.graph.model import Action, Container, Function, Outcome, Part, Pod, Script, Step

_LARGE = 1_000_000
_SHORT = 0.02
"""Seconds. While commands take less, some are kept at hand …"""
_AHEAD = 0.01
"""… enough for about this long, …"""
_MOST = 16
"""… but no more than this for each processor."""
_REST = 2.0
"""Seconds that the replicas of a failed one have to end by themselves, and sidecars when nobody needs them any more."""


@dataclass(slots=True, eq=False)
class Replica:
    """One process of an attempt: a replica of a command, or a part of a replica of a pod."""

    number: int
    files: Files
    words: list[str]
    env: dict[str, str]
    out: str
    err: str
    """Logs, below the home; the same unless an output is what is printed."""
    pid: int = 0
    watch: Watch | None = None
    code: int | None = None
    """Exit code, or minus the signal's number; None while it runs."""
    start: str = ""
    """The folder it starts in; empty: where the engine is."""
    pod: HostPod | None = None
    part: Part | None = None
    timer: asyncio.TimerHandle | None = None
    timed_out: bool = False

    @property
    def runs(self) -> bool:
        return self.watch is not None and self.code is None


@dataclass(slots=True, eq=False)
class Attempt:
    order: Order
    replicas: list[Replica] = field(default_factory=list)
    """Of a pod: its parts, as they are started."""
    pods: list[HostPod] = field(default_factory=list)
    started: float = 0.0
    stopped: bool = False
    failed: Replica | None = None
    """The first that did."""
    broken: HostPod | None = None
    """The first whose part did."""
    error: str = ""
    """Why it could not be run."""

    @property
    def files(self) -> Files:
        """Those that outputs are read from."""
        return self.pods[0].files if self.pods else self.replicas[0].files

    @property
    def ending(self) -> bool:
        """Is nothing more of it to be started?"""
        return bool(self.stopped or self.error or self.failed or self.broken)


class Process:
    """A Backend."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._attempts: dict[str, Attempt] = {}
        self._environ = {
            **(context.environ or os.environ), "PENSTOCK_ENGINE": context.engine, "PENSTOCK_HOME": str(context.home),
        }  # fmt: skip
        self._home = str(context.home)
        self._queue: deque[Attempt] = deque()
        """At hand for the moment at which another ends, so that no processor waits while that is written down."""
        self._busy = 0
        self._average = 1.0
        self._averages: dict[Any, float] = {}
        """Seconds that a command took lately, by what it is."""
        self._plain: dict[str, Files] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._folders: set[str] = set()
        self._closing = False
        self._empty = asyncio.Event()

    # -- what the engine calls ----------------------------------------------------------------------------------------

    tells_start = True
    """Began comes when the process is there, which may be a moment after `start`."""

    def room(self) -> int:
        ahead = self._context.jobs * min(_MOST, int(_AHEAD / (self._average + 0.0001))) if self._average < _SHORT else 0
        return max(0, self._context.jobs + ahead - len(self._attempts))

    def room_for(self, step: Step) -> int:
        """More of what is known to be short; of anything else, as many as may run."""
        if self._averages.get(_alike(step.action), 1.0) < _SHORT:
            return self.room()
        return max(0, self._context.jobs - len(self._attempts))

    def is_ahead(self) -> bool:
        """Is there enough at hand to keep all processors busy for a moment?"""
        return len(self._queue) > self._context.jobs

    def start(self, orders: Sequence[Order]) -> None:
        for order in orders:
            attempt = self._attempts[order.id] = Attempt(order)
            self._queue.append(attempt)
        self._next()
        for attempt in self._queue:
            if not attempt.replicas and not attempt.error and command.is_plain(attempt.order):
                self._prepare(attempt)  # so that at the end of another only the process is to be started

    def _next(self) -> None:
        while self._queue and self._busy < self._context.jobs:
            self._busy += 1
            self._begin(self._queue.popleft())

    def _begin(self, attempt: Attempt) -> None:
        if attempt.replicas or attempt.error:
            self._launch(attempt)
            return
        self._aside(command.is_heavy(attempt.order), lambda: self._prepare(attempt), lambda: self._launch(attempt))

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
            self._end(attempt, grace)

    async def close(self) -> None:
        self._closing = True
        for attempt in self._queue:
            del self._attempts[attempt.order.id]
        self._queue.clear()
        for attempt in self._attempts.values():
            attempt.stopped = True
            self._end(attempt, 1.0)
        while self._attempts:
            self._empty.clear()
            await self._empty.wait()
        if self._threads is not None:
            self._threads.shutdown()
        for folder in self._folders:
            with suppress(OSError):
                os.rmdir(folder)  # those in which nothing was left

    # -- one attempt, from beginning to end ---------------------------------------------------------------------------

    def _aside(self, heavy: bool, work: Callable[[], None], then: Callable[[], None]) -> None:
        """Copying and hashing files takes its time, and the engine has other tasks; small work is sooner done than handed over."""
        if not heavy:
            work()
            then()
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(max(2, self._context.jobs), "files")
        self._loop.run_in_executor(self._threads, work).add_done_callback(lambda _: then())

    def _prepare(self, attempt: Attempt) -> None:
        """Perhaps in another thread."""
        try:
            for number in range(max(1, attempt.order.step.replicas)):
                if isinstance(attempt.order.action, Pod):
                    attempt.pods.append(HostPod(attempt.order, number, self._context, self._environ))
                else:
                    attempt.replicas.append(self._replica(attempt.order, number))
        except Exception as error:  # a blob that is gone, a full disk, a value that has no form as text
            attempt.error = str(error) or type(error).__name__

    def _replica(self, order: Order, number: int) -> Replica:
        context = self._context
        if command.is_plain(order):
            return self._plain_replica(order)
        order = command.for_replica(order, number)
        suffix = f"{number}.log" if number else "log"
        err = out = places.log_name(order, suffix)
        if any(output.path == STDOUT for output in order.step.outputs):
            out = places.log_name(order, suffix.replace("log", "out"))
            (context.home / out).unlink(
                missing_ok=True
            )  # of the same attempt, before a crash: not part of what is given
        folder = command.replica_folder(context, order, number)
        files = command.lay_files(order, folder, context, context.home / out)
        if isinstance(order.action, Function):
            call.write_order(order, folder, context.blobs.root, str(context.home / "cache"))
        words = command.words_of(order, files, context.blobs)
        env = self._environ | command.penstock_env(order, context, number, str(files.out))
        for name, value in command.step_env(order.action, context.blobs).items():
            env[name] = files.relocate(value)
        self._for_image(order.action, env)
        return Replica(number, files, words, env, out, err, start=files.start)

    def _plain_replica(self, order: Order) -> Replica:
        """A command that reads and leaves no files, as most do: nothing is made for it."""
        start = command.start_folder(order)
        files = self._plain.get(start)
        if files is None:
            files = self._plain[start] = Files(self._context.home / "work", start=start)
        name = places.attempt_name(order)
        run = places.mangled(order.run)
        log = f"logs/{run}/{name}.log"
        words = command.words_of(order, files, self._context.blobs)
        env = self._environ | command.penstock_env(order, self._context, 0, f"{self._home}/work/{run}/{name}/out")
        env |= command.step_env(order.action, self._context.blobs)
        self._for_image(order.action, env)
        return Replica(0, files, words, env, log, log, start=start)

    def _for_image(self, action: Action, env: dict[str, str]) -> None:
        if isinstance(action, Container | Script) and action.image is not None:
            env["PATH"] = shims.with_shims(env.get("PATH", os.defpath), self._context.home)

    def _launch(self, attempt: Attempt) -> None:
        attempt.started = perf_counter()
        if not attempt.error and not attempt.stopped:
            try:
                for replica in attempt.replicas:
                    self._spawn(attempt, replica)
            except (NotStarted, OSError) as error:
                attempt.error = str(error)
                self._end(attempt, 0.0)
            self._turn(attempt)
        if not any(replica.runs for replica in attempt.replicas):
            self._ended(attempt)
            return
        if not attempt.error:
            log: tuple[LogPart, ...] = tuple((name, 0, None) for name in _logs(attempt))
            self._context.inbox.put(Began(id=attempt.order.id, pid=attempt.replicas[0].pid, log=log))

    def _turn(self, attempt: Attempt) -> None:
        """Starts the parts of its pods whose turn has come, and stops the sidecars of those that are done."""
        for pod in attempt.pods:
            if attempt.ending:
                return
            name = ""
            try:
                for start in pod.next():
                    name = start.part.name
                    self._start_part(attempt, pod, start)
            except Exception as error:  # no such command, a full disk, a value that has no form as text
                said = str(error) or type(error).__name__
                several = isinstance(error, NotStarted) and len(pod.turns.parts) > 1
                attempt.error = f"part {name}: {said}" if several else said
                self._end(attempt, 0.0)
            else:
                if pod.turns.failure is not None:
                    attempt.broken = pod
                    self._end(attempt, _REST)
                elif pod.turns.over:
                    self._end_these((one for one in attempt.replicas if one.pod is pod), _REST)

    def _start_part(self, attempt: Attempt, pod: HostPod, start: Start) -> None:
        replica = Replica(
            pod.number, pod.files, start.words, start.env, start.out, start.err, start=start.folder, pod=pod, part=start.part
        )  # fmt: skip
        attempt.replicas.append(replica)
        self._spawn(attempt, replica)
        if start.part.timeout is not None:
            replica.timer = self._loop.call_later(start.part.timeout, self._time_out, replica)

    def _time_out(self, replica: Replica) -> None:
        if replica.runs:
            replica.timed_out = True
            self._end_these([replica], _REST)

    def _spawn(self, attempt: Attempt, replica: Replica) -> None:
        folder = f"{self._home}/{os.path.dirname(replica.err)}"
        if folder not in self._folders or not os.path.isdir(folder):
            os.makedirs(folder, exist_ok=True)
            self._folders.add(folder)
        out, err = f"{self._home}/{replica.out}", f"{self._home}/{replica.err}"
        replica.pid = spawn(replica.words, replica.env, replica.start, out, err)
        replica.watch = Watch(self._loop, replica.pid, lambda status: self._gone(attempt, replica, status))

    def _end(self, attempt: Attempt, grace: float) -> None:
        self._end_these(attempt.replicas, grace)

    def _end_these(self, replicas: Iterable[Replica], grace: float) -> None:
        """Asked first, made to after `grace` seconds."""
        running = [replica for replica in replicas if replica.runs]
        for replica in running:
            if replica.watch is not None:
                replica.watch.until = self._loop.time() + grace
            kill_group(replica.pid, signal.SIGTERM if grace > 0 else signal.SIGKILL)
        if running and grace > 0:
            self._loop.call_later(grace, self._kill, running)

    def _kill(self, replicas: list[Replica]) -> None:
        for replica in replicas:
            if replica.code is None:
                kill_group(replica.pid, signal.SIGKILL)

    def _part_gone(self, attempt: Attempt, pod: HostPod, part: Part, replica: Replica) -> None:
        assert replica.code is not None
        if replica.timer is not None:
            replica.timer.cancel()
        try:
            pod.ended(part.name, replica.code, replica.timed_out)
        except OSError as error:
            attempt.error = attempt.error or str(error)
            self._end(attempt, 0.0)
        self._turn(attempt)

    def _gone(self, attempt: Attempt, replica: Replica, status: int) -> None:
        replica.code = os.waitstatus_to_exitcode(status)
        if replica.pod is not None and replica.part is not None:
            self._part_gone(attempt, replica.pod, replica.part, replica)
        elif replica.code != 0 and attempt.failed is None:
            attempt.failed = replica
            self._end(attempt, _REST)
        if not any(one.runs for one in attempt.replicas):
            self._ended(attempt)

    def _ended(self, attempt: Attempt) -> None:
        seconds = perf_counter() - attempt.started if attempt.started else 0.0
        self._busy -= 1
        if attempt.started:
            self._measure(attempt, seconds)
        self._next()
        ended = Ended(id=attempt.order.id, outcome=Outcome.SUCCEEDED, seconds=seconds)
        done = not attempt.ending

        def collect() -> None:
            if done:
                self._collect(attempt, ended)
            elif attempt.broken is not None and not attempt.error:
                self._explain_pod(attempt, attempt.broken, ended)
            elif attempt.failed is not None and not attempt.error:
                self._explain(attempt, attempt.failed, ended)

        def tell() -> None:
            if attempt.stopped:
                ended.outcome, ended.outputs, ended.message = Outcome.CANCELLED, {}, "stopped"
            elif attempt.error:
                ended.outcome, ended.message = Outcome.ERRORED, attempt.error
            self._tidy(attempt, ended)
            del self._attempts[ended.id]
            self._empty.set()
            if not self._closing:
                self._context.inbox.put(ended)

        self._aside(done and self._reads_files(attempt), collect, tell)

    def _measure(self, attempt: Attempt, seconds: float) -> None:
        self._average += (seconds - self._average) * 0.3
        key = _alike(attempt.order.step.action)
        if len(self._averages) > 1000:
            self._averages.clear()
        before = self._averages.get(key, seconds)
        self._averages[key] = before + (seconds - before) * 0.3

    # -- what came of it ----------------------------------------------------------------------------------------------

    def _reads_files(self, attempt: Attempt) -> bool:
        if command.is_heavy(attempt.order):
            return True
        for path in attempt.files.outputs.values():
            with suppress(OSError):
                if os.path.getsize(path) > _LARGE:
                    return True
        return False

    def _collect(self, attempt: Attempt, ended: Ended) -> None:
        """Perhaps in another thread."""
        order = attempt.order
        try:
            if isinstance(order.action, Function):
                self._result(attempt.replicas[0], ended)
            else:
                ended.exit_code = 0
                ended.outputs = command.read_outputs(order, attempt.files, self._context.blobs)
        except ValueError as error:
            ended.outcome, ended.message = Outcome.FAILED, str(error)
        except Exception as error:  # a full disk, a store of blobs that does not answer
            ended.outcome, ended.message = Outcome.ERRORED, str(error) or type(error).__name__

    def _result(self, replica: Replica, ended: Ended) -> None:
        """Of a function."""
        told = call.read_result(replica.files.folder)
        if told is not None:
            outcome, ended.outputs, ended.exception, ended.message, ended.traceback = told
            ended.outcome = Outcome(outcome)
        elif replica.code is not None and replica.code >= 0:
            ended.outcome, ended.exit_code = Outcome.FAILED, replica.code
            ended.message = f"the function ended its process with exit code {replica.code}"
        else:
            ended.outcome, ended.exit_code, ended.message = Outcome.FAILED, replica.code, how_it_ended(replica.code)

    def _explain(self, attempt: Attempt, replica: Replica, ended: Ended) -> None:
        ended.outcome, ended.exit_code, ended.message = Outcome.FAILED, replica.code, how_it_ended(replica.code)
        if isinstance(attempt.order.action, Function):
            self._result(replica, ended)
        ended.outputs = command.what_there_is(attempt.order, attempt.replicas[0].files, self._context.blobs)
        if len(attempt.replicas) > 1:
            ended.message = f"replica {replica.number}: {ended.message}"

    def _explain_pod(self, attempt: Attempt, pod: HostPod, ended: Ended) -> None:
        failure = pod.turns.failure
        assert failure is not None
        ended.outcome, ended.exit_code = Outcome.FAILED, failure.code
        ended.message = pod.explain(failure, how_it_ended(failure.code))
        ended.outputs = command.what_there_is(attempt.order, attempt.pods[0].files, self._context.blobs)
        if len(attempt.pods) > 1:
            ended.message = f"replica {pod.number}: {ended.message}"

    def _tidy(self, attempt: Attempt, ended: Ended) -> None:
        log: list[LogPart] = [part for pod in attempt.pods for part in pod.close_log()]
        for name in () if attempt.pods else _logs(attempt):
            with suppress(OSError):
                size = os.path.getsize(f"{self._home}/{name}")
                if size:
                    log.append((name, 0, size))
                else:
                    os.unlink(f"{self._home}/{name}")
        ended.log = tuple(log)
        if command.is_plain(attempt.order):
            return
        for files in [one.files for one in (attempt.pods or attempt.replicas)]:
            for path in files.laid:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        folder = places.work_folder(self._context.home, attempt.order)
        if ended.outcome is not Outcome.FAILED and os.path.lexists(folder):
            shutil.rmtree(folder, ignore_errors=True)
            self._folders.add(str(folder.parent))


def _alike(action: Action) -> Any:
    """Commands that are written alike are expected to take the same time."""
    if isinstance(action, Container):
        key: Any = (action.command, action.args)
    elif isinstance(action, Script):
        key = (action.command, action.source)
    else:
        return None
    try:
        hash(key)
    except TypeError:
        return None
    return key


def how_it_ended(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    more = "; perhaps out of memory" if -code == signal.SIGKILL else ""
    return f"ended by signal {-code} ({signal_name(-code)}{more})"


def _logs(attempt: Attempt) -> list[str]:
    """Names below the home, each once."""
    if attempt.pods:
        return [name for pod in attempt.pods for name in pod.log_names]
    return list(dict.fromkeys(name for one in attempt.replicas for name in (one.out, one.err)))
