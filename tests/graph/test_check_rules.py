"""The parts of the checker, each built alone: a Context, a ReadScope, one rule."""

from __future__ import annotations

import pytest

from penstock.expressions.parse import Expr
from penstock.expressions.types import ANY, BOOL, INT, STR, list_of
from penstock.graph.check.arguments import check_arguments
from penstock.graph.check.context import ALWAYS, Context, ReadScope
from penstock.graph.check.definitions import check_calls, check_names
from penstock.graph.check.order import check_order
from penstock.graph.check.paths import check_path
from penstock.graph.check.scalars import check_count, check_name, check_unique, cycle_path
from penstock.graph.check.steps import check_step
from penstock.graph.check.values import check_value, type_or_none
from penstock.graph.limits import MOST_PROBLEMS, NAME
from penstock.graph.links import links_of
from penstock.graph.model import Container, Edge, ForEach, Nested, Output, Parameter, Step, Workflow

GIVES = Step(name="gives", action=Container(image="i"), outputs=(Output(name="x", type=INT),))
LOOPED = Step(
    name="looped", action=Container(image="i"), outputs=(Output(name="x", type=INT),), each=ForEach(axes=({"v": (1,)},))
)


def context(*steps: Step, prefix: str = "", **fields: object) -> Context:
    workflow = Workflow(name="w", steps=steps, **fields)  # type: ignore[arg-type]
    return Context(workflow, {}, prefix, links_of(workflow)[""])


def scope(*roots: str) -> ReadScope:
    return ReadScope("steps.a", None, ALWAYS | set(roots), {"item.v": STR})


def found(of: Context) -> list[tuple[str, str]]:
    return [(problem.code, problem.where) for problem in of.problems]


def test_a_context_knows_the_types_of_what_steps_give() -> None:
    of = context(GIVES, LOOPED)
    assert of.outputs == {"gives": {"x": INT}, "looped": {"x": list_of(INT)}}
    assert of.type_of_path(("steps", "looped", "outputs", "x"), scope()) == (list_of(INT), 4)
    assert of.type_of_path(("steps", "gives", "outcome"), scope()) == (STR, 3)
    assert of.type_of_path(("item", "v", "more"), scope()) == (STR, 2)
    assert of.type_of_path(("response", "body"), scope()) == (ANY, 2)


def test_a_problem_has_the_path_of_its_workflow_in_front() -> None:
    of = context(prefix="definitions.inner.")
    check_name(of, "a b", NAME, "name", None)
    assert found(of) == [("P211", "definitions.inner.name")]


def test_a_context_stops_at_the_limit() -> None:
    of = context()
    for _ in range(MOST_PROBLEMS + 5):
        check_count(of, 0, "parallel", None)
    assert len(of.problems) == MOST_PROBLEMS


@pytest.mark.parametrize(
    "path, code",
    [
        ("steps.gives.outputs.x", None),
        ("steps.gives.outputs", None),
        ("steps.gives.exit_code", None),
        ("steps.gives.outputs.y", "P202"),
        ("steps.gives.rows", "P202"),
        ("steps.nobody", "P201"),
        ("params.p", None),
        ("params.q", "P203"),
        ("run.id", None),
        ("run.name", "P204"),
        ("item.v", None),
        ("item.w", "P205"),
        ("inputs.i", "P204"),
    ],
)
def test_each_root_has_its_rule(path: str, code: str | None) -> None:
    of = context(GIVES, params=(Parameter(name="p"),))
    good = check_path(of, tuple(path.split(".")), scope("item"), "inputs.i")
    assert good is (code is None)
    assert found(of) == ([] if code is None else [(code, "steps.a.inputs.i")])


def test_a_value_has_a_type_or_does_not_fit() -> None:
    of = context(GIVES)
    assert check_value(of, Expr("steps.gives.outputs.x + 1"), INT, scope(), "inputs.i") == INT
    assert check_value(of, (1, Expr("steps.gives.outputs.x")), list_of(INT), scope(), "inputs.i") == list_of(INT)
    assert not of.problems
    assert check_value(of, Expr("steps.gives.outputs.x"), BOOL, scope(), "when") == INT
    assert found(of) == [("P220", "steps.a.when")]
    assert type_or_none(of, Expr("1 + 'a'"), scope()) is None


def test_a_name_twice_is_reported_at_the_name() -> None:
    of = context()
    check_unique(of, ["a", "b", "b"], "part", "steps.s.pod.parts", None)
    assert found(of) == [("P210", "steps.s.pod.parts.b")]


def test_a_step_is_checked_alone() -> None:
    of = context(GIVES, LOOPED)
    check_step(of, LOOPED)
    assert not of.problems
    check_step(of, Step(name="bad", action=Container(image=""), needs=(Edge("nobody"),), replicas=0))
    assert found(of) == [
        ("P231", "steps.bad.replicas"),
        ("P201", "steps.bad.needs"),
        ("P233", "steps.bad.container.image"),
    ]


def test_order_names_the_cycle_from_its_first_name() -> None:
    of = context(
        Step(name="b", action=Container(image="i"), needs=(Edge("a"),)),
        Step(name="a", action=Container(image="i"), needs=(Edge("b"),)),
    )
    check_order(of)
    assert found(of) == [("P212", "steps.a")]
    assert cycle_path(["a", "b"]) in of.problems[0].message == "these steps wait for one another: a → b → a"


def test_definitions_are_checked_across() -> None:
    unused, again = (
        Workflow(name="unused"),
        Workflow(name="again", steps=(Step(name="s", action=Nested(name="again")),)),
    )
    root = Workflow(name="w", steps=again.steps, definitions=(unused, again, unused))
    assert [problem.code for problem in check_names(root)] == ["P210"]
    assert [problem.code for problem in check_calls(root, {"unused": unused, "again": again})] == ["P213", "P222"]


def test_arguments_are_checked_without_a_workflow() -> None:
    assert check_arguments((Parameter(name="n", type=INT),), {"n": 1}) == []
    assert [one.code for one in check_arguments((Parameter(name="n", type=INT),), {"n": "a", "m": 1})] == [
        "P402",
        "P401",
    ]
