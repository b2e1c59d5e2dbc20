"""Steps, tasks and hooks of an Argo template -> drafts of steps. Called by read_argo for each frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.errors import Source
from penstock.formats.argo_in.arguments import Given, given_of, inputs_of, whole_given
from penstock.formats.argo_in.drafts import Draft, Loop, Site
from penstock.formats.argo_in.frame import Frame, SitePlace
from penstock.formats.argo_in.leaf import mould
from penstock.formats.argo_in.loops import KINDS, loop_of
from penstock.formats.argo_in.order import dag_edges, group_edges, pruned
from penstock.formats.argo_in.policy import NO_CACHE, cache_of, locks_of, retry_of, timeout_of
from penstock.formats.argo_in.sheet import Sheet, legal, text_of
from penstock.formats.argo_in.values import Place, condition, expression, made
from penstock.formats.argo_scope import calls_of
from penstock.formats.documents import part
from penstock.formats.kube import frozen
from penstock.graph.expr import Binary, Call, Const, Expr, Name, Node, path_of, reference
from penstock.graph.model import (
    Edge,
    ForEach,
    Nested,
    Outcome,
)
from penstock.graph.satisfy import never
from penstock.graph.types import ANY

RAN: Final = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.ERRORED})
BAD: Final = frozenset({Outcome.FAILED, Outcome.ERRORED})
NEVER: Final = Binary("<", Call("size", (Name("params"),)), Const(0))
"""A condition that does not hold, said so that it is not taken for a slip of the pen."""
_ALWAYS: Final = Const(True)


# -- a whole frame ----------------------------------------------------------------------------------------------------


def build(frame: Frame) -> None:
    """The steps of a steps or dag template."""
    _collect(frame)
    sites = list(frame.sites.values())
    if frame.sheet.kind == "dag":
        sites = pruned(frame, sites)
        frame.sites = {site.name: site for site in sites}
    hooked: list[Draft] = []
    for site in sites:
        loop, draft = _site(frame, site)
        frame.drafts.append(draft)
        hooked += _hooks(frame, site, loop)
    if frame.sheet.kind == "dag":
        dag_edges(frame)
    else:
        group_edges(frame)
    frame.drafts += hooked


def _collect(frame: Frame) -> None:
    """Every call by its name, with the template it means."""
    sheet, notes = frame.sheet, frame.reading.notes
    _check_shape(frame)
    for number, (group, raw, path) in enumerate(calls_of(sheet.body, sheet.path)):
        name = text_of(raw.get("name"))
        if not name:
            notes.wrong(sheet.document, path, "P835", f"this {frame.word[:-1]} has no name", "give it one")
            continue
        if name in frame.sites:
            said = f"two {frame.word} of {sheet.name!r} are named {name[:60]!r}"
            notes.wrong(sheet.document, f"{path}.name", "P835", said, "rename one; outputs are read by name")
            continue
        at = f".{name}" if group is None else f"[{group}].{name}"
        callee = frame.reading.callee(sheet, raw, path, name, at)
        if callee is None:
            continue
        own = legal(name, frame.taken)
        frame.taken.add(own)
        if own != name:
            notes.changed(sheet.document, f"{path}.name", f"{name[:60]!r} is called {own!r}")
        frame.sites[name] = Site(
            name, own, raw, path, callee, group, number, _tolerated(raw), any(raw.get(one) is not None for one in KINDS)
        )  # fmt: skip
        if frame.sites[name].tolerates:
            frame.tolerant[name] = frame.sites[name].tolerates
    if not frame.sites and not notes.problems:
        notes.wrong(sheet.document, sheet.path, "P835", f"the template {sheet.name!r} has no steps", "give it one")


def _check_shape(frame: Frame) -> None:
    """Lists of lists, lists of mappings: what is nothing of the kind is passed over elsewhere."""
    sheet, notes = frame.sheet, frame.reading.notes
    if sheet.kind == "dag":
        listed, path = part(sheet.body, "dag").get("tasks"), f"{sheet.path}.dag.tasks"
    else:
        listed, path = sheet.body.get("steps"), f"{sheet.path}.steps"
    if not isinstance(listed, list):
        notes.wrong(sheet.document, path, "P835", "this is no list", "give a list")
        return
    for number, one in enumerate(listed):
        here = f"{path}[{number}]"
        if sheet.kind == "dag":
            if not isinstance(one, Mapping):
                notes.wrong(sheet.document, here, "P835", "this is no task", "give it a name and a template")
            continue
        inner = one.get("steps") if isinstance(one, Mapping) else one
        if not isinstance(inner, list):
            fix = "steps are a list of groups, and a group is a list of steps that start together: begin the line with `- - name:`"
            notes.wrong(sheet.document, here, "P835", "this is no group of steps", fix)
        elif not all(isinstance(step, Mapping) for step in inner):
            notes.wrong(sheet.document, here, "P835", "not every one of these is a step", "give a name and a template")


def _tolerated(raw: Mapping[str, Any]) -> frozenset[Outcome]:
    given = part(raw, "continueOn")
    found = {Outcome.FAILED} if given.get("failed") is True else set()
    return frozenset(found | ({Outcome.ERRORED} if given.get("error") is True else set()))


# -- one step ---------------------------------------------------------------------------------------------------------


def _site(frame: Frame, site: Site) -> tuple[Loop | None, Draft]:
    place = SitePlace(frame, site)
    found = loop_of(site.raw, place, site.path)
    fields: dict[str, Any] = {"tolerates": site.tolerates}
    if found is not None:
        items, place.loop = found
        fields["each"] = ForEach(axes=({"item": items},))
    text = text_of(site.raw.get("when"))
    if text is not None and text.strip():
        when = condition(text, place, f"{site.path}.when")
        if when is not None:
            fields["when"] = held(when, place, f"{site.path}.when")
    if site.group is not None and not site.sheet.composite and site.sheet.kind not in ("http", "suspend", "plugin"):
        fields["group"] = f"{frame.sheet.name}[{site.group}]"
    given = given_of(site.raw.get("arguments"), place, f"{site.path}.arguments")
    return place.loop, drafted(frame, site, place, given, fields)


def drafted(frame: Frame, site: Site, place: SitePlace, given: Given, fields: dict[str, Any]) -> Draft:
    """The step of a call, without what is around it: order, condition, group."""
    sheet, reading = site.sheet, frame.reading
    fields["source"] = _source(frame, site)
    inputs = inputs_of(sheet, given, place, site.path)
    if sheet.composite:
        called = reading.definition(sheet)
        fields |= _of_call(sheet, place)
        draft = Draft(site, inputs, Nested(name=called.name), fields)
        reading.callers.append((place, draft, called))
        return draft
    known = mould(sheet, place, lambda: given.parameters(sheet, place))
    return Draft(site, inputs, known, {**known.fields, **fields})


def _source(frame: Frame, site: Site) -> Source:
    return frame.document.source(site.path)


class _CallPlace(Place):
    """A text of a composite template that is about the call as a whole: its time limit, its locks."""

    def __init__(self, around: SitePlace, sheet: Sheet) -> None:
        self.around = around
        self.sheet = sheet
        self.notes = around.notes
        self.document = sheet.document

    def known(self) -> Mapping[str, Any]:
        return self.around.known()

    def look(self, names: tuple[str, ...], *, typed: bool = False) -> Node | None:
        if names[0] == "inputs" and len(names) > 2 and (names[1], ".".join(names[2:])) in self.sheet.input_names:
            return reference("inputs", self.sheet.input_names[names[1], ".".join(names[2:])])
        return self.around.look(names, typed=typed) if names[0] == "workflow" else None


def _of_call(sheet: Sheet, around: SitePlace) -> dict[str, Any]:
    """What a composite template says of every call of it."""
    place = _CallPlace(around, sheet)
    reading, body, path = around.frame.reading, sheet.body, sheet.path
    given, at = body.get("retryStrategy"), f"{path}.retryStrategy"
    if given is None:
        given, at = reading.root.spec.get("retryStrategy"), f"{reading.root.path}.retryStrategy"
    found: dict[str, Any] = {
        "retry": retry_of(given, place, at),
        "timeout": timeout_of(body, place, path),
        "locks": locks_of(body.get("synchronization"), place, f"{path}.synchronization", reading.library),
        "cache": cache_of(body.get("memoize"), place, f"{path}.memoize") if body.get("memoize") else NO_CACHE,
    }
    rest = {name: frozen(body[name]) for name in ("annotations", "metrics") if body.get(name) is not None}
    if rest:
        found["extra"] = {"argo": rest}
        for name in rest:
            reading.notes.kept(sheet.document, f"{path}.{name}", "handed on as it is")
    return found


def held(when: Node, place: SitePlace, path: str) -> Expr | None:
    """A condition; None if it always holds."""
    if when == _ALWAYS:
        return None
    params = {param.name: param.choices for param in place.frame.reading.params.values()} if place.frame.root else {}

    def choices(node: Node) -> tuple[Any, ...]:
        names = path_of(node)
        return params.get(names[1], ()) if names is not None and len(names) == 2 and names[0] == "params" else ()

    if never(when, lambda node: ANY, choices):
        return Expr.tree(NEVER)
    return made(when, place, path)


# -- hooks ------------------------------------------------------------------------------------------------------------


def _hooks(frame: Frame, site: Site, loop: Loop | None) -> Iterator[Draft]:
    """What runs when a step is over. Its own failure is nobody's; those behind the step wait for it."""
    for name, call, path in hooks_of(site.raw, site.path):
        callee = frame.reading.callee(frame.sheet, call, path, site.name, f".{site.name}@{name}")
        if callee is None:
            continue
        own = legal(f"{site.step}-onExit" if name == "exit" else f"{site.step}-hooks-{name}", frame.taken)
        frame.taken.add(own)
        site.hooks.append(own)
        hook = Site(site.name, own, call, path, callee, None, site.number)
        place = SitePlace(frame, hook, loop, hooked=site)
        fields: dict[str, Any] = {"exempt": True, "tolerates": BAD}
        if site.looped:
            fields["each"] = frame.drafts[-1].fields["each"]
            said = "the hook of a loop runs for each item when all are over; outputs of the step are those of all items"
            frame.reading.notes.changed(frame.document, path, said)
        when = hook_condition(call, place, path, name == "exit")
        if when is not None:
            fields["when"] = when
        draft = drafted(frame, hook, place, _hook_arguments(frame, callee, call, place, path), fields)
        draft.needs.append(Edge(site.step, RAN))
        yield draft


def hooks_of(raw: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """(name, what it calls, path); the old onExit is the hook `exit`."""
    named = text_of(raw.get("onExit"))
    hooks = part(raw, "hooks")
    if named and not isinstance(hooks.get("exit"), Mapping):
        yield "exit", {"template": named}, f"{path}.onExit"
    for name, hook in hooks.items():
        if isinstance(hook, Mapping):
            yield str(name), hook, f"{path}.hooks.{name}"


def _hook_arguments(frame: Frame, callee: Sheet, call: Mapping[str, Any], place: SitePlace, path: str) -> Given:
    if path.endswith(".onExit"):
        return whole_given(frame, place, callee)
    return given_of(call.get("arguments"), place, f"{path}.arguments")


def hook_condition(call: Mapping[str, Any], place: SitePlace, path: str, exit: bool) -> Expr | None:
    """An expression is looked at when the step is over: once as it was while the step ran, once as it is then."""
    text = text_of(call.get("expression"))
    here = f"{path}.expression"
    if not text or not text.strip():
        if not exit:
            place.notes.wrong(
                place.document, path, "P835", "a hook needs an expression", "name it `exit`, or say when it runs"
            )
        return None
    ended = expression(text, place, here)
    if ended is None or exit:
        return None if ended is None else held(ended, place, here)
    place.status = Const("Running")
    running = expression(text, place, here)
    place.status = None
    place.notes.changed(place.document, path, "the hook runs when the step is over, not while it runs")
    if running is None:
        return None
    return held(_either(running, ended, place), place, here)


def _either(running: Node, ended: Node, place: SitePlace) -> Node:
    """Either of the two, without what is known already."""
    if never(running, lambda node: ANY, lambda node: ()):
        return ended
    if never(Binary("==", running, Const(False)), lambda node: ANY, lambda node: ()):
        return _ALWAYS
    return Binary("||", running, ended)
