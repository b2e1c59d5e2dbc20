"""How long the testbed takes to start once it is built; nothing where it is not (`make testbed-build`). Called by __main__."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measure import Figure, best
from testbed import binaries
from testbed.components import NAMES, programs
from testbed.instance import Testbed

# The real node is measured by its own tests: it needs root.
EVERYTHING = tuple(name for name in NAMES if name != "node")


def figures() -> Iterator[Figure]:
    bare = None
    for what, names, bar in (
        ("control plane alone", (), None),
        ("with Kueue", ("kueue", "kwok"), 25),
        ("with everything", EVERYTHING, 45),
    ):
        if binaries.missing(programs(names)):
            continue
        seconds = best(lambda names=names: Testbed.start(*names).stop(), 2)  # type: ignore[misc]
        yield Figure(f"testbed: start and stop, {what}", seconds, bar, bare=bare, bare_name="control plane")
        bare = bare or seconds
