"""PipelineRuns behind the controller, on the real Tekton and the real Kueue: one label, and each task waits for its own quota."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.controller.objects import holds
from testbed.instance import Testbed
from tests.cluster import tekton_runs
from tests.cluster.controlled import ALL, Controlled, Witness
from tests.cluster.kueue_protocol import Desk
from tests.cluster.tekton_runs import create, ended, fake_task, left, pipeline, run, task_runs
from tests.cluster.test_controller_argo import QUEUE, finished, is_now, is_told, pending, queued, workloads
from tests.cluster.test_engine_tekton_live import alpha_fields

Object = dict[str, Any]


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


def succeeds(bed: Testbed, desk: Desk) -> Object:
    found = ended(bed, desk.namespace, "PipelineRun", "p")
    assert tekton_runs.condition(found)["status"] == "True", tekton_runs.condition(found)
    bed.wait(lambda: finished(desk), "all Workloads to be finished")
    return found


def test_each_task_waits_for_its_own_quota(bed: Testbed, desk: Desk) -> None:
    """2 + 2 cpu in a queue of 2; what comes after the first reads its result; `finally` never waits."""
    desk.queue("main", "2")
    word = {"name": "word", "value": "$(tasks.first.results.word)"}
    spec = pipeline(
        {"name": "first", "taskSpec": fake_task(cpu="2", results=("word",), result=left(word="kept"))},
        {"name": "second", "taskSpec": fake_task(cpu="2", params=("word",)), "params": [word]},
        **{"finally": [{"name": "clean", "taskSpec": fake_task(cpu="8")}]},
    )
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(run("PipelineRun", "p", spec)))
        succeeds(bed, desk)
    assert set(workloads(desk)) == {"first", "second"}
    assert task_runs(bed, desk.namespace)["second"]["spec"]["params"] == [{"name": "word", "value": "kept"}]
    witness.check(exempt=["clean"])


def test_a_matrix_is_admitted_in_part(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "3")
    desk.workload("other", count=1, cpu="1")
    bed.wait(lambda: holds(desk.get("other"), "Admitted"), "the other one to be admitted")
    matrix = {"params": [{"name": "word", "value": ["a", "b", "c"]}]}
    task = {"name": "each", "taskSpec": fake_task(cpu="1", params=("word",), run_time="2s"), "matrix": matrix}
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(run("PipelineRun", "p", pipeline(task))))
        bed.wait(lambda: is_now(desk, "each", "Admitted"), "a part to be admitted", 60)
        found = ended(bed, desk.namespace, "PipelineRun", "p")
        assert tekton_runs.condition(found)["status"] == "True", tekton_runs.condition(found)
    assert witness.check()["most pods"] == 2


@pytest.mark.parametrize("retries", [0, 1])
def test_an_evicted_stage_goes_back_in_line_and_continues(bed: Testbed, desk: Desk, retries: int) -> None:
    """What is finished is not run again, and no try is used up."""
    desk.queue("main", "2", preemption={"withinClusterQueue": "LowerPriority"})
    spec = pipeline(
        {"name": "fast", "taskSpec": fake_task(cpu="1", run_time="500ms")},
        {"name": "slow", "taskSpec": fake_task(cpu="1", run_time="6s"), "retries": retries},
    )
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(run("PipelineRun", "p", spec)))
        bed.wait(lambda: is_now(desk, "fast", "Finished"), "the fast one to end", 60)
        bed.wait(lambda: is_now(desk, "slow", "PodsReady"), "the slow one to run", 60)
        before = task_runs(bed, desk.namespace)
        desk.workload("urgent", count=2, cpu="1", priority=100)
        bed.wait(lambda: holds(desk.get("urgent"), "Admitted"), "the urgent one to be admitted", 60)
        assert pending(desk, "slow") or not is_now(desk, "slow", "Admitted")
        desk.finish("urgent")
        succeeds(bed, desk)
    after = task_runs(bed, desk.namespace)
    assert after["fast"]["metadata"]["uid"] == before["fast"]["metadata"]["uid"]
    assert not after["slow"]["status"].get("retriesStatus")
    is_told(desk, "PipelineRun", "p", "Queued", "Admitted", "Evicted")
    witness.check()


def test_a_run_that_its_user_holds_stays_held(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "2")
    spec = pipeline({"name": "first", "taskSpec": fake_task(cpu="1")})
    create(bed, desk.namespace, queued(run("PipelineRun", "p", {**spec, "status": "PipelineRunPending"})))
    create(bed, desk.namespace, queued(run("PipelineRun", "other", spec)))
    ended(bed, desk.namespace, "PipelineRun", "other")
    assert bed.get(tekton_runs.path(desk.namespace, "PipelineRun", "p"))["spec"]["status"] == "PipelineRunPending"
    tekton_runs.let_go(bed, desk.namespace, "PipelineRun", "p")
    found = ended(bed, desk.namespace, "PipelineRun", "p")
    assert tekton_runs.condition(found)["status"] == "True", tekton_runs.condition(found)


def in_order(cpu: str = "1") -> Object:
    """One TaskRun after the other, three times."""
    tasks: list[Object] = []
    for name in ("a", "b", "c"):
        before = {"runAfter": [tasks[-1]["name"]]} if tasks else {}
        tasks.append({"name": name, "taskSpec": fake_task(cpu=cpu), **before})
    return run("PipelineRun", "p", pipeline(*tasks))


@pytest.mark.parametrize(("unit", "count"), [("stage", 3), ("task", 3), ("reuse", 1), ("workflow", 1)])
def test_by_each_unit(bed: Testbed, desk: Desk, unit: str, count: int) -> None:
    desk.queue("main", "1")
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(in_order(), unit=unit))
        succeeds(bed, desk)
    assert len(desk.read(desk.path("workloads"))["items"]) == count
    assert witness.check()["most pods"] == 1 and witness.most_held("cpu") == 1000


@pytest.mark.parametrize(("unit", "count", "most"), [("stage", 1, 3), ("task", 3, 3), ("workflow", 1, 3)])
def test_a_matrix_by_each_unit(bed: Testbed, desk: Desk, unit: str, count: int, most: int) -> None:
    desk.queue("main", "3")
    matrix = {"params": [{"name": "word", "value": ["a", "b", "c"]}]}
    task = {"name": "each", "taskSpec": fake_task(cpu="1", params=("word",), run_time="1s"), "matrix": matrix}
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(run("PipelineRun", "p", pipeline(task)), unit=unit))
        succeeds(bed, desk)
    assert len(desk.read(desk.path("workloads"))["items"]) == count
    assert witness.check()["most pods"] == most and witness.most_held("cpu") == 3000


def test_a_task_waits_in_the_queue_that_it_names(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "1")
    desk.queue("gpus", "1")
    document = in_order()
    named = {"pipelineTaskName": "b", "metadata": {"labels": {QUEUE: "gpus"}}}
    document["spec"]["taskRunSpecs"] = [named]
    create(bed, desk.namespace, queued(document))
    succeeds(bed, desk)
    found = {key: one["spec"]["queueName"] for key, one in workloads(desk).items()}
    assert found == {"a": "main", "b": "gpus", "c": "main"}


def test_a_task_run_alone_waits(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "1")
    desk.workload("other", cpu="1")
    bed.wait(lambda: holds(desk.get("other"), "Admitted"), "the other one to be admitted")
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(run("TaskRun", "t", {"taskSpec": fake_task(cpu="1")})))
        bed.wait(lambda: pending(desk, "t"), "it to wait", 60)
        assert not tekton_runs.pods(bed, desk.namespace)
        desk.finish("other")
        found = ended(bed, desk.namespace, "TaskRun", "t")
        assert tekton_runs.condition(found)["status"] == "True", tekton_runs.condition(found)
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
    assert witness.check()["most pods"] == 1


def test_a_pipeline_in_a_pipeline_waits_task_by_task(bed: Testbed, desk: Desk) -> None:
    """1 + 2 cpu in a queue of 2; `finally` of either never waits, also if it is a pipeline."""
    desk.queue("main", "2")
    tidy = {"name": "tidy", "taskSpec": fake_task(cpu="8")}
    inner = pipeline({"name": "train", "taskSpec": fake_task(cpu="2")}, **{"finally": [tidy]})
    last = pipeline({"name": "report", "taskSpec": fake_task(cpu="8")})
    spec = pipeline(
        {"name": "first", "taskSpec": fake_task(cpu="1")},
        {"name": "child", **inner, "runAfter": ["first"]},
        **{"finally": [{"name": "end", **last}]},
    )
    with alpha_fields(bed), Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(run("PipelineRun", "p", spec)))
        succeeds(bed, desk)
    assert set(workloads(desk)) == {"first", "child.train"}
    assert witness.most_held("cpu") == 2000
    witness.check(exempt=["tidy", "report"])
