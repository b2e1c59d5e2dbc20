"""A payload that arrives from somebody else's machine, with its workflow as a document. Called by the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.errors import Problem
from penstock.service import intake, stores
from penstock.service.intake import Parcel
from penstock.service.payloads.submit import PayloadRequest, SubmittedPayload, submit
from penstock.service.policy import Actor
from penstock.service.submission import Submission
from penstock.settings import Settings
from penstock.store.records import RunRecord
from penstock.store.sql import Store


def receive(
    store: Store,
    settings: Settings,
    parcel: Parcel,
    request: PayloadRequest,
    by: Actor,
    noted: Callable[[RunRecord], None],
) -> tuple[SubmittedPayload, tuple[Problem, ...]]:
    """Its run, which the next free worker executes if it is new; and warnings. Raises UserError."""
    workflow = intake.checked(parcel)
    warnings: tuple[Problem, ...] = ()
    place = ""

    def prepare(params: Mapping[str, Any]) -> Submission:
        nonlocal warnings, place
        submission, warnings = intake.prepared(store, settings, replace(parcel, params=params), workflow, by)
        place = submission.options["place"]
        return submission

    found = submit(store, stores.blobs_of(settings), workflow, request, prepare, noted)
    if place and not found.created:
        with suppress(OSError):
            Path(place).rmdir()
    return found, warnings
