"""Stages of Argo that are stopped on a real node, with Argo as users have it: it looks at a workflow ten seconds after a change, and pods take their time to end.

While a pod ends, Argo must not judge it, and its name must not be given to the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.controller.objects import holds, name_of, rows
from testbed import binaries
from testbed.images import BUSYBOX
from testbed.instance import Testbed
from tests.cluster.argo_runs import create, flow, node, step, until, until_over
from tests.cluster.controlled import Controlled, Witness
from tests.cluster.kueue_protocol import Desk
from tests.cluster.test_controller_argo import QUEUE, finished, is_now, queued

Object = dict[str, Any]
PATIENCE = 300
SMALL = {"requests": {"cpu": "100m"}}
SLOW = "trap 'sleep 12; exit 7' TERM; sleep 25 & wait $!; echo done"
"""Takes longer to end than Argo takes to look."""
DEAF = "trap '' TERM; sleep 25; echo done"
"""Ends when it is killed: after the ten seconds that the pod has."""


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    if absent := binaries.missing(["argoexec"]):
        pytest.skip(f"not built: {', '.join(absent)}")
    return testbed("node", "kueue", "argo", argo={"requeue": "10s"})


@pytest.fixture(scope="module")
def controller(bed: Testbed) -> Iterator[Controlled]:
    with Controlled(bed, ["argo"]) as found:
        yield found


@pytest.fixture
def desk(bed: Testbed, controller: Controlled) -> Desk:
    found = Desk(bed)
    found.queue("main", "200m", preemption={"withinClusterQueue": "LowerPriority"})
    return found


def shell(name: str, source: str, *inputs: str, grace: int = 30) -> Object:
    script = {"image": BUSYBOX, "command": ["sh"], "source": source, "resources": SMALL}
    patch = f"terminationGracePeriodSeconds: {grace}"
    found = {"name": name, "script": script, "podSpecPatch": patch}
    return found | {"inputs": {"parameters": [{"name": one} for one in inputs]}}


@pytest.mark.parametrize(("source", "code"), [("sleep 20; echo done", 143), (SLOW, 7), (DEAF, 137)])
def test_a_stage_that_ends_in_its_own_time_continues(bed: Testbed, desk: Desk, source: str, code: int) -> None:
    """No try is allowed, so a pod that counted as failed would fail the workflow."""
    group = [{"name": "short", "template": "short"}, {"name": "long", "template": "long"}]
    said = step("say", "say", two="{{steps.long.outputs.result}}")
    document = flow(
        "w",
        [group, said],
        shell("short", "echo first"),
        shell("long", source, grace=10 if code == 137 else 30),
        shell("say", "echo '{{inputs.parameters.two}}'", "two"),
    )
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(document))
        before = until(bed, desk.namespace, "w", "short", "Succeeded", PATIENCE)
        bed.wait(lambda: is_now(desk, "main[0]", "PodsReady"), "the stage to run", PATIENCE)
        desk.workload("urgent", count=2, cpu="100m", priority=100)
        bed.wait(lambda: holds(desk.get("urgent"), "Admitted"), "the urgent one to be admitted", PATIENCE)
        running = [one for one in bed.objects("v1", "pods", desk.namespace) if one["status"]["phase"] == "Running"]
        assert not running, "pods run on quota that was given away"
        desk.finish("urgent")
        found = until_over(bed, desk.namespace, "w", PATIENCE)
        assert found["status"]["phase"] == "Succeeded", found["status"].get("message")
        bed.wait(lambda: finished(desk), "all Workloads to be finished")
    assert node(found, "short")["startedAt"] == node(before, "short")["startedAt"]
    assert {"name": "two", "value": "done"} in node(found, "say")["inputs"]["parameters"]
    assert code in ends(witness, "long"), "the pod did not end as this test wants it to"
    witness.check()


def ends(witness: Witness, task: str) -> set[int]:
    """Exit codes of the main containers of one task."""
    ended = (
        one.get("state", {}).get("terminated", {})
        for _, _, kind, pod in witness.events
        if kind == "Pod" and f"-{task}-" in name_of(pod)
        for one in rows(pod, "status", "containerStatuses")
        if one["name"] == "main"
    )
    return {one["exitCode"] for one in ended if "exitCode" in one}


JOB = f"""\
apiVersion: batch/v1
kind: Job
metadata:
  name: made
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: main, image: "{BUSYBOX}", command: [sh, -c, "sleep {{{{workflow.parameters.n}}}}"], resources: {{requests: {{cpu: 100m}}}}}}]
"""


def test_a_job_that_a_step_creates_waits_by_itself(bed: Testbed, desk: Desk) -> None:
    """Kueue lets it go when there is quota, and Argo's step waits until it is over."""
    may_create_jobs(bed, desk.namespace)
    desk.workload("other", count=2, cpu="100m", priority=100)
    bed.wait(lambda: holds(desk.get("other"), "Admitted"), "the other one to be admitted")
    resource = {"action": "create", "manifest": JOB, "successCondition": "status.succeeded > 0"}
    document = flow("w", [step("make", "make")], {"name": "make", "resource": resource})
    document["spec"]["arguments"] = {"parameters": [{"name": "n", "value": "5"}]}
    where = f"/apis/batch/v1/namespaces/{desk.namespace}/jobs/made"
    with Witness(bed, desk.namespace) as witness:
        create(bed, desk.namespace, queued(document))
        made = bed.wait(lambda: bed.found(where), "the Job", PATIENCE)
        assert made["metadata"]["labels"][QUEUE] == "main"
        bed.wait(lambda: desk.read(desk.path("workloads"))["items"][1:], "a Workload of its own", PATIENCE)
        assert bed.get(where)["spec"]["suspend"], "it waits"
        desk.finish("other")
        found = until_over(bed, desk.namespace, "w", PATIENCE)
        assert found["status"]["phase"] == "Succeeded", found["status"].get("message")
    assert witness.most_held("cpu") == 0, "the stage asked for the pods of the Job, too"


def may_create_jobs(bed: Testbed, namespace: str) -> None:
    """The service account that workflows of this namespace run as."""
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "jobs", "namespace": namespace}}
    role = {"kind": "Role", "name": "jobs", "apiGroup": "rbac.authorization.k8s.io"}
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]}]
    account = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    bed.apply(
        [
            rbac | {"kind": "Role", "rules": rules},
            rbac | {"kind": "RoleBinding", "roleRef": role, "subjects": [account]},
        ]
    )
