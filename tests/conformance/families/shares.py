"""Family `shares`: how much each queue and cohort uses beyond its own quota."""

from __future__ import annotations

from penstock.admission.shares import share
from tests.conformance.families.given import Case, check_share, state_of, usage_of


def check(case: Case) -> None:
    {"dominantResourceShare": _shares, "borrowingOn": _borrowing_on}[case["kind"]](case)


def _shares(case: Case) -> None:
    state, expect = state_of(case), case["expect"]
    extra = case["given"].get("hypotheticalExtraUsage")
    more = None if extra is None else usage_of(extra)
    assert state.tree.queues.keys() == expect["clusterQueues"].keys()
    assert state.tree.cohorts.keys() == expect["cohorts"].keys()
    for name, expected in expect["clusterQueues"].items():
        check_share(share(state.tree.queues[name], more), expected)
    for name, expected in expect["cohorts"].items():
        check_share(share(state.tree.cohorts[name], more), expected)


def _borrowing_on(case: Case) -> None:
    state, given, expect = state_of(case), case["given"], case["expect"]
    node = state.tree.queues[given["clusterQueue"]]
    found, requested = share(node), usage_of(given["requested"])
    check_share(found, expect["share"])
    assert found.borrowing == expect["borrowing"]
    assert found.borrows_on(fr for fr, amount in requested.items() if amount > 0) == expect["borrowingOnRequested"]
