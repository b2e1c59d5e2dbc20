"""Pods and mounted folders in real containers of podman; where it is missing or does not work, these tests skip."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.container.orphans import end_orphan_containers
from penstock.expressions.types import parse
from penstock.graph.model import Input, Mount, Outcome, Output, Part, Pod, Step
from tests.backends import sample
from tests.backends.harness import Play, bundle_of, function_step, spec_of
from tests.backends.test_container import Story, at, one, output, podman, shell  # noqa: F401 - two are fixtures
from tests.support.podman import IMAGE, Podman


def sh(name: str, source: str, **more: Any) -> Part:
    return Part(name=name, **{"image": IMAGE, "source": source, **more})


def pod(*parts: Part, **more: Any) -> Step:
    outputs = tuple(Output(name=name, type=parse(type_), path=path) for name, type_, path in more.pop("outputs", ()))
    return Step(name="step", action=Pod(parts=parts), outputs=outputs, **more)


# -- folders -----------------------------------------------------------------------------------------------------------


def test_mounted_folders_are_there_and_those_of_the_run_are_shared(at: Callable[[Story], None], tmp_path: Path) -> None:  # noqa: F811
    first = shell(
        "echo $(cat /in/x /work/given) > /work/sub/n; cat /conf/a /one; ls /scratch /conf; touch /scratch/s; touch /conf/b || echo kept",
        output("n", "int", "/work/sub/n"),
        mounts=(
            Mount(name="w", path="/work", scope="run"),
            Mount(name="s", path="/scratch"),
            Mount(name="c", path="/conf", scope="given", files={"a": "A\n"}, read_only=True),
            Mount(name="c", path="/one", scope="given", files={"a": "1\n"}, sub_path="a"),
        ),
        inputs=(Input(name="x", value=None, path="/in/x"), Input(name="g", value=None, path="/work/given")),
        name="first",
        workdir="/work/sub",
    )
    second = shell(
        "cat /elsewhere/n", name="second", mounts=(Mount(name="w", path="/elsewhere", scope="run", sub_path="sub"),)
    )

    async def story(engine: Play) -> None:
        ended = await engine.one(spec_of(first, {"x": 4, "g": 2}))
        assert ended.outputs == {"n": 42}, engine.text(ended)
        assert engine.text(ended).startswith("A\n1\n") and engine.text(ended).count("kept\n") == 1, engine.text(ended)
        ended = await engine.one(spec_of(second))
        assert engine.text(ended) == "42\n"

    at(story)
    folder = tmp_path / "home/work/test-1"
    assert [path.name for path in folder.iterdir()] == ["volumes"] and (folder / "volumes/w/given").read_text() == "2"


def test_a_link_in_a_shared_folder_does_not_open_the_machine(at: Callable[[Story], None], tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "secret").write_text("s")
    shared = Mount(name="w", path="/work", scope="run")
    make = shell(f"ln -s {tmp_path}/mine /work/link", mounts=(shared,), name="make")
    bad = [
        shell("true", mounts=(Mount(name="w", path="/work", scope="run", sub_path="link"),)),
        shell("true", mounts=(shared,), inputs=(Input(name="x", value=None, path="/work/link/x"),)),
        shell("true", mounts=(shared,), workdir="/work/link/new"),
        shell("true", output("x", "str", "/work/link/secret"), mounts=(shared,)),
    ]

    async def story(engine: Play) -> None:
        assert (await engine.one(spec_of(make))).outcome == "succeeded"
        for number, step in enumerate(bad):
            ended = await engine.one(spec_of(step, {"x": 1}, task=f"bad-{number}"))
            assert ended.outcome != "succeeded" and "link" in ended.message, ended

    at(story)
    assert os.listdir(tmp_path / "mine") == ["secret"]


# -- pods --------------------------------------------------------------------------------------------------------------


def test_parts_share_folders_and_hand_on_results(at: Callable[[Story], None]) -> None:  # noqa: F811
    step = pod(
        sh(
            "a",
            "cat /in/x > /work/copy; echo '[\"x y\", 2]' > /tekton/a/list; echo -n tmp > /tmp/r; echo 1 > /tekton/results/first",
            results={"list": "/tekton/a/list", "tmp": "/tmp/r"},
        ),
        Part(name="b", image=IMAGE, command=("echo",), args=("$(steps.a.results.list[*])", "$(steps.a.results.tmp)")),
        sh(
            "c",
            "pwd; cat copy; cat /tekton/results/first >/tekton/results/second; echo $E",
            workdir="/work",
            env={"E": "$(steps.a.results.list[0])"},
        ),
        sh("d", "echo never", when=({"input": "$(steps.a.results.list[1])", "operator": "notin", "values": ["2"]},)),
        sh("e", "#!/bin/sh -e\nfalse\n", on_error="continue"),
        sh("f", "cat $(steps.e.exitCode.path); cat /data/kept"),
        inputs=(Input(name="x", value=None, path="/in/x"),),
        mounts=(Mount(name="w", path="/work"),),
        outputs=[
            ("first", "int", "/tekton/results/first"),
            ("second", "int", "/tekton/results/second"),
            ("said", "str", "/dev/stdout"),
        ],
    )
    ended, log = one(at, step, {"x": "7\n"})
    assert ended.outcome is Outcome.SUCCEEDED, (ended, log)
    assert ended.outputs == {"first": 1, "second": 1, "said": "1of the image"}
    assert log == (
        "[a]\n[b]\nx y 2 tmp\n[c]\n/work\n7\nx y\n[d] skipped\n[e]\n[e] exit code 1; the pod goes on\n[f]\n1of the image\n"
    )


def test_outputs_come_from_main_and_sidecars_share_its_network(at: Callable[[Story], None]) -> None:  # noqa: F811
    step = pod(
        sh("init", "ls -l /proc/self/ns/net | sed 's/.*net:/net:/' > /work/init"),
        sh(
            "main",
            "ls -l /proc/self/ns/net | sed 's/.*net:/net:/'; cat /work/init /work/side; echo 5 > /tmp/out.txt; echo 6 > /deep/er/n",
        ),
        sh("side", "ls -l /proc/self/ns/net | sed 's/.*net:/net:/' > /work/side; sleep 1000", sidecar=True),
        mounts=(Mount(name="w", path="/work"),),
        outputs=[("n", "int", "/tmp/out.txt"), ("m", "int", "/deep/er/n")],
    )
    began = time.monotonic()
    ended, log = one(at, step)
    assert ended.outputs == {"n": 5, "m": 6}, (ended, log)
    lines = log.splitlines()
    assert lines[:2] == ["[init]", "[main]"] and len(set(lines[2:5])) == 1 and lines[2].startswith("net:")
    assert time.monotonic() - began < 30


def test_the_first_failure_ends_the_pod(at: Callable[[Story], None], tmp_path: Path) -> None:  # noqa: F811
    step = pod(
        sh("a", "sleep 1000", needs=()),
        sh("b", "exit 3", needs=()),
        sh("c", "echo never"),
        sh("s", "sleep 1000", sidecar=True),
    )
    ended, log = one(at, step)
    assert (ended.outcome, ended.exit_code, ended.message) == (Outcome.FAILED, 3, "part b: exit code 3")
    assert "never" not in log


@pytest.mark.parametrize(
    ("part", "outcome", "message"),
    [
        (sh("b", "sleep 1000", timeout=0.5, on_error="continue"), "failed", "part b: timed out after 0.5 s"),
        (sh("b", "echo $(steps.a.results.x)"), "failed", "part b: part a has not written its result 'x' to /r/x"),
        (sh("b", "true", image="localhost/penstock-no-such:1"), "errored", "part b: podman: "),
        (sh("b", "true", image=None), "errored", "part b has no image"),
        (Part(name="b", image=IMAGE, command=("no-such-command",)), "errored", "part b: podman: "),
    ],
)
def test_what_is_wrong_with_a_part_is_told(at: Callable[[Story], None], part: Part, outcome: str, message: str) -> None:  # noqa: F811
    ended, _ = one(at, pod(sh("a", "true", results={"x": "/r/x"}), part))
    assert ended.outcome == outcome and message in ended.message, ended


def test_a_pod_may_have_replicas(at: Callable[[Story], None]) -> None:  # noqa: F811
    step = pod(sh("a", "echo $PENSTOCK_REPLICA"), sh("b", "test $PENSTOCK_REPLICA = 0 || exit 4"), replicas=2)
    ended, log = one(at, step)
    assert (ended.exit_code, ended.message) == (4, "replica 1: part b: exit code 4") and "[a]\n1\n" in log


@pytest.mark.parametrize("grace", [0.0, 1.0])
def test_stop_in_the_middle_ends_all_containers(at: Callable[[Story], None], podman: Podman, grace: float) -> None:  # noqa: F811
    async def story(engine: Play) -> None:
        parts = [
            sh("a", "echo a; sleep 1000", needs=()),
            sh("b", "sleep 1000", needs=()),
            sh("s", "sleep 1000", sidecar=True),
        ]
        spec = spec_of(pod(*parts, sh("c", "echo never", needs=("a",))))
        engine.backend.start([spec])
        async with asyncio.timeout(30):
            while len(await asyncio.to_thread(podman.containers)) < 3:
                await asyncio.sleep(0.05)
        engine.backend.stop(spec.id, grace)
        [ended] = await engine.end_of(spec)
        assert ended.outcome is Outcome.CANCELLED and podman.containers() == []

    at(story)


CRASH = """
import asyncio, os, sys
from pathlib import Path
from penstock.backends.container.backend import ContainerBackend
from tests.backends.harness import spec_of, play
from tests.backends.test_container_pod import pod, sh
home = Path(sys.argv[1])
async def story(engine):
    engine.backend.start([spec_of(pod(sh("s", "sleep 1000", sidecar=True), sh("a", "echo up; sleep 1000")))])
    while "up" not in (text := "".join(path.read_text() for path in home.glob("logs/*/*.log"))):
        await asyncio.sleep(0.05)
    os._exit(7)
play(home, ContainerBackend, story)
"""


def test_containers_of_a_pod_that_a_dead_engine_left_are_removed(podman: Podman, tmp_path: Path) -> None:  # noqa: F811
    env = {**os.environ, **podman.environ}
    done = subprocess.run([sys.executable, "-c", CRASH, str(tmp_path)], env=env, timeout=60, check=False)
    assert done.returncode == 7 and len(podman.containers()) == 2
    assert end_orphan_containers(tmp_path, ["engine-1"], env) == 2
    assert podman.containers() == []


def test_a_function_finds_the_folders_that_its_step_mounts(at: Callable[[Story], None], podman: Podman) -> None:  # noqa: F811
    step = function_step(sample.listed, "list[str]")
    action = dataclasses.replace(step.action, image=podman.with_python())
    folder = Mount(name="w", path="/work", scope="run", files={"a": "1", "b/c": "2"})
    step = dataclasses.replace(step, action=action, mounts=(folder,))

    async def story(engine: Play) -> None:
        ended = await engine.one(spec_of(step, {"folder": "/work"}, bundle=bundle_of(step, blobs=engine.blobs)))
        assert ended.outputs == {"result": ["a", "b"]}, (ended, engine.text(ended))

    at(story)
