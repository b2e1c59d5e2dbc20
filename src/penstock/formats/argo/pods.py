"""The pods of one call of an Argo template: how many, of what size, where. Called by stages, demand and the gate.

A value that the document itself gives (see known) is filled in. What only the run knows is named in `PodShape.open`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.errors import UserError
from penstock.formats.argo.known import Values, fill, split_tags
from penstock.formats.argo.scope import Resolved, WorkflowRoot, merge, type_of
from penstock.formats.documents import items, part
from penstock.formats.labels import QUEUE
from penstock.formats.pods import requests as pods
from penstock.graph.text import read_yaml

_LATER = "\u27e8run\u27e9"
"""Replaces a tag in text that is parsed as YAML: it is neither a quantity nor a number, and valid anywhere."""
_INTEGER = re.compile(r"[+-]?\d{1,18}\Z")
_MAKES = frozenset({"create", "apply", "replace"})
"""The actions of a resource template that create pods."""
_REPLICATED = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"})


PLACES: Final = frozenset({"nodeSelector", "tolerations"})
"""Where it may run: no amounts."""


@dataclass(frozen=True, slots=True)
class PodShape:
    """All pods of one call together."""

    pods: int = 1
    resources: Mapping[str, int] = field(default_factory=dict)
    """Thousandths, by resource."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    open: tuple[str, ...] = ()
    """What only the run knows: resources, or the name of a field."""
    daemon: bool = False
    """Held until the steps or dag template around it ends."""
    unseen: bool = False
    """It makes an object of a kind that is not known here, and that has pods perhaps."""

    @property
    def asks(self) -> bool:
        """Does it need quota, as far as can be told before the run?"""
        return self.unseen or any(self.resources.values()) or not PLACES.issuperset(self.open)


def size_of(call: Mapping[str, Any], known: Values | None = None) -> int | None:
    """How many times a step or task runs, given these values; None if only the run knows."""
    if call.get("withItems") is not None:
        return len(call["withItems"]) if isinstance(call["withItems"], list) else None
    if call.get("withParam") is not None:
        return _listed(fill(call["withParam"], known or {}))
    if call.get("withSequence") is not None:
        return _sequence(fill(part(call, "withSequence"), known or {}))
    return 1


def loops(call: Mapping[str, Any]) -> bool:
    return any(call.get(name) is not None for name in ("withItems", "withParam", "withSequence"))


def _listed(text: Any) -> int | None:
    """The length of a list that is written out in withParam."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return len(found) if isinstance(found, list) else None


def _sequence(sequence: Mapping[str, Any]) -> int | None:
    if sequence.get("count") is not None:
        count = whole(sequence["count"])
        return None if count is None else max(0, count)
    start, end = whole(sequence.get("start") or 0), whole(sequence.get("end") or 0)
    return None if start is None or end is None else abs(end - start) + 1


def whole(value: Any) -> int | None:
    """An integer in Argo's sense: a number, or text that is one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and _INTEGER.match(value) else None


def shape_of(root: WorkflowRoot, resolved: Resolved, known: Values) -> PodShape:
    """The pods of a pod-typed template in which these values are known."""
    template = resolved.scope.effective(resolved.template)
    spec, unknown = _pod_spec(root, template, known)
    daemon = template.get("daemon") is True
    if type_of(template) != "resource":
        resources = pods.resources_of(spec)
        return PodShape(1, resources, *_placement(spec), open=(*unknown, *_open(spec)), daemon=daemon)
    made, more = _made(template, known)
    total: dict[str, int] = {}
    for count, pod in made:
        for name, amount in pods.resources_of(pod).items():
            total[name] = total.get(name, 0) + amount * count
        more += _open(pod)
    number = sum(count for count, _ in made) or 1
    # Its pods are those of the manifest; without any, the small pod that talks to the cluster.
    return PodShape(
        number,
        total,
        *_placement(made[0][1] if made else spec),
        open=tuple(dict.fromkeys(more)),
        daemon=daemon,
        unseen=not made and not more and _is_unknown(template, known),
    )


def _placement(spec: Mapping[str, Any]) -> tuple[dict[str, str], tuple[Mapping[str, Any], ...]]:
    tolerations = tuple(one for _, one in items(spec, "tolerations") if not templated(one))
    return _literal_map(spec.get("nodeSelector")), tolerations


def _literal_map(value: Any) -> dict[str, str]:
    found = value if isinstance(value, Mapping) else {}
    return {str(name): str(text) for name, text in found.items() if not templated([name, text])}


def _open(spec: Mapping[str, Any]) -> list[str]:
    """Resources and placements that are not literal."""
    found: list[str] = []
    for name in ("containers", "initContainers"):
        for _, one in items(spec, name):
            for field_name in ("requests", "limits"):
                found += pods.unknown_amounts(part(one, "resources", field_name))
    for field_name in ("requests", "limits"):
        found += pods.unknown_amounts(part(spec, "resources", field_name))
    found += [name for name in ("nodeSelector", "tolerations") if templated(spec.get(name))]
    return list(dict.fromkeys(found))


def _pod_spec(root: WorkflowRoot, template: Mapping[str, Any], known: Values) -> tuple[dict[str, Any], list[str]]:
    """The parts of Argo's pod that matter to a queue, and the fields that could not be parsed."""
    kind = type_of(template)
    containers = [dict(one) for _, one in items(part(template, "containerSet"), "containers")]
    if kind in ("container", "script"):
        containers = [{**part(template, kind), "name": "main"}]
    spec: dict[str, Any] = {
        "containers": [*containers, *(dict(one) for _, one in items(template, "sidecars"))],
        "initContainers": [dict(one) for _, one in items(template, "initContainers")],
    }
    for name in ("nodeSelector", "tolerations", "affinity"):
        value = template.get(name) or root.spec.get(name)
        if value:
            spec[name] = value
    resources = template.get("podResources") or root.spec.get("podResources")
    if resources:
        spec["resources"] = resources
    spec = fill(spec, known)
    unknown = []
    for text in (root.spec.get("podSpecPatch"), template.get("podSpecPatch")):
        if text:
            patch = patch_of(fill(text, known))
            if patch is None:
                unknown.append("podSpecPatch")
            else:
                spec = merge(spec, patch)
    return spec, unknown


def patch_of(text: Any) -> dict[str, Any] | None:
    """A podSpecPatch as data; None if it cannot be parsed. Remaining tags are replaced by text that is not a quantity."""
    if not isinstance(text, str):
        return None
    found = _yaml(text)
    return found if isinstance(found, dict) else None


def _yaml(text: str) -> Any:
    try:
        return read_yaml("".join(_LATER if tag else plain for plain, tag in split_tags(text)), "<text>")[0]
    except UserError:
        return None


def templated(value: Any) -> bool:
    """Does it contain text that only the run completes?"""
    if isinstance(value, Mapping):
        return any(templated(item) for pair in value.items() for item in pair)
    if isinstance(value, list | tuple):
        return any(map(templated, value))
    return isinstance(value, str) and ("{{" in value or _LATER in value)


def _made(
    template: Mapping[str, Any], known: Mapping[str, str]
) -> tuple[list[tuple[int, Mapping[str, Any]]], list[str]]:
    """The pods of a resource template's manifest, and what is not known of them."""
    resource = part(template, "resource")
    if str(resource.get("action")) not in _MAKES:
        return [], []
    manifest = resource.get("manifest")
    if not isinstance(manifest, str):
        return [], ["manifest"] if resource.get("manifestFrom") else []
    data = _yaml(str(fill(manifest, known)))
    if not isinstance(data, Mapping):
        return [], ["manifest"]
    found: list[tuple[int, Mapping[str, Any]]] = []
    unknown: list[str] = []
    for count, spec in _pods_of(data):
        number = whole(count)
        unknown += [] if number is not None else ["replicas"]
        found.append((1 if number is None else max(0, number), spec))
    return found, unknown


def queues_by_itself(data: Mapping[str, Any]) -> bool:
    """It names a queue, so it waits there: the stage that makes it does not count its pods a second time."""
    return bool(part(data, "metadata", "labels").get(QUEUE))


def makes_pods(data: Mapping[str, Any]) -> bool:
    """Does an object have pods, or one that it makes perhaps? Of somebody's own kind nobody knows."""
    known = str(data.get("apiVersion")).rpartition("/")[0]
    own = "." in known and not known.endswith(".k8s.io")
    return own or data.get("kind") == "CronJob" or next(_pods_of(data), None) is not None


def _is_unknown(template: Mapping[str, Any], known: Mapping[str, str]) -> bool:
    """Does it make an object of somebody's own kind? (A Workflow queues by itself.)"""
    resource = part(template, "resource")
    if str(resource.get("action")) not in _MAKES or not isinstance(resource.get("manifest"), str):
        return False
    data = _yaml(str(fill(resource["manifest"], known)))
    if not isinstance(data, Mapping) or queues_by_itself(data):
        return False
    group = str(data.get("apiVersion")).rpartition("/")[0]
    return "." in group and not group.endswith(".k8s.io") and group != "argoproj.io"


def _pods_of(data: Mapping[str, Any]) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """(count, pod spec) for each kind of pod of an object. Empty for unknown kinds, and for what queues by itself, as a Workflow does."""
    if queues_by_itself(data):
        return
    kind, spec = data.get("kind"), part(data, "spec")
    if kind == "Pod":
        yield 1, spec
    elif kind == "Job":
        yield _side_by_side(spec), part(spec, "template", "spec")
    elif kind == "JobSet":
        for _, one in items(spec, "replicatedJobs"):
            job = part(one, "template", "spec")
            yield _times(one.get("replicas", 1), _side_by_side(job)), part(job, "template", "spec")
    elif str(kind) in _REPLICATED:
        yield spec.get("replicas", 1), part(spec, "template", "spec")
    elif kind == "List":
        for _, one in items(data, "items"):
            yield from _pods_of(one)
    for name, replicas in spec.items():  # PyTorchJob, TFJob, MPIJob and similar
        if str(name).endswith("ReplicaSpecs") and isinstance(replicas, Mapping):
            for one in replicas.values():
                if isinstance(one, Mapping):
                    yield one.get("replicas", 1), part(one, "template", "spec")


def _side_by_side(job: Mapping[str, Any]) -> Any:
    parallel, completions = whole(job.get("parallelism", 1)), whole(job.get("completions"))
    if parallel is None:
        return job.get("parallelism")
    return parallel if completions is None else min(parallel, completions)


def _times(one: Any, other: Any) -> Any:
    first, second = whole(one), whole(other)
    return None if first is None or second is None else first * second
