"""What the steps and tasks of a run gave, from the Run that executed them and from a recorded one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import LocalRunner, Run, RunFailed, ScriptJob, Workflow, WorkflowParam, task, workflow
from penstock.errors import NotFound, PlanError


@task
def numbers(n: int) -> list[int]:
    print("numbers", n)
    return list(range(n))


@task
def square(x: int) -> int:
    print("square", x)
    if x == 7:
        raise ValueError("seven")
    return x * x


@task
def total(xs: list[int]) -> int:
    return sum(xs)


@task
def note(n: int) -> Path:
    path = Path("note.txt").absolute()
    path.write_text(str(n))
    return path


@workflow
def squares(xs: list[int], more: int = 1) -> list[int]:
    ys = [square(x) for x in xs]
    return [total(ys), more]


@workflow
def everything(n: int = 4):
    xs = numbers(n)
    ys = [square(x) for x in xs]
    both = squares(xs, n)
    y = total(ys)
    while y < 100:
        y = total([y, 50])
    if y > 1000:
        square(1)
    written = note(both[1])
    return written


Opened = Callable[[Run], Run]


@pytest.fixture(params=["live", "recorded"])
def again(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """The Run that executed it, or one that only the store knows of."""
    monkeypatch.chdir(tmp_path)
    return (lambda run: run) if request.param == "live" else (lambda run: penstock.open_run(run.id))


def test_steps_and_tasks_have_results_logs_and_states(again: Opened) -> None:
    run = again(LocalRunner(inline=True).run(everything, 4))
    assert run.result.read_text() == "4" and run.outputs["result"] == run.result
    assert run["numbers"].result == [0, 1, 2, 3] and run["numbers"].logs == "numbers 4\n"
    step = run["square"]
    assert step.result == [0, 1, 4, 9] and step.outputs == {"result": [0, 1, 4, 9]} and len(step) == 4
    assert (step.status, step.ok, step.error) == ("succeeded", True, None)
    assert [one.result for one in step] == [0, 1, 4, 9] and step[-1].path == "square[3]"
    assert (step[3].result, step[3].logs, step[3].status) == (9, "square 3\n", "succeeded")
    assert step[3].seconds is not None and step.seconds is not None and step.seconds >= step[3].seconds
    assert run["square[2]"].result == 4
    assert run["square-2"].status == "skipped" and "does not hold" in (run["square-2"].error or "")


def test_called_workflows_and_while_loops_have_results(again: Opened) -> None:
    run = again(LocalRunner(inline=True).run(everything, 4))
    assert run["squares"].result == [14, 4]  # what it returns: of a step in it, and of what it was given
    assert run["squares/square"].result == [0, 1, 4, 9] and run["squares/total"].result == 14
    rounds = run["while-y"]
    assert rounds.result == 114 and [one.result for one in rounds] == [64, 114]
    assert rounds[0].result == 64 and rounds[-1].path == "while-y#2"


def test_a_reused_task_has_the_result_and_the_log_of_where_it_ran(again: Opened) -> None:
    LocalRunner(inline=True).run(everything, 4)
    run = again(LocalRunner(inline=True).run(everything, 4))
    assert run["numbers"].status == "reused" and run["numbers"].result == [0, 1, 2, 3]
    assert run["square"][3].logs == "square 3\n" and run["square"].result == [0, 1, 4, 9]


def test_a_failure_is_raised_by_result_and_told_by_error(again: Opened) -> None:
    run = again(LocalRunner(inline=True).run(everything, 8))
    assert run.status == "failed" and "square[7]" in run.failures
    assert run["square"].status == "failed" and run["square"].error == "ValueError: seven"
    assert run["square"][7].error == "ValueError: seven" and run["square"][6].result == 36
    for what in (run, run["square"], run["square"][7]):
        with pytest.raises(RunFailed, match="seven"):
            _ = what.result
    assert run["note"].status == "omitted"
    with pytest.raises(RunFailed):
        _ = run["note"].result


def test_what_is_not_there_is_said_with_what_is(again: Opened) -> None:
    run = again(LocalRunner(inline=True).run(everything, 2))
    with pytest.raises(NotFound, match='Did you mean "square"'):
        run["sqare"]
    with pytest.raises(IndexError, match="has no task 5; it has 2"):
        run["square"][5]  # type: ignore[index]
    with pytest.raises(NotFound, match="P505"):
        penstock.open_run("nope-1")


def test_several_outputs_have_names(again: Opened) -> None:
    split = ScriptJob(
        "split",
        "echo 3 > $PENSTOCK_OUTPUTS/a; echo 4 > $PENSTOCK_OUTPUTS/b",
        outputs=[WorkflowParam("a", int), WorkflowParam("b", int)],
    )
    made = Workflow("parts", [split], outputs={"a": split.outputs["a"], "b": split.outputs["b"]})
    run = again(LocalRunner().run(made))
    assert run["split"].outputs == {"a": 3, "b": 4} == run.outputs
    with pytest.raises(NotFound, match="P580"):
        _ = run["split"].result


def test_the_last_run_and_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [everything.run(n) for n in (2, 3)]
    assert penstock.open_run().id == runs[1].id and penstock.open_run("@2").id == runs[0].id
    assert penstock.open_run(home=tmp_path / ".penstock").wait().status == "succeeded"


def test_parameters_by_position_as_in_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call: Any = squares.run
    assert call([1, 2], 9).result == [5, 9] == squares([1, 2], 9)
    with pytest.raises(PlanError, match="P484"):
        call([1], 2, 3)
    with pytest.raises(PlanError, match="P484"):
        call([1], xs=[2])


def test_a_recorded_run_can_be_waited_for_and_cancelled(tmp_path: Path) -> None:
    pause = ScriptJob("pause", "sleep 60")
    with LocalRunner(home=tmp_path / "home") as runner:
        run = runner.submit(Workflow("slow", [pause]))
        other = penstock.open_run(run.id, home=tmp_path / "home")
        assert other.wait(0.05).status in ("running", "stopped") and other.outputs == {}
        other.cancel(now=True)
        assert other.wait().status == "cancelled"
