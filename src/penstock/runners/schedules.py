"""Schedules on a server, from Python: what `Client.schedule` returns. Called by authors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from penstock.graph.model import Workflow
from penstock.service.connection import ServerConnection
from penstock.service.remote import parcel


class RemoteSchedule:
    """A workflow that a server runs by the clock."""

    def __init__(self, remote: ServerConnection, name: str) -> None:
        self.name = name
        self._remote = remote

    @property
    def data(self) -> dict[str, Any]:
        """As `penstock schedule show NAME -o json`."""
        found: dict[str, Any] = self._remote.get(f"schedules/{self.name}")
        return found

    def times(self, many: int = 5) -> list[float]:
        """When it is due next, in seconds since 1970."""
        found: list[float] = self._remote.get(f"schedules/{self.name}/times", limit=many)["times"]
        return found

    def pause(self) -> None:
        self._remote.post(f"schedules/{self.name}/pause", {})

    def resume(self) -> None:
        self._remote.post(f"schedules/{self.name}/resume", {})

    def run(self) -> str:
        """Now, beside its times. Returns the name of the run."""
        return str(self._remote.post(f"schedules/{self.name}/run", {})["run"])

    def remove(self) -> None:
        """Its runs stay."""
        self._remote.delete(f"schedules/{self.name}")

    def __repr__(self) -> str:
        return f"<RemoteSchedule {self.name} at {self._remote.base}>"


def add(
    remote: ServerConnection,
    name: str,
    graph: Workflow,
    params: dict[str, Any],
    *,
    cron: str | Sequence[str] = (),
    every: float | timedelta | None = None,
    **how: Any,
) -> RemoteSchedule:
    """`how`: further fields of POST /api/v1/schedules, by their names there."""
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    when = {"cron": [cron] if isinstance(cron, str) else list(cron), "every": seconds}
    body = parcel(remote, graph, params, how.pop("options", {}))
    remote.post("schedules", {**body, **how, **when, "schedule": name})
    return RemoteSchedule(remote, name)
