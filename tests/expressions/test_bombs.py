"""Every function of expressions pays for its work: with the largest arguments that an evaluation may have it ends soon, with a value or with the
error of the budget.
"""

from __future__ import annotations

import contextlib
import itertools
import resource
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from penstock.expressions.evaluate import EvaluationError, evaluate
from penstock.expressions.parse import parse
from penstock.expressions.python import LIST_METHODS, MAP_METHODS, TEXT_METHODS
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


@pytest.mark.long
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


# -- methods and operators of Python ----------------------------------------------------------------------------------

SOME = 30_000
ROOM = 1 << 30
"""What a call may take of the address space beyond what there is: unpaid results break here, and not the machine."""
ARGUMENTS = ("long", "needle", "middle", "ints", "same", "alike", "map", "many", "range", "little", "nothing")
RECEIVERS = {
    "long": TEXT_METHODS, "needle": TEXT_METHODS, "middle": TEXT_METHODS, "nothing": TEXT_METHODS, "same": LIST_METHODS, "alike": LIST_METHODS,
    "range": LIST_METHODS, "map": MAP_METHODS,
}  # fmt: skip
OPERATORS = ("==", "!=", "<", "<=", ">", ">=")


@cache
def smaller() -> dict[str, Any]:
    """Enough that what does not pay takes gigabytes or seconds, and no more."""
    long = "a" * SOME
    half = "a" * (SOME // 4)
    return bombs() | {
        "long": long, "needle": "b" + half, "middle": f"{half}b{half}", "same": [long] * (SOME // 4), "ints": list(range(SOME)),
        "alike": [long[:1000] + str(n) for n in range(SOME // 10)],
    }  # fmt: skip


@pytest.fixture
def little_memory() -> Iterator[None]:
    place = Path("/proc/self/statm")
    if not place.exists():
        pytest.skip("needs /proc, to know what is taken already")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(place.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _pays(text: str) -> None:
    begun = time.process_time()
    with contextlib.suppress(EvaluationError):
        evaluate(parse(text), smaller())
    taken = time.process_time() - begun
    assert taken < SECONDS, f"{text} took {taken:.1f} s"


@pytest.mark.slow
@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("name", sorted(TEXT_METHODS | LIST_METHODS | MAP_METHODS))
def test_a_method_pays_for_its_work(name: str) -> None:
    for of in (one for one, methods in RECEIVERS.items() if name in methods):
        _pays(f"py_method({of}, '{name}')")
        for argument in ARGUMENTS:
            _pays(f"py_method({of}, '{name}', {argument})")
        for first, second in itertools.product(("nothing", "little", "many", "same", of), repeat=2):
            _pays(f"py_method({of}, '{name}', {first}, {second})")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_pays_for_its_work(operator: str) -> None:
    for left, right in itertools.product((*ARGUMENTS, "nested"), repeat=2):
        _pays(f"py_compare({left}, '{operator}', {right})")


@pytest.mark.usefixtures("little_memory")
def test_the_letters_of_a_text_pay_for_what_is_put_between_them() -> None:
    with pytest.raises(EvaluationError, match="takes too long"):
        evaluate(parse("py_method(long, 'join', long)"), smaller())


@pytest.mark.parametrize("name", ["rfind", "rindex", "rpartition", "rsplit"])
def test_a_search_from_the_right_pays_for_each_comparison(name: str) -> None:
    with pytest.raises(EvaluationError, match="takes too long"):
        evaluate(parse(f"py_method(long, '{name}', middle)"), smaller())


@pytest.mark.parametrize(
    "text",
    [
        "py_compare(1, alike, 1)",
        "py_compare(1, long, 1)",
        "py_method(1, long)",
        "py_item(map, long)",
        "py_method(alike, 'index', long)",
    ],
)
def test_a_message_does_not_repeat_a_large_value(text: str) -> None:
    with pytest.raises(EvaluationError) as refused:
        evaluate(parse(text), smaller())
    assert len(str(refused.value)) < 1000
