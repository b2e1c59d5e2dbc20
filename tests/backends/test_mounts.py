"""Folders that steps mount, on the host: where they lie, who sees them, how long they last."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.backends import mounts
from penstock.backends.base import AttemptEnded
from penstock.backends.local.process import ProcessBackend
from penstock.expressions.types import parse
from penstock.graph.model import Container, Input, Mount, Output, Script, Step
from penstock.graph.stored import Stored
from tests.backends.harness import Play, play, spec_of

HERE = os.getcwd()


def step(source: str, *folders: Mount, name: str = "work", **more: Any) -> Step:
    action = Script(source=source, env=more.pop("env", {}), workdir=more.pop("workdir", None))
    return Step(name=name, action=action, mounts=folders, **more)


def ran(home: Path, *steps: Step, together: bool = False, **more: Any) -> list[tuple[AttemptEnded, str]]:
    """Each after the other, or all together: how it ended, and what it printed."""
    found: list[tuple[AttemptEnded, str]] = []

    async def story(playing: Play) -> None:
        specs = [
            spec_of(one, more.get("inputs"), task=f"{one.name}-{number}", working_directory=HERE)
            for number, one in enumerate(steps)
        ]
        for group in [specs] if together else [[spec] for spec in specs]:
            found.extend((ended, playing.text(ended)) for ended in await playing.run(*group))

    play(home, ProcessBackend, story, jobs=more.get("jobs", 2))
    return found


def good(found: list[tuple[AttemptEnded, str]]) -> list[str]:
    assert all(ended.outcome == "succeeded" for ended, _ in found), found
    return [text for _, text in found]


def test_a_folder_of_the_task_is_its_own_and_goes_with_it(tmp_path: Path) -> None:
    one = step(
        "ls -A /data; echo x > /data/x; echo /data/x $WHERE; cd /data && pwd",
        Mount(name="d", path="/data"),
        env={"WHERE": "in:/data"},
    )
    first, second = good(ran(tmp_path, one, one))
    folder = tmp_path / "work/test-1/work-0.1/root/data"
    assert first == f"{folder}/x in:{folder}\n{folder}\n"
    assert second == first.replace("work-0", "work-1")
    assert not list((tmp_path / "work").rglob("*"))


def test_a_folder_of_the_run_is_shared_and_outlives_tasks_failures_and_engines(tmp_path: Path) -> None:
    shared = Mount(name="d", path="/data", scope="run")
    ended = ran(
        tmp_path,
        step("echo 1 >> /data/sub/n", shared, workdir="/data/sub"),
        step("echo 2 >> n; false; exit 3", shared, workdir="/data/sub"),
    )
    assert [one.outcome for one, _ in ended] == ["succeeded", "failed"]
    other = Mount(name="d", path="/elsewhere", scope="run", sub_path="/sub/../sub", read_only=True)
    [text] = good(ran(tmp_path, step("cat /elsewhere/n", other)))
    assert text == "1\n2\n"
    assert (tmp_path / "work/test-1/volumes/d/sub/n").is_file()


def test_the_folders_of_a_run_go_when_it_is_over(tmp_path: Path) -> None:
    good(ran(tmp_path, step("echo 1 > /data/n", Mount(name="d", path="/data", scope="run"))))
    mounts.forget_run(tmp_path, "test-2")
    assert (tmp_path / "work/test-1/volumes/d/n").exists()
    mounts.forget_run(tmp_path, "test-1")
    assert not (tmp_path / "work/test-1").exists()
    mounts.forget_run(tmp_path, "test-1")


def test_tasks_may_share_a_folder_at_the_same_time(tmp_path: Path) -> None:
    shared = Mount(name="d", path="/data", scope="run", sub_path="deep/er", files={"deep/er/head": "first\n"})
    steps = [
        step(
            f"cat /data/head; i=0; while [ $i -lt 50 ]; do echo {n} >> /data/all; i=$((i+1)); done; echo changed >> /data/head",
            shared,
        )
        for n in range(8)
    ]
    texts = good(ran(tmp_path, *steps, together=True, jobs=8))
    assert all(text.startswith("first\n") for text in texts)
    folder = tmp_path / "work/test-1/volumes/d/deep/er"
    assert sorted((folder / "all").read_text().split()) == sorted(str(n) for n in range(8) for _ in range(50))
    assert (folder / "head").read_text() == "first\n" + "changed\n" * 8, "what is given at first is laid once"
    assert sorted(os.listdir(folder)) == ["all", "head"]


def test_given_files_are_laid_and_may_be_for_reading_only(tmp_path: Path) -> None:
    files = {"app.ini": "a = 1\n", "conf.d/x": "x\n", "/../../out": "stays\n"}
    one = step(
        "cd /etc/app; find . -type f | sort; cat conf.d/x; stat -c %a app.ini; cat /etc/one",
        Mount(name="c", path="/etc/app", scope="given", files=files, read_only=True),
        Mount(name="c", path="/etc/one", scope="given", files=files, sub_path="app.ini"),
    )
    assert good(ran(tmp_path, one, one)) == ["./app.ini\n./conf.d/x\n./out\nx\n444\na = 1\n"] * 2
    assert not list((tmp_path / "work").rglob("*"))


def test_one_folder_may_be_mounted_twice(tmp_path: Path) -> None:
    one = step(
        "echo 1 > /a/x; cat /b/x; echo 2 > /c/y; cat /a/sub/y",
        Mount(name="v", path="/a"),
        Mount(name="v", path="/b/"),
        Mount(name="v", path="/c", sub_path="sub"),
    )
    assert good(ran(tmp_path, one)) == ["1\n2\n"]


def test_declared_paths_below_a_mounted_folder_lie_in_it(tmp_path: Path) -> None:
    async def story(playing: Play) -> None:
        digest = playing.blobs.put(b"given\n")
        one = step(
            "cd /data; cat in/a.txt text; echo 7 > out.txt; echo 8 > /data/inner/n",
            Mount(name="d", path="/data", scope="run"),
            Mount(name="i", path="/data/inner"),
            inputs=(
                Input(name="a", value=None, type=parse("file"), path="/data/in/a.txt"),
                Input(name="t", value=None, path="/data/text"),
            ),
            outputs=(
                Output(name="o", type=parse("int"), path="/data/out.txt"),
                Output(name="n", type=parse("int"), path="/data/inner/n"),
            ),
        )
        for number in (1, 2):
            inputs = {"a": Stored("file", digest, 6, "a.txt"), "t": number}
            ended = await playing.one(spec_of(one, inputs, attempt=number, working_directory=HERE))
            assert ended.outputs == {"o": 7, "n": 8}, ended
            assert playing.text(ended) == f"given\n{number}"
            digest = playing.blobs.put(b"given\n")

    play(tmp_path, ProcessBackend, story)
    assert sorted(os.listdir(tmp_path / "work/test-1/volumes/d")) == ["in", "out.txt", "text"]


@pytest.mark.parametrize("sub", ["../../../..", "/../x", "a/../../../x", "."])
def test_a_sub_path_does_not_lead_out(tmp_path: Path, sub: str) -> None:
    home = tmp_path / "home"
    for scope in ("task", "run", "given"):
        good(ran(home, step("touch /data/here", Mount(name="d", path="/data", scope=scope, sub_path=sub))))
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert {path.relative_to(home).parts[0] for path in home.rglob("here")} <= {"work"}
    assert all("volumes" in path.parts for path in home.rglob("here"))


def test_a_link_that_a_task_left_does_not_lead_the_next_one_out(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    good(ran(tmp_path / "home", step(f"ln -s {tmp_path}/mine /data/link", Mount(name="d", path="/data", scope="run"))))
    for bad in (
        Mount(name="d", path="/data", scope="run", sub_path="link"),
        Mount(name="d", path="/data", scope="run", sub_path="link/sub"),
        Mount(name="d", path="/data", scope="run", files={"link/x": "x"}),
    ):
        [(ended, _)] = ran(tmp_path / "home", step("true", bad))
        assert ended.outcome == "errored" and "is a link that leads out of it" in ended.message
    assert not list((tmp_path / "mine").iterdir())


def test_a_mounted_path_is_not_found_in_the_folder_that_the_run_started_in(tmp_path: Path) -> None:
    """The user may well work below /tmp."""
    place = tmp_path / "place"
    place.mkdir()
    top = "/" + place.parts[1]
    (place / "mine").write_text("mine\n")
    (place / "sub").mkdir()

    async def story(playing: Play) -> None:
        for workdir in (None, "sub"):
            one = step(f"pwd; echo x > {top}/scratch; cat {top}/scratch", Mount(name="t", path=top), workdir=workdir)
            ended = await playing.one(spec_of(one, working_directory=str(place), task=f"t-{workdir}"))
            assert playing.text(ended) == f"{place / (workdir or '')}\nx\n".replace("/\n", "\n"), ended

    play(tmp_path / "home", ProcessBackend, story)
    assert not Path(f"{top}/scratch").exists()


def test_words_of_a_command_find_it_too(tmp_path: Path) -> None:
    action = Container(image="x", command=("sh", "-c", 'echo x > "$0"; ls "$1"'), args=("/cache/x", "--in=/cache"[5:]))
    one = Step(name="work", action=action, mounts=(Mount(name="c", path="/cache/"),))
    assert good(ran(tmp_path, one)) == ["x\n"]
