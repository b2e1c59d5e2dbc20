"""The program in the pods: what it fetches, calls and stores, and how it says how it ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import dumps, loads, store_path
from penstock.backends.kubernetes import boot, in_pod
from penstock.graph.stored import Stored


class Left(Exception):
    pass


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "store")


def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blobs: Blobs, verb: str, given: Any
) -> tuple[int, dict[str, Any]]:
    """Exit code, and what it says."""
    inside, said = tmp_path / "inside", tmp_path / "said"
    inside.mkdir(exist_ok=True)
    said.write_text("{}")
    monkeypatch.setattr(in_pod, "INSIDE", inside)
    monkeypatch.setattr(in_pod, "SAID", str(said))
    monkeypatch.setattr(in_pod.signal, "signal", lambda *_: None)

    def leave(code: int, message: str = "") -> None:
        raise Left(code)

    monkeypatch.setattr(in_pod, "_leave", leave)
    with pytest.raises(Left) as left:
        in_pod.main(blobs.root, verb, blobs.put(dumps(given).encode()))
    return left.value.args[0], json.loads(said.read_text())


def test_inputs_are_laid_where_the_pod_mounts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blobs: Blobs
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a").write_text("in a folder")
    given = [["inputs/0/d", "d", "dir", store_path(folder, blobs)], ["inputs/1/t", "t", "str", "long text"]]
    assert run(tmp_path, monkeypatch, blobs, "fetch", given) == (0, {})
    inside = tmp_path / "inside" / "inputs"
    assert (inside / "0/d/a").read_text() == "in a folder" and (inside / "1/t").read_text() == "long text"
    assert (inside / "1/t").stat().st_mode & 0o666 == 0o666  # whoever the command runs as


def put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blobs: Blobs, *outputs: list[str]
) -> tuple[int, dict[str, Any]]:
    given = {"outputs": list(outputs), "loosely": False, "limits": [1000, 100_000]}
    return run(tmp_path, monkeypatch, blobs, "put", given)


def test_outputs_are_stored_as_their_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blobs: Blobs) -> None:
    place = tmp_path / "inside" / "outputs"
    place.mkdir(parents=True)
    (place / "n").write_text("5\n")
    (place / "f").write_bytes(b"\0\1")
    code, said = put(
        tmp_path,
        monkeypatch,
        blobs,
        ["n", "int", "outputs/n", "n"],
        ["f", "file", "outputs/f", "f"],
        ["no", "optional[int]", "outputs/no", "no"],
    )
    found = loads(blobs.get(said["result"]).decode())
    assert code == 0 and found["n"] == 5 and found["no"] is None
    assert isinstance(found["f"], Stored) and blobs.get(found["f"].digest) == b"\0\1"


@pytest.mark.parametrize(
    ("text", "words"), [(None, "was not written"), ("five", "which is not int"), ("1" * 2000, "PENSTOCK_LARGEST_VALUE")]
)
def test_an_output_that_is_wrong_is_a_failure_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blobs: Blobs, text: str | None, words: str
) -> None:
    place = tmp_path / "inside" / "outputs"
    place.mkdir(parents=True)
    if text is not None:
        (place / "n").write_text(text)
    code, said = put(tmp_path, monkeypatch, blobs, ["n", "int", "outputs/n", "$PENSTOCK_OUTPUTS/n"])
    assert code == 1 and words in said["failed"]


def test_a_link_out_of_the_pods_folder_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blobs: Blobs
) -> None:
    place = tmp_path / "inside" / "outputs"
    place.mkdir(parents=True)
    os.symlink("/etc/hostname", place / "f")
    code, said = put(tmp_path, monkeypatch, blobs, ["f", "file", "outputs/f", "f"])
    assert code == 1 and "link" in said["failed"]


def test_a_store_that_has_lost_a_blob_is_an_error_and_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blobs: Blobs
) -> None:
    gone = Stored("file", "sha256:" + "0" * 64, 1, "x")
    code, said = run(tmp_path, monkeypatch, blobs, "fetch", [["inputs/0/x", "x", "file", gone]])
    assert code == 1 and "errored" in said


def booted(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The lines as a pod runs them: a bare Python, without Penstock."""
    text = boot.BOOT.replace("/tmp/penstock", str(tmp_path / "inside"))
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", text, *words],
        capture_output=True,
        text=True,
        env={},
        cwd=tmp_path,
        timeout=60,
    )


def test_the_program_comes_from_the_store(tmp_path: Path, blobs: Blobs) -> None:
    library = blobs.put(boot.library())
    done = booted(tmp_path, blobs.root, library, "put", "sha256:" + "0" * 64)
    assert (done.returncode == 1 and "0000" in done.stderr) or "deleted" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_store_that_cannot_be_read_is_one_sentence(tmp_path: Path, blobs: Blobs) -> None:
    done = booted(tmp_path, blobs.root, "sha256:" + "1" * 64, "put", "sha256:" + "0" * 64)
    assert (
        done.returncode == 1
        and done.stderr.startswith("penstock: the artifact store")
        and len(done.stderr.splitlines()) == 1
    )
    done = booted(tmp_path, "memory://bucket", "sha256:" + "1" * 64, "put", "sha256:" + "0" * 64)
    assert "needs the Python package fsspec" in done.stderr
