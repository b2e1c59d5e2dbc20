"""What JobSet refuses beyond its CRD. Called by formats.registry, through Format.vet."""

from __future__ import annotations

from typing import Final

from penstock.errors import nearest
from penstock.formats.documents import Document, part
from penstock.formats.report import Report
from penstock.formats.vetting import vet_schema

POLICY: Final = "spec.executionPolicy"
"""Proposed: it is read, although no release has it yet."""
_FIELDS: Final = ("executionPolicyOrder", "replicatedJobsStatus")


def vet_jobset(document: Document, report: Report) -> None:
    vet_schema(document, report, proposed={POLICY})
    for name in part(document.spec, "executionPolicy"):
        if name not in _FIELDS:
            path = f"{POLICY}.{name}"
            near = nearest(str(name), _FIELDS).strip()
            report.lost(path, f"there is no field {name!r}", near, document.source(path))
