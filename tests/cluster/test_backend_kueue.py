"""`penstock run --on kubernetes` where the real Kueue decides: reservations are its Workloads, and what it takes back stops and waits again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.service import stores
from penstock.settings import read
from penstock.store.records import Event
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster.kueue_protocol import KUEUE, MERGE, Desk
from tests.cluster.support import is_true, unique
from tests.cluster.test_backend_kubernetes import Place, overlay, place_on

QUOTA = 2
FLOW = """
apiVersion: penstock/v1
kind: Workflow
name: flow
{more}
steps:
  - name: first
    resources: {{cpu: 1}}
    cache: {{enabled: false}}
    script: {{source: "true", image: "busybox:testbed"}}
  - name: many
    needs: [first]
    each: {{axes: [{{i: [1, 2, 3, 4]}}]}}
    resources: {{cpu: {cpu}}}
    cache: {{enabled: false}}
    script: {{source: "echo ${{{{ item.i }}}}", image: "busybox:testbed"}}
"""


class Queued:
    """A place whose namespace has a LocalQueue."""

    def __init__(self, bed: Testbed, folder: Path) -> None:
        self.bed = bed
        self.place: Place = place_on(bed, folder, real=False)
        self.desk = Desk(bed, self.place.namespace)
        self.full = self.desk.queue("team", str(QUOTA), preemption={"withinClusterQueue": "LowerPriority"})
        spec = {"nodeLabels": {"type": "kwok"}, "tolerations": [{"key": "pool", "operator": "Exists"}]}
        bed.raw("PATCH", f"{KUEUE}/resourceflavors/{self.full}", {"spec": spec}, MERGE)
        self.lasting("300ms")

    def lasting(self, time: str) -> None:
        """How long the pods of this namespace run that are made from now on."""
        template = {**overlay(False), "metadata": {"annotations": {"testbed.penstock/run-time": time}}}
        (self.place.folder / "pods.yaml").write_text(json.dumps(template))

    def end_pods(self) -> None:
        """Those that run for ever end."""
        for pod in self.place.pods():
            path = f"/api/v1/namespaces/{self.place.namespace}/pods/{pod['metadata']['name']}"
            try:
                self.bed.raw(
                    "PATCH", path, {"metadata": {"annotations": {"testbed.penstock/run-time": "100ms"}}}, MERGE
                )
            except ApiError as error:
                if error.code != 404:  # it is gone
                    raise

    def write(self, more: str = "", cpu: float = 1) -> None:
        self.place.write("flow.yaml", FLOW.format(more=more, cpu=cpu))

    def workloads(self) -> list[Any]:
        return self.bed.objects("kueue.x-k8s.io/v1beta2", "workloads", self.place.namespace)

    def until(self, look: Callable[[], Any], what: str) -> Any:
        return self.bed.wait(lambda: look() or None, what)

    def nothing_is_left(self) -> None:
        self.place.nothing_is_left()
        self.until(lambda: not self.workloads(), "the Workloads to be gone")
        self.desk.until_used("0", "team")

    def events(self, *kinds: str) -> list[Event]:
        with stores.open_existing(read(home=str(self.place.folder / "home"))) as store:
            (run,) = store.runs.newest(limit=1)
            return list(store.runs.events(run.number, kinds=kinds))


@pytest.fixture
def queued(testbed: Callable[..., Testbed], tmp_path: Path) -> Queued:
    return Queued(testbed("kueue", "kwok"), tmp_path)


@pytest.mark.parametrize("unit", ["workflow", "stage", "task", "reuse"])
def test_each_unit_runs_within_the_quota(queued: Queued, unit: str) -> None:
    queued.write(f"unit: {unit}", cpu=0.5 if unit == "workflow" else 1)
    found = queued.place.result("flow.yaml", "--on", "kubernetes")
    assert found["state"] == "succeeded"
    queued.nothing_is_left()


def test_pods_are_placed_by_their_flavor_and_queued_once(queued: Queued) -> None:
    queued.lasting("forever")
    queued.write()
    engine = queued.place.start("run", "flow.yaml", "--on", "kubernetes")
    try:
        pod = queued.until(queued.place.pods, "a pod")[0]
        assert {"key": "pool", "operator": "Exists"} in pod["spec"]["tolerations"]
        (job,) = queued.place.jobs()
        assert not [key for key in (*job["metadata"]["labels"], *pod["metadata"]["labels"]) if "kueue" in key]
        queued.until(lambda: any(is_true(one, "PodsReady") for one in queued.workloads()), "PodsReady")
        assert sorted(bool(one["spec"].get("active", True)) for one in queued.workloads()) == [False, True]
        queued.desk.until_used("1", "team")
        queued.place.run("cancel", "@", "--now")
    finally:
        engine.kill()
        engine.communicate()
    queued.nothing_is_left()


PARTS = """
apiVersion: penstock/v1
kind: Workflow
name: parts
steps:
  - name: one
    each: {axes: [{i: [1, 2]}]}
    resources: {cpu: 2}
    cache: {enabled: false}
    pod:
      parts:
        - {name: a, image: "busybox:testbed", command: ["true"], needs: []}
        - {name: b, image: "busybox:testbed", command: ["true"], needs: []}
"""


def test_a_step_of_several_containers_is_counted_once(queued: Queued) -> None:
    """Its pod asks for what the step asks for, whatever the number of its containers, and has the nodes of its flavor."""
    queued.lasting("forever")
    queued.place.write("flow.yaml", PARTS)
    engine = queued.place.start("run", "flow.yaml", "--on", "kubernetes")
    try:
        pod = queued.until(queued.place.pods, "a pod")[0]
        assert {"key": "pool", "operator": "Exists"} in pod["spec"]["tolerations"]
        asked = {one["name"]: one["resources"].get("requests") for one in pod["spec"]["containers"]}
        assert asked["b"] == {"cpu": "2"} and not asked["a"] and sorted(asked) == ["a", "b", "put"]
        queued.desk.until_used(str(QUOTA), "team")
        assert len(queued.place.jobs()) == 1  # the other waits
        while engine.poll() is None:
            queued.end_pods()
            with suppress(subprocess.TimeoutExpired):
                engine.wait(1)
        assert engine.returncode == 0
    finally:
        engine.kill()
        engine.communicate()
    queued.nothing_is_left()


def test_a_preempted_run_waits_again_and_uses_no_retry(queued: Queued) -> None:
    """One with a higher class takes its quota, and gets it only when the pods are gone."""
    name = unique("urgent")
    queued.bed.apply(
        [
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": name},
                "value": 1000,
            }
        ]
    )
    queued.lasting("forever")
    queued.write()
    engine = queued.place.start("run", "flow.yaml", "--on", "kubernetes", "-o", "json")
    try:
        queued.until(lambda: [one for one in queued.place.pods() if one["status"]["phase"] == "Running"], "its pod")
        queued.desk.workload("vip", queue="team", cpu=str(QUOTA), priority=1000)
        queued.until(lambda: is_true(queued.desk.get("vip"), "Admitted"), "the other is admitted")
        assert not queued.place.pods()
        _, out, _ = queued.place.run("why", "@")
        assert "queue" in out and "team" in out, out
        queued.desk.send("DELETE", queued.desk.path("workloads", "vip"), None)
        while engine.poll() is None:
            queued.end_pods()
            queued.until(lambda: engine.poll() is not None or _runs(queued), "the next")
        out, err = engine.communicate(timeout=60)
    finally:
        engine.kill()
    assert engine.returncode == 0 and json.loads(out)["state"] == "succeeded", err
    assert [one.data["reason"] for one in queued.events("reservation.evicted")] == ["InClusterQueue"]
    assert not queued.events("task.failed", "task.errored")
    queued.nothing_is_left()


def _runs(queued: Queued) -> list[Any]:
    return [
        one
        for one in queued.place.pods()
        if one["status"]["phase"] == "Running"
        and one["metadata"].get("annotations", {}).get("testbed.penstock/run-time") == "forever"
    ]


def test_engines_killed_while_they_wait_and_while_they_run(queued: Queued) -> None:
    blocker = queued.desk.workload("blocker", queue="team", cpu=str(QUOTA))
    queued.until(lambda: is_true(queued.desk.get("blocker"), "Admitted"), "the blocker is admitted")
    queued.lasting("forever")
    queued.write()
    line = ("run", "flow.yaml", "--on", "kubernetes", "-o", "json")
    engine = queued.place.start(*line)
    try:
        queued.until(lambda: len(queued.workloads()) == 3, "its Workloads")
        mine = {one["metadata"]["uid"] for one in queued.workloads()} - {blocker["metadata"]["uid"]}
        engine.kill()
        engine.communicate()
        engine = queued.place.start(*line)
        queued.desk.send("DELETE", queued.desk.path("workloads", "blocker"), None)
        jobs = queued.until(queued.place.jobs, "its Job")
        assert {one["metadata"]["uid"] for one in queued.workloads()} == mine
        engine.kill()
        engine.communicate()
        engine = queued.place.start(*line)
        first = jobs[0]["metadata"]["uid"]
        engines = lambda: {one["metadata"]["annotations"].get("penstock/engine") for one in queued.workloads()}
        queued.until(lambda: len(engines()) == 1 and queued.place.jobs(), "the next engine has taken over")
        assert [one["metadata"]["uid"] for one in queued.place.jobs()] == [first]
        assert {one["metadata"]["uid"] for one in queued.workloads()} == mine
        while engine.poll() is None:
            queued.end_pods()
            queued.until(lambda: engine.poll() is not None or _runs(queued), "the next pods")
        _, err = engine.communicate(timeout=60)
    finally:
        engine.kill()
    assert engine.returncode == 0, err
    queued.nothing_is_left()


def test_cancel_after_a_kill_leaves_nothing(queued: Queued) -> None:
    queued.lasting("forever")
    queued.write()
    engine = queued.place.start("run", "flow.yaml", "--on", "kubernetes")
    queued.until(queued.place.jobs, "its Job")
    engine.kill()
    engine.communicate()
    assert queued.workloads()
    assert queued.place.run("cancel", "@", "--now")[0] == 0
    queued.nothing_is_left()


def test_rights_and_names_are_said_at_once(queued: Queued) -> None:
    queued.write()
    code, _, err = queued.place.run("run", "flow.yaml", "--on", "kubernetes", "--queue", "teem")
    assert code != 0 and "P899" in err and "team" in err
    name = f"system:serviceaccount:{queued.place.namespace}:default"
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods", "pods/log", "events"], "verbs": ["*"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["localqueues"], "verbs": ["list", "watch"]},
    ]
    meta = {"name": "some", "namespace": queued.place.namespace}
    api = "rbac.authorization.k8s.io/v1"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "some"}
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": queued.place.namespace}
    queued.bed.apply(
        [
            {"apiVersion": api, "kind": "Role", "metadata": meta, "rules": rules},
            {"apiVersion": api, "kind": "RoleBinding", "metadata": meta, "roleRef": reference, "subjects": [subject]},
        ]
    )
    nobody = str(queued.bed.kubeconfig_for(name))
    code, _, err = queued.place.run("run", "flow.yaml", "--on", "kubernetes", KUBECONFIG=nobody)
    assert code != 0 and "P898" in err and "create workloads" in err and "get resourceflavors" in err
    found = queued.place.result("flow.yaml", "--on", "kubernetes", KUBECONFIG=nobody, PENSTOCK_KUBERNETES_KUEUE="off")
    assert found["state"] == "succeeded"


def test_where_a_queue_called_default_takes_every_job(queued: Queued) -> None:
    """Kueue gives its label to each Job there: it is left to it, Job by Job."""
    queued.desk.queue("default", "4")
    queued.write()
    assert queued.place.result("flow.yaml", "--on", "kubernetes")["state"] == "succeeded"
    queued.place.nothing_is_left()
