"""Preemption: what holds in all states, the same search done the slow way, and the rules one by one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.admission.assignment import Assignment, Mode
from penstock.admission.candidates import PreemptionTarget, allowed, full_order, requested
from penstock.admission.flavors import FlavorAssigner
from penstock.admission.model import (
    Admission,
    ClusterQueue,
    Cohort,
    Config,
    Eviction,
    FlavorQuotas,
    FlavorResource,
    PodSet,
    PodSetAssignment,
    Policy,
    Preemption,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Workload,
)
from penstock.admission.preemption import Preemptor
from penstock.admission.snapshot import Snapshot, usage_of
from tests.admission.slow import Fair, Slow, allows, victims
from tests.admission.worlds import pending, picture, states
from tests.graph.strategies import examples

EITHER = states() | states(fair_sharing=True) | states(fair_sharing=True, strategies=("LessThanInitialShare",))
CPU = FlavorResource("f", "cpu")


def assign(state: Snapshot, new: Workload, queue: str) -> Assignment:
    return FlavorAssigner(state, Preemptor(state).simulate).assign(new, queue)


def may_preempt(preemptor: Workload, candidate: Workload, policy: Policy, config: Config) -> bool:
    return bool(allowed(preemptor, (candidate,), policy, config))


def targets(state: Snapshot, new: Workload, queue: str, assignment: Assignment, now: float) -> list[PreemptionTarget]:
    return Preemptor(state).targets(new, queue, assignment, now)


def wanted(state: Snapshot, new: Workload) -> list[tuple[str, Assignment]]:
    """(queue, assignment) where the Workload needs a preemption."""
    found = [(name, assign(state, new, name)) for name in state.tree.queues]
    return [(name, assignment) for name, assignment in found if assignment.kind == "Preempt"]


def home(target: PreemptionTarget) -> str:
    assert target.workload.admission is not None
    return target.workload.admission.cluster_queue


# -- whatever the queues look like ------------------------------------------------------------------------------------


@examples(150)
@given(EITHER, pending())
def test_nothing_is_changed_by_asking(state: Snapshot, new: Workload) -> None:
    before = picture(state)
    for name, assignment in wanted(state, new):
        assert picture(state) == before
        targets(state, new, name, assignment, 9.0)
        assert picture(state) == before
        for fr, amount in assignment.usage.items():
            Preemptor(state).simulate(new, name, fr, amount)
            assert picture(state) == before


@examples(150)
@given(EITHER, pending())
def test_with_the_targets_gone_it_fits_and_with_any_of_them_it_does_not(state: Snapshot, new: Workload) -> None:
    for name, assignment in wanted(state, new):
        found = targets(state, new, name, assignment, 9.0)
        request = requested(assignment.usage)
        node = state.tree.queues[name]
        for target in found:
            state.tree.queues[home(target)].remove(target.workload.held)
        assert not found or all(amount <= node.available(fr) for fr, amount in request.items())
        within = all(not node.borrowing_with(fr, amount) for fr, amount in request.items())
        for target in found:
            other = state.tree.queues[home(target)]
            other.add(target.workload.held)
            fits = all(amount <= node.available(fr) for fr, amount in request.items())
            assert not fits or (within and not state.config.fair_sharing and _borrows(node, request))
            other.remove(target.workload.held)
        for target in found:
            state.tree.queues[home(target)].add(target.workload.held)


def _borrows(node: Any, request: dict[FlavorResource, int]) -> bool:
    return any(node.borrowing_with(fr, amount) for fr, amount in request.items())


@examples(150)
@given(EITHER, pending())
def test_nothing_is_preempted_that_the_policy_protects(state: Snapshot, new: Workload) -> None:
    for name, assignment in wanted(state, new):
        rules = state.cluster_queues[name].preemption
        found = targets(state, new, name, assignment, 9.0)
        for target in found:
            own = home(target) == name
            assert (target.reason == "InClusterQueue") == own
            assert allows(rules.within if own else rules.reclaim, new, target.workload)
            assert not assignment.needs().isdisjoint(target.workload.held)
            if not own:
                assert state.tree.queues[home(target)].root is state.tree.queues[name].root
                assert not state.tree.queues[home(target)].within(assignment.needs())
        assert len({target.workload.key for target in found}) == len(found)


@examples(150)
@given(EITHER, pending())
def test_a_queue_that_may_not_preempt_does_not(state: Snapshot, new: Workload) -> None:
    state.cluster_queues = {
        name: replace(queue, preemption=Preemption()) for name, queue in state.cluster_queues.items()
    }
    for name, assignment in wanted(state, new):
        assert targets(state, new, name, assignment, 9.0) == []
        assert assignment.mode is Mode.NO_CANDIDATES


def told(
    state: Snapshot, new: Workload, name: str, needs: frozenset[FlavorResource], request: dict[FlavorResource, int]
) -> list[tuple[str, str]]:
    """(key, reason) of each target, computed the slow way."""
    slow = Slow(state, [each for held in state.holders.values() for each in held.values()])
    if state.config.fair_sharing:
        return Fair(slow, new, name, needs, request).victims(state.config.strategies)
    return victims(slow, new, name, needs, request)


@examples(150)
@given(EITHER, pending())
def test_it_is_what_the_rules_say(state: Snapshot, new: Workload) -> None:
    for name, assignment in wanted(state, new):
        found = targets(state, new, name, assignment, 9.0)
        expected = told(state, new, name, assignment.needs(), requested(assignment.usage))
        assert sorted((target.workload.key, target.reason) for target in found) == expected


@examples(150)
@given(EITHER, pending(most=1))
def test_a_simulation_gives_what_would_happen(state: Snapshot, new: Workload) -> None:
    for name, assignment in wanted(state, new):
        for fr in assignment.needs():
            found = told(state, new, name, frozenset((fr,)), {fr: assignment.usage[fr]})
            reasons = {reason for _, reason in found}
            expected = Mode.PREEMPT if "InClusterQueue" in reasons else Mode.RECLAIM if found else Mode.NO_CANDIDATES
            assert Preemptor(state).simulate(new, name, fr, assignment.usage[fr])[0] is expected


@examples(150)
@given(states(), pending(), st.data())
def test_nobody_is_taken_from_a_queue_that_is_inactive(state: Snapshot, new: Workload, data: st.DataObject) -> None:
    names = sorted(state.cluster_queues)
    assume(len(names) > 1)
    off = data.draw(st.sampled_from(names))
    state.inactive = {off}
    state.config = replace(state.config, fair_sharing=data.draw(st.booleans()))
    state.rebuild()
    for name, assignment in wanted(state, new):
        if name != off:
            assert off not in {home(target) for target in targets(state, new, name, assignment, 9.0)}


SCRIPT = """
from random import Random
from tests.admission.test_preemption import Config, targets, wanted
from tests.admission.worlds import pending_by, state_by

for seed in range(150):
    chance = Random(seed)
    state, new = state_by(chance, Config(fair_sharing=seed % 2 == 1)), pending_by(chance)
    for name, assignment in wanted(state, new):
        found = targets(state, new, name, assignment, 9.0)
        print(name, assignment, [(target.workload.key, target.reason) for target in found])
"""


def test_the_same_question_has_the_same_answer_in_every_process() -> None:
    """Sets of strings have another order in each process."""
    answers = []
    for salt in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": salt},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        answers.append(ran.stdout)
    assert answers[0] == answers[1]
    assert "InCohort" in answers[0] and "InClusterQueue" in answers[0]


# -- the rules one by one ---------------------------------------------------------------------------------------------


def holder(name: str, where: str, amount: int, priority: int = 0, at: float = 0.0, **more: Any) -> Workload:
    workload = Workload(name=name, uid=name, podsets=(PodSet(requests={"cpu": amount}),), priority=priority, **more)
    workload.admission = Admission(where, (PodSetAssignment("main", 1, {"cpu": "f"}, {"cpu": amount}),))
    workload.held = usage_of(workload.admission, {})
    workload.reserved_at = at
    return workload


def queue(name: str, quota: int | Quota, cohort: str | None = "all", **more: Any) -> ClusterQueue:
    found = quota if isinstance(quota, Quota) else Quota(quota)
    rules = {each: more.pop(each) for each in ("within", "reclaim", "borrow", "borrow_threshold") if each in more}
    return ClusterQueue(
        name=name,
        cohort=cohort,
        groups=(ResourceGroup(("cpu",), (FlavorQuotas("f", {"cpu": found}),)),),
        preemption=Preemption(**rules),
        **more,
    )


def world(
    queues: Iterable[ClusterQueue], held: Iterable[Workload], cohorts: Iterable[Cohort] = (), **config: Any
) -> Snapshot:
    state = Snapshot(Config(**config))
    state.flavors = {"f": ResourceFlavor(name="f")}
    state.cluster_queues = {each.name: each for each in queues}
    state.cohorts = {each.name: each for each in cohorts}
    state.rebuild()
    for each in held:
        state.hold(each)
    return state


def asks(state: Snapshot, name: str, amount: int, priority: int = 0, **more: Any) -> dict[str, str]:
    new = Workload(name="new", podsets=(PodSet(requests={"cpu": amount}),), priority=priority, **more)
    found = assign(state, new, name)
    return {each.workload.name: each.reason for each in targets(state, new, name, found, 9.0)}


def test_the_lowest_priority_goes_first_then_the_latest() -> None:
    state = world(
        [queue("a", 6, None, within=Policy.LOWER)],
        [holder("old", "a", 2, 0, 1.0), holder("new", "a", 2, 0, 2.0), holder("high", "a", 2, 1, 3.0)],
    )
    assert asks(state, "a", 2, priority=1) == {"new": "InClusterQueue"}
    assert asks(state, "a", 4, priority=1) == {"new": "InClusterQueue", "old": "InClusterQueue"}
    assert asks(state, "a", 6, priority=1) == {}
    assert asks(state, "a", 2, priority=0) == {}


def test_who_is_on_the_way_out_goes_first_and_who_is_not_needed_stays() -> None:
    state = world(
        [queue("a", 6, None, within=Policy.LOWER)],
        [
            holder("low", "a", 1, 0, eviction=None),
            holder("leaving", "a", 2, 1, eviction=Eviction("Preempted", 1.0)),
            holder("big", "a", 3, 2),
        ],
    )
    assert asks(state, "a", 2, priority=3) == {"leaving": "InClusterQueue"}
    assert asks(state, "a", 4, priority=3) == {"leaving": "InClusterQueue", "big": "InClusterQueue"}


def test_equal_priorities_and_times() -> None:
    lately = holder("lately", "a", 1, created=700.0)
    for config, since, expected in (
        (Config(), 699.0, True),
        (Config(), 700.0, False),
        (Config(gates={"SchedulerTimestampPreemptionBuffer": True}), 401.0, False),
        (Config(gates={"SchedulerTimestampPreemptionBuffer": True}), 399.0, True),
    ):
        new = Workload(name="new", created=since)
        assert may_preempt(new, lately, Policy.LOWER_OR_NEWER, config) == expected
        assert not may_preempt(new, lately, Policy.LOWER, config)
        assert not may_preempt(new, lately, Policy.NEVER, config)
        assert may_preempt(new, lately, Policy.ANY, config)


def test_a_boost_counts_only_behind_its_gate() -> None:
    other = holder("other", "a", 1, 5)
    new = Workload(name="new", priority=4, boost=3)
    assert not may_preempt(new, other, Policy.LOWER, Config())
    assert may_preempt(new, other, Policy.LOWER, Config(gates={"PriorityBoost": True}))
    other.boost = 3
    assert not may_preempt(new, other, Policy.LOWER, Config(gates={"PriorityBoost": True}))


def test_a_queue_reclaims_its_own_quota_from_those_that_borrow() -> None:
    state = world(
        [queue("a", 4, reclaim=Policy.ANY), queue("b", 4), queue("c", 4)],
        [holder("b1", "b", 4, 9), holder("b2", "b", 4, 8), holder("c1", "c", 4, 0)],
    )
    assert asks(state, "a", 4) == {"b2": "InCohortReclamation"}
    assert asks(state, "a", 5) == {}


def test_while_it_borrows_only_those_below_the_threshold() -> None:
    rules = {"reclaim": Policy.LOWER, "borrow": Policy.LOWER, "borrow_threshold": 1}
    held = [holder("low", "b", 3, 0), holder("middle", "b", 3, 2), holder("own", "a", 2, 9)]
    state = world([queue("a", 2, **rules), queue("b", 2), queue("c", 4)], held)
    assert asks(state, "a", 3, priority=5) == {"low": "InCohortReclaimWhileBorrowing"}
    assert asks(state, "a", 5, priority=5) == {}
    assert asks(state, "a", 3, priority=0) == {}


def test_who_stands_nearer_to_the_quota_may_take_it_whatever_the_priority() -> None:
    cohorts = [Cohort(name="left", parent="all"), Cohort(name="right", parent="all")]
    queues = [
        queue("a", 0, "left", reclaim=Policy.ANY),
        queue("lender", 4, "left"),
        queue("far", 0, "right"),
        queue("spare", 1, "right"),
    ]
    state = world(queues, [holder("far1", "far", 5, 9)], cohorts)
    assert asks(state, "a", 4) == {"far1": "InCohortReclamation"}
    state = world(queues, [holder("far1", "far", 1, 9), holder("near", "lender", 4, 9)], cohorts)
    assert asks(state, "a", 4) == {}


def test_of_one_queue_those_of_the_local_queue_with_the_highest_usage_come_first() -> None:
    held = [
        holder("cheap", "a", 1, 0, queue="small"),
        holder("dear", "a", 1, 3, queue="large"),
        holder("leaving", "a", 1, 9, queue="small", eviction=Eviction("Preempted", 1.0)),
        holder("elsewhere", "b", 1, 5, queue="large"),
    ]
    state = world([queue("a", 9, usage_based=True), queue("b", 9)], held)
    assert ordered(held, state) == ["leaving", "elsewhere", "cheap", "dear"]
    state.local_usage = {"default/small": 1.0, "default/large": 2.0}.__getitem__
    assert ordered(held, state) == ["leaving", "elsewhere", "dear", "cheap"]
    assert ordered(held, state, usage_based=False) == ["leaving", "elsewhere", "cheap", "dear"]


def ordered(held: list[Workload], state: Snapshot, usage_based: bool = True) -> list[str]:
    return [each.name for each in sorted(held, key=full_order(state, "a", 9.0, usage_based))]


# -- fair sharing -----------------------------------------------------------------------------------------------------

FAIR: dict[str, Any] = {"reclaim": Policy.ANY, "within": Policy.LOWER}


def test_the_largest_share_gives_first() -> None:
    state = world(
        [queue("a", 3, **FAIR), queue("b", 3, **FAIR), queue("c", 3, **FAIR)],
        [
            *(holder(f"a{i}", "a", 1) for i in range(3)),
            *(holder(f"b{i}", "b", 1) for i in range(5)),
            holder("c0", "c", 1),
        ],
        fair_sharing=True,
    )
    assert asks(state, "c", 1) == {"b0": "InCohortReclamation"}
    assert asks(state, "a", 1) == {"b0": "InCohortFairSharing"}
    assert asks(state, "a", 2) == {}


def test_the_own_share_may_not_pass_the_others_final_one() -> None:
    queues = [queue("a", 0, **FAIR), queue("b", 0, **FAIR), queue("bank", 6)]
    held = [holder("a0", "a", 2), holder("b0", "b", 4)]
    assert asks(world(queues, held, fair_sharing=True, strategies=("LessThanOrEqualToFinalShare",)), "a", 1) == {}
    assert asks(world(queues, held, fair_sharing=True), "a", 1) == {"b0": "InCohortFairSharing"}
    assert asks(world(queues, held, fair_sharing=True, strategies=("LessThanInitialShare",)), "a", 1) == {
        "b0": "InCohortFairSharing"
    }
    assert asks(world(queues, held, fair_sharing=True), "a", 2) == {}


def test_own_quota_is_taken_without_comparing_shares_unless_told_otherwise() -> None:
    queues = [queue("a", 2, weight=0.0, **FAIR), queue("b", 0, weight=9.0), queue("c", 4, weight=9.0)]
    held = [holder("a0", "a", 1), holder("b0", "b", 5)]
    assert asks(world(queues, held, fair_sharing=True), "a", 1) == {"b0": "InCohortReclamation"}
    off = {"FairSharingPreemptWithinNominal": False}
    assert asks(world(queues, held, fair_sharing=True, gates=off), "a", 1) == {"b0": "InCohortFairSharing"}


def test_a_queue_of_no_weight_that_borrows_takes_only_from_its_like() -> None:
    queues = [queue("a", 0, weight=0.0, **FAIR), queue("b", 0), queue("z", 0, weight=0.0), queue("bank", 6)]
    state = world(queues, [holder("b0", "b", 3), holder("z0", "z", 2), holder("z1", "z", 1)], fair_sharing=True)
    assert asks(state, "a", 1) == {"z1": "InCohortFairSharing"} or asks(state, "a", 1) == {"z0": "InCohortFairSharing"}
    state = world(queues, [holder("b0", "b", 3), holder("b1", "b", 3)], fair_sharing=True)
    assert asks(state, "a", 1) == {}


def test_shares_are_compared_right_below_the_cohort_that_both_are_in() -> None:
    cohorts = [Cohort(name="left", parent="all"), Cohort(name="right", parent="all")]
    queues = [queue("a", 0, "left", **FAIR), queue("a2", 0, "left"), queue("b", 0, "right"), queue("bank", 8)]
    held = [holder("a2a", "a2", 4), holder("b0", "b", 2), holder("b1", "b", 2)]
    state = world(queues, held, cohorts, fair_sharing=True)
    assert asks(state, "a", 1) == {"a2a": "InCohortFairSharing"}


def test_a_queue_alone_preempts_in_itself() -> None:
    state = world([queue("a", 2, None, **FAIR)], [holder("low", "a", 2), holder("high", "a", 0, 9)], fair_sharing=True)
    assert asks(state, "a", 1, priority=1) == {"low": "InClusterQueue"}
    assert asks(state, "a", 1, priority=0) == {}


@pytest.mark.parametrize("fair_sharing", [False, True])
def test_a_request_of_zero_needs_no_quota(fair_sharing: bool) -> None:
    """Its queue may use more than its quota of that resource."""
    state = world([queue("a", 4, None, **FAIR)], [holder("low", "a", 4)], fair_sharing=fair_sharing)
    state.tree.queues["a"].add({FlavorResource("f", "gpu"): 3})
    assignment = assign(state, Workload(name="new", podsets=(PodSet(requests={"cpu": 1}),), priority=1), "a")
    more = assignment._replace(usage={**assignment.usage, FlavorResource("f", "gpu"): 0})
    new = Workload(name="new", priority=1)
    assert [each.workload.name for each in targets(state, new, "a", more, 9.0)] == ["low"]
