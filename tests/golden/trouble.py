"""Golden cases of what goes wrong: tries, time limits, exit handlers, runs that are tried again. Called by test_golden."""

from __future__ import annotations

from typing import Any

from penstock import Backoff, Retry, ScriptJob, Workflow, WorkflowParam, task, workflow
from tests.golden.flows import BROKEN, by_step, job
from tests.golden.stage import Cases, Stage

cases = Cases()


@cases.of("retries")
def retries(stage: Stage) -> None:
    """Waits that grow, tries that are used up, what is not worth another try, a called workflow that is called again."""
    patient = Retry(limit=3, backoff=Backoff(initial=10, factor=2, longest=25, jitter=0))
    picky = Retry(limit=3, backoff=Backoff(initial=1, jitter=0), exceptions=("KeyError",))
    brief = Retry(limit=9, backoff=Backoff(initial=10, factor=1, jitter=0), within=25)
    call = Workflow("called", [job("x"), job("y").after("x")]).as_job(
        "call", retry=Retry(limit=1, backoff=Backoff(initial=60, jitter=0))
    )
    steps = [
        job("mends", retry=patient),
        job("gives-up", retry=patient),
        job("picky", retry=picky),
        job("brief", retry=brief),
        job("once"),
        job("behind").after("gives-up"),
        call,
    ]
    calls: list[str] = []

    def y(order: Any) -> Any:
        calls.append(order.task)
        return (2, BROKEN) if len(calls) == 1 else 2

    script = by_step(
        mends=lambda order: (5, BROKEN) if order.attempt < 3 else 5,
        gives_up=(4, BROKEN),
        picky=(3, BROKEN),
        brief=(7, BROKEN),
        once=(2, BROKEN),
        y=y,
    )
    assert stage.virtually(Workflow("retries", steps), script=script).state == "failed"


@cases.of("tries-of-commands")
def tries_of_commands(stage: Stage) -> None:
    """Tries that hang on the exit code and on what is known of the try, and how commands fail."""
    stage.write(
        "tries.yaml",
        """
apiVersion: penstock/v1
kind: Workflow
name: tries
parallel: 1
steps:
- name: code
  script: {source: "echo try; test -e tried || { touch tried; exit 75; }"}
  retry: {limit: 2, exit_codes: [75], backoff: {initial: 0.01, factor: 1, jitter: 0}}
- name: other-code
  needs: [code]
  script: {source: "exit 3"}
  retry: {limit: 2, exit_codes: [75], backoff: {initial: 0.01, factor: 1, jitter: 0}}
  tolerates: [failed]
- name: said
  needs: [code]
  script: {source: "echo number ${{ attempt.number }}; exit 4"}
  retry: {limit: 5, when: "attempt.number < 2 && attempt.exit_code == 4", backoff: {initial: 0.01, factor: 1, jitter: 0}}
  tolerates: [failed]
- name: silent
  needs: [code]
  script: {source: "true"}
  outputs: [{name: n, type: int}]
  tolerates: [failed]
- name: wrong
  needs: [code]
  script: {source: "echo many > $PENSTOCK_OUTPUTS/n"}
  outputs: [{name: n, type: int}]
  tolerates: [failed]
- name: missing
  needs: [code]
  container: {image: i, command: [no-such-command]}
  tolerates: [errored]
- name: signal
  needs: [code]
  script: {source: "kill -TERM $$"}
  tolerates: [failed]
- name: behind
  needs: [signal]
  script: {source: "true"}
- name: last
  needs: [{step: signal, outcomes: [failed]}]
  script: {source: "echo ${{ steps.signal.exit_code }}"}
""",
    )
    stage.type("run", "tries.yaml", "-q", "--on", "container=process", "-j", "1")


@cases.of("time-limits")
def time_limits(stage: Stage) -> None:
    """Of a task, with another try and without; of a called workflow; of a run, with an exit handler."""
    again = Retry(limit=1, backoff=Backoff(initial=5, jitter=0), on=("timeout",))
    steps = [job("slow", timeout=30), job("tried", timeout=20, retry=again), job("behind").after("slow")]
    script = by_step(slow=1000, tried=lambda order: 1000 if order.attempt == 1 else 3)
    stage.virtually(Workflow("of-tasks", steps), script=script)

    called = Workflow("called", [job("x"), job("y").after("x")], on_exit=[job("z")])
    flow = Workflow("of-calls", [called.as_job("call", timeout=50), job("beside")])
    stage.virtually(flow, script=by_step(x=1000, beside=100))

    flow = Workflow("of-the-run", [job("a"), job("b").after("a")], timeout=50, on_exit=[job("bye")])
    assert stage.virtually(flow, script=by_step(a=1000)).state == "failed"


@cases.of("time-limit-of-a-command")
def time_limit_of_a_command(stage: Stage) -> None:
    """A real process is asked to end."""
    slow = ScriptJob("slow", "exec sleep 60", timeout=0.05, cache=False)
    last = ScriptJob("last", "echo ${{ steps.slow.outcome }}").after(slow, outcomes=["failed"])
    stage.run(Workflow("stopped", [slow, last]), jobs=1)


@cases.of("exit-handlers")
def exit_handlers(stage: Stage) -> None:
    """They run however it ended, are told how, may fail themselves, and are never reused; so do those of a called workflow."""
    told = ScriptJob(
        "told", "told", inputs={"outcome": "${{ workflow.outcome }}", "failures": "${{ workflow.failures }}"}
    )
    called = Workflow("called", [job("x")], on_exit=[job("after-x")]).as_job("call")
    flow = Workflow("exits", [job("a"), called], on_exit=[told, job("second")])
    assert stage.virtually(flow).state == "succeeded"
    assert stage.virtually(flow, script=by_step(a=(2, BROKEN), x=(3, BROKEN)), fresh=True).state == "failed"
    assert stage.virtually(flow, script=by_step(second=(2, BROKEN))).state == "failed"


@task
def load(n: int) -> list[int]:
    return list(range(n))


@task
def work(i: int) -> int:
    from pathlib import Path

    if i == 1 and not Path("mended").exists():
        raise ValueError(f"cannot do {i}")
    return 10 * i


@task
def total(xs: list[int]) -> int:
    return sum(xs)


@workflow(on_exit=[total.job("count", xs=[1])])
def sums(n: int):
    return total([work(i) for i in load(n)])


@cases.of("retry-of-a-run")
def retry_of_a_run(stage: Stage) -> None:
    """What failed is tried again with the code of then, what succeeded is kept; with functions inside the engine, whose
    traceback is kept, and on the virtual clock."""
    first = stage.run(sums, "failed", {"n": 3}, inline=True, jobs=1)
    stage.open("mended")
    stage.type("retry", first.id, "-q", "-j", "1")

    fails = [True]
    call = Workflow("called", [job("x"), job("y").after("x")]).as_job("call")
    flow = Workflow("again", [job("a"), call, job("b").after("a", "call")], on_exit=[job("bye")])
    script = by_step(y=lambda order: (2, BROKEN) if fails else 2)
    assert stage.virtually(flow, script=script).state == "failed"
    fails.clear()
    assert stage.virtually(flow, script=script, retried="ana").state == "succeeded"


@cases.of("missing-values")
def missing_values(stage: Stage) -> None:
    """Expressions that have no value, lists of different lengths, an output of the run that nobody gave."""
    a = ScriptJob("a", "a", outputs=[WorkflowParam("xs", list[int])])
    beyond = ScriptJob("beyond", "beyond", inputs={"x": a.outputs["xs"][5]})
    flow = Workflow("missing", [a, beyond, job("behind").after(beyond)], outputs={"x": a.outputs["xs"][7]})
    assert stage.virtually(flow, script=by_step(a=(1, {"xs": [1]}))).state == "failed"
    assert stage.virtually(flow, script=by_step(a=(1, {"xs": "no list"})), fresh=True).state == "failed"
