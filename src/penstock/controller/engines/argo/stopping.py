"""Stops a stage of an Argo workflow so that it counts neither as a failure nor as a try. Called by the engine.

Argo has no such thing. What works, for pods that vanish as for pods that end with exit code 143 (docs/ideas/engines.md):

    1  suspend the workflow: while it is suspended nothing is judged. `penstock/stopping` says that we did it, and when
    2  a moment later, delete the pods of the stage
    3  when no pod object of them is left: if Argo has not seen that yet, note the moment, and give it time
    4  one patch that removes their nodes, closes the gate of the stage again, and resumes the workflow

On a node a pod that was deleted ends as failed and is still there for a while. Its name is that of the pod which comes next, so all waits for it.
Tasks that have succeeded keep their nodes. A node that failed before the first step is a real failure and stays.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from penstock.controller import names
from penstock.controller.coverage import is_active, is_gated
from penstock.controller.engine import Observed, Unit
from penstock.controller.engines.argo.nodes import Node, nodes_of
from penstock.controller.objects import (
    PODS,
    ApiResource,
    Object,
    Write,
    annotations_of,
    is_deleted,
    name_of,
    namespace_of,
    part,
    rows,
    uid_of,
)
from penstock.kueue.status import seconds

WORKFLOWS = ApiResource("argoproj.io/v1alpha1", "Workflow", "workflows", selector="kueue.x-k8s.io/queue-name")
WHOLE = "*"
"""The key of the one stage of a workflow that is queued whole."""
OPENED = "penstock/opened"
PAUSE = 2.0
"""Seconds until Argo has surely seen that the workflow is suspended. Nothing in the object tells."""
PATIENCE = 15.0
"""Seconds after the last pod is gone until nodes that still run are taken as not missed by Argo. It looks at a workflow ten seconds after a change,
unless it is told otherwise, and does not miss a pod that was started less than ten seconds ago."""
MISSED = 60.0
"""The same for a node that runs: Argo does miss its pod, ten seconds after the start of it, or later if it has much to do."""
_ENDED_WELL = frozenset({"Succeeded", "Skipped", "Omitted"})


def stopping_of(main: Object) -> dict[str, Any]:
    """What the note says; nothing if it names no stage."""
    try:
        found = json.loads(str(annotations_of(main).get(names.STOPPING) or "{}"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("stage"), str) else {}


def is_stopping(main: Object) -> bool:
    return bool(stopping_of(main))


def under_way(main: Object) -> tuple[str, tuple[str, ...]] | None:
    """The stage that is being stopped, with its tasks."""
    found = stopping_of(main)
    return (found["stage"], _tasks(found)) if found else None


def _tasks(note: Mapping[str, Any]) -> tuple[str, ...]:
    listed = note.get("tasks")
    return tuple(map(str, listed)) if isinstance(listed, list) else ()


class Stopping:
    """The next step for one stage, or some of its tasks."""

    def __init__(self, seen: Observed, unit: Unit, stage: str, tasks: Sequence[str], pods: Sequence[Object]) -> None:
        self.seen, self.unit, self.stage, self.tasks = seen, unit, stage, tasks
        self.nodes = nodes_of(seen)
        self.under_way = stopping_of(seen.main)
        self.since = self._moment("since")
        self.running = [pod for pod in pods if is_active(pod) and not is_gated(pod)]
        self.pods = {_digest(name_of(pod)): pod for pod in pods}

    def next(self) -> Sequence[Write] | None:
        if self.under_way and self.under_way.get("stage") != self.stage:
            return ()  # One after the other; the other one ends soon.
        if not self.under_way:
            return [self._suspend()] if self.running else None
        if self.since is None:
            return [self._suspend()]  # The time in the note makes no sense: from now on.
        if self.seen.now - self.since < PAUSE:
            return ()
        cut = self._interrupted()
        left = self.running + [pod for node in cut if (pod := self._pod(node)) is not None and not is_active(pod)]
        if left:
            return [self._delete(pod) for pod in left if not is_deleted(pod)]
        return self._when_judged(cut)

    def _when_judged(self, cut: Sequence[Node]) -> Sequence[Write]:
        """Has Argo seen what became of the pods? If its write met ours, it would write the rest of a node that we have removed. A pod that was
        started a moment ago it does not miss."""
        if not all(node.over for node in cut):
            gone = self._moment("gone")
            if gone is None:
                return [self._note({**self.under_way, "gone": self.seen.now}, "its pods are gone")]
            missed = any(node.phase == "Running" for node in cut)
            if self.seen.now - gone < (MISSED if missed else PATIENCE):
                return ()
        return [self._resume(cut)]

    def _moment(self, which: str) -> float | None:
        """A time in the note, if it is one, and past."""
        found = self.under_way.get(which)
        if not isinstance(found, int | float) or isinstance(found, bool):
            return None
        return float(found) if 0 < found <= self.seen.now else None

    def _suspend(self) -> Write:
        suspended = part(self.seen.main, "spec").get("suspend") is True
        user = self.under_way.get("user") is True if self.under_way else suspended
        note = {"stage": self.stage, "since": self.seen.now, "user": user, "tasks": list(self.tasks)}
        return self._note(note, "suspended while a stage is stopped", {"suspend": True})

    def _note(self, note: Object, why: str, spec: Object | None = None) -> Write:
        text = json.dumps(note, separators=(",", ":"))
        return self._patch(
            {"metadata": {"annotations": {names.STOPPING: text}}} | ({"spec": spec} if spec else {}), why
        )

    def _delete(self, pod: Object) -> Write:
        # As it was seen: one that has succeeded meanwhile is kept, or its task would run twice.
        version = part(pod, "metadata").get("resourceVersion")
        body = {"preconditions": {"uid": uid_of(pod), "resourceVersion": version}}
        return Write("delete", PODS, namespace_of(pod), name_of(pod), body, why="its stage is stopped")

    def _resume(self, cut: Sequence[Node]) -> Write:
        """Of the version that was seen: a task of which Argo has just written that it succeeded must not be forgotten."""
        changed: dict[str, Any] = {}
        ids = {node.id for node in cut}
        for node in cut:
            changed |= self._forgotten(node, ids)
        results = {key: None for key, value in changed.items() if value is None}
        if not self.tasks:
            for key, gate, _ in self.nodes.gates:
                if key == self.stage and gate.phase == "Succeeded":
                    closed = {"phase": "Running", "finishedAt": None, "message": "waits in the queue"}
                    changed[gate.id] = closed
                    group = self.nodes.by_name.get(gate.name.rpartition(".")[0])
                    if group is not None and group.type == "StepGroup":
                        changed[group.id] = {**closed, "message": None}
        hold = bool(self.under_way.get("user")) or self.unit == "workflow"
        body: dict[str, Any] = {
            "metadata": {
                "annotations": {names.STOPPING: None},
                "resourceVersion": part(self.seen.main, "metadata").get("resourceVersion"),
            },
            "spec": {"suspend": True if hold else None},
        }
        if self.unit == "workflow":
            body["metadata"]["annotations"][OPENED] = None
        if changed:
            written = self.nodes.changed(self.seen.main, changed)
            body["metadata"] |= written.get("metadata", {})
            body["status"] = {**written["status"], "taskResultsCompletionStatus": results}
        return self._patch(body, "stopped; the stage is held again")

    def _interrupted(self) -> list[Node]:
        """Pod nodes of the stage that did not succeed and did not fail before we came."""
        return [
            node
            for node in self.nodes.by_id.values()
            if node.type == "Pod" and node.phase not in _ENDED_WELL and self._ours(node) and self._was_cut(node)
        ]

    def _was_cut(self, node: Node) -> bool:
        pod = self._pod(node)
        if node.over:
            return seconds(node.data.get("finishedAt")) >= int(self.since or 0)
        if pod is None or is_active(pod):
            return pod is None or not is_gated(pod)  # One that is gated may stay.
        # Argo will see in a moment how it ended.
        return part(pod, "status").get("phase") == "Failed" and (is_deleted(pod) or _ended(pod) >= int(self.since or 0))

    def _pod(self, node: Node) -> Object | None:
        return self.pods.get(_digest(node.id))

    def _ours(self, node: Node) -> bool:
        stage = self.nodes.stage_of(node.name)
        if stage.exempt:
            return False
        key = WHOLE if self.unit == "workflow" else self.nodes.key_of.get(stage.name, stage.name)
        return key == self.stage and (not self.tasks or self.nodes.task_name(node.name) in self.tasks)

    def _forgotten(self, node: Node, cut: Collection[str]) -> dict[str, Any]:
        """Argo makes a node anew that is not there. A try takes its number along: its Retry node forgets it, or goes with the first try."""
        if not self.nodes.is_attempt(node):
            return {node.id: None}
        retry = self.nodes.by_name[self.nodes.task_name(node.name)]
        tries = [str(one) for one in retry.data.get("children") or () if one not in cut]
        if not tries:
            return {node.id: None, retry.id: None}
        again = {"children": tries, "phase": "Running", "finishedAt": None, "message": None}
        return {node.id: None, retry.id: again}

    def _patch(self, body: Object, why: str) -> Write:
        main = self.seen.main
        return Write("patch", WORKFLOWS, namespace_of(main), name_of(main), body, why=why)


def _digest(name: str) -> str:
    """What the id of a node and the name of its pod end with."""
    return name.rpartition("-")[2]


def _ended(pod: Object) -> float:
    """When its last container ended; 0 if the pod does not say so."""
    states = (part(one, "state", "terminated") for one in rows(pod, "status", "containerStatuses"))
    return max((seconds(one.get("finishedAt")) for one in states), default=0.0)
