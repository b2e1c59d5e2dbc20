"""Which flavor each resource of a Workload gets: the search through a ClusterQueue's resource groups. Called by cycle.

Pod sets are taken in their order (those of a group together), each on top of what the ones before it take. In a resource group
the flavors are tried as listed, and the first that is good enough ends the search, else the best of all is taken. What counts as
good enough or as best is the queue's `fungibility`; whether a flavor could be had by preemption is asked of preempt's oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from penstock.admission import preempt
from penstock.admission.assignment import ALL_TRIED, Assignment, Attempt, Choice, Lack, Memory, Mode, PodSetChoice
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
from penstock.admission.placement import obstacle
from penstock.admission.quota import NO_QUOTA, Group, Node
from penstock.admission.state import State

__all__ = ["ALL_TRIED", "Assignment", "Attempt", "Choice", "Lack", "Memory", "Mode", "PodSetChoice", "Total", "assign",
           "preferred", "search", "stops", "totals"]  # fmt: skip

T = TypeVar("T")
Oracle = Callable[[State, Workload, str, FlavorResource, int], tuple[Mode, int]]
"""How this much of it could be had by preemption, and from how far away it would be borrowed then."""
Pinned = Mapping[str, Mapping[str, str]]
"""Pod set -> resource -> the only flavor to look at."""


@dataclass(frozen=True, slots=True)
class Total:
    """What the pods of a pod set ask for together."""

    name: str
    count: int
    requests: Mapping[str, int]


# -- what is asked for ------------------------------------------------------------------------------------------------


def totals(workload: Workload, covers_pods: bool, config: Config | None = None) -> tuple[Total, ...]:
    """Of every pod set, without the pods that are not needed any more. Kept with the Workload as long as it stays the same."""
    reclaimable = workload.reclaimable if config is None or config.gate("ReclaimablePods", True) else {}
    kept = workload.sums
    if kept is not None and kept[0] is workload.podsets and kept[1] == reclaimable and kept[2] is covers_pods:
        return kept[3]  # type: ignore[no-any-return]
    found = tuple(
        _total(podset, max(0, podset.count - reclaimable.get(podset.name, 0)), covers_pods)
        for podset in workload.podsets
    )
    workload.sums = (workload.podsets, dict(reclaimable), covers_pods, found)
    return found


def _total(podset: PodSet, count: int, covers_pods: bool) -> Total:
    asked = {resource: min(one * count, UNLIMITED) for resource, one in podset.requests.items()}
    if covers_pods:
        asked[PODS] = count
    return Total(podset.name, count, _in_turn(asked))


def _resized(total: Total, count: int) -> Total:
    """Nothing is left to resize of a pod set that needs no more pods."""
    if total.count in (0, count):
        return total
    return Total(
        total.name,
        count,
        {
            resource: count if resource == PODS else min(amount // total.count * count, UNLIMITED)
            for resource, amount in total.requests.items()
        },
    )


def _in_turn(requests: dict[str, int]) -> dict[str, int]:
    return requests if len(requests) < 2 else dict(sorted(requests.items(), key=_turn))


def _turn(item: tuple[str, int]) -> int:
    return _hash(item[0])


@lru_cache(maxsize=4096)
def _hash(resource: str) -> int:
    """FNV-1a. Kueue takes resources in the order of this; it shows where a search goes on in a group of unlike pod sets."""
    found = 0xCBF29CE484222325
    for byte in resource.encode():
        found = (found ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return found


def _together(parts: list[Total]) -> Mapping[str, int]:
    if len(parts) == 1:
        return parts[0].requests
    asked: dict[str, int] = {}
    for part in parts:
        for resource, amount in part.requests.items():
            asked[resource] = min(asked.get(resource, 0) + amount, UNLIMITED)
    return _in_turn(asked)


# -- which of two is better -------------------------------------------------------------------------------------------

Rank = tuple[int, int, int]
_WORST: Rank = (0, 0, 0)


def _rank(mode: Mode, level: int, preference: Preference | None) -> Rank:
    """Larger is better. What cannot be had in this cycle comes last, whatever the preference."""
    if mode is Mode.NO_FIT:
        return _WORST
    viable = 1 if mode is Mode.NO_CANDIDATES else 2
    return (viable, -level, mode) if preference is Preference.PREEMPTION else (viable, mode, -level)


def preferred(one: tuple[Mode, int], other: tuple[Mode, int], fungibility: Fungibility) -> bool:
    """Is one (mode, level) better than the other?"""
    return _rank(*one, fungibility.preference) > _rank(*other, fungibility.preference)


def stops(mode: Mode, level: int, fungibility: Fungibility) -> bool:
    """Is this good enough to look no further?"""
    if mode <= Mode.NO_CANDIDATES:
        return False
    if mode is not Mode.FIT and fungibility.preempt is WhenCan.NEXT:
        return False
    return level == 0 or fungibility.borrow is not WhenCan.NEXT


# -- the search -------------------------------------------------------------------------------------------------------


def assign(
    state: State,
    workload: Workload,
    queue: str,
    counts: Sequence[int] | None = None,
    oracle: Oracle | None = None,
    only: Pinned | None = None,
) -> Assignment:
    """Against the state as it is. `counts`: as if the pod sets had this many pods. The pod sets of the answer end with the
    first that does not fit."""
    node = state.tree.queues[queue]
    parts = totals(workload, PODS in node.groups, state.config)
    if counts is not None:
        parts = tuple(_resized(part, count) for part, count in zip(parts, counts, strict=True))
    ask = _Search(state, workload, queue, node, oracle or preempt.oracle, only)
    found: list[PodSetChoice] = []
    mode = Mode.FIT if parts else Mode.NO_FIT
    level = 0
    for ids in _groups(workload.podsets):
        for podset in ask.group(ids, [parts[i] for i in ids]):
            found.append(podset)
            mode = min(mode, podset.mode)
            for choice in podset.flavors.values():
                level = max(level, choice.level)
        if ask.failed:
            break
    memory = Memory(
        {podset.name: {resource: choice.tried for resource, choice in podset.flavors.items()} for podset in found},
        state.generations.get(queue, 0),
        state.cycle,
        _shape(workload, state.config),
    )
    return Assignment(tuple(found), level, ask.used, mode, memory)


def _groups(podsets: tuple[PodSet, ...]) -> Sequence[Sequence[int]]:
    """Indexes of pod sets that get the same flavors, in the order of their first ones."""
    if len(podsets) == 1:
        return ((0,),)
    found: dict[Any, list[int]] = {}
    for i, podset in enumerate(podsets):
        found.setdefault(i if podset.group is None else podset.group, []).append(i)
    return list(found.values())


def _shape(workload: Workload, config: Config) -> tuple[Any, ...]:
    """What the memory of a search is good for. Cheap to make; compared only where there is a memory."""
    reclaimable = workload.reclaimable
    return (workload.podsets, dict(reclaimable) if reclaimable else None, effective_priority(workload, config))


def _recalled(state: State, workload: Workload, queue: str) -> Memory | None:
    """What an earlier cycle left, unless it is out of date: since then there may be more to have of the flavors before."""
    memory = workload.memory
    config = state.config
    if not isinstance(memory, Memory) or not config.gate("FlavorFungibility", True):
        return None
    if config.gate("FlavorFungibilityPreserveScanProgress", True):
        if config.gate("SchedulingEquivalenceHashing", True) and memory.shape != _shape(workload, config):
            return None
        if state.cycle - memory.cycle <= 1:
            return memory
    return None if state.generations.get(queue, 0) > memory.generation else memory


class _Scan(NamedTuple):
    """What one resource group came to."""

    choices: dict[str, Choice]
    lacks: list[Lack]
    """None if it fits."""
    attempts: list[Attempt]
    broken: bool = False


class _Search:
    """One Workload against one queue."""

    def __init__(
        self, state: State, workload: Workload, queue: str, node: Node, oracle: Oracle, only: Pinned | None
    ) -> None:
        self.state = state
        self.workload = workload
        self.queue = queue
        self.node = node
        self.oracle = oracle
        self.only = only
        self.memory = _recalled(state, workload, queue)
        found = state.cluster_queues[queue]
        self.fungibility = found.fungibility
        self.fungible = state.config.gate("FlavorFungibility", True)
        self.preempts_borrowing = found.preemption.borrow is not Policy.NEVER or (
            state.config.fair_sharing and found.preemption.reclaim is not Policy.NEVER
        )
        self.ignores = state.config.ignore_undeclared and state.config.gate("QuotaCheckStrategy", True)
        self.used: dict[FlavorResource, int] = {}
        """By the pod sets so far."""
        self.failed = False

    def group(self, ids: Sequence[int], parts: list[Total]) -> list[PodSetChoice]:
        """The pod sets of one group, and whether the search has `failed` with them."""
        requests = _together(parts)
        flavors: dict[str, Choice] = {}
        lacks: list[Lack] = []
        attempts: list[Attempt] = []
        for resource, amount in requests.items():
            if resource in flavors:
                continue
            group = self.node.groups.get(resource)
            if group is None:
                if amount == 0 or self.ignores:
                    continue
                flavors, lacks = {}, [Lack(parts[0].name, "", resource, "notCovered", amount)]
                self.failed = True
                break
            scan = self.scan(ids, requests, resource, group)
            attempts += scan.attempts
            if scan.broken or not scan.choices:
                flavors, lacks = {}, scan.lacks or [Lack(parts[0].name, "", resource, "notCovered", amount)]
                self.failed = True
                break
            flavors.update(scan.choices)
            lacks += scan.lacks
        reasons = tuple(lacks)
        tried = tuple(sorted(attempts)) if len(attempts) > 1 else tuple(attempts)
        return [self.chosen(part, flavors, reasons, tried) for part in parts]

    def chosen(
        self, part: Total, flavors: dict[str, Choice], reasons: tuple[Lack, ...], attempts: tuple[Attempt, ...]
    ) -> PodSetChoice:
        own = {resource: flavors[resource] for resource in part.requests if resource in flavors}
        used = self.used
        for resource, choice in own.items():
            fr = FlavorResource(choice.flavor, resource)
            used[fr] = min(used.get(fr, 0) + part.requests[resource], UNLIMITED)
        return PodSetChoice(part.name, part.count, own, part.requests, reasons, attempts)

    def scan(self, ids: Sequence[int], requests: Mapping[str, int], resource: str, group: Group) -> _Scan:
        """The flavors of one resource group, for everything that is asked of it."""
        asked = [item for item in requests.items() if item[0] in group.resources]
        podsets = [self.workload.podsets[i] for i in ids]
        lacks: list[Lack] = []
        attempts: list[Attempt] = []
        best: dict[str, Choice] = {}
        best_mode, best_level = Mode.NO_FIT, 0
        index = -1
        for index in range(self.start(podsets[0].name, resource, len(group.flavors)), len(group.flavors)):
            flavor = group.flavors[index]
            if (lack := self.unfit(podsets, flavor, resource)) is not None:
                lacks.append(lack)
                if lack.kind != "notNominated":
                    attempts.append(Attempt(flavor, Mode.NO_FIT, 0, "NoMatchingFlavor", group.number))
                if lack.kind == "invalidAffinity":
                    return _Scan({}, lacks, attempts, True)
                continue
            choices, mode, level, attempt = self.terms(podsets[0].name, flavor, asked, group.number, lacks)
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
        # A flavor may rank as fitting from far away while it takes preemption nearby; it fits if everything does.
        if lacks and best and all(choice.mode is Mode.FIT for choice in best.values()):
            lacks = []
        return _Scan(best, lacks, attempts)

    def start(self, podset: str, resource: str, flavors: int) -> int:
        if self.memory is None:
            return 0
        found = self.memory.tried.get(podset, {}).get(resource, ALL_TRIED) + 1
        return found if found < flavors else 0  # there were more of them, then

    def unfit(self, podsets: list[PodSet], flavor: str, resource: str) -> Lack | None:
        """Why these pods cannot stand on that flavor, however much there is of it."""
        if self.only is not None and all(self.only.get(each.name, {}).get(resource) != flavor for each in podsets):
            return Lack(podsets[0].name, flavor, resource, "notNominated")
        found = self.state.flavors.get(flavor)
        if found is None:
            return Lack(podsets[0].name, flavor, resource, "flavorMissing")
        for podset in podsets:
            if (problem := obstacle(podset, found)) is not None:
                return Lack(podset.name, flavor, resource, problem[0], detail=problem[1])
        return None

    def terms(
        self, podset: str, flavor: str, asked: list[tuple[str, int]], group: int, lacks: list[Lack]
    ) -> tuple[dict[str, Choice], Mode, int, Attempt]:
        """On what terms the flavor gives all that is asked: the worst of all resources. One that cannot be had at all
        decides it, so the oracle, who is slow, is asked only when there is none."""
        node = self.node
        choices: dict[str, Choice] = {}
        open_questions: list[tuple[FlavorResource, int]] = []
        why = ""
        hopeless = False
        furthest = 0
        for resource, amount in asked:
            fr = FlavorResource(flavor, resource)
            if self.used:
                amount = min(self.used.get(fr, 0) + amount, UNLIMITED)
            potential, available = node.potential(fr), node.available(fr)
            if amount > potential:
                lacks.append(Lack(podset, flavor, resource, "exceedsMax", amount, available, potential))
                why, hopeless = "ExceedsMaxQuota", True
                continue
            level, nearer = node.level(fr, amount)
            if amount <= available:
                choices[resource] = Choice(flavor, Mode.FIT, ALL_TRIED, level)
            else:
                lacks.append(Lack(podset, flavor, resource, "quota", amount, available, potential))
                if nearer or self.preempts_borrowing or node.quotas.get(fr, NO_QUOTA).nominal >= amount:
                    open_questions.append((fr, amount))
                    continue
                why, hopeless = why or "WaitingForQuota", True
            if level > furthest:
                furthest = level
        if hopeless:
            return {}, Mode.NO_FIT, 0, Attempt(flavor, Mode.NO_FIT, furthest, why, group)
        mode, level = Mode.FIT, furthest
        for fr, amount in open_questions:
            found, far = self.oracle(self.state, self.workload, self.queue, fr, amount)
            choices[fr.resource] = Choice(flavor, found, ALL_TRIED, far)
            furthest = max(furthest, far)
            if preferred((mode, level), (found, far), self.fungibility):
                mode, level = found, far
        return choices, mode, level, Attempt(flavor, mode, furthest, "", group)


# -- fewer pods -------------------------------------------------------------------------------------------------------


def search(podsets: Sequence[PodSet], attempt: Callable[[tuple[int, ...]], T | None]) -> T | None:
    """Partial admission: the largest counts, between `count` and `min_count`, with which `attempt` succeeds. All pod sets shrink
    in step. By halving, so it takes for granted that fewer pods are never harder to place."""
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
