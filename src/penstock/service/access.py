"""Who may submit to a queue, who administers it, and what a user may use of it: by YuniKorn's rules, where its queues or `access:` say so. Called
by each submission, by `penstock plan`, by what stops or changes queues, and by the server for each request about them.

Kueue's objects have no such lists, so the engine does not count what the runs of a user hold together. What one run asks for is known before it starts: if that alone is more than
a limit allows, YuniKorn would never start it, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.errors import PlanError, Problem
from penstock.graph import quantity
from penstock.service.policy import Actor, Line, QueuePolicy, administers, groups_of, leaves_of, policy_of, refusal

if TYPE_CHECKING:
    from penstock.admission.model import ClusterQueue, LocalQueue
    from penstock.engine.quota_replica import QuotaReplica
    from penstock.plan.make import Plan
    from penstock.service.feasibility import PlannedWorkload
    from penstock.store.records import RunRecord
    from penstock.store.sql import Store

REFUSED = "P825"
ABOVE = "P826"


def vet(rows: Iterable[tuple[str, str | None]], replica: QuotaReplica, plan: Plan, actor: Actor) -> tuple[Problem, ...]:
    """`rows`: (kind, text) of the queue objects. Raises PlanError, P825: the user may not submit. Returns warnings, P826: more than a limit allows."""
    policy = QueuePolicy(rows)
    if policy.says_nothing:
        return ()
    from penstock.scheduling.queues.access import may_submit
    from penstock.service.feasibility import planned_workloads

    groups = policy.groups(actor)
    closed: dict[str, Problem] = {}
    warnings: dict[str, Problem] = {}
    for one in planned_workloads(replica, plan):
        line = policy.line(replica.scheduler, replica.scheduler.queue_of(one.workload), one.workload.queue)
        if line is None:
            continue
        if not may_submit(line, actor.person, groups):
            found = _closed(line, actor.person, groups)
            closed[found.message] = found
        for found in _above(line, one, actor.person, groups):
            warnings.setdefault(found.message, found)
    if closed:
        raise PlanError(list(closed.values()))
    return tuple(warnings.values())


# -- administering ----------------------------------------------------------------------------------------------------


def administers_queue(store: Store, name: str, actor: Actor) -> bool | None:
    """`name`: of a ClusterQueue or a LocalQueue. None: nobody has said who does. Raises NotFound."""
    policy = policy_of(store)
    if policy.says_nothing:
        return None
    from penstock.service.queues import find_queue, named_queues, replica_of

    replica = replica_of(store.queues, gated=False)
    found = find_queue(replica.scheduler, named_queues(replica.scheduler), name, replica.configured)
    return administers(policy.line_of(replica.scheduler, found), actor, policy.groups(actor))


def administers_run(store: Store, run: RunRecord, actor: Actor) -> bool | None:
    """Does somebody administer all queues that the run uses? None: nobody has said who does."""
    policy = policy_of(store)
    if policy.says_nothing:
        return None
    from penstock.service.queues import replica_of
    from penstock.service.run_records import workflow_of

    workflow = workflow_of(store, run)
    replica, groups = replica_of(store.queues, gated=False), policy.groups(actor)
    steps = (step for one in (workflow, *workflow.definitions) for step in one.steps if step.resources)
    verdicts = set()
    for name in {step.queue or workflow.queue for step in steps}:
        namespace, local = replica.queue_for(name)
        target = replica.scheduler.local_queues.get(f"{namespace}/{local}")
        line = policy.line_of(replica.scheduler, target) if target is not None else None
        verdicts.add(administers(line, actor, groups))
    return None if not verdicts or None in verdicts else verdicts == {True}


def listing(store: Store, actor: Actor) -> list[dict[str, Any]]:
    """Who may submit to each ClusterQueue and LocalQueue, who administers it, and what `actor` may; nothing if nobody has said anything."""
    policy = policy_of(store)
    if policy.says_nothing:
        return []
    from penstock.scheduling.queues.access import may_submit, who_may
    from penstock.service.queues import named_queues, replica_of

    queues, groups = replica_of(store.queues, gated=False).scheduler, policy.groups(actor)
    found = []
    configured: list[ClusterQueue | LocalQueue] = [*queues.cluster_queues.values(), *named_queues(queues)]
    for one in configured:
        line = policy.line_of(queues, one)
        found.append(
            {
                "queue": one.name,
                "kind": type(one).__name__,
                "lists": [] if line is None else who_may(line),
                "submit": line is None or may_submit(line, actor.person, groups),
                "admin": administers(line, actor, groups),
            }
        )
    return found


def check_run(store: Store, run: RunRecord, actor: Actor, what: str) -> None:
    """Raises UserError, P828, if the run is somebody else's and others administer its queues."""
    if run.user != actor.person and administers_run(store, run, actor) is False:
        raise refusal(actor, f"may not {what} {run.id}: it is of {run.user}, in a queue that others administer")


# -- what is said -----------------------------------------------------------------------------------------------------


def limits_on(rows: Iterable[tuple[str, str | None]], queue: str, user: str) -> list[str]:
    """What a user may have in a ClusterQueue that is one of YuniKorn's, in words. `rows`: (kind, text) of the queue objects."""
    from penstock.service.yunikorn import KIND, stored

    kept = [row for row in rows if row[0] == KIND]
    partition = stored(kept) if kept else None
    line = leaves_of(partition).get(queue) if partition is not None else None
    if partition is None or line is None:
        return []
    from penstock.scheduling.queues.access import limits_of

    found = []
    for where, who, limit in limits_of(line, user, groups_of(user, partition.resolver)):
        amounts = [f"{quantity.short(most, name)} {name}" for name, most in sorted(limit.resources.items())]
        if limit.applications:
            amounts.append(f"{limit.applications} applications")
        found.append(f"{who} may have {', '.join(amounts)} in {where}; that is not counted here")
    return found


def _closed(line: Line, user: str, groups: tuple[str, ...]) -> Problem:
    from penstock.scheduling.queues.access import who_may
    from penstock.scheduling.queues.model import full_name

    of = f" (groups: {', '.join(sorted(groups))})" if groups and groups != (user,) else ""
    allowed = "; ".join(who_may(line)) or "there is no ACL in it and above it, so nobody may"
    message = f"user {user!r}{of} may not submit to the queue {full_name(line)}: {allowed}"
    fix = "use a queue that you may submit to, or have its submitacl changed: penstock queue apply FILE"
    return Problem(REFUSED, message, fix, where="queue")


def _above(line: Line, one: PlannedWorkload, user: str, groups: tuple[str, ...]) -> Iterable[Problem]:
    from penstock.scheduling.queues.access import limits_of

    asked: dict[str, int] = {}
    for podset in one.workload.podsets:
        for name, amount in podset.requests.items():
            scale = 1 if name == "cpu" else 1000
            asked[name] = asked.get(name, 0) + amount * scale * podset.count
    for queue, who, limit in limits_of(line, user, groups):
        for name, most in limit.resources.items():
            if asked.get(name, 0) > most:
                told = f"{quantity.short(asked[name], name)} {name}"
                said = f"{one.name} asks for {told}, and {who} may have {quantity.short(most, name)} in {queue}"
                fix = "ask for less at a time, or raise the limit. Here it is not counted; YuniKorn would never start this"
                yield Problem(ABOVE, said, fix, where=f"steps.{one.name}.resources", severity="warning")
