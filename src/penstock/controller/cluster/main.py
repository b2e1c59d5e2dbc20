"""The controller as a process: engines and core between the caches and the work queue. Called by `penstock controller run` and by tests.

`Controller` knows which object belongs to which workflow, gathers what is seen of one workflow, and answers the webhooks. It decides nothing itself.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.controller import names
from penstock.controller.admit import admit_pod, admit_workflow, unit_of
from penstock.controller.cluster.assume_cache import AssumeCache
from penstock.controller.cluster.metrics import Metrics
from penstock.controller.cluster.run import Key, Manager, ManagerSettings
from penstock.controller.core import Seen, reconcile
from penstock.controller.coverage import is_active
from penstock.controller.engine import Engine, Observed
from penstock.controller.install.webhooks import DECIDED_PATH, NAME, PODS_PATH, WORKFLOWS_PATH
from penstock.controller.known import engines
from penstock.controller.objects import (
    CLUSTER_QUEUES,
    FLAVORS,
    LOCAL_QUEUES,
    NAMESPACES,
    PODS,
    PRIORITIES,
    WORKLOADS,
    ApiResource,
    Note,
    Object,
    ReconcilePlan,
    holds,
    is_deleted,
    labels_of,
    name_of,
    namespace_of,
    part,
    rows,
    uid_of,
)
from penstock.controller.options import RunOptions
from penstock.errors import UserError
from penstock.kubernetes.cache import OUTLINE, Caches, Change
from penstock.kubernetes.client import Client
from penstock.kubernetes.kubeconfig import connect
from penstock.kubernetes.log import Log

DEEPEST = 10
"""Owners above owners that are followed."""
SERVICE = "penstock-webhooks"
ALWAYS = (WORKLOADS, LOCAL_QUEUES, CLUSTER_QUEUES, FLAVORS, PRIORITIES, NAMESPACES, PODS)


class Controller:
    """One set of engines on one cluster."""

    def __init__(
        self,
        engines: Sequence[Engine],
        clock: Callable[[], float] = time.time,
        leads: Callable[[], bool] = lambda: True,
        fresh: Callable[[], float] = lambda: math.inf,
        ask_leader: Callable[[str, Mapping[str, Any]], Mapping[str, Any] | None] = lambda path, request: None,
    ) -> None:
        """`fresh`: for how many seconds the watch of pods has told all. `ask_leader`: what the replica that leads says to a review; None: nothing."""
        self.engines = {one.name: one for one in engines}
        self.clock, self.leads, self.fresh, self.ask_leader = clock, leads, fresh, ask_leader
        self.main = {(one.api, one.kind): (engine, one) for engine in engines for one in engine.main}
        self.kinds = _unique(one for engine in engines for one in (*engine.main, *engine.children))
        library = _unique(one for engine in engines for one in engine.library)
        self.unheld = {engine.name: list(_unheld(engine)) for engine in engines}
        """Main objects with Kueue's label that do not have ours: the webhook has not seen them."""
        missed = [one for listed in self.unheld.values() for one in listed]
        self.caches = Caches(_unique((*ALWAYS, *self.kinds, *library, *missed)))
        self.assume_cache = AssumeCache(self.seen, clock, lambda: self.fresh())

    # which workflow

    def owner_of(self, obj: Object) -> Key | None:
        """The workflow that an object is, or belongs to: the nearest one upwards that waits in a queue by itself."""
        here: Object | None = obj
        for _ in range(DEEPEST):
            if here is None:
                return None
            engine = self._queued_by(here)
            if engine is not None:
                return engine.name, namespace_of(here), name_of(here)
            here = self._above(here)
        return None

    def _queued_by(self, obj: Object) -> Engine | None:
        known = self.main.get((str(obj.get("apiVersion")), str(obj.get("kind"))))
        return known[0] if known is not None and known[0].queued(obj) else None

    def _above(self, obj: Object) -> Object | None:
        for owner in rows(obj, "metadata", "ownerReferences"):
            for resource in self.kinds:
                if resource.kind == owner.get("kind") and resource.api.split("/")[0] == _group(owner):
                    found = self.caches.get(resource, namespace_of(obj), str(owner.get("name")))
                    if found is not None and uid_of(found) == owner.get("uid"):
                        return found
        return None

    def object_of(self, key: Key) -> Object | None:
        return self._first(key, (*self.engines[key[0]].main, *self.unheld[key[0]]))

    def _first(self, key: Key, resources: Iterable[ApiResource]) -> Object | None:
        _, namespace, name = key
        for resource in resources:
            found = self.caches.get(resource, namespace, name)
            if found is not None and self.owner_of(found) == key:
                return found
        return None

    # what is seen of it

    def seen(self, key: Key) -> Seen | None:
        """None: it is gone, or over and done with. Raises UserError where the unit is none."""
        main = self._first(key, self.engines[key[0]].main)
        if main is None or OUTLINE in main:
            return None
        engine = self.engines[key[0]]
        observed = Observed(main, self._below(main), self.caches, self.clock())
        return Seen(engine, observed, unit_of(main, self.caches), self.caches[WORKLOADS].of_workflow(uid_of(main)))

    def _below(self, main: Object) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        waiting, known = [uid_of(main)], {uid_of(main)}
        while waiting:
            uid = waiting.pop()
            for resource in (*self.kinds, PODS):
                for obj in self.caches[resource].owned_by(uid):
                    if uid_of(obj) in known or self._queued_by(obj) is not None:
                        continue  # one that waits by itself, with all that is below it, is no part of this one
                    known.add(uid_of(obj))
                    if resource != PODS:
                        waiting.append(uid_of(obj))
                    found.setdefault(str(obj.get("kind")), []).append(obj)
        return found

    # what follows

    def reconcile(self, key: Key) -> ReconcilePlan:
        try:
            plan = self.assume_cache.reconcile(key)
        except UserError as error:
            said = "; ".join(f"{one.code}: {one.message}. {one.fix}" for one in error.problems)
            return ReconcilePlan(notes=[Note("Refused", said, True)])
        if plan is not None and plan.over:
            self._shrink(key)
            return plan
        passed_by = self._passed_by(key)
        return (
            replace(plan or ReconcilePlan(), notes=[*(plan.notes if plan else ()), *passed_by])
            if passed_by
            else plan or ReconcilePlan()
        )

    def _shrink(self, key: Key) -> None:
        """Workflows stay in the cluster for long after their end, with all that they have made."""
        seen = self.seen(key)
        if seen is None or not reconcile(seen).over:
            return  # It is tried again meanwhile.
        for resource in (*self.kinds, PODS):
            for obj in seen.observed.of(resource.kind):
                if resource != PODS or not is_active(obj):
                    self.caches[resource].shrink(obj)
        for obj in seen.workloads:
            self.caches[WORKLOADS].shrink(obj)
        for resource in self.engines[key[0]].main:
            self.caches[resource].shrink(seen.observed.main)

    def _passed_by(self, key: Key) -> list[Note]:
        """The API server did not ask us about it when it was created: then nothing holds its pods. Those that we are asked about get our label, and name
        their unit."""
        main = self._first(key, self.unheld[key[0]])
        if main is None:
            main = self._first(key, self.engines[key[0]].main)
            if main is None or names.UNIT in labels_of(main):
                return []
        if OUTLINE in main or is_deleted(main) or _has_ended(main) or rows(main, "metadata", "ownerReferences"):
            return []
        said = "it was created without the webhook of Penstock, so Penstock does not hold its stages"
        fix = "Run `penstock controller check`, put right what it says, and create the workflow anew"
        return [Note("NotHeld", f"{said}. {fix}.", warning=True)]

    def noticed(self, change: Change, keys: Collection[Key]) -> None:
        """An object of these workflows, or of none, has changed."""
        if change.resource == PODS:
            pod = change.new or change.old or {}
            for key in keys:
                self.assume_cache.pod_changed(key, pod, lambda: self._now(pod))
            return
        for key in keys:
            self.assume_cache.changed(key)
        if change.resource in (LOCAL_QUEUES, CLUSTER_QUEUES, FLAVORS) and _spec(change.old) != _spec(change.new):
            self.assume_cache.queues_changed()

    def _now(self, pod: Object) -> Object | None:
        found = self.caches.get(PODS, namespace_of(pod), name_of(pod))
        return found if found is not None and uid_of(found) == uid_of(pod) else None

    # webhooks

    def webhooks(self) -> dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]]:
        return {WORKFLOWS_PATH: self.admit_workflow, PODS_PATH: self.admit_pod, DECIDED_PATH: self.decide_pod}

    def admit_workflow(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        kind = part(request, "kind")
        api = "/".join(str(kind.get(name)) for name in ("group", "version") if kind.get(name))
        known = self.main.get((api, str(kind.get("kind"))))
        return admit_workflow(request, known[0] if known else None, self.caches)

    def admit_pod(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """One replica decides, and the others ask it. Where it does not answer the pod keeps its gate until that one looks."""
        if self.leads():
            return self.decide_pod(request)
        return self.ask_leader(DECIDED_PATH, request) or admit_pod(request, None)[0]

    def decide_pod(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Here or nowhere: two replicas that take one another for the leader must not ask in a circle."""
        pod = {**part(request, "object")}
        pod["metadata"] = {"namespace": request.get("namespace"), **part(pod, "metadata")}
        key = self.owner_of({**pod, "apiVersion": "v1", "kind": "Pod"})
        if key is None or not self.leads():
            return admit_pod(request, None)[0]
        return self.assume_cache.admit(key, request)


def _spec(obj: Object | None) -> Object:
    return part(obj or {}, "spec")


def _unheld(engine: Engine) -> Iterator[ApiResource]:
    """Kinds whose objects are watched by our label, which only the webhook gives."""
    for one in engine.main:
        if one.selector == names.QUEUED:
            yield replace(one, selector=f"{names.QUEUE},!{names.QUEUED}")


def _has_ended(main: Object) -> bool:
    status = part(main, "status")
    ends = any(holds(main, kind) for kind in ("Succeeded", "Completed", "Failed"))
    return ends or bool(status.get("completionTime") or status.get("finishedAt"))


def _group(owner: Object) -> str:
    return str(owner.get("apiVersion") or "").split("/")[0]


def _unique(resources: Iterable[ApiResource]) -> list[ApiResource]:
    return list(dict.fromkeys(resources))


def manager(
    client: Client, settings: ManagerSettings, chosen: Sequence[Engine], log: Log, metrics: Metrics | None = None
) -> Manager:
    """A controller that is ready to run."""
    controller = Controller(chosen)
    found = Manager(
        client,
        settings,
        controller.caches,
        owner_of=controller.owner_of,
        reconcile=controller.reconcile,
        object_of=controller.object_of,
        noticed=controller.noticed,
        settled=controller.assume_cache.settled,
        trusted=(PODS, WORKLOADS),
        webhooks=controller.webhooks(),
        log=log,
        metrics=metrics,
    )
    controller.leads = lambda: found.leads
    controller.fresh = lambda: found.fresh(PODS)
    controller.ask_leader = found.ask_leader
    return found


def run(options: RunOptions) -> int:
    """The process. Out of the cluster it listens on this machine only."""
    chosen = engines(options.engines)
    files = [options.kubeconfig] if options.kubeconfig else []
    connection = connect(options.context, files)
    inside = connection.context == "in-cluster"
    host = "0.0.0.0" if inside else "127.0.0.1"
    settings = ManagerSettings(
        namespace=options.namespace,
        elect=options.leader_elect,
        webhook_host=host,
        webhook_port=options.webhook_port,
        health_host=host,
        health_port=options.metrics_port,
        hosts=(f"{SERVICE}.{options.namespace}.svc",) if inside else ("127.0.0.1", "localhost"),
        configurations=(NAME,),
    )
    log = Log(human=options.log == "text")
    with Client(connection) as client:
        version = client.server_version().get("gitVersion")
        log.info("connected", server=connection.server, kubernetes=version, engines=",".join(options.engines))
        return serve(manager(client, settings, chosen, log))


def serve(made: Manager) -> int:
    """Until a signal, or until another replica leads."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: made.stop())
    return 0 if made.run() else 1
