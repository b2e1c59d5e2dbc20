"""RunState and ReadyQueue: facts in, effects out. Nothing else is needed to drive a run through."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.effects import Effect, Noted, QuotaFreed, QuotaWanted, StepSettled, StopTask
from penstock.graph.model import ForEach, Outcome
from tests.engine.parts.build import flow, of_kind, state_of, step


def test_a_chain_is_driven_by_facts_alone() -> None:
    effects: list[Effect] = []
    state = state_of(flow(step("a"), step("b", "a")), effects.append)
    (a,) = state.ready.take("x", 10)
    assert a.path == "a" and state.ready.take("x", 10) == []
    state.ended(a, Outcome.SUCCEEDED, {})
    (b,) = state.ready.take("x", 10)
    state.ended(b, Outcome.SUCCEEDED, {})
    assert state.outcome is Outcome.SUCCEEDED and effects == []


def test_what_follows_from_a_failure_is_an_effect() -> None:
    effects: list[Effect] = []
    state = state_of(flow(step("a"), step("b", "a")), effects.append)
    (a,) = state.ready.take("x", 10)
    state.ended(a, Outcome.FAILED, {}, "no luck")
    assert [(note.kind, note.path) for note in of_kind(effects, Noted)] == [("step.omitted", "b")]
    assert state.outcome is Outcome.FAILED and state.why == "no luck"


def test_cancelling_asks_to_stop_what_runs_and_drops_what_does_not() -> None:
    effects: list[Effect] = []
    loop = ForEach(axes=({"i": (1, 2, 3)},))
    state = state_of(flow(step("a", each=loop)), effects.append)
    (first,) = state.ready.take("x", 1)
    state.cancel("enough")
    assert [effect.task for effect in of_kind(effects, StopTask)] == [first]
    dropped = of_kind(effects, Noted)[-1]
    assert (dropped.kind, dropped.data["tasks"]) == ("step.cancelled", 2)
    state.ended(first, Outcome.CANCELLED, {})
    assert state.outcome is Outcome.CANCELLED


def test_a_step_that_needs_quota_starts_on_permits_and_gives_them_back() -> None:
    effects: list[Effect] = []
    loop = ForEach(axes=({"i": (1, 2, 3)},))
    state = state_of(flow(step("a", each=loop)), effects.append, needs_quota=lambda step: True)
    (wanted,) = of_kind(effects, QuotaWanted)
    assert wanted.step.wanted == 3 and state.ready.take("x", 10) == []
    state.ready.permit(wanted.step, "two", 2)
    tasks = state.ready.take("x", 10)
    assert [task.permit for task in tasks] == ["two", "two"] and wanted.step.wanted == 1
    state.ended(tasks[0], Outcome.SUCCEEDED, {})
    assert [effect.permit for effect in of_kind(effects, QuotaFreed)] == ["two"]
    state.ready.permit(wanted.step, "one")
    for task in (tasks[1], *state.ready.take("x", 10)):
        state.ended(task, Outcome.SUCCEEDED, {})
    assert of_kind(effects, StepSettled) and state.outcome is Outcome.SUCCEEDED


def test_a_permit_that_is_taken_away_puts_the_task_back() -> None:
    effects: list[Effect] = []
    state = state_of(flow(step("a")), effects.append, needs_quota=lambda step: True)
    wanted = of_kind(effects, QuotaWanted)[0].step
    state.ready.permit(wanted, "quota")
    assert state.ready.withdraw(wanted, "quota") == ["quota"]
    assert state.ready.take("x", 10) == [] and wanted.wanted == 1


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_no_more_run_at_a_time_than_the_run_allows(items: int, most: int, data: Any) -> None:
    loop = ForEach(axes=({"i": tuple(range(items))},))
    state = state_of(flow(step("a", each=loop), step("b", each=loop), parallel=most), lambda effect: None)
    running: list[Any] = []
    while state.outcome is None:
        running += state.ready.take("x", data.draw(st.integers(1, 5)))
        assert 0 < len(running) <= most
        task = running.pop(data.draw(st.integers(0, len(running) - 1)))
        state.ended(task, Outcome.SUCCEEDED, {})
        state.ready.unhold()
    assert not running and state.ready.busy == 0
