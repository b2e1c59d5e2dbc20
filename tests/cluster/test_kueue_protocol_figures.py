"""How long Kueue takes, and where one stands in line. `pytest -s` prints the figures that docs/ideas/kueue-protocol.md quotes.

The bounds are loose, or there are none: a busy machine is no reason to fail.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.kueue_protocol import PLAIN, Desk, Object, running

VISIBILITY = "/apis/visibility.kueue.x-k8s.io/v1beta2"


@pytest.fixture
def desk(testbed: Any) -> Iterator[Desk]:
    made = Desk(testbed(*PLAIN))
    yield made
    made.bed.delete(
        f"/api/v1/namespaces/{made.namespace}"
    )  # a thousand Workloads would slow down the tests that follow


def seconds_until_running(desk: Desk, name: str) -> float:
    """Asked again and again without a pause: the wait of the other tests is coarser than what is measured here."""
    begin = time.perf_counter()
    while not running(desk.get(name)):
        assert time.perf_counter() - begin < 60
    return time.perf_counter() - begin


def admitted(desk: Desk) -> int:
    items: list[Object] = desk.bed.get(desk.path("workloads"))["items"]
    return sum(running(each) for each in items)


def test_from_create_to_admitted(desk: Desk) -> None:
    desk.queue(cpu="1000")
    taken = []
    for i in range(30):
        begin = time.perf_counter()
        desk.workload(f"w-{i}")
        seconds_until_running(desk, f"w-{i}")
        taken.append(time.perf_counter() - begin)
    print(
        f"\ncreate to admitted, alone: median {statistics.median(taken) * 1000:.0f} ms, worst {max(taken) * 1000:.0f} ms"
    )
    assert statistics.median(taken) < 10


def test_from_gate_cleared_to_admitted(desk: Desk) -> None:
    desk.queue(cpu="1000")
    taken = []
    for i in range(30):
        desk.workload(f"w-{i}", gate="penstock.example/stage")
        desk.until_pending(f"w-{i}", "AdmissionGated")
        begin = time.perf_counter()
        desk.clear_gate(f"w-{i}")
        seconds_until_running(desk, f"w-{i}")
        taken.append(time.perf_counter() - begin)
    print(
        f"\ngate cleared to admitted: median {statistics.median(taken) * 1000:.0f} ms, worst {max(taken) * 1000:.0f} ms"
    )
    assert statistics.median(taken) < 10


def test_from_finished_to_the_next(desk: Desk) -> None:
    desk.queue(cpu="1")
    taken = []
    desk.workload("w-0")
    desk.until_running("w-0")
    for i in range(1, 11):
        desk.workload(f"w-{i}")
        desk.until_pending(f"w-{i}", "Pending")
        begin = time.perf_counter()
        desk.finish(f"w-{i - 1}")
        seconds_until_running(desk, f"w-{i}")
        taken.append(time.perf_counter() - begin)
    print(
        f"\nfinished to next admitted: median {statistics.median(taken) * 1000:.0f} ms, worst {max(taken) * 1000:.0f} ms"
    )
    assert statistics.median(taken) < 20


@pytest.mark.parametrize("count, hands", [(100, 1), (1000, 8)], ids=["100 by one", "1000 by eight"])
def test_many_at_once(desk: Desk, count: int, hands: int) -> None:
    desk.queue(cpu=str(count))
    begin = time.perf_counter()
    with ThreadPoolExecutor(hands) as pool:
        list(pool.map(lambda i: desk.workload(f"w-{i}"), range(count)))
    created = time.perf_counter() - begin
    desk.bed.wait(lambda: admitted(desk) == count, f"{count} Workloads are admitted", 300)
    total = time.perf_counter() - begin
    print(f"\n{count} Workloads: created in {created:.1f} s, all admitted after {total:.1f} s ({count / total:.0f}/s)")


def test_the_place_in_line_can_be_asked_for(desk: Desk) -> None:
    full = desk.queue(cpu="1")
    desk.workload("holder")
    desk.until_running("holder")
    desk.workload("gated", gate="penstock.example/stage")
    desk.until_pending("gated", "AdmissionGated")
    for name, priority in (("low", 0), ("high", 10), ("lower", 0)):
        desk.next_second()
        desk.workload(name, priority=priority)

    def line(path: str) -> list[str]:
        items = desk.bed.get(f"{VISIBILITY}{path}/pendingworkloads")["items"]
        assert [each["positionInClusterQueue"] for each in items] == list(range(len(items)))
        return [each["metadata"]["name"] for each in items]

    def until(path: str, *names: str) -> None:
        desk.bed.wait(lambda: line(path) == list(names), f"{' then '.join(names)} at {path}")

    whole = f"/clusterqueues/{full}"
    until(whole, "high", "low", "lower")  # the gated one has no place
    until(f"/namespaces/{desk.namespace}/localqueues/main", "high", "low", "lower")
    desk.clear_gate("gated")
    until(whole, "high", "gated", "low", "lower")


# -- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_cites_what_is_here() -> None:
    here = Path(__file__).parent
    page = (here.parents[1] / "docs" / "ideas" / "kueue-protocol.md").read_text()
    tests = {
        name
        for file in here.glob("test_kueue_protocol*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)
    }
    assert set(re.findall(r"`(test_\w+)`", page)) == tests - {"test_the_page_cites_what_is_here"}
    text, proofs = page.split("## Proofs")
    assert set(re.findall(r"\*\[([a-z-]+)\]\*", text)) == set(re.findall(r"^\| ([a-z-]+) \| `", proofs, re.M))
