"""The verb simulate: the same figures as the command, and limits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.main import run as penstock
from penstock.errors import PlanError
from penstock.service import stores
from penstock.service.simulation import ask
from penstock.service.simulation.ask import AskedWorkflow, Question, simulated
from tests.server.served import Served
from tests.server.test_api import problem
from tests.server.test_same_there import QUEUES

WIDE = """
apiVersion: penstock/v1
kind: Workflow
name: wide
params:
  - {name: many, type: int, default: 4}
steps:
  - name: each
    each: {axes: [{i: "${{ range(params.many) }}"}]}
    resources: {cpu: 1}
    container: {image: busybox, command: ["true"]}
"""


def test_it_says_what_the_command_says_and_records_nothing(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wide.yaml").write_text(WIDE)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "none"))
    words = ["queue", "simulate", str(tmp_path / "wide.yaml"), "--capacity", "cpu=2", "--repeat", "2", "-o", "json"]
    assert penstock([*words, "--runtime", "each=30"]) == 0
    said = json.loads(capsys.readouterr().out)
    body = {"workflows": [{"document": WIDE}], "capacity": "cpu=2", "repeat": 2, "runtimes": {"each": 30}}
    found = served.ask("POST", "/api/v1/simulate", body, token=served.token("v", "viewer")).data
    assert found["units"] == said["units"] and found["units"][1]["makespan"] == 120.0
    assert [one["workflow"] for one in found["jobs"]] == ["wide", "wide"] and found["warnings"] == []
    more = served.ask("POST", "/api/v1/simulate", body | {"capacity": "", "queues": QUEUES, "queue": ["ana"]}).data
    assert more["queues"] == "the configured queues, changed by <request>"
    assert more["units"][1]["makespan"] == 240.0
    assert served.get("queues")["items"][0]["queue"] != "team" and served.get("runs")["items"] == []


def test_queues_and_times_of_a_server_for_a_simulation_that_runs_here(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wide.yaml").write_text(WIDE)
    monkeypatch.setenv("PENSTOCK_TOKEN", served.own)
    said = []
    for server in ("", served.url):
        monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "none" if server else served.settings.home))
        assert penstock(["queue", "simulate", str(tmp_path / "wide.yaml"), "--server", server]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and "MAKESPAN" in said[0]


def test_what_is_too_much_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask_for(**more: object) -> object:
        return served.ask("POST", "/api/v1/simulate", {"workflows": [{"document": WIDE}], **more})

    problem(ask_for(workflows=[{"document": WIDE}] * 2, repeat=400), 400, "P972")
    problem(ask_for(capacity="cpu=many"), 400, "P822")
    problem(ask_for(runtimes={"nothing": 3}), 400, "P821")
    problem(ask_for(queues="kind: What"), 400, "P801")
    problem(ask_for(workflows=[{"document": "kind: What"}]), 400, "P830")
    problem(ask_for(workflows=[{"document": WIDE, "params": {"nobody": 1}}]), 400, "P401")
    monkeypatch.setattr(ask, "SECONDS", -1.0)
    with stores.open_or_create(served.settings) as store, pytest.raises(PlanError, match="P972"):
        simulated(Question(workflows=[AskedWorkflow(document=WIDE, params={"many": 300})]), store, served.settings)
