"""explain() prints Python that builds the very same workflow."""

from __future__ import annotations

import pytest

from penstock import (
    Backoff,
    BaseJob,
    Cache,
    ContainerJob,
    FunctionJob,
    ResourceJob,
    Retry,
    ScriptJob,
    Toleration,
    Workflow,
    WorkflowParam,
    for_loop,
    when,
    while_loop,
)
from penstock.author.explain.layout import Imports, VariableNames
from penstock.author.explain.steps import StepWriter, WrittenWorkflows
from penstock.author.explain.values import ModelWriter, ValueWriter
from penstock.expressions.parse import Expr
from penstock.graph import codec
from penstock.graph.model import ForEach, Http, Input, Nested, Output, Step, Suspend
from penstock.graph.model import Workflow as Graph
from tests.author.test_compiler import PROGRAMS
from tests.support.source import module


def again(text: str, name: str) -> Graph:
    namespace: dict[str, object] = {}
    exec(compile(text, "<explained>", "exec"), namespace)
    found = [value for value in namespace.values() if isinstance(value, Workflow) and value.name == name]
    return found[-1].graph


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_functions_come_back(name: str) -> None:
    source, _ = PROGRAMS[name]
    flow = module(f"@workflow\n{source}\n" if source.startswith("def") else f"{source}\n").flow
    text = flow.explain()
    rebuilt = again(text, "flow")
    # The docstring and the place are the function's own; all else is the workflow.
    assert codec.to_yaml(rebuilt) == codec.to_yaml(flow.graph), text


def double(x: int) -> int:
    return 2 * x


def everything() -> Workflow:
    source = WorkflowParam("source", str, "s3://bucket", choices=["s3://bucket", "file"], doc="where from")
    rates = WorkflowParam("rates", list[float], [0.1, 0.2])
    fetch = ContainerJob(
        "fetch",
        "python:3.12",
        ["python", "-c", "pass"],
        ["--from", source, f"--again={source}"],
        env={"A": source, "B": "${{ params.source }}x", "C": "$${{"},
        workdir="/w",
        outputs=[
            WorkflowParam("rows", int, path="/tmp/rows"),
            WorkflowParam("shards", list[dict[str, list[str]]]),
            WorkflowParam("log", str, "none", path="/dev/stdout"),
        ],
        cpu="500m",
        memory="4Gi",
        gpu=2,
        resources={"example.com/fpga": 1},
        replicas=3,
        retry=Retry(
            limit=2, backoff=Backoff(initial=5), on=("timeout",), exit_codes=(137,), when=Expr.of("attempt.number < 2")
        ),
        timeout="1h30m",
        queue="team",
        priority=7,
        node_selector={"zone": "a"},
        tolerations=[Toleration(key="gpu", operator="Exists"), {"key": "spot", "tolerationSeconds": 60}],
        affinity={"nodeAffinity": {"x": [1]}},
        cache=Cache(version="2", ttl=60),
        group="first",
        doc="Fetches.",
    )

    @for_loop(lr=rates, seed=range(3), parallel=2)
    @when(fetch.outputs["rows"] > 1000)
    def train(lr: object, seed: object) -> ContainerJob:
        return ContainerJob(
            "train", "trainer:1", args=["--lr", lr, f"--seed={seed}"], outputs=[WorkflowParam("loss", float)]
        )

    @for_loop(shard=fetch.outputs["shards"], gang=True)
    @for_loop(part=lambda shard: shard["parts"])
    @when(lambda part: part != "skip")
    def split(shard: object, part: object) -> ScriptJob:
        return ScriptJob(
            "split",
            "echo $X > $PENSTOCK_OUTPUTS/out\ncat ${{ inputs.p }}",
            inputs=[WorkflowParam("p", str, part, path="/in")],
            outputs=[WorkflowParam("out", str)],
        )

    @for_loop(a=[1, 2], b=["x", "y"], zipped=True)
    def zipped(a: object, b: object) -> ScriptJob:
        return ScriptJob("zipped", "print(1)", ["python"], image="python:3.12", env={"A": a, "B": b}, cache=False)

    @while_loop(lambda r: r.outputs["loss"] > 0.1, carry={"loss": "loss"}, max_iterations=20)
    def tune() -> ContainerJob:
        return ContainerJob(
            "tune", "t", inputs=[WorkflowParam("loss", float, 1.0)], outputs=[WorkflowParam("loss", float)]
        )

    doubled = (
        FunctionJob("double", double, {"x": fetch.outputs["rows"]})
        .after(tune, outcomes=["failed", "succeeded"])
        .after(split)
    )
    job = ResourceJob(
        "job",
        {"kind": "Job", "metadata": {"name": "x-${{ params.source }}"}},
        success_condition="status.succeeded > 0",
        failure_condition="status.failed > 3",
        outputs=[],
    )
    approve = BaseJob(
        "approve",
        Suspend(message=f"ship {source}?"),
        trigger='steps.job.outcome == "failed" || steps.double.outcome == "succeeded"',
    )
    call = BaseJob(
        "call",
        Http(
            url=f"http://x/{source}",
            method="POST",
            body={"rows": fetch.outputs["rows"]},
            success_condition=Expr.of("response.status == 200"),
        ),
    )
    call.declared = (Output(name="id", value=Expr.of("response.body.id")),)
    inner = Workflow("inner", [ContainerJob("one", "i")], params=[WorkflowParam("n", int, 3)])
    clean = ContainerJob("clean", "i", args=["${{ workflow.outcome }}"])
    return Workflow(
        "everything",
        [fetch, train, split, zipped, tune, doubled, job, approve, call, inner.as_job("nested", {"n": 4}, timeout=5)],
        params=[source, rates],
        outputs={"loss": train.outputs["loss"], "x": doubled},
        on_exit=[clean],
        queue="q",
        priority="high",
        unit="reuse",
        parallel=9,
        timeout="2h",
        fail_fast=True,
        labels={"team": "a"},
        doc="All of it.",
    )


def test_everything_the_object_form_can_say_comes_back() -> None:
    workflow = everything()
    assert [problem for problem in workflow.check() if problem.severity == "error"] == []
    text = workflow.explain()
    assert codec.to_yaml(again(text, "everything")) == codec.to_yaml(workflow.graph), text


def test_what_python_cannot_name_is_written_as_data() -> None:
    odd = Step(
        name="odd-1",
        action=Nested(name="in-ner"),
        each=ForEach(axes=({"a-b": Expr.of("params.class")},)),
        inputs=(Input(name="x-y", value=Expr.of('item["a-b"]')),),
    )
    inner = Graph(name="in-ner", params=(WorkflowParam("x-y").as_parameter(),))
    graph = Graph(
        name="odd", params=(WorkflowParam("class", list[int]).as_parameter(),), steps=(odd,), definitions=(inner,)
    )
    from penstock.author.explain import explain

    assert codec.to_yaml(again(explain(graph), "odd")) == codec.to_yaml(graph)


def test_it_reads_like_python() -> None:
    text = module(
        "@workflow\ndef flow(xs: list[int]):\n    return total([inc(x) for x in xs if x > 1])\n"
    ).flow.explain()
    assert "@for_loop(x=xs)" in text
    assert "@when(lambda x: x > 1)" in text
    assert "FunctionJob('total'" in text


def test_variables_are_given_out_once() -> None:
    variables = VariableNames({"flow"})
    assert [variables.new(name) for name in ("a-b", "a_b", "1", "class", "flow")] == [
        "a_b",
        "a_b_2",
        "_1",
        "_class",
        "flow_2",
    ]


def test_values_are_written_with_operators_or_as_text() -> None:
    values = ValueWriter(params={"n": "n"}, steps={"a": "a"}, items={"i": "i"}, by_name=frozenset(["later"]))
    shows = {
        "params.n > 1 && !(item.i == 2)": "(n > 1) & ~(i == 2)",
        "steps.a.outputs.rows[0]": "a.outputs['rows'][0]",
        'steps.a.outcome == "failed"': "a.outcome == 'failed'",
        "size(params.n) > 0": "n.size() > 0",
        "1 in params.n": "n.contains(1)",
        "params.n + 1": "'params.n + 1'",
        "steps.later.outputs.x": "'steps.later.outputs.x'",
    }
    assert {text: values.condition(Expr.of(text)) for text in shows} == shows
    assert values.value((1, {"k": Expr.of("params.n")}, "$")) == "[1, {'k': n}, '$']"


def test_parts_of_the_model_are_written_with_what_they_import() -> None:
    imports = Imports()
    assert ModelWriter(imports).built(Suspend(message="ok?")) == "Suspend(message='ok?')"
    assert ModelWriter(imports).part((Expr.of("a"),)) == "(Expr.of('a'), )"
    assert imports.text().splitlines() == [
        "from penstock import Workflow",
        "from penstock.expressions.parse import Expr",
        "from penstock.graph.model import Suspend",
    ]


def test_one_step_is_written_alone() -> None:
    values = ValueWriter(params={"xs": "xs"}, steps={"wait": "wait"})
    step = Step(
        name="wait", action=Suspend(), each=ForEach(axes=({"x": Expr.of("params.xs")},)), when=Expr.of("item.x")
    )
    text = StepWriter(Imports(), WrittenWorkflows(), values, step, "wait").text()
    assert text.splitlines() == [
        "@for_loop(x=xs)",
        "@when(lambda x: x)",
        "def wait(x):",
        "    return BaseJob('wait', Suspend())",
    ]
