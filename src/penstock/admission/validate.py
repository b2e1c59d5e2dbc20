"""Is a manifest what Kueue would accept? Called by read.load for what an administrator writes, and by whoever replaces an object.

Three rounds: every field by itself (shapes), the fields of one object together (rules), the objects of the file together (here).
Two mistakes that Kueue lets pass and answers with queues that never admit anything are refused: two objects of one name in a
file, and cohorts in a circle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.admission.kinds import CLUSTER_WIDE, CONFIGURATION, GROUP, KINDS, PASSED_OVER, SHAPES, VERSIONS
from penstock.admission.manifest import Document, Report
from penstock.admission.model import Check, ClusterQueue, LocalQueue, Object, PodSet, ResourceFlavor, Workload
from penstock.admission.rules import RULES, Rules
from penstock.admission.shapes import Walk, either, show
from penstock.errors import Problem, Source, nearest


def check(documents: Iterable[Document], report: Report) -> list[Document]:
    """The documents to read, in their order; what is wrong with any of them is in the report."""
    listed = list(documents)
    found = [document for document in listed if _known(document, report)]
    if not found and not report.errors:
        kinds = ", ".join(sorted({document.kind[:60] for document in listed})[:5])
        what = f"there is nothing about queues in this file, only {kinds}" if kinds else "there is nothing in this file"
        fix = f"write ResourceFlavors, ClusterQueues and LocalQueues of {GROUP}/{VERSIONS[0]}"
        report.add("P801", Document({}, {}, "$"), "$", what, fix)
    for document in found:
        _check_one(document, report)
    _twice(found, report)
    _circles(found, report)
    return found


def _known(document: Document, report: Report) -> bool:
    """Is it one to read? What is none of Kueue's is passed over with a word."""
    api, kind = document.api, document.kind
    if (api, kind) in SHAPES:
        return True
    group = api.rpartition("/")[0]
    best = f"{GROUP}/{VERSIONS[0]}"
    if not api or not kind:
        found = "a mapping without" if isinstance(document.data, dict) else f"{show(document.data)}, without"
        report.add("P801", document, "$", f"this is {found} apiVersion and kind", f"begin with `apiVersion: {best}`")
    elif kind in KINDS:
        what = f"{show(api)} has no {kind} that is known here"
        report.add("P801", document, "$.apiVersion", what, f"write `apiVersion: {best}`")
    elif group == GROUP and kind not in PASSED_OVER:
        fix = f"write {either(KINDS)}.{nearest(kind[:60], KINDS)}"
        report.add("P801", document, "$.kind", f"Kueue has no kind {show(kind)}", fix)
    else:
        what = f"a {kind[:60]} says nothing about quota, and is passed over"
        report.add("P808", document, "$.kind", what, "nothing to do: the rest of the file counts", warning=True)
    return False


def _check_one(document: Document, report: Report) -> None:
    rules = Rules(document, report)
    Walk(rules.wrong).check(SHAPES[document.api, document.kind], document.data, "$")
    for paths, rule in RULES.get(document.kind, ()):
        if rules.sound(*paths):
            rule(rules, document)


# -- the objects of a file --------------------------------------------------------------------------------------------


def _twice(documents: Iterable[Document], report: Report) -> None:
    seen: dict[tuple[str, str, str], Document] = {}
    for document in documents:
        if not document.name and document.kind != CONFIGURATION:
            continue
        key = (document.kind, "" if document.kind in CLUSTER_WIDE else document.namespace, document.name)
        if key in seen:
            first = report.source(seen[key], "$").line
            fix = "remove one of the two, or give it another name"
            report.add(
                "P804", document, "$.metadata.name", f"{document.name or document.kind} stands in line {first} too", fix
            )
        seen.setdefault(key, document)


def _circles(documents: Iterable[Document], report: Report) -> None:
    cohorts = {document.name: document for document in documents if document.kind == "Cohort" and document.name}
    told: set[str] = set()
    for start in cohorts:
        way = [start]
        while way[-1] in cohorts:
            parent = cohorts[way[-1]].spec.get("parentName")
            if not isinstance(parent, str) or not parent or way[-1] in told:
                break
            if parent in way:
                circle = way[way.index(parent) :]
                told.update(circle)
                what = f"{' is below '.join((*circle[:10], parent))}: the cohorts form a circle"
                fix = "remove parentName from the one that is to be on top"
                report.add("P805", cohorts[circle[-1]], "$.spec.parentName", what, fix)
                break
            way.append(parent)
        told.update(way)


def dangling(
    objects: Iterable[tuple[Object | Workload, Source | None]], known: Iterable[Object | Workload] = ()
) -> list[Problem]:
    """What the objects name and nobody has: warnings, for it may come later. `known` is what is there besides."""
    listed = list(objects)
    there = [found for found, _ in listed] + list(known)
    names = {kind: {o.name for o in there if isinstance(o, kind)} for kind in (ClusterQueue, ResourceFlavor, Check)}
    queues = {o.key for o in there if isinstance(o, LocalQueue)}
    found: list[Problem] = []

    def lost(who: object, path: str, what: str, until: str, source: Source | None) -> None:
        where = f"{type(who).__name__}/{getattr(who, 'name', '')} {path}"
        fix = "add it, or correct the name"
        found.append(Problem("P807", f"{what}: {until}", fix, where=where, source=source, severity="warning"))

    for one, source in listed:
        if isinstance(one, LocalQueue) and one.cluster_queue not in names[ClusterQueue]:
            what = f"there is no ClusterQueue {show(one.cluster_queue)}" if one.cluster_queue else "it names none"
            lost(one, "spec.clusterQueue", what, "what is queued here waits", source)
        elif isinstance(one, ClusterQueue):
            flavors = [flavor.flavor for group in one.groups for flavor in group.flavors]
            for flavor in dict.fromkeys(name for name in flavors if name not in names[ResourceFlavor]):
                what = f"there is no ResourceFlavor {show(flavor)}"
                lost(one, "spec.resourceGroups", what, "the queue admits nothing before there is", source)
            for rule in one.checks:
                if rule.name not in names[Check]:
                    what = f"there is no AdmissionCheck {show(rule.name)}"
                    lost(one, "spec.admissionChecksStrategy", what, "the queue admits nothing before there is", source)
        elif isinstance(one, Workload) and one.queue and f"{one.namespace}/{one.queue}" not in queues:
            lost(one, "spec.queueName", f"there is no LocalQueue {show(one.queue)}", "it waits", source)
    return found


# -- an object in place of another ------------------------------------------------------------------------------------


def changes(old: Object | Workload, new: Object | Workload, source: Source | None = None) -> list[Problem]:
    """What may not change between the two, which are of one kind and name."""
    found: list[Problem] = []

    def fixed(path: str, before: object, after: object, why: str, fix: str) -> None:
        where = f"{type(new).__name__}/{new.name} {path}"
        what = f"{show(before)} cannot become {show(after)}: {why}"
        found.append(Problem("P806", what, fix, where=where, source=source))

    if isinstance(old, LocalQueue) and isinstance(new, LocalQueue) and old.cluster_queue != new.cluster_queue:
        why, fix = "a LocalQueue leads to one ClusterQueue for good", "delete the LocalQueue, or make another"
        fixed("spec.clusterQueue", old.cluster_queue, new.cluster_queue, why, fix)
    if isinstance(old, Workload) and isinstance(new, Workload):
        added = sorted(new.gates - old.gates)
        if added:
            fix = "make the Workload with the gate in place"
            fixed("metadata.annotations", "no gate", added[0], "gates are removed, never added", fix)
        if old.admission is not None:
            why, fix = "it holds quota", "set active to false first, so that it gives its quota back"
            if old.queue != new.queue:
                fixed("spec.queueName", old.queue, new.queue, why, fix)
            if not _same_podsets(old.podsets, new.podsets):
                fixed("spec.podSets", "a pod set", "another", why, fix)
            if (old.priority_class is None) != (new.priority_class is None):
                fixed("spec.priorityClassRef", old.priority_class, new.priority_class, why, fix)
        if old.admitted_at is not None and old.max_seconds != new.max_seconds:
            why = "it is admitted, and its time is running"
            fixed("spec.maximumExecutionTimeSeconds", old.max_seconds, new.max_seconds, why, "leave it as it is")
    return found


def _same_podsets(old: tuple[PodSet, ...], new: tuple[PodSet, ...]) -> bool:
    """Fewer pods are no other pod set."""
    return len(old) == len(new) and all(
        replace(one, count=min(one.count, other.count)) == replace(other, count=min(one.count, other.count))
        and other.count <= one.count
        for one, other in zip(old, new, strict=True)
    )
