"""How a queue was used over time: the records of the store on a grid of equal spans, for plots and tables. Called by the server and by
`penstock queue show --since`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import PlanError, Problem
from penstock.service.amounts import spell
from penstock.store.queue_use import FINE, QueueUse, Use, joined
from penstock.store.sql import Store

STEPS: Final = (FINE, 30, 60, 120, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 7 * 86400)
"""Seconds of a span; the first that makes no more spans than are wanted is taken."""
SPANS: Final = 240
"""Spans of a plot."""
MOST: Final = 2000
"""Spans that may be asked for."""


@dataclass(frozen=True, slots=True)
class QueueSeries:
    queue: str
    """The ClusterQueue."""
    since: float
    until: float
    step: int
    """Seconds of a span."""
    spans: tuple[QueueUse, ...]
    """Those of which something is known, in their order."""

    @property
    def names(self) -> list[str]:
        """`flavor/resource` of all that was ever there."""
        return list(dict.fromkeys(name for one in self.spans for name in one.amounts))

    def of(self, name: str) -> list[tuple[int, Use]]:
        """(at, use) of one flavor and resource."""
        return [(one.at, one.amounts.get(name, Use(0, 0, 0))) for one in self.spans]

    def as_data(self) -> dict[str, Any]:
        return {
            "queue": self.queue,
            "since": self.since,
            "until": self.until,
            "step": self.step,
            "spans": [_span(one) for one in self.spans],
        }


def _span(one: QueueUse) -> dict[str, Any]:
    quota = []
    for name, use in one.amounts.items():
        flavor, _, resource = name.partition("/")
        figures = {"used": use.mean, "peak": use.peak, "nominal": use.nominal, "borrowed": use.borrowed}
        spelled = {word: spell(figure, resource) for word, figure in figures.items()}
        quota.append({"flavor": flavor, "resource": resource, **spelled})
    return {"at": one.at, "waiting": {"mean": one.waiting.mean, "peak": one.waiting.peak}, "quota": quota}


SETTLED: Final = 120.0
"""Seconds after which nothing more is written about a span."""


class SpanCache:
    """Spans that cannot change any more, for whoever asks again and again."""

    def __init__(self, most: int = 20) -> None:
        self._most = most
        self._found: dict[tuple[str, str, int], dict[int, QueueUse | None]] = {}

    def of(self, store: str, queue: str, step: int) -> dict[int, QueueUse | None]:
        key = (store, queue, step)
        found = self._found.pop(key, None)
        if found is None or len(found) > MOST:
            found = {}
        self._found[key] = found  # the newest is the last
        while len(self._found) > self._most:
            del self._found[next(iter(self._found))]
        return found


def series(
    store: Store, queue: str, since: float, until: float, step: int = 0, cache: SpanCache | None = None
) -> QueueSeries:
    """`queue`: a ClusterQueue. `step`: seconds of a span; 0: what suits the time. Raises PlanError."""
    if not 0 <= since < until:
        raise PlanError(Problem("P980", "the time ends before it begins", "give --since a time before --until"))
    found = step or next((one for one in STEPS if (until - since) / one <= SPANS), STEPS[-1])
    if found < FINE or (until - since) / found > MOST:
        fix = f"take a step of {FINE} seconds or more, and no more than {MOST:,} of them"
        raise PlanError(Problem("P980", f"a step of {found} s does not suit {until - since:g} s", fix))
    first, last = int(since) // found * found, int(until) + 1
    known = {} if cache is None else cache.of(store.id, queue, found)
    spans: list[QueueUse | None] = []
    at = first
    while at in known and at + found <= last:
        spans.append(known[at])
        at += found
    before, rows = store.series.between(queue, at, until)
    number = 0
    while at < last:
        width = min(found, last - at)  # what comes is not known yet
        inside = []
        while number < len(rows) and rows[number].at < at + width:
            inside.append(rows[number])
            number += 1
        spans.append(joined(inside, before, at, width))
        before = inside[-1] if inside else before
        if at + found + SETTLED < until:
            known[at] = spans[-1]
        at += found
    return QueueSeries(queue, since, until, found, tuple(one for one in spans if one is not None))
