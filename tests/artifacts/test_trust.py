"""What is loaded as a pickle, and what never is: only what an engine recorded, never what a parameter, a document or a command says."""

from __future__ import annotations

import http.server
import json
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import LocalRunner, task, workflow
from penstock.artifacts.blobs import Blobs
from penstock.cli.main import run
from penstock.errors import UserError

FLOW = """
from penstock import task, workflow

@task
def give(n: int) -> object:
    return {n, n + 1} if n else [n]

@task
def total(values: object) -> int:
    return sum(values)

@workflow
def flow(n: int = 2):
    return total(give(n))
"""
SHOWN = """
from penstock import task, workflow

@task
def kind(value: object) -> str:
    return type(value).__name__

@workflow
def flow(value: object = None):
    return kind(value)
"""
DOCUMENT = """
apiVersion: penstock/v1
kind: Workflow
name: flow
steps:
  - name: said
    %s
  - name: kind
    function: {module: kinds, name: kind}
    inputs: [{name: value, value: "${{ steps.said.outputs.value }}"}]
    outputs: [{name: result, type: str}]
outputs: [{name: result, value: "${{ steps.kind.outputs.result }}"}]
"""
COMMAND = """script: {source: "cat said.json > $PENSTOCK_OUTPUTS/value"}
    outputs: [{name: value, type: object}]"""
HTTP = """http: {url: "http://127.0.0.1:%d/"}
    outputs: [{name: value, type: object, value: "${{ response.body }}"}]"""


class Trap:
    """Unpickling it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a record would say of a hostile pickle that lies among the blobs."""
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(Trap(tmp_path / "sprung"))
    digest = Blobs(tmp_path / ".penstock" / "artifacts").put(data)
    return {"$stored": {"kind": "pickle", "digest": digest, "size": len(data), "name": "Trap"}}


def test_a_parameter_of_the_command_line_is_never_a_pickle(
    note: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flow.py").write_text(SHOWN)
    assert run(["run", "flow.py", "-p", f"value={json.dumps(note)}"]) == 0
    assert "result: dict" in capsys.readouterr().out
    assert not (tmp_path / "sprung").exists()


def test_neither_is_one_given_in_python(note: dict[str, Any], tmp_path: Path) -> None:
    @task
    def kind(value: object) -> str:
        return type(value).__name__

    @workflow
    def flow(value: object):
        return kind(value)

    for inline in (True, False):
        assert LocalRunner(inline=inline, fresh=True).run(flow, value=note).outputs == {"result": "dict"}
        assert LocalRunner(inline=inline, fresh=True).run(flow, value=[note, {"a": note}]).ok
    assert not (tmp_path / "sprung").exists()


def test_what_a_function_returns_as_a_map_stays_a_map(note: dict[str, Any], tmp_path: Path) -> None:
    @task
    def forge(text: str) -> object:
        return json.loads(text)

    @task
    def kind(value: object) -> str:
        return type(value).__name__

    @workflow
    def flow(text: str):
        return kind(forge(text))

    assert LocalRunner(inline=True).run(flow, text=json.dumps(note)).outputs == {"result": "dict"}
    assert LocalRunner(fresh=True).run(flow, text=json.dumps(note)).outputs == {"result": "dict"}
    assert not (tmp_path / "sprung").exists()


def test_what_a_command_writes_is_never_a_pickle(
    note: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kinds.py").write_text("def kind(value): return type(value).__name__\n")
    (tmp_path / "said.json").write_text(json.dumps(note))
    (tmp_path / "flow.yaml").write_text(DOCUMENT % COMMAND)
    assert run(["run", "flow.yaml"]) == 0, capsys.readouterr().err
    assert "result: dict" in capsys.readouterr().out
    assert not (tmp_path / "sprung").exists()


def test_what_a_server_answers_is_never_a_pickle(
    note: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(note).encode())

        def log_message(self, *_: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "kinds.py").write_text("def kind(value): return type(value).__name__\n")
    (tmp_path / "flow.yaml").write_text(DOCUMENT % (HTTP % server.server_port))
    try:
        code = run(["run", "flow.yaml"])
    finally:
        server.shutdown()
        server.server_close()
    said = capsys.readouterr()
    assert (code, "result: dict" in said.out) == (0, True), said
    assert not (tmp_path / "sprung").exists()


# Without pickles


@pytest.fixture
def without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flow.py").write_text(FLOW)

    def call(*words: str) -> int:
        with monkeypatch.context() as patch:
            patch.setenv("PENSTOCK_PICKLES", "no")
            return run([*words])

    return call


def test_without_pickles_a_task_that_needs_one_fails_and_says_why(
    without: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert without("run", "flow.py") == 3
    said = capsys.readouterr()
    assert (
        "P749" in said.out + said.err and "a set" in said.out + said.err and "PENSTOCK_PICKLES" in said.out + said.err
    )
    assert without("run", "flow.py", "-p", "n=0") == 0  # plain data is not touched by it


def test_without_pickles_a_recorded_one_is_not_loaded(
    without: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "flow.py", "--until", "give"]) == 0
    capsys.readouterr()
    assert without("run", "flow.py") == 3
    said = capsys.readouterr()
    assert "P749" in said.out + said.err and "stored as a pickle" in said.out + said.err
    assert run(["run", "flow.py"]) == 0


def test_without_pickles_a_function_by_value_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_PICKLES", "no")
    step = 2

    @task
    def more(n: int) -> int:
        return n + step

    @workflow
    def flow(n: int):
        return more(n)

    with pytest.raises(UserError, match="P749 .*more.*move it into a module"):
        LocalRunner(home=tmp_path).run(flow, n=1)


def test_a_word_that_is_not_understood_does_not_open_the_door(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_PICKLES", "nein")
    assert run(["ls"]) == 2
    assert "P457" in capsys.readouterr().err
