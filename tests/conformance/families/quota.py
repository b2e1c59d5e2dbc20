"""Family `quota`: what each node of the tree has, uses and could have."""

from __future__ import annotations

from penstock.admission.assignment import Assignment, Mode
from penstock.admission.cycle import resources_to_reserve
from penstock.admission.model import FlavorResource, Quota
from penstock.admission.quota import NO_QUOTA, QuotaNode
from penstock.admission.shares import lendable, share
from penstock.admission.snapshot import Snapshot
from tests.conformance.families.cases import amount
from tests.conformance.families.given import Case, check_share, state_of, usage_of, workloads_of


def check(case: Case) -> None:
    {"tree": _tree, "lendable": _lendable, "reserve": _reserve}[case["kind"]](case)


def _tree(case: Case) -> None:
    state, expect = state_of(case), case["expect"]["tree"]
    _operate(state, case["given"])
    tree = state.tree
    active = {name for name, node in tree.queues.items() if node.active}
    assert active == expect["clusterQueues"].keys()
    assert tree.cohorts.keys() == expect["cohorts"].keys()
    assert state.cluster_queues.keys() - active == set(expect.get("inactiveClusterQueues", ()))
    for name, expected in expect["clusterQueues"].items():
        _node(tree.queues[name], expected)
    for name, expected in expect["cohorts"].items():
        _node(tree.cohorts[name], expected)


def _operate(state: Snapshot, given: Case) -> None:
    """By key: the Workloads are those of the case."""
    all_of_them = {workload.key: workload for workload in workloads_of(given.get("workloads", ()))}
    for operation in given.get("operations", ()):
        for key in operation.get("removeWorkloads", ()):
            state.drop(all_of_them[key])
        for key in operation.get("addWorkloads", ()):
            state.hold(all_of_them[key])


def _node(node: QuotaNode, expected: Case) -> None:
    assert (node.parent.name if node.parent is not None else None) == expected.get("parent")
    listed = {
        FlavorResource(flavor, resource): values
        for flavor, resources in expected.get("resources", {}).items()
        for resource, values in resources.items()
    }
    assert node.subtree.keys() | {fr for fr, used in node.usage.items() if used} <= listed.keys()
    for fr, values in listed.items():
        want = {name: amount(fr.resource, text) for name, text in values.items()}
        quota = node.quotas.get(fr)
        assert (quota or NO_QUOTA) == Quota(
            want.get("nominal", 0), want.get("borrowingLimit"), want.get("lendingLimit")
        )
        raw = node.available_raw(fr)
        assert {
            "subtreeQuota": node.subtree.get(fr, 0),
            "localQuota": node.local(fr),
            "usage": node.usage.get(fr, 0),
            "available": max(0, raw) if node.is_queue else raw,
            "potentialAvailable": node.potential(fr),
        } == {name: value for name, value in want.items() if name not in _APART}
        assert raw == want.get("availableRaw", want["available"])
    check_share(share(node), expected["share"])


_APART = ("nominal", "borrowingLimit", "lendingLimit", "availableRaw")


def _lendable(case: Case) -> None:
    found = lendable(state_of(case).tree.cohorts[case["given"]["cohort"]])
    assert found == {resource: amount(resource, text) for resource, text in case["expect"]["lendable"].items()}


def _reserve(case: Case) -> None:
    state, given = state_of(case), case["given"]["assignment"]
    mode = {"Fit": Mode.FIT, "Preempt": Mode.NO_CANDIDATES, "NoFit": Mode.NO_FIT}[given["mode"]]
    assignment = Assignment((), given["borrowingLevel"], usage_of(given["usage"]), mode)
    queue = case["given"].get("clusterQueue") or next(iter(case["given"]["usage"]))
    assert resources_to_reserve(state.tree.queues[queue], assignment) == usage_of(case["expect"]["reserved"])
