"""A run as a tree: steps, called workflows and items, each below what it belongs to. Called by `show --tree`."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.ui import render
from penstock.cli.ui.marks import MARKS, WORDS
from penstock.cli.ui.render import DIM, Line
from penstock.cli.ui.runs import title
from penstock.cli.ui.tasks import took, urgency
from penstock.graph.paths import natural
from penstock.service.task_states import ACTIVE, BAD, ENDED
from penstock.service.views.outline import StepNode
from penstock.service.views.reasons import reason_of
from penstock.service.views.runs import RunView
from penstock.store.records import TaskRow

ITEMS = 10
"""Tasks of one step that are shown on a terminal."""


def tree(view: RunView, rows: Sequence[TaskRow], now: float) -> None:
    title(view, now)
    _Tree(view, rows, now).scope("", "", "")


class _Tree:
    def __init__(self, view: RunView, rows: Sequence[TaskRow], now: float) -> None:
        self.now = now
        self.rows: dict[str, dict[str, list[TaskRow]]] = {}
        """Task around it -> step -> tasks."""
        for row in rows:
            self.rows.setdefault(row.task.rpartition("/")[0], {}).setdefault(row.step, []).append(row)
        self.nodes: dict[str, list[StepNode]] = {}
        """Step around it -> steps."""
        for node in view.outline.nodes:
            self.nodes.setdefault(node.path.rpartition("/")[0], []).append(node)

    def scope(self, task: str, step: str, margin: str) -> None:
        """The steps inside this task of this step."""
        nodes = self.nodes.get(step, [])
        for number, node in enumerate(nodes):
            last = number == len(nodes) - 1
            here = self.rows.get(task, {}).get(node.path, [])
            below = margin + ("   " if last else "│  ")
            if len(here) == 1 and here[0].task.rpartition("/")[2] == node.name:
                self._leaf(margin, last, here[0])
                self.scope(here[0].task, node.path, below)
                continue
            _group(margin, last, node, here)
            self._items(here, node, below)

    def _items(self, here: list[TaskRow], node: StepNode, below: str) -> None:
        shown = here
        if render.is_terminal() and len(here) > ITEMS:
            worst = sorted(here, key=lambda row: urgency(row.state))[:ITEMS]
            shown = sorted(worst, key=lambda row: natural(row.task))
        for number, row in enumerate(shown):
            last = number == len(shown) - 1 and len(shown) == len(here)
            self._leaf(below, last, row)
            self.scope(row.task, node.path, below + ("   " if last else "│  "))
        if len(shown) < len(here):
            render.data(f"{below}└─ {render.paint(f'… {len(here) - len(shown):,} more', dim=True)}")

    def _leaf(self, margin: str, last: bool, row: TaskRow) -> None:
        why = render.clean(reason_of(row))
        word = "" if row.state in ("succeeded", "running") and render.is_terminal() else f"  {row.state}"
        line = _branch(margin, last, row.state, row.task.rpartition("/")[2])
        line += [(f"  {took(row, self.now)}" if row.started else "", DIM), (word + (f": {why}" if why else ""), DIM)]
        render.print_line(line)


def _group(margin: str, last: bool, node: StepNode, here: Sequence[TaskRow]) -> None:
    counts: dict[str, int] = {}
    for row in here:
        counts[row.state] = counts.get(row.state, 0) + 1
    state = next((one for one in (*BAD, *ACTIVE, *ENDED) if counts.get(one)), "")
    many = f" ×{len(here):,}  " if here else ""
    words = " · ".join(f"{some:,} {WORDS.get(one, one)}" for one, some in counts.items())
    render.print_line([*_branch(margin, last, state, node.name), (many + words, DIM)])


def _branch(margin: str, last: bool, state: str, name: str) -> Line:
    mark, colour = MARKS.get(state, ("·", ""))
    return [(margin + ("└─ " if last else "├─ "), DIM), (mark, {"fg": colour} if colour else DIM), (f" {name}", {})]
