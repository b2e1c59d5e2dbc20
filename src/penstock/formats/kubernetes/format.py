"""JobSets and plain Jobs of Kubernetes as formats. Loaded by formats.registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.formats.base import Format, Gate, Read, RunWatch, Written
from penstock.formats.documents import Document, Library
from penstock.formats.kubernetes.conventions import JOBSET_LABEL
from penstock.formats.pods.references import pod_references
from penstock.formats.report import Report
from penstock.formats.status import Status
from penstock.graph.model import Workflow


def _vet_jobset(document: Document, report: Report) -> None:
    from penstock.formats.kubernetes.rules import vet_jobset

    vet_jobset(document, report)


def _read_jobset(library: Library, document: Document) -> Read:
    from penstock.formats.kubernetes.read.jobset import read_jobset

    return read_jobset(library, document)


def _write_jobset(workflow: Workflow, *, bundle: bytes | None = None) -> Written:
    from penstock.formats.kubernetes.write.jobset import write_jobset

    return write_jobset(workflow, bundle=bundle)


def _read_job(library: Library, document: Document) -> Read:
    from penstock.formats.kubernetes.read.job import read_job

    return read_job(library, document)


def _write_job(workflow: Workflow, *, bundle: bytes | None = None) -> Written:
    from penstock.formats.kubernetes.write.job import write_job

    return write_job(workflow, bundle=bundle)


def _gate(library: Library, document: Document, unit: str, by: str, report: Report) -> dict[str, Any]:
    from penstock.formats.kubernetes.gate import gate

    return gate(library, document, unit, by, report)


def _status(data: Mapping[str, Any]) -> Status:
    from penstock.formats.kubernetes.status import job_status

    return job_status(data)


JOBSET = Format(
    name="jobset",
    kinds={"jobset.x-k8s.io": {"JobSet": 0}},
    references=pod_references,
    vet=_vet_jobset,
    read=_read_jobset,
    write=_write_jobset,
    gate=Gate(apply=_gate, kinds=frozenset({"JobSet"}), whole=frozenset({"JobSet"})),
    watch=RunWatch(status=_status, pod_labels=(f"{JOBSET_LABEL}jobset-name", f"{JOBSET_LABEL}replicatedjob-name")),
)

JOB = Format(
    name="job",
    kinds={"batch": {"Job": 1, "CronJob": 2}, "": {"Pod": 3}},
    references=pod_references,
    read=_read_job,
    write=_write_job,
    gate=Gate(apply=_gate, kinds=frozenset({"Job"}), whole=frozenset({"Job"})),
    watch=RunWatch(status=_status),
)
