"""The cache: it never goes back, finds by owner, and is the same as the cluster whatever the order in which news arrive."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.controller.names import WORKFLOW_UID
from penstock.controller.objects import ApiResource
from penstock.kubernetes.cache import LAST_APPLIED, Caches, LabelSelector, ObjectCache
from tests.controller.fake_api import names

PODS = ApiResource("v1", "Pod", "pods")
MARKED = ApiResource("v1", "Pod", "pods", selector="mark")


def pod(name: str, version: int | str, uid: str = "", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", "uid": uid or name, "resourceVersion": str(version), **meta}}


def test_an_older_version_is_passed_over_even_if_it_looks_greater_as_text() -> None:
    cache = ObjectCache(PODS)
    assert cache.put(pod("a", 10, labels={"new": "yes"}))
    assert cache.put(pod("a", 9)) is None
    assert cache.put(pod("a", 10)) is None
    found = cache.get("ns", "a")
    assert found is not None
    assert found["metadata"]["labels"] == {"new": "yes"}


def test_versions_that_are_no_numbers_are_taken_as_they_come() -> None:
    cache = ObjectCache(PODS)
    cache.put(pod("a", "x7"))
    assert cache.put(pod("a", "x6")) is not None
    assert cache.put(pod("a", "x6")) is None


def test_a_late_answer_does_not_bring_a_deleted_object_back() -> None:
    cache = ObjectCache(PODS)
    cache.put(pod("a", 5))
    assert cache.remove(pod("a", 7)) is not None
    assert cache.put(pod("a", 6)) is None
    assert cache.put(pod("a", 8, uid="another")) is not None
    assert cache.remove(pod("a", 9)) is None  # the old one
    assert len(cache) == 1


def test_an_answer_from_before_a_list_without_the_object_is_late() -> None:
    cache = ObjectCache(PODS)
    cache.replace([], "20")
    assert cache.put(pod("a", 15)) is None
    assert cache.put(pod("b", 21)) is not None


def test_what_a_writer_put_in_after_the_list_was_made_stays() -> None:
    cache = ObjectCache(PODS)
    cache.put(pod("old", 3))
    cache.put(pod("mine", 12))
    changes = cache.replace([pod("other", 4)], "10")
    assert names(cache.list()) == ["mine", "other"]
    assert {(change.old is None, change.new is None) for change in changes} == {(True, False), (False, True)}


def test_a_list_from_a_store_that_was_set_back_holds() -> None:
    cache = ObjectCache(PODS)
    cache.put(pod("a", 500))
    cache.put(pod("b", 501))
    cache.replace([pod("a", 40)], "60", floor=cache.highest)
    assert names(cache.list()) == ["a"]
    found = cache.get("ns", "a")
    assert found is not None
    assert found["metadata"]["resourceVersion"] == "40"
    assert cache.put(pod("a", 61)) is not None


def test_an_object_that_loses_its_label_is_dropped_and_may_come_back() -> None:
    cache = ObjectCache(MARKED)
    assert cache.put(pod("a", 1)) is None
    assert cache.put(pod("a", 2, labels={"mark": ""})) is not None
    change = cache.put(pod("a", 3))
    assert change is not None and change.new is None
    assert cache.put(pod("a", 2, labels={"mark": ""})) is None
    assert cache.put(pod("a", 4, labels={"mark": ""})) is not None
    # A watch says DELETED of one that left the selection; a writer has seen it come back meanwhile.
    assert cache.remove(pod("a", 3)) is None
    assert len(cache) == 1


def test_by_owner_and_by_workflow() -> None:
    cache = ObjectCache(PODS)
    owners = [{"uid": "u1"}, {"uid": "u2"}]
    cache.put(pod("a", 1, ownerReferences=owners, labels={WORKFLOW_UID: "w"}))
    cache.put(pod("b", 1, ownerReferences=owners[:1]))
    assert names(cache.owned_by("u1")) == ["a", "b"]
    assert names(cache.owned_by("u2")) == ["a"]
    assert names(cache.of_workflow("w")) == ["a"]
    cache.put(pod("a", 2, ownerReferences=owners[:1]))
    assert names(cache.owned_by("u2")) == []
    assert names(cache.of_workflow("w")) == []
    cache.remove(pod("b", 3))
    assert names(cache.owned_by("u1")) == ["a"]


def test_what_nobody_reads_is_not_kept_and_the_kind_is_put_in() -> None:
    cache = ObjectCache(PODS)
    given = pod("a", 1, managedFields=[{}], annotations={LAST_APPLIED: "{}", "mine": "1"})
    cache.put(given)
    found = cache.get("ns", "a")
    assert found is not None
    assert (found["apiVersion"], found["kind"]) == ("v1", "Pod")
    assert "managedFields" not in found["metadata"]
    assert found["metadata"]["annotations"] == {"mine": "1"}
    assert "managedFields" in given["metadata"]  # what was given is not changed


def test_caches_answer_as_a_lookup() -> None:
    caches = Caches([PODS, MARKED])
    caches[PODS].put(pod("a", 1))
    assert names(caches.list(PODS)) == ["a"]
    assert names(caches.list(PODS, "ns")) == ["a"]
    assert names(caches.list(PODS, "other")) == []
    assert caches.get(MARKED, "ns", "a") is None
    assert caches.get(ApiResource("v1", "Node", "nodes"), "", "n") is None
    assert len(caches.holding(ApiResource("v1", "Pod", "pods"))) == 2


@pytest.mark.parametrize(
    ("text", "labels", "holds"),
    [
        ("", {}, True),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("a=b,c!=d", {"a": "b"}, True),
        ("a==b, c != d", {"a": "b", "c": "d"}, False),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in (b, c),!x", {"a": "c", "x": ""}, False),
        ("a notin (b)", {"a": "b"}, False),
        ("kueue.x-k8s.io/queue-name", {"kueue.x-k8s.io/queue-name": "q"}, True),
    ],
)
def test_label_selectors(text: str, labels: dict[str, str], holds: bool) -> None:
    assert LabelSelector(text)(labels) is holds


def test_a_selector_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError):
        LabelSelector("a=(")


@given(st.data())
def test_watch_and_writers_in_any_order_end_with_what_the_cluster_has(data: st.DataObject) -> None:
    """A history of writes and deletes; the watch tells all of it in order, writers' answers arrive at any later moment, lists at any moment."""
    truth: dict[str, dict[str, Any]] = {}
    history: list[tuple[str, dict[str, Any]]] = []
    snapshots: dict[int, list[dict[str, Any]]] = {0: []}
    births = 0
    for version in range(1, data.draw(st.integers(1, 25)) + 1):
        name = data.draw(st.sampled_from("abc"))
        if name in truth and data.draw(st.booleans()):
            gone = truth.pop(name)
            history.append(("DELETED", pod(name, version, uid=gone["metadata"]["uid"])))
        else:
            births += name not in truth
            uid = truth[name]["metadata"]["uid"] if name in truth else f"{name}{births}"
            truth[name] = pod(name, version, uid=uid)
            history.append(("MODIFIED", truth[name]))
        snapshots[version] = list(truth.values())
    cache = ObjectCache(PODS)
    answers: list[dict[str, Any]] = []
    at = 0
    while at < len(history) or answers:
        deed = data.draw(st.sampled_from(["event", "answer", "list"]))
        if deed == "event" and at < len(history):
            kind, obj = history[at]
            at += 1
            cache.put(obj) if kind == "MODIFIED" else cache.remove(obj)
            if kind == "MODIFIED" and data.draw(st.booleans()):
                answers.append(obj)  # its writer hears of it later
        elif deed == "answer" and (answers or at < len(history)):
            if answers:
                cache.put(answers.pop(data.draw(st.integers(0, len(answers) - 1))))
            elif history[at][0] == "MODIFIED":
                cache.put(history[at][1])  # its writer hears of it before the watch does
        elif deed == "list":
            at = data.draw(st.integers(at, len(history)))
            cache.replace(snapshots[at], str(at), floor=0)
    assert {name: one["metadata"]["uid"] for name, one in truth.items()} == {
        one["metadata"]["name"]: one["metadata"]["uid"] for one in cache.list()
    }
