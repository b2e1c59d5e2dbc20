"""Leader election: never two at once, whatever the clocks of the machines say; on a fake API server and a virtual clock."""

from __future__ import annotations

import datetime
import io
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.controller.cluster.leader import Elector, SeenLease, Terms, claim
from penstock.kubernetes.client import ApiError
from penstock.kubernetes.log import Log

WALL = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


class Store:
    """One Lease with versions; the part of a Client that an Elector uses."""

    def __init__(self) -> None:
        self.spec: dict[str, Any] | None = None
        self.notes: dict[str, Any] = {}
        self.version = 0
        self.down: set[str] = set()
        self.lost_answers: set[str] = set()

    def for_(self, who: str) -> Any:
        store = self

        class Part:
            def get(self, resource: Any, namespace: str, name: str, timeout: float) -> dict[str, Any]:
                store.check(who)
                if store.spec is None:
                    raise ApiError(404, "NotFound", "")
                return store.shown()

            def create(self, resource: Any, namespace: str, body: Any) -> dict[str, Any]:
                store.check(who)
                if store.spec is not None:
                    raise ApiError(409, "AlreadyExists", "")
                store.annotate(body)
                return store.write(who, body["spec"])

            def patch(
                self, resource: Any, namespace: str, name: str, body: Any, *, version: str, timeout: float
            ) -> Any:
                store.check(who)
                if store.spec is None:
                    raise ApiError(404, "NotFound", "")
                if version != str(store.version):
                    raise ApiError(409, "Conflict", "")
                store.annotate(body)
                return store.write(who, {**store.spec, **body["spec"]})

        return Part()

    def annotate(self, body: Any) -> None:
        told = {**self.notes, **body["metadata"].get("annotations", {})}
        self.notes = {name: text for name, text in told.items() if text is not None}

    def check(self, who: str) -> None:
        if who in self.down:
            raise ApiError(0, "", "cut off")

    def write(self, who: str, spec: Any) -> dict[str, Any]:
        self.spec = spec
        self.version += 1
        if who in self.lost_answers:
            raise ApiError(0, "", "the answer is lost")
        return self.shown()

    def shown(self) -> dict[str, Any]:
        meta = {"resourceVersion": str(self.version), "annotations": dict(self.notes)}
        return {"spec": dict(self.spec or {}), "metadata": meta}


class Candidate:
    """An elector driven step by step: what `run` does between two waits."""

    def __init__(self, store: Store, name: str, now: list[float], address: str = "") -> None:
        self.name = name
        self.ended = False
        self.elector = Elector(
            store.for_(name), "ns", "lease", name, Log(io.StringIO()), address=address, clock=lambda: now[0]
        )

    def step(self, now: float) -> None:
        elector = self.elector
        if self.ended:
            return
        if not elector._leads:
            elector._leads = elector._attempt()
        elif not elector._attempt() and (
            now - elector._renewed > Terms().renew_deadline or elector.holder not in ("", self.name)
        ):
            elector._leads = False
            self.ended = True


DEEDS = st.sampled_from(["step"] * 8 + ["pass"] * 4 + ["cut", "mend", "mend", "lose", "find", "find"])
STEPS = st.lists(st.tuples(DEEDS, st.sampled_from("ab"), st.sampled_from([2.0, 5.0, 8.0])), min_size=5, max_size=60)


@settings(max_examples=300)
@given(STEPS)
def test_never_two_lead_at_once(steps: list[tuple[str, str, float]]) -> None:
    store, now = Store(), [1000.0]
    candidates = {name: Candidate(store, name, now) for name in "ab"}
    for deed, name, seconds in steps:
        if deed == "step":
            candidates[name].step(now[0])
        elif deed == "cut":
            store.down.add(name)
        elif deed == "mend":
            store.down.discard(name)
        elif deed == "lose":
            store.lost_answers.add(name)
        elif deed == "find":
            store.lost_answers.discard(name)
        else:
            now[0] += seconds
        assert len([one for one in candidates.values() if one.elector.leads]) <= 1


def test_a_dead_leader_is_replaced_after_its_time_by_our_own_clock() -> None:
    store, now = Store(), [0.0]
    one, two = Candidate(store, "one", now), Candidate(store, "two", now)
    one.step(now[0])
    assert one.elector.leads
    assert store.spec is not None
    store.spec["renewTime"] = "1999-01-01T00:00:00.000000Z"  # its clock is years behind: no matter
    store.version += 1
    now[0] = 100.0
    two.step(now[0])
    assert not two.elector.leads  # we see it for the first time: it may be alive
    now[0] = 114.0
    two.step(now[0])
    assert not two.elector.leads
    now[0] = 115.5
    two.step(now[0])
    assert two.elector.leads
    assert store.spec["leaseTransitions"] == 1
    assert not one.elector.leads


def test_who_gives_it_back_is_replaced_at_once() -> None:
    store, now = Store(), [0.0]
    one, two = Candidate(store, "one", now), Candidate(store, "two", now)
    one.step(0)
    two.step(0)
    assert not two.elector.leads
    one.elector._leads = False
    one.elector.release()
    two.step(0)
    assert two.elector.leads


def test_the_others_know_where_the_leader_answers() -> None:
    store, now = Store(), [0.0]
    one, two = Candidate(store, "one", now, "10.0.0.1:9443"), Candidate(store, "two", now, "10.0.0.2:9443")
    silent = Candidate(store, "silent", now)
    one.step(0), two.step(0)
    assert two.elector.leader == "10.0.0.1:9443"
    assert not one.elector.leader, "who leads asks nobody"
    now[0] = 16.0
    assert not two.elector.leader, "it was not renewed: perhaps it is gone"
    silent.step(16)
    now[0] = 32.0
    silent.step(32)  # it takes the lease
    two.step(32), one.step(32)
    assert silent.elector.leads and not two.elector.leader, "the address of the one before is not its own"


def test_who_gives_it_back_has_no_address() -> None:
    store, now = Store(), [0.0]
    one = Candidate(store, "one", now, "10.0.0.1:9443")
    one.step(0)
    assert store.notes == {"penstock/address": "10.0.0.1:9443"}
    one.elector._leads = False
    one.elector.release()
    assert not store.notes


def test_a_process_that_slept_does_not_lead() -> None:
    store, now = Store(), [0.0]
    one = Candidate(store, "one", now)
    one.step(0)
    now[0] = 15.1
    assert not one.elector.leads


def test_a_claim_keeps_the_time_at_which_it_was_won() -> None:
    first = claim(None, "me", Terms(), WALL)
    assert (first["leaseDurationSeconds"], first["leaseTransitions"]) == (15, 0)
    later = claim(SeenLease(first, "1", 0), "me", Terms(), WALL + datetime.timedelta(seconds=2))
    assert (later["acquireTime"], later["leaseTransitions"]) == (first["acquireTime"], 0)
    assert later["renewTime"] > first["renewTime"]
    other = claim(SeenLease(first, "1", 0), "you", Terms(), WALL)
    assert (other["holderIdentity"], other["leaseTransitions"]) == ("you", 1)
