"""Makes foreign text fit to be shown: one line, no invisible characters, limited length. Called by drawing and by readers that
name things in messages.
"""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 80
"""The longest expression in a drawing, in characters."""

_SPACE = re.compile(r"\s+")
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff]"
)
"""Control characters, direction marks, lone surrogates, and characters that XML forbids."""


def clean(text: str) -> str:
    """One line without invisible characters."""
    return _UNSEEN.sub("", _SPACE.sub(" ", text)).strip()


def cut(text: str, longest: int = LONGEST) -> str:
    """`clean`, cut to a length."""
    # Only the beginning is shown, and the text may be a whole file.
    text = clean(text[: longest * 4])
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"
