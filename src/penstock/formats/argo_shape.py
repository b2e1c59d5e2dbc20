"""What one call of an Argo template asks for: how many pods, of what size, where. Called by the stages, the demand and the gates.

Sizes are what can be known from the documents alone. A value that only the run knows (`{{steps.a.outputs.result}}`) is named in
`open` and never guessed; one that the document itself gives (`{{workflow.parameters.memory}}` with a value) is filled in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import UserError
from penstock.formats import pods
from penstock.formats.argo_scope import Resolved, Root, merge, type_of
from penstock.formats.documents import items, part
from penstock.graph.text import read_yaml

_PLAIN = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}")
_LATER = "\u27e8run\u27e9"
"""Stands for a tag in text that is read as YAML: it is no quantity and no number, and may stand anywhere."""
_INTEGER = re.compile(r"[+-]?\d{1,18}\Z")
_MAKES = frozenset({"create", "apply", "replace"})
"""What a resource template does when pods come of it."""
_REPLICATED = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"})


@dataclass(frozen=True, slots=True)
class Shape:
    """Of one call, all its pods together."""

    pods: int = 1
    resources: Mapping[str, int] = field(default_factory=dict)
    """Thousandths, by resource."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    open: tuple[str, ...] = ()
    """What only the run knows: resources, or the name of a field."""
    daemon: bool = False
    """Held until the steps or dag template around it ends."""


def size_of(call: Mapping[str, Any]) -> int | None:
    """How many times a step or task runs: a literal, or None where only the run knows."""
    if call.get("withItems") is not None:
        return len(call["withItems"]) if isinstance(call["withItems"], list) else None
    if call.get("withParam") is not None:
        return _listed(call["withParam"])
    if call.get("withSequence") is not None:
        return _sequence(part(call, "withSequence"))
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
    """An integer as Argo takes it: a number, or text that is one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and _INTEGER.match(value) else None


def known_values(root: Root, resolved: Resolved, call: Mapping[str, Any] | None) -> dict[str, str]:
    """What simple tags inside a template stand for, as far as the documents say: parameters of the workflow, and inputs that the
    call gives as literals, or that have a default."""
    found: dict[str, str] = {}
    for _, one in items(part(root.spec, "arguments"), "parameters"):
        _take(found, "workflow.parameters", one, ("value",))
    given = {str(one.get("name")): one for _, one in items(part(call, "arguments"), "parameters")}
    for _, one in items(part(resolved.template, "inputs"), "parameters"):
        if str(one.get("name")) in given:
            _take(found, "inputs.parameters", given[str(one.get("name"))], ("value",))
        else:
            _take(found, "inputs.parameters", one, ("value", "default"))
    return found


def _take(found: dict[str, str], prefix: str, one: Mapping[str, Any], fields: tuple[str, ...]) -> None:
    for name in fields:
        value = one.get(name)
        if isinstance(value, str | int | float):
            text = fill(str(value).lower() if isinstance(value, bool) else str(value), found)
            if "{{" not in text:
                found[f"{prefix}.{one.get('name')}"] = text
            return


def fill(value: Any, known: Mapping[str, str]) -> Any:
    """Simple tags replaced by what is known, in text and in whatever holds text."""
    if isinstance(value, str):
        return _PLAIN.sub(lambda tag: known.get(tag[1], tag[0]), value) if "{{" in value else value
    if isinstance(value, Mapping):
        return {key: fill(item, known) for key, item in value.items()}
    return [fill(item, known) for item in value] if isinstance(value, list) else value


def shape_of(root: Root, resolved: Resolved, call: Mapping[str, Any] | None = None) -> Shape:
    """Of a pod-typed template where it is called; without a call, as the entrypoint."""
    template = resolved.scope.effective(resolved.template)
    known = known_values(root, resolved, call)
    spec, unknown = _pod_spec(root, template, known)
    daemon = template.get("daemon") is True
    if type_of(template) != "resource":
        resources = pods.resources_of(spec)
        return Shape(1, resources, *_placement(spec), open=(*unknown, *_open(spec)), daemon=daemon)
    made, more = _made(template, known)
    total: dict[str, int] = {}
    for count, pod in made:
        for name, amount in pods.resources_of(pod).items():
            total[name] = total.get(name, 0) + amount * count
        more += _open(pod)
    number = sum(count for count, _ in made) or 1
    # Its pods are those of the manifest; where it makes none, the small one that talks to the cluster.
    return Shape(
        number, total, *_placement(made[0][1] if made else spec), open=tuple(dict.fromkeys(more)), daemon=daemon
    )


def _placement(spec: Mapping[str, Any]) -> tuple[dict[str, str], tuple[Mapping[str, Any], ...]]:
    tolerations = tuple(one for _, one in items(spec, "tolerations") if not templated(one))
    return _literal_map(spec.get("nodeSelector")), tolerations


def _literal_map(value: Any) -> dict[str, str]:
    found = value if isinstance(value, Mapping) else {}
    return {str(name): str(text) for name, text in found.items() if not templated([name, text])}


def _open(spec: Mapping[str, Any]) -> list[str]:
    """Resources whose amount is not written out, and placements that are not."""
    found: list[str] = []
    for name in ("containers", "initContainers"):
        for _, one in items(spec, name):
            for field_name in ("requests", "limits"):
                found += pods.unknown_amounts(part(one, "resources", field_name))
    for field_name in ("requests", "limits"):
        found += pods.unknown_amounts(part(spec, "resources", field_name))
    found += [name for name in ("nodeSelector", "tolerations") if templated(spec.get(name))]
    return list(dict.fromkeys(found))


def _pod_spec(root: Root, template: Mapping[str, Any], known: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The pod that Argo makes, as far as it matters to a queue, and the fields that could not be read."""
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
    """A podSpecPatch as data; None if it cannot be read. Tags that are left stand as text that is no quantity."""
    if not isinstance(text, str):
        return None
    found = _yaml(text)
    return found if isinstance(found, dict) else None


def _yaml(text: str) -> Any:
    try:
        return read_yaml("".join(_LATER if tag else plain for plain, tag in split_tags(text)), "<text>")[0]
    except UserError:
        return None


def split_tags(text: str) -> Iterator[tuple[str, bool]]:
    """The text in pieces, and which of them are tags (`{{…}}`, with their braces). In one pass, however odd the text is."""
    pieces = text.split("}}")
    for piece in pieces[:-1]:
        plain, opened, tag = piece.partition("{{")
        if opened:
            yield plain, False
            yield f"{{{{{tag}}}}}", True
        else:
            yield f"{piece}}}}}", False
    yield pieces[-1], False


def templated(value: Any) -> bool:
    """Text, or text anywhere inside, that only the run completes."""
    if isinstance(value, Mapping):
        return any(templated(item) for pair in value.items() for item in pair)
    if isinstance(value, list | tuple):
        return any(map(templated, value))
    return isinstance(value, str) and ("{{" in value or _LATER in value)


def _made(
    template: Mapping[str, Any], known: Mapping[str, str]
) -> tuple[list[tuple[int, Mapping[str, Any]]], list[str]]:
    """The pods that come of a resource template's manifest, and what is not known about them."""
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


def _pods_of(data: Mapping[str, Any]) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """(count, pod spec) of an object that makes pods; of none that is not known, nor of a Workflow, which queues by itself."""
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
    for name, replicas in spec.items():  # PyTorchJob, TFJob, MPIJob and their kin
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
