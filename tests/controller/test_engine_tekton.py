"""What the Tekton engine makes of the objects that Tekton writes. Against the real Tekton: tests/cluster/test_engine_tekton_live.py."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.controller.core import Seen, reconcile
from penstock.controller.engine import Opening, Task, Unit
from penstock.controller.engines.tekton import ENGINE
from penstock.controller.engines.tekton.runs import child_name, child_names
from penstock.controller.names import QUEUED
from penstock.controller.objects import Object
from penstock.errors import DocumentError
from penstock.formats.documents import Document
from penstock.formats.gates.marks import take_back
from tests.controller.engine_objects import NS, QUEUE_LABEL, Shelf, admitted, child, created, observed, pod

ALL = Opening(None, (), {}, ())


def task(cpu: str = "1") -> dict[str, Any]:
    return {"steps": [{"name": "main", "image": "x", "computeResources": {"requests": {"cpu": cpu}}}]}


def pipeline_run(
    *tasks: Mapping[str, Any], unit: Unit = "stage", status: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """As it is stored after adjust; with a status as if Tekton had resolved the pipeline."""
    finals = spec.pop("finals", [])
    whole = {"pipelineSpec": {"tasks": list(tasks), "finally": finals}, **spec}
    document = {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"name": "run", "namespace": NS, "labels": QUEUE_LABEL},
        "spec": whole,
    }
    found = created(ENGINE.adjust(document, unit, Shelf()).object)
    if status is not None:
        found["status"] = {"pipelineSpec": whole["pipelineSpec"], **status}
    return found


def task_run(
    name: str,
    owner: Object,
    *,
    pending: bool = True,
    end: str = "",
    spec: Mapping[str, Any] | None = None,
    **status: Any,
) -> dict[str, Any]:
    body: dict[str, Any] = {"taskSpec": task(), **(spec or {})}
    if pending:
        body["status"] = "TaskRunPending"
    conditions = [{"type": "Succeeded", "status": end or "Unknown", "reason": "Running"}]
    return child("TaskRun", name, owner, spec=body, status={"conditions": conditions, **status})


def refs(**tasks: list[str]) -> dict[str, Any]:
    found = [
        {"kind": "TaskRun", "name": one, "pipelineTaskName": name} for name, names in tasks.items() for one in names
    ]
    return {"childReferences": found}


A = {"name": "a", "taskSpec": task()}
B = {"name": "b", "taskSpec": task("2"), "runAfter": ["a"]}
EACH = {"name": "each", "taskSpec": task(), "matrix": {"params": [{"name": "n", "value": ["x", "y", "z"]}]}}


def states(seen: Any, unit: Unit = "stage") -> dict[str, str]:
    return {one.key: one.state for one in ENGINE.view(seen, unit).stages}


# -- a new run ----------------------------------------------------------------------------------------------------------


def test_a_run_is_made_ready() -> None:
    own = [{"pipelineTaskName": "a", "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpus", "mine": "x"}}}]
    found = pipeline_run(A, B, taskRunSpecs=own)
    assert found["metadata"]["labels"] == {**QUEUE_LABEL, QUEUED: "team-a"}, "Kueue's label stays on the run"
    assert found["spec"]["timeouts"] == {"pipeline": "0"}
    assert found["spec"]["taskRunSpecs"][0]["metadata"]["labels"] == {QUEUED: "gpus", "mine": "x"}
    assert {one.key: one.queue for one in ENGINE.view(observed(found), "stage").stages} == {"a": "gpus", "b": ""}
    declared = json.loads(found["metadata"]["annotations"]["penstock/gate-tasks"])
    assert [(one["task"], one["resources"]) for one in declared] == [("a", {"cpu": "1"}), ("b", {"cpu": "2"})]


def test_what_was_made_ready_can_be_taken_back_and_made_ready_again() -> None:
    first = pipeline_run(A, unit="workflow")
    again = ENGINE.adjust(first, "stage", Shelf()).object
    assert (
        "status" not in again["spec"]
        and json.loads(again["metadata"]["annotations"]["penstock/gate"])["unit"] == "stage"
    )
    plain = take_back(Document(first))
    assert (
        plain["spec"] == {"pipelineSpec": {"tasks": [A], "finally": []}} and plain["metadata"]["labels"] == QUEUE_LABEL
    )


def test_timeouts_of_the_user_stay_and_are_warned_of() -> None:
    document = {
        "kind": "PipelineRun",
        "metadata": {"name": "r", "labels": QUEUE_LABEL},
        "spec": {"pipelineSpec": {"tasks": [A]}, "timeouts": {"pipeline": "2h"}},
    }
    found = ENGINE.adjust(document, "stage", Shelf())
    assert found.object["spec"]["timeouts"] == {"pipeline": "2h"} and "counts against" in found.warnings[0]


@pytest.mark.parametrize("unit", ["stage", "workflow"])
def test_a_pending_of_the_user_stays_the_users(unit: Unit) -> None:
    document = {
        "kind": "PipelineRun",
        "metadata": {"name": "run", "namespace": NS, "labels": QUEUE_LABEL},
        "spec": {"pipelineSpec": {"tasks": [A]}, "status": "PipelineRunPending"},
    }
    run = created(ENGINE.adjust(document, unit, Shelf()).object)
    view = ENGINE.view(observed(run), unit)
    assert view.paused and run["spec"]["status"] == "PipelineRunPending"
    assert ENGINE.open(observed(run), unit, view.stages[0], ALL) == ()


def test_a_whole_run_without_a_bound_is_refused() -> None:
    many = {**EACH, "matrix": {"params": [{"name": "n", "value": "$(tasks.a.results.all[*])"}]}}
    with pytest.raises(DocumentError) as error:
        pipeline_run(A, many, unit="workflow")
    assert error.value.problems[0].code == "P863"


def test_what_a_run_of_ours_has_made_is_no_run_of_its_own() -> None:
    run = pipeline_run(A)
    assert ENGINE.queued(run)
    assert not ENGINE.queued(task_run("run-a", run))
    assert not ENGINE.queued({**run, "spec": {**run["spec"], "managedBy": "somebody/else"}})


# -- stages -------------------------------------------------------------------------------------------------------------


def test_the_life_of_a_stage() -> None:
    run = pipeline_run(A, B, status={})
    assert states(observed(run)) == {"a": "ahead", "b": "ahead"}
    held = task_run("run-a", run)
    assert states(observed(run, held)) == {"a": "held", "b": "ahead"}
    going = task_run("run-a", run, pending=False)
    assert states(observed(run, going)) == {"a": "open", "b": "ahead"}
    done = task_run("run-a", run, pending=False, end="True")
    stages = ENGINE.view(observed(run, done, task_run("run-b", run)), "stage").stages
    assert [(one.state, one.finished, one.outcome) for one in stages] == [
        ("done", (1,), "Succeeded"),
        ("held", (0,), ""),
    ]
    assert [dict(one.shapes[0].requests) for one in stages] == [{"cpu": 1000}, {"cpu": 1000}], "as the TaskRun says"


def test_a_task_run_that_was_deleted_is_made_anew() -> None:
    run = pipeline_run(A, status=refs(a=["run-a"]))
    assert states(observed(run)) == {"a": "open"}
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    leaving = child("TaskRun", "run-a", run, spec={"taskSpec": task(), "status": "TaskRunPending"}, metadata=gone)
    assert states(observed(run, leaving)) == {"a": "open"}
    assert ENGINE.stop(observed(run, leaving), "stage", "a", ()) == []


def test_skipped_tasks_and_those_after_a_failure_are_over() -> None:
    run = pipeline_run(A, B, status={"skippedTasks": [{"name": "a", "reason": "When Expressions evaluated to false"}]})
    assert states(observed(run)) == {"a": "done", "b": "ahead"}
    run = pipeline_run(
        A, B, finals=[{"name": "clean", "taskSpec": task()}], status={"finallyStartTime": "2026-01-01T00:00:00Z"}
    )
    assert states(observed(run)) == {"a": "done", "b": "done"}
    run = pipeline_run(A, status={"conditions": [{"type": "Succeeded", "status": "False", "reason": "Failed"}]})
    assert ENGINE.view(observed(run), "stage").over == "Failed"


def test_a_try_that_fails_is_not_the_end_while_others_follow() -> None:
    run = pipeline_run(A, status={})
    first = task_run("run-a", run, pending=False, end="False", spec={"retries": 1})
    assert states(observed(run, first)) == {"a": "open"}
    last = task_run("run-a", run, pending=False, end="False", spec={"retries": 1}, retriesStatus=[{}])
    assert [(one.state, one.outcome) for one in ENGINE.view(observed(run, last), "stage").stages] == [
        ("done", "Failed")
    ]
    cancelled = task_run("run-a", run, pending=False, end="False", spec={"retries": 1, "status": "TaskRunCancelled"})
    assert states(observed(run, cancelled)) == {"a": "done"}


def test_a_matrix_is_held_when_all_of_it_is_there() -> None:
    names = ["run-each-0", "run-each-1", "run-each-2"]
    many = {**EACH, "matrix": {"params": [{"name": "n", "value": "$(tasks.a.results.all[*])"}]}}
    run = pipeline_run(A, many, status={})
    two = [task_run(name, run) for name in names[:2]]
    (stage,) = [one for one in ENGINE.view(observed(run, *two), "stage").stages if one.key == "each"]
    assert (stage.state, stage.known) == ("ahead", False), "nobody has said how many there are"
    run = pipeline_run(A, many, status=refs(each=names))
    assert states(observed(run, *two))["each"] == "ahead", "one is named and not seen yet"
    (stage,) = [
        one for one in ENGINE.view(observed(run, *two, task_run(names[2], run)), "stage").stages if one.key == "each"
    ]
    assert (stage.state, stage.known, stage.shapes[0].count, stage.gang) == ("held", True, 3, False)


def test_unknown_tasks_are_said_to_be_unknown() -> None:
    run = pipeline_run({"name": "far", "taskRef": {"resolver": "git"}}, {"name": "near", "taskRef": {"name": "shared"}})
    shelf = Shelf({"kind": "Task", "metadata": {"name": "shared"}, "spec": task("3")})
    stages = ENGINE.view(observed(run, shelf=shelf), "stage").stages
    assert [(one.key, one.known, [dict(each.requests) for each in one.shapes]) for one in stages] == [
        ("far", False, [{}]),
        ("near", True, [{"cpu": 3000}]),
    ]


def test_custom_runs_are_not_queued() -> None:
    custom = {"name": "custom", "taskRef": {"apiVersion": "example.dev/v1", "kind": "Approval"}}
    assert states(observed(pipeline_run(A, custom))) == {"a": "ahead"}


def test_where_the_pod_may_run_is_part_of_the_shape() -> None:
    template = {"nodeSelector": {"pool": "gpu"}, "runtimeClassName": "gvisor", "affinity": {"nodeAffinity": {}}}
    (stage,) = ENGINE.view(observed(pipeline_run(A, taskRunTemplate={"podTemplate": template})), "stage").stages
    (shape,) = stage.shapes
    assert (shape.node_selector, shape.runtime_class, shape.affinity) == (
        {"pool": "gpu"},
        "gvisor",
        {"nodeAffinity": {}},
    )


# -- pods ---------------------------------------------------------------------------------------------------------------

CLEAN = {"name": "clean", "taskSpec": task()}


def test_finally_is_exempt_once_it_has_begun() -> None:
    before = pipeline_run(A, finals=[CLEAN], status={})
    begun = pipeline_run(A, finals=[CLEAN], status={"finallyStartTime": "2026-01-01T00:00:00Z"})
    for run, stage in ((before, "taskrun/run-clean"), (begun, "")):
        clean = task_run("run-clean", run, pending=False)
        one = pod("run-clean-pod", clean)
        assert ENGINE.task_of(one, observed(run, clean, one), "stage").stage == stage


def test_nothing_is_queued_at_once_for_what_may_be_finally() -> None:
    """The TaskRun is seen before its run tells that `finally` has begun."""
    before = pipeline_run(A, finals=[CLEAN], status={})
    found = ENGINE.view(observed(before, task_run("run-clean", before, pending=False)), "stage").stages
    assert [(one.state, one.known) for one in found if one.key == "taskrun/run-clean"] == [("open", False)]


@pytest.mark.parametrize("unit", ["stage", "workflow", "task"])
def test_labels_do_not_make_a_pod_exempt(unit: Unit) -> None:
    run = pipeline_run(
        A, finals=[CLEAN], status={"finallyStartTime": "2026-01-01T00:00:00Z", **refs(clean=["run-a"])}, unit=unit
    )
    sly = task_run("run-a", run, pending=False)
    sly["metadata"]["labels"] |= {"tekton.dev/memberOf": "finally", "tekton.dev/pipelineTask": "clean"}
    one = pod("run-a-pod", sly)
    expected = {"stage": "a", "workflow": "(workflow)", "task": "run-a"}[unit]
    assert ENGINE.task_of(one, observed(run, sly, one), unit) == Task(expected, "run-a")


def test_what_never_waits_and_was_held_at_birth_asks_for_nothing() -> None:
    run = pipeline_run(A, finals=[CLEAN], status={"finallyStartTime": "2026-01-01T00:00:00Z"})
    clean = task_run("run-clean", run)
    stage = ENGINE.view(observed(run, clean), "stage").stages[0]
    assert (stage.key, stage.state, stage.shapes, stage.known) == ("exempt/run-clean", "held", (), True)
    (write,) = ENGINE.open(observed(run, clean), "stage", stage, ALL)
    assert write.name == "run-clean"


def test_a_task_run_that_no_pipeline_has_is_a_stage_of_its_own() -> None:
    run = pipeline_run(A, status={})
    stray = task_run("forged", run, pending=False)
    one = pod("forged-pod", stray, gated=True)
    seen = observed(run, stray, one)
    assert states(seen) == {"a": "ahead", "taskrun/forged": "open"}
    assert ENGINE.task_of(one, seen, "stage").stage == "taskrun/forged"


# -- letting go and stopping --------------------------------------------------------------------------------------------


def test_only_as_many_are_let_go_as_are_admitted() -> None:
    names = [f"run-each-{number}" for number in range(3)]
    run = pipeline_run(EACH, status=refs(each=names))
    first, second, third = (task_run(name, run) for name in names)
    seen = observed(run, first, second, third)
    (stage,) = ENGINE.view(seen, "stage").stages
    assert [one.name for one in ENGINE.open(seen, "stage", stage, Opening(2, (), {}, ()))] == names[:2]
    going = task_run(names[0], run, pending=False)
    seen = observed(run, going, second, third)
    assert [one.name for one in ENGINE.open(seen, "stage", stage, Opening(2, (), {}, ()))] == [names[1]]
    assert [one.name for one in ENGINE.open(seen, "stage", stage, ALL)] == names[1:]
    (write,) = ENGINE.open(seen, "stage", stage, Opening(2, (), {}, ()))
    assert write.body == {"metadata": {"resourceVersion": "7"}, "spec": {"status": None}}


def test_a_task_is_stopped_by_its_task_run_and_a_matrix_by_its_pods() -> None:
    run = pipeline_run(A, EACH, status=refs(a=["run-a"], each=["run-each-0", "run-each-1"]))
    a, done, going = (
        task_run("run-a", run, pending=False),
        task_run("run-each-0", run, pending=False, end="True"),
        task_run("run-each-1", run, pending=False),
    )
    pods = [pod("a-pod", a), pod("0-pod", done, phase="Succeeded"), pod("1-pod", going)]
    seen = observed(run, a, done, going, *pods)
    mark, one, end = ENGINE.stop(seen, "stage", "a", ()) or ()
    assert (mark.verb, mark.resource.kind, mark.name) == ("patch", "Pod", "a-pod")
    assert mark.body["metadata"]["resourceVersion"] == "7", "a pod that has ended meanwhile counts"
    assert (one.resource.kind, one.name) == ("TaskRun", "run-a")
    assert one.body == {
        "propagationPolicy": "Foreground",
        "preconditions": {"uid": "uid-run-a", "resourceVersion": "7"},
    }
    assert (end.verb, end.name) == ("delete", "a-pod"), "after its TaskRun, whose end it would be"
    (one,) = ENGINE.stop(seen, "stage", "each", ()) or ()
    assert (one.resource.kind, one.name, one.body["gracePeriodSeconds"]) == ("Pod", "1-pod", 0)
    assert one.body["preconditions"] == {"uid": "uid-1-pod", "resourceVersion": "7"}
    assert ENGINE.stop(seen, "stage", "each", ["run-each-0"]) is None, "only the tasks that are named"


def test_pods_that_wait_need_no_stop() -> None:
    run = pipeline_run(A, status={})
    a = task_run("run-a", run, pending=False)
    seen = observed(run, a, pod("a-pod", a, gated=True))
    assert ENGINE.stop(seen, "stage", "a", ()) is None
    assert states(seen) == {"a": "open"}, "its pod waits: let go, and not covered"


def test_a_status_that_lies_does_not_keep_a_pod_running() -> None:
    run = pipeline_run(A, status={})
    lying = task_run("run-a", run, pending=False, end="True")
    (one,) = ENGINE.stop(observed(run, lying, pod("a-pod", lying)), "stage", "a", ()) or ()
    assert (one.resource.kind, one.name) == ("Pod", "a-pod")


# -- as a whole, by task, alone -----------------------------------------------------------------------------------------


def test_a_whole_run_is_sized_by_its_peak_and_gives_back() -> None:
    run = pipeline_run(A, {**B, "name": "b"}, unit="workflow")
    assert run["spec"]["status"] == "PipelineRunPending"
    (whole,) = ENGINE.view(observed(run), "workflow").stages
    assert (whole.key, whole.state, whole.vector, dict(whole.shapes[0].requests)) == (
        "(workflow)",
        "held",
        True,
        {"cpu": 2000},
    )
    (write,) = ENGINE.open(observed(run), "workflow", whole, ALL)
    assert (write.resource.kind, write.body["spec"]) == ("PipelineRun", {"status": None})
    run = pipeline_run({**A, "taskSpec": task("4")}, B, unit="workflow", status={})
    del run["spec"]["status"]
    a = task_run("run-a", run, pending=False, end="True")
    (whole,) = ENGINE.view(observed(run, a, task_run("run-b", run)), "workflow").stages
    assert (whole.state, [dict(one) for one in whole.needed]) == ("held", [{"cpu": 2000}])


def test_by_task_each_task_run_is_a_stage() -> None:
    run = pipeline_run(EACH, {**B, "runAfter": ["each"]}, unit="task", status={})
    seen = observed(run, *(task_run(f"run-each-{number}", run) for number in range(3)))
    assert states(seen, "task") == {"run-each-0": "held", "run-each-1": "held", "run-each-2": "held", "run-b": "ahead"}
    assert states(observed(run), "task") == {
        "run-each-0": "ahead",
        "run-each-1": "ahead",
        "run-each-2": "ahead",
        "run-b": "ahead",
    }


def test_a_task_run_alone() -> None:
    document = {
        "kind": "TaskRun",
        "metadata": {"name": "alone", "namespace": NS, "labels": QUEUE_LABEL},
        "spec": {"taskSpec": task()},
    }
    run = created(ENGINE.adjust(document, "stage", Shelf()).object)
    assert run["spec"]["status"] == "TaskRunPending"
    assert states(observed(run)) == {"alone": "held"}
    del run["spec"]["status"]
    one = pod("alone-pod", run)
    (write,) = ENGINE.stop(observed(run, one), "stage", "alone", ()) or ()
    assert write.resource.kind == "Pod", "nobody would make the TaskRun anew"
    assert ENGINE.task_of(one, observed(run, one), "stage").stage == "alone"


# -- names and size -----------------------------------------------------------------------------------------------------


def test_names_as_tekton_makes_them() -> None:
    assert child_names("run", "each", 2) == ["run-each-0", "run-each-1"] and child_names("run", "one", 1) == ["run-one"]
    long = child_name("p" * 60, "-task")
    assert len(long) == 63 and long.endswith("-task") and long.startswith("p" * 26)
    assert len(child_name("parent", "-" + "s" * 70)) == 63


def test_the_cost_grows_with_the_number_of_task_runs() -> None:
    def seconds(count: int) -> float:
        values = [str(number) for number in range(count)]
        names = [f"run-each-{number}" for number in range(count)]
        run = pipeline_run({**EACH, "matrix": {"params": [{"name": "n", "value": values}]}}, status=refs(each=names))
        runs = [task_run(name, run, pending=False) for name in names]
        pods = [pod(f"{one['metadata']['name']}-pod", one) for one in runs]
        seen = observed(run, *runs, *pods)
        began = time.process_time()
        assert ENGINE.view(seen, "stage").stages[0].shapes[0].count == count
        assert {ENGINE.task_of(one, seen, "stage").stage for one in pods} == {"each"}
        return time.process_time() - began

    seconds(50)
    assert seconds(1000) < 30 * max(seconds(100), 0.005)


def test_the_rest_of_a_matrix_is_let_go_as_others_end() -> None:
    """Through the core: two of three were admitted; when one has ended, the third goes."""
    names = [f"run-each-{number}" for number in range(3)]
    run = pipeline_run(EACH, status=refs(each=names))
    for ends, gone in (("", []), ("True", [names[2]])):
        runs = [
            task_run(names[0], run, pending=False, end=ends),
            task_run(names[1], run, pending=False),
            task_run(names[2], run),
        ]
        seen = observed(run, *runs)
        (stage,) = ENGINE.view(seen, "stage").stages
        plan = reconcile(Seen(ENGINE, seen, "stage", [admitted(run, stage, 2)]))
        assert [write.name for write in plan.writes if write.resource.kind == "TaskRun"] == gone


def test_by_reuse_a_task_follows_the_one_that_it_waits_for_alone() -> None:
    reads = {"params": [{"name": "x", "value": "$(tasks.a.results.word)"}]}
    tasks = [
        {"name": "a", "taskSpec": task()},
        {"name": "b", "taskSpec": task(), "runAfter": ["a"]},
        {"name": "c", "taskSpec": task(), **reads},
        {"name": "d", "taskSpec": task(), "runAfter": ["b"], **reads},
    ]
    main = pipeline_run(*tasks, unit="reuse", status={})
    found = {one.key: one.next for one in ENGINE.view(observed(main), "reuse").stages}
    assert found == {"a": ("b", "c"), "b": (), "c": (), "d": ()}
