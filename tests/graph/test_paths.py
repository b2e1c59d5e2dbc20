"""Paths of steps and tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph.paths import inside, inside_any, natural, overlap, parents, step_of


@pytest.mark.parametrize(
    ("path", "step"),
    [("train", "train"), ("train[3]", "train"), ("outer[2]/train[3]#1", "outer/train"), ("a#2/b", "a/b")],
)
def test_the_step_of_a_task(path: str, step: str) -> None:
    assert step_of(path) == step


def test_numbers_are_sorted_as_numbers() -> None:
    assert sorted(["t[10]", "t[2]", "s"], key=natural) == ["s", "t[2]", "t[10]"]


def test_parents() -> None:
    assert parents("a/b/c") == ["a", "a/b"] and parents("a") == []


def test_inside() -> None:
    assert all(inside(path, "a") for path in ("a", "a[1]", "a#1", "a/b"))
    assert not inside("ab", "a") and not inside("a", "a/b")


def test_overlap() -> None:
    assert overlap("call/x", "call[1]/x[2]") and overlap("call", "call[1]/x")
    assert not overlap("call[1]/x", "call[2]/x") and not overlap("call/x", "call/y")


@given(st.lists(st.text("ab/[]#0", max_size=5), max_size=6), st.text("ab/[]#0", max_size=8))
def test_inside_any_is_inside_of_one_of_them(outers: list[str], path: str) -> None:
    assert inside_any(path, set(outers)) == any(inside(path, one) for one in outers)
