"""Which template an Argo call means. Called by the reader of Argo files, by the derivation of stages and by the gates.

A name alone means nothing in Argo: it counts in the scope of the document in which the call is written, so a plain `template: x`
inside a WorkflowTemplate that was reached by `templateRef` is that WorkflowTemplate's x, never the caller's. A `workflowTemplateRef` is
different: it merges the whole spec. Everything here works on the documents as they were written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.formats.documents import Document, Library, items, part

KINDS = ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")
"""Documents with a workflow spec in them."""
TYPES = ("container", "containerSet", "steps", "dag", "script", "resource", "data", "suspend", "http", "plugin")
"""In the order in which Argo looks for them."""
POD_TYPES = frozenset({"container", "containerSet", "script", "resource", "data"})
COMPOSITE_TYPES = frozenset({"steps", "dag"})

LISTS_BY: Mapping[str, str] = {
    "templates": "name", "parameters": "name", "artifacts": "name", "volumes": "name", "imagePullSecrets": "name", "tasks": "name",
    "containers": "name", "initContainers": "name", "sidecars": "name", "env": "name", "schedulingGates": "name", "resourceClaims": "name",
    "volumeMounts": "mountPath", "hostAliases": "ip", "tolerations": "key", "topologySpreadConstraints": "topologyKey",
}  # fmt: skip
"""Lists that a merge takes item by item, and the field that tells the items apart; all others are replaced whole."""
_DEEPEST = 100


def type_of(template: Mapping[str, Any]) -> str:
    """One of TYPES, or nothing."""
    return next((name for name in TYPES if template.get(name) is not None), "")


def is_pod(template: Mapping[str, Any]) -> bool:
    """It runs in a pod of its own, so it asks for quota."""
    return type_of(template) in POD_TYPES


def is_composite(template: Mapping[str, Any]) -> bool:
    return type_of(template) in COMPOSITE_TYPES


@dataclass(frozen=True)
class Resolved:
    """A template that was found, and where."""

    template: Mapping[str, Any]
    """As it is written; `scope.effective(template)` has templateDefaults merged in."""
    path: str
    """Within `document`: `spec.templates[2]`."""
    document: Document = field(repr=False)
    scope: Scope = field(repr=False)
    """In which its own calls count."""
    qualified: str
    """Its name, told apart from the same name in other scopes: `main`, `wftmpl:lib/main`, `cwftmpl:lib/main`, `inline:main[0].a`."""

    @property
    def type(self) -> str:
        return type_of(self.template)

    def resolve(self, call: Mapping[str, Any], at: str = "", path: str = "") -> Resolved | Unresolved:
        """What a call that is written in this template means."""
        return self.scope.resolve(call, at, path, self.document)

    def at(self, group: int | None, call: Mapping[str, Any]) -> str:
        """The name of a step or task of this template: `main[0].a`, `main.a`."""
        return f"{self.qualified}{'' if group is None else f'[{group}]'}.{call.get('name') or ''}"


@dataclass(frozen=True)
class Unresolved:
    """A call that cannot be followed."""

    reason: Literal["templated", "absent", "missing"]
    """templated: the reference holds `{{`, so only the run knows. absent: the document it names is not in the library. missing: the
    document is there and has no such template, or the call names none: a mistake."""
    said: str
    """The reference, for people: `templateRef lib/build`."""


@dataclass(frozen=True)
class Scope:
    """Templates that may call one another by plain name."""

    library: Library = field(repr=False)
    document: Document = field(repr=False)
    kind: Literal["local", "WorkflowTemplate", "ClusterWorkflowTemplate"]
    name: str
    """`ns/name`, or `name`; nothing for the local scope."""
    templates: Mapping[str, tuple[Mapping[str, Any], str, Document]] = field(repr=False)
    """By name: the template, its path and the document it is written in (that of the workflowTemplateRef, perhaps)."""
    defaults: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The templateDefaults of the workflow that runs: they go under templates of every scope."""

    def qualify(self, name: str) -> str:
        if self.kind == "local":
            return name
        return f"{'wftmpl' if self.kind == 'WorkflowTemplate' else 'cwftmpl'}:{self.name}/{name}"

    def effective(self, template: Mapping[str, Any]) -> dict[str, Any]:
        """With templateDefaults under it; the template keeps its own type."""
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
        """What a step, a task or a hook calls: `inline`, `templateRef` or `template`. `at` names the call for an inline template
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
        said = f"templateRef {name}/{template}"
        if "{{" in name or "{{" in template:
            return Unresolved("templated", said)
        document = _referred(self.library, ref)
        if document is None:
            return Unresolved("absent", said)
        found = scope_of(self.library, document, self.defaults).find(template)
        return found if isinstance(found, Resolved) else Unresolved("missing", said)


@dataclass(frozen=True)
class Root:
    """A document that runs, or may be run: its spec with the workflowTemplateRef merged in, and the scope of its templates."""

    document: Document
    path: str
    """Of the spec: `spec`, or `spec.workflowSpec` of a CronWorkflow."""
    own: Mapping[str, Any]
    """The spec as it is written."""
    spec: Mapping[str, Any]
    """The spec that counts."""
    scope: Scope
    unresolved: Unresolved | None = None
    """A workflowTemplateRef that leads out of the library."""

    @property
    def entrypoint(self) -> str:
        found = self.spec.get("entrypoint")
        return found if isinstance(found, str) else ""

    def entry(self) -> Resolved | Unresolved | None:
        """The template it starts with; None for a collection of templates that starts nothing."""
        if not self.entrypoint:
            return None
        found = self.scope.find(self.entrypoint)
        return self.unresolved if self.unresolved and isinstance(found, Unresolved) else found

    def exits(self) -> Iterator[tuple[str, str, Resolved | Unresolved]]:
        """`onExit` and the hooks of the whole workflow: name ("exit" for onExit), path, what is called."""
        yield from exits_of(self.spec, self.scope, self.path)


def exits_of(
    call: Mapping[str, Any], scope: Scope, path: str, at: str = ""
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


def root_of(library: Library, document: Document) -> Root:
    """For a Workflow, WorkflowTemplate, ClusterWorkflowTemplate or CronWorkflow."""
    own = spec_of(document)
    spec, places, unresolved = _with_reference(library, document, frozenset())
    defaults = part(spec, "templateDefaults")
    scope = Scope(library, document, "local", "", places, defaults)
    return Root(document, spec_path(document), own, spec, scope, unresolved)


def scope_of(library: Library, document: Document, defaults: Mapping[str, Any] | None = None) -> Scope:
    """Of a WorkflowTemplate or ClusterWorkflowTemplate that is reached by templateRef."""
    cluster = document.kind == "ClusterWorkflowTemplate"
    qualified = document.name if cluster or not document.namespace else f"{document.namespace}/{document.name}"
    kind: Literal["WorkflowTemplate", "ClusterWorkflowTemplate"] = (
        "ClusterWorkflowTemplate" if cluster else "WorkflowTemplate"
    )
    return Scope(library, document, kind, qualified, _places(document), defaults or {})


Places = dict[str, tuple[Mapping[str, Any], str, Document]]


def _places(document: Document) -> Places:
    found: Places = {}
    path = spec_path(document)
    for number, template in items(spec_of(document), "templates"):
        found.setdefault(str(template.get("name") or ""), (template, f"{path}.templates[{number}]", document))
    return found


def _with_reference(
    library: Library, document: Document, seen: frozenset[tuple[str, str]]
) -> tuple[Mapping[str, Any], Places, Unresolved | None]:
    """The spec with the workflowTemplateRef under it, all its templates with their places, and what could not be found."""
    own, places = spec_of(document), _places(document)
    ref = own.get("workflowTemplateRef")
    if not isinstance(ref, Mapping):
        return own, places, None
    said = f"workflowTemplateRef {ref.get('name')}"
    found = None if "{{" in str(ref.get("name")) else _referred(library, ref)
    if found is None:
        return own, places, Unresolved("templated" if "{{" in said else "absent", said)
    if (found.kind, found.name) in seen:
        return own, places, Unresolved("missing", f"{said}, which leads back to itself")
    below, others, unresolved = _with_reference(library, found, seen | {(found.kind, found.name)})
    # Argo does not take `suspend` over: a template that says so would hold every workflow made from it.
    shared = {name: value for name, value in below.items() if name != "suspend"}
    return merge(shared, own), {**others, **places}, unresolved


def _referred(library: Library, ref: Mapping[str, Any]) -> Document | None:
    kind = "ClusterWorkflowTemplate" if ref.get("clusterScope") is True else "WorkflowTemplate"
    return library.find(kind, str(ref.get("name") or ""))


def calls_of(template: Mapping[str, Any], path: str) -> Iterator[tuple[int | None, Mapping[str, Any], str]]:
    """Every step with the number of its group, or every task with None, and its path. The v3 form of a group that is one step and no
    list is taken as a group of one."""
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
    """Two values, the second one's word counting, as Kubernetes' strategic merge has it: maps are merged, lists whose items have a
    name are merged item by item, everything else is replaced; null takes a field away."""
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
