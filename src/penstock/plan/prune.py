"""Keeps only what some steps need. Called by service for `run --until STEP`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from penstock.errors import PlanError, Problem, nearest
from penstock.expressions.parse import references
from penstock.graph.links import Links
from penstock.graph.model import Output, Workflow, expressions


def prune(workflow: Workflow, until: Sequence[str], links: Mapping[str, Links]) -> Workflow:
    """The workflow with these steps and everything they wait for. Exit handlers and outputs stay if possible. Raises PlanError."""
    before = links[""].before
    names = [step.name for step in workflow.steps]
    for name in until:
        if name not in names:
            known = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
            raise PlanError(
                Problem("P406", f"there is no step {name!r} to stop at", f"known: {known}.{nearest(name, names)}")
            )
    keep: set[str] = set()
    todo = list(until)
    while todo:
        name = todo.pop()
        if name not in keep:
            keep.add(name)
            todo.extend(before[name])
    exits = {step.name for step in workflow.on_exit}
    return dataclasses.replace(
        workflow,
        steps=tuple(step for step in workflow.steps if step.name in keep),
        on_exit=tuple(step for step in workflow.on_exit if set(before[step.name]) <= keep | exits),
        outputs=tuple(output for output in workflow.outputs if _reads(output) <= keep),
        enough=None,  # the steps that were asked for must all be done
    )


def _reads(output: Output) -> set[str]:
    return {
        path[1]
        for expr in expressions(output.value)
        for path in references(expr.text)
        if path[0] == "steps" and len(path) > 1
    }
