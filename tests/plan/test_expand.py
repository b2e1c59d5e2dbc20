"""How many tasks, and whether at all: what is known before running."""

from __future__ import annotations

import pytest

from penstock import ContainerJob, Workflow, WorkflowParam, for_loop, when
from penstock.errors import PlanError
from penstock.expressions.parse import Expr
from penstock.graph.model import Container, ForEach, Nested, Step
from penstock.graph.model import Workflow as Graph
from penstock.plan.expand import Planned
from penstock.plan.make import make
from tests.support.source import module


def planned(source: str, **params: object) -> dict[str, Planned]:
    return {each.path: each for each, _ in make(module(source).flow.graph, params).level.walk()}


def each(*axes: dict[str, object], when: str | None = None) -> Planned:
    step = Step(
        name="s", action=Container(image="i"), each=ForEach(axes=axes), when=None if when is None else Expr.of(when)
    )
    return make(Graph(name="w", steps=(step,))).level.steps[0]


@pytest.mark.parametrize(
    ("axes", "count"),
    [
        ([{"a": (1, 2, 3)}], 3),
        ([{"a": (1, 2), "b": (3, 4)}], 2),
        ([{"a": (1, 2)}, {"b": (3, 4, 5)}], 6),
        ([{"a": Expr.of("range(1000000)")}], 1_000_000),
        ([{"a": Expr.of("range(1000000000000)")}], 10**12),
        ([{"a": ((1,), (2, 3), ())}, {"b": Expr.of("item.a")}], 3),
        ([{"a": (1, 2, 3)}, {"b": Expr.of("range(item.a)")}, {"c": (1, 2)}], 12),
        ([{"a": ()}], 0),
    ],
)
def test_axes_zip_cross_and_nest(axes: list[dict[str, object]], count: int) -> None:
    assert each(*axes).tasks.count == count


def test_a_condition_on_the_items_is_counted() -> None:
    assert each({"a": (1, 2, 3, 4)}, when="item.a > 2").tasks.count == 2
    assert each({"a": (1, 2)}, when="item.a > 2").runs == "no"
    many = each({"a": Expr.of("range(100000)")}, when="item.a > 2").tasks
    assert (many.count, many.exact) == (100_000, False)


def test_parameters_decide_what_they_can() -> None:
    source = "@workflow\ndef flow(n: int, xs: list[int]):\n    if n > 3:\n        a = [inc(x) for x in xs]\n    else:\n        inc.options(name='b')(n)\n"
    known = planned(source, n=5, xs=[1, 2])
    assert (known["inc"].tasks.count, known["inc"].runs, known["b"].runs) == (2, "yes", "no")
    unknown = planned(source)
    assert (unknown["inc"].tasks.count, unknown["inc"].runs) == (None, "maybe")
    assert unknown["inc"].tasks.why == "depends on the parameter xs"


def test_nested_calls_know_what_they_are_given() -> None:
    source = "@workflow\ndef inner(xs: list[int]):\n    return [inc(x) for x in xs]\n@workflow\ndef flow(n: int):\n    inner([1, 2, 3])\n    inner(upto(n))\n"
    found = planned(source, n=3)
    assert found["inner/inc"].tasks.count == 3
    assert found["inner-2/inc"].tasks.count is None


def test_what_a_round_of_a_while_loop_carries_is_not_known() -> None:
    found = planned(
        "@workflow\ndef flow(n: int):\n    xs = [1]\n    while n < 3:\n        xs = [inc(x) for x in xs]\n        n = inc(n)\n    return xs\n",
        n=0,
    )
    assert found["while-n/inc"].tasks.count is None


def test_a_million_items_stay_one_node() -> None:
    @for_loop(i=range(1_000_000))
    @when(lambda i: i != 7)
    def work(i: int) -> ContainerJob:
        return ContainerJob("work", "i", args=[i], cpu=1)

    plan = make(Workflow("w", [work]).graph)
    assert len(plan.level.steps) == 1
    assert plan.peaks["cpu"].amount == 10**9


def test_nested_workflows_that_multiply_are_refused() -> None:
    inner = Graph(name="d0", steps=(Step(name="x", action=Container(image="i")),))
    definitions = [inner]
    for k in range(1, 40):
        definitions.append(
            Graph(name=f"d{k}", steps=tuple(Step(name=f"c{j}", action=Nested(name=f"d{k - 1}")) for j in range(2)))
        )
    with pytest.raises(PlanError, match="P405"):
        make(Graph(name="w", steps=(Step(name="a", action=Nested(name="d39")),), definitions=tuple(definitions)))


def test_arguments_must_fit() -> None:
    graph = Workflow(
        "w", [], params=[WorkflowParam("n", int), WorkflowParam("mode", str, "a", choices=["a", "b"])]
    ).graph
    for given, code in (({"m": 1}, "P401"), ({"n": "x"}, "P402"), ({"n": True}, "P402"), ({"mode": "c"}, "P402")):
        with pytest.raises(PlanError, match=code):
            make(graph, given)
