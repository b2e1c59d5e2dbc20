"""Argo's and Tekton's documents on the real controllers and the real Kueue: with a queue's label, under the controller, they end as they do
without it, and at no moment do their pods ask for more than their admitted Workloads hold.

First without a queue, then in one that is never full, then in one in which stages wait for one another. By default a sample that a seed has chosen
(PENSTOCK_COMPARE_SEED) of ../shared/corpus; with PENSTOCK_CORPUS=FOLDER every document below `argo` and `tekton` in it; with PENSTOCK_COMPARE=all
every document, and in more passes each. Then what no time was left for is listed; with PENSTOCK_COMPARE_STRICT=1 it fails the test.
PENSTOCK_COMPARE_SECONDS: for each of the three times. PENSTOCK_COMPARE_UNIT queues them by another unit.
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

MORE = os.environ.get("PENSTOCK_COMPARE") == "all"
ALL = MORE or "PENSTOCK_CORPUS" in os.environ
STRICT = os.environ.get("PENSTOCK_COMPARE_STRICT") == "1"
SEED = int(os.environ.get("PENSTOCK_COMPARE_SEED", "1"))
SAMPLE = int(os.environ.get("PENSTOCK_COMPARE_FILES", "24"))
"""Files."""
SECONDS = float(os.environ.get("PENSTOCK_COMPARE_SECONDS") or (3600 if ALL else 40))
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
    plays, left = here(found, most=2 if MORE else 1, seed=SEED)
    if not ALL:  # waiting for something that does not happen takes long
        left |= {
            one.one.label: "stands still, with or without a queue" for one in plays if one.ours.told.end == "endless"
        }
        plays = [one for one in plays if one.ours.told.end != "endless"]
    plain = [Play(asking(one.one), one.ours) for one in plays]
    there = There(bed, at_once=AT_ONCE)
    there.play(plain, _seconds())
    left |= {one.one.label: one.left for one in plain if one.left}
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
    late = sorted({label for report in reports for label in report.late})
    lines = [f"{len(chosen)} of {len(every)} files of {examples.CORPUS}: {len(found)} examples, {len(plays)} runs"]
    lines += [line for report in reports for line in report.lines()]
    lines += [f"NO TIME for {len(late)} runs:", *(f"  {label}" for label in late)] if ALL and late else []
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert not any(report.wrong for report in reports), "\n".join(lines)
    assert all(report.played for report in reports)
    assert not (STRICT and late), "\n".join(lines)


def _seconds() -> float:
    return min(SECONDS, float(os.environ.get("PENSTOCK_CLUSTER_DEADLINE", "inf")) - time.time())
