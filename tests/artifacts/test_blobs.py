"""Bytes by their digest: in a folder, and wherever fsspec reaches."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from penstock.artifacts.blobs import Blobs, digest_of
from penstock.errors import UserError


@pytest.fixture(params=["folder", "file", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    roots = {"folder": str(tmp_path / "b"), "file": f"file://{tmp_path}/b", "memory": f"memory://{tmp_path.name}"}
    return Blobs(roots[request.param])


def test_what_is_put_can_be_got_under_its_digest(blobs: Blobs) -> None:
    digest = blobs.put(b"hello")
    assert digest == "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert blobs.put(b"hello") == digest
    assert blobs.get(digest) == b"hello" and blobs.has(digest)
    assert [(found, size) for found, size, _ in blobs.all()] == [(digest, 5)]


def test_a_file_is_put_and_fetched(blobs: Blobs, tmp_path: Path) -> None:
    source, target = tmp_path / "in.bin", tmp_path / "deep" / "out.bin"
    source.write_bytes(os.urandom(3_000_000))
    digest, size = blobs.put_file(source)
    assert (digest, size) == (digest_of(source.read_bytes()), 3_000_000)
    blobs.fetch(digest, target)
    assert target.read_bytes() == source.read_bytes()


def test_who_writes_into_a_fetched_copy_does_not_change_the_blob(blobs: Blobs, tmp_path: Path) -> None:
    digest = blobs.put(b"precious")
    blobs.fetch(digest, tmp_path / "copy")
    with open(tmp_path / "copy", "r+b") as file:
        file.write(b"x")
    assert blobs.get(digest) == b"precious"


def test_what_is_deleted_is_gone_and_missed_in_words(blobs: Blobs, tmp_path: Path) -> None:
    digest = blobs.put(b"hello")
    blobs.delete(digest)
    blobs.delete(digest)
    assert not blobs.has(digest) and list(blobs.all()) == []
    for read in (lambda: blobs.get(digest), lambda: blobs.fetch(digest, tmp_path / "x")):
        with pytest.raises(UserError, match="is not there") as error:
            read()
        assert error.value.code == "P707"


def test_a_damaged_blob_is_noticed(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    digest = blobs.put(b"hello")
    place = blobs.local(digest)
    assert place is not None and place.stat().st_mode & 0o222 == 0
    place.chmod(0o644)
    place.write_bytes(b"jello")
    with pytest.raises(UserError, match="has been changed"):
        blobs.get(digest)
    with pytest.raises(UserError, match="has been changed"):
        blobs.fetch(digest, tmp_path / "copy")


def test_many_writers_of_the_same_bytes_do_no_harm(tmp_path: Path) -> None:
    data = os.urandom(500_000)
    (tmp_path / "file").write_bytes(data)

    def write(number: int) -> None:
        blobs = Blobs(tmp_path / "b")
        for _ in range(20):
            assert blobs.put(data) == digest_of(data)
            assert blobs.put_file(tmp_path / "file")[0] == digest_of(data)
            assert blobs.get(digest_of(data)) == data

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(Blobs(tmp_path / "b").all())) == 1
    assert not [path for path in (tmp_path / "b").rglob("*") if path.is_file() and len(path.name) != 62]


def test_a_place_that_nobody_knows_is_refused_with_what_to_install() -> None:
    with pytest.raises(UserError, match="install the fsspec driver for nowhere://") as error:
        Blobs("nowhere://bucket")
    assert error.value.code == "P705"


def test_what_is_no_digest_reaches_no_file(tmp_path: Path) -> None:
    for bad in ("sha256:../../../etc/passwd", "x", "", "sha256:" + "/" * 64):
        with pytest.raises(UserError):
            Blobs(tmp_path).get(bad)


@pytest.mark.parametrize("moves", [True, False])
def test_behind_a_url_one_that_was_found_damaged_is_written_anew(
    moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the store cannot rename."""
    blobs = Blobs(f"file://{tmp_path}/b")
    if not moves:

        def refuse(*words: str, **options: str) -> None:
            raise PermissionError("no")

        for name in ("mv", "rm_file"):
            monkeypatch.setattr(blobs._remote, name, refuse)
    (tmp_path / "hello").write_bytes(b"hello")
    writers = (lambda: blobs.put(b"hello"), lambda: blobs.put_file(tmp_path / "hello")[0])
    for write in writers:
        digest = write()
        (tmp_path / "b" / digest[7:9] / digest[9:]).write_bytes(b"jello")
        with pytest.raises(UserError, match="is damaged"):
            blobs.get(digest)
        assert write() == digest and blobs.get(digest) == b"hello"


@pytest.mark.parametrize("root", ["file", "memory"])
def test_behind_a_url_one_that_nobody_has_read_is_written_anew_too(root: str, tmp_path: Path) -> None:
    """As `--fresh` does in a new process: nothing has told it that what is there is damaged."""
    url = f"file://{tmp_path}/b" if root == "file" else f"memory://{tmp_path.name}"
    (tmp_path / "hello").write_bytes(b"hello")
    writers = (lambda blobs: blobs.put(b"hello"), lambda blobs: blobs.put_file(tmp_path / "hello")[0])
    for write in writers:
        first = Blobs(url)
        digest = write(first)
        first._remote.pipe_file(first._place(digest), b"jello")
        blobs = Blobs(url)
        assert write(blobs) == digest and blobs.get(digest) == b"hello"
        assert Blobs(url).get(digest) == b"hello"


def test_a_place_behind_a_url_that_does_not_work_is_one_error_with_what_to_do(tmp_path: Path) -> None:
    """Whatever the driver raises. /proc takes no folders, not even from root."""
    (tmp_path / "in").write_bytes(b"hello")
    for write in (lambda blobs: blobs.put(b"hello"), lambda blobs: blobs.put_file(tmp_path / "in")):
        with pytest.raises(UserError, match="the artifact store file:///proc/nowhere does not work") as error:
            write(Blobs("file:///proc/nowhere"))
        assert error.value.code == "P910" and error.value.problems[0].fix


def test_what_a_driver_finds_damaged_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 keeps checksums, and its driver compares them."""

    class FlexibleChecksumError(Exception):
        pass

    def refuse(*words: object) -> None:
        raise FlexibleChecksumError("Expected checksum A did not match calculated checksum B")

    blobs = Blobs(f"file://{tmp_path}/b")
    digest = blobs.put(b"hello")
    monkeypatch.setattr(blobs._remote._system, "cat_file", refuse)
    with pytest.raises(UserError) as error:
        blobs.get(digest)
    assert error.value.code == "P719" and not blobs.has(digest)
