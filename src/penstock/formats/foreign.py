"""Which format a document is in, which of several documents is the workflow, and the way to its reader. Called by service.

A file or folder may hold several documents: runs, the templates they refer to, config maps. What is run is the most concrete of
them: a Workflow before a WorkflowTemplate, a PipelineRun before a Pipeline, and of two alike the one that is asked for by name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from penstock.errors import DocumentError, NotFound, Problem, Source, nearest
from penstock.formats import shape
from penstock.formats.documents import Document, Library, part
from penstock.formats.reading import Read
from penstock.formats.report import Report

KINDS: Mapping[str, Mapping[str, tuple[str, int]]] = {
    "argoproj.io": {
        "Workflow": ("argo", 0),
        "CronWorkflow": ("argo", 1),
        "WorkflowTemplate": ("argo", 2),
        "ClusterWorkflowTemplate": ("argo", 2),
    },
    "tekton.dev": {
        "PipelineRun": ("tekton", 0),
        "TaskRun": ("tekton", 1),
        "Pipeline": ("tekton", 2),
        "Task": ("tekton", 3),
    },
    "jobset.x-k8s.io": {"JobSet": ("jobset", 0)},
    "batch": {"Job": ("job", 1), "CronJob": ("job", 2)},
    "": {"Pod": ("job", 3)},
}
"""API group -> kind -> its format, and how far from a run it is."""


def format_of(document: Document) -> str:
    """argo, tekton, jobset or job; empty for what is none of them, such as a ConfigMap."""
    return KINDS.get(document.group, {}).get(document.kind, ("", 0))[0]


def is_foreign(library: Library) -> bool:
    return any(format_of(document) or document.group in KINDS for document in library.documents)


def roots(library: Library) -> list[Document]:
    """The documents that stand for themselves: the most concrete ones. Of Argo's templates only those that say where to begin."""
    ranked = [
        (KINDS[document.group][document.kind][1], document)
        for document in library.documents
        if format_of(document) and not _only_a_library(document)
    ]
    least = min((rank for rank, _ in ranked), default=0)
    # A file may hold a JobSet and a Workflow beside one another; runs of all formats are alike.
    return [document for rank, document in ranked if rank == least]


def _only_a_library(document: Document) -> bool:
    return document.kind.endswith("WorkflowTemplate") and not (
        document.spec.get("entrypoint") or document.spec.get("workflowTemplateRef")
    )


def root(library: Library, name: str | None, file: str) -> Document:
    """The workflow of a file, or the one called `name`. Raises DocumentError, NotFound."""
    if name is not None:
        known = {document.name: document for document in library.documents if format_of(document)}
        if name not in known:
            fix = f"known: {', '.join(known) or 'none'}.{nearest(name, known)}"
            raise NotFound(Problem("P303", f"there is no workflow {name!r} in {file}", fix))
        return known[name]
    found = roots(library)
    if not found:
        raise DocumentError(nothing(library, file))
    if len(found) > 1:
        names = [document.name for document in found]
        twice = len(set(names)) < len(names)
        fix = "give them different names" if twice else f"say which: {file}:{names[0]}"
        said = f"there are {len(found)} workflows in {file}: {', '.join(names[:10])}{' …' if len(names) > 10 else ''}"
        raise DocumentError(Problem("P831", said, fix, source=found[1].source("kind")))
    return found[0]


def nothing(library: Library, file: str) -> Problem:
    kinds = sorted({f"{document.kind or 'no kind'}" for document in library.documents})
    ours = [document for document in library.documents if document.group == "penstock"]
    if ours:
        return Problem("P502", f"{file} is a folder with Penstock documents", f"name one of its files: {ours[0].file}")
    if any(format_of(document) for document in library.documents):
        first = next(document for document in library.documents if format_of(document))
        return Problem(
            "P830",
            f"there is nothing to run in {file}: its templates name no entrypoint",
            "run a Workflow that refers to it, or give it spec.entrypoint",
            source=first.source("spec"),
        )
    known = ", ".join(kind for kinds_of in KINDS.values() for kind in kinds_of)
    source = library.documents[0].source("kind") if library.documents else None
    return Problem(
        "P830",
        f"there is no workflow in {file}; it holds {', '.join(kinds[:8]) or 'nothing'}",
        f"give a file with one of {known}, or a Penstock workflow",
        source=source,
    )


def read(library: Library, document: Document) -> Read:
    """The workflow that a document describes. Raises UserError with every problem found."""
    known = format_of(document)
    found = _reader(known)(library, document)
    workflow = dataclasses.replace(found.workflow, extra={**found.workflow.extra, "format": known})
    return Read(workflow, found.report)


def _reader(known: str) -> Callable[[Library, Document], Read]:
    if known == "argo":
        from penstock.formats.argo_read import read_argo

        return read_argo
    if known == "tekton":
        from penstock.formats.tekton_read import read_tekton

        return read_tekton
    if known == "jobset":
        from penstock.formats.jobset_read import read_jobset

        return read_jobset
    from penstock.formats.job import read_job

    return read_job


def vet(documents: Sequence[Document]) -> Report:
    """What the documents' own projects would not take, each with its line: misspelt fields above all."""
    report = Report()
    for document in documents:
        for line, path in document.repeated:
            report.changed(path, "this key stands twice; the last one counts", source=Source(document.file, line))
        for finding in shape.check(document.data):
            source = document.source(finding.path)
            if finding.kind == "required":
                report.changed(finding.path, finding.message, "The cluster must fill it in.", source)
            elif older := _of_argo_3(finding):
                report.changed(finding.path, "this is a form of Argo 3", older, source)
            elif finding.path not in _proposed(document):
                report.lost(finding.path, finding.message, finding.near.strip(), source)
        if format_of(document) == "argo":
            from penstock.formats.argo_rules import refused

            for path, said, near in refused(document):
                report.lost(path, f"Argo refuses this: {said}", near, document.source(path))
        for name in part(document.spec, "executionPolicy") if _proposed(document) else ():
            if name not in _EXECUTION:
                path = f"spec.executionPolicy.{name}"
                said, near = f"there is no field {name!r}", nearest(str(name), _EXECUTION).strip()
                report.lost(path, said, near, document.source(path))
    return report


_EXECUTION = ("executionPolicyOrder", "replicatedJobsStatus")
_ARGO_3 = {"mutex": "mutexes", "semaphore": "semaphores", "schedule": "schedules"}
_VALUE = re.compile(r"parameters\[\d+\]\.(value|default|enum\[\d+\])$")


def _of_argo_3(finding: shape.Finding) -> str:
    """What Argo 4 has in place of what is read all the same; empty for what is a mistake."""
    around, _, name = finding.path.rpartition(".")
    if name in _ARGO_3 and finding.kind == "unknown field" and around.endswith(("synchronization", "spec")):
        return f"Argo 4 says {_ARGO_3[name]}, a list."
    if finding.kind == "type" and _VALUE.search(finding.path):
        return "Argo 4 takes text only: write it in quotes."
    return ""


def _proposed(document: Document) -> set[str]:
    """Fields that are read although no release has them yet."""
    return {"spec.executionPolicy"} if document.kind == "JobSet" else set()


def unresolved(library: Library) -> set[tuple[str, str]]:
    """(kind, name) of what documents refer to and is not there. Their neighbours may have it."""
    return {(kind, name) for kind, name in _references(library) if library.find(kind, name) is None}


def _references(library: Library) -> Iterator[tuple[str, str]]:
    for document in library.documents:
        if format_of(document):
            yield from _names_in(document.data)


def _names_in(data: Any) -> Iterator[tuple[str, str]]:
    rest = [data]
    while rest:
        one = rest.pop()
        if isinstance(one, Mapping):
            for key, value in one.items():
                kind = _kind_named(key, value)
                if kind:
                    yield kind, str(value.get("name") or value.get("secretName"))
            rest += one.values()
        elif isinstance(one, list):
            rest += one


def _kind_named(key: Any, value: Any) -> str:
    if not isinstance(value, Mapping) or not isinstance(value.get("name") or value.get("secretName"), str):
        return ""
    if key in ("templateRef", "workflowTemplateRef"):
        return "ClusterWorkflowTemplate" if value.get("clusterScope") else "WorkflowTemplate"
    return _REFERENCES.get(str(key), "")


_REFERENCES = {
    "configMapKeyRef": "ConfigMap", "configMapRef": "ConfigMap", "configMap": "ConfigMap", "secretKeyRef": "Secret", "secretRef": "Secret",
    "secret": "Secret", "taskRef": "Task", "pipelineRef": "Pipeline", "ref": "StepAction",
}  # fmt: skip
"""The field that refers to a document by name -> its kind."""
