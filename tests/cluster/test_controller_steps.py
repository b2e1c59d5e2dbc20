"""Steps of KEP-74's ReconcileGenericWorkflow on the real engines and the real Kueue; tests/controller/test_eight_steps.py has all of them on a model.

One document for each engine: a stage of three pods, and a small one after it. Pods run until the test ends them. What is not here is in the other files:
one Workload for a stage, finished, absent, suspended and eviction in test_controller_argo.py, test_controller_tekton.py and test_controller_jobset.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from penstock.controller.coverage import is_active, is_gated
from penstock.controller.objects import annotations_of, holds, name_of, part, rows, uid_of
from penstock.kubernetes.client import Client
from penstock.kubernetes.kubeconfig import connect
from testbed.components.kwok import RUN_TIME
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster import argo_runs, tekton_runs
from tests.cluster.argo_runs import fake, flow, node, step
from tests.cluster.chaos import phase_of, task_of
from tests.cluster.controlled import ALL, OWNERS, Controlled, Witness
from tests.cluster.kueue_protocol import MERGE, Desk
from tests.cluster.tekton_runs import fake_task, pipeline
from tests.cluster.test_controller_argo import finished, is_now, is_told, pending, queued, workloads
from tests.cluster.test_jobset import after, job, jobset

Object = dict[str, Any]
STAGES = {"argo": "main[0]", "tekton": "train", "jobset": "train"}
KEEP = "testbed.penstock/keep"


def argo() -> Object:
    loop = {**step("train", "train")[0], "withItems": ["x", "y", "z"]}
    return flow("w", [[loop], step("last", "last")], fake("train", cpu="1", run_time="forever"), fake("last", cpu="1"))


def tekton() -> Object:
    matrix = {"params": [{"name": "word", "value": ["x", "y", "z"]}]}
    train = {"name": "train", "taskSpec": fake_task(cpu="1", params=("word",), run_time="forever"), "matrix": matrix}
    last = {"name": "last", "taskSpec": fake_task(cpu="1"), "runAfter": ["train"]}
    return tekton_runs.run("PipelineRun", "w", pipeline(train, last))


def a_jobset() -> Object:
    return jobset(job("train", 3, {RUN_TIME: "forever"}), job("last", dependsOn=after("train")), name="w")


DOCUMENTS = {"argo": argo, "tekton": tekton, "jobset": a_jobset}


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kueue", "kwok", "argo", "tekton", "jobset")


@pytest.fixture(scope="module")
def controller(bed: Testbed) -> Iterator[Controlled]:
    with Controlled(bed, ALL) as found:
        yield found


class Run:
    """The document of one engine in a queue of three cpu, and what a user and a controller of pods do to it."""

    def __init__(self, bed: Testbed, controller: Controlled, engine: str) -> None:
        self.bed, self.controller, self.engine, self.stage = bed, controller, engine, STAGES[engine]
        self.desk = Desk(bed)
        self.desk.queue("main", "3")

    def create(self) -> None:
        document = queued(DOCUMENTS[self.engine]())
        self.path = OWNERS[document["kind"]].path(self.desk.namespace, "w")
        self.kind = document["kind"]
        self.bed.raw("POST", OWNERS[self.kind].path(self.desk.namespace), document)

    def pods(self) -> list[Object]:
        """Of the first stage."""
        found = self.bed.objects("v1", "pods", self.desk.namespace)
        return [one for one in found if RUN_TIME in annotations_of(one)]

    def free(self) -> list[str]:
        """Pods that run, or would if a node took them."""
        return [name_of(one) for one in self.pods() if is_active(one) and not is_gated(one)]

    def running(self, count: int, but: Sequence[Object] = ()) -> list[Object]:
        known = {uid_of(one) for one in but}

        def look() -> list[Object] | None:
            found = [one for one in self.pods() if part(one, "status").get("phase") == "Running"]
            found = [one for one in found if uid_of(one) not in known and "deletionTimestamp" not in one["metadata"]]
            return found if len(found) == count else None

        return self.bed.wait(look, f"{count} pods of {self.engine} to run", 60)

    def gated(self) -> list[Object]:
        """All three, once they are there and wait."""

        def look() -> list[Object] | None:
            found = self.pods()
            return found if len(found) == 3 and all(map(is_gated, found)) else None

        return self.bed.wait(look, f"three pods of {self.engine} that wait", 60)

    def patch(self, pod: Object, body: Object) -> None:
        self.bed.raw("PATCH", f"/api/v1/namespaces/{self.desk.namespace}/pods/{name_of(pod)}", body, MERGE)

    def end_pods(self, pods: Sequence[Object]) -> None:
        for one in pods:
            try:
                self.patch(one, {"metadata": {"annotations": {RUN_TIME: "10ms"}}})
            except ApiError as error:
                if error.code != 404:
                    raise

    def workload(self) -> Object:
        return workloads(self.desk)[self.stage]

    def is_now(self, kind: str) -> bool:
        return is_now(self.desk, self.stage, kind)

    def another(self, old: Object) -> Object:
        """The Workload that has come in its place."""

        def look() -> Object | None:
            found = workloads(self.desk).get(self.stage)
            return found if found is not None and uid_of(found) != uid_of(old) else None

        return self.bed.wait(look, "another Workload", 60)

    def let_go(self) -> None:
        """Somebody opens the stage past the queue, with all the rights that it takes."""
        namespace = self.desk.namespace
        with Client(connect(files=[self.controller.kubeconfig])) as client:
            if self.engine == "argo":
                found = argo_runs.until(self.bed, namespace, "w", "penstock-gate-0", "Running")
                gate = node(found, "penstock-gate-0")
                outputs = {"parameters": [{"name": "flavor", "value": ""}, {"name": "node-selector", "value": "{}"}]}
                opened = {"phase": "Succeeded", "finishedAt": gate["startedAt"], "outputs": outputs}
                client.patch(OWNERS["Workflow"], namespace, "w", {"status": {"nodes": {gate["id"]: opened}}})
                return
            plural, change, resource = {
                "tekton": ("taskruns", {"spec": {"status": None}}, OWNERS["TaskRun"]),
                "jobset": ("jobs", {"spec": {"parallelism": 3}}, OWNERS["Job"]),
            }[self.engine]
            wanted = 3 if plural == "taskruns" else 1

            def made() -> list[Object] | None:
                found = self.bed.objects(resource.api, plural, namespace)
                return found if len(found) == wanted else None

            for one in self.bed.wait(made, f"its {plural}", 60):
                client.patch(resource, namespace, name_of(one), change)

    def ends_well(self, witness: Witness) -> None:
        """Its pods are ended: then it succeeds, every task ran to its end once, nothing is held, and nothing ran without quota."""

        def over() -> bool:
            self.end_pods([one for one in self.pods() if annotations_of(one)[RUN_TIME] == "forever"])
            return phase_of(self.bed.get(self.path) | {"kind": self.kind}) in argo_runs.OVER

        self.bed.wait(over, f"the {self.kind} to end", 90)
        found = self.bed.get(self.path) | {"kind": self.kind}
        assert phase_of(found) == "Succeeded", found["status"]
        self.bed.wait(lambda: finished(self.desk), "all Workloads to be finished", 60)
        self.desk.until_used("0")
        ended: dict[str, set[str]] = {}
        for _, _, kind, obj in witness.events:
            if kind == "Pod" and part(obj, "status").get("phase") == "Succeeded":
                ended.setdefault(task_of(obj)[1], set()).add(uid_of(obj))
        assert len(ended) == 4 and all(len(uids) == 1 for uids in ended.values()), ended
        witness.check()


@pytest.fixture(params=list(STAGES))
def run(request: pytest.FixtureRequest, bed: Testbed, controller: Controlled) -> Run:
    return Run(bed, controller, request.param)


@pytest.fixture
def witness(bed: Testbed, run: Run) -> Iterator[Witness]:
    with Witness(bed, run.desk.namespace) as found:
        yield found


def busy(run: Run) -> None:
    """Another one has the whole queue, and this one waits at its first stage."""
    run.desk.workload("other", count=3, cpu="1")
    run.bed.wait(lambda: holds(run.desk.get("other"), "Admitted"), "the other one to be admitted")
    run.create()
    run.bed.wait(lambda: pending(run.desk, run.stage), "it to wait", 60)


def test_1_a_running_stage_whose_workload_is_deleted_by_hand_is_stopped(run: Run, witness: Witness) -> None:
    """And goes on under another one."""
    run.create()
    before = run.running(3)
    old = run.workload()
    run.desk.send("DELETE", run.desk.path("workloads", name_of(old)), None)
    run.another(old)
    run.running(3, but=before)
    is_told(run.desk, run.kind, "w", "Stopped")
    # When it was deleted they ran without quota, of course.
    known = {uid_of(one) for one in before}
    witness.events = [one for one in witness.events if uid_of(one[3]) not in known]
    run.ends_well(witness)


def test_1_1_a_workload_under_deletion_stops_its_stage_and_is_not_used(run: Run, witness: Witness) -> None:
    """A finalizer keeps it: nothing of the stage runs until it is gone."""
    run.create()
    before = run.running(3)
    old = run.workload()
    where = run.desk.path("workloads", name_of(old))
    kept = [*part(old, "metadata").get("finalizers", ()), KEEP]
    run.desk.send("PATCH", where, {"metadata": {"finalizers": kept}}, MERGE)
    run.desk.send("DELETE", where, None)
    run.bed.wait(lambda: not run.free(), "its pods to stop", 60)
    assert run.desk.get(name_of(old))["metadata"]["deletionTimestamp"]
    at_first = run.desk.get(name_of(old))["metadata"]["resourceVersion"]
    run.desk.send("PATCH", where, {"metadata": {"finalizers": None}}, MERGE)
    run.another(old)
    run.running(3, but=before)
    late = [
        version
        for version, what, kind, pod in witness.events
        if kind == "Pod" and what == "ADDED" and uid_of(pod) not in map(uid_of, before) and not is_gated(pod)
    ]
    assert min(late, default=int(at_first)) >= int(at_first), "a pod was let go on a Workload that was being deleted"
    run.ends_well(witness)


def test_4_what_is_over_is_given_back(run: Run, witness: Witness) -> None:
    run.create()
    pods = run.running(3)
    run.end_pods(pods[:1])

    def given() -> bool:
        return [one["count"] for one in rows(run.workload(), "status", "reclaimablePods")] == [1]

    run.bed.wait(given, "one to be given back", 60)
    run.desk.until_used("2")
    is_told(run.desk, run.kind, "w", "Admitted", "Released")
    run.ends_well(witness)


def test_5_pods_ready_is_said_when_all_run_and_not_before(run: Run, witness: Witness) -> None:
    """One of the pods may only go where no node is, at first."""
    busy(run)
    run.let_go()
    label = f"place-{run.desk.namespace}"
    slow = run.gated()[0]
    run.patch(slow, {"spec": {"nodeSelector": {label: "here"}}})
    run.desk.finish("other")
    run.running(2)
    run.bed.wait(lambda: len(run.free()) == 3, "all of them to be let go", 60)
    run.bed.wait(lambda: run.controller.figures()["penstock_queue_depth"] == 0, "the controller to have seen it")
    assert not run.is_now("PodsReady")
    (fake_node,) = run.bed.objects("v1", "nodes", labels="type=kwok")
    run.bed.raw("PATCH", f"/api/v1/nodes/{name_of(fake_node)}", {"metadata": {"labels": {label: "here"}}}, MERGE)
    run.running(3)
    run.bed.wait(lambda: run.is_now("PodsReady"), "it to be said", 60)
    run.ends_well(witness)
    assert _ready_before_all_ran(witness, run.stage) is None


def _ready_before_all_ran(witness: Witness, stage: str) -> str | None:
    """In the order of the API server."""
    ran: set[str] = set()
    for _, _, kind, obj in sorted(witness.events, key=lambda one: one[0]):
        if kind == "Pod" and RUN_TIME in annotations_of(obj) and part(obj, "status").get("phase") == "Running":
            ran.add(uid_of(obj))
        of_stage = kind == "Workload" and annotations_of(obj).get("penstock/stage") == stage
        if of_stage and holds(obj, "PodsReady") and len(ran) < 3:
            return f"PodsReady when {len(ran)} ran"
    return None


def test_8_a_stage_that_somebody_let_go_has_no_pod_that_runs(run: Run, witness: Witness) -> None:
    """And when it is admitted it is simply let go."""
    busy(run)
    run.let_go()
    pods = run.gated()
    assert not run.is_now("QuotaReserved") and not run.free()
    run.desk.finish("other")
    assert {uid_of(one) for one in run.running(3)} == {uid_of(one) for one in pods}
    run.ends_well(witness)
