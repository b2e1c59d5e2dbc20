"""Shares: they equal the formula, and compare by their key."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.model import UNLIMITED, FlavorResource
from penstock.admission.shares import Share, lendable, share
from penstock.admission.snapshot import Snapshot
from tests.admission.slow import Slow
from tests.admission.worlds import FLAVORS, RESOURCES, states
from tests.graph.strategies import examples

ALL = [FlavorResource(flavor, resource) for flavor in FLAVORS for resource in RESOURCES]
USAGES = st.dictionaries(st.sampled_from(ALL), st.integers(0, 5))


@examples(150)
@given(states(), st.none() | USAGES)
def test_a_share_is_what_the_formula_says(state: Snapshot, extra: dict[FlavorResource, int] | None) -> None:
    slow = Slow(state, [each for held in state.holders.values() for each in held.values()])
    for name, node in (*state.tree.queues.items(), *state.tree.cohorts.items()):
        found = share(node, extra)
        ratios = {}
        above = slow.up[name]
        for resource in sorted(RESOURCES) if above is not None else ():
            frs = [fr for fr in ALL if fr.resource == resource]
            over = sum(
                max(0, slow.usage(name, fr) + (extra or {}).get(fr, 0) - slow.subtree(name, fr))
                for fr in frs
                if fr in node.subtree
            )
            most = sum(slow.potential(above, fr) for fr in frs) if above is not None else 0
            if over and most > 0:
                ratios[resource] = over * 1000 / most
        ratio = max(ratios.values(), default=0.0)
        assert found.ratio == ratio
        assert found.dominant == next((each for each, value in ratios.items() if value == ratio), "")
        if ratio and not node.weight:
            assert (found.weighted, found.rounded) == (math.inf, UNLIMITED)
        else:
            assert found.weighted == (ratio / node.weight if ratio else 0.0)
            assert found.rounded == math.ceil(found.weighted)


@examples(150)
@given(states(), USAGES)
def test_borrowing_on_what_is_requested(state: Snapshot, requested: dict[FlavorResource, int]) -> None:
    for node in state.tree.queues.values():
        found = share(node)
        on = found.borrows_on([fr for fr, amount in requested.items() if amount > 0])
        assert found.borrowing or not on
        assert found.borrowing or found.ratio == 0


def test_two_without_weight_compare_by_what_they_borrow() -> None:
    assert Share(0.0, 5.0) > Share(0.0, 4.0) > Share(1.0, 10**9) > Share(2.0, 10**9) > Share(0.0)
    assert Share(0.0) == Share(3.0) and hash(Share(0.0)) == hash(Share(3.0))
    assert Share(1.0, 4.0) == Share(2.0, 8.0) and Share(1.0, 4.0) >= Share(2.0, 8.0)
    assert Share(1.0, 4.0) != 4


@examples(150)
@given(states())
def test_what_can_be_lent_does_not_change_with_usage(state: Snapshot) -> None:
    before = {name: dict(lendable(node)) for name, node in state.tree.cohorts.items()}
    for node in state.tree.queues.values():
        node.add(dict.fromkeys(ALL, 3))
    for node in state.tree.cohorts.values():
        node.lendable = None
    assert {name: lendable(node) for name, node in state.tree.cohorts.items()} == before
