"""What a sender and a server call things. Read by `remote` and `intake`, which import nothing else of one another."""

from __future__ import annotations

from typing import Final

BLOB: Final = "$blob"
"""A parameter that is a file: {"$blob": DIGEST, "name": NAME}."""
