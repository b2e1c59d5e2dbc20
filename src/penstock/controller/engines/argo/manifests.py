"""What the resource templates of a new Workflow create: it waits in the workflow's queue by itself. Called by `adjust`.

The pod of a resource template only creates an object and looks at it. The pods of that object belong to somebody else's controller: Penstock does not
gate them and cannot stop them. So an object of a kind that waits by a label gets the label; of others the user is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.controller import names
from penstock.controller.objects import labels_of, namespace_of, part
from penstock.formats.argo.manifest import read_manifest, with_label
from penstock.formats.argo.pods import makes_pods, queues_by_itself
from penstock.formats.documents import Document, Library, items

_WAITING: Mapping[str, frozenset[str]] = {
    "batch": frozenset({"Job"}),
    "jobset.x-k8s.io": frozenset({"JobSet"}),
    "ray.io": frozenset({"RayJob", "RayCluster"}),
    "kubeflow.org": frozenset({"PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"}),
    "trainer.kubeflow.org": frozenset({"TrainJob"}),
    "workload.codeflare.dev": frozenset({"AppWrapper"}),
    "argoproj.io": frozenset({"Workflow"}),
    "tekton.dev": frozenset({"PipelineRun", "TaskRun"}),
}
"""Group -> kinds that wait as a whole, in Kueue or in Penstock, if they have the queue's label."""
_CREATES = ("create", "apply", "replace")


def label_manifests(data: dict[str, Any], queue: str, queues: Mapping[str, str]) -> list[str]:
    """Writes the queue into the manifests of this workflow's own templates. Returns what the user has to know."""
    told = []
    priority = str(labels_of(data).get(names.PRIORITY) or "")
    for path, template in _creating(data):
        resource = template["resource"]
        own = queues.get(str(template.get("name")), queue)
        made = _labelled(resource.get("manifest"), own, priority, namespace_of(data))
        if made is not None:
            resource["manifest"] = made
            told.append(f"{path}.resource: what it creates waits in queue {own} by itself: its manifest got the label")
        elif _is_free(resource):
            told.append(f"{path}.resource: {_FREE}")
    return told


def free_manifests(library: Library, document: Document) -> list[str]:
    """The same for templates that it refers to, which are not its own to change."""
    told = []
    known, new = {""}, _referred(document.data)
    while new:
        known |= new
        here = [one for one in library.documents if one is not document and one.name in new]
        for one in here:
            for path, template in _creating(one.data):
                if _is_free(template["resource"]):
                    told.append(f"{one.kind} {one.name}, {path}.resource: {_FREE}")
        new = {name for one in here for name in _referred(one.data)} - known
    return told


_FREE = f"Penstock cannot hold or stop what it creates. Write the label {names.QUEUE} into its manifest"


def _labelled(text: Any, queue: str, priority: str, namespace: str) -> str | None:
    found = read_manifest(text) if isinstance(text, str) else None
    if found is None or queues_by_itself(found):
        return None
    group = str(found.get("apiVersion")).rpartition("/")[0]
    there = str(part(found, "metadata").get("namespace") or namespace)
    if found.get("kind") not in _WAITING.get(group, ()) or there != namespace:
        return None
    made = with_label(text, names.QUEUE, queue)
    if made is None or not priority:
        return made
    return with_label(made, names.PRIORITY, priority) or made


def _is_free(resource: Mapping[str, Any]) -> bool:
    """Does it make pods that wait nowhere, as far as can be told?"""
    text = resource.get("manifest")
    found = read_manifest(text) if isinstance(text, str) else None
    if found is None:
        return True
    return not queues_by_itself(found) and makes_pods(found)


def templates_in(data: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """With those that are written where they are called, and the defaults of all."""
    spec = part(data, "spec")
    yield "spec.templateDefaults", part(spec, "templateDefaults")
    for number, template in items(spec, "templates"):
        path = f"spec.templates[{number}]"
        yield path, template
        for group in _lists(template.get("steps")):
            for step in _lists(group):
                yield f"{path}.steps", part(step, "inline")
        for _, task in items(part(template, "dag"), "tasks"):
            yield f"{path}.dag.tasks", part(task, "inline")


def _lists(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _creating(data: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Its resource templates that create something."""
    for path, template in templates_in(data):
        if part(template, "resource").get("action") in _CREATES:
            yield path, template


def _referred(data: Any) -> set[str]:
    """Names of the documents that this one refers to."""
    found, todo = set(), [data]
    while todo:
        one = todo.pop()
        if isinstance(one, Mapping):
            found |= {str(part(one, key).get("name")) for key in ("templateRef", "workflowTemplateRef") if key in one}
            todo += one.values()
        elif isinstance(one, list):
            todo += one
    return found
