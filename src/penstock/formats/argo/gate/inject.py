"""Rewrites the templates of an Argo document so that stages, or single pods, wait for admission. Called by gate.document.

A suspend step goes before each stage: a group before a group of steps, a task that takes over the dependencies of a dag task, a group before
an entrypoint that is a leaf. Its inputs are the stage's name and shape, its output says where the stage may run. The user's graph stays: steps
keep their names, so all references hold.

A template is changed in place unless something else needs the original: a template of another document, or one that an exit handler or hook
calls as well (those never wait). Such a template is copied under a reserved name, and the calls of the main path go to the copy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from penstock.errors import DocumentError, Problem
from penstock.formats.argo.gate import text
from penstock.formats.argo.pods import PodShape, shape_of
from penstock.formats.argo.scope import (
    Resolved,
    Unresolved,
    WorkflowRoot,
    calls_of,
    is_composite,
    is_pod,
    root_of,
    type_of,
)
from penstock.formats.argo.stages import ROOT, StaticStage, StaticStages, static_stages
from penstock.formats.documents import Document, Library, items, part
from penstock.formats.gates.marks import POD_GATE, copied, refusal
from penstock.formats.report import Report

GATE = "penstock-gate"
"""The template of every gate, and the reserved prefix of every name that is added."""
WRAPPER, ALONE = "penstock-gate-root", "main"
SELECTOR = "penstock-gate-node-selector"
"""The input that tells a leaf template where it may run."""
_SELECTOR_OUT = "node-selector"
_SELECTED = frozenset({"container", "script", "containerSet", "data"})
"""Types whose own pod does the work; the pod of a resource template only creates other pods."""
_WHOLE_INPUTS = re.compile(r"inputs\.parameters(?!\s*[.\[])")
_LONGEST = 100
_TEMPLATE_KINDS = ("WorkflowTemplate", "ClusterWorkflowTemplate")

By = Literal["suspend", "pods"]


def gate_template() -> dict[str, Any]:
    """The suspend template. Every output has a default, because a plain `argo resume` would fail otherwise. It has no duration, because it would
    resume by itself. `node-selector` is a JSON object."""
    return {
        "name": GATE,
        "inputs": {"parameters": [{"name": "stage"}, {"name": "shape"}, {"name": "key", "default": ""}]},
        "outputs": {
            "parameters": [
                {"name": "flavor", "valueFrom": {"supplied": {}, "default": ""}},
                {"name": _SELECTOR_OUT, "valueFrom": {"supplied": {}, "default": "{}"}},
            ]
        },
        "suspend": {},
    }


class Injection:
    """Adds gates to one document. Changes `spec` in place."""

    def __init__(self, library: Library, document: Document, spec: dict[str, Any], by: By, report: Report) -> None:
        self.document = document
        self.spec = spec
        self.by = by
        self.report = report
        self.root: WorkflowRoot = root_of(library, document)
        self.derived = static_stages(library, document, everything=document.kind in _TEMPLATE_KINDS)
        self.stages: dict[str, StaticStage] = {stage.name: stage for stage in self.derived.queued() if stage.asks}
        """Those that get a gate: what asks for nothing does not wait."""
        self.shapes: dict[str, list[PodShape]] = {}
        """The shapes that each leaf template has where it is called."""
        for stage in self.derived.queued():
            for call in stage.calls:
                self.shapes.setdefault(call.template, []).append(call.shape)
        self.called = {call.template for stage in self.stages.values() for call in stage.calls}
        """Templates that a gated stage of this document calls. The others are gated by the documents that call them."""
        self.copies: dict[str, str] = {}
        """Qualified name -> the name of the copy."""
        self.taken: set[str] = set()
        self.done: set[str] = set()
        self.selected: dict[str, bool] = {}
        """Leaf templates -> whether they are told where they may run."""
        self.own: dict[str, dict[str, Any]] = {}
        self.added: list[dict[str, Any]] = []
        self.gates = 0

    def run(self) -> None:
        self._refuse_lost()
        for stage in self.derived.queued():
            if not stage.asks:
                said = f"stage {stage.name} asks for no resources, so it does not wait"
                self.report.kept(stage.path, said, stage.source)
        refuse_reserved(self.root, self.derived)
        self._merge_reference()
        if self.by == "suspend":
            self._refuse_defaults()
        for resolved in self.derived.main.values():
            if not resolved.qualified.startswith("inline:"):
                self._name(resolved)
        for resolved in list(self.derived.main.values()):
            if not resolved.qualified.startswith("inline:"):
                self._template(resolved)
        self._entry()
        if self.gates:
            self.added.insert(0, gate_template())
        if self.added:
            self.spec["templates"] = [*self._templates(), *self.added]

    # Refusals

    def _refuse_lost(self) -> None:
        problems = [
            lost.document.problem(
                "P862",
                lost.path,
                f"{lost.unresolved.reference} cannot be followed: {_WHY[lost.unresolved.reason]}",
                _HELP[lost.unresolved.reason],
            )
            for lost in self.derived.unresolved
            if not lost.exempt
        ]
        if problems:
            raise DocumentError(problems)

    def _refuse_defaults(self) -> None:
        for name in ("memoize", "synchronization"):
            if self.stages and part(self.root.spec, "templateDefaults").get(name) is not None:
                raise refusal(
                    self.document,
                    "P865",
                    f"{self.root.path}.templateDefaults.{name}",
                    f"templateDefaults with {name} would count for the gates too",
                    f"write {name} on the templates that it is meant for, or gate the pods (--by pods)",
                )

    # Templates to change

    def _merge_reference(self) -> None:
        """A workflow with workflowTemplateRef cannot have templates of its own: the spec is merged into it."""
        if self.spec.get("workflowTemplateRef") is None:
            return
        merged = copied(self.root.spec)
        merged.pop("workflowTemplateRef", None)
        merged["templates"] = [copied(template) for template, _, _ in self.root.scope.templates.values()]
        self.spec.clear()
        self.spec.update(merged)
        path = f"{self.root.path}.workflowTemplateRef"
        self.report.changed(
            path,
            "replaced by the spec that it names, with gates in it",
            "where only references are allowed (templateReferencing: Strict) queue it whole: --unit workflow",
            self.document.source(path),
        )

    def _templates(self) -> list[Any]:
        found = self.spec.get("templates")
        return found if isinstance(found, list) else []

    def _own(self) -> dict[str, dict[str, Any]]:
        """The user's templates by name; of two with one name the first counts."""
        if not self.own:
            for one in self._templates():
                if isinstance(one, dict):
                    self.own.setdefault(str(one.get("name") or ""), one)
        return self.own

    def _local(self, resolved: Resolved) -> bool:
        return resolved.scope.kind == "local"

    def _name(self, resolved: Resolved) -> None:
        """Decides whether a template is copied, and what the copy is called."""
        leaf = is_pod(resolved.template)
        if not leaf and not is_composite(resolved.template):
            return
        shared = resolved.qualified in self.derived.exempt and (self.by == "pods" or not leaf)
        if self._local(resolved) and not shared:
            return
        if leaf and not (self._held(resolved) and self._edits(resolved)):
            return
        slug = re.sub(r"[^A-Za-z0-9]+", "-", resolved.qualified).strip("-")[:_LONGEST]
        name, number = f"{GATE}-of-{slug}", 1
        while name in self.taken:
            number += 1
            name = f"{GATE}-of-{slug}-{number}"
        self.taken.add(name)
        self.copies[resolved.qualified] = name

    def _edits(self, leaf: Resolved) -> bool:
        """Is anything added to this leaf template?"""
        return self.by == "pods" or self._selects(leaf)

    def _place(self, resolved: Resolved) -> dict[str, Any]:
        """The template to change: the user's own, or a copy."""
        name = self.copies.get(resolved.qualified)
        if name is None:
            return self._own()[str(resolved.template.get("name") or "")]
        copy: dict[str, Any] = {**copied(resolved.template), "name": name}
        self.added.append(copy)
        why = "an exit handler or a hook calls it too" if self._local(resolved) else "it lies in another document"
        self.report.changed(
            resolved.path, f"copied as {name}, because {why}", "", resolved.document.source(resolved.path)
        )
        return copy

    # Templates

    def _template(self, resolved: Resolved) -> None:
        if resolved.qualified in self.done:
            return
        self.done.add(resolved.qualified)
        if is_composite(resolved.template):
            self._composite(resolved, self._place(resolved))
        elif is_pod(resolved.template) and self._held(resolved) and self._edits(resolved):
            here = self._place(resolved)
            if self.by == "pods":
                self._gate_pod(resolved, here)
            else:
                self._select(here, resolved)
        elif type_of(resolved.template) == "suspend":
            source = resolved.document.source(resolved.path)
            self.report.kept(resolved.path, "a suspend of your own: it is no gate, and stays as it is", source)

    def _held(self, leaf: Resolved) -> bool:
        if self.by == "pods":
            shapes = self.shapes.get(leaf.qualified) or [shape_of(self.root, leaf, {})]
            return any(shape.asks for shape in shapes)
        return leaf.qualified in self.called

    def _composite(self, resolved: Resolved, here: dict[str, Any]) -> None:
        if type_of(resolved.template) == "steps":
            self._steps(resolved, here)
        else:
            self._dag(resolved, here)

    def _steps(self, resolved: Resolved, here: dict[str, Any]) -> None:
        groups: list[Any] = []
        given = here["steps"]
        for number, group in enumerate(given if isinstance(given, list) else ()):
            path = f"{resolved.path}.steps[{number}]"
            if not isinstance(group, list):
                raise refusal(
                    resolved.document, "P868", path, "a group of steps is a list", "write two dashes: `- - name: …`"
                )
            stage = self.stages.get(f"{resolved.qualified}[{number}]")
            gate = f"{GATE}-{number}" if stage is not None and self.by == "suspend" else ""
            for at, call in enumerate(group):
                if isinstance(call, dict):
                    self._call(resolved, number, call, f"{path}[{at}]", f"steps.{gate}" if gate else "")
            if gate and stage is not None:
                groups.append([self._gate(gate, stage)])
                if stage.mixed:
                    self.report.changed(
                        path,
                        "the calls of other templates in this group wait for the gate of its leaves too",
                        "give them a group, or a task, of their own",
                        resolved.document.source(path),
                    )
            groups.append(group)
        here["steps"] = groups

    def _dag(self, resolved: Resolved, here: dict[str, Any]) -> None:
        tasks: list[Any] = []
        given = part(here, "dag").get("tasks")
        listed = given if isinstance(given, list) else []
        field = "depends" if any(isinstance(one, dict) and one.get("depends") for one in listed) else "dependencies"
        for at, call in enumerate(listed):
            if isinstance(call, dict):
                path = f"{resolved.path}.dag.tasks[{at}]"
                stage = self.stages.get(resolved.at(None, call)) if self.by == "suspend" else None
                gate = f"{GATE}-{call.get('name')}" if stage is not None else ""
                self._call(resolved, None, call, path, f"tasks.{gate}" if gate else "")
                if stage is not None:
                    if str(call.get("name"))[:1].isdigit():
                        raise refusal(
                            resolved.document,
                            "P865",
                            path,
                            "a task whose name begins with a digit can wait for nothing",
                            "give it a name that begins with a letter, or gate the pods (--by pods)",
                        )
                    task = self._gate(gate, stage)
                    task |= {name: call.pop(name) for name in ("depends", "dependencies") if name in call}
                    call[field] = gate if field == "depends" else [gate]
                    tasks.append(task)
            tasks.append(call)
        if isinstance(here.get("dag"), dict):
            here["dag"]["tasks"] = tasks

    def _gate(self, name: str, stage: StaticStage) -> dict[str, Any]:
        """The suspend step or task."""
        parameters = [{"name": "stage", "value": stage.name}, {"name": "shape", "value": text.shape(stage)}]
        key = text.cache_key(stage)
        if key:
            parameters.append({"name": "key", "value": key})
        call: dict[str, Any] = {"name": name, "template": GATE, "arguments": {"parameters": parameters}}
        when = text.condition(stage)
        if when:
            call["when"] = when
        self.gates += 1
        self.report.changed(stage.path, f"stage {stage.name} waits at {name}", "", stage.source)
        return call

    # Calls

    def _call(self, resolved: Resolved, number: int | None, call: dict[str, Any], path: str, gate: str) -> None:
        """Redirects a step or task to the copy of what it calls, and passes on where it may run."""
        found = resolved.resolve(call, resolved.at(number, call), path)
        if not self._local(resolved):
            _from_afar(resolved, call)
        if isinstance(found, Unresolved):
            return
        if found.qualified.startswith("inline:"):
            self._inline(found, call, gate)
            return
        copy = self.copies.get(found.qualified)
        if copy is not None:
            call.pop("templateRef", None)
            call["template"] = copy
        if gate and is_pod(found.template) and self._selects(found):
            _tell(call, gate)

    def _inline(self, found: Resolved, call: dict[str, Any], gate: str) -> None:
        here = call["inline"]
        if is_composite(found.template):
            self._composite(found, here)
        elif is_pod(found.template):
            if self.by == "pods":
                if self._held(found):
                    self._gate_pod(found, here)
            elif gate and self._selects(found):
                # Argo validates an inline template alone too. It knows inputs there, but no steps and tasks around it.
                self._select(here, found)
                _tell(call, gate)

    def _selects(self, leaf: Resolved) -> bool:
        """Can a node selector be passed to this leaf without changing what it does?"""
        known = self.selected.get(leaf.qualified)
        if known is None:
            why = self._unselectable(leaf)
            self.selected[leaf.qualified] = known = not why
            if why and type_of(leaf.template) in _SELECTED:
                self.report.changed(
                    leaf.path,
                    f"its pods are not told where they may run: {why}",
                    "the gate's output node-selector can be read in podSpecPatch",
                    leaf.document.source(leaf.path),
                )
        return known

    def _unselectable(self, leaf: Resolved) -> str:
        if type_of(leaf.template) not in _SELECTED:
            return "it has no pod of its own that works"
        effective = leaf.scope.effective(leaf.template)
        if text.patched(effective.get("podSpecPatch"), "nodeSelector", "{}") is None:
            return "its podSpecPatch has a nodeSelector, or cannot be read"
        if any(_WHOLE_INPUTS.search(one) for one in _texts(effective)):
            return "it reads all its inputs at once, and one more would show"
        return ""

    def _select(self, here: dict[str, Any], leaf: Resolved) -> None:
        effective = leaf.scope.effective(leaf.template)
        value = f"{{{{inputs.parameters.{SELECTOR}}}}}"
        here["podSpecPatch"] = text.patched(effective.get("podSpecPatch"), "nodeSelector", value)
        inputs = _mapping(here, "inputs")
        inputs["parameters"] = [*_list(inputs, "parameters"), {"name": SELECTOR, "default": "{}"}]

    def _gate_pod(self, leaf: Resolved, here: dict[str, Any]) -> None:
        here["podSpecPatch"] = gated_patch(
            leaf.scope.effective(leaf.template).get("podSpecPatch"), leaf.document, f"{leaf.path}.podSpecPatch"
        )
        source = leaf.document.source(leaf.path)
        self.report.changed(leaf.path, f"its pods wait with the scheduling gate {POD_GATE}", "", source)

    # The entrypoint

    def _entry(self) -> None:
        entry = self.root.entry()
        if not isinstance(entry, Resolved):
            return
        if entry.qualified in self.copies:
            self.spec["entrypoint"] = self.copies[entry.qualified]
        stage = self.stages.get(ROOT)
        if stage is not None and self.by == "suspend":
            self.added.append(self._wrapper(entry, stage))
            self.spec["entrypoint"] = WRAPPER

    def _wrapper(self, entry: Resolved, stage: StaticStage) -> dict[str, Any]:
        """If a leaf is the whole workflow, a template with the gate and the leaf goes around it and passes on all inputs."""
        gate = f"{GATE}-0"
        call: dict[str, Any] = {"name": ALONE, "template": self.spec["entrypoint"]}
        inputs = part(entry.template, "inputs")
        parameters = [dict(one) for _, one in items(inputs, "parameters") if isinstance(one.get("name"), str)]
        handed = [{"name": one["name"], "value": f"{{{{inputs.parameters.{one['name']}}}}}"} for one in parameters]
        if self._selects(entry):
            handed.append({"name": SELECTOR, "value": f"{{{{steps.{gate}.outputs.parameters.{_SELECTOR_OUT}}}}}"})
        artifacts = self._artifacts(inputs)
        here: dict[str, Any] = {"name": WRAPPER, "steps": [[self._gate(gate, stage)], [call]]}
        arguments: dict[str, Any] = {"parameters": handed} if handed else {}
        if artifacts:
            arguments["artifacts"] = [{**one, "from": f"{{{{inputs.artifacts.{one['name']}}}}}"} for one in artifacts]
        if arguments:
            call["arguments"] = arguments
        if parameters or artifacts:
            here["inputs"] = {"parameters": copied(parameters)} if parameters else {}
            here["inputs"] |= {"artifacts": artifacts} if artifacts else {}
        if self.root.spec.get("retryStrategy") or part(self.root.spec, "templateDefaults").get("retryStrategy"):
            here["retryStrategy"] = {"limit": "0"}  # the leaf has its own retries; these would multiply them
        return here

    def _artifacts(self, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The artifacts that the workflow is given; one with a location of its own is not passed on. A template that others start may be
        given anything."""
        given = [one.get("name") for _, one in items(part(self.root.spec, "arguments"), "artifacts")]
        found = []
        for _, one in items(inputs, "artifacts"):
            if not isinstance(one.get("name"), str):
                continue
            placed = set(one) - {"name", "path", "mode", "optional", "recurseMode", "archive", "subPath"}
            if one["name"] in given or (self.document.kind in _TEMPLATE_KINDS and not placed):
                optional = {"optional": True} if one.get("optional") is True else {}
                found.append({"name": one["name"], **optional})
        return found


_WHY = {
    "templated": "the run decides which template that is",
    "absent": "its document is not here",
    "missing": "there is no such template",
}
_HELP = {
    "templated": "queue the workflow whole (--unit workflow)",
    "absent": "give its file, or the folder, as well",
    "missing": "fix the name",
}


def refuse_reserved(root: WorkflowRoot, derived: StaticStages) -> None:
    """Refuses names with the reserved prefix: a gate could not be distinguished from a step of the user."""
    problems: list[Problem] = []
    own = [found for name in root.scope.templates if isinstance(found := root.scope.find(name), Resolved)]
    for resolved in {one.qualified: one for one in (*own, *derived.main.values())}.values():
        for path, name in _names_in(resolved):
            if name.startswith(GATE):
                message = f"the name {name!r} begins with {GATE!r}, which is kept for gates"
                problems.append(resolved.document.problem("P860", path, message, "choose another name"))
    if problems:
        raise DocumentError(problems)


def _names_in(resolved: Resolved) -> list[tuple[str, str]]:
    template, path = resolved.template, resolved.path
    found = [(f"{path}.name", str(template.get("name") or ""))]
    found += [(where, str(call.get("name") or "")) for _, call, where in calls_of(template, path)]
    for at, one in items(part(template, "inputs"), "parameters"):
        found.append((f"{path}.inputs.parameters[{at}]", str(one.get("name") or "")))
    return found


def gated_patch(patch: Any, document: Document, path: str) -> str:
    """A podSpecPatch that makes the pod wait. Raises DocumentError."""
    found = text.patched(patch, "schedulingGates", f'[{{"name":"{POD_GATE}"}}]')
    if found is None:
        raise refusal(
            document,
            "P865",
            path,
            "this podSpecPatch has schedulingGates already, or cannot be read",
            "write it as YAML or JSON with tags in quotes, without schedulingGates",
        )
    return found


def _from_afar(resolved: Resolved, call: dict[str, Any]) -> None:
    """A call that is copied to another document must still refer to the templates of its own."""

    def reference(name: str) -> dict[str, Any]:
        found: dict[str, Any] = {"name": resolved.scope.document.name, "template": name}
        return {**found, "clusterScope": True} if resolved.scope.kind == "ClusterWorkflowTemplate" else found

    def redirect(one: dict[str, Any]) -> None:
        if isinstance(one.get("template"), str) and "inline" not in one and "templateRef" not in one:
            one["templateRef"] = reference(one.pop("template"))

    redirect(call)
    for hook in part(call, "hooks").values():
        if isinstance(hook, dict):
            redirect(hook)
    if isinstance(call.get("onExit"), str) and call["onExit"]:
        _mapping(call, "hooks").setdefault("exit", {"templateRef": reference(call.pop("onExit"))})


def _tell(call: dict[str, Any], gate: str) -> None:
    """The call passes on the node selector of the gate."""
    arguments = _mapping(call, "arguments")
    value = f"{{{{{gate}.outputs.parameters.{_SELECTOR_OUT}}}}}"
    arguments["parameters"] = [*_list(arguments, "parameters"), {"name": SELECTOR, "value": value}]


def _mapping(here: dict[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(here.get(name), dict):
        here[name] = {}
    found: dict[str, Any] = here[name]
    return found


def _list(here: Mapping[str, Any], name: str) -> list[Any]:
    found = here.get(name)
    return found if isinstance(found, list) else []


def _texts(value: Any) -> list[str]:
    """All text in a template, at any depth."""
    found, waiting = [], [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, Mapping):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return found
