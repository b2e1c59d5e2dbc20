"""The workflows that a compiled workflow calls. Part of the context, by which step_calls, bodies and compile reach it."""

from __future__ import annotations

import dataclasses

from penstock.author.compiler.refusals import Located, Refusals
from penstock.graph import codec
from penstock.graph.model import Workflow


class CalledWorkflows:
    """By name; each name has one meaning in the whole document."""

    def __init__(self, refusals: Refusals, root: str) -> None:
        self._refusals = refusals
        self._root = root
        self._known: dict[str, Workflow] = {}

    def define(self, node: Located, workflow: Workflow) -> None:
        """A workflow that the author named. Refused if another one has the name."""
        known = self._known.setdefault(workflow.name, workflow)
        if known is not workflow and codec.digest(known) != codec.digest(workflow):
            message = f"two different workflows are named {workflow.name!r}"
            raise self._refusals.error("P210", node, message, "rename one")

    def add_body(self, step: str, workflow: Workflow) -> str:
        """The body of a loop. Returns the name that it is called by."""
        name, number = f"{self._root}-{step}", 2
        workflow = dataclasses.replace(workflow, name=name)
        while name in self._known and self._known[name] != workflow:
            name, number = f"{self._root}-{step}-{number}", number + 1
            workflow = dataclasses.replace(workflow, name=name)
        self._known[name] = workflow
        return name

    def snapshot(self) -> dict[str, Workflow]:
        return dict(self._known)

    def restore(self, snapshot: dict[str, Workflow]) -> None:
        self._known = dict(snapshot)

    def by_name(self) -> tuple[Workflow, ...]:
        return tuple(self._known[name] for name in sorted(self._known))
