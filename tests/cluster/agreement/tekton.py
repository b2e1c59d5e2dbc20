"""A pass on the real Tekton: submitting a run, and what it and its TaskRuns tell when it is over. Called by play."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from tests.cluster.agreement.examples import Example
from tests.cluster.agreement.marks import Doc
from tests.cluster.agreement.told import Step, Told
from tests.cluster.tekton_runs import API, condition

FEATURES = {
    "enable-api-fields": "alpha",
    "enable-cel-in-whenexpression": "true",
    "enable-param-enum": "true",
    "enable-artifacts": "true",
}
"""What a Tekton needs to be told before it takes newer fields."""
_REASONS = {
    "When Expressions evaluated to false": "when",
    "Parent Tasks were skipped": "parent",
    "Results were missing": "results",
    "PipelineRun was stopping": "stopping",
}
_STARTED = {"Pipeline": "PipelineRun", "Task": "TaskRun", "ClusterTask": "TaskRun"}


def submitted(example: Example) -> Doc:
    """The run of the root: itself, or one that refers to it."""
    root = example.root
    kind = root["kind"]
    if kind not in _STARTED:
        return root
    name = (root.get("metadata") or {}).get("name") or ""
    ref = {"pipelineRef" if kind == "Pipeline" else "taskRef": {"name": name}}
    return {"apiVersion": API, "kind": _STARTED[kind], "metadata": {"generateName": f"{name}-"}, "spec": ref}


def is_over(found: Doc) -> bool:
    return condition(found).get("status") in ("True", "False")


def told(found: Doc, children: list[Doc], entry: str) -> Told:
    """`children`: TaskRuns and PipelineRuns of the namespace. `entry`: what Penstock calls the only step of a TaskRun."""
    said = condition(found)
    why = f"{said.get('reason', '')}: {said.get('message', '')}"
    end = {"True": "succeeded", "False": "failed"}.get(str(said.get("status")), "endless")
    if found["kind"] == "TaskRun":
        if end == "failed" and not found.get("status", {}).get("podName"):
            return Told("refused", why)
        return Told(end, why, {entry: _step(found)})
    steps = dict(_steps(found, {one["metadata"]["name"]: one for one in children}, ""))
    if end == "failed" and not steps:
        return Told("refused", why)
    return Told(end, why, steps)


def _steps(found: Doc, children: dict[str, Doc], before: str) -> list[tuple[str, Step]]:
    status = found.get("status", {})
    listed = [one for one in status.get("childReferences") or () if one.get("name") in children]
    spec = status.get("pipelineSpec") or {}
    matrixed = {one["name"] for part in ("tasks", "finally") for one in spec.get(part) or () if "matrix" in one}
    listed.sort(key=lambda one: (one.get("pipelineTaskName", ""), _number(one["name"])))
    seen: Counter[str] = Counter()
    steps = []
    for one in listed:
        task, child = one["pipelineTaskName"], children[one["name"]]
        at = f"{before}{task}[{seen[task]}]" if task in matrixed else f"{before}{task}"
        seen[task] += 1
        steps.append((at, _step(child)))
        if child["kind"] == "PipelineRun":
            steps += _steps(child, children, f"{at}/")
    for one in status.get("skippedTasks") or ():
        said = str(one.get("reason") or "")
        steps.append((f"{before}{one['name']}", Step("skipped", said, 0, _REASONS.get(said, ""))))
    return steps


def _step(run: Doc) -> Step:
    said = condition(run)
    outcome = {"True": "succeeded", "False": "failed"}.get(str(said.get("status")), "running")
    tries = len(run.get("status", {}).get("retriesStatus") or ()) + 1 if run["kind"] == "TaskRun" else 0
    return Step(outcome, f"{said.get('reason', '')}: {said.get('message', '')}", tries)


def _number(name: str) -> Any:
    found = re.search(r"-(\d+)$", name)
    return int(found[1]) if found else 0
