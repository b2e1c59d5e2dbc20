"""Tekton Pipelines as a format. Loaded by formats.registry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from penstock.formats.base import Format, Gate, Read, RunWatch, Written
from penstock.formats.documents import Document, Library
from penstock.formats.pods.references import pod_references
from penstock.formats.report import Report
from penstock.formats.status import Status, TaskStatus
from penstock.graph.model import Workflow

_REFERENCES: Final = {"taskRef": "Task", "pipelineRef": "Pipeline", "ref": "StepAction"}


def _references(field: str, value: Mapping[str, Any]) -> str:
    return _REFERENCES.get(field) or pod_references(field, value)


def _read(library: Library, document: Document) -> Read:
    from penstock.formats.tekton.read.workflow import read_tekton

    return read_tekton(library, document)


def _write(workflow: Workflow, *, bundle: bytes | None = None) -> Written:
    from penstock.formats.tekton.write.workflow import write_tekton

    return write_tekton(workflow, bundle=bundle)


def _gate(library: Library, document: Document, unit: str, by: str, report: Report) -> dict[str, Any]:
    from penstock.formats.tekton.gate import gate

    return gate(library, document, unit, by, report)


def _status(data: Mapping[str, Any]) -> Status:
    from penstock.formats.tekton.status import run_status

    return run_status(data)


def _with_task_runs(known: Sequence[TaskStatus], runs: Iterable[Mapping[str, Any]]) -> tuple[TaskStatus, ...]:
    from penstock.formats.tekton.status import task_run_states

    return task_run_states(known, runs)


_RUNS = frozenset({"PipelineRun", "TaskRun"})

FORMAT = Format(
    name="tekton",
    kinds={"tekton.dev": {"PipelineRun": 0, "TaskRun": 1, "Pipeline": 2, "Task": 3}},
    references=_references,
    read=_read,
    write=_write,
    gate=Gate(apply=_gate, kinds=_RUNS, whole=_RUNS, definitions=frozenset({"Pipeline", "Task"})),
    watch=RunWatch(
        status=_status,
        children=("taskruns.tekton.dev", "tekton.dev/pipelineRun"),
        with_children=_with_task_runs,
    ),
)
