"""Golden cases of engines and workers that are killed at a point that the workflow itself decides on. Called by test_golden.

A task kills the engine that runs it, the first time only: a file says that it has been. What the log holds at that moment is
determined, because a start is written before its process begins; and so is all that the next engine makes of it.
"""

from __future__ import annotations

import signal
import sys

from tests.golden.stage import Cases, Stage

cases = Cases()

KILL = """
import os, pathlib, sqlite3, sys
mark = pathlib.Path(f"killed-{sys.argv[1]}")
if not mark.exists():
    mark.touch()
    db = sqlite3.connect(pathlib.Path(os.environ["PENSTOCK_HOME"], "state.db"))
    (pid,) = db.execute("SELECT pid FROM engines WHERE id = ?", (os.environ["PENSTOCK_ENGINE"],)).fetchone()
    os.kill(pid, 9)
"""
"""For commands: end the engine, whose number stands in the store."""


def killed(stage: Stage, *words: str) -> None:
    stage.begin(*words).ends(-signal.SIGKILL)


@cases.of("killed-by-a-command")
def killed_by_a_command(stage: Stage) -> None:
    """In a row, in the midst of a list, in the second round of a loop; the same command goes on, and so does resume."""
    stage.write("kill.py", KILL)
    stage.environ["PYTHON"] = sys.executable
    stage.write(
        "flow.yaml",
        """
apiVersion: penstock/v1
kind: Workflow
name: flow
parallel: 1
steps:
- name: first
  script: {source: "echo 1 > $PENSTOCK_OUTPUTS/n"}
  outputs: [{name: n, type: int}]
- name: deadly
  script: {source: "$PYTHON kill.py row; expr ${{ inputs.n }} + 1 > $PENSTOCK_OUTPUTS/n"}
  inputs: [{name: n, value: "${{ steps.first.outputs.n }}"}]
  outputs: [{name: n, type: int}]
- name: each
  each: {axes: [{i: [0, 1, 2]}]}
  inputs: [{name: i, value: "${{ item.i }}"}]
  needs: [deadly]
  script: {source: "[ ${{ inputs.i }} != 1 ] || $PYTHON kill.py list; echo ${{ inputs.i }} > $PENSTOCK_OUTPUTS/n"}
  outputs: [{name: n, type: int}]
- name: grow
  inputs: [{name: n, value: "${{ steps.each.outputs.n[1] }}"}]
  script: {source: "[ ${{ inputs.n }} != 2 ] || $PYTHON kill.py loop; expr ${{ inputs.n }} + 1 > $PENSTOCK_OUTPUTS/n"}
  outputs: [{name: n, type: int}]
  loop: {condition: outputs.n < 4, carry: {n: n}}
on_exit:
- name: bye
  script: {source: "$PYTHON kill.py exit"}
outputs: [{name: n, value: "${{ steps.grow.outputs.n }}"}]
""",
    )
    killed(stage, "run", "flow.yaml", "-q", "-j", "1")
    stage.look("killed in a row")
    killed(stage, "run", "flow.yaml", "-q", "-j", "1")
    killed(stage, "resume", "flow-1", "-q", "-j", "1")
    stage.look("killed in a loop")
    killed(stage, "resume", "@", "-q", "-j", "1")
    stage.type("run", "flow.yaml", "-q", "-j", "1")


@cases.of("killed-inside-a-transaction")
def killed_inside_a_transaction(stage: Stage) -> None:
    """Functions inside the engine run while the end of the command before them is not yet written: neither has happened, and both
    are done again; in a row and in the second round of a loop."""
    stage.write(
        "flow.py",
        """
import os
from pathlib import Path

from penstock import ScriptJob, WorkflowParam, task, workflow

n = WorkflowParam("n", int)
up = ScriptJob("up", "expr ${{ inputs.n }} + 1 > $PENSTOCK_OUTPUTS/n", inputs=[n], outputs=[n])


@task
def grow(n: int) -> int:
    mark = Path(f"killed-{n}")
    if n in (1, 5) and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 9)
    return n + 1


@workflow
def flow(limit: int = 6):
    n = grow(up(n=0))
    while n < limit:
        n = grow(up(n=n))
    return n
""",
    )
    killed(stage, "run", "flow.py", "-q", "-j", "1", "--on", "function=inline")
    stage.look("killed in a row")
    killed(stage, "run", "flow.py", "-q", "-j", "1", "--on", "function=inline")
    stage.look("killed in the second round")
    stage.type("run", "flow.py", "-q", "-j", "1", "--on", "function=inline")


@cases.of("killed-while-somebody-is-waited-for")
def killed_while_suspended(stage: Stage) -> None:
    """The answer takes the run up again; what had been answered before is not asked again."""
    stage.write(
        "flow.yaml",
        """
apiVersion: penstock/v1
kind: Workflow
name: flow
steps:
- name: ask
  suspend: {message: "ship it?"}
  outputs: [{name: answer, type: str}]
- name: ask-again
  needs: [ask]
  suspend: {message: "really?"}
- name: ship
  needs: [ask-again]
  script: {source: "echo ${{ steps.ask.outputs.answer }}"}
""",
    )
    run = stage.begin("run", "flow.yaml", "-q", "-j", "1")
    stage.until_state("flow-1", "ask", "suspended")
    stage.type("resume", "flow-1/ask", "-p", "answer=yes")
    stage.until_state("flow-1", "ask-again", "suspended")
    run.kill()
    stage.type("resume", "flow-1/ask-again", "-q", "-j", "1")


@cases.of("killed-workers")
def killed_workers(stage: Stage) -> None:
    """A function that ends its worker once is started again; one that does so each time is given up."""
    stage.write(
        "flow.py",
        """
import os
from pathlib import Path

from penstock import task, workflow


@task
def unlucky(n: int) -> int:
    mark = Path("killed")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 9)
    return n + 1


@task(retry=0)
def killer(n: int) -> int:
    os.kill(os.getpid(), 9)


@workflow
def flow():
    return killer(unlucky(1))
""",
    )
    stage.type("run", "flow.py", "-q", "-j", "1", code=3)
