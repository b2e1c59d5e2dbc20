"""Queues on the terminal. Called by `penstock queue`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from penstock.cli.ui import render
from penstock.cli.ui.render import DIM, Line
from penstock.service.amounts import added, figure, in_table, short_name, vector
from penstock.service.views.quotas import FlavorUsage, QueueView, WorkloadView
from penstock.service.wording import MACHINE

_COLOURS = {"draining": "yellow", "holding": "yellow", "inactive": "red"}


# -- all queues -------------------------------------------------------------------------------------------------------


def queue_table(views: Sequence[QueueView]) -> None:
    usage = [one for view in views for one in view.usage]
    resources = in_table({one.resource for one in usage if one.matters})
    names = [short_name(name).upper() for name in resources]
    head = ["QUEUE", "COHORT", "STRATEGY", "WAIT", "HOLD", *names, "BORROWED", "STATE"]
    rows = [_queue_row(view, resources) for view in views]
    render.table(*render.without_empty(head, rows, ("COHORT", "BORROWED")), colours=_COLOURS)


def _queue_row(view: QueueView, resources: Sequence[str]) -> list[str]:
    cells = []
    for resource in resources:
        mine = [one for one in view.usage if one.resource == resource]
        used, nominal = sum(one.used for one in mine), sum(one.nominal for one in mine)
        cells.append(f"{figure(used, resource)}/{figure(nominal, resource)}" if mine else "")
    borrowed = added({one.resource: one.borrowed} for one in view.usage)
    return [
        view.name,
        view.cohort,
        view.strategy,
        f"{len(view.waiting):,}",
        f"{len(view.holding):,}",
        *cells,
        vector(borrowed) if any(borrowed.values()) else "",
        _state(view),
    ]


def _state(view: QueueView) -> str:
    return f"{view.state}: {view.why}" if view.state == "inactive" else view.state


# -- one queue --------------------------------------------------------------------------------------------------------


def queue_view(view: QueueView) -> None:
    indent = "  " if render.is_terminal() else ""
    _title(view)
    _usage(view.usage, indent)
    _local_queues(view)
    render.data("")
    _holding(view, indent)
    _waiting(view, indent)


def _title(view: QueueView) -> None:
    words = [view.kind, view.strategy]
    if view.kind == "LocalQueue":
        words.insert(1, f"of ClusterQueue {view.cluster_queue}")
    words += [f"cohort {view.cohort}"] if view.cohort else []
    colour = _COLOURS.get(view.state, "green")
    line: Line = [(view.name, {"bold": True}), ("  ", {}), (_state(view), {"fg": colour})]
    render.print_line([*line, (f"   {', '.join(filter(None, words))}", DIM)])


def _usage(usage: Iterable[FlavorUsage], indent: str) -> None:
    rows = []
    for one in usage:
        if one.matters:
            figures = [figure(value, one.resource) for value in (one.used, one.nominal, one.free)]
            limits = ["" if value is None else figure(value, one.resource) for value in (one.borrowing, one.lending)]
            borrowed = figure(one.borrowed, one.resource) if one.borrowed else ""
            rows.append([one.flavor, short_name(one.resource), *figures, borrowed, *limits])
    if rows:
        render.data("")
        head = ["FLAVOR", "RESOURCE", "USED", "NOMINAL", "FREE NOW", "BORROWED", "MAY BORROW", "MAY LEND"]
        render.table(*render.without_empty(head, rows, head[5:]), indent)


def _local_queues(view: QueueView) -> None:
    if not view.queues:
        return
    waits, holds = _by_queue(view.waiting), _by_queue(view.holding)
    parts = []
    for name, stop in view.queues.items():
        words = [f"{holds[name]:,} hold"] if holds.get(name) else []
        words += [f"{waits[name]:,} wait"] if waits.get(name) else []
        words += [{"Hold": "holding", "HoldAndDrain": "draining"}[stop]] if stop != "None" else []
        parts.append(name + (f" ({', '.join(words)})" if words else ""))
    render.data("")
    render.print_line([("  local queues  ", DIM), (", ".join(parts), {})])


def _by_queue(workloads: Iterable[WorkloadView]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in workloads:
        found[one.queue] = found.get(one.queue, 0) + 1
    return found


def _holding(view: QueueView, indent: str) -> None:
    if not view.holding:
        render.note(f"{indent}no Workload holds quota")
        return
    now = time.time()
    together: dict[tuple[str, ...], list[WorkloadView]] = {}
    for one in view.holding:  # several Workloads of one stage are one line
        together.setdefault((one.name, one.queue, _priority(one), one.user, one.leaving), []).append(one)
    rows = [
        [name, queue, priority, render.when(min(one.since for one in some), now), _held(some), user, leaving]
        for (name, queue, priority, user, leaving), some in together.items()
    ]
    head = ["HOLDS", "QUEUE", "PRIORITY", "SINCE", "AMOUNT", "USER", "BEING STOPPED"]
    render.table(*render.without_empty(head, rows, ("USER", "BEING STOPPED")), indent)


def _held(some: Sequence[WorkloadView]) -> str:
    flavors = list(dict.fromkeys(flavor for one in some for flavor in one.amounts))
    held = {flavor: added(one.amounts.get(flavor, {}) for one in some) for flavor in flavors}
    if len(flavors) == 1 and flavors[0] in ("default", MACHINE):
        return vector(held[flavors[0]])
    return "; ".join(f"{vector(amounts)} of {flavor}" for flavor, amounts in held.items()) or "nothing"


def _waiting(view: QueueView, indent: str) -> None:
    render.data("")
    gated = f"{view.gated:,} gated" if view.gated else ""
    if not view.waiting:
        render.note(f"{indent}no Workload waits{f'; {gated}' if gated else ''}")
        return
    now = time.time()
    rows = [
        [
            str(place),
            one.name,
            one.queue,
            _priority(one),
            render.when(one.since, now),
            vector(one.total),
            one.why,
        ]
        for place, one in enumerate(view.waiting, 1)
    ]
    render.table(["", "WAITS", "QUEUE", "PRIORITY", "SUBMITTED", "ASKS FOR", "WHY"], rows, indent)
    if gated:
        render.note(indent + gated)


def _priority(one: WorkloadView) -> str:
    return f"{one.priority} ({one.priority_class})" if one.priority_class else str(one.priority)
