"""What a queue configuration of YuniKorn says. Amounts are in thousandths of a unit, by the names of Kubernetes (`vcore` is cpu)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

ROOT = "root"
Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Limit:
    """What a user or a group may use of one queue, and of all below it."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: Amounts = field(default_factory=dict)
    applications: int = 0
    """0: no limit."""
    text: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Queue:
    name: str
    """In lower case."""
    guaranteed: Amounts = field(default_factory=dict)
    most: Amounts = field(default_factory=dict)
    """`max`; what is not in it is unlimited."""
    is_parent: bool = False
    applications: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    submit: str | None = None
    """The submit ACL; None: it has none."""
    admin: str | None = None
    limits: tuple[Limit, ...] = ()
    queues: tuple[Queue, ...] = ()
    template: bool = False
    """It has a template for children that are made by placement rules."""
    path: str = ""
    """In the document."""

    @property
    def parent(self) -> bool:
        return self.is_parent or bool(self.queues)

    def walk(self, above: tuple[Queue, ...] = ()) -> Iterator[tuple[Queue, ...]]:
        """Each queue with those above it, root first."""
        here = (*above, self)
        yield here
        for one in self.queues:
            yield from one.walk(here)

    def find(self, path: str) -> tuple[Queue, ...]:
        """The queue of this full path, with those above it; empty if there is none."""
        wanted = path.lower()
        return next((line for line in self.walk() if full_name(line) == wanted), ())


def full_name(line: tuple[Queue, ...]) -> str:
    return ".".join(one.name for one in line)


@dataclass(frozen=True, slots=True)
class Partition:
    name: str
    root: Queue
    rules: tuple[Mapping[str, Any], ...] = ()
    preemption: bool = True
    resolver: str = ""
    """How groups of a user are found: `os`, `ldap`; empty: a group of the user's own name."""
    others: tuple[str, ...] = ()
    """Fields that nothing here depends on."""
