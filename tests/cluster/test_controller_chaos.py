"""The controller under trouble, on the real Argo, Tekton and JobSet and the real Kueue: killed, cut off, told that it is out of date, with a slow store.

Whatever happens, each workflow ends, each of its tasks runs to its end once, and its pods never ask for more than is held. A few minutes; with
`PENSTOCK_CHAOS=all` a hundred workflows at a time and two hundred kills (PENSTOCK_CHAOS_WORKFLOWS, PENSTOCK_CHAOS_KILLS: other numbers).
"""

from __future__ import annotations

import io
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.controller.cluster.main import manager
from penstock.controller.cluster.run import ManagerSettings
from penstock.controller.known import engines
from penstock.controller.objects import Write
from penstock.kubernetes.client import ApiError, Client
from penstock.kubernetes.kubeconfig import connect
from penstock.kubernetes.log import Log
from testbed import binaries
from testbed.components import programs
from testbed.instance import Testbed
from tests.cluster.chaos import Crowd, meanwhile
from tests.cluster.controlled import Controlled, Witness
from tests.cluster.test_controller_shell import restart

FULL = os.environ.get("PENSTOCK_CHAOS") == "all"
MANY, FEW = (int(os.environ.get("PENSTOCK_CHAOS_WORKFLOWS", "100")), 40) if FULL else (12, 8)
KILLS = int(os.environ.get("PENSTOCK_CHAOS_KILLS", "200")) if FULL else 10
ENGINES = ("argo", "tekton", "jobset")
PARTS = ("kueue", "kwok", *ENGINES)
SEED = int(os.environ.get("PENSTOCK_CHAOS_SEED", "15"))


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[Testbed]:
    """Its own: the API server is restarted and the store stopped. Its logs stay if a test has failed."""
    if absent := binaries.missing(programs(PARTS)):
        pytest.skip(f"not built: {', '.join(absent)}")
    started, before = Testbed.start(*PARTS), request.session.testsfailed
    yield started
    failed = request.session.testsfailed > before
    started.stop(keep=failed)
    if failed:
        print(f"\nlogs: {started.dir / 'log'}")


def tell(what: str, counts: dict[str, int]) -> None:
    print(f"\n{what}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


def test_three_teams_borrow_and_preempt(bed: Testbed) -> None:
    crowd = Crowd(bed, MANY, SEED)
    with Controlled(bed, ENGINES), Witness(bed, *crowd.namespaces) as witness:
        crowd.submit()
        crowd.until_over(1800 if FULL else 900)
        counts = crowd.check(witness)
    tell("calm", counts)
    assert counts["evictions"], "nobody was preempted: the test shows too little"


def test_killed_at_random_moments(bed: Testbed) -> None:
    """Also before it is ready, and while pods are created whose webhook it is."""
    dice = random.Random(SEED)
    kills = rounds = 0
    while kills < KILLS:
        rounds += 1
        crowd = Crowd(bed, MANY, SEED + rounds)
        with Controlled(bed, ENGINES) as controller, Witness(bed, *crowd.namespaces) as witness:
            submitting = threading.Thread(target=crowd.submit)
            submitting.start()
            while (kills < KILLS * rounds or FULL) and not crowd.over():
                time.sleep(dice.uniform(0.05, 4) if dice.random() < 0.8 else dice.uniform(4, 9))
                controller.kill()
                kills += 1
                time.sleep(dice.choice((0, 0, 0.3, 1.5)))
                controller.spawn()
            submitting.join()
            crowd.until_over(600)
            tell(f"{kills} kills", crowd.check(witness))


def restart_unseen_by_argo(bed: Testbed) -> None:
    """A server that begins knows no roles yet, and Argo takes a "forbidden" for the end of a workflow. Elsewhere a load balancer waits for readiness."""
    argo = bed.processes["workflow-controller"].pid
    everyone = [argo, *(int(one) for one in Path(f"/proc/{argo}/task/{argo}/children").read_text().split())]
    for pid in everyone:
        os.kill(pid, signal.SIGSTOP)
    restart(bed)
    for pid in everyone:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.skipif(not FULL, reason="with PENSTOCK_CHAOS=all")
def test_slow_store_and_a_restart_of_the_server(bed: Testbed) -> None:
    dice = random.Random(SEED)
    store = bed.processes["etcd"].pid
    crowd = Crowd(bed, FEW, SEED + 100)

    def slow() -> None:
        os.kill(store, signal.SIGSTOP)
        time.sleep(dice.uniform(0.1, 0.6))
        os.kill(store, signal.SIGCONT)

    with Controlled(bed, ENGINES) as controller, Witness(bed, *crowd.namespaces) as witness:
        controller.server_restarts = True
        with meanwhile(slow, lambda: dice.uniform(0.2, 1)) as done:
            crowd.submit()
            for _ in range(4 if FULL else 1):
                time.sleep(3)
                restart_unseen_by_argo(bed)
            crowd.until_over(600)
        tell(f"store stopped {len(done)} times", crowd.check(witness))


class Rough(Client):
    """Every third write is told that it is out of date; of every seventh the answer is lost."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.count = self.refused = self.lost = 0
        self.guard = threading.Lock()

    def write(self, write: Write) -> dict[str, Any]:
        with self.guard:
            self.count += 1
            number = self.count
        if number % 3 == 0:
            self.refused += 1
            raise ApiError(409, "Conflict", "the object has been modified")
        answer = super().write(write)
        if number % 7 == 0:
            self.lost += 1
            raise ApiError(0, "", "the connection was closed")
        return answer


def test_conflicts_lost_answers_and_watches_that_end_each_second(bed: Testbed) -> None:
    crowd = Crowd(bed, FEW, SEED + 200)
    installed = Controlled(bed, ENGINES)
    settings = ManagerSettings(
        namespace="penstock-system",
        elect=False,
        webhook_host="127.0.0.1",
        webhook_port=installed.webhook,
        health_host="127.0.0.1",
        health_port=0,
        hosts=("127.0.0.1",),
        configurations=("admission.penstock",),
        watch_seconds=1,
        linger=0,
    )
    out = io.StringIO()
    with Rough(connect(files=[installed.kubeconfig])) as client:
        running = manager(client, settings, engines(ENGINES), Log(out))
        thread = threading.Thread(target=running.run, daemon=True)
        thread.start()
        try:
            with Witness(bed, *crowd.namespaces) as witness:
                crowd.submit()
                crowd.until_over(600)
                counts = crowd.check(witness)
        finally:
            Path(bed.dir, "log", "rough.log").write_text(out.getvalue())
            running.stop()
            thread.join(60)
            installed.uninstall()
        tell(f"{client.count} writes, {client.refused} refused, {client.lost} answers lost", counts)
    assert client.refused and client.lost
