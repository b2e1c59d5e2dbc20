"""Tasks, runs and what became of them: what the tests of Tekton in this folder have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from testbed.instance import Testbed
from tests.cluster import support

API = "tekton.dev/v1"
PLURALS = {"TaskRun": "taskruns", "PipelineRun": "pipelineruns"}
RUN_TIME = "testbed.penstock/run-time"
EXIT_CODE = "testbed.penstock/exit-code"
RESULT = "testbed.penstock/result"


def left(**results: str) -> str:
    """What a pod leaves behind for Tekton: the message that its entrypoint writes when a step ends."""
    return json.dumps([{"key": name, "value": value, "type": 1} for name, value in results.items()])


def fake_task(
    *, results: tuple[str, ...] = (), params: tuple[str, ...] = (), cpu: str = "", **annotations: str
) -> dict[str, Any]:
    """A taskSpec whose pod does nothing but end. Every step has a command: without one Tekton asks the image's registry for it. With
    annotations only for tasks of a pipeline: a TaskRun has its own."""
    words = [f"$(params.{name})" for name in params]
    spec: dict[str, Any] = {"steps": [{"name": "main", "image": "none", "command": ["none"], "args": words}]}
    if cpu:
        spec["steps"][0]["computeResources"] = {"requests": {"cpu": cpu}}
    if results:
        spec["results"] = [{"name": name, "type": "string"} for name in results]
    if params:
        spec["params"] = [{"name": name, "type": "string"} for name in params]
    if annotations:
        names = {"run_time": RUN_TIME, "exit_code": EXIT_CODE, "result": RESULT}
        spec["metadata"] = {"annotations": {names[name]: value for name, value in annotations.items()}}
    return spec


def run(kind: str, name: str, spec: Mapping[str, Any], **annotations: str) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, "annotations": annotations}, "spec": dict(spec)}


def pipeline(*tasks: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"pipelineSpec": {"tasks": list(tasks), **more}}


def path(namespace: str, kind: str, name: str = "") -> str:
    return f"/apis/{API}/namespaces/{namespace}/{PLURALS[kind]}" + (f"/{name}" if name else "")


def create(bed: Testbed, namespace: str, document: Mapping[str, Any]) -> str:
    made = bed.raw("POST", path(namespace, document["kind"]), dict(document))
    return str(made["metadata"]["name"])


def condition(found: dict[str, Any]) -> dict[str, Any]:
    return support.condition(found, "Succeeded")


def reason(bed: Testbed, namespace: str, kind: str, name: str) -> str:
    return str(condition(bed.get(path(namespace, kind, name))).get("reason", ""))


def wait_reason(bed: Testbed, namespace: str, kind: str, name: str, wanted: str, timeout: float = 180) -> None:
    bed.wait(lambda: reason(bed, namespace, kind, name) == wanted, f"{kind} {name} to be {wanted}", timeout)


def ended(bed: Testbed, namespace: str, kind: str, name: str, timeout: float = 180) -> dict[str, Any]:
    """The run once it is over."""

    def look() -> dict[str, Any] | None:
        found = bed.get(path(namespace, kind, name))
        return found if condition(found).get("status") in ("True", "False") else None

    return bed.wait(look, f"{kind} {name} to end", timeout)


def let_go(bed: Testbed, namespace: str, kind: str, name: str) -> None:
    """What whoever admits a pending run does."""
    bed.raw("PATCH", path(namespace, kind, name), {"spec": {"status": None}}, "application/merge-patch+json")


def task_runs(bed: Testbed, namespace: str) -> dict[str, dict[str, Any]]:
    """Task of the pipeline -> its TaskRun."""
    found = bed.objects(API, "taskruns", namespace)
    return {one["metadata"]["labels"].get("tekton.dev/pipelineTask", one["metadata"]["name"]): one for one in found}


def pods(bed: Testbed, namespace: str) -> list[dict[str, Any]]:
    return bed.objects("v1", "pods", namespace)


def results(found: Mapping[str, Any]) -> dict[str, Any]:
    return {one["name"]: one["value"] for one in found["status"].get("results", ())}
