"""Callbacks from the outside: the commands, and the routes of a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import run as command
from tests.integrator.receiver import Receiver
from tests.server.served import Served, wait_for

FLOW = """
apiVersion: penstock/v1
kind: Workflow
name: one
steps: [{name: a, script: {source: "true"}}]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / ".penstock"))
    monkeypatch.setenv("PENSTOCK_CALLBACK_HOSTS", "127.0.0.1")
    (tmp_path / "flow.yaml").write_text(FLOW)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[Any, str]:
    """What a command gives as JSON, and what it says beside."""
    assert command([*words, "-o", "json"]) == code, capsys.readouterr()
    out, err = capsys.readouterr()
    return (json.loads(out) if out else None), err


def test_a_callback_for_one_run_and_what_is_left_of_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flow = str(place / "flow.yaml")
    with Receiver(500, 400) as receiver:
        _, err = said(capsys, "run", flow, "--callback", f"{receiver.url}/a")
        assert receiver.heard[0].data["run"] == "one-1" and len(receiver.heard) == 1
        assert "1 callback still to be delivered" in err and "penstock callbacks deliver" in err
        (row,), _ = said(capsys, "callbacks", "ls", "@")
        assert (row["state"], row["attempts"], row["error"]) == ("new", 1, "answered 500")
        _, err = said(capsys, "callbacks", "redeliver", str(row["number"]), code=2)
        assert "P525" in err
        wait_for(lambda: said(capsys, "callbacks", "deliver")[0]["dead"] == 1)
        (row,), _ = said(capsys, "callbacks", "ls", "--state", "dead")
        assert row["error"] == "answered 400" and len(receiver.heard) == 2
        found, _ = said(capsys, "callbacks", "redeliver", "--dead", "--since", "1h", "--run", "@")
        assert found == {"redelivered": 1}
        assert said(capsys, "callbacks", "deliver")[0] == {"done": 1, "dead": 0, "new": 0}
        shown, _ = said(capsys, "callbacks", "show", str(row["number"]))
        assert [one["status"] for one in shown["tries"]] == [500, 400, 200] and shown["state"] == "done"
        assert {one.key for one in receiver.heard} == {shown["key"]}
        assert command(["callbacks"]) == 0 and command(["callbacks", "show", str(row["number"])]) == 0
        assert "url-1 of one-1, which succeeded: done" in capsys.readouterr().out
        assert said(capsys, "show", "@")[0]["state"] == "succeeded"


@pytest.mark.parametrize(
    "words, code, said_of_it",
    [
        (["callbacks", "show", "99"], 4, "P523"),
        (["callbacks", "redeliver"], 2, "P523"),
        (["callbacks", "redeliver", "1", "--dead"], 2, "P523"),
        (["run", "FLOW", "--callback", "ftp://x"], 2, "P524"),
        (["run", "FLOW", "--callback", "http://u:p@x/"], 2, "P524"),
    ],
)
def test_mistakes(
    place: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said_of_it: str
) -> None:
    assert command(["run", str(place / "flow.yaml"), "-q"]) == 0
    capsys.readouterr()
    assert command([str(place / "flow.yaml") if word == "FLOW" else word for word in words]) == code
    assert said_of_it in capsys.readouterr().err


def test_a_server_delivers_and_shows_and_its_owner_delivers_again(place: Path) -> None:
    with Receiver(400) as receiver, Served(place / ".penstock") as served:
        asked = [{"name": "tell", "url": f"{receiver.url}/a"}]
        document = json.dumps({**json.loads(as_json(FLOW)), "callbacks": asked})
        ana, bob = served.token("ana", "submitter"), served.token("bob", "submitter")
        run = served.submit(document, token=ana, options={})["run"]["run"]
        served.wait(run)
        wait_for(lambda: served.get("callbacks?state=dead")["items"] != [])
        (row,) = served.get(f"runs/{run}/callbacks")["items"]
        assert (row["callback"], row["state"], row["error"]) == ("tell", "dead", "answered 400")
        there = f"/api/v1/runs/{run}/callbacks/redeliver"
        assert served.ask("POST", there, {}, token=bob).status == 403
        assert served.ask("POST", there, {"numbers": [row["number"] + 1]}, token=ana).status == 404
        assert served.ask("POST", there, {}, token=ana).data == {"redelivered": 1}
        wait_for(lambda: served.get(f"callbacks/{row['number']}")["state"] == "done")
        page = served.ask("GET", f"/runs/{run}", token=ana, headers={"Accept": "text/html"}).text
        assert '<h2 id="callbacks">Callbacks</h2>' in page and "tell" in page
        found = served.get(f"callbacks/{row['number']}")
        assert [one["status"] for one in found["tries"]] == [400, 200]
        assert served.get("callbacks?limit=1")["next"] == str(row["number"])
        assert served.get(f"callbacks?limit=1&cursor={row['number']}")["items"] == []
        assert served.ask("POST", there, {"numbers": []}, token=ana).data == {"redelivered": 0}


def as_json(text: str) -> str:
    import yaml

    return json.dumps(yaml.safe_load(text))
