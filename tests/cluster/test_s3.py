"""The artifact store behind s3://, on a real S3 server: every test of blobs there is, and whole runs, here and in pods on the real node.

All but the last need no Kubernetes. They are here because the server is built with Go (`make test-cluster`, or `python -m testbed build`)."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

from penstock.artifacts.blobs import Blobs, digest_of
from penstock.errors import UserError
from testbed import binaries
from testbed.components.node import reach
from testbed.images import host_python
from testbed.instance import Testbed
from testbed.s3 import PROGRAM, S3
from tests.artifacts.test_blobs import (  # noqa: F401  # the same tests, on this store
    test_a_file_is_put_and_fetched,
    test_what_is_deleted_is_gone_and_missed_in_words,
    test_what_is_put_can_be_got_under_its_digest,
    test_who_writes_into_a_fetched_copy_does_not_change_the_blob,
)
from tests.cluster.test_backend_kubernetes import place_on

MEBIBYTE = 2**20
FLOW = """
from pathlib import Path
from penstock import task, workflow

@task
def big(mebibytes: int) -> Path:
    path = Path("big.bin")
    with open(path, "wb") as file:
        for number in range(mebibytes):
            file.write(bytes([number % 251]) * 2**20)
    return path

@task
def digest(file: Path) -> str:
    import hashlib
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()

@task
def long_text(n: int) -> str:
    return "x" * n

@task
def numbers(n: int) -> set[int]:
    return set(range(n))

@task
def together(sum_: str, text: str, many: set[int]) -> dict[str, int | str]:
    return {"digest": sum_, "text": len(text), "many": len(many)}

@workflow
def everything(mebibytes: int = 100):
    return together(digest(big(mebibytes)), long_text(300_000), numbers(50))
"""
COMMANDS = """
apiVersion: penstock/v1
kind: Workflow
name: commands
steps:
  - name: make
    script: {source: "mkdir -p /out/sub; seq 1000 > /out/sub/table.csv; echo 7 > $PENSTOCK_OUTPUTS/size"}
    outputs: [{name: folder, type: dir, path: /out}, {name: size, type: int}]
  - name: last
    script: {source: "tail -1 /in/sub/table.csv"}
    inputs: [{name: folder, type: dir, value: "${{ steps.make.outputs.folder }}", path: /in}]
    outputs: [{name: line, type: str, path: /dev/stdout}]
outputs:
  - {name: line, value: "${{ steps.last.outputs.line }}"}
  - {name: size, value: "${{ steps.make.outputs.size }}"}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    if time.time() + 90 > float(os.environ.get("PENSTOCK_CLUSTER_DEADLINE", "inf")):
        pytest.skip("s3: the time for the tests is spent")
    if binaries.missing([PROGRAM]):
        pytest.skip(f"s3: not built: {PROGRAM}")
    with S3(tmp_path_factory.mktemp("s3")) as one:
        yield one


@pytest.fixture
def store(server: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a new bucket; this process may use it."""
    bucket = f"b{secrets.token_hex(6)}"
    server.make_bucket(bucket)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    _forget_sessions()
    yield f"s3://{bucket}/penstock"
    _forget_sessions()


def _forget_sessions() -> None:
    """s3fs keeps its sessions, with the credentials that they began with."""
    fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.fixture
def blobs(store: str) -> Blobs:
    return Blobs(store)


def _place(server: S3, store: str, digest: str) -> Path:
    return server.folder / "data" / store.removeprefix("s3://") / digest[7:9] / digest[9:]


def test_what_somebody_else_wrote_or_deleted_is_seen_at_once(store: str) -> None:
    """Also after this process has listed the place: s3fs remembers listings."""
    data, digest = b"by another", digest_of(b"by another")
    mine = Blobs(store)
    first = mine.put(b"mine")
    assert not mine.has(digest)
    remembering = fsspec.filesystem("s3")
    assert len(list(mine.all())) == 1
    assert remembering.ls(store) and not remembering.find(f"{store}/{digest[7:9]}")
    code = "import sys; from penstock.artifacts.blobs import Blobs; b = Blobs(sys.argv[1]); b.put(b'by another'); b.delete(sys.argv[2])"
    remembering.ls(f"{store}/{first[7:9]}")
    subprocess.run([sys.executable, "-c", code, store, first], check=True)
    assert mine.has(digest) and mine.has(digest, len(data)) and not mine.has(digest, 1)
    assert not mine.has(first) and not mine.has(first, 4)
    assert mine.get(digest) == data
    assert [found for found, _, _ in mine.all()] == [digest]


def test_a_blob_that_is_there_is_not_written_again(server: S3, store: str, tmp_path: Path) -> None:
    digest = Blobs(store).put(b"once")
    place = _place(server, store, digest)
    before = place.stat().st_mtime_ns
    (tmp_path / "once").write_bytes(b"once")
    assert Blobs(store).put(b"once") == digest == Blobs(store).put_file(tmp_path / "once")[0]
    assert place.stat().st_mtime_ns == before


def test_a_damaged_blob_is_put_aside_and_written_anew(server: S3, store: str, tmp_path: Path) -> None:
    blobs = Blobs(store)
    digest = blobs.put(b"hello")
    _place(server, store, digest).write_bytes(b"jello")
    with pytest.raises(UserError) as error:
        Blobs(store).fetch(digest, tmp_path / "copy")
    assert error.value.code == "P719" and not (tmp_path / "copy").exists()
    assert Path(f"{_place(server, store, digest)}.damaged").read_bytes() == b"jello"
    assert not blobs.has(digest)
    assert Blobs(store).put(b"hello") == digest and blobs.get(digest) == b"hello"


def test_a_file_of_300_mib_goes_up_and_comes_down(store: str, tmp_path: Path) -> None:
    """In several parts: one upload of S3 takes 50 MiB here."""
    source = tmp_path / "big"
    with open(source, "wb") as file:
        for _ in range(100):
            file.write(os.urandom(MEBIBYTE) * 3)
    digest, size = Blobs(store).put_file(source)
    with open(source, "rb") as file:
        assert digest == f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" and size == 300 * MEBIBYTE
    Blobs(store).fetch(digest, tmp_path / "copy")
    with open(tmp_path / "copy", "rb") as file:
        assert digest == f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


@pytest.mark.parametrize("name, value", [("AWS_SECRET_ACCESS_KEY", "wrong"), ("AWS_ACCESS_KEY_ID", "nobody")])
def test_wrong_credentials_are_said(
    name: str, value: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = Blobs(store).put(b"hello")
    monkeypatch.setenv(name, value)
    _forget_sessions()
    blobs = Blobs(store)
    for work in (
        lambda: blobs.put(b"hello"),
        lambda: blobs.get(digest),
        lambda: blobs.has(digest),
        lambda: blobs.fetch(digest, tmp_path / "x"),
        lambda: list(blobs.all()),
        lambda: blobs.delete(digest),
    ):
        with pytest.raises(UserError, match="does not work") as error:
            work()
        assert error.value.code == "P910" and "AWS_ACCESS_KEY_ID" in str(error.value.problems[0].fix)


def test_a_bucket_that_is_not_there_is_not_made(server: S3, store: str) -> None:
    missing = store.replace("s3://b", "s3://mistyped-b")
    with pytest.raises(UserError) as error:
        Blobs(missing).put(b"hello")
    assert error.value.code == "P910" and "create the bucket" in str(error.value.problems[0].fix)
    assert not (server.folder / "data" / missing.removeprefix("s3://").split("/")[0]).exists()


def _penstock(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *words], cwd=folder, env=os.environ | env, capture_output=True, text=True
    )


def test_a_run_passes_everything_through_the_bucket(store: str, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "commands.yaml").write_text(COMMANDS)
    done = _penstock(tmp_path, "run", "flow.py", "-o", "json", PENSTOCK_ARTIFACTS=store)
    assert done.returncode == 0, done.stderr
    hasher = hashlib.sha256()
    for number in range(100):
        hasher.update(bytes([number % 251]) * MEBIBYTE)
    expected = {"digest": hasher.hexdigest(), "text": 300_000, "many": 50}
    assert json.loads(done.stdout)["outputs"]["result"] == expected
    assert not (tmp_path / ".penstock" / "artifacts").exists()
    sizes = sorted(size for _, size, _ in Blobs(store).all())
    assert sizes[-1] == 100 * MEBIBYTE and sizes[-2] >= 300_000
    again = _penstock(tmp_path, "run", "flow.py", "-o", "json", PENSTOCK_ARTIFACTS=store)
    assert json.loads(again.stdout)["tasks"] == {"reused": 5}
    done = _penstock(tmp_path, "run", "commands.yaml", "-o", "json", PENSTOCK_ARTIFACTS=store)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"] == {"line": "1000", "size": 7}
    for name in ("doctor", "gc --shared --older 0s --keep 0 --yes"):
        done = _penstock(tmp_path, *name.split(), PENSTOCK_ARTIFACTS=store)
        assert done.returncode == 0, (name, done.stdout, done.stderr)


@pytest.mark.parametrize("what", ["credentials", "endpoint", "bucket"])
def test_a_run_that_cannot_use_the_bucket_says_so_without_a_traceback(
    what: str, server: S3, store: str, tmp_path: Path
) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    env = {
        "credentials": {"AWS_SECRET_ACCESS_KEY": "wrong-and-hidden"},
        "endpoint": {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        "bucket": {},
    }[what]
    place = store if what != "bucket" else "s3://no-such-bucket/x"
    began = time.monotonic()
    done = _penstock(tmp_path, "run", "flow.py", PENSTOCK_ARTIFACTS=place, **env)
    assert time.monotonic() - began < 60
    assert done.returncode != 0 and "P910" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr + done.stdout and "wrong-and-hidden" not in done.stderr


def test_a_store_that_goes_away_in_the_middle_fails_the_task_and_retry_goes_on(
    server: S3, store: str, tmp_path: Path
) -> None:
    """A kill -9 of the server, while a task computes what it will store."""
    (tmp_path / "flow.py").write_text(
        "from pathlib import Path\nimport time\nfrom penstock import task, workflow\n\n"
        "@task\ndef slow(place: str) -> str:\n    Path(place).touch()\n    while not Path(place + '.go').exists():\n        time.sleep(0.05)\n"
        "    return 'x' * 200_000\n\n@task\ndef length(text: str) -> int:\n    return len(text)\n\n"
        "@workflow\ndef flow(place: str):\n    return length(slow(place))\n"
    )
    mark = tmp_path / "mark"
    words = [sys.executable, "-m", "penstock", "run", "flow.py", "-p", f"place={mark}"]
    env = os.environ | {"PENSTOCK_ARTIFACTS": store}
    run = subprocess.Popen(words, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60
        while not mark.exists():
            assert run.poll() is None and time.monotonic() < until
            time.sleep(0.05)
        server.stop()
        Path(f"{mark}.go").touch()
        _, said = run.communicate(timeout=120)
    finally:
        run.kill()
        run.wait()
        if not server._answers():
            server.start()
    assert run.returncode == 3 and "P910" in said and "Traceback" not in said, said
    done = _penstock(tmp_path, "retry", "@", "-o", "json", PENSTOCK_ARTIFACTS=store)
    assert done.returncode == 0 and json.loads(done.stdout)["outputs"] == {"result": 200_000}, done.stderr


def test_pods_pass_everything_through_the_bucket(
    server: S3, store: str, testbed: Callable[..., Testbed], tmp_path: Path
) -> None:
    """Functions with a file of 100 MB, and commands with a folder, in pods that share nothing but the bucket."""
    bed = testbed("kwok", "node")
    tmp_path.chmod(0o755)
    python = host_python(Path(fsspec.__file__).parents[1])
    inside = server.environment | {"AWS_ENDPOINT_URL": f"http://{reach(bed, server.port)}"}
    env = [*(one for one in python["env"] if one["value"])]
    env += [{"name": name, "value": value} for name, value in inside.items()]
    containers = [{"name": name, "volumeMounts": python["volumeMounts"], "env": env} for name in ("main", "helper")]
    pod = {"spec": {"nodeSelector": {"type": "real"}, "volumes": python["volumes"], "containers": containers}}
    place = place_on(bed, tmp_path, real=True)
    place.write("pods.yaml", json.dumps(pod))
    place.write("flow.py", FLOW)
    place.write("commands.yaml", COMMANDS.replace("source:", "image: 'busybox:testbed', source:"))
    url = {"PENSTOCK_ARTIFACTS": store, "PENSTOCK_KUBERNETES_VOLUME": ""}
    here = place.result("flow.py", PENSTOCK_HOME=str(tmp_path / "here"))
    there = place.result("flow.py", "--on", "kubernetes", **url)
    assert there["outputs"] == here["outputs"] and there["state"] == "succeeded"
    found = place.result("commands.yaml", "--on", "kubernetes", **url)
    assert found["outputs"] == {"line": "1000", "size": 7}
    place.nothing_is_left()
