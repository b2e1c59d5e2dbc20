"""Which pods each kind makes: how many, how many must be there in the beginning, and what each asks for."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import DocumentError, UserError
from penstock.formats.documents import Document, Library
from penstock.graph.quantity import parse
from penstock.scheduling import registry
from penstock.scheduling.apply import ScheduleOptions, schedule_one
from penstock.scheduling.kinds.spark import java_size
from penstock.scheduling.kinds.table import KINDS
from penstock.scheduling.kueue import shortfalls
from penstock.scheduling.model import Gang, JobObject, Role
from penstock.scheduling.objects import job_object, pod_sets
from penstock.scheduling.operators import Refused, differences, theirs
from penstock.scheduling.task_groups import members_of
from tests.scheduling.samples import (
    Data,
    cluster,
    dask,
    document,
    every_kind,
    job,
    jobset,
    lws,
    places,
    pod,
    ray_cluster,
    ray_job,
    replicas,
    runtime,
    spark,
    train_job,
    worker,
    wrapper,
)


def read(found: Document, *beside: Document) -> JobObject:
    job = job_object(found, Library((found, *beside)))
    assert job is not None
    return job


def roles(found: Document, *beside: Document) -> dict[str, Role]:
    return {one.name: one for one in read(found, *beside).roles}


def sets(found: Document) -> dict[str, int]:
    return {one.name: one.count for one in pod_sets(found)}


def members(found: Document, *beside: Document) -> dict[str, int]:
    return {one.name: one.members for one in read(found, *beside).roles}


def test_every_row_of_the_table_reads_a_sample() -> None:
    seen = {(one.group, one.kind) for one in every_kind()}
    assert set(KINDS) - seen == {("argoproj.io", "WorkflowTemplate"), ("argoproj.io", "ClusterWorkflowTemplate")}
    for one in every_kind():
        assert read(one, runtime()).roles, one.kind


# -- Kubernetes -------------------------------------------------------------------------------------------------------


def test_a_job_has_never_more_pods_than_completions() -> None:
    assert sets(job(parallelism=5, completions=2)) == {"main": 2}
    assert sets(document("batch/v1", "Job", {"template": pod()})) == {"main": 1}
    elastic = job(parallelism=5, completions=9)
    elastic.data["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "2"}
    (one,) = pod_sets(elastic)
    assert (one.count, one.least) == (5, 2) and members(elastic) == {"main": 2}


def test_a_jobset_multiplies_and_waits_for_what_it_depends_on() -> None:
    assert sets(jobset()) == {"driver": 1, "workers": 6}
    late = jobset()
    late.spec["replicatedJobs"][1]["dependsOn"] = [{"name": "driver", "status": "Complete"}]
    assert members(late) == {"driver": 1, "workers": 0} and sets(late) == {"driver": 1, "workers": 6}
    late.spec["replicatedJobs"][1]["dependsOn"][0]["status"] = "Ready"
    assert members(late) == {"driver": 1, "workers": 6}


def test_a_leader_worker_set_has_a_leader_and_workers_in_each_group() -> None:
    assert members(lws()) == {"leader": 2, "worker": 4}
    assert members(lws(leaderTemplate=None)) == {"main": 6}
    assert "each of the 2 groups" in read(lws()).notes[0][1]


def test_pods_that_serve_are_no_gang() -> None:
    found = document("apps/v1", "Deployment", {"replicas": 3, "template": pod()})
    assert members(found) == {"main": 0} and sets(found) == {"main": 3}


# -- Ray --------------------------------------------------------------------------------------------------------------


def test_a_gang_of_ray_is_the_head_and_the_minimum_of_each_group() -> None:
    found = ray_cluster(
        worker("a", replicas=3, minReplicas=1, numOfHosts=4), worker("b", suspend=True), worker("c", minReplicas=0)
    )
    assert members(found) == {"head": 1, "a": 4, "b": 0, "c": 0}
    assert sets(found) == {"head": 1, "a": 12, "b": 2, "c": 2}  # Kueue counts replicas, suspended or not
    assert {name: one.count for name, one in roles(found).items()} == {"head": 1, "a": 12, "b": 0, "c": 2}
    assert "suspended" in read(found).notes[0][1]


def test_what_kuberay_adds_counts() -> None:
    head = roles(ray_cluster(enableInTreeAutoscaling=True))["head"]
    assert dict(head.requests) == {"cpu": 1500, "memory": parse("2560Mi")} and "autoscaler" in head.added[0]
    own = {"resources": {"requests": {"cpu": "200m"}, "limits": {"memory": "256Mi"}}}
    head = roles(ray_cluster(enableInTreeAutoscaling=True, autoscalerOptions=own))["head"]
    assert dict(head.requests) == {"cpu": 1200, "memory": parse("2304Mi")}
    small = roles(ray_cluster(worker(template=pod(cpu="100m", memory="64Mi"))))["w"]
    assert dict(small.requests) == {"cpu": 200, "memory": parse("256Mi")}  # the init container is larger


def test_the_submitter_of_a_ray_job_depends_on_the_mode() -> None:
    assert sets(ray_job()) == {"head": 1, "w": 2, "submitter": 1}
    assert members(ray_job())["submitter"] == 0
    assert sets(ray_job(submissionMode="HTTPMode")) == {"head": 1, "w": 2}
    head = pod_sets(ray_job(submissionMode="SidecarMode"))[0]
    assert dict(head.requests) == {"cpu": 1500, "memory": parse("2248Mi")}
    own = pod_sets(ray_job(submitterPodTemplate=pod(cpu="250m", memory="128Mi")))[-1]
    assert dict(own.requests) == {"cpu": 250, "memory": parse("128Mi")}


@pytest.mark.parametrize("how", ["options", "annotation"])
def test_with_fault_tolerance_kueue_counts_the_job_that_cleans_up(how: str) -> None:
    small = {"headGroupSpec": {"template": pod(cpu="100m", memory="1Gi")}}
    more = {"gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}} if how == "options" else {}
    found = ray_cluster(
        **{**cluster(), **small, **more}, metadata={"annotations": {"ray.io/ft-enabled": "True"}} if not more else {}
    )
    assert dict(pod_sets(found)[0].requests) == {"cpu": 200, "memory": parse("1Gi")}
    assert dict(roles(found)["head"].requests) == {"cpu": 100, "memory": parse("1Gi")}


# -- Spark ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "more", "mebibytes"),
    [
        ("512m", {}, 896),
        ("1g", {}, 1408),
        ("4g", {"memoryOverheadFactor": "0.25"}, 5120),
        ("8g", {"type": "Python"}, 11468),
        ("1024", {}, 1408),  # a bare number is MiB
        ("4g", {"sparkConf": {"spark.kubernetes.memoryOverheadFactor": "0.25"}}, 5120),
    ],
)
def test_the_memory_of_a_driver_by_sparks_arithmetic(memory: str, more: Data, mebibytes: int) -> None:
    found = roles(spark({"memory": memory}, **more))["driver"]
    assert dict(found.requests) == {"cpu": 1000, "memory": parse(f"{mebibytes}Mi")}


def test_executors_have_memory_outside_of_the_heap_and_for_python() -> None:
    conf = {
        "spark.executor.pyspark.memory": "512",
        "spark.memory.offHeap.enabled": "true",
        "spark.memory.offHeap.size": "1g",
    }
    found = roles(spark(executor={"memory": "4096m", "memoryOverhead": "1200m"}, type="Python", sparkConf=conf))
    assert found["executor"].requests["memory"] == parse(f"{4096 + 1200 + 512 + 1024}Mi")
    assert found["driver"].requests["memory"] == parse("1433Mi")


def test_the_executors_are_those_of_the_beginning() -> None:
    dynamic = {"dynamicAllocation": {"enabled": True, "initialExecutors": 4, "minExecutors": 3}}
    assert members(spark(**dynamic)) == {"driver": 1, "executor": 4}
    assert members(spark(executor={"instances": 6}, **dynamic)) == {"driver": 1, "executor": 6}
    assert members(spark(executor={"instances": 0})) == {"driver": 1, "executor": 0}
    assert members(spark(executor={"instances": None})) == {"driver": 1, "executor": 1}


def test_sidecars_and_gpus_of_spark_count_and_its_pod_template_does_not_size_the_main_container() -> None:
    beside = {"name": "proxy", "resources": {"requests": {"cpu": "250m"}}}
    template = pod(cpu="64")
    template["spec"]["containers"][0]["name"] = "spark-kubernetes-driver"
    template["spec"]["containers"].append({"name": "log", "resources": {"requests": {"cpu": "50m"}}})
    driver = {"sidecars": [beside], "gpu": {"name": "nvidia.com/gpu", "quantity": 2}, "template": template}
    found = roles(spark(driver))["driver"]
    assert dict(found.requests) == {"cpu": 1300, "memory": parse("1408Mi"), "nvidia.com/gpu": 2000}


def test_where_kueue_counts_too_little_of_spark_it_is_said_with_the_figure() -> None:
    found = read(spark())
    driver, _ = found.pod_sets
    assert driver.as_kueue == (1, {"memory": parse("1Gi")}) and driver.requests["memory"] == parse("1408Mi")
    (said, *_) = [said for _, said, _ in shortfalls(found)]
    assert said == "Kueue counts 1Gi memory for each driver, and the pod asks for 1 cpu, 1.4Gi memory"


def test_where_sparks_operator_reads_less_than_spark_its_groups_are_smaller_and_it_is_said() -> None:
    conf = {"spark.driver.memoryOverhead": "1g", "spark.kubernetes.memoryOverheadFactor": "0.5"}
    found = read(spark({"memory": "4g"}, {"memory": "4g"}, sparkConf=conf))
    driver, executor = theirs(found)
    assert driver.requests["memory"] == executor.requests["memory"] == parse("4505Mi")
    assert [one.requests["memory"] for one in found.roles] == [parse("5Gi"), parse("6Gi")]
    said = differences(found, Gang(members_of(found)))
    assert any("spark-driver asks for 5Gi memory, not 4.4Gi" in one for one in said)
    bare = read(spark({"memory": "1024"}))
    with pytest.raises(Refused, match="1024 has no unit"):
        theirs(bare)
    assert differences(bare, Gang(members_of(bare)))[0].startswith("it would write nothing")


@pytest.mark.parametrize(
    ("executor", "more", "count"),
    [
        ({"instances": None}, {}, 1),
        ({"instances": None}, {"sparkConf": {"spark.executor.instances": "3"}}, 2),
        ({"instances": 5}, {"dynamicAllocation": {"enabled": True, "initialExecutors": 3, "minExecutors": 1}}, 5),
        ({"instances": None}, {"dynamicAllocation": {"enabled": True, "initialExecutors": 3, "minExecutors": 4}}, 4),
        ({"instances": 5}, {"dynamicAllocation": {"enabled": False, "initialExecutors": 9}}, 5),
    ],
)
def test_the_executors_that_sparks_operator_waits_for(executor: Data, more: Data, count: int) -> None:
    assert theirs(read(spark(executor=executor, **more)))[1].members == count


def test_off_heap_memory_without_a_unit_is_bytes() -> None:
    conf = {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": str(2**30)}
    assert roles(spark(sparkConf=conf))["executor"].requests["memory"] == parse("2432Mi")


@given(st.integers(0, 10**9), st.sampled_from("bkmgt"), st.sampled_from(["", "b"]), st.booleans())
def test_sizes_of_java(number: int, unit: str, tail: str, upper: bool) -> None:
    text = f"{number}{unit}{tail if unit != 'b' else ''}"
    assert java_size(text.upper() if upper else text) == number * 1024 ** "bkmgt".index(unit)


@pytest.mark.parametrize("text", ["1.5g", "4Gi", "", "g", "-1g", "1 g", "४g", "1x"])
def test_sizes_that_spark_does_not_read(text: str) -> None:
    with pytest.raises(ValueError, match="no size of Spark"):
        java_size(text)


# -- Kubeflow, Dask ---------------------------------------------------------------------------------------------------


def test_roles_of_kubeflow_are_in_kueues_order_and_elastic_workers_have_a_minimum() -> None:
    found = document("kubeflow.org/v1", "TFJob", replicas("tfReplicaSpecs", Worker=3, Evaluator=1, PS=2, Chief=1))
    assert list(sets(found)) == ["chief", "ps", "worker", "evaluator"]
    torch = document(
        "kubeflow.org/v1",
        "PyTorchJob",
        {**replicas("pytorchReplicaSpecs", Worker=4), "elasticPolicy": {"minReplicas": 2}},
    )
    assert members(torch) == {"worker": 2} and sets(torch) == {"worker": 4}
    mpi = document("kubeflow.org/v2beta1", "MPIJob", replicas("mpiReplicaSpecs", Worker=2, Launcher=1))
    assert members(mpi) == {"launcher": 1, "worker": 2}
    mpi.spec["launcherCreationPolicy"] = "WaitForWorkersReady"  # type: ignore[index]
    assert members(mpi) == {"launcher": 0, "worker": 2}


def test_a_train_job_is_read_with_its_runtime() -> None:
    found = roles(train_job(), runtime())
    assert (found["node"].count, dict(found["node"].requests)) == (4, {"cpu": 2000, "memory": parse("4Gi")})
    assert members(train_job(), runtime()) == {"dataset-initializer": 1, "node": 0}  # it begins when the data is there
    alone = read(train_job())
    assert alone.unknown and "ClusterTrainingRuntime 'torch' is not among these documents" in alone.unknown
    with pytest.raises(DocumentError, match="is not among these documents"):
        pod_sets(train_job())


def test_a_gang_of_dask_does_not_wait_for_the_runner() -> None:
    found = document(
        "kubernetes.dask.org/v1", "DaskJob", {"job": {"spec": pod()["spec"]}, "cluster": {"spec": dask().spec}}
    )
    assert members(found) == {"scheduler": 1, "worker": 3, "job": 0}


# -- AppWrapper -------------------------------------------------------------------------------------------------------


def test_an_app_wrapper_is_read_through_and_counted_as_it_declares() -> None:
    inner = dict(ray_job(cluster(worker(numOfHosts=4))).data)
    found = wrapper({"template": inner}, {"template": dict(job().data)})
    assert sets(found) == {"one-0": 1, "one-1": 2, "one-2": 3}  # without hosts and submitter, as its controller infers
    assert members(found) == {"head": 1, "w": 8, "submitter": 0, "main-1": 3}
    assert any(
        "Kueue counts 3 pods of this RayJob in an AppWrapper, and it makes 10" in said
        for _, said, _ in read(found).notes
    )
    other = {"apiVersion": "example.com/v1", "kind": "Thing", "spec": {"parts": [{"template": pod()}]}}
    declared = wrapper({"template": other, "podSets": [{"path": "template.spec.parts[0].template", "replicas": 5}]})
    assert sets(declared) == {"one-0": 5} and members(declared) == {"pods-0-0": 5}


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "where", "said"),
    [
        (job(parallelism="two"), "spec.parallelism", "a count of pods is a whole number"),
        (job(parallelism=-1), "spec.parallelism", "a count of pods"),
        (job(template=pod(cpu="much")), "requests.cpu", "not a quantity"),
        (job(template=pod(cpu="-1")), "requests.cpu", "less than nothing"),
        (job(template=None), "spec.template", "is missing"),
        (ray_job(spec={}, submissionMode="Http"), "spec.submissionMode", "no submissionMode"),
        (
            document("ray.io/v1", "RayJob", {"clusterSelector": {"a": "b"}}),
            "spec.rayClusterSpec",
            "no cluster of its own",
        ),
        (ray_cluster(worker("a"), worker("A")), "workerGroupSpecs[1].groupName", "the name of another group"),
        (ray_cluster(worker(groupName=None)), "groupName", "has no name"),
        (spark({"memory": "1.5g"}), "spec.driver.memory", "no size of Spark"),
        (spark({"coreRequest": "many"}), "spec.driver.coreRequest", "not a quantity"),
        (spark(memoryOverheadFactor="much"), "spec.memoryOverheadFactor", "no memory overhead factor"),
        (document("kubeflow.org/v1", "TFJob", replicas("tfReplicaSpecs", Boss=1)), "tfReplicaSpecs.Boss", "no role"),
        (wrapper({"template": {}, "podSets": [{"path": "spec"}]}), "podSets[0].path", "no path to a pod template"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(found: Document, where: str, said: str) -> None:
    with pytest.raises(DocumentError) as error:
        job_object(found)
    (problem,) = error.value.problems
    assert problem.code == "P887" and said in problem.message and problem.where.endswith(where) and problem.fix


JUNK = st.sampled_from([None, "", "x", "1", 0, -1, 2**40, 1.5, True, [], {}, [None], [{}], {"a": None}, ["x"], {"": 1}])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_anything_in_any_place_is_read_or_refused_in_words(data: st.DataObject) -> None:
    kinds = [*every_kind(), runtime()]
    chosen = kinds[data.draw(st.integers(0, len(kinds) - 1))]
    spoiled = copy.deepcopy(dict(chosen.data))
    for _ in range(data.draw(st.integers(1, 3))):
        known = [path for path in places(spoiled) if path[0] not in ("apiVersion", "kind")]
        path = data.draw(st.sampled_from(known))
        here: Any = spoiled
        for step in path[:-1]:
            here = here[step]
        here[path[-1]] = copy.deepcopy(data.draw(JUNK))
    found = Document(spoiled, "job.yaml")
    beside = train_job() if chosen.kind == "ClusterTrainingRuntime" else runtime()
    read_one = beside if chosen.kind == "ClusterTrainingRuntime" else found
    try:
        job = job_object(read_one, Library((found, beside)))
    except DocumentError as error:
        assert all(one.code == "P887" and one.fix for one in error.problems)
    else:
        assert job is not None
        assert all(0 <= role.members and isinstance(dict(role.requests), dict) for role in job.roles)
        for name in ("yunikorn", "kueue"):
            with suppress(UserError):
                schedule_one(
                    read_one, registry.scheduler(name), ScheduleOptions(organisation="lab"), Library((found, beside))
                )
