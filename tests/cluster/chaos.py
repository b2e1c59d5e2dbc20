"""A crowd of workflows for tests of the controller under trouble: three teams in two cohorts that borrow from and preempt one another.

crowd = Crowd(bed, 20, seed=1)      queues, priorities; Workflows, PipelineRuns and JobSets of random form. What each must do is known
crowd.submit() ; crowd.until_over()
crowd.check(witness)                all succeeded, every task once, never more than the quota
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.controller.objects import Object as Seen
from penstock.controller.objects import annotations_of, controller_of, labels_of
from testbed.components.jobset import API as JOB_SETS
from testbed.components.kwok import RUN_TIME
from testbed.errors import ApiError
from testbed.instance import Testbed
from tests.cluster import argo_runs, tekton_runs
from tests.cluster.argo_runs import fake, flow
from tests.cluster.controlled import Witness
from tests.cluster.kueue_protocol import Desk, condition, holds
from tests.cluster.tekton_runs import fake_task, pipeline, run
from tests.cluster.test_jobset import after, job, jobset

Object = dict[str, Any]
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
NODE = "workflows.argoproj.io/node-name"
INDEX = "batch.kubernetes.io/job-completion-index"
JOB_SET = "jobset.sigs.k8s.io/jobset-name"
TASK_RUN = "tekton.dev/taskRun"
KINDS = {"Workflow": argo_runs.API, "PipelineRun": tekton_runs.API, "JobSet": JOB_SETS}
TURNS = ("Workflow", "PipelineRun", "JobSet", "Workflow")
UNITS = {"stage": 7, "task": 1, "workflow": 1, "reuse": 1}
CLASSES = {"chaos-low": 0, "chaos-middle": 100, "chaos-high": 1000}
Run = tuple[str, str, str]
"""Namespace, kind and name."""
PREEMPTION = {
    "withinClusterQueue": "LowerPriority",
    "reclaimWithinCohort": "Any",
    "borrowWithinCohort": {"policy": "LowerPriority"},
}


class Crowd:
    """Workflows of three teams, all from one seed."""

    def __init__(self, bed: Testbed, number: int, seed: int) -> None:
        self.bed, self.dice = bed, random.Random(seed)
        self.desks = [Desk(bed) for _ in range(3)]
        red, blue, green = self.desks
        for cohort, members in (("one", ((red, "main"), (blue, "main"))), ("two", ((green, "main"), (green, "spare")))):
            for desk, name in members:
                desk.queue(name, "3", cohortName=f"{red.namespace}-{cohort}", preemption=PREEMPTION)
        classes = [
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
            for name, value in CLASSES.items()
        ]
        bed.apply(classes)
        self.tasks: dict[Run, int] = {}
        """How many pods each workflow needs."""
        self.documents = [(self.desks[one % 3].namespace, self._document(one)) for one in range(number)]

    @property
    def namespaces(self) -> list[str]:
        return [desk.namespace for desk in self.desks]

    def _document(self, number: int) -> Object:
        """The kinds take turns, so that each team has all of them."""
        name, kind = f"w{number}", TURNS[number // 3 % len(TURNS)]
        widths = [self.dice.randint(1, 3) for _ in range(self.dice.randint(2, 3))]
        made = {"Workflow": self._workflow, "PipelineRun": self._pipeline_run, "JobSet": self._job_set}[kind](
            name, widths
        )
        made["metadata"]["labels"] = {QUEUE: "main", PRIORITY: self.dice.choice(list(CLASSES))}
        (unit,) = self.dice.choices(list(UNITS), list(UNITS.values()))
        made["metadata"].setdefault("annotations", {})["penstock/unit"] = unit
        self.tasks[self.desks[number % 3].namespace, kind, name] = sum(widths)
        return made

    def _pods(self) -> tuple[str, str]:
        """How long the pods of a step run, and what each asks for."""
        if self.dice.random() < 0.5:
            return f"{self.dice.uniform(0.1, 0.6):.1f}s", "500m"
        return f"{self.dice.uniform(1, 3):.1f}s", "1"

    def _workflow(self, name: str, widths: Sequence[int]) -> Object:
        """Groups of steps, each a loop or different steps."""
        steps, templates = [], []
        for number, width in enumerate(widths):
            run_time, cpu = self._pods()
            templates.append(fake(f"t{number}", run_time=run_time, cpu=cpu))
            one = {"name": f"s{number}", "template": f"t{number}"}
            loop = self.dice.random() < 0.5
            steps.append(
                [one | {"withItems": list("xyz"[:width])}]
                if loop
                else [one | {"name": f"s{number}{letter}"} for letter in "abc"[:width]]
            )
        return flow(name, steps, *templates)

    def _pipeline_run(self, name: str, widths: Sequence[int]) -> Object:
        """Tasks one after the other; one of several pods is a matrix."""
        tasks = []
        for number, width in enumerate(widths):
            run_time, cpu = self._pods()
            one: Object = {"name": f"t{number}"}
            one |= {"runAfter": [f"t{number - 1}"]} if number else {}
            if width > 1:
                one["matrix"] = {"params": [{"name": "word", "value": list("xyz"[:width])}]}
            one["taskSpec"] = fake_task(cpu=cpu, run_time=run_time, params=("word",) if width > 1 else ())
            tasks.append(one)
        return run("PipelineRun", name, pipeline(*tasks))

    def _job_set(self, name: str, widths: Sequence[int]) -> Object:
        """Steps one after the other."""
        steps = []
        for number, width in enumerate(widths):
            run_time, cpu = self._pods()
            more = {"dependsOn": after(f"j{number - 1}")} if number else {}
            step = job(f"j{number}", width, {RUN_TIME: run_time}, **more)
            (container,) = step["template"]["spec"]["template"]["spec"]["containers"]
            container["resources"]["requests"]["cpu"] = cpu
            steps.append(step)
        return jobset(*steps, name=name)

    # running

    def submit(self) -> None:
        """Low priorities first, so that there is somebody to preempt. Where the webhook is down, again until it is back."""
        order = sorted(self.documents, key=lambda one: CLASSES[one[1]["metadata"]["labels"][PRIORITY]])
        for namespace, document in order:
            self.bed.wait(lambda n=namespace, d=document: self._created(n, d), "a workflow to be taken")  # type: ignore[misc]

    def _created(self, namespace: str, document: Object) -> bool:
        try:
            self.bed.raw("POST", self.bed.api.path(document["apiVersion"], document["kind"], namespace), document)
        except ApiError as error:
            return error.reason == "AlreadyExists" or "already exists" in str(error)
        except OSError:
            return False
        return True

    def _all(self) -> list[Object]:
        return [
            one | {"kind": kind}
            for kind, api in KINDS.items()
            for namespace in self.namespaces
            for one in self.bed.get(self.bed.api.path(api, kind, namespace))["items"]
        ]

    def phases(self) -> Counter[str]:
        return Counter(map(phase_of, self._all()))

    def over(self) -> bool:
        try:
            found = self.phases()
        except Exception:  # the server is away
            return False
        return sum(count for phase, count in found.items() if phase in argo_runs.OVER) == len(self.documents)

    def until_over(self, timeout: float = 300) -> None:
        self.bed.wait(self.over, "all workflows to end", timeout)

    def finished(self) -> bool:
        """Has everything been given back?"""
        return all(
            holds(one, "Finished") for desk in self.desks for one in desk.read(desk.path("workloads"))["items"]
        ) and all(desk.used() == "0" for desk in self.desks)

    # what must hold

    def check(self, witness: Witness) -> dict[str, int]:
        phases = self.phases()
        assert phases == {"Succeeded": len(self.documents)}, (phases, self._failed())
        self.bed.wait(self.finished, "all that was held to be given back", 60)
        ended: dict[Run, dict[str, set[str]]] = {}
        evicted, stopped = set(), _ended_while_stopped(witness)
        for _, _, kind, obj in witness.events:
            meta = obj["metadata"]
            if kind == "Workload" and condition(dict(obj), "Evicted").get("status") == "True":
                evicted.add((meta["uid"], condition(dict(obj), "Evicted")["lastTransitionTime"]))
            ended_well = kind == "Pod" and obj.get("status", {}).get("phase") == "Succeeded"
            if ended_well and meta["uid"] not in stopped:
                run, task = task_of(obj)
                ended.setdefault(run, {}).setdefault(task, set()).add(meta["uid"])
        twice = {(key, name) for key, names in ended.items() for name, uids in names.items() if len(uids) > 1}
        assert not twice, (
            f"tasks that ran to their end more than once: {sorted(twice)}\n{self._history(witness, twice)}"
        )
        assert {key: len(names) for key, names in ended.items()} == self.tasks, "tasks that were never run"
        kinds = Counter(document["kind"] for _, document in self.documents)
        return {
            **witness.check(),
            **{f"{kind}s": kinds[kind] for kind in KINDS},
            "evictions": len(evicted),
            "stopped as they ended": len(stopped),
        }

    def _history(self, witness: Witness, tasks: Collection[tuple[Run, str]]) -> str:
        """All that was seen of the pods of some tasks, and of the Workloads in their namespaces meanwhile."""
        lines, uids = [], set()
        spaces = {run[0] for run, _ in tasks}
        for version, what, kind, obj in sorted(witness.events, key=lambda one: one[0]):
            meta, status = obj["metadata"], obj.get("status", {})
            if kind == "Pod" and meta["namespace"] in spaces and (meta["uid"] in uids or task_of(obj) in tasks):
                uids.add(meta["uid"])
                by = [(one.get("manager"), one.get("time")) for one in meta.get("managedFields", ())]
                gates = obj["spec"].get("schedulingGates")
                deleted = meta.get("deletionTimestamp")
                said = f"phase={status.get('phase')} deleted={deleted} gates={gates} {meta.get('finalizers')} {by}"
                lines.append(f"{version} {what} Pod {meta['name']} {meta['uid'][:8]} {said}")
            owners = {one["name"] for one in meta.get("ownerReferences", ())} if kind == "Workload" else set()
            if any(run[0] == meta["namespace"] and run[2] in owners for run, _ in tasks):
                told = [f"{one['type']}={one['status']} ({one['reason']})" for one in status.get("conditions", ())]
                lines.append(f"{version} {what} Workload {meta['name']} {told} {status.get('reclaimablePods')}")
        return "\n".join(lines)

    def _failed(self) -> list[str]:
        found = []
        for one in self._all():
            if phase_of(one) != "Succeeded":
                status, meta = one.get("status", {}), one["metadata"]
                said = [status.get("message"), *(each.get("message") for each in status.get("conditions", ()))]
                nodes = [
                    f"{node.get('displayName', node)} {node.get('message')} at {node.get('finishedAt')}"
                    for node in status.get("nodes", {}).values()
                    if node["phase"] in ("Failed", "Error")
                ]
                found.append(f"{one['kind']} {meta['namespace']}/{meta['name']}: {said} {'; '.join(nodes)}")
        return found


def _ended_while_stopped(witness: Witness) -> set[str]:
    """Pods that ended by themselves after they were told to stop. A Job's controller decides first: it takes its finalizer off, then deletes them, and
    does not count them, whatever they did in between; those that it counts it never deletes while their JobSet is there. A TaskRun is deleted before
    its pod, which may end well in its last moment. All others count strictly."""
    found, seen = set(), set()
    for _, _, kind, obj in sorted(witness.events, key=lambda one: one[0]):
        uid, deleted = obj["metadata"]["uid"], obj["metadata"].get("deletionTimestamp")
        if kind == "Pod" and obj.get("status", {}).get("phase") == "Succeeded":
            if deleted and (JOB_SET in labels_of(obj) or (TASK_RUN in labels_of(obj) and uid not in seen)):
                found.add(uid)
            seen.add(uid)
    return found


def phase_of(one: Object) -> str:
    """How a workflow ended, in Argo's words."""
    if one["kind"] == "Workflow":
        return str(one.get("status", {}).get("phase", "new"))
    if one["kind"] == "PipelineRun":
        return {"True": "Succeeded", "False": "Failed"}.get(str(tekton_runs.condition(one).get("status")), "Running")
    return "Succeeded" if holds(one, "Completed") else "Failed" if holds(one, "Failed") else "Running"


def task_of(pod: Seen) -> tuple[Run, str]:
    """The workflow of a pod, and its task: the same for a pod that is made again."""
    labels, namespace = labels_of(pod), str(pod["metadata"]["namespace"])
    if "workflows.argoproj.io/workflow" in labels:
        return (namespace, "Workflow", labels["workflows.argoproj.io/workflow"]), annotations_of(pod)[NODE]
    if JOB_SET in labels:
        task = f"{controller_of(pod)['name']}/{annotations_of(pod)[INDEX]}"
        return (namespace, "JobSet", labels[JOB_SET]), task
    return (namespace, "PipelineRun", labels["tekton.dev/pipelineRun"]), labels[TASK_RUN]


@contextmanager
def meanwhile(what: Callable[[], None], pause: Callable[[], float]) -> Iterator[Sequence[float]]:
    """Does something again and again in another thread. Gives the times at which it was done."""
    stop = threading.Event()
    done: list[float] = []
    failed: list[BaseException] = []

    def again() -> None:
        while not stop.wait(pause()):
            try:
                what()
            except BaseException as error:
                failed.append(error)
                return
            done.append(time.monotonic())

    thread = threading.Thread(target=again, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join(60)
    assert not failed, failed
