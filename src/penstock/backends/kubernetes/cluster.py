"""The cluster of an engine: one watch of its Jobs and one of their pods, and the few writes that attempts need. Made by backend, used by
attempt. Its methods block: they are called in threads.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from penstock.backends.kubernetes import names
from penstock.backends.kubernetes.options import KubernetesOptions
from penstock.errors import Problem, UserError
from penstock.kubernetes.cache import Change, ObjectCache
from penstock.kubernetes.client import ApiError, Client, LogStream
from penstock.kubernetes.kubeconfig import connect
from penstock.kubernetes.log import Log
from penstock.kubernetes.objects import ApiResource, Object, annotations_of, is_deleted, labels_of, part, rows, uid_of
from penstock.kubernetes.watch import Watcher

JOBS: Final = ApiResource("batch/v1", "Job", "jobs")
PODS: Final = ApiResource("v1", "Pod", "pods")
SECRETS: Final = ApiResource("v1", "Secret", "secrets")
NAMESPACES: Final = ApiResource("v1", "Namespace", "namespaces", namespaced=False)
SERVICES: Final = ApiResource("v1", "Service", "services")
EVENTS: Final = ApiResource("v1", "Event", "events")
REVIEWS: Final = ApiResource(
    "authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)
RIGHTS: Final = (
    ("batch", "jobs", "", ("create", "get", "list", "watch", "patch", "delete")),
    ("", "pods", "", ("get", "list", "watch", "delete")),
    ("", "pods", "log", ("get",)),
    ("", "events", "", ("list",)),
)
"""What the backend does, but for Secrets, which only steps with secrets need, and Services, which only gangs need."""
EVERY: Final = 2.0
"""Seconds between two looks at why pods are not made."""
SHOWN: Final = 60.0
"""Seconds within which the watches show what there is."""
GONE: Final = 120.0
"""Seconds for which an object that is being deleted is waited for."""


def client_of(options: KubernetesOptions, environ: Mapping[str, str]) -> Client:
    """Raises UserError."""
    try:
        import httpx2  # noqa: F401
    except ImportError:
        fix = "pip install 'penstock[kubernetes]'"
        raise UserError(Problem("P729", "the backend kubernetes needs the package httpx2", fix)) from None
    connection = connect(options.context, env=environ)
    return Client(connection, agent="penstock-engine")


def namespace_of(options: KubernetesOptions, client: Client) -> str:
    return options.namespace or client.namespace


def check(client: Client, namespace: str) -> None:
    """Does the cluster answer, and may we do what the backend does? Raises UserError."""
    try:
        _check_namespace(client, namespace)
    except ApiError as error:
        raise unreachable(client, error) from None
    missing = lacking(client, namespace, RIGHTS)
    if missing:
        fix = "ask whoever runs the cluster for a role with these rights, or name another namespace: PENSTOCK_KUBERNETES_NAMESPACE"
        message = f"in the namespace {namespace} you may not {', '.join(missing)}"
        raise UserError(Problem("P721", message, fix, client.connection.context))


def lacking(client: Client, namespace: str, rights: Sequence[tuple[str, str, str, Sequence[str]]]) -> list[str]:
    """Which of these we do not have. `namespace`: empty for rights on the whole cluster. Raises UserError."""
    wanted = [
        {"namespace": namespace, "verb": verb, "group": group, "resource": resource, "subresource": sub}
        for group, resource, sub, verbs in rights
        for verb in verbs
    ]

    def may(one: Mapping[str, str]) -> bool:
        asked = {"metadata": {}, "spec": {"resourceAttributes": one}}
        return bool(part(client.create(REVIEWS, "", asked), "status").get("allowed"))

    try:
        with ThreadPoolExecutor(8, "penstock-rights") as threads:
            allowed = list(threads.map(may, wanted))
    except ApiError as error:
        raise unreachable(client, error) from None
    return [
        f"{one['verb']} {one['resource']}{'/' + one['subresource'] if one['subresource'] else ''}"
        for one, is_allowed in zip(wanted, allowed, strict=True)
        if not is_allowed
    ]


def _check_namespace(client: Client, namespace: str) -> None:
    """Who may not look at namespaces hears of one that is missing when the first Job is made."""
    try:
        there = client.found(NAMESPACES, "", namespace) is not None
    except ApiError as error:
        if error.code != 403:
            raise
        return
    if not there:
        raise no_namespace(namespace, client.connection.context)


def no_namespace(namespace: str, where: str = "") -> UserError:
    fix = f"create it (kubectl create namespace {namespace}), or name another one: PENSTOCK_KUBERNETES_NAMESPACE"
    return UserError(Problem("P720", f"the cluster has no namespace {namespace}", fix, where))


def unreachable(client: Client, error: ApiError) -> UserError:
    where = client.connection.context or client.connection.server
    fix = "see what `kubectl cluster-info` says; choose the cluster with KUBECONFIG or PENSTOCK_KUBERNETES_CONTEXT"
    return UserError(Problem("P720", f"the cluster {where} does not answer as it should: {error}", fix))


def has_native_sidecars(client: Client) -> bool:
    """Can an init container stay? Kubernetes 1.28 does not do it unless it is told to, and does not say so. Raises UserError."""
    try:
        found = client.raw("GET", "/version")
    except ApiError as error:
        if error.unreachable:
            raise unreachable(client, error) from None
        return True
    numbers = [int("".join(filter(str.isdigit, str(found.get(key, "")))) or 0) for key in ("major", "minor")]
    return numbers >= [1, 29] or not numbers[0]


def slim_pod(pod: Object) -> Object:
    """What outcome reads of a pod. There may be thousands."""
    meta = part(pod, "metadata")
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "ownerReferences")
    annotations = {names.INDEX: annotations_of(pod)[names.INDEX]} if names.INDEX in annotations_of(pod) else {}
    spec = part(pod, "spec")
    limits = {
        kind: [
            {"name": one.get("name"), "resources": {"limits": part(one, "resources", "limits")}}
            for one in rows(pod, "spec", kind)
            if part(one, "resources", "limits")
        ]
        for kind in ("initContainers", "containers")
    }
    status = {key: value for key, value in part(pod, "status").items() if key not in ("podIPs", "hostIPs", "qosClass")}
    return {
        **pod,
        "metadata": {
            **{key: meta[key] for key in kept if key in meta},
            "labels": {key: value for key, value in labels_of(pod).items() if key in (names.STORE, names.JOB_NAME)},
            "annotations": annotations,
        },
        "spec": {"nodeName": spec.get("nodeName"), **limits},
        "status": status,
    }


def slim_job(job: Object) -> Object:
    spec = part(job, "spec")
    return {**job, "spec": {key: spec[key] for key in ("suspend", "completions") if key in spec}}


class Cluster:
    """`changed` is called with the name of a Job when it or one of its pods has changed, in another thread."""

    def __init__(self, client: Client, namespace: str, owner: str, engine: str, changed: Callable[[str], None]) -> None:
        self.client = client
        self.namespace = namespace
        self.engine = engine
        self._changed = changed
        self._asking = threading.Lock()
        self._asked = float("-inf")
        self._refusals: dict[str, str] = {}
        selector = f"{names.STORE}={owner}"
        self._jobs = ObjectCache(ApiResource(JOBS.api, JOBS.kind, JOBS.plural, selector=selector), keep=slim_job)
        self._pods = ObjectCache(ApiResource(PODS.api, PODS.kind, PODS.plural, selector=selector), keep=slim_pod)
        self._nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        log = Log(self._nowhere, human=False)  # what matters of it is said in the logs of the tasks
        self._watchers = [
            Watcher(client, cache, self._take, log, namespace=namespace) for cache in (self._jobs, self._pods)
        ]

    def start(self) -> None:
        """Returns when the watches have shown what there is: what they have not, would be taken for gone, and made again. Raises UserError."""
        for watcher in self._watchers:
            watcher.start()
        deadline = time.monotonic() + SHOWN
        while not all(watcher.synced for watcher in self._watchers):
            if time.monotonic() > deadline:
                why = next((one.problem for one in self._watchers if one.problem), "its objects cannot be listed")
                raise unreachable(self.client, ApiError(0, "", why))
            time.sleep(0.005)

    def close(self) -> None:
        for watcher in self._watchers:
            watcher.stop()
        for watcher in self._watchers:
            watcher.join(5.0)
        self._nowhere.close()
        self.client.close()

    def _take(self, change: Change) -> None:
        obj = change.new if change.new is not None else change.old
        if obj is None:
            return
        if change.resource.kind == "Job":
            self._changed(str(part(obj, "metadata").get("name", "")))
        else:
            self._changed(str(labels_of(obj).get(names.JOB_NAME, "")))

    # -- what is seen

    def job(self, name: str) -> Object | None:
        return self._jobs.get(self.namespace, name)

    def pods_of(self, uid: str) -> list[Object]:
        """The pods of the Job with this uid."""
        return list(self._pods.owned_by(uid))

    def warm_jobs(self) -> list[Object]:
        """The Jobs of all warm pods of this store, also of other engines. Raises ApiError."""
        selector = f"{self._jobs.resource.selector},{names.POOL}"
        found = list(self.client.list(JOBS, self.namespace, selector=selector, keep=slim_job).items)
        for job in found:
            self._jobs.put(job)  # the watch may not have begun yet, and one that it does not have counts as deleted
        return found

    # -- writes

    def ensure(self, job: dict[str, Any]) -> tuple[Object, bool]:
        """The Job of an attempt as the cluster has it, and whether it was there already: then another engine made it for the same
        attempt, and it goes on. One that was made from something else goes first. Raises ApiError, ValueError."""
        mine = {**job, "metadata": {**job["metadata"]}}
        mine["metadata"]["annotations"] = {**job["metadata"]["annotations"], names.ENGINE: self.engine}
        name, deadline = job["metadata"]["name"], time.monotonic() + GONE
        while True:
            try:
                made = self.client.create(JOBS, self.namespace, mine)
                self._jobs.put(made)
                return made, False
            except ApiError as error:
                if error.code != 409 or error.reason != "AlreadyExists":
                    raise
            found = self.client.found(JOBS, self.namespace, name)
            if found is None:
                continue
            if labels_of(found).get(names.STORE) != labels_of(job).get(names.STORE):
                raise ValueError(f"the Job {name} exists already in {self.namespace} and is not of this store")
            same = annotations_of(found).get(names.DIGEST) == annotations_of(job).get(names.DIGEST)
            if same and not is_deleted(found):
                if adopted := self._adopt(found):
                    return adopted, True
                continue
            if not is_deleted(found):
                self._delete(found, "Foreground")
            if time.monotonic() > deadline:
                raise ValueError(f"the Job {name} of an earlier attempt is being deleted, and does not go")
            time.sleep(0.3)

    def _adopt(self, found: Object) -> Object | None:
        """None: it has changed meanwhile."""
        body = {"metadata": {"annotations": {names.ENGINE: self.engine}}}
        version = str(part(found, "metadata").get("resourceVersion", ""))
        try:
            adopted = self.client.patch(
                JOBS, self.namespace, str(part(found, "metadata")["name"]), body, version=version
            )
        except ApiError as error:
            if error.code in (404, 409):
                return None
            raise
        self._jobs.put(adopted)
        return adopted

    def add(self, resource: ApiResource, made: dict[str, Any]) -> None:
        """A Secret or a Service, which has the Job's name and goes with it."""
        try:
            self.client.create(resource, self.namespace, made)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def remove(self, name: str, *, grace: float | None = None, any_engine: bool = False) -> bool:
        """Deletes a Job that this engine follows, with its pods; with `grace`, its pods get so many seconds. False: it is another
        engine's now, or gone. Raises ApiError."""
        found = self._jobs.get(self.namespace, name)  # what was seen last; if that is old, the server says so
        while True:
            found = found or self.client.found(JOBS, self.namespace, name)
            if found is None or (not any_engine and annotations_of(found).get(names.ENGINE) != self.engine):
                return False
            if is_deleted(found) or self._delete(found, "Background" if grace is None else "Foreground"):
                if grace is not None:
                    self._end_pods(uid_of(found), grace)
                return True
            found = None

    def _delete(self, found: Object, how: str) -> bool:
        """False: it has changed since it was looked at."""
        meta = part(found, "metadata")
        conditions = {"uid": meta.get("uid"), "resourceVersion": meta.get("resourceVersion")}
        try:
            options = {"propagationPolicy": how, "preconditions": conditions}
            self.client.delete(JOBS, self.namespace, str(meta["name"]), options)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
            return error.code == 404
        return True

    def _end_pods(self, uid: str, grace: float) -> None:
        for pod in self.pods_of(uid):
            if part(pod, "status").get("phase") in ("Succeeded", "Failed"):
                continue
            try:
                self.client.delete(
                    PODS,
                    self.namespace,
                    str(part(pod, "metadata")["name"]),
                    {"gracePeriodSeconds": max(0, round(grace))},
                )
            except ApiError as error:
                if error.code != 404:
                    raise

    # -- reads

    def found(self, name: str) -> Object | None:
        """A Job as the server has it now. Raises ApiError."""
        return self.client.found(JOBS, self.namespace, name)

    def look(self, name: str) -> None:
        """Takes a Job and its pods as the server has them now. Raises ApiError."""
        found = self.client.found(JOBS, self.namespace, name)
        if found is not None:
            self._jobs.put(found)
        for pod in self.client.list(PODS, self.namespace, selector=f"{names.JOB_NAME}={name}", keep=slim_pod).items:
            self._pods.put(pod)

    def refusal(self, uid: str) -> str:
        """Why the cluster makes no pods for a Job; empty if it does not say. However many ask, the server is asked every few seconds."""
        with self._asking:
            if time.monotonic() - self._asked >= EVERY:
                found = self.client.list(EVENTS, self.namespace, fields="involvedObject.kind=Job,reason=FailedCreate")
                self._refusals = {
                    str(part(one, "involvedObject").get("uid", "")): str(one.get("message", "")) for one in found.items
                }
                self._asked = time.monotonic()
            return self._refusals.get(uid, "").removeprefix("Error creating: ")

    def logs(self, pod: str, follow: bool, container: str = "main") -> LogStream:
        return self.client.logs(self.namespace, pod, container, follow=follow)
