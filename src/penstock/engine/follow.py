"""What follows from the end of a run: rows of the outbox, written in the transaction of its last event. Called by Engine. Pure.

The engine knows neither chains nor callbacks. Whoever records a run says in its options what is to follow:

    "follow": [{"kind": "callback", "on": ["failed", "invalid"], "data": {…}}, …]

`on` are states of a run, `invalid` beside them: it failed because its input is not valid. A courier of that kind does the rest
(service.outbox).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, Final

INVALID: Final = "invalid"
ENDS: Final = ("succeeded", "failed", "cancelled", INVALID)
"""What `on` may name. A run that is invalid has failed, too, but only `invalid` names it."""
FOLLOW: Final = "follow"
"""The option of a run."""
PAYLOAD_WAIT: Final = "payload.wait"
"""A row of the outbox: a step waits for payloads, some of which may have ended. Data: task, attempt."""
PAYLOAD_ENDED: Final = "payload.ended"
"""A row of the outbox: a run that works on a payload has ended. Data: payload."""
_NAMESPACE: Final = uuid.UUID("0f1c6f0a-6d0f-5a4e-9a53-3c4a5c3f4c0e")

OutboxRow = tuple[int, int, str, str, str, float, float]
"""As WriteBatch has it."""


def rows(number: int, id: str, seq: int, end: str, options: Mapping[str, Any], at: float) -> list[OutboxRow]:
    """`seq`: of the event that says that the run `id` has ended. `end`: one of ENDS."""
    found = []
    for place, entry in enumerate(options.get(FOLLOW) or ()):
        if end in entry.get("on", ENDS):
            data = json.dumps({**entry.get("data", {}), "end": end}, separators=(",", ":"))
            found.append((number, seq, entry["kind"], data, row_key(f"{id}/{seq}", place), at, at))
    return found


def row_key(of: str, place: int | str) -> str:
    """The key of a row: it follows from what it is about, so that a receiver can tell a second try from a second row."""
    return str(uuid.uuid5(_NAMESPACE, f"{of}/{place}"))
