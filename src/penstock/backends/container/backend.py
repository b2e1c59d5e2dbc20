"""Steps with an image, by podman or docker: containers, scripts, functions and pods. Found by the registry; called by the engine.

Each replica is one container, and so is each part of a pod, which stays until the pod has ended. Names are made from the
attempt's id: what a crashed engine left of the same attempt is found by its name, and everything else that it left by its label.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from penstock.backends import folders
from penstock.backends.base import Abilities, AttemptEnded, AttemptSpec, AttemptStarted, BackendContext
from penstock.backends.container import orphans, results
from penstock.backends.container.attempt import AttemptRun, ContainerAttempt
from penstock.backends.container.files import remove_mount_point
from penstock.backends.container.pod import PodContainers
from penstock.backends.container.run import ContainerRunner, RunningContainer
from penstock.backends.container.step import StepContainer
from penstock.backends.container.tool import ContainerTool
from penstock.graph.model import Outcome, Pod


class ContainerBackend:
    """A Backend."""

    abilities = Abilities(masks_secrets=True)

    def __init__(self, context: BackendContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._runner: ContainerRunner | None = None
        """None until the first attempt, which needs a tool."""
        self._attempts: dict[str, ContainerAttempt] = {}
        self._runs: dict[str, AttemptRun] = {}
        """By attempt, while containers may run."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._mount_points: dict[Path, Path] = {}
        self._closing = False

    # -- what the engine calls ----------------------------------------------------------------------------------------

    def room(self) -> int:
        return max(0, self._context.jobs - len(self._attempts))

    def start(self, specs: Sequence[AttemptSpec]) -> None:
        for spec in specs:
            attempt = self._attempts[spec.id] = ContainerAttempt(spec)
            self._aside(self._attempt(attempt))

    def stop(self, id: str, grace: float) -> None:
        if id in self._attempts:
            self._attempts[id].stopped = True
        if id in self._runs:
            self._runs[id].end(grace)

    async def close(self) -> None:
        self._closing = True
        for id in self._attempts:
            self.stop(id, 1.0)
        while self._tasks:
            await asyncio.wait(self._tasks)
        # Only now: removing a mount point removes the mount from every container that still has it.
        for target, top in self._mount_points.items():
            remove_mount_point(target, top)
        if self._runner is not None:
            orphans.unmark(self._context.home, self._context.engine)

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- one attempt, from start to end -------------------------------------------------------------------------------

    async def _attempt(self, attempt: ContainerAttempt) -> None:
        ended = AttemptEnded(id=attempt.spec.id, outcome=Outcome.SUCCEEDED)
        try:
            runner = self._find_runner()
            await asyncio.to_thread(self._prepare, attempt)
            if not attempt.stopped:
                await self._run(attempt, runner)
            if attempt.started is not None:
                ended.seconds = self._loop.time() - attempt.started
            if not attempt.stopped:
                await results.fill(attempt, ended, runner.tool)
        except Exception as error:  # a blob that is missing, a full disk, a value that has no form as text
            ended.outcome, ended.outputs, ended.message = Outcome.ERRORED, {}, str(error) or type(error).__name__
        if attempt.stopped:
            ended.outcome, ended.outputs, ended.message = Outcome.CANCELLED, {}, "stopped"
        await self._clean_up(attempt, ended)
        del self._attempts[ended.id]
        if not self._closing:
            self._context.inbox.put(ended)

    def _find_runner(self) -> ContainerRunner:
        """Raises UserError, CannotRun, OSError."""
        if self._runner is None:
            tool = ContainerTool(self._context.environ)
            orphans.mark(self._context.home, self._context.engine, tool.words)
            self._runner = ContainerRunner(tool, self._context.home)
        return self._runner

    def _prepare(self, attempt: ContainerAttempt) -> None:
        """Called in another thread."""
        spec = attempt.spec
        for number in range(max(1, spec.step.replicas)):
            if isinstance(spec.action, Pod):
                pod = PodContainers(spec, number, self._context)
                attempt.pods.append(pod)
                mount_points = pod.files.mount_points
            else:
                replica = StepContainer(spec, number, self._context)
                attempt.replicas.append(replica)
                attempt.containers.append(RunningContainer(replica.container, number))
                mount_points = replica.files.mount_points
            for target, top in mount_points:
                self._mount_points.setdefault(target, top)

    async def _run(self, attempt: ContainerAttempt, runner: ContainerRunner) -> None:
        def started(pid: int) -> None:
            log = tuple((name, 0, None) for name in attempt.log_names)
            self._context.inbox.put(AttemptStarted(id=attempt.spec.id, pid=pid, log=log))

        run = self._runs[attempt.spec.id] = AttemptRun(attempt, runner, self._aside, started)
        try:
            await run.run()
        finally:
            del self._runs[attempt.spec.id]

    async def _clean_up(self, attempt: ContainerAttempt, ended: AttemptEnded) -> None:
        if self._runner is not None:
            alive = attempt.stopped or ended.lost
            remove = self._runner.remove(attempt.containers, alive)
            if alive:
                await remove  # nothing of it may run any more when its end is reported
            else:
                self._aside(remove)
        ended.log = results.close_logs(attempt, self._context.home)
        if ended.outcome is not Outcome.FAILED or attempt.spec.secrets:
            folder = folders.work_folder(self._context.home, attempt.spec)
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
