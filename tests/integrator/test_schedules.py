"""Workflows that are run by the clock: the times of cron, policies, one run for each time however many processes look and die, and what is typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.graph import codec
from penstock.service import stores
from penstock.service.schedules import verbs
from penstock.service.schedules.clockwork import Clockwork
from penstock.service.schedules.policy import Due, SchedulePolicy, due
from penstock.service.schedules.taken import take
from penstock.service.schedules.timing import Timing, timing, told
from penstock.service.submission import Submission
from penstock.service.workers import Worker
from penstock.settings import Settings, read
from penstock.store.sql import Store
from tests.cli import conftest
from tests.server.served import wait_for

penstock = conftest.penstock
CORPUS = Path(os.environ.get("PENSTOCK_CORPUS", Path(__file__).resolve().parents[3] / "shared" / "corpus"))
ARGO = CORPUS / "argo"
NOON = datetime(2026, 11, 19, 12, tzinfo=ZoneInfo("UTC")).timestamp()
FLOW = """{"apiVersion": "penstock/v1", "kind": "Workflow", "name": "flow", "params": [{"name": "day", "type": "str"}],
    "steps": [{"name": "a", "script": {"source": "echo ${{ params.day }}"}}]}"""


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


# -- times ------------------------------------------------------------------------------------------------------------


def brute(line: str, zone: str, first: float, last: float) -> list[float]:
    """The rules of cron, minute by minute. Fields of numbers and stars only; days by star alone."""
    minute, hour, *_ = line.split()
    where = ZoneInfo(zone)

    def fits(field: str, value: int) -> bool:
        return any(
            (part.startswith("*") and value % int(part.partition("/")[2] or 1) == 0) or part == str(value)
            for part in field.split(",")
        )

    found = set()
    if minute.startswith("*") or hour.startswith("*"):
        for time in range(int(first // 60) * 60, int(last) + 1, 60):
            local = datetime.fromtimestamp(time, where)
            if fits(minute, local.minute) and fits(hour, local.hour):
                found.add(float(time))
    else:
        day = datetime.fromtimestamp(first, where).replace(tzinfo=None, hour=0, minute=0, second=0) - timedelta(days=1)
        while day.timestamp() < last + 3 * 86400:
            wall = day
            while wall < day + timedelta(days=1):
                if fits(minute, wall.minute) and fits(hour, wall.hour):
                    there = wall
                    while (
                        there.replace(tzinfo=where).timestamp()
                        != datetime.fromtimestamp(there.replace(tzinfo=where).timestamp(), where)
                        .replace(tzinfo=where, fold=0)
                        .timestamp()
                        or datetime.fromtimestamp(there.replace(tzinfo=where).timestamp(), where).replace(
                            tzinfo=None, fold=0
                        )
                        != there
                    ):
                        there += timedelta(minutes=1)
                    found.add(there.replace(tzinfo=where).timestamp())
                wall += timedelta(minutes=1)
            day += timedelta(days=1)
    return sorted(one for one in found if first < one <= last)


CHANGES = {
    "Europe/Berlin": ("2026-03-29T00:00", "2026-10-25T00:00"),
    "America/New_York": ("2026-03-08T00:00", "2026-11-01T00:00"),
    "Australia/Lord_Howe": ("2026-10-04T00:00", "2026-04-05T00:00"),
}


@settings(max_examples=60)
@given(
    st.sampled_from(["30", "0", "15,45", "*/20", "59"]),
    st.sampled_from(["2", "1,2,3", "*", "*/2", "0", "23", "1"]),
    st.sampled_from([(zone, day) for zone, days in CHANGES.items() for day in days]),
    st.integers(-3600, 100_000),
)
def test_times_around_changed_clocks_are_those_of_cron(
    minute: str, hour: str, change: tuple[str, str], more: int
) -> None:
    zone, day = change
    first = at(day, zone) + more
    line = f"{minute} {hour} * * *"
    made = Timing(crons=(line,), zone=zone)
    assert made.within(first + 0.5, first + 86400, 10_000) == brute(line, zone, first, first + 86400)


@pytest.mark.parametrize(
    ("zone", "line", "day", "wanted"),
    [
        # A time that does not exist: once, when the clock has jumped.
        ("Europe/Berlin", "30 2 * * *", "2026-03-29", ["2026-03-29T03:00:00+02:00"]),
        ("America/New_York", "30 2 * * *", "2026-03-08", ["2026-03-08T03:00:00-04:00"]),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-04", ["2026-10-04T02:30:00+11:00"]),
        # Together with one that does: once.
        ("Europe/Berlin", "0 2,3 * * *", "2026-03-29", ["2026-03-29T03:00:00+02:00"]),
        # A time that comes twice: the first.
        ("Europe/Berlin", "30 2 * * *", "2026-10-25", ["2026-10-25T02:30:00+02:00"]),
        ("America/New_York", "30 1 * * *", "2026-11-01", ["2026-11-01T01:30:00-04:00"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-05", ["2026-04-05T01:45:00+11:00"]),
        # Every hour: as time passes, so 23 and 25 times.
        ("Europe/Berlin", "30 * * * *", "2026-03-29", 23),
        ("Europe/Berlin", "30 * * * *", "2026-10-25", 25),
        ("America/New_York", "30 * * * *", "2026-03-08", 23),
        ("America/New_York", "30 * * * *", "2026-11-01", 25),
        ("Europe/Berlin", "0 0 * * *", "2026-03-29", ["2026-03-29T00:00:00+01:00"]),
    ],
)
def test_a_day_on_which_clocks_change(zone: str, line: str, day: str, wanted: Any) -> None:
    made = Timing(crons=(line,), zone=zone)
    end = (datetime.fromisoformat(day) + timedelta(days=1)).isoformat()
    found = [told(one, zone) for one in made.within(at(day, zone), at(end, zone) - 1, 100)]
    assert len(found) == wanted if isinstance(wanted, int) else found == wanted


@given(st.integers(1, 10**6), st.integers(0, 10**9), st.integers(0, 10**9))
def test_an_interval_has_a_time_in_each_step(every: int, anchor: int, now: int) -> None:
    found = Timing(every=float(every), anchor=float(anchor)).after(float(now))
    assert found is not None and found > now and (found - anchor) % every == 0
    assert found == anchor or found - every <= now


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("P552", {"crons": ("0 0 30 2 *",)}),
        ("P552", {"crons": ("0 0 31 4,6,9,11 *",)}),
        ("P552", {"crons": ("* * * * *",), "end": "2020-01-01"}),
        ("P550", {"crons": ("0 25 * * *",)}),
        ("P550", {"crons": ("every day",)}),
        ("P550", {"crons": ("9" * 10_000 + " * * * *",)}),
        ("P550", {"crons": ("@every soon",)}),
        ("P551", {"crons": ("@daily",), "zone": "Mars/Phobos"}),
        ("P551", {"crons": ("@daily",), "zone": "../../etc/passwd"}),
        ("P551", {"crons": ("TZ=Asia/Tokyo 0 9 * * *",), "zone": "Europe/Berlin"}),
        ("P553", {"every": 0.9}),
        ("P553", {"every": float("nan")}),
        ("P556", {}),
        ("P556", {"crons": ("@daily",), "every": 5.0}),
        ("P556", {"crons": ("@daily",), "start": "tomorrow"}),
        ("P556", {"crons": ("@daily",), "start": "2027-02-01", "end": "2027-01-01"}),
    ],
)
def test_what_is_wrong_or_never_due_is_refused(code: str, how: dict[str, Any]) -> None:
    given = {"crons": (), "zone": None, "every": None, "start": None, "end": None, **how}
    with pytest.raises(UserError) as error:
        timing(now=NOON, **given)
    assert error.value.code == code


# -- policies ---------------------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(
    st.sampled_from(["none", "one", "all"]),
    st.sampled_from(["skip", "wait", "replace", "allow"]),
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=25),
)
def test_policies_hold_whenever_somebody_looks(
    catch_up: Any, overlap: Any, grace: int, looks: list[tuple[int, bool]]
) -> None:
    """Against the definitions: a step of 7 seconds, looks at any moments, runs that end or go on between them."""
    made, policy = Timing(every=7.0, anchor=7.0), SchedulePolicy(catch_up, overlap, float(grace))
    recorded, now, going, fired = Due(7.0), 0.0, False, []
    for step, ends in looks:
        now += step
        going = going and not ends
        for _ in range(200):
            decision = due(made, policy, recorded, now, going)
            if decision is None:
                break
            assert decision.after.next_at is not None and decision.after.next_at >= (recorded.next_at or 0)
            if decision.fires and going:
                assert overlap == "allow" or (overlap == "replace" and decision.replaces)
            if len(decision.fires) > 1:
                assert overlap == "allow" and catch_up == "all"
            recorded = decision.after
            for one in decision.fires:
                assert one <= now and one % 7 == 0
                if catch_up == "none" and overlap != "wait":
                    assert now - one <= grace
                fired.append(one)
                going = True
        else:
            raise AssertionError("it goes on for ever")
        assert recorded.waiting is None or going  # a time waits only for a run
    assert fired == sorted(set(fired))  # each time once, in order
    if catch_up == "all" and overlap == "allow":
        assert fired == [7.0 * one for one in range(1, int(now // 7) + 1)]
    if catch_up == "one" and overlap in ("allow", "replace"):  # the last time is never lost
        assert not fired or fired[-1] == now // 7 * 7


def test_years_that_were_missed_are_not_counted_minute_by_minute() -> None:
    made = Timing(crons=("* * * * *",))
    decision = due(made, SchedulePolicy("one"), Due(NOON - 20 * 365 * 86400), NOON + 5, False)
    assert decision is not None and decision.fires == (NOON,) and decision.after.next_at == NOON + 60
    some = due(made, SchedulePolicy("all", "allow"), Due(NOON - 20 * 365 * 86400), NOON, False)
    assert some is not None and len(some.fires) == 100 and some.after.next_at == some.fires[-1] + 60


# -- in a store -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    url = str(request.getfixturevalue("postgres_url")) if request.param == "postgresql" else None
    return read({}, home=tmp_path / ".penstock", store=url, jobs=1)


@pytest.fixture
def store(where: Settings) -> Iterator[Store]:
    with stores.open_or_create(where, engine=True) as store:
        yield store


def added(store: Store, where: Settings, name: str = "nightly", now: float = NOON, **how: Any) -> verbs.StoredSchedule:
    policy = {one: how.pop(one) for one in ("catch_up", "overlap") if one in how}
    how = {"every": 60.0, **how} if "crons" not in how else how
    request = verbs.requested(name, now=now, policy=policy, due_param="day", **how)
    workflow = codec.from_text(FLOW, "flow")
    submission = Submission(workflow, verbs.with_due(request, workflow, {}, now))
    submission.pack(where)
    return verbs.add(store, request, submission, now)


class Clock:
    def __init__(self, store: Store, where: Settings) -> None:
        self.now = NOON
        self.said: list[str] = []
        self.store = store
        self.work = Clockwork(where, self.said.append, now=lambda: self.now)

    def look(self, seconds: float) -> list[float]:
        """After so many seconds: for which times runs were made, since noon."""
        before = {one.run for one in self.runs()}
        self.now += seconds
        self.work.turn(self.store)
        return sorted(one.due - NOON for one in self.runs() if one.run not in before)

    def runs(self) -> list[Any]:
        return self.store.schedules.runs_of("nightly", 1000)

    def end(self, state: str = "succeeded") -> None:
        for one in self.runs():
            if one.state not in ("succeeded", "failed", "cancelled"):
                assert self.store.runs.take(one.run, "somebody", None)
                assert self.store.runs.release(one.run, "somebody", state)


def test_a_time_that_comes_has_a_run_with_it(where: Settings, store: Store) -> None:
    added(store, where)
    clock = Clock(store, where)
    assert clock.look(59.9) == [] and clock.look(0.1) == [60.0] and clock.look(10) == []
    (one,) = clock.runs()
    run = store.runs.by_number(one.run)
    assert run is not None and run.params == {"day": "2026-11-19T12:01:00+00:00"}
    assert run.options["schedule"] == {"name": "nightly", "due": NOON + 60}
    order = store.orders.of(run.number)
    assert order is not None and order.verb == "run"


def test_overlap(where: Settings, store: Store) -> None:
    clock = Clock(store, where)
    for overlap, wanted in {
        "skip": [[60], [], [], [240]],
        "wait": [[60], [], [], [120]],
        "replace": [[60], [120], [180], [240]],
        "allow": [[60], [120], [180], [240]],
    }.items():
        clock.now = NOON
        added(store, where, overlap=overlap)
        found = [clock.look(60) for _ in range(3)]
        if overlap == "replace":
            first = store.orders.of(clock.runs()[-1].run)
            assert first is not None and first.verb == "cancel"
        clock.end()
        found.append(clock.look(60 if overlap != "wait" else 1))
        assert found == wanted, overlap
        if overlap == "skip":
            assert "no run for 2026-11-19T12:03:00+00:00: flow-1 went on" in verbs.find(store, "nightly").row.note
        clock.end()
        verbs.remove(store, "nightly")


def test_times_at_which_nobody_was_there(where: Settings, store: Store) -> None:
    clock = Clock(store, where)
    for how, wanted in (
        ({"catch_up": "none", "grace": 5.0}, []),
        ({"catch_up": "none", "grace": 45.0}, [600]),
        ({"catch_up": "one"}, [600]),
        ({"catch_up": "all", "overlap": "allow"}, [60.0 * one for one in range(1, 11)]),
        ({"catch_up": "all", "overlap": "wait"}, [60]),
    ):
        clock.now = NOON
        added(store, where, **how)
        assert clock.look(630) == wanted, how
        assert clock.look(0) == []
        if how.get("overlap") == "wait":
            for one in range(2, 11):
                clock.end()
                assert clock.look(1) == [60.0 * one]
        clock.end()
        verbs.remove(store, "nightly")


def test_pause_resume_replace_and_the_end(where: Settings, store: Store) -> None:
    added(store, where, end="2026-11-19T12:10")
    clock = Clock(store, where)
    assert verbs.pause(store, "nightly").row.state == "paused" and clock.look(125) == []
    assert verbs.resume(store, "nightly", clock.now).row.next_at == NOON + 180
    assert clock.look(60) == [180.0]
    with pytest.raises(UserError) as error:
        added(store, where)
    assert error.value.code == "P555"
    again = added(store, where, now=clock.now, crons=("*/10 * * * *",), end="2026-11-19T12:10", replace=True)
    assert again.row.next_at == NOON + 600
    clock.end()
    assert clock.look(420) == [600.0] and verbs.find(store, "nightly").row.state == "over"
    with pytest.raises(UserError) as error:
        verbs.resume(store, "nightly", clock.now)
    assert error.value.code == "P558"
    run = verbs.run_now(store, "nightly", "ana", clock.now)
    assert run.user == "ana" and run.options["schedule"] == {"name": "nightly"}
    verbs.remove(store, "nightly")
    assert store.schedules.of("nightly") is None and store.runs.by_number(run.number) is not None


def test_a_clock_that_is_set_back_makes_no_second_run(where: Settings, store: Store) -> None:
    added(store, where, overlap="allow")
    clock = Clock(store, where)
    assert clock.look(60) == [60.0]
    assert clock.look(-50) == [] and clock.look(51) == [] and clock.look(58) == []
    assert clock.look(1) == [120.0]
    added(store, where, now=NOON, overlap="allow", replace=True)  # anew: that is asked for
    clock.now = NOON
    clock.look(60)
    assert len(store.runs.newest()) == 3


def test_its_workflow_is_kept_when_its_runs_are_removed(where: Settings, store: Store) -> None:
    added(store, where)
    clock = Clock(store, where)
    clock.look(60)
    clock.end()
    (one,) = clock.runs()
    assert store.maintenance.delete_runs([one.run], clock.now)[0] == 1
    assert clock.runs() == [] and clock.look(60) == [120.0]
    clock.end()
    digest = verbs.find(store, "nightly").row.digest
    store.maintenance.delete_runs([clock.runs()[0].run], clock.now)
    verbs.remove(store, "nightly")
    with pytest.raises(KeyError):
        store.runs.document(digest)


def test_a_schedule_that_cannot_be_run_does_not_hold_up_others(where: Settings, store: Store) -> None:
    added(store, where)
    broken = added(store, where, "broken").row
    assert store.schedules.change(broken, broken._replace(digest="sha256:gone"))
    clock = Clock(store, where)
    assert clock.look(61) == [60.0]
    assert any("broken" in line for line in clock.said)


# -- by any number of processes ---------------------------------------------------------------------------------------

RACER = """
import sys, time
from penstock.service.schedules.clockwork import Clockwork
from penstock.service import stores
from penstock.settings import read
home, url, until = sys.argv[1], sys.argv[2] or None, float(sys.argv[3])
settings = read({}, home=home, store=url)
with stores.open_or_create(settings) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    while store.schedules.due(until, 1):
        Clockwork(settings, now=lambda: until).turn(store)
"""
DIES = """
import os, signal, sys
from penstock.service.schedules.clockwork import Clockwork
from penstock.service import stores
from penstock.settings import read
from penstock.store import orders, runs, schedules, session
home, url, until, point = sys.argv[1], sys.argv[2] or None, float(sys.argv[3]), sys.argv[4]
settings = read({}, home=home, store=url)
def die(before, owner, name):
    plain = getattr(owner, name)
    def call(*args, **more):
        if before:
            os.kill(os.getpid(), signal.SIGKILL)
        found = plain(*args, **more)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(owner, name, call)
with stores.open_or_create(settings) as store:
    where = {"change": (schedules.ScheduleRepository, "change"), "run": (runs.RunRepository, "create"),
        "noted": (schedules.ScheduleRepository, "note_run"), "ordered": (orders.OrderRepository, "put")}
    when, _, what = point.partition(" ")
    die(when == "before", *where[what])
    Clockwork(settings, now=lambda: until).turn(store)
"""


def child(source: str, where: Settings, *words: str) -> subprocess.Popen[str]:
    url = where.store if "://" in where.store else ""
    return subprocess.Popen(
        [sys.executable, "-c", source, str(where.home), url, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_each_time_has_one_run_with_four_processes_of_which_two_are_killed(where: Settings, store: Store) -> None:
    names = [f"s{number}" for number in range(12)]
    for name in names:
        added(store, where, name, catch_up="all", overlap="allow")
    until = NOON + 60 * 40
    racers = [child(RACER, where, str(until)) for _ in range(4)]
    for one in racers:
        assert one.stdout is not None and one.stdout.readline() == "ready\n"
    for one in racers:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    for one, many in zip(racers, (20, 60), strict=False):
        wait_for(lambda many=many: len(store.runs.newest(limit=many)) == many)
        one.send_signal(signal.SIGKILL)
    for one in racers:
        one.wait(120)
        for pipe in (one.stdin, one.stdout):
            assert pipe is not None
            pipe.close()
    ordered = store.orders.runs()
    for name in names:
        found = store.schedules.runs_of(name, 1000)
        assert sorted(one.due - NOON for one in found) == [60.0 * number for number in range(1, 41)]
        assert {one.run for one in found} <= ordered
    assert len(store.runs.newest()) == len(names) * 40


@pytest.mark.slow
def test_a_process_that_dies_at_any_point_leaves_a_time_with_one_run(where: Settings, store: Store) -> None:
    added(store, where)
    clock = Clock(store, where)
    for number, point in enumerate(
        ("before change", "before run", "after run", "after noted", "after ordered", "after change"), 1
    ):
        dies = child(DIES, where, str(NOON + 60 * number), point)
        dies.communicate(timeout=60)
        assert dies.returncode == -signal.SIGKILL, point
        there = point == "after change"
        assert len(clock.runs()) == number - (not there), point
        assert clock.look(60) == ([] if there else [60.0 * number]), point
        clock.end()
    assert len(store.runs.newest()) == 6


@pytest.mark.slow
def test_a_worker_runs_what_is_due(where: Settings, store: Store) -> None:
    import time

    added(store, where, now=time.time(), every=1.0, overlap="allow")
    worker = Worker(where, lambda line: None)
    worker.start()
    try:
        wait_for(lambda: sum(one.state == "succeeded" for one in store.schedules.runs_of("nightly", 10)) >= 2)
    finally:
        worker.stop()
        assert worker.join(60)
    (task,) = store.runs.tasks(store.schedules.runs_of("nightly", 10)[-1].run)
    log = where.home / task.info["log"][0][0]
    assert datetime.fromisoformat(log.read_text().strip()).timestamp() == store.schedules.runs_of("nightly", 10)[-1].due


# -- other systems' ---------------------------------------------------------------------------------------------------

CRON_JOB = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: report}
spec:
  schedule: "30 2 * * *"
  timeZone: Europe/Berlin
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 300
  suspend: true
  successfulJobsHistoryLimit: 3
  jobTemplate:
    spec:
      template: {spec: {restartPolicy: Never, containers: [{name: a, image: busybox, command: ["true"]}]}}
"""


def test_a_cron_job_is_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "cron.yaml"
    file.write_text(CRON_JOB)
    found = take(str(file), NOON)
    request = found.request
    assert (request.name, request.timing.crons, request.timing.zone) == ("report", ("30 2 * * *",), "Europe/Berlin")
    assert request.policy == SchedulePolicy("none", "skip", 300.0) and request.paused
    assert [one.path for one in found.report.of("lost")] == ["spec.successfulJobsHistoryLimit"]
    assert [one.path for one in found.report.of("changed")] == ["spec.timeZone"]
    assert found.workflow.steps
    file.write_text(CRON_JOB.replace("30 2 * * *", "0 0 30 2 *"))
    with pytest.raises(UserError) as error:
        take(str(file), NOON)
    assert error.value.code == "P552"


def test_cron_workflows_of_the_corpus_are_taken_over() -> None:
    files = [file for file in sorted(ARGO.rglob("*.yaml")) if "kind: CronWorkflow" in file.read_text()]
    if not files:
        pytest.skip(f"there is no CronWorkflow in {ARGO}; PENSTOCK_CORPUS names the folder")
    for file in files:
        found = take(str(file), NOON)
        assert found.request.timing.after(NOON) is not None and found.workflow.steps, file
        assert not any("by the clock" in one.message for one in found.report.entries)


# -- as typed ---------------------------------------------------------------------------------------------------------


def test_from_add_to_rm(penstock: Any) -> None:
    Path("flow.json").write_text(FLOW)
    said = penstock(
        "schedule",
        "add",
        "nightly",
        "flow.json",
        "--cron",
        "0 6 * * 1-5",
        "--zone",
        "Europe/Berlin",
        "--param-due",
        "day",
    )
    assert said.code == 0 and said.out == "nightly\n", said
    assert "nightly is due next at " in said.err and "nobody seems to be there" in said.err
    Path("flow.json").write_text(FLOW.replace("echo", "false"))  # a later edit does not reach it
    (row,) = json.loads(penstock("schedule", "ls", "-o", "json").out)
    assert (row["workflow"], row["cron"], row["zone"], row["state"]) == (
        "flow",
        ["0 6 * * 1-5"],
        "Europe/Berlin",
        "active",
    )
    times = penstock("schedule", "next", "nightly", "-n", "7").out.splitlines()
    assert len(times) == 7 and all("T06:00:00+0" in one for one in times)
    assert penstock("schedule", "pause", "nightly").out == "paused\n"
    assert "schedule  nightly  paused" in penstock("schedule", "show", "nightly").out
    assert penstock("schedule", "resume", "nightly").out == "active\n"
    run = penstock("schedule", "run", "nightly")
    assert run.out == "flow-1\n"
    assert penstock("resume", "flow-1", "-q").code == 0
    assert ", by the schedule nightly" in penstock("show", "flow-1").out
    assert penstock("schedule", "rm", "nightly").code == 0
    gone = penstock("schedule", "show", "nightly")
    assert gone.code == 4 and "P554" in gone.err
    assert json.loads(penstock("ls", "-o", "json").out)[0]["run"] == "flow-1"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--cron", "0 0 30 2 *"], "P552"),
        (["--every", "0.5s"], "P553"),
        (["--cron", "@daily", "--param-due", "when"], "P556"),
        (["--cron", "@daily", "--param-due", "day", "-p", "day=1"], "P556"),
        (["--cron", "@daily"], "P408"),
    ],
)
def test_what_is_wrong_is_said(penstock: Any, words: list[str], code: str) -> None:
    Path("flow.json").write_text(FLOW)
    said = penstock("schedule", "add", "nightly", "flow.json", *words)
    assert said.code == 2 and code in said.err, said


def test_a_file_may_have_the_name_of_a_subcommand(penstock: Any) -> None:
    Path("add").write_text(CRON_JOB)
    assert penstock("schedule", "./add", "--with", "kueue", "--queue", "lab").code == 0
    assert penstock("schedule", "mark", "add", "--with", "kueue", "--queue", "lab").code == 0
    said = penstock("schedule", "add", "--with", "kueue")
    assert said.code == 2 and "--with" in said.err
