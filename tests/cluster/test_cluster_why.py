"""`penstock why KIND/NAME` and `penstock queue --cluster` beside the real Kueue: the same causes, and the same amounts as in its messages."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.cli.main import run
from penstock.controller.inspect.kinds import target_of
from penstock.controller.inspect.kubectl import KubectlLookup
from penstock.controller.inspect.why import why
from penstock.graph import quantity
from testbed.instance import Testbed
from tests.cluster.kueue_protocol import KUEUE, PLAIN, QUEUE, Desk, owner, pod_set, stated
from tests.cluster.support import condition, fresh_namespace, is_true

Object = dict[str, Any]
_SHORT = re.compile(r"insufficient unused quota for (\S+) in flavor (\S+), (\S+) more needed")
_MOST = re.compile(
    r"for (\S+) in flavor (\S+), previously considered podsets requests \((\S+)\) \+ "
    r"current podset request \((\S+)\) > maximum capacity \((\S+)\)"
)


class Asked(NamedTuple):
    text: str
    data: Any


@pytest.fixture
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed(*PLAIN)


@pytest.fixture
def desk(bed: Testbed) -> Desk:
    return Desk(bed)


@pytest.fixture
def penstock(bed: Testbed, capsys: pytest.CaptureFixture[str]) -> Callable[..., Asked]:
    """Both outputs of a command line."""

    def call(*words: str, code: int = 0) -> Asked:
        found = []
        for output in ("table", "json"):
            assert run([*words, "--kubeconfig", str(bed.kubeconfig), "-o", output]) == code
            said = capsys.readouterr()
            assert "Traceback" not in said.err
            found.append(said.err if code else said.out)
        return Asked(found[0], None if code else json.loads(found[1]))

    return call


def job(desk: Desk, name: str, cpu: str = "1", count: int = 1, queue: str = "main", **labels: str) -> Object:
    spec = {
        "suspend": True,
        "parallelism": count,
        "completions": count,
        "template": {
            "metadata": {"annotations": {"testbed.penstock/run-time": "forever"}},
            "spec": pod_set(cpu=cpu)["template"]["spec"],
        },
    }
    meta = {"name": name, "labels": {QUEUE: queue, **labels}}
    return desk.send("POST", desk.jobs(), {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})


def workload_of(desk: Desk, job: str, test: Callable[[Object], bool]) -> Object:
    """The Workload that Kueue has made for a Job, when it is so far."""

    def look() -> Object | None:
        for one in desk.read(desk.path("workloads"))["items"]:
            if any(each["name"] == job for each in one["metadata"].get("ownerReferences", [])) and test(one):
                return one
        return None

    return desk.bed.wait(look, f"the Workload of {job}")


def admitted(one: Object) -> bool:
    return is_true(one, "Admitted")


def refused(one: Object) -> bool:
    return condition(one, "QuotaReserved").get("status") == "False" and bool(condition(one, "QuotaReserved")["message"])


def only(found: Asked) -> Object:
    (one,) = found.data["workloads"]
    return one


def agrees(one: Object) -> None:
    """Where Kueue gives figures, ours are the same."""
    message = one["kueue"]["message"]
    ours = {(each["kind"], each["resource"], each["flavor"]): each for each in one["reason"].get("short", ())}
    told: dict[tuple[str, str, str], tuple[Fraction, ...]] = {}
    for resource, flavor, missing in _SHORT.findall(message):
        told.setdefault(("quota", resource, flavor), (quantity.exact(missing),))
    for resource, flavor, before, asked, most in _MOST.findall(message):
        asks = quantity.exact(before) + quantity.exact(asked)
        told.setdefault(("exceedsMax", resource, flavor), (asks, quantity.exact(most)))
    for key, figures in told.items():  # of several pod sets that are short of the same, the first
        asked, available, most = (quantity.exact(ours[key][name]) for name in ("asked", "available", "most"))
        assert figures == ((asked - available,) if key[0] == "quota" else (asked, most)), (message, ours[key])
    assert _SHORT.search(message) or _MOST.search(message), message


def test_a_job_waits_behind_another_and_both_are_named(desk: Desk, penstock: Callable[..., Asked]) -> None:
    full = desk.queue(cpu="4")
    job(desk, "first", "1500m", 2)
    workload_of(desk, "first", admitted)
    job(desk, "second", "1250m", 2)
    workload_of(desk, "second", refused)
    desk.next_second()
    job(desk, "third", "2", 1)
    workload_of(desk, "third", refused)
    found = penstock("why", "job/second", "-n", desk.namespace)
    one = only(found)
    agrees(one)
    assert one["state"] == "waiting" and one["reason"]["why"] == "quota" and one["asks"] == {"cpu": "2500m"}
    assert f"cpu of flavor {full}: 2.5 asked, 1 free, 4 at most" in found.text
    assert "job/first has 3 cpu" in found.text and "it can start when job/first ends or releases quota" in found.text
    found = penstock("why", "job/third", "-n", desk.namespace)
    agrees(only(found))
    assert "2nd in the queue, behind job/second" in found.text
    found = penstock("why", "job/first", "-n", desk.namespace)
    assert only(found)["state"] == "admitted" and only(found)["held"] == {full: {"cpu": "3"}}
    assert f"by ClusterQueue {full}: it holds 3 cpu" in found.text
    shown = penstock("queue", "show", "main", "-n", desk.namespace)
    assert shown.data["pending"] == 2 and shown.data["admitted"] == 1
    assert [each["run"] for each in shown.data["waiting"]] == ["job/second", "job/third"]
    assert {each["resource"]: each["used"] for each in shown.data["quota"]} == {"cpu": desk.used()}
    listed = {each["queue"]: each for each in penstock("queue", "ls").data}
    assert listed[full]["pending"] == 2 and listed[full]["quota"][0]["free"] == "1"


def test_for_any_mix_of_flavors_resources_and_pod_sets_the_amounts_are_kueues(desk: Desk, bed: Testbed) -> None:
    """Each is compared as soon as Kueue has looked at it, so that its message is of this moment. Several pod sets only where there is one
    flavor: among several, Kueue's search may go round in a circle, and nobody behind is looked at."""
    chance = random.Random(7)
    names = [f"{desk.namespace}-{name}" for name in ("spot", "big")]
    api = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    for name in names:
        bed.raw("POST", f"{KUEUE}/resourceflavors", api | {"kind": "ResourceFlavor", "metadata": {"name": name}})
    for queue, cpu in (("a", 6), ("b", 5)):
        flavors = [
            {
                "name": name,
                "resources": [_quota("cpu", cpu + more, 4), _quota("memory", f"{(cpu + more) * 2}Gi", "8Gi")],
            }
            for name, more in list(zip(names, (0, 3), strict=True))[: 2 if queue == "a" else 1]
        ]
        spec = {"namespaceSelector": {}, "cohortName": desk.namespace}
        spec |= {"resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]}
        meta = {"name": f"{desk.namespace}-{queue}"}
        bed.raw("POST", f"{KUEUE}/clusterqueues", api | {"kind": "ClusterQueue", "metadata": meta, "spec": spec})
        lead = {"kind": "LocalQueue", "metadata": {"name": queue}, "spec": {"clusterQueue": meta["name"]}}
        bed.raw("POST", desk.path("localqueues"), api | lead)
    lookup, waited = KubectlLookup(kubeconfig=str(bed.kubeconfig)), 0
    for number in range(24):
        name, queue = f"w{number}", chance.choice("ab")
        several = chance.randint(1, 2) if queue == "b" else 1
        sets = [pod_set(f"p{each}", chance.randint(1, 3), template=_template(chance)) for each in range(several)]
        desk.workload(name, queue=queue, podSets=sets)
        seen = desk.until(name, lambda one: admitted(one) or refused(one), "is decided", 60)
        if admitted(seen):
            continue
        (found,) = why(lookup, target_of(f"workload/{name}"), desk.namespace, time.time()).parts
        agrees(found.as_data())
        waited += 1
    assert waited >= 8


def _quota(name: str, nominal: object, borrowing: object) -> Object:
    return {"name": name, "nominalQuota": str(nominal), "borrowingLimit": str(borrowing)}


def _template(chance: random.Random) -> Object:
    requests = {"cpu": f"{chance.randint(300, 4000)}m", "memory": f"{chance.randint(200, 8000)}Mi"}
    container = {"name": "main", "image": "x", "resources": {"requests": requests}}
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


def test_pods_that_find_no_node_are_named(desk: Desk, penstock: Callable[..., Asked]) -> None:
    desk.queue(cpu="2000")
    job(desk, "huge", "1500")
    workload_of(desk, "huge", admitted)
    desk.bed.wait(
        lambda: any(
            condition(pod, "PodScheduled").get("reason") == "Unschedulable"
            for pod in desk.read(desk.path("pods", api="/api/v1"))["items"]
        ),
        "a pod without a node",
    )
    found = penstock("why", "job/huge", "-n", desk.namespace)
    assert "pods     0 of 1 run" in found.text and "no node for it: " in found.text


def test_what_never_fits_what_is_not_covered_and_a_queue_that_is_missing(
    desk: Desk, penstock: Callable[..., Asked]
) -> None:
    full = desk.queue(cpu="4")
    job(desk, "big", "3", 2)
    workload_of(desk, "big", refused)
    found = penstock("why", "job/big", "-n", desk.namespace)
    agrees(only(found))
    assert only(found)["reason"]["why"] == "never" and f"kubectl edit clusterqueue {full}" in found.text
    desk.workload("gpu", podSets=[pod_set(template={"spec": _with_gpu()})])
    desk.until("gpu", refused, "is refused")
    one = only(penstock("why", "workload/gpu", "-n", desk.namespace))
    assert one["reason"]["why"] == "no flavor" and one["reason"]["short"][0]["resource"] == "nvidia.com/gpu"
    assert "nvidia.com/gpu" in one["kueue"]["message"]
    job(desk, "lost", queue="mian")
    workload_of(desk, "lost", refused)
    found = penstock("why", "job/lost", "-n", desk.namespace)
    assert only(found)["reason"]["why"] == "no queue" and "doesn't exist" in only(found)["kueue"]["message"]
    assert f'there is no LocalQueue {desk.namespace}/mian. Did you mean "main"?' in found.text


def _with_gpu() -> Object:
    requests = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    return {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "resources": requests}]}


def test_a_queue_that_is_stopped_or_inactive(desk: Desk, penstock: Callable[..., Asked]) -> None:
    full = desk.queue(cpu="4")
    desk.stop_queue("Hold")
    desk.workload("held")
    desk.until_pending("held", "Inadmissible")
    found = penstock("why", "workload/held", "-n", desk.namespace)
    assert only(found)["reason"]["why"] == "stopped" and "inactive" in only(found)["kueue"]["message"]
    assert f"kubectl patch clusterqueue {full} --type merge" in found.text
    assert {each["queue"]: each for each in penstock("queue", "ls").data}[full]["state"] == "holding"
    desk.stop_queue("None")
    desk.until_running("held")
    desk.stop_queue("Hold", local=True)
    desk.workload("local")
    desk.until_pending("local", "Inadmissible")
    assert only(penstock("why", "workload/local", "-n", desk.namespace))["reason"]["why"] == "stopped"


def test_a_queue_that_names_a_flavor_that_is_missing(desk: Desk, bed: Testbed, penstock: Callable[..., Asked]) -> None:
    name = f"{desk.namespace}-broken"
    flavor = {"name": f"{name}-none", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]}
    api = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    bed.raw("POST", f"{KUEUE}/clusterqueues", api | {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec})
    lead = {"kind": "LocalQueue", "metadata": {"name": "main"}, "spec": {"clusterQueue": name}}
    bed.raw("POST", desk.path("localqueues"), api | lead)
    desk.workload("stuck")
    desk.until("stuck", refused, "is refused")
    found = penstock("why", "workload/stuck", "-n", desk.namespace)
    assert only(found)["reason"]["why"] == "inactive queue" and "inactive" in only(found)["kueue"]["message"]
    assert f"flavor {name}-none not found" in found.text


def test_what_the_cohort_lends_is_held_by_a_queue_of_another_namespace(
    desk: Desk, bed: Testbed, penstock: Callable[..., Asked]
) -> None:
    cohort = desk.namespace
    flavor = desk.queue(cpu="2", cohortName=cohort)
    other = Desk(bed, fresh_namespace(bed))
    resources = [{"name": "cpu", "nominalQuota": "3"}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": resources}]}
    queue = {"namespaceSelector": {}, "cohortName": cohort, "resourceGroups": [group]}
    api = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    bed.raw(
        "POST",
        f"{KUEUE}/clusterqueues",
        api | {"kind": "ClusterQueue", "metadata": {"name": other.namespace}, "spec": queue},
    )
    lead = {"kind": "LocalQueue", "metadata": {"name": "main"}, "spec": {"clusterQueue": other.namespace}}
    bed.raw("POST", other.path("localqueues"), api | lead)
    other.workload("borrower", cpu="4")
    other.until_running("borrower")
    desk.workload("owner", cpu="2")
    desk.until("owner", refused, "is refused")
    found = penstock("why", "workload/owner", "-n", desk.namespace)
    agrees(only(found))
    assert only(found)["reason"]["rule"] == f"quota of cohort {cohort}"
    assert f"{other.namespace}/workload/borrower has 4 cpu" in found.text
    listed = {each["queue"]: each for each in penstock("queue", "ls").data}
    assert listed[other.namespace]["quota"][0]["borrowed"] == "1"


def test_those_that_are_preempted_for_it_are_waited_for(desk: Desk, penstock: Callable[..., Asked]) -> None:
    desk.queue(cpu="4", preemption={"withinClusterQueue": "LowerPriority"})
    desk.workload("low", cpu="3")
    desk.until_running("low")
    desk.workload("high", cpu="2", priority=10)
    desk.until_evicted("low", "Preempted")
    desk.until("high", lambda seen: "preemption" in condition(seen, "QuotaReserved").get("message", ""), "waits")
    found = penstock("why", "workload/high", "-n", desk.namespace)
    one = only(found)
    agrees(one)
    assert one["reason"]["why"] == "preempting" and one["reason"]["waits_for"] == [f"{desk.namespace}/low"]
    assert "it starts when workload/low has stopped" in found.text
    found = penstock("why", "workload/low", "-n", desk.namespace)
    one = only(found)
    assert one["state"] == "leaving" and one["evicted"]["reason"] == "InClusterQueue"
    assert one["evicted"]["by"] == "workload/high" and "preempted by workload/high" in found.text
    desk.answer("low")
    desk.until_running("high")
    desk.until("low", refused, "waits again")
    found = penstock("why", "workload/low", "-n", desk.namespace)
    assert only(found)["state"] == "waiting" and "workload/high has 2 cpu" in found.text
    assert "earlier  it was stopped at" in found.text


def test_an_admission_check_that_is_open(desk: Desk, bed: Testbed, penstock: Callable[..., Asked]) -> None:
    name = f"{desk.namespace}-check"
    check = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": name}}
    bed.raw("POST", f"{KUEUE}/admissionchecks", check | {"spec": {"controllerName": "example.com/tests"}})
    active = {"status": {"conditions": [stated("Active", True, "Active")]}}
    bed.raw("PATCH", f"{KUEUE}/admissionchecks/{name}/status", active, "application/merge-patch+json")
    desk.queue(cpu="4", admissionChecksStrategy={"admissionChecks": [{"name": name}]})
    desk.workload("checked")
    desk.until("checked", lambda seen: seen.get("status", {}).get("admissionChecks"), "has its check")
    found = penstock("why", "workload/checked", "-n", desk.namespace)
    one = only(found)
    assert one["state"] == "checks" and one["reason"]["why"] == "checks" and name in one["reason"]["detail"]
    assert f"admission check {name}: Pending" in found.text and "holds    1 cpu of flavor" in found.text


def test_what_is_switched_off_keeps_a_place_or_says_how_it_is_switched_on(
    desk: Desk, penstock: Callable[..., Asked]
) -> None:
    desk.queue(cpu="4")
    desk.workload("off", active=False)
    desk.workload("ahead", active=False, labels={"penstock/place": "true"})
    desk.until("off", lambda seen: is_true(seen, "Evicted"), "is switched off")
    found = penstock("why", "workload/off", "-n", desk.namespace)
    assert only(found)["reason"]["why"] == "deactivated" and '"active":true' in found.text
    found = penstock("why", "workload/ahead", "-n", desk.namespace)
    assert only(found)["state"] == "ahead" and "keeps its place in queue" in found.text
    assert penstock("queue", "show", "main", "-n", desk.namespace).data["gated"] == 1


def test_a_job_of_a_jobset_is_part_of_it(desk: Desk, penstock: Callable[..., Asked]) -> None:
    desk.queue(cpu="1")
    template = {"spec": {"parallelism": 1, "completions": 1, "template": pod_set(cpu="2")["template"]}}
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "labels": {QUEUE: "main"}},
        "spec": {"replicatedJobs": [{"name": "a", "replicas": 1, "template": template}], "suspend": True},
    }
    desk.send("POST", desk.path("jobsets", api="/apis/jobset.x-k8s.io/v1alpha2"), jobset)
    workload_of(desk, "set", refused)
    desk.bed.wait(lambda: desk.bed.found(desk.jobs("set-a-0")), "the Job of the JobSet")
    found = penstock("why", "job/set-a-0", "-n", desk.namespace)
    assert found.data["part_of"] == "jobset/set" and only(found)["of"] == "jobset/set"
    agrees(only(found))


def test_a_workflow_of_argo_by_its_stages_and_without_a_controller(
    testbed: Callable[..., Testbed], capsys: pytest.CaptureFixture[str]
) -> None:
    bed = testbed("kueue", "kwok", "argo")
    desk = Desk(bed)
    desk.queue(cpu="2")
    pod = {"name": "main", "container": {"image": "x", "command": ["true"]}}
    meta = {"name": "nightly", "labels": {QUEUE: "main"}}
    flow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta}
    flow |= {"spec": {"entrypoint": "main", "suspend": True, "templates": [pod]}}
    made = desk.send("POST", desk.path("workflows", api="/apis/argoproj.io/v1alpha1"), flow)
    words = ["why", "workflow/nightly", "-n", desk.namespace, "--kubeconfig", str(bed.kubeconfig)]
    assert run(words) == 0
    assert "Penstock's controller is not in this cluster" in capsys.readouterr().out
    labels = {"penstock/workflow-uid": made["metadata"]["uid"], "penstock/stage": "train"}
    desk.workload("stage", cpu="3", labels=labels, owners=[owner(made)])
    desk.until("stage", refused, "is refused")
    assert run(words) == 0
    told = capsys.readouterr().out
    assert (
        "workflow/nightly/train has waited for" in told
        and "it asks for 3 cpu, and the queue can have 2 at most" in told
    )


def test_as_a_plugin_of_the_real_kubectl(desk: Desk, bed: Testbed) -> None:
    full = desk.queue(cpu="3")
    job(desk, "plugged", "2")
    workload_of(desk, "plugged", admitted)
    environ = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "KUBECONFIG": str(bed.kubeconfig),
    }

    def call(*words: str) -> str:
        return subprocess.run(
            ["kubectl", "penstock", *words], env=environ, capture_output=True, text=True, check=True
        ).stdout

    assert f"by ClusterQueue {full}: it holds 2 cpu" in call("why", "job/plugged", "-n", desk.namespace)
    assert f"{full}\tBestEffortFIFO" in call("queue", "ls").replace("\t\t", "\t")


def test_errors_name_the_rights_and_the_objects(
    desk: Desk, bed: Testbed, penstock: Callable[..., Asked], capsys: Any
) -> None:
    desk.queue()
    job(desk, "here")
    workload_of(desk, "here", admitted)
    assert 'Did you mean "here"?' in penstock("why", "job/her", "-n", desk.namespace, code=4).text
    assert (
        "this cluster has no workflows of argoproj.io/v1alpha1"
        in penstock("why", "workflow/x", "-n", desk.namespace, code=4).text
    )
    nobody = bed.kubeconfig_for("ana")
    assert run(["queue", "ls", "--kubeconfig", str(nobody)]) == 2
    told = capsys.readouterr().err
    assert "P891" in told and "ana may not list" in told and "clusterqueues.kueue.x-k8s.io" in told
    rules = [{"apiGroups": ["*"], "resources": ["jobs", "workloads", "localqueues"], "verbs": ["get", "list"]}]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "ana"}, "rules": rules}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    desk.send("POST", desk.path("roles", api=rbac), role)
    bound = {"subjects": [{"kind": "User", "name": "ana"}], "roleRef": {"kind": "Role", "name": "ana"}}
    desk.send(
        "POST",
        desk.path("rolebindings", api=rbac),
        {name: role[name] for name in ("apiVersion", "metadata")} | {"kind": "RoleBinding"} | bound,
    )
    job(desk, "big", "99")
    message = condition(workload_of(desk, "big", refused), "QuotaReserved")["message"]
    assert run(["why", "job/big", "-n", desk.namespace, "--kubeconfig", str(nobody)]) == 0
    said = capsys.readouterr()
    assert "warning[P891]" in said.err and message in said.out and "you may not see" in said.out
    assert run(["queue", "ls", "--kubeconfig", str(bed.kubeconfig), "--context", "none"]) == 2
    assert "P890" in capsys.readouterr().err
