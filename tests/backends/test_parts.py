"""The small parts of the backends, each alone: no process, no container, no engine."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.blobs import Blobs
from penstock.backends.attempt import CannotRun, for_replica, penstock_env, replica_logs, starts_at_root
from penstock.backends.base import AttemptSpec, BackendContext, Inbox
from penstock.backends.container.files import BindMount, ContainerFiles
from penstock.backends.container.spec import ContainerSpec, command_of
from penstock.backends.kubectl import KubernetesObject, object_of
from penstock.backends.local.files import HostFiles
from penstock.backends.local.function_table import UNKNOWN, FunctionTable
from penstock.backends.local.pacing import Pacing
from penstock.backends.pods.log import PodLog
from penstock.backends.pods.progress import PodProgress
from penstock.backends.pods.sequence import PodSequence
from penstock.backends.processes import how_it_ended
from penstock.graph import model
from penstock.graph.model import Container, Function, Mount, Part, Script, Step
from tests.backends.harness import spec_of


def context(home: Path) -> BackendContext:
    loop = asyncio.new_event_loop()
    try:
        inbox = Inbox(loop)
    finally:
        loop.close()
    return BackendContext(
        home=home, blobs=Blobs(home / "blobs"), inbox=inbox, jobs=4, engine="e1", now=time.time, environ={}
    )


def script(source: str = "true", **more: Any) -> Step:
    return Step(name="s", action=Script(source=source), **more)


# -- the spec of an attempt ----------------------------------------------------------------------------------------------


def test_replicas_get_their_number_and_their_logs() -> None:
    spec = spec_of(script("echo $(PENSTOCK_REPLICA)", replicas=2))
    action = for_replica(spec, 1).action
    assert isinstance(action, Script) and action.source == "echo 1"
    assert replica_logs(spec, 1) == ("logs/test-1/s.1.1.log",) * 2
    printed = spec_of(
        Step(name="s", action=Script(source="true"), outputs=(model.Output(name="n", path="/dev/stdout"),))
    )
    assert replica_logs(printed, 0) == ("logs/test-1/s.1.out", "logs/test-1/s.1.log")


def test_a_step_of_another_system_starts_at_the_root(tmp_path: Path) -> None:
    assert starts_at_root(spec_of(script(), working_directory="/"))
    assert not starts_at_root(spec_of(script(), working_directory="/home"))
    assert penstock_env(spec_of(script()), context(tmp_path), 0, "/out", "/e")["PENSTOCK_ERROR"] == "/e"


# -- the host ------------------------------------------------------------------------------------------------------------


def test_declared_paths_are_replaced_as_whole_paths_only(tmp_path: Path) -> None:
    files = HostFiles(tmp_path)
    files.move(["/tmp/x", None, "relative"])
    assert files.relocate("cat /tmp/x /tmp/xy /var/tmp/x /tmp/x/y") == (
        f"cat {tmp_path}/root/tmp/x /tmp/xy /var/tmp/x {tmp_path}/root/tmp/x/y"
    )
    assert files.real("/tmp/x") == tmp_path / "root/tmp/x" and files.inside("/etc") == f"{tmp_path}/root/etc"


def test_short_commands_are_queued_ahead_and_long_ones_are_not() -> None:
    pacing, short, long = Pacing(2), Script(source="true"), Script(source="sleep 1")
    assert pacing.room() == pacing.room_for(short) == 2
    for _ in range(40):
        pacing.measure(short, 0.001)
    assert pacing.room() > 2 and pacing.room_for(short) == pacing.room() and pacing.room_for(long) == 2


def test_steps_with_the_same_function_share_its_number_and_its_estimate() -> None:
    table = FunctionTable()
    one, two = (Step(name=name, action=Function(module="m", name="f", code="c")) for name in ("one", "two"))
    first = table.of(spec_of(one))
    assert first.estimate == UNKNOWN == table.estimate(one) == table.estimate(two)
    table.measure(first, 0.001)
    assert table.of(spec_of(one)) is first and table.estimate(one) == 0.001
    second = table.of(spec_of(two))
    assert second is not first and second.number == first.number and second.estimate == 0.001


@pytest.mark.parametrize(
    ("code", "words"), [(3, "exit code 3"), (-9, "signal 9 (SIGKILL; perhaps out of memory)"), (None, "exit code None")]
)
def test_how_a_process_ended_in_words(code: int | None, words: str) -> None:
    assert how_it_ended(code).endswith(words)


# -- pods ----------------------------------------------------------------------------------------------------------------


def test_progress_writes_exit_codes_that_are_read_and_notes_what_is_skipped(tmp_path: Path) -> None:
    parts = [
        Part(name="a", command=("true",), on_error="continue"),
        Part(
            name="b",
            command=("cat", "$(steps.a.exitCode.path)"),
            when=({"input": "x", "operator": "in", "values": []},),
        ),
    ]
    spec = spec_of(Step(name="p", action=model.Pod(parts=tuple(parts))))
    log = PodLog(tmp_path, spec, 0, parts)
    (tmp_path / log.err).parent.mkdir(parents=True)
    sequence = PodSequence(parts, lambda part, path: None, lambda name: f"/codes/{name}")
    progress = PodProgress(sequence, log, lambda name: tmp_path / "codes" / name)
    assert [part.name for part in progress.next()] == ["a"]
    progress.ended("a", -15, False)
    assert (tmp_path / "codes" / "a").read_text() == "143"
    assert list(progress.next()) == [] and sequence.over
    assert "[b] skipped" in (tmp_path / log.err).read_text()


# -- containers ----------------------------------------------------------------------------------------------------------


def container_files(home: Path, spec: AttemptSpec) -> ContainerFiles:
    files = ContainerFiles(spec, 0, context(home))
    files.prepare()
    return files


def test_outputs_that_are_below_no_mount_are_copied_out(tmp_path: Path) -> None:
    outputs = (model.Output(name="a", path="/data/a"), model.Output(name="b", path="/shared/b"), model.Output(name="c"))
    step = Step(
        name="s",
        action=Container(image="i", command=("x",)),
        outputs=outputs,
        mounts=(Mount(name="m", path="/shared", scope="run"),),
    )
    files = container_files(tmp_path, spec_of(step))
    files.make_outputs()
    assert files.new_folders == ["/data"]
    assert [path for path, _ in files.outputs_to_copy()] == ["/data/a"]
    found = files.on_host("/shared/b")
    assert found is not None and found[0] == tmp_path / "work/test-1/volumes/m/b"
    with pytest.raises(CannotRun, match="relative"):
        files.inside("x")


def test_the_words_that_create_a_container() -> None:
    spec = ContainerSpec(
        name="n",
        command=command_of("image", ["sh", "-c"], ["x"]),
        workdir="/w",
        mounts=[BindMount(Path("/a"), "/b", read_only=True)],
        env={"A": "1"},
        labels={"engine": "e1"},
        out="o",
        err="o",
        network="first",
    )
    words = spec.create_words(["--network", "host", "--cpus=1"])
    assert words[:4] == ["create", "--name", "n", "--pull"]
    assert "host" not in words and words[-6:] == ["container:first", "--entrypoint", "sh", "image", "-c", "x"]
    assert "/a:/b:ro" in words and "A=1" in words and "penstock.engine=e1" in words and "--cpus=1" in words
    with pytest.raises(CannotRun, match="both"):
        BindMount(Path("/a:b,c"), "/d").words()


# -- Kubernetes ----------------------------------------------------------------------------------------------------------


def test_an_object_that_exists_must_be_ours() -> None:
    action = model.Resource(action="create", manifest={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})
    mine = object_of(action, spec_of(Step(name="r", action=action)), "me")
    assert str(mine) == "Pod p"
    mine.check_ours(mine.manifest)
    with pytest.raises(ValueError, match="not made by Penstock"):
        mine.check_ours({"metadata": {}})
    assert KubernetesObject(mine.manifest).reference == '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}'
