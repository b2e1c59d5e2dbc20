"""What would wait, and until when, if more were submitted to a queue, or if its quota were another one. Called by `penstock queue what-if` and the
server.

The queues begin as they are now, with what holds quota and what waits, and go on with the scheduler that decides in real runs and a clock
that jumps. How long something runs is what its step took in the last runs of its workflow; a guess where there are none.

Not in it: stages whose turn has not come, and tasks that begin because others end. A run of files with all that follows is what
`penstock queue simulate` is for.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.admission.model import ClusterQueue, LocalQueue, PodSet, Workload
from penstock.admission.scheduler import Scheduler
from penstock.engine.quota_replica import QuotaReplica
from penstock.errors import Problem, UserError
from penstock.service.amounts import GUESS, amount, spell
from penstock.service.queues import find_queue, named_queues, replica_of
from penstock.service.simulation.scenario import took
from penstock.service.wording import workload_name
from penstock.store.sql import Store

MOST_TASKS: Final = 100_000
LONGEST: Final = 30 * 86400.0
"""Seconds that are looked ahead."""
STEPS: Final = 5_000
"""Ends of Workloads that are looked ahead."""
PATIENCE: Final = 1.5
"""Seconds that each of the two ways on, with and without the change, may take."""
LOOK_BACK: Final = 3
"""Runs of a workflow that are searched for the run times of its steps."""
WORKFLOWS: Final = 20
"""Workflows of which run times are looked up."""
NAME: Final = "what-if"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChange:
    """What would be different."""

    tasks: int = 0
    asks: Mapping[str, int] = field(default_factory=dict)
    """Of one task, in the units of queues."""
    seconds: float = GUESS
    """How long one task runs."""
    gang: bool = False
    """All start together, or none."""
    priority: int = 0
    quota: Mapping[str, int] = field(default_factory=dict)
    """`resource`, or `flavor/resource` -> the nominal quota of the queue."""


@dataclass(slots=True)
class WhoWaits:
    """A Workload that waits now."""

    name: str
    run: str
    user: str
    now: float | None
    """Seconds until it starts, as things are. None: not within the time that is looked ahead."""
    then: float | None
    """The same with the change."""

    def as_data(self) -> dict[str, Any]:
        return {
            "workload": self.name,
            "run": self.run,
            "user": self.user,
            "starts_in": self.now,
            "would_start_in": self.then,
        }


@dataclass(slots=True)
class WhatIf:
    queue: str
    change: QueueChange
    at_once: int = 0
    """Of the tasks: so many start at once."""
    starts: list[tuple[float, int]] = field(default_factory=list)
    """(seconds from now, how many of the tasks start then)"""
    never: str = ""
    """Why the tasks could never start."""
    waiting: list[WhoWaits] = field(default_factory=list)
    """What waits in the queue now."""
    stopped: list[str] = field(default_factory=list)
    """Workloads that would be preempted, and would not be otherwise."""
    measured: int = 0
    """Workloads whose run time is known from earlier runs."""
    guessed: int = 0
    left_out: int = 0
    """Workloads whose turn has not come."""
    ahead: float | None = None
    """Seconds that could be looked ahead, if there was no time for more: many wait."""

    @property
    def started(self) -> int:
        return sum(many for _, many in self.starts)

    @property
    def waits_from(self) -> int | None:
        """The number of the first task that has to wait. None: none has to."""
        return self.at_once + 1 if self.at_once < self.change.tasks else None

    def as_data(self) -> dict[str, Any]:
        change = self.change
        return {
            "queue": self.queue,
            "tasks": change.tasks,
            "asks": {name: spell(number, name) for name, number in change.asks.items()},
            "seconds": change.seconds,
            "quota": {name: spell(number, name.rpartition("/")[2]) for name, number in change.quota.items()},
            "at_once": self.at_once,
            "waits_from": self.waits_from,
            "starts": [{"in": round(at, 3), "tasks": many} for at, many in self.starts],
            "never": self.never or None,
            "waiting": [one.as_data() for one in self.waiting],
            "preempted": self.stopped,
            "run_times": {"measured": self.measured, "guessed": self.guessed},
            "left_out": self.left_out,
            "ahead": self.ahead,
        }


def what_if(store: Store, name: str, change: QueueChange) -> WhatIf:
    """`name`: a ClusterQueue or a LocalQueue. Raises UserError."""
    if not 0 <= change.tasks <= MOST_TASKS or not 0 <= change.seconds <= LONGEST:
        fix = f"up to {MOST_TASKS:,} tasks of up to {LONGEST / 86400:g} days"
        raise UserError(Problem("P982", f"{change.tasks:,} tasks of {change.seconds:g} s cannot be tried", fix))
    now = time.time()
    lengths = RunTimes(store, now)
    replica = replica_of(store.queues, now, gated=False)
    local = _local(replica, name)
    found = WhatIf(local.cluster_queue, change)
    found.left_out = sum(one.state == "gated" for one in store.queues.workloads())
    scheduler = replica.scheduler
    scheduler.settle(now)
    waits = [one.key for one in scheduler.pending(local.cluster_queue)]
    plain = Play(replica, lengths, now)
    before = plain.run(set(waits))
    again = replica_of(store.queues, now, gated=False)
    _with_quota(again.scheduler, local.cluster_queue, change.quota, now)
    play = Play(again, lengths, now)
    if change.tasks:
        found.never = play.submit(local, change)
    after = play.run(set(waits), with_own=True)
    found.starts = play.own_starts()
    found.ahead = min((one.ahead for one in (plain, play) if one.ahead is not None), default=None)
    found.at_once = sum(many for at, many in found.starts if at <= 0)
    for key in waits:
        run = store.runs.by_number(replica.owners.get(key, (0, ""))[0])
        owner = ("", "") if run is None else (run.id, run.user)
        found.waiting.append(WhoWaits(workload_name(key), *owner, before.get(key), after.get(key)))
    found.stopped = sorted(workload_name(key) for key in play.stopped if not key.startswith(f"default/{NAME}"))
    found.measured, found.guessed = len(lengths.measured), len(lengths.guessed)
    return found


def _local(replica: QuotaReplica, name: str) -> LocalQueue:
    """The LocalQueue that tasks would be submitted to."""
    scheduler = replica.scheduler
    found = find_queue(scheduler, named_queues(scheduler), name, replica.configured)
    if isinstance(found, LocalQueue):
        return found
    return next(one for one in scheduler.local_queues.values() if one.cluster_queue == found.name)


def _with_quota(scheduler: Scheduler, name: str, quota: Mapping[str, int], now: float) -> None:
    queue = scheduler.cluster_queues[name]
    left = dict(quota)
    groups = []
    for group in queue.groups:
        flavors = []
        for flavor in group.flavors:
            quotas = dict(flavor.quotas)
            for resource, old in flavor.quotas.items():
                for key in (f"{flavor.flavor}/{resource}", resource):
                    if key in left:
                        quotas[resource] = dataclasses.replace(old, nominal=left.pop(key))
                        break
            flavors.append(dataclasses.replace(flavor, quotas=quotas))
        groups.append(dataclasses.replace(group, flavors=tuple(flavors)))
    if left:
        known = sorted({resource for group in queue.groups for resource in group.resources})
        missing = next(iter(left))
        raise UserError(
            Problem("P982", f"{name} has no quota of {missing}", f"it has quota of {', '.join(known) or 'nothing'}")
        )
    if quota:
        changed: ClusterQueue = dataclasses.replace(queue, groups=tuple(groups))
        scheduler.apply([changed], now)


class RunTimes:
    """How long the tasks of a Workload run, in earlier runs of its workflow."""

    def __init__(self, store: Store, now: float) -> None:
        self.store = store
        self.now = now
        self.measured: set[str] = set()
        self.guessed: set[str] = set()
        self._known: dict[str, dict[str, float]] = {}
        """Workflow -> step -> seconds."""

    def of(self, key: str, number: int) -> float:
        run = self.store.runs.by_number(number)
        times = {} if run is None else self._of(run.workflow)
        name = workload_name(key).partition("/")[2]
        found = times.get(name)
        if found is None and times and not name:  # the reservation of a whole workflow
            found = math.fsum(times.values())
        (self.guessed if found is None else self.measured).add(key)
        return GUESS if found is None else found

    def _of(self, workflow: str) -> dict[str, float]:
        if workflow not in self._known:
            times: dict[str, float] = {}
            if len(self._known) < WORKFLOWS:
                for run in self.store.runs.newest(limit=LOOK_BACK, state="succeeded", workflow=workflow):
                    for step, seconds in took(self.store, run.number).items():
                        times.setdefault(step, seconds)
            self._known[workflow] = times
        return self._known[workflow]


class Play:
    """The queues, going on by themselves."""

    def __init__(self, replica: QuotaReplica, lengths: RunTimes, now: float) -> None:
        self.scheduler = replica.scheduler
        self.owners = replica.owners
        self.lengths = lengths
        self.now = now
        self.starts: dict[str, float] = {}
        """Workload -> seconds from now."""
        self.stopped: set[str] = set()
        self._own: dict[str, float] = {}
        """Workloads of the change -> how long a task of theirs runs."""
        self._own_tasks: list[tuple[float, int]] = []
        self._ends: list[tuple[float, str]] = []
        self._until: dict[str, float] = {}
        self._parts = 0
        self.ahead: float | None = None
        """Seconds from now up to which it was played, if that was not far enough."""

    def submit(self, local: LocalQueue, change: QueueChange) -> str:
        """Returns why it could never start; empty if it could."""
        podset = PodSet(
            name="main",
            count=change.tasks,
            min_count=None if change.gang or change.tasks == 1 else 1,
            requests=dict(change.asks),
        )
        made = self._made(local.namespace, local.name, (podset,), change.priority, self.now)
        least = dataclasses.replace(podset, count=podset.min_count or podset.count, min_count=None)
        one = Workload(name=NAME, namespace=local.namespace, queue=local.name, podsets=(least,))
        short = list(self.scheduler.fits_ever(one))
        if short:
            first = short[0]
            most = amount(first.potential, first.resource)
            return f"{'all together ask' if change.gang else 'one asks'} for {amount(first.asked, first.resource)}, and the queue can have {most} at most"
        self._own[made.key] = change.seconds
        self.scheduler.submit(made, self.now)
        return ""

    def _made(self, space: str, queue: str, podsets: Sequence[PodSet], priority: int, created: float) -> Workload:
        self._parts += 1
        uid = f"~{self._parts:09}"
        return Workload(
            name=f"{NAME}-{self._parts}",
            namespace=space,
            uid=uid,
            queue=queue,
            podsets=tuple(podsets),
            priority=priority,
            created=created,
        )

    def run(self, waits: set[str], with_own: bool = False) -> dict[str, float]:
        """Until all of these have started, and what is submitted here: Workload -> seconds from now."""
        at, deadline = self.now, time.monotonic() + PATIENCE
        for workload in list(self.scheduler.workloads.values()):
            if workload.admission is not None:
                self._begin(workload, workload.admitted_at or at, at)
        for _ in range(STEPS):
            self._decide(at)
            mine = with_own and any(self._waits(key) for key in self._own)
            if not (mine or any(self._waits(key) for key in waits)):
                return self.starts
            if time.monotonic() > deadline:
                break
            found = self._next(at)
            if found is None or found > self.now + LONGEST:
                return self.starts
            at = found
        self.ahead = at - self.now
        return self.starts

    def _waits(self, key: str) -> bool:
        workload = self.scheduler.workloads.get(key)
        return workload is not None and workload.admission is None and key not in self.starts

    def _decide(self, at: float) -> None:
        scheduler = self.scheduler
        while True:
            scheduler.touched.clear()
            scheduler.settle(at)
            again = False
            for key in sorted(scheduler.touched):
                workload = scheduler.workloads.get(key)
                if workload is None:
                    continue
                if workload.eviction is not None and workload.admission is not None:
                    self.stopped.add(key)
                    self._until.pop(key, None)
                    scheduler.release(key, at)
                    again = True
                elif workload.admission is not None and key not in self._until:
                    again = self._admitted(workload, at) or again
            if not again:
                return

    def _admitted(self, workload: Workload, at: float) -> bool:
        """True: only a part of it, and the rest queues again."""
        self.starts.setdefault(workload.key, at - self.now)
        self._begin(workload, at, at)
        assert workload.admission is not None
        taken = sum(one.count for one in workload.admission.podsets)
        if workload.key in self._own:
            self._own_tasks.append((at - self.now, taken))
        asked = sum(one.count for one in workload.podsets)
        if taken >= asked or len(workload.podsets) != 1:
            return False
        rest = dataclasses.replace(workload.podsets[0], count=asked - taken)
        more = self._made(workload.namespace, workload.queue, (rest,), workload.priority, workload.created)
        if workload.key in self._own:
            self._own[more.key] = self._own[workload.key]
        else:
            self.owners[more.key] = self.owners.get(workload.key, (0, ""))
        self.scheduler.submit(more, at)
        return True

    def _begin(self, workload: Workload, since: float, at: float) -> None:
        own = self._own.get(workload.key)
        length = self.lengths.of(workload.key, self.owners.get(workload.key, (0, ""))[0]) if own is None else own
        # What has run for longer than usual is taken to end soon.
        end = since + length if since + length > at else at + max(1.0, 0.1 * length)
        self._until[workload.key] = end
        heapq.heappush(self._ends, (end, workload.key))

    def _next(self, at: float) -> float | None:
        """Lets what ends next end, and returns when that is."""
        alarm = self.scheduler.next_time(at)
        while self._ends and self._until.get(self._ends[0][1]) != self._ends[0][0]:
            heapq.heappop(self._ends)
        if not self._ends or (alarm is not None and at < alarm < self._ends[0][0]):
            return alarm
        end, key = heapq.heappop(self._ends)
        del self._until[key]
        if key in self.scheduler.workloads:
            self.scheduler.finish(key, end)
        return end

    def own_starts(self) -> list[tuple[float, int]]:
        found: dict[float, int] = {}
        for at, many in self._own_tasks:
            found[at] = found.get(at, 0) + many
        return sorted(found.items())
