"""Two who need the same key at the same moment: one execution, and both get what comes of it. Between processes, between the
runs of one process, and within a run; whatever happens to the one that started it. On SQLite and on PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from penstock import Cache, FunctionJob, ScriptJob, Workflow, WorkflowParam
from penstock.runners.local import LocalRunner
from penstock.service import requests, run_records
from penstock.store.sql import open_store
from tests.engine import flows
from tests.support.engines import (
    Mother,
    Picture,
    consistent,
    kept,
    kill,
    nobody_is_left,
    notes,
    nothing_is_held,
    penstock,
    picture,
    rows,
    until,
)
from tests.support.source import module


@pytest.fixture(scope="module")
def mother() -> Iterator[Mother]:
    made = Mother()
    yield made
    made.close()


class Place:
    """A store and a home, and what the tasks there have noted."""

    def __init__(self, folder: Path, store: str, mother: Mother) -> None:
        self.home = folder / "home"
        self.store = store or str(self.home)
        self.mother = mother
        self.notes = folder / "notes"
        self.go = folder / "go"

    def params(self, who: str = "") -> dict[str, str]:
        return {"notes": str(self.notes), "go": str(self.go), "who": who}

    def process(self, who: str, flow: str = "shared", **options: Any) -> int:
        """A run in a process of its own."""
        return self.mother.start(self.home, flow, self.params(who), store=self.store, again=False, **options)

    def runner(self, **options: Any) -> LocalRunner:
        return LocalRunner(home=self.home, store=self.store, jobs=4, **options)

    def kept(self, **options: Any) -> AbstractContextManager[LocalRunner]:
        return kept(self.runner(**options))

    def ends(self, pid: int) -> int:
        code = self.mother.wait(pid, 30)
        assert code is not None, "it does not end"
        return code

    def state(self, id: str, task: str = "heavy") -> str:
        found = self.find(id)
        return "" if found is None else found.tasks.get(task, "")

    def find(self, id: str) -> Picture | None:
        if not self.store.startswith("postgres") and not Path(self.store, "state.db").exists():
            return None
        return picture(self.store, self.notes, id)

    def until(self, id: str, state: str, task: str = "heavy") -> None:
        until(f"{task} of {id} is {state}", lambda: self.state(id, task) == state)

    def run(self, id: str) -> Picture:
        found = self.find(id)
        assert found is not None
        consistent(found)
        return found

    def start_two(self, flow: str = "shared", **options: Any) -> tuple[int, int]:
        """The first has begun the task, the second waits for it."""
        name = flow.replace("_", "-")
        first = self.process("one", flow, **options)
        until("the first has begun", lambda: self.times() == 1)
        second = self.process("two", flow, **options)
        self.until(f"{name}-2", "waiting")
        return first, second

    def open(self) -> None:
        self.go.touch()

    def times(self, task: str = "heavy") -> int:
        return notes(self.notes)[task]

    def nothing_is_left(self) -> None:
        nobody_is_left(self.home)
        nothing_is_held(self.store)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path, mother: Mother) -> Place:
    return Place(tmp_path, "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url")), mother)


def origin(found: Picture, task: str = "heavy") -> dict[str, str]:
    """Where the result of a task came from, by its event."""
    (event,) = (event for event in found.events if event.kind == "task.succeeded" and event.task == task)
    return dict(event.data["reused"])


# -- two processes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flow", ["shared", "shared_command"])
def test_two_processes_one_execution_and_the_second_says_whose(place: Place, flow: str) -> None:
    first, second = place.start_two(flow)
    name = flow.replace("_", "-")
    waiting = next(event for event in place.run(f"{name}-2").events if event.kind == "task.waiting")
    assert waiting.data["reason"]["why"] == "shared" and waiting.data["reason"]["run"] == f"{name}-1"
    place.open()
    assert (place.ends(first), place.ends(second)) == (0, 0)
    assert place.times() == 1
    assert [place.run(f"{name}-{n}").run.outputs for n in (1, 2)] == [{"result": 42}] * 2
    assert place.state(f"{name}-1") == "succeeded" and place.state(f"{name}-2") == "reused"
    assert origin(place.run(f"{name}-2")) == {"run": f"{name}-1", "task": "heavy"}
    place.nothing_is_left()


def test_a_function_inside_the_engine_waits_for_the_one_that_another_process_runs(place: Place) -> None:
    first = place.process("one")
    place.until("shared-1", "running")
    second = place.process("two", on={"function": "inline"})
    place.until("shared-2", "waiting")
    place.open()
    assert (place.ends(first), place.ends(second)) == (0, 0)
    assert place.times() == 1
    place.nothing_is_left()


def test_the_process_that_started_it_is_killed_and_the_other_takes_over(place: Place) -> None:
    first, second = place.start_two()
    kill(first)
    until("the other has started it", lambda: place.times() == 2)
    place.until("shared-2", "running")
    place.open()
    assert place.ends(second) == 0
    assert place.run("shared-2").run.outputs == {"result": 42}
    place.nothing_is_left()
    code, said = penstock(place.home.parent, "resume", "shared-1", home=place.home, store=place.store)
    assert code == 0, said
    assert place.times() == 2 and origin(place.run("shared-1")) == {"run": "shared-2", "task": "heavy"}


def test_the_process_that_waits_is_killed_and_the_first_does_not_mind(place: Place) -> None:
    first, second = place.start_two()
    kill(second)
    place.ends(second)
    place.open()
    assert place.ends(first) == 0
    third = place.process("three")
    assert place.ends(third) == 0
    assert place.times() == 1
    place.nothing_is_left()


def cancel(place: Place, id: str) -> None:
    with open_store(place.store) as store:
        requests.ask(store, run_records.find(store, id), "cancel", {"message": "cancelled by a test"})


@pytest.mark.parametrize("flow", ["shared", "shared_command"])
def test_the_run_that_started_it_is_cancelled_and_the_other_still_gets_it(place: Place, flow: str) -> None:
    first, second = place.start_two(flow)
    name = flow.replace("_", "-")
    cancel(place, f"{name}-1")
    assert place.ends(first) == 3
    assert place.run(f"{name}-1").run.state == "cancelled"
    until("the other has started it", lambda: place.times() == 2)
    place.open()
    assert place.ends(second) == 0
    assert place.run(f"{name}-2").run.outputs == {"result": 42}
    place.nothing_is_left()


def test_the_run_that_waits_is_cancelled_and_the_first_goes_on(place: Place) -> None:
    first, second = place.start_two()
    cancel(place, "shared-2")
    assert place.ends(second) == 3
    place.open()
    assert place.ends(first) == 0
    assert place.times() == 1
    place.nothing_is_left()


@pytest.mark.parametrize("flow", ["shared", "shared_command"])
def test_a_failure_is_decided_once_and_told_to_all(place: Place, flow: str) -> None:
    first, second = place.start_two(flow)
    name = flow.replace("_", "-")
    Path(f"{place.go}.fail").touch()
    place.open()
    assert (place.ends(first), place.ends(second)) == (3, 3)
    assert place.times() == 1
    (told,) = (event for event in place.run(f"{name}-2").events if event.kind == "task.failed")
    (own,) = (event for event in place.run(f"{name}-1").events if event.kind == "task.failed")
    assert told.data["shared"] == {"run": f"{name}-1", "task": "heavy"}
    assert told.data["message"] == own.data["message"]
    place.nothing_is_left()
    # It is not remembered: who comes later tries again.
    Path(f"{place.go}.fail").unlink()
    assert place.ends(place.process("three", flow)) == 0
    assert place.times() == 2


def test_an_impure_step_is_never_shared(place: Place) -> None:
    pids = [place.process(who, "unshared") for who in ("one", "two")]
    until("both have started it", lambda: place.times("alone") == 2)
    place.open()
    assert [place.ends(pid) for pid in pids] == [0, 0]
    assert place.ends(place.process("three", "unshared")) == 0
    assert place.times("alone") == 3
    place.nothing_is_left()


def test_an_engine_that_was_held_for_dead_and_forgotten_still_gets_what_it_waits_for(place: Place) -> None:
    first, second = place.start_two()
    with open_store(place.store) as store:
        run = store.runs.by_id("shared-2")
        assert run is not None and run.engine is not None
        store.peers.forget(run.engine)
    place.open()
    assert (place.ends(first), place.ends(second)) == (0, 0)


# -- one process ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flow", ["shared", "shared_command"])
def test_two_runs_of_one_process_share(place: Place, flow: str) -> None:
    made: Any = getattr(flows, flow)
    work = made if hasattr(made, "graph") else made()
    with place.kept() as runner:
        one = runner.submit(work, **place.params("one"))
        place.until(one.id, "running")
        two = runner.submit(work, **place.params("two"))
        place.until(two.id, "waiting")
        place.open()
        assert one.wait(30).ok and two.wait(30).ok
    assert place.times() == 1
    assert one.outputs == two.outputs == {"result": 42}
    assert origin(place.run(two.id)) == {"run": one.id, "task": "heavy"}
    place.nothing_is_left()


def test_two_tasks_of_one_run_share(place: Place) -> None:
    with place.kept() as runner:
        run = runner.submit(flows.twice, **place.params())
        until(
            "one runs, one waits",
            lambda: {place.state(run.id), place.state(run.id, "heavy-2")} == {"running", "waiting"},
        )
        place.open()
        assert run.wait(30).outputs == {"result": 84}
    assert place.times() == 1
    assert sorted(row.state for row in run.tasks) == ["reused", "succeeded", "succeeded"]


def test_two_tasks_of_one_run_share_inside_the_engine(place: Place) -> None:
    place.open()
    run = place.runner(inline=True).run(flows.twice, **place.params())
    assert run.outputs == {"result": 84} and place.times() == 1
    place.nothing_is_left()


@pytest.mark.parametrize("flow", ["shared", "shared_command"])
def test_in_one_process_the_run_that_started_it_is_cancelled_and_it_goes_on_for_the_other(
    place: Place, flow: str
) -> None:
    made: Any = getattr(flows, flow)
    work = made if hasattr(made, "graph") else made()
    with place.kept() as runner:
        one = runner.submit(work, **place.params("one"))
        place.until(one.id, "running")
        two, three = (runner.submit(work, **place.params(who)) for who in ("two", "three"))
        place.until(two.id, "waiting")
        place.until(three.id, "waiting")
        one.cancel()
        assert one.wait(30).status == "cancelled"
        place.until(two.id, "running")
        two.cancel()
        assert two.wait(30).status == "cancelled"
        place.open()
        assert three.wait(30).ok
    assert place.times() == 1, "it was started once and went on for whoever still wanted it"
    place.nothing_is_left()


def test_in_one_process_a_failure_is_told_to_all(place: Place) -> None:
    with place.kept() as runner:
        one, two = (runner.submit(flows.shared, **place.params(who)) for who in ("one", "two"))
        until("one runs, one waits", lambda: {place.state(run.id) for run in (one, two)} == {"running", "waiting"})
        Path(f"{place.go}.fail").touch()
        place.open()
        assert one.wait(30).status == two.wait(30).status == "failed"
    assert place.times() == 1
    told = [event.data.get("shared") for run in (one, two) for event in run.events if event.kind == "task.failed"]
    assert told == [None, {"run": one.id, "task": "heavy"}]
    place.nothing_is_left()


def stubborn(notes: str, go: str) -> int:
    import signal

    from tests.engine.flows import note, wait

    def no(*_: object) -> None:
        note(notes, "asked")
        wait(f"{go}.end")
        raise SystemExit(1)

    signal.signal(signal.SIGTERM, no)
    note(notes, "stubborn")
    wait(go)
    return 42


def test_who_comes_while_the_first_is_being_stopped_does_not_lose_its_followers(place: Place) -> None:
    """The first takes its time to end; the second has started the key anew, and a third waits for the second."""
    job = FunctionJob("heavy", stubborn, {"notes": str(place.notes), "go": str(place.go)})
    work = Workflow("stubborn", [job], params=[WorkflowParam("who", str)], outputs={"result": job.outputs["result"]})
    with place.kept() as runner:
        one = runner.submit(work, who="one")
        place.until(one.id, "running")
        until("it has begun", lambda: place.times("stubborn") == 1)
        one.cancel()
        until("it was asked to end", lambda: place.times("asked") == 1)
        two = runner.submit(work, who="two")
        place.until(two.id, "running")
        three = runner.submit(work, who="three")
        place.until(three.id, "waiting")
        Path(f"{place.go}.end").touch()
        assert one.wait(30).status == "cancelled"
        with open_store(place.store) as store:
            assert rows(store, "leases"), "another engine must still see that the key is taken"
        place.open()
        assert two.wait(30).ok and three.wait(10).ok
    assert place.times("stubborn") == 2
    place.nothing_is_left()


# -- later ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inline", [False, True], ids=["workers", "inline"])
def test_a_later_run_reuses_and_fresh_runs_again(place: Place, inline: bool) -> None:
    place.open()
    first = place.runner(inline=inline).run(flows.quick, **place.params("one")).check()
    second = place.runner(inline=inline).run(flows.quick, **place.params("two")).check()
    assert place.times("light") == 1
    assert origin(place.run(second.id), "light") == {"run": first.id, "task": "light"}
    third = place.runner(inline=inline, fresh=True).run(flows.quick, **place.params("two")).check()
    assert place.times("light") == 2 and place.times("mine two") == 2
    fourth = place.runner(inline=inline).run(flows.quick, **place.params("two")).check()
    assert place.times("light") == 2
    assert origin(place.run(fourth.id), "light") == {"run": third.id, "task": "light"}
    place.nothing_is_left()


def test_what_an_engine_has_computed_inside_itself_is_not_held_by_it(place: Place) -> None:
    """An engine that lives on must not keep others from computing the key afresh."""
    with place.kept(inline=True) as runner:
        runner.run(flows.quick, **place.params("one")).check()
        nothing_is_held(place.store, engines=False)
        assert place.runner(fresh=True).run(flows.quick, **place.params("two")).wait(30).ok
    assert place.times("light") == 2


@pytest.mark.parametrize("inline", [False, True], ids=["workers", "inline"])
def test_a_result_lives_as_long_as_its_step_says(place: Place, inline: bool) -> None:
    def aged(ttl: float) -> Workflow:
        job = FunctionJob("light", flows.light, {"notes": str(place.notes), "go": "x"}, cache=Cache(ttl=ttl))
        return Workflow("aged", [job], outputs={"result": job.outputs["result"]})

    with place.kept(inline=inline) as runner:
        for ttl, times in ((3600, 1), (3600, 1), (0, 2), (3600, 2), (0, 3)):
            assert runner.run(aged(ttl)).check().outputs == {"result": 42}
            assert place.times("light") == times
        nothing_is_held(place.store, engines=False)


BODY = """
@task
def light(notes: str) -> int:
    with open(notes, "a") as file:
        file.write("light\\n")
    return VALUE

@workflow
def flow(notes: str):
    return light(notes)
"""


def test_a_function_with_another_body_is_another_key(place: Place) -> None:
    results = []
    for value in ("42", "43", "42"):
        flow = module(BODY.replace("VALUE", value)).flow
        results.append(place.runner(inline=True).run(flow, notes=str(place.notes)).check().outputs["result"])
    assert results == [42, 43, 42]
    assert place.times("light") == 2


def test_a_command_with_another_text_is_another_key(place: Place) -> None:
    def flow(text: str) -> Workflow:
        job = ScriptJob(
            "a", f"echo a >> {place.notes}; echo {text} > $PENSTOCK_OUTPUTS/n", outputs=[WorkflowParam("n", str)]
        )
        return Workflow("flow", [job], outputs={"result": job.outputs["n"]})

    results = [place.runner().run(flow(text)).check().outputs["result"].strip() for text in ("x", "y", "x")]
    assert results == ["x", "y", "x"]
    assert place.times("a") == 2
