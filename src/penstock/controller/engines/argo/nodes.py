"""The nodes of an Argo workflow's status: which are gates, which belong to a stage, what is over. Called by the parts of this engine.

A node's name is its path: `build[1].penstock-gate-1`, `build[2].test(0:a)`, `build.train(0)`. The stage of a pod follows from it alone
(formats.argo.stages). A pod says its node's name in an annotation, which a template might set too; so the name must have the hash that
the pod's own name ends with.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from penstock.controller.engine import Observed
from penstock.controller.objects import Object, annotations_of, name_of, part
from penstock.formats.argo.gate.inject import GATE
from penstock.formats.argo.stages import ROOT, RunStage, run_stage_of

OVER = frozenset({"Succeeded", "Failed", "Error", "Skipped", "Omitted"})
_RETRY = re.compile(r"\(\d+\)\Z")
_GROUP = re.compile(r"(.*)\[(\d+)\]\Z", re.S)


class Node:
    """One entry of status.nodes."""

    def __init__(self, key: str, data: Object) -> None:
        self.id = key
        self.data = data
        self.name = str(data.get("name") or "")
        self.type = str(data.get("type") or "")
        self.phase = str(data.get("phase") or "")

    @property
    def over(self) -> bool:
        return self.phase in OVER

    @property
    def hooked(self) -> bool:
        return part(self.data, "nodeFlag").get("hooked") is True

    def given(self, parameter: str) -> str:
        listed = part(self.data, "inputs").get("parameters")
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, Mapping) and one.get("name") == parameter:
                return str(one.get("value") or "")
        return ""


def nodes_of(seen: Observed) -> Nodes:
    """Read once for each look at a workflow."""
    found: Nodes = seen.memo.get("nodes") or Nodes(seen.main)
    seen.memo["nodes"] = found
    return found


class Nodes:
    """All nodes of one workflow."""

    def __init__(self, main: Object) -> None:
        self.workflow = name_of(main)
        self.packed = "compressedNodes" in part(main, "status") and not part(main, "status", "nodes")
        self.elsewhere = bool(part(main, "status").get("offloadNodeStatusVersion")) and not self.packed
        found = _unpacked(part(main, "status").get("compressedNodes")) if self.packed else part(main, "status", "nodes")
        self.unreadable = self.elsewhere or (self.packed and not found)
        self.by_id = {str(key): Node(str(key), data) for key, data in found.items() if isinstance(data, Mapping)}

    def changed(self, main: Object, nodes: Mapping[str, Any]) -> dict[str, Any]:
        """A merge patch that changes these nodes; None removes one. Packed nodes are written as a whole, if nobody else has written meanwhile."""
        if not self.packed:
            return {"status": {"nodes": nodes}}
        whole: dict[str, Any] = {key: dict(node.data) for key, node in self.by_id.items()}
        for key, change in nodes.items():
            if change is None:
                whole.pop(key, None)
            else:
                merged = {**whole.get(key, {}), **change}
                whole[key] = {name: value for name, value in merged.items() if value is not None}
        text = base64.b64encode(gzip.compress(json.dumps(whole, separators=(",", ":")).encode())).decode()
        version = part(main, "metadata").get("resourceVersion")
        return {"metadata": {"resourceVersion": version}, "status": {"compressedNodes": text}}

    @cached_property
    def by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.by_id.values()}

    @cached_property
    def gates(self) -> list[tuple[str, Node, str]]:
        """(key of the stage, its gate, run stage), in the order in which they were reached.

        The first instance of a stage has the name of the static stage as its key, so that it finds the Workload that kept its place. Others,
        of loops and recursions, have the name of their node."""
        found = []
        seen: set[str] = set()
        reached = [one for one in self.by_id.values() if one.data.get("templateName") == GATE and one.given("stage")]
        for gate in sorted(reached, key=lambda one: (str(one.data.get("startedAt") or ""), one.id)):
            static = gate.given("stage")
            key = static if static not in seen else f"{static} {gate.name}"
            seen.add(static)
            found.append((key, gate, self._behind(gate, static)))
        return found

    def _behind(self, gate: Node, static: str) -> str:
        """The run stage that a gate holds: the next group of steps, or the task that waits for it."""
        boundary = self.by_id.get(str(gate.data.get("boundaryID") or ""))
        around = boundary.name if boundary else self.workflow
        group = _GROUP.match(gate.name[: gate.name.rfind(f".{GATE}")])
        if group and group[1] == around:
            return f"{around}[{int(group[2]) + 1}]"
        return around if static == ROOT else f"{around}.{static.rpartition('.')[2]}"

    @cached_property
    def key_of(self) -> dict[str, str]:
        """Run stage -> key, for stages with a gate."""
        return {stage: key for key, _, stage in self.gates}

    def stage_of(self, name: str) -> RunStage:
        """The run stage of a node. It is exempt only if Argo says that the handler which it belongs to is a hook."""
        found = run_stage_of(name, self.workflow)
        if found.exempt and not any(one.hooked and _below(name, one.name) for one in self.by_id.values()):
            return RunStage(found.name)
        return found

    def name_of_pod(self, pod: Object) -> str:
        """The name of the pod's node. Empty if the pod claims one that is not its own."""
        said = str(annotations_of(pod).get("workflows.argoproj.io/node-name") or "")
        name = name_of(pod)
        if name == self.workflow:
            return self.workflow
        digest = name.rpartition("-")[2]
        if said and digest == str(fnv1a(said)):
            return said
        node = self.by_id.get(f"{self.workflow}-{digest}")
        return node.name if node else ""

    def members(self, run_stage: str) -> Sequence[Node]:
        """Nodes of tasks of a stage: pods, and the nodes around their retries; not attempts."""
        return self._members.get(run_stage, ())

    @cached_property
    def _members(self) -> dict[str, list[Node]]:
        """Of all stages: a dag of hundreds of tasks has as many."""
        found: dict[str, list[Node]] = {}
        for node in self.by_id.values():
            if node.type in ("Pod", "Retry", "Skipped") and not self.is_attempt(node):
                found.setdefault(self.stage_of(node.name).name, []).append(node)
        return found

    def is_attempt(self, node: Node) -> bool:
        match = _RETRY.search(node.name)
        return match is not None and self.type_of(node.name[: match.start()]) == "Retry"

    def type_of(self, name: str) -> str:
        found = self.by_name.get(name)
        return found.type if found else ""

    def task_name(self, name: str) -> str:
        """Without the number of the try."""
        match = _RETRY.search(name)
        return name[: match.start()] if match else name

    def is_over(self, run_stage: str) -> bool:
        """Is the group, the task, or what is around them over?"""
        here = self.by_name.get(run_stage)
        if here is not None and here.over:
            return True
        around = here and self.by_id.get(str(here.data.get("boundaryID") or ""))
        return bool(around and around.over)

    def static_over(self) -> set[str]:
        """Static stages of the workflow's own templates whose run stage is over."""
        found = set()
        for node in self.by_id.values():
            around = self.by_id.get(str(node.data.get("boundaryID") or ""))
            if not node.over or node.hooked or around is None or self.is_attempt(node):
                continue
            template = str(around.data.get("templateName") or "")
            if node.type == "StepGroup":
                group = _GROUP.match(node.name)
                found.add(f"{template}[{group[2]}]" if group else "")
            elif around.type == "DAG":
                found.add(f"{template}.{node.data.get('displayName')}")
        return found


def _below(name: str, handler: str) -> bool:
    return name == handler or name.startswith((f"{handler}.", f"{handler}[", f"{handler}("))


def fnv1a(text: str) -> int:
    """The hash in the ids of nodes."""
    found = 0x811C9DC5
    for byte in text.encode():
        found = (found ^ byte) * 0x01000193 & 0xFFFFFFFF
    return found


def _unpacked(text: Any) -> Object:
    """Nodes of a large workflow: JSON, gzip, base64. Empty if they are packed in another way."""
    try:
        found = json.loads(gzip.decompress(base64.b64decode(str(text))))
    except (ValueError, OSError, EOFError, zlib.error):
        return {}
    return found if isinstance(found, dict) else {}
