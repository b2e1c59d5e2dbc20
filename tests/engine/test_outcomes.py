"""What a step is given when others gave nothing, whose failure counts, how a workflow is judged, how deep calls may go, how many
tasks run at a time. On the scripted backend and a clock that jumps; each run is folded from its log once more at the end.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.values import loads
from penstock.backends.base import AttemptEnded, AttemptSpec
from penstock.engine.active_run import ActiveRun
from penstock.engine.blueprint import blueprints
from penstock.engine.effects import Emit
from penstock.engine.replay import replay
from penstock.engine.run_state import DEEPEST, RunState
from penstock.engine.values import RunValues, Values
from penstock.expressions.parse import Expr
from penstock.expressions.types import INT, STR
from penstock.graph.check import errors
from penstock.graph.links import links_of
from penstock.graph.model import (
    Backoff,
    Cache,
    Edge,
    Enough,
    EnoughTasks,
    ForEach,
    Input,
    Nested,
    Outcome,
    Output,
    Parameter,
    Retry,
    Script,
    Step,
    Suspend,
    Unit,
    Workflow,
)
from penstock.plan.prune import prune
from penstock.store.records import WriteBatch
from penstock.store.sql import open_store
from tests.engine.yard import CPU, Yard, flow

E = Expr.of
SUCCEEDED, FAILED, ERRORED, SKIPPED, OMITTED = (
    Outcome.SUCCEEDED,
    Outcome.FAILED,
    Outcome.ERRORED,
    Outcome.SKIPPED,
    Outcome.OMITTED,
)
ENDED = frozenset({SUCCEEDED, FAILED, ERRORED, SKIPPED, OMITTED})
BAD = frozenset({FAILED, ERRORED})


def s(name: str, *needs: str | Edge, **fields: Any) -> Step:
    fields.setdefault("cache", Cache(enabled=False))
    fields.setdefault("action", Script(source=name))
    return Step(name=name, needs=tuple(Edge(up) if isinstance(up, str) else up for up in needs), **fields)


def call(name: str, inner: str, *needs: str | Edge, **fields: Any) -> Step:
    return s(name, *needs, action=Nested(name=inner), **fields)


def given(**values: Any) -> tuple[Input, ...]:
    return tuple(value if isinstance(value, Input) else Input(name=name, value=value) for name, value in values.items())


class Ran:
    """A run that is over."""

    def __init__(self, yard: Yard, live: ActiveRun) -> None:
        self.yard = yard
        self.live = live
        self.state = live.status
        self.outputs = loads(live.outputs_text or "{}")
        with open_store(yard.where) as store:
            self.rows = {row.task: row for row in store.runs.tasks(live.number)}
        self.states = {path: row.state for path, row in self.rows.items()}
        self.orders: list[AttemptSpec] = yard.backends[yard.engines[0]].specs

    def order(self, task: str) -> AttemptSpec:
        return next(order for order in self.orders if order.task == task)


def run(
    place: Path, workflow: Workflow, script: Any = lambda order: None, params: Mapping[str, Any] | None = None
) -> Ran:
    yard = Yard(place / ".penstock")

    async def main(yard: Yard) -> ActiveRun:
        return yard.submit(yard.go(yard.engine(script)), workflow, params, fresh=False)

    ran = Ran(yard, yard.play(main))
    folded(ran, workflow)
    return ran


def folded(ran: Ran, workflow: Workflow) -> None:
    """The log says the same again: every event has its place, and the end is the same."""
    live = ran.live
    with open_store(ran.yard.where) as store:
        again = replayed(live, workflow, RunValues(live.state.values.fetch))
        left = replay(again, store.runs, store.results)
    state = again.state
    assert not left
    assert state.ignored == 0
    assert state.outcome is not None
    assert (state.outcome.value, state.outputs) == (live.status, live.state.outputs)
    assert state.root.steps == live.state.root.steps
    assert state.ready.busy == 0


def replayed(live: ActiveRun, workflow: Workflow, values: Values) -> ActiveRun:
    """The same run once more, with nothing replayed yet."""

    def make(emit: Emit) -> RunState:
        return RunState(blueprints(workflow, links_of(workflow)), live.record.params, values, emit, run=live.state.run)

    return ActiveRun(live.record, WriteBatch(), live.now, make, replaying=True)


def failing(*names: str, code: int | None = None) -> Any:
    def script(order: AttemptSpec) -> Any:
        if order.step.name in names or order.task in names:
            return AttemptEnded(id="", outcome=FAILED, exit_code=code, message="broken")
        return None

    return script


# -- an input that nobody gave --------------------------------------------------------------------------------------------

MAYBE = s("maybe", when=E("params.go"), outputs=(Output(name="x", type=STR),))
GO = (Parameter(name="go", default=False),)


@pytest.mark.parametrize("value", ["steps.maybe.outputs.x", "steps.maybe.outputs.x + '!'"])
def test_a_default_stands_in_for_an_output_that_is_not_there(tmp_path: Path, value: str) -> None:
    reader = s("reader", inputs=(Input(name="i", value=E(value), default=E("params.other")),))
    work = flow(MAYBE, reader, params=(*GO, Parameter(name="other", default="spare")))
    assert run(tmp_path / "a", work).order("reader").inputs == {"i": "spare"}
    ran = run(tmp_path / "b", work, lambda order: {"x": "y"} if order.step.name == "maybe" else None, {"go": True})
    assert ran.order("reader").inputs == {"i": "y" if value.endswith("x") else "y!"}


def test_a_default_does_not_hide_other_mistakes(tmp_path: Path) -> None:
    one = s("one", outputs=(Output(name="x"),))
    reader = s("reader", inputs=(Input(name="i", value=E("steps.one.outputs.x / 0"), default=1),))
    ran = run(tmp_path, flow(one, reader), lambda order: {"x": 1} if order.step.name == "one" else None)
    assert ran.states["reader"] == "errored"


def test_without_a_default_it_is_an_error_as_before(tmp_path: Path) -> None:
    ran = run(tmp_path, flow(MAYBE, s("reader", inputs=given(i=E("steps.maybe.outputs.x"))), params=GO))
    assert ran.states["reader"] == "errored"
    assert "maybe gave no x" in ran.rows["reader"].info["message"]


def test_a_called_workflow_falls_back_on_its_own_default(tmp_path: Path) -> None:
    inner = Workflow(
        name="inner",
        params=(Parameter(name="p", default="own"), Parameter(name="q"), Parameter(name="r", default="own")),
        steps=(s("x", inputs=given(p=E("params.p"), q=E("params.q"), r=E("params.r"))),),
    )
    missing = E("steps.maybe.outputs.x")
    inputs = (
        Input(name="p", value=missing),
        Input(name="q", value=missing, default="input's"),
        Input(name="r", value=missing, default="input's"),
    )
    ran = run(tmp_path / "a", flow(MAYBE, call("c", "inner", inputs=inputs), params=GO, definitions=(inner,)))
    assert ran.order("c/x").inputs == {"p": "own", "q": "input's", "r": "input's"}
    ran = run(
        tmp_path / "b",
        flow(MAYBE, call("c", "inner", inputs=given(q=missing)), params=GO, definitions=(inner,)),
    )
    assert ran.states["c"] == "errored"


# -- whose failure counts ---------------------------------------------------------------------------------------------------


def test_a_tolerated_failure_is_none_of_the_workflow_s(tmp_path: Path) -> None:
    work = flow(s("a", tolerates=BAD), s("b", Edge("a", ENDED)), s("c", "a"), fail_fast=True)
    ran = run(tmp_path, work, failing("a"))
    assert ran.state == "succeeded"
    assert ran.states == {"a": "failed", "b": "succeeded", "c": "omitted"}


def test_only_what_is_tolerated_is(tmp_path: Path) -> None:
    ran = run(tmp_path, flow(s("a", tolerates=frozenset({ERRORED}))), failing("a"))
    assert ran.state == "failed"


def test_a_loop_and_a_call_and_an_exit_handler_may_fail_in_part(tmp_path: Path) -> None:
    each = ForEach(axes=({"i": (0, 1)},))
    inner = Workflow(name="inner", steps=(s("x"),))
    work = flow(
        s("loop", each=each, tolerates=BAD),
        call("c", "inner", tolerates=BAD),
        s("after", Edge("loop", ENDED), Edge("c", ENDED)),
        definitions=(inner,),
        on_exit=(s("z", tolerates=BAD),),
        fail_fast=True,
    )
    ran = run(tmp_path, work, failing("loop[1]", "x", "z"))
    assert ran.state == "succeeded"
    assert ran.states["after"] == "succeeded"
    assert (ran.states["loop[1]"], ran.states["c"], ran.states["z"]) == ("failed", "failed", "failed")


def test_exit_handlers_are_told_what_failed(tmp_path: Path) -> None:
    reader = s("z", inputs=given(failures=E("workflow.failures"), outcome=E("workflow.outcome")))
    ran = run(tmp_path, flow(s("a", tolerates=BAD), s("b"), s("c"), on_exit=(reader,)), failing("a", "b"))
    assert ran.order("z").inputs == {
        "outcome": "failed",
        "failures": [
            {"step": "a", "outcome": "failed", "message": "a failed: broken"},
            {"step": "b", "outcome": "failed", "message": "b failed: broken"},
        ],
    }


def test_the_exit_code_of_a_step_can_be_read(tmp_path: Path) -> None:
    reader = s(
        "z",
        Edge("a", ENDED),
        Edge("b", ENDED),
        inputs=given(a=E("steps.a.exit_code"), b=E("steps.b.exit_code"), c=E("steps.c.exit_code")),
    )
    work = flow(
        s("a"),
        s("b"),
        s("c"),
        s("never", when=E("false || params.no")),
        reader,
        params=(Parameter(name="no", default=False),),
    )

    def script(order: AttemptSpec) -> Any:
        if order.step.name == "a":
            return AttemptEnded(id="", outcome=FAILED, exit_code=3, message="broken")
        return Outcome.ERRORED if order.step.name == "b" else None

    ran = run(tmp_path, work, script)
    assert ran.order("z").inputs == {"a": 3, "b": -1, "c": 0}


# -- judged by leaves -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps, broken, state",
    [
        ((s("a"), s("b", "a")), ["a"], "failed"),
        ((s("a"), s("b", Edge("a", BAD))), ["a"], "succeeded"),
        ((s("a"), s("b", Edge("a", BAD)), s("c", "a")), ["a"], "failed"),
        ((s("a"), s("b", Edge("a", BAD)), s("c", "a"), s("d", Edge("b", ENDED), Edge("c", ENDED))), ["a"], "succeeded"),
        ((s("a"), s("b", Edge("a", BAD)), s("c", "b")), ["a", "b"], "failed"),
        ((s("a"), s("b", "a", tolerates=BAD)), ["a"], "succeeded"),
        ((s("a", tolerates=BAD), s("b", "a")), ["a"], "failed"),
        ((s("a", tolerates=BAD),), ["a"], "succeeded"),
        ((s("a"), s("b", "a", when=E("false || params.no"))), [], "succeeded"),
        ((s("a"), s("b", Edge("a", ENDED), when=E("false || params.no"))), ["a"], "failed"),
        ((s("a"), s("m"), s("b", Edge("a", ENDED), Edge("m", ENDED), trigger=E("false"))), ["m"], "failed"),
        ((s("a"), s("b", Edge("a", ENDED)), s("c", "b")), ["a"], "succeeded"),
    ],
)
def test_a_branch_ends_as_its_last_step_that_ran(
    tmp_path: Path, steps: tuple[Step, ...], broken: list[str], state: str
) -> None:
    work = flow(*steps, judged_by="leaves", params=(Parameter(name="no", default=False),))
    assert run(tmp_path, work, failing(*broken)).state == state


def test_one_branch_goes_on_when_another_has_failed_also_if_it_fails_fast(tmp_path: Path) -> None:
    work = flow(
        s("a"), s("b", "a"), s("handle", Edge("a", BAD)), s("c"), s("d", "c"), judged_by="leaves", fail_fast=True
    )

    def script(order: AttemptSpec) -> Any:
        return (1.0, FAILED) if order.step.name == "a" else 5.0

    ran = run(tmp_path, work, script)
    assert ran.state == "failed"
    assert ran.states == {"a": "failed", "b": "omitted", "handle": "succeeded", "c": "succeeded", "d": "succeeded"}


def test_how_a_call_was_judged_is_its_outcome(tmp_path: Path) -> None:
    inner = Workflow(name="inner", steps=(s("x"), s("y", "x")), judged_by="leaves")
    work = flow(
        call("c", "inner"),
        s("failed", Edge("c", frozenset({FAILED}))),
        s("errored", Edge("c", frozenset({ERRORED}))),
        definitions=(inner,),
        judged_by="leaves",
    )
    ran = run(tmp_path / "a", work, failing("x"))
    assert (ran.states["failed"], ran.states["errored"]) == ("succeeded", "omitted")
    ran = run(tmp_path / "b", work, lambda order: ERRORED if order.step.name == "x" else None)
    assert (ran.states["failed"], ran.states["errored"]) == ("omitted", "succeeded")


# -- enough ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "enough, seconds, states",
    [
        (Enough(steps=("a", "b"), of="any"), {"a": 9.0, "b": 1.0}, ["cancelled", "succeeded", "cancelled"]),
        (Enough(steps=("a", "b")), {"a": 2.0, "b": 1.0}, ["succeeded", "succeeded", "cancelled"]),
        (Enough(steps=("b", "none")), {"a": 9.0, "b": 1.0}, ["cancelled", "succeeded", "cancelled"]),
    ],
)
def test_when_enough_has_succeeded_the_rest_is_stopped(
    tmp_path: Path, enough: Enough, seconds: dict[str, float], states: list[str]
) -> None:
    steps = s("a"), s("b"), s("loop", each=ForEach(axes=({"x": (1, 2)},), parallel=1)), s("none", when=E("params.no"))
    work = flow(*steps, s("later", "a", "b"), enough=enough, params=(Parameter(name="no", default=False),))
    yard = run(tmp_path, work, lambda order: seconds.get(order.step.name, 60.0))
    assert yard.state == "succeeded"
    assert [yard.states[name] for name in ("a", "b", "loop[0]")] == states
    assert yard.states.get("later", "cancelled") == "cancelled"
    assert {order.step.name for order in yard.orders} == {"a", "b", "loop"}, "nothing more was started"


def test_a_failure_before_that_counts_if_it_fails_fast(tmp_path: Path) -> None:
    def script(order: AttemptSpec) -> Any:
        return (1.0, FAILED) if order.step.name == "b" else 2.0

    work = flow(s("a"), s("b"), enough=Enough(steps=("a",)))
    assert run(tmp_path / "a", dataclasses.replace(work, fail_fast=True), script).state == "failed"
    assert run(tmp_path / "b", work, script).state == "succeeded"


def test_up_to_a_step_all_that_was_asked_for_is_done() -> None:
    work = flow(s("a"), s("b"), s("c", "b"), enough=Enough(steps=("a", "b"), of="any"))
    found = prune(work, ["b"], links_of(work))
    assert [step.name for step in found.steps] == ["b"] and not errors(found)


def test_what_is_enough_for_a_call_ends_the_call_alone(tmp_path: Path) -> None:
    """And a call beside it that waits for its next try has it."""
    inner = Workflow(name="inner", steps=(s("x"), s("y")), enough=Enough(steps=("x",)))
    other = Workflow(name="other", steps=(s("z"),))
    again = call("again", "other", retry=Retry(limit=1, backoff=Backoff(initial=30.0, jitter=0.0)))
    tries = iter([FAILED, SUCCEEDED])

    def script(order: AttemptSpec) -> Any:
        return (1.0, next(tries)) if order.step.name == "z" else 50.0 if order.step.name == "y" else 5.0

    ran = run(tmp_path, flow(call("c", "inner"), again, s("after", "c"), definitions=(inner, other)), script)
    assert ran.state == "succeeded"
    assert {path: ran.states[path] for path in ("c/x", "c/y", "again/z", "after")} == {
        "c/x": "succeeded",
        "c/y": "cancelled",
        "again/z": "succeeded",
        "after": "succeeded",
    }


def assessed(workflow: Workflow, outcomes: Mapping[str, str]) -> str:
    """As Argo goes over it: from the roots, every path by itself, each with how its last step that ran ended."""
    below: dict[str, list[str]] = {one.name: [] for one in workflow.steps}
    for one in workflow.steps:
        for edge in one.needs:
            below[edge.step].append(one.name)
    phases: dict[str, set[str]] = {}

    def visit(name: str, branch: str) -> None:
        if outcomes[name] in ("succeeded", "failed", "errored"):
            branch = outcomes[name]
        if not below[name]:
            phases.setdefault(name, set()).add(branch)
        for other in below[name]:
            visit(other, branch)

    for one in workflow.steps:
        if not one.needs:
            visit(one.name, "succeeded")
    by_name = {one.name: one for one in workflow.steps}
    for name, seen in phases.items():
        bad = seen & {"failed", "errored"}
        if bad and not any(Outcome(phase) in by_name[name].tolerates for phase in bad):
            return "failed"
    return "succeeded"


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_are_judged_as_argo_does(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    sets = [frozenset({SUCCEEDED, SKIPPED}), BAD, ENDED, frozenset({SUCCEEDED}), frozenset({SKIPPED, OMITTED})]
    steps: list[Step] = []
    for number in range(chance.randint(2, 8)):
        ups = chance.sample(steps, min(len(steps), chance.randint(0, 2)))
        when = E("false || params.no") if chance.random() < 0.15 else None
        tolerates = BAD if chance.random() < 0.2 else frozenset()
        steps.append(
            s(f"s{number}", *(Edge(up.name, chance.choice(sets)) for up in ups), when=when, tolerates=tolerates)
        )
    work = flow(*steps, judged_by="leaves", params=(Parameter(name="no", default=False),))
    if errors(work):  # it waits for what cannot be
        return
    broken = [one.name for one in steps if chance.random() < 0.4]
    ran = run(tmp_path, work, failing(*broken))
    assert ran.state == assessed(work, ran.states)


# -- never queued -----------------------------------------------------------------------------------------------------------


def test_a_step_that_is_exempt_does_not_queue_nor_does_what_it_calls(tmp_path: Path) -> None:
    inner = Workflow(name="inner", steps=(s("x", resources={"cpu": CPU}),))
    work = flow(
        s("big", resources={"cpu": CPU}),
        s("hook", resources={"cpu": CPU}, exempt=True),
        call("c", "inner", exempt=True),
        definitions=(inner,),
    )
    yard = Yard(tmp_path / ".penstock", cpu=1)

    async def main(yard: Yard) -> ActiveRun:
        return yard.submit(yard.go(yard.engine(lambda order: 10.0)), work)

    live = yard.play(main)
    assert live.status == "succeeded"
    assert yard.clock.elapsed < 12, "nobody waited for anybody"
    assert [event.task for event in yard.events(live, "reservation.admitted")] == ["big"]
    assert yard.left() == []


# -- calling oneself ---------------------------------------------------------------------------------------------------------


def countdown(until: int) -> Workflow:
    """Calls itself until the number is reached; gives how deep it got."""
    step = s("look", inputs=given(n=E("params.n")), outputs=(Output(name="n", type=INT),))
    more = call(
        "more", "down", when=E(f"steps.look.outputs.n < {until}"), inputs=given(n=E("steps.look.outputs.n + 1"))
    )
    down = Workflow(
        name="down",
        params=(Parameter(name="n", type=INT),),
        steps=(step, more),
        outputs=(
            Output(
                name="deepest",
                type=INT,
                value=E(f"steps.look.outputs.n < {until} ? steps.more.outputs.deepest : steps.look.outputs.n"),
            ),
        ),
    )
    return flow(
        call("first", "down", inputs=given(n=1)),
        definitions=(down,),
        outputs=(Output(name="deepest", type=INT, value=E("steps.first.outputs.deepest")),),
    )


def same(order: AttemptSpec) -> Any:
    return {"n": order.inputs["n"]} if order.step.name == "look" else None


def test_a_workflow_may_call_itself(tmp_path: Path) -> None:
    ran = run(tmp_path, countdown(5), same)
    assert (ran.state, ran.outputs) == ("succeeded", {"deepest": 5})
    assert "first/more/more/more/more/look" in ran.states


def test_99_levels_deep_and_no_deeper_as_in_argo(tmp_path: Path) -> None:
    assert DEEPEST == 98  # the workflow and the step are levels too
    ran = run(tmp_path / "a", countdown(97), same)
    assert (ran.state, ran.outputs) == ("succeeded", {"deepest": 97})
    ran = run(tmp_path / "b", countdown(98), same)
    assert ran.state == "failed"
    (errored,) = [row for row in ran.rows.values() if row.state == "errored" and "100 levels" in row.info["message"]]
    assert errored.task == "first" + "/more" * 97 + "/look"


@pytest.mark.parametrize("unit", list(Unit))
def test_what_calls_itself_goes_through_the_queue_level_by_level(tmp_path: Path, unit: Unit) -> None:
    work = countdown(4)
    (down,) = work.definitions
    heavy = dataclasses.replace(down.steps[0], resources={"cpu": CPU})
    work = dataclasses.replace(work, definitions=(dataclasses.replace(down, steps=(heavy, *down.steps[1:])),))
    yard = Yard(tmp_path / ".penstock", cpu=1)

    async def main(yard: Yard) -> list[ActiveRun]:
        engine = yard.go(yard.engine(lambda order: (5.0, same(order))))
        return [yard.submit(engine, work, unit=str(unit)) for _ in range(2)]

    lives = yard.play(main)
    assert [live.status for live in lives] == ["succeeded"] * 2
    assert yard.most == {"cpu": CPU}
    assert yard.left() == []


def test_a_tree_of_calls(tmp_path: Path) -> None:
    inner = Workflow(
        name="half",
        params=(Parameter(name="n", type=INT),),
        steps=(
            s("leaf", when=E("params.n == 1")),
            call(
                "part",
                "half",
                when=E("params.n > 1"),
                each=ForEach(axes=({"i": (0, 1)},)),
                inputs=given(n=E("params.n / 2")),
            ),
        ),
    )
    ran = run(tmp_path, flow(call("all", "half", inputs=given(n=16)), definitions=(inner,)))
    assert ran.state == "succeeded"
    assert len([path for path, state in ran.states.items() if path.endswith("leaf") and state == "succeeded"]) == 16


# -- so many at a time --------------------------------------------------------------------------------------------------------


def most(yard: Yard, *parts: str) -> int:
    spans = [(start, end) for id, start, end, _ in yard.spans if any(part in id for part in parts or ("",))]
    return max(sum(start <= at < end for start, end in spans) for at, _ in spans)


INNER = Workflow(name="inner", steps=(s("x", each=ForEach(axes=({"i": (0, 1, 2)},))), s("y", "x")), parallel=2)


def test_a_run_counts_the_tasks_of_whatever_it_calls_and_not_the_calls(tmp_path: Path) -> None:
    work = flow(
        call("c", "inner", each=ForEach(axes=({"i": (0, 1, 2)},))),
        s("own", each=ForEach(axes=({"i": tuple(range(5))},))),
        parallel=3,
        definitions=(INNER,),
        on_exit=(s("z", each=ForEach(axes=({"i": tuple(range(6))},))),),
    )
    ran = run(tmp_path, work, lambda order: 10.0)
    assert ran.state == "succeeded"
    assert most(ran.yard, "/c[", "/own[") == 3
    assert max(most(ran.yard, f"/c[{number}]/") for number in range(3)) == 2
    assert most(ran.yard, "/z[") == 6, "clean-up is not held back"
    assert ran.yard.clock.elapsed == pytest.approx((3 * 4 + 5) / 3 * 10 + 10, abs=11)


def test_who_waits_for_a_person_takes_no_place(tmp_path: Path) -> None:
    work = flow(s("wait", action=Suspend(duration=100)), s("a"), s("b", "a"), parallel=1)
    ran = run(tmp_path, work, lambda order: 10.0)
    assert ran.state == "succeeded"
    assert ran.yard.times(ran.live.record.id, "b")[0][1] < 30
    inner = Workflow(name="inner", steps=work.steps, parallel=1)
    ran = run(tmp_path / "b", flow(call("c", "inner"), definitions=(inner,)), lambda order: 10.0)
    assert ran.yard.times(ran.live.record.id, "c/b")[0][1] < 30


def test_tasks_that_are_tried_again_or_share_their_work_do_not_lose_or_keep_a_place(tmp_path: Path) -> None:
    each = ForEach(axes=({"i": (0, 0, 1, 1, 2)},))
    shared = s("shared", each=each, inputs=given(i=E("item.i")), cache=Cache(), retry=Retry(limit=2))
    tried: set[str] = set()

    def script(order: AttemptSpec) -> Any:
        if order.step.name == "shared" and order.task not in tried:
            tried.add(order.task)
            return 1.0, FAILED
        return 5.0

    for limit in (1, 2):
        tried.clear()
        ran = run(tmp_path / str(limit), flow(shared, s("last", "shared"), parallel=limit), script)
        assert ran.state == "succeeded"
        assert most(ran.yard) <= limit


def test_a_place_is_kept_for_nobody_who_waits_in_line(tmp_path: Path) -> None:
    """Quota for one, room for two: who has neither holds up nobody."""
    each = ForEach(axes=({"i": tuple(range(4))},))
    work = flow(s("queued", each=each, resources={"cpu": CPU}), s("free", each=each), parallel=2)
    yard = Yard(tmp_path / ".penstock", cpu=1)

    async def main(yard: Yard) -> ActiveRun:
        return yard.submit(yard.go(yard.engine(lambda order: 10.0)), work)

    live = yard.play(main)
    assert live.status == "succeeded"
    assert most(yard) == 2
    assert yard.clock.elapsed < 62
    assert yard.left() == []


# -- enough of a for-each ------------------------------------------------------------------------------------------------


def counted(beyond: Any, **fields: Any) -> ForEach:
    enough = EnoughTasks(when=E("outputs.found != 0"), beyond=beyond)
    return ForEach(axes=({"x": (0, 1, 2, 3, 0)},), enough=enough, **fields)


def finds(order: AttemptSpec) -> Any:
    """The task with the number 3 takes long."""
    number = order.inputs.get("x", 0)
    return (60.0 if number == 3 else 1.0 + number, {"found": number})


@pytest.mark.parametrize(
    "beyond, found", [(0, [0, 1, 0]), (1, [0, 1, 2, 0]), (2, [0, 1, 2, 3, 0]), (9, [0, 1, 2, 3, 0])]
)
def test_a_for_each_that_has_enough_stops_its_other_tasks(tmp_path: Path, beyond: int, found: list[int]) -> None:
    look = s(
        "look",
        inputs=(Input(name="x", value=E("item.x")),),
        outputs=(Output(name="found", type=INT),),
        each=counted(beyond),
    )
    then = s("then", inputs=(Input(name="all", value=E("steps.look.outputs.found")),))
    ran = run(tmp_path, flow(look, then), finds)
    assert ran.state == "succeeded"
    assert ran.orders[-1].inputs == {"all": found}
    assert ran.states["look[3]"] == ("succeeded" if 3 in found else "cancelled")


def test_calls_of_a_for_each_that_has_enough_are_stopped_as_such(tmp_path: Path) -> None:
    """Not as calls that have succeeded and lack an output."""
    work = s("work", inputs=(Input(name="x", value=E("params.x")),), outputs=(Output(name="found", type=INT),))
    output = Output(name="found", type=INT, value=E("steps.work.outputs.found"))
    inner = Workflow(name="inner", params=(Parameter(name="x"),), steps=(work,), outputs=(output,))
    calls = call(
        "calls", "inner", inputs=(Input(name="x", value=E("item.x")),), outputs=(Output(name="found", type=INT),)
    )
    calls = dataclasses.replace(calls, each=counted(E("params.most"), parallel=4))
    ran = run(tmp_path, flow(calls, definitions=(inner,), params=(Parameter(name="most", default=0),)), finds)
    assert ran.state == "succeeded"
    assert [ran.states.get(f"calls[{n}]/work") for n in range(5)] == ["succeeded"] * 2 + ["cancelled"] * 2 + [
        "succeeded"
    ]


def test_a_call_beside_what_is_enough_is_cancelled_not_in_error(tmp_path: Path) -> None:
    slow = s("slow", outputs=(Output(name="o", type=INT),))
    output = Output(name="o", type=INT, value=E("steps.slow.outputs.o"))
    inner = Workflow(name="inner", steps=(slow,), outputs=(output,))
    work = flow(s("quick"), call("c", "inner"), definitions=(inner,), enough=Enough(steps=("quick",)))
    ran = run(tmp_path, work, lambda order: (60.0, {"o": 1}) if order.step.name == "slow" else 1.0)
    assert (ran.state, ran.states["c/slow"], ran.states["c"]) == ("succeeded", "cancelled", "cancelled")
