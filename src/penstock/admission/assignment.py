"""What the flavor search returns: which flavor each resource of each pod set gets, in which mode, and why other flavors were rejected.
flavors makes it; preemption, cycle and explain read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from penstock.admission.model import Admission, FlavorResource, PodSetAssignment


class Mode(IntEnum):
    """How a flavor could be assigned, worst to best."""

    NO_FIT = 0
    """Not now, or never."""
    NO_CANDIDATES = 1
    """Only with preemption, and nothing may be preempted."""
    PREEMPT = 2
    """With preemption in its own queue, at least in part."""
    RECLAIM = 3
    """With preemption in other queues only."""
    FIT = 4


KINDS: Final = ("NoFit", "Preempt", "Preempt", "Preempt", "Fit")
"""By mode: Kueue's name of it outside the flavor search."""
ALL_TRIED: Final = -1
_SEVERITY: Final = ("", "WaitingForQuota", "ExceedsMaxQuota", "NoMatchingFlavor")


class FlavorChoice(NamedTuple):
    flavor: str
    mode: Mode
    tried: int = ALL_TRIED
    """The index, in its resource group, of the last flavor that was tried. ALL_TRIED: no flavor is left."""
    level: int = 0
    """The borrowing level (see `QuotaNode.level`)."""


class FlavorRejection(NamedTuple):
    """One reason why a flavor does not fit as it is."""

    podset: str
    flavor: str
    resource: str
    kind: str
    """notCovered: the queue has no quota for it · flavorMissing · notNominated: the search was limited to other flavors · taint ·
    affinity · invalidAffinity · exceedsMax: more than there can ever be · quota: more than is unused."""
    asked: int = 0
    """Including what earlier pod sets take of the same flavor and resource."""
    available: int = 0
    potential: int = 0
    detail: str = ""
    """For example the taint."""


class FlavorAttempt(NamedTuple):
    """A flavor that was tried, and the worst result of all its resources."""

    flavor: str
    mode: Mode
    level: int
    why: str = ""
    """NoMatchingFlavor, ExceedsMaxQuota, WaitingForQuota, or empty."""
    group: int = 0
    """The resource group. Its flavors are alternatives."""


@dataclass(frozen=True, slots=True)
class PodSetChoice:
    name: str
    count: int
    flavors: Mapping[str, FlavorChoice]
    """By resource. If it is empty and there are reasons, the pod set does not fit."""
    requests: Mapping[str, int]
    """Of all its pods, by resource."""
    reasons: tuple[FlavorRejection, ...] = ()
    attempts: tuple[FlavorAttempt, ...] = ()

    @property
    def mode(self) -> Mode:
        if not self.reasons:
            return Mode.FIT
        return min((choice.mode for choice in self.flavors.values()), default=Mode.NO_FIT)


class ScanProgress(NamedTuple):
    """Where the next search continues."""

    podsets: tuple[PodSetChoice, ...]
    generation: int
    """Of the ClusterQueue, when the search was made."""
    cycle: int
    """The number of the cycle that made the search."""
    shape: tuple[Any, ...]
    """The Workload as it was then."""

    @property
    def pending(self) -> bool:
        """Are there flavors that were not tried?"""
        return any(choice.tried != ALL_TRIED for podset in self.podsets for choice in podset.flavors.values())

    @property
    def tried(self) -> tuple[tuple[str, str, int], ...]:
        """(pod set, resource, index of the last flavor that was tried), sorted."""
        return tuple(
            sorted(
                (podset.name, resource, choice.tried)
                for podset in self.podsets
                for resource, choice in podset.flavors.items()
            )
        )

    def last_tried(self, podset: str, resource: str) -> int:
        """The index of the last flavor that was tried."""
        for found in self.podsets:
            if found.name == podset and resource in found.flavors:
                return found.flavors[resource].tried
        return ALL_TRIED


class Assignment(NamedTuple):
    podsets: tuple[PodSetChoice, ...]
    borrowing: int
    """The highest borrowing level of all choices."""
    usage: Mapping[FlavorResource, int]
    mode: Mode
    """The worst mode of all pod sets."""
    progress: ScanProgress | None = None

    @property
    def kind(self) -> str:
        return KINDS[self.mode]

    @property
    def no_fit(self) -> str:
        """Why it does not fit: NoMatchingFlavor, ExceedsMaxQuota or WaitingForQuota. The least severe reason of the flavors of a
        group counts, and the most severe one of all groups and pod sets."""
        if self.mode is not Mode.NO_FIT:
            return ""
        found = 0
        for podset in self.podsets:
            if podset.mode is not Mode.NO_FIT:
                continue
            least: dict[int, int] = {} if podset.attempts else {0: _SEVERITY.index("NoMatchingFlavor")}
            for attempt in podset.attempts:
                if attempt.mode is Mode.NO_FIT:
                    severity = _SEVERITY.index(attempt.why)
                    least[attempt.group] = min(severity, least.get(attempt.group, severity))
            found = max(found, *least.values(), 0)
        return _SEVERITY[found]

    def needs(self) -> frozenset[FlavorResource]:
        """What something has to be preempted for."""
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
        """By pod set, then by resource: to search again among these only."""
        return {
            podset.name: {resource: choice.flavor for resource, choice in podset.flavors.items()}
            for podset in self.podsets
        }
