"""Resource steps: a Kubernetes object is created (applied, patched, …) and looked at until a condition holds. By kubectl, with
the user's own kubeconfig. Found by its entry point; called by engine.loop.

Conditions read `object` and its parts `status`, `spec` and `metadata`; so do outputs, and `inputs` besides; an output without a
value is the whole object. A field that is not there yet means "not yet". Failure is asked before success. Without a success
condition the step is over as soon as the object has been accepted and is not a failure; `delete` is over when it is gone.

Creating is repeated safely: the name is the manifest's, or made of its generateName and the order's id, so the same attempt
after a crash finds its object by name. Annotations say which run and task it belongs to; an object of that name that is
somebody else's is an error. A second try of a task with a fixed name finds the object of the first; generateName gives each
try its own.

Stopping ends the looking. Nothing is deleted: what is in the cluster may be shared, and may be wanted for a look.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.artifacts import values
from penstock.backends import places
from penstock.backends.base import Began, Context, Ended, LogPart, Order
from penstock.backends.tools import NO_ANSWER, Answer, ask, find
from penstock.errors import Problem, UserError
from penstock.graph import model
from penstock.graph.evaluate import EvaluationError, evaluate, resolve
from penstock.graph.expr import Expr
from penstock.graph.model import MISSING, Outcome
from penstock.graph.stored import Stored
from penstock.graph.text import read_all_yaml

MOST = 64
"""Objects looked at at the same time: nothing runs here meanwhile."""
FIRST, GROWTH, LONGEST = 0.2, 1.5, 5.0
"""Seconds between two looks, at first, how they grow, and at most."""
PATIENCE = 300.0
"""Seconds that a cluster may be out of reach before a step that waits is given up."""
RUN, TASK, OWNER = "penstock/run", "penstock/task", "penstock/owner"
_OUT_OF_REACH = re.compile(
    r"unable to connect|connection refused|was refused|no such host|i/o timeout|timed? ?out|no route to host|network is unreachable"
    r"|connection reset|current server api group list|no configuration has been provided|invalid configuration"
    r"|error loading config|context .* does not exist|must be logged in|unauthorized|x509|executable .* not found|EOF$",
    re.I | re.M,
)


class Refused(Exception):
    """The object is not as the step wants it, in a sentence."""


@dataclass(frozen=True, slots=True)
class Target:
    """The object, by what finds it."""

    manifest: dict[str, Any]

    @property
    def text(self) -> str:
        return json.dumps(self.manifest, default=str)

    @property
    def reference(self) -> str:
        """Enough for `get`."""
        meta = self.manifest["metadata"]
        short = {key: meta[key] for key in ("name", "namespace") if key in meta}
        return json.dumps({key: self.manifest[key] for key in ("apiVersion", "kind")} | {"metadata": short})

    def __str__(self) -> str:
        meta = self.manifest["metadata"]
        return f"{self.manifest['kind']} {meta['namespace'] + '/' if meta.get('namespace') else ''}{meta['name']}"


@dataclass(slots=True)
class Looks:
    """How often to look: soon at first, then more rarely."""

    last: float
    """When it was last seen."""
    wait: float = FIRST

    def pause(self) -> float:
        pause, self.wait = self.wait, min(self.wait * GROWTH, LONGEST)
        return pause


class Resource:
    """A Backend."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._environ = dict(context.environ)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Semaphore(max(2, context.jobs))
        self._closing = False

    def room(self) -> int:
        return max(0, MOST - len(self._tasks))

    def start(self, orders: Sequence[Order]) -> None:
        for order in orders:
            task = self._tasks[order.id] = self._loop.create_task(self._run(order))
            task.add_done_callback(lambda _, id=order.id: self._never_began(id))  # type: ignore[misc]

    def stop(self, id: str, grace: float) -> None:
        if id in self._tasks:
            self._tasks[id].cancel()

    def _never_began(self, id: str) -> None:
        """A task that is cancelled before its first step does not run at all."""
        if self._tasks.pop(id, None) is not None and not self._closing:
            self._context.inbox.put(Ended(id=id, outcome=Outcome.CANCELLED, message="stopped before it began"))

    async def close(self) -> None:
        self._closing = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- one attempt, from beginning to end ---------------------------------------------------------------------------

    async def _run(self, order: Order) -> None:
        started = self._loop.time()
        ended = Ended(id=order.id, outcome=Outcome.SUCCEEDED)
        diary = Diary(self._context.home, places.log_name(order))
        self._context.inbox.put(Began(id=order.id, log=((diary.name, 0, None),)))
        try:
            object_ = await self._attempt(order, diary)
            ended.outputs = await asyncio.to_thread(self._outputs, order, object_)
        except asyncio.CancelledError:
            ended.outcome, ended.message = Outcome.CANCELLED, f"stopped; {diary.what} is left as it is"
        except Refused as error:
            ended.outcome, ended.message = Outcome.FAILED, str(error)
        except Exception as error:
            ended.outcome, ended.message = Outcome.ERRORED, str(error) or type(error).__name__
        if ended.message:
            diary.write(ended.message)
        ended.seconds, ended.log = self._loop.time() - started, diary.part()
        del self._tasks[order.id]
        if not self._closing:
            self._context.inbox.put(ended)

    async def _attempt(self, order: Order, diary: Diary) -> Any:
        """The object as it was when the step was over. Raises Refused, UserError, ValueError."""
        action = order.action
        assert isinstance(action, model.Resource)
        target = Target(_manifest(action, order, self._owner()))
        diary.what = str(target)
        diary.write(f"{action.action} {target}")
        if action.action == "delete":
            return await self._delete(target, diary)
        object_ = await self._act(action.action, target, diary)
        uid, looks = _uid(object_), Looks(self._loop.time())
        while object_ is not None and _uid(object_) == uid:
            if judge(action, target, object_, diary):
                return object_
            assert action.success_condition is not None
            diary.write(f"waiting for {action.success_condition.text}")
            object_ = await self._look_again(target, looks, diary)
        raise Refused(f"{target} was deleted by somebody while this step was waiting for it")

    async def _delete(self, target: Target, diary: Diary) -> Any:
        """Over when it is gone, finalizers and all. What is not there need not be deleted."""
        before = found = await self._look(target)
        if before is None:
            return None
        words = ("delete", "--filename", "-", "--wait=false", "--ignore-not-found")
        _checked(await self._kubectl(target.reference, *words))
        looks = Looks(self._loop.time())
        while found is not None and _uid(found) == _uid(before):
            found = await self._look_again(target, looks, diary)
        return before

    async def _look_again(self, target: Target, looks: Looks, diary: Diary) -> Any:
        """After a while; None if it is gone. A cluster that is out of reach for a moment is asked again."""
        while True:
            await asyncio.sleep(looks.pause())
            try:
                found = await self._look(target)
            except (UserError, ValueError) as error:
                diary.write(f"cannot look: {error}")
                if self._loop.time() - looks.last > PATIENCE or "Forbidden" in str(error):
                    raise
            else:
                looks.last = self._loop.time()
                return found

    async def _act(self, verb: str, target: Target, diary: Diary) -> Any:
        """The object as the cluster has it then."""
        if verb == "patch":
            words = ["patch", "--filename", "-", "--patch", target.text, "--output", "json"]
            answer = await self._kubectl(target.reference, *words, "--type=strategic")
            if "UnsupportedMediaType" in answer.err or "is not supported by" in answer.err:  # custom resources
                answer = await self._kubectl(target.reference, *words, "--type=merge")
            return _parsed(_checked(answer))
        answer = await self._kubectl(target.text, verb, "--filename", "-", "--output", "json")
        if verb == "create" and "(AlreadyExists)" in answer.err:
            diary.write("it is there already")
            return self._own(await self._look(target), target)
        if verb == "get" and "(NotFound)" in answer.err:
            raise Refused(f"there is no {target}")
        return _parsed(_checked(answer))

    async def _look(self, target: Target) -> Any:
        answer = await self._kubectl(target.reference, "get", "--filename", "-", "--output", "json")
        return None if "(NotFound)" in answer.err else _parsed(_checked(answer))

    def _own(self, found: Any, target: Target) -> Any:
        """Ours from before, or somebody else's?"""
        if found is None:
            raise ValueError(f"{target} was being deleted when it was to be created; try again")
        theirs = (found.get("metadata") or {}).get("annotations") or {}
        ours = target.manifest["metadata"]["annotations"]
        if any(theirs.get(key) != ours[key] for key in (RUN, TASK, OWNER)):
            whose = f"of run {theirs[RUN]}, task {theirs.get(TASK)}" if RUN in theirs else "not made by Penstock"
            fix = "give the manifest another name, or generateName, or use the action apply"
            raise ValueError(f"{target} exists already and is {whose}; {fix}")
        return found

    # -- the outside --------------------------------------------------------------------------------------------------

    async def _kubectl(self, given: str, *words: str) -> Answer:
        tool = find(self._environ, "PENSTOCK_KUBECTL", ("kubectl",))
        if tool is None:
            chosen = self._environ.get("PENSTOCK_KUBECTL")
            what = f"there is no {chosen}" if chosen else "there is no kubectl in PATH"
            fix = "install kubectl, or name it by PENSTOCK_KUBECTL"
            raise UserError(Problem("P704", f"Kubernetes cannot be reached: {what}", fix))
        async with self._turn:
            return await ask([*tool, *words, "--request-timeout=30s"], self._environ, given)

    def _owner(self) -> str:
        """Runs are numbered by their store: another store has a finetune-1 too."""
        store = self._environ.get("PENSTOCK_STORE", "")
        where = (
            re.sub(r"//[^@/]*@", "//", store)
            if "://" in store
            else f"{platform.node()}:{self._context.home.absolute()}"
        )
        return hashlib.sha256(where.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def _outputs(self, order: Order, object_: Any) -> dict[str, Any]:
        """In another thread: a value may be large."""
        blobs, found = self._context.blobs, {}
        inputs = {
            name: values.load(value, blobs, self._context.home / "work") if _is_data(value) else value
            for name, value in order.inputs.items()
        }
        scope = {**parts_of(object_), "inputs": inputs}
        for output in order.step.outputs:
            name = f"the output {output.name!r}"
            try:
                value = object_ if output.value is MISSING else resolve(output.value, scope)
                found[output.name] = values.shelve(value, blobs, type_=output.type, name=name)
            except EvaluationError as error:
                raise Refused(f"{name} has no value: {error}") from None
            except ValueError as error:
                raise Refused(str(error)) from None
        return found


class Diary:
    """The step's log: each thing once, not once for each look."""

    def __init__(self, home: Path, name: str) -> None:
        self.name = name
        self.what = "the object"
        self._path = home / name
        self._last = ""
        os.makedirs(self._path.parent, exist_ok=True)

    def write(self, line: str) -> None:
        if line != self._last:
            self._last = line
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(line + "\n")

    def part(self) -> tuple[LogPart, ...]:
        return ((self.name, 0, self._path.stat().st_size),) if self._path.exists() else ()


# -- decisions --------------------------------------------------------------------------------------------------------


def parts_of(object_: Any) -> dict[str, Any]:
    whole = object_ if isinstance(object_, Mapping) else {}
    return {"object": whole, **{part: whole.get(part) or {} for part in ("status", "spec", "metadata")}}


def judge(action: model.Resource, target: Target, object_: Any, diary: Diary) -> bool:
    """True: it has succeeded. Raises Refused if it has failed."""
    scope = parts_of(object_)
    failure, success = action.failure_condition, action.success_condition
    if failure is not None and _holds(failure, scope, diary):
        raise Refused(f"{target} has failed: {failure.text}{_why(scope['status'])}")
    return success is None or _holds(success, scope, diary)


def _holds(condition: Expr, scope: Mapping[str, Any], diary: Diary) -> bool:
    """A field that is not there yet makes it false; any other trouble too, since the object may still change, but is told."""
    try:
        found = evaluate(condition, scope)
    except EvaluationError as error:
        if not str(error).startswith("there is no field"):
            diary.write(f"{condition.text}: {error}")
        return False
    if not isinstance(found, bool):
        diary.write(f"{condition.text}: {found!r} is neither true nor false")
    return found is True


def _why(status: Any) -> str:
    """What the object itself says about its state."""
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    told = [
        one
        for one in conditions or []
        if isinstance(one, Mapping) and one.get("status") == "True" and one.get("message")
    ]
    message = told[-1]["message"] if told else status.get("message") if isinstance(status, Mapping) else None
    return f" ({message})" if message else ""


def _manifest(action: model.Resource, order: Order, owner: str) -> dict[str, Any]:
    """One object with a name. Raises ValueError."""
    data = action.manifest
    if isinstance(data, str):
        found = [document for document, _ in read_all_yaml(data, "the manifest") if document is not None]
        if len(found) != 1:
            raise ValueError(f"the manifest has {len(found)} objects; a resource step has one")
        data = found[0]
    if not isinstance(data, Mapping) or not data.get("apiVersion") or not data.get("kind"):
        raise ValueError("the manifest is not a Kubernetes object: it needs apiVersion, kind and metadata")
    manifest: dict[str, Any] = copy.deepcopy(dict(data))
    meta = manifest.get("metadata")
    meta = manifest["metadata"] = dict(meta) if isinstance(meta, Mapping) else {}
    prefix = meta.pop("generateName", None)
    if not meta.get("name"):
        if not isinstance(prefix, str) or action.action not in ("create", "apply"):
            raise ValueError(f"the manifest of the {manifest['kind']} has no metadata.name")
        digest = hashlib.sha256(f"{owner}\0{order.id}".encode("utf-8", "surrogatepass")).hexdigest()[:10]
        meta["name"] = prefix[:52] + digest
    if action.action == "create":
        meta["annotations"] = {**(meta.get("annotations") or {}), RUN: order.run, TASK: order.task, OWNER: owner}
    return manifest


def _uid(object_: Any) -> str | None:
    return (object_.get("metadata") or {}).get("uid") if isinstance(object_, Mapping) else None


def _is_data(value: Any) -> bool:
    return isinstance(value, Stored) and value.kind == "json"


def _checked(answer: Answer) -> Answer:
    if answer.code != 0:
        raise _trouble(answer)
    return answer


def _parsed(answer: Answer) -> Any:
    try:
        return json.loads(answer.out)
    except ValueError:
        raise ValueError(f"kubectl answered what is not JSON: {answer.out[:80]!r}") from None


def _trouble(answer: Answer) -> Exception:
    if answer.code == NO_ANSWER or _OUT_OF_REACH.search(answer.err):
        fix = "see what `kubectl cluster-info` says, and choose the cluster with `kubectl config use-context` or KUBECONFIG"
        return UserError(Problem("P704", f"Kubernetes cannot be reached: {answer.line}", fix))
    return ValueError(f"kubectl: {answer.line}")
