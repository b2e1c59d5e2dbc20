"""Makes an Argo document wait in a queue, and restores it exactly. Called by argo.format, for `penstock gate`.

    unit      by        what is written
    stage     suspend   a suspend step before each stage (gate.inject)
    stage     pods      a scheduling gate on each pod; the stage follows from the pod's node name (stages.run_stage_of)
    task      either    the same: only pods can wait one by one
    workflow  either    spec.suspend, and annotations that declare what the whole needs

Exit handlers and hooks never wait. The label kueue.x-k8s.io/queue-name on the document names the queue and stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.formats import schema
from penstock.formats.argo.demand import demand_of
from penstock.formats.argo.gate.inject import Injection, gated_patch, refuse_reserved
from penstock.formats.argo.scope import KINDS, root_of, spec_path
from penstock.formats.argo.stages import static_stages
from penstock.formats.documents import Document, Library, part
from penstock.formats.gates.marks import (
    MARK,
    MAX_RESOURCES,
    NODE_SELECTOR,
    POD_GATE,
    TOLERATION,
    annotate,
    begin,
    check_choices,
    declared,
    finish,
    is_gated,
    needs,
    refusal,
    say_queue,
    take_back,
    unbounded,
    unneeded,
)
from penstock.formats.labels import QUEUE
from penstock.formats.report import Report

MOST_BYTES = 2**20
"""The most bytes of one object in a cluster."""
_STARTS = ("Workflow", "CronWorkflow")


def gate(
    library: Library, document: Document, unit: str = "stage", by: str = "suspend", report: Report | None = None
) -> dict[str, Any]:
    """The document with gates in it. Raises DocumentError, P860 to P869."""
    check_choices(unit, by)
    if document.kind not in KINDS:
        raise refusal(document, "P868", "kind", f"{document.kind or 'this'} is not an Argo workflow", "give a Workflow")
    report = Report() if report is None else report
    gated = begin(document)
    library = _without_gates(library)
    spec = _spec(document, gated)
    mark: dict[str, Any] = {"unit": unit, "by": "pods" if unit == "task" else by}
    if not _asks(library, document, unit):
        return unneeded(document, report)
    if unit == "workflow":
        mark |= {"by": "suspend", "held": _whole(library, document, gated, spec, report)}
    elif mark["by"] == "pods":
        _pods(library, document, spec, report)
    else:
        Injection(library, document, spec, "suspend", report).run()
        _deadline(document, report)
    say_queue(document, report)
    _tell_started(document, gated, mark)
    found = finish(document, gated, mark)
    _refuse_too_large(document, found)
    return found


def _asks(library: Library, document: Document, unit: str) -> bool:
    """Does it need quota?"""
    if unit != "workflow":
        return static_stages(library, document, everything=document.kind not in _STARTS).asks
    if document.kind not in _STARTS:
        return True  # and cannot be gated as a whole
    if declared(document, MAX_RESOURCES, part(document.data, *_of_started(document), "annotations")):
        return True
    demand = demand_of(library, document)
    return bool(demand.resources or demand.open)


def _spec(document: Document, gated: dict[str, Any]) -> dict[str, Any]:
    found = gated
    for name in spec_path(document).split("."):
        if not isinstance(found.get(name), dict):
            raise refusal(
                document, "P868", spec_path(document), "there is no workflow in it", f"write {spec_path(document)}"
            )
        found = found[name]
    return found


def _without_gates(library: Library) -> Library:
    """The library without gates: templates that are copied into the workflow get gates of its own."""
    if not any(is_gated(one.data) for one in library.documents):
        return library
    return Library(
        tuple(Document(take_back(one), one.file, one.marks) if is_gated(one.data) else one for one in library.documents)
    )


def ungate(data: Document | Mapping[str, Any]) -> dict[str, Any]:
    """The document as it was. Raises DocumentError, P866."""
    return take_back(data if isinstance(data, Document) else Document(data))


def _whole(library: Library, document: Document, gated: dict[str, Any], spec: dict[str, Any], report: Report) -> str:
    """Suspends the workflow and declares what it needs. Returns who holds it."""
    if document.kind not in _STARTS:
        raise refusal(
            document,
            "P865",
            "kind",
            f"a {document.kind} does not run by itself, and its suspend is not handed on",
            "gate the Workflow that is made from it, or its stages (--unit stage)",
        )
    path = spec_path(document)
    held = "user" if spec.get("suspend") is True else "penstock"
    spec["suspend"] = True
    if held == "user":
        report.kept(f"{path}.suspend", "you suspended it yourself: only you let it go", document.source(path))
    else:
        report.changed(f"{path}.suspend", "the workflow waits as a whole", "", document.source(path))
    annotate(gated, _needed(library, document, report), *_of_started(document))
    return held


def _of_started(document: Document) -> tuple[str, ...]:
    """The path of the metadata of what runs: a CronWorkflow does not pass on its own."""
    return ("spec", "workflowMetadata") if document.kind == "CronWorkflow" else ("metadata",)


def _needed(library: Library, document: Document, report: Report) -> dict[str, str]:
    """The annotations that are missing. What the user declares is not computed, so it needs no bound."""
    there = part(document.data, *_of_started(document), "annotations")
    given = {name: declared(document, name, there) for name in (MAX_RESOURCES, TOLERATION, NODE_SELECTOR)}
    for name, value in given.items():
        if value is not None:
            report.kept(f"metadata.annotations.{name}", "taken as you declared it", document.source("metadata"))
    demand = demand_of(library, document)
    if given[MAX_RESOURCES] is None and demand.open:
        raise unbounded(demand.open)
    if not demand.alike and given[NODE_SELECTOR] is None:
        report.changed(
            "metadata.annotations",
            "its pods do not all ask for the same machines; only what they share is declared",
            f"queue by stage, or declare {NODE_SELECTOR}",
            document.source("metadata"),
        )
    computed = needs(demand.resources, demand.tolerations, demand.node_selector)
    found = {name: text for name, text in computed.items() if given[name] is None}
    for name, text in found.items():
        report.changed(f"metadata.annotations.{name}", f"computed: {text}", "", document.source("metadata"))
    if document.kind != "CronWorkflow":
        return found
    # A declaration on the CronWorkflow is meant for the workflows that it starts.
    said = {name: json.dumps(value, separators=(",", ":")) for name, value in given.items() if value is not None}
    return {**found, **{name: text for name, text in said.items() if name not in there}}


def _pods(library: Library, document: Document, spec: dict[str, Any], report: Report) -> None:
    """For the whole spec at once if nothing is exempt and all ask for something, otherwise for each template. HTTP and plugin templates are exempt: one agent pod
    serves all of them, and a gate for the whole spec would hold it too."""
    root = root_of(library, document)
    derived = static_stages(library, document)
    exempt = derived.exempt or any(lost.exempt for lost in derived.unresolved)
    served = any(one.type in ("http", "plugin") for one in derived.main.values())
    idle = not derived.unresolved and not all(call.shape.asks for stage in derived.queued() for call in stage.calls)
    if document.kind not in _STARTS or exempt or served or idle or root.unresolved is not None:
        Injection(library, document, spec, "pods", report).run()
        return
    refuse_reserved(root, derived)
    path = f"{root.path}.podSpecPatch"
    spec["podSpecPatch"] = gated_patch(root.spec.get("podSpecPatch"), document, path)
    report.changed(path, f"every pod waits with the scheduling gate {POD_GATE}", "", document.source(path))
    for lost in derived.unresolved:
        report.changed(
            lost.path,
            f"{lost.unresolved.reference} is only known when it runs; its pods wait, those of its exit handlers too",
            "",
            lost.document.source(lost.path),
        )


def _deadline(document: Document, report: Report) -> None:
    path = f"{spec_path(document)}.activeDeadlineSeconds"
    if part(document.data, *spec_path(document).split(".")).get("activeDeadlineSeconds") is not None:
        report.changed(path, "the time spent at gates counts against it", "make it longer", document.source(path))


def _tell_started(document: Document, gated: dict[str, Any], mark: dict[str, Any]) -> None:
    """The workflows that a CronWorkflow starts get its gate annotation and its queue."""
    if document.kind == "CronWorkflow":
        annotate(gated, {MARK: json.dumps(mark, separators=(",", ":"))}, "spec", "workflowMetadata")
        queue = part(document.metadata, "labels").get(QUEUE)
        metadata = gated["spec"]["workflowMetadata"]
        if queue and not part(metadata, "labels").get(QUEUE):
            metadata["labels"] = {**part(metadata, "labels"), QUEUE: queue}


def _refuse_too_large(document: Document, gated: dict[str, Any]) -> None:
    """Gates add templates and tasks, of which an object may have 200, and bytes, of which it may have a mebibyte."""
    size = len(json.dumps(gated, default=str))
    if size > MOST_BYTES:
        raise refusal(
            document,
            "P864",
            "",
            f"with gates in it the document has {size:,} bytes, and {MOST_BYTES:,} are allowed",
            "gate the pods instead (--by pods), or queue the workflow whole (--unit workflow)",
        )
    before = {(one.kind, one.message) for one in schema.check(document.data)}
    for one in schema.check(gated):
        if (one.kind, one.message) not in before:
            raise refusal(
                document,
                "P864",
                one.path,
                f"with gates in it Argo would not take the document: {one.message}",
                "gate the pods instead (--by pods), or queue the workflow whole (--unit workflow)",
            )
