"""How objects of a cluster stand, from what the cluster shows of them."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.formats.status import status_of

NODES = {
    "w": {"name": "w", "type": "DAG", "phase": "Succeeded", "outputs": {"parameters": [{"name": "n", "value": "3"}, {"name": "t", "value": "a b"}]}},
    "w-1": {"id": "w-1", "name": "w.a", "displayName": "a", "type": "Pod", "phase": "Failed", "message": "exit code 1"},
    "w-2": {"id": "w-2", "name": "w.b", "displayName": "b", "type": "Suspend", "phase": "Running"},
}  # fmt: skip


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


def test_a_job_set() -> None:
    jobs = [{"name": "driver", "succeeded": 1}, {"name": "workers", "active": 2, "ready": 2}]
    base: dict[str, Any] = {"kind": "JobSet", "metadata": {"name": "j"}, "spec": {}}
    found = status_of({**base, "status": {"replicatedJobsStatus": jobs}})
    assert found.state == "running" and [(t.name, t.state) for t in found.tasks] == [
        ("driver", "succeeded"),
        ("workers", "running"),
    ]
    for kind, state in (("Completed", "succeeded"), ("Failed", "failed"), ("Suspended", "running")):
        status = {"replicatedJobsStatus": jobs, "conditions": [{"type": kind, "status": "True"}]}
        assert status_of({**base, "status": status}).state == state
    assert status_of({**base, "spec": {"suspend": True}}).state == "suspended"
    assert status_of(base).state == "pending"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["nodes", "conditions", "phase", "type", "outputs", "parameters", "name", "compressedNodes"]), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(st.sampled_from(["Workflow", "PipelineRun", "JobSet", "Job"]), json_values, json_values)
def test_whatever_a_cluster_shows_has_a_state(kind: str, spec: Any, status: Any) -> None:
    found = status_of({"kind": kind, "spec": spec, "status": status})
    assert found.state in ("pending", "running", "suspended", "succeeded", "failed")
