"""One attempt of the container backend, and the run of its containers. Made by backend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from penstock.backends.base import AttemptSpec
from penstock.backends.container.pod import PartContainer, PodContainers
from penstock.backends.container.run import ContainerRunner, RunningContainer
from penstock.backends.container.step import StepContainer

GRACE = 2.0
"""Seconds in which the other containers of a failed attempt may end by themselves."""


@dataclass(slots=True, eq=False)
class ContainerAttempt:
    spec: AttemptSpec
    replicas: list[StepContainer] = field(default_factory=list)
    """Unless it is a pod."""
    pods: list[PodContainers] = field(default_factory=list)
    containers: list[RunningContainer] = field(default_factory=list)
    """Of the replicas in their order, or the parts of the pods as they are started."""
    started: float | None = None
    stopped: bool = False
    failed: RunningContainer | None = None
    """The first container that failed."""
    failed_pod: PodContainers | None = None
    """The first pod of which a part failed."""
    error: str = ""
    """Why a part could not be prepared."""

    @property
    def ending(self) -> bool:
        """Must nothing more of it be started?"""
        return bool(self.stopped or self.failed or self.failed_pod or self.error)

    @property
    def log_names(self) -> list[str]:
        if self.pods:
            return [name for pod in self.pods for name in pod.progress.log.names]
        return list(dict.fromkeys(name for one in self.containers for name in (one.spec.out, one.spec.err)))


class AttemptRun:
    """Runs the containers of one attempt: its replicas side by side, the parts of a pod in their order. The first failure ends
    all of them.

    `aside` runs a coroutine in the background. `started` gets the pid of the first container's client."""

    def __init__(
        self,
        attempt: ContainerAttempt,
        runner: ContainerRunner,
        aside: Callable[[Coroutine[Any, Any, None]], None],
        started: Callable[[int], None],
    ) -> None:
        self._attempt = attempt
        self._runner = runner
        self._aside = aside
        self._started = started

    async def run(self) -> None:
        """Returns when nothing of it runs any more."""
        attempt = self._attempt
        pods = [self._pod(pod) for pod in attempt.pods]
        await asyncio.gather(*pods, *(self._replica(one) for one in attempt.containers))

    def end(self, grace: float) -> None:
        for one in self._attempt.containers:
            if not one.over.is_set():
                self._aside(self._runner.stop(one, grace))

    def _fail(self, failed: RunningContainer) -> None:
        self._attempt.failed = failed
        self.end(GRACE)

    async def _replica(self, one: RunningContainer) -> None:
        await self._run(one)
        if (one.error or one.code) and self._attempt.failed is None and not self._attempt.stopped:
            self._fail(one)

    async def _run(self, one: RunningContainer) -> None:
        def started(pid: int) -> None:
            if self._attempt.started is None:
                self._attempt.started = asyncio.get_running_loop().time()
            if self._attempt.containers[0] is one:
                self._started(pid)

        def time_out() -> None:
            if not one.over.is_set():
                one.timed_out = True
                self._aside(self._runner.stop(one, GRACE))

        await self._runner.run(one, lambda: self._attempt.stopped, started, time_out)

    # -- the parts of a pod -------------------------------------------------------------------------------------------

    async def _pod(self, pod: PodContainers) -> None:
        """Returns when nothing of it runs any more."""
        attempt = self._attempt
        parts: dict[asyncio.Task[None], RunningContainer] = {}
        try:
            await self._parts(pod, parts)
        except Exception as error:  # a part without an image, a full disk
            if not attempt.ending:
                attempt.error = str(error) or type(error).__name__
                self.end(GRACE)
        for one in parts.values():
            if not one.over.is_set():
                one.unwanted = True
                self._aside(self._runner.stop(one, GRACE))
        if parts:
            await asyncio.wait(parts)

    async def _parts(self, pod: PodContainers, parts: dict[asyncio.Task[None], RunningContainer]) -> None:
        """Returns when nothing but sidecars runs. Fills `parts`."""
        attempt, network = self._attempt, ""
        while True:
            while not attempt.ending and (ready := await asyncio.to_thread(pod.next, network)) is not None:
                if attempt.ending:
                    break
                one = RunningContainer(ready.container, pod.number, ready.part)
                attempt.containers.append(one)
                parts[asyncio.get_running_loop().create_task(self._part(pod, ready, one))] = one
                if one.is_sidecar:
                    await self._runner.until_up(one)
                    network = network or ("" if one.over.is_set() else one.spec.name)
            self._note_failure(pod)
            waited_for = [task for task, one in parts.items() if not task.done() and not one.is_sidecar]
            if not waited_for:
                return
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)

    async def _part(self, pod: PodContainers, ready: PartContainer, one: RunningContainer) -> None:
        """From beginning to end. Raises nothing: what is wrong with it is reported with the attempt."""
        attempt, part = self._attempt, ready.part
        await self._run(one)
        if attempt.stopped or one.unwanted:
            return
        try:
            if not one.error and one.code is not None:
                for path, to in () if part.sidecar else pod.results_to_copy(part):
                    await self._runner.tool.copy_out(one.spec.name, path, to)
                await asyncio.to_thread(pod.progress.ended, part.name, one.code, one.timed_out)
        except Exception as error:
            one.error = str(error) or type(error).__name__
        if one.error and attempt.failed is None:
            self._fail(one)
        self._note_failure(pod)

    def _note_failure(self, pod: PodContainers) -> None:
        if pod.progress.sequence.failure is not None and not self._attempt.ending:
            self._attempt.failed_pod = pod
            self.end(GRACE)
