"""User code that must type-check. Checked by `make check` and test_types_fail; never run."""

from penstock import ContainerJob, LocalRunner, Run, Workflow, WorkflowParam, for_loop, open_run, task, when, workflow


@task(cpu=2, memory="4Gi", retry=3)
def prepare(source: str) -> list[str]:
    return [source]


@task
def score(shard: str, rate: float = 0.1) -> float:
    return rate


@workflow(queue="team-a", unit="stage")
def flow(source: str, rates: list[float]) -> list[float]:
    shards = prepare(source)
    return [score(shards[0], rate) for rate in rates]


rows = WorkflowParam("rows", int)
job = ContainerJob("a", "image", ["run"], outputs=[rows], cpu=1, timeout="10m", when=rows > 3)


@for_loop(items=[1, 2])
@when(job.outputs["rows"] > 1000)
def train(n: object) -> ContainerJob:
    return ContainerJob("train", "image", args=[n])


made = Workflow("w", [job, train], params=[rows], unit="reuse")
result: list[float] = flow("s", [0.1])
name: str = made.digest + flow.explain()
run: Run[list[float]] = flow.run("s", rates=[0.1])
scores: list[float] = run.result
first: float = LocalRunner(jobs=2).run(flow, "s", [0.1]).wait().check().result[0]
again: Run = open_run("flow-1")
logged: str = run["train"].logs + made.run().id
