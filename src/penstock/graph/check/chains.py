"""The rules of links: what they run, after what, and what they pass on. Called by graph.check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from penstock.errors import Problem, nearest
from penstock.expressions.parse import references
from penstock.expressions.secret import ROOT as SECRETS
from penstock.graph.chains import defined, joined, name_of
from penstock.graph.check.scalars import cycle_path
from penstock.graph.limits import NAME
from penstock.graph.model import LINK_ON, MISSING, Link, Workflow, expressions
from penstock.graph.order import NotOrdered, topological

RUN = ("id", "state", "error", "workflow")
"""What a link reads of the run that ended."""


def check_links(root: Workflow) -> Iterator[Problem]:
    """Of the root and of its definitions."""
    known = defined(root)
    for one in (root, *root.definitions):
        others = tuple(other for name, other in known.items() if name != one.name)
        prefix = "" if one is root else f"definitions.{one.name}."
        for code, message, fix, where in _problems(replace(one, definitions=others)):
            yield Problem(code, message, fix, where=prefix + where, source=one.source)


Found = tuple[str, str, str, str]
"""Code, message, fix, place."""


def _problems(workflow: Workflow) -> Iterator[Found]:
    """`workflow`: with all that its links can name among its definitions."""
    known = defined(workflow)
    by_name = {name_of(link): link for link in workflow.links}
    sound = True
    for problem in (*_names(workflow, known), *_order(by_name)):
        sound = False
        yield problem
    for link in workflow.links:
        yield from _words(link, f"links.{name_of(link)}")
        if sound:
            yield from _passed(workflow, link, known[link.workflow])


def _names(workflow: Workflow, known: Mapping[str, Workflow]) -> Iterator[Found]:
    seen: set[str] = set()
    for link in workflow.links:
        name, where = name_of(link), f"links.{name_of(link)}"
        if link.workflow not in known:
            fix = f"define it under `definitions`. Known: {', '.join(known)}.{nearest(link.workflow, known)}"
            yield "P540", f"the link {name!r} runs a workflow that is not there: {link.workflow!r}", fix, where
        if not NAME.match(name):
            yield "P543", f"{name!r} is not a usable name of a link", "use letters, digits, '-' and '_'", where
        if name in seen:
            fix = f"give one of them a name of its own: `name: {name}-2`"
            yield "P543", f"two links are named {name!r}", fix, where
        seen.add(name)


def _order(by_name: Mapping[str, Link]) -> Iterator[Found]:
    for name, link in by_name.items():
        for other in link.after:
            if other not in by_name:
                fix = f"name a link; without `after` it follows this workflow itself.{nearest(other, by_name)}"
                yield "P543", f"there is no link {other!r}", fix, f"links.{name}.after"
    try:
        topological({name: [one for one in link.after if one in by_name] for name, link in by_name.items()})
    except NotOrdered as cycle:
        fix = "take one out; a workflow that is to be run again and again has a link to itself"
        yield "P543", f"links wait for each other: {cycle_path(cycle.names)}", fix, "links"


def _words(link: Link, where: str) -> Iterator[Found]:
    if not link.on:
        yield "P543", "it follows no end", f"name some of {', '.join(LINK_ON)}", f"{where}.on"
    for word in link.on:
        if word not in LINK_ON:
            fix = f"use some of {', '.join(LINK_ON)}.{nearest(word, LINK_ON)}"
            yield "P543", f"{word!r} is not how a run ends", fix, f"{where}.on"


def _passed(whole: Workflow, link: Link, target: Workflow) -> Iterator[Found]:
    """What its expressions read, and whether each parameter gets a value."""
    where = f"links.{name_of(link)}"
    outputs = {output.name for one in joined(whole, link) for output in one.outputs}
    readable = {"outputs": outputs, "params": {param.name for param in whole.params}, "run": set(RUN)}
    for place, value in (("when", link.when), *((f"params.{name}", one) for name, one in link.params.items())):
        for expr in expressions(value):
            for path in references(expr.text):
                known = readable.get(path[0])
                if known is None or (len(path) > 1 and path[1] not in known):
                    said = ".".join(path[:2])
                    fix = "it is given to the steps that name it" if path[0] == SECRETS else _readable(readable)
                    yield "P544", f"{said} cannot be read in a link", fix, f"{where}.{place}"
    params = {param.name: param for param in target.params}
    for name in link.params:
        if name not in params:
            fix = f"known: {', '.join(params) or 'none'}.{nearest(name, params)}"
            yield "P544", f"{target.name} has no parameter {name!r}", fix, f"{where}.params.{name}"
    for name, param in params.items():
        given = name in link.params or name in outputs or name in readable["params"]
        if param.default is MISSING and not given:
            fix = f"give it one: params: {{{name}: ${{{{ outputs.… }}}}}}, or a default"
            yield (
                "P544",
                f"the parameter {name!r} of {target.name} gets no value from this link",
                fix,
                f"{where}.params",
            )


def _readable(known: dict[str, set[str]]) -> str:
    return "read one of " + ", ".join(f"{root}.{name}" for root, names in known.items() for name in sorted(names))
