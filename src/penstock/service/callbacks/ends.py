"""What the store knows of a run that has ended, as its callbacks tell it. Called by delivery."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import loads
from penstock.graph.callback import Callback
from penstock.graph.stored import Stored
from penstock.service.callbacks.render import EndedRun, outputs_read
from penstock.store.outbox import OutboxEntry
from penstock.store.records import RunRecord
from penstock.store.sql import Store


def ended_run(
    store: Store, entry: OutboxEntry, run: RunRecord, blobs: Callable[[], Blobs], callback: Callback
) -> EndedRun:
    """`entry` says how it ended; a retry may have changed the record since."""
    end = str(entry.data.get("end", run.state))
    same = run.state == ("failed" if end == "invalid" else end)
    outputs = loads(json.dumps(run.outputs)) if run.outputs is not None and same else {}
    wanted = outputs_read(callback)
    if any(isinstance(value, Stored) for value in _all(outputs)):
        outputs = {
            name: _opened(value, blobs) if wanted is None or name in wanted else value
            for name, value in outputs.items()
        }
    return EndedRun(
        id=run.id,
        workflow=run.workflow,
        user=run.user,
        state=end,
        error=run.error if same else "",
        started=run.created,
        ended=float(entry.data.get("at", entry.at)),
        params=run.params,
        outputs=outputs,
        lineage=_lineage(store, run),
    )


def _all(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [found for item in value.values() for found in _all(item)]
    if isinstance(value, list):
        return [found for item in value if isinstance(item, dict | list | Stored) for found in _all(item)]
    return [value]


def _opened(value: Any, blobs: Callable[[], Blobs]) -> Any:
    """Plain data that was kept as a blob because of its size. Files and objects stay what they are: notes of a blob."""
    if isinstance(value, Stored):
        return _opened(loads(blobs().get(value.digest).decode()), blobs) if value.kind == "json" else value
    if isinstance(value, dict):
        return {key: _opened(item, blobs) for key, item in value.items()}
    return [_opened(item, blobs) for item in value] if isinstance(value, list) else value


def _lineage(store: Store, run: RunRecord) -> dict[str, Any] | None:
    origin = store.runs.origin(run.number)
    if origin is None:
        return None

    def name(number: int) -> str | None:
        found = store.runs.by_number(number) if number and number != run.number else None
        return run.id if number == run.number else found.id if found is not None else None

    return {
        "root": name(origin.root),
        "parent": name(origin.parent),
        "link": origin.link or None,
        "payload": origin.payload or None,
        "attempt": origin.attempt or None,
    }
