"""`penstock run --on kubernetes` where the real YuniKorn decides (PENSTOCK_SCHEDULER=yunikorn): tasks wait in its queues, replicas start together, and what it takes
back or refuses is told from a failure. Nodes are fake."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from testbed.api import MERGE
from testbed.components import yunikorn
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster import test_yunikorn as real
from tests.cluster.test_backend_kubernetes import Place, overlay, place_on
from tests.cluster.test_backend_kubernetes_fake import ends, looking

QUEUES = """
partitions:
- name: default
  placementrules:
  - {name: provided, create: false}
  - {name: tag, value: namespace, create: true}
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: small
      resources: {max: {vcore: 4}}
    - name: org
      queues:
      - name: busy
      - name: owner
        properties: {preemption.delay: 1s}
        resources: {guaranteed: {vcore: 16}}
"""


@pytest.fixture
def place(testbed: Callable[..., Testbed], tmp_path: Path) -> Iterator[Place]:
    """With the queues that the other tests of YuniKorn expect, in the end."""
    bed = testbed("kwok", "yunikorn")
    yunikorn.configure(bed, QUEUES)
    made = place_on(bed, tmp_path, real=False)
    made.env["PENSTOCK_SCHEDULER"] = "yunikorn"
    lasting(made, "forever")
    yield made
    bed.raw("DELETE", f"/apis/batch/v1/namespaces/{made.namespace}/jobs", {"propagationPolicy": "Background"})
    bed.delete(f"/api/v1/namespaces/{made.namespace}/pods")
    node = lambda: all(real.held(one) == 0 for one in yunikorn.rest(bed, "partition/default/nodes"))
    bed.wait(node, "the node to be empty")
    yunikorn.configure(bed, real.QUEUES)


def lasting(place: Place, time: str) -> None:
    """How long pods run that are made from now on."""
    template = {**overlay(False), "metadata": {"annotations": {"testbed.penstock/run-time": time}}}
    (place.folder / "pods.yaml").write_text(json.dumps(template))


def write(place: Place, **step: Any) -> tuple[str, ...]:
    one = {"name": "one", "cache": {"enabled": False}, "script": {"source": "true", "image": "busybox:testbed"}}
    document = {"apiVersion": "penstock/v1", "kind": "Workflow", "name": "flow", "steps": [{**one, **step}]}
    place.write("flow.yaml", json.dumps(document))
    return ("run", "flow.yaml", "--on", "kubernetes", "-o", "json")


def running(place: Place) -> list[str]:
    """Tasks; placeholders are none."""
    return [name for name, phase in real.phases(place.bed, place.namespace).items() if phase == "Running"]


def kill_deleted(place: Place) -> None:
    """As a kubelet does: what is deleted while it runs is killed. Fake nodes leave pods that a Job still wants to count."""
    dead = {
        "name": "main",
        "image": "x",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": {"exitCode": 143, "reason": "Error"}},
    }
    for pod in place.pods():
        if "deletionTimestamp" in pod["metadata"] and pod["status"]["phase"] == "Running":
            status = {"status": {"phase": "Failed", "containerStatuses": [dead]}}
            path = f"/api/v1/namespaces/{place.namespace}/pods/{pod['metadata']['name']}/status"
            with suppress(ApiError):  # it is gone
                place.bed.raw("PATCH", path, status, MERGE)


def test_tasks_wait_in_their_queue(place: Place) -> None:
    words = write(place, each={"axes": [{"i": [1, 2, 3]}]}, resources={"cpu": "2"})
    engine = place.start(*words, "--queue", "small")
    try:
        place.bed.wait(lambda: (len(running(place)) == 2 and len(place.pods()) == 3) or None, "two of three to run")
        queues = yunikorn.rest(place.bed, "partition/default/queue/root.small")
        assert queues["allocatedResource"]["vcore"] == 4000
        _, said, _ = place.run("why", "@")
        assert "the queue small of yunikorn" in said
        while engine.poll() is None:
            for name in running(place):
                ends(place, name)
            place.bed.wait(lambda: running(place) or engine.poll() is not None, "a task to run, or all to be over")
        out, err = engine.communicate(timeout=120)
    finally:
        engine.kill()
    assert engine.returncode == 0 and json.loads(out)["state"] == "succeeded", err
    place.nothing_is_left()


def test_replicas_start_together_and_never_by_half(place: Place) -> None:
    real.create(place.bed, place.namespace, "other", 2, {"labels": {f"{real.DOMAIN}/queue": "root.small"}})
    place.bed.wait(lambda: "other" in running(place), "another pod to hold a part of the queue")
    engine = place.start(*write(place, replicas=3, resources={"cpu": "1"}), "--queue", "small")
    try:
        place.bed.wait(lambda: len(real.pods(place.bed, place.namespace)[1]) == 3 or None, "three placeholders")
        place.bed.wait(
            lambda: (
                sum(one["status"]["phase"] == "Running" for one in real.pods(place.bed, place.namespace)[1]) == 2
                or None
            ),
            "two of the placeholders to find room",
        )
        assert running(place) == ["other"]
        real.end(place.bed, place.namespace, "other")
        for name in place.bed.wait(lambda: len(running(place)) == 3 and running(place), "all three to run"):
            ends(place, name)
        _, err = engine.communicate(timeout=120)
    finally:
        engine.kill()
    assert engine.returncode == 0, err


def test_what_a_queue_never_takes_is_said_at_once_and_nothing_is_left(place: Place) -> None:
    code, out, err = place.run(*write(place, replicas=3, resources={"cpu": "2"}), "--queue", "small")
    assert code == 3 and "P724 the queue small of yunikorn does not take it" in out, out + err
    place.nothing_is_left()


def test_what_is_preempted_waits_again_and_has_not_failed(place: Place) -> None:
    with looking(lambda: kill_deleted(place)):
        _preempted(place)


def _preempted(place: Place) -> None:
    busy = place.start(
        *write(place, each={"axes": [{"i": [1, 2, 3, 4, 5]}]}, resources={"cpu": "6"}), "--queue", "org.busy"
    )
    try:
        place.bed.wait(lambda: len(running(place)) == 5 or None, "the queue to be busy")
        for name in ("a", "b"):
            real.create(
                place.bed,
                place.namespace,
                name,
                6,
                {"labels": {f"{real.DOMAIN}/queue": "root.org.owner", f"{real.DOMAIN}/app-id": name}},
            )
        place.bed.wait(lambda: {"a", "b"} <= set(running(place)) or None, "the owner of the guarantee to run")
        for name in ("a", "b"):
            real.end(place.bed, place.namespace, name)
        place.bed.wait(lambda: len(set(running(place)) - {"a", "b"}) == 5 or None, "all five to run again")
        for name in set(running(place)) - {"a", "b"}:
            ends(place, name)
        out, err = busy.communicate(timeout=120)
    finally:
        busy.kill()
    found = json.loads(out)
    assert busy.returncode == 0 and found["state"] == "succeeded" and not found.get("failures"), err
