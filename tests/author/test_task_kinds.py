"""Tasks that are not plain functions, and files with more than one thing in them: run as they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import LocalRunner
from penstock.author.load import load_graph, load_module
from penstock.errors import AuthorError, UserError
from penstock.service import workflows
from tests.support.engines import penstock

KINDS = """
import asyncio
from collections.abc import AsyncIterator, Iterator
from penstock import task, workflow

@task
async def fetch(n: int) -> int:
    await asyncio.sleep(0)
    return n + 1

@task
def numbers(n: int) -> Iterator[int]:
    for i in range(n):
        yield i * 10

@task
async def stream(n: int) -> AsyncIterator[int]:
    for i in range(n):
        yield i

double = task(lambda x: 2 * x)
triple, quad = task(lambda x: 3 * x, name="triple"), task(lambda x: 4 * x, name="quad")

class Model:
    def __init__(self, rate): self.rate = rate

    @task
    def train(self, x: int) -> float:
        return self.rate * x

    @staticmethod
    @task
    def clean(x: int) -> int:
        return abs(x)

small, big = Model(0.5), Model(3.0)

@workflow
def flow(n: int = 3):
    a = fetch(n)
    xs = numbers(n)
    each = [fetch(x) for x in xs]
    return [a, xs, each, stream(n), double(a), triple(a), quad(a), small.train(n), big.train(n), Model.clean(-n)]
"""
ANSWER = [4, [0, 10, 20], [1, 11, 21], [0, 1, 2], 8, 12, 16, 1.5, 9.0, 3]


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "workers"])
def test_every_kind_of_task_gives_the_same_called_and_run(tmp_path: Path, inline: bool) -> None:
    file = tmp_path / "kinds.py"
    file.write_text(KINDS)
    flow = load_module(file).flow
    assert flow(3) == ANSWER
    run = LocalRunner(home=tmp_path / "home", inline=inline).run(flow, n=3).check()
    assert run.outputs["result"] == ANSWER
    types = {step.name: str(step.outputs[0].type) for step in flow.graph.steps}
    assert (types["fetch"], types["numbers"], types["stream"], types["train"]) == (
        "int",
        "list[int]",
        "list[int]",
        "float",
    )


def test_methods_of_different_objects_are_different_tasks(tmp_path: Path) -> None:
    file = tmp_path / "kinds.py"
    file.write_text(KINDS)
    steps = {step.name: step for step in load_module(file).flow.graph.steps}
    assert steps["train"].action.code != steps["train-2"].action.code  # type: ignore[union-attr]
    assert steps["triple"].action.code != steps["quad"].action.code  # type: ignore[union-attr]


def test_a_lambda_without_a_name_is_refused_with_the_way_to_give_one() -> None:
    from penstock import task

    with pytest.raises(AuthorError, match="P305.*name="):
        [task(lambda x: x)]


FILE = """
from penstock import task, workflow

@task
def f(x: int) -> int:
    return x + 1

@task(nope=1)
def bad(x):
    return x

@workflow
def inner(x: int):
    return f(x)

@workflow
def outer(x: int = 1):
    return inner(inner(x))
"""
WRONG = """
@workflow
def wrong(x: int = 1):
    return bad(x)

@workflow
def outermost(x: int = 1):
    return [outer(x), wrong(x)]
"""


def test_the_workflow_that_no_other_calls_is_the_one_that_runs(tmp_path: Path) -> None:
    file = tmp_path / "several.py"
    file.write_text(FILE)
    assert load_graph(file).name == "outer"
    file.write_text(FILE + WRONG.partition("@workflow\ndef outermost")[0])
    with pytest.raises(AuthorError, match="P303.*outer, wrong"):
        load_graph(file)


def test_one_wrong_function_does_not_hide_the_others(tmp_path: Path) -> None:
    file = tmp_path / "one_wrong.py"
    file.write_text(FILE + WRONG)
    assert load_graph(file, "outer").name == "outer"
    for name in ("wrong", None):
        with pytest.raises(AuthorError, match="P305.*nope"):
            load_graph(file, name)


def test_a_module_of_a_package_is_found_by_its_name_and_imports_its_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "shop", tmp_path / "shop" / "flows"):
        folder.mkdir()
        (folder / "__init__.py").touch()
    (tmp_path / "shop" / "prices.py").write_text("def price(x): return x * 7\n")
    (tmp_path / "shop" / "flows" / "helper.py").write_text("from ..prices import price\n")
    flow = FILE.replace("import task, workflow", "import task, workflow\nfrom .helper import price")
    (tmp_path / "shop" / "flows" / "daily.py").write_text(flow.replace("x + 1", "price(x)"))
    assert workflows.load("shop.flows.daily").name == workflows.load("shop/flows/daily.py:outer").name == "outer"
    for target in (["shop.flows.daily"], ["-m", "shop.flows.daily:outer"], ["shop/flows/daily.py", "--fresh"]):
        code, said = penstock(tmp_path, "run", *target, "-p", "x=2")
        assert (code, "result: 98" in said) == (0, True), said
    with pytest.raises(UserError, match="P501.*no module"):
        workflows.of_module("shop.nothing")
