"""Many small tasks in few pods: calls of functions are given to warm pods that are made alike. Made and called by backend.

A pool has the pods of one shape: all that a pod is made from, and the bundle of code. It has as many pods as it has calls for, at most as many as
the user says, and gives each call to the pod with the least to do. What a pod has not begun when it ends is given to another one.

Nothing is known only here. An engine that comes after one that has died lists the warm pods of its store and reads their letters before it starts
anything: an attempt that it goes on with and that is in one of them is not begun anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import deque
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from penstock.artifacts import values
from penstock.backends.base import AttemptEnded, AttemptSpec, AttemptStarted
from penstock.backends.folders import log_name
from penstock.backends.kubernetes import boot, names
from penstock.backends.kubernetes.attempt import WAITS, JobAttempt, JobContext, asked
from penstock.backends.kubernetes.logs import ContainerLog
from penstock.backends.kubernetes.mailbox import Mailbox
from penstock.backends.kubernetes.manifest import DAY, warm_job_of
from penstock.backends.kubernetes.outcome import Ended
from penstock.backends.kubernetes.scheduled import queue_for
from penstock.backends.kubernetes.warm import MOST, WarmCall, WarmPod
from penstock.backends.kubernetes.work import fixed_env, warm_work_of
from penstock.backends.local.function_table import FunctionTable
from penstock.errors import Problem, UserError
from penstock.graph.model import Function, Outcome, Step
from penstock.kubernetes.objects import annotations_of, holds, name_of, uid_of

IDLE: Final = 30.0
"""Seconds after which a pod without calls ends."""
OLD: Final = 2 * DAY
"""Seconds after which letters without a Job are removed."""
STARTS: Final = 3
"""So many pods of a shape may end, one after the other, before they are up."""
RESTLESS: Final = 1.0
"""Seconds of a pod's silence after which another one that is idle takes what it has not begun."""
_log = logging.getLogger(__name__)


class Pool:
    """A WarmPodOwner."""

    def __init__(self, pools: Pools, around: JobContext, shape: str) -> None:
        self.shape = shape
        self.waiting: deque[WarmCall] = deque()
        self.pods: list[WarmPod] = []
        self._pools = pools
        self._around = around
        self._most = around.options.reuse
        self._failed = 0
        self._made = 0
        self._pumping = False

    # -- calls --------------------------------------------------------------------------------------------------------

    def enter(self, call: WarmCall) -> None:
        self.waiting.append(call)
        self._pump_soon()

    def stop(self, call: WarmCall, grace: float) -> None:
        if call in self.waiting:
            self.waiting.remove(call)
            call.cancel()
        elif call.pod is not None and not call.pod.gone:
            call.pod.stop(call, grace)

    def _pump_soon(self) -> None:
        """Calls come one by one, and go in letters."""
        if not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        if self._pools.closing:
            return
        up = [pod for pod in self.pods if pod.up]
        while self.waiting and up:
            pod = min(up, key=lambda one: (len(one.given) > 1, one.load, len(one.given)))
            if not self._has_room(pod, self.waiting[0]):
                break
            pod.give(self.waiting.popleft())
        wanted = min(self._most, len(self.waiting) + sum(1 for pod in self.pods if pod.given or not pod.up))
        while len(self.pods) < wanted:
            self._add()
        if not self.waiting and any(not pod.given for pod in up):
            self._share(up)

    def _has_room(self, pod: WarmPod, call: WarmCall) -> bool:
        if not pod.given:
            return True
        fits = len(pod.given) < 2 * MOST and pod.load + call.known.estimate < pod.pace.ahead
        return fits or (len(pod.given) < 2 and len(self.pods) >= self._most)

    def _share(self, up: list[WarmPod]) -> None:
        now = asyncio.get_running_loop().time()
        for pod in up:
            if len(pod.given) > 1 and now - pod.since > max(RESTLESS, 2 * pod.pace.longest):
                pod.recall()

    def _add(self) -> None:
        self._made += 1
        call = self.waiting[0]
        name = names.warm_name(self._around.owner, self._around.cluster.engine, self.shape, self._made)
        pod = WarmPod(self._around, self, name, lambda: self._pools.job(call.spec, name, self.shape))
        self.pods.append(pod)
        self._pools.begin(pod)

    # -- what pods tell -----------------------------------------------------------------------------------------------

    def ended(self, pod: WarmPod, call: WarmCall, end: Mapping[str, Any], log: int) -> None:
        self._pools.ended(pod, call, end, log)

    def again(self, calls: list[WarmCall]) -> None:
        for call in reversed(calls):
            call.pod, call.recalled, call.began = None, False, None
            if call.stopped:
                call.cancel()
            else:
                self.waiting.appendleft(call)
        self._pump_soon()

    def changed(self) -> None:
        if any(pod.up for pod in self.pods):
            self._failed = 0
        self._pump_soon()

    def waits(self, pod: WarmPod, why: str) -> None:
        if self.waiting:
            self._pools.note(self.waiting[0], why)

    def over(self, pod: WarmPod, how: Ended) -> None:
        self.pods.remove(pod)
        if pod.up or how.lost:
            self._pump_soon()
            return
        others = [one for one in self.pods if one.up]
        if others:  # there is no room for more of them
            self._most = len(others)
            return
        self._failed += 1
        final = how.message.startswith("P")
        if final or self._failed >= STARTS:
            said = how.message
            if not final:
                fix = "see what the message says; the image needs Python 3.11 and the way to the artifact store. PENSTOCK_KUBERNETES_POD_REUSE=0 makes a Job for each task"
                said = str(UserError(Problem("P903", f"warm pods do not start: {how.message}", fix)))
            self._failed = 0
            while self.waiting:
                call = self.waiting.popleft()
                call.end(AttemptEnded(id=call.spec.id, outcome=Outcome.ERRORED, message=said))
        else:
            self._pump_soon()


class Pools:
    """All warm pods of an engine, and those of dead ones that it goes on with."""

    def __init__(self, around: JobContext) -> None:
        self.closing = False
        self._around = around
        self._functions = FunctionTable()
        self._pools: dict[str, Pool] = {}
        self._shapes: dict[tuple[Any, ...], tuple[Step, str]] = {}
        self._pods: dict[str, WarmPod] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._kept: dict[str, tuple[WarmPod, str]] = {}
        """Attempt whose end was told and is not recorded -> its pod, its key."""
        self._found: dict[str, WarmPod] = {}
        """Key of a call of another engine -> the pod that has it."""
        self._library = ""
        self._logs: dict[str, ContainerLog] = {}
        """Of calls that wait, and of which it was said for what."""
        self._followed: set[str] = set()
        self._dead: set[str] = set()
        """Engines."""
        self._runs: set[str] = set()

    # -- what the backend calls ---------------------------------------------------------------------------------------

    async def find(self) -> None:
        """Reads what other engines of this store have left. Called once, before anything is started. Raises UserError, OSError."""
        if self._around.options.reuse:
            self._library = await self._around.thread(lambda: self._around.context.blobs.put(boot.library()))
        jobs = await asked(self._around, _log.info, self._around.cluster.warm_jobs)
        if self._around.options.reuse:
            await self._around.thread(self._clear, {name_of(job) for job in jobs})
        for job in jobs:
            if annotations_of(job).get(names.ENGINE) == self._around.cluster.engine:
                continue
            engine = str(annotations_of(job).get(names.ENGINE, ""))
            pod = WarmPod(self._around, _Heir(self), name_of(job), None, uid_of(job), engine)
            pod.runs.add(str(annotations_of(job).get(names.RUN, "")))
            try:
                await self._around.thread(pod.read)
            except Exception as error:  # a mailbox that was half removed
                _log.debug("%s: %s", pod.name, error)
                continue
            self._pods[pod.name] = pod
            if not pod.keeps and (holds(job, "Complete") or holds(job, "Failed")):
                self._end(pod)
            self._found |= dict.fromkeys(pod.unknown, pod)

    def _clear(self, jobs: set[str]) -> None:
        """The letters of pods that Kubernetes has removed, since nobody came back for them. Blocks."""
        store, owner = self._around.context.blobs.root, self._around.owner
        try:
            for name, changed in Mailbox(store, owner, "").others().items():
                if name not in jobs and self._around.context.now() - changed > OLD:
                    Mailbox(store, owner, name).clear()
        except Exception as error:  # each of fsspec's drivers has errors of its own
            _log.debug("old letters stay: %s", error)

    async def run(self, attempt: JobAttempt) -> AttemptEnded | None:
        """None: it is to be a Job of its own. Raises UserError."""
        spec = attempt.spec
        key = names.attempt_key(spec)
        self._runs.add(spec.run)
        pod = self._found.pop(key, None)
        if pod is None and not await self._suits(spec, attempt.name):
            return None
        call = WarmCall(spec, key, self._functions.of(spec), attempt.changed)
        if pod is not None and pod.attach(call):
            self._dead.add(pod.engine)
            self.begin(pod)
        else:
            self.enter(call)
        while call.ended is None:
            if attempt.stopped and (call.grace is None or attempt.grace < call.grace):
                call.grace = attempt.grace
                self._stop(call, attempt.grace)
            await attempt.changed.wait()
            attempt.changed.clear()
        attempt.running = False
        return call.ended

    def recorded(self, id: str) -> bool:
        """Is it one whose end came from a warm pod?"""
        pod, key = self._kept.pop(id, (None, ""))
        if pod is None:
            return False
        pod.recorded(key)
        if pod.mine or pod.gone:
            self._aside(self._over(pod, pod.remove()))
        else:
            self._end_those_of_the_dead()
        return True

    def forget(self, key: str) -> bool:
        """A call of a dead engine that nobody goes on with. Is there one?"""
        pod = self._found.pop(key, None)
        if pod is None:
            return False
        if key not in pod.results:
            self._end(pod)
        pod.recorded(key)
        self._dead.add(pod.engine)
        self._end_those_of_the_dead()
        return True

    def _end_those_of_the_dead(self) -> None:
        """Pods of engines of which something was taken over, when nothing is left in them."""
        for pod in list(self._pods.values()):
            if not pod.mine and pod.engine in self._dead and not pod.keeps and not pod.gone:
                self._end(pod)

    def _end(self, pod: WarmPod) -> None:
        self.begin(pod)
        pod.kill(0.0)

    def changed(self, job: str) -> None:
        if job in self._pods:
            self._pods[job].changed.set()

    async def close(self) -> None:
        """Ends the pods of this engine, when no attempt is left. What they told and is not recorded stays for the next engine, and they end
        by themselves."""
        self.closing = True
        for pod in self._pods.values():
            if not pod.mine and pod.over_with(self._runs):
                self._dead.add(pod.engine)
        self._end_those_of_the_dead()
        ending = [pod for pod in self._pods.values() if pod.name in self._followed and not pod.keeps]
        for pod in ending:
            if pod.mine and not pod.gone:
                pod.kill(1.0)
        while any(not pod.settled for pod in ending):
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- what pools and pods call -------------------------------------------------------------------------------------

    def begin(self, pod: WarmPod) -> None:
        if pod.name not in self._followed:
            self._followed.add(pod.name)
            self._pods[pod.name] = pod
            self._aside(self._over(pod, pod.run()))

    async def _over(self, pod: WarmPod, work: Coroutine[Any, Any, None]) -> None:
        await work
        if pod.gone and not pod.keeps:
            self._pods.pop(pod.name, None)
            self._followed.discard(pod.name)

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def ended(self, pod: WarmPod, call: WarmCall, end: Mapping[str, Any], log: int) -> None:
        report = AttemptEnded(id=call.spec.id, outcome=Outcome(end["outcome"]))
        for name in ("outputs", "exit_code", "exception", "message", "traceback", "invalid", "seconds", "lost"):
            if name in end:
                setattr(report, name, end[name])
        if log:
            report.log = ((log_name(call.spec), 0, log),)
        if call.stopped and report.outcome is not Outcome.SUCCEEDED:
            report.outcome, report.outputs, report.message, report.lost = Outcome.CANCELLED, {}, "stopped", False
        if report.outcome is Outcome.SUCCEEDED:
            self._functions.measure(call.known, report.seconds)
        self._kept[call.spec.id] = (pod, call.key)
        call.end(report)

    def note(self, call: WarmCall, why: str) -> None:
        """In the log of a call that waits; each line once."""
        name = log_name(call.spec)
        if call.key not in self._logs:
            self._logs[call.key] = ContainerLog(self._around.context.home, name, ())
        if self._logs[call.key].note(why):
            waits = why.removeprefix(WAITS)
            started = AttemptStarted(id=call.spec.id, log=((name, 0, None),), begun=False, waits=waits)
            self._around.context.inbox.put(started)

    def job(self, spec: AttemptSpec, name: str, shape: str) -> dict[str, Any]:
        """The Job of a warm pod for calls like this one. With a name it blocks, as it stores its settings. Raises CannotRun, UserError."""
        around = self._around
        blobs, options = around.context.blobs, around.options
        given = {
            "owner": around.owner,
            "name": name,
            "idle": IDLE,
            "blobs": [blobs.own_only, blobs.pickles],
            "limits": [blobs.limits.value, blobs.limits.file],
        }
        settings = blobs.put(values.dumps(given).encode()) if name else ""
        work = warm_work_of(spec, options, blobs, self._library, settings)
        return warm_job_of(spec, work, options, around.owner, name, shape)

    # -- shapes -------------------------------------------------------------------------------------------------------

    async def _suits(self, spec: AttemptSpec, name: str) -> bool:
        if not self._around.options.reuse or not isinstance(spec.action, Function):
            return False
        if spec.secrets or spec.step.replicas > 1 or spec.counted or queue_for(spec, self._around.options):
            return False
        if spec.since in (0, spec.attempt):
            return True
        # Another engine may have begun it when it had no warm pods.
        job = await asked(self._around, _log.info, self._around.cluster.found, name)
        return job is None

    def enter(self, call: WarmCall) -> None:
        try:
            self._pool(call).enter(call)
        except Exception as error:  # no image, no artifact store in reach
            call.end(AttemptEnded(id=call.spec.id, outcome=Outcome.ERRORED, message=str(error)))

    def _pool(self, call: WarmCall) -> Pool:
        shape = self._shape(call.spec)
        if shape not in self._pools:
            self._pools[shape] = Pool(self, self._around, shape)
        return self._pools[shape]

    def _stop(self, call: WarmCall, grace: float) -> None:
        if call.pod is not None and not call.pod.mine and not call.pod.gone:
            call.pod.stop(call, grace)
        else:
            self._pool(call).stop(call, grace)

    def _shape(self, spec: AttemptSpec) -> str:
        """A digest of all that its pod would be made from."""
        action, blobs = spec.action, self._around.context.blobs
        assert isinstance(action, Function)
        key = (id(spec.step), spec.bundle, str(action.image), tuple(fixed_env(spec, blobs).items()))
        known = self._shapes.get(key)
        if known is None or known[0] is not spec.step:
            if len(self._shapes) > 10_000:
                self._shapes.clear()
            text = json.dumps([spec.bundle, self.job(spec, "", "")["spec"]], sort_keys=True, default=str)
            known = self._shapes[key] = (
                spec.step,
                hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12],
            )
        return known[1]


class _Heir:
    """A WarmPodOwner for a pod of another engine. It gets no more calls, and what it has not begun goes to pods of ours."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    def ended(self, pod: WarmPod, call: WarmCall, end: Mapping[str, Any], log: int) -> None:
        self._pools.ended(pod, call, end, log)

    def again(self, calls: list[WarmCall]) -> None:
        for call in calls:
            call.pod = None
            if call.stopped:
                call.cancel()
            else:
                self._pools.enter(call)

    def changed(self) -> None:
        pass

    def waits(self, pod: WarmPod, why: str) -> None:
        pass

    def over(self, pod: WarmPod, how: Ended) -> None:
        pass
