"""Running from Python: what LocalRunner gives back, in a script, a notebook and a test."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock import ContainerJob, LocalRunner, Run, RunFailed, ScriptJob, Workflow, WorkflowParam, task, workflow
from penstock.errors import PlanError
from penstock.service.images import allow_host


@task
def double(x: int) -> int:
    print("doubling", x)
    return 2 * x


@task
def total(xs: list[int]) -> int:
    return sum(xs)


@task
def picky(x: int) -> int:
    if x == 2:
        raise ValueError("not two")
    return x


@task
def write(text: str) -> Path:
    path = Path("note.txt").absolute()
    path.write_text(text)
    return path


@task
def read(path: Path) -> str:
    return path.read_text()


@task
def big(n: int) -> list[int]:
    return list(range(n))


class Box:
    def __init__(self, inside: int) -> None:
        self.inside = inside


@task
def boxed(x: int) -> Box:
    return Box(x)


@task
def unboxed(box: Box) -> int:
    return box.inside


@workflow
def sums(n: int = 3):
    return total([double(x) for x in range(n)])


@workflow
def fails():
    return total([picky(x) for x in [1, 2, 3]])


@workflow
def files(text: str):
    return read(write(text))


@workflow
def large(n: int):
    values = big(n)
    last = values[n - 1]
    return [total(values), last]


@workflow
def objects(x: int):
    return unboxed(boxed(x))


@pytest.fixture(params=[True, False], ids=["inline", "workers"])
def runner(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalRunner:
    monkeypatch.chdir(tmp_path)
    return LocalRunner(inline=request.param)


def test_a_run_tells_its_status_outputs_events_and_tasks(runner: LocalRunner, tmp_path: Path) -> None:
    run = runner.run(sums, n=4)
    assert isinstance(run, Run) and run.ok and run.status == "succeeded" and run.id == "sums-1"
    assert run.outputs == {"result": 12}
    assert [event.seq for event in run.events] == list(range(1, len(run.events) + 1))
    assert run.events[0].kind == "run.submitted" and run.events[-1].kind == "run.finished"
    assert {row.task: row.state for row in run.tasks} == {
        **{f"double[{i}]": "succeeded" for i in range(4)},
        "total": "succeeded",
    }
    assert run.logs("double[2]") == "doubling 2\n"
    assert (tmp_path / ".penstock" / "state.db").exists()


def test_the_second_run_reuses_what_the_first_has_done(runner: LocalRunner) -> None:
    runner.run(sums, n=3)
    again = runner.run(sums, n=4)
    states = {row.task: row.state for row in again.tasks}
    assert [states[f"double[{i}]"] for i in range(4)] == ["reused", "reused", "reused", "succeeded"]
    assert again.outputs == {"result": 12}


def test_a_failure_is_told_and_can_be_raised(runner: LocalRunner) -> None:
    run = runner.run(fails)
    assert run.status == "failed" and not run.ok and run.failures == {"picky[1]": "ValueError: not two"}
    with pytest.raises(RunFailed, match="picky"):
        run.check()


def test_files_large_values_and_objects_pass_between_functions(runner: LocalRunner) -> None:
    assert runner.run(files, text="hello").outputs == {"result": "hello"}
    assert runner.run(large, n=50_000).outputs == {"result": [sum(range(50_000)), 49_999]}
    assert runner.run(objects, x=7).outputs == {"result": 7}


def test_a_workflow_runs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sums.run(n=2).outputs == {"result": 2}


def test_many_runs_at_once_with_warm_workers(tmp_path: Path) -> None:
    with LocalRunner(home=tmp_path / "home") as runner:
        runs = [runner.submit(sums, n=n) for n in range(1, 6)]
        assert [run.wait().outputs["result"] for run in runs] == [0, 2, 6, 12, 20]


def test_inside_a_running_event_loop_as_in_a_notebook(tmp_path: Path) -> None:
    async def cell() -> Any:
        return LocalRunner(home=tmp_path / "home", inline=True).run(sums).outputs

    assert asyncio.run(cell()) == {"result": 6}


def test_in_a_notebook_workflows_and_runs_draw_themselves(tmp_path: Path) -> None:
    assert sums._repr_svg_().lstrip().startswith("<svg")
    run = LocalRunner(home=tmp_path / "home", inline=True).run(sums)
    assert "sums-1" in run._repr_html_() and "<svg" in run._repr_html_()


def test_a_parameter_without_a_value_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="P408"):
        LocalRunner(home=tmp_path / "home").run(files)


def test_commands_read_inputs_and_leave_outputs(tmp_path: Path) -> None:
    count = ScriptJob(
        "count",
        "wc -c < /in/text | tr -d ' ' > $PENSTOCK_OUTPUTS/size; echo said; cp /in/text /out/copy",
        inputs=[WorkflowParam("text", str, "abcde", path="/in/text")],
        outputs=[WorkflowParam("size", int), WorkflowParam("copy", "file", path="/out/copy")],
    )
    show = ScriptJob(
        "show",
        "cat ${{ inputs.file }}",
        inputs={"file": count.outputs["copy"]},
        outputs=[WorkflowParam("text", str, path="/dev/stdout")],
    )
    flow = Workflow("commands", [count, show], outputs={"size": count.outputs["size"], "text": show.outputs["text"]})
    run = LocalRunner(home=tmp_path / "home").run(flow).check()
    assert run.outputs == {"size": 5, "text": "abcde"}
    assert run.logs("count") == "said\n"


def test_cancelling_from_python(tmp_path: Path) -> None:
    flow = Workflow("sleepy", [ScriptJob("sleep", "sleep 100")])
    with LocalRunner(home=tmp_path / "home") as runner:
        run = runner.submit(flow)
        run.cancel(now=True)
        assert run.wait(20).status == "cancelled"


def test_a_backend_of_ones_own_is_handed_in(tmp_path: Path) -> None:
    from penstock.testing import Fake

    made = []

    def lab(context: Any) -> Fake:
        made.append(Fake(context, lambda order: {"result": 42}))
        return made[0]

    run = LocalRunner(home=tmp_path / "home", on={"function": "lab"}, backends={"lab": lab}).run(sums, n=2)
    assert run.outputs == {"result": 42} and len(made[0].specs) == 3


@workflow
def lengths(source: Path):
    return read(source)


@workflow
def with_file(text: str):
    made = write(text)
    return [read(made), made]


def test_a_file_given_as_a_parameter_counts_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data.txt"
    for text, state in (("one", "succeeded"), ("two", "succeeded"), ("one", "reused")):
        data.write_text(text)
        run = LocalRunner(inline=True).run(lengths, source="data.txt").check()
        assert run.outputs == {"result": text} and run.tasks[0].state == state


def test_a_file_may_be_among_the_outputs_of_a_workflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, file = LocalRunner(inline=True).run(with_file, text="hello").check().outputs["result"]
    assert text == "hello" and file.read_text() == "hello"


def test_a_result_whose_blob_is_gone_is_made_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    LocalRunner(home=home, inline=True).run(large, n=50_000).check()
    for blob in (home / "artifacts").rglob("*"):
        if blob.is_file():
            blob.unlink()
    again = LocalRunner(home=home, inline=True).run(large, n=50_000).check()
    assert again.outputs["result"][1] == 49_999


@task
def several(n: int) -> list[Path]:
    paths = [Path(f"part-{i}.txt").absolute() for i in range(n)]
    for path in paths:
        path.write_text(path.name)
    return paths


@workflow
def over_files(n: int):
    return [read(path) for path in several(n)]


@pytest.mark.parametrize("how", ["a setting", "an answer"])
def test_commands_of_images_run_here_if_that_was_allowed_before(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CONTAINER_TOOL", str(tmp_path / "no-such-tool"))
    monkeypatch.delenv("PENSTOCK_ON_HOST", raising=False)
    flow = Workflow("flow", steps=[ContainerJob("main", "no.such.host/image", ["echo", "hello"])])
    refused = LocalRunner(home=tmp_path / "home").run(flow)
    assert refused.status == "failed" and "PENSTOCK_ON_HOST=yes" in refused.failures["main"]
    if how == "a setting":
        monkeypatch.setenv("PENSTOCK_ON_HOST", "yes")
    else:
        allow_host(LocalRunner(home=tmp_path / "home").settings, True, "")
    run = LocalRunner(home=tmp_path / "home").run(flow)
    assert run.ok and run.logs("main") == "hello\n"


def test_a_fan_out_over_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert LocalRunner(inline=True).run(over_files, n=3).check().outputs == {
        "result": [f"part-{i}.txt" for i in range(3)]
    }
