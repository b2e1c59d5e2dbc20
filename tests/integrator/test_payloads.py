"""Payloads: one run for each identity, whatever is submitted, how often and by how many (T3.1, T3.2, T3.6)."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from penstock.errors import UserError
from penstock.graph import codec
from penstock.graph.payload_paths import PayloadIdentity
from penstock.service.pasted import converted
from penstock.service.payloads.canonical import NotCanonical, canonical
from penstock.service.payloads.identity import counted, payload_id
from penstock.store.sql import Store, open_store
from tests.integrator.payloads import end, flow, send

# -- T3.1 -------------------------------------------------------------------------------------------------------------


def test_t3_1_fifty_submissions_of_one_payload_at_once_make_one_run(where: str) -> None:
    open_store(where).close()
    many, found, gate = 50, [], threading.Barrier(50)

    def one(number: int) -> None:
        with open_store(where) as store:
            gate.wait(60)
            found.append(send(store, {"id": "scene-1", "n": [1, 2]}))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(found) == many and sum(one.created for one in found) == 1
    assert {one.payload.run_id for one in found} == {"ingest-1"}
    with open_store(where) as store:
        assert [run.id for run in store.runs.newest()] == ["ingest-1"]
        assert store.orders.runs() == {1}


# -- T3.2: the table --------------------------------------------------------------------------------------------------

P = {"id": "scene-1"}
TABLE = [
    # state of the newest run, what was done then, what is asked for, a new run?
    ("stopped", {}, {}, False),
    ("running", {}, {}, False),
    ("running", {}, {"version": 2}, False),
    ("running", {}, {"replace": True}, False),
    ("running", {"invalidate": 0.0}, {}, False),
    ("succeeded", {}, {}, False),
    ("succeeded", {}, {"version": 1}, False),
    ("succeeded", {}, {"version": 0}, False),
    ("succeeded", {}, {"version": 2}, True),
    ("succeeded", {}, {"replace": True}, True),
    ("succeeded", {"invalidate": 0.0}, {}, True),
    ("succeeded", {"invalidate": 1000.0}, {}, True),
    ("succeeded", {"invalidate": 1e12}, {}, False),
    ("succeeded", {"invalidate": None}, {}, False),
    ("invalid", {}, {}, False),
    ("invalid", {}, {"version": 2}, True),
    ("invalid", {}, {"replace": True}, True),
    ("invalid", {"invalidate": 0.0}, {}, True),
    ("failed", {}, {}, True),
    ("cancelled", {}, {}, True),
]


@pytest.mark.parametrize(("state", "then", "asked", "new"), TABLE)
def test_t3_2_the_table_of_what_a_submission_gets(
    store: Store, state: str, then: dict[str, Any], asked: dict[str, Any], new: bool
) -> None:
    first = send(store, P)
    assert first.run is not None
    if state != "stopped":
        end(store, first.run.number, state.replace("invalid", "failed"), "Bad: no", state == "invalid")
    if "invalidate" in then:
        assert store.payloads.invalidate(first.payload.id, then["invalidate"], 1.0, "ann")
    again = send(store, P, **asked)
    assert again.created == new
    assert again.payload.attempts == (2 if new else 1)
    assert again.payload.run_id == ("ingest-2" if new else "ingest-1")
    if new:  # and that is in flight now, invalidated or not
        assert not send(store, P, **asked).created


def test_t3_2_an_invalidation_while_it_runs_counts_when_it_has_ended(store: Store) -> None:
    run = send(store, P).run
    assert run is not None
    end(store, run.number, "running")
    store.payloads.invalidate(send(store, P).payload.id, 0.0, 1.0, "ann")
    assert not send(store, P).created
    end(store, run.number, "succeeded")
    again = send(store, P)
    assert again.created and again.payload.invalid_after is None
    assert again.run is not None
    end(store, again.run.number, "succeeded")
    assert not send(store, P).created


def test_t3_2_a_higher_version_while_it_runs_gets_a_run_of_its_own_afterwards(store: Store) -> None:
    run = send(store, P).run
    assert run is not None
    end(store, run.number, "running")
    assert not send(store, P, version=2).created
    end(store, run.number, "succeeded")
    assert send(store, P, version=2).created


def test_each_attempt_is_a_run_that_says_which_it_is(store: Store) -> None:
    for number in (1, 2, 3):
        made = send(store, P)
        assert made.run is not None
        end(store, made.run.number, "failed", "Timeout: too slow")
        origin = store.runs.origin(made.run.number)
        assert origin is not None and (origin.payload, origin.attempt) == (made.payload.id, number)
        first = next(iter(store.runs.events(made.run.number)))
        assert (first.data["payload"], first.data["attempt"]) == (made.payload.id, number)
    assert [one.run for one in store.runs.origins_of_payload(made.payload.id)] == [1, 2, 3]
    said = [(one.kind, one.data["run"], one.data["why"]) for one in store.payloads.events(made.payload.id)]
    assert said == [
        ("payload.submitted", "ingest-1", "new"),
        ("payload.submitted", "ingest-2", "failed"),
        ("payload.submitted", "ingest-3", "failed"),
    ]


def test_an_id_that_no_database_takes_is_no_reason_to_refuse(store: Store) -> None:
    made = send(store, {"id": "a\0\ud800b" + "x" * 300, "n": 1}, flow("labels", include=(".n",)))
    assert made.payload.label.startswith("a?b") and len(made.payload.label) < 201


def test_a_payload_whose_run_was_removed_is_new(store: Store) -> None:
    run = send(store, P).run
    assert run is not None
    end(store, run.number, "succeeded")
    store.maintenance.delete_runs([run.number], 0.0)
    again = send(store, P)
    assert again.created and again.payload.attempts == 1


# -- T3.6 -------------------------------------------------------------------------------------------------------------


def ids(payload: Any, **identity: Any) -> str:
    return payload_id("w", PayloadIdentity(**identity), payload)


def test_t3_6_order_of_keys_and_spaces_do_not_change_the_identity() -> None:
    one = json.loads('{"a": {"x": 1, "y": [1, {"p": 1, "q": 2}]}, "b": 1.0}')
    two = json.loads('{"b":1,\n "a":{"y":[1.0,{"q":2,"p":1}],"x":1e0}}')
    assert ids(one) == ids(two)
    assert ids(one) != ids({**one, "b": 2})
    assert ids(one) != payload_id("other", PayloadIdentity(), one)


def test_t3_6_excluded_paths_do_not_count_and_included_ones_do(store: Store) -> None:
    payload = {"features": [{"id": "a", "seen": 1}, {"id": "b", "seen": 2}], "note": "x"}
    same = {"note": "y", "features": [{"seen": 9, "id": "a"}, {"seen": 8, "id": "b"}]}
    other = {"features": [{"id": "a", "seen": 1}, {"id": "c", "seen": 2}], "note": "x"}
    for identity in ({"include": (".features[].id",)}, {"exclude": (".note", ".features[].seen")}):
        workflow = flow("f" + str(len(identity)) + next(iter(identity)), **identity)
        assert send(store, payload, workflow).created
        assert not send(store, same, workflow).created
        assert send(store, other, workflow).created


def test_t3_6_the_nearest_path_above_a_place_decides() -> None:
    identity = PayloadIdentity(include=(".a", ".a.b.c"), exclude=(".a.b", ".a.b.c.d"))
    payload = {"a": {"k": 1, "b": {"x": 2, "c": {"y": 3, "d": 4}}}, "z": 5}
    assert counted(identity, payload) == {"a": {"k": 1, "b": {"c": {"y": 3}}}}


def test_t3_6_what_is_left_out_of_a_list_leaves_the_others_their_place() -> None:
    identity = PayloadIdentity(include=(".l[].id",))
    assert counted(identity, {"l": [{"id": 1}, {"n": 1}, {"id": 2}]}) == {"l": [{"id": 1}, None, {"id": 2}]}


@pytest.mark.parametrize("payload", [{}, {"l": []}, {"l": {"id": 1}}, [], 3, None, {"l": [{}]}])
def test_an_included_path_that_matches_nothing_is_refused(payload: Any) -> None:
    with pytest.raises(UserError, match=r"P513.*\.l\[\]\.id matches nothing"):
        ids(payload, include=(".l[].id",))
    assert ids(payload, include=(".l[].id?",))


# -- canonical JSON ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (333333333.33333329, "333333333.3333333"),
        (1e30, "1e+30"),
        (4.50, "4.5"),
        (2e-3, "0.002"),
        (0.000000000000000000000000001, "1e-27"),
        (-0.0, "0"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (10**20, "100000000000000000000"),
        (10**23, "1e+23"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (2**53 + 1, "9007199254740993"),
        (-1.5e-9, "-1.5e-9"),
        (True, "true"),
        ('\u20ac$\u000f\nA\'B"\\"/', '"€$\\u000f\\nA\'B\\"\\\\\\"/"'),
        ({"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\x80": 6, "\xf6": 7}, None),
    ],
)
def test_canonical_json(value: Any, text: str | None) -> None:
    if text is None:  # the order of RFC 8785, section 3.2.3
        assert list(json.loads(canonical(value)).values()) == [2, 4, 6, 7, 1, 5, 3]
    else:
        assert canonical(value) == text


@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), 10**309, "\ud800", {1: 2}, {"a": object()}, {"\udfff": 1}]
)
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(NotCanonical):
        canonical(value)
    with pytest.raises(UserError, match="P512"):
        ids({"a": value})


def test_a_number_with_thousands_of_digits_is_refused() -> None:
    with pytest.raises(UserError, match="P512"):
        ids({"a": 10**5000})


def test_a_payload_may_not_be_too_deep() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UserError, match=r"P512.*nested deeper than 200"):
        ids(deep)
    with pytest.raises(UserError, match=r"P512.*nested deeper than 200"):
        ids({"a": deep}, include=(".a",))
    while deep != 1:  # taken apart by hand: Python's own way is recursive
        deep = deep[0]


@pytest.mark.parametrize("to", ["argo", "tekton"])
def test_other_systems_know_no_payloads_and_that_is_said(to: str) -> None:
    made = converted(codec.to_json(flow()), None, to)
    assert [one.path for one in made.report.of("lost") if "payload" in one.path] == ["payload"]


def test_what_identifies_a_payload_is_written_as_python() -> None:
    text = converted(codec.to_json(flow(include=(".id",), version=3)), None, "python").text
    assert "PayloadIdentity(" in text and ".id" in text
