"""Client and `penstock run --server`: the same workflow, sent with its code and files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Client
from penstock.errors import NotFound, PlanError, StoreError
from penstock.runners.base import RunFailed
from penstock.service.connection import ServerConnection
from penstock.service.tokens import NotAllowed, NotSignedIn
from tests.server.flows import loud, twice
from tests.server.served import Served, wait_for
from tests.server.test_api import HERE
from tests.server.test_same_there import ASKS, QUEUES
from tests.support.mlflow_double import MlflowDouble


def test_functions_and_files_go_there_and_results_come_back(served: Served, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("one\ntwo\n")
    client = Client(served.url, served.token("ana", "submitter"))
    run = client.run(loud, file=tmp_path / "words.txt")
    assert run.ok and run.fetch(run.result) == b"ONE\nTWO"
    assert run.logs("shout[1]") == "shouting two\n"
    assert client.open_run().id == run.id and client.runs(limit=1)[0]["user"] == "ana"
    again = client.run(loud, file=tmp_path / "words.txt")
    assert again.data["tasks"].get("reused", 0) == 4  # known by what is in the file
    (tmp_path / "words.txt").write_text("bad\n")
    failed = client.run(loud, file=tmp_path / "words.txt")
    assert failed.status == "failed" and "a bad line" in failed.failures["shout[0]"]
    with pytest.raises(RunFailed, match="a bad line"):
        _ = failed.result
    with pytest.raises(PlanError, match="P935"):
        client.submit(loud, file=tmp_path)


def test_runs_that_are_sent_are_told_to_the_tracking_server_that_the_server_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MlflowDouble() as mlflow:
        monkeypatch.setenv("PENSTOCK_MLFLOW", mlflow.url)
        with Served(tmp_path) as served:
            run = Client(served.url, served.own).run(twice)
            wait_for(lambda: any(one.status == "FINISHED" for one in mlflow.tree(run.id).values()))
        assert mlflow.tree(run.id)[""].status == "FINISHED"


def test_what_the_server_refuses_is_raised_as_it_is_here(served: Served) -> None:
    with pytest.raises(NotSignedIn, match="P930"):
        Client(served.url, "pst_x_y").runs()
    with pytest.raises(NotAllowed, match="P931"):
        Client(served.url, served.token("v", "viewer")).submit(twice)
    with pytest.raises(NotFound, match="P505"):
        Client(served.url, served.own).open_run("nope")
    with pytest.raises(PlanError, match="P949"):
        Client("ftp://x")
    with pytest.raises(StoreError, match="P950"):
        ServerConnection("http://127.0.0.1:9", patience=0.2).get("runs")
    served.server.app.state.gate.tries._seen.clear()


def test_all_that_the_commands_do_is_there_in_python(served: Served, tmp_path: Path) -> None:
    client = Client(served.url, served.token("root", "admin"))
    assert ("ClusterQueue", "team") in client.apply_queues(QUEUES)
    assert client.drain("team")["state"] == "draining" and client.drain("default/ana", hold=True)["state"] == "holding"
    assert client.resume_queue("team")["state"] == "active" and client.resume_queue("ana")["kind"] == "LocalQueue"
    assert client.queue("ana")["queue"] == "ana" and [one["queue"] for one in client.queues()] == ["team"]
    assert client.simulate(twice, capacity="cpu=2", units=["stage"])["units"][0]["makespan"] == 60.0
    ran = client.run(loud, file=_words(tmp_path, "a\nb\n"), queue="ana")
    assert [one["task"] for one in ran.tasks(step="shout")] == ["shout[0]", "shout[1]"]
    assert list(ran.follow_logs("shout")) == [("shout[0]", "shouting a"), ("shout[1]", "shouting b")]
    assert ran.logs(grep="b") == "shout[1] | shouting b\n" and ran.logs("shout[0]", tail=0) == ""
    numbers = [event["seq"] for event in ran.events()]
    assert numbers == [event["seq"] for event in ran.events(follow=True)] == list(range(1, len(numbers) + 1))
    asks = client.open_run(served.submit(ASKS.replace("type: str", "type: file"), options=HERE)["run"]["run"])
    wait_for(lambda: asks.data["tasks"].get("suspended"))
    asks.resume("ask", ok=_words(tmp_path, "from python"), many=5)
    assert asks.wait().ok and asks.logs().startswith("/") and asks.logs().endswith("words.txt 5\n")
    assert served.ask("DELETE", "/api/v1/queues?all=true").status == 200


def _words(folder: Path, text: str) -> Path:
    (folder / "words.txt").write_text(text)
    return folder / "words.txt"


def penstock(home: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    import os

    given = {**os.environ, "PENSTOCK_HOME": str(home / "mine"), **(env or {})}
    return subprocess.run(
        [sys.executable, "-m", "penstock", *words], cwd=home, env=given, capture_output=True, text=True, timeout=120
    )


def test_run_there_looks_like_run_here(served: Served, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(Path(__file__).with_name("flows.py").read_text())
    env = {"PENSTOCK_SERVER": served.url, "PENSTOCK_TOKEN": served.token("cli", "submitter")}
    done = penstock(tmp_path, "run", "flow.py:twice", "-p", "word=hey", env=env)
    assert done.returncode == 0 and "HEY" in done.stdout and f"{served.url}/runs/twice-" in done.stderr, done
    failed = penstock(tmp_path, "run", "flow.py:twice", "-p", "word=bad", env=env)
    assert failed.returncode == 3 and "a bad line" in failed.stderr and "shouting bad" in failed.stderr, failed
    apart = penstock(
        tmp_path, "run", "flow.py:twice", "-d", "-o", "json", "--server", f"{served.url}/login?token={served.own}"
    )
    assert apart.returncode == 0 and '"run": "twice-' in apart.stdout, apart
    wrong = penstock(tmp_path, "run", "flow.py:twice", "--queues", "q.yaml", env=env)
    assert wrong.returncode == 2 and "P409" in wrong.stderr
    assert not (tmp_path / "mine").exists()  # nothing is recorded here


def test_serve_prints_an_address_that_works_and_ends_in_order(tmp_path: Path) -> None:
    import os
    import signal
    import urllib.request

    env = {**os.environ, "PENSTOCK_HOME": str(tmp_path / ".penstock")}
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        address = process.stdout.readline().strip()
        base, _, token = address.partition("login?token=")
        request = urllib.request.Request(f"{base}api/v1/whoami", headers={"Authorization": f"Bearer {token}"})
        assert b'"admin"' in urllib.request.urlopen(request, timeout=20).read()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        rest = process.stderr.read()
    assert "Traceback" not in rest, rest
    assert penstock(tmp_path, "serve", "--host", "203.0.113.1", "--port", "1").stderr.startswith("error[P948]")


def test_tokens_on_the_command_line(tmp_path: Path) -> None:
    made = penstock(tmp_path, "token", "create", "ana", "--role", "viewer", "--expires", "1h")
    assert made.returncode == 0 and made.stdout.startswith("pst_")
    secret = made.stdout.strip().rpartition("_")[2]
    listed = penstock(tmp_path, "token", "ls")
    assert "ana" in listed.stdout and "good" in listed.stdout and secret not in listed.stdout
    assert penstock(tmp_path, "token", "revoke", made.stdout.strip()).returncode == 0
    assert "revoked" in penstock(tmp_path, "token", "ls").stdout
    assert penstock(tmp_path, "token", "revoke", "x").returncode == 4
    assert "P932" in penstock(tmp_path, "token", "create", "ana", "--role", "king").stderr


def test_a_client_waits_for_a_server_that_is_restarted(tmp_path: Path) -> None:
    with Served(tmp_path / ".penstock") as first:
        port, token = first.port, first.token("ana", "submitter")
        run = Client(first.url, token).submit(twice)
    import threading

    ended: list[str] = []
    waiting = threading.Thread(
        target=lambda: ended.append(Client(f"http://127.0.0.1:{port}", token).open_run(run.id).wait().status)
    )
    waiting.start()
    with Served(tmp_path / ".penstock", port=port) as second:
        wait_for(lambda: bool(ended), what="the client to go on")
        assert second.port == port
    waiting.join()
    assert ended == ["succeeded"]
