"""What a tracking server has not been told of runs that are over: to tell it now, and to keep it from the clean-up. Called by `penstock resume`
and cleanup.
"""

from __future__ import annotations

import os

from penstock.errors import Problem, UserError
from penstock.service.tracking.target import configured, is_off
from penstock.settings import Settings
from penstock.store.records import RunRecord
from penstock.store.sql import Store

_FOREVER = float("inf")


def is_left(store: Store, run: RunRecord) -> bool:
    """Is there something of this run that its server does not have?"""
    found = store.tracking.of(run.number)
    return found is not None and found.seq < run.seq and not is_off(os.environ)


def tell_rest(settings: Settings, store: Store, run: RunRecord) -> str:
    """Tells it, and returns where the run is on the server. Raises UserError if that cannot be done now."""
    from penstock.service.tracking.sender import Sender, page_of

    found = store.tracking.of(run.number)
    assert found is not None
    target = configured()
    if target is None or not target.serves(found.url):
        other = "no server is configured" if target is None else f"{target.url} is configured"
        fix = f"PENSTOCK_MLFLOW={found.url} penstock resume {run.id}"
        raise UserError(Problem("P912", f"{run.id} is to be told to {found.url}, and {other}", fix))
    sender = Sender(settings, target)
    sender.start()
    sender.close(_FOREVER, _FOREVER)
    found = store.tracking.of(run.number) or found
    if found.seq < run.seq:
        why = sender.trouble or "another process is telling it"
        fix = f"nothing is lost; try again later: penstock resume {run.id}"
        raise UserError(Problem("P912", f"{run.seq - found.seq} events of {run.id} are still to be told: {why}", fix))
    return page_of(found)


def untold(store: Store) -> set[int]:
    """Runs that must not be removed yet: their server does not have all of them. PENSTOCK_MLFLOW=no gives it up."""
    return set() if is_off(os.environ) else {found.run for found in store.tracking.behind()}
