"""What the webhooks answer: the request of an AdmissionReview in, the response out. Pure; the server in `controller.cluster` calls it.

A workflow that names a queue is made ready for it when it is created; if that is impossible it is refused, with the code and the fix. A pod of a
queued workflow is born with a scheduling gate (a policy sees to that); here the gate is removed at once if an admitted Workload covers the pod. An API
server takes about a second until it applies a policy that is new: a pod that comes without the gate gets it here.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast, get_args

from penstock.controller import names
from penstock.controller.choices import chosen
from penstock.controller.core import Seen, covered_resources, may_run
from penstock.controller.coverage import Assumed, Coverage, Grant, counts_for, is_gated, released, requests_of
from penstock.controller.engine import Engine, Unit
from penstock.controller.objects import (
    Lookup,
    Object,
    annotations_of,
    is_deleted,
    name_of,
    part,
    rows,
    uid_of,
)
from penstock.controller.workload import OwnWorkload, queue_of
from penstock.errors import DocumentError, Problem, UserError
from penstock.formats.gates.marks import MARK, UNDO

_USERS = frozenset({names.UNIT, names.BY_STEPS, names.QUEUED, "penstock/execution-policy", MARK, UNDO})
"""Marks that a new workflow may bring: what users write, the queue of a copied JobSet, and the way back of a manifest that was gated before."""
_BACKENDS = frozenset({"penstock/run", "penstock/task", "penstock/owner"})
"""By these the backend `kubernetes` finds what it has made; the controller does not read them."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""As Kueue takes it."""
_LATER = frozenset(
    {names.STOPPING, names.POD_SET, names.STAGE, names.TASKS, names.PLACE, names.WORKFLOW_UID, names.OPENED}
)
"""Never there at birth. The way back of a forged gate might put one in."""


def unit_of(obj: Object, lookup: Lookup) -> Unit:
    """As the workflow says, or its namespace, or by stage. Raises DocumentError."""
    said = chosen(names.UNIT, obj, lookup)
    if said is None or said in get_args(Unit):
        return cast(Unit, said or "stage")
    known = ", ".join(get_args(Unit))
    raise DocumentError(Problem("P886", f"there is no unit {said!r}", f"write {names.UNIT}: one of {known}"))


def admit_workflow(request: Object, engine: Engine | None, lookup: Lookup) -> dict[str, Any]:
    """The answer for a new workflow object."""
    obj = _with_namespace(part(request, "object"), request)
    if engine is None or not engine.queued(obj):
        return _answer(True)
    try:
        own = _without_marks(obj, lambda key: key.startswith(names.OURS) and key not in _USERS | _BACKENDS)
        unit = unit_of(own, lookup)
        _check_queue(queue_of(own))
        found = engine.adjust(own, unit, lookup)
    except UserError as error:
        return _answer(False, message="; ".join(map(_said, error.problems)))
    made = _without_marks(found.object, _LATER.__contains__)
    return _answer(True, _patch(part(request, "object"), _with_unit(made, unit)), found.warnings)


def _check_queue(name: str) -> None:
    """A Workload could not be made for it. Raises DocumentError."""
    if not _NAME.fullmatch(name):
        said = f"{name!r} is no name of a LocalQueue" if name else f"the label {names.QUEUE} names no queue"
        fix = "write the name of a LocalQueue in the workflow's namespace: lower case letters, digits, - and ."
        raise DocumentError(Problem("P888", said, fix))


def _without_marks(obj: Object, forged: Callable[[str], bool]) -> Object:
    """Without labels and annotations that only the controller may write: what it reads later must be its own words."""
    metadata = dict(part(obj, "metadata"))
    for field in ("labels", "annotations"):
        if any(forged(str(key)) for key in part(metadata, field)):
            metadata[field] = {key: text for key, text in part(metadata, field).items() if not forged(str(key))}
    return {**obj, "metadata": metadata}


def _with_unit(obj: Object, unit: Unit) -> Object:
    """The unit is fixed when the workflow is created, whatever becomes of the namespace's default."""
    metadata = part(obj, "metadata")
    return {**obj, "metadata": {**metadata, "labels": {**part(metadata, "labels"), names.UNIT: unit}}}


def _with_namespace(obj: Object, request: Object) -> Object:
    """A new object may leave its namespace to the request."""
    metadata = {"namespace": request.get("namespace"), **part(obj, "metadata")}
    return {**obj, "metadata": metadata}


def _said(problem: Problem) -> str:
    where = f" ({problem.where})" if problem.where else ""
    return f"penstock {problem.code}: {problem.message}{where}. Fix: {problem.fix}"


_Count = tuple[str, dict[str, int]] | None


class PodAdmitter:
    """What is seen of one workflow, worked out so far that a pod can be answered. Each pod that is let go is counted in it, so it serves many pods."""

    def __init__(self, seen: Seen, before: PodAdmitter | None = None) -> None:
        """`before`: an older one of the same workflow. What has not changed since is not worked out again."""
        self.seen = seen
        known = before.pods if before is not None else {}
        if before is not None and before.seen.observed.main is seen.observed.main and "closed" in before.__dict__:
            self.closed = before.closed
        self.pods: dict[str, tuple[Object, _Count]] = {}
        """By uid, each pod and what it counts for."""
        for pod in seen.observed.pods:
            old = known.get(uid_of(pod))
            self.pods[uid_of(pod)] = old if old is not None and old[0] is pod else (pod, counts_for(pod))
        self.coverage = Coverage([OwnWorkload(one) for one in seen.workloads], (), seen.observed.lookup, seen.assumed)
        for _, count in self.pods.values():
            if count is not None:
                self.coverage.count(*count)
        self._counted = "pods" in covered_resources(seen.observed)

    @cached_property
    def closed(self) -> bool:
        """Nothing new of the workflow is let go."""
        if is_deleted(self.seen.observed.main) or not may_run(self.seen):
            return True
        view = self.seen.engine.view(self.seen.observed, self.seen.unit)
        return bool(view.over or view.problem or view.paused)

    def decide(self, pod: Object) -> Grant | None:
        """What the pod is let go with; None if it waits."""
        task = self.seen.engine.task_of(pod, self.seen.observed, self.seen.unit)
        if not task.stage or not (self._counted or any(requests_of(pod).values())):
            return Grant("")
        if part(pod, "spec").get("nodeName") or self.closed:
            # With a node it would pass the scheduler, and so the nodes of its flavor. With its gate the API server refuses it.
            return None
        grant = self.coverage.decide(task, pod)
        return grant if isinstance(grant, Grant) else None

    def follow(self, uid: str, pod: Object | None) -> None:
        """A pod has come, changed or gone."""
        before = self.pods.pop(uid, None)
        after = counts_for(pod) if pod is not None else None
        if before is not None and before[1] is not None:
            self.coverage.count(*before[1], pods=-1)
        if after is not None:
            self.coverage.count(*after)
        if pod is not None:
            self.pods[uid] = (pod, after)

    def forget(self, assumed: Assumed) -> None:
        """It is seen now, or will never come."""
        self.coverage.count(assumed.pod_set, assumed.requests, pods=-1)


def admit_pod(request: Object, admitter: PodAdmitter | None) -> tuple[dict[str, Any], Assumed | None]:
    """The answer for a new pod of a queued workflow, and what has to be counted until the pod is seen. Without a view of its workflow the pod waits."""
    given = part(request, "object")
    pod = _held(_with_namespace(given, request))
    grant = admitter.decide(pod) if admitter is not None else None
    if grant is None:
        return _answer(True, _changes(given, pod)), None
    assumed = Assumed(grant.pod_set, requests_of(pod), name_of(pod)) if grant.pod_set else None
    return _answer(True, _changes(given, _merged(pod, released(pod, grant)))), assumed


def _held(pod: Object) -> Object:
    """As the policy makes it: with the gate, and without a pod set of its own. The webhook is asked once, so a pod without the gate has none of ours."""
    if is_gated(pod):
        return pod
    spec = {**part(pod, "spec"), "schedulingGates": [*rows(pod, "spec", "schedulingGates"), {"name": names.POD_GATE}]}
    notes = {key: text for key, text in annotations_of(pod).items() if key != names.POD_SET}
    metadata = {**part(pod, "metadata"), **({"annotations": notes} if "annotations" in part(pod, "metadata") else {})}
    return {**pod, "metadata": metadata, "spec": spec}


def _merged(pod: Object, change: Object) -> Object:
    """A merge patch of metadata and spec, applied. One level deep is all that a released pod needs."""
    found = dict(pod)
    for group in ("metadata", "spec"):
        after = {**part(pod, group)}
        for field, value in part(change, group).items():
            after[field] = {**part(after, field), **value} if isinstance(value, Mapping) else value
        found[group] = {field: value for field, value in after.items() if value is not None}
    return found


def _changes(before: Object, after: Object) -> list[dict[str, Any]]:
    """A JSON patch, which is all that a webhook may answer, of the fields of a pod's metadata and spec that differ."""
    found: list[dict[str, Any]] = []
    for group in ("metadata", "spec"):
        old, new = part(before, group), part(after, group)
        for field in (*old, *(one for one in new if one not in old)):
            path = f"/{group}/{field}"
            if field == "namespace" and field not in old:
                continue  # The request has said it.
            if field not in new:
                found.append({"op": "remove", "path": path})
            elif field not in old or old[field] != new[field]:
                found.append({"op": "add", "path": path, "value": new[field]})
    return found


def _patch(before: Object, after: Object) -> list[dict[str, Any]]:
    """Labels, annotations and spec as they must be."""
    found = []
    for field in ("labels", "annotations"):
        wanted = part(after, "metadata").get(field)
        if wanted != part(before, "metadata").get(field) and wanted is not None:
            found.append({"op": "add", "path": f"/metadata/{field}", "value": wanted})
    if after.get("spec") != before.get("spec"):
        found.append({"op": "add", "path": "/spec", "value": after.get("spec")})
    return found


def _answer(
    allowed: bool,
    patch: Sequence[Mapping[str, Any]] = (),
    warnings: Sequence[str] = (),
    message: str = "",
) -> dict[str, Any]:
    response: dict[str, Any] = {"allowed": allowed}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
    if warnings:
        response["warnings"] = [f"penstock: {one}"[:250] for one in warnings]
    if message:
        response["status"] = {"code": 422, "reason": "Invalid", "message": message}
    return response
