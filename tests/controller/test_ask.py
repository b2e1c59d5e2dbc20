"""A review of a pod that a replica asks of the one that leads: by real HTTPS, and what happens when there is no answer."""

from __future__ import annotations

import base64
import datetime
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from penstock.controller.cluster.ask import ANSWER, CONNECT, PAUSE, Leader
from penstock.controller.cluster.certificates import CONFIGURATIONS, SECRETS, Material, renewed
from penstock.controller.cluster.leader import LEASES
from penstock.controller.cluster.main import Controller
from penstock.controller.cluster.metrics import Metrics
from penstock.controller.cluster.server import Listening, tls_context, webhook_server
from penstock.controller.install.manifests import Install, manifests
from penstock.kubernetes.log import Log
from tests.controller.fake_api import FakeApi, wait_for
from tests.controller.test_assume_cache import Desk
from tests.controller.test_manager import QUICK, World
from tests.controller.test_manager import world as world  # a fixture
from tests.support.speed import slowness

NAME = "penstock-webhooks.penstock-system.svc"
REQUEST = {"uid": "u-1", "namespace": "ns", "object": {"metadata": {"name": "p"}}}


def material(host: str = NAME) -> Material:
    made = renewed(None, (host,), datetime.datetime.now(datetime.UTC))
    assert made is not None
    return made


class Replica:
    """The one that leads, and another that asks it."""

    def __init__(self) -> None:
        self.material = material()
        self.asked: list[Mapping[str, Any]] = []
        self.metrics, self.log = Metrics(), io.StringIO()
        self.now = 0.0
        self.answer: Callable[[], dict[str, Any]] = lambda: {"allowed": True, "patch": "W10="}
        self.server: Listening = webhook_server("127.0.0.1", 0, {"/d": self.decide}, Log(io.StringIO()), Metrics())
        self.server.use(tls_context(self.material))
        self.server.start()
        self.address = f"127.0.0.1:{self.server.port}"
        self.leader = Leader(lambda: self.address, NAME, Log(self.log), self.metrics, clock=lambda: self.now)
        self.leader.trust(self.material.ca)

    def decide(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(request)
        return self.answer()

    def outcomes(self) -> dict[str, float]:
        rows = [
            one for one in self.metrics.text().decode().splitlines() if one.startswith("penstock_leader_questions_t")
        ]
        return {one.split('"')[1]: float(one.rpartition(" ")[2]) for one in rows}


@pytest.fixture
def replica() -> Iterator[Replica]:
    made = Replica()
    yield made
    made.leader.close()
    made.server.stop()


def test_the_answer_is_the_leaders(replica: Replica) -> None:
    """The certificate is for the Service, the connection to an address."""
    assert replica.leader.ask("/d", REQUEST) == {"allowed": True, "patch": "W10="}
    assert replica.asked == [REQUEST]
    assert replica.outcomes() == {"answered": 1.0}


def test_another_certificate_gets_no_question(replica: Replica) -> None:
    replica.server.use(tls_context(material()))  # not by our authority
    assert replica.leader.ask("/d", REQUEST) is None
    replica.now = PAUSE
    other = material("elsewhere.example.com")
    replica.server.use(tls_context(other))
    replica.leader.trust(other.ca)  # by ours, but for another name
    assert replica.leader.ask("/d", REQUEST) is None
    assert not replica.asked and "CERTIFICATE_VERIFY_FAILED" in replica.log.getvalue()
    replica.now = 2 * PAUSE
    renewed_one = material()
    replica.server.use(tls_context(renewed_one))
    replica.leader.trust(renewed_one.ca)
    assert replica.leader.ask("/d", REQUEST)


@pytest.mark.parametrize("said", [{"allowed": False}, {}, {"allowed": "yes"}])
def test_what_does_not_allow_the_pod_is_no_answer(replica: Replica, said: dict[str, Any]) -> None:
    replica.answer = lambda: said
    assert replica.leader.ask("/d", REQUEST) is None


def test_nobody_is_asked_where_nobody_is_known(replica: Replica) -> None:
    replica.address = ""
    assert replica.leader.ask("/d", REQUEST) is None
    assert not replica.asked and not replica.outcomes()


def test_one_that_is_gone_is_left_alone_for_a_while(replica: Replica) -> None:
    """Every pod of a stage asks; each must not wait for it."""
    alive = replica.address
    with socket.create_server(("127.0.0.1", 0)) as dead:  # it takes connections, and says nothing
        replica.address = f"127.0.0.1:{dead.getsockname()[1]}"
        began = time.monotonic()
        assert replica.leader.ask("/d", REQUEST) is None
        assert time.monotonic() - began < (CONNECT + ANSWER) + slowness()
        began = time.monotonic()
        for _ in range(100):
            assert replica.leader.ask("/d", REQUEST) is None
        assert time.monotonic() - began < CONNECT * slowness()
    assert replica.outcomes() == {"failed": 1.0, "passed over": 100.0}
    replica.address = alive
    assert replica.leader.ask("/d", REQUEST), "another one leads by now"


def test_one_that_fails_is_asked_again(replica: Replica) -> None:
    def fails() -> dict[str, Any]:
        raise KeyError("oh")

    good, replica.answer = replica.answer, fails
    assert replica.leader.ask("/d", REQUEST) is None
    replica.answer = good
    assert replica.leader.ask("/d", REQUEST) is None and len(replica.asked) == 1
    replica.now = PAUSE
    assert replica.leader.ask("/d", REQUEST)


# -- who asks -----------------------------------------------------------------------------------------------------------


def gate_stays(answer: Mapping[str, Any]) -> bool:
    changes = json.loads(base64.b64decode(answer["patch"])) if "patch" in answer else []
    return not any(one["path"] == "/spec/schedulingGates" for one in changes)


def test_only_the_one_that_leads_gives_room_away() -> None:
    """Each of two replicas sees room for two pods. Asked by turns they give it to two, and not to four."""
    one, two = Desk(2), Desk(2)
    asked: list[str] = []

    def ask(path: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(path)
        return one.controller.webhooks()[path](request)

    two.controller.leads, two.controller.ask_leader = (lambda: False), ask
    requests = [{"namespace": "ns", "object": one.new(f"p{number}", number)} for number in range(4)]
    turns: list[Controller] = [two.controller, one.controller] * 2
    answers = [turn.admit_pod(request) for turn, request in zip(turns, requests, strict=True)]
    assert [gate_stays(answer) for answer in answers] == [False, False, True, True]
    assert asked == ["/pods/decided"] * 2


def test_without_an_answer_the_pod_keeps_its_gate() -> None:
    desk = Desk(2)
    desk.controller.leads = lambda: False
    request = {"namespace": "ns", "object": desk.new("p")}
    assert gate_stays(desk.controller.admit_pod(request))


def test_two_that_take_one_another_for_the_leader_do_not_ask_in_a_circle() -> None:
    one, two = Desk(2), Desk(2)
    for here, there in ((one, two), (two, one)):
        here.controller.leads = lambda: False
        here.controller.ask_leader = lambda path, request, there=there: there.controller.webhooks()[path](request)  # type: ignore[misc]
    assert gate_stays(one.controller.admit_pod({"namespace": "ns", "object": one.new("p")}))


def test_replicas_find_one_another_by_the_lease(api: FakeApi, world: Callable[..., World]) -> None:
    for resource in (SECRETS, *CONFIGURATIONS):
        api.install(resource)
    given = {"hosts": [NAME], "linger": 0, "elect": True, "terms": QUICK, "address": "127.0.0.1"}

    def hook(name: str) -> Any:
        return {"/who": lambda request: {"allowed": True, "warnings": [name]}}

    first = world(webhooks=hook("first"), identity="first", **given).start()
    wait_for(lambda: first.manager.leads)
    second = world(webhooks=hook("second"), identity="second", **given).start()
    wait_for(lambda: (second.manager.ask_leader("/who", REQUEST) or {}).get("warnings") == ["first"])
    assert first.manager.ask_leader("/who", REQUEST) is None
    lease = api.get(LEASES, "ns", "penstock-controller") or {}
    assert lease["metadata"]["annotations"] == {"penstock/address": f"127.0.0.1:{first.manager.webhook_port}"}
    stopping = threading.Thread(target=first.stop)
    stopping.start()
    wait_for(lambda: second.manager.leads)
    stopping.join(30)
    assert second.manager.ask_leader("/who", REQUEST) is None, "it leads itself"


def test_an_address_of_ipv6_is_in_brackets(api: FakeApi, world: Callable[..., World]) -> None:
    one = world(elect=True, terms=QUICK, identity="one", address="fd00::1").start()
    wait_for(lambda: one.manager.leads)
    lease = api.get(LEASES, "ns", "penstock-controller") or {}
    assert lease["metadata"]["annotations"] == {"penstock/address": f"[fd00::1]:{one.manager.webhook_port}"}


def test_the_manifests_tell_each_replica_its_address() -> None:
    (deployment,) = [one for one in manifests(Install()) if one["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    told = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"]}
    assert told == {"POD_NAME": "metadata.name", "POD_IP": "status.podIP"}
