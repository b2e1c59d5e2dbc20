"""Kubernetes' own kinds, JobSet and LeaderWorkerSet: which pods they make. Called by the table in kinds."""

from __future__ import annotations

import re

from penstock.formats.documents import Document, Library, items, part
from penstock.scheduling import fields
from penstock.scheduling.keys import MIN_PARALLELISM
from penstock.scheduling.kinds.topology import topology_of
from penstock.scheduling.model import Data, JobPods, JobPodSet, Path, Role, Slot, template_slot

JOB_INDEX = "batch.kubernetes.io/job-completion-index"
JOBSET_INDEX = "jobset.sigs.k8s.io/job-index"
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}\Z", re.A)
SERVING = "its pods serve, and each is useful alone"


def pod(document: Document, library: Library) -> JobPods:
    fields.check_pod(document, ("spec",))
    slot = Slot(("metadata", "labels"), ("metadata", "annotations"), ("spec", "schedulerName"))
    return JobPods((Role("main", "main", document.data, 1, 1, slot),), (_set("main", 1, document.data),))


def _set(name: str, count: int, pod: Data, index: str = "", least: int | None = None) -> JobPodSet:
    from penstock.formats.pods.requests import resources_of

    return JobPodSet(name, count, resources_of(part(pod, "spec")), pod, least, topology_of(pod, index))


def job(document: Document, library: Library) -> JobPods:
    return job_at(document, ("spec",), part(document.metadata, "annotations"))


def cron_job(document: Document, library: Library) -> JobPods:
    where: Path = ("spec", "jobTemplate")
    found = job_at(document, (*where, "spec"), part(document.data, *map(str, where), "metadata", "annotations"))
    return found


def job_at(document: Document, spec: Path, annotations: Data) -> JobPods:
    count = job_pods(document, spec)
    place = (*spec, "template")
    template = fields.template(document, place)
    text = annotations.get(MIN_PARALLELISM)
    least = int(text) if isinstance(text, str) and _NUMBER.match(text) else None
    members = count if least is None else max(1, min(least, count))
    role = Role("main", "main", template, count, members if count else 0, template_slot(place))
    return JobPods((role,), (_set("main", count, template, JOB_INDEX, least),))


def job_pods(document: Document, spec: Path) -> int:
    """Pods of a Job that run at the same time: never more than it has completions."""
    parallelism = fields.count(document, (*spec, "parallelism"), 1)
    return min(parallelism, fields.count(document, (*spec, "completions"), parallelism))


def jobset(document: Document, library: Library) -> JobPods:
    return jobset_at(document, ("spec",))


def jobset_at(document: Document, spec: Path) -> JobPods:
    roles, sets = [], []
    for place, one in fields.listed(document, (*spec, "replicatedJobs")):
        name = fields.text(document, (*place, "name"), "")
        replicas = fields.count(document, (*place, "replicas"), 1)
        count = replicas * job_pods(document, (*place, "template", "spec"))
        where = (*place, "template", "spec", "template")
        template = fields.template(document, where)
        late = late_of(one)
        roles.append(Role(name.lower(), name.lower(), template, count, count, template_slot(where), late))
        found = _set(name.lower(), count, template)
        topology = topology_of(template, JOB_INDEX, (JOBSET_INDEX, replicas))
        sets.append(JobPodSet(found.name, count, found.requests, template, None, topology))
    return JobPods(tuple(roles), tuple(sets))


def late_of(replicated: Data) -> str:
    """Why the pods of a replicated job come later than the others."""
    for _, one in items(replicated, "dependsOn"):
        if one.get("status") == "Complete":
            return f"it begins when {one.get('name')} has completed"
    return ""


def serving(document: Document, library: Library) -> JobPods:
    """Deployment, StatefulSet, ReplicaSet."""
    count = fields.count(document, ("spec", "replicas"), 1)
    place: Path = ("spec", "template")
    template = fields.template(document, place)
    return JobPods((Role("main", "main", template, count, 0, template_slot(place), SERVING),))


def daemon(document: Document, library: Library) -> JobPods:
    """One on each node, however many those are."""
    place: Path = ("spec", "template")
    return JobPods((Role("main", "main", fields.template(document, place), 0, 0, template_slot(place), SERVING),))


def leader_worker_set(document: Document, library: Library) -> JobPods:
    return leader_worker_at(document, ("spec",))


def leader_worker_at(document: Document, spec: Path) -> JobPods:
    """Each of its groups is a gang for Kueue. For YuniKorn all groups are one application, because their templates are the same."""
    replicas = fields.count(document, (*spec, "replicas"), 1)
    where = (*spec, "leaderWorkerTemplate")
    size = fields.count(document, (*where, "size"), 1)
    workers = (*where, "workerTemplate")
    worker = fields.template(document, workers)
    notes: list[tuple[str, str, str]] = []
    if replicas > 1:
        said = f"Kueue makes a Workload for each of the {replicas} groups; YuniKorn waits for all of them together"
        notes.append(
            (
                ".".join(map(str, (*spec, "replicas"))),
                said,
                "one LeaderWorkerSet for each group, to have each start alone",
            )
        )
    if fields.at(document.data, (*where, "leaderTemplate")) is None:
        role = Role("main", "main", worker, replicas * size, replicas * size, template_slot(workers))
        return JobPods((role,), notes=tuple(notes))
    leaders = (*where, "leaderTemplate")
    leader = fields.template(document, leaders)
    rest = replicas * max(0, size - 1)
    roles = [Role("leader", "leader", leader, replicas, replicas, template_slot(leaders))]
    if rest:
        roles.append(Role("worker", "worker", worker, rest, rest, template_slot(workers)))
    return JobPods(tuple(roles), notes=tuple(notes))
