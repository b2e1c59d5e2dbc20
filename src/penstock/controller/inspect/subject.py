"""What a user asks about in a cluster: `workflow/nightly`, `job/train`, `workload/job-train-3f2a1`; and the Workloads of it. Called by why.

A Workload belongs to an object whose uid is in its label (ours) or among its owners (Kueue's own). An object without one may be part of
another: a Job of a JobSet, a pod of a Job.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.controller import names
from penstock.controller.inspect.kinds import ALL_WORKLOADS, Target, kind_of
from penstock.controller.inspect.pods import WORKLOAD
from penstock.controller.inspect.state import ClusterState
from penstock.controller.objects import (
    Lookup,
    Object,
    annotations_of,
    controller_of,
    labels_of,
    name_of,
    namespace_of,
    part,
    rows,
    uid_of,
)
from penstock.errors import NotFound, Problem, nearest

PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
DEEPEST = 5
"""Owners above an object that are followed."""


@dataclass(frozen=True, slots=True)
class Subject:
    target: Target
    object: Object = field(default_factory=dict)
    """Empty for a kind that is not read."""
    workloads: tuple[Object, ...] = ()
    through: str = ""
    """The object that they belong to, if it is another."""


def read_object(lookup: Lookup, target: Target, namespace: str) -> Object:
    """Empty for a kind that is not read. Raises NotFound."""
    if target.resource is None:
        return {}
    found = lookup.get(target.resource, namespace, target.name)
    if found is None:
        raise not_found(target, namespace, lookup.list(target.resource))
    return found


def not_found(target: Target, namespace: str, known: Iterable[Object]) -> NotFound:
    listed = list(known)
    others = sorted({namespace_of(one) for one in listed if name_of(one) == target.name})
    here = sorted(name_of(one) for one in listed if namespace_of(one) == namespace)
    if others:
        fix = f"there is one in namespace {', '.join(others[:5])}: -n {others[0]}"
    elif here:
        fix = f"there are: {', '.join(here[:10])}{' …' if len(here) > 10 else ''}.{nearest(target.name, here)}"
    else:
        fix = f"namespace {namespace} has none; -n chooses another"
    return NotFound(Problem("P893", f"there is no {target} in namespace {namespace}", fix))


def find(lookup: Lookup, state: ClusterState, target: Target, found: Object, namespace: str) -> Subject:
    """The object with its Workloads, or with those of what it is a part of. Raises NotFound."""
    here = [one for one in state.workloads.values() if namespace_of(one) == namespace]
    if target.resource is ALL_WORKLOADS:
        return Subject(target, found, (state.workloads.get(f"{namespace}/{target.name}", found),))
    if not found:
        mine = [one for one in here if any(_is_named(owner, target) for owner in _owners(one))]
        if not mine:
            raise not_found(target, namespace, ())
        return Subject(target, {}, tuple(mine))
    through, above = "", found
    for _ in range(DEEPEST):
        mine = _workloads_of(above, here)
        owner = controller_of(above)
        if mine or not owner:
            break
        above, through = _read_owner(lookup, owner, namespace), f"{str(owner.get('kind')).lower()}/{owner.get('name')}"
    return Subject(target, found, _in_order(mine), through if mine else "")


def _owners(one: Object) -> list[Object]:
    return rows(one, "metadata", "ownerReferences")


def _is_named(owner: Object, target: Target) -> bool:
    return str(owner.get("kind", "")).lower() == target.kind and owner.get("name") == target.name


def _workloads_of(above: Object, here: Iterable[Object]) -> list[Object]:
    uid = uid_of(above)
    told = {
        str(annotations_of(above).get(WORKLOAD)),
        str(labels_of(above).get(PREBUILT)),
        str(annotations_of(above).get(PREBUILT)),
    }
    told.add(str(annotations_of(above).get(names.POD_SET) or "").partition("/")[0])
    return [
        one
        for one in here
        if name_of(one) in told
        or (uid and labels_of(one).get(names.WORKFLOW_UID) == uid)
        or (uid and any(owner.get("uid") == uid for owner in _owners(one)))
    ]


def _read_owner(lookup: Lookup, owner: Object, namespace: str) -> Object:
    """As it is in the cluster, so that its own owners are known; or only what is known of it."""
    kind = kind_of(str(owner.get("apiVersion")), str(owner.get("kind")))
    found = lookup.get(kind, namespace, str(owner.get("name"))) if kind is not None else None
    return found or {"metadata": {"uid": owner.get("uid"), "name": owner.get("name")}}


def _in_order(workloads: Iterable[Object]) -> tuple[Object, ...]:
    return tuple(
        sorted(workloads, key=lambda one: (part(one, "metadata").get("creationTimestamp") or "", name_of(one)))
    )
