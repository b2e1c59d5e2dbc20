"""What a function declares, out of plain data: the same as in Python, here and in the program for pods, and refused in words."""

from __future__ import annotations

import datetime
import decimal
import json
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.artifacts.plain import alike, plain
from penstock.artifacts.rebuild import Misfit, build_of, builder
from penstock.artifacts.values import dumps, loads
from penstock.errors import UserError
from tests.support.declared import DECLARED, Color, Config, Level, Plain, Planet

SHIM: dict[str, Any] = {"__name__": "penstock_shim"}
exec(compile(pkgutil.get_data("penstock.formats", "shim_main.txt") or b"", "shim_main.txt", "exec"), SHIM)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)


def here(hint: Any, value: Any) -> Any:
    build = build_of(hint)
    return value if build is None else build(value)


def in_a_pod(hint: Any, value: Any) -> Any:
    return SHIM["_fit"](value, hint, 0)


@pytest.mark.parametrize("name", DECLARED)
@pytest.mark.parametrize("rebuild", [here, in_a_pod])
@given(data=st.data())
def test_a_value_arrives_as_what_is_declared(name: str, rebuild: Callable[..., Any], data: st.DataObject) -> None:
    hint, values = DECLARED[name]
    value = data.draw(values)
    found = rebuild(hint, loads(dumps(plain(value))))
    assert found == value and type(found) is type(value) and alike(found, value, exactly=True)


@pytest.mark.parametrize("name", DECLARED)
@given(
    value=st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2))
)
def test_both_sides_refuse_the_same(name: str, value: Any) -> None:
    def said(rebuild: Callable[..., Any]) -> Any:
        try:
            return rebuild(DECLARED[name][0], value)
        except ValueError:
            return "refused"

    assert said(here) == said(in_a_pod)


def takes(color: Color, level: Level, planet: Planet, word: Literal["fast", "slow"], config: Config) -> None: ...


def times(day: datetime.date, price: decimal.Decimal, path: Path, paths: list[Path]) -> None: ...


@pytest.mark.parametrize(
    ("function", "given_", "said", "fix"),
    [
        (takes, {"color": "bleu"}, "color of takes() is 'bleu', which is not a Color", "use one of 'blue', 'red'"),
        (takes, {"level": "hihg"}, "level of takes() is 'hihg', which is not a Level", "HIGH (3), LOW (1)"),
        (takes, {"level": 2}, "level of takes() is 2, which is not a Level", "LOW (1)"),
        (takes, {"planet": [1.0, "blue"]}, "which is not a Planet", "'EARTH', 'MARS'"),
        (takes, {"word": "slo"}, "word of takes() is 'slo', which is not one of the 2 values", "'slow', 'fast'"),
        (takes, {"config": {"rat": 1}}, "config of takes() is {'rat': 1}, which is not a Config", "rate, color"),
        (takes, {"config": {"rate": 1}}, "which is not a Config", "rate, color, since, home, limits"),
        (takes, {"config": 5}, "config of takes() is 5, which is not a Config", "its fields"),
        (
            takes,
            {"config": {"rate": 1, "color": "x", "since": "2024-01-01"}},
            "'color': 'x', 'since': '2024-01-01'}: 'x', which is not a Color",
            "red",
        ),
        (times, {"day": "2024-13-01"}, "day of times() is '2024-13-01', which is not a date", "2024-05-17"),
        (times, {"day": 5}, "which is not a date", "2024-05-17"),
        (times, {"price": "1,5"}, "which is not a Decimal", "1.50"),
        (times, {"path": 5}, "path of times() is 5, which is not a ", "give the path"),
        (times, {"paths": "a"}, "paths of times() is 'a', which is not a list", "give a list"),
    ],
)
def test_what_does_not_fit_is_named(function: Any, given_: dict[str, Any], said: str, fix: str) -> None:
    convert = builder(function)
    assert convert is not None
    with pytest.raises(UserError) as caught:
        convert(json.loads(json.dumps(given_)))
    problem = caught.value.problems[0]
    assert problem.code == "P709" and said in problem.message and fix in problem.fix


def test_members_have_names_too_and_nothing_is_none() -> None:
    assert here(Color, "RED") is Color.RED and here(Level, "HIGH") is Level.HIGH
    assert here(Color, None) is None
    with pytest.raises(Misfit):
        here(Literal[1], True)


@pytest.mark.parametrize("rebuild", [here, in_a_pod])
@pytest.mark.parametrize(
    "wrong",
    [
        {"count": "t"},
        {"count": True},
        {"count": 1.5},
        {"rate": "0.5"},
        {"name": 5},
        {"on": 1},
        {"sizes": ["a"]},
        {"sizes": 5},
        {"weights": {"a": "b"}},
        {"weights": [1]},
        {"most": "a"},
        {"either": [1]},
        {"when": 1.5},
        {"rest": {}},
        {"more": []},
        {"seen": "abc"},
        {"seen": [1]},
    ],
)
def test_plain_fields_are_checked_too(rebuild: Callable[..., Any], wrong: dict[str, Any]) -> None:
    right = {"count": 1, "rate": 2, "name": "n", "by_number": {"1": "a"}}
    assert rebuild(Plain, right) == Plain(1, 2, "n", by_number={"1": "a"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="which is not"):
        rebuild(Plain, right | wrong)


@given(fields=st.dictionaries(st.sampled_from(list(Plain.__dataclass_fields__)), st.recursive(PLAIN, st.lists)))
def test_both_sides_refuse_the_same_fields(fields: dict[str, Any]) -> None:
    def said(rebuild: Callable[..., Any]) -> Any:
        try:
            return rebuild(Plain, {"count": 1, "rate": 2.5, "name": "n"} | fields)
        except ValueError:
            return "refused"

    assert said(here) == said(in_a_pod)
