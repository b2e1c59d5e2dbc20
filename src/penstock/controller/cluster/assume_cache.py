"""The room that admitted Workloads have, given away by two: the webhook, to pods as they are made, and the workers, to pods that wait. Used by main.Controller.

Nothing is given twice: both decide under a lock for each workflow, and look only then. What the webhook gave counts until the pod is seen. While a
worker's writes are on their way, which give room away or back, the webhook lets nothing go; the pod keeps its gate for a moment.

A stage may be thousands of pods wide, and each asks. So what is seen of a workflow is worked out once, and then follows the pods that come and go; it is
thrown away when anything else of the workflow changes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.controller import names
from penstock.controller.admit import PodAdmitter, admit_pod
from penstock.controller.cluster.run import Key
from penstock.controller.core import Seen, reconcile, unreadable
from penstock.controller.coverage import Assumed, is_gated
from penstock.controller.objects import (
    PODS,
    WORKLOADS,
    Object,
    ReconcilePlan,
    Write,
    annotations_of,
    holds,
    name_of,
    part,
    uid_of,
)

ASSUMED = 10.0
"""Seconds for which a pod that the webhook let go counts, if it is not seen. Most are seen within milliseconds; one that never comes was refused by somebody."""
MOST_ASSUMED = 10_000
"""In one workflow. Reviews may be made up: nobody proves who he is."""
MOST_ADMITTERS = 32
LOCKS = 64


@dataclass(slots=True)
class _Given:
    """What the webhook gave away in one workflow and was not seen since."""

    pods: list[tuple[float, Assumed]] = field(default_factory=list)
    """The oldest first."""
    known: set[str] = field(default_factory=set)
    """Uids of pods that it is not, because they were seen before or waited."""

    def take(self, pod: Object) -> Assumed | None:
        """The one that this new pod is. A name is not known before a pod has one; then any that counts the same will do."""
        name, counted = name_of(pod), "" if is_gated(pod) else annotations_of(pod).get(names.POD_SET)
        named = (at for at, (_, one) in enumerate(self.pods) if one.pod == name)
        alike = (at for at, (_, one) in enumerate(self.pods) if counted and (one.pod, one.pod_set) == ("", counted))
        found = next(named, None)
        if found is None:
            found = next(alike, None)
        return self.pods.pop(found)[1] if found is not None else None


class AssumeCache:
    """As the scheduler of Kubernetes assumes a pod that it has bound: what was given away counts before it is seen. Thread-safe."""

    def __init__(
        self,
        look: Callable[[Key], Seen | None],
        clock: Callable[[], float],
        fresh: Callable[[], float],
    ) -> None:
        self._look, self._clock, self._fresh = look, clock, fresh
        self._locks = [threading.RLock() for _ in range(LOCKS)]
        self._given: dict[Key, _Given] = {}
        self._moving: set[Key] = set()
        """Workflows of which a worker gives room away or back at this moment: that is not in the caches yet."""
        self._admitters: OrderedDict[Key, PodAdmitter] = OrderedDict()
        self._stale: OrderedDict[Key, PodAdmitter] = OrderedDict()
        """Those that were thrown away: parts of them still hold."""
        self._making: set[Key] = set()
        """Admitters that are made at this moment."""
        self._epoch = 0
        """Grows when something changes that any admitter may rest on."""
        self._guard = threading.Lock()

    def _lock(self, key: Key) -> AbstractContextManager[Any]:
        return self._locks[hash(key) % LOCKS]

    # workers

    def reconcile(self, key: Key) -> ReconcilePlan | None:
        """None: the workflow is gone."""
        with self._lock(key):
            if key in self._moving:
                self._moving.discard(key)
                self._drop(key)
            seen = self._look(key)
            if seen is None:
                self._given.pop(key, None)
                self._drop(key)
                self._stale.pop(key, None)
                return None
            seen = replace(seen, assumed=self._assumed(key, seen.observed.pods))
            try:
                plan = reconcile(seen)
            except Exception as fault:  # an eviction is answered all the same
                plan = replace(unreadable(seen, ""), notes=(), fault=fault)
            if any(map(moves, plan.writes)):
                self._moving.add(key)
            return plan

    def settled(self, key: Key) -> None:
        """The writes of the plan are carried out, and in the caches."""
        if key in self._moving:
            with self._lock(key):
                self._moving.discard(key)
                self._drop(key)

    # the webhook

    def admit(self, key: Key, request: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._lock(key):
            admitter = self._admitter(key)
            response, assumed = admit_pod(request, admitter)
            if admitter is not None and assumed is not None:
                if request.get("dryRun") is True:
                    admitter.forget(assumed)
                else:
                    given = self._given.setdefault(key, _Given(known=set(admitter.pods)))
                    given.pods.append((self._clock(), assumed))
            return response

    def _admitter(self, key: Key) -> PodAdmitter | None:
        given = self._given.get(key)
        if key in self._moving or (given is not None and len(given.pods) >= MOST_ASSUMED):
            return None
        with self._guard:
            found = self._admitters.get(key)
            if found is not None:
                self._admitters.move_to_end(key)
        if found is not None and not (given is not None and self._expired(given)):
            return found
        epoch = self._epoch
        self._making.add(key)
        try:
            seen = self._look(key)
            if seen is None:
                return None
            found = PodAdmitter(
                replace(seen, assumed=self._assumed(key, seen.observed.pods)), self._stale.pop(key, None) or found
            )
            with self._guard:
                if epoch == self._epoch:
                    self._admitters[key] = found
                if len(self._admitters) > MOST_ADMITTERS:
                    self._admitters.popitem(last=False)
            return found
        finally:
            self._making.discard(key)

    # what becomes of it

    def changed(self, key: Key) -> None:
        """Anything of the workflow but a pod."""
        if self._watched(key):
            with self._lock(key):
                self._drop(key)

    def pod_changed(self, key: Key, pod: Object, now: Callable[[], Object | None]) -> None:
        """A pod has come, changed or gone. `now` says how it is: changes are told after they are seen, and perhaps not in order."""
        if not self._watched(key):
            return
        with self._lock(key):
            admitter, given, uid = self._admitters.get(key), self._given.get(key), uid_of(pod)
            one = None
            if given is not None and uid not in given.known:
                given.known.add(uid)
                one = given.take(pod)
                if not given.pods:
                    del self._given[key]
            if admitter is not None:
                if one is not None:
                    admitter.forget(one)
                admitter.follow(uid, now())

    def _watched(self, key: Key) -> bool:
        return key in self._admitters or key in self._making or key in self._given

    def queues_changed(self) -> None:
        """What queues cover, or nodes of a flavor."""
        with self._guard:
            self._epoch += 1
            self._admitters.clear()

    def _drop(self, key: Key) -> None:
        with self._guard:
            found = self._admitters.pop(key, None)
            if found is not None:
                self._stale[key] = found
                if len(self._stale) > MOST_ADMITTERS:
                    self._stale.popitem(last=False)

    def _assumed(self, key: Key, pods: Iterable[Object]) -> list[Assumed]:
        """What was given away and is neither among these pods nor too old."""
        given = self._given.get(key)
        if given is None:
            return []
        before = len(given.pods)
        there = {uid_of(pod): pod for pod in pods}
        for uid, pod in there.items():
            if uid not in given.known:
                given.take(pod)
        given.known = set(there)
        while given.pods and self._expired(given):
            given.pods.pop(0)
        if len(given.pods) < before:
            self._drop(key)  # It counts them, and would count the pods as well when it hears of them.
        if not given.pods:
            del self._given[key]
        return [one for _, one in given.pods]

    def _expired(self, given: _Given) -> bool:
        """While the watch of pods stands still nothing is seen, so nothing is given up."""
        return bool(given.pods) and self._clock() - given.pods[0][0] >= ASSUMED and self._fresh() >= ASSUMED


def moves(write: Write) -> bool:
    """Does it let a pod go, or change what a Workload holds? That its pods run, or are lost, changes nothing of that."""
    if write.verb == "create" or write.resource not in (PODS, WORKLOADS):
        return False
    status = part(write.body, "status")
    tells_only = write.resource == WORKLOADS and write.subresource == "status" and status.keys() == {"conditions"}
    return not tells_only or holds(write.body, "Finished")
