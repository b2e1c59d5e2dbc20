"""Acceptance: reusable tasks (T1.1) and what each asks for (T2.1–T2.3), seen in the pods that are made."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import ContainerJob, LocalRunner, Workflow, WorkflowParam
from penstock.artifacts.blobs import Blobs
from penstock.backends.base import AttemptSpec
from penstock.backends.kubernetes import options
from penstock.backends.kubernetes.manifest import job_of
from penstock.backends.kubernetes.work import work_of
from penstock.expressions.parse import Expr
from penstock.expressions.template import parse_template
from penstock.expressions.types import BOOL, INT, list_of
from penstock.formats import registry
from penstock.graph import model
from penstock.graph.check import errors
from penstock.testing import run_virtually
from tests.engine.yard import Yard, queue

GI = 2**30


def jobs(specs: list[AttemptSpec], folder: Path) -> dict[str, dict[str, Any]]:
    """The Job that `--on kubernetes` makes of each attempt, by task."""
    home = Path("/home/of/penstock")
    chosen = options.read({"PENSTOCK_KUBERNETES_VOLUME": "pvc:claim"}, home, str(home / "artifacts"))
    blobs = Blobs(folder / "blobs")

    def library() -> str:
        return blobs.put(b"code")

    return {spec.task: job_of(spec, work_of(spec, chosen, blobs, library), chosen, "store", "ns") for spec in specs}


def pod_of(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["template"]["spec"]
    return found


def asked(job: dict[str, Any]) -> dict[str, Any]:
    """What the program of a pod requests."""
    spec = pod_of(job)
    every = (*spec.get("initContainers", ()), *spec["containers"])
    found: dict[str, Any] = next(one for one in every if one["name"] == "main")["resources"]["requests"]
    return found


def test_t1_1_one_task_in_two_workflows_is_the_same_pod(tmp_path: Path) -> None:
    """Byte for byte, apart from the names of the runs and workflows: the Jobs of `--on kubernetes`, and the templates for Argo."""
    tile = ContainerJob(
        name="tile",
        image="tiles:1.4",
        command=["tile", "--zoom", "9"],
        env={"LEVEL": "info"},
        outputs=[WorkflowParam("count", int)],
        cpu=2,
        memory="4Gi",
        retry=3,
        timeout=600,
    )
    first = Workflow(name="landsat", steps=[tile])
    other = ContainerJob(name="look", image="look:1", command=["look"], cpu=1)
    second = Workflow(name="sentinel", steps=[other, tile])
    pods, templates = [], []
    for workflow in (first, second):
        report = run_virtually(workflow)
        name = report.live.record.id
        made = jobs([spec for spec in report.backend.specs if spec.task == "tile"], tmp_path)
        pods.append(json.dumps(pod_of(made["tile"]), sort_keys=True).replace(name, "RUN"))
        documents = registry.write(workflow.graph, "argo").documents
        found = next(one for one in documents[-1]["spec"]["templates"] if one["name"] == "tile")
        templates.append(json.dumps(found, sort_keys=True))
    assert pods[0] == pods[1]
    assert '"image": "tiles:1.4"' in pods[0] and '"memory": "4Gi"' in pods[0]
    assert templates[0] == templates[1] and '"image": "tiles:1.4"' in templates[0]


def test_t2_1_each_pod_asks_for_exactly_what_its_step_says(tmp_path: Path) -> None:
    """Three steps, three sizes: as Jobs and as templates for Argo. (The line of Slurm, --cpus-per-task, --mem and --gres, comes with
    the backend for Slurm, which is a later issue.)"""
    gpu = "nvidia.com/gpu"
    filter_ = ContainerJob(name="filter", image="i", command=["f"], cpu="100m")
    merge = ContainerJob(name="merge", image="i", command=["m"], cpu=8, memory="60Gi").after(filter_)
    train = ContainerJob(name="train", image="i", command=["t"], resources={gpu: 1}).after(merge)
    workflow = Workflow(name="three", steps=[filter_, merge, train])
    made = jobs(run_virtually(workflow).backend.specs, tmp_path)
    expected = {"filter": {"cpu": "100m"}, "merge": {"cpu": "8", "memory": "60Gi"}, "train": {gpu: "1"}}
    assert {name: asked(job) for name, job in made.items()} == expected
    documents = registry.write(workflow.graph, "argo").documents
    templates = {one["name"]: one for one in documents[-1]["spec"]["templates"]}
    for name, wanted in expected.items():
        assert templates[name]["container"]["resources"]["requests"] == wanted


def scenes(most: str = "10Gi") -> model.Workflow:
    """For each scene: look how large it is, then ask for so much."""
    look = model.Step(
        name="look",
        action=model.Container(image="i", command=("look",)),
        inputs=(model.Input(name="scene", value=Expr.of("params.scene")),),
        outputs=(model.Output(name="gib", type=INT),),
    )
    work = model.Step(
        name="work",
        action=model.Container(image="i", command=("work",)),
        resources={"memory": 10 * GI * 1000},
        resources_by={"memory": parse_template("${{ steps.look.outputs.gib + 1 }}Gi")},
        cache=model.Cache(enabled=False),
    )
    scene = model.Workflow(name="scene", params=(model.Parameter(name="scene"),), steps=(look, work))
    each = model.Step(
        name="scenes",
        action=model.Nested(name="scene"),
        inputs=(model.Input(name="scene", value=Expr.of("item.scene")),),
        each=model.ForEach(axes=({"scene": (1, 1, 5, 2)},)),
    )
    found = model.Workflow(name="w", steps=(each,), definitions=(scene,), queue="team")
    assert not errors(found)
    return found


def test_t2_2_memory_is_a_function_of_the_size_of_the_scene(tmp_path: Path) -> None:
    """The size is an output of the step before; admission counts what is computed of it, and the pod asks for it."""
    manifest = queue("team", 10 * GI).replace('"cpu"', '"memory"')
    yard = Yard(tmp_path / ".penstock", manifest)
    seen: dict[str, AttemptSpec] = {}

    def script(spec: AttemptSpec) -> Any:
        seen[spec.task] = spec
        return (0.0, {"gib": spec.inputs["scene"]}) if spec.step.name == "look" else 10.0

    async def main(yard: Yard) -> Any:
        return yard.submit(yard.go(yard.engine(script)), scenes())

    live = yard.play(main)
    assert live.status == "succeeded"
    told = [event.data["resources"]["memory"] for event in yard.events(live, "step.asks")]
    assert sorted(told) == ["2Gi", "2Gi", "3Gi", "6Gi"]
    work = [spec for spec in seen.values() if spec.step.name == "work"]
    requests = [asked(job)["memory"] for job in jobs(work, tmp_path).values()]
    assert sorted(requests) == ["2Gi", "2Gi", "3Gi", "6Gi"]
    # 2 + 2 + 6 Gi run beside one another, then 3: of the most that is said, 10 Gi, one would have run at a time.
    assert yard.most["memory"] == 10 * GI
    assert yard.clock.elapsed == pytest.approx(20, abs=1)


@pytest.mark.parametrize("given", ["many", -1, [1], 11 * GI, True, None])
def test_t2_2_an_amount_that_cannot_be_is_an_error_of_the_step(given: Any) -> None:
    step = model.Step(
        name="work",
        action=model.Container(image="i"),
        resources={"memory": 10 * GI * 1000},
        resources_by={"memory": Expr.of("params.memory")},
    )
    workflow = model.Workflow(name="w", params=(model.Parameter(name="memory"),), steps=(step,))
    report = run_virtually(workflow, {"memory": given})
    assert report.state == "failed" and not report.backend.specs
    assert any("resources_by.memory" in str(event.data) for event in report.events)


def test_t2_2_the_most_is_said_and_a_called_workflow_has_none() -> None:
    free = model.Step(name="a", action=model.Container(image="i"), resources_by={"memory": "1Gi"})
    call = model.Step(name="b", action=model.Nested(name="d"), resources_by={"memory": "1Gi"})
    inner = model.Workflow(name="d", steps=(model.Step(name="c", action=model.Container(image="i")),))
    found = errors(model.Workflow(name="w", steps=(free, call), definitions=(inner,)))
    assert [(one.code, one.where) for one in found] == [
        ("P230", "steps.a.resources_by.memory"),
        ("P231", "steps.b.resources_by.memory"),
    ]


# -- small tasks ------------------------------------------------------------------------------------------------------

CODE = """
import time
def one(i):
    until = time.thread_time() + 0.001
    while time.thread_time() < until: pass
    return i
def keep(n): return [i for i in range(n) if i % 10 == 0]
def wanted(i): return i % 10 == 0
"""


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LocalRunner]:
    (tmp_path / "acceptance_tasks.py").write_text(textwrap.dedent(CODE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return lambda **on: LocalRunner(home=tmp_path / "home", on={"function": "inline", **on})


def called(name: str, function: str, kind: Any = INT, **fields: Any) -> model.Step:
    return model.Step(
        name=name,
        action=model.Function(module="acceptance_tasks", name=function),
        outputs=(model.Output(name="result", type=kind),),
        cache=model.Cache(enabled=False),
        **fields,
    )


@pytest.mark.slow
def test_t2_3_a_thousand_inline_tasks_of_a_millisecond_take_less_than_five_seconds_of_one_core(runner: Any) -> None:
    """Each computes for a millisecond. Time of the processor is measured: this machine may have other things to do."""
    each = model.ForEach(axes=({"i": Expr.of("range(1000)")},))
    step = called("one", "one", inputs=(model.Input(name="i", value=Expr.of("item.i")),), each=each)
    shown = model.Output(name="all", type=list_of(INT), value=Expr.of("steps.one.outputs.result"))
    began = time.process_time()
    run = runner().run(model.Workflow(name="many", steps=(step,), outputs=(shown,)))
    spent = time.process_time() - began
    assert run.ok and run.outputs["all"] == list(range(1000))
    assert 1.0 <= spent < 5.0


def heavy(**fields: Any) -> model.Step:
    action = model.Container(image="heavy:1", command=("work", parse_template("${{ item.i }}")))
    return model.Step(name="heavy", action=action, cache=model.Cache(enabled=False), **fields)


@pytest.mark.parametrize("by", ["a list", "a condition"])
def test_t2_3_filter_then_batch_launches_pods_for_what_is_left(runner: Any, by: str) -> None:
    """Of 100 items 90 are filtered out by inline functions; the scripted backend of containers is given the other 10 only."""
    n = model.Input(name="n", value=100)
    if by == "a list":
        keep = called("keep", "keep", list_of(INT), inputs=(n,))
        batch = heavy(each=model.ForEach(axes=({"i": Expr.of("steps.keep.outputs.result")},)))
    else:
        items = model.ForEach(axes=({"i": Expr.of("range(100)")},))
        keep = called("keep", "wanted", BOOL, inputs=(model.Input(name="i", value=Expr.of("item.i")),), each=items)
        batch = heavy(each=items, when=Expr.of("steps.keep.outputs.result[item.i]"))
    run = runner(container="fake").run(model.Workflow(name="batch", steps=(keep, batch)))
    assert run.ok
    launched = [one for one in run["heavy"] if one.status == "succeeded"]
    assert len(launched) == 10
