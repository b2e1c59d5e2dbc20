"""Plans of workflows that call themselves: finite, and honest about what nobody can know. And of what never queues, and of inputs
that nobody gives.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.drawing.text import picture
from penstock.expressions.parse import Expr
from penstock.expressions.types import INT
from penstock.graph.model import (
    Container,
    Edge,
    ForEach,
    Input,
    Lock,
    Mount,
    Nested,
    Outcome,
    Output,
    Parameter,
    Step,
    Unit,
    Workflow,
)
from penstock.plan.diff import diff
from penstock.plan.expand import ITSELF
from penstock.plan.make import make
from penstock.plan.merge import merge

E = Expr.of
CPU = {"cpu": 1000}


def work(name: str, *needs: str, **fields: Any) -> Step:
    fields.setdefault("action", Container(image="i"))
    fields.setdefault("resources", CPU)
    return Step(name=name, needs=tuple(Edge(up) for up in needs), **fields)


def call(name: str, inner: str, *needs: str, **fields: Any) -> Step:
    return work(name, *needs, action=Nested(name=inner), resources={}, **fields)


def coinflip(when: str = "steps.flip.outputs.x == 1", **fields: Any) -> Workflow:
    flip = work("flip", outputs=(Output(name="x", type=INT),))
    again = call("again", "coin", when=E(when), **fields)
    coin = Workflow(
        name="coin", steps=(flip, work("heads", "flip"), again), params=(Parameter(name="go", default=True),)
    )
    return Workflow(name="w", steps=(work("first"), call("toss", "coin", "first")), definitions=(coin,))


def mutual() -> Workflow:
    one = Workflow(
        name="one", steps=(work("x", outputs=(Output(name="o"),)), call("two", "two", when=E("steps.x.outputs.o == 1")))
    )
    two = Workflow(
        name="two", steps=(work("y", outputs=(Output(name="o"),)), call("one", "one", when=E("steps.y.outputs.o == 1")))
    )
    return Workflow(name="w", steps=(call("go", "one"),), definitions=(one, two))


@pytest.mark.parametrize("workflow", [coinflip(), mutual(), coinflip(each=ForEach(axes=({"i": (1, 2)},)))])
@pytest.mark.parametrize("unit", list(Unit))
def test_it_is_planned_once_and_what_is_behind_it_is_unknown(workflow: Workflow, unit: Unit) -> None:
    plan = make(workflow, unit=unit)
    data = plan.as_data()
    json.dumps(data)
    (recursive,) = [step for step in data["steps"] if step.get("recursive")]
    assert recursive["name"] in ("toss/again", "go/two/one")
    inside = [step for step in data["steps"] if "/" in step["name"]]
    assert all(step["calls"] == {"count": None, "exact": False, "why": ITSELF} for step in inside)
    (peak,) = plan.peaks.values()
    assert recursive["name"] in peak.open
    assert not peak.exact
    unknown = [one for one in plan.reservations if not one.known or one.count.count is None]
    assert unknown and all(ITSELF in (one.why or one.count.why) for one in unknown)


def test_the_peak_counts_each_level_once() -> None:
    assert make(coinflip()).peaks["cpu"].amount == 1000 * 1
    wide = coinflip("params.go")
    assert make(wide).peaks["cpu"].amount == 1000, "flip, then heads"


def test_a_call_that_is_known_not_to_happen_makes_nothing_unknown() -> None:
    plan = make(coinflip("params.go == false"))
    assert all(calls.count == 1 for _, calls in plan.level.walk())
    assert plan.peaks["cpu"].exact


def test_a_workflow_that_calls_itself_is_compared_merged_and_drawn() -> None:
    before, after = make(coinflip()), make(coinflip("steps.flip.outputs.x == 2"))
    assert [one.step for one in diff(before, after).changed if one.other] == ["toss/again"]
    assert diff(before, make(coinflip())).empty
    other = Workflow(name="v", steps=coinflip().steps, definitions=coinflip().definitions)
    merged = merge([(coinflip(), {}), (other, {})])
    assert merged.as_data()["unknown"]
    assert len(merged.workflow.definitions) == 1
    assert merge([(mutual(), {}), (coinflip(), {})]).workflow.steps
    assert len(list(picture(coinflip()).every())) == 5
    assert len(list(picture(mutual()).every())) == 5


def test_a_hundred_definitions_that_call_each_other() -> None:
    """Each calls the next and, perhaps, the first: no more is written out than there is."""
    names = [f"d{number}" for number in range(60)]
    definitions = tuple(
        Workflow(
            name=name,
            steps=(
                work("x", outputs=(Output(name="o"),)),
                call("next", names[(at + 1) % len(names)], when=E("steps.x.outputs.o == 1")),
                call("back", names[0], when=E("steps.x.outputs.o == 2")),
            ),
        )
        for at, name in enumerate(names)
    )
    plan = make(Workflow(name="w", steps=(call("go", "d0"),), definitions=definitions))
    assert sum(1 for _ in plan.level.walk()) == 1 + 3 * 60
    assert plan.peaks["cpu"].open


# -- what never queues --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", list(Unit))
def test_what_is_exempt_holds_no_quota(unit: Unit) -> None:
    inner = Workflow(name="inner", steps=(work("x"),))
    workflow = Workflow(
        name="w",
        steps=(work("a", group="g"), work("hook", group="g", exempt=True), call("c", "inner", exempt=True)),
        definitions=(inner,),
    )
    plan = make(workflow, unit=unit)
    assert plan.peaks["cpu"].amount == 1000
    assert {stage.name: stage.exempt for stage in plan.stages} == {"g": False, "hook": True, "c/x": True}
    (reservation,) = plan.reservations
    assert reservation.stages == ("g",)
    assert reservation.peak == CPU


# -- inputs that nobody gives ---------------------------------------------------------------------------------------------------


def test_what_a_called_workflow_gets_when_a_step_is_known_to_be_skipped() -> None:
    inner = Workflow(
        name="inner",
        params=(Parameter(name="n", type=INT, default=3),),
        steps=(work("x", each=ForEach(axes=({"i": E("range(params.n)")},))),),
    )
    skipped = work("skipped", when=E("params.no"), outputs=(Output(name="o", type=INT),))

    def tasks(default: Any = None, **fields: Any) -> Any:
        given = {"default": default} if default is not None else {}
        value = Input(name="n", value=E("steps.skipped.outputs.o"), **given)
        workflow = Workflow(
            name="w",
            params=(Parameter(name="no", default=False),),
            steps=(skipped, call("c", "inner", inputs=(value,))),
            definitions=(inner,),
        )
        plan = make(workflow, fields)
        return next(planned.tasks for planned, _ in plan.level.walk() if planned.path == "c/x").count

    assert tasks() == 3
    assert tasks(default=5) == 5
    assert tasks(no=True) is None


# -- the same, or not -------------------------------------------------------------------------------------------------------------


def test_steps_that_are_held_to_another_account_stay_apart_in_a_merge() -> None:
    def of(name: str, **fields: Any) -> tuple[Workflow, dict[str, Any]]:
        return Workflow(name=name, steps=(work("a", **fields),)), {}

    assert len(merge([of("v"), of("w")]).workflow.steps) == 1
    for fields in (
        {"exempt": True},
        {"tolerates": frozenset({Outcome.FAILED})},
        {"locks": (Lock(name="m"),)},
        {"mounts": (Mount(name="m", path="/m", files={"f": "x"}),)},
    ):
        merged = merge([of("v"), of("w", **fields)]).workflow
        assert len(merged.steps) == 2
        assert any(getattr(step, key) == value for key, value in fields.items() for step in merged.steps)


def test_a_merged_workflow_holds_the_locks_of_all() -> None:
    def of(name: str, lock: Any, **fields: Any) -> tuple[Workflow, dict[str, Any]]:
        params = (Parameter(name="p", default=name),)
        return Workflow(name=name, params=params, steps=(work(name),), locks=(Lock(name=lock),), **fields), {}

    merged = merge([of("v", "m"), of("w", E("params.p"), judged_by="leaves")])
    assert [str(getattr(lock.name, "text", lock.name)) for lock in merged.workflow.locks] == ["params.p_w", "m"]
    assert merged.workflow.judged_by == "handled"
    assert any("judged_by differs" in note for note in merged.notes)
