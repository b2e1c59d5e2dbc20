"""JobSet for the controller: a JobSet with an order between its steps waits stage by stage. Found by the entry point `penstock.engines`; pure.

A JobSet is cut where a step waits until others are complete: steps with the same steps before them start together and are one stage. Where a
step waits until another is only ready (`dependsOn: Ready`, `startupPolicy: InOrder`), both run at the same time: one stage, unless they name
different queues.

The lever is `parallelism` of the Jobs: 0 in the templates from the start, so that Jobs exist without pods; the real figure, which an annotation
keeps, when the stage is admitted; 0 again to stop it. No failure counts, and finished indexes stay finished. A Job without pods counts as ready,
so the order of steps that wait for readiness is kept here: a step is let go when those before it are ready.

A restart by the failure policy makes all Jobs anew, at 0: other stages then, because what the old ones held is given back first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from penstock.controller.coverage import is_active, is_gated
from penstock.controller.engine import (
    Adjusted,
    Observed,
    Opening,
    Outcome,
    Shape,
    Stage,
    State,
    Task,
    Unit,
    View,
    unread,
)
from penstock.controller.names import PARALLELISM, QUEUE, QUEUED, SUSPEND, UNIT
from penstock.controller.objects import (
    ApiResource,
    Lookup,
    Object,
    Write,
    annotations_of,
    controller_of,
    holds,
    is_deleted,
    labels_of,
    name_of,
    namespace_of,
    part,
    rows,
    uid_of,
)
from penstock.errors import UserError
from penstock.formats.documents import Document
from penstock.formats.gates.marks import MAX_RESOURCES, NODE_SELECTOR, TOLERATION, copied, declared, refusal
from penstock.formats.gates.peak import peaks
from penstock.formats.pods.requests import amounts, resources_of

JOB_SETS = ApiResource("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", selector=QUEUED)
JOBS = ApiResource("batch/v1", "Job", "jobs", selector=QUEUED)
WHOLE = "(workflow)"
"""The key of the one stage of a JobSet that is queued as a whole."""
POLICY = "penstock/execution-policy"
"""The order of steps as in the draft of JobSet's issue 672, as JSON: it becomes dependsOn."""
_STATUS = {"Succeeded": "Complete", "Complete": "Complete", "Ready": "Ready"}
"""In the draft -> in dependsOn."""
_STEP = "jobset.sigs.k8s.io/replicatedjob-name"
_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True, slots=True)
class ReplicatedJob:
    """One replicatedJob."""

    name: str
    replicas: int
    parallelism: int
    """The real one."""
    completions: int | None
    pod: Object
    complete: frozenset[str]
    """Steps that are complete before it starts."""
    ready: tuple[str, ...]
    """Steps that are ready before it starts."""
    queue: str

    @property
    def pods(self) -> int:
        """Of one Job, at one moment."""
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)

    @property
    def shape(self) -> Shape:
        return Shape(
            self.replicas * self.pods,
            resources_of(self.pod),
            {str(key): str(text) for key, text in part(self.pod, "nodeSelector").items()},
            tuple(rows(self.pod, "tolerations")),
            part(self.pod, "affinity"),
            str(self.pod.get("runtimeClassName") or ""),
        )


def steps_of(jobset: Object) -> list[ReplicatedJob]:
    """In the order of the document."""
    found: dict[str, ReplicatedJob] = {}
    in_order = part(jobset, "spec", "startupPolicy").get("startupPolicyOrder") == "InOrder"
    for one in rows(jobset, "spec", "replicatedJobs"):
        name, job = str(one.get("name")), part(one, "template", "spec")
        before = {str(each.get("name")): each.get("status") for each in rows(one, "dependsOn")}
        complete = {each for each, status in before.items() if status == "Complete"}
        for each in before:
            complete |= found[each].complete if each in found else set()
        ready = tuple(each for each, status in before.items() if status == "Ready")
        completions = job.get("completions")
        found[name] = ReplicatedJob(
            name,
            _number(one.get("replicas"), 1),
            _number(
                part(one, "template", "metadata", "annotations").get(PARALLELISM), _number(job.get("parallelism"), 1)
            ),
            None if completions is None else _number(completions, 1),
            part(job, "template", "spec"),
            frozenset(complete),
            tuple(found) if in_order else ready,
            _own_queue(one),
        )
    return list(found.values())


def _number(value: Any, default: int) -> int:
    try:
        return max(0, int(value))
    except (TypeError, ValueError):
        return default


def _own_queue(step: Object) -> str:
    job, pod = (
        part(one, "metadata", "labels") for one in (part(step, "template"), part(step, "template", "spec", "template"))
    )
    return str(job.get(QUEUE) or pod.get(QUEUE) or job.get(QUEUED) or "")


def groups_of(steps: Sequence[ReplicatedJob]) -> list[tuple[ReplicatedJob, ...]]:
    """Steps that start together, in the same queue."""
    found: dict[tuple[frozenset[str], str], list[ReplicatedJob]] = {}
    for one in steps:
        found.setdefault((one.complete, one.queue), []).append(one)
    return [tuple(group) for group in found.values()]


class JobSet:
    name = "jobset"
    main = (JOB_SETS,)
    children = (JOBS,)
    library: Sequence[ApiResource] = ()

    def queued(self, obj: Object) -> bool:
        """Those with an order between steps, or with a unit. Kueue cares for all others, and another controller for what it manages."""
        if part(obj, "spec").get("managedBy") not in (None, "", "jobset.sigs.k8s.io/jobset-controller"):
            return False
        if QUEUED in labels_of(obj) or any(
            UNIT in place or POLICY in place for place in (labels_of(obj), annotations_of(obj))
        ):
            return True
        ordered = part(obj, "spec", "startupPolicy").get("startupPolicyOrder") == "InOrder"
        return ordered or any(rows(one, "dependsOn") for one in rows(obj, "spec", "replicatedJobs"))

    def adjust(self, obj: Object, unit: Unit, lookup: Lookup) -> Adjusted:
        """Raises DocumentError."""
        document = Document({**obj, "kind": "JobSet"}, file="JobSet")
        made: dict[str, Any] = copied(document.data)
        labels = {**labels_of(made)}
        queue = str(labels.pop(QUEUE, "") or labels.get(QUEUED) or "")
        made.setdefault("metadata", {})["labels"] = labels | {QUEUED: queue}
        _within(made, "metadata", "annotations")[SUSPEND] = _text(part(made, "spec").get("suspend") is True)
        _order(document, made)
        warnings = []
        steps = part(made, "spec").get("replicatedJobs")
        for one in steps if isinstance(steps, list) else ():
            if isinstance(one, dict):
                warnings += _hold(one, queue)
        if unit == "workflow":
            declared(document, MAX_RESOURCES)
        return Adjusted(made, tuple(warnings))

    def view(self, seen: Observed, unit: Unit) -> View:
        look = _look(seen, unit)
        over: Outcome = "Succeeded" if holds(seen.main, "Completed") else "Failed" if holds(seen.main, "Failed") else ""
        paused = part(seen.main, "spec").get("suspend") is True
        try:
            return View(tuple(look.stages()), over, paused)
        except UserError as error:
            return unread(error, paused)

    def task_of(self, pod: Object, seen: Observed, unit: Unit) -> Task:
        return _look(seen, unit).task_of(pod)

    def open(self, seen: Observed, unit: Unit, stage: Stage, opening: Opening) -> Sequence[Write]:
        look = _look(seen, unit)
        writes = []
        free = opening.count
        for job in look.jobs_of(stage.key):
            step = look.steps.get(look.step_of(job))
            if step is None or is_over(job) or is_deleted(job):
                continue
            now, real = _now(job), step.parallelism
            if free is not None:
                real = min(real, free)
                free -= max(real, now)
            if now < real and all(look.is_ready(name) for name in step.ready):
                writes.append(_parallelism(job, real, "its stage is admitted"))
        return writes

    def stop(self, seen: Observed, unit: Unit, stage: str, tasks: Sequence[str]) -> Sequence[Write] | None:
        """Of some tasks: their Jobs. A Job cannot be told which of its pods to stop."""
        look = _look(seen, unit)
        jobs = {task.partition("/")[0] for task in tasks}
        writes: list[Write] = []
        leaving = False
        for job in look.jobs_of(stage):
            if (jobs and name_of(job) not in jobs) or is_over(job):
                continue
            counts = part(job, "status")
            left = any(is_active(pod) for pod in look.pods.get(uid_of(job), ()))
            leaving = leaving or bool(left or _now(job) or counts.get("active") or counts.get("terminating"))
            if _now(job) and not is_deleted(job):
                writes.append(_parallelism(job, 0, "its stage is stopped"))
        return writes if leaving else None


def _look(seen: Observed, unit: Unit) -> _Look:
    found = seen.memo.get(f"jobset/{unit}")
    if not isinstance(found, _Look):
        found = seen.memo[f"jobset/{unit}"] = _Look(seen, unit)
    return found


class _Look:
    """One JobSet, as it is now, in one unit."""

    def __init__(self, seen: Observed, unit: Unit) -> None:
        self.main, self.unit = seen.main, unit
        self.steps = {one.name: one for one in steps_of(seen.main)}
        self.groups = groups_of(list(self.steps.values()))
        self.attempt = _number(part(seen.main, "status").get("restarts"), 0)
        self.jobs: dict[str, list[Object]] = {}
        self.by_uid: dict[str, Object] = {}
        for job in sorted(seen.of("Job"), key=name_of):
            if _number(labels_of(job).get(_ATTEMPT), 0) >= self.attempt:
                self.jobs.setdefault(self.step_of(job), []).append(job)
            self.by_uid[uid_of(job)] = job
        self.pods: dict[str, list[Object]] = {}
        for pod in seen.pods:
            self.pods.setdefault(str(controller_of(pod).get("uid")), []).append(pod)

    def step_of(self, job: Object) -> str:
        return str(labels_of(job).get(_STEP) or "")

    def key_of(self, job: Object) -> str:
        if self.unit == "workflow":
            return WHOLE
        attempt = _number(labels_of(job).get(_ATTEMPT), 0)
        if self.unit == "task":
            return self._again(name_of(job), attempt, True)
        step = self.step_of(job)
        group = next((group for group in self.groups if any(one.name == step for one in group)), None)
        return self._again(group[0].name if group else f"job/{name_of(job)}", attempt, len(self.groups) > 1)

    def _again(self, key: str, attempt: int, several: bool) -> str:
        """The only stage keeps what it holds over a restart."""
        return f"{key}@{attempt}" if attempt and several else key

    def task_of(self, pod: Object) -> Task:
        job = self.by_uid.get(str(controller_of(pod).get("uid")))
        if job is None:
            return Task(WHOLE if self.unit == "workflow" else f"pod/{name_of(pod)}", name_of(pod))
        index = annotations_of(pod).get(_INDEX)
        return Task(self.key_of(job), f"{name_of(job)}/{name_of(pod) if index is None else index}")

    def jobs_of(self, key: str) -> list[Object]:
        """In the order of the steps."""
        return list(self._by_key.get(key, ()))

    @cached_property
    def _by_key(self) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for job in (job for name in self.steps for job in self.jobs.get(name, ())):
            found.setdefault(self.key_of(job), []).append(job)
        return found

    def is_ready(self, name: str) -> bool:
        """Are all Jobs of a step ready, as JobSet would count them with their real parallelism?"""
        step, jobs = self.steps.get(name), self.jobs.get(name, [])
        if step is None:
            return True
        ready = sum(
            is_over(job)
            or _number(part(job, "status").get("succeeded"), 0) + _number(part(job, "status").get("ready"), 0)
            >= step.pods
            for job in jobs
        )
        return ready >= step.replicas

    # stages

    def stages(self) -> Iterator[Stage]:
        if self.unit == "workflow":
            yield self._whole()
            return
        for group in self.groups:
            if self.unit == "task":
                for step in group:
                    yield from self._each(step)
                continue
            jobs = [job for step in group for job in self.jobs.get(step.name, ())]
            missing = sum(step.replicas - len(self.jobs.get(step.name, ())) for step in group)
            yield Stage(
                self._key(group),
                "+".join(step.name for step in group),
                self._state(jobs, missing),
                tuple(step.shape for step in group),
                queue=group[0].queue,
                finished=tuple(sum(_finished(step, job) for job in self.jobs.get(step.name, ())) for step in group),
                outcome="Succeeded" if not missing and all(map(is_over, jobs)) else "",
                next=tuple(self._key(one) for one in self.groups if self._follows(one, group)),
            )

    def _key(self, group: Sequence[ReplicatedJob]) -> str:
        return self._again(group[0].name, self.attempt, len(self.groups) > 1)

    def _follows(self, later: Sequence[ReplicatedJob], before: Sequence[ReplicatedJob]) -> bool:
        """Does it wait for nobody else?"""
        waits = later[0].complete
        direct = waits - {name for one in waits if one in self.steps for name in self.steps[one].complete}
        return bool(direct) and direct <= {one.name for one in before}

    def _each(self, step: ReplicatedJob) -> Iterator[Stage]:
        there = {name_of(job): job for job in self.jobs.get(step.name, ())}
        whole = step.shape
        shape = Shape(
            step.pods, whole.requests, whole.node_selector, whole.tolerations, whole.affinity, whole.runtime_class
        )
        for number in range(step.replicas):
            name = f"{name_of(self.main)}-{step.name}-{number}"
            job = there.get(name)
            jobs = [] if job is None else [job]
            yield Stage(
                self._again(name, self.attempt, True),
                name,
                self._state(jobs, 1 - len(jobs)),
                (shape,),
                queue=step.queue,
                finished=(_finished(step, job) if job is not None else 0,),
                outcome="Succeeded" if job is not None and is_over(job) else "",
            )

    def _state(self, jobs: Sequence[Object], missing: int) -> State:
        if not jobs:
            return "ahead"
        going = [job for job in jobs if not is_over(job)]
        if not going:
            return "open" if missing else "done"
        if self._runs(going) or any(_now(job) or is_deleted(job) or holds(job, "Failed") for job in going):
            return "open"
        return "held" if len(going) == len(jobs) or not missing else "open"

    def _whole(self) -> Stage:
        going = [job for listed in self.jobs.values() for job in listed if not is_over(job)]
        state: State = "open" if self._runs(going) or any(_now(job) for job in going) else "held"
        if holds(self.main, "Completed") or holds(self.main, "Failed"):
            state = "done"
        document = Document({**self.main, "kind": "JobSet"}, file="JobSet")
        found = declared(document, MAX_RESOURCES)
        peak = self._peak(list(self.steps.values()))
        held = peak if found is None else amounts(found)
        selector = declared(document, NODE_SELECTOR) or {}
        shape = Shape(
            1,
            held,
            {str(key): str(text) for key, text in selector.items()},
            tuple(declared(document, TOLERATION) or ()),
        )
        left = self._peak([step for step in self.steps.values() if not self._is_complete(step)])
        needed = {name: min(amount, left.get(name, 0)) for name, amount in held.items()}
        return Stage(WHOLE, name_of(self.main), state, (shape,), vector=True, needed=(needed,))

    def _runs(self, jobs: Sequence[Object]) -> bool:
        return any(is_active(pod) and not is_gated(pod) for job in jobs for pod in self.pods.get(uid_of(job), ()))

    def _is_complete(self, step: ReplicatedJob) -> bool:
        jobs = self.jobs.get(step.name, ())
        return len(jobs) >= step.replicas and all(map(is_over, jobs))

    def _peak(self, steps: Sequence[ReplicatedJob]) -> dict[str, int]:
        """The heaviest set of steps that run at the same time."""
        number = {step.name: at for at, step in enumerate(steps)}
        edges = [(number[name], at) for at, step in enumerate(steps) for name in step.complete if name in number]
        demands = []
        for step in steps:
            shape = step.shape
            demands.append({name: amount * shape.count for name, amount in shape.requests.items()})
        return peaks(demands, edges)


def is_over(job: Object) -> bool:
    """Complete. One that failed makes its JobSet fail or start anew."""
    return holds(job, "Complete")


def _now(job: Object) -> int:
    return _number(part(job, "spec").get("parallelism"), 1)


def _finished(step: ReplicatedJob, job: Object) -> int:
    """Pods that this Job will not need any more."""
    if is_over(job):
        return step.pods
    done = _number(part(job, "status").get("succeeded"), 0)
    if step.completions is None:
        return min(step.pods, done)
    return max(0, step.pods - max(0, step.completions - done))


def _parallelism(job: Object, number: int, why: str) -> Write:
    return Write("patch", JOBS, namespace_of(job), name_of(job), {"spec": {"parallelism": number}}, why=why)


# -- a new JobSet -------------------------------------------------------------------------------------------------------


def _hold(step: dict[str, Any], queue: str) -> list[str]:
    """Its Jobs begin without pods; Jobs and pods carry the queue's label."""
    template = _within(step, "template")
    job = _within(template, "spec")
    own = _own_queue(step) or queue
    if job.get("parallelism") is None and job.get("completions") is None:
        job["completions"] = 1
    real = _number(job.get("parallelism"), 1)
    if real == 0:  # a copy of one that was made ready before
        real = _number(part(template, "metadata", "annotations").get(PARALLELISM), 0)
    for metadata in (_within(template, "metadata"), _within(job, "template", "metadata")):
        labels = {name: text for name, text in part(metadata, "labels").items() if name != QUEUE}
        metadata["labels"] = labels | {QUEUED: own}
    _within(template, "metadata", "annotations")[PARALLELISM] = str(real)
    job["parallelism"] = 0
    if job.get("activeDeadlineSeconds") is None:
        return []
    return [
        f"{step.get('name')}: activeDeadlineSeconds counts from when the Job is made, so the time in the queue counts"
    ]


def _text(value: bool) -> str:
    return "true" if value else "false"


def _within(data: dict[str, Any], *path: str) -> dict[str, Any]:
    for name in path:
        if not isinstance(data.get(name), dict):
            data[name] = {}
        data = data[name]
    return data


def _order(document: Document, made: dict[str, Any]) -> None:
    """The execution policy of an annotation, as dependsOn."""
    text = annotations_of(document.data).get(POLICY)
    if text is None:
        return
    where = f"metadata.annotations.{POLICY}"
    example = '{"executionPolicyOrder": "InOrder", "replicatedJobsStatus": "Succeeded"}'
    try:
        policy = json.loads(str(text))
    except (ValueError, RecursionError):
        policy = None
    listed = part(made, "spec").get("replicatedJobs")
    steps = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    if not isinstance(policy, Mapping):
        raise refusal(document, "P867", where, f"{POLICY}: it is no policy", f"write {example}, without dependsOn")
    names = [str(one.get("name")) for one in steps]
    rules = [*rows(policy, "rules")]
    if policy.get("executionPolicyOrder") == "InOrder":
        rules += [{**policy, "targetReplicatedJobs": [name]} for name in names[:-1]]
    found = []
    for rule in rules:
        status = _STATUS.get(str(rule.get("replicatedJobsStatus")))
        wanted = rule.get("targetReplicatedJobs")
        if status is None or not isinstance(wanted, list) or not wanted or not all(name in names for name in wanted):
            said = f"{POLICY}: a rule names no step, or a status other than Succeeded and Ready"
            raise refusal(document, "P867", where, said, f"write {example}")
        found.append((wanted, status))
    said_before, order = [rows(one, "dependsOn") for one in steps], _depends(names, found)
    if any(said_before) and said_before != order:  # the same is there if this one has been made ready before
        raise refusal(
            document, "P867", where, f"{POLICY}: dependsOn says another order", f"write {example}, without dependsOn"
        )
    for one, before in zip(steps, order, strict=True):
        if before:
            one["dependsOn"] = before


def _depends(names: Sequence[str], rules: Sequence[tuple[list[str], str]]) -> list[list[dict[str, str]]]:
    """Steps after the targets of a rule wait for them; of several rules the last counts, since its targets wait for the others'."""
    found: list[list[dict[str, str]]] = []
    for at in range(len(names)):
        before = [rule for rule in rules if max(names.index(name) for name in rule[0]) < at]
        targets, status = max(before, key=lambda rule: max(names.index(name) for name in rule[0]), default=([], ""))
        found.append([{"name": name, "status": status} for name in targets])
    return found


ENGINE = JobSet()
