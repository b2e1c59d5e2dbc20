"""Resource steps: a Kubernetes object is created (applied, patched, …) and polled until a condition holds. Found by the registry;
called by the engine.

Conditions read `object` and its parts `status`, `spec` and `metadata`; so do outputs, which also read `inputs`; an output without
a value is the whole object. A field that does not exist yet means "not yet". Failure is checked before success. Without a success
condition the step is over as soon as the object has been accepted and is not a failure; `delete` is over when the object is gone.

Stopping ends the polling and deletes nothing: the object may be shared, or needed for inspection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import rights
from penstock.artifacts import values
from penstock.backends import folders
from penstock.backends.base import Abilities, AttemptEnded, AttemptSpec, AttemptStarted, BackendContext, LogPart
from penstock.backends.kubectl import Kubectl, KubernetesObject, object_of, uid_of
from penstock.backends.owner import owner_of
from penstock.errors import UserError
from penstock.expressions.evaluate import EvaluationError, evaluate, resolve
from penstock.expressions.parse import Expr
from penstock.graph import model
from penstock.graph.model import MISSING, Outcome
from penstock.graph.stored import Stored

MOST = 64
"""Objects polled at the same time: nothing runs here meanwhile."""
FIRST, GROWTH, LONGEST = 0.2, 1.5, 5.0
"""Seconds between two polls: at first, their growth, and at most."""
PATIENCE = 300.0
"""Seconds for which a cluster may be unreachable before a waiting step is given up."""


class ResourceFailed(Exception):
    """The object is not as the step wants it. The message is a sentence."""


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
        self.what = "the object"
        self._path = home / name
        self._last = ""
        rights.make_folder(self._path.parent)

    def write(self, line: str) -> None:
        if line != self._last:
            self._last = line
            with open(self._path, "a", encoding="utf-8", opener=rights.opener) as file:
                file.write(line + "\n")

    def part(self) -> tuple[LogPart, ...]:
        return ((self.name, 0, self._path.stat().st_size),) if self._path.exists() else ()


class ResourceBackend:
    """A Backend."""

    abilities = Abilities()

    def __init__(self, context: BackendContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._kubectl = Kubectl(context.environ, max(2, context.jobs))
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closing = False

    def room(self) -> int:
        return max(0, MOST - len(self._tasks))

    def start(self, specs: Sequence[AttemptSpec]) -> None:
        for spec in specs:
            task = self._tasks[spec.id] = self._loop.create_task(self._run(spec))
            task.add_done_callback(lambda _, id=spec.id: self._never_began(id))  # type: ignore[misc]

    def stop(self, id: str, grace: float) -> None:
        if id in self._tasks:
            self._tasks[id].cancel()

    def _never_began(self, id: str) -> None:
        """An asyncio task that is cancelled before its first step does not run at all."""
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
        self._context.inbox.put(AttemptStarted(id=spec.id, log=((log.name, 0, None),)))
        try:
            object_ = await self._attempt(spec, log)
            ended.outputs = await asyncio.to_thread(self._outputs, spec, object_)
        except asyncio.CancelledError:
            ended.outcome, ended.message = Outcome.CANCELLED, f"stopped; {log.what} is left as it is"
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

    async def _attempt(self, spec: AttemptSpec, log: ResourceLog) -> Any:
        """The object as it was when the step was over. Raises ResourceFailed, UserError, ValueError."""
        action = spec.action
        assert isinstance(action, model.Resource)
        target = object_of(action, spec, owner_of(self._context))
        log.what = str(target)
        log.write(f"{action.action} {target}")
        if action.action == "delete":
            return await self._delete(target, log)
        object_ = await self._act(action.action, target, log)
        uid, interval = uid_of(object_), PollInterval(self._loop.time())
        while object_ is not None and uid_of(object_) == uid:
            if judge(action, target, object_, log):
                return object_
            assert action.success_condition is not None
            log.write(f"waiting for {action.success_condition.text}")
            object_ = await self._poll(target, interval, log)
        raise ResourceFailed(f"{target} was deleted by somebody while this step was waiting for it")

    async def _delete(self, target: KubernetesObject, log: ResourceLog) -> Any:
        """Over when the object is gone, with its finalizers."""
        before = found = await self._kubectl.get(target)
        if before is None:
            return None
        await self._kubectl.delete(target)
        interval = PollInterval(self._loop.time())
        while found is not None and uid_of(found) == uid_of(before):
            found = await self._poll(target, interval, log)
        return before

    async def _act(self, verb: str, target: KubernetesObject, log: ResourceLog) -> Any:
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
        created = await self._kubectl.create(target)
        if created is None:
            log.write("it is there already")
            created = target.check_ours(await self._kubectl.get(target))
        return created

    async def _poll(self, target: KubernetesObject, interval: PollInterval, log: ResourceLog) -> Any:
        """Waits a while, then gets the object; None if it is gone. Tries again for some time if the cluster is unreachable."""
        while True:
            await asyncio.sleep(interval.pause())
            try:
                found = await self._kubectl.get(target)
            except (UserError, ValueError) as error:
                log.write(f"cannot look: {error}")
                if self._loop.time() - interval.last > PATIENCE or "Forbidden" in str(error):
                    raise
            else:
                interval.last = self._loop.time()
                return found

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


# -- conditions -------------------------------------------------------------------------------------------------------


def parts_of(object_: Any) -> dict[str, Any]:
    whole = object_ if isinstance(object_, Mapping) else {}
    return {"object": whole, **{part: whole.get(part) or {} for part in ("status", "spec", "metadata")}}


def judge(action: model.Resource, target: KubernetesObject, object_: Any, log: ResourceLog) -> bool:
    """True: it has succeeded. Raises ResourceFailed if it has failed."""
    scope = parts_of(object_)
    failure, success = action.failure_condition, action.success_condition
    if failure is not None and _holds(failure, scope, log):
        raise ResourceFailed(f"{target} has failed: {failure.text}{_why(scope['status'])}")
    return success is None or _holds(success, scope, log)


def _holds(condition: Expr, scope: Mapping[str, Any], log: ResourceLog) -> bool:
    """A field that does not exist yet makes it false. So does any other error, since the object may still change; that is logged."""
    try:
        found = evaluate(condition, scope)
    except EvaluationError as error:
        if not str(error).startswith("there is no field"):
            log.write(f"{condition.text}: {error}")
        return False
    if not isinstance(found, bool):
        log.write(f"{condition.text}: {found!r} is neither true nor false")
    return found is True


def _why(status: Any) -> str:
    """The message of the object's own conditions."""
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    told = [
        one
        for one in conditions or []
        if isinstance(one, Mapping) and one.get("status") == "True" and one.get("message")
    ]
    message = told[-1]["message"] if told else status.get("message") if isinstance(status, Mapping) else None
    return f" ({message})" if message else ""


def _is_data(value: Any) -> bool:
    return isinstance(value, Stored) and value.kind == "json"
