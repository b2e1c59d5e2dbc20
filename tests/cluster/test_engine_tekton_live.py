"""The Tekton engine against the real Tekton, on fake nodes: held, let go, stopped in the middle, and on to the end. Without the core."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.controller.engine import Opening
from penstock.controller.engines.tekton import ENGINE
from testbed.api import MERGE
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster.engine_runs import Driven, held_at_birth
from tests.cluster.support import fresh_namespace
from tests.cluster.tekton_runs import condition, fake_task, left, pipeline, results, run, task_runs

FOREVER = {"run_time": "forever"}


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kwok", "tekton")


@pytest.fixture
def ns(bed: Testbed) -> str:
    found = fresh_namespace(bed)
    held_at_birth(bed, found)
    return found


def asks(task: dict[str, Any], cpu: str = "1") -> dict[str, Any]:
    task["steps"][0]["computeResources"] = {"requests": {"cpu": cpu}}
    return task


def ended(run: Driven) -> str:
    run.bed.wait(lambda: run.view().over, f"{run.name} to end", 90)
    return run.view().over


def two_and_one(**more: Any) -> dict[str, Any]:
    word = {"name": "word", "value": "$(tasks.fast.results.word)"}
    return pipeline(
        {"name": "fast", "taskSpec": asks(fake_task(results=("word",), result=left(word="kept")))},
        {"name": "slow", "taskSpec": asks(fake_task(**FOREVER)), **more},
        {"name": "last", "taskSpec": asks(fake_task(params=("word",))), "params": [word], "runAfter": ["slow"]},
        results=[{"name": "word", "value": "$(tasks.fast.results.word)"}],
        **{"finally": [{"name": "clean", "taskSpec": asks(fake_task())}]},
    )


@pytest.mark.parametrize("like_a_kubelet", [False, True])
def test_a_stage_is_stopped_and_continues(bed: Testbed, ns: str, like_a_kubelet: bool) -> None:
    it = Driven(bed, ENGINE, ns, run("PipelineRun", "two", two_and_one(retries=1)))
    it.reach("fast", "held")
    it.reach("slow", "held")
    assert it.stage("last").state == "ahead"
    assert [(one.key, one.shapes[0].count, dict(one.shapes[0].requests)) for one in it.view().stages] == [
        (name, 1, {"cpu": 1000}) for name in ("fast", "slow", "last")
    ]
    assert it.main()["spec"]["timeouts"] == {"pipeline": "0s"}
    assert it.open("fast") == it.open("slow") == 1
    assert it.release("fast", 1) == ["two-fast"]
    assert it.release("slow", 1) == ["two-slow"]
    running = it.running("slow", 1)
    it.reach("fast", "done")
    fast = task_runs(bed, ns)["fast"]["metadata"]["uid"]
    slow = task_runs(bed, ns)["slow"]["metadata"]["uid"]
    if like_a_kubelet:
        it.keep(running)
    sent = it.stop("slow", between=lambda: it.end_like_a_kubelet(running))
    deleted = {one.name for one in sent if (one.verb, one.resource.kind) == ("delete", "TaskRun")}
    assert deleted == {"two-slow"} and {one.resource.kind for one in sent} == {"TaskRun", "Pod"}
    held = it.reach("slow", "held")
    assert held.finished == (0,) and it.stage("fast").finished == (1,)
    anew = task_runs(bed, ns)["slow"]
    assert anew["metadata"]["uid"] != slow and not anew.get("status", {}).get("retriesStatus")
    it.open("slow")
    it.release("slow", 1, "200ms")
    it.reach("last", "held")
    it.open("last")
    it.release("last", 1)
    assert it.gated("", 1)[0][0].name == "two-clean", "finally is exempt"
    it.release("", 1)
    assert ended(it) == "Succeeded"
    assert task_runs(bed, ns)["fast"]["metadata"]["uid"] == fast, "what was finished did not run again"
    assert results(it.main()) == {"word": "kept"}


def matrix(count: int = 3, **more: Any) -> dict[str, Any]:
    values = {"params": [{"name": "n", "value": [str(number) for number in range(count)]}]}
    task = asks(fake_task(params=("n",), **FOREVER))
    return {"name": "each", "taskSpec": task, "matrix": values, **more}


def test_a_matrix_in_part_stopped_and_to_its_end(bed: Testbed, ns: str) -> None:
    it = Driven(bed, ENGINE, ns, run("PipelineRun", "many", pipeline(matrix())))
    held = it.reach("each", "held")
    assert held.shapes[0].count == 3 and not held.gang
    assert it.open("each", Opening(2, (), {}, ())) == 2
    assert it.open("each", Opening(2, (), {}, ())) == 0, "no more than were admitted"
    first, second = it.gated("each", 2)
    it.release("each", 2)
    it.running("each", 2)
    started = bed.objects("tekton.dev/v1", "taskruns", ns)
    uids = {one["metadata"]["uid"] for one in started}
    since = {one["metadata"]["name"]: one.get("status", {}).get("startTime") for one in started}
    sent = it.stop("each")
    assert {one.resource.kind for one in sent} == {"Pod"} and len(sent) == 2
    assert it.stage("each").state == "open" and len(it.gated("each", 2)) == 2
    assert {one["metadata"]["uid"] for one in bed.objects("tekton.dev/v1", "taskruns", ns)} == uids
    assert sorted(task.name for task, _ in it.gated("each", 2)) == sorted(task.name for task, _ in (first, second))
    again = bed.objects("tekton.dev/v1", "taskruns", ns)
    assert {one["metadata"]["name"]: one.get("status", {}).get("startTime") for one in again} == since, (
        "the clock runs on"
    )
    assert {one["spec"]["timeout"] for one in again} == {"1h0m0s"}
    it.release("each", 2, "200ms")
    bed.wait(lambda: it.stage("each").finished == (2,), "two of three to be finished")
    assert it.open("each", Opening(2, (), {}, ())) == 1
    it.release("each", 1, "200ms")
    assert ended(it) == "Succeeded"
    assert it.stage("each").finished == (3,) and it.stage("each").state == "done"


def test_a_matrix_of_results_is_known_when_it_is_reached(bed: Testbed, ns: str) -> None:
    listed = {"params": [{"name": "n", "value": "$(tasks.list.results.all[*])"}]}
    message = json.dumps([{"key": "all", "value": '["a","b","c","d"]', "type": 1}])
    make = asks(fake_task(result=message))
    make["results"] = [{"name": "all", "type": "array"}]
    tasks = (
        {"name": "list", "taskSpec": make},
        {"name": "each", "taskSpec": asks(fake_task(params=("n",))), "matrix": listed},
    )
    it = Driven(bed, ENGINE, ns, run("PipelineRun", "later", pipeline(*tasks)))
    it.reach("list", "held")
    assert not it.stage("each").known
    it.open("list")
    it.release("list", 1)
    held = it.reach("each", "held")
    assert held.known and held.shapes[0].count == 4
    it.open("each")
    it.release("each", 4)
    assert ended(it) == "Succeeded"


def test_a_try_that_fails_is_not_the_end(bed: Testbed, ns: str) -> None:
    task = {"name": "bad", "taskSpec": asks(fake_task(exit_code="3")), "retries": 1}
    it = Driven(bed, ENGINE, ns, run("PipelineRun", "tries", pipeline(task)))
    it.reach("bad", "held")
    it.open("bad")
    assert it.release("bad", 1) == ["tries-bad"]
    again = it.gated("bad", 1)[0]
    assert again[0].name == "tries-bad" and it.stage("bad").finished == (0,) and it.stage("bad").state == "open"
    it.release("bad", 1)
    assert ended(it) == "Failed"
    assert (it.stage("bad").outcome, it.stage("bad").finished) == ("Failed", (1,))


def test_as_a_whole(bed: Testbed, ns: str) -> None:
    it = Driven(bed, ENGINE, ns, run("PipelineRun", "whole", two_and_one()), "workflow")
    whole = it.reach("(workflow)", "held")
    assert whole.vector and dict(whole.shapes[0].requests) == {"cpu": 2000}
    bed.wait(lambda: condition(it.main()).get("reason") == "PipelineRunPending", "the run to wait")
    assert task_runs(bed, ns) == {}
    it.open("(workflow)")
    bed.wait(lambda: len(task_runs(bed, ns)) == 2, "two TaskRuns")
    bed.wait(lambda: it.open("(workflow)") == 2, "both to be let go")
    it.release("(workflow)", 2)
    it.running("(workflow)", 1)
    it.stop("(workflow)")
    it.reach("(workflow)", "held")
    bed.wait(lambda: it.open("(workflow)") == 1, "the slow one to be let go")
    it.release("(workflow)", 1, "200ms")
    bed.wait(lambda: it.open("(workflow)") == 1, "the last one to be let go")
    assert [dict(one) for one in it.stage("(workflow)").needed] == [{"cpu": 1000}]
    it.release("(workflow)", 1)
    it.release("", 1)
    assert ended(it) == "Succeeded"


def test_by_task(bed: Testbed, ns: str) -> None:
    it = Driven(
        bed,
        ENGINE,
        ns,
        run(
            "PipelineRun",
            "single",
            pipeline(matrix(2), {"name": "after", "taskSpec": asks(fake_task()), "runAfter": ["each"]}),
        ),
        "task",
    )
    it.reach("single-each-1", "held")
    assert it.states() == {"single-each-0": "held", "single-each-1": "held", "single-after": "ahead"}
    for name in ("single-each-0", "single-each-1", "single-after"):
        it.reach(name, "held")
        assert it.open(name) == 1
        assert it.release(name, 1, "200ms") == [name]
    assert ended(it) == "Succeeded"


def test_what_the_user_holds(bed: Testbed, ns: str) -> None:
    spec = {**pipeline({"name": "one", "taskSpec": asks(fake_task())}), "status": "PipelineRunPending"}
    it = Driven(bed, ENGINE, ns, run("PipelineRun", "mine", spec))
    assert it.view().paused and it.states() == {"one": "ahead"} and it.open("one") == 0
    bed.raw("PATCH", it.resource.path(ns, it.name), {"spec": {"status": None}}, "application/merge-patch+json")
    it.reach("one", "held")
    assert not it.view().paused
    it.open("one")
    it.release("one", 1)
    assert ended(it) == "Succeeded"


def test_a_task_run_alone(bed: Testbed, ns: str) -> None:
    document = run("TaskRun", "alone", {"taskSpec": asks(fake_task())}, **{"testbed.penstock/run-time": "forever"})
    it = Driven(bed, ENGINE, ns, document)
    it.reach("alone", "held")
    it.open("alone")
    it.release("alone", 1)
    it.running("alone", 1)
    sent = it.stop("alone")
    assert [one.resource.kind for one in sent] == ["Pod"]
    it.release("alone", 1, "200ms")
    assert ended(it) == "Succeeded"


def test_a_queue_of_its_own(bed: Testbed, ns: str) -> None:
    spec = pipeline({"name": "one", "taskSpec": asks(fake_task())}, {"name": "gpu", "taskSpec": asks(fake_task())})
    spec["taskRunSpecs"] = [{"pipelineTaskName": "gpu", "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}}}]
    it = Driven(bed, ENGINE, ns, run("PipelineRun", "own", spec))
    it.reach("gpu", "held")
    assert {one.key: one.queue for one in it.view().stages} == {"one": "", "gpu": "gpus"}
    labels = {name: one["metadata"]["labels"]["penstock/queue"] for name, one in task_runs(bed, ns).items()}
    assert labels == {"one": "team-a", "gpu": "gpus"}


def test_labels_do_not_make_a_task_exempt(bed: Testbed, ns: str) -> None:
    """taskRunSpecs may set every label. So the work of a task can be called `finally`, and does not get past the queue."""
    clean = {"name": "clean", "taskSpec": asks(fake_task())}
    spec = pipeline({"name": "work", "taskSpec": asks(fake_task())}, **{"finally": [clean]})
    labels = {"tekton.dev/memberOf": "finally", "tekton.dev/pipelineTask": "clean"}
    spec["taskRunSpecs"] = [{"pipelineTaskName": "work", "metadata": {"labels": labels}}]
    it = Driven(bed, ENGINE, ns, run("PipelineRun", "sly", spec))
    bed.wait(lambda: bed.objects("v1", "pods", ns), "a pod")
    seen = it.observe()
    assert [ENGINE.task_of(pod, seen, "stage").stage for pod in seen.pods] == ["work"]
    assert it.stage("work").state == "open"


@contextmanager
def alpha_fields(bed: Testbed) -> Iterator[None]:
    """Pipelines in pipelines are an alpha feature."""
    path = "/api/v1/namespaces/tekton-pipelines/configmaps/feature-flags"

    def flag(value: str) -> None:
        bed.raw("PATCH", path, {"data": {"enable-api-fields": value}}, MERGE)

    flag("alpha")
    probe = run("PipelineRun", "probe", pipeline({"name": "inner", **pipeline({"name": "a", "taskSpec": fake_task()})}))
    where = "/apis/tekton.dev/v1/namespaces/default/pipelineruns"

    def accepted() -> bool:
        try:
            return bool(bed.raw("POST", where, dict(probe), params={"dryRun": "All"}))
        except ApiError:
            return False

    bed.wait(accepted, "Tekton to know the flag")
    try:
        yield
    finally:
        flag("beta")


@pytest.fixture
def alpha(bed: Testbed) -> Iterator[None]:
    with alpha_fields(bed):
        yield


@pytest.mark.usefixtures("alpha")
def test_pipelines_in_pipelines(bed: Testbed, ns: str) -> None:
    inner = pipeline(
        {"name": "train", "taskSpec": asks(fake_task(), "2")},
        **{"finally": [{"name": "tidy", "taskSpec": asks(fake_task())}]},
    )
    last = pipeline({"name": "report", "taskSpec": asks(fake_task())})
    spec = pipeline(
        {"name": "first", "taskSpec": asks(fake_task())},
        {"name": "child", **inner, "runAfter": ["first"]},
        **{"finally": [{"name": "end", **last}]},
    )
    it = Driven(bed, ENGINE, ns, run("PipelineRun", "outer", spec))
    it.reach("first", "held")
    assert it.states() == {"first": "held", "child.train": "ahead"}
    it.open("first")
    it.release("first", 1)
    held = it.reach("child.train", "held")
    assert (held.shapes[0].count, dict(held.shapes[0].requests)) == (1, {"cpu": 2000})
    children = bed.objects("tekton.dev/v1", "pipelineruns", ns)
    assert [ENGINE.queued(one) for one in children if one["metadata"]["name"] == "outer-child"] == [False]
    inner_run = next(one for one in children if one["metadata"]["name"] == "outer-child")
    assert inner_run["spec"]["timeouts"] == {"pipeline": "1h0m0s"}, "it does not inherit that of the outer one"
    it.open("child.train")
    assert it.release("child.train", 1) == ["outer-child-train"]
    assert it.release("", 1) == ["outer-child-tidy"], "finally of the inner pipeline"
    held = bed.wait(
        lambda: [one for one in it.view().stages if one.key.startswith("exempt/")], "the pipeline in finally"
    )
    assert [(one.key, one.state, one.shapes) for one in held] == [("exempt/outer-end-report", "held", ())]
    it.open("exempt/outer-end-report")
    assert it.release("", 1) == ["outer-end-report"]
    assert ended(it) == "Succeeded"


def test_an_affinity_assistant_is_exempt(bed: Testbed, ns: str) -> None:
    task = asks(fake_task())
    task["workspaces"] = [{"name": "data"}]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    spec = pipeline({"name": "one", "taskSpec": task, "workspaces": [{"name": "data"}]}, workspaces=[{"name": "data"}])
    spec["workspaces"] = [{"name": "data", "volumeClaimTemplate": {"spec": claim}}]
    it = Driven(bed, ENGINE, ns, run("PipelineRun", "spaces", spec))
    ((_, pod),) = it.gated("", 1)
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet"
    it.reach("one", "held")
