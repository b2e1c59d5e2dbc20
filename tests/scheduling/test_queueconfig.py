"""The queueconfig of Flyte's RFC: read as it stands, fixed where YuniKorn would not understand it, refused where nobody would."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.formats.report import Report
from penstock.formats.yaml_writer import dump
from penstock.scheduling import keys, registry
from penstock.scheduling.apply import ScheduleOptions, schedule_one
from penstock.scheduling.kinds.table import KINDS
from penstock.scheduling.queueconfig import QueueConfig, queue_config
from tests.scheduling.samples import document, jobset, ray_cluster, replicas

RFC = """
queueconfig:
  scheduler: yunikorn
  jobs:
    - type: "ray"
      gangscheduling: "placeholderTimeoutInSeconds=60 gangSchedulingStyle=hard"
    - type: "spark"
      gangscheduling: "placeholderTimeoutInSeconds=30  gangSchedulingStyle=Hard"
      allow-preemption: true
"""


def read(text: str) -> tuple[QueueConfig, Report]:
    report = Report()
    return queue_config(text, "queueconfig.yaml", ("kueue", "yunikorn"), report), report


def test_it_is_read_as_it_stands_in_the_rfc_and_its_mistakes_are_mended_and_reported() -> None:
    config, report = read(RFC)
    ray, spark = config.jobs
    assert config.scheduler == "yunikorn"
    assert (ray.style, ray.timeout, ray.allow_preemption) == ("Hard", 60, None)
    assert (spark.style, spark.timeout, spark.allow_preemption) == ("Hard", 30, True)
    told = [(one.kind, one.path, one.message, one.source and one.source.line) for one in report.entries]
    assert told[0][:2] == ("changed", "queueconfig.jobs[0].gangscheduling") and told[0][3] == 6
    assert "gangSchedulingStyle=hard is written as gangSchedulingStyle=Hard" in told[0][2]
    assert "one space each" in told[1][2] and len(told) == 2


def test_it_decides_the_queue_and_the_gang_and_the_command_line_wins() -> None:
    config, _ = read(RFC)
    plugin = registry.scheduler("yunikorn")
    options = ScheduleOptions(organisation="org1", config=config)
    found = schedule_one(ray_cluster(), plugin, options).documents[0]
    assert found["metadata"]["labels"][keys.YK_QUEUE] == "root.org1.ray"
    parameters = found["metadata"]["annotations"][keys.PARAMETERS]
    assert parameters == "placeholderTimeoutInSeconds=60 gangSchedulingStyle=Hard"
    other = schedule_one(jobset(), plugin, options).documents[0]
    template = other["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]
    assert template["labels"][keys.YK_QUEUE] == "root.org1.default" and keys.PARAMETERS not in template["annotations"]


def test_one_type_may_stand_for_all_of_kubeflow_and_the_narrower_one_wins() -> None:
    config, _ = read("queueconfig: {jobs: [{type: kubeflow}, {type: pytorch}, {type: TFJob}]}")
    names = {kind: config.job_type(KINDS["kubeflow.org", kind]) for kind in ("PyTorchJob", "TFJob", "MPIJob")}
    assert names == {"PyTorchJob": "pytorch", "TFJob": "tfjob", "MPIJob": "kubeflow"}
    found = document("kubeflow.org/v2beta1", "MPIJob", replicas("mpiReplicaSpecs", Launcher=1, Worker=1))
    done = schedule_one(found, registry.scheduler("kueue"), ScheduleOptions(organisation="o", config=config))
    assert done.documents[0]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "o.kubeflow"


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("queueconfig: {scheduler: slurm}", "queueconfig.scheduler", "no scheduler 'slurm'"),
        ("queueconfig: {schedular: yunikorn}", "queueconfig.schedular", "no field"),
        ("queueconfig: {jobs: {type: ray}}", "queueconfig.jobs", "not a list"),
        ("queueconfig: {jobs: [ray]}", "queueconfig.jobs[0]", "not a map"),
        ("queueconfig: {jobs: [{gangscheduling: ''}]}", "queueconfig.jobs[0].type", "no type"),
        ("queueconfig: {jobs: [{type: rey}]}", "queueconfig.jobs[0].type", "no type of job"),
        ("queueconfig: {jobs: [{type: ray}, {type: Ray}]}", "queueconfig.jobs[1].type", "twice"),
        ("queueconfig: {jobs: [{type: ray, gang: x}]}", "queueconfig.jobs[0].gang", "no field"),
        ("queueconfig: {jobs: [{type: ray, gangscheduling: 5}]}", "queueconfig.jobs[0].gangscheduling", "not text"),
        (
            "queueconfig: {jobs: [{type: ray, gangscheduling: 'a=1'}]}",
            "queueconfig.jobs[0].gangscheduling",
            "nothing that",
        ),
        (
            "queueconfig: {jobs: [{type: ray, gangscheduling: 'placeholderTimeoutInSeconds=1m'}]}",
            "queueconfig.jobs[0].gangscheduling",
            "nothing that",
        ),
        (
            "queueconfig: {jobs: [{type: ray, allow-preemption: maybe}]}",
            "queueconfig.jobs[0].allow-preemption",
            "neither",
        ),
        ("queueconfig: []", "", "no queueconfig"),
        ("", "", "no queueconfig"),
    ],
)
def test_what_nobody_could_read_is_refused(text: str, where: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        read(text)
    (problem,) = error.value.problems
    assert (problem.code, problem.where) == ("P882", where) and message in problem.message and problem.fix


def test_all_mistakes_are_said_at_once() -> None:
    with pytest.raises(UserError) as error:
        read("queueconfig: {scheduler: x, jobs: [{type: rey}, {type: ray, x: 1}]}")
    assert len(error.value.problems) == 3


@settings(deadline=None)
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text("rayqj-= 1", max_size=6)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["queueconfig", "scheduler", "jobs", "type", "gangscheduling", "allow-preemption"]),
                inner,
            ),
        ),
    )
)
def test_anything_is_read_or_refused_in_words(data: Any) -> None:
    try:
        read(dump(data))
    except UserError as error:
        assert all(one.fix for one in error.problems)
