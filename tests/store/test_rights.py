"""Who may read a home, and whose home is used: modes, owners, and a folder that a team shares. With real users of the machine."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock import LocalRunner, task, workflow
from penstock.artifacts.blobs import Blobs
from penstock.cli.main import run
from penstock.errors import StoreError
from penstock.service import stores
from penstock.settings import read
from tests.support.engines import until
from tests.support.users import ANA, BEN, TEAM, penstock_as, start_as
from tests.support.users import place as place

FLOW = """
from penstock import task, workflow

@task
def numbers(n: int) -> set:
    print("numbers up to", n)
    return set(range(n))

@task
def long(n: int) -> list[int]:
    return list(range(n * 10000))

@task
def total(numbers: set, long: list[int], more: int) -> int:
    return sum(numbers) + len(long) + more

@workflow
def flow(n: int = 4, more: int = 0):
    return total(numbers(n), long(n), more)
"""
COMMAND = """
apiVersion: penstock/v1
kind: Workflow
name: said
params: [{name: word, type: str}]
steps:
  - name: say
    script: {source: "echo ${{ params.word }}"}
"""

READER = """
import sys
from penstock.store.sql import open_store
with open_store(sys.argv[1]) as store:
    store.runs.newest()
    print("open", flush=True)
    sys.stdin.readline()
"""


def modes(home: Path) -> dict[str, int]:
    return {str(path.relative_to(home)): stat.S_IMODE(path.lstat().st_mode) for path in (home, *home.rglob("*"))}


def run_something(home: Path) -> None:
    @task
    def give(n: int) -> set[int]:
        print("a secret")
        return {n}

    @workflow
    def flow(n: int):
        return give(n)

    assert LocalRunner(home=home).run(flow, n=1).ok


def test_a_home_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        run_something(tmp_path / ".penstock")
    finally:
        os.umask(before)
    found = modes(tmp_path / ".penstock")
    inside = {path: mode for path, mode in found.items() if not path.startswith("cache/bundles/")}
    assert {path: oct(mode) for path, mode in inside.items() if mode & 0o077} == {}
    assert found["state.db"] == 0o600 and found["."] == 0o700


def test_one_that_was_open_is_closed_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / ".penstock"
    run_something(home)
    for path in (home, home / "artifacts", home / "logs"):
        path.chmod(0o755)
    (home / "state.db").chmod(0o644)
    monkeypatch.chdir(tmp_path)
    stores.open_existing(read()).close()
    found = modes(home)
    assert [found[name] for name in (".", "artifacts", "logs", "state.db")] == [0o700, 0o700, 0o700, 0o600]


def test_a_folder_of_the_user_that_is_named_as_home_keeps_its_own_mode(tmp_path: Path) -> None:
    home = tmp_path / "project"
    home.mkdir()
    home.chmod(0o755)
    run_something(home)
    found = modes(home)
    assert [found[name] for name in (".", "artifacts", "logs", "work", "state.db")] == [
        0o755,
        0o700,
        0o700,
        0o700,
        0o600,
    ]


def shared(place: Path, mode: int = 0o755) -> Path:
    """A folder of Ana's, in which others may work too."""
    folder = place / "project"
    (folder / "below").mkdir(parents=True)
    (folder / "flow.py").write_text(FLOW)
    (folder / "said.yaml").write_text(COMMAND)
    for path in (folder, folder / "below"):
        os.chown(path, ANA, TEAM)
        path.chmod(mode)
    return folder


def test_a_store_of_another_user_is_used_only_by_name(place: Path) -> None:
    folder = shared(place, 0o777)
    assert penstock_as(ANA, folder, "run", "flow.py").returncode == 0
    home = folder / ".penstock"
    for path in (home, *home.rglob("*")):  # as an attacker would leave it
        path.chmod(0o777 if path.is_dir() else 0o666)
    for words in (["ls"], ["run", "../flow.py"], ["why", "@"], ["plan", "../flow.py"], ["gc", "--yes"]):
        done = penstock_as(BEN, folder / "below", *words)
        assert done.returncode == 1 and "P649" in done.stderr and "user 61001" in done.stderr, (words, done)
    assert penstock_as(BEN, folder / "below", "ls", PENSTOCK_HOME=str(home)).returncode == 0
    (folder / "below" / ".penstock").mkdir()
    os.chown(folder / "below" / ".penstock", BEN, BEN)
    assert penstock_as(BEN, folder / "below", "run", "../flow.py").returncode == 0


def test_what_another_user_put_into_our_home_is_refused(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = place / ".penstock"
    run_something(home)
    monkeypatch.chdir(place)
    digest = next(Blobs(home / "artifacts").all())[0]
    blobs = stores.blobs_of(read())
    blobs.get(digest)
    os.chown(Path(str(blobs.local(digest))), ANA, ANA)
    for look in (lambda: blobs.get(digest), lambda: blobs.fetch(digest, tmp_path / "copy")):
        with pytest.raises(StoreError, match="P649"):
            look()
    stores.blobs_of(read(home=home)).get(digest)
    os.chown(home / "state.db", ANA, ANA)
    with pytest.raises(StoreError, match=r"P649 .*state\.db belongs to user 61001"):
        stores.open_existing(read())
    stores.open_existing(read(home=home)).close()


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o777])
def test_blobs_outside_of_a_home_are_as_open_as_their_folder(place: Path, mode: int) -> None:
    folder = place / "blobs"
    folder.mkdir()
    os.chown(folder, ANA, TEAM)
    folder.chmod(mode)
    put = "import sys; from penstock.artifacts.blobs import Blobs; print(Blobs(sys.argv[1]).put(b'the same'))"
    get = "import sys; from penstock.artifacts.blobs import Blobs; print(Blobs(sys.argv[1]).get(sys.argv[2]))"
    digest, _ = start_as(ANA, place, "-c", put, str(folder), umask=0o077).communicate()
    assert start_as(BEN, place, "-c", get, str(folder), digest.strip()).communicate()[0] == "b'the same'\n"
    again, _ = start_as(BEN, place, "-c", put, str(folder)).communicate() if mode & 0o022 else (digest, "")
    assert again == digest != ""


def test_a_detached_engine_refuses_them_too(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    (place / "flow.py").write_text(FLOW)
    assert run(["run", "flow.py"]) == 0
    for digest, *_ in list(Blobs(place / ".penstock" / "artifacts").all()):
        os.chown(str(Blobs(place / ".penstock" / "artifacts").local(digest)), ANA, ANA)
    assert run(["run", "flow.py", "-d", "-p", "more=1"]) == 0
    with stores.open_existing(read()) as store:
        ended = until("the run has ended", lambda: [one for one in store.runs.newest() if one.state == "failed"])
        assert any("P649" in str(event.data) for event in store.runs.events(ended[0].number))
        until("its engine has left", lambda: not store.peers.engines())


def test_two_users_share_a_folder_that_is_set_for_their_group(place: Path) -> None:
    umask = 0o077  # the narrowest: what is shared is so by its folder
    folder = shared(place, 0o2775)
    home = folder / ".penstock"
    home.mkdir()
    os.chown(home, ANA, TEAM)
    home.chmod(0o2770)
    named = {"PENSTOCK_HOME": str(home)}

    def both(*words: str) -> list[str]:
        said = []
        for user, env in ((ANA, {}), (BEN, named)):
            done = penstock_as(user, folder, *words, umask=umask, **env)
            assert done.returncode == 0, (user, words, done.stdout, done.stderr)
            said.append(done.stdout)
        return said

    assert "result: 40006" in both("run", "flow.py")[1]
    done = penstock_as(BEN, folder, "run", "flow.py", "-p", "more=1", umask=umask, **named)
    assert "2 of them reused" in done.stderr
    both("run", "flow.py", "--fresh")  # each writes blobs that the other has written already
    assert all(text == "numbers up to 4\n" for text in both("logs", "flow-1"))
    reader = start_as(BEN, folder, "-c", READER, str(home), umask=umask)  # the files beside the database are now Ben's
    assert reader.stdout is not None and reader.stdout.readline() == "open\n"
    both("run", "said.yaml", "-p", "word=hello")
    reader.communicate("\n", timeout=10)
    assert [len(text.splitlines()) for text in both("ls")] == [8, 8]
    assert {mode & 0o007 for mode in modes(home).values()} == {0}
