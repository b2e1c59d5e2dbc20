"""An engine that is not ours, from its own folder: found by its entry point, with rights, webhook and policies of its own, and a kind of its own in a real
cluster. Nothing in Penstock knows it."""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.controller.objects import holds
from testbed.api import MERGE
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster.controlled import Controlled, Witness
from tests.cluster.kueue_protocol import Desk
from tests.cluster.test_controller_argo import finished, is_now, pending, queued, workloads

Object = dict[str, Any]
FOLDER = Path(__file__).parents[1] / "controller" / "toy_engine"
API = "toy.example/v1"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "sequences.toy.example"},
    "spec": {
        "group": "toy.example",
        "scope": "Namespaced",
        "names": {"kind": "Sequence", "plural": "sequences", "singular": "sequence"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def installed(folder: Path, where: Path) -> Path:
    """As pip would leave it: the module, and what it says of itself."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    module = project["name"].replace("-", "_")
    (where / f"{module}.py").write_text((folder / f"{module}.py").read_text())
    info = where / f"{module}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return where


class Sequences:
    """The controller of the kind, as its vendor would ship it: it knows nothing of queues."""

    def __init__(self, bed: Testbed) -> None:
        self.bed = bed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sequences:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            for one in self.bed.objects(API, "sequences"):
                try:
                    self._look(one)
                except ApiError:
                    continue  # Seen too late. It looks again.

    def _look(self, main: Object) -> None:
        meta, spec, done = main["metadata"], main["spec"], dict(main.get("status", {}).get("done", {}))
        where = f"/api/v1/namespaces/{meta['namespace']}/pods"
        pods = {one["metadata"]["name"]: one for one in self.bed.objects("v1", "pods", meta["namespace"], "toy=yes")}
        reached = True
        for number, step in enumerate(spec["steps"]):
            over = list(done.get(step["name"], ()))
            for index in range(step["pods"]):
                name = f"{meta['name']}-{step['name']}-{index}"
                pod = pods.get(name)
                if pod is None and reached and number < spec.get("open", 99) and index not in over:
                    self.bed.raw("POST", where, _pod(main, name, step, index))
                elif pod is not None and pod["status"].get("phase") == "Succeeded" and index not in over:
                    over.append(index)
                elif pod is not None and number >= spec.get("open", 99) and index not in over:
                    self.bed.raw("DELETE", f"{where}/{name}", {"gracePeriodSeconds": 0})
            done[step["name"]] = over
            reached = reached and len(over) == step["pods"]
        status = {"done": done} | ({"phase": "Succeeded"} if reached else {})
        if status != main.get("status"):
            self.bed.raw("PATCH", f"{path(meta['namespace'], meta['name'])}/status", {"status": status}, MERGE)


def _pod(main: Object, name: str, step: Object, index: int) -> Object:
    meta = main["metadata"]
    labels = {**main["spec"].get("podLabels", {}), "toy": "yes", "step": step["name"], "index": str(index)}
    owner = {"apiVersion": API, "kind": "Sequence", "name": meta["name"], "uid": meta["uid"], "controller": True}
    container = {"name": "main", "image": "none", "command": ["none"]}
    container["resources"] = {"requests": {"cpu": step["cpu"]}}
    notes = {"testbed.penstock/run-time": step.get("time", "500ms")}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": notes, "ownerReferences": [owner]},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }


def path(namespace: str, name: str = "") -> str:
    return f"/apis/{API}/namespaces/{namespace}/sequences" + (f"/{name}" if name else "")


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kueue", "kwok")


@pytest.fixture(scope="module")
def desk(bed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    bed.apply([CRD])
    where = installed(FOLDER, tmp_path_factory.mktemp("site"))
    with Controlled(bed, ["toy"], site=where), Sequences(bed):
        yield Desk(bed)


def sequence(name: str, *steps: Object) -> Object:
    return {"apiVersion": API, "kind": "Sequence", "metadata": {"name": name}, "spec": {"steps": list(steps)}}


STEPS = [
    {"name": "fetch", "pods": 1, "cpu": "1"},
    {"name": "train", "pods": 3, "cpu": "1", "time": "2s"},
    {"name": "report", "pods": 1, "cpu": "1"},
]


def test_its_stages_wait_go_on_after_an_eviction_and_end(bed: Testbed, desk: Desk) -> None:
    desk.queue("main", "3", preemption={"withinClusterQueue": "LowerPriority"})
    desk.workload("other", count=2, cpu="1")
    bed.wait(lambda: holds(desk.get("other"), "Admitted"), "the other one to be admitted")
    with Witness(bed, desk.namespace) as witness:
        made = bed.raw("POST", path(desk.namespace), queued(sequence("s", *STEPS)))
        assert made["spec"]["open"] == 0 and made["spec"]["podLabels"] == {"penstock/queue": "main"}
        bed.wait(lambda: pending(desk, "train"), "the second stage to wait", 60)
        assert holds(workloads(desk)["fetch"], "Finished")
        desk.finish("other")
        bed.wait(lambda: is_now(desk, "train", "PodsReady"), "its pods to run", 60)
        desk.workload("urgent", count=3, cpu="1", priority=100)
        bed.wait(lambda: holds(desk.get("urgent"), "Admitted"), "the urgent one to be admitted", 60)
        desk.finish("urgent")
        bed.wait(lambda: bed.get(path(desk.namespace, "s"))["status"].get("phase") == "Succeeded", "it to end", 60)
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
    assert witness.check()["most pods"] == 3


def test_its_queue_is_kept_and_others_are_left_alone(bed: Testbed, desk: Desk) -> None:
    plain = bed.raw("POST", path(desk.namespace), sequence("plain", STEPS[0]))
    assert "open" not in plain["spec"]
    bed.wait(lambda: bed.get(path(desk.namespace, "plain")).get("status", {}).get("phase"), "it to end")
    bed.raw("POST", path(desk.namespace), queued(sequence("kept", *STEPS), queue="nowhere"))
    change = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": None}}}
    with pytest.raises(ApiError, match="is not changed after creation"):
        bed.raw("PATCH", path(desk.namespace, "kept"), change, MERGE)
