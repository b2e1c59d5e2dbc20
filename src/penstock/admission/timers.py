"""When time alone changes something about a Workload: the end of a backoff, the pods-ready timeout, the maximum execution time.
Lifecycle has one.

`watch` enters a time into a heap. An entry that no longer holds is recognised when it is due.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush

from penstock.admission.model import Config, Workload


class Timers:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.not_ready_since: dict[str, float] = {}
        """Workloads that were ready before and are not ready now."""
        self._heap: list[tuple[float, str]] = []

    def watch(self, workload: Workload) -> None:
        at = self.next_of(workload)
        if at is not None:
            heappush(self._heap, (at, workload.key))

    def forget(self, key: str) -> None:
        self.not_ready_since.pop(key, None)

    def pop_due(self, now: float) -> Iterator[str]:
        """The keys of Workloads whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            yield heappop(self._heap)[1]

    def next_time(self, workloads: Mapping[str, Workload]) -> float | None:
        while self._heap:
            at, key = self._heap[0]
            workload = workloads.get(key)
            if workload is not None and self.next_of(workload) == at:
                return at
            heappop(self._heap)
        return None

    def next_of(self, workload: Workload) -> float | None:
        if workload.eviction is not None:
            return None
        if workload.admission is None:
            return workload.requeue_at
        times = [at for at in (self.ready_deadline(workload), self.end_of(workload)) if at is not None]
        return min(times, default=None)

    def ready_deadline(self, workload: Workload) -> float | None:
        """It is evicted if its pods are not ready by then."""
        timeout = self.config.pods_ready_timeout
        if timeout is None or workload.admitted_at is None or workload.ready_at is not None:
            return None
        if not workload.was_ready:
            return workload.admitted_at + timeout
        if self.config.pods_ready_recovery is None:
            return None
        return self.not_ready_since.get(workload.key, workload.admitted_at) + self.config.pods_ready_recovery

    def end_of(self, workload: Workload) -> float | None:
        """When its maximum execution time is over."""
        if workload.max_seconds is None or workload.admitted_at is None:
            return None
        return workload.admitted_at + workload.max_seconds - workload.run_seconds


def backoff(count: int, base: float, most: float) -> float:
    """Seconds to wait after this many failures."""
    return min(base * 2.0 ** min(count - 1, 62), most)
