"""Warm pods: the calls of functions in processes that stand for pods, whatever happens to them and to the engine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.blobs import Blobs
from penstock.backends.base import AttemptEnded, AttemptSpec, AttemptStarted
from penstock.backends.kubernetes import names, pool
from penstock.backends.kubernetes.cluster import JOBS, PODS, Cluster
from penstock.graph import model
from penstock.graph.model import Outcome
from penstock.kubernetes.client import Client
from penstock.kubernetes.objects import uid_of
from penstock.kubernetes.watch import Watcher
from tests.backends.harness import Play, bundle_of, function_step, spec_of
from tests.backends.kubernetes.fake_cluster import NAMESPACE, FakeCluster
from tests.backends.kubernetes.test_backend import live
from tests.controller.fake_api import FakeApi, wait_for


def square(x: int) -> int:
    print("squaring", x)
    return x * x


def mark(place: str, seconds: float) -> int:
    """Leaves a mark at each start."""
    with open(place, "a") as file:
        file.write("x")
    time.sleep(seconds)
    return os.getpid()


def leave(code: int) -> None:
    os._exit(code)


def size_of(file: Path) -> int:
    return len(Path(file).read_bytes())


def variables() -> dict[str, str]:
    return {name: os.environ.get(name, "") for name in ("PENSTOCK_TASK", "FIXED", "EACH")}


def kill_pod(place: str) -> None:
    """As if the machine had failed: the pod is gone at once, with its worker."""
    mark(place, 0)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    made = FakeCluster(Blobs(tmp_path / "blobs"))
    (tmp_path / "kubeconfig").write_text(made.kubeconfig())
    given = {"VOLUME": "host:/data", "IMAGE": "does:run", "PYTHON": sys.executable, "POD_REUSE": "2"}
    for name, value in given.items():
        monkeypatch.setenv(f"PENSTOCK_KUBERNETES_{name}", value)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield made
    made.stop()


def specs_of(home: Path, function: Any, *inputs: dict[str, Any], **more: Any) -> list[AttemptSpec]:
    step = more.pop("step", None) or function_step(function)
    bundle = bundle_of(step, blobs=Blobs(home / "blobs"))
    return [
        spec_of(step, given, task=f"{step.name}[{number}]", bundle=bundle, **more)
        for number, given in enumerate(inputs)
    ]


def marks(place: Path) -> str:
    return place.read_text() if place.exists() else ""


def told(home: Path, *specs: AttemptSpec, recorded: bool = True) -> list[AttemptEnded]:
    found: list[AttemptEnded] = []

    async def story(playing: Play) -> None:
        found.extend(await playing.run(*specs))
        if recorded:
            playing.backend.recorded([spec.id for spec in specs])

    live(home, story)
    return found


def test_many_calls_are_made_in_few_pods_and_nothing_is_left(cluster: FakeCluster, tmp_path: Path) -> None:
    texts = {}

    async def story(playing: Play) -> None:
        specs = specs_of(tmp_path, square, *({"x": number} for number in range(60)))
        for number, ended in enumerate(await playing.run(*specs)):
            assert (ended.outcome, ended.outputs) == (Outcome.SUCCEEDED, {"result": number**2}), ended
            texts[number] = playing.text(ended)
        playing.backend.recorded([spec.id for spec in specs])

    live(tmp_path, story)
    assert texts == {number: f"squaring {number}\n" for number in range(60)}
    assert len(cluster.made) <= 2 and cluster.names() == []
    wait_for(lambda: not cluster.nodes.processes)
    assert list((tmp_path / "blobs" / "mail").glob("*/*")) == []


def test_calls_behind_a_url_are_the_same(cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_KUBERNETES_VOLUME")

    async def story(playing: Play) -> None:
        playing.context.blobs = Blobs(f"file://{tmp_path}/blobs")
        specs = specs_of(tmp_path, square, *({"x": number} for number in range(5)))
        ends = await playing.run(*specs)
        assert [one.outputs["result"] for one in ends] == [0, 1, 4, 9, 16], ends
        playing.backend.recorded([spec.id for spec in specs])

    live(tmp_path, story)
    assert cluster.names() == []


def test_what_a_queue_of_the_cluster_counts_has_a_pod_of_its_own(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_KUBERNETES_IMAGE", "does:succeed")
    told(tmp_path, *specs_of(tmp_path, square, *({"x": number} for number in range(3)), counted=True))
    assert len(cluster.made) == 3


@pytest.mark.slow
def test_each_way_to_end_is_told_and_the_pod_goes_on(cluster: FakeCluster, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"12345")
    ends = told(
        tmp_path,
        *specs_of(tmp_path, leave, {"code": 3}),
        *specs_of(tmp_path, square, {"x": "no number"}, {"x": 2}),
        *specs_of(tmp_path, size_of, {"file": str(tmp_path / "data")}),
    )
    assert ends[0].outcome is Outcome.FAILED and ends[0].exit_code == 3 and not ends[0].lost
    assert ends[1].outcome is Outcome.FAILED and ends[1].exception == "TypeError" and "square" in ends[1].traceback
    assert ends[2].outputs == {"result": 4} and ends[3].outputs == {"result": 5}
    assert len(cluster.made) <= 6


def test_variables_are_those_of_the_call(cluster: FakeCluster, tmp_path: Path) -> None:
    step = function_step(variables, env={"FIXED": "1", "EACH": "${{ item }}"})
    action = step.action
    assert isinstance(action, model.Function)
    given = [model.with_values(action, {"env": {"FIXED": "1", "EACH": each}}) for each in ("a", "b")]
    bundle = bundle_of(step, blobs=Blobs(tmp_path / "blobs"))
    specs = [spec_of(step, task=f"t{n}", bundle=bundle, action=one) for n, one in enumerate(given)]
    results = [one.outputs["result"] for one in told(tmp_path, *specs)]
    assert results == [{"PENSTOCK_TASK": f"t{n}", "FIXED": "1", "EACH": each} for n, each in enumerate("ab")]
    assert (
        len({one["metadata"]["labels"]["penstock/pool"] for _, _, _, one, _ in cluster.log if one["kind"] == "Job"})
        == 1
    )


def test_what_runs_is_stopped_alone_and_what_waits_does_not_begin(cluster: FakeCluster, tmp_path: Path) -> None:
    place = tmp_path / "marks"

    async def story(playing: Play) -> None:
        specs = specs_of(tmp_path, mark, *({"place": f"{place}{n}", "seconds": 60.0} for n in range(6)))
        playing.backend.start(specs)
        running = lambda: [spec for spec in specs if playing.began(spec.id)]
        await playing.until(lambda: len(running()) == 2)
        await asyncio.to_thread(wait_for, lambda: sum(len(marks(Path(f"{place}{n}"))) for n in range(6)) == 2)
        pods = cluster.names(PODS)
        for spec in [one for one in specs if one not in running()]:
            playing.backend.stop(spec.id, 1.0)
        first, second = running()
        playing.backend.stop(first.id, 1.0)
        rest = [spec for spec in specs if spec is not second]
        assert {one.outcome for one in await playing.end_of(*rest)} == {Outcome.CANCELLED}
        assert cluster.names(PODS) == pods and playing.ended(second.id) is None  # the pods are used on
        more = specs_of(tmp_path, square, {"x": 3}, run="test-2", step=function_step(square))
        playing.backend.stop(second.id, 0.0)
        await playing.end_of(second)
        playing.backend.recorded([spec.id for spec in specs])
        assert (await playing.run(*more))[0].outputs == {"result": 9}
        playing.backend.recorded([spec.id for spec in more])

    live(tmp_path, story)
    assert sum(len(marks(Path(f"{place}{n}"))) for n in range(6)) == 2
    assert cluster.names() == []


@pytest.mark.slow
def test_a_pod_that_dies_loses_what_it_had_begun_and_nothing_else(cluster: FakeCluster, tmp_path: Path) -> None:
    place = tmp_path / "marks"
    step = function_step(kill_pod)
    [bad] = specs_of(tmp_path, kill_pod, {"place": str(place)}, step=step)

    async def story(playing: Play) -> None:
        slow = specs_of(tmp_path, mark, *({"place": f"{place}{n}", "seconds": 0.05} for n in range(20)))
        assert bad.bundle != slow[0].bundle
        ends = await playing.run(bad, *slow)
        assert ends[0].lost and ends[0].outcome is Outcome.ERRORED and "137" in ends[0].message
        assert {one.outcome for one in ends[1:]} == {Outcome.SUCCEEDED}
        playing.backend.recorded([spec.id for spec in (bad, *slow)])

    live(tmp_path, story)
    assert marks(place) == "x" and cluster.names() == []


@pytest.mark.slow
def test_calls_behind_one_that_ends_its_pod_are_made_by_another(cluster: FakeCluster, tmp_path: Path) -> None:
    """All in pods of one shape: what is not begun is free, and what is lost is told apart."""
    place = tmp_path / "marks"
    both = model.Workflow(name="test", steps=(function_step(kill_pod), function_step(mark)))
    bundle = bundle_of(*both.steps, blobs=Blobs(tmp_path / "blobs"))
    bad = spec_of(both.steps[0], {"place": f"{place}bad"}, bundle=bundle)
    good = [
        spec_of(both.steps[1], {"place": f"{place}{n}", "seconds": 0.01}, task=f"g{n}", bundle=bundle)
        for n in range(30)
    ]
    ends = told(tmp_path, bad, *good)
    assert ends[0].lost
    again = [one for one in ends[1:] if one.lost]
    assert len(again) <= 2 and {one.outcome for one in ends[1:] if not one.lost} == {Outcome.SUCCEEDED}
    assert all(len(marks(Path(f"{place}{n}"))) == 1 for n, one in enumerate(ends[1:]) if not one.lost)


# -- engines that die -------------------------------------------------------------------------------------------------


def begin(home: Path, *specs: AttemptSpec, until: Any) -> None:
    async def story(playing: Play) -> None:
        playing.backend.start(list(specs))
        await playing.until(lambda: until(playing))

    live(home, story, leave=True)


def _in_letters(home: Path, box: str, what: str) -> set[str]:
    letters = (home / "blobs" / "mail").glob(f"*/*/{box}/*")
    found = [json.loads(letter.read_text()) for letter in letters if letter.name.isdigit()]
    return {one["key"] for letter in found for one in letter.get(what, ())}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("when", ["at once", "when all have ended", "when the pods have ended"])
def test_the_next_engine_goes_on_with_calls(
    cluster: FakeCluster, tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "IDLE", 0.5 if when == "when the pods have ended" else 30.0)
    place, step = tmp_path / "marks", function_step(mark)
    given = [{"place": f"{place}{n}", "seconds": 0.3} for n in range(8)]
    begin(
        tmp_path,
        *specs_of(tmp_path, mark, *given, step=step, since=1),
        until=lambda playing: any(isinstance(one, AttemptEnded) for one in playing.reports),
    )
    if when == "when the pods have ended":
        wait_for(lambda: all(one["status"]["phase"] == "Succeeded" for one in cluster.all(PODS)))
    elif when == "when all have ended":
        wait_for(lambda: _in_letters(tmp_path, "in", "calls") == _in_letters(tmp_path, "out", "ends"))
    found: list[AttemptEnded] = []

    async def story(playing: Play) -> None:
        specs = specs_of(tmp_path, mark, *given, step=step, attempt=2, since=1)
        found.extend(await playing.run(*specs))
        playing.backend.recorded([spec.id for spec in specs])

    live(tmp_path, story, "engine-2")
    assert {one.outcome for one in found} == {Outcome.SUCCEEDED}, found
    assert [marks(Path(f"{place}{n}")) for n in range(8)] == ["x"] * 8
    assert cluster.names() == []


def test_an_engine_without_warm_pods_goes_on_with_theirs_too(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, step = tmp_path / "marks", function_step(mark)
    given = {"place": str(place), "seconds": 1.0}
    begin(
        tmp_path,
        *specs_of(tmp_path, mark, given, step=step, since=1),
        until=lambda playing: any(isinstance(one, AttemptStarted) for one in playing.reports),
    )
    monkeypatch.setenv("PENSTOCK_KUBERNETES_POD_REUSE", "0")
    [ended] = told_by_the_next(tmp_path, *specs_of(tmp_path, mark, given, step=step, attempt=2, since=1))
    assert ended.outcome is Outcome.SUCCEEDED and marks(place) == "x" and cluster.names() == []


def test_warm_jobs_that_were_listed_are_known_before_the_watch_begins() -> None:
    """A Job that is not known counts as deleted, and what its pod does as lost."""
    api = FakeApi(JOBS, PODS)
    labels = {names.STORE: "mine", names.POOL: "shape"}
    api.put(JOBS, {"metadata": {"name": "warm", "namespace": NAMESPACE, "labels": labels}})
    seen = Cluster(Client(api.connection()), NAMESPACE, "mine", "engine", lambda _: None)
    try:
        [job] = seen.warm_jobs()
        known = seen.job("warm")
        assert known is not None and uid_of(known) == uid_of(job)
    finally:
        seen.start()
        seen.close()
        api.stop()


def test_what_the_next_engine_has_not_seen_yet_is_not_taken_for_gone(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lists of its watches come late. A Job that is in none of them is no Job that was deleted: its call would be made twice."""
    place, step = tmp_path / "marks", function_step(mark)
    given = {"place": str(place), "seconds": 1.0}
    begin(
        tmp_path,
        *specs_of(tmp_path, mark, given, step=step, since=1),
        until=lambda playing: any(isinstance(one, AttemptStarted) for one in playing.reports),
    )
    at_once = Watcher._list

    def later(watcher: Watcher) -> None:
        time.sleep(0.5)
        at_once(watcher)

    monkeypatch.setattr(Watcher, "_list", later)
    [ended] = told_by_the_next(tmp_path, *specs_of(tmp_path, mark, given, step=step, attempt=2, since=1))
    assert ended.outcome is Outcome.SUCCEEDED, ended.message
    assert marks(place) == "x" and cluster.names() == []


def told_by_the_next(home: Path, *specs: AttemptSpec) -> list[AttemptEnded]:
    found: list[AttemptEnded] = []

    async def story(playing: Play) -> None:
        found.extend(await playing.run(*specs))
        playing.backend.recorded([spec.id for spec in specs])

    live(home, story, "engine-2")
    return found


def test_what_nobody_goes_on_with_is_ended(cluster: FakeCluster, tmp_path: Path) -> None:
    place = tmp_path / "marks"
    specs = specs_of(tmp_path, mark, *({"place": f"{place}{n}", "seconds": 60.0} for n in range(3)), since=1)
    begin(tmp_path, *specs, until=lambda playing: sum(isinstance(one, AttemptStarted) for one in playing.reports) == 2)

    async def story(playing: Play) -> None:
        playing.backend.recorded([spec.id for spec in specs])

    live(tmp_path, story, "engine-2")
    assert cluster.names() == [] and cluster.names(PODS) == []
    wait_for(lambda: not cluster.nodes.processes)


def test_pods_that_were_not_up_when_their_engine_died_are_ended(cluster: FakeCluster, tmp_path: Path) -> None:
    specs = specs_of(tmp_path, square, {"x": 1}, {"x": 2}, since=1)
    begin(tmp_path, *specs, until=lambda playing: cluster.names())
    again = specs_of(tmp_path, square, {"x": 1}, {"x": 2}, attempt=2, since=1)
    assert [one.outputs for one in told_by_the_next(tmp_path, *again)] == [{"result": 1}, {"result": 4}]
    assert cluster.names() == []


def test_what_was_told_and_not_recorded_is_told_again(cluster: FakeCluster, tmp_path: Path) -> None:
    place, step = tmp_path / "marks", function_step(mark)
    given = {"place": str(place), "seconds": 0.0}
    told(tmp_path, *specs_of(tmp_path, mark, given, step=step, since=1), recorded=False)
    assert len(cluster.names()) == 1
    [ended] = told_by_the_next(tmp_path, *specs_of(tmp_path, mark, given, step=step, attempt=2, since=1))
    assert ended.outcome is Outcome.SUCCEEDED and marks(place) == "x" and cluster.names() == []


@pytest.mark.slow
def test_letters_of_jobs_that_kubernetes_has_removed_are_cleared_away(cluster: FakeCluster, tmp_path: Path) -> None:
    told(tmp_path, *specs_of(tmp_path, square, {"x": 1}, since=1), recorded=False)
    [box] = (tmp_path / "blobs" / "mail").glob("*/*")
    for job in cluster.names():
        cluster.remove(JOBS, NAMESPACE, job)
    wait_for(lambda: not cluster.nodes.processes)
    assert told_by_the_next(tmp_path, *specs_of(tmp_path, square, {"x": 2}))[0].outputs == {"result": 4}
    assert box.is_dir()  # it might be that of a pod that is being made
    for place in (box, *box.rglob("*")):
        os.utime(place, (0, 0))
    told_by_the_next(tmp_path, *specs_of(tmp_path, square, {"x": 3}))
    assert not box.exists()


# -- pods that do not come up -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("image", "said"), [("does:nopull", "P722"), ("does:exit-1", "P903")])
def test_pods_that_do_not_start_are_said(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str, said: str
) -> None:
    monkeypatch.setenv("PENSTOCK_KUBERNETES_IMAGE", image)
    ends = told(tmp_path, *specs_of(tmp_path, square, *({"x": number} for number in range(5))))
    assert all(one.outcome is Outcome.ERRORED and said in one.message for one in ends), ends
    assert cluster.names() == []


def test_secrets_and_gangs_have_pods_of_their_own(cluster: FakeCluster, tmp_path: Path) -> None:
    [secret] = specs_of(tmp_path, square, {"x": 2}, secrets={"token": "hidden"})

    async def story(playing: Play) -> None:
        playing.backend.start([secret])
        await asyncio.to_thread(wait_for, lambda: len(cluster.names()) == 1)
        assert "penstock/pool" not in cluster.all(JOBS)[0]["metadata"]["labels"]
        playing.backend.stop(secret.id, 0.0)
        await playing.end_of(secret)

    live(tmp_path, story)
