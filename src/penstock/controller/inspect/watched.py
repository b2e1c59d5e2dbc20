"""A cluster that is watched: its queues, what is in them, and why it waits, answered from memory. Made by `penstock serve --cluster`.

One watch for each kind fills a cache. A thread makes a ClusterState of what the caches hold whenever that has changed, and all who ask get the last
one. So nobody waits for the API server: if it is slow or away, the last state is shown, and `status` says so.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from penstock.admission.manifests.times import time_of
from penstock.controller import names
from penstock.controller.inspect.kinds import ALL_WORKLOADS, KINDS, Target, kind_of, target_of
from penstock.controller.inspect.known_objects import CachedObjects
from penstock.controller.inspect.state import EVERYTHING, ClusterState, local_queue_of
from penstock.controller.inspect.subject import Subject
from penstock.controller.inspect.told import parts_told, rest_told
from penstock.controller.inspect.why import WEBHOOKS, WorkloadReport, absence, over_word, standing, why
from penstock.controller.known import other_kinds
from penstock.controller.objects import (
    CLUSTER_QUEUES,
    PODS,
    ApiResource,
    Object,
    controller_of,
    holds,
    labels_of,
    name_of,
    namespace_of,
    rows,
    uid_of,
)
from penstock.errors import NotFound, Problem, UserError
from penstock.kubernetes.cache import Change, ObjectCache, outline
from penstock.kubernetes.client import Client
from penstock.kubernetes.log import Log
from penstock.kubernetes.watch import Watcher
from penstock.service import wording
from penstock.service.clusters import ClusterAnswer, ClusterItem, ClusterStatus
from penstock.service.views.quotas import QueueReader, QueueView

PAUSE: Final = 0.5
"""Seconds between two states, at least; more, if making one takes long."""
SHARE: Final = 5.0
"""Making states takes at most one part in so many of the time."""
EXPLAINED: Final = 500
"""Waiting Workloads whose reason is worked out for the list."""
ALONE: Final = 200
"""Objects without a Workload that are looked into."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Seen:
    """The cluster at one moment."""

    at: float
    state: ClusterState
    items: tuple[ClusterItem, ...]
    queues: tuple[QueueView, ...]
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    """Whoever asks `state` holds it: to explain a wait, its queues are changed and put back."""


def watched_kinds() -> tuple[ApiResource, ...]:
    """What is read: the queues and Workloads, and the objects that are labelled with a queue."""
    owners = [one for one in (*KINDS, *other_kinds()) if one.plural not in (PODS.plural, ALL_WORKLOADS.plural)]
    # On a JobSet another label may stand in its place, so all are watched.
    labelled = [one if one.kind == "JobSet" else dataclasses.replace(one, selector=names.QUEUE) for one in owners]
    return (*EVERYTHING, *labelled, WEBHOOKS)


class WatchedCluster:
    """A ClusterSource. `clock`: for tests."""

    def __init__(self, client: Client, name: str, log: Log, clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._name = name
        self._clock = clock
        kinds = watched_kinds()
        # Of what is not in a queue itself only the outline is kept.
        self._caches = {one: ObjectCache(one, None if one in EVERYTHING else outline) for one in kinds}
        self._watchers = {one: Watcher(client, cache, self._noticed, log) for one, cache in self._caches.items()}
        self._lookup = CachedObjects(self._caches, lambda kind: self._watchers[kind].synced)
        self._news = threading.Event()
        self._ending = threading.Event()
        self._seen: _Seen | None = None
        self._problem = ""
        self._tell: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._work, name="watched cluster", daemon=True)

    def start(self, changed: Callable[[], None]) -> None:
        self._tell = changed
        for watcher in self._watchers.values():
            watcher.start()
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._news.set()
        for watcher in self._watchers.values():
            watcher.stop()
        if self._thread.ident is not None:
            self._thread.join(5)
        self._client.close()

    # -- what is asked ------------------------------------------------------------------------------------------------

    def status(self) -> ClusterStatus:
        problem = self._problem or self._watch_problem()
        seen = self._seen
        if seen is None:
            return ClusterStatus(self._name, problem or "it has not been read yet")
        return ClusterStatus(self._name, problem, seen.at)

    def queues(self) -> Sequence[QueueView]:
        seen = self._seen
        return () if seen is None else seen.queues

    def queue(self, name: str, explained: int) -> QueueView:
        """Raises NotFound."""
        seen = self._read()
        with seen.lock:
            return QueueReader(seen.state).one(name, explained)

    def items(self) -> Sequence[ClusterItem]:
        seen = self._seen
        return () if seen is None else seen.items

    def why(self, target: str, namespace: str) -> ClusterAnswer:
        """Raises NotFound, UserError."""
        seen, now = self._read(), self._clock()
        with seen.lock:
            found = why(self._lookup, self._target(seen, target, namespace), namespace, now, seen.state)
        head = found.problem + (f" ({found.fix})" if found.problem and found.fix else "")
        if found.through:
            head = f"{found.object} is part of {found.through}, which waits as a whole."
        said = parts_told(found, now)
        return ClusterAnswer(found.object, namespace, head, said, rest_told(found), found.as_data())

    def _target(self, seen: _Seen, text: str, namespace: str) -> Target:
        """What is not watched, because it has no label of a queue itself, is known by the owners of Workloads."""
        target = target_of(text)
        if target.resource is None or target.resource == ALL_WORKLOADS:
            return target
        if self._lookup.get(target.resource, namespace, target.name) is not None:
            return target
        owned = {(namespace_of(one), _target_name(one)) for one in seen.state.workloads.values()}
        return dataclasses.replace(target, resource=None) if (namespace, str(target)) in owned else target

    def _read(self) -> _Seen:
        seen = self._seen
        if seen is None:
            fix = "try again in a moment; if it stays so, the list of runs says why"
            raise NotFound(Problem("P893", f"the cluster {self._name} has not been read yet", fix))
        return seen

    def _watch_problem(self) -> str:
        """The first kind that is not up to date; Kueue's own before others."""
        for kind in (CLUSTER_QUEUES, ALL_WORKLOADS, *self._watchers):
            watcher = self._watchers[kind]
            if watcher.problem:
                return watcher.problem
            if not watcher.synced and watcher.state == "starting":
                return f"{kind.plural} have not been read yet"
        if self._watchers[CLUSTER_QUEUES].state == "absent":
            return "Kueue is not installed in this cluster, or has no kueue.x-k8s.io/v1beta2"
        return ""

    # -- the thread that puts it together -----------------------------------------------------------------------------

    def _noticed(self, change: Change) -> None:
        self._news.set()

    def _work(self) -> None:
        before = None
        while not self._ending.is_set():
            self._news.wait(1.0)
            began = time.monotonic()
            now = self._state_of_watches()
            if self._news.is_set() and self._is_read():
                self._news.clear()
                self._look()
                self._tell()
            elif now != before:
                self._tell()
            before = now
            self._ending.wait(max(PAUSE, SHARE * (time.monotonic() - began)) if self._is_read() else 0.1)

    def _state_of_watches(self) -> tuple[str, bool]:
        return self._watch_problem(), self._is_read()

    def _is_read(self) -> bool:
        """Have the queues and Workloads been read at least once? The rest may be missing or refused."""
        needed = (self._watchers[kind] for kind in EVERYTHING)
        return all(one.synced or one.state == "refused" for one in needed)

    def _look(self) -> None:
        now = self._clock()
        try:
            objects = {kind: self._caches[kind].list() for kind in EVERYTHING}
            state = ClusterState(objects, now, unseen=self._unseen())
            self._seen = _Seen(now, state, tuple(self._items(state)), tuple(QueueReader(state).all()))
            self._problem = ""
        except UserError as error:  # an object that a newer Kueue may have
            self._problem = str(error)

    def _unseen(self) -> Problem | None:
        """The rights that are missing."""
        refused = [kind.plural for kind in EVERYTHING if self._watchers[kind].state == "refused"]
        if not refused:
            return None
        fix = f"an administrator can allow it: list and watch {', '.join(refused)}"
        return Problem("P891", f"the server may not read {', '.join(refused)} in this cluster", fix)

    def _items(self, state: ClusterState) -> list[ClusterItem]:
        parts: dict[tuple[str, str], list[WorkloadReport]] = {}
        explained = 0
        for one in state.workloads.values():
            if holds(one, "Finished"):
                continue
            if not holds(one, "Admitted"):
                explained += 1
            if explained <= EXPLAINED or holds(one, "Admitted"):
                found = standing(state, one)
            else:
                since = time_of(one.get("metadata", {}).get("creationTimestamp"))
                found = WorkloadReport("", "", "", "waiting", local_queue_of(one), since)
            parts.setdefault((namespace_of(one), _target_name(one)), []).append(found)
        items = [_item(namespace, target, some) for (namespace, target), some in parts.items()]
        items += self._alone(state, set(parts))
        return sorted(items, key=lambda one: (one.state == "running", one.since or 0.0, one.namespace, one.target))

    def _alone(self, state: ClusterState, known: set[tuple[str, str]]) -> list[ClusterItem]:
        """Objects that name a queue, and have no Workload."""
        uids = {
            str(each.get("uid"))
            for one in state.workloads.values()
            for each in rows(one, "metadata", "ownerReferences")
        }
        found: list[ClusterItem] = []
        for kind, cache in self._caches.items():
            if kind in EVERYTHING or kind == WEBHOOKS:
                continue
            for one in cache.list():
                queue = str(labels_of(one).get(names.QUEUE) or labels_of(one).get(names.QUEUED) or "")
                target = Target(kind.kind.lower(), name_of(one), kind)
                there = (namespace_of(one), str(target)) in known or uid_of(one) in uids
                if not queue or there or _is_part(one) or over_word(one) or len(found) >= ALONE:
                    continue
                problem, _ = absence(self._lookup, state, Subject(target, one), namespace_of(one))
                since = time_of(one.get("metadata", {}).get("creationTimestamp"))
                place = f"{namespace_of(one)}/{queue}"
                found.append(
                    ClusterItem(
                        namespace=namespace_of(one),
                        target=str(target),
                        state="queued",
                        queue=place,
                        since=since,
                        reason=problem,
                        parts=0,
                    )
                )
        return found


def _is_part(one: Object) -> bool:
    """Does it belong to an object that is listed itself: a Job to a JobSet, a TaskRun to a PipelineRun?"""
    owner = controller_of(one)
    return bool(owner) and kind_of(str(owner.get("apiVersion")), str(owner.get("kind"))) is not None


def _target_name(one: Object) -> str:
    """What a Workload is for: its owner, or itself."""
    owner = controller_of(one)
    if not owner or (len(rows(one, "metadata", "ownerReferences")) > 1 and not owner.get("controller")):
        return f"workload/{name_of(one)}"
    return f"{str(owner.get('kind', '')).lower()}/{owner.get('name', '')}"


def _item(namespace: str, target: str, some: Sequence[WorkloadReport]) -> ClusterItem:
    waits = [one for one in some if one.state in ("waiting", "checks", "leaving")]
    runs = [one for one in some if one.state == "admitted"]
    state = "running" if runs else "stopping" if any(one.state == "leaving" for one in some) else "queued"
    reason = ""
    first = next((one for one in waits if one.shown), None)
    if first is not None:
        reason = (f"{first.stage}: " if first.stage and len(some) > 1 else "") + wording.brief(first.shown)
    about = waits or runs or list(some)
    since = min((one.since for one in about if one.since is not None), default=None)
    queues = sorted({one.queue for one in about})
    return ClusterItem(
        namespace=namespace,
        target=target,
        name=some[0].name if target.startswith("workload/") else "",
        state=state,
        queue=queues[0] if queues else "",
        since=since,
        reason=reason,
        parts=len(some),
    )
