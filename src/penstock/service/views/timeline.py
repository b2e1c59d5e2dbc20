"""When the steps or tasks of a run ran. Called by `show --gantt`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.service.views.runs import RunView
from penstock.store.records import TaskRow


@dataclass(slots=True)
class Band:
    """One row of the chart: a step, or a task."""

    name: str
    depth: int
    state: str
    spans: list[tuple[float, float]]
    """Start and end of the last attempt of each of its tasks."""

    def as_data(self) -> dict[str, Any]:
        return {"name": self.name, "state": self.state, "spans": [list(span) for span in self.spans]}


def bands(view: RunView, rows: Iterable[TaskRow], now: float, path: str = "") -> list[Band]:
    """One band for each step that has run; with `path`, one for each task."""
    if path:
        return [
            Band(row.task, 0, row.state, _span(row, now))
            for row in rows
            if row.started is not None or row.state == "reused"
        ]
    spans: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        spans.setdefault(row.step, []).extend(_span(row, now))
    nodes = [node for node in view.outline.nodes if spans.get(node.path)]
    return [Band(node.name, node.depth, node.state, spans[node.path]) for node in nodes]


def _span(row: TaskRow, now: float) -> list[tuple[float, float]]:
    if row.started is None:
        return [(row.ended, row.ended)] if row.state == "reused" and row.ended is not None else []
    return [(row.started, max(row.started, now if row.ended is None else row.ended))]
