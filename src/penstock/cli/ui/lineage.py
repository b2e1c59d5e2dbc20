"""The runs of a chain as a tree. Called by `penstock show --lineage`, and at the end of a chain that was run here."""

from __future__ import annotations

from penstock.cli.ui import render
from penstock.cli.ui.marks import MARKS
from penstock.cli.ui.render import DIM
from penstock.service.views import lineage as view
from penstock.service.views.lineage import LineageNode
from penstock.store.records import RunRecord
from penstock.store.sql import Store

_MARKS = {**MARKS, "dead": ("✗", "red"), "waiting": ("▷", "yellow"), "removed": ("·", "")}


def tree(found: LineageNode, marked: str) -> None:
    """`marked`: the run that was asked for."""
    for depth, one in found.walk():
        mark, colour = _MARKS.get(one.state, ("·", ""))
        style = {"fg": colour} if colour else {}
        head = "  " * depth
        place = f" as {one.link}" if one.link and one.link != one.workflow else ""
        said = one.why or (one.error if one.state == "failed" else "")
        render.print_line(
            [
                (head, {}),
                (f"{mark} ", style),
                (render.clean(one.run or one.link), {"bold": True} if one.run == marked else {}),
                (place, DIM),
                (f"  {one.state}", style),
                (f"  {render.clean(said)}" if said else "", DIM),
            ]
        )


def not_started(store: Store, run: RunRecord) -> None:
    """What will not be run any more, and why."""
    for one in view.not_started(view.lineage(store, run)):
        render.note(f"{one.link} is {one.state}: {one.why}")
