"""Blobs that were changed, cut off or half written: nobody reads them, and the next writer heals them."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.artifacts import verified
from penstock.artifacts.blobs import Blobs
from penstock.errors import UserError

DATA = bytes(range(256)) * 4096


def damage(place: Path, how: str) -> None:
    place.chmod(0o644)
    before = place.stat()
    with open(place, "r+b") as file:
        if how == "cut":
            file.truncate(before.st_size - 1)
        else:
            file.seek(before.st_size // 2)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))
    if how == "flipped in secret":
        os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))


def place_of(blobs: Blobs, digest: str) -> Path:
    found = blobs.local(digest)
    assert found is not None
    return found


@pytest.fixture(params=["always hashed", "noted"])
def large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same blob as a small one, and as one that has a note."""
    if request.param == "noted":
        monkeypatch.setattr(verified, "LARGE", 1000)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("how", ["flipped", "flipped in secret", "cut"])
@pytest.mark.parametrize("read", ["get", "fetch"])
def test_whoever_reads_a_damaged_blob_is_told(tmp_path: Path, how: str, read: str) -> None:
    blobs = Blobs(tmp_path / "b")
    digest = blobs.put(DATA)
    assert blobs.get(digest) == DATA
    damage(place_of(blobs, digest), how)
    reads: dict[str, Callable[[], object]] = {
        "get": lambda: blobs.get(digest),
        "fetch": lambda: blobs.fetch(digest, tmp_path / "copy"),
    }
    for _ in range(2):  # who comes later hears the same
        with pytest.raises(UserError, match="is damaged.*run it again") as error:
            reads[read]()
        assert error.value.code == "P719" and digest in str(error.value)
    assert not (tmp_path / "copy").exists() and not blobs.has(digest)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("how", ["flipped", "flipped in secret", "cut"])
@pytest.mark.parametrize("first", ["read", "not read"])
def test_the_next_put_heals(tmp_path: Path, how: str, first: str) -> None:
    blobs = Blobs(tmp_path / "b")
    (tmp_path / "file").write_bytes(DATA)
    for put in (lambda: blobs.put(DATA), lambda: blobs.put_file(tmp_path / "file")[0]):
        digest = put()
        damage(place_of(blobs, digest), how)
        if first == "read":
            with pytest.raises(UserError):
                blobs.get(digest)
        assert put() == digest
        assert Blobs(tmp_path / "b").get(digest) == DATA
        blobs.fetch(digest, tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == DATA
    assert not list((tmp_path / "b").rglob("*.damaged"))
    blobs.delete(digest)
    assert not [path for path in (tmp_path / "b").rglob("*") if path.is_file()]


def test_a_noted_blob_is_not_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "LARGE", 1000)
    blobs = Blobs(tmp_path / "b")
    digest = blobs.put(DATA)

    def refuse(*_: object) -> None:
        raise AssertionError("hashed")

    monkeypatch.setattr(hashlib, "sha256", refuse)
    monkeypatch.setattr(hashlib, "file_digest", refuse)
    assert Blobs(tmp_path / "b").get(digest) == DATA
    blobs.fetch(digest, tmp_path / "copy")
    note = Path(f"{place_of(blobs, digest)}.ok")
    for spoil in (
        lambda: os.utime(note, (1, time.time() - 2 * 86400)),  # a day is over
        lambda: note.write_text("something else"),
        note.unlink,
        lambda: os.mkfifo(note),
    ):
        spoil()
        with pytest.raises(AssertionError, match="hashed"):
            blobs.get(digest)


def test_a_note_is_made_by_the_first_who_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = Blobs(tmp_path / "b")
    digest = blobs.put(DATA)  # by a version that made no notes
    place = place_of(blobs, digest)
    note = Path(f"{place}.ok")
    monkeypatch.setattr(verified, "LARGE", 1000)
    assert blobs.get(digest) == DATA and not note.exists()  # so young that a change might leave the same times
    monkeypatch.setattr(verified, "_SETTLED", 0)
    assert blobs.get(digest) == DATA and note.exists()
    note.unlink()
    blobs.fetch(digest, tmp_path / "copy")
    assert note.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_the_note_of_another_user_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "LARGE", 1000)
    blobs = Blobs(tmp_path / "b")
    digest = blobs.put(DATA)
    place = str(place_of(blobs, digest))
    assert verified.is_noted(place, digest, os.stat(place))
    os.chown(f"{place}.ok", 12345, 12345)
    assert not verified.is_noted(place, digest, os.stat(place))


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder"])
def test_something_else_in_the_place_of_a_blob_is_damage(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Blobs(tmp_path / "b")
    digest = blobs.put(DATA)
    place = place_of(blobs, digest)
    place.unlink()
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            monkeypatch.chdir(place.parent)  # a socket has a short name
            server.bind(place.name)
    else:
        place.mkdir()
    with pytest.raises(UserError) as error:
        blobs.get(digest)
    assert error.value.code == "P719"
    assert blobs.put(DATA) == digest and blobs.get(digest) == DATA


def test_a_blob_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        steps.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        fsync(handle)

    def renamed(source: str, to: str) -> None:
        steps.append("name")
        replace(source, to)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    (tmp_path / "file").write_bytes(b"of a file")
    blobs = Blobs(tmp_path / "b")
    for put in (lambda: blobs.put(DATA), lambda: blobs.put_file(tmp_path / "file")):
        steps.clear()
        put()
        assert steps[:3] == ["file", "name", "folder"]
    steps.clear()
    blobs.put(DATA)
    assert steps == []  # it is there
    Blobs(tmp_path / "b").put(DATA)
    assert steps == ["folder"]  # who wrote it may have died before that


def test_who_is_killed_while_writing_leaves_no_blob(tmp_path: Path) -> None:
    """Killed at every possible moment: what has the name of a blob is the blob."""
    code = (
        "import os, sys\n"
        "from penstock.artifacts.blobs import Blobs\n"
        "blobs = Blobs(sys.argv[1])\n"
        "print(flush=True)\n"
        "for number in range(100000):\n"
        "    blobs.put(str(number % 50).encode() * 300_000)\n"
        "    os.unlink(blobs.local(blobs.put(b'x')))\n"
    )
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "b")], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        time.sleep(0.02)  # some of its writing
        process.send_signal(signal.SIGKILL)
        process.wait()
    blobs = Blobs(tmp_path / "b")
    for digest, _, _ in blobs.all():
        blobs.get(digest)


@pytest.mark.slow
def test_a_blob_of_more_than_64_mib(tmp_path: Path) -> None:
    """The real size, with nothing changed."""
    source = tmp_path / "large"
    with open(source, "wb") as file:
        for number in range(65):
            file.write(bytes([number]) * 1024 * 1024)
    blobs = Blobs(tmp_path / "b")
    digest, size = blobs.put_file(source)
    assert size > verified.LARGE == 64 * 1024 * 1024 and Path(f"{place_of(blobs, digest)}.ok").exists()
    blobs.fetch(digest, tmp_path / "copy")
    for how in ("flipped", "flipped in secret", "cut"):
        damage(place_of(blobs, digest), how)
        assert blobs.has(digest, size) == (how != "cut")
        with pytest.raises(UserError, match="is damaged"):
            blobs.get(digest) if how == "flipped" else blobs.fetch(digest, tmp_path / "other")
        assert blobs.put_file(source) == (digest, size)
        assert hashlib.sha256(blobs.get(digest)).hexdigest() == digest.removeprefix("sha256:")
