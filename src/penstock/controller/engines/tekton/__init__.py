"""Tekton in a queue: PipelineRuns and TaskRuns, by stage, task or as a whole. Found by the entry point `penstock.engines`.

    runs      what there is: pipelines, TaskRuns and pods, and to which task of the pipeline each belongs. `finally` is exempt
    adjust    a new run, made ready for the queue
    engine    the interface: stages, and how one is let go and stopped

A stage is a task of the pipeline with all of its matrix. TaskRuns are held at birth (TaskRunPending, by a policy of the API server).
"""

from penstock.controller.engines.tekton.engine import ENGINE

__all__ = ["ENGINE"]
