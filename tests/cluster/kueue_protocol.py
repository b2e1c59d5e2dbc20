"""What a controller of its own says to Kueue, in plain HTTP: queues, Workloads, the status patches of the protocol. The tests
test_kueue_*.py are written in these words, and docs/ideas/kueue-protocol.md shows the same patches.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster.support import condition, fresh_namespace
from tests.cluster.support import is_true as holds

Object = dict[str, Any]
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
GATE = "kueue.x-k8s.io/admission-gated-by"
QUEUE = "kueue.x-k8s.io/queue-name"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
JOB_UID = "kueue.x-k8s.io/job-uid"
# what all tests share that ask nothing special of Kueue: one instance serves them all
PLAIN = ("kueue", "kwok", "jobset")
# short limits, so that the tests see them pass; two tries, then Kueue gives up
IMPATIENT: Object = {
    "waitForPodsReady": {
        "timeout": "2s",
        "recoveryTimeout": "2s",
        "requeuingStrategy": {"backoffBaseSeconds": 1, "backoffLimitCount": 1},
    },
    "featureGates": {"UnadmittedWorkloadsObservability": True},
}
# eviction reasons after which a Workload may go straight back into the line; for the others Kueue says when
AT_ONCE = ("Preempted", "NodeFailures")


# -- reading ----------------------------------------------------------------------------------------------------------


def reason(workload: Object, kind: str) -> str:
    return str(condition(workload, kind).get("reason", ""))


def running(workload: Object) -> bool:
    """May its pods run: admitted, and nobody has asked for the quota back."""
    return holds(workload, "Admitted") and not holds(workload, "Evicted") and not holds(workload, "Finished")


# -- writing ----------------------------------------------------------------------------------------------------------


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stated(kind: str, status: bool, why: str, message: str = "written by the tests") -> Object:
    return {
        "type": kind,
        "status": "True" if status else "False",
        "reason": why,
        "message": message,
        "lastTransitionTime": now(),
    }


def with_conditions(workload: Object, *changes: Object) -> list[Object]:
    """All conditions, with these put in place of their namesakes: a merge patch replaces the list."""
    kept = [each for each in workload.get("status", {}).get("conditions", [])]
    names = {each["type"] for each in changes}
    return [each for each in kept if each["type"] not in names] + list(changes)


def released(workload: Object, why: str = "Pending") -> list[Object]:
    """The conditions that give a reservation back. After an eviction they also say whether it may be queued at once."""
    told = [
        stated("QuotaReserved", False, why),
        stated("Admitted", False, "NoReservation"),
        stated("PodsReady", False, "WaitForStart"),
    ]
    if holds(workload, "Evicted"):
        evicted = reason(workload, "Evicted")
        told.append(stated("Requeued", evicted in AT_ONCE, evicted))
    return told


def pod_template(cpu: str = "1", **spec: Any) -> Object:
    requests: Object = {"cpu": cpu} if cpu else {}
    requests |= spec.pop("requests", {})
    container = {"name": "main", "image": "example/main:1", "resources": {"requests": requests}}
    return {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def pod_set(name: str = "main", count: int = 1, cpu: str = "1", **more: Any) -> Object:
    return {"name": name, "count": count, "template": more.pop("template", None) or pod_template(cpu), **more}


def owner(obj: Object, *, controller: bool = True) -> Object:
    meta = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": controller,
        "blockOwnerDeletion": controller,
    }


# -- one test's corner of the cluster ---------------------------------------------------------------------------------


class Desk:
    """A namespace with queues of its own, and the requests of a controller that serves it."""

    def __init__(self, bed: Testbed, namespace: str = "") -> None:
        self.bed = bed
        self.namespace = namespace or fresh_namespace(bed)

    # paths

    def path(self, kind: str, name: str = "", api: str = KUEUE) -> str:
        return f"{api}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def jobs(self, name: str = "") -> str:
        return self.path("jobs", name, "/apis/batch/v1")

    def configmaps(self, name: str = "") -> str:
        return self.path("configmaps", name, "/api/v1")

    # requests

    def send(self, method: str, path: str, body: Any, content_type: str = "application/json") -> Object:
        answer: Object = self.bed.raw(method, path, body, content_type)
        return answer

    def read(self, path: str) -> Object:
        answer: Object = self.bed.get(path)
        return answer

    # queues

    def queue(self, name: str = "main", cpu: str = "4", *, resources: Object | None = None, **spec: Any) -> str:
        """Flavor, ClusterQueue and LocalQueue. The cluster's names carry the namespace, so tests do not meet."""
        full = f"{self.namespace}-{name}"
        self.bed.raw("POST", f"{KUEUE}/resourceflavors", _object("ResourceFlavor", full))
        quotas = [{"name": key, "nominalQuota": value} for key, value in (resources or {"cpu": cpu}).items()]
        body = {
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": [each["name"] for each in quotas],
                    "flavors": [{"name": full, "resources": quotas}],
                }
            ],
            **spec,
        }
        self.bed.raw("POST", f"{KUEUE}/clusterqueues", _object("ClusterQueue", full, body))
        self.bed.raw("POST", self.path("localqueues"), _object("LocalQueue", name, {"clusterQueue": full}))
        self.bed.wait(
            lambda: (
                holds(self.bed.get(self.path("localqueues", name)), "Active")
                and holds(self.bed.get(f"{KUEUE}/clusterqueues/{full}"), "Active")
            ),
            f"the queues {full} are active",
        )
        return full

    def stop_queue(self, policy: str, name: str = "main", *, local: bool = False) -> None:
        path = self.path("localqueues", name) if local else f"{KUEUE}/clusterqueues/{self.namespace}-{name}"
        self.bed.raw("PATCH", path, {"spec": {"stopPolicy": policy}}, MERGE)

    def used(self, name: str = "main") -> str:
        """The CPU that Kueue counts as taken in a ClusterQueue."""
        status = self.bed.get(f"{KUEUE}/clusterqueues/{self.namespace}-{name}").get("status", {})
        for flavor in status.get("flavorsReservation", []):
            for resource in flavor["resources"]:
                if resource["name"] == "cpu":
                    return str(resource["total"])
        return "0"

    def until_used(self, cpu: str, name: str = "main") -> None:
        self.bed.wait(lambda: self.used(name) == cpu, f"{cpu} CPU are taken in the queue {name}")

    # Workloads

    def workload(
        self,
        name: str,
        *,
        queue: str = "main",
        cpu: str = "1",
        count: int = 1,
        gate: str = "",
        labels: Object | None = None,
        owners: Iterable[Object] = (),
        **spec: Any,
    ) -> Object:
        """Creates one. Without `podSets` it has a single pod set."""
        body = _object("Workload", name, {"queueName": queue, "podSets": [pod_set(count=count, cpu=cpu)], **spec})
        body["metadata"] |= {"labels": labels or {}, "ownerReferences": list(owners)}
        if gate:
            body["metadata"]["annotations"] = {GATE: gate}
        return self.send("POST", self.path("workloads"), body)

    def get(self, name: str) -> Object:
        return self.read(self.path("workloads", name))

    def edit(self, name: str, body: Object) -> Object:
        """A change to everything but the status."""
        return self.send("PATCH", self.path("workloads", name), body, MERGE)

    def clear_gate(self, name: str) -> Object:
        return self.edit(name, {"metadata": {"annotations": {GATE: None}}})

    def status(self, name: str, change: Callable[[Object], Object]) -> Object:
        """One merge patch on the status, made from what is there and bound to its version; anew when it came too late."""

        def attempt() -> Object | None:
            seen = self.get(name)
            body = {"metadata": {"resourceVersion": seen["metadata"]["resourceVersion"]}, "status": change(seen)}
            try:
                return self.send("PATCH", self.path("workloads", name) + "/status", body, MERGE)
            except ApiError as error:
                if error.code == 409:
                    return None
                raise

        return self.bed.wait(attempt, f"the status of {name} is written")

    def say(self, name: str, *changes: Object) -> Object:
        """Writes conditions, and nothing else."""
        return self.status(name, lambda seen: {"conditions": with_conditions(seen, *changes)})

    def apply_status(
        self, name: str, status: Object, *, manager: str, force: bool = False, version: str = ""
    ) -> Object:
        """Server-side apply; with `version`, only on top of that one."""
        body = _object("Workload", name) | {"status": status}
        if version:
            body["metadata"]["resourceVersion"] = version
        query = f"?fieldManager={manager}&force={str(force).lower()}"
        return self.send("PATCH", self.path("workloads", name) + "/status" + query, body, APPLY)

    def ready(self, name: str) -> Object:
        return self.say(name, stated("PodsReady", True, "Started"))

    def finish(self, name: str, why: str = "Succeeded") -> Object:
        return self.say(name, stated("Finished", True, why))

    def answer(self, name: str, why: str = "Pending") -> Object:
        """The answer to an eviction, once no pod is left: the reservation goes back, in one write."""
        return self.status(
            name, lambda seen: {"admission": None, "conditions": with_conditions(seen, *released(seen, why))}
        )

    # waiting

    def until(self, name: str, test: Callable[[Object], Any], what: str, timeout: float = 180) -> Object:
        def look() -> Object | None:
            seen = self.get(name)
            return seen if test(seen) else None

        return self.bed.wait(look, f"{name} {what}", timeout)

    def until_running(self, name: str, timeout: float = 180) -> Object:
        return self.until(name, running, "is admitted", timeout)

    def until_evicted(self, name: str, why: str, timeout: float = 180) -> Object:
        return self.until(
            name,
            lambda seen: holds(seen, "Evicted") and reason(seen, "Evicted") == why,
            f"is evicted with the reason {why}",
            timeout,
        )

    def until_pending(self, name: str, why: str) -> Object:
        return self.until(
            name,
            lambda seen: (
                condition(seen, "QuotaReserved").get("status") == "False" and reason(seen, "QuotaReserved") == why
            ),
            f"has no quota with the reason {why}",
        )

    def next_second(self) -> None:
        """Creation times count in seconds, and equal ones are put in order by uid: wait for the next tick."""
        tick = int(time.time())
        self.bed.wait(lambda: int(time.time()) > tick, "the clock's next second")

    def fence(self, name: str, queue: str = "main") -> None:
        """Proof that the scheduler has looked at this queue by now: a Workload that asks for nothing goes through it.

        Only for BestEffortFIFO, where it may overtake. What has not been admitted by then has been passed over."""
        self.workload(name, queue=queue, cpu="0")
        self.until_running(name)


def refused(call: Callable[..., Any], *arguments: Any) -> ApiError:
    """The error that a request is answered with."""
    try:
        call(*arguments)
    except ApiError as error:
        return error
    raise AssertionError("the request was taken")


def copied(obj: Object) -> Object:
    return copy.deepcopy(obj)


def _object(kind: str, name: str, spec: Object | None = None) -> Object:
    body: Object = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}}
    return body | {"spec": spec} if spec is not None else body
