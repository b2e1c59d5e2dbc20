"""The heaviest antichain equals brute force, and is an antichain."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.graph.antichain import PartialOrder


def reach(size: int, edges: list[tuple[int, int]]) -> list[int]:
    """For each node the set, as bits, of all that come after it."""
    after = [0] * size
    for u in range(size - 1, -1, -1):
        for a, b in edges:
            if a == u:
                after[u] |= 1 << b | after[b]
    return after


def brute_force(weights: list[int], edges: list[tuple[int, int]]) -> int:
    after = reach(len(weights), edges)
    best = 0
    for chosen in range(1 << len(weights)):
        nodes = [v for v in range(len(weights)) if chosen >> v & 1]
        if not any(after[v] & chosen for v in nodes):
            best = max(best, sum(weights[v] for v in nodes))
    return best


@st.composite
def graphs(draw: st.DrawFn, most: int = 8) -> tuple[list[int], list[tuple[int, int]]]:
    size = draw(st.integers(1, most))
    weights = draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 10**18 + 1]), min_size=size, max_size=size))
    pairs = [(u, v) for u in range(size) for v in range(u + 1, size)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return weights, edges


@settings(max_examples=3000, deadline=None)
@given(graphs())
def test_it_equals_brute_force_and_its_nodes_are_an_antichain_of_that_weight(
    graph: tuple[list[int], list[tuple[int, int]]],
) -> None:
    weights, edges = graph
    weight, nodes = PartialOrder(len(weights), edges).heaviest(weights)
    after = reach(len(weights), edges)
    assert weight == brute_force(weights, edges)
    assert weight == sum(weights[v] for v in nodes)
    assert not any(after[u] >> v & 1 for u in nodes for v in nodes)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 60), st.integers(1, 6), st.randoms(use_true_random=False))
def test_long_thin_graphs_take_the_way_that_carries(length: int, width: int, dice: object) -> None:
    """A chain of layers, fully joined: the heaviest layer is the answer."""
    weights = [dice.randrange(100) for _ in range(length * width)]  # type: ignore[attr-defined]
    edges = [
        (i * width + a, (i + 1) * width + b) for i in range(length - 1) for a in range(width) for b in range(width)
    ]
    layers = [sum(weights[i * width : (i + 1) * width]) for i in range(length)]
    assert PartialOrder(len(weights), edges).heaviest(weights)[0] == max(layers)


def test_a_long_chain_of_uneven_weights_is_settled_in_reasonable_work() -> None:
    size = 3000
    weights = [(v * 7919) % 1009 + 1 for v in range(size)]
    weight, nodes = PartialOrder(size, [(v, v + 1) for v in range(size - 1)]).heaviest(weights)
    assert (weight, len(nodes)) == (max(weights), 1)


def test_one_order_serves_several_weightings() -> None:
    order = PartialOrder(3, [(0, 1), (0, 2)])
    assert order.heaviest([5, 2, 2]) == (5, [0])
    assert order.heaviest([1, 2, 2]) == (4, [1, 2])
    assert order.heaviest([0, 0, 0]) == (0, [])
