"""Topological order that does not depend on hash seeds. Called by graph.check, plan and drawing.

graphlib's sorter is close, but its order within a level follows set iteration; plans must be the same in every process.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


class NotOrdered(ValueError):
    """There is a cycle. `names`: its members in order."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(" → ".join(names))
        self.names = names


def topological(waits_for: Mapping[str, Collection[str]]) -> list[str]:
    """The names, each after everything it waits for. Ties keep the order given. Raises NotOrdered."""
    missing = {name: len(set(ups)) for name, ups in waits_for.items()}
    behind: dict[str, list[str]] = {name: [] for name in waits_for}
    for name, ups in waits_for.items():
        for up in set(ups):
            behind[up].append(name)
    position = {name: i for i, name in enumerate(waits_for)}
    ready = [name for name, count in missing.items() if not count]
    done: list[str] = []
    while ready:
        following = []
        for name in ready:
            done.append(name)
            for other in behind[name]:
                missing[other] -= 1
                if not missing[other]:
                    following.append(other)
        ready = sorted(following, key=position.__getitem__)
    if len(done) < len(missing):
        raise NotOrdered(_cycle(waits_for, {name for name, count in missing.items() if count}))
    return done


def _cycle(waits_for: Mapping[str, Collection[str]], stuck: set[str]) -> list[str]:
    start = next(name for name in waits_for if name in stuck)
    path: list[str] = []
    seen: dict[str, int] = {}
    while start not in seen:
        seen[start] = len(path)
        path.append(start)
        start = min(up for up in waits_for[start] if up in stuck)
    cycle = path[seen[start] :]
    cycle.reverse()
    turn = cycle.index(min(cycle))
    return cycle[turn:] + cycle[:turn]
