"""Two replicas behind one port, as the Service has them: reviews go to both, one of them leads, and a stage takes as few writes as with one.

The port hands connections to one replica or to both by turns. One of them is killed while a stage runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.controller.names import MANAGER
from testbed.instance import Testbed
from tests.cluster.argo_runs import create, fake, flow, pods, step, until, until_over
from tests.cluster.controlled import Controlled, Witness
from tests.cluster.kueue_protocol import Desk
from tests.cluster.test_controller_argo import finished, is_now, is_told, queued
from tests.cluster.test_controller_shell import Relay

WIDE = 20
MOST = 6
"""Writes and Events of ours for a stage."""
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/penstock-system/leases/{MANAGER}"
Object = dict[str, Any]


class Pair:
    """Two elected replicas, and the port before them."""

    def __init__(self, bed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("POD_IP", "127.0.0.1")
        self.bed, self.front = bed, Relay()
        self.both = [Controlled(bed, ["argo"], "--leader-elect", front=self.front.port) for _ in range(2)]
        self.front.targets = [one.webhook for one in self.both]

    def start(self) -> None:
        for one in self.both:
            one.spawn()
        for one in self.both:
            self.bed.wait(one._ready, "a replica", 60)
        self.bed.wait(lambda: any(map(self.leads, self.both)), "one to lead", 60)
        self.bed.wait(self.both[0]._in_force, "the API server to apply the policies", 60)
        self.bed.wait(self.knows, "the other to know the leader", 30)

    def leads(self, one: Controlled) -> bool:
        return one.process is not None and one.figures()["penstock_leader"] == 1

    @property
    def leader(self) -> Controlled:
        (found,) = filter(self.leads, self.both)
        return found

    @property
    def other(self) -> Controlled:
        (found,) = [one for one in self.both if not self.leads(one)]
        return found

    def knows(self) -> bool:
        """The one that waits looks at the Lease every few seconds; a pod that it is asked about before keeps its gate."""
        self.front.first(self.other.webhook)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "probe-", "labels": {"penstock/queue": "probe"}},
            "spec": {"containers": [{"name": "main", "image": "probe"}]},
        }
        self.bed.raw("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)
        return self.other.figures().get('penstock_leader_questions_total{outcome="answered"}', 0) > 0

    def end(self) -> None:
        for one in self.both:
            one.end()
        for one in self.both:
            one.uninstall()
        self.front.close()


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kueue", "kwok", "argo")


@pytest.fixture
def pair(bed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    made = Pair(bed, monkeypatch)
    try:
        made.start()
        yield made
    finally:
        made.end()


def wide(name: str, **more: Any) -> Object:
    loop = {**step("each", "task")[0], "withItems": list(range(WIDE))}
    made = flow(name, [step("first", "task"), [loop]], fake("task", run_time="1s", cpu="100m"), **more)
    return queued(made)


def asked(one: Controlled) -> float:
    """Reviews of pods that the API server sent to it."""
    return one.figures().get('penstock_webhook_requests_total{answer="allowed",path="/pods"}', 0)


def told(one: Controlled) -> float:
    return sum(count for name, count in one.figures().items() if name.startswith("penstock_events_total"))


def test_a_stage_takes_six_writes_whoever_is_asked(bed: Testbed, pair: Pair) -> None:
    """The same workflow twice: the API server asks the one that leads first, then the other one first."""
    desk = Desk(bed)
    desk.queue("main", "64")
    for turn, first in enumerate((pair.leader, pair.other)):
        before, events, name = asked(first), told(pair.leader), f"w{turn}"
        pair.front.first(first.webhook)
        create(bed, desk.namespace, wide(name))
        assert until_over(bed, desk.namespace, name)["status"]["phase"] == "Succeeded"
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
        leader = pair.leader
        bed.wait(lambda one=leader: one.figures()["penstock_queue_depth"] == 0, "the leader to be idle")  # type: ignore[misc]
        is_told(desk, "Workflow", name, "Queued", "Admitted", "Released")
        assert asked(first) - before > 1, "it was not asked"
        lines = [
            json.loads(line) for line in leader.log.read_text().splitlines() if f'{desk.namespace}/{name}"' in line
        ]
        written = [one for one in lines if one.get("msg") == "written"]
        back = [one for one in written if "gives back" in one["why"]]
        count = len(written) - len(back) + told(leader) - events - bool(back)
        print(f"{WIDE + 1} pods, {'other' if turn else 'leader'} asked first: {count / 2} writes for a stage")
        assert count / 2 <= MOST, [(one["verb"], one["kind"], one["why"]) for one in written]


def test_the_leader_is_killed_while_a_stage_runs(bed: Testbed, pair: Pair) -> None:
    """Its pods come two at a time. Those that nobody could decide about wait for the next leader; none runs without quota, none twice."""
    desk = Desk(bed)
    desk.queue("main", "2")
    old = pair.leader
    with Witness(bed, desk.namespace) as witness:
        pair.front.turns = True
        create(bed, desk.namespace, wide("w", parallelism=2))
        until(bed, desk.namespace, "w", "each(1:1)", "Succeeded")
        old.kill()
        until(bed, desk.namespace, "w", "each(9:9)", "Succeeded")
        assert pair.leader is not old
        told = bed.get(LEASE)["metadata"]["annotations"]["penstock/address"]
        assert told == f"127.0.0.1:{pair.leader.webhook}"
        old.spawn()  # it waits now
        assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
    assert len(pods(bed, desk.namespace, "w")) == WIDE + 1
    assert is_now(desk, "main[1]", "Finished")
    assert witness.check()["most pods"] <= 2
