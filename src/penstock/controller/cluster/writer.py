"""Sends the writes of one plan, in order, and puts the answers into the caches. Used by the workers of run.Manager."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.controller.cluster.metrics import Metrics
from penstock.controller.objects import Note, Write
from penstock.errors import UserError
from penstock.kubernetes.cache import Caches, Change
from penstock.kubernetes.client import ApiError, Client
from penstock.kubernetes.log import Log

REMEMBERED = 10_000
"""Objects with a write that is sent every so often."""
REFUSED = (400, 403, 405, 413, 422)
"""Answers that will be the same next time, unless someone changes something."""


_WEBHOOK = "failed calling webhook"
"""The API server's words: nothing was written."""
MISSING = "KueueMissing"
REFUSED_WRITE = "WriteRefused"


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    word: Literal["done", "stale", "refused", "error"]
    refused: tuple[Note, ...] = ()
    """What the API server said against writes, for people."""
    unsure: Write | None = None
    """One that may have been carried out or not: there was no answer."""
    again: float | None = None
    """Seconds after which a write that was put off may be sent."""

    @property
    def ok(self) -> bool:
        return self.word == "done"


_Object = tuple[str, str, str]
"""Kind, namespace, name."""


def _told(write: Write, log: Log) -> Log:
    named = {"stage": write.stage, "workload": write.workload}
    if write.resource.kind == "Workload":
        named["workload"] = write.name
    known = {key: text for key, text in named.items() if text}
    return log.bind(
        **known, verb=write.verb, kind=write.resource.kind, object=write.name, namespace=write.namespace, why=write.why
    )


def refusal(write: Write, error: ApiError) -> Note | None:
    """An answer that will be the same next time, unless somebody changes something; in words, with what to do."""
    what = f"{write.verb} {write.resource.kind} {write.name}"
    api = write.resource.api
    kueues = api.partition("/")[0].endswith("kueue.x-k8s.io")
    fix = "Run `penstock controller check`: it says what is missing in the cluster and how to put it right."
    if error.code == 404 and write.verb == "create" and "namespace" not in error.message:
        older = "Kueue is not installed, or too old" if kueues else "what defines it is not installed, or too old"
        said = f"{what}: the cluster does not serve {write.resource.plural} of {api}: {older}. {fix}"
        return Note(MISSING if kueues else REFUSED_WRITE, said, warning=True)
    if error.code >= 500 and _WEBHOOK in error.message:
        said = f"{what}: a webhook that the API server has to ask does not answer: {error.message}. {fix}"
        return Note(MISSING if kueues else REFUSED_WRITE, said, warning=True)
    if error.code in REFUSED:
        return Note(REFUSED_WRITE, f"{what} was refused: {error.message}", warning=True)
    return None


class Writer:
    def __init__(
        self,
        client: Client,
        caches: Caches,
        changed: Callable[[Change], None],
        leads: Callable[[], bool],
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._caches = caches
        self._changed = changed
        self._leads = leads
        self._metrics = metrics
        self._clock = clock
        self._due: OrderedDict[tuple[str, str, str, str], float] = OrderedDict()
        """When a write that is sent every so often may be sent again."""

    def send(self, writes: Sequence[Write], log: Log) -> WriteOutcome:
        """A write that is refused does not hold up those about other objects."""
        again: float | None = None
        refused: dict[_Object, Note] = {}
        before = True
        for write in writes:
            about = (write.resource.kind, write.namespace, write.name)
            if about in refused or (write.follows and not before):
                before = False
                continue
            wait = self._too_early(write)
            if wait > 0:
                again = wait if again is None else min(again, wait)
                before = False
                continue
            if not self._leads():
                log.warning("not written: another replica leads", verb=write.verb, kind=write.resource.kind)
                return WriteOutcome("error", tuple(refused.values()))
            outcome = self._one(write, _told(write, log))
            before = outcome is None
            if isinstance(outcome, Note):
                refused[about] = outcome
            elif outcome is not None:
                return replace(outcome, refused=tuple(refused.values()))
        return WriteOutcome("refused" if refused else "done", tuple(refused.values()), again=again)

    def _too_early(self, write: Write) -> float:
        """Seconds until it may be sent. One that may be sent now counts as sent."""
        if write.every <= 0:
            return 0.0
        now = self._clock()
        what = (write.resource.kind, write.namespace, write.name, write.subresource)
        wait = self._due.get(what, now) - now
        if wait <= 0:
            self._due.pop(what, None)
            self._due[what] = now + write.every
            if len(self._due) > REMEMBERED:
                self._due.popitem(last=False)
        return wait

    def _one(self, write: Write, log: Log) -> WriteOutcome | Note | None:
        """None: it is done, on with the next. A note: it is refused."""
        count = self._metrics.writes.labels
        try:
            answer = self._client.write(write)
        except ApiError as error:
            count(write.verb, write.resource.kind, str(error.code)).inc()
            if error.code == 404 and write.verb == "delete":
                self.look(write)
                return None  # that is what was wanted
            note = refusal(write, error)
            if note is not None:
                log.warning("write refused", problem=str(error))
                return note
            if error.code in (404, 409):
                log.info("out of date, looking again", problem=str(error))
                self.look(write)
                return WriteOutcome("stale")
            log.warning("write failed", problem=str(error))
            return WriteOutcome("error", unsure=write)
        except UserError as error:
            log.warning("write failed", problem=str(error))
            return WriteOutcome("error", unsure=write)
        count(write.verb, write.resource.kind, "200").inc()
        log.info("written")
        self._take(write, answer)
        return None

    def _take(self, write: Write, answer: dict[str, Any]) -> None:
        for cache in self._caches.holding(write.resource):
            change = None
            if answer.get("kind") == write.resource.kind:
                change = cache.put(answer)
            elif write.verb == "delete" and answer.get("status") == "Success":
                uid = (answer.get("details") or {}).get("uid", "")
                change = cache.remove({"metadata": {"namespace": write.namespace, "name": write.name, "uid": uid}})
            if change is not None:
                self._changed(change)

    def look(self, write: Write) -> bool:
        """Reads what the write was about, so that the next look at the workflow sees it. False: it could not be read."""
        for cache in self._caches.holding(write.resource):
            known = cache.get(write.namespace, write.name)
            try:
                found = self._client.found(write.resource, write.namespace, write.name)
            except (ApiError, UserError):
                return False  # the watch will tell
            if found is not None:
                change = cache.put(found)
            else:
                meta = (known or {}).get("metadata") or {}
                gone = {"namespace": write.namespace, "name": write.name, "uid": meta.get("uid", "")}
                change = cache.remove({"metadata": gone}) if known is not None else None
            if change is not None:
                self._changed(change)
        return True
