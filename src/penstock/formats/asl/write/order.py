"""What stands after and beside what: the steps of a workflow as rows of blocks. Called by machine.

A state machine has sequences and Parallel. A graph of steps is those exactly if it has no two steps that share only a part of what they
wait for (series-parallel). Any other graph is levelled where it is not: its first steps together, then the rest. Then some steps wait for
more than they need; which, is said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Blocks that run at the same time; each is a row."""

    rows: tuple[Row, ...]


Row = tuple["str | SideBySide", ...]
"""Steps and blocks, one after another."""


@dataclass(frozen=True, slots=True)
class Levelled:
    """Steps that wait for steps that they do not need."""

    later: str
    earlier: tuple[str, ...]


def arrange(order: Sequence[str], waits_for: Mapping[str, Collection[str]]) -> tuple[Row, list[Levelled]]:
    """`order`: the steps, each after those that it waits for."""
    number = {name: at for at, name in enumerate(order)}
    before = [0] * len(order)
    for at, name in enumerate(order):
        for other in waits_for.get(name, ()):
            before[at] |= before[number[other]] | 1 << number[other]
    levelled: list[Levelled] = []
    row = _row(list(range(len(order))), order, before, levelled)
    return row, levelled


def _row(held: list[int], order: Sequence[str], before: Sequence[int], levelled: list[Levelled]) -> Row:
    """A set of steps as a row. `held` is in order."""
    found: list[str | SideBySide] = []
    pending = [held]
    while pending:
        part = pending.pop()
        if len(part) == 1:
            found.append(order[part[0]])
            continue
        series = _series(part, before)
        if len(series) > 1:
            pending += reversed(series)
            continue
        beside = _beside(part, before)
        if len(beside) > 1:
            found.append(SideBySide(tuple(_row(one, order, before, levelled) for one in beside)))
            continue
        first, rest = _first(part, before)
        levelled += _said(first, rest, order, before)
        pending += (rest, first)
    return tuple(found)


def _mask(part: Collection[int]) -> int:
    found = 0
    for one in part:
        found |= 1 << one
    return found


def _series(part: list[int], before: Sequence[int]) -> list[list[int]]:
    """Cut where everything on the right waits for everything on the left."""
    every = _mask(part)
    # What all steps from here on wait for: a cut is where that is all that stands before.
    common = every
    cuts = []
    for place in range(len(part) - 1, 0, -1):
        common &= before[part[place]]
        if common & every == _mask_until(part, place):
            cuts.append(place)
    found, start = [], 0
    for cut in reversed(cuts):
        found.append(part[start:cut])
        start = cut
    return [*found, part[start:]]


def _mask_until(part: list[int], place: int) -> int:
    return _mask(part[:place])


def _beside(part: list[int], before: Sequence[int]) -> list[list[int]]:
    """Groups that have nothing to do with one another."""
    every = _mask(part)
    group = {one: one for one in part}

    def root(one: int) -> int:
        while group[one] != one:
            group[one] = group[group[one]]
            one = group[one]
        return one

    for one in part:
        for other in _bits(before[one] & every):
            group[root(one)] = root(other)
    found: dict[int, list[int]] = {}
    for one in part:
        found.setdefault(root(one), []).append(one)
    return list(found.values())


def _first(part: list[int], before: Sequence[int]) -> tuple[list[int], list[int]]:
    every = _mask(part)
    first = [one for one in part if not before[one] & every]
    return first, [one for one in part if before[one] & every]


def _said(first: list[int], rest: list[int], order: Sequence[str], before: Sequence[int]) -> Iterator[Levelled]:
    every = _mask(first)
    for one in rest:
        more = every & ~before[one]
        if more:
            yield Levelled(order[one], tuple(order[other] for other in _bits(more)))


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
