"""Random queues and Workloads on a live Kueue and on Penstock's own engine: the same answers at every quiet point (see differential/).

PENSTOCK_STREAMS says how many streams (200), PENSTOCK_FIRST_SEED from which seed on (0); the seeds are the same every time, so that a
failure can be seen again. Half of them are with fair sharing, which is a setting of the whole of Kueue, hence two testbeds.

A stream on which the answers differ is played again. If they differ again, it is made small and printed. If they do not, Kueue has answered
twice in two ways: under load a batch of parked Workloads, or a second, may fall between any two cycles. A few of these are borne, and
printed; a wrong rule differs every time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from functools import partial

import pytest

from testbed.instance import Testbed
from tests.cluster.differential import run, shrink
from tests.cluster.differential.__main__ import FAIR
from tests.cluster.differential.run import Count, Result
from tests.cluster.differential.streams import stream

STREAMS = int(os.environ.get("PENSTOCK_STREAMS", "200"))
FIRST = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))
SHOWN = 3
BORNE = 0.03
"""The share of streams that may differ once and not again."""
LEAST = {
    "preemptions": 0.6,
    "partial": 0.1,
    "borrowing": 0.5,
    "admissions": 4.0,
    "stops": 0.02,
    "deactivations": 0.05,
    "workloads": 6.0,
}
"""For each stream: a set that never preempts would prove nothing."""
REASONS = ("InClusterQueue", "InCohortReclamation", "InCohortReclaimWhileBorrowing", "InCohortFairSharing")


def test_kueue_and_the_engine_decide_alike(testbed: Callable[..., Testbed], capsys: pytest.CaptureFixture[str]) -> None:
    total, wrong, once = Count(), list[str](), list[int]()
    for fair in (False, True):
        bed = testbed("kueue", kueue=FAIR) if fair else testbed("kueue")
        streams = [one for one in map(stream, range(FIRST, FIRST + STREAMS)) if one.fair is fair]
        results = run.play_all(bed, streams)
        for result in results:
            total.add(result.count)
        differ = [result for result in results if not result.agrees]
        again = run.play_all(bed, [result.stream.fixed() for result in differ]) if differ else []
        once += [result.stream.seed for result in again if result.agrees]
        for result in [result for result in again if not result.agrees][:SHOWN]:
            wrong.append(_small(bed, result))
    with capsys.disabled():
        print(f"\n{_told(total)}\n  differed once and not again: {once or 'none'}")
    assert not wrong, "\n\n".join(wrong)
    assert len(once) <= max(1, BORNE * STREAMS), f"differed once and not again: seeds {once}"
    if STREAMS >= 50:
        few = {name: getattr(total, name) for name, share in LEAST.items() if getattr(total, name) < share * STREAMS}
        assert not few, f"the streams have too little in them: {few} of {STREAMS}"
        assert set(total.by_reason) == set(REASONS)


def _small(bed: Testbed, result: Result) -> str:
    return shrink.report(shrink.shrink(result, partial(run.play_all, bed)))


def _told(total: Count) -> str:
    found = [f"  {one.name.replace('_', ' ')}: {getattr(total, one.name)}" for one in fields(total)]
    return "Kueue v0.19.2 and Penstock, side by side:\n" + "\n".join(found)
