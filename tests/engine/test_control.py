"""What the graph can say, told to the engine: conditions, loops, outcomes, retries, time limits, cancelling. On the scripted
backend and a clock that jumps, so that hours take no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.base import AttemptSpec
from penstock.engine.active_run import ActiveRun
from penstock.engine.engine import Engine
from penstock.expressions import types
from penstock.expressions.parse import Expr
from penstock.graph.model import (
    Backoff,
    Cache,
    Edge,
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
    While,
    Workflow,
)
from penstock.testing import VirtualClock, VirtualReport, run_virtually

FAILED = RuntimeError("broken")
ANY = frozenset(Outcome)


def step(name: str, *needs: Any, out: tuple[str, ...] = (), **fields: Any) -> Step:
    edges = tuple(one if isinstance(one, Edge) else Edge(one) for one in needs)
    outputs = tuple(Output(name=one, type=types.ANY) for one in out)
    action = fields.pop("action", Script(source=name))
    return Step(name=name, action=action, needs=edges, outputs=fields.pop("outputs", outputs), **fields)


def flow(*steps: Step, **fields: Any) -> Workflow:
    return Workflow(name="w", steps=steps, **fields)


def given(**values: Any) -> tuple[Input, ...]:
    return tuple(
        Input(name=n, value=Expr.of(v[1:]) if isinstance(v, str) and v.startswith("=") else v)
        for n, v in values.items()
    )


def by_step(**answers: Any) -> Callable[[AttemptSpec], Any]:
    def script(order: AttemptSpec) -> Any:
        answer = answers.get(order.step.name)
        return answer(order) if callable(answer) else answer

    return script


def states(report: VirtualReport) -> dict[str, str]:
    return {row.task: row.state for row in report.tasks}


def starts(report: VirtualReport) -> list[str]:
    return [order.task for order in report.backend.specs]


def test_one_branch_that_fails_leaves_the_others_alone() -> None:
    report = run_virtually(flow(step("a"), step("b", "a"), step("c"), step("d", "c")), script=by_step(a=FAILED))
    assert report.state == "failed"
    assert states(report) == {"a": "failed", "b": "omitted", "c": "succeeded", "d": "succeeded"}


def test_fail_fast_starts_nothing_more_but_lets_running_tasks_finish() -> None:
    work = flow(step("a"), step("c"), step("d", "c"), step("e", "d"))
    script = by_step(a=(1, FAILED), c=5)
    report = run_virtually(work, script=script, fail_fast=True)
    assert report.state == "failed"
    assert states(report) == {"a": "failed", "c": "succeeded", "d": "cancelled", "e": "cancelled"}


def test_fail_fast_drops_the_items_that_have_not_begun() -> None:
    each = ForEach(axes=({"i": tuple(range(100))},), parallel=2)
    work = flow(step("a", each=each, inputs=given(i="=item.i")), fail_fast=True)
    report = run_virtually(work, script=lambda order: (1, FAILED) if order.inputs["i"] == 3 else 1)
    assert report.state == "failed"
    assert len(starts(report)) == 4
    assert report.live.progress["a"]["cancelled"] == 96


def test_a_step_may_ask_for_a_failure_and_then_the_run_has_not_failed() -> None:
    handler = step("mend", Edge("a", frozenset({Outcome.FAILED})))
    report = run_virtually(flow(step("a"), handler), script=by_step(a=FAILED))
    assert report.state == "succeeded"
    assert states(report) == {"a": "failed", "mend": "succeeded"}
    report = run_virtually(flow(step("a"), handler))
    assert states(report) == {"a": "succeeded", "mend": "omitted"}


def test_a_trigger_decides_over_outcomes() -> None:
    asked = step(
        "c",
        Edge("a", ANY),
        Edge("b", ANY),
        trigger=Expr.of('steps.a.outcome == "failed" || steps.b.outcome == "failed"'),
    )
    assert states(run_virtually(flow(step("a"), step("b"), asked), script=by_step(b=FAILED)))["c"] == "succeeded"
    assert states(run_virtually(flow(step("a"), step("b"), asked)))["c"] == "omitted"


def test_a_handler_reads_what_a_step_failed_with() -> None:
    handler = step("mend", Edge("a", ANY), inputs=given(error="=steps.a.error"))
    report = run_virtually(flow(step("a"), handler), script=by_step(a=ValueError("no rows")))
    assert report.backend.specs[-1].inputs == {"error": {"name": "ValueError", "message": "ValueError: no rows"}}
    report = run_virtually(flow(step("a"), handler))
    assert report.backend.specs[-1].inputs == {"error": {}}
    late = run_virtually(flow(step("a", timeout=5), handler), script=by_step(a=50))
    assert late.backend.specs[-1].inputs["error"]["name"] == "TimeoutError"


def test_a_step_waits_until_a_time_and_then_its_outputs_have_their_defaults() -> None:
    asked = Output(name="answer", type=types.ANY, default="none")
    wait = step("wait", action=Suspend(until=Expr.of("params.at")), outputs=(asked,))
    last = step("last", inputs=given(answer="=steps.wait.outputs.answer"))
    work = flow(wait, last, params=(Parameter(name="at"),))
    past = run_virtually(work, params={"at": "1901-01-01T00:00:00Z"})
    assert past.seconds == 0
    assert past.backend.specs[-1].inputs == {"answer": "none"}
    clock = VirtualClock()
    later = datetime.fromtimestamp(clock.now() + 3600, UTC).isoformat()
    assert run_virtually(work, params={"at": later}, clock=clock).seconds == pytest.approx(3600)
    wrong = run_virtually(work, params={"at": "tomorrow"})
    assert states(wrong)["wait"] == "errored"


def test_a_condition_that_does_not_hold_skips_the_step_and_its_default_stands_in() -> None:
    maybe = step("b", when=Expr.of("steps.a.outputs.n > 1"), outputs=(Output(name="n", type=types.ANY, default=7),))
    last = step("c", inputs=given(n="=steps.b.outputs.n"))
    report = run_virtually(flow(step("a", out=("n",)), maybe, last), script=by_step(a={"n": 1}))
    assert states(report)["b"] == "skipped"
    assert report.backend.specs[-1].inputs == {"n": 7}


def test_items_come_from_an_earlier_step_and_their_outputs_keep_their_order() -> None:
    each = ForEach(axes=({"i": Expr.of("steps.a.outputs.items")},))
    loop = step("b", each=each, inputs=given(i="=item.i"), out=("n",))
    last = step("c", inputs=given(all="=steps.b.outputs.n"))
    script = by_step(a={"items": [3, 1, 2]}, b=lambda order: (order.inputs["i"], {"n": order.inputs["i"] * 10}))
    report = run_virtually(flow(step("a", out=("items",)), loop, last), script=script)
    assert report.backend.specs[-1].inputs == {"all": [30, 10, 20]}
    assert report.seconds == pytest.approx(3)


def test_no_items_skip_the_step_and_what_follows_gets_an_empty_list() -> None:
    each = ForEach(axes=({"i": Expr.of("steps.a.outputs.items")},))
    work = flow(
        step("a", out=("items",)), step("b", each=each, out=("n",)), step("c", inputs=given(all="=steps.b.outputs.n"))
    )
    report = run_virtually(work, script=by_step(a={"items": []}))
    assert states(report)["b"] == "skipped" and report.backend.specs[-1].inputs == {"all": []}


def test_axes_multiply_and_a_later_axis_may_use_an_earlier_one() -> None:
    axes = ({"i": (1, 2)}, {"j": Expr.of("range(item.i)"), "k": Expr.of("range(item.i)")})
    report = run_virtually(flow(step("a", each=ForEach(axes=axes), inputs=given(v="=item.i * 10 + item.j + item.k"))))
    assert [order.inputs["v"] for order in report.backend.specs] == [10, 20, 22]


def test_a_condition_over_items_skips_some_and_a_failing_item_fails_the_step_but_not_the_others() -> None:
    each = ForEach(axes=({"i": (0, 1, 2, 3)},))
    loop = step("a", each=each, when=Expr.of("item.i != 1"), inputs=given(i="=item.i"), out=("n",))
    report = run_virtually(
        flow(loop, step("b", "a")), script=lambda order: FAILED if order.inputs.get("i") == 2 else {"n": 1}
    )
    assert states(report) == {
        "a[0]": "succeeded",
        "a[1]": "skipped",
        "a[2]": "failed",
        "a[3]": "succeeded",
        "b": "omitted",
    }


def test_at_most_so_many_items_at_a_time_and_so_many_tasks_of_a_workflow() -> None:
    each = ForEach(axes=({"i": tuple(range(9))},), parallel=3)
    report = run_virtually(flow(step("a", each=each, inputs=given(i="=item.i"))), script=lambda order: 10)
    assert report.backend.most == 3 and report.seconds == 30
    report = run_virtually(flow(*(step(f"s{n}") for n in range(6)), parallel=2), script=lambda order: 10)
    assert report.backend.most == 2 and report.seconds == 30


def test_expressions_that_have_no_value_fail_the_step_with_a_sentence() -> None:
    work = flow(step("a", out=("n",)), step("b", inputs=given(x="=steps.a.outputs.n[5]")), step("c", "b"))
    report = run_virtually(work, script=by_step(a={"n": [1]}))
    assert report.state == "failed"
    assert states(report) == {"a": "succeeded", "b": "errored", "c": "omitted"}
    assert "an input has no value" in report.live.failures[0][1]["message"]


def test_lists_that_advance_together_must_be_of_one_length() -> None:
    axes = ({"i": Expr.of("steps.a.outputs.x"), "j": (1, 2, 3)},)
    report = run_virtually(
        flow(step("a", out=("x",)), step("b", each=ForEach(axes=axes))), script=by_step(a={"x": [1]})
    )
    assert states(report)["b"] == "errored" and "differ in length" in report.live.failures[0][1]["message"]


# -- while loops ----------------------------------------------------------------------------------------------------------


def counting(loop: While, **fields: Any) -> Step:
    return step("a", inputs=given(n=0), out=("n",), loop=loop, **fields)


def up(order: AttemptSpec) -> Any:
    return {"n": order.inputs["n"] + 1}


def test_rounds_feed_each_other_until_the_condition_fails() -> None:
    after = While(condition=Expr.of("outputs.n < 3"), carry={"n": "n"})
    report = run_virtually(
        flow(counting(after), outputs=(Output(name="n", value=Expr.of("steps.a.outputs.n")),)), script=up
    )
    assert starts(report) == ["a#1", "a#2", "a#3"] and report.outputs == {"n": 3}
    before = While(condition=Expr.of("inputs.n < 2"), carry={"n": "n"}, test="before")
    assert starts(run_virtually(flow(counting(before)), script=up)) == ["a#1", "a#2"]


def test_a_loop_tested_before_may_have_no_round() -> None:
    loop = While(condition=Expr.of("inputs.n < 0"), carry={"n": "n"}, test="before")
    report = run_virtually(flow(counting(loop), step("b", inputs=given(n="=steps.a.outputs.n"))), script=up)
    assert starts(report) == ["b"] and report.backend.specs[0].inputs == {"n": 0}


@pytest.mark.parametrize(("at_limit", "state"), [("stop", "succeeded"), ("fail", "failed")])
def test_a_loop_that_does_not_end_stops_or_fails_at_its_limit(at_limit: str, state: str) -> None:
    loop = While(condition=Expr.of("true"), carry={"n": "n"}, max_iterations=4, at_limit=at_limit)
    report = run_virtually(flow(counting(loop)), script=up)
    assert report.state == state and len(starts(report)) == 4


def test_a_round_that_fails_ends_the_loop() -> None:
    loop = While(condition=Expr.of("true"), carry={"n": "n"})
    report = run_virtually(flow(counting(loop)), script=lambda order: FAILED if order.inputs["n"] == 2 else up(order))
    assert report.state == "failed" and starts(report) == ["a#1", "a#2", "a#3"]


def test_a_thousand_rounds_of_a_called_workflow() -> None:
    inner = Workflow(
        name="inner",
        params=(Parameter(name="n"),),
        steps=(step("x", inputs=given(n="=params.n"), out=("n",), when=Expr.of("params.n < 0")),),
        outputs=(Output(name="n", value=Expr.of("params.n + 1")),),
    )
    loop = While(condition=Expr.of("outputs.n < 1000"), carry={"n": "n"}, max_iterations=2000)
    call = Step(name="call", action=Nested(name="inner"), inputs=given(n=0), loop=loop)
    work = flow(call, definitions=(inner,), outputs=(Output(name="n", value=Expr.of("steps.call.outputs.n")),))
    assert run_virtually(work).outputs == {"n": 1000}


# -- called workflows -----------------------------------------------------------------------------------------------------


def inner(*steps: Step, **fields: Any) -> Workflow:
    return Workflow(name="inner", params=(Parameter(name="n", default=0),), steps=steps, **fields)


def test_a_called_workflow_is_a_step_with_outputs() -> None:
    called = inner(
        step("x", inputs=given(n="=params.n"), out=("n",)),
        outputs=(Output(name="n", value=Expr.of("steps.x.outputs.n")),),
    )
    call = Step(
        name="call", action=Nested(name="inner"), each=ForEach(axes=({"i": (1, 2)},)), inputs=given(n="=item.i")
    )
    report = run_virtually(
        flow(call, step("last", inputs=given(all="=steps.call.outputs.n")), definitions=(called,)), script=by_step(x=up)
    )
    assert starts(report) == ["call[0]/x", "call[1]/x", "last"] and report.backend.specs[-1].inputs == {"all": [2, 3]}


def test_a_called_workflow_that_fails_is_a_failed_step_and_may_be_tried_again() -> None:
    call = Step(
        name="call", action=Nested(name="inner"), retry=Retry(limit=2, backoff=Backoff(initial=60, factor=1, jitter=0))
    )
    work = flow(call, definitions=(inner(step("x"), step("y", "x")),))
    tried = []

    def script(order: AttemptSpec) -> Any:
        tried.append(order.task)
        return FAILED if order.step.name == "y" and len(tried) < 4 else None

    report = run_virtually(work, script=script)
    assert report.state == "succeeded"
    assert tried == ["call/x", "call/y", "call/y", "call/y"] and report.seconds == 120, "x is reused: it had succeeded"
    report = run_virtually(work, script=by_step(y=FAILED))
    assert report.state == "failed" and states(report)["call"] == "failed"


# -- retries and time limits ----------------------------------------------------------------------------------------------


def test_retries_wait_longer_and_longer_and_give_up() -> None:
    policy = Retry(limit=3, backoff=Backoff(initial=10, factor=2, longest=25, jitter=0))
    report = run_virtually(flow(step("a", retry=policy)), script=by_step(a=FAILED))
    assert report.state == "failed" and report.seconds == 10 + 20 + 25
    assert [order.attempt for order in report.backend.specs] == [1, 2, 3, 4]


def test_jitter_spreads_the_waits() -> None:
    policy = Retry(limit=1, backoff=Backoff(initial=100, jitter=0.5))
    waits = [
        run_virtually(flow(step("a", retry=policy)), script=by_step(a=FAILED), chance=lambda c=c: c).seconds
        for c in (0.0, 0.5, 1.0)
    ]
    assert waits == [50, 100, 150]


def test_what_is_not_worth_retrying_is_not_retried() -> None:
    def attempts(policy: Retry, error: Exception) -> int:
        return len(run_virtually(flow(step("a", retry=policy)), script=by_step(a=error)).backend.specs)

    quick = Backoff(initial=0)
    assert attempts(Retry(limit=2, backoff=quick, exceptions=("KeyError",)), ValueError()) == 1
    assert attempts(Retry(limit=2, backoff=quick, exceptions=("ValueError",)), ValueError()) == 3
    assert attempts(Retry(limit=5, backoff=quick, when=Expr.of("attempt.number < 2")), ValueError()) == 2
    assert attempts(Retry(limit=5, backoff=quick, on=("timeout",)), ValueError()) == 1


def test_a_time_limit_ends_the_attempt_and_may_be_retried() -> None:
    report = run_virtually(flow(step("a", timeout=30)), script=lambda order: 1000)
    assert report.state == "failed" and report.seconds == pytest.approx(30, abs=3)
    assert "timed out after 30 s" in report.live.failures[0][1]["message"]
    policy = Retry(limit=1, backoff=Backoff(initial=0), on=("timeout",))
    report = run_virtually(
        flow(step("a", timeout=30, retry=policy)), script=lambda order: 1000 if order.attempt == 1 else 1
    )
    assert report.state == "succeeded"


def test_a_time_limit_of_the_workflow_fails_the_run_and_exit_handlers_still_run() -> None:
    work = flow(step("a"), step("b", "a"), timeout=50, on_exit=(step("bye"),))
    report = run_virtually(work, script=by_step(a=1000))
    assert report.state == "failed" and report.seconds == pytest.approx(50, abs=3)
    assert states(report) == {"a": "cancelled", "b": "cancelled", "bye": "succeeded"}


def test_a_time_limit_of_a_called_workflow_fails_that_step_alone() -> None:
    call = Step(name="call", action=Nested(name="inner"), timeout=50)
    report = run_virtually(
        flow(call, step("other"), definitions=(inner(step("x"), step("y", "x")),)), script=by_step(x=1000, other=100)
    )
    assert report.state == "failed" and states(report)["other"] == "succeeded" and states(report)["call"] == "failed"


# -- the end, and before it -----------------------------------------------------------------------------------------------


def test_exit_handlers_run_whatever_happened_and_know_how_it_went() -> None:
    bye = step("bye", inputs=given(how="=workflow.outcome"))
    after = step("after", "bye", when=Expr.of('workflow.outcome == "failed"'))
    for answer, outcome in ((FAILED, "failed"), (None, "succeeded")):
        report = run_virtually(flow(step("a"), on_exit=(bye, after)), script=by_step(a=answer))
        said = next(order for order in report.backend.specs if order.task == "bye")
        assert said.inputs == {"how": outcome} and report.state == outcome
        assert states(report)["after"] == ("succeeded" if outcome == "failed" else "skipped")


def test_an_exit_handler_that_fails_fails_the_run() -> None:
    assert run_virtually(flow(step("a"), on_exit=(step("bye"),)), script=by_step(bye=FAILED)).state == "failed"


def later(seconds: float, act: Callable[[Engine, ActiveRun], None]) -> Callable[[Engine, ActiveRun], Any]:
    async def meanwhile(engine: Engine, live: ActiveRun) -> None:
        await asyncio.sleep(seconds)
        engine.later(lambda: act(engine, live))

    return meanwhile


def test_cancelling_stops_what_runs_drops_the_rest_and_runs_exit_handlers() -> None:
    work = flow(
        step("a"),
        step("b", "a"),
        step("c", each=ForEach(axes=({"i": tuple(range(50))},), parallel=2), inputs=given(i="=item.i")),
        on_exit=(step("bye"),),
    )
    report = run_virtually(
        work,
        script=by_step(a=1000, c=1000),
        meanwhile=later(5, lambda engine, live: engine.cancel(live, "enough", False)),
    )
    assert report.state == "cancelled" and report.seconds < 60
    assert sorted(report.backend.stopped) == ["w-1/a/1", "w-1/c[0]/1", "w-1/c[1]/1"]
    assert states(report)["bye"] == "succeeded" and states(report)["b"] == "cancelled"
    assert report.live.progress["c"]["cancelled"] == 50


def test_cancelling_now_skips_exit_handlers() -> None:
    work = flow(step("a"), on_exit=(step("bye"),))
    report = run_virtually(
        work, script=by_step(a=1000), meanwhile=later(5, lambda engine, live: engine.cancel(live, "enough", True))
    )
    assert report.state == "cancelled" and "bye" not in starts(report)


def test_cancelling_ends_waits_too() -> None:
    policy = Retry(limit=9, backoff=Backoff(initial=1000))
    work = flow(step("a", retry=policy), step("s", action=Suspend()), step("b", "s"))
    report = run_virtually(
        work, script=by_step(a=FAILED), meanwhile=later(5, lambda engine, live: engine.cancel(live, "enough", False))
    )
    assert report.state == "cancelled" and states(report) == {"a": "cancelled", "s": "cancelled", "b": "cancelled"}


def test_a_suspended_step_waits_for_somebody_and_takes_what_they_say() -> None:
    ask = step("ask", action=Suspend(message="ship it?"), out=("who",))
    work = flow(ask, step("b", inputs=given(who="=steps.ask.outputs.who")))
    report = run_virtually(work, meanwhile=later(3600, lambda engine, live: engine.resume(live, "ask", {"who": "ana"})))
    assert report.seconds == pytest.approx(3600) and report.backend.specs[0].inputs == {"who": "ana"}


def test_a_pause_ends_by_itself() -> None:
    assert run_virtually(flow(step("s", action=Suspend(duration=7200)), step("b", "s"))).seconds == 7200


def test_only_what_is_needed_for_a_step() -> None:
    work = flow(
        step("a", out=("n",)),
        step("b", "a"),
        step("c", "b"),
        step("d", "a"),
        outputs=(Output(name="n", value=Expr.of("steps.a.outputs.n")),),
    )
    report = run_virtually(work, script=by_step(a={"n": 1}), until=["b"])
    assert starts(report) == ["a", "b"] and report.outputs == {"n": 1}


# -- results that are known -----------------------------------------------------------------------------------------------


def test_equal_work_is_done_once_within_a_run_and_in_later_runs(tmp_path: Path) -> None:
    each = ForEach(axes=({"i": (1, 2, 1, 2, 1)},))
    work = flow(
        step("a", each=each, inputs=given(i="=item.i"), out=("n",)),
        outputs=(Output(name="n", value=Expr.of("steps.a.outputs.n")),),
    )
    script = by_step(a=lambda order: (5, {"n": order.inputs["i"] * 10}))
    report = run_virtually(work, script=script, home=tmp_path)
    assert len(report.backend.specs) == 2 and report.outputs == {"n": [10, 20, 10, 20, 10]}
    again = run_virtually(work, script=script, home=tmp_path)
    assert not again.backend.specs and again.outputs == report.outputs
    assert again.live.progress["a"]["reused"] == 5
    assert len(run_virtually(work, script=script, home=tmp_path, fresh=True).backend.specs) == 2


def test_what_must_run_each_time_does_and_what_follows_is_reused_if_its_inputs_are_the_same(tmp_path: Path) -> None:
    work = flow(step("a", out=("n",), cache=Cache(enabled=False)), step("b", inputs=given(n="=steps.a.outputs.n")))
    for answer, expected in ((1, ["a", "b"]), (1, ["a"]), (2, ["a", "b"])):
        assert starts(run_virtually(work, script=by_step(a={"n": answer}), home=tmp_path)) == expected


def test_a_result_is_too_old_after_its_time_to_live(tmp_path: Path) -> None:
    work = flow(step("a", cache=Cache(ttl=100)))
    clock = VirtualClock()
    assert len(run_virtually(work, home=tmp_path, clock=clock).backend.specs) == 1
    clock.elapsed += 50
    assert len(run_virtually(work, home=tmp_path, clock=clock).backend.specs) == 0
    clock.elapsed += 60
    assert len(run_virtually(work, home=tmp_path, clock=clock).backend.specs) == 1


def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    work = flow(step("a"))
    assert run_virtually(work, script=by_step(a=FAILED), home=tmp_path).state == "failed"
    assert run_virtually(work, home=tmp_path).state == "succeeded"


def test_exit_handlers_are_never_reused(tmp_path: Path) -> None:
    work = flow(step("a"), on_exit=(step("bye"),))
    assert starts(run_virtually(work, home=tmp_path)) == ["a", "bye"]
    assert starts(run_virtually(work, home=tmp_path)) == ["bye"]


def test_a_failed_run_gives_only_outputs_of_what_succeeded() -> None:
    each = ForEach(axes=({"i": (1, 2)},))
    outputs = tuple(Output(name=name, value=Expr.of(f"steps.{name}.outputs.n")) for name in ("a", "b"))
    work = flow(step("a", each=each, inputs=given(i="=item.i"), out=("n",)), step("b", out=("n",)), outputs=outputs)
    report = run_virtually(work, script=lambda order: FAILED if order.inputs.get("i") == 2 else {"n": 1})
    assert report.state == "failed" and report.outputs == {"b": 1}


def test_what_is_tried_again_is_decided_again(tmp_path: Path) -> None:
    """A retry takes back what followed from the failure: a handler that ran, steps that were omitted."""
    mend = step("mend", Edge("a", frozenset({Outcome.FAILED})), inputs=given(x=1))
    work = flow(step("a", inputs=given(x=2)), step("b", "a", inputs=given(x=3)), step("c", inputs=given(x=4)), mend)
    first = run_virtually(work, script=by_step(a=FAILED, c=FAILED), home=tmp_path)
    assert states(first) == {"a": "failed", "b": "omitted", "c": "failed", "mend": "succeeded"}
    again = run_virtually(work, home=tmp_path, retried="ana")
    assert again.state == "succeeded" and starts(again) == ["a", "c", "b"]
    assert states(again) == {"a": "succeeded", "b": "succeeded", "c": "succeeded", "mend": "omitted"}
    assert again.live.counts["succeeded"] == 3 and not again.live.counts.get("failed")
