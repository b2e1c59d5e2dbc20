"""The Manager on a fake API server: what is decided is written, told and looked at again; trouble with one workflow is its own."""

from __future__ import annotations

import base64
import io
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from penstock.controller.cluster.certificates import CONFIGURATIONS, SECRETS
from penstock.controller.cluster.events import EVENTS
from penstock.controller.cluster.leader import LEASES, Terms
from penstock.controller.cluster.run import Key, Manager, ManagerSettings
from penstock.controller.objects import (
    ApiResource,
    Note,
    Object,
    ReconcilePlan,
    Write,
    controller_of,
    name_of,
    namespace_of,
)
from penstock.kubernetes import watch as watch_module
from penstock.kubernetes.cache import Caches
from penstock.kubernetes.client import Client
from penstock.kubernetes.log import Log
from tests.controller.conftest import THINGS
from tests.controller.fake_api import FakeApi, Fault, thing, wait_for

PARTS = ApiResource("example.com/v1", "Part", "parts")
QUICK = Terms(duration=1.5, renew_deadline=1.0, retry=0.1)


class World:
    """A controller that makes one Part for each Thing, and takes it away when the Thing says so."""

    def __init__(self, api: FakeApi, webhooks: Any = None, trusted: Any = (), **given: Any) -> None:
        self.api = api
        self.client = Client(api.connection())
        self.caches = Caches([THINGS, PARTS])
        self.out = io.StringIO()
        self.seen: list[Key] = []
        self.decide: Callable[[Key], ReconcilePlan] = self.one_part
        settings = {
            "elect": False,
            "health_host": "127.0.0.1",
            "health_port": 0,
            "webhook_host": "127.0.0.1",
            "handover": 0,
        }
        self.manager = Manager(
            self.client,
            ManagerSettings(**{**settings, "webhook_port": 0, "namespace": "ns", **given}),
            self.caches,
            owner_of=self.owner_of,
            reconcile=self.reconcile,
            object_of=lambda key: self.caches.get(THINGS, key[1], key[2]),
            webhooks=webhooks,
            trusted=trusted,
            log=Log(self.out),
        )
        self.result: list[bool] = []
        self.thread = threading.Thread(target=lambda: self.result.append(self.manager.run()))

    def owner_of(self, obj: Object) -> Key | None:
        if obj["kind"] == "Thing":
            return ("thing", namespace_of(obj), name_of(obj))
        return ("thing", namespace_of(obj), str(controller_of(obj).get("name")))

    def reconcile(self, key: Key) -> ReconcilePlan:
        self.seen.append(key)
        return self.decide(key)

    def one_part(self, key: Key) -> ReconcilePlan:
        main = self.caches.get(THINGS, key[1], key[2])
        part = self.caches.get(PARTS, key[1], key[2])
        if main is None:
            return ReconcilePlan([Write("delete", PARTS, key[1], key[2])] if part else [])
        if part is None:
            owner = {"name": key[2], "uid": main["metadata"]["uid"], "controller": True}
            body = {"metadata": {"ownerReferences": [owner]}, "spec": main.get("spec", {})}
            return ReconcilePlan([Write("create", PARTS, key[1], key[2], body)], [Note("Made", "the part is made")])
        if part["spec"] != main.get("spec", {}):
            version = part["metadata"]["resourceVersion"]
            body = {"metadata": {"resourceVersion": version}, "spec": main.get("spec", {})}
            return ReconcilePlan(
                [Write("patch", PARTS, key[1], key[2], body)], [Note("Changed", "the part is changed")]
            )
        return ReconcilePlan()

    def start(self) -> World:
        self.thread.start()
        return self

    def stop(self) -> None:
        self.manager.stop()
        if self.thread.ident is not None:
            self.thread.join(30)
            assert not self.thread.is_alive()
        self.client.close()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.getvalue().splitlines()]

    def page(self, path: str) -> tuple[int, str]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self.manager.health_port}{path}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def world(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    monkeypatch.setattr(watch_module, "FIRST", 0.01)
    for resource in (PARTS, EVENTS, LEASES):
        api.install(resource)
    made: list[World] = []

    def make(**given: Any) -> World:
        made.append(World(api, **given))
        return made[-1]

    yield make
    for one in made:
        one.stop()


Make = Callable[..., World]


def events(api: FakeApi) -> list[tuple[str, str]]:
    return [(one["reason"], one["regarding"]["name"]) for one in api.all(EVENTS)]


def test_what_is_there_and_what_comes_is_reconciled(api: FakeApi, world: Make) -> None:
    api.put(THINGS, thing("a", spec=1) | {"spec": {"x": 1}})
    one = world().start()
    wait_for(lambda: api.get(PARTS, "ns", "a"))
    api.put(THINGS, thing("b"))
    wait_for(lambda: api.get(PARTS, "ns", "b"))
    api.put(THINGS, thing("a") | {"spec": {"x": 2}})
    wait_for(lambda: (api.get(PARTS, "ns", "a") or {})["spec"] == {"x": 2})
    api.remove(THINGS, "ns", "b")
    wait_for(lambda: not api.get(PARTS, "ns", "b"))
    api.remove(PARTS, "ns", "a")  # by somebody else
    wait_for(lambda: api.get(PARTS, "ns", "a"))
    wait_for(one.manager.idle)
    written = {(line["workflow"], line["verb"], line["kind"]) for line in one.lines if line["msg"] == "written"}
    assert written >= {("ns/a", "create", "Part"), ("ns/a", "patch", "Part"), ("ns/b", "delete", "Part")}


def test_nothing_is_decided_before_every_cache_is_filled(api: FakeApi, world: Make) -> None:
    api.put(THINGS, thing("a"))
    api.put(PARTS, thing("a", ownerReferences=[{"name": "a"}]) | {"spec": {}})
    slow = Fault(lambda method, path: "parts" in path, 500, times=10**6)
    api.faults.append(slow)
    one = world().start()
    wait_for(lambda: len(one.caches[THINGS]))
    assert not one.seen
    code, said = wait_for(lambda: one.page("/readyz") if "500" in one.page("/readyz")[1] else None)
    assert code == 503
    assert said.startswith("parts: 500")
    slow.times = 0
    wait_for(lambda: one.seen and one.manager.idle())
    assert api.asked("POST", "parts") == 0
    assert one.page("/readyz") == (200, "ok\n")
    assert one.page("/healthz") == (200, "ok\n")


def test_the_next_look_sees_the_write_at_once(api: FakeApi, world: Make) -> None:
    """The watch of Parts tells nothing here; without the answer in the cache the Part would be made again and again."""
    one = world()
    api.faults.append(Fault(lambda method, path: "parts" in path and "watch" in path, 500, times=10**6))
    one.start()
    wait_for(lambda: one.manager.synced)
    api.put(THINGS, thing("a"))
    wait_for(lambda: len(one.caches[PARTS]))
    api.put(THINGS, thing("a") | {"spec": {"x": 2}})
    wait_for(lambda: (api.get(PARTS, "ns", "a") or {})["spec"] == {"x": 2})
    wait_for(one.manager.idle)
    assert api.asked("POST", "parts") == 1
    api.remove(THINGS, "ns", "a")
    wait_for(lambda: not len(one.caches[PARTS]))
    wait_for(one.manager.idle)
    assert api.asked("DELETE", "parts") == 1


def test_a_conflict_is_read_again(api: FakeApi, world: Make) -> None:
    one = world()
    api.put(THINGS, thing("a"))
    api.faults.append(Fault(lambda method, path: "parts" in path and "watch" in path, 500, times=10**6))
    one.start()
    wait_for(lambda: len(one.caches[PARTS]))
    part = api.get(PARTS, "ns", "a")
    assert part is not None
    api.put(PARTS, part | {"spec": {"x": "by somebody"}})  # we do not hear of it
    api.put(THINGS, thing("a") | {"spec": {"x": 2}})
    wait_for(lambda: (api.get(PARTS, "ns", "a") or {})["spec"] == {"x": 2})
    assert [line["msg"] for line in one.lines if "out of date" in line["msg"]]


def test_a_write_without_an_answer_is_looked_up_before_anything_is_decided(api: FakeApi, world: Make) -> None:
    """The watch of Parts tells nothing here, and for a while nothing can be read either: the Part is not made a second time."""
    one = world()
    quiet = Fault(lambda method, path: "parts" in path and "watch" in path, 500, times=10**6)
    lost = Fault(lambda method, path: method == "POST" and "parts" in path, 500, after=True)
    mute = Fault(lambda method, path: method == "GET" and path.partition("?")[0].endswith("parts/a"), 500, times=2)
    api.faults += [quiet, lost, mute]
    one.start()
    wait_for(lambda: one.manager.synced)
    api.put(THINGS, thing("a"))
    wait_for(lambda: len(one.caches[PARTS]))
    wait_for(one.manager.idle)
    assert (api.asked("POST", "parts"), mute.times) == (1, 0)


def test_every_third_write_a_conflict(api: FakeApi, world: Make) -> None:
    count = [0]

    def third(method: str, path: str) -> bool:
        count[0] += method in ("POST", "PATCH", "DELETE") and "parts" in path
        return method != "GET" and "parts" in path and count[0] % 3 == 0

    api.faults.append(Fault(third, 409, "Conflict", times=10**6))
    for number in range(20):
        api.put(THINGS, thing(f"t{number}"))
    world().start()
    wait_for(lambda: len(api.all(PARTS)) == 20)


def test_a_refused_write_is_told_once_and_backed_off_while_others_go_on(api: FakeApi, world: Make) -> None:
    api.faults.append(Fault(lambda m, p: m == "POST" and "parts" in p, 422, "Invalid", times=2))
    api.put(THINGS, thing("a"))
    one = world().start()
    wait_for(lambda: ("WriteRefused", "a") in events(api))
    wait_for(lambda: api.get(PARTS, "ns", "a"))
    wait_for(lambda: ("Made", "a") in events(api))
    assert len(events(api)) == 2
    refused = [line for line in one.lines if line["msg"] == "write refused"]
    assert len(refused) == 2
    assert refused[0]["workflow"] == "ns/a"
    assert 'penstock_writes_total{code="422",kind="Part",verb="create"} 2.0' in one.page("/metrics")[1]


def test_a_refused_write_does_not_keep_the_rest_of_its_workflow_waiting(api: FakeApi, world: Make) -> None:
    """One part is refused again and again; the other is made, and what the plan tells is told."""
    one = world()
    api.faults.append(Fault(lambda m, p: m == "POST" and "parts" in p, 422, "Invalid", times=1))
    writes = [Write("create", PARTS, "ns", name, {"metadata": {"name": name}}) for name in ("poison", "b")]
    one.decide = lambda key: (
        ReconcilePlan(writes, [Note("Evicted", "stage b")]) if len(one.seen) == 1 else ReconcilePlan()
    )
    api.put(THINGS, thing("a"))
    one.start()
    wait_for(lambda: api.get(PARTS, "ns", "b"))
    wait_for(lambda: set(events(api)) == {("WriteRefused", "a"), ("Evicted", "a")})


def test_what_is_seen_is_told_even_if_the_write_fails(api: FakeApi, world: Make) -> None:
    api.faults.append(Fault(lambda m, p: m == "POST" and "parts" in p, 500, times=10**6))
    api.put(THINGS, thing("a"))
    world().start()
    wait_for(lambda: ("Made", "a") in events(api))


def test_one_that_cannot_be_handled_does_not_hold_up_the_others(api: FakeApi, world: Make) -> None:
    one = world(workers=1)
    usual = one.decide

    def decide(key: Key) -> ReconcilePlan:
        if key[2] == "bad":
            raise ZeroDivisionError("bad")
        return usual(key)

    one.decide = decide
    api.put(THINGS, thing("bad"))
    api.put(THINGS, thing("good"))
    one.start()
    wait_for(lambda: api.get(PARTS, "ns", "good"))
    wait_for(lambda: len([key for key in one.seen if key[2] == "bad"]) > 1)
    failed = next(line for line in one.lines if line["msg"] == "reconcile failed")
    assert (failed["workflow"], failed["level"]) == ("ns/bad", "error")
    assert "ZeroDivisionError" in failed["traceback"]


def test_a_write_that_is_sent_every_so_often_is_put_off_not_lost(api: FakeApi, world: Make) -> None:
    """The Thing changes twenty times in a moment; its Part follows twice or so, and ends as the Thing is."""
    one = world()
    plain = one.one_part

    def seldom(key: Key) -> ReconcilePlan:
        plan = plain(key)
        return replace(plan, writes=[replace(write, every=0.5) for write in plan.writes])

    one.decide = seldom
    one.start()
    api.put(THINGS, thing("a"))
    wait_for(lambda: api.get(PARTS, "ns", "a"))
    began = time.monotonic()
    for number in range(20):
        api.put(THINGS, thing("a") | {"spec": {"x": number}})
        wait_for(lambda: (one.caches.get(THINGS, "ns", "a") or {}).get("spec") == {"x": number})  # noqa: B023
    wait_for(lambda: (api.get(PARTS, "ns", "a") or {})["spec"] == {"x": 19})
    assert api.asked("PATCH", "parts") <= 1 + (time.monotonic() - began) / 0.5


def test_again_is_looked_at_again(api: FakeApi, world: Make) -> None:
    one = world()
    one.decide = lambda key: ReconcilePlan(again=0.01 if len(one.seen) < 5 else None)
    api.put(THINGS, thing("a"))
    one.start()
    wait_for(lambda: len(one.seen) == 5)


def test_the_same_note_is_one_event_and_counted_when_it_comes_back(api: FakeApi, world: Make) -> None:
    one = world()
    say = [[Note("Queued", "waits")]]
    one.decide = lambda key: ReconcilePlan(notes=say[0])
    api.put(THINGS, thing("a"))
    one.start()
    wait_for(lambda: events(api) == [("Queued", "a")])
    api.put(THINGS, thing("a"))
    wait_for(lambda: len(one.seen) == 2 and one.manager.idle())
    say[0] = []
    api.put(THINGS, thing("a"))
    wait_for(lambda: len(one.seen) == 3 and one.manager.idle())
    say[0] = [Note("Queued", "waits")]
    api.put(THINGS, thing("a"))
    wait_for(lambda: (api.all(EVENTS)[0].get("series") or {}).get("count") == 2)
    assert api.asked("POST", "events") == 1


def test_a_new_process_does_not_tell_it_again(api: FakeApi, world: Make) -> None:
    api.put(THINGS, thing("a"))
    for _ in range(2):
        one = world()
        one.decide = lambda key: ReconcilePlan(notes=[Note("Queued", "waits", warning=True)])
        one.start()
        wait_for(lambda one=one: one.seen and one.manager.idle())
        one.stop()
    assert events(api) == [("Queued", "a")]
    assert api.asked("POST", "events") == 2


def test_only_the_leader_acts_and_the_other_takes_over(api: FakeApi, world: Make) -> None:
    first = world(elect=True, terms=QUICK, identity="first").start()
    wait_for(lambda: first.manager.leads)
    second = world(elect=True, terms=QUICK, identity="second").start()
    wait_for(lambda: second.manager.synced)
    api.put(THINGS, thing("a"))
    wait_for(lambda: api.get(PARTS, "ns", "a"))
    assert not second.seen
    first.stop()
    assert first.result == [True]
    wait_for(lambda: second.manager.leads)
    api.put(THINGS, thing("b"))
    wait_for(lambda: api.get(PARTS, "ns", "b"))
    assert ("thing", "ns", "b") not in first.seen


def test_who_loses_the_lease_ends(api: FakeApi, world: Make) -> None:
    one = world(elect=True, terms=QUICK, identity="one").start()
    wait_for(lambda: one.manager.leads)
    api.faults.append(Fault(lambda method, path: "leases" in path, 500, times=10**6))
    one.thread.join(20)
    assert one.result == [False]
    lease = api.get(LEASES, "ns", "penstock-controller")
    assert lease is not None
    assert any("leadership lost" in line["msg"] for line in one.lines)


def test_who_is_stopped_as_it_begins_to_lead_gives_the_lease_back(
    api: FakeApi, world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The election has just been won, and workers are being started by its thread, when a signal comes."""
    one = world(elect=True, terms=QUICK, identity="one")
    start, stopping = threading.Thread.start, threading.Event()

    def slow(thread: threading.Thread) -> None:
        if thread.name.startswith("worker-"):
            one.manager.stop()
            stopping.wait(0.5)  # is everything ended meanwhile?
        start(thread)

    close = one.manager._queue.close
    monkeypatch.setattr(one.manager._queue, "close", lambda: (close(), stopping.set()))
    monkeypatch.setattr(threading.Thread, "start", slow)
    one.start()
    one.thread.join(20)
    assert one.result == [True]
    lease = api.get(LEASES, "ns", "penstock-controller")
    assert lease is not None and not lease["spec"]["holderIdentity"]


def test_every_replica_serves_webhooks_and_one_certificate(api: FakeApi, world: Make) -> None:
    for resource in (SECRETS, *CONFIGURATIONS):
        api.install(resource)
    api.put(CONFIGURATIONS[0], {"metadata": {"name": "hooks"}, "webhooks": [{"clientConfig": {}}]})
    given = {"configurations": ["hooks"], "hosts": ["127.0.0.1"], "linger": 0, "elect": True, "terms": QUICK}
    both = [
        world(webhooks={"/ask": lambda request: {"allowed": True}}, identity=name, **given).start() for name in "ab"
    ]
    for one in both:
        wait_for(lambda one=one: one.page("/readyz")[0] == 200)
    hooks = api.get(CONFIGURATIONS[0], "", "hooks")
    assert hooks is not None
    ca = base64.b64decode(hooks["webhooks"][0]["clientConfig"]["caBundle"]).decode()
    with httpx2.Client(verify=ssl.create_default_context(cadata=ca), trust_env=False) as http:
        for one in both:
            url = f"https://127.0.0.1:{one.manager.webhook_port}/ask"
            assert http.post(url, json={"request": {"uid": "u"}}).json()["response"] == {"allowed": True, "uid": "u"}
    wait_for(lambda: any(one.manager.leads for one in both))
    assert sum(one.manager.leads for one in both) == 1


def test_a_damaged_secret_is_not_ready_until_it_can_be_put_right(api: FakeApi, world: Make) -> None:
    api.install(SECRETS)
    api.faults.append(Fault(lambda method, path: "secrets" in path, 403, "Forbidden", times=1))
    one = world(webhooks={"/ask": lambda request: {"allowed": True}}, hosts=["127.0.0.1"], linger=0).start()
    wait_for(lambda: one.manager.synced)
    assert one.page("/readyz") == (503, "the webhook certificate is not made yet\n")
    wait_for(lambda: one.page("/readyz")[0] == 200)


def test_a_fault_is_told_on_the_object_and_not_at_every_try(api: FakeApi, world: Make) -> None:
    one = world()
    usual = one.decide

    def decide(key: Key) -> ReconcilePlan:
        if key[2] == "bad":
            raise ZeroDivisionError(f"try {len(one.seen)}")  # other words each time
        return usual(key)

    one.decide = decide
    api.put(THINGS, thing("bad"))
    api.put(THINGS, thing("good"))
    one.start()
    wait_for(lambda: len([key for key in one.seen if key[2] == "bad"]) > 3)
    wait_for(lambda: ("Refused", "bad") in events(api))
    told = [event for event in api.all(EVENTS) if event["reason"] == "Refused"]
    assert len(told) == 1
    assert "ZeroDivisionError: try" in told[0]["note"] and "kubectl logs" in told[0]["note"]
    assert told[0]["type"] == "Warning"
    wait_for(lambda: api.get(PARTS, "ns", "good"))


def test_an_object_that_cannot_be_understood_does_not_stop_the_watch(api: FakeApi, world: Make) -> None:
    one = world()
    usual = one.owner_of

    def owner_of(obj: Object) -> Key | None:
        if name_of(obj) == "bad":
            raise ZeroDivisionError("bad")
        return usual(obj)

    one.manager._owner_of = owner_of
    api.put(THINGS, thing("bad"))
    one.start()
    wait_for(lambda: one.manager.synced)
    api.put(THINGS, thing("bad") | {"spec": {"x": 1}})
    api.put(THINGS, thing("good"))
    wait_for(lambda: api.get(PARTS, "ns", "good"))
    assert api.asked("GET", "things?limit") == 1, "nothing is listed again for it"
    assert [line for line in one.lines if line["msg"] == "object not understood" and line["object"] == "ns/bad"]


def test_nothing_is_decided_while_the_watch_of_what_counts_is_broken(api: FakeApi, world: Make) -> None:
    one = world(trusted=[PARTS])
    api.put(THINGS, thing("a"))
    one.start()
    wait_for(lambda: api.get(PARTS, "ns", "a"))
    wait_for(one.manager.idle)
    broken = Fault(lambda method, path: "parts" in path and "watch" in path, 500, times=10**6)
    api.faults.append(broken)
    api.drop()
    wait_for(lambda: one.manager._trusted[0].problem)
    seen = len(one.seen)
    api.put(THINGS, thing("a") | {"spec": {"x": 2}})
    wait_for(lambda: (one.caches.get(THINGS, "ns", "a") or {}).get("spec") == {"x": 2})
    wait_for(lambda: 'outcome="postponed"' in one.page("/metrics")[1])
    assert len(one.seen) == seen
    broken.times = 0
    wait_for(lambda: (api.get(PARTS, "ns", "a") or {})["spec"] == {"x": 2})


def test_what_is_in_doubt_is_read_before_anything_is_done_about_it(api: FakeApi, world: Make) -> None:
    """The watch of Parts is behind: it does not show the Part that is there."""
    one = world()
    api.put(THINGS, thing("a"))
    doubt = Write("patch", PARTS, "ns", "other")
    stopped: list[str] = []

    def decide(key: Key) -> ReconcilePlan:
        if one.caches.get(PARTS, "ns", "other") is not None:
            return ReconcilePlan()
        stopped.append(key[2])
        return ReconcilePlan([Write("delete", THINGS, "ns", "a")], doubts=[doubt])

    one.decide = decide
    api.faults.append(Fault(lambda method, path: "parts" in path and "watch" in path, 500, times=10**6))
    api.faults.append(Fault(lambda method, path: method == "GET" and path.endswith("parts/other"), 500, times=1))
    mute = one.manager._watchers[1]
    mute._take = lambda event: None  # type: ignore[method-assign]
    one.start()
    wait_for(lambda: stopped)  # and the Part could not be read
    api.put(PARTS, thing("other", ownerReferences=[{"name": "a"}]))
    wait_for(lambda: one.caches.get(PARTS, "ns", "other"))
    wait_for(one.manager.idle)
    assert api.get(THINGS, "ns", "a"), "it was there all the time"


def test_the_lease_is_given_back_when_what_was_let_go_is_stored(api: FakeApi, world: Make) -> None:
    for resource in (SECRETS, *CONFIGURATIONS):
        api.install(resource)
    one = world(
        webhooks={"/ask": lambda request: {"allowed": True}},
        hosts=["127.0.0.1"],
        linger=0,
        elect=True,
        terms=QUICK,
        handover=0.6,
    ).start()
    wait_for(lambda: one.manager.leads and one.page("/readyz")[0] == 200)
    one.manager.stop()
    began = time.monotonic()
    wait_for(lambda: not (api.get(LEASES, "ns", "penstock-controller") or {})["spec"]["holderIdentity"])
    assert time.monotonic() - began >= 0.5
    assert not one.manager.leads
