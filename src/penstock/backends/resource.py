"""Resource steps: a Kubernetes object is created (applied, patched, …) and polled until a condition holds. Found by the registry;
called by the engine.

Conditions read `object` and its parts `status`, `spec` and `metadata`; so do outputs, which also read `inputs`; an output without
a value is the whole object. A field that does not exist yet means "not yet". Failure is checked before success. Without conditions of the author's,
what is created or applied is waited for if the end of its kind is known (scheduling.kinds.outcomes); other objects are done as soon as they have been
accepted. `delete` is over when the object is gone.

An object that a queue holds has not begun. One that somebody deletes, or a pod that is evicted, is lost and not failed: the engine starts it again.
The log has what the object says of itself, whenever that changes, and in the end what its pods printed.

Stopping deletes what the step created, and that very object only (by its uid); what it applied, patched or got stays as it is. An engine that ends, or is
killed, leaves all of it: the next one goes on with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import rights
from penstock.artifacts import values
from penstock.backends import folders
from penstock.backends.base import Abilities, AttemptEnded, AttemptSpec, AttemptStarted, BackendContext, LogPart
from penstock.backends.kubectl import Kubectl, KubernetesObject, object_of, uid_of
from penstock.backends.objects.conditions import MADE, ObjectConditions, ResourceFailed, ResourceLost, parts_of
from penstock.backends.objects.logs import StatusLines, printed
from penstock.backends.objects.queueing import queued
from penstock.backends.owner import owner_of
from penstock.errors import UserError
from penstock.expressions.evaluate import EvaluationError, resolve
from penstock.graph import model
from penstock.graph.model import MISSING, Outcome
from penstock.graph.stored import Stored

MOST = 64
"""Objects polled at the same time: nothing runs here meanwhile."""
FIRST, GROWTH, LONGEST = 0.2, 1.5, 5.0
"""Seconds between two polls: at first, their growth, and at most."""
PATIENCE = 300.0
"""Seconds for which a cluster may be unreachable before a waiting step is given up."""


@dataclass(slots=True)
class PollInterval:
    """Short at first, then longer."""

    last: float
    """When the object was last seen."""
    wait: float = FIRST

    def pause(self) -> float:
        pause, self.wait = self.wait, min(self.wait * GROWTH, LONGEST)
        return pause


class ResourceLog:
    """The step's log: each line once, not once for each poll."""

    def __init__(self, home: Path, name: str) -> None:
        self.name = name
        self._path = home / name
        self._last = ""
        rights.make_folder(self._path.parent)

    def write(self, line: str, again: bool = False) -> None:
        """`again`: also if it is as the last one."""
        if again or line != self._last:
            self._last = line
            with open(self._path, "a", encoding="utf-8", opener=rights.opener) as file:
                file.write(line + "\n")

    def part(self) -> tuple[LogPart, ...]:
        return ((self.name, 0, self._path.stat().st_size),) if self._path.exists() else ()


class ResourceBackend:
    """A Backend."""

    abilities = Abilities(reports_start=True)

    def __init__(self, context: BackendContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._kubectl = Kubectl(context.environ, max(2, context.jobs))
        self._scheduler = context.environ.get("PENSTOCK_SCHEDULER", "")
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopped: set[str] = set()
        self._closing = False

    def room(self) -> int:
        return max(0, MOST - len(self._tasks))

    def start(self, specs: Sequence[AttemptSpec]) -> None:
        for spec in specs:
            task = self._tasks[spec.id] = self._loop.create_task(self._run(spec))
            task.add_done_callback(lambda _, id=spec.id: self._never_began(id))  # type: ignore[misc]

    def stop(self, id: str, grace: float) -> None:
        if id in self._tasks and id not in self._stopped:
            self._stopped.add(id)
            self._tasks[id].cancel()

    def _never_began(self, id: str) -> None:
        """An asyncio task that is cancelled before its first step does not run at all."""
        self._stopped.discard(id)
        if self._tasks.pop(id, None) is not None and not self._closing:
            self._context.inbox.put(AttemptEnded(id=id, outcome=Outcome.CANCELLED, message="stopped before it began"))

    async def close(self) -> None:
        self._closing = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- one attempt, from start to end -------------------------------------------------------------------------------

    async def _run(self, spec: AttemptSpec) -> None:
        started = self._loop.time()
        ended = AttemptEnded(id=spec.id, outcome=Outcome.SUCCEEDED)
        log = ResourceLog(self._context.home, folders.log_name(spec))
        attempt = ObjectAttempt(spec, log, self._kubectl, self._context, self._scheduler)
        self._context.inbox.put(AttemptStarted(id=spec.id, log=((log.name, 0, None),), begun=False))
        try:
            object_ = await attempt.run()
            ended.outputs = await asyncio.to_thread(self._outputs, spec, object_)
        except asyncio.CancelledError:
            if self._closing:
                raise
            ended.outcome, ended.message = Outcome.CANCELLED, f"stopped; {await attempt.removed()}"
        except ResourceLost as error:
            ended.outcome, ended.message, ended.lost = Outcome.FAILED, str(error), True
        except ResourceFailed as error:
            ended.outcome, ended.message = Outcome.FAILED, str(error)
        except Exception as error:
            ended.outcome, ended.message = Outcome.ERRORED, str(error) or type(error).__name__
        if ended.message:
            log.write(ended.message)
        ended.seconds, ended.log = self._loop.time() - started, log.part()
        del self._tasks[spec.id]
        if not self._closing:
            self._context.inbox.put(ended)

    def _outputs(self, spec: AttemptSpec, object_: Any) -> dict[str, Any]:
        """Called in another thread: a value may be large. Raises ResourceFailed."""
        blobs, found = self._context.blobs, {}
        inputs = {
            name: values.load_value(value, blobs, self._context.home / "work") if _is_data(value) else value
            for name, value in spec.inputs.items()
        }
        scope = {**parts_of(object_), "inputs": inputs}
        for output in spec.step.outputs:
            name = f"the output {output.name!r}"
            try:
                value = object_ if output.value is MISSING else resolve(output.value, scope)
                found[output.name] = values.store_value(value, blobs, type_=output.type, name=name)
            except EvaluationError as error:
                raise ResourceFailed(f"{name} has no value: {error}") from None
            except ValueError as error:
                raise ResourceFailed(str(error)) from None
        return found


class ObjectAttempt:
    """One attempt and its object."""

    def __init__(
        self, spec: AttemptSpec, log: ResourceLog, kubectl: Kubectl, context: BackendContext, scheduler: str
    ) -> None:
        assert isinstance(spec.action, model.Resource)
        self._spec, self._action, self._log, self._kubectl = spec, spec.action, log, kubectl
        self._context, self._scheduler = context, scheduler
        self._loop = asyncio.get_running_loop()
        self._target: KubernetesObject | None = None
        self._status = StatusLines()
        self._begun = False
        self._waits = ""

    async def run(self) -> Any:
        """The object as it was when the step was over. Raises ResourceFailed, ResourceLost, UserError, ValueError."""
        action = self._action
        target = object_of(action, self._spec, owner_of(self._context))
        if action.action in MADE:
            target = await self._in_its_queue(target)
        self._target = target
        self._log.write(f"{action.action} {target}")
        if action.action == "delete":
            self._begin()
            return await self._delete(target)
        conditions = ObjectConditions.of(action, target.manifest)
        object_ = await self._act(action.action, target)
        uid, interval = uid_of(object_), PollInterval(self._loop.time())
        while object_ is not None and uid_of(object_) == uid:
            if await self._is_over(conditions, target, object_):
                return object_
            object_ = await self._poll(target, interval)
        said = f"{target} was deleted by somebody while this step was waiting for it"
        raise ResourceLost(said) if action.action in MADE else ResourceFailed(said)

    async def removed(self) -> str:
        """What became of the object, in words, when the step was stopped: what it created is deleted."""
        target = self._target
        if target is None:
            return "nothing was made"
        if self._action.action != "create":
            return f"{target} is left as it is"
        try:
            found = await self._kubectl.get(target)
            if found is None:
                return f"there is no {target}"
            target.check_ours(found)
            if target.is_of_a_later_try(found, self._spec.attempt):
                return f"{target} is left to the engine that goes on with it"
            await self._kubectl.delete_this(found)
        except (UserError, ValueError) as error:
            return f"{target} could not be deleted: {error}"
        return f"{target} is deleted"

    async def _in_its_queue(self, target: KubernetesObject) -> KubernetesObject:
        """With the metadata of the cluster's queue, if it is to go into one."""
        found = await queued(self._kubectl, target.manifest, self._spec.queue, self._scheduler)
        for line in found.lines:
            self._log.write(line)
        for one in found.before:
            await self._kubectl.act("apply", KubernetesObject(dict(one)))
        return KubernetesObject(found.manifest)

    async def _is_over(self, conditions: ObjectConditions, target: KubernetesObject, object_: Any) -> bool:
        for line in self._status.news(object_):
            self._log.write(line)
        waiting = conditions.held(object_)
        if not waiting:
            self._begin()
        elif not self._begun and waiting != self._waits:
            self._waits = waiting
            log = ((self._log.name, 0, None),)
            why = f"{target} is {waiting}"
            self._context.inbox.put(AttemptStarted(id=self._spec.id, log=log, begun=False, waits=why))
        try:
            over = conditions.hold(str(target), object_, self._log.write)
        except ResourceFailed:
            await self._keep_output(object_)
            raise
        if over:
            self._begin()  # it may have been let go, and ended, between two looks
            if conditions.success is not None and conditions.success.text != "true":
                await self._keep_output(object_)
            return True
        going = (object_.get("metadata") or {}).get("deletionTimestamp")
        self._log.write(
            f"{target} is {waiting}"
            if waiting
            else f"{target} is being deleted"
            if going
            else f"waiting for {conditions.waiting_for}"
        )
        return False

    def _begin(self) -> None:
        """It waits in no queue any more: its time limit counts from here."""
        if not self._begun:
            self._begun = True
            self._context.inbox.put(AttemptStarted(id=self._spec.id, log=((self._log.name, 0, None),)))

    async def _keep_output(self, object_: Any) -> None:
        if self._action.action in MADE:
            for line in await printed(self._kubectl, object_):
                self._log.write(line, again=True)

    async def _delete(self, target: KubernetesObject) -> Any:
        """Over when the object is gone, with its finalizers."""
        before = await self._kubectl.get(target)
        if before is None:
            return None
        await self._kubectl.delete(target)
        await self._until_gone(target, before)
        return before

    async def _until_gone(self, target: KubernetesObject, before: Any) -> None:
        found, interval = before, PollInterval(self._loop.time())
        while found is not None and uid_of(found) == uid_of(before):
            found = await self._poll(target, interval)

    async def _act(self, verb: str, target: KubernetesObject) -> Any:
        """The object as the cluster has it then."""
        if verb == "patch":
            return await self._kubectl.patch(target)
        if verb == "get":
            found = await self._kubectl.get(target)
            if found is None:
                raise ResourceFailed(f"there is no {target}")
            return found
        if verb != "create":
            return await self._kubectl.act(verb, target)
        return await self._create(target)

    async def _create(self, target: KubernetesObject) -> Any:
        """A new object, or that of this attempt from before a crash. Raises ValueError if there is another of its name."""
        while (created := await self._kubectl.create(target)) is None:
            found = await self._kubectl.get(target)
            if found is None:
                continue
            target.check_ours(found)
            if found["metadata"].get("deletionTimestamp"):
                self._log.write(f"{target} is still being deleted")
            elif target.is_of_an_earlier_try(found, self._spec.since or self._spec.attempt):
                self._log.write(f"{target} is that of an earlier try, and is replaced")
                await self._kubectl.delete_this(found)
            else:
                self._log.write("it is there already")
                return await self._kubectl.patch(target.adopted())
            await self._until_gone(target, found)
        return created

    async def _poll(self, target: KubernetesObject, interval: PollInterval) -> Any:
        """Waits a while, then gets the object; None if it is gone. Tries again for some time if the cluster is unreachable."""
        while True:
            await asyncio.sleep(interval.pause())
            try:
                found = await self._kubectl.get(target)
            except (UserError, ValueError) as error:
                self._log.write(f"cannot look: {error}")
                if self._loop.time() - interval.last > PATIENCE or "Forbidden" in str(error):
                    raise
            else:
                interval.last = self._loop.time()
                return found


def _is_data(value: Any) -> bool:
    return isinstance(value, Stored) and value.kind == "json"
