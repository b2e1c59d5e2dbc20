"""Outputs that are no files, have no end, or lead elsewhere: refused with a sentence, and nobody waits for them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.regular import Limits
from penstock.artifacts.values import load_value, store_path
from penstock.backends.base import AttemptEnded
from penstock.backends.local.process import ProcessBackend
from penstock.graph import model
from penstock.graph.stored import Stored
from tests.backends.harness import Play, play, spec_of
from tests.backends.test_process import output, script

MAKE = {
    "pipe": "mkfifo $PENSTOCK_OUTPUTS/result",
    "socket": "cd $PENSTOCK_OUTPUTS; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"result\")'",
    "device": "ln -s /dev/zero $PENSTOCK_OUTPUTS/result",
    "terminal": "ln -s /dev/ptmx $PENSTOCK_OUTPUTS/result",
}
PLACE = '"$PENSTOCK_OUTPUTS"/result'


def ran(home: Path, *steps: model.Step, limits: Limits | None = None, root: bool = False) -> list[AttemptEnded]:
    found: list[AttemptEnded] = []

    async def story(playing: Play) -> None:
        playing.blobs.limits = limits or Limits()
        specs = [
            spec_of(step, working_directory="/" if root else str(home), task=str(number))
            for number, step in enumerate(steps)
        ]
        async with asyncio.timeout(20):
            found.extend(await playing.run(*specs))

    play(home, ProcessBackend, story)
    return found


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("type_", ["str", "any", "file", "dir", "optional[file]"])
def test_only_files_and_folders_are_outputs(tmp_path: Path, kind: str, type_: str) -> None:
    made = script(MAKE[kind], output("result", type_))
    wrong, good = ran(tmp_path, made, script(f"echo 7 > {PLACE}", output("result", "int")))
    assert wrong.outcome == "failed" and "only regular files and folders are taken" in wrong.message, wrong.message
    assert good.outputs == {"result": 7}


def test_what_a_failed_command_leaves_blocks_nobody(tmp_path: Path) -> None:
    """The outputs of a failed step of another system are handed on, if they can be."""
    wrong, good = ran(
        tmp_path,
        script("mkfifo /out/result; exit 3", output("result", "str", "/out/result")),
        script("echo x > /out/result; exit 3", output("result", "str", "/out/result")),
        root=True,
    )
    assert (wrong.outcome, wrong.exit_code, wrong.outputs) == ("failed", 3, {})
    assert (good.outcome, good.outputs) == ("failed", {"result": "x"})


def test_a_text_may_be_so_long(tmp_path: Path) -> None:
    limits = Limits(value=1000, file=5000)
    short, long, sparse, file, folder = ran(
        tmp_path,
        script(f"head -c 1000 /dev/zero | tr '\\0' x > {PLACE}", output("result", "str")),
        script(f"head -c 1001 /dev/zero | tr '\\0' x > {PLACE}", output("result", "str")),
        script(f"truncate -s 1T {PLACE}", output("result", "any")),
        script(f"truncate -s 5001 {PLACE}", output("result", "file")),
        script(f"mkdir {PLACE}; truncate -s 3000 {PLACE}/a {PLACE}/b", output("result", "dir")),
        limits=limits,
    )
    assert short.outcome == "succeeded"
    for one in (long, sparse):
        assert one.outcome == "failed" and "'result' is larger than 1000" in one.message
        assert "PENSTOCK_LARGEST_VALUE=2000" in one.message
    for one in (file, folder):
        assert one.outcome == "failed" and "larger than 5000" in one.message and "PENSTOCK_LARGEST_FILE" in one.message


def test_a_file_of_the_kernel_has_no_size_and_still_an_end(tmp_path: Path) -> None:
    (ended,) = ran(
        tmp_path, script(f"ln -s /proc/self/status {PLACE}", output("result", "str")), limits=Limits(value=100)
    )
    assert ended.outcome == "failed" and "larger than 100" in ended.message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (f"ln -s / {PLACE}", "is the whole file system"),
        (f"ln -s /etc {PLACE}", "is a link to a folder"),
        (f"mkdir {PLACE}; ln -s / {PLACE}/all", "all is a link to /, which is outside of it; copy what is meant"),
        (f"mkdir {PLACE}; ln -s ../.. {PLACE}/up", "up is a link to ../.., which is outside"),
        (
            f"mkdir -p {PLACE}/in; ln -s /etc/hostname {PLACE}/in/name",
            "in/name is a link to /etc/hostname, which is outside",
        ),
    ],
)
def test_a_folder_does_not_lead_out_of_itself(tmp_path: Path, make: str, message: str) -> None:
    started = time.monotonic()
    (ended,) = ran(tmp_path, script(make, output("result", "dir")))
    assert ended.outcome == "failed" and message in ended.message, ended.message
    assert time.monotonic() - started < 10


def test_links_inside_a_folder_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a").write_text("a")
    links = {
        "near": "deep/a",
        "far": str(folder / "deep" / "a"),
        "round": "../out/deep/a",
        "loop": "loop",
        "nothing": "gone",
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "deep" / "pipe")
    blobs = Blobs(tmp_path / "blobs")
    stored = store_path(folder, blobs)
    found: Any = load_value(stored, blobs, tmp_path / "elsewhere")
    (folder / "deep" / "a").write_text("changed")
    assert [(found / name).read_text() for name in ("near", "far", "round")] == ["a", "a", "a"]
    assert sorted(path.name for path in found.rglob("*")) == ["a", "deep", "far", "loop", "near", "nothing", "round"]
    assert os.readlink(found / "far") == os.readlink(found / "round") == "deep/a"


def test_a_link_to_a_file_stands_for_the_file(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1,2\n")
    (ended,) = ran(tmp_path, script(f"ln -s {tmp_path}/data.csv {PLACE}", output("result", "file")))
    stored = ended.outputs["result"]
    assert isinstance(stored, Stored) and Blobs(tmp_path / "blobs").get(stored.digest) == b"1,2\n"
