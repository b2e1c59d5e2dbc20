"""Another workflow over the same data, in the object form. It shares `prepare` with flow.py, so merged they run it once.

penstock merge examples/finetune/flow.py examples/finetune/evaluate.py
"""

from flow import prepare as prepare_task

from penstock import FunctionJob, Workflow, WorkflowParam, task


@task(cpu=1)
def summarise(data: list[float]) -> dict[str, float]:
    return {"rows": len(data), "mean": sum(data) / len(data)}


rows = WorkflowParam("rows", int, 100)
prepare = FunctionJob("prepare", prepare_task, {"rows": rows})
summary = FunctionJob("summarise", summarise, {"data": prepare.outputs["result"]})

evaluate = Workflow("evaluate", steps=[prepare, summary], params=[rows], outputs={"summary": summary.outputs["result"]})
