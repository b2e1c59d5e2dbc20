"""What the owner of the queues has said of who may do what with them: YuniKorn's configuration, or `access:`. Called by service.access and
service.queues.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import Problem, UserError
from penstock.service import access_lists

if TYPE_CHECKING:
    from penstock.admission.model import ClusterQueue, LocalQueue
    from penstock.admission.scheduler import Scheduler
    from penstock.scheduling.queues.model import Partition, Queue
    from penstock.store.sql import Store

NO_ADMIN = "P828"
Line = tuple["Queue", ...]
"""A queue with those above it, the root first."""


class Actor(NamedTuple):
    """Who asks for something. `groups`: None if it is a user of this machine, whose groups the machine knows."""

    person: str
    groups: tuple[str, ...] | None = None


class QueuePolicy:
    """What the owner of the queues has said. `rows`: (kind, text) of the queue objects."""

    def __init__(self, rows: Iterable[tuple[str, str | None]]) -> None:
        from penstock.service.yunikorn import KIND, stored

        kept = [row for row in rows if row[0] in (KIND, access_lists.KIND)]
        self.partition: Partition | None = stored(kept) if kept else None
        self.lists = access_lists.stored(kept)
        self._leaves = leaves_of(self.partition) if self.partition is not None else {}

    @property
    def says_nothing(self) -> bool:
        return self.partition is None and self.lists is None

    def line(self, queues: Scheduler, cluster_queue: str, local: str = "") -> Line | None:
        """None: nothing is said of this queue."""
        if cluster_queue in self._leaves:
            return self._leaves[cluster_queue]
        if self.lists is None:
            return None
        names = [local] if local and local != cluster_queue else []
        names.append(cluster_queue)
        queue = queues.cluster_queues.get(cluster_queue)
        cohort = queue.cohort if queue is not None else None
        while cohort is not None and cohort not in names:
            names.append(cohort)
            above = queues.cohorts.get(cohort)
            cohort = above.parent if above is not None else None
        return self._made(names[::-1])

    def line_of(self, queues: Scheduler, found: ClusterQueue | LocalQueue) -> Line | None:
        from penstock.admission.model import LocalQueue

        if isinstance(found, LocalQueue):
            return self.line(queues, found.cluster_queue, found.name)
        return self.line(queues, found.name)

    def root(self) -> Line:
        """What holds for everything."""
        return (self.partition.root,) if self.partition is not None else self._made([])

    def _made(self, names: Iterable[str]) -> Line:
        from penstock.scheduling.queues.model import Queue

        lists = self.lists or {}
        found = []
        for name in dict.fromkeys((access_lists.ROOT, *names)):
            own = lists.get(name, access_lists.QueueAccess())
            found.append(Queue(name=name, submit=own.submit, admin=own.admin))
        return tuple(found)

    def groups(self, actor: Actor) -> tuple[str, ...]:
        resolver = self.partition.resolver if self.partition is not None else ""
        if actor.groups is None:
            return groups_of(actor.person, resolver or ("os" if self.lists is not None else ""))
        own = (actor.person,) if self.partition is not None and not resolver else ()
        return tuple(dict.fromkeys((*actor.groups, *own)))


def policy_of(store: Store) -> QueuePolicy:
    return QueuePolicy((kind, text) for kind, _, _, text in store.queues.queue_objects())


def administers(line: Line | None, actor: Actor, groups: Iterable[str]) -> bool | None:
    """None: nobody has said who does."""
    from penstock.scheduling.queues.access import may_administer

    if line is None or not any((one.admin or "").strip() for one in line):
        return None
    return may_administer(line, actor.person, groups)


def check_queue(policy: QueuePolicy, queues: Scheduler, found: ClusterQueue | LocalQueue, actor: Actor) -> None:
    """Raises UserError, P828, if others administer this queue."""
    if administers(policy.line_of(queues, found), actor, policy.groups(actor)) is False:
        raise refusal(actor, f"may not stop the queue {found.name} or let it go on: others administer it")


def check_change(store: Store, actor: Actor) -> None:
    """Raises UserError, P828, if others administer the root of the queues: then they change them, and this list."""
    policy = policy_of(store)
    if not policy.says_nothing and administers(policy.root(), actor, policy.groups(actor)) is False:
        raise refusal(actor, "may not change queues: others administer their root")


def refusal(actor: Actor, said: str) -> UserError:
    fix = "ask an administrator: penstock queue access shows who may what"
    return UserError(Problem(NO_ADMIN, f"user {actor.person!r} {said}", fix))


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


def leaves_of(partition: Partition) -> dict[str, Line]:
    """ClusterQueue → the leaf that it was made of, with the queues above it."""
    from penstock.scheduling.queues.model import full_name
    from penstock.scheduling.queues.to_kueue import to_kueue

    lines = {full_name(line): line for line in partition.root.walk()}
    return {name: lines[full] for full, name in to_kueue(partition).names.items()}
