"""Documents of our own in a file of queues (penstock.yaml): `mlflow:`, `prices:`, `access:`. Called by tracking.target, prices and access_lists, each for its own."""

from __future__ import annotations

import re
from typing import Any

_BREAK = re.compile(r"^---[^\n]*$", re.M)


def taken(text: str, key: str) -> tuple[Any, str]:
    """The document that begins a line with this key, and the text without that document, each line where it was. None: there is none. Raises
    yaml.YAMLError."""
    written = re.compile(rf"^{key}\s*:", re.M)
    if not written.search(text):
        return None, text
    import yaml

    found: Any = None
    pieces: list[str] = []
    ends = [*(match.start() for match in _BREAK.finditer(text)), len(text)]
    start = 0
    for end in ends:
        piece = text[start:end]
        start = end
        if written.search(piece):
            found = yaml.safe_load(piece)
            piece = "---\n" * piece.startswith("---") + "\n" * (piece.count("\n") - piece.startswith("---"))
        pieces.append(piece)
    return found, "".join(pieces)
