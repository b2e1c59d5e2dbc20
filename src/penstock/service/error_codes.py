"""The explanation of an error code. Called by `penstock explain`."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import NotFound, Problem, catalogue, nearest


def explain(code: str) -> tuple[str, Mapping[str, str]]:
    """The code as it is spelled, and its entry in the catalogue. Raises NotFound."""
    known = catalogue()
    wanted = code.strip().upper()
    if wanted not in known:
        fix = f"`penstock explain` lists them all.{nearest(wanted, known)}"
        raise NotFound(Problem("P503", f"there is no error code {code!r}", fix))
    return wanted, known[wanted]
