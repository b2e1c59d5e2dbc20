"""How wide a text is, and where boxes of a column go. Called by svg and board."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

_ADVANCES = (
    ("ijl'|", 0.24),
    ("ftI.,:;!/[] ", 0.3),
    ("r()-{}·", 0.35),
    ("ckszvxyJ", 0.51),
    ("w", 0.74),
    ("mM%", 0.87),
    ("W@…", 1.0),
)
_ADVANCE = {char: width for chars, width in _ADVANCES for char in chars}


@lru_cache(maxsize=4096)
def _advance(char: str) -> float:
    """Approximate widths of letters in Helvetica, in ems. Nearly every machine has a font with these widths."""
    if char in _ADVANCE:
        return _ADVANCE[char]
    if unicodedata.east_asian_width(char) in "WF":
        return 1.05
    return 0.72 if char.isupper() else 0.57


def measure(text: str, size: float) -> float:
    return sum(map(_advance, text)) * size


def fit(text: str, size: float, width: float) -> str:
    """The text, cut with an ellipsis if it does not fit."""
    if measure(text, size) <= width:
        return text
    left = width - measure("…", size)
    for i, char in enumerate(text):
        left -= _advance(char) * size
        if left < 0:
            return text[:i].rstrip() + "…"
    return text


def settled(wanted: Sequence[float], weights: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """Positions in the given order, at least `gaps` apart, with the least squared distance from the wanted ones.

    Without the gaps this is isotonic regression: neighbours that want to pass each other become one block."""
    offsets = [0.0]
    for gap in gaps:
        offsets.append(offsets[-1] + gap)
    blocks: list[tuple[float, float, int]] = []  # sum of weighted wishes, weight, members
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        block = ((want - offset) * weight, weight, 1)
        while blocks and blocks[-1][0] * block[1] > block[0] * blocks[-1][1]:
            last = blocks.pop()
            block = (last[0] + block[0], last[1] + block[1], last[2] + block[2])
        blocks.append(block)
    means = [total / weight for total, weight, members in blocks for _ in range(members)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]
