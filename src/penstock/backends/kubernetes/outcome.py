"""A Job and its pods as they are seen -> how far the attempt is, and why. Called by attempt at each change. Pure.

What is no fault of the task makes it `lost`: its pod was evicted, preempted or deleted, or its node is gone. The engine starts it again
and does not count it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.backends.kubernetes.names import INDEX
from penstock.backends.own_error import parsed
from penstock.errors import Problem, UserError
from penstock.graph.model import Outcome
from penstock.kubernetes.objects import Object, annotations_of, condition, holds, is_deleted, name_of, part, rows

LOST: Final = frozenset(
    "Evicted NodeLost NodeShutdown Shutdown Terminated Preempting UnexpectedAdmissionError NodeAffinity OutOfcpu OutOfmemory OutOfpods".split()
)
"""Reasons in the status of a pod that its node ended or refused."""
REJECTED: Final = "ApplicationRejected"
TOO_LATE: Final = "ResourceReservationTimeout"
"""Reasons that YuniKorn gives for pods that it ends before they run: of a job that its queue never takes, of a gang that does not come together."""
NEVER: Final = frozenset({"ErrImageNeverPull", "InvalidImageName"})
PULL: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError"})
CONFIG: Final = frozenset({"CreateContainerConfigError", "CreateContainerError"})
_FOR_GOOD: Final = ("not found", "does not exist", "unauthorized", "denied", "forbidden", "manifest unknown")
"""Said of an image that will not be there at the next try either."""
_PASSING: Final = (
    "context canceled",
    "deadline exceeded",
    "ttrpc: closed",
    "connection refused",
    "resource temporarily unavailable",
)
"""Said when a machine is too busy to start a container, which is no fault of the container."""
_CANNOT_START: Final = frozenset({"StartError", "ContainerCannotRun", "RunContainerError"})
OURS: Final = {"fetch": "its inputs could not be fetched", "put": "its outputs could not be stored"}
LEADER: Final = "put"
OOM: Final = "P725"
"""The code of a container that used too much memory."""
_OVER: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Containers:
    """What the containers of a pod are."""

    parts: Mapping[str, str]
    """Those of the task that it waits for -> the part of the step that each runs; empty: the step is one command."""
    sidecars: Mapping[str, str] = field(default_factory=dict)
    """The same, for those that stay until the others have ended."""
    several: bool = False
    led: bool = False
    """Does one of ours say when each part runs, and how all of it ended?"""

    def said(self, name: str, message: str) -> str:
        """What is to say about a container, with the part that it runs."""
        part = self.parts.get(name) or self.sidecars.get(name)
        return f"part {part}: {message}" if self.several and part else message


ONE: Final = Containers({"main": ""})


Told = tuple[tuple[int, str, str], ...]
"""(replica, pod, container)"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """It does not run yet, or not everywhere."""

    why: str = ""
    """A sentence; empty: nothing is wrong."""
    patience: float | None = None
    """Seconds for which that may last. None: as long as it takes."""
    problem: Problem | None = None
    """What the attempt ends with after that."""


@dataclass(frozen=True, slots=True)
class Running:
    pods: Told
    """Containers of the task that run or have run, those that stay among them."""


@dataclass(frozen=True, slots=True)
class Ended:
    outcome: Outcome
    message: str = ""
    exit_code: int | None = None
    lost: bool = False
    preempted: bool = False
    """Lost because something of a higher priority needed its place."""
    result: str = ""
    """The digest of what the helper or the function stored."""
    replica: int = 0
    pods: Told = ()
    cause: str = ""
    """As AttemptEnded has it, if that is known."""
    own_error: str = ""
    """What the container said of its failure."""
    unseen: bool = False
    """So it seems because something was not seen. A watch that is behind the other one does not show it either: ask the server before it is believed."""


State = Waiting | Running | Ended


def cause_of(ended: Ended) -> str:
    """What kind of failure it was: see AttemptEnded."""
    if ended.cause or ended.outcome in (Outcome.SUCCEEDED, Outcome.CANCELLED):
        return ended.cause
    return "NodeLost" if ended.lost else "OutOfMemory" if OOM in ended.message else ""


def judge(
    job: Object | None,
    pods: Sequence[Object],
    replicas: int,
    image: str,
    patience: float,
    queue: str = "",
    own: Containers = ONE,
) -> State:
    """`job`: None if it is not there any more. `image`: of the task. `patience`: seconds for which a pod may wait for a machine. `queue`: of the
    cluster's scheduler, in words, if one holds its pods: what it does to them is no fault of theirs, and they wait in it for as long as it takes.
    `own`: what its containers are."""
    by_replica = _newest(pods)
    deleted = job is None or is_deleted(job)
    told = tuple(one for replica, pod in sorted(by_replica.items()) for one in _told(replica, pod, own))
    phases = {replica: _phase(pod, own) for replica, pod in by_replica.items()}
    failed = [pair for pair in sorted(by_replica.items(), key=_ended_at) if phases[pair[0]] == "Failed"]
    if failed and not deleted:
        replica, pod = failed[0]
        cause = _taken_before(by_replica.values(), _ended_at(failed[0])[0])
        if cause is not None:  # the others of a gang fail for want of it
            return Ended(Outcome.ERRORED, _disruption(cause), lost=True, preempted=_preempted(cause), pods=told)
        found = _by_queue(pod, queue, told) if queue else None
        return found or _explained(pod, replica, replicas, told, own)
    done = {replica: pod for replica, pod in by_replica.items() if phases[replica] == "Succeeded"}
    if len(done) >= replicas:
        return _succeeded(done[min(done)], told, own)
    if deleted:
        return Ended(Outcome.ERRORED, "its Job was deleted by somebody", lost=True, pods=told, unseen=True)
    assert job is not None
    if holds(job, "Failed"):
        return _without_pod(job, told, bool(queue))
    taken = [pod for pod in by_replica.values() if is_deleted(pod) and holds(pod, "DisruptionTarget")]
    if taken:  # its machine may never answer again
        return Ended(Outcome.ERRORED, _disruption(taken[0]), lost=True, preempted=_preempted(taken[0]), pods=told)
    waiting = [_waiting(pod, image, patience, queue, own) for pod in by_replica.values() if not _is_over(pod, own)]
    worst = min(
        (one for one in waiting if one.why), key=lambda one: 1e9 if one.patience is None else one.patience, default=None
    )
    if worst is not None:
        return worst
    if any(container in own.parts for _, _, container in told) and len(by_replica) >= replicas:
        return Running(told)
    if part(job, "spec").get("suspend"):
        return Waiting("its Job is suspended: a queue of the cluster lets it go")
    return Waiting()


def _newest(pods: Iterable[Object]) -> dict[int, Object]:
    found: dict[int, Object] = {}
    for pod in sorted(pods, key=lambda one: str(part(one, "metadata").get("creationTimestamp", ""))):
        number = str(annotations_of(pod).get(INDEX, "0"))
        found[int(number) if number.isdigit() else 0] = pod
    return found


def _phase(pod: Object, own: Containers) -> str:
    """Of its status; but it has ended when the leader of its parts has, or all that does not stay."""
    phase = str(part(pod, "status").get("phase", ""))
    if own.led:
        ends = {name: part(one, "state", "terminated") for name, one in _containers(pod)}
        end = ends.get(LEADER)
        if end and end.get("exitCode") == 0:
            return "Succeeded"
        if not end or _says_why(pod):
            return phase
        blamed = next((name for name, shown in own.parts.items() if shown == _said(end).get("part")), None)
        if phase not in _OVER and blamed is not None and not ends.get(blamed):
            return phase  # its last words come at once
        return "Failed"
    if not own.sidecars or phase in _OVER:
        return phase
    inits = [one for one in rows(pod, "status", "initContainerStatuses") if one.get("name") not in own.sidecars]
    first = [part(one, "state", "terminated") for one in inits]
    last = [part(one, "state", "terminated") for one in rows(pod, "status", "containerStatuses")]
    if any(end.get("exitCode") for end in first):
        return "Failed"
    if not last or not all(last):
        return phase
    return "Failed" if any(end.get("exitCode") for end in last) else "Succeeded"


def _is_over(pod: Object, own: Containers) -> bool:
    """Does what a container waits for no longer matter?"""
    ended = any(name == LEADER and part(one, "state", "terminated") for name, one in _containers(pod))
    return _phase(pod, own) == "Succeeded" or (own.led and ended)


def _says_why(pod: Object) -> bool:
    """Has its node or the scheduler taken it away?"""
    return str(part(pod, "status").get("reason", "")) in LOST or holds(pod, "DisruptionTarget")


def _containers(pod: Object) -> list[tuple[str, Object]]:
    """(name, status) in the order in which they run."""
    rows_ = [*rows(pod, "status", "initContainerStatuses"), *rows(pod, "status", "containerStatuses")]
    return [(str(one.get("name", "")), one) for one in rows_]


def _ended_at(pair: tuple[int, Object]) -> tuple[str, int]:
    """A container that failed tells more than one that was ended because of it."""
    times = [str(part(one, "state", "terminated").get("finishedAt", "")) for _, one in _containers(pair[1])]
    return max(times, default=""), pair[0]


def _told(replica: int, pod: Object, own: Containers) -> Told:
    """Its containers with a log."""
    kept = {*own.parts, *own.sidecars, *((LEADER,) if own.led else ())}
    states = [(name, part(one, "state")) for name, one in _containers(pod) if name in kept]
    return tuple((replica, name_of(pod), name) for name, state in states if "running" in state or "terminated" in state)


# -- ended ------------------------------------------------------------------------------------------------------------


def _succeeded(pod: Object, told: Told, own: Containers) -> Ended:
    ends = [(name, part(one, "state", "terminated")) for name, one in _containers(pod)]
    said: Mapping[str, Any] = {}
    for name, end in ends:
        if name == "put" or (name == "main" and own == ONE):
            said = _said(end) if name == "put" or "result" in _said(end) else said
    return Ended(Outcome.SUCCEEDED, exit_code=0, result=str(said.get("result", "")), pods=told)


def _explained(pod: Object, replica: int, replicas: int, told: Told, own: Containers) -> Ended:
    where = f"replica {replica}: " if replicas > 1 else ""

    def ended(outcome: Outcome, message: str, code: int | None = None, lost: bool = False, result: str = "") -> Ended:
        return Ended(outcome, where + message, code, lost, lost and _preempted(pod), result, replica, told)

    status = part(pod, "status")
    reason = str(status.get("reason", ""))
    if reason == "DeadlineExceeded":
        return ended(
            Outcome.FAILED, f"its pod ran out of the time that the cluster gives it ({status.get('message', reason)})"
        )
    if _says_why(pod):
        return ended(Outcome.ERRORED, _disruption(pod, own), lost=True)
    if own.led:
        led = _led(pod, own)
        if led is not None:
            return ended(*led)
    ordered = sorted(_containers(pod), key=lambda pair: own.led and pair[0] != LEADER)
    for name, one in ordered:
        end = part(one, "state", "terminated")
        code = end.get("exitCode")
        if not end or code == 0 or name in own.sidecars:
            continue
        if end.get("reason") == "ContainerStatusUnknown":
            return ended(Outcome.ERRORED, f"nobody knows how its pod {name_of(pod)} ended", lost=True)
        if name in OURS:
            return ended(*_of_helper(name, end))
        if is_deleted(pod) and code in (137, 143) and end.get("reason") != "OOMKilled":
            return ended(Outcome.ERRORED, "its pod was deleted by somebody", lost=True)
        if name not in own.parts:
            return ended(
                Outcome.FAILED, f"the container {name} of its pod ended with exit code {code}{_words(end)}", code
            )
        found = ended(*_of_task(end, name, pod, int(code or 0), own))
        said = str(end.get("message", ""))
        return replace(found, own_error=said) if found.outcome is Outcome.FAILED and parsed(said) else found
    message = str(status.get("message") or reason or "its pod failed, and Kubernetes does not say why")
    return ended(Outcome.ERRORED, message, lost=is_deleted(pod))


def _led(pod: Object, own: Containers) -> tuple[Outcome, str, int | None, bool] | None:
    """What the leader says of a part that failed."""
    containers = dict(_containers(pod))
    said = _said(part(containers.get(LEADER, {}), "state", "terminated"))
    if "part" not in said:
        return None
    name = next((name for name, shown in own.parts.items() if shown == said["part"]), "")
    end = part(containers.get(name, {}), "state", "terminated")
    code = int(said["code"]) if said["code"] else None
    if is_deleted(pod) and code in (137, 143) and end.get("reason") != "OOMKilled":
        return Outcome.ERRORED, "its pod was deleted by somebody", None, True
    if said["why"]:
        return Outcome.FAILED, own.said(name, str(said["why"])), code, False
    own_code = int(end.get("exitCode") or 0) or int(code or 0)
    outcome, message, code, lost, _ = _of_task(end, name, pod, own_code, own)
    return outcome, message, code, lost


def _of_helper(name: str, end: Object) -> tuple[Outcome, str, int | None]:
    said = _said(end)
    if "failed" in said:
        return Outcome.FAILED, str(said["failed"]), 0
    why = str(said.get("errored") or _last_line(end) or f"exit code {end.get('exitCode')}")
    fix = "see what the message says; the image of PENSTOCK_KUBERNETES_IMAGE needs Python 3.11 and the way to the artifact store"
    return Outcome.ERRORED, str(UserError(Problem("P728", f"{OURS[name]}: {why}", fix))), None


def _of_task(
    end: Object, name: str, pod: Object, code: int, own: Containers
) -> tuple[Outcome, str, int | None, bool, str]:
    reason, said = str(end.get("reason", "")), _said(end)
    if reason == "OOMKilled":
        limit = _memory_limit(pod, name)
        message = own.said(name, f"its container was killed: it used more memory than {limit or 'its machine has'}")
        if _last_line(end):
            message += f"; its last words: {_last_line(end)}"
        fix = (
            "give the step more memory"
            if limit
            else "give the step as much memory as it needs, so that it gets a machine that has it"
        )
        return Outcome.FAILED, str(UserError(Problem(OOM, message, fix))), code, False, ""
    if reason in _CANNOT_START or (code == 128 and end.get("message") and reason != "Error"):
        message = str(end.get("message") or reason)
        lost = any(one in message.lower() for one in _PASSING)
        return Outcome.ERRORED, own.said(name, f"its container cannot be started: {message}"), None, lost, ""
    if "result" in said and own == ONE:
        return Outcome.FAILED, "", code, False, str(said["result"])
    if "errored" in said and own == ONE:
        return Outcome.ERRORED, str(said["errored"]), None, False, ""
    return Outcome.FAILED, own.said(name, how(code) + _words(end)), code, False, ""


def how(code: int) -> str:
    """An exit code in words. A signal is 128 plus its number."""
    names = {
        129: "SIGHUP",
        130: "SIGINT",
        132: "SIGILL",
        134: "SIGABRT",
        135: "SIGBUS",
        136: "SIGFPE",
        137: "SIGKILL",
        139: "SIGSEGV",
        141: "SIGPIPE",
        143: "SIGTERM",
    }
    return f"exit code {code} ({names[code]})" if code in names else f"exit code {code}"


def _taken_before(pods: Iterable[Object], moment: str) -> Object | None:
    """The first pod that was being taken away at that moment, or before."""
    marked = [(str(condition(pod, "DisruptionTarget").get("lastTransitionTime", "")), pod) for pod in pods]
    found = [pair for pair in marked if holds(pair[1], "DisruptionTarget") and "" < pair[0] <= moment]
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _disruption(pod: Object, own: Containers = ONE) -> str:
    status = part(pod, "status")
    why = condition(pod, "DisruptionTarget")
    words = why.get("message") or status.get("message") or why.get("reason") or status.get("reason") or ""
    last = next(
        (_last_line(part(one, "state", "terminated")) for name, one in _containers(pod) if name in own.parts), ""
    )
    spoken = f"; the last words of its container: {last}" if last else ""
    return f"its pod was taken away: {words or 'the cluster does not say why'}{spoken}"


def _preempted(pod: Object) -> bool:
    """By the scheduler, or by its node for a pod that the node cannot do without."""
    why = str(condition(pod, "DisruptionTarget").get("reason", ""))
    return why == "PreemptionByScheduler" or str(part(pod, "status").get("reason", "")) == "Preempting"


def _by_queue(pod: Object, queue: str, told: Told) -> Ended | None:
    """What the scheduler of its queue did to a pod. It ends what it preempts by deleting it, and says no more."""
    status = part(pod, "status")
    reason, message = str(status.get("reason", "")), str(status.get("message") or "").strip()
    if reason == REJECTED:
        fix = "name another queue, ask for less, or have the queue changed"
        problem = Problem("P724", f"{queue} does not take it: {message or reason}", fix)
        return Ended(Outcome.ERRORED, str(UserError(problem)), pods=told)
    if reason == TOO_LATE:
        why = f"{queue} had no room for all of its pods in time: they wait again"
        return Ended(Outcome.ERRORED, why, lost=True, preempted=True, pods=told)
    ends = [part(one, "state", "terminated") for _, one in _containers(pod)]
    if is_deleted(pod) and any(one.get("exitCode") in (137, 143) and one.get("reason") != "OOMKilled" for one in ends):
        return Ended(
            Outcome.ERRORED, f"its pod was deleted; {queue} may have preempted it", lost=True, preempted=True, pods=told
        )
    return None


def _without_pod(job: Object, told: Told, queued: bool) -> Ended:
    """The Job has failed, and none of its pods that are there has."""
    why = condition(job, "Failed")
    if why.get("reason") == "DeadlineExceeded":
        return Ended(Outcome.FAILED, "its Job ran out of the time that the cluster gives it", pods=told)
    return Ended(
        Outcome.ERRORED,
        "its pod was deleted, or its machine is gone",
        lost=True,
        preempted=queued,
        pods=told,
        unseen=True,
    )


def _memory_limit(pod: Object, name: str) -> str:
    for one in (*rows(pod, "spec", "initContainers"), *rows(pod, "spec", "containers")):
        if one.get("name") == name:
            return str(part(one, "resources", "limits").get("memory", ""))
    return ""


def _said(end: Object) -> Mapping[str, Any]:
    """The termination message of one of our programs."""
    try:
        found = json.loads(str(end.get("message", "")))
    except ValueError:
        return {}
    ours = isinstance(found, dict) and set(found) in ({"result"}, {"failed"}, {"errored"}, {"part", "code", "why"})
    return found if ours and all(isinstance(value, str) for value in found.values()) else {}


def _last_line(end: Object) -> str:
    lines = [line.strip() for line in str(end.get("message", "")).splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""


def _words(end: Object) -> str:
    """What the container said last."""
    line = _last_line(end)
    return f": {line}" if line else ""


# -- not yet ----------------------------------------------------------------------------------------------------------


def _waiting(pod: Object, image: str, patience: float, queue: str, own: Containers) -> Waiting:
    for name, one in _containers(pod):
        never = _never_starts(name, one, own)
        if never is not None:
            return never
        state = part(one, "state", "waiting")
        reason, message = str(state.get("reason", "")), str(state.get("message", ""))
        used = str(one.get("image") or image)
        if reason in NEVER or reason in PULL:
            final = reason in NEVER or any(word in message.lower() for word in _FOR_GOOD)
            why = f"the image {used} cannot be pulled: {message or reason}"
            fix = "correct its name; for a private registry give the pods imagePullSecrets (PENSTOCK_KUBERNETES_POD)"
            return Waiting(why, 0.0 if final else 60.0, Problem("P722", why, fix))
        if reason in CONFIG:
            why = f"the container {name} cannot be made: {message or reason}"
            fix = "make what the pod names, or leave it out of the step and of PENSTOCK_KUBERNETES_POD"
            return Waiting(why, 30.0, Problem("P723", why, fix))
    scheduled = condition(pod, "PodScheduled")
    if queue and not part(pod, "spec").get("nodeName"):
        said = str(scheduled.get("message") or "") if scheduled.get("status") == "False" else ""
        return Waiting(f"it waits in {queue}{f': {said}' if said else ''}")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        why = f"no machine takes its pod: {scheduled.get('message', '')}"
        fix = "ask for less, correct the node selector, or add machines; PENSTOCK_KUBERNETES_PATIENCE says how many seconds a pod may wait"
        return Waiting(why, patience, Problem("P723", why, fix))
    return Waiting()


def _never_starts(name: str, one: Object, own: Containers) -> Waiting | None:
    """A container that others wait for, and that its node cannot start: one that stays, and one whose leader waits for it."""
    states = (part(one, "state", "terminated"), part(one, "lastState", "terminated"))
    end = next((end for end in states if end.get("reason") in _CANNOT_START), None)
    if end is None or not (name in own.sidecars or (own.led and name in own.parts)):
        return None
    why = own.said(name, f"its container cannot be started: {end.get('message') or end.get('reason')}")
    fix = "correct its command; a part that waits for others, or that others wait for, needs a shell (sh) in its image"
    return Waiting(why, 0.0, Problem("P723", why, fix))


def refused(message: str, alone: bool, patience: float) -> Waiting:
    """The cluster does not make the pods of a Job. `alone`: no other task of this engine has pods that may go and make room."""
    if "exceeded quota" in message:
        why = f"the quota of the namespace is full: {message}"
        fix = "ask for less, end what uses the quota, or raise it (kubectl describe resourcequota)"
        return Waiting(why, 0.0 if alone else patience, Problem("P724", why, fix))
    why = f"the cluster refuses its pod: {message}"
    fix = (
        "change what it refuses by the step's own fields or by PENSTOCK_KUBERNETES_POD, or ask whoever runs the cluster"
    )
    return Waiting(why, 0.0, Problem("P724", why, fix))
