"""Family `schedule`: whole cycles. Which Workloads hold quota after each, must stop, or wait, and where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.admission.decisions import Cycle, Decision
from penstock.admission.scheduler import Scheduler
from tests.conformance.families.cases import amounts, config_of, now_of, objects_of

Case = dict[str, Any]


def check(case: Case) -> None:
    given, now = case["given"], now_of(case)
    queues = _queues(case, now)
    expected = {found["afterCycle"]: found for found in case["expect"]["cycles"]}
    seen: list[Cycle] = []
    held, admitted = _holding(queues), _admitted(queues)
    for number in range(1, given["cycles"] + 1):
        seen.append(queues.cycle(now))
        if number in expected:
            _compare(expected[number], queues, seen, held, admitted)
            _compare_decisions(expected[number], seen, ties="queueOrderTies" in case)
            held, admitted, seen = _holding(queues), _admitted(queues), []
        gaps = given.get("betweenCycles") or []
        if number <= len(gaps) and number < given["cycles"]:
            _between(gaps[number - 1], queues, now)
    assert all(number <= given["cycles"] for number in expected)


def _queues(case: Case, now: float) -> Scheduler:
    given = case["given"]
    queues = Scheduler(config_of(case))
    objects, workloads = objects_of(given)
    queues.apply(objects, now)
    for workload in workloads:
        queues.submit(workload, now)
    for key, usage in (given.get("initialLocalQueueUsage") or {}).items():
        if queues.cache.ledger is not None:
            queues.cache.ledger.seed(key, amounts(usage), now)
    for key in given.get("deletedLocalQueues") or ():
        # Its object is gone, but those that manage the lines have not heard of it: all that is lost is its weight.
        name = key if "/" in key else f"default/{key}"
        queues.apply([replace(queues.local_queues[name], weight=1.0)], now)
    return queues


def _between(gap: Case, queues: Scheduler, now: float) -> None:
    for key in gap.get("deleteWorkloads") or ():
        queues.remove(key, now)
    if gap.get("requeueInadmissible", True):
        for name in queues.cluster_queues:
            queues.queues.requeue_inadmissible(name, now)


def _holding(queues: Scheduler) -> set[str]:
    return {key for key, workload in queues.workloads.items() if workload.admission is not None}


def _admitted(queues: Scheduler) -> set[str]:
    return {key for key, workload in queues.workloads.items() if workload.admitted_at is not None}


def _compare(expect: Case, queues: Scheduler, cycles: list[Cycle], held: set[str], admitted: set[str]) -> None:
    assert _reserved(queues) == {key: _plain(found) for key, found in expect["reserved"].items()}
    assert _holding(queues) - held == set(expect["newlyReserved"])
    assert {key for cycle in cycles for key in cycle.reserved} == set(expect["newlyReserved"])
    assert _admitted(queues) - admitted == set(expect["newlyAdmitted"])
    assert {key for cycle in cycles for key in cycle.admitted} == set(expect["newlyAdmitted"])
    preempted = {
        (found.workload, found.reason, _uid(queues, found.by)) for cycle in cycles for found in cycle.preempted
    }
    assert preempted == {(one["workload"], one["reason"], _uid(queues, one["by"])) for one in expect["preempted"]}
    for found in (found for cycle in cycles for found in cycle.preempted):
        eviction = queues.workloads[found.workload].eviction
        assert eviction is not None and (eviction.preempted, eviction.by) == (found.reason, found.by)
    evicted = {(key, queues.workloads[key].eviction.reason) for key, _, _ in preempted}  # type: ignore[union-attr]
    assert evicted == {(one["workload"], one["reason"]) for one in expect["evicted"]}
    assert _waiting(queues, inadmissible=False) == {name: set(keys) for name, keys in expect["queued"].items()}
    assert _waiting(queues, inadmissible=True) == {name: set(keys) for name, keys in expect["inadmissible"].items()}
    skipped: dict[str, int] = {}
    for cycle in cycles:
        for name, count in cycle.skipped_preemptions.items():
            skipped[name] = skipped.get(name, 0) + count
    assert skipped == expect.get("skippedPreemptions", {})


def _uid(queues: Scheduler, key: str) -> str:
    """Kueue notes a preemptor by its uid, which the tables do not always make unique."""
    return queues.workloads[key].uid or key


def _compare_decisions(expect: Case, cycles: list[Cycle], ties: bool) -> None:
    """`ties`: two Workloads have the same position in a queue, so that either may come in an earlier cycle."""
    if "decisionsByCycle" in expect:
        assert [one["cycle"] for one in expect["decisionsByCycle"]] == list(
            range(1, len(expect["decisionsByCycle"]) + 1)
        )
        wanted = [one["decisions"] for one in expect["decisionsByCycle"]]
        assert not any(cycle.decisions for cycle in cycles[len(wanted) :])
        cycles = cycles[: len(wanted)]
    else:
        wanted = [expect["decisions"]]
    found = [[_decision(decision) for decision in cycle.decisions] for cycle in cycles]
    expected = [[_expected(decision) for decision in decisions] for decisions in wanted]
    if ties:
        found, expected = ([[one for some in each for one in some]] for each in (found, expected))
    if not expect.get("decisionOrderSignificant"):
        found, expected = ([sorted(some, key=str) for some in each] for each in (found, expected))
    assert found == expected


def _decision(found: Decision) -> Case:
    if found.decision == "inadmissible":
        return {"workload": found.workload, "clusterQueue": found.cluster_queue, "decision": found.decision}
    fits = (found.mode or found.nominated_mode) != "NoFit"
    return {
        "workload": found.workload,
        "clusterQueue": found.cluster_queue,
        "decision": found.decision,
        "nominatedMode": found.nominated_mode,
        "mode": found.mode,
        "borrowingLevel": found.borrowing_level if fits else 0,
        "podSets": [
            (
                podset.name,
                podset.count,
                sorted((resource, choice.flavor) for resource, choice in podset.flavors.items()),
            )
            for podset in (found.podsets if fits else ())
        ],
        "targets": sorted((target.key, target.reason) for target in found.targets),
    }


def _expected(given: Case) -> Case:
    if given["decision"] == "inadmissible":
        return {name: given[name] for name in ("workload", "clusterQueue", "decision")}
    return {
        "workload": given["workload"],
        "clusterQueue": given["clusterQueue"],
        "decision": given["decision"],
        "nominatedMode": given.get("nominatedMode", ""),
        "mode": given.get("mode", ""),
        "borrowingLevel": given.get("borrowingLevel", 0),
        "podSets": [
            (podset["name"], podset["count"], sorted(podset.get("flavors", {}).items()))
            for podset in given.get("podSets", ())
        ],
        "targets": sorted((target["workload"], target["reason"]) for target in given.get("targets", ())),
    }


def _reserved(queues: Scheduler) -> Case:
    return {
        key: {
            "clusterQueue": workload.admission.cluster_queue,
            "podSets": [
                {"name": one.name, "count": one.count, "flavors": dict(one.flavors), "usage": dict(one.usage)}
                for one in workload.admission.podsets
            ],
        }
        for key, workload in queues.workloads.items()
        if workload.admission is not None
    }


def _plain(found: Case) -> Case:
    return {
        "clusterQueue": found["clusterQueue"],
        "podSets": [
            {
                "name": podset["name"],
                "count": podset["count"],
                "flavors": podset.get("flavors", {}),
                "usage": amounts(podset.get("usage", {})),
            }
            for podset in found["podSets"]
        ],
    }


def _waiting(queues: Scheduler, inadmissible: bool) -> dict[str, set[str]]:
    found = {
        name: {key for key in queue.workloads if queue.is_inadmissible(key) is inadmissible}
        for name, queue in queues.queues.pending.items()
    }
    return {name: keys for name, keys in found.items() if keys}
