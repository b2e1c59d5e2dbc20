"""Jobs, CronJobs and Pods in, Jobs out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import Source, UserError
from penstock.expressions.parse import Expr
from penstock.expressions.template import Template
from penstock.formats.base import Read
from penstock.formats.documents import Document, Library, library
from penstock.formats.kubernetes.read.job import JOB_BACKOFF, POD_BACKOFF, read_job
from penstock.formats.kubernetes.write.job import write_job
from penstock.graph import check, codec
from penstock.graph.model import (
    Cache,
    Container,
    Edge,
    ForEach,
    Input,
    Mount,
    Nested,
    Outcome,
    Output,
    Parameter,
    Retry,
    Step,
    Workflow,
)
from penstock.plan.make import make
from penstock.testing import run_virtually
from tests.formats.corpus import files, label, needs_corpus

PRIVATE = Cache(enabled=False)


def pod(**container: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "busybox", "command": ["true"], **container}]}


def job(spec: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work"},
        "spec": {"backoffLimit": 0, **fields, "template": {"spec": spec or pod()}},
    }


def read(data: dict[str, Any]) -> Read:
    found = library([("job.yaml", yaml.safe_dump(data, sort_keys=False))])
    result = read_job(found, found.documents[0])
    assert check.errors(result.workflow) == []
    assert codec.from_data(codec.to_data(result.workflow)) == result.workflow
    return result


def step(data: dict[str, Any]) -> Step:
    (found,) = read(data).workflow.steps
    return found


def changed(data: dict[str, Any]) -> list[str]:
    return [entry.path for entry in read(data).report.of("changed")]


# -- in ---------------------------------------------------------------------------------------------------------------


def test_one_pod_is_one_step() -> None:
    workflow = read(job()).workflow
    assert (workflow.name, workflow.steps[0].name) == ("work", "main")
    assert workflow.steps[0].action == Container(image="busybox", command=("true",))
    assert workflow.steps[0].each is None and workflow.steps[0].cache == PRIVATE


def test_completions_are_tasks_so_many_at_a_time() -> None:
    found = step(job(completions=10, parallelism=3, completionMode="Indexed"))
    assert found.each == ForEach(axes=({"index": Expr.of("range(10)")},), parallel=3)
    assert isinstance(found.action, Container)
    assert found.action.env == {"JOB_COMPLETION_INDEX": Expr.of("item.index")}
    plain = step(job(completions=10, parallelism=10))
    assert plain.each == ForEach(axes=({"index": Expr.of("range(10)")},))
    assert isinstance(plain.action, Container) and plain.action.env == {}


def test_each_task_knows_its_number() -> None:
    entry = {
        "name": "N",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}},
    }
    data = job(pod(env=[entry], args=["--n=$(N)"]), completions=3, parallelism=2, completionMode="Indexed")
    report = run_virtually(read(data).workflow, script=lambda order: 1.0)
    found = [(order.action.env["N"], list(order.action.args)) for order in report.backend.specs]
    assert sorted(found) == [(0, ["--n=0"]), (1, ["--n=1"]), (2, ["--n=2"])]
    assert report.backend.most == 2


def test_a_work_queue_is_over_when_all_have_succeeded() -> None:
    data = job(parallelism=4)
    assert step(data).each == ForEach(axes=({"index": Expr.of("range(4)")},))
    assert "spec.parallelism" in changed(data)


@pytest.mark.parametrize("fields", [{"completions": 0}, {"completions": 0, "parallelism": 3}])
def test_nothing_to_do(fields: dict[str, Any]) -> None:
    report = run_virtually(read(job(**fields)).workflow)
    assert (report.state, report.backend.specs) == ("succeeded", [])


def test_what_holds_a_job_back_is_left_to_the_queue() -> None:
    data = job(suspend=True, parallelism=0, completions=2)
    assert {"spec.suspend", "spec.parallelism"} <= set(changed(data))
    assert run_virtually(read(data).workflow).state == "succeeded"


def test_tries_and_deadlines() -> None:
    assert step(job(backoffLimit=None)).retry == Retry(limit=6, backoff=JOB_BACKOFF)
    assert step(job(backoffLimit=None, backoffLimitPerIndex=2)).retry == Retry(limit=2, backoff=JOB_BACKOFF)
    data = job({**pod(), "activeDeadlineSeconds": 5}, activeDeadlineSeconds=60)
    assert (read(data).workflow.timeout, step(data).timeout) == (60, 5)
    late = run_virtually(read(job(activeDeadlineSeconds=60, backoffLimit=9)).workflow, script=lambda order: 100.0)
    assert (late.state, late.seconds) == ("failed", 60)


def test_a_pod_failure_policy_is_told_if_it_is_passed_over() -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    data = job(backoffLimit=2, podFailurePolicy={"rules": [rule]})
    assert "spec.podFailurePolicy.rules[0]" in changed(data)
    assert step(data).extra["job"]["podFailurePolicy"]["rules"][0]["action"] == "Ignore"


def test_queue_and_priority() -> None:
    data = job()
    data["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": "p"}
    workflow = read(data).workflow
    assert (workflow.queue, workflow.priority, workflow.labels) == ("q", "p", {})
    assert make(workflow, {}).stages[0].queue == "q"
    data["metadata"] = {"generateName": "work-", "annotations": {"kueue.x-k8s.io/queue-name": "q"}}
    assert (read(data).workflow.name, read(data).workflow.queue) == ("work", "q")


def test_a_cron_job_is_run_once() -> None:
    data = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 3 * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": job()["spec"]}},
    }
    assert read(data).workflow.name == "nightly"
    assert changed(data) == ["spec.schedule", "spec.concurrencyPolicy"]


def test_a_pod() -> None:
    data = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {**pod(), "restartPolicy": "OnFailure"},
    }
    assert step(data).retry == Retry(limit=10_000_000, backoff=POD_BACKOFF)
    assert step(data | {"spec": {**pod(), "restartPolicy": "Never"}}).retry is None
    assert "spec.restartPolicy" in changed(data | {"spec": pod()})


@pytest.mark.parametrize(
    "data, code, where",
    [
        ({**job(), "spec": {}}, "P835", "spec.template"),
        (job({"containers": []}), "P835", "spec.template.spec.containers"),
        (job(pod(image=None)), "P835", "spec.template.spec.containers[0].image"),
        (job(completions="three"), "P835", "spec.completions"),
        (job(completions=10**9), "P835", "spec.completions"),
        (job(completionMode="Sorted"), "P835", "spec.completionMode"),
        (job(activeDeadlineSeconds=0), "P835", "spec.activeDeadlineSeconds"),
        (job(pod(command="true")), "P835", "spec.template.spec.containers[0].command"),
        (job(pod(env=[{"value": "x"}])), "P835", "spec.template.spec.containers[0].env[0]"),
        (
            job({**pod(volumeMounts=[{"name": "v", "mountPath": "/v"}]), "volumes": [{"name": "w", "emptyDir": {}}]}),
            "P832",
            "spec.template.spec.containers[0].volumeMounts[0].name",
        ),
    ],
)
def test_refused_with_place_and_fix(data: dict[str, Any], code: str, where: str) -> None:
    with pytest.raises(UserError) as caught:
        read(data)
    assert (code, where) in [(problem.code, problem.where) for problem in caught.value.problems]
    assert all(problem.fix and problem.source is not None for problem in caught.value.problems)


def examples(path: Path) -> list[tuple[Library, Document]]:
    found = library([(label(path), path.read_text())])
    kinds = {("batch", "Job"), ("batch", "CronJob"), ("", "Pod")}
    return [(found, document) for document in found.documents if (document.group, document.kind) in kinds]


@needs_corpus
@pytest.mark.parametrize("path", files("jobset", "kueue"), ids=label)
def test_every_example_reads_and_reads_again_after_writing(path: Path) -> None:
    for found, document in examples(path):
        result = read_job(found, document)
        assert check.errors(result.workflow) == []
        assert result.report.of("lost") == []
        make(result.workflow, {})
        written = write_job(result.workflow)
        assert written.report.of("lost") == []
        again = Document(json.loads(json.dumps(written.documents[-1])))
        back = read_job(Library((again,)), again).workflow
        if document.kind == "Pod":  # a Job waits a little longer between tries
            assert back.steps[0].action == result.workflow.steps[0].action
        else:
            assert back == result.workflow


@needs_corpus
def test_there_are_examples() -> None:
    assert sum(len(examples(path)) for path in files("jobset", "kueue")) > 10


# -- out --------------------------------------------------------------------------------------------------------------


def container(name: str, *words: Any, **more: Any) -> Step:
    env = more.pop("env", {})
    return Step(name=name, action=Container(image="busybox", command=words or ("true",), env=env), **more)


def flow(*made: Step, **more: Any) -> Workflow:
    return Workflow(name="flow", steps=made, **more)


_number = Expr.of("item.index")
_words = st.lists(
    st.text(st.sampled_from("ab $()'\n"), max_size=5) | st.sampled_from(["$(A)", "$$", "$(PENSTOCK_REPLICA)"]),
    max_size=3,
)
_numbered = st.sampled_from([_number, Template(("--n=", _number)), Template((_number, "$"))])


@st.composite
def _workflows(draw: st.DrawFn) -> Workflow:
    kind = draw(st.sampled_from(["one", "gang", "loop"]))
    words = draw(_words)
    more: dict[str, Any] = {}
    env: dict[str, Any] = draw(st.dictionaries(st.sampled_from("AB"), st.sampled_from(["", "x", "$(A)", "$$(A)"])))
    if kind == "gang":
        more["replicas"] = draw(st.integers(2, 5))
    elif kind == "loop":
        words = [*[word for word in words if "REPLICA" not in word], draw(_numbered)]
        env |= draw(st.sampled_from([{}, {"N": _number}]))
        count = draw(st.integers(2, 9))
        parallel = draw(st.none() | st.integers(1, count - 1))
        more["each"] = ForEach(axes=({"index": Expr.of(f"range({count})")},), parallel=parallel)
    else:
        words = [word for word in words if "REPLICA" not in word]
    made = Step(
        name="main",
        action=Container(image="busybox", command=("go", *words), env=env),
        retry=draw(st.none() | st.just(Retry(limit=3, backoff=JOB_BACKOFF, exit_codes=(7,)))),
        timeout=draw(st.none() | st.integers(1, 99)),
        resources=draw(st.sampled_from([{}, {"cpu": 1500, "nvidia.com/gpu": 2000}])),
        mounts=draw(st.sampled_from([(), (Mount(name="m", path="/m"),)])),
        cache=PRIVATE,
        **more,
    )
    return Workflow(name="flow", steps=(made,), queue="q", timeout=draw(st.none() | st.integers(1, 99)))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_workflows())
def test_what_both_can_say_comes_back(workflow: Workflow) -> None:
    written = write_job(workflow)
    assert written.report.of("lost") == []
    (document,) = json.loads(json.dumps(written.documents))
    assert read_job(Library(()), Document(document)).workflow == workflow


def test_a_job_for_each_step() -> None:
    documents = write_job(flow(container("a"), container("b_2"), queue="q", fail_fast=True)).documents
    assert [document["metadata"]["name"] for document in documents] == ["flow-a", "flow-b-2"]
    assert all(one["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "q"} for one in documents)


def test_an_order_is_refused_and_the_edge_named() -> None:
    inner = Workflow(name="inner", steps=(container("x"),))
    call = Step(name="call", action=Nested(name="inner"))
    last = container("b", needs=(Edge("call"),), source=Source("flow.py", 3))
    with pytest.raises(UserError) as caught:
        write_job(flow(call, last, definitions=(inner,)))
    (problem,) = caught.value.problems
    assert (problem.code, problem.where, problem.source) == ("P859", "steps.b.needs", Source("flow.py", 3))
    assert "b waits for call-x" in problem.message


def test_values_from_another_step_are_refused() -> None:
    first = container("a", outputs=(Output(name="n"),))
    second = container("b", "go", Expr.of("inputs.n"), inputs=(Input(name="n", value=Expr.of("steps.a.outputs.n")),))
    with pytest.raises(UserError) as caught:
        write_job(flow(first, second))
    assert {problem.code for problem in caught.value.problems} == {"P856", "P859"}


def test_nothing_to_write() -> None:
    never = container("a", when=Expr.of("params.on"))
    with pytest.raises(UserError) as caught:
        write_job(flow(never, params=(Parameter(name="on", default=False),)))
    assert caught.value.code == "P859"


def test_pods_of_a_job_have_an_end() -> None:
    """What a Pod may say of its restarts is not all that a Job may say."""
    data = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {**pod(), "restartPolicy": "Always"}}
    (document,) = write_job(read(data).workflow).documents
    assert document["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_shared_folders_are_claims() -> None:
    written = write_job(flow(container("a", mounts=(Mount(name="data", path="/d", scope="run"),))))
    claim, document = written.documents
    assert (claim["kind"], claim["metadata"]["name"]) == ("PersistentVolumeClaim", "data-flow")
    volume = document["spec"]["template"]["spec"]["volumes"][0]
    assert volume["persistentVolumeClaim"] == {"claimName": "data-flow"}


def test_a_failure_that_is_tolerated_is_lost() -> None:
    written = write_job(flow(replace(container("a"), tolerates=frozenset({Outcome.FAILED}))))
    assert "steps.a.tolerates" in [entry.path for entry in written.report.of("lost")]
