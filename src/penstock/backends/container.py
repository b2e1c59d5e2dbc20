"""Steps with an image, by podman or docker: containers, scripts, functions and pods. Found by its entry point; called by
engine.loop.

Each replica is one container: `create`, `cp` of folders that its outputs need (if any), `start --attach`, `cp` of outputs that lie
in it, `rm`. Not `run --rm`: an output may be any path of the container, and whether the command or the tool is to blame
for a failure is known only by looking at the container afterwards. What goes in and comes out is the business of crate. Each
part of a pod is a container too, which stays until the pod has ended: see pod_crate.

The tool is the first of podman and docker in PATH, or PENSTOCK_CONTAINER_TOOL (a program and, if need be, words that always
follow it); PENSTOCK_CONTAINER_OPTIONS are added to every `create`. Names are made from the order's id: what a crashed engine
left of the same attempt is found by its name, and everything else that it left by its label.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.backends import places
from penstock.backends.base import Began, Context, Ended, LogPart, Order
from penstock.backends.command import Unfit
from penstock.backends.crate import Crate, remove_mount_point
from penstock.backends.pod_crate import PartCrate, PodCrate
from penstock.backends.tools import ask, find, last_line
from penstock.backends.watch import kill_group, signal_name
from penstock.errors import Problem, UserError
from penstock.graph.model import Function, Outcome, Pod

TOOLS = ("podman", "docker")
_REST = 2.0
"""Seconds that the replicas of a failed one have to end by themselves."""
_TAIL = 8192
_FOREVER = 3600.0
"""Seconds that copying an output may take."""


@dataclass(slots=True, eq=False)
class Replica:
    """One container of an attempt: a replica of a step, or a part of a replica of a pod."""

    crate: Crate
    client: asyncio.subprocess.Process | None = None
    """The tool at work on it: making it, or attached to it."""
    made: bool = False
    code: int | None = None
    error: str = ""
    """Why it could not be run."""
    lost: bool = False
    unwanted: bool = False
    """It is being stopped, and how it ends is of no interest."""
    timed_out: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, eq=False)
class Attempt:
    order: Order
    replicas: list[Replica] = field(default_factory=list)
    """Of a pod: its parts, as they are started."""
    pods: list[PodCrate] = field(default_factory=list)
    began: float | None = None
    stopped: bool = False
    failed: Replica | None = None
    """The first that did."""
    broken: PodCrate | None = None
    """The first whose part did."""
    error: str = ""
    """Why a part could not even be made ready."""

    @property
    def ending(self) -> bool:
        """Is nothing more of it to be started?"""
        return bool(self.stopped or self.failed or self.broken or self.error)

    @property
    def log_names(self) -> list[str]:
        if self.pods:
            return [name for pod in self.pods for name in pod.log.names]
        return list(dict.fromkeys(name for one in self.replicas for name in (one.crate.out, one.crate.err)))


class Container:
    """A Backend."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._environ = dict(context.environ)
        self._tool: list[str] = []
        self._options: list[str] = []
        self._attempts: dict[str, Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._mount_points: dict[Path, Path] = {}
        self._closing = False

    # -- what the engine calls ----------------------------------------------------------------------------------------

    def room(self) -> int:
        return max(0, self._context.jobs - len(self._attempts))

    def start(self, orders: Sequence[Order]) -> None:
        for order in orders:
            attempt = self._attempts[order.id] = Attempt(order)
            self._aside(self._run(attempt))

    def stop(self, id: str, grace: float) -> None:
        attempt = self._attempts.get(id)
        if attempt is not None:
            attempt.stopped = True
            self._end(attempt, grace)

    async def close(self) -> None:
        self._closing = True
        for attempt in self._attempts.values():
            attempt.stopped = True
            self._end(attempt, 1.0)
        while self._tasks:
            await asyncio.wait(self._tasks)
        # Only now: taking away the place of a mount takes it from every container that still has it.
        for target, top in self._mount_points.items():
            remove_mount_point(target, top)
        if self._tool:
            _marker(self._context.home, self._context.engine).unlink(missing_ok=True)

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- one attempt, from beginning to end ---------------------------------------------------------------------------

    async def _run(self, attempt: Attempt) -> None:
        ended = Ended(id=attempt.order.id, outcome=Outcome.SUCCEEDED)
        try:
            self._find_tool()
            await asyncio.to_thread(self._pack, attempt)
            if not attempt.stopped:
                whole = [self._pod(attempt, pod) for pod in attempt.pods]
                await asyncio.gather(*whole, *(self._replica(attempt, replica) for replica in attempt.replicas))
            if attempt.began is not None:
                ended.seconds = self._loop.time() - attempt.began
            if not attempt.stopped:
                await self._tell(attempt, ended)
        except Exception as error:  # a blob that is gone, a full disk, a value that has no form as text
            ended.outcome, ended.outputs, ended.message = Outcome.ERRORED, {}, str(error) or type(error).__name__
        if attempt.stopped:
            ended.outcome, ended.outputs, ended.message = Outcome.CANCELLED, {}, "stopped"
        if attempt.stopped or ended.lost:
            await self._remove(attempt, alive=True)  # nothing of it may run any more when its end is told
        else:
            self._aside(self._remove(attempt, alive=False))
        ended.log = self._logs(attempt)
        if ended.outcome is not Outcome.FAILED:
            folder = places.work_folder(self._context.home, attempt.order)
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        del self._attempts[ended.id]
        if not self._closing:
            self._context.inbox.put(ended)

    def _find_tool(self) -> None:
        if self._tool:
            return
        chosen = self._environ.get("PENSTOCK_CONTAINER_TOOL")
        tool = find(self._environ, "PENSTOCK_CONTAINER_TOOL", TOOLS)
        if tool is None:
            what = f"there is no {chosen}" if chosen else "neither podman nor docker is in PATH"
            message = f"there is nothing here to run containers with: {what}"
            fix = "install podman or docker, or run the commands on this machine without their images: --on container=process"
            raise UserError(Problem("P701", message, fix))
        try:
            self._options = shlex.split(self._environ.get("PENSTOCK_CONTAINER_OPTIONS", ""))
        except ValueError as error:
            raise Unfit(f"PENSTOCK_CONTAINER_OPTIONS cannot be read: {error}") from None
        marker = _marker(self._context.home, self._context.engine)
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.write_text(json.dumps(tool), encoding="utf-8")
        self._tool = tool

    def _pack(self, attempt: Attempt) -> None:
        """In another thread."""
        for number in range(max(1, attempt.order.step.replicas)):
            crate: Crate
            if isinstance(attempt.order.action, Pod):
                attempt.pods.append(crate := PodCrate(attempt.order, number, self._context))
            else:
                attempt.replicas.append(Replica(crate := Crate(attempt.order, number, self._context)))
            crate.pack()
            for target, top in crate.mount_points:
                self._mount_points.setdefault(target, top)
        for crate in [replica.crate for replica in attempt.replicas]:
            os.makedirs((self._context.home / crate.err).parent, exist_ok=True)
            if crate.out != crate.err:  # of the same attempt, before a crash: not part of what is given
                (self._context.home / crate.out).unlink(missing_ok=True)

    async def _replica(self, attempt: Attempt, replica: Replica) -> None:
        try:
            await self._make(attempt, replica)
            if replica.made and not replica.error and not attempt.stopped:
                await self._attach(attempt, replica)
        except Exception as error:
            replica.error = str(error) or type(error).__name__
        finally:
            replica.over.set()
        if (replica.error or replica.code) and attempt.failed is None and not attempt.stopped:
            attempt.failed = replica
            self._end(attempt, _REST)

    # -- the parts of a pod -------------------------------------------------------------------------------------------

    async def _pod(self, attempt: Attempt, pod: PodCrate) -> None:
        """Returns when nothing of it runs any more."""
        mine: dict[asyncio.Task[None], Replica] = {}
        try:
            await self._turns(attempt, pod, mine)
        except Exception as error:  # a part without an image, a full disk
            if not attempt.ending:
                attempt.error = str(error) or type(error).__name__
                self._end(attempt, _REST)
        for replica in mine.values():
            if not replica.over.is_set():
                replica.unwanted = True
                self._aside(self._stop(replica, _REST))
        if mine:
            await asyncio.wait(mine)

    async def _turns(self, attempt: Attempt, pod: PodCrate, mine: dict[asyncio.Task[None], Replica]) -> None:
        network = ""
        while True:
            while not attempt.ending and (crate := await asyncio.to_thread(pod.next, network)) is not None:
                if attempt.ending:
                    break
                replica = Replica(crate)
                attempt.replicas.append(replica)
                task = self._loop.create_task(self._part(attempt, pod, crate, replica))
                mine[task] = replica
                if crate.part.sidecar:
                    await self._until_up(replica)
                    network = network or ("" if replica.over.is_set() else crate.name)
            self._note_failure(attempt, pod)
            waited_for = [task for task, one in mine.items() if not task.done() and not _is_sidecar(one)]
            if not waited_for:
                return
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)

    async def _part(self, attempt: Attempt, pod: PodCrate, crate: PartCrate, replica: Replica) -> None:
        """From beginning to end. Nothing is raised: what is wrong with it is told with the attempt."""
        try:
            await self._make(attempt, replica)
            if replica.made and not replica.error and not attempt.stopped:
                await self._attach(attempt, replica, crate.part.timeout)
        except Exception as error:
            replica.error = str(error) or type(error).__name__
        finally:
            replica.over.set()
        if attempt.stopped or replica.unwanted:
            return
        try:
            if not replica.error and replica.code is not None:
                for path, to in () if crate.part.sidecar else pod.results_to_copy(crate.part):
                    await self._copy(crate, path, to)
                await asyncio.to_thread(pod.ended, crate.part.name, replica.code, replica.timed_out)
        except Exception as error:
            replica.error = str(error) or type(error).__name__
        if replica.error and attempt.failed is None:
            attempt.failed = replica
            self._end(attempt, _REST)
        self._note_failure(attempt, pod)

    def _note_failure(self, attempt: Attempt, pod: PodCrate) -> None:
        if pod.turns.failure is not None and not attempt.ending:
            attempt.broken = pod
            self._end(attempt, _REST)

    async def _until_up(self, replica: Replica) -> None:
        """Others come into its network, and expect what it does to be there."""
        while not replica.over.is_set():
            if replica.made:
                answer = await self._ask("container", "inspect", "--format", "{{.State.Running}}", replica.crate.name)
                if answer.out.strip() == "true":
                    return
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await replica.over.wait()

    # -- one container ------------------------------------------------------------------------------------------------

    async def _make(self, attempt: Attempt, replica: Replica) -> None:
        """The container, not started yet. Takes long if the image must be fetched first."""
        crate = replica.crate
        words, err = crate.create_words(self._options), self._context.home / crate.err
        for _ in range(2):
            before = err.stat().st_size if err.exists() else 0
            code = await self._client(replica, words, os.devnull, err)
            said = _tail(err, before)
            if code == 0 or attempt.stopped or "is already in use" not in said:
                break
            # The same attempt, before a crash of its engine. Nobody else has containers of this name.
            os.truncate(err, before)
            await self._ask("kill", "--signal", "KILL", crate.name)
            await self._ask("rm", "--force", "--volumes", crate.name)
        replica.made = code == 0
        if code != 0:
            replica.error = self._blame(said, code)
        elif crate.folders and not attempt.stopped:
            answer = await ask([*self._tool, "cp", "-", f"{crate.name}:/"], self._environ, crate.folders_tar())
            if answer.code != 0:
                replica.error = self._blame(answer.err, answer.code)

    async def _attach(self, attempt: Attempt, replica: Replica, timeout: float | None = None) -> None:
        crate, home = replica.crate, self._context.home
        before = (home / crate.err).stat().st_size
        words = ["start", "--attach", crate.name]
        if attempt.began is None:
            attempt.began = self._loop.time()
        timer = None if timeout is None else self._loop.call_later(timeout, self._time_out, replica)
        replica.code = await self._client(replica, words, home / crate.out, home / crate.err, attempt)
        if timer is not None:
            timer.cancel()
        if replica.code == 0 or attempt.stopped or replica.unwanted:
            return
        shape = "{{.State.StartedAt}}|{{.State.ExitCode}}|{{.State.Running}}"
        answer = await self._ask("container", "inspect", "--format", shape, crate.name)
        started, _, rest = answer.out.strip().partition("|")
        if answer.code != 0 or started.startswith("0001-"):
            said = _tail(home / crate.err, before)
            replica.error = self._blame(said, replica.code)
            if isinstance(crate.order.action, Function) and "python3" in said:
                replica.error += "; a function step needs Python 3.11 or newer in its image"
        elif rest == f"{replica.code}|false":
            pass  # the command's own
        elif rest.endswith("|true"):
            how = signal_name(-replica.code) if replica.code < 0 else f"exit code {replica.code}"
            replica.error, replica.lost = f"{self._tool_name} ended by {how} while its container was running", True
        else:
            replica.code = int(rest.partition("|")[0])

    async def _client(
        self, replica: Replica, words: Iterable[str], out: str | Path, err: Path, began: Attempt | None = None
    ) -> int:
        """The tool, with its output in files. Not in our own session: Ctrl-C is for the engine."""
        with open(out, "ab") as stdout, open(err, "ab") as stderr:
            try:
                replica.client = await asyncio.create_subprocess_exec(
                    *self._tool, *words, env=self._environ, stdin=asyncio.subprocess.DEVNULL,
                    stdout=stderr if out == err else stdout, stderr=stderr, start_new_session=True,
                )  # fmt: skip
            except (OSError, ValueError) as error:
                raise Unfit(f"{self._tool_name} cannot be started: {error}") from None
        if began is not None and began.replicas[0] is replica:
            log: tuple[LogPart, ...] = tuple((name, 0, None) for name in began.log_names)
            self._context.inbox.put(Began(id=began.order.id, pid=replica.client.pid, log=log))
        try:
            return await replica.client.wait()
        finally:
            replica.client = None

    # -- its end ------------------------------------------------------------------------------------------------------

    def _end(self, attempt: Attempt, grace: float) -> None:
        for replica in attempt.replicas:
            if not replica.over.is_set():
                self._aside(self._stop(replica, grace))

    def _time_out(self, replica: Replica) -> None:
        if not replica.over.is_set():
            replica.timed_out = True
            self._aside(self._stop(replica, _REST))

    async def _stop(self, replica: Replica, grace: float) -> None:
        """Asked first. A container that does not run yet cannot be asked, only who is making it; hence the rounds."""
        deadline, asked = self._loop.time() + grace, False
        while not replica.over.is_set():
            forced = self._loop.time() >= deadline
            if forced or not asked:
                number = signal.SIGKILL if forced else signal.SIGTERM
                answer = await self._ask("kill", "--signal", number.name.removeprefix("SIG"), replica.crate.name)
                asked = answer.code == 0
                if not asked and replica.client is not None:
                    kill_group(replica.client.pid, number)
            left = max(0.0, deadline - self._loop.time())
            with suppress(TimeoutError):
                async with asyncio.timeout(left if asked and left else 0.2):
                    await replica.over.wait()

    async def _remove(self, attempt: Attempt, alive: bool) -> None:
        crates = [replica.crate for replica in attempt.replicas if replica.made or alive]
        names = [crate.name for crate in crates]
        if not names or not self._tool:
            return
        if alive:  # podman's rm would first wait ten seconds for it to end by itself
            await self._ask("kill", "--signal", "KILL", *names)
        # A container whose network others have cannot go before them.
        lent = {crate.network for crate in crates if isinstance(crate, PartCrate) and crate.network}
        for group in ([name for name in names if name not in lent], [name for name in names if name in lent]):
            if group:
                await self._ask("rm", "--force", "--volumes", *group)

    async def _tell(self, attempt: Attempt, ended: Ended) -> None:
        """What came of an attempt that was not stopped."""
        failed = attempt.failed
        where = failed.crate.number if failed is not None else attempt.broken.number if attempt.broken else 0
        several = f"replica {where}: " if attempt.order.step.replicas > 1 and attempt.ending else ""
        if failed is not None and isinstance(failed.crate, PartCrate) and len(failed.crate.pod.parts) > 1:
            several += f"part {failed.crate.part.name}: "
        if attempt.error:
            raise Unfit(attempt.error)
        if failed is not None and failed.error:
            ended.outcome, ended.message, ended.lost = Outcome.ERRORED, several + failed.error, failed.lost
            return
        if isinstance(attempt.order.action, Function):
            await self._result(failed or attempt.replicas[0], ended)
        elif failed is not None:
            ended.outcome, ended.exit_code, ended.message = Outcome.FAILED, failed.code, _how(failed.code)
        elif attempt.broken is not None and (failure := attempt.broken.turns.failure) is not None:
            ended.outcome, ended.exit_code = Outcome.FAILED, failure.code
            ended.message = attempt.broken.explain(failure, _how(failure.code))
        else:
            ended.exit_code = 0
            await self._collect(attempt, ended)
        if ended.message:
            ended.message = several + ended.message

    async def _result(self, replica: Replica, ended: Ended) -> None:
        """Of a function."""
        try:
            told = await asyncio.to_thread(replica.crate.read_result)
        except ValueError as error:
            ended.outcome, ended.message = Outcome.FAILED, str(error)
            return
        if told is not None and (told[0] != "succeeded" or replica.code == 0):
            outcome, ended.outputs, ended.exception, ended.message, ended.traceback = told
            ended.outcome = Outcome(outcome)
            return
        ended.outcome, ended.exit_code = Outcome.FAILED, replica.code
        ended.message = f"the function ended its process with {_how(replica.code)}"

    async def _collect(self, attempt: Attempt, ended: Ended) -> None:
        crate: Crate = attempt.pods[0] if attempt.pods else attempt.replicas[0].crate
        sources = [crate] if not attempt.pods else _by_likelihood(attempt.replicas, crate)
        for path, to in crate.to_copy():
            for source in sources:
                if await self._copy(source, path, to):
                    break
        try:
            ended.outputs = await asyncio.to_thread(crate.read)
        except ValueError as error:
            ended.outcome, ended.message = Outcome.FAILED, str(error)

    async def _copy(self, crate: Crate, path: str, to: Path) -> bool:
        """Out of an ended container. False: it is not there, which is told by who reads it, with the other outputs."""
        to.parent.mkdir(parents=True, exist_ok=True)
        answer = await ask([*self._tool, "cp", f"{crate.name}:{path}", str(to)], self._environ, seconds=_FOREVER)
        gone = any(word in answer.err.lower() for word in ("could not be found", "could not find", "no such file"))
        if answer.code != 0 and not gone:
            raise Unfit(self._blame(answer.err, answer.code))
        return answer.code == 0

    def _logs(self, attempt: Attempt) -> tuple[LogPart, ...]:
        found: list[LogPart] = [part for pod in attempt.pods for part in pod.log.close()]
        for name in () if attempt.pods else attempt.log_names:
            with suppress(OSError):
                size = os.path.getsize(self._context.home / name)
                if size:
                    found.append((name, 0, size))
                else:
                    (self._context.home / name).unlink()
        return tuple(found)

    # -- the tool -----------------------------------------------------------------------------------------------------

    @property
    def _tool_name(self) -> str:
        return os.path.basename(self._tool[0])

    async def _ask(self, *words: str) -> Any:
        return await ask([*self._tool, *words], self._environ)

    def _blame(self, said: str, code: int) -> str:
        return f"{self._tool_name}: {last_line(said) or f'exit code {code}'}"


def _is_sidecar(replica: Replica) -> bool:
    return isinstance(replica.crate, PartCrate) and replica.crate.part.sidecar


def _by_likelihood(replicas: Sequence[Replica], pod: Crate) -> list[Crate]:
    """The containers of a pod in which an output may be: that of `main`, then the last first."""
    crates = [one.crate for one in replicas if isinstance(one.crate, PartCrate) and one.crate.pod is pod]
    mine = [crate for crate in crates if isinstance(crate, PartCrate) and not crate.part.sidecar]
    return [
        *(one for one in mine if one.part.name == "main"),
        *(one for one in reversed(mine) if one.part.name != "main"),
    ]


def _tail(path: Path, start: int) -> str:
    """What was written behind `start`, or the last of it."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(start, size - _TAIL))
        return file.read().decode(errors="replace")


def _how(code: int | None) -> str:
    if code is None or not 128 < code < 160:
        return f"exit code {code}"
    more = "; perhaps out of memory" if code - 128 == signal.SIGKILL else ""
    return f"exit code {code} ({signal_name(code - 128)}{more})"


# -- what dead engines left behind ------------------------------------------------------------------------------------


def _marker(home: Path, engine: str) -> Path:
    """There while the engine may have containers, so that nobody asks the tool, which takes its time, for nothing."""
    return home / "cache" / "containers" / places.mangled(engine)


def end_orphan_containers(
    home: Path, engines: Collection[str], environ: Mapping[str, str] | None = None, seconds: float = 30.0
) -> int:
    """Removes the containers of these engines, which are dead, and says how many there were. Without any, nothing is asked of
    anybody. Called by the engine before it takes over their runs."""
    count = 0
    for engine in engines:
        marker = _marker(home, engine)
        try:
            tool: list[str] = json.loads(marker.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue

        def run(*words: str, tool: list[str] = tool) -> str:
            done = subprocess.run(
                [*tool, *words], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds,
                check=False,
            )  # fmt: skip
            return done.stdout

        try:
            search = ("ps", "--all", "--quiet", "--filter", f"label=penstock.engine={engine}")
            found = left = run(*search).split()
            if found:
                run("kill", "--signal", "KILL", *found)
            for _ in range(2):  # one whose network others have does not go before them
                if left:
                    run("rm", "--force", "--volumes", *left)
                    left = run(*search).split()
            marker.unlink(missing_ok=True)
            count += len(found)
        except (OSError, subprocess.SubprocessError):
            continue  # the tool is gone or hangs: the next engine tries again
    return count
