"""Family `ordering`: the order in a queue, in a cycle and among preemption candidates; and which heads are requeued."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.admission.cache import selects
from penstock.admission.candidates import full_order, plain_order
from penstock.admission.fair_order import rank
from penstock.admission.fair_preemption import TargetQueueOrdering
from penstock.admission.manifests import read
from penstock.admission.manifests.times import time_of
from penstock.admission.model import ClusterQueue, LocalQueue, Namespace, Selector, Strategy, Workload
from penstock.admission.order import cycle_key, queue_key, queue_time
from penstock.admission.pending import PendingQueue, PendingWorkload, RequeueReason, may_queue, ready_to_queue, shape_of
from penstock.admission.scheduler import Scheduler
from penstock.admission.shares import Share
from penstock.admission.snapshot import Snapshot
from tests.conformance.families.cases import amounts, config_of, now_of, objects_of
from tests.conformance.families.given import state_of, workload_of

Case = dict[str, Any]


def check(case: Case) -> None:
    kinds = {
        "queueOrder": _queue_order,
        "queueScript": _queue_script,
        "queueHead": _queue_head,
        "queueTimestamp": _queue_timestamp,
        "heads": _heads,
        "cycleOrder": _cycle_order,
        "fairCycleCompare": _fair_cycle_compare,
        "preemptionCandidates": _candidates,
        "fairPreemptionQueueOrder": _fair_queue_order,
        "requeue": _requeue,
        "requeueAllowed": _requeue_allowed,
        "backoff": _backoff,
        "queueOperations": _operations,
        "flushInadmissible": _flush,
    }
    assert case["kind"] in kinds, f"no check for the kind {case['kind']!r}"
    kinds[case["kind"]](case)


def _pending_queue(case: Case) -> PendingQueue:
    return PendingQueue("cq", Strategy(case["given"].get("queueingStrategy", "BestEffortFIFO")), config_of(case))


def _place(workload: Workload, line: PendingQueue) -> PendingWorkload:
    return PendingWorkload(workload, queue_key(workload, line.config), shape_of(workload, line.config), "")


def _queue_order(case: Case) -> None:
    line, now = _pending_queue(case), now_of(case)
    for doc in case["given"]["workloads"]:
        line.push(workload_of(doc), now)
    assert [workload.name for workload in line.in_order()] == case["expect"]["order"]
    found = []
    while (place := line.pop()) is not None:
        found.append(place.workload.name)
    assert found == case["expect"]["order"]


def _queue_script(case: Case) -> None:
    line, now = _pending_queue(case), now_of(case)
    for step in case["given"]["script"]:
        if "push" in step:
            line.push(workload_of(step["push"]), now)
        elif "delete" in step:
            line.remove(step["delete"])
        else:
            place = line.pop()
            assert (place.workload.name if place is not None else None) == step["pop"]


def _queue_head(case: Case) -> None:
    given, now = case["given"], now_of(case)
    queues = Scheduler(config_of(case))
    (queue,) = read.objects_of([given["clusterQueue"]])
    assert isinstance(queue, ClusterQueue)
    listed = [one for one in read.objects_of(given["localQueues"]) if isinstance(one, LocalQueue)]
    queues.apply([queue, *(replace(one, cluster_queue=queue.name) for one in listed)], now)
    for key, usage in given["initialLocalQueueUsage"].items():
        assert queues.cache.ledger is not None
        queues.cache.ledger.seed(key, amounts(usage), now)
    for doc in given["workloads"]:
        queues.submit(workload_of(doc), now)
    assert queues.heads()[queue.name].name == case["expect"]["head"]


def _queue_timestamp(case: Case) -> None:
    workload, config = workload_of(case["given"]["workload"]), config_of(case)
    for setting, expected in case["expect"]["timestampByPodsReadyRequeuingTimestamp"].items():
        assert queue_time(workload, replace(config, requeue_by_eviction=setting == "Eviction")) == time_of(expected)


def _heads(case: Case) -> None:
    given, now = case["given"], now_of(case)
    queues = Scheduler(config_of(case))
    objects, workloads = objects_of(given)
    queues.apply(objects, now)
    queues.cache.why_inactive.update(dict.fromkeys(given["inactiveClusterQueues"], "the case says so"))
    for workload in workloads:
        queues.submit(workload, now)
    assert {workload.name for workload in queues.heads().values()} == set(case["expect"]["heads"])


def _cycle_order(case: Case) -> None:
    config = config_of(case)
    entries = [(workload_of(entry["workload"]), entry) for entry in case["given"]["entries"]]
    keys = {
        workload.name: cycle_key(workload, entry["borrowingLevel"], entry["isPreemptor"], config)[:4]
        for workload, entry in entries
    }
    expected = case["expect"]["order"]
    ranked = [keys[name] for name in expected]
    assert ranked == sorted(keys.values())
    for tied in case["expect"].get("ties", ()):
        assert len({keys[name] for name in tied}) == 1


def _fair_cycle_compare(case: Case) -> None:
    config = config_of(case)
    ranks = []
    for side in (case["given"]["a"], case["given"]["b"]):
        share = side["share"]
        found = Share(float(share["weight"]), float(share["unweightedRatio"]), share["dominantResource"])
        assert found.weighted == float(share["weightedShare"])
        workload = workload_of(side["workload"])
        ranks.append(rank(workload, found, side["borrowsOnRequestedFlavors"], side["isPreemptor"], config)[:5])
    assert (ranks[0] < ranks[1]) is case["expect"]["aBeforeB"]


def _candidates(case: Case) -> None:
    state = Snapshot(config_of(case))
    usages: dict[str, float] = {}
    found = []
    for candidate in case["given"]["candidates"]:
        workload = workload_of(candidate["workload"])
        workload.eviction = workload.eviction or workload.last_eviction
        usage = candidate.get("localQueueFairSharingUsage")
        if usage is not None:
            usages[f"{workload.namespace}/{workload.queue}"] = float(usage)
            name = candidate["clusterQueue"]
            state.cluster_queues[name] = ClusterQueue(name=name, usage_based=True)
        found.append(workload)
    if case["config"]["featureGates"].get("AdmissionFairSharing"):
        state.local_usage = usages.__getitem__
    order = full_order(state, case["given"]["preemptorClusterQueue"], now_of(case))
    assert [workload.name for workload in sorted(found, key=order)] == case["expect"]["order"]


def _fair_queue_order(case: Case) -> None:
    given, state = case["given"], state_of(case)
    node = state.tree.queues[given["preemptorClusterQueue"]]
    candidates = [
        workload for name in given["candidateClusterQueues"] for workload in state.holders.get(name, {}).values()
    ]
    order = plain_order(state.config, now_of(case))
    turns = TargetQueueOrdering(node, sorted(candidates, key=order), order)
    found = []
    for number, target in enumerate(turns):
        found.append(target.name)
        if given["actions"][number] == "drop":
            turns.drop(target)
        else:
            turns.pop(target)
    assert found == case["expect"]["order"]


def _requeue(case: Case) -> None:
    given, now = case["given"], now_of(case)
    line = _pending_queue(case)
    workload = Workload(name="wl")
    tried = [index for podset in given.get("lastTriedFlavorIdx") or () for index in podset.values()]
    line.push(workload, now)
    place = line.pop()
    assert place is not None
    line.requeue(place, RequeueReason(given["requeueReason"] or "Generic"), now, any(index != -1 for index in tried))
    assert line.is_inadmissible(workload.key) is case["expect"]["inadmissible"]
    assert line.sticky is case["expect"].get("sticky", False)


def _requeue_allowed(case: Case) -> None:
    given, now = case["given"], now_of(case)
    queues = Scheduler(config_of(case))
    objects, _ = objects_of(given)
    queues.apply(objects, now)
    workload = workload_of(given["workload"])
    if given["alreadyAddedToQueue"]:
        queues.submit(workload, now)
    line = queues.queues.pending.get(queues.queue_of(workload))
    requeued = False
    if given["inAPIServer"] and line is not None and may_queue(workload, queues.config):
        before = workload.key in line.workloads
        line.requeue(_place(workload, line), RequeueReason.GENERIC, now)
        requeued = not before and workload.key in line.workloads
    assert requeued is case["expect"]["requeued"]


def _backoff(case: Case) -> None:
    assert ready_to_queue(workload_of(case["given"]["workload"]), now_of(case)) is case["expect"]["readyToQueue"]


def _operations(case: Case) -> None:
    given, expect, now = case["given"], case["expect"], now_of(case)
    (queue,) = read.objects_of([given["clusterQueue"]])
    assert isinstance(queue, ClusterQueue)
    named = {one.name: one for one in read.objects_of(given["namespaces"]) if isinstance(one, Namespace)}
    selector = queue.namespaces or Selector()
    line = PendingQueue(queue.name, queue.strategy, config_of(case))
    for doc in given["push"]:
        line.push(workload_of(doc), now)
    for doc in given["requeueAsInadmissible"]:
        line.requeue(_place(workload_of(doc), line), RequeueReason.GENERIC, now)
    for doc in given["requeueImmediately"]:
        line.requeue(_place(workload_of(doc), line), RequeueReason.FAILED, now)
    for doc in given["update"]:
        line.push(workload_of(doc), now)
    for key in given["delete"]:
        line.remove(key)
    moved = 0
    if given["thenFlushInadmissible"]:
        moved = line.requeue_inadmissible(now, lambda name: name in named and selects(selector, named[name].labels))
    assert moved == expect["movedByFlush"]
    assert {key for key in line.workloads if not line.is_inadmissible(key)} == set(expect["active"])
    assert {key for key in line.workloads if line.is_inadmissible(key)} == set(expect["inadmissible"])
    assert len(line) == expect["pendingTotal"]


def _flush(case: Case) -> None:
    given, expect, now = case["given"], case["expect"], now_of(case)
    queues = Scheduler(config_of(case))
    objects, workloads = objects_of(given)
    queues.apply(objects, now)
    for workload in workloads:
        queues.submit(workload, now)
        line = queues.queues.pending.get(queues.queue_of(workload))
        if line is not None and workload.key in line.workloads:
            place = line.workloads[workload.key]
            line.remove(workload.key)
            line.requeue(place, RequeueReason.NAMESPACE, now)
    before = _waiting(queues, True)
    for name in given["flushClusterQueues"]:
        queues.queues.requeue_inadmissible(name, now)
    after = _waiting(queues, True)
    assert after == {name: set(keys) for name, keys in expect["inadmissible"].items()}
    assert _waiting(queues, False) == {name: set(keys) for name, keys in expect["active"].items()}
    assert sum(map(len, before.values())) - sum(map(len, after.values())) == expect["moved"]


def _waiting(queues: Scheduler, inadmissible: bool) -> dict[str, set[str]]:
    found = {
        name: {key for key in queue.workloads if queue.is_inadmissible(key) is inadmissible}
        for name, queue in queues.queues.pending.items()
    }
    return {name: keys for name, keys in found.items() if keys}
