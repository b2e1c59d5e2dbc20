"""Tekton on a real node: what its own entrypoint passes on between steps and tasks, and Python functions that Penstock's runner sends there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import FunctionJob, TektonRunner, Workflow, WorkflowParam, for_loop
from penstock.formats.tekton.write import spec as tekton_spec
from testbed import binaries
from testbed.images import BUSYBOX, host_python
from testbed.instance import Testbed
from tests.cluster import tekton_functions as functions
from tests.cluster.support import fresh_namespace, unique
from tests.cluster.tekton_runs import condition, create, ended, pipeline, results, run, task_runs

PATIENCE = 180
HELPERS = ["tekton-entrypoint", "tekton-nop", "tekton-workingdirinit"]


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    if absent := binaries.missing(HELPERS):
        pytest.skip(f"tekton: {', '.join(absent)} is not built")
    return testbed("node", "tekton")


@pytest.fixture
def ns(bed: Testbed) -> str:
    return fresh_namespace(bed)


def shell(name: str, source: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": BUSYBOX, "script": f"#!/bin/sh\nset -e\n{source}\n", **more}


def task(name: str, *steps: dict[str, Any], params: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """With its parameters given."""
    given = [{"name": key, "value": value} for key, value in (params or {}).items()]
    declared = [{"name": key, "type": "string"} for key in params or {}]
    bound = [{"name": one["name"], "workspace": one["name"]} for one in spec.get("workspaces", ())]
    return {
        "name": name,
        "taskSpec": {"params": declared, "steps": list(steps), **spec},
        "params": given,
        "workspaces": bound,
    }


def test_parameters_files_and_results_pass_on(bed: Testbed, ns: str) -> None:
    """Steps of a task share a folder; tasks share results."""
    make = task(
        "make",
        shell(
            "write",
            "echo -n $(params.word) > $(workspaces.desk.path)/note; mkdir -p here; pwd > here/where",
            workingDir="/workspace/sub",
        ),
        shell(
            "read",
            "tr a-z A-Z < $(workspaces.desk.path)/note > $(results.loud.path); cat here/where | tr -d '\\n' > $(results.at.path)",
            workingDir="/workspace/sub",
        ),
        params={"word": "$(params.word)"},
        results=[{"name": "loud"}, {"name": "at"}],
        workspaces=[{"name": "desk"}],
    )
    take = task(
        "take",
        shell("say", 'echo -n "$(params.loud)!" > $(results.said.path)'),
        params={"loud": "$(tasks.make.results.loud)"},
        results=[{"name": "said"}],
    )
    spec = pipeline(
        make,
        take,
        params=[{"name": "word", "type": "string"}],
        workspaces=[{"name": "desk"}],
        results=[
            {"name": "said", "value": "$(tasks.take.results.said)"},
            {"name": "at", "value": "$(tasks.make.results.at)"},
        ],
    )
    given = {"params": [{"name": "word", "value": "gate seven"}], "workspaces": [{"name": "desk", "emptyDir": {}}]}
    create(bed, ns, run("PipelineRun", "passes", {**spec, **given}))
    found = ended(bed, ns, "PipelineRun", "passes", PATIENCE)
    assert condition(found)["status"] == "True", condition(found)
    assert results(found) == {"said": "GATE SEVEN!", "at": "/workspace/sub"}
    steps = task_runs(bed, ns)["make"]["status"]["steps"]
    assert [one["terminated"]["exitCode"] for one in steps] == [0, 0]
    assert steps[0]["terminated"]["finishedAt"] <= steps[1]["terminated"]["finishedAt"]


def test_tasks_share_a_claim(bed: Testbed, ns: str, tmp_path: Path) -> None:
    """A workspace that each run gets for itself; Tekton keeps its tasks on one node with a pod of its own, the affinity assistant."""
    lend(bed, tmp_path)
    shared = [{"name": "shared"}]
    tasks = (
        task(
            "write",
            shell("write", "echo -n $(context.pipelineRun.name) > $(workspaces.shared.path)/who"),
            workspaces=shared,
        ),
        {
            **task(
                "read",
                shell("read", "cp $(workspaces.shared.path)/who $(results.who.path)"),
                workspaces=shared,
                results=[{"name": "who"}],
            ),
            "runAfter": ["write"],
        },
    )
    spec = pipeline(*tasks, workspaces=shared, results=[{"name": "who", "value": "$(tasks.read.results.who)"}])
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    own = [{"name": "shared", "volumeClaimTemplate": {"spec": claim}}]
    create(bed, ns, run("PipelineRun", "shares", {**spec, "workspaces": own}))
    found = ended(bed, ns, "PipelineRun", "shares", PATIENCE)
    assert condition(found)["status"] == "True", condition(found)
    assert results(found) == {"who": "shares"} and (tmp_path / "who").read_text() == "shares"


def lend(bed: Testbed, folder: Path) -> None:
    """A volume for the next claim of up to a gibibyte, which is a folder here."""
    folder.chmod(0o777)
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": str(folder), "type": "Directory"},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    bed.apply([{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": unique("folder")}, "spec": spec}])


def test_a_step_that_fails_stops_its_task(bed: Testbed, ns: str) -> None:
    spec = pipeline(task("bad", shell("first", "exit 3"), shell("second", "touch /tmp/never")))
    create(bed, ns, run("PipelineRun", "fails", spec))
    found = ended(bed, ns, "PipelineRun", "fails", PATIENCE)
    assert condition(found)["reason"] == "Failed"
    first, second = task_runs(bed, ns)["bad"]["status"]["steps"]
    assert first["terminated"]["exitCode"] == 3 and second["terminated"]["reason"] == "Error"


# -- Penstock's runner -------------------------------------------------------------------------------------------------


@pytest.fixture
def runner(bed: Testbed, ns: str, monkeypatch: pytest.MonkeyPatch) -> TektonRunner:
    monkeypatch.setenv("PENSTOCK_KUBECTL", str(bed.binary("kubectl")))
    monkeypatch.setenv("KUBECONFIG", str(bed.kubeconfig))
    return TektonRunner(namespace=ns)


def job(name: str, function: Callable[..., Any], **more: Any) -> FunctionJob:
    """A step that runs with this machine's Python, which the image is lent."""
    lent = host_python()
    path = {"name": "PATH", "value": f"{lent['command'][0].rpartition('/')[0]}:/bin"}
    container = {"volumeMounts": lent["volumeMounts"], "env": [*lent["env"], path]}
    return FunctionJob(
        name, function, image=BUSYBOX, extra={"pod": {"volumes": lent["volumes"]}, "container": container}, **more
    )


def test_python_functions_run_in_pods(runner: TektonRunner) -> None:
    text, mark = WorkflowParam("text", str), WorkflowParam("mark", str, "-")
    split = job("words", functions.words, inputs={"text": text})

    @for_loop(word=split.outputs["result"])
    def each(word: Any) -> FunctionJob:
        return job("shouted", functions.shouted, inputs={"word": word})

    join = job("joined", functions.joined, inputs={"parts": each.outputs["result"], "mark": mark})
    outputs = {"all": join.outputs["result"]}
    flow = Workflow("shout", [split, each, join], params=[text, mark], outputs=outputs)
    done = runner.submit(flow, text="let it in", mark=" + ").wait(PATIENCE)
    assert done.ok, done.failures
    assert done.outputs == {"all": "LET + IT + IN"}
    assert [(one.name, one.state) for one in done.tasks] == [
        ("words", "succeeded"),
        *[("shouted", "succeeded")] * 3,
        ("joined", "succeeded"),
    ]
    assert done.logs("words") == "splitting 9 letters\n"


def test_files_of_python_functions_pass_through_a_claim(
    bed: Testbed, runner: TektonRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lend(bed, tmp_path)
    # Tekton's folders are made by a step of its own, whose image would be pulled.
    monkeypatch.setattr(tekton_spec, "SHELL_IMAGE", BUSYBOX)
    text = WorkflowParam("text", str)
    made = job("written", functions.written, inputs={"text": text})
    seen = job("read", functions.read, inputs={"file": made.outputs["result"]})
    flow = Workflow("files", [made, seen], params=[text], outputs={"length": seen.outputs["result"]})
    done = runner.submit(flow, text="hi there").wait(PATIENCE)
    assert done.ok, done.failures
    assert done.outputs == {"length": 8}


def test_an_exception_fails_the_run(runner: TektonRunner) -> None:
    done = runner.submit(Workflow("broken", [job("breaks", functions.breaks)])).wait(PATIENCE)
    assert done.status == "failed" and list(done.failures) == ["breaks"]
    assert "ValueError: no such luck" in done.logs("breaks")
