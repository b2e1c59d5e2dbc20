"""penstock usage, penstock queue history and what-if, as people use them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Result

Penstock = Callable[..., Result]
QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: default
      resources:
      - {name: cpu, nominalQuota: 2}
"""
FLOW = """
apiVersion: penstock/v1
kind: Workflow
name: busy
queue: q
steps:
- name: turn
  script: {source: "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"}
  resources: {cpu: 1}
"""


@pytest.fixture
def ran(penstock: Penstock, tmp_path: Path) -> Path:
    (tmp_path / "queues.yaml").write_text(QUEUE)
    (tmp_path / "flow.yaml").write_text(FLOW)
    assert penstock("queue", "apply", "queues.yaml").code == 0
    assert penstock("run", "flow.yaml", "-q").code == 0
    return tmp_path


def test_usage_of_what_ran_here(penstock: Penstock, ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, *rows = penstock("usage", "--by", "flow").out.splitlines()
    assert head.split("\t")[:4] == ["FLOW", "RUNS", "ATTEMPTS", "REUSED"] and "CPU-H USED" in head
    assert rows[0].startswith("busy\t1\t1\t")
    found = json.loads(penstock("usage", "--by", "queue", "-o", "json").out)
    one = found["items"][0]
    assert one["name"] == "q" and one["cost"] is None
    assert 0 < one["cpu_used"] <= 2 * one["asked"]["cpu"] and one["cpu_measured"] == one["asked"]["cpu"]
    monkeypatch.setenv("PENSTOCK_PRICES", "cpu=3600000,currency=EUR")
    priced = json.loads(penstock("usage", "-o", "json").out)
    assert priced["total"]["cost"] == pytest.approx(3600000 * one["asked"]["cpu"], rel=1e-3)
    by_step = json.loads(penstock("usage", "--run", "@", "-o", "json").out)
    assert [step["step"] for step in by_step["steps"]] == ["turn"]
    assert "EUR" in penstock("usage", "--run", "@").out
    assert penstock("usage", "--person", "nobody").err.strip() == "nothing ran in that time"


def test_the_processor_time_of_functions_is_known(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(
        "import time\nfrom penstock import task, workflow\n\n"
        "@task(cpu=1)\ndef turn() -> int:\n    end = time.process_time() + 0.1\n"
        "    while time.process_time() < end:\n        pass\n    return 1\n\n"
        "@workflow\ndef flow():\n    return turn()\n"
    )
    assert penstock("run", "flow.py", "-q").code == 0
    one = json.loads(penstock("usage", "--run", "@", "-o", "json").out)["steps"][0]
    assert 0.09 <= one["cpu_used"] * 3600 <= 0.5 and one["cpu_measured"] == one["asked"]["cpu"]


def test_a_queue_over_time(penstock: Penstock, ran: Path) -> None:
    head, *rows = penstock("queue", "history", "q", "--since", "1h").out.splitlines()
    assert head == "AT\tCPU\tQUOTA\tBORROWED\tWAITING" and rows[-1].split("\t")[1:] == ["0", "2", "0", "0"]
    found = json.loads(penstock("queue", "history", "q", "-o", "json", "--step", "1h").out)
    assert found["queue"] == "q" and found["spans"][-1]["quota"][0]["nominal"] == "2"
    assert penstock("queue", "history", "nope").code == 4
    assert "P980" in penstock("queue", "history", "q", "--step", "1s").err


def test_what_if(penstock: Penstock, ran: Path) -> None:
    said = penstock("queue", "what-if", "q", "--tasks", "5", "--asks", "cpu=1", "--for", "30s").out
    assert "2 at once, the others wait" in said and "The last starts in 1m00s" in said
    found = json.loads(
        penstock("queue", "what-if", "q", "--tasks", "5", "--asks", "cpu=1", "--quota", "cpu=5", "-o", "json").out
    )
    assert found["waits_from"] is None and found["at_once"] == 5
    assert "never" in penstock("queue", "what-if", "q", "--asks", "cpu=3").out
    assert "P822" in penstock("queue", "what-if", "q", "--asks", "many").err
    assert "P982" in penstock("queue", "what-if", "q", "--quota", "memory=1Gi").err
