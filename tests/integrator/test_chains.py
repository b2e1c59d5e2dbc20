"""Chains: each link makes one run, whatever is killed and in which order branches end (T4.1 to T4.4)."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from penstock import Chain, Link, LocalRunner, ScriptJob, Workflow, WorkflowParam
from penstock.errors import AuthorError, UserError
from penstock.graph import codec
from penstock.graph.chains import name_of
from penstock.graph.check import check
from penstock.service.chain_runs import left
from penstock.service.views.lineage import lineage
from penstock.settings import Settings
from penstock.store.sql import Store, open_store
from tests.integrator.chains import POINTS, begin, deliver, end, runs_of, settings_of, states, work

A, B1, B2, C = work("a"), work("b1"), work("b2"), work("c")
DIAMOND = A >> [B1, B2] >> C


@pytest.fixture
def settings(where: str, tmp_path: Path) -> Settings:
    return settings_of(tmp_path / ".penstock", where)


# -- T4.1 -------------------------------------------------------------------------------------------------------------


def test_t4_1_a_chain_with_branches_yields_its_runs_with_their_lineage(store: Store, settings: Settings) -> None:
    head = begin(store, work("a") >> [work("b1") >> work("b1b"), work("b2")] >> work("c"))
    end(store, head.number)
    while deliver(store, settings):
        for runs in runs_of(store).values():
            for run in runs:
                if run.state == "stopped":
                    end(store, run.number)
    found = {name: run for name, (run,) in runs_of(store).items()}
    assert sorted(found) == ["a", "b1", "b1b", "b2", "c"]
    origins = {name: store.runs.origin(run.number) for name, run in found.items()}
    assert {one.root for one in origins.values() if one} == {head.number}
    parents = {name: origin.parent for name, origin in origins.items() if origin}
    assert parents["a"] == 0 and parents["b1"] == parents["b2"] == head.number
    assert parents["b1b"] == found["b1"].number and parents["c"] in (found["b1b"].number, found["b2"].number)
    assert {name: origin.link for name, origin in origins.items() if origin} == {**{n: n for n in found}, "a": ""}
    assert found["c"].params == {"x": [1, 1]}  # an output that both branches have is a list, in their order
    assert {run.user for run in found.values()} == {"ann"}
    assert [one.run for _, one in lineage(store, found["b2"]).walk()][0] == head.id
    assert not left(store, head)


def test_t4_1_a_condition_that_does_not_hold_ends_the_branch_as_skipped(store: Store, settings: Settings) -> None:
    head = begin(store, A >> [Link(B1, when="outputs.x > 5") >> work("b1b"), B2] >> C)
    end(store, head.number)
    deliver(store, settings)
    assert states(store, head.number) == {"b1": "skipped", "b1b": "skipped", "b2": "started"}
    end(store, runs_of(store)["b2"][0].number)
    deliver(store, settings)
    assert states(store, head.number)["c"] == "started"  # what was skipped does not hold up the rest
    rows = {row["link"]: row for row in lineage(store, head).as_data()["links"]}
    assert rows["b1"]["state"] == "skipped" and rows["b1"]["why"] == "outputs.x > 5 does not hold"
    assert rows["b1"]["run"] is None and rows["c"]["run"] == "c-1"


# -- T4.2 -------------------------------------------------------------------------------------------------------------


def test_t4_2_a_courier_that_is_killed_anywhere_makes_one_run_of_each_link(where: str, settings: Settings) -> None:
    with open_store(where) as store:
        heads = [begin(store, DIAMOND).number for _ in POINTS]
        for number in heads:
            end(store, number)  # its last event and the row of the outbox are one transaction
    words = [sys.executable, "-m", "tests.integrator.chains", str(settings.home), where, *map(str, heads)]
    done = subprocess.run(words, timeout=120, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    many = len(heads)
    with open_store(where) as store:
        recorded = {name: len(runs) for name, runs in runs_of(store).items()}
        assert recorded == {"a": many, "b1": 1, "b2": 1}  # only of the one that died after the commit
        while deliver(store, settings):
            pass
        assert {name: len(runs) for name, runs in runs_of(store).items()} == {"a": many, "b1": many, "b2": many}
        assert len(store.orders.runs()) == 2 * many
        for number in heads:
            assert states(store, number) == {"b1": "started", "b2": "started"}


# -- T4.3 -------------------------------------------------------------------------------------------------------------


def test_t4_3_a_failed_branch_leaves_the_other_and_is_resumed_by_itself(store: Store, settings: Settings) -> None:
    head = begin(store, A >> [B1 >> work("b1b"), B2 >> work("b2b")])
    end(store, head.number)
    deliver(store, settings)
    b1, b2 = runs_of(store)["b1"][0], runs_of(store)["b2"][0]
    end(store, b1.number, "failed")
    end(store, b2.number)
    while deliver(store, settings):
        pass
    assert states(store, head.number) == {"b1": "started", "b1b": "omitted", "b2": "started", "b2b": "started"}
    rows = {row["link"]: row["why"] for row in lineage(store, head).as_data()["links"]}
    assert rows["b1b"] == "b1 failed"
    end(store, b1.number, again=True)
    while deliver(store, settings):
        pass
    assert {name: len(runs) for name, runs in runs_of(store).items()} == dict.fromkeys(
        ("a", "b1", "b2", "b1b", "b2b"), 1
    )
    assert states(store, head.number)["b1b"] == "started"


def test_t4_3_what_was_started_for_an_end_is_not_started_for_the_same_end_again(
    store: Store, settings: Settings
) -> None:
    head = begin(store, work("a", links=[Link(work("tell"), on="failed"), work("next")]))
    end(store, head.number, "failed")
    deliver(store, settings)
    end(store, head.number, "failed", again=True)
    deliver(store, settings)
    assert {name: len(runs) for name, runs in runs_of(store).items()} == {"a": 1, "tell": 1}
    end(store, head.number, again=True)
    deliver(store, settings)
    assert {name: len(runs) for name, runs in runs_of(store).items()} == {"a": 1, "tell": 1, "next": 1}


def test_t4_3_an_end_that_is_heard_of_late_starts_what_asks_for_it_and_nothing_else(
    store: Store, settings: Settings
) -> None:
    head = begin(store, work("a", links=[Link(work("tell"), on="failed"), work("next")]))
    end(store, head.number, "failed")
    end(store, head.number, again=True)
    from penstock.service.chains.delivery import LinkDelivery
    from penstock.store import liveness

    first, second = store.outbox.take("link", liveness.identity(), 3.0, 100)
    delivery = LinkDelivery(settings)
    delivery.deliver(store, [second])
    delivery.deliver(store, [first])
    assert {name: len(runs) for name, runs in runs_of(store).items()} == {"a": 1, "tell": 1, "next": 1}


# -- T4.4 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("b1", "b2"), ("b2", "b1")])
def test_t4_4_a_join_starts_once_when_all_branches_have_ended(
    order: tuple[str, str], store: Store, settings: Settings
) -> None:
    head = begin(store, DIAMOND)
    end(store, head.number)
    deliver(store, settings)
    for _number, name in enumerate(order):
        assert "c" not in runs_of(store)
        end(store, runs_of(store)[name][0].number, outputs=f'{{"x":"{name}"}}')
        deliver(store, settings)
    (c,) = runs_of(store)["c"]
    assert c.params == {"x": ["b1", "b2"]}


def test_t4_4_many_couriers_that_see_the_ends_at_once_start_a_join_once(where: str, settings: Settings) -> None:
    branches = [work(f"b{n}") for n in range(6)]
    with open_store(where) as store:
        head = begin(store, Chain(A, branches, C))
        end(store, head.number)
        deliver(store, settings)
        for n in range(6):
            end(store, runs_of(store)[f"b{n}"][0].number)
    from penstock.service.chains.delivery import LinkDelivery
    from penstock.store import liveness

    gate = threading.Barrier(6)
    trouble: list[BaseException] = []

    with open_store(where) as store:
        entries = store.outbox.take("link", liveness.identity(), 3.0, 100)

    def courier(number: int) -> None:
        try:
            with open_store(where) as store:
                gate.wait(60)
                LinkDelivery(settings).deliver(store, [entries[number]])
        except BaseException as error:
            trouble.append(error)

    threads = [threading.Thread(target=courier, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not trouble
    with open_store(where) as store:
        assert len(runs_of(store)["c"]) == 1 and runs_of(store)["c"][0].params == {"x": [1] * 6}


def test_t4_4_a_join_needs_all_branches_unless_its_link_says_otherwise(store: Store, settings: Settings) -> None:
    clean = Link(work("clean"), on=("succeeded", "failed"))
    head = begin(store, A >> [B1, B2] >> [C, clean])
    end(store, head.number)
    deliver(store, settings)
    end(store, runs_of(store)["b1"][0].number, "failed")
    end(store, runs_of(store)["b2"][0].number)
    while deliver(store, settings):
        pass
    assert states(store, head.number) == {"b1": "started", "b2": "started", "c": "omitted", "clean": "started"}
    end(store, runs_of(store)["b1"][0].number, again=True)
    while deliver(store, settings):
        pass
    assert states(store, head.number)["c"] == "started" and len(runs_of(store)["clean"]) == 1


# -- bounds and refusals ----------------------------------------------------------------------------------------------


def test_a_chain_that_would_go_on_for_ever_is_bounded_and_says_so(where: str, tmp_path: Path) -> None:
    settings = settings_of(tmp_path / ".penstock", where, links=5)
    with open_store(where) as store:
        head = begin(store, work("loop", links=[Link("loop")]))
        number: int | None = head.number
        while number is not None:
            end(store, number)
            deliver(store, settings)
            number = next((run.number for run in store.runs.newest() if run.state == "stopped"), None)
        assert len(runs_of(store)["loop"]) == 6
        dead = [row for row in lineage(store, head).as_data()["links"] if row["state"] == "dead"]
        assert len(dead) == 1 and dead[0]["why"].startswith("P546")
        assert [row.error[:4] for row in store.outbox.page(["link"], ["dead"], 10)] == ["P546"]


def test_a_condition_that_is_no_truth_value_is_recorded_as_dead(store: Store, settings: Settings) -> None:
    head = begin(store, A >> Link(B1, when="outputs.x") >> C)
    end(store, head.number)
    deliver(store, settings)
    assert states(store, head.number) == {"b1": "dead", "c": "omitted"} or states(store, head.number) == {"b1": "dead"}
    why = store.links.of_head(head.number)["b1"].why
    assert why.startswith("P545") and "neither true nor false" in why


def test_links_take_what_follows_from_the_document_of_the_submission(store: Store, settings: Settings) -> None:
    chain = work("a") >> work("b1")
    head = begin(store, chain, queue=None)
    document = store.runs.document(head.digest)
    assert [one["name"] for one in json.loads(document)["definitions"]] == ["b1"]
    end(store, head.number)
    deliver(store, settings)
    b1 = runs_of(store)["b1"][0]
    assert b1.digest == codec.digest(B1.graph) and b1.options["place"] == "/"
    assert store.orders.of(b1.number) is not None


def test_a_fault_at_one_link_does_not_hold_up_others_and_is_given_up_in_the_end(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.service.chains.delivery import FAULTS, LinkDelivery
    from tests.integrator.chains import ME

    bad, good = begin(store, work("bad") >> B1), begin(store, work("good") >> B2)
    end(store, bad.number)
    end(store, good.number)
    real = LinkDelivery.plan

    def plan(self: LinkDelivery, store: Store, entry: Any) -> Any:
        if entry.run == bad.number:
            raise ZeroDivisionError("a fault")
        return real(self, store, entry)

    monkeypatch.setattr(LinkDelivery, "plan", plan)
    now = 3.0
    delivery = LinkDelivery(settings, lambda: now)
    for _ in range(FAULTS):
        now += 1000.0
        delivery.deliver(store, store.outbox.take("link", ME, now, 100))
    assert states(store, good.number) == {"b2": "started"} and not states(store, bad.number)
    (row,) = store.outbox.of_run(bad.number)
    assert (row.state, row.attempts, row.error) == ("dead", FAULTS, "ZeroDivisionError: a fault")
    monkeypatch.setattr(LinkDelivery, "plan", real)
    assert store.deliveries.anew(row, row.data, now) and deliver(store, settings) == 0
    delivery.deliver(store, store.outbox.take("link", ME, now, 100))
    assert states(store, bad.number) == {"b1": "started"}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nowhere": ({"workflow": "nope"}, "P540"),
    "twice": ({"workflow": "b1", "name": "again"}, "P543"),
    "after nothing": ({"workflow": "b1", "after": ["nope"]}, "P543"),
    "itself": ({"workflow": "b1", "name": "x", "after": ["x"]}, "P543"),
    "no end": ({"workflow": "b1", "on": ["done"]}, "P543"),
    "no such output": ({"workflow": "b1", "when": "outputs.y > 1"}, "P544"),
    "a step": ({"workflow": "b1", "when": "steps.a.outcome == 'failed'"}, "P544"),
    "no such parameter": ({"workflow": "b1", "params": {"y": 1}}, "P544"),
    "no value": ({"workflow": "needs"}, "P544"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_link_that_cannot_work_is_refused_with_its_place(name: str) -> None:
    given, code = WRONG[name]
    needs = Workflow("needs", [ScriptJob("s", "true")], params=[WorkflowParam("k", int)])
    data = codec.to_data((A >> [B1, Link(needs, params={"k": 1})]).graph)
    data["links"] = [{"workflow": "b1", "name": "again"}, given]
    found = [one for one in check(codec.from_data(data)) if one.severity == "error"]
    assert [one.code for one in found][:1] == [code] and found[0].where.startswith("links")


def test_what_is_no_chain_is_refused() -> None:
    other = Workflow("b1", [ScriptJob("s", "false")])
    for make in (
        lambda: [B1, B2] >> C,
        lambda: A >> 3,
        lambda: A >> [],
        lambda: (A >> B1 >> A).graph,
        lambda: (A >> B1 >> other).graph,
        lambda: Link(B1, on="done"),
    ):
        with pytest.raises(AuthorError) as caught:
            make()
        assert caught.value.code in ("P541", "P542", "P543")


def test_a_chain_is_one_document_that_reads_as_it_was_written() -> None:
    chain = A >> [B1 >> B2, Link(B2, name="other", params={"x": "${{ outputs.x }}"})] >> C
    assert [(name_of(one), one.after) for one in chain.graph.links] == [
        ("b1", ()),
        ("b2", ("b1",)),
        ("other", ()),
        ("c", ("b2", "other")),
    ]
    assert codec.to_json(codec.from_text(chain.to_yaml())) == chain.to_json()
    assert not check(chain.graph)


# -- any chain, any order, any crash ----------------------------------------------------------------------------------


class _Crash(BaseException):
    pass


def _chains(names: Iterator[str]) -> st.SearchStrategy[Any]:
    @st.composite
    def series(draw: st.DrawFn, depth: int = 2) -> list[Any]:
        parts: list[Any] = [work(next(names))]
        for _ in range(draw(st.integers(0, 2))):
            if depth and draw(st.booleans()):
                branches = draw(st.lists(series(depth - 1), min_size=1, max_size=3))
                parts.append([Chain(*one) for one in branches])
            else:
                parts.append(work(next(names)))
        return parts

    return series()


@pytest.mark.slow
@hypothesis_settings(max_examples=25)
@given(st.data())
def test_any_chain_makes_each_run_once_whatever_order_and_whatever_crashes(data: st.DataObject) -> None:
    import tempfile

    names = (f"w{n}" for n in range(10**6))
    parts = data.draw(_chains(names))
    dice = random.Random(data.draw(st.integers(0, 10**6)))
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_of(Path(folder), folder)
        with open_store(folder) as store:
            _played(store, settings, Chain(*parts), dice)


def _played(store: Store, settings: Settings, chain: Chain, dice: random.Random) -> None:
    graph = chain.graph
    head = begin(store, chain)
    runs = store.runs
    real = {"create": runs.create, "settle": store.outbox.settle}

    def crashing(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if dice.random() < 0.2:
                raise _Crash
            found = real[name](*args, **kwargs)
            if dice.random() < 0.2:
                raise _Crash
            return found

        return call

    runs.create = crashing("create")  # type: ignore[method-assign]
    store.outbox.settle = crashing("settle")  # type: ignore[method-assign]
    quiet = 0
    while quiet < 3:
        open_runs = [run for run in store.runs.newest() if run.state == "stopped"]
        if open_runs and dice.random() < 0.7:
            end(store, dice.choice(open_runs).number)
        try:
            quiet = 0 if deliver(store, settings) or open_runs else quiet + 1
        except _Crash:
            quiet = 0
    made = runs_of(store)
    wanted = [graph.name, *(link.workflow for link in graph.links)]
    assert {name: len(found) for name, found in made.items()} == dict.fromkeys(wanted, 1)
    number = {name: found[0].number for name, found in made.items()}
    for link in graph.links:
        for before in link.after or (graph.name,):
            assert number[before] < number[link.workflow]  # it began when what it comes after had ended
    assert store.links.started(head.number) == len(graph.links)


# -- executed ---------------------------------------------------------------------------------------------------------


def test_a_chain_that_is_run_from_python_gives_its_lineage(tmp_path: Path) -> None:
    count = ScriptJob(
        "count",
        "echo $((N + 1)) > $PENSTOCK_OUTPUTS/n",
        env={"N": WorkflowParam("n", int)},
        outputs=[WorkflowParam("n", int)],
    )
    params = [WorkflowParam("n", int)]

    def flow(name: str) -> Workflow:
        return Workflow(name, [count], params=params, outputs={"n": count.outputs["n"]})

    total = ScriptJob(
        "total",
        "echo $N > $PENSTOCK_OUTPUTS/all",
        env={"N": "${{ string(size(params.n)) }}"},
        outputs=[WorkflowParam("all", int)],
    )
    last = Workflow("last", [total], params=[WorkflowParam("n", list[int])], outputs={"all": total.outputs["all"]})
    chain = flow("one") >> [flow("two"), Link(flow("three"), when="outputs.n > 100"), flow("four")] >> last
    found = LocalRunner(home=tmp_path / ".penstock", jobs=2).run(chain, n=1)
    assert found.ok and found["two"].result == 3 and found["last"].result == 2
    assert [(one["link"], one["state"]) for one in found.links if one["state"] != "succeeded"] == [("three", "skipped")]
    with pytest.raises(UserError, match="P547"):
        found["three"]
    assert len(found) == 4 and found.root.result == 2
