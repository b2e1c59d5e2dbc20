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


def decide(
    links: Iterable[Link], rows: Mapping[str, LinkRow], place: str, end: str, at: tuple[int, int], unmet: Unmet
) -> list[LinkDecision]:
    """`links`: in order. `rows`: what was decided before. `place`: the link whose run has ended as `end` says; empty: the run whose links
    these are. `at`: the number of that run, and of the event that says so."""
    known = rows.get(place)
    late = known is not None and (known.run, known.seq) > at
    ends = {name: _end_of(row) for name, row in rows.items()}
    if not late:
        ends[place] = end
    found: list[LinkDecision] = []
    touched = {place}
    for link in links:
        name, before = name_of(link), link.after or ("",)
        row = rows.get(name)
        if touched.isdisjoint(before) or (row is not None and row.state == STARTED):
            continue
        if late:  # it has ended again since, and that decides; but what asked for this end has its run
            if before == (place,) and end in link.on and not unmet(link):
                found.append(LinkDecision(link, STARTED))
            continue
        decision = _verdict(link, [ends.get(one) for one in before], unmet)
        if decision.state or row is not None:
            found.append(decision)
            touched.add(name)
            ends[name] = {SKIPPED: SKIPPED, OMITTED: decision.end}.get(decision.state)
    return found


def _verdict(link: Link, ends: list[str | None], unmet: Unmet) -> LinkDecision:
    known = [one for one in ends if one is not None]
    if len(known) < len(ends):
        return LinkDecision(link, "")
    ran = [one for one in known if one != SKIPPED]
    unwanted = next((one for one in ran if one not in link.on), "")
    if unwanted:
        return LinkDecision(link, OMITTED, unwanted, f"{_before(link)} {_word(unwanted)}")
    if not ran:
        return LinkDecision(link, SKIPPED, why=f"{_before(link)} {'were' if len(ends) > 1 else 'was'} skipped")
    why = unmet(link)
    return LinkDecision(link, SKIPPED, why=why) if why else LinkDecision(link, STARTED)


def _end_of(row: LinkRow) -> str | None:
    """None: it is not known yet."""
    if row.state == STARTED:
        return row.ended or None
    return {SKIPPED: SKIPPED, DEAD: "failed"}.get(row.state, row.ended)


def _before(link: Link) -> str:
    return " and ".join(link.after) or "the run"


def _word(end: str) -> str:
    return {"cancelled": "was cancelled", "invalid": "was given invalid input"}.get(end, end)
