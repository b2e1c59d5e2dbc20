"""Types of values: as text, what fits what, and which values belong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.expressions.types import (
    ANY,
    BOOL,
    FLOAT,
    INT,
    NULL,
    STR,
    Type,
    accepts,
    fits,
    join,
    list_of,
    of_value,
    optional,
    parse,
)
from tests.graph.strategies import anything, examples, plain, types, value_of

typed_values = types.flatmap(lambda type_: st.tuples(st.just(type_), value_of(type_)))


@examples(300)
@given(types)
def test_a_type_written_and_read_is_the_same_type(type_: Type) -> None:
    assert parse(str(type_)) == type_
    assert parse(f" {type_} ".replace("[", " [ ").replace(",", " , ")) == type_


@examples(500)
@given(
    anything
    | st.lists(
        st.sampled_from(["int", "list", "tuple", "optional", "[", "]", ",", " ", "dict", "x", "1"]), max_size=9
    ).map("".join)
)
def test_any_text_is_a_type_or_a_value_error(text: str) -> None:
    try:
        found = parse(text)
    except ValueError as error:
        assert str(error)
    else:
        assert parse(str(found)) == found


@pytest.mark.parametrize(
    "text, type_",
    [
        ("string", STR),
        ("integer", INT),
        ("number", FLOAT),
        ("boolean", BOOL),
        ("list", list_of(ANY)),
        ("array[string]", list_of(STR)),
        ("dict[str, int]", Type("dict", (INT,))),
        ("map[int]", Type("dict", (INT,))),
        ("optional[int]", optional(INT)),
        ("optional[optional[int]]", optional(INT)),
        ("optional[any]", ANY),
        ("optional[null]", NULL),
        ("optional", ANY),
        ("tuple", Type("tuple")),
        ("tuple[int, str]", Type("tuple", (INT, STR))),
    ],
)
def test_other_spellings(text: str, type_: Type) -> None:
    assert parse(text) == type_


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "not a type"),
        ("intt", 'Did you mean "int"?'),
        ("int[str]", "no arguments"),
        ("list[int", "']' is missing"),
        ("list[int]]", "left over"),
        ("list[]", "not a type"),
        ("list[int, str]", "one argument"),
        ("dict[int, str]", "one argument"),
        ("list int", "left over"),
        ("list[int str]", "out of place"),
        ("int?", "not a type"),
        ("list[" * 40 + "int" + "]" * 40, "not a type"),
        ("x" * 1_000_000, "not a type"),
        ("tuple[" + "int," * 1_000_000 + "int]", "not a type"),
    ],
)
def test_what_is_no_type_is_refused_in_few_words(text: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300


@examples(300)
@given(types)
def test_everything_fits_itself_any_and_its_own_optional(type_: Type) -> None:
    assert fits(type_, type_)
    assert fits(type_, ANY)
    assert fits(ANY, type_)
    assert fits(type_, optional(type_))


@pytest.mark.parametrize(
    "given_, wanted, fit",
    [
        ("int", "float", True),
        ("float", "int", False),
        ("bool", "int", False),
        ("int", "bool", False),
        ("int", "str", False),
        ("str", "file", True),
        ("file", "str", True),
        ("null", "int", False),
        ("null", "optional[int]", True),
        ("int", "optional[float]", True),
        ("optional[int]", "int", True),
        ("list[int]", "list[float]", True),
        ("list[float]", "list[int]", False),
        ("list[int]", "list", True),
        ("tuple[int, int]", "list[int]", True),
        ("tuple[int, str]", "tuple[int, int]", False),
        ("tuple[int]", "tuple[int, int]", False),
        ("dict[int]", "dict[float]", True),
        ("dict[int]", "list[int]", False),
        ("int", "object", True),
        ("object", "int", False),
    ],
)
def test_what_fits(given_: str, wanted: str, fit: bool) -> None:
    assert fits(parse(given_), parse(wanted)) is fit


@examples(500)
@given(st.lists(types, min_size=1, max_size=4))
def test_a_join_is_an_upper_bound(given_: list[Type]) -> None:
    result = join(*given_)
    assert all(fits(type_, result) for type_ in given_)
    assert join(*given_, *given_) == result


@examples(200)
@given(st.lists(typed_values, min_size=1, max_size=3))
def test_a_join_accepts_every_value_of_its_parts(given_: list[tuple[Type, Any]]) -> None:
    result = join(*(type_ for type_, _ in given_))
    assert all(accepts(result, value) for _, value in given_)


@pytest.mark.parametrize(
    "parts, result",
    [
        (["int", "int"], "int"),
        (["int", "float"], "float"),
        (["float", "int"], "float"),
        (["int", "str"], "any"),
        (["int", "null"], "optional[int]"),
        (["null", "int"], "optional[int]"),
        (["optional[int]", "int"], "optional[int]"),
        (["int", "optional[int]"], "optional[int]"),
        (["optional[int]", "float"], "optional[float]"),
        (["any", "int"], "any"),
        (["int", "any"], "any"),
        ([], "any"),
        (["tuple[int, int]", "list[int]"], "list[int]"),
        (["list[int]", "tuple[int, int]"], "list[int]"),
        (["list[int]", "list"], "list"),
    ],
)
def test_join(parts: list[str], result: str) -> None:
    assert join(*map(parse, parts)) == parse(result)


@examples(300)
@given(typed_values)
def test_a_value_of_a_type_is_accepted_and_fits(typed: tuple[Type, Any]) -> None:
    type_, value = typed
    assert accepts(type_, value)
    assert fits(of_value(value), type_)


@examples(500)
@given(plain)
def test_a_value_is_of_its_own_type(value: Any) -> None:
    assert accepts(of_value(value), value)
    assert accepts(optional(of_value(value)), None)


@examples(800)
@given(types, plain | st.builds(range, st.integers(1, 3)))
def test_what_is_accepted_fits(type_: Type, value: Any) -> None:
    """The other way round holds for scalars only: a list is judged by the join of its parts."""
    if accepts(type_, value):
        assert fits(of_value(value), type_)
    elif not isinstance(value, list | dict | range) and type_.name not in ("list", "dict", "tuple", "optional"):
        assert not fits(of_value(value), type_)


@pytest.mark.parametrize(
    "type_, value, belongs",
    [
        ("int", 1, True),
        ("int", True, False),
        ("int", 1.0, False),
        ("float", 1, True),
        ("bool", 1, False),
        ("str", None, False),
        ("list[int]", [1, "a"], False),
        ("list[int]", [1] * 50 + ["a"], False),
        ("list[int]", [], True),
        ("list[optional[int]]", [1, None], True),
        ("tuple[int, str]", [1, "a"], True),
        ("tuple[int, str]", [1], False),
        ("dict[int]", {"a": 1}, True),
        ("dict[int]", {"a": "b"}, False),
        ("list[int]", range(3), True),
        ("list[str]", range(3), False),
        ("list[str]", range(0), True),
        ("list[optional[int]]", range(3), True),
        ("tuple[int, int]", range(2), True),
        ("tuple[int, int]", range(3), False),
        ("tuple", range(3), True),
        ("list", {"a": 1}, False),
    ],
)
def test_what_belongs(type_: str, value: object, belongs: bool) -> None:
    assert accepts(parse(type_), value) is belongs


def test_what_one_element_is() -> None:
    assert [
        str(parse(text).item)
        for text in ("list[int]", "dict[str]", "tuple[int, float]", "tuple", "optional[list[int]]", "str", "int")
    ] == [
        "int",
        "str",
        "float",
        "any",
        "int",
        "str",
        "any",
    ]
