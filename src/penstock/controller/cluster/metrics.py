"""What is measured, for Prometheus. Filled by run.Manager and server; read at /metrics.

The format is prometheus-client's: it is the reference, has no dependencies of its own, and knows histograms, escaping and the figures of the
process. It is imported when the controller starts, not before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any

STATES = ("ahead", "held", "open", "done")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
WAITS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)


class Metrics:
    """A registry of its own, so that two managers in one process do not mix."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        from prometheus_client.gc_collector import GCCollector
        from prometheus_client.process_collector import ProcessCollector

        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        given: Any = {"registry": self.registry, "namespace": "penstock"}
        self.reconciles = Counter("reconciles", "Workflows looked at, by outcome.", ["outcome"], **given)
        self.reconcile_seconds = Histogram(
            "reconcile_seconds", "Time to look at one workflow and write.", buckets=SECONDS, **given
        )
        self.writes = Counter("writes", "Requests that change the cluster.", ["verb", "kind", "code"], **given)
        self.events = Counter("events", "Kubernetes Events, by what became of them.", ["outcome"], **given)
        self.queue_depth = Gauge("queue_depth", "Workflows that wait to be looked at.", **given)
        self.queue_entries = Gauge("queue_entries", "All that the queue remembers, timers and failures too.", **given)
        self.leader = Gauge("leader", "1 on the replica that acts.", **given)
        self.cached = Gauge("cached_objects", "Objects in memory, by kind.", ["kind"], **given)
        self.lists = Gauge("lists", "How often a kind was listed as a whole, since the start.", ["kind"], **given)
        self.stages = Gauge("stages", "Stages of queued workflows, by state.", ["state"], **given)
        self.held = Histogram(
            "stage_held_seconds", "Time from a stage being held to its being let go.", buckets=WAITS, **given
        )
        self.webhooks = Counter(
            "webhook_requests", "Admission reviews, by path and answer.", ["path", "answer"], **given
        )
        self.webhook_seconds = Histogram(
            "webhook_seconds", "Time to answer an admission review.", ["path"], buckets=SECONDS, **given
        )
        self.asked = Counter(
            "leader_questions",
            "Reviews passed on to the replica that leads, by what became of it.",
            ["outcome"],
            **given,
        )
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[Hashable, dict[str, tuple[str, float]]] = {}
        self._counts = dict.fromkeys(STATES, 0)

    def text(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self.registry)

    def seen(self, key: Hashable, stages: Mapping[str, str]) -> None:
        """The states of a workflow's stages, by stage; empty when it is gone. Whoever reconciles calls it each time."""
        with self._lock:
            now = self._clock()
            old = self._known.pop(key, {})
            new: dict[str, tuple[str, float]] = {}
            for state, _ in old.values():
                self._counts[state] -= 1
            for stage, state in stages.items():
                before, since = old.get(stage, ("", now))
                if before == "held" and state == "open":
                    self.held.observe(now - since)
                new[stage] = (state, since if before == state else now)
                self._counts[state] = self._counts.get(state, 0) + 1
            if new:
                self._known[key] = new
            for state, count in self._counts.items():
                self.stages.labels(state).set(count)
