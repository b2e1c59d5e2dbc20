"""Queues that templates name for themselves, in a new Workflow and in what it refers to. Called by `adjust`, `static` and the engine.

A template names its queue by Kueue's label in its metadata, also by templateDefaults, written where it is called, or in a WorkflowTemplate. Argo copies
labels of templates to pods. Where the template is the workflow's own the label is rewritten to ours, so each pod says its queue; a template of another
document cannot be changed, so an annotation tells its queue, and the pod's node which template it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from penstock.controller import names
from penstock.controller.engine import Unit
from penstock.controller.engines.argo.manifests import templates_in
from penstock.controller.engines.argo.nodes import Node
from penstock.controller.objects import Object, annotations_of, part
from penstock.formats.argo.scope import Resolved, is_pod
from penstock.formats.argo.stages import StaticStage, StaticStages
from penstock.formats.documents import Document, items

QUEUES = "penstock/queues"
"""On a Workflow: the queues of templates that lie in other documents, as JSON."""
_SCOPES = {"WorkflowTemplate": "namespaced", "ClusterWorkflowTemplate": "cluster"}
"""Kind -> as Argo calls it in the nodes of the status."""
MOST = 16 * 1024
"""Bytes of the annotation."""


def _named(template: Mapping[str, Any]) -> str:
    """Ours stands in a copy of a workflow that was queued before."""
    labels = part(template, "metadata", "labels")
    return str(labels.get(names.QUEUE) or labels.get(names.QUEUED) or "")


def _is_known(queue: str) -> bool:
    return "{{" not in queue


def queues_of(document: Document, derived: StaticStages) -> dict[str, str]:
    """By qualified name, the templates that name a queue, as far as it is known before the run."""
    found = {str(one.get("name")): _named(one) for _, one in items(document.spec, "templates")}
    found |= {name: _named(one.scope.effective(one.template)) for name, one in derived.main.items()}
    return {name: queue for name, queue in found.items() if queue and _is_known(queue)}


def said_of(document: Document, derived: StaticStages, queues: Mapping[str, str]) -> dict[str, str]:
    """For the annotation: of pods whose label does not say it, since their templates lie in other documents."""
    others = [one for one in derived.main.values() if one.document is not document and is_pod(one.template)]
    found = {name: queues[one.qualified] for one in others if one.qualified in queues for name in _places(one)}
    return found if sum(len(name) + len(queue) + 6 for name, queue in found.items()) <= MOST else {}


def _places(one: Resolved) -> list[str]:
    """`namespaced/lib/train`, as in the nodes of the status. What a workflowTemplateRef brings is of the workflow's own scope as well."""
    name = str(one.template.get("name") or "")
    scope = _SCOPES.get(one.document.kind)
    found = [f"{scope}/{one.document.name}/{name}"] if scope else []
    return [name, *found] if one.scope.kind == "local" else found


def queue_of_node(main: Object, node: Node | None) -> str | None:
    """The queue that the template of a pod names in another document; None if the node is not there yet, so nobody knows."""
    told = _read(str(annotations_of(main).get(QUEUES) or "{}"))
    if not told:
        return ""
    if node is None:
        return None
    ref, name = part(node.data, "templateRef"), str(node.data.get("templateName") or "")
    scope = str(node.data.get("templateScope") or "")
    if ref:
        kind = "cluster" if ref.get("clusterScope") is True else "namespaced"
        return told.get(f"{kind}/{ref.get('name')}/{ref.get('template')}", "")
    return told.get(name if scope.startswith("local/") or not scope else f"{scope}/{name}", "")


@lru_cache(maxsize=32)
def _read(text: str) -> Mapping[str, str]:
    """Each pod of a stage asks."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {str(name): str(queue) for name, queue in found.items()} if isinstance(found, dict) else {}


def queues_in(stage: StaticStage, queue: str, queues: Mapping[str, str]) -> list[str]:
    """The queues in which a stage waits: `queue` unless a step that asks for something names another."""
    asking = [call for call in stage.calls if call.shape.asks] or stage.calls
    return list(dict.fromkeys(queues.get(call.template, queue) for call in asking))


def warnings_of(derived: StaticStages, unit: Unit, queue: str, queues: Mapping[str, str]) -> list[str]:
    """What the user has to know of queues that cannot be what they seem."""
    found = []
    if unit == "workflow":
        others = sorted(name for name, own in queues.items() if own != queue and name in derived.main)
        said = f"by unit workflow the whole run waits in queue {queue}, not in one of its own"
        return [f"template {name}: {said}" for name in others]
    for stage in derived.queued():
        own = queues_in(stage, queue, queues)
        if unit != "task" and len(own) > 1:
            said = f"its steps name the queues {', '.join(own)}, so its pods wait, those of each queue by themselves"
            found.append(f"stage {stage.name}: {said}")
    for name, one in derived.main.items():
        said = _named(one.scope.effective(one.template))
        if said and not _is_known(said):
            found.append(f"template {name}: only the run knows its queue {said!r}; its stage waits in queue {queue}")
    return found


def label_templates(gated: dict[str, Any]) -> None:
    """Kueue's label on templates becomes ours. One that names nothing goes: it would take the place of the workflow's own in the pods."""
    for _, template in templates_in(gated):
        said = part(template, "metadata", "labels")
        if isinstance(template, dict) and (names.QUEUE in said or names.QUEUED in said):
            kept = {k: v for k, v in said.items() if k not in (names.QUEUE, names.QUEUED)}
            labels = kept | ({names.QUEUED: queue} if (queue := _named(template)) else {})
            template["metadata"] = {**part(template, "metadata"), "labels": labels}
