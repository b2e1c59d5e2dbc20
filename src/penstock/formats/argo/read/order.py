"""The order of the steps of an Argo template: groups of steps, dependencies of tasks. Called by graph.

A step waits for all steps of the group before it; a task for its `depends` or `dependencies`. Dependents of a step also wait for its hooks,
with any outcome.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.errors import known_are, nearest
from penstock.expressions.parse import Binary, Const, Expr, ExpressionError, ListOf, Node, reference, replace
from penstock.formats.argo.language.depends import UnknownTask, compile_depends, needed_for
from penstock.formats.argo.read.builder import CallScope, DefinitionBuilder
from penstock.formats.argo.read.steps import CallSite, StepBuilder
from penstock.formats.argo.read.template import text_of
from penstock.formats.argo.read.values import as_expr, constant_text
from penstock.formats.documents import part
from penstock.graph.model import NORMAL, Edge, Outcome
from penstock.graph.order import NotOrdered, topological

ALL: Final = frozenset(Outcome)
_UNLIKELY: Final = frozenset({Outcome.SKIPPED, Outcome.OMITTED})


# -- groups of steps --------------------------------------------------------------------------------------------------


def group_edges(builder: DefinitionBuilder) -> None:
    groups: dict[int, list[StepBuilder]] = {}
    for step_builder in builder.step_builders:
        groups.setdefault(step_builder.site.group or 0, []).append(step_builder)
    before: list[Edge] = []
    for _, step_builders in sorted(groups.items()):
        names = {edge.step for edge in before}
        for step_builder in step_builders:
            step_builder.needs += before
            # Reading a value of an earlier step that may fail must not block this step.
            for name in sorted(step_builder.site.reads):
                up = builder.sites[name]
                if up.tolerates and up.step not in names:
                    step_builder.needs.append(Edge(up.step, NORMAL | up.tolerates))
        before = [edge for step_builder in step_builders for edge in _after(step_builder.site)]


def _after(site: CallSite) -> Iterable[Edge]:
    yield Edge(site.step, NORMAL | site.tolerates)
    for hook in site.hooks:
        yield Edge(hook, ALL)


# -- tasks ------------------------------------------------------------------------------------------------------------


def waits_for(site: CallSite, builder: DefinitionBuilder) -> list[str]:
    """The tasks that a task names, in `depends` or in `dependencies`."""
    return _said(site, builder)[0]


def _said(site: CallSite, builder: DefinitionBuilder) -> tuple[list[str], list[Edge], Expr | None]:
    """(names, edges, trigger) of a task."""
    notes, document = builder.context.notes, builder.document
    text, listed = text_of(site.raw.get("depends")), site.raw.get("dependencies")
    if text is not None and text.strip():
        if listed:
            message = "depends and dependencies at the same time"
            notes.wrong(document, f"{site.path}.dependencies", "P835", message, "write it all in depends")
        return _depends(text, site, builder)
    names: list[str] = []
    for number, one in enumerate(listed if isinstance(listed, list) else ()):
        name = text_of(one) or ""
        if name not in builder.sites:
            _no_task(name, site, builder, f"{site.path}.dependencies[{number}]")
        elif name not in names:
            names.append(name)
    return names, [Edge(builder.sites[name].step, NORMAL | builder.sites[name].tolerates) for name in names], None


def _depends(text: str, site: CallSite, builder: DefinitionBuilder) -> tuple[list[str], list[Edge], Expr | None]:
    notes, document, path = builder.context.notes, builder.document, f"{site.path}.depends"
    try:
        found = compile_depends(text, builder.sites, builder.tolerant)
    except ExpressionError as error:
        lost = isinstance(error, UnknownTask)
        message = (
            str(error) if lost else f"{text.strip()[:80]!r} cannot be read at character {error.position + 1}: {error}"
        )
        fix = "name a task of this dag" if lost else "join tasks with &&, || and !"
        notes.wrong(document, path, "P832" if lost else "P834", message, fix)
        return [], [], None
    trigger = found.trigger
    edges = []
    for name, outcomes in found.needs.items():
        step = builder.sites[name].step
        if outcomes <= _UNLIKELY:
            # graph.check would report an edge that accepts only skipped steps if the step cannot be skipped.
            listed = ListOf(tuple(Const(one.value) for one in Outcome if one in outcomes))
            test = Binary("in", reference("steps", name, "outcome"), listed)
            trigger = test if trigger is None else Binary("&&", trigger, test)
            outcomes = ALL
        edges.append(Edge(step, outcomes))
    if trigger is None:
        return list(found.needs), edges, None
    renamed: dict[tuple[str, ...], Node] = {
        ("steps", name): reference("steps", builder.sites[name].step) for name in found.needs
    }
    return list(found.needs), edges, as_expr(replace(trigger, renamed), CallScope(builder, site), path)


def _no_task(name: str, site: CallSite, builder: DefinitionBuilder, path: str) -> None:
    fix = nearest(name, builder.sites).strip() or known_are(builder.sites)
    builder.context.notes.wrong(
        builder.document, path, "P832", f"{site.name!r} waits for {name[:60]!r}, which is not a task", fix
    )


def pruned(builder: DefinitionBuilder, sites: list[CallSite]) -> list[CallSite]:
    """The tasks that the target of a dag needs; all tasks without a target."""
    template = builder.template
    text = text_of(part(template.body, "dag").get("target"))
    if not text or not text.strip():
        return sites
    path = f"{template.path}.dag.target"
    known = constant_text(text, CallScope(builder, None), path)
    if known is None:
        builder.context.notes.lost(template.document, path, "the target is only known when it runs; every task runs")
        return sites
    if "{{" in text:
        message = f"the target is {known[:60]!r}, as far as can be told before the run"
        builder.context.notes.changed(template.document, path, message)

    def needs(name: str) -> list[str]:
        if name in builder.sites:
            return waits_for(builder.sites[name], builder)
        fix = nearest(name, builder.sites).strip() or known_are(builder.sites)
        builder.context.notes.wrong(template.document, path, "P832", f"the target {name[:60]!r} is not a task", fix)
        return []

    wanted = needed_for(known.split(), needs)
    return [site for site in sites if site.name in wanted]


def dag_edges(builder: DefinitionBuilder) -> None:
    waits: dict[str, set[str]] = {}
    wide = False
    for step_builder in builder.step_builders:
        names, edges, trigger = _said(step_builder.site, builder)
        waits[step_builder.site.name] = {*names, *step_builder.site.reads}
        step_builder.trigger = trigger
        wide = wide or trigger is not None or any(edge.outcomes != NORMAL for edge in edges)
        for edge in edges:
            step_builder.needs.append(edge)
        for name in names:
            step_builder.needs += [Edge(hook, ALL) for hook in builder.sites[name].hooks]
    if wide:
        _widen(builder)
    try:
        topological(waits)
    except NotOrdered as cycle:
        path = " → ".join([*cycle.names, cycle.names[0]])
        first = builder.sites[cycle.names[0]]
        message = f"these tasks wait for one another: {path[:200]}"
        builder.context.notes.wrong(builder.document, first.path, "P833", message, "remove one of the dependencies")


def _widen(builder: DefinitionBuilder) -> None:
    """If a task may run after a failure, reading a value of another task must not block it."""
    for step_builder in builder.step_builders:
        message = {edge.step for edge in step_builder.needs}
        for name in sorted(step_builder.site.reads):
            up = builder.sites[name].step
            if up not in message and name != step_builder.site.name:
                step_builder.needs.append(Edge(up, ALL))
