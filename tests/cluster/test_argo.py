"""Argo Workflows on fake nodes: suspending and resuming, failures, results, Penstock's gates, Penstock's runner."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock import ArgoRunner, ContainerJob, RunFailed, Workflow, WorkflowParam, task, workflow
from testbed.api import MERGE
from testbed.instance import Testbed
from tests.cluster.argo_runs import (
    create,
    fake,
    flow,
    node,
    path,
    pods,
    resume,
    resume_all,
    step,
    until,
    until_over,
)
from tests.cluster.support import fresh_namespace

PENSTOCK = Path(sys.executable).with_name("penstock")


@pytest.fixture
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kwok", "argo")


# -- what the testbed plays -------------------------------------------------------------------------------------------


def test_a_workflow_waits_at_a_suspend_node_until_it_is_resumed(bed: Testbed) -> None:
    ns = fresh_namespace(bed)
    steps = [step("before", "leaf"), step("hold", "hold"), step("after", "leaf")]
    name = create(bed, ns, flow("waits", steps, fake("leaf"), {"name": "hold", "suspend": {}}))
    found = until(bed, ns, name, "hold", "Running")
    assert found["status"]["phase"] == "Running"  # Argo has no phase for it
    assert node(found, "hold")["type"] == "Suspend" and node(found, "before")["phase"] == "Succeeded"
    assert len(pods(bed, ns, name)) == 1
    resume(bed, ns, name, "hold")
    found = until_over(bed, ns, name)
    assert found["status"]["phase"] == "Succeeded" and node(found, "after")["phase"] == "Succeeded"


def test_a_failing_step_fails_the_workflow(bed: Testbed) -> None:
    ns = fresh_namespace(bed)
    name = create(
        bed, ns, flow("fails", [step("bad", "bad"), step("next", "good")], fake("bad", exit_code="3"), fake("good"))
    )
    found = until_over(bed, ns, name)
    bad = node(found, "bad")
    assert found["status"]["phase"] == "Failed" and bad["phase"] == "Failed"
    assert bad["message"] == "main: Error (exit code 3)" and bad["outputs"]["exitCode"] == "3"
    assert not node(found, "next")


def test_a_result_is_passed_to_the_next_step(bed: Testbed) -> None:
    ns = fresh_namespace(bed)
    steps = [step("first", "first"), step("second", "second", text="{{steps.first.outputs.result}}")]
    leaves = (fake("first", result='say "hi"'), fake("second", "{{inputs.parameters.text}}", inputs=("text",)))
    name = create(bed, ns, flow("passes", steps, *leaves))
    found = until_over(bed, ns, name)
    assert found["status"]["phase"] == "Succeeded"
    assert node(found, "first")["outputs"]["result"] == 'say "hi"'
    (second,) = [one for one in pods(bed, ns, name) if "-second-" in one["metadata"]["name"]]
    (main,) = [one for one in second["spec"]["containers"] if one["name"] == "main"]
    assert main["args"] == ['say "hi"']


def test_output_parameters_of_a_fake_pod_come_from_its_result(bed: Testbed) -> None:
    ns = fresh_namespace(bed)
    many = fake("many", result='{"items": ["a", "b"], "word": "w"}')
    kept = [{"name": one, "valueFrom": {"path": f"/tmp/{one}"}} for one in ("items", "word")]
    many["outputs"] = {"parameters": [*kept, {"name": "other", "valueFrom": {"path": "/tmp/other", "default": "d"}}]}
    loop = step("each", "each", text="{{item}}")
    loop[0]["withParam"] = "{{steps.many.outputs.parameters.items}}"
    made = flow(
        "parameters", [step("many", "many"), loop], many, fake("each", "{{inputs.parameters.text}}", inputs=("text",))
    )
    out = {
        "name": "seen",
        "valueFrom": {"expression": "steps.many.outputs.parameters.word + steps.many.outputs.parameters.other"},
    }
    made["spec"]["templates"][0]["outputs"] = {"parameters": [out]}
    found = until_over(bed, ns, create(bed, ns, made))
    assert found["status"]["phase"] == "Succeeded"
    assert node(found, "each(0:a)")["phase"] == node(found, "each(1:b)")["phase"] == "Succeeded"
    (seen,) = node(found, "parameters")["outputs"]["parameters"]
    assert seen["value"] == "wd"


def test_each_try_is_a_pod_of_its_own(bed: Testbed) -> None:
    ns = fresh_namespace(bed)
    bad = fake("bad", exit_code="2") | {"retryStrategy": {"limit": "1"}}
    name = create(bed, ns, flow("tries", [step("bad", "bad")], bad))
    found = until_over(bed, ns, name)
    assert found["status"]["phase"] == "Failed" and node(found, "bad")["type"] == "Retry"
    assert node(found, "bad(0)")["phase"] == node(found, "bad(1)")["phase"] == "Failed"
    assert len(pods(bed, ns, name)) == 2


# -- Penstock's gates -------------------------------------------------------------------------------------------------


def gated(tmp_path: Path, document: dict[str, Any], *words: str) -> dict[str, Any]:
    """What `penstock gate` makes of it."""
    file = tmp_path / "workflow.yaml"
    file.write_text(yaml.safe_dump(document))
    command = [str(PENSTOCK), "gate", str(file), "--quiet", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def staged(name: str) -> dict[str, Any]:
    """Three stages: a list, something for each of its items, and an end."""
    loop = step("work", "work", part="{{item}}")
    loop[0]["withParam"] = "{{steps.parts.outputs.result}}"
    steps = [step("parts", "parts"), loop, step("last", "last")]
    leaves = [
        fake("parts", result='["a", "b"]'),
        fake("work", "{{inputs.parameters.part}}", inputs=("part",)),
        fake("last"),
    ]
    for leaf, cpu in zip(leaves, ("500m", "2", "100m"), strict=True):
        leaf["container"]["resources"] = {"requests": {"cpu": cpu}}
    return flow(name, steps, *leaves)


STAGES = [
    ("penstock-gate-0", "main[0]", [{"n": 1, "step": "parts", "cpu": "500m"}], 0),
    ("penstock-gate-1", "main[1]", [{"n": 2, "step": "work", "cpu": "2"}], 1),
    ("penstock-gate-2", "main[2]", [{"n": 1, "step": "last", "cpu": "100m"}], 3),
]


def test_every_stage_waits_at_its_gate(bed: Testbed, tmp_path: Path) -> None:
    ns = fresh_namespace(bed)
    name = create(bed, ns, gated(tmp_path, staged("gated")))
    for gate, stage, shape, before in STAGES:
        found = until(bed, ns, name, gate, "Running")
        told = {one["name"]: one["value"] for one in node(found, gate)["inputs"]["parameters"]}
        assert told["stage"] == stage  # what the stage holds is known at its gate, also where only the run could tell
        assert [{**one, "cpu": one["resources"]["cpu"]} for one in json.loads(told["shape"])] == [
            {**one, "template": one["step"], "resources": {"cpu": one["cpu"]}} for one in shape
        ]
        assert len(pods(bed, ns, name)) == before
        resume(bed, ns, name, gate, flavor="spot", node_selector='{"type": "kwok"}')
    found = until_over(bed, ns, name)
    assert found["status"]["phase"] == "Succeeded"
    ran = pods(bed, ns, name)
    assert len(ran) == 4 and all(one["spec"]["nodeSelector"] == {"type": "kwok"} for one in ran)


def test_an_inline_template_waits_too(bed: Testbed, tmp_path: Path) -> None:
    ns = fresh_namespace(bed)
    inline = {"container": {"image": "none", "command": ["none"], "resources": {"requests": {"cpu": "10m"}}}}
    name = create(bed, ns, gated(tmp_path, flow("within", [[{"name": "only", "inline": inline}]])))
    until(bed, ns, name, "penstock-gate-0", "Running")
    resume(bed, ns, name, "penstock-gate-0", flavor="", node_selector='{"type": "kwok"}')
    assert until_over(bed, ns, name)["status"]["phase"] == "Succeeded"
    assert [one["spec"]["nodeSelector"] for one in pods(bed, ns, name)] == [{"type": "kwok"}]


def test_a_gate_is_opened_with_the_defaults_of_its_outputs(bed: Testbed, tmp_path: Path) -> None:
    ns = fresh_namespace(bed)
    name = create(bed, ns, gated(tmp_path, flow("plain", [step("only", "only")], fake("only", cpu="10m"))))
    until(bed, ns, name, "penstock-gate-0", "Running")
    resume_all(bed, ns, name)
    assert until_over(bed, ns, name)["status"]["phase"] == "Succeeded"
    assert ["nodeSelector" in one["spec"] for one in pods(bed, ns, name)] == [False]


def test_a_gate_that_is_opened_without_its_outputs_leads_nowhere(bed: Testbed, tmp_path: Path) -> None:
    """What `argo resume` with a selector does by itself: it does not fill in the defaults."""
    ns = fresh_namespace(bed)
    name = create(bed, ns, gated(tmp_path, flow("bare", [step("only", "only")], fake("only", cpu="10m"))))
    until(bed, ns, name, "penstock-gate-0", "Running")
    resume(bed, ns, name, "penstock-gate-0")
    log = bed.processes["workflow-controller"].log

    def missed() -> bool:
        lines = [line for line in log.read_text().splitlines() if f"namespace={ns}" in line]
        return any("failed to resolve" in line and "node-selector" in line for line in lines)

    bed.wait(missed, "Argo to look for the output")
    found = bed.get(path(ns, name))
    assert node(found, "penstock-gate-0")["phase"] == "Succeeded" and not node(found, "only")
    assert found["status"]["phase"] == "Running" and not pods(bed, ns, name)


def test_a_stage_of_pods_waits_for_its_scheduling_gates(bed: Testbed, tmp_path: Path) -> None:
    ns = fresh_namespace(bed)
    name = create(bed, ns, gated(tmp_path, staged("held"), "--by", "pods"))
    for count in (1, 2, 1):

        def waiting(count: int = count) -> list[dict[str, Any]] | None:
            found = [one for one in pods(bed, ns, name) if one["spec"].get("schedulingGates")]
            return found if len(found) == count else None

        for pod in bed.wait(waiting, f"{count} pods at their gates"):
            assert pod["spec"]["schedulingGates"] == [{"name": "penstock/admission"}]
            at = f"/api/v1/namespaces/{ns}/pods/{pod['metadata']['name']}"
            bed.raw("PATCH", at, {"spec": {"schedulingGates": None}}, MERGE)
    assert until_over(bed, ns, name)["status"]["phase"] == "Succeeded"


def test_a_workflow_waits_as_a_whole(bed: Testbed, tmp_path: Path) -> None:
    ns = fresh_namespace(bed)
    whole = flow("whole", [step("only", "only")], fake("only", cpu="10m"))
    name = create(bed, ns, gated(tmp_path, whole, "--unit", "workflow"))
    found = bed.wait(lambda: bed.get(path(ns, name)).get("status"), "Argo to see the workflow")
    assert found["phase"] == "Running" and not pods(bed, ns, name)
    bed.raw("PATCH", path(ns, name), {"spec": {"suspend": None}}, MERGE)
    assert until_over(bed, ns, name)["status"]["phase"] == "Succeeded"


# -- Penstock's runner ------------------------------------------------------------------------------------------------


@pytest.fixture
def runner(bed: Testbed, monkeypatch: pytest.MonkeyPatch) -> ArgoRunner:
    monkeypatch.setenv("PENSTOCK_KUBECTL", str(bed.binary("kubectl")))
    monkeypatch.setenv("KUBECONFIG", str(bed.kubeconfig))
    return ArgoRunner(namespace=fresh_namespace(bed))


def noted(**annotations: str) -> dict[str, Any]:
    """What a step needs to tell its fake pod."""
    return {"metadata": fake("any", inputs=(), **annotations)["metadata"]}


def test_the_runner_follows_a_workflow_to_its_end(runner: ArgoRunner) -> None:
    text = WorkflowParam("text", str, "hi")
    say = ContainerJob("say", "busybox", ["echo", text], inputs={})
    more = ContainerJob("more", "busybox", ["echo", "more"], cpu=1).after(say)
    run = runner.run(Workflow("hello", [say, more], params=[text], queue="team-a"), text="ho")
    assert run.ok and run.check() is run
    assert {one.name: one.state for one in run.tasks} == {"say": "succeeded", "more": "succeeded"}


@task(extra=noted(result="[3, 4]"))
def numbers(n: int) -> list[int]:
    return list(range(n))


@task(cpu=1, extra=noted(result="7"))
def square(x: int) -> int:
    return x * x


@task(extra=noted(result="58"))
def total(xs: list[int]) -> int:
    return sum(xs)


@workflow
def sums(n: int = 3) -> int:
    return total([square(x) for x in numbers(n)])


def test_functions_become_pods(runner: ArgoRunner) -> None:
    """On a fake node nothing is computed; what is seen is that values take their way."""
    run = runner.run(sums, n=2)
    assert run.ok and run.outputs == {"result": 58}
    assert [one.name for one in sorted(run.tasks, key=lambda one: one.name)] == [
        "numbers",
        "square(0:3)",
        "square(1:4)",
        "total",
    ]


def test_the_runner_tells_what_failed(runner: ArgoRunner) -> None:
    job = ContainerJob("breaks", "busybox", ["false"], extra=noted(exit_code="4"))
    run = runner.run(Workflow("broken", [job]))
    assert run.status == "failed" and run.failures == {"breaks": "main: Error (exit code 4)"}
    with pytest.raises(RunFailed, match="breaks: main: Error"):
        run.check()


def test_cancel_takes_the_pods_along(runner: ArgoRunner, bed: Testbed) -> None:
    job = ContainerJob("stays", "busybox", ["sleep", "1d"], extra=noted(run_time="forever"))
    run = runner.submit(Workflow("goes", [job]))
    bed.wait(lambda: [one.state for one in run.tasks] == ["running"], "the step to run")
    (pod,) = pods(bed, run.namespace, run.name)
    assert [one.pod for one in run.tasks] == [pod["metadata"]["name"]]
    run.cancel()
    bed.wait(lambda: not pods(bed, run.namespace, run.name), "the pod to go with its workflow")
