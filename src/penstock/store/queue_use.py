"""How queues were used over time: the records, and how they are joined. Pure. Used by series, the engine's QueueRecorder and service.views.series.

A row is a span of time of one queue in which something changed. Where there is none, everything was as the row before it ends. So a queue
in which nothing happens costs nothing, however long. Rows of the finest width are written as decisions are made, at most once a second;
what happens between two of these looks is not seen. As they get older they are joined into wider ones, which keep the mean and the peak:

    10 seconds   for a day
    5 minutes    for a month
    an hour      for 400 days
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

FINE: Final = 10
KEPT: Final[tuple[tuple[int, int], ...]] = ((FINE, 86400), (300, 30 * 86400), (3600, 400 * 86400))
"""Width of a span -> how long it is kept, both in seconds. Then it is joined with others into one of the next width; the last are removed."""


class Use(NamedTuple):
    """Of one resource of one flavor in one queue; or how many Workloads wait in it. In the units of queues."""

    mean: int
    peak: int
    last: int
    """At the end of the span."""
    nominal: int = 0
    borrowed: int = 0


class QueueUse(NamedTuple):
    """One queue in one span of time."""

    at: int
    width: int
    waiting: Use
    amounts: Mapping[str, Use]
    """`flavor/resource` -> its use."""

    def text(self) -> str:
        parts = {"w": self.waiting[:3], **{f"/{name}": use for name, use in self.amounts.items()}}
        return json.dumps(parts, separators=(",", ":"))


def parsed(width: int, at: int, text: str) -> QueueUse:
    data = json.loads(text)
    amounts = {name[1:]: Use(*values) for name, values in data.items() if name[0] == "/"}
    return QueueUse(at, width, Use(*data["w"]), amounts)


def merged(before: QueueUse, now: QueueUse) -> QueueUse:
    """Two looks at one queue in the same span."""

    def one(old: Use | None, new: Use) -> Use:
        return new if old is None else new._replace(peak=max(old.peak, new.peak))

    amounts = {name: one(before.amounts.get(name), use) for name, use in now.amounts.items()}
    return now._replace(waiting=one(before.waiting, now.waiting), amounts=amounts)


def joined(rows: Sequence[QueueUse], before: QueueUse | None, at: int, width: int) -> QueueUse | None:
    """The span [at, at + width) as one row, from the rows that begin in it, in their order, and the one before. None: nothing is known."""
    known = [*([] if before is None else [before]), *rows]
    if not known:
        return None
    end = at + width
    pieces: list[tuple[int, int, QueueUse, bool]] = []
    """(from, to, row, is it the row's own span)"""
    for number, row in enumerate(known):
        until = known[number + 1].at if number + 1 < len(known) else end
        own = min(row.at + row.width, until)
        for first, last, inside in ((row.at, own, True), (own, until, False)):
            first, last = max(first, at), min(last, end)
            if first < last:
                pieces.append((first, last, row, inside))
    final = known[-1]
    names = list(dict.fromkeys(name for *_, row, _ in pieces for name in row.amounts))
    amounts = {name: _over(pieces, final.amounts.get(name), name) for name in names}
    return QueueUse(at, width, _over(pieces, final.waiting, ""), amounts)


def _over(pieces: Sequence[tuple[int, int, QueueUse, bool]], final: Use | None, name: str) -> Use:
    area = borrowed = peak = nominal = 0
    total = sum(last - first for first, last, *_ in pieces) or 1
    for first, last, row, inside in pieces:
        use = row.amounts.get(name) if name else row.waiting
        if use is None:
            continue
        area += (use.mean if inside else use.last) * (last - first)
        borrowed += use.borrowed * (last - first)
        peak = max(peak, use.peak if inside else use.last)
        nominal = use.nominal
    last_value = 0 if final is None else final.last
    return Use(round(area / total), peak, last_value, nominal, round(borrowed / total))
