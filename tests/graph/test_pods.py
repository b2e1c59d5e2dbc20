"""The total of a pod, against hand-made cases and against Kubernetes' rules by trial."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.formats.pods.requests import amounts, resources_of
from penstock.graph.pods import is_pod_level, pod_total


def cpu(amount: float) -> dict[str, Fraction]:
    return {"cpu": Fraction(amount)}


@pytest.mark.parametrize(
    "containers, first, own, overhead, wanted",
    [
        ([], [], {}, {}, {}),
        ([cpu(1), cpu(2)], [], {}, {}, cpu(3)),
        ([cpu(1)], [(cpu(5), False), (cpu(4), False)], {}, {}, cpu(5)),
        ([cpu(1)], [(cpu(2), True), (cpu(4), False)], {}, {}, cpu(6)),
        ([cpu(5)], [(cpu(4), False), (cpu(2), True)], {}, {}, cpu(7)),
        ([cpu(1)], [], cpu(9), cpu(1), cpu(10)),
        ([cpu(1)], [], {"nvidia.com/gpu": Fraction(9)}, {}, cpu(1)),
    ],
)
def test_a_pod(containers: Any, first: Any, own: Any, overhead: Any, wanted: Any) -> None:
    assert pod_total(containers, first, own, overhead) == wanted


def test_only_some_resources_are_requested_by_the_pod() -> None:
    assert is_pod_level("memory") and is_pod_level("hugepages-2Mi") and not is_pod_level("nvidia.com/gpu")


def test_parts_of_a_thousandth_are_rounded_once() -> None:
    half = {"resources": {"requests": {"cpu": "500u"}}}
    assert resources_of({"containers": [half, half]}) == {"cpu": 1}
    assert amounts({"cpu": "500u", "memory": "{{later}}", "gpu": -1}) == {"cpu": 1, "gpu": 0}


@given(st.lists(st.integers(0, 9), max_size=4), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=4))
def test_the_total_is_the_most_at_any_moment(running: list[int], first: list[tuple[int, bool]]) -> None:
    staying, most = 0, 0
    for amount, stays in first:
        most = max(most, staying + amount)
        staying += amount if stays else 0
    most = max(most, staying + sum(running))
    found = pod_total([cpu(one) for one in running], [(cpu(one), stays) for one, stays in first], {}, {})
    assert found.get("cpu", 0) == most
