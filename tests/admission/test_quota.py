"""The quota tree: it equals the formulas, and a simulation leaves it as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.model import UNLIMITED, ClusterQueue, Cohort, FlavorQuotas, FlavorResource, Quota, ResourceGroup
from penstock.admission.quota import BELOW_ALL, QuotaNode, QuotaTree, minus, plus
from penstock.admission.snapshot import Snapshot
from tests.admission.slow import Slow
from tests.admission.worlds import FLAVORS, RESOURCES, picture, states
from tests.graph.strategies import examples

ALL = [FlavorResource(flavor, resource) for flavor in FLAVORS for resource in RESOURCES]
CPU = FlavorResource("red", "cpu")


def queue(name: str, quota: Quota, cohort: str | None = None) -> ClusterQueue:
    return ClusterQueue(
        name=name, cohort=cohort, groups=(ResourceGroup(("cpu",), (FlavorQuotas("red", {"cpu": quota}),)),)
    )


def tree_of(*queues: ClusterQueue, cohorts: tuple[Cohort, ...] = (), inactive: tuple[str, ...] = ()) -> QuotaTree:
    return QuotaTree({each.name: each for each in queues}, {each.name: each for each in cohorts}, inactive)


def test_amounts_that_are_unlimited() -> None:
    assert plus(UNLIMITED, 5) == plus(5, UNLIMITED) == plus(UNLIMITED - 1, 5) == UNLIMITED
    assert minus(UNLIMITED, 5) == UNLIMITED
    assert minus(UNLIMITED, UNLIMITED) == 0
    assert minus(5, UNLIMITED) == BELOW_ALL


def every(state: Snapshot) -> list[tuple[str, QuotaNode]]:
    return [*state.tree.queues.items(), *state.tree.cohorts.items()]


@examples(150)
@given(states())
def test_the_tree_is_what_the_formulas_say(state: Snapshot) -> None:
    slow = Slow(state, [each for held in state.holders.values() for each in held.values()])
    for name, node in every(state):
        assert node.height == slow.height(name)
        for fr in ALL:
            assert node.subtree.get(fr, 0) == slow.subtree(name, fr)
            assert node.local(fr) == slow.local(name, fr)
            assert node.usage.get(fr, 0) == slow.usage(name, fr)
            assert node.available_raw(fr) == slow.available(name, fr)
            assert node.available(fr) == max(0, slow.available(name, fr))
            assert node.potential(fr) == slow.potential(name, fr)


@examples(150)
@given(states(), st.data())
def test_removing_undoes_adding_and_the_other_way_round(state: Snapshot, data: st.DataObject) -> None:
    before = picture(state)
    names = st.sampled_from(sorted(state.tree.queues))
    usages = st.dictionaries(st.sampled_from(ALL), st.integers(0, 20) | st.just(UNLIMITED))
    for first, then in ((QuotaNode.add, QuotaNode.remove), (QuotaNode.remove, QuotaNode.add)):
        done = data.draw(st.lists(st.tuples(names, usages), max_size=6))
        for name, usage in done:
            first(state.tree.queues[name], usage)
        for name, usage in data.draw(st.permutations(done)) if first is QuotaNode.add else reversed(done):
            then(state.tree.queues[name], usage)
        assert picture(state) == before


@examples(150)
@given(states(), st.data())
def test_the_order_of_adding_does_not_matter(state: Snapshot, data: st.DataObject) -> None:
    held = [each for found in state.holders.values() for each in found.values()]
    before = picture(state)
    for each in data.draw(st.permutations(held)):
        state.drop(each)
    assert all(used == 0 for _, node in every(state) for used in node.usage.values())
    for workload in data.draw(st.permutations(held)):
        state.hold(workload)
    assert {**picture(state), "holders": 0, "generations": 0} == {**before, "holders": 0, "generations": 0}


def test_what_is_taken_from_a_queue_that_is_over_its_limit_is_given_back_exactly() -> None:
    """What is reserved for a head may be negative, after the limits of its queue were reduced."""
    tree = tree_of(queue("a", Quota(5, 0), "all"), queue("b", Quota(5), "all"))
    node = tree.queues["a"]
    node.add({CPU: 8})
    node.add({CPU: -3})
    assert (node.usage[CPU], tree.cohorts["all"].usage[CPU]) == (5, 8)
    node.remove({CPU: -3})
    assert (node.usage[CPU], tree.cohorts["all"].usage[CPU]) == (8, 8)


@examples(150)
@given(states(), st.sampled_from(ALL), st.integers(0, 30))
def test_the_level_is_the_height_of_the_lowest_subtree_with_room(
    state: Snapshot, fr: FlavorResource, amount: int
) -> None:
    slow = Slow(state, [each for held in state.holders.values() for each in held.values()])
    for name, node in state.tree.queues.items():
        chain = [name, *slow.above(name)]
        rest, expected = amount, (slow.height(chain[-1]), False)
        for at in chain:
            if slow.usage(at, fr) + rest <= slow.subtree(at, fr):
                expected = (slow.height(at), at != chain[-1])
                break
            rest -= max(0, slow.local(at, fr) - slow.usage(at, fr))
        if len(chain) == 1:
            expected = (0, False)
        assert node.level(fr, amount) == expected


def test_a_worked_example() -> None:
    tree = tree_of(
        queue("q1", Quota(10), "all"),
        queue("q2", Quota(10, 2), "all"),
        queue("q3", Quota(10, None, 5), "all"),
        cohorts=(Cohort(name="all", groups=queue("", Quota(10)).groups),),
    )
    for name, used in (("q1", 20), ("q2", 10), ("q3", 6)):
        tree.queues[name].add({CPU: used})
    cohort = tree.cohorts["all"]
    assert (cohort.subtree[CPU], cohort.usage[CPU]) == (35, 31)
    assert [tree.queues[name].available(CPU) for name in ("q1", "q2", "q3")] == [4, 2, 4]
    assert [tree.queues[name].potential(CPU) for name in ("q1", "q2", "q3")] == [35, 12, 40]


def test_unlimited_quota_stays_unlimited_whatever_is_used() -> None:
    tree = tree_of(queue("a", Quota(UNLIMITED), "all"), queue("b", Quota(5), "all"))
    tree.queues["a"].add({CPU: 1000})
    assert tree.queues["b"].available(CPU) == tree.queues["b"].potential(CPU) == UNLIMITED
    assert not tree.queues["a"].borrowing_with(CPU, 10**12)


def test_an_inactive_queue_counts_above_but_nobody_looks_into_it() -> None:
    tree = tree_of(queue("a", Quota(5), "all"), queue("b", Quota(5), "all"), inactive=("b",))
    tree.queues["b"].add({CPU: 7})
    assert tree.queues["a"].available(CPU) == 3
    assert [leaf.name for leaf in tree.cohorts["all"].leaves()] == ["a"]
    assert tree_of(queue("b", Quota(5), "all"), inactive=("b",)).cohorts["all"].height == 0


@pytest.mark.parametrize("parents", [{"x": "x"}, {"x": "y", "y": "x"}, {"x": "y", "y": "z", "z": "y"}])
def test_cohorts_in_a_circle_are_left_out_with_their_queues(parents: dict[str, str]) -> None:
    tree = tree_of(
        queue("in", Quota(1), "x"),
        queue("out", Quota(1), "fine"),
        cohorts=tuple(Cohort(name=name, parent=parent) for name, parent in parents.items()),
    )
    assert list(tree.queues) == ["out"]
    assert (tree.cut_off, tree.circular) == ({"in"}, set(parents))


def test_a_cohort_that_nobody_described_is_a_root_without_quota() -> None:
    tree = tree_of(queue("a", Quota(5), "low"), cohorts=(Cohort(name="low", parent="high"),))
    assert tree.cohorts["high"].parent is None
    assert (tree.cohorts["high"].subtree[CPU], tree.cohorts["high"].height) == (5, 2)
