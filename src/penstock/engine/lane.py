"""What waits to start in one place, in the order in which it is to start. ReadyQueue has one for each backend, and one for what is held back.

Entries are steps and tasks. They come in the order of their places, whenever they were added: a step whose quota was admitted a moment later
still starts where it was written. Adding and taking are logarithmic, since a run may have a hundred thousand steps.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from penstock.engine.steps import StepState, Task

Entry = StepState | Task


class Lane:
    __slots__ = ("_added", "_ahead", "_heap")

    def __init__(self) -> None:
        self._ahead: deque[Entry] = deque()
        """What starts before all others: retries, and further rounds."""
        self._heap: list[tuple[tuple[int, ...], int, int, Entry]] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self._ahead) + len(self._heap)

    def __bool__(self) -> bool:
        return bool(self._heap or self._ahead)

    @property
    def head(self) -> Entry:
        return self._ahead[0] if self._ahead else self._heap[0][3]

    def pop(self) -> Entry:
        return self._ahead.popleft() if self._ahead else heappop(self._heap)[3]

    def add(self, one: Entry) -> None:
        """At its place. Tasks that are made already come before those that their step has still to make."""
        self._added += 1
        if isinstance(one, Task):
            heappush(self._heap, (one.state.place, 0, self._added, one))
        else:
            heappush(self._heap, (one.place, 1, self._added, one))

    def put_ahead(self, one: Entry) -> None:
        self._ahead.appendleft(one)

    def remove(self, one: Entry) -> bool:
        """False: it was not here."""
        if one in self._ahead:
            self._ahead.remove(one)
            return True
        kept = [entry for entry in self._heap if entry[3] is not one]
        found = len(kept) < len(self._heap)
        if found:
            heapify(kept)
            self._heap = kept
        return found
