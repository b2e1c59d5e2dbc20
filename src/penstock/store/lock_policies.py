"""Who gets a free lock first. Called by locks when a task asks.

A policy is a pure function from a request and its number to a rank. The lowest rank gets the lock first; requests of the same rank
go by the age of their run, then by their number. The rank is recorded with the request, so all engines of a store see the same order;
they should use the same policy.

The setting `lock_policy` chooses one. A policy of your own is a function in your package, named in its metadata:

    [project.entry-points."penstock.lock_policies"]
    shortest = "my_package:shortest"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.errors import Problem, StoreError, nearest
from penstock.store.records import LockRequest

LockPolicy = Callable[[LockRequest, int], int]
"""(request, its number, which counts up over the store) -> rank, a whole number of at most 63 bits."""


def by_priority(request: LockRequest, number: int) -> int:
    """The highest priority first."""
    return -request.priority


def first_come(request: LockRequest, number: int) -> int:
    """Whoever asked first, whatever its priority and however old its run is."""
    return number


POLICIES: Mapping[str, LockPolicy] = {"priority": by_priority, "first-come": first_come}
DEFAULT = "priority"


def find_policy(name: str) -> LockPolicy:
    """Raises StoreError if there is none of that name."""
    if name in POLICIES:
        return POLICIES[name]
    from importlib.metadata import entry_points  # takes long to read, and our own do not need it

    installed = {point.name: point for point in entry_points(group="penstock.lock_policies")}
    if name not in installed:
        known = sorted({*POLICIES, *installed})
        raise StoreError(
            Problem("P608", f"there is no lock policy {name!r}", f"known: {', '.join(known)}.{nearest(name, known)}")
        )
    found: LockPolicy = installed[name].load()
    return found
