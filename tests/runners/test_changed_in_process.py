"""What a script or a notebook changes between two runs counts, as in plain Python: constants, tasks, values of modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock import FunctionJob, LocalRunner, Workflow, task, workflow

LIMIT = 5
SIZES = [1]


@task
def add(x: int) -> int:
    return x + LIMIT + len(SIZES)


@task
def total(xs: list[int]) -> int:
    return sum(xs)


@workflow
def inner(n: int):
    return add(n)


@workflow
def flow(n: int = 2):
    return total([add(x) for x in range(LIMIT)]) + inner(n)


def both(runner: LocalRunner, **params: int) -> int:
    """The result of the run, which is that of plain Python."""
    found = runner.run(flow, **params).result
    assert found == flow(**params)
    return found


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[LocalRunner]:
    with LocalRunner(home=tmp_path / "home", jobs=1) as found:
        yield found


def test_a_constant_that_tasks_and_the_workflow_read(runner: LocalRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = flow.graph
    first = both(runner)
    assert flow.graph is graph, "nothing has changed: it is not compiled again"
    monkeypatch.setitem(globals(), "LIMIT", 7)
    assert both(runner) != first
    monkeypatch.setitem(globals(), "LIMIT", 5)
    assert both(runner) == first


def test_a_task_and_a_called_workflow_that_are_defined_again(
    runner: LocalRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = both(runner)

    @task(cpu=1)
    def add(x: int) -> int:
        return 100 * x

    @workflow
    def inner(n: int):
        return total([n, n])

    monkeypatch.setitem(globals(), "add", add)
    second = both(runner)
    assert second != first
    assert any(step.resources for one in (flow.graph, *flow.graph.definitions) for step in one.steps)
    monkeypatch.setitem(globals(), "inner", inner)
    assert both(runner) != second


def test_options_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(step.resources for step in inner.graph.steps)
    monkeypatch.setitem(globals(), "add", add.options(cpu=2))
    assert all(step.resources for step in inner.graph.steps)


def test_jobs_of_the_object_form(runner: LocalRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    scale = [2]

    def double(x: int) -> int:
        return x * scale[0]

    flow = Workflow(
        "flow", steps=[job := FunctionJob("double", double, {"x": 4})], outputs={"y": job.outputs["result"]}
    )
    assert runner.run(flow).outputs == {"y": 8}
    scale[0] = 3
    assert runner.run(flow).outputs == {"y": 12}
    scale[0] = 2
    again = runner.run(flow)
    assert again.outputs == {"y": 8} and again.tasks[0].state == "reused"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, ModuleType]]:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "changed_cfg.py").write_text("LIMIT = 1\nCFG = {'k': [1]}\nNAMES = ['a']\n")
    (folder / "changed_flow.py").write_text(
        "import changed_cfg\n"
        "from changed_cfg import CFG\n"
        "from penstock import task, workflow\n\n"
        "@task\n"
        "def read(x: int) -> list:\n"
        "    return [x, changed_cfg.LIMIT, CFG['k'] == changed_cfg.CFG['k'], *CFG['k'], changed_cfg.NAMES]\n\n"
        "@workflow\n"
        "def flow(x: int = 0):\n"
        "    return read(x)\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module("changed_cfg"), importlib.import_module("changed_flow")
    for name in ("changed_cfg", "changed_flow"):
        del sys.modules[name]


def test_values_that_a_module_was_given_after_its_import(
    runner: LocalRunner, modules: tuple[ModuleType, ModuleType]
) -> None:
    """Workers import the module, and would find what stands in its file; the result was kept under the key of the other."""
    cfg, module = modules

    def run() -> Any:
        found = runner.run(module.flow).result
        assert found == module.flow()
        return found

    assert run() == [0, 1, True, 1, ["a"]]
    cfg.LIMIT = -2
    cfg.CFG["k"] = (3, 4)
    cfg.NAMES.append("é")
    assert run() == [0, -2, True, 3, 4, ["a", "é"]]
    cfg.LIMIT = 1
    cfg.CFG["k"] = [1]
    cfg.NAMES.pop()
    assert run() == [0, 1, True, 1, ["a"]]
