"""The queues of the cluster's Kueue, and this store's Workloads there: found, watched, and written by threads of their own until they are
as the engine wants them. Made by the registry for an engine; asked by `engine.cluster_quota`, in the engine's thread, which never waits here.
"""

from __future__ import annotations

import hashlib
import heapq
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Final

from penstock.backends.kubernetes import names
from penstock.backends.kubernetes.cluster import JOBS, client_of, lacking, namespace_of, unreachable
from penstock.backends.kubernetes.options import KubernetesOptions
from penstock.errors import Problem, UserError
from penstock.kubernetes.cache import Change, ObjectCache
from penstock.kubernetes.client import ApiError, Client
from penstock.kubernetes.log import Log
from penstock.kubernetes.objects import (
    ApiResource,
    Object,
    Write,
    annotations_of,
    is_deleted,
    labels_of,
    name_of,
    part,
)
from penstock.kubernetes.watch import Watcher
from penstock.kueue import status
from penstock.kueue.kinds import API, FLAVORS, LOCAL_QUEUES, PRIORITIES, WORKLOADS
from penstock.kueue.wanted import ENGINE, RESERVATION, DesiredWorkload, next_write
from penstock.kueue.wanted import flavors as flavors_of

WRITERS: Final = 4
"""Requests at the same time."""
PAUSES: Final = (0.05, 15.0)
"""Seconds before a write that failed is tried again: doubled each time, up to the last."""
REFUSED: Final = 10.0
"""Seconds before a write that was refused is tried again."""
FLUSH: Final = 15.0
"""Seconds for which the end of an engine waits for what it deletes."""
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
_FLAVOR: Final = "flavor "
"""Before the name of a flavor among what is due. No object has a name with a space."""
_RIGHTS: Final = (
    ("kueue.x-k8s.io", "localqueues", "", ("list", "watch")),
    ("kueue.x-k8s.io", "workloads", "", ("create", "get", "list", "watch", "patch", "delete")),
    ("kueue.x-k8s.io", "workloads", "status", ("patch",)),
)
_CLUSTER_RIGHTS: Final = (("kueue.x-k8s.io", "resourceflavors", "", ("get",)),)
_GROUP_FIX: Final = (
    "ask whoever runs the cluster for these rights; PENSTOCK_KUBERNETES_KUEUE=off runs without Kueue's queues"
)


def is_there(client: Client) -> bool:
    """Has the cluster a Kueue? Raises UserError."""
    try:
        served = client.raw("GET", f"/apis/{API}")
    except ApiError as error:
        if error.code in (403, 404):
            return False
        raise unreachable(client, error) from None
    found = served.get("resources") if isinstance(served, Mapping) else None
    return any(one.get("name") == "workloads" for one in found or ())


def queues_in(client: Client, namespace: str) -> dict[str, str]:
    """LocalQueue -> ClusterQueue; none if the cluster has no Kueue, or the namespace no queue. Raises UserError."""
    if not is_there(client):
        return {}
    missing = lacking(client, namespace, _RIGHTS[:1])
    if missing:
        raise _no_rights(namespace, missing, client)
    try:
        found = client.list(LOCAL_QUEUES, namespace).items
    except ApiError as error:
        raise unreachable(client, error) from None
    if not found:
        return {}
    missing = lacking(client, namespace, _RIGHTS[1:]) + lacking(client, "", _CLUSTER_RIGHTS)
    if missing:
        raise _no_rights(namespace, missing, client)
    return {name_of(one): str(part(one, "spec").get("clusterQueue", "")) for one in found}


def _no_rights(namespace: str, missing: list[str], client: Client) -> UserError:
    message = f"Kueue decides in the namespace {namespace}, and you may not {', '.join(missing)}"
    return UserError(Problem("P898", message, _GROUP_FIX, client.connection.context))


def holds_every_job(client: Client, namespace: str) -> bool:
    """Does Kueue queue each Job here by itself, whatever it says? A Job that is not kept tells. Raises UserError."""
    container = {"name": "main", "image": "penstock/probe"}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {
        "apiVersion": JOBS.api,
        "kind": JOBS.kind,
        "metadata": {"generateName": "penstock-probe-", "namespace": namespace},
        "spec": {"template": {"spec": pod}},
    }
    try:
        made = client.raw("POST", JOBS.path(namespace), job, params={"dryRun": "All"})
    except ApiError as error:
        if error.code in (
            400,
            403,
            409,
            422,
        ):  # a quota or a policy has something against it; that is said of the tasks' own
            return False
        raise unreachable(client, error) from None
    return QUEUE_LABEL in labels_of(made) or bool(part(made, "spec").get("suspend"))


def connect(options: KubernetesOptions, environ: Mapping[str, str], owner: str, engine: str) -> Queues | None:
    """None: there are no queues that could decide. Raises UserError."""
    if not options.kueue:
        return None
    client = client_of(options, environ)
    try:
        namespace = namespace_of(options, client)
        if not queues_in(client, namespace) or holds_every_job(client, namespace):
            client.close()
            return None
        return Queues(client, namespace, owner, engine)
    except ApiError as error:
        client.close()
        raise unreachable(client, error) from None
    except BaseException:
        client.close()
        raise


class Queues:
    """ClusterQueues of the engine. Raises ApiError when it is made."""

    def __init__(self, client: Client, namespace: str, owner: str, engine: str) -> None:
        self.namespace = namespace
        self._client = client
        self._owner = owner
        self._engine = engine
        selector = f"{names.STORE}={owner}"
        self._workloads = ObjectCache(ApiResource(WORKLOADS.api, WORKLOADS.kind, WORKLOADS.plural, selector=selector))
        self._local_queues = ObjectCache(LOCAL_QUEUES)
        self._nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        log = Log(self._nowhere, human=False)  # what matters of it is the reason of a wait
        self._watchers = [
            Watcher(client, cache, self._take, log, namespace=namespace)
            for cache in (self._workloads, self._local_queues)
        ]
        self.priorities = self._classes()
        for cache in (self._workloads, self._local_queues):  # an engine that goes on with a run sees what there is
            listing = client.list(cache.resource, namespace, keep=cache.slim)
            cache.replace(listing.items, listing.version)
        self._changed: Callable[[], None] = lambda: None
        self._state = threading.Condition()
        self._wanted: dict[str, DesiredWorkload] = {}
        self._dropped: set[str] = set()
        self._mine: set[str] = set()
        """Workloads that were seen to be followed by this engine. One that another has taken over is not taken back."""
        self._news: set[str] = set()
        self._problems: dict[str, str] = {}
        self._failures: dict[str, int] = {}
        self._sent: dict[str, float] = {}
        self._flavors: dict[str, Object] = {}
        self._lacking: dict[str, str] = {}
        """Flavors that are not known: why not, if they were asked for."""
        self._due: list[tuple[float, int, str]] = []
        self._busy: set[str] = set()
        self._numbers = count()
        self._over = False
        self._threads = [
            threading.Thread(target=self._work, name="penstock-kueue", daemon=True) for _ in range(WRITERS)
        ]

    def _classes(self) -> dict[str, int]:
        try:
            found = self._client.list(PRIORITIES, "").items
        except ApiError as error:
            if error.code in (403, 404):
                return {}
            raise
        return {name_of(one): int(one.get("value") or 0) for one in found}

    def start(self, changed: Callable[[], None]) -> None:
        """`changed` is called in other threads when Kueue has decided something."""
        self._changed = changed
        for watcher in self._watchers:
            watcher.start()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Deletes what this engine still has in the queues."""
        with self._state:
            mine = [name_of(one) for one in self._workloads.list() if annotations_of(one).get(ENGINE) == self._engine]
            left = {*self._wanted, *self._dropped, *mine}
            self._wanted.clear()
            for name in left:
                self._plan(name)
            deadline = time.monotonic() + FLUSH
            while any(self._is_live(name) for name in left) and time.monotonic() < deadline:
                self._state.wait(0.2)
            self._over = True
            self._state.notify_all()
        for watcher in self._watchers:
            watcher.stop()
        for watcher in self._watchers:
            watcher.join(5.0)
        for thread in self._threads:
            thread.join(5.0)
        self._nowhere.close()
        self._client.close()

    def _is_live(self, name: str) -> bool:
        seen = self._workloads.get(self.namespace, name)
        return (seen is not None and not is_deleted(seen)) or name in self._busy

    # -- what the engine asks -------------------------------------------------------------------------------------------

    @property
    def local_queues(self) -> Mapping[str, str]:
        found = self._local_queues.list(self.namespace)
        return {name_of(one): str(part(one, "spec").get("clusterQueue", "")) for one in found}

    def waiting(self, queue: str) -> int:
        found = self._local_queues.get(self.namespace, queue)
        return 0 if found is None else int(part(found, "status").get("pendingWorkloads") or 0)

    def metadata(self, key: str, run: str) -> dict[str, Any]:
        digest = hashlib.sha256(f"{self._owner}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
        said = key.removeprefix(f"{self.namespace}/").lower()
        readable = re.sub(r"[^a-z0-9]+", "-", said).strip("-")[:30].strip("-")
        return {
            "name": f"penstock-{readable or 'run'}-{digest}",
            "namespace": self.namespace,
            "labels": {
                names.MANAGED_BY: "penstock",
                names.STORE: self._owner,
                names.RUN: names.label(run),
            },
            "annotations": {names.RUN: run, RESERVATION: key.removeprefix(f"{self.namespace}/")},
        }

    def seen(self, name: str) -> Object | None:
        return self._workloads.get(self.namespace, name)

    def follows(self, name: str) -> bool:
        seen = self.seen(name)
        return seen is not None and annotations_of(seen).get(ENGINE) == self._engine

    def of_run(self, run: str) -> Collection[str]:
        return [name_of(one) for one in self._workloads.list() if annotations_of(one).get(names.RUN) == run]

    def runs(self) -> Collection[str]:
        """Of all Workloads of the store."""
        return {str(annotations_of(one).get(names.RUN, "")) for one in self._workloads.list()}

    def news(self) -> Collection[str]:
        with self._state:
            found, self._news = self._news, set()
            return found

    def problem(self, name: str) -> str:
        with self._state:
            said = self._problems.get(name, "")
            lacking = dict(self._lacking)
        seen = self.seen(name) if lacking and not said else None
        named = () if seen is None else {one for flavors in flavors_of(seen) for one in flavors.values()}
        return said or next((lacking[one] for one in named if lacking.get(one)), "")

    def flavors(self, names: Iterable[str]) -> Mapping[str, Object] | None:
        wanted = set(names)
        with self._state:
            missing = wanted - self._flavors.keys()
            for one in missing:
                if one not in self._lacking:
                    self._lacking[one] = ""
                    self._plan(_FLAVOR + one)
            return None if missing else {one: self._flavors[one] for one in wanted}

    def want(self, name: str, wanted: DesiredWorkload | None) -> None:
        with self._state:
            if wanted is None:
                self._wanted.pop(name, None)
                self._mine.discard(name)
            else:
                self._wanted[name] = wanted
                self._dropped.discard(name)
            self._plan(name)

    def drop(self, name: str) -> None:
        with self._state:
            self._wanted.pop(name, None)
            self._dropped.add(name)
            self._plan(name)

    # -- the watches ----------------------------------------------------------------------------------------------------

    def _take(self, change: Change) -> None:
        obj = change.new if change.new is not None else change.old
        if obj is None or change.resource.kind != "Workload":
            return
        with self._state:
            self._news.add(name_of(obj))
            self._plan(name_of(obj))
        self._changed()

    # -- the writers ----------------------------------------------------------------------------------------------------

    def _plan(self, name: str, seconds: float = 0.0) -> None:
        """With the lock held."""
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), name))
        self._state.notify_all()

    def _work(self) -> None:
        while True:
            with self._state:
                name = self._next()
            if name is None:
                return
            again: float | None = REFUSED
            try:
                again = self._fetch(name[len(_FLAVOR) :]) if name.startswith(_FLAVOR) else self._step(name)
            except UserError as error:  # a login plugin
                self._say(name, str(error))
            finally:
                with self._state:
                    self._busy.discard(name)
                    if again is not None:
                        self._plan(name, again)
                    self._state.notify_all()

    def _next(self) -> str | None:
        """What is due; waits for it. None: it is over."""
        while not self._over:
            now = time.monotonic()
            if self._due and self._due[0][0] <= now:
                _, _, name = heapq.heappop(self._due)
                if name not in self._busy:
                    self._busy.add(name)
                    return name
                self._plan(name, PAUSES[0])
                continue
            self._state.wait(min(1.0, self._due[0][0] - now) if self._due else 1.0)
        return None

    def _step(self, name: str) -> float | None:
        """One write for a Workload. Seconds after which it is looked at again; None: when something changes."""
        seen = self._workloads.get(self.namespace, name)
        with self._state:
            wanted, dropped = self._wanted.get(name), name in self._dropped
            if seen is not None and annotations_of(seen).get(ENGINE) == self._engine:
                self._mine.add(name)
            elif wanted is not None and seen is not None and name in self._mine:
                wanted = None  # another engine has taken it over, and its run
            if dropped and wanted is None and (seen is None or is_deleted(seen)):
                self._dropped.discard(name)
        if dropped and wanted is None and seen is not None and not is_deleted(seen):
            write: Write | None = status.delete(seen, "nobody goes on with it")
        else:
            write = next_write(wanted, seen, self._engine, time.time())
        if write is None:
            self._say(name, "")
            return None
        if write.every:
            left = self._sent.get(name, 0.0) + write.every - time.monotonic()
            if left > 0:
                return left
            self._sent[name] = time.monotonic()
        try:
            answer = self._client.write(write)
        except ApiError as error:
            return self._failed(name, error)
        if write.verb != "delete" or answer.get("kind") == "Workload":
            self._workloads.put(answer)
        elif seen is not None:
            self._workloads.remove({**seen, "metadata": {**part(seen, "metadata"), "resourceVersion": ""}})
        self._failures.pop(name, None)
        self._say(name, "")
        self._tell(name)
        return 0.0

    def _tell(self, name: str) -> None:
        """What a writer has seen, the watch does not tell again."""
        with self._state:
            self._news.add(name)
        self._changed()

    def _failed(self, name: str, error: ApiError) -> float:
        tries = self._failures[name] = self._failures.get(name, 0) + 1
        pause = min(PAUSES[1], PAUSES[0] * 2.0 ** min(tries, 20))
        if error.code in (404, 409):  # it is not as it was seen
            with suppress(ApiError):
                found = self._client.found(WORKLOADS, self.namespace, name)
                old = self._workloads.get(self.namespace, name)
                if found is not None:
                    self._workloads.put(found)
                elif old is not None:
                    self._workloads.remove({**old, "metadata": {**part(old, "metadata"), "resourceVersion": ""}})
                if error.code == 409 or found is not None or old is not None:
                    self._tell(name)
                    return pause
        away = error.unreachable or error.code >= 500 or error.code == 429
        self._say(name, f"the cluster {'does not answer' if away else 'refuses the Workload'}: {error.message}")
        return pause if away else REFUSED

    def _say(self, name: str, problem: str) -> None:
        with self._state:
            if self._problems.get(name, "") == problem:
                return
            if problem:
                self._problems[name] = problem
            else:
                del self._problems[name]
        self._changed()

    def _fetch(self, flavor: str) -> float | None:
        try:
            found = self._client.get(FLAVORS, "", flavor)
        except ApiError as error:
            with self._state:
                self._lacking[flavor] = f"its flavor {flavor} cannot be read: {error.message}"
            self._changed()
            return REFUSED
        with self._state:
            self._flavors[flavor] = found
            self._lacking.pop(flavor, None)
            self._news.update(self._wanted)
        self._changed()
        return None
