"""User code that must not type-check: each marked line, and no other, is an error. Never run."""

from penstock import ContainerJob, LocalRunner, Workflow, WorkflowParam, task, workflow


@task(cpu=2)
def prepare(source: str) -> list[str]:
    return [source]


@workflow
def flow(source: str) -> list[str]:
    return prepare(source)


prepare(3)  # wrong
prepare()  # wrong
prepare("a", "b")  # wrong
number: int = prepare("a")  # wrong
flow(1)  # wrong
text: str = flow("a")  # wrong
ContainerJob(1, "image")  # wrong
ContainerJob("a", "image", cpus=1)  # wrong
ContainerJob("a", "image", replicas="four")  # wrong
ContainerJob("a", "image", outputs=["x"])  # wrong
Workflow("w")  # wrong
Workflow("w", [], queue=3)  # wrong
WorkflowParam(3)  # wrong
task(gpu="eight")  # wrong
task(nope=1)  # wrong
prepare.options(memory=1.5)  # wrong
workflow(unit=3)  # wrong
flow.run(1)  # wrong
flow.run()  # wrong
flow.run("a", more=1)  # wrong
whole: int = flow.run("a").result  # wrong
LocalRunner().run(flow, source=3)  # wrong
LocalRunner().submit(flow, "a").wait().result.upper()  # wrong
