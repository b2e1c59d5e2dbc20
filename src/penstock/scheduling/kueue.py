"""Kueue (0.19) as a scheduler of jobs: the queue's label on the object that it manages. Entry point `kueue` of penstock.schedulers.

Kueue waits at the object and admits all of its pods together, so there is nothing to write for a gang. Only kinds that it does not know, whose pods it sees one by one,
need a pod group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from penstock.errors import Problem, UserError
from penstock.formats.documents import part
from penstock.formats.labels import PRIORITY, QUEUE
from penstock.formats.report import Report
from penstock.scheduling import fields, keys
from penstock.scheduling.model import Binding, Gang, GangMember, JobLabels, JobObject, Marks, Role, amounts_text, shown

NAME: Final = re.compile(r"(?=.{1,63}\Z)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*\Z", re.A)


class Kueue:
    """Pure: each verb answers with data."""

    name = "kueue"

    def queue_name(self, organisation: str, job_type: str) -> str:
        return f"{organisation}.{job_type}"

    def set_scheduler_name(self, job: JobObject) -> str:
        return ""

    def create_labels(self, job: JobObject, binding: Binding, report: Report) -> JobLabels:
        source = job.document.source()
        check_queue(binding.queue)
        for what, given in (("user", binding.user), ("allow-preemption", binding.allow_preemption is not None)):
            if given:
                report.lost("metadata", f"{job.title}: Kueue reads no {what}", _INSTEAD[what], source)
        for where, said, advice in refusals(job):
            report.lost(where, f"{job.title}: {said}", advice, job.document.source(where))
        for where, said, advice in shortfalls(job):
            report.changed(where, f"{job.title}: {said}", advice, job.document.source(where))
        if job.kind.queued == "none":
            report.lost(
                "metadata.labels",
                f"{job.title} cannot be queued: {job.kind.remark}",
                "use the other kind itself",
                source,
            )
            return JobLabels()
        if job.kind.remark:
            report.changed("metadata.labels", f"{job.title}: {job.kind.remark}", "", source)
        labels = {QUEUE: binding.queue}
        if binding.priority:
            labels[PRIORITY] = binding.priority
        return JobLabels(queued=Marks(labels))

    def create_group_labels(self, job: JobObject, binding: Binding, report: Report) -> Gang:
        source = job.document.source()
        if binding.style or binding.timeout is not None:
            said = "Kueue has no style and no timeout for one gang: it admits all pods or none"
            advice = "waitForPodsReady in Kueue's configuration is the timeout for all"
            report.lost("metadata", f"{job.title}: {said}", advice, source)
        members = tuple(GangMember(one.name, one.name, one.count, one.requests) for one in job.pod_sets if one.count)
        if job.kind.queued == "pods" and binding.gang:
            said = "Kueue queues each of its pods by itself, so there is no gang"
            report.lost("metadata", f"{job.title}: {said}", "", source)
            return Gang()
        if job.kind.queued != "group" or not binding.gang:
            return Gang(members)
        total = sum(role.count for role in job.roles if not role.late)
        name = job.document.name[: keys.LONGEST_LABEL].rstrip("-.")
        return Gang(members, Marks({keys.POD_GROUP: name}, {keys.POD_GROUP_TOTAL: str(total)}))

    def get_group_labels(self, job: JobObject, gang: Gang, role: Role) -> Marks:
        return gang.pods


_INSTEAD: Final = {
    "user": "who may use a queue is a matter of its namespace and of RBAC",
    "allow-preemption": "use a WorkloadPriorityClass of high priority: --priority CLASS",
}


def check_queue(queue: str) -> None:
    """Raises UserError, P888."""
    if not NAME.match(queue):
        message = f"{queue[:120]!r} is no name of a LocalQueue"
        fix = "use lower case letters, digits, '-' and '.', 63 at most"
        raise UserError(Problem("P888", message, fix))


def shortfalls(job: JobObject) -> Iterator[tuple[str, str, str]]:
    """(place, what, fix) of pods that ask for more than Kueue counts."""
    for one in job.pod_sets:
        if one.as_kueue is None:
            continue
        count, requests = one.as_kueue
        if all(amount <= requests.get(name, 0) * count for name, amount in one.total.items()):
            continue
        said = f"Kueue counts {amounts_text(requests)} for each {one.name}, and the pod asks for {amounts_text(one.requests)}"
        said += f"; it counts {count} of {one.count}" if count != one.count else ""
        yield "spec", said, "set coreRequest; the overhead is never counted, so lower the quota by that much"


def refusals(job: JobObject) -> Iterator[tuple[str, str, str]]:
    """(place, what, fix) of what Kueue's webhooks refuse, or would queue a second time."""
    if len(job.pod_sets) > keys.MOST_POD_SETS:
        said = f"it has {len(job.pod_sets)} pod sets, and Kueue takes {keys.MOST_POD_SETS}"
        yield "spec", said, "join groups of pods"
    names = [one.name for one in job.pod_sets]
    double = {name for name in names if names.count(name) > 1}
    if double:
        yield "spec", f"several of its pod sets are called {sorted(double)[0]!r}", "give each its own name"
    if job.kind.api_group == "ray.io":
        yield from _ray(job)
    for role in job.roles:
        place = (*role.slot.labels, QUEUE)
        if role.slot.labels and role.slot.labels != job.kind.queue_labels and fields.at(job.document.data, place):
            said = f"the pods of {role.name} carry the queue's label too, and Kueue queues what it manages only once"
            yield shown(role.slot.labels), said, "take the label off the pod template"
        if role.spec.get("schedulerName") == keys.YUNIKORN:
            said = f"the pods of {role.name} are YuniKorn's: Kueue holds them back first, and YuniKorn reserves outside of its quota"
            yield shown(role.slot.scheduler), said, "use one of the two"


def _ray(job: JobObject) -> Iterator[tuple[str, str, str]]:
    document = job.document
    spec: Any = document.spec
    if document.kind == "RayJob":
        if spec.get("shutdownAfterJobFinishes") is not True:
            said = "Kueue takes a RayJob only if it ends its cluster"
            yield "spec.shutdownAfterJobFinishes", said, "set shutdownAfterJobFinishes: true"
        if spec.get("clusterSelector"):
            yield (
                "spec.clusterSelector",
                "Kueue takes no RayJob that uses the cluster of another",
                "take clusterSelector out",
            )
    inside = {"RayJob": ("rayClusterSpec",), "RayService": ("rayClusterConfig",)}.get(document.kind, ())
    elastic = part(document.metadata, "annotations").get(keys.ELASTIC) == "true"
    if part(spec, *inside).get("enableInTreeAutoscaling") is True and not elastic:
        said = "Kueue takes autoscaling only from an elastic job"
        yield shown(("spec", *inside, "enableInTreeAutoscaling")), said, f"annotate it with {keys.ELASTIC}: 'true'"


PLUGIN = Kueue()
