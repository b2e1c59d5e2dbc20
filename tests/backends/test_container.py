"""Steps with an image, in real containers of podman; where it is missing or does not work, these tests skip."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.base import AttemptEnded, AttemptSpec
from penstock.backends.container.backend import ContainerBackend
from penstock.backends.container.orphans import end_orphan_containers
from penstock.backends.container.spec import container_name
from penstock.expressions.types import parse
from penstock.graph import model
from penstock.graph.model import Outcome
from penstock.graph.stored import Stored
from tests.backends import sample, sample_files
from tests.backends.harness import Play, bundle_of, function_step, play, spec_of, types_of
from tests.support.podman import IMAGE, Podman, Unusable

Story = Callable[[Play], Awaitable[None]]


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    try:
        found = Podman()
    except Unusable as error:
        pytest.skip(str(error))
    yield found
    found.close()


@pytest.fixture
def at(podman: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Story], None]:
    """Plays a story, and sees that no container is left after it."""
    for name, value in podman.environ.items():
        monkeypatch.setenv(name, value)

    def run(story: Story) -> None:
        play(tmp_path / "home", ContainerBackend, story)
        assert podman.containers() == []
        assert not list((tmp_path / "home" / "cache" / "containers").iterdir())

    return run


def shell(text: str, *outputs: model.Output, name: str = "step", **more: Any) -> model.Step:
    action = {key: more.pop(key) for key in ("env", "workdir", "args", "image") if key in more}
    container = model.Container(**{"image": IMAGE, "command": ("sh", "-c", text), **action})
    return model.Step(name=name, action=container, outputs=outputs, **more)


def output(name: str, type_: str = "any", path: str | None = None) -> model.Output:
    return model.Output(name=name, type=parse(type_), path=path)


def one(
    at: Callable[[Story], None], step: model.Step, inputs: dict[str, Any] | None = None, **more: Any
) -> tuple[AttemptEnded, str]:
    """How it ended, and what its log says."""
    found: list[Any] = []

    async def story(engine: Play) -> None:
        ended = await engine.one(spec_of(step, inputs, **more))
        found.extend((ended, engine.text(ended)))

    at(story)
    return found[0], found[1]


# -- commands ----------------------------------------------------------------------------------------------------------


def test_a_command_with_arguments_environment_output_and_log(at: Callable[[Story], None], tmp_path: Path) -> None:
    step = shell(
        'echo "$0 $GREETING $PENSTOCK_TASK $PENSTOCK_REPLICAS"; echo trouble >&2; echo 42 >"$PENSTOCK_OUTPUTS/answer"',
        output("answer", "int"),
        args=("word",),
        env={"GREETING": "a=b c"},
    )
    ended, text = one(at, step)
    assert (ended.outcome, ended.outputs, ended.exit_code) == (Outcome.SUCCEEDED, {"answer": 42}, 0)
    assert sorted(text.splitlines()) == ["trouble", "word a=b c step 1"]
    assert 0 < ended.seconds < 20
    assert not (tmp_path / "home" / "work" / "test-1" / "step.1").exists()


def test_what_it_prints_can_be_an_output_and_keeps_errors_apart(at: Callable[[Story], None]) -> None:
    ended, text = one(at, shell("echo noise >&2; seq 3 5", output("lines", "str", "/dev/stdout")))
    assert ended.outputs == {"lines": "3\n4\n5"}
    assert sorted(text.splitlines()) == ["3", "4", "5", "noise"]


def test_a_lot_of_text_arrives_whole(at: Callable[[Story], None]) -> None:
    _, text = one(at, shell("seq 300000"))
    assert text == "".join(f"{n}\n" for n in range(1, 300_001))


@pytest.mark.parametrize("code", [3, 125, 127])
def test_the_exit_code_of_the_command_is_its_failure(at: Callable[[Story], None], code: int) -> None:
    ended, _ = one(at, shell(f"echo Error: mine >&2; exit {code}"))
    assert (ended.outcome, ended.exit_code, ended.message) == (Outcome.FAILED, code, f"exit code {code}")


def test_the_error_that_a_command_writes_is_its_own(at: Callable[[Story], None]) -> None:
    text = """printf '{"error": "BadScene", "message": "no bbox", "invalid": true}' >$PENSTOCK_ERROR; exit 7"""
    found: list[AttemptEnded] = []

    async def story(playing: Play) -> None:
        found.append(await playing.one(spec_of(shell(text))))

    at(story)
    [ended] = found
    assert (ended.outcome, ended.exit_code, ended.invalid) == (Outcome.FAILED, 7, True)
    assert (ended.exception, ended.message) == ("BadScene", "BadScene: no bbox")


def test_a_command_that_a_signal_ends_says_which(at: Callable[[Story], None]) -> None:
    ended, _ = one(at, shell("sh -c 'kill -9 $$'; exit $?"))
    assert (ended.outcome, ended.exit_code) == (Outcome.FAILED, 137)
    assert "SIGKILL" in ended.message


def test_the_images_own_command_is_kept_and_arguments_replace_only_what_follows(
    at: Callable[[Story], None], podman: Podman
) -> None:
    podman.run("create", "--name", "base", IMAGE, "true")
    change = ["--change", 'ENTRYPOINT ["/bin/echo", "entry"]', "--change", 'CMD ["default"]']
    podman.run("commit", *change, "base", "localhost/entry:1")
    podman.run("rm", "base")
    bare = model.Container(image="localhost/entry:1")
    assert one(at, model.Step(name="bare", action=bare))[1] == "entry default\n"
    given = model.Container(image="localhost/entry:1", args=("given",))
    assert one(at, model.Step(name="given", action=given))[1] == "entry given\n"
    replaced = model.Container(image="localhost/entry:1", command=("/bin/echo", "other"), args=("given",))
    assert one(at, model.Step(name="replaced", action=replaced))[1] == "other given\n"


def test_a_script_in_an_image(at: Callable[[Story], None]) -> None:
    action = model.Script(source='cat /data/kept\necho "$0" >$PENSTOCK_OUTPUTS/name\n', image=IMAGE)
    ended, text = one(at, model.Step(name="step", action=action, outputs=types_of({"name": "str"})))
    assert ended.outputs == {"name": "/tmp/penstock/script"}
    assert text == "of the image\n"


# -- files -------------------------------------------------------------------------------------------------------------


def test_outputs_are_taken_from_their_declared_paths_and_the_image_keeps_its_files(at: Callable[[Story], None]) -> None:
    step = shell(
        "cat /data/kept; echo 5 >/tmp/out/rows.txt; echo 6 >/data/new.part; mv /data/new.part /data/new;"
        " mkdir -p /deep/er/tree/leaf; echo x >/deep/er/tree/leaf/x",
        output("rows", "int", "/tmp/out/rows.txt"),
        output("renamed", "int", "/data/new"),
        output("tree", "dir", "/deep/er/tree"),
        output("file", "file", "/tmp/out/rows.txt"),
        output("perhaps", "optional[int]", "/tmp/out/never"),
    )
    ended, text = one(at, step)
    assert ended.outcome is Outcome.SUCCEEDED, ended.message
    assert (ended.outputs["rows"], ended.outputs["renamed"], ended.outputs["perhaps"]) == (5, 6, None)
    assert isinstance(ended.outputs["tree"], Stored) and (ended.outputs["tree"].kind, ended.outputs["tree"].name) == (
        "dir",
        "tree",
    )
    assert isinstance(ended.outputs["file"], Stored) and ended.outputs["file"].name == "rows.txt"
    assert text == "of the image\n"


def test_an_output_that_is_not_there_is_a_failure_and_the_folder_stays(
    at: Callable[[Story], None], tmp_path: Path
) -> None:
    ended, _ = one(at, shell("true", output("rows", "int", "/tmp/out/rows.txt")))
    assert ended.outcome is Outcome.FAILED
    assert ended.message == "the output 'rows' was not written: there is no file /tmp/out/rows.txt in the container"
    assert (tmp_path / "home" / "work" / "test-1" / "step.1").is_dir()


@pytest.mark.parametrize(
    "text",
    [
        "ln -s /etc/passwd $PENSTOCK_OUTPUTS/x",
        "mkdir $PENSTOCK_OUTPUTS/x; ln -s /etc/passwd $PENSTOCK_OUTPUTS/x/y",
        "mkfifo $PENSTOCK_OUTPUTS/x",
    ],
)
def test_a_link_or_pipe_is_not_followed_into_this_machine(at: Callable[[Story], None], text: str) -> None:
    ended, _ = one(at, shell(text, output("x", "dir" if "mkdir" in text else "file")))
    assert ended.outcome is Outcome.FAILED
    assert "link" in ended.message or "neither a file nor a folder" in ended.message


def test_inputs_lie_at_their_declared_paths_beside_the_images_files(
    at: Callable[[Story], None], tmp_path: Path
) -> None:
    (tmp_path / "big.csv").write_text("a,b\n")
    step = shell(
        "cat /data/kept /data/in.json /in/put.csv; echo more >>/in/put.csv",
        inputs=(
            model.Input(name="plain", value=None, path="/data/in.json"),
            model.Input(name="table", value=None, type=parse("file"), path="/in/put.csv"),
        ),
    )
    found: list[str] = []

    async def story(engine: Play) -> None:
        digest, size = engine.blobs.put_file(tmp_path / "big.csv")
        inputs = {"plain": {"n": [1, 2]}, "table": Stored("file", digest, size, "big.csv")}
        for number in (1, 2):
            ended = await engine.one(spec_of(step, inputs, attempt=number))
            assert ended.outcome is Outcome.SUCCEEDED, engine.text(ended)
            found.append(engine.text(ended))

    at(story)
    assert found == ['of the image\n{"n":[1,2]}a,b\n'] * 2  # what the first wrote into its input is its own affair


def test_a_command_starts_in_the_users_folder_which_it_may_change(at: Callable[[Story], None], tmp_path: Path) -> None:
    place = tmp_path / "my project: 1"
    place.mkdir()
    (place / "here.txt").write_text("mine\n")
    (place / "taken.txt").write_text("the user's\n")
    step = shell(
        "pwd; cat here.txt sub/given.txt taken.txt; echo made >made.txt",
        output("made", "str", "made.txt"),
        inputs=(
            model.Input(name="a", value=None, path="sub/given.txt"),
            model.Input(name="b", value=None, path="taken.txt"),
        ),
    )
    ended, text = one(at, step, {"a": "given\n", "b": "the step's\n"}, working_directory=str(place))
    assert text == f"{place}\nmine\ngiven\nthe step's\n"
    assert ended.outputs == {"made": "made"}
    assert {path.name: path.read_text() for path in place.iterdir()} == {
        "here.txt": "mine\n",
        "taken.txt": "the user's\n",
        "made.txt": "made\n",
    }


def test_a_workdir_of_the_step_comes_first(at: Callable[[Story], None], tmp_path: Path) -> None:
    step = shell("pwd; echo 1 >n", output("n", "int", "n"), workdir="/data")
    ended, text = one(at, step, working_directory=str(tmp_path))
    assert (text, ended.outputs) == ("/data\n", {"n": 1})


def test_a_place_that_the_image_could_not_do_without_is_not_mounted_over_it(at: Callable[[Story], None]) -> None:
    ended, text = one(at, shell("cat /etc/passwd; echo 1 >n", output("n", "int", "/n")), working_directory="/etc")
    assert text.startswith("root:x:0:0:of the image")
    assert ended.outputs == {"n": 1}


def test_an_image_that_does_not_run_as_root_can_write_its_outputs(
    at: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CONTAINER_OPTIONS", "--network=none --user 1234:1234")
    step = shell(
        "id -u >$PENSTOCK_OUTPUTS/who; cat /in/x >/tmp/out/x",
        output("who", "int"),
        output("x", "str", "/tmp/out/x"),
        inputs=(model.Input(name="x", value=None, path="/in/x"),),
    )
    old = os.umask(0o077)
    try:
        ended, text = one(at, step, {"x": "seen"})
    finally:
        os.umask(old)
    assert ended.outputs == {"who": 1234, "x": "seen"}, text


# -- replicas and stopping ---------------------------------------------------------------------------------------------


def test_replicas_are_containers_of_their_own_and_the_first_one_gives_the_outputs(at: Callable[[Story], None]) -> None:
    step = shell(
        'echo "I am $PENSTOCK_REPLICA"; echo $PENSTOCK_REPLICA >/tmp/out/n',
        output("n", "int", "/tmp/out/n"),
        replicas=2,
    )
    ended, text = one(at, step)
    assert ended.outputs == {"n": 0}
    assert sorted(text.splitlines()) == ["I am 0", "I am 1"]


def test_a_replica_that_fails_ends_the_others(at: Callable[[Story], None]) -> None:
    step = shell('test $PENSTOCK_REPLICA = 1 && exit 7; trap "exit 0" TERM; sleep 60 & wait', replicas=2)
    ended, _ = one(at, step)
    assert (ended.outcome, ended.exit_code, ended.message) == (Outcome.FAILED, 7, "replica 1: exit code 7")
    assert ended.seconds < 20


async def printed(engine: Play, spec: AttemptSpec, word: str) -> None:
    """Until its log has this word."""
    await engine.until(lambda: engine.began(spec.id) is not None)
    began = engine.began(spec.id)
    assert began is not None and began.pid is not None
    async with asyncio.timeout(20):
        while word not in engine.text(began):
            await asyncio.sleep(0.02)


def test_a_container_is_asked_to_stop_and_may_clean_up(at: Callable[[Story], None]) -> None:
    spec = spec_of(shell('trap "echo bye; exit 0" TERM; echo ready; sleep 60 & wait'))

    async def story(engine: Play) -> None:
        engine.backend.start([spec])
        await printed(engine, spec, "ready")
        engine.backend.stop(spec.id, 20.0)
        (ended,) = await engine.end_of(spec)
        assert ended.outcome is Outcome.CANCELLED
        assert engine.text(ended) == "ready\nbye\n"

    at(story)


@pytest.mark.parametrize("grace", [0.3, 0.0])
def test_a_container_that_does_not_listen_is_ended(at: Callable[[Story], None], podman: Podman, grace: float) -> None:
    spec = spec_of(shell('trap "echo no" TERM; echo ready; while true; do sleep 60 & wait; done'))

    async def story(engine: Play) -> None:
        engine.backend.start([spec])
        await printed(engine, spec, "ready")
        began = time.monotonic()
        engine.backend.stop(spec.id, grace)
        (ended,) = await engine.end_of(spec)
        assert ended.outcome is Outcome.CANCELLED
        assert time.monotonic() - began < 8
        assert podman.containers() == []

    at(story)


def test_closing_ends_everything(at: Callable[[Story], None]) -> None:
    async def story(engine: Play) -> None:
        spec = spec_of(shell("echo ready; sleep 60"))
        engine.backend.start([spec])
        await printed(engine, spec, "ready")

    at(story)  # looks for containers after the end


def test_stopping_does_not_wait_for_an_image_that_is_being_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "slow"
    tool.write_text('#!/bin/sh\n[ "$1" = create ] && exec sleep 60\n[ "$1" = kill ] && exit 125\nexit 0\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PENSTOCK_CONTAINER_TOOL", str(tool))
    spec = spec_of(shell("true"))

    async def story(engine: Play) -> None:
        engine.backend.start([spec])
        await asyncio.sleep(0.2)
        engine.backend.stop(spec.id, 20.0)
        (ended,) = await engine.end_of(spec)
        assert ended.outcome is Outcome.CANCELLED

    began = time.monotonic()
    play(tmp_path / "home", ContainerBackend, story)
    assert time.monotonic() - began < 5


# -- what cannot be run ------------------------------------------------------------------------------------------------


def test_without_podman_and_docker_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PENSTOCK_CONTAINER_TOOL", raising=False)

    async def story(engine: Play) -> None:
        ended = await engine.one(spec_of(shell("true")))
        assert ended.outcome is Outcome.ERRORED
        assert ended.message.startswith("P701 there is nothing here to run containers with")
        assert "--on container=process" in ended.message

    play(tmp_path / "home", ContainerBackend, story)


def test_a_tool_that_is_broken_says_so_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "docker"
    tool.write_text(
        '#!/bin/sh\necho "docker: Cannot connect to the Docker daemon." >&2\necho "See \'docker run --help\'." >&2\nexit 125\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PENSTOCK_CONTAINER_TOOL", str(tool))

    async def story(engine: Play) -> None:
        ended = await engine.one(spec_of(shell("true")))
        assert (ended.outcome, ended.exit_code) == (Outcome.ERRORED, None)
        assert ended.message == "docker: Cannot connect to the Docker daemon."

    play(tmp_path / "home", ContainerBackend, story)


def test_an_image_that_is_not_there_is_an_error(at: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CONTAINER_OPTIONS", "--pull=never")
    ended, text = one(at, shell("true", image="localhost/nowhere:9"))
    assert (ended.outcome, ended.exit_code, ended.cause) == (Outcome.ERRORED, None, "ImagePullError")
    assert ended.message.startswith("podman: ") and "localhost/nowhere:9" in ended.message
    assert "localhost/nowhere:9" in text


def test_an_image_is_not_an_option(at: Callable[[Story], None]) -> None:
    ended, _ = one(at, shell("true", image="--privileged"))
    assert (ended.outcome, ended.message) == (Outcome.ERRORED, "'--privileged' is not the name of an image")


def test_a_command_that_the_image_does_not_have_is_an_error(at: Callable[[Story], None]) -> None:
    action = model.Container(image=IMAGE, command=("no-such-command",))
    ended, _ = one(at, model.Step(name="step", action=action))
    assert ended.outcome is Outcome.ERRORED
    assert "no-such-command" in ended.message


# -- functions ---------------------------------------------------------------------------------------------------------


def function_in(image: str, function: Callable[..., Any], returns: str = "any") -> model.Step:
    step = function_step(function, returns)
    assert isinstance(step.action, model.Function)
    return dataclasses.replace(step, action=dataclasses.replace(step.action, image=image))


def test_functions_run_in_an_image_that_has_only_python(
    at: Callable[[Story], None], podman: Podman, tmp_path: Path
) -> None:
    image = podman.with_python()
    (tmp_path / "table.csv").write_text("1\n2\n3\n")

    def ordered(
        engine: Play, function: Callable[..., Any], inputs: dict[str, Any], returns: str = "any"
    ) -> AttemptSpec:
        step = function_in(image, function, returns)
        return spec_of(step, inputs, bundle=bundle_of(step, blobs=engine.blobs), working_directory=str(tmp_path))

    async def story(engine: Play) -> None:
        added = ordered(engine, sample.add, {"a": 2, "b": 3}, "int")
        digest, size = engine.blobs.put_file(tmp_path / "table.csv")
        counted = ordered(
            engine,
            sample_files.count_lines,
            {"table": Stored("file", digest, size, "table.csv"), "note": "found"},
            "file",
        )
        failed = ordered(engine, sample.boom, {})
        large = ordered(engine, sample_files.big, {"n": 100})
        ended = await engine.run(added, counted, failed, large)
        assert [one.outcome for one in ended] == [
            Outcome.SUCCEEDED,
            Outcome.SUCCEEDED,
            Outcome.FAILED,
            Outcome.SUCCEEDED,
        ], ended
        assert ended[0].outputs == {"result": 5}
        stored = ended[1].outputs["result"]
        assert isinstance(stored, Stored) and engine.blobs.get(stored.digest) == b"found 3 PosixPath"
        assert (ended[2].exception, ended[2].message) == ("ValueError", "ValueError: a bad day")
        assert "sample.py" in ended[2].traceback
        assert isinstance(ended[3].outputs["result"], Stored) and engine.blobs.has(ended[3].outputs["result"].digest)

    at(story)


def test_a_function_in_an_image_without_python_says_what_is_missing(at: Callable[[Story], None]) -> None:
    ended, _ = one(at, function_in(IMAGE, sample.say))
    assert ended.outcome is Outcome.ERRORED
    assert ended.message.endswith("a function step needs Python 3.11 or newer in its image")


# -- engines that died -------------------------------------------------------------------------------------------------

DIES = """
import asyncio, sys
from pathlib import Path
from penstock.backends.container.backend import ContainerBackend
from tests.backends.harness import Play, spec_of
from tests.backends.test_container import printed, shell

async def main():
    engine = Play(Path(sys.argv[1]), ContainerBackend)
    spec = spec_of(shell("echo ready; sleep 60"))
    engine.backend.start([spec])
    await printed(engine, spec, "ready")
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_what_a_killed_engine_left_is_found_by_its_label(podman: Podman, tmp_path: Path) -> None:
    environ = {**os.environ, **podman.environ}
    home = tmp_path / "home"
    engine = subprocess.Popen([sys.executable, "-c", DIES, str(home)], env=environ, stdout=subprocess.PIPE)
    assert engine.stdout is not None
    with engine.stdout:
        assert engine.stdout.readline() == b"ready\n"
        engine.send_signal(signal.SIGKILL)
        engine.wait()
    name = container_name(str(home), "test-1/step/1", 0)
    assert podman.containers() == [name]
    assert end_orphan_containers(home, {"engine-2"}, environ) == 0
    assert podman.containers() == [name]
    assert end_orphan_containers(home, {"engine-1", "engine-2"}, environ) == 1
    assert podman.containers() == []
    assert end_orphan_containers(home, {"engine-1"}, {"PATH": ""}) == 0  # asks nobody


def test_the_same_attempt_after_a_crash_takes_the_place_of_its_old_container(
    at: Callable[[Story], None], podman: Podman, tmp_path: Path
) -> None:
    name = container_name(str(tmp_path / "home"), "test-1/step/1", 0)
    podman.run("run", "--detach", "--network=none", "--name", name, IMAGE, "sleep", "60")
    ended, text = one(at, shell("echo new"))
    assert (ended.outcome, text) == (Outcome.SUCCEEDED, "new\n")


def test_two_homes_with_a_run_of_one_name_do_not_meet() -> None:
    assert container_name("/a/.penstock", "flow-1/step/1", 0) != container_name("/b/.penstock", "flow-1/step/1", 0)
    assert container_name("/a", "flow-1/step/1", 0) != container_name("/a", "flow-1/step/1", 1)
