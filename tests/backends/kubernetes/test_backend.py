"""The backend against an API server: one Job for each attempt whatever happens to the engine, and nothing left behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.blobs import Blobs
from penstock.backends.base import AttemptEnded, AttemptSpec
from penstock.backends.kubernetes.backend import KubernetesBackend
from penstock.backends.kubernetes.cluster import JOBS, PODS, SECRETS, SERVICES
from penstock.backends.registry import check
from penstock.errors import UserError
from penstock.graph import model
from penstock.graph.model import Outcome
from penstock.kubernetes.watch import Watcher
from tests.backends.harness import Play, spec_of, types_of
from tests.backends.kubernetes.fake_cluster import NAMESPACE, FakeCluster
from tests.backends.kubernetes.pods import condition
from tests.controller.fake_api import Fault, wait_for

Story = Callable[[Play], Awaitable[None]]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    made = FakeCluster(Blobs(tmp_path / "blobs"))
    (tmp_path / "kubeconfig").write_text(made.kubeconfig())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("PENSTOCK_KUBERNETES_VOLUME", "host:/data")
    yield made
    made.stop()


def step(does: str, **more: Any) -> model.Step:
    return model.Step(name="s", action=model.Container(image=f"does:{does}", command=("x",)), **more)


def live(home: Path, story: Story, engine: str = "engine-1", leave: bool = False) -> None:
    """`leave`: the engine is killed at the end of the story."""

    async def main() -> None:
        playing = Play(home, lambda context: KubernetesBackend(_with(context, engine)))
        try:
            await story(playing)
        finally:
            if not leave:
                async with asyncio.timeout(30):
                    await playing.backend.close()
            else:
                around = playing.backend._around
                if around is not None:
                    await asyncio.to_thread(around.result().cluster.close)

    asyncio.run(main())


def _with(context: Any, engine: str) -> Any:
    context.engine = engine
    return context


def one(home: Path, spec: AttemptSpec) -> AttemptEnded:
    found: list[AttemptEnded] = []

    async def story(playing: Play) -> None:
        found.append(await playing.one(spec))
        playing.backend.recorded([spec.id])

    live(home, story)
    return found[0]


def test_a_command_succeeds_and_nothing_is_left(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.nodes.outputs = {"n": 5}
    texts = []

    async def story(playing: Play) -> None:
        spec = spec_of(step("succeed", outputs=types_of({"n": "int"})))
        ended = await playing.one(spec)
        assert (ended.outcome, ended.outputs) == (Outcome.SUCCEEDED, {"n": 5})
        texts.append(playing.text(ended))
        assert len(cluster.names()) == 1  # until its end is recorded
        playing.backend.recorded([spec.id])

    live(tmp_path, story)
    assert texts == ["up 0\ndone\n"]
    assert cluster.names() == []
    wait_for(lambda: not cluster.names(PODS))


@pytest.mark.parametrize(
    ("does", "outcome", "said", "lost"),
    [
        ("exit-3", Outcome.FAILED, "exit code 3: last words", False),
        ("oom", Outcome.FAILED, "P725", False),
        ("evict", Outcome.ERRORED, "low on memory", True),
        ("nopull", Outcome.ERRORED, "P722", False),
    ],
)
def test_ends_are_told_apart(
    cluster: FakeCluster, tmp_path: Path, does: str, outcome: Outcome, said: str, lost: bool
) -> None:
    ended = one(tmp_path, spec_of(step(does)))
    assert (ended.outcome, ended.lost) == (outcome, lost) and said in ended.message
    assert cluster.names() == []
    wait_for(lambda: not cluster.names(PODS))


def test_a_full_quota_is_told_with_the_words_of_the_cluster(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.backends.kubernetes.attempt.LOOK", (0.05, 0.05))
    monkeypatch.setattr("penstock.backends.kubernetes.cluster.EVERY", 0.01)
    ended = one(tmp_path, spec_of(step("refuse")))
    assert ended.outcome is Outcome.ERRORED and "P724" in ended.message and "exceeded quota" in ended.message
    assert cluster.names() == []


def test_a_pod_that_no_machine_takes_ends_when_patience_does(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_KUBERNETES_PATIENCE", "0.2")
    ended = one(tmp_path, spec_of(step("nowhere")))
    assert "P723" in ended.message and "0/1 nodes" in ended.message and cluster.names() == []
    name, _, _ = ended.log[0]
    assert "waits: no machine takes its pod" in (tmp_path / name).read_text()


def test_a_gang_has_a_log_for_each_replica(cluster: FakeCluster, tmp_path: Path) -> None:
    ended = one(tmp_path, spec_of(step("succeed", replicas=3)))
    assert ended.outcome is Outcome.SUCCEEDED
    assert [(tmp_path / name).read_text() for name, _, _ in ended.log] == [
        "up 0\ndone\n",
        "up 1\ndone\n",
        "up 2\ndone\n",
    ]


def test_a_gang_has_a_service_that_goes_with_it(cluster: FakeCluster, tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        spec = spec_of(step("hang", replicas=2))
        playing.backend.start([spec])
        await playing.until(lambda: playing.began(spec.id) is not None)
        assert cluster.names(SERVICES) == cluster.names(JOBS)
        cluster.nodes.hold.set()
        assert (await playing.end_of(spec))[0].outcome is Outcome.SUCCEEDED
        playing.backend.recorded([spec.id])

    live(tmp_path, story)
    wait_for(lambda: not cluster.names(SERVICES))


def test_who_may_make_no_service_is_told_and_nothing_is_left(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.forbidden = {"create services"}
    assert one(tmp_path, spec_of(step("succeed"))).outcome is Outcome.SUCCEEDED
    ended = one(tmp_path, spec_of(step("succeed", replicas=2), task="gang"))
    assert ended.outcome is Outcome.ERRORED and "P721" in ended.message
    assert cluster.names(JOBS) == []


def test_the_start_is_told_when_it_runs_with_its_log(cluster: FakeCluster, tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        spec = spec_of(step("hang"))
        playing.backend.start([spec])
        await playing.until(lambda: playing.began(spec.id) is not None)
        began = playing.began(spec.id)
        assert began is not None and began.begun
        file = tmp_path / began.log[0][0]
        await asyncio.to_thread(wait_for, lambda: file.exists() and "up 0" in file.read_text())  # while it runs
        cluster.nodes.hold.set()
        assert (await playing.end_of(spec))[0].outcome is Outcome.SUCCEEDED

    live(tmp_path, story)


def test_what_is_stopped_is_gone_when_its_end_is_told(cluster: FakeCluster, tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        specs = [spec_of(step("hang"), task=f"t{number}") for number in range(5)]
        playing.backend.start(specs)
        playing.backend.stop(specs[0].id, 0.0)  # before anything is made
        await playing.until(lambda: all(playing.began(spec.id) for spec in specs[1:]))
        for spec in specs:
            playing.backend.stop(spec.id, 1.0)
        for ended in await playing.end_of(*specs):
            assert ended.outcome is Outcome.CANCELLED
        assert cluster.names() == [] and cluster.names(PODS) == []

    live(tmp_path, story)


def test_closing_ends_everything(cluster: FakeCluster, tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        spec = spec_of(step("hang"))
        playing.backend.start([spec])
        await playing.until(lambda: playing.began(spec.id) is not None)

    live(tmp_path, story)
    assert cluster.names() == [] and cluster.names(PODS) == []


# -- engines that die -------------------------------------------------------------------------------------------------


def begin(home: Path, spec: AttemptSpec) -> None:
    """Starts it, and the engine dies when it runs."""

    async def story(playing: Play) -> None:
        playing.backend.start([spec])
        await playing.until(lambda: playing.began(spec.id) is not None)

    live(home, story, leave=True)


@pytest.mark.parametrize("when", ["it still runs", "it has ended"])
def test_the_next_engine_goes_on_with_the_job(cluster: FakeCluster, tmp_path: Path, when: str) -> None:
    cluster.nodes.outputs = {"n": 7}
    the_step = step("hang", outputs=types_of({"n": "int"}))
    begin(tmp_path, spec_of(the_step, attempt=1, since=1))
    if when == "it has ended":
        cluster.nodes.hold.set()
        wait_for(lambda: [one["status"]["phase"] for one in cluster.all(PODS)] == ["Succeeded"])
    found = []

    async def story(playing: Play) -> None:
        spec = spec_of(the_step, attempt=2, since=1)
        playing.backend.start([spec])
        if not cluster.nodes.hold.is_set():
            await playing.until(lambda: playing.began(spec.id) is not None)
            cluster.nodes.hold.set()
        found.extend(await playing.end_of(spec))
        playing.backend.recorded([spec.id])

    live(tmp_path, story, "engine-2")
    assert found[0].outputs == {"n": 7} and cluster.nodes.times == {"hang": 1} and len(cluster.made) == 1
    assert cluster.names() == []


def test_an_attempt_after_a_recorded_end_is_another_job(cluster: FakeCluster, tmp_path: Path) -> None:
    assert one(tmp_path, spec_of(step("exit-1"), attempt=1, since=1)).outcome is Outcome.FAILED
    assert one(tmp_path, spec_of(step("exit-1"), attempt=2, since=2)).outcome is Outcome.FAILED
    assert len(set(cluster.made)) == 2


def test_a_job_made_from_something_else_goes_first(cluster: FakeCluster, tmp_path: Path) -> None:
    begin(tmp_path, spec_of(step("hang"), attempt=1, since=1))
    changed = model.Step(name="s", action=model.Container(image="does:succeed", command=("other",)))
    assert one(tmp_path, spec_of(changed, attempt=2, since=1)).outcome is Outcome.SUCCEEDED
    assert cluster.nodes.times == {"hang": 1, "succeed": 1} and len(set(cluster.made)) == 1


def test_what_nobody_goes_on_with_is_removed_when_that_is_recorded(cluster: FakeCluster, tmp_path: Path) -> None:
    spec = spec_of(step("hang"), attempt=1, since=1)
    begin(tmp_path, spec)
    assert len(cluster.names()) == 1

    async def story(playing: Play) -> None:
        playing.backend.recorded([spec.id])

    live(tmp_path, story, "engine-2")
    assert cluster.names() == []


def test_an_engine_that_was_taken_for_dead_does_not_end_the_job_of_its_heir(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    async def old(playing: Play) -> None:
        spec = spec_of(step("hang"), attempt=1, since=1)
        playing.backend.start([spec])
        await playing.until(lambda: playing.began(spec.id) is not None)
        thread = threading.Thread(target=begin_as_heir)
        thread.start()
        await asyncio.to_thread(thread.join)
        playing.backend.stop(spec.id, 0.0)  # as the dispatcher does with what is not its any more
        await playing.end_of(spec)

    def begin_as_heir() -> None:
        async def story(playing: Play) -> None:
            spec = spec_of(step("hang"), attempt=2, since=1)
            playing.backend.start([spec])
            await playing.until(lambda: playing.began(spec.id) is not None)

        live(tmp_path, story, "engine-2", leave=True)

    live(tmp_path, old)
    assert len(cluster.names()) == 1 and len(cluster.names(PODS)) == 1


def test_a_job_of_another_store_is_never_taken(cluster: FakeCluster, tmp_path: Path) -> None:
    begin(tmp_path, spec_of(step("hang")))
    [job] = cluster.all(JOBS)
    job["metadata"]["labels"]["penstock/store"] = "another"
    cluster.put(JOBS, job)
    ended = one(tmp_path, spec_of(step("hang")))
    assert ended.outcome is Outcome.ERRORED and "not of this store" in ended.message


# -- a server in trouble ----------------------------------------------------------------------------------------------


def test_a_create_whose_answer_got_lost_makes_one_job(cluster: FakeCluster, tmp_path: Path) -> None:
    fault = Fault(lambda method, path: method == "POST" and "/jobs" in path, 504, "Timeout", after=True)
    cluster.faults.append(fault)
    assert one(tmp_path, spec_of(step("succeed"))).outcome is Outcome.SUCCEEDED
    assert fault.times == 0 and len(cluster.made) == 1


def test_a_server_that_is_too_busy_is_asked_again_when_it_says(cluster: FakeCluster, tmp_path: Path) -> None:
    busy = Fault(
        lambda method, path: method == "POST" and "/jobs" in path, 429, headers={"Retry-After": "0.1"}, times=3
    )
    cluster.faults.append(busy)
    assert one(tmp_path, spec_of(step("succeed"))).outcome is Outcome.SUCCEEDED and busy.times == 0


def test_watches_that_break_and_are_too_old_lose_nothing(cluster: FakeCluster, tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        specs = [spec_of(step("hang"), task=f"t{number}") for number in range(4)]
        playing.backend.start(specs)
        await playing.until(lambda: all(playing.began(spec.id) for spec in specs))
        cluster.drop()
        cluster.nodes.hold.set()
        cluster.forget()
        for ended in await playing.end_of(*specs):
            assert ended.outcome is Outcome.SUCCEEDED

    live(tmp_path, story)


def test_a_watch_of_pods_that_is_behind_that_of_jobs_makes_no_failure_a_loss(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is lost is started again and not counted, so a failure must not be taken for one."""
    at_once = Watcher._take
    behind = threading.Event()

    def take(watcher: Watcher, event: Any) -> None:
        if event["object"].get("kind") == "Pod" or "containerStatuses" in event["object"].get("status", {}):
            behind.wait(10)
        at_once(watcher, event)

    monkeypatch.setattr(Watcher, "_take", take)

    async def story(playing: Play) -> None:
        spec = spec_of(step("exit-3"))
        playing.backend.start([spec])
        await asyncio.to_thread(
            wait_for, lambda: [one for one in cluster.all(PODS) if one["status"]["phase"] == "Failed"]
        )
        (job,) = cluster.all(JOBS)
        cluster.put(JOBS, {**job, "status": {"conditions": [condition("Failed", reason="BackoffLimitExceeded")]}})
        (ended,) = await playing.end_of(spec)
        behind.set()
        assert (ended.outcome, ended.lost, ended.exit_code) == (Outcome.FAILED, False, 3)

    live(tmp_path, story)


def test_there_is_one_watch_however_many_tasks(cluster: FakeCluster, tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        specs = [spec_of(step("succeed"), task=f"t{number}") for number in range(30)]
        for ended in await playing.run(*specs):
            assert ended.outcome is Outcome.SUCCEEDED
        playing.backend.recorded([spec.id for spec in specs])

    live(tmp_path, story)
    assert cluster.asked("GET", "/pods?watch") == cluster.asked("GET", "/jobs?watch") == 1
    assert cluster.asked("POST", "/jobs") == cluster.asked("DELETE", "/jobs/") == 30
    assert cluster.asked("GET", "/log") < 40  # mostly one each
    assert cluster.asked("GET", "/jobs/") == 0  # what is deleted is known from the watch
    assert cluster.names() == []


def test_missing_rights_are_named_before_anything_is_made(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.forbidden = {"create jobs", "watch pods"}
    ended = one(tmp_path, spec_of(step("succeed")))
    assert ended.outcome is Outcome.ERRORED and "P721" in ended.message
    assert "create jobs, watch pods" in ended.message and cluster.made == []


def test_a_namespace_that_is_not_there_is_said_at_once(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = {"KUBECONFIG": str(tmp_path / "kubeconfig")}
    wrong = {**kubeconfig, "PENSTOCK_KUBERNETES_NAMESPACE": "nowhere"}
    with pytest.raises(UserError) as error:
        check({"kubernetes"}, tmp_path, str(tmp_path / "artifacts"), wrong)
    assert error.value.code == "P720" and "no namespace nowhere" in str(error.value)
    cluster.faults.append(Fault(lambda method, path: path.endswith("/namespaces/ns"), 403, "Forbidden"))
    assert "it answers" in check({"kubernetes"}, tmp_path, str(tmp_path / "artifacts"), kubeconfig)


def test_no_cluster_is_said_at_once(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.stop()
    with pytest.raises(UserError) as error:
        check({"kubernetes"}, tmp_path, str(tmp_path / "artifacts"), {"KUBECONFIG": str(tmp_path / "kubeconfig")})
    assert error.value.code == "P720"


def test_the_cluster_and_the_store_are_named_if_all_is_well(cluster: FakeCluster, tmp_path: Path) -> None:
    said = check({"kubernetes"}, tmp_path, str(tmp_path / "artifacts"), {"KUBECONFIG": str(tmp_path / "kubeconfig")})
    assert said.startswith(f"fake, namespace {NAMESPACE}") and "cannot reach the artifact store" in said
    assert check({"workers"}, tmp_path, "", {}) == ""


def test_secrets_go_with_their_job_and_are_masked_in_the_log(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.nodes.outputs = {}
    action = model.Container(image="does:succeed", command=("x",), env={"T": "done"})
    spec = spec_of(model.Step(name="s", action=action), secrets={"t": "done"})
    seen = []

    async def story(playing: Play) -> None:
        ended = await playing.one(spec)
        seen.extend([cluster.all(SECRETS), playing.text(ended)])
        playing.backend.recorded([spec.id])

    live(tmp_path, story)
    assert seen[0][0]["stringData"] == {"env-0": "done"} and seen[1] == "up 0\n***\n"
    wait_for(lambda: not cluster.names(SECRETS))
