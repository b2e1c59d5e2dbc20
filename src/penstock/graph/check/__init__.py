"""Checks a workflow and returns every Problem at once. Called by author, formats, plan, service and runners.

`check` looks at the root and at each definition, each in a Context of its own, and applies the rules of `workflow.RULES`
in order. A rule is a function that reads the Context and reports problems to it. It raises nothing.

    context      one workflow, its symbols and the problems found so far
    scalars      names, numbers, words
    values       expressions and values: what they may read, and of which type they are
    paths        one path that an expression reads
    workflow     the rules of a workflow: parameters, steps, outputs, order
    steps        the rules of a step; loops, actions, pods and storage hold those of its parts
    callbacks    what is sent when a run has ended
    order        cycles, steps that can never run, values that may be missing
    definitions  the rules across definitions: names, recursion
    chains       the rules of links
    arguments    the values that a run is given
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.errors import Problem
from penstock.graph.check import definitions as across
from penstock.graph.check.arguments import check_arguments
from penstock.graph.check.chains import check_links
from penstock.graph.check.context import Context
from penstock.graph.check.workflow import RULES
from penstock.graph.limits import MOST_PROBLEMS
from penstock.graph.links import Links, links_of
from penstock.graph.model import Workflow

__all__ = ["check", "check_arguments", "errors"]


def check(workflow: Workflow, links: Mapping[str, Links] | None = None) -> list[Problem]:
    """Errors and warnings, in the order of the document. `links`: those of the workflow, if the caller has them."""
    links = links_of(workflow) if links is None else links
    definitions = {definition.name: definition for definition in workflow.definitions}
    problems = list(across.check_names(workflow))
    own = links[""] if "" not in definitions else links_of(replace(workflow, definitions=()))[""]
    contexts = [Context(workflow, definitions, "", own)]
    contexts += [Context(one, definitions, f"definitions.{name}.", links[name]) for name, one in definitions.items()]
    for context in contexts:
        for rule in RULES:
            rule(context)
        problems += context.problems
    problems += across.check_calls(workflow, definitions)
    problems += check_links(workflow) if any(one.links for one in (workflow, *workflow.definitions)) else ()
    return problems[:MOST_PROBLEMS]


def errors(workflow: Workflow) -> list[Problem]:
    """The problems that forbid planning and running the workflow."""
    return [problem for problem in check(workflow) if problem.severity == "error"]
