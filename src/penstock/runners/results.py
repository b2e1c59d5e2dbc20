"""What the steps of a run gave: `run["train"].result`, `run["train"][3].logs`. Made by Run; called by authors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.graph.paths import step_of
from penstock.runners.base import RunFailed, single_result
from penstock.runners.declared import outputs_of_step
from penstock.service import stores
from penstock.service.logs import log_text
from penstock.service.results import GOOD, RunResults, executed, opened
from penstock.service.task_states import BAD, ENDED
from penstock.service.views.outline import Outline
from penstock.service.views.reasons import reason_of
from penstock.service.views.tallies import TallyReader
from penstock.settings import Settings
from penstock.store.records import TaskRow
from penstock.store.sql import Store


class _Opened:
    """The store, opened for one question and closed again: a result may be kept longer than anything else."""

    def __init__(self, settings: Settings, run: str) -> None:
        self.settings = settings
        self.run = run

    def __enter__(self) -> RunResults:
        from penstock.service.run_records import find

        self._store: Store = stores.open_or_create(self.settings)
        try:
            return RunResults(self._store, find(self._store, self.run), self.settings)
        except BaseException:
            self._store.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._store.close()


class TaskResult:
    """One task of a run, as it is when it is asked."""

    def __init__(self, settings: Settings, run: str, path: str) -> None:
        self._settings = settings
        self.run = run
        self.path = path
        """`train[3]`"""

    def _row(self) -> TaskRow | None:
        with _Opened(self._settings, self.run) as results:
            return results.store.runs.task(results.run.number, self.path)

    @property
    def status(self) -> str:
        """The state of the task: running, succeeded, reused, failed, …; pending before it has started."""
        row = self._row()
        return "pending" if row is None else row.state

    @property
    def ok(self) -> bool:
        return self.status in GOOD

    @property
    def outputs(self) -> dict[str, Any]:
        """Its outputs by name; empty unless it has succeeded."""
        with _Opened(self._settings, self.run) as results:
            found = results.of(results.rows(self.path))
            workflow = results.workflow
        return outputs_of_step(workflow, self.path, opened(self._settings, self.run, found.get(self.path, {})))

    @property
    def result(self) -> Any:
        """Its output, if it has one. Raises RunFailed if it has not succeeded."""
        _check(self.run, self.path, self.status, self.error, self.ok)
        return single_result(f"{self.run}/{self.path}", self.outputs)

    @property
    def error(self) -> str | None:
        """Why it failed or did not run; None if there is nothing to say."""
        row = self._row()
        return None if row is None or row.state in GOOD else reason_of(row) or None

    @property
    def logs(self) -> str:
        """What it printed; if it was reused, what it printed where it was executed."""
        with _Opened(self._settings, self.run) as results:
            row = results.store.runs.task(results.run.number, self.path)
            row = None if row is None else executed(results.store, row)
        return "" if row is None else log_text(self._settings, row.info.get("log") or ())

    @property
    def seconds(self) -> float | None:
        """How long it took; None unless it has started and ended."""
        row = self._row()
        return None if row is None or row.started is None or row.ended is None else max(0.0, row.ended - row.started)

    def __repr__(self) -> str:
        return f"<{self.run}/{self.path} {self.status}>"


class StepResult:
    """One step of a run with all its tasks, as it is when it is asked. `step[3]` is the task of item 3."""

    def __init__(self, settings: Settings, run: str, path: str) -> None:
        self._settings = settings
        self.run = run
        self.path = path

    @property
    def status(self) -> str:
        """pending, running, succeeded, reused, failed, … as `penstock show` says."""
        with _Opened(self._settings, self.run) as results:
            if self.path != step_of(self.path):
                rows = results.rows(self.path)
                order = (*BAD, "cancelled", "running", "waiting", "retrying", "suspended", *ENDED)
                return next((state for state in order if any(row.state == state for row in rows)), "pending")
            reader = TallyReader(results.store, results.run)
            reader.read()
            outline = Outline(results.workflow)
            outline.measure(reader.tallies, results.run.state)
            return outline.by_path[self.path].state or "pending"

    @property
    def ok(self) -> bool:
        return self.status in GOOD

    @property
    def outputs(self) -> dict[str, Any]:
        """As the steps after it see them: of a loop a list for each output, of what has succeeded."""
        with _Opened(self._settings, self.run) as results:
            found = results.of_step(self.path)
            workflow = results.workflow
        return outputs_of_step(workflow, self.path, opened(self._settings, self.run, found))

    @property
    def result(self) -> Any:
        """Its output, of a loop a list. Raises RunFailed if it has not succeeded."""
        _check(self.run, self.path, self.status, self.error, self.ok)
        with _Opened(self._settings, self.run) as results:
            empty = not results.rows(self.path) and results.is_many(self.path)
        return [] if empty else single_result(f"{self.run}/{self.path}", self.outputs)

    @property
    def error(self) -> str | None:
        """Why it failed or did not run: what its first such task says."""
        found = [task.error for task in self if task.status not in GOOD]
        return next((error for error in found if error), None)

    @property
    def logs(self) -> str:
        """What all its tasks printed, one after the other."""
        return "".join(task.logs for task in self)

    @property
    def seconds(self) -> float | None:
        """From the start of its first task to the end of its last; None unless all that have started have ended."""
        rows = self._rows()
        starts = [row.started for row in rows if row.started is not None]
        ends = [row.ended for row in rows if row.ended is not None]
        return max(0.0, max(ends) - min(starts)) if starts and ends and len(ends) == len(rows) else None

    def _rows(self) -> list[TaskRow]:
        with _Opened(self._settings, self.run) as results:
            return results.rows(self.path)

    def __len__(self) -> int:
        """Tasks that have started, or were skipped."""
        return len(self._rows())

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[TaskResult]:
        for row in self._rows():
            yield TaskResult(self._settings, self.run, row.task)

    def __getitem__(self, number: int) -> TaskResult:
        """Of a loop, the task of the item with this number; of a while loop the round, counted from 0; -1 is the last one.
        Raises IndexError."""
        rows = self._rows()
        if number >= 0:
            item = f"{self.path}[{number}]"
            if any(row.task == item for row in rows):
                return TaskResult(self._settings, self.run, item)
        numbered = any(row.task.startswith(f"{self.path}[") and row.task.endswith("]") for row in rows)
        if (numbered and number >= 0) or not -len(rows) <= number < len(rows):
            raise IndexError(f"{self.run}/{self.path} has no task {number}; it has {len(rows)} so far")
        return TaskResult(self._settings, self.run, rows[number].task)

    def __repr__(self) -> str:
        return f"<{self.run}/{self.path} {self.status}, {len(self)} tasks>"


def step_or_task(settings: Settings, run: str, path: str) -> StepResult | TaskResult:
    """`train`, `outer/train`, `train[3]`. Raises NotFound."""
    with _Opened(settings, run) as results:
        results.rows(path)
        indexed = path != step_of(path) and results.store.runs.task(results.run.number, path) is not None
    return TaskResult(settings, run, path) if indexed else StepResult(settings, run, path)


def _check(run: str, path: str, status: str, error: str | None, ok: bool) -> None:
    if not ok:
        raise RunFailed(f"{run}/{path}", status, [error] if error else [])
