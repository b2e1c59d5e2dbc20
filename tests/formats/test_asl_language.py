"""The language of state machines: what the recordings do not show, and what hostile text does to it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock.formats.asl.check.machine import check
from penstock.formats.asl.language import jsonata, payload
from penstock.formats.asl.language.choices import wildcard
from penstock.formats.asl.language.failures import MalformedText, StateFailure
from penstock.formats.asl.language.intrinsics import read_call
from penstock.formats.asl.language.paths import follow, read_path
from penstock.formats.asl.language.scope import Scope
from penstock.formats.asl.language.times import read_timestamp
from penstock.formats.asl.walk.items import batches, read_items

ORDERS = {
    "orders": [{"id": 1, "total": 5, "tags": ["a"]}, {"id": 2, "total": 50, "tags": []}, {"id": 3}],
    "least": 10,
    "odd name": {"x-y": 1},
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.orders[0].id", 1),
        ("$.orders[-1].id", 3),
        ("$.orders[0:2].id", [1, 2]),
        ("$.orders[*].total", [5, 50]),
        ("$..id", [1, 2, 3]),
        ("$.orders[0,2].id", [1, 3]),
        ("$['odd name']['x-y']", 1),
        ("$.orders[?(@.total > $.least)].id", [2]),
        ("$.orders[?(@.total)].id", [1, 2]),
        ("$.orders[?(@.total == 5 || !(@.total))].id", [1, 3]),
        ("$.orders[?(@.id in [1, 3])].id", [1, 3]),
        ("$.orders.length()", 3),
        ("$.orders[?(@.id == 99)]", []),
    ],
)
def test_paths(path: str, value: Any) -> None:
    assert follow(read_path(path), ORDERS, Scope()) == value


@pytest.mark.parametrize(
    "path", ["$.", "$.a[", "$.a[?(@.b]", "$[x]", "a.b", "$.a b", "$.a[?(@.b ==)]", "$..", "$." + "a." * 5000]
)
def test_text_that_is_no_path(path: str) -> None:
    with pytest.raises(MalformedText):
        read_path(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("States.Format('{} of {}', 1, States.Array('a'))", '1 of ["a"]'),
        (r"States.Format('\{\} {} it\'s', true)", "{} true it's"),
        ("States.ArrayRange(5, 1, -2)", [5, 3, 1]),
        ("States.ArrayUnique(States.Array(1, true, 1))", [1, True]),
        ("States.ArrayContains(States.Array(1), true)", False),
        ("States.JsonMerge(States.StringToJson('{\"a\":1}'), States.StringToJson('{\"a\":2}'), false)", {"a": 2}),
        ("States.StringSplit('a,b;;c', ',;')", ["a", "b", "c"]),
        ("States.Base64Decode(States.Base64Encode('ä'))", "ä"),
    ],
)
def test_intrinsic_functions(text: str, value: Any) -> None:
    assert payload.value_of(text, ORDERS, Scope(), "x.$") == value


@pytest.mark.parametrize(
    "text",
    [
        "States.ArrayRange(0, 100000, 1)",
        "States.JsonMerge(States.Array(), States.Array(), false)",
        "States.Format('{}')",
        "States.StringToJson('nope')",
        "States.ArrayGetItem(States.Array(), 0)",
        "States.Hash('a', 'CRC')",
    ],
)
def test_calls_that_fail_have_the_error_of_intrinsic_functions(text: str) -> None:
    with pytest.raises(StateFailure) as failure:
        payload.value_of(text, {}, Scope(), "x.$")
    assert failure.value.error == "States.IntrinsicFailure"


def test_calls_are_nested_ten_deep_at_most() -> None:
    read_call("States.Array(" * 10 + ")" * 10)
    with pytest.raises(MalformedText):
        read_call("States.Array(" * 11 + ")" * 11)


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("*.csv", "a.csv", True),
        ("a*b*c", "aXbYc", True),
        ("a*", "b", False),
        (r"a\*", "a*", True),
        (r"a\*", "ab", False),
        ("ab*ba", "aba", False),
    ],
)
def test_wildcards(pattern: str, text: str, fits: bool) -> None:
    assert wildcard(pattern, text) is fits


def test_timestamps_need_t_and_a_zone() -> None:
    assert read_timestamp("2026-02-28T10:00:00+01:30") == read_timestamp("2026-02-28T08:30:00Z")
    assert [
        read_timestamp(text) for text in ("2026-02-30T10:00:00Z", "2026-02-28 10:00:00Z", "2026-02-28T10:00:00", 7)
    ] == [None] * 4


@pytest.mark.parametrize(
    "expression",
    [
        "($f := function($x) { $f($x + 1) }; $f(1))",
        "($f := function($x) { 1 + $f($x) }; $f(1))",
        "$map([1..9999999], function($x) { [1..1000] })",
        "$eval('1')",
        "function($x) { $x }",
        "$match('" + "a" * 40 + "!', /(a+)+$/)",
        "(" * 5000 + "1" + ")" * 5000,
        "[[" * 500,
        "$" * 100,
    ],
)
def test_hostile_expressions_fail_in_time(expression: str) -> None:
    began = time.monotonic()
    with pytest.raises(StateFailure) as failure:
        jsonata.evaluate(f"{{% {expression} %}}", {"input": {}}, Scope(), "Output")
    assert failure.value.error == "States.QueryEvaluationError"
    assert time.monotonic() - began < 20


def test_null_is_a_value_and_undefined_is_an_error() -> None:
    scope = Scope(variables={"none": None})
    assert jsonata.evaluate("{% $none %}", {"input": {"a": None}}, scope, "Output") is None
    assert jsonata.evaluate("{% $states.input %}", {"input": {"a": None}}, scope, "Output") == {"a": None}
    with pytest.raises(StateFailure):
        jsonata.evaluate("{% $states.input.b %}", {"input": {"a": None}}, scope, "Output")


def test_regular_expressions_of_jsonata_still_find_their_groups() -> None:
    found = jsonata.evaluate("{% $replace('a-1', /([a-z])-(\\d)/, '$2$1') %}", {"input": {}}, Scope(), "Output")
    assert found == "1a"


def test_items_of_every_form() -> None:
    assert read_items({"InputType": "JSONL"}, '{"a": 1}\n\n{"a": 2}\n') == [{"a": 1}, {"a": 2}]
    assert read_items({"InputType": "JSON", "ItemsPointer": "/x/1"}, '{"x": [0, [7]]}') == [7]
    assert read_items({"InputType": "CSV", "CSVDelimiter": "TAB"}, "a\tb\n1\n") == [{"a": "1", "b": ""}]
    for config, text in (
        ({"InputType": "PARQUET"}, "x"),
        ({"InputType": "JSON"}, "{"),
        ({"InputType": "CSV"}, "a,a\n1,2\n"),
    ):
        with pytest.raises(StateFailure):
            read_items(config, text)


def test_batches_keep_both_limits() -> None:
    assert [len(one["Items"]) for one in batches(list(range(7)), 3, None, None)] == [3, 3, 1]
    assert [len(one["Items"]) for one in batches(["x" * 50] * 4, None, 120, {"k": 1})] == [2, 2]


def test_a_definition_nested_too_deep_is_refused_not_followed() -> None:
    machine: dict[str, Any] = {"StartAt": "s", "States": {"s": {"Type": "Succeed"}}}
    for at in range(60):
        machine = {"StartAt": f"p{at}", "States": {f"p{at}": {"Type": "Parallel", "Branches": [machine], "End": True}}}
    assert any("nested deeper" in one.message for one in check(machine))


@pytest.mark.parametrize(
    "definition",
    [
        None,
        [],
        7,
        {},
        {"StartAt": 1, "States": []},
        {"StartAt": "a", "States": {"a": None}},
        {"StartAt": "a", "States": {"a": {"Type": ["Pass"]}}},
        {"StartAt": "a", "States": {"a": {"Type": "Choice", "Choices": [None], "Default": 4}}},
    ],
)
def test_shapes_that_are_no_machine(definition: Any) -> None:
    assert check(definition)
