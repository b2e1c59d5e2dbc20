"""A payload -> its run: the one there is, or a new one, recorded in one transaction. Called by the commands, the server, runners and chains.

What a submission does, in this order; wherever it is killed, sending it again ends the same:

    1. its id is computed, and the payload looked up. If its run does, nothing is written at all
    2. a payload that is large is put among the blobs
    3. one transaction: look up again, decide, record the run with its order. Nobody else decides meanwhile
    4. a worker that sees the order executes the run; it owns a run as every engine does, so only one does

A death before the commit of 3 leaves nothing but a blob, which `penstock gc` removes. After it, the order is there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import dumps, store_value
from penstock.engine.follow import FOLLOW, PAYLOAD_ENDED
from penstock.graph.model import Workflow
from penstock.graph.stored import Stored
from penstock.service.payloads.decide import REUSE, decide
from penstock.service.payloads.identity import identity_of, payload_id
from penstock.service.payloads.process import carries, definitions
from penstock.service.run_records import BY_REFERENCE
from penstock.service.submission import Submission
from penstock.store.records import IN_FLIGHT, Origin, PayloadRecord, RunRecord
from penstock.store.sql import Store

LABEL: Final = 200
"""Characters of a label."""
ALONE: Final = Origin()
"""It follows from no other run."""
Prepare = Callable[[Mapping[str, Any]], Submission]
"""Parameters -> a Submission that is packed and vetted. Raises UserError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadRequest:
    """What somebody submits."""

    payload: Any
    """Plain data."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The other parameters of the workflow. They do not identify the work."""
    replace: bool = False
    """Do it again, unless it is in flight."""
    version: int | None = None
    """Of the identity; None: that of the workflow."""
    label: str = ""
    """What the sender calls it; empty: its `id`, if it has one."""
    origin: Origin = ALONE
    """Which run it follows from. Its payload and attempt are filled in."""


@dataclass(frozen=True, slots=True)
class SubmittedPayload:
    payload: PayloadRecord
    """With the run that works on it."""
    run: RunRecord | None
    """If it is new; None: there was one, which is named in `payload`."""

    @property
    def created(self) -> bool:
        return self.run is not None

    def as_data(self) -> dict[str, Any]:
        return {"payload": self.payload.id, "run": self.payload.run_id, "state": self.payload.state} | {
            "attempt": self.payload.attempts,
            "created": self.created,
        }


def submit(
    store: Store,
    blobs: Blobs,
    workflow: Workflow,
    request: PayloadRequest,
    prepare: Prepare,
    noted: Callable[[RunRecord], None] | None = None,
) -> SubmittedPayload:
    """`noted`: records more of a new run, in its transaction. Raises UserError."""
    identity = identity_of(workflow)
    id = payload_id(workflow.name, identity, request.payload)
    if carries(request.payload):
        definitions(request.payload)
    version = identity.version if request.version is None else request.version
    now = time.time()

    def why(known: PayloadRecord | None) -> str:
        return decide(known, version, request.replace, now)

    known = store.payloads.find(id)
    if known is not None and why(known) == REUSE:
        if known.state in IN_FLIGHT:
            store.payloads.order(known.run, now)
        return SubmittedPayload(known, None)
    submission = prepare({**request.params, identity.param: request.payload})
    by_reference(submission, identity.param, blobs)
    told = {"kind": PAYLOAD_ENDED, "data": {"payload": id}}
    submission.options[FOLLOW] = [*submission.options.get(FOLLOW, ()), told]

    def create(before: PayloadRecord | None, attempt: int) -> RunRecord:
        origin = request.origin
        if origin == ALONE and before is not None:  # another attempt at a link of a chain is that link
            origin = store.runs.origin(before.run) or origin
        run = submission.record(store, now, origin._replace(payload=id, attempt=attempt))
        if noted is not None:
            noted(run)
        return run

    label = label_of(request.payload, request.label)
    found = store.payloads.submit(id, workflow.name, label, version, why, create, now, submission.person)
    return SubmittedPayload(*found)


def by_reference(submission: Submission, name: str, blobs: Blobs) -> None:
    """A value that is large goes among the blobs: the record of the run, which every list reads, has its digest."""
    value = submission.params.get(name)
    if isinstance(value, dict | list | str):
        kept = store_value(value, blobs, name=name)
        if isinstance(kept, Stored):
            submission.params[name] = json.loads(dumps(kept))
            submission.options[BY_REFERENCE] = [name]


def label_of(payload: Any, given: str = "") -> str:
    """`given`, or the payload's id. Only what both databases take."""
    found = payload.get("id") if type(payload) is dict else ""
    text = given or (found if isinstance(found, str) else "")
    return text[:LABEL].replace("\0", "").encode(errors="replace").decode()
