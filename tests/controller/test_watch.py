"""List and watch: what the cache holds is what the server has, whatever breaks between."""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable, Iterator

import pytest

from penstock.controller.objects import ApiResource
from penstock.kubernetes import watch as watch_module
from penstock.kubernetes.cache import Change, ObjectCache
from penstock.kubernetes.client import Client
from penstock.kubernetes.log import Log
from penstock.kubernetes.watch import Watcher
from tests.controller.conftest import THINGS
from tests.controller.fake_api import FakeApi, Fault, names, thing, wait_for

Start = Callable[..., Watcher]


@pytest.fixture
def start(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr(watch_module, "FIRST", 0.01)
    begun: list[Watcher] = []

    def make(resource: ApiResource = THINGS, **given: float) -> Watcher:
        changes: list[Change] = []
        watcher = Watcher(client, ObjectCache(resource), changes.append, Log(io.StringIO()), **given)
        watcher.changes = changes  # type: ignore[attr-defined]
        begun.append(watcher)
        watcher.start()
        return watcher

    yield make
    for watcher in begun:
        watcher.stop()
        watcher.join(5)
        assert not watcher.alive()


def same(api: FakeApi, watcher: Watcher) -> bool:
    def shown(objects: object) -> set[tuple[str, str]]:
        return {(one["metadata"]["name"], one["metadata"]["resourceVersion"]) for one in objects}  # type: ignore[attr-defined]

    return shown(api.all(THINGS)) == shown(watcher.cache.list())


def test_it_lists_then_follows(api: FakeApi, start: Start) -> None:
    api.put(THINGS, thing("before"))
    watcher = start()
    wait_for(lambda: watcher.synced)
    api.put(THINGS, thing("after"))
    wait_for(lambda: names(watcher.cache.list()) == ["after", "before"])
    api.remove(THINGS, "ns", "before")
    wait_for(lambda: names(watcher.cache.list()) == ["after"])
    assert [(c.old is None, c.new is None) for c in watcher.changes] == [(True, False), (True, False), (False, True)]  # type: ignore[attr-defined]


def test_how_long_it_has_told_all_counts_from_the_end_of_trouble(api: FakeApi, start: Start) -> None:
    watcher = start()
    assert watcher.good_for() < 5
    wait_for(lambda: watcher.good_for() > 0.05)
    broken = Fault(lambda method, path: "watch=true" in path, 500, times=10**6)
    api.faults.append(broken)
    api.drop()
    wait_for(lambda: watcher.problem)
    assert watcher.good_for() == 0
    began = time.monotonic()
    broken.times = 0
    wait_for(lambda: watcher.good_for() > 0)
    assert watcher.good_for() <= time.monotonic() - began


def test_a_stream_that_ends_is_resumed_without_a_list(api: FakeApi, start: Start) -> None:
    watcher = start(seconds=1)
    wait_for(lambda: watcher.synced)
    for number in range(5):
        api.drop()
        api.put(THINGS, thing(f"t{number}"))
        wait_for(lambda: same(api, watcher))
    assert watcher.lists == 1


def test_a_bookmark_moves_the_place_to_resume_from(api: FakeApi, start: Start) -> None:
    watcher = start(seconds=1)
    wait_for(lambda: watcher.synced)
    with api.changed:
        api.version += 50  # others write
    wait_for(lambda: api.asked("GET", f"resourceVersion={api.version}"))
    assert watcher.lists == 1


def test_too_old_means_list_again_and_deletes_are_found(api: FakeApi, start: Start) -> None:
    api.put(THINGS, thing("a"))
    api.put(THINGS, thing("b"))
    watcher = start()
    wait_for(lambda: watcher.synced)
    wait_for(lambda: api.asked("GET", "watch=true"))
    with api.changed:  # nobody sees these: the log is forgotten before the watch can tell
        api.remove(THINGS, "ns", "a")
        api.put(THINGS, thing("c"))
        api.forget()
    wait_for(lambda: names(watcher.cache.list()) == ["b", "c"])
    assert watcher.lists == 2
    gone = [c for c in watcher.changes if c.new is None]  # type: ignore[attr-defined]
    assert names(c.old for c in gone) == ["a"]


def test_a_restart_of_the_server(api: FakeApi, start: Start) -> None:
    watcher = start()
    wait_for(lambda: watcher.synced)
    api.stop()
    api.put(THINGS, thing("meanwhile"))
    wait_for(lambda: watcher.problem)
    assert watcher.synced  # it has been, and its cache still answers
    api.start()
    wait_for(lambda: same(api, watcher))
    wait_for(lambda: not watcher.problem)


def test_a_kind_that_is_installed_later_is_picked_up_and_one_that_goes_is_emptied(api: FakeApi, start: Start) -> None:
    api.put(THINGS, thing("a"))
    api.uninstall(THINGS)
    watcher = start(absent=0.02)
    wait_for(lambda: watcher.state == "absent")
    assert watcher.synced
    api.install(THINGS)
    wait_for(lambda: watcher.state == "synced" and same(api, watcher))
    api.uninstall(THINGS)
    wait_for(lambda: watcher.state == "absent")
    assert not len(watcher.cache)


def test_no_rights_is_not_synced_and_says_why(api: FakeApi, start: Start) -> None:
    api.faults.append(Fault(lambda method, path: True, 403, "Forbidden", times=3))
    watcher = start()
    wait_for(lambda: watcher.state == "refused")
    assert not watcher.synced
    assert "Forbidden" in watcher.problem
    wait_for(lambda: watcher.synced)


def test_a_server_that_closes_every_watch_at_once_is_not_asked_without_end(api: FakeApi, start: Start) -> None:
    api.faults.append(Fault(lambda method, path: "watch=true" in path, 500, times=8))
    watcher = start()
    wait_for(lambda: not api.faults[0].times)
    assert watcher.lists == 1
    api.put(THINGS, thing("a"))
    wait_for(lambda: same(api, watcher))


def test_a_selection(api: FakeApi, start: Start) -> None:
    some = ApiResource(THINGS.api, THINGS.kind, THINGS.plural, selector="mark=yes")
    api.put(THINGS, thing("no"))
    api.put(THINGS, thing("yes", labels={"mark": "yes"}))
    watcher = start(some)
    wait_for(lambda: names(watcher.cache.list()) == ["yes"])
    api.put(THINGS, thing("yes"))
    wait_for(lambda: not len(watcher.cache))
    api.put(THINGS, thing("yes", labels={"mark": "yes"}))
    wait_for(lambda: names(watcher.cache.list()) == ["yes"])


@pytest.mark.parametrize("seed", range(3))
def test_random_trouble(api: FakeApi, start: Start, seed: int) -> None:
    chance = random.Random(seed)
    watcher = start(seconds=1)
    for _ in range(150):
        name = f"t{chance.randrange(6)}"
        if chance.random() < 0.3 and api.get(THINGS, "ns", name):
            api.remove(THINGS, "ns", name)
        else:
            written = api.put(THINGS, thing(name))
            if chance.random() < 0.3:
                watcher.cache.put(written)
        trouble = chance.random()
        if trouble < 0.05:
            api.drop()
        elif trouble < 0.08:
            api.forget()
        elif trouble < 0.1:
            api.stop()
            api.start()
        elif trouble < 0.13:
            api.faults.append(Fault(lambda method, path: True, 500))
    wait_for(lambda: same(api, watcher))
