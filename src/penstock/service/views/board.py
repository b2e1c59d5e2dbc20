"""The graph of a run, as a page draws it: boxes with the state and the reason of each. Called by the server."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.drawing.board import BoardBox, BoardChoice, BoardStep, StepBoard, board
from penstock.errors import NotFound, Problem, nearest
from penstock.phrases import listed, plural
from penstock.service.views.outline import Outline, StepNode
from penstock.service.views.reasons import reason_of
from penstock.service.views.runs import RunView
from penstock.store.sql import Store

_POSITION = re.compile(r" \(position [\d,]+\)$")
SHOWN = 3
"""Reasons of a group that are told."""
ASKED = 300
"""Boxes whose reason is looked up if the view of the run does not have it."""


@dataclass(frozen=True, slots=True)
class GraphChoice:
    """What somebody looks at, as the address of the page says it."""

    inside: str = ""
    """The step whose workflow is drawn; empty: the run's own."""
    find: str = ""
    span: tuple[int, int] | None = None
    """Columns, from 0."""
    opened: tuple[str, ...] = ()


@dataclass(slots=True)
class GraphView:
    board: StepBoard
    nodes: Mapping[str, StepNode]
    """Those of this level."""
    around: Sequence[StepNode]
    """The steps inside of which this is, from the outside."""
    found: frozenset[str]
    """Paths of the steps that were searched for."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Box -> why it waits, failed, or has not begun."""
    waiting: Collection[str] = ()
    """Steps that wait in a queue or for a lock before any of their tasks has begun."""

    def state(self, node: StepNode) -> str:
        return node.state or ("waiting" if node.path in self.waiting else "")

    def as_data(self) -> dict[str, Any]:
        boxes = []
        for box in self.board.boxes:
            column = self.board.columns[box.column]
            data: dict[str, Any] = {"box": box.id, "columns": [column.first, column.last]}
            data |= {"x": box.x, "y": box.y, "reason": self.reasons.get(box.id, "")}
            if box.is_group:
                boxes.append({**data, "group": box.group, "steps": len(box.members)})
            else:
                node = self.nodes[box.id]
                boxes.append({**data, "step": box.id, "state": self.state(node) or "pending", "total": node.total})
        edges = [
            {"from": self.board.boxes[one.source].id, "to": self.board.boxes[one.target].id, "edges": one.many}
            for one in self.board.edges
        ]
        inside = self.around[-1].path if self.around else None
        whole = {"inside": inside, "steps": len(self.nodes), "columns": self.board.depth}
        return {**whole, "found": sorted(self.found), "boxes": boxes, "edges": edges}


def graph_of(outline: Outline, choice: GraphChoice, waiting: Collection[str] = ()) -> GraphView:
    """Without reasons: of a workflow that does not run, too. Raises NotFound: no such step."""
    around = _around(outline, choice.inside)
    parent = around[-1] if around else None
    nodes = {node.path: node for node in outline.nodes if node.parent is parent}
    word = choice.find.strip().lower()
    found = frozenset(path for path, node in nodes.items() if word in node.name.lower()) if word else frozenset()
    view = GraphView(board(()), nodes, around, found, waiting=waiting)
    view.board = board(_steps(view), BoardChoice(found, choice.span, choice.opened))
    return view


def graph_of_run(store: Store, view: RunView, choice: GraphChoice) -> GraphView:
    """Raises NotFound: no such step."""
    # What is said of a step without a task is what it waits for.
    waiting = {path for path, text in view.reasons.items() if text and not view.outline.by_path[path].state}
    found = graph_of(view.outline, choice, waiting)
    reasons = dict(view.reasons)
    asked = 0
    for box in found.board.boxes:
        node = None if box.is_group else found.nodes[box.id]
        if node is None or reasons.get(box.id) or node.state in ("", "succeeded", "running") or asked >= ASKED:
            continue
        asked += 1
        rows = store.runs.tasks(view.run.number, states=[node.state], step=box.id, limit=1)
        reasons[box.id] = reason_of(rows[0]) if rows else ""
    found.reasons = {box.id: _reason(box, found.nodes, reasons) for box in found.board.boxes}
    return found


def _around(outline: Outline, path: str) -> list[StepNode]:
    if not path:
        return []
    node = outline.by_path.get(path)
    if node is None or not node.nested:
        known = [one.path for one in outline.nodes if one.nested][:2000]
        fix = f"leave `in` out to see the whole graph.{nearest(path, known)}"
        raise NotFound(Problem("P507", f"{path!r} is no step that calls a workflow", fix))
    above: list[StepNode] = []
    while node is not None:
        above.insert(0, node)
        node = node.parent
    return above


def _steps(view: GraphView) -> list[BoardStep]:
    """Exit handlers come after all that nothing else comes after."""
    some = [node for node in view.nodes.values() if not node.at_end]
    handlers = [node for node in view.nodes.values() if node.at_end]
    made = [BoardStep(node.path, node.before, view.state(node)) for node in some]
    if handlers:
        waited_for = {up for node in some for up in node.before}
        ends = tuple(node.path for node in some if node.path not in waited_for)
        made += [BoardStep(node.path, (*node.before, *ends), view.state(node)) for node in handlers]
    return made


def _reason(box: BoardBox, nodes: Mapping[str, StepNode], reasons: Mapping[str, str]) -> str:
    if not box.is_group:
        return reasons.get(box.id) or _before(nodes[box.id], nodes)
    told: dict[str, int] = {}
    for path in box.members:
        if text := _POSITION.sub("", reasons.get(path, "")):
            told[text] = told.get(text, 0) + 1
    texts = [f"{text} (×{many:,})" if many > 1 else text for text, many in list(told.items())[:SHOWN]]
    more = plural(len(told) - SHOWN, "other reason") if len(told) > SHOWN else ""
    return "; ".join([*texts, *([more] if more else [])])


def _before(node: StepNode, nodes: Mapping[str, StepNode]) -> str:
    """Of a step that has not begun: what it comes after."""
    if node.state:
        return ""
    left = [nodes[up].name for up in node.before if up in nodes and not nodes[up].over]
    return f"comes after {listed(left)}" if left else ""
