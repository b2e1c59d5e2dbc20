"""The documents of a workflow: one Workflow, or a Workflow and the WorkflowTemplates it refers to, and ConfigMaps for files, locks and
code. Called by workflow.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from penstock.expressions.evaluate import to_text
from penstock.expressions.types import STR
from penstock.formats import shim
from penstock.formats.argo.labels import DESCRIPTION
from penstock.formats.argo.write.context import WriteContext, object_name
from penstock.formats.argo.write.pod import LARGEST_MAP, thawed
from penstock.formats.argo.write.policies import beyond, synchronization
from penstock.formats.argo.write.split import packed_documents
from penstock.formats.argo.write.variables import ArgoVariable, literal
from penstock.formats.documents import part
from penstock.formats.labels import PRIORITY, QUEUE
from penstock.formats.values import short_digest
from penstock.graph.model import MISSING, Nested, Parameter, Workflow

API: Final = "argoproj.io/v1alpha1"
CODE: Final = "penstock-code"
SMALL_CODE: Final = 30_000
"""Up to so many characters, code is a parameter of the workflow; more is a ConfigMap."""
MOST_MAPS: Final = 20
MOST_BYTES: Final = 700_000
"""The most bytes of one document: an object may have a mebibyte, and the status of the run needs room."""
MOST_TEMPLATES: Final = 200
_REFERENCE: Final = 60
"""Bytes that a reference to another document adds."""


class DocumentWriter:
    def __init__(self, context: WriteContext, workflow: Workflow) -> None:
        self.context = context
        self.workflow = workflow
        self.code = ""

    # -- code

    def ship(self, text: str) -> None:
        """Adds the author's code, once for the whole workflow."""
        if len(text) <= SMALL_CODE:
            self.code = text
            data = {"data": "{{workflow.parameters." + CODE + "}}"}
            self.context.code = {"artifacts": [{"name": CODE, "path": shim.CODE, "raw": data}]}
            return
        pieces = [text[at : at + LARGEST_MAP] for at in range(0, len(text), LARGEST_MAP)]
        if len(pieces) > MOST_MAPS:
            message = f"the code of the workflow has {len(text):,} characters in base64"
            self.context.wrong("P843", message, "put large files into the image", "")
            return
        digest = short_digest(text)
        names = [f"{object_name(self.context.name, 40)}-code-{digest}-{number}" for number in range(len(pieces))]
        for number, (name, piece) in enumerate(zip(names, pieces, strict=True)):
            self.context.maps[name] = {f"{number:03d}": piece}
        if len(names) == 1:
            volume: dict[str, Any] = {"configMap": {"name": names[0]}}
        else:
            volume = {"projected": {"sources": [{"configMap": {"name": name}} for name in names]}}
        self.context.volumes[CODE] = {"name": CODE, **volume}
        self.context.code = {"container": {"volumeMounts": [{"name": CODE, "mountPath": shim.CODE}]}}

    # -- all of them

    def all(self, entry: str, exit_handler: str) -> list[dict[str, Any]]:
        """ConfigMaps, WorkflowTemplates, and the Workflow last: referenced documents come first."""
        first = [name for name in (entry, exit_handler) if name]
        bodies = {name: self.context.bodies[name] for name in first if name in self.context.bodies}
        bodies |= self.context.bodies
        with self.context.about("", None):
            spec = self._spec(entry, exit_handler)
            shared = self._outsourced(bodies, first, spec)
            return [*self._config_maps(), *shared, self._workflow(spec, bodies)]
        return []

    def _workflow(self, spec: dict[str, Any], bodies: dict[str, dict[str, Any]]) -> dict[str, Any]:
        spec["templates"] = list(bodies.values())
        return {"apiVersion": API, "kind": "Workflow", "metadata": self._metadata(), "spec": spec}

    def _outsourced(
        self, bodies: dict[str, dict[str, Any]], first: list[str], spec: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """WorkflowTemplates with everything but the entrypoint, if it does not all fit into one object. They are removed from
        `bodies`, and references to them are updated."""
        sizes = {name: len(json.dumps(body, ensure_ascii=False).encode()) for name, body in bodies.items()}
        around = len(json.dumps(spec, ensure_ascii=False).encode())
        if sum(sizes.values()) + around <= MOST_BYTES and len(bodies) <= MOST_TEMPLATES:
            return []
        digest = short_digest(json.dumps(bodies, sort_keys=True))
        own = {name: bodies[name] for name in first}
        larger = {name: size + _REFERENCE * _calls(bodies[name]) for name, size in sizes.items()}
        packed_documents({"the workflow": around + sum(larger[name] for name in first)}, MOST_BYTES, 1)
        packs = packed_documents(
            {name: size for name, size in larger.items() if name not in own}, MOST_BYTES, MOST_TEMPLATES
        )
        home = {
            name: f"{object_name(self.context.name, 40)}-{digest}-{number + 1}"
            for number, pack in enumerate(packs)
            for name in pack
        }
        for name, body in bodies.items():
            _refer(body, home, home.get(name, ""))
        found = []
        for pack in packs:
            metadata = {"name": home[pack[0]], "labels": {"penstock/part-of": self.context.name}}
            templates = [bodies[name] for name in pack]
            found.append(
                {"apiVersion": API, "kind": "WorkflowTemplate", "metadata": metadata, "spec": {"templates": templates}}
            )
        bodies.clear()
        bodies.update(own)
        message = f"its templates do not fit into one object: {len(packs)} WorkflowTemplates go with it"
        self.context.report.changed("", message, "Create them before the Workflow.", self.workflow.source)
        return found

    def _config_maps(self) -> list[dict[str, Any]]:
        return [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
            for name, data in self.context.maps.items()
        ]

    # -- the workflow itself

    def _metadata(self) -> dict[str, Any]:
        workflow = self.workflow
        kept = thawed(part(workflow.extra, "metadata"))
        labels = {**kept.get("labels", {}), **workflow.labels}
        annotations = dict(kept.get("annotations", {}))
        if workflow.queue is not None:
            labels[QUEUE] = workflow.queue
        if isinstance(workflow.priority, str):
            labels[PRIORITY] = workflow.priority
        if workflow.doc:
            annotations[DESCRIPTION] = workflow.doc
        found: dict[str, Any] = {"generateName": f"{object_name(workflow.name, 57)}-"}
        if kept.get("namespace"):
            found["namespace"] = kept["namespace"]
        if labels:
            found["labels"] = labels
        if annotations:
            found["annotations"] = annotations
        return found

    def _spec(self, entry: str, exit_handler: str) -> dict[str, Any]:
        workflow = self.workflow
        spec: dict[str, Any] = {"entrypoint": entry}
        if exit_handler:
            spec["onExit"] = exit_handler
        arguments = self._arguments()
        if arguments:
            spec["arguments"] = arguments
        if workflow.parallel is not None:
            spec["parallelism"] = workflow.parallel
            if any(isinstance(step.action, Nested) for step in workflow.steps):
                message = "Argo counts the pods of called workflows too when it limits how many run at a time"
                self.context.report.changed("parallel", message, "", workflow.source)
        if workflow.timeout is not None:
            spec["activeDeadlineSeconds"] = math.ceil(workflow.timeout)
        if isinstance(workflow.priority, int):
            spec["priority"] = workflow.priority
        if workflow.locks:
            spec["synchronization"] = synchronization(self.context, workflow.locks, _of_workflow)
        if self.context.volumes:
            spec["volumes"] = list(self.context.volumes.values())
        if self.context.claims:
            spec["volumeClaimTemplates"] = list(self.context.claims.values())
        return self._kept(spec)

    def _kept(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Fields of the Argo document that the model has no place for."""
        for name, value in part(self.workflow.extra, "argo").items():
            if name == "cron":
                message = "it is written as a Workflow that is started by hand, without its schedule"
                self.context.report.lost(
                    "extra.argo.cron", message, "Put it into a CronWorkflow.", self.workflow.source
                )
            elif name == "entrypoint":
                self.context.bodies[spec["entrypoint"]] |= thawed(value)
            elif name in ("volumes", "volumeClaimTemplates") and name in spec:
                theirs = {_name_of(one) for one in value}
                spec[name] = [*(one for one in spec[name] if _name_of(one) not in theirs), *thawed(value)]
            else:
                spec.setdefault(name, thawed(value))
        for foreign, names in beyond(self.workflow.extra):
            message = f"what the {foreign} document says beyond the model is not known to Argo: {names}"
            self.context.report.lost(f"extra.{foreign}", message, "", self.workflow.source)
        return spec

    def _arguments(self) -> dict[str, Any]:
        parameters = []
        artifacts = []
        for param in self.workflow.params:
            if param.type.name in ("file", "dir"):
                artifacts.append({"name": param.name})
                message = "a file is given to Argo by the place where it is kept"
                self.context.report.changed(
                    f"params.{param.name}", message, "Give its location when it is submitted: s3, http, raw …"
                )
            else:
                parameters.append(_parameter(param))
        if self.code:
            parameters.append({"name": CODE, "value": self.code})
        return {**({"parameters": parameters} if parameters else {}), **({"artifacts": artifacts} if artifacts else {})}


def _name_of(volume: Mapping[str, Any]) -> Any:
    return volume.get("name") or part(volume, "metadata").get("name")


def _parameter(param: Parameter) -> dict[str, Any]:
    found: dict[str, Any] = {"name": param.name}
    if param.default is not MISSING:
        found["value"] = literal(to_text(param.default))
    if param.choices:
        found["enum"] = [to_text(choice) for choice in param.choices]
    if param.doc:
        found["description"] = param.doc
    return found


def _of_workflow(path: tuple[str, ...]) -> ArgoVariable | None:
    match path:
        case ("params", name):
            return ArgoVariable(("workflow", "parameters", name), STR, 2)
        case ("run", "id"):
            return ArgoVariable(("workflow", "name"), STR, 2)
    return None


def _calls(body: dict[str, Any]) -> int:
    return len(body.get("dag", {}).get("tasks", ()))


def _refer(body: dict[str, Any], home: dict[str, str], own: str) -> None:
    """Makes calls of templates of another document name that document."""
    for task in body.get("dag", {}).get("tasks", ()):
        for call in (task, *task.get("hooks", {}).values()):
            name = call["template"]
            if home.get(name, "") != own:
                where = list(call)
                moved = {"name": home[name], "template": name}
                entries = {
                    ("templateRef" if key == "template" else key): (moved if key == "template" else call[key])
                    for key in where
                }
                call.clear()
                call.update(entries)
