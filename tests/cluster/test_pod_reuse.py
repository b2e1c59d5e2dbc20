"""Warm pods (PENSTOCK_KUBERNETES_POD_REUSE) on the real node of the testbed: many functions in few pods, also when the engine or a pod is killed."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from testbed.images import host_python
from testbed.instance import Testbed
from tests.cluster.test_backend_kubernetes import Place, place_on

FLOW = """
import os, time
from penstock import task, workflow

@task(cache=False)
def square(x: int) -> int:
    print("squaring", x)
    return x * x

@task(cache=False)
def mark(place: str, x: int, seconds: float) -> int:
    with open(f"{place}/{x}", "a") as file:
        file.write("x")
    time.sleep(seconds)
    return x

@task(cache=False, timeout=2)
def late(seconds: float) -> int:
    time.sleep(seconds)
    return 1

@workflow
def squares(n: int = 200):
    return [square(x) for x in range(n)]

@workflow
def marks(place: str, n: int = 40, seconds: float = 0.2):
    return [mark(place, x, seconds) for x in range(n)]

@workflow
def limits():
    return [late(seconds) for seconds in [0.1, 60.0, 0.2]]
"""


@pytest.fixture
def real(testbed: Callable[..., Testbed], tmp_path: Path) -> Place:
    tmp_path.chmod(0o755)
    place = place_on(testbed("kwok", "node"), tmp_path, real=True)
    place.write("flow.py", FLOW)
    place.env["PENSTOCK_KUBERNETES_POD_REUSE"] = "4"
    return place


def marks(place: Place) -> dict[int, str]:
    folder = place.folder / "home" / "artifacts" / "marks"
    return {int(file.name): file.read_text() for file in folder.iterdir()}


def marking(place: Place) -> tuple[str, ...]:
    (place.folder / "home" / "artifacts" / "marks").mkdir(parents=True)
    return ("run", "flow.py:marks", "-p", "place=/penstock/artifacts/marks", "--on", "kubernetes", "-o", "json")


def test_two_hundred_functions_in_four_pods(real: Place) -> None:
    found = real.result("flow.py:squares", "--on", "kubernetes")
    assert found["outputs"]["result"] == [number**2 for number in range(200)]
    _, log, _ = real.run("logs", f"{found['run']}/square[7]")
    assert "squaring 7" in log
    real.nothing_is_left()


def test_a_time_limit_holds_and_the_pods_go_on(real: Place) -> None:
    code, out, _ = real.run("run", "flow.py:limits", "--on", "kubernetes", "-o", "json")
    assert code == 3 and "timed out after 2 s" in out
    real.nothing_is_left()


def test_warm_pods_with_a_store_behind_a_url(real: Place) -> None:
    shared = real.folder / "shared"
    shared.mkdir(mode=0o777)
    python = host_python(Path(fsspec.__file__).parents[1])
    mounts = [*python["volumeMounts"], {"name": "shared", "mountPath": str(shared)}]
    inside = {"volumeMounts": mounts, "env": [one for one in python["env"] if one["value"]]}
    volumes = [*python["volumes"], {"name": "shared", "hostPath": {"path": str(shared)}}]
    template = {
        "spec": {"nodeSelector": {"type": "real"}, "volumes": volumes, "containers": [{"name": "main", **inside}]}
    }
    (real.folder / "pods.yaml").write_text(json.dumps(template))
    url = {"PENSTOCK_ARTIFACTS": f"file://{shared}/store", "PENSTOCK_KUBERNETES_VOLUME": ""}
    found = real.result("flow.py:squares", "-p", "n=20", "--on", "kubernetes", **url)
    assert found["outputs"]["result"] == [number**2 for number in range(20)]
    real.nothing_is_left()


def test_a_killed_engine_finds_its_calls_again(real: Place) -> None:
    words, chance = marking(real), random.Random(7)
    engine = real.start(*words)
    try:
        real.bed.wait(lambda: marks(real) or None, "a call")
        for _ in range(4):
            engine.send_signal(signal.SIGKILL)
            engine.communicate()
            engine = real.start(*words)
            time.sleep(chance.uniform(0.5, 2.0))  # a moment of its life, whatever it does then
        out, err = engine.communicate(timeout=180)
    finally:
        engine.kill()
    assert engine.returncode == 0, err
    assert json.loads(out)["outputs"]["result"] == list(range(40))
    assert marks(real) == dict.fromkeys(range(40), "x")


def test_a_pod_that_is_deleted_costs_one_call(real: Place) -> None:
    engine = real.start(*marking(real))
    try:
        real.bed.wait(lambda: len(marks(real)) > 4 or None, "some calls")
        pod = next(one for one in real.pods() if one["status"]["phase"] == "Running")
        real.bed.delete(f"/api/v1/namespaces/{real.namespace}/pods/{pod['metadata']['name']}")
        out, err = engine.communicate(timeout=180)
    finally:
        engine.kill()
    assert engine.returncode == 0, err
    assert json.loads(out)["outputs"]["result"] == list(range(40))
    assert sum(len(text) for text in marks(real).values()) <= 41
    real.nothing_is_left()
