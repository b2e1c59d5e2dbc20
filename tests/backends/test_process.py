"""Commands of this machine: what they are given, what they give back, how they end, and that nothing of them is left."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.values import load_value
from penstock.backends.base import AttemptEnded
from penstock.backends.local.process import ProcessBackend
from penstock.expressions.types import parse
from penstock.graph import model
from penstock.graph.stored import Stored
from tests.backends import sample
from tests.backends.harness import Play, bundle_of, function_step, play, spec_of
from tests.support.speed import measured, slowness_of_spawning

HERE = os.getcwd()


def script(source: str, *outputs: model.Output, **more: Any) -> model.Step:
    command, env, workdir = more.pop("command", ("sh",)), more.pop("env", {}), more.pop("workdir", None)
    action = model.Script(source=source, command=command, env=env, workdir=workdir)
    return model.Step(name=more.pop("name", "work"), action=action, outputs=outputs, **more)


def command(*words: str, outputs: tuple[model.Output, ...] = (), **more: Any) -> model.Step:
    action = model.Container(image="nobody/nothing", command=words[:1], args=words[1:])
    return model.Step(name="work", action=action, outputs=outputs, **more)


def output(name: str, type_: str = "any", path: str | None = None) -> model.Output:
    return model.Output(name=name, type=parse(type_), path=path)


def given(name: str, type_: str = "any", path: str | None = None) -> model.Input:
    return model.Input(name=name, value=None, type=parse(type_), path=path)


def ran(home: Path, step: model.Step, inputs: dict[str, Any] | None = None, **more: Any) -> tuple[AttemptEnded, str]:
    """How it ended, and its log."""
    found: list[tuple[AttemptEnded, str]] = []

    async def story(playing: Play) -> None:
        ended = await playing.one(spec_of(step, inputs, working_directory=more.pop("working_directory", HERE), **more))
        found.append((ended, playing.text(ended)))

    play(home, ProcessBackend, story)
    return found[0]


def alive(pid: int) -> bool:
    """Is it there, and not only its name on the list of the dead?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(pid: int, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


async def pid_in(path: Path) -> int:
    import asyncio

    async with asyncio.timeout(10):
        while not path.exists() or not path.read_text().endswith("\n"):
            await asyncio.sleep(0.005)
    return int(path.read_text())


# -- how it ends ------------------------------------------------------------------------------------------------------


def test_a_command_succeeds_and_leaves_nothing_behind(tmp_path: Path) -> None:
    ended, _ = ran(tmp_path, command("true"))
    assert ended.outcome == "succeeded" and ended.exit_code == 0 and ended.outputs == {} and ended.log == ()
    assert [path for path in tmp_path.rglob("*") if path.is_file() and "shims" not in path.parts] == []
    assert not (tmp_path / "work").exists()


def test_what_it_prints_is_its_log_in_the_order_it_was_printed(tmp_path: Path) -> None:
    ended, log = ran(tmp_path, script("echo one; echo two >&2; echo three"))
    assert log == "one\ntwo\nthree\n"
    assert ended.log == (("logs/test-1/work.1.log", 0, len(log)),)


def test_it_is_reported_as_begun_with_its_pid_and_log(tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        spec = spec_of(script("echo $$"), working_directory=HERE)
        ended = await playing.one(spec)
        began = playing.began(spec.id)
        assert began is not None and playing.text(ended) == f"{began.pid}\n"
        assert began.log == (("logs/test-1/work.1.log", 0, None),)

    play(tmp_path, ProcessBackend, story)


def test_an_exit_code_is_a_failure(tmp_path: Path) -> None:
    ended, _ = ran(tmp_path, script("echo no >&2; exit 3"))
    assert (ended.outcome, ended.exit_code, ended.message) == ("failed", 3, "exit code 3")


@pytest.mark.parametrize(
    ("number", "message"),
    [(9, "ended by signal 9 (SIGKILL; perhaps out of memory)"), (11, "ended by signal 11 (SIGSEGV)")],
)
def test_a_signal_is_a_failure(tmp_path: Path, number: int, message: str) -> None:
    ended, _ = ran(tmp_path, script(f"kill -{number} $$"))
    assert (ended.outcome, ended.exit_code, ended.message) == ("failed", -number, message)


def test_commands_that_cannot_be_started_say_why(tmp_path: Path) -> None:
    plain, bad, folder = tmp_path / "plain", tmp_path / "bad", tmp_path / "folder"
    plain.write_text("true\n")
    bad.write_text("#!/no/such/interpreter\n")
    bad.chmod(0o755)
    folder.mkdir()
    cases = [
        (command("no-such-command"), "there is no command 'no-such-command' on this machine"),
        (command("/no/such/command"), "there is no command '/no/such/command' on this machine"),
        (command(str(plain)), "is not executable"),
        (command(str(folder)), "it is a folder"),
        (command(str(bad)), "the interpreter named in its first line is not on this machine"),
        (command("true", "a\0b"), "zero character"),
        (command("true", "x" * 200_000), "too long"),
        (command(), "P876 the step has no command, and what the image nobody/nothing does by itself is not known"),
        (script("true", workdir="/no/such/folder"), "there is no folder '/no/such/folder'"),
    ]
    for step, message in cases:
        ended, _ = ran(tmp_path / "home", step)
        assert ended.outcome == "errored" and message in ended.message, (message, ended)
    assert [path for path in (tmp_path / "home").rglob("*") if path.is_file() and "shims" not in path.parts] == []


def test_yes_ends_when_nobody_reads_on(tmp_path: Path) -> None:
    """Python ignores SIGPIPE; what it starts must not."""
    ended, log = ran(tmp_path, script("yes | head -1"))
    assert ended.outcome == "succeeded" and log == "y\n"


# -- what it is given -------------------------------------------------------------------------------------------------


def test_the_environment_tells_a_process_who_it_is(tmp_path: Path) -> None:
    names = "RUN TASK ATTEMPT ENGINE HOME REPLICA REPLICAS"
    source = "\n".join(f'echo "$PENSTOCK_{name}"' for name in names.split())
    _, log = ran(tmp_path, script(source), task="work[2]", run="night-3", attempt=2)
    assert log.splitlines() == ["night-3", "work[2]", "night-3/work[2]/2", "engine-1", str(tmp_path), "0", "1"]


def test_variables_of_the_step_are_text(tmp_path: Path) -> None:
    step = script('echo "$A $B $C $D"', env={"A": 1, "B": True, "C": [1, "x"], "D": None})
    assert ran(tmp_path, step)[1] == '1 true [1,"x"] null\n'


def test_a_command_is_found_by_the_path_that_it_will_have(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "my-tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho mine\n")
    tool.chmod(0o755)
    action = model.Container(image="x", command=("my-tool",), env={"PATH": str(tool.parent)})
    ended, log = ran(tmp_path / "home", model.Step(name="work", action=action))
    assert log == "mine\n", ended


def test_it_starts_where_the_run_was_started(tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / "sub").mkdir(parents=True)
    (place / "run.sh").write_text("#!/bin/sh\npwd\n")
    (place / "run.sh").chmod(0o755)
    assert ran(tmp_path / "a", command("./run.sh"), working_directory=str(place))[1] == f"{place}\n"
    assert ran(tmp_path / "b", script("pwd", workdir="sub"), working_directory=str(place))[1] == f"{place}/sub\n"
    assert ran(tmp_path / "c", script("pwd", workdir=str(place)))[1] == f"{place}\n"


def test_a_script_for_another_interpreter_is_a_file(tmp_path: Path) -> None:
    step = script("import sys\nprint(sys.argv[0].endswith('script'))\n", command=(sys.executable,))
    assert ran(tmp_path, step)[1] == "True\n"
    assert not list(tmp_path.rglob("script"))


def test_a_shell_script_may_be_longer_than_a_word_of_a_command(tmp_path: Path) -> None:
    source = "\n".join(["# " + "x" * 100] * 3000) + "\necho done\n"
    assert ran(tmp_path, script(source))[1] == "done\n"


# -- files ------------------------------------------------------------------------------------------------------------


def test_outputs_are_read_as_their_types(tmp_path: Path) -> None:
    source = """
        cd "$PENSTOCK_OUTPUTS"
        echo 3 > rows; echo 0.5 > share; echo hello > text; echo '{"a": [1]}' > data; echo true > good
        printf 'x,y\n' > /data/out.csv
        mkdir -p /data/folder; echo in > /data/folder/a.txt
    """
    step = script(
        source,
        output("rows", "int"),
        output("share", "float"),
        output("text", "str"),
        output("data"),
        output("good", "bool"),
        output("table", "file", "/data/out.csv"),
        output("folder", "dir", "/data/folder"),
        output("no", "optional[int]"),
    )

    async def story(playing: Play) -> None:
        ended = await playing.one(spec_of(step, working_directory=HERE))
        assert ended.outcome == "succeeded", ended
        found = ended.outputs
        table, folder = found.pop("table"), found.pop("folder")
        assert found == {"rows": 3, "share": 0.5, "text": "hello", "data": {"a": [1]}, "good": True, "no": None}
        assert isinstance(table, Stored) and (table.kind, table.name) == ("file", "out.csv")
        assert load_value(table, playing.blobs, tmp_path / "x").read_text() == "x,y\n"
        assert (load_value(folder, playing.blobs, tmp_path / "x") / "a.txt").read_text() == "in\n"

    play(tmp_path / "home", ProcessBackend, story)
    assert not Path("/data/out.csv").exists()
    assert not list((tmp_path / "home" / "work").rglob("*"))


def test_what_is_printed_may_be_an_output_and_both_streams_are_logged(tmp_path: Path) -> None:
    ended, log = ran(tmp_path, script("echo '[1, 2]'; echo careful >&2", output("found", path="/dev/stdout")))
    assert ended.outputs == {"found": [1, 2]} and log == "[1, 2]\ncareful\n"
    assert [name for name, _, _ in ended.log] == ["logs/test-1/work.1.out", "logs/test-1/work.1.log"]


def test_what_the_same_attempt_printed_before_a_crash_is_not_its_output(tmp_path: Path) -> None:
    (tmp_path / "logs/test-1").mkdir(parents=True)
    (tmp_path / "logs/test-1/work.1.out").write_text("half\n")
    assert ran(tmp_path, script("echo 1", output("n", "int", "/dev/stdout")))[0].outputs == {"n": 1}


def test_declared_paths_are_the_attempts_own_wherever_they_are_named(tmp_path: Path) -> None:
    source = """
        echo "$WHERE"
        cat /in/rows.json > /out/copy; cat "/in/rows.json" >> /out/copy
        echo /in/rows.json.bak /var/in/rows.json $HOME/in/rows.json ~/in/rows.json /in/rows.json/x
    """
    step = script(
        source,
        output("copy", "str", "/out/copy"),
        inputs=(given("rows", path="/in/rows.json"),),
        env={"WHERE": "at=/in/rows.json"},
    )
    ended, log = ran(tmp_path, step, {"rows": {"b": 1, "a": [2]}})
    folder = tmp_path / "work/test-1/work.1/root"
    home = os.environ["HOME"]
    assert ended.outputs == {"copy": '{"a":[2],"b":1}{"a":[2],"b":1}'}
    assert log.splitlines() == [
        f"at={folder}/in/rows.json",
        f"/in/rows.json.bak /var/in/rows.json {home}/in/rows.json {home}/in/rows.json {folder}/in/rows.json/x",
    ]


def test_declared_paths_are_found_in_words_and_in_the_workdir(tmp_path: Path) -> None:
    action = model.Container(image="x", command=("sh", "-c"), args=("cat $0; pwd", "/in/text"), workdir="/out")
    step = model.Step(
        name="work", action=action, inputs=(given("text", "str", "/in/text"),), outputs=(output("all", "any", "/out"),)
    )
    ended, log = ran(tmp_path, step, {"text": "hello "})
    assert log == f"hello {tmp_path}/work/test-1/work.1/root/out\n"
    assert ended.message == "the output 'all' is a folder; declare its type as dir"


def test_a_declared_path_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    step = script("true", inputs=(given("text", "str", "/../../../escaped"),))
    ran(tmp_path / "home", step, {"text": "x"})
    assert not list(tmp_path.glob("escaped")) and not Path("/escaped").exists()


def test_files_are_given_as_copies(tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        digest = playing.blobs.put(b"original\n")
        step = script("echo more >> /in/a.txt; cat /in/a.txt", inputs=(given("a", "file", "/in/a.txt"),))
        ended = await playing.one(spec_of(step, {"a": Stored("file", digest, 9, "a.txt")}, working_directory=HERE))
        assert playing.text(ended) == "original\nmore\n"
        assert playing.blobs.get(digest) == b"original\n"

    play(tmp_path, ProcessBackend, story)


def test_a_file_that_is_gone_is_no_fault_of_the_command(tmp_path: Path) -> None:
    step = script("true", inputs=(given("a", "file", "/in/a.txt"),))
    ended, _ = ran(tmp_path, step, {"a": Stored("file", "sha256:" + "0" * 64, 9, "a.txt")})
    assert ended.outcome == "errored" and "is not there" in ended.message


@pytest.mark.parametrize(
    ("made", "messages"),
    [
        (output("rows", "int"), ["the output 'rows' was not written", "$PENSTOCK_OUTPUTS/rows", "work.1/out/rows"]),
        (output("table", "file", "/data/t.csv"), ["'table' was not written", "/data/t.csv (here", "root/data/t.csv"]),
        (output("word", "int"), ["the output 'word' is 'many', which is not int"]),
    ],
)
def test_missing_and_wrong_outputs_are_failures_that_name_them(
    tmp_path: Path, made: model.Output, messages: list[str]
) -> None:
    ended, _ = ran(tmp_path, script('echo many > "$PENSTOCK_OUTPUTS/word"', output("word", "str"), made))
    assert ended.outcome == "failed" and ended.outputs == {}
    assert all(message in ended.message for message in messages), ended.message


def test_the_folder_of_a_failed_attempt_stays_to_be_looked_at(tmp_path: Path) -> None:
    ran(tmp_path, script('echo half > "$PENSTOCK_OUTPUTS/rows"; exit 1', output("rows")))
    assert (tmp_path / "work/test-1/work.1/out/rows").read_text() == "half\n"
    ended, _ = ran(tmp_path, script("true", output("rows")))
    assert "was not written" in ended.message, "what a crashed engine left of the same attempt is not taken for its own"


def test_a_large_output_is_read(tmp_path: Path) -> None:
    ended, _ = ran(tmp_path, script("head -c 3000000 /dev/zero | tr '\\0' x", output("text", "str", "/dev/stdout")))
    assert isinstance(ended.outputs["text"], Stored) and ended.outputs["text"].size == 3_000_002


# -- stopping ---------------------------------------------------------------------------------------------------------


def stopped(home: Path, source: str, grace: float, mark: str = "began") -> tuple[AttemptEnded, str, float]:
    found: list[tuple[AttemptEnded, str, float]] = []

    async def story(playing: Play) -> None:
        spec = spec_of(script(source.replace("MARK", str(home / mark))), working_directory=HERE)
        playing.backend.start([spec])
        await pid_in(home / mark)
        began = time.monotonic()
        playing.backend.stop(spec.id, grace)
        [ended] = await playing.end_of(spec)
        found.append((ended, playing.text(ended), time.monotonic() - began))
        assert playing.backend.room() == 2

    home.mkdir(exist_ok=True)
    play(home, ProcessBackend, story)
    return found[0]


def test_stop_asks_first(tmp_path: Path) -> None:
    ended, log, took = stopped(
        tmp_path, "trap 'echo bye; exit 0' TERM; echo 1 > MARK; while :; do sleep 0.01; done", 20.0
    )
    assert (ended.outcome, ended.message) == ("cancelled", "stopped")
    assert "bye\n" in log  # and what the shell says of its sleep
    assert took < 10


def test_stop_makes_it_after_the_grace(tmp_path: Path) -> None:
    ended, _, took = stopped(tmp_path, "trap '' TERM; echo 1 > MARK; while :; do sleep 0.01; done", 0.1)
    assert ended.outcome == "cancelled" and 0.1 <= took < 10


def test_stop_without_grace_does_not_ask(tmp_path: Path) -> None:
    ended, log, _ = stopped(tmp_path, "trap 'echo bye' TERM; echo 1 > MARK; while :; do sleep 0.01; done", 0.0)
    assert ended.outcome == "cancelled" and log == ""


def test_stop_ends_what_the_command_started(tmp_path: Path) -> None:
    ended, _, _ = stopped(tmp_path, "sh -c 'trap \"\" TERM; echo $$ > MARK; while :; do sleep 0.01; done' & wait", 0.1)
    assert ended.outcome == "cancelled"
    assert gone(int((tmp_path / "began").read_text()))


def test_what_a_command_leaves_running_ends_with_it(tmp_path: Path) -> None:
    ended, log = ran(tmp_path, script("sleep 1000 & echo $!"))
    assert ended.outcome == "succeeded"
    assert gone(int(log))


def test_stopping_twice_and_stopping_nothing(tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        playing.backend.stop("test-1/nobody/1", 1.0)
        spec = spec_of(script("trap '' TERM; echo 1; while :; do sleep 0.01; done"), working_directory=HERE)
        playing.backend.start([spec])
        playing.backend.stop(spec.id, 100.0)
        playing.backend.stop(spec.id, 0.0)
        [ended] = await playing.end_of(spec)
        assert ended.outcome == "cancelled"
        playing.backend.stop(spec.id, 0.0)
        assert await playing.one(spec_of(command("true"), task="after", working_directory=HERE))
        assert len([report for report in playing.reports if isinstance(report, AttemptEnded)]) == 2

    play(tmp_path, ProcessBackend, story)


def test_stop_while_files_are_laid_and_while_they_are_read(tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        digest = playing.blobs.put(b"x")
        step = script("touch /in/began", inputs=(given("a", "file", "/in/a"),))
        early = spec_of(step, {"a": Stored("file", digest, 1, "a")}, task="early", working_directory=HERE)
        playing.backend.start([early])
        playing.backend.stop(early.id, 10.0)
        [ended] = await playing.end_of(early)
        assert ended.outcome == "cancelled" and playing.began(early.id) is None
        late = spec_of(script("echo x > /out/a", output("a", "file", "/out/a")), task="late", working_directory=HERE)
        playing.backend.start([late])
        attempt = playing.backend._attempts[late.id]
        await playing.until(lambda: playing.began(late.id) is not None)
        os.waitid(os.P_PID, attempt.processes[0].pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has noticed
        playing.backend.stop(late.id, 10.0)
        [ended] = await playing.end_of(late)
        assert ended.outcome == "cancelled" and ended.outputs == {}

    play(tmp_path, ProcessBackend, story)


def test_close_ends_everything(tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        marks = [tmp_path / f"pid-{number}" for number in range(2)]
        playing.backend.start(
            [spec_of(script(f"echo $$ > {mark}; sleep 1000"), task=mark.name, working_directory=HERE) for mark in marks]
        )
        pids = [await pid_in(mark) for mark in marks]
        await playing.backend.close()
        assert not any(map(alive, pids))

    play(tmp_path, ProcessBackend, story)


def test_without_pidfds_the_end_is_noticed_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    ended, log = ran(tmp_path, script("echo hi; exit 4"))
    assert ended.exit_code == 4 and log == "hi\n"


def test_room_is_what_the_machine_has_left(tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        specs = [spec_of(script("sleep 1000"), task=f"t{number}", working_directory=HERE) for number in range(3)]
        assert playing.backend.room() == 3
        playing.backend.start(specs)
        assert playing.backend.room() == 0
        playing.backend.stop(specs[0].id, 0.0)
        await playing.end_of(specs[0])
        assert playing.backend.room() == 1

    play(tmp_path, ProcessBackend, story, jobs=3)


# -- replicas and functions -------------------------------------------------------------------------------------------


def test_replicas_run_together_and_the_first_gives_the_outputs(tmp_path: Path) -> None:
    # Each waits for the others: one after the other they would never end.
    source = """
        touch MEET/$PENSTOCK_REPLICA
        while [ $(ls MEET | wc -l) -lt $PENSTOCK_REPLICAS ]; do sleep 0.01; done
        echo $PENSTOCK_REPLICA > "$PENSTOCK_OUTPUTS/me"; echo "I am $PENSTOCK_REPLICA"; cp /in/a /out/a
        [ "$PENSTOCK_COORDINATOR" = localhost ]
    """
    meet = tmp_path / "meet"
    meet.mkdir()
    step = script(
        source.replace("MEET", str(meet)),
        output("me", "int"),
        output("a", "str", "/out/a"),
        replicas=3,
        inputs=(given("a", "str", "/in/a"),),
    )
    ended, log = ran(tmp_path / "home", step, {"a": "same"})
    assert ended.outputs == {"me": 0, "a": "same"}, ended
    assert log == "I am 0\nI am 1\nI am 2\n" and len(ended.log) == 3


def test_one_replica_that_fails_stops_the_rest(tmp_path: Path) -> None:
    ended, _ = ran(tmp_path, script("if [ $PENSTOCK_REPLICA = 1 ]; then exit 7; fi; sleep 1000", replicas=3))
    assert (ended.outcome, ended.exit_code, ended.message) == ("failed", 7, "replica 1: exit code 7")


def test_a_function_with_replicas(tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        step = function_step(sample.who, "dict", replicas=2, env={"EXTRA": 5})
        bundle = bundle_of(step, blobs=playing.blobs)
        ended = await playing.one(spec_of(step, {"word": "hi"}, bundle=bundle, working_directory=HERE))
        assert ended.outputs == {"result": {"replica": "0", "replicas": "2", "extra": "5", "word": "hi"}}, ended
        assert playing.text(ended) == "replica 0\nreplica 1\n"

    play(tmp_path, ProcessBackend, story)


@pytest.mark.parametrize(
    ("how", "outcome", "message"),
    [
        ("raise", "failed", "replica 1: ValueError: a bad day"),
        ("exit", "failed", "replica 1: the function ended its process with exit code 5"),
        ("kill", "failed", "replica 1: ended by signal 9 (SIGKILL; perhaps out of memory)"),
    ],
)
def test_a_replica_of_a_function_that_fails(tmp_path: Path, how: str, outcome: str, message: str) -> None:
    async def story(playing: Play) -> None:
        step = function_step(sample.fail_as_second, replicas=2)
        bundle = bundle_of(step, blobs=playing.blobs)
        ended = await playing.one(spec_of(step, {"how": how}, bundle=bundle, working_directory=HERE))
        assert (ended.outcome, ended.message) == (outcome, message)
        if how == "raise":
            assert ended.exception == "ValueError" and "fail_as_second" in ended.traceback

    play(tmp_path, ProcessBackend, story)


def test_a_function_whose_code_is_nowhere(tmp_path: Path) -> None:
    action = model.Function(module="no_such_module_here", name="f")
    ended, _ = ran(tmp_path, model.Step(name="work", action=action, replicas=2))
    assert ended.outcome == "errored" and "P702 there is no module 'no_such_module_here' here" in ended.message


# -- speed ------------------------------------------------------------------------------------------------------------


def test_a_command_costs_the_engine_little(tmp_path: Path) -> None:
    """In processor time, beside what a bare spawning costs this process at this moment: three times as much at rest."""

    async def story(playing: Play) -> None:
        specs = [spec_of(command("true"), task=f"t[{number}]", working_directory=HERE) for number in range(200)]
        ended: list[AttemptEnded] = []
        with measured() as spent:
            while len(ended) < 200:
                count = playing.backend.room()
                playing.backend.start(specs[:count])
                del specs[:count]
                await playing.inbox.wait()
                ended += [report for report in playing.inbox.take() if isinstance(report, AttemptEnded)]
        assert {report.outcome for report in ended} == {"succeeded"}
        assert spent.seconds / 200 < 0.002 * slowness_of_spawning()

    play(tmp_path, ProcessBackend, story)
