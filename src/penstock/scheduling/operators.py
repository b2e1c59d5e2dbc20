"""The task groups that KubeRay 1.7 and spark-operator 2.5 write for YuniKorn themselves, and how ours differ. Called by apply, for the report.

`theirs` keeps their rules with their mistakes: KubeRay leaves out what it adds to pods itself, and writes groups of no member, for which YuniKorn drops the whole gang.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.formats.documents import Document, part
from penstock.formats.pods.requests import container_resources
from penstock.graph import quantity
from penstock.scheduling import fields
from penstock.scheduling.kinds import ray, spark
from penstock.scheduling.model import Amounts, Data, Gang, GangMember, JobObject, Path


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    members: int
    requests: Amounts
    placement: Mapping[str, Any] = field(default_factory=dict)


def theirs(job: JobObject) -> tuple[Group, ...]:
    """What the operator of this kind would write; nothing for kinds whose operators write nothing. Raises Refused."""
    if job.kind.kind in ("RayCluster", "RayJob"):
        return tuple(_kuberay(job))
    if job.kind.kind == "SparkApplication":
        return tuple(_spark(job))
    return ()


def _kuberay(job: JobObject) -> Iterator[Group]:
    document = job.document
    spec: Path = ("spec",) if document.kind == "RayCluster" else ("spec", "rayClusterSpec")
    yield _ray_group(ray.HEAD_GROUP, 1, fields.at(document.data, (*spec, "headGroupSpec", "template")))
    for place, one in fields.listed(document, (*spec, "workerGroupSpecs")):
        hosts = fields.count(document, (*place, "numOfHosts"), 1)
        least = fields.count(document, (*place, "minReplicas"), 0)
        yield _ray_group(str(one.get("groupName")), least * hosts, one.get("template"))
    if document.kind == "RayJob":
        own = fields.at(document.data, ("spec", "submitterPodTemplate"))
        added = {"spec": {"containers": [fields.container("submitter", ray.SUBMITTER)]}}
        yield _ray_group(ray.SUBMITTER_GROUP, 1, added if own is None else own)


def _ray_group(name: str, members: int, template: Any) -> Group:
    """Containers only; limits stand for requests that are missing."""
    spec = part(template, "spec")
    total: dict[str, int] = {}
    for one in spec.get("containers") or ():
        for resource, amount in container_resources(one).items():
            total[resource] = total.get(resource, 0) + amount
    placement = {key: spec[key] for key in ("nodeSelector", "tolerations", "affinity") if spec.get(key)}
    return Group(name, members, total, placement)


def _spark(job: JobObject) -> Iterator[Group]:
    """Cores and memory from the fields, without GPUs, sidecars and the pod template; of the configuration of Spark only what is named here."""
    document = job.document
    for role, name in (("driver", spark.DRIVER_GROUP), ("executor", spark.EXECUTOR_GROUP)):
        members = 1 if role == "driver" else _first_executors(document)
        if not members:
            continue
        own = part(document.spec, role)
        cores = own.get("cores") if own.get("coreRequest") is None else own["coreRequest"]
        memory = _spark_memory(document, role) // spark.MEBI * spark.MEBI * 1000
        selector = {**part(document.spec, "nodeSelector"), **part(own, "nodeSelector")}
        given: Data = {"nodeSelector": selector, "tolerations": own.get("tolerations"), "affinity": own.get("affinity")}
        asked = {"cpu": quantity.parse(1 if cores is None else cores), "memory": memory}
        yield Group(name, members, asked, {key: value for key, value in given.items() if value})


def _first_executors(document: Document) -> int:
    own = spark.instances_of(document, ("spec",))
    dynamic = part(document.spec, "dynamicAllocation")
    if dynamic.get("enabled") is not True:
        return 2 if own is None else own
    return max(own or 0, dynamic.get("initialExecutors") or 0, dynamic.get("minExecutors") or 0)


def _spark_memory(document: Document, role: str) -> int:
    """Bytes. Raises Refused where the operator submits nothing."""
    own = part(document.spec, role)
    conf = {key: str(value) for key, value in part(document.spec, "sparkConf").items()}
    kind = document.spec.get("type") or "Scala"
    default = None if f"spark.{role}.memory" in conf else "1g"
    memory = _size(own.get("memory") or default)
    factor = document.spec.get("memoryOverheadFactor")
    part_of = float(factor) if factor is not None else float(spark.FACTORS.get(str(kind), spark.OTHER_FACTOR))
    given = own.get("memoryOverhead")
    total = memory + (_size(given) if given is not None else int(max(memory * part_of, float(spark.LEAST_OVERHEAD))))
    if role == "executor":
        python = conf.get("spark.executor.pyspark.memory")
        if kind == "Python" and python is not None:
            total += _size(f"{python}m" if str(python).isdigit() else python)
        if conf.get("spark.memory.offHeap.enabled", "false") != "false" and "spark.memory.offHeap.size" in conf:
            total += _size(conf["spark.memory.offHeap.size"])
    return total


class Refused(ValueError):
    """The operator itself cannot read this, and submits nothing."""


def _size(text: Any) -> int:
    """The operator wants a unit, where Spark takes a bare number."""
    if text is None:
        return 0
    if str(text).isdigit():
        raise Refused(
            f"{text} has no unit: Spark takes it, and the operator's YuniKorn scheduler submits nothing; write {text}m"
        )
    return spark.java_size(str(text))


def differences(job: JobObject, gang: Gang) -> list[str]:
    """Each way in which our gang differs from the operator's, with its reason. Empty if they are the same."""
    found = []
    try:
        written = theirs(job)
    except Refused as refused:
        return [f"it would write nothing: {refused}"]
    ours = {one.name: one for one in gang.members}
    roles = {one.group: one for one in job.roles}
    for group in written:
        role = roles.get(group.name)
        member = next((one for one in gang.members if role is not None and one.role == role.name), ours.get(group.name))
        if member is None:
            why = role.late if role is not None and role.late else _absent(group, job)
            found.append(f"no group {group.name}: {why}")
            continue
        if member.name != group.name:
            found.append(f"{group.name} is called {member.name}: the names of placeholders are lower case")
        if member.count != group.members:
            found.append(f"{group.name} has {member.count} members, not {group.members}")
        found += _amounts(group, member, "; ".join(role.added) if role is not None else "")
    return found


def _absent(group: Group, job: JobObject) -> str:
    if not group.members:
        return "it would have no members, and YuniKorn drops all groups if one has none"
    if group.name == ray.SUBMITTER_GROUP:
        return f"there is no such pod with submissionMode {job.document.spec.get('submissionMode')}"
    return "a gang of one pod is none"


def _amounts(group: Group, member: GangMember, added: str) -> Iterator[str]:
    for name in sorted({*group.requests, *member.requests}):
        before, now = group.requests.get(name, 0), member.requests.get(name, 0)
        if before != now:
            amounts = f"{quantity.short(now, name)} {name}, not {quantity.short(before, name)}"
            reason = "the whole pod counts: init containers, sidecars, overhead" + (
                f", and what is added: {added}" if added else ""
            )
            yield f"{group.name} asks for {amounts}: {reason}"
