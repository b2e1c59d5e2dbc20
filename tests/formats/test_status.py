"""How objects of a cluster stand, from what the cluster shows of them."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.formats.registry import status_of
from penstock.formats.status import TaskStatus
from penstock.formats.tekton.status import task_run_states

NODES = {
    "w": {
        "name": "w",
        "type": "DAG",
        "phase": "Succeeded",
        "outputs": {"parameters": [{"name": "n", "value": "3"}, {"name": "t", "value": "a b"}]},
    },
    "w-1": {"id": "w-1", "name": "w.a", "displayName": "a", "type": "Pod", "phase": "Failed", "message": "exit code 1"},
    "w-2": {"id": "w-2", "name": "w.b", "displayName": "b", "type": "Suspend", "phase": "Running"},
}


def argo(**status: Any) -> dict[str, Any]:
    return {"kind": "Workflow", "metadata": {"name": "w"}, "spec": {}, "status": status}


@pytest.mark.parametrize("packed", [False, True])
def test_an_argo_workflow(packed: bool) -> None:
    nodes: dict[str, Any] = {"nodes": NODES}
    if packed:
        nodes = {"compressedNodes": base64.b64encode(gzip.compress(json.dumps(NODES).encode())).decode()}
    found = status_of(argo(phase="Failed", message="child failed", **nodes))
    assert (found.state, found.message, found.outputs) == ("failed", "child failed", {"n": 3, "t": "a b"})
    assert [(task.name, task.state, task.message) for task in found.tasks] == [
        ("a", "failed", "exit code 1"),
        ("b", "suspended", ""),
    ]


def test_the_pods_of_an_argo_workflow() -> None:
    shared: dict[str, Any] = {"phase": "Running"}
    nodes = {
        "w-1": {"id": "w-1", "name": "w.a", "displayName": "a", "type": "Pod", "templateName": "leaf", **shared},
        "w-2": {
            "id": "w-2",
            "name": "w.b",
            "displayName": "b",
            "type": "Pod",
            "templateRef": {"name": "lib", "template": "far"},
            **shared,
        },
        "w-3": {"id": "w-3", "name": "w.c", "displayName": "c", "type": "Pod", **shared},
        "w-4": {"id": "w-4", "name": "w.a.x", "displayName": "x", "type": "Container", "boundaryID": "w-1", **shared},
        "w-5": {"id": "w-5", "name": "w.d", "displayName": "d", "type": "Pod", "templateName": "t" * 300, **shared},
        "w-6": {"id": "w-6", "name": "w.e", "displayName": "e", "type": "Suspend", **shared},
    }
    found = {task.name: task.pod for task in status_of(argo(nodes=nodes)).tasks}
    assert found == {"a": "w-leaf-1", "b": "w-far-2", "c": "w-3", "x": "w-leaf-1", "d": f"w-{'t' * 240}-5", "e": ""}
    containers = {task.name: task.containers for task in status_of(argo(nodes=nodes)).tasks}
    assert containers["a"] == containers["x"] == ("x",) and containers["b"] == ("main",) and containers["e"] == ()
    old = {
        **argo(nodes=nodes),
        "metadata": {"name": "w", "annotations": {"workflows.argoproj.io/pod-name-format": "v1"}},
    }
    assert [task.pod for task in status_of(old).tasks] == ["w-1", "w-2", "w-3", "w-1", "w-5", ""]
    alone = {"w": {"id": "w", "name": "w", "displayName": "w", "type": "Pod", "templateName": "leaf", **shared}}
    assert [task.pod for task in status_of(argo(nodes=alone)).tasks] == ["w"]


def test_not_begun_running_suspended() -> None:
    assert status_of(argo()).state == "pending"
    assert status_of(argo(phase="Running")).state == "running"
    assert status_of({**argo(phase="Running"), "spec": {"suspend": True}}).state == "suspended"


@pytest.mark.parametrize(
    "said, state", [("True", "succeeded"), ("False", "failed"), ("Unknown", "running"), (None, "pending")]
)
def test_a_pipeline_run(said: str | None, state: str) -> None:
    conditions = [{"type": "Succeeded", "status": said, "message": "m"}] if said else []
    status = {
        "conditions": conditions,
        "results": [{"name": "r", "value": "[1]"}],
        "childReferences": [{"name": "p-a", "pipelineTaskName": "a"}],
        "skippedTasks": [{"name": "b", "reason": "When Expressions evaluated to false"}],
    }
    found = status_of({"kind": "PipelineRun", "metadata": {"name": "p"}, "spec": {}, "status": status})
    assert found.state == state and found.outputs == {"r": [1]}
    assert [(task.name, task.state) for task in found.tasks] == [("a", "started"), ("b", "skipped")]
    assert status_of({"kind": "PipelineRun", "spec": {"status": "PipelineRunPending"}}).state == "suspended"


def test_tasks_of_a_pipeline_as_their_runs_show_them() -> None:
    known = [TaskStatus("a", "started"), TaskStatus("custom", "started"), TaskStatus("b", "skipped", "why")]
    held = {
        "metadata": {"name": "p-a", "labels": {"tekton.dev/pipelineTask": "a"}},
        "spec": {"status": "TaskRunPending"},
    }
    assert task_run_states(known, [held]) == (TaskStatus("a", "suspended"), known[1], known[2])
    assert task_run_states(known, []) == tuple(known)


def test_a_job_set() -> None:
    jobs = [{"name": "driver", "succeeded": 1}, {"name": "workers", "active": 2, "ready": 2}]
    base: dict[str, Any] = {"kind": "JobSet", "metadata": {"name": "j"}, "spec": {}}
    found = status_of({**base, "status": {"replicatedJobsStatus": jobs}})
    assert found.state == "running" and [(t.name, t.state) for t in found.tasks] == [
        ("driver", "succeeded"),
        ("workers", "running"),
    ]
    listed = {"replicatedJobs": [{"name": "workers"}, {"name": "driver"}]}
    ordered = status_of({**base, "spec": listed, "status": {"replicatedJobsStatus": jobs}})
    assert [task.name for task in ordered.tasks] == ["workers", "driver"]
    for kind, state in (("Completed", "succeeded"), ("Failed", "failed"), ("Suspended", "running")):
        status = {"replicatedJobsStatus": jobs, "conditions": [{"type": kind, "status": "True"}]}
        assert status_of({**base, "status": status}).state == state
    assert status_of({**base, "spec": {"suspend": True}}).state == "suspended"
    assert status_of(base).state == "pending"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["nodes", "conditions", "phase", "type", "outputs", "parameters", "name", "compressedNodes"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.sampled_from(["Workflow", "PipelineRun", "JobSet", "Job"]), json_values, json_values)
def test_whatever_a_cluster_shows_has_a_state(kind: str, spec: Any, status: Any) -> None:
    found = status_of({"kind": kind, "spec": spec, "status": status})
    assert found.state in ("pending", "running", "suspended", "succeeded", "failed")
