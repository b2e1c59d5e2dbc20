"""What the JobSet engine makes of the objects that JobSet writes. Against the real JobSet: tests/cluster/test_engine_jobset_live.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.controller.core import Seen, reconcile
from penstock.controller.engine import Opening, Unit
from penstock.controller.engines.jobset import ENGINE, POLICY, groups_of, steps_of
from penstock.controller.names import PARALLELISM, POD_SET, QUEUE, QUEUED
from penstock.controller.objects import Object
from penstock.errors import DocumentError
from tests.controller.engine_objects import NS, QUEUE_LABEL, Shelf, admitted, child, created, observed, pod

ALL = Opening(None, (), {}, ())


def step(name: str, pods: int = 1, *after: str, ready: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}], **more.pop("pod", {})}
    job = {"parallelism": pods, "completions": pods, "template": {"spec": spec}, **more.pop("job", {})}
    depends = [{"name": one, "status": "Complete"} for one in after] + [
        {"name": one, "status": "Ready"} for one in ready
    ]
    found = {"name": name, "replicas": 1, "template": {"spec": job}, **more}
    return {**found, "dependsOn": depends} if depends else found


def document(*steps: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "set", "namespace": NS, "labels": QUEUE_LABEL, "annotations": annotations or {}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": list(steps), **spec},
    }


def stored(
    *steps: dict[str, Any], unit: Unit = "stage", status: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    return {**created(ENGINE.adjust(document(*steps, **spec), unit, Shelf()).object), "status": status or {}}


def job(
    main: Object,
    name: str,
    parallelism: int = 0,
    *,
    number: int = 0,
    attempt: int = 0,
    done: bool = False,
    **status: Any,
) -> dict[str, Any]:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": name, "jobset.sigs.k8s.io/restart-attempt": str(attempt)}
    conditions = [{"type": "Complete", "status": "True"}] if done else []
    own = {"metadata": {"uid": f"uid-{name}-{number}-{attempt}"}}
    spec = {"parallelism": parallelism}
    return child(
        "Job",
        f"set-{name}-{number}",
        main,
        labels=labels,
        spec=spec,
        status={"conditions": conditions, **status},
        **own,
    )


STEPS = (step("a", 2), step("b", 4, "a"), step("c", 2, "b"))


def states(seen: Any, unit: Unit = "stage") -> dict[str, str]:
    return {one.key: one.state for one in ENGINE.view(seen, unit).stages}


def groups(*steps: dict[str, Any], **spec: Any) -> list[str]:
    return ["+".join(one.name for one in group) for group in groups_of(steps_of(document(*steps, **spec)))]


def test_it_is_cut_where_a_step_waits_until_others_are_complete() -> None:
    assert groups(*STEPS) == ["a", "b", "c"]
    assert groups(step("a"), step("b"), step("c", 1, "a", "b")) == ["a+b", "c"]
    assert groups(step("server"), step("client", ready=("server",)), step("end", 1, "client")) == [
        "server+client",
        "end",
    ]
    assert groups(step("a"), step("b", 1, "a"), step("c", 1, "a"), step("d", 1, "b")) == ["a", "b+c", "d"]
    assert groups(step("a"), step("b"), startupPolicy={"startupPolicyOrder": "InOrder"}) == ["a+b"]
    assert groups(step("a"), step("b", 1, "a"), step("c", ready=("b",))) == ["a", "b+c"], (
        "what b waits for, c waits for"
    )


def test_a_step_that_waits_for_one_that_there_is_not_waits() -> None:
    """JobSet refuses such a JobSet; it may have been edited, though."""
    assert states(observed(stored(step("a"), step("b", 1, "gone"), step("c", 1, "b")))) == dict.fromkeys("abc", "ahead")


def test_steps_that_name_different_queues_are_different_stages() -> None:
    gpu = step("gpu", ready=("cpu",))
    gpu["template"]["metadata"] = {"labels": {QUEUE: "gpus"}}
    main = stored(step("cpu"), gpu)
    stages = ENGINE.view(observed(main, job(main, "cpu"), job(main, "gpu")), "stage").stages
    assert [(one.key, one.queue) for one in stages] == [("cpu", "team-a"), ("gpu", "gpus")]
    held, ready = job(main, "cpu"), job(main, "cpu", 1, active=1, ready=1)
    for first, count in ((held, 0), (ready, 1)):
        assert len(ENGINE.open(observed(main, first, job(main, "gpu")), "stage", stages[1], ALL)) == count


def test_which_are_ours() -> None:
    assert ENGINE.queued(document(*STEPS))
    assert ENGINE.queued(document(step("a"), startupPolicy={"startupPolicyOrder": "InOrder"}))
    assert ENGINE.queued(document(step("a"), annotations={"penstock/unit": "task"}))
    assert ENGINE.queued(document(step("a"), annotations={POLICY: "{}"}))
    assert not ENGINE.queued(document(step("a"), step("b"))), "Kueue's own"
    assert not ENGINE.queued(document(step("a"), startupPolicy={"startupPolicyOrder": "AnyOrder"}))
    assert not ENGINE.queued(document(*STEPS, managedBy="kueue.x-k8s.io/multikueue"))


def test_a_jobset_is_made_ready() -> None:
    own = step(
        "gpu",
        3,
        "a",
        template={
            "metadata": {"labels": {QUEUE: "gpus", "mine": "x"}},
            "spec": {"parallelism": 3, "completions": 3, "template": {"spec": {}}},
        },
    )
    network = {"subdomain": "here", "enableDNSHostnames": True}
    found = ENGINE.adjust(
        document(step("a", 2), own, network=network, failurePolicy={"maxRestarts": 2}), "stage", Shelf()
    ).object
    assert found["metadata"]["labels"] == {QUEUED: "team-a"}, "Kueue's own integration must not see it"
    first, second = (one["template"] for one in found["spec"]["replicatedJobs"])
    assert (first["spec"]["parallelism"], first["metadata"]["annotations"][PARALLELISM]) == (0, "2")
    assert first["metadata"]["labels"] == first["spec"]["template"]["metadata"]["labels"] == {QUEUED: "team-a"}
    assert second["metadata"]["labels"] == {QUEUED: "gpus", "mine": "x"}
    assert second["spec"]["template"]["metadata"]["labels"] == {QUEUED: "gpus"}
    assert (found["spec"]["network"], found["spec"]["failurePolicy"]) == (network, {"maxRestarts": 2})
    view = ENGINE.view(observed(created(found)), "stage")
    assert [(one.key, one.queue) for one in view.stages] == [("a", "team-a"), ("gpu", "gpus")]
    again = ENGINE.adjust(found, "stage", Shelf()).object
    assert again == found, "a copy of it is the same"


def test_a_step_without_numbers_gets_the_completions_that_it_would_have_had() -> None:
    bare = {"name": "a", "template": {"spec": {"template": {"spec": {}}}}}
    found = ENGINE.adjust(document(bare, step("b", 1, "a")), "stage", Shelf()).object
    spec = found["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (spec["parallelism"], spec["completions"]) == (0, 1)


def test_a_deadline_is_warned_of() -> None:
    found = ENGINE.adjust(document(step("a", job={"activeDeadlineSeconds": 60}), step("b", 1, "a")), "stage", Shelf())
    assert "activeDeadlineSeconds" in found.warnings[0]


def test_an_execution_policy_becomes_depends_on() -> None:
    def depends(policy: Any, *steps: dict[str, Any]) -> list[Any]:
        made = ENGINE.adjust(document(*steps, annotations={POLICY: json.dumps(policy)}), "stage", Shelf()).object
        return [
            [(each["name"], each["status"]) for each in one.get("dependsOn", [])]
            for one in made["spec"]["replicatedJobs"]
        ]

    three = (step("a"), step("b"), step("c"))
    in_order = {"executionPolicyOrder": "InOrder", "replicatedJobsStatus": "Succeeded"}
    assert depends(in_order, *three) == [[], [("a", "Complete")], [("b", "Complete")]]
    rules = {"rules": [{"targetReplicatedJobs": ["a", "b"], "replicatedJobsStatus": "Succeeded"}]}
    assert depends(rules, *three) == [[], [], [("a", "Complete"), ("b", "Complete")]]
    one = {"rules": [{"targetReplicatedJobs": ["a"], "replicatedJobsStatus": "Ready"}]}
    assert depends(one, *three) == [[], [("a", "Ready")], [("a", "Ready")]]
    for wrong in (
        "x",
        {"rules": [{"targetReplicatedJobs": ["nobody"], "replicatedJobsStatus": "Ready"}]},
        {**in_order, "replicatedJobsStatus": "Failed"},
    ):
        with pytest.raises(DocumentError) as error:
            depends(wrong, *three)
        assert error.value.problems[0].code == "P867"
    with pytest.raises(DocumentError, match="dependsOn says another order"):
        depends(in_order, step("a"), step("b"), step("c", 1, "a"))


def test_an_execution_policy_is_taken_as_often_as_the_webhook_is_asked() -> None:
    """The API server asks once for each label, and the first answer has put ours in place of Kueue's."""
    policy = '{"executionPolicyOrder": "InOrder", "replicatedJobsStatus": "Succeeded"}'
    first = ENGINE.adjust(document(step("a"), step("b"), annotations={POLICY: policy}), "stage", Shelf()).object
    assert ENGINE.adjust(first, "stage", Shelf()).object == first


def test_the_life_of_a_stage() -> None:
    main = stored(*STEPS)
    assert states(observed(main)) == {"a": "ahead", "b": "ahead", "c": "ahead"}
    a = job(main, "a")
    assert states(observed(main, a)) == {"a": "held", "b": "ahead", "c": "ahead"}
    going = job(main, "a", 2, active=2, succeeded=0)
    assert states(observed(main, going))["a"] == "open"
    done = job(main, "a", 2, done=True, succeeded=2)
    stages = ENGINE.view(observed(main, done, job(main, "b")), "stage").stages
    assert [(one.key, one.state, one.finished, one.outcome) for one in stages] == [
        ("a", "done", (2,), "Succeeded"),
        ("b", "held", (0,), ""),
        ("c", "ahead", (0,), ""),
    ]
    leaving = job(main, "a", 0)
    assert states(observed(main, leaving, pod("p", leaving)))["a"] == "open", "its pods have not ended yet"


@pytest.mark.parametrize(
    ("parallelism", "completions", "succeeded", "count", "finished"),
    [(4, 4, 1, 4, 1), (2, 10, 7, 2, 0), (2, 10, 9, 2, 1), (5, 3, 1, 3, 1), (3, None, 1, 3, 1)],
)
def test_what_is_not_needed_any_more(
    parallelism: int, completions: int | None, succeeded: int, count: int, finished: int
) -> None:
    main = stored(step("a", job={"parallelism": parallelism, "completions": completions}), step("b", 1, "a"))
    stage = ENGINE.view(observed(main, job(main, "a", parallelism, succeeded=succeeded)), "stage").stages[0]
    assert (stage.shapes[0].count, stage.finished) == (count, (finished,))


def test_how_it_ends_and_waits_for_the_user() -> None:
    for kind, over in (("Completed", "Succeeded"), ("Failed", "Failed")):
        main = stored(*STEPS, status={"conditions": [{"type": kind, "status": "True"}]})
        assert ENGINE.view(observed(main), "stage").over == over
    assert ENGINE.view(observed(stored(*STEPS, suspend=True)), "stage").paused


def test_a_restart_has_other_stages_unless_there_is_only_one() -> None:
    main = stored(*STEPS, status={"restarts": 1})
    old, new = job(main, "b", 4, attempt=0), job(main, "a", attempt=1)
    one = pod("old", old)
    seen = observed(main, old, new, one)
    assert states(seen) == {"a@1": "held", "b@1": "ahead", "c@1": "ahead"}
    assert ENGINE.task_of(one, seen, "stage").stage == "b", "what the old ones hold is not the new ones'"
    single = stored(step("a"), step("b", ready=("a",)), status={"restarts": 1})
    assert states(observed(single, job(single, "a", attempt=1))) == {"a": "held"}


def test_letting_go_keeps_the_order_of_readiness() -> None:
    main = stored(step("server", 2), step("client", 3, ready=("server",)))
    server, client = job(main, "server"), job(main, "client")
    (stage,) = ENGINE.view(observed(main, server, client), "stage").stages

    def let_go(*jobs: Object) -> list[tuple[str, Any]]:
        return [(one.name, one.body) for one in ENGINE.open(observed(main, *jobs), "stage", stage, ALL)]

    assert let_go(server, client) == [("set-server-0", {"spec": {"parallelism": 2}})]
    assert let_go(job(main, "server", 2, active=2, ready=1), client) == []
    assert let_go(job(main, "server", 2, active=2, ready=2), client) == [("set-client-0", {"spec": {"parallelism": 3}})]
    assert let_go(job(main, "server", 2, active=2, ready=2), job(main, "client", 3)) == []


def test_a_part_of_a_stage() -> None:
    main = stored(step("a", 2, replicas=3), step("b", 1, "a"))
    jobs = [job(main, "a", number=number) for number in range(3)]
    stage = ENGINE.view(observed(main, *jobs), "stage").stages[0]
    writes = ENGINE.open(observed(main, *jobs), "stage", stage, Opening(3, (), {}, ()))
    assert [(one.name, one.body["spec"]["parallelism"]) for one in writes] == [("set-a-0", 2), ("set-a-1", 1)]


def test_stopping_waits_until_nothing_is_left() -> None:
    main = stored(*STEPS)
    a = job(main, "a", 2, active=2)
    (write,) = ENGINE.stop(observed(main, a, pod("p", a)), "stage", "a", ()) or ()
    assert (write.name, write.body) == ("set-a-0", {"spec": {"parallelism": 0}})
    assert ENGINE.stop(observed(main, job(main, "a", 0, terminating=2)), "stage", "a", ()) == []
    zero = job(main, "a", 0)
    assert ENGINE.stop(observed(main, zero, pod("p", zero)), "stage", "a", ()) == []
    assert ENGINE.stop(observed(main, zero), "stage", "a", ()) is None
    done = job(main, "a", 2, done=True)
    assert ENGINE.stop(observed(main, done), "stage", "a", ()) is None


def test_pods_that_wait_go_too() -> None:
    main = stored(*STEPS)
    a = job(main, "a", 2, active=2)
    (write,) = ENGINE.stop(observed(main, a, pod("p", a, gated=True)), "stage", "a", ()) or ()
    assert write.body == {"spec": {"parallelism": 0}}


def test_some_tasks_are_stopped_with_their_jobs() -> None:
    main = stored(step("a", 2, replicas=2), step("b", 1, "a"))
    first, second = (job(main, "a", 2, number=number, active=2) for number in range(2))
    seen = observed(main, first, second, pod("p", first), pod("q", second))
    (write,) = ENGINE.stop(seen, "stage", "a", ["set-a-1/0"]) or ()
    assert write.name == "set-a-1"


def test_a_pod_is_known_by_its_index() -> None:
    main = stored(*STEPS)
    a = job(main, "a", 2)
    indexed = pod("set-a-0-1-x7k2p", a, metadata={"annotations": {"batch.kubernetes.io/job-completion-index": "1"}})
    seen = observed(main, a, indexed)
    assert [ENGINE.task_of(indexed, seen, unit).stage for unit in ("stage", "task", "workflow")] == [
        "a",
        "set-a-0",
        "(workflow)",
    ]  # type: ignore[arg-type]
    assert ENGINE.task_of(indexed, seen, "stage").name == "set-a-0/1"


def test_as_a_whole_it_holds_its_peak_and_gives_back() -> None:
    main = stored(*STEPS, unit="workflow")
    (whole,) = ENGINE.view(observed(main), "workflow").stages
    assert (whole.state, whole.vector, dict(whole.shapes[0].requests)) == ("held", True, {"cpu": 4000})
    done = [job(main, "a", 2, done=True), job(main, "b", 4, done=True), job(main, "c")]
    (whole,) = ENGINE.view(observed(main, *done), "workflow").stages
    assert (whole.state, [dict(one) for one in whole.needed]) == ("held", [{"cpu": 2000}])
    (write,) = ENGINE.open(observed(main, *done), "workflow", whole, ALL)
    assert write.name == "set-c-0"


def test_a_declaration_that_cannot_be_read_is_a_problem() -> None:
    main = stored(*STEPS, unit="workflow")
    main["metadata"]["annotations"] = {"kueue.k8s.io/max-resources": "cpu=8"}
    view = ENGINE.view(observed(main), "workflow")
    assert "max-resources" in view.problem and view.stages == ()
    assert view.fix.startswith("Write kueue.k8s.io/max-resources") and view.fix.endswith(".")


def test_by_task_each_job_is_a_stage() -> None:
    main = stored(step("a", 2, replicas=2), step("b", 1, "a"), unit="task")
    seen = observed(main, job(main, "a"), job(main, "a", 2, number=1))
    assert states(seen, "task") == {"set-a-0": "held", "set-a-1": "open", "set-b-0": "ahead"}
    assert ENGINE.view(seen, "task").stages[0].shapes[0].count == 2


def test_what_comes_to_an_open_stage_later_is_let_go() -> None:
    """Through the core: the client is let go when the server is ready, in the same stage."""
    main = stored(step("server", 2), step("client", 3, ready=("server",)))
    server, client = job(main, "server", 2, active=2, ready=2), job(main, "client")
    pods = [pod(f"server-{number}", server) for number in range(2)]
    seen = observed(main, server, client, *pods)
    (stage,) = ENGINE.view(seen, "stage").stages
    assert stage.state == "open"
    workload = admitted(main, stage)
    for one in pods:
        one["metadata"]["annotations"] = {POD_SET: f"{workload['metadata']['name']}/main"}
    plan = reconcile(Seen(ENGINE, seen, "stage", [workload]))
    assert [write.name for write in plan.writes if write.resource.kind == "Job"] == ["set-client-0"]


def test_by_reuse_a_step_follows_the_one_that_it_waits_for_alone() -> None:
    """c waits for a and b: it takes over from nobody."""
    steps = [step("a"), step("b", 1, "a"), step("other", 1, "a", job={"completions": 2}), step("c", 1, "b"), step("d")]
    main = stored(*steps, unit="reuse")
    found = {one.name: one.next for one in ENGINE.view(observed(main), "reuse").stages}
    assert found == {"a+d": ("b",), "b+other": ("c",), "c": ()}
    main = stored(step("a"), step("b"), step("c", 1, "a", "b"), step("d", 1, "c"), unit="reuse")
    assert {one.name: one.next for one in ENGINE.view(observed(main), "reuse").stages}["c"] == ("d",)


def test_by_reuse_a_step_takes_over_what_an_equal_one_held() -> None:
    main = stored(step("a", 2), step("b", 2, "a"), unit="reuse")
    view = ENGINE.view(observed(main), "reuse")
    held = admitted(main, view.stages[0])
    seen = observed(main, job(main, "a", 2, done=True, succeeded=2), job(main, "b", 0))
    (write,) = [one for one in reconcile(Seen(ENGINE, seen, "reuse", [held])).writes if one.resource.kind == "Workload"]
    assert write.why == "stage b takes over the reservation" and write.body["metadata"]["annotations"] == {
        "penstock/stage": "b"
    }
