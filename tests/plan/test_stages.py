"""What forms a stage, and what does not."""

from __future__ import annotations

from penstock import BaseJob, ContainerJob, Workflow
from penstock.graph.model import Http, Suspend
from penstock.plan.make import make
from tests.support.source import module


def names(workflow: Workflow, **params: object) -> list[tuple[str, tuple[str, ...]]]:
    return [(stage.name, stage.steps) for stage in make(workflow.graph, params).stages]


def test_each_step_with_its_fan_out_is_a_stage() -> None:
    flow = module(
        "@workflow\ndef flow(n: int):\n    a = inc(n)\n    bs = [add(a, k) for k in range(4)]\n    return total(bs)\n"
    ).flow
    assert names(flow) == [("inc", ("inc",)), ("add", ("add",)), ("total", ("total",))]


def test_a_group_is_one_stage() -> None:
    a, b = ContainerJob("a", "i", group="first", cpu=1), ContainerJob("b", "i", group="first", memory="1Gi")
    c = ContainerJob("c", "i").after(a, b)
    stages = make(Workflow("w", [a, b, c]).graph).stages
    assert [(stage.name, stage.steps) for stage in stages] == [("first", ("a", "b")), ("c", ("c",))]
    assert stages[0].demand() == {"cpu": 1000, "memory": 2**30 * 1000}


def test_waiting_and_calling_hold_nothing_and_form_no_stage() -> None:
    ask, call = BaseJob("ask", Suspend()), BaseJob("call", Http(url="http://x"))
    assert names(Workflow("w", [ask, call, ContainerJob("a", "i")])) == [("a", ("a",))]


def test_nested_stages_stand_where_their_caller_stands_and_know_how_often() -> None:
    source = "@workflow\ndef inner(x: int):\n    return inc(inc(x))\n@workflow\ndef flow(n: int):\n    return [inner(k) for k in range(3)]\n"
    stages = make(module(source).flow.graph).stages
    assert [(stage.name, stage.calls.count) for stage in stages] == [("inner/inc", 3), ("inner/inc-2", 3)]


def test_a_size_known_only_at_run_time_says_so() -> None:
    flow = module("@workflow\ndef flow(n: int):\n    return [inc(k) for k in upto(n)]\n").flow
    stage = make(flow.graph).stages[1]
    assert not stage.known
    assert stage.why == "known once upto has run"
    assert stage.as_data()["size"] == {"known": False, "why": "known once upto has run"}


def test_a_step_has_its_own_queue_or_that_of_the_workflow() -> None:
    a, b = ContainerJob("a", "i"), ContainerJob("b", "i", queue="own", priority=3)
    stages = make(Workflow("w", [a, b], queue="team", priority="high").graph).stages
    assert [(stage.queue, stage.priority) for stage in stages] == [("team", "high"), ("own", 3)]
