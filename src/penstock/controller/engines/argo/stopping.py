"""Stops a stage of an Argo workflow so that it counts neither as a failure nor as a try. Called by the engine.

Argo has no such thing. What works, for pods that vanish as for pods that end with exit code 143 (docs/ideas/engines.md):

    1  suspend the workflow: while it is suspended nothing is judged. `penstock/stopping` says that we did it, and when
    2  a moment later, delete the pods of the stage
    3  when they are gone: one patch that removes their nodes, closes the gate of the stage again, and resumes the workflow

Tasks that have succeeded keep their nodes. A node that failed before the first step is a real failure and stays.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from penstock.controller import names
from penstock.controller.coverage import is_active, is_gated
from penstock.controller.engine import Observed, Unit
from penstock.controller.engines.argo.nodes import Node, nodes_of
from penstock.controller.objects import (
    PODS,
    Object,
    Resource,
    Write,
    annotations_of,
    is_deleted,
    name_of,
    namespace_of,
    part,
    uid_of,
)
from penstock.controller.workload import seconds

WORKFLOWS = Resource("argoproj.io/v1alpha1", "Workflow", "workflows", selector="kueue.x-k8s.io/queue-name")
WHOLE = "*"
"""The key of the one stage of a workflow that is queued whole."""
OPENED = "penstock/opened"
PAUSE = 2.0
"""Seconds until Argo has surely seen that the workflow is suspended. Nothing in the object tells."""
PATIENCE = 6.0
"""Seconds until nodes whose pods are gone are taken as not missed by Argo."""


def stopping_of(main: Object) -> dict[str, Any]:
    try:
        found = json.loads(str(annotations_of(main).get(names.STOPPING) or "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def is_stopping(main: Object) -> bool:
    return bool(stopping_of(main))


def under_way(main: Object) -> tuple[str, tuple[str, ...]] | None:
    """The stage that is being stopped, with its tasks."""
    found = stopping_of(main)
    return (str(found.get("stage")), tuple(map(str, found.get("tasks") or ()))) if found else None


class Stopping:
    """The next step for one stage, or some of its tasks."""

    def __init__(self, seen: Observed, unit: Unit, stage: str, tasks: Sequence[str], pods: Sequence[Object]) -> None:
        self.seen, self.unit, self.stage, self.tasks = seen, unit, stage, tasks
        self.nodes = nodes_of(seen)
        self.running = [pod for pod in pods if is_active(pod) and not is_gated(pod)]
        self.kept = {name_of(pod) for pod in pods}
        self.under_way = stopping_of(seen.main)

    def next(self) -> Sequence[Write] | None:
        if self.under_way and self.under_way.get("stage") != self.stage:
            return ()  # One after the other; the other one ends soon.
        if not self.under_way:
            return [self._suspend()] if self.running else None
        if self.seen.now - float(self.under_way.get("since") or 0) < PAUSE:
            return ()
        if self.running:
            return [self._delete(pod) for pod in self.running if not is_deleted(pod)]
        if not self._judged() and self.seen.now - float(self.under_way.get("since") or 0) < PATIENCE:
            return ()
        return [self._resume()]

    def _judged(self) -> bool:
        """Has Argo seen what became of the pods? If its write met ours, it would write the rest of a node that we have removed. A pod that was
        started a moment ago it does not miss."""
        return all(node.over for node in self._interrupted())

    def _suspend(self) -> Write:
        suspended = part(self.seen.main, "spec").get("suspend") is True
        note = {"stage": self.stage, "since": self.seen.now, "user": suspended, "tasks": list(self.tasks)}
        body = {
            "metadata": {"annotations": {names.STOPPING: json.dumps(note, separators=(",", ":"))}},
            "spec": {"suspend": True},
        }
        return self._patch(body, "suspended while a stage is stopped")

    def _delete(self, pod: Object) -> Write:
        # As it was seen: one that has ended meanwhile is kept, or its task would run twice.
        version = part(pod, "metadata").get("resourceVersion")
        body = {"preconditions": {"uid": uid_of(pod), "resourceVersion": version}}
        return Write("delete", PODS, namespace_of(pod), name_of(pod), body, why="its stage is stopped")

    def _resume(self) -> Write:
        changed: dict[str, Any] = {}
        for node in self._interrupted():
            changed |= self._forgotten(node)
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
            "metadata": {"annotations": {names.STOPPING: None}},
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
        since = float(self.under_way.get("since") or 0)
        found = []
        for node in self.nodes.by_id.values():
            if node.type != "Pod" or node.phase in ("Succeeded", "Skipped", "Omitted") or not self._ours(node):
                continue
            if node.over and seconds(node.data.get("finishedAt")) < int(since):
                continue
            found.append(node)
        return found

    def _ours(self, node: Node) -> bool:
        stage = self.nodes.stage_of(node.name)
        if stage.exempt or self._waits(node):
            return False
        key = WHOLE if self.unit == "workflow" else self.nodes.key_of.get(stage.name, stage.name)
        return key == self.stage and (not self.tasks or self.nodes.task_name(node.name) in self.tasks)

    def _waits(self, node: Node) -> bool:
        """Its pod is there and gated: it may stay."""
        return any(name.rpartition("-")[2] == node.id.rpartition("-")[2] for name in self.kept) and not node.over

    def _forgotten(self, node: Node) -> dict[str, Any]:
        """Argo makes a node anew that is not there. A try takes its number along: its Retry node forgets it, or goes with the first try."""
        if not self.nodes.is_attempt(node):
            return {node.id: None}
        retry = self.nodes.by_name[self.nodes.task_name(node.name)]
        tries = [str(one) for one in retry.data.get("children") or () if one != node.id]
        if not tries:
            return {node.id: None, retry.id: None}
        again = {"children": tries, "phase": "Running", "finishedAt": None, "message": None}
        return {node.id: None, retry.id: again}

    def _patch(self, body: Object, why: str) -> Write:
        main = self.seen.main
        return Write("patch", WORKFLOWS, namespace_of(main), name_of(main), body, why=why)
