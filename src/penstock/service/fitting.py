"""Can a gang ever fit into its queue? Called by service.schedule where a file with the queues was given.

YuniKorn refuses a gang that is larger than its queue, or than any above it; Kueue lets a Workload wait for ever. Both are said before anything is created.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.errors import DocumentError, Problem, nearest
from penstock.graph import quantity

if TYPE_CHECKING:
    from penstock.scheduling.apply import ScheduledJob
    from penstock.scheduling.model import Gang, JobObject
    from penstock.scheduling.queues.model import Partition, Queue

TOO_LARGE = "P883"
RAISE = "ask for less, or raise the bound of the queue"


def check(text: str, file: str, found: Iterable[ScheduledJob]) -> None:
    """`text`: the queues, of YuniKorn or of Kueue. Raises DocumentError, P883, with every job that can never start, and what is wrong with the file."""
    from penstock.service import yunikorn

    translated = yunikorn.translated(text, file)
    if translated is None:
        problems = list(_by_kueue(text, file, found))
    else:
        partition = yunikorn.stored([(translated.row[0], translated.row[2])])
        assert partition is not None
        problems = [problem for one in found for problem in _by_yunikorn(partition, one)]
    if problems:
        raise DocumentError(problems)


def _problem(job: JobObject, message: str, fix: str) -> Problem:
    return job.document.problem(TOO_LARGE, "spec", f"{job.title}: {message}", fix)


# -- YuniKorn ---------------------------------------------------------------------------------------------------------


def _by_yunikorn(partition: Partition, one: ScheduledJob) -> Iterator[Problem]:
    from penstock.scheduling.queues.access import may_submit, who_may
    from penstock.scheduling.queues.model import full_name
    from penstock.scheduling.yunikorn import full

    job, binding = one.job, one.binding
    queue = full(binding.queue)
    line = partition.root.find(queue)
    if not line:
        if not any(rule.get("create") is True for rule in partition.rules):
            known = [full_name(each) for each in partition.root.walk() if not each[-1].parent]
            fix = f"there are: {', '.join(known) or 'none'}.{nearest(queue, known)}"
            yield _problem(job, f"there is no queue {queue}, and no rule makes one", fix)
        return
    if line[-1].parent:
        yield _problem(job, f"{queue} is a parent, and applications run in leaves", "name a queue below it")
        return
    if binding.user and not may_submit(line, binding.user, binding.groups or (binding.user,)):
        allowed = "; ".join(who_may(line)) or "there is no ACL, so nobody may"
        yield _problem(
            job,
            f"user {binding.user!r} may not submit to {queue}: {allowed}",
            "use a queue that the user may submit to",
        )
    if one.gang.members:
        yield from _gang(job, line, one.gang)


def _gang(job: JobObject, line: tuple[Queue, ...], gang: Gang) -> Iterator[Problem]:
    from penstock.scheduling.queues.model import full_name

    policy = next(
        (
            one.properties["application.sort.policy"]
            for one in reversed(line)
            if "application.sort.policy" in one.properties
        ),
        "fifo",
    )
    if policy.lower() != "fifo":
        said = f"{full_name(line)} sorts its applications by {policy}, and YuniKorn refuses gangs there"
        yield _problem(job, said, "write application.sort.policy: fifo, or use --gang off")
    asked: dict[str, int] = {"pods": sum(one.count for one in gang.members) * 1000}
    for one in gang.members:
        for name, amount in one.total.items():
            asked[name] = asked.get(name, 0) + amount
    for number in range(len(line), 0, -1):
        for name, most in line[number - 1].most.items():
            if asked.get(name, 0) > most:
                told = f"{quantity.short(asked[name], name)} {name}"
                said = (
                    f"its gang asks for {told}, and {full_name(line[:number])} has at most {quantity.short(most, name)}"
                )
                yield _problem(job, said, RAISE)


# -- Kueue ------------------------------------------------------------------------------------------------------------


def _by_kueue(text: str, file: str, found: Iterable[ScheduledJob]) -> Iterator[Problem]:
    from penstock.admission.manifests.read import manifest
    from penstock.admission.model import PodSet, Workload
    from penstock.admission.scheduler import Scheduler

    queues = Scheduler()
    queues.apply([one for one in manifest(text, file).objects if not isinstance(one, Workload)], 0.0)
    for each in found:
        job, name = each.job, each.binding.queue
        namespace = job.document.namespace or each.binding.namespace or "default"
        if f"{namespace}/{name}" not in queues.local_queues:
            known = [one.name for one in queues.local_queues.values() if one.namespace == namespace]
            fix = f"there are: {', '.join(known) or 'none'}.{nearest(name, known)}"
            yield _problem(job, f"there is no LocalQueue {name!r} in the namespace {namespace}", fix)
            continue
        sets = tuple(
            PodSet(
                name=one.name,
                count=one.count,
                requests={key: _units(key, amount) for key, amount in one.requests.items()},
            )
            for one in job.pod_sets
            if one.count
        )
        if not sets:
            continue
        workload = Workload(name=job.title, namespace=namespace, queue=name, podsets=sets)
        for short in queues.fits_ever(workload):
            asks = f"{_told(short.resource, short.asked)} {short.resource}"
            there = f"can have {_told(short.resource, short.potential)}" if short.potential else "has none"
            yield _problem(job, f"it asks for {asks}, and {queues.queue_of(workload)} {there}", RAISE)


def _units(name: str, amount: int) -> int:
    return amount if name == "cpu" else -(-amount // 1000)


def _told(name: str, amount: int) -> str:
    return quantity.short(amount if name == "cpu" else amount * 1000, name)
