"""Argo Workflows on a real node: what Argo's own executor passes on, and Python functions that Penstock's runner sends there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import ArgoRunner, FunctionJob, Workflow, WorkflowParam, for_loop
from testbed import binaries
from testbed.components.argo import artifact_secret
from testbed.images import BUSYBOX, host_python
from testbed.instance import Testbed
from tests.cluster import argo_functions as functions
from tests.cluster.argo_runs import create, flow, node, step, until_over
from tests.cluster.support import fresh_namespace

PATIENCE = 120


@pytest.fixture
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    if binaries.missing(["argoexec"]):
        pytest.skip("argo: argoexec is not built")
    return testbed("node", "argo")


def shell(name: str, source: str, inputs: tuple[str, ...] = ()) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "script": {"image": BUSYBOX, "command": ["sh"], "source": source}}
    if inputs:
        made["inputs"] = {"parameters": [{"name": one} for one in inputs]}
    return made


def test_a_result_and_a_parameter_are_passed_on(bed: Testbed) -> None:
    ns = fresh_namespace(bed)
    hello = shell("hello", "echo hello; echo -n world > /tmp/word")
    hello["outputs"] = {"parameters": [{"name": "word", "valueFrom": {"path": "/tmp/word"}}]}
    say = shell("say", "echo '{{inputs.parameters.a}} {{inputs.parameters.b}}'", inputs=("a", "b"))
    say_it = step("say", "say", a="{{steps.hello.outputs.result}}", b="{{steps.hello.outputs.parameters.word}}")
    made = flow("passes", [step("hello", "hello"), say_it], hello, say)
    said = {"name": "said", "valueFrom": {"parameter": "{{steps.say.outputs.result}}"}}
    made["spec"]["templates"][0]["outputs"] = {"parameters": [said]}
    found = until_over(bed, ns, create(bed, ns, made), PATIENCE)
    assert found["status"]["phase"] == "Succeeded", found["status"].get("message")
    assert node(found, "passes")["outputs"]["parameters"][0]["value"] == "hello world"


def test_an_artifact_is_passed_on(bed: Testbed) -> None:
    ns = fresh_namespace(bed)
    bed.apply([artifact_secret(ns)])
    make = shell("make", "mkdir /tmp/out && echo one > /tmp/out/1 && echo two > /tmp/out/2")
    make["outputs"] = {"artifacts": [{"name": "out", "path": "/tmp/out"}]}
    read = shell("read", "cat /tmp/in/1 /tmp/in/2")
    read["inputs"] = {"artifacts": [{"name": "in", "path": "/tmp/in"}]}
    reads = step("read", "read")
    reads[0]["arguments"] = {"artifacts": [{"name": "in", "from": "{{steps.make.outputs.artifacts.out}}"}]}
    # Argo keeps what a step prints if another one reads it.
    again = step("again", "again", text="{{steps.read.outputs.result}}")
    name = create(
        bed, ns, flow("carries", [step("make", "make"), reads, again], make, read, shell("again", "true", ("text",)))
    )
    found = until_over(bed, ns, name, PATIENCE)
    assert found["status"]["phase"] == "Succeeded", found["status"].get("message")
    assert node(found, "read")["outputs"]["result"] == "one\ntwo"
    (kept,) = (bed.dir / "artifacts" / name).rglob("out.tgz")
    assert kept.stat().st_size > 0


def test_an_exit_code_is_told(bed: Testbed) -> None:
    ns = fresh_namespace(bed)
    found = until_over(bed, ns, create(bed, ns, flow("fails", [step("bad", "bad")], shell("bad", "exit 3"))), PATIENCE)
    assert found["status"]["phase"] == "Failed"
    assert node(found, "bad")["outputs"]["exitCode"] == "3" and "exit code 3" in node(found, "bad")["message"]


# -- Penstock's runner ------------------------------------------------------------------------------------------------


@pytest.fixture
def runner(bed: Testbed, monkeypatch: pytest.MonkeyPatch) -> ArgoRunner:
    monkeypatch.setenv("PENSTOCK_KUBECTL", str(bed.binary("kubectl")))
    monkeypatch.setenv("KUBECONFIG", str(bed.kubeconfig))
    namespace = fresh_namespace(bed)
    bed.apply([artifact_secret(namespace)])
    return ArgoRunner(namespace=namespace)


def job(name: str, function: Callable[..., Any], **more: Any) -> FunctionJob:
    """A step that runs with this machine's Python, which the image is lent."""
    lent = host_python()
    path = {"name": "PATH", "value": f"{lent['command'][0].rpartition('/')[0]}:/bin"}
    container = {"volumeMounts": lent["volumeMounts"], "env": [*lent["env"], path]}
    extra = {"argo": {"volumes": lent["volumes"]}, "container": container}
    return FunctionJob(name, function, image=BUSYBOX, extra=extra, **more)


def test_python_functions_run_in_pods(runner: ArgoRunner) -> None:
    n = WorkflowParam("n", int, 3)
    counted = job("numbers", functions.numbers, inputs={"n": n})

    @for_loop(x=counted.outputs["result"])
    def squares(x: Any) -> FunctionJob:
        return job("square", functions.square, inputs={"x": x})

    summed = job("total", functions.total, inputs={"xs": squares.outputs["result"]})
    at = job("where", functions.where)
    outputs = {"sum": summed.outputs["result"], "at": at.outputs["result"]}
    run = runner.submit(Workflow("sums", [counted, squares, summed, at], params=[n], outputs=outputs), n=4)
    run.wait(PATIENCE)
    assert run.ok, run.failures
    tasks = {one.name: one for one in run.tasks}
    assert run.outputs == {"sum": 14, "at": tasks["where"].pod}
    assert len(tasks) == 7 and {one.state for one in tasks.values()} == {"succeeded"}
    assert run.logs("numbers") == "counting to 4\n"


def test_files_of_python_functions_are_artifacts(runner: ArgoRunner) -> None:
    text = WorkflowParam("text", str)
    made = job("written", functions.written, inputs={"text": text})
    seen = job("read", functions.read, inputs={"file": made.outputs["result"]})
    run = runner.submit(
        Workflow("files", [made, seen], params=[text], outputs={"seen": seen.outputs["result"]}), text="hi there"
    )
    run.wait(PATIENCE)
    assert run.ok, run.failures
    assert run.outputs == {"seen": "HI THERE"}


def test_an_exception_fails_the_run(runner: ArgoRunner) -> None:
    run = runner.submit(Workflow("broken", [job("breaks", functions.breaks)])).wait(PATIENCE)
    assert run.status == "failed" and "exit code 1" in run.failures["breaks"]
    assert "ValueError: no such luck" in run.logs("breaks")
