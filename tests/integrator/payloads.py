"""What the tests of payloads share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.artifacts.blobs import Blobs
from penstock.expressions import types
from penstock.graph.model import Output, Parameter, Script, Step, Workflow
from penstock.graph.payload_paths import PayloadIdentity
from penstock.service.payloads.submit import PayloadRequest, SubmittedPayload, submit
from penstock.service.submission import Submission
from penstock.store.records import RunRecord, WriteBatch
from penstock.store.sql import Store


def flow(name: str = "ingest", source: str = "true", **identity: Any) -> Workflow:
    return Workflow(
        name=name,
        params=(Parameter(name="payload", type=types.ANY),),
        steps=(Step(name="work", action=Script(source=source), outputs=(Output(name="out", default=1),)),),
        payload=PayloadIdentity(**identity),
    )


def send(store: Store, payload: Any, workflow: Workflow | None = None, **more: Any) -> SubmittedPayload:
    """As a client does whose blobs are beside the store."""
    workflow = workflow or flow()

    def prepare(params: Mapping[str, Any]) -> Submission:
        return Submission(workflow, params, person="ann", place="/")

    request = PayloadRequest(payload=payload, **more)
    return submit(store, Blobs("/nonexistent"), workflow, request, prepare)


def end(store: Store, number: int, state: str, error: str = "", invalid: bool = False, at: float = 1000.0) -> RunRecord:
    """As an engine ends a run: with one that owns it, in one batch."""
    assert store.runs.take(number, "e", None)
    run = store.runs.by_number(number)
    assert run is not None
    batch = WriteBatch()
    batch.events.append((number, run.seq + 1, at, "run.finished", "", "{}"))
    over = state not in ("running", "stopped")
    batch.runs[number] = (run.seq + 1, state, at if over else None, "{}", None, error, int(invalid))
    store.journal.begin()
    store.journal.flush(batch, "e")
    store.journal.commit()
    assert store.runs.release(number, "e", state)
    found = store.runs.by_number(number)
    assert found is not None
    return found


def blobs_at(folder: Path) -> Blobs:
    return Blobs(str(folder / "artifacts"))
