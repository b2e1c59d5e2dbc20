"""A controller on a testbed, and a witness: what the tests of the controller in this folder have in common.

The controller runs as a process of its own, as users run it, so that it can be killed. It has what `penstock controller manifests --url …` prints, and the
token of the service account in it: exactly the rights that are shipped. The witness watches every pod, with the queue's label or without, and every
Workload; afterwards it replays all events in the order of the API server and checks each moment: pods without a gate never ask for more than their
Workload holds, and no pod of a queued workflow lacks the label by which it is held.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from penstock.controller import names
from penstock.controller.coverage import is_active, is_gated, requests_of
from penstock.controller.install.manifests import Install
from penstock.controller.objects import (
    PODS,
    WORKLOADS,
    ApiResource,
    Object,
    annotations_of,
    holds,
    labels_of,
    name_of,
    namespace_of,
    part,
    rows,
    uid_of,
)
from penstock.errors import UserError
from penstock.formats.pods.requests import resources_of
from penstock.kubernetes.client import ApiError, Client
from penstock.kubernetes.kubeconfig import connect
from testbed.instance import Testbed

ALL = ("argo", "tekton", "jobset")
EVERY_POD = replace(PODS, selector="")
OWNERS = {
    one.kind: one
    for one in (
        ApiResource("argoproj.io/v1alpha1", "Workflow", "workflows"),
        ApiResource("tekton.dev/v1", "PipelineRun", "pipelineruns"),
        ApiResource("tekton.dev/v1", "TaskRun", "taskruns"),
        ApiResource("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets"),
        ApiResource("batch/v1", "Job", "jobs"),
        ApiResource("apps/v1", "StatefulSet", "statefulsets"),
    )
}
"""What owns pods, directly or not."""
OURS = frozenset({"Workflow", "PipelineRun", "TaskRun"})
"""Kinds that Kueue does not queue by itself: its label on them is meant for the controller."""


class Controlled:
    """The controller's process on one testbed. `with` ends it."""

    def __init__(
        self, bed: Testbed, engines: Collection[str], *options: str, site: Path | None = None, front: int = 0
    ) -> None:
        """`site`: a folder with the packages of engines that are not ours. `front`: the port where the API server asks, if that is not the webhook's own."""
        self.bed, self.engines, self.options, self.site, self.front = bed, tuple(engines), options, site, front
        self.log = Path(bed.dir) / "log" / "penstock-controller.log"
        self.webhook, self.health = _free_port(), _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.server_restarts = False
        """An API server that begins knows no roles for a moment, and refuses what it allows later."""
        self.kubeconfig = bed.kubeconfig_for(Install().user)
        self.installed = self._manifests()
        bed.apply(self.installed)

    def _manifests(self) -> list[dict[str, Any]]:
        command = [
            sys.executable,
            "-m",
            "penstock",
            "controller",
            "manifests",
            "--url",
            f"https://127.0.0.1:{self.front or self.webhook}",
        ]
        for name in ALL:
            command += ["--without", name] if name not in self.engines else []
        for name in self.engines:
            command += ["--also", name] if name not in ALL else []
        printed = subprocess.run(command, env=self._environment(), capture_output=True, text=True, check=False)
        assert printed.returncode == 0, printed.stderr
        return list(yaml.safe_load_all(printed.stdout))

    def _environment(self) -> dict[str, str]:
        return dict(os.environ) | ({"PYTHONPATH": str(self.site)} if self.site else {})

    def __enter__(self) -> Controlled:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self.uninstall()
        denied = [line for line in self.log.read_text().splitlines() if "is forbidden: User" in line]
        assert self.server_restarts or not denied, f"the shipped rights are not enough: {denied[0]}"

    def uninstall(self) -> None:
        """Other tests on the same cluster must not meet a webhook that nobody serves, nor policies for another account."""
        for one in self.installed:
            if str(one["apiVersion"]).startswith("admissionregistration.k8s.io/"):
                path = self.bed.api.path_of(one)
                if self.bed.found(path):
                    self.bed.delete(path)

    def start(self) -> None:
        self.spawn()
        self.bed.wait(self._ready, "the controller", 60)
        self.bed.wait(self._in_force, "the API server to apply the policies", 60)

    def _in_force(self) -> bool:
        """An API server takes about a second until it applies a new policy. Until then pods are held by the webhook alone, and tests kill the
        controller that answers it."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "probe-", "labels": {names.QUEUED: "probe", names.QUEUE: "probe"}},
            "spec": {"containers": [{"name": "main", "image": "probe"}]},
        }
        made = self.bed.raw("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)
        return names.QUEUE not in labels_of(made)

    def spawn(self) -> None:
        """Without waiting until it is ready."""
        command = [sys.executable, "-m", "penstock", "controller", "run", "--kubeconfig", str(self.kubeconfig)]
        command += ["--webhook-port", str(self.webhook), "--metrics-port", str(self.health), "--log", "json"]
        command += ["--engines", ",".join(self.engines), "--no-leader-elect", *self.options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self._environment()
            )

    def _ready(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log.read_text()[-3000:]
        import httpx2

        try:
            return httpx2.get(f"http://127.0.0.1:{self.health}/readyz", timeout=2, trust_env=False).status_code == 200
        except httpx2.HTTPError:
            return False

    def figures(self) -> Mapping[str, float]:
        """What it measures, by name and labels."""
        import httpx2

        text = httpx2.get(f"http://127.0.0.1:{self.health}/metrics", timeout=10, trust_env=False).text
        rows = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in rows}

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def end(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def memory(self) -> int:
        """Resident bytes."""
        assert self.process is not None
        text = Path(f"/proc/{self.process.pid}/statm").read_text()
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Witness:
    """Sees every state of every pod and Workload of some namespaces, and for a pod without the queue's label who owns it."""

    def __init__(self, bed: Testbed, *namespaces: str) -> None:
        self.client = Client(connect(files=[bed.kubeconfig]))
        self.namespaces = frozenset(namespaces)
        self.events: list[tuple[int, str, str, Object]] = []
        self._stop = threading.Event()
        self._guard = threading.Lock()
        self._queued: dict[str, str] = {}
        """Pods without the label, by uid -> the queued workflow that they belong to, or nothing."""
        watched = (EVERY_POD, WORKLOADS)
        self._threads = [threading.Thread(target=self._watch, args=(one,), daemon=True) for one in watched]

    def __enter__(self) -> Witness:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(15)
        self.client.close()

    def _watch(self, resource: Any) -> None:
        version = ""
        while not self._stop.is_set():
            try:
                version = version or self._list(resource)
                with self.client.watch(resource, version=version, seconds=5) as stream:
                    for event in stream:
                        if event["type"] == "ERROR":  # a server that was started anew does not know what was before
                            version = ""
                            break
                        version = str(event["object"]["metadata"]["resourceVersion"])
                        if event["type"] != "BOOKMARK":
                            self._take(event["type"], resource.kind, event["object"])
            except ApiError as error:
                version = "" if error.gone else version
                time.sleep(0.05)
            except UserError:
                time.sleep(0.05)

    def _list(self, resource: Any) -> str:
        """What is there, and what is gone since the last look."""
        listed = self.client.list(resource)
        there = {one["metadata"]["uid"] for one in listed.items}
        last = {obj["metadata"]["uid"]: (what, obj) for _, what, kind, obj in self.events if kind == resource.kind}
        for uid, (what, obj) in last.items():
            if what != "DELETED" and uid not in there:
                meta = {**obj["metadata"], "resourceVersion": listed.version}
                self._take("DELETED", resource.kind, {**obj, "metadata": meta})
        for one in listed.items:
            self._take("ADDED", resource.kind, one)
        return listed.version

    def _take(self, what: str, kind: str, obj: Mapping[str, Any]) -> None:
        if not self.namespaces or obj["metadata"].get("namespace") in self.namespaces:
            with self._guard:
                self.events.append((int(obj["metadata"]["resourceVersion"]), what, kind, obj))
            if kind == "Pod" and what != "DELETED" and _would_escape(obj) and uid_of(obj) not in self._queued:
                self._queued[uid_of(obj)] = self._queued_owner(obj)

    def _queued_owner(self, obj: Object) -> str:
        """The queued workflow above it, as `kind/name`. Asked at once: who owns it may be gone when everything is replayed."""
        for one in rows(obj, "metadata", "ownerReferences"):
            kind, name = str(one.get("kind")), str(one.get("name"))
            owner = self._owner(OWNERS[kind], namespace_of(obj), name) if kind in OWNERS else None
            if owner is None or uid_of(owner) != one.get("uid"):
                continue
            if labels_of(owner).get(names.QUEUED) or (kind in OURS and labels_of(owner).get(names.QUEUE)):
                return f"{kind}/{name}"
            above = self._queued_owner(owner)
            if above:
                return above
        return ""

    def _owner(self, resource: ApiResource, namespace: str, name: str) -> Object | None:
        while not self._stop.is_set():
            try:
                return self.client.found(resource, namespace, name)
            except (ApiError, UserError) as error:  # the server is away
                if isinstance(error, ApiError) and not error.unreachable:
                    raise
                time.sleep(0.05)
        return None

    def check(self, exempt: Collection[str] = (), namespace: str = "", until: int = 2**63) -> dict[str, int]:
        """Replays everything, or what was in one namespace, up to a version. `exempt`: parts of names of pods that never wait. Returns counts."""
        pods: dict[str, Object] = {}
        workloads: dict[str, Object] = {}
        moments = most = 0
        with self._guard:
            events = sorted(self.events, key=lambda one: one[0])
        if namespace:
            events = [one for one in events if namespace_of(one[3]) == namespace and one[0] <= until]
        for _, what, kind, obj in events:
            if kind == "Pod" and what != "DELETED":
                self._labelled(obj, exempt)
            here = pods if kind == "Pod" else workloads
            key = f"{part(obj, 'metadata').get('namespace')}/{name_of(obj)}"
            if what == "DELETED":
                here.pop(key, None)
            else:
                here[key] = obj
            moments += 1
            most = max(most, self._moment(pods, workloads, exempt))
        return {"moments": moments, "most pods": most}

    def _labelled(self, pod: Object, exempt: Collection[str]) -> None:
        """Without the label the controller does not see a pod, and no policy holds it."""
        owner = self._queued.get(uid_of(pod))
        if owner and _would_escape(pod) and not _exempt(pod, exempt):
            key = f"{namespace_of(pod)}/{name_of(pod)}"
            raise AssertionError(f"{key} of {owner} has no label {names.QUEUED}\n{self._history(key)}")

    def _history(self, key: str) -> str:
        """For a pod that runs without quota: all that was seen of it, and who wrote it."""
        lines = [f"{key} runs without quota"]
        for version, what, kind, pod in sorted(self.events, key=lambda one: one[0]):
            if kind == "Pod" and f"{namespace_of(pod)}/{name_of(pod)}" == key:
                meta = part(pod, "metadata")
                said = annotations_of(pod).get(names.POD_SET), labels_of(pod).get(names.QUEUED)
                by = [(one.get("manager"), one.get("time")) for one in rows(meta, "managedFields")]
                lines.append(f"{version} {what} gated={is_gated(pod)} {said} {part(pod, 'status').get('phase')} {by}")
        return "\n".join(lines)

    def most_held(self, resource: str, without: str = "") -> int:
        """The most that all Workloads held together at one moment, in thousandths, but for those of one name."""
        held: dict[str, int] = {}
        most = 0
        with self._guard:
            events = sorted(self.events, key=lambda one: one[0])
        for _, what, kind, obj in events:
            if kind == "Workload" and name_of(obj) != without:
                held[name_of(obj)] = 0 if what == "DELETED" else _held(obj).get(resource, 0)
                most = max(most, sum(held.values()))
        return most

    def _moment(self, pods: Mapping[str, Object], workloads: Mapping[str, Object], exempt: Collection[str]) -> int:
        asked: dict[str, dict[str, int]] = {}
        running = 0
        for key, pod in pods.items():
            if not is_active(pod) or is_gated(pod):
                continue
            if not labels_of(pod).get(names.QUEUED) and not self._queued.get(uid_of(pod)):
                continue  # of nobody's queue
            running += 1
            against = str(annotations_of(pod).get(names.POD_SET, "")).partition("/")[0]
            requests = requests_of(pod)
            if not against:
                assert not any(requests.values()) or _exempt(pod, exempt), self._history(key)
                continue
            total = asked.setdefault(f"{key.partition('/')[0]}/{against}", {})
            for name, amount in requests.items():
                total[name] = total.get(name, 0) + amount
        for key, total in asked.items():
            held = _held(workloads.get(key))
            for name, amount in total.items():
                assert amount <= held.get(name, 0), f"{key}: pods ask for {amount} of {name}, {held} is held"
        return running


def _would_escape(pod: Object) -> bool:
    """It asks for something, and lacks the label by which pods are held."""
    return is_active(pod) and not labels_of(pod).get(names.QUEUED) and any(requests_of(pod).values())


def _exempt(pod: Object, exempt: Collection[str]) -> bool:
    told = f"{annotations_of(pod)}{labels_of(pod)}{namespace_of(pod)}/{name_of(pod)}"
    return any(one in told for one in exempt)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _held(workload: Object | None) -> dict[str, int]:
    if workload is None or not holds(workload, "QuotaReserved") or holds(workload, "Finished"):
        return {}
    back = {str(one["name"]): int(one["count"]) for one in rows(workload, "status", "reclaimablePods")}
    given = {
        str(one["name"]): int(one.get("count") or 0)
        for one in rows(workload, "status", "admission", "podSetAssignments")
    }
    found: dict[str, int] = {}
    for one in rows(workload, "spec", "podSets"):
        name, asked = str(one.get("name")), int(one.get("count") or 0)
        count = min(given.get(name, asked), asked - back.get(name, 0))
        for resource, amount in resources_of(part(one, "template", "spec")).items():
            found[resource] = found.get(resource, 0) + amount * count
    return found
