"""What runs asked for and used: worked out from the log, kept once, by person, queue and flow, with what it cost."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from penstock.errors import PlanError, UserError
from penstock.graph.model import Nested, Script, Step, Workflow
from penstock.service import prices, stores
from penstock.service.cleanup import Cleanup
from penstock.service.prices import Prices
from penstock.service.queues import rows_of
from penstock.service.usage import HOUR, Counter
from penstock.service.views.usage import NO_QUEUE, cost_of, usage
from penstock.settings import read
from penstock.store.sql import Store, open_store
from tests.cli.history import Hand

GPU = "nvidia.com/gpu"


def step(name: str, cpu: int = 0, gpu: int = 0, replicas: int = 1, queue: str | None = None) -> Step:
    asks = {"cpu": cpu * 1000, GPU: gpu * 1000, "memory": 2 * 2**30 * 1000}
    resources = {resource: amount for resource, amount in asks.items() if amount and (cpu or gpu)}
    return Step(name=name, action=Script(source="true"), resources=resources, replicas=replicas, queue=queue)


INNER = Workflow(name="inner", steps=(step("deep", cpu=1),))
FLOW = Workflow(
    name="flow",
    queue="team",
    steps=(
        step("work", cpu=4),
        step("train", gpu=2, replicas=3, queue="gpus"),
        step("free"),
        Step(name="call", action=Nested(name="inner")),
    ),
    definitions=(INNER,),
)
DAY = 86400.0


def attempt(hand: Hand, task: str, seconds: float, kind: str = "task.succeeded", cpu: float | None = None) -> None:
    hand.event("task.started", task, attempt=1, on="process")
    hand.at += seconds
    measured = {} if cpu is None else {"cpu_seconds": cpu}
    hand.event(kind, task, attempt=1, seconds=seconds, **measured)


def played(home: Path, ago: float = DAY, **more: float) -> Hand:
    hand = Hand(home, FLOW, ago=ago)
    attempt(hand, "work", 1800, cpu=3600)
    attempt(hand, "train", 1800)
    attempt(hand, "free", 60, cpu=30)
    hand.event("task.started", "call", attempt=1, on="workflow")
    attempt(hand, "call/deep", 360, "task.failed")
    hand.event("task.failed", "call", attempt=1, follows=True)
    hand.event("task.succeeded", "again", reused={"run": "flow-0", "task": "again"}, key="k")
    hand.finish("succeeded")
    return hand


def asked(store: Store, by: str = "person", days: float = 3, **filters: str) -> dict[str, dict[str, float]]:
    now = time.time()
    found = usage(store, by, now - days * DAY, now, Prices(), filters)  # type: ignore[arg-type]
    return {row.name: {name: round(amount, 4) for name, amount in row.tally.asked.items()} for row in found.rows}


def test_what_was_asked_for_is_steps_times_time(tmp_path: Path) -> None:
    played(tmp_path).close()
    with open_store(str(tmp_path)) as store:
        assert asked(store) == {"ana": {"cpu": 2.1, "memory": 4.2, GPU: 3.0}}
        assert asked(store, "queue") == {
            "gpus": {GPU: 3.0, "memory": 3.0},
            "team": {"cpu": 2.1, "memory": 1.2},
        }
        assert asked(store, "flow", queue="team") == {"flow": {"cpu": 2.1, "memory": 1.2}}
        assert asked(store, person="bob") == {} and asked(store, days=0.1) == {}
        now = time.time()
        total = usage(store, "person", now - 3 * DAY, now, Prices({GPU: 2.0, "cpu": 0.5}, "EUR")).total
    tally = total.tally
    assert (total.runs, tally.attempts, tally.reused) == (1, 4, 1)
    assert tally.hours == pytest.approx((1800 + 1800 + 60 + 360) / HOUR)
    assert tally.lost["cpu"] == pytest.approx(0.1)
    assert tally.cpu_used == pytest.approx(3630 / HOUR)
    assert tally.busy == pytest.approx(
        0.5
    )  # 1 of 2 core-hours: of `work` alone, the only one that was measured and asked
    assert total.cost == pytest.approx(3.0 * 2 + 2.1 * 0.5)


def test_time_is_in_the_hours_in_which_it_was(tmp_path: Path) -> None:
    hand = Hand(tmp_path, FLOW, ago=5 * HOUR)
    attempt(hand, "work", 3 * HOUR)
    began = hand.at - 3 * HOUR
    hand.finish("succeeded")
    hand.close()
    with open_store(str(tmp_path)) as store:
        middle = (began // HOUR + 1) * HOUR
        found = usage(store, "person", middle, middle + HOUR - 1, Prices())
        assert found.total.tally.asked["cpu"] == pytest.approx(4.0)
        whole = usage(store, "person", began, time.time(), Prices())
        assert whole.total.tally.asked["cpu"] == pytest.approx(12.0) and whole.total.runs == 1


def test_a_log_is_read_once_and_again_when_it_has_grown(tmp_path: Path) -> None:
    hand = played(tmp_path)
    hand.write()
    now = time.time()
    assert hand.store.usage.missing(0, now) == [hand.number]
    assert Counter(hand.store, seconds=0).bring_up(0, now) == 1, "no time: it says what is left"
    assert Counter(hand.store).bring_up(0, now) == 0 and hand.store.usage.missing(0, now) == []
    hand.state, hand.ended = "running", None
    attempt(hand, "work", 900)
    hand.write()
    assert hand.store.usage.missing(0, now) == [hand.number]
    assert asked(hand.store)["ana"]["cpu"] == pytest.approx(3.1)
    hand.store.close()


def test_what_runs_now_counts_until_now_and_what_was_lost_until_the_log_speaks_last(tmp_path: Path) -> None:
    hand = Hand(tmp_path, FLOW, ago=2 * HOUR)
    hand.event("task.started", "work", attempt=1, on="process")
    hand.write()
    assert asked(hand.store)["ana"]["cpu"] == pytest.approx(8.0, abs=0.01)
    assert cost_of(hand.store, hand.write(), Prices()).total.asked["cpu"] == pytest.approx(8.0, abs=0.01)
    hand.store.peers.forget(hand.me.id)
    assert asked(hand.store) == {}, "its engine is gone: nobody knows whether it runs"
    hand.store.peers.register(hand.me)
    hand.at += HOUR
    hand.event("task.lost", "work", attempt=1, message="the engine that ran it is gone")
    attempt(hand, "work", 60)
    hand.finish("succeeded")
    hand.write()
    assert asked(hand.store)["ana"]["cpu"] == pytest.approx(4 / 60, abs=0.001)
    hand.store.close()


def test_a_run_by_step_with_the_most_wasteful_first(tmp_path: Path) -> None:
    hand = played(tmp_path)
    found = cost_of(hand.store, hand.write(), Prices({"cpu": 1.0, GPU: 10.0}))
    assert [one.step for one in found.steps][:3] == ["train", "work", "call/deep"]
    assert {one.step: one.queue for one in found.steps}["train"] == "gpus"
    assert found.cost == pytest.approx(32.1)
    assert [(one.step, round(one.waste, 3)) for one in found.wasteful] == [("work", 1.0), ("call/deep", 0.1)]
    assert "50 % of its cores were idle" in found.wasteful[0].why
    assert json.loads(json.dumps(found.as_data()))["wasteful"][0]["step"] == "work"
    hand.store.close()


def test_usage_stays_when_the_run_is_removed(tmp_path: Path) -> None:
    played(tmp_path, ago=40 * DAY).close()
    settings = read({}, home=tmp_path)
    with stores.open_existing(settings) as store:
        before = asked(store, days=50)
        store._session.transact(
            lambda: store._db.write("gc_run_usage", (time.time() + 1,))
        )  # of a run that is there nothing goes
        cleanup = Cleanup(store, settings, time.time(), time.time() - 30 * DAY, keep=0)
        cleanup.examine()
        cleanup.remove()
        assert len(cleanup.plan.runs) == 1 and store.runs.newest() == []
        assert asked(store, days=50) == before != {}
        store.usage.forget(time.time() + 500 * DAY)
        assert asked(store, days=50) == {}


def test_without_a_queue_and_dry_runs(tmp_path: Path) -> None:
    hand = Hand(tmp_path, Workflow(name="plain", steps=(step("work", cpu=1),)), ago=HOUR)
    attempt(hand, "work", 3600)
    hand.finish("succeeded")
    hand.write()
    assert asked(hand.store, "queue") == {NO_QUEUE: {"cpu": 1.0, "memory": 2.0}}
    hand.store.close()


def test_prices_are_read_from_the_environment_or_the_file(tmp_path: Path) -> None:
    assert not prices.configured({}, tmp_path) and Prices().cost({"cpu": 5}) is None
    given = prices.configured({"PENSTOCK_PRICES": "cpu=0.04, gpu=2.5,currency=EUR"}, tmp_path)
    assert given == Prices({"cpu": 0.04, GPU: 2.5}, "EUR")
    text = (
        "kind: ResourceFlavor\napiVersion: kueue.x-k8s.io/v1beta2\nmetadata: {name: a}\n---\nprices:\n  memory: 0.5\n"
    )
    (tmp_path / "penstock.yaml").write_text(text)
    assert prices.configured({}, tmp_path) == Prices({"memory": 0.5}, "")
    assert [row[:2] for row in rows_of(None, (text, "penstock.yaml"))[0]] == [("ResourceFlavor", "a")]


@pytest.mark.parametrize("text", ["cpu", "cpu=much", "cpu=-1", "cpu=nan", "cpu=inf"])
def test_what_are_no_prices_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="P981 .*PENSTOCK_PRICES"):
        prices.configured({"PENSTOCK_PRICES": text}, tmp_path)
    for document in (f"prices: {{cpu: {text}}}", "prices: 3", "prices: {cpu: 1}\nother: 2", "prices: ["):
        with pytest.raises(UserError, match=r"P981 .*penstock\.yaml"):
            prices.split(document)


def test_a_time_that_ends_before_it_begins(tmp_path: Path) -> None:
    with open_store(str(tmp_path)) as store, pytest.raises(PlanError, match="P980"):
        usage(store, "person", 10.0, 5.0, Prices())
