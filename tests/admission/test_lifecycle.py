"""The lifecycle of Workloads: evictions and requeuing, checks, stop policies, time, and the order that follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.admission.model import (
    Check,
    CheckResult,
    CheckRule,
    CheckState,
    ClusterQueue,
    Config,
    FlavorQuotas,
    LocalQueue,
    Namespace,
    PodSet,
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
from penstock.admission.scheduler import Scheduler
from penstock.admission.timers import backoff


def queue(name: str = "cq", cpus: int = 4, **more: object) -> ClusterQueue:
    group = ResourceGroup(("cpu",), (FlavorQuotas("f", {"cpu": Quota(cpus)}),))
    return ClusterQueue(name=name, groups=(group,), **more)  # type: ignore[arg-type]


def make(config: Config | None = None, *queues: ClusterQueue, checks: tuple[str, ...] = ()) -> Scheduler:
    found = Scheduler(config)
    listed = queues or (queue(),)
    found.apply(
        [
            ResourceFlavor(name="f"),
            *(Check(name) for name in checks),
            *listed,
            *(LocalQueue(name=each.name, cluster_queue=each.name) for each in listed),
        ],
        0.0,
    )
    return found


def put(q: Scheduler, name: str, cpus: int, now: float = 0.0, **more: object) -> Workload:
    more = {"queue": "cq", "created": now, **more}
    workload = Workload(name=name, podsets=(PodSet(requests={"cpu": cpus}),), **more)  # type: ignore[arg-type]
    q.submit(workload, now)
    return workload


def holding(q: Scheduler) -> set[str]:
    return {workload.name for workload in q.workloads.values() if workload.admission is not None}


def is_inadmissible(q: Scheduler, key: str) -> bool:
    return q.queues.pending[q.queue_of(q.workloads[key])].is_inadmissible(key)


def waiting(q: Scheduler, name: str = "cq") -> list[str]:
    return [workload.name for workload in q.pending(name)]


# -- queueing -----------------------------------------------------------------------------------------------------------


def test_a_head_that_does_not_fit_blocks_a_strict_queue_only() -> None:
    q = make(None, queue("cq", strategy=Strategy.STRICT), queue("other", strategy=Strategy.BEST_EFFORT))
    for name in ("cq", "other"):
        put(q, f"big-{name}", 5, queue=name)
        put(q, f"small-{name}", 1, 1.0, queue=name)
    q.settle(1.0)
    assert holding(q) == {"small-other"}
    assert [is_inadmissible(q, f"default/big-{name}") for name in ("cq", "other")] == [False, True]


def test_workloads_of_the_same_shape_become_inadmissible_together_and_active_together() -> None:
    q = make()
    put(q, "first", 4)
    q.settle(0.0)
    for number in range(3):
        put(q, f"same-{number}", 2, 1.0 + number)
    put(q, "unlike", 3, 5.0)
    (first, second, *_) = q.settle(6.0)
    assert [decision.workload for decision in first.decisions] == ["default/same-0"]
    assert [decision.workload for decision in second.decisions] == ["default/unlike"]
    assert all(is_inadmissible(q, f"default/same-{number}") for number in range(3))
    late = put(q, "same-late", 2, 7.0)
    assert is_inadmissible(q, late.key) and not q.heads()
    q.finish("default/first", 8.0)
    assert waiting(q) == ["same-0", "same-1", "same-2", "unlike", "same-late"]
    q.settle(8.0)
    assert holding(q) == {"same-0", "same-1"}


def test_a_gated_workload_keeps_its_position() -> None:
    q = make()
    put(q, "first", 4)
    q.settle(0.0)
    put(q, "gated", 1, 1.0, gates=frozenset({"a", "b"}))
    put(q, "later", 4, 2.0)
    assert waiting(q) == ["later"] and [workload.name for workload in q.gated("cq")] == ["gated"]
    q.ungate("default/gated", "a", 3.0)
    assert waiting(q) == ["later"]
    q.ungate("default/gated", "b", 3.0)
    assert waiting(q) == ["gated", "later"] and not q.gated("cq")


def test_a_workload_of_a_namespace_that_is_not_selected_waits_until_it_is() -> None:
    wanted = Selector((Requirement("team", "In", ("a",)),))
    q = make(None, queue(namespaces=wanted))
    workload = put(q, "w", 1)
    (cycle,) = q.settle(0.0)
    assert cycle.decisions[0].decision == "inadmissible" and is_inadmissible(q, workload.key)
    q.apply([Namespace("default", {"team": "a"})], 1.0)
    q.settle(1.0)
    assert holding(q) == {"w"}


def test_changes_of_a_priority_class_reach_those_that_name_it() -> None:
    q = make()
    q.apply([PriorityClass("high", 10)], 0.0)
    put(q, "first", 4)
    q.settle(0.0)
    put(q, "plain", 1, 1.0, priority=5)
    named = put(q, "named", 1, 2.0, priority_class="high")
    assert named.priority == 10 and waiting(q) == ["named", "plain"]
    q.apply([PriorityClass("high", 1)], 3.0)
    assert named.priority == 1 and waiting(q) == ["plain", "named"]


@pytest.mark.parametrize(
    ("strategy", "priority_class", "tried"),
    [
        (Strategy.BEST_EFFORT, None, False),
        (Strategy.BEST_EFFORT, "any", True),
        (Strategy.STRICT, None, True),
        (Strategy.STRICT, "any", True),
    ],
)
def test_inadmissible_workloads_are_tried_again_when_one_that_runs_loses_its_priority_only_if_it_has_a_class(
    strategy: Strategy, priority_class: str | None, tried: bool
) -> None:
    """Observed in Kueue v0.19.2: without a class the priority changes, but inadmissible Workloads are not requeued. Active ones see it."""
    q = make(None, queue(preemption=Preemption(within=Policy.LOWER), strategy=strategy))
    runs = put(q, "runs", 4, priority=10, priority_class=priority_class)
    q.settle(0.0)
    put(q, "waits", 4, 1.0, priority=10)
    q.settle(1.0)
    q.set_priority(runs.key, 0, 2.0)
    q.settle(2.0)
    assert (runs.eviction is not None) is tried


# -- preemption --------------------------------------------------------------------------------------------------------


def test_a_preempted_workload_holds_its_quota_until_it_has_stopped_and_then_queues_near_the_front() -> None:
    q = make(None, queue(preemption=Preemption(within=Policy.LOWER)))
    victim = put(q, "victim", 4)
    q.settle(0.0)
    put(q, "between", 4, 1.0)
    high = put(q, "high", 4, 2.0, priority=1)
    cycles = q.settle(2.0)
    assert [(found.workload, found.reason, found.by) for cycle in cycles for found in cycle.preempted] == [
        (victim.key, "InClusterQueue", high.key)
    ]
    assert victim.eviction is not None and victim.admission is not None and not q.settle(3.0)
    q.release(victim.key, 4.0)
    assert victim.admission is None and not victim.held_back
    q.settle(4.0)
    assert holding(q) == {"high"} and waiting(q) == ["victim", "between"]


def test_quota_that_is_reserved_for_a_head_is_free_in_a_cycle_in_which_it_does_not_take_part() -> None:
    """Observed in Kueue v0.19.2: a skipped head is tried again at once, and the head that it was skipped for is inadmissible by then."""
    q = make(None, queue("cq", cohort="all"), queue("other", cohort="all"))
    put(q, "runs", 6, queue="other")
    q.settle(0.0)
    put(q, "first", 4, 1.0)
    put(q, "behind", 2, 2.0, queue="other")
    first, *_ = q.settle(2.0)
    assert [found.decision for found in first.decisions] == ["noPreemptionCandidates", "skip"]
    assert holding(q) == {"runs", "behind"}


def test_a_workload_that_waits_for_its_preemption_targets_stays_in_front() -> None:
    q = make(None, queue(preemption=Preemption(within=Policy.LOWER)))
    victim = put(q, "victim", 4)
    q.settle(0.0)
    put(q, "preemptor", 4, 1.0, priority=1)
    q.settle(1.0)
    put(q, "higher", 5, 2.0, priority=2)
    assert waiting(q) == ["preemptor", "higher"]
    q.release(victim.key, 3.0)
    q.settle(3.0)
    assert holding(q) == {"preemptor"}


# -- readiness ---------------------------------------------------------------------------------------------------------


def test_backoff_doubles_up_to_its_limit() -> None:
    assert [backoff(n, 60.0, 3600.0) for n in range(1, 9)] == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_a_workload_that_is_never_ready_backs_off_and_is_deactivated_in_the_end() -> None:
    q = make(Config(pods_ready_timeout=10.0, backoff_limit=1))
    slow = put(q, "slow", 4)
    q.settle(0.0)
    assert q.next_time(0.0) == 10.0 and not q.tick(9.0)
    ((key, eviction),) = q.tick(10.0)
    assert (key, eviction.reason) == (slow.key, "PodsReadyTimeout")
    q.release(key, 11.0)
    assert slow.requeue_at == 70.0 and slow.held_back and is_inadmissible(q, key)
    put(q, "other", 4, 12.0)
    q.settle(12.0)
    assert holding(q) == {"other"}
    assert q.next_time(12.0) == 22.0
    q.finish("default/other", 20.0)
    q.settle(69.0)
    assert not holding(q)
    q.settle(70.0)
    assert holding(q) == {"slow"} and slow.requeue_count == 1
    ((_, eviction),) = q.tick(80.0)
    assert eviction.reason == "DeactivatedDueToRequeuingLimitExceeded" and not slow.active
    assert not slow.held, "a deactivated Workload frees its quota at once"
    q.release(slow.key, 81.0)
    assert slow.held_back and not waiting(q)
    q.set_active(slow.key, True, 82.0)
    q.settle(82.0)
    assert holding(q) == {"slow"}


def test_a_timeout_puts_it_behind_those_that_were_created_meanwhile() -> None:
    for by_eviction, expected in ((True, ["other", "slow"]), (False, ["slow", "other"])):
        q = make(Config(pods_ready_timeout=10.0, requeue_by_eviction=by_eviction, backoff_base=0.0))
        put(q, "slow", 4)
        q.settle(0.0)
        put(q, "other", 4, 5.0)
        q.tick(10.0)
        q.release("default/slow", 10.0)
        assert waiting(q) == expected


def test_ready_in_time_is_left_alone_until_it_is_lost() -> None:
    q = make(Config(pods_ready_timeout=10.0, pods_ready_recovery=5.0))
    put(q, "w", 4)
    q.settle(0.0)
    q.ready("default/w", 1.0)
    assert not q.tick(100.0)
    q.ready("default/w", 100.0, False)
    assert q.next_time(100.0) == 105.0
    assert [found.eviction.reason for found in q.tick(105.0)] == ["PodsReadyTimeout"]


def test_block_admission_waits_for_readiness() -> None:
    q = make(Config(pods_ready_timeout=10.0, block_admission=True))
    for name in "abc":
        put(q, name, 1)
    for number, name in enumerate("abc", 1):
        q.settle(float(number))
        assert holding(q) == set("abc"[:number])
        q.ready(f"default/{name}", float(number))


def test_running_too_long_ends_it_and_earlier_runs_count() -> None:
    q = make(None, queue(preemption=Preemption(within=Policy.LOWER)))
    workload = put(q, "w", 4, max_seconds=10.0)
    q.settle(0.0)
    put(q, "high", 4, 6.0, priority=1)
    q.settle(6.0)
    q.release(workload.key, 6.0)
    q.settle(6.0)
    q.finish("default/high", 7.0)
    q.settle(7.0)
    assert workload.run_seconds == 6.0 and q.next_time(7.0) == 11.0
    assert [found.eviction.reason for found in q.tick(11.0)] == ["DeactivatedDueToMaximumExecutionTimeExceeded"]


# -- checks ------------------------------------------------------------------------------------------------------------


def checked(config: Config | None = None) -> Scheduler:
    return make(config, queue(checks=(CheckRule("c"),)), checks=("c",))


def test_quota_is_held_while_a_check_is_pending() -> None:
    q = checked()
    workload = put(q, "w", 4)
    (cycle, *_) = q.settle(0.0)
    assert cycle.reserved == (workload.key,) and not cycle.admitted and workload.checks == {"c": CheckState.PENDING}
    q.set_check(workload.key, "c", CheckState.READY, 1.0)
    assert workload.admitted_at == 1.0


def test_a_check_may_ask_for_a_retry() -> None:
    q = checked()
    workload = put(q, "w", 4)
    q.settle(0.0)
    (found,) = q.set_check(workload.key, "c", CheckState.RETRY, 1.0, retry_after=30.0)
    assert found.eviction.reason == "AdmissionCheck" and workload.checks == {"c": CheckState.PENDING}
    q.release(workload.key, 2.0)
    q.settle(30.0)
    assert not holding(q)
    q.settle(31.0)
    assert holding(q) == {"w"}


def test_a_check_may_reject() -> None:
    q = checked()
    workload = put(q, "w", 4)
    q.settle(0.0)
    (found,) = q.set_check(workload.key, "c", CheckState.REJECTED, 1.0)
    assert found.eviction.reason == "DeactivatedDueToAdmissionCheck" and not workload.active and not workload.held


def test_checks_may_be_a_function() -> None:
    said = {"w": CheckState.PENDING}
    q = Scheduler(check=lambda name, workload: said[workload.name])
    q.apply(
        [
            ResourceFlavor(name="f"),
            Check("c"),
            queue(checks=(CheckRule("c"),)),
            LocalQueue(name="cq", cluster_queue="cq"),
        ],
        0.0,
    )
    workload = put(q, "w", 4)
    q.settle(0.0)
    assert workload.admission is not None and workload.admitted_at is None
    said["w"] = CheckState.READY
    q.settle(5.0)
    assert workload.admitted_at == 5.0


def test_the_message_of_a_check_is_kept_and_shown_until_the_next_answer() -> None:
    q = checked()
    workload = put(q, "w", 4)
    q.settle(0.0)
    assert q.explain(workload.key, 0.0).detail == "c: Pending"
    q.touched.clear()
    q.set_check(workload.key, "c", CheckState.PENDING, 1.0, message="OSError: no route to host")
    assert workload.check_messages == {"c": "OSError: no route to host"} and q.touched == {workload.key}
    hold = q.explain(workload.key, 1.0)
    assert (hold.kind, hold.detail) == ("checks", "c: Pending (OSError: no route to host)")
    q.set_check(workload.key, "c", CheckState.READY, 2.0)
    assert workload.admitted_at == 2.0 and not workload.check_messages


def test_an_eviction_clears_the_messages_of_checks() -> None:
    q = checked()
    workload = put(q, "w", 4)
    q.settle(0.0)
    q.set_check(workload.key, "c", CheckState.RETRY, 1.0, 30.0, "try later")
    assert workload.eviction is not None and workload.checks == {"c": CheckState.PENDING}
    assert not workload.check_messages


def test_a_function_that_gives_a_message_is_recorded_once() -> None:
    q = Scheduler(check=lambda name, workload: CheckResult(CheckState.PENDING, "it failed"))
    q.apply([ResourceFlavor(name="f"), Check("c"), queue(checks=(CheckRule("c"),))], 0.0)
    q.apply([LocalQueue(name="cq", cluster_queue="cq")], 0.0)
    workload = put(q, "w", 4)
    q.settle(0.0)
    assert q.explain(workload.key, 0.0).detail == "c: Pending (it failed)"
    q.touched.clear()
    q.settle(1.0)
    assert not q.touched and workload.admitted_at is None


# -- pods --------------------------------------------------------------------------------------------------------------


def test_a_workload_that_is_resized_has_no_reclaimable_pods() -> None:
    """The new pod sets are what is needed now. Pods that were reclaimable before are not in them."""
    q = make()
    put(q, "first", 4)
    q.settle(0.0)
    workload = put(q, "w", 1, 1.0)
    q.resize(workload.key, (PodSet(count=4, requests={"cpu": 1}),), 1.0)
    q.reclaim(workload.key, {"main": 3}, 1.0)
    assert workload.reclaimable == {"main": 3}
    q.resize(workload.key, (PodSet(count=2, requests={"cpu": 1}),), 2.0)
    assert workload.reclaimable == {}
    q.finish("default/first", 3.0)
    q.settle(3.0)
    assert list(workload.held.values()) == [2]
    with pytest.raises(ValueError, match="holds quota"):
        q.resize(workload.key, (PodSet(count=1, requests={"cpu": 1}),), 4.0)


# -- stops -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("local", [False, True])
def test_a_queue_on_hold_admits_nothing_and_evicts_nothing(local: bool) -> None:
    q = make()
    put(q, "runs", 2)
    q.settle(0.0)
    stop(q, local, Stop.HOLD)
    put(q, "waits", 2, 1.0)
    assert not q.settle(1.0) or holding(q) == {"runs"}
    stop(q, local, Stop.NONE)
    q.settle(2.0)
    assert holding(q) == {"runs", "waits"}


@pytest.mark.parametrize(("local", "reason"), [(False, "ClusterQueueStopped"), (True, "LocalQueueStopped")])
def test_a_drained_queue_takes_its_workloads_back_when_it_starts_again(local: bool, reason: str) -> None:
    q = make()
    workload = put(q, "runs", 2)
    q.settle(0.0)
    ((key, eviction),) = stop(q, local, Stop.DRAIN)
    assert (key, eviction.reason) == (workload.key, reason)
    q.release(key, 1.0)
    assert workload.held_back and not holding(q)
    stop(q, local, Stop.NONE)
    assert not workload.held_back
    q.settle(2.0)
    assert holding(q) == {"runs"}


def stop(q: Scheduler, local: bool, policy: Stop) -> list[tuple[str, object]]:
    if local:
        return list(q.apply([replace(q.local_queues["default/cq"], stop=policy)], 1.0))  # type: ignore[arg-type]
    return list(q.apply([replace(q.cluster_queues["cq"], stop=policy)], 1.0))  # type: ignore[arg-type]


def test_those_that_were_not_admitted_yet_just_lose_their_quota_when_the_queue_is_held() -> None:
    q = checked()
    workload = put(q, "w", 4)
    q.settle(0.0)
    assert not stop(q, False, Stop.HOLD)
    assert workload.admission is None and workload.eviction is None and waiting(q) == ["w"]


def test_why_a_queue_is_inactive() -> None:
    q = make()
    assert q.inactive("cq") == "" and q.inactive("nowhere") == "it does not exist"
    q.delete(ResourceFlavor, "f", 1.0)
    assert q.inactive("cq") == "flavor f not found"
    put(q, "w", 1)
    assert not [cycle for cycle in q.settle(1.0) if cycle.decisions] and waiting(q) == ["w"]
    q.apply([ResourceFlavor(name="f")], 2.0)
    q.settle(2.0)
    assert holding(q) == {"w"}


# -- shares of LocalQueues ---------------------------------------------------------------------------------------------


def test_the_local_queue_that_has_consumed_less_comes_first() -> None:
    q = Scheduler(Config(half_life=100.0, sampling=10.0))
    listed = [LocalQueue(name=name, cluster_queue="cq") for name in ("busy", "idle")]
    q.apply([ResourceFlavor(name="f"), queue(usage_based=True), *listed], 0.0)
    put(q, "first", 4, queue="busy")
    q.settle(0.0)
    assert q.cache.local_usage("default/busy") > 0 == q.cache.local_usage("default/idle")
    put(q, "again", 4, 1.0, queue="busy", priority=9)
    put(q, "other", 4, 2.0, queue="idle")
    assert waiting(q) == ["other", "again"]
    q.tick(10.0)
    busy = q.cache.local_usage("default/busy")
    q.finish("default/first", 10.0)
    q.settle(10.0)
    assert holding(q) == {"other"}
    for second in range(20, 1000, 10):
        q.tick(float(second))
    assert q.cache.local_usage("default/busy") < busy / 100, "what was consumed long ago is forgotten"
    assert q.cache.local_usage("default/idle") > busy


def test_time_goes_on_at_the_pace_of_samples() -> None:
    q = Scheduler(Config(half_life=100.0, sampling=10.0))
    q.apply([ResourceFlavor(name="f"), queue(usage_based=True), LocalQueue(name="cq", cluster_queue="cq")], 0.0)
    put(q, "w", 4)
    q.settle(0.0)
    assert q.next_time(0.0) == 10.0


def test_a_queue_does_not_grow_by_cycles() -> None:
    for strategy in Strategy:
        q = make(None, queue(strategy=strategy))
        put(q, "first", 4)
        q.settle(0.0)
        for number in range(5):
            put(q, f"w{number}", 2 + number % 2, 1.0 + number)
        q.cycle(10.0)
        before = _size(q)
        for turn in range(50):
            q.queues.requeue_inadmissible("cq", 10.0 + turn)
            q.cycle(10.0 + turn)
            q.cycle(10.0 + turn)
        assert _size(q) <= before + 5


def _size(q: Scheduler) -> int:
    found = q.queues.pending["cq"]
    return sum(map(len, found._heads.values())) + sum(len(one.heap) for one in found._classes.values())
