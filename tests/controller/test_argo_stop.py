"""Stopping a stage of an Argo workflow, fed with what the cluster would show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.controller.engines.argo import ENGINE
from penstock.controller.engines.argo.nodes import fnv1a
from penstock.controller.engines.argo.stopping import MISSED
from penstock.controller.names import QUEUE, STOPPING
from penstock.controller.objects import Object, Write
from penstock.kueue.status import timestamp
from tests.controller.engine_objects import NS, observed, pod

Dict = dict[str, Any]
START = 1000.0
STAGE = "w[0]"
TASKS = {"a": "w[0].a", "b": "w[0].b"}


def node(task: str, phase: str = "Running", **more: Any) -> Dict:
    name = TASKS[task]
    return {"id": f"w-{fnv1a(name)}", "name": name, "type": "Pod", "phase": phase, "boundaryID": "w", **more}


def workflow(*nodes: Dict, note: Any = None, suspend: bool = True) -> Dict:
    group = {"id": f"w-{fnv1a(STAGE)}", "name": STAGE, "type": "StepGroup", "phase": "Running", "boundaryID": "w"}
    root = {"id": "w", "name": "w", "type": "Steps", "phase": "Running", "templateName": "main"}
    metadata: Dict = {"name": "w", "namespace": NS, "uid": "uid-w", "resourceVersion": "5", "labels": {QUEUE: "team-a"}}
    if note is not None:
        metadata["annotations"] = {STOPPING: note if isinstance(note, str) else json.dumps(note)}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": metadata,
        "spec": {"suspend": True} if suspend else {},
        "status": {"phase": "Running", "nodes": {one["id"]: one for one in (root, group, *nodes)}},
    }


def note(**more: Any) -> Dict:
    return {"stage": STAGE, "since": START, "user": False, "tasks": [], **more}


def its_pod(task: str, main: Object, *, phase: str = "Running", leaving: bool = False, ended: float = 0) -> Dict:
    found = pod(f"w-x-{fnv1a(TASKS[task])}", main, phase=phase)
    found["metadata"]["annotations"] = {"workflows.argoproj.io/node-name": TASKS[task]}
    if leaving:
        found["metadata"]["deletionTimestamp"] = timestamp(START)
    if ended:
        state = {"terminated": {"exitCode": 143, "finishedAt": timestamp(ended)}}
        found["status"]["containerStatuses"] = [{"name": "main", "state": state}]
    return found


def stop(main: Object, *pods: Object, now: float) -> Sequence[Write] | None:
    return ENGINE.stop(replace(observed(main, *pods), now=now), "stage", STAGE, ())


def gone_from(write: Write) -> set[str]:
    """Nodes that a write removes."""
    return {key for key, value in write.body.get("status", {}).get("nodes", {}).items() if value is None}


def test_a_pod_is_only_deleted_as_it_was_seen() -> None:
    """It may have ended meanwhile; then its task must not run a second time."""
    main = workflow(node("a"), note=note())
    (write,) = stop(main, its_pod("a", main), now=START + 10) or ()
    assert (write.verb, write.name) == ("delete", f"w-x-{fnv1a(TASKS['a'])}")
    assert write.body["preconditions"] == {"uid": f"uid-{write.name}", "resourceVersion": "7"}


def test_a_pod_that_ended_when_it_was_told_to_is_waited_for_and_its_node_is_forgotten() -> None:
    """On a node it is there for a while, failed with exit code 143, before Argo has looked. If the workflow went on, it would fail by that."""
    main = workflow(node("a"), note=note())
    dying = its_pod("a", main, phase="Failed", leaving=True, ended=START + 5)
    assert not stop(main, dying, now=START + 60)
    (noted,) = stop(main, now=START + 61) or ()
    assert json.loads(noted.body["metadata"]["annotations"][STOPPING]) == note(gone=START + 61)
    failed = node("a", "Failed", finishedAt=timestamp(START + 5))
    assert not stop(workflow(failed, note=note()), dying, now=START + 60)
    (resumed,) = stop(workflow(failed, note=note()), now=START + 61) or ()
    assert gone_from(resumed) == {failed["id"]} and resumed.body["spec"] == {"suspend": None}


def test_argo_has_its_time_from_when_the_last_pod_is_gone() -> None:
    main = workflow(node("a"), note=note(gone=START + 60))
    assert stop(main, now=START + 60 + MISSED - 0.5) == ()
    (resumed,) = stop(main, now=START + 60 + MISSED) or ()
    assert gone_from(resumed) == {node("a")["id"]}
    assert MISSED > 20, "Argo looks ten seconds after a change, and misses no pod that is younger than ten seconds"


def test_the_workflow_goes_on_only_as_it_was_seen() -> None:
    """Argo may have written just now that a task has succeeded."""
    main = workflow(node("a"), note=note(gone=START))
    (resumed,) = stop(main, now=START + 100) or ()
    assert resumed.body["metadata"]["resourceVersion"] == "5"


def test_what_succeeded_or_failed_by_itself_stays() -> None:
    main = workflow(node("a"), node("b"), note=note())
    succeeded = its_pod("a", main, phase="Succeeded", ended=START + 1)
    failed = its_pod("b", main, phase="Failed", ended=START - 5)
    (resumed,) = stop(main, succeeded, failed, now=START + 3) or ()
    assert not gone_from(resumed), "Argo has not looked yet; it will judge them"


def test_a_pod_that_failed_while_the_workflow_was_being_suspended_makes_room_for_the_next() -> None:
    main = workflow(node("a"), note=note())
    (write,) = stop(main, its_pod("a", main, phase="Failed", ended=START + 1), now=START + 3) or ()
    assert write.verb == "delete"


@pytest.mark.parametrize("since", [START + 10_000, "soon", None, True, -5, float("nan"), float("inf")])
def test_a_time_that_makes_no_sense_counts_as_now(since: Any) -> None:
    main = workflow(node("a"), note=note(since=since, user=True))
    (again,) = stop(main, its_pod("a", main), now=START) or ()
    assert json.loads(again.body["metadata"]["annotations"][STOPPING]) == note(user=True)
    (waits,) = stop(workflow(node("a"), note=note(gone=since)), now=START + 20) or ()
    assert json.loads(waits.body["metadata"]["annotations"][STOPPING])["gone"] == START + 20


@pytest.mark.parametrize("text", ["[]", "{", '{"since": 1}', '{"stage": 5, "tasks": 7}', "null", "[" * 100_000])
def test_a_note_without_a_stage_is_none(text: str) -> None:
    main = workflow(node("a"), note=text, suspend=False)
    (begin,) = stop(main, its_pod("a", main), now=START) or ()
    assert begin.body["spec"] == {"suspend": True}


def test_two_tries_that_were_cut_off_are_forgotten_together() -> None:
    tries = [{**node("a", "Failed", finishedAt=timestamp(START + 5)), "name": f"w[0].a({n})"} for n in range(2)]
    for one in tries:
        one["id"] = f"w-{fnv1a(one['name'])}"
    retry = {**node("a"), "type": "Retry", "children": [one["id"] for one in tries]}
    (resumed,) = stop(workflow(retry, *tries, note=note()), now=START + 10) or ()
    assert gone_from(resumed) == {retry["id"], *(one["id"] for one in tries)}


def test_a_new_workflow_does_not_bring_a_note_of_its_own() -> None:
    new = workflow(note=note())
    new["metadata"]["annotations"] |= {"penstock/opened": "true", "penstock/stages": "[1]", "mine": "stays"}
    container = {"image": "x", "resources": {"requests": {"cpu": "1"}}}
    new["spec"] = {"entrypoint": "main", "templates": [{"name": "main", "container": container}]}
    made = ENGINE.adjust(new, "task", observed(new).lookup).object["metadata"]["annotations"]
    assert not set(made) & {STOPPING, "penstock/opened", "penstock/stages"} and made["mine"] == "stays"
