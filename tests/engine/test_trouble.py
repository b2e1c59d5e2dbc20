"""A store that is full, read-only, cut off or restarted, a clock that is put back, a run that somebody else has taken: the
engine says what is wrong or goes on by itself, and nothing that was recorded is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.blobs import Blobs
from penstock.backends.fake import FakeBackend
from penstock.engine.active_run import ActiveRun
from penstock.engine.blueprint import blueprints
from penstock.engine.engine import Engine
from penstock.graph.links import links_of
from penstock.graph.model import Backoff, Edge, Retry, Script, Step, Suspend, Workflow
from penstock.runners.local import LocalRunner
from penstock.service.hosting import Host
from penstock.service.run_records import RunConflict, watch_owner
from penstock.service.runs import go_on, own
from penstock.service.submission import Submission
from penstock.settings import read
from penstock.store.records import Disconnected
from penstock.store.sql import open_store
from penstock.testing import VirtualClock, run_virtually
from tests.engine import flows
from tests.store.test_trouble import small_disk_at
from tests.support.engines import (
    Command,
    Picture,
    consistent,
    follows,
    kept,
    nobody_is_left,
    notes,
    nothing_is_held,
    penstock,
    picture,
    processes,
    until,
)
from tests.support.postgres import Server

FLOW = """
import os, time
from penstock import ScriptJob, task, workflow

def note(line):
    fd = os.open("notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{line}\\n".encode())
    os.close(fd)

def wait(name):
    deadline = time.monotonic() + 30
    while not os.path.exists(name) and time.monotonic() < deadline:
        time.sleep(0.005)

@task
def first() -> int:
    note("first")
    return 1

@task
def slow(x: int) -> int:
    note("slow")
    wait("go")
    return x + 1

@task
def last(x: int) -> int:
    note("last")
    return x + 1

long = ScriptJob("long", "echo long >> notes; i=0; while [ ! -e end ] && [ $i -lt 3000 ]; do sleep 0.01; i=$((i+1)); done")

@workflow
def flow():
    long()
    return last(slow(first()))
"""


class Place:
    """A folder with flow.py in it, and its store."""

    def __init__(self, folder: Path, home: Path | None = None, store: str = "") -> None:
        self.folder = folder
        self.home = home or folder / ".penstock"
        self.url = store
        self.store = store or str(self.home)
        (folder / "flow.py").write_text(FLOW)

    def command(self, *words: str) -> Command:
        return Command(self.folder, *words, home=self.home, store=self.url)

    def penstock(self, *words: str) -> tuple[int, str]:
        return penstock(self.folder, *words, home=self.home, store=self.url)

    def begun(self, *words: str, times: int = 1) -> Command:
        """At the moment when `slow` and `long` are running."""
        command = self.command(*(words or ("run", "flow.py")))

        def running() -> bool:
            started = notes(self.folder / "notes")
            return (started["slow"] >= times and started["long"] >= times) or command.process.poll() is not None

        until("slow and long are running", running)
        assert command.process.poll() is None, command.text
        return command

    def look(self) -> Picture:
        found = picture(self.store, self.folder / "notes")
        assert found is not None
        consistent(found)
        return found

    def go(self) -> None:
        (self.folder / "go").touch()

    def end(self) -> None:
        (self.folder / "end").touch()

    def went_on(self, before: Picture) -> Picture:
        end = self.look()
        follows(before, end)
        assert end.run.number == 1 and end.run.state == "succeeded" and end.run.outputs == {"result": 3}
        assert end.started["first"] == end.started["last"] == 1
        nobody_is_left(self.home)
        nothing_is_held(self.store)
        return end


# -- no room, no writing ----------------------------------------------------------------------------------------------


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), open(disk / "rest", "wb", buffering=0) as file:
        for size in (1 << 16, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size):
                    pass


def test_a_disk_that_is_full_in_the_middle_ends_the_run_with_a_clear_error_and_it_goes_on_later(tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "4m") as disk:
        place = Place(tmp_path, home=disk / ".penstock")
        command = place.begun()
        before = place.look()
        fill(disk)
        place.go()
        assert command.code() == 1, command.text
        assert "error[P604]" in command.text and "is full" in command.text and "penstock resume" in command.text
        assert "Traceback" not in command.text
        nobody_is_left(place.home)
        after = place.look()
        follows(before, after)
        assert after.done == {"first"}
        code, said = place.penstock("resume", "@")
        assert code == 1 and "P604" in said and "Traceback" not in said
        (disk / "rest").unlink()
        place.end()
        code, said = place.penstock("resume", "@")
        assert code == 0, said
        place.went_on(after)


def test_a_disk_that_has_become_read_only_refuses_to_go_on_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "4m") as disk:
        place = Place(tmp_path, home=disk / ".penstock")
        place.begun().kill()
        until("the long command is gone or found", lambda: place.look())
        for pid in processes(place.home):
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(pid, 9)
        nobody_is_left(place.home)
        before = place.look()
        until("nobody writes to it", lambda: _remount(disk, "ro"))
        code, said = place.penstock("resume", "@")
        assert code == 1 and "error[P603]" in said and "Traceback" not in said, said
        assert place.penstock("show", "@")[0] == 0
        assert _remount(disk, "rw")
        place.go()
        place.end()
        code, said = place.penstock("resume", "@")
        assert code == 0, said
        place.went_on(before)


def _remount(disk: Path, how: str) -> bool:
    return (
        subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], capture_output=True, check=False).returncode == 0
    )


def test_a_server_that_takes_no_more_writing_ends_the_run_with_a_clear_error(
    postgres: Server, postgres_url: str, tmp_path: Path
) -> None:
    place = Place(tmp_path, store=postgres_url)
    command = place.begun()
    before = place.look()
    name = postgres_url.rpartition("/")[2]
    postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    cut(postgres, postgres_url)
    place.go()
    assert command.code() == 1, command.text
    assert "error[P603]" in command.text and "Traceback" not in command.text
    nobody_is_left(place.home)
    postgres.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    follows(before, place.look())
    place.end()
    code, said = place.penstock("resume", "@")
    assert code == 0, said
    place.went_on(before)


# -- the server goes away ---------------------------------------------------------------------------------------------


def cut(server: Server, url: str) -> None:
    """Ends all connections to this database."""
    name = url.rpartition("/")[2]
    server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")


@contextlib.contextmanager
def again_and_again(what: Callable[[], object]) -> Iterator[list[int]]:
    """Does it all the time, beside the test; the list says how often."""
    over, times = threading.Event(), [0]

    def work() -> None:
        while not over.is_set():
            what()
            times[0] += 1
            over.wait(0.02)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield times
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "workers"])
def test_connections_that_are_cut_all_the_time_do_not_disturb_a_run(
    postgres: Server, postgres_url: str, tmp_path: Path, inline: bool
) -> None:
    said = tmp_path / "notes"
    with kept(LocalRunner(home=tmp_path / "home", store=postgres_url, inline=inline, jobs=2)) as runner:
        runs = [runner.submit(flows.fan, notes=str(said), n=60)]
        runs += [runner.submit(flow, notes=str(said)) for flow in (flows.chain, flows.nested)]
        with again_and_again(lambda: cut(postgres, postgres_url)) as times:
            for run in runs:
                run.wait(40)
            until("some cuts", lambda: times[0] >= 3)
        assert [run.status for run in runs] == ["succeeded"] * 3
        assert [run.outputs["result"] for run in runs] == [20_000 * 10 + 2 * 20_000 * 50, 7, 9]
    for run in runs:
        found = picture(postgres_url, said, run.id)
        assert found is not None
        consistent(found)
    assert {task: n for task, n in notes(said).items() if n != 1} == {}
    nothing_is_held(postgres_url)


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "workers"])
def test_a_commit_whose_answer_was_lost_is_not_done_twice(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: bool
) -> None:
    from penstock.store.drivers.postgres import Postgres

    plain, commits, on = Postgres.statement, itertools.count(1), threading.Event()

    def lossy(self: Postgres, sql: str) -> None:
        plain(self, sql)
        if sql == "COMMIT" and on.is_set() and next(commits) % 2:
            self._db.close()
            raise Disconnected("the answer was lost")

    monkeypatch.setattr(Postgres, "statement", lossy)
    said, go = tmp_path / "notes", tmp_path / "go"
    with kept(LocalRunner(home=tmp_path / "home", store=postgres_url, inline=inline, jobs=2)) as runner:
        run = runner.submit(flows.soak, notes=str(said), go=str(go), who=1, keys=flows.soak_keys(1))
        until("the gate runs", lambda: notes(said)["gate"] == 1)
        on.set()
        go.touch()
        assert run.wait(20).ok and run.outputs == {"result": flows.soak_result(1)}
    on.clear()
    found = picture(postgres_url, said, run.id)
    assert found is not None
    consistent(found)
    assert next(commits) > 3 and set(notes(said).values()) == {1}
    nothing_is_held(postgres_url)


@pytest.mark.parametrize("how", ["SIGINT", "SIGQUIT"], ids=["in order", "as if crashed"])
def test_a_server_that_is_restarted_in_the_middle_is_waited_for(
    postgres: Server, postgres_url: str, tmp_path: Path, how: str
) -> None:
    import signal

    place = Place(tmp_path, store=postgres_url)
    command = place.begun()
    before = place.look()
    postgres.stop(getattr(signal, how))
    place.go()  # so that there is something to write while nobody listens
    place.end()
    gone = time.monotonic()
    until(
        "the engine has tried for a while", lambda: time.monotonic() - gone > 1.0 or command.process.poll() is not None
    )
    assert command.process.poll() is None, command.text
    postgres.start()
    assert command.code() == 0, command.text
    assert "Traceback" not in command.text and "Exception" not in command.text
    end = place.went_on(before)
    assert end.started == {"first": 1, "slow": 1, "long": 1, "last": 1}


def test_an_engine_that_has_nothing_to_write_survives_a_restart_of_its_server(
    postgres: Server, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It only looks around and shows that it is alive."""
    monkeypatch.setattr("penstock.engine.peers.BEAT", 0.05)
    monkeypatch.setattr("penstock.engine.peers.POLL", 0.02)
    params = {"notes": str(tmp_path / "notes"), "go": str(tmp_path / "go"), "who": "one"}
    with kept(LocalRunner(home=tmp_path / "home", store=postgres_url, jobs=2)) as runner:
        run = runner.submit(flows.shared, **params)
        until("it runs", lambda: notes(tmp_path / "notes")["heavy"] == 1)
        postgres.stop()
        gone = time.monotonic()
        until("many beats and looks", lambda: time.monotonic() - gone > 0.5)
        postgres.start()
        (tmp_path / "go").touch()
        assert run.wait(20).ok


# -- clocks -----------------------------------------------------------------------------------------------------------

HOUR = 3600.0


def flow(*steps: Step, **fields: Any) -> Workflow:
    return Workflow(name="w", steps=steps, **fields)


def step(name: str, *needs: str, **fields: Any) -> Step:
    action = fields.pop("action", Script(source=name))
    return Step(name=name, action=action, needs=tuple(map(Edge, needs)), **fields)


AGAIN = Retry(limit=3, backoff=Backoff(initial=10, factor=1, jitter=0))


def put_back(clock: VirtualClock, after: float) -> Callable[[Engine, ActiveRun], Any]:
    async def meanwhile(engine: Engine, live: ActiveRun) -> None:
        await asyncio.sleep(after)
        clock.set_back(HOUR)

    return meanwhile


def test_retries_come_in_time_though_the_clock_is_put_back() -> None:
    clock, tries = VirtualClock(), iter([RuntimeError("a"), RuntimeError("b"), None])
    report = run_virtually(
        flow(step("a", retry=AGAIN)), script=lambda order: next(tries), clock=clock, meanwhile=put_back(clock, 5)
    )
    assert report.state == "succeeded" and report.seconds == pytest.approx(20)
    assert report.events[-1].at < report.events[0].at, "the wall clock was put back"


def test_a_suspended_step_goes_on_in_time_though_the_clock_is_put_back() -> None:
    clock = VirtualClock()
    report = run_virtually(flow(step("a", action=Suspend(duration=60))), clock=clock, meanwhile=put_back(clock, 5))
    assert report.state == "succeeded" and report.seconds == pytest.approx(60)


@pytest.mark.parametrize("whose", ["step", "run"])
def test_time_limits_come_in_time_though_the_clock_is_put_back(whose: str) -> None:
    clock = VirtualClock()
    work = flow(step("a", timeout=30.0)) if whose == "step" else flow(step("a"), timeout=30.0)
    report = run_virtually(work, script=lambda order: 1000, clock=clock, meanwhile=put_back(clock, 5))
    assert report.state == "failed" and report.seconds == pytest.approx(30, abs=3)


def in_two_parts(
    work: Workflow, home: Path, script: Callable[..., Any], first: float, shift: float
) -> tuple[str, float, ActiveRun]:
    """Killed after `first` seconds; taken up again by an engine whose wall clock is `shift` off. Its state, and the seconds
    that the second part took."""

    def part(clock: VirtualClock, seconds: float | None) -> tuple[str, float, ActiveRun]:
        async def main() -> tuple[str, float, ActiveRun]:
            with open_store(str(home)) as store:
                engine = Engine(store, home, Blobs(home / "artifacts"), jobs=9, now=clock.now, chance=lambda: 0.5)
                fake = FakeBackend(engine.context, script)
                engine.pool.use(set(engine.pool.on.values()) - {"suspend"}, fake)
                found = store.runs.newest(limit=1)
                if found:
                    engine.peers.reap({found[0].engine or ""})
                run = own(engine.store, engine.me.id, found[0] if found else Submission(work, {}).record(store))
                live = engine.adopt(run, blueprints(work, links_of(work)), {})
                going = asyncio.ensure_future(engine.run())
                await asyncio.wait([going], timeout=seconds)
                going.cancel()  # as if killed: nothing more is written
                return live.status, clock.elapsed, live

        return clock.run(main())

    clock = VirtualClock(start=time.time())
    part(clock, first)
    return part(VirtualClock(start=clock.now() + shift), None)


@pytest.mark.parametrize("shift", [0.0, -HOUR, HOUR], ids=["right", "put back", "ahead"])
def test_what_waited_when_the_engine_died_goes_on_in_time_whatever_the_clock_says_then(
    tmp_path: Path, shift: float
) -> None:
    """With the clock put back, everything in the log lies in the future."""
    tries = {"a": 0}

    def script(order: Any) -> Any:
        if order.step.name == "a":
            tries["a"] += 1
            return RuntimeError("no") if tries["a"] == 1 else None
        return None

    work = flow(step("a", retry=AGAIN), step("b", action=Suspend(duration=60)), step("c", "a", "b"))
    state, seconds, live = in_two_parts(work, tmp_path / "home", script, first=4, shift=shift)
    assert state == "succeeded" and not live.failures
    assert tries["a"] == 2
    # 56 s are left if the clocks agree; never longer than the whole wait.
    assert seconds == pytest.approx({0.0: 56, -HOUR: 60, HOUR: 0}[shift], abs=0.5)


def test_a_retry_waits_no_longer_than_it_was_to_wait(tmp_path: Path) -> None:
    tries = iter([RuntimeError("no"), None])
    work = flow(step("a", retry=AGAIN))
    state, seconds, _ = in_two_parts(work, tmp_path / "home", lambda order: next(tries), first=4, shift=-HOUR)
    assert state == "succeeded" and seconds <= 10.5


def test_the_order_of_events_is_that_of_their_numbers_whatever_their_times(tmp_path: Path) -> None:
    in_two_parts(flow(step("a"), step("b", "a")), tmp_path / "home", lambda order: 10, first=15, shift=-HOUR)
    with open_store(str(tmp_path / "home")) as store:
        run = store.runs.newest()[0]
        events = list(store.runs.events(run.number))
    assert run.state == "succeeded"
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[-1].at < events[0].at and events[-1].kind == "run.finished"


# -- two at one run ---------------------------------------------------------------------------------------------------


def test_two_resumes_at_once_one_wins_and_the_other_says_who_has_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.begun().kill()
    before = place.look()
    commands = [Command(_folder(tmp_path, n), "resume", "flow-1", home=place.home) for n in range(3)]
    until("all but one are refused", lambda: sum(command.process.poll() is not None for command in commands) == 2)
    (winner,) = (command for command in commands if command.process.poll() is None)
    for command in commands:
        if command is not winner:
            assert command.code() == 2
            assert "error[P411]" in command.text and f"process {winner.pid} " in command.text, command.text
    place.go()
    place.end()
    assert winner.code() == 0, winner.text
    end = place.went_on(before)
    assert end.started["slow"] == 2


def test_a_run_that_is_over_is_not_taken_up_again(tmp_path: Path) -> None:
    """Somebody else may have finished it since it was looked at."""
    run = LocalRunner(home=tmp_path / "home", inline=True).run(flows.chain, notes=str(tmp_path / "notes"))
    before = run.events
    host = Host(read(home=tmp_path / "home"))
    try:
        with pytest.raises(RunConflict, match=r"P413 .*chain-1 is over: it succeeded"):
            go_on(host, run.id)
    finally:
        host.close()
    assert run.events == before


def elsewhere(place: Place) -> None:
    """The engine of the run was on a machine of which nothing can be seen from here."""
    with open_store(place.store) as store:
        db: Any = store._db
        db._db.execute("UPDATE engines SET host = 'elsewhere/1.2/3'")


def test_a_run_whose_engine_was_on_another_machine_can_be_taken_when_its_heart_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.store.liveness.PATIENCE", 0.3)
    place = Place(tmp_path)
    place.begun().kill()
    elsewhere(place)
    place.go()
    place.end()
    host = Host(read(home=place.home, jobs=2))
    with open_store(place.store) as store:
        run = store.runs.newest(limit=1)[0]
        with pytest.raises(RunConflict, match="P411"):
            go_on(host, run.id)
        assert not watch_owner(store, run)
        session = go_on(host, run.id)
        assert session.wait(20)
        host.close()
    assert place.look().run.state == "succeeded"


def test_a_run_whose_engine_is_alive_on_another_machine_is_left_to_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    command = place.begun()
    elsewhere(place)
    with open_store(place.store) as store:
        assert watch_owner(store, store.runs.newest(limit=1)[0]), "its heart beats"
    place.go()
    place.end()
    assert command.code() == 0, command.text


def _folder(folder: Path, number: int) -> Path:
    """For what each command says; the flow runs where it was started first."""
    made = folder / f"said-{number}"
    made.mkdir()
    return made


def taken_over(place: Place, command: Command) -> Command:
    """Somebody holds the engine of `command` for dead and goes on with its run."""
    with open_store(place.store) as store:
        run = store.runs.newest(limit=1)[0]
        assert run.engine is not None
        store.peers.forget(run.engine)
    other = Command(_folder(place.folder, 1), "resume", "flow-1", home=place.home, store=place.url)
    until("the other has begun", lambda: notes(place.folder / "notes")["slow"] == 2 or other.process.poll() is not None)
    assert other.process.poll() is None, other.text
    return other


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_an_engine_that_has_lost_its_run_lets_go_and_ends_its_processes(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    place = Place(tmp_path, store="" if store == "sqlite" else str(request.getfixturevalue("postgres_url")))
    command = place.begun()
    before = place.look()
    mine = set(processes(place.home))
    other = taken_over(place, command)
    # Nothing happens in it, and yet it finds out.
    assert command.code(15) == 2, command.text
    assert "error[P411]" in command.text and "taken over" in command.text and "Traceback" not in command.text
    until("its processes are gone", lambda: not mine & set(processes(place.home)), 5.0)
    place.go()
    place.end()
    assert other.code() == 0, other.text
    place.went_on(before)


def test_an_engine_that_has_lost_one_run_goes_on_with_the_others(tmp_path: Path) -> None:
    home, said = tmp_path / "home", tmp_path / "notes"
    where = str(home)
    params = {"notes": str(said), "go": str(tmp_path / "go")}
    with kept(LocalRunner(home=home, jobs=4)) as runner:
        one = runner.submit(flows.shared, **params, who="one")
        until("it has begun", lambda: notes(said)["heavy"] == 1)
        two = runner.submit(flows.shared, **params, who="two")
        three = runner.submit(flows.unshared, **params, who="three")
        until("it has begun", lambda: notes(said)["alone"] == 1)
        with open_store(where) as store:
            run = store.runs.by_id(one.id)
            assert run is not None and store.runs.take(run.number, "somebody else", run.engine)
        (tmp_path / "go").touch()
        one.wait(20)
        assert one._session.live.error is not None
        assert two.wait(20).ok and three.wait(20).ok
        for lucky in (two, three):
            found = picture(where, said, lucky.id)
            assert found is not None
            consistent(found)
    lost = picture(where, said, one.id)
    assert lost is not None and lost.run.engine == "somebody else" and "mine" not in lost.tasks
    nobody_is_left(home)
    nothing_is_held(where)
