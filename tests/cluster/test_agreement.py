"""Argo's and Tekton's documents, run here and by the real controllers on fake nodes: the same end, the same outcome of every step.

By default a sample that a seed has chosen (PENSTOCK_COMPARE_SEED); PENSTOCK_COMPARE=all plays everything, with more passes for each document.
The documents are those below `argo` and `tekton` of PENSTOCK_CORPUS. A difference is either one of the rules of agreement/intended.py, or
this test fails.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest

from testbed.instance import Testbed
from tests.cluster.agreement import examples, tekton
from tests.cluster.agreement.play import There, here
from tests.cluster.agreement.report import Report, unexplained

ALL = os.environ.get("PENSTOCK_COMPARE") == "all"
SEED = int(os.environ.get("PENSTOCK_COMPARE_SEED", "1"))
SAMPLE = 60
"""Files."""
SECONDS = 3600.0 if ALL else 150.0


def test_runs_end_here_as_they_do_there(testbed: Callable[..., Testbed], capsys: pytest.CaptureFixture[str]) -> None:
    every = examples.files()
    if not every:
        pytest.skip(f"no manifests in {examples.CORPUS}: set PENSTOCK_CORPUS to a folder with argo and tekton")
    chosen = every if ALL else sorted(random.Random(SEED).sample(every, min(SAMPLE, len(every))))
    left_out = {str(file): f"not in the sample of seed {SEED}" for file in every if file not in chosen}
    bed = testbed("kwok", "argo", "tekton", nodes=4, tekton={"features": tekton.FEATURES})
    found, unread = examples.read_all(chosen)
    plays, left = here(found, most=4 if ALL else 1, seed=SEED)
    deadline = float(os.environ.get("PENSTOCK_CLUSTER_DEADLINE", "inf"))
    There(bed).play(plays, min(SECONDS, deadline - time.time()), doubtful=lambda play: bool(unexplained(play)))
    report = Report(len(chosen), plays, {**left_out, **unread, **left})
    with capsys.disabled():
        print("\n" + "\n".join(report.lines()))
    assert not report.wrong, "\n".join(report.lines())
    assert report.equal > 0
