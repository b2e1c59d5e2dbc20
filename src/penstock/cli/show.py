"""A run, a step or a task in the shape that `penstock show` asks for: reads the views and hands them to the screens. Called by the command show,
which imports it when it runs.
"""

from __future__ import annotations

import time
from typing import Any

from penstock.cli.ui import render, runs, tasks
from penstock.cli.ui.board import Board
from penstock.graph.paths import step_of
from penstock.service.views import tasks as task_views
from penstock.service.views.details import details
from penstock.service.views.runs import RunView
from penstock.service.views.waits import Wait, texts
from penstock.settings import Settings
from penstock.store.records import RunRecord, TaskRow
from penstock.store.sql import Store


class RunScreen:
    """`path`: a step or task of the run, or ""."""

    def __init__(self, store: Store, run: RunRecord, path: str, settings: Settings, as_json: bool) -> None:
        self.store = store
        self.run = run
        self.path = path
        self.settings = settings
        self.json = as_json
        self.now = time.time()
        self.waits: list[Wait] = []
        """What of the run waits in a queue or for a lock."""

    def show(self, shape: str) -> None:
        """`shape`: events, gantt, lineage, tree or "". Raises NotFound if the run has no such step or task."""
        if self.path:
            task_views.check_path(self.store, self.run, self.path)
        if shape == "events":
            self._events()
        elif shape == "lineage":
            self._lineage()
        elif shape == "gantt":
            self._gantt()
        elif shape == "tree":
            self._tree()
        elif self.path:
            self._step_or_task()
        else:
            self._run()

    def _view(self) -> RunView:
        view, self.waits = details(self.store, self.run, self.settings)
        return view

    def _rows(self) -> list[TaskRow]:
        return task_views.tasks(self.store, self.run, self.path)

    def _run(self) -> None:
        view = self._view()
        if self.json:
            render.json_out(view.as_data() | {"waits": [wait.as_data() for wait in self.waits]})
        else:
            runs.overview(view, self.settings, self.now, texts(self.waits))

    def _step_or_task(self) -> None:
        """A task if the path names one, or a step that has only one; otherwise the tasks of a step."""
        row = self.store.runs.task(self.run.number, self.path)
        inside = self._rows()
        own = [one for one in inside if one.step == self.path or one.task == self.path]
        if row is None and len(own) == 1:
            row = own[0]
        if row is not None:
            self._task(row, [one for one in inside if one.task.startswith(row.task + "/")])
        elif self.json:
            rows = [task_views.task_data(one) for one in inside]
            render.json_out({"run": self.run.id, "step": self.path, "tasks": rows})
        else:
            self._step(own or inside)

    def _task(self, row: TaskRow, inside: list[TaskRow]) -> None:
        view = task_views.task_view(self.store, self.run, row, self.settings)
        if self.json:
            data: dict[str, Any] = {"run": self.run.id, **view.as_data()}
            render.json_out({**data, "tasks": [task_views.task_data(one) for one in inside]} if inside else data)
            return
        tasks.task(view, self.run, self.settings, self.now)
        if inside:
            render.data("")
            tasks.task_table(inside, self.now)

    def _step(self, rows: list[TaskRow]) -> None:
        view = self._view()
        node = view.outline.by_path.get(self.path)
        if node is not None:
            board = Board(view.outline, view.reasons, waits=texts(self.waits))
            state = board.state_of(node) or "pending"
            render.print_line([(f"{self.run.id}/{self.path}", {"bold": True}), (f"  {state}", {})])
            for line in board.lines(view.times, [node], run=self.run.id, width=render.columns()):
                render.print_line(line)
            render.data("")
        if rows:
            tasks.task_table(rows, self.now)
        else:
            render.note("none of its tasks has started")

    def _events(self) -> None:
        path = self.path
        found = self.store.runs.events(self.run.number)
        if path:
            found = (event for event in found if event.task == path or step_of(event.task) == path)
        if self.json:
            render.json_out([event._asdict() for event in found])
        else:
            tasks.events(found)

    def _lineage(self) -> None:
        from penstock.cli.ui.lineage import tree
        from penstock.service.views.lineage import lineage

        found = lineage(self.store, self.run)
        if self.json:
            render.json_out(found.as_data())
        else:
            tree(found, self.run.id)

    def _gantt(self) -> None:
        from penstock.cli.ui.timeline import chart
        from penstock.service.views.timeline import bands

        view = self._view()
        found = bands(view, self._rows(), self.now, self.path)
        run = view.run
        start = run.created
        if self.path:
            start = min((first for band in found for first, _ in band.spans), default=run.created)
        end = max((last for band in found for _, last in band.spans), default=start)
        if self.json:
            render.json_out({"run": run.id, "start": start, "end": end, "bands": [band.as_data() for band in found]})
            return
        runs.title(view, self.now)
        chart(found, start, end)

    def _tree(self) -> None:
        rows = self._rows()
        if self.json:
            render.json_out({"run": self.run.id, "tasks": [task_views.task_data(row) for row in rows]})
            return
        from penstock.cli.ui.tree import tree

        tree(self._view(), rows, self.now)
