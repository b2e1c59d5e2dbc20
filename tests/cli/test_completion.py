"""TAB, in real shells: what is typed, a TAB, and what the line is then. A shell that is not installed is skipped by name."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.completion import answer, split
from penstock.cli.main import COMMANDS, cli
from tests.cli.conftest import Result
from tests.support.speed import slowness

FLOW = """
from penstock import task, workflow

@task
def prepare(n: int) -> list[int]:
    return list(range(n))

@task
def train(x: int) -> int:
    return x

@workflow
def inner(xs: list[int]) -> list[int]:
    return [train(x) for x in xs]

@workflow
def flow(rows: int = 2, speed: float = 1.0):
    xs = prepare(rows)
    return inner(xs)
"""
BIN = str(Path(sys.executable).parent)


@pytest.fixture
def place(penstock: Callable[..., Result], tmp_path: Path) -> Path:
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "p.yaml").write_text("params: [{name: size}]\n")
    assert penstock("run", "flow.py:flow", "-q").code == 0
    return tmp_path


def answered(line: str) -> str:
    return answer(line, cli, {name: text for name, (_, text) in COMMANDS.items()})


def words(line: str) -> list[str]:
    """What is offered for the last word of a line."""
    return [one.partition("\t")[0] for one in answered(line).splitlines()[1:]]


def test_commands_options_and_choices(place: Path) -> None:
    assert words("penstock sh") == ["show"] and "completion" in words("penstock ")
    assert words("penstock show --ga") == ["--gantt"] and words("penstock show @ -o j") == ["json"]
    assert words("penstock queue ap") == ["apply"] and words("penstock queue apply --") != []
    assert words("penstock nope ") == [] and words("") == words("penstock ")


def test_runs_and_steps(place: Path) -> None:
    assert words("penstock show ") == ["@", "flow-1"] and words("penstock cancel fl") == ["flow-1"]
    assert words("penstock show flow-1") == ["flow-1", "flow-1/"] and words("penstock cancel flow-1") == ["flow-1"]
    assert words("penstock logs flow-1/") == ["flow-1/prepare", "flow-1/inner", "flow-1/inner/train"]
    assert words("penstock get '@/inn") == ["@/inner", "@/inner/train"] and words("penstock logs nope/") == []
    assert words("penstock diff ") == ["@", "flow-1", ":files"] and words("penstock ls --workflow ") == ["flow"]


def test_files_workflows_in_them_and_parameters(place: Path) -> None:
    assert words("penstock run ") == [":files"] and words("penstock run flow.py:f") == ["flow.py:flow"]
    assert words("penstock run flow.py -p ") == ["xs=", "rows=", "speed="]
    assert words("penstock run flow.py:flow -p r") == ["rows="] and words("penstock plan p.yaml -p ") == ["size="]
    assert words("penstock run flow.py -p rows=@") == [":files"] and words("penstock run flow.py --params ") == [
        ":files"
    ]
    assert words("penstock get @ -o ") == ["json", ":folders"] and words("penstock explain P50")[0] == "P500"


def test_a_folder_without_runs_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert words("penstock show ") == [] and not (tmp_path / ".penstock").exists()


@given(st.text())
def test_any_line_has_an_answer(line: str) -> None:
    assert split(line) and isinstance(split(line)[-1], str)
    assert answered(f"penstock {line}"[:40]).startswith(":word=")


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\n"), min_size=1), min_size=1))
def test_words_are_those_of_the_shell(texts: list[str]) -> None:
    import shlex

    assert split(shlex.join(texts)) == texts


def test_a_key_press_does_not_wait(place: Path) -> None:
    env = {**os.environ, "_PENSTOCK_COMPLETE": "bash", "_PENSTOCK_LINE": "penstock logs flow-1/"}

    def press() -> float:
        before = os.times()
        subprocess.run([f"{BIN}/penstock"], env=env, cwd=place, check=True, capture_output=True)
        after = os.times()
        return (after.children_user - before.children_user) + (after.children_system - before.children_system)

    assert min(press() for _ in range(5)) < 0.2 * slowness()


class Shell:
    """An interactive shell in a terminal of its own."""

    START: ClassVar = {
        "bash": ["bash", "--norc", "-i"],
        "zsh": ["zsh", "-f", "-i"],
        "fish": ["fish", "--no-config", "-i"],
    }

    def __init__(self, name: str, place: Path) -> None:
        self.name = name
        pid, self.end = pty.fork()
        if pid == 0:
            os.chdir(place)
            env = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(place), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
            os.execvpe(self.START[name][0], self.START[name], env)
        self.pid = pid

    def say(self, text: str) -> None:
        os.write(self.end, text.encode())

    def until(self, wanted: str, seconds: float = 10.0) -> str:
        """Reads until the text matches. Control sequences are left out."""
        seen, deadline = "", time.monotonic() + seconds
        while time.monotonic() < deadline:
            if select.select([self.end], [], [], 0.1)[0]:
                seen += os.read(self.end, 65536).decode("utf-8", "replace")
                if "\x1b[c" in seen or "\x1b[0c" in seen:  # fish asks what kind of terminal this is
                    self.say("\x1b[?1;2c")
                    seen = seen.replace("\x1b[c", "").replace("\x1b[0c", "")
                plain = re.sub(r"\x1b(\[[?>=]?[\d;]*[a-zA-Z]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9]|[=>])", "", seen)
                found = re.search(wanted, plain)
                if found:
                    return found.group(1)
        raise AssertionError(f"{wanted!r} did not come: {seen[-2000:]!r}")

    def load(self) -> None:
        script = f"penstock completion {self.name}"
        self.say(f"{script} | source\r" if self.name == "fish" else f"source <({script})\r")
        self.say("echo rea''dy-$(math 1 + 1)\r" if self.name == "fish" else "echo rea''dy-$((1+1))\r")
        self.until("(ready-2)")

    def completed(self, line: str) -> str:
        """The line after a TAB: the shell is told to print it instead of running it."""
        self.say(f"{line}\t")
        self.say("|'\x01echo '\r")
        return self.until(r"[\r\n](penstock [^\r\n]*\|)\r\n").rstrip("|")

    def close(self) -> None:
        os.close(self.end)
        os.waitpid(self.pid, 0)


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest, place: Path) -> Iterator[Shell]:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    found = Shell(request.param, place)
    try:
        found.load()
        yield found
    finally:
        found.close()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("penstock sho", "penstock show "),
        ("penstock show --gan", "penstock show --gantt "),
        ("penstock show fl", "penstock show flow-1"),
        ("penstock logs flow-1/prep", "penstock logs flow-1/prepare "),
        ("penstock logs @/prep", "penstock logs @/prepare "),
        ("penstock run flow.py -p ro", "penstock run flow.py -p rows="),
        ("penstock run fl", "penstock run flow.py "),
        ("penstock run flow.py:fl", "penstock run flow.py:flow "),
    ],
)
def test_a_tab_in_a_real_shell(shell: Shell, typed: str, completed: str) -> None:
    assert shell.completed(typed).rstrip() == completed.rstrip()


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_it_is_installed_once(
    name: str, penstock: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("SHELL", f"/usr/bin/{name}")
    start = tmp_path / f".{name}rc"
    if name != "fish":
        start.write_text("alias ll='ls -l'")
    assert penstock("completion", "--install").code == 0 == penstock("completion", name, "--install").code
    if name == "fish":
        assert (tmp_path / ".config/fish/completions/penstock.fish").read_text() == penstock("completion").out
    else:
        assert start.read_text().splitlines()[0] == "alias ll='ls -l'"
        assert start.read_text().count("# completion of penstock") == 1
    if shutil.which(name):
        loaded = {
            "bash": "complete -p penstock",
            "zsh": "print $_comps[penstock]",
            "fish": "complete -C 'penstock sho'",
        }[name]
        env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        run = subprocess.run(
            [name, "-i", "-c", loaded], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert ("Show a run" if name == "fish" else "_penstock") in run.stdout, run


def test_an_unknown_shell_is_refused(penstock: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    found = penstock("completion")
    assert found.code == 2 and "P583" in found.err and "bash|zsh|fish" in found.err
