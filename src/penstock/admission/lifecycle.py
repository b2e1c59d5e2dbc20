"""What becomes of a Workload that holds quota, and of one that has lost it: readiness, checks, evictions, backoffs, the way back
into line. Called by queues, and by cycle for the victims.

An eviction marks the Workload; its quota stays counted until whoever runs it says that it has stopped (`release`). Only a
Workload that was deactivated frees its quota at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from penstock.admission.hall import Hall
from penstock.admission.model import CheckState, Eviction, Stop, Workload

PREEMPTED: Final = "Preempted"
NOT_READY: Final = "PodsReadyTimeout"
CHECK: Final = "AdmissionCheck"
QUEUE_STOPPED: Final = "ClusterQueueStopped"
LOCAL_QUEUE_STOPPED: Final = "LocalQueueStopped"
DEACTIVATED: Final = "Deactivated"

_BACK_AT_ONCE = frozenset({PREEMPTED, "NodeFailures"})


class Evicted(NamedTuple):
    """Somebody has to stop."""

    key: str
    eviction: Eviction


# -- holding quota ----------------------------------------------------------------------------------------------------


def holds(workload: Workload) -> bool:
    """Does its admission count?"""
    leaving = workload.eviction is not None and workload.eviction.reason.startswith(DEACTIVATED)
    return workload.admission is not None and workload.active and not leaving


def restore(q: Hall, workload: Workload, now: float) -> None:
    """It has had its quota since before."""
    if holds(workload):
        workload.held = q.held_of(workload)
        q.state.hold(workload)
        if workload.ready_at is None:
            q.unready.add(workload.key)
        if q.ledger is not None and workload.admitted_at is not None:
            q.ledger.changed(_local_queue(workload), workload.held, 1, now)
        if workload.admitted_at is None:
            q.undecided[workload.key] = None
    else:
        workload.held = {}
    if workload.ready_at is None and workload.was_ready:
        q.lost.setdefault(workload.key, now)
    watch(q, workload)


def reserve(q: Hall, workload: Workload, now: float) -> None:
    """`workload.admission` is set, and counts from now on."""
    q.touched.add(workload.key)
    workload.held = q.held_of(workload)
    workload.memory = None
    workload.reserved_at, workload.last_eviction = now, None
    q.state.hold(workload)
    q.unready.add(workload.key)
    queue = q.cluster_queues[q.queue_of(workload)]
    if q.ledger is not None and queue.usage_based:
        q.ledger.reserved(_local_queue(workload), workload.key, _asked(q, workload), now)
    if required(q, workload) <= workload.checks.keys() and _all_ready(workload):
        admit(q, workload, now)


def _asked(q: Hall, workload: Workload) -> dict[str, int]:
    """Everything, however little of it was admitted."""
    queue = q.cluster_queues[q.queue_of(workload)]
    covered = {resource for group in queue.groups for resource in group.resources}
    found: dict[str, int] = {}
    for podset in workload.podsets:
        pods = max(0, podset.count - workload.reclaimable.get(podset.name, 0))
        for resource, amount in podset.requests.items():
            if resource in covered or not q.config.ignore_undeclared:
                found[resource] = found.get(resource, 0) + amount * pods
    return found


def admit(q: Hall, workload: Workload, now: float) -> None:
    workload.admitted_at = now
    q.touched.add(workload.key)
    if q.ledger is not None:
        q.ledger.changed(_local_queue(workload), workload.held, 1, now)
        if q.cluster_queues[q.queue_of(workload)].usage_based:
            q.ledger.admitted(_local_queue(workload), workload.key, now)
    watch(q, workload)


def shrink(q: Hall, workload: Workload, now: float) -> None:
    """Some of its pods are not needed any more."""
    assert workload.admission is not None
    if workload.key not in q.state.holders.get(workload.admission.cluster_queue, ()):
        return
    before = workload.held
    q.state.drop(workload)
    workload.held = q.held_of(workload)
    q.state.hold(workload)
    if q.ledger is not None and workload.admitted_at is not None:
        q.ledger.changed(_local_queue(workload), before, -1, now)
        q.ledger.changed(_local_queue(workload), workload.held, 1, now)
    q.flush(workload.admission.cluster_queue, now)


def let_go(q: Hall, workload: Workload, now: float) -> None:
    """What it holds is free. Whoever calls sees to the rest."""
    if workload.admission is None or workload.key not in q.state.holders.get(workload.admission.cluster_queue, ()):
        return
    q.touched.add(workload.key)
    q.state.drop(workload)
    q.unready.discard(workload.key)
    if workload.admitted_at is not None:
        workload.run_seconds += max(0, int(now - workload.admitted_at))
        if q.ledger is not None:
            q.ledger.changed(_local_queue(workload), workload.held, -1, now)
    workload.held = {}


def ready(q: Hall, workload: Workload, is_ready: bool, now: float) -> None:
    if workload.admission is None or (workload.ready_at is not None) == is_ready:
        return
    q.touched.add(workload.key)
    if is_ready:
        workload.ready_at, workload.was_ready = now, True
        q.unready.discard(workload.key)
        q.lost.pop(workload.key, None)
        if q.config.block_admission:
            q.stirred.update(q.trees)
    else:
        workload.ready_at = None
        q.unready.add(workload.key)
        q.lost[workload.key] = now
        watch(q, workload)


# -- evictions --------------------------------------------------------------------------------------------------------


def evict(q: Hall, workload: Workload, reason: str, now: float, preempted: str = "", by: str = "") -> Evicted:
    """It has to stop. Its checks have to be passed again afterwards."""
    q.touched.add(workload.key)
    workload.eviction = Eviction(reason, now, preempted, by)
    workload.checks = dict.fromkeys(workload.checks, CheckState.PENDING)
    return Evicted(workload.key, workload.eviction)


def release(q: Hall, workload: Workload, now: float) -> None:
    """It has stopped, or was never started."""
    queue = q.queue_of(workload)
    let_go(q, workload, now)
    q.touched.add(workload.key)
    eviction = workload.eviction
    workload.admission, workload.reserved_at, workload.admitted_at = None, None, None
    workload.ready_at, workload.was_ready, workload.memory = None, False, None
    q.lost.pop(workload.key, None)
    if eviction is not None:
        workload.eviction, workload.last_eviction = None, eviction
        workload.held_back = eviction.reason not in _BACK_AT_ONCE
        _let_back(q, workload, now)
    q.flush(queue, now)
    q.enqueue(workload, now)
    watch(q, workload)


def _let_back(q: Hall, workload: Workload, now: float) -> bool:
    """Nothing of what held it back is left? Then it may queue again."""
    if not workload.held_back or workload.last_eviction is None:
        return False
    reason = workload.last_eviction.reason
    local_queue = q.local_queues.get(_local_queue(workload))
    if reason in (NOT_READY, CHECK):
        over = workload.requeue_at is None or workload.requeue_at <= now
        if over:
            workload.requeue_at = None
    elif reason == QUEUE_STOPPED:
        queue = q.cluster_queues.get(local_queue.cluster_queue) if local_queue is not None else None
        over = queue is not None and queue.stop is Stop.NONE
    elif reason == LOCAL_QUEUE_STOPPED:
        over = local_queue is not None and local_queue.stop is Stop.NONE
    elif reason.startswith(DEACTIVATED):
        over = workload.active
    else:
        over = False
    if over:
        q.touched.add(workload.key)
        workload.held_back = False
    return over


def look_again(q: Hall, workload: Workload, now: float) -> None:
    if workload.admission is None and workload.held_back and _let_back(q, workload, now):
        q.enqueue(workload, now)


def unreserve(q: Hall, workload: Workload, now: float) -> None:
    """It had quota, but was not admitted yet: it just loses it."""
    queue = q.queue_of(workload)
    let_go(q, workload, now)
    workload.admission, workload.reserved_at, workload.memory = None, None, None
    q.flush(queue, now)
    q.enqueue(workload, now)


def set_active(q: Hall, workload: Workload, active: bool, now: float) -> list[Evicted]:
    if workload.active == active:
        return []
    q.touched.add(workload.key)
    workload.active = active
    if not active:
        return [found] if (found := _deactivate(q, workload, DEACTIVATED, now)) is not None else []
    _let_back(q, workload, now)
    q.enqueue(workload, now)
    return []


def _deactivate(q: Hall, workload: Workload, reason: str, now: float) -> Evicted | None:
    workload.active = False
    q.touched.add(workload.key)
    workload.requeue_at, workload.requeue_count = None, 0
    queue = q.queue_of(workload)
    if workload.admission is None:
        q.dequeue(workload)
        if q.ledger is not None:
            q.ledger.given_up(_local_queue(workload), workload.key)
        if workload.last_eviction is None:
            workload.last_eviction = Eviction(reason, now)
        found = None
    else:
        found = evict(q, workload, reason, now)
        let_go(q, workload, now)
    q.flush(queue, now)
    return found


def stops(q: Hall, now: float) -> list[Evicted]:
    """After a change of queues: who loses its quota because one of them is stopped or gone, and who may come back."""
    found = []
    for workload in list(q.workloads.values()):
        if workload.admission is None:
            look_again(q, workload, now)
            continue
        local_queue = q.local_queues.get(_local_queue(workload))
        queue = q.cluster_queues.get(workload.admission.cluster_queue)
        if workload.eviction is not None:
            continue
        if workload.admitted_at is None:
            if any(one is None or one.stop is not Stop.NONE for one in (local_queue, queue)):
                unreserve(q, workload, now)
        else:
            if local_queue is not None and local_queue.stop is Stop.DRAIN:
                found.append(evict(q, workload, LOCAL_QUEUE_STOPPED, now))
            elif queue is not None and queue.stop is Stop.DRAIN:
                found.append(evict(q, workload, QUEUE_STOPPED, now))
    return found


# -- checks -----------------------------------------------------------------------------------------------------------


def required(q: Hall, workload: Workload) -> set[str]:
    """The checks that its ClusterQueue asks for, on the flavors that it has."""
    assert workload.admission is not None
    queue = q.cluster_queues.get(workload.admission.cluster_queue)
    if queue is None or not queue.checks:
        return set()
    flavors = {flavor for podset in workload.admission.podsets for flavor in podset.flavors.values()}
    return {
        rule.name for rule in queue.checks if flavors and (not rule.flavors or not flavors.isdisjoint(rule.flavors))
    }


def _all_ready(workload: Workload) -> bool:
    return all(state is CheckState.READY for state in workload.checks.values())


def set_check(
    q: Hall, workload: Workload, name: str, state: CheckState, now: float, retry_after: float | None = None
) -> list[Evicted]:
    q.touched.add(workload.key)
    workload.checks[name] = state
    if state is CheckState.RETRY and retry_after is not None:
        workload.requeue_at = max(workload.requeue_at or 0.0, now + retry_after)
    if workload.admission is None:
        q.stir(q.queue_of(workload))
        return []
    return _by_checks(q, workload, now)


def ask_checks(q: Hall, keys: Iterable[str], now: float) -> list[Evicted]:
    """Those that have quota but wait for checks: which ones, and what do they say?"""
    found = []
    for key in keys:
        workload = q.workloads.get(key)
        if workload is None or workload.admission is None or workload.admitted_at is not None:
            continue
        names = required(q, workload)
        if workload.checks.keys() != names:
            q.touched.add(key)
            workload.checks = {name: workload.checks.get(name, CheckState.PENDING) for name in sorted(names)}
        if q.check is not None and workload.eviction is None:
            for name, state in workload.checks.items():
                if state is CheckState.PENDING:
                    workload.checks[name] = q.check(name, workload)
            q.undecided[key] = None
        found += _by_checks(q, workload, now)
    return found


def _by_checks(q: Hall, workload: Workload, now: float) -> list[Evicted]:
    if workload.eviction is not None:
        return []
    states = workload.checks.values()
    if CheckState.REJECTED in states:
        done = _deactivate(q, workload, f"{DEACTIVATED}DueTo{CHECK}", now)
        return [done] if done is not None else []
    if CheckState.RETRY in states:
        return [evict(q, workload, CHECK, now)]
    if workload.admitted_at is None and required(q, workload) <= workload.checks.keys() and _all_ready(workload):
        admit(q, workload, now)
    return []


# -- time -------------------------------------------------------------------------------------------------------------


def watch(q: Hall, workload: Workload) -> None:
    """Time may change something about it: be woken for that."""
    at = _alarm(q, workload)
    if at is not None:
        heappush(q.alarms, (at, workload.key))


def _alarm(q: Hall, workload: Workload) -> float | None:
    if workload.eviction is not None:
        return None
    if workload.admission is None:
        return workload.requeue_at
    times = [at for at in (_ready_by(q, workload), _end_by(workload)) if at is not None]
    return min(times, default=None)


def _ready_by(q: Hall, workload: Workload) -> float | None:
    """When it is given up if it is not ready by then."""
    timeout = q.config.pods_ready_timeout
    if timeout is None or workload.admitted_at is None or workload.ready_at is not None:
        return None
    if not workload.was_ready:
        return workload.admitted_at + timeout
    if q.config.pods_ready_recovery is None:
        return None
    return q.lost.get(workload.key, workload.admitted_at) + q.config.pods_ready_recovery


def _end_by(workload: Workload) -> float | None:
    if workload.max_seconds is None or workload.admitted_at is None:
        return None
    return workload.admitted_at + workload.max_seconds - workload.run_seconds


def tick(q: Hall, now: float) -> list[Evicted]:
    found: list[Evicted] = []
    while q.alarms and q.alarms[0][0] <= now:
        workload = q.workloads.get(heappop(q.alarms)[1])
        if workload is not None and workload.eviction is None:
            found += _wake(q, workload, now)
    if q.undecided:
        keys = list(q.undecided)
        q.undecided.clear()
        found += ask_checks(q, keys, now)
    if q.ledger is not None and q.ledger.sample_due(now):
        q.stirred.update(q.roots[name] for name, line in q.lines.items() if line.usage is not None and name in q.roots)
    return found


def _wake(q: Hall, workload: Workload, now: float) -> list[Evicted]:
    if workload.admission is None:
        if workload.requeue_at is not None and workload.requeue_at <= now:
            workload.requeue_at = None
            q.touched.add(workload.key)
            _let_back(q, workload, now)
            q.enqueue(workload, now)
        return []
    ends, ready_by = _end_by(workload), _ready_by(q, workload)
    if ends is not None and ends <= now:
        done = _deactivate(q, workload, f"{DEACTIVATED}DueToMaximumExecutionTimeExceeded", now)
        workload.run_seconds = 0.0
        return [done] if done is not None else []
    if ready_by is not None and ready_by <= now:
        return _never_ready(q, workload, now)
    return []


def _never_ready(q: Hall, workload: Workload, now: float) -> list[Evicted]:
    limit = q.config.backoff_limit
    if limit is not None and workload.requeue_count + 1 > limit:
        done = _deactivate(q, workload, f"{DEACTIVATED}DueToRequeuingLimitExceeded", now)
        return [done] if done is not None else []
    workload.requeue_count += 1
    wait = backoff(workload.requeue_count, q.config.backoff_base, q.config.backoff_max)
    workload.requeue_at = max(workload.requeue_at or 0.0, now + wait)
    return [evict(q, workload, NOT_READY, now)]


def backoff(count: int, base: float, most: float) -> float:
    """Seconds to wait after so many failures."""
    return min(base * 2.0 ** min(count - 1, 62), most)


def next_time(q: Hall, now: float) -> float | None:
    while q.alarms:
        at, key = q.alarms[0]
        workload = q.workloads.get(key)
        if workload is not None and _alarm(q, workload) == at:
            break
        heappop(q.alarms)
    times = [q.alarms[0][0]] if q.alarms else []
    sample = q.ledger.next_sample() if q.ledger is not None else None
    if sample is not None and sample > now:
        times.append(sample)
    return min(times, default=None)


def _local_queue(workload: Workload) -> str:
    return f"{workload.namespace}/{workload.queue}"
