"""Engines with warm pods that are killed with SIGKILL at any moment: each call has its effect once. The pods are processes of this machine."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.artifacts.blobs import Blobs
from tests.backends.kubernetes.fake_cluster import FakeCluster

CALLS = 120
FLOW = """
import time
from penstock import task, workflow

@task(cache=False)
def mark(place: str, x: int) -> int:
    with open(f"{place}/{x}", "a") as file:
        file.write("x")
    time.sleep(0.1)
    return x

@workflow
def marks(place: str, n: int):
    return [mark(place, x) for x in range(n)]
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_at_any_moment_begin_nothing_twice(tmp_path: Path, seed: int) -> None:
    chance, places = random.Random(seed), tmp_path / "marks"
    places.mkdir()
    (tmp_path / "flow.py").write_text(FLOW)
    cluster = FakeCluster(Blobs(tmp_path / "home" / "artifacts"))
    (tmp_path / "kubeconfig").write_text(cluster.kubeconfig())
    env = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")} | {
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
        "PENSTOCK_HOME": str(tmp_path / "home"),
        "PENSTOCK_KUBERNETES_VOLUME": f"host:{tmp_path}/home",
        "PENSTOCK_KUBERNETES_IMAGE": "does:run",
        "PENSTOCK_KUBERNETES_PYTHON": sys.executable,
        "PENSTOCK_KUBERNETES_POD_REUSE": "3",
    }
    words = [sys.executable, "-m", "penstock", "run", "flow.py", "-p", f"place={places}", "-p", f"n={CALLS}"]
    words += ["--on", "kubernetes", "-o", "json"]

    def engine(seconds: float) -> str | None:
        process = subprocess.Popen(
            words, cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            process.kill()
            process.communicate()
        assert process.returncode == 0, err
        return out

    try:
        said = None
        for _ in range(8):
            if said is None and len(list(places.iterdir())) < CALLS - 30:  # a run that is over would be begun anew
                said = engine(chance.uniform(0.8, 3.5))
        said = said or engine(120)
        assert said is not None and json.loads(said)["outputs"]["result"] == list(range(CALLS))
        assert cluster.names() == []
    finally:
        cluster.stop()
    assert {int(file.name): file.read_text() for file in places.iterdir()} == dict.fromkeys(range(CALLS), "x")
