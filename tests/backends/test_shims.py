"""`python` and `ash` for steps whose image would have them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from penstock.backends.local import shims
from penstock.backends.local.process import ProcessBackend
from penstock.graph.model import Container, Input, Part, Pod, Script, Step
from tests.backends.harness import Play, play, spec_of


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A PATH with a shell and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sh").symlink_to("/bin/sh")
    return str(folder)


def said(home: Path, step: Step) -> str:
    found: list[str] = []

    async def story(playing: Play) -> None:
        ended = await playing.one(spec_of(step, {"x": 1}, working_directory=os.getcwd()))
        found.append(f"{playing.text(ended)}{ended.message}".strip())

    play(home, ProcessBackend, story)
    return found[0]


CODE = "import sys; print('ran by', sys.version_info[0])"


@pytest.mark.parametrize("laid", [False, True])
def test_image_steps_find_python(tmp_path: Path, bare: str, laid: bool) -> None:
    inputs = (Input(name="x", value=None, path="/in/x"),) if laid else ()
    actions = [
        Container(image="python:3", command=("python", "-c", CODE), env={"PATH": bare}),
        Script(image="python:3", command=("python",), source=CODE, env={"PATH": bare}),
        Script(image="alpine", source=f'python -c "{CODE}"', env={"PATH": bare}),
        Pod(parts=(Part(name="a", image="x", source=f"#!/usr/bin/env python\n{CODE}", env={"PATH": bare}),)),
    ]
    for number, action in enumerate(actions):
        assert said(tmp_path / str(number), Step(name="s", action=action, inputs=inputs)) == "ran by 3"


def test_nothing_else_is_made_up_and_steps_without_an_image_get_this_machine(tmp_path: Path, bare: str) -> None:
    own = Script(source="x", command=("python",), env={"PATH": bare})
    assert said(tmp_path, Step(name="s", action=own)) == "there is no command 'python' on this machine"
    for name in ("python3", "pip", "bash"):
        missing = Container(image="x", command=(name,), env={"PATH": bare})
        assert said(tmp_path, Step(name="s", action=missing)) == f"there is no command '{name}' on this machine"


def test_what_the_machine_has_comes_first(tmp_path: Path, bare: str) -> None:
    python = Container(image="x", command=("python",), env={"PATH": bare})
    (Path(bare) / "python3").write_text("#!/bin/sh\necho the python3 of PATH\n")
    (Path(bare) / "python3").chmod(0o755)
    assert said(tmp_path / "a", Step(name="s", action=python)) == "the python3 of PATH"
    (Path(bare) / "python").write_text("#!/bin/sh\necho the python of PATH\n")
    (Path(bare) / "python").chmod(0o755)
    assert said(tmp_path / "b", Step(name="s", action=python)) == "the python of PATH"
    assert shutil.which("python", path=str(tmp_path / "b/cache/shims/ash")) is None


def test_the_folder_comes_last_and_is_written_once(tmp_path: Path, bare: str) -> None:
    home = tmp_path / "a home with 'odd' letters"
    path = shims.with_shims(bare, home)
    assert path == f"{bare}:{home}/cache/shims/python-ash" == shims.with_shims(bare, home)
    file = home / "cache/shims/python-ash/python"
    assert shutil.which("python", path=path) == str(file) and sys.executable in file.read_text()
    assert sorted(os.listdir(file.parent)) == ["ash", "python"]
    assert shims.with_shims("", tmp_path) == f"{tmp_path}/cache/shims/python-ash"


def test_ash_is_a_shell(tmp_path: Path, bare: str) -> None:
    step = Step(name="s", action=Script(image="alpine", command=("ash",), source="echo $((1 + 2))", env={"PATH": bare}))
    assert said(tmp_path, step) == "3"
