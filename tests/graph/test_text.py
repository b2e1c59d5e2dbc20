"""JSON and YAML as they come in: hostile, broken, odd. Everything ends in data or in one DocumentError."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DocumentError, Problem
from penstock.graph.codec import digest, from_text, to_json
from penstock.graph.model import Workflow
from penstock.graph.text import MAX_ALIASED, MAX_BYTES, MAX_DEPTH, read_all_yaml, read_json, read_yaml
from tests.support.speed import within

from .strategies import NASTY, examples, plain

Reader = Callable[[str, str], tuple[Any, Any]]


def yaml(text: str) -> Any:
    return read_yaml(text, "f.yaml")[0]


def refused(read: Reader, text: str) -> Problem:
    with within(10), pytest.raises(DocumentError) as caught:
        read(text, "f")
    (problem,) = caught.value.problems
    assert problem.fix
    assert problem.source is not None
    assert len(problem.message) < 400
    return problem


# -- bombs ------------------------------------------------------------------------------------------------------------

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)
BOMBS = {
    "a billion laughs": LAUGHS,
    "a billion laughs in mappings": LAUGHS.replace("[", "{k: [").replace("]", "]}"),
    "quadratic": "a: &a [" + "x," * 2000 + "]\nb: [" + "*a," * 2000 + "]",
    "quadratic text": 'a: &a "' + "x" * 1_000_000 + '"\nb: [' + "*a," * 1000 + "]",
    "an alias in itself": "a: &a [*a]",
    "an alias in its own mapping": "&a {b: {c: *a}}",
    "an alias in its own merge": "&a {<<: *a}",
    "open lists": "[" * 100_000,
    "open mappings": "{a: " * 100_000,
    "lists in lists": "[" * 100_000 + "]" * 100_000,
    "dashes": "- " * 100_000,
    "question marks": "? " * 100_000,
    "both brackets": "{[" * 100_000,
    "steps to the right": "\n".join(" " * i + "a:" for i in range(2000)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_yaml_bombs(name: str) -> None:
    assert refused(read_yaml, BOMBS[name]).code in ("P101", "P102")


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000, "[" * 900 + "]" * 900, "[{}," * 100_000]
)
def test_json_bombs(text: str) -> None:
    assert refused(read_json, text).code == "P101"


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_both_readers_have_the_same_depth(read: Reader) -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")):
        levels = (MAX_DEPTH + 1) // (2 if len(opening) > 5 else 1)
        assert read(opening * levels + "1" + closing * levels, "f")[0]
        assert refused(read, opening * (levels + 1) + "1" + closing * (levels + 1)).code == "P101"


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_a_hundred_megabytes_are_refused_at_once(read: Reader) -> None:
    text = '["' + "x" * 100_000_000 + '"]'
    with within(1):
        assert "MB is too large" in refused(read, text).message
    assert len(text) > MAX_BYTES


def test_keys_as_long_as_books_do_not_fill_the_memory() -> None:
    text = "? " + "k" * 500_000 + "\n: [" + ", ".join(["[a]"] * 20_000) + "]"
    data, marks = read_yaml(text, "f")
    assert len(data["k" * 500_000]) == 20_000
    assert sum(map(len, marks)) < 10_000_000
    steps = ", ".join(['{"name": "s"}'] * 2000)
    with pytest.raises(DocumentError):
        from_text(
            '{"apiVersion": "penstock/v1", "kind": "Workflow", "name": "w", "labels": {"'
            + "k" * 500_000
            + '": ['
            + steps
            + "]}}"
        )


def test_aliases_in_reason_are_welcome() -> None:
    assert yaml("a: &a {x: [1, 2]}\nb: *a\nc: [*a, *a]\n") == {
        "a": {"x": [1, 2]},
        "b": {"x": [1, 2]},
        "c": [{"x": [1, 2]}, {"x": [1, 2]}],
    }
    assert yaml("&k key: 1\nother: *k") == {"key": 1, "other": "key"}
    assert yaml("a: &k key\n*k : 1") == {"a": "key", "key": 1}
    assert yaml("- &a 1\n- *a\n- &a 2\n- *a") == [1, 1, 2, 2]
    assert (
        len(yaml("a: &a [" + "x," * 1000 + "]\nb: [" + "*a," * (MAX_ALIASED // 1001) + "]")["b"]) == MAX_ALIASED // 1001
    )


def test_what_an_alias_stands_for_is_its_own_copy() -> None:
    data = yaml("a: &a [1]\nb: *a")
    data["b"].append(2)
    assert data["a"] == [1]


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, line, words",
    [
        ("a: 1\nb: 2\na: 3\n", 3, "twice"),
        ("x:\n  a: 1\n  a: 2\n", 3, "twice"),
        ("on: 1\n'on': 2\n", 2, "twice"),
        ("a:\n\t- b\n", 2, "not YAML"),
        ("a: b: c\n", 1, "not YAML"),
        ("a: [1, 2\n", 2, "not YAML"),
        ("a: 'b\n", 2, "not YAML"),
        ("a\n---\nb\n", 1, "2 documents"),
        ("a: !!python/object:os.system {}\n", 1, "!python/object:os.system"),
        ("a: !!python/object/apply:os.system ['true']\n", 1, "tag"),
        ("a:\n  - !!python/name:os.system ''\n", 2, "tag"),
        ("a: !mine b\n", 1, "tag"),
        ("a: !mine [b]\n", 1, "tag"),
        ("a: !!set {b, c}\n", 1, "tag"),
        ("a: !!omap [b: 1]\n", 1, "tag"),
        ("a: !!int ''\n", 1, "not YAML"),
        ("a: !!int abc\n", 1, "not YAML"),
        ("a: !!int _\n", 1, "not YAML"),
        ("a: !!float ''\n", 1, "not YAML"),
        ("a: !!bool perhaps\n", 1, "not YAML"),
        ("a: 1\nb: " + "1" * 500 + "\n", 2, "a number of this length"),
        ("a: *b\n", 1, "no anchor"),
        ("a: 1\n<<: 2\n", 2, "'<<' merges mappings only"),
        ("a: 1\n<<: [{b: 1}, 2]\n", 2, "'<<' merges mappings only"),
        ("[a]: 1\n", 1, "a key must be text"),
        ("{a: 1}: 1\n", 1, "a key must be text"),
        ("a: &x [1]\n*x : 2\n", 2, "a key must be text"),
        ("a: \x00\n", 1, "not YAML"),
        ("a: \x1b[31m\n", 1, "not YAML"),
        ("a: \ud800\n", 1, "not YAML"),
        ('a: "\\ud800"\n', 1, "not YAML"),
        ("%TAG ! tag:a,2000:\n%TAG ! tag:b,2000:\n--- a\n", 2, "not YAML"),
        ("a: 1\n...\nb: 2\n", 3, "not YAML"),
        ("\xff\xfea\x00", 1, "not YAML"),
    ],
)
def test_yaml_that_is_refused(text: str, line: int, words: str) -> None:
    problem = refused(read_yaml, text)
    assert problem.code in ("P101", "P102")
    assert words in problem.message
    assert problem.source is not None
    assert problem.source.line == line


@pytest.mark.parametrize(
    "text, line, words",
    [
        ('{"a": 1, "a": 2}', 1, "twice"),
        ('{"a": NaN}', 1, "NaN"),
        ('{"a": Infinity}', 1, "Infinity"),
        ('{"a": -Infinity}', 1, "-Infinity"),
        ('{"a":\n', 2, "not JSON"),
        ('{"a": 1,\n "b": }', 2, "not JSON"),
        ('{"a": 1}\n{"b": 2}', 2, "not JSON"),
        ("{'a': 1}", 1, "not JSON"),
        ('{"a": "\t"}', 1, "not JSON"),
        ('{"a": "\x00"}', 1, "not JSON"),
        ('{"a": "\n"}', 1, "not JSON"),
        ('["a",\u2028\n 1 2]', 1, "not JSON"),
        ("[" + "1" * 5000 + "]", 1, "digits"),
        ('{"a": "\\ud800"}', 1, "surrogate"),
        ('{"\\udfff": 1}', 1, "surrogate"),
        ('{"a": "\ud800"}', 1, "surrogate"),
        ("", 1, "not JSON"),
        ("\ufeff{}", 1, "not JSON"),
    ],
)
def test_json_that_is_refused(text: str, line: int, words: str) -> None:
    problem = refused(read_json, text)
    assert problem.code == "P102"
    assert words in problem.message
    assert problem.source is not None
    assert problem.source.line == line


def test_the_offending_line_is_shown() -> None:
    assert refused(read_yaml, "a: 1\nb: [c\nd: 2\n").excerpt in ("d: 2", "b: [c")
    assert refused(read_json, '{"a": 1,\n "b": oops}').excerpt == ' "b": oops}'
    assert refused(read_json, '{"a":\n').excerpt == ""


# -- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, data",
    [
        ("", None),
        ("# nothing\n", None),
        ("\ufeffa: 1\n", {"a": 1}),
        ("a: 1\r\nb: [2]\r\n", {"a": 1, "b": [2]}),
        ("---\na: 1\n...\n", {"a": 1}),
        ("a: {b: 1}\nc:\n  <<: {b: 2, d: 3}\n  b: 4\n", {"a": {"b": 1}, "c": {"b": 4, "d": 3}}),
        (
            "x: &x {a: 1, b: 1}\ny: &y {a: 2}\nz: {<<: [*x, *y], c: 3}",
            {"x": {"a": 1, "b": 1}, "y": {"a": 2}, "z": {"a": 1, "b": 1, "c": 3}},
        ),
        ("on: [a]\nyes: 1\nNo: 2\ntrue: 3", {"on": ["a"], "yes": 1, "No": 2, "true": 3}),
        ("a: on\nb: 'on'\nc: yes", {"a": True, "b": "on", "c": True}),
        ("a: 2026-01-01\nb: 0x10\nc: 1.5\nd: ~\ne: =", {"a": "2026-01-01", "b": 16, "c": 1.5, "d": None, "e": "="}),
        ("a: <<", {"a": "<<"}),
        ("b: !!str 5\nc: !!int '5'\nd: !!map {}\ne: !!seq []", {"b": "5", "c": 5, "d": {}, "e": []}),
        ('"<<": 1', {"<<": 1}),
        ("a: |\n  x\n   y\n", {"a": "x\n y\n"}),
        ("'': 1", {"": 1}),
    ],
)
def test_yaml_that_is_read(text: str, data: Any) -> None:
    assert repr(yaml(text)) == repr(data)


def test_json_pairs_of_surrogates_are_characters() -> None:
    assert read_json('{"a": "\\ud83d\\ude00"}', "f")[0] == {"a": "😀"}


def test_several_documents_where_they_are_expected() -> None:
    documents = read_all_yaml("a: 1\n---\n- 2\n---\n", "f")
    assert [data for data, _ in documents] == [{"a": 1}, [2], None]
    assert [marks["$"][0] for _, marks in documents] == [1, 3, 5]
    assert read_all_yaml("", "f") == []


@examples(150)
@given(plain)
def test_json_is_read_as_it_is(data: Any) -> None:
    for text in (json.dumps(data), json.dumps(data, ensure_ascii=False, indent="\t")):
        assert repr(read_json(text, "f")[0]) == repr(data)


# -- lines ------------------------------------------------------------------------------------------------------------

DOCUMENT = """\
apiVersion: penstock/v1
kind: Workflow
name: w
params:
  - name: x
    defualt: 1
steps:
  - name: a
    suspend: {}
    retry:
      limit: 3
      backof: {initial: 1}
    resources:
      cpu: 2
      memory: 4GB
  - name: b
    container: {image: i,
      comand: [x]}
    when: >-
      params.x and
      params.y
    needs:
      - a
      - {step: a, outcomes: [succeeded, faild]}
    inputs:
      - {name: i, value: [1, {k: "${{ params. }}"}]}
colour: red
"""


def test_every_problem_has_its_own_line() -> None:
    with pytest.raises(DocumentError) as caught:
        from_text(DOCUMENT, "w.yaml")
    found = {
        problem.where: (problem.source.line, problem.source.column)
        for problem in caught.value.problems
        if problem.source
    }
    assert found == {
        "params[0].defualt": (6, 5),
        "steps[0].retry.backof": (12, 7),
        "steps[0].resources.memory": (15, 7),
        "steps[1].container.comand": (18, 7),
        "steps[1].when": (19, 5),
        "steps[1].needs[1].outcomes[1]": (24, 41),
        "steps[1].inputs[0].value[1].k": (26, 31),
        "colour": (27, 1),
    }


def test_steps_know_where_they_were_written() -> None:
    corrected = DOCUMENT
    for wrong, right in (
        ("defualt", "default"),
        ("backof:", "backoff:"),
        ("4GB", "4Gi"),
        ("comand", "command"),
        ("and\n", "&&\n"),
        ("faild", "failed"),
    ):
        corrected = corrected.replace(wrong, right)
    corrected = corrected.replace("${{ params. }}", "${{ params.x }}").replace("colour: red\n", "")
    workflow = from_text(corrected, "w.yaml")
    assert [str(step.source) for step in workflow.steps] == ["w.yaml:8", "w.yaml:16"]
    assert str(workflow.source) == "w.yaml:1"
    assert workflow == from_text(corrected.replace("\n", "\r\n"), "w.yaml")
    assert workflow == from_text("\ufeff" + corrected)
    assert digest(workflow) == digest(from_text("\ufeff" + to_json(workflow)))


def test_a_field_that_overrides_a_merged_one_is_told_at_its_own_line() -> None:
    text = "apiVersion: penstock/v1\nkind: Workflow\nname: w\nsteps:\n  - &a {name: a, suspend: {}, replicas: x}\n  - name: b\n    <<: *a\n    replicas: y\n"
    with pytest.raises(DocumentError) as caught:
        from_text(text)
    assert [(p.where, p.source.line) for p in caught.value.problems if p.source] == [
        ("steps[0].replicas", 5),
        ("steps[1].replicas", 8),
    ]


def test_positions_survive_in_documents_of_any_size() -> None:
    """Above a number of nodes only the outer ones keep their line; the nearest one is told."""
    steps = "".join(f"  - {{name: s{i}, suspend: {{}}}}\n" for i in range(40_000))
    with pytest.raises(DocumentError) as caught:
        from_text("apiVersion: penstock/v1\nkind: Workflow\nname: w\ncolour: red\nsteps:\n" + steps)
    assert [(p.where, p.source.line) for p in caught.value.problems if p.source] == [("colour", 4)]


# -- fuzz -------------------------------------------------------------------------------------------------------------

_TOKENS = st.sampled_from(
    [
        *NASTY,
        "apiVersion: penstock/v1\n",
        "kind: Workflow\n",
        "name: w\n",
        "steps:\n",
        "  - name: a\n",
        "    suspend: {}\n",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        ": ",
        "- ",
        "? ",
        "&a ",
        "*a ",
        "!!int ",
        "!!bool ",
        "!!float ",
        "!x ",
        "|\n",
        ">-\n",
        "---\n",
        "...\n",
        "%YAML 1.1\n",
        "<<: ",
        "'",
        '"',
        "\\",
        "\\x",
        "0x",
        "0b",
        "1_0",
        ".inf",
        ".nan",
        "1e999",
        "190:20:30",
        "\ud800",
        "\n",
        "\r",
        "\x85",
    ]
)
messy = (
    st.lists(_TOKENS, max_size=14).map("".join)
    | st.text(max_size=30)
    | st.binary(max_size=40).map(lambda raw: raw.decode("latin-1"))
)


@examples(1500)
@given(messy)
def test_any_text_is_data_or_one_document_error(text: str) -> None:
    for read in (read_json, read_yaml):
        try:
            read(text, "f")
        except DocumentError as error:
            assert error.problems[0].source is not None


@examples(600)
@given(messy)
def test_any_text_behind_a_good_beginning_is_a_workflow_or_a_document_error(text: str) -> None:
    for beginning in (
        "apiVersion: penstock/v1\nkind: Workflow\nname: w\nsteps:\n  - name: a\n    suspend: {}\n    ",
        '{"apiVersion": "penstock/v1", ',
    ):
        try:
            assert isinstance(from_text(beginning + text), Workflow)
        except DocumentError as error:
            assert all(problem.fix for problem in error.problems)
