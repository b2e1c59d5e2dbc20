"""Topological order: right, the same in every process, and a cycle that really is one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph.order import NotOrdered, topological

from .strategies import examples

graphs = st.dictionaries(st.sampled_from("abcdefgh"), st.sets(st.sampled_from("abcdefgh")), max_size=8).map(
    lambda graph: {name: ups & graph.keys() for name, ups in graph.items()}
)
acyclic = graphs.map(lambda graph: {name: {up for up in ups if up < name} for name, ups in graph.items()})


@examples(400)
@given(acyclic)
def test_each_comes_after_all_it_waits_for(graph: dict[str, set[str]]) -> None:
    order = topological(graph)
    assert sorted(order) == sorted(graph)
    assert all(order.index(up) < order.index(name) for name, ups in graph.items() for up in ups)


@examples(400)
@given(graphs)
def test_a_cycle_goes_around_and_nothing_else_is_refused(graph: dict[str, set[str]]) -> None:
    try:
        order = topological(graph)
    except NotOrdered as found:
        names = found.names
        assert len(set(names)) == len(names) > 0
        for before, after in zip(names, [*names[1:], names[0]], strict=True):
            assert before in graph[after], "the one on the right waits for the one on the left"
        assert str(found) == " → ".join(names)
    else:
        assert all(order.index(up) < order.index(name) for name, ups in graph.items() for up in ups)


@examples(200)
@given(graphs)
def test_how_the_waits_are_listed_does_not_matter(graph: dict[str, set[str]]) -> None:
    def outcome(waits: dict[str, list[str]]) -> list[str]:
        try:
            return topological(waits)
        except NotOrdered as found:
            return ["cycle", *found.names]

    forward = {name: sorted(ups) for name, ups in graph.items()}
    backward = {name: sorted(ups, reverse=True) * 2 for name, ups in graph.items()}
    assert outcome(forward) == outcome(backward)


def test_ties_keep_the_order_given() -> None:
    assert topological({"z": [], "y": [], "x": []}) == ["z", "y", "x"]
    assert topological({"end": ["b", "a"], "b": ["top"], "a": ["top"], "top": []}) == ["top", "b", "a", "end"]


@pytest.mark.parametrize(
    "graph, names",
    [
        ({"a": ["a"]}, ["a"]),
        ({"a": ["b"], "b": ["a"]}, ["a", "b"]),
        ({"x": ["c"], "a": ["c"], "b": ["a"], "c": ["b"]}, ["a", "b", "c"]),
        ({"free": [], "a": ["free", "b"], "b": ["a"]}, ["a", "b"]),
    ],
)
def test_cycles(graph: dict[str, list[str]], names: list[str]) -> None:
    with pytest.raises(NotOrdered) as found:
        topological(graph)
    assert found.value.names == names


def test_long_chains_and_long_cycles_need_no_stack() -> None:
    chain = {str(i): [str(i - 1)] if i else [] for i in range(50_000)}
    assert topological(chain) == list(chain)
    with pytest.raises(NotOrdered) as found:
        topological({**chain, "0": ["49999"]})
    assert len(found.value.names) == 50_000


def test_every_process_finds_the_same_order() -> None:
    code = (
        "from penstock.graph.order import topological\n"
        "print(topological({f's{i}': {f's{j}' for j in range(i) if (i * j) % 7 == 1} for i in range(60)}))"
    )
    orders = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(orders) == 1
