"""The four user stories of KEP-74, with workflows of the shapes that it shows, on the real Argo, Tekton and Kueue; and the JobSet that grows and shrinks.

The KEP's workflows ask for nothing, so the queues here count pods.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.controller.objects import holds, name_of, rows
from testbed.api import MERGE
from testbed.instance import Testbed
from tests.cluster import tekton_runs, test_jobset
from tests.cluster.argo_runs import API, RUN_TIME, create, fake, flow, node, pods, step, until, until_over
from tests.cluster.chaos import phase_of
from tests.cluster.controlled import ALL, OWNERS, Controlled, Witness
from tests.cluster.kueue_protocol import KUEUE, Desk
from tests.cluster.tekton_runs import fake_task, left, pipeline, run
from tests.cluster.test_controller_argo import finished, pending, queued, workloads
from tests.cluster.test_jobset import after, job, jobset

Object = dict[str, Any]
GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kueue", "kwok", "argo", "tekton", "jobset")


@pytest.fixture(scope="module")
def controller(bed: Testbed) -> Iterator[Controlled]:
    with Controlled(bed, ALL) as found:
        yield found


@pytest.fixture
def desk(bed: Testbed, controller: Controlled) -> Desk:
    return Desk(bed)


@pytest.fixture(scope="module")
def gpus(bed: Testbed) -> None:
    """The fake nodes have some."""
    for one in bed.objects("v1", "nodes"):
        amounts = {"capacity": {GPU: "8"}, "allocatable": {GPU: "8"}}
        bed.raw("PATCH", f"/api/v1/nodes/{one['metadata']['name']}/status", {"status": amounts}, MERGE)


def pod_counts(desk: Desk) -> dict[str, int]:
    """By stage, what its Workload asked for."""
    return {key: sum(one["count"] for one in each["spec"]["podSets"]) for key, each in workloads(desk).items()}


def asks(template: Object, **amounts: str) -> Object:
    named = {GPU if name == "gpu" else name: amount for name, amount in amounts.items()}
    template["container"]["resources"] = {"requests": named, "limits": {k: v for k, v in named.items() if k == GPU}}
    return template


# -- stories 1 and 2 ----------------------------------------------------------------------------------------------------


def test_story_1_preprocessing_runs_while_no_gpu_is_free(bed: Testbed, desk: Desk, gpus: None) -> None:
    desk.queue("main", resources={"cpu": "4", GPU: "1"})
    container = {"name": "main", "image": "none", "resources": {"requests": {GPU: "1"}, "limits": {GPU: "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    desk.workload("other", podSets=[{"name": "main", "count": 1, "template": template}])
    bed.wait(lambda: holds(desk.get("other"), "Admitted"), "the other one to be admitted")
    prepare = asks(fake("prepare", run_time="1s"), cpu="2")
    train = asks(fake("train", run_time="1s"), cpu="1", gpu="1")
    with Witness(bed, desk.namespace) as witness:
        create(
            bed, desk.namespace, queued(flow("w", [step("prepare", "prepare"), step("train", "train")], prepare, train))
        )
        until(bed, desk.namespace, "w", "prepare", "Succeeded")
        bed.wait(lambda: pending(desk, "main[1]"), "training to wait for a GPU")
        assert holds(desk.get("other"), "Admitted") and len(pods(bed, desk.namespace, "w")) == 1
        desk.finish("other")
        assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"
    witness.check()


def test_story_2_stages_of_equal_shape_keep_one_reservation(bed: Testbed, desk: Desk, gpus: None) -> None:
    """Another workflow waits for the same GPU from the beginning, and does not get it between the stages."""
    desk.queue("main", resources={"cpu": "4", GPU: "1"})
    train = asks(fake("train", run_time="1s"), cpu="1", gpu="1")
    steps = [step(name, "train") for name in ("one", "two", "three")]
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(flow("w", steps, train), unit="reuse"))
        until(bed, desk.namespace, "w", "one", "Running")
        create(bed, desk.namespace, queued(flow("later", [step("one", "train")], train)))
        assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"
        assert until_over(bed, desk.namespace, "later")["status"]["phase"] == "Succeeded"
    first = bed.get(f"/apis/{API}/namespaces/{desk.namespace}/workflows/w")
    (own,) = [one for one in workloads(desk).values() if one["metadata"]["ownerReferences"][0]["name"] == "w"]
    assert holds(own, "Finished") and node(first, "three")["phase"] == "Succeeded"
    later = bed.get(f"/apis/{API}/namespaces/{desk.namespace}/workflows/later")
    assert node(first, "three")["finishedAt"] <= node(later, "one")["startedAt"]
    witness.check()


# -- story 3 ------------------------------------------------------------------------------------------------------------

counted = pytest.mark.parametrize("cpu", ["", "1"])
"""As the KEP has them they ask for nothing: there are no gates, their pods wait, and stages have the names of nodes. With requests they have gates, and
stages have the names of templates."""


def room(desk: Desk, cpu: str, pods: int) -> None:
    desk.queue("main", resources={"cpu" if cpu else "pods": str(pods)})


def message(cpu: str) -> Object:
    return fake("print-message", "{{inputs.parameters.message}}", inputs=("message",), cpu=cpu, run_time="500ms")


def loop(name: str, template: str, *items: str) -> Object:
    arguments = {"parameters": [{"name": "message", "value": "{{item}}"}]}
    given = {"arguments": arguments} if template == "print-message" else {}
    return {"name": name, "template": template, **given, "withItems": list(items)}


def loops(cpu: str, outer: list[Object], *inner: str) -> Object:
    templates = [
        {"name": "loop-example-depth-2", "steps": [[loop("print-message-loop", "print-message", *inner)]]},
        {"name": "loop-example-depth-1", "steps": [outer]},
        message(cpu),
    ]
    spec = {"entrypoint": "loop-example-depth-1", "templates": templates}
    return {"apiVersion": API, "kind": "Workflow", "metadata": {"name": "loops"}, "spec": spec}


def passes(bed: Testbed, desk: Desk, document: Object, most: int) -> None:
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(document))
        name = document["metadata"]["name"]
        found = until_over(bed, desk.namespace, name)
        assert found["status"]["phase"] == "Succeeded", found["status"].get("message")
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
    assert witness.check()["most pods"] <= most


@counted
def test_story_3_a_loop_in_a_loop(bed: Testbed, desk: Desk, cpu: str) -> None:
    """Each call of the inner template is a stage: two stages of two pods."""
    room(desk, cpu, 2)
    outer = [loop("loop-example-depth-2", "loop-example-depth-2", "depth-1-1", "depth-1-2")]
    passes(bed, desk, loops(cpu, outer, "hello world", "goodbye world"), most=2)
    found = pod_counts(desk)
    assert sorted(found.values()) == [2, 2]
    if cpu:
        assert {key.split()[0] for key in found} == {"loop-example-depth-2[0]"}
    else:
        assert set(found) == {f"loops[0].loop-example-depth-2({n}:depth-1-{n + 1})[0]" for n in (0, 1)}


@counted
def test_story_3_a_loop_beside_a_template_with_steps(bed: Testbed, desk: Desk, cpu: str) -> None:
    """The KEP: two stages, that of the workflow itself and that of loop-example-depth-2-2."""
    room(desk, cpu, 2)
    outer = [
        loop("print-message", "print-message", "depth-1-1", "depth-1-2"),
        {"name": "loop-example-depth-2-2", "template": "loop-example-depth-2"},
    ]
    passes(bed, desk, loops(cpu, outer, "depth-2-1", "depth-2-2"), most=2)
    if cpu:
        assert pod_counts(desk) == {"loop-example-depth-1[0]": 2, "loop-example-depth-2[0]": 2}
    else:
        assert pod_counts(desk) == {"loops[0]": 2, "loops[0].loop-example-depth-2-2[0]": 2}


@counted
def test_story_3_the_diamond_has_four_stages(bed: Testbed, desk: Desk, cpu: str) -> None:
    room(desk, cpu, 1)

    def task(name: str, *before: str) -> Object:
        arguments = {"parameters": [{"name": "message", "value": name}]}
        return {"name": name, "dependencies": list(before), "template": "print-message", "arguments": arguments}

    tasks = [task("A"), task("B", "A"), task("C", "A"), task("D", "B", "C")]
    spec = {"entrypoint": "diamond", "templates": [message(cpu), {"name": "diamond", "dag": {"tasks": tasks}}]}
    document = {"apiVersion": API, "kind": "Workflow", "metadata": {"name": "dag-diamond"}, "spec": spec}
    passes(bed, desk, document, most=1)
    assert pod_counts(desk) == {f"{'diamond' if cpu else 'dag-diamond'}.{name}": 1 for name in "ABCD"}


# -- story 4 ------------------------------------------------------------------------------------------------------------


def test_story_4_the_pipeline_with_its_result_passed_on(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", resources={"cpu": "1"})
    word = "." * 3000
    generate = fake_task(results=("RESULT_STRING",), params=("STRING_LENGTH", "STRING_CHAR"), cpu="1")
    generate["params"][1]["default"] = "."
    shown = fake_task(params=("TO_PRINT",), cpu="1")
    generated = left(RESULT_STRING=word)

    def given(**params: str) -> list[Object]:
        return [{"name": name, "value": value} for name, value in params.items()]

    generating = given(STRING_LENGTH="$(params.RESULT_STRING_LENGTH)", STRING_CHAR="$(params.RESULT_STRING_CHAR)")
    tasks = [
        {"name": "generate-result", "params": generating, "taskRef": {"kind": "Task", "name": "generate-result"}},
        {
            "name": "print-result",
            "params": given(TO_PRINT="$(tasks.generate-result.results.RESULT_STRING)"),
            "taskRef": {"kind": "Task", "name": "print-result"},
        },
    ]
    params = [{"name": "RESULT_STRING_LENGTH"}, {"name": "RESULT_STRING_CHAR", "default": "."}]
    annotated = {"name": "generate-result", "annotations": {tekton_runs.RESULT: generated}}
    every = (("Task", annotated, generate), ("Task", {"name": "print-result"}, shown))
    shared = ("Pipeline", {"name": "result-test"}, {"params": params, "tasks": tasks})
    for kind, metadata, spec in (*every, shared):
        where = f"/apis/{tekton_runs.API}/namespaces/{desk.namespace}/{kind.lower()}s"
        bed.raw("POST", where, {"apiVersion": tekton_runs.API, "kind": kind, "metadata": metadata, "spec": spec})
    spec = {"pipelineRef": {"name": "result-test"}, "params": given(RESULT_STRING_LENGTH="3000")}
    with Witness(bed, desk.namespace) as witness:
        tekton_runs.create(bed, desk.namespace, queued(run("PipelineRun", "result-test-run", spec)))
        over = tekton_runs.ended(bed, desk.namespace, "PipelineRun", "result-test-run")
        assert tekton_runs.condition(over)["status"] == "True", tekton_runs.condition(over)
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
    assert witness.check()["most pods"] == 1
    assert pod_counts(desk) == {"generate-result": 1, "print-result": 1}
    printed = tekton_runs.task_runs(bed, desk.namespace)["print-result"]
    assert printed["spec"]["params"] == [{"name": "TO_PRINT", "value": word}]


# -- the place in line ---------------------------------------------------------------------------------------------------

FIRST = {RUN_TIME: "4s"}


def two_stages(engine: str) -> Object:
    """One cpu each; the first takes some seconds."""
    if engine == "argo":
        return flow("w", [step("a", "a"), step("b", "b")], fake("a", cpu="1", run_time="4s"), fake("b", cpu="1"))
    if engine == "tekton":
        tasks = {"a": fake_task(cpu="1", run_time="4s"), "b": fake_task(cpu="1")}
        first, second = ({"name": name, "taskSpec": spec} for name, spec in tasks.items())
        return run("PipelineRun", "w", pipeline(first, {**second, "runAfter": ["a"]}))
    return jobset(job("a", 1, FIRST), job("b", dependsOn=after("a")), name="w")


@pytest.mark.parametrize("engine", ["argo", "tekton", "jobset"])
def test_who_came_later_is_behind_all_stages_of_a_run(bed: Testbed, desk: Desk, engine: str) -> None:
    """Its second stage is not reached when the other one asks; it comes first all the same."""
    desk.queue("main", "1")
    document = queued(two_stages(engine))
    with Witness(bed, desk.namespace) as witness:
        bed.raw("POST", OWNERS[document["kind"]].path(desk.namespace), document)
        bed.wait(lambda: len(workloads(desk)) == 2, "the places of its stages", 60)
        bed.wait(lambda: any(holds(one, "PodsReady") for one in workloads(desk).values()), "its first stage to run", 60)
        desk.next_second()
        create(bed, desk.namespace, queued(flow("late", [step("a", "a")], fake("a", cpu="1"))))
        assert until_over(bed, desk.namespace, "late")["status"]["phase"] == "Succeeded"
        bed.wait(lambda: finished(desk), "all Workloads to be finished", 60)
    owners: list[str] = []
    for _, _, kind, obj in sorted(witness.events, key=lambda one: one[0]):
        name = f"{rows(obj, 'metadata', 'ownerReferences')[0]['name']} {name_of(obj)}" if kind == "Workload" else ""
        if name and holds(obj, "Admitted") and name not in owners:
            owners.append(name)
    assert [name.split()[0] for name in owners] == ["w", "w", "late"]


# -- the workflow as a whole --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["argo", "tekton", "jobset"])
def test_what_a_whole_workflow_declares_is_what_it_holds_and_where(bed: Testbed, desk: Desk, engine: str) -> None:
    """By the annotations of the KEP: more than its peak, and only on nodes that it would not get otherwise."""
    pools = {name: f"{desk.namespace}-{name}" for name in ("plain", "spot")}
    label = f"pool-{desk.namespace}"
    taints = [{"key": "spot", "value": "yes", "effect": "NoSchedule"}]
    for name, flavor in pools.items():
        spec = {"nodeLabels": {label: name}, **({"nodeTaints": taints} if name == "spot" else {})}
        send(bed, "ResourceFlavor", flavor, spec)
    quotas = [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": "4"}]} for flavor in pools.values()]
    groups = [{"coveredResources": ["cpu"], "flavors": quotas}]
    send(bed, "ClusterQueue", desk.namespace, {"namespaceSelector": {}, "resourceGroups": groups})
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "main"}}
    bed.raw("POST", desk.path("localqueues"), queue | {"spec": {"clusterQueue": desk.namespace}})
    (one,) = bed.objects("v1", "nodes", labels="type=kwok")
    bed.raw("PATCH", f"/api/v1/nodes/{one['metadata']['name']}", {"metadata": {"labels": {label: "spot"}}}, MERGE)
    documents = {
        "argo": lambda: flow("w", [step("a", "a")], fake("a", cpu="1")),
        "tekton": lambda: run("PipelineRun", "w", pipeline({"name": "a", "taskSpec": fake_task(cpu="1")})),
        "jobset": lambda: jobset(job("a"), name="w"),
    }
    document = queued(documents[engine](), unit="workflow")
    document["metadata"]["annotations"] |= {
        "kueue.k8s.io/max-resources": '{"cpu": "3"}',
        "kueue.k8s.io/node-selector": json.dumps({label: "spot"}),
        "kueue.k8s.io/toleration": '[{"key": "spot", "operator": "Exists"}]',
    }
    with Witness(bed, desk.namespace) as witness:
        bed.raw("POST", OWNERS[document["kind"]].path(desk.namespace), document)
        bed.wait(lambda: workloads(desk) and finished(desk), "it to end", 90)
    (workload,) = workloads(desk).values()
    (pod_set,) = workload["spec"]["podSets"]
    assert (pod_set["count"], pod_set["template"]["spec"]["nodeSelector"]) == (3, {label: "spot"})
    assert witness.check()["most pods"] == 1 and witness.most_held("cpu") == 3000
    (pod,) = bed.objects("v1", "pods", desk.namespace)
    assert pod["spec"]["nodeSelector"][label] == "spot" and pod["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize("unit", ["stage", "task", "workflow"])
@pytest.mark.parametrize("engine", ["argo", "tekton", "jobset"])
def test_what_asks_for_nothing_needs_no_quota(bed: Testbed, desk: Desk, engine: str, unit: str) -> None:
    """Not even where the queue is full."""
    desk.queue("main", "1")
    desk.workload("other", cpu="1")
    desk.until_running("other")
    free = job("a")
    del free["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]
    documents = {
        "argo": lambda: flow("w", [step("a", "a")], fake("a")),
        "tekton": lambda: run("PipelineRun", "w", pipeline({"name": "a", "taskSpec": fake_task()})),
        "jobset": lambda: jobset(free, name="w"),
    }
    document = queued(documents[engine](), unit=unit)
    where = OWNERS[document["kind"]]
    bed.raw("POST", where.path(desk.namespace), document)
    bed.wait(lambda: phase_of(bed.get(where.path(desk.namespace, "w"))) == "Succeeded", "it to end", 90)
    assert set(workloads(desk)) <= {"other"}


def send(bed: Testbed, kind: str, name: str, spec: Object) -> None:
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}
    bed.raw("POST", f"{KUEUE}/{kind.lower()}s", body)


# -- issue 672 ----------------------------------------------------------------------------------------------------------


def test_a_job_set_holds_the_stage_that_runs(bed: Testbed, desk: Desk) -> None:
    """2 → 6 → 2 in a queue of 6 with 2 free: it begins at once, and never holds more than the stage that runs."""
    desk.queue("main", "6")
    desk.workload("other", count=4, cpu="1")
    bed.wait(lambda: holds(desk.get("other"), "Admitted"), "the other one to be admitted")
    document = queued(
        jobset(
            job("a", 2),
            job("b", 6, {RUN_TIME: "1s"}, dependsOn=after("a")),
            job("c", 2, dependsOn=after("b")),
            name="j",
        )
    )
    with Witness(bed, desk.namespace) as witness:
        where = test_jobset.create(bed, desk.namespace, document)
        bed.wait(lambda: pending(desk, "b"), "the second stage to wait", 60)
        assert holds(workloads(desk)["a"], "Finished") and not test_jobset.pods(bed, desk.namespace, "b")
        desk.finish("other")
        test_jobset.reaches(bed, where, "Completed")
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
    assert witness.check()["most pods"] <= 6
    assert witness.most_held("cpu", without="other") == 6000
    assert pod_counts(desk) == {"a": 2, "b": 6, "c": 2, "other": 4}
