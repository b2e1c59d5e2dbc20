"""What the webhooks answer: the request of an AdmissionReview in, the response out. Pure; the server in `controller.cluster` calls it.

A workflow that names a queue is made ready for it when it is created; if that is impossible it is refused, with the code and the fix. A pod of a
queued workflow is born with a scheduling gate (a policy sees to that); here the gate is removed at once if an admitted Workload covers the pod.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from penstock.controller import names
from penstock.controller.core import Seen, covered_resources
from penstock.controller.coverage import Assumed, Coverage, Grant, is_gated, released, requests_of
from penstock.controller.engine import Engine, Unit
from penstock.controller.objects import (
    NAMESPACES,
    Lookup,
    Object,
    annotations_of,
    labels_of,
    name_of,
    namespace_of,
    part,
)
from penstock.controller.workload import Workload
from penstock.errors import DocumentError, Problem, UserError


def unit_of(obj: Object, lookup: Lookup) -> Unit:
    """As the workflow says, or its namespace, or by stage. Raises DocumentError."""
    namespace = lookup.get(NAMESPACES, "", namespace_of(obj)) or {}
    for place in (labels_of(obj), annotations_of(obj), labels_of(namespace), annotations_of(namespace)):
        said = place.get(names.UNIT)
        if said in get_args(Unit):
            return cast(Unit, said)
        if said is not None:
            known = ", ".join(get_args(Unit))
            problem = Problem("P886", f"there is no unit {said!r}", f"write {names.UNIT}: one of {known}")
            raise DocumentError(problem)
    return "stage"


def admit_workflow(request: Object, engine: Engine | None, lookup: Lookup) -> dict[str, Any]:
    """The answer for a new workflow object."""
    obj = _with_namespace(part(request, "object"), request)
    if engine is None or not engine.queued(obj):
        return _answer(True)
    try:
        unit = unit_of(obj, lookup)
        found = engine.adjust(obj, unit, lookup)
    except UserError as error:
        return _answer(False, message="; ".join(map(_said, error.problems)))
    return _answer(True, _patch(part(request, "object"), _with_unit(found.object, unit)), found.warnings)


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


def admit_pod(request: Object, seen: Seen | None) -> tuple[dict[str, Any], Assumed | None]:
    """The answer for a new pod of a queued workflow, and what has to be counted until the pod is seen. Without a view of its workflow the pod stays
    as it is: gated."""
    pod = _with_namespace(part(request, "object"), request)
    if seen is None or not is_gated(pod):
        return _answer(True), None
    engine, observed = seen.engine, seen.observed
    task = engine.task_of(pod, observed, seen.unit)
    counted = "pods" in covered_resources(observed)
    requests = requests_of(pod)
    if not task.stage or not (counted or any(requests.values())):
        return _answer(True, _merged(pod, Grant(""))), None
    if part(pod, "spec").get("nodeName"):
        # It would pass the scheduler, and so the nodes of its flavor. With its gate the API server refuses it.
        return _answer(True), None
    view = engine.view(observed, seen.unit)
    if view.over or view.problem or view.paused:
        return _answer(True), None
    pods = [(engine.task_of(one, observed, seen.unit), one) for one in observed.pods]
    coverage = Coverage([Workload(one) for one in seen.workloads], pods, observed.lookup, seen.assumed)
    grant = coverage.decide(task, pod)
    if not isinstance(grant, Grant):
        return _answer(True), None
    return _answer(True, _merged(pod, grant)), Assumed(task, grant.pod_set, requests, name_of(pod))


def _merged(pod: Object, grant: Grant) -> list[dict[str, Any]]:
    """The merge patch of a released pod as a JSON patch, which is all that a webhook may answer."""
    change = released(pod, grant)
    found: list[dict[str, Any]] = []
    for group in ("metadata", "spec"):
        before = part(pod, group)
        for field, value in part(change, group).items():
            after = {**part(before, field), **value} if isinstance(value, Mapping) else value
            if value is None:
                found += [{"op": "remove", "path": f"/{group}/{field}"}] if field in before else []
            else:
                found.append({"op": "add", "path": f"/{group}/{field}", "value": after})
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
