"""AppWrapper: the objects that it wraps, each read by its own row of the table. Called by the table in kinds.

Kueue counts an AppWrapper by the pod sets that its components declare, or by those that the AppWrapper controller (1.2) infers. It infers less than Kueue counts
for the same object alone: of Ray only `replicas`, without hosts, submitter and autoscaler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from penstock.formats.documents import Document, Library, part
from penstock.formats.pods.requests import resources_of
from penstock.scheduling import fields
from penstock.scheduling.kinds.topology import topology_of
from penstock.scheduling.model import Data, JobPods, JobPodSet, Kind, Named, Path, Role, Slot, shown, template_slot

_INFERRED = {
    ("", "Pod"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("batch", "Job"),
    ("jobset.x-k8s.io", "JobSet"),
    ("kubeflow.org", "PyTorchJob"),
    ("ray.io", "RayCluster"),
    ("ray.io", "RayJob"),
}
_PART = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,6})\]", re.A)


def of(find: Callable[[Document], Kind | None]) -> Callable[[Document, Library], JobPods]:
    """`find`: the row of the table for an object."""

    def pods(document: Document, library: Library) -> JobPods:
        return _wrapper(document, library, find)

    return pods


def _wrapper(document: Document, library: Library, find: Callable[[Document], Kind | None]) -> JobPods:
    roles: list[Role] = []
    sets: list[JobPodSet] = []
    notes: list[tuple[str, str, str]] = []
    for number, (place, component) in enumerate(fields.listed(document, ("spec", "components"))):
        inside = (*place, "template")
        inner = _inner(document, inside)
        declared = list(_declared(document, place, component, inside))
        kind = find(inner)
        found = None if kind is None else kind.pods(inner, library)
        counted = declared or _inferred(inner, found)
        if found is not None:
            roles += [_moved(role, inside, number) for role in found.roles]
            notes += [(f"{shown(inside)}.{where}", said, advice) for where, said, advice in found.notes]
            notes += _short(inside, inner, found, counted)
        else:
            for n, (one, where) in enumerate(zip(counted, _paths(component, inside), strict=True)):
                name = f"pods-{number}-{n}"
                roles.append(Role(name, name, one.pod, one.count, one.count, template_slot(where)))
        sets += counted
    named = tuple(replace(one, name=f"{document.name}-{number}") for number, one in enumerate(sets))
    return JobPods(tuple(roles), named, tuple(notes))


def _inner(document: Document, inside: Path) -> Document:
    data = fields.mapping(document, inside, "it is the object that is wrapped")
    prefix = f"$.{shown(inside)}"
    marks = {f"${where[len(prefix) :]}": mark for where, mark in document.marks.items() if where.startswith(prefix)}
    return Document(data, document.file, marks)


def _moved(role: Role, inside: Path, number: int) -> Role:
    slot = role.slot
    labels = (*inside, *slot.labels) if slot.labels else ()
    annotations = (*inside, *slot.annotations) if slot.annotations else ()
    scheduler = (*inside, *slot.scheduler) if slot.scheduler else ()
    name = role.name if not number else f"{role.name}-{number}"
    group = role.group if not number else f"{role.group}-{number}"
    return replace(role, name=name, group=group, slot=Slot(labels, annotations, scheduler, slot.shared))


# -- as Kueue counts --------------------------------------------------------------------------------------------------


def _paths(component: Data, inside: Path) -> list[Path]:
    return [(*inside, *_steps(str(part(one).get("path", "")))) for one in component.get("podSets") or ()]


def _declared(document: Document, place: Path, component: Data, inside: Path) -> Iterator[JobPodSet]:
    for where, _ in fields.listed(document, (*place, "podSets")):
        text = fields.text(document, (*where, "path"), "")
        if not text.startswith("template") or "".join(m.group() for m in _PART.finditer(text)) != text[8:]:
            message = f"{text[:80]!r} is no path to a pod template"
            raise fields.wrong(document, (*where, "path"), message, "write a path such as template.spec.template")
        target = (*inside, *_steps(text))
        if not isinstance(fields.at(document.data, target), dict):
            raise fields.wrong(document, (*where, "path"), f"there is nothing at {text}", "name a pod template")
        template = fields.template(document, target)
        count = fields.count(document, (*where, "replicas"), 1)
        yield _set(template, count)


def _set(template: Data, count: int) -> JobPodSet:
    """Of a template as AppWrapper hands it to Kueue: without the resources of the pod as a whole, and with sidecars as plain init containers."""
    spec = {key: value for key, value in part(template, "spec").items() if key != "resources"}
    first = [
        {key: value for key, value in one.items() if key != "restartPolicy"} for one in spec.get("initContainers") or ()
    ]
    asked = resources_of({**spec, "initContainers": first})
    return JobPodSet("", count, asked, template, None, topology_of(template))


def _steps(text: str) -> Path:
    found: list[str | int | Named] = []
    for match in _PART.finditer(text.removeprefix("template")):
        found.append(match[1] if match[1] is not None else int(match[2]))
    return tuple(found)


def _inferred(inner: Document, found: JobPods | None) -> list[JobPodSet]:
    """By the rules of the AppWrapper controller, which knows some kinds only."""
    if found is None or (inner.group, inner.kind) not in _INFERRED:
        return []
    if inner.group == "ray.io":
        return list(_ray(inner))
    listed = found.pod_sets
    if listed is None:
        return [_set(role.pod, role.count) for role in found.roles]
    return [replace(_set(one.pod, one.count), topology=one.topology) for one in listed]


def _ray(inner: Document) -> Iterator[JobPodSet]:
    spec: Path = ("spec", "rayClusterSpec") if inner.kind == "RayJob" else ("spec",)
    places = [((*spec, "headGroupSpec", "template"), 1)]
    for place, _ in fields.listed(inner, (*spec, "workerGroupSpecs")):
        places.append(((*place, "template"), fields.count(inner, (*place, "replicas"), 1)))
    for where, count in places:
        template = fields.template(inner, where)
        yield _set(template, count)


def _short(inside: Path, inner: Document, found: JobPods, counted: list[JobPodSet]) -> Iterator[tuple[str, str, str]]:
    real = sum(role.count for role in found.roles)
    known = sum(one.count for one in counted)
    if known < real:
        said = f"Kueue counts {known} pods of this {inner.kind} in an AppWrapper, and it makes {real}"
        yield (shown(inside), said, "put the queue's label on the object itself, without the AppWrapper")
