"""`Link`: how an author says that another workflow follows when one ends. Called by authors, jobs, flow and chains."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.author.errors import author_error
from penstock.author.values import to_condition, to_value
from penstock.graph import model
from penstock.graph.chains import TwoOfOneName, gathered
from penstock.graph.model import LINK_ON, Workflow


class Link:
    """A workflow that is run when another has ended: in a chain, `A >> Link(B, when="outputs.rows > 0")`, or in `links=[…]` of a workflow.

    `on`: the ends after which it runs, of succeeded, failed, cancelled and invalid. `params`: what it is given; other parameters are passed on
    by name. `when` and `params` read `outputs.NAME`, `params.NAME`, `run.id`, `run.state` and `run.error`. A text in place of the
    workflow names one that is defined already, such as the workflow itself. `after`: names of links of the same workflow; with several it waits for
    all of them. A chain says that by its form."""

    def __init__(
        self,
        workflow: Any,
        *,
        on: Sequence[str] | str = ("succeeded",),
        when: Any = None,
        params: Mapping[str, Any] | None = None,
        name: str = "",
        after: Sequence[str] = (),
    ) -> None:
        if not isinstance(workflow, str) and not hasattr(workflow, "graph"):
            raise author_error(
                "P542", f"{workflow!r} is not a workflow", "link a Workflow, a @workflow function or the name of one"
            )
        self.workflow = workflow
        self.on = (on,) if isinstance(on, str) else tuple(on)
        wrong = [word for word in self.on if word not in LINK_ON]
        if wrong:
            raise author_error("P543", f"{wrong[0]!r} is not how a run ends", f"use some of {', '.join(LINK_ON)}")
        self.when = None if when is None else to_condition(when)
        self.params = {key: to_value(value) for key, value in (params or {}).items()}
        self.name = name
        self.after = tuple(after)

    def __rshift__(self, other: Any) -> Any:
        return chain_of(self, other)

    def __rrshift__(self, other: Any) -> Any:
        return chain_of(other, self)

    @property
    def graph(self) -> Workflow | None:
        return None if isinstance(self.workflow, str) else self.workflow.graph

    def as_link(self, name: str = "", after: Sequence[str] = ()) -> model.Link:
        target = self.workflow if isinstance(self.workflow, str) else self.workflow.graph.name
        return model.Link(
            workflow=target,
            name="" if name == target else name,
            after=tuple(after),
            on=self.on,
            when=self.when,
            params=self.params,
        )


def chain_of(*parts: Any) -> Any:
    """A Chain. Looked up when it is needed: chains are made of what is above this module."""
    return importlib.import_module("penstock").Chain(*parts)


def with_links(graph: Workflow, links: Iterable[Any]) -> Workflow:
    """The workflow with these in its links, and what they run in its definitions. Raises AuthorError."""
    given = [one if isinstance(one, Link) else Link(one) for one in links]
    found = tuple(one.as_link(one.name, one.after) for one in given)
    return defining(dataclasses.replace(graph, links=(*graph.links, *found)), [one.graph for one in given])


def defining(graph: Workflow, others: Iterable[Workflow | None]) -> Workflow:
    """The workflow with these among its definitions. Raises AuthorError."""
    known = [one for one in others if one is not None]
    if not known:
        return graph
    try:
        return dataclasses.replace(graph, definitions=gathered((*graph.definitions, *known)))
    except TwoOfOneName as error:
        raise author_error(
            "P541",
            f"two different workflows of the chain are called {error.args[0]!r}",
            "give one of them another name: Workflow(name=…), @workflow(name=…)",
        ) from None
