"""Peak demand of whole workflows, against tasks written out one by one; and what remains never rises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import ContainerJob, Workflow, WorkflowParam, for_loop
from penstock.graph.model import Unit
from penstock.graph.model import Workflow as Graph
from penstock.plan.demand import peaks
from penstock.plan.expand import Level
from penstock.plan.make import make
from penstock.plan.reserve import PlacementGroup, pools
from tests.graph.test_antichain import brute_force
from tests.plan.graphs import RESOURCES, workflows


def written_out(level: Level, resource: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Every task of every nested call as a node of its own: what the hierarchy stands for. Barriers are nodes of no weight."""
    weights: list[int] = []
    edges: list[tuple[int, int]] = []

    def node(weight: int) -> int:
        weights.append(weight)
        return len(weights) - 1

    def lay(inside: Level, start: int) -> int:
        ends: dict[str, int] = {}
        for planned in inside.steps:
            begin = node(0)
            edges.append((start, begin))
            edges.extend((ends[up], begin) for up in inside.before[planned.step.name])
            lanes = planned.width.count or 0
            done = []
            if planned.inner is not None:
                done = [lay(planned.inner, begin) for _ in range(lanes)]
            else:
                for _ in range(lanes):
                    done.append(node(planned.step.resources.get(resource, 0) * planned.step.replicas))
                    edges.append((begin, done[-1]))
            ends[planned.step.name] = node(0)
            edges.extend((one, ends[planned.step.name]) for one in [begin, *done])
        finish = node(0)
        edges.extend((one, finish) for one in [start, *ends.values()])
        return finish

    lay(level, node(0))
    return weights, edges


def shrink(weights: list[int], edges: list[tuple[int, int]]) -> tuple[list[int], list[tuple[int, int]]]:
    """Only the nodes that weigh something, with the order among them."""
    size = len(weights)
    after = [0] * size
    for u in range(size - 1, -1, -1):
        for a, b in edges:
            if a == u:
                after[u] |= 1 << b | after[b]
    heavy = [v for v in range(size) if weights[v]]
    return [weights[v] for v in heavy], [
        (i, j) for i, u in enumerate(heavy) for j, v in enumerate(heavy) if after[u] >> v & 1
    ]


@settings(max_examples=300, deadline=None)
@given(workflows(most=4), st.sampled_from(RESOURCES))
def test_the_peak_equals_that_of_all_tasks_written_out(workflow: Graph, resource: str) -> None:
    plan = make(workflow)
    weights, edges = shrink(*written_out(plan.level, resource))
    if len(weights) > 12:
        return
    found = plan.peaks[resource].amount if resource in plan.peaks else 0
    assert found == brute_force(weights, edges)


@settings(max_examples=200, deadline=None)
@given(workflows(), st.randoms(use_true_random=False))
def test_what_remains_never_rises_and_ends_at_nothing(workflow: Graph, dice: object) -> None:
    plan = make(workflow, unit=Unit.WORKFLOW)
    paths = [planned.path for planned, _ in plan.level.walk()]
    dice.shuffle(paths)  # type: ignore[attr-defined]
    held = amounts_of(pools(plan.level))
    assert [held] == [reservation.peak for reservation in plan.reservations] or not held
    for done in range(1, len(paths) + 1):
        left = amounts_of(pools(plan.level, frozenset(paths[:done])))
        assert all(amount <= held.get(resource, 0) for resource, amount in left.items())
        held = left
    assert held == {}


def amounts_of(groups: Iterable[PlacementGroup]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for group in groups:
        found.update(group.amounts)
    return dict(found)


def test_a_jobset_of_ten_hundred_ten_needs_a_hundred_at_most_and_ten_at_first() -> None:
    first = ContainerJob("first", "i", cpu=1, replicas=10)
    second = ContainerJob("second", "i", cpu=1, replicas=100).after(first)
    third = ContainerJob("third", "i", cpu=1, replicas=10).after(second)
    plan = make(Workflow("set", [first, second, third]).graph)
    assert plan.peaks["cpu"].amount == 100_000
    assert plan.peaks["cpu"].total == 120_000
    assert plan.reservations[0].peak == {"cpu": 10_000}


def test_the_steps_that_make_up_the_peak_are_named() -> None:
    a = ContainerJob("a", "i", cpu=1)
    b, c = ContainerJob("b", "i", cpu=2).after(a), ContainerJob("c", "i", cpu=3).after(a)
    d = ContainerJob("d", "i", cpu=4).after(b, c)
    peak = make(Workflow("w", [a, b, c, d]).graph).peaks["cpu"]
    assert sorted(peak.steps) == [("b", 2000), ("c", 3000)]


def test_a_size_that_is_only_known_later_counts_as_one_and_says_so() -> None:
    a = ContainerJob("a", "i", outputs=[WorkflowParam("xs", list[str])])

    @for_loop(x=a.outputs["xs"])
    def work(x: str) -> ContainerJob:
        return ContainerJob("work", "i", args=[x], cpu=2)

    plan = make(Workflow("w", [a, work]).graph)
    peak = plan.peaks["cpu"]
    assert (peak.amount, peak.open, peak.exact) == (2000, ("work",), False)
    assert plan.reservations[0].known is False
    assert "once a has run" in plan.reservations[0].why


def test_parallel_bounds_the_peak_even_of_an_unknown_size() -> None:
    a = ContainerJob("a", "i", outputs=[WorkflowParam("xs", list[str])])

    @for_loop(x=a.outputs["xs"], parallel=5)
    def work(x: str) -> ContainerJob:
        return ContainerJob("work", "i", args=[x], cpu=2)

    assert make(Workflow("w", [a, work]).graph).peaks["cpu"].amount == 10_000


def test_exit_handlers_weigh_nothing() -> None:
    plan = make(Workflow("w", [ContainerJob("a", "i", cpu=1)], on_exit=[ContainerJob("clean", "i", cpu=64)]).graph)
    assert plan.peaks["cpu"].amount == 1000
    assert [stage.exempt for stage in plan.stages] == [False, True]
    assert [reservation.name for reservation in plan.reservations] == ["a"]


def test_peaks_of_a_part_are_those_of_the_rest() -> None:
    a, b = ContainerJob("a", "i", cpu=1), ContainerJob("b", "i", cpu=2)
    level = make(Workflow("w", [a, b]).graph).level
    assert peaks(level, finished={"b"})["cpu"].amount == 1000
    assert peaks(level, finished={"a", "b"}) == {}


def test_a_peak_that_a_condition_may_lower_says_so() -> None:
    n = WorkflowParam("n", int)
    yes, no = ContainerJob("yes", "i", gpu=8, when=n > 1), ContainerJob("no", "i", gpu=8, when=n <= 1)
    graph = Workflow("w", [yes, no], params=[n]).graph
    assert make(graph).peaks["nvidia.com/gpu"].maybe == ("yes", "no")
    known = make(graph, {"n": 5}).peaks["nvidia.com/gpu"]
    assert (known.amount, known.maybe) == (8000, ())
