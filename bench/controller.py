"""What the controller costs on the real Argo and Kueue, beside bare Kueue in the same run; only `pods` where the testbed is not built. Called by __main__.

pods      one answer of the webhook about a pod, in stages of 250 to 2,000 pods that come one after another; pure, so it needs no testbed
gate      from a stage that is reached to its gate open, beside a bare Workload from created to Admitted
writes    requests of ours for one stage of 1, 10 and 50 pods, Events too; what gives back finished pods is apart
waiting   250, 500 and 1,000 workflows of three stages in a full queue: memory, idle time, how long a restart takes, and how that grows
"""

from __future__ import annotations

import base64
import json
import os
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.measure import Figure
from penstock.controller.cluster.main import Controller
from penstock.controller.engine import Shape, Stage
from penstock.controller.engines.argo import ENGINE
from penstock.controller.engines.argo.nodes import fnv1a
from penstock.controller.engines.argo.stopping import WORKFLOWS
from penstock.controller.objects import PODS, WORKLOADS, ApiResource, Object, holds
from penstock.controller.workload import build
from penstock.formats.argo.gate.inject import GATE
from penstock.kubernetes.client import ApiError, Client
from penstock.kubernetes.kubeconfig import connect
from testbed import binaries
from testbed.components import programs
from testbed.instance import Testbed
from tests.cluster.argo_runs import create, fake, flow, step, until_over
from tests.cluster.controlled import Controlled
from tests.cluster.kueue_protocol import Desk

PARTS = ("kueue", "kwok", "argo")
EVERY_WORKLOAD = replace(WORKLOADS, selector="")
QUEUE = "kueue.x-k8s.io/queue-name"
PAIRS = 15
IDLE = 20.0
"""Seconds over which an idle controller is watched."""
WIDTHS = (1, 10, 50)
CROWDS = (250, 500, 1000)
LINEAR = CROWDS[-1] / CROWDS[0]
"""Times as much for the largest crowd as for the smallest, if cost grows with the number. A fixed part makes it less."""
NOISE = 1.25
"""Of times, which are measured once."""
STAGES = (250, 500, 1000, 2000)
LAST = 100
"""Pods of which the answers are timed."""
WORKLOAD = "w-main"


class Moments:
    """When this process first saw each state of Workflows' gates and of Workloads."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.seen: dict[str, float] = {}
        self._threads = [
            threading.Thread(target=self._watch, args=(one, client.list(one).version), daemon=True)
            for one in (WORKFLOWS, EVERY_WORKLOAD)
        ]
        for thread in self._threads:
            thread.start()

    def _watch(self, resource: ApiResource, version: str) -> None:
        while True:
            try:
                with self.client.watch(resource, version, seconds=60) as stream:
                    for event in stream:
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            self._take(event["object"], time.monotonic())
            except ApiError:
                return  # the testbed is gone

    def _take(self, obj: Object, now: float) -> None:
        name = obj["metadata"]["name"]
        if obj["kind"] == "Workload":
            self.seen.setdefault(f"{name} created", now)
            if holds(obj, "Admitted"):
                self.seen.setdefault(f"{name} admitted", now)
            return
        for node in (obj.get("status", {}).get("nodes") or {}).values():
            if node["displayName"].startswith("penstock-gate"):
                self.seen.setdefault(f"{name} {node['id']} {node['phase']}", now)

    def gates(self, name: str) -> list[float]:
        """Seconds from reached to open, of each gate of a workflow."""
        ready = [key for key in self.seen if key.startswith(f"{name} ") and key.endswith(" Running")]
        return [self.seen[key.replace(" Running", " Succeeded")] - self.seen[key] for key in ready]


def figures() -> Iterator[Figure]:
    yield from _pods()
    if binaries.missing(programs(PARTS)):
        return
    with Testbed.start(*PARTS) as bed, Client(connect(files=[bed.kubeconfig])) as client:
        desk = Desk(bed)
        desk.queue("main", "64")
        desk.queue("full", "1")
        desk.workload("filler", queue="full")
        with Controlled(bed, ["argo"]) as controller:
            yield from _gate(bed, desk, Moments(client))
            yield from _writes(bed, desk, controller)
            yield from _waiting(bed, desk, controller)


# -- pods -------------------------------------------------------------------------------------------------------------


def _pods() -> Iterator[Figure]:
    base = 0.0
    for width in STAGES:
        took = 1000 * _answer(width)
        base = base or took
        bar = 5.0 if width == STAGES[-1] else None
        yield Figure(
            f"controller: answer about a pod, stage of {width}, mean", took, bar, "ms", base, f"of {STAGES[0]} pods"
        )


def _answer(width: int) -> float:
    """Seconds of the processor, the mean of the last pods of a stage that all come at once: each is let go, stored and seen before the next."""
    controller = Controller([ENGINE])
    hear = getattr(controller, "noticed", None)

    def put(resource: ApiResource, obj: Object) -> None:
        change = controller.caches[resource].put(obj)
        key = controller.owner_of({**obj, "apiVersion": resource.api, "kind": resource.kind})
        if change is not None and hear is not None:
            hear(change, [key] if key else [])

    main = _running(width)
    put(WORKFLOWS, main)
    put(WORKLOADS, _admitted(main, width))
    for number in range(width - LAST):
        put(PODS, _pod(main, number, f"{WORKLOAD}/main"))
    took = 0.0
    for number in range(width - LAST, width):
        new = _pod(main, number)
        began = time.process_time()
        answer = controller.admit_pod({"namespace": "team", "object": new})
        took += time.process_time() - began
        assert b"pod-set" in base64.b64decode(answer["patch"])
        put(PODS, _pod(main, number, f"{WORKLOAD}/main"))
    return took / LAST


def _running(width: int) -> Object:
    """A Workflow whose stage of so many pods is let go."""
    shape = json.dumps([{"n": width, "step": "s", "template": "t", "resources": {"cpu": "1"}}])
    given = [{"name": "stage", "value": "main[0]"}, {"name": "shape", "value": shape}]
    gate = {"name": "w[0].penstock-gate-0", "displayName": "penstock-gate-0", "type": "Suspend", "phase": "Succeeded"}
    gate |= {"templateName": GATE, "boundaryID": "w", "inputs": {"parameters": given}}
    nodes = {
        "w": {"name": "w", "type": "Steps", "phase": "Running", "templateName": "main"},
        "w-0": {"id": "w-0", **gate},
    }
    for number in range(width):
        name = f"w[1].s({number})"
        node = {"name": name, "type": "Pod", "phase": "Pending", "templateName": "t", "boundaryID": "w"}
        nodes[f"w-{fnv1a(name)}"] = node
    metadata = {"name": "w", "namespace": "team", "uid": "u", "resourceVersion": "5", "labels": {QUEUE: "q"}}
    return {"metadata": metadata, "spec": {}, "status": {"phase": "Running", "nodes": nodes}}


def _admitted(main: Object, width: int) -> Object:
    stage = Stage("main[0]", "main[0]", "open", (Shape(width, {"cpu": 1000}),))
    body = build({**main, "apiVersion": WORKFLOWS.api, "kind": WORKFLOWS.kind}, stage, "q", None).body
    sets = [{"name": "main", "count": width, "flavors": {}}]
    states = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
    status = {"admission": {"podSetAssignments": sets}, "conditions": states}
    return {**body, "metadata": {**body["metadata"], "name": WORKLOAD, "resourceVersion": "6"}, "status": status}


def _pod(main: Object, number: int, pod_set: str = "") -> Object:
    node = f"w[1].s({number})"
    owner = {"apiVersion": WORKFLOWS.api, "kind": "Workflow", "name": "w", "uid": "u", "controller": True}
    notes = {"workflows.argoproj.io/node-name": node} | ({"penstock/pod-set": pod_set} if pod_set else {})
    name = f"w-t-{fnv1a(node)}"
    metadata = {"name": name, "namespace": "team", "labels": {"penstock/queue": "q"}, "annotations": notes}
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    if not pod_set:
        spec["schedulingGates"] = [{"name": "penstock/admission"}]
    seen = {"uid": name, "resourceVersion": str(100 + number)} if pod_set else {}
    return {"metadata": {**metadata, **seen, "ownerReferences": [owner]}, "spec": spec, "status": {"phase": "Pending"}}


def _document(name: str, *widths: int, queue: str = "main", run_time: str = "0.2s") -> Object:
    steps: list[Any] = []
    for number, width in enumerate(widths):
        steps.append([{**step(f"s{number}", "task")[0], "withItems": list(range(width))}])
    made = flow(name, steps, fake("task", run_time=run_time, cpu="100m"))
    made["metadata"]["labels"] = {QUEUE: queue}
    return made


# -- gate -------------------------------------------------------------------------------------------------------------


def _gate(bed: Testbed, desk: Desk, moments: Moments) -> Iterator[Figure]:
    ours: list[float] = []
    bare: list[float] = []
    for number in range(PAIRS):
        name = f"bare-{number}"
        desk.workload(name)
        bed.wait(lambda n=name: f"{n} admitted" in moments.seen, "the bare Workload")  # type: ignore[misc]
        bare.append(moments.seen[f"{name} admitted"] - moments.seen[f"{name} created"])
        desk.finish(name)
        create(bed, desk.namespace, _document(f"gate-{number}", 1, 1))
        until_over(bed, desk.namespace, f"gate-{number}")
        ours += moments.gates(f"gate-{number}")
    base = 1000 * statistics.median(bare)
    took = 1000 * statistics.median(ours)
    yield Figure("controller: stage ready to gate open, median", took, base + 60, "ms", base, "bare Workload")


# -- writes -----------------------------------------------------------------------------------------------------------


def _writes(bed: Testbed, desk: Desk, controller: Controlled) -> Iterator[Figure]:
    for width in WIDTHS:
        before = controller.figures()
        name = f"wide-{width}"
        create(bed, desk.namespace, _document(name, 1, width))
        until_over(bed, desk.namespace, name)
        bed.wait(lambda: _queue_idle(controller), "the controller to be idle")
        time.sleep(1)  # Events are sent by a thread of their own
        after = controller.figures()
        events = sum(after[key] - before.get(key, 0) for key in after if key.startswith("penstock_events_total"))
        told = [json.loads(line) for line in controller.log.read_text().splitlines() if f'/{name}"' in line]
        written = [one for one in told if one.get("message", one.get("msg")) == "written"]
        back = sum("gives back" in one["why"] for one in written)
        apart = back + bool(back)  # and its Event
        yield Figure(
            f"controller: writes and Events for a stage of {width} pods", (len(written) - apart + events) / 2, 6, ""
        )


def _queue_idle(controller: Controlled) -> bool:
    return controller.figures()["penstock_queue_depth"] == 0


# -- waiting ----------------------------------------------------------------------------------------------------------


def _waiting(bed: Testbed, desk: Desk, controller: Controlled) -> Iterator[Figure]:
    made = 0
    restarts, memories = [], []
    for crowd in CROWDS:
        bars = (300.0, 2.0, 20.0) if crowd == CROWDS[-1] else (None, None, None)
        began = time.monotonic()
        while made < crowd:
            create(bed, desk.namespace, _document(f"wait-{made}", 1, 3, 1, queue="full"))
            made += 1
        bed.wait(lambda n=crowd: _caught_up(bed, desk, controller, n), f"{crowd} workflows to wait", 600)  # type: ignore[misc]
        yield Figure(f"controller: {crowd} workflows, created and waiting", time.monotonic() - began, None)
        controller.kill()
        began = time.monotonic()
        controller.start()
        bed.wait(lambda n=crowd: _looked_at(controller, n), "all of them to be looked at")  # type: ignore[misc]
        restarts.append(time.monotonic() - began)
        yield Figure(f"controller: {crowd} workflows wait, restart", restarts[-1], bars[2])
        used = _processor_time(controller)
        time.sleep(IDLE)
        share = 100 * (_processor_time(controller) - used) / IDLE
        yield Figure(f"controller: {crowd} workflows wait, idle", share, bars[1], "%")
        memories.append(controller.memory() / 1e6)
        yield Figure(f"controller: {crowd} workflows wait, memory", memories[-1], bars[0], "MB")
    grown = f"{CROWDS[-1]} workflows for {CROWDS[0]}"
    yield Figure(f"controller: {grown}, restart", restarts[-1] / restarts[0], LINEAR * NOISE, "x")
    yield Figure(f"controller: {grown}, memory", memories[-1] / memories[0], LINEAR, "x")


def _caught_up(bed: Testbed, desk: Desk, controller: Controlled, number: int) -> bool:
    """Every workflow waits at its first gate, in the queue."""
    time.sleep(1)  # a list of all is dear
    if not _queue_idle(controller):
        return False
    mine = [one for one in bed.get(desk.path("workloads"))["items"] if one["spec"]["queueName"] == "full"]
    active = [one for one in mine if one["spec"].get("active", True)]
    return len(mine) == 3 * number + 1 and len(active) == number + 1


def _looked_at(controller: Controlled, number: int) -> bool:
    found = controller.figures()
    done = sum(count for name, count in found.items() if name.startswith("penstock_reconciles_total"))
    return done >= number and found["penstock_queue_depth"] == 0


def _processor_time(controller: Controlled) -> float:
    assert controller.process is not None
    words = Path(f"/proc/{controller.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
