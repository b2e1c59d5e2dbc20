"""One steps or dag template on its way into a workflow: its calls, and what variables mean in them. Called by graph.

The entrypoint becomes the root workflow, every other composite template a definition. Inside, `{{steps.a.outputs.parameters.x}}`
is an output of the step a, `{{inputs.parameters.x}}` a parameter, and what belongs to the whole workflow comes from Globals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from penstock.errors import nearest
from penstock.formats.argo_in.drafts import Draft, Loop, Site
from penstock.formats.argo_in.globals import RUN, Globals, Key
from penstock.formats.argo_in.notes import Notes
from penstock.formats.argo_in.sheet import ARTIFACTS, PARAMETERS, RESULT, WITH_FILES, Sheet
from penstock.formats.argo_in.values import Place, Unknown, as_text, node_of_value
from penstock.formats.argo_scope import Root
from penstock.formats.documents import Document, Library
from penstock.graph.expr import Binary, Call, Choice, Const, ListOf, MapOf, Node, reference
from penstock.graph.model import Outcome, Output, Parameter

_SELF: Final = ("id", "ip", "status", "exitCode", "startedAt", "finishedAt", "hostNodeName", "outputs")
_GUESSED: Final[Mapping[str, str]] = {
    "id": "the id of a node is the name of the run and of the step",
    "ip": "every step runs on this machine: its address is 127.0.0.1",
    "startedAt": "when a step began is not known to others; it reads as the beginning of the run",
    "finishedAt": "when a step ended is not known to others; it reads as the beginning of the run",
    "hostNodeName": "every step runs on this machine: the node is localhost",
}


class Shared(Protocol):
    """What all frames of a document share, as far as they ask for it. It is a Reading."""

    library: Library
    root: Root
    notes: Notes
    globals: Globals
    params: dict[str, Parameter]
    artifacts: dict[str, tuple[Mapping[str, Any], str]]
    moulds: dict[Any, Any]
    callers: list[tuple[SitePlace, Draft, Frame]]

    def definition(self, sheet: Sheet) -> Frame: ...

    def callee(self, of: Sheet, call: Mapping[str, Any], path: str, name: str, at: str) -> Sheet | None: ...

    def configured(self, one: Mapping[str, Any], document: Document, path: str) -> str | None: ...

    def own_name(self, name: str) -> str: ...

    def defaults(self) -> dict[str, Any]: ...

    def verify(self, key: Key) -> None: ...

    def value(self, key: Key, exit: bool) -> Node: ...

    def publishes(self, sheet: Sheet) -> dict[Key, str]: ...

    def published_by(self, sheet: Sheet) -> frozenset[Key]: ...


class Frame:
    """A workflow under construction."""

    def __init__(self, reading: Shared, sheet: Sheet, name: str, *, root: bool) -> None:
        self.reading = reading
        self.sheet = sheet
        self.name = name
        self.root = root
        self.word = "tasks" if sheet.kind == "dag" else "steps"
        self.inputs: dict[str, Node] = {}
        self.artifacts: dict[str, Node] = {}
        self.sites: dict[str, Site] = {}
        self.tolerant: dict[str, frozenset[Outcome]] = {}
        """Of those that may fail: in which way."""
        self.taken: set[str] = set()
        """Names of its steps."""
        self.drafts: list[Draft] = []
        self.exits: list[Draft] = []
        self.outputs: list[Output] = []
        self.used: dict[Key, None] = {}
        """What of the whole workflow is read in it or below: its extra parameters."""
        self.exported: dict[Key, Output | None] = {}
        """What is published in it or below and read outside."""
        if not root:
            for (kind, given), own in sheet.input_names.items():
                (self.inputs if kind == PARAMETERS else self.artifacts)[given] = reference("params", own)

    @property
    def document(self) -> Document:
        return self.sheet.document

    # -- its own inputs

    def input(self, rest: tuple[str, ...], typed: bool) -> Node:
        kind, names = (rest[0], rest[1:]) if rest else ("", ())
        if kind == PARAMETERS and not names:
            return MapOf(tuple((Const(name), node) for name, node in self.inputs.items())) if typed else self.as_json()
        known = {PARAMETERS: self.inputs, ARTIFACTS: self.artifacts}.get(kind)
        name = ".".join(names)
        if known is None or name not in known:
            said = f"{self.sheet.name!r} has no input inputs.{'.'.join(rest)[:80]}"
            fix = nearest(name, known or {}).strip() or f"declare it under inputs.{kind or PARAMETERS}"
            raise Unknown(said, fix)
        return known[name]

    def as_json(self) -> Node:
        """All input parameters, as Argo writes them."""
        return listed(self.inputs)

    # -- its steps

    def step(self, names: tuple[str, ...], place: SitePlace, typed: bool) -> Node:
        """What comes behind `steps.` or `tasks.`."""
        site = self.sites.get(names[0])
        if site is None:
            fix = nearest(names[0], self.sites).strip() or f"known are {', '.join(list(self.sites)[:10]) or 'none'}"
            raise Unknown(f"{self.sheet.name!r} has no {self.word[:-1]} {names[0][:60]!r}", fix)
        if not place.after(site):
            raise Unknown(
                f"{self.word}.{site.name} has not run when this is read",
                "read a step of a group further up, or move this one",
            )
        place.reads(site)
        word, rest = (names[1], names[2:]) if len(names) > 1 else ("", ())
        if word == "outputs":
            return self.output(site, rest, typed)
        if word not in _SELF or rest:
            said = f"{self.word}.{'.'.join(names)[:80]} is neither an output nor anything else that is known of a step"
            raise Unknown(
                said, nearest(word, _SELF).strip() or f"write {self.word}.{site.name}.outputs.parameters.NAME"
            )
        return self.fact(site, word, place)

    def fact(self, site: Site, word: str, place: SitePlace) -> Node:
        if word == "status":
            return Call("phase", (reference("steps", site.step, "outcome"),))
        if word in _GUESSED:
            self.reading.notes.changed(self.document, site.path, _GUESSED[word])
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

    def output(self, site: Site, rest: tuple[str, ...], typed: bool) -> Node:
        sheet = site.sheet
        kind, name = (rest[0], ".".join(rest[1:])) if rest else ("", "")
        if kind == "result" and not name:
            return self.result(site)
        if kind == "exitCode" and not name:
            return self.exit_code(site)
        if kind == PARAMETERS and not name:
            return self.every_output(site, typed)
        own = sheet.output_names.get((kind, name))
        if own is None or kind not in (PARAMETERS, ARTIFACTS) or (kind == ARTIFACTS and sheet.kind not in WITH_FILES):
            known = sheet.outputs.get(kind) or sheet.outputs[PARAMETERS]
            fix = nearest(name, known).strip() or f"known are {', '.join(known) or 'none'}"
            raise Unknown(f"the template {sheet.name!r} of {site.name!r} has no output {'.'.join(rest)[:80]!r}", fix)
        site.outputs_read.add(own)
        node = reference("steps", site.step, "outputs", own)
        return Call("collect", (node,)) if site.looped and kind == PARAMETERS else node

    def exit_code(self, site: Site) -> Node:
        """Of one command; a loop or a called template only ended well or not."""
        if not site.looped and not site.sheet.composite:
            return Call("string", (reference("steps", site.step, "exit_code"),))
        ended = Binary("==", reference("steps", site.step, "outcome"), Const("succeeded"))
        return Choice(ended, Const("0"), Const("1"))

    def result(self, site: Site) -> Node:
        if not site.sheet.has_result:
            raise Unknown(
                f"{site.name!r} has no result: its template {site.sheet.name!r} is {_a(site.sheet.kind)}",
                "read one of its outputs.parameters",
            )
        site.result_read = True
        node = reference("steps", site.step, "outputs", site.sheet.output_names[RESULT])
        return Call("collect_results", (node,)) if site.looped else node

    def every_output(self, site: Site, typed: bool) -> Node:
        """All parameters of a step as JSON: a map, or of a loop a list of maps."""
        found = {
            name: reference("steps", site.step, "outputs", site.sheet.output_names[PARAMETERS, name])
            for name in site.sheet.outputs[PARAMETERS]
        }
        whole = MapOf(tuple((Const(name), node) for name, node in found.items()))
        if site.looped:
            return Call("collect_maps", (whole,))
        return whole if typed else Call("to_json", (whole,))

    # -- the whole workflow

    def workflow(self, names: tuple[str, ...], place: SitePlace) -> Node:
        found = self.reading.globals.look(names)
        return self.shared(found, place) if isinstance(found, tuple) else found

    def shared(self, key: Key, place: SitePlace) -> Node:
        """The value of a key here. Raises Unknown."""
        if key[0] == "outputs":
            published = self.published(key, place)
            if published is not None:
                return published
        self.reading.verify(key)
        if self.root:
            return self.reading.value(key, place.exit)
        self.used.setdefault(key)
        return reference("params", self.reading.globals.name(key))

    def published(self, key: Key, place: SitePlace | None) -> Node | None:
        """The latest that a step here has published under a global name; None if none of them does so before `place`."""
        found: Node | None = None
        for site in self.sites.values():
            if key not in self.reading.published_by(site.sheet) or (place is not None and not place.after(site)):
                continue
            if place is not None:
                place.reads(site)
            own = self.reading.publishes(site.sheet).get(key)
            if own is None:
                own = self.reading.definition(site.sheet).export(key)
            site.outputs_read.add(own)
            node = reference("steps", site.step, "outputs", own)
            if site.looped:
                node = Call("last", (node,))
            found = node if found is None else Call("default", (node, found))
        if place is not None and place.exit:
            own = self.reading.publishes(self.sheet).get(key) if self.sheet.composite else None
            for output in self.outputs:
                if output.name == own:
                    found = node_of_value(output.value)
        return found

    def export(self, key: Key) -> str:
        self.exported.setdefault(key)
        return self.reading.globals.name(key)

    def known(self) -> dict[str, Any]:
        """Parameters whose value can be told: their defaults, if nobody gives another."""
        reading = self.reading
        if self.root:
            return reading.defaults()
        given = reading.defaults()
        return {
            reading.globals.name(key): given[own]
            for key in self.used
            if key[0] == PARAMETERS and len(key) == 2 and (own := reading.own_name(key[1])) in given
        }


class SitePlace(Place):
    """A text of a step or task: in its arguments, its condition, its loop."""

    exit = False

    def __init__(self, frame: Frame, site: Site | None, loop: Loop | None = None, hooked: Site | None = None) -> None:
        self.frame = frame
        self.notes = frame.reading.notes
        self.document = frame.document
        self.site = site
        self.loop = loop
        self.hooked = hooked
        """The step whose hook this is: it is over."""
        self.status: Node | None = None
        """What the status of that step reads as, where a hook looks at it while it runs."""

    def after(self, site: Site) -> bool:
        """Is that step over when this text is looked at?"""
        own = self.hooked or self.site
        if own is None or site is self.hooked:
            return True
        if own.group is None or site.group is None:
            return site is not own
        return site.group < own.group

    def reads(self, site: Site) -> None:
        if self.site is not None and site not in (self.site, self.hooked):
            self.site.reads.add(site.name)

    def known(self) -> Mapping[str, Any]:
        return {"params": self.frame.known()}

    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        frame, rest = self.frame, names[1:]
        match names[0]:
            case "inputs":
                return frame.input(rest, typed)
            case "item":
                return self.item(rest, typed)
            case "steps" | "tasks" as word:
                if rest == ("name",):
                    return Const(self.site.name if self.site is not None else frame.sheet.name)
                if word != frame.word or not rest:
                    return None
                if self.status is not None and self.hooked is not None and rest == (self.hooked.name, "status"):
                    return self.status
                return frame.step(rest, self, typed)
            case "workflow":
                if self.status is not None and self.exit and rest == ("status",):
                    return self.status
                return frame.workflow(rest, self)
            case "node" if rest == ("name",):
                return Binary("+", RUN, Const(f".{self.site.name}" if self.site is not None else ""))
            case _:
                return None

    def item(self, rest: tuple[str, ...], typed: bool) -> Node | None:
        if self.loop is None:
            raise Unknown("there is no item here: the step has no loop", "give it withItems, withParam or withSequence")
        if rest and self.loop.kind == "text":
            raise Unknown(
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


class ExitPlace(SitePlace):
    """A text of an exit handler of the whole workflow. The steps are over and out of sight."""

    exit = True

    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        if names[0] in ("steps", "tasks") and names[1:] != ("name",):
            raise Unknown(
                f"{'.'.join(names)[:80]} cannot be read in an exit handler",
                "publish it with globalName, and read workflow.outputs",
            )
        if names[0] == "inputs":
            return None
        return super().look(names, typed=typed)


def listed(nodes: Mapping[str, Node]) -> Node:
    """Parameters as Argo writes them out: `[{"name":"x","value":"1"}]`."""
    entries = (MapOf(((Const("name"), Const(name)), (Const("value"), as_text(node)))) for name, node in nodes.items())
    return Call("to_json", (ListOf(tuple(entries)),))


def _a(kind: str) -> str:
    return f"a {kind} template"
