"""Documents to objects, and back."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from penstock.admission.manifests import read, write
from penstock.admission.manifests.times import text_of, time_of
from penstock.admission.model import (
    UNLIMITED,
    Admission,
    Check,
    CheckRule,
    CheckState,
    ClusterQueue,
    Cohort,
    Eviction,
    FlavorQuotas,
    FlavorResource,
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
from penstock.errors import DocumentError
from tests.admission.objects import OBJECTS, TIMES


def load(text: str, file: str) -> list[Object | Workload]:
    return list(read.manifest(text, file).objects)


CORPUS = Path(os.environ.get("PENSTOCK_CORPUS") or Path(__file__).parents[4] / "shared/corpus")
NEW, OLD = "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"

QUEUES = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: spot}
spec:
  nodeLabels: {type: spot}
  nodeTaints:
  - {key: spot, value: "true", effect: NoSchedule}
  tolerations:
  - {key: spot, operator: Exists}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata:
  name: team-a
spec:
  cohortName: all
  queueingStrategy: StrictFIFO
  namespaceSelector:
    matchLabels: {team: a}
    matchExpressions:
    - {key: old, operator: DoesNotExist}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: spot
      resources:
      - {name: cpu, nominalQuota: 9, borrowingLimit: 500m}
      - {name: memory, nominalQuota: 36Gi, lendingLimit: 1Gi}
  flavorFungibility: {whenCanBorrow: TryNextFlavor, preference: PreemptionOverBorrowing}
  preemption:
    withinClusterQueue: LowerPriority
    reclaimWithinCohort: Any
    borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: -3}
  fairSharing: {weight: "0.5"}
  admissionChecksStrategy:
    admissionChecks:
    - {name: budget, onFlavors: [spot]}
  stopPolicy: Hold
  admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: all}
spec:
  parentName: company
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: spot, resources: [{name: cpu, nominalQuota: 1E}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main}
spec: {clusterQueue: team-a, fairSharing: {weight: 2}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 100
description: for the night
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: budget}
spec: {controllerName: example.com/budget}
---
apiVersion: v1
kind: Namespace
metadata: {name: default, labels: {team: a}}
"""
OBJECTS_OF_QUEUES = [
    ResourceFlavor(
        name="spot",
        labels={"type": "spot"},
        taints=(Taint("spot", "true", "NoSchedule"),),
        tolerations=(PodToleration("spot", "Exists"),),
    ),
    ClusterQueue(
        name="team-a",
        cohort="all",
        strategy=Strategy.STRICT,
        namespaces=Selector((Requirement("team", "In", ("a",)), Requirement("old", "DoesNotExist"))),
        groups=(
            ResourceGroup(
                ("cpu", "memory"),
                (FlavorQuotas("spot", {"cpu": Quota(9000, 500), "memory": Quota(36 * 2**30, None, 2**30)}),),
            ),
        ),
        fungibility=Fungibility(borrow=WhenCan.NEXT, preference=Preference.PREEMPTION),
        preemption=Preemption(within=Policy.LOWER, reclaim=Policy.ANY, borrow=Policy.LOWER, borrow_threshold=-3),
        weight=0.5,
        checks=(CheckRule("budget", ("spot",)),),
        stop=Stop.HOLD,
        usage_based=True,
    ),
    Cohort(
        name="all",
        parent="company",
        groups=(ResourceGroup(("cpu",), (FlavorQuotas("spot", {"cpu": Quota(UNLIMITED)}),)),),
    ),
    LocalQueue(name="main", cluster_queue="team-a", weight=2.0),
    PriorityClass("high", 100, "for the night"),
    Check("budget"),
    Namespace("default", {"team": "a"}),
]


def test_a_manifest_becomes_objects() -> None:
    assert load(QUEUES, "queues.yaml") == OBJECTS_OF_QUEUES
    manifest = read.manifest(QUEUES, "queues.yaml")
    begins = [at for at, line in enumerate(QUEUES.splitlines(), 1) if line.startswith("apiVersion")]
    assert [source.line for source in manifest.sources] == begins
    assert manifest.warnings == ()
    assert read.objects_of(manifest.documents) == OBJECTS_OF_QUEUES


def test_defaults_are_kueues() -> None:
    (queue, cohort, line) = read.objects_of(
        {"kind": kind, "metadata": {"name": "q"}} for kind in ("ClusterQueue", "Cohort", "LocalQueue")
    )
    assert queue == ClusterQueue(name="q", namespaces=None)
    assert cohort == Cohort(name="q")
    assert line == LocalQueue(name="q", namespace="", cluster_queue="")


def test_the_older_version_is_read_as_the_newer() -> None:
    old = {
        "apiVersion": OLD,
        "kind": "ClusterQueue",
        "metadata": {"name": "q"},
        "spec": {
            "cohort": "all",
            "namespaceSelector": {},
            "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
            "admissionChecks": ["budget"],
        },
    }
    expected = ClusterQueue(
        name="q",
        cohort="all",
        fungibility=Fungibility(borrow=WhenCan.STOP, preempt=WhenCan.STOP),
        checks=(CheckRule("budget"),),
    )
    assert load(json.dumps(old), "q.json") == read.objects_of([old]) == [expected]
    podset = {"name": "main", "count": 1, "template": {"spec": {"containers": []}}}
    workload = {
        "apiVersion": OLD,
        "kind": "Workload",
        "metadata": {"name": "w"},
        "spec": {
            "podSets": [podset],
            "priorityClassName": "high",
            "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
            "priority": 100,
        },
        "status": {"accumulatedPastExexcutionTimeSeconds": 7},
    }
    (found,) = load(json.dumps(workload), "w.json")
    assert isinstance(found, Workload)
    assert (found.priority_class, found.priority, found.run_seconds) == ("high", 100, 7.0)


def test_lists_and_json_are_manifests_too() -> None:
    documents = [doc for doc in read.manifest(QUEUES, "queues.yaml").documents]
    for data in ({"apiVersion": "v1", "kind": "List", "items": documents}, documents):
        assert load(json.dumps(data, indent=1), "queues.json") == OBJECTS_OF_QUEUES
        assert load("\ufeff" + json.dumps(data), "-") == OBJECTS_OF_QUEUES
    listed = {"apiVersion": NEW, "kind": "LocalQueueList", "items": [documents[3]]}
    assert load(json.dumps(listed), "x.json") == [OBJECTS_OF_QUEUES[3]]
    assert load("{apiVersion: v1, kind: Namespace, metadata: {name: a}}", "-") == [Namespace("a")]


def test_documents_of_other_kinds_are_ignored_with_a_warning() -> None:
    job = "---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n"
    manifest = read.manifest(QUEUES + job, "q.yaml")
    assert list(manifest.objects) == OBJECTS_OF_QUEUES
    (warning,) = manifest.warnings
    assert (warning.code, warning.severity) == ("P808", "warning")
    with pytest.raises(DocumentError, match="only Job") as wrong:
        load(job, "job.yaml")
    assert wrong.value.code == "P801"
    with pytest.raises(DocumentError, match="the file is empty"):
        load("# nothing\n---\n", "empty.yaml")


def test_kueues_own_settings_are_handed_on() -> None:
    settings = (
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfairSharing: {preemptionStrategies: []}\n"
    )
    manifest = read.manifest(settings, "c.yaml")
    assert manifest.objects == () and manifest.configuration is not None
    with pytest.raises(DocumentError, match="featureGates"):
        load(settings + "featureGates: {TopologyAwareScheduling: 1}\n", "c.yaml")
    with pytest.raises(DocumentError, match="P804"):
        load(settings + "---\n" + settings, "c.yaml")


def test_names_that_lead_nowhere_are_warned_of() -> None:
    text = QUEUES.split("---\n", 1)[1].replace("clusterQueue: team-a", "clusterQueue: team-b")
    found = read.manifest(text, "q.yaml").warnings
    assert {problem.code for problem in found} == {"P807"}
    assert [problem.where for problem in found] == [
        "ClusterQueue/team-a spec.resourceGroups",
        "LocalQueue/main spec.clusterQueue",
    ]
    assert read.manifest(text, "q.yaml", [ResourceFlavor(name="spot"), ClusterQueue(name="team-b")]).warnings == ()


# -- Workloads --------------------------------------------------------------------------------------------------------


def condition(kind: str, status: str = "True", reason: str = "R", at: str = "2026-01-15T12:00:00Z") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": at}


def workload(**status: Any) -> dict[str, Any]:
    pod = {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Ki"}}}],
        "nodeSelector": {"type": "spot"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]
                }
            }
        },
        "tolerations": [{"operator": "Exists"}],
    }
    podset = {"name": "main", "count": 3, "template": {"spec": pod}, "topologyRequest": {"podSetGroupName": "g"}}
    return {
        "apiVersion": NEW,
        "kind": "Workload",
        "metadata": {
            "name": "w",
            "namespace": "ns",
            "uid": "u",
            "creationTimestamp": "2026-01-15T12:00:00Z",
            "labels": {"a": "b"},
            "annotations": {
                "kueue.x-k8s.io/admission-gated-by": "example.com/a, example.com/b",
                "kueue.x-k8s.io/priority-boost": "-2",
            },
        },
        "spec": {
            "queueName": "lq",
            "priority": 7,
            "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
            "active": False,
            "maximumExecutionTimeSeconds": 60,
            "podSets": [podset],
        },
        "status": status,
    }


NOW = 1768478400.0


def one(document: dict[str, Any]) -> Workload:
    (found,) = read.objects_of([document])
    assert isinstance(found, Workload)
    return found


def test_a_workload_says_what_it_wants() -> None:
    found = one(workload())
    assert (found.key, found.uid, found.queue, found.created) == ("ns/w", "u", "lq", NOW)
    assert (found.priority, found.priority_class, found.boost, found.active) == (7, "high", -2, False)
    assert (found.gates, found.max_seconds) == (frozenset({"example.com/a", "example.com/b"}), 60)
    assert found.podsets == (
        PodSet(
            count=3,
            requests={"cpu": 1000, "memory": 1024},
            selector={"type": "spot"},
            affinity=((Requirement("k", "In", ("v",)),),),
            tolerations=(PodToleration(operator="Exists"),),
            group="g",
        ),
    )
    assert found.admission is None and found.held == {} and not found.finished and not found.held_back


def test_a_workload_that_holds_quota_says_which() -> None:
    assigned = {"name": "main", "count": 2, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "2", "memory": "2Ki"}}
    found = one(
        workload(
            conditions=[
                condition("QuotaReserved"),
                condition("Admitted", at="2026-01-15T12:00:01.5Z"),
                condition("PodsReady", at="2026-01-15T13:00:02+01:00"),
                condition("Evicted", reason="Preempted", at="2026-01-15T12:00:03Z"),
                {**condition("Preempted", reason="InClusterQueue"), "message": "Preempted by ns/other"},
            ],
            admission={"clusterQueue": "q", "podSetAssignments": [assigned]},
            reclaimablePods=[{"name": "main", "count": 2}],
            admissionChecks=[{"name": "budget", "state": "Ready"}],
        )
    )
    usage = {"cpu": 2000, "memory": 2048}
    assert found.admission == Admission("q", (PodSetAssignment("main", 2, {"cpu": "spot"}, usage),))
    assert found.held == {FlavorResource("spot", "cpu"): 1000}
    assert (found.reserved_at, found.admitted_at, found.ready_at) == (NOW, NOW + 1.5, NOW + 2)
    assert found.was_ready
    assert found.eviction == Eviction("Preempted", NOW + 3, "InClusterQueue", "ns/other")
    assert found.last_eviction is None
    assert found.checks == {"budget": CheckState.READY}


def test_a_workload_that_was_evicted_says_why() -> None:
    found = one(
        workload(
            conditions=[
                condition("QuotaReserved", "False", "Pending"),
                condition("Evicted", reason="PodsReadyTimeout"),
                condition("Requeued", "False"),
                condition("PodsReady", "False", "WaitForRecovery"),
                condition("Finished"),
            ],
            requeueState={"count": 2, "requeueAt": "2026-01-15T12:01:00Z"},
            accumulatedPastExecutionTimeSeconds=9,
        )
    )
    assert found.admission is None and found.eviction is None
    assert found.last_eviction == Eviction("PodsReadyTimeout", NOW)
    assert (found.requeue_count, found.requeue_at, found.run_seconds) == (2, NOW + 60, 9.0)
    assert found.held_back and found.finished and found.was_ready and found.ready_at is None


def test_an_eviction_that_was_answered_with_new_quota_is_forgotten() -> None:
    found = one(workload(conditions=[condition("Evicted", "False", "QuotaReserved")]))
    assert found.eviction is None and found.last_eviction is None


def test_limit_ranges_and_runtime_classes_act_on_the_workloads_of_their_namespace() -> None:
    bounds = {"type": "Container", "defaultRequest": {"nvidia.com/gpu": "1"}, "max": {"cpu": "500m"}}
    ranges = [
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "r", "namespace": space},
            "spec": {"limits": [bounds]},
        }
        for space in ("ns", "other")
    ]
    found = read.objects_of([workload(), ranges[0]])[0]
    assert isinstance(found, Workload)
    assert found.podsets[0].requests["nvidia.com/gpu"] == 1
    assert "more cpu" in found.unfit
    assert one(workload()).unfit == "" == read.objects_of([workload(), ranges[1]])[0].unfit  # type: ignore[union-attr]


# -- and back ---------------------------------------------------------------------------------------------------------


def plain(found: Any) -> Any:
    if not isinstance(found, Workload):
        return found
    return {f.name: getattr(found, f.name) for f in fields(found) if f.name not in ("scan_progress", "resources")}


@settings(max_examples=400, deadline=None)
@given(OBJECTS)
def test_what_is_written_is_read_as_the_same(found: Any) -> None:
    document = write.document(found)
    text = json.dumps(document)
    assert [plain(one) for one in read.objects_of([json.loads(text)])] == [plain(found)]
    assert [plain(one) for one in load(text, "x.json")] == [plain(found)]


@given(TIMES)
def test_times_are_written_with_all_their_digits(time: float) -> None:
    assert time_of(text_of(time)) == time


def test_times_are_written_as_kubernetes_does() -> None:
    assert text_of(NOW) == "2026-01-15T12:00:00Z"
    assert text_of(NOW + 0.25) == "2026-01-15T12:00:00.25Z"
    assert text_of(-0.5) == "1969-12-31T23:59:59.5Z"


# -- what others have written -----------------------------------------------------------------------------------------

REFUSED = {"minimal-cq.yaml"}
"""Kueue refuses it too: an admission check on a flavor that the queue does not have."""


def corpus() -> list[Path]:
    kinds = "kind: ClusterQueue", "kind: ResourceFlavor", "kind: LocalQueue", "kind: Cohort", "kind: AdmissionCheck"
    return [
        path
        for folder in ("kueue", "jobset")
        for path in sorted((CORPUS / folder).rglob("*.yaml"))
        if "kueue.x-k8s.io/v1" in (text := path.read_text()) and any(kind in text for kind in kinds)
    ]


def test_kueues_examples_are_read() -> None:
    found = corpus()
    if not found:
        pytest.skip(f"no manifests in {CORPUS}: set PENSTOCK_CORPUS to a folder with Kueue's examples in kueue/")
    refused = set()
    for path in found:
        try:
            assert load(path.read_text(), path.name)
        except DocumentError:
            refused.add(path.name)
    assert refused <= REFUSED
