"""A cluster for tests: the fake API server, and a thread in place of the Job controller and the nodes. What a pod does is in the name of its
image, `does:WHAT`; see Nodes. The files of tasks are nobody's here: outputs are those that the test gives."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import dumps
from penstock.backends.kubernetes.cluster import EVENTS, JOBS, NAMESPACES, PODS, REVIEWS, SECRETS, SERVICES
from penstock.backends.kubernetes.names import INDEX, JOB_NAME
from penstock.backends.kubernetes.options import ARTIFACTS
from tests.backends.kubernetes.pods import condition, ended
from tests.controller.fake_api import FakeApi, _refused

Dict = dict[str, Any]
NAMESPACE = "ns"


class FakeCluster(FakeApi):
    def __init__(self, blobs: Blobs) -> None:
        self.forbidden: set[str] = set()
        self.gives_jobs: dict[str, str] = {}
        """Labels that a webhook adds to Jobs."""
        self.most_jobs: int | None = None
        """A quota of the namespace: so many Jobs at a time."""
        self.refused_jobs = 0
        self.made: list[str] = []
        """Names of Jobs in the order in which they were created."""
        self.nodes = Nodes(self, blobs)
        super().__init__(JOBS, PODS, SECRETS, SERVICES, EVENTS, REVIEWS, NAMESPACES)
        self.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.nodes.start()

    def stop(self) -> None:
        self.nodes.end()
        super().stop()

    def kubeconfig(self) -> str:
        return json.dumps(
            {
                "current-context": "fake",
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
                "contexts": [{"name": "fake", "context": {"cluster": "c", "namespace": NAMESPACE}}],
            }
        )

    def names(self, kind: Any = JOBS) -> list[str]:
        return sorted(one["metadata"]["name"] for one in self.all(kind))

    def answer(self, request: Any, body: Any) -> None:
        url = urlsplit(request.path)
        if request.command == "GET" and url.path.endswith("/log"):
            self.requests.append(("GET", request.path))
            self._log(request, url.path.split("/")[-2], "follow=true" in url.query)
            return
        super().answer(request, body)

    def _log(self, request: Any, pod: str, follow: bool) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        sent = 0
        while not self.nodes.ended:
            text, over = self.nodes.printed(pod)
            data = text[sent:].encode()
            if data:
                request.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                request.wfile.flush()
                sent = len(text)
            if over or not follow:
                break
            time.sleep(0.005)
        request.wfile.write(b"0\r\n\r\n")
        request.wfile.flush()

    def _plain(self, method: str, path: str, query: Dict, body: Any, headers: Any) -> tuple[int, Dict]:
        found = self._find(path)
        if found is not None and found[0] == REVIEWS:
            asked = body["spec"]["resourceAttributes"]
            return 201, {"status": {"allowed": f"{asked['verb']} {asked['resource']}" not in self.forbidden}}
        if found is not None and found[0] == EVENTS and method == "GET":
            return 200, {"items": self.all(EVENTS), "metadata": {"resourceVersion": "1"}}
        if found is not None and method == "POST" and query.get("dryRun"):
            return 201, {**body, "metadata": {**body["metadata"], "labels": dict(self.gives_jobs)}}
        if found is not None and method == "POST" and f"create {found[0].plural}" in self.forbidden:
            return _refused(403, "Forbidden")
        if found is not None and method == "POST" and found[0] == JOBS:
            with self.changed:
                if self.most_jobs is not None and len(self.all(JOBS)) >= self.most_jobs:
                    self.refused_jobs += 1
                    code, said = _refused(403, "Forbidden")
                    return code, {**said, "message": f"exceeded quota: q, limited: count/jobs.batch={self.most_jobs}"}
                code, said = super()._plain(method, path, query, body, headers)
                if code == 201:
                    self.made.append(said["metadata"]["name"])
            return code, said
        if found is not None and method == "DELETE":
            return self._deleted(found, body or {})
        return super()._plain(method, path, query, body, headers)

    def _deleted(self, found: Any, options: Dict) -> tuple[int, Dict]:
        resource, namespace, name, _ = found
        with self.changed:
            stored = self.get(resource, namespace, name)
            if stored is None:
                return _refused(404, "NotFound")
            wanted = (options.get("preconditions") or {}).get("resourceVersion")
            if wanted and wanted != stored["metadata"]["resourceVersion"]:
                return _refused(409, "Conflict")
            if resource == JOBS and options.get("propagationPolicy") == "Foreground":
                stored["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                return 200, self.put(JOBS, stored)
            self.remove(resource, namespace, name)
            return 200, {"kind": "Status", "status": "Success"}


class Nodes(threading.Thread):
    """The rest of a cluster. Images:

    does:succeed      ends with 0, after `hold` is set if it has a pod of that name
    does:exit-N       ends with N
    does:evict, does:oom, does:nopull, does:nowhere, does:refuse
    does:hang         runs until it is deleted
    does:run          its own command, as a process of this machine
    """

    def __init__(self, api: FakeCluster, blobs: Blobs) -> None:
        super().__init__(daemon=True)
        self.api = api
        self.blobs = blobs
        self.outputs: Dict = {}
        self.logs: dict[str, str] = {}
        self.hold = threading.Event()
        """does:hang ends well when it is set."""
        self.times: dict[str, int] = {}
        """Image -> how many pods of it were run."""
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        """By pod."""
        self._over = threading.Event()

    @property
    def ended(self) -> bool:
        return self._over.is_set()

    def end(self) -> None:
        self._over.set()
        self.join(10)
        for process in self.processes.values():
            process.kill()
            process.wait()

    def printed(self, pod: str) -> tuple[str, bool]:
        found = self.api.get(PODS, NAMESPACE, pod)
        return self.logs.get(pod, ""), found is None or found["status"]["phase"] in ("Succeeded", "Failed")

    def run(self) -> None:
        seen = -1
        while not self._over.is_set():
            version = self.api.version
            if version == seen and not self.hold.is_set() and not self._some_ended():
                with self.api.changed:
                    self.api.changed.wait(0.02)
                continue
            seen = version
            for job in self.api.all(JOBS):
                self._job(job)
            self._orphans()
            if self.hold.is_set():
                time.sleep(0.005)

    def _some_ended(self) -> bool:
        """Has a process ended, or is its pod gone?"""
        return any(
            process.poll() is not None or self.api.get(PODS, NAMESPACE, pod) is None
            for pod, process in self.processes.items()
        )

    def _orphans(self) -> None:
        for pod, process in list(self.processes.items()):
            if self.api.get(PODS, NAMESPACE, pod) is None:
                process.terminate() if process.poll() is None else self.processes.pop(pod)
        jobs = {one["metadata"]["uid"] for one in self.api.all(JOBS)}
        for kind in (PODS, SECRETS, SERVICES):
            for one in self.api.all(kind):
                if one["metadata"]["ownerReferences"][0]["uid"] not in jobs:
                    self._remove(kind, one["metadata"]["name"])

    def _remove(self, kind: Any, name: str) -> None:
        """Somebody else may have done so meanwhile."""
        with self.api.changed:
            if self.api.get(kind, NAMESPACE, name) is not None:
                self.api.remove(kind, NAMESPACE, name)

    def _job(self, job: Dict) -> None:
        meta = job["metadata"]
        name, uid = meta["name"], meta["uid"]
        mine = [one for one in self.api.all(PODS) if one["metadata"]["ownerReferences"][0]["uid"] == uid]
        if "deletionTimestamp" in meta:
            for one in mine:
                self._remove(PODS, one["metadata"]["name"])
            self._remove(JOBS, name)
            return
        template = job["spec"]["template"]
        containers = [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]
        does = next(one["image"] for one in containers if one["name"] == "main").removeprefix("does:")
        if does == "refuse":
            if not self.api.all(EVENTS):
                said = {"name": f"{name}.1", "namespace": NAMESPACE}
                event = {
                    "metadata": said,
                    "involvedObject": {"uid": uid},
                    "message": "Error creating: exceeded quota: q",
                }
                self.api.put(EVENTS, event)
            return
        if not mine:
            self.times[does] = self.times.get(does, 0) + 1
            mine = [self._pod(job, number) for number in range(job["spec"]["completions"])]
        for one in mine:
            if one["status"]["phase"] in ("Pending", "Running"):
                self._step(one, does)

    def _pod(self, job: Dict, number: int) -> Dict:
        meta = job["metadata"]
        template = job["spec"]["template"]
        labels = {**template["metadata"]["labels"], JOB_NAME: meta["name"]}
        owner = {"kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
        made = {
            "metadata": {
                "name": f"{meta['name']}-{number}-x",
                "namespace": NAMESPACE,
                "labels": labels,
                "annotations": {INDEX: str(number)},
                "ownerReferences": [owner],
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }
        return self.api.put(PODS, made)

    def _step(self, pod: Dict, does: str) -> None:
        """One step of the life of a pod."""
        spec, name = pod["spec"], pod["metadata"]["name"]
        stores = any(one["name"] == "put" for one in spec["containers"])
        status: Dict = pod["status"]
        if does == "nopull":
            wait = {"waiting": {"reason": "ErrImagePull", "message": "does:nopull: not found"}}
            self._show(pod, {"phase": "Pending", "containerStatuses": [{"name": "main", "state": wait}]})
        elif does == "nowhere":
            scheduled = condition("PodScheduled", "False", "Unschedulable", "0/1 nodes are available")
            self._show(pod, {"phase": "Pending", "conditions": [scheduled]})
        elif does == "run" and name in self.processes:
            code = self.processes[name].poll()
            if code is not None:
                self._end(pod, "Failed" if code else "Succeeded", ended(code if code >= 0 else 128 - code), None)
        elif status["phase"] == "Pending":
            if does == "run":
                self._run(pod)
            self.logs[name] = f"up {pod['metadata']['annotations'][INDEX]}\n"
            where = "initContainerStatuses" if stores else "containerStatuses"
            self._show(pod, {"phase": "Running", where: [{"name": "main", "state": {"running": {}}}]})
        elif does == "hang" and not self.hold.is_set():
            return
        elif does == "evict":
            self._show(pod, {"phase": "Failed", "reason": "Evicted", "message": "low on memory"})
        elif does == "oom":
            self._end(pod, "Failed", ended(137, "OOMKilled"), None)
        elif does.startswith("exit-"):
            self.logs[name] += "last words\n"
            self._end(pod, "Failed", ended(int(does[5:]), "", "last words"), None)
        else:
            self.logs[name] += "done\n"
            said = json.dumps({"result": self.blobs.put(dumps(self.outputs).encode())})
            self._end(pod, "Succeeded", ended(0), ended(0, "", said) if stores else None)

    def _run(self, pod: Dict) -> None:
        main = pod["spec"]["containers"][0]
        words = [self.blobs.root if word == ARTIFACTS else word.replace("$$", "$") for word in main["command"]]
        env = {one["name"]: one["value"] for one in main["env"] if "value" in one}
        self.processes[pod["metadata"]["name"]] = subprocess.Popen(words, env={**os.environ, **env})

    def _end(self, pod: Dict, phase: str, main: Dict, put: Dict | None) -> None:
        first = [{"name": "main", "state": main}]
        if put is None:
            self._show(pod, {"phase": phase, "containerStatuses": first})
        else:
            self._show(
                pod,
                {"phase": phase, "initContainerStatuses": first, "containerStatuses": [{"name": "put", "state": put}]},
            )

    def _show(self, pod: Dict, status: Dict) -> None:
        with self.api.changed:
            if pod["status"] != status and self.api.get(PODS, NAMESPACE, pod["metadata"]["name"]) is not None:
                self.api.put(PODS, {**pod, "status": status})
