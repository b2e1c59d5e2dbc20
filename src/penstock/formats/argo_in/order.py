"""In which order the steps of an Argo template run: groups of steps, dependencies of tasks. Called by graph.

A step waits for all of the group before it; a task for what its `depends` or `dependencies` say. Whoever waits for a step waits for
its hooks too, however those end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.errors import nearest
from penstock.formats.argo_in.drafts import Draft, Site
from penstock.formats.argo_in.frame import Frame, SitePlace
from penstock.formats.argo_in.sheet import text_of
from penstock.formats.argo_in.values import constant_text, made
from penstock.formats.documents import part
from penstock.formats.lang.depends import compile_depends
from penstock.graph.expr import Binary, Const, Expr, ExpressionError, ListOf, Node, reference, replace
from penstock.graph.model import NORMAL, Edge, Outcome
from penstock.graph.order import NotOrdered, topological

ALL: Final = frozenset(Outcome)
_UNLIKELY: Final = frozenset({Outcome.SKIPPED, Outcome.OMITTED})


# -- groups of steps --------------------------------------------------------------------------------------------------


def group_edges(frame: Frame) -> None:
    groups: dict[int, list[Draft]] = {}
    for draft in frame.drafts:
        groups.setdefault(draft.site.group or 0, []).append(draft)
    before: list[Edge] = []
    for _, drafts in sorted(groups.items()):
        names = {edge.step for edge in before}
        for draft in drafts:
            draft.needs += before
            # What was read of a step further up that may fail must not hold this one up.
            for name in sorted(draft.site.reads):
                up = frame.sites[name]
                if up.tolerates and up.step not in names:
                    draft.needs.append(Edge(up.step, NORMAL | up.tolerates))
        before = [edge for draft in drafts for edge in _after(draft.site)]


def _after(site: Site) -> Iterable[Edge]:
    yield Edge(site.step, NORMAL | site.tolerates)
    for hook in site.hooks:
        yield Edge(hook, ALL)


# -- tasks ------------------------------------------------------------------------------------------------------------


def waits_for(site: Site, frame: Frame) -> list[str]:
    """The tasks that a task names, in `depends` or in `dependencies`."""
    return _said(site, frame)[0]


def _said(site: Site, frame: Frame) -> tuple[list[str], list[Edge], Expr | None]:
    """(names, edges, trigger) of a task."""
    notes, document = frame.reading.notes, frame.document
    text, listed = text_of(site.raw.get("depends")), site.raw.get("dependencies")
    if text is not None and text.strip():
        if listed:
            said = "depends and dependencies at the same time"
            notes.wrong(document, f"{site.path}.dependencies", "P835", said, "write it all in depends")
        return _depends(text, site, frame)
    names: list[str] = []
    for number, one in enumerate(listed if isinstance(listed, list) else ()):
        name = text_of(one) or ""
        if name not in frame.sites:
            _no_task(name, site, frame, f"{site.path}.dependencies[{number}]")
        elif name not in names:
            names.append(name)
    return names, [Edge(frame.sites[name].step, NORMAL | frame.sites[name].tolerates) for name in names], None


def _depends(text: str, site: Site, frame: Frame) -> tuple[list[str], list[Edge], Expr | None]:
    notes, document, path = frame.reading.notes, frame.document, f"{site.path}.depends"
    try:
        found = compile_depends(text, frame.sites, frame.tolerant)
    except ExpressionError as error:
        lost = "there is no task" in str(error)
        said = (
            str(error) if lost else f"{text.strip()[:80]!r} cannot be read at character {error.position + 1}: {error}"
        )
        fix = "name a task of this dag" if lost else "join tasks with &&, || and !"
        notes.wrong(document, path, "P832" if lost else "P834", said, fix)
        return [], [], None
    trigger = found.trigger
    edges = []
    for name, outcomes in found.needs.items():
        step = frame.sites[name].step
        if outcomes <= _UNLIKELY:
            # An edge that only lets what did not run pass would be taken for a mistake where nothing can be skipped.
            listed = ListOf(tuple(Const(one.value) for one in Outcome if one in outcomes))
            test = Binary("in", reference("steps", name, "outcome"), listed)
            trigger = test if trigger is None else Binary("&&", trigger, test)
            outcomes = ALL
        edges.append(Edge(step, outcomes))
    if trigger is None:
        return list(found.needs), edges, None
    renamed: dict[tuple[str, ...], Node] = {
        ("steps", name): reference("steps", frame.sites[name].step) for name in found.needs
    }
    return list(found.needs), edges, made(replace(trigger, renamed), SitePlace(frame, site), path)


def _no_task(name: str, site: Site, frame: Frame, path: str) -> None:
    fix = nearest(name, frame.sites).strip() or f"known are {', '.join(list(frame.sites)[:10])}"
    frame.reading.notes.wrong(
        frame.document, path, "P832", f"{site.name!r} waits for {name[:60]!r}, which is no task", fix
    )


def pruned(frame: Frame, sites: list[Site]) -> list[Site]:
    """Only what the targets of a dag need; everything without a target."""
    sheet = frame.sheet
    text = text_of(part(sheet.body, "dag").get("target"))
    if not text or not text.strip():
        return sites
    path = f"{sheet.path}.dag.target"
    known = constant_text(text, SitePlace(frame, None), path)
    if known is None:
        frame.reading.notes.lost(sheet.document, path, "the target is only known when it runs; every task runs")
        return sites
    if "{{" in text:
        said = f"the target is {known[:60]!r}, as far as can be told before the run"
        frame.reading.notes.changed(sheet.document, path, said)
    wanted: dict[str, None] = {}
    rest = known.split()
    while rest:
        name = rest.pop()
        if name not in frame.sites:
            fix = nearest(name, frame.sites).strip() or f"known are {', '.join(list(frame.sites)[:10])}"
            frame.reading.notes.wrong(sheet.document, path, "P832", f"the target {name[:60]!r} is no task", fix)
        elif name not in wanted:
            wanted[name] = None
            rest += waits_for(frame.sites[name], frame)
    return [site for site in sites if site.name in wanted]


def dag_edges(frame: Frame) -> None:
    waits: dict[str, set[str]] = {}
    wide = False
    for draft in frame.drafts:
        names, edges, trigger = _said(draft.site, frame)
        waits[draft.site.name] = {*names, *draft.site.reads}
        draft.trigger = trigger
        wide = wide or trigger is not None or any(edge.outcomes != NORMAL for edge in edges)
        for edge in edges:
            draft.needs.append(edge)
        for name in names:
            draft.needs += [Edge(hook, ALL) for hook in frame.sites[name].hooks]
    if wide:
        _widen(frame)
    try:
        topological(waits)
    except NotOrdered as cycle:
        path = " → ".join([*cycle.names, cycle.names[0]])
        first = frame.sites[cycle.names[0]]
        said = f"these tasks wait for one another: {path[:200]}"
        frame.reading.notes.wrong(frame.document, first.path, "P833", said, "remove one of the dependencies")


def _widen(frame: Frame) -> None:
    """Where a task may run although another failed, what it reads of a third must not hold it up."""
    for draft in frame.drafts:
        said = {edge.step for edge in draft.needs}
        for name in sorted(draft.site.reads):
            up = frame.sites[name].step
            if up not in said and name != draft.site.name:
                draft.needs.append(Edge(up, ALL))
