"""Kueue's documents -> objects. `manifest` validates and reads what an administrator writes; `objects_of` reads documents that were
validated before, for the engine (the store keeps documents) and the conformance tests.

Reads v1beta2 and v1beta1. `objects_of` checks nothing: a missing field gets Kueue's default, an unknown one is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.admission.manifests import requests, validate
from penstock.admission.manifests.documents import ManifestReport, documents
from penstock.admission.manifests.kinds import CONFIGURATION
from penstock.admission.manifests.rules import GATED_BY
from penstock.admission.manifests.times import time_of
from penstock.admission.model import (
    Admission,
    Check,
    CheckRule,
    CheckState,
    ClusterQueue,
    Cohort,
    Eviction,
    FlavorQuotas,
    Fungibility,
    LocalQueue,
    Namespace,
    Object,
    PodSet,
    PodSetAssignment,
    PodToleration,
    Policy,
    Preemption,
    Preference,
    PriorityClass,
    Quota,
    Requirement,
    ResourceFlavor,
    ResourceGroup,
    Selector,
    Stop,
    Strategy,
    Taint,
    WhenCan,
    Workload,
)
from penstock.admission.snapshot import usage_of
from penstock.errors import DocumentError, Problem, Source
from penstock.graph import quantity

Doc = Mapping[str, Any]

BOOST = "kueue.x-k8s.io/priority-boost"
UNFIT = "penstock/unfit"
"""The annotation for `Workload.unfit`. It is written because the limit ranges are not stored."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A file that was read."""

    objects: tuple[Object | Workload, ...]
    documents: tuple[Doc, ...]
    """The document of each object."""
    sources: tuple[Source, ...]
    """Where each object begins."""
    configuration: Doc | None
    """Kueue's Configuration, if the file has one."""
    warnings: tuple[Problem, ...]


def manifest(text: str, file: str, known: Iterable[Object | Workload] = ()) -> Manifest:
    """A manifest in YAML or JSON. Raises DocumentError with all its errors. `known`: other objects that exist, to which the manifest
    may refer."""
    report = ManifestReport(file, text.splitlines())
    found = validate.check(documents(text, file), report)
    if report.errors:
        raise DocumentError([problem for problem in report.problems if problem.severity == "error"])
    listed = [_with_namespace(document.data) for document in found]
    objects = objects_of(listed)
    of_objects = [at for at, doc in enumerate(listed) if doc["kind"] == "Workload" or doc["kind"] in _READERS]
    sources = tuple(report.source(found[at], "$") for at in of_objects)
    return Manifest(
        tuple(objects),
        tuple(listed[at] for at in of_objects),
        sources,
        next((doc for doc in listed if doc["kind"] == CONFIGURATION), None),
        (*report.problems, *validate.dangling(zip(objects, sources, strict=True), known)),
    )


def _with_namespace(doc: Doc) -> Doc:
    """An object that has a namespace gets the default one if none is given."""
    if doc["kind"] not in ("LocalQueue", "Workload", "LimitRange") or doc["metadata"].get("namespace"):
        return doc
    return {**doc, "metadata": {**doc["metadata"], "namespace": "default"}}


def objects_of(docs: Iterable[Doc]) -> list[Object | Workload]:
    """The objects among the documents, in their order. LimitRanges and RuntimeClasses apply to the Workloads in the same list."""
    listed = list(docs)
    ranges: dict[str, list[Doc]] = {}
    overheads = requests.overheads_of(doc for doc in listed if doc.get("kind") == "RuntimeClass")
    for doc in listed:
        if doc.get("kind") == "LimitRange":
            ranges.setdefault(_meta(doc).get("namespace", ""), []).append(doc)
    found: list[Object | Workload] = []
    for doc in listed:
        kind = doc.get("kind")
        if kind == "Workload":
            bounds = requests.ranges_of(ranges.get(_meta(doc).get("namespace", ""), ()))
            found.append(workload_of(doc, bounds, overheads))
        elif kind in _READERS:
            found.append(_READERS[kind](doc))
    return found


def _meta(doc: Doc) -> Doc:
    return _map(doc, "metadata")


def _map(doc: Doc, name: str) -> Doc:
    return doc.get(name) or {}


def _list(doc: Doc, name: str) -> list[Any]:
    return doc.get(name) or []


# -- queues -----------------------------------------------------------------------------------------------------------


def _flavor(doc: Doc) -> ResourceFlavor:
    spec = _map(doc, "spec")
    return ResourceFlavor(
        name=_meta(doc).get("name", ""),
        labels=dict(_map(spec, "nodeLabels")),
        taints=tuple(
            Taint(t.get("key", ""), t.get("value", ""), t.get("effect", "")) for t in _list(spec, "nodeTaints")
        ),
        tolerations=_tolerations(spec),
    )


def _tolerations(spec: Doc) -> tuple[PodToleration, ...]:
    return tuple(
        PodToleration(t.get("key", ""), t.get("operator") or "Equal", t.get("value", ""), t.get("effect", ""))
        for t in _list(spec, "tolerations")
    )


def _groups(spec: Doc) -> tuple[ResourceGroup, ...]:
    return tuple(
        ResourceGroup(tuple(_list(group, "coveredResources")), tuple(_quotas(f) for f in _list(group, "flavors")))
        for group in _list(spec, "resourceGroups")
    )


def _quotas(flavor: Doc) -> FlavorQuotas:
    def bound(resource: Doc, name: str) -> int | None:
        text = resource.get(name)
        return None if text is None else requests.limit(resource["name"], text)

    return FlavorQuotas(
        flavor["name"],
        {
            r["name"]: Quota(bound(r, "nominalQuota") or 0, bound(r, "borrowingLimit"), bound(r, "lendingLimit"))
            for r in _list(flavor, "resources")
        },
    )


def _weight(spec: Doc) -> float:
    weight = _map(spec, "fairSharing").get("weight")
    return 1.0 if weight is None else float(quantity.exact(weight))


def selector_of(found: Doc | None) -> Selector | None:
    if found is None:
        return None
    labels = tuple(Requirement(key, "In", (value,)) for key, value in sorted(_map(found, "matchLabels").items()))
    return Selector(labels + tuple(_requirement(line) for line in _list(found, "matchExpressions")))


def _requirement(line: Doc) -> Requirement:
    return Requirement(line["key"], line["operator"], tuple(_list(line, "values")))


_OLD_WHEN = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}


def _when(found: Doc, name: str, default: WhenCan) -> WhenCan:
    text: str = found.get(name) or ""
    return WhenCan(_OLD_WHEN.get(text, text)) if text else default


def _cluster_queue(doc: Doc) -> ClusterQueue:
    spec = _map(doc, "spec")
    fungibility, preemption = _map(spec, "flavorFungibility"), _map(spec, "preemption")
    borrow = _map(preemption, "borrowWithinCohort")
    preference = fungibility.get("preference")
    return ClusterQueue(
        name=_meta(doc).get("name", ""),
        groups=_groups(spec),
        cohort=spec.get("cohortName") or spec.get("cohort") or None,
        strategy=Strategy(spec.get("queueingStrategy") or Strategy.BEST_EFFORT),
        namespaces=selector_of(spec.get("namespaceSelector")),
        fungibility=Fungibility(
            borrow=_when(fungibility, "whenCanBorrow", WhenCan.STOP),
            preempt=_when(fungibility, "whenCanPreempt", WhenCan.NEXT),
            preference=Preference(preference) if preference else None,
        ),
        preemption=Preemption(
            within=Policy(preemption.get("withinClusterQueue") or Policy.NEVER),
            reclaim=Policy(preemption.get("reclaimWithinCohort") or Policy.NEVER),
            borrow=Policy(borrow.get("policy") or Policy.NEVER),
            borrow_threshold=borrow.get("maxPriorityThreshold"),
        ),
        weight=_weight(spec),
        checks=_check_rules(spec),
        stop=Stop(spec.get("stopPolicy") or Stop.NONE),
        usage_based=_map(spec, "admissionScope").get("admissionMode") == "UsageBasedAdmissionFairSharing",
    )


def _check_rules(spec: Doc) -> tuple[CheckRule, ...]:
    old = _list(spec, "admissionChecks")
    if old:
        return tuple(CheckRule(name) for name in old)
    rules = _list(_map(spec, "admissionChecksStrategy"), "admissionChecks")
    return tuple(CheckRule(rule["name"], tuple(_list(rule, "onFlavors"))) for rule in rules)


def _cohort(doc: Doc) -> Cohort:
    spec = _map(doc, "spec")
    parent = spec.get("parentName") or spec.get("parent") or None
    return Cohort(name=_meta(doc).get("name", ""), parent=parent, groups=_groups(spec), weight=_weight(spec))


def _local_queue(doc: Doc) -> LocalQueue:
    spec = _map(doc, "spec")
    return LocalQueue(
        name=_meta(doc).get("name", ""),
        namespace=_meta(doc).get("namespace", ""),
        cluster_queue=spec.get("clusterQueue", ""),
        stop=Stop(spec.get("stopPolicy") or Stop.NONE),
        weight=_weight(spec),
    )


def _priority_class(doc: Doc) -> PriorityClass:
    return PriorityClass(_meta(doc).get("name", ""), doc.get("value") or 0, doc.get("description") or "")


def _namespace(doc: Doc) -> Namespace:
    return Namespace(_meta(doc).get("name", ""), dict(_map(_meta(doc), "labels")))


def _check(doc: Doc) -> Check:
    """Active, unless its condition says otherwise."""
    active = _Conditions(_map(doc, "status")).find("Active")
    return Check(_meta(doc).get("name", ""), active is None or active.get("status") == "True")


_READERS: dict[str, Callable[[Doc], Object]] = {
    "ResourceFlavor": _flavor,
    "ClusterQueue": _cluster_queue,
    "Cohort": _cohort,
    "LocalQueue": _local_queue,
    "WorkloadPriorityClass": _priority_class,
    "Namespace": _namespace,
    "AdmissionCheck": _check,
}


# -- Workloads --------------------------------------------------------------------------------------------------------


class _Conditions:
    def __init__(self, status: Doc) -> None:
        self._found = {c.get("type"): c for c in _list(status, "conditions")}

    def find(self, kind: str) -> Doc | None:
        return self._found.get(kind)

    def holds(self, kind: str) -> Doc | None:
        found = self._found.get(kind)
        return found if found is not None and found.get("status") == "True" else None

    def since(self, kind: str) -> float | None:
        """Since when the condition is true. None if it is not."""
        found = self.holds(kind)
        return None if found is None else time_of(found.get("lastTransitionTime")) or 0.0


def workload_of(doc: Doc, ranges: requests.LimitRangeSummary, overheads: Mapping[str, Doc]) -> Workload:
    meta, spec, status = _meta(doc), _map(doc, "spec"), _map(doc, "status")
    annotations = _map(meta, "annotations")
    pods = [
        (p.get("name") or "main", requests.adjusted(_map(_map(p, "template"), "spec"), ranges, overheads))
        for p in _list(spec, "podSets")
    ]
    workload = Workload(
        name=meta.get("name", ""),
        namespace=meta.get("namespace", ""),
        uid=meta.get("uid", ""),
        queue=spec.get("queueName", ""),
        podsets=tuple(_podset(p, *pod) for p, pod in zip(_list(spec, "podSets"), pods, strict=True)),
        priority=spec.get("priority") or 0,
        priority_class=_map(spec, "priorityClassRef").get("name") or spec.get("priorityClassName") or None,
        boost=_boost(annotations.get(BOOST, "")),
        created=time_of(meta.get("creationTimestamp")) or 0.0,
        active=spec.get("active") is not False,
        gates=frozenset(gate.strip() for gate in annotations.get(GATED_BY, "").split(",") if gate.strip()),
        max_seconds=spec.get("maximumExecutionTimeSeconds"),
        labels=dict(_map(meta, "labels")),
        unfit=annotations.get(UNFIT) or requests.unfit(pods, ranges),
    )
    _status(workload, status)
    return workload


def _boost(text: str) -> int:
    return int(text) if re.fullmatch(r"[+-]?\d{1,10}", text, re.A) else 0


def _podset(doc: Doc, name: str, pod: Doc) -> PodSet:
    terms = _map(_map(_map(pod, "affinity"), "nodeAffinity"), "requiredDuringSchedulingIgnoredDuringExecution").get(
        "nodeSelectorTerms"
    )
    count = doc.get("count")
    return PodSet(
        name=name,
        count=1 if count is None else count,
        min_count=doc.get("minCount"),
        requests=requests.of_pod(pod),
        selector=dict(_map(pod, "nodeSelector")),
        affinity=None
        if not terms
        else tuple(tuple(_requirement(line) for line in _list(term, "matchExpressions")) for term in terms),
        tolerations=_tolerations(pod),
        group=_map(doc, "topologyRequest").get("podSetGroupName"),
    )


def _status(workload: Workload, status: Doc) -> None:
    """The second part of the Workload, from its status."""
    conditions = _Conditions(status)
    workload.reclaimable = {r["name"]: r.get("count") or 0 for r in _list(status, "reclaimablePods")}
    eviction = _eviction(conditions)
    admission = status.get("admission")
    if conditions.holds("QuotaReserved") and admission is not None:
        workload.admission = _admission(admission, workload)
        workload.held = usage_of(workload.admission, workload.reclaimable, workload.podsets)
        workload.reserved_at = conditions.since("QuotaReserved")
        workload.admitted_at = conditions.since("Admitted")
        workload.eviction = eviction
    else:
        workload.last_eviction = eviction
    checks = _list(status, "admissionChecks")
    workload.checks = {c["name"]: CheckState(c.get("state") or "Pending") for c in checks}
    workload.check_messages = {c["name"]: c["message"] for c in checks if c.get("message")}
    workload.ready_at = conditions.since("PodsReady")
    ready = conditions.find("PodsReady")
    workload.was_ready = ready is not None and (
        ready.get("status") == "True" or ready.get("reason") == "WaitForRecovery"
    )
    requeue = _map(status, "requeueState")
    workload.requeue_at, workload.requeue_count = time_of(requeue.get("requeueAt")), requeue.get("count") or 0
    requeued, reserved = conditions.find("Requeued"), conditions.find("QuotaReserved")
    workload.held_back = (requeued is not None and requeued.get("status") == "False") or (
        reserved is not None and reserved.get("status") == "False" and reserved.get("reason") == "OnHold"
    )
    workload.run_seconds = float(
        status.get("accumulatedPastExecutionTimeSeconds") or status.get("accumulatedPastExexcutionTimeSeconds") or 0
    )
    workload.finished = conditions.holds("Finished") is not None


def _eviction(conditions: _Conditions) -> Eviction | None:
    evicted, preempted = conditions.holds("Evicted"), conditions.holds("Preempted")
    found = evicted or preempted
    if found is None:
        return None
    reason = evicted.get("reason", "") if evicted is not None else "Preempted"
    by = _BY.search((preempted or {}).get("message") or "")
    return Eviction(
        reason,
        time_of(found.get("lastTransitionTime")) or 0.0,
        (preempted or {}).get("reason", ""),
        by[1] if by else "",
    )


_BY = re.compile(r"\bPreempted by (\S+)\Z")


def _admission(doc: Doc, workload: Workload) -> Admission:
    counts = {p.name: p.count for p in workload.podsets}
    return Admission(
        doc.get("clusterQueue", ""), tuple(_assignment(a, counts) for a in _list(doc, "podSetAssignments"))
    )


def _assignment(doc: Doc, counts: Mapping[str, int]) -> PodSetAssignment:
    name = doc.get("name") or "main"
    count = doc.get("count")
    return PodSetAssignment(
        name,
        counts.get(name, 0) if count is None else count,
        dict(_map(doc, "flavors")),
        {resource: requests.amount(resource, text) for resource, text in _map(doc, "resourceUsage").items()},
    )
