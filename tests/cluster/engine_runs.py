"""Drives an engine's methods against the real controllers, without the core: what the live tests of engines have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.controller.engine import Engine, Observed, Opening, Stage, Task, Unit, View
from penstock.controller.names import POD_GATE, QUEUE, QUEUED
from penstock.controller.objects import PODS, ApiResource, Object, Write, controller_of, uid_of
from testbed.api import MERGE
from testbed.errors import ApiError
from testbed.instance import Testbed

ALL = Opening(None, (), {}, ())
RUN_TIME = "testbed.penstock/run-time"


class Live:
    """Lookup, asked of the API server."""

    def __init__(self, bed: Testbed) -> None:
        self.bed = bed

    def get(self, resource: ApiResource, namespace: str, name: str) -> Object | None:
        found: Object | None = self.bed.found(resource.path(namespace, name))
        return found

    def list(self, resource: ApiResource, namespace: str = "") -> Sequence[Object]:
        found: Sequence[Object] = self.bed.get(resource.path(namespace))["items"]
        return found


class Driven:
    """One workflow object, driven by its engine."""

    def __init__(
        self, bed: Testbed, engine: Engine, ns: str, document: Mapping[str, Any], unit: Unit = "stage"
    ) -> None:
        self.bed, self.engine, self.ns, self.unit = bed, engine, ns, unit
        self.resource = next(one for one in engine.main if one.kind == document["kind"])
        labelled = {**document, "metadata": {**document["metadata"], "namespace": ns}}
        labelled["metadata"]["labels"] = {**document["metadata"].get("labels", {}), QUEUE: "team-a"}
        assert engine.queued(labelled)
        self.adjusted = engine.adjust(labelled, unit, Live(bed))
        self.name = str(bed.raw("POST", self.resource.path(ns), dict(self.adjusted.object))["metadata"]["name"])

    def main(self) -> dict[str, Any]:
        found: dict[str, Any] = self.bed.get(self.resource.path(self.ns, self.name))
        return found

    def observe(self) -> Observed:
        main = self.main()
        listed = {
            one.kind: self.bed.objects(one.api, one.plural, self.ns, one.selector)
            for one in (*self.engine.children, PODS)
        }
        ours, before = {uid_of(main)}, -1
        while len(ours) != before:
            before = len(ours)
            ours |= {uid_of(one) for all_ in listed.values() for one in all_ if controller_of(one).get("uid") in ours}
        children = {kind: [one for one in all_ if uid_of(one) in ours] for kind, all_ in listed.items()}
        return Observed(main, children, Live(self.bed), 0.0)

    def view(self) -> View:
        return self.engine.view(self.observe(), self.unit)

    def states(self) -> dict[str, str]:
        return {one.key: one.state for one in self.view().stages}

    def stage(self, key: str) -> Stage:
        return next(one for one in self.view().stages if one.key == key)

    def reach(self, key: str, state: str) -> Stage:
        self.bed.wait(lambda: self.states().get(key) == state, f"stage {key} to be {state}", 60)
        return self.stage(key)

    def open(self, key: str, opening: Opening = ALL) -> int:
        """The number of writes. On a conflict it looks again, as the controller does."""
        sent = 0
        while True:
            seen = self.observe()
            stage = next(one for one in self.engine.view(seen, self.unit).stages if one.key == key)
            writes = self.engine.open(seen, self.unit, stage, opening)
            accepted = self.write(writes)
            sent += accepted
            if accepted == len(writes):
                return sent

    def write(self, writes: Sequence[Write]) -> int:
        """The number of those that were accepted."""
        refused = 0
        for one in writes:
            path = one.resource.path(one.namespace, one.name, one.subresource)
            try:
                if one.verb == "delete":
                    self.bed.raw("DELETE", path, dict(one.body))
                else:
                    self.bed.raw("PATCH", path, dict(one.body), MERGE)
            except ApiError as error:
                if error.code not in (404, 409):
                    raise
                refused += 1
        return len(writes) - refused

    def stop(self, key: str, tasks: Sequence[str] = (), between: Callable[[], object] | None = None) -> list[Write]:
        """Until it is reached; returns what was written."""
        sent: list[Write] = []

        def step() -> bool:
            writes = self.engine.stop(self.observe(), self.unit, key, tasks)
            if writes is None:
                return True
            sent.extend(writes)
            self.write(writes)
            if between:
                between()
            return False

        self.bed.wait(step, f"stage {key} to be stopped", 60)
        return sent

    def pods(self, key: str) -> list[tuple[Task, Object]]:
        seen = self.observe()
        found = [(self.engine.task_of(pod, seen, self.unit), pod) for pod in seen.pods]
        return [(task, pod) for task, pod in found if task.stage == key]

    def gated(self, key: str, count: int) -> list[tuple[Task, Object]]:
        """Its pods that wait, once there are so many."""

        def look() -> list[tuple[Task, Object]] | None:
            found = [(task, pod) for task, pod in self.pods(key) if pod["spec"].get("schedulingGates")]
            return found if len(found) == count else None

        return self.bed.wait(look, f"{count} pods of {key} that wait", 60)

    def release(self, key: str, count: int, run_time: str = "") -> list[str]:
        """Takes the gates of its pods off; returns the names of their tasks."""
        found = self.gated(key, count)
        for _, pod in found:
            path = f"/api/v1/namespaces/{self.ns}/pods/{pod['metadata']['name']}"
            change: dict[str, Any] = {"spec": {"schedulingGates": None}}
            if run_time:
                change["metadata"] = {"annotations": {RUN_TIME: run_time}}
            self.bed.raw("PATCH", path, change, MERGE)
        return sorted(task.name for task, _ in found)

    def running(self, key: str, count: int) -> list[Object]:
        def look() -> list[Object] | None:
            found = [pod for _, pod in self.pods(key) if pod.get("status", {}).get("phase") == "Running"]
            return found if len(found) == count else None

        return self.bed.wait(look, f"{count} pods of {key} to run", 60)

    def end_like_a_kubelet(self, pods: Sequence[Object]) -> None:
        """Pods that are told to end do so: Failed with 143, and then they are gone. Those that were forced away never show it."""
        for pod in pods:
            path = f"/api/v1/namespaces/{self.ns}/pods/{pod['metadata']['name']}"
            now = self.bed.found(path)
            if now is None or not now["metadata"].get("deletionTimestamp") or not now["metadata"].get("finalizers"):
                continue
            ended = {"exitCode": 143, "reason": "Error"}
            names = [one["name"] for one in now["spec"]["containers"]]
            states = [
                {
                    "name": one,
                    "state": {"terminated": ended},
                    "ready": False,
                    "restartCount": 0,
                    "image": "",
                    "imageID": "",
                }
                for one in names
            ]
            self.bed.raw("PATCH", f"{path}/status", {"status": {"phase": "Failed", "containerStatuses": states}}, MERGE)
            self.bed.raw("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)

    def keep(self, pods: Sequence[Object]) -> None:
        """They stay until `end_like_a_kubelet`."""
        for pod in pods:
            path = f"/api/v1/namespaces/{self.ns}/pods/{pod['metadata']['name']}"
            self.bed.raw("PATCH", path, {"metadata": {"finalizers": ["testbed.penstock/keep"]}}, MERGE)


def held_at_birth(bed: Testbed, ns: str) -> None:
    """The two policies that the controller installs, in small: TaskRuns are pending, pods have the gate."""
    gate = f"Object{{spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: '{POD_GATE}'}}]}}}}"
    pending = "Object{spec: Object.spec{status: 'TaskRunPending'}}"
    label = "has(object.metadata.labels) && object.metadata.labels[?'tekton.dev/memberOf'].orValue('') == 'finally'"
    for name, group, plural, change, unless in (
        (f"{ns}-pods", "", "pods", gate, "false"),
        (f"{ns}-taskruns", "tekton.dev", "taskruns", pending, label),
    ):
        within = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}}}
        rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [plural]}
        labelled = {"objectSelector": {"matchExpressions": [{"key": QUEUED, "operator": "Exists"}]}}
        spec = {
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [rule], **labelled, **within},
            "matchConditions": [{"name": "waits", "expression": f"!({unless})"}],
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": change}}],
        }
        kinds = {
            "MutatingAdmissionPolicy": spec,
            "MutatingAdmissionPolicyBinding": {"policyName": name, "matchResources": within},
        }
        api = "admissionregistration.k8s.io/v1"
        bed.apply(
            [{"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": one} for kind, one in kinds.items()]
        )
    labels = {"labels": {QUEUED: "team-a"}, "name": "probe"}
    pod = {"containers": [{"name": "a", "image": "b"}]}
    probes = [("v1", "Pod", "/api/v1", "pods", "schedulingGates", pod)]
    if "tekton" in bed.components:
        step = {"taskSpec": {"steps": [{"name": "a", "image": "b", "command": ["c"]}]}}
        probes.append(("tekton.dev/v1", "TaskRun", "/apis/tekton.dev/v1", "taskruns", "status", step))
    for api, kind, root, plural, field, body in probes:
        probe = {"apiVersion": api, "kind": kind, "metadata": labels, "spec": body}
        where = f"{root}/namespaces/{ns}/{plural}"

        def counts(where: str = where, probe: Mapping[str, Any] = probe, field: str = field) -> bool:
            return bool(bed.raw("POST", where, dict(probe), params={"dryRun": "All"})["spec"].get(field))

        bed.wait(counts, f"the policy for {plural} to count")
