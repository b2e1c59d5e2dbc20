"""The last warning that was told about an object, from the Events of its namespace; that of the controller before those of others. Called by `why`: what keeps
a workflow may be no matter of its queue."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from penstock.admission.manifests.times import time_of
from penstock.controller.names import MANAGER
from penstock.controller.objects import ApiResource, Lookup, Object, part
from penstock.errors import UserError

_EVENTS = ApiResource("v1", "Event", "events")
_SAID_BY_WORKLOADS = frozenset({"Evicted"})
"""Reasons that the report has from the Workload itself, with who did it."""


@dataclass(frozen=True, slots=True)
class WarningEvent:
    reason: str
    message: str
    at: float | None

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"

    def as_data(self) -> dict[str, Any]:
        return {"reason": self.reason, "message": self.message, "at": self.at}


def last_warning(lookup: Lookup, uids: Collection[str], namespace: str) -> WarningEvent | None:
    """About any of these objects. None as well where Events may not be read."""
    try:
        events = lookup.list(_EVENTS, namespace)
    except UserError:
        return None
    mine = [one for one in events if one.get("type") == "Warning" and part(one, "involvedObject").get("uid") in uids]
    mine = [one for one in mine if one.get("reason") not in _SAID_BY_WORKLOADS]
    if not mine:
        return None
    # What an engine says of pods that we have stopped leads astray: our own words come first.
    last = max(mine, key=lambda one: (one.get("reportingComponent") == MANAGER, _time(one)))
    return WarningEvent(str(last.get("reason")), str(last.get("message")), time_of(_time(last)))


def _time(event: Object) -> str:
    seen = event.get("lastTimestamp") or part(event, "series").get("lastObservedTime")
    return str(seen or event.get("eventTime") or event.get("firstTimestamp") or "")
