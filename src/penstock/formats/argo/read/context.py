"""What all parts of the Argo reader share. Made by workflow.read_argo.

It has the templates (one TemplateSpec each), the builders of workflows, the arguments of the workflow, and which template publishes which
global names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from penstock.errors import known_are, nearest
from penstock.expressions.parse import (
    Binary,
    Call,
    Choice,
    Const,
    ExpressionError,
    Macro,
    MapOf,
    Member,
    Name,
    Node,
    reference,
)
from penstock.expressions.types import STR
from penstock.formats.argo.language.tags import split_tags, tag_path
from penstock.formats.argo.read.builder import CallScope, DefinitionBuilder, ExitScope, listed
from penstock.formats.argo.read.globals import CREATED, Globals, Key
from penstock.formats.argo.read.notes import ReadNotes
from penstock.formats.argo.read.steps import StepBuilder
from penstock.formats.argo.read.template import ARTIFACTS, PARAMETERS, TemplateSpec, legal, template_spec, text_of
from penstock.formats.argo.read.values import UnknownName, expression
from penstock.formats.argo.scope import Resolved, Unresolved, WorkflowRoot, calls_of, root_of
from penstock.formats.documents import Document, Library, items, part
from penstock.graph.model import MISSING, Parameter


class ArgoReadContext:
    """One Argo document that is being read."""

    def __init__(self, library: Library, document: Document) -> None:
        self.library = library
        self.root: WorkflowRoot = root_of(library, document)
        self.notes = ReadNotes()
        self.globals = Globals(self.root, self.notes)
        self.params: dict[str, Parameter] = {}
        """Arguments of the workflow, by Argo's name."""
        self.artifacts: dict[str, tuple[Mapping[str, Any], str]] = {}
        """Artifacts among them, each with its path."""
        self.templates: dict[str, TemplateSpec] = {}
        self.builders: dict[str, DefinitionBuilder] = {}
        self.waiting: deque[DefinitionBuilder] = deque()
        """Builders that have a name and are not built yet."""
        self.callers: list[tuple[CallScope, StepBuilder, DefinitionBuilder]] = []
        """Every step that calls a definition: its scope, its builder, the definition."""
        self.leaf_specs: dict[Any, Any] = {}
        self.main: DefinitionBuilder | None = None
        """The builder of the entrypoint."""
        self._published: dict[str, frozenset[Key]] = {}
        self._defaults: dict[str, Any] | None = None
        self._names: set[str] = set()

    # -- templates

    def template(self, resolved: Resolved, name: str) -> TemplateSpec:
        found = self.templates.get(resolved.qualified)
        if found is None:
            found = self.templates[resolved.qualified] = template_spec(resolved, name)
            self.globals.taken |= set(found.input_names.values())
        return found

    def definition(self, template: TemplateSpec) -> DefinitionBuilder:
        """The builder for a composite template. It is built later."""
        found = self.builders.get(template.qualified)
        if found is None:
            named = template.name
            if template.qualified.startswith(("wftmpl:", "cwftmpl:")):
                named = "-".join(
                    template.qualified.partition(":")[2].split("/")[-2:]
                )  # wftmpl:ns/lib/build -> lib-build
            name = legal(named, self._names)
            self._names.add(name)
            found = self.builders[template.qualified] = DefinitionBuilder(self, template, name, root=False)
            self.waiting.append(found)
        return found

    def callee(
        self, of: TemplateSpec, call: Mapping[str, Any], path: str, name: str, at: str, document: Document | None = None
    ) -> TemplateSpec | None:
        """The template of a step, task or hook. None with a problem if there is none."""
        document = document or of.document
        found = of.resolved.scope.resolve(call, f"{of.qualified}{at}", path)
        if isinstance(found, Unresolved) and found.reason == "absent":
            found = self.absent(found, call, of, path, document)
        elif isinstance(found, Unresolved):
            self.unresolved(found, of.resolved.scope.templates, document, path)
            return None
        if isinstance(call.get("inline"), Mapping):
            found = replace(found, document=document)
        return self.checked(self.template(found, name))

    def absent(
        self, found: Unresolved, call: Mapping[str, Any], of: TemplateSpec, path: str, document: Document
    ) -> Resolved:
        """A placeholder for a template of a missing document: it takes any arguments and cannot be run."""
        given = part(call, "arguments")
        inputs = {
            kind: [{"name": one.get("name")} for _, one in items(given, kind)] for kind in (PARAMETERS, ARTIFACTS)
        }
        message = f"{found.reference[:120]} is not among these documents"
        template = {"name": found.reference.rpartition("/")[2], "inputs": inputs, "plugin": {message: {}}}
        return Resolved(template, path, document, of.resolved.scope, f"absent:{of.qualified}:{path}")

    def unresolved(self, found: Unresolved, known: Mapping[str, Any], document: Document, path: str) -> None:
        name = found.reference.rpartition("/")[2].rpartition(" ")[2]
        if found.reason == "templated":
            self.notes.wrong(
                document,
                path,
                "P836",
                f"which template this calls is only known when it runs: {found.reference[:80]}",
                "name the template, and choose between several with `when`",
            )
        else:
            fix = nearest(name, known).strip() or known_are(known)
            self.notes.wrong(document, path, "P832", f"there is no {found.reference[:120]}", fix)

    def checked(self, template: TemplateSpec) -> TemplateSpec | None:
        if template.kind:
            return template
        message = f"the template {template.name[:60]!r} says nothing to do"
        self.notes.wrong(
            template.document, template.path, "P835", message, "give it a container, a script, steps, a dag …"
        )
        return None

    # -- arguments of the workflow

    def read_arguments(self) -> None:
        """Workflow.params from spec.arguments."""
        given = part(self.root.spec, "arguments")
        path = f"{self.root.path}.arguments"
        document = self.root.document
        taken: set[str] = set()
        for number, one in items(given, PARAMETERS):
            name = text_of(one.get("name"))
            here = f"{path}.parameters[{number}]"
            if not name or name in self.params:
                self.notes.wrong(document, here, "P835", "a parameter needs a name of its own", "give it one")
                continue
            own = legal(name, taken, variable=True)
            taken.add(own)
            self.params[name] = Parameter(
                name=own,
                type=STR,
                default=self._default(one, here),
                choices=self._choices(one, here),
                doc=text_of(one.get("description")) or "",
            )
        for number, one in items(given, ARTIFACTS):
            name = text_of(one.get("name"))
            if name:
                self.artifacts.setdefault(name, (one, f"{path}.artifacts[{number}]"))

    def _default(self, one: Mapping[str, Any], path: str) -> Any:
        text = text_of(one.get("value"))
        if text is None:
            text = self.configured(one, self.root.document, path)
        if text is None:
            text = text_of(one.get("default"))
        if text is None:
            text = text_of(part(one, "valueFrom").get("default"))
        return MISSING if text is None else self._filled_in(text, path)

    def _filled_in(self, text: str, path: str) -> str:
        """Replaces tags with known values. The others stay as text."""
        found = ""
        for piece in split_tags(text):
            if isinstance(piece, str):
                found += piece
                continue
            node = None
            if piece.kind == "simple" and piece.root == "workflow":
                with suppress(UnknownName, ExpressionError):
                    node = self.globals.look(tag_path(piece.body)[1:])
            if isinstance(node, Const) and isinstance(node.value, str):
                found += node.value
            else:
                found += piece.raw
                message = f"{piece.raw[:80]} is not known when the workflow begins; it stays as text"
                self.notes.changed(self.root.document, path, message)
        return found

    def _choices(self, one: Mapping[str, Any], path: str) -> tuple[str, ...]:
        listed = one.get("enum")
        found = (
            tuple(text for item in listed if (text := text_of(item)) is not None) if isinstance(listed, list) else ()
        )
        value = text_of(one.get("value"))
        if found and value is not None and value not in found:
            self.notes.wrong(
                self.root.document,
                f"{path}.value",
                "P835",
                f"{value[:60]!r} is not in the enum of this parameter",
                f"choose one of {', '.join(found)[:120]}",
            )
            return ()
        return found

    def configured(self, one: Mapping[str, Any], document: Document, path: str) -> str | None:
        """The value of a parameter from a ConfigMap; None if it has none, or the ConfigMap is missing."""
        ref = part(one, "valueFrom", "configMapKeyRef")
        if not ref:
            return None
        name, key = text_of(ref.get("name")) or "", text_of(ref.get("key")) or ""
        found = self.library.find("ConfigMap", name)
        text = None if found is None else text_of(part(found.data, "data").get(key))
        if text is None:
            self.notes.changed(
                document,
                f"{path}.valueFrom.configMapKeyRef",
                f"the ConfigMap {name[:60]!r} has no {key[:60]!r} here",
                "Put the ConfigMap beside the workflow, or give the value when you run it.",
            )
        return text

    def add_parameter(self, name: str, path: str) -> None:
        """Adds a parameter that the run must give although the document does not declare it."""
        own = legal(name, {param.name for param in self.params.values()}, variable=True)
        self.params[name] = Parameter(name=own, type=STR)
        self.notes.changed(self.root.document, path, f"the parameter {name[:60]!r} must be given when it is run")
        self._defaults = None

    def own_name(self, name: str) -> str:
        return self.params[name].name if name in self.params else ""

    def defaults(self) -> dict[str, Any]:
        if self._defaults is None:
            self._defaults = {
                param.name: param.default for param in self.params.values() if param.default is not MISSING
            }
        return self._defaults

    # -- what belongs to the whole workflow

    def verify(self, key: Key) -> None:
        """Raises UnknownName."""
        if key[0] == PARAMETERS and len(key) == 2 and key[1] not in self.params:
            if key[1] == "json":
                return
            if not self.root.document.kind.endswith("WorkflowTemplate"):
                fix = nearest(key[1], self.params).strip() or f"declare it under {self.root.path}.arguments.parameters"
                raise UnknownName(f"the workflow has no parameter {key[1][:60]!r}", fix)
            self.add_parameter(key[1], f"{self.root.path}.arguments")
        if key[0] == "outputs" and key not in self.published_anywhere():
            if any("{{" in one[2] for one in self.published_anywhere()):
                return  # its global name may be known only at run time
            fix = (
                nearest(key[2], [one[2] for one in self.published_anywhere()]).strip()
                or "give an output that globalName"
            )
            raise UnknownName(f"nothing is published as workflow.{'.'.join(key)[:80]}", fix)

    def value(self, key: Key, exit: bool) -> Node:
        """At the root. Raises UnknownName."""
        match key:
            case ("parameters", name) if name in self.params:
                return reference("params", self.params[name].name)
            case ("parameters",) | ("parameters", "json"):
                return listed({name: reference("params", param.name) for name, param in self.params.items()})
            case ("status",):
                return Call("phase", (reference("workflow", "outcome"),)) if exit else Const("Running")
            case ("failures",):
                return self._failures() if exit else Const('"[]"')
            case ("label", name):
                return self._label(name)
        path = self.root.path
        message = f"workflow.{'.'.join(key)} is read where nobody has published it yet; it is empty there"
        self.notes.changed(self.root.document, path, message)
        return Const("")

    def _failures(self) -> Node:
        """Argo encodes the list as JSON, and that as a JSON string."""
        message = "workflow.failures names the steps of the entrypoint that failed; the times are those of the run"
        self.notes.changed(self.root.document, f"{self.root.path}.onExit", message)
        one = Name("one")
        fields: dict[str, Node] = {
            "displayName": Member(one, "step"),
            "message": Member(one, "message"),
            "templateName": Member(one, "step"),
            "phase": Call("phase", (Member(one, "outcome"),)),
            "podName": Member(one, "step"),
            "finishedAt": CREATED,
        }
        entry = MapOf(tuple((Const(name), node) for name, node in fields.items()))
        failures = reference("workflow", "failures")
        some = Call("to_json", (Call("to_json", (Macro("map", failures, "one", entry),)),))
        none = Binary("==", Call("size", (failures,)), Const(0))
        return Choice(none, Const('"null"'), some)  # the JSON of a list in Go that nothing was put into

    def _label(self, name: str) -> Node:
        """A label that is an expression over the arguments."""
        given = self.globals.labels_from[name]
        path = f"{self.root.path}.workflowMetadata.labelsFrom.{name}"
        text = text_of(part({"one": given}, "one").get("expression")) or ""
        assert self.main is not None
        found = expression(text, ExitScope(self.main, None), path)
        return Call("text", (found,)) if found is not None else Const("")

    # -- global names

    def publishes(self, template: TemplateSpec) -> dict[Key, str]:
        """Global name that the template itself publishes -> the output."""
        found: dict[Key, str] = {}
        for kind in (PARAMETERS, ARTIFACTS):
            for name, one in template.outputs[kind].items():
                shared = text_of(one.get("globalName"))
                if shared:
                    found["outputs", kind, shared] = template.output_names[kind, name]
        return found

    def published_by(self, template: TemplateSpec) -> frozenset[Key]:
        """Global names that it and everything it calls publish."""
        found = self._published.get(template.qualified)
        if found is None:
            seen: dict[str, TemplateSpec] = {}
            rest = [template]
            while rest:
                one = rest.pop()
                if one.qualified not in seen:
                    seen[one.qualified] = one
                    rest += self.called(one)
            found = frozenset(key for one in seen.values() for key in self.publishes(one))
            self._published[template.qualified] = found
        return found

    def called(self, template: TemplateSpec) -> Iterator[TemplateSpec]:
        """The known templates that it calls."""
        for group, call, path in calls_of(template.body, template.path):
            name = text_of(call.get("name")) or ""
            at = f".{name}" if group is None else f"[{group}].{name}"
            found = template.resolved.scope.resolve(call, f"{template.qualified}{at}", path)
            if isinstance(found, Resolved):
                yield self.template(found, name)

    def published_anywhere(self) -> frozenset[Key]:
        found: frozenset[Key] = frozenset()
        for one in (self.root.entry(), *(called for _, _, called in self.root.exits())):
            if isinstance(one, Resolved):
                found |= self.published_by(self.template(one, ""))
        return found
