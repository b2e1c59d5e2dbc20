"""Payloads that are submitted on this machine, one after the other: the store stays open, and what is the same for all is done once. Called by
`penstock submit` and LocalRunner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.expressions.types import Type
from penstock.graph.model import Workflow
from penstock.service import stores
from penstock.service.background import ensure_worker
from penstock.service.payloads.identity import identity_of
from penstock.service.payloads.submit import PayloadRequest, SubmittedPayload, submit
from penstock.service.run_records import owner_alive
from penstock.service.submission import Submission
from penstock.settings import Settings


class PayloadSender:
    """Of one workflow. Used from one thread. `options`: keyword arguments of Submission. `worker`: have a worker in the background execute the
    runs; if not, one that is there does. Raises UserError."""

    def __init__(self, workflow: Workflow, settings: Settings, options: Mapping[str, Any], worker: bool = True) -> None:
        identity_of(workflow)
        self.workflow = workflow
        self.warnings: tuple[Any, ...] = ()
        """Of the first submission."""
        self._settings = settings
        self._options = options
        self._worker = worker
        self._packed: dict[str, Any] | None = None
        """The options that packing has given."""
        self._tracked: tuple[str, str] | None = None
        self._has_files = any(_names_files(param.type) for param in workflow.params)
        stores.prepare(settings)
        self._store = stores.open_or_create(settings)
        self._blobs = stores.blobs_of(settings)

    def submit(self, request: PayloadRequest) -> SubmittedPayload:
        """Raises UserError."""
        found = submit(self._store, self._blobs, self.workflow, request, self._prepared)
        if self._worker and self._needs_worker(found):
            ensure_worker(self._settings)
        return found

    def _needs_worker(self, found: SubmittedPayload) -> bool:
        """Is it in flight, and nobody executes it?"""
        if found.payload.run_state != "running":
            return found.payload.run_state == "stopped"
        run = self._store.runs.by_number(found.payload.run)
        return run is not None and owner_alive(self._store, run) is False

    def close(self) -> None:
        self._store.close()

    def _prepared(self, params: Mapping[str, Any]) -> Submission:
        submission = Submission(self.workflow, params, scheduler=self._settings.scheduler, **self._options)
        if self._packed is None or self._has_files:
            before = dict(submission.options)
            submission.pack(self._settings)
            self._packed = {name: value for name, value in submission.options.items() if before.get(name) != value}
            self._tracked = submission.tracked
            self.warnings = submission.vet(self._store)
        else:
            submission.options |= self._packed
            submission.tracked = self._tracked
        return submission


def _names_files(type_: Type) -> bool:
    return type_.name in ("file", "dir") or any(map(_names_files, type_.args))
