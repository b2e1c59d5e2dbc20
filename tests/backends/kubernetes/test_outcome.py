"""What a Job and its pods say of an attempt: each way to end is told apart, and what is no fault of the task is no failure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.backends.kubernetes.outcome import Containers, Ended, Running, State, Waiting, cause_of, judge, refused
from penstock.graph.model import Outcome
from tests.backends.kubernetes.pods import Dict, condition, ended, job, pod

DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def seen(*pods: Dict, of: Dict | None = None, replicas: int = 1, patience: float = 600.0) -> State:
    return judge(of if of is not None else job(), pods, replicas, "img:1", patience)


def end(*pods: Dict, **more: Any) -> Ended:
    found = seen(*pods, **more)
    assert isinstance(found, Ended)
    return found


def failed(**more: Any) -> Ended:
    return end(pod("Failed", **more))


def test_succeeded_with_what_was_stored() -> None:
    assert end(pod("Succeeded", containers={"main": ended(0)})).outcome is Outcome.SUCCEEDED
    told = end(
        pod("Succeeded", init={"main": ended(0)}, containers={"put": ended(0, message='{"result": "sha256:1"}')})
    )
    assert told.result == "sha256:1" and told.exit_code == 0 and told.pods == ((0, "p-0", "main"),)


def test_a_gang_succeeds_when_all_have_and_the_first_replica_counts() -> None:
    pods = [
        pod("Succeeded", n, containers={"main": ended(0, message=f'{{"result": "sha256:{n}"}}')}) for n in (2, 0, 1)
    ]
    assert end(*pods, replicas=3).result == "sha256:0"
    assert not isinstance(seen(*pods[:2], replicas=3), Ended)


def test_an_exit_code_comes_with_the_last_words() -> None:
    found = failed(containers={"main": ended(3, message="first\nno such table\n")})
    assert (found.outcome, found.exit_code, found.message) == (Outcome.FAILED, 3, "exit code 3: no such table")
    assert "SIGKILL" in failed(containers={"main": ended(137)}).message


def test_the_error_that_a_container_writes_is_its_own() -> None:
    said = '{"error": "BadScene", "message": "no bbox", "invalid": true}'
    assert failed(containers={"main": ended(7, message=said)}).own_error == said
    assert failed(containers={"main": ended(7, message='{"rows": 3}')}).own_error == ""
    assert cause_of(failed(containers={"main": ended(137, "OOMKilled")})) == "OutOfMemory"
    assert cause_of(failed(reason="Evicted")) == "NodeLost" and cause_of(failed(containers={"main": ended(1)})) == ""


def test_the_replica_that_failed_first_is_named() -> None:
    late = pod("Failed", 0, containers={"main": ended(143, at="2026-01-01T00:00:09Z")})
    first = pod("Failed", 2, containers={"main": ended(4, at="2026-01-01T00:00:01Z")})
    found = end(late, first, replicas=3)
    assert found.exit_code == 4 and found.message.startswith("replica 2: ") and found.replica == 2


def test_out_of_memory_says_the_limit() -> None:
    found = failed(containers={"main": ended(137, "OOMKilled")})
    assert found.outcome is Outcome.FAILED and "P725" in found.message and "64Mi" in found.message and not found.lost
    assert "its last words: step 7" in failed(containers={"main": ended(137, "OOMKilled", "step 6\nstep 7\n")}).message


def test_a_pod_that_is_evicted_has_last_words_too() -> None:
    found = failed(reason="Evicted", message="low on memory", containers={"main": ended(137, "Error", "step 7")})
    assert found.lost
    assert found.message == "its pod was taken away: low on memory; the last words of its container: step 7"


@pytest.mark.parametrize(
    "more",
    [
        {"reason": "Evicted", "message": "The node was low on resource: memory."},
        {"conditions": [condition("DisruptionTarget", reason="PreemptionByScheduler", message="preempted")]},
        {"reason": "NodeLost"},
        {"reason": "OutOfcpu"},
        {"containers": {"main": ended(137, "ContainerStatusUnknown")}},
        {"meta": DELETED, "containers": {"main": ended(143)}},
        {"meta": DELETED},
    ],
)
def test_a_pod_that_was_taken_away_is_no_failure(more: dict[str, Any]) -> None:
    found = failed(**more)
    assert found.lost and found.outcome is Outcome.ERRORED and found.message


def test_a_pod_that_the_scheduler_preempted_is_told_apart() -> None:
    taken = condition("DisruptionTarget", reason="PreemptionByScheduler")
    assert failed(conditions=[taken]).preempted and failed(reason="Preempting").preempted
    assert end(pod("Running", meta=DELETED, conditions=[taken])).preempted
    assert not failed(reason="Evicted").preempted and not failed(containers={"main": ended(1)}).preempted


@pytest.mark.parametrize("second, lost", [(1, True), (3, False)])
def test_a_gang_whose_first_pod_was_preempted_is_lost_though_another_fails_for_want_of_it(
    second: int, lost: bool
) -> None:
    """Unless it had failed by itself before."""
    crash = ended(1)
    crash["terminated"]["finishedAt"] = "2026-01-01T00:00:02Z"
    taken = condition("DisruptionTarget", reason="PreemptionByScheduler")
    taken["lastTransitionTime"] = f"2026-01-01T00:00:0{second}Z"
    rank0 = pod("Failed", containers={"main": crash})
    rank1 = pod("Running", meta=DELETED, conditions=[taken], containers={"main": {"running": {}}})
    rank1["metadata"] = {
        **rank1["metadata"],
        "name": "j-1",
        "annotations": {"batch.kubernetes.io/job-completion-index": "1"},
    }
    found = judge(job(), [rank0, rank1], 2, "i", 1.0)
    assert isinstance(found, Ended) and (found.lost, found.preempted) == (lost, lost)


def test_a_pod_whose_machine_is_gone_is_lost_although_it_never_ends() -> None:
    gone = condition("DisruptionTarget", reason="DeletionByTaintManager", message="node is gone")
    found = end(pod("Running", meta=DELETED, conditions=[gone], containers={"main": {"running": {}}}))
    assert found.lost and "node is gone" in found.message


def test_a_job_that_somebody_deleted_is_lost() -> None:
    said = "its Job was deleted by somebody"
    assert judge(None, [], 1, "i", 1.0) == Ended(Outcome.ERRORED, said, lost=True, unseen=True)
    deleted = job() | {"metadata": {"name": "j", **DELETED}}
    assert end(pod("Failed", containers={"main": ended(143)}), of=deleted).lost
    assert end(of=job(conditions=[condition("Failed", reason="BackoffLimitExceeded")])).lost


def test_deadlines_of_the_cluster_are_failures() -> None:
    assert "time" in failed(reason="DeadlineExceeded").message and not failed(reason="DeadlineExceeded").lost
    found = end(of=job(conditions=[condition("Failed", reason="DeadlineExceeded")]))
    assert found.outcome is Outcome.FAILED and not found.lost


def test_a_container_that_cannot_start_could_not_be_run() -> None:
    found = failed(containers={"main": ended(128, "StartError", 'exec: "nope": not found')})
    assert found.outcome is Outcome.ERRORED and "nope" in found.message and found.exit_code is None


def test_a_machine_that_is_too_busy_to_start_a_container_has_lost_it() -> None:
    said = "failed to create containerd task: failed to create shim task: context canceled: unknown"
    found = failed(containers={"main": ended(128, "StartError", said)})
    assert (found.outcome, found.lost) == (Outcome.ERRORED, True) and said in found.message


def test_inputs_and_outputs_that_do_not_get_through_are_told_apart() -> None:
    fetch = failed(
        init={"fetch": ended(1, message="penstock: the artifact store cannot be read")},
        containers={"main": {"waiting": {}}},
    )
    assert fetch.outcome is Outcome.ERRORED and "P728" in fetch.message and "cannot be read" in fetch.message
    missing = failed(
        init={"main": ended(0)}, containers={"put": ended(1, message='{"failed": "the output was not written"}')}
    )
    assert missing.outcome is Outcome.FAILED and missing.message == "the output was not written"


def test_a_function_that_failed_has_a_result_too() -> None:
    found = failed(containers={"main": ended(1, message='{"result": "sha256:9"}')})
    assert found.result == "sha256:9" and found.exit_code == 1 and found.outcome is Outcome.FAILED


def test_what_a_command_prints_is_not_taken_for_a_message_of_ours() -> None:
    found = failed(containers={"main": ended(1, message='{"result": 5}')})
    assert found.result == "" and "exit code 1" in found.message


def waits(**more: Any) -> Waiting:
    found = seen(pod("Pending", **more))
    assert isinstance(found, Waiting)
    return found


def test_an_image_that_is_not_there_ends_at_once_and_a_registry_that_is_away_later() -> None:
    gone = waits(containers={"main": {"waiting": {"reason": "ErrImagePull", "message": "img:1: not found"}}})
    assert gone.patience == 0.0 and gone.problem is not None and gone.problem.code == "P722"
    away = waits(containers={"main": {"waiting": {"reason": "ImagePullBackOff", "message": "dial tcp: i/o timeout"}}})
    assert away.patience == 60.0 and "i/o timeout" in away.why


def test_of_several_pods_the_one_that_waits_in_vain_counts() -> None:
    scheduled = condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")
    mild = pod("Pending", 0, conditions=[scheduled])
    gone = pod(
        "Pending", 1, containers={"main": {"waiting": {"reason": "ErrImagePull", "message": "img:1: not found"}}}
    )
    found = judge(job(), [mild, gone], 2, "img:1", 600.0)
    assert (
        isinstance(found, Waiting)
        and found.patience == 0.0
        and found.problem is not None
        and found.problem.code == "P722"
    )


def test_no_machine_is_waited_for_as_long_as_the_user_says() -> None:
    scheduled = condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")
    found = waits(conditions=[scheduled])
    assert found.patience == 600.0 and "0/3 nodes" in found.why and found.problem is not None
    assert found.problem.code == "P723"


def test_a_suspended_job_waits_for_as_long_as_it_takes() -> None:
    found = seen(of=job() | {"spec": {"suspend": True}})
    assert isinstance(found, Waiting) and found.why and found.patience is None


def test_it_runs_when_the_containers_of_all_replicas_do() -> None:
    up = [pod("Running", n, containers={"main": {"running": {}}}) for n in (0, 1)]
    assert seen(*up, replicas=2) == Running(((0, "p-0", "main"), (1, "p-1", "main")))
    assert isinstance(seen(up[0], replicas=2), Waiting)
    as_init = pod(
        "Pending",
        init={"fetch": ended(0), "main": {"running": {}}},
        containers={"put": {"waiting": {"reason": "PodInitializing"}}},
    )
    assert seen(as_init) == Running(((0, "p-0", "main"),))


def test_a_full_quota_is_waited_for_while_our_own_tasks_use_it() -> None:
    message = 'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5'
    assert refused(message, alone=True, patience=9.0).patience == 0.0
    assert refused(message, alone=False, patience=9.0).patience == 9.0
    assert refused("violates PodSecurity", alone=False, patience=9.0).patience == 0.0


words = st.sampled_from(["Evicted", "Error", "OOMKilled", "StartError", "ErrImagePull", "DeadlineExceeded", "", "x"])
states = st.one_of(
    st.just({}),
    st.builds(lambda reason: {"waiting": {"reason": reason}}, words),
    st.just({"running": {}}),
    st.builds(ended, st.integers(0, 255), words, st.sampled_from(["", "said", '{"result": "d"}', '{"failed": "f"}'])),
)
containers = st.dictionaries(st.sampled_from(["main", "fetch", "put", "other"]), states, max_size=3)
pods = st.builds(
    pod,
    st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", ""]),
    st.integers(0, 2),
    meta=st.sampled_from([{}, DELETED]),
    init=containers,
    containers=containers,
    reason=words,
    conditions=st.lists(
        st.builds(
            condition, st.sampled_from(["DisruptionTarget", "PodScheduled"]), st.sampled_from(["True", "False"]), words
        ),
        max_size=2,
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(pods, max_size=4), st.integers(1, 3), st.booleans())
def test_whatever_is_seen_has_one_meaning(some: list[Dict], replicas: int, there: bool) -> None:
    found = judge(job() if there else None, some, replicas, "i", 5.0)
    if isinstance(found, Ended):
        assert not (found.lost and found.outcome is not Outcome.ERRORED)
        assert found.outcome is Outcome.SUCCEEDED or found.message or found.result
        if found.outcome is Outcome.SUCCEEDED:
            assert sum(one["status"]["phase"] == "Succeeded" for one in some) >= replicas
    elif isinstance(found, Waiting) and found.patience is not None:
        assert found.why and found.problem is not None
    if any(one["status"]["phase"] == "Failed" for one in some) and there:
        newest = {one["metadata"]["name"]: one for one in some}
        if any(one["status"]["phase"] == "Failed" for one in newest.values()):
            assert isinstance(found, Ended) and found.outcome is not Outcome.SUCCEEDED


# -- pods of several containers ---------------------------------------------------------------------------------------

CHAIN = Containers({"one": "one", "two": "two"}, {"web": "web"}, several=True)
LED = Containers({"one": "one", "two": "two"}, {"web": "web"}, several=True, led=True)
RUNS: Dict = {"running": {}}


def of(own: Containers, *pods: Dict) -> State:
    return judge(job(), pods, 1, "img:1", 600.0, own=own)


def over(own: Containers, *pods: Dict) -> Ended:
    found = of(own, *pods)
    assert isinstance(found, Ended), found
    return found


def test_a_chain_has_ended_when_all_but_its_sidecars_have() -> None:
    up = pod("Pending", init={"web": RUNS, "one": RUNS}, containers={"two": {"waiting": {"reason": "PodInitializing"}}})
    assert of(CHAIN, up) == Running(((0, "p-0", "web"), (0, "p-0", "one")))
    done = over(CHAIN, pod("Running", init={"web": RUNS, "one": ended(0)}, containers={"two": ended(0)}))
    assert done.outcome is Outcome.SUCCEEDED and (0, "p-0", "web") in done.pods
    first = over(CHAIN, pod("Pending", init={"web": RUNS, "one": ended(3, message="words")}))
    assert (first.outcome, first.message, first.exit_code) == (Outcome.FAILED, "part one: exit code 3: words", 3)
    last = over(CHAIN, pod("Running", init={"web": ended(143), "one": ended(0)}, containers={"two": ended(4)}))
    assert last.message == "part two: exit code 4"
    waits = of(CHAIN, pod("Pending", init={"web": {"waiting": {"reason": "PodInitializing"}}}))
    assert waits == Waiting()


def test_what_the_leader_says_counts() -> None:
    said = '{"part": "one", "code": "3", "why": ""}'
    failed = over(
        LED, pod("Running", containers={"put": ended(1, message=said), "one": ended(3, message="words"), "two": RUNS})
    )
    assert (failed.outcome, failed.message, failed.exit_code) == (Outcome.FAILED, "part one: exit code 3: words", 3)
    late = '{"part": "one", "code": "143", "why": "timed out after 1 s"}'
    found = over(LED, pod("Failed", containers={"put": ended(1, message=late), "one": ended(143), "two": ended(0)}))
    assert found.message == "part one: timed out after 1 s"
    memory = over(
        LED,
        pod(
            "Failed",
            containers={
                "put": ended(1, message=said.replace("3", "137")),
                "one": ended(137, "OOMKilled"),
                "two": ended(0),
            },
        ),
    )
    assert memory.message.startswith("P725 part one")
    told = '{"result": "sha256:1"}'  # though a part that may fail was killed with its shell, and so the pod has failed
    done = over(LED, pod("Failed", containers={"put": ended(0, message=told), "one": ended(137), "two": ended(0)}))
    assert done.outcome is Outcome.SUCCEEDED and done.result == "sha256:1"


def test_the_last_words_of_a_part_are_waited_for() -> None:
    said = '{"part": "one", "code": "3", "why": ""}'
    up = {"put": ended(1, message=said), "one": RUNS, "two": ended(0)}
    assert isinstance(of(LED, pod("Running", containers=up)), Running)


def test_a_pod_with_a_leader_that_is_taken_away_is_lost() -> None:
    said = '{"part": "one", "code": "143", "why": ""}'
    states = {"put": ended(1, message=said), "one": ended(143), "two": ended(0)}
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert over(LED, pod("Failed", meta=deleted, containers=states)).lost
    marked = [condition("DisruptionTarget", reason="EvictionByEvictionAPI")]
    assert over(LED, pod("Failed", containers=states, conditions=marked)).lost
    alone = over(LED, pod("Failed", containers={"put": ended(137, "OOMKilled"), "one": ended(0), "two": ended(0)}))
    assert alone.outcome is Outcome.ERRORED and "P728" in alone.message


@pytest.mark.parametrize("own", [LED, CHAIN])
def test_a_container_that_others_wait_for_and_that_never_starts(own: Containers) -> None:
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    web = {"name": "web", "state": state, "lastState": ended(128, "StartError", "no such file")}
    found = pod("Pending")
    found["status"]["initContainerStatuses"] = [web]
    waits = of(own, found)
    assert isinstance(waits, Waiting) and waits.problem is not None and waits.patience == 0.0
    assert waits.why == "part web: its container cannot be started: no such file"
