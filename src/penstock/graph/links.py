"""The dependencies of a workflow and of each of its definitions, computed once, and those inside a pod.

Called by graph.check and plan.make; `part_needs` by backends and formats.tekton.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from penstock.graph.model import Outcome, Part, Workflow, edges_of
from penstock.graph.order import topological


@dataclass(frozen=True)
class Links:
    """The dependencies of one workflow, exit handlers included."""

    edges: Mapping[str, Mapping[str, frozenset[Outcome]]]
    """Step -> the steps it waits for, declared or inferred, and the outcomes after which it continues."""

    @cached_property
    def before(self) -> dict[str, tuple[str, ...]]:
        """The same without outcomes, and without names of steps that do not exist."""
        return {name: tuple(up for up in ups if up in self.edges) for name, ups in self.edges.items()}

    @cached_property
    def order(self) -> list[str]:
        """Topological. Raises NotOrdered."""
        return topological(self.before)


def links_of(workflow: Workflow) -> dict[str, Links]:
    """For the root ("") and for each definition by its name."""
    every = [("", workflow), *((definition.name, definition) for definition in workflow.definitions)]
    return {key: Links({step.name: edges_of(step) for step in (*one.steps, *one.on_exit)}) for key, one in every}


def part_needs(parts: tuple[Part, ...]) -> dict[str, tuple[str, ...]]:
    """Part of a pod -> the parts that it waits for: declared, or else the one before it. Sidecars wait for nothing."""
    found: dict[str, tuple[str, ...]] = {}
    last: tuple[str, ...] = ()
    for part in parts:
        if part.sidecar:
            found[part.name] = ()
            continue
        found[part.name] = last if part.needs is None else part.needs
        last = (part.name,)
    return found
