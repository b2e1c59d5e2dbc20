"""Family `flavors`: which flavor each resource gets, which of two options is better, and how a Workload shrinks."""

from __future__ import annotations

from penstock.admission.assignment import ALL_TRIED, Mode
from penstock.admission.flavors import FlavorAssigner, Simulate, preferred, search_counts
from penstock.admission.model import FlavorResource, Fungibility, PodSet, Preference, WhenCan, Workload
from tests.admission.worlds import picture
from tests.conformance.families.cases import amount
from tests.conformance.families.given import Case, state_of, usage_of, workload_of

MODES = {
    "noFit": Mode.NO_FIT,
    "noPreemptionCandidates": Mode.NO_CANDIDATES,
    "preempt": Mode.PREEMPT,
    "reclaim": Mode.RECLAIM,
    "fit": Mode.FIT,
}
POSSIBILITIES = {"NoCandidates": Mode.NO_CANDIDATES, "Preempt": Mode.PREEMPT, "Reclaim": Mode.RECLAIM}
KINDS = {
    Mode.NO_FIT: "NoFit",
    Mode.NO_CANDIDATES: "Preempt",
    Mode.PREEMPT: "Preempt",
    Mode.RECLAIM: "Preempt",
    Mode.FIT: "Fit",
}


def check(case: Case) -> None:
    {"assign": _assign, "preference": _preference, "partialCountSearch": _search}[case["kind"]](case)


def _assign(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    state = state_of(case, flavors_may_be_missing=True)
    before = picture(state)
    assigner = FlavorAssigner(state, _table(given["preemptionSimulation"]))
    found = assigner.assign(workload_of(given["workload"]), given["targetClusterQueue"], given.get("counts"))
    assert picture(state) == before
    assert found.kind == expect["mode"]
    assert found.borrowing == expect["borrowingLevel"]
    assert dict(found.usage) == usage_of(expect["usage"])
    assert [
        {
            "name": podset.name,
            "count": podset.count,
            "flavors": {
                resource: {"flavor": choice.flavor, "mode": KINDS[choice.mode], "triedFlavorIdx": choice.tried}
                for resource, choice in podset.flavors.items()
            },
            "requests": dict(podset.requests),
        }
        for podset in found.podsets
    ] == [
        {
            "name": podset["name"],
            "count": podset["count"],
            "flavors": podset.get("flavors", {}),
            "requests": {name: amount(name, text) for name, text in podset.get("requests", {}).items()},
        }
        for podset in expect["podSets"]
    ]
    if "noFitReason" in expect:
        assert found.no_fit == expect["noFitReason"]
    assert found.progress is not None
    assert found.progress.pending == any(
        choice["triedFlavorIdx"] != ALL_TRIED
        for podset in expect["podSets"]
        for choice in podset.get("flavors", {}).values()
    )


def _table(simulation: Case) -> Simulate:
    """In place of a real simulation."""
    listed = {FlavorResource(line["flavor"], line["resource"]): line for line in simulation.get("results", ())}

    def answer(workload: Workload, queue: str, fr: FlavorResource, wanted: int) -> tuple[Mode, int]:
        line = listed.get(fr, simulation["default"])
        return POSSIBILITIES[line["possibility"]], line["borrowingLevelAfter"]

    return answer


def _preference(case: Case) -> None:
    given = case["given"]
    rule = given.get("flavorFungibility", {})
    fungibility = Fungibility(
        borrow=WhenCan(rule.get("whenCanBorrow", "MayStopSearch")),
        preempt=WhenCan(rule.get("whenCanPreempt", "TryNextFlavor")),
        preference=Preference(rule["preference"]) if "preference" in rule else None,
    )
    one, other = ((MODES[given[each]["mode"]], given[each]["borrowingLevel"]) for each in "ab")
    assert preferred(one, other, fungibility) == case["expect"]["aPreferredOverB"]


def _search(case: Case) -> None:
    given, expect = case["given"], case["expect"]
    podsets = [
        PodSet(name=each["name"], count=each["count"], min_count=each.get("minCount")) for each in given["podSets"]
    ]

    def attempt(counts: tuple[int, ...]) -> int | None:
        total = sum(counts)
        return total if total <= given["totalCountLimit"] else None

    found = search_counts(podsets, attempt)
    assert (found is not None) == expect["found"]
    assert (found or 0) == (expect["totalCount"] if expect["found"] else 0)
