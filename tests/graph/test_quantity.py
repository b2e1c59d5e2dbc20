"""Kubernetes quantities: read by its rules, exact, and spelled in one way."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph.quantity import LARGEST, parse, short, show

from .strategies import anything, examples

RESOURCES = ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "requests.storage", "nvidia.com/gpu", "pods", ""]


@pytest.mark.parametrize(
    "text, milli",
    [
        ("0", 0),
        ("1", 1000),
        ("500m", 500),
        ("1.5", 1500),
        (".5", 500),
        ("2.", 2000),
        ("+2", 2000),
        ("-1", -1000),
        ("-500m", -500),
        ("0.001", 1),
        ("100n", 1),
        ("1u", 1),
        ("0.0001", 1),
        ("1500u", 2),
        ("1m", 1),
        ("1.5m", 2),
        ("-100n", -1),
        ("1k", 10**6),
        ("1M", 10**9),
        ("1G", 10**12),
        ("1T", 10**15),
        ("1P", 10**18),
        ("1E", 10**21),
        ("1Ki", 1024_000),
        ("4Gi", 4 * 2**30 * 1000),
        ("1.5Gi", 3 * 2**29 * 1000),
        ("1Ti", 2**40 * 1000),
        ("1Pi", 2**50 * 1000),
        ("7Ei", 7 * 2**60 * 1000),
        ("1e3", 10**6),
        ("1E3", 10**6),
        ("1e-3", 1),
        ("1e+2", 100_000),
        ("12E-1", 1200),
        ("1.5e2", 150_000),
        ("1e-9", 1),
        ("007", 7000),
        ("9223372036854775807", LARGEST),
        (2, 2000),
        (1.5, 1500),
        (0.1, 100),
        (0.1 + 0.2, 300),
        (1e3, 10**6),
        (0, 0),
        (-1, -1000),
    ],
)
def test_the_rules_of_kubernetes(text: str | float, milli: int) -> None:
    assert parse(text) == milli


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "m",
        ".",
        "Gi",
        "1 Gi",
        " 1",
        "1 ",
        "1\n",
        "1,5",
        "1_000",
        "4GB",
        "4gb",
        "4gi",
        "1K",
        "1g",
        "1Mb",
        "1mi",
        "1ki",
        "0x10",
        "1e",
        "1e3m",
        "1Ki2",
        "--1",
        "1-",
        "NaN",
        "nan",
        "inf",
        "-inf",
        "Infinity",
        "٤",
        "1e100",
        "9223372036854775808",
        "8Ei",
        "10E",
        "1e30",
        "9" * 31,
        float("nan"),
        float("inf"),
        1e300,
        2**63,
        True,
        False,
    ],
)
def test_what_is_no_quantity(text: str | float) -> None:
    with pytest.raises(ValueError, match="quantity|larger than any machine"):
        parse(text)


def test_what_is_no_quantity_is_not_repeated_at_length() -> None:
    for number in ("9" * 100_000, 10**5000):
        with pytest.raises(ValueError, match="quantity|larger than any machine") as caught:
            parse(number)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "typed, meant",
    [
        ("4GB", "4Gi"),
        ("4gb", "4Gi"),
        ("4 GB", "4Gi"),
        ("4gi", "4Gi"),
        ("1.5Gib", "1.5Gi"),
        ("512MB", "512Mi"),
        ("1K", "1Ki"),
        ("2tb", "2Ti"),
    ],
)
def test_the_usual_slips_have_a_hint_that_works(typed: str, meant: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(typed)
    found = re.search(r"; write (\S+)$", str(caught.value))
    assert found
    assert found[1] == meant
    assert parse(found[1]) > 0


@examples(400)
@given(
    st.integers(-LARGEST, LARGEST) | st.integers(0, 2**20).map(lambda n: n * 1024_000) | st.integers(0, 5000),
    st.sampled_from(RESOURCES),
)
def test_an_amount_shown_and_read_is_the_same_amount(milli: int, resource: str) -> None:
    text = show(milli, resource)
    assert parse(text) == milli
    assert show(parse(text), resource) == text


@examples(400)
@given(
    st.sampled_from(["", "+", "-"]),
    st.from_regex(r"[0-9]{1,6}(\.[0-9]{0,9})?|\.[0-9]{1,9}", fullmatch=True),
    st.sampled_from(["", "n", "u", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e3", "E-2", "e+1"]),
)
def test_reading_is_exact_and_rounds_away_from_nothing(sign: str, number: str, suffix: str) -> None:
    scale = {
        "": 1,
        "n": Fraction(1, 10**9),
        "u": Fraction(1, 10**6),
        "m": Fraction(1, 1000),
        "k": 10**3,
        "M": 10**6,
        "G": 10**9,
        "T": 10**12,
    }
    scale |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "e3": 1000, "E-2": Fraction(1, 100), "e+1": 10}
    exact = Fraction(number.removesuffix(".") if number != "." else "0") * scale[suffix] * 1000
    assert abs(parse(sign + number + suffix)) - exact < 1
    assert abs(parse(sign + number + suffix)) >= exact
    assert parse(sign + number + suffix) * (-1 if sign == "-" else 1) >= 0


@examples(400)
@given(anything)
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    try:
        parse(text)
    except ValueError as error:
        assert str(error)


@pytest.mark.parametrize(
    "milli, resource, shown, brief",
    [
        (4 * 2**30 * 1000, "memory", "4Gi", "4Gi"),
        (1500, "cpu", "1500m", "1.5"),
        (8000, "nvidia.com/gpu", "8", "8"),
        (250, "cpu", "250m", "250m"),
        (1000_000_000, "memory", "1000000", "976.6Ki"),
        (12_000_000, "cpu", "12000", "12,000"),
        (0, "memory", "0", "0"),
        (500, "memory", "500m", "500m"),
        (1024_000, "ephemeral-storage", "1Ki", "1Ki"),
        (1024_000, "cpu", "1024", "1,024"),
    ],
)
def test_for_machines_and_for_people(milli: int, resource: str, shown: str, brief: str) -> None:
    assert show(milli, resource) == shown
    assert short(milli, resource) == brief
