"""Builds a workflow from one steps or dag template: its calls, and the meaning of variables in them. Called by graph.

The entrypoint becomes the root workflow, every other composite template a definition. Inside, `{{steps.a.outputs.parameters.x}}`
is an output of the step a, `{{inputs.parameters.x}}` a parameter, and variables of the whole workflow come from Globals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from penstock.errors import known_are, nearest
from penstock.expressions.parse import Binary, Call, Choice, Const, ListOf, MapOf, Node, reference
from penstock.formats.argo.read.globals import RUN, Globals, Key
from penstock.formats.argo.read.notes import ReadNotes
from penstock.formats.argo.read.steps import CallSite, LoopItems, StepBuilder
from penstock.formats.argo.read.template import ARTIFACTS, PARAMETERS, RESULT, WITH_FILES, TemplateSpec
from penstock.formats.argo.read.values import TextScope, UnknownName, as_text, node_of_value
from penstock.formats.argo.scope import WorkflowRoot
from penstock.formats.documents import Document, Library
from penstock.graph.model import Outcome, Output, Parameter

_SELF: Final = ("id", "ip", "status", "exitCode", "startedAt", "finishedAt", "hostNodeName", "outputs")
NO_TASK: Final = "there is no {{tasks.name}} here: what calls this template is not a task, and Argo would wait for ever"
_GUESSED: Final[Mapping[str, str]] = {
    "id": "the id of a node is the name of the run and of the step",
    "ip": "every step runs on this machine: its address is 127.0.0.1",
    "startedAt": "when a step began is not known to others; it reads as the beginning of the run",
    "finishedAt": "when a step ended is not known to others; it reads as the beginning of the run",
    "hostNodeName": "every step runs on this machine: the node is localhost",
}


class BuilderContext(Protocol):
    """What a builder needs of ArgoReadContext, which all builders of a document share."""

    library: Library
    root: WorkflowRoot
    notes: ReadNotes
    globals: Globals
    params: dict[str, Parameter]
    artifacts: dict[str, tuple[Mapping[str, Any], str]]
    leaf_specs: dict[Any, Any]
    callers: list[tuple[CallScope, StepBuilder, DefinitionBuilder]]

    def definition(self, template: TemplateSpec) -> DefinitionBuilder: ...

    def callee(
        self, of: TemplateSpec, call: Mapping[str, Any], path: str, name: str, at: str
    ) -> TemplateSpec | None: ...

    def configured(self, one: Mapping[str, Any], document: Document, path: str) -> str | None: ...

    def own_name(self, name: str) -> str: ...

    def defaults(self) -> dict[str, Any]: ...

    def verify(self, key: Key) -> None: ...

    def value(self, key: Key, exit: bool) -> Node: ...

    def publishes(self, template: TemplateSpec) -> dict[Key, str]: ...

    def published_by(self, template: TemplateSpec) -> frozenset[Key]: ...


class DefinitionBuilder:
    """A workflow that is being built."""

    def __init__(self, context: BuilderContext, template: TemplateSpec, name: str, *, root: bool) -> None:
        self.context = context
        self.template = template
        self.name = name
        self.root = root
        self.word = "tasks" if template.kind == "dag" else "steps"
        self.inputs: dict[str, Node] = {}
        self.artifacts: dict[str, Node] = {}
        self.sites: dict[str, CallSite] = {}
        self.tolerant: dict[str, frozenset[Outcome]] = {}
        """Steps that may fail -> the tolerated outcomes."""
        self.taken: set[str] = set()
        """Names of its steps."""
        self.step_builders: list[StepBuilder] = []
        self.exits: list[StepBuilder] = []
        self.outputs: list[Output] = []
        self.used: dict[Key, None] = {}
        """Global values that it or a template below it reads: its extra parameters."""
        self.exported: dict[Key, Output | None] = {}
        """Global values that it or a template below it publishes and others read."""
        if not root:
            for (kind, given), own in template.input_names.items():
                (self.inputs if kind == PARAMETERS else self.artifacts)[given] = reference("params", own)

    @property
    def document(self) -> Document:
        return self.template.document

    # -- its own inputs

    def input(self, rest: tuple[str, ...], typed: bool) -> Node:
        kind, names = (rest[0], rest[1:]) if rest else ("", ())
        if kind == PARAMETERS and not names:
            return MapOf(tuple((Const(name), node) for name, node in self.inputs.items())) if typed else self.as_json()
        known = {PARAMETERS: self.inputs, ARTIFACTS: self.artifacts}.get(kind)
        name = ".".join(names)
        if known is None or name not in known:
            message = f"{self.template.name!r} has no input inputs.{'.'.join(rest)[:80]}"
            fix = nearest(name, known or {}).strip() or f"declare it under inputs.{kind or PARAMETERS}"
            raise UnknownName(message, fix)
        return known[name]

    def as_json(self) -> Node:
        """All input parameters as Argo's JSON."""
        return listed(self.inputs)

    # -- its own name

    def called_as(self, word: str) -> Node:
        """`{{steps.name}}`, `{{tasks.name}}` or `{{node.name}}` in the texts of this template: how it was called itself."""
        if not self.root:
            self.used.setdefault(("name", word))
            return reference("params", self.context.globals.name(("name", word)))
        if word == "tasks":
            raise UnknownName(NO_TASK, "read it inside the template of the task")
        return RUN if word == "node" else Const("")

    # -- its steps

    def step(self, names: tuple[str, ...], scope: CallScope, typed: bool) -> Node:
        """The value of a path after `steps.` or `tasks.`."""
        site = self.sites.get(names[0])
        if site is None:
            fix = nearest(names[0], self.sites).strip() or known_are(self.sites)
            raise UnknownName(f"{self.template.name!r} has no {self.word[:-1]} {names[0][:60]!r}", fix)
        if not scope.after(site):
            raise UnknownName(
                f"{self.word}.{site.name} has not run when this is read",
                "read a step of a group further up, or move this one",
            )
        scope.reads(site)
        word, rest = (names[1], names[2:]) if len(names) > 1 else ("", ())
        if word == "outputs":
            return self.output(site, rest, typed)
        if word not in _SELF or rest:
            message = (
                f"{self.word}.{'.'.join(names)[:80]} is neither an output nor anything else that is known of a step"
            )
            raise UnknownName(
                message, nearest(word, _SELF).strip() or f"write {self.word}.{site.name}.outputs.parameters.NAME"
            )
        return self.fact(site, word, scope)

    def fact(self, site: CallSite, word: str, scope: CallScope) -> Node:
        if word == "status":
            return Call("phase", (reference("steps", site.step, "outcome"),))
        if word in _GUESSED:
            self.context.notes.changed(self.document, site.path, _GUESSED[word])
        match word:
            case "ip":
                return Const("127.0.0.1")
            case "hostNodeName":
                return Const("localhost")
            case "id":
                return Binary("+", RUN, Const(f"-{site.step}"))
            case "exitCode":
                return self.exit_code(site)
            case _:
                return reference("run", "created")

    def output(self, site: CallSite, rest: tuple[str, ...], typed: bool) -> Node:
        template = site.template
        kind, name = (rest[0], ".".join(rest[1:])) if rest else ("", "")
        if kind == "result" and not name:
            return self.result(site)
        if kind == "exitCode" and not name:
            return self.exit_code(site)
        if kind == PARAMETERS and not name:
            return self.every_output(site, typed)
        own = template.output_names.get((kind, name))
        if (
            own is None
            or kind not in (PARAMETERS, ARTIFACTS)
            or (kind == ARTIFACTS and template.kind not in WITH_FILES)
        ):
            known = template.outputs.get(kind) or template.outputs[PARAMETERS]
            fix = nearest(name, known).strip() or known_are(known)
            raise UnknownName(
                f"the template {template.name!r} of {site.name!r} has no output {'.'.join(rest)[:80]!r}", fix
            )
        site.outputs_read.add(own)
        node = reference("steps", site.step, "outputs", own)
        return self.collected("collect", site, node) if site.looped and kind == PARAMETERS else node

    def collected(self, function: str, site: CallSite, node: Node) -> Node:
        """The outputs of a loop. Of steps whose items were all skipped there are none; of tasks there is an empty list."""
        if self.word == "tasks":
            return Call(function, (node,))
        return Call(function, (node, reference("steps", site.step, "outcome")))

    def exit_code(self, site: CallSite) -> Node:
        """The exit code of one command; 0 or 1 for a loop or a called template."""
        if not site.looped and not site.template.composite:
            return Call("string", (reference("steps", site.step, "exit_code"),))
        ended = Binary("==", reference("steps", site.step, "outcome"), Const("succeeded"))
        return Choice(ended, Const("0"), Const("1"))

    def result(self, site: CallSite) -> Node:
        if not site.template.has_result:
            raise UnknownName(
                f"{site.name!r} has no result: its template {site.template.name!r} is {_a(site.template.kind)}",
                "read one of its outputs.parameters",
            )
        site.result_read = True
        node = reference("steps", site.step, "outputs", site.template.output_names[RESULT])
        return self.collected("collect_results", site, node) if site.looped else node

    def every_output(self, site: CallSite, typed: bool) -> Node:
        """All parameters of a step as JSON: a map, or of a loop a list of maps."""
        found = {
            name: reference("steps", site.step, "outputs", site.template.output_names[PARAMETERS, name])
            for name in site.template.outputs[PARAMETERS]
        }
        whole = MapOf(tuple((Const(name), node) for name, node in found.items()))
        if site.looped:
            return self.collected("collect_maps", site, whole)
        return whole if typed else Call("to_json", (whole,))

    # -- the whole workflow

    def workflow(self, names: tuple[str, ...], scope: CallScope) -> Node:
        found = self.context.globals.look(names)
        return self.shared(found, scope) if isinstance(found, tuple) else found

    def shared(self, key: Key, scope: CallScope) -> Node:
        """The value of a global key here. Raises UnknownName."""
        if key[0] == "outputs":
            published = self.published(key, scope)
            if published is not None:
                return published
        self.context.verify(key)
        if self.root and key == ("status",) and scope.first and not scope.exit:
            return Const("")  # Argo sets it when it has looked at all that can start
        if self.root:
            return self.context.value(key, scope.exit)
        self.used.setdefault(key)
        found = reference("params", self.context.globals.name(key))
        if key == ("status",) and not scope.first:
            return Choice(Binary("==", found, Const("")), Const("Running"), found)
        return found

    def published(self, key: Key, scope: CallScope | None) -> Node | None:
        """The latest value that a step here publishes under a global name before `scope`; None if there is none."""
        found: Node | None = None
        for site in self.sites.values():
            if key not in self.context.published_by(site.template) or (scope is not None and not scope.after(site)):
                continue
            if scope is not None:
                scope.reads(site)
            own = self.context.publishes(site.template).get(key)
            if own is None:
                own = self.context.definition(site.template).export(key)
            site.outputs_read.add(own)
            node = reference("steps", site.step, "outputs", own)
            if site.looped:
                node = Call("last", (node,))
            found = node if found is None else Call("default", (node, found))
        if scope is not None and scope.exit:
            own = self.context.publishes(self.template).get(key) if self.template.composite else None
            for output in self.outputs:
                if output.name == own:
                    found = node_of_value(output.value)
        return found

    def export(self, key: Key) -> str:
        self.exported.setdefault(key)
        return self.context.globals.name(key)

    def known(self) -> dict[str, Any]:
        """Parameters whose value is known before the run: their defaults."""
        context = self.context
        if self.root:
            return context.defaults()
        given = context.defaults()
        return {
            context.globals.name(key): given[own]
            for key in self.used
            if key[0] == PARAMETERS and len(key) == 2 and (own := context.own_name(key[1])) in given
        }


class CallScope(TextScope):
    """The scope of a step or task: its arguments, condition and loop."""

    exit = False

    def __init__(
        self,
        builder: DefinitionBuilder,
        site: CallSite | None,
        loop: LoopItems | None = None,
        hooked: CallSite | None = None,
    ) -> None:
        self.builder = builder
        self.notes = builder.context.notes
        self.document = builder.document
        self.site = site
        self.loop = loop
        self.hooked = hooked
        """The step whose hook this is; it has ended."""
        self.status: Node | None = None
        """The status of that step, if a hook reads it while the step runs."""
        self.lenient = self.exit or hooked is not None

    def after(self, site: CallSite) -> bool:
        """Has that step ended when this text is evaluated?"""
        own = self.hooked or self.site
        if own is None or site is self.hooked:
            return True
        if own.group is None or site.group is None:
            return site is not own
        return site.group < own.group

    @property
    def first(self) -> bool:
        """Does the step start with its template?"""
        site = self.site
        if site is None or self.hooked is not None:
            return False
        return not (site.group or site.raw.get("depends") or site.raw.get("dependencies"))

    def name(self, word: str) -> Node | None:
        """`{{steps.name}}`, `{{tasks.name}}` or `{{node.name}}` inside the template that is called here. None: it stays as text."""
        site, builder = self.site, self.builder
        plain = self.hooked is not None or self.exit or site is None or not builder.template.composite
        if word != "node":
            if plain:  # Argo calls the entrypoint and hooks by a step that has no name
                return Const("") if word == "steps" else None
            return self.step_name() if word == builder.word else None
        if not builder.template.composite and not self.exit:
            return RUN
        found = builder.called_as("node")
        of = self.hooked or (None if self.exit else site)
        if of is not None:
            between = "." if of.group is None else f"[{of.group}]."
            found = Binary("+", Binary("+", found, Const(between)), self.step_name())
        if site is not None and (self.hooked is not None or self.exit):
            hook = site.path.rpartition(".hooks.")[2] if ".hooks." in site.path else "exit"
            found = Binary("+", found, Const(".onExit" if hook == "exit" else f".hooks.{hook}"))
        return found

    def step_name(self) -> Node:
        """The name of the step; in a loop with its item."""
        of = self.hooked or self.site
        assert of is not None
        if self.loop is None:
            return Const(of.name)
        self.loop.names_read = True
        return reference("item", "name")

    def firm(self, names: tuple[str, ...]) -> bool:
        site = self.builder.sites.get(names[1]) if len(names) > 2 and names[0] == self.builder.word else None
        if site is None or names[2] != "outputs":
            return False
        if site.looped:
            return self.builder.word == "steps"
        if site is self.hooked:
            return True
        return names[3:] == ("result",) and not site.template.outputs[PARAMETERS]

    def reads(self, site: CallSite) -> None:
        if self.site is not None and site not in (self.site, self.hooked):
            self.site.reads.add(site.name)

    def known(self) -> Mapping[str, Any]:
        return {"params": self.builder.known()}

    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        builder, rest = self.builder, names[1:]
        match names[0]:
            case "inputs":
                return builder.input(rest, typed)
            case "item":
                return self.item(rest, typed)
            case "steps" | "tasks" as word:
                if rest == ("name",):
                    return builder.called_as(word)
                if word != builder.word or not rest:
                    return None
                if self.status is not None and self.hooked is not None and rest == (self.hooked.name, "status"):
                    return self.status
                if not typed and self.hooked is not None and rest[0] == self.hooked.name and not _in_hook(rest[1:]):
                    message = (
                        f"{'.'.join(names)[:80]} is not known in the step's own hook; it stays as text, as in Argo"
                    )
                    self.notes.changed(self.document, self.hooked.path, message)
                    return Const(f"{{{{{'.'.join(names)}}}}}")
                return builder.step(rest, self, typed)
            case "workflow":
                if self.status is not None and self.exit and rest == ("status",):
                    return self.status
                return builder.workflow(rest, self)
            case "node" if rest == ("name",):
                return builder.called_as("node")
            case _:
                return None

    def item(self, rest: tuple[str, ...], typed: bool) -> Node | None:
        if self.loop is None:
            raise UnknownName(
                "there is no item here: the step has no loop", "give it withItems, withParam or withSequence"
            )
        if rest and self.loop.kind == "text":
            raise UnknownName(
                f"the items of the loop are texts: there is no item.{'.'.join(rest)[:60]}", "read item itself"
            )
        node = reference("item", "item", *rest)
        if not rest:
            if self.loop.kind == "text":
                return node
            if not typed:
                return Call("text", (node,))
            is_map = Binary("in", Call("type", (node,)), ListOf((Const("map"), Const("list"))))
            return Choice(is_map, node, Call("text", (node,)))
        return node if len(rest) == 1 and rest[0] in self.loop.fields else Call("text", (node,))


class ExitScope(CallScope):
    """The scope of an exit handler of the whole workflow. It cannot read steps."""

    exit = True

    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        if names[0] in ("steps", "tasks", "node") and names[1:] == ("name",):
            return self.name(names[0]) or Const(f"{{{{{names[0]}.name}}}}")
        if names[0] in ("steps", "tasks"):
            raise UnknownName(
                f"{'.'.join(names)[:80]} cannot be read in an exit handler",
                "publish it with globalName, and read workflow.outputs",
            )
        if names[0] == "inputs":
            return None
        return super().look(names, typed=typed)


def _in_hook(rest: tuple[str, ...]) -> bool:
    """What an exit hook can read of its own step, after the step's name."""
    return rest == ("status",) or rest[:2] in (("outputs", PARAMETERS), ("outputs", ARTIFACTS))


def listed(nodes: Mapping[str, Node]) -> Node:
    """Parameters as Argo's JSON: `[{"name":"x","value":"1"}]`."""
    entries = (MapOf(((Const("name"), Const(name)), (Const("value"), as_text(node)))) for name, node in nodes.items())
    return Call("to_json", (ListOf(tuple(entries)),))


def _a(kind: str) -> str:
    return f"a {kind} template"
