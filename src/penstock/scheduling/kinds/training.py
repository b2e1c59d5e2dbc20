"""Kubeflow's kinds: the jobs of the training operator, MPIJob, and TrainJob with its runtime. Called by the table in kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.formats.documents import Document, Library, part
from penstock.formats.pods.requests import resources_of
from penstock.scheduling import fields
from penstock.scheduling.kinds.batch import job_pods, late_of
from penstock.scheduling.kinds.topology import topology_of
from penstock.scheduling.model import Data, JobPods, JobPodSet, Named, Path, Role, Slot, shown, template_slot

INDEX = "training.kubeflow.org/replica-index"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
MANAGER = "penstock/scheduling"
"""Owner of our entry in the runtimePatches of a TrainJob."""


def of(field: str, *order: str) -> Callable[[Document, Library], JobPods]:
    """A kind with replica specs by role: the field that has them, and the roles in Kueue's order."""

    def pods(document: Document, library: Library) -> JobPods:
        return _replicas(document, field, order)

    return pods


def _replicas(document: Document, field: str, order: tuple[str, ...]) -> JobPods:
    where: Path = ("spec", field)
    specs = fields.mapping(document, where, "it says which pods there are")
    known = {name.lower(): name for name in order}
    for written in specs:
        if str(written).lower() not in known:
            message = f"{document.kind} has no role {str(written)!r}"
            raise fields.wrong(document, (*where, str(written)), message, f"write one of {', '.join(order)}")
    roles, sets = [], []
    for name in order:
        given = next((one for one in specs if str(one).lower() == name.lower()), None)
        if given is None or specs[given] is None:
            continue
        place = (*where, str(given))
        fields.mapping(document, place)
        count = fields.count(document, (*place, "replicas"), 1)
        template = fields.template(document, (*place, "template"))
        least, late = _least(document, name, count), _late(document, name)
        slot = template_slot((*place, "template"))
        roles.append(Role(name.lower(), name.lower(), template, count, least, slot, late))
        asked = resources_of(part(template, "spec"))
        sets.append(JobPodSet(name.lower(), count, asked, template, None, topology_of(template, INDEX)))
    return JobPods(tuple(roles), tuple(sets))


def _least(document: Document, role: str, count: int) -> int:
    """An elastic PyTorchJob runs with the minimum of its workers."""
    if document.kind == "PyTorchJob" and role == "Worker" and "elasticPolicy" in document.spec:
        return min(count, fields.count(document, ("spec", "elasticPolicy", "minReplicas"), count))
    return count


def _late(document: Document, role: str) -> str:
    if role == "Launcher" and document.spec.get("launcherCreationPolicy") == "WaitForWorkersReady":
        return "it is made when the workers are ready"
    return ""


# -- TrainJob ---------------------------------------------------------------------------------------------------------


def train_job(document: Document, library: Library) -> JobPods:
    """Its pods are those of its runtime, which must be among the documents."""
    name = fields.text(document, ("spec", "runtimeRef", "name"), "")
    kind = fields.text(document, ("spec", "runtimeRef", "kind"), "ClusterTrainingRuntime")
    runtime = library.find(kind, name)
    if runtime is None:
        message = f"the {kind} {name!r} is not among these documents, and it says what the pods of the TrainJob are"
        advice = f"put it into the same file: kubectl get {kind.lower()} {name} -o yaml"
        return JobPods((), (), ((shown(("spec", "runtimeRef")), message, advice),), message)
    roles, sets = [], []
    for place, one in fields.listed(runtime, ("spec", "template", "spec", "replicatedJobs")):
        job = fields.text(runtime, (*place, "name"), "")
        trains = part(one, "template", "metadata", "labels").get(STEP) == "trainer"
        template = fields.template(runtime, (*place, "template", "spec", "template"))
        if trains:
            count, template = _nodes(document, runtime), _with_resources(document, template)
        else:
            replicas = fields.count(runtime, (*place, "replicas"), 1)
            count = replicas * job_pods(runtime, (*place, "template", "spec"))
        slot = _patch_slot(job)
        roles.append(Role(job.lower(), job.lower(), template, count, count, slot, late_of(one)))
        asked = resources_of(part(template, "spec"))
        sets.append(JobPodSet(job.lower(), count, asked, template, None, topology_of(template)))
    said = f"a TrainJob cannot set the schedulerName of its pods: {kind} {name} must"
    note = (
        shown(("spec", "runtimeRef")),
        said,
        "YuniKorn's admission controller sets it, or set it in the templates of the runtime",
    )
    return JobPods(tuple(roles), tuple(sets), (note,) if not _scheduled(runtime) else ())


def _nodes(document: Document, runtime: Document) -> int:
    own = fields.count(runtime, ("spec", "mlPolicy", "numNodes"), 1)
    return fields.count(document, ("spec", "trainer", "numNodes"), own)


def _with_resources(document: Document, template: Data) -> Data:
    """The TrainJob's resources replace those of the container `node`."""
    where: Path = ("spec", "trainer", "resourcesPerNode")
    fields.check_resources(document, where)
    own = fields.at(document.data, where)
    if own is None:
        return template
    spec = dict(part(template, "spec"))
    containers: list[Any] = list(spec.get("containers") or ())
    spec["containers"] = [{**one, "resources": own} if one.get("name") == "node" else one for one in containers]
    return {**template, "spec": spec}


def _patch_slot(job: str) -> Slot:
    """Pods of a TrainJob are reached by an entry of our own in runtimePatches; what is missing on the way is made."""
    patch: Path = ("spec", "runtimePatches", Named("manager", MANAGER), "trainingRuntimeSpec", "template", "spec")
    meta: Path = (*patch, "replicatedJobs", Named("name", job), "template", "spec", "template", "metadata")
    return Slot((*meta, "labels"), (*meta, "annotations"))


def _scheduled(runtime: Document) -> bool:
    jobs = fields.listed(runtime, ("spec", "template", "spec", "replicatedJobs"))
    return all(part(one, "template", "spec", "template", "spec").get("schedulerName") for _, one in jobs)
