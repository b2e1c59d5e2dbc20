"""What a chain that was run from Python gave: its runs, and the links that started none. Returned by `chain.run(…)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Self, TypeVar

from penstock.errors import NotFound, Problem, nearest
from penstock.runners.base import RunFailed
from penstock.service import stores
from penstock.service.run_records import find
from penstock.service.views.lineage import LineageNode, lineage
from penstock.settings import Settings

R = TypeVar("R")


class Lineage(Generic[R]):
    """The runs of a chain, the first one first. `lineage["publish"]` is the run of a link."""

    def __init__(self, settings: Settings, first: str, opened: Callable[[str], R]) -> None:
        self._settings = settings
        self._first = first
        self._opened = opened

    @property
    def root(self) -> R:
        """The first run."""
        return self._opened(self._first)

    def __iter__(self) -> Iterator[R]:
        return iter([self._opened(one.run) for one in self._nodes() if one.run])

    def __len__(self) -> int:
        return sum(bool(one.run) for one in self._nodes())

    def __getitem__(self, link: str) -> R:
        """The run that a link has started. Raises NotFound if it has started none."""
        nodes = [one for one in self._nodes() if (one.link or one.workflow) == link]
        ran = next((one for one in nodes if one.run), None)
        if ran is not None:
            return self._opened(ran.run)
        if nodes:
            raise NotFound(
                Problem("P547", f"{link} was not run: it is {nodes[0].state}", nodes[0].why or "wait for it")
            )
        known = [one.link or one.workflow for one in self._nodes()]
        fix = f"its links are {', '.join(dict.fromkeys(known))}.{nearest(link, known)}"
        raise NotFound(Problem("P547", f"the chain has no link {link!r}", fix))

    @property
    def links(self) -> list[dict[str, Any]]:
        """Each run and each link that started none: {run, workflow, state, link, parent, depth, why, error}."""
        found: list[dict[str, Any]] = self._tree().as_data()["links"]
        return found

    @property
    def ok(self) -> bool:
        """Has everything that was run succeeded? Links whose condition did not hold do not count."""
        return all(one.state in ("succeeded", "skipped") for one in self._nodes())

    def check(self) -> Self:
        """The lineage itself. Raises RunFailed if something failed, or was not run because of that."""
        bad = [one for one in self._nodes() if one.state not in ("succeeded", "skipped")]
        if bad:
            reasons = [f"{one.run or one.link} is {one.state}: {one.why or one.error}" for one in bad]
            raise RunFailed(self._first, "and what follows: not all of it succeeded", reasons)
        return self

    def __repr__(self) -> str:
        return f"<Lineage {' '.join(one.run or one.link + ':' + one.state for one in self._nodes())}>"

    def _nodes(self) -> list[LineageNode]:
        return [one for _, one in self._tree().walk()]

    def _tree(self) -> LineageNode:
        with stores.open_existing(self._settings) as store:
            return lineage(store, find(store, self._first))
