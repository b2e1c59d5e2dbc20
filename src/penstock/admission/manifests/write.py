"""Objects -> Kueue's documents (v1beta2), which `read` reads back as the same objects. Called by service to store an object and to
show one.

Fields with their default are omitted. Three things are not written: the progress of a flavor search (a cache), the last eviction
of a Workload that is being evicted again, and fractions of a second in how long a Workload may run and has run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.admission.manifests import requests
from penstock.admission.manifests.kinds import GROUP, VERSIONS
from penstock.admission.manifests.read import BOOST, UNFIT
from penstock.admission.manifests.rules import GATED_BY
from penstock.admission.manifests.times import text_of
from penstock.admission.model import (
    Amounts,
    Check,
    ClusterQueue,
    Cohort,
    Eviction,
    LocalQueue,
    Namespace,
    Object,
    PodSet,
    PodSetAssignment,
    PodToleration,
    Policy,
    PriorityClass,
    Quota,
    Requirement,
    ResourceFlavor,
    ResourceGroup,
    Selector,
    Stop,
    Workload,
)

Doc = dict[str, Any]


def document(found: Object | Workload) -> Doc:
    return _WRITERS[type(found)](found)


def _bare(**fields: Any) -> Doc:
    """Without empty values. 0 and False are not empty."""
    return {
        name: value
        for name, value in fields.items()
        if value is not None and value != "" and value != {} and value != []
    }


def _kind(kind: str, meta: Doc, *, api: str = f"{GROUP}/{VERSIONS[0]}", **fields: Any) -> Doc:
    return {"apiVersion": api, "kind": kind, "metadata": meta, **_bare(**fields)}


# -- queues -----------------------------------------------------------------------------------------------------------


def _flavor(flavor: ResourceFlavor) -> Doc:
    spec = _bare(
        nodeLabels=dict(flavor.labels),
        nodeTaints=[{"key": t.key, **_bare(value=t.value), "effect": t.effect} for t in flavor.taints],
        tolerations=_tolerations(flavor.tolerations),
    )
    return _kind("ResourceFlavor", {"name": flavor.name}, spec=spec)


def _tolerations(tolerations: Iterable[PodToleration]) -> list[Doc]:
    return [_bare(key=t.key, operator=t.operator, value=t.value, effect=t.effect) for t in tolerations]


def _groups(groups: Iterable[ResourceGroup]) -> list[Doc]:
    return [
        {
            "coveredResources": list(group.resources),
            "flavors": [
                {"name": f.flavor, "resources": [_quota(name, quota) for name, quota in f.quotas.items()]}
                for f in group.flavors
            ],
        }
        for group in groups
    ]


def _quota(resource: str, quota: Quota) -> Doc:
    bounds = {"borrowingLimit": quota.borrowing, "lendingLimit": quota.lending}
    return {
        "name": resource,
        "nominalQuota": requests.shown(resource, quota.nominal),
        **{name: requests.shown(resource, bound) for name, bound in bounds.items() if bound is not None},
    }


def _weight(weight: float) -> Doc | None:
    return None if weight == 1.0 else {"weight": repr(weight).removesuffix(".0")}


def _stop(stop: Stop) -> str | None:
    return None if stop is Stop.NONE else str(stop)


def _selector(selector: Selector | None) -> Doc | None:
    return None if selector is None else _bare(matchExpressions=_requirements(selector.requirements))


def _requirements(requirements: Iterable[Requirement]) -> list[Doc]:
    return [{"key": r.key, "operator": r.operator, **_bare(values=list(r.values))} for r in requirements]


def _cluster_queue(queue: ClusterQueue) -> Doc:
    fungibility, preemption = queue.fungibility, queue.preemption
    borrow = _bare(
        policy=None if preemption.borrow is Policy.NEVER else str(preemption.borrow),
        maxPriorityThreshold=preemption.borrow_threshold,
    )
    checks = [{"name": rule.name, **_bare(onFlavors=list(rule.flavors))} for rule in queue.checks]
    spec = _bare(
        cohortName=queue.cohort,
        queueingStrategy=str(queue.strategy),
        resourceGroups=_groups(queue.groups),
        flavorFungibility=_bare(
            whenCanBorrow=str(fungibility.borrow),
            whenCanPreempt=str(fungibility.preempt),
            preference=fungibility.preference and str(fungibility.preference),
        ),
        preemption=_bare(
            withinClusterQueue=str(preemption.within),
            reclaimWithinCohort=str(preemption.reclaim),
            borrowWithinCohort=borrow,
        ),
        fairSharing=_weight(queue.weight),
        admissionChecksStrategy=_bare(admissionChecks=checks),
        stopPolicy=_stop(queue.stop),
        admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"} if queue.usage_based else None,
    )
    selector = _selector(queue.namespaces)
    if selector is not None:
        spec["namespaceSelector"] = selector  # an empty one matches everything, none matches nothing
    return _kind("ClusterQueue", {"name": queue.name}, spec=spec)


def _cohort(cohort: Cohort) -> Doc:
    spec = _bare(parentName=cohort.parent, resourceGroups=_groups(cohort.groups), fairSharing=_weight(cohort.weight))
    return _kind("Cohort", {"name": cohort.name}, spec=spec)


def _local_queue(queue: LocalQueue) -> Doc:
    spec = _bare(clusterQueue=queue.cluster_queue, stopPolicy=_stop(queue.stop), fairSharing=_weight(queue.weight))
    return _kind("LocalQueue", {"name": queue.name, **_bare(namespace=queue.namespace)}, spec=spec)


def _priority_class(found: PriorityClass) -> Doc:
    return _kind("WorkloadPriorityClass", {"name": found.name}, value=found.value, description=found.description)


def _namespace(found: Namespace) -> Doc:
    return _kind("Namespace", {"name": found.name, **_bare(labels=dict(found.labels))}, api="v1")


def _check(found: Check) -> Doc:
    """The engine runs the checks itself, so it is the controller."""
    conditions = [] if found.active else [_condition("Active", False, "Inactive", 0.0)]
    spec = {"controllerName": "penstock/checks"}
    return _kind("AdmissionCheck", {"name": found.name}, spec=spec, status=_bare(conditions=conditions))


# -- Workloads --------------------------------------------------------------------------------------------------------


def _workload(found: Workload) -> Doc:
    annotations = {
        GATED_BY: ",".join(sorted(found.gates)),
        BOOST: str(found.boost) if found.boost else "",
        UNFIT: found.unfit,
    }
    meta = {
        "name": found.name,
        **_bare(
            namespace=found.namespace,
            uid=found.uid,
            labels=dict(found.labels),
            annotations={key: text for key, text in annotations.items() if text},
            creationTimestamp=text_of(found.created) if found.created else None,
        ),
    }
    named = found.priority_class
    spec = _bare(
        queueName=found.queue,
        podSets=[_podset(podset) for podset in found.podsets],
        priority=found.priority if found.priority or named else None,
        priorityClassRef={"group": GROUP, "kind": "WorkloadPriorityClass", "name": named} if named else None,
        active=None if found.active else False,
        maximumExecutionTimeSeconds=None if found.max_seconds is None else math.ceil(found.max_seconds),
    )
    return _kind("Workload", meta, spec=spec, status=_status(found))


def _podset(podset: PodSet) -> Doc:
    affinity = podset.affinity and {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [_bare(matchExpressions=_requirements(term)) for term in podset.affinity]
            }
        }
    }
    container = {"name": "main", **_bare(resources=_bare(requests=_amounts(podset.requests)))}
    pod = {
        "containers": [container],
        **_bare(
            nodeSelector=dict(podset.selector), affinity=affinity or None, tolerations=_tolerations(podset.tolerations)
        ),
    }
    return {
        "name": podset.name,
        "count": podset.count,
        **_bare(minCount=podset.min_count),
        "template": {"spec": pod},
        **_bare(topologyRequest=_bare(podSetGroupName=podset.group)),
    }


def _amounts(amounts: Amounts) -> dict[str, str]:
    return {resource: requests.shown(resource, value) for resource, value in amounts.items()}


def _status(found: Workload) -> Doc:
    admission = found.admission and {
        "clusterQueue": found.admission.cluster_queue,
        "podSetAssignments": [_assignment(podset) for podset in found.admission.podsets],
    }
    since = text_of(found.created)
    return _bare(
        conditions=_conditions(found),
        admission=admission,
        reclaimablePods=[{"name": name, "count": count} for name, count in found.reclaimable.items()],
        admissionChecks=[
            {
                "name": name,
                "state": str(state),
                "message": found.check_messages.get(name, ""),
                "lastTransitionTime": since,
            }
            for name, state in found.checks.items()
        ],
        requeueState=_bare(
            count=found.requeue_count or None,
            requeueAt=None if found.requeue_at is None else text_of(found.requeue_at),
        ),
        accumulatedPastExecutionTimeSeconds=round(found.run_seconds) or None,
    )


def _assignment(podset: PodSetAssignment) -> Doc:
    return {
        "name": podset.name,
        "count": podset.count,
        **_bare(flavors=dict(podset.flavors), resourceUsage=_amounts(podset.usage)),
    }


def _conditions(found: Workload) -> list[Doc]:
    conditions = []
    if found.admission is not None:
        conditions.append(_condition("QuotaReserved", True, "QuotaReserved", found.reserved_at or 0.0))
        if found.admitted_at is not None:
            conditions.append(_condition("Admitted", True, "Admitted", found.admitted_at))
    eviction = found.last_eviction if found.admission is None else found.eviction
    if eviction is not None:
        conditions += _evicted(eviction)
    if found.ready_at is not None:
        conditions.append(_condition("PodsReady", True, "Started", found.ready_at))
    elif found.was_ready:
        conditions.append(_condition("PodsReady", False, "WaitForRecovery", found.created))
    if found.held_back:
        conditions.append(_condition("Requeued", False, "OnHold", found.created))
    if found.finished:
        conditions.append(_condition("Finished", True, "Succeeded", found.created))
    return conditions


def _evicted(eviction: Eviction) -> list[Doc]:
    found = [_condition("Evicted", True, eviction.reason, eviction.at)]
    if eviction.preempted:
        message = f"Preempted by {eviction.by}" if eviction.by else ""
        found.append(_condition("Preempted", True, eviction.preempted, eviction.at, message))
    return found


def _condition(kind: str, holds: bool, reason: str, since: float, message: str = "") -> Doc:
    return {
        "type": kind,
        "status": str(holds),
        "reason": reason,
        "message": message,
        "lastTransitionTime": text_of(since),
    }


_WRITERS: Mapping[type, Callable[[Any], Doc]] = {
    ResourceFlavor: _flavor,
    ClusterQueue: _cluster_queue,
    Cohort: _cohort,
    LocalQueue: _local_queue,
    PriorityClass: _priority_class,
    Namespace: _namespace,
    Check: _check,
    Workload: _workload,
}
