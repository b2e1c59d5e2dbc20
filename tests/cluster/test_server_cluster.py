"""`penstock serve --cluster` beside the real Kueue and the real Argo: a Workflow with a queue's label is on the pages, waiting, with its reason."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from testbed.instance import Testbed
from tests.cluster.argo_runs import create, fake, flow, step, until_over
from tests.cluster.controlled import Controlled
from tests.cluster.kueue_protocol import QUEUE, Desk


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kueue", "kwok", "argo")


class Shown:
    """A server, as users start it, and what it answers."""

    def __init__(self, bed: Testbed, home: Path) -> None:
        self.context = str(yaml.safe_load(Path(bed.kubeconfig).read_text())["current-context"])
        env = {**os.environ, "KUBECONFIG": str(bed.kubeconfig), "PENSTOCK_HOME": str(home), "PENSTOCK_STORE": ""}
        words = ["serve", "--port", "0", "--no-worker", "-q", "--cluster", self.context]
        self.process = subprocess.Popen([sys.executable, "-m", "penstock", *words], env=env, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        address = urlsplit(self.process.stdout.readline().decode())
        self.port, self.token = int(address.port or 0), parse_qs(address.query.strip())["token"][0]

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()

    def get(self, path: str, accept: str = "application/json") -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}", "Accept": accept})
            answer = connection.getresponse()
            body = answer.read().decode()
        finally:
            connection.close()
        assert answer.status == 200, (path, body)
        return body

    def item(self, namespace: str, name: str) -> Mapping[str, Any]:
        found: list[Mapping[str, Any]] = json.loads(self.get("/api/v1/runs"))["cluster"]["items"]
        return next((one for one in found if (one["namespace"], one["object"]) == (namespace, name)), {})


@pytest.fixture
def shown(bed: Testbed, tmp_path: Path) -> Iterator[Shown]:
    found = Shown(bed, tmp_path)
    yield found
    found.end()


def test_a_workflow_of_argo_waits_on_the_page_with_its_reason(bed: Testbed, shown: Shown) -> None:
    desk = Desk(bed)
    full = desk.queue("main", "2")
    desk.workload("holder", cpu="2")
    desk.until_running("holder")
    space = desk.namespace
    with Controlled(bed, ["argo"]):
        document = flow("nightly", [step("a", "train")], fake("train", cpu="1", run_time="1s"))
        document["metadata"]["labels"] = {QUEUE: "main"}
        create(bed, space, document)
        bed.wait(lambda: "short" in (shown.item(space, "workflow/nightly").get("reason") or ""), "the page to know why")
        waiting = shown.item(space, "workflow/nightly")
        assert (waiting["state"], waiting["queue"]) == ("queued", f"{space}/main")
        assert waiting["reason"] == f"waiting in queue {space}/main: 1 cpu short"
        assert shown.item(space, "workload/holder")["state"] == "running"
        text = shown.get("/", "text/html")
        assert f"In the queues of cluster {shown.context}" in text and waiting["reason"] in text
        text = shown.get(f"/cluster/why?object=workflow/nightly&namespace={space}", "text/html")
        assert f"{space}/workload/holder has 2 cpu" in text and f"cpu of flavor {full}: 1 asked, 0 free" in text
        ours = json.loads(shown.get(f"/api/v1/cluster/why?object=workflow/nightly&namespace={space}"))
        [told] = ours["workloads"]
        assert told["kueue"]["message"] and told["reason"]["why"] == "quota"
        queue = json.loads(shown.get(f"/api/v1/cluster/queues/{full}"))
        assert queue["pending"] == 1 and [one["resource"] for one in queue["quota"]] == ["cpu"]
        assert full in shown.get("/queues", "text/html")
        began = time.monotonic()
        desk.finish("holder")
        bed.wait(lambda: shown.item(space, "workflow/nightly").get("state") != "queued", "it to start on the page")
        assert time.monotonic() - began < 60
        assert until_over(bed, space, "nightly")["status"]["phase"] == "Succeeded"
        bed.wait(lambda: not shown.item(space, "workflow/nightly"), "it to leave the page")


def test_a_workflow_that_nobody_queues_says_so(bed: Testbed, shown: Shown) -> None:
    desk = Desk(bed)
    desk.queue("main", "2")
    document = flow("alone", [step("a", "train")], fake("train", cpu="1"), suspend=True)
    document["metadata"]["labels"] = {QUEUE: "main"}
    create(bed, desk.namespace, document)
    bed.wait(lambda: shown.item(desk.namespace, "workflow/alone"), "the page to have it")
    assert "Penstock's controller is not in this cluster" in shown.item(desk.namespace, "workflow/alone")["reason"]
