"""One attempt, from its spec to its end: its Job is made or found, followed, and read. Made by backend.

What happens to the Job is seen in the two watches of the cluster; the attempt sleeps until something of it has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from penstock.artifacts import values
from penstock.backends import folders
from penstock.backends.base import AttemptEnded, AttemptSpec, AttemptStarted, BackendContext
from penstock.backends.kubernetes import boot
from penstock.backends.kubernetes.cluster import SECRETS, SERVICES, Cluster, no_namespace
from penstock.backends.kubernetes.logs import ContainerLog
from penstock.backends.kubernetes.manifest import job_of, secret_of, service_of
from penstock.backends.kubernetes.options import ARTIFACTS, KubernetesOptions
from penstock.backends.kubernetes.outcome import (
    LEADER,
    ONE,
    Containers,
    Ended,
    Running,
    State,
    Waiting,
    cause_of,
    how,
    judge,
    refused,
)
from penstock.backends.kubernetes.programs import Work
from penstock.backends.kubernetes.scheduled import queue_for
from penstock.backends.kubernetes.work import work_of
from penstock.backends.own_error import note_error, outcome_of
from penstock.errors import Problem, UserError
from penstock.graph.model import Outcome
from penstock.kubernetes.client import ApiError
from penstock.kubernetes.objects import Object, uid_of

PATIENCE = 300.0
"""Seconds for which the API server may be away before an attempt is given up."""
LOOK = (3.0, 10.0)
"""Seconds without pods after which the cluster is asked why, and between two such questions."""
GONE = 120.0
"""Seconds for which a Job that was deleted may take to go."""
WAITS = "waits: "
"""Before the reason of a wait, in the log."""
SEEN = 15.0
"""Seconds after which everybody who mounts a volume sees what was written there."""


class Thread(Protocol):
    def __call__(self, call: Callable[..., Any], *args: Any, **more: Any) -> Awaitable[Any]: ...


@dataclass(slots=True)
class JobContext:
    """What all attempts of a backend have in common."""

    context: BackendContext
    options: KubernetesOptions
    owner: str
    cluster: Cluster
    thread: Thread
    follow: Callable[[Callable[[], None]], None]
    """Runs it in a thread for logs, if one is free."""
    alone: Callable[[], bool]
    """Has no other attempt pods that may go and make room?"""
    native_sidecars: bool = True
    """Has the cluster init containers that stay?"""


def containers_of(work: Work) -> Containers:
    plain = {one.name: one.part for one in work.programs if not one.sidecar}
    stay = {one.name: one.part for one in work.programs if one.sidecar}
    return Containers(plain, stay, several=len(work.programs) > 1, led=work.leads)


class JobAttempt:
    def __init__(self, spec: AttemptSpec, name: str) -> None:
        self.spec = spec
        self.name = name
        """Of its Job."""
        self.changed = asyncio.Event()
        self.stopped = False
        self.grace = 0.0
        self.running = False
        self._removed = False
        self._uid = ""
        self._job: Object | None = None
        self._work: Work | None = None
        self._started: float | None = None
        self._told = ""
        self._waits: dict[str, float] = {}
        self._looked: float | None = None
        self._refused: Waiting | None = None
        self._own = ONE
        self._said: ContainerLog | None = None
        """For what we have to say before it begins."""
        self._logs: dict[tuple[int, str], ContainerLog] = {}
        """By replica and container."""
        self._followed: set[tuple[int, str]] = set()

    def stop(self, grace: float) -> None:
        self.stopped, self.grace = True, min(grace, self.grace) if self.stopped else grace
        self._removed = False
        self.changed.set()

    async def run(self, around: JobContext) -> AttemptEnded:
        """Raises nothing but what is cancelled."""
        spec, loop = self.spec, asyncio.get_running_loop()
        ended = AttemptEnded(id=spec.id, outcome=Outcome.ERRORED)
        began = loop.time()
        try:
            await self._begin(around)
            if not self.stopped or self._uid:
                found = await self._follow(around)
                await self._close_logs(around, found)
                await around.thread(self._fill, around, found, ended)
        except Exception as error:
            ended.message = str(error) or type(error).__name__
            if self._uid:
                await self._give_up(around)
        if self.stopped and ended.outcome is not Outcome.SUCCEEDED:
            ended.outcome, ended.outputs, ended.message, ended.lost = Outcome.CANCELLED, {}, "stopped", False
        ended.seconds = loop.time() - (self._started if self._started is not None else began)
        ended.log = tuple(one for log in self._every_log() for one in log.part())
        return ended

    # -- made -----------------------------------------------------------------------------------------------------------

    async def _begin(self, around: JobContext) -> None:
        spec, context = self.spec, around.context
        self._said = await self._log(around, "log")

        def library() -> str:
            return context.blobs.put(boot.library())

        work = self._work = await around.thread(
            work_of, spec, around.options, context.blobs, library, around.native_sidecars
        )
        self._own = containers_of(work)
        for number in range(max(1, spec.step.replicas)):
            await self._open_logs(around, work, number)
        job = job_of(spec, work, around.options, around.owner, around.cluster.namespace)
        if self.stopped:
            return
        made, was_there = await self._call(around, around.cluster.ensure, job)
        self._job, self._uid = made, uid_of(made)
        if was_there:
            self._said.note("this Job was begun by another engine, which is gone; it goes on")
        placed = {**made, "metadata": {**made["metadata"], "namespace": around.cluster.namespace}}
        for resource, beside in ((SERVICES, service_of(spec, placed)), (SECRETS, secret_of(work, placed))):
            if beside is not None:
                await self._call(around, around.cluster.add, resource, beside)

    async def _log(self, around: JobContext, suffix: str, title: str = "") -> ContainerLog:
        name, secrets = folders.log_name(self.spec, suffix), tuple(self.spec.secrets.values())
        found: ContainerLog = await around.thread(ContainerLog, around.context.home, name, secrets, title)
        return found

    async def _open_logs(self, around: JobContext, work: Work, number: int) -> None:
        """Those of one replica: a part of several has its own, below a line with its name, as on this machine."""
        before = f"{number}." if number else ""
        several = len(work.programs) > 1
        for program in sorted(work.programs, key=lambda one: one.sidecar):
            if several:
                suffix = f"{before}part-{folders.mangled(program.part)}.log"
                log = await self._log(around, suffix, f"[{program.part}]")
            elif number:
                log = await self._log(around, f"{number}.log")
            else:
                assert self._said is not None
                log = self._said
            self._logs[number, program.name] = log
        if work.leads:
            self._logs[number, LEADER] = await self._log(around, f"{before}pod.log")

    def _every_log(self) -> list[ContainerLog]:
        logs = [one for one in self._logs.values() if one is not self._said]
        return logs if self._said is None else [self._said, *logs]

    async def _call(self, around: JobContext, call: Callable[..., Any], *args: Any, **more: Any) -> Any:
        return await asked(around, lambda line: self._note(around, line), call, *args, **more)

    def _note(self, around: JobContext, line: str) -> None:
        assert self._said is not None
        self._said.note(line)
        if line != self._told and self._started is None:
            self._told = line
            log = ((self._said.name, 0, None),)
            why = line.removeprefix(WAITS)
            around.context.inbox.put(AttemptStarted(id=self.spec.id, log=log, begun=False, waits=why))

    # -- followed -------------------------------------------------------------------------------------------------------

    async def _follow(self, around: JobContext) -> Ended:
        loop = asyncio.get_running_loop()
        made, given_up = loop.time(), 0.0
        while True:
            self.changed.clear()
            if self.stopped:
                if not self._removed:
                    self._removed, given_up = True, loop.time() + self.grace + GONE
                    if not await self._call(around, around.cluster.remove, self.name, grace=self.grace):
                        return Ended(Outcome.CANCELLED, "stopped")
                if self._is_gone(around) or loop.time() > given_up:
                    return Ended(Outcome.CANCELLED, "stopped")
                await self._sleep(5.0)
                continue
            state = self._state(around)
            if isinstance(state, Ended) and state.unseen:
                await self._call(around, around.cluster.look, self.name)
                state = self._state(around)
            if isinstance(state, Ended):
                return state
            if isinstance(state, Running):
                self._runs(around, state)
                await self._sleep(None)
                continue
            wait = await self._waits_for(around, state, loop.time() - made)
            if isinstance(wait, Ended):
                return wait
            await self._sleep(wait)

    async def _sleep(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.changed.wait()
        except TimeoutError:
            pass

    def _state(self, around: JobContext) -> State:
        job = around.cluster.job(self.name)
        if job is not None and uid_of(job) != self._uid:
            job = None
        pods = around.cluster.pods_of(self._uid)
        assert self._work is not None
        options = around.options
        queue = queue_for(self.spec, options)
        replicas = max(1, self.spec.step.replicas)
        return judge(job, pods, replicas, self._work.image, options.patience, queue, self._own)

    def _is_gone(self, around: JobContext) -> bool:
        job = around.cluster.job(self.name)
        return (job is None or uid_of(job) != self._uid) and not around.cluster.pods_of(self._uid)

    def _runs(self, around: JobContext, state: Running) -> None:
        self.running = True
        if self._started is None:
            self._started = asyncio.get_running_loop().time()
            grows = tuple((one.name, 0, None) for one in self._every_log())
            around.context.inbox.put(AttemptStarted(id=self.spec.id, log=grows))
        for replica, pod, name in state.pods:
            log = self._logs.get((replica, name))
            if log is not None and (replica, name) not in self._followed:
                self._followed.add((replica, name))
                around.follow(partial(log.follow, partial(around.cluster.logs, pod, container=name)))

    async def _waits_for(self, around: JobContext, state: Waiting, since: float) -> float | Ended | None:
        """Seconds to sleep, or its end if it has waited long enough."""
        loop = asyncio.get_running_loop()
        if not state.why and not around.cluster.pods_of(self._uid):
            first, then = LOOK
            due = first if self._looked is None else self._looked + then
            if since < due:
                return due - since
            self._looked = since
            message = await self._call(around, around.cluster.refusal, self._uid)
            if message:
                self._refused = state = refused(message, around.alone(), around.options.patience)
        if not state.why:
            return None
        kind = state.problem.code if state.problem else state.why
        if kind not in self._waits:
            self._waits[kind] = loop.time()
            self._note(around, WAITS + state.why)
        began = self._waits[kind]
        if state.patience is None or state.problem is None:
            return None
        left = began + state.patience - loop.time()
        if left > 0:
            return min(left, LOOK[1])
        await self._give_up(around)
        cause = "ImagePullError" if state.problem.code == "P722" else ""
        return Ended(Outcome.ERRORED, str(UserError(state.problem)), cause=cause)

    async def _give_up(self, around: JobContext) -> None:
        """Nothing of it may run any more when its end is reported."""
        self.stop(0.0)
        try:
            await self._follow(around)
        except UserError:
            pass  # the cluster does not answer; the Job is removed when somebody goes on with it
        finally:
            self.stopped = False

    # -- read -----------------------------------------------------------------------------------------------------------

    async def _close_logs(self, around: JobContext, found: Ended) -> None:
        if self.stopped:
            for log in self._every_log():
                await around.thread(log.stop)
        for replica, pod, name in found.pods:
            mine = self._logs.get((replica, name))
            if mine is not None:
                await around.thread(mine.complete, partial(around.cluster.logs, pod, container=name))

    def _fill(self, around: JobContext, found: Ended, ended: AttemptEnded) -> None:
        """Called in another thread. Raises UserError, ValueError, OSError."""
        work = self._work
        assert work is not None
        ended.outcome, ended.message, ended.lost = found.outcome, found.message, found.lost
        ended.preempted, ended.cause = found.preempted, cause_of(found)
        ended.exit_code = None if work.is_function else found.exit_code
        if found.lost or found.outcome is Outcome.CANCELLED:
            return
        if work.is_function:
            self._fill_call(around, found, ended)
        elif found.own_error:
            note_error(ended, found.own_error)
        elif found.outcome is Outcome.SUCCEEDED and self.spec.step.outputs:
            if not found.result:
                raise ValueError("its outputs were stored, and Kubernetes has lost the word of it; run it again")
            ended.outputs = self._read(around, found.result)

    def _fill_call(self, around: JobContext, found: Ended, ended: AttemptEnded) -> None:
        if found.result:
            result = self._read(around, found.result)
            if result[0] != "succeeded" or found.exit_code == 0:
                outcome, ended.outputs, ended.exception, message, ended.traceback = result
                ended.outcome, ended.invalid = outcome_of(outcome)
                ended.message = found.message + message
                return
        ended.outcome = Outcome.FAILED if found.outcome is Outcome.SUCCEEDED else found.outcome
        if found.exit_code is not None and not found.message.startswith("P"):
            ended.exit_code = found.exit_code
            words = found.message.partition(": ")[2]
            ended.message = f"the function ended its process with {how(found.exit_code)}{f': {words}' if words else ''}"
        elif "python" in ended.message and "start" in ended.message:
            ended.message += "; a function step needs Python 3.11 or newer in its image"

    def _read(self, around: JobContext, digest: str) -> Any:
        import time

        blobs, deadline = around.context.blobs, time.monotonic() + SEEN
        while around.options.store == ARTIFACTS and not blobs.has(digest) and time.monotonic() < deadline:
            time.sleep(0.5)
        return values.loads(blobs.get(digest).decode())


async def asked(
    around: JobContext, note: Callable[[str], None], call: Callable[..., Any], *args: Any, **more: Any
) -> Any:
    """Calls the API server, again and again while it is away. Raises UserError for what it refuses."""
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + PATIENCE, 0.5
    while True:
        try:
            return await around.thread(call, *args, **more)
        except ApiError as error:
            away = error.unreachable or error.code >= 500 or error.code == 429
            if not away or loop.time() + pause > deadline:
                raise _refusal(error, around) from None
            note(f"the cluster does not answer: {error.message}")
        await asyncio.sleep(pause)
        pause = min(pause * 2, 15.0)


def _refusal(error: ApiError, around: JobContext) -> UserError:
    namespace, message = around.cluster.namespace, error.message
    if error.code == 403 and "exceeded quota" in message:
        fix = "ask for less, end what uses the quota, or raise it (kubectl describe resourcequota)"
        return UserError(Problem("P724", f"the quota of the namespace is full: {message}", fix))
    if error.code == 403:
        fix = "ask whoever runs the cluster for a role with this right, or name another namespace: PENSTOCK_KUBERNETES_NAMESPACE"
        return UserError(Problem("P721", f"in the namespace {namespace}: {message}", fix))
    if error.code == 404:
        return no_namespace(namespace)
    if error.code in (400, 409, 422):
        fix = "change what it refuses by the step's own fields or by PENSTOCK_KUBERNETES_POD"
        return UserError(Problem("P724", f"the cluster refuses the Job: {message}", fix))
    fix = "see what `kubectl cluster-info` says; choose the cluster with KUBECONFIG or PENSTOCK_KUBERNETES_CONTEXT"
    return UserError(Problem("P720", f"the cluster does not answer as it should: {error}", fix))
