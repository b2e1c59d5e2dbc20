"""Every function of expressions pays for its work: with the largest arguments that an evaluation may have it ends soon, with a value or with the
error of the budget.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from penstock.expressions.evaluate import EvaluationError, evaluate
from penstock.expressions.parse import parse
from penstock.expressions.signatures import SIGNATURES

SECONDS = 6.0
"""Of processor time. What does not pay takes minutes."""
LETTERS = 100_000


@cache
def bombs() -> dict[str, Any]:
    long = "a" * LETTERS
    nested: list[Any] = ["a" * 16]
    for _ in range(16):
        nested = [nested, nested]
    return {
        "long": long, "needle": "b" + "a" * (LETTERS // 4), "digits": "1" * LETTERS + "x", "signs": ">" * (LETTERS // 2),
        "brackets": "[" * (LETTERS // 2), "spaces": " " * LETTERS, "dots": "1." * (LETTERS // 2), "hours": "1h" * (LETTERS // 2),
        "years": "2006" * (LETTERS // 4), "slashes": "/.." * (LETTERS // 3), "quotes": "'\\\"" * (LETTERS // 3),
        "percents": "%999999999d%-9999999s" * 10, "data": "[" + "1," * (LETTERS // 4) + "1]",
        "same": [long] * 25_000, "alike": [long[:1000] + str(n) for n in range(12_000)], "ints": list(range(75_000)),
        "pairs": [[str(n), n] for n in range(12_000)], "range": range(10**9), "nested": nested,
        "map": {long[:200] + str(n): n for n in range(12_000)}, "many": 10**9, "one": 1, "little": "x", "nothing": "",
        "moment": "2024-01-01T00:00:00Z",
    }  # fmt: skip


TEXTS = ("long", "needle", "digits", "signs", "percents", "same", "little", "moment")
FEW = ("long", "needle", "many", "moment")


def calls(name: str) -> Iterator[tuple[str, ...]]:
    """The arguments: one of each alone, pairs, and a few threes."""
    least, most, _ = SIGNATURES[name]
    if least <= 1 <= most:
        yield from ((one,) for one in bombs())
    if least <= 2 <= most:
        yield from itertools.product(TEXTS, repeat=2)
        yield from ((one, one) for one in bombs())
    if least <= 3 <= most:
        yield from itertools.product(FEW, repeat=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SIGNATURES.keys() - {"has"}))
def test_a_function_pays_for_its_work(name: str) -> None:
    for arguments in calls(name):
        begun = time.process_time()
        with contextlib.suppress(EvaluationError):
            evaluate(parse(f"{name}({', '.join(arguments)})"), bombs())
        taken = time.process_time() - begun
        assert taken < SECONDS, f"{name}{arguments} took {taken:.1f} s"


@pytest.mark.parametrize("text", ["sort(same)", "sprig_sortAlpha(same)", "[sort(same)].map(x, sort(x))"])
def test_sorting_pays_for_comparisons(text: str) -> None:
    with pytest.raises(EvaluationError, match=r"takes too long|for lists"):
        evaluate(parse(text), bombs())
