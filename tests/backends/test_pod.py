"""Pods on the host: several programs in one task, what they share, how they end, and that nothing of them is left."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.base import AttemptEnded
from penstock.backends.local.orphans import end_orphans, find_orphans
from penstock.backends.local.process import ProcessBackend
from penstock.expressions.types import parse
from penstock.graph.model import Input, Mount, Output, Part, Pod, Step
from tests.backends.harness import Play, play, spec_of
from tests.backends.test_process import alive, gone, pid_in

HERE = os.getcwd()


def sh(name: str, source: str, **more: Any) -> Part:
    return Part(name=name, source=source, **more)


def pod(*parts: Part, **more: Any) -> Step:
    outputs = tuple(Output(name=name, type=parse(type_), path=path) for name, type_, path in more.pop("outputs", ()))
    return Step(name="work", action=Pod(parts=parts), outputs=outputs, **more)


def ran(home: Path, step: Step, inputs: dict[str, Any] | None = None, **more: Any) -> tuple[AttemptEnded, str]:
    """How it ended, and its log."""
    found: list[tuple[AttemptEnded, str]] = []

    async def story(playing: Play) -> None:
        ended = await playing.one(spec_of(step, inputs, working_directory=more.pop("working_directory", HERE), **more))
        found.append((ended, playing.text(ended)))
        assert playing.backend.room() == 2 and not playing.backend._attempts

    play(home, ProcessBackend, story)
    return found[0]


# -- turns ------------------------------------------------------------------------------------------------------------


def test_parts_run_in_order_and_leave_nothing_behind(tmp_path: Path) -> None:
    ended, log = ran(
        tmp_path, pod(sh("a", "echo 1"), Part(name="b", command=("echo",), args=("2",)), sh("c", "echo 3 >&2"))
    )
    assert (ended.outcome, ended.exit_code, ended.outputs) == ("succeeded", 0, {}), ended
    assert log == "[a]\n1\n[b]\n2\n[c]\n3\n"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "logs/test-1/work.1.log"]
    assert not (tmp_path / "work").exists() or not list((tmp_path / "work").iterdir())


def test_parts_with_needs_run_at_the_same_time(tmp_path: Path) -> None:
    wait = 'echo > "/both/$0"; while [ ! -e "/both/{other}" ]; do sleep 0.01; done; echo met'
    step = pod(
        sh("a", wait.format(other="b"), needs=()),
        sh("b", wait.format(other="a"), needs=()),
        sh("c", "ls /both", needs=("a", "b")),
        mounts=(Mount(name="x", path="/both"),),
    )
    ended, log = ran(tmp_path, step)
    assert ended.outcome == "succeeded" and log == "[a]\nmet\n[b]\nmet\n[c]\na\nb\n"
    assert [name for name, _, _ in ended.log] == [f"logs/test-1/work.1.part-{name}.log" for name in "abc"]


def test_the_first_failure_ends_the_pod_and_is_named(tmp_path: Path) -> None:
    step = pod(sh("a", "exit 3"), sh("b", "echo never"), outputs=[("x", "str", None)])
    ended, log = ran(tmp_path, step)
    assert (ended.outcome, ended.exit_code, ended.message) == ("failed", 3, "part a: exit code 3")
    assert log == "" and (tmp_path / "work/test-1/work.1/out").is_dir()


def test_a_failure_stops_what_runs_beside_it(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    step = pod(
        sh("a", f"echo $$ > {mark}; sleep 1000", needs=()),
        sh("b", f"while [ ! -s {mark} ]; do sleep 0.01; done; kill -9 $$", needs=()),
        sh("side", "sleep 1000", sidecar=True),
    )
    ended, _ = ran(tmp_path / "home", step)
    assert (ended.exit_code, ended.message) == (-9, "part b: ended by signal 9 (SIGKILL; perhaps out of memory)")
    assert gone(int(mark.read_text()))


def test_a_part_that_goes_on_on_error_leaves_its_exit_code(tmp_path: Path) -> None:
    step = pod(
        sh("a", "exit 5", on_error="continue"),
        sh("b", "kill -9 $$", on_error="continue"),
        sh("c", "cat $(steps.step-a.exitCode.path) $(steps.b.exitCode.path)"),
        outputs=[("codes", "str", "/dev/stdout")],
    )
    ended, log = ran(tmp_path, step)
    assert (ended.outcome, ended.outputs) == ("succeeded", {"codes": "5137"}), ended
    assert "[a] exit code 5; the pod goes on\n[b]\n" in log


def test_a_part_has_its_own_time(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    began = time.monotonic()
    step = pod(
        sh("a", f"sh -c 'trap \"\" TERM; echo $$ > {mark}; exec sleep 1000' & wait", timeout=0.3, on_error="continue"),
        sh("b", "true"),
    )
    ended, _ = ran(tmp_path / "home", step)
    assert (ended.outcome, ended.message) == ("failed", "part a: timed out after 0.3 s")
    assert time.monotonic() - began < 10 and gone(int(mark.read_text()))
    ended, _ = ran(tmp_path / "home", pod(sh("a", "true", timeout=0.05), sh("b", "sleep 0.2")))
    assert ended.outcome == "succeeded"


def test_sidecars_run_as_long_as_anybody_else(tmp_path: Path) -> None:
    step = pod(
        sh("main", "while [ ! -e /up/side ]; do sleep 0.01; done; echo hello; exit $((1 - $(cat /up/side)))"),
        sh(
            "side",
            "trap 'echo bye; exit 4' TERM; echo started; echo 1 > /up/side.new; mv /up/side.new /up/side; while :; do sleep 0.01; done",
            sidecar=True,
        ),
        sh("short", "exit 9", sidecar=True),
        mounts=(Mount(name="up", path="/up"),),
    )
    ended, log = ran(tmp_path, step)
    assert ended.outcome == "succeeded", (ended, log)
    assert log.startswith("[main]\nhello\n[side]\nstarted\n") and "bye\n" in log


def test_a_sidecar_that_will_not_end_is_ended(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    stubborn = f"trap '' TERM; echo $$ > {mark}; while :; do sleep 0.01; done"
    ended, _ = ran(
        tmp_path / "home", pod(sh("s", stubborn, sidecar=True), sh("m", f"while [ ! -s {mark} ]; do sleep 0.01; done"))
    )
    assert ended.outcome == "succeeded" and gone(int(mark.read_text()))


def test_what_a_part_leaves_running_ends_with_it(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    check = f"while kill -0 $(cat {mark}) 2>/dev/null && ! grep -q 'State:.Z' /proc/$(cat {mark})/status; do sleep 0.01; done"
    ended, _ = ran(tmp_path / "home", pod(sh("a", f"sleep 1000 & echo $! > {mark}"), sh("b", check, timeout=10)))
    assert ended.outcome == "succeeded", ended


def test_parts_are_skipped_when_their_conditions_do_not_hold(tmp_path: Path) -> None:
    step = pod(
        sh("a", "echo -n green > /r/colour", results={"colour": "/r/colour"}),
        sh("b", "echo b", when=({"input": "$(steps.a.results.colour)", "operator": "in", "values": ["red"]},)),
        sh("c", "echo c", when=({"input": "$(steps.a.results.colour)", "operator": "notin", "values": ["red"]},)),
    )
    assert ran(tmp_path, step)[1] == "[a]\n[b] skipped\n[c]\nc\n"
    ended, log = ran(tmp_path / "2", pod(sh("a", "false", when=({"input": "x", "operator": "in", "values": []},))))
    assert ended.outcome == "succeeded" and log == ""


# -- what they are given ----------------------------------------------------------------------------------------------


def test_results_pass_from_part_to_part_as_text(tmp_path: Path) -> None:
    step = pod(
        sh(
            "a",
            """echo '["x y", "z"]' > /tekton/steps/a/list; printf '{"k": "v"}' > /tekton/steps/a/map""",
            results={"list": "/tekton/steps/a/list", "map": "/tekton/steps/a/map"},
        ),
        Part(
            name="b",
            command=("printf", "%s|"),
            args=("$(steps.a.results.list[*])", "$(steps.a.results.map.k)", "$(steps.a.results.list[1])"),
        ),
        sh("c", 'echo "$E"', env={"E": "$(steps.a.results.list)"}),
    )
    ended, log = ran(tmp_path, step)
    assert ended.outcome == "succeeded", ended
    assert log == '[a]\n[b]\nx y|z|v|z|\n[c]\n["x y", "z"]\n'


def test_a_result_that_was_not_written_is_a_failure_of_who_reads_it(tmp_path: Path) -> None:
    ended, _ = ran(tmp_path, pod(sh("a", "true", results={"x": "/r/x"}), sh("b", "echo $(steps.a.results.x)")))
    assert (ended.outcome, ended.message) == ("failed", "part b: part a has not written its result 'x' to /r/x")
    ended, _ = ran(tmp_path, pod(sh("a", "mkfifo /r/x", results={"x": "/r/x"}), sh("b", "echo $(steps.a.results.x)")))
    assert ended.message == "part b: the result 'x' of part a is not a file"


def test_declared_paths_are_the_same_for_all_parts(tmp_path: Path) -> None:
    step = pod(
        sh("a", "cat /in/n > /workspace/copy; echo 1 > /results/first"),
        sh("b", "pwd; cat copy; echo 2 > /results/second", workdir="/workspace"),
        sh("c", "pwd", workdir="/workspace/deep/er"),
        inputs=(Input(name="n", value=None, path="/in/n"),),
        mounts=(Mount(name="w", path="/workspace", scope="run"),),
        outputs=[
            ("first", "int", "/results/first"),
            ("second", "int", "/results/second"),
            ("copy", "int", "/workspace/copy"),
        ],
    )
    ended, log = ran(tmp_path, step, {"n": 42})
    assert ended.outputs == {"first": 1, "second": 2, "copy": 42}, ended
    volume = tmp_path / "work/test-1/volumes/w"
    assert log == f"[a]\n[b]\n{volume}\n42[b]\n[c]\n{volume}/deep/er\n".replace("42[b]", "42")


def test_the_output_is_what_main_prints_or_the_last_part(tmp_path: Path) -> None:
    outputs = [("said", "str", "/dev/stdout")]
    ended, log = ran(tmp_path, pod(sh("main", "echo one; echo oops >&2"), sh("b", "echo two"), outputs=outputs))
    assert ended.outputs == {"said": "one"} and log == "[main]\none\noops\n[b]\ntwo\n"
    ended, _ = ran(
        tmp_path, pod(sh("a", "echo one"), sh("b", "echo two"), sh("s", "sleep 9", sidecar=True), outputs=outputs)
    )
    assert ended.outputs == {"said": "two"}


def test_scripts_run_by_their_first_line_and_get_their_arguments(tmp_path: Path) -> None:
    step = pod(
        sh("a", f"#!{sys.executable} -S\nimport sys; print(sys.argv[1:], 'site' in sys.modules)", args=("x", "y")),
        sh("b", "echo $0 $1", args=("z",)),
        sh("c", "false; echo not here", command=("sh", "-e"), on_error="continue"),
        sh("d", "print('py')", command=(sys.executable,)),
        sh("e", "#!/usr/bin/env sh\n" + "# " + "x" * 200_000 + "\necho long"),
    )
    ended, log = ran(tmp_path, step)
    assert ended.outcome == "succeeded", (ended, log)
    assert log.splitlines() == [
        "[a]",
        "['x', 'y'] False",
        "[b]",
        "b z",
        "[c]",
        "[c] exit code 1; the pod goes on",
        "[d]",
        "py",
        "[e]",
        "long",
    ]


def test_replicas_of_a_pod_have_everything_twice(tmp_path: Path) -> None:
    """The second fails only when the first has said its word: a failure ends both."""
    said = tmp_path / "said"
    second = (
        f"test $(steps.a.results.x) = 0 && touch {said} && exit 0; until test -e {said}; do sleep 0.01; done; exit 3"
    )
    step = pod(
        sh("a", 'echo -n "$PENSTOCK_REPLICA" > /r/x', results={"x": "/r/x"}),
        sh("b", f"echo $(steps.a.results.x); {second}"),
        replicas=2,
    )
    ended, log = ran(tmp_path, step)
    assert (ended.outcome, ended.message) == ("failed", "replica 1: part b: exit code 3")
    assert log == "[a]\n[b]\n0\n[a]\n[b]\n1\n"


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (Part(name="b", command=("no-such-command",)), "part b: there is no command 'no-such-command' on this machine"),
        (Part(name="b", image="nginx"), "P876 part b of the step has no command, and what the image nginx does"),
        (sh("b", "true", workdir="/no/such"), "there is no folder '/no/such'"),
        (sh("b", "#!/no/such/bin\n"), "there is no command '/no/such/bin'"),
        (sh("b", "a\0b", command=("cat",)), ""),
    ],
)
def test_a_part_that_cannot_be_started_is_an_error_and_the_rest_is_ended(
    tmp_path: Path, part: Part, message: str
) -> None:
    ended, _ = ran(tmp_path, pod(sh("s", "sleep 1000", sidecar=True), sh("a", "true"), part))
    if message:
        assert ended.outcome == "errored" and message in ended.message, ended


def test_one_part_alone_is_like_a_command(tmp_path: Path) -> None:
    ended, log = ran(tmp_path, pod(sh("a", "echo x; exit 2")))
    assert (ended.message, log) == ("exit code 2", "x\n")


# -- stopping ---------------------------------------------------------------------------------------------------------

CHILD = "sh -c 'trap \"\" TERM; echo $$ > {mark}; while :; do sleep 0.01; done' & wait"


@pytest.mark.parametrize("grace", [0.0, 0.2])
def test_stop_in_the_middle_ends_all_parts_and_what_they_started(tmp_path: Path, grace: float) -> None:
    marks = [tmp_path / name for name in ("side", "a", "b")]

    async def story(playing: Play) -> None:
        parts = [sh("before", "true"), sh("side", CHILD.format(mark=marks[0]), sidecar=True)]
        parts += [sh(mark.name, CHILD.format(mark=mark), needs=("before",)) for mark in marks[1:]]
        spec = spec_of(pod(*parts, sh("never", f"touch {tmp_path}/never")), working_directory=HERE)
        playing.backend.start([spec])
        pids = [await pid_in(mark) for mark in marks]
        playing.backend.stop(spec.id, grace)
        [ended] = await playing.end_of(spec)
        assert (ended.outcome, ended.message) == ("cancelled", "stopped")
        assert all(gone(pid) for pid in pids)

    play(tmp_path / "home", ProcessBackend, story)
    assert not (tmp_path / "never").exists()
    # What a shell had just started is killed with it, and may take a moment more to be gone.
    deadline = time.monotonic() + 30
    while find_orphans(tmp_path / "home", {"engine-1"}):
        assert time.monotonic() < deadline


def test_a_part_that_ends_well_when_asked_is_not_followed_by_the_next(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    async def story(playing: Play) -> None:
        source = f"trap 'exit 0' TERM; echo $$ > {mark}; while :; do sleep 0.01; done"
        spec = spec_of(pod(sh("a", source), sh("b", f"touch {tmp_path}/never")), working_directory=HERE)
        playing.backend.start([spec])
        await pid_in(mark)
        playing.backend.stop(spec.id, 10.0)
        [ended] = await playing.end_of(spec)
        assert ended.outcome == "cancelled"

    play(tmp_path / "home", ProcessBackend, story)
    assert not (tmp_path / "never").exists()


def test_close_ends_pods(tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        marks = [tmp_path / name for name in "ab"]
        playing.backend.start(
            [
                spec_of(
                    pod(*(sh(mark.name, CHILD.format(mark=mark), needs=()) for mark in marks)), working_directory=HERE
                )
            ]
        )
        pids = [await pid_in(mark) for mark in marks]
        await playing.backend.close()
        assert not any(map(alive, pids))

    play(tmp_path / "home", ProcessBackend, story)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_parts_that_an_engine_left_are_found_and_the_same_attempt_starts_afresh(tmp_path: Path) -> None:
    home, mark = tmp_path / "home", tmp_path / "mark"
    volume = Mount(name="v", path="/v", scope="run")
    source = f"echo kept >> /v/x; echo $$ > {mark}; echo early > /out/x; [ $(wc -l < /v/x) = 2 ] || sleep 1000"
    step = pod(
        sh("a", source),
        sh("b", "test -e /out/x && cat /v/x > /out/x"),
        mounts=(volume,),
        outputs=[("x", "str", "/out/x")],
    )
    if os.fork() == 0:  # an engine that dies

        async def dies(playing: Play) -> None:
            playing.backend.start([spec_of(step, working_directory=HERE)])
            await pid_in(mark)
            os._exit(0)

        try:
            play(home, ProcessBackend, dies)
        finally:
            os._exit(1)
    assert os.wait()[1] == 0
    pid = int(mark.read_text())
    assert alive(pid) and pid in end_orphans(home, {"engine-1"}) and gone(pid)
    ended, _ = ran(home, step)
    assert ended.outputs == {"x": "kept\nkept"}, ended


def test_many_small_pods_take_little_time(tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        step = pod(
            sh("a", "echo -n 1 > /r/x", results={"x": "/r/x"}),
            sh("b", "test $(steps.a.results.x) = 1"),
            sh("c", "echo 2 > /out/x"),
            outputs=[("x", "int", "/out/x")],
        )
        specs = [spec_of(step, task=f"t[{number}]", working_directory=HERE) for number in range(200)]
        began = time.perf_counter()
        ended = await playing.run(*specs)
        seconds = time.perf_counter() - began
        assert all(one.outputs == {"x": 2} for one in ended)
        print(f"{seconds * 5:.1f} ms for each pod")
        assert seconds < 60

    play(tmp_path, ProcessBackend, story)
