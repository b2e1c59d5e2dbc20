"""The password of a store's URL: in no message, record, screen or argument, and not with the tasks. And a server that is restarted."""

from __future__ import annotations

import io
import logging
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.backends.environment import for_tasks
from penstock.cli.main import run
from penstock.errors import StoreError
from penstock.service import stores
from penstock.settings import read
from penstock.store.sql import open_store
from penstock.urls import split_password, without_password
from tests.support.engines import rows
from tests.support.postgres import Server, binaries

PASSWORD = "s3cret-word"
FLOW = """
import os
from penstock import task, workflow

@task
def seen() -> list[str]:
    return [name for name, value in os.environ.items() if "s3cret" in value]

@workflow
def flow():
    return seen()
"""
COMMAND = """
apiVersion: penstock/v1
kind: Workflow
name: printed
steps:
  - name: all
    script: {source: "env; exit 1"}
"""
NAMES = st.text("abcdefgh", min_size=1, max_size=8)


@given(NAMES, st.text(min_size=1, max_size=20), NAMES, st.booleans())
def test_no_password_is_left_in_a_url(user: str, password: str, host: str, in_query: bool) -> None:
    secret = quote(f"#{password}#", safe="")
    url = f"postgresql://{user}:{secret}@{host}:5432/db?application_name=x"
    if in_query:
        url = f"postgresql://{user}@{host}:5432/db?password={secret}&application_name=x"
    assert split_password(url) == (f"postgresql://{user}@{host}:5432/db?application_name=x", (secret,))
    assert without_password(without_password(url)) == without_password(url)


@given(NAMES, st.text("abc@:/?&=%", min_size=1, max_size=12), NAMES)
def test_nor_one_that_is_not_written_as_it_should_be(user: str, password: str, host: str) -> None:
    assert "Zx" not in without_password(f"postgresql://{user}:Zx{password}Zx@{host}/db")


@pytest.mark.parametrize(
    "url", ["postgresql:///db", "postgresql://h:5432/db?options=a@b", "postgresql://u@h,i/db", "/a/b"]
)
def test_what_has_none_is_left_alone(url: str) -> None:
    assert split_password(url) == (url, ())
    kept = {"PENSTOCK_STORE": url, "A": "b"}
    assert for_tasks({**kept, "PENSTOCK_SECRET_X": "y", "PENSTOCK_SECRETS": "z"}) == kept


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{PASSWORD}@127.0.0.1:1/db",
        f"postgresql://u@127.0.0.1:1/db?password={PASSWORD}",
        f"postgresql://u:{PASSWORD}%zz@127.0.0.1:1/db",
        f"postgresql://u:a@{PASSWORD}@127.0.0.1:1/db",
        f"postgresql://u:{PASSWORD}@127.0.0.1:x/db",
        f"mysql://u:{PASSWORD}@127.0.0.1/db",
    ],
)
def test_an_error_of_the_connection_has_no_password(url: str, monkeypatch: pytest.MonkeyPatch, caplog: object) -> None:
    monkeypatch.setattr(stores, "PATIENCE", 0.0)
    with pytest.raises(StoreError) as caught:
        stores.open_existing(read({"PENSTOCK_STORE": url}))
    said = f"{caught.value} {caught.value.__cause__!r} {caught.value.__context__ if caught.value.__cause__ else ''}"
    assert "P605" in said and PASSWORD not in said
    assert PASSWORD not in repr(read({"PENSTOCK_STORE": url}))


def test_a_run_leaves_the_password_nowhere(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres_url.replace("penstock@", f"penstock:{PASSWORD}@")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STORE", url)
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "all.yaml").write_text(COMMAND)
    assert run(["run", "flow.py"]) == 0
    assert run(["run", "all.yaml"]) == 3
    for words in (["ls"], ["show", "@"], ["show", "@2", "-o", "json"], ["why", "@"], ["logs", "@"], ["queue", "ls"]):
        assert run(words) in (0, 4)
    said = capsys.readouterr()
    assert "result: []" in said.out and "PENSTOCK_STORE=" in said.out
    assert PASSWORD not in said.out + said.err
    with open_store(postgres_url) as store:
        for table in ("runs", "events", "tasks", "results", "engines", "workflows", "workloads"):
            assert PASSWORD not in repr(rows(store, table))
    for path in (tmp_path / ".penstock").rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path


# A server that is away for a moment


def test_a_command_waits_for_a_server_that_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = binaries()
    if folder is None:
        pytest.skip("no PostgreSQL on this machine")
    server = Server(folder)
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    logging.getLogger("penstock").addHandler(handler)
    try:
        url = server.database()
        open_store(url).close()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PENSTOCK_STORE", url)
        server.stop(signal.SIGINT)
        timer = threading.Timer(0.5, server.start)
        timer.start()
        assert run(["ls"]) == 0, capsys.readouterr().err
        timer.join()
        assert "waiting for postgresql://penstock@127.0.0.1" in heard.getvalue() and "at most 30 s" in heard.getvalue()
        # Also when it goes away after it was opened.
        with stores.open_existing(read()) as store:
            server.stop(signal.SIGINT)
            timer = threading.Timer(0.3, server.start)
            timer.start()
            assert store.runs.newest() == []
            timer.join()
        # Not for ever, and not for what waiting does not change.
        monkeypatch.setattr(stores, "PATIENCE", 0.2)
        server.stop(signal.SIGINT)
        assert run(["ls"]) == 1
        assert "P605" in capsys.readouterr().err
        server.start()
        monkeypatch.setattr(stores, "PATIENCE", 30.0)
        heard.truncate(0)
        monkeypatch.setenv("PENSTOCK_STORE", f"{os.path.dirname(url)}/no_such_database")
        assert run(["ls"]) == 1
        assert heard.getvalue().strip("\0") == ""
    finally:
        logging.getLogger("penstock").removeHandler(handler)
        server.close()


# A file that is no store any more


@pytest.mark.parametrize("harm", [lambda file: file.write_bytes(b""), lambda file: file.write_bytes(b"\xff" * 8192)])
def test_a_damaged_file_is_said_to_be_that_with_the_way_out(
    harm: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    open_store(".penstock").close()
    harm(tmp_path / ".penstock" / "state.db")
    (tmp_path / ".penstock" / "state.db-wal").write_bytes(b"what is left")
    size = (tmp_path / ".penstock" / "state.db").stat().st_size
    for words in (["ls"], ["why", "@"], ["queue", "ls"]):
        assert run(words) == 1
        said = capsys.readouterr().err
        assert "P601" in said and "penstock doctor" in said and ("0 bytes" in said) == (size == 0)
    assert (tmp_path / ".penstock" / "state.db").stat().st_size == size
    assert (not size and (tmp_path / ".penstock" / "state.db-wal").read_bytes() == b"what is left") or size
