"""The writes of one plan: what is refused, and what is said about it, does not hold up the others."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from penstock.controller.cluster.metrics import Metrics
from penstock.controller.cluster.writer import Writer, refusal
from penstock.controller.core import Seen, reconcile
from penstock.controller.engine import Observed
from penstock.controller.objects import WORKLOADS, Write, name_of
from penstock.kubernetes.cache import Caches
from penstock.kubernetes.client import ApiError, Client
from penstock.kubernetes.log import Log
from tests.controller.conftest import THINGS
from tests.controller.fake_api import FakeApi, Fault
from tests.controller.model import Cluster, control
from tests.controller.toy_engine.penstock_toy import ENGINE

NS = "ns"


class Desk:
    def __init__(self, api: FakeApi, client: Client) -> None:
        self.api, self.out = api, io.StringIO()
        self.writer = Writer(client, Caches([THINGS]), lambda change: None, lambda: True, Metrics())

    def send(self, *writes: Write) -> tuple[str, list[str]]:
        outcome = self.writer.send(writes, Log(self.out))
        return outcome.word, [f"{one.reason}: {one.message}" for one in outcome.refused]

    def names(self) -> list[str]:
        return sorted(map(name_of, self.api.all(THINGS)))

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.getvalue().splitlines()]


@pytest.fixture
def desk(api: FakeApi, client: Client) -> Desk:
    return Desk(api, client)


def create(name: str, **more: Any) -> Write:
    return Write("create", THINGS, NS, name, {"metadata": {"name": name}}, **more)


def refuse(api: FakeApi, code: int = 422, reason: str = "Invalid", times: int = 1) -> None:
    api.faults.append(Fault(lambda method, path: method == "POST", code, reason, times=times))


def test_a_refused_write_does_not_end_the_plan(api: FakeApi, desk: Desk) -> None:
    refuse(api)
    word, said = desk.send(create("a"), create("b"))
    assert (word, said) == ("refused", ["WriteRefused: create Thing a was refused: Invalid"])
    assert desk.names() == ["b"]


def test_what_is_about_the_same_object_or_follows_from_it_is_left_out(api: FakeApi, desk: Desk) -> None:
    refuse(api)
    touch = Write("patch", THINGS, NS, "a", {"spec": {"x": 1}})
    word, said = desk.send(create("a"), touch, create("heir", follows=True), create("next", follows=True), create("b"))
    assert word == "refused" and len(said) == 1
    assert desk.names() == ["b"]
    assert api.asked("PATCH", "things") == 0


def test_what_follows_from_a_write_that_was_carried_out_is_sent(desk: Desk) -> None:
    assert desk.send(create("a"), create("b", follows=True)) == ("done", [])
    assert desk.names() == ["a", "b"]


def test_a_conflict_ends_the_plan_and_what_was_refused_before_is_said(api: FakeApi, desk: Desk) -> None:
    refuse(api)
    api.put(THINGS, {"metadata": {"name": "there", "namespace": NS}})
    word, said = desk.send(create("a"), create("there"), create("b"))
    assert word == "stale" and len(said) == 1
    assert desk.names() == ["there"]


def test_a_kind_that_the_cluster_does_not_have_is_said_with_the_fix() -> None:
    write = Write("create", WORKLOADS, NS, "w", {})
    note = refusal(write, ApiError(404, "NotFound", "the server could not find the requested resource"))
    assert note is not None and note.reason == "KueueMissing" and note.warning
    assert "does not serve workloads of kueue.x-k8s.io/v1beta2" in note.message
    assert "penstock controller check" in note.message


def test_a_webhook_that_does_not_answer_is_said_with_the_fix() -> None:
    words = 'Internal error occurred: failed calling webhook "vworkload.kb.io": no endpoints available'
    note = refusal(Write("patch", WORKLOADS, NS, "w"), ApiError(500, "InternalError", words))
    assert note is not None and note.reason == "KueueMissing"
    assert words in note.message and "penstock controller check" in note.message


@pytest.mark.parametrize(
    ("verb", "error"),
    [
        ("create", ApiError(404, "NotFound", 'namespaces "ns" not found')),
        ("patch", ApiError(404, "NotFound", 'workloads.kueue.x-k8s.io "w" not found')),
        ("create", ApiError(409, "AlreadyExists", "exists")),
        ("create", ApiError(500, "InternalError", "etcdserver: request timed out")),
        ("create", ApiError(0, "", "cannot connect")),
    ],
)
def test_what_passes_by_itself_is_no_refusal(verb: Any, error: ApiError) -> None:
    assert refusal(Write(verb, WORKLOADS, NS, "w"), error) is None


def test_a_write_that_is_lost_to_a_dead_webhook_is_not_taken_for_one_without_an_answer(
    api: FakeApi, desk: Desk
) -> None:
    refuse(api, 500, "failed calling webhook x")
    word, said = desk.send(create("a"), create("b"))
    assert word == "refused" and said[0].startswith("WriteRefused: create Thing a: a webhook")
    assert desk.names() == ["b"]


def test_each_line_names_stage_and_workload(desk: Desk) -> None:
    desk.send(create("a", stage="train", workload="w-train"), create("b"))
    first, second = desk.lines()
    assert (first["stage"], first["workload"]) == ("train", "w-train")
    assert "stage" not in second


def test_the_core_names_the_stage_and_the_workload_of_every_write() -> None:
    cluster = Cluster()
    cluster.submit("a", [{"name": "fetch", "pods": 1, "cpu": "1"}, {"name": "train", "pods": 2, "cpu": "1"}])
    seen: set[tuple[str, bool]] = set()
    for _ in range(12):
        cluster.now += 3
        cluster.engine_step()
        main = cluster.of("sequences")[0]
        observed = Observed(main, {"Pod": cluster.of("pods")}, cluster, cluster.now)
        for write in reconcile(Seen(ENGINE, observed, "stage", cluster.of("workloads"))).writes:
            assert write.stage in ("fetch", "train"), write
            if write.resource.kind == "Workload":
                assert write.workload == write.name
            seen.add((write.resource.kind, bool(write.workload)))
        control(cluster), cluster.kueue_step()
        for pod in cluster.of("pods"):
            cluster.pod_step(name_of(pod))
    assert {("Workload", True), ("Sequence", True)} <= seen
