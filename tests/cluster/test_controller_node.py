"""The controller on a real node: containers that end when they are told to, with exit code 143, and engines whose own programs run in the pods.

An evicted stage goes back into its queue and continues, whatever the kubelet, Argo's executor and Tekton's entrypoint report of the pods that were
ended; and the pipeline of KEP-74's fourth story passes its result on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.controller.objects import holds, rows
from testbed import binaries
from testbed.images import BUSYBOX
from testbed.instance import Testbed
from tests.cluster import tekton_runs, test_jobset
from tests.cluster.argo_runs import create, flow, node, step, until, until_over
from tests.cluster.controlled import ALL, Controlled, Witness
from tests.cluster.kueue_protocol import Desk
from tests.cluster.tekton_runs import pipeline, results, run, task_runs
from tests.cluster.test_controller_argo import finished, is_now, queued
from tests.cluster.test_jobset import jobset

Object = dict[str, Any]
PROGRAMS = ["argoexec", "tekton-entrypoint", "tekton-nop", "tekton-workingdirinit"]
PATIENCE = 240
SMALL = {"requests": {"cpu": "100m"}}
LONG = "sleep 8; echo done"


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    if absent := binaries.missing(PROGRAMS):
        pytest.skip(f"not built: {', '.join(absent)}")
    return testbed("node", "kueue", "argo", "tekton", "jobset")


@pytest.fixture(scope="module")
def controller(bed: Testbed) -> Iterator[Controlled]:
    with Controlled(bed, ALL) as found:
        yield found


@pytest.fixture
def desk(bed: Testbed, controller: Controlled) -> Desk:
    found = Desk(bed)
    found.queue("main", "200m", preemption={"withinClusterQueue": "LowerPriority"})
    return found


def preempt(bed: Testbed, desk: Desk, stage: str) -> None:
    """Takes all the quota away for a moment, once the stage runs."""
    bed.wait(lambda: is_now(desk, stage, "PodsReady"), f"{stage} to run", PATIENCE)
    desk.workload("urgent", count=2, cpu="100m", priority=100)
    bed.wait(lambda: holds(desk.get("urgent"), "Admitted"), "the urgent one to be admitted", PATIENCE)
    running = [one for one in bed.objects("v1", "pods", desk.namespace) if one["status"]["phase"] == "Running"]
    assert not running, "pods run on quota that was given away"
    desk.finish("urgent")


def codes(witness: Witness) -> set[int]:
    """Exit codes of all containers that were seen to end."""
    ended = (
        one.get("state", {}).get("terminated", {})
        for _, _, kind, pod in witness.events
        if kind == "Pod"
        for one in rows(pod, "status", "containerStatuses")
    )
    return {one["exitCode"] for one in ended if "exitCode" in one}


def test_an_evicted_stage_of_argo_continues(bed: Testbed, desk: Desk) -> None:
    """No try is allowed, so a pod that counted as failed would fail the workflow."""

    def shell(name: str, source: str, *inputs: str) -> Object:
        script = {"image": BUSYBOX, "command": ["sh"], "source": source, "resources": SMALL}
        return {"name": name, "script": script, "inputs": {"parameters": [{"name": one} for one in inputs]}}

    group = [{"name": "short", "template": "short"}, {"name": "long", "template": "long"}]
    given = {"one": "{{steps.short.outputs.result}}", "two": "{{steps.long.outputs.result}}"}
    say = shell("say", "echo '{{inputs.parameters.one}} and {{inputs.parameters.two}}'", "one", "two")
    # Argo keeps what a step prints if another one reads it.
    hear = step("hear", "hear", one="{{steps.say.outputs.result}}")
    document = flow(
        "w",
        [group, step("say", "say", **given), hear],
        shell("short", "echo first"),
        shell("long", LONG),
        say,
        shell("hear", "true", "one"),
    )
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(document))
        before = until(bed, desk.namespace, "w", "short", "Succeeded", PATIENCE)
        preempt(bed, desk, "main[0]")
        found = until_over(bed, desk.namespace, "w", PATIENCE)
        assert found["status"]["phase"] == "Succeeded", found["status"].get("message")
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
    assert node(found, "short")["startedAt"] == node(before, "short")["startedAt"]
    assert node(found, "say")["outputs"]["result"] == "first and done"
    assert codes(witness) >= {0, 143}
    witness.check()


def task(name: str, source: str, params: dict[str, str] | None = None, result: str = "") -> Object:
    given = params or {}
    one = {"name": "main", "image": BUSYBOX, "script": f"#!/bin/sh\n{source}\n", "computeResources": SMALL}
    spec: Object = {"steps": [one], "params": [{"name": key, "type": "string"} for key in given]}
    spec |= {"results": [{"name": result}]} if result else {}
    return {"name": name, "taskSpec": spec, "params": [{"name": key, "value": text} for key, text in given.items()]}


def succeeds(bed: Testbed, desk: Desk) -> Object:
    found = tekton_runs.ended(bed, desk.namespace, "PipelineRun", "p", PATIENCE)
    assert tekton_runs.condition(found)["status"] == "True", tekton_runs.condition(found)
    bed.wait(lambda: finished(desk), "all Workloads to be finished")
    return found


def test_story_4_the_pipeline_with_its_result_passed_on(bed: Testbed, desk: Desk) -> None:
    generate = 'printf "%$(params.length)s" "" | tr " " "$(params.char)" > $(results.word.path)'
    passed = {"word": "$(tasks.generate-result.results.word)"}
    spec = pipeline(
        task("generate-result", generate, {"length": "3000", "char": "."}, "word"),
        task("print-result", "echo -n '<$(params.word)>' > $(results.said.path)", passed, "said"),
        results=[{"name": "said", "value": "$(tasks.print-result.results.said)"}],
    )
    with Witness(bed, desk.namespace) as witness:
        tekton_runs.create(bed, desk.namespace, queued(run("PipelineRun", "p", spec)))
        assert results(succeeds(bed, desk)) == {"said": f"<{'.' * 3000}>"}
    witness.check()


def test_an_evicted_stage_of_tekton_continues(bed: Testbed, desk: Desk) -> None:
    spec = pipeline(task("fast", "true"), task("slow", LONG))
    with Witness(bed, desk.namespace) as witness:
        tekton_runs.create(bed, desk.namespace, queued(run("PipelineRun", "p", spec)))
        bed.wait(lambda: is_now(desk, "fast", "Finished"), "the fast one to end", PATIENCE)
        before = task_runs(bed, desk.namespace)
        preempt(bed, desk, "slow")
        succeeds(bed, desk)
    after = task_runs(bed, desk.namespace)
    assert after["fast"]["metadata"]["uid"] == before["fast"]["metadata"]["uid"]
    assert after["slow"]["metadata"]["uid"] != before["slow"]["metadata"]["uid"]
    assert not after["slow"]["status"].get("retriesStatus")
    witness.check()


def test_an_evicted_stage_of_a_job_set_continues(bed: Testbed, desk: Desk) -> None:
    """Its Jobs allow no failed pod. The index that was over is not run again."""
    source = 'if [ "$JOB_COMPLETION_INDEX" = 1 ]; then ' + LONG + "; fi"
    container = {"name": "main", "image": BUSYBOX, "command": ["sh", "-c", source], "resources": SMALL}
    pod = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 0}
    document = jobset({"name": "a", "template": {"spec": {**spec, "template": {"spec": pod}}}}, name="j")
    with Witness(bed, desk.namespace) as witness:
        where = test_jobset.create(bed, desk.namespace, queued(document, unit="stage"))
        preempt(bed, desk, "a")
        test_jobset.reaches(bed, where, "Completed")
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
    ran = {
        pod["metadata"]["uid"]: pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
        for _, _, kind, pod in witness.events
        if kind == "Pod" and pod["status"]["phase"] == "Running"
    }
    assert sorted(ran.values()) in (["0", "1", "1"], ["0", "0", "1", "1"])
    witness.check()


def test_an_evicted_matrix_of_tekton_continues(bed: Testbed, desk: Desk) -> None:
    """Its TaskRuns stay and get other pods. The one that was over is not run again, and no container that was ended counts as a failure."""
    source = 'if [ "$(params.word)" = long ]; then ' + LONG + '; fi; printf "$(params.word)" > $(results.said.path)'
    each = task("each", source, {"word": ""}, "said")
    each |= {"params": [], "matrix": {"params": [{"name": "word", "value": ["short", "long"]}]}}
    with Witness(bed, desk.namespace) as witness:
        tekton_runs.create(bed, desk.namespace, queued(run("PipelineRun", "p", pipeline(each))))
        bed.wait(lambda: _over(bed, desk) == 1, "the short one to end", PATIENCE)
        before = {one["metadata"]["uid"] for one in bed.objects(tekton_runs.API, "taskruns", desk.namespace)}
        preempt(bed, desk, "each")
        succeeds(bed, desk)
    after = bed.objects(tekton_runs.API, "taskruns", desk.namespace)
    assert sorted(one["status"]["results"][0]["value"] for one in after) == ["long", "short"]
    assert {one["metadata"]["uid"] for one in after} == before
    assert not any(one["status"].get("retriesStatus") for one in after)
    ran: dict[str, set[str]] = {}
    for _, _, kind, pod in witness.events:
        if kind == "Pod" and pod["status"].get("phase") == "Running":
            ran.setdefault(pod["metadata"]["labels"]["tekton.dev/taskRun"], set()).add(pod["metadata"]["uid"])
    assert sorted(len(uids) for uids in ran.values()) == [1, 2]
    witness.check()


def _over(bed: Testbed, desk: Desk) -> int:
    found = bed.objects(tekton_runs.API, "taskruns", desk.namespace)
    return sum(tekton_runs.condition(one).get("status") == "True" for one in found)
