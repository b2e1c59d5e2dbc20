"""The links of a workflow: their names and order, and the workflow that a link runs. Called by graph.check, author and service.chains. Pure.

A chain is a workflow with links: a graph of whole runs, each of which begins when those before it have ended. All workflows of a chain are
definitions of the first one, so that one document has the whole chain as it was when it was submitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from penstock.graph.model import Link, Nested, Workflow
from penstock.graph.order import topological


class TwoOfOneName(ValueError):
    """Two different workflows have the name `args[0]`."""


def name_of(link: Link) -> str:
    return link.name or link.workflow


def in_order(workflow: Workflow) -> list[Link]:
    """Each after those that it comes after. Raises NotOrdered."""
    by_name = {name_of(link): link for link in workflow.links}
    order = topological({name: [one for one in link.after if one in by_name] for name, link in by_name.items()})
    return [by_name[name] for name in order]


def defined(workflow: Workflow) -> dict[str, Workflow]:
    """What its links can name: its definitions, and itself."""
    return {workflow.name: replace(workflow, definitions=()), **{one.name: one for one in workflow.definitions}}


def target_of(workflow: Workflow, link: Link) -> Workflow:
    """The workflow that a link runs, with the definitions that it needs."""
    known = defined(workflow)
    found = known[link.workflow]
    return replace(found, definitions=tuple(known[name] for name in _needed(found, known)))


def joined(workflow: Workflow, link: Link) -> tuple[Workflow, ...]:
    """The workflows whose ends a link waits for."""
    known = defined(workflow)
    by_name = {name_of(one): one for one in workflow.links}
    return tuple(known[by_name[name].workflow] for name in link.after) or (known[workflow.name],)


def gathered(workflows: Iterable[Workflow]) -> tuple[Workflow, ...]:
    """These workflows and their definitions, each once, as definitions of one root. Raises TwoOfOneName."""
    found: dict[str, Workflow] = {}
    for workflow in workflows:
        for one in (replace(workflow, definitions=()), *workflow.definitions):
            if found.setdefault(one.name, one) != one:
                raise TwoOfOneName(one.name)
    return tuple(found.values())


def _needed(workflow: Workflow, known: Mapping[str, Workflow]) -> list[str]:
    """Names of the definitions that are reached from it, in order."""
    found: dict[str, None] = {}
    frontier = list(_named(workflow))
    while frontier:
        name = frontier.pop(0)
        if name in known and name not in found and known[name] is not workflow:
            found[name] = None
            frontier += _named(known[name])
    return list(found)


def _named(workflow: Workflow) -> Iterator[str]:
    for step in (*workflow.steps, *workflow.on_exit):
        if isinstance(step.action, Nested):
            yield step.action.name
    for link in workflow.links:
        yield link.workflow
