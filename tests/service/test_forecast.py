"""What `plan` says a run would do: reuse, share or run, and why."""

from __future__ import annotations

from pathlib import Path

from penstock import LocalRunner
from penstock.graph.model import Workflow
from penstock.plan.make import make
from penstock.service.views.forecast import Forecast, forecast
from penstock.store.sql import open_store
from tests.support.source import module

FLOW = """
@task
def load(n: int) -> list[int]:
    return list(range(n))

@task(cache=False)
def now() -> int:
    return 1

@workflow
def flow(n: int = 3):
    xs = load(n)
    now()
    return total([inc(x) for x in xs])
"""


def looked(graph: Workflow, home: Path, **params: int) -> Forecast:
    runner = LocalRunner(home=home)
    with open_store(str(home)) as store:
        return forecast(make(graph, params), store, runner.settings)


def test_before_the_first_run_everything_runs(tmp_path: Path) -> None:
    found = looked(module(FLOW).flow.graph, tmp_path)
    assert {path: one.word() for path, one in found.steps.items()} == {
        "load": "run",
        "now": "run",
        "inc": "run",
        "total": "run",
    }
    assert found.steps["load"].why == ["not run before"] and found.steps["inc"].why == ["a step before it runs"]


def test_after_a_run_what_is_unchanged_is_reused_and_the_rest_says_why(tmp_path: Path) -> None:
    made = module(FLOW)
    LocalRunner(home=tmp_path, inline=True).run(made.flow).check()
    found = looked(made.flow.graph, tmp_path)
    assert found.against == "flow-1"
    assert {path: one.word() for path, one in found.steps.items()} == {
        "load": "reuse",
        "now": "run",
        "inc": "reuse",
        "total": "reuse",
    }
    assert found.steps["now"].why == ["its results are not stored (cache is off)"]
    changed = looked(made.flow.graph, tmp_path, n=5)
    assert changed.steps["load"].why == ["its inputs have changed since flow-1"]


def test_items_that_are_new_run_and_the_others_are_reused(tmp_path: Path) -> None:
    source = "@workflow\ndef flow(xs: list[int]):\n    return total([inc(x) for x in xs])\n"
    made = module(source)
    LocalRunner(home=tmp_path, inline=True).run(made.flow, xs=[1, 2, 3]).check()
    runner = LocalRunner(home=tmp_path)
    with open_store(str(tmp_path)) as store:
        found = forecast(make(made.flow.graph, {"xs": [1, 9, 3, 8]}), store, runner.settings)
    assert found.steps["inc"].word() == "reuse 2, run 2" and found.steps["total"].word() == "run"


def test_changed_code_is_named(tmp_path: Path) -> None:
    LocalRunner(home=tmp_path, inline=True).run(module(FLOW).flow).check()
    found = looked(module(FLOW.replace("range(n)", "range(n + 1)")).flow.graph, tmp_path)
    assert found.steps["load"].why == ["its code or command has changed since flow-1"]


def test_what_another_run_computes_now_is_shared(tmp_path: Path) -> None:
    graph = module(FLOW).flow.graph
    LocalRunner(home=tmp_path, inline=True).run(graph).check()
    with open_store(str(tmp_path)) as store:
        key = store.runs.task(1, "load").key  # type: ignore[union-attr]
        store.journal.begin()
        store.results.claim([(key, 1, "load")], "somebody", fresh=True)
        store.journal.commit()
        store.maintenance.delete_runs([1], 1e12)
        found = forecast(make(graph, {}), store, LocalRunner(home=tmp_path).settings)
    assert found.steps["load"].word() == "share"
