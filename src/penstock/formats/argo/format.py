"""Argo Workflows as a format. Loaded by formats.registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.formats.base import Format, Gate, Read, RunWatch, Written
from penstock.formats.documents import Document, Library
from penstock.formats.pods.references import pod_references
from penstock.formats.report import Report
from penstock.formats.status import Status
from penstock.graph.model import Workflow


def _starts(document: Document) -> bool:
    """A template starts something only if it names an entrypoint."""
    is_template = document.kind.endswith("WorkflowTemplate")
    return not is_template or bool(document.spec.get("entrypoint") or document.spec.get("workflowTemplateRef"))


def _references(field: str, value: Mapping[str, Any]) -> str:
    if field in ("templateRef", "workflowTemplateRef"):
        return "ClusterWorkflowTemplate" if value.get("clusterScope") else "WorkflowTemplate"
    return pod_references(field, value)


def _vet(document: Document, report: Report) -> None:
    from penstock.formats.argo.rules import vet

    vet(document, report)


def _read(library: Library, document: Document) -> Read:
    from penstock.formats.argo.read.workflow import read_argo

    return read_argo(library, document)


def _write(workflow: Workflow, *, bundle: bytes | None = None) -> Written:
    from penstock.formats.argo.write.workflow import write_argo

    return write_argo(workflow, bundle=bundle)


def _gate(library: Library, document: Document, unit: str, by: str, report: Report) -> dict[str, Any]:
    from penstock.formats.argo.gate.document import gate

    return gate(library, document, unit, by, report)


def _status(data: Mapping[str, Any]) -> Status:
    from penstock.formats.argo.status import workflow_status

    return workflow_status(data)


_RUNS = frozenset({"Workflow", "CronWorkflow"})
_TEMPLATES = frozenset({"WorkflowTemplate", "ClusterWorkflowTemplate"})

FORMAT = Format(
    name="argo",
    kinds={
        "argoproj.io": {"Workflow": 0, "CronWorkflow": 1, "WorkflowTemplate": 2, "ClusterWorkflowTemplate": 2},
    },
    starts=_starts,
    references=_references,
    vet=_vet,
    read=_read,
    write=_write,
    gate=Gate(apply=_gate, kinds=_RUNS | _TEMPLATES, whole=_RUNS, definitions=_TEMPLATES),
    watch=RunWatch(status=_status),
)
