"""What somebody may be told of an engine's decisions while it runs. Implemented by the simulator; a real run has the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from penstock.engine.active_run import ActiveRun
from penstock.engine.quota import AdmitterQuota


class Observer(Protocol):
    def decided(self, rows: Mapping[str, tuple[str, int, int, str, str, str]], quota: AdmitterQuota) -> None:
        """The queues have decided. `rows`: the Workloads that have changed, as they are recorded."""
        ...

    def evicted(self, run: ActiveRun, workload: str) -> None:
        """What runs on this Workload is stopped."""
        ...

    def run_ended(self, run: ActiveRun) -> None: ...
