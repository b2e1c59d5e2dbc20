"""What a user or a cluster gets wrong, with the controller on the real engines and the real Kueue: an Event and `penstock why` say the reason and the fix, and
the controller goes on with the others.

A queue that there is not, what can never fit, what nobody can size, an object that cannot be read, a Workload that is deleted by hand, a webhook that is half
installed; Kueue missing and older in the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.cli.main import run as penstock
from penstock.controller.names import MANAGER, UNIT
from penstock.kubernetes.client import Client
from penstock.kubernetes.kubeconfig import connect
from testbed.components.kwok import RUN_TIME
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster import tekton_runs
from tests.cluster.argo_runs import create, fake, flow, path, pods, step, until, until_over
from tests.cluster.controlled import ALL, OWNERS, Controlled
from tests.cluster.kueue_protocol import Desk, holds
from tests.cluster.support import fresh_namespace
from tests.cluster.tekton_runs import fake_task, pipeline
from tests.cluster.test_controller_argo import finished, is_now, loop, pending, queued, workloads
from tests.cluster.test_jobset import after, job, jobset

Object = dict[str, Any]
Told = Callable[[str, str, str], str]
HOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/admission.penstock"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
KIND = {"argo": "workflow", "tekton": "pipelinerun", "jobset": "jobset"}


@pytest.fixture(scope="module")
def bed(testbed: Callable[..., Testbed]) -> Testbed:
    return testbed("kueue", "kwok", "argo", "tekton", "jobset")


@pytest.fixture(scope="module")
def controller(bed: Testbed) -> Iterator[Controlled]:
    with Controlled(bed, ALL) as found:
        yield found


@pytest.fixture
def desk(bed: Testbed, controller: Controlled) -> Desk:
    return Desk(bed)


@pytest.fixture
def why(bed: Testbed, desk: Desk, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    def ask(target: str) -> str:
        assert penstock(["why", target, "-n", desk.namespace, "--kubeconfig", str(bed.kubeconfig)]) == 0
        return capsys.readouterr().out

    return ask


def told(bed: Testbed, namespace: str, reason: str, name: str = "w") -> str:
    """The message of the controller's Event of this reason."""

    def look() -> str | None:
        found = bed.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
        mine = [one for one in found if one["regarding"]["name"] == name and one["reason"] == reason]
        return next((one["note"] for one in mine if one["reportingController"] == MANAGER), None)

    return bed.wait(look, f"an Event {reason}", 60)


def others_go_on(bed: Testbed, desk: Desk, queue: str = "spare") -> None:
    """A workflow beside it ends as if nothing were wrong."""
    desk.queue(queue, "1")
    create(bed, desk.namespace, queued(flow("fine", [step("a", "a")], fake("a", cpu="1")), queue=queue))
    assert until_over(bed, desk.namespace, "fine")["status"]["phase"] == "Succeeded"


def two_steps(engine: str, cpu: str, queue: str = "main", unit: str = "") -> Object:
    if engine == "argo":
        document = flow("w", [step("a", "a"), step("b", "a")], fake("a", cpu=cpu))
    elif engine == "tekton":
        tasks = [{"name": name, "taskSpec": fake_task(cpu=cpu)} for name in "ab"]
        document = tekton_runs.run("PipelineRun", "w", pipeline(tasks[0], {**tasks[1], "runAfter": ["a"]}))
    else:
        document = jobset(job("a"), job("b", dependsOn=after("a")), name="w")
        for one in document["spec"]["replicatedJobs"]:
            container = one["template"]["spec"]["template"]["spec"]["containers"][0]
            container["resources"]["requests"]["cpu"] = cpu
    return queued(document, queue=queue, unit=unit)


def submit(bed: Testbed, namespace: str, document: Object) -> None:
    bed.raw("POST", OWNERS[document["kind"]].path(namespace), document)


def versions(desk: Desk) -> dict[str, str]:
    found = desk.read(desk.path("workloads"))["items"]
    return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in found}


def is_quiet(bed: Testbed, desk: Desk, seconds: float = 4.0) -> None:
    """Nobody writes the Workloads: neither we nor Kueue go on without end."""
    bed.wait(lambda: _still(desk, 1.0), "the first writes to be over", 60)
    before, ends = versions(desk), time.monotonic() + seconds
    bed.wait(lambda: time.monotonic() > ends, "some seconds")
    assert versions(desk) == before


def _still(desk: Desk, seconds: float) -> bool:
    before = versions(desk)
    time.sleep(seconds)
    return bool(before) and versions(desk) == before


@pytest.mark.parametrize("engine", list(KIND))
def test_a_queue_that_there_is_not(bed: Testbed, desk: Desk, why: Callable[[str], str], engine: str) -> None:
    """Nobody writes its Workloads meanwhile; and when the queue is made, it goes on."""
    desk.queue("main", "2")
    submit(bed, desk.namespace, two_steps(engine, "1", queue="mian"))
    said = told(bed, desk.namespace, "NoQueue")
    assert "there is no LocalQueue 'mian'" in said and "Create that LocalQueue" in said
    is_quiet(bed, desk)
    shown = why(f"{KIND[engine]}/w")
    assert f"there is no LocalQueue {desk.namespace}/mian" in shown and "Did you mean" in shown
    desk.queue("mian", "2")
    bed.wait(lambda: len(versions(desk)) == 2 and finished(desk), "it to go on and end", 90)


@pytest.mark.parametrize("local", [False, True])
def test_a_queue_that_is_stopped(bed: Testbed, desk: Desk, why: Callable[[str], str], local: bool) -> None:
    desk.queue("main", "2")
    desk.stop_queue("Hold", local=local)
    submit(bed, desk.namespace, two_steps("argo", "1"))
    bed.wait(lambda: len(versions(desk)) == 2, "its places", 60)
    is_quiet(bed, desk)
    assert "stop" in why("workflow/w")
    desk.stop_queue("None", local=local)
    bed.wait(lambda: finished(desk), "it to go on and end", 90)


@pytest.mark.parametrize(("engine", "unit"), [("argo", ""), ("argo", "task"), ("tekton", ""), ("jobset", "")])
def test_what_can_never_fit(bed: Testbed, desk: Desk, why: Callable[[str], str], engine: str, unit: str) -> None:
    full = desk.queue("main", "2")
    submit(bed, desk.namespace, two_steps(engine, "3", unit=unit))
    said = told(bed, desk.namespace, "NeverFits")
    assert "maximum capacity (2)" in said and "Ask for less" in said
    shown = why(f"{KIND[engine]}/w")
    assert "it asks for 3 cpu, and the queue can have 2 at most" in shown and f"clusterqueue {full}" in shown
    others_go_on(bed, desk)


def test_nodes_that_no_flavor_has(bed: Testbed, desk: Desk, why: Callable[[str], str]) -> None:
    full = desk.queue("main", "2")
    labels = {"spec": {"nodeLabels": {"pool": "a"}}}
    desk.send("PATCH", f"/apis/kueue.x-k8s.io/v1beta2/resourceflavors/{full}", labels, "application/merge-patch+json")
    document = two_steps("argo", "1")
    document["spec"]["templates"][1]["nodeSelector"] = {"pool": "b"}
    submit(bed, desk.namespace, document)
    assert "Choose other nodes" in told(bed, desk.namespace, "NeverFits")
    assert "flavor" in why("workflow/w")


def test_a_stage_of_unknown_size(bed: Testbed, desk: Desk, why: Callable[[str], str]) -> None:
    desk.queue("main", "1")
    desk.workload("other", cpu="1")
    desk.until_running("other")
    late = {**fake("late"), "inputs": {"parameters": [{"name": "cpu"}]}}
    asks = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "{{inputs.parameters.cpu}}"}}}]}
    late["podSpecPatch"] = json.dumps(asks)
    first = fake("first", result="500m")
    steps = [step("first", "first"), step("late", "late", cpu="{{steps.first.outputs.result}}")]
    create(bed, desk.namespace, queued(flow("w", steps, first, late)))
    said = told(bed, desk.namespace, "UnknownSize")
    assert "only the run knows" in said and "write its amounts as figures" in said
    assert "UnknownSize" in why("workflow/w")
    others_go_on(bed, desk)
    desk.finish("other")
    assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"


def test_an_object_that_cannot_be_read(
    bed: Testbed, controller: Controlled, desk: Desk, why: Callable[[str], str]
) -> None:
    """A word that nobody could have written into a new one: whoever acts for the controller puts it in. Put right, it goes on."""
    desk.queue("main", "1")
    desk.workload("other", cpu="1")
    desk.until_running("other")
    create(bed, desk.namespace, two_steps("argo", "1"))
    bed.wait(lambda: pending(desk, "main[0]"), "it to wait", 60)
    with Client(connect(files=[controller.kubeconfig])) as client:

        def unit(word: str) -> None:
            client.patch(OWNERS["Workflow"], desk.namespace, "w", {"metadata": {"labels": {UNIT: word}}})

        unit("pods")
        said = told(bed, desk.namespace, "Refused")
        assert "P886" in said and "write penstock/unit: one of" in said
        assert "P886" in why("workflow/w")
        others_go_on(bed, desk)
        unit("stage")
    desk.finish("other")
    assert until_over(bed, desk.namespace, "w")["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"templates": [{"name": "main", "steps": [[{"name": "a", "template": "nobody"}]]}]}, "nobody"),
        ({"workflowMetadata": {"labels": {"kueue.x-k8s.io/queue-name": "x"}}}, "P885"),
    ],
)
def test_what_cannot_be_queued_is_refused_when_it_is_created_or_by_its_engine(
    bed: Testbed, desk: Desk, change: Object, said: str
) -> None:
    desk.queue("main", "1")
    document = two_steps("argo", "1")
    document["spec"] |= change
    try:
        create(bed, desk.namespace, document)
    except ApiError as error:
        assert said in str(error) and "Fix: " in str(error)
    else:
        found = until_over(bed, desk.namespace, "w")
        assert found["status"]["phase"] in ("Error", "Failed") and said in found["status"]["message"]
        bed.wait(lambda: finished(desk), "nothing to be held")
    others_go_on(bed, desk)


def test_a_workload_that_is_deleted_by_hand(bed: Testbed, desk: Desk, why: Callable[[str], str]) -> None:
    desk.queue("main", "2")
    task = fake("task", cpu="1", run_time="forever")
    create(bed, desk.namespace, queued(flow("w", [loop("a", "task", "x", "y")], task)))
    bed.wait(lambda: is_now(desk, "main[0]", "PodsReady"), "its pods to run", 60)
    old = workloads(desk)["main[0]"]["metadata"]
    desk.send("DELETE", desk.path("workloads", old["name"]), None)
    said = told(bed, desk.namespace, "Stopped")
    assert f"Workload {old['name']} was deleted" in said and "Leave the Workloads" in said
    bed.wait(lambda: workloads(desk).get("main[0]", {"metadata": old})["metadata"]["uid"] != old["uid"], "another one")
    assert "Stopped" in why("workflow/w")
    others_go_on(bed, desk)


@pytest.mark.parametrize("kind", ["Workflow", "PipelineRun"])
def test_a_webhook_that_is_not_installed(
    bed: Testbed, controller: Controlled, desk: Desk, why: Callable[[str], str], kind: str
) -> None:
    """The policies refuse what it has not seen. If they are not there either, an Event says that nothing holds it."""
    desk.queue("main", "1")
    engine = {"Workflow": "argo", "PipelineRun": "tekton"}[kind]
    name = {"Workflow": "penstock-went-through-workflows", "PipelineRun": "penstock-went-through-runs"}[kind]
    hook = {key: bed.get(HOOK)[key] for key in ("apiVersion", "kind", "webhooks")}
    binding = {key: bed.get(f"{BINDINGS}/{name}")[key] for key in ("apiVersion", "kind", "spec")}
    bed.delete(HOOK)
    try:
        said = bed.wait(lambda: _refused(bed, desk.namespace, engine), "the API server to have taken it up", 60)
        assert "the webhook of Penstock has not seen this" in said and "penstock controller check" in said
        bed.delete(f"{BINDINGS}/{name}")
        bed.wait(lambda: not _refused(bed, desk.namespace, engine), "the API server to have taken it up", 60)
        document = two_steps(engine, "1")
        for one in document["spec"].get("templates", ())[1:]:
            one["metadata"] = {"annotations": {RUN_TIME: "20s"}}
        for one in document["spec"].get("pipelineSpec", {}).get("tasks", ()):
            one["taskSpec"]["metadata"] = {"annotations": {RUN_TIME: "20s"}}
        submit(bed, desk.namespace, document)
        said = told(bed, desk.namespace, "NotHeld")
        assert "created without the webhook" in said and "penstock controller check" in said
        shown = why(f"{KIND[engine]}/w")
        assert "NotHeld" in shown and "penstock controller check" in shown
    finally:
        bed.apply([hook | {"metadata": {"name": "admission.penstock"}}])
        bed.apply([binding | {"metadata": {"name": name}}])
        bed.wait(controller._in_force, "the API server to apply the policies", 60)
    bed.wait(lambda: _is_asked(bed, desk.namespace), "the webhook to be asked again", 60)
    others_go_on(bed, desk)


def _refused(bed: Testbed, namespace: str, engine: str) -> str:
    """The words with which a new run is refused; empty if it is not."""
    document = two_steps(engine, "1")
    try:
        bed.raw("POST", f"{OWNERS[document['kind']].path(namespace)}?dryRun=All", document)
    except ApiError as error:
        return str(error)
    return ""


def _is_asked(bed: Testbed, namespace: str) -> bool:
    document = two_steps("argo", "1")
    document["metadata"]["name"] = "probe"
    try:
        made = bed.raw("POST", f"{path(namespace)}?dryRun=All", document)
    except ApiError:
        return False
    return UNIT in made["metadata"]["labels"]


# -- without Kueue, or with an older one --------------------------------------------------------------------------------

GROUP = "kueue.x-k8s.io"
SCHEMA = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


def definition(kind: str, plural: str, namespaced: bool) -> Object:
    """Of an older Kueue."""
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": SCHEMA}
    spec = {"group": GROUP, "names": names, "scope": "Namespaced" if namespaced else "Cluster", "versions": [version]}
    api = "apiextensions.k8s.io/v1"
    return {
        "apiVersion": api,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": spec,
    }


OLDER = [
    definition("Workload", "workloads", True),
    definition("LocalQueue", "localqueues", True),
    definition("ClusterQueue", "clusterqueues", False),
    definition("ResourceFlavor", "resourceflavors", False),
]


def test_kueue_is_missing_and_then_too_old(testbed: Callable[..., Testbed], capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing starts, and both are said. Workflows without a queue go on."""
    bed = testbed("kwok", "argo")
    namespace = fresh_namespace(bed)

    def asked() -> str:
        words = ["why", "workflow/w", "-n", namespace, "--kubeconfig", str(bed.kubeconfig)]
        assert penstock(words) != 0
        return capsys.readouterr().err

    with Controlled(bed, ["argo"]):
        create(bed, namespace, queued(flow("w", [step("a", "a")], fake("a", cpu="1"))))
        until(bed, namespace, "w", "penstock-gate-0", "Running")
        said = told(bed, namespace, "KueueMissing")
        assert "Kueue is not installed, or too old" in said and "penstock controller check" in said
        shown = asked()
        assert "Kueue is not installed in this cluster" in shown and "install it" in shown
        bed.apply(OLDER)
        bed.wait(lambda: bed.found(f"/apis/{GROUP}/v1beta1/workloads"), "the older Kueue to be served", 60)
        create(bed, namespace, queued(flow("later", [step("a", "a")], fake("a", cpu="1"))))
        assert "too old" in told(bed, namespace, "KueueMissing", "later")
        bed.wait(lambda: "only v1beta1" in asked(), "its versions to be told", 60)
        assert "install a newer Kueue" in asked()
        create(bed, namespace, flow("free", [step("a", "a")], fake("a", cpu="1")))
        assert until_over(bed, namespace, "free")["status"]["phase"] == "Succeeded"
        assert not pods(bed, namespace, "w") and not pods(bed, namespace, "later")
        assert not holds(bed.get(path(namespace, "w")), "Completed")
    for one in OLDER:
        bed.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{one['metadata']['name']}")
