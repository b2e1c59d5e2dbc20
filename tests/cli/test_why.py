"""Why something waits: in queues, now and before; for others, for times, people and steps. As data and as people read it."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.admission.model import Stop
from penstock.cli.ui.board import Board
from penstock.graph.model import Edge, ForEach, Lock, Nested, Script, Step, Suspend, Unit, Workflow
from penstock.service import wording
from penstock.service.amounts import amount, figure
from penstock.service.queues import apply, set_stop
from penstock.service.views import waiting
from penstock.service.views.outline import Outline
from penstock.service.views.reservation_steps import group_members, steps_of
from penstock.service.views.wait_history import past_waits
from penstock.service.views.waiting import WaitWatcher, queued_runs, waits_of
from penstock.service.views.waits import texts
from penstock.service.views.why import why
from penstock.store.records import Event, LockRequest
from tests.cli.conftest import Result
from tests.service.lines import Lines, cluster_queue, local_queue, manifest

Penstock = Callable[..., Result]
WORK = Script(source="true")
FLOW = Workflow(
    name="flow",
    steps=(
        Step(name="fetch", action=WORK, resources={"cpu": 1000}),
        Step(
            name="train",
            action=WORK,
            resources={"cpu": 1000},
            needs=(Edge("fetch"),),
            each=ForEach(axes=({"x": (1, 2, 3, 4)},)),
        ),
        Step(name="ask", action=Suspend(message="ship it?"), needs=(Edge("train"),)),
        Step(name="report", action=WORK, needs=(Edge("ask"),)),
    ),
)


@pytest.fixture
def lines(penstock: Penstock, tmp_path: Path) -> Iterator[Lines]:
    found = Lines(tmp_path / ".penstock")
    yield found
    found.close()


def data_of(penstock: Penstock, target: str) -> Any:
    done = penstock("why", target, "-o", "json")
    assert done.code == 0, done.err
    return json.loads(done.out)


# -- in a queue -------------------------------------------------------------------------------------------------------


def test_the_queue_the_rule_the_shortage_the_holder_the_order_and_what_would_help(
    penstock: Penstock, lines: Lines
) -> None:
    holder, first, second = (lines.run(FLOW, ago=9 - n) for n in range(3))
    lines.ask(holder, "train", count=2, min_count=1)
    lines.ask(first, "fetch", queue="team-b")
    lines.ask(second, "fetch", queue="team-b")
    for run in (holder, first, second):
        run.write()
    data = data_of(penstock, "flow-3")
    (wait,) = data["waits"]
    reason = wait["reason"]
    assert (
        data["state"] == "running"
        and wait["path"] == "fetch"
        and wait["kind"] == "queue"
        and wait["asks"] == {"cpu": "1"}
    )
    assert (reason["queue"], reason["cluster_queue"]) == ("default/team-b", "shared")
    assert reason["rule"] == "nominalQuota of ClusterQueue shared"
    assert (reason["position"], reason["behind"], reason["ahead"]) == (2, 1, ["default/flow-2/fetch"])
    (short,) = reason["short"]
    assert [short[name] for name in ("flavor", "resource", "asked", "available", "most")] == [
        "default",
        "cpu",
        "1",
        "0",
        "2",
    ]
    assert short["holders"] == [{"workload": "default/flow-1/train", "queue": "shared", "amount": "2"}]
    said = penstock("why", "@/fetch").out
    for part in (
        "flow-3/fetch waits in queue team-b (ClusterQueue shared): 1 cpu.",
        "not enough of the nominalQuota of ClusterQueue shared is free",
        "cpu of flavor default: 1 asked, 0 free, 2 at most",
        "flow-1/train has 2 cpu   (ana, priority 0)",
        "2nd in the queue, behind flow-2/fetch",
        "it can start when flow-1/train ends or releases quota",
    ):
        assert part in said, (part, said)
    for run in (holder, first, second):
        run.close()


def test_another_queue_in_which_it_would_start_now_is_named(penstock: Penstock, lines: Lines) -> None:
    apply(lines.store, (manifest(cluster_queue("idle"), local_queue("team-c", "idle")), "more.yaml"))
    holder, waiter = lines.run(FLOW), lines.run(FLOW)
    lines.ask(holder, "fetch", cpu=2)
    lines.ask(waiter, "fetch")
    waiter.write()
    assert "it would start now in queue idle or team-c: --queue idle" in penstock("why", "@").out
    holder.close()
    waiter.close()


def test_a_queue_that_is_stopped_says_how_to_let_it_go_on(penstock: Penstock, lines: Lines) -> None:
    run = lines.run(FLOW)
    set_stop(lines.store, "shared", Stop.DRAIN)
    lines.ask(run, "fetch")
    run.write()
    said = penstock("why", "@").out
    assert "stopPolicy HoldAndDrain" in said and "penstock queue resume shared" in said
    set_stop(lines.store, "shared", Stop.NONE)
    set_stop(lines.store, "team-a", Stop.HOLD)
    assert "penstock queue resume team-a" in penstock("why", "@").out
    run.close()


def test_ls_show_and_the_board_say_that_it_waits(penstock: Penstock, lines: Lines) -> None:
    holder, waiter = lines.run(FLOW), lines.run(FLOW)
    lines.ask(holder, "train", count=2)
    holder.task("fetch", "fetch", "succeeded")
    holder.task("train[0]", "train", "running")
    lines.ask(waiter, "fetch")
    holder.write()
    waiter.write()
    assert queued_runs(lines.store) == {waiter.number}
    listed = {row["run"]: row["state"] for row in json.loads(penstock("ls", "-o", "json").out)}
    assert listed == {"flow-1": "running", "flow-2": "queued"}
    assert [row["run"] for row in json.loads(penstock("ls", "--state", "queued", "-o", "json").out)] == ["flow-2"]
    shown = json.loads(penstock("show", "@", "-o", "json").out)
    assert shown["state"] == "queued" and shown["waits"][0]["path"] == "fetch"
    assert shown["steps"][0]["reason"] == "waiting in queue team-a: 1 cpu short"
    out = penstock("show", "@").out
    assert "fetch\tqueued\t1\t\twaiting in queue team-a: 1 cpu short" in out and "penstock why flow-2" in out
    holder.close()
    waiter.close()


def test_a_fan_out_that_goes_round_in_what_it_has_is_not_said_to_wait_for_anybody(lines: Lines) -> None:
    run = lines.run(FLOW)
    lines.ask(run, "train", count=2)
    lines.ask(run, "train+2", count=2, min_count=1)
    found = waits_of(lines.store, run.write())
    assert [wait.own for wait in found] == [True] and texts(found) == {"train": ""}
    outline = Outline(FLOW)
    board = Board(outline, waits=texts(found))
    tally = {"fetch": {"succeeded": 1}, "train": {"tasks": 4, "running": 1, "waiting": 1, "succeeded": 1}}
    outline.measure(tally, "running")
    assert "".join(text for text, _ in board.details(outline.by_path["train"])).endswith("1 done · 1 running · 2 to go")
    board.waits = {"train": "waiting in queue q: 1 cpu short"}
    assert "2 waiting in queue q: 1 cpu short" in "".join(text for text, _ in board.details(outline.by_path["train"]))
    run.close()


def test_a_run_that_is_admitted_as_a_whole_waits_as_a_whole(penstock: Penstock, lines: Lines) -> None:
    whole = lines.run(dataclasses.replace(FLOW, unit=Unit.WORKFLOW))
    other = lines.run(FLOW)
    lines.ask(other, "fetch", cpu=2)
    lines.ask(whole, "")
    whole.write()
    (wait,) = waits_of(lines.store, whole.write())
    assert wait.path == "workflow" and wait.steps == ()
    assert "flow-1 waits in queue team-a (ClusterQueue shared): 1 cpu." in penstock("why", "flow-1/report").out
    assert "waits  in queue team-a: 1 cpu short" in penstock("show", "flow-1").out
    whole.close()
    other.close()


def test_the_steps_that_a_reservation_is_for() -> None:
    inner = Workflow(
        name="inner", steps=(Step(name="a", action=WORK, group="g"), Step(name="b", action=WORK, group="g"))
    )
    workflow = Workflow(
        name="w",
        steps=(Step(name="call", action=Nested(name="inner"), each=ForEach(axes=({"x": (1, 2)},))),),
        definitions=(inner,),
    )
    assert steps_of(workflow, {}, "call[1]/g", Outline(workflow)) == ("call/a", "call/b")
    assert steps_of(FLOW, {}, "train", Outline(FLOW)) == ("train",)
    chain = Workflow(
        name="c",
        steps=tuple(
            Step(name=name, action=WORK, resources={"cpu": 1000}, needs=tuple(map(Edge, up)))
            for name, up in (("a", ()), ("b", ("a",)))
        ),
        unit=Unit.REUSE,
    )
    outline = Outline(chain)
    outline.measure({"a": {"succeeded": 1}}, "running")
    assert steps_of(chain, {}, "a", outline) == ("b",), "who takes over waits under the name of the first"


def staged() -> Workflow:
    """As a workflow of steps in groups is read: each group is a stage, and none of its names is a step's."""
    inner = Workflow(
        name="inner",
        steps=tuple(Step(name=name, action=WORK, resources={"cpu": 1000}, group="inner[0]") for name in ("x", "y")),
    )
    first = Step(name="first", action=WORK, resources={"cpu": 1000}, group="main[0]")
    pair = tuple(
        Step(name=name, action=WORK, resources={"cpu": 1000}, group="main[1]", needs=(Edge("first"),))
        for name in ("a", "b")
    )
    call = Step(name="call", action=Nested(name="inner"), needs=(Edge("a"), Edge("b")))
    bye = Step(name="bye", action=WORK)
    return Workflow(name="staged", steps=(first, *pair, call), on_exit=(bye,), definitions=(inner,))


def test_a_step_of_a_stage_waits_where_its_stage_does(penstock: Penstock, lines: Lines) -> None:
    holder, run = lines.run(FLOW), lines.run(staged())
    lines.ask(holder, "train", count=1)
    run.task("first", "first", "succeeded")
    run.task("a", "a", "running")
    lines.ask(run, "main[1]", count=1)
    lines.ask(run, "main[1]+1", count=1)
    (wait,) = waits_of(lines.store, run.write())
    assert (wait.path, wait.steps, wait.tasks) == ("main[1]", ("a", "b"), 1)
    whole, member, stage = (penstock("why", f"staged-1{path}").out for path in ("", "/b", "/main[1]"))
    reason = "staged-1/main[1] waits in queue team-a (ClusterQueue shared): 1 cpu."
    short = "cpu of flavor default: 1 asked, 0 free, 2 at most"
    assert all(reason in said and short in said and "could start" not in said for said in (whole, member, stage)), whole
    assert penstock("why", "staged-1/a").out == "nothing waits: 1 task of staged-1/a runs.\n"
    assert "b\tqueued\t1\t\twaiting in queue team-a: 1 cpu short" in penstock("show", "staged-1").out
    holder.close()
    run.close()


def test_a_stage_is_asked_about_by_the_name_that_queues_have_for_it(penstock: Penstock, lines: Lines) -> None:
    run = lines.run(staged())
    for step in ("first", "a", "b"):
        run.task(step, step, "succeeded")
    key = "default/staged-1/main[1]"
    run.event("reservation.waiting", "main[1]", workload=key, reason=hold())
    run.at += 75
    run.event("reservation.admitted", "main[1]", workload=key, tasks=2, waited=75.0)
    run.task("call", "call", "running")
    lines.ask(run, "other", cpu=2)
    lines.ask(run, "call/inner[0]", count=2)
    run.write()
    said = penstock("why", "@/main[1]").out
    assert said.startswith("staged-1/main[1] is over: it succeeded.") and "main[1] waited 1m15s in queue team-a" in said
    assert "main[1] waited 1m15s" in penstock("why", "@/b").out and "waited" not in penstock("why", "@/first").out
    assert "staged-1/call/inner[0] waits in queue" in penstock("why", "@/call/inner[0]").out
    assert "staged-1/call/inner[0] waits in queue" in penstock("why", "@/call/y").out
    for path in ("@/main[9]", "@/call/inner[1]", "@/inner[0]"):
        missing = penstock("why", path)
        assert missing.code == 4 and "P507" in missing.err, path
    run.close()


def test_a_stage_of_one_call_is_not_that_of_another() -> None:
    outline = Outline(
        dataclasses.replace(
            staged(),
            steps=(
                Step(name="call", action=Nested(name="inner"), each=ForEach(axes=({"x": (1, 2)},))),
                Step(name="w", action=WORK, group="a/b"),
            ),
        )
    )
    assert group_members(outline, "call[1]/inner[0]") == ("call[1]/x", "call[1]/y")
    assert group_members(outline, "call/inner[0]") == ("call/x", "call/y")
    assert group_members(outline, "a/b") == ("w",) and group_members(outline, "call") == () == group_members(
        outline, "inner[0]"
    )


def test_a_stage_whose_time_has_not_come_says_what_it_comes_after(penstock: Penstock, lines: Lines) -> None:
    run = lines.run(staged())
    run.task("first", "first", "running")
    run.write()
    assert "staged-1/main[1] comes after first, which is not over." in penstock("why", "@/main[1]").out
    run.close()


# -- for a lock ---------------------------------------------------------------------------------------------------------


def lock(run: Any, task: str, name: str = "m", most: int = 1) -> None:
    run.store.locks.lock(run.me.id, [LockRequest(run.number, task, {name: most})], [])


def locked(run: Any, task: str, of: str | None = None, name: str = "m", limit: int = 1) -> None:
    """As an engine writes it down; who held it then is of no interest now."""
    lock(run, task if of is None else of, name, limit)
    reason = {
        "why": "lock",
        "lock": name,
        "limit": limit,
        "of": task if of is None else of,
        "holders": [{"run": "old-1", "task": "x"}],
    }
    run.event("task.waiting", task, reason=reason)
    run.task(task, task.partition("[")[0], "waiting", attempt=0, took=None, reason=reason)


LOCKED = Workflow(name="locked", steps=(Step(name="work", action=WORK, locks=(Lock(name="m"),)),))


def test_which_lock_how_many_may_hold_it_who_does_and_since_when(penstock: Penstock, lines: Lines) -> None:
    holder, run = lines.run(LOCKED, ago=100), lines.run(LOCKED, ago=30)
    lock(holder, "work")
    holder.task("work", "work", "running")
    locked(run, "work")
    holder.write()
    run.write()
    (wait,) = data_of(penstock, "@")["waits"]
    assert (wait["path"], wait["kind"], wait["tasks"]) == ("work", "lock", 1)
    assert wait["since"] == pytest.approx(run.at) and wait["reason"] == {
        "why": "lock",
        "lock": "m",
        "limit": 1,
        "of": "work",
        "held": 1,
        "holders": [{"run": "locked-1", "task": "work", "since": pytest.approx(holder.at), "user": "ana"}],
    }
    for target in ("locked-2", "locked-2/work"):
        said = penstock("why", target).out
        assert "locked-2/work has waited for 30s for lock m." in said
        assert "one task at a time may hold it" in said and "could start" not in said
        assert f"held by  locked-1/work since {wording.clock(holder.at)}   (ana)" in said
        assert "it can start when locked-1/work has ended" in said
    assert "work\tqueued\t1\t\twaiting for lock m: locked-1/work holds it" in penstock("show", "@").out
    listed = {row["run"]: row["state"] for row in json.loads(penstock("ls", "-o", "json").out)}
    assert listed == {"locked-1": "running", "locked-2": "queued"}
    holder.close()
    run.close()


def test_a_call_or_the_run_waits_for_a_lock_for_all_that_is_in_it(penstock: Penstock, lines: Lines) -> None:
    holder, run, whole = lines.run(LOCKED), lines.run(staged()), lines.run(FLOW)
    lock(holder, "", "all")
    lock(holder, "work")
    for step in ("first", "a", "b"):
        run.task(step, step, "succeeded")
    for task in ("call", "call/x"):
        locked(run, task, "call")
    locked(whole, "fetch", "", "all")
    for one in (holder, run, whole):
        one.write()
    for target in ("staged-1", "staged-1/call", "staged-1/call/x", "staged-1/call/y", "staged-1/call/inner[0]"):
        (wait,) = data_of(penstock, target)["waits"]
        assert (wait["path"], wait["kind"], wait["tasks"]) == ("call", "lock", 1), target
    for target in ("flow-1", "flow-1/fetch", "flow-1/report"):
        (wait,) = data_of(penstock, target)["waits"]
        assert (wait["path"], wait["kind"]) == ("workflow", "lock"), target
        said = penstock("why", target).out
        assert "flow-1 waits for lock all." in said and "held by  locked-1   (ana)" in said
    shown = penstock("show", "flow-1").out
    assert "waits  for lock all: locked-1 holds it" in shown and "fetch\tqueued" in shown
    for one in (holder, run, whole):
        one.close()


def test_inside_of_what_holds_a_lock_the_same_name_is_another_one(lines: Lines) -> None:
    run = lines.run(staged())
    lock(run, "call")
    lock(run, "call/x", "m in staged-1/call")
    run.store.locks.lock(run.me.id, [LockRequest(run.number, "call/y", {"m in staged-1/call": 1})], [])
    locked(run, "call/y", "call/y")
    (wait,) = waits_of(lines.store, run.write())
    assert [one["task"] for one in wait.reason["holders"]] == ["call/x"]
    run.close()


def test_who_has_the_lock_by_now_lacks_a_worker(penstock: Penstock, lines: Lines) -> None:
    graph = dataclasses.replace(
        LOCKED, steps=(dataclasses.replace(LOCKED.steps[0], each=ForEach(axes=({"x": (1, 2, 3)},))), *FLOW.steps[:1])
    )
    run = lines.run(graph)
    run.event("step.ready", "work", tasks=3)
    for number in range(3):
        locked(run, f"work[{number}]")
    run.task("fetch", "fetch", "running")
    run.write()
    said = penstock("why", "@").out
    assert "locked-1/work[1] (2 tasks) has waited for " in said and " for lock m." in said
    assert "held by  locked-1/work[0]" in said
    assert "locked-1/work[0]: 1 task could start, and every worker is busy" in said
    run.close()


def test_looking_again_and_again_sees_that_a_lock_was_handed_on(lines: Lines, monkeypatch: Any) -> None:
    first, second, run = lines.run(LOCKED), lines.run(LOCKED), lines.run(LOCKED)
    lock(first, "work")
    lock(second, "work")
    locked(run, "work")
    moment = time.monotonic()
    monkeypatch.setattr(waiting.time, "monotonic", lambda: moment)
    line = WaitWatcher(lines.store, run.write())
    assert line.texts() == {"work": "waiting for lock m: locked-1/work holds it"}
    first.store.locks.lock(first.me.id, [], [(first.number, "work")])
    moment += 100
    assert line.texts() == {"work": "waiting for lock m: locked-2/work holds it"}
    second.store.locks.lock(second.me.id, [], [(second.number, "work")])
    moment += 100
    assert line.texts() == {"work": "waiting for a worker: it has lock m"}
    for one in (first, second, run):
        one.close()


def held(limit: int, many: int, named: int = 5) -> dict[str, Any]:
    holders = [{"run": f"r-{n}", "task": "t" if n else ""} for n in range(min(many, named))]
    return {"why": "lock", "lock": "s", "limit": limit, "held": many, "holders": holders}


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (held(1, 1), "waiting for lock s: r-0 holds it"),
        (held(2, 2), "waiting for lock s: 2 of 2 hold it: r-0, r-1/t"),
        (held(9, 9), "waiting for lock s: 9 of 9 hold it: r-0, r-1/t and 7 more"),
        (held(1, 0), "waiting for lock s: it is being passed on"),
        (held(3, 2), "waiting for lock s: 2 of 3 hold it: it is being passed on"),
        (
            {"why": "lock", "lock": "s", "limit": 1, "holders": [{"run": "a-1", "task": "b"}]},
            "waiting for lock s: a-1/b holds it",
        ),
    ],
)
def test_every_state_of_a_lock_has_a_line(reason: dict[str, Any], said: str) -> None:
    assert wording.brief(reason) == said
    assert all(text for _, text in wording.lock_facts(reason))


def test_of_many_holders_of_a_lock_some_are_named() -> None:
    assert wording.lock_facts(held(9, 9, 2)) == [
        ("why", "9 tasks at a time may hold it"),
        ("held by", "r-0"),
        ("", "r-1/t"),
        ("", "7 more"),
        ("help", "it can start when one of them has ended"),
    ]
    dead = {**held(1, 1), "holders": [{"run": "r-0", "task": "t", "user": "ana", "gone": True}]}
    assert ("held by", "r-0/t   (ana, its process is gone)") in wording.lock_facts(dead)
    assert wording.lock_facts(held(1, 0)) == [("why", "one task at a time may hold it, and it is being passed on")]
    assert wording.lock_facts(held(3, 2))[0] == (
        "why",
        "3 tasks at a time may hold it; 2 hold it now, and it is being passed on",
    )


# -- for all else -----------------------------------------------------------------------------------------------------


def test_what_is_shared_retried_suspended_or_comes_after_others(penstock: Penstock, lines: Lines) -> None:
    run = lines.run(FLOW)
    run.event("task.failed", "train[0]", attempt=1, message="boom", retry=3600)
    run.task("fetch", "fetch", "succeeded")
    run.task("train[0]", "train", "retrying", message="boom", retry=3600)
    reason = {"why": "shared", "run": "other-1", "task": "train[7]"}
    run.task("train[1]", "train", "waiting", took=None, reason=reason)
    run.task("train[2]", "train", "running")
    run.event("step.ready", "train", tasks=4)
    run.task("ask", "ask", "suspended", message="ship it?")
    run.write()
    data = data_of(penstock, "@")
    kinds = {wait["kind"]: wait for wait in data["waits"]}
    assert set(kinds) == {"retry", "shared", "somebody", "slot"} and data["running"] == 1
    assert kinds["retry"]["reason"]["until"] == pytest.approx(run.at + 3600) and kinds["slot"]["tasks"] == 1
    said = penstock("why", "@").out
    for part in (
        "1 task of flow-1 runs now.",
        "flow-1/train[0] failed: boom; it is tried again at ",
        "flow-1/train[1] waits for other-1/train[7], which computes the same.",
        "penstock why 'other-1/train[7]'",
        "flow-1/ask has waited for",
        "to be resumed: ship it?\n",
        "penstock resume flow-1/ask",
        "flow-1/train: 1 task could start, and every worker is busy",
    ):
        assert part in said, (part, said)
    assert "flow-1/report comes after ask, which is not over." in penstock("why", "@/report").out
    assert "flow-1/train: 1 task could start" in penstock("why", "@/train[3]").out, "it has not begun"
    assert "penstock resume" not in penstock("why", "@/train").out
    run.close()


def test_an_exit_handler_waits_for_the_end(penstock: Penstock, lines: Lines) -> None:
    run = lines.run(staged())
    run.task("first", "first", "running")
    run.write()
    assert penstock("why", "@").out == "nothing waits: 1 task of staged-1 runs.\n"
    said = penstock("why", "@/bye").out
    assert (
        "staged-1/bye runs at the end: first, a, b, call are not over." in said
        and "penstock why staged-1/first" in said
    )
    for step in ("first", "a", "b", "call"):
        run.task(step, step, "succeeded")
    for step in ("call/x", "call/y"):
        run.task(step, step, "succeeded")
    run.write()
    assert "staged-1/bye: 1 task could start" in penstock("why", "@").out, "its time has come"
    run.close()


def test_nothing_waits_nobody_runs_it_and_it_is_over(penstock: Penstock, lines: Lines) -> None:
    run = lines.run(FLOW)
    run.task("fetch", "fetch", "running")
    run.write()
    assert penstock("why", "@").out == "nothing waits: 1 task of flow-1 runs.\n"
    run.die()
    assert "no engine runs flow-1: its process is gone." in penstock("why", "@").out
    assert data_of(penstock, "@")["waits"] == [
        {"path": "", "kind": "engine", "since": None, "tasks": 1, "reason": {"state": "lost"}}
    ]
    done = lines.run(FLOW)
    done.task("fetch", "fetch", "succeeded")
    done.finish("succeeded")
    done.close()
    assert penstock("why", "@").out == "flow-2 is over: it succeeded.\n"
    assert penstock("why", "@/fetch").out == "flow-2/fetch is over: it succeeded.\n"


def test_a_step_that_is_not_there_and_a_run_that_is_not_there(penstock: Penstock, lines: Lines) -> None:
    lines.run(FLOW).close()
    missing = penstock("why", "@/trian")
    assert missing.code == 4 and 'Did you mean "train"' in missing.err
    assert penstock("why", "flow-9").code == 4


# -- what was ---------------------------------------------------------------------------------------------------------


def hold(kind: str = "quota", **fields: Any) -> dict[str, Any]:
    short = [{"flavor": "default", "resource": "cpu", "asked": 3000, "available": 1000, "most": 4000, "kind": "quota"}]
    return {"why": kind, "queue": "default/team-a", "cluster_queue": "shared", "short": short, **fields}


def event(seq: int, at: float, kind: str, task: str = "train", **data: Any) -> Event:
    return Event(seq, at, kind, task, data)


def test_holds_of_the_past_have_a_length_a_reason_and_an_outcome() -> None:
    key = "default/flow-1/train"
    found = past_waits(
        [
            event(1, 10.0, "reservation.waiting", workload=key, reason=hold()),
            event(2, 12.0, "reservation.waiting", workload=key, reason=hold("preempting", waits_for=["default/x-1/y"])),
            event(
                3,
                15.0,
                "reservation.admitted",
                workload=key,
                tasks=2,
                waited=5.0,
                queue="shared",
                held={"default": {"cpu": 2000}},
            ),
            event(4, 15.0, "reservation.waiting", workload=key + "+2", reason=hold()),
            event(5, 16.0, "reservation.withdrawn", workload=key + "+2"),
            event(6, 20.0, "reservation.waiting", workload=key + "+3", reason=hold()),
            event(7, 22.0, "run.stopped", ""),
            event(8, 30.0, "run.started", ""),
            event(9, 30.0, "reservation.admitted", workload=key, tasks=1, waited=0.0),
            event(10, 31.0, "reservation.waiting", workload=key, reason=hold()),
        ]
    )
    assert [(one.start, one.end, one.outcome, one.tasks) for one in found] == [
        (10.0, 15.0, "admitted", 2),
        (15.0, 16.0, "withdrawn", 0),
        (20.0, 22.0, "stopped", 0),
        (31.0, None, "", 0),
    ]
    assert [reason["why"] for reason in found[0].reasons] == ["quota", "preempting"]
    assert found[0].as_data()["held"] == {"default": {"cpu": "2"}}
    assert found[0].as_data()["reasons"][0]["short"][0]["asked"] == "3"


def test_several_lots_of_one_stage_each_have_their_time() -> None:
    key = "default/flow-1/train"
    found = past_waits(
        [
            event(1, 10.0, "reservation.waiting", workload=key, reason=hold()),
            event(2, 11.0, "reservation.admitted", workload=key, tasks=1, waited=1.0),
            event(3, 14.0, "reservation.admitted", workload=key + "+2", tasks=1, waited=4.0),
        ]
    )
    assert [(one.start, one.end) for one in found] == [(10.0, 11.0), (10.0, 14.0)]


def test_the_past_is_told_when_it_is_over(penstock: Penstock, lines: Lines) -> None:
    run = lines.run(FLOW)
    key = "default/flow-1/train"
    run.event("reservation.waiting", "train", workload=key, reason=hold())
    run.at += 75
    run.event("reservation.admitted", "train", workload=key, tasks=2, waited=75.0, held={"a100": {"cpu": 2000}})
    run.event("reservation.evicted", "train", workload=key, reason="InClusterQueue", by="default/big-7/fit")
    run.finish("succeeded")
    run.close()
    said = penstock("why", "@").out
    assert "train waited 1m15s in queue team-a: 2 cpu short; admitted with 2 tasks on a100" in said
    assert "train was stopped: preempted by big-7/fit (InClusterQueue)" in said
    data = data_of(penstock, "@/train")
    assert data["evictions"][0]["by"] == "default/big-7/fit" and data["history"][0]["outcome"] == "admitted"
    assert data_of(penstock, "@/fetch")["history"] == []


# -- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (hold(position=3), "waiting in queue team-a: 2 cpu short (position 3)"),
        (hold("no candidates"), "waiting in queue team-a: 2 cpu short"),
        (hold("behind", ahead=["default/a-1/x", "default/b-1/y+3"]), "waiting in queue team-a: behind a-1/x, b-1/y"),
        (hold("preempting", waits_for=["default/a-1/x"]), "waiting in queue team-a: a-1/x is being preempted for it"),
        (
            hold("stopped", detail="ClusterQueue shared: stopPolicy Hold"),
            "waiting in queue team-a: the queue is stopped (Hold)",
        ),
        (hold("leaving", detail="InClusterQueue"), "waiting in queue team-a: it was evicted (InClusterQueue)"),
        (hold("checks", detail="budget: Pending"), "waiting in queue team-a: admission check budget: Pending"),
        (hold("gated", detail="x"), "waiting in queue team-a: gated by x"),
        (
            hold("inactive queue", detail="flavor a not found"),
            "waiting in queue team-a: the queue is inactive: flavor a not found",
        ),
        (hold("no queue", detail="there is no LocalQueue x"), "waiting in queue team-a: there is no LocalQueue x"),
        (hold("backoff", until=None), "waiting in queue team-a: it is tried again later"),
        (hold(cluster_queue="machine", queue="default/default"), "waiting for this machine: 2 cpu short"),
        (hold(queue="research/team-a"), "waiting in queue research/team-a: 2 cpu short"),
    ],
)
def test_every_kind_of_hold_has_a_line(reason: dict[str, Any], said: str) -> None:
    assert wording.brief(reason) == said
    assert all(text for _, text in wording.queue_facts(reason))


def test_of_several_flavors_the_one_that_comes_nearest_is_told() -> None:
    def lack(flavor: str, resource: str, asked: int, available: int) -> dict[str, Any]:
        return {
            "flavor": flavor,
            "resource": resource,
            "asked": asked,
            "available": available,
            "most": asked,
            "kind": "quota",
        }

    short = [lack("spot", "cpu", 4000, 0), lack("spot", "memory", 2**31, 0), lack("od", "cpu", 4000, 3500)]
    assert wording.cause(hold(short=short)) == "500m cpu short"
    assert figure(2**63 - 1, "cpu") == "unlimited" and figure(3 * 2**29, "memory") == "1.5Gi"
    assert amount(2, "nvidia.com/gpu") == "2 gpu"


def test_looking_again_and_again_asks_the_queues_only_after_a_decision(lines: Lines, monkeypatch: Any) -> None:
    holder, run = lines.run(FLOW), lines.run(FLOW)
    held = lines.ask(holder, "fetch", cpu=2)
    lines.ask(run, "fetch")
    asked: list[int] = []
    real = waiting.waits_of
    monkeypatch.setattr(waiting, "waits_of", lambda *args: asked.append(1) or real(*args))
    moment = time.monotonic()
    monkeypatch.setattr(waiting.time, "monotonic", lambda: moment)
    line = WaitWatcher(lines.store, run.write())
    assert line.texts() == {"fetch": "waiting in queue team-a: 1 cpu short"}
    moment += 100
    assert line.texts() and len(asked) == 1
    lines.finish(holder, held)
    assert len(asked) == 1, "not before its time"
    moment += 100
    assert line.texts() == {} and len(asked) == 2
    holder.close()
    run.close()


def test_a_run_with_nothing_in_line_costs_nothing(lines: Lines) -> None:
    run = lines.run(FLOW)
    recorded = run.write()
    assert waits_of(lines.store, recorded) == [] and why(lines.store, recorded).waits[0].kind == "slot"
    run.close()
