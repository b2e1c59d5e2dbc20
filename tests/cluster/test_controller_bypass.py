"""Nobody slips past: somebody with the role `penstock-workflow-author` tries to start pods of a queued workflow without quota, in every way we know.

All quota is held by somebody else. An attempt is refused, or ends in pods that wait; the witness looks at every moment from the beginning to the end.
Other people's objects without a label are as they would be without Penstock, also while the webhook is down.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.controller.install.rights import AUTHOR
from penstock.controller.objects import holds
from testbed.api import MERGE, Api
from testbed.components.jobset import API as JOB_SETS
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster import argo_runs, tekton_runs, test_jobset
from tests.cluster.argo_runs import API, EXIT_CODE, RUN_TIME, fake, flow, node, path, step
from tests.cluster.controlled import ALL, Controlled, Witness
from tests.cluster.kueue_protocol import Desk
from tests.cluster.policies import CONTAINER, person
from tests.cluster.tekton_runs import fake_task, pipeline, run
from tests.cluster.test_controller_argo import QUEUE, needs, queued, three_stages
from tests.cluster.test_jobset import after, job, jobset

Object = dict[str, Any]
GATE = "penstock/admission"
PRIORITY = "kueue.x-k8s.io/priority-class"
OURS = "ValidatingAdmissionPolicy 'penstock-"


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kueue", "kwok", "argo", "tekton", "jobset")


@pytest.fixture(scope="module")
def controller(bed: Testbed) -> Iterator[Controlled]:
    with Controlled(bed, ALL) as found:
        yield found


@pytest.fixture(scope="module")
def api(bed: Testbed) -> Iterator[Api]:
    found = person(bed, "ana")
    yield found
    found.close()


class Attempt:
    """Ana, her namespace, and somebody who holds all the quota of her queue until `end`."""

    def __init__(self, bed: Testbed, api: Api) -> None:
        self.bed, self.api, self.desk = bed, api, Desk(bed)
        self.ns = self.desk.namespace
        self.exempt: list[str] = []
        """Parts of names of pods that are not queued."""
        subject = {"kind": "User", "name": "ana", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "ClusterRole", "name": AUTHOR, "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}
        bed.apply(
            [{**binding, "metadata": {"name": "ana", "namespace": self.ns}, "subjects": [subject], "roleRef": role}]
        )
        self.desk.queue("main", "3")
        self.desk.workload("other", count=3, cpu="1")
        bed.wait(lambda: holds(self.desk.get("other"), "Admitted"), "the other one to be admitted")

    # what she does

    def create(self, document: Object) -> Object:
        where = {"Workflow": path(self.ns), "JobSet": f"/apis/{JOB_SETS}/namespaces/{self.ns}/jobsets"}
        kind = document["kind"]
        found: Object = self.api.raw("POST", where.get(kind) or tekton_runs.path(self.ns, kind), document)
        return found

    def edit(self, where: str, body: Any) -> None:
        self.api.raw("PATCH", where, body, MERGE)

    def refused(self, where: str, body: Any, by: str = OURS) -> None:
        with pytest.raises(ApiError, match=by):
            self.edit(where, body)

    def forbidden(self, method: str, where: str, body: Any = None) -> None:
        """By her role."""
        with pytest.raises(ApiError, match='is forbidden: User "ana" cannot'):
            self.api.raw(method, where, body, MERGE if method == "PATCH" else "application/json")

    # what comes of it

    def at_the_gate(self, name: str = "w") -> Object:
        return argo_runs.until(self.bed, self.ns, name, "penstock-gate-0", "Running")

    def pods(self) -> list[Object]:
        return self.bed.objects("v1", "pods", self.ns)

    def held(self, count: int = 1) -> list[Object]:
        """So many pods have come, and all wait."""
        found = self.bed.wait(lambda: self.pods() if len(self.pods()) >= count else None, f"{count} pods")
        for pod in found:
            assert GATE in [one["name"] for one in pod["spec"].get("schedulingGates", ())], pod["metadata"]["name"]
        return found

    def waits(self) -> None:
        """Nothing of it runs, and it is in the queue."""
        self.bed.wait(lambda: [one for one in self._queued() if one["spec"].get("active", True)], "it to be queued")
        for pod in self.pods():
            assert pod["spec"].get("schedulingGates"), pod["metadata"]["name"]

    def _queued(self) -> list[Object]:
        every = self.desk.read(self.desk.path("workloads"))["items"]
        return [one for one in every if one["metadata"]["name"] != "other" and not holds(one, "Finished")]

    def let_go(self) -> None:
        self.desk.finish("other")


@pytest.fixture
def ana(bed: Testbed, controller: Controlled, api: Api) -> Iterator[Attempt]:
    found = Attempt(bed, api)
    with Witness(bed, found.ns) as witness:
        yield found
    witness.check(exempt=found.exempt)


def ends(ana: Attempt, name: str = "w", phase: str = "Succeeded") -> None:
    ana.let_go()
    found = argo_runs.until_over(ana.bed, ana.ns, name)
    assert found["status"]["phase"] == phase, found["status"].get("message")


# -- Argo: the document -------------------------------------------------------------------------------------------------


def one_step(**more: Any) -> Object:
    return queued(flow("w", [step("first", "small")], needs(fake("small", run_time="1s"), "1"), **more))


def bigger(document: Object) -> None:
    document["spec"]["podSpecPatch"] = '{"containers":[{"name":"main","resources":{"requests":{"cpu":"2"}}}]}'


def bigger_template(document: Object) -> None:
    patch = '{"containers":[{"name":"main","resources":{"requests":{"cpu":"2"}}}]}'
    document["spec"]["templates"][1]["podSpecPatch"] = patch


def no_gates(document: Object) -> None:
    document["spec"]["podSpecPatch"] = '{"schedulingGates":null}'


def other_gates(document: Object) -> None:
    document["spec"]["podSpecPatch"] = '{"schedulingGates":[{"$patch":"replace"}]}'


def scheduler(document: Object) -> None:
    document["spec"]["schedulerName"] = "mine"
    document["spec"]["templates"][1]["schedulerName"] = "mine"


def second_label(document: Object) -> None:
    document["metadata"]["labels"] |= {"penstock/queue": "elsewhere", "penstock/unit": "task"}
    document["spec"]["podMetadata"] = {"labels": {QUEUE: "elsewhere", "penstock/queue": ""}}
    document["spec"]["templates"][1]["metadata"]["labels"] = {"penstock/queue": ""}


def says_admitted(document: Object) -> None:
    document["spec"]["podMetadata"] = {"annotations": {"penstock/pod-set": "other/main"}}


@pytest.mark.parametrize("change", [bigger, bigger_template, no_gates, other_gates, second_label, says_admitted])
def test_a_document_that_asks_for_more_or_less_waits(ana: Attempt, change: Callable[[Object], None]) -> None:
    document = one_step()
    change(document)
    ana.create(document)
    ana.waits()
    ends(ana)


def test_another_scheduler_waits_too(ana: Attempt) -> None:
    document = one_step()
    scheduler(document)
    ana.create(document)
    ana.at_the_gate()
    argo_runs.resume_all(ana.bed, ana.ns, "w")
    (pod,) = ana.held()
    assert pod["spec"]["schedulerName"] == "mine"


def test_a_pod_cannot_name_its_node(ana: Attempt) -> None:
    """Not even when it is admitted: it would leave the nodes of its flavor."""
    document = one_step(podSpecPatch='{"nodeName":"kwok-node-0"}')
    ana.create(document)
    ana.waits()
    ends(ana, phase="Failed")
    assert not ana.pods()


def test_a_template_elsewhere_is_no_way_around(ana: Attempt) -> None:
    library = {"apiVersion": API, "kind": "WorkflowTemplate", "metadata": {"name": "lib"}}
    library["spec"] = {"templates": [needs(fake("big", run_time="1s"), "1")]}
    ana.api.raw("POST", f"/apis/{API}/namespaces/{ana.ns}/workflowtemplates", library)
    steps = [[{"name": "first", "templateRef": {"name": "lib", "template": "big"}}]]
    ana.create(queued(flow("w", steps)))
    ana.waits()
    ends(ana)


def test_a_whole_workflow_elsewhere_is_no_way_around(ana: Attempt) -> None:
    library = {"apiVersion": API, "kind": "WorkflowTemplate", "metadata": {"name": "lib"}, "spec": one_step()["spec"]}
    ana.api.raw("POST", f"/apis/{API}/namespaces/{ana.ns}/workflowtemplates", library)
    spec = {"workflowTemplateRef": {"name": "lib"}}
    ana.create(queued({"apiVersion": API, "kind": "Workflow", "metadata": {"name": "w"}, "spec": spec}))
    ana.waits()
    stored = {"status": {"storedWorkflowTemplateSpec": {"podMetadata": None}}}
    if "storedWorkflowTemplateSpec" in ana.bed.get(path(ana.ns, "w")).get("status", {}):
        ana.refused(path(ana.ns, "w"), stored)
    ends(ana)


def test_a_whole_workflow_elsewhere_cannot_change_what_deletes_artifacts(ana: Attempt) -> None:
    """Its pods wait one by one, so the Workflow goes on referring to it. What the Workflow says comes first, and that stays."""
    library = {"apiVersion": API, "kind": "WorkflowTemplate", "metadata": {"name": "lib"}, "spec": one_step()["spec"]}
    where = f"/apis/{API}/namespaces/{ana.ns}/workflowtemplates"
    ana.api.raw("POST", where, library)
    spec = {"workflowTemplateRef": {"name": "lib"}}
    ana.create(queued({"apiVersion": API, "kind": "Workflow", "metadata": {"name": "w"}, "spec": spec}, unit="task"))
    ana.refused(path(ana.ns, "w"), {"spec": {"artifactGC": {"podSpecPatch": None}}})
    ana.edit(f"{where}/lib", {"spec": {"artifactGC": {"podSpecPatch": "containers: [{name: main, image: mine}]"}}})
    ana.held()
    argo_runs.until(ana.bed, ana.ns, "w", "first", "Pending")
    stored = ana.bed.get(path(ana.ns, "w"))["status"]["storedWorkflowTemplateSpec"]
    assert stored["artifactGC"]["podSpecPatch"] == "{}"
    ends(ana)


def test_a_copy_of_a_gated_manifest_proves_nothing(ana: Attempt) -> None:
    ana.create(one_step())
    copied = ana.at_the_gate()
    copied["metadata"] = {
        "name": "copy",
        "labels": copied["metadata"]["labels"],
        "annotations": copied["metadata"]["annotations"],
    }
    del copied["status"]
    for template in copied["spec"]["templates"]:
        if "suspend" in template:
            template["suspend"] = {"duration": "1"}
    ana.create(copied)
    ana.at_the_gate("copy")
    assert not ana.pods()
    ana.let_go()
    for name in ("w", "copy"):
        assert argo_runs.until_over(ana.bed, ana.ns, name)["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ({"workflowMetadata": {"labels": {QUEUE: "elsewhere"}}}, "is taken from the workflow"),
        ({"podMetadata": {"annotations": {"workflows.argoproj.io/node-name": "w.onExit"}}}, "written by Argo alone"),
        (
            {"templates": [{"name": "main", "dag": {"tasks": [{"name": "onExit", "template": "small"}]}}]},
            "looks like an exit",
        ),
        ({"artifactGC": {"podSpecPatch": "containers: [{name: main, image: mine}]"}}, "run what Argo wrote"),
    ],
)
def test_a_disguise_is_refused(ana: Attempt, place: Object, said: str) -> None:
    document = one_step()
    more = place.pop("templates", None)
    document["spec"] |= place
    if more:
        document["spec"]["templates"] = [*more, document["spec"]["templates"][1]]
    with pytest.raises(ApiError, match=said):
        ana.create(document)


# -- Argo: what is there is edited --------------------------------------------------------------------------------------


def test_gates_that_are_edited_out(ana: Attempt) -> None:
    """She puts back the templates that she wrote. The label of the pods stays, so they wait all the same."""
    document = three_stages("w")
    ana.create(queued(three_stages("w")))
    found = ana.at_the_gate()
    templates = document["spec"]["templates"]
    ana.edit(
        path(ana.ns, "w"),
        {"spec": {"templates": templates}, "status": {"nodes": dict.fromkeys(found["status"]["nodes"])}},
    )
    ana.held()
    ends(ana)


def test_the_label_of_its_pods_stays(ana: Attempt) -> None:
    ana.create(one_step())
    ana.at_the_gate()
    where = path(ana.ns, "w")
    ana.refused(where, {"spec": {"podMetadata": None}})
    ana.refused(where, {"spec": {"podMetadata": {"labels": {"penstock/queue": "elsewhere"}}}})
    ana.refused(where, {"status": {"storedWorkflowTemplateSpec": {"entrypoint": "main"}}})


def test_its_queue_and_our_notes_stay(ana: Attempt) -> None:
    ana.create(one_step())
    ana.at_the_gate()
    where = path(ana.ns, "w")
    ana.refused(where, {"metadata": {"labels": {QUEUE: None}}})
    ana.refused(where, {"metadata": {"labels": {QUEUE: "elsewhere"}}})
    ana.refused(where, {"metadata": {"labels": {"penstock/queue": "elsewhere"}}})
    ana.refused(where, {"metadata": {"annotations": {"penstock/stages": "[]"}}})
    ana.refused(where, {"metadata": {"annotations": {"penstock/gate": None}}})


def test_its_priority_and_its_needs_stay(ana: Attempt) -> None:
    """A place in line that is better, or a smaller reservation for the same pods."""
    document = queued(three_stages("w"), unit="workflow", **{PRIORITY: "low"})
    document["metadata"]["annotations"]["kueue.k8s.io/max-resources"] = '{"cpu": "3"}'
    ana.create(document)
    where = path(ana.ns, "w")
    ana.refused(where, {"metadata": {"labels": {PRIORITY: "high"}}})
    ana.refused(where, {"metadata": {"annotations": {"kueue.k8s.io/max-resources": '{"cpu": "1"}'}}})
    ana.refused(where, {"metadata": {"annotations": {"kueue.x-k8s.io/node-selector": '{"pool": "a"}'}}})
    ana.refused(where, {"spec": {"artifactGC": {"podSpecPatch": "containers: [{name: main, image: mine}]"}}})
    ana.waits()
    ana.let_go()
    ends(ana)


def test_a_label_that_comes_too_late_is_refused(ana: Attempt) -> None:
    """What runs without a queue goes on without one, and does not look as if it were in one."""
    document = three_stages("free")
    ana.exempt.append("free")
    ana.create({**document, "spec": {**document["spec"], "suspend": True}})
    ana.refused(path(ana.ns, "free"), {"metadata": {"labels": {QUEUE: "main"}}})
    ana.edit(path(ana.ns, "free"), {"spec": {"suspend": None}})
    assert argo_runs.until_over(ana.bed, ana.ns, "free")["status"]["phase"] == "Succeeded"


def test_whoever_resumes_it_gets_pods_that_wait(ana: Attempt) -> None:
    ana.create(one_step())
    found = ana.at_the_gate()
    gate = node(found, "penstock-gate-0")
    outputs = {"parameters": [{"name": "flavor", "value": ""}, {"name": "node-selector", "value": "{}"}]}
    opened = {"phase": "Succeeded", "finishedAt": gate["startedAt"], "outputs": outputs}
    ana.edit(path(ana.ns, "w"), {"status": {"nodes": {gate["id"]: opened}}})
    ana.held()
    ends(ana)


def test_a_gate_that_asks_for_nothing(ana: Attempt) -> None:
    """The shape of a stage is an input of its gate's node, so it is hers to edit. Its pods say what they ask for themselves."""
    ana.create(one_step())
    gate = node(ana.at_the_gate(), "penstock-gate-0")
    inputs = [{**one, "value": "[]"} if one["name"] == "shape" else one for one in gate["inputs"]["parameters"]]
    ana.edit(path(ana.ns, "w"), {"status": {"nodes": {gate["id"]: {"inputs": {"parameters": inputs}}}}})
    ana.held()
    ends(ana)


def test_a_step_that_says_it_is_over_keeps_its_quota(ana: Attempt) -> None:
    """Her word is not the end of its pod: what that holds is free when it ends."""
    document = one_step()
    document["spec"]["templates"][1]["metadata"]["annotations"][RUN_TIME] = "forever"
    ana.create(document)
    ana.let_go()
    argo_runs.until(ana.bed, ana.ns, "w", "first", "Running")
    found = ana.bed.get(path(ana.ns, "w"))
    over = {"phase": "Succeeded", "finishedAt": node(found, "first")["startedAt"]}
    ana.edit(path(ana.ns, "w"), {"status": {"nodes": {node(found, "first")["id"]: over}}})
    ana.desk.workload("more", count=3, cpu="1")
    ana.desk.fence("looked-at")
    (pod,) = ana.pods()
    ana.desk.until_used("1")
    assert pod["status"]["phase"] == "Running"
    assert not holds(ana.desk.get("more"), "QuotaReserved")
    where = f"/api/v1/namespaces/{ana.ns}/pods/{pod['metadata']['name']}"
    ana.bed.raw("PATCH", where, {"metadata": {"annotations": {RUN_TIME: "10ms"}}}, MERGE)
    ana.desk.until_running("more")
    assert argo_runs.until_over(ana.bed, ana.ns, "w")["status"]["phase"] == "Succeeded"


def test_a_workflow_that_is_tried_again_waits_again(ana: Attempt) -> None:
    """What `argo retry` writes and deletes, once all that it held has been given back."""
    document = one_step()
    document["spec"]["templates"][1]["metadata"]["annotations"][EXIT_CODE] = "1"
    ana.create(document)
    ends(ana, phase="Failed")
    ana.bed.wait(lambda: not ana._queued(), "all of it to be given back")
    ana.desk.workload("another", count=3, cpu="1")
    ana.desk.until_running("another")
    found = ana.bed.get(path(ana.ns, "w"))
    nodes: Object = {node(found, "first")["id"]: None}
    for key, one in found["status"]["nodes"].items():
        if key not in nodes and one["phase"] != "Succeeded":
            nodes[key] = {"phase": "Running", "finishedAt": None, "message": None}
    for pod in ana.pods():
        ana.bed.delete(f"/api/v1/namespaces/{ana.ns}/pods/{pod['metadata']['name']}")
    ana.bed.wait(lambda: not ana.pods(), "its pods to be gone")
    again = {"phase": "Running", "finishedAt": None, "message": None, "nodes": nodes, "conditions": None}
    ana.edit(
        path(ana.ns, "w"),
        {"metadata": {"labels": {"workflows.argoproj.io/completed": None}}, "status": again},
    )
    ana.waits()
    ana.held()
    ana.desk.finish("another")
    assert argo_runs.until_over(ana.bed, ana.ns, "w")["status"]["phase"] == "Failed"


def test_a_step_that_says_it_is_a_hook(ana: Attempt) -> None:
    ana.create(one_step())
    gate = node(ana.at_the_gate(), "penstock-gate-0")
    argo_runs.resume_all(ana.bed, ana.ns, "w")
    ana.held()
    step_node = argo_runs.until(ana.bed, ana.ns, "w", "first", "Pending")
    marked = {one: {"nodeFlag": {"hooked": True}} for one in (node(step_node, "first")["id"], gate["id"])}
    ana.refused(path(ana.ns, "w"), {"status": {"nodes": marked}})
    ana.bed.raw("PATCH", path(ana.ns, "w"), {"status": {"nodes": marked}}, MERGE)  # Nor does it help who may.
    ana.waits()
    ana.held()
    ends(ana)


def test_a_task_that_is_made_a_hook_later(ana: Attempt) -> None:
    """A task of that name is refused in a new document, but she may edit it in; then only the flag in the status is missing."""
    dag = {"name": "main", "dag": {"tasks": [{"name": "first", "template": "small"}]}}
    document = one_step()
    document["spec"]["templates"][0] = dag
    ana.create(document)
    found = argo_runs.until(ana.bed, ana.ns, "w", "penstock-gate-first", "Running")
    later = [
        {**one, "dag": {"tasks": [*one["dag"]["tasks"], {"name": "onExit", "template": "small"}]}}
        if "dag" in one
        else one
        for one in found["spec"]["templates"]
    ]
    ana.edit(path(ana.ns, "w"), {"spec": {"templates": later}})
    (pod,) = ana.held()
    forged = argo_runs.until(ana.bed, ana.ns, "w", "onExit", "Pending")
    mine = node(forged, "onExit")["id"]
    ana.refused(path(ana.ns, "w"), {"status": {"nodes": {mine: {"nodeFlag": {"hooked": True}}}}})
    assert pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"] == "w.onExit"
    ana.held()
    ends(ana)


def test_pods_and_workloads_are_not_hers_to_write(ana: Attempt) -> None:
    ana.create(one_step())
    ana.at_the_gate()
    argo_runs.resume_all(ana.bed, ana.ns, "w")
    (pod,) = ana.held()
    where = f"/api/v1/namespaces/{ana.ns}/pods"
    name = pod["metadata"]["name"]
    free = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [CONTAINER]}}
    ana.forbidden("DELETE", f"{where}/{name}")
    ana.forbidden("POST", where, free)
    ana.forbidden("PATCH", f"{where}/{name}", {"spec": {"schedulingGates": None}})
    ana.forbidden("PATCH", f"{where}/{name}/status", {"status": {"phase": "Running"}})
    ana.waits()
    mine = next(one for one in ana._queued())["metadata"]["name"]
    for change in ({"spec": {"active": False}}, {"spec": {"priority": 1000}}):
        ana.forbidden("PATCH", ana.desk.path("workloads", mine), change)
    ana.forbidden("PATCH", ana.desk.path("workloads", mine) + "/status", {"status": {}})
    ana.forbidden("DELETE", ana.desk.path("workloads", mine))
    ana.forbidden(
        "POST",
        ana.desk.path("workloads"),
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "x"}},
    )
    ends(ana)


# -- Tekton -------------------------------------------------------------------------------------------------------------


def small_run(**more: Any) -> Object:
    spec = pipeline({"name": "first", "taskSpec": fake_task(cpu="1", run_time="1s")})
    return queued(run("PipelineRun", "p", {**spec, **more}))


def task_run(ana: Attempt, name: str = "first") -> Object:
    return ana.bed.wait(lambda: tekton_runs.task_runs(ana.bed, ana.ns).get(name), f"the TaskRun of {name}")


def tekton_ends(ana: Attempt) -> None:
    ana.let_go()
    found = tekton_runs.ended(ana.bed, ana.ns, "PipelineRun", "p")
    assert tekton_runs.condition(found)["status"] == "True", tekton_runs.condition(found)


def test_a_task_run_that_waits_is_not_let_go_by_hand(ana: Attempt) -> None:
    ana.create(small_run())
    ana.waits()
    one = task_run(ana)
    assert one["spec"]["status"] == "TaskRunPending"
    where = tekton_runs.path(ana.ns, "TaskRun", one["metadata"]["name"])
    ana.refused(where, {"spec": {"status": None}})
    ana.refused(where, {"metadata": {"labels": {"penstock/queue": None}}})
    ana.forbidden("PATCH", f"{where}/status", {"status": {"podName": "x"}})
    run_at = tekton_runs.path(ana.ns, "PipelineRun", "p")
    ana.refused(run_at, {"metadata": {"labels": {QUEUE: None}}})
    ana.refused(run_at, {"metadata": {"labels": {"penstock/queue": None}}})
    ana.forbidden("PATCH", f"{run_at}/status", {"status": {"childReferences": []}})
    tekton_ends(ana)


def test_a_task_that_says_it_is_in_finally(ana: Attempt) -> None:
    """Then its TaskRun is not held, but its pod is; what counts is the pipeline."""
    spec = [{"pipelineTaskName": "first", "metadata": {"labels": {"tekton.dev/memberOf": "finally"}}}]
    document = small_run(taskRunSpecs=spec)
    document["spec"]["pipelineSpec"]["tasks"][0]["taskSpec"]["metadata"]["labels"] = {"tekton.dev/memberOf": "finally"}
    ana.create(document)
    ana.waits()
    tekton_ends(ana)


def test_a_task_run_made_by_hand_as_a_child_of_the_run(ana: Attempt) -> None:
    made = ana.create(small_run())
    ana.waits()
    owner = {"apiVersion": tekton_runs.API, "kind": "PipelineRun", "name": "p", "uid": made["metadata"]["uid"]}
    forged = run("TaskRun", "forged", {"taskSpec": fake_task(cpu="1")}, **{tekton_runs.RUN_TIME: "1s"})
    forged["metadata"] |= {
        "labels": {"penstock/queue": "main", "tekton.dev/memberOf": "finally", "tekton.dev/pipelineTask": "last"},
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": False}],
    }
    ana.create(forged)
    ana.held()
    tekton_ends(ana)


@pytest.mark.parametrize("kind", ["PipelineRun", "TaskRun"])
@pytest.mark.parametrize("label", [QUEUE, "penstock/queue"])
def test_a_copy_of_a_queued_run_proves_nothing(ana: Attempt, kind: str, label: str) -> None:
    """With all that was written into it, and under either label; and told that it may go."""
    document = small_run() if kind == "PipelineRun" else queued(run("TaskRun", "p", {"taskSpec": fake_task(cpu="1")}))
    made = ana.create(document)
    ana.waits()
    labels = {key: text for key, text in made["metadata"]["labels"].items() if key not in (QUEUE, "penstock/queue")}
    notes = {
        **made["metadata"].get("annotations", {}),
        "penstock/gate": '{"unit":"stage","by":"taskruns","held":"user"}',
    }
    spec = {key: value for key, value in made["spec"].items() if key != "status"}
    again = {"metadata": {"name": "copy", "labels": labels | {label: "main"}, "annotations": notes}, "spec": spec}
    ana.create({"apiVersion": made["apiVersion"], "kind": kind, **again})
    one = ana.bed.wait(lambda: _task_run_of(ana, "copy"), "the TaskRun of the copy")
    assert one["spec"]["status"] == "TaskRunPending"
    ana.refused(tekton_runs.path(ana.ns, "TaskRun", one["metadata"]["name"]), {"spec": {"status": None}})
    assert not ana.pods()
    ana.let_go()
    for name in ("p", "copy"):
        found = tekton_runs.ended(ana.bed, ana.ns, kind, name)
        assert tekton_runs.condition(found)["status"] == "True", tekton_runs.condition(found)


def _task_run_of(ana: Attempt, name: str) -> Object | None:
    every = ana.bed.objects(tekton_runs.API, "taskruns", ana.ns)
    return next((one for one in every if one["metadata"]["name"].startswith(name)), None)


def test_pods_of_a_run_that_ask_for_more_than_the_task(ana: Attempt) -> None:
    spec = [
        {"pipelineTaskName": "first", "stepSpecs": [{"name": "main", "computeResources": {"requests": {"cpu": "2"}}}]}
    ]
    document = small_run(taskRunSpecs=spec, taskRunTemplate={"podTemplate": {"schedulerName": "default-scheduler"}})
    ana.create(document)
    ana.waits()
    tekton_ends(ana)


# -- JobSet -------------------------------------------------------------------------------------------------------------


def small_set(name: str = "j") -> Object:
    return queued(jobset(job("a", 2), job("b", 1, dependsOn=after("a")), name=name))


def test_a_job_set_that_waits(ana: Attempt) -> None:
    made = ana.create(small_set())
    ana.waits()
    where = f"/apis/{JOB_SETS}/namespaces/{ana.ns}/jobsets/j"
    for change in ({"penstock/queue": None}, {QUEUE: "elsewhere"}, {"penstock/queue": "elsewhere"}):
        ana.refused(where, {"metadata": {"labels": change}})
    first = test_jobset.jobs(ana.bed, ana.ns)["a"]["metadata"]["name"]
    ana.forbidden("PATCH", f"/apis/batch/v1/namespaces/{ana.ns}/jobs/{first}", {"spec": {"parallelism": 2}})
    ana.forbidden("PATCH", f"{where}/status", {"status": {}})
    assert made["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] == 0
    assert not ana.pods()
    ana.let_go()
    test_jobset.reaches(ana.bed, where, "Completed")


def test_a_copy_of_a_queued_job_set(ana: Attempt) -> None:
    """It has our label and not Kueue's, and says how many pods it may run."""
    made = ana.create(small_set())
    labels = {**made["metadata"]["labels"]}
    assert QUEUE not in labels
    copied = {
        **made,
        "metadata": {"name": "copy", "labels": labels, "annotations": made["metadata"].get("annotations", {})},
    }
    copied.pop("status", None)
    for one in copied["spec"]["replicatedJobs"]:
        one["template"]["spec"]["parallelism"] = one["template"]["spec"]["completions"]
    again = ana.create(copied)
    assert [one["template"]["spec"]["parallelism"] for one in again["spec"]["replicatedJobs"]] == [0, 0]
    ana.waits()
    assert not ana.pods()
    ana.let_go()
    for name in ("j", "copy"):
        test_jobset.reaches(ana.bed, f"/apis/{JOB_SETS}/namespaces/{ana.ns}/jobsets/{name}", "Completed")


# -- other people -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["dead", "silent"])
def test_others_are_left_alone_also_while_the_controller_is_down(
    bed: Testbed, controller: Controlled, ana: Attempt, how: str
) -> None:
    """Dead: nobody listens. Silent: connections are taken, and nobody answers."""
    ana.exempt = ["plain", "free"]
    process = controller.process
    assert process is not None
    if how == "dead":
        controller.kill()
    else:
        process.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        plain = flow("plain", [step("first", "small")], needs(fake("small", run_time="1s"), "1"))
        workflow = ana.create(plain)
        pipeline_run = ana.create(run("PipelineRun", "plain", pipeline({"name": "a", "taskSpec": fake_task(cpu="1")})))
        job_set = ana.create(jobset(job("a", 1), job("b", 1, dependsOn=after("a")), name="plain"))
        free = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "free"}, "spec": {"containers": [CONTAINER]}}
        pod = bed.raw("POST", f"/api/v1/namespaces/{ana.ns}/pods", free)
        took = time.monotonic() - began
        assert took < 2, "nobody is asked about them"
        assert workflow["spec"] == plain["spec"] and not workflow["metadata"].get("labels")
        assert "penstock" not in str(pipeline_run) + str(job_set) + str(pod)
        assert not pod["spec"].get("schedulingGates")
        assert argo_runs.until_over(bed, ana.ns, "plain")["status"]["phase"] == "Succeeded"
        assert tekton_runs.condition(tekton_runs.ended(bed, ana.ns, "PipelineRun", "plain"))["status"] == "True"
        test_jobset.reaches(bed, f"/apis/{JOB_SETS}/namespaces/{ana.ns}/jobsets/plain", "Completed")
        assert not ana._queued()
        for one in (one_step(), small_run(), small_set()):
            with pytest.raises(ApiError, match="failed calling webhook"):
                ana.create(one)
    finally:
        if how == "dead":
            controller.start()
        else:
            process.send_signal(signal.SIGCONT)
