"""Names that Kubernetes accepts. Called by the writers of pods, and by the runners that submit them."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_ILLEGAL: Final = re.compile(r"[^a-z0-9-]+")


def label(name: str, longest: int = 63, letter: bool = True) -> str:
    """A name that Kubernetes accepts for most things: lower-case letters, digits and dashes, optionally with a letter first. A cut name
    ends with a digest, so that two names do not become one."""
    found = _ILLEGAL.sub("-", name.lower()).strip("-")
    if not found or (letter and not found[0].isalpha()):
        found = f"x-{found}".rstrip("-")
    if len(found) > longest:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
        found = f"{found[: max(1, longest - 7)].rstrip('-')}-{digest}"
    return found
