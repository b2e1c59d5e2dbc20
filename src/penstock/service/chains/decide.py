"""What follows from the end of one run of a chain: which links start a run, are skipped, omitted, or wait. Called by delivery. Pure.

Nothing is remembered but the rows of the links. So it does not matter who sees the ends of the branches in which order: whoever sees the last
one finds that a join has all it waits for. A link that was skipped or omitted is decided again when something before it has ended anew (a retry);
one that has started a run never starts another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from penstock.graph.chains import name_of
from penstock.graph.model import Link
from penstock.store.links import DEAD, OMITTED, SKIPPED, STARTED, LinkRow

Unmet = Callable[[Link], str]
"""Which condition of a link does not hold; empty: none."""


class LinkDecision(NamedTuple):
    link: Link
    state: str
    """started: it is to be; skipped, omitted; "": not decided any more."""
    end: str = ""
    """Why it is omitted: what it comes after ended so."""
    why: str = ""


class _BeforeIt(NamedTuple):
    """What a link comes after."""

    name: str
    state: str
    end: str | None
    """How it ended, or for which end it was omitted; skipped. None: it is not known yet."""


def decide(
    links: Iterable[Link], rows: Mapping[str, LinkRow], place: str, end: str, at: tuple[int, int], unmet: Unmet
) -> list[LinkDecision]:
    """`links`: in order. `rows`: what was decided before. `place`: the link whose run has ended as `end` says; empty: the run whose links
    these are. `at`: the number of that run, and of the event that says so."""
    known = rows.get(place)
    late = known is not None and (known.run, known.seq) > at
    before = {name: _BeforeIt(name, row.state, _end_of(row)) for name, row in rows.items()}
    if not late:
        before[place] = _BeforeIt(place, STARTED, end)
    found: list[LinkDecision] = []
    touched = {place}
    for link in links:
        name, after = name_of(link), link.after or ("",)
        row = rows.get(name)
        if touched.isdisjoint(after) or (row is not None and row.state == STARTED):
            continue
        if late:  # it has ended again since, and that decides; but what asked for this end has its run
            if after == (place,) and end in link.on and not unmet(link):
                found.append(LinkDecision(link, STARTED))
            continue
        decision = _verdict(link, [before.get(one, _BeforeIt(one, "", None)) for one in after], unmet)
        if decision.state or row is not None:
            found.append(decision)
            touched.add(name)
            ended = {SKIPPED: SKIPPED, OMITTED: decision.end}.get(decision.state)
            before[name] = _BeforeIt(name, decision.state, ended)
    return found


def _verdict(link: Link, before: list[_BeforeIt], unmet: Unmet) -> LinkDecision:
    if any(one.end is None for one in before):
        return LinkDecision(link, "")
    ran = [one for one in before if one.end != SKIPPED]
    unwanted = [one for one in ran if one.end not in link.on]
    if unwanted:
        return LinkDecision(link, OMITTED, unwanted[0].end or "", " and ".join(map(_said, unwanted)))
    if not ran:
        return LinkDecision(link, SKIPPED, why=" and ".join(map(_said, before)))
    why = unmet(link)
    return LinkDecision(link, SKIPPED, why=why) if why else LinkDecision(link, STARTED)


def _end_of(row: LinkRow) -> str | None:
    """None: it is not known yet."""
    if row.state == STARTED:
        return row.ended or None
    return {SKIPPED: SKIPPED, DEAD: "failed"}.get(row.state, row.ended)


def _said(one: _BeforeIt) -> str:
    name = one.name or "the run"
    if one.state == OMITTED:
        return f"{name} was omitted"
    words = {"cancelled": "was cancelled", "invalid": "was given invalid input", SKIPPED: "was skipped"}
    return f"{name} {'could not be started' if one.state == DEAD else words.get(one.end or '', one.end)}"
