"""Ray's kinds (KubeRay 1.7): which pods they make. Called by the table in kinds.

KubeRay adds to the templates: the autoscaler beside the head, the submitter beside the head in SidecarMode, an init container that waits for the head in each
worker. Kueue 0.19 counts replicas as they are written, with suspended groups and without that init container; a gang needs the minimum of each group.
"""

from __future__ import annotations

from typing import Any

from penstock.formats.documents import Document, Library, part
from penstock.formats.pods.requests import resources_of
from penstock.scheduling import fields
from penstock.scheduling.keys import RAY_FT
from penstock.scheduling.kinds.topology import topology_of
from penstock.scheduling.model import Amounts, Data, JobPods, JobPodSet, Path, Role, Slot, shown, template_slot

AUTOSCALER = {"cpu": "500m", "memory": "512Mi"}
SUBMITTER = {"cpu": "500m", "memory": "200Mi"}
SUBMITTER_LIMITS = {"cpu": "1", "memory": "1Gi"}
WAIT = {"cpu": "200m", "memory": "256Mi"}
"""Of the init container that waits for the head, and of the job that cleans up after fault tolerance."""
WAITS = "wait-gcs-ready"
HEAD_GROUP, SUBMITTER_GROUP = "headgroup", "submittergroup"
MODES = ("K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode")


def cluster(document: Document, library: Library) -> JobPods:
    return cluster_at(document, ("spec",))


def service(document: Document, library: Library) -> JobPods:
    return cluster_at(document, ("spec", "rayClusterConfig"))


def job(document: Document, library: Library) -> JobPods:
    return job_at(document, ("spec",))


def cron_job(document: Document, library: Library) -> JobPods:
    return job_at(document, ("spec", "jobTemplate"))


def job_at(document: Document, spec: Path) -> JobPods:
    where = (*spec, "rayClusterSpec")
    if fields.at(document.data, where) is None:
        message = "this RayJob has no cluster of its own: its work runs in the pods of a RayCluster that exists already"
        raise fields.wrong(document, where, message, "put the RayCluster into a queue, or write rayClusterSpec")
    mode = fields.text(document, (*spec, "submissionMode"), MODES[0]) or MODES[0]
    if mode not in MODES:
        message = f"{mode!r} is no submissionMode"
        raise fields.wrong(document, (*spec, "submissionMode"), message, f"write one of {', '.join(MODES)}")
    found = cluster_at(document, where, submits=mode == "SidecarMode")
    if mode != "K8sJobMode":
        return found
    submitter, slot = _submitter(document, spec)
    asked = resources_of(part(submitter, "spec"))
    late = "it comes when the cluster is ready, so a gang that waited for it would never be complete"
    role = Role("submitter", SUBMITTER_GROUP, submitter, 1, 1, slot, late)
    one = JobPodSet("submitter", 1, asked, submitter, None, topology_of(submitter))
    return JobPods((*found.roles, role), (*(found.pod_sets or ()), one), found.notes)


def _submitter(document: Document, spec: Path) -> tuple[Data, Slot]:
    """Its template, or KubeRay's own. KubeRay's own has no place for metadata, so the template is written with what KubeRay would put into it."""
    where = (*spec, "submitterPodTemplate")
    if fields.at(document.data, where) is not None:
        return fields.template(document, where), template_slot(where)
    return {"spec": {"containers": [fields.container("ray-job-submitter", SUBMITTER, SUBMITTER_LIMITS)]}}, Slot((), ())


def cluster_at(document: Document, spec: Path, submits: bool = False) -> JobPods:
    fields.mapping(document, spec, "it describes the cluster")
    head_place = (*spec, "headGroupSpec", "template")
    template = fields.template(document, head_place)
    head, added = _head(document, spec, template, submits)
    roles = [Role("head", HEAD_GROUP, head, 1, 1, template_slot(head_place), added=added)]
    sets = [JobPodSet("head", 1, _counted(document, spec, head), head, None, topology_of(template))]
    notes: list[tuple[str, str, str]] = []
    names = {"head"}
    for place, one in fields.listed(document, (*spec, "workerGroupSpecs")):
        role, counted = _workers(document, place, one)
        if role.name in names:
            message = f"the worker group {role.name!r} has the name of another group"
            raise fields.wrong(document, (*place, "groupName"), message, "give each group a name of its own")
        names.add(role.name)
        roles.append(role)
        sets.append(counted)
        if one.get("suspend") is True:
            said = f"the group {role.name} is suspended: Kueue counts its {counted.count} pods, and none exists"
            notes.append((shown((*place, "suspend")), said, "take the group out, to have its quota"))
    return JobPods(tuple(roles), tuple(sets), tuple(notes))


def _head(document: Document, spec: Path, template: Data, submits: bool) -> tuple[Data, tuple[str, ...]]:
    """The head as it will exist, and what was added to it."""
    head, added = template, []
    if submits:
        head = fields.with_containers(head, "containers", fields.container("submitter", SUBMITTER, SUBMITTER_LIMITS))
        added.append("the submitter (500m cpu, 200Mi)")
    if fields.at(document.data, (*spec, "enableInTreeAutoscaling")) is True:
        where = (*spec, "autoscalerOptions", "resources")
        fields.check_resources(document, where)
        own = fields.at(document.data, where)
        beside: dict[str, Any] = fields.container("autoscaler", AUTOSCALER)
        if own is not None:
            beside["resources"] = own
        head = fields.with_containers(head, "containers", beside)
        added.append("the autoscaler" if own is not None else "the autoscaler (500m cpu, 512Mi)")
    return head, tuple(added)


def _counted(document: Document, spec: Path, head: Data) -> Amounts:
    """As Kueue counts the head: with fault tolerance its first container asks for as much as the job that cleans up."""
    asked = str(part(document.metadata, "annotations").get(RAY_FT, "")).lower() == "true"
    containers = part(head, "spec").get("containers") or []
    if not containers or not (asked or fields.at(document.data, (*spec, "gcsFaultToleranceOptions")) is not None):
        return resources_of(part(head, "spec"))
    from penstock.graph import quantity

    first = dict(containers[0])
    resources = dict(part(first, "resources"))
    requests = {**part(resources, "limits"), **part(resources, "requests")}
    own = part(resources, "requests")
    for name, amount in WAIT.items():
        # The request, not the limit that would stand for it: Kueue merges before limits fill in.
        least = own.get(name, "0")
        requests[name] = least if quantity.parse(least) >= quantity.parse(amount) else amount
    first["resources"] = {**resources, "requests": requests}
    return resources_of({**part(head, "spec"), "containers": [first, *containers[1:]]})


def _workers(document: Document, place: Path, one: Data) -> tuple[Role, JobPodSet]:
    group = fields.text(document, (*place, "groupName"), "")
    if not group:
        raise fields.wrong(document, (*place, "groupName"), "the worker group has no name", "write groupName")
    hosts = max(1, fields.count(document, (*place, "numOfHosts"), 1))
    written = fields.count(document, (*place, "replicas"), 1)
    least = fields.count(document, (*place, "minReplicas"), 0)
    most = fields.count(document, (*place, "maxReplicas"), fields.MOST)
    where = (*place, "template")
    template = fields.template(document, where)
    waiting = fields.with_containers(template, "initContainers", fields.container(WAITS, WAIT))
    suspended = one.get("suspend") is True
    count = 0 if suspended else min(max(written, least), most) * hosts
    late = "the group is suspended" if suspended else ""
    name = group.lower()
    added = ("the init container that waits for the head (200m cpu, 256Mi)",)
    role = Role(name, group, waiting, count, least * hosts, template_slot(where), late, added)
    return role, JobPodSet(
        name, written * hosts, resources_of(part(template, "spec")), template, None, topology_of(template)
    )
