"""What the webhook and the workers give away together: never more than is admitted, whatever comes in between; and each pod is answered without looking at
all the others."""

from __future__ import annotations

import base64
import json
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.controller import workload as kueue
from penstock.controller.cluster import assume_cache as assume_cache_module
from penstock.controller.cluster.assume_cache import ASSUMED, AssumeCache, moves
from penstock.controller.cluster.main import Controller
from penstock.controller.engine import Task, Unit, View
from penstock.controller.engines.argo import ENGINE as ARGO
from penstock.controller.engines.jobset import ENGINE as JOBSET
from penstock.controller.engines.jobset import JOB_SETS, JOBS
from penstock.controller.objects import (
    CLUSTER_QUEUES,
    FLAVORS,
    LOCAL_QUEUES,
    PODS,
    WORKLOADS,
    ApiResource,
    Object,
    annotations_of,
    name_of,
    uid_of,
)
from penstock.controller.workload import OwnWorkload
from tests.controller.model import NS, Cluster, control
from tests.controller.toy_engine.penstock_toy import SEQUENCES, ToyEngine

KEY = ("toy", NS, "a")
KINDS = {"sequences": SEQUENCES, "workloads": WORKLOADS, "localqueues": LOCAL_QUEUES, "clusterqueues": CLUSTER_QUEUES}


class Counting(ToyEngine):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.views = self.tasks = 0

    def view(self, seen: Any, unit: Unit) -> View:
        self.views += 1
        return super().view(seen, unit)

    def task_of(self, pod: Any, seen: Any, unit: Unit) -> Task:
        self.tasks += 1
        return super().task_of(pod, seen, unit)


class Desk:
    """A stage of some pods that is admitted and let go, and a controller that sees it."""

    def __init__(self, pods: int = 4) -> None:
        self.cluster = Cluster(cpu=10**6)
        self.cluster.submit("a", [{"name": "train", "pods": pods, "cpu": "1"}])
        self.cluster.engine_step(), control(self.cluster), self.cluster.kueue_step(), control(self.cluster)
        self.engine = Counting()
        self.fresh = math.inf
        self.controller = Controller([self.engine], clock=lambda: self.cluster.now, fresh=lambda: self.fresh)
        self.version = 10_000
        self.made = 0
        for plural, resource in KINDS.items():
            for one in self.cluster.of(plural):
                self.put(resource, one)
        self.put(FLAVORS, self.cluster.of("resourceflavors")[0])

    def put(self, resource: ApiResource, obj: Object, told: bool = True) -> Callable[[], None]:
        self.version += 1
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        return self._tell(self.controller.caches[resource].put(stored), told)

    def remove(self, resource: ApiResource, obj: Object) -> None:
        self.version += 1
        gone = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        self._tell(self.controller.caches[resource].remove(gone), True)

    def _tell(self, change: Any, told: bool) -> Callable[[], None]:
        """As the manager does; perhaps later."""

        def tell() -> None:
            if change is not None:
                keys = [self.controller.owner_of(one) for one in (change.old, change.new) if one is not None]
                self.controller.noticed(change, {key for key in keys if key is not None})

        if told:
            tell()
        return tell

    def new(self, name: str = "", index: int = 0, cpu: str = "1") -> dict[str, Any]:
        main = self.cluster.of("sequences")[0]
        owner = {"apiVersion": SEQUENCES.api, "kind": SEQUENCES.kind, "name": "a", "uid": uid_of(main)}
        labels = {"penstock/queue": "q", "step": "train", "index": str(index)}
        metadata = {"labels": labels, "ownerReferences": [owner], "namespace": NS}
        return {
            "metadata": metadata | ({"name": name} if name else {"generateName": "p-"}),
            "spec": {
                "schedulingGates": [{"name": "penstock/admission"}],
                "containers": [{"resources": {"requests": {"cpu": cpu}}}],
            },
        }

    def ask(self, pod: dict[str, Any], **more: Any) -> dict[str, Any]:
        """The pod as it is stored."""
        answer = self.controller.admit_pod({"namespace": NS, "object": pod, **more})
        made: dict[str, Any] = json.loads(json.dumps(pod))
        for one in json.loads(base64.b64decode(answer.get("patch", "W10="))):
            _, group, field = one["path"].split("/")
            if one["op"] == "remove":
                made[group].pop(field)
            else:
                made[group][field] = one["value"]
        self.made += 1
        made["metadata"] |= {"uid": f"pod-{self.made}"}
        made["metadata"].setdefault("name", f"p-{self.made}")
        return made | {"status": {"phase": "Pending"}}

    def free(self, pod: dict[str, Any], **more: Any) -> bool:
        return "schedulingGates" not in self.ask(pod, **more)["spec"]


def gated(pod: Object) -> bool:
    return "schedulingGates" in pod["spec"]


def test_no_more_pods_are_let_go_than_fit_although_none_is_seen_yet() -> None:
    desk = Desk(4)
    assert [desk.free(desk.new()) for _ in range(6)] == [True] * 4 + [False] * 2


def test_pods_without_a_name_are_counted_once_when_they_are_seen() -> None:
    """They have the same task: of a Job that has no index."""
    desk = Desk(4)
    for _ in range(2):
        desk.put(PODS, desk.ask(desk.new()))
    assert [desk.free(desk.new()) for _ in range(3)] == [True, True, False]


def test_a_worker_counts_them_once_too() -> None:
    desk = Desk(4)
    for _ in range(4):
        desk.put(PODS, desk.ask(desk.new()), told=False)
    plan = desk.controller.reconcile(KEY)
    assert not [write for write in plan.writes if write.verb == "create"]
    desk = Desk(4)
    made = [desk.ask(desk.new()) for _ in range(5)]
    assert gated(made[4])
    for pod in (made[0], made[4]):
        desk.put(PODS, pod)
    assert not [write for write in desk.controller.reconcile(KEY).writes if write.resource == PODS]


def test_a_try_before_of_the_same_task_is_not_taken_for_the_new_pod() -> None:
    desk = Desk(1)
    desk.put(PODS, desk.ask(desk.new()) | {"status": {"phase": "Failed"}})
    assert desk.free(desk.new())
    assert not desk.free(desk.new())


def test_a_pod_that_waited_is_not_taken_for_one_that_was_let_go_at_birth() -> None:
    desk = Desk(2)
    waiting = desk.ask(desk.new(cpu="5"))
    assert gated(waiting)
    desk.put(PODS, waiting)
    assert desk.free(desk.new())  # on its way
    waiting["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    desk.put(PODS, waiting)
    (release,) = [write for write in desk.controller.reconcile(KEY).writes if write.resource == PODS]
    waiting["spec"].pop("schedulingGates")
    waiting["metadata"]["annotations"] = dict(annotations_of(release.body))
    desk.put(PODS, waiting)
    desk.controller.assume_cache.settled(KEY)
    assert not desk.free(desk.new()), "one runs, and one is on its way"


def test_what_is_not_seen_counts_as_long_as_the_watch_stands_still() -> None:
    desk = Desk(1)
    assert desk.free(desk.new())
    desk.fresh = 0.0
    desk.cluster.now += 60
    assert not desk.free(desk.new())
    desk.fresh = ASSUMED - 1
    assert not desk.free(desk.new()), "it is up again, and may be behind"
    desk.fresh = ASSUMED
    assert desk.free(desk.new())


def test_a_dry_run_changes_nothing() -> None:
    desk = Desk(1)
    assert all(desk.free(desk.new(), dryRun=True) for _ in range(3))
    assert desk.free(desk.new())
    assert not desk.free(desk.new(), dryRun=True)


def test_reviews_that_are_made_up_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assume_cache_module, "MOST_ASSUMED", 3)
    desk = Desk(10)
    assert [desk.free(desk.new(f"p{number}")) for number in range(5)] == [True] * 3 + [False] * 2
    desk.cluster.now += ASSUMED
    desk.put(SEQUENCES, desk.cluster.of("sequences")[0])
    desk.controller.reconcile(KEY)
    assert desk.free(desk.new())


@pytest.mark.parametrize("kind", ["release", "finish", "reclaim"])
def test_while_a_worker_moves_room_the_webhook_lets_nothing_go(kind: str) -> None:
    desk = Desk(2)
    if kind == "release":
        desk.put(PODS, desk.ask(desk.new()) | {"spec": desk.new()["spec"]})
    elif kind == "finish":
        main = desk.cluster.of("sequences")[0]
        main["status"] = {"done": {"train": [0, 1]}, "phase": "Succeeded"}
        desk.put(SEQUENCES, main)
    else:
        workload = desk.cluster.of("workloads")[0]
        workload["status"]["conditions"].append({"type": "PodsReady", "status": "True"})
        desk.put(WORKLOADS, workload)
        main = desk.cluster.of("sequences")[0]
        main["status"] = {"done": {"train": [0]}}
        desk.put(SEQUENCES, main)
    plan = desk.controller.reconcile(KEY)
    assert any(map(moves, plan.writes))
    assert not desk.free(desk.new())
    desk.controller.assume_cache.settled(KEY)
    if kind == "reclaim":
        assert desk.free(desk.new()), "the write was put off: nothing was given back"


def test_that_pods_run_or_are_lost_moves_no_room() -> None:
    """Pods that come while it is written do not keep their gates for it: each would need a write of its own."""
    there = OwnWorkload(Desk(2).cluster.of("workloads")[0])
    assert not any(map(moves, (kueue.pods_ready(there, 1.0), kueue.pods_lost(there, "x", 1.0))))
    back = kueue.reclaim(there, {"main": 1})
    assert back is not None
    assert all(
        map(moves, (back, kueue.finish(there, "", "x", 1.0), kueue.respond(there, 1.0), kueue.delete(there, "x")))
    )


def test_the_webhook_looks_only_when_no_worker_decides() -> None:
    """It waits for the lock; what it sees must be from after that."""
    desk = Desk(1)
    order: list[str] = []
    inside, go_on = threading.Event(), threading.Event()
    usual = desk.controller.seen

    def look(key: Any) -> Any:
        who = threading.current_thread().name
        order.append(f"{who} looks")
        if who == "worker":
            inside.set()
            assert go_on.wait(10)
        found = usual(key)
        order.append(f"{who} has looked")
        return found

    desk.controller.assume_cache = AssumeCache(look, lambda: desk.cluster.now, lambda: math.inf)
    worker = threading.Thread(target=desk.controller.reconcile, args=(KEY,), name="worker")
    worker.start()
    assert inside.wait(10)
    webhook = threading.Thread(target=lambda: desk.ask(desk.new()), name="webhook")
    webhook.start()
    webhook.join(0.05)
    assert webhook.is_alive()
    go_on.set()
    worker.join(10), webhook.join(10)
    assert order == ["worker looks", "worker has looked", "webhook looks", "webhook has looked"]


def test_a_wide_stage_is_not_looked_at_anew_for_each_pod() -> None:
    desk = Desk(200)
    for number in range(200):
        pod = desk.ask(desk.new())
        assert not gated(pod)
        desk.put(PODS, pod)
        desk.put(PODS, pod | {"status": {"phase": "Running"}})
        if number % 2:
            desk.put(CLUSTER_QUEUES, desk.cluster.of("clusterqueues")[0] | {"status": {"pendingWorkloads": number}})
    assert desk.engine.views == 1
    assert desk.engine.tasks == 200
    assert not desk.free(desk.new())


def test_what_changes_is_looked_at_anew() -> None:
    desk = Desk(4)
    assert desk.free(desk.new())
    workload = desk.cluster.of("workloads")[0]
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted"}
    kept = [one for one in workload["status"]["conditions"] if one["type"] != "Evicted"]
    desk.put(WORKLOADS, workload | {"status": {**workload["status"], "conditions": [*kept, evicted]}})
    assert not desk.free(desk.new())
    desk.put(WORKLOADS, workload)
    pod = desk.ask(desk.new())
    assert pod["spec"]["nodeSelector"] == {"pool": "spot"}
    desk.put(FLAVORS, {"metadata": {"name": "spot"}, "spec": {"nodeLabels": {"pool": "new"}}})
    assert desk.ask(desk.new())["spec"]["nodeSelector"] == {"pool": "new"}


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.booleans()),
        st.tuples(st.just("store"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("tell"), st.integers(0, 9)),
        st.tuples(st.just("end"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("remove"), st.integers(0, 9)),
        st.tuples(st.just("work"), st.booleans()),
        st.tuples(st.just("touch"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=40, deadline=None)
@given(ACTS)
def test_never_more_than_fit_in_any_order(acts: list[tuple[Any, ...]]) -> None:
    """Pods are let go at birth, stored later, seen later still and told of in any order; workers let go those that waited."""
    desk = Desk(3)
    born: list[dict[str, Any]] = []
    stored: list[dict[str, Any]] = []
    untold: list[Callable[[], None]] = []

    def put(pod: dict[str, Any], told: bool) -> None:
        tell = desk.put(PODS, pod, told)
        if not told:
            untold.append(tell)

    for act in acts:
        match act:
            case ("ask", named):
                born.append(desk.ask(desk.new(f"n{desk.made}" if named else "")))
            case ("store", number, told) if born:
                stored.append(born.pop(number % len(born)))
                put(stored[-1], told)
            case ("tell", number) if untold:
                untold.pop(number % len(untold))()
            case ("end", number, told) if stored:
                pod = stored[number % len(stored)]
                if not gated(pod):
                    pod["status"] = {"phase": "Succeeded"}
                    put(pod, told)
            case ("remove", number) if stored:
                desk.remove(PODS, stored.pop(number % len(stored)))
            case ("work", told):
                plan = desk.controller.reconcile(KEY)
                for write in plan.writes:
                    if write.resource == PODS:
                        pod = next(one for one in stored if name_of(one) == write.name)
                        pod["spec"].pop("schedulingGates")
                        pod["metadata"]["annotations"] = dict(annotations_of(write.body))
                        put(pod, told)
                desk.controller.assume_cache.settled(KEY)
            case ("touch", _):
                desk.put(SEQUENCES, desk.cluster.of("sequences")[0])
        runs = [one for one in (*born, *stored) if not gated(one) and one["status"]["phase"] == "Pending"]
        assert len(runs) <= 3
    for pod in born:
        desk.put(PODS, pod)
    for tell in untold:
        tell()
    runs = [one for one in (*born, *stored) if not gated(one) and one["status"]["phase"] == "Pending"]
    more = sum(desk.free(desk.new()) for _ in range(5))
    assert more == 3 - len(runs), "what is free is given, and no more"


def test_the_nearest_that_waits_by_itself_owns_what_is_below() -> None:
    """A resource template of Argo has made a JobSet with a queue of its own, and a Job that has none."""
    controller = Controller([ARGO, JOBSET])
    workflow = _object(ARGO.main[0], "w", {"kueue.x-k8s.io/queue-name": "q"})
    jobset = _object(JOB_SETS, "js", {"penstock/queue": "q"}, workflow)
    inner = _object(JOBS, "js-job", {"penstock/queue": "q"}, jobset)
    other = _object(JOBS, "job", {"penstock/queue": "q"}, workflow)
    pods = {
        one["metadata"]["name"]: _object(PODS, f"{name_of(one)}-p", {"penstock/queue": "q"}, one)
        for one in (inner, other)
    }
    for resource, obj in (
        (ARGO.main[0], workflow),
        (JOB_SETS, jobset),
        (JOBS, inner),
        (JOBS, other),
        *((PODS, one) for one in pods.values()),
    ):
        controller.caches[resource].put(obj)
    ours, theirs = ("argo", NS, "w"), ("jobset", NS, "js")
    assert controller.owner_of(workflow) == ours
    assert controller.owner_of(jobset) == controller.owner_of(inner) == controller.owner_of(pods["js-job"]) == theirs
    assert controller.owner_of(other) == controller.owner_of(pods["job"]) == ours
    assert controller.object_of(theirs) is not None
    one, two = controller.seen(ours), controller.seen(theirs)
    assert one is not None and two is not None
    assert [name_of(pod) for pod in one.observed.pods] == ["job-p"] and not one.observed.of("JobSet")
    assert [name_of(pod) for pod in two.observed.pods] == ["js-job-p"]


def _object(
    resource: ApiResource, name: str, labels: dict[str, str], owner: dict[str, Any] | None = None
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": NS, "uid": f"uid-{name}", "resourceVersion": "5"}
    if owner is not None:
        above = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": name_of(owner), "uid": uid_of(owner)}
        metadata["ownerReferences"] = [above | {"controller": True}]
    return {"apiVersion": resource.api, "kind": resource.kind, "metadata": metadata | {"labels": labels}, "spec": {}}


def test_of_what_is_over_only_the_outline_is_kept() -> None:
    desk = Desk(1)
    pod = desk.ask(desk.new())
    desk.put(PODS, pod)
    main = desk.cluster.of("sequences")[0]
    main["metadata"]["annotations"] = {"long": "x" * 5000, "short": "y"}
    done = main | {"status": {"phase": "Succeeded", "done": {"train": [0]}}}
    desk.put(SEQUENCES, done)
    workload = desk.cluster.of("workloads")[0]

    def kept() -> Object:
        return desk.controller.caches.get(SEQUENCES, NS, "a") or {}

    assert not desk.controller.reconcile(KEY).over, "its pod still runs"
    assert "spec" in kept()
    desk.put(PODS, pod | {"status": {"phase": "Succeeded"}})
    (finish,) = desk.controller.reconcile(KEY).writes
    assert "spec" in kept(), "it still holds quota"
    desk.put(WORKLOADS, workload | {"status": finish.body["status"]})
    assert desk.controller.reconcile(KEY).over
    assert "spec" not in kept() and kept()["status"] == {"phase": "Succeeded"}
    assert kept()["metadata"]["annotations"] == {"short": "y"}
    small = [desk.controller.caches[one].list()[0] for one in (PODS, WORKLOADS)]
    assert not any("spec" in one for one in small)
    assert annotations_of(small[0])["penstock/pod-set"] and small[0]["status"] == {"phase": "Succeeded"}
    views = desk.engine.views
    assert not desk.controller.reconcile(KEY).writes
    assert desk.engine.views == views, "nobody looks into it again"
    assert desk.controller.owner_of(kept()) == KEY and desk.controller.object_of(KEY) is kept()
    desk.put(SEQUENCES, main)  # it is tried again
    assert desk.controller.reconcile(KEY).writes


def test_what_the_webhook_has_not_seen_is_told_with_the_fix() -> None:
    controller = Controller([ARGO, JOBSET])
    queue = {"kueue.x-k8s.io/queue-name": "q"}
    unheld = controller.unheld["jobset"][0]
    ordered = {"spec": {"replicatedJobs": [{"name": "a"}, {"name": "b", "dependsOn": [{"name": "a"}]}]}}
    controller.caches[ARGO.main[0]].put(_object(ARGO.main[0], "w", queue))
    controller.caches[ARGO.main[0]].put(_object(ARGO.main[0], "held", queue | {"penstock/unit": "stage"}))
    controller.caches[unheld].put(_object(JOB_SETS, "js", queue) | ordered)
    controller.caches[unheld].put(_object(JOB_SETS, "kueues", queue))
    controller.caches[unheld].put(
        _object(JOB_SETS, "over", queue)
        | ordered
        | {"status": {"conditions": [{"type": "Completed", "status": "True"}]}}
    )

    def told(engine: str, name: str) -> list[str]:
        plan = controller.reconcile((engine, NS, name))
        assert not plan.writes
        return [one.reason for one in plan.notes if one.warning and "penstock controller check" in one.message]

    assert told("argo", "w") == ["NotHeld"]
    assert told("argo", "held") == []
    assert told("jobset", "js") == ["NotHeld"]
    assert told("jobset", "over") == []
    assert controller.object_of(("jobset", NS, "js")) is not None
    (kueues,) = [one for one in controller.caches[unheld].list() if name_of(one) == "kueues"]
    assert controller.owner_of(kueues) is None


def test_what_a_worker_has_seen_first_is_not_counted_twice_when_it_is_told() -> None:
    desk = Desk(2)
    pod = desk.ask(desk.new())
    tell = desk.put(PODS, pod, told=False)
    desk.controller.reconcile(KEY)
    tell()
    assert [desk.free(desk.new()) for _ in range(2)] == [True, False]
