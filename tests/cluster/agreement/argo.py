"""A pass on the real Argo: submitting a Workflow, and what its nodes tell when it is over. Called by play."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from penstock.controller.names import STOPPING
from penstock.formats.argo.gate.inject import ALONE, GATE, WRAPPER
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster.agreement.examples import Example
from tests.cluster.agreement.marks import Doc
from tests.cluster.agreement.told import Step, Told
from tests.cluster.argo_runs import API, OVER, path

_PHASES = {"Succeeded": "succeeded", "Failed": "failed", "Error": "errored", "Skipped": "skipped", "Omitted": "omitted"}
_INNER = ("Steps", "DAG")
_HOOK = re.compile(r"^(?P<step>.*?)(?:\((?P<index>\d+)(?::.*)?\))?\.(?P<hook>onExit|hooks\..+)$", re.S)
_ITEM = re.compile(r"^(?P<step>[^(]*)\((?P<index>\d+):.*\)$", re.S)
_GROUP = re.compile(r"^(?:\[\d+\])?(?:\.(?!onExit|hooks\.))?")
"""The number of a group of steps, between the name of a node and that of the one around it."""
_TRY = re.compile(r"\((\d+)\)$")


def submitted(example: Example) -> Doc:
    """The Workflow that runs the root: itself, or what Argo makes of a template or a schedule when it is started."""
    root = example.root
    metadata = root.get("metadata") or {}
    kept = {name: metadata[name] for name in ("labels", "annotations") if name in metadata}
    name = metadata.get("name") or metadata.get("generateName") or ""
    made: Doc = {"apiVersion": API, "kind": "Workflow", "metadata": {"generateName": f"{name.rstrip('-')}-", **kept}}
    match root["kind"]:
        case "Workflow":
            return root
        case "CronWorkflow":
            made["metadata"] = {**made["metadata"], **((root.get("spec") or {}).get("workflowMetadata") or {})}
            made["spec"] = (root.get("spec") or {}).get("workflowSpec") or {}
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            annotations = {**made["metadata"].get("annotations", {}), "workflows.argoproj.io/scheduled-time": now}
            made["metadata"]["annotations"] = annotations
        case kind:
            ref: Doc = {"name": name} | ({"clusterScope": True} if kind == "ClusterWorkflowTemplate" else {})
            made["spec"] = {"workflowTemplateRef": ref}
    return made


def is_over(found: Doc) -> bool:
    return found.get("status", {}).get("phase") in OVER


def resume(bed: Testbed, namespace: str, found: Doc) -> None:
    """Ends what is suspended, with the defaults of its outputs; not what a controller of queues holds. Somebody else may have written
    meanwhile: the next look tries again."""
    stopping = STOPPING in (found["metadata"].get("annotations") or {})
    changed = not stopping and found["spec"].pop("suspend", None) is not None
    for node in (found.get("status", {}).get("nodes") or {}).values():
        if node["type"] != "Suspend" or node["phase"] != "Running" or node.get("templateName") == GATE:
            continue
        for parameter in node.get("outputs", {}).get("parameters", ()):
            if "supplied" in parameter.get("valueFrom", {}):
                parameter["value"] = parameter.pop("valueFrom").get("default", "")
        node |= {"phase": "Succeeded", "finishedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        changed = True
    if changed:
        try:
            bed.raw("PUT", path(namespace, found["metadata"]["name"]), found)
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def told(found: Doc, entry: str) -> Told:
    """`entry`: what Penstock calls the only step of a run that is a leaf."""
    status = found.get("status", {})
    message = str(status.get("message") or "")
    phase = status.get("phase")
    if phase in ("Error", "Failed") and not status.get("nodes"):
        return Told("refused", message)
    end = {"Succeeded": "succeeded", "Failed": "failed", "Error": "failed"}.get(phase, "endless")
    return Told(end, message, _Nodes(found, entry).steps())


class _Nodes:
    """The nodes of a Workflow, as steps."""

    def __init__(self, found: Doc, entry: str) -> None:
        self.name = found["metadata"]["name"]
        self.entry = entry
        self.nodes: dict[str, Doc] = found.get("status", {}).get("nodes") or {}
        self.retry: dict[str, Doc] = {}
        """Try -> what is tried. Children are also what comes next; a try carries the name of what it is one of."""
        for node in self.nodes.values():
            for child in (node.get("children") or ()) if node["type"] == "Retry" else ():
                name = str(self.nodes.get(child, {}).get("name"))
                if _TRY.sub("", name) == node["name"] != name:
                    self.retry[child] = node

    def steps(self) -> dict[str, Step]:
        found, at_gates = {}, {}
        for id, node in self.nodes.items():
            if node["type"] in ("StepGroup", "Container") or id in self.retry or not self._counts(node):
                continue
            if node.get("templateName") == WRAPPER and node["type"] in _INNER:
                continue
            if node["type"] == "TaskGroup" and self._has_items(node):
                continue
            at = self._path(node)
            if at and at[-1].startswith(f"{GATE}-"):
                # A condition that cannot be evaluated: a gate has that of its task, and is asked first.
                if node["phase"] == "Error":
                    at_gates["/".join((*at[:-1], at[-1].removeprefix(f"{GATE}-")))] = self._step(id, node)
            elif at:
                found["/".join(at)] = self._step(id, node)
        return found | at_gates

    def _has_items(self, node: Doc) -> bool:
        return any(str(one["name"]).startswith(f"{node['name']}(") for one in self.nodes.values())

    def _step(self, id: str, node: Doc) -> Step:
        outcome = _PHASES.get(node["phase"], "running")
        if node.get("daemoned") and outcome == "running":
            outcome = "succeeded"
        tries = sum(one["id"] == id for one in self.retry.values()) if node["type"] == "Retry" else 0
        return Step(outcome, str(node.get("message") or ""), tries)

    def _counts(self, node: Doc) -> bool:
        """Not what belongs to a try that was followed by another one."""
        around = self.nodes.get(str(node.get("boundaryID")))
        if around is None:
            return True
        tried = self.retry.get(around["id"])
        if tried is not None and self._tries(tried)[-1] != around["id"]:
            return False
        return self._counts(tried or around)

    def _tries(self, node: Doc) -> list[str]:
        mine = [id for id, one in self.retry.items() if one is node]
        return sorted(mine, key=lambda id: int(_TRY.findall(self.nodes[id]["name"])[0]))

    def _path(self, node: Doc) -> tuple[str, ...]:
        if node["name"] == self.name:
            return () if node["type"] in _INNER else (self.entry,)
        id = str(node.get("boundaryID") or "")
        around = self.nodes.get(id)
        if around is not None and around.get("templateName") == WRAPPER:
            segment = self._segment(node, around)
            return (self.entry + segment.removeprefix(ALONE) if segment.startswith(ALONE) else segment,)
        before: tuple[str, ...] = ()
        if around is not None:
            before = self._path(self.retry.get(id, around))
        return (*before, self._segment(node, around))

    def _segment(self, node: Doc, around: Doc | None) -> str:
        """Its own part of its name. What it is shown as may be anything."""
        shown = _GROUP.sub("", str(node["name"])[len(self.name if around is None else str(around["name"])) :])
        hook = _HOOK.match(shown)
        if hook:
            name = hook["hook"].replace("hooks.", "hooks-")
            if not hook["step"]:
                return name
            index = f"[{hook['index']}]" if hook["index"] else ""
            return f"{hook['step']}-{name}{index}"
        item = _ITEM.match(shown)
        return f"{item['step']}[{item['index']}]" if item else shown
