"""Queues over time on the terminal. Called by `penstock queue history` and `what-if`."""

from __future__ import annotations

import time

from penstock.cli.ui import render
from penstock.cli.ui.render import DIM
from penstock.phrases import duration
from penstock.service.amounts import figure, short_name
from penstock.service.simulation.what_if import WhatIf
from penstock.service.simulation.wording import sentences
from penstock.service.views.series import QueueSeries

_BARS = "▁▂▃▄▅▆▇█"
LINE = 60
"""Signs of a line of bars."""


def history_table(found: QueueSeries) -> None:
    if not found.spans:
        render.note(
            "nothing is recorded of that time; it is, as soon as something is admitted to a queue that was applied"
        )
        return
    form = "%H:%M:%S" if found.step < 60 else "%H:%M" if found.until - found.since <= 86400 else "%m-%d %H:%M"
    if render.is_terminal():
        for name in found.names:
            flavor, _, resource = name.partition("/")
            values = [use.mean for _, use in found.of(name)]
            most = max([use.nominal for _, use in found.of(name)] + values) or 1
            words = f"  most {figure(max(values), resource)} of {figure(found.of(name)[-1][1].nominal, resource)} {short_name(resource)}"
            render.print_line(
                [(f"{flavor}/{short_name(resource):<10} ", {}), (_bars(values, most), {"fg": "cyan"}), (words, DIM)]
            )
        waits = [one.waiting.mean for one in found.spans]
        render.print_line(
            [
                (f"{'waiting':<18} ", {}),
                (_bars(waits, max(waits) or 1), {"fg": "yellow"}),
                (f"  most {max(waits)}", DIM),
            ]
        )
        render.data("")
    head = ["AT", *(part for name in found.names for part in _heads(name)), "WAITING"]
    rows = []
    for one in found.spans:
        cells = [time.strftime(form, time.localtime(one.at))]
        for name in found.names:
            use, resource = one.amounts.get(name), name.partition("/")[2]
            cells += (
                ["", "", ""]
                if use is None
                else [figure(amount, resource) for amount in (use.mean, use.nominal, use.borrowed)]
            )
        rows.append([*cells, f"{one.waiting.mean:,}"])
    render.table(head, rows[-LINE:] if render.is_terminal() else rows)


def _heads(name: str) -> list[str]:
    flavor, _, resource = name.partition("/")
    short = short_name(resource).upper()
    return [f"{short} ({flavor})" if flavor != "default" else short, "QUOTA", "BORROWED"]


def _bars(values: list[int], most: int) -> str:
    """At most LINE signs: each is the highest of its share of the values."""
    share = max(1, -(-len(values) // LINE))
    peaks = [max(values[at : at + share]) for at in range(0, len(values), share)]
    return "".join(_BARS[min(7, max(0, value) * 7 // most)] if value else " " for value in peaks)


def what_if_view(found: WhatIf) -> None:
    for sentence in sentences(found):
        render.data(sentence)
    if found.waiting:
        render.data("")
        rows = [[one.name, one.user, _in(one.now), _in(one.then)] for one in found.waiting]
        render.table(["WAITS NOW", "USER", "STARTS IN", "WOULD START IN"], rows)


def _in(seconds: float | None) -> str:
    return "?" if seconds is None else duration(seconds)
