"""All Workloads that are not finished, by key and by LocalQueue, and which of them have changed. The scheduler has one; queues and
lifecycle share it.
"""

from __future__ import annotations

from penstock.admission.model import Workload


class WorkloadIndex:
    def __init__(self) -> None:
        self.by_key: dict[str, Workload] = {}
        self.by_local_queue: dict[str, dict[str, None]] = {}
        """LocalQueue -> the keys of its Workloads."""
        self.touched: set[str] = set()
        """The keys of Workloads that have changed since the caller of the scheduler cleared this."""

    def add(self, workload: Workload) -> None:
        self.touched.add(workload.key)
        self.by_key[workload.key] = workload
        self.by_local_queue.setdefault(workload.local_queue, {})[workload.key] = None

    def remove(self, workload: Workload) -> None:
        self.touched.add(workload.key)
        del self.by_key[workload.key]
        members = self.by_local_queue[workload.local_queue]
        del members[workload.key]
        if not members:
            del self.by_local_queue[workload.local_queue]

    def of(self, local_queue: str) -> list[Workload]:
        return [self.by_key[key] for key in self.by_local_queue.get(local_queue, ())]
