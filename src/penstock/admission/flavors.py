"""Which flavor each resource of a Workload gets: the search through the resource groups of a ClusterQueue. The scheduler has one
FlavorAssigner; cycle and explain ask it.

Pod sets are taken in their order (those of a group together), each on top of what the earlier ones take. The flavors of a resource
group are tried in the listed order. The first one that is good enough ends the search, else the best one is taken. The queue's
`fungibility` says what is good enough and what is best. Whether a flavor could be had by preemption, the Preemptor simulates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from penstock.admission.assignment import (
    ALL_TRIED,
    Assignment,
    FlavorAttempt,
    FlavorChoice,
    FlavorRejection,
    Mode,
    PodSetChoice,
    ScanProgress,
)
from penstock.admission.model import (
    PODS,
    UNLIMITED,
    Config,
    FlavorResource,
    Fungibility,
    PodSet,
    Policy,
    Preference,
    WhenCan,
    Workload,
)
from penstock.admission.order import effective_priority
from penstock.admission.placement import mismatch
from penstock.admission.quota import NO_QUOTA, FlavorGroup, QuotaNode
from penstock.admission.snapshot import Snapshot

T = TypeVar("T")
Simulate = Callable[[Workload, str, FlavorResource, int], tuple[Mode, int]]
"""`Preemptor.simulate`: whether this amount could be had by preemption, and the borrowing level then."""
Pinned = Mapping[str, Mapping[str, str]]
"""Pod set -> resource -> the only flavor to try."""


@dataclass(frozen=True, slots=True)
class PodSetResources:
    """What all pods of a pod set request together."""

    name: str
    count: int
    requests: Mapping[str, int]


# -- requests ---------------------------------------------------------------------------------------------------------


def pod_set_resources(
    workload: Workload, covers_pods: bool, config: Config | None = None
) -> tuple[PodSetResources, ...]:
    """Of each pod set, without the reclaimable pods. Cached in the Workload until that changes."""
    reclaimable = workload.reclaimable if config is None or config.gate("ReclaimablePods", True) else {}
    kept = workload.resources
    if kept is not None and kept[0] is workload.podsets and kept[1] == reclaimable and kept[2] is covers_pods:
        return kept[3]  # type: ignore[no-any-return]
    found = tuple(
        _resources(podset, max(0, podset.count - reclaimable.get(podset.name, 0)), covers_pods)
        for podset in workload.podsets
    )
    workload.resources = (workload.podsets, dict(reclaimable), covers_pods, found)
    return found


def _resources(podset: PodSet, count: int, covers_pods: bool) -> PodSetResources:
    asked = {resource: min(one * count, UNLIMITED) for resource, one in podset.requests.items()}
    if covers_pods:
        asked[PODS] = count
    return PodSetResources(podset.name, count, _in_hash_order(asked))


def _scaled(found: PodSetResources, count: int) -> PodSetResources:
    """A pod set whose pods are all reclaimable stays at 0."""
    if found.count in (0, count):
        return found
    return PodSetResources(
        found.name,
        count,
        {
            resource: count if resource == PODS else min(amount // found.count * count, UNLIMITED)
            for resource, amount in found.requests.items()
        },
    )


def _in_hash_order(requests: dict[str, int]) -> dict[str, int]:
    return requests if len(requests) < 2 else dict(sorted(requests.items(), key=_hash_of))


def _hash_of(item: tuple[str, int]) -> int:
    return _hash(item[0])


@lru_cache(maxsize=4096)
def _hash(resource: str) -> int:
    """FNV-1a. Kueue takes resources in this order. It decides where a search continues in a group of unlike pod sets."""
    found = 0xCBF29CE484222325
    for byte in resource.encode():
        found = (found ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return found


def _total(parts: list[PodSetResources]) -> Mapping[str, int]:
    if len(parts) == 1:
        return parts[0].requests
    asked: dict[str, int] = {}
    for part in parts:
        for resource, amount in part.requests.items():
            asked[resource] = min(asked.get(resource, 0) + amount, UNLIMITED)
    return _in_hash_order(asked)


# -- preference -------------------------------------------------------------------------------------------------------

ModeRank = tuple[int, int, int]
_WORST: ModeRank = (0, 0, 0)


def _rank(mode: Mode, level: int, preference: Preference | None) -> ModeRank:
    """Larger is better. What cannot be had in this cycle comes last, whatever the preference."""
    if mode is Mode.NO_FIT:
        return _WORST
    viable = 1 if mode is Mode.NO_CANDIDATES else 2
    return (viable, -level, mode) if preference is Preference.PREEMPTION else (viable, mode, -level)


def preferred(one: tuple[Mode, int], other: tuple[Mode, int], fungibility: Fungibility) -> bool:
    """Is one (mode, borrowing level) better than the other?"""
    return _rank(*one, fungibility.preference) > _rank(*other, fungibility.preference)


def stops(mode: Mode, level: int, fungibility: Fungibility) -> bool:
    """Is this good enough to end the search?"""
    if mode <= Mode.NO_CANDIDATES:
        return False
    if mode is not Mode.FIT and fungibility.preempt is WhenCan.NEXT:
        return False
    return level == 0 or fungibility.borrow is not WhenCan.NEXT


# -- the search -------------------------------------------------------------------------------------------------------


class FlavorAssigner:
    def __init__(self, snapshot: Snapshot, simulate: Simulate) -> None:
        self.snapshot = snapshot
        self.simulate = simulate
        self.cycle = 0
        """The number of the current scheduling cycle. Scan progress is valid for the next cycle."""
        config = snapshot.config
        self.fungible = config.gate("FlavorFungibility", True)
        self.ignores_undeclared = config.ignore_undeclared and config.gate("QuotaCheckStrategy", True)

    def assign(
        self, workload: Workload, queue: str, counts: Sequence[int] | None = None, only: Pinned | None = None
    ) -> Assignment:
        """The flavors for a Workload in the snapshot as it is. `counts`: as if the pod sets had this many pods. The pod sets of
        the result end with the first one that does not fit."""
        snapshot = self.snapshot
        node = snapshot.tree.queues[queue]
        parts = pod_set_resources(workload, PODS in node.groups, snapshot.config)
        if counts is not None:
            parts = tuple(_scaled(part, count) for part, count in zip(parts, counts, strict=True))
        search = _Search(self, workload, queue, node, only, self._progress(workload, queue))
        found: list[PodSetChoice] = []
        mode = Mode.FIT if parts else Mode.NO_FIT
        level = 0
        for indexes in _groups(workload.podsets):
            for podset in search.group(indexes, [parts[i] for i in indexes]):
                found.append(podset)
                mode = min(mode, podset.mode)
                for choice in podset.flavors.values():
                    level = max(level, choice.level)
            if search.failed:
                break
        podsets = tuple(found)
        generation = snapshot.generations.get(queue, 0)
        progress = ScanProgress(podsets, generation, self.cycle, _shape(workload, snapshot.config))
        return Assignment(podsets, level, search.used, mode, progress)

    def assign_anew(self, workload: Workload, queue: str, counts: Sequence[int] | None = None) -> Assignment:
        """As `assign`, but from the first flavor on, whatever earlier cycles have tried."""
        kept, workload.scan_progress = workload.scan_progress, None
        try:
            return self.assign(workload, queue, counts)
        finally:
            workload.scan_progress = kept

    def _progress(self, workload: Workload, queue: str) -> ScanProgress | None:
        """The progress of an earlier cycle. None if more may be available of the flavors that were tried."""
        progress = workload.scan_progress
        config = self.snapshot.config
        if not self.fungible or not isinstance(progress, ScanProgress):
            return None
        if config.gate("FlavorFungibilityPreserveScanProgress", True):
            if config.gate("SchedulingEquivalenceHashing", True) and progress.shape != _shape(workload, config):
                return None
            if self.cycle - progress.cycle <= 1:
                return progress
        return None if self.snapshot.generations.get(queue, 0) > progress.generation else progress


def _groups(podsets: tuple[PodSet, ...]) -> Sequence[Sequence[int]]:
    """Indexes of pod sets that get the same flavors, in the order of their first ones."""
    if len(podsets) == 1:
        return ((0,),)
    found: dict[int | str, list[int]] = {}
    for i, podset in enumerate(podsets):
        found.setdefault(i if podset.group is None else podset.group, []).append(i)
    return list(found.values())


def _shape(workload: Workload, config: Config) -> tuple[Any, ...]:
    """What scan progress is valid for. Cheap to make; it is compared only if there is progress."""
    reclaimable = workload.reclaimable
    return (workload.podsets, dict(reclaimable) if reclaimable else None, effective_priority(workload, config))


class _GroupResult(NamedTuple):
    """The result of one resource group."""

    choices: dict[str, FlavorChoice]
    rejections: list[FlavorRejection]
    """Empty if it fits."""
    attempts: list[FlavorAttempt]
    invalid: bool = False


class _Search:
    """One Workload in one ClusterQueue."""

    def __init__(
        self,
        assigner: FlavorAssigner,
        workload: Workload,
        queue: str,
        node: QuotaNode,
        only: Pinned | None,
        progress: ScanProgress | None,
    ) -> None:
        snapshot = assigner.snapshot
        self.assigner = assigner
        self.flavors = snapshot.flavors
        self.workload = workload
        self.queue = queue
        self.node = node
        self.only = only
        self.progress = progress
        found = snapshot.cluster_queues[queue]
        self.fungibility = found.fungibility
        self.fungible = assigner.fungible
        self.preempts_borrowing = found.preemption.borrow is not Policy.NEVER or (
            snapshot.config.fair_sharing and found.preemption.reclaim is not Policy.NEVER
        )
        self.used: dict[FlavorResource, int] = {}
        """By the pod sets so far."""
        self.failed = False

    def group(self, indexes: Sequence[int], parts: list[PodSetResources]) -> list[PodSetChoice]:
        """The pod sets of one group. Sets `failed` if they do not fit."""
        requests = _total(parts)
        flavors: dict[str, FlavorChoice] = {}
        rejections: list[FlavorRejection] = []
        attempts: list[FlavorAttempt] = []
        for resource, amount in requests.items():
            if resource in flavors:
                continue
            group = self.node.groups.get(resource)
            if group is None:
                if amount == 0 or self.assigner.ignores_undeclared:
                    continue
                flavors, rejections = {}, [FlavorRejection(parts[0].name, "", resource, "notCovered", amount)]
                self.failed = True
                break
            found = self._resource_group(indexes, requests, resource, group)
            attempts += found.attempts
            if found.invalid or not found.choices:
                uncovered = FlavorRejection(parts[0].name, "", resource, "notCovered", amount)
                flavors, rejections = {}, found.rejections or [uncovered]
                self.failed = True
                break
            flavors.update(found.choices)
            rejections += found.rejections
        reasons = tuple(rejections)
        tried = tuple(sorted(attempts)) if len(attempts) > 1 else tuple(attempts)
        return [self._choose(part, flavors, reasons, tried) for part in parts]

    def _choose(
        self,
        part: PodSetResources,
        flavors: dict[str, FlavorChoice],
        reasons: tuple[FlavorRejection, ...],
        attempts: tuple[FlavorAttempt, ...],
    ) -> PodSetChoice:
        own = {resource: flavors[resource] for resource in part.requests if resource in flavors}
        used = self.used
        for resource, choice in own.items():
            fr = FlavorResource(choice.flavor, resource)
            used[fr] = min(used.get(fr, 0) + part.requests[resource], UNLIMITED)
        return PodSetChoice(part.name, part.count, own, part.requests, reasons, attempts)

    def _resource_group(
        self, indexes: Sequence[int], requests: Mapping[str, int], resource: str, group: FlavorGroup
    ) -> _GroupResult:
        """Try the flavors of one resource group, for all resources of it that are requested."""
        asked = [item for item in requests.items() if item[0] in group.resources]
        podsets = [self.workload.podsets[i] for i in indexes]
        rejections: list[FlavorRejection] = []
        attempts: list[FlavorAttempt] = []
        best: dict[str, FlavorChoice] = {}
        best_mode, best_level = Mode.NO_FIT, 0
        index = -1
        for index in range(self._start(podsets[0].name, resource, len(group.flavors)), len(group.flavors)):
            flavor = group.flavors[index]
            if (rejected := self._mismatch(podsets, flavor, resource)) is not None:
                rejections.append(rejected)
                if rejected.kind != "notNominated":
                    attempts.append(FlavorAttempt(flavor, Mode.NO_FIT, 0, "NoMatchingFlavor", group.number))
                if rejected.kind == "invalidAffinity":
                    return _GroupResult({}, rejections, attempts, True)
                continue
            choices, mode, level, attempt = self._try(podsets[0].name, flavor, asked, group.number, rejections)
            attempts.append(attempt)
            if not self.fungible:
                if mode > best_mode:
                    best, best_mode = choices, mode
                if mode is Mode.FIT:
                    break
            elif stops(mode, level, self.fungibility):
                best = choices
                break
            elif preferred((mode, level), (best_mode, best_level), self.fungibility):
                best, best_mode, best_level = choices, mode, level
        tried = 0 if not self.fungible else ALL_TRIED if index == len(group.flavors) - 1 else index
        if tried != ALL_TRIED:
            best = {each: choice._replace(tried=tried) for each, choice in best.items()}
        # A flavor may rank as a fit with borrowing while it needs preemption without. It fits if every resource fits.
        if rejections and best and all(choice.mode is Mode.FIT for choice in best.values()):
            rejections = []
        return _GroupResult(best, rejections, attempts)

    def _start(self, podset: str, resource: str, flavors: int) -> int:
        if self.progress is None:
            return 0
        found = self.progress.last_tried(podset, resource) + 1
        return found if found < flavors else 0  # the queue had more flavors then

    def _mismatch(self, podsets: list[PodSet], flavor: str, resource: str) -> FlavorRejection | None:
        """Why these pods cannot use the flavor, however much is available."""
        if self.only is not None and all(self.only.get(each.name, {}).get(resource) != flavor for each in podsets):
            return FlavorRejection(podsets[0].name, flavor, resource, "notNominated")
        found = self.flavors.get(flavor)
        if found is None:
            return FlavorRejection(podsets[0].name, flavor, resource, "flavorMissing")
        for podset in podsets:
            if (problem := mismatch(podset, found)) is not None:
                return FlavorRejection(podset.name, flavor, resource, problem[0], detail=problem[1])
        return None

    def _try(
        self, podset: str, flavor: str, asked: list[tuple[str, int]], group: int, rejections: list[FlavorRejection]
    ) -> tuple[dict[str, FlavorChoice], Mode, int, FlavorAttempt]:
        """(choices, mode, borrowing level, attempt) of a flavor: the worst of all resources. If one resource does not fit at all,
        the flavor does not; so preemption, which is slow, is simulated only if there is none."""
        node = self.node
        choices: dict[str, FlavorChoice] = {}
        to_simulate: list[tuple[FlavorResource, int]] = []
        why = ""
        no_fit = False
        furthest = 0
        for resource, amount in asked:
            fr = FlavorResource(flavor, resource)
            if self.used:
                amount = min(self.used.get(fr, 0) + amount, UNLIMITED)
            potential, available = node.potential(fr), node.available(fr)
            if amount > potential:
                rejections.append(FlavorRejection(podset, flavor, resource, "exceedsMax", amount, available, potential))
                why, no_fit = "ExceedsMaxQuota", True
                continue
            level, below_root = node.level(fr, amount)
            if amount <= available:
                choices[resource] = FlavorChoice(flavor, Mode.FIT, ALL_TRIED, level)
            else:
                rejections.append(FlavorRejection(podset, flavor, resource, "quota", amount, available, potential))
                if below_root or self.preempts_borrowing or node.quotas.get(fr, NO_QUOTA).nominal >= amount:
                    to_simulate.append((fr, amount))
                    continue
                why, no_fit = why or "WaitingForQuota", True
            if level > furthest:
                furthest = level
        if no_fit:
            return {}, Mode.NO_FIT, 0, FlavorAttempt(flavor, Mode.NO_FIT, furthest, why, group)
        mode, level = Mode.FIT, furthest
        for fr, amount in to_simulate:
            found, far = self.assigner.simulate(self.workload, self.queue, fr, amount)
            choices[fr.resource] = FlavorChoice(flavor, found, ALL_TRIED, far)
            furthest = max(furthest, far)
            if preferred((mode, level), (found, far), self.fungibility):
                mode, level = found, far
        return choices, mode, level, FlavorAttempt(flavor, mode, furthest, "", group)


# -- partial admission ------------------------------------------------------------------------------------------------


def search_counts(podsets: Sequence[PodSet], attempt: Callable[[tuple[int, ...]], T | None]) -> T | None:
    """Partial admission: the result for the largest counts, between `count` and `min_count`, with which `attempt` succeeds. All
    pod sets shrink in proportion. A binary search: it assumes that fewer pods are never harder to place."""
    spare = [podset.count - (podset.count if podset.min_count is None else podset.min_count) for podset in podsets]
    steps = sum(spare)
    if steps == 0:
        return None
    low, high = 0, steps + 1
    found: T | None = None
    while low < high:
        middle = (low + high) // 2
        counts = tuple(podset.count - cut * middle // steps for podset, cut in zip(podsets, spare, strict=True))
        result = attempt(counts)
        if result is None:
            low = middle + 1
        else:
            found, high = result, middle
    return found
