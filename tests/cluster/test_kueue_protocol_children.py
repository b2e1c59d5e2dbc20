"""Whose children run: the Jobs and pods that a controller makes, in a cluster where Kueue manages everything, also what carries no
queue name (`manageJobsWithoutQueueName`).

These are proofs against the real Kueue; docs/ideas/kueue-protocol.md cites them by name.
"""

from __future__ import annotations

from typing import Any

import pytest

from testbed.instance import Testbed
from tests.cluster.kueue_protocol import MERGE, PLAIN, QUEUE, Desk, Object, holds, owner, pod_template, reason

GROUP = "protocol.penstock.example"
RUNS = f"/apis/{GROUP}/v1"
UNMANAGED = "penstock.example/unmanaged"
# two kinds of ours: Kueue is told of Listed, and knows nothing of Unlisted
STRICT: Object = {
    "manageJobsWithoutQueueName": True,
    "managedJobsNamespaceSelector": {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kueue-system"]},
            {"key": UNMANAGED, "operator": "DoesNotExist"},
        ]
    },
    "integrations": {"externalFrameworks": [f"Listed.v1.{GROUP}"]},
}


def kinds(bed: Testbed) -> None:
    """The two types, and leave for Kueue to read them: it has to look at owners."""
    for kind in ("Listed", "Unlisted"):
        plural = kind.lower() + "s"
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        bed.apply(
            [
                {
                    "apiVersion": "apiextensions.k8s.io/v1",
                    "kind": "CustomResourceDefinition",
                    "metadata": {"name": f"{plural}.{GROUP}"},
                    "spec": {
                        "group": GROUP,
                        "scope": "Namespaced",
                        "names": {"kind": kind, "plural": plural},
                        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
                    },
                }
            ]
        )
    rule = {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["get", "list", "watch"]}
    user = "system:serviceaccount:kueue-system:kueue-controller-manager"
    rbac = "rbac.authorization.k8s.io"
    bed.apply(
        [
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRole",
                "metadata": {"name": "protocol-kinds"},
                "rules": [rule],
            },
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "protocol-kinds"},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "protocol-kinds"},
                "subjects": [{"kind": "User", "name": user, "apiGroup": rbac}],
            },
        ]
    )


@pytest.fixture
def desk(testbed: Any) -> Desk:
    bed = testbed("kueue", "kwok", kueue=STRICT)
    kinds(bed)
    return Desk(bed)


def run(desk: Desk, kind: str, name: str = "run", labels: Object | None = None) -> Object:
    body = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name, "labels": labels or {}}}
    return desk.send("POST", desk.path(kind.lower() + "s", api=RUNS), body)


def template() -> Object:
    return pod_template() | {"metadata": {"annotations": {"testbed.penstock/run-time": "forever"}}}


def job(desk: Desk, name: str, *owners: Object, labels: Object | None = None, suspend: bool = False) -> Object:
    meta = {"name": name, "ownerReferences": list(owners), "labels": labels or {}}
    body = {"metadata": meta, "spec": {"suspend": suspend, "template": template()}}
    return desk.send("POST", desk.jobs(), body)


def pod(desk: Desk, name: str, *owners: Object) -> Object:
    body = template()
    body["metadata"] |= {"name": name, "ownerReferences": list(owners)}
    return desk.send("POST", desk.path("pods", api="/api/v1"), body)


def until_active(desk: Desk, name: str) -> None:
    desk.bed.wait(lambda: desk.bed.get(desk.jobs(name))["status"].get("ready"), f"the pods of {name} run")


def suspended(desk: Desk, name: str) -> bool:
    return bool(desk.bed.get(desk.jobs(name))["spec"].get("suspend"))


def workloads(desk: Desk) -> list[Object]:
    return list(desk.bed.get(desk.path("workloads"))["items"])


# -- who is held ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", ["nobody", "a kind that Kueue does not know"])
def test_a_job_without_queue_name_is_held(desk: Desk, of: str) -> None:
    owners = [] if of == "nobody" else [owner(run(desk, "Unlisted"))]
    made = job(desk, "child", *owners)
    assert made["spec"]["suspend"] is True  # by the webhook, at once
    stray = desk.bed.wait(lambda: workloads(desk), "Kueue makes a Workload for it")
    assert not stray[0]["spec"].get("queueName")
    desk.until_pending(stray[0]["metadata"]["name"], "Inadmissible")


@pytest.mark.parametrize("of", ["nobody", "a kind that Kueue does not know"])
def test_a_pod_without_queue_name_is_held(desk: Desk, of: str) -> None:
    owners = [] if of == "nobody" else [owner(run(desk, "Unlisted"))]
    made = pod(desk, "child", *owners)
    assert {"name": "kueue.x-k8s.io/admission"} in made["spec"]["schedulingGates"]


# -- ways out ---------------------------------------------------------------------------------------------------------


def test_way_out_a_namespace_that_is_not_managed(desk: Desk) -> None:
    label = {"metadata": {"labels": {UNMANAGED: ""}}}
    desk.bed.raw("PATCH", f"/api/v1/namespaces/{desk.namespace}", label, MERGE)
    until_unmanaged(desk)
    job(desk, "child")
    until_active(desk, "child")
    assert not workloads(desk)

    desk.queue()  # and Workloads of ours are served there like anywhere
    desk.workload("stage")
    desk.until_running("stage")


def until_unmanaged(desk: Desk) -> None:
    """Kueue reads namespaces from a cache of its own: asks with dry runs until it has seen the label."""
    body = {"metadata": {"name": "probe"}, "spec": {"template": template()}}

    def seen() -> bool:
        answer = desk.bed.raw("POST", desk.jobs() + "?dryRun=All", body)
        return not answer["spec"].get("suspend")

    desk.bed.wait(seen, "Kueue sees the namespace's label")


def test_way_out_pods_of_a_kind_that_kueue_was_told_of(desk: Desk) -> None:
    mine = owner(run(desk, "Listed"))
    made = pod(desk, "child", mine)
    assert not made["spec"].get("schedulingGates")
    path = desk.path("pods", "child", "/api/v1")
    desk.bed.wait(lambda: desk.bed.get(path)["status"].get("phase") == "Running", "the pod runs")


@pytest.mark.parametrize("have", ["no Workload", "one admitted", "one admitted and a later one gated"])
def test_way_out_jobs_of_a_kind_that_kueue_was_told_of(desk: Desk, have: str) -> None:
    """The webhook lets them through. Kueue's Job controller then looks for the owner's Workload, cannot, and gives up."""
    desk.queue()
    parent = run(desk, "Listed")
    mine = owner(parent)
    if have != "no Workload":
        desk.workload("first", owners=[mine])
        desk.until_running("first")
    if have == "one admitted and a later one gated":
        desk.next_second()
        desk.workload("second", owners=[mine], gate="penstock.example/stage")
        desk.until_pending("second", "AdmissionGated")
    made = job(desk, "child", mine)
    assert not made["spec"].get("suspend")
    until_active(desk, "child")
    said = f"Index with name field:.metadata.ownerReferences[{GROUP}.Listed] does not exist"
    log = desk.bed.dir / "log" / "kueue.log"
    desk.bed.wait(
        lambda: any(said in line and desk.namespace in line for line in log.read_text().splitlines()),
        "Kueue's Job controller reports that it has no index for this kind",
    )
    assert not suspended(desk, "child")


def test_way_out_a_parent_of_a_built_in_kind(desk: Desk) -> None:
    """Children of a Job that is in the queue follow its Workload: held until that is admitted."""
    desk.queue(cpu="1")
    desk.workload("holder")
    desk.until_running("holder")
    parent = job(desk, "parent", labels={QUEUE: "main"}) | {"apiVersion": "batch/v1", "kind": "Job"}
    [waiting] = desk.bed.wait(lambda: [w for w in workloads(desk) if w["metadata"]["name"] != "holder"], "its Workload")
    child = job(desk, "child", owner(parent))
    assert not child["spec"].get("suspend")  # the webhook lets it be,
    desk.bed.wait(lambda: suspended(desk, "child"), "the controller suspends it")
    desk.finish("holder")
    desk.until_running(waiting["metadata"]["name"])
    assert suspended(desk, "child")  # and nobody but its own controller lets it go again
    desk.bed.raw("PATCH", desk.jobs("child"), {"spec": {"suspend": False}}, MERGE)
    until_active(desk, "child")


def test_a_second_workload_of_a_built_in_parent_is_deleted(desk: Desk) -> None:
    """So stages cannot be Workloads of one Job: it may have one, and Kueue decides which."""
    desk.queue(cpu="4")
    parent = job(desk, "parent", labels={QUEUE: "main"}) | {"apiVersion": "batch/v1", "kind": "Job"}
    [own] = desk.bed.wait(lambda: workloads(desk), "its Workload")
    desk.until_running(own["metadata"]["name"])
    until_active(desk, "parent")
    desk.next_second()
    desk.workload("second", owners=[owner(parent)], gate="penstock.example/stage")
    desk.bed.wait(lambda: "second" not in {w["metadata"]["name"] for w in workloads(desk)}, "Kueue deletes ours")
    assert holds(desk.get(own["metadata"]["name"]), "Admitted") and not suspended(desk, "parent")


# -- without the setting ----------------------------------------------------------------------------------------------


def test_by_default_only_a_queue_name_matters(testbed: Any) -> None:
    desk = Desk(testbed(*PLAIN))
    desk.queue(cpu="1")
    desk.workload("stage")
    desk.until_running("stage")
    job(desk, "plain")
    until_active(desk, "plain")
    assert [w["metadata"]["name"] for w in workloads(desk)] == ["stage"]
    job(desk, "labelled", labels={QUEUE: "main"})  # a child that carries the label stands in line a second time
    [second] = desk.bed.wait(lambda: [w for w in workloads(desk) if w["metadata"]["name"] != "stage"], "its Workload")
    desk.until_pending(second["metadata"]["name"], "Pending")
    assert suspended(desk, "labelled") and reason(desk.get("stage"), "Admitted") == "Admitted"
