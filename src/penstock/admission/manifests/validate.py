"""Would Kueue accept a manifest? Called by read.manifest for what an administrator writes, and by service before it replaces an object.

Three steps: each field by itself (schema), the fields of one object together (rules), the objects of the file together (here).
Two mistakes that Kueue accepts, with the result that queues never admit anything, are refused here: two objects with the same name
in a file, and cohorts in a cycle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.admission.manifests.documents import KueueDocument, ManifestReport
from penstock.admission.manifests.kinds import CLUSTER_WIDE, CONFIGURATION, GROUP, IGNORED, KINDS, SCHEMAS, VERSIONS
from penstock.admission.manifests.rules import RULES, RuleContext
from penstock.admission.manifests.schema import SchemaChecker, either, show
from penstock.admission.model import Check, ClusterQueue, LocalQueue, Object, PodSet, ResourceFlavor, Workload
from penstock.errors import Problem, Source, nearest


def check(documents: Iterable[KueueDocument], report: ManifestReport) -> list[KueueDocument]:
    """The documents to read, in their order. Their problems are added to the report."""
    listed = list(documents)
    found = [document for document in listed if _known(document, report)]
    if not found and not report.errors:
        kinds = ", ".join(sorted({document.kind[:60] for document in listed})[:5])
        what = f"there is nothing about queues in this file, only {kinds}" if kinds else "the file is empty"
        fix = f"write ResourceFlavors, ClusterQueues and LocalQueues of {GROUP}/{VERSIONS[0]}"
        report.add("P801", KueueDocument({}, {}, "$"), "$", what, fix)
    for document in found:
        _check_one(document, report)
    _twice(found, report)
    _circles(found, report)
    return found


def _known(document: KueueDocument, report: ManifestReport) -> bool:
    """Is it to be read? Documents that do not concern Kueue are ignored, with a warning."""
    api, kind = document.api, document.kind
    if (api, kind) in SCHEMAS:
        return True
    group = api.rpartition("/")[0]
    best = f"{GROUP}/{VERSIONS[0]}"
    if not api or not kind:
        found = "a mapping without" if isinstance(document.data, dict) else f"{show(document.data)}, without"
        report.add("P801", document, "$", f"this is {found} apiVersion and kind", f"begin with `apiVersion: {best}`")
    elif kind in KINDS:
        what = f"{show(api)} has no {kind} that is known here"
        report.add("P801", document, "$.apiVersion", what, f"write `apiVersion: {best}`")
    elif group == GROUP and kind not in IGNORED:
        fix = f"write {either(KINDS)}.{nearest(kind[:60], KINDS)}"
        report.add("P801", document, "$.kind", f"Kueue has no kind {show(kind)}", fix)
    else:
        what = f"a {kind[:60]} has nothing to do with quota, and is ignored"
        report.add("P808", document, "$.kind", what, "nothing to do: the rest of the file is read", warning=True)
    return False


def _check_one(document: KueueDocument, report: ManifestReport) -> None:
    rules = RuleContext(document, report)
    SchemaChecker(rules.wrong).check(SCHEMAS[document.api, document.kind], document.data, "$")
    for paths, rule in RULES.get(document.kind, ()):
        if rules.valid(*paths):
            rule(rules, document)


# -- the objects of a file --------------------------------------------------------------------------------------------


def _twice(documents: Iterable[KueueDocument], report: ManifestReport) -> None:
    seen: dict[tuple[str, str, str], KueueDocument] = {}
    for document in documents:
        if not document.name and document.kind != CONFIGURATION:
            continue
        key = (document.kind, "" if document.kind in CLUSTER_WIDE else document.namespace, document.name)
        if key in seen:
            first = report.source(seen[key], "$").line
            fix = "remove one of the two, or give it another name"
            report.add(
                "P804", document, "$.metadata.name", f"{document.name or document.kind} is also in line {first}", fix
            )
        seen.setdefault(key, document)


def _circles(documents: Iterable[KueueDocument], report: ManifestReport) -> None:
    cohorts = {document.name: document for document in documents if document.kind == "Cohort" and document.name}
    reported: set[str] = set()
    for start in cohorts:
        way = [start]
        while way[-1] in cohorts:
            parent = cohorts[way[-1]].spec.get("parentName")
            if not isinstance(parent, str) or not parent or way[-1] in reported:
                break
            if parent in way:
                circle = way[way.index(parent) :]
                reported.update(circle)
                what = f"{' is below '.join((*circle[:10], parent))}: the cohorts form a circle"
                fix = "remove parentName from the one that is to be the root"
                report.add("P805", cohorts[circle[-1]], "$.spec.parentName", what, fix)
                break
            way.append(parent)
        reported.update(way)


def dangling(
    objects: Iterable[tuple[Object | Workload, Source | None]], known: Iterable[Object | Workload] = ()
) -> list[Problem]:
    """References to objects that do not exist. They are warnings, because the objects may be added later. `known`: other objects that
    exist."""
    listed = list(objects)
    there = [found for found, _ in listed] + list(known)
    names = {kind: {o.name for o in there if isinstance(o, kind)} for kind in (ClusterQueue, ResourceFlavor, Check)}
    queues = {o.key for o in there if isinstance(o, LocalQueue)}
    found: list[Problem] = []

    def missing(who: Object | Workload, path: str, what: str, until: str, source: Source | None) -> None:
        where = f"{type(who).__name__}/{who.name} {path}"
        fix = "add it, or correct the name"
        found.append(Problem("P807", f"{what}: {until}", fix, where=where, source=source, severity="warning"))

    for one, source in listed:
        if isinstance(one, LocalQueue) and one.cluster_queue not in names[ClusterQueue]:
            what = (
                f"there is no ClusterQueue {show(one.cluster_queue)}"
                if one.cluster_queue
                else "no ClusterQueue is given"
            )
            missing(one, "spec.clusterQueue", what, "Workloads of this queue wait", source)
        elif isinstance(one, ClusterQueue):
            flavors = [flavor.flavor for group in one.groups for flavor in group.flavors]
            for flavor in dict.fromkeys(name for name in flavors if name not in names[ResourceFlavor]):
                what = f"there is no ResourceFlavor {show(flavor)}"
                missing(one, "spec.resourceGroups", what, "the queue admits nothing until it exists", source)
            for rule in one.checks:
                if rule.name not in names[Check]:
                    what = f"there is no AdmissionCheck {show(rule.name)}"
                    missing(
                        one, "spec.admissionChecksStrategy", what, "the queue admits nothing until it exists", source
                    )
        elif isinstance(one, Workload) and one.queue and f"{one.namespace}/{one.queue}" not in queues:
            missing(one, "spec.queueName", f"there is no LocalQueue {show(one.queue)}", "it waits", source)
    return found


# -- replacing an object ----------------------------------------------------------------------------------------------


def changes(old: Object | Workload, new: Object | Workload, source: Source | None = None) -> list[Problem]:
    """Changes that are not allowed. Both objects have the same kind and name."""
    found: list[Problem] = []

    def fixed(path: str, before: object, after: object, why: str, fix: str) -> None:
        where = f"{type(new).__name__}/{new.name} {path}"
        what = f"{show(before)} cannot become {show(after)}: {why}"
        found.append(Problem("P806", what, fix, where=where, source=source))

    if isinstance(old, LocalQueue) and isinstance(new, LocalQueue) and old.cluster_queue != new.cluster_queue:
        why, fix = "the ClusterQueue of a LocalQueue cannot change", "delete the LocalQueue, or make another"
        fixed("spec.clusterQueue", old.cluster_queue, new.cluster_queue, why, fix)
    if isinstance(old, Workload) and isinstance(new, Workload):
        added = sorted(new.gates - old.gates)
        if added:
            fix = "create the Workload with the gate"
            fixed("metadata.annotations", "no gate", added[0], "gates can be removed but not added", fix)
        if old.admission is not None:
            why, fix = "it holds quota", "set active to false first, so that it gives its quota back"
            if old.queue != new.queue:
                fixed("spec.queueName", old.queue, new.queue, why, fix)
            if not _same_podsets(old.podsets, new.podsets):
                fixed("spec.podSets", "a pod set", "another", why, fix)
            if (old.priority_class is None) != (new.priority_class is None):
                fixed("spec.priorityClassRef", old.priority_class, new.priority_class, why, fix)
        if old.admitted_at is not None and old.max_seconds != new.max_seconds:
            why = "it is admitted, so its time has started"
            fixed("spec.maximumExecutionTimeSeconds", old.max_seconds, new.max_seconds, why, "leave it as it is")
    return found


def _same_podsets(old: tuple[PodSet, ...], new: tuple[PodSet, ...]) -> bool:
    """A lower count is allowed."""
    return len(old) == len(new) and all(
        replace(one, count=min(one.count, other.count)) == replace(other, count=min(one.count, other.count))
        and other.count <= one.count
        for one, other in zip(old, new, strict=True)
    )
