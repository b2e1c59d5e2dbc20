"""What a ClusterQueue may ask for beside quota, with the controller on the real Argo and the real Kueue: admission checks, evictions that are no
preemptions, and a cap on running workflows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from penstock.controller.objects import annotations_of, labels_of, name_of, part, rows, uid_of
from testbed.instance import Testbed
from tests.cluster.argo_runs import create, fake, flow, node, pods, step, until, until_over
from tests.cluster.controlled import Controlled, Witness
from tests.cluster.kueue_protocol import KUEUE, MERGE, Desk, now, stated
from tests.cluster.support import condition
from tests.cluster.test_controller_argo import finished, is_now, loop, queued, workloads

Object = dict[str, Any]
STAGE = "main[0]"
CAP = "penstock/workflows"


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kueue", "kwok", "argo")


@pytest.fixture(scope="module")
def controller(bed: Testbed) -> Iterator[Controlled]:
    with Controlled(bed, ["argo"]) as found:
        yield found


@pytest.fixture
def desk(bed: Testbed, controller: Controlled) -> Desk:
    return Desk(bed)


def one_stage(name: str, run_time: str = "2s") -> Object:
    return queued(flow(name, [loop("each", "task", "x", "y")], fake("task", run_time=run_time, cpu="1")))


def events(bed: Testbed, desk: Desk) -> list[tuple[str, str]]:
    found = bed.get(f"/api/v1/namespaces/{desk.namespace}/events")["items"]
    return [(one["reason"], one["message"]) for one in found]


# -- admission checks -----------------------------------------------------------------------------------------------


class Check:
    """An admission check that the test itself answers."""

    def __init__(self, bed: Testbed, desk: Desk) -> None:
        self.bed, self.desk, self.name = bed, desk, f"{desk.namespace}-check"
        check = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": self.name}}
        bed.raw("POST", f"{KUEUE}/admissionchecks", check | {"spec": {"controllerName": "example.com/tests"}})
        active = {"status": {"conditions": [stated("Active", True, "Active")]}}
        bed.raw("PATCH", f"{KUEUE}/admissionchecks/{self.name}/status", active, MERGE)
        desk.queue("main", "2", admissionChecksStrategy={"admissionChecks": [{"name": self.name}]})

    def workload(self) -> Object:
        return workloads(self.desk)[STAGE]

    def until_open(self) -> None:
        """The quota is there, and Kueue waits for the check."""

        def waits() -> bool:
            there = workloads(self.desk).get(STAGE)
            states = [one["state"] for one in rows(there or {}, "status", "admissionChecks")]
            return there is not None and is_now(self.desk, STAGE, "QuotaReserved") and states == ["Pending"]

        self.bed.wait(waits, "Kueue to wait for the check", 60)

    def say(self, state: str, updates: Sequence[Mapping[str, Any]] = ()) -> None:
        said: Object = {"name": self.name, "state": state, "message": "said by the test", "lastTransitionTime": now()}
        said |= {"podSetUpdates": list(updates)} if updates else {}
        self.desk.status(name_of(self.workload()), lambda _: {"admissionChecks": [said]})


def test_a_check_says_where_pods_run_has_them_stopped_and_refuses(bed: Testbed, desk: Desk) -> None:
    """Pending: no pod is there. Ready: pods have what it adds. Retry: the stage is stopped and waits for it anew. Rejected: for good."""
    check = Check(bed, desk)
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, one_stage("w", "forever"))
        check.until_open()
        until(bed, desk.namespace, "w", "penstock-gate-0", "Running")
        assert not pods(bed, desk.namespace, "w") and not is_now(desk, STAGE, "Admitted")
        (pod_set,) = [one["name"] for one in check.workload()["spec"]["podSets"]]
        spot = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
        added = {"nodeSelector": {"type": "kwok"}, "tolerations": [spot], "labels": {"node-pool": "p-1"}}
        added |= {"annotations": {"example.com/request": "r-1"}, "name": pod_set}
        check.say("Ready", [added])
        until(bed, desk.namespace, "w", "each(1:y)", "Running")
        first = pods(bed, desk.namespace, "w")
        for pod in first:
            assert pod["spec"]["nodeSelector"] == {"type": "kwok"} and spot in pod["spec"]["tolerations"]
            assert labels_of(pod)["node-pool"] == "p-1" and annotations_of(pod)["example.com/request"] == "r-1"
        bed.wait(lambda: is_now(desk, STAGE, "PodsReady"), "its pods to be ready", 60)
        check.say("Retry")
        bed.wait(lambda: not _now(bed, desk), "its pods to go", 60)
        check.until_open()  # the quota was given back; as nobody else wants it, the stage has it again at once
        assert not _now(bed, desk)
        check.say("Ready", [{**added, "labels": {"node-pool": "p-2"}}])
        bed.wait(lambda: _all_running(bed, desk, first), "other pods to run", 60)
        assert {labels_of(one)["node-pool"] for one in _now(bed, desk)} == {"p-2"}
        bed.wait(lambda: is_now(desk, STAGE, "PodsReady"), "its pods to be ready", 60)
        check.say("Rejected")
        bed.wait(lambda: part(check.workload(), "spec").get("active") is False, "Kueue to switch it off", 60)
        bed.wait(lambda: not is_now(desk, STAGE, "QuotaReserved"), "its quota to be given back", 60)
        assert not _now(bed, desk)
        reasons = [message for reason, message in events(bed, desk) if reason == "Evicted"]
        assert any("check" in one.lower() for one in reasons), reasons
    assert witness.check()["most pods"] == 2


def _now(bed: Testbed, desk: Desk) -> list[Object]:
    return [one for one in pods(bed, desk.namespace, "w") if one["status"]["phase"] in ("Pending", "Running")]


def _all_running(bed: Testbed, desk: Desk, before: Sequence[Object]) -> bool:
    known = {uid_of(one) for one in before}
    return [one["status"]["phase"] for one in _now(bed, desk) if uid_of(one) not in known] == ["Running"] * 2


# -- evictions that are no preemptions ------------------------------------------------------------------------------


def test_a_queue_that_is_drained_takes_the_stage_back_when_it_opens(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "2")
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, one_stage("w", "4s"))
        bed.wait(lambda: is_now(desk, STAGE, "PodsReady"), "its pods to be ready", 60)
        desk.stop_queue("HoldAndDrain")
        bed.wait(lambda: not is_now(desk, STAGE, "QuotaReserved"), "its quota to be given back", 60)
        assert not _now(bed, desk)
        assert condition(workloads(desk)[STAGE], "Requeued")["status"] == "False"
        desk.stop_queue("None")
        assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"
        bed.wait(lambda: finished(desk), "all Workloads to be finished", 60)
    assert witness.check()["most pods"] == 2


def test_what_an_administrator_switches_off_stops_and_goes_on_when_it_is_switched_on(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "2")
    create(bed, desk.namespace, one_stage("w", "4s"))
    bed.wait(lambda: is_now(desk, STAGE, "PodsReady"), "its pods to be ready", 60)
    name = name_of(workloads(desk)[STAGE])
    desk.edit(name, {"spec": {"active": False}})
    bed.wait(lambda: not is_now(desk, STAGE, "QuotaReserved") and not _now(bed, desk), "it to be stopped", 60)
    desk.fence("looked-at")
    assert part(desk.get(name), "spec")["active"] is False and not _now(bed, desk)
    desk.finish("looked-at")
    desk.edit(name, {"spec": {"active": True}})
    assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"
    bed.wait(lambda: finished(desk), "all Workloads to be finished", 60)


def test_pods_that_do_not_start_in_time_are_stopped_and_tried_again(testbed: Callable[..., Testbed]) -> None:
    """Kueue waits for seconds here. One of two pods finds no node at first; what was ready is left alone."""
    limits = {"timeout": "8s", "recoveryTimeout": "8s", "requeuingStrategy": {"backoffBaseSeconds": 1}}
    bed = testbed("kueue", "kwok", "argo", kueue={"waitForPodsReady": limits})
    desk = Desk(bed)
    desk.queue("main", "3")
    label = f"place-{desk.namespace}"
    (one,) = bed.objects("v1", "nodes", labels="type=kwok")
    with Controlled(bed, ["argo"]), Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(flow("ready", [step("a", "a")], fake("a", cpu="1", run_time="forever"))))
        bed.wait(lambda: _state(desk, "ready", "PodsReady"), "its pod to be ready", 60)
        nowhere = {**fake("b", cpu="1"), "nodeSelector": {label: "here"}}
        group = [*step("a", "a"), *step("b", "b")]
        create(bed, desk.namespace, queued(flow("w", [group], fake("a", cpu="1"), nowhere)))
        bed.wait(lambda: _state(desk, "w", "Evicted"), "Kueue to give up waiting", 60)
        assert condition(_of(desk, "w"), "Evicted")["reason"] == "PodsReadyTimeout"
        there = {"metadata": {"labels": {label: "here"}}}
        bed.raw("PATCH", f"/api/v1/nodes/{name_of(one)}", there, MERGE)
        assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"
        assert not _state(desk, "ready", "Evicted")
    assert witness.check()["most pods"] == 3


def _of(desk: Desk, workflow: str) -> Object:
    every = desk.read(desk.path("workloads"))["items"]
    mine = (one for one in every if rows(one, "metadata", "ownerReferences")[0]["name"] == workflow)
    return next(mine, {})


def _state(desk: Desk, workflow: str, kind: str) -> bool:
    return condition(_of(desk, workflow), kind).get("status") == "True"


# -- a cap on running workflows -----------------------------------------------------------------------------------------


def test_so_many_workflows_run_as_the_queue_covers(bed: Testbed, desk: Desk) -> None:
    """There is CPU for both. The second waits for the first to be over, and holds nothing meanwhile."""
    desk.queue("main", resources={"cpu": "3", CAP: "1"})
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, two_stages("first"))
        until(bed, desk.namespace, "first", "a(0:x)", "Running")
        create(bed, desk.namespace, two_stages("second"))
        bed.wait(lambda: _waits_for_the_run(desk), "the second to wait", 60)
        told = [message for reason, message in events(bed, desk) if reason == "Queued"]
        done = [until_over(bed, desk.namespace, name) for name in ("first", "second")]
        assert [one["status"]["phase"] for one in done] == ["Succeeded"] * 2
        bed.wait(lambda: finished(desk), "all Workloads to be finished", 60)
    assert any("the run" in one for one in told), told
    assert witness.check()["most pods"] == 1
    assert witness.most_held(CAP) == 1000
    assert node(done[1], "a(0:x)")["startedAt"] >= done[0]["status"]["finishedAt"]


def two_stages(name: str) -> Object:
    steps = [loop("a", "task", "x"), loop("b", "task", "x")]
    return queued(flow(name, steps, fake("task", run_time="2s", cpu="1")))


def _waits_for_the_run(desk: Desk) -> bool:
    """It has a Workload that asks for the right to run; and none of its others has quota."""
    mine = [
        one
        for one in desk.read(desk.path("workloads"))["items"]
        if any(each.get("name") == "second" for each in rows(one, "metadata", "ownerReferences"))
    ]
    runs = [one for one in mine if annotations_of(one).get("penstock/stage") == "(run)"]
    held = [one for one in mine if condition(one, "QuotaReserved").get("status") == "True"]
    return len(runs) == 1 and condition(runs[0], "QuotaReserved").get("reason") == "Pending" and not held
