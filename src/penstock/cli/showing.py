"""What `show` puts on the screen for a run, a step or a task, in each of its shapes. Called by look."""

from __future__ import annotations

import time
from typing import Any

import click

from penstock.cli import render, screens
from penstock.cli.board import Board
from penstock.service import views, why
from penstock.settings import Settings
from penstock.store.base import Run, TaskRow
from penstock.store.sql import Store


class Showing:
    def __init__(self, store: Store, run: Run, path: str, settings: Settings, output: str) -> None:
        self.store = store
        self.run = run
        self.path = path.rstrip("/")
        self.settings = settings
        self.json = output == "json"
        self.now = time.time()
        self.waits: list[why.Wait] = []
        """What of it stands in a queue."""

    def show(self, shape: str) -> None:
        if self.path:
            views.check_path(self.store, self.run, self.path)
        if shape == "events":
            self._events()
        elif shape == "gantt":
            self._gantt()
        elif shape == "tree":
            self._tree()
        elif self.path:
            self._below()
        elif self.json:
            view = self._view()
            render.json_out(view.as_data() | {"waits": [wait.as_data() for wait in self.waits]})
        else:
            view = self._view()
            screens.overview(view, self.settings, self.now, why.texts(self.waits))

    def _view(self) -> views.RunView:
        view = views.overview(self.store, self.run, self.settings)
        self.waits = why.in_line(self.store, self.run) if view.state == "running" else []
        if why.is_queued(view.run, view.state, {self.run.number} if self.waits else set()):
            view.state = "queued"
        view.reasons = {**view.reasons, **{path: said for path, said in why.texts(self.waits).items() if path}}
        return view

    def _rows(self) -> list[TaskRow]:
        return views.tasks(self.store, self.run, self.path)

    def _below(self) -> None:
        """One task if the path is a task, or a step that has only one; otherwise a list of tasks."""
        row = self.store.task(self.run.number, self.path)
        inside = self._rows()
        own = [one for one in inside if one.step == self.path or one.task == self.path]
        if row is None and len(own) == 1:
            row = own[0]
        if row is not None:
            self._task(row, [one for one in inside if one.task.startswith(row.task + "/")])
        elif self.json:
            render.json_out({"run": self.run.id, "step": self.path, "tasks": [views.task_data(one) for one in inside]})
        else:
            self._step(own or inside)

    def _task(self, row: TaskRow, inside: list[TaskRow]) -> None:
        view = views.task_view(self.store, self.run, row, self.settings)
        if self.json:
            data: dict[str, Any] = {"run": self.run.id, **view.as_data()}
            render.json_out({**data, "tasks": [views.task_data(one) for one in inside]} if inside else data)
            return
        screens.task(view, self.run, self.settings, self.now)
        if inside:
            click.echo()
            screens.task_table(inside, self.now)

    def _step(self, rows: list[TaskRow]) -> None:
        view = self._view()
        node = view.outline.by_path.get(self.path)
        if node is not None:
            board = Board(view.outline, view.reasons, waits=why.texts(self.waits))
            state = board.state_of(node) or "pending"
            render.print_line([(f"{self.run.id}/{self.path}", {"bold": True}), (f"  {state}", {})])
            for line in board.lines(view.times, [node], run=self.run.id):
                render.print_line(line)
            click.echo()
        if rows:
            screens.task_table(rows, self.now)
        else:
            render.note("none of its tasks has begun")

    def _events(self) -> None:
        path = self.path
        found = self.store.events(self.run.number)
        if path:
            from penstock.engine.live import step_of

            found = (event for event in found if event.task == path or step_of(event.task) == path)
        if self.json:
            render.json_out([event._asdict() for event in found])
        else:
            screens.events(found)

    def _gantt(self) -> None:
        view, rows = self._view(), self._rows()
        bands = views.gantt(view, rows, self.now, self.path)
        run = view.run
        last = [end for band in bands for _, end in band.spans]
        start = (
            run.created
            if not self.path
            else min((first for band in bands for first, _ in band.spans), default=run.created)
        )
        end = max(last, default=start)
        if self.json:
            render.json_out({"run": run.id, "start": start, "end": end, "bands": [band.as_data() for band in bands]})
            return
        screens.title(view, self.now)
        screens.chart(bands, start, end)

    def _tree(self) -> None:
        view, rows = self._view(), self._rows()
        if self.json:
            render.json_out({"run": self.run.id, "tasks": [views.task_data(row) for row in rows]})
        else:
            screens.tree(view, rows, self.now)
