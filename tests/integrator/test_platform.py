"""The example of a payload-driven platform, as an integrator runs it: payloads are sent twice each by several senders, workers are killed at random
moments, a receiver fails now and then. Nothing is lost, nothing is done twice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock import LocalRunner
from penstock.author.load import load_graph
from penstock.service import stores
from penstock.settings import read
from penstock.store.records import FINAL
from tests.integrator.receiver import Receiver
from tests.server.served import wait_for
from tests.server.test_kills import Mortal

FLOW = Path(__file__).parents[2] / "examples/scenes/flow.py"
SCENES, SENDERS, KILLS = 12, 3, 10


def payload(number: int) -> dict[str, Any]:
    features = [{"id": f"s{number}-{letter}", "cloud": cloud} for letter, cloud in (("a", 3), ("b", 70), ("c", 12))]
    return {
        "id": f"scene-{number}",
        "features": features if number else [{"id": "s0-a"}],
        "process": [{"workflow": "scenes"}, {"workflow": "publish"}],
    }


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_platform_loses_nothing_and_does_nothing_twice(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = request.getfixturevalue("postgres_url") if kind == "postgresql" else None
    monkeypatch.setenv("PENSTOCK_CALLBACK_HOSTS", "127.0.0.1")
    monkeypatch.setenv("PENSTOCK_ON_HOST", "yes")
    settings = read(home=tmp_path / ".penstock", store=where, jobs=2)
    stores.prepare(settings)
    graph = load_graph(FLOW, "scenes")
    dice = random.Random(7)
    with Receiver(503, 200, 500) as receiver:

        def send() -> None:
            with LocalRunner(home=settings.home, store=where, on={"container": "process"}) as runner:
                for number in (*range(SCENES), *range(SCENES)):
                    runner.submit_payload(graph, payload(number), worker=False, hook=receiver.url)

        workers = [Mortal(settings, "worker", "-q", "-j", "2") for _ in range(2)]
        senders = [threading.Thread(target=send) for _ in range(SENDERS)]
        try:
            for one in senders:
                one.start()
            for _ in range(KILLS):
                time.sleep(dice.uniform(0.1, 0.6))  # at a random moment
                dice.choice(workers).kill()
            for one in senders:
                one.join(120)
            with stores.open_existing(settings) as store:

                def over() -> bool:
                    runs = store.runs.newest()
                    return len(runs) >= 2 * SCENES - 1 and all(run.state in FINAL for run in runs)

                assert store.runs.newest()
                wait_for(over, 240, "all runs to end")
                runs = store.runs.newest()
                wait_for(lambda: len({one.key for one in receiver.heard}) >= SCENES - 1, 240, "the receiver to be told")
        finally:
            for worker in workers:
                worker.end()
    names = sorted(run.workflow for run in runs)
    assert names == ["publish"] * (SCENES - 1) + ["scenes"] * SCENES  # each payload was worked on once
    assert {run.error for run in runs if run.state != "succeeded"} == {"penstock.errors.InvalidInput: no cloud cover"}
    told = {one.key: one.data["scene"] for one in receiver.heard}
    assert sorted(told.values()) == sorted(f"scene-{number}" for number in range(1, SCENES))
    published = {run.outputs["result"] for run in runs if run.workflow == "publish" and run.outputs}
    assert published == {f"tile-s{number}-a,tile-s{number}-c" for number in range(1, SCENES)}


def test_the_commands_of_its_readme_line_work(tmp_path: Path) -> None:
    env = {**os.environ, "PENSTOCK_HOME": str(tmp_path / ".penstock"), "PENSTOCK_CALLBACK_HOSTS": "127.0.0.1"}
    with Receiver() as receiver:
        words = ["submit", f"{FLOW}:scenes", str(FLOW.with_name("payload.json")), "-p", f"hook={receiver.url}"]
        command = [sys.executable, "-m", "penstock", *words, "--on", "container=process", "--wait"]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        again = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert again.stdout == done.stdout, again.stderr
        wait_for(lambda: receiver.heard, 60, "the receiver to be told")
        assert [one.data for one in receiver.heard] == [{"scene": "scene-1", "state": "succeeded"}]
