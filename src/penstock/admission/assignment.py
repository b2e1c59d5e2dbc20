"""What the flavor search answers: which flavor each resource of each pod set gets, on what terms, and what was in the way of the
others. Made by flavors; read by preempt, cycle and explain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from penstock.admission.model import Admission, FlavorResource, PodSetAssignment


class Mode(IntEnum):
    """How a flavor could be had, worst to best."""

    NO_FIT = 0
    """Not now, or never."""
    NO_CANDIDATES = 1
    """If somebody were preempted; but there is nobody that may be."""
    PREEMPT = 2
    """By preempting in the own queue, at least in part."""
    RECLAIM = 3
    """By preempting in other queues only."""
    FIT = 4


KINDS: Final = ("NoFit", "Preempt", "Preempt", "Preempt", "Fit")
ALL_TRIED: Final = -1
_GRAVITY: Final = ("", "WaitingForQuota", "ExceedsMaxQuota", "NoMatchingFlavor")


class Choice(NamedTuple):
    flavor: str
    mode: Mode
    tried: int = ALL_TRIED
    """The index, in its group, of the last flavor looked at. ALL_TRIED: there are none after it."""
    level: int = 0
    """From how far away the quota is borrowed (see Node.level)."""


class Lack(NamedTuple):
    """One reason why a flavor cannot be had as it is."""

    podset: str
    flavor: str
    resource: str
    kind: str
    """notCovered: the queue has no quota for it · flavorMissing · notNominated: it was not the first choice · taint · affinity ·
    invalidAffinity · exceedsMax: more than there can ever be · quota: more than is unused."""
    asked: int = 0
    """With what pod sets before it take of the same."""
    available: int = 0
    potential: int = 0
    detail: str = ""
    """The taint, say."""


class Attempt(NamedTuple):
    """A flavor that was looked at, and the worst that was found."""

    flavor: str
    mode: Mode
    level: int
    why: str = ""
    """NoMatchingFlavor, ExceedsMaxQuota, WaitingForQuota, or nothing."""
    group: int = 0
    """The resource group, of which it is one alternative."""


@dataclass(frozen=True, slots=True)
class PodSetChoice:
    name: str
    count: int
    flavors: Mapping[str, Choice]
    """By resource. Empty with reasons: it does not fit."""
    requests: Mapping[str, int]
    """Of all its pods, by resource."""
    reasons: tuple[Lack, ...] = ()
    attempts: tuple[Attempt, ...] = ()

    @property
    def mode(self) -> Mode:
        if not self.reasons:
            return Mode.FIT
        return min((choice.mode for choice in self.flavors.values()), default=Mode.NO_FIT)


class Memory(NamedTuple):
    """Where the next search goes on."""

    tried: Mapping[str, Mapping[str, int]]
    """By pod set, then by resource."""
    generation: int
    cycle: int
    shape: tuple[Any, ...]

    @property
    def pending(self) -> bool:
        """Are there flavors that were not looked at?"""
        return any(index != ALL_TRIED for tried in self.tried.values() for index in tried.values())


class Assignment(NamedTuple):
    podsets: tuple[PodSetChoice, ...]
    borrowing: int
    """The largest level of all choices."""
    usage: Mapping[FlavorResource, int]
    mode: Mode
    """The worst of all pod sets."""
    memory: Memory | None = None

    @property
    def kind(self) -> str:
        return KINDS[self.mode]

    @property
    def no_fit(self) -> str:
        """If it does not fit, why: NoMatchingFlavor, ExceedsMaxQuota or WaitingForQuota. Of the flavors of a group the one
        that came nearest counts, of groups and pod sets the one that is furthest from it."""
        if self.mode is not Mode.NO_FIT:
            return ""
        found = 0
        for podset in self.podsets:
            if podset.mode is not Mode.NO_FIT:
                continue
            nearest: dict[int, int] = {} if podset.attempts else {0: _GRAVITY.index("NoMatchingFlavor")}
            for attempt in podset.attempts:
                if attempt.mode is Mode.NO_FIT:
                    grave = _GRAVITY.index(attempt.why)
                    nearest[attempt.group] = min(grave, nearest.get(attempt.group, grave))
            found = max(found, *nearest.values(), 0)
        return _GRAVITY[found]

    @property
    def pending_flavors(self) -> bool:
        return self.memory is not None and self.memory.pending

    def needs(self) -> frozenset[FlavorResource]:
        """What somebody has to be preempted for."""
        return frozenset(
            FlavorResource(choice.flavor, resource)
            for podset in self.podsets
            for resource, choice in podset.flavors.items()
            if Mode.NO_FIT < choice.mode < Mode.FIT
        )

    def admission(self, cluster_queue: str) -> Admission:
        return Admission(
            cluster_queue,
            tuple(
                PodSetAssignment(
                    podset.name,
                    podset.count,
                    {resource: choice.flavor for resource, choice in podset.flavors.items()},
                    {resource: podset.requests[resource] for resource in podset.flavors},
                )
                for podset in self.podsets
            ),
        )

    def flavors(self) -> dict[str, dict[str, str]]:
        """By pod set, then by resource: to search again among these alone."""
        return {
            podset.name: {resource: choice.flavor for resource, choice in podset.flavors.items()}
            for podset in self.podsets
        }
