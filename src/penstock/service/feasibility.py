"""Can the reservations of a plan ever be admitted by the queues? Called by each submission, which is refused if not, by `penstock plan` and
by the simulator.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.admission.explain import Shortage
from penstock.admission.model import PodSet, Workload
from penstock.admission.scheduler import Scheduler
from penstock.engine.cluster_quota import ClusterQueues, queue_named
from penstock.engine.podsets import PodDemand, Vector, amounts, shape_of, stage_podsets, units_of, vector_podsets
from penstock.engine.quota_replica import QuotaReplica, queue_called, with_own_names
from penstock.errors import PlanError, Problem, nearest
from penstock.graph.model import Resource, Unit
from penstock.plan.make import Plan
from penstock.plan.reserve import Reservation
from penstock.plan.stages import Stage
from penstock.service.amounts import amount, figure
from penstock.service.queues import named_queues, no_such_queue, objects_in


class PlanQueues(Protocol):
    """What a plan is held against: a QuotaReplica, or the queues of a cluster."""

    @property
    def scheduler(self) -> Scheduler: ...

    @property
    def configured(self) -> bool: ...

    def queue_for(self, name: str | None) -> tuple[str, str]: ...

    def priority_of(self, named: str | int | None) -> tuple[int, str | None]: ...


MOST_PROBLEMS = 10
"""Reservations that are named, of those that ask for too much."""


def vet(replica: QuotaReplica, plan: Plan, queue: str | None = None, elsewhere: bool = False) -> tuple[Problem, ...]:
    """Refuse what could never be admitted: raises PlanError with all of it. Returns warnings. `queue`: chosen for this run, if it is
    not the workflow's own. `elsewhere`: its steps run on other machines, so that what this one has is no limit."""
    named = _queue_names(plan)
    problems = []
    if replica.configured:
        problems = [
            no_such_queue(replica.scheduler, *one) for one in named if queue_called(replica.scheduler, one[0]) is None
        ]
    problems += unknown_priorities(replica, plan)
    if plan.unit is Unit.WORKFLOW and len(named) > 1:
        message = "its steps are in several queues, and the unit is the whole workflow, which can be in one only"
        problems.append(Problem("P815", message, "use --unit stage, or one queue", where="unit"))
    if not problems and (replica.configured or not elsewhere):
        problems = _never_admitted(replica, plan)
    if problems:
        raise PlanError(problems)
    if queue is None or replica.configured:
        return ()
    message = f"there are no queues here but this machine itself: {queue!r} has no effect yet"
    return (Problem("P812", message, "penstock queue apply FILE makes queues", severity="warning"),)


def vet_cluster(queues: ClusterQueues, plan: Plan) -> None:
    """Refuse queues and priority classes that the cluster has not. What fits there Kueue alone knows. Raises PlanError."""
    objects = {planned.path for planned, _ in plan.level.walk() if isinstance(planned.step.action, Resource)}
    stages = [stage for stage in plan.stages if not stage.exempt and not stage.skipped]
    # A resource step that asks for nothing is in no queue.
    stages = [stage for stage in stages if stage.demand() or not objects.issuperset(stage.steps)]
    named: dict[str | None, str] = {}
    classes: dict[str, str] = {}
    for stage in stages:
        own = stage.queue is not None and stage.queue != plan.workflow.queue
        named.setdefault(stage.queue, f"steps.{stage.name}.queue" if own else "queue")
        if isinstance(stage.priority, str):
            classes.setdefault(stage.priority, "priority")
    there, space = sorted(queues.local_queues), queues.namespace
    problems = []
    for name, place in named.items():
        if queue_named(name, queues.local_queues, space) is None:
            known = f"the namespace {space} has {', '.join(there) or 'none'}"
            message = (
                f"there is no queue {name!r} in the cluster" if name else "which of the cluster's queues is meant?"
            )
            fix = f"{known}; name one: --queue {there[0] if there else 'NAME'}.{nearest(name or '', there)}"
            problems.append(Problem("P899", message, fix, where=place))
    for name, place in classes.items():
        if name not in queues.priorities:
            known = ", ".join(sorted(queues.priorities)) or "none"
            fix = f"there are: {known}; or give a number.{nearest(name, sorted(queues.priorities))}"
            problems.append(Problem("P899", f"there is no priority class {name!r} in the cluster", fix, where=place))
    if plan.unit is Unit.WORKFLOW and len(named) > 1:
        message = "its steps are in several queues, and the unit is the whole workflow, which can be in one only"
        problems.append(Problem("P815", message, "use --unit stage, or one queue", where="unit"))
    if problems:
        raise PlanError(problems)


def _queue_names(plan: Plan) -> list[tuple[str | None, str]]:
    """(queue, where it is named), each queue once."""
    found: dict[str | None, str] = {}
    for stage in plan.stages:
        if stage.demand() and not stage.exempt and not stage.skipped:
            own = stage.queue is not None and stage.queue != plan.workflow.queue
            found.setdefault(stage.queue, f"steps.{stage.name}.queue" if own else "queue")
    return list(found.items())


def unknown_priorities(replica: PlanQueues, plan: Plan) -> list[Problem]:
    """Priority classes that are named and do not exist."""
    if not replica.configured:
        return []
    named: dict[str, str] = {}
    for stage in plan.stages:
        if isinstance(stage.priority, str):
            own = stage.priority != plan.workflow.priority
            named.setdefault(stage.priority, f"steps.{stage.name}.priority" if own else "priority")
    known = sorted(replica.scheduler.priority_classes)
    return [
        Problem(
            "P814",
            f"there is no priority class {name!r}",
            f"there are: {', '.join(known) or 'none'}; or give a number.{nearest(name, known)}",
            where=place,
        )
        for name, place in named.items()
        if name not in replica.scheduler.priority_classes
    ]


def _never_admitted(replica: QuotaReplica, plan: Plan) -> list[Problem]:
    empty = emptied(replica)
    seen: dict[Any, tuple[Shortage, ...]] = {}
    problems: list[Problem] = []
    more = 0
    for one in planned_workloads(replica, plan):
        refusal = namespace_refusal(replica, one.workload)
        if refusal:
            fix = "change its namespaceSelector: `{}` matches all namespaces"
            return [Problem("P819", refusal, fix, where="queue")]
        if one.shape not in seen:
            seen[one.shape] = empty.fits_ever(one.workload)
        if seen[one.shape]:
            if len(problems) < MOST_PROBLEMS:
                problems.append(_impossible(replica, plan, one, seen[one.shape]))
            else:
                more += 1
    if more:
        last = problems[-1]
        problems[-1] = dataclasses.replace(last, message=f"{last.message}; and {more:,} more like it")
    return problems


def namespace_refusal(replica: PlanQueues, workload: Workload) -> str:
    """Why its queue admits nothing from its namespace; empty if it does."""
    queue = replica.scheduler.queue_of(workload)
    admits = replica.scheduler.admits(queue) if queue in replica.scheduler.cluster_queues else None
    if admits is None or admits(workload.namespace):
        return ""
    return f"ClusterQueue {queue!r} admits nothing from namespace {workload.namespace!r}"


def emptied(replica: PlanQueues) -> Scheduler:
    """The same queues without any Workload."""
    queues = Scheduler(replica.scheduler.config)
    queues.apply(objects_in(replica.scheduler, named_queues(replica.scheduler)), 0.0)
    queues.apply(with_own_names(queues), 0.0)
    return queues


def _impossible(replica: QuotaReplica, plan: Plan, one: PlannedWorkload, never: Sequence[Shortage]) -> Problem:
    queue = replica.scheduler.queue_of(one.workload)
    parts = []
    for short in never:
        who = "the whole workflow" if plan.unit is Unit.WORKFLOW else one.name
        asks = f"{who} asks for {amount(short.asked, short.resource)}"
        if short.kind == "exceedsMax" and short.potential:
            there = "this machine has" if not replica.configured else f"queue {queue} can have"
            flavor = "" if not replica.configured else f" of flavor {short.flavor}"
            parts.append(f"{asks}, and {there} {figure(short.potential, short.resource)} at most{flavor}")
        elif short.kind in ("exceedsMax", "notCovered"):
            parts.append(f"{asks}, of which {'this machine' if not replica.configured else f'queue {queue}'} has none")
        elif short.kind == "flavorMissing":
            parts.append(f"queue {queue} names a flavor {short.flavor} that does not exist")
        else:
            what = "taints" if short.kind == "taint" else "labels"
            detail = f": {short.detail}" if short.detail else ""
            parts.append(f"the {what} of flavor {short.flavor} do not match {who}{detail}")
    text = "; ".join(dict.fromkeys(parts))
    fix = "ask for less, or declare more: penstock queue apply FILE"
    if plan.unit is Unit.WORKFLOW:
        return Problem("P818", text, f"{fix}; or --unit stage, which asks for less at a time")
    return Problem("P818", text, fix, where=f"steps.{one.name}.resources")


# -- the Workloads of a plan ------------------------------------------------------------------------------------------


class PlannedWorkload(NamedTuple):
    """A Workload that a run of the plan would submit, as its engine will make it."""

    name: str
    """Of its reservation."""
    workload: Workload
    shape: Any
    """Equal for Workloads that are decided in the same way."""
    queue: str | None
    """As the author named it."""
    replicas: int = 1


def planned_workloads(replica: PlanQueues, plan: Plan) -> Iterator[PlannedWorkload]:
    stages = {stage.name: stage for stage in plan.stages}
    now = time.time()
    for reservation in plan.reservations:
        stage = stages[reservation.stages[0]]
        if reservation.unit is Unit.WORKFLOW:
            podsets = _vector(plan, reservation)
            queue, named = plan.workflow.queue or stage.queue, plan.workflow.priority
        else:
            podsets, queue, named = _podsets(stage, reservation.unit, reservation.name), stage.queue, stage.priority
        priority, priority_class = replica.priority_of(named)
        space, local = replica.queue_for(queue)
        workload = Workload(
            name=f"(plan)/{reservation.name}",
            namespace=space,
            queue=local,
            podsets=podsets,
            priority=priority,
            priority_class=priority_class,
            created=now,
        )
        shape = (queue, space, local, priority, priority_class, tuple(map(_shape, podsets)))
        yield PlannedWorkload(
            reservation.name, workload, shape, queue, stage.pods[0].replicas if len(podsets) == 1 else 1
        )


def _shape(podset: PodSet) -> tuple[Any, ...]:
    return (
        tuple(sorted(podset.requests.items())),
        podset.count,
        podset.min_count,
        podset.group,
        tuple(sorted(podset.selector.items())),
        podset.affinity,
        podset.tolerations,
    )


def _vector(plan: Plan, reservation: Reservation) -> tuple[PodSet, ...]:
    """For a whole workflow."""
    steps = [planned.step for planned, _ in plan.level.walk()]
    found = []
    for pool in reservation.pools:
        peak = amounts(pool.amounts)
        found.append(Vector(pool.placement, peak, units_of(steps, pool.placement, peak)))
    return vector_podsets(found)


def _podsets(stage: Stage, unit: Unit, name: str) -> tuple[PodSet, ...]:
    """For a stage, or for one task of it."""
    shapes: dict[str, list[PodDemand]] = {}
    for pods in stage.pods:
        if pods.resources and (unit is not Unit.TASK or pods.step == name):
            single = unit is Unit.TASK and not pods.gang_of_tasks
            tasks = 1 if single else pods.width.count or 1
            path = pods.step.replace("/", "-")
            demand = PodDemand(path, pods.resources, pods.placement, pods.replicas, tasks, pods.gang_of_tasks)
            shapes.setdefault(shape_of(pods.resources, pods.placement, pods.replicas), []).append(demand)
    return stage_podsets(list(shapes.values()))
