"""How a Workload stands in Kueue's line when its controller is ours: gates, holds, priorities, parts, what is refused.

These are proofs against the real Kueue; docs/ideas/kueue-protocol.md cites them by name.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, cast

import pytest

from testbed.api import Api
from testbed.instance import Testbed
from tests.cluster.kueue_protocol import (
    IMPATIENT,
    JOB_UID,
    KUEUE,
    MERGE,
    PLAIN,
    Desk,
    condition,
    holds,
    owner,
    pod_set,
    reason,
    refused,
    stated,
)

STAGE = "penstock.example/stage"


@pytest.fixture
def desk(testbed: Any) -> Desk:
    return Desk(testbed(*PLAIN))


# -- gates ------------------------------------------------------------------------------------------------------------


def test_a_gated_workload_keeps_its_place_and_blocks_nobody(desk: Desk) -> None:
    desk.queue(cpu="1", queueingStrategy="StrictFIFO")
    desk.workload("holder")
    desk.until_running("holder")
    desk.workload("gated", gate=STAGE)
    gated = desk.until_pending("gated", "AdmissionGated")
    assert "penstock.example/stage" in condition(gated, "QuotaReserved")["message"]
    desk.next_second()
    desk.workload("second")
    desk.until_pending("second", "Pending")

    desk.finish(
        "holder"
    )  # quota back; the oldest in line is gated, the queue is strict, and still the next one goes in
    desk.until_running("second")
    assert reason(desk.get("gated"), "QuotaReserved") == "AdmissionGated"

    desk.next_second()
    desk.workload("third")
    desk.until_pending("third", "Pending")
    desk.clear_gate("gated")
    desk.until_pending("gated", "Pending")
    desk.finish("second")
    desk.until_running("gated")  # by its creation time: third was created, and waited, before the gate was cleared
    assert not holds(desk.get("third"), "QuotaReserved")

    assert holds(desk.ready("gated"), "PodsReady")
    desk.finish("gated")
    desk.until_running("third")


def test_gates_may_only_be_taken_away(desk: Desk) -> None:
    desk.queue()
    desk.workload("two", gate="penstock.example/a,penstock.example/b")
    desk.until_pending("two", "AdmissionGated")
    key = "kueue.x-k8s.io/admission-gated-by"
    for value, said in {
        "penstock.example/a,penstock.example/c": "can only remove gates",
        "penstock.example/a,penstock.example/a": "duplicate gate name",
        "plain": "domain-prefixed",
    }.items():
        error = refused(desk.edit, "two", {"metadata": {"annotations": {key: value}}})
        assert error.code == 403 and said in error.message
    desk.edit("two", {"metadata": {"annotations": {key: "penstock.example/b"}}})
    desk.fence("fence")
    assert reason(desk.get("two"), "QuotaReserved") == "AdmissionGated"
    desk.edit("two", {"metadata": {"annotations": {key: ""}}})  # empty counts as gone
    desk.until_running("two")

    desk.workload("late")
    error = refused(lambda: desk.edit("late", {"metadata": {"annotations": {key: STAGE}}}))
    assert error.code == 403 and "cannot add admission gate after creation" in error.message


def test_a_gated_workload_may_be_changed(desk: Desk) -> None:
    desk.queue(cpu="2")
    desk.queue("other", cpu="2")
    desk.workload("stage", count=5, gate=STAGE)
    desk.until_pending("stage", "AdmissionGated")
    desk.edit("stage", {"spec": {"podSets": [pod_set(count=2)], "priority": 7, "queueName": "other"}})
    desk.clear_gate("stage")
    admitted = desk.until_running("stage")
    assert admitted["status"]["admission"]["clusterQueue"] == f"{desk.namespace}-other"
    assert admitted["status"]["admission"]["podSetAssignments"][0]["count"] == 2


def test_a_gated_workload_outlives_a_stop_of_its_queue(desk: Desk) -> None:
    desk.queue(cpu="1")
    desk.workload("gated", gate=STAGE)
    desk.until_pending("gated", "AdmissionGated")
    desk.workload("plain")
    desk.until_running("plain")
    desk.stop_queue("HoldAndDrain", local=True)
    desk.until_evicted("plain", "LocalQueueStopped")
    stopped = desk.get("gated")
    assert not condition(stopped, "Evicted") and not condition(stopped, "Requeued")
    desk.finish("plain")
    desk.stop_queue("None", local=True)
    desk.fence("fence")
    desk.clear_gate("gated")
    desk.until_running("gated")


@pytest.mark.parametrize("queue", ["stopped", "missing"])
def test_a_gated_workload_whose_queue_does_not_serve_is_written_without_end(desk: Desk, queue: str) -> None:
    """Kueue says "gated", then "inadmissible", then "gated", as fast as it can; each of its writes makes it look again.

    With a ClusterQueue that stops it depends on what Kueue hears of first; a LocalQueue is certain."""
    desk.queue()
    if queue == "missing":
        desk.workload("gated", gate=STAGE, queue="nowhere")
    else:
        desk.workload("gated", gate=STAGE)
        desk.until_pending("gated", "AdmissionGated")
        desk.stop_queue("Hold", local=True)
    versions, reasons = set(), set()

    def ten() -> bool:
        seen = desk.get("gated")
        versions.add(seen["metadata"]["resourceVersion"])
        reasons.add(reason(seen, "QuotaReserved"))
        return len(versions) >= 10 and {"AdmissionGated", "Inadmissible"} <= reasons

    desk.bed.wait(ten, "ten versions of a Workload that nobody else writes to")
    desk.bed.raw("DELETE", desk.path("workloads", "gated"))


def test_switched_off_from_the_start_is_a_place_in_line_too(desk: Desk) -> None:
    """Without a gate, so without the endless writing; a stop of the queue does it no harm."""
    desk.queue(cpu="1", queueingStrategy="StrictFIFO")
    desk.queue("side")
    desk.workload("holder")
    desk.until_running("holder")
    desk.workload("off", active=False)
    desk.until("off", lambda seen: reason(seen, "Evicted") == "Deactivated", "is off")
    desk.stop_queue("Hold", local=True)
    quiet = desk.until_pending("off", "Inadmissible")
    desk.fence("fence", "side")
    assert desk.get("off")["metadata"]["resourceVersion"] == quiet["metadata"]["resourceVersion"]
    desk.stop_queue("None", local=True)
    desk.next_second()
    desk.workload("later")
    desk.until_pending("later", "Pending")
    desk.edit("off", {"spec": {"active": True}})
    desk.finish("holder")
    desk.until_running("off")
    assert not holds(desk.get("later"), "QuotaReserved")


# -- on hold ----------------------------------------------------------------------------------------------------------


def test_on_hold_keeps_a_waiting_workload_out_of_line(desk: Desk) -> None:
    desk.queue(cpu="1", queueingStrategy="StrictFIFO")
    desk.workload("holder")
    desk.until_running("holder")
    desk.workload("held", count=3)
    desk.until("held", lambda seen: condition(seen, "QuotaReserved").get("status") == "False", "has been looked at")
    desk.say("held", stated("QuotaReserved", False, "OnHold"))
    desk.edit("held", {"spec": {"podSets": [pod_set(count=1)]}})
    desk.next_second()
    desk.workload("second")
    desk.until_pending("second", "Pending")
    desk.finish("holder")
    desk.until_running("second")
    assert reason(desk.get("held"), "QuotaReserved") == "OnHold"

    desk.workload("third")
    desk.until_pending("third", "Pending")
    desk.say("held", stated("QuotaReserved", False, "PendingEvaluation"))
    desk.until("held", lambda seen: reason(seen, "QuotaReserved") != "OnHold", "is in line")
    desk.finish("second")
    desk.until_running("held")
    assert not holds(desk.get("third"), "QuotaReserved")


def test_a_running_workload_goes_on_hold_changes_and_comes_back(desk: Desk) -> None:
    desk.queue(cpu="4")
    desk.workload("stages", count=4)
    desk.until_running("stages")
    desk.ready("stages")
    desk.workload("guest", count=2)
    desk.until_pending("guest", "Pending")

    desk.answer("stages", "OnHold")  # nobody evicted it: we give the quota back between two stages
    desk.until_running("guest")
    held = desk.edit("stages", {"spec": {"podSets": [pod_set("fewer", count=2)]}})
    assert reason(held, "QuotaReserved") == "OnHold"
    desk.fence("fence")
    assert reason(desk.get("stages"), "QuotaReserved") == "OnHold"
    desk.say("stages", stated("QuotaReserved", False, "PendingEvaluation"))
    again = desk.until_running("stages")
    assert again["status"]["admission"]["podSetAssignments"][0]["name"] == "fewer"
    assert again["metadata"]["creationTimestamp"] == held["metadata"]["creationTimestamp"]


@pytest.mark.parametrize("observed", [False, True], ids=["default", "observability"])
def test_a_hold_is_lost_when_the_queue_stops_unless_a_gate_is_on(testbed: Any, observed: bool) -> None:
    desk = Desk(testbed(*PLAIN, **({"kueue": IMPATIENT} if observed else {})))
    desk.queue(cpu="1")
    desk.workload("held")
    desk.until_running("held")
    desk.answer("held", "OnHold")
    desk.until_used("0")
    desk.stop_queue("Hold", local=True)
    desk.workload("witness", cpu="2")
    desk.until_pending("witness", "Suspended" if observed else "Inadmissible")
    if observed:
        desk.stop_queue("None", local=True)
        desk.fence("fence")
        assert reason(desk.get("held"), "QuotaReserved") == "OnHold"
    else:
        desk.until_pending("held", "Inadmissible")  # our word is overwritten,
        desk.stop_queue("None", local=True)
        desk.until_running("held")  # and nobody has asked for this


# -- less than all ----------------------------------------------------------------------------------------------------


def reclaim(desk: Desk, name: str, count: int, pod_set_name: str = "main") -> None:
    desk.status(name, lambda _: {"reclaimablePods": [{"name": pod_set_name, "count": count}]})


def test_reclaimable_pods_let_the_next_one_in(desk: Desk) -> None:
    desk.queue(cpu="4")
    desk.workload("wide", count=4)
    desk.until_running("wide")
    desk.workload("next", count=2)
    desk.until_pending("next", "Pending")

    reclaim(desk, "wide", 1)
    desk.until_used("3")
    desk.fence("fence")
    assert not holds(desk.get("next"), "QuotaReserved")
    reclaim(desk, "wide", 2)
    desk.until_running("next")
    assert (
        desk.get("wide")["status"]["admission"]["podSetAssignments"][0]["count"] == 4
    )  # the assignment stays as it was

    less = refused(lambda: reclaim(desk, "wide", 1))
    assert less.code == 403 and "cannot be less than 2" in less.message
    none = refused(lambda: desk.status("wide", lambda _: {"reclaimablePods": None}))
    assert none.code == 403 and "cannot be removed" in none.message
    more = refused(lambda: reclaim(desk, "wide", 5))
    assert more.code == 403 and "should be less or equal to 4" in more.message
    unknown = refused(lambda: reclaim(desk, "wide", 3, "other"))
    assert unknown.code == 403 and "Unsupported value" in unknown.message

    desk.answer("wide", "OnHold")
    reclaim(desk, "wide", 0)  # without a reservation it may shrink again


def test_a_part_is_admitted_when_minCount_allows(desk: Desk) -> None:
    desk.queue(cpu="3")
    desk.workload("loop", podSets=[pod_set(count=5, minCount=2)])
    seen = desk.until_running("loop")
    given = seen["status"]["admission"]["podSetAssignments"][0]
    assert given["count"] == 3 and given["resourceUsage"] == {"cpu": "3"} and seen["spec"]["podSets"][0]["count"] == 5
    desk.workload("late", podSets=[pod_set(count=5, minCount=2)])
    desk.until_pending("late", "Pending")
    desk.until_used("3")
    reclaim(desk, "loop", 2)  # comes off the five that were asked for: three are left, and three is what it has
    desk.fence("fence")
    assert desk.used() == "3"
    reclaim(desk, "loop", 4)
    assert desk.until_running("late")["status"]["admission"]["podSetAssignments"][0]["count"] == 2

    two = [pod_set("a", count=2, minCount=1), pod_set("b", count=2, minCount=1)]
    error = refused(lambda: desk.workload("two", podSets=two))
    assert "at most one podSet can use minCount" in error.message
    error = refused(lambda: desk.workload("odd", podSets=[pod_set(count=1, minCount=2)]))
    assert error.code == 422 and "minCount should be positive and less or equal to count" in error.message


# -- rights -----------------------------------------------------------------------------------------------------------


def test_the_rights_that_a_controller_needs(desk: Desk) -> None:
    """A user with these and no others goes through a whole life of a Workload."""
    bed, user, rbac = desk.bed, f"{desk.namespace}-controller", "rbac.authorization.k8s.io"
    desk.queue()
    rules = [
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["create", "get", "patch", "delete"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads/status"], "verbs": ["patch"]},
    ]
    meta = {"name": user, "namespace": desk.namespace}
    ref = {"apiGroup": rbac, "kind": "Role", "name": user}
    binding = {"roleRef": ref, "subjects": [{"kind": "User", "name": user, "apiGroup": rbac}]}
    bed.apply(
        [
            {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": rules},
            {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": meta, **binding},
        ]
    )
    folder = bed.authority.issue(user, ()).write(bed.dir / "certificates" / user, bed.ca)
    book = bed.raw("POST", desk.configmaps(), {"metadata": {"name": "run"}}) | {"apiVersion": "v1", "kind": "ConfigMap"}
    api = Api(bed.url, folder / "ca.crt", folder / "tls.crt", folder / "tls.key")
    with closing(api):
        ours = Desk(cast(Testbed, Narrow(bed, api)), desk.namespace)
        ours.workload("stage", gate=STAGE, owners=[owner(book)])
        ours.clear_gate("stage")
        ours.until_running("stage")
        ours.ready("stage")
        ours.answer("stage", "OnHold")
        ours.say("stage", stated("QuotaReserved", False, "PendingEvaluation"))
        ours.until_running("stage")
        ours.finish("stage")
        api.raw("DELETE", ours.path("workloads", "stage"))


class Narrow:
    """A testbed as another user sees it."""

    def __init__(self, bed: Testbed, api: Api) -> None:
        self.raw, self.wait = api.raw, bed.wait

    def get(self, path: str) -> Any:
        return self.raw("GET", path)


# -- what is refused --------------------------------------------------------------------------------------------------


def test_what_is_frozen_while_quota_is_reserved(desk: Desk) -> None:
    desk.queue(cpu="8")
    desk.queue("other", cpu="8")
    desk.workload("fixed", count=4)
    desk.until_running("fixed")
    for change in (pod_set(count=5), pod_set(count=4, cpu="2"), pod_set("renamed", count=4)):
        error = refused(desk.edit, "fixed", {"spec": {"podSets": [change]}})
        assert error.code == 403 and "field is immutable" in error.message
    error = refused(lambda: desk.edit("fixed", {"spec": {"queueName": "other"}}))
    assert error.code == 422 and "queueName is immutable while workload quota reserved" in error.message
    error = refused(lambda: desk.edit("fixed", {"spec": {"maximumExecutionTimeSeconds": 5}}))
    assert error.code == 422 and "maximumExecutionTimeSeconds is immutable" in error.message
    desk.edit("fixed", {"spec": {"priority": 3}})

    desk.until_used("4")
    desk.edit("fixed", {"spec": {"podSets": [pod_set(count=3)]}})  # fewer pods: meant for elastic jobs, open to all
    desk.until_used("3")
    assert desk.get("fixed")["status"]["admission"]["podSetAssignments"][0]["count"] == 4


def test_eighteen_pod_sets_and_no_more(desk: Desk) -> None:
    desk.queue(cpu="20")
    desk.workload("most", podSets=[pod_set(f"shape-{i}") for i in range(18)])
    assert len(desk.until_running("most")["status"]["admission"]["podSetAssignments"]) == 18
    error = refused(lambda: desk.workload("more", podSets=[pod_set(f"shape-{i}") for i in range(19)]))
    assert error.code == 422 and "must have at most 18 items" in error.message
    error = refused(
        lambda: desk.workload(
            "pods",
            podSets=[
                pod_set(template={"spec": {"containers": [{"name": "main", "resources": {"requests": {"pods": "1"}}}]}})
            ],
        )
    )
    assert error.code == 403 and "reserved for internal kueue use" in error.message


def test_a_job_uid_needs_an_owner(desk: Desk) -> None:
    desk.queue()
    desk.workload("orphan", labels={JOB_UID: "0f7c2a52-0000-0000-0000-000000000000"}, gate=STAGE)
    orphan = desk.until("orphan", lambda seen: holds(seen, "Finished"), "is finished by Kueue")
    assert reason(orphan, "Finished") == "OwnerNotFound"

    book = desk.bed.raw("POST", desk.configmaps(), {"metadata": {"name": "run"}})
    book |= {"apiVersion": "v1", "kind": "ConfigMap"}
    desk.workload("owned", labels={JOB_UID: book["metadata"]["uid"]}, owners=[owner(book)])
    desk.until_running("owned")


# -- owners and the end -----------------------------------------------------------------------------------------------


def gone(desk: Desk, name: str) -> bool:
    return name not in {each["metadata"]["name"] for each in desk.bed.get(desk.path("workloads"))["items"]}


def test_a_workload_goes_with_its_owner_whatever_kind_that_is(desk: Desk) -> None:
    desk.queue(cpu="1")
    book = desk.bed.raw("POST", desk.configmaps(), {"metadata": {"name": "run"}})
    book |= {"apiVersion": "v1", "kind": "ConfigMap"}
    desk.workload("child", owners=[owner(book)])
    desk.until_running("child")
    desk.workload("next")
    desk.until_pending("next", "Pending")
    desk.bed.raw("DELETE", desk.configmaps("run"))
    desk.bed.wait(lambda: gone(desk, "child"), "the Workload goes with its owner")
    desk.until_running("next")


def test_who_takes_the_finalizer_away(desk: Desk) -> None:
    desk.queue()
    finalizer = {"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}}
    desk.workload("bare")
    desk.edit("bare", finalizer)
    desk.until_running("bare")
    desk.bed.raw("DELETE", desk.path("workloads", "bare"))
    desk.bed.wait(lambda: gone(desk, "bare"), "Kueue takes its finalizer off a Workload without owner")

    book = desk.bed.raw("POST", desk.configmaps(), {"metadata": {"name": "run"}})
    book |= {"apiVersion": "v1", "kind": "ConfigMap"}
    desk.workload("owned", owners=[owner(book)])
    desk.edit("owned", finalizer)
    desk.until_running("owned")
    desk.bed.raw("DELETE", desk.path("workloads", "owned"))
    desk.fence("fence")
    assert desk.get("owned")["metadata"]["deletionTimestamp"]
    desk.edit("owned", {"metadata": {"finalizers": None}})
    desk.bed.wait(lambda: gone(desk, "owned"), "its controller takes it off")


# -- unseen -----------------------------------------------------------------------------------------------------------


def test_equals_of_one_that_waits_are_not_looked_at_and_carry_no_condition(desk: Desk) -> None:
    """Only where others may overtake (BestEffortFIFO): nothing has been said of it, and still it stands in line."""
    desk.queue(cpu="1")
    desk.workload("holder")
    desk.until_running("holder")
    desk.workload("first")
    desk.until_pending("first", "Pending")
    desk.next_second()
    desk.workload("twin")
    desk.next_second()
    desk.workload("different", cpu="500m")
    desk.until_pending("different", "Pending")
    assert "conditions" not in desk.get("twin").get("status", {})
    desk.finish("holder")
    desk.until_running("first")
    desk.finish("first")
    desk.until_running("twin")


# -- priority ---------------------------------------------------------------------------------------------------------


def test_a_change_of_priority_reorders_the_line(desk: Desk) -> None:
    desk.queue(cpu="1")
    desk.workload("holder")
    desk.until_running("holder")
    desk.workload("older")
    desk.until_pending("older", "Pending")
    desk.next_second()
    desk.workload("younger")
    desk.edit("younger", {"spec": {"priority": 10}})
    desk.finish("holder")
    desk.until_running("younger")
    assert not holds(desk.get("older"), "QuotaReserved")


def test_a_priority_class_must_be_resolved_by_us_and_is_followed_by_kueue(desk: Desk) -> None:
    desk.queue()
    classes, name = f"{KUEUE}/workloadpriorityclasses", desk.namespace
    made = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": 5,
    }
    desk.bed.raw("POST", classes, made)
    ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}
    error = refused(lambda: desk.workload("lazy", priorityClassRef=ref))
    assert error.code == 422 and "priority should not be nil when priorityClassRef is set" in error.message
    desk.workload("wrong", priorityClassRef=ref, priority=4)  # a number that is not the class's is taken as it is
    assert desk.until_running("wrong")["spec"]["priority"] == 4
    desk.bed.raw("PATCH", f"{classes}/{name}", {"value": 9}, MERGE)
    desk.until("wrong", lambda seen: seen["spec"]["priority"] == 9, "has the class's new value")
