"""Manager: ties the shell together. Made and run by `penstock controller run`, which gives it what decides.

    watches -> caches -> keys in the work queue -> reconcile(key) -> writes, Events

It waits until every cache is filled, then looks at every key. Only the leader reconciles; every replica serves the webhooks, from its own caches. `run`
returns when `stop` was called, or when the leadership is lost: then the process must end, because writes of ours may still be on their way.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock.controller.cluster.ask import Leader
from penstock.controller.cluster.certificates import CertificateManager, Lifetimes, Material
from penstock.controller.cluster.events import Recorder
from penstock.controller.cluster.leader import Elector, Terms
from penstock.controller.cluster.metrics import Metrics
from penstock.controller.cluster.server import Handler, health_server, tls_context, webhook_server
from penstock.controller.cluster.workqueue import Schedule, WorkQueue
from penstock.controller.cluster.writer import WriteOutcome, Writer
from penstock.controller.names import MANAGER
from penstock.controller.objects import ApiResource, Note, Object, ReconcilePlan, Write, name_of, namespace_of
from penstock.errors import UserError
from penstock.kubernetes.cache import Caches, Change
from penstock.kubernetes.client import ApiError, Client
from penstock.kubernetes.log import Log
from penstock.kubernetes.watch import Watcher

Key = tuple[str, str, str]
"""Engine, namespace, name."""


POSTPONED = 1.0
"""Seconds until a workflow is looked at again that could not be seen as it is."""
FAULTS_EVERY = 60.0
KEPT_FAULTS = 1_000


def default_identity() -> str:
    """Another one in each process: a pod that is started anew must not take the lease of its former self for its own."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4()}"


@dataclass(frozen=True)
class ManagerSettings:
    namespace: str = "penstock-system"
    """Where the Lease and the Secret are."""
    identity: str = field(default_factory=default_identity)
    elect: bool = True
    """Two replicas need it; without it this process always acts."""
    lease: str = MANAGER
    address: str = field(default_factory=lambda: os.environ.get("POD_IP", ""))
    """Where the other replicas reach the webhooks of this one, without the port. Empty: they do not; pods that they are asked about keep their gate."""
    terms: Terms = field(default_factory=Terms)
    workers: int = 4
    webhook_host: str = "0.0.0.0"
    webhook_port: int = 9443
    """0: any that is free."""
    health_host: str = "0.0.0.0"
    health_port: int = 8080
    secret: str = "penstock-webhooks"
    hosts: Sequence[str] = ("penstock-webhooks.penstock-system.svc",)
    """The names in the certificate: under which the API server calls."""
    configurations: Sequence[str] = ()
    """The webhook configurations that get the CA."""
    lifetimes: Lifetimes = field(default_factory=Lifetimes)
    certificates_every: float = 60.0
    """Seconds between two looks at the certificates."""
    handover: float = 2.5
    """Seconds from the last answer about a pod to the lease being given back: the API server waits 2 for an answer, and then stores the pod."""
    linger: float = 5.0
    """Seconds for which webhooks are still answered after `stop`: until the API servers know that they are to ask another replica."""
    watch_seconds: int = 300
    absent: float = 30.0
    """Seconds after which a kind that the cluster does not have is asked for again."""


class Manager:
    def __init__(
        self,
        client: Client,
        settings: ManagerSettings,
        caches: Caches,
        *,
        owner_of: Callable[[Object], Key | None],
        reconcile: Callable[[Key], ReconcilePlan],
        object_of: Callable[[Key], Object | None],
        noticed: Callable[[Change, Collection[Key]], None] = lambda change, keys: None,
        settled: Callable[[Key], None] = lambda key: None,
        trusted: Collection[ApiResource] = (),
        webhooks: Mapping[str, Handler] | None = None,
        log: Log | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """`noticed` hears of each change in the caches, `settled` when the writes for a workflow are in them. While the watch of one of `trusted` is
        broken nothing is decided."""
        self.caches = caches
        self.metrics = metrics or Metrics()
        self._client = client
        self._settings = settings
        self._owner_of, self._reconcile, self._object_of = owner_of, reconcile, object_of
        self._noticed, self._settled = noticed, settled
        self._webhooks = dict(webhooks or {})
        self._log = log or Log()
        self._queue: WorkQueue[Key] = WorkQueue(Schedule(group=lambda key: key[1]))
        self._acting = False
        self._stop = threading.Event()
        self._watchers = [
            Watcher(client, cache, self.changed, self._log, seconds=settings.watch_seconds, absent=settings.absent)
            for cache in caches
        ]
        self._trusted = [watcher for watcher in self._watchers if watcher.cache.resource in trusted]
        self._recorder = Recorder(client, settings.identity, self._log, self.metrics)
        self._writer = Writer(client, caches, self.changed, self._leads, self.metrics)
        self._keeper = CertificateManager(
            client,
            settings.namespace,
            settings.secret,
            settings.hosts,
            settings.configurations,
            self._log,
            life=settings.lifetimes,
        )
        self._unsure: dict[Key, Write] = {}
        """Writes without an answer: they are looked up before anything else is decided. A pod that was let go must not be taken for one that waits."""
        self._faults: OrderedDict[Key, float] = OrderedDict()
        """When an Event last told that a workflow cannot be handled."""
        self._threads: list[threading.Thread] = []
        self._beginning = threading.Lock()
        self._material: Material | None = None
        pages = {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics_page}
        self._health = health_server(settings.health_host, settings.health_port, pages, self._log)
        self._served = webhook_server(
            settings.webhook_host, settings.webhook_port, self._webhooks, self._log, self.metrics
        )
        self._elector = _candidate(client, settings, self._served.port, self._log)
        self._leader = Leader(lambda: self._elector.leader, settings.hosts[0], self._log, self.metrics)
        self._measure()

    @property
    def health_port(self) -> int:
        return self._health.port

    @property
    def webhook_port(self) -> int:
        return self._served.port

    @property
    def leads(self) -> bool:
        return self._acting and self._leads()

    @property
    def synced(self) -> bool:
        return all(watcher.synced for watcher in self._watchers)

    def idle(self) -> bool:
        """Is nothing waiting or being handled? What is due later does not count."""
        return self._queue.idle()

    def add(self, key: Key, after: float = 0) -> None:
        """Has a workflow looked at."""
        if not self._acting:
            return  # when we begin to act, every key is looked at
        if after > 0:
            self._queue.add_after(key, after)
        else:
            self._queue.add(key)

    def changed(self, change: Change) -> None:
        """An object in the caches has changed. One that cannot be understood must not stop the watch of all the others."""
        found = dict.fromkeys(self._key_of(obj) for obj in (change.old, change.new) if obj is not None)
        keys = [key for key in found if key is not None]
        try:
            self._noticed(change, keys)
        except Exception as error:
            self._log.error("change not taken", kind=change.resource.kind, error=error)
        for key in keys:
            self.add(key)

    def _key_of(self, obj: Object) -> Key | None:
        try:
            return self._owner_of(obj)
        except Exception as error:
            what = f"{namespace_of(obj)}/{name_of(obj)}"
            self._log.error("object not understood", kind=obj.get("kind"), object=what, error=error)
            return None

    def fresh(self, resource: ApiResource) -> float:
        """Seconds for which the watch of this kind has told all."""
        return min((one.good_for() for one in self._watchers if one.cache.resource == resource), default=0.0)

    def ask_leader(self, path: str, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What the replica that leads says to a review at one of its webhooks. None: nothing, or not in time."""
        return self._leader.ask(path, request)

    def stop(self) -> None:
        """Has `run` return. May be called by a signal handler."""
        self._stop.set()

    # -- running

    def run(self) -> bool:
        """Blocks. True: `stop` was called. False: the leadership is lost, and the process must end."""
        try:
            self._health.start()
            self._recorder.start()
            for watcher in self._watchers:
                watcher.start()
            if self._webhooks:
                self._serve()
            while not self.synced:
                if self._stop.wait(0.02):
                    return True
            self._log.info("caches filled", objects=sum(len(cache) for cache in self.caches))
            return self._act()
        finally:
            self._shut_down()

    def _act(self) -> bool:
        if not self._settings.elect:
            self._begin()
            self._stop.wait()
            return True
        ended = threading.Event()

        def elect() -> None:
            try:
                self._elector.run(self._begin)
            finally:
                ended.set()
                self._stop.set()

        thread = threading.Thread(target=elect, name="leader", daemon=True)
        thread.start()
        self._stop.wait()
        return not ended.is_set()

    def _begin(self) -> None:
        """From now on we act. The thread of the election calls it, perhaps while another one ends everything."""
        with self._beginning:
            if self._stop.is_set():
                return
            self._acting = True
            keys = {self._key_of(obj): None for cache in self.caches for obj in cache.list()}
            for key in keys:
                if key is not None:
                    self._queue.add(key)
            for number in range(self._settings.workers):
                thread = threading.Thread(target=self._work, name=f"worker-{number}", daemon=True)
                thread.start()
                self._threads.append(thread)

    def _leads(self) -> bool:
        return not self._stop.is_set() and (not self._settings.elect or self._elector.leads)

    def _shut_down(self) -> None:
        """What acts first; then the lease, so that another may act; what serves last."""
        self._stop.set()
        self._queue.close()
        deadline = time.monotonic() + 20
        with self._beginning:  # so it has begun, or never will
            begun = list(self._threads)
        for thread in begun:
            thread.join(max(0.0, deadline - time.monotonic()))
        acted, self._acting = self._acting, False
        self._elector.stop()
        if acted and self._settings.elect and self._material is not None:
            # A pod that the webhook has let go may not be stored yet. Who leads next must see it.
            time.sleep(self._settings.handover)
        if not any(thread.is_alive() for thread in self._threads):
            self._elector.release()
        self._recorder.stop()
        if self._material is not None:
            time.sleep(self._settings.linger)
        for watcher in self._watchers:
            watcher.stop()
        self._served.stop()
        self._leader.close()
        self._health.stop()
        for watcher in self._watchers:
            watcher.join(5)
        self._log.info("stopped")

    # -- workers

    def _work(self) -> None:
        while (key := self._queue.take()) is not None:
            began = time.perf_counter()
            outcome, again = "error", None
            try:
                outcome, again = self._handle(key)
            except Exception as error:
                # One workflow that cannot be handled must not hold up the others.
                self._log.error("reconcile failed", workflow=f"{key[1]}/{key[2]}", engine=key[0], error=error)
                self._tell_fault(key, error)
            finally:
                self._queue.done(key, failed=outcome not in ("done", "postponed"), again=again)
            self.metrics.reconciles.labels(outcome).inc()
            self.metrics.reconcile_seconds.observe(time.perf_counter() - began)

    def _handle(self, key: Key) -> tuple[str, float | None]:
        log = self._log.bind(workflow=f"{key[1]}/{key[2]}", engine=key[0])
        if any(watcher.problem for watcher in self._trusted):
            return "postponed", POSTPONED
        unsure = self._unsure.get(key)
        if unsure is not None:
            if not self._writer.look(unsure):
                return "error", None
            del self._unsure[key]
        plan = self._reconcile(key)
        if plan.doubts:
            if not all(map(self._writer.look, plan.doubts)):
                return "error", None
            plan = self._reconcile(key)
        self.metrics.seen(key, plan.stages)
        outcome = self._writer.send(plan.writes, log)
        if outcome.unsure is not None:
            self._unsure[key] = outcome.unsure
        else:
            self._settled(key)
        if plan.fault is not None:
            raise plan.fault
        if self._leads():
            self._tell(key, [*plan.notes, *outcome.refused])
        waits = [wait for wait in (plan.again, outcome.again) if wait is not None]
        return outcome.word, _next(outcome, waits)

    def _tell_fault(self, key: Key, error: Exception) -> None:
        """With an Event on the object, once a minute at most."""
        now = time.monotonic()
        if now - self._faults.get(key, -math.inf) < FAULTS_EVERY:
            return
        self._faults.pop(key, None)
        self._faults[key] = now
        if len(self._faults) > KEPT_FAULTS:
            self._faults.popitem(last=False)
        said = f"Penstock cannot handle this workflow: {type(error).__name__}: {str(error)[:200]}. Nothing of it is let go; others go on"
        fix = f"The log of the controller says where (kubectl logs -n {self._settings.namespace} deploy/{MANAGER}). Report it with this object, or delete the workflow"
        try:
            self._tell(key, [Note("Refused", f"{said}. {fix}.", warning=True)])
        except Exception as another:
            self._log.error("event not sent", workflow=f"{key[1]}/{key[2]}", engine=key[0], error=another)

    def _tell(self, key: Key, notes: Sequence[Note]) -> None:
        obj = self._object_of(key)
        if obj is not None:
            self._recorder.record(key, obj, notes)

    # -- webhooks

    def _serve(self) -> None:
        self._look_at_certificates()
        thread = threading.Thread(target=self._keep_certificates, name="certificates", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _keep_certificates(self) -> None:
        while not self._stop.wait(self._settings.certificates_every if self._material else 1.0):
            self._look_at_certificates()

    def _look_at_certificates(self) -> None:
        try:
            material = self._keeper.look()
        except (ApiError, UserError) as error:
            self._log.warning("webhook certificate not looked at", problem=str(error))
            return
        except Exception as error:
            self._log.error("webhook certificate not looked at", error=error)
            return
        if material != self._material:
            self._leader.trust(material.ca)
            self._served.use(tls_context(material))
            if self._material is None:
                self._served.start()
            self._material = material

    # -- health

    def _healthz(self) -> tuple[int, str, bytes]:
        dead = [watcher.cache.resource.kind for watcher in self._watchers if not watcher.alive()]
        if dead and not self._stop.is_set():
            return 500, "text/plain", f"threads that ended: {', '.join(dead)}\n".encode()
        return 200, "text/plain", b"ok\n"

    def _readyz(self) -> tuple[int, str, bytes]:
        missing = [
            f"{watcher.cache.resource.plural}: {watcher.problem or 'not listed yet'}"
            for watcher in self._watchers
            if not watcher.synced
        ]
        if self._webhooks and self._material is None:
            missing.append("the webhook certificate is not made yet")
        if missing or self._stop.is_set():
            return 503, "text/plain", ("\n".join(missing or ["stopping"]) + "\n").encode()
        return 200, "text/plain", b"ok\n"

    def _metrics_page(self) -> tuple[int, str, bytes]:
        return 200, "text/plain; version=0.0.4; charset=utf-8", self.metrics.text()

    def _measure(self) -> None:
        self.metrics.queue_depth.set_function(self._queue.depth)
        self.metrics.queue_entries.set_function(self._queue.remembered)
        self.metrics.leader.set_function(lambda: float(self.leads))
        by_kind: dict[str, list[Watcher]] = {}
        for watcher in self._watchers:
            by_kind.setdefault(watcher.cache.resource.kind, []).append(watcher)
        for kind, some in by_kind.items():
            self.metrics.cached.labels(kind).set_function(partial(_sum, some, lambda one: len(one.cache)))
            self.metrics.lists.labels(kind).set_function(partial(_sum, some, lambda one: one.lists))


def _candidate(client: Client, settings: ManagerSettings, port: int, log: Log) -> Elector:
    host = f"[{settings.address}]" if ":" in settings.address else settings.address
    address = f"{host}:{port}" if host else ""
    where = settings.namespace, settings.lease, settings.identity
    return Elector(client, *where, log, address=address, terms=settings.terms)


def _sum(watchers: Sequence[Watcher], figure: Callable[[Watcher], int]) -> float:
    return float(sum(map(figure, watchers)))


def _next(outcome: WriteOutcome, waits: Sequence[float]) -> float | None:
    """When to look again. A write that is refused must not be sent without a pause, nor hold up what the rest of the workflow waits for."""
    if not waits or outcome.word not in ("done", "refused"):
        return None
    return min(waits) if outcome.ok else max(1.0, min(waits))
