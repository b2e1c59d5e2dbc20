"""One Argo document on its way into a Workflow: what all parts of the reader share. Made by read_argo.

It knows the templates (each as one Sheet), the frames that are being built from them, the arguments of the workflow, and who
publishes what under a global name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from penstock.errors import nearest
from penstock.formats.argo_in.drafts import Draft
from penstock.formats.argo_in.frame import ExitPlace, Frame, SitePlace, listed
from penstock.formats.argo_in.globals import CREATED, Globals, Key
from penstock.formats.argo_in.notes import Notes
from penstock.formats.argo_in.sheet import ARTIFACTS, PARAMETERS, Sheet, legal, sheet_of, text_of
from penstock.formats.argo_in.values import Unknown, expression
from penstock.formats.argo_scope import Resolved, Root, Unresolved, calls_of, root_of
from penstock.formats.documents import Document, Library, items, part
from penstock.formats.lang.tags import split_tags, tag_path
from penstock.graph.expr import Call, Const, ExpressionError, Macro, MapOf, Member, Name, Node, reference
from penstock.graph.model import MISSING, Parameter
from penstock.graph.types import STR


class Reading:
    def __init__(self, library: Library, document: Document) -> None:
        self.library = library
        self.root: Root = root_of(library, document)
        self.notes = Notes()
        self.globals = Globals(self.root, self.notes)
        self.params: dict[str, Parameter] = {}
        """Arguments of the workflow, by the name that Argo knows them by."""
        self.artifacts: dict[str, tuple[Mapping[str, Any], str]] = {}
        """Artifacts among them, each with its path."""
        self.sheets: dict[str, Sheet] = {}
        self.frames: dict[str, Frame] = {}
        self.waiting: deque[Frame] = deque()
        """Frames that are named and not built yet."""
        self.callers: list[tuple[SitePlace, Draft, Frame]] = []
        """Every step that calls a definition: its place, its draft, the definition."""
        self.moulds: dict[Any, Any] = {}
        self.main: Frame | None = None
        """The frame of the entrypoint."""
        self._published: dict[str, frozenset[Key]] = {}
        self._defaults: dict[str, Any] | None = None
        self._names: set[str] = set()

    # -- templates

    def sheet(self, resolved: Resolved, name: str) -> Sheet:
        found = self.sheets.get(resolved.qualified)
        if found is None:
            found = self.sheets[resolved.qualified] = sheet_of(resolved, name)
            self.globals.taken |= set(found.input_names.values())
        return found

    def definition(self, sheet: Sheet) -> Frame:
        """The workflow that a composite template becomes. It is built later."""
        found = self.frames.get(sheet.qualified)
        if found is None:
            named = sheet.name
            if sheet.qualified.startswith(("wftmpl:", "cwftmpl:")):
                named = "-".join(sheet.qualified.partition(":")[2].split("/")[-2:])  # wftmpl:ns/lib/build -> lib-build
            name = legal(named, self._names)
            self._names.add(name)
            found = self.frames[sheet.qualified] = Frame(self, sheet, name, root=False)
            self.waiting.append(found)
        return found

    def callee(
        self, of: Sheet, call: Mapping[str, Any], path: str, name: str, at: str, document: Document | None = None
    ) -> Sheet | None:
        """The template of a step, a task or a hook. None if there is none, and that is noted."""
        document = document or of.document
        found = of.resolved.scope.resolve(call, f"{of.qualified}{at}", path)
        if isinstance(found, Unresolved) and found.reason == "absent":
            found = self.absent(found, call, of, path, document)
        elif isinstance(found, Unresolved):
            self.unresolved(found, of.resolved.scope.templates, document, path)
            return None
        if isinstance(call.get("inline"), Mapping):
            found = replace(found, document=document)
        return self.checked(self.sheet(found, name))

    def absent(self, found: Unresolved, call: Mapping[str, Any], of: Sheet, path: str, document: Document) -> Resolved:
        """What stands for a template of a document that is not here: it takes what it is given and cannot be run."""
        given = part(call, "arguments")
        inputs = {
            kind: [{"name": one.get("name")} for _, one in items(given, kind)] for kind in (PARAMETERS, ARTIFACTS)
        }
        said = f"{found.said[:120]} is not among these documents"
        template = {"name": found.said.rpartition("/")[2], "inputs": inputs, "plugin": {said: {}}}
        return Resolved(template, path, document, of.resolved.scope, f"absent:{of.qualified}:{path}")

    def unresolved(self, found: Unresolved, known: Mapping[str, Any], document: Document, path: str) -> None:
        name = found.said.rpartition("/")[2].rpartition(" ")[2]
        if found.reason == "templated":
            self.notes.wrong(
                document, path, "P836", f"which template this calls is only known when it runs: {found.said[:80]}",
                "name the template, and choose between several with `when`",
            )  # fmt: skip
        else:
            fix = nearest(name, known).strip() or f"known are {', '.join(map(str, list(known)[:10])) or 'none'}"
            self.notes.wrong(document, path, "P832", f"there is no {found.said[:120]}", fix)

    def checked(self, sheet: Sheet) -> Sheet | None:
        if sheet.kind:
            return sheet
        said = f"the template {sheet.name[:60]!r} says nothing to do"
        self.notes.wrong(sheet.document, sheet.path, "P835", said, "give it a container, a script, steps, a dag …")
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
                name=own, type=STR, default=self._default(one, here), choices=self._choices(one, here),
                doc=text_of(one.get("description")) or "",
            )  # fmt: skip
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
        """With what is known of the workflow put in. Everything else is only known later, and stays as text."""
        found = ""
        for piece in split_tags(text):
            if isinstance(piece, str):
                found += piece
                continue
            node = None
            if piece.kind == "simple" and piece.root == "workflow":
                with suppress(Unknown, ExpressionError):
                    node = self.globals.look(tag_path(piece.body)[1:])
            if isinstance(node, Const) and isinstance(node.value, str):
                found += node.value
            else:
                found += piece.raw
                said = f"{piece.raw[:80]} is not known when the workflow begins; it stays as text"
                self.notes.changed(self.root.document, path, said)
        return found

    def _choices(self, one: Mapping[str, Any], path: str) -> tuple[str, ...]:
        listed = one.get("enum")
        found = (
            tuple(text for item in listed if (text := text_of(item)) is not None) if isinstance(listed, list) else ()
        )
        value = text_of(one.get("value"))
        if found and value is not None and value not in found:
            self.notes.wrong(
                self.root.document, f"{path}.value", "P835", f"{value[:60]!r} is not in the enum of this parameter",
                f"choose one of {', '.join(found)[:120]}",
            )  # fmt: skip
            return ()
        return found

    def configured(self, one: Mapping[str, Any], document: Document, path: str) -> str | None:
        """The value of a parameter that comes from a ConfigMap; None if it does not, or if that is not here."""
        ref = part(one, "valueFrom", "configMapKeyRef")
        if not ref:
            return None
        name, key = text_of(ref.get("name")) or "", text_of(ref.get("key")) or ""
        found = self.library.find("ConfigMap", name)
        text = None if found is None else text_of(part(found.data, "data").get(key))
        if text is None:
            self.notes.changed(
                document, f"{path}.valueFrom.configMapKeyRef", f"the ConfigMap {name[:60]!r} has no {key[:60]!r} here",
                "Put the ConfigMap beside the workflow, or give the value when you run it.",
            )  # fmt: skip
        return text

    def add_parameter(self, name: str, path: str) -> None:
        """Something that whoever runs the workflow has to give, though the document does not declare it."""
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
        """Raises Unknown."""
        if key[0] == PARAMETERS and len(key) == 2 and key[1] not in self.params:
            if key[1] == "json":
                return
            if not self.root.document.kind.endswith("WorkflowTemplate"):
                fix = nearest(key[1], self.params).strip() or f"declare it under {self.root.path}.arguments.parameters"
                raise Unknown(f"the workflow has no parameter {key[1][:60]!r}", fix)
            self.add_parameter(key[1], f"{self.root.path}.arguments")
        if key[0] == "outputs" and key not in self.published_anywhere():
            if any("{{" in one[2] for one in self.published_anywhere()):
                return  # perhaps it is one of those that only get their name when they run
            fix = (
                nearest(key[2], [one[2] for one in self.published_anywhere()]).strip()
                or "give an output that globalName"
            )
            raise Unknown(f"nothing is published as workflow.{'.'.join(key)[:80]}", fix)

    def value(self, key: Key, exit: bool) -> Node:
        """At the root. Raises Unknown."""
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
        said = f"workflow.{'.'.join(key)} is read where nobody has published it yet; it is empty there"
        self.notes.changed(self.root.document, path, said)
        return Const("")

    def _failures(self) -> Node:
        """Argo writes the list as JSON, and that as a JSON string."""
        said = "workflow.failures names the steps of the entrypoint that failed; the times are those of the run"
        self.notes.changed(self.root.document, f"{self.root.path}.onExit", said)
        one = Name("one")
        fields: dict[str, Node] = {
            "displayName": Member(one, "step"), "message": Member(one, "message"), "templateName": Member(one, "step"),
            "phase": Call("phase", (Member(one, "outcome"),)), "podName": Member(one, "step"), "finishedAt": CREATED,
        }  # fmt: skip
        entry = MapOf(tuple((Const(name), node) for name, node in fields.items()))
        return Call("to_json", (Call("to_json", (Macro("map", reference("workflow", "failures"), "one", entry),)),))

    def _label(self, name: str) -> Node:
        """A label that is an expression over the arguments."""
        given = self.globals.labels_from[name]
        path = f"{self.root.path}.workflowMetadata.labelsFrom.{name}"
        text = text_of(part({"one": given}, "one").get("expression")) or ""
        assert self.main is not None
        found = expression(text, ExitPlace(self.main, None), path)
        return Call("text", (found,)) if found is not None else Const("")

    # -- global names

    def publishes(self, sheet: Sheet) -> dict[Key, str]:
        """What the template itself gives out under a global name -> the output."""
        found: dict[Key, str] = {}
        for kind in (PARAMETERS, ARTIFACTS):
            for name, one in sheet.outputs[kind].items():
                shared = text_of(one.get("globalName"))
                if shared:
                    found["outputs", kind, shared] = sheet.output_names[kind, name]
        return found

    def published_by(self, sheet: Sheet) -> frozenset[Key]:
        """The same of it and of all that it calls."""
        found = self._published.get(sheet.qualified)
        if found is None:
            seen: dict[str, Sheet] = {}
            rest = [sheet]
            while rest:
                one = rest.pop()
                if one.qualified not in seen:
                    seen[one.qualified] = one
                    rest += self.called(one)
            found = frozenset(key for one in seen.values() for key in self.publishes(one))
            self._published[sheet.qualified] = found
        return found

    def called(self, sheet: Sheet) -> Iterator[Sheet]:
        """The templates that it calls, as far as they are known."""
        for group, call, path in calls_of(sheet.body, sheet.path):
            name = text_of(call.get("name")) or ""
            at = f".{name}" if group is None else f"[{group}].{name}"
            found = sheet.resolved.scope.resolve(call, f"{sheet.qualified}{at}", path)
            if isinstance(found, Resolved):
                yield self.sheet(found, name)

    def published_anywhere(self) -> frozenset[Key]:
        found: frozenset[Key] = frozenset()
        for one in (self.root.entry(), *(called for _, _, called in self.root.exits())):
            if isinstance(one, Resolved):
                found |= self.published_by(self.sheet(one, ""))
        return found
