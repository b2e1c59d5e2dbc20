"""`penstock schedule` on the real YuniKorn: pods with the metadata that it writes, for each kind of job that makes a gang. Nodes are fake.

No operator is there: the test makes the pods that it would make, from the templates that were written.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from penstock.formats.documents import Document, Library
from penstock.formats.report import Report
from penstock.scheduling.apply import ScheduleOptions, schedule_one
from penstock.scheduling.fields import at
from penstock.scheduling.model import Binding, JobObject, Role
from penstock.scheduling.objects import job_object
from penstock.scheduling.queueconfig import queue_config
from penstock.scheduling.registry import scheduler
from testbed.components import yunikorn
from testbed.instance import Testbed
from tests.cluster import test_yunikorn as real
from tests.cluster.support import fresh_namespace
from tests.scheduling import samples

Beds = Callable[..., Testbed]
Data = dict[str, Any]
CPUS = 32
"""Of the one node."""
ORGANISATION = """
partitions:
- name: default
  placementrules:
  - {name: provided, create: true}
  - {name: tag, value: namespace, create: true}
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: org
      parent: true
      queues:
      - name: ray
        resources: {max: {vcore: 6}}
"""
RFC = """
queueconfig:
  scheduler: yunikorn
  jobs:
    - type: ray
      gangscheduling: "placeholderTimeoutInSeconds=60 gangSchedulingStyle=hard"
      allow-preemption: true
    - type: spark
      gangscheduling: "placeholderTimeoutInSeconds=30 gangSchedulingStyle=hard"
      allow-preemption: false
"""
PREEMPTION = """
partitions:
- name: default
  placementrules:
  - {name: provided, create: true}
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: org
      queues:
      - name: busy
      - name: owner
        properties: {preemption.delay: 1s}
        resources: {guaranteed: {vcore: 16}}
"""
CLOSED = """
partitions:
- name: default
  placementrules:
  - {name: provided, create: false}
  queues:
  - name: root
    queues:
    - name: org
      queues:
      - name: default
        submitacl: "sue lab"
"""


@pytest.fixture
def bed(testbed: Beds) -> Iterator[Testbed]:
    """With the queues that the other tests of YuniKorn expect, in the end."""
    bed = testbed("kwok", "yunikorn")
    yield bed
    yunikorn.configure(bed, real.QUEUES)


@pytest.fixture
def ns(bed: Testbed) -> Iterator[str]:
    """A namespace whose pods are gone in the end: all tests share one node."""
    name = fresh_namespace(bed)
    yield name
    bed.delete(f"/api/v1/namespaces/{name}/pods")
    bed.wait(
        lambda: all(real.held(one) == 0 for one in yunikorn.rest(bed, "partition/default/nodes")),
        "the node to be empty",
    )


@dataclass(frozen=True)
class Gang:
    """A job that was written for YuniKorn."""

    app: str
    pods: Mapping[str, Data]
    """Those that its operator would make in the beginning, by name."""
    members: int
    cpu: int
    """Thousandths, of all of its groups."""
    queue: str


def written(
    document: Document, ns: str, options: ScheduleOptions, name: str = "one", library: Library | None = None
) -> Gang:
    """What `schedule` makes of it, and the pods of that."""
    given = Document({**document.data, "metadata": {**document.metadata, "name": name, "namespace": ns}}, "job.yaml")
    result = schedule_one(given, scheduler("yunikorn"), options, library and Library((given, *library.documents)))
    found, job = result.documents[-1], result.jobs[0].job
    pods = {
        f"{name}-{number}-{index}": pod_of(found, job, role)
        for number, role in enumerate(job.roles)
        for index in range(role.members)
    }
    groups = result.jobs[0].gang.members
    labels = next(iter(pods.values()))["metadata"]["labels"]
    return Gang(
        labels.get(f"{real.DOMAIN}/app-id") or labels["spark-app-selector"],
        pods,
        sum(one.count for one in groups),
        sum(one.total.get("cpu", 0) for one in groups),
        labels[f"{real.DOMAIN}/queue"],
    )


def pod_of(found: Mapping[str, Any], job: JobObject, role: Role) -> Data:
    """As the operator makes it of the template. Spark names the application itself, and a TrainJob has no place for the scheduler's name."""
    labels, annotations = (at(found, place) or {} for place in (role.slot.labels, role.slot.annotations))
    if job.kind.job_type == "spark":
        labels = {**labels, "spark-app-selector": f"spark-{job.document.namespace}-{job.document.name}"}
    chosen = at(found, role.slot.scheduler) if role.slot.scheduler else "yunikorn"
    spec = copy.deepcopy(dict(role.spec)) | {"restartPolicy": "Never", "schedulerName": chosen}
    for one in [*spec["containers"], *spec.get("initContainers", ())]:
        one["image"] = "busybox:testbed"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": dict(labels), "annotations": {**annotations, **real.FOREVER}},
        "spec": spec,
    }


def submit(bed: Testbed, ns: str, gang: Gang) -> None:
    for name, pod in gang.pods.items():
        made = {**pod, "metadata": {**pod["metadata"], "name": name}}
        bed.raw("POST", f"/api/v1/namespaces/{ns}/pods", made)


def phases(bed: Testbed, ns: str, gang: Gang) -> list[str]:
    """Of the pods of one job, in their order; those that are gone are left out."""
    found = real.phases(bed, ns)
    return [found[name] for name in gang.pods if name in found]


def all_are(bed: Testbed, ns: str, gang: Gang, phase: str) -> bool:
    return phases(bed, ns, gang) == [phase] * len(gang.pods)


def without_initializer() -> Document:
    """A runtime that begins with its trainers."""
    found = copy.deepcopy(dict(samples.runtime().data))
    jobs = found["spec"]["template"]["spec"]["replicatedJobs"]
    found["spec"]["template"]["spec"]["replicatedJobs"] = [jobs[1]]
    del jobs[1]["dependsOn"]
    return Document(found, "runtime.yaml")


def gangs() -> Iterator[tuple[str, Document, Library]]:
    """One of each kind whose pods start together. The sample of Spark wants a device and a node that are not there: a plain one is taken."""
    library = Library((without_initializer(),))
    for document in [*samples.every_kind(), samples.spark()]:
        if any(key in document.spec for key in ("nodeSelector", "submitterPodTemplate")):
            continue
        job = job_object(document, Library((document, *library.documents)))
        if job is not None and sum(role.members for role in job.roles) > 1:
            yield document.kind, document, library


GANGS = {kind: (document, library) for kind, document, library in gangs()}


def test_every_kind_that_makes_a_gang_is_tried() -> None:
    serving = {"Pod", "Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"}
    by_themselves = {"Workflow", "CronWorkflow", "PipelineRun", "TaskRun"}
    every = {document.kind for document in samples.every_kind()}
    assert set(GANGS) == every - serving - by_themselves


@pytest.mark.parametrize("kind", GANGS)
def test_a_gang_starts_together_and_never_by_half(bed: Testbed, ns: str, kind: str) -> None:
    document, library = GANGS[kind]
    gang = written(
        document, ns, ScheduleOptions(Binding(queue=f"root.{ns}", style="Hard", timeout=120)), library=library
    )
    # Another pod leaves room for all but a part of the last one.
    size = round(CPUS - (gang.cpu - 500) / 1000, 3)
    real.create(bed, ns, "other", size, {"labels": {f"{real.DOMAIN}/app-id": f"other-{ns}"}})
    bed.wait(lambda: real.phases(bed, ns) == {"other": "Running"}, "the other pod to run")
    submit(bed, ns, gang)

    def reserved() -> list[bool]:
        return ["nodeName" in one["spec"] for one in real.pods(bed, ns)[1]]

    bed.wait(
        lambda: len(reserved()) == gang.members and sum(reserved()) == gang.members - 1, "all but one to be reserved"
    )
    assert all_are(bed, ns, gang, "Pending")
    assert not any("nodeName" in one["spec"] for name, one in real.pods(bed, ns)[0].items() if name != "other")
    seen = real.application(bed, gang.app)
    assert (seen["applicationState"], seen["queueName"]) == ("Accepted", f"root.{ns}")
    real.end(bed, ns, "other")
    bed.wait(lambda: all_are(bed, ns, gang, "Running"), "all of the gang to run")
    bed.wait(lambda: not real.pods(bed, ns)[1], "the placeholders to be gone")
    assert sum(one["count"] for one in real.application(bed, gang.app)["placeholderData"]) == gang.members


@pytest.mark.parametrize("style", ["Hard", "Soft"])
def test_styles(bed: Testbed, ns: str, style: Any) -> None:
    """A gang for which there is no room in time: Hard fails it, Soft runs those that fit."""
    document, library = GANGS["XGBoostJob"]
    big = copy.deepcopy(dict(document.data))
    for role in big["spec"]["xgbReplicaSpecs"].values():
        role["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "12"
    options = ScheduleOptions(Binding(queue=f"root.{ns}", style=style, timeout=3))
    gang = written(Document(big, "job.yaml"), ns, options, library=library)
    submit(bed, ns, gang)
    if style == "Hard":
        bed.wait(lambda: all_are(bed, ns, gang, "Failed"), "the gang to fail")
        assert {one["status"]["reason"] for one in real.pods(bed, ns)[0].values()} == {"ResourceReservationTimeout"}
    else:
        bed.wait(lambda: sorted(phases(bed, ns, gang)) == ["Pending", "Running", "Running"], "two of three to run")
        assert "Resuming" in real.states(bed, gang.app)


def test_the_queues_of_an_organisation_are_filled_as_the_rfc_says(bed: Testbed, ns: str) -> None:
    """root.org.ray takes two clusters of three; the third waits as a whole, while Spark and all others go to queues of their own."""
    yunikorn.configure(bed, ORGANISATION)
    report = Report()
    options = ScheduleOptions(
        Binding(), organisation="org", config=queue_config(RFC, "queueconfig.yaml", ["yunikorn"], report)
    )
    assert any("Hard" in entry.message for entry in report.entries)
    make = partial(written, ns=ns, options=options)
    first, second, third = (make(samples.ray_job(), name=name) for name in ("a", "b", "c"))
    others = make(samples.spark(), name="s"), make(samples.job(), name="j")
    assert {one.queue for one in (first, second, third)} == {"root.org.ray"}
    for one in (first, second):
        submit(bed, ns, one)
        bed.wait(partial(all_are, bed, ns, one, "Running"), "a cluster of Ray to run")
    for one in (third, *others):
        submit(bed, ns, one)
    for one in others:
        bed.wait(partial(all_are, bed, ns, one, "Running"), "the others to run")
    assert all_are(bed, ns, third, "Pending")
    queues = [real.application(bed, one.app)["queueName"] for one in (first, third, *others)]
    assert queues == ["root.org.ray", "root.org.ray", "root.org.spark", "root.org.default"]
    queue = yunikorn.rest(bed, "partition/default/queue/root.org.ray")
    assert (queue["allocatedResource"]["vcore"], queue["maxResource"]["vcore"]) == (6000, 6000)
    for name in first.pods:
        real.end(bed, ns, name)
    bed.wait(lambda: all_are(bed, ns, third, "Running"), "the third cluster to take the place of the first")


def test_those_that_others_may_displace_are_displaced_and_no_others(bed: Testbed, ns: str) -> None:
    yunikorn.configure(bed, PREEMPTION)

    def job(pods: int) -> Document:
        return samples.job(parallelism=pods, completions=pods, template=samples.pod(cpu="6", memory="1Gi"))

    busy = Binding(queue="root.org.busy", gang=False)
    kept = written(job(3), ns, ScheduleOptions(replace(busy, allow_preemption=False)), "kept")
    given = written(job(2), ns, ScheduleOptions(replace(busy, allow_preemption=True)), "given")
    # The first pod of an application goes after the others of all, so without the mark at most one of the two would be of `given`.
    for one in (given, kept):
        submit(bed, ns, one)
        bed.wait(partial(all_are, bed, ns, one, "Running"), "the queue to be busy")
    owner = written(job(2), ns, ScheduleOptions(Binding(queue="root.org.owner", gang=False)), "owner")
    submit(bed, ns, owner)
    bed.wait(lambda: all_are(bed, ns, owner, "Running"), "the owner of the guarantee to run")
    assert "Running" not in phases(bed, ns, given)
    assert all_are(bed, ns, kept, "Running")


def test_who_may_not_submit_is_refused(bed: Testbed, ns: str) -> None:
    yunikorn.configure(bed, CLOSED)
    binding = Binding(user="joe", groups=("staff",))
    options = ScheduleOptions(binding, organisation="org")
    refused = written(samples.job(), ns, options, "joe")
    by_name = written(samples.job(), ns, replace(options, binding=replace(binding, user="sue")), "sue")
    by_group = written(samples.job(), ns, replace(options, binding=replace(binding, groups=("lab",))), "lab")
    submit(bed, ns, refused)
    bed.wait(lambda: all_are(bed, ns, refused, "Failed"), "the job to be refused")
    names = set(refused.pods)
    reasons = {one["status"]["reason"] for name, one in real.pods(bed, ns)[0].items() if name in names}
    assert reasons == {"ApplicationRejected"}
    assert real.application(bed, refused.app)["applicationState"] == "Rejected"
    for one in (by_name, by_group):
        submit(bed, ns, one)
        bed.wait(partial(all_are, bed, ns, one, "Running"), "the job of somebody who may")
    assert real.application(bed, by_name.app)["user"] == "sue"
