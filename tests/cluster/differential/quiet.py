"""When is Kueue quiet? One observer for all streams that are played in one Kueue at the same time. Used by theirs.

Nothing here waits for time to pass. A point is quiet when Kueue's own queues say that nothing is left to decide, by these facts of its
source (v0.19.2, pkg/cache/queue and pkg/scheduler):

1. An event of a Workload changes Kueue's queues and cache within the handler of the one Workload informer, so in the order of the API
   server. Who sees the effect of a later event knows that the earlier ones have been handled. An event of a ClusterQueue or LocalQueue is
   handled before its reconciler writes `observedGeneration`.
2. Parked Workloads ("inadmissible") are put back into the heaps by one worker from one delaying queue, one second after somebody asked. The
   queue keeps the order of time. A *bell* is a queue that nobody else uses, with one Workload that runs and one that is parked. To strike it,
   the running one gives back one pod, which asks for the parked one to be tried again. When that one is seen to lack less than before, every
   batch that was asked for before the bell was struck has been carried out, and so is counted in the gauges of 3. Cohorts are taken up by one worker, in order: one more that is
   made after the others, and seen in `kueue_cohort_info`, says that they all are.
3. `kueue_pending_workloads` is written under the lock of the queues whenever a heap or the inadmissible set changes: `active` is the heap and
   the one that the scheduler has in hand, `inadmissible` the parked. If active is 0 in every queue of the stream, there is nothing that a
   cycle could take up. If it is not 0 (the head of a StrictFIFO queue is tried for ever, and so is one that waits for its victims or was
   passed over) then the scheduler runs cycle after cycle, which `kueue_admission_attempts_total` counts. A cycle is a function of what is in
   the cache and the queues. While a heap is being worked off, a cycle may change no Workload, but it parks one, or takes the search for one
   through the flavors a step further (there are three at most). So when CYCLES of them have ended, and neither any Workload of the stream (but for
   the reason why it waits) nor any gauge of its queues has changed, the same heads are tried with the same outcome for ever.
4. Reservations are written by a goroutine of their own after the cycle that made them. Between the two the Workload is out of Kueue's queues but
   still seems to wait. So the number of Workloads that wait, by the API server, has to be the number of pending ones, by 3.
   Evictions, and the reasons why somebody waits, are written within the cycle.
5. What the reconcilers owe (theirs.Theirs._owed: an eviction of a deactivated Workload, of those in a drained queue, the way back of those that
   may come back) is waited for by name.

A list from the API server then confirms what the watch has told so far: it is the answer that is compared.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx2
import yaml

from testbed.instance import Testbed
from tests.cluster.kueue_protocol import KUEUE, MERGE, Desk, condition

Doc = dict[str, Any]
CYCLES = 6
BELLS = 3
_STROKES = 5000
_PATIENCE = 120.0
"""Seconds after which something must be wrong."""
_EVERY = 0.1
_PENDING = re.compile(r'^kueue_pending_workloads\{.*?cluster_queue="([^"]+)".*?status="(\w+)".*?\} (\S+)', re.M)
_ATTEMPTS = re.compile(r"^kueue_admission_attempts_total\{.*\} (\S+)", re.M)
_COHORT = re.compile(r'^kueue_cohort_info\{.*?cohort="([^"]+)".*?parent_cohort="[^"]+"', re.M)


class NotQuiet(AssertionError):
    """Kueue does not come to rest, or does not do what it owes."""


@dataclass(frozen=True)
class Look:
    """Kueue's gauges."""

    began: float
    attempts: int
    pending: dict[str, dict[str, int]]
    cohorts: frozenset[str]
    """Those that Kueue has a parent for."""

    def active(self, queue: str) -> int:
        return self.pending.get(queue, {}).get("active", 0)

    def total(self, queue: str) -> int:
        return sum(self.pending.get(queue, {}).values())

    def same(self, other: Look, queues: Iterable[str]) -> bool:
        return all(self.pending.get(queue) == other.pending.get(queue) for queue in queues)

    def pending_of(self, queues: Iterable[str]) -> dict[str, dict[str, int]]:
        return {queue: self.pending.get(queue, {}) for queue in queues}


@dataclass
class _Ticket:
    done: bool = False


@dataclass
class Observer:
    bed: Testbed
    looks: list[Look] = field(default_factory=list)
    workloads: dict[str, dict[str, Doc]] = field(default_factory=dict)
    """By namespace and name, as the watch has them."""

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._tickets: list[_Ticket] = []
        self._wanted = 0
        self._over = threading.Event()
        self._wrong: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._http = self._metrics_client()

    def __enter__(self) -> Observer:
        self._prepare_bells()
        self._begin(self._watch)
        self._begin(self._scrape)
        for number in range(BELLS):
            self._begin(partial(self._bell, number))
        self.until(lambda: bool(self.looks), "Kueue's gauges")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=5)
        self._http.close()

    def _begin(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                if not self._over.is_set():
                    self._wrong = error
                with self._changed:
                    self._changed.notify_all()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._threads.append(thread)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Looks again whenever a Workload has changed, or there are new gauges."""
        deadline = time.monotonic() + _PATIENCE
        with self._changed:
            while not condition():
                if self._wrong is not None:
                    raise RuntimeError(f"the observer has ended: {self._wrong!r}") from self._wrong
                if self._over.is_set() or time.monotonic() > deadline:
                    raise NotQuiet(f"waited {_PATIENCE:.0f} s for {what}")
                self._changed.wait(1.0)

    # -- what there is to see -----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        folder = self.bed.dir / "certificates" / "admin"
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        with httpx2.Client(base_url=self.bed.url, verify=context, timeout=None, trust_env=False) as http:
            listing = self.bed.get(f"{KUEUE}/workloads")
            for doc in listing["items"]:
                self._saw("ADDED", doc)
            params = {
                "watch": "true",
                "resourceVersion": listing["metadata"]["resourceVersion"],
                "timeoutSeconds": "7200",
            }
            with http.stream("GET", f"{KUEUE}/workloads", params=params) as answer:
                for line in answer.iter_lines():
                    if self._over.is_set():
                        return
                    event = json.loads(line)
                    self._saw(event["type"], event["object"])
        raise RuntimeError("the watch on Workloads has ended")

    def _saw(self, kind: str, doc: Doc) -> None:
        if kind not in ("ADDED", "MODIFIED", "DELETED"):
            raise RuntimeError(f"the watch says {kind}: {doc}")
        meta = doc["metadata"]
        meta.pop("managedFields", None)
        with self._changed:
            here = self.workloads.setdefault(meta["namespace"], {})
            if kind == "DELETED":
                here.pop(meta["name"], None)
            else:
                here[meta["name"]] = doc
            self._changed.notify_all()

    def _metrics_client(self) -> httpx2.Client:
        config = yaml.safe_load((self.bed.dir / "kueue" / "config.yaml").read_text())
        user = "system:serviceaccount:kueue-system:gauges"
        kubeconfig = yaml.safe_load(self.bed.kubeconfig_for(user).read_text())
        token = kubeconfig["users"][0]["user"]["token"]
        self.bed.apply(
            [
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "ClusterRoleBinding",
                    "metadata": {"name": "penstock-gauges"},
                    "roleRef": {
                        "apiGroup": "rbac.authorization.k8s.io",
                        "kind": "ClusterRole",
                        "name": "kueue-metrics-reader",
                    },
                    "subjects": [{"kind": "ServiceAccount", "name": "gauges", "namespace": "kueue-system"}],
                }
            ]
        )
        context = ssl.create_default_context(cadata=self.bed.ca.decode())
        address = f"https://{config['metrics']['bindAddress']}"
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.Client(base_url=address, verify=context, timeout=30, trust_env=False, headers=headers)

    def _scrape(self) -> None:
        """As long as somebody wants to know: Kueue has to gather a thousand gauges each time."""
        while not self._over.is_set():
            with self._changed:
                while self._wanted == 0 and self.looks and not self._over.is_set():
                    self._changed.wait(1.0)
            began = time.monotonic()
            answer = self._http.get("/metrics")
            answer.raise_for_status()
            look = _parsed(began, answer.text)
            with self._changed:
                self.looks[:] = [look]
                self._changed.notify_all()
            self._over.wait(_EVERY)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Gauges are kept fresh meanwhile."""
        with self._changed:
            self._wanted += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._wanted -= 1

    # -- bells --------------------------------------------------------------------------------------------------------

    def ring(self) -> None:
        """Returns when every batch that Kueue was asked for before has been carried out."""
        ticket = _Ticket()
        with self._changed:
            self._tickets.append(ticket)
            self._changed.notify_all()
        self.until(lambda: ticket.done, "a bell")

    def _prepare_bells(self) -> None:
        objects: list[Doc] = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bells"}},
            _kueue("ResourceFlavor", "bell", {}),
        ]
        for number in range(BELLS):
            quota = {"name": "bell", "resources": [{"name": "cpu", "nominalQuota": "10"}]}
            groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
            objects.append(_kueue("ClusterQueue", f"bell{number}", {"namespaceSelector": {}, "resourceGroups": groups}))
            queue = _kueue("LocalQueue", f"bell{number}", {"clusterQueue": f"bell{number}"})
            queue["metadata"]["namespace"] = "bells"
            objects.append(queue)
        self.bed.apply(objects)

    def _bell(self, number: int) -> None:
        queue = f"bell{number}"
        running, parked = f"{queue}-running", f"{queue}-parked"
        desk = Desk(self.bed, "bells")
        if self.bed.found(desk.path("workloads", running)) is None:  # otherwise somebody has hung the bell up before
            desk.workload(running, queue=queue, priority=0, cpu="1m", count=_STROKES)
            self.until(lambda: self._said(running, "Admitted") != "", f"{running} to be admitted")
            desk.workload(parked, queue=queue, priority=0, cpu="10")
        self.until(lambda: "more needed" in self._said(parked, "QuotaReserved"), f"{parked} to be parked")
        given = sum(one["count"] for one in desk.get(running)["status"].get("reclaimablePods", ()))
        while given < _STROKES:
            with self._changed:
                while not self._tickets:
                    if self._over.is_set():
                        return
                    self._changed.wait(1.0)
                tickets, self._tickets = self._tickets, []
            before = self._said(parked, "QuotaReserved")
            given += 1
            back = {"status": {"reclaimablePods": [{"name": "main", "count": given}]}}
            self.bed.raw("PATCH", desk.path("workloads", running) + "/status", back, MERGE)
            self.until(partial(self._says_else, parked, before), f"{parked} to be tried again")
            with self._changed:
                for ticket in tickets:
                    ticket.done = True
                self._changed.notify_all()

    def _said(self, name: str, kind: str) -> str:
        return str(condition(self.workloads.get("bells", {}).get(name, {}), kind).get("message", ""))

    def _says_else(self, name: str, before: str) -> bool:
        return self._said(name, "QuotaReserved") != before


def _kueue(kind: str, name: str, spec: Doc) -> Doc:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _parsed(began: float, text: str) -> Look:
    pending: dict[str, dict[str, int]] = {}
    for found in _PENDING.finditer(text):
        here = pending.setdefault(found[1], {})
        here[found[2]] = here.get(found[2], 0) + int(float(found[3]))
    attempts = sum(int(float(found[1])) for found in _ATTEMPTS.finditer(text))
    return Look(began, attempts, pending, frozenset(found[1] for found in _COHORT.finditer(text)))
