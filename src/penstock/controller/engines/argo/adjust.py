"""A new Workflow, made ready for its queue. Called by the webhook through the engine.

By stage, suspend gates go before each stage (formats.argo.gate). Where they cannot, because a template is only known in the run or the document
would get too large, the pods wait instead, and the user is told. The queue's label goes to all pods, so that none can start without quota.
Gates that are in the document already are taken out first: a copy of a gated manifest proves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.controller import names
from penstock.controller.choices import suspends_by_steps
from penstock.controller.engine import Adjusted, Unit
from penstock.controller.engines.argo.manifests import free_manifests, label_manifests
from penstock.controller.engines.argo.queues import QUEUES, label_templates, queues_of, said_of, warnings_of
from penstock.controller.engines.argo.static import STAGES, described, unsized_in
from penstock.controller.engines.argo.stopping import OPENED
from penstock.controller.objects import ApiResource, Lookup, Object, annotations_of, labels_of, namespace_of, part
from penstock.errors import DocumentError, UserError
from penstock.formats.argo.gate.document import gate
from penstock.formats.argo.scope import root_of
from penstock.formats.argo.stages import static_stages
from penstock.formats.documents import Document, Library, items
from penstock.formats.gates.marks import MARK, UNDO, annotate, copied, refusal, take_back
from penstock.formats.report import Report

TEMPLATES = ApiResource("argoproj.io/v1alpha1", "WorkflowTemplate", "workflowtemplates")
CLUSTER_TEMPLATES = ApiResource(
    "argoproj.io/v1alpha1", "ClusterWorkflowTemplate", "clusterworkflowtemplates", namespaced=False
)
_PODS_INSTEAD = frozenset({"P860", "P862", "P864", "P865"})
"""Obstacles for gates in the graph which are none for gates on pods."""
_ITS_OWN = "workflows.argoproj.io/"
_OURS = "penstock/"
_KEPT = frozenset({names.QUEUE, names.PRIORITY})
_OUR_NOTES = frozenset({names.STOPPING, OPENED, STAGES, QUEUES, MARK})
_NO_PATCH = "{}"
_HANDLERS = frozenset({"onExit", "hooks"})


def adjust(obj: Object, unit: Unit, lookup: Lookup) -> Adjusted:
    written = _as_written(obj)
    document = Document(written, "the workflow")
    queue = str(labels_of(obj).get(names.QUEUE) or "")
    library = _library(document, lookup)
    _refuse_disguise(library, document)
    _refuse_relabelling(library, document)
    derived = static_stages(library, document)
    queues = queues_of(document, derived)
    told = [*label_manifests(written, queue, queues), *free_manifests(library, document)]
    gated, warnings = _gated(library, document, unit, suspends_by_steps(obj, lookup))
    _label(gated, queue)
    _keep_collector(gated)
    _tell_queues(gated, said_of(document, derived, queues))
    if unit != "task":
        _tell_stages(library, document, gated, queue, queues)
    by_stage = unit in ("stage", "reuse") and '"by":"suspend"' in str(annotations_of(gated).get(MARK))
    unsized = unsized_in(derived) if by_stage else []
    return Adjusted(gated, (*warnings, *told, *warnings_of(derived, unit, queue, queues), *unsized))


def _as_written(obj: Object) -> dict[str, Any]:
    """Without what we have written into it, if it is a copy; nobody else may write that."""
    has_gates = UNDO in annotations_of(obj)  # Where its pods wait, nothing has been written into its graph.
    found: dict[str, Any] = take_back(Document(obj)) if has_gates else copied(obj)
    notes = part(found, "metadata", "annotations")
    if any(name in notes for name in _OUR_NOTES):
        found["metadata"]["annotations"] = {key: text for key, text in notes.items() if key not in _OUR_NOTES}
    return found


def _library(document: Document, lookup: Lookup) -> Library:
    others = [*lookup.list(TEMPLATES, namespace_of(document.data)), *lookup.list(CLUSTER_TEMPLATES)]
    return Library((document, *(Document(one, _place(one)) for one in others)))


def _place(obj: Object) -> str:
    return f"{obj.get('kind')} {part(obj, 'metadata').get('name')}"


def _gated(library: Library, document: Document, unit: Unit, by_steps: bool) -> tuple[dict[str, Any], list[str]]:
    way = "stage" if unit == "reuse" else unit
    report = Report()
    try:
        if unit == "workflow" or (unit != "task" and by_steps):
            gated = gate(library, document, way, "suspend", report)
            return gated, [f"{one.path}: {one.message}" for one in report.entries if "counts against it" in one.message]
    except UserError as error:
        codes = {problem.code for problem in error.problems}
        if unit == "workflow" or not codes <= _PODS_INSTEAD:
            raise
        reasons = [f"its pods wait one by one, not its stages: {problem.message}" for problem in error.problems]
        return _by_pods(document, unit), reasons
    return _by_pods(document, unit), []


def _by_pods(document: Document, unit: Unit) -> dict[str, Any]:
    data: dict[str, Any] = copied(document.data)
    annotate(data, {MARK: json.dumps({"unit": unit, "by": "pods"}, separators=(",", ":"))})
    return data


def _refuse_disguise(library: Library, document: Document) -> None:
    """What Argo writes on pods tells which stage they belong to; a document must not write it itself. Nor may a task look like a handler."""
    places = [("spec.podMetadata", part(document.spec, "podMetadata"))]
    for number, template in items(document.spec, "templates"):
        places.append((f"spec.templates[{number}].metadata", part(template, "metadata")))
    for path, metadata in places:
        for field in ("labels", "annotations"):
            for key in part(metadata, field):
                if str(key).startswith(_ITS_OWN):
                    raise refusal(
                        document, "P885", f"{path}.{field}", f"{key} is written by Argo alone", f"remove {key}"
                    )
    _refuse_own_collector(library, document)
    for one in static_stages(library, document).main.values():
        for name in _task_names(one.template):
            if name in _HANDLERS:
                raise refusal(
                    document,
                    "P885",
                    "spec.templates",
                    f"a task called {name!r} looks like an exit handler, which never waits in a queue",
                    "give the task another name",
                )


def _refuse_own_collector(library: Library, document: Document) -> None:
    """Pods that delete artifacts never wait, and have no label of ours: they may belong to a workflow that is being deleted. So they are Argo's own."""
    collector = part(root_of(library, document).spec, "artifactGC")
    path = "spec.artifactGC"
    if collector.get("podSpecPatch") not in (None, "", _NO_PATCH):
        said = "the pods that delete artifacts never wait in a queue, so they run what Argo wrote, and ask for what Argo asks for"
        raise refusal(document, "P885", f"{path}.podSpecPatch", said, "remove podSpecPatch")
    for field in ("labels", "annotations"):
        for key in part(collector, "podMetadata", field):
            if str(key).startswith(_OURS):
                said = f"{key} would hold the pods that delete artifacts, and nothing lets them go"
                raise refusal(document, "P885", f"{path}.podMetadata.{field}", said, f"remove {key}")


def _refuse_relabelling(library: Library, document: Document) -> None:
    """Argo writes these labels onto the workflow when it starts it, over those that it has: it must not change queues by that."""
    root = root_of(library, document)
    own = labels_of(document.data)
    for field in ("labels", "labelsFrom", "annotations"):
        for key, value in part(root.spec, "workflowMetadata", field).items():
            ours = key in _KEPT or str(key).startswith(_OURS)
            if ours and not (field == "labels" and own.get(key) == value):
                path = f"spec.workflowMetadata.{field}"
                said = f"{key} is taken from the workflow as it is created; Argo would change it later"
                raise refusal(document, "P885", path, said, f"write {key} in metadata.{field.removesuffix('From')}")


def _keep_collector(gated: dict[str, Any]) -> None:
    """The workflow that it refers to may be changed before Argo reads it. What the Workflow itself says comes first."""
    if part(gated, "spec", "workflowTemplateRef"):
        gated["spec"]["artifactGC"] = {**part(gated, "spec", "artifactGC"), "podSpecPatch": _NO_PATCH}


def _task_names(template: Mapping[str, Any]) -> Iterator[str]:
    for _, task in items(part(template, "dag"), "tasks"):
        yield str(task.get("name"))


def _label(gated: dict[str, Any], queue: str) -> None:
    """Every pod carries the queue's name under our label, and not under Kueue's: Kueue would queue it a second time."""
    spec = gated["spec"]
    metadata = {**part(spec, "podMetadata")}
    metadata["labels"] = {k: v for k, v in part(metadata, "labels").items() if k != names.QUEUE} | {names.QUEUED: queue}
    spec["podMetadata"] = metadata
    label_templates(gated)


def _tell_queues(gated: dict[str, Any], said: Mapping[str, str]) -> None:
    if said:
        annotate(gated, {QUEUES: json.dumps(said, separators=(",", ":"), sort_keys=True)})


def _tell_stages(
    library: Library, document: Document, gated: dict[str, Any], queue: str, queues: Mapping[str, str]
) -> None:
    try:
        text = described(static_stages(library, document), queue, queues)
    except DocumentError:
        return
    if text:
        annotate(gated, {STAGES: text})
