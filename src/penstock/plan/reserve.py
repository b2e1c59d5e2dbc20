"""Cuts a workflow into reservations, by unit. Called by plan.make; `pools` by the engine as steps end.

workflow   one reservation for all, as large as the peak of the whole graph
stage      one for each stage
task       one for each task
reuse      one for each chain of stages with the same needs: a stage inherits the machines of the one before it
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.graph.codec import canonical, encode
from penstock.graph.model import Placement, Unit
from penstock.plan.demand import peaks, vector
from penstock.plan.expand import ONE, Level, Planned, Size
from penstock.plan.stages import Stage, amounts

LOOK_BACK = 1_000
"""The most steps that are searched for another dependency of a stage. Beyond, the stage does not join the chain."""


@dataclass(frozen=True, slots=True)
class PlacementGroup:
    """Quota for steps with one placement: one flavor of a cluster."""

    placement: Placement | None
    amounts: Mapping[str, int]

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"needs": amounts(self.amounts)}
        if self.placement is not None:
            data["placement"] = encode(self.placement)
        return data


@dataclass(frozen=True, slots=True)
class Reservation:
    name: str
    unit: Unit
    stages: tuple[str, ...]
    pools: tuple[PlacementGroup, ...]
    count: Size = ONE
    """How many there will be: one for each task, or for each call of the workflow around it."""
    known: bool = True
    why: str = ""
    total: Mapping[str, int] | None = None
    """The sum over its stages. The peak is usually smaller."""

    @property
    def peak(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for pool in self.pools:
            for resource, amount in pool.amounts.items():
                found[resource] = found.get(resource, 0) + amount
        return found

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"name": self.name, "stages": list(self.stages), "peak": amounts(self.peak)}
        if self.total is not None:
            data["sum"] = amounts(self.total)
        if len(self.pools) > 1 or (self.pools and self.pools[0].placement is not None):
            data["pools"] = [pool.as_data() for pool in self.pools]
        if self.count != ONE:
            data["count"] = self.count.as_data()
        if not self.known:
            data["known"], data["why"] = False, self.why
        return data


def reserve(level: Level, stages: Sequence[Stage], unit: Unit) -> list[Reservation]:
    """Stages that need nothing, never run, or are exempt hold no quota and are in no reservation."""
    queued = [stage for stage in stages if stage.demand() and not stage.exempt and not stage.skipped]
    match unit:
        case Unit.WORKFLOW:
            return [_whole(level, queued)] if queued else []
        case Unit.STAGE:
            return [_of_stage(stage) for stage in queued]
        case Unit.TASK:
            return [found for stage in queued for found in _of_tasks(stage)]
        case Unit.REUSE:
            return [_chain(members) for members in chains(level, queued)]


def _whole(level: Level, stages: Sequence[Stage]) -> Reservation:
    total = {resource: peak.total for resource, peak in peaks(level).items()}
    unknown = [stage for stage in stages if not stage.known or stage.calls.count is None]
    why = f"{unknown[0].name}: {unknown[0].why or unknown[0].calls.why}" if unknown else ""
    names = tuple(stage.name for stage in stages)
    return Reservation("workflow", Unit.WORKFLOW, names, pools(level), known=not unknown, why=why, total=total)


def pools(level: Level, finished: Collection[str] = frozenset()) -> tuple[PlacementGroup, ...]:
    """The peak of the rest, for each placement."""
    kinds: dict[str, Placement | None] = {}
    for planned, _ in level.walk():
        if planned.step.resources:
            kinds.setdefault(_placement_key(planned.step.placement), planned.step.placement)
    found = []
    for key, placement in sorted(kinds.items()):

        def counts(planned: Planned, key: str = key) -> bool:
            return _placement_key(planned.step.placement) == key

        held = vector(peaks(level, finished, counts if len(kinds) > 1 else lambda planned: True))
        if held:
            found.append(PlacementGroup(placement, held))
    return tuple(found)


def _placement_key(placement: Placement | None) -> str:
    return "" if placement is None else canonical(encode(placement))


def _stage_pools(stage: Stage) -> tuple[PlacementGroup, ...]:
    found: dict[str, tuple[Placement | None, dict[str, int]]] = {}
    for pods in stage.pods:
        _, held = found.setdefault(_placement_key(pods.placement), (pods.placement, {}))
        count = pods.replicas * (1 if pods.width.count is None else pods.width.count)
        for resource, amount in pods.resources.items():
            held[resource] = held.get(resource, 0) + amount * count
    return tuple(PlacementGroup(placement, held) for _, (placement, held) in sorted(found.items()) if held)


def _of_stage(stage: Stage) -> Reservation:
    return Reservation(stage.name, Unit.STAGE, (stage.name,), _stage_pools(stage), stage.calls, stage.known, stage.why)


def _of_tasks(stage: Stage) -> Iterable[Reservation]:
    """A loop that is a gang starts as a whole or not at all, so all of its tasks are one reservation."""
    for pods in stage.pods:
        if not pods.resources:
            continue
        together = 1 if not pods.gang_of_tasks or pods.tasks.count is None else pods.tasks.count
        held = {resource: amount * pods.replicas * together for resource, amount in pods.resources.items()}
        count = stage.calls if pods.gang_of_tasks else pods.tasks.times(stage.calls)
        known = count.count is not None and pods.tasks.count is not None
        pool = PlacementGroup(pods.placement, held)
        yield Reservation(pods.step, Unit.TASK, (stage.name,), (pool,), count, known, count.why or pods.tasks.why)


def _chain(members: Sequence[Stage]) -> Reservation:
    first = members[0]
    total = {resource: amount * len(members) for resource, amount in first.demand().items()}
    names = tuple(stage.name for stage in members)
    return Reservation(
        first.name,
        Unit.REUSE,
        names,
        _stage_pools(first),
        first.calls,
        first.known,
        first.why,
        total if len(members) > 1 else None,
    )


# -- chains -----------------------------------------------------------------------------------------------------------


def chains(level: Level, stages: Sequence[Stage]) -> list[list[Stage]]:
    """Chains of stages, each of which inherits the machines of the one before.

    A stage inherits them if it has the same needs and placement and becomes ready exactly when the other ends: everything else
    that it waits for must have ended earlier. Otherwise the machines would be held idle."""
    by_step = {path: stage for stage in stages for path in stage.steps}
    shape = {stage.name: _shape(stage) for stage in stages if stage.known}
    successor: dict[str, str] = {}
    taken: set[str] = set()
    for inside in _levels(level):
        ups = _Ancestry(inside)
        for planned in inside.steps:
            stage = by_step.get(planned.path)
            if stage is None or stage.name not in shape or len(stage.steps) > 1:
                continue
            prefix = planned.path.removesuffix(planned.step.name)
            last = ups.last_of(planned.step.name)
            giver = by_step.get(prefix + last) if last is not None else None
            if (
                giver is None
                or giver.name not in shape
                or giver.name in successor
                or len(giver.steps) > 1
                or stage.name in taken
            ):
                continue
            if (
                shape[giver.name] == shape[stage.name]
                and giver.queue == stage.queue
                and giver.priority == stage.priority
            ):
                successor[giver.name] = stage.name
                taken.add(stage.name)
    named = {stage.name: stage for stage in stages}
    found = []
    for stage in stages:
        if stage.name in taken:
            continue
        chain = [stage]
        while chain[-1].name in successor:
            chain.append(named[successor[chain[-1].name]])
        found.append(chain)
    return found


def _shape(stage: Stage) -> str:
    return canonical(
        [
            [_placement_key(p.placement), dict(p.resources), p.replicas, p.tasks.count, p.width.count, p.gang]
            for p in stage.pods
        ]
    )


def _levels(level: Level) -> Iterable[Level]:
    yield level
    for planned in level.steps:
        if planned.inner is not None:
            yield from _levels(planned.inner)


class _Ancestry:
    """Finds which dependency of a step ends last, if that is certain."""

    def __init__(self, level: Level) -> None:
        self.before = level.before
        self.depth: dict[str, int] = {}
        for planned in level.steps:
            name = planned.step.name
            self.depth[name] = 1 + max((self.depth[up] for up in level.before[name]), default=-1)

    def last_of(self, name: str) -> str | None:
        ups = self.before[name]
        if len(ups) < 2:
            return ups[0] if ups else None
        last = max(ups, key=lambda up: (self.depth[up], up))
        others = {up for up in ups if up != last}
        shallowest = min(self.depth[up] for up in others)
        seen: set[str] = set()
        frontier = [last]
        while frontier and others and len(seen) < LOOK_BACK:
            for up in self.before[frontier.pop()]:
                if up not in seen and self.depth[up] >= shallowest:
                    seen.add(up)
                    others.discard(up)
                    frontier.append(up)
        return None if others else last
