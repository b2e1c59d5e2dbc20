"""Steps as Jobs on a Kubernetes cluster. Found by the registry; called by the engine.

Whatever the engine does, the cluster is asked in threads: the engine's own never waits for it. Jobs outlive the engine that made them, on
purpose: the next engine goes on with them (see names). A Job is removed when the end of its attempt has been recorded, and at once when its
attempt is stopped.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from penstock.backends.base import Abilities, AttemptEnded, AttemptSpec, BackendContext
from penstock.backends.kubernetes import cluster as api
from penstock.backends.kubernetes import options
from penstock.backends.kubernetes.attempt import JobAttempt, JobContext
from penstock.backends.kubernetes.names import attempt_key, job_name
from penstock.backends.kubernetes.pool import Pools
from penstock.backends.kubernetes.throttle import Throttle
from penstock.backends.owner import owner_of
from penstock.errors import UserError
from penstock.graph.model import Outcome
from penstock.kubernetes.client import ApiError, Client

WRITERS = 16
"""Requests at the same time."""
FOLLOWED = 48
"""Logs that are followed at the same time. Those of others are read when they have ended."""


class KubernetesBackend:
    """A Backend."""

    def __init__(self, context: BackendContext) -> None:
        self.abilities = Abilities(masks_secrets=True, reports_start=True, recorded=self.recorded)
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._owner = owner_of(context)
        self._attempts: dict[str, JobAttempt] = {}
        """By id, until their ends are reported."""
        self._by_job: dict[str, JobAttempt] = {}
        self._unrecorded: dict[str, str] = {}
        """Attempts whose end was reported and perhaps not recorded yet: id -> Job."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._around: asyncio.Future[JobContext] | None = None
        self._pools: Pools | None = None
        self._threads = ThreadPoolExecutor(WRITERS, "penstock-kubernetes")
        self._followers = threading.Semaphore(FOLLOWED)
        self._dirty: set[str] = set()
        self._lock = threading.Lock()
        self._most = options.MOST
        self._closing = False

    # -- what the engine calls ------------------------------------------------------------------------------------------

    def room(self) -> int:
        return max(0, self._most - len(self._attempts))

    def start(self, specs: Sequence[AttemptSpec]) -> None:
        for spec in specs:
            attempt = JobAttempt(spec, job_name(self._owner, attempt_key(spec)))
            self._attempts[spec.id] = self._by_job[attempt.name] = attempt
            self._aside(self._attempt(attempt))

    def stop(self, id: str, grace: float) -> None:
        if id in self._attempts:
            self._attempts[id].stop(grace)

    def recorded(self, ids: Sequence[str]) -> None:
        for id in ids:
            if id in self._unrecorded:
                name = self._unrecorded.pop(id)
                if self._pools is None or not self._pools.recorded(id):
                    self._aside(self._remove(name))
            elif id not in self._attempts:  # of a dead engine
                self._aside(self._remove(job_name(self._owner, id), key=id))

    async def close(self) -> None:
        self._closing = True
        for attempt in self._attempts.values():
            attempt.stop(1.0)
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._pools is not None:
            await self._pools.close()
        if self._around is not None and self._around.done() and self._around.exception() is None:
            await asyncio.to_thread(self._around.result().cluster.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- one attempt ----------------------------------------------------------------------------------------------------

    async def _attempt(self, attempt: JobAttempt) -> None:
        id = attempt.spec.id
        try:
            around = await self._surroundings()
        except Exception as error:
            ended = AttemptEnded(id=id, outcome=Outcome.ERRORED, message=str(error) or type(error).__name__)
            if attempt.stopped:
                ended.outcome, ended.message = Outcome.CANCELLED, "stopped"
        else:
            ended = await self._run(attempt, around)
            self._unrecorded[id] = attempt.name
        del self._attempts[id]
        if self._by_job.get(attempt.name) is attempt:
            del self._by_job[attempt.name]
        if not self._closing:
            self._context.inbox.put(ended)

    async def _run(self, attempt: JobAttempt, around: JobContext) -> AttemptEnded:
        try:
            ended = await self._pools.run(attempt) if self._pools is not None else None
        except Exception as error:
            said = str(error) or type(error).__name__
            ended = AttemptEnded(id=attempt.spec.id, outcome=Outcome.ERRORED, message=said)
        return ended if ended is not None else await attempt.run(around)

    async def _remove(self, name: str, key: str = "") -> None:
        """`key`: of an attempt of a dead engine."""
        with suppress(ApiError, UserError, OSError):  # Kubernetes removes it a day after its end
            around = await self._surroundings()
            if key and self._pools is not None and self._pools.forget(key):
                return
            if name not in self._by_job:
                await self._thread(around.cluster.remove, name, any_engine=bool(key))

    async def _thread(self, call: Callable[..., Any], *args: Any, **more: Any) -> Any:
        return await self._loop.run_in_executor(self._threads, lambda: call(*args, **more))

    # -- the cluster ----------------------------------------------------------------------------------------------------

    async def _surroundings(self) -> JobContext:
        """Connects once. After a failure the next attempt tries again. Raises UserError, OSError."""
        if self._around is not None:
            return await asyncio.shield(self._around)
        self._around = self._loop.create_future()
        try:
            found = await self._connect()
        except BaseException as error:
            around, self._around = self._around, None
            around.set_exception(error)
            around.exception()  # it is raised here, too
            raise
        self._around.set_result(found)
        return found

    async def _connect(self) -> JobContext:
        context = self._context
        chosen = await self._thread(options.read, context.environ, context.home, context.blobs.root)
        client: Client = await self._thread(api.client_of, chosen, context.environ)
        namespace = api.namespace_of(chosen, client)
        try:
            await self._thread(api.check, client, namespace)
        except BaseException:
            client.close()
            raise
        self._most = chosen.most
        cluster = api.Cluster(client, namespace, self._owner, context.engine, self._changed)
        native = await self._thread(api.has_native_sidecars, client)
        around = (self._thread, self._follow, self._alone)
        throttle = Throttle(lambda: any(one.has_job for one in self._attempts.values()) or bool(self._unrecorded))
        found = JobContext(context, chosen, self._owner, cluster, *around, throttle, native_sidecars=native)
        pools = Pools(found)
        try:
            await self._thread(cluster.start)
            await pools.find()
        except BaseException:
            await self._thread(cluster.close)
            raise
        self._pools = pools
        return found

    def _changed(self, name: str) -> None:
        """Called in the threads of the watches. A burst of changes wakes the engine's thread once."""
        with self._lock:
            first = not self._dirty
            self._dirty.add(name)
        if first:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        with self._lock:
            names, self._dirty = self._dirty, set()
        for name in names:
            if name in self._by_job:
                self._by_job[name].changed.set()
            elif self._pools is not None:
                self._pools.changed(name)

    def _alone(self) -> bool:
        return not any(attempt.running for attempt in self._attempts.values())

    def _follow(self, call: Callable[[], None]) -> None:
        if not self._followers.acquire(blocking=False):
            return

        def run() -> None:
            try:
                call()
            finally:
                self._followers.release()

        threading.Thread(target=run, name="penstock-log", daemon=True).start()
