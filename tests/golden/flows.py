"""Golden cases of what a graph can say: loops, conditions, outcomes, limits, called workflows. Called by test_golden.

On the scripted backend and the virtual clock, so that order and times are determined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import ScriptJob, Workflow, WorkflowParam, for_loop, task, when, while_loop, workflow
from tests.golden.stage import Cases, Stage

cases = Cases()
BROKEN = RuntimeError("broken")


def by_step(**answers: Any) -> Callable[[Any], Any]:
    """What the scripted backend answers, by the name of the step; a second and nothing else where nothing is said."""

    def script(order: Any) -> Any:
        answer = answers.get(order.step.name.replace("-", "_"), 1)
        return answer(order) if callable(answer) else answer

    return script


def job(name: str, *outputs: str, **options: Any) -> ScriptJob:
    return ScriptJob(name, f"do {name}", outputs=[WorkflowParam(one, int) for one in outputs], **options)


@cases.of("loops")
def loops(stage: Stage) -> None:
    """Over lists that are known before and lists that come out of a step; every combination, in step, none at all; fan-in."""
    make = ScriptJob("make", "make", outputs=[WorkflowParam("items", list[int]), WorkflowParam("none", list[int])])

    @for_loop(x=[1, 2], y=["a", "b"])
    def grid(x: Any, y: Any) -> ScriptJob:
        return ScriptJob("grid", f"grid {x} {y}")

    @for_loop(x=[1, 2], y=["a", "b"], zipped=True)
    def pairs(x: Any, y: Any) -> ScriptJob:
        return ScriptJob("pairs", f"pairs {x} {y}")

    @for_loop(i=make.outputs["items"])
    @when(lambda i: i != 20)
    def each(i: Any) -> ScriptJob:
        return ScriptJob("each", f"each {i}", inputs={"i": i}, outputs=[WorkflowParam("n", int)])

    @for_loop(i=make.outputs["none"])
    def nothing(i: Any) -> ScriptJob:
        return ScriptJob("nothing", f"nothing {i}", outputs=[WorkflowParam("n", int)])

    total = ScriptJob(
        "total",
        "total",
        inputs={"all": each.outputs["n"], "none": nothing.outputs["n"]},
        outputs=[WorkflowParam("n", int)],
    )
    flow = Workflow("loops", [make, grid, pairs, each, nothing, total], outputs={"n": total.outputs["n"]})
    script = by_step(
        make=(2, {"items": [30, 10, 20, 5], "none": []}),
        each=lambda order: (order.inputs["i"], {"n": order.inputs["i"] + 1}),
        total=lambda order: (1, {"n": sum(order.inputs["all"])}),
    )
    assert stage.virtually(flow, script=script).outputs == {"n": 48}


@task
def shards(n: int) -> list[int]:
    return list(range(n))


@task
def square(x: int) -> int:
    return x * x


@task
def add(xs: list[int]) -> int:
    return sum(xs)


@workflow
def inner(n: int, limit: int):
    y = add([n])
    while y < limit:
        y = add([y, y])
    return y


@workflow
def outer(n: int = 3, limit: int = 11):
    xs = shards(n)
    ys = [inner(2 * x + 3, limit) for x in xs]
    zs = [square(x) for x in xs if x != 1]
    total = add(ys)
    if total > 10:
        total = add([total, 1])
    else:
        total = add([total, 100])
    return [total, len(zs)]


@cases.of("functions-inline")
def functions_inline(stage: Stage) -> None:
    """A Python workflow inside the engine: called workflows in a loop, a while loop in each, a branch, a condition over items."""
    assert stage.run(outer, inline=True, jobs=1).outputs == {"result": [47, 2]}
    stage.run(outer, params={"n": 1, "limit": 1}, inline=True, jobs=1)


@cases.of("while-loops")
def while_loops(stage: Stage) -> None:
    """Tested before and after, with no round at all, at the limit with both ends, a round that fails."""
    n = [WorkflowParam("n", int)]

    def counting(name: str, start: int) -> ScriptJob:
        return ScriptJob(name, name, inputs={"n": start}, outputs=n)

    after = while_loop("outputs.n < 3", carry={"n": "n"})(counting("after", 0))
    before = while_loop("inputs.n < 2", carry={"n": "n"})(counting("before", 0))
    never = while_loop("inputs.n < 0", carry={"n": "n"})(counting("never", 7))
    stops = while_loop("outputs.n < 100", carry={"n": "n"}, max_iterations=2)(counting("stops", 0))
    last = ScriptJob("last", "last", inputs={"never": never.outputs["n"], "stops": stops.outputs["n"]})
    outputs = {job.name: job.outputs["n"] for job in (after, before, never, stops)}

    def up(order: Any) -> Any:
        return 1, {"n": order.inputs["n"] + 1}

    script = by_step(
        after=up, before=up, never=up, stops=up, fails=up, breaks=lambda o: up(o) if o.inputs["n"] < 1 else (1, BROKEN)
    )
    found = stage.virtually(Workflow("ends", [after, before, never, stops, last], outputs=outputs), script=script)
    assert found.outputs == {"after": 3, "before": 2, "never": 7, "stops": 2}
    fails = while_loop("outputs.n < 100", carry={"n": "n"}, max_iterations=2, at_limit="fail")(counting("fails", 0))
    breaks = while_loop("outputs.n < 100", carry={"n": "n"})(counting("breaks", 0))
    more = ScriptJob("more", "more", inputs={"n": fails.outputs["n"]})
    assert stage.virtually(Workflow("fails", [fails, breaks, more]), script=script).state == "failed"


@cases.of("conditions")
def conditions(stage: Stage) -> None:
    """What is skipped, what stands in for it, and what goes on."""
    ask = job("ask", "n")
    n = ask.outputs["n"]
    yes = when(n > 1)(job("yes", "x"))
    no = when(n > 100)(ScriptJob("no", "no", outputs=[WorkflowParam("x", int, 7)]))
    follows = job("follows", "x").after(no)
    reads = ScriptJob("reads", "reads", inputs={"x": no.outputs["x"]})

    @for_loop(i=[0, 1, 2])
    @when("item.i != 1 && params.loud")
    def some(i: Any) -> ScriptJob:
        return ScriptJob("some", f"some {i}")

    params = [WorkflowParam("loud", bool, True)]
    flow = Workflow("conditions", [ask, yes, no, follows, reads, some], params=params, outputs={"x": yes.outputs["x"]})
    script = by_step(ask=(1, {"n": 5}), yes=(2, {"x": 1}))
    assert stage.virtually(flow, script=script).state == "succeeded"
    stage.virtually(flow, {"loud": False}, by_step(ask=(1, {"n": 0})))


@cases.of("outcomes")
def outcomes(stage: Stage) -> None:
    """Steps that ask for failures, triggers over outcomes, failures that are tolerated, what is omitted, how a run is judged."""
    ended = ["succeeded", "failed", "errored", "skipped", "omitted"]

    def flow(judged_by: str) -> Workflow:
        a, b, c = job("a"), job("b"), job("c", tolerates=["failed"])
        mend = job("mend").after(a, outcomes=["failed"])
        behind = job("behind").after(a)
        far = job("far").after(behind)
        either = job("either", trigger='steps.a.outcome == "failed" && steps.b.outcome == "succeeded"').after(
            a, b, outcomes=ended
        )
        neither = job("neither", trigger="steps.a.outcome == steps.b.outcome").after(a, b, outcomes=ended)
        always = job("always").after(c, far, outcomes=ended)
        on_exit = [ScriptJob("tell", "the run ${{ workflow.outcome }}")]
        steps = [a, b, c, mend, behind, far, either, neither, always]
        return Workflow(f"by-{judged_by}", steps, judged_by=judged_by, on_exit=on_exit)

    script = by_step(a=(3, BROKEN), b=2, c=(1, BROKEN))
    assert stage.virtually(flow("handled"), script=script).state == "succeeded"
    stage.virtually(flow("leaves"), script=script)
    stage.virtually(flow("handled"), script=by_step())


@cases.of("limits")
def limits(stage: Stage) -> None:
    """So many at a time: of a loop, of a run with what it calls, of each call."""

    @for_loop(i=list(range(5)), parallel=2)
    def each(i: Any) -> ScriptJob:
        return ScriptJob("each", f"each {i}", inputs={"i": i})

    script = by_step(each=lambda order: 3 + order.inputs["i"] % 2, x=4, y=3, z=2)
    stage.virtually(Workflow("loop", [each, job("beside")]), script=script)

    steps = [job(name, cache=False) for name in "xyz"]
    calls = [Workflow("called", steps, parallel=1).as_job(name) for name in ("one", "two")]
    assert stage.virtually(Workflow("calls", [*calls, job("w")], parallel=2), script=script).seconds >= 10


@cases.of("fail-fast")
def fail_fast(stage: Stage) -> None:
    """After a failure nothing more starts, what runs may finish, items that have not begun are dropped, exit handlers run."""
    a, c = job("a"), job("c")
    d = job("d").after(c)

    @for_loop(i=list(range(6)), parallel=2)
    def each(i: Any) -> ScriptJob:
        return ScriptJob("each", f"each {i}", inputs={"i": i})

    flow = Workflow("asked", [a, c, d, each], on_exit=[job("bye")])
    script = by_step(a=(5, BROKEN), c=9, each=2)
    assert stage.virtually(flow, script=script, fail_fast=True).state == "failed"
    said = Workflow("said", [each, job("later").after(each)], fail_fast=True)
    stage.virtually(
        said, script=by_step(each=lambda order: (2 + order.inputs["i"], BROKEN) if order.inputs["i"] == 1 else 4)
    )


@cases.of("until")
def until(stage: Stage) -> None:
    """Only some steps and what they need."""
    a, b = job("a", "n"), job("b", "n")
    c = ScriptJob("c", "c", inputs={"n": a.outputs["n"]}, outputs=[WorkflowParam("n", int)])
    flow = Workflow("until", [a, b, c, job("d").after(c)], outputs={"n": c.outputs["n"]})
    stage.virtually(flow, until=["c"])
