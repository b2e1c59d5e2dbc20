"""What Kueue asks for, and how its controller answers: preemption, stopped queues, deactivation, time limits, readiness.

These are proofs against the real Kueue; docs/ideas/kueue-protocol.md cites them by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.cluster.kueue_protocol import (
    IMPATIENT,
    JSON_PATCH,
    KUEUE,
    MERGE,
    PLAIN,
    Desk,
    Object,
    condition,
    copied,
    holds,
    now,
    pod_set,
    reason,
    refused,
    released,
    stated,
    with_conditions,
)


@pytest.fixture
def desk(testbed: Any) -> Desk:
    return Desk(testbed(*PLAIN))


@pytest.fixture
def impatient(testbed: Any) -> Desk:
    return Desk(testbed(*PLAIN, kueue=IMPATIENT))


def preempted(desk: Desk) -> Object:
    """A queue that is full, with a Workload that has been asked to make room for a better one."""
    desk.queue(cpu="2", preemption={"withinClusterQueue": "LowerPriority"})
    desk.workload("victim", cpu="2")
    desk.until_running("victim")
    desk.ready("victim")
    desk.workload("boss", cpu="2", priority=10)
    return desk.until_evicted("victim", "Preempted")


# -- preemption -------------------------------------------------------------------------------------------------------


def test_eviction_is_a_request_and_quota_is_held_until_it_is_answered(desk: Desk) -> None:
    victim = preempted(desk)
    assert holds(victim, "Admitted") and holds(victim, "QuotaReserved") and victim["status"]["admission"]
    assert reason(victim, "Preempted") == "InClusterQueue"
    desk.queue("side")
    desk.fence("fence", "side")  # a cycle takes the first of every queue: this one has been looked at
    desk.until_used("2")
    assert not holds(desk.get("boss"), "QuotaReserved")

    desk.answer("victim")
    desk.until_running("boss")
    waiting = desk.until_pending("victim", "Pending")
    assert holds(waiting, "Evicted") and "admission" not in waiting["status"]
    evictions = waiting["status"]["schedulingStats"]["evictions"]
    assert [(each["reason"], each["count"]) for each in evictions] == [("Preempted", 1)]

    desk.finish("boss")
    again = desk.until_running("victim")  # in line by itself; Kueue takes the eviction back
    assert condition(again, "Evicted")["status"] == "False" and condition(again, "Preempted")["status"] == "False"


def test_an_eviction_that_nobody_answers_stops_the_whole_queue(desk: Desk) -> None:
    preempted(desk)
    desk.workload("nothing", cpu="0")
    desk.workload("better", cpu="0", priority=20)
    desk.queue("side")
    desk.fence("fence", "side")
    for name in ("nothing", "better"):  # they would fit, and one of them comes before all others
        assert "conditions" not in desk.get(name).get("status", {})
    desk.answer("victim")
    for name in ("boss", "nothing", "better"):
        desk.until_running(name)


# -- ways to write the answer -----------------------------------------------------------------------------------------


def by_merge_patch(desk: Desk, seen: Object) -> None:
    desk.bed.raw(
        "PATCH",
        desk.path("workloads", "victim") + "/status",
        {
            "metadata": {"resourceVersion": seen["metadata"]["resourceVersion"]},
            "status": {"admission": None, "conditions": with_conditions(seen, *released(seen))},
        },
        MERGE,
    )


def by_json_patch(desk: Desk, seen: Object) -> None:
    desk.bed.raw(
        "PATCH",
        desk.path("workloads", "victim") + "/status",
        [
            {"op": "test", "path": "/metadata/resourceVersion", "value": seen["metadata"]["resourceVersion"]},
            {"op": "remove", "path": "/status/admission"},
            {"op": "replace", "path": "/status/conditions", "value": with_conditions(seen, *released(seen))},
        ],
        JSON_PATCH,
    )


def by_update(desk: Desk, seen: Object) -> None:
    whole = copied(seen)
    del whole["status"]["admission"]
    whole["status"]["conditions"] = with_conditions(seen, *released(seen))
    desk.bed.raw("PUT", desk.path("workloads", "victim") + "/status", whole)


def by_apply_as_kueue(desk: Desk, seen: Object) -> None:
    """As Kueue's own manager, so that what is left out goes away: all that it had written has to be sent again."""
    kept = {key: value for key, value in seen["status"].items() if key != "admission"}
    kept["conditions"] = with_conditions(seen, *released(seen))
    desk.apply_status(
        "victim",
        kept,
        manager="kueue-admission",
        force=True,
        version=seen["metadata"]["resourceVersion"],
    )


@pytest.mark.parametrize(
    "write, stale",
    [(by_merge_patch, 409), (by_json_patch, 422), (by_update, 409), (by_apply_as_kueue, 409)],
    ids=["merge-patch", "json-patch", "update", "apply-as-kueue"],
)
def test_four_ways_to_answer(desk: Desk, write: Callable[[Desk, Object], None], stale: int) -> None:
    old = desk.get("victim") if preempted(desk) else {}
    desk.edit("victim", {"metadata": {"labels": {"touched": "yes"}}})  # anybody's write makes what we have read stale
    assert refused(lambda: write(desk, old)).code == stale
    write(desk, desk.get("victim"))
    desk.until_running("boss")
    answered = desk.get("victim")
    assert "admission" not in answered["status"] and answered["status"]["schedulingStats"]["evictions"]
    desk.finish("boss")
    desk.until_running("victim")


def test_apply_under_a_name_of_our_own_frees_the_quota(desk: Desk) -> None:
    seen = preempted(desk)
    told = {"conditions": released(seen)}
    error = refused(lambda: desk.apply_status("victim", told, manager="penstock"))
    assert error.code == 409 and 'conflicts with "kueue-admission"' in error.message
    desk.apply_status("victim", told, manager="penstock", force=True)
    desk.until_running("boss")  # the conditions alone give it back


def test_but_it_leaves_the_admission_behind_which_bars_the_way_back(desk: Desk) -> None:
    desk.queue(cpu="4")
    desk.workload("stage", count=4)
    told = released(desk.until_running("stage"), "OnHold")
    desk.apply_status("stage", {"conditions": told}, manager="penstock", force=True)
    desk.until_used("0")
    assert desk.get("stage")["status"]["admission"]  # what another has written, an apply cannot take away
    error = refused(lambda: desk.apply_status("stage", {"conditions": told[:1]}, manager="penstock", force=True))
    assert error.code == 422 and "Required value" in error.message  # leaving out what we said before tears it apart

    desk.edit("stage", {"spec": {"podSets": [pod_set(count=2)]}})
    desk.say("stage", stated("QuotaReserved", False, "PendingEvaluation"))
    log = desk.bed.dir / "log" / "kueue.log"
    desk.bed.wait(
        lambda: any(
            desk.namespace in line and "status.admission" in line and "field is immutable" in line
            for line in log.read_text().splitlines()
        ),
        "Kueue fails to write a new admission over the old one",
    )
    assert not holds(desk.get("stage"), "QuotaReserved")
    desk.status("stage", lambda _: {"admission": None})
    desk.until_running("stage")


def test_readiness_by_apply_under_a_name_of_our_own(desk: Desk) -> None:
    desk.queue(cpu="1")
    desk.workload("stage")
    desk.until_running("stage")
    desk.apply_status("stage", {"conditions": [stated("PodsReady", True, "Started")]}, manager="penstock")
    desk.apply_status("stage", {"conditions": [stated("PodsReady", False, "WaitForRecovery")]}, manager="penstock")
    desk.apply_status("stage", {"conditions": [stated("PodsReady", True, "Recovered")]}, manager="penstock")

    desk.edit("stage", {"spec": {"active": False}})  # Kueue writes its part of the status, ours included, by force
    desk.until_evicted("stage", "Deactivated")
    change = {"conditions": [stated("PodsReady", False, "WaitForStart")]}
    error = refused(lambda: desk.apply_status("stage", change, manager="penstock"))
    assert error.code == 409 and "kueue-admission" in error.message
    desk.apply_status("stage", change, manager="penstock", force=True)


def test_kueue_leaves_readiness_as_it_was(desk: Desk) -> None:
    preempted(desk)
    keep = [each for each in released(desk.get("victim")) if each["type"] != "PodsReady"]
    desk.status("victim", lambda seen: {"admission": None, "conditions": with_conditions(seen, *keep)})
    desk.until_running("boss")
    desk.finish("boss")
    assert holds(desk.until_running("victim"), "PodsReady")  # of the first time: nobody but us resets it


# -- stopped queues ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("local", [False, True], ids=["ClusterQueue", "LocalQueue"])
def test_a_drained_queue_takes_its_workloads_back_when_it_opens(desk: Desk, local: bool) -> None:
    kind = "LocalQueue" if local else "ClusterQueue"
    desk.queue(cpu="1")
    desk.workload("stage")
    desk.until_running("stage")
    desk.stop_queue("HoldAndDrain", local=local)
    desk.until_evicted("stage", f"{kind}Stopped")
    desk.until_used("1")
    desk.answer("stage")
    desk.until_used("0")
    waiting = desk.get("stage")
    assert condition(waiting, "Requeued")["status"] == "False" and reason(waiting, "Requeued") == f"{kind}Stopped"

    desk.stop_queue("None", local=local)
    desk.until_running("stage")
    desk.until("stage", lambda seen: reason(seen, "Requeued") == f"{kind}Restarted", "is in line, says Kueue")


def test_hold_lets_those_run_that_run(desk: Desk) -> None:
    desk.queue(cpu="2")
    desk.workload("inside")
    desk.until_running("inside")
    desk.stop_queue("Hold")
    desk.workload("outside")
    desk.until_pending("outside", "Inadmissible")
    assert not condition(desk.get("inside"), "Evicted")
    desk.stop_queue("None")
    desk.until_running("outside")


# -- deactivation -----------------------------------------------------------------------------------------------------


def test_deactivation_frees_quota_before_it_is_answered(desk: Desk) -> None:
    desk.queue(cpu="1")
    desk.workload("paused")
    desk.until_running("paused")
    desk.workload("next")
    desk.until_pending("next", "Pending")
    desk.edit("paused", {"spec": {"active": False}})
    desk.until_evicted("paused", "Deactivated")
    desk.until_running("next")  # nobody has answered: for a while both may run
    assert holds(desk.get("paused"), "QuotaReserved")

    desk.answer("paused")
    desk.edit("paused", {"spec": {"active": True}})
    desk.until("paused", lambda seen: reason(seen, "Requeued") == "Reactivated", "is in line again")
    desk.finish("next")
    desk.until_running("paused")


def test_reactivated_before_the_answer_the_old_reservation_counts_again(desk: Desk) -> None:
    desk.queue(cpu="1")
    desk.workload("paused")
    desk.until_running("paused")
    desk.workload("next")
    desk.until_pending("next", "Pending")
    desk.edit("paused", {"spec": {"active": False}})
    desk.until_evicted("paused", "Deactivated")
    desk.until_running("next")
    desk.edit("paused", {"spec": {"active": True}})
    desk.until_used("2")  # in a queue of one
    assert holds(desk.get("paused"), "Evicted")
    desk.answer("paused")
    desk.until_used("1")


def test_a_waiting_workload_that_is_switched_off(desk: Desk) -> None:
    desk.queue(cpu="1")
    desk.workload("off", active=False)
    off = desk.until_evicted("off", "Deactivated")  # though it never held anything
    assert not holds(off, "QuotaReserved")
    desk.fence("fence")
    desk.edit("off", {"spec": {"active": True}})
    desk.until_running("off")


# -- time limits ------------------------------------------------------------------------------------------------------


def test_the_longest_time_to_run(desk: Desk) -> None:
    desk.queue(cpu="1")
    desk.workload("long", maximumExecutionTimeSeconds=1)
    desk.until_running("long")
    over = desk.until_evicted("long", "DeactivatedDueToMaximumExecutionTimeExceeded")
    assert over["spec"]["active"] is False
    desk.workload("next")
    desk.until_running("next")


def test_time_of_earlier_admissions_counts_when_we_have_written_it(desk: Desk) -> None:
    desk.queue(cpu="1")
    desk.workload("resumed", maximumExecutionTimeSeconds=1000, gate="penstock.example/stage")
    desk.until_pending("resumed", "AdmissionGated")
    desk.status("resumed", lambda _: {"accumulatedPastExecutionTimeSeconds": 1000})
    desk.clear_gate("resumed")
    desk.until_evicted("resumed", "DeactivatedDueToMaximumExecutionTimeExceeded")


# -- readiness --------------------------------------------------------------------------------------------------------


def test_who_never_says_ready_is_evicted_and_in_the_end_given_up(impatient: Desk) -> None:
    desk = impatient
    desk.queue(cpu="2")
    desk.workload("good")
    desk.until_running("good")
    desk.ready("good")
    desk.workload("silent")
    desk.until_running("silent")
    silent = desk.until_evicted("silent", "PodsReadyTimeout")
    assert silent["status"]["requeueState"]["count"] == 1 and silent["status"]["requeueState"]["requeueAt"]
    desk.answer("silent", "PendingEvaluation")
    again = desk.until_running("silent")
    assert reason(again, "Requeued") == "BackoffFinished"
    given_up = desk.until_evicted("silent", "DeactivatedDueToRequeuingLimitExceeded")
    assert given_up["spec"]["active"] is False
    assert not condition(desk.get("good"), "Evicted")


def test_who_does_not_recover_is_evicted(impatient: Desk) -> None:
    desk = impatient
    desk.queue(cpu="1")
    desk.workload("stage")
    desk.until_running("stage")
    desk.ready("stage")
    desk.say("stage", stated("PodsReady", False, "WaitForRecovery"))
    lost = desk.until_evicted("stage", "PodsReadyTimeout")
    assert lost["status"]["schedulingStats"]["evictions"][0]["underlyingCause"] == "WaitForRecovery"


def test_half_an_hour_is_the_limit_when_nobody_says_otherwise(desk: Desk) -> None:
    lines = (desk.bed.dir / "log" / "kueue.log").read_text().splitlines()
    loaded = next(json.loads(line) for line in lines if '"Configuration loaded"' in line)
    assert yaml.safe_load(loaded["config"])["waitForPodsReady"]["timeout"] == "30m0s"


# -- admission checks -------------------------------------------------------------------------------------------------


def checked(desk: Desk) -> str:
    """A queue with an admission check, for which this test answers."""
    name, checks = f"{desk.namespace}-check", f"{KUEUE}/admissionchecks"
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": name}}
    desk.bed.raw("POST", checks, body | {"spec": {"controllerName": "penstock.example/check"}})
    active = {"status": {"conditions": [stated("Active", True, "Ready")]}}
    desk.bed.raw("PATCH", f"{checks}/{name}/status", active, MERGE)
    desk.queue(cpu="1", admissionChecksStrategy={"admissionChecks": [{"name": name}]})
    return name


def check(desk: Desk, workload: str, name: str, state: str) -> None:
    told = {"name": name, "state": state, "message": "", "lastTransitionTime": now()}
    desk.status(workload, lambda _: {"admissionChecks": [told]})


def test_reserved_is_not_admitted(desk: Desk) -> None:
    name = checked(desk)
    desk.workload("stage")
    reserved = desk.until("stage", lambda seen: holds(seen, "QuotaReserved"), "has its quota")
    assert not holds(reserved, "Admitted") and reserved["status"]["admission"]
    desk.until_used("1")
    check(desk, "stage", name, "Ready")
    desk.until_running("stage")


def test_a_check_that_asks_to_retry_is_an_eviction_too(desk: Desk) -> None:
    name = checked(desk)
    desk.workload("stage")
    desk.until("stage", lambda seen: holds(seen, "QuotaReserved"), "has its quota")
    check(desk, "stage", name, "Retry")
    seen = desk.until_evicted("stage", "AdmissionCheck")
    assert holds(seen, "QuotaReserved")  # never admitted, and still waiting for our answer
    desk.answer("stage")
    again = desk.until("stage", lambda seen: holds(seen, "QuotaReserved"), "has quota again")
    assert reason(again, "Requeued") == "BackoffFinished"
    check(desk, "stage", name, "Rejected")
    desk.until_evicted("stage", "DeactivatedDueToAdmissionCheck")


# -- reasons ----------------------------------------------------------------------------------------------------------

# what is wrong: the reason by default, with the gate UnadmittedWorkloadsObservability, and what the message says in both
WAITING = {
    "full": ("Pending", "WaitingForQuota", "insufficient unused quota for cpu"),
    "too large": ("Pending", "ExceedsMaxQuota", "current podset request (2) > maximum capacity (1)"),
    "not covered": ("Pending", "NoMatchingFlavor", "resource example.com/gpu unavailable in ClusterQueue"),
    "no such queue": ("Inadmissible", "Misconfigured", "LocalQueue nowhere doesn't exist"),
    "stopped": ("Inadmissible", "Suspended", "is inactive"),
}


@pytest.mark.parametrize("granular", [False, True], ids=["default", "observability"])
@pytest.mark.parametrize("case", sorted(WAITING))
def test_the_reasons_for_waiting(request: pytest.FixtureRequest, case: str, granular: bool) -> None:
    desk: Desk = request.getfixturevalue("impatient" if granular else "desk")
    desk.queue(cpu="1")
    desk.workload("holder")
    desk.until_running("holder")
    desk.ready("holder")
    match case:
        case "full":
            desk.workload("waiting")
        case "too large":
            desk.workload("waiting", cpu="2")
        case "not covered":
            desk.workload(
                "waiting",
                podSets=[
                    {
                        "name": "main",
                        "count": 1,
                        "template": {
                            "spec": {
                                "containers": [{"name": "main", "resources": {"requests": {"example.com/gpu": "1"}}}]
                            }
                        },
                    }
                ],
            )
        case "no such queue":
            desk.workload("waiting", queue="nowhere")
        case "stopped":
            desk.stop_queue("Hold")
            desk.workload("waiting")
    seen = desk.until_pending("waiting", WAITING[case][granular])
    assert WAITING[case][2] in condition(seen, "QuotaReserved")["message"]
