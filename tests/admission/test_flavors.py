"""The flavor search: what holds in all states, and the rules one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.assignment import ALL_TRIED, Assignment, Mode
from penstock.admission.flavors import (
    FlavorAssigner,
    Pinned,
    Simulate,
    pod_set_resources,
    preferred,
    search_counts,
    stops,
)
from penstock.admission.model import (
    UNLIMITED,
    ClusterQueue,
    Config,
    FlavorQuotas,
    FlavorResource,
    Fungibility,
    PodSet,
    PodToleration,
    Policy,
    Preemption,
    Preference,
    Quota,
    Requirement,
    ResourceFlavor,
    ResourceGroup,
    Taint,
    WhenCan,
    Workload,
)
from penstock.admission.placement import mismatch
from penstock.admission.preemption import Preemptor
from penstock.admission.snapshot import Snapshot
from tests.admission.worlds import pending, picture, states
from tests.graph.strategies import examples


def group(*listed: tuple[str, dict[str, Any]]) -> ResourceGroup:
    """Flavors, each with its quota by resource: a number is the nominal one."""
    quotas = [
        FlavorQuotas(name, {r: q if isinstance(q, Quota) else Quota(q) for r, q in found.items()})
        for name, found in listed
    ]
    return ResourceGroup(tuple(listed[0][1]), tuple(quotas))


def state_of(
    *groups: ResourceGroup, config: Config | None = None, known: dict[str, ResourceFlavor] | None = None, **more: Any
) -> Snapshot:
    """One queue `q`, in a cohort with `rich`, which has ten of everything."""
    state = Snapshot(config or Config())
    names = [each.flavor for found in groups for each in found.flavors]
    state.flavors = {name: ResourceFlavor(name=name) for name in names} | (known or {})
    state.cluster_queues["q"] = ClusterQueue(name="q", groups=groups, **more)
    if "cohort" in more:
        rich = tuple(
            replace(
                found,
                flavors=tuple(FlavorQuotas(f.flavor, {r: Quota(10) for r in f.quotas}) for f in found.flavors),
            )
            for found in groups
        )
        state.cluster_queues["rich"] = ClusterQueue(name="rich", groups=rich, cohort=more["cohort"])
    state.rebuild()
    return state


def workload(*podsets: PodSet | dict[str, int], **more: Any) -> Workload:
    listed = [
        each if isinstance(each, PodSet) else PodSet(name=f"p{i}", requests=each) for i, each in enumerate(podsets)
    ]
    return Workload(name="w", podsets=tuple(listed), **more)


def got(found: Assignment) -> list[dict[str, str]]:
    return [{resource: choice.flavor for resource, choice in podset.flavors.items()} for podset in found.podsets]


def always(mode: Mode, level: int = 0) -> Simulate:
    return lambda workload, queue, fr, amount: (mode, level)


def assigner_of(state: Snapshot) -> FlavorAssigner:
    return FlavorAssigner(state, Preemptor(state).simulate)


def assign(
    state: Snapshot,
    new: Workload,
    queue: str,
    counts: Sequence[int] | None = None,
    simulate: Simulate | None = None,
    only: Pinned | None = None,
) -> Assignment:
    assigner = assigner_of(state) if simulate is None else FlavorAssigner(state, simulate)
    return assigner.assign(new, queue, counts, only)


def is_pending(found: Assignment) -> bool:
    """Are there flavors that were not tried?"""
    assert found.progress is not None
    return found.progress.pending


# -- whatever the queues look like ------------------------------------------------------------------------------------


@examples(150)
@given(states() | states(fair_sharing=True), pending(), st.booleans())
def test_what_fits_is_there(state: Snapshot, new: Workload, ignore: bool) -> None:
    state.config = replace(state.config, ignore_undeclared=ignore)
    before = picture(state)
    for name, node in state.tree.queues.items():
        found = assign(state, new, name)
        assert picture(state) == before
        if found.kind == "Fit":
            assert all(amount <= node.available(fr) for fr, amount in found.usage.items())
        if found.kind != "NoFit":
            assert all(amount <= node.potential(fr) for fr, amount in found.usage.items())
            assert {podset.name for podset in found.podsets} == {podset.name for podset in new.podsets}
        if found.kind == "Preempt":
            assert found.needs()
            assert all(found.usage[fr] > node.available(fr) for fr in found.needs())
        assert (found.no_fit != "") <= (found.kind == "NoFit")


@examples(150)
@given(states(), pending())
def test_what_is_used_is_what_is_asked_for(state: Snapshot, new: Workload) -> None:
    for name in state.tree.queues:
        found = assign(state, new, name)
        used: dict[FlavorResource, int] = {}
        asked = {each.name: each for each in new.podsets}
        for podset in found.podsets:
            for resource, choice in podset.flavors.items():
                fr = FlavorResource(choice.flavor, resource)
                used[fr] = used.get(fr, 0) + asked[podset.name].requests[resource] * asked[podset.name].count
        assert used == found.usage
        held = found.admission(name)
        assert {p.name: dict(p.usage) for p in held.podsets} == {
            p.name: {r: p.requests[r] for r in p.flavors} for p in found.podsets
        }


@examples(150)
@given(states(), pending())
def test_a_group_of_pod_sets_gets_the_same_flavors(state: Snapshot, new: Workload) -> None:
    together = {each.name for each in new.podsets if each.group == "g"}
    for name in state.tree.queues:
        found: dict[str, set[str]] = {}
        for podset in assign(state, new, name).podsets:
            if podset.name in together:
                for resource, choice in podset.flavors.items():
                    found.setdefault(resource, set()).add(choice.flavor)
        assert all(len(each) == 1 for each in found.values())


@examples(150)
@given(states(), pending(most=1))
def test_a_search_that_goes_on_does_not_look_at_flavors_twice(state: Snapshot, new: Workload) -> None:
    for name, node in state.tree.queues.items():
        new.scan_progress = None
        seen: list[Assignment] = []
        for _ in range(4):
            found = assign(state, new, name)
            seen.append(found)
            if not is_pending(found):
                break
            new.scan_progress = found.progress
        assert not is_pending(seen[-1])
        for podset in seen[0].podsets:
            for resource, choice in podset.flavors.items():
                last = len(node.groups[resource].flavors) - 1
                assert choice.tried == ALL_TRIED or 0 <= choice.tried < last


@examples(150)
@given(states(), pending())
def test_fewer_pods_never_make_it_worse_in_one_flavor(state: Snapshot, new: Workload) -> None:
    """The binary search of partial admission assumes this."""
    ranks = {"NoFit": 0, "Preempt": 1, "Fit": 2}
    for name in state.tree.queues:
        whole = assign(state, new, name, simulate=always(Mode.PREEMPT))
        counts = [each.min_count or each.count for each in new.podsets]
        less = assign(state, new, name, counts, simulate=always(Mode.PREEMPT))
        if all(len(found.flavors) == 1 for found in state.tree.queues[name].groups.values()):
            assert ranks[less.kind] >= ranks[whole.kind]
        assert [podset.count for podset in less.podsets] == [
            dict(zip((p.name for p in new.podsets), counts, strict=True))[podset.name] for podset in less.podsets
        ]


# -- good enough, better ----------------------------------------------------------------------------------------------

MODES = st.tuples(st.sampled_from(Mode), st.integers(0, 3))


@examples(150)
@given(MODES, MODES, MODES, st.sampled_from([None, *Preference]))
def test_preference_is_an_order(a: Any, b: Any, c: Any, preference: Preference | None) -> None:
    rule = Fungibility(preference=preference)
    assert not (preferred(a, b, rule) and preferred(b, a, rule))
    if preferred(a, b, rule) and preferred(b, c, rule):
        assert preferred(a, c, rule)
    assert not preferred((Mode.NO_FIT, 0), a, rule)
    if a[0] > Mode.NO_CANDIDATES:
        assert preferred(a, (Mode.NO_CANDIDATES, 0), rule)
    if preference is not Preference.PREEMPTION and a[0] is Mode.FIT and b[0] is not Mode.FIT:
        assert preferred(a, b, rule)


def test_when_a_flavor_is_good_enough() -> None:
    stop = Fungibility(borrow=WhenCan.STOP, preempt=WhenCan.STOP)
    go_on = Fungibility(borrow=WhenCan.NEXT, preempt=WhenCan.NEXT)
    assert stops(Mode.FIT, 0, go_on)
    assert not stops(Mode.FIT, 1, go_on)
    assert not stops(Mode.RECLAIM, 0, go_on)
    assert stops(Mode.PREEMPT, 2, stop)
    assert not stops(Mode.NO_CANDIDATES, 0, stop)
    assert not stops(Mode.NO_FIT, 0, stop)


TWO = group(("spot", {"cpu": Quota(1)}), ("reserved", {"cpu": Quota(4)}))


def test_borrowing_in_the_first_flavor_or_fitting_in_the_second() -> None:
    stays = assign(state_of(TWO, cohort="all"), workload({"cpu": 3}), "q")
    assert (got(stays), stays.borrowing, is_pending(stays)) == ([{"cpu": "spot"}], 1, True)
    goes_on = assign(
        state_of(TWO, cohort="all", fungibility=Fungibility(borrow=WhenCan.NEXT)), workload({"cpu": 3}), "q"
    )
    assert (got(goes_on), goes_on.borrowing, is_pending(goes_on)) == ([{"cpu": "reserved"}], 0, False)


def test_what_fits_from_far_away_and_takes_preemption_nearby_does_not_fit() -> None:
    """cpu fits with borrowing, gpu needs preemption. By preference the first is worse, but the flavor does not fit."""
    rule = Fungibility(borrow=WhenCan.NEXT, preempt=WhenCan.NEXT, preference=Preference.PREEMPTION)
    state = state_of(group(("only", {"cpu": 1, "gpu": 4})), cohort="all", fungibility=rule)
    state.tree.queues["q"].add({FlavorResource("only", "gpu"): 4})
    state.tree.queues["rich"].add({FlavorResource("only", "gpu"): 10})
    found = assign(state, workload({"cpu": 2, "gpu": 1}), "q", simulate=always(Mode.PREEMPT))
    assert found.kind == "Preempt"
    assert [lack.resource for lack in found.podsets[0].reasons] == ["gpu"]


# -- where the search goes on -----------------------------------------------------------------------------------------


def test_the_next_cycle_goes_on_where_this_one_stopped() -> None:
    state = state_of(TWO, cohort="all")
    assigner = assigner_of(state)
    new = workload({"cpu": 3})
    new.scan_progress = assigner.assign(new, "q").progress
    assigner.cycle += 1
    again = assigner.assign(new, "q")
    assert (got(again), is_pending(again)) == ([{"cpu": "reserved"}], False)
    new.scan_progress = again.progress
    assert got(assigner.assign(new, "q")) == [{"cpu": "spot"}]


@pytest.mark.parametrize(
    ("cycles", "freed", "gates", "kept"),
    [
        (1, True, {}, True),
        (2, False, {}, True),
        (2, True, {}, False),
        (1, True, {"FlavorFungibilityPreserveScanProgress": False}, False),
        (1, False, {"FlavorFungibilityPreserveScanProgress": False}, True),
        (1, False, {"FlavorFungibility": False}, False),
    ],
)
def test_how_long_the_progress_of_a_search_is_kept(
    cycles: int, freed: bool, gates: dict[str, bool], kept: bool
) -> None:
    state = state_of(TWO, cohort="all", config=Config(gates=gates))
    assigner = assigner_of(state)
    new = workload({"cpu": 3})
    new.scan_progress = assigner.assign(new, "q").progress
    assigner.cycle += cycles
    state.generations["q"] = state.generations.get("q", 0) + freed
    assert got(assigner.assign(new, "q")) == ([{"cpu": "reserved"}] if kept else [{"cpu": "spot"}])


@pytest.mark.parametrize("change", ["priority", "size", "reclaimable"])
def test_a_workload_that_changes_starts_again(change: str) -> None:
    for hashing, flavor in ((True, "spot"), (False, "reserved")):
        state = state_of(TWO, cohort="all", config=Config(gates={"SchedulingEquivalenceHashing": hashing}))
        assigner = assigner_of(state)
        new = workload(PodSet(count=2, requests={"cpu": 1}))
        new.scan_progress = assigner.assign(new, "q").progress
        assigner.cycle += 1
        if change == "priority":
            new.priority = 5
        elif change == "size":
            new.podsets = (PodSet(count=2, requests={"cpu": 2}),)
        else:
            new.reclaimable = {"main": 0}
        assert got(assigner.assign(new, "q")) == [{"cpu": flavor}]


def test_pod_sets_of_a_group_go_on_by_what_the_first_one_asks() -> None:
    """Resources are taken in the order of their hashes. The first pod set has progress only for those that it requests."""
    state = state_of(group(("a", {"cpu": 1, "gpu": 1}), ("b", {"cpu": 4, "gpu": 4})), cohort="all")
    assigner = assigner_of(state)
    lead, work = (
        PodSet(name="lead", requests={"cpu": 2}, group="g"),
        PodSet(name="work", requests={"gpu": 2}, group="g"),
    )
    first, second = workload(lead, work), workload(work, lead)
    for new, flavor in ((first, "a"), (second, "b")):
        new.scan_progress = assigner.assign(new, "q").progress
        assigner.cycle += 1
        assert got(assigner.assign(new, "q"))[0].popitem()[1] == flavor


def test_a_queue_that_has_lost_flavors_is_searched_from_the_first() -> None:
    state = state_of(TWO, cohort="all")
    assigner = assigner_of(state)
    new = workload({"cpu": 3})
    new.scan_progress = assigner.assign(new, "q").progress
    assigner.cycle += 1
    less = ResourceGroup(("cpu",), TWO.flavors[:1])
    state.cluster_queues["q"] = replace(state.cluster_queues["q"], groups=(less,))
    state.rebuild()
    assert got(assigner.assign(new, "q")) == [{"cpu": "spot"}]
    state.cluster_queues["q"] = replace(state.cluster_queues["q"], groups=(replace(less, flavors=()),))
    state.rebuild()
    assert assigner.assign(new, "q").kind == "NoFit"


def test_only_the_flavors_of_the_first_choice() -> None:
    state = state_of(TWO, cohort="all")
    new = workload({"cpu": 3})
    found = assign(state, new, "q", only={"p0": {"cpu": "reserved"}})
    assert got(found) == [{"cpu": "reserved"}]
    nothing = assign(state, new, "q", only={"p0": {"cpu": "gone"}})
    assert (nothing.kind, [lack.kind for lack in nothing.podsets[0].reasons]) == ("NoFit", ["notNominated"] * 2)
    assert found.flavors() == {"p0": {"cpu": "reserved"}}


# -- what is asked for ------------------------------------------------------------------------------------------------


def test_pods_are_counted_where_the_queue_counts_them() -> None:
    state = state_of(group(("f", {"cpu": 10, "pods": 3})))
    assert assign(state, workload(PodSet(count=3, requests={"cpu": 1})), "q").usage == {
        FlavorResource("f", "cpu"): 3,
        FlavorResource("f", "pods"): 3,
    }
    too_many = assign(state, workload(PodSet(count=4, requests={"cpu": 1})), "q")
    assert (too_many.kind, too_many.no_fit) == ("NoFit", "ExceedsMaxQuota")


def test_pods_that_are_not_needed_any_more_are_not_asked_for() -> None:
    new = workload(PodSet(count=5, requests={"cpu": 2}), reclaimable={"main": 2})
    for on, expected in ((True, 6), (False, 10)):
        state = state_of(group(("f", {"cpu": 20})), config=Config(gates={"ReclaimablePods": on}))
        assert assign(state, new, "q").usage == {FlavorResource("f", "cpu"): expected}
    new.reclaimable["main"] = 7
    assert pod_set_resources(new, True)[0].requests == {"cpu": 0, "pods": 0}


def test_requests_are_added_up_again_when_something_changes() -> None:
    new = workload(PodSet(count=2, requests={"cpu": 3}))
    assert pod_set_resources(new, False) is pod_set_resources(new, False)
    assert pod_set_resources(new, True)[0].requests["pods"] == 2
    new.reclaimable["main"] = 1
    assert pod_set_resources(new, False)[0].requests == {"cpu": 3}
    new.podsets = (PodSet(count=1, requests={"cpu": UNLIMITED}), PodSet(name="b", count=9, requests={"cpu": UNLIMITED}))
    assert [each.requests["cpu"] for each in pod_set_resources(new, False)] == [0, UNLIMITED]
    assert pod_set_resources(workload(PodSet(count=3, requests={"cpu": UNLIMITED // 2})), False)[0].requests == {
        "cpu": UNLIMITED
    }


def test_a_resource_that_the_queue_has_no_quota_for() -> None:
    state = state_of(group(("f", {"cpu": 10})))
    asks = workload({"cpu": 1, "gpu": 1}, {"cpu": 1})
    found = assign(state, asks, "q")
    assert (found.kind, found.no_fit, len(found.podsets)) == ("NoFit", "NoMatchingFlavor", 1)
    assert [lack.kind for lack in found.podsets[0].reasons] == ["notCovered"]
    assert got(assign(state, workload({"cpu": 1, "gpu": 0}), "q")) == [{"cpu": "f"}]
    state.config = Config(ignore_undeclared=True)
    assert got(assign(state, asks, "q")) == [{"cpu": "f"}, {"cpu": "f"}]
    state.config = Config(ignore_undeclared=True, gates={"QuotaCheckStrategy": False})
    assert assign(state, asks, "q").kind == "NoFit"


def test_pod_sets_with_nothing_to_give_do_not_end_the_search() -> None:
    state = state_of(group(("f", {"cpu": 10})), config=Config(ignore_undeclared=True))
    found = assign(state, workload({"gpu": 1}, {}, {"cpu": 4}), "q")
    assert (found.kind, got(found)) == ("Fit", [{}, {}, {"cpu": "f"}])
    assert assign(state, Workload(name="w"), "q").kind == "NoFit"


def test_later_pod_sets_stand_on_top_of_earlier_ones() -> None:
    state = state_of(group(("f", {"cpu": 5}), ("g", {"cpu": 5})))
    assert got(assign(state, workload({"cpu": 3}, {"cpu": 3}), "q")) == [{"cpu": "f"}, {"cpu": "g"}]
    assert got(assign(state, workload({"cpu": 3}, {"cpu": 2}), "q")) == [{"cpu": "f"}, {"cpu": "f"}]


def test_why_it_does_not_fit() -> None:
    known = {"away": ResourceFlavor(name="away", taints=(Taint("k"),))}
    state = state_of(group(("away", {"cpu": 5}), ("small", {"cpu": 2})), known=known)
    found = assign(state, workload({"cpu": 3}), "q")
    assert [(lack.flavor, lack.kind) for lack in found.podsets[0].reasons] == [
        ("away", "taint"),
        ("small", "exceedsMax"),
    ]
    assert found.no_fit == "ExceedsMaxQuota"
    borrowed = state_of(group(("f", {"cpu": Quota(2, 3)})), cohort="all")
    borrowed.tree.queues["rich"].add({FlavorResource("f", "cpu"): 12})
    found = assign(borrowed, workload({"cpu": 3}), "q")
    (lack,) = found.podsets[0].reasons
    assert (found.no_fit, lack.kind, lack.asked, lack.available, lack.potential) == (
        "WaitingForQuota",
        "quota",
        3,
        0,
        5,
    )


@pytest.mark.parametrize(
    ("config", "rules", "asked"),
    [
        (Config(), Preemption(), False),
        (Config(), Preemption(reclaim=Policy.ANY, borrow=Policy.LOWER), True),
        (Config(fair_sharing=True), Preemption(reclaim=Policy.ANY), True),
        (Config(fair_sharing=True), Preemption(within=Policy.LOWER), False),
    ],
)
def test_who_may_preempt_while_it_borrows(config: Config, rules: Preemption, asked: bool) -> None:
    state = state_of(group(("f", {"cpu": Quota(2, 8)})), cohort="all", config=config, preemption=rules)
    state.tree.queues["rich"].add({FlavorResource("f", "cpu"): 12})
    found = assign(state, workload({"cpu": 3}), "q", simulate=always(Mode.RECLAIM, 1))
    assert found.kind == ("Preempt" if asked else "NoFit")


def test_without_fungibility_the_first_best_mode_wins_and_nothing_is_remembered() -> None:
    state = state_of(TWO, cohort="all", config=Config(gates={"FlavorFungibility": False}))
    state.tree.queues["rich"].add({FlavorResource("spot", "cpu"): 11})
    found = assign(state, workload({"cpu": 1}), "q", simulate=always(Mode.PREEMPT))
    assert (got(found), found.podsets[0].flavors["cpu"].tried) == ([{"cpu": "reserved"}], 0)


# -- fewer pods -------------------------------------------------------------------------------------------------------


@examples(150)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=4),
    st.integers(0, 120),
)
def test_the_largest_counts_that_do(shapes: list[tuple[int, int]], limit: int) -> None:
    podsets = [PodSet(count=max(pair), min_count=min(pair)) for pair in shapes]
    found = search_counts(podsets, lambda counts: counts if sum(counts) <= limit else None)
    spare = [max(pair) - min(pair) for pair in shapes]
    steps = sum(spare)
    expected = None
    for step in range(steps + 1 if steps else 0):
        counts = tuple(p.count - cut * step // steps for p, cut in zip(podsets, spare, strict=True))
        if sum(counts) <= limit:
            expected = counts
            break
    assert found == expected


def test_counts_are_those_that_were_asked_for_even_when_pods_were_given_back() -> None:
    state = state_of(group(("f", {"cpu": 20, "pods": 20})))
    new = workload(PodSet(count=6, min_count=2, requests={"cpu": 2}), reclaimable={"main": 3})
    found = assign(state, new, "q", [4])
    assert (found.podsets[0].count, found.podsets[0].requests) == (4, {"cpu": 8, "pods": 4})
    new.reclaimable["main"] = 6
    assert assign(state, new, "q", [4]).podsets[0].count == 0


# -- taints, labels ---------------------------------------------------------------------------------------------------

ZONE = ResourceFlavor(name="f", labels={"zone": "a", "cores": "16"})


def requires(*terms: tuple[Requirement, ...]) -> PodSet:
    return PodSet(affinity=terms)


@pytest.mark.parametrize(
    ("podset", "fits"),
    [
        (PodSet(), True),
        (PodSet(selector={"zone": "a"}), True),
        (PodSet(selector={"zone": "b"}), False),
        (PodSet(selector={"disk": "ssd"}), True),
        (requires((Requirement("zone", "In", ("a", "b")),)), True),
        (requires((Requirement("zone", "NotIn", ("a",)),)), False),
        (requires((Requirement("zone", "Exists"),)), True),
        (requires((Requirement("zone", "DoesNotExist"),)), False),
        (requires((Requirement("cores", "Gt", ("8",)),)), True),
        (requires((Requirement("cores", "Lt", ("+08",)),)), False),
        (requires((Requirement("zone", "Gt", ("8",)),)), False),
        (requires((Requirement("zone", "In", ("b",)), Requirement("disk", "Exists"))), False),
        (requires((Requirement("zone", "In", ("b",)),), (Requirement("zone", "In", ("a",)),)), True),
        (requires((Requirement("zone", "In", ("b",)),), (Requirement("disk", "In", ("x",)),)), True),
        (requires((Requirement("disk", "In", ("x",)), Requirement("zone", "In", ("a",)))), True),
        (requires(()), True),
        (PodSet(selector={"zone": "b"}, affinity=((Requirement("disk", "Exists"),),)), False),
    ],
)
def test_only_the_flavors_own_labels_are_looked_at(podset: PodSet, fits: bool) -> None:
    assert (mismatch(podset, ZONE) is None) == fits


@pytest.mark.parametrize(
    "line",
    [
        Requirement("zone", "In"),
        Requirement("zone", "Exists", ("a",)),
        Requirement("zone", "Gt", ("a",)),
        Requirement("zone", "Gt", ("1", "2")),
        Requirement("zone", "Near", ("a",)),
    ],
)
def test_an_affinity_without_meaning_ends_the_search(line: Requirement) -> None:
    found = mismatch(requires((line,)), ZONE)
    assert found is not None and found[0] == "invalidAffinity"
    assert mismatch(requires((line,), (Requirement("zone", "In", ("a",)),)), ZONE) is None
    state = state_of(group(("f", {"cpu": 4}), ("g", {"cpu": 4})), known={"f": ZONE})
    assert assign(state, workload(PodSet(requests={"cpu": 1}, affinity=((line,),))), "q").kind == "NoFit"


@pytest.mark.parametrize(
    ("toleration", "taint", "fits"),
    [
        (None, Taint("k", "v", "NoSchedule"), False),
        (None, Taint("k", "v", "NoExecute"), False),
        (None, Taint("k", "v", "PreferNoSchedule"), True),
        (PodToleration("k", "Equal", "v"), Taint("k", "v"), True),
        (PodToleration("k", "", "v", "NoExecute"), Taint("k", "v"), False),
        (PodToleration("k", "Equal", "w"), Taint("k", "v"), False),
        (PodToleration("k", "Exists"), Taint("k", "v"), True),
        (PodToleration("", "Exists"), Taint("k", "v"), True),
        (PodToleration("j", "Exists"), Taint("k", "v"), False),
        (PodToleration("k", "Lt", "5"), Taint("k", "4"), True),
        (PodToleration("k", "Gt", "5"), Taint("k", "4"), False),
        (PodToleration("k", "Gt", "05"), Taint("k", "6"), False),
        (PodToleration("k", "Near", "v"), Taint("k", "v"), False),
    ],
)
def test_taints_and_tolerations(toleration: PodToleration | None, taint: Taint, fits: bool) -> None:
    listed = () if toleration is None else (toleration,)
    flavor = ResourceFlavor(name="f", taints=(taint,))
    assert (mismatch(PodSet(tolerations=listed), flavor) is None) == fits
    assert (mismatch(PodSet(), replace(flavor, tolerations=listed)) is None) == fits


def test_a_flavor_that_does_not_exist_is_passed_over() -> None:
    state = state_of(group(("gone", {"cpu": 4}), ("f", {"cpu": 4})))
    del state.flavors["gone"]
    found = assign(state, workload({"cpu": 1}), "q")
    assert (got(found), [each.why for each in found.podsets[0].attempts]) == ([{"cpu": "f"}], ["", "NoMatchingFlavor"])
