"""SparkApplication (spark-operator 2.5): the driver and the executors, by Spark's own arithmetic. Called by the table in kinds.

Spark does not take the size of its pods from a pod template: cores and memory are fields, and the memory of a pod is more than `memory` says. Kueue 0.19
counts neither the cores nor the overhead; `as_kueue` of a pod set says what it counts.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, Final

from penstock.formats.documents import Document, Library, items, part
from penstock.formats.pods.requests import resources_of
from penstock.graph import quantity
from penstock.scheduling import fields
from penstock.scheduling.kinds.topology import topology_of
from penstock.scheduling.model import Amounts, Data, JobPods, JobPodSet, Path, Role, Slot

DRIVER_GROUP, EXECUTOR_GROUP = "spark-driver", "spark-executor"
MEBI: Final = 2**20
LEAST_OVERHEAD: Final = 384 * MEBI
_SIZE: Final = re.compile(r"([0-9]{1,15})(b|kb?|mb?|gb?|tb?|pb?)?\Z", re.I | re.A)
_POWER: Final = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_FACTOR: Final = re.compile(r"(?:[0-9]{1,6}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})\Z", re.A)
_COUNT: Final = re.compile(r"[0-9]{1,9}\Z", re.A)
FACTORS: Final = {"Java": Fraction(1, 10), "Scala": Fraction(1, 10)}
OTHER_FACTOR: Final = Fraction(4, 10)


def application(document: Document, library: Library) -> JobPods:
    return application_at(document, ("spec",))


def scheduled(document: Document, library: Library) -> JobPods:
    return application_at(document, ("spec", "template"))


def application_at(document: Document, spec: Path) -> JobPods:
    fields.mapping(document, spec, "it describes the application")
    roles, sets = [], []
    for name, group in (("driver", DRIVER_GROUP), ("executor", EXECUTOR_GROUP)):
        fields.mapping(document, (*spec, name))
        count = 1 if name == "driver" else executors(document, spec)
        pod = _pod(document, spec, name)
        place = (*spec, name)
        slot = Slot((*place, "labels"), (*place, "annotations"), (*place, "schedulerName"))
        role = Role(name, group, pod, count, count, slot, added=("the memory overhead",))
        roles.append(role)
        counted = _as_kueue(document, spec, name, count)
        # Where a limit stands for a missing request Kueue counts more than the pod asks for: never hold less than it does.
        held = {key: max(role.requests.get(key, 0), counted[1].get(key, 0)) for key in {**role.requests, **counted[1]}}
        sets.append(JobPodSet(name, count, held, pod, None, topology_of(pod), counted))
    return JobPods(tuple(roles), tuple(sets))


def executors(document: Document, spec: Path) -> int:
    """As many as there are in the beginning."""
    conf = _conf(document, spec)
    written = fields.at(document.data, (*spec, "executor", "instances"))
    if written is None and "spark.executor.instances" in conf:
        own: int | None = _counted(document, spec, "spark.executor.instances")
    else:
        own = None if written is None else fields.count(document, (*spec, "executor", "instances"), 1)
    dynamic = fields.at(document.data, (*spec, "dynamicAllocation"))
    if isinstance(dynamic, dict):
        enabled = dynamic.get("enabled") is True
    else:
        enabled = conf.get("spark.dynamicAllocation.enabled", "").lower() == "true"
    if not enabled:
        return 1 if own is None else own
    found = [own or 0]
    for name in ("initialExecutors", "minExecutors"):
        found.append(fields.count(document, (*spec, "dynamicAllocation", name), 0))
        if f"spark.dynamicAllocation.{name}" in conf:
            found.append(_counted(document, spec, f"spark.dynamicAllocation.{name}"))
    return max(found)


def _counted(document: Document, spec: Path, key: str) -> int:
    text = _conf(document, spec)[key]
    if not _COUNT.match(text):
        raise fields.wrong(document, (*spec, "sparkConf", key), f"{text[:60]!r} is not a number", "write a number")
    return int(text)


def _conf(document: Document, spec: Path) -> dict[str, str]:
    return {str(key): str(value) for key, value in fields.mapping(document, (*spec, "sparkConf")).items()}


# -- one pod ----------------------------------------------------------------------------------------------------------


def _pod(document: Document, spec: Path, role: str) -> Data:
    """The pod that Spark will make: its template with the main container's own cores and memory."""
    place = (*spec, role)
    main = _main(document, spec, role)
    cores = cores_of(document, spec, role)
    memory = f"{memory_of(document, spec, role) // MEBI}Mi"
    limits = dict(_gpu(document, place))
    main["resources"] = {"requests": {"cpu": cores, "memory": memory, **limits}, "limits": limits}
    return _with_others(document, spec, role, main)


def _main(document: Document, spec: Path, role: str) -> dict[str, Any]:
    return {"name": f"spark-kubernetes-{role}"}


def _with_others(document: Document, spec: Path, role: str, main: Data) -> Data:
    """With the containers of the template beside the main one, sidecars, init containers and placement."""
    place = (*spec, role)
    template = fields.mapping(document, (*place, "template"))
    if template:
        fields.check_pod(document, (*place, "template", "spec"))
    base = part(template, "spec")
    for name in ("sidecars", "initContainers"):
        for where, _ in fields.listed(document, (*place, name)):
            fields.check_resources(document, (*where, "resources"))
    given = [one for one in base.get("containers") or () if one.get("name") != main["name"]]
    beside = given if len(given) < len(base.get("containers") or ()) else given[1:]
    own = fields.mapping(document, place)
    pod_spec: dict[str, Any] = {
        **base,
        "containers": [main, *beside, *(own.get("sidecars") or ())],
        "initContainers": [*(base.get("initContainers") or ()), *(own.get("initContainers") or ())],
    }
    selector = {**part(base, "nodeSelector"), **part(fields.at(document.data, spec), "nodeSelector")}
    pod_spec["nodeSelector"] = {**selector, **part(own, "nodeSelector")}
    pod_spec["tolerations"] = [one for given in (base, own) for _, one in items(given, "tolerations")]
    if own.get("affinity"):
        pod_spec["affinity"] = own["affinity"]
    metadata = part(template, "metadata")
    return {
        "metadata": {name: {**part(metadata, name), **part(own, name)} for name in ("labels", "annotations")},
        "spec": {key: value for key, value in pod_spec.items() if value},
    }


def cores_of(document: Document, spec: Path, role: str) -> str:
    """coreRequest, or cores, or what the configuration of Spark says, or 1."""
    place, conf = (*spec, role), _conf(document, spec)
    own = fields.at(document.data, (*place, "coreRequest"))
    keyed = f"spark.kubernetes.{role}.request.cores"
    text = own if own is not None else conf.get(keyed)
    if text is not None:
        where = (*place, "coreRequest") if own is not None else (*spec, "sparkConf", keyed)
        _amount(document, where, text)
        return str(text)
    cores = fields.at(document.data, (*place, "cores"))
    if cores is None and f"spark.{role}.cores" in conf:
        return str(_counted(document, spec, f"spark.{role}.cores"))
    return str(fields.count(document, (*place, "cores"), 1))


def _amount(document: Document, where: Path, text: Any) -> None:
    try:
        quantity.parse(text)
    except (ValueError, TypeError) as error:
        raise fields.wrong(document, where, str(error), "write a quantity such as 500m or 2") from None


def memory_of(document: Document, spec: Path, role: str) -> int:
    """Bytes: the memory with its overhead, and for executors that of Python and outside of the heap."""
    place, conf = (*spec, role), _conf(document, spec)
    memory = size(document, (*place, "memory"), conf, f"spark.{role}.memory")
    memory = 1024 * MEBI if memory is None else memory
    overhead = size(document, (*place, "memoryOverhead"), conf, f"spark.{role}.memoryOverhead")
    if overhead is None:
        overhead = max(int(memory * _factor(document, spec, role, conf)), LEAST_OVERHEAD)
    more = 0
    if role == "executor":
        if fields.at(document.data, (*spec, "type")) == "Python":
            more += size(document, (), conf, "spark.executor.pyspark.memory", spec) or 0
        if conf.get("spark.memory.offHeap.enabled", "false").lower() != "false":
            more += size(document, (), conf, "spark.memory.offHeap.size", spec, 1) or 0
    return memory + overhead + more


def _factor(document: Document, spec: Path, role: str, conf: dict[str, str]) -> Fraction:
    """The overhead as a part of the memory: more where the program is not one of the JVM."""
    where: Path = (*spec, "memoryOverheadFactor")
    found = fields.at(document.data, where)
    for key in (f"spark.{role}.memoryOverheadFactor", "spark.kubernetes.memoryOverheadFactor"):
        if found is None and key in conf:
            found, where = conf[key], (*spec, "sparkConf", key)
    if found is None:
        return FACTORS.get(str(fields.at(document.data, (*spec, "type")) or "Scala"), OTHER_FACTOR)
    if not _FACTOR.match(str(found)):
        message = f"{str(found)[:60]!r} is no memory overhead factor"
        raise fields.wrong(document, where, message, "write a number such as '0.1'")
    return Fraction(str(found))


def size(
    document: Document, where: Path, conf: dict[str, str], key: str, spec: Path = (), bare: int = MEBI
) -> int | None:
    """Bytes of a size as Java writes it: 512m, 4g. A bare number is MiB, or `bare`, as in Spark. None: it is not there."""
    found = fields.at(document.data, where) if where else None
    if found is None:
        if key not in conf:
            return None
        found, where = conf[key], (*(spec or where[:-2]), "sparkConf", key)
    try:
        return java_size(str(found), bare)
    except ValueError as error:
        raise fields.wrong(document, where, str(error), "write a size such as 512m or 4g") from None


def java_size(text: str, bare: int = MEBI) -> int:
    match = _SIZE.match(text)
    if match is None:
        hint = f"; Spark writes {text.rstrip('iI')}" if text[-1:] in ("i", "I") else ""
        raise ValueError(f"{text[:60]!r} is no size of Spark{hint}")
    return int(match[1]) << _POWER[match[2][0].lower()] if match[2] else int(match[1]) * bare


def _gpu(document: Document, place: Path) -> dict[str, int]:
    gpu = fields.mapping(document, (*place, "gpu"))
    count = fields.count(document, (*place, "gpu", "quantity"), 0)
    return {str(gpu["name"]): count} if gpu.get("name") and count else {}


# -- as Kueue counts --------------------------------------------------------------------------------------------------


def _as_kueue(document: Document, spec: Path, role: str, count: int) -> tuple[int, Amounts]:
    """coreRequest, memory without overhead, limits, GPUs, sidecars and init containers; `instances` of the executor."""
    place = (*spec, role)
    own = fields.mapping(document, place)
    requests: dict[str, Any] = {}
    if own.get("coreRequest") is not None:
        requests["cpu"] = own["coreRequest"]
    conf = _conf(document, spec)
    memory = size(document, (*place, "memory"), {}, "", bare=1)
    if memory is not None or f"spark.{role}.memory" not in conf:
        requests["memory"] = 1024 * MEBI if memory is None else memory
    limits: dict[str, Any] = dict(_gpu(document, place))
    if own.get("coreLimit") is not None:
        _amount(document, (*place, "coreLimit"), own["coreLimit"])
        limits["cpu"] = own["coreLimit"]
    if own.get("memoryLimit") is not None:
        limits["memory"] = size(document, (*place, "memoryLimit"), {}, "", bare=1)
    main = {"name": f"spark-kubernetes-{role}", "resources": {"requests": requests, "limits": limits}}
    alone = {"containers": [main, *(own.get("sidecars") or ())], "initContainers": own.get("initContainers") or []}
    if role == "driver":
        return 1, resources_of(alone)
    return instances_of(document, spec) or 0, resources_of(alone)


def instances_of(document: Document, spec: Path) -> int | None:
    """The field, after the operator's defaults: 1, unless the configuration of Spark or dynamic allocation says how many."""
    place = (*spec, "executor", "instances")
    if fields.at(document.data, place) is not None:
        return fields.count(document, place, 1)
    return None if _conf(document, spec).get("spark.executor.instances") or _dynamic(document, spec) else 1


def _dynamic(document: Document, spec: Path) -> bool:
    """As the operator takes it; the configuration of Spark counts only where the application says nothing."""
    given = fields.at(document.data, (*spec, "dynamicAllocation"))
    if isinstance(given, dict):
        return given.get("enabled") is True
    # The operator looks for this spelling, which Spark does not know.
    return _conf(document, spec).get("spark.dynamicallocation.enabled", "").lower() in ("1", "t", "true")
