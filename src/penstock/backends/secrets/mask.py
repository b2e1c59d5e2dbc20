"""Secrets out of a stream of bytes, however it is cut. Called by masked_log and reveal. Pure."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from urllib.parse import quote

STARS = b"***"
SHORTEST_LINE = 4
"""Characters. A shorter line of a secret of several lines (`}`, `--`) is not looked for alone."""


def needles_of(texts: Iterable[str]) -> tuple[bytes, ...]:
    """What is looked for, longest first: each text as it is, its lines, and as it looks inside JSON, a URL, Python's repr and base64."""
    found: set[bytes] = set()
    for text in texts:
        lines = [line.strip() for line in text.splitlines()]
        whole = [text, text.replace("\n", "\r\n"), text.strip()]
        for one in [*whole, *(line for line in lines if len(line) >= SHORTEST_LINE)]:
            coded = base64.b64encode(one.encode()).decode()
            forms = (
                one,
                json.dumps(one)[1:-1],
                json.dumps(one, ensure_ascii=False)[1:-1],
                repr(one)[1:-1],
                quote(one, safe=""),
            )
            found.update(form.encode() for form in (*forms, coded) if form)
    return tuple(sorted(found, key=lambda one: (-len(one), one)))


class Masker:
    """Replaces secrets by `***`. What may be the beginning of one is kept back until more comes."""

    def __init__(self, needles: Iterable[bytes]) -> None:
        self._needles = tuple(needles)
        words = b"|".join(map(re.escape, self._needles))
        # Looks ahead, so that secrets that overlap are all found; the longest comes first.
        self._pattern = re.compile(b"(?=(" + words + b"))") if self._needles else None
        self._rest = b""
        self._covered = 0
        """So many bytes of the rest belong to a secret whose stars were written already."""
        self.found = False
        """Was anything replaced?"""

    def feed(self, data: bytes) -> bytes:
        data = self._rest + data
        return self._up_to(data, self._kept(data))

    def end(self) -> bytes:
        return self._up_to(self._rest, len(self._rest))

    def mask(self, text: str) -> str:
        """A whole text."""
        if self._pattern is None or not text:
            return text
        data = text.encode("utf-8", "surrogatepass")
        return self._up_to(data, len(data)).decode("utf-8", "surrogatepass")

    def has(self, data: bytes) -> bool:
        return self._pattern is not None and self._pattern.search(data) is not None

    @property
    def longest(self) -> int:
        return len(self._needles[0]) if self._needles else 0

    def _up_to(self, data: bytes, keep: int) -> bytes:
        """What may be written, of the bytes before `keep`; the others are kept back."""
        out, at, covered = [], 0, 0
        for start, end in self._spans(data):
            if start >= keep:
                break
            out.append(data[at:start])
            if start or not self._covered:
                out.append(STARS)
                self.found = True
            at, covered = min(end, keep), max(0, end - keep)
        out.append(data[at:keep])
        self._rest, self._covered = data[keep:], covered
        return b"".join(out)

    def _spans(self, data: bytes) -> list[tuple[int, int]]:
        """Where secrets are; those that overlap are one."""
        spans = [(0, self._covered)] if self._covered else []
        for match in self._pattern.finditer(data) if self._pattern is not None else ():
            start, end = match.span(1)
            if spans and start < spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((start, end))
        return spans

    def _kept(self, data: bytes) -> int:
        """Where the longest end of `data` begins that is the beginning of a secret."""
        for start in range(max(0, len(data) - self.longest + 1), len(data)):
            tail = data[start:]
            if any(len(tail) < len(needle) and needle.startswith(tail) for needle in self._needles):
                return start
        return len(data)
