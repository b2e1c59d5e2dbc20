"""Argo's and Tekton's documents on the real controllers and the real Kueue: with a queue's label, under the controller, they end as they do
without it, and at no moment do their pods ask for more than their admitted Workloads hold.

By default a sample that a seed has chosen (PENSTOCK_COMPARE_SEED), and first a queue that is never full, then one in which stages wait for one
another. PENSTOCK_COMPARE=all plays everything, with more passes for each document. The documents are those below `argo` and `tekton` of
PENSTOCK_CORPUS. PENSTOCK_COMPARE_UNIT queues them by another unit.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest

from testbed.instance import Testbed
from tests.cluster.agreement import examples, tekton
from tests.cluster.agreement.labelled import Report, asking, cluster_queue, play_labelled
from tests.cluster.agreement.play import Play, There, here
from tests.cluster.controlled import Controlled

ALL = os.environ.get("PENSTOCK_COMPARE") == "all"
SEED = int(os.environ.get("PENSTOCK_COMPARE_SEED", "1"))
SAMPLE = int(os.environ.get("PENSTOCK_COMPARE_FILES", "24"))
"""Files."""
SECONDS = 3600.0 if ALL else 40.0
"""For each of the three times that they are played."""
AT_ONCE = 24
UNIT = os.environ.get("PENSTOCK_COMPARE_UNIT", "stage")
QUEUES = {"large": "10k", "small": "3"}


def test_runs_end_with_a_queue_as_without(testbed: Callable[..., Testbed], capsys: pytest.CaptureFixture[str]) -> None:
    every = examples.files()
    if not every:
        pytest.skip(f"no manifests in {examples.CORPUS}: set PENSTOCK_CORPUS to a folder with argo and tekton")
    chosen = every if ALL else sorted(random.Random(SEED).sample(every, min(SAMPLE, len(every))))
    bed = testbed("kueue", "kwok", "argo", "tekton", nodes=4, tekton={"features": tekton.FEATURES})
    found, unread = examples.read_all(chosen)
    plays, left = here(found, most=2 if ALL else 1, seed=SEED)
    if not ALL:  # waiting for something that does not happen takes long
        left |= {
            one.one.label: "stands still, with or without a queue" for one in plays if one.ours.told.end == "endless"
        }
        plays = [one for one in plays if one.ours.told.end != "endless"]
    plain = [Play(asking(one.one), one.ours) for one in plays]
    there = There(bed, at_once=AT_ONCE)
    there.play(plain, _seconds())
    with Controlled(bed, ["argo", "tekton"]):
        reports = [
            Report(
                name,
                len(chosen),
                play_labelled(there.behind(cluster_queue(bed, name, cpu), UNIT), plain, _seconds()),
                {**unread, **left},
            )
            for name, cpu in QUEUES.items()
        ]
    lines = [line for report in reports for line in report.lines()]
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert not any(report.wrong for report in reports), "\n".join(lines)
    assert all(report.played for report in reports)


def _seconds() -> float:
    return min(SECONDS, float(os.environ.get("PENSTOCK_CLUSTER_DEADLINE", "inf")) - time.time())
