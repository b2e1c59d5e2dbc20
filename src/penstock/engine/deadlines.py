"""Time limits of runs and of called workflows. Called by Engine, Dispatcher and Admitter. (The limit of one task is Dispatcher's.)

A limit counts from the moment at which something of the run or of the call is admitted: waiting for quota or a lock costs none of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.engine.active_run import ActiveRun
from penstock.engine.effects import CallOpened
from penstock.engine.steps import Task
from penstock.engine.timers import TurnTimers


class Deadlines:
    def __init__(
        self,
        timers: TurnTimers,
        now: Callable[[], float],
        waits_at_first: Callable[[ActiveRun], bool],
        expired: Callable[[ActiveRun], None],
    ) -> None:
        self._timers = timers
        self._now = now
        self._waits_at_first = waits_at_first
        """May the run have to wait for quota or locks before its first task starts?"""
        self._expired = expired
        """Called after the run's state knows that time is up."""
        self._limits: dict[int, float] = {}
        """Run -> the seconds that it may take, as long as they have not begun to count."""
        self._running: dict[int, asyncio.TimerHandle] = {}
        self._opened: dict[int, list[Task]] = {}
        """Run -> called workflows with a limit that have begun in this turn."""
        self._waiting: dict[int, dict[str, Task]] = {}
        """Run -> called workflows in which nothing is admitted yet, by the prefix of their tasks."""

    def limit_run(self, run: ActiveRun, seconds: float, since: float | None) -> None:
        """`since`: when it began to count; None: when something is admitted."""
        self._limits[run.number] = seconds
        if since is not None:
            self._start_run(run, since)

    def call_opened(self, run: ActiveRun, effect: CallOpened) -> None:
        if effect.task.step.timeout is not None:
            self._opened.setdefault(run.number, []).append(effect.task)

    def arm_calls(self, run: ActiveRun) -> None:
        """Once a turn: limits of the workflows that were called."""
        for task in reversed(self._opened.pop(run.number, ())):
            if self._waits_at_first(run):
                self._waiting.setdefault(run.number, {})[task.path + "/"] = task
            else:
                self._start_call(run, task)

    def admitted(self, run: ActiveRun, path: str) -> None:
        """Something of the run is admitted, or starts."""
        if run.number in self._limits:
            self._start_run(run, self._now())
        waiting = self._waiting.get(run.number)
        if waiting:
            for prefix in [prefix for prefix in waiting if path.startswith(prefix)]:
                self._start_call(run, waiting.pop(prefix))

    def forget(self, run: ActiveRun) -> None:
        self._limits.pop(run.number, None)
        self._opened.pop(run.number, None)
        self._waiting.pop(run.number, None)
        timer = self._running.pop(run.number, None)
        if timer is not None:
            timer.cancel()

    def _start_run(self, run: ActiveRun, since: float) -> None:
        limit = self._limits.pop(run.number)
        left = limit - min(max(0.0, self._now() - since), limit)
        self._running[run.number] = self._timers.after(left, lambda: self._run_over(run, limit))

    def _run_over(self, run: ActiveRun, limit: float) -> None:
        if run.owned:
            why = f"timed out after {limit:g} s"
            run.note("run.timeout", "", {"message": why})
            run.state.time_out("", why)
            self._expired(run)

    def _start_call(self, run: ActiveRun, task: Task) -> None:
        limit = task.step.timeout
        assert limit is not None
        self._timers.after(limit, lambda: self._call_over(run, task, limit))

    def _call_over(self, run: ActiveRun, task: Task, limit: float) -> None:
        if run.owned and run.state.live.get(task.path) is task:
            why = f"timed out after {limit:g} s"
            run.note("task.timeout", task.path, {"message": why})
            run.state.time_out(task.path, why)
            self._expired(run)
