"""Each part of the scheduler, built alone."""

from __future__ import annotations

import pytest

from penstock.admission.assignment import Mode
from penstock.admission.cache import SchedulerCache
from penstock.admission.checks import AdmissionChecks
from penstock.admission.cycle import SchedulingCycle
from penstock.admission.explain import Explainer
from penstock.admission.flavors import FlavorAssigner
from penstock.admission.lifecycle import Lifecycle
from penstock.admission.model import (
    Admission,
    Check,
    CheckResult,
    CheckRule,
    CheckState,
    ClusterQueue,
    Cohort,
    Config,
    Eviction,
    FlavorQuotas,
    FlavorResource,
    LocalQueue,
    Namespace,
    PodSet,
    PodSetAssignment,
    Policy,
    Preemption,
    PriorityClass,
    Quota,
    Requirement,
    ResourceFlavor,
    ResourceGroup,
    Selector,
    Stop,
    Strategy,
    Workload,
)
from penstock.admission.pending import PendingQueue, RequeueReason
from penstock.admission.preemption import Preemptor
from penstock.admission.queues import QueueManager
from penstock.admission.timers import Timers
from penstock.admission.workloads import WorkloadIndex

CPU = FlavorResource("f", "cpu")
GROUPS = (ResourceGroup(("cpu",), (FlavorQuotas("f", {"cpu": Quota(4)}),)),)


def cache_of(*queues: ClusterQueue, config: Config | None = None) -> SchedulerCache:
    cache = SchedulerCache(config or Config())
    for found in (ResourceFlavor(name="f"), *(queues or (ClusterQueue(name="cq", groups=GROUPS),))):
        cache.put(found)
        if isinstance(found, ClusterQueue):
            cache.put(LocalQueue(name=found.name, cluster_queue=found.name))
    cache.rebuild()
    return cache


def workload(name: str, cpus: int, queue: str = "cq", held_in: str | None = None, **more: object) -> Workload:
    found = Workload(name=name, queue=queue, podsets=(PodSet(requests={"cpu": cpus}),), **more)  # type: ignore[arg-type]
    if held_in is not None:
        found.admission = Admission(held_in, (PodSetAssignment("main", 1, {"cpu": "f"}, {"cpu": cpus}),))
        found.held, found.reserved_at = {CPU: cpus}, 0.0
    return found


# -- cache ------------------------------------------------------------------------------------------------------------


def test_the_cache_knows_what_is_configured() -> None:
    cache = SchedulerCache(Config())
    assert cache.put(ClusterQueue(name="cq", groups=GROUPS)) and not cache.put(PriorityClass("high", 1))
    assert not cache.put(LocalQueue(name="lq", cluster_queue="cq"))
    cache.rebuild()
    assert cache.inactive("cq") == "flavor f not found"
    assert cache.put(ResourceFlavor(name="f"))
    cache.rebuild()
    assert cache.inactive("cq") == "" and cache.queue_of(workload("w", 1, "lq")) == "cq"
    assert cache.queue_of(workload("w", 1, "other")) == ""
    assert cache.delete(ClusterQueue, "cq") and not cache.delete(ClusterQueue, "cq")
    assert not cache.delete(LocalQueue, "default/lq") and not cache.local_queues
    assert cache.inactive("cq") == "it does not exist"


def test_the_cache_knows_which_queues_share_quota() -> None:
    queues = [
        ClusterQueue(name=name, groups=GROUPS, cohort=cohort)
        for name, cohort in zip("abc", ("low", "top", None), strict=True)
    ]
    cache = cache_of(*queues)
    cache.put(Cohort(name="low", parent="top"))
    cache.rebuild()
    assert cache.trees == {"cohort/top": ["a", "b"], "queue/c": ["c"]}
    cache.put(Cohort(name="top", parent="low"))
    cache.rebuild()
    assert cache.trees == {"queue/c": ["c"]} and "form a circle: low, top" in cache.inactive("a")


def test_the_cache_selects_namespaces() -> None:
    cache = cache_of(ClusterQueue(name="cq", namespaces=Selector((Requirement("team", "In", ("a",)),))))
    cache.put(Namespace("mine", {"team": "a"}))
    admits = cache.admits("cq")
    assert admits is not None and admits("mine") and not admits("other")
    assert cache_of().admits("cq") is None


# -- queues -----------------------------------------------------------------------------------------------------------


def test_a_pending_queue() -> None:
    queue = PendingQueue("cq", Strategy.BEST_EFFORT, Config())
    queue.push(workload("low", 1), 0.0)
    queue.push(workload("high", 2, priority=1), 0.0)
    head = queue.pop()
    assert head is not None and head.workload.name == "high"
    assert not queue.requeue(head, RequeueReason.NO_FIT, 0.0) and queue.is_inadmissible("default/high")
    assert [found.name for found in queue.in_order()] == ["high", "low"]
    assert queue.requeue_inadmissible(1.0) == 1 and not queue.is_inadmissible("default/high")


def test_the_queue_manager_knows_where_a_cycle_may_decide_something() -> None:
    cache = cache_of()
    queues = QueueManager(cache, WorkloadIndex())
    queues.rebuild(0.0)
    queues.changed.clear()
    queues.enqueue(workload("w", 1), 0.0)
    assert queues.changed == {"queue/cq"} and queues.waiting_beside("cq") == 1
    (head,) = queues.pop_heads()
    assert (head.queue, head.pending.workload.name, head.preemptor) == ("cq", "w", False)
    assert not queues.heads() and not list(queues.pop_heads())


def test_the_queue_manager_moves_the_workloads_of_a_local_queue() -> None:
    cache, index = cache_of(*(ClusterQueue(name=name, groups=GROUPS) for name in ("a", "b"))), WorkloadIndex()
    queues = QueueManager(cache, index)
    queues.rebuild(0.0)
    found = workload("w", 1, "a")
    index.add(found)
    queues.enqueue(found, 0.0)
    queues.update_local_queue("default/a", LocalQueue(name="a", cluster_queue="b"), 1.0)
    assert not queues.in_order("a") and queues.in_order("b") == [found]
    queues.update_local_queue("default/a", LocalQueue(name="a", cluster_queue="b", stop=Stop.HOLD), 2.0)
    assert not queues.in_order("b")
    queues.update_local_queue("default/a", None, 3.0)
    assert "default/a" not in cache.local_queues


def test_the_index_of_workloads() -> None:
    index, found = WorkloadIndex(), workload("w", 1)
    index.add(found)
    assert index.of("default/cq") == [found] and index.touched == {found.key}
    index.remove(found)
    assert not index.by_key and not index.by_local_queue and not index.of("default/cq")


# -- decisions --------------------------------------------------------------------------------------------------------


def test_the_flavor_assigner() -> None:
    assigner = FlavorAssigner(cache_of().snapshot, lambda *_: (Mode.NO_CANDIDATES, 0))
    assert assigner.assign(workload("w", 4), "cq").usage == {CPU: 4}
    assert assigner.assign(workload("w", 5), "cq").no_fit == "ExceedsMaxQuota"


def test_the_preemptor() -> None:
    snapshot = cache_of(ClusterQueue(name="cq", groups=GROUPS, preemption=Preemption(within=Policy.LOWER))).snapshot
    low = workload("low", 3, held_in="cq")
    snapshot.hold(low)
    preemptor, high = Preemptor(snapshot), workload("high", 2, priority=1)
    assert preemptor.simulate(high, "cq", CPU, 2) == (Mode.PREEMPT, 0)
    assignment = FlavorAssigner(snapshot, preemptor.simulate).assign(high, "cq")
    assert preemptor.targets(high, "cq", assignment, 1.0) == [(low, "InClusterQueue")]
    assert preemptor.simulate(workload("equal", 2), "cq", CPU, 2)[0] is Mode.NO_CANDIDATES
    assert snapshot.tree.queues["cq"].usage == {CPU: 3}


def test_a_scheduling_cycle_takes_nothing_for_good() -> None:
    cache = cache_of(*(ClusterQueue(name=name, groups=GROUPS, cohort="all") for name in ("a", "b")))
    queues = QueueManager(cache, WorkloadIndex())
    queues.rebuild(0.0)
    for name in ("a", "b"):
        queues.enqueue(workload(name, 5, name), 0.0)
    preemptor = Preemptor(cache.snapshot)
    cycle = SchedulingCycle(cache, FlavorAssigner(cache.snapshot, preemptor.simulate), preemptor, 0.0)
    cycle.run(queues.pop_heads())
    assert [(entry.workload.name, entry.decision) for entry in cycle.processed] == [("a", "admit"), ("b", "skip")]
    assert not any(cache.snapshot.tree.cohorts["all"].usage.values())


def test_the_explainer() -> None:
    cache = cache_of(ClusterQueue(name="cq", groups=GROUPS), ClusterQueue(name="other", groups=GROUPS))
    queues = QueueManager(cache, WorkloadIndex())
    queues.rebuild(0.0)
    cache.snapshot.hold(workload("holder", 3, held_in="cq"))
    found = workload("w", 2)
    queues.enqueue(found, 0.0)
    explainer = Explainer(cache, queues, FlavorAssigner(cache.snapshot, Preemptor(cache.snapshot).simulate), {})
    hold = explainer.explain(found, 0.0)
    assert (hold.kind, hold.rule, hold.elsewhere) == ("quota", "nominalQuota of ClusterQueue cq", ("other",))
    assert [(one.asked, one.available, one.enough) for one in hold.short] == [(2, 1, ("default/holder",))]
    assert [one.kind for one in explainer.fits_ever(workload("big", 9))] == ["exceedsMax"]


# -- lifecycle --------------------------------------------------------------------------------------------------------


def test_the_lifecycle_of_a_workload() -> None:
    cache, index = cache_of(), WorkloadIndex()
    queues = QueueManager(cache, index)
    queues.rebuild(0.0)
    lifecycle = Lifecycle(cache, queues, index, Timers(Config()), AdmissionChecks(cache))
    found = workload("w", 3, held_in="cq")
    index.add(found)
    lifecycle.reserve(found, 1.0)
    assert found.admitted_at == 1.0 and cache.snapshot.tree.queues["cq"].usage == {CPU: 3}
    lifecycle.evict(found, "Preempted", 2.0, "InClusterQueue", "default/other")
    assert cache.snapshot.holds(found)
    lifecycle.release(found, 3.0)
    assert not cache.snapshot.holds(found) and queues.in_order("cq") == [found]


def test_timers() -> None:
    timers = Timers(Config(pods_ready_timeout=10.0, pods_ready_recovery=5.0))
    found = workload("w", 1, held_in="cq", admitted_at=100.0, max_seconds=50.0, run_seconds=20.0)
    timers.watch(found)
    assert timers.next_time({found.key: found}) == 110.0 and not list(timers.pop_due(109.0))
    assert list(timers.pop_due(110.0)) == [found.key]
    found.ready_at, found.was_ready = 105.0, True
    assert timers.next_of(found) == 130.0
    found.ready_at, timers.not_ready_since[found.key] = None, 120.0
    assert timers.next_of(found) == 125.0
    found.eviction = Eviction("Preempted", 121.0)
    assert timers.next_of(found) is None


@pytest.mark.parametrize(("flavors", "required"), [((), {"c"}), (("f",), {"c"}), (("g",), set())])
def test_admission_checks_are_required_by_flavor(flavors: tuple[str, ...], required: set[str]) -> None:
    cache = cache_of(ClusterQueue(name="cq", groups=GROUPS, checks=(CheckRule("c", flavors),)))
    assert AdmissionChecks(cache).required(workload("w", 1, held_in="cq")) == required


def test_admission_checks_keep_the_message_of_an_answer() -> None:
    cache = cache_of(ClusterQueue(name="cq", groups=GROUPS, checks=(CheckRule("c"),)))
    cache.put(Check("c"))
    answers: list[CheckState | CheckResult] = [
        CheckResult(CheckState.PENDING, "no answer"),
        CheckResult(CheckState.PENDING, "no answer"),
        CheckState.READY,
    ]
    checks = AdmissionChecks(cache, lambda name, workload: answers.pop(0))
    found = workload("w", 1, held_in="cq")
    assert checks.ask(found) and found.check_messages == {"c": "no answer"}
    assert not checks.ask(found), "the same answer is no change"
    assert checks.ask(found) and checks.all_ready(found) and not found.check_messages
