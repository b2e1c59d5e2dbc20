"""Argo's engine with objects as Argo writes them: stages, opening, stopping, names of pods that are not their own."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.controller.engine import Observed, Opening, Stage
from penstock.controller.engines.argo import ENGINE
from penstock.controller.engines.argo.nodes import Nodes, fnv1a
from penstock.controller.objects import ApiResource, Object, part
from penstock.errors import DocumentError

Dict = dict[str, Any]
ALL = Opening(None, ("spot",), {"pool": "spot"}, ())
SHAPE = '[{"n":3,"step":"train","template":"trainer","resources":{"cpu":"2"}}]'


class Nothing:
    def get(self, resource: ApiResource, namespace: str, name: str) -> Object | None:
        return None

    def list(self, resource: ApiResource, namespace: str = "") -> Sequence[Object]:
        return ()


def document(**spec: Any) -> Dict:
    trainer = {"name": "trainer", "container": {"image": "x", "resources": {"requests": {"cpu": "2"}}}}
    main = {"name": "main", "steps": [[{"name": "train", "template": "trainer", "withItems": [1, 2, 3]}]]}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "w", "namespace": "ns", "uid": "u", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"entrypoint": "main", "templates": [main, trainer], **spec},
    }


def node(name: str, kind: str, phase: str, **more: Any) -> Dict:
    return {"id": f"w-{fnv1a(name)}", "name": name, "type": kind, "phase": phase, "boundaryID": "w", **more}


def running(*nodes: Dict, packed: bool = False, **annotations: str) -> Dict:
    adjusted = dict(ENGINE.adjust(document(), "stage", Nothing()).object)
    root = {"id": "w", "name": "w", "type": "Steps", "phase": "Running", "templateName": "main"}
    every = {one["id"]: one for one in (root, *nodes)}
    status: Dict = {"phase": "Running", "nodes": every}
    if packed:
        text = base64.b64encode(gzip.compress(json.dumps(every).encode())).decode()
        status = {"phase": "Running", "compressedNodes": text}
    adjusted["metadata"] = {
        **adjusted["metadata"],
        "annotations": {**adjusted["metadata"]["annotations"], **annotations},
    }
    return {**adjusted, "status": status}


def gate(phase: str = "Running") -> Dict:
    given = [{"name": "stage", "value": "main[0]"}, {"name": "shape", "value": SHAPE}]
    return node("w[0].penstock-gate-0", "Suspend", phase, templateName="penstock-gate", inputs={"parameters": given})


def pod(name: str, gated: bool = False, phase: str = "Running", said: str = "") -> Dict:
    meta = {"name": f"w-trainer-{fnv1a(name)}", "namespace": "ns", "uid": name}
    meta["annotations"] = {"workflows.argoproj.io/node-name": said or name}
    gates = [{"name": "penstock/admission"}] if gated else []
    return {"metadata": meta, "spec": {"schedulingGates": gates}, "status": {"phase": phase}}


def seen(main: Object, *pods: Object, now: float = 1000.0) -> Observed:
    return Observed(main, {"Pod": list(pods)}, Nothing(), now)


def stage(main: Object, *pods: Object) -> Stage:
    (found,) = ENGINE.view(seen(main, *pods), "stage").stages
    return found


def test_a_new_workflow_is_held_and_its_pods_are_labelled() -> None:
    made = ENGINE.adjust(document(), "stage", Nothing()).object
    assert part(made, "spec", "podMetadata", "labels") == {"penstock/queue": "q"}
    assert part(made, "spec")["templates"][0]["steps"][0][0]["name"] == "penstock-gate-0"


def test_a_copy_of_a_gated_workflow_is_gated_anew() -> None:
    once = ENGINE.adjust(document(), "stage", Nothing()).object
    opened = json.loads(json.dumps(once))
    opened["spec"]["templates"][0]["steps"].pop(0)
    assert ENGINE.adjust(once, "stage", Nothing()).object == once
    assert ENGINE.adjust(opened, "stage", Nothing()).object == once


@pytest.mark.parametrize(
    "spec",
    [
        {"podMetadata": {"annotations": {"workflows.argoproj.io/node-name": "w.onExit"}}},
        {
            "templates": [
                {"name": "main", "dag": {"tasks": [{"name": "onExit", "template": "t"}]}},
                {"name": "t", "container": {"image": "x"}},
            ]
        },
    ],
)
def test_a_workflow_in_disguise_is_refused(spec: Dict) -> None:
    with pytest.raises(DocumentError, match="P885"):
        ENGINE.adjust(document(**spec), "stage", Nothing())


def test_nothing_is_ahead_before_argo_has_looked() -> None:
    """The first stage is reached in the same moment; a Workload that only keeps its place until then would be a write for nothing."""
    new = {name: value for name, value in running().items() if name != "status"}
    assert not ENGINE.view(seen(new), "stage").stages
    assert stage({**new, "status": {"phase": "Pending", "message": "too many at once"}}).state == "ahead"


def test_a_stage_from_ahead_to_done() -> None:
    assert stage(running()).state == "ahead"
    held = stage(running(gate()))
    assert (held.key, held.state, held.shapes[0].count, dict(held.shapes[0].requests)) == (
        "main[0]",
        "held",
        3,
        {"cpu": 2000},
    )
    group = node("w[1]", "StepGroup", "Running")
    first = node("w[1].train(0:1)", "Pod", "Succeeded", displayName="train(0:1)")
    second = node("w[1].train(1:2)", "Pod", "Running", displayName="train(1:2)")
    found = stage(running(gate("Succeeded"), group, first, second))
    assert (found.state, found.finished) == ("open", (1,))
    assert stage(running(gate("Succeeded"), {**group, "phase": "Failed"})).outcome == "Failed"


@pytest.mark.parametrize("packed", [False, True])
def test_a_gate_is_opened_with_its_outputs(packed: bool) -> None:
    main = running(gate(), packed=packed)
    (write,) = ENGINE.open(seen(main), "stage", stage(main), ALL)
    if packed:
        text = write.body["status"]["compressedNodes"]
        nodes = json.loads(gzip.decompress(base64.b64decode(text)))
        assert set(nodes) == {"w", gate()["id"]} and "nodes" not in write.body["status"]
        assert "resourceVersion" in write.body["metadata"]
    else:
        nodes = write.body["status"]["nodes"]
    assert nodes[gate()["id"]]["phase"] == "Succeeded"
    assert nodes[gate()["id"]]["outputs"]["parameters"][1] == {"name": "node-selector", "value": '{"pool":"spot"}'}


def test_each_node_is_looked_at_once_however_many_stages_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task of a dag is a stage."""
    asked: list[str] = []
    stage_of = Nodes.stage_of
    monkeypatch.setattr(Nodes, "stage_of", lambda self, name: (asked.append(name), stage_of(self, name))[1])
    nodes = []
    for task in ("a", "b", "c", "d", "e"):
        shape = json.dumps([{"n": 1, "step": task, "template": "trainer", "resources": {"cpu": "2"}}])
        given = [{"name": "stage", "value": f"main.{task}"}, {"name": "shape", "value": shape}]
        one = {"templateName": "penstock-gate", "inputs": {"parameters": given}}
        nodes.append(node(f"w.penstock-gate-{task}", "Suspend", "Succeeded", **one))
        nodes.append(node(f"w.{task}", "Pod", "Succeeded" if task == "a" else "Running", displayName=task))
    found = {one.key: one for one in ENGINE.view(seen(running(*nodes)), "stage").stages}
    assert found["main.a"].state == "done" and found["main.b"].finished == (0,)
    assert len(asked) == 5


def test_stopping_takes_three_steps_and_keeps_what_is_finished() -> None:
    group = node("w[0]", "StepGroup", "Succeeded")
    done = node("w[1].train(0:1)", "Pod", "Succeeded", displayName="train(0:1)")
    cut = node("w[1].train(1:2)", "Pod", "Running", displayName="train(1:2)")
    nodes = (gate("Succeeded"), group, node("w[1]", "StepGroup", "Running"), done, cut)
    alive = pod("w[1].train(1:2)")
    (suspend,) = ENGINE.stop(seen(running(*nodes), alive), "stage", "main[0]", ()) or ()
    assert suspend.body["spec"] == {"suspend": True}
    note = suspend.body["metadata"]["annotations"]["penstock/stopping"]
    main = running(*nodes, **{"penstock/stopping": note})
    assert ENGINE.stop(seen(main, alive, now=1001.0), "stage", "main[0]", ()) == ()
    (delete,) = ENGINE.stop(seen(main, alive, now=1003.0), "stage", "main[0]", ()) or ()
    assert (delete.verb, delete.name) == ("delete", alive["metadata"]["name"])
    (noted,) = ENGINE.stop(seen(main, now=1004.0), "stage", "main[0]", ()) or ()
    main = running(*nodes, **noted.body["metadata"]["annotations"])
    assert ENGINE.stop(seen(main, now=1063.0), "stage", "main[0]", ()) == (), (
        "Argo has not seen yet that the pod is gone"
    )
    (resume,) = ENGINE.stop(seen(main, now=1064.5), "stage", "main[0]", ()) or ()
    changed = resume.body["status"]["nodes"]
    assert changed[cut["id"]] is None and done["id"] not in changed
    assert changed[gate()["id"]]["phase"] == changed[group["id"]]["phase"] == "Running"
    assert resume.body["spec"] == {"suspend": None}
    assert ENGINE.stop(seen(running(gate(), group)), "stage", "main[0]", ()) is None


def test_a_try_that_was_cut_off_is_forgotten_and_those_that_failed_are_not() -> None:
    retry = node("w[1].train(0:1)", "Retry", "Running", displayName="train(0:1)")
    failed = node("w[1].train(0:1)(0)", "Pod", "Failed", finishedAt="1970-01-01T00:10:00Z")
    cut = node("w[1].train(0:1)(1)", "Pod", "Running")
    retry["children"] = [failed["id"], cut["id"]]
    note = json.dumps({"stage": "main[0]", "since": 900.0, "tasks": [], "gone": 930.0})
    main = running(
        gate("Succeeded"), node("w[1]", "StepGroup", "Running"), retry, failed, cut, **{"penstock/stopping": note}
    )
    (resume,) = ENGINE.stop(seen(main), "stage", "main[0]", ()) or ()
    changed = resume.body["status"]["nodes"]
    assert changed[cut["id"]] is None and failed["id"] not in changed
    assert changed[retry["id"]]["children"] == [failed["id"]]


def test_a_pod_belongs_to_the_node_that_its_name_says() -> None:
    main = running(gate("Succeeded"), node("w[1]", "StepGroup", "Running"))
    assert ENGINE.task_of(pod("w[1].train(0:1)"), seen(main), "stage").stage == "main[0]"
    lie = pod("w[1].train(0:1)", said="w.onExit")
    assert ENGINE.task_of(lie, seen(main), "stage").stage != ""


@pytest.mark.parametrize(
    ("told", "queue"),
    [
        ({"templateRef": {"name": "lib", "template": "train"}, "templateScope": "local/w"}, "gpus"),
        ({"templateRef": {"name": "lib", "template": "train", "clusterScope": True}}, ""),
        ({"templateName": "train", "templateScope": "namespaced/lib"}, "gpus"),
        ({"templateName": "train", "templateScope": "local/w"}, ""),
        ({"templateName": "own", "templateScope": "local/w"}, "spot"),
    ],
)
def test_the_queue_of_a_template_in_another_document_is_found_by_the_node(told: Dict, queue: str) -> None:
    note = json.dumps({"namespaced/lib/train": "gpus", "own": "spot"})
    main = running(node("w[0].a", "Pod", "Pending", **told), **{"penstock/queues": note})
    assert ENGINE.task_of(pod("w[0].a", gated=True), seen(main), "task").queue == queue


def test_before_argo_has_written_the_node_nobody_knows_its_queue() -> None:
    main = running(**{"penstock/queues": json.dumps({"own": "spot"})})
    assert ENGINE.task_of(pod("w[0].a", gated=True), seen(main), "task").queue is None
    assert ENGINE.task_of(pod("w[0].a", gated=True), seen(running()), "task").queue == ""


def test_only_what_argo_calls_a_hook_is_exempt() -> None:
    handler = node("w.onExit", "Pod", "Running")
    told = {**handler, "nodeFlag": {"hooked": True}}
    assert ENGINE.task_of(pod("w.onExit"), seen(running(handler)), "stage").stage != ""
    assert ENGINE.task_of(pod("w.onExit"), seen(running(told)), "stage").stage == ""


def test_nodes_that_cannot_be_read_are_said() -> None:
    main = {**document(), "status": {"phase": "Running", "compressedNodes": "KLUv/Q=="}}
    assert "compressed in an unknown way" in ENGINE.view(seen(main), "stage").problem
    assert "gzip" in ENGINE.view(seen(main), "stage").fix
    assert Nodes(main).unreadable
