"""The shell of the controller against the real API server: watches through a restart and lost history, two replicas, conflicts, webhooks while certificates change.

An instance of its own, because the API server is restarted. A relay between client and server can be cut, as a network can.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.controller.cluster.certificates import CONFIGURATIONS, SECRETS, Lifetimes, Material
from penstock.controller.cluster.events import EVENTS
from penstock.controller.cluster.leader import LEASES, Terms
from penstock.controller.cluster.run import Key, Manager, ManagerSettings
from penstock.controller.objects import (
    ApiResource,
    Note,
    Object,
    ReconcilePlan,
    Write,
    annotations_of,
    name_of,
    namespace_of,
)
from penstock.kubernetes.cache import Caches, ObjectCache
from penstock.kubernetes.client import ApiError, Client
from penstock.kubernetes.kubeconfig import from_files
from penstock.kubernetes.log import Log
from penstock.kubernetes.watch import Watcher
from testbed import binaries
from testbed.instance import Testbed
from tests.cluster.support import fresh_namespace, unique

MAPS = ApiResource("v1", "ConfigMap", "configmaps")
MARKED = replace(MAPS, selector="shell-test")
MINE = "shell-test/made-by"
QUICK = Terms(duration=3.0, renew_deadline=2.0, retry=0.2)


class Relay:
    """TCP on loopback to the API server, or to several servers by turns. `cut` ends what is open and takes nothing new; `mend` undoes it."""

    def __init__(self, *ports: int) -> None:
        self.targets = list(ports)
        self.turns = True
        self.whole = True
        self.open: set[socket.socket] = set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                if not self.whole:
                    raise OSError
                far = self.reach()
            except OSError:
                near.close()
                continue
            self.open |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self.copy, args=(one, other), daemon=True).start()

    def reach(self) -> socket.socket:
        """The first one that answers."""
        for port in list(self.targets):
            if self.turns:
                self.targets.append(self.targets.pop(0))
            with contextlib.suppress(ConnectionRefusedError):
                return socket.create_connection(("127.0.0.1", port))
        raise ConnectionRefusedError

    def first(self, port: int) -> None:
        """Ends what is open. From now on connections are to this one, as long as it answers."""
        self.turns = False
        self.targets.sort(key=lambda one: one != port)
        self.hang_up(*self.open)

    def copy(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        self.hang_up(one, other)

    def hang_up(self, *sockets: socket.socket) -> None:
        for one in sockets:
            self.open.discard(one)
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def cut(self) -> None:
        self.whole = False
        self.hang_up(*self.open)

    def mend(self) -> None:
        self.whole = True

    def close(self) -> None:
        self.cut()
        self.listener.close()


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    if absent := binaries.missing(binaries.CONTROL_PLANE):
        pytest.skip(f"control plane: not built: {', '.join(absent)}")
    with Testbed.start() as started:
        yield started


@pytest.fixture
def client(bed: Testbed) -> Iterator[Client]:
    with Client(from_files([bed.kubeconfig])) as made:
        yield made


@pytest.fixture
def relay(bed: Testbed) -> Iterator[Callable[[], tuple[Relay, Client]]]:
    made: list[tuple[Relay, Client]] = []

    def make() -> tuple[Relay, Client]:
        between = Relay(int(bed.url.rpartition(":")[2]))
        server = f"https://127.0.0.1:{between.port}"
        made.append((between, Client(replace(from_files([bed.kubeconfig]), server=server))))
        return made[-1]

    yield make
    for between, client in made:
        client.close()
        between.close()


def restart(bed: Testbed) -> None:
    """The API server, with what it was started with. Its memory of what happened is gone."""
    words = Path(f"/proc/{bed.processes['kube-apiserver'].pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    bed.end("kube-apiserver")
    bed.run("kube-apiserver", words)
    bed.wait(lambda: answers(bed), "the API server to answer again")


def answers(bed: Testbed) -> bool:
    try:
        return bool(bed.raw("GET", "/readyz") == "ok")
    except Exception:
        return False


def config(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"shell-test": ""}}, "data": data}


def shown(objects: Any) -> set[tuple[str, str]]:
    return {(one["metadata"]["name"], one["metadata"]["resourceVersion"]) for one in objects}


def test_verbs(bed: Testbed, client: Client) -> None:
    namespace = fresh_namespace(bed)
    assert client.server_version()["major"] == "1"
    made = client.create(MAPS, namespace, config("a", x="1"))
    version = made["metadata"]["resourceVersion"]
    client.patch(MAPS, namespace, "a", {"data": {"x": "2"}}, version=version)
    with pytest.raises(ApiError) as caught:
        client.patch(MAPS, namespace, "a", {"data": {"x": "3"}}, version=version)
    assert caught.value.code == 409
    steps = [{"op": "add", "path": "/data/y", "value": "1"}]
    with pytest.raises(ApiError) as caught:
        client.patch(MAPS, namespace, "a", steps, kind="json", version=version)
    assert caught.value.code in (409, 422)
    client.patch(MAPS, namespace, "b", {"data": {"z": "1"}}, kind="apply")
    assert client.get(MAPS, namespace, "b")["data"] == {"z": "1"}
    with pytest.raises(ApiError) as caught:
        client.create(MAPS, namespace, config("a"))
    assert (caught.value.code, caught.value.reason) == (409, "AlreadyExists")
    status = client.delete(MAPS, namespace, "a", {"preconditions": {"uid": made["metadata"]["uid"]}})
    assert (status["kind"], status["details"]["uid"]) == ("Status", made["metadata"]["uid"])
    namespaces = ApiResource("v1", "Namespace", "namespaces", namespaced=False)
    client.patch(namespaces, "", namespace, {"metadata": {"annotations": {"a": "b"}}})
    pods = ApiResource("v1", "Pod", "pods")
    spec = {"containers": [{"name": "main", "image": "none"}], "schedulingGates": [{"name": "example.com/wait"}]}
    client.create(pods, namespace, {"metadata": {"name": "p"}, "spec": spec})
    client.patch(pods, namespace, "p", {"status": {"message": "seen"}}, subresource="status")
    assert client.get(pods, namespace, "p")["status"]["message"] == "seen"


def test_history_that_is_lost_means_a_new_list(bed: Testbed, client: Client, relay: Callable[[], Any]) -> None:
    namespace = fresh_namespace(bed)
    between, through = relay()
    watcher = Watcher(through, ObjectCache(MARKED), lambda change: changes.append(change), Log(io.StringIO()))
    changes: list[Any] = []
    for name in ("stays", "goes", "changes"):
        client.create(MAPS, namespace, config(name))
    watcher.start()
    bed.wait(lambda: watcher.synced and len(watcher.cache) == 3, "the first list")
    between.cut()
    client.delete(MAPS, namespace, "goes")
    client.patch(MAPS, namespace, "changes", {"data": {"x": "1"}})
    client.create(MAPS, namespace, config("comes"))
    restart(bed)  # now the server cannot tell what happened since we last heard of it
    between.mend()
    there = shown(client.list(MARKED, namespace).items)
    bed.wait(lambda: shown(watcher.cache.list(namespace)) == there, "the cache to be what the server has")
    assert watcher.lists == 2
    gone = [change.old["metadata"]["name"] for change in changes if change.new is None]
    assert gone == ["goes"]
    watcher.stop()
    watcher.join(5)
    assert not watcher.alive()


def test_a_cut_connection_is_resumed_without_a_list(bed: Testbed, client: Client, relay: Callable[[], Any]) -> None:
    namespace = fresh_namespace(bed)
    between, through = relay()
    watcher = Watcher(through, ObjectCache(MARKED), lambda change: None, Log(io.StringIO()), seconds=2)
    watcher.start()
    bed.wait(lambda: watcher.synced, "the first list")
    for number in range(5):
        between.cut()
        client.create(MAPS, namespace, config(f"m{number}"))
        between.mend()
        bed.wait(lambda: len(watcher.cache.list(namespace)) == number + 1, "the news")  # noqa: B023
    assert watcher.lists == 1
    watcher.stop()
    watcher.join(5)


def test_a_definition_that_is_installed_later_is_picked_up(bed: Testbed, client: Client) -> None:
    group = f"{unique('g')}.example.com"
    gadgets = ApiResource(f"{group}/v1", "Gadget", "gadgets")
    watcher = Watcher(client, ObjectCache(gadgets), lambda change: None, Log(io.StringIO()), absent=0.2)
    watcher.start()
    bed.wait(lambda: watcher.state == "absent", "the kind to be missed")
    names = {"kind": "Gadget", "plural": "gadgets", "singular": "gadget", "listKind": "GadgetList"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    bed.apply([crd])
    client.create(gadgets, "default", {"metadata": {"name": "g"}})
    bed.wait(lambda: len(watcher.cache), "the object")
    crds = ApiResource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", False)
    client.delete(crds, "", f"gadgets.{group}")
    bed.wait(lambda: watcher.state == "absent" and not len(watcher.cache), "the kind to go")
    watcher.stop()
    watcher.join(5)


class Replica:
    """Writes into each ConfigMap of a namespace who was there: `by` once, and `copy` = `wish`."""

    def __init__(self, client: Client, namespace: str, identity: str, **given: Any) -> None:
        self.client, self.namespace, self.identity = client, namespace, identity
        self.caches = Caches([MARKED])
        self.out = io.StringIO()
        settings = ManagerSettings(
            namespace=namespace,
            identity=identity,
            terms=QUICK,
            health_host="127.0.0.1",
            health_port=0,
            webhook_host="127.0.0.1",
            webhook_port=0,
            **given.pop("settings", {}),
        )
        self.manager = Manager(
            client,
            settings,
            self.caches,
            owner_of=self.owner_of,
            reconcile=self.reconcile,
            object_of=lambda key: self.caches.get(MARKED, key[1], key[2]),
            log=Log(self.out),
            **given,
        )
        self.ended: list[bool] = []
        self.thread = threading.Thread(target=lambda: self.ended.append(self.manager.run()), daemon=True)
        self.thread.start()

    def owner_of(self, obj: Object) -> Key | None:
        return ("map", self.namespace, name_of(obj)) if namespace_of(obj) == self.namespace else None

    def reconcile(self, key: Key) -> ReconcilePlan:
        obj = self.caches.get(MARKED, key[1], key[2])
        if obj is None:
            return ReconcilePlan()
        data, meta = obj.get("data") or {}, obj["metadata"]
        if data.get("copy") == data.get("wish") and MINE in annotations_of(obj):
            return ReconcilePlan()
        count = int(data.get("count", "0")) + 1
        body = {
            "metadata": {"resourceVersion": meta["resourceVersion"], "annotations": {MINE: self.identity}},
            "data": {"copy": data.get("wish"), "count": str(count)},
        }
        return ReconcilePlan(
            [Write("patch", MARKED, key[1], key[2], body)], [Note("Copied", f"copied {data.get('wish')}")]
        )

    def stop(self) -> None:
        self.manager.stop()
        self.thread.join(30)
        assert not self.thread.is_alive()


def by(client: Client, namespace: str, name: str) -> str:
    return str(annotations_of(client.get(MAPS, namespace, name)).get(MINE, ""))


def copied(client: Client, namespace: str, wish: str, number: int) -> bool:
    data = [one["data"] for one in client.list(MARKED, namespace).items]
    return len(data) == number and all(one.get("copy") == wish for one in data)


def test_two_replicas_hand_over_and_one_that_is_cut_off_ends(
    bed: Testbed, client: Client, relay: Callable[[], Any]
) -> None:
    namespace = fresh_namespace(bed)
    between, through = relay()
    first = Replica(client, namespace, "first")
    bed.wait(lambda: first.manager.leads, "the first to lead")
    second = Replica(through, namespace, "second")
    bed.wait(lambda: second.manager.synced, "the second to have its caches")
    client.create(MAPS, namespace, config("a", wish="1"))
    bed.wait(lambda: by(client, namespace, "a") == "first", "the first to act")
    first.stop()  # it gives the lease back
    assert first.ended == [True]
    began = time.monotonic()
    bed.wait(lambda: second.manager.leads, "the second to lead")
    assert time.monotonic() - began < QUICK.duration, "a lease that is given back need not run out"
    client.create(MAPS, namespace, config("b", wish="1"))
    bed.wait(lambda: by(client, namespace, "b") == "second", "the second to act")
    third = Replica(client, namespace, "third")
    bed.wait(lambda: third.manager.synced, "the third to have its caches")
    between.cut()
    second.thread.join(30)
    assert second.ended == [False]
    bed.wait(lambda: third.manager.leads, "the third to lead")
    client.create(MAPS, namespace, config("c", wish="1"))
    bed.wait(lambda: by(client, namespace, "c") == "third", "the third to act")
    lease = client.get(LEASES, namespace, "penstock-controller")["spec"]
    assert (lease["holderIdentity"], lease["leaseTransitions"]) == ("third", 2)
    third.stop()
    assert not client.get(LEASES, namespace, "penstock-controller")["spec"].get("holderIdentity")


def test_conflicts_and_a_restart_of_the_server(bed: Testbed, client: Client) -> None:
    """Somebody else writes all the time, and the server goes away once. Every wish is copied in the end, each write counted once."""
    namespace = fresh_namespace(bed)
    for number in range(10):
        client.create(MAPS, namespace, config(f"m{number}", wish="0"))
    replica = Replica(client, namespace, "only", settings={"elect": False})
    for wish in ("1", "2", "3"):
        for number in range(10):
            client.patch(MAPS, namespace, f"m{number}", {"data": {"wish": wish}})
        if wish == "2":
            restart(bed)
    bed.wait(lambda: copied(client, namespace, "3", 10), "every wish to be copied")
    written = [json.loads(line) for line in replica.out.getvalue().splitlines() if '"written"' in line]
    counts = sum(int(one["data"]["count"]) for one in client.list(MARKED, namespace).items)
    assert counts == len(written)
    found = bed.wait(lambda: client.list(EVENTS, namespace).items, "the Events")
    assert {one["reason"] for one in found} == {"Copied"}
    replica.stop()


def test_webhooks_answer_while_certificates_and_their_ca_change(bed: Testbed, client: Client) -> None:
    """failurePolicy Fail, so a moment without trust would be a failed write. Certificates live for seconds here."""
    namespace = fresh_namespace(bed, {"hooked": (mark := unique("h"))})
    name = unique("shell")
    asked: list[str] = []

    def hook(request: Any) -> dict[str, Any]:
        asked.append(request["operation"])
        if request["object"]["metadata"]["name"] == "refused":
            return {"allowed": False, "status": {"message": "not this one"}}
        return {"allowed": True}

    seconds = datetime.timedelta(seconds=1)
    life = Lifetimes(ca=14 * seconds, serving=5 * seconds, settle=2 * seconds)
    settings = {
        "elect": False,
        "hosts": ("127.0.0.1",),
        "configurations": (name,),
        "lifetimes": life,
        "certificates_every": 0.2,
        "secret": name,
        "linger": 0,
    }
    replica = Replica(client, namespace, "only", settings=settings, webhooks={"/hook": hook})
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    webhook = {
        "name": "hook.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 5,
        "namespaceSelector": {"matchLabels": {"hooked": mark}},
        "clientConfig": {"url": f"https://127.0.0.1:{replica.manager.webhook_port}/hook"},
        "rules": [rule],
    }
    client.create(CONFIGURATIONS[0], "", {"metadata": {"name": name}, "webhooks": [webhook]})

    def announced() -> bool:
        found = client.get(CONFIGURATIONS[0], "", name)
        return bool(found["webhooks"][0]["clientConfig"].get("caBundle"))

    bed.wait(announced, "the CA in the configuration")
    bed.wait(lambda: accepted(client, namespace), "the API server to have read it")
    served: set[bytes] = set()
    authorities: set[bytes] = set()
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        # No deadline is set by hand: each write must simply be accepted. Connections are closed, so that each change is felt.
        client.create(MAPS, namespace, config(unique("m")))
        secret = Material.read(client.get(SECRETS, namespace, name))
        assert secret is not None
        served.add(secret.certificate)
        authorities.add(secret.ca.split(b"-----END")[0])
        replica.manager._served._server.hang_up()
        time.sleep(0.1)
    assert len(served) >= 4
    assert len(authorities) >= 2
    with pytest.raises(ApiError, match="not this one"):
        client.create(MAPS, namespace, config("refused"))
    assert len(asked) > 50
    client.delete(CONFIGURATIONS[0], "", name)
    replica.stop()


def accepted(client: Client, namespace: str) -> bool:
    try:
        client.create(MAPS, namespace, config(unique("m")))
        return True
    except ApiError:
        return False
