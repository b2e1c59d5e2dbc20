"""Which names statements read and bind."""

from __future__ import annotations

import pytest

from penstock.author.compiler.liveness import (
    always_returns,
    append_target,
    changes,
    has_return,
    live_before,
    names_assigned,
    names_bound,
    names_read,
    read_before_assigned,
)
from tests.author.compiler.build import block


def test_variables_of_comprehensions_are_their_own() -> None:
    body = block("y = [f(v, x) for v in xs if v > z]\nw = {k: v for k, v in d}")
    assert names_read(body) == {"f", "x", "xs", "z", "d"}
    assert names_assigned(body) == {"y", "w"}


def test_appending_binds_the_list() -> None:
    body = block("if a:\n    out.append(1)\nout.append(2)\nb = 1")
    assert append_target(body[1]) == "out" and append_target(body[2]) == ""
    assert changes(body) == ["out", "out"]
    assert names_bound(body) == {"out", "b"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\ny = x", set()),
        ("y = x\nx = 1", {"x"}),
        ("x += 1", {"x"}),
        ("if a:\n    x = 1\ny = x", {"a", "x"}),
        ("if a:\n    x = 1\nelse:\n    x = 2\ny = x", {"a"}),
        ("for v in xs:\n    x = v\ny = x", {"xs", "x"}),
        ("while c:\n    x = c\ny = x", {"c", "x"}),
    ],
)
def test_what_is_read_before_it_is_bound(text: str, expected: set[str]) -> None:
    assert read_before_assigned(block(text)) == expected


def test_what_is_live_before_statements() -> None:
    assert live_before(block("x = y"), {"x", "z"}) == {"y", "z"}


def test_returns() -> None:
    assert always_returns(block("if a:\n    return 1\nelse:\n    return 2"))
    assert not always_returns(block("if a:\n    return 1"))
    assert has_return(block("if a:\n    return 1")[0]) and not has_return(block("if a:\n    b = 1")[0])
