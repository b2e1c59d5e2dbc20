"""Reservations as Workloads of the Kueue of a cluster: the real Kueue decides, and nothing is decided here. Takes the place of
QuotaReplica for an engine whose tasks run on a cluster with queues. Called by Admitter and Reservations. Pure: the cluster itself is
behind ClusterQueues, which answers from memory and writes in threads of its own.

Of each Workload there are two: the one here, as Reservations knows it, and the one in the cluster, which follows it (`kueue.wanted`). What
Kueue decides about that one is copied here: admitted, with how many pods and in which flavors; evicted. An eviction is answered when the
tasks have stopped, for only then Reservations releases the Workload.

After the death of an engine the next one makes Workloads of the same names, finds them in the cluster, and goes on with what they hold.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from penstock.admission.decisions import Decision
from penstock.admission.manifests.write import document
from penstock.admission.model import (
    Admission,
    Config,
    Eviction,
    FlavorResource,
    PodSet,
    PodSetAssignment,
    Workload,
)
from penstock.engine.podsets import amounts, placement_fields
from penstock.graph.model import Placement, Step, Toleration
from penstock.kubernetes.objects import Object, condition, holds, is_deleted, part
from penstock.kueue import wanted as kueue
from penstock.kueue.injection import PodInjection, injections
from penstock.kueue.status import seconds
from penstock.kueue.wanted import SHAPE, DesiredWorkload
from penstock.store.queue_use import QueueUse

PLACES: Final = 200
"""Workloads that keep a place in the queue for steps that are not ready. Those behind them get theirs when it is their turn."""
SOON: Final = 1.1
"""Seconds."""
_COUNTED = re.compile(r"\d+")


class ClusterQueues(Protocol):
    """The queues of a namespace, and our Workloads there. See backends.kubernetes.queues."""

    @property
    def namespace(self) -> str: ...

    @property
    def local_queues(self) -> Mapping[str, str]:
        """LocalQueue -> ClusterQueue."""
        ...

    @property
    def priorities(self) -> Mapping[str, int]:
        """WorkloadPriorityClass -> its value."""
        ...

    def metadata(self, key: str, run: str) -> dict[str, Any]:
        """Of the object of a Workload: its name follows from the store and the key."""
        ...

    def want(self, name: str, wanted: DesiredWorkload | None) -> None: ...

    def seen(self, name: str) -> Object | None: ...

    def follows(self, name: str) -> bool:
        """Is the object in the cluster, and known there as this engine's?"""
        ...

    def start(self, changed: Callable[[], None]) -> None:
        """`changed` is called in other threads when Kueue has decided something."""
        ...

    def close(self) -> None:
        """Deletes what this engine still has there. It may take some seconds."""
        ...

    def runs(self) -> Collection[str]:
        """The runs of this store that have something there, whichever engine made it."""
        ...

    def news(self) -> Collection[str]:
        """Names of objects that have changed since the last call."""
        ...

    def of_run(self, run: str) -> Collection[str]:
        """Names of all objects of a run of this store, whichever engine made them."""
        ...

    def drop(self, name: str) -> None:
        """Delete it, whichever engine made it."""
        ...

    def flavors(self, names: Iterable[str]) -> Mapping[str, Object] | None:
        """ResourceFlavors. None: not all are known yet; there will be news of the Workload when they are."""
        ...

    def problem(self, name: str) -> str:
        """What the API server says against the last write for it."""
        ...

    def waiting(self, queue: str) -> int:
        """How many Workloads, of whomever, wait in a LocalQueue."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterHold:
    """A Reason, in Kueue's words."""

    queue: str
    cluster_queue: str
    reason: str
    message: str
    object: str
    """Namespace and name of the Workload in the cluster."""
    pods: int
    asks: Mapping[str, int]
    """What they ask for together."""
    priority: int

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"why": "kueue", "queue": self.queue, "cluster_queue": self.cluster_queue}
        data |= {"cluster": True, "rule": self.reason, "detail": self.message}
        return data | {"object": self.object, "pods": self.pods, "asks": dict(self.asks), "priority": self.priority}


class ClusterScheduler:
    """A QuotaScheduler."""

    def __init__(self, queues: ClusterQueues) -> None:
        self.config = Config()
        self.workloads: dict[str, Workload] = {}
        self.decisions: Mapping[str, Decision] = {}
        self.touched: set[str] = set()
        self.checks: Collection[str] = ()
        self._queues = queues
        self._names: dict[str, str] = {}
        """Workload -> its object."""
        self._keys: dict[str, str] = {}
        self._places: set[str] = set()
        self._look: set[str] = set()
        """Workloads to look at although nothing of them may have changed in the cluster."""
        self._fresh: dict[str, bool] = {}
        """Runs that have only just begun to ask."""
        self._runs: set[str] = set()
        self._injected: dict[str, list[PodInjection]] = {}
        self._look_at: float | None = None
        """When reasons are to be looked at again. It stands until then, however often there is something else to decide."""
        self._moves = False
        """Something has changed since the last look: reasons of waits may be others in a moment."""

    # -- what reservations do -------------------------------------------------------------------------------------------

    def submit(self, workload: Workload) -> None:
        run = run_of(workload)
        if run not in self._runs:
            self._runs.add(run)
            self._fresh[run] = True
        self.workloads[workload.key] = workload
        meta = self._queues.metadata(workload.key, run)
        self._names[workload.key] = meta["name"]
        self._keys[meta["name"]] = workload.key
        if workload.gates and len(self._places) < PLACES:
            self._places.add(workload.key)
        self._want(workload)

    def _want(self, workload: Workload) -> None:
        """Says how the Workload in the cluster has to be."""
        if workload.gates and workload.key not in self._places:
            return
        if not workload.gates:
            self._places.discard(workload.key)
        self.touched.add(workload.key)
        self._look.add(workload.key)
        self._queues.want(self._names[workload.key], self._wanted(workload))

    def _wanted(self, workload: Workload) -> DesiredWorkload:
        meta = self._queues.metadata(workload.key, run_of(workload))
        left = [max(0, one.count - workload.reclaimable.get(one.name, 0)) for one in workload.podsets]
        return DesiredWorkload(
            _document(workload, meta),
            tuple(left) or (0,),
            whole=not any(one.min_count is not None for one in workload.podsets),
            place=bool(workload.gates),
            running=workload.admission is not None,
        )

    def resize(self, key: str, podsets: tuple[PodSet, ...], now: float) -> None:
        workload = self.workloads[key]
        workload.podsets, workload.reclaimable = podsets, {}
        self._want(workload)

    def ungate(self, key: str, gate: str, now: float) -> None:
        workload = self.workloads[key]
        workload.gates -= {gate}
        self._want(workload)

    def reclaim(self, key: str, counts: Mapping[str, int], now: float) -> None:
        workload = self.workloads[key]
        for name, count in counts.items():
            workload.reclaimable[name] = max(workload.reclaimable.get(name, 0), count)
        self._want(workload)

    def ready(self, key: str, now: float) -> None:
        """It is said to Kueue as soon as it is admitted: tasks come one after the other, and the backend sees to it that none waits for a
        machine for ever."""

    def release(self, key: str, now: float) -> None:
        """What ran on it has stopped: now the eviction is answered."""
        workload = self.workloads[key]
        workload.last_eviction, workload.eviction = workload.eviction, None
        workload.admission, workload.admitted_at, workload.held = None, None, {}
        self._injected.pop(key, None)
        self._want(workload)

    def kept_pods(self, key: str) -> int:
        """Kueue evicts a Workload as a whole."""
        return 0

    def spare(self, key: str, now: float) -> None:
        """Never asked for: nothing is kept."""

    def finish(self, key: str, now: float) -> None:
        self.workloads.pop(key).finished = True
        self._forget(key)

    def _forget(self, key: str) -> None:
        name = self._names.pop(key)
        del self._keys[name]
        self._places.discard(key)
        self._look.discard(key)
        self._injected.pop(key, None)
        self.touched.add(key)
        self._queues.want(name, None)

    def set_check(self, key: str, name: str, state: Any, now: float, *, message: str = "") -> None:
        """Kueue asks the checks of its queues itself."""

    def ended(self, run: str) -> None:
        self._runs.discard(run)
        self._fresh.pop(run, None)
        for name in self._queues.of_run(run):
            self._queues.drop(name)

    # -- what Kueue decides ---------------------------------------------------------------------------------------------

    def settle(self, now: float) -> None:
        look, self._look = self._look, set()
        look.update(self._keys[name] for name in self._queues.news() if name in self._keys)
        self._moves |= bool(look)
        for key in sorted(look):
            if key in self.workloads:
                self._follow(self.workloads[key], now)
        for run in list(self._fresh):
            waits = self._takes_over(run)
            keep, self._fresh[run] = waits or self._fresh[run], waits
            for name in self._queues.of_run(run):  # what an engine that died has left, and nobody has asked for again
                seen = self._queues.seen(name)
                if name not in self._keys and not (keep and seen is not None and kueue.is_occupied(seen)):
                    self._queues.drop(name)
            if not keep:
                del self._fresh[run]
            self._moves |= keep

    def _takes_over(self, run: str) -> bool:
        """Is something admitted for it that its tasks do not have yet? Then they have yet to ask for the rest."""
        for one in self.workloads.values():
            if run_of(one) == run and one.admission is None and not one.gates:
                seen = self._queues.seen(self._names[one.key])
                if seen is not None and kueue.is_admitted(seen) and kueue.fits(self._wanted(one), seen):
                    return True
        return False

    def _follow(self, workload: Workload, now: float) -> None:
        seen = self._queues.seen(self._names[workload.key])
        if workload.admission is None:
            if seen is not None and not workload.gates and self._may_start(workload, seen):
                self._admit(workload, seen, now)
        elif workload.eviction is not None:
            return
        elif seen is None or is_deleted(seen) or holds(seen, "Finished"):
            del self.workloads[workload.key]  # somebody has taken its quota away: it asks anew, as another
            self._forget(workload.key)
        elif not kueue.is_admitted(seen):
            workload.eviction = _eviction(seen, now)
            self.touched.add(workload.key)

    def _may_start(self, workload: Workload, seen: Object) -> bool:
        mine = self._queues.follows(self._names[workload.key])
        return mine and kueue.is_admitted(seen) and kueue.fits(self._wanted(workload), seen)

    def _admit(self, workload: Workload, seen: Object, now: float) -> None:
        given = kueue.flavors(seen)
        known = self._queues.flavors({flavor for one in given for flavor in one.values()})
        if known is None:
            return
        podsets = []
        held: dict[FlavorResource, int] = {}
        for one, room, flavors in zip(workload.podsets, kueue.room(seen), given, strict=False):
            count = min(room, one.count)
            usage = {name: amount * count for name, amount in one.requests.items()}
            podsets.append(PodSetAssignment(one.name, count, flavors, usage))
            for name, amount in usage.items():
                if name in flavors:
                    taken = FlavorResource(flavors[name], name)
                    held[taken] = held.get(taken, 0) + amount
        queue = str(part(seen, "status", "admission").get("clusterQueue", ""))
        workload.admission = Admission(queue, tuple(podsets))
        workload.held, workload.reserved_at, workload.admitted_at = held, now, now
        self._injected[workload.key] = injections(seen, known)
        self._want(workload)

    def next_time(self, now: float) -> float | None:
        """When to look again only for the reasons of waits, which are recorded at most once a second."""
        if self._moves or (self._look_at is not None and self._look_at <= now):
            self._look_at = now + SOON if self._moves else None
        self._moves = False
        return self._look_at

    # -- pods -----------------------------------------------------------------------------------------------------------

    def placed(self, step: Step, planned: Step, key: str) -> Step:
        found = self._injected.get(key)
        if not found:
            return step
        podsets = self.workloads[key].podsets
        asks = amounts(planned.resources)
        place = PodSet(**placement_fields(planned.placement))
        alike = [number for number, one in enumerate(podsets) if _place(one) == _place(place)]
        exact = [number for number in alike if podsets[number].requests == asks]
        units = [number for number in alike if podsets[number].requests.keys() <= asks.keys()]
        for number in exact[:1] or units:
            step = injected(step, found[number])
        return step

    # -- why ------------------------------------------------------------------------------------------------------------

    def explain(self, key: str, now: float) -> ClusterHold:
        workload = self.workloads[key]
        name = self._names[key]
        seen = self._queues.seen(name)
        reason, message = kueue.waits_for(seen)
        problem = self._queues.problem(name)
        queue = self._queues.local_queues.get(workload.queue, "")
        if problem:
            reason, message = "Refused", problem
        elif seen is not None and kueue.is_admitted(seen):
            reason, message = "Admitted", "it is admitted and about to start"
        elif not message:
            message = "Kueue has not looked at it yet" if seen is not None else "it is being handed to Kueue"
        asks: dict[str, int] = {}
        for one in workload.podsets:
            for resource, amount in one.requests.items():
                asks[resource] = asks.get(resource, 0) + amount * one.count
        pods = sum(one.count for one in workload.podsets)
        space = workload.namespace
        local = f"{space}/{workload.queue}"
        return ClusterHold(local, queue, reason, message, f"{space}/{name}", pods, asks, workload.priority)

    def hold_kind(self, key: str, now: float) -> str:
        """Amounts change all the time: a wait for more or for less is the same wait."""
        hold = self.explain(key, now)
        return f"{hold.reason}: {_COUNTED.sub('#', hold.message)}"


class ClusterQuota:
    """The quota of a cluster, for the Admitter."""

    def __init__(self, queues: ClusterQueues) -> None:
        self.scheduler = ClusterScheduler(queues)
        self.version = 0
        """No decision of the store concerns it."""
        self.owners: Mapping[str, tuple[int, str]] = {}
        self.configured = True
        self.strict = True
        self._queues = queues

    def submit(self, workload: Workload, run: int, now: float) -> None:
        self.scheduler.submit(workload)

    def queue_for(self, name: str | None) -> tuple[str, str]:
        return self._queues.namespace, queue_named(name, self._queues.local_queues, self._queues.namespace) or (
            name or "default"
        )

    def priority_of(self, named: str | int | None) -> tuple[int, str | None]:
        if named is None or isinstance(named, int):
            return named or 0, None
        value = self._queues.priorities.get(named)
        return (0, None) if value is None else (value, named)

    def contended(self, key: str, own: int) -> bool:
        return self._queues.waiting(self.scheduler.workloads[key].queue) > own

    def holds_all(self, name: str | None) -> bool:
        return True

    def catch_up(self, now: float, number: int) -> set[str]:
        """No other engine decides about these."""
        return set()

    def written(self) -> dict[str, tuple[str, int, int, str, str, str]]:
        """They are in the cluster, and in no store."""
        self.scheduler.touched.clear()
        return {}

    def queue_use(self, at: int) -> Mapping[str, QueueUse]:
        return {}  # of a cluster its own monitoring has records

    counts_pods = True

    def placed(self, step: Step, planned: Step, key: str) -> Step:
        return self.scheduler.placed(step, planned, key)

    def ended(self, run: str) -> None:
        self.scheduler.ended(run)


def queue_named(name: str | None, local_queues: Mapping[str, str], namespace: str) -> str | None:
    """The LocalQueue that is meant by its own name or by that of its ClusterQueue; without a name, the only one. None: there is none, or there
    are several."""
    if name is None:
        return next(iter(local_queues)) if len(local_queues) == 1 else None
    own = name.removeprefix(f"{namespace}/")
    if own in local_queues:
        return own
    targets = [local for local, cluster in local_queues.items() if cluster == name]
    return targets[0] if len(targets) == 1 else None


def clear(queues: ClusterQueues, is_over: Callable[[str], bool]) -> None:
    """Delete what is left there of runs that are over: their engine ended before it could."""
    for run in queues.runs():
        if is_over(run):
            for name in queues.of_run(run):
                queues.drop(name)


def run_of(workload: Workload) -> str:
    """The id of its run."""
    return workload.name.partition("/")[0]


def injected(step: Step, more: PodInjection) -> Step:
    """A step whose pods are as the admission wants them."""
    if more.node_selector or more.tolerations:
        own = step.placement or Placement()
        tolerations = list(own.tolerations)
        for one in map(_toleration, more.tolerations):
            if one not in tolerations:
                tolerations.append(one)
        selector = {**own.node_selector, **more.node_selector}
        step = replace(step, placement=replace(own, node_selector=selector, tolerations=tuple(tolerations)))
    if more.labels or more.annotations:
        meta = part(step.extra, "metadata")
        changed = {
            **meta,
            "labels": {**part(meta, "labels"), **more.labels},
            "annotations": {**part(meta, "annotations"), **more.annotations},
        }
        step = replace(step, extra={**step.extra, "metadata": changed})
    return step


def _place(one: PodSet) -> tuple[Any, ...]:
    return dict(one.selector), one.affinity, one.tolerations


def _toleration(one: Mapping[str, Any]) -> Toleration:
    return Toleration(
        key=str(one.get("key") or ""),
        operator=str(one.get("operator") or "Equal"),
        value=str(one.get("value") or ""),
        effect=str(one.get("effect") or ""),
        seconds=one.get("tolerationSeconds"),
    )


def _document(workload: Workload, meta: Mapping[str, Any]) -> dict[str, Any]:
    """As it is created. Pod sets have names of the same form whatever the steps are called."""
    spec = document(workload)["spec"]
    sets = spec.get("podSets") or [
        {"name": "main", "count": 0, "template": {"spec": {"containers": [{"name": "main"}]}}}
    ]
    alone = len(sets) == 1
    shaped = []
    for number, one in enumerate(sets):
        pod = one["template"]["spec"]
        containers = [{**container, "image": "penstock/stage"} for container in pod["containers"]]
        template = {"spec": {**pod, "restartPolicy": "Never", "containers": containers}}
        shaped.append({**one, "name": "main" if alone else f"s{number}", "template": template})
    text = json.dumps([{**one, "count": 0, "minCount": 0} for one in shaped], sort_keys=True)
    notes = {**meta.get("annotations", {}), SHAPE: hashlib.sha256(text.encode()).hexdigest()[:16]}
    kept = {name: spec[name] for name in ("priority", "priorityClassRef") if name in spec}
    return {
        "metadata": {**meta, "annotations": notes},
        "spec": {"queueName": workload.queue, "podSets": shaped, **kept},
    }


def _eviction(seen: Object, now: float) -> Eviction:
    """Of what may not run any more."""
    evicted, preempted = condition(seen, "Evicted"), condition(seen, "Preempted")
    at = seconds(evicted.get("lastTransitionTime")) or now
    why = str(preempted.get("reason", "")) if preempted.get("status") == "True" else ""
    return Eviction(str(evicted.get("reason") or "Evicted"), at, why if evicted.get("reason") == "Preempted" else "")
