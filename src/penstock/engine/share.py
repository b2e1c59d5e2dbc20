"""One execution for all who need the same key at the same time. Called by loop.

Inside one engine a key that is being computed is a Flight with subscribers. Between engines the store's leases decide; who
finds a key leased to another engine waits for it (Distant) and is told the result or the failure through the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.engine.live import Live
from penstock.engine.steps import Task

Who = tuple[Live, Task]


@dataclass(slots=True)
class Flight:
    """A key that this engine is computing."""

    key: str
    owner: Who
    subscribers: list[Who] = field(default_factory=list)


class Shares:
    def __init__(self) -> None:
        self.flights: dict[str, Flight] = {}
        self.distant: dict[str, list[Who]] = {}
        """Keys that other engines compute, and who of ours waits for them."""

    def join(self, key: str, who: Who) -> Flight | None:
        """Subscribe to a flight, if there is one."""
        flight = self.flights.get(key)
        if flight is not None:
            flight.subscribers.append(who)
        return flight

    def take_off(self, key: str, who: Who) -> None:
        self.flights[key] = Flight(key, who)

    def land(self, key: str) -> list[Who]:
        """The flight is over: those who waited for it."""
        flight = self.flights.pop(key, None)
        return [] if flight is None else flight.subscribers

    def leave(self, who: Who) -> Flight | None:
        """Somebody no longer wants the key. The flight, if it goes on under another owner."""
        task = who[1]
        flight = self.flights.get(task.key)
        if flight is None:
            return None
        flight.subscribers = [one for one in flight.subscribers if one[1] is not task]
        if flight.owner[1] is not task:
            return None
        if not flight.subscribers:
            del self.flights[task.key]
            return None
        flight.owner = flight.subscribers.pop(0)
        return flight

    def leave_distant(self, who: Who) -> bool:
        waiting = self.distant.get(who[1].key)
        if waiting is None:
            return False
        left = [one for one in waiting if one[1] is not who[1]]
        if len(left) == len(waiting):
            return False
        if left:
            self.distant[who[1].key] = left
        else:
            del self.distant[who[1].key]
        return True


def origin(run: str, task: str) -> dict[str, Any]:
    """Where a result came from, as it is recorded."""
    return {"run": run, "task": task}
