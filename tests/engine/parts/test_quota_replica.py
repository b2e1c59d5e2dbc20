"""QuotaReplica alone, on a store that is a list of rows: what others have written is taken over, and what is asked of the copy."""

from __future__ import annotations

import json

from penstock.admission.model import PodSet, Workload
from penstock.engine.quota_replica import QuotaReplica
from penstock.service.queues import machine
from penstock.store.records import WorkloadRecord

CPU = 1000
Row = tuple[str, str, int, str | None]


class Rows:
    """A QueueStore."""

    def __init__(self) -> None:
        self.objects: list[Row] = []
        self.written: list[tuple[int, WorkloadRecord]] = []
        self.decisions = 0

    def put(self, kind: str, name: str, spec: object, metadata: dict[str, str] | None = None) -> None:
        document = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": kind,
            "metadata": {"name": name, **(metadata or {})},
            "spec": spec,
        }
        self.decisions += 1
        self.objects.append((kind, name, self.decisions, json.dumps(document)))

    def queue_objects(self, after: int = -1) -> list[Row]:
        return [row for row in self.objects if row[2] > after]

    def workloads(self, after: int | None = None) -> list[WorkloadRecord]:
        if after is None:
            return [record for _, record in self.written if record.state != "over"]
        return [record for number, record in self.written if number > after]

    def last_decision(self) -> int:
        return self.decisions

    def take(self, replica: QuotaReplica) -> None:
        """What this replica has to write, under the next number."""
        self.decisions += 1
        replica.version = self.decisions
        rows = [WorkloadRecord(*row) for row in replica.written().values()]
        changed = {record.key for record in rows}
        self.written = [one for one in self.written if one[1].key not in changed]
        self.written += [(self.decisions, record) for record in rows]


def queue(rows: Rows, name: str, cpu: int, **spec: object) -> None:
    rows.put("ResourceFlavor", "default", {})
    quota = [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": quota}]
    rows.put("ClusterQueue", name, {"resourceGroups": groups, "namespaceSelector": {}, **spec})


def replica_of(rows: Rows, me: str) -> QuotaReplica:
    found = QuotaReplica(rows, me, machine({"cpu": 4 * CPU}))  # type: ignore[arg-type]
    found.load(0.0)
    return found


def workload(name: str, cpu: int, queue: str = "default", created: float = 1.0) -> Workload:
    return Workload(
        name=name, queue=queue, podsets=(PodSet(count=1, requests={"cpu": cpu * CPU}),), created=created, uid=name
    )


def test_it_catches_up_with_what_another_engine_admitted_and_ended() -> None:
    rows = Rows()
    mine, other = replica_of(rows, "me"), replica_of(rows, "other")
    other.submit(workload("a", 3), 7, 1.0)
    other.scheduler.settle(1.0)
    rows.take(other)
    assert mine.catch_up(2.0, rows.last_decision()) == {"default/a"}
    assert mine.owners == {"default/a": (7, "other")}
    assert mine.scheduler.workloads["default/a"].admission is not None
    assert mine.written() == {}, "what others have written is not written again"
    other.scheduler.remove("default/a", 3.0)
    rows.take(other)
    assert mine.catch_up(4.0, rows.last_decision()) == {"default/a"}
    assert mine.owners == {} and not mine.scheduler.workloads


def test_queues_that_are_configured_later_replace_the_default_one_for_all_workloads() -> None:
    rows = Rows()
    mine = replica_of(rows, "me")
    mine.submit(workload("a", 3), 1, 1.0)
    mine.scheduler.settle(1.0)
    rows.take(mine)
    assert mine.queue_for("whatever") == ("default", "default")
    queue(rows, "team", 8)
    assert mine.catch_up(2.0, rows.last_decision()) == {"default/a"}, "whose queue is gone now"
    assert mine.configured and mine.queue_for(None) == ("default", "team")
    assert mine.queue_for("team") == ("default", "team")
    assert mine.queue_for("unknown") == ("default", "unknown"), "which scheduler says of its Workloads"


def test_quota_is_contended_if_others_wait_for_it_or_the_queue_is_stopped() -> None:
    rows = Rows()
    queue(rows, "team", 4)
    mine = replica_of(rows, "me")
    mine.submit(workload("a", 4, "team"), 1, 1.0)
    mine.scheduler.settle(1.0)
    assert not mine.contended("default/a", 0)
    mine.submit(workload("b", 1, "team", created=2.0), 1, 2.0)
    mine.scheduler.settle(2.0)
    assert mine.contended("default/a", 0)
    assert not mine.contended("default/a", 1), "it is another part of the same reservation"
    rows.take(mine)
    queue(rows, "team", 4, stopPolicy="Hold")
    mine.catch_up(3.0, rows.last_decision())
    assert mine.contended("default/a", 1)


def test_a_queue_that_is_stopped_or_counts_pods_admits_even_what_needs_nothing() -> None:
    rows = Rows()
    mine = replica_of(rows, "me")
    assert not mine.holds_all(None) and not mine.strict
    queue(rows, "open", 4)
    queue(rows, "shut", 4, stopPolicy="HoldAndDrain")
    mine.catch_up(1.0, rows.last_decision())
    assert not mine.holds_all("open")
    assert mine.holds_all("shut") and mine.strict
    assert not mine.holds_all("unknown")
