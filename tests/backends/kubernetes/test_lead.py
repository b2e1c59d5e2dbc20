"""The leader of a pod, with the shell around each part, as processes of this machine: what happens in a pod whose parts wait for one another."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.folders import mangled
from penstock.backends.kubernetes.lead import KILLED, PodLeader, plan_text
from penstock.backends.kubernetes.shell import PIPES, led, staying
from penstock.backends.pods.sequence import PodFailure
from penstock.graph.model import Part

SHELLS = [["sh"], ["bash"], ["busybox", "sh"]]


class Containers:
    """The containers of one pod: each runs the shell around a part."""

    def __init__(self, folder: Path, shell: list[str], *parts: Part, grace: float = 0.5) -> None:
        self.folder = folder
        self.shell = shell
        self.parts = {part.name: part for part in parts}
        self.running: dict[str, subprocess.Popen[str]] = {}
        read = {part.name: {path: f"{folder}{path}" for path in part.results.values()} for part in parts}
        self.leader = PodLeader(json.loads(plan_text(list(parts), read)), folder, "7", grace)
        self.failure: PodFailure | None = None
        self._thread = threading.Thread(target=self._lead, daemon=True)

    def _lead(self) -> None:
        self.failure = self.leader.run()

    def up(self, *names: str) -> None:
        for name in names or self.parts:
            part = self.parts[name]
            text = led(f"{PIPES}/{mangled(name)}", (), "", part.on_error == "continue" or part.sidecar)
            text = text.replace("/tmp/penstock", str(self.folder))
            self.running[name] = subprocess.Popen(
                [*self.shell, "-c", text, "penstock"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                start_new_session=True, env={**os.environ, **part.env},
            )  # fmt: skip

    def lead(self) -> None:
        self._thread.start()

    def end(self) -> PodFailure | None:
        self._thread.join(20)
        assert not self._thread.is_alive(), "the leader does not end"
        return self.failure

    def ended(self, name: str) -> tuple[int, str]:
        """(exit code, what it printed)"""
        out, _ = self.running[name].communicate(timeout=20)
        return self.running[name].returncode, out

    def kill(self) -> None:
        for process in self.running.values():
            with suppress(ProcessLookupError):  # what it left behind ends with its container, which this stands for
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture(params=SHELLS, ids=lambda shell: "-".join(shell))
def shell(request: pytest.FixtureRequest) -> list[str]:
    if shutil.which(request.param[0]) is None:
        pytest.skip(f"no {request.param[0]}")
    found: list[str] = request.param
    return found


@pytest.fixture
def pods() -> Iterator[list[Containers]]:
    made: list[Containers] = []
    yield made
    for one in made:
        one.kill()


def part(name: str, text: str = "", **more: Any) -> Part:
    return Part(name=name, **{"command": ("sh", "-c", text), **more})


def run(pods: list[Containers], folder: Path, shell: list[str], *parts: Part) -> tuple[Containers, PodFailure | None]:
    pod = Containers(folder, shell, *parts)
    pods.append(pod)
    pod.up()
    pod.lead()
    return pod, pod.end()


def test_parts_run_in_order_and_read_of_one_another(pods: list[Containers], tmp_path: Path, shell: list[str]) -> None:
    """Results, elements of them, exit codes, a script, a variable, and a folder to start in."""
    codes = f"{PIPES}/two/exitCode".replace("/tmp/penstock", str(tmp_path))
    pod, failure = run(
        pods,
        tmp_path,
        shell,
        part(
            "one",
            f'sleep 0.2; echo \'["a b", "c"]\' > {tmp_path}/list; echo it\\\'s > {tmp_path}/n',
            results={"list": "/list", "n": "/n"},
        ),
        part("two", "exit 5", on_error="continue"),
        part(
            "three",
            command=("printf", "<%s>"),
            args=("$(steps.one.results.list[*])", "$(steps.one.results.n)", "$(PENSTOCK_REPLICA)"),
        ),
        part(
            "four",
            command=("sh",),
            source=f"pwd; echo $X; cat $(steps.two.exitCode.path); cat {codes}",
            workdir="$(steps.one.results.list[1])",
            env={"X": "$(steps.one.results.n)"},
            args=("y",),
        ),
    )
    assert failure == PodFailure("four", 126)  # there is no folder c
    assert pod.ended("two") == (0, "") and pod.ended("three") == (0, "<a b><c><it's><7>")
    assert pod.ended("one")[0] == 0 and pod.ended("four")[0] == 126


def test_a_script_reads_results_and_exit_codes(pods: list[Containers], tmp_path: Path, shell: list[str]) -> None:
    (tmp_path / "c d").mkdir()
    pod, failure = run(
        pods,
        tmp_path,
        shell,
        part("one", f"printf '{tmp_path}/c d' > {tmp_path}/n", results={"n": "/n"}),
        part("two", "exit 5", on_error="continue"),
        part(
            "three",
            command=("sh", "-e"),
            source="pwd; echo $X $1; cat $(steps.two.exitCode.path)",
            workdir="$(steps.one.results.n)",
            env={"X": "of $(steps.one.results.n)"},
            args=("y",),
        ),
    )
    assert failure is None
    assert pod.ended("three") == (0, f"{tmp_path}/c d\nof {tmp_path}/c d y\n5")


def test_a_failure_stops_what_runs_and_nothing_more_starts(
    pods: list[Containers], tmp_path: Path, shell: list[str]
) -> None:
    pod, failure = run(
        pods,
        tmp_path,
        shell,
        part("beside", "trap 'echo asked; exit 3' TERM; while :; do sleep 0.05; done", needs=()),
        part("stubborn", "trap '' TERM; echo up; while :; do sleep 0.05; done", needs=()),
        part("fails", "sleep 0.5; exit 4", needs=()),
        part("never", "echo never", needs=("beside", "fails")),
    )
    assert failure == PodFailure("fails", 4)
    assert pod.ended("beside") == (3, "asked\n") and pod.ended("never") == (0, "")
    assert pod.ended("stubborn")[0] == 137 and pod.ended("fails")[0] == 4


def test_time_runs_out_from_when_a_part_begins(pods: list[Containers], tmp_path: Path, shell: list[str]) -> None:
    pod, failure = run(
        pods, tmp_path, shell, part("one", "sleep 0.6"), part("two", "exec sleep 60", timeout=0.4, on_error="continue")
    )
    assert failure == PodFailure("two", 143, "timed out after 0.4 s") and pod.ended("one")[0] == 0


def test_sidecars_that_are_led_start_first_and_end_last(
    pods: list[Containers], tmp_path: Path, shell: list[str]
) -> None:
    mark = tmp_path / "mark"
    pod, failure = run(
        pods,
        tmp_path,
        shell,
        part("one", f"until [ -e {mark} ]; do sleep 0.05; done"),
        part("web", f"trap 'echo bye; exit 9' TERM; touch {mark}; while :; do sleep 0.05; done", sidecar=True),
    )
    assert failure is None and pod.ended("web") == (0, "bye\n")


def test_a_container_that_is_killed_has_failed(pods: list[Containers], tmp_path: Path, shell: list[str]) -> None:
    """As by the kernel, when it has used too much memory: its own shell cannot say so any more."""
    pod = Containers(tmp_path, shell, part("one", "echo up; exec sleep 60"), part("two", "true"))
    pods.append(pod)
    pod.up()
    pod.lead()
    stdout = pod.running["one"].stdout
    assert stdout is not None and stdout.readline() == "up\n"
    os.killpg(pod.running["one"].pid, signal.SIGKILL)
    assert pod.end() == PodFailure("one", KILLED) and pod.ended("two") == (0, "")


def test_a_container_that_comes_late_or_after_the_end(pods: list[Containers], tmp_path: Path, shell: list[str]) -> None:
    """Its image was pulled for longer than the others took."""
    skipped = part("skipped", "echo no", when=({"input": "a", "operator": "in", "values": ["b"]},))
    pod = Containers(tmp_path, shell, skipped, part("late", "echo late", needs=()))
    pods.append(pod)
    pod.lead()
    pod.up("late")
    assert pod.end() is None and pod.ended("late") == (0, "late\n")
    pod.up("skipped")
    assert pod.ended("skipped")[0] == 0


def _reads(pid: int, name: str) -> bool:
    """Has a process opened a file with this end of its name?"""
    with suppress(OSError):
        for one in Path(f"/proc/{pid}/fd").iterdir():
            if os.readlink(one).endswith(name):
                return True
    return False


def test_containers_that_lose_their_leader_end(pods: list[Containers], tmp_path: Path, shell: list[str]) -> None:
    """It is a process of its own here, and killed while one part waits."""
    plan = tmp_path / "plan.json"
    plan.write_text(plan_text([part("one", "sleep 60"), part("two", "true")], {"one": {}, "two": {}}))
    code = f"import json; from pathlib import Path; from penstock.backends.kubernetes.lead import PodLeader\nPodLeader(json.loads(Path({str(plan)!r}).read_text()), Path({str(tmp_path)!r}), '0').run()"
    leader = subprocess.Popen([sys.executable, "-c", code])
    pod = Containers.__new__(Containers)
    pod.folder, pod.shell, pod.running = tmp_path, shell, {}
    pod.parts = {"two": part("two", "true")}
    pods.append(pod)
    try:
        pod.up()
        deadline = time.monotonic() + 20
        while not _reads(pod.running["two"].pid, "/go") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert pod.running["two"].poll() is None
    finally:
        leader.kill()
        leader.wait()
    assert pod.ended("two") == (0, "")


def test_the_end_of_a_pod_reaches_parts_that_wait_and_parts_that_run(
    pods: list[Containers], tmp_path: Path, shell: list[str]
) -> None:
    pod = Containers(
        tmp_path,
        shell,
        part("runs", "trap 'echo asked; exit 3' TERM; echo up; while :; do sleep 0.05; done"),
        part("waits", "echo no"),
    )
    pods.append(pod)
    pod.up()
    pod.lead()
    stdout = pod.running["runs"].stdout
    assert stdout is not None and stdout.readline() == "up\n"
    for process in pod.running.values():
        process.terminate()  # as Kubernetes asks the first process of each container
    assert pod.ended("runs") == (3, "asked\n")
    assert pod.ended("waits")[0] in (143, -signal.SIGTERM)  # where it is the first process, it ends by its own word
    pod.end()


def test_a_sidecar_that_ends_is_not_started_again(tmp_path: Path, shell: list[str]) -> None:
    text = [*shell, "-c", staying(), "penstock", "sh", "-c", "echo done; exit 3"]
    with subprocess.Popen(text, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "done\n"
        assert process.poll() is None
        process.terminate()
        assert process.wait(10) in (0, 3, 143)
