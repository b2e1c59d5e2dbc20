"""Golden cases of runs that somebody steps into: cancelled, interrupted, walked through. Called by test_golden."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from penstock import ScriptJob, Workflow, WorkflowParam, for_loop
from tests.golden.flows import by_step, job
from tests.golden.sharing import held
from tests.golden.stage import Cases, Command, Stage, until_there_is

cases = Cases()


@cases.of("cancel")
def cancel(stage: Stage) -> None:
    """From another terminal: what runs is stopped, what waits does not start, exit handlers run; with --now they do not."""

    @for_loop(i=list(range(3)), parallel=1)
    def each(i: Any) -> ScriptJob:
        return ScriptJob("each", f"each {i}")

    called = Workflow("called", [job("x"), job("y").after("x")], on_exit=[job("z")]).as_job("call")
    flow = Workflow("cancelled", [job("a"), each, called, job("b").after("a")], on_exit=[job("bye")])
    for words in ((), ("--now",)):
        asked: list[Command] = []

        async def meanwhile(words: tuple[str, ...] = words, asked: list[Command] = asked) -> None:
            await asyncio.sleep(15.1)
            asked.append(stage.begin("cancel", "@", *words))
            stage.until("it is asked for", lambda: stage.query("SELECT * FROM requests"))

        script = by_step(a=3, each=10, x=100, b=200)
        assert stage.virtually(flow, script=script, fresh=True, meanwhile=meanwhile).state == "cancelled"
        asked[0].ends()


@cases.of("cancel-of-commands")
def cancel_of_commands(stage: Stage) -> None:
    """Real processes: one that ends when it is asked to, one that is made to; and a run that nobody is at."""
    stubborn = ScriptJob("stubborn", "trap '' TERM; touch begun; until [ -e over ]; do sleep 0.01; done", cache=False)
    with stage.engine(jobs=4) as submit:
        polite = submit(
            Workflow("polite", [held("a", "never"), job("b").after("a")], on_exit=[ScriptJob("bye", "true")])
        )
        stage.until_state(polite.id, "a", "running")
        polite.cancel()
        stage.ends(polite, "cancelled")
        rude = submit(Workflow("rude", [stubborn], on_exit=[ScriptJob("bye", "true")]))
        stage.until_file("begun")
        rude.cancel(now=True)
        stage.ends(rude, "cancelled")


def in_a_row(name: str) -> Workflow:
    n = [WorkflowParam("n", int)]
    first = ScriptJob("first", "echo 1 > $PENSTOCK_OUTPUTS/n", outputs=n)
    slow = ScriptJob(
        "slow",
        until_there_is("go") + "\nexpr ${{ inputs.n }} + 1 > $PENSTOCK_OUTPUTS/n",
        inputs={"n": first.outputs["n"]},
        outputs=n,
    )
    last = ScriptJob("last", "echo ${{ inputs.n }}", inputs={"n": slow.outputs["n"]})
    return Workflow(name, [first, slow, last], outputs={"n": slow.outputs["n"]}, on_exit=[ScriptJob("bye", "true")])


def says(stage: Stage, command: Command, words: str) -> None:
    stage.until(f"{words!r}", lambda: words in command.text)


@cases.of("interrupt")
def interrupt(stage: Stage) -> None:
    """Ctrl-C once: what runs finishes, the rest is left for later."""
    stage.write("flow.yaml", in_a_row("flow").to_yaml())
    run = stage.begin("run", "flow.yaml", "-j", "1")
    stage.until_state("flow-1", "slow", "running")
    run.signal(signal.SIGINT)
    says(stage, run, "stopping: waiting for 1 running task")
    stage.open("go")
    run.ends(130)
    stage.look("stopped")
    stage.type("resume", "flow-1", "-q", "-j", "1")


@cases.of("interrupt-twice")
def interrupt_twice(stage: Stage) -> None:
    """Ctrl-C twice: what runs is ended now, and starts again when the same is run again. Stopped once more, and then cancelled."""
    stage.write("flow.yaml", in_a_row("flow").to_yaml())
    for attempt in (1, 2):
        run = stage.begin("run", "flow.yaml", "-j", "1")
        stage.until_event("flow-1", "task.started", "slow", attempt)
        run.signal(signal.SIGTERM)
        says(stage, run, "stopping: waiting for 1 running task")
        run.signal(signal.SIGTERM)
        run.ends(130)
    stage.look("stopped")
    stage.type("cancel", "flow-1")


@cases.of("detached")
def detached(stage: Stage) -> None:
    """In the background: submitted here, run by an engine of its own."""
    stage.write("flow.yaml", in_a_row("flow").to_yaml())
    stage.open("go")
    stage.type("run", "flow.yaml", "-q", "-j", "1", "--detach")
    stage.until_event("flow-1", "run.finished")
    stage.until("its engine has gone", lambda: not stage.query("SELECT * FROM engines"))


@cases.of("dry")
def dry(stage: Stage) -> None:
    """Walked through: every step succeeds at once, conditions and lists on what was made up are taken to hold."""
    stage.write(
        "dry.yaml",
        """
apiVersion: penstock/v1
kind: Workflow
name: dry
params: [{name: n, type: int}]
steps:
- name: make
  container: {image: no-such-image, command: [make]}
  outputs: [{name: items, type: "list[int]"}, {name: n, type: int}]
  resources: {cpu: 1000}
- name: each
  each: {axes: [{i: "${{ steps.make.outputs.items }}"}], gang: true}
  script: {source: "echo ${{ item.i }}"}
  when: steps.make.outputs.n > 3
- name: never
  script: {source: "false"}
  when: params.n > 100
- name: grows
  inputs: [{name: n, value: 0}]
  script: {source: "echo ${{ inputs.n }}"}
  outputs: [{name: n, type: int}]
  loop: {condition: outputs.n < 10, carry: {n: n}, max_iterations: 50}
- name: ask
  needs: [call]
  suspend: {message: "ship it?"}
  outputs: [{name: answer, type: str}]
- name: get
  needs: [ask]
  http: {url: "http://127.0.0.1:1/"}
  locks: [{name: l}]
- name: call
  workflow: {name: inner}
  retry: {limit: 3}
definitions:
- name: inner
  steps: [{name: x, script: {source: "exit 1"}}, {name: mend, script: {source: "true"}, needs: [{step: x, outcomes: [failed]}]}]
on_exit: [{name: bye, script: {source: "true"}}]
outputs: [{name: n, value: "${{ steps.grows.outputs.n }}"}]
""",
    )
    stage.type("run", "dry.yaml", "-q", "-j", "1", "--dry")
