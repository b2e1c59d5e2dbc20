"""Content keys: the same work has the same key, whoever wrote it; different work does not."""

from __future__ import annotations

import os
import subprocess
import sys

from penstock import Cache, ContainerJob, Workflow, WorkflowParam
from penstock.plan.dedupe import why_differ
from penstock.plan.make import Plan, make
from tests.support.source import module


def key(job: ContainerJob, *others: ContainerJob, **params: object) -> str:
    declared = [WorkflowParam(name, int) for name in params]
    return make(Workflow("w", [*others, job], params=declared).graph, params).keys.keys[job.name]


def base(name: str = "a", **changes: object) -> ContainerJob:
    fields: dict[str, object] = {
        "image": "i",
        "command": ["run"],
        "args": ["x"],
        "env": {"A": "1"},
        "outputs": [WorkflowParam("y", int)],
    }
    return ContainerJob(name, **{**fields, **changes})  # type: ignore[arg-type]


def test_names_resources_queues_retries_and_conditions_are_not_in_the_key() -> None:
    same = base(
        "b",
        cpu=4,
        memory="1Gi",
        queue="q",
        priority=3,
        retry=5,
        timeout=9,
        node_selector={"a": "b"},
        when="true",
        doc="words",
    )
    assert key(base()) == key(same)


def test_what_determines_the_result_is_in_the_key() -> None:
    plain = key(base())
    for change in (
        {"image": "j"},
        {"command": ["walk"]},
        {"args": ["y"]},
        {"args": ["x", ""]},
        {"env": {"A": "2"}},
        {"env": {}},
        {"workdir": "/w"},
        {"replicas": 2},
        {"outputs": [WorkflowParam("z", int)]},
        {"outputs": [WorkflowParam("y", str)]},
        {"inputs": {"k": 1}},
        {"cache": Cache(version="2")},
    ):
        assert key(base(**change)) != plain, change


def test_a_number_a_text_and_a_float_are_three_things() -> None:
    assert len({key(base(inputs={"k": value})) for value in (3, "3", 3.0, True, None, [3])}) == 6


def test_a_parameter_counts_as_its_value() -> None:
    assert key(base(args=["${{ params.n }}"]), n=3) == key(base(args=[3]))
    assert key(base(args=["n=${{ params.n }}"]), n=3) == key(base(args=["n=3"]))
    assert key(base(args=["${{ params.n + 1 }}"]), n=3) == key(base(args=[4]))
    assert key(base(args=["${{ params.n }}"]), n=3) != key(base(args=["${{ params.n }}"]), n=4)


def test_keys_go_through_the_graph() -> None:
    def second(image: str, name: str = "up") -> str:
        up = base(name, image=image)
        return key(base("down", args=[up.outputs["y"]]), up)

    assert second("i") == second("i", name="other")
    assert second("i") != second("j")


def test_the_same_step_inside_a_nested_workflow_has_the_same_key() -> None:
    source = "@workflow\ndef inner(a: int):\n    return inc(a)\n@workflow\ndef flow(n: int):\n    x = inc(n)\n    return add(x, inner(n))\n"
    keys = make(module(source).flow.graph, {"n": 3}).keys.keys
    assert keys["inc"] == keys["inner/inc"]


def test_steps_that_must_run_each_time_are_alone() -> None:
    a = base("a", cache=False)
    b = base("b", cache=False)
    c = base("c", args=[a.outputs["y"]])
    d = base("d", args=[b.outputs["y"]])
    plan = make(Workflow("w", [a, b, c, d]).graph)
    assert len(set(plan.keys.keys.values())) == 4
    assert plan.keys.private["a"] == "cache is off"
    assert plan.keys.private["c"] == "it reads a step that runs each time"
    other = make(Workflow("v", [a]).graph)
    assert plan.keys.keys["a"] != other.keys.keys["a"]


def test_data_that_looks_like_an_expression_is_not_one() -> None:
    up = base("up")
    through = key(base("down", inputs={"k": up.outputs["y"]}), up)
    up_key = key(up)
    for literal in (f'$${{{{ steps["{up_key}"].outputs.y }}}}', {"of": up_key, "output": "y"}, {"expr": "params.n"}):
        assert key(base("down", inputs={"k": literal}), up) != through
    n = WorkflowParam("n", int)
    open_ = make(Workflow("w", [base(inputs={"k": n})], params=[n]).graph).keys.keys["a"]
    assert key(base(inputs={"k": {"expr": "params.n"}})) != open_ != key(base(inputs={"k": "$${{ params.n }}"}))


def differ(a: ContainerJob, b: ContainerJob, *others: ContainerJob) -> list[str]:
    plans: list[Plan] = [make(Workflow("w", [*others, job]).graph) for job in (a, b)]
    return why_differ(plans[0].keys, plans[1].keys, a.name, b.name)


def test_why_two_keys_differ_is_said_field_by_field() -> None:
    assert differ(base(), base()) == []
    assert differ(base(), base(image="j")) == ["container: i → j"]
    assert differ(base(inputs={"lr": 0.1}), base(inputs={"lr": 0.01})) == ["inputs lr: 0.1 → 0.01"]
    assert differ(base(), base(env={"A": "2"}, args=["z"])) == ["args: ['x'] → ['z']", "env A: 1 → 2"]
    assert differ(base(), base(cache=False)) == ["it runs each time"]


def test_keys_are_the_same_in_every_process() -> None:
    code = (
        "from penstock import *\nfrom penstock.plan.make import make\n"
        "a = ContainerJob('a', 'i', env={'B': '1', 'A': '2'}, outputs=[WorkflowParam('y', int)])\n"
        "b = ContainerJob('b', 'i', args=[a.outputs['y']], cpu=1, resources={'x.y/z': 1})\n"
        "p = make(Workflow('w', [a, b]).graph)\nprint(p.digest, sorted(p.keys.keys.items()), p.as_data())\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1


def keys_of(source: str, **params: object) -> dict[str, str]:
    return make(module(f"@workflow\n{source}").flow.graph, params).keys.keys


def test_a_filter_is_part_of_what_comes_out() -> None:
    plain, filtered = (
        keys_of(f"def flow(xs: list[int]):\n    return total([inc(x) for x in xs{test}])\n")
        for test in ("", " if x > 1")
    )
    assert plain["total"] != filtered["total"]
    bound = "def flow(n: int, xs: list[int]):\n    return total([inc(x) for x in xs if x > n])\n"
    assert keys_of(bound, n=0)["total"] != keys_of(bound, n=5)["total"]


def test_what_a_nested_workflow_is_given_is_part_of_its_keys() -> None:
    inner = "def inner(t: str):\n    return show(text=t)\n@workflow\ndef flow(x: int):\n    a = inc(x)\n    inner(f'{a}-a')\n    inner(f'{a}-b')\n"
    found = keys_of(inner)
    assert found["inner/show"] != found["inner-2/show"]
    loops = "def inner(t: int):\n    return inc(inc(t))\n@workflow\ndef flow(x: int):\n    [inner(v) for v in [1, 2]]\n    [inner(v) for v in [3, 4]]\n"
    found = keys_of(loops)
    assert found["inner/inc"] != found["inner-2/inc"]
