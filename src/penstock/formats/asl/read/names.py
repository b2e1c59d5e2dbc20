"""Names of steps and definitions, made of names of states. Called by machine and plain."""

from __future__ import annotations

import re


def legal(name: str, taken: set[str]) -> str:
    """A name that the model allows, and not taken."""
    base = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:110].rstrip("-_") or "state"
    found, number = base, 2
    while found in taken:
        found, number = f"{base}-{number}", number + 1
    return found
