"""Secrets in runs: a step gets the text, and nothing that is kept has it."""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    BaseJob,
    FunctionJob,
    LocalRunner,
    PenstockError,
    Run,
    ScriptJob,
    Workflow,
    WorkflowParam,
    secret,
    task,
    workflow,
)
from penstock.backends.base import Abilities, BackendContext
from penstock.backends.local.process import ProcessBackend
from penstock.cli.main import run as command_line
from penstock.graph.model import Http
from penstock.graph.model import Workflow as Graph
from penstock.service.conversion import write
from penstock.service.workflows import load

HUSH, PASSWORD = "në" + "kot-" + "terc3s-p0t", "hunter" + "2\nsecond-" + "line"
"""In pieces: the file of a task is kept, and must not hold them itself."""


@pytest.fixture(autouse=True)
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_SECRET_TOKEN", HUSH)
    monkeypatch.setenv("PENSTOCK_SECRET_DB_PASSWORD", PASSWORD)


def kept(folder: Path) -> str:
    """Names of the files in the store that hold a secret, also in the database, in blobs and logs."""
    wanted = [text.encode() for text in (HUSH, json.dumps(HUSH)[1:-1], *PASSWORD.splitlines())]
    files = [path for path in (folder / ".penstock").rglob("*") if path.is_file()]
    assert files
    return " ".join(str(path) for path in files if any(one in path.read_bytes() for one in wanted))


@task
def use(token: str, more: list[str]) -> int:
    print("token:", token)
    sys.stdout.write(token[:4])
    sys.stdout.flush()
    sys.stdout.write(token[4:] + "\n")
    os.write(2, token.encode()[:-2])  # in the middle of a character
    os.write(2, token.encode()[-2:] + b"\n" + more[0].splitlines()[1].encode())
    assert not [name for name in os.environ if name.startswith("PENSTOCK_SECRET")]
    return len(token)


@task(env={"TOKEN": secret("TOKEN"), "HEADER": f"Bearer {secret('TOKEN')}"})
def by_env(before: int) -> str:
    assert os.environ["HEADER"] == f"Bearer {HUSH}"
    print(os.environ["HEADER"])
    return f"{before} {os.environ['TOKEN'] == HUSH}"


shell = ScriptJob(
    "shell",
    'echo "[$PASSWORD]"; tr "\\0" " " </proc/$$/cmdline; test "$TOKEN" = "$(cat /in/token)"',
    env={"PASSWORD": secret("db/password"), "TOKEN": secret("TOKEN")},
    inputs=[WorkflowParam("token", str, secret("TOKEN"), path="/in/token")],
)


@workflow
def inner(token: str) -> int:
    return use(token, [secret("db/password")])


@workflow
def flow() -> str:
    count = inner(secret("TOKEN"))
    shell()
    return by_env(count)


def test_steps_get_the_text_and_nothing_keeps_it(tmp_path: Path) -> None:
    run = LocalRunner(jobs=2).run(flow).check()
    assert run.outputs["result"] == f"{len(HUSH)} True"
    logs = {row.task: run.logs(row.task) for row in run.tasks}
    assert logs["inner/use"] == "token: ***\n***\n***\n***"
    assert logs["by_env"] == "Bearer ***\n" and logs["shell"].startswith("[***]\n")
    assert kept(tmp_path) == ""


def test_the_key_has_the_name_and_not_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    first = LocalRunner(jobs=2).run(flow).check()
    monkeypatch.setenv("PENSTOCK_SECRET_TOKEN", "another-text-of-it")
    again = LocalRunner(jobs=2).run(flow).check()
    assert again.outputs == first.outputs, "it was reused: a new token is no other work"


def test_what_a_task_raises_is_masked(tmp_path: Path) -> None:
    @task
    def bad(token: str) -> int:
        raise ValueError(f"cannot log in with {token}")

    @workflow
    def fails() -> int:
        return bad(secret("TOKEN"))

    run = LocalRunner().run(fails)
    assert run.failures == {"bad": "ValueError: cannot log in with ***"} and "***" in run.logs("bad")
    assert kept(tmp_path) == ""


@task
def returns(token: str, how: str) -> Any:
    found: dict[str, Any] = {
        "text": token,
        "inside": {"a": [f"x{token}y"]},
        "large": "-" * 50_000 + token,
        "set": {token},
    }
    if how == "file":
        Path("made.txt").write_text(token)
        return Path("made.txt")
    return found[how]


@workflow
def returning(how: str) -> Any:
    return returns(secret("TOKEN"), how)


@pytest.mark.parametrize("how", ["text", "inside", "large", "set", "file"])
def test_a_result_that_holds_a_secret_is_refused(how: str, tmp_path: Path) -> None:
    run = LocalRunner().run(returning, how=how)
    assert run.status == "failed" and "holds the secret TOKEN" in run.failures["returns"]
    (tmp_path / "made.txt").unlink(missing_ok=True)
    assert kept(tmp_path) == ""


def test_so_is_what_a_command_prints_as_its_output(tmp_path: Path) -> None:
    printed = WorkflowParam("said", str, path="/dev/stdout")
    written = WorkflowParam("wrote", str)
    for name, source, output in (
        ("prints", "echo $T", printed),
        ("writes", "echo $T >$PENSTOCK_OUTPUTS/wrote", written),
    ):
        job = ScriptJob(name, source, env={"T": secret("TOKEN")}, outputs=[output])
        run = LocalRunner().run(Workflow(name, steps=[job]))
        assert run.status == "failed" and "secret" in run.failures[name]
    assert kept(tmp_path) == ""


def test_a_missing_secret_is_an_error_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_SECRET_TOKEN")
    with pytest.raises(PenstockError) as caught:
        LocalRunner().run(flow)
    said = str(caught.value)
    assert "P464" in said and "the step inner" in said and "TOKEN" in said
    assert all(way in said for way in ("PENSTOCK_SECRET_TOKEN", "PENSTOCK_SECRETS names", "PENSTOCK_SECRETS_COMMAND"))
    assert LocalRunner(dry=True).run(flow).ok, "a dry run needs none"


def test_not_where_others_can_see_it_or_where_it_decides() -> None:
    words = ScriptJob("words", f"curl -H {secret('TOKEN')} host")
    with pytest.raises(PenstockError, match="P466"):
        LocalRunner().run(Workflow("w", steps=[words]))
    decides = ScriptJob("decides", "true", when=secret("TOKEN") == "x")
    with pytest.raises(PenstockError, match="P284"):
        LocalRunner().run(Workflow("w", steps=[decides]))


def test_a_plain_call_gets_the_text() -> None:
    @workflow
    def plain() -> str:
        return returns(secret("TOKEN"), "text")

    assert plain() == HUSH


MODULES_OWN, HEADER = secret("TOKEN"), f"Bearer {secret('TOKEN')}"
LENGTH, WITH_BEARER = len(HUSH), len(f"Bearer {HUSH}")


@task
def length(token: str, more: int = 0) -> int:
    return len(token)


@task
def length_of_its_own(more: int, token: str = secret("TOKEN")) -> int:
    return len(token)


@task
def length_of_first(tokens: list[str] = [HEADER]) -> int:  # noqa: B006
    return len(tokens[0])


@workflow
def own() -> list[int]:
    more = [length_of_its_own(i) for i in [2, 3]]
    return [length_of_its_own(1), more[0], more[1], length_of_first()]


@workflow
def of_the_module() -> list[int]:
    return [length(MODULES_OWN), length(HEADER), length(f"{MODULES_OWN}!")]


def test_a_secret_as_the_default_of_a_task(tmp_path: Path) -> None:
    run = own.run()
    assert own() == run.result == [LENGTH, LENGTH, LENGTH, WITH_BEARER]
    job = LocalRunner().run(Workflow("w", steps=[FunctionJob("own", length_of_its_own, {"more": 4})]))
    assert job["own"].result == length_of_its_own(4) == LENGTH
    assert kept(tmp_path) == ""


def test_a_secret_of_the_module() -> None:
    assert of_the_module() == of_the_module.run().result == [LENGTH, WITH_BEARER, LENGTH + 1]


def test_show_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    @workflow
    def shown() -> int:
        return length(f"Bearer {secret('TOKEN')} {secret('db/password')}")

    shown.run().check()
    command_line(["show", "@/length"])
    assert 'Bearer ${{ secrets.TOKEN }} ${{ secrets[\\"db/password\\"] }}' in capsys.readouterr().out


def _as_default(token: str = MODULES_OWN) -> int:
    return length(token)


def _joined() -> int:
    return length("Bearer " + MODULES_OWN)


def _upper() -> int:
    return length(secret("TOKEN").upper())


@pytest.mark.parametrize(
    ("function", "said"),
    [(_as_default, "the default of token holds a secret"), (_joined, "is computed with"), (_upper, "is computed with")],
)
def test_where_it_can_have_no_text_it_is_refused_at_its_place(function: Any, said: str) -> None:
    with pytest.raises(PenstockError, match=said) as caught:
        workflow(function).run()
    assert caught.value.problems[0].source is not None and caught.value.problems[0].source.file == __file__


def test_nor_is_it_the_default_of_a_parameter() -> None:
    takes = Workflow("w", steps=[shell], params=[WorkflowParam("token", str, secret("TOKEN"))])
    with pytest.raises(PenstockError, match="P204"):
        LocalRunner().run(takes)


def test_a_backend_that_cannot_mask_gets_no_secret() -> None:
    class Mine(ProcessBackend):
        def __init__(self, context: BackendContext) -> None:
            super().__init__(context)
            self.abilities = Abilities()

    run = LocalRunner(on={"script": "mine"}, backends={"mine": Mine}).run(
        Workflow("w", steps=[ScriptJob("s", "true", env={"T": secret("TOKEN")})])
    )
    assert "does not keep secrets out" in run.failures["s"]


MANIFEST = """
apiVersion: v1
kind: Secret
metadata: {name: db}
stringData: {password: from-the-manifest}
---
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: hello}
spec:
  entrypoint: main
  templates:
  - name: main
    container:
      image: busybox
      command: [sh, -c, 'echo "$P" "$(cat /vault/pw)"; test "${GONE-unset}" = unset']
      env:
      - {name: P, valueFrom: {secretKeyRef: {name: db, key: password}}}
      - {name: GONE, valueFrom: {secretKeyRef: {name: db, key: other, optional: true}}}
      volumeMounts: [{name: vault, mountPath: /vault}]
    volumes: [{name: vault, secret: {secretName: db, items: [{key: password, path: pw}]}}]
"""


def manifest_of(tmp_path: Path) -> Graph:
    file = tmp_path / "hello.yaml"
    file.write_text(MANIFEST)
    return load(str(file))


def test_a_manifest_takes_its_secrets_from_beside_it_or_from_where_they_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = manifest_of(tmp_path)
    assert "from-the-manifest" not in repr(graph)
    run: Run = LocalRunner(on={"container": "process"}).run(graph).check()
    assert run.logs("main") == "*** ***\n"
    monkeypatch.delenv("PENSTOCK_SECRET_DB_PASSWORD")
    run = LocalRunner(on={"container": "process"}, fresh=True).run(graph).check()
    assert run.logs("main") == "*** ***\n"
    store = b"".join(path.read_bytes() for path in (tmp_path / ".penstock").rglob("*") if path.is_file())
    assert b"from-the-manifest" not in store


@pytest.mark.parametrize("to", ["argo", "tekton", "jobset"])
def test_converting_refers_to_the_secret_again(to: str, tmp_path: Path) -> None:
    text = write(manifest_of(tmp_path), to).text
    assert "from-the-manifest" not in text
    assert "secretKeyRef" in text and "secretName: db" in text


def test_a_header_of_a_request(tmp_path: Path) -> None:
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["X-Token"])
            self.send_response(500)
            self.end_headers()
            self.wfile.write(b"not with " + self.headers["X-Token"].encode())

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        request = Http(url=f"http://127.0.0.1:{server.server_port}/", headers={"X-Token": secret("plain")})
        os.environ["PENSTOCK_SECRET_PLAIN"] = "of-the-header"
        try:
            run = LocalRunner().run(Workflow("w", steps=[BaseJob("ask", request)]))
        finally:
            del os.environ["PENSTOCK_SECRET_PLAIN"]
            server.shutdown()
    assert seen == ["of-the-header"] and run.failures["ask"].endswith("not with ***")
    store = b"".join(path.read_bytes() for path in (tmp_path / ".penstock").rglob("*") if path.is_file())
    assert b"of-the-header" not in store.replace(Path(__file__).read_bytes(), b"")


def test_a_run_that_goes_on_needs_its_secrets_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flow.yaml").write_text(
        "apiVersion: penstock/v1\nkind: Workflow\nname: flow\nsteps:\n"
        "- {name: s, script: {source: 'test -e go && echo $T', env: {T: '${{ secrets.TOKEN }}'}}}\n"
    )
    assert command_line(["run", "flow.yaml", "-q"]) == 3
    monkeypatch.delenv("PENSTOCK_SECRET_TOKEN")
    (tmp_path / "go").touch()
    capsys.readouterr()
    assert command_line(["retry", "flow-1", "-q"]) == 2 and "P464" in capsys.readouterr().err
    monkeypatch.setenv("PENSTOCK_SECRET_TOKEN", HUSH)
    assert command_line(["retry", "flow-1", "-q"]) == 0
    assert kept(tmp_path) == ""
