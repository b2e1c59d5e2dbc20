"""What waits for what, worked out once for a workflow and each of its definitions. Called by check and plan.make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from penstock.graph.model import Outcome, Workflow, edges_of
from penstock.graph.order import topological


@dataclass(frozen=True)
class Links:
    """One workflow's own. Exit handlers are in it too."""

    edges: Mapping[str, Mapping[str, frozenset[Outcome]]]
    """Step -> the steps it waits for, said or inferred, and the outcomes it goes on with."""

    @cached_property
    def before(self) -> dict[str, tuple[str, ...]]:
        """The same without outcomes, and without names that lead nowhere."""
        return {name: tuple(up for up in ups if up in self.edges) for name, ups in self.edges.items()}

    @cached_property
    def order(self) -> list[str]:
        """Topological. Raises NotOrdered."""
        return topological(self.before)


def links_of(workflow: Workflow) -> dict[str, Links]:
    """For the root ("") and for each definition by its name."""
    every = [("", workflow), *((definition.name, definition) for definition in workflow.definitions)]
    return {key: Links({step.name: edges_of(step) for step in (*one.steps, *one.on_exit)}) for key, one in every}
