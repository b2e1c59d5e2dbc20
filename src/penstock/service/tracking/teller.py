"""The events of one run, as calls to the tracking server: one run of the server for the run, and one nested in it for each task. Called by
sender, in its thread.

Each event may be told twice: whoever told it the first time may have died before that was recorded. Parameters, metrics, tags and files are the
same again then. Only to create is not, so the server is searched first for what has our tags; if the answer to a creation is lost, it is
searched again, and of two that were made for the same task the one that was told nothing is deleted.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.artifacts.values import loads
from penstock.errors import UserError
from penstock.graph.paths import parents, step_of
from penstock.graph.stored import Stored
from penstock.service import stores
from penstock.service.tracking import entries
from penstock.service.tracking.client import (
    MlflowClient,
    RunUnavailable,
    ServerRun,
    TrackingRefused,
    TrackingUnavailable,
)
from penstock.service.tracking.entries import Entries, FileEntry
from penstock.settings import Settings
from penstock.store.records import Event, RunRecord, TrackedRun
from penstock.store.sql import Store

if TYPE_CHECKING:
    from penstock.engine.replay import LogFold

_STATUS = {"succeeded": "FINISHED", "failed": "FAILED", "errored": "FAILED", "cancelled": "KILLED", "stopped": "KILLED"}
_ENDS = ("task.succeeded", "task.failed", "task.errored", "task.cancelled")
_TOGETHER = 50
"""Parameters or tags in one call: with the longest values that is far below the megabyte that MLflow takes. Metrics: ten times as many."""
_GONE = frozenset({"P707", "P719"})
"""A blob that is missing or damaged: it is so later, too."""
_OLD_PARAM = 250
"""Characters of a parameter that every version of MLflow takes."""


class RunTeller:
    def __init__(
        self, client: MlflowClient, store: Store, settings: Settings, tracked: TrackedRun, largest: int
    ) -> None:
        found = store.runs.by_number(tracked.run)
        assert found is not None
        self.record: RunRecord = found
        self.uncertain = False
        """Was the answer to a creation lost?"""
        self._client = client
        self._store = store
        self._settings = settings
        self._largest = largest
        self._experiment_name = tracked.experiment
        self._experiment = ""
        self._tags = {"penstock.store": store.id, "penstock.number": str(tracked.run)}
        self._known: dict[str, ServerRun] | None = None
        """Task -> its run on the server, as far as there is one; "": the run itself."""
        self._told: set[str] = set()
        """The runs of the server that this process tells."""
        self._fold: LogFold | None = None
        self._foldable = True
        self._folded = 0

    @property
    def place(self) -> str:
        root = (self._known or {}).get("")
        return f"{self._experiment}/{root.id}" if root is not None else ""

    def tell(self, event: Event) -> None:
        """Returns when the server has it. Raises TrackingUnavailable."""
        root = self._server_run("")
        if event.task and event.kind.startswith("task."):
            # One that has not run, such as one whose result was reused, has no start.
            first = event.kind == "task.started" or (event.kind == "task.succeeded" and "seconds" not in event.data)
            self._task(event, (self._inputs(event) if first else None) or {})
        elif event.kind == "run.submitted":
            self._log(root, entries.of_inputs(_values(self.record.params)), {}, {}, event.at)
        elif event.kind == "run.finished":
            self._finished(root, event)
        elif event.kind in ("run.started", "run.retried"):
            self._say(root, "RUNNING")
        elif event.kind == "run.stopped":
            self._log(root, {}, {}, {"penstock.state": "stopped"}, event.at)
            self._say(root, "KILLED", event.at)

    def tidy(self) -> None:
        """After the last event: deletes what a creation made of which the answer was lost."""
        if self.uncertain:
            self._known = None
            self._found()
            self.uncertain = False

    # -- the run ------------------------------------------------------------------------------------------------------

    def _finished(self, root: ServerRun, event: Event) -> None:
        self.record = self._store.runs.by_number(self.record.number) or self.record
        outcome = str(event.data.get("outcome", ""))
        told = entries.of_outputs(_values(self.record.outputs))
        told.tags |= {"penstock.state": outcome, **_message(event.data)}
        self._give(root, told, event.at)
        self._say(root, _STATUS.get(outcome, "FAILED"), event.at)

    # -- a task -------------------------------------------------------------------------------------------------------

    def _task(self, event: Event, inputs: Mapping[str, Any]) -> None:
        path, data = event.task, event.data
        if event.kind == "task.started":
            one = self._server_run(path, event, inputs)
            if int(data.get("attempt", 1)) > 1:
                self._log(one, {}, {}, {"penstock.attempt": str(data["attempt"])}, event.at)
                self._say(one, "RUNNING")
            return
        if event.kind not in _ENDS or data.get("retry") is not None:
            return
        if event.kind == "task.succeeded" or path in self._found():
            one = self._server_run(path, event, inputs)
            outcome = event.kind.partition(".")[2]
            told = entries.of_outputs(self._outputs(data)) if outcome == "succeeded" else Entries()
            told.tags |= {"penstock.state": "reused" if "reused" in data else outcome, **_message(data)}
            self._give(one, told, event.at)
            self._say(one, _STATUS[outcome], event.at)

    def _outputs(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        if "key" in data:
            result = self._store.results.lookup([data["key"]]).get(data["key"])
            return {} if result is None else result.outputs
        return _values(data.get("outputs"))

    def _inputs(self, event: Event) -> Mapping[str, Any] | None:
        """What the task was given: worked out from the log up to here. None: it cannot be told, as when the log is of another version."""
        if not self._foldable:
            return None
        try:
            if self._fold is None or event.seq <= self._folded:
                from penstock.engine.replay import LogFold
                from penstock.service.refolding import refolded

                again = refolded(self._store, self.record, self._settings)
                self._fold, self._folded = LogFold(again, self._store.runs, self._store.results), 0
            for before in self._store.runs.events(self.record.number, self._folded, event.seq - 1 - self._folded):
                self._fold = self._fold if before.kind != "run.retried" or before.seq <= self._fold.last else None
                if self._fold is None:
                    return self._inputs(event)
                self._fold.take([before])
                self._folded = before.seq
            return self._fold.inputs(event.task)
        except Exception:
            self._foldable = False
            return None

    # -- runs of the server -------------------------------------------------------------------------------------------

    def _found(self) -> dict[str, ServerRun]:
        if self._known is None:
            try:
                self._experiment = self._experiment or self._client.experiment(self._experiment_name)
                found = list(self._client.search(self._experiment, self._tags))
            except TrackingRefused as error:
                raise RunUnavailable(
                    f"{self._client.url} has no experiment {self._experiment_name!r}: {error}"
                ) from None
            known: dict[str, ServerRun] = {}
            # Of two for the same task, the one that we have told something is kept; the other was made by a call whose answer was lost.
            for one in sorted(found, key=lambda one: (one.id in self._told, one.entries), reverse=True):
                if known.setdefault(one.tags.get("penstock.task", ""), one) is not one:
                    with suppress(TrackingRefused):
                        self._client.delete(one.id)
            self._known = known
            self._told |= {one.id for one in known.values()}
        return self._known

    def _server_run(self, path: str, event: Event | None = None, inputs: Mapping[str, Any] | None = None) -> ServerRun:
        """The one of this task, made if it is not there."""
        known = self._found()
        if path not in known:
            tags = self._tags_of(path) if path else self._tags_of_run()
            start = self.record.created if event is None else event.at - float(event.data.get("seconds", 0))
            name = path or self.record.id
            try:
                made = self._client.create(self._experiment, name, self.record.user, start, tags)
            except TrackingUnavailable:
                self._known, self.uncertain = None, True
                raise
            except TrackingRefused as error:  # such as an experiment that was deleted there: no event can be told
                raise RunUnavailable(f"{self._client.url} takes no run in {self._experiment_name!r}: {error}") from None
            known[path] = made
            self._told.add(made.id)
        if event is not None and inputs:
            self._log(known[path], entries.of_inputs(inputs), {}, {}, event.at)
        return known[path]

    def _tags_of_run(self) -> dict[str, str]:
        record = self.record
        return {
            **self._tags,
            "penstock.run": record.id,
            "penstock.workflow": record.workflow,
            "penstock.digest": record.digest,
            "mlflow.source.type": "LOCAL",
            "mlflow.source.name": entries.cut(str(record.options.get("file") or record.workflow), entries.LONGEST_TAG),
            "mlflow.user": record.user,
        }

    def _tags_of(self, path: str) -> dict[str, str]:
        known = self._found()
        outer = next((known[above] for above in reversed(parents(path)) if above in known), known[""])
        return {
            **self._tags,
            "penstock.run": self.record.id,
            "penstock.task": path,
            "penstock.step": step_of(path),
            "penstock.attempt": "1",
            "mlflow.parentRunId": outer.id,
            "mlflow.user": self.record.user,
        }

    # -- what is known of one -----------------------------------------------------------------------------------------

    def _say(self, one: ServerRun, status: str, end: float | None = None) -> None:
        with suppress(TrackingRefused):  # somebody has deleted the run there: that is their will
            self._client.update(one.id, status, end)

    def _give(self, one: ServerRun, told: Entries, at: float) -> None:
        for file in told.files:
            why = self._send(one, file)
            if why:
                told.tags[f"output.{file.path}"[: entries.LONGEST_NAME]] = entries.cut(why, entries.LONGEST_TAG)
        tags = {name: entries.cut(text, entries.LONGEST_TAG) for name, text in told.tags.items()}
        self._log(one, told.params, told.metrics, tags, at)

    def _log(
        self,
        one: ServerRun,
        params: Mapping[str, str],
        metrics: Mapping[str, float],
        tags: Mapping[str, str],
        at: float,
    ) -> None:
        def send(params: Mapping[str, str], metrics: Mapping[str, float], tags: Mapping[str, str]) -> None:
            self._client.log(one.id, params, [(name, value, at) for name, value in metrics.items()], tags)

        if len(params) + len(metrics) + len(tags) <= _TOGETHER:
            with suppress(TrackingRefused):
                if params or metrics or tags:
                    send(params, metrics, tags)
                return
        refused: list[str] = []
        for part in _parts(params, _TOGETHER):
            refused += _one_by_one(part, lambda some: send(some, {}, {}))
        for part in _parts(metrics, 10 * _TOGETHER):
            refused += _one_by_one(part, lambda some: send({}, some, {}))
        for part in _parts(tags, _TOGETHER):
            refused += _one_by_one(part, lambda some: send({}, {}, some))
        if refused:
            said = entries.cut("; ".join(refused), entries.LONGEST_TAG)
            with suppress(TrackingRefused):
                send({}, {}, {"penstock.refused": said})

    def _send(self, one: ServerRun, file: FileEntry) -> str:
        """Why it was not sent; empty if it was."""
        content, path = file.content, f"outputs/{file.path}"
        size = content.size if isinstance(content, Stored) else len(content)
        shown = entries.described(content) if isinstance(content, Stored) else f"<{size:,} bytes>"
        if size > self._largest:
            return f"{shown}: not sent, more than {self._largest:,} bytes"
        try:
            if isinstance(content, bytes):
                self._client.put(one.artifacts, path, content, size)
                return ""
            blobs = stores.blobs_of(self._settings)
            with tempfile.TemporaryDirectory(dir=self._settings.home / "work", prefix="mlflow-") as folder:
                copy = Path(folder, "file")
                blobs.fetch(content.digest, copy)
                with open(copy, "rb") as opened:
                    self._client.put(one.artifacts, path, opened, copy.stat().st_size)
            return ""
        except TrackingRefused as error:
            return f"{shown}: not sent: {error}"
        except UserError as error:
            if any(one.code in _GONE for one in error.problems):
                return f"{shown}: not sent: {error}"
            raise RunUnavailable(str(error)) from None
        except OSError as error:
            raise RunUnavailable(f"{shown} cannot be copied: {error}") from None


def _values(found: Any) -> Mapping[str, Any]:
    """Plain data of the log, with its notes of stored values."""
    values: Mapping[str, Any] = loads(json.dumps(found or {}))
    return values


def _message(data: Mapping[str, Any]) -> dict[str, str]:
    found = {
        f"penstock.{name}": str(data[name])
        for name in ("message", "exception", "exit_code")
        if data.get(name) is not None
    }
    return {name: text for name, text in found.items() if text}


def _parts(given: Mapping[str, Any], most: int) -> list[dict[str, Any]]:
    names = list(given)
    return [{name: given[name] for name in names[at : at + most]} for at in range(0, len(names), most)]


def _one_by_one(part: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> list[str]:
    """All at once, or if that is refused each alone. Returns what was refused even so."""
    try:
        send(part)
        return []
    except TrackingRefused as error:
        if len(part) > 1:
            return [why for name, value in part.items() for why in _one_by_one({name: value}, send)]
        ((name, value),) = part.items()
        if isinstance(value, str) and len(value) > _OLD_PARAM:
            return _one_by_one({name: entries.cut(value, _OLD_PARAM)}, send)
        return [f"{name}: {error}"]
