"""`A >> [B1, B2] >> C`: workflows that are run one after another. Called by authors; `>>` of a workflow makes a Chain.

A Chain is the first workflow with links: what it becomes is one document, which everything that takes a workflow takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from penstock.author.errors import author_error
from penstock.author.jobs import Authored
from penstock.author.links import Link, defining
from penstock.graph import model
from penstock.graph.chains import name_of

_FIX = "write A >> B, or A >> [B1, B2] >> C, with workflows, Links and, in a list, chains"


class Chain(Authored):
    """Workflows that are run one after another: each begins when those before it have ended. Branches are a list; what comes after a list
    waits for all of them. `chain.run(…)` gives its parameters to the first."""

    def __init__(self, *parts: Any) -> None:
        """`parts`: workflows, Links, lists of branches, chains."""
        self.parts: tuple[Any, ...] = tuple(_part(one, place) for place, one in enumerate(_flat(parts)))
        if not self.parts:
            raise author_error("P542", "a chain has at least one workflow", _FIX)

    def __rshift__(self, other: Any) -> Chain:
        return Chain(self, other)

    def __rrshift__(self, other: Any) -> Chain:
        return Chain(other, self)

    @property
    def name(self) -> str:  # type: ignore[override]
        found: str = self.first.name
        return found

    @property
    def first(self) -> Authored:
        head = self.parts[0]
        if not isinstance(head, Link) or isinstance(head.workflow, str):
            raise author_error(
                "P542", "a chain begins with one workflow", f"{_FIX}; begin with one that starts the others"
            )
        found: Authored = head.workflow
        return found

    @property
    def graph(self) -> model.Workflow:
        head = self.first.graph
        made = _Places(head)
        made.series(self.parts[1:], ())
        chained = dataclasses.replace(head, links=(*head.links, *made.links))
        return defining(chained, made.graphs)

    @property
    def signature(self) -> Any:
        return self.first.signature

    def run(self, *args: Any, **params: Any) -> Any:
        """Run it on this machine, until all of it has ended: `LocalRunner().run(self, …)`. Returns its Lineage."""
        return self.run_locally(*args, **params)

    def __repr__(self) -> str:
        return f"<Chain {' >> '.join(map(_shown, self.parts))}>"


class _Places:
    """Gives each part its place: the links, and the workflows that they run."""

    def __init__(self, head: model.Workflow) -> None:
        self.links: list[model.Link] = []
        self.graphs: list[model.Workflow] = []
        self._head = head.name
        self._used = {name_of(link) for link in head.links}

    def series(self, parts: Sequence[Any], after: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the names of its last links."""
        for part in parts:
            after = self._one(part, after) if isinstance(part, Link) else self._branches(part, after)
        return after

    def _branches(self, branches: Sequence[Chain], after: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for branch in branches for name in self.series(branch.parts, after))

    def _one(self, link: Link, after: tuple[str, ...]) -> tuple[str, ...]:
        target = link.workflow if isinstance(link.workflow, str) else link.workflow.name
        if target == self._head:
            raise author_error(
                "P542",
                f"the chain leads back to its first workflow, {target!r}",
                "it would never end; a workflow that is to be run again has a link to itself: links=[Link(…)]",
            )
        name, number = link.name or target, 1
        while name in self._used:
            number += 1
            name = f"{link.name or target}-{number}"
        self._used.add(name)
        self.links.append(link.as_link(name, after))
        if link.graph is not None:
            self.graphs.append(link.graph)
        return (name,)


def _flat(parts: Sequence[Any]) -> list[Any]:
    return [one for part in parts for one in (part.parts if isinstance(part, Chain) else (part,))]


def _part(one: Any, place: int) -> Any:
    """A Link, or a tuple of chains."""
    if isinstance(one, Link):
        return one
    if isinstance(one, Authored):
        return Link(one)
    if isinstance(one, list | tuple) and one and place:
        return tuple(branch if isinstance(branch, Chain) else Chain(branch) for branch in one)
    what = "an empty list" if isinstance(one, list | tuple) and not one else repr(one)
    said = (
        "a chain begins with one workflow" if isinstance(one, list | tuple) and one else f"{what} is no part of a chain"
    )
    raise author_error("P542", said, _FIX)


def _shown(part: Any) -> str:
    if isinstance(part, Link):
        return part.workflow if isinstance(part.workflow, str) else part.workflow.name
    return f"[{', '.join(' >> '.join(map(_shown, branch.parts)) for branch in part)}]"
