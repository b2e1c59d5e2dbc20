"""A damaged blob in a run: told with its maker and the fix, never computed with, healed by the next run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.blobs import Blobs
from tests.artifacts.test_damage import damage

Run = Callable[..., Any]
FLOW = """
from pathlib import Path
from penstock import task, workflow

@task
def make(size: int) -> Path:
    out = Path("made.bin")
    with open(out, "wb") as file:
        for number in range(size // 65536):
            file.write(bytes([number % 251]) * 65536)
    return out

@task
def total(table: Path, salt: int) -> int:
    with open(table, "rb") as file:
        return sum(sum(piece) for piece in iter(lambda: file.read(1 << 20), b"")) + salt

@workflow
def flow(size: int = SIZE, salt: int = 0):
    return total(make(size), salt)
"""
SIZES = [131072, pytest.param(66 * 1024 * 1024, marks=pytest.mark.slow)]


def result(penstock: Run, *options: str) -> int:
    done = penstock("run", "flow.py", "-q", *options)
    assert done.code == 0, done
    return int(json.loads(penstock("show", "@", "-o", "json").out)["outputs"]["result"])


def only_blob(tmp_path: Path, size: int) -> Path:
    blobs = Blobs(tmp_path / ".penstock" / "artifacts")
    (digest,) = [digest for digest, found, _ in blobs.all() if found == size]
    place = blobs.local(digest)
    assert place is not None
    return place


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("how", ["flipped", "flipped in secret"])
def test_a_flipped_byte_is_told_and_healed(penstock: Run, tmp_path: Path, size: int, how: str) -> None:
    (tmp_path / "flow.py").write_text(FLOW.replace("SIZE", str(size)))
    expected = result(penstock)
    place = only_blob(tmp_path, size)
    damage(place, how)
    failed = penstock("run", "flow.py", "-p", "salt=1")
    assert failed.code != 0
    digest = f"sha256:{place.parent.name}{place.name}"
    told = " ".join((failed.out + failed.err).split())
    assert (
        f"could not be run: P719 the stored value {digest} is damaged, made by task make" in told
        and "run it again" in told
    )
    assert "penstock logs" in told and "penstock retry" not in told
    assert result(penstock, "-p", "salt=1") == expected + 1
    damage(only_blob(tmp_path, size), how)
    assert result(penstock, "--fresh") == expected
    assert result(penstock, "-p", "salt=2") == expected + 2


@pytest.mark.parametrize("size", SIZES)
def test_one_that_was_cut_off_is_made_again(penstock: Run, tmp_path: Path, size: int) -> None:
    (tmp_path / "flow.py").write_text(FLOW.replace("SIZE", str(size)))
    expected = result(penstock)
    damage(only_blob(tmp_path, size), "cut")
    assert result(penstock, "-p", "salt=1") == expected + 1


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/dev/zero", "only regular files and folders are taken"),
        ("pipe", "only regular files and folders are taken"),
        ("folder", "folder/pipe is a named pipe; only regular files and folders are taken"),
        ("/proc/self/mem", "/proc/self/mem cannot be read"),
    ],
)
def test_a_parameter_is_a_file(penstock: Run, tmp_path: Path, place: str, why: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "pipe")
    (tmp_path / "flow.py").write_text(
        FLOW.replace("SIZE", "1") + "\n@workflow\ndef other(table: Path):\n    return total(table, 0)\n"
    )
    refused = penstock("run", "flow.py:other", "-p", f"table={place}")
    assert refused.code == 2 and "P425" in refused.err and why in refused.err
    assert "P485" in penstock("run", "flow.py:other", "--params", "/dev/zero").err, (
        "of a file of parameters not more than can be"
    )


def test_a_limit_is_a_size(penstock: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flow.yaml").write_text(
        "apiVersion: penstock/v1\nkind: Workflow\nname: f\nsteps:\n- name: long\n  script: {source: 'seq 1000'}\n"
        "  outputs: [{name: text, type: str, path: /dev/stdout}]\n"
    )
    for wrong in ("lots", "0", "-1", "12Q"):
        monkeypatch.setenv("PENSTOCK_LARGEST_VALUE", wrong)
        refused = penstock("run", "flow.yaml")
        assert refused.code == 2 and "P424" in refused.err and wrong in refused.err
    monkeypatch.setenv("PENSTOCK_LARGEST_VALUE", "1Ki")
    failed = penstock("run", "flow.yaml")
    assert failed.code == 3 and "is larger than 1Ki, the most that is taken" in failed.out + failed.err
    monkeypatch.setenv("PENSTOCK_LARGEST_VALUE", "4Ki")
    assert penstock("run", "flow.yaml").code == 0
