"""Resolves calls of Argo templates. Called by the reader, by stages and by the gate.

A name is resolved in the scope of the document in which the call is written: `template: x` inside a WorkflowTemplate that was reached by
`templateRef` is that WorkflowTemplate's x, never the caller's. A `workflowTemplateRef` is different: it merges the whole spec. This module
works on the documents as they were written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from penstock.formats.documents import Document, Library, items, part

KINDS = ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")
"""Kinds of documents with a workflow spec."""
TYPES = ("container", "containerSet", "steps", "dag", "script", "resource", "data", "suspend", "http", "plugin")
"""In the order in which Argo checks them."""
POD_TYPES = frozenset({"container", "containerSet", "script", "resource", "data"})
COMPOSITE_TYPES = frozenset({"steps", "dag"})

LISTS_BY: Mapping[str, str] = {
    "templates": "name",
    "parameters": "name",
    "artifacts": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "tasks": "name",
    "containers": "name",
    "initContainers": "name",
    "sidecars": "name",
    "env": "name",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "volumeMounts": "mountPath",
    "hostAliases": "ip",
    "tolerations": "key",
    "topologySpreadConstraints": "topologyKey",
}
"""Lists that are merged item by item, and the field that identifies an item; all other lists are replaced."""
_DEEPEST = 100


def type_of(template: Mapping[str, Any]) -> str:
    """One of TYPES, or empty."""
    return next((name for name in TYPES if template.get(name) is not None), "")


def is_pod(template: Mapping[str, Any]) -> bool:
    """It runs in a pod of its own, so it needs quota."""
    return type_of(template) in POD_TYPES


def is_composite(template: Mapping[str, Any]) -> bool:
    return type_of(template) in COMPOSITE_TYPES


@dataclass(frozen=True)
class Resolved:
    """A template that was found, and its place."""

    template: Mapping[str, Any]
    """As it is written; `scope.effective(template)` has templateDefaults merged in."""
    path: str
    """Within `document`: `spec.templates[2]`."""
    document: Document = field(repr=False)
    scope: TemplateScope = field(repr=False)
    """The scope of its own calls."""
    qualified: str
    """Its name, unique over all scopes: `main`, `wftmpl:lib/main`, `cwftmpl:lib/main`, `inline:main[0].a`."""

    @property
    def type(self) -> str:
        return type_of(self.template)

    def resolve(self, call: Mapping[str, Any], at: str = "", path: str = "") -> Resolved | Unresolved:
        """The template of a call that is written in this one."""
        return self.scope.resolve(call, at, path, self.document)

    def at(self, group: int | None, call: Mapping[str, Any]) -> str:
        """The name of a step or task of this template: `main[0].a`, `main.a`."""
        return f"{self.qualified}{'' if group is None else f'[{group}]'}.{call.get('name') or ''}"


@dataclass(frozen=True)
class Unresolved:
    """A call whose template cannot be found."""

    reason: Literal["templated", "absent", "missing"]
    """templated: the reference contains `{{`, so only the run knows it. absent: its document is not in the library. missing: the document has
    no such template, or the call names none."""
    reference: str
    """The reference, for messages: `templateRef lib/build`."""


@dataclass(frozen=True)
class TemplateScope:
    """Templates that may call one another by plain name."""

    library: Library = field(repr=False)
    document: Document = field(repr=False)
    kind: Literal["local", "WorkflowTemplate", "ClusterWorkflowTemplate"]
    name: str
    """`ns/name` or `name`; empty for the local scope."""
    templates: Mapping[str, tuple[Mapping[str, Any], str, Document]] = field(repr=False)
    """Name -> the template, its path and its document, which may be that of the workflowTemplateRef."""
    defaults: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The templateDefaults of the workflow that runs: they apply to templates of every scope."""
    reached: dict[tuple[str, str], TemplateScope] = field(default_factory=dict, repr=False, compare=False)
    """The scopes that templateRefs led to, by kind and name; shared by all of them, since a document may be referred to by every step."""

    def qualify(self, name: str) -> str:
        if self.kind == "local":
            return name
        return f"{'wftmpl' if self.kind == 'WorkflowTemplate' else 'cwftmpl'}:{self.name}/{name}"

    def effective(self, template: Mapping[str, Any]) -> dict[str, Any]:
        """Merged with templateDefaults; the template keeps its own type."""
        own = type_of(template)
        found = merge(self.defaults, template)
        return {name: value for name, value in found.items() if name not in TYPES or name == own}

    def find(self, name: str) -> Resolved | Unresolved:
        """A template of this scope by its plain name."""
        found = self.templates.get(name)
        if found is None:
            return Unresolved("missing", f"template {name}")
        template, path, document = found
        return Resolved(template, path, document, self, self.qualify(name))

    def resolve(
        self, call: Mapping[str, Any], at: str = "", path: str = "", document: Document | None = None
    ) -> Resolved | Unresolved:
        """The template that a step, task or hook calls: `inline`, `templateRef` or `template`. `at` names the call for an inline template
        (`main[0].a`); `path` in `document` is where the call is written."""
        if isinstance(call.get("inline"), Mapping):
            return Resolved(call["inline"], f"{path}.inline", document or self.document, self, f"inline:{at}")
        if isinstance(call.get("templateRef"), Mapping):
            return self._other(call["templateRef"])
        name = call.get("template")
        if not isinstance(name, str) or not name:
            return Unresolved("missing", "no template")
        return Unresolved("templated", f"template {name}") if "{{" in name else self.find(name)

    def _other(self, ref: Mapping[str, Any]) -> Resolved | Unresolved:
        name, template = str(ref.get("name") or ""), str(ref.get("template") or "")
        reference = f"templateRef {name}/{template}"
        if "{{" in name or "{{" in template:
            return Unresolved("templated", reference)
        document = _referred(self.library, ref)
        if document is None:
            return Unresolved("absent", reference)
        known = self.reached.get((document.kind, document.name))
        if known is None:
            known = replace(scope_of(self.library, document, self.defaults), reached=self.reached)
            self.reached[document.kind, document.name] = known
        found = known.find(template)
        return found if isinstance(found, Resolved) else Unresolved("missing", reference)


@dataclass(frozen=True)
class WorkflowRoot:
    """A document that can be run: its spec with the workflowTemplateRef merged in, and the scope of its templates."""

    document: Document
    path: str
    """The path of the spec: `spec`, or `spec.workflowSpec` of a CronWorkflow."""
    own: Mapping[str, Any]
    """The spec as it is written."""
    spec: Mapping[str, Any]
    """The merged spec."""
    scope: TemplateScope
    unresolved: Unresolved | None = None
    """A workflowTemplateRef to a document that is not in the library."""

    @property
    def entrypoint(self) -> str:
        found = self.spec.get("entrypoint")
        return found if isinstance(found, str) else ""

    def entry(self) -> Resolved | Unresolved | None:
        """The entrypoint; None if the document has none."""
        if not self.entrypoint:
            return None
        found = self.scope.find(self.entrypoint)
        return self.unresolved if self.unresolved and isinstance(found, Unresolved) else found

    def exits(self) -> Iterator[tuple[str, str, Resolved | Unresolved]]:
        """`onExit` and the hooks of the whole workflow: name ("exit" for onExit), path, template."""
        yield from exits_of(self.spec, self.scope, self.path)


def exits_of(
    call: Mapping[str, Any], scope: TemplateScope, path: str, at: str = ""
) -> Iterator[tuple[str, str, Resolved | Unresolved]]:
    """The exit handler and the hooks of a call, or of a whole spec."""
    named = call.get("onExit")
    if isinstance(named, str) and named:
        yield "exit", f"{path}.onExit", scope.find(named)
    for name, hook in part(call, "hooks").items():
        if isinstance(hook, Mapping) and (hook.get("template") or hook.get("templateRef")):
            yield str(name), f"{path}.hooks.{name}", scope.resolve(hook, f"{at}@{name}", f"{path}.hooks.{name}")


def spec_path(document: Document) -> str:
    return "spec.workflowSpec" if document.kind == "CronWorkflow" else "spec"


def spec_of(document: Document) -> Mapping[str, Any]:
    """The workflow spec of a document as it is written."""
    return part(document.data, *spec_path(document).split("."))


def root_of(library: Library, document: Document) -> WorkflowRoot:
    """For a Workflow, WorkflowTemplate, ClusterWorkflowTemplate or CronWorkflow."""
    own = spec_of(document)
    spec, places, unresolved = _with_reference(library, document, frozenset())
    defaults = part(spec, "templateDefaults")
    scope = TemplateScope(library, document, "local", "", places, defaults)
    return WorkflowRoot(document, spec_path(document), own, spec, scope, unresolved)


def scope_of(library: Library, document: Document, defaults: Mapping[str, Any] | None = None) -> TemplateScope:
    """The scope of a WorkflowTemplate or ClusterWorkflowTemplate that is reached by templateRef."""
    cluster = document.kind == "ClusterWorkflowTemplate"
    qualified = document.name if cluster or not document.namespace else f"{document.namespace}/{document.name}"
    kind: Literal["WorkflowTemplate", "ClusterWorkflowTemplate"] = (
        "ClusterWorkflowTemplate" if cluster else "WorkflowTemplate"
    )
    return TemplateScope(library, document, kind, qualified, _places(document), defaults or {})


TemplateIndex = dict[str, tuple[Mapping[str, Any], str, Document]]


def _places(document: Document) -> TemplateIndex:
    found: TemplateIndex = {}
    path = spec_path(document)
    for number, template in items(spec_of(document), "templates"):
        found.setdefault(str(template.get("name") or ""), (template, f"{path}.templates[{number}]", document))
    return found


def _with_reference(
    library: Library, document: Document, seen: frozenset[tuple[str, str]]
) -> tuple[Mapping[str, Any], TemplateIndex, Unresolved | None]:
    """The spec merged with its workflowTemplateRef, all its templates with their places, and an unresolved reference."""
    own, places = spec_of(document), _places(document)
    ref = own.get("workflowTemplateRef")
    if not isinstance(ref, Mapping):
        return own, places, None
    reference = f"workflowTemplateRef {ref.get('name')}"
    found = None if "{{" in str(ref.get("name")) else _referred(library, ref)
    if found is None:
        return own, places, Unresolved("templated" if "{{" in reference else "absent", reference)
    if (found.kind, found.name) in seen:
        return own, places, Unresolved("missing", f"{reference}, which leads back to itself")
    below, others, unresolved = _with_reference(library, found, seen | {(found.kind, found.name)})
    # Argo does not inherit `suspend`: it would suspend every workflow made from the template.
    shared = {name: value for name, value in below.items() if name != "suspend"}
    return merge(shared, own), {**others, **places}, unresolved


def _referred(library: Library, ref: Mapping[str, Any]) -> Document | None:
    kind = "ClusterWorkflowTemplate" if ref.get("clusterScope") is True else "WorkflowTemplate"
    return library.find(kind, str(ref.get("name") or ""))


def calls_of(template: Mapping[str, Any], path: str) -> Iterator[tuple[int | None, Mapping[str, Any], str]]:
    """Every step with the number of its group, or every task with None, and its path. In Argo 3 a group
    may be one step instead of a list."""
    if type_of(template) == "steps":
        for number, group in groups_of(template):
            for at, call in enumerate(group):
                yield number, call, f"{path}.steps[{number}][{at}]"
    elif type_of(template) == "dag":
        for at, call in items(part(template, "dag"), "tasks"):
            yield None, call, f"{path}.dag.tasks[{at}]"


def groups_of(template: Mapping[str, Any]) -> Iterator[tuple[int, list[Mapping[str, Any]]]]:
    found = template.get("steps")
    for number, group in enumerate(found if isinstance(found, list) else ()):
        inner = group.get("steps") if isinstance(group, Mapping) and isinstance(group.get("steps"), list) else group
        listed = inner if isinstance(inner, list) else [inner]
        yield number, [call for call in listed if isinstance(call, Mapping)]


def merge(below: Any, own: Any, name: str = "", depth: int = 0) -> Any:
    """Two values, the second wins, as in Kubernetes' strategic merge: maps are merged, lists of named items are merged item by item,
    everything else is replaced; null removes a field."""
    if depth > _DEEPEST:
        return own
    if isinstance(below, Mapping) and isinstance(own, Mapping):
        found = dict(below)
        for key, value in own.items():
            if value is None:
                found.pop(key, None)
            else:
                found[key] = merge(found[key], value, str(key), depth + 1) if key in found else value
        return found
    if isinstance(below, list) and isinstance(own, list) and name in LISTS_BY:
        return _merged_list(below, own, LISTS_BY[name], depth)
    return own


def _merged_list(below: list[Any], own: list[Any], by: str, depth: int) -> list[Any]:
    if not all(isinstance(item, Mapping) and isinstance(item.get(by), str) for item in (*below, *own)):
        return own
    found = {item[by]: item for item in below}
    for item in own:
        found[item[by]] = merge(found[item[by]], item, "", depth + 1) if item[by] in found else item
    return list(found.values())
