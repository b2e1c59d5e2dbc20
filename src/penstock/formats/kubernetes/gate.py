"""Makes a JobSet or Job wait in a queue: spec.suspend, or a scheduling gate on each of its pods. Called through formats.registry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.formats.documents import Document, Library
from penstock.formats.gates.marks import POD_GATE, begin, finish, refusal, say_queue, unneeded
from penstock.formats.pods import requests as pods
from penstock.formats.report import Report


def gate(
    library: Library, document: Document, unit: str = "stage", by: str = "suspend", report: Report | None = None
) -> dict[str, Any]:
    """The document, waiting. Raises DocumentError."""
    report = Report() if report is None else report
    gated = begin(document)
    mark: dict[str, Any] = {"unit": unit, "by": "pods" if unit == "task" else by}
    if not any(_asks(template) for _, template in _pod_templates(document.kind, gated["spec"])):
        return unneeded(document, report)
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
        if not _asks(template):
            continue
        spec["schedulingGates"] = [*(listed or []), {"name": POD_GATE}]
        report.changed(path, f"its pods wait with the scheduling gate {POD_GATE}", "", document.source(path))


def _asks(template: dict[str, Any]) -> bool:
    """Do its pods need quota? What cannot be read is not known to need none."""
    spec = template.get("spec")
    return not isinstance(spec, dict) or any(pods.resources_of(spec).values())


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
