"""The core of the controller against a model of Kueue and of an engine: whatever the order of events, with old sights, lost writes and crashes between any
two writes, nothing runs without quota, nothing finished runs again, and everything ends."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.controller.core import PATIENCE, Seen, reconcile
from penstock.controller.coverage import is_gated
from penstock.controller.engine import Shape, Stage, Unit
from penstock.controller.objects import Object, annotations_of, holds, is_deleted, labels_of, name_of, part, uid_of
from penstock.controller.workload import build
from penstock.formats.pods.requests import amounts
from tests.controller.model import Cluster, Conflict, control, look, observed

STEPS = [
    {"name": "fetch", "pods": 1, "cpu": "1"},
    {"name": "train", "pods": 4, "cpu": "2"},
    {"name": "report", "pods": 1, "cpu": "1"},
]


QUIET = 6
"""Rounds without a change after which nothing is expected any more: some engines wait for a few seconds."""


def settle(cluster: Cluster, rounds: int = 400) -> None:
    """Everybody does their work until nothing changes."""
    quiet = 0
    for number in range(rounds):
        before = cluster.version
        cluster.now += 3
        cluster.engine_step()
        control(cluster)
        cluster.kueue_step()
        for pod in cluster.of("pods"):
            cluster.pod_step(name_of(pod))
        if number % 2:  # whoever sees the pods first
            control(cluster)
        cluster.engine_step()
        control(cluster)
        quiet = quiet + 1 if cluster.version == before else 0
        if quiet == QUIET:
            return
    raise AssertionError("it never comes to rest")


def over(cluster: Cluster) -> bool:
    return all(cluster.machine_of(one).over(one) for one in cluster.mains)


def test_stages_wait_one_after_the_other_and_keep_their_place() -> None:
    cluster = Cluster()
    cluster.submit("a", STEPS)
    cluster.engine_step()
    control(cluster)
    assert len(cluster.of("workloads")) == 2, "one place in each turn, so that a stage is let go between two of them"
    control(cluster)
    found = {annotations_of(one)["penstock/stage"]: one for one in cluster.of("workloads")}
    assert set(found) == {"fetch", "train", "report"}
    assert part(found["fetch"], "spec").get("active") is None
    assert part(found["train"], "spec")["active"] is False
    settle(cluster)
    assert over(cluster)
    assert all(holds(one, "Finished") for one in cluster.of("workloads"))


def test_a_stage_takes_six_writes_at_most_with_its_events() -> None:
    """Apart from what is given back: a place, activated, let go, ready, finished; that it is queued is said once for all of them."""
    cluster = Cluster()
    cluster.submit("a", STEPS)
    count: dict[str, int] = {}
    said: set[str] = set()
    for _ in range(100):
        cluster.now += 3
        cluster.engine_step()
        (main,) = cluster.of("sequences")
        plan = look(cluster, main)
        said |= {f"{one.reason}: {one.message}" for one in plan.notes}
        for write in plan.writes:
            if write.resource.kind != "Pod" and not write.every:
                count[write.why] = count.get(write.why, 0) + 1
        control(cluster)
        cluster.kueue_step()
        for pod in cluster.of("pods"):
            cluster.pod_step(name_of(pod))
    assert over(cluster)
    assert [one for one in said if one.startswith("Queued")] == [
        "Queued: stage fetch waits in queue q; train, report will follow"
    ]
    assert sum(count.values()) + len(said) <= 6 * len(STEPS), (count, said)


def test_a_stage_holds_no_more_than_it_needs() -> None:
    """1 + 8 + 1 cpu pass a queue of 8: never more than one stage is held."""
    cluster = Cluster(cpu=8)
    cluster.submit("a", STEPS)
    settle(cluster)
    assert over(cluster)


def test_pods_get_the_nodes_of_their_flavor() -> None:
    cluster = Cluster()
    cluster.submit("a", STEPS[:1])
    cluster.engine_step(), control(cluster), cluster.kueue_step(), control(cluster), cluster.engine_step()
    (pod,) = cluster.of("pods")
    assert is_gated(pod)
    control(cluster)
    (pod,) = cluster.of("pods")
    assert not is_gated(pod) and part(pod, "spec")["nodeSelector"] == {"pool": "spot"}


def test_an_evicted_stage_goes_back_and_keeps_what_is_finished() -> None:
    cluster = Cluster()
    cluster.submit("a", STEPS[1:2])
    for _ in range(3):
        cluster.engine_step(), control(cluster), cluster.kueue_step()
    control(cluster)
    names = [name_of(pod) for pod in cluster.of("pods")]
    for _ in range(2):
        cluster.pod_step(names[0])
    cluster.engine_step()
    control(cluster)
    (workload,) = cluster.of("workloads")
    cluster.evict(name_of(workload))
    control(cluster), cluster.engine_step(), control(cluster)
    (workload,) = cluster.of("workloads")
    assert not holds(workload, "QuotaReserved") and "admission" not in part(workload, "status")
    assert [name_of(pod) for pod in cluster.of("pods")] == names[:1]
    settle(cluster)
    assert over(cluster) and cluster.runs and set(cluster.runs.values()) == {1}


def test_a_workload_deleted_by_hand_stops_its_pods_and_is_made_again() -> None:
    cluster = Cluster()
    cluster.submit("a", STEPS[1:2])
    for _ in range(3):
        cluster.engine_step(), control(cluster), cluster.kueue_step()
    control(cluster)
    assert not any(map(is_gated, cluster.of("pods")))
    gone = name_of(cluster.of("workloads")[0])
    cluster.drop("workloads", gone)
    (told,) = [one.message for one in look(cluster, cluster.mains[0]).notes if one.warning]
    assert f"Workload {gone} was deleted" in told and "Leave the Workloads of workflows to the controller" in told
    control(cluster), cluster.engine_step()
    assert not cluster.of("pods")
    settle(cluster)
    assert over(cluster)


def test_pods_beyond_what_was_declared_wait_for_quota_of_their_own() -> None:
    cluster = Cluster(cpu=6)
    cluster.submit("a", [{"name": "train", "pods": 3, "says": 1, "cpu": "2"}])
    for _ in range(4):
        cluster.engine_step(), control(cluster), cluster.kueue_step()
    control(cluster)
    assert [is_gated(pod) for pod in cluster.of("pods")] == [False, True, True]
    cluster.now += 5
    control(cluster)
    (more,) = [one for one in cluster.of("workloads") if "penstock/tasks" in annotations_of(one)]
    assert annotations_of(more)["penstock/tasks"] == '["1","2"]'
    settle(cluster)
    assert over(cluster) and all(holds(one, "Finished") for one in cluster.of("workloads"))


def test_a_release_that_comes_late_does_not_hit_a_pod_that_was_made_again() -> None:
    cluster = Cluster()
    cluster.submit("a", STEPS[:1])
    cluster.engine_step(), control(cluster), cluster.kueue_step(), control(cluster), cluster.engine_step()
    (release,) = look(cluster, cluster.of("sequences")[0]).writes
    cluster.drop("pods", "a-fetch-0")
    cluster.engine_step()
    with pytest.raises(Conflict):
        cluster.write(release)


def test_a_run_that_somebody_sets_back_gives_back_what_it_holds_too_early() -> None:
    """The status of a run may be edited. What the later stage holds would keep the earlier one waiting for ever."""
    cluster = Cluster(cpu=3)
    cluster.submit("a", [{"name": "fetch", "pods": 1, "cpu": "1"}, {"name": "train", "pods": 1, "cpu": "3"}])
    for _ in range(4):
        cluster.engine_step(), control(cluster), cluster.kueue_step(), control(cluster)
        for pod in cluster.of("pods"):
            if labels_of(pod)["step"] == "fetch":
                cluster.pod_step(name_of(pod))
    assert cluster.used() == 3000
    cluster.drop("pods", "a-fetch-0"), cluster.drop("pods", "a-train-0")
    cluster.runs.clear()
    main = cluster.of("sequences")[0]
    main["status"] = {"done": {}}
    cluster.touch(main)
    settle(cluster)
    assert over(cluster)


def test_what_is_held_is_not_given_back_while_a_pod_runs_on_it() -> None:
    """A daemon, or a pod that takes its time to end."""
    cluster = Cluster()
    cluster.submit("a", STEPS[:1])
    for _ in range(3):
        cluster.engine_step(), control(cluster), cluster.kueue_step()
    control(cluster)
    main = cluster.of("sequences")[0]
    main["status"] = {"done": {"fetch": [0]}, "phase": "Succeeded"}
    assert not look(cluster, main).writes
    cluster.pod_step("a-fetch-0"), cluster.pod_step("a-fetch-0")
    assert [write.body["status"]["conditions"][-1]["type"] for write in look(cluster, main).writes] == ["Finished"]


def test_pods_that_ask_for_more_than_was_declared_do_not_hold_twice() -> None:
    cluster = Cluster(cpu=4)
    cluster.submit("a", [{"name": "train", "pods": 2, "cpu": "1", "asks": "2"}])
    settle(cluster)
    assert over(cluster) and all(holds(one, "Finished") for one in cluster.of("workloads"))


def test_pods_that_are_sized_a_second_time_find_their_name_taken_and_free_it() -> None:
    cluster = Cluster()
    cluster.submit("a", [{"name": "train", "pods": 1, "cpu": "1", "asks": "2"}])
    for _ in range(2):
        cluster.now += 1
        cluster.engine_step(), control(cluster), cluster.kueue_step(), control(cluster)
    cluster.now += 3
    cluster.evict(name_of(cluster.of("workloads")[0]))
    settle(cluster)
    assert over(cluster) and all(holds(one, "Finished") for one in cluster.of("workloads"))


def test_where_workflows_are_counted_a_run_holds_one() -> None:
    cluster = Cluster()
    cluster.of("clusterqueues")[0]["spec"]["resourceGroups"].append({"coveredResources": ["penstock/workflows"]})
    cluster.submit("a", STEPS)
    cluster.engine_step(), control(cluster), control(cluster)
    (run,) = [one for one in cluster.of("workloads") if annotations_of(one)["penstock/stage"] == "(run)"]
    asked = part(run, "spec")["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert asked == {"penstock/workflows": "1"}
    assert part(cluster.of("sequences")[0], "spec")["open"] == 0
    settle(cluster)
    assert over(cluster) and all(holds(one, "Finished") for one in cluster.of("workloads"))


def test_by_reuse_a_stage_takes_over_what_an_equal_one_before_it_held() -> None:
    """Of four stages the first three ask for the same: one reservation, that nobody can take in between."""
    cluster = Cluster(cpu=4)
    cluster.unit = "reuse"
    same = [{"name": name, "pods": 2, "cpu": "2"} for name in ("a", "b", "c")]
    cluster.submit("w", [*same, {"name": "d", "pods": 1, "cpu": "1"}])
    cluster.engine_step(), control(cluster), cluster.kueue_step()
    cluster.submit("other", [{"name": "x", "pods": 2, "cpu": "2"}])
    held = set()
    for _ in range(40):
        cluster.now += 3
        cluster.engine_step(), control(cluster), cluster.kueue_step()
        for pod in cluster.of("pods"):
            cluster.pod_step(name_of(pod))
        if cluster.of("sequences")[0]["status"].get("done", {}).get("c") is None:
            held |= {name_of(one) for one in cluster.of("workloads") if holds(one, "QuotaReserved")}
    assert len(held) == 1, held
    settle(cluster)
    assert over(cluster) and all(holds(one, "Finished") for one in cluster.of("workloads"))


def queues_of(cluster: Cluster) -> dict[str, list[str]]:
    """Queue -> the tasks of its Workloads."""
    found: dict[str, list[str]] = {}
    for one in cluster.of("workloads"):
        tasks = json.loads(annotations_of(one).get("penstock/tasks") or "[]")
        found[part(one, "spec")["queueName"]] = sorted(found.get(part(one, "spec")["queueName"], []) + tasks)
    return found


@pytest.mark.parametrize("unit", ["task", "stage"])
def test_pods_wait_in_the_queues_that_their_templates_name(unit: Unit) -> None:
    """By stage, steps of one group with different queues have a Workload in each."""
    cluster = Cluster()
    step = {"name": "s", "pods": 3, "cpu": "1", "gang": True, "queues": ["", "gpus", "gpus"]}
    cluster.submit("a", [step, STEPS[0]], "argo", unit)
    cluster.quota = 0
    for _ in range(8):
        cluster.now += 3
        cluster.engine_step(), control(cluster), cluster.kueue_step()
    gpus = queues_of(cluster)["gpus"]
    assert len(gpus) == 2 and all(".s-1" in one or ".s-2" in one for one in gpus)
    assert [one for one in queues_of(cluster)["q"] if one][0].endswith(".s-0")
    cluster.quota = 3000
    settle(cluster)
    assert over(cluster) and all(holds(one, "Finished") for one in cluster.of("workloads"))


def test_a_pod_waits_until_argo_says_which_template_it_is() -> None:
    """A template of another document names its queue; Argo writes the node after the pod."""
    cluster = Cluster()
    cluster.submit("a", STEPS[:1], "argo", "task")
    (main,) = cluster.mains
    main["metadata"]["annotations"]["penstock/queues"] = json.dumps({"namespaced/lib/fetch": "gpus"})
    cluster.engine_step()
    nodes = main["status"]["nodes"]
    (key,) = [key for key, one in nodes.items() if one["type"] == "Pod"]
    late = nodes.pop(key) | {"templateRef": {"name": "lib", "template": "fetch"}}
    control(cluster)
    assert not cluster.of("workloads") and look(cluster, main).again
    nodes[key] = late
    control(cluster)
    assert [part(one, "spec")["queueName"] for one in cluster.of("workloads")] == ["gpus"]


def test_a_stage_of_unknown_size_is_told_with_the_fix() -> None:
    cluster = Cluster()
    cluster.submit("a", [{"name": "s", "pods": 2, "cpu": "{{inputs.parameters.cpu}}", "asks": "1"}], "argo")
    said: set[str] = set()
    for _ in range(12):
        cluster.now += 3
        cluster.engine_step()
        said |= {one.message for one in look(cluster, cluster.mains[0]).notes if one.reason == "UnknownSize"}
        control(cluster), cluster.kueue_step()
        for pod in cluster.of("pods"):
            cluster.pod_step(name_of(pod))
    assert over(cluster)
    (message,) = said
    assert "stage main[0]: only the run knows cpu of step s" in message and "write its amounts as figures" in message


UNKNOWN = {"name": "late", "pods": 2, "cpu": "{{inputs.parameters.cpu}}", "asks": "2"}
"""Of Argo: what it asks for is known to its pods alone."""


def reached(cluster: Cluster, stage: str) -> Object:
    """Rounds until the stage has a Workload that waits or runs."""
    for _ in range(30):
        cluster.now += 1
        cluster.engine_step(), control(cluster), cluster.kueue_step()
        for pod in cluster.of("pods"):
            cluster.pod_step(name_of(pod))
        here = [one for one in cluster.of("workloads") if annotations_of(one)["penstock/stage"] == stage]
        if here and all("penstock/place" not in annotations_of(one) for one in here):
            (found,) = here
            return found
    raise AssertionError("it is never reached")


def test_a_stage_of_unknown_size_keeps_its_place_in_line() -> None:
    """Its place is given to the tasks whose pods wait; nothing is made anew, with a later time of creation."""
    cluster = Cluster()
    cluster.submit("a", [STEPS[0], UNKNOWN], "argo")
    cluster.engine_step(), control(cluster), control(cluster)
    (place,) = [one for one in cluster.of("workloads") if annotations_of(one)["penstock/stage"] == "main[1]"]
    found = reached(cluster, "main[1]")
    assert uid_of(found) == uid_of(place)
    assert len(json.loads(annotations_of(found)["penstock/tasks"])) == 2
    assert part(found, "spec")["active"] is True and part(found, "spec")["podSets"][0]["count"] == 2
    settle(cluster)
    assert over(cluster) and all(holds(one, "Finished") for one in cluster.of("workloads"))


def test_a_place_that_somebody_has_changed_meanwhile_is_not_given_away() -> None:
    cluster = Cluster()
    cluster.submit("a", [STEPS[0], UNKNOWN], "argo")
    for _ in range(30):
        cluster.now += 1
        cluster.engine_step()
        writes = look(cluster, cluster.mains[0]).writes
        given = [one for one in writes if one.verb == "patch" and "penstock/tasks" in annotations_of(one.body)]
        if given:
            break
        control(cluster), cluster.kueue_step()
        for pod in cluster.of("pods"):
            cluster.pod_step(name_of(pod))
    (write,) = given
    cluster.touch(cluster.objects["workloads", write.name])
    with pytest.raises(Conflict):
        cluster.write(write)


def test_a_place_that_no_pod_needs_goes_with_its_stage() -> None:
    cluster = Cluster()
    cluster.submit("a", [STEPS[0], UNKNOWN | {"asks": "0"}], "argo")
    settle(cluster)
    assert over(cluster)
    assert [annotations_of(one)["penstock/stage"] for one in cluster.of("workloads")] == ["main[0]"]


def test_the_rest_of_a_loop_that_was_admitted_in_part_queues_at_once() -> None:
    """All its pods are there, so no more come."""
    cluster = Cluster(cpu=2)
    cluster.submit("a", [{"name": "s", "pods": 5, "cpu": "1"}], "argo")
    moment = 0.0
    for _ in range(8):
        cluster.engine_step(), control(cluster), cluster.kueue_step()
        moment = moment or (cluster.now if len(cluster.of("pods")) == 5 else 0.0)
    (rest,) = [one for one in cluster.of("workloads") if "penstock/tasks" in annotations_of(one)]
    assert moment == cluster.now, "no time has passed"
    assert part(rest, "spec")["podSets"][0]["count"] == 3
    settle(cluster)
    assert over(cluster) and set(cluster.runs.values()) == {1}


LOOP = {"name": "s", "pods": 5, "cpu": "1"}


def waited(cluster: Cluster, seconds: float) -> list[Object]:
    """A loop that nothing has been free for, and the places that are kept then."""
    cluster.submit("a", [LOOP], "argo")
    for _ in range(4):
        cluster.engine_step(), control(cluster), cluster.kueue_step()
    cluster.now += seconds
    control(cluster), control(cluster)
    return [one for one in cluster.of("workloads") if "penstock/place" in annotations_of(one)]


def test_a_loop_that_waits_keeps_a_place_for_what_is_not_admitted_with_the_first_part() -> None:
    cluster = Cluster(cpu=0)
    assert not waited(cluster, PATIENCE - 1)
    cluster = Cluster(cpu=0)
    (place,) = waited(cluster, PATIENCE)
    assert annotations_of(place)["penstock/place"] == "rest of main[0]" and part(place, "spec")["active"] is False
    cluster.now += 100
    cluster.submit("b", [{"name": "s", "pods": 1, "cpu": "1"}], "argo")
    for _ in range(3):
        cluster.engine_step(), control(cluster)
    cluster.quota = 2000
    for _ in range(6):
        cluster.engine_step(), control(cluster), cluster.kueue_step()
    rest = cluster.objects["workloads", name_of(place)]
    assert uid_of(rest) == uid_of(place) and len(json.loads(annotations_of(rest)["penstock/tasks"])) == 3
    (other,) = [one for one in cluster.of("workloads") if name_of(one).startswith("b-")]
    assert rest["metadata"]["creationTimestamp"] < other["metadata"]["creationTimestamp"], "it is before who came later"
    settle(cluster)
    assert over(cluster) and set(cluster.runs.values()) == {1}


def test_if_all_of_it_is_admitted_the_place_goes() -> None:
    cluster = Cluster(cpu=0)
    assert waited(cluster, PATIENCE)
    cluster.quota = 5000
    for _ in range(3):
        cluster.engine_step(), control(cluster), cluster.kueue_step()
    assert [one for one in cluster.of("workloads") if "penstock/place" in annotations_of(one)] == []
    settle(cluster)
    assert over(cluster) and all(holds(one, "Finished") for one in cluster.of("workloads"))


def test_the_place_of_the_rest_takes_the_stage_over_if_its_workload_is_deleted_by_hand() -> None:
    cluster = Cluster(cpu=0)
    (place,) = waited(cluster, PATIENCE)
    (there,) = [one for one in cluster.of("workloads") if uid_of(one) != uid_of(place)]
    cluster.drop("workloads", name_of(there))
    cluster.quota = 5000
    settle(cluster)
    assert over(cluster) and uid_of(cluster.objects["workloads", name_of(place)]) == uid_of(place)


@pytest.mark.parametrize(("engine", "gang"), [("tekton", False), ("jobset", False), ("argo", True)])
def test_no_place_is_kept_where_no_rest_would_wait(engine: str, gang: bool) -> None:
    """What starts as a whole; and a matrix, which is let go by count."""
    cluster = Cluster(cpu=0)
    cluster.submit("a", [LOOP | {"gang": gang}], engine)
    for _ in range(10):
        cluster.engine_step(), control(cluster), cluster.kueue_step()
    cluster.now += PATIENCE
    control(cluster), control(cluster)
    assert len(cluster.of("workloads")) == 1


TOO_MUCH = "insufficient quota for cpu in flavor spot, request > maximum capacity (1 > 0)"
NO_PLACE = "couldn't assign flavors to pod set main: flavor spot doesn't match node affinity"


def never_fits(cluster: Cluster, words: str) -> list[str]:
    """What is told once Kueue has said this of the only Workload."""
    (workload,) = cluster.of("workloads")
    told = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": words}
    workload["status"] = {"conditions": [told]}
    notes = look(cluster, cluster.mains[0]).notes
    assert all(one.warning and words in one.message for one in notes if one.reason == "NeverFits")
    return [one.message for one in notes if one.reason == "NeverFits"]


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (TOO_MUCH, "Ask for less"),
        ("resource nvidia.com/gpu unavailable in ClusterQueue", "Ask for less"),
        (NO_PLACE, "Choose other nodes"),
        ("untolerated taint {spot true NoSchedule} in flavor spot", "Choose other nodes"),
    ],
)
def test_what_can_never_fit_is_said_with_the_fix(words: str, fix: str) -> None:
    cluster = Cluster()
    cluster.submit("a", STEPS[:1])
    cluster.engine_step(), control(cluster)
    (message,) = never_fits(cluster, words)
    assert fix in message
    # Another flavor would do, and is only full.
    assert not never_fits(cluster, f"{words}, insufficient unused quota for cpu in flavor big, 1 more needed")


@pytest.mark.parametrize(("unit", "engine"), [("task", "argo"), ("stage", "argo"), ("stage", "toy")])
def test_pods_that_can_never_fit_are_said_too(unit: Unit, engine: str) -> None:
    """They wait one by one, or ask for something that nobody knew before."""
    cluster = Cluster(cpu=0)
    step = UNKNOWN | {"pods": 1} if unit == "stage" and engine == "argo" else STEPS[0] | {"asks": "2"}
    cluster.submit("a", [step], engine, unit)
    for _ in range(8):
        cluster.now += 2
        cluster.engine_step(), control(cluster)
        if engine == "toy":
            cluster.mains[0]["spec"]["open"] = 1  # somebody lets it go
    sized = [one for one in cluster.of("workloads") if "penstock/tasks" in annotations_of(one)]
    for one in cluster.of("workloads"):
        if one not in sized:
            cluster.drop("workloads", name_of(one))
    assert len(sized) == 1
    (message,) = never_fits(cluster, TOO_MUCH)
    assert "Ask for less" in message


def test_a_plan_is_empty_once_it_is_carried_out() -> None:
    cluster = Cluster(cpu=3)
    for name in ("a", "b", "c"):
        cluster.submit(name, STEPS)
    for _ in range(30):
        cluster.engine_step(), control(cluster), cluster.kueue_step()
        while control(cluster):
            pass
        for main in cluster.of("sequences"):
            assert not look(cluster, main).writes


@pytest.mark.parametrize("engine", ["argo", "tekton"])
def test_by_task_the_cost_grows_with_the_number_of_tasks(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a Workload and a pod of its own: nothing is looked for among all of them for each of them."""
    monkeypatch.setattr(Cluster, "invariants", lambda self: None)

    def seconds(count: int) -> float:
        cluster = Cluster(cpu=count)
        cluster.submit("a", [{"name": "s", "pods": count, "cpu": "1"}], engine, "task")
        for _ in range(6 + (count if engine == "tekton" else 0)):
            cluster.now += 1
            cluster.engine_step()
        for _ in range(4):
            cluster.now += 2
            cluster.engine_step(), control(cluster), cluster.kueue_step(), control(cluster)
            for pod in cluster.of("pods"):
                if pod["status"]["phase"] == "Pending":
                    cluster.pod_step(name_of(pod))
        assert len(cluster.of("workloads")) == len(cluster.of("pods")) == count
        (main,) = cluster.mains
        seen = Seen(cluster.machines[engine].engine, observed(cluster, main), "task", cluster.of("workloads"))
        began = time.process_time()
        reconcile(seen)
        return time.process_time() - began

    seconds(10)
    assert seconds(240) < 16 * max(seconds(40), 0.002)


NUMBER = st.integers(0, 30)
ACTS = st.one_of(
    st.just(("round",)),
    st.just(("round",)),
    st.just(("engine",)),
    st.just(("kueue",)),
    st.just(("preempt",)),
    st.just(("argo is slow",)),
    st.tuples(st.just("pod"), NUMBER),
    st.just(("pods",)),
    st.tuples(st.just("evict"), NUMBER, st.sampled_from(["Preempted", "PodsReadyTimeout"])),
    st.tuples(st.just("remove"), NUMBER),
    st.tuples(st.just("look"), st.integers(0, 6)),
    st.just(("old sight",)),
    st.tuples(st.just("old look"), st.integers(0, 6)),
    st.tuples(st.just("delete"), NUMBER),
    st.tuples(st.just("hide"), NUMBER),
    st.just(("a while",)),
)
STEP = st.fixed_dictionaries(
    {
        "pods": st.integers(1, 4),
        "cpu": st.sampled_from("123"),
        "asks": st.sampled_from("00123"),
        "says": st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
        "gang": st.booleans(),
        "unknown": st.sampled_from([False, False, True]),
        "daemon": st.just(
            False
        ),  # one holds its quota until the run ends, so a run may wait for itself: test_core_liveness.py
    }
)
WORKFLOW = st.fixed_dictionaries(
    {
        "steps": st.lists(STEP, min_size=1, max_size=3),
        "engine": st.sampled_from(["toy", "argo", "tekton", "jobset"]),
        "unit": st.sampled_from(["stage", "stage", "task", "workflow", "reuse"]),
        "priority": st.sampled_from(["", "", "low", "high"]),
    }
)
CAPS = st.sampled_from([0, 0, 1, 2])


def submit(cluster: Cluster, name: str, workflow: dict[str, Any]) -> None:
    engine, steps = workflow["engine"], []
    for number, step in enumerate(workflow["steps"]):
        one = {"name": f"s{number}", **step}
        one["asks"] = one["cpu"] if step["asks"] == "0" else step["asks"]
        one["says"] = step["says"] or step["pods"]
        one["daemon"] = step["daemon"] and engine == "argo"
        if one.pop("unknown") and engine == "argo" and workflow["unit"] != "workflow":
            one["cpu"] = "{{inputs.parameters.cpu}}"
        steps.append(one)
    unit = "stage" if engine == "toy" and workflow["unit"] == "workflow" else workflow["unit"]
    if unit == "workflow":  # what the run as a whole holds is what it says
        steps = [one | {"asks": one["cpu"]} for one in steps]
    cluster.submit(name, steps, engine, unit, workflow["priority"])


def some(found: list[Any], number: int) -> list[Any]:
    return [found[number % len(found)]] if found else []


def do(cluster: Cluster, act: tuple[Any, ...], sight: Cluster) -> Cluster:
    match act:
        case ("round",):
            cluster.engine_step(), control(cluster), cluster.kueue_step(), control(cluster)
        case ("engine",):
            cluster.engine_step()
        case ("kueue",):
            cluster.kueue_step()
        case ("a while",):
            cluster.now += PATIENCE
        case ("argo is slow",):
            for one in cluster.of("workflows"):
                cluster.argo.think(cluster, one)
        case ("preempt",):
            cluster.preempt_step()
        case ("pod", number):
            for pod in some(cluster.of("pods"), number):
                cluster.pod_step(name_of(pod))
        case ("pods",):
            for pod in cluster.of("pods"):
                cluster.pod_step(name_of(pod))
        case ("evict", number, why):
            for one in some([one for one in cluster.of("workloads") if holds(one, "Admitted")], number):
                cluster.evict(name_of(one), why)
        case ("remove", number):
            for one in some([one for one in cluster.of("workloads") if not holds(one, "QuotaReserved")], number):
                cluster.drop("workloads", name_of(one))
        case ("delete", number):
            for one in some([one for one in cluster.mains if not is_deleted(one)], number):
                cluster.mark_deleted(cluster.machine_of(one).plural, name_of(one), "test/kept")
        case ("hide", number):
            for one in some(cluster.of("workflows"), number):
                cluster.argo.hide(cluster, one)
        case ("look", cut):
            control(cluster, cut=cut)
        case ("old sight",):
            return cluster.snapshot()
        case ("old look", cut):
            control(cluster, sight, cut=cut)
    return sight


@settings(max_examples=100, deadline=None)
@given(st.lists(WORKFLOW, min_size=1, max_size=3), st.integers(0, 6), st.lists(ACTS, max_size=40), st.booleans(), CAPS)
def test_any_order_of_events(
    workflows: list[dict[str, Any]], before: int, acts: list[tuple[Any, ...]], graceful: bool, cap: int
) -> None:
    """`before`: rounds in which all goes well, so that something runs when things begin to happen."""
    cluster = Cluster(cpu=12, graceful=graceful, cap=cap)
    for number, workflow in enumerate(workflows):
        submit(cluster, f"w{number}", workflow)
    cluster.quota = max(12_000, *map(whole, cluster.mains))
    sight = cluster.snapshot()
    for act in [("round",), ("pods",)] * before + acts:
        cluster.now += 1
        sight = do(cluster, act, sight)
        cluster.invariants()
    settle(cluster)
    assert not cluster.unanswered(), "an eviction that nobody answers"
    hidden = set(cluster.argo.hidden)
    for main in cluster.mains:
        if uid_of(main) in hidden:
            cluster.argo.show(cluster, main)
        if is_deleted(main):
            cluster.drop(cluster.machine_of(main).plural, name_of(main))
    settle(cluster)
    assert over(cluster), [(name_of(one), one.get("status")) for one in cluster.mains]
    failed = [name_of(one) for one in cluster.mains if uid_of(one) not in hidden and not succeeded(one)]
    assert not failed, "an eviction counts as no failure"
    assert all(holds(one, "Finished") for one in cluster.of("workloads")) and cluster.used() == 0


def whole(main: Object) -> int:
    """What a run holds as a whole, if it says so."""
    said = json.loads(annotations_of(main).get("kueue.k8s.io/max-resources") or "{}")
    return amounts(said).get("cpu", 0)


def succeeded(main: Object) -> bool:
    status = part(main, "status")
    return status.get("phase") == "Succeeded" or holds(main, "Succeeded") or holds(main, "Completed")


def test_a_name_that_two_workloads_of_a_stage_have_had_is_not_taken_again() -> None:
    """The first is there again, and that of its rest is over: a third one has a name of its own, or its creation would be refused for ever."""
    main = {"kind": "Toy", "metadata": {"name": "a", "namespace": "n", "uid": "u"}}
    stage = Stage("s", "s", "waiting", shapes=(Shape(1, {"cpu": 1000}),))
    taken: set[str] = set()
    for _ in range(4):
        made = build(main, stage, "q", None, taken=taken).name
        assert made not in taken
        taken.add(made)
