"""Runs that wait in queues, recorded as an engine would. Used by the tests of queues, views and why."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from penstock.admission.model import PodSet, Workload
from penstock.engine.quota_replica import QuotaReplica
from penstock.graph.model import Workflow
from penstock.service.machine import machine
from penstock.service.queues import apply
from penstock.store.records import RunRecord
from penstock.store.sql import Store, open_store
from tests.cli.history import Hand

FLAVOR = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "default"}}


def manifest(*documents: dict[str, Any]) -> str:
    api = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    return "".join(f"---\n{json.dumps({**api, **document})}\n" for document in documents)


def cluster_queue(name: str, cpu: int | str = 2, **spec: Any) -> dict[str, Any]:
    flavors = [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpu}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    fields = {"namespaceSelector": {}, "resourceGroups": groups, **spec}
    return {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": fields}


def local_queue(name: str, to: str, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace}
    return {"kind": "LocalQueue", "metadata": meta, "spec": {"clusterQueue": to, **spec}}


def priority(name: str, value: int) -> dict[str, Any]:
    return {"kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}


TWO_TEAMS = manifest(
    FLAVOR,
    cluster_queue("shared"),
    local_queue("team-a", "shared"),
    local_queue("team-b", "shared"),
    priority("high", 10),
)


class Lines:
    """A store with queues, and runs of one engine in them."""

    def __init__(self, home: Path, queues: str = TWO_TEAMS) -> None:
        self.home = home
        self.store: Store = open_store(str(home))
        if queues:
            apply(self.store, (queues, "queues.yaml"))

    def close(self) -> None:
        self.store.close()

    def run(self, graph: Workflow, ago: float = 0.0) -> Hand:
        return Hand(self.home, graph, ago=ago)

    def ask(self, run: Hand, name: str, cpu: float = 1, queue: str = "team-a", **fields: Any) -> Workload:
        """Put a Workload in line, decide, and write down what was decided. `name`: of the reservation; "" for the whole run."""
        now = time.time()
        podset = {key: fields.pop(key) for key in ("count", "min_count") if key in fields}
        workload = Workload(
            name=f"{run.id}/{name}".rstrip("/"),
            queue=queue,
            podsets=(PodSet(requests={"cpu": int(cpu * 1000)}, **podset),),
            created=run.at,
            **fields,
        )
        self.decide(run, lambda replica: replica.submit(workload, run.number, now), now)
        return workload

    def finish(self, run: Hand, workload: Workload) -> None:
        now = time.time()
        self.decide(run, lambda replica: replica.scheduler.finish(workload.key, now), now)

    def decide(self, run: Hand, what: Any, now: float) -> None:
        run.store.journal.begin()
        number = run.store.journal.next_decision()
        replica = QuotaReplica(run.store.queues, run.me.id, machine({"cpu": 2000}))
        replica.load(now)
        replica.version = number
        what(replica)
        replica.scheduler.settle(now)
        run.batch.workloads.update(replica.written())
        run.store.journal.flush(run.batch, run.me.id)
        run.store.journal.commit()
        run.batch.clear()

    def recorded(self, run: Hand) -> RunRecord:
        return run.write()
