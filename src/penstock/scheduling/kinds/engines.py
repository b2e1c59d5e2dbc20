"""Workflows of Argo and runs of Tekton: one place for the metadata of all their pods. Called by the table in kinds.

How many pods there are at a time depends on the workflow: `penstock plan` says it. Each pod waits by itself, so there is no gang.
"""

from __future__ import annotations

from penstock.formats.documents import Document, Library
from penstock.scheduling import fields
from penstock.scheduling.model import JobPods, Path, Role, Slot

ALONE = "each of its pods starts by itself when its step is reached"


def argo(document: Document, library: Library) -> JobPods:
    return _argo(document, ("spec",))


def argo_cron(document: Document, library: Library) -> JobPods:
    return _argo(document, ("spec", "workflowSpec"))


def _argo(document: Document, spec: Path) -> JobPods:
    fields.mapping(document, spec, "it describes the workflow")
    meta = (*spec, "podMetadata")
    return _all_pods(Slot((*meta, "labels"), (*meta, "annotations"), (*spec, "schedulerName")))


def pipeline_run(document: Document, library: Library) -> JobPods:
    new = document.api.endswith("/v1")
    place: Path = ("spec", "taskRunTemplate", "podTemplate") if new else ("spec", "podTemplate")
    return _tekton(place)


def task_run(document: Document, library: Library) -> JobPods:
    return _tekton(("spec", "podTemplate"))


def _tekton(place: Path) -> JobPods:
    return _all_pods(Slot(("metadata", "labels"), ("metadata", "annotations"), (*place, "schedulerName")))


def _all_pods(slot: Slot) -> JobPods:
    return JobPods((Role("pod", "pod", {}, 0, 0, slot, ALONE),), ())
