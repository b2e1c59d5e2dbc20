"""Gates for whole files: every document that can wait in a queue is made to wait, and all others pass through as they are.

Called by `penstock gate` and `penstock ungate`. Each format has its own gate (Format.gate). What is done is in the Report, each entry with
its file and line.
"""

from __future__ import annotations

from penstock.errors import DocumentError, Problem, UserError
from penstock.formats import registry
from penstock.formats.base import GateFunction, Written
from penstock.formats.documents import Document, Library
from penstock.formats.gates.marks import check_choices, copied, is_gated, take_back
from penstock.formats.report import Report


def gate_documents(library: Library, unit: str = "stage", by: str = "suspend") -> Written:
    """All documents in order, gated where possible. Raises DocumentError with every obstacle, P860 to P869."""
    check_choices(unit, by)
    written = Written([], Report())
    problems: list[Problem] = []
    gated = 0
    for document in library.documents:
        gate = _gate(document, unit)
        if gate is None:
            _pass(document, written.report)
            written.documents.append(copied(document.data))
            continue
        try:
            written.documents.append(gate(library, document, unit, by, written.report))
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
    """All documents in order, without their gates. Raises DocumentError, P866."""
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


def _gate(document: Document, unit: str) -> GateFunction | None:
    known = registry.format_for(document)
    if known is None or known.gate is None:
        return None
    kinds = known.gate.whole if unit == "workflow" else known.gate.kinds
    return known.gate.apply if document.kind in kinds else None


def _pass(document: Document, report: Report) -> None:
    known = registry.format_for(document)
    if known is not None and known.gate is not None and document.kind in known.gate.definitions:
        message = f"{document.kind} {document.name} does not run by itself: what runs it waits"
        report.kept("kind", message, document.source("kind"))


def _nothing(library: Library, code: str, message: str, fix: str) -> DocumentError:
    source = library.documents[0].source() if library.documents else None
    return DocumentError(Problem(code, message, fix, source=source))
