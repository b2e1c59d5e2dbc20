"""Why something waits in a cluster, from the objects of Kueue: every cause has its words, its fix, and what Kueue itself says."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from penstock.controller.inspect.kinds import names_object, target_of
from penstock.controller.inspect.state import EVERYTHING, ClusterState
from penstock.controller.inspect.why import ClusterReport, WorkloadReport, why
from penstock.errors import NotFound, UserError
from penstock.service import wording
from tests.controller.cluster_objects import (
    BASE,
    NOW,
    Doc,
    FakeCluster,
    cluster_queue,
    local_queue,
    obj,
    pending,
    said,
    time_text,
    workload,
)


def ask(target: str, *objects: Doc, base: list[Doc] = BASE, namespace: str = "here") -> ClusterReport:
    return why(FakeCluster(*base, *objects), target_of(target), namespace, NOW)


def only(target: str, *objects: Doc, base: list[Doc] = BASE) -> WorkloadReport:
    (found,) = ask(target, *objects, base=base).parts
    return found


def facts(one: WorkloadReport) -> list[tuple[str, str]]:
    return wording.queue_facts(one.shown, one.who, one.name)


def told(one: WorkloadReport) -> str:
    return "\n".join(text for _, text in facts(one))


HOLDER = workload("w-holder", 3, owner="Job/holder", held_in="shared")
EVICTED = said("Evicted", True, "Preempted", "Preempted to accommodate …")
PREEMPTED = said(
    "Preempted",
    True,
    "InClusterQueue",
    "Preempted to accommodate a workload (UID: uid-w-me, JobUID: uid-me) due to prioritization in the ClusterQueue; preemptor path: /a",
)


# -- in a queue -------------------------------------------------------------------------------------------------------


def test_who_holds_what_is_short_who_is_ahead_and_what_frees_it_in_the_words_of_this_machine() -> None:
    ahead = workload("w-ahead", 2, owner="Job/ahead", ago=90, conditions=(pending(),))
    mine = workload(
        "w-me", 2, owner="Job/me", ago=80, conditions=(pending("insufficient unused quota, 1 more needed"),)
    )
    one = only("workload/w-me", HOLDER, ahead, mine)
    assert (one.state, one.name, one.queue, one.cluster_queue) == ("waiting", "job/me", "here/team-a", "shared")
    assert facts(one) == [
        ("why", "not enough of the nominalQuota of ClusterQueue shared is free"),
        ("short", "cpu of flavor default: 2 asked, 1 free, 4 at most"),
        ("held by", "job/holder has 3 cpu   (queue here/team-a, priority 0)"),
        ("order", "2nd in the queue, behind job/ahead"),
        ("help", "it can start when job/holder ends or releases quota"),
    ]
    assert one.kueue["message"] == "insufficient unused quota, 1 more needed"
    data = one.as_data()
    assert data["reason"]["ahead"] == ["here/w-ahead"] and data["names"]["here/w-holder"] == "job/holder"
    assert data["reason"]["short"][0]["available"] == "1" and data["asks"] == {"cpu": "2"}


def test_holders_of_another_namespace_and_another_queue_of_the_cohort_are_named_with_it() -> None:
    base = [
        *BASE[:1],
        cluster_queue("shared", cohortName="all"),
        cluster_queue("lender", 2, cohortName="all"),
        *BASE[2:],
        local_queue("team-b", "lender", "there"),
    ]
    holder = workload("w-there", 5, owner="RayJob/big", queue="team-b", namespace="there", held_in="lender")
    one = only("workload/w-me", holder, workload("w-me", 2, conditions=(pending(),)), base=base)
    assert "not enough of the quota of cohort all is free" in told(one)
    assert "there/rayjob/big has 5 cpu   (queue there/team-b, priority 0)" in told(one)
    assert one.name == "workload/w-me"


CAUSES: list[tuple[str, list[Doc], Doc, str, str]] = [
    # why, objects, the Workload, in its words, in its help
    ("never", [], workload("w-me", 9), "9 cpu, and the queue can have 4 at most", "kubectl edit clusterqueue shared"),
    (
        "no flavor",
        [],
        workload("w-me", requests={"cpu": "1", "nvidia.com/gpu": "1"}),
        "no flavor matches",
        "kubectl edit clusterqueue shared",
    ),
    (
        "no queue",
        [],
        workload("w-me", queue="team-x"),
        'there is no LocalQueue here/team-x. Did you mean "team-a"?',
        "kubectl get localqueues -n here",
    ),
    (
        "no queue",
        [local_queue("lost", "gone")],
        workload("w-me", queue="lost"),
        "points to ClusterQueue gone, which does not exist",
        "kubectl get localqueues -n here",
    ),
    (
        "stopped",
        [cluster_queue("still", stopPolicy="Hold"), local_queue("b", "still")],
        workload("w-me", queue="b"),
        "ClusterQueue still: stopPolicy Hold",
        """kubectl patch clusterqueue still --type merge -p '{"spec":{"stopPolicy":"None"}}'""",
    ),
    (
        "stopped",
        [local_queue("b", "shared", stopPolicy="HoldAndDrain")],
        workload("w-me", queue="b"),
        "LocalQueue here/b: stopPolicy HoldAndDrain",
        "kubectl patch localqueue b -n here --type merge",
    ),
    (
        "inactive queue",
        [
            cluster_queue("off", status={"conditions": [said("Active", False, "TopologyNotFound", "no topology x")]}),
            local_queue("b", "off"),
        ],
        workload("w-me", queue="b"),
        "the queue is inactive: no topology x",
        "kubectl describe clusterqueue off",
    ),
    (
        "namespace",
        [cluster_queue("picky", namespaceSelector={"matchLabels": {"team": "z"}}), local_queue("b", "picky")],
        workload("w-me", queue="b"),
        "takes nothing from namespace here",
        "kubectl label namespace here",
    ),
    (
        "deactivated",
        [],
        workload(
            "w-me", active=False, conditions=(said("Evicted", True, "Deactivated", "The workload is deactivated"),)
        ),
        "it was deactivated (The workload is deactivated)",
        """kubectl patch workload w-me -n here --type merge -p '{"spec":{"active":true}}'""",
    ),
    (
        "backoff",
        [],
        workload(
            "w-me",
            status={"requeueState": {"count": 2, "requeueAt": time_text(-60)}},
            conditions=(said("Evicted", True, "PodsReadyTimeout"), said("Requeued", False, "PodsReadyTimeout")),
        ),
        "it is tried again at",
        "it is tried again at",
    ),
    ("unfit", [], workload("w-me", conditions=(pending("scaled to zero", "OnHold"),)), "on hold: scaled to zero", ""),
    ("fits", [], workload("w-me", conditions=(pending("no topology domain"),)), "it fits", "Kueue tries again"),
    ("new", [], workload("w-me"), "it has not been considered yet", "kubectl get pods -n kueue-system"),
    (
        "gated",
        [],
        workload("w-me", metadata={"annotations": {"kueue.x-k8s.io/admission-gated-by": "example.com/later"}}),
        "gated by example.com/later",
        "",
    ),
]


@pytest.mark.parametrize(("kind", "objects", "mine", "words", "help"), CAUSES)
def test_every_cause_has_its_words_and_a_fix(kind: str, objects: list[Doc], mine: Doc, words: str, help: str) -> None:
    one = only("workload/w-me", *objects, mine)
    assert one.wait is not None and one.wait.reason["why"] == kind
    found = dict(reversed(facts(one)))
    assert words in found["why"], facts(one)
    assert help in found.get("help", ""), facts(one)


def test_others_that_are_told_to_stop_for_it_are_named_and_so_is_it_to_them() -> None:
    base = [BASE[0], cluster_queue("shared", preemption={"withinClusterQueue": "LowerPriority"}), *BASE[2:]]
    victim = workload("w-low", 4, owner="Job/low", held_in="shared", conditions=(EVICTED, PREEMPTED))
    mine = workload(
        "w-me", 3, owner="Job/me", priority=9, conditions=(pending("Pending the preemption of 1 workload(s)"),)
    )
    one = only("workload/w-me", victim, mine, base=base)
    assert "job/low is being preempted for it" in told(one) and "it starts when job/low has stopped" in told(one)
    low = only("workload/w-low", victim, mine, base=base)
    assert low.state == "leaving" and low.held == {"default": {"cpu": 4000}}
    assert low.stopped["reason"] == "InClusterQueue" and low.stopped["by"] == "job/me"
    assert "it waits again as soon as its pods have ended" in told(low)


def test_what_only_we_would_preempt_is_not_said_to_be_preempted() -> None:
    base = [BASE[0], cluster_queue("shared", preemption={"withinClusterQueue": "LowerPriority"}), *BASE[2:]]
    holder = workload("w-low", 4, owner="Job/low", held_in="shared")
    one = only("workload/w-me", holder, workload("w-me", 3, priority=9, conditions=(pending(),)), base=base)
    assert one.wait is not None and one.wait.reason["why"] == "quota"
    assert "job/low has 4 cpu" in told(one) and "preempted" not in told(one)
    assert only("workload/w-low", holder, workload("w-me", 3, priority=9), base=base).state == "admitted"


def test_what_we_would_admit_and_kueue_has_not_holds_nothing() -> None:
    """Two fit, one of them at a time; neither is a holder for the other, and the one that does not fit sees only real ones."""
    first, second = (workload(f"w-{n}", 3, ago=90 - n, conditions=(pending(),)) for n in range(2))
    big = workload("w-big", 4, ago=80, conditions=(pending(),))
    holder = workload("w-holder", 1, owner="Job/holder", held_in="shared")
    parts = [only(f"workload/{name}", holder, first, second, big) for name in ("w-0", "w-1", "w-big")]
    assert [one.wait.reason["why"] for one in parts if one.wait] == ["fits", "behind", "quota"]
    assert "job/holder has 1 cpu" in told(parts[2]) and "w-0 has" not in told(parts[2])


def test_admission_checks_that_are_open_are_named_with_their_messages() -> None:
    checks = [{"name": "budget", "state": "Pending", "message": "asking the bank"}]
    base = [
        BASE[0],
        cluster_queue("shared", admissionChecksStrategy={"admissionChecks": [{"name": "budget"}]}),
        *BASE[2:],
    ]
    reserved = workload(
        "w-me",
        2,
        held_in="shared",
        status={"admissionChecks": checks},
        conditions=(said("Admitted", False, "UnsatisfiedChecks", "The workload has not all checks ready"),),
    )
    check = obj("AdmissionCheck", "budget", status={"conditions": [said("Active", True)]})
    one = only("workload/w-me", check, reserved, base=base)
    assert one.state == "checks" and "admission check budget: Pending (asking the bank)" in told(one)
    assert one.held == {"default": {"cpu": 2000}} and "not all checks" in one.kueue["message"]


def test_pods_are_counted_as_kueue_counts_them() -> None:
    """Limit ranges and transformations are in the status; pods that are given back hold nothing."""
    holder = workload(
        "w-holder",
        1,
        4,
        owner="Job/holder",
        held_in="shared",
        status={"reclaimablePods": [{"name": "main", "count": 3}]},
    )
    counted = {"resourceRequests": [{"name": "main", "resources": {"cpu": "6"}}]}
    one = only("workload/w-me", holder, workload("w-me", 1, 2, status=counted, conditions=(pending(),)))
    assert one.as_data()["asks"] == {"cpu": "6"} and "it asks for 6 cpu" in told(one)
    one = only("workload/w-me", holder, workload("w-me", 2, 2, conditions=(pending(),)))
    assert "4 asked, 3 free" in told(one) and "job/holder has 1 cpu" in told(one)


# -- admitted ---------------------------------------------------------------------------------------------------------


def pod(name: str, **fields: Any) -> Doc:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "me", "uid": "uid-me", "controller": True}
    return obj("Pod", name, "here", metadata={"ownerReferences": [owner]}, **fields)


def test_an_admitted_one_says_what_it_holds_and_what_keeps_its_pods() -> None:
    unschedulable = [said("PodScheduled", False, "Unschedulable", "0/3 nodes are available")]
    pull = [{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]
    pods = [
        pod("runs", status={"phase": "Running"}),
        pod("done", status={"phase": "Succeeded"}),
        pod("homeless", status={"phase": "Pending", "conditions": unschedulable}),
        pod("pulls", status={"phase": "Pending", "containerStatuses": pull}),
        pod("gated", spec={"schedulingGates": [{"name": "penstock/admission"}]}, status={"phase": "Pending"}),
        obj("Pod", "stranger", "here", status={"phase": "Running"}),
    ]
    mine = workload(
        "w-me", 1, 4, owner="Job/me", held_in="shared", status={"reclaimablePods": [{"name": "main", "count": 1}]}
    )
    one = only("job/me", obj("Job", "me", "here"), mine, *pods)
    assert one.state == "admitted" and one.held == {"default": {"cpu": 3000}} and one.pods is not None
    assert (one.pods.running, one.pods.ended, one.wanted) == (1, 1, 3)
    assert one.pods.troubles == {
        "no node for it: 0/3 nodes are available": ["homeless"],
        "container main: ImagePullBackOff: no such image": ["pulls"],
        "held by the scheduling gate penstock/admission": ["gated"],
    }


# -- objects and their Workloads --------------------------------------------------------------------------------------


def test_the_stages_of_a_workflow_are_found_by_its_uid() -> None:
    flow = obj("Workflow", "nightly", "here", metadata={"labels": {"kueue.x-k8s.io/queue-name": "team-a"}})
    marks = {"penstock/workflow-uid": "uid-nightly"}

    def stage(name: str, **more: Any) -> Doc:
        meta = {"labels": marks | more.pop("labels", {}), "annotations": {"penstock/stage": name}}
        return workload(f"w-{name}", 2, metadata=meta, **({"owner": "Workflow/nightly"} | more))

    report = ask(
        "workflow/nightly",
        flow,
        HOLDER,
        stage("prepare", ago=99, conditions=(said("Finished", True, "Succeeded", "done"),)),
        stage("train", ago=98, conditions=(pending(),)),
        stage("publish", ago=97, active=False, labels={"penstock/place": "true"}),
        stage("after", ago=96, owner="", conditions=(pending(),)),
    )
    assert [(one.name, one.state) for one in report.parts] == [
        ("workflow/nightly/prepare", "over"),
        ("workflow/nightly/train", "waiting"),
        ("workflow/nightly/publish", "ahead"),
        ("workload/w-after", "waiting"),
    ]
    assert "1 free" in told(report.parts[1])


def test_a_part_of_something_waits_with_it_and_other_kinds_are_found_by_owner() -> None:
    owner = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "set",
        "uid": "uid-set",
        "controller": True,
    }
    job = obj("Job", "set-a-0", "here", metadata={"ownerReferences": [owner]})
    mine = workload("w-set", 1, owner="JobSet/set", conditions=(pending(),))
    report = ask("job/set-a-0", obj("JobSet", "set", "here"), job, mine)
    assert report.through == "jobset/set" and [one.workload for one in report.parts] == ["here/w-set"]
    assert only("rayjob/big", workload("w-big", owner="RayJob/big")).workload == "here/w-big"
    with pytest.raises(NotFound, match="P893"):
        ask("rayjob/none")


@pytest.mark.parametrize(
    ("labels", "status", "more", "problem", "fix"),
    [
        ({}, {}, [], "it has no label kueue.x-k8s.io/queue-name", "queue-name: team-a"),
        ({"kueue.x-k8s.io/queue-name": "team-x"}, {}, [], "no LocalQueue of that name", 'Did you mean "team-a"?'),
        (
            {"kueue.x-k8s.io/queue-name": "team-a"},
            {},
            [],
            "controller is not in this cluster",
            "penstock controller manifests",
        ),
        (
            {"kueue.x-k8s.io/queue-name": "team-a"},
            {},
            [obj("MutatingWebhookConfiguration", "admission.penstock")],
            "the controller has made no Workload for it",
            "penstock controller check",
        ),
        (
            {"kueue.x-k8s.io/queue-name": "team-a"},
            {},
            [
                obj(
                    "Event",
                    "e",
                    "here",
                    type="Warning",
                    reason="Refused",
                    message="recursion",
                    involvedObject={"uid": "uid-flow"},
                ),
                obj(
                    "Event",
                    "f",
                    "here",
                    type="Warning",
                    reason="Other",
                    message="no",
                    involvedObject={"uid": "uid-else"},
                ),
            ],
            "Refused: recursion",
            "kubectl describe workflow/flow -n here",
        ),
        ({"kueue.x-k8s.io/queue-name": "team-a"}, {"phase": "Succeeded"}, [], "is over: it succeeded", ""),
    ],
)
def test_without_a_workload_the_reason_and_the_fix(
    labels: Doc, status: Doc, more: list[Doc], problem: str, fix: str
) -> None:
    report = ask("workflow/flow", obj("Workflow", "flow", "here", metadata={"labels": labels}, status=status), *more)
    assert not report.parts and problem in report.problem and fix in report.fix, (report.problem, report.fix)


def event(reason: str, message: str, uid: str = "uid-flow", **more: Any) -> Doc:
    return obj(
        "Event",
        f"e-{reason}",
        "here",
        type="Warning",
        reason=reason,
        message=message,
        involvedObject={"uid": uid},
        **more,
    )


FLOW = obj("Workflow", "flow", "here", metadata={"labels": {"kueue.x-k8s.io/queue-name": "team-a"}})


@pytest.mark.parametrize("reason", ["Refused", "WriteRefused", "KueueMissing", "UnknownSize"])
def test_the_last_warning_is_told_beside_the_workloads(reason: str) -> None:
    mine = workload("w-me", owner="Workflow/flow")
    older = event("Other", "long ago", eventTime=time_text(90))
    report = ask("workflow/flow", FLOW, mine, older, event(reason, "do this", eventTime=time_text(60)))
    assert report.parts and report.warned is not None
    assert (str(report.warned), report.warned.at) == (f"{reason}: do this", NOW - 60)
    assert report.as_data()["warning"]["reason"] == reason


def test_the_words_of_the_controller_come_before_those_of_the_engine() -> None:
    """Argo calls a node whose pod was stopped an error."""
    mine = workload("w-me", owner="Workflow/flow")
    ours = event("Stopped", "do this", eventTime=time_text(60), reportingComponent="penstock-controller")
    engines = event(
        "WorkflowNodeError", "pod deleted", lastTimestamp=time_text(5), reportingComponent="workflow-controller"
    )
    assert str(ask("workflow/flow", FLOW, mine, ours, engines).warned) == "Stopped: do this"
    assert str(ask("workflow/flow", FLOW, mine, engines).warned) == "WorkflowNodeError: pod deleted"


def test_a_warning_about_the_workflow_is_told_of_its_pods_too() -> None:
    owned = {"ownerReferences": [{"kind": "Workflow", "name": "flow", "uid": "uid-flow", "controller": True}]}
    pod = obj("Pod", "p", "here", metadata=owned)
    report = ask("pod/p", FLOW, pod, workload("w-me", owner="Workflow/flow"), event("Refused", "do this"))
    assert report.through == "workflow/flow" and str(report.warned) == "Refused: do this"


def test_no_warning_of_others_nor_of_what_the_workload_says_itself_nor_of_what_is_over() -> None:
    mine = workload("w-me", owner="Workflow/flow")
    assert ask("workflow/flow", FLOW, mine, event("Evicted", "x"), event("Refused", "x", "uid-else")).warned is None
    over = workload("w-me", owner="Workflow/flow", conditions=[said("Finished", True, "Succeeded", "over")])
    assert ask("workflow/flow", FLOW, over, event("Refused", "x")).warned is None


def test_the_place_for_the_rest_of_a_loop_is_told_from_the_loop() -> None:
    notes = {"penstock/stage": "main[0]", "penstock/place": "rest of main[0]"}
    rest = workload("w-rest", owner="Workflow/flow", active=False, metadata={"annotations": notes})
    assert only("workflow/flow", FLOW, rest).name == "workflow/flow/rest of main[0]"


def test_a_job_that_kueue_does_not_queue() -> None:
    report = ask("job/me", obj("Job", "me", "here", metadata={"labels": {"kueue.x-k8s.io/queue-name": "team-a"}}))
    assert "Kueue has made no Workload" in report.problem and "integrations.frameworks" in report.fix


def test_which_words_name_an_object_and_not_a_run() -> None:
    assert all(map(names_object, ("workflow/x", "wf/x", "Workflows/x", "jobs.batch/x", "workload/x", "pipelinerun/x")))
    assert not any(map(names_object, ("@/train", "flow-1/train", "workflow", "workflow/", "flow-1")))
    with pytest.raises(UserError, match="P894"):
        target_of("nightly")


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of an engine is installed, and another one that is broken."""
    for name, module in (("toy", "tests.controller.toy_engine.penstock_toy"), ("broken", "no.such.module")):
        info = tmp_path / f"penstock_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: penstock-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[penstock.engines]\n{name} = {module}:ENGINE\n")
    monkeypatch.syspath_prepend(str(tmp_path))


SEQUENCE = obj("Sequence", "s", "here", metadata={"labels": {"kueue.x-k8s.io/queue-name": "team-a"}})


@pytest.mark.usefixtures("toy")
def test_kinds_of_other_engines_are_known_before_they_have_a_workload() -> None:
    assert names_object("sequence/s") and names_object("sequences.toy.example/s") and not names_object("flow-1/train")
    installed = obj("MutatingWebhookConfiguration", "admission.penstock")
    report = ask("sequence/s", SEQUENCE, installed)
    assert "the controller has made no Workload for it" in report.problem and "controller check" in report.fix
    refused = ask("sequence/s", SEQUENCE, event("Refused", "do this", "uid-s"))
    assert "Refused: do this" in refused.problem
    with pytest.raises(NotFound, match="P893.*sequence/t"):
        ask("sequence/t", SEQUENCE)


@pytest.mark.usefixtures("toy")
def test_what_is_above_an_object_of_another_engine_is_found() -> None:
    def owned_by(api: str, kind: str, name: str) -> Doc:
        reference = {"apiVersion": api, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
        return {"metadata": {"ownerReferences": [reference]}}

    sequence = obj("Sequence", "s", "here", **owned_by("batch/v1", "Job", "big"))
    pod = obj("Pod", "p", "here", **owned_by("toy.example/v1", "Sequence", "s"))
    report = ask("pod/p", sequence, pod, obj("Job", "big", "here"), workload("w", owner="Job/big"))
    assert report.through == "job/big" and [one.workload for one in report.parts] == ["here/w"]


def test_without_its_engine_a_kind_is_known_by_the_owners_of_workloads_alone() -> None:
    assert not names_object("sequence/s") and target_of("sequence/s").resource is None


def test_the_settings_of_kueue_are_taken_where_they_are_known() -> None:
    objects = {one: FakeCluster(*BASE).list(one) for one in EVERYTHING}
    state = ClusterState(
        objects, NOW, "here", {"kind": "Configuration", "fairSharing": {"enable": True}, "waitForPodsReady": {}}
    )
    assert state.config.fair_sharing and state.config == dataclasses.replace(state.config, pods_ready_timeout=None)


def test_an_object_that_is_newer_than_we_know_is_said_to_be() -> None:
    with pytest.raises(UserError, match="P892.*ClusterQueue new"):
        only("workload/w-me", workload("w-me"), cluster_queue("new", queueingStrategy="Lottery"))
