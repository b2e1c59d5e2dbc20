"""Kubernetes Events about workflows, each once. Used by run.Manager; a thread of its own sends them, so that no workflow waits for words.

An Event is named by what it says about which object. So one that a former process has sent already is found to exist, and is not sent twice. A note
that stands in one plan after another is one Event; one that was gone and comes back is counted up.
"""

from __future__ import annotations

import datetime
import hashlib
import queue
import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from penstock.controller.cluster.metrics import Metrics
from penstock.controller.names import MANAGER
from penstock.controller.objects import ApiResource, Note, Object, name_of, namespace_of, uid_of
from penstock.errors import UserError
from penstock.kubernetes.client import ApiError, Client
from penstock.kubernetes.log import Log

EVENTS = ApiResource("events.k8s.io/v1", "Event", "events")
KEPT = 10_000
"""How many notes are remembered."""
WAITING = 1_000
"""How many may wait to be sent; more are dropped."""
LONGEST = 1024
"""Letters of a message that the API server takes."""


@dataclass(frozen=True, slots=True)
class _Sending:
    obj: Object
    note: Note
    count: int


class Recorder:
    def __init__(self, client: Client, identity: str, log: Log, metrics: Metrics) -> None:
        self._client = client
        self._identity = identity
        self._log = log
        self._metrics = metrics
        self._lock = threading.Lock()
        self._counts: OrderedDict[tuple[str, str, str], int] = OrderedDict()
        self._standing: OrderedDict[Hashable, frozenset[tuple[str, str, str]]] = OrderedDict()
        self._queue: queue.Queue[_Sending | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Sends what waits, for a few seconds at most."""
        try:
            self._queue.put(None, timeout=5)
        except queue.Full:
            return
        if self._thread.ident is not None:
            self._thread.join(5)

    def record(self, key: Hashable, obj: Object, notes: Sequence[Note]) -> None:
        """All notes of one plan."""
        now = {(uid_of(obj), note.reason, note.message): note for note in notes}
        with self._lock:
            before = self._standing.pop(key, frozenset())
            if now:
                self._standing[key] = frozenset(now)
                if len(self._standing) > KEPT:
                    self._standing.popitem(last=False)
            for said, note in now.items():
                if said in before:
                    continue
                count = self._counts.pop(said, 0) + 1
                self._counts[said] = count
                if len(self._counts) > KEPT:
                    self._counts.popitem(last=False)
                self._put(_Sending(obj, note, count))

    def _put(self, sending: _Sending) -> None:
        try:
            self._queue.put_nowait(sending)
        except queue.Full:
            self._metrics.events.labels("dropped").inc()

    def _run(self) -> None:
        while (sending := self._queue.get()) is not None:
            try:
                outcome = self._send(sending)
            except (ApiError, UserError) as error:
                outcome = "failed"
                self._log.warning("event not sent", reason=sending.note.reason, problem=str(error))
            except Exception as error:  # words are never worth a thread
                outcome = "failed"
                self._log.error("event not sent", reason=sending.note.reason, error=error)
            self._metrics.events.labels(outcome).inc()

    def _send(self, sending: _Sending) -> str:
        obj, note = sending.obj, sending.note
        namespace = namespace_of(obj) or "default"
        name = event_name(obj, note)
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if sending.count > 1:
            series = {"count": sending.count, "lastObservedTime": now}
            try:
                self._client.patch(EVENTS, namespace, name, {"series": series})
                return "counted"
            except ApiError as error:
                if error.code != 404:  # Events are kept for an hour
                    raise
        try:
            self._client.create(EVENTS, namespace, self._body(obj, note, namespace, name, now))
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return "known"
            raise
        return "sent"

    def _body(self, obj: Object, note: Note, namespace: str, name: str, now: str) -> dict[str, object]:
        message = note.message if len(note.message) <= LONGEST else note.message[: LONGEST - 1] + "…"
        return {
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": now,
            "reportingController": MANAGER,
            "reportingInstance": self._identity[:128],
            "action": note.reason,
            "reason": note.reason,
            "note": message,
            "type": "Warning" if note.warning else "Normal",
            "regarding": {
                "apiVersion": obj.get("apiVersion", ""),
                "kind": obj.get("kind", ""),
                "namespace": namespace_of(obj),
                "name": name_of(obj),
                "uid": uid_of(obj),
                "resourceVersion": str((obj.get("metadata") or {}).get("resourceVersion", "")),
            },
        }


def event_name(obj: Object, note: Note) -> str:
    said = "\0".join((uid_of(obj), note.reason, note.message, str(note.warning)))
    return f"{name_of(obj)[:200]}.{hashlib.sha256(said.encode()).hexdigest()[:16]}"
