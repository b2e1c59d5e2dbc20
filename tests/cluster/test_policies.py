"""The admission policies on a real API server, with the real controllers: what they hold, what they refuse and to whom, and what they leave alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from penstock.controller.install.policies import policies
from penstock.controller.install.webhooks import NAME, Address, configuration
from testbed.api import JSON_PATCH, MERGE, Api
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster import argo_runs, tekton_runs
from tests.cluster.policies import CONTAINER, CONTROLLER, Hook, editor, gates, installed, person, refused
from tests.cluster.support import fresh_namespace, is_true, unique
from tests.cluster.tekton_runs import fake_task, pipeline

GATE = "penstock/admission"
QUEUED = {"penstock/queue": "team-a"}
QUEUE = {"kueue.x-k8s.io/queue-name": "team-a"}
PRIORITY = "kueue.x-k8s.io/priority-class"
PENDING = {"status": "PipelineRunPending"}
FOREVER = {"testbed.penstock/run-time": "forever"}
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    bed = testbed("kueue", "kwok", "argo", "tekton", "jobset")
    installed(bed)
    return bed


@pytest.fixture
def ns(bed: Testbed) -> str:
    return fresh_namespace(bed)


@pytest.fixture(scope="module")
def user(bed: Testbed) -> Iterator[Api]:
    api = editor(bed)
    yield api
    api.close()


@pytest.fixture(scope="module")
def controller(bed: Testbed) -> Iterator[Api]:
    api = person(bed, CONTROLLER, ("system:masters",))
    yield api
    api.close()


@pytest.fixture(scope="module")
def member(bed: Testbed) -> Iterator[Api]:
    """Somebody who may write all kinds of runs, and no pods."""
    api = person(bed, "member")
    runs = [
        ("argoproj.io", ["workflows"]),
        ("tekton.dev", ["pipelineruns", "taskruns"]),
        ("jobset.x-k8s.io", ["jobsets"]),
    ]
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "policies-member"}}
    rules = [{"apiGroups": [group], "resources": kinds, "verbs": ["*"]} for group, kinds in runs]
    role = {"kind": "ClusterRole", "name": "policies-member", "apiGroup": "rbac.authorization.k8s.io"}
    subject = {"kind": "User", "name": "member", "apiGroup": "rbac.authorization.k8s.io"}
    bed.apply(
        [
            {**rbac, "kind": "ClusterRole", "rules": rules},
            {**rbac, "kind": "ClusterRoleBinding", "subjects": [subject], "roleRef": role},
        ]
    )
    yield api
    api.close()


def pod(
    name: str, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name}
    if labels is not None:
        meta["labels"] = dict(labels)
    if annotations is not None:
        meta["annotations"] = dict(annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [CONTAINER], **spec}}


def pods(ns: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{ns}/pods" + (f"/{name}" if name else "")


def owner(bed: Testbed, ns: str) -> dict[str, str]:
    """One that exists: the garbage collector removes what has another."""
    uid = bed.get(f"/api/v1/namespaces/{ns}")["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "Namespace", "name": ns, "uid": uid}


def merge(api: Api, path: str, change: Mapping[str, Any]) -> str:
    return refused(api, "PATCH", path, dict(change), MERGE)


def labels(**changes: str | None) -> dict[str, Any]:
    return {"metadata": {"labels": changes}}


# -- pods ---------------------------------------------------------------------------------------------------------------


def test_a_pod_of_a_queued_workflow_is_born_with_a_gate(bed: Testbed, ns: str) -> None:
    made = bed.raw(
        "POST", pods(ns), pod("held", {**QUEUED, **QUEUE, "app": "x"}, {"penstock/pod-set": "w/p", "a": "b"})
    )
    assert gates(made) == [GATE]
    assert made["metadata"]["labels"] == {**QUEUED, "app": "x"}, "it would wait in Kueue as well"
    assert made["metadata"]["annotations"] == {"a": "b"}, "nobody may say of himself that he is admitted"


def test_gates_of_a_pod_are_kept_and_ours_is_not_doubled(bed: Testbed, ns: str) -> None:
    for number, before in enumerate(([GATE], ["other/gate"], ["other/gate", GATE])):
        given = pod(f"held-{number}", QUEUED, schedulingGates=[{"name": one} for one in before])
        made = bed.raw("POST", pods(ns), given)
        assert sorted(gates(made)) == sorted({*before, GATE})


def test_other_pods_are_left_alone(bed: Testbed, ns: str) -> None:
    for number, given in enumerate((None, {}, {"app": "x"})):
        made = bed.raw("POST", pods(ns), pod(f"free-{number}", given, {"penstock/pod-set": "w/p"}))
        assert gates(made) == []
        assert made["metadata"].get("labels", {}) == (given or {})
        assert made["metadata"]["annotations"] == {"penstock/pod-set": "w/p"}


def test_a_queued_pod_cannot_name_its_node(bed: Testbed, ns: str) -> None:
    with pytest.raises(ApiError, match="cannot be set until all schedulingGates have been cleared"):
        bed.raw("POST", pods(ns), pod("sly", QUEUED, nodeName="anywhere"))


def test_a_gated_pod_cannot_be_bound_by_another_scheduler(bed: Testbed, ns: str, user: Api) -> None:
    bed.raw("POST", pods(ns), pod("sly", QUEUED, schedulerName="mine"))
    target = {"apiVersion": "v1", "kind": "Node", "name": bed.objects("v1", "nodes")[0]["metadata"]["name"]}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "sly"}, "target": target}
    with pytest.raises(ApiError, match="schedulingGates"):
        user.raw("POST", pods(ns, "sly") + "/binding", binding)


def test_only_the_controller_removes_the_gate(bed: Testbed, ns: str, user: Api, controller: Api) -> None:
    bed.raw("POST", pods(ns), pod("held", QUEUED, schedulingGates=[{"name": "other/gate"}]))
    where = pods(ns, "held")
    others = [{"name": "other/gate"}]
    for who in (user, bed.api):  # an administrator, too, has to take the policy away first
        assert "penstock why" in merge(who, where, {"spec": {"schedulingGates": None}})
        assert "penstock why" in merge(who, where, {"spec": {"schedulingGates": others}})
        assert refused(who, "PATCH", where, [{"op": "remove", "path": "/spec/schedulingGates"}], JSON_PATCH)
    assert not merge(user, where, {"spec": {"schedulingGates": [{"name": GATE}]}}), "the other one is not ours"
    controller.raw("PATCH", where, {"spec": {"schedulingGates": None}}, MERGE)
    assert bed.wait(lambda: bed.get(where)["spec"].get("nodeName"), "the pod to get a node")


def test_only_the_controller_changes_the_marks_of_a_pod(bed: Testbed, ns: str, user: Api, controller: Api) -> None:
    bed.raw("POST", pods(ns), pod("held", {**QUEUED, "app": "x"}))
    bed.raw("POST", pods(ns), pod("free", {"app": "x"}))
    held, free = pods(ns, "held"), pods(ns, "free")
    for change in ({"penstock/queue": None}, {"penstock/queue": "team-b"}, QUEUE):
        assert "create it with another queue" in merge(user, held, labels(**change))
    assert merge(user, held, {"metadata": {"labels": None}})
    assert merge(user, held, {"metadata": {"annotations": {"penstock/pod-set": "w/p"}}})
    assert merge(user, free, labels(**QUEUED)), "a pod that runs cannot join"
    assert not merge(controller, held, {"metadata": {"annotations": {"penstock/pod-set": "w/p"}}})


def test_the_rest_of_a_pod_is_everyone_s(bed: Testbed, ns: str, user: Api) -> None:
    bed.raw("POST", pods(ns), pod("held", {**QUEUED, "app": "x"}))
    bed.raw("POST", pods(ns), pod("free"))
    for name in ("held", "free"):
        where = pods(ns, name)
        user.raw("PATCH", where, {"metadata": {"labels": {"app": "y"}, "finalizers": ["a/b"]}}, MERGE)
        user.raw("PATCH", where, {"metadata": {"labels": {"app": None}, "annotations": {"c": "d"}}}, MERGE)
        user.raw("PATCH", where, {"metadata": {"finalizers": None}}, MERGE)
    assert not merge(user, pods(ns, "free"), {"metadata": {"labels": None, "annotations": {"penstock/pod-set": "w/p"}}})
    user.raw("DELETE", pods(ns, "held"), {"gracePeriodSeconds": 0})
    assert bed.found(pods(ns, "held")) is None


# -- Tekton -------------------------------------------------------------------------------------------------------------


def task_run(name: str, given: Mapping[str, str], **spec: Any) -> dict[str, Any]:
    made = tekton_runs.run("TaskRun", name, {"taskSpec": fake_task(), **spec})
    made["metadata"]["labels"] = dict(given)
    return made


def made_run(bed: Testbed, ns: str, document: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = bed.raw("POST", tekton_runs.path(ns, document["kind"]), dict(document))
    return found


def test_a_task_run_of_a_queued_run_is_born_pending(bed: Testbed, ns: str) -> None:
    given = task_run("held", {**QUEUED, **QUEUE, "app": "x"})
    assert (
        made_run(bed, ns, given | {"metadata": {**given["metadata"], "name": "mine"}})["metadata"]["labels"].items()
        >= QUEUE.items()
    )
    given["metadata"]["ownerReferences"] = [owner(bed, ns)]
    made = made_run(bed, ns, given)
    assert made["spec"]["status"] == "TaskRunPending"
    assert made["metadata"]["labels"].keys() >= {"penstock/queue", "app"}
    assert "kueue.x-k8s.io/queue-name" not in made["metadata"]["labels"]
    old = task_run("older", QUEUED) | {"apiVersion": "tekton.dev/v1beta1"}
    made = bed.raw("POST", tekton_runs.path(ns, "TaskRun").replace("/v1/", "/v1beta1/"), old)
    assert made["spec"]["status"] == "TaskRunPending", "also by the older version of the API"


def test_finally_and_what_has_a_status_do_not_become_pending(bed: Testbed, ns: str) -> None:
    given = task_run("last", {**QUEUED, **QUEUE, "tekton.dev/memberOf": "finally"})
    given["metadata"]["ownerReferences"] = [owner(bed, ns)]
    last = made_run(bed, ns, given)
    assert "status" not in last["spec"] and "kueue.x-k8s.io/queue-name" not in last["metadata"]["labels"]
    gone = made_run(bed, ns, task_run("gone", QUEUED, status="TaskRunCancelled"))
    assert gone["spec"]["status"] == "TaskRunCancelled"
    free = made_run(bed, ns, task_run("free", {"app": "x"}))
    assert "status" not in free["spec"]


def test_only_the_controller_lets_a_task_run_go(bed: Testbed, ns: str, user: Api, controller: Api) -> None:
    made_run(bed, ns, task_run("held", QUEUED))
    where = tekton_runs.path(ns, "TaskRun", "held")
    assert "penstock why" in merge(user, where, {"spec": {"status": None}})
    assert merge(user, where, {"spec": {"status": ""}})
    assert merge(bed.api, where, {"spec": {"status": None}})
    assert not merge(user, where, {"spec": {"status": "TaskRunCancelled"}})
    assert not merge(user, where, {"metadata": {"labels": {"app": "y"}}})
    controller.raw("PATCH", where, {"spec": {"status": None}}, MERGE)
    found = bed.wait(lambda: tekton_runs.pods(bed, ns), "the pod")
    assert gates(found[0]) == [GATE], "and its pod waits all the same"


def test_what_the_user_made_pending_the_user_lets_go(bed: Testbed, ns: str, user: Api) -> None:
    mark = {"penstock/gate": '{"unit":"task","by":"suspend","held":"user"}'}
    mine = task_run("mine", QUEUED, status="TaskRunPending")
    mine["metadata"]["annotations"] = mark
    made_run(bed, ns, mine)
    assert not merge(user, tekton_runs.path(ns, "TaskRun", "mine"), {"spec": {"status": None}})
    mine["metadata"] |= {"name": "child", "ownerReferences": [owner(bed, ns)]}
    child = made_run(bed, ns, mine)["metadata"]
    assert child["annotations"]["penstock/gate"] == mark["penstock/gate"], "as Tekton copies it from the PipelineRun"
    assert merge(user, tekton_runs.path(ns, "TaskRun", "child"), {"spec": {"status": None}})


STAGES = pipeline(
    {"name": "first", "taskSpec": fake_task()},
    {"name": "second", "taskSpec": fake_task(), "runAfter": ["first"]},
    **{"finally": [{"name": "clean", "taskSpec": fake_task()}]},
)


def let_everything_go(bed: Testbed, ns: str, controller: Api) -> None:
    """What the controller does when all is admitted."""
    for one in bed.objects("v1", "pods", ns):
        if GATE in gates(one):
            controller.raw("PATCH", pods(ns, one["metadata"]["name"]), {"spec": {"schedulingGates": None}}, MERGE)
    if "tekton" in bed.components:
        for name, one in ((run["metadata"]["name"], run) for run in bed.objects(tekton_runs.API, "taskruns", ns)):
            if one["spec"].get("status") == "TaskRunPending":
                where = tekton_runs.path(ns, "TaskRun", name)
                controller.raw("PATCH", where, {"spec": {"status": None}}, MERGE)


def test_a_queued_pipeline_runs_with_all_that_tekton_writes(bed: Testbed, ns: str, user: Api, controller: Api) -> None:
    """Tekton copies the labels of the Pipeline to the run after it is created: what it adds is no change of the queue."""
    meta = {"name": "p", "labels": {**QUEUE, "team": "b"}, "annotations": {"penstock/unit": "task"}}
    shared = {"apiVersion": tekton_runs.API, "kind": "Pipeline", "metadata": meta, "spec": STAGES["pipelineSpec"]}
    bed.raw("POST", f"/apis/{tekton_runs.API}/namespaces/{ns}/pipelines", shared)
    document = tekton_runs.run("PipelineRun", "run", {"pipelineRef": {"name": "p"}})
    document["metadata"]["labels"] = dict(QUEUED)
    made_run(bed, ns, document)

    def over() -> bool:
        let_everything_go(bed, ns, controller)
        return bool(
            tekton_runs.condition(bed.get(tekton_runs.path(ns, "PipelineRun", "run"))).get("status") != "Unknown"
        )

    bed.wait(lambda: "status" in bed.get(tekton_runs.path(ns, "PipelineRun", "run")), "Tekton to take up the run")
    bed.wait(over, "the run to end")
    found = bed.get(tekton_runs.path(ns, "PipelineRun", "run"))
    assert tekton_runs.condition(found)["status"] == "True", found["status"]
    assert found["metadata"]["labels"]["team"] == "b"
    assert len(tekton_runs.task_runs(bed, ns)) == 3
    user.raw("DELETE", tekton_runs.path(ns, "PipelineRun", "run"), {"propagationPolicy": "Foreground"})
    bed.wait(lambda: not bed.objects("v1", "pods", ns), "its pods to be gone")


def test_cancelling_ends_what_is_held(bed: Testbed, ns: str, user: Api) -> None:
    document = tekton_runs.run("PipelineRun", "run", STAGES)
    document["metadata"]["labels"] = dict(QUEUED)
    made_run(bed, ns, document)
    bed.wait(lambda: tekton_runs.task_runs(bed, ns), "a TaskRun")
    user.raw("PATCH", tekton_runs.path(ns, "PipelineRun", "run"), {"spec": {"status": "Cancelled"}}, MERGE)
    assert tekton_runs.condition(tekton_runs.ended(bed, ns, "PipelineRun", "run"))["reason"] == "Cancelled"


def test_a_pipeline_in_a_pipeline_has_no_queue_of_its_own(bed: Testbed, ns: str) -> None:
    """And what a user creates keeps its label, so that the webhook sees it."""
    document = tekton_runs.run("PipelineRun", "run", STAGES)
    document["metadata"]["labels"] = {**QUEUED, **QUEUE}
    top = bed.raw("POST", tekton_runs.path(ns, "PipelineRun"), document, params={"dryRun": "All"})
    document["metadata"]["ownerReferences"] = [owner(bed, ns)]
    child = bed.raw("POST", tekton_runs.path(ns, "PipelineRun"), document, params={"dryRun": "All"})
    assert top["metadata"]["labels"].items() >= QUEUE.items()
    assert "kueue.x-k8s.io/queue-name" not in child["metadata"]["labels"]


def test_a_pipeline_in_a_pipeline_has_no_time_limit_of_its_own(bed: Testbed, ns: str) -> None:
    """Tekton hands on none, and would give it an hour; the time in the queue would count."""
    document = tekton_runs.run("PipelineRun", "run", STAGES)
    document["metadata"] |= {"labels": QUEUED, "ownerReferences": [owner(bed, ns)]}
    child = bed.raw("POST", tekton_runs.path(ns, "PipelineRun"), document, params={"dryRun": "All"})
    assert child["spec"]["timeouts"]["pipeline"] == "0s"
    document["spec"]["timeouts"] = {"pipeline": "5m"}
    child = bed.raw("POST", tekton_runs.path(ns, "PipelineRun"), document, params={"dryRun": "All"})
    assert child["spec"]["timeouts"]["pipeline"] == "5m0s"


# -- Argo ---------------------------------------------------------------------------------------------------------------


def workflow(name: str, given: Mapping[str, str] | None = None, *, queued: bool = True, **more: Any) -> dict[str, Any]:
    """As the webhook leaves it: the label is in podMetadata."""
    if queued:
        more["podMetadata"] = {"labels": dict(QUEUED)}
    document = argo_runs.flow(
        name, [argo_runs.step("a", "work"), argo_runs.step("b", "work")], argo_runs.fake("work"), **more
    )
    document["metadata"]["labels"] = {**(QUEUE if queued else {}), **(given or {})}
    return document


def test_a_queued_workflow_runs_with_all_that_argo_writes(bed: Testbed, ns: str, user: Api, controller: Api) -> None:
    argo_runs.create(bed, ns, workflow("flow", onExit="work"))

    def over() -> bool:
        let_everything_go(bed, ns, controller)
        return bed.get(argo_runs.path(ns, "flow")).get("status", {}).get("phase") in argo_runs.OVER

    bed.wait(over, "the workflow to end")
    found = bed.get(argo_runs.path(ns, "flow"))
    assert found["status"]["phase"] == "Succeeded"
    assert found["metadata"]["labels"]["workflows.argoproj.io/completed"] == "true"
    assert len(argo_runs.pods(bed, ns, "flow")) == 3
    user.raw("DELETE", argo_runs.path(ns, "flow"), {"propagationPolicy": "Foreground"})
    bed.wait(lambda: not bed.objects("v1", "pods", ns), "its pods to be gone")


def test_a_workflow_that_refers_to_a_template_keeps_the_label(bed: Testbed, ns: str, user: Api) -> None:
    template = workflow("shared", queued=False)
    template["kind"] = "WorkflowTemplate"
    bed.raw("POST", f"/apis/{argo_runs.API}/namespaces/{ns}/workflowtemplates", template)
    flow = {
        "apiVersion": argo_runs.API,
        "kind": "Workflow",
        "metadata": {"name": "flow", "labels": dict(QUEUE)},
        "spec": {"workflowTemplateRef": {"name": "shared"}, "podMetadata": {"labels": dict(QUEUED)}},
    }
    argo_runs.create(bed, ns, flow)
    found = bed.wait(lambda: argo_runs.pods(bed, ns, "flow"), "a pod")
    assert gates(found[0]) == [GATE]
    where = argo_runs.path(ns, "flow")
    bed.wait(lambda: bed.get(where).get("status", {}).get("storedWorkflowTemplateSpec"), "Argo's copy of the spec")
    stored = bed.get(where)["status"]["storedWorkflowTemplateSpec"]
    assert stored["podMetadata"]["labels"] == QUEUED
    for change in (None, {}, {"podMetadata": None}, {"podMetadata": {"labels": {"penstock/queue": None}}}):
        said = merge(user, where, {"status": {"storedWorkflowTemplateSpec": change}})
        assert bool(said) == (change != {} and change is not None), "without a copy, Argo takes the spec"
    bare = [{"op": "replace", "path": "/status/storedWorkflowTemplateSpec", "value": {"entrypoint": "main"}}]
    assert "stays" in refused(user, "PATCH", where, bare, JSON_PATCH)


def test_the_label_of_the_pods_of_a_workflow_stays(bed: Testbed, ns: str, user: Api, controller: Api) -> None:
    argo_runs.create(bed, ns, workflow("flow", suspend=True))
    where = argo_runs.path(ns, "flow")
    for change in (None, {"labels": None}, {"labels": {"penstock/queue": None}}, {"labels": {"penstock/queue": "b"}}):
        assert "holds the pods" in merge(user, where, {"spec": {"podMetadata": change}})
    assert not merge(user, where, {"spec": {"podMetadata": {"labels": {"app": "x"}}, "suspend": None}})
    assert not merge(controller, where, {"spec": {"podMetadata": None}})
    argo_runs.create(bed, ns, workflow("free", queued=False, suspend=True, podMetadata={"labels": dict(QUEUED)}))
    assert not merge(user, argo_runs.path(ns, "free"), {"spec": {"podMetadata": None}}), "it is in no queue"


def test_pods_that_delete_artifacts_are_not_patched_later(bed: Testbed, ns: str, user: Api, member: Api) -> None:
    argo_runs.create(bed, ns, workflow("flow", suspend=True))
    where = argo_runs.path(ns, "flow")
    collector = {"strategy": "OnWorkflowCompletion"}
    assert not merge(member, where, {"spec": {"artifactGC": collector}})
    patched = {"artifactGC": {**collector, "podSpecPatch": "containers: [{name: main, image: mine}]"}}
    stored = {"status": {"storedWorkflowTemplateSpec": {"podMetadata": {"labels": dict(QUEUED)}, **patched}}}
    assert "run what Argo wrote" in merge(member, where, {"spec": patched})
    assert "run what Argo wrote" in merge(member, where, stored)
    assert not merge(user, where, stored), "as Argo does, where its configuration has a patch for all"
    user.raw("PATCH", where, stored, MERGE)
    assert not merge(member, where, labels(app="x"))
    assert "run what Argo wrote" in merge(
        member, where, {"status": {"storedWorkflowTemplateSpec": {"artifactGC": {"podSpecPatch": "other"}}}}
    )


def test_a_run_that_the_webhook_has_not_seen_is_refused(bed: Testbed, ns: str) -> None:
    unseen = workflow("unseen", QUEUE, queued=False)
    assert "penstock controller check" in refused(bed.api, "POST", argo_runs.path(ns), unseen)
    assert not refused(bed.api, "POST", argo_runs.path(ns), workflow("free", queued=False))
    for kind, spec in (("PipelineRun", STAGES), ("TaskRun", {"taskSpec": fake_task()})):
        document = tekton_runs.run(kind, "unseen", spec)
        assert not refused(bed.api, "POST", tekton_runs.path(ns, kind), document)
        document["metadata"]["labels"] = dict(QUEUE)
        assert "penstock controller check" in refused(bed.api, "POST", tekton_runs.path(ns, kind), document)


# -- the queue of what exists -------------------------------------------------------------------------------------------


def job_set(name: str, given: Mapping[str, str] = QUEUED, **more: Any) -> dict[str, Any]:
    """As the webhook leaves it: our label in the templates, no pods until the stage is admitted."""
    marks = {"labels": dict(QUEUED)}
    template = {
        "metadata": marks,
        "spec": {"containers": [CONTAINER], "restartPolicy": "Never"},
    }
    counts = {"parallelism": 0, "completions": 2, "backoffLimit": 0}
    job = {
        "metadata": {**marks, "annotations": {"penstock/parallelism": "2"}},
        "spec": {**counts, "template": template},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": dict(given), "annotations": {"penstock/unit": "stage"}},
        "spec": {"replicatedJobs": [{"name": "a", "template": job}], **more},
    }


def runs(bed: Testbed, ns: str) -> list[str]:
    """One of each kind, in a queue; their paths."""
    marked = {**QUEUE, **QUEUED, "penstock/unit": "task", PRIORITY: "normal"}
    documents = [
        workflow("run", marked, suspend=True),
        tekton_runs.run("PipelineRun", "run", {**STAGES, "status": "PipelineRunPending"}),
        tekton_runs.run("TaskRun", "run", {"taskSpec": fake_task(), "status": "TaskRunPending"}),
        job_set("run", {**QUEUED, "penstock/unit": "task", PRIORITY: "normal"}),
    ]
    places = [
        argo_runs.path(ns),
        *(tekton_runs.path(ns, kind) for kind in ("PipelineRun", "TaskRun")),
        JOBSETS.format(ns),
    ]
    for document, place in zip(documents, places, strict=True):
        document["metadata"].setdefault("labels", marked)
        document["metadata"].setdefault("annotations", {})["penstock/gate"] = "{}"
        bed.raw("POST", place, document)
    return [f"{place}/run" for place in places]


def test_the_queue_of_a_run_is_not_changed(bed: Testbed, ns: str, user: Api, controller: Api) -> None:
    for where in runs(bed, ns):
        before = bed.get(where)["metadata"]["labels"]
        for key in {**QUEUE, **QUEUED, "penstock/unit": ""}.keys() & before.keys():
            for value in ("another", None):
                assert "elete the" in merge(user, where, labels(**{key: value})), (where, key)
            assert merge(bed.api, where, labels(**{key: None}))
            assert not merge(controller, where, labels(**{key: "another"})), (where, key)
        assert merge(user, where, {"metadata": {"labels": None}})
        for annotation in ("penstock/gate", "penstock/stopping"):
            assert merge(user, where, {"metadata": {"annotations": {annotation: '{"x":1}'}}}), (where, annotation)
        assert not merge(
            user, where, {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e/f"]}}
        )


def test_the_priority_and_the_needs_of_a_run_are_not_changed(
    bed: Testbed, ns: str, user: Api, controller: Api, member: Api
) -> None:
    for where in runs(bed, ns):
        for value in ("another", None):
            assert "another class" in merge(user, where, labels(**{PRIORITY: value})), where
        assert not merge(controller, where, labels(**{PRIORITY: "another"}))
        requests = "kueue.konflux-ci.dev/requests-cpu"
        for name in (
            "kueue.k8s.io/max-resources",
            "kueue.x-k8s.io/tolerations",
            "kueue.k8s.io/node-selector",
            requests,
        ):
            change = {"metadata": {"annotations": {name: "{}"}}}
            assert "what the whole workflow holds" in merge(member, where, change), (where, name)
            assert not merge(user, where, change), "engines copy annotations, and may create pods as this one may"
        assert not merge(member, where, {"metadata": {"annotations": {"mine": "x"}}})


def test_a_queue_that_is_named_too_late_is_refused(bed: Testbed, ns: str, user: Api, member: Api) -> None:
    places = [
        (argo_runs.path(ns), workflow("late", queued=False, suspend=True)),
        (tekton_runs.path(ns, "PipelineRun"), tekton_runs.run("PipelineRun", "late", STAGES | PENDING)),
    ]
    for place, document in places:
        bed.raw("POST", place, document)
        where = f"{place}/late"
        for who in (user, member, bed.api):
            assert "create it with the label" in merge(who, where, labels(**QUEUE))
            assert not merge(who, where, labels(app="x"))


def test_the_queue_of_kueue_s_own_is_kueue_s_matter(bed: Testbed, ns: str, user: Api) -> None:
    """A JobSet and a Job that Kueue's own integration cares for, and those in no queue."""
    plain = job_set("kueue", QUEUE, suspend=True)
    del plain["metadata"]["annotations"]
    bed.raw("POST", JOBSETS.format(ns), plain)
    where = JOBSETS.format(ns) + "/kueue"
    assert not merge(user, where, labels(**{"kueue.x-k8s.io/queue-name": "team-b"}))
    assert merge(user, where, labels(**QUEUED)), "it cannot become ours any more"
    template = plain["spec"]["replicatedJobs"][0]["template"]["spec"] | {"suspend": True, "parallelism": 1}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "labels": QUEUE}, "spec": template}
    bed.raw("POST", f"/apis/batch/v1/namespaces/{ns}/jobs", job)
    at = f"/apis/batch/v1/namespaces/{ns}/jobs/j"
    assert not merge(user, at, labels(**{"kueue.x-k8s.io/queue-name": "team-b"}))
    assert not merge(user, at, {"spec": {"parallelism": 2}})


# -- JobSet -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_user", [False, True])
def test_a_queue_called_default_does_not_suspend_what_is_ours(bed: Testbed, ns: str, by_user: bool) -> None:
    """Kueue gives the queue `default`, where there is one, to every JobSet without a label, and suspends it."""
    spec = {"clusterQueue": "nowhere"}
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "default"},
        "spec": spec,
    }
    bed.raw("POST", f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{ns}/localqueues", queue)
    plain = job_set("kueue", {})
    del plain["metadata"]["annotations"]

    def defaulted() -> bool:
        made = bed.raw("POST", JOBSETS.format(ns), plain, params={"dryRun": "All"})
        return bool(made["spec"].get("suspend"))

    bed.wait(defaulted, "Kueue to know the queue")
    ours = job_set("ours", suspend=by_user)
    ours["metadata"]["annotations"]["penstock/suspend"] = "true" if by_user else "false"
    made = bed.raw("POST", JOBSETS.format(ns), ours, params={"dryRun": "All"})
    assert made["spec"].get("suspend", False) is by_user
    del ours["metadata"]["annotations"]["penstock/suspend"]
    unknown = bed.raw("POST", JOBSETS.format(ns), ours, params={"dryRun": "All"})
    assert unknown["spec"]["suspend"], "nobody knows who has suspended it"
    assert "kueue.x-k8s.io/queue-name" not in made["metadata"]["labels"]


def the_job(bed: Testbed, ns: str) -> str:
    found = bed.wait(lambda: bed.objects("batch/v1", "jobs", ns), "the Job")
    return f"/apis/batch/v1/namespaces/{ns}/jobs/{found[0]['metadata']['name']}"


def test_only_the_controller_lets_a_job_go(bed: Testbed, ns: str, user: Api, controller: Api) -> None:
    bed.raw("POST", JOBSETS.format(ns), job_set("set"))
    job = the_job(bed, ns)
    for who in (user, bed.api):
        assert "penstock why" in merge(who, job, {"spec": {"parallelism": 2}})
    assert merge(user, job, {"metadata": {"annotations": {"penstock/parallelism": None}}})
    assert merge(user, job, {"metadata": {"annotations": {"penstock/parallelism": "9"}}})
    assert merge(user, job, labels(**{"penstock/queue": None}))
    assert merge(user, job, labels(**QUEUE)), "Kueue would hold it a second time"
    controller.raw("PATCH", job, {"spec": {"parallelism": 2}}, MERGE)
    assert not merge(user, job, {"spec": {"parallelism": 1}}), "less is everyone's"

    def complete() -> bool:
        let_everything_go(bed, ns, controller)
        return is_true(bed.get(JOBSETS.format(ns) + "/set"), "Completed")

    bed.wait(complete, "the JobSet to complete")
    user.raw("DELETE", JOBSETS.format(ns) + "/set", {"propagationPolicy": "Foreground"})
    bed.wait(lambda: not bed.objects("v1", "pods", ns), "its pods to be gone")


def test_a_suspended_job_keeps_the_label_of_its_pods(bed: Testbed, ns: str, user: Api) -> None:
    """While it is suspended the API server lets the pod template be edited."""
    template = job_set("x")["spec"]["replicatedJobs"][0]["template"]["spec"] | {"suspend": True}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "labels": {**QUEUED, **QUEUE}},
        "spec": template,
    }
    made = bed.raw("POST", f"/apis/batch/v1/namespaces/{ns}/jobs", job)
    assert made["metadata"]["labels"] == QUEUED
    at = f"/apis/batch/v1/namespaces/{ns}/jobs/j"
    change = {"spec": {"template": {"metadata": {"labels": {"penstock/queue": None}}}}}
    assert "holds the pods" in merge(user, at, change)
    assert not merge(user, at, {"spec": {"template": {"metadata": {"labels": {"app": "x"}}}}})


def test_a_suspended_job_set_keeps_its_labels_and_its_zero(bed: Testbed, ns: str, user: Api, controller: Api) -> None:
    bed.raw("POST", JOBSETS.format(ns), job_set("set", suspend=True))
    where = JOBSETS.format(ns) + "/set"
    at = "/spec/replicatedJobs/0/template"
    label = "metadata/labels/penstock~1queue"
    for path in (f"{at}/{label}", f"{at}/spec/template/{label}"):
        with pytest.raises(ApiError, match="hold the pods"):
            user.raw("PATCH", where, [{"op": "remove", "path": path}], JSON_PATCH, {"dryRun": "All"})
    change = [{"op": "replace", "path": f"{at}/spec/parallelism", "value": 2}]
    with pytest.raises(ApiError, match="parallelism in a queued JobSet"):
        user.raw("PATCH", where, change, JSON_PATCH, {"dryRun": "All"})
    app = [{"op": "add", "path": f"{at}/spec/template/metadata/labels/app", "value": "x"}]
    assert not refused(user, "PATCH", where, app, JSON_PATCH)
    user.raw("PATCH", where, {"spec": {"suspend": False}}, MERGE)
    bed.wait(lambda: bed.objects("batch/v1", "jobs", ns), "JobSet to go on")
    user.raw("PATCH", where, {"spec": {"suspend": True}}, MERGE)


# -- Workloads ----------------------------------------------------------------------------------------------------------


def workload(name: str, given: Mapping[str, str], **annotations: str) -> dict[str, Any]:
    sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "labels": dict(given), "annotations": annotations},
        "spec": {"queueName": "team-a", "podSets": sets},
    }


def queue(bed: Testbed, ns: str) -> None:
    name = unique("q")
    api = "kueue.x-k8s.io/v1beta2"
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": name, "resources": [{"name": "cpu", "nominalQuota": "9"}]}],
    }
    bed.apply(
        [
            {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": name}},
            {
                "apiVersion": api,
                "kind": "ClusterQueue",
                "metadata": {"name": name},
                "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
            },
            {
                "apiVersion": api,
                "kind": "LocalQueue",
                "metadata": {"name": "team-a", "namespace": ns},
                "spec": {"clusterQueue": name},
            },
        ]
    )


def test_only_the_controller_and_kueue_write_workloads(bed: Testbed, ns: str, user: Api, controller: Api) -> None:
    queue(bed, ns)
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{ns}/workloads"
    ours = workload("ours", {"penstock/workflow-uid": "1", "penstock/stage": "a"}, **{"penstock/tasks": "[]"})
    assert "create a workflow" in refused(user, "POST", path, ours)
    assert not refused(user, "POST", path, workload("other", {"app": "x"}))
    controller.raw("POST", path, ours)
    where = f"{path}/ours"
    bed.wait(lambda: is_true(bed.get(where), "Admitted"), "Kueue to admit it, which it writes itself")
    for change in ({"labels": {"penstock/stage": "b"}}, {"annotations": {"penstock/tasks": '["x"]'}}, {"labels": None}):
        assert "alone" in merge(user, where, {"metadata": change})
    assert merge(user, where, {"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": "a/b"}}})
    for change in ({"admission": None}, {"conditions": []}, {"reclaimablePods": [{"name": "main", "count": 1}]}):
        assert "alone" in merge(user, f"{where}/status", {"status": change})
    assert not merge(user, where, {"spec": {"priority": 7}, "metadata": {"labels": {"a": "b"}, "finalizers": ["c/d"]}})
    assert not merge(user, where, {"spec": {"active": False}}), "as kubectl kueue stop does"
    user.raw("PATCH", where, {"spec": {"active": False}}, MERGE)
    bed.wait(lambda: is_true(bed.get(where), "Evicted"), "Kueue to evict it")
    user.raw("DELETE", where)
    assert bed.found(where) is None


def test_a_place_in_the_queue_is_switched_on_by_the_controller(
    bed: Testbed, ns: str, user: Api, controller: Api
) -> None:
    queue(bed, ns)
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{ns}/workloads"
    place = workload("place", {"penstock/workflow-uid": "1"}, **{"penstock/place": "true"})
    place["spec"]["active"] = False
    controller.raw("POST", path, place)
    assert "place" in merge(user, f"{path}/place", {"spec": {"active": True}})
    small = [{"op": "replace", "path": "/spec/podSets/0/count", "value": 0}]
    assert "pod sets" in refused(user, "PATCH", f"{path}/place", small, JSON_PATCH)
    assert "pod sets" in merge(user, f"{path}/place", {"spec": {"queueName": "team-b"}})
    assert not merge(
        controller, f"{path}/place", {"spec": {"active": True}, "metadata": {"annotations": {"penstock/place": None}}}
    )
    free = workload("free", {"app": "x"})
    free["spec"]["active"] = False
    user.raw("POST", path, free)
    assert not merge(user, f"{path}/free", {"spec": {"active": True, "queueName": "team-b"}})


# -- beside Kueue's own integration of pods -----------------------------------------------------------------------------


def test_a_pod_is_out_of_kueue_s_hands_even_where_kueue_manages_everything(testbed: Callable[..., Testbed]) -> None:
    frameworks = ["batch/job", "pod"]
    selector = {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kueue-system"]}
        ]
    }
    options = {
        "integrations": {"frameworks": frameworks},
        "manageJobsWithoutQueueName": True,
        "managedJobsNamespaceSelector": selector,
    }
    bed = testbed("kueue", "kwok", kueue=options)
    ns = fresh_namespace(bed)
    free = bed.raw("POST", pods(ns), pod("free", {}))
    assert "kueue.x-k8s.io/admission" in gates(free), "Kueue holds everything here"
    installed(bed)
    for given in (QUEUED, {**QUEUED, **QUEUE}):
        held = bed.raw("POST", pods(ns), pod(unique("held"), given))
        assert gates(held) == [GATE]
        assert held["metadata"]["labels"] == QUEUED
        assert held["metadata"].get("finalizers", []) == []


def test_the_policies_of_an_engine_can_be_left_out() -> None:
    for engine, group in (("argo", "argoproj.io"), ("tekton", "tekton.dev"), ("jobset", "jobset.x-k8s.io")):
        rest = {"argo", "tekton", "jobset"} - {engine}
        assert group in str(policies([CONTROLLER])) and group not in str(policies([CONTROLLER], rest))


# -- the webhook --------------------------------------------------------------------------------------------------------


def ungate(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Lets every pod go, as the controller does with one that an admitted Workload covers."""
    if request["kind"]["kind"] != "Pod":
        return [{"op": "add", "path": "/metadata/labels/seen", "value": "true"}]
    at = next(number for number, name in enumerate(gates(request["object"])) if name == GATE)
    mark = {"op": "add", "path": "/metadata/annotations", "value": {"penstock/pod-set": "w/p"}}
    return [{"op": "remove", "path": f"/spec/schedulingGates/{at}"}, mark]


@pytest.fixture
def hook(bed: Testbed) -> Iterator[Hook]:
    hook = Hook(bed, ungate)
    bed.apply([configuration(Address(url=f"https://127.0.0.1:{hook.port}", authority=bed.ca))])
    yield hook
    bed.delete(f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{NAME}")
    hook.close()


def counts(bed: Testbed, ns: str, hook: Hook) -> None:
    """A configuration counts some time after it is created; asking is the only way to know."""
    probe = workflow("probe", {}, suspend=True)
    where = argo_runs.path(ns)
    seen = lambda: bed.raw("POST", where, probe, params={"dryRun": "All"})["metadata"]["labels"].get("seen")
    bed.wait(seen, "the webhook to count")
    hook.asked.clear()


def test_the_webhook_lets_a_pod_go_and_no_policy_holds_it_again(bed: Testbed, ns: str, hook: Hook) -> None:
    counts(bed, ns, hook)
    made = bed.raw("POST", pods(ns), pod("covered", QUEUED))
    assert gates(made) == [] and made["metadata"]["annotations"] == {"penstock/pod-set": "w/p"}
    assert gates(hook.asked[0]["object"]) == [GATE], "the policy came first"


def test_the_webhook_is_asked_about_what_is_queued_alone(bed: Testbed, ns: str, hook: Hook) -> None:
    counts(bed, ns, hook)
    for document in (workflow("free", queued=False, suspend=True), workflow("mine", suspend=True)):
        bed.raw("POST", argo_runs.path(ns), document)
    for name, given, owners in (("free", {}, []), ("child", QUEUED, [owner(bed, ns)]), ("mine", QUEUED | QUEUE, [])):
        document = task_run(name, given, status="TaskRunPending")
        document["metadata"]["ownerReferences"] = owners
        made_run(bed, ns, document)
    bed.raw("POST", JOBSETS.format(ns), job_set("mine", QUEUE, suspend=True))
    bed.raw("POST", JOBSETS.format(ns), job_set("copy", QUEUED, suspend=True))
    bed.raw("POST", JOBSETS.format(ns), job_set("free", {}, suspend=True))
    bed.raw("POST", pods(ns), pod("free", {}))
    bed.raw("PATCH", argo_runs.path(ns, "mine"), labels(a="b"), MERGE)
    bed.delete(argo_runs.path(ns, "mine"))
    asked = [(one["kind"]["kind"], one["name"]) for one in hook.asked]
    assert asked == [("Workflow", "mine"), ("TaskRun", "mine"), ("JobSet", "mine"), ("JobSet", "copy")]


def test_without_an_answer_workflows_are_refused_and_pods_stay_held(bed: Testbed, ns: str, hook: Hook) -> None:
    counts(bed, ns, hook)
    hook.close()
    with pytest.raises(ApiError, match="failed calling webhook"):
        bed.raw("POST", argo_runs.path(ns), workflow("mine", suspend=True))
    assert gates(bed.raw("POST", pods(ns), pod("held", QUEUED))) == [GATE]
    bed.raw("POST", argo_runs.path(ns), workflow("free", queued=False, suspend=True))
    assert gates(bed.raw("POST", pods(ns), pod("free", {}))) == []
