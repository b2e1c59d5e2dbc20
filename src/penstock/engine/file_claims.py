"""Files that function tasks returned, so that two tasks that wrote the same file at the same time are found. Called by Dispatcher. Pure.

Functions start in the folder that the run was started in. If two of them write `out.gz` there at the same time and return it, each may be
given the other's content, and nothing in the file tells whose it is. The one that ends first cannot know; when the second one ends,
neither result can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.backends.base import TakenFiles
from penstock.engine.steps import Task, WorkflowScope

if TYPE_CHECKING:
    from penstock.engine.active_run import ActiveRun

_MANY: Final = 1_000
"""So many are kept before it is looked which are still needed."""


class FileClaim(NamedTuple):
    """A task that has returned files, with the workflows that call it: their results hold its result."""

    run: ActiveRun
    task: str
    results: tuple[tuple[str, str], ...]
    """(task, key) of it and of those calls."""
    began: float
    ended: float


class FileClaims:
    def __init__(self) -> None:
        self._claims: dict[str, list[FileClaim]] = {}
        self._count = 0
        self._enough = _MANY

    def clear(self) -> None:
        """Nothing runs: what starts from now on overlaps with nobody."""
        if self._count:
            self._claims.clear()
            self._count = 0

    def add(
        self, run: ActiveRun, task: Task, taken: TakenFiles, oldest: Callable[[], float]
    ) -> tuple[str, list[FileClaim]]:
        """Returns a file that others returned too, and those who ran at the same time as this one. `oldest`: since when whatever runs
        now has run."""
        own = FileClaim(run, task.path, _results(task), taken.began, taken.ended)
        if self._count >= self._enough:
            self._forget(min(own.began, oldest()))
        clash, others = "", []
        for path in taken.paths:
            known = self._claims.setdefault(path, [])
            overlapping = [one for one in known if one.began < own.ended and own.began < one.ended]
            if overlapping:
                clash = clash or path
                others += [one for one in overlapping if one not in others]
            known.append(own)
            self._count += 1
        return clash, others

    def _forget(self, oldest: float) -> None:
        """Those that overlap with nothing that runs."""
        left = {path: [one for one in claims if one.ended > oldest] for path, claims in self._claims.items()}
        self._claims = {path: claims for path, claims in left.items() if claims}
        self._count = sum(map(len, self._claims.values()))
        self._enough = max(_MANY, 2 * self._count)


def _results(task: Task) -> tuple[tuple[str, str], ...]:
    found = [(task.path, task.key)]
    scope: WorkflowScope = task.state.scope
    while scope.owner is not None:
        found.append((scope.owner.path, scope.owner.key))
        scope = scope.owner.state.scope
    return tuple(found)
