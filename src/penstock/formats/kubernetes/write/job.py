"""A workflow of independent steps -> one Job for each step. Called by kubernetes.format; its part about Jobs by write.jobset.

A for-each over numbers is one Job with as many completions; the replicas of a gang are the completions of an Indexed Job, each
with its number in PENSTOCK_REPLICA. Jobs have no order: a step that waits for another is refused.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.errors import InvalidWorkflow, Problem
from penstock.formats import shim
from penstock.formats.base import Written
from penstock.formats.documents import part
from penstock.formats.kubernetes.unroll import INDEX, PodKind, Unroller
from penstock.formats.kubernetes.write.pod import (
    PodNumbers,
    PodWriter,
    asks_for,
    finished,
    foreign,
    has_index,
    metadata,
    queues,
    retry_fields,
    seconds,
    stop_if_wrong,
)
from penstock.formats.pods.names import label
from penstock.formats.pods.variables import INDEX_FIELD, OURS
from penstock.formats.values import thawed
from penstock.graph import check
from penstock.graph.model import Function, Workflow

API: Final = "batch/v1"
STORAGE: Final = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
"""The claim of a shared volume without further fields."""


def write_job(workflow: Workflow, bundle: bytes | None = None) -> Written:
    """One Job for each step, if no step needs another. `bundle`: the author's code, as author.pack made it. Raises UserError with every
    step that Jobs cannot express."""
    problems = check.errors(workflow)
    if problems:
        raise InvalidWorkflow(problems)
    unroller = Unroller(workflow, "a Job")
    plains = unroller.run()
    problems = [*unroller.problems, *shim.missing_code(workflow, bundle, "P857"), *_edges(plains)]
    report = unroller.report
    queues(workflow, plains, "a Job", report)
    foreign(workflow, plains, (), "a Job", report)
    payload = shim.payload(bundle) if any(isinstance(one.step.action, Function) for one in plains) else ""
    writer = PodWriter(label(workflow.name), report, problems, payload, "P858")
    documents = []
    wanted = [plain for plain in plains if plain.count != 0]
    for plain in plains:
        if plain.count == 0:
            said = f"{plain.step.name} never runs, so there is no Job for it"
            report.changed(f"steps.{plain.step.name}.when", said, source=plain.step.source)
        elif not problems:
            name = label(workflow.name if len(plains) == 1 else f"{workflow.name}-{plain.name}")
            documents.append(_job(workflow, plain, name, writer))
    if not wanted and not problems:
        fix = "give it a step that does something"
        problems.append(Problem("P859", "there is nothing in it for a Job to run", fix, source=workflow.source))
    stop_if_wrong(problems)
    return Written([*claims(writer), *writer.beside.values(), *documents], report)


def _edges(plains: list[PodKind]) -> list[Problem]:
    """Reports the first few."""
    found = []
    for plain in plains:
        for name in plain.needs[:1]:
            said = f"{plain.name} waits for {name}; Jobs know no order"
            fix = "write a JobSet, Argo or Tekton, or make it one step"
            where = f"steps.{plain.step.name}.needs"
            found.append(Problem("P859", said, fix, where=where, source=plain.step.source))
    return found[:20]


def _job(workflow: Workflow, plain: PodKind, name: str, writer: PodWriter) -> dict[str, Any]:
    step, report = plain.step, writer.report
    gang = plain.count is None and step.replicas > 1
    number = OURS[0] if gang else OURS[1] if plain.count is not None else ""
    pods = plain.count if plain.count is not None else step.replicas
    numbered = PodNumbers(
        {number: INDEX_FIELD} if number else {},
        indexed=pods > 1 or has_index(step),
        always=gang,
        replicas=step.replicas,
    )
    spec: dict[str, Any] = {"parallelism": min(plain.parallel or pods, pods), "completions": pods}
    if gang or has_index(step) or asks_for(step, INDEX):
        spec["completionMode"] = "Indexed"
    spec |= retry_fields(step.retry, step, report)
    if gang and step.retry is not None:
        said = "a failed pod is tried again by itself, not together with its gang"
        report.changed(f"steps.{step.name}.retry", said, source=step.source)
    if step.retry is not None and step.retry.within is not None and workflow.timeout is None:
        spec["activeDeadlineSeconds"] = seconds(step.retry.within, f"steps.{step.name}.retry.within", step, report)
    if workflow.timeout is not None:
        spec["activeDeadlineSeconds"] = seconds(workflow.timeout, "timeout", None, report)
    if step.tolerates:
        said = f"{step.name} may fail and the workflow does not; a Job that fails has failed"
        report.lost(f"steps.{step.name}.tolerates", said, source=step.source)
    template = writer.template(plain, step.name, numbered, claimed=False)
    if step.timeout is not None:
        limit = seconds(step.timeout, f"steps.{step.name}.timeout", step, report)
        template["spec"]["activeDeadlineSeconds"] = limit
    spec |= thawed(part(step.extra, "job"))
    spec["template"] = finished(template, spec)
    return {"apiVersion": API, "kind": "Job", "metadata": metadata(workflow, name), "spec": spec}


def claims(writer: PodWriter) -> list[dict[str, Any]]:
    """A claim for each shared folder. The user has to check its size."""
    found = []
    for name, step in writer.claims.items():
        said = f"the folder {name} that is shared becomes a claim of 1Gi that many may write to"
        near = "Look at its size, access mode and storage class."
        writer.report.changed(f"steps.{step.name}.mounts.{name}", said, near, step.source)
        called = label(f"{name}-{writer.name}")
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": called}, "spec": STORAGE}
        found.append(claim)
    return found
