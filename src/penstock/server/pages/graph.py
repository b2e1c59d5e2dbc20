"""The graph of a run, of any size: what is looked at is in the address. Taken in by site.

`in` the step whose workflow is drawn · `find` a part of names · `from`, `to` columns, from 1 · `open` a group · `step` the step that is told about
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from penstock.drawing.board import GROUPS, HEIGHT, WIDTH, BoardBox
from penstock.drawing.spacing import fit
from penstock.drawing.svg import StepMark, svg
from penstock.errors import NotFound, Problem
from penstock.phrases import clean, plural, quoted
from penstock.server.api.common import RunName, needs, settings_of, with_run
from penstock.server.pages.site import SIGNS, TONES, WORDS, page, wants_json
from penstock.server.pages.steps import shown_step
from penstock.service import why_text
from penstock.service.run_records import workflow_of
from penstock.service.stores import home_of
from penstock.service.views.board import GraphChoice, GraphView, graph_of_run
from penstock.service.views.details import details
from penstock.service.views.outline import Outline, StepNode
from penstock.service.views.runs import RunView
from penstock.service.views.why import WaitReport, why
from penstock.store.records import FINAL, RunRecord
from penstock.store.sql import Store

router = APIRouter(include_in_schema=False)
LOOK = needs("viewer", "look at runs")
DRAWN: Final = 300
"""Steps that are drawn as one picture."""
MOST_OPEN: Final = 10
"""Groups that are open at once: those that were opened last."""
NEIGHBOURS: Final = 8
"""Steps before and after one that are named beside it."""
Text = Annotated[str, Query(max_length=1000)]
Column = Annotated[int | None, Query(ge=1, le=1_000_000)]


class _Address:
    """What is looked at, as the query of an address."""

    def __init__(self, choice: GraphChoice, step: str = "") -> None:
        self.choice = choice
        self.step = step

    def __call__(self, **changes: Any) -> str:
        """With some of it otherwise: inside, find, span, opened, step."""
        choice = self.choice
        span = changes.get("span", choice.span)
        opened = changes.get("opened", choice.opened)
        given = [
            ("in", changes.get("inside", choice.inside)),
            ("find", changes.get("find", choice.find)),
            *([("from", str(span[0] + 1)), ("to", str(span[1] + 1))] if span else []),
            *(("open", one) for one in opened[-MOST_OPEN:]),
            ("step", changes.get("step", self.step)),
        ]
        return "?" + urlencode([(name, value) for name, value in given if value], quote_via=quote, safe="/")


@router.get("/runs/{run}/graph", dependencies=[LOOK])
async def show_graph(
    request: Request,
    run: RunName,
    find: Text = "",
    step: Text = "",
    inside: Annotated[str, Query(alias="in", max_length=1000)] = "",
    first: Annotated[Column, Query(alias="from")] = None,
    last: Annotated[Column, Query(alias="to")] = None,
    opened: Annotated[list[str] | None, Query(alias="open", max_length=50)] = None,
) -> Response:
    """The steps as boxes in columns; many are folded into groups."""
    settings = settings_of(request)
    span = (first - 1, last - 1) if first is not None and last is not None else None
    choice = GraphChoice(inside, find, span, tuple(dict.fromkeys(opened or ())))
    address = _Address(choice, step)

    def look(store: Store, record: RunRecord) -> dict[str, Any]:
        view, waits = details(store, record, settings)
        graph = graph_of_run(store, view, choice)
        chosen = _chosen(graph, view, why(store, view.run, step, home_of(settings), (view, waits))) if step else None
        data = {}
        if wants_json(request):
            data = {"run": view.run.id, "state": view.state, **graph.as_data(), "step": chosen and chosen["data"]}
        return {
            "data": data,
            "run": view.run,
            "state": view.state,
            "live": view.run.state not in FINAL,
            "chosen": chosen,
            **drawn(graph, address, step, view),
        }

    data = await with_run(request, run, look)
    name = data["run"].id + (f"/{step}" if step else "")
    command = f"penstock {'why' if step else 'show'} {quoted(name)}"
    return page(request, "graph.html", {**data, "choice": choice, "address": address}, command)


def drawn(graph: GraphView, address: _Address | None, step: str = "", view: RunView | None = None) -> dict[str, Any]:
    """What the template needs of a graph. Without a view: of a workflow that does not run. Without an address its boxes lead nowhere."""
    made = graph.board
    places = {box.id: number for number, box in enumerate(made.boxes)}
    near = places.get(step, -1)
    return {
        "board": made,
        "size": {"width": WIDTH, "height": HEIGHT},
        "boxes": [_box(graph, box, address, step, view) for box in made.boxes],
        "edges": [(one.path, one.many, near in (one.source, one.target)) for one in made.edges],
        "around": graph.around,
        "many": len(graph.nodes),
        "found": len(graph.found),
    }


def _box(graph: GraphView, box: BoardBox, address: _Address | None, step: str, view: RunView | None) -> dict[str, Any]:
    reason = graph.reasons.get(box.id, "")
    data = {"id": box.id, "x": box.x, "y": box.y, "reason": reason, "inside": "", "bar": (), "chosen": box.id == step}
    if box.is_group:
        return data | _group(graph, box, address)
    node = graph.nodes[box.id]
    stamps = view.times.get(node.path, ()) if view is not None else ()
    row = shown_step(node, stamps, reason)
    total = f" ×{node.total:,}" if node.many and node.total is not None else " ×?" if node.each else ""
    now = graph.state(node)
    words = row["counts"] if node.many and row["counts"] else WORDS.get(now, now)
    took = f" · {row['took']}" if row["took"] else ""
    lead = f"{SIGNS.get(now, '·')} " if view is not None else ""
    return data | {
        "kind": "step",
        "tone": TONES.get(now, "plain"),
        "name": fit(clean(node.name), 15, WIDTH - 26 - 8 * len(total)) + total,
        "words": fit(lead + words + took if view is not None else node.step.action.kind, 13, WIDTH - 24),
        "label": f"{clean(node.path)}{total}: " + (f"{words}{took}" if view is not None else node.step.action.kind),
        "bar": row["bar"],
        "href": address(step=box.id) if address is not None else "",
        "inside": address(inside=node.path, find="", span=None, opened=(), step="") if node.nested and address else "",
        "dim": bool(graph.found) and node.path not in graph.found,
    }


def _group(graph: GraphView, box: BoardBox, address: _Address | None) -> dict[str, Any]:
    column = graph.board.columns[box.column]
    many = plural(len(box.members), "step")
    state, opened = GROUPS[box.group][0], address.choice.opened if address is not None else ()
    if address is None:
        does, href = "too many to be drawn one by one", ""
    elif column.first != column.last:
        does, href = "show its columns", address(span=(column.first, column.last), opened=())
    elif box.id in opened:
        does, href = "fold the others of them again; search finds these", address(opened=_without(opened, box.id))
    else:
        does, href = "show them", address(opened=(*opened, box.id))
    some = ", ".join(graph.nodes[path].name for path in box.members[:3])
    return {
        "kind": "group",
        "tone": TONES.get(state, "plain"),
        "name": f"{SIGNS.get(state, '·')} {many} {box.group}",
        "words": fit(clean(some) + (" …" if len(box.members) > 3 else ""), 13, WIDTH - 24),
        "label": f"{many} {box.group}: {does}",
        "href": href,
        "dim": bool(graph.found) and not any(path in graph.found for path in box.members),
    }


def _without(names: Sequence[str], name: str) -> tuple[str, ...]:
    return tuple(one for one in names if one != name)


def _chosen(graph: GraphView, view: RunView, report: WaitReport) -> dict[str, Any]:
    """All about one step: the whole `why`. Raises NotFound."""
    path = report.path
    node = view.outline.by_path.get(path)
    if node is None:
        fix = "choose one of the boxes, or search for a name"
        raise NotFound(Problem("P507", f"{path!r} is no step of {view.run.id}", fix))
    return {
        "data": report.as_data(),
        "node": node,
        "state": graph.state(node),
        "row": shown_step(node, view.times.get(path, ()), graph.reasons.get(path) or view.reasons.get(path, "")),
        "head": why_text.head(report),
        "waits": why_text.waits(report, time.time())[:20],
        "past": why_text.past(report)[-20:],
        "before": _some([view.outline.by_path[up] for up in node.before]),
        "after": _some(_after(view.outline, node)),
    }


def _after(outline: Outline, node: StepNode) -> list[StepNode]:
    return [one for one in outline.nodes if one.parent is node.parent and node.path in one.before]


def _some(nodes: Sequence[StepNode]) -> tuple[list[StepNode], int]:
    """The first ones, and how many there are besides."""
    return list(nodes[:NEIGHBOURS]), max(0, len(nodes) - NEIGHBOURS)


@router.get("/runs/{run}/graph.svg", dependencies=[LOOK])
async def picture(request: Request, run: RunName) -> Response:
    """The workflow as it was written, as one picture with the state of each step."""
    settings = settings_of(request)

    def look(store: Store, record: RunRecord) -> str:
        view, _ = details(store, record, settings)
        if len(view.outline.nodes) > DRAWN:
            fix = f"its graph is at /runs/{record.id}/graph"
            raise NotFound(Problem("P507", f"{record.id} has more than {DRAWN} steps: too many for a picture", fix))
        marks = {node.path: StepMark(node.state, _words(node)) for node in view.outline.nodes if node.state}
        return svg(workflow_of(store, record), marks)

    headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return Response(await with_run(request, run, look), media_type="image/svg+xml", headers=headers)


def _words(node: StepNode) -> str:
    if node.many and node.total:
        return f"{node.count(('succeeded', 'reused')):,} of {node.total:,}"
    return WORDS.get(node.state, node.state)
