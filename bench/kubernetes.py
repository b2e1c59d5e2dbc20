"""What tasks on a cluster cost the engine; nothing where the testbed is not built. Called by __main__.

jobs     1,000 tasks as Jobs, from `penstock run` to its end, beside a bare client that creates the same Jobs in 16 threads and watches them in
         the same cluster, until the last one is complete; pods are played by kwok
running  500 pods that run for ever: the processor time of the engine
many     10,000 tasks in flight: the memory of the engine. Their pods fit nowhere, as no machine has so many
reuse    functions that do nothing, through 4 warm pods on the real node, when these are up
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.measure import Figure
from penstock.backends.kubernetes.cluster import JOBS
from penstock.controller.objects import holds
from penstock.kubernetes.client import Client
from penstock.kubernetes.kubeconfig import connect
from testbed import binaries
from testbed.components import programs
from testbed.errors import TestbedError
from testbed.instance import Testbed
from tests.cluster.test_backend_kubernetes import Place, overlay, place_on

TASKS, RUNNING, IN_FLIGHT, CALLS = 1000, 500, 10_000, 5000
WRITERS = 16
WATCHED = 20.0
"""Seconds over which the engine is watched while pods run."""
NODES = 12
MANY = """
apiVersion: penstock/v1
kind: Workflow
name: many
params: [{name: n, type: int}]
steps:
  - name: one
    each: {axes: [{i: "${{ range(0, params.n) }}"}]}
    cache: {enabled: false}
    script: {source: "true", image: "busybox:testbed"}
"""
CALL = """
from penstock import task, workflow

@task(cache=False)
def one(x: int) -> int:
    return x

@task(cache=False)
def other(x: int, after: int) -> int:
    return x

@workflow
def calls(n: int):
    warm = [one(x) for x in range(100)]
    return [other(x, len(warm)) for x in range(n)]
"""


def figures() -> Iterator[Figure]:
    if not binaries.missing(programs(("kwok",))):
        with tempfile.TemporaryDirectory() as folder, Testbed.start("kwok", nodes=NODES) as bed:
            for part in (_jobs, _running, _many):
                place = Path(folder, part.__name__)
                place.mkdir()
                yield from part(_place(bed, place, real=False))
    if not binaries.missing(programs(("kwok", "node"))):
        yield from _on_the_node()


def _on_the_node() -> Iterator[Figure]:
    try:
        bed = Testbed.start("kwok", "node")
    except TestbedError as error:
        if "the real node needs" in str(error):
            return  # root
        raise
    with tempfile.TemporaryDirectory() as folder, bed:
        Path(folder).chmod(0o755)
        yield from _reuse(_place(bed, Path(folder), real=True))


def _place(bed: Testbed, folder: Path, real: bool) -> Place:
    place = place_on(bed, folder, real)
    place.write("many.yaml", MANY)
    place.write("calls.py", CALL)
    return place


def _pods(place: Place, **template: Any) -> None:
    """What all pods of the next run are to have."""
    place.write("pods.yaml", json.dumps({**overlay(False), **template}))


# -- jobs -------------------------------------------------------------------------------------------------------------


def _jobs(place: Place) -> Iterator[Figure]:
    place.result("many.yaml", "-p", "n=20", "--on", "kubernetes")  # the caches of the cluster are warm
    bare = _bare(place)
    began = time.monotonic()
    place.result("many.yaml", "-p", f"n={TASKS}", "--on", "kubernetes")
    took = time.monotonic() - began
    yield Figure(f"kubernetes: {TASKS} tasks as Jobs", took, 1.3 * bare, bare=bare, bare_name="bare client")


def _bare(place: Place) -> float:
    """Seconds in which a client creates Jobs like ours and sees the last one complete."""
    kind = replace(JOBS, selector="bench=bare")
    with Client(connect(files=[place.bed.kubeconfig])) as client:
        done: set[str] = set()
        over = threading.Event()
        version = client.list(kind, place.namespace).version

        def watch() -> None:
            with client.watch(kind, version, namespace=place.namespace, seconds=1800) as stream:
                for event in stream:
                    if event["type"] == "MODIFIED" and holds(event["object"], "Complete"):
                        done.add(event["object"]["metadata"]["name"])
                    if len(done) == TASKS:
                        break
            over.set()

        threading.Thread(target=watch, daemon=True).start()
        began = time.monotonic()
        with ThreadPoolExecutor(WRITERS) as threads:
            list(threads.map(lambda number: client.create(JOBS, place.namespace, _job(number)), range(TASKS)))
        assert over.wait(1800), f"{len(done)} Jobs of the bare client are complete"
        took = time.monotonic() - began
        options = json.dumps({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})
        client.raw("DELETE", JOBS.path(place.namespace), json.loads(options))
        place.nothing_is_left()
    return took


def _job(number: int) -> dict[str, Any]:
    labels = {"bench": "bare"}
    main = {"name": "main", "image": "busybox:testbed", "command": ["sh", "-c", "true"]}
    spec = {"restartPolicy": "Never", **overlay(False)["spec"], "containers": [main]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    counts = {"backoffLimit": 0, "completions": 1, "parallelism": 1, "completionMode": "Indexed"}
    meta = {"name": f"bare-{number}", "labels": labels}
    return {"metadata": meta, "spec": {**counts, "podReplacementPolicy": "Failed", "template": template}}


# -- pods that stay ---------------------------------------------------------------------------------------------------


def _running(place: Place) -> Iterator[Figure]:
    _pods(place, metadata={"annotations": {"testbed.penstock/run-time": "forever"}})
    with _Engine(place, RUNNING, lambda: _up(place) == RUNNING or None) as engine:
        time.sleep(10)  # what begins has begun
        before = engine.processor_time()
        time.sleep(WATCHED)
        share = 100 * (engine.processor_time() - before) / WATCHED
        yield Figure(f"kubernetes: engine while {RUNNING} pods run", share, 15.0, "%")


def _up(place: Place) -> int:
    return sum(one["status"].get("phase") == "Running" for one in place.pods())


def _many(place: Place) -> Iterator[Figure]:
    place.env["PENSTOCK_KUBERNETES_PODS"] = str(IN_FLIGHT)
    place.write("pods.yaml", json.dumps({"spec": {"nodeSelector": {"nowhere": "yes"}}}))
    with Client(connect(files=[place.bed.kubeconfig])) as client:

        def made() -> bool:
            time.sleep(2)  # a list of all is dear
            page = client.raw("GET", JOBS.path(place.namespace), params={"limit": "1"})
            return int(page["metadata"].get("remainingItemCount", 0)) + 1 >= IN_FLIGHT

        with _Engine(place, IN_FLIGHT, made) as engine:
            yield Figure(f"kubernetes: {IN_FLIGHT} tasks in flight, memory", engine.memory() / 1e6, 600.0, "MB")


class _Engine:
    """`penstock run` until `there`; killed at the end. What it leaves goes with the cluster."""

    def __init__(self, place: Place, tasks: int, there: Callable[[], Any]) -> None:
        self._place = place
        self._tasks = tasks
        self._there = there
        self._process: subprocess.Popen[Any] | None = None

    def __enter__(self) -> _Engine:
        words = ("run", "many.yaml", "-p", f"n={self._tasks}", "--on", "kubernetes", "-o", "json")
        self._process = self._place.start(*words)
        try:
            self._place.bed.wait(self._there, f"{self._tasks} tasks", 1800)
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def _file(self, name: str) -> str:
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}/{name}").read_text()

    def processor_time(self) -> float:
        words = self._file("stat").rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """The most that it has had, in bytes."""
        line = next(one for one in self._file("status").splitlines() if one.startswith("VmHWM"))
        return int(line.split()[1]) * 1024


# -- warm pods --------------------------------------------------------------------------------------------------------


def _reuse(place: Place) -> Iterator[Figure]:
    place.env["PENSTOCK_KUBERNETES_POD_REUSE"] = "4"
    found = place.result("calls.py", "-p", f"n={CALLS}", "--on", "kubernetes")
    assert found["outputs"]["result"] == list(range(CALLS))
    _, shown, _ = place.run("show", found["run"], "-o", "json")
    step = next(one for one in json.loads(shown)["steps"] if one["step"] == "other")
    per_call = 1000 * (step["ended"] - step["started"]) / CALLS
    yield Figure(f"kubernetes: {CALLS} functions through 4 warm pods, each", per_call, 1000 / 300, "ms")
