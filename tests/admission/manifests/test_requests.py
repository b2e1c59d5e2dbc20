"""What a pod requests: added up, with defaults, and compared with limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.manifests import requests
from penstock.admission.model import UNLIMITED, Admission, FlavorResource, PodSet, PodSetAssignment, Workload
from penstock.admission.snapshot import usage_of


def container(name: str = "c", limits: dict[str, Any] | None = None, **asked: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "resources": {"requests": asked}}
    if limits is not None:
        found["resources"]["limits"] = limits
    return found


@pytest.mark.parametrize(
    ("resource", "text", "expected"),
    [
        ("cpu", "1", 1000),
        ("cpu", 2, 2000),
        ("cpu", "500m", 500),
        ("cpu", "1n", 1),
        ("cpu", "0.1", 100),
        ("memory", "1Ki", 1024),
        ("memory", "1.5", 2),
        ("memory", "100m", 1),
        ("nvidia.com/gpu", "3", 3),
        ("cpu", "-10m", -10),
        ("cpu", "1E", UNLIMITED),
        ("memory", "9E", 9 * 10**18),
        ("memory", "10E", UNLIMITED),
        ("memory", "8Ei", UNLIMITED),
        ("memory", "-10E", -UNLIMITED),
    ],
)
def test_quantities_become_whole_numbers_rounded_up_and_held_in_63_bits(
    resource: str, text: Any, expected: int
) -> None:
    assert requests.amount(resource, text) == expected


def test_a_quota_of_cpu_is_unlimited_from_the_last_whole_core_that_fits() -> None:
    assert requests.limit("cpu", "9223372036854775") == UNLIMITED
    assert requests.limit("cpu", "9223372036854774") == 9223372036854774000
    assert requests.limit("memory", str(UNLIMITED - 1)) == UNLIMITED - 1


@given(st.sampled_from(["cpu", "memory", "example.com/gpu"]), st.integers(0, UNLIMITED))
def test_what_is_shown_is_read_as_the_same(resource: str, found: int) -> None:
    assert requests.amount(resource, requests.shown(resource, found)) == found


def test_containers_add_up_and_of_init_containers_the_largest_counts() -> None:
    spec = {
        "containers": [container(cpu="1", memory="1Gi"), container(cpu="2")],
        "initContainers": [container(cpu="2", memory="3Gi"), container(cpu="2500m")],
    }
    assert requests.of_pod(spec) == {"cpu": 3000, "memory": 3 * 2**30}


def test_a_sidecar_counts_beside_the_containers_and_beside_the_init_containers_after_it() -> None:
    sidecar = {**container(cpu="1"), "restartPolicy": "Always"}
    spec = {
        "containers": [container(cpu="1")],
        "initContainers": [container(cpu="3"), sidecar, container(cpu="2500m"), sidecar],
    }
    assert requests.of_pod(spec) == {"cpu": 3500}
    spec["containers"] = [container(cpu="2")]
    assert requests.of_pod(spec) == {"cpu": 4000}


def test_what_the_pod_asks_for_as_a_whole_takes_the_place_of_its_containers() -> None:
    spec = {
        "containers": [container(cpu="1", memory="1Gi", gpu="1")],
        "resources": {"requests": {"cpu": "4", "hugepages-2Mi": "2Mi", "gpu": "7"}},
        "overhead": {"cpu": "100m"},
    }
    assert requests.of_pod(spec) == {"cpu": 4100, "memory": 2**30, "gpu": 1, "hugepages-2Mi": 2**21}


def test_fractions_are_added_before_they_are_rounded() -> None:
    assert requests.of_pod({"containers": [container(memory="400m"), container(memory="400m")]}) == {"memory": 1}


def test_less_than_nothing_is_nothing_and_nothing_is_no_pod() -> None:
    assert requests.of_pod({"containers": [container(cpu="-1")]}) == {"cpu": 0}
    assert requests.of_pod({}) == {}


def limit_range(**item: Any) -> dict[str, Any]:
    return {"kind": "LimitRange", "spec": {"limits": [{"type": "Container", **item}]}}


def test_of_several_limit_ranges_the_narrower_bound_and_the_first_default_hold() -> None:
    ranges = requests.ranges_of(
        [
            limit_range(max={"cpu": "4"}, min={"cpu": "1"}, default={"cpu": "3"}),
            limit_range(max={"cpu": "3500m"}, min={"cpu": "500m"}, default={"cpu": "2", "memory": "1Gi"}),
        ]
    )
    found = ranges["Container"]
    assert found == requests.LimitRangeItem({"cpu": "3500m"}, {"cpu": "1"}, {"cpu": "3", "memory": "1Gi"}, {})


def test_a_pod_is_filled_in_from_its_runtime_class_the_limit_ranges_and_its_own_limits() -> None:
    spec = {"runtimeClassName": "kata", "containers": [{"name": "c", "resources": {"limits": {"gpu": "2"}}}]}
    ranges = requests.ranges_of([limit_range(default={"cpu": "3"}, defaultRequest={"cpu": "2"})])
    found = requests.adjusted(spec, ranges, {"kata": {"cpu": "250m"}})
    assert requests.of_pod(found) == {"cpu": 2250, "gpu": 2}
    assert spec == {"runtimeClassName": "kata", "containers": [{"name": "c", "resources": {"limits": {"gpu": "2"}}}]}


def test_what_the_pod_says_itself_stays() -> None:
    spec = {
        "runtimeClassName": "kata",
        "overhead": {"cpu": "1"},
        "containers": [container(limits={"cpu": "6"}, cpu="5")],
        "resources": {},
    }
    ranges = requests.ranges_of(
        [limit_range(default={"cpu": "3"}), {"spec": {"limits": [{"type": "Pod", "default": {"memory": "1Gi"}}]}}]
    )
    found = requests.adjusted(spec, ranges, {"kata": {"cpu": "250m"}})
    assert requests.of_pod(found) == {"cpu": 6000, "memory": 2**30}


def test_requests_above_limits_are_named() -> None:
    pod = {
        "initContainers": [container("i", {"cpu": "1"}, cpu="2")],
        "containers": [container("c", {"cpu": "2"}, cpu="2", memory="1Gi")],
        "resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}},
    }
    assert requests.unfit([("main", pod)], {}) == (
        "init container i of pod set main requests more cpu than its limit: 2 of 1; "
        "pod set main requests more memory than its limit: 2Gi of 1Gi"
    )


def test_what_is_out_of_range_is_named() -> None:
    ranges = requests.ranges_of(
        [
            limit_range(max={"cpu": "4"}, min={"cpu": "1"}),
            {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "5"}}]}},
        ]
    )
    pod = {"containers": [container("a", {"cpu": "5"}, cpu="4"), container("b", cpu="500m"), container("c", cpu="1")]}
    assert requests.unfit([("main", pod)], ranges) == (
        "container a of pod set main asks for more cpu than the limit range allows: 5, at most 4; "
        "container b of pod set main asks for less cpu than the limit range allows: 500m, at least 1; "
        "pod set main asks for more cpu than the limit range allows: 5500m, at most 5"
    )
    fits = {"containers": [container("a", {"cpu": "4"}, cpu="1")]}
    assert requests.unfit([("main", fits)], ranges) == ""


def test_reclaimable_pods_are_subtracted_from_the_requested_count_not_from_the_admitted_one() -> None:
    podsets = (PodSet(count=5, requests={"cpu": 10}),)
    admission = Admission("q", (PodSetAssignment("main", 3, {"cpu": "f"}, {"cpu": 30}),))
    for reclaimable, left in ((0, 3), (2, 3), (3, 2), (5, 0), (9, 0)):
        workload = Workload(name="w", podsets=podsets, admission=admission, reclaimable={"main": reclaimable})
        assert usage_of(admission, workload.reclaimable, podsets) == {FlavorResource("f", "cpu"): 10 * left}
