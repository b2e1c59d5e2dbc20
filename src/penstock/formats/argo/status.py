"""The state of an Argo Workflow, from the object as the cluster shows it. Called by the runners, through formats.registry."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

from penstock.formats.documents import items, part
from penstock.formats.status import Status, TaskStatus, value_of

_PHASES = {"Succeeded": "succeeded", "Failed": "failed", "Error": "failed", "Running": "running", "Pending": "pending"}
_LEAVES = frozenset({"Pod", "HTTP", "Plugin", "Suspend", "Skipped", "Container"})
_LONGEST_PREFIX = 242
"""As much of a pod's name is left for the names of workflow and template."""
MOST_BYTES = 64 * 2**20
"""Of a list of nodes, written out."""


def workflow_status(data: Mapping[str, Any]) -> Status:
    status = part(data, "status")
    state = _PHASES.get(str(status.get("phase") or ""), "pending")
    if state == "running" and part(data, "spec").get("suspend") is True:
        state = "suspended"
    nodes = _nodes(status)
    tasks = []
    root: Mapping[str, Any] = {}
    name = part(data, "metadata").get("name")
    for node in nodes.values():
        if not isinstance(node, Mapping):
            continue
        if node.get("name") == name:
            root = node
        if node.get("type") in _LEAVES:
            pod = _pod(node, nodes, part(data, "metadata"))
            tasks.append(_task(node, pod, _containers(node, nodes) if pod else ()))
    return Status(state, str(status.get("message") or ""), _parameters(part(root, "outputs")), tuple(tasks))


def _task(node: Mapping[str, Any], pod: str, containers: tuple[str, ...]) -> TaskStatus:
    phase = str(node.get("phase") or "Pending")
    state = "suspended" if node.get("type") == "Suspend" and phase == "Running" else _PHASES.get(phase, phase.lower())
    return TaskStatus(
        str(node.get("displayName") or node.get("name") or ""),
        state,
        str(node.get("message") or ""),
        pod,
        containers,
    )


def _containers(node: Mapping[str, Any], nodes: Mapping[str, Any]) -> tuple[str, ...]:
    """Argo's executor works, and prints, beside them in the same pod."""
    if node.get("type") == "Container":
        return (str(node.get("displayName") or ""),)
    every = [one for one in nodes.values() if isinstance(one, Mapping) and one.get("type") == "Container"]
    inside = [str(one.get("displayName") or "") for one in every if one.get("boundaryID") == node.get("id")]
    return tuple(inside) or ("main",)


def _pod(node: Mapping[str, Any], nodes: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
    """Argo does not say the name of a node's pod: it is made of the names of workflow and template and the end of the node's id."""
    if node.get("type") == "Container":  # one of several in a pod, which is the node around it
        node = part(nodes, str(node.get("boundaryID")))
    if node.get("type") != "Pod":
        return ""
    workflow, ident = str(meta.get("name") or ""), str(node.get("id") or "")
    if part(meta, "annotations").get("workflows.argoproj.io/pod-name-format") == "v1":
        return ident
    if node.get("name") == workflow:
        return workflow
    template = part(node, "templateRef").get("template") or node.get("templateName")
    prefix = f"{workflow}-{template}" if template else workflow
    return f"{prefix[:_LONGEST_PREFIX]}-{ident.removeprefix(f'{workflow}-')}"


def _nodes(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Large workflows keep their nodes compressed; those kept in a database are not here at all."""
    packed = status.get("compressedNodes")
    if not isinstance(packed, str) or not packed:
        return part(status, "nodes")
    try:
        text = zlib.decompressobj(wbits=31).decompress(base64.b64decode(packed), MOST_BYTES)
        found = json.loads(text)
    except (ValueError, zlib.error):
        return {}
    return found if isinstance(found, Mapping) else {}


def _parameters(outputs: Mapping[str, Any]) -> dict[str, Any]:
    return {str(one["name"]): value_of(one.get("value")) for _, one in items(outputs, "parameters") if "name" in one}
