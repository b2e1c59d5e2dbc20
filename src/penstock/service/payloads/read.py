"""A payload from text that somebody sends: a file, standard input. Called by the commands."""

from __future__ import annotations

from typing import Any, Final

from penstock.errors import DocumentError, PlanError, Problem
from penstock.graph.text import read_json

LARGEST: Final = 64 * 2**20
"""Bytes of the JSON of a payload."""


def payload_from(data: bytes, name: str) -> Any:
    """`name`: where it is from, for messages. Raises PlanError: it is too large, no JSON, too deep, or says a key twice."""
    check_size(len(data))
    try:
        return read_json(data.decode("utf-8-sig"), name)[0]
    except UnicodeDecodeError:
        raise PlanError(Problem("P512", f"the payload in {name} is no UTF-8", "write it as JSON, in UTF-8")) from None
    except DocumentError as error:
        found = error.problems[0]
        where = f" in line {found.source.line}" if found.source is not None and found.source.line > 1 else ""
        message = f"the payload in {name} cannot be used{where}: {found.message}"
        raise PlanError(Problem("P512", message, found.fix)) from None


def check_size(size: int) -> None:
    """Raises PlanError."""
    if size > LARGEST:
        fix = "put the data into a file, and send where it is"
        raise PlanError(
            Problem("P512", f"the payload is too large: {size / 2**20:,.0f} MiB, at most {LARGEST // 2**20}", fix)
        )
