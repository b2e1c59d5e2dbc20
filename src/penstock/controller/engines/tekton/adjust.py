"""A new PipelineRun or TaskRun, made ready for the queue. Called by tekton.engine when one is created; pure.

    penstock/queue       the label that Tekton copies to TaskRuns and pods: a policy of the API server holds them
    PipelineRunPending   by unit workflow; TaskRunPending for a TaskRun that stands alone
    timeouts.pipeline    "0" if the user set none: the time that tasks wait would count

A queue that a task names for itself (`taskRunSpecs[].metadata.labels`) gets the name `penstock/queue` as well. What the user holds stays held.
Gates that are in the document already are taken out first: they prove nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.controller.engine import Adjusted, Unit
from penstock.controller.engines.tekton.runs import PENDING, kind_of, library_of
from penstock.controller.names import QUEUE, QUEUED
from penstock.controller.objects import Lookup, Object, annotations_of, labels_of, namespace_of, part
from penstock.formats.documents import Document, Library
from penstock.formats.gates.marks import MARK, UNDO, annotate, begin, finish, is_gated, refusal, take_back
from penstock.formats.tekton import gate

_MOST_DECLARED = 4096
"""Bytes of the annotation that lists the tasks. Tekton copies annotations to every TaskRun and pod."""


def adjust(obj: Object, unit: Unit, lookup: Lookup) -> Adjusted:
    """Raises DocumentError."""
    kind = kind_of(obj)
    document = Document({**obj, "kind": kind}, file=kind)
    if is_gated(document.data):
        document = Document(take_back(document), file=kind)
    library = library_of([document.spec], lookup, namespace_of(obj))
    whole = gate.gate(library, document, "workflow") if unit == "workflow" and kind == "PipelineRun" else {}
    if is_gated(whole):
        gated, mark = whole, json.loads(whole["metadata"]["annotations"].pop(MARK))
        del gated["metadata"]["annotations"][UNDO]
    else:  # also a whole run that asks for nothing: its TaskRuns are let go as soon as they are there
        gated, mark = _by_task(library, document, unit)
    if kind == "PipelineRun" and document.spec.get("timeouts") is None and document.spec.get("timeout") is None:
        gated["spec"]["timeouts"] = {"pipeline": "0"}
    # Of a copy the queue is as it was given: to take its gates out takes our label out, too.
    given = labels_of(obj)
    queue = str(given.get(QUEUE) or given.get(QUEUED) or "")
    gated["metadata"]["labels"] = {**labels_of(gated), QUEUED: queue}
    _own_queues(gated["spec"])
    return Adjusted(finish(document, gated, mark), tuple(_warnings(document, kind)))


def _by_task(library: Library, document: Document, unit: str) -> tuple[dict[str, Any], dict[str, Any]]:
    gated = begin(document)
    mark = {"unit": unit, "by": "taskruns"}
    if document.kind == "TaskRun":
        mark["held"] = _hold(document, gated)
    elif document.spec.get("status") == PENDING[document.kind]:
        mark["held"] = "user"
    listed = [one.as_data() for one in gate.shapes_of(library, document)]
    shapes = json.dumps(listed, separators=(",", ":"), default=str)
    if len(shapes) <= _MOST_DECLARED:
        annotate(gated, {gate.TASKS: shapes})
    return gated, mark


def _hold(document: Document, gated: dict[str, Any]) -> str:
    """Who holds the TaskRun."""
    status = document.spec.get("status")
    if status == PENDING["TaskRun"]:
        return "user"
    if status:
        said = f"spec.status is {status!r} already, so the run cannot be held back by it"
        raise refusal(document, "P865", "spec.status", said, "take spec.status out")
    gated["spec"]["status"] = PENDING["TaskRun"]
    return "penstock"


def _own_queues(spec: dict[str, Any]) -> None:
    """Tasks that name a queue of their own."""
    listed = spec.get("taskRunSpecs")
    for one in listed if isinstance(listed, list) else ():
        labels = part(one, "metadata", "labels")
        if QUEUE in labels:
            rest = {name: text for name, text in labels.items() if name != QUEUE}
            one["metadata"]["labels"] = rest | {QUEUED: labels[QUEUE]}


def _warnings(document: Document, kind: str) -> list[str]:
    found = []
    if kind == "PipelineRun" and document.spec.get("timeouts") is not None:
        found.append("spec.timeouts: the time that tasks wait in the queue counts against it")
    if document.spec.get("status") == PENDING[kind]:
        found.append(f"spec.status is {PENDING[kind]}: it waits until you clear that, then in the queue")
    return found


def held_by(run: Object) -> str:
    """`penstock`, `user`, or empty if nobody said."""
    try:
        mark = json.loads(str(annotations_of(run).get(MARK) or "{}"))
    except (ValueError, RecursionError):
        return ""
    return str(mark.get("held") or "") if isinstance(mark, Mapping) else ""
