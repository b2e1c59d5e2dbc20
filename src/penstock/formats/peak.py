"""The most that a graph of weighted tasks can hold at one moment. Called for the whole-workflow demand of Argo and Tekton documents.

The weight of the heaviest set of which no two are ordered is what is left of the whole when as much as possible of it is handed on
along the edges (Dilworth's theorem): a maximum flow, here by Dinic's method. A document has hundreds of tasks, not millions; the
planner, which must take those, has a quicker way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.formats.documents import Document


@dataclass(frozen=True, slots=True)
class Open:
    """A place where the demand has no bound."""

    path: str
    document: Document = field(repr=False)
    message: str
    fix: str = ""
    """What would help besides a declaration."""


def heaviest(weights: Sequence[int], edges: Iterable[tuple[int, int]]) -> int:
    """The edges say which ends before which begins, and need not be all: what follows from them is found."""
    size = len(weights)
    flow = _Flow(2 * size + 2)
    source, sink = 2 * size, 2 * size + 1
    total = sum(weights)
    for node, weight in enumerate(weights):
        flow.edge(source, node, weight)
        flow.edge(size + node, sink, weight)
        flow.edge(size + node, node, total)
    for first, then in edges:
        flow.edge(first, size + then, total)
    return total - flow.maximum(source, sink)


def peaks(demands: Sequence[Mapping[str, int]], edges: Sequence[tuple[int, int]]) -> dict[str, int]:
    """For each resource by itself."""
    found = {}
    for resource in sorted({name for demand in demands for name in demand}):
        weights = [demand.get(resource, 0) for demand in demands]
        found[resource] = heaviest(weights, edges) if edges else sum(weights)
    return {name: amount for name, amount in found.items() if amount}


class _Flow:
    def __init__(self, size: int) -> None:
        self.out: list[list[int]] = [[] for _ in range(size)]
        self.to: list[int] = []
        self.room: list[int] = []
        """Edge 2k and its way back 2k + 1."""

    def edge(self, first: int, then: int, room: int) -> None:
        if room > 0:
            self.out[first].append(len(self.to))
            self.out[then].append(len(self.to) + 1)
            self.to += [then, first]
            self.room += [room, 0]

    def maximum(self, source: int, sink: int) -> int:
        total = 0
        while (level := self._levels(source, sink)) is not None:
            turns = [0] * len(self.out)
            while pushed := self._push(source, sink, level, turns):
                total += pushed
        return total

    def _levels(self, source: int, sink: int) -> list[int] | None:
        level = [-1] * len(self.out)
        level[source] = 0
        waiting = [source]
        for node in waiting:
            for edge in self.out[node]:
                if self.room[edge] and level[self.to[edge]] < 0:
                    level[self.to[edge]] = level[node] + 1
                    waiting.append(self.to[edge])
        return level if level[sink] >= 0 else None

    def _push(self, source: int, sink: int, level: list[int], turns: list[int]) -> int:
        """Along one path, found without recursion; where it ends in nothing it goes back one node and takes the next turn."""
        path: list[int] = []
        node = source
        while node != sink:
            while turns[node] < len(self.out[node]):
                edge = self.out[node][turns[node]]
                if self.room[edge] and level[self.to[edge]] == level[node] + 1:
                    break
                turns[node] += 1
            else:
                if not path:
                    return 0
                node = self.to[path.pop() ^ 1]
                turns[node] += 1
                continue
            path.append(edge)
            node = self.to[edge]
        least = min(self.room[edge] for edge in path)
        for edge in path:
            self.room[edge] -= least
            self.room[edge ^ 1] += least
        return least
