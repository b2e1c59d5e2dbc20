"""JobSets in and out: what becomes of each field, stages cut at Complete edges, and what a JobSet cannot say."""

from __future__ import annotations

import copy
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.expressions.parse import Expr
from penstock.expressions.template import Template
from penstock.formats import schema
from penstock.formats.base import Read
from penstock.formats.documents import Document, Library, library, read_text
from penstock.formats.kubernetes.read.job import JOB_BACKOFF
from penstock.formats.kubernetes.read.jobset import read_jobset
from penstock.formats.kubernetes.rules import POLICY
from penstock.formats.kubernetes.write.job import write_job
from penstock.formats.kubernetes.write.jobset import write_jobset
from penstock.graph import check, codec
from penstock.graph.model import (
    NORMAL,
    Cache,
    Container,
    Edge,
    Enough,
    ForEach,
    Function,
    Input,
    Lock,
    Mount,
    Nested,
    Outcome,
    Output,
    Parameter,
    Part,
    Placement,
    Pod,
    Resource,
    Retry,
    Script,
    Step,
    Suspend,
    Toleration,
    While,
    Workflow,
)
from penstock.plan.make import make
from penstock.testing import run_virtually
from tests.formats.corpus import files, label, needs_corpus

PRIVATE = Cache(enabled=False)


def replicated(name: str, pods: int = 1, **more: Any) -> dict[str, Any]:
    """A replicated job: its own fields, and with `job=` those of the Job, `pod=` of the pod, `container=` of the container."""
    job, pod, container = (more.pop(kind, {}) for kind in ("job", "pod", "container"))
    program = {"name": name, "image": "busybox", "command": ["true"], **container}
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, **job}
    template = {"spec": {**spec, "template": {"spec": {"containers": [program], **pod}}}}
    return {"name": name, "template": template, **more}


def after(*names: str, status: str = "Complete") -> list[dict[str, str]]:
    return [{"name": name, "status": status} for name in names]


def jobset(*jobs: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set"},
        "spec": {**spec, "replicatedJobs": list(jobs)},
    }


def read(data: dict[str, Any], *others: dict[str, Any]) -> Read:
    """By way of text, so that there are lines."""
    texts = [("set.yaml", yaml.safe_dump(data, sort_keys=False)), *(("o.yaml", yaml.safe_dump(one)) for one in others)]
    found = library(texts)
    result = read_jobset(found, found.documents[0])
    assert check.errors(result.workflow) == []
    assert codec.from_data(codec.to_data(result.workflow)) == result.workflow
    return result


def steps(data: dict[str, Any], *others: dict[str, Any]) -> dict[str, Step]:
    workflow = read(data, *others).workflow
    inner = workflow.definitions[0] if workflow.definitions else workflow
    return {step.name: step for step in inner.steps}


def refused(data: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(UserError) as caught:
        read(data)
    assert all(problem.fix and problem.source is not None for problem in caught.value.problems)
    return [(problem.code, problem.where) for problem in caught.value.problems]


def stages(data: dict[str, Any]) -> list[tuple[str, ...]]:
    return [stage.steps for stage in make(read(data).workflow, {}).stages]


def told(result: Read, kind: Any) -> list[str]:
    return [entry.path for entry in result.report.of(kind)]


# -- stages -----------------------------------------------------------------------------------------------------------


@needs_corpus
def test_a_jobset_is_cut_at_its_complete_edges() -> None:
    path = next(one for one in files("jobset") if one.name == "multiple-depends-on.yaml")
    found = library([("f.yaml", path.read_text())])
    plan = make(read_jobset(found, found.documents[0]).workflow, {})
    assert [stage.steps for stage in plan.stages] == [("dataset-initializer", "model-initializer"), ("worker",)]
    assert [pods.replicas for stage in plan.stages for pods in stage.pods] == [1, 1, 4]


def test_ten_a_hundred_ten_needs_a_hundred_at_most_and_ten_to_start() -> None:
    one = {"resources": {"requests": {"cpu": "1"}}}
    data = jobset(
        replicated("a", 10, container=one),
        replicated("b", 100, container=one, dependsOn=after("a")),
        replicated("c", 10, container=one, dependsOn=after("b")),
    )
    plan = make(read(data).workflow, {})
    assert plan.peaks["cpu"].amount == 100_000
    assert plan.peaks["cpu"].total == 120_000
    assert [reservation.peak for reservation in plan.reservations] == [
        {"cpu": 10_000},
        {"cpu": 100_000},
        {"cpu": 10_000},
    ]
    assert make(read(data).workflow, {}, unit="workflow").reservations[0].peak == {"cpu": 100_000}


def test_ready_and_nothing_start_together_in_one_stage() -> None:
    data = jobset(
        replicated("driver"),
        replicated("worker", 4, dependsOn=after("driver", status="Ready")),
        replicated("beside"),
        replicated("last", dependsOn=after("worker")),
    )
    result = read(data)
    assert stages(data) == [("driver", "worker", "beside"), ("last",)]
    assert all(not step.needs for step in result.workflow.steps[:3])
    (entry,) = [entry for entry in result.report.of("changed") if "dependsOn" in entry.path]
    assert "readiness is not waited for on this machine" in entry.message
    assert entry.source is not None and entry.source.line > 1


def test_a_stage_is_what_may_start_at_the_same_moment() -> None:
    data = jobset(
        replicated("a"),
        replicated("b"),
        replicated("c", dependsOn=after("a")),
        replicated("d", dependsOn=after("b")),
        replicated("e", dependsOn=[*after("a"), *after("b", status="Ready")]),
        replicated("f", dependsOn=after("e", status="Ready")),
    )
    assert stages(data) == [("a", "b"), ("c", "e", "f"), ("d",)]


def test_startup_in_order_is_one_stage() -> None:
    data = jobset(replicated("driver"), replicated("workers", 4), startupPolicy={"startupPolicyOrder": "InOrder"})
    assert stages(data) == [("driver", "workers")]
    assert "spec.startupPolicy.startupPolicyOrder" in told(read(data), "changed")


# -- the proposed executionPolicy -------------------------------------------------------------------------------------


def execution(order: str = "InOrder", status: str | None = "Succeeded", **spec: Any) -> dict[str, Any]:
    policy = {"executionPolicyOrder": order, **({"replicatedJobsStatus": status} if status else {})}
    return jobset(replicated("a"), replicated("b"), replicated("c"), executionPolicy=policy, **spec)


def test_execution_in_order_waits_for_the_one_before() -> None:
    assert stages(execution()) == [("a",), ("b",), ("c",)]
    assert [step.needs for step in read(execution()).workflow.steps] == [(), (Edge("a"),), (Edge("b"),)]
    assert read(execution()).report.of("lost") == []


def test_execution_in_order_may_wait_for_failure() -> None:
    workflow = read(execution(status="Failed")).workflow
    assert workflow.steps[1].needs == (Edge("a", frozenset({Outcome.FAILED, Outcome.ERRORED})),)


@pytest.mark.parametrize(
    "order, status", [("AnyOrder", None), ("AnyOrder", "Failed"), ("InOrder", "Active"), ("InOrder", "Suspended")]
)
def test_execution_that_orders_nothing_here_starts_all_together(order: str, status: str | None) -> None:
    data = execution(order, status)
    assert stages(data) == [("a", "b", "c")]
    assert ("spec.executionPolicy" in told(read(data), "changed")) == (order == "InOrder")


def test_execution_and_startup_in_order_exclude_each_other() -> None:
    data = execution(startupPolicy={"startupPolicyOrder": "InOrder"})
    with pytest.raises(UserError) as caught:
        read(data)
    (problem,) = caught.value.problems
    assert (problem.code, problem.where) == ("P835", "spec.startupPolicy.startupPolicyOrder")
    lines = yaml.safe_dump(data, sort_keys=False).splitlines()
    assert problem.source is not None and "startupPolicyOrder" in lines[problem.source.line - 1]
    assert "AnyOrder" in problem.fix
    assert stages(execution(startupPolicy={"startupPolicyOrder": "AnyOrder"})) == [("a",), ("b",), ("c",)]


@pytest.mark.parametrize("order, status", [("Sometimes", "Succeeded"), ("InOrder", "Done"), ("InOrder", None)])
def test_execution_that_makes_no_sense(order: str, status: str | None) -> None:
    assert refused(execution(order, status))[0][0] == "P835"


def test_the_proposal_is_no_unknown_field_but_a_misspelt_one_is() -> None:
    data = execution()
    assert [one.path for one in schema.check(data) if one.path not in {POLICY}] == []
    data["spec"]["executionPolicy"]["executionPolicyOder"] = "InOrder"
    assert told(read(data), "lost") == ["spec.executionPolicy.executionPolicyOder"]


# -- pods -------------------------------------------------------------------------------------------------------------


def test_replicas_and_parallelism_are_a_gang() -> None:
    step = steps(jobset(replicated("a", 4, replicas=3)))["a"]
    assert (step.replicas, step.each) == (12, None)


def test_more_completions_than_run_at_once_are_no_gang() -> None:
    step = steps(jobset(replicated("a", job={"parallelism": 2, "completions": 5}, replicas=3)))["a"]
    assert step.each == ForEach(axes=({"job": Expr.of("range(3)")}, {"index": Expr.of("range(5)")}), parallel=6)
    assert isinstance(step.action, Container) and step.action.env["JOB_COMPLETION_INDEX"] == Expr.of("item.index")


def test_no_replicas_are_skipped_and_hold_up_nobody() -> None:
    data = jobset(replicated("a", replicas=0), replicated("b", dependsOn=after("a")))
    report = run_virtually(read(data).workflow)
    assert report.state == "succeeded"
    assert [order.task for order in report.backend.specs] == ["b"]


def test_what_a_pod_is_told_about_itself() -> None:
    def field(path: str) -> dict[str, Any]:
        return {"valueFrom": {"fieldRef": {"fieldPath": path}}}

    label = "metadata.labels['jobset.sigs.k8s.io/{}']".format
    env = [
        {"name": "RANK", **field("metadata.annotations['batch.kubernetes.io/job-completion-index']")},
        {"name": "SET", **field(label("jobset-name"))},
        {"name": "JOB", **field(label("job-index"))},
        {"name": "GLOBAL", **field(label("job-global-index"))},
        {"name": "ALL", **field(label("global-replicas"))},
        {"name": "LEADER", **field(label("coordinator"))},
        {"name": "POD", **field("metadata.name")},
        {"name": "APP", **field("metadata.labels['app']")},
        {"name": "BOTH", "value": "$(SET)/$(RANK) $$(SET) $(NOBODY)"},
    ]
    worker = replicated("worker", 4, container={"env": env, "args": ["$(RANK)", "$(POD)", "$(JOB_COMPLETION_INDEX)"]})
    worker["template"]["spec"]["template"]["metadata"] = {"labels": {"app": "x"}}
    data = jobset(replicated("leader", replicas=2), worker, coordinator={"replicatedJob": "leader", "jobIndex": 1})
    action = steps(data)["worker"].action
    assert isinstance(action, Container)
    number = "$(PENSTOCK_REPLICA)"
    run, pod = Expr.of("run.id"), Template((Expr.of("run.id"), f"-worker-{number}"))
    assert action.env == {
        "RANK": number,
        "SET": "set",
        "JOB": "0",
        "GLOBAL": "2",
        "ALL": "3",
        "LEADER": "set-leader-1-0.set",
        "POD": pod,
        "APP": "x",
        "BOTH": f"set/{number} $(SET) $(NOBODY)",
        "JOB_COMPLETION_INDEX": number,
    }
    assert action.args == (number, pod, number)
    assert run.text in pod.parts[0].text  # type: ignore[union-attr]


def test_one_pod_has_number_0_and_a_job_that_is_not_indexed_none() -> None:
    data = jobset(replicated("a"), replicated("b", job={"completionMode": "NonIndexed"}))
    found = [step.action for step in steps(data).values()]
    assert [action.env for action in found if isinstance(action, Container)] == [{"JOB_COMPLETION_INDEX": "0"}, {}]


def test_several_containers_are_the_parts_of_a_pod() -> None:
    def program(name: str, cpu: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}, **more}

    pod = {
        "initContainers": [program("fetch", "3"), program("log", "1", restartPolicy="Always"), program("prepare", "1")],
        "containers": [program("main", "1"), program("beside", "500m")],
    }
    step = steps(jobset(replicated("a", pod=pod)))["a"]
    assert isinstance(step.action, Pod)
    assert [(one.name, one.needs, one.sidecar) for one in step.action.parts] == [
        ("fetch", (), False),
        ("log", (), True),
        ("prepare", ("fetch",), False),
        ("main", ("prepare",), False),
        ("beside", ("prepare",), False),
    ]
    assert step.resources == {"cpu": 3000}


def test_volumes() -> None:
    mounts = [
        {"name": "own", "mountPath": "/own"},
        {"name": "data", "mountPath": "/data", "subPath": "x", "readOnly": True},
        {"name": "config", "mountPath": "/config"},
        {"name": "made", "mountPath": "/made"},
        {"name": "node", "mountPath": "/node"},
        {"name": "gone", "mountPath": "/gone"},
    ]
    volumes = [
        {"name": "own", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "config", "configMap": {"name": "cm", "items": [{"key": "k", "path": "sub/k.txt"}]}},
        {"name": "node", "hostPath": {"path": "/var"}},
        {"name": "gone", "secret": {"secretName": "nowhere"}},
    ]
    policies = [{"templates": [{"metadata": {"name": "made"}, "spec": {}}]}]
    data = jobset(
        replicated("a", container={"volumeMounts": mounts}, pod={"volumes": volumes}), volumeClaimPolicies=policies
    )
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"k": "text", "other": "-"}}
    step = steps(data, config)["a"]
    assert step.mounts == (
        Mount(name="own", path="/own"),
        Mount(name="shared", path="/data", scope="run", sub_path="x", read_only=True),
        Mount(name="config", path="/config", scope="given", files={"sub/k.txt": "text"}),
        Mount(name="made", path="/made", scope="run"),
        Mount(name="node", path="/node", scope="run"),
        Mount(name="gone", path="/gone", scope="given"),
    )
    assert [one["name"] for one in step.extra["pod"]["volumes"]] == ["shared", "config", "node", "gone"]


def test_environment_from_elsewhere() -> None:
    one = {
        "envFrom": [{"configMapRef": {"name": "cm"}, "prefix": "P_"}, {"secretRef": {"name": "nowhere"}}],
        "env": [
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
            {"name": "GONE", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "nothing"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}},
        ],
        "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}},
    }
    data = jobset(replicated("a", container=one))
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"k": "v"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"token": "aHVzaA=="}}
    result = read(data, config, secret)
    action = result.workflow.steps[0].action
    assert isinstance(action, Container)
    assert action.env == {
        "P_k": "v",
        "S": Expr('secrets["s/token"]'),
        "CPU": "2",
        "MEM": "64",
        "JOB_COMPLETION_INDEX": "0",
    }
    said = " ".join(entry.message for entry in result.report.of("changed"))
    assert "nowhere is not here" in said and "'nothing'" in said
    (document,) = write_jobset(result.workflow).documents
    assert "hush" not in json.dumps(document), "a secret is referred to, never written out"


# -- policies ---------------------------------------------------------------------------------------------------------


def test_failed_pods_are_tried_again_and_deadlines_end_it() -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [3]}}
    other = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    found = steps(
        jobset(
            replicated("a", job={"backoffLimit": None}),
            replicated("b", job={"backoffLimit": 2, "podFailurePolicy": {"rules": [rule]}}),
            replicated("c", job={"backoffLimit": 2, "activeDeadlineSeconds": 60}),
            replicated("d", job={"backoffLimit": 2147483647}, pod={"activeDeadlineSeconds": 5}),
            replicated("e", job={"backoffLimit": 1, "podFailurePolicy": {"rules": [other]}}),
            replicated("f"),
        )
    )
    assert found["a"].retry == Retry(limit=6, backoff=JOB_BACKOFF)
    assert found["b"].retry == Retry(limit=2, backoff=JOB_BACKOFF, exit_codes=(3,))
    assert found["c"].retry == Retry(limit=2, backoff=JOB_BACKOFF, on=("failed", "errored"), within=60)
    assert found["c"].timeout == 60
    assert found["d"].retry == Retry(limit=10_000_000, backoff=JOB_BACKOFF) and found["d"].timeout == 5
    assert found["e"].retry is not None and found["e"].retry.when == Expr.of("!(attempt.exit_code in [42])")
    assert found["f"].retry is None


def test_a_restart_restarts_everything() -> None:
    data = jobset(replicated("a"), replicated("b", dependsOn=after("a")), failurePolicy={"maxRestarts": 2})
    workflow = read(data).workflow
    failures = iter([Outcome.FAILED, Outcome.FAILED])
    report = run_virtually(workflow, script=lambda order: next(failures, None) if order.task.endswith("b") else None)
    assert report.state == "succeeded"
    assert [order.task for order in report.backend.specs] == ["jobs/a", "jobs/b"] * 3


def test_the_first_failure_ends_a_jobset() -> None:
    data = jobset(replicated("a"), replicated("b"), replicated("c", dependsOn=after("b")))
    result = read(data)
    report = run_virtually(result.workflow, script=lambda order: Outcome.FAILED if order.task == "a" else 100.0)
    assert report.state == "failed"
    assert {order.task for order in report.backend.specs} == {"a", "b"}
    assert "spec.replicatedJobs" in told(result, "changed"), "what runs is let end, and the report says so"


@pytest.mark.parametrize(
    "rule, restarts",
    [
        ({"action": "FailJobSet"}, 0),
        ({"action": "RestartJobSet"}, 3),
        ({"action": "RestartJobSetAndIgnoreMaxRestarts"}, 10_000_000),
        ({"action": "FailJobSet", "targetReplicatedJobs": ["a"]}, 3),
        ({"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}, 3),
    ],
)
def test_failure_rules(rule: dict[str, Any], restarts: int) -> None:
    data = jobset(replicated("a"), replicated("b"), failurePolicy={"maxRestarts": 3, "rules": [rule]})
    result = read(data)
    retry = result.workflow.steps[0].retry
    assert (retry.limit if retry is not None else 0) == restarts
    passed_over = "spec.failurePolicy.rules[0]" in told(result, "changed")
    assert passed_over == (len(rule) > 1)


def test_one_job_may_be_restarted_by_itself() -> None:
    rule = {"action": "RestartJob", "targetReplicatedJobs": ["a"]}
    policy = {"maxRestarts": 2, "rules": [rule]}
    found = steps(jobset(replicated("a", job={"backoffLimit": 1}), replicated("b"), failurePolicy=policy))
    assert found["a"].retry is not None and found["a"].retry.limit == 5
    assert found["b"].retry is None


def test_success_is_decided_by_those_that_are_named() -> None:
    policy = {"operator": "All", "targetReplicatedJobs": ["driver"]}
    data = jobset(replicated("driver"), replicated("worker"), successPolicy=policy)
    result = read(data)
    assert result.workflow.enough == Enough(steps=("driver",))
    assert not any(step.tolerates for step in result.workflow.steps)
    assert not any("successPolicy" in path for path in told(result, "changed"))
    policy = {"operator": "Any"}
    result = read(jobset(replicated("driver"), replicated("worker"), successPolicy=policy))
    assert result.workflow.enough == Enough(steps=("driver", "worker"), of="any")
    assert not any("successPolicy" in path for path in told(result, "changed"))
    result = read(jobset(replicated("driver"), replicated("worker", replicas=3), successPolicy=policy))
    assert "spec.successPolicy.operator" in told(result, "changed"), "the Jobs of worker end together here"


@pytest.mark.parametrize("restarts", [0, 2])
@pytest.mark.parametrize(
    "policy",
    [
        {"operator": "Any"},
        {"operator": "Any", "targetReplicatedJobs": ["b"]},
        {"operator": "All", "targetReplicatedJobs": ["b"]},
    ],
)
def test_a_success_policy_is_written_as_it_was_read(policy: dict[str, Any], restarts: int) -> None:
    failure = {"failurePolicy": {"maxRestarts": restarts}} if restarts else {}
    data = jobset(replicated("a"), replicated("b"), successPolicy=policy, **failure)
    (document,) = write_jobset(read(data).workflow).documents
    assert document["spec"]["successPolicy"] == policy


def test_what_becomes_several_jobs_cannot_be_named_as_enough() -> None:
    (step,) = read(jobset(replicated("a"))).workflow.steps
    loop = replace(step, name="b", each=ForEach(axes=({"x": ("u", "v")},)))
    workflow = Workflow(name="w", steps=(step, loop), fail_fast=True, enough=Enough(steps=("b",)))
    with pytest.raises(UserError, match="several replicated jobs"):
        write_jobset(workflow)


@pytest.mark.parametrize("write", [write_jobset, write_job])
def test_calls_that_double_at_every_level_are_refused_soon(write: Callable[[Workflow], Any]) -> None:
    """It took a minute and a half, and told the same line 200 times."""
    leaf = Step(name="s", action=Container(image="x", command=("true",)))
    made = [Workflow(name="d40", steps=(leaf,))]
    for level in reversed(range(40)):
        calls = tuple(Step(name=f"s{number}", action=Nested(name=f"d{level + 1}")) for number in range(2))
        made.append(Workflow(name=f"d{level}", steps=calls))
    root = made.pop()
    with pytest.raises(UserError) as error:
        write(replace(root, definitions=tuple(made)))
    told = [problem.message for problem in error.value.problems]
    assert len(told) == len(set(told)) == 3
    assert "written out, the workflow has more than 10000 steps" in told


def test_the_rest_is_handed_on() -> None:
    rest = {"network": {"subdomain": "n"}, "ttlSecondsAfterFinished": 9, "managedBy": "x.io/y", "suspend": True}
    data = jobset(replicated("a", groupName="g"), **rest)
    data["metadata"] |= {
        "namespace": "ns",
        "annotations": {"x": "y"},
        "labels": {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": "high", "l": "1"},
    }
    workflow = read(data).workflow
    assert workflow.extra["jobset"] == rest
    assert workflow.extra["metadata"] == {"namespace": "ns", "annotations": {"x": "y"}}
    assert (workflow.queue, workflow.priority, workflow.labels) == ("q", "high", {"l": "1"})
    (document,) = write_jobset(workflow).documents
    assert {name: document["spec"][name] for name in rest} == rest
    assert document["metadata"] == data["metadata"]


# -- what makes no sense ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data, code, where",
    [
        (jobset(), "P835", "spec.replicatedJobs"),
        (jobset(replicated("a"), replicated("a")), "P835", "spec.replicatedJobs[1].name"),
        (jobset(replicated("a", dependsOn=after("a"))), "P833", "spec.replicatedJobs[0].dependsOn[0].name"),
        (
            jobset(replicated("a", dependsOn=after("b")), replicated("b")),
            "P832",
            "spec.replicatedJobs[0].dependsOn[0].name",
        ),
        (
            jobset(replicated("a"), replicated("b", dependsOn=after("a", status="Done"))),
            "P835",
            "spec.replicatedJobs[1].dependsOn[0].status",
        ),
        (jobset(replicated("a"), coordinator={"replicatedJob": "b"}), "P832", "spec.coordinator.replicatedJob"),
        (
            jobset(replicated("a"), successPolicy={"operator": "All", "targetReplicatedJobs": ["b"]}),
            "P832",
            "spec.successPolicy.targetReplicatedJobs[0]",
        ),
        (
            jobset(replicated("a"), failurePolicy={"rules": [{"action": "Explode"}]}),
            "P835",
            "spec.failurePolicy.rules[0].action",
        ),
        (jobset(replicated("a", replicas=-1)), "P835", "spec.replicatedJobs[0].replicas"),
        (
            jobset(replicated("a", replicas=10**6, job={"parallelism": 10**6, "completions": 10**6})),
            "P835",
            "spec.replicatedJobs[0].replicas",
        ),
        (
            jobset(replicated("a", container={"image": None})),
            "P835",
            "spec.replicatedJobs[0].template.spec.template.spec.containers[0].image",
        ),
        (
            jobset(replicated("a", container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]})),
            "P832",
            "spec.replicatedJobs[0].template.spec.template.spec.containers[0].volumeMounts[0].name",
        ),
        (
            jobset(
                replicated("a"), replicated("b", dependsOn=after("a")), startupPolicy={"startupPolicyOrder": "InOrder"}
            ),
            "P835",
            "spec.startupPolicy.startupPolicyOrder",
        ),
    ],
)
def test_refused_with_place_and_fix(data: dict[str, Any], code: str, where: str) -> None:
    assert refused(data) == [(code, where)]


def test_all_mistakes_are_told_at_once() -> None:
    data = jobset(
        replicated("a", replicas="x"), replicated("b", dependsOn=after("z")), coordinator={"replicatedJob": "q"}
    )
    assert len(refused(data)) == 3


# -- the corpus -------------------------------------------------------------------------------------------------------


def documents(path: Path) -> list[tuple[Library, Document]]:
    found = library([(label(path), path.read_text())])
    return [(found, document) for document in found.documents if document.kind == "JobSet"]


@needs_corpus
@pytest.mark.parametrize("path", files("jobset", "kueue"), ids=label)
def test_every_example_reads_and_reads_again_after_writing(path: Path) -> None:
    for found, document in documents(path):
        result = read_jobset(found, document)
        assert check.errors(result.workflow) == []
        assert result.report.of("lost") == []
        make(result.workflow, {})
        written = write_jobset(result.workflow)
        assert written.report.of("lost") == []
        assert schema.check(written.documents[-1]) == []
        again = Document(json.loads(json.dumps(written.documents[-1])))
        assert read_jobset(Library((again,)), again).workflow == result.workflow


@needs_corpus
def test_there_are_examples() -> None:
    assert sum(len(documents(path)) for path in files("jobset", "kueue")) > 10


JUNK = st.sampled_from(
    [
        None,
        0,
        -1,
        7,
        2**40,
        1.5,
        True,
        "",
        "x y",
        "$(A)",
        "${{ x",
        "\0",
        [],
        [None],
        ["x"],
        {},
        {"a": 1},
        [{"name": "x"}],
        "9" * 400,
    ]
)
RICH = jobset(
    replicated(
        "a",
        2,
        replicas=2,
        pod={"volumes": [{"name": "v", "configMap": {"name": "cm"}}], "tolerations": [{"key": "k"}]},
        container={
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "envFrom": [{"configMapRef": {"name": "cm"}}],
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "args": ["$(A)"],
            "resources": {"limits": {"cpu": 1}},
        },
    ),
    replicated(
        "b",
        dependsOn=after("a"),
        job={
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]},
            "activeDeadlineSeconds": 3,
        },
    ),
    executionPolicy={"executionPolicyOrder": "InOrder", "replicatedJobsStatus": "Succeeded"},
    successPolicy={"operator": "All", "targetReplicatedJobs": ["a"]},
    failurePolicy={"maxRestarts": 1, "rules": [{"action": "FailJobSet", "targetReplicatedJobs": ["a"]}]},
    volumeClaimPolicies=[{"templates": [{"metadata": {"name": "p"}}]}],
)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [*([path] if path else []), *(one for key, value in inner for one in places(value, (*path, key)))]


def spoiled(data: dict[str, Any], where: tuple[Any, ...], junk: Any) -> dict[str, Any]:
    data = copy.deepcopy(data)
    at: Any = data
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = junk
    return data


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(places(RICH)), JUNK), min_size=1, max_size=2))
def test_a_spoiled_document_is_read_or_refused(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    data = RICH
    for where, junk in changes:
        try:
            data = spoiled(data, where, junk)
        except (KeyError, TypeError, IndexError):
            continue  # the place went with the first change
    document = Document(data)
    try:
        workflow = read_jobset(Library((document,)), document).workflow
        codec.to_json(workflow)
        write_jobset(workflow)
    except UserError as error:
        assert all(problem.code[0] == "P" and problem.fix for problem in error.problems)


# -- out --------------------------------------------------------------------------------------------------------------

_text = st.text(st.sampled_from("ab $(){}/.-'\"\\\n"), max_size=8) | st.sampled_from(
    ["$(A)", "$$(A)", "$$", "$(seq 3)", "$(PENSTOCK_REPLICA)", "a$(PENSTOCK_REPLICA)b", "$(A)$", "${{ x }}", "$"]
)
_amounts = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.integers(1, 64_000),
        "memory": st.integers(1, 9).map(lambda n: n * 2**30 * 1000),
        "nvidia.com/gpu": st.integers(1, 8).map(lambda n: n * 1000),
    },
)
_containers = st.builds(
    Container,
    image=st.sampled_from(["busybox", "python:3.12"]),
    command=st.lists(_text, max_size=3).map(tuple),
    args=st.lists(_text, max_size=3).map(tuple),
    env=st.dictionaries(st.sampled_from("ABC"), _text, max_size=3),
    workdir=st.none() | st.just("/work"),
)
_placements = st.none() | st.just(
    Placement(
        node_selector={"zone": "a"},
        tolerations=(Toleration(key="gpu", operator="Exists", effect="NoSchedule"),),
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": ({},)}}},
    )
)
_retries = st.none() | st.builds(
    Retry,
    limit=st.integers(1, 9),
    backoff=st.just(JOB_BACKOFF),
    exit_codes=st.sets(st.integers(1, 255), max_size=2).map(lambda codes: tuple(sorted(codes))),
)


@st.composite
def _workflows(draw: st.DrawFn) -> Workflow:
    names = draw(st.lists(st.sampled_from(["a", "b-2", "train", "x"]), min_size=1, unique=True))
    above: dict[str, set[str]] = {}
    made: list[Step] = []
    for name in names:
        chosen = draw(st.sets(st.sampled_from(sorted(above)), max_size=3)) if above else set()
        implied = set().union(*(above[one] for one in chosen)) if chosen else set()
        needs = sorted(chosen - implied)
        above[name] = implied | chosen
        retry = draw(_retries)
        made.append(
            Step(
                name=name,
                action=draw(_containers),
                needs=tuple(Edge(one, NORMAL) for one in needs),
                retry=retry,
                timeout=draw(st.none() | st.integers(1, 999)),
                resources=draw(_amounts),
                replicas=draw(st.integers(1, 4)),
                placement=draw(_placements),
                cache=PRIVATE,
                mounts=draw(
                    st.sampled_from(
                        [(), (Mount(name="m", path="/m"), Mount(name="n", path="/n", sub_path="s", read_only=True))]
                    )
                ),
            )
        )
    return Workflow(
        name="flow",
        steps=tuple(made),
        queue=draw(st.none() | st.just("q")),
        priority=draw(st.none() | st.just("p")),
        labels=draw(st.sampled_from([{}, {"team": "a"}])),
        doc=draw(st.sampled_from(["", "What it is for."])),
        fail_fast=True,
    )


def _edges(workflow: Workflow) -> dict[str, set[str]]:
    return {step.name: {edge.step for edge in step.needs} for step in workflow.steps}


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_workflows())
def test_what_both_can_say_comes_back(workflow: Workflow) -> None:
    written = write_jobset(workflow)
    assert written.report.of("lost") == []
    (document,) = json.loads(json.dumps(written.documents))
    assert schema.check(document) == []
    back = read_jobset(Library(()), Document(document)).workflow
    assert _edges(back) == _edges(workflow)
    by_name = {step.name: replace(step, group=None, needs=()) for step in back.steps}
    assert by_name == {step.name: replace(step, needs=()) for step in workflow.steps}
    assert replace(back, steps=()) == replace(workflow, steps=())


def container(name: str = "a", *words: Any, **more: Any) -> Step:
    env = more.pop("env", {})
    return Step(name=name, action=Container(image="busybox", command=words or ("true",), env=env), **more)


def flow(*made: Step, **more: Any) -> Workflow:
    return Workflow(name="flow", steps=made, **more)


def replicated_jobs(workflow: Workflow) -> dict[str, dict[str, Any]]:
    document = write_jobset(workflow).documents[-1]
    assert schema.check(document) == []
    return {one["name"]: one for one in document["spec"]["replicatedJobs"]}


def program(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["template"]["spec"]["template"]["spec"]["containers"][0]
    return found


def test_parameters_are_fixed_at_their_defaults() -> None:
    lr = Parameter(name="lr", default=0.1)
    step = container(
        "a", "train", Expr.of("params.lr"), Template(("--n=", Expr.of("inputs.n"))), inputs=(Input(name="n", value=3),)
    )
    assert program(replicated_jobs(flow(step, params=(lr,)))["a"])["command"] == ["train", "0.1", "--n=3"]


def test_scripts_are_words_of_their_interpreter() -> None:
    made = [
        Step(name="sh", action=Script(source="echo $(date) $$", image="i")),
        Step(name="py", action=Script(source="print(1)", command=("python3", "-u"), image="i")),
        Step(name="other", action=Script(source="x", command=("Rscript",), image="i")),
    ]
    found = {name: program(one)["command"] for name, one in replicated_jobs(flow(*made)).items()}
    assert found["sh"] == ["sh", "-c", "echo $$(date) $$$$"]
    assert found["py"] == ["python3", "-u", "-c", "print(1)"]
    assert found["other"][:2] == ["sh", "-c"] and found["other"][-2:] == ["x", "Rscript"]


def test_a_loop_over_numbers_is_one_job() -> None:
    each = ForEach(axes=({"i": Expr.of("range(params.n)")},), parallel=10)
    step = container("a", "work", Template(("--shard=", Expr.of("item.i"))), each=each, env={"I": Expr.of("item.i")})
    job = replicated_jobs(flow(step, params=(Parameter(name="n", default=100),)))["a"]
    assert (job["template"]["spec"]["completions"], job["template"]["spec"]["parallelism"]) == (100, 10)
    assert program(job)["command"] == ["work", "--shard=$(PENSTOCK_INDEX)"]
    assert [entry["name"] for entry in program(job)["env"]] == ["PENSTOCK_INDEX", "I"]


def test_a_loop_over_anything_else_is_written_out() -> None:
    each = ForEach(axes=({"lr": (0.1, 0.01)}, {"n": Expr.of("range(2)")}))
    step = container("a", "work", Expr.of("item.lr"), Expr.of("item.n + 1"), each=each)
    last = container("b", needs=(Edge("a"),))
    jobs = replicated_jobs(flow(step, last))
    assert [program(one)["command"] for one in jobs.values()][:4] == [
        ["work", "0.1", "1"],
        ["work", "0.1", "2"],
        ["work", "0.01", "1"],
        ["work", "0.01", "2"],
    ]
    assert [one["name"] for one in jobs["b"]["dependsOn"]] == ["a-0", "a-1", "a-2", "a-3"]


def test_called_workflows_stand_in_place_of_their_call() -> None:
    inner = Workflow(
        name="inner",
        params=(Parameter(name="x"),),
        steps=(container("one", "go", Expr.of("params.x")), container("two", needs=(Edge("one"),))),
    )
    call = Step(name="call", action=Nested(name="inner"), inputs=(Input(name="x", value="y"),), needs=(Edge("a"),))
    jobs = replicated_jobs(flow(container("a"), call, container("z", needs=(Edge("call"),)), definitions=(inner,)))
    waits = {name: [one["name"] for one in job.get("dependsOn", ())] for name, job in jobs.items()}
    assert waits == {"a": [], "call-one": ["a"], "call-two": ["call-one"], "z": ["call-two"]}
    assert program(jobs["call-one"])["command"] == ["go", "y"]


def test_conditions_that_are_known_are_decided() -> None:
    on = Parameter(name="on", default=True)
    no = container("no", when=Expr.of("!params.on"))
    jobs = replicated_jobs(flow(container("yes", when=Expr.of("params.on")), no, params=(on,)))
    assert {name: job["replicas"] for name, job in jobs.items()} == {"yes": 1, "no": 0}


def test_folders_become_volumes() -> None:
    mounts = (
        Mount(name="scratch", path="/s"),
        Mount(name="shared", path="/d", scope="run"),
        Mount(name="conf", path="/c", scope="given", files={"a.txt": "x", "sub/b": "y"}),
    )
    step = container("a", mounts=mounts, inputs=(Input(name="rows", value={"n": 1}, path="/in/rows.json"),))
    written = write_jobset(flow(step))
    *beside, document = written.documents
    assert [one["kind"] for one in beside] == ["ConfigMap", "ConfigMap"]
    assert beside[1]["data"] == {"rows.json": '{"n":1}'}
    assert document["spec"]["volumeClaimPolicies"][0]["templates"][0]["metadata"] == {"name": "shared"}
    assert schema.check(document) == []
    assert "steps.a.mounts.shared" in [entry.path for entry in written.report.of("changed")]
    found = library([("x", yaml.safe_dump_all(written.documents))])
    back = read_jobset(found, found.documents[-1]).workflow.steps[0].mounts
    assert [(one.path, one.scope, one.files) for one in back] == [
        ("/s", "task", {}),
        ("/d", "run", {}),
        ("/c", "given", {"a.txt": "x", "sub/b": "y"}),
        ("/in/rows.json", "given", {"rows.json": '{"n":1}'}),
    ]


def test_parts_of_a_pod_are_its_containers() -> None:
    parts = (
        Part(name="log", image="i", sidecar=True, needs=()),
        Part(name="first", image="i"),
        Part(name="second", image="i", source="echo hi", command=("sh",)),
        Part(name="last", image="i", needs=("second",)),
        Part(name="beside", image="i", needs=("second",)),
    )
    pod = replicated_jobs(flow(Step(name="a", action=Pod(parts=parts), resources={"cpu": 2000})))["a"]
    spec = pod["template"]["spec"]["template"]["spec"]
    assert [one["name"] for one in spec["initContainers"]] == ["log", "first", "second"]
    assert spec["initContainers"][0]["restartPolicy"] == "Always"
    assert [one["name"] for one in spec["containers"]] == ["last", "beside"]
    assert spec["containers"][0]["resources"] == {"requests": {"cpu": "2"}}


def test_functions_travel_with_their_code() -> None:
    function = Function(module="json", name="dumps")
    step = Step(
        name="f",
        action=function,
        inputs=(Input(name="obj", value=[1, 2]),),
        retry=Retry(limit=1, exceptions=("ValueError",)),
    )
    written = write_jobset(flow(step))
    *beside, document = written.documents
    assert [one["kind"] for one in beside] == ["ConfigMap"]
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("manifest.json", '{"functions": []}')
        archive.writestr("more.py", "more = 1")
    later = write_jobset(flow(step), bundle=other.getvalue())
    assert beside[0]["metadata"]["name"] != later.documents[0]["metadata"]["name"]
    job = document["spec"]["replicatedJobs"][0]
    assert program(job)["command"][:2] == ["python3", "-c"] and program(job)["image"].startswith("python:")
    assert program(job)["volumeMounts"][0]["name"] == "penstock-code"
    assert job["template"]["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [75]


def test_long_and_odd_names_are_made_to_fit() -> None:
    long = "Train_The_Model_" * 5 + "a"
    workflow = replace(
        flow(container(long), container(long[:-1] + "b", needs=(Edge(long),))), name="My_Flow-" + "x" * 100
    )
    document = write_jobset(workflow).documents[-1]
    names = [one["name"] for one in document["spec"]["replicatedJobs"]]
    assert len(set(names)) == 2
    assert all(len(f"{document['metadata']['name']}-{name}-0-0-abcde") <= 63 for name in names)
    assert document["spec"]["replicatedJobs"][1]["dependsOn"] == after(names[0])
    assert schema.check(document) == []


@pytest.mark.parametrize("name", ["flow", "My_Flow-" + "x" * 100])
def test_names_fit_with_what_the_cluster_adds_to_them(name: str) -> None:
    extra = {"metadata": {"generateName": f"{name}-"}}
    workflow = replace(flow(container("y" * 100)), name=name, extra=extra)
    document = write_jobset(workflow).documents[-1]
    assert "name" not in document["metadata"]
    generated = document["metadata"]["generateName"] + "abcde"
    assert len(f"{generated}-{document['spec']['replicatedJobs'][0]['name']}-0-0-abcde") == 63


def test_what_is_waited_for_anyway_is_not_said() -> None:
    chain = [container(f"s{n}", needs=tuple(Edge(f"s{m}") for m in range(n))) for n in range(8)]
    jobs = replicated_jobs(flow(*chain))
    assert [one["name"] for one in jobs["s7"]["dependsOn"]] == ["s6"]


def test_what_changes_no_result_is_reported() -> None:
    retry = Retry(limit=2, on=("timeout",))
    step = container("a", retry=retry, queue="other", outputs=(Output(name="o"),), cache=Cache(ttl=5), exempt=True)
    written = write_jobset(flow(step, timeout=5.0, parallel=2, priority=7))
    assert {entry.path for entry in written.report.of("lost")} == {
        "parallel",
        "timeout",
        "priority",
        "steps.a.outputs",
        "steps.a.queue",
        "steps.a.cache",
        "steps.a.exempt",
        "steps.a.retry.on",
    }


REFUSED = {
    "trigger": (container("x", trigger=Expr.of("steps.a.outcome == 'failed'")), "P855"),
    "when": (container("x", when=Expr.of("steps.a.outputs.n > 1")), "P856"),
    "value": (
        container("x", "go", Expr.of("inputs.n"), inputs=(Input(name="n", value=Expr.of("steps.a.outputs.n")),)),
        "P856",
    ),
    "items": (container("x", each=ForEach(axes=({"i": Expr.of("steps.a.outputs.l")},))), "P856"),
    "missing": (container("x", "go", Expr.of("params.p")), "P856"),
    "after failure": (container("x", needs=(Edge("a", frozenset({Outcome.FAILED})),)), "P855"),
    "loop": (container("x", loop=While(condition=Expr.of("outputs.n > 1")), outputs=(Output(name="n"),)), "P855"),
    "lock": (container("x", locks=(Lock(name="l"),)), "P855"),
    "tolerates": (container("x", tolerates=frozenset({Outcome.FAILED})), "P855"),
    "suspend": (Step(name="x", action=Suspend()), "P857"),
    "resource": (Step(name="x", action=Resource(manifest={"kind": "Pod"})), "P857"),
    "no image": (Step(name="x", action=Script(source="true")), "P857"),
    "no code": (Step(name="x", action=Function(module="mine", name="f", code="sha256:1")), "P857"),
    "items that differ": (
        container("x", "go", Expr.of("item.i"), each=ForEach(axes=({"i": tuple("abcdefgh" * 5)},))),
        "P858",
    ),
    "parts": (
        Step(name="x", action=Pod(parts=(Part(name="p", image="i"), Part(name="q", image="i", on_error="continue")))),
        "P857",
    ),
    "parts in a tree": (
        Step(
            name="x",
            action=Pod(
                parts=(
                    Part(name="p", image="i"),
                    Part(name="q", image="i", needs=()),
                    Part(name="r", image="i", needs=("p",)),
                )
            ),
        ),
        "P857",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_jobset_cannot_say_is_refused_with_its_step(name: str) -> None:
    from penstock.errors import Source

    step, code = REFUSED[name]
    step = replace(step, source=Source("flow.py", 7))
    first = container("a", outputs=(Output(name="n"), Output(name="l")))
    with pytest.raises(UserError) as caught:
        write_jobset(flow(first, step, params=(Parameter(name="p"),)))
    assert {problem.code for problem in caught.value.problems} == {code}
    for problem in caught.value.problems:
        assert problem.where.startswith("steps.x") and problem.message and problem.fix
        assert problem.source == Source("flow.py", 7)


def test_every_refusal_is_told_at_once() -> None:
    handler = Step(name="bye", action=Container(image="i"))
    with pytest.raises(UserError) as caught:
        write_jobset(
            flow(container("a", locks=(Lock(name="l"),)), Step(name="b", action=Suspend()), on_exit=(handler,))
        )
    assert [problem.code for problem in caught.value.problems] == ["P855", "P855", "P857"]


def test_more_than_five_to_wait_for() -> None:
    many = [container(f"s{n}") for n in range(6)]
    with pytest.raises(UserError) as caught:
        write_jobset(flow(*many, container("last", needs=tuple(Edge(one.name) for one in many))))
    assert caught.value.code == "P858"


def test_lines_of_the_file_are_those_of_the_steps() -> None:
    text = yaml.safe_dump(jobset(replicated("a"), replicated("b")), sort_keys=False)
    (document,) = read_text(text, "set.yaml")
    workflow = read_jobset(Library((document,)), document).workflow
    lines = [step.source.line for step in workflow.steps if step.source is not None]
    assert ["name: " in text.splitlines()[line - 1] for line in lines] == [True, True]
