"""Many runs at the same time that need some of the same things: all end right, and every thing is made once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.runners.local import LocalRunner
from penstock.store.sql import open_store
from tests.engine import flows
from tests.engine.flows import KEYS, soak_keys, soak_result
from tests.support.engines import Mother, consistent, fold, kept, nobody_is_left, notes, nothing_is_held, picture, until


@pytest.fixture(scope="module")
def mother() -> Iterator[Mother]:
    made = Mother()
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "home") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def check(where: str, folder: Path, runs: int) -> None:
    started = notes(folder / "notes")
    again = {task: times for task, times in started.items() if times != 1}
    assert not again, f"made more than once: {again}"
    assert len([task for task in started if task.startswith("own ")]) == runs
    assert len([task for task in started if task.startswith("item ")]) == KEYS
    with open_store(where) as store:
        found = store.runs.newest()
    assert len(found) == runs
    for run in found:
        now = picture(where, folder / "notes", run.id)
        assert now is not None
        consistent(now)
        assert run.state == "succeeded" and run.outputs == {"result": soak_result(run.params["who"])}
        assert fold(now.events) == now.tasks
    nobody_is_left(folder / "home")
    nothing_is_held(where)


def params(folder: Path, who: int) -> dict[str, Any]:
    return {"notes": str(folder / "notes"), "go": str(folder / "go"), "who": who, "keys": soak_keys(who)}


def all_wait(where: str, folder: Path, runs: int) -> None:
    """One run has begun the gate and all others wait for it; then it opens."""

    def waiting() -> bool:
        with open_store(where) as store:
            states = [row.state for run in store.runs.newest() if (row := store.runs.task(run.number, "gate"))]
        return sorted(states) == ["running", *["waiting"] * (runs - 1)]

    until(f"{runs} runs wait for one gate", waiting)
    (folder / "go").touch()


@pytest.mark.long
@pytest.mark.parametrize("inline", [True, False], ids=["inline", "workers"])
def test_a_hundred_runs_of_one_process(where: str, tmp_path: Path, inline: bool) -> None:
    with kept(LocalRunner(home=tmp_path / "home", store=where, inline=inline, jobs=2)) as runner:
        made = [runner.submit(flows.soak, **params(tmp_path, who)) for who in range(100)]
        all_wait(where, tmp_path, 100)
        deadline = time.monotonic() + 60
        for run in made:
            run.wait(max(0.0, deadline - time.monotonic()))
        assert {run.status for run in made} == {"succeeded"}
    check(where, tmp_path, 100)


@pytest.mark.long
def test_ten_runs_in_each_of_six_processes(where: str, tmp_path: Path, mother: Mother) -> None:
    home, pids = tmp_path / "home", []
    for number in range(6):
        on = {"function": "inline"} if number % 3 == 2 else {}
        every = [params(tmp_path, who) for who in range(number * 10, number * 10 + 10)]
        pids.append(mother.start(home, "soak", *every, store=where, on=on, again=False))
    all_wait(where, tmp_path, 60)
    assert [mother.wait(pid, 60) for pid in pids] == [0] * 6, Path(f"{home}.said").read_text()
    check(where, tmp_path, 60)
