"""The backend `kubernetes` where pods are fake, so that there can be many, and end when the test says so: the shape of runs, nodes that die, engines that are killed."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts import values
from penstock.artifacts.blobs import Blobs
from testbed.api import MERGE
from testbed.components.kwok import EXIT_CODE, RESULT, RUN_TIME
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster.test_backend_kubernetes import MANY, Place, overlay, place_on

LASTS = "3s"
"""Of a pod that is to be seen: long enough for who looks five times a second."""


@pytest.fixture
def fake(testbed: Callable[..., Testbed], tmp_path: Path) -> Place:
    return place_on(testbed("kwok"), tmp_path, real=False)


def pods_last(fake: Place, how_long: str, **selector: str) -> None:
    """Of all pods that are made from now on."""
    found = overlay(real=False)
    found["metadata"] = {"annotations": {RUN_TIME: how_long}}
    found["spec"]["nodeSelector"] |= selector
    (fake.folder / "pods.yaml").write_text(json.dumps(found))


def ends(fake: Place, pod: str, milliseconds: int = 0) -> None:
    """Lets a pod that runs for ever end, so much later."""
    change = {"metadata": {"annotations": {RUN_TIME: f"{milliseconds}ms"}}}
    try:
        fake.bed.raw("PATCH", f"/api/v1/namespaces/{fake.namespace}/pods/{pod}", change, MERGE)
    except ApiError as error:
        if error.code != 404:
            raise


@contextmanager
def looking(look: Callable[[], None]) -> Iterator[None]:
    """Calls it five times a second meanwhile, and once in the end."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            look()
            over.wait(0.2)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        look()


def steps_of(fake: Place, *words: str) -> tuple[int, dict[str, Any], Counter[str]]:
    """Runs it, and counts the pods that there ever were by step."""
    seen: dict[str, str] = {}

    def look() -> None:
        seen.update({one["metadata"]["name"]: one["metadata"]["labels"]["penstock/step"] for one in fake.pods()})

    with looking(look):
        code, out, err = fake.run("run", *words, "--on", "kubernetes", "-o", "json")
    assert out, err
    return code, json.loads(out), Counter(seen.values())


def result(fake: Place, **outputs: Any) -> dict[str, Any]:
    """Metadata of a pod that leaves these outputs: they are in the artifact store already."""
    digest = Blobs(fake.folder / "home" / "artifacts").put(values.dumps(outputs).encode())
    return {"metadata": {"annotations": {RESULT: json.dumps({"result": digest})}}}


def step(name: str, **more: Any) -> dict[str, Any]:
    script = {"source": "true", "image": "busybox:testbed"}
    return {"name": name, "cache": {"enabled": False}, "script": script, **more}


def write(fake: Place, *steps: dict[str, Any]) -> None:
    document = {"apiVersion": "penstock/v1", "kind": "Workflow", "name": "shape", "steps": list(steps)}
    fake.write("shape.yaml", json.dumps(document))


# -- shape ------------------------------------------------------------------------------------------------------------


def test_a_dynamic_fan_out_of_two_hundred_and_a_loop(fake: Place) -> None:
    """The items are what a pod has left, so nobody knew before it ended how many there are."""
    items, number = [{"name": "items", "type": "list[int]"}], [{"name": "n", "type": "int"}]
    write(
        fake,
        step("shards", outputs=items, extra=result(fake, items=list(range(200)))),
        step("one", each={"axes": [{"i": "${{ steps.shards.outputs.items }}"}]}),
        step(
            "again", outputs=number, extra=result(fake, n=7), loop={"condition": "outputs.n < 9", "max_iterations": 3}
        ),
        step("last", needs=["one", "again"]),
    )
    pods_last(fake, LASTS)
    code, found, seen = steps_of(fake, "shape.yaml")
    assert (code, found["state"]) == (0, "succeeded"), found
    assert seen == {"shards": 1, "one": 200, "again": 3, "last": 1}
    fake.nothing_is_left()


def test_retries(fake: Place) -> None:
    write(
        fake,
        step(
            "moody",
            retry={"limit": 2, "backoff": {"initial": 0.1}},
            extra={"metadata": {"annotations": {EXIT_CODE: "4"}}},
        ),
    )
    pods_last(fake, LASTS)
    code, found, seen = steps_of(fake, "shape.yaml")
    assert code == 3 and "exit code 4" in json.dumps(found["failures"])
    assert seen == {"moody": 3}
    fake.nothing_is_left()


def test_the_pods_of_a_gang_have_addresses(fake: Place) -> None:
    """Nothing answers names here. What a cluster's DNS serves them from is made: endpoints of a headless Service with the names of the hosts."""
    write(fake, step("gang", replicas=4))
    pods_last(fake, "forever")
    engine = fake.start("run", "shape.yaml", "--on", "kubernetes", "-o", "json")

    def hosts() -> list[str]:
        slices = fake.bed.objects("discovery.k8s.io/v1", "endpointslices", fake.namespace)
        return sorted(one.get("hostname", "") for part in slices for one in part["endpoints"] or ())

    try:
        (job,) = fake.bed.wait(fake.jobs, "the Job")
        name = job["metadata"]["name"]
        fake.bed.wait(lambda: hosts() == [f"{name}-{number}" for number in range(4)], "the addresses of all four")
        pods = fake.pods()
        assert {one["spec"]["subdomain"] for one in pods} == {name}
        for pod in pods:
            env = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
            assert env["PENSTOCK_COORDINATOR"] == f"{name}-0.{name}"
            ends(fake, pod["metadata"]["name"])
        out, err = engine.communicate(timeout=120)
    finally:
        engine.kill()
    assert engine.returncode == 0, err + out
    fake.nothing_is_left()
    fake.bed.wait(lambda: not fake.bed.objects("v1", "services", fake.namespace), "the Service to be gone")


# -- what goes wrong --------------------------------------------------------------------------------------------------


@contextmanager
def node(fake: Place, name: str, labels: dict[str, str]) -> Iterator[None]:
    """Another fake node, as large as the first."""
    like = fake.bed.get("/api/v1/nodes/kwok-0")
    made = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"type": "kwok", **labels}},
        "spec": {"taints": [one for one in like["spec"].get("taints", ()) if one["key"].startswith("kwok")]},
        "status": {"allocatable": like["status"]["allocatable"], "capacity": like["status"]["capacity"]},
    }
    fake.bed.apply([made])
    try:
        yield
    finally:
        gone(fake, name)


def gone(fake: Place, name: str) -> None:
    if fake.bed.found(f"/api/v1/nodes/{name}"):
        fake.bed.delete(f"/api/v1/nodes/{name}")


@pytest.mark.slow
def test_a_node_that_dies_is_no_failure_of_its_tasks(fake: Place) -> None:
    """Kubernetes gives up the pods of a node that is gone after a minute; the task has no retries, and succeeds."""
    first, second = f"{fake.namespace}-first", f"{fake.namespace}-second"
    labels = {"of": fake.namespace}
    fake.write("many.yaml", MANY)
    pods_last(fake, "forever", **labels)
    with node(fake, first, labels):
        engine = fake.start("run", "many.yaml", "-p", "n=[1]", "--on", "kubernetes", "-o", "json")
        try:
            on = lambda: {one["spec"].get("nodeName"): one["metadata"]["name"] for one in fake.pods()}
            fake.bed.wait(lambda: first in on(), "the pod to be on the node")
            gone(fake, first)
            with node(fake, second, labels):
                fake.bed.wait(lambda: second in on(), "the task to be on the other node")
                ends(fake, on()[second])
                out, err = engine.communicate(timeout=120)
        finally:
            engine.kill()
    assert engine.returncode == 0, err
    found = json.loads(out)
    assert found["state"] == "succeeded" and not found.get("failures")
    fake.nothing_is_left()


class Crowd:
    """Pods that there ever were. Each runs until it is told to end; a few are told, again and again, while engines die."""

    def __init__(self, fake: Place, chance: random.Random) -> None:
        self.fake, self.chance = fake, chance
        self.seen: set[str] = set()
        self.told: set[str] = set()
        self.to_tell = 0
        self.everyone = False

    def look(self) -> None:
        running = [one["metadata"]["name"] for one in self.fake.pods() if one["status"]["phase"] == "Running"]
        self.seen.update(one["metadata"]["name"] for one in self.fake.pods())
        waiting = [name for name in running if name not in self.told]
        count = len(waiting) if self.everyone else min(self.to_tell, len(waiting))
        for name in self.chance.sample(waiting, count):
            ends(self.fake, name, 0 if self.everyone else self.chance.randrange(100, 2000))
            self.told.add(name)
        self.to_tell -= min(count, self.to_tell)


@pytest.mark.slow
def test_kills_at_any_moment_start_nothing_twice(fake: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts the pods that there ever were: a task without a second pod has had its effect once. Fifty tasks are in flight, and some end around each death,
    so that engines also die while they read an end, record it, and remove its Job."""
    kills, flight, each = int(os.environ.get("PENSTOCK_KILLS", "100")), 50, 4
    tasks = flight + kills * each
    crowd = Crowd(fake, random.Random(11))
    fake.write("many.yaml", MANY)
    pods_last(fake, "forever")
    fake.env["PENSTOCK_KUBERNETES_PODS"] = str(flight)
    words = ("run", "many.yaml", "-p", f"n={list(range(tasks))}", "--on", "kubernetes")
    began = time.monotonic()
    with looking(crowd.look):
        for number in range(kills):
            engine = fake.start(*words)
            try:
                if number == 0:
                    fake.bed.wait(fake.jobs, "a Job")
                    lasts = time.monotonic() - began  # this machine may be busy
                else:
                    crowd.to_tell = each
                    time.sleep(lasts * crowd.chance.uniform(0.3, 3.0))
            finally:
                engine.kill()
                engine.communicate()
        seconds, before = time.monotonic() - began, len(crowd.seen)
        crowd.everyone = True
        engine = fake.start(*words)
        try:
            _, err = engine.communicate(timeout=300)
        finally:
            engine.kill()
    assert engine.returncode == 0, err
    assert len(crowd.seen) == tasks
    assert before > flight + kills // 4, "too few tasks ended while engines died for this to show anything"
    with capsys.disabled():
        print(f"\n{kills} kills in {seconds:.0f} s; {before - flight} of {tasks} tasks ended meanwhile, each once")
    fake.nothing_is_left()
