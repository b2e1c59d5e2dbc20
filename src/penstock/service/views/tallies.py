"""Tallies of a run from the store, kept up to date. Called by the views, `watch` and `logs -f`."""

from __future__ import annotations

from penstock.graph.paths import step_of
from penstock.service.run_records import removed
from penstock.store.records import FINAL, RunRecord
from penstock.store.sql import Store


class TallyReader:
    """Reads the task rows each time, and only the events that are new."""

    def __init__(self, store: Store, run: RunRecord) -> None:
        self.store = store
        self.run = run
        self.tallies: dict[str, dict[str, int]] = {}
        self.times: dict[str, list[float]] = {}
        self._seen = 0
        self._ready: dict[str, int] = {}
        """Step -> how many tasks it has in all."""
        self._without_row: dict[tuple[str, str], int] = {}
        """(step, state) -> tasks that ended together before they started: they have one event and no row."""
        self._retried = 0.0

    def read(self) -> None:
        """Raises NotFound if the run has been removed."""
        run = self.store.runs.by_number(self.run.number)
        if run is None:
            raise removed(self.run)
        self.run = run
        counts = self.store.runs.task_counts(run.number)
        if run.state not in FINAL or sum(run.counts.values()) != sum(count for count, _, _ in counts.values()):
            self._read_events()
        tallies: dict[str, dict[str, int]] = {}
        stamps: dict[str, tuple[list[float], list[float]]] = {}
        for (step, state), (count, started, ended) in counts.items():
            if state in ("failed", "errored", "cancelled", "omitted") and ended is not None and ended < self._retried:
                continue  # will be tried again
            tallies.setdefault(step, {})[state] = count
            starts, ends = stamps.setdefault(step, ([], []))
            starts += [started] if started is not None else []
            ends += [ended] if ended is not None else []
        for (step, state), many in self._without_row.items():
            tally = tallies.setdefault(step, {})
            tally[state] = tally.get(state, 0) + many
        for step, many in self._ready.items():
            tallies.setdefault(step, {})["tasks"] = many
        self.tallies = tallies
        self.times = {
            step: [min(starts), max(ends)] if ends else [min(starts)]
            for step, (starts, ends) in stamps.items()
            if starts
        }

    def _read_events(self) -> None:
        for event in self.store.runs.events(self.run.number, self._seen):
            self._seen = event.seq
            if event.kind == "step.ready":
                step = step_of(event.task)
                self._ready[step] = self._ready.get(step, 0) + int(event.data["tasks"])
            elif event.kind == "run.retried":
                self._retried = event.at
                self._without_row.clear()
            elif event.kind.startswith("step.") and int(event.data.get("tasks", 1)) > 1:
                place = step_of(event.task), event.kind.partition(".")[2]
                self._without_row[place] = self._without_row.get(place, 0) + int(event.data["tasks"])
