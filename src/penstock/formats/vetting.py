"""What the project of a document would not take: fields that its CRD does not have, above all. Called by formats.registry, and by the
formats that know more of their project than its CRD says."""

from __future__ import annotations

from collections.abc import Callable, Collection

from penstock.errors import Source
from penstock.formats import schema
from penstock.formats.documents import Document
from penstock.formats.report import Report


def vet_schema(
    document: Document,
    report: Report,
    *,
    older: Callable[[schema.SchemaFinding], str] = lambda finding: "",
    proposed: Collection[str] = (),
) -> None:
    """Reports what the CRD does not allow. `older`: what replaced a form that is still read. `proposed`: paths of fields that
    no release has yet and that are read all the same."""
    for line, path in document.repeated:
        report.changed(path, "this key stands twice; the last one counts", source=Source(document.file, line))
    for finding in schema.check(document.data):
        source = document.source(finding.path)
        if finding.kind == "required":
            report.changed(finding.path, finding.message, "The cluster must fill it in.", source)
        elif newer := older(finding):
            report.changed(finding.path, "this is a form of Argo 3", newer, source)
        elif finding.path not in proposed:
            report.lost(finding.path, finding.message, finding.near.strip(), source)
