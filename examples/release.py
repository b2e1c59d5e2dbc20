"""A release that a person approves: the run may wait for days without holding quota, and survives a reboot meanwhile.

penstock run examples/release.py               # here it goes on by itself after a second; without `duration`, after `penstock resume`
"""

from penstock import FunctionJob, Workflow, WorkflowParam, task
from penstock.author.jobs import BaseJob
from penstock.graph.model import Suspend


@task(cpu=1)
def build(version: str) -> str:
    return f"app-{version}.whl"


@task(cpu=1)
def test(package: str) -> int:
    return len(package)


@task(cache=False)
def publish(package: str) -> str:
    return f"{package} is public"


version = WorkflowParam("version", str, "1.0")
built = FunctionJob("build", build, {"version": version})
tested = FunctionJob("test", test, {"package": built.outputs["result"]})
approve = BaseJob("approve", Suspend(message="publish it?", duration=1)).after(tested)
published = FunctionJob("publish", publish, {"package": built.outputs["result"]}).after(approve)
flow = Workflow(
    "release", [built, tested, approve, published], params=[version], outputs={"result": published.outputs["result"]}
)
