"""Merging: shared steps once, nothing lost, in any order, as often as one likes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import ContainerJob, Workflow, WorkflowParam
from penstock.graph import codec
from penstock.graph.check import errors
from penstock.graph.model import Workflow as Graph
from penstock.plan.make import make
from penstock.plan.merge import merge
from tests.plan.graphs import workflows
from tests.support.interpret import run
from tests.support.source import module


def prepared(name: str, last: str, **options: object) -> Workflow:
    data = ContainerJob("prepare", "i", outputs=[WorkflowParam("x", int)], **options)  # type: ignore[arg-type]
    return Workflow(name, [data, ContainerJob(last, "i", args=[last, data.outputs["x"]], cpu=1)])


def test_the_shared_part_is_in_it_once() -> None:
    merged = merge([(prepared("a", "train").graph, {}), (prepared("b", "test").graph, {})])
    assert [step.name for step in merged.workflow.steps] == ["prepare", "test", "train"]
    assert merged.shared == {"prepare": ("a/prepare", "b/prepare")}
    data = merged.as_data()
    assert (data["steps"], data["tasks"]) == ({"before": 4, "after": 3}, {"before": 4, "after": 3})


def test_a_shared_step_asks_for_the_most_and_a_note_says_so() -> None:
    merged = merge([(prepared("a", "train", cpu=1, memory="4Gi").graph, {}), (prepared("b", "test", cpu=2).graph, {})])
    step = merged.workflow.steps[0]
    assert dict(step.resources) == {"cpu": 2000, "memory": 4 * 2**30 * 1000}
    assert any("resources differ" in note for note in merged.notes)


def test_the_same_name_for_different_work_keeps_both() -> None:
    a = Workflow("a", [ContainerJob("work", "i")])
    b = Workflow("b", [ContainerJob("work", "j"), ContainerJob("next", "k").after("work")])
    merged = merge([(a.graph, {}), (b.graph, {})])
    assert sorted(step.name for step in merged.workflow.steps) == ["next", "work-a", "work-b"]
    assert errors(merged.workflow) == []
    assert next(step for step in merged.workflow.steps if step.name == "next").needs[0].step == "work-b"


def test_another_condition_or_another_outcome_is_another_step() -> None:
    def make_one(name: str, condition: str | None, outcomes: list[str]) -> Graph:
        first = ContainerJob("first", "i", when=condition)
        return Workflow(
            name,
            [first, ContainerJob("second", "i2").after(first, outcomes=outcomes)],
            params=[WorkflowParam("n", int, 1)],
        ).graph

    normal = ["succeeded", "skipped"]
    same = merge([(make_one("a", "params.n > 0", normal), {}), (make_one("b", "params.n > 0", normal), {})])
    assert len(same.workflow.steps) == 2
    conditions = merge([(make_one("a", None, normal), {}), (make_one("b", "params.n > 0", normal), {})])
    assert len(conditions.workflow.steps) == 4
    outcomes = merge([(make_one("a", None, normal), {}), (make_one("b", None, ["failed"]), {})])
    assert len(outcomes.workflow.steps) == 3


def test_parameters_of_one_value_are_one_and_others_keep_apart() -> None:
    def flow(name: str, default: int | None) -> Graph:
        n = WorkflowParam("n", int) if default is None else WorkflowParam("n", int, default)
        return Workflow(name, [ContainerJob("s", "i", args=[n])], params=[n]).graph

    equal = merge([(flow("a", 1), {}), (flow("b", 1), {})]).workflow
    assert ([param.name for param in equal.params], len(equal.steps)) == (["n"], 1)
    apart = merge([(flow("a", 1), {}), (flow("b", 2), {})]).workflow
    assert ([param.name for param in apart.params], len(apart.steps)) == (["n_a", "n_b"], 2)
    given = merge([(flow("a", 1), {"n": 5}), (flow("b", 2), {"n": 5})]).workflow
    assert ([param.name for param in given.params], len(given.steps)) == (["n"], 1)
    open_ = merge([(flow("a", None), {}), (flow("b", None), {})]).workflow
    assert ([param.name for param in open_.params], len(open_.steps)) == (["n_a", "n_b"], 2)


def test_the_merged_workflow_gives_what_each_gave() -> None:
    one = module("@workflow\ndef one(x: int):\n    a = inc(x)\n    return [add(a, k) for k in upto(a)]\n").one
    two = module(
        "@workflow\ndef two(x: int):\n    a = inc(x)\n    b = a\n    while b < 9:\n        b = add(b, a)\n    return b\n"
    ).two
    merged = merge([(one.graph, {"x": 3}), (two.graph, {"x": 3})])
    outputs = run(merged.workflow)
    assert outputs == {"one-result": one(3), "two-result": two(3)}
    assert len(merged.shared) == 1


def named(workflow: Graph, name: str) -> Graph:
    import dataclasses

    return dataclasses.replace(workflow, name=name)


@settings(max_examples=150, deadline=None)
@given(st.lists(workflows(most=4), min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_order_does_not_matter_and_again_changes_nothing(given_: list[Graph], dice: object) -> None:
    flows = [named(workflow, f"w{i}") for i, workflow in enumerate(given_)]
    merged = merge([(flow, {}) for flow in flows]).workflow
    shuffled = list(flows) + [flows[0]]
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert codec.digest(merge([(flow, {}) for flow in shuffled]).workflow) == codec.digest(merged)
    assert codec.digest(merge([(merged, {})]).workflow) == codec.digest(merged)
    assert errors(merged) == []


@settings(max_examples=100, deadline=None)
@given(workflows(most=4), workflows(name="v", most=4))
def test_no_content_is_lost_and_no_step_is_doubled(a: Graph, b: Graph) -> None:
    merged = merge([(a, {}), (b, {})])
    origins = [origin for group in merged.origin.values() for origin in group]
    assert sorted(origins) == sorted(f"{flow.name}/{step.name}" for flow in (a, b) for step in flow.steps)
    keys = make(merged.workflow).keys.keys
    for flow in (a, b):
        own = make(flow).keys.keys
        for step in flow.steps:
            name = next(
                merged_name for merged_name, group in merged.origin.items() if f"{flow.name}/{step.name}" in group
            )
            assert keys[name] == own[step.name]


def test_nested_workflows_that_ask_for_other_resources_stay_apart() -> None:
    def outer(name: str, cpu: int) -> Graph:
        inner = Workflow("inner", [ContainerJob("f", "i", cpu=cpu)])
        return Workflow(name, [inner.as_job("n")]).graph

    apart = merge([(outer("a", 2), {}), (outer("b", 30), {})])
    assert len(apart.workflow.steps) == 2 and len(apart.workflow.definitions) == 2
    assert make(apart.workflow).peaks["cpu"].amount == 32_000
    assert len(merge([(outer("a", 2), {}), (outer("b", 2), {})]).workflow.steps) == 1


def test_what_differs_is_noted() -> None:
    a = Workflow("a", [ContainerJob("s", "i", priority=1, node_selector={"z": "a"})], unit="task", fail_fast=True)
    b = Workflow("b", [ContainerJob("s", "i", priority=2)], unit="stage", fail_fast=True)
    merged = merge([(a.graph, {}), (b.graph, {})])
    assert merged.workflow.fail_fast
    assert merged.workflow.steps[0].priority == 2
    for word in ("unit", "placement", "priority"):
        assert any(word in note for note in merged.notes), merged.notes
