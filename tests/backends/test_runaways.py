"""Processes that leave their group with setsid end all the same: when their task ends, times out or is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.backends.local.orphans import EscapedProcesses
from penstock.backends.local.process import ProcessBackend
from penstock.backends.local.workers import WorkersBackend
from tests.backends import sample
from tests.backends.harness import Play, bundle_of, function_step, play, spec_of
from tests.backends.test_process import alive, script

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")

AWAY = "setsid sh -c 'trap \"\" TERM HUP; echo $$ > {0}.new; mv {0}.new {0}; sleep 300 & wait; sleep 300' &"
"""It does not listen, and starts more."""
BARE = {False: "", True: "env -i "}
"""It clears its environment as well."""
SEEN = "while [ ! -e {0} ]; do sleep 0.01; done"


@pytest.fixture
def noted(tmp_path: Path) -> Iterator[Path]:
    """Where a runaway writes its number. Whoever is left is ended here."""
    place = tmp_path / "pid"
    yield place
    if place.exists() and alive(int(place.read_text())):
        os.killpg(int(place.read_text()), signal.SIGKILL)


def gone(place: Path) -> bool:
    """Killed, at least: a process that is being taken apart is still listed for a moment. (Left alone it would run for minutes.)"""
    deadline = time.monotonic() + 5
    while alive(int(place.read_text())) and time.monotonic() < deadline:
        time.sleep(0.005)
    return not alive(int(place.read_text()))


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("last", ["true", "exit 3", "kill -9 $$"])
def test_it_ends_when_its_command_has_ended(tmp_path: Path, noted: Path, last: str, bare: bool) -> None:
    async def story(playing: Play) -> None:
        step = script("\n".join((BARE[bare] + AWAY.format(noted), SEEN.format(noted), last)))
        ended = await playing.one(spec_of(step, working_directory=str(tmp_path)))
        assert ended.outcome == ("succeeded" if last == "true" else "failed")
        assert gone(noted)

    play(tmp_path, ProcessBackend, story)


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("grace", [0.0, 0.2])
def test_it_ends_when_its_task_is_stopped(tmp_path: Path, noted: Path, grace: float, bare: bool) -> None:
    async def story(playing: Play) -> None:
        step = script("\n".join((BARE[bare] + AWAY.format(noted), "sleep 300")))
        spec = spec_of(step, working_directory=str(tmp_path))
        playing.backend.start([spec])
        await playing.until(lambda: playing.began(spec.id) is not None)
        wait_for(noted.exists)
        playing.backend.stop(spec.id, grace)
        (ended,) = await playing.end_of(spec)
        assert ended.outcome == "cancelled" and gone(noted)

    play(tmp_path, ProcessBackend, story)


@pytest.mark.parametrize("bare", [False, True])
def test_it_ends_with_the_engine(tmp_path: Path, noted: Path, bare: bool) -> None:
    async def story(playing: Play) -> None:
        spec = spec_of(
            script("\n".join((BARE[bare] + AWAY.format(noted), "sleep 300"))), working_directory=str(tmp_path)
        )
        playing.backend.start([spec])
        await playing.until(lambda: playing.began(spec.id) is not None)
        wait_for(noted.exists)

    play(tmp_path, ProcessBackend, story)
    assert gone(noted)


def test_other_tasks_and_replicas_go_on(tmp_path: Path, noted: Path) -> None:
    async def story(playing: Play) -> None:
        first = spec_of(
            script("\n".join((AWAY.format(noted), SEEN.format(noted)))), working_directory=str(tmp_path), task="a"
        )
        waits = script(
            f"[ $PENSTOCK_REPLICA = 1 ] || exit 0; setsid -w sh -c '{SEEN.format(tmp_path / 'go')}'", replicas=2
        )
        second = spec_of(waits, working_directory=str(tmp_path), task="b")
        playing.backend.start([second])
        await playing.until(lambda: playing.began(second.id) is not None)
        playing.backend.start([first])
        (ended,) = await playing.end_of(first)
        assert ended.outcome == "succeeded" and gone(noted) and playing.ended(second.id) is None
        (tmp_path / "go").touch()
        assert (await playing.end_of(second))[0].outcome == "succeeded"

    play(tmp_path, ProcessBackend, story)


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("grace", [0.0, 0.2, None])
def test_what_a_function_started_ends_with_its_attempt(
    tmp_path: Path, noted: Path, grace: float | None, bare: bool
) -> None:
    """Also one that has lost its parent and has cleared its environment. The worker goes on."""

    async def story(playing: Play) -> None:
        step = function_step(sample.run_away, "any")
        given = {"place": str(noted), "stay": grace is not None, "bare": bare}
        spec = spec_of(step, given, bundle=bundle_of(step, blobs=playing.blobs))
        playing.backend.start([spec])
        if grace is not None:
            await playing.until(lambda: playing.began(spec.id) is not None)
            wait_for(noted.exists)
            playing.backend.stop(spec.id, grace)
        (ended,) = await playing.end_of(spec)
        assert ended.outcome == ("succeeded" if grace is None else "cancelled"), ended.message
        assert gone(noted)
        if grace is None:
            assert alive(ended.outputs["result"]), "the worker itself goes on"

    play(tmp_path, WorkersBackend, story)


@pytest.mark.parametrize("bare", [False, True])
def test_and_with_the_engine(tmp_path: Path, noted: Path, bare: bool) -> None:
    async def story(playing: Play) -> None:
        step = function_step(sample.run_away, "any")
        given = {"place": str(noted), "stay": True, "bare": bare}
        playing.backend.start([spec_of(step, given, bundle=bundle_of(step, blobs=playing.blobs))])
        wait_for(noted.exists)

    play(tmp_path, WorkersBackend, story)
    assert gone(noted)


def test_what_stays_in_the_group_of_the_worker_goes_on_until_that_ends(tmp_path: Path) -> None:
    pid = 0

    async def story(playing: Play) -> None:
        nonlocal pid
        step = function_step(sample.stay_here, "any")
        ended = await playing.one(spec_of(step, {}, bundle=bundle_of(step, blobs=playing.blobs)))
        pid = ended.outputs["result"]
        assert alive(pid)

    play(tmp_path, WorkersBackend, story)
    wait_for(lambda: not alive(pid))


def test_only_what_has_the_marks_is_found(tmp_path: Path) -> None:
    marks = {"PENSTOCK_ATTEMPT": "run/a/1", "PENSTOCK_HOME": str(tmp_path)}
    before = subprocess.Popen(["sleep", "300"], env=marks | {"PATH": os.environ["PATH"]}, start_new_session=True)
    others = [
        subprocess.Popen(["sleep", "300"], env={**os.environ, **marks, **more}, start_new_session=True)
        for more in ({"PENSTOCK_ATTEMPT": "run/a/10"}, {"PENSTOCK_HOME": f"{tmp_path}/x"}, {})
    ]
    try:
        wait_for(lambda: EscapedProcesses(before.pid, marks).find() == [others[2].pid])
        assert sorted(EscapedProcesses(0, marks).find()) == sorted(
            [before.pid, others[2].pid]
        )  # all numbers are looked at
        assert EscapedProcesses(before.pid, marks).end() == [others[2].pid]
        assert others[2].wait(5) == -9 and [one.poll() for one in (before, *others[:2])] == [None, None, None]
        assert EscapedProcesses(before.pid, marks).find() == []
    finally:
        for one in (before, *others):
            one.kill()
            one.wait()


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)
