"""What Kueue refuses is refused, with its position and a fix; what it accepts is accepted; and no input makes the reader fail."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.admission.manifests import read
from penstock.admission.manifests.kinds import SCHEMAS
from penstock.admission.manifests.schema import (
    AnyField,
    BooleanField,
    Field,
    IntegerField,
    ListField,
    MapField,
    ObjectField,
    QuantityField,
    TextField,
    TimeField,
)
from penstock.admission.manifests.validate import changes
from penstock.admission.model import Admission, LocalQueue, PodSet, Workload
from penstock.errors import DocumentError, Problem, UserError
from tests.admission.manifests.test_read import CORPUS, NEW, corpus, load, workload

DEFINITIONS = Path(os.environ.get("PENSTOCK_KUEUE_CRDS") or Path(__file__).parents[4] / "shared/reference/crds/kueue")


def cluster_queue(**spec: Any) -> dict[str, Any]:
    quota = {"name": "cpu", "nominalQuota": 9}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": [quota]}]}
    whole = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
    return {"apiVersion": NEW, "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": whole}


def simple(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": NEW, "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def pods(**spec: Any) -> dict[str, Any]:
    document = workload()
    document["spec"].update(spec)
    return document


def group(covered: list[str], *flavors: str, **quota: Any) -> dict[str, Any]:
    listed = [{"name": name, "nominalQuota": 1, **quota} for name in covered]
    return {"coveredResources": covered, "flavors": [{"name": name, "resources": listed} for name in flavors]}


def problems(*documents: Any) -> tuple[Problem, ...]:
    with pytest.raises(DocumentError) as wrong:
        load(json.dumps(list(documents), indent=1), "q.json")
    return wrong.value.problems


PODSET = {"template": {"spec": {"containers": []}}}
TOLERATIONS = "spec.tolerations[0]"

WRONG: list[tuple[dict[str, Any], str, str, str]] = [
    # one field
    (cluster_queue(queueingStrategy="FIFO"), "P802", "spec.queueingStrategy", "StrictFIFO or BestEffortFIFO"),
    (cluster_queue(preemtion={}), "P802", "spec.preemtion", 'Did you mean "preemption"'),
    (cluster_queue(cohortName="Team A"), "P802", "spec.cohortName", "lower-case"),
    (cluster_queue(cohortName=""), "P802", "spec.cohortName", "lower-case"),
    (cluster_queue(cohortName="a" * 254), "P802", "spec.cohortName", "at most 253"),
    (cluster_queue(cohort="a"), "P802", "spec.cohort", 'Did you mean "cohortName"'),
    (cluster_queue(stopPolicy="Stop"), "P802", "spec.stopPolicy", "None, Hold or HoldAndDrain"),
    (cluster_queue(resourceGroups={}), "P802", "spec.resourceGroups", "a list"),
    (cluster_queue(resourceGroups=[group([f"r{i}"], f"f{i}") for i in range(17)]), "P802", "spec.resourceGroups", "16"),
    (cluster_queue(resourceGroups=[group(["cpu"], *(f"f{i}" for i in range(65)))]), "P802", "flavors", "64"),
    (
        cluster_queue(resourceGroups=[{"coveredResources": [], "flavors": []}]),
        "P802",
        "coveredResources",
        "at least one",
    ),
    (cluster_queue(resourceGroups=[{"flavors": []}]), "P802", "coveredResources", "add `coveredResources:`"),
    (cluster_queue(resourceGroups=[group(["cpu"], "f", nominalQuota="many")]), "P802", "nominalQuota", "quantity"),
    (cluster_queue(resourceGroups=[group(["cpu"], "f", nominalQuota=0.5)]), "P802", "nominalQuota", '"0.5"'),
    (cluster_queue(resourceGroups=[group(["cpu"], "f", nominalQuota=True)]), "P802", "nominalQuota", "quantity"),
    (cluster_queue(resourceGroups=[group(["cpu"], "f", nominalQuota=-1)]), "P802", "nominalQuota", "0 or more"),
    (cluster_queue(resourceGroups=[group(["c p u"], "f")]), "P802", "coveredResources[0]", "letters"),
    (cluster_queue(fairSharing={"weight": "-1"}), "P802", "spec.fairSharing.weight", "0 or more"),
    (cluster_queue(fairSharing={"weight": "1n"}), "P802", "spec.fairSharing.weight", "more than 1n"),
    (cluster_queue(preemption={"withinClusterQueue": "Any"}), "P802", "withinClusterQueue", "Never"),
    (cluster_queue(preemption={"borrowWithinCohort": {"maxPriorityThreshold": "3"}}), "P802", "Threshold", "whole"),
    (cluster_queue(preemption={"borrowWithinCohort": {"maxPriorityThreshold": 2**31}}), "P802", "Threshold", "at most"),
    (cluster_queue(admissionScope={}), "P802", "spec.admissionScope.admissionMode", "add"),
    (cluster_queue(admissionChecksStrategy={"admissionChecks": []}), "P802", "admissionChecks", "at least one"),
    (cluster_queue(namespaceSelector={"matchLabels": {"a": 1}}), "P802", "matchLabels.a", 'put it in quotes: "1"'),
    (cluster_queue(namespaceSelector={"matchLabels": {"-a": "b"}}), "P802", "matchLabels.-a", "letters"),
    ({**cluster_queue(), "metadata": {}}, "P802", "metadata.name", "add `name:`"),
    ({**cluster_queue(), "metadata": {"name": "Q"}}, "P802", "metadata.name", "lower-case"),
    ({**cluster_queue(), "spec": 3}, "P802", "spec", "write its fields"),
    (simple("LocalQueue", clusterQueue=["a"]), "P802", "spec.clusterQueue", "write text"),
    (simple("ResourceFlavor", nodeLabels={str(i): "a" for i in range(9)}), "P802", "spec.nodeLabels", "at most 8"),
    (simple("ResourceFlavor", nodeTaints=[{"key": "a", "effect": "No"}]), "P802", "nodeTaints[0].effect", "NoSchedule"),
    (
        simple("ResourceFlavor", tolerations=[{"key": "a", "operator": "Is"}]),
        "P802",
        f"{TOLERATIONS}.operator",
        "Equal",
    ),
    (simple("ResourceFlavor", tolerations=[{"key": "a b"}]), "P802", f"{TOLERATIONS}.key", "letters"),
    (
        simple("ResourceFlavor", tolerations=[{"key": "a", "effect": "No"}]),
        "P802",
        f"{TOLERATIONS}.effect",
        "NoExecute",
    ),
    ({"apiVersion": NEW, "kind": "WorkloadPriorityClass", "metadata": {"name": "h"}}, "P802", "value", "add `value:`"),
    (simple("AdmissionCheck"), "P802", "spec.controllerName", "add"),
    (pods(podSets=[]), "P802", "spec.podSets", "at least one"),
    (pods(podSets=[{**PODSET, "name": f"p{i}"} for i in range(19)]), "P802", "spec.podSets", "at most 18"),
    (pods(podSets=[{**PODSET, "count": -1}]), "P802", "podSets[0].count", "at least 0"),
    (
        pods(podSets=[{"template": {"spec": {"containers": [], "nodeSelectr": {}}}}]),
        "P802",
        "nodeSelectr",
        "nodeSelector",
    ),
    (pods(maximumExecutionTimeSeconds=0), "P802", "spec.maximumExecutionTimeSeconds", "at least 1"),
    # several together
    (cluster_queue(resourceGroups=[group(["cpu"], "f", borrowingLimit=1)]), "P803", "borrowingLimit", "cohortName"),
    (cluster_queue(resourceGroups=[group(["cpu"], "f", lendingLimit=1)]), "P803", "lendingLimit", "cohortName"),
    (
        cluster_queue(cohortName="c", resourceGroups=[group(["cpu"], "f", lendingLimit="1001m")]),
        "P803",
        "lendingLimit",
        "at most the nominalQuota",
    ),
    (
        cluster_queue(resourceGroups=[{**group(["cpu", "memory"], "f"), "coveredResources": ["memory", "cpu"]}]),
        "P803",
        "flavors[0].resources",
        "in their order",
    ),
    (
        cluster_queue(resourceGroups=[{**group(["cpu"], "f"), "coveredResources": ["cpu", "memory"]}]),
        "P803",
        "flavors[0].resources",
        "exactly the coveredResources",
    ),
    (
        cluster_queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
        "P803",
        "spec.preemption.borrowWithinCohort.policy",
        "reclaimWithinCohort",
    ),
    (
        cluster_queue(flavorFungibility={"preference": "BorrowingOverPreemption"}),
        "P803",
        "spec.flavorFungibility.preference",
        "TryNextFlavor",
    ),
    (
        cluster_queue(
            flavorFungibility={
                "preference": "BorrowingOverPreemption",
                "whenCanBorrow": "TryNextFlavor",
                "whenCanPreempt": "MayStopSearch",
            }
        ),
        "P803",
        "spec.flavorFungibility.preference",
        "TryNextFlavor",
    ),
    (
        cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": "a", "onFlavors": ["spott"]}]}),
        "P803",
        "onFlavors[0]",
        'Did you mean "spot"',
    ),
    (
        cluster_queue(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
        "P803",
        "matchExpressions[0].values",
        "list the values",
    ),
    (
        cluster_queue(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
        "P803",
        "matchExpressions[0].values",
        "remove the values",
    ),
    (simple("Cohort", resourceGroups=[group(["cpu"], "f", borrowingLimit=1)]), "P803", "borrowingLimit", "parentName"),
    (simple("ResourceFlavor", topologyName="t"), "P803", "spec.topologyName", "label"),
    (simple("ResourceFlavor", tolerations=[{}]), "P803", TOLERATIONS, "operator: Exists"),
    (
        simple("ResourceFlavor", tolerations=[{"operator": "Exists", "value": "a"}]),
        "P803",
        f"{TOLERATIONS}.value",
        "remove",
    ),
    (
        simple("ResourceFlavor", tolerations=[{"key": "a", "tolerationSeconds": 3}]),
        "P803",
        f"{TOLERATIONS}.tolerationSeconds",
        "NoExecute",
    ),
    (pods(podSets=[{**PODSET, "minCount": 2}]), "P803", "podSets[0].minCount", "at most 1"),
    (
        pods(podSets=[{**PODSET, "name": "a", "minCount": 1}, {**PODSET, "name": "b", "minCount": 1}]),
        "P803",
        "podSets[1].minCount",
        "one of them",
    ),
    (pods(priority=None), "P803", "spec.priority", "priority:"),
    (
        pods(priorityClassRef={"group": "scheduling.k8s.io", "kind": "WorkloadPriorityClass", "name": "a"}),
        "P803",
        "spec.priorityClassRef.kind",
        "PriorityClass",
    ),
    (workload(reclaimablePods=[{"name": "main", "count": 4}]), "P803", "reclaimablePods[0].count", "at most 3"),
    (workload(reclaimablePods=[{"name": "mian", "count": 1}]), "P803", "reclaimablePods[0].name", "main"),
    # the same twice
    (cluster_queue(resourceGroups=[group(["cpu"], "f", "f")]), "P804", "flavors[1]", "another name"),
    (cluster_queue(resourceGroups=[group(["cpu"], "f"), group(["gpu"], "f")]), "P804", "flavors[0].name", "one group"),
    (
        cluster_queue(resourceGroups=[group(["cpu"], "f"), group(["cpu"], "g")]),
        "P804",
        "coveredResources[0]",
        "one group",
    ),
    (
        simple("ResourceFlavor", nodeTaints=[{"key": "a", "effect": "NoExecute", "value": v} for v in "bc"]),
        "P804",
        "nodeTaints[1]",
        "remove one",
    ),
    (pods(podSets=[PODSET, {**PODSET, "name": "main"}]), "P804", "podSets[1]", "another name"),
]


@pytest.mark.parametrize(("document", "code", "where", "fix"), WRONG)
def test_what_kueue_refuses_is_refused(document: dict[str, Any], code: str, where: str, fix: str) -> None:
    found = [problem for problem in problems(document) if problem.code == code and problem.where.endswith(where)]
    assert found, problems(document)
    assert fix in found[0].fix, found[0]
    assert found[0].source is not None and found[0].source.line > 1
    assert len(problems(document)) <= 2


def container(which: str = "containers", **resources: Any) -> dict[str, Any]:
    pod = {"containers": [], which: [{"name": "c", "resources": resources}]}
    return pods(podSets=[{"template": {"spec": pod}}])


def test_pods_are_not_asked_for_and_nothing_is_asked_for_below_zero() -> None:
    for which in ("containers", "initContainers"):
        (found,) = problems(container(which, requests={"pods": 1}))
        assert found.where == f"Workload/w spec.podSets[0].template.spec.{which}[0].resources.requests.pods"
        (found,) = problems(container(which, limits={"cpu": "-1"}))
        assert "below zero" in found.message


def test_a_workload_with_quota_has_an_assignment_for_each_pod_set() -> None:
    held = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2026-01-15T12:00:00Z",
    }
    (found,) = problems(workload(conditions=[held]))
    assert found.where.endswith("status.admission")
    assigned = {"name": "main", "count": 3, "resourceUsage": {"cpu": "1"}}
    admission = {"clusterQueue": "q", "podSetAssignments": [assigned]}
    (found,) = problems(workload(conditions=[held], admission=admission))
    assert "not a multiple of 3" in found.message
    admission = {"clusterQueue": "q", "podSetAssignments": [{"name": "other"}, {"name": "main"}]}
    assert len(problems(workload(conditions=[held], admission=admission))) == 2


@pytest.mark.parametrize(
    "gates", ["example.com", "example.com/a,,example.com/b", "example.com/a,example.com/a", "a/" + "b" * 62]
)
def test_gates_are_names_with_a_domain(gates: str) -> None:
    document = workload()
    document["metadata"]["annotations"] = {"kueue.x-k8s.io/admission-gated-by": gates}
    assert problems(document)[0].where == "Workload/w metadata.annotations.kueue.x-k8s.io/admission-gated-by"


def test_every_problem_of_a_file_is_in_one_error_with_its_line() -> None:
    text = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata:
  name: a
spec:
  queueingStrategy: FIFO
  preemption:
    reclaimWithinCohort: Never
    borrowWithinCohort:
      policy: LowerPriority
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata:
  name: a
spec:
  cluster_queue: a
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQeue
"""
    with pytest.raises(DocumentError) as wrong:
        load(text, "queues.yaml")
    found = [(p.code, p.source.line if p.source else 0, p.where, p.excerpt.strip()) for p in wrong.value.problems]
    assert sorted(found) == [
        ("P801", 20, "ClusterQeue kind", "kind: ClusterQeue"),
        ("P802", 6, "ClusterQueue/a spec.queueingStrategy", "queueingStrategy: FIFO"),
        ("P802", 17, "LocalQueue/a spec.cluster_queue", "cluster_queue: a"),
        ("P803", 10, "ClusterQueue/a spec.preemption.borrowWithinCohort.policy", "policy: LowerPriority"),
    ]
    fixes = " ".join(p.fix for p in wrong.value.problems)
    assert 'Did you mean "ClusterQueue"?' in fixes and 'Did you mean "clusterQueue"?' in fixes


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"apiVersion": "kueue.x-k8s.io/v1alpha2", "kind": "ClusterQueue"}, "no ClusterQueue that is known"),
        ({"apiVersion": "v1", "kind": "ClusterQueue"}, "no ClusterQueue that is known"),
        ({"kind": "ClusterQueue"}, "without apiVersion and kind"),
        ({"apiVersion": NEW, "kind": ["ClusterQueue"]}, "without apiVersion and kind"),
        (7, "without apiVersion and kind"),
    ],
)
def test_what_is_not_kueues_is_refused(document: Any, message: str) -> None:
    (found,) = problems(document)
    assert found.code == "P801" and message in found.message


def test_two_objects_of_one_name_are_refused() -> None:
    (found,) = problems(cluster_queue(), cluster_queue())
    assert (found.code, found.where) == ("P804", "ClusterQueue/q metadata.name")
    queues = [simple("LocalQueue", clusterQueue="q") for _ in range(3)]
    queues[1]["metadata"]["namespace"] = "other"
    queues[2]["metadata"]["namespace"] = "default"
    assert [p.code for p in problems(*queues)] == ["P804"]
    assert len(load(json.dumps(queues[:2]), "q")) == 2


def test_cohorts_in_a_circle_are_refused_once() -> None:
    above = {"a": "b", "b": "c", "c": "a", "d": "a", "e": "e", "f": "g"}
    cohorts = [{**simple("Cohort", parentName=up), "metadata": {"name": name}} for name, up in above.items()]
    found = problems(*cohorts)
    assert [p.code for p in found] == ["P805", "P805"]
    assert found[0].message.startswith("a is below b is below c is below a")


def test_nothing_may_be_wrong_with_what_is_absent() -> None:
    for kind in ("ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor"):
        for document in (simple(kind), {"apiVersion": NEW, "kind": kind, "metadata": {"name": "x"}, "spec": None}):
            assert len(load(json.dumps(document), "x")) == 1


def test_many_problems_are_told_up_to_a_point() -> None:
    assert len(problems(*({"apiVersion": NEW, "kind": "Cohort", "metadata": {"name": "X"}} for _ in range(100)))) == 50


def test_hostile_text_ends_in_one_error() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)
    )
    for text in (
        bomb,
        "[" * 100_000,
        "{" * 1000,
        "a: b: c",
        "\t",
        "\x00",
        '{"a": 1e400}',
        "!!python/object:os.system x",
    ):
        with pytest.raises(UserError):
            load(text, "x.yaml")


# -- an object in place of another ------------------------------------------------------------------------------------


def test_a_local_queue_leads_to_one_cluster_queue_for_good() -> None:
    old = LocalQueue(name="q", cluster_queue="a")
    assert changes(old, LocalQueue(name="q", cluster_queue="a", weight=2)) == []
    (found,) = changes(old, LocalQueue(name="q", cluster_queue="b"))
    assert (found.code, found.where) == ("P806", "LocalQueue/q spec.clusterQueue")


def test_a_workload_that_holds_quota_stays_as_it_is() -> None:
    podset = PodSet(count=3, requests={"cpu": 1})

    def make(**given: Any) -> Workload:
        return Workload(**{"name": "w", "queue": "a", "podsets": (podset,), **given})

    free, held = make(), make(admission=Admission("q", ()), admitted_at=1.0)
    for other in (
        make(queue="b"),
        make(podsets=(PodSet(count=4, requests={"cpu": 1}),)),
        make(podsets=(PodSet(count=3, requests={"cpu": 2}),)),
        make(podsets=()),
        make(priority_class="high"),
        make(max_seconds=3.0),
    ):
        assert changes(free, other) == []
        assert [found.code for found in changes(held, other)] == ["P806"]
    assert changes(held, make(podsets=(PodSet(count=2, requests={"cpu": 1}),))) == []
    assert [found.code for found in changes(free, make(gates=frozenset({"a/b"})))] == ["P806"]
    assert changes(make(gates=frozenset({"a/b"})), free) == []


# -- Kueue's own definitions ------------------------------------------------------------------------------------------


def test_the_shapes_are_those_of_the_definitions() -> None:
    import yaml

    if not DEFINITIONS.is_dir():
        pytest.skip(f"no definitions in {DEFINITIONS}: set PENSTOCK_KUEUE_CRDS to the folder of Kueue's")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    checked = 0
    for path in sorted(DEFINITIONS.glob("*.yaml")):
        definition = yaml.load(path.read_text(), loader)["spec"]
        for version in definition["versions"]:
            shape = SCHEMAS.get((f"{definition['group']}/{version['name']}", definition["names"]["kind"]))
            if shape is not None:
                checked += 1
                schema = version["schema"]["openAPIV3Schema"]
                schema["properties"].pop("metadata")
                found = ObjectField({k: v for k, v in shape.fields.items() if k != "metadata"}, shape.needed[1:])
                assert list(differences(found, schema, f"{path.stem}/{version['name']}")) == []
    assert checked == 14


def differences(shape: Field, schema: dict[str, Any], path: str) -> Iterator[str]:
    """The metadata of a pod may have more fields than the definitions have: Kueue drops them silently."""
    if isinstance(shape, AnyField) or path.endswith("template.metadata"):
        return
    kind = "quantity" if schema.get("x-kubernetes-int-or-string") else schema.get("type")
    kinds = {
        TextField: "string",
        IntegerField: "integer",
        BooleanField: "boolean",
        QuantityField: "quantity",
        TimeField: "string",
        ListField: "array",
    }
    if kinds.get(type(shape), "object") != kind:
        yield f"{path}: {shape} is not {kind}"
    elif isinstance(shape, TextField):
        most = shape.most or (shape.format.most if shape.format else None)
        if schema.get("maxLength", most) != most and not shape.words:
            yield f"{path}: at most {schema.get('maxLength')} characters"
        if set(schema.get("enum", shape.words)) != set(shape.words):
            yield f"{path}: {schema.get('enum')}"
        if ("pattern" in schema) and shape.format is None:
            yield f"{path}: {schema['pattern']}"
        if schema.get("minLength", 0) != shape.least and "pattern" not in schema:
            yield f"{path}: at least {schema.get('minLength')} characters"
    elif isinstance(shape, IntegerField):
        if schema.get("minimum", shape.least) != shape.least:
            yield f"{path}: at least {schema['minimum']}"
    elif isinstance(shape, ListField):
        if (schema.get("maxItems"), schema.get("minItems", 0)) != (shape.most, shape.least):
            yield f"{path}: {schema.get('minItems')} to {schema.get('maxItems')} items"
        if schema.get("x-kubernetes-list-map-keys", list(shape.unique)) != list(shape.unique):
            yield f"{path}: {schema['x-kubernetes-list-map-keys']}"
        yield from differences(shape.item, schema["items"], f"{path}[]")
    elif isinstance(shape, MapField):
        if schema.get("maxProperties") != shape.most:
            yield f"{path}: at most {schema.get('maxProperties')} entries"
        yield from differences(shape.value, schema["additionalProperties"], f"{path}.*")
    elif isinstance(shape, ObjectField):
        if {*shape.fields, *shape.unread} != set(schema["properties"]):
            yield f"{path}: {sorted({*shape.fields, *shape.unread} ^ set(schema['properties']))}"
        elif set(shape.needed) != set(schema.get("required", ())):
            yield f"{path}: needs {schema.get('required')}"
        for name in sorted(shape.fields.keys() & schema["properties"].keys()):
            yield from differences(shape.fields[name], schema["properties"][name], f"{path}.{name}")


# -- no input makes it stumble ----------------------------------------------------------------------------------------

STRANGE = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        2**70,
        0.5,
        float("inf"),
        "",
        "x",
        "∞",
        "1Gi",
        "-3",
        "a" * 400,
        [],
        {},
        [None],
        {"name": "x"},
        [[1]],
    ]
)


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    parts = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def changed(data: Any, path: tuple[Any, ...], value: Any, how: str) -> Any:
    whole = copy.deepcopy(data)
    if not path:
        return value
    at = whole
    for key in path[:-1]:
        at = at[key]
    if how == "remove":
        del at[path[-1]]
    elif how == "rename" and isinstance(at, dict):
        at[str(path[-1])[:-1] + "x"] = at.pop(path[-1])
    elif how == "twice" and isinstance(at, list):
        at.append(at[path[-1]])
    else:
        at[path[-1]] = value
    return whole


def sound() -> list[Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: list[Any] = [list(yaml.load_all(path.read_text(), loader)) for path in corpus()]
    condition = {
        "type": "Evicted",
        "status": "True",
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2026-01-15T12:00:00Z",
    }
    full = workload(conditions=[condition], requeueState={"count": 1}, reclaimablePods=[{"name": "main", "count": 1}])
    limits = {"type": "Container", "max": {"cpu": "4"}, "default": {"cpu": 1.5}}
    ranges = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "r", "namespace": "ns"},
        "spec": {"limits": [limits]},
    }
    found.append([full, ranges, cluster_queue(cohortName="c", fairSharing={"weight": "0.1"})])
    return found


SOUND = sound()


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_manifest_with_any_change_is_read_or_refused(data: st.DataObject) -> None:
    document = data.draw(st.sampled_from(SOUND))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(places(document))))
        how = data.draw(st.sampled_from(["set", "remove", "rename", "twice"]))
        document = changed(document, path, data.draw(STRANGE), how)
    try:
        read.manifest(json.dumps(document), "x.json")
    except DocumentError as wrong:
        assert all(problem.fix and problem.source for problem in wrong.problems)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_text_with_any_change_is_read_or_refused(data: st.DataObject) -> None:
    from tests.admission.manifests.test_read import QUEUES

    text = QUEUES
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 8)))
        text = (
            text[:start]
            + data.draw(st.text(st.sampled_from("{}[]:-#&*!|>'\"\\ \n\tax1é\x00"), max_size=4))
            + text[end:]
        )
    try:
        read.manifest(text, "x.yaml")
    except UserError as wrong:
        assert wrong.problems


def test_the_corpus_is_there_to_be_changed() -> None:
    if len(SOUND) == 1:
        pytest.skip(f"no manifests in {CORPUS}: set PENSTOCK_CORPUS to a folder with Kueue's examples in kueue/")
    assert all(isinstance(document, dict) for listed in SOUND for document in listed)
