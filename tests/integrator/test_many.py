"""T3.7: what failed in a certain way among a hundred thousand runs is found at once, and driven again with one command."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.service.payloads.verbs import Selection, chosen, page
from penstock.store.sql import open_store
from tests.cli.conftest import Result
from tests.cli.conftest import penstock as penstock
from tests.integrator import many

LONGEST = 0.1
TRIES = 5
"""Another program may have the processor now and then."""


@pytest.mark.slow
def test_t3_7_what_failed_so_is_found_at_once_and_driven_again_by_one_command(
    penstock: Callable[..., Result], tmp_path: Path
) -> None:
    now = time.time()
    due = many.fill(tmp_path / ".penstock", now)
    assert due > 100
    wanted = Selection(state="failed", workflow="ingest", since=now - many.DAY, error="Timeout*")
    with open_store(str(tmp_path / ".penstock")) as store:
        took = []
        for _ in range(TRIES):
            began = time.perf_counter()
            found = chosen(store, wanted)
            took.append(time.perf_counter() - began)
        assert len(found) == due and {row.error.partition(":")[0] for row in found} == {"TimeoutError"}
        assert min(took) < LONGEST, took
        began = time.perf_counter()
        listed, following = page(store, 50, None, "failed", "ingest", now - many.DAY, "Timeout*")
        assert time.perf_counter() - began < 1.0 and len(listed) == 50 and following is not None
        assert [row.run for row in listed] == sorted((row.run for row in listed), reverse=True)
    words = (
        "redrive",
        "--state",
        "failed",
        "--since",
        "24h",
        "--workflow",
        "ingest",
        "--error",
        "Timeout*",
        "--no-worker",
    )
    driven = penstock(*words, "-o", "json")
    assert driven.code == 0
    answer = json.loads(driven.out)
    assert len(answer["chosen"]) == len(answer["started"]) > due - 5  # a moment has passed
    with open_store(str(tmp_path / ".penstock")) as store:
        orders = {order.run for order in store.orders.all()} - {1}
        assert len(orders) == len(answer["started"])
        one = store.runs.by_id(answer["started"][0])
        assert one is not None
        origin = store.runs.origin(one.number)
        assert origin is not None and origin.attempt == 2
    assert json.loads(penstock(*words, "-o", "json").out) == {"chosen": [], "started": []}
