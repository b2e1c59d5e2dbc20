"""The witness sees what it is there for: a pod of a queued workflow that no policy holds, because it lacks the label by which pods are held."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.controller.names import QUEUE
from testbed.instance import Testbed
from tests.cluster import argo_runs, tekton_runs
from tests.cluster.agreement import tekton
from tests.cluster.argo_runs import fake, flow, step
from tests.cluster.controlled import Witness
from tests.cluster.support import fresh_namespace, unique

LABELS = {QUEUE: "main"}


@pytest.fixture
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kueue", "kwok", "argo", "tekton", nodes=4, tekton={"features": tekton.FEATURES})


@pytest.mark.parametrize("labels", [{}, LABELS])
def test_a_pod_of_a_queued_workflow_without_the_label_is_seen(bed: Testbed, labels: dict[str, str]) -> None:
    """No controller runs, so nobody labels them. Argo's pod is owned by its Workflow, Tekton's by a TaskRun of its PipelineRun."""
    namespace, name = fresh_namespace(bed), unique("w")
    workflow = flow(name, [step("a", "one")], fake("one", cpu="1"))
    task = {"name": "a", "taskSpec": tekton_runs.fake_task(cpu="1")}
    run = tekton_runs.run("PipelineRun", name, tekton_runs.pipeline(task))
    for document in (workflow, run):
        document["metadata"]["labels"] = labels
    with Witness(bed, namespace) as witness:
        argo_runs.create(bed, namespace, workflow)
        argo_runs.until_over(bed, namespace, name)
        tekton_runs.create(bed, namespace, run)
        # Tekton copies the label to the pod, and Kueue holds it: it does not end.
        bed.wait(lambda: len(_pods(witness)) == 2, "both pods")
    if not labels:
        assert witness.check()["moments"]
        return
    with pytest.raises(AssertionError, match=f"of Workflow/{name} has no label penstock/queue"):
        witness.check()
    with pytest.raises(AssertionError, match=f"of (PipelineRun|TaskRun)/{name}\\S* has no label penstock/queue"):
        witness.check(exempt=(f"'workflows.argoproj.io/workflow': '{name}'",))
    assert witness.check(exempt=(name,))["moments"], "exempt by name"


def _pods(witness: Witness) -> set[str]:
    return {one["metadata"]["name"] for _, _, kind, one in list(witness.events) if kind == "Pod"}
