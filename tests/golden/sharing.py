"""Golden cases of results that are known or being computed: reuse, sharing, the author's own keys, locks. Called by test_golden."""

from __future__ import annotations

from typing import Any

from penstock import Cache, ScriptJob, Workflow, WorkflowParam, task, workflow
from tests.golden.stage import Cases, Stage, until_there_is

cases = Cases()


@task
def prepare(n: int) -> list[int]:
    return list(range(n))


@task
def train(x: int, rate: float) -> float:
    return x * rate


@task
def best(scores: list[float]) -> float:
    return max(scores)


@task(cache=False)
def stamp(score: float) -> str:
    return f"best {score}"


@task(cache=Cache(version="2", ttl=3600))
def aged(score: float) -> float:
    return score


@workflow
def tuned(n: int = 3, rate: float = 0.5):
    scores = [train(x, rate) for x in prepare(n)]
    found = aged(best(scores))
    stamp(found)
    return found


@cases.of("reuse")
def reuse(stage: Stage) -> None:
    """All of it the second time, what is new the third, nothing with `fresh`; what must always run does."""
    with stage.engine(inline=True, jobs=1) as submit:
        stage.ends(submit(tuned))
        stage.ends(submit(tuned))
        stage.ends(submit(tuned, n=4))
    stage.run(tuned, params={"n": 2}, inline=True, jobs=1, fresh=True)
    stage.run(tuned, params={"n": 2}, inline=True, jobs=1)


@cases.of("reuse-of-commands")
def reuse_of_commands(stage: Stage) -> None:
    """The same text and inputs, under another name and in another workflow; and what was done on the host is not done in an image."""
    n = [WorkflowParam("n", int)]

    def flow(name: str, *steps: str) -> Workflow:
        jobs = [ScriptJob(one, "expr $PENSTOCK_REPLICAS + 1 > $PENSTOCK_OUTPUTS/n", outputs=n) for one in steps]
        again = ScriptJob("again", "echo ${{ inputs.n }}", inputs={"n": jobs[0].outputs["n"]})
        return Workflow(name, [*jobs, again], outputs={"n": jobs[-1].outputs["n"]}, parallel=1)

    with stage.engine(jobs=1) as submit:
        stage.ends(submit(flow("one", "a")))
        stage.ends(submit(flow("two", "b", "c")))


def heavy(name: str, fails: bool = False) -> Workflow:
    end = "exit 9" if fails else "echo 42 > $PENSTOCK_OUTPUTS/n"
    job = ScriptJob("heavy", f"{until_there_is('go')}\n{end}", outputs=[WorkflowParam("n", int)])
    mine = ScriptJob("mine", f"echo {name} ${{{{ inputs.n }}}}", inputs={"n": job.outputs["n"]})
    return Workflow(name, [job, mine], outputs={"n": job.outputs["n"]})


@cases.of("sharing-in-one-engine")
def sharing_in_one_engine(stage: Stage) -> None:
    """Two runs need the same at the same moment: one computes it; a third that asks and is cancelled leaves the others alone."""
    with stage.engine(jobs=2) as submit:
        first = submit(heavy("first"))
        stage.until_state(first.id, "heavy", "running")
        second = submit(heavy("second"))
        stage.until_state(second.id, "heavy", "waiting")
        third = submit(heavy("third"))
        stage.until_state(third.id, "heavy", "waiting")
        stage.look("two wait for one")
        third.cancel()
        stage.ends(third, "cancelled")
        stage.open("go")
        stage.ends(first)
        stage.ends(second)


@cases.of("sharing-of-a-failure")
def sharing_of_a_failure(stage: Stage) -> None:
    """It has failed for both, and is run again by the next."""
    with stage.engine(jobs=2) as submit:
        first = submit(heavy("first", fails=True))
        stage.until_state(first.id, "heavy", "running")
        second = submit(heavy("second", fails=True))
        stage.until_state(second.id, "heavy", "waiting")
        stage.open("go")
        stage.ends(first, "failed")
        stage.ends(second, "failed")
        stage.ends(submit(heavy("third", fails=True)), "failed")


@cases.of("sharing-when-the-owner-goes")
def sharing_when_the_owner_goes(stage: Stage) -> None:
    """The run that computes is cancelled: what runs goes on under the one that has waited longest."""
    with stage.engine(jobs=2) as submit:
        first = submit(heavy("first"))
        stage.until_state(first.id, "heavy", "running")
        second = submit(heavy("second"))
        stage.until_state(second.id, "heavy", "waiting")
        third = submit(heavy("third"))
        stage.until_state(third.id, "heavy", "waiting")
        first.cancel()
        stage.ends(first, "cancelled")
        stage.look("the first has gone")
        stage.open("go")
        stage.ends(second)
        stage.ends(third)


@cases.of("sharing-between-engines")
def sharing_between_engines(stage: Stage) -> None:
    """The same from two terminals: one waits for the lease of the other."""
    stage.write("flow.yaml", heavy("first").to_yaml())
    first = stage.begin("run", "flow.yaml", "-q", "-j", "1")
    stage.until_state("first-1", "heavy", "running")
    with stage.engine(jobs=2) as submit:
        second = submit(heavy("second"))
        stage.until_state(second.id, "heavy", "waiting")
        stage.look("one waits for the other")
        stage.open("go")
        stage.ends(second)
    first.ends()


@cases.of("memo")
def memo(stage: Stage) -> None:
    """The author says what is the same: steps, and called workflows, which are not entered when their result is known."""
    stage.write(
        "memo.yaml",
        """
apiVersion: penstock/v1
kind: Workflow
name: memo
parallel: 1
steps:
- name: a
  script: {source: "echo first > $PENSTOCK_OUTPUTS/x"}
  outputs: [{name: x, type: str}]
  cache: {key: "word-${{ inputs.i }}"}
  inputs: [{name: i, value: 1}]
- name: b
  needs: [a]
  script: {source: "echo second > $PENSTOCK_OUTPUTS/x"}
  outputs: [{name: x, type: str}]
  cache: {key: word-1}
- name: fib
  workflow: {name: fib}
  needs: [b]
  inputs: [{name: n, value: 4}]
  cache: {key: "fib-${{ inputs.n }}"}
- name: again
  workflow: {name: fib}
  needs: [fib]
  inputs: [{name: n, value: 3}]
  cache: {key: "fib-${{ inputs.n }}"}
definitions:
- name: fib
  params: [{name: n, type: int}]
  steps:
  - name: less
    script: {source: "expr ${{ params.n }} - 1 > $PENSTOCK_OUTPUTS/n"}
    when: params.n > 2
    outputs: [{name: n, type: int}]
  - name: one
    workflow: {name: fib}
    when: params.n > 2
    inputs: [{name: n, value: "${{ steps.less.outputs.n }}"}]
    cache: {key: "fib-${{ inputs.n }}"}
  - name: two
    workflow: {name: fib}
    when: params.n > 2
    needs: [one]
    inputs: [{name: n, value: "${{ steps.less.outputs.n - 1 }}"}]
    cache: {key: "fib-${{ inputs.n }}"}
  outputs: [{name: f, type: int, value: "${{ params.n > 2 ? steps.one.outputs.f + steps.two.outputs.f : 1 }}"}]
outputs:
- {name: b, value: "${{ steps.b.outputs.x }}"}
- {name: f, value: "${{ steps.fib.outputs.f + steps.again.outputs.f }}"}
""",
    )
    stage.type("run", "memo.yaml", "-q", "-j", "1")
    stage.type("run", "memo.yaml", "-q", "-j", "1")


# -- locks ------------------------------------------------------------------------------------------------------------------


def held(name: str, go: str, **options: Any) -> ScriptJob:
    return ScriptJob(name, until_there_is(go), cache=False, **options)


@cases.of("locks")
def locks(stage: Stage) -> None:
    """Of tasks in two runs, of a run as a whole, of a called workflow; who waits says for whom."""
    with stage.engine(jobs=8) as submit:
        first = submit(Workflow("first", [held("a", "go-1", locks=["db"])]))
        stage.until_state(first.id, "a", "running")
        second = submit(Workflow("second", [held("b", "go-2", locks=["other", "db"])]))
        stage.until_state(second.id, "b", "waiting")
        whole = submit(Workflow("whole", [held("c", "go-3")], locks=["db"], on_exit=[held("bye", "go-3")]))
        stage.until_event(whole.id, "run.waiting")
        called = Workflow("called", [held("x", "go-4"), held("y", "go-4").after("x")], locks=["free"]).as_job("call")
        calls = submit(Workflow("calls", [called, held("z", "go-4", locks=["free"]).after("call")]))
        stage.until_state(calls.id, "call/x", "running")
        stage.look("one holds, two wait; a call holds another")
        stage.open("go-4")
        stage.ends(calls)
        stage.open("go-1")
        stage.ends(first)
        stage.until_state(second.id, "b", "running")
        stage.look("the second holds both")
        stage.open("go-2")
        stage.ends(second)
        stage.until_state(whole.id, "c", "running")
        stage.open("go-3")
        stage.ends(whole)


@cases.of("semaphore")
def semaphore(stage: Stage) -> None:
    """Two of four may hold it; each item waits for its turn, in order."""
    stage.write(
        "semaphore.yaml",
        """
apiVersion: penstock/v1
kind: Workflow
name: semaphore
steps:
- name: each
  each: {axes: [{i: [0, 1, 2, 3]}]}
  inputs: [{name: i, value: "${{ item.i }}"}]
  script: {source: "WAIT"}
  locks: [{name: "licence-${{ run.id }}", limit: 2}]
  cache: {enabled: false}
""".replace("WAIT", until_there_is("go-${{ inputs.i }}")),
    )
    run = stage.begin("run", "semaphore.yaml", "-q", "-j", "8")
    stage.until_event("semaphore-1", "task.waiting", times=2)
    stage.until_state("semaphore-1", "each[1]", "running")
    stage.look("two hold, two wait")
    stage.open("go-1")
    stage.until_state("semaphore-1", "each[2]", "running")
    stage.open("go-2")
    stage.until_state("semaphore-1", "each[3]", "running")
    stage.open("go-3")
    stage.until_state("semaphore-1", "each[3]", "succeeded")
    stage.open("go-0")
    run.ends()
