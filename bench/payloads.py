"""What a submission by identity costs, and finding what failed among many runs. Called by __main__."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Figure, best
from penstock.runners.local import LocalRunner
from penstock.service.payloads.verbs import Selection, chosen
from penstock.store.sql import open_store
from tests.integrator import many
from tests.integrator.payloads import flow

MANY = 1000


def figures() -> Iterator[Figure]:
    yield from _submissions()
    with tempfile.TemporaryDirectory() as folder:
        now = time.time()
        many.fill(Path(folder), now)
        wanted = Selection(state="failed", workflow="ingest", since=now - many.DAY, error="Timeout*")
        with open_store(folder) as store:
            seconds = best(lambda: chosen(store, wanted))
        yield Figure(f"what timed out since yesterday, of {many.RUNS:,} runs", 1000 * seconds, 100, "ms")


def _submissions() -> Iterator[Figure]:
    """From one client, into SQLite; nobody executes them."""
    new, known = [], []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            runner, workflow = LocalRunner(home=folder), flow(include=(".features[].id",))
            for took in (new, known):
                began = time.perf_counter()
                for number in range(MANY):
                    scene = {
                        "features": [{"id": f"scene-{number}", "bbox": [1.5, 2, 3]}],
                        "process": [{"workflow": "x"}],
                    }
                    runner.submit_payload(workflow, scene, worker=False)
                took.append(time.perf_counter() - began)
            runner.close()
    yield Figure(f"{MANY:,} new payloads submitted", min(new), 2.0, "s")
    yield Figure(f"{MANY:,} known payloads submitted", min(known), 0.5, "s")
