"""Who may submit to a queue, and what a user may use of it, where the queues are YuniKorn's. Called by each submission, and by `penstock plan`.

Kueue's objects have neither, so the engine does not count what the runs of a user hold together. What one run asks for is known before it starts: if that alone is more than
a limit allows, YuniKorn would never start it, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.errors import PlanError, Problem
from penstock.graph import quantity

if TYPE_CHECKING:
    from penstock.engine.quota_replica import QuotaReplica
    from penstock.plan.make import Plan
    from penstock.scheduling.queues.model import Partition, Queue
    from penstock.service.feasibility import PlannedWorkload

REFUSED = "P825"
ABOVE = "P826"


def vet(rows: Iterable[tuple[str, str | None]], replica: QuotaReplica, plan: Plan, user: str) -> tuple[Problem, ...]:
    """`rows`: (kind, text) of the queue objects. Raises PlanError, P825: the user may not submit. Returns warnings, P826: more than a limit allows."""
    from penstock.service.yunikorn import KIND, stored

    kept = [row for row in rows if row[0] == KIND]
    partition = stored(kept) if kept else None
    if partition is None:
        return ()
    from penstock.scheduling.queues.access import may_submit
    from penstock.service.feasibility import planned_workloads

    groups = groups_of(user, partition.resolver)
    leaves = _leaves(partition)
    closed: dict[str, Problem] = {}
    warnings: dict[str, Problem] = {}
    for one in planned_workloads(replica, plan):
        line = leaves.get(replica.scheduler.queue_of(one.workload))
        if line is None:
            continue  # a queue that is not YuniKorn's
        if not may_submit(line, user, groups):
            found = _closed(line, user, groups)
            closed[found.message] = found
        for found in _above(line, one, user, groups):
            warnings.setdefault(found.message, found)
    if closed:
        raise PlanError(list(closed.values()))
    return tuple(warnings.values())


def limits_on(rows: Iterable[tuple[str, str | None]], queue: str, user: str) -> list[str]:
    """What a user may have in a ClusterQueue that is one of YuniKorn's, in words. `rows`: (kind, text) of the queue objects."""
    from penstock.service.yunikorn import KIND, stored

    kept = [row for row in rows if row[0] == KIND]
    partition = stored(kept) if kept else None
    line = _leaves(partition).get(queue) if partition is not None else None
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


def _leaves(partition: Partition) -> dict[str, tuple[Queue, ...]]:
    """ClusterQueue → the leaf that it was made of, with the queues above it."""
    from penstock.scheduling.queues.model import full_name
    from penstock.scheduling.queues.to_kueue import to_kueue

    lines = {full_name(line): line for line in partition.root.walk()}
    return {name: lines[full] for full, name in to_kueue(partition).names.items()}


def groups_of(user: str, resolver: str) -> tuple[str, ...]:
    """As YuniKorn finds them: without a resolver a group of the user's own name. Those of a directory service are not known here."""
    if resolver.lower() == "os":
        try:
            import grp
            import pwd

            first = pwd.getpwnam(user).pw_gid
            return tuple({one.gr_name for one in grp.getgrall() if user in one.gr_mem or one.gr_gid == first})
        except (ImportError, KeyError, OSError):
            return ()
    return () if resolver.lower() == "ldap" else (user,)


def _closed(line: tuple[Queue, ...], user: str, groups: tuple[str, ...]) -> Problem:
    from penstock.scheduling.queues.access import who_may
    from penstock.scheduling.queues.model import full_name

    of = f" (groups: {', '.join(sorted(groups))})" if groups and groups != (user,) else ""
    allowed = "; ".join(who_may(line)) or "there is no ACL in it and above it, so nobody may"
    message = f"user {user!r}{of} may not submit to the queue {full_name(line)}: {allowed}"
    fix = "use a queue that you may submit to, or have its submitacl changed: penstock queue apply FILE"
    return Problem(REFUSED, message, fix, where="queue")


def _above(line: tuple[Queue, ...], one: PlannedWorkload, user: str, groups: tuple[str, ...]) -> Iterable[Problem]:
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
