"""Does a submission need a new run? Called by submit, inside of its transaction. Pure.

The first line that fits decides:

    nothing is known of the payload          a new run
    its newest run is in flight              that run, whatever else is asked for
    `replace`                                a new run
    a higher version is asked for            a new run
    it was made invalid, and that time is past   a new run
    it succeeded, or its input is not valid  that run
    it failed, was cancelled, or is gone     a new run: the next attempt
"""

from __future__ import annotations

from penstock.store.records import IN_FLIGHT, INVALID, PayloadRecord

REUSE = ""


def decide(known: PayloadRecord | None, version: int, replace: bool, now: float) -> str:
    """Why there is a new run, in a word; REUSE: there is none."""
    if known is None:
        return "new"
    if known.state in IN_FLIGHT:
        return REUSE
    if replace:
        return "replaced"
    if version > known.version:
        return "version"
    if known.invalid_after is not None and known.invalid_after <= now:
        return "invalidated"
    if known.state in ("succeeded", INVALID):
        return REUSE
    return known.state or "removed"
