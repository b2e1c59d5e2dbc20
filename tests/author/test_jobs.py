"""The object form: jobs, their dependencies and options, and the mistakes one makes with them."""

from __future__ import annotations

import json

import pytest

from penstock import (
    BaseJob,
    ContainerJob,
    FunctionJob,
    ResourceJob,
    ScriptJob,
    Workflow,
    WorkflowParam,
    for_loop,
    task,
    when,
    while_loop,
    workflow,
)
from penstock.errors import AuthorError, DocumentError
from penstock.expressions.evaluate import evaluate
from penstock.graph import model
from penstock.graph.codec import from_text, to_yaml
from penstock.graph.model import Outcome, edges_of
from penstock.plan.make import make


def codes(made: Workflow) -> list[str]:
    return [problem.code for problem in made.check()]


def test_the_example_of_the_design_builds_and_plans() -> None:
    prepare = ContainerJob(
        name="prepare",
        image="python:3.12",
        command=["python", "prep.py"],
        outputs=[WorkflowParam("rows", int)],
        cpu=2,
        memory="4Gi",
        retry=3,
        timeout=600,
    )

    @for_loop(items=[0.1, 0.01])
    @when(prepare.outputs["rows"] > 1000)
    def train(lr: float) -> ContainerJob:
        return ContainerJob(name="train", image="trainer:1", args=["--lr", lr], gpu=8, replicas=4)

    made = Workflow(name="finetune", steps=[prepare, train], queue="team-a", unit="stage")
    assert codes(made) == []
    plan = make(made.graph)
    assert plan.peaks["nvidia.com/gpu"].amount == 2 * 4 * 8 * 1000
    assert [stage.queue for stage in plan.stages] == ["team-a", "team-a"]
    assert edges_of(made.graph.steps[1]) == {"prepare": frozenset({Outcome.SUCCEEDED, Outcome.SKIPPED})}


def test_dependencies_come_from_outputs_wherever_they_are_used() -> None:
    a = ContainerJob("a", "i", outputs=[WorkflowParam("x", str)])
    uses = [
        ContainerJob("args", "i", args=["--x", a.outputs["x"]]),
        ContainerJob("text", "i", args=[f"--x={a.outputs['x']}"]),
        ContainerJob("env", "i", env={"X": a.outputs["x"]}),
        ContainerJob("image", f"repo/{a.outputs['x']}"),
        ScriptJob("script", f"echo {a.outputs['x']}"),
        ResourceJob("resource", {"kind": "Pod", "metadata": {"name": a.outputs["x"]}}),
        ContainerJob("when", "i", when=a.outputs["x"] == "go"),
        ContainerJob("inputs", "i", inputs={"x": a.outputs["x"]}),
        ContainerJob("after", "i").after(a),
        ContainerJob("named", "i").after("a", outcomes="failed"),
    ]
    made = Workflow("w", [a, *uses])
    assert codes(made) == []
    assert all("a" in edges_of(step) for step in made.graph.steps[1:])
    assert edges_of(made.graph.steps[-1])["a"] == {Outcome.FAILED}


def test_a_job_is_reused_with_other_resources() -> None:
    train = ContainerJob(
        "train",
        "trainer:1",
        inputs=[WorkflowParam("lr", float)],
        args=["--lr", "${{ inputs.lr }}"],
        gpu=8,
        memory="4Gi",
    )
    small = train.options(name="small", gpu=1)
    first = Workflow("first", [train(lr=0.1)])
    second = Workflow("second", [train(lr=0.1), small(lr=0.2)])
    assert first.graph.steps[0] == second.graph.steps[0]
    assert dict(second.graph.steps[1].resources) == {"memory": 4 * 2**30 * 1000, "nvidia.com/gpu": 1000}
    assert make(first.graph).keys.keys["train"] == make(second.graph).keys.keys["train"]


def test_a_task_is_reused_in_both_forms_with_other_resources() -> None:
    @task(cpu=4, memory="1Gi")
    def fit(x: int) -> int:
        return x

    made = Workflow("w", [fit.job(x=1), fit.options(cpu=1).job("again", x=2)])
    assert [dict(step.resources)["cpu"] for step in made.graph.steps] == [4000, 1000]
    assert fit(3) == 3 and fit.options(cpu=1)(3) == 3


def test_a_list_of_jobs_in_a_loop_is_one_nested_step_that_closes_over_its_surroundings() -> None:
    source = WorkflowParam("source", str)
    a = ContainerJob("a", "i", outputs=[WorkflowParam("shards", list[str])])

    @for_loop(shard=a.outputs["shards"])
    def both(shard: str) -> list[ContainerJob]:
        one = ContainerJob("one", "i", args=[shard, source], outputs=[WorkflowParam("y", int)])
        return [
            one,
            ContainerJob("two", "i", args=[one.outputs["y"], a.outputs["shards"]], outputs=[WorkflowParam("z", int)]),
        ]

    made = Workflow("w", [a, both], params=[source], outputs={"z": both.outputs["z"]})
    assert codes(made) == []
    inner = made.graph.definitions[0]
    assert sorted(param.name for param in inner.params) == ["a_shards", "shard", "source"]
    assert str(made.graph.outputs[0].type) == "list[int]"


def test_while_loops_carry_and_are_tested_where_their_condition_can_be() -> None:
    @while_loop(lambda r: r.outputs["loss"] > 0.1, carry={"w": "w"}, max_iterations=7)
    def after() -> ContainerJob:
        return ContainerJob(
            "after",
            "i",
            inputs=[WorkflowParam("w", str, "0")],
            outputs=[WorkflowParam("w", str), WorkflowParam("loss", float)],
        )

    @while_loop("inputs.n < 3", carry={"n": "n"})
    def before() -> ContainerJob:
        return ContainerJob("before", "i", inputs=[WorkflowParam("n", int, 0)], outputs=[WorkflowParam("n", int)])

    made = Workflow("w", [after, before])
    assert codes(made) == []
    loops = [step.loop for step in made.graph.steps]
    assert [(loop.test, loop.max_iterations) for loop in loops if loop] == [("after", 7), ("before", 100)]


def test_a_workflow_is_a_step_of_another() -> None:
    inner = Workflow("inner", [ContainerJob("one", "i", args=["${{ params.n }}"])], params=[WorkflowParam("n", int)])
    outer = Workflow("outer", [inner.as_job("x", {"n": 1}), inner.as_job("y", {"n": 2})])
    assert codes(outer) == []
    assert [definition.name for definition in outer.graph.definitions] == ["inner"]
    with pytest.raises(AuthorError, match="P210"):
        Workflow("outer", [inner.as_job("x", {"n": 1}), Workflow("inner", []).as_job("y")])


MISTAKES = {
    "a negative amount": (lambda: ContainerJob("a", "i", cpu=-1), "P230"),
    "not a quantity": (lambda: ContainerJob("a", "i", memory="4GB"), "P108"),
    "an unknown option": (lambda: ContainerJob("a", "i", cpus=1), "P305"),
    "a command that is text": (lambda: ContainerJob("a", "i", command="python x.py"), "P305"),
    "a name with a space": (lambda: ContainerJob("a b", "i"), "P211"),
    "an output that is not declared": (lambda: ContainerJob("a", "i").outputs["x"], "P202"),
    "an output declared as text": (lambda: ContainerJob("a", "i", outputs=["x"]), "P307"),
    "a value that is not data": (lambda: ContainerJob("a", "i", args=[object()]), "P307"),
    "a broken expression": (lambda: ContainerJob("a", "i", args=["${{ a b }}"]), "P110"),
    "an expression without an end": (lambda: ContainerJob("a", "i", args=["${{ a"]), "P110"),
    "python's and": (
        lambda: ContainerJob("a", "i", when=(WorkflowParam("x", int) > 1) and (WorkflowParam("y", int) > 2)),
        "P306",
    ),
    "python's not": (lambda: not WorkflowParam("x", int), "P306"),
    "python's for": (lambda: [x for x in WorkflowParam("x", list[int])], "P306"),
    "python's len": (lambda: len(WorkflowParam("x", list[int])), "P306"),
    "an unknown outcome": (lambda: ContainerJob("a", "i").after("b", outcomes=["broken"]), "P305"),
    "after something else": (lambda: ContainerJob("a", "i").after(3), "P307"),
    "a step that is none": (lambda: Workflow("w", [3]), "P307"),
    "a unit that is none": (lambda: Workflow("w", [], unit="step"), "P305"),
    "a parameter that is text": (lambda: Workflow("w", [], params=["x"]), "P307"),
    "an input that nothing fills": (
        lambda: Workflow("w", [ContainerJob("a", "i", inputs=[WorkflowParam("x", int)])]),
        "P309",
    ),
    "an input that is not there": (lambda: ContainerJob("a", "i")(x=1), "P309"),
    "a function's unknown input": (lambda: FunctionJob("a", lambda x: x, {"y": 1}), "P309"),
    "a builtin as a function": (lambda: FunctionJob("a", print), "P307"),
    "a manifest that is a list": (lambda: ResourceJob("a", "[1]"), "P307"),
    "a loop over nothing": (lambda: for_loop()(lambda x: x), "P310"),
    "a loop over a number": (lambda: for_loop(items=3), "P310"),
    "a loop variable too many": (lambda: for_loop(y=[1])(lambda x: x), "P310"),
    "a loop over a finished job": (lambda: for_loop(items=[1])(ContainerJob("a", "i")), "P310"),
    "a parameter that no loop fills": (lambda: Workflow("w", [when("true")(lambda x: ContainerJob("a", "i"))]), "P310"),
    "a loop that returns no job": (lambda: for_loop(items=[1])(lambda x: 3), "P307"),
    "a duration that is none": (lambda: ContainerJob("a", "i", timeout="soon"), "P305"),
    "a retry that is none": (lambda: ContainerJob("a", "i", retry="often"), "P305"),
    "a toleration that is none": (lambda: ContainerJob("a", "i", tolerations=[{"taint": "x"}]), "P305"),
    "two outputs as one value": (lambda: ContainerJob("b", "i", args=[ContainerJob("a", "i")]), "P307"),
    "a class as a task": (lambda: task(int), "P305"),
    "an option that no task has": (lambda: task(gpus=1)(lambda: 1), "P305"),
    "an option that no workflow has": (lambda: workflow(queues="a")(lambda: 1), "P305"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_error_at_the_authors_line(name: str) -> None:
    mistake, code = MISTAKES[name]
    with pytest.raises(AuthorError) as found:
        mistake()
    problem = found.value.problems[0]
    assert problem.code == code
    assert problem.fix and problem.source is not None and problem.source.file == __file__


def test_a_manifest_in_broken_yaml_is_a_document_error() -> None:
    with pytest.raises(DocumentError, match="P102"):
        ResourceJob("a", "a: [")


CONDITIONS = {
    "status.jobStatus == SUCCEEDED, status.failed < 1": True,
    "status.jobStatus == FAILED": False,
    "status.jobStatus == 'SUCCEEDED' && status.failed == 0": True,
    "status.jobStatus == SUCCEEDED && status.failed == 1": False,
    "status.jobStatus in (SUCCEEDED, STOPPED)": True,
    "{.status.jobStatus} == SUCCEEDED": True,
    '{.status.conditions[?(@.type=="Ready")].status} == True': True,
    '{.status.conditions[?(@.type=="Ready")].status} != True': False,
    "{.status.conditions[*].type} notin (Ready, Lost)": False,
    "{.status.conditions[*].since} > 4": True,
    '{.status.conditions[?(@.type=="Lost")]}': False,
    "status.conditions.0.type = Ready": True,
    "metadata.labels.my-team != a": True,
}


@pytest.mark.parametrize("text", CONDITIONS)
def test_the_conditions_of_a_resource_may_be_written_as_for_argo_and_kubectl(text: str) -> None:
    status = {"jobStatus": "SUCCEEDED", "failed": 0, "conditions": [{"type": "Ready", "status": "True", "since": 5}]}
    scope = {"object": {"status": status, "metadata": {"labels": {}}}, "status": status}
    job = ResourceJob("a", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}, success_condition=text)
    assert isinstance(job.action, model.Resource) and job.action.success_condition is not None
    assert evaluate(job.action.success_condition, scope) is CONDITIONS[text]
    assert not Workflow("w", [job]).check()
    as_yaml = json.dumps(text)
    document = f"""
apiVersion: penstock/v1
kind: Workflow
name: w
steps:
- name: a
  resource: {{manifest: {{apiVersion: v1, kind: Pod, metadata: {{name: x}}}}, success_condition: {as_yaml}}}
"""
    assert from_text(document) == Workflow("w", [job]).graph == from_text(to_yaml(Workflow("w", [job]).graph))


def test_several_conditions_of_failure_fail_if_any_of_them_holds() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
    job = ResourceJob("a", pod, failure_condition="status.phase == Failed, status.restarts > 3")
    assert isinstance(job.action, model.Resource) and job.action.failure_condition is not None
    assert evaluate(job.action.failure_condition, {"object": {"status": {"phase": "Running", "restarts": 4}}}) is True
    for wrong in ("status.phase ==", "status.phase == a b", ", status.x", "{.status.x} like y"):
        with pytest.raises(AuthorError, match="P110"):
            ResourceJob("a", pod, failure_condition=wrong)


def test_a_plain_call_of_a_workflow_with_a_container_says_why_it_cannot_run() -> None:
    box = ContainerJob("box", "i", outputs=[WorkflowParam("x", int)])

    @workflow
    def flow() -> object:
        return box()

    assert flow.graph.steps[0].name == "box"
    with pytest.raises(AuthorError, match="P308"):
        flow()


def test_jobs_are_called_in_workflow_functions_with_their_inputs() -> None:
    box = ContainerJob(
        "box",
        "i",
        inputs=[WorkflowParam("n", int)],
        args=["${{ inputs.n }}"],
        outputs=[WorkflowParam("x", int), WorkflowParam("y", int)],
    )

    @workflow
    def flow(n: int) -> object:
        first = box(n=n)
        return box(n=first.y)

    graph = flow.graph
    assert [step.name for step in graph.steps] == ["box", "box-2"]
    assert graph.steps[1].inputs[0].value.text == "steps.box.outputs.y"
    assert flow.check() == []


def test_base_job_takes_any_action() -> None:
    from penstock.graph.model import Http, Suspend

    ask = BaseJob("ask", Suspend(message=f"ok, {WorkflowParam('who', str)}?"))
    call = BaseJob("call", Http(url="http://x")).after(ask)
    assert codes(Workflow("w", [ask, call], params=[WorkflowParam("who", str)])) == []


def test_a_workflow_function_has_exit_handlers() -> None:
    @task
    def clean(outcome: str) -> None:
        pass

    @task
    def notify() -> None:
        pass

    @workflow(on_exit=[clean.job(outcome="${{ workflow.outcome }}"), notify])
    def flow() -> None:
        notify()

    assert flow.check() == []
    assert [step.name for step in flow.graph.on_exit] == ["clean", "notify-2"]


def test_reading_what_may_be_skipped_is_a_warning_until_it_is_settled() -> None:
    def flow(default: object = None, same: bool = False, succeeded: bool = False) -> Workflow:
        n = WorkflowParam("n", int, 1)
        output = WorkflowParam("x", int) if default is None else WorkflowParam("x", int, default)
        a = ContainerJob("a", "i", when=n > 3, outputs=[output])
        b = ContainerJob("b", "i", args=[a.outputs["x"]], when=(n > 3) & (n < 9) if same else None)
        return Workflow("w", [a, b.after(a, outcomes=["succeeded"]) if succeeded else b], params=[n])

    assert codes(flow()) == ["P224"]
    assert codes(flow(default=0)) == codes(flow(same=True)) == codes(flow(succeeded=True)) == []
    assert make(flow().graph).warnings[0].severity == "warning"


def test_a_comparison_keeps_its_sides() -> None:
    n, a = WorkflowParam("n", int), ContainerJob("a", "i", outputs=[WorkflowParam("x", int)])
    made = [str(a.outputs["x"] < n), str(n < a.outputs["x"]), str(a.outputs["x"] == n)]
    assert made == [
        "${{ steps.a.outputs.x < params.n }}",
        "${{ params.n < steps.a.outputs.x }}",
        "${{ steps.a.outputs.x == params.n }}",
    ]


def test_a_loop_over_a_task_is_bounded_or_a_gang_by_its_options() -> None:
    @task(cpu=1, parallel=2)
    def few(x: int) -> int:
        return x

    @workflow
    def flow(xs: list[int]) -> object:
        return [few(x) for x in xs], [few.options(parallel=None, gang=True)(x) for x in xs]

    loops = [step.each for step in flow.graph.steps]
    assert [(loop.parallel, loop.gang) for loop in loops if loop] == [(2, False), (None, True)]
    plan = make(flow.graph, {"xs": [1, 2, 3]}, unit="task")
    assert [(each.count.count, each.peak["cpu"]) for each in plan.reservations] == [(3, 1000), (1, 3000)]


def test_waiting_without_using_is_an_edge() -> None:
    @task
    def first() -> None:
        pass

    @task
    def then(x: int) -> None:
        pass

    @workflow
    def flow() -> None:
        done = first()
        then.after(done)(1)

    assert edges_of(flow.graph.steps[1]).keys() == {"first"}
    flow()


def test_numbers_that_json_does_not_have_are_refused() -> None:
    with pytest.raises(AuthorError, match="P307"):
        ContainerJob("a", "i", args=[float("inf")])


def test_who_asks_how_a_step_ended_goes_on_whatever_the_answer() -> None:
    a = ContainerJob("a", "i", outputs=[WorkflowParam("x", int)])
    rollback = ContainerJob("rollback", "i", when=a.outcome == "failed")
    reads = ContainerJob("reads", "i", args=[a.outputs["x"]], when=a.outcome == "succeeded")
    made = Workflow("w", [a, rollback, reads])
    assert codes(made) == []
    assert Outcome.FAILED in edges_of(made.graph.steps[1])["a"]
    assert Outcome.FAILED not in edges_of(made.graph.steps[2])["a"]
