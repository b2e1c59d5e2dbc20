"""Gates for whole files: every document that can wait in a queue is made to, and all others pass through as they are.

Called by `penstock gate` and `penstock ungate`. Argo and Tekton documents are the business of argo_gate and tekton_gate; a JobSet or Job
has a field of its own for it. What is done stands in the Report, each entry with its file and line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.errors import DocumentError, Problem, UserError
from penstock.formats import argo_gate, argo_scope, tekton_gate
from penstock.formats.argo_inject import POD_GATE
from penstock.formats.documents import Document, Library
from penstock.formats.gate_marks import (
    UNITS,
    WAYS,
    begin,
    copied,
    finish,
    is_gated,
    refusal,
    say_queue,
    take_back,
    unknown_choice,
)
from penstock.formats.reading import Written
from penstock.formats.report import Report

_Gate = Callable[[Library, Document, str, str, Report], dict[str, Any]]
_DEFINITIONS = ("Pipeline", "Task", "WorkflowTemplate", "ClusterWorkflowTemplate")


def gate_documents(library: Library, unit: str = "stage", by: str = "suspend") -> Written:
    """Every document in its place, gated if it can be. Raises DocumentError with all that stands in the way, P860 to P869."""
    if unit not in UNITS:
        raise unknown_choice("unit", unit, UNITS)
    if by not in WAYS:
        raise unknown_choice("way to wait", by, WAYS)
    written = Written([], Report())
    problems: list[Problem] = []
    gated = 0
    for document in library.documents:
        way = _way(document, unit)
        if way is None:
            _pass(document, written.report)
            written.documents.append(copied(document.data))
            continue
        try:
            written.documents.append(way(library, document, unit, by, written.report))
            gated += 1
        except UserError as error:
            problems += error.problems
    if problems:
        raise DocumentError(problems)
    if not gated:
        raise _nothing(
            library, "P868", "nothing here can be gated", "give a Workflow, PipelineRun, TaskRun, JobSet or Job"
        )
    return written


def ungate_documents(library: Library) -> Written:
    """Every document in its place, as it was before it was gated. Raises DocumentError, P866."""
    written = Written([], Report())
    problems: list[Problem] = []
    for document in library.documents:
        if not is_gated(document.data):
            written.documents.append(copied(document.data))
            continue
        try:
            written.documents.append(take_back(document))
            written.report.changed(
                "metadata", f"{document.kind} {document.name}: the gates are out", "", document.source()
            )
        except UserError as error:
            problems += error.problems
    if problems:
        raise DocumentError(problems)
    if not written.report.entries:
        raise _nothing(library, "P866", "nothing here is gated", "there is nothing to take back")
    return written


def _way(document: Document, unit: str) -> _Gate | None:
    if document.group == "argoproj.io" and document.kind in argo_scope.KINDS:
        # What does not run by itself has nothing to be queued whole.
        return None if unit == "workflow" and document.kind in _DEFINITIONS else argo_gate.gate
    if document.group == "tekton.dev" and document.kind in tekton_gate.KINDS:
        return tekton_gate.gate
    if (document.group, document.kind) in (("jobset.x-k8s.io", "JobSet"), ("batch", "Job")):
        return gate_job
    return None


def _pass(document: Document, report: Report) -> None:
    if document.kind in _DEFINITIONS:
        message = f"{document.kind} {document.name} does not run by itself: what runs it waits"
        report.kept("kind", message, document.source("kind"))


def _nothing(library: Library, code: str, message: str, fix: str) -> DocumentError:
    source = library.documents[0].source() if library.documents else None
    return DocumentError(Problem(code, message, fix, source=source))


def gate_job(
    library: Library, document: Document, unit: str = "stage", by: str = "suspend", report: Report | None = None
) -> dict[str, Any]:
    """A JobSet or Job: spec.suspend, or a scheduling gate on each of its pods. Raises DocumentError."""
    report = Report() if report is None else report
    gated = begin(document)
    mark: dict[str, Any] = {"unit": unit, "by": "pods" if unit == "task" else by}
    say_queue(document, report)
    if mark["by"] == "pods":
        _gate_pods(document, gated, report)
        return finish(document, gated, mark)
    if document.spec.get("suspend") is True:
        mark["held"] = "user"
        report.kept("spec.suspend", "you suspended it yourself: only you let it go", document.source("spec.suspend"))
    else:
        mark["held"] = "penstock"
        gated["spec"]["suspend"] = True
        report.changed("spec.suspend", f"the {document.kind} waits as a whole", "", document.source("spec"))
    return finish(document, gated, mark)


def _gate_pods(document: Document, gated: dict[str, Any], report: Report) -> None:
    for path, template in _pod_templates(document.kind, gated["spec"]):
        spec = template.get("spec")
        listed = spec.get("schedulingGates") if isinstance(spec, dict) else None
        if not isinstance(spec, dict) or not isinstance(listed or [], list):
            raise refusal(document, "P868", path, "the pods have no description", "write template.spec as a mapping")
        spec["schedulingGates"] = [*(listed or []), {"name": POD_GATE}]
        report.changed(path, f"its pods wait with the scheduling gate {POD_GATE}", "", document.source(path))


def _pod_templates(kind: str, spec: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if kind == "Job":
        yield from _template("spec.template", spec)
        return
    listed = spec.get("replicatedJobs")
    for at, one in enumerate(listed if isinstance(listed, list) else ()):
        job = one.get("template") if isinstance(one, dict) else None
        inner = job.get("spec") if isinstance(job, dict) else None
        if isinstance(inner, dict):
            yield from _template(f"spec.replicatedJobs[{at}].template.spec.template", inner)


def _template(path: str, job: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    found = job.get("template")
    if isinstance(found, dict):
        yield path, found
