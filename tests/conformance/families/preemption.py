"""Family `preemption`: the Workloads to preempt, and those that may be preempted."""

from __future__ import annotations

from penstock.admission.assignment import Assignment, FlavorChoice, Mode, PodSetChoice
from penstock.admission.candidates import allowed
from penstock.admission.flavors import pod_set_resources
from penstock.admission.model import FlavorResource, Policy, Workload
from penstock.admission.preemption import Preemptor
from tests.admission.worlds import picture
from tests.conformance.families.cases import config_of, now_of
from tests.conformance.families.given import Case, state_of, workload_of


def check(case: Case) -> None:
    {"targets": _targets, "policy": _policy}[case["kind"]](case)


def _targets(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    state = state_of(case)
    before = picture(state)
    incoming = workload_of(given["incoming"])
    queue = given["targetClusterQueue"]
    found = Preemptor(state).targets(incoming, queue, _assignment(incoming, given["assignment"]), now_of(case))
    assert picture(state) == before
    assert sorted(
        (each.workload.key, each.reason, each.workload.admission.cluster_queue if each.workload.admission else "")
        for each in found
    ) == sorted((each["workload"], each["reason"], each["clusterQueue"]) for each in expect["targets"])
    assert len(found) == expect.get("preemptedCount", len(found))


def _assignment(incoming: Workload, given: Case) -> Assignment:
    """As the flavor search would have made it."""
    modes = {"Preempt": Mode.PREEMPT, "Fit": Mode.FIT, "NoFit": Mode.NO_FIT}
    podsets, usage = [], {}
    for total, podset in zip(pod_set_resources(incoming, False), given["podSets"], strict=True):
        requests = {
            name: amount if total.count in (0, podset["count"]) else amount // total.count * podset["count"]
            for name, amount in total.requests.items()
        }
        flavors = {name: FlavorChoice(each["flavor"], modes[each["mode"]]) for name, each in podset["flavors"].items()}
        podsets.append(PodSetChoice(podset["name"], podset["count"], flavors, requests))
        for name, amount in requests.items():
            if name in flavors:
                fr = FlavorResource(flavors[name].flavor, name)
                usage[fr] = usage.get(fr, 0) + amount
    return Assignment(tuple(podsets), 0, usage, Mode.PREEMPT)


def _policy(case: Case) -> None:
    given = case["given"]
    preemptor, candidate = workload_of(given["preemptor"]), workload_of(given["candidate"])
    found = bool(allowed(preemptor, (candidate,), Policy(given["policy"]), config_of(case)))
    assert found == case["expect"]["mayPreempt"]
