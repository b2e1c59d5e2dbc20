"""Parameters as typed on a command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PlanError
from penstock.expressions import types
from penstock.graph.model import Parameter, Workflow
from penstock.service.parameters import Given, own_of, parse, parse_shared
from tests.support.source import module

LISTS = module(
    """
import dataclasses, enum
from penstock import task, workflow

class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5

@dataclasses.dataclass
class Config:
    level: Level
    more: int = 3

@task
def f(levels: list[Level]) -> int: ...

@workflow
def flow(levels: list[Level] = [], by_name: dict[str, Config] = {}, d: dict[str, Level] = {}, xs: list[str] = []):
    return f(levels)
"""
)


def workflow(name: str, **named: str) -> Workflow:
    return Workflow(name=name, params=tuple(Parameter(name=key, type=types.parse(text)) for key, text in named.items()))


def test_values_have_the_types_of_the_parameters() -> None:
    one = workflow("w", n="int", rates="list[float]", text="str")
    assert parse(one, ["n=3", "rates=[0.1, 2]", "text=3"]) == {"n": 3, "rates": [0.1, 2], "text": "3"}


def test_every_problem_is_reported() -> None:
    with pytest.raises(PlanError) as found:
        parse(workflow("w", n="int"), ["n=x", "m=1", "k", "n=NaN"])
    assert [problem.code for problem in found.value.problems] == ["P402", "P401", "P403", "P402"]
    assert 'Did you mean "n"?' in found.value.problems[1].fix or "known: n" in found.value.problems[1].fix


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ("xs=[a,b-c, true]", """write JSON, with quotes around texts: -p xs='["a","b-c", true]'"""),
        ("d={n: red}", """write JSON, with quotes around texts: -p d='{"n": "red"}'"""),
        ("xs=[a", "write for example -p xs='[1, 2]'"),
        ("xs=a,b", "write for example -p xs='[1, 2]'"),
    ],
)
def test_a_list_without_quotes_is_told_with_them(given: str, fix: str) -> None:
    for one in (workflow("w", xs="list[str]", d="dict[str]"), LISTS.flow.graph):
        with pytest.raises(PlanError) as found:
            parse(one, [given])
        assert found.value.problems[0].fix == fix


def test_members_of_an_enum_may_be_named_in_lists_and_maps() -> None:
    given = ['levels=["HIGH", 1]', 'by_name={"x": {"level": "HIGH"}, "y": {"level": 1}}', 'd={"a": "HIGH"}']
    assert parse(LISTS.flow.graph, given) == {
        "levels": [5, 1],
        "by_name": {"x": {"level": "HIGH"}, "y": {"level": 1}},
        "d": {"a": 5},
    }


def test_a_parameter_goes_to_every_workflow_that_has_it() -> None:
    a, b = workflow("a", n="int", x="int"), workflow("b", n="int")
    assert parse_shared([a, b], ["n=1", "x=2"]) == [{"n": 1, "x": 2}, {"n": 1}]
    with pytest.raises(PlanError, match="none of the workflows has a parameter 'y'"):
        parse_shared([a, b], ["y=1"])


def test_a_text_without_a_value_is_reported_by_each_workflow() -> None:
    assert own_of(workflow("a", n="int"), ["n=1", "x=1", "n"]) == [Given("n", "1"), Given("", "n")]


def test_a_value_from_a_file(tmp_path: Path) -> None:
    one = workflow("w", rows="list[int]", text="str", n="int", data="file", more="any")
    (tmp_path / "rows.json").write_text("[1, 2]\n")
    (tmp_path / "rows.yaml").write_text("- 1\n- 2\n")
    (tmp_path / "text").write_text("[1, 2]\n")
    at = f"@{tmp_path}/"
    assert parse(one, [f"rows={at}rows.json"]) == {"rows": [1, 2]} == parse(one, [f"rows={at}rows.yaml"])
    assert parse(one, [f"text={at}text", f"data={at}text"]) == {"text": "[1, 2]", "data": f"{tmp_path}/text"}
    assert parse(one, ["text=@@ana", "more=@@x"]) == {"text": "@ana", "more": "@x"}
    assert parse(one, ["text=a@b"]) == {"text": "a@b"}
    for wrong, code in ((f"rows={at}nope", "P485"), (f"n={at}rows.json", "P402")):
        with pytest.raises(PlanError, match=code):
            parse(one, [wrong])


def test_a_file_of_parameters_and_what_overrides_it(tmp_path: Path) -> None:
    one = workflow("w", n="int", rates="list[float]", text="str", more="any", day="str")
    file = tmp_path / "p.yaml"
    file.write_text("n: 3\nrates: [0.1, 2]\ntext: '3'\nmore: '3'\nday: 2026-01-02\n")
    values = {"n": 3, "rates": [0.1, 2], "text": "3", "more": "3", "day": "2026-01-02"}
    assert parse(one, [f"@{file}"]) == values and parse(one, [f"@{file}", "n=4"]) == {**values, "n": 4}
    assert parse_shared([one, workflow("b", n="int")], [f"@{file}"])[1] == {"n": 3}
    file.write_text("m: 1\nn: x\n")
    with pytest.raises(PlanError) as found:
        parse(one, [f"@{file}"])
    assert [problem.code for problem in found.value.problems] == ["P401", "P402"]
    for text in ("- 1", "3", "1: 2"):
        file.write_text(text)
        with pytest.raises(PlanError, match="P485"):
            parse(one, [f"@{file}"])


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(PLAIN)
def test_what_a_file_says_arrives_as_it_is(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    file = tmp_path_factory.mktemp("params") / "p.json"
    file.write_text(json.dumps({"x": value}))
    assert parse(workflow("w", x="any"), [f"@{file}"]) == {"x": value}
