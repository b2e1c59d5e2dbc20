"""Puts the Job of an attempt into a queue of the cluster's scheduler, by the metadata that it reads. Called by manifest. Pure.

Only where PENSTOCK_SCHEDULER names one that takes pods so (YuniKorn, or one of another package): Kueue's queues are asked by the engine (see queues).
"""

from __future__ import annotations

from typing import Any, Final

from penstock.backends.base import AttemptSpec
from penstock.backends.kubernetes.options import KubernetesOptions
from penstock.errors import Problem, UserError
from penstock.formats.documents import Document
from penstock.scheduling.apply import ScheduleOptions, queue_of, schedule_one
from penstock.scheduling.model import Binding
from penstock.scheduling.objects import job_object
from penstock.scheduling.registry import scheduler

KIND: Final = {"apiVersion": "batch/v1", "kind": "Job"}


def queue_for(spec: AttemptSpec, options: KubernetesOptions) -> str:
    """The queue that the pods of an attempt wait in, in words; empty if none holds them."""
    return f"the queue {spec.queue} of {options.scheduler}" if spec.queue and options.scheduler else ""


def with_queue(job: dict[str, Any], spec: AttemptSpec, options: KubernetesOptions) -> dict[str, Any]:
    """The Job with the marks of its queue on it. A queue that the pods name already (PENSTOCK_KUBERNETES_POD) wins. Replicas are a gang: all or none. Raises
    UserError."""
    if not queue_for(spec, options):
        return job
    plugin = scheduler(options.scheduler)
    document = Document({**KIND, **job}, f"the Job of {spec.task}")
    known = job_object(document)
    own = "" if known is None else queue_of(known)
    gang = spec.step.replicas > 1
    binding = Binding(queue="" if own else spec.queue, gang=gang, style="Hard" if gang else "")
    *before, whole = schedule_one(document, plugin, ScheduleOptions(binding)).documents
    if before:
        kinds = " and a ".join(str(one.get("kind")) for one in before)
        message = f"{plugin.name} needs a {kinds} beside the Job of {spec.task!r}, and tasks have none"
        fix = "make the Job a resource step, give the step one replica, or set PENSTOCK_SCHEDULER=none"
        raise UserError(Problem("P909", message, fix))
    return {key: value for key, value in whole.items() if key not in KIND}
