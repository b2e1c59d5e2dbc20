"""JobSet (jobset.x-k8s.io/v1alpha2) -> a workflow. Called by kubernetes.format.

A replicated job is a step, and its pods (replicas × parallelism) are the replicas of that step: a gang. If a Job has more
completions than run at once, its pods cannot be a gang; then they are tasks of a for-each, `parallelism` of them at a time.

A JobSet is cut at its Complete edges. Replicated jobs that may start at the same moment, because the same jobs must be complete
before, are one stage: they share a group, and are admitted together. Ready (and startupPolicy InOrder, which means Ready) orders
starts within a stage; on this machine they start together, without waiting for readiness.

`executionPolicy` is the proposal of jobset issue 672, in no release: InOrder with Succeeded makes each replicated job wait for the
one before it. Together with startupPolicy InOrder it is ambiguous and refused.

The first failure ends a JobSet: nothing more starts, and running pods end by themselves. Once the successPolicy is met, running pods are
stopped. failurePolicy.maxRestarts restarts everything: then the set is a nested workflow, called by a step with a retry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

from penstock.errors import nearest
from penstock.expressions.parse import Expr
from penstock.formats.base import Read
from penstock.formats.documents import Document, Library, part
from penstock.formats.kubernetes.conventions import AT_ONCE, JOBSET_LABEL
from penstock.formats.kubernetes.read.job import (
    ENDLESS,
    INDEX,
    NONE,
    PRIVATE,
    JobSpec,
    around,
    clean,
    read_job_spec,
    within,
)
from penstock.formats.pods.read import PodFacts, facts_of, read_pod
from penstock.formats.pods.variables import MOST_PODS, REPLICA
from penstock.formats.reader import DocumentReader
from penstock.formats.values import brief, frozen, listed
from penstock.graph.model import NORMAL, Edge, Enough, ForEach, Nested, Outcome, Retry, Step, Value, Workflow

JOBS: Final = "jobs"
"""The workflow that is restarted, and the step that calls it."""
ACTIONS: Final = (
    "FailJobSet",
    "RestartJobSet",
    "RestartJobSetAndIgnoreMaxRestarts",
    "RestartJob",
    "RestartJobAndIgnoreMaxRestarts",
)
STATUSES: Final = ("Succeeded", "Failed", "Active", "Suspended")
BAD: Final = frozenset({Outcome.FAILED, Outcome.ERRORED})
_TOGETHER: Final = "started together; readiness is not waited for on this machine"
_HANDED: Final = ("network", "coordinator", "managedBy", "suspend", "ttlSecondsAfterFinished", "volumeClaimPolicies")
_MOST: Final = 10_000
"""The most replicated jobs; more do not fit into one object of a cluster."""


def read_jobset(library: Library, root: Document) -> Read:
    """Raises DocumentError with everything that is wrong."""
    reader = _JobSet(library, root)
    workflow = reader.workflow()
    reader.stop_if_wrong()
    return Read(workflow, reader.report)


@dataclass(slots=True)
class _Replicated:
    """What other replicated jobs need to know of one."""

    name: str
    path: str
    data: Mapping[str, Any]
    replicas: int
    group: str
    complete: list[str]
    """Replicated jobs that must be complete before it starts."""
    ready: list[str]
    failed: list[str]
    """Those that must have failed before it starts: only an executionPolicy requires that."""
    job: JobSpec

    @property
    def pods(self) -> int:
        """Pods of one Job that run at the same time."""
        return min(self.job.parallelism, self.job.completions)

    @property
    def is_gang(self) -> bool:
        return self.job.completions <= self.job.parallelism


class _JobSet(DocumentReader):
    def __init__(self, library: Library, root: Document) -> None:
        super().__init__(library, root)
        self.spec = self.mapping(root.data, "spec", "")
        self.jobs: dict[str, _Replicated] = {}

    def workflow(self) -> Workflow:
        for number, (path, data) in enumerate(self.members(self.spec, "replicatedJobs", "spec")):
            self.replicated(path, data, number)
        if len(self.jobs) > _MOST:
            self.wrong("P835", "spec.replicatedJobs", f"{len(self.jobs)} replicated jobs", f"give at most {_MOST}")
            self.stop_if_wrong()
        if not self.jobs:
            fix = "give spec.replicatedJobs with a name and a template"
            self.wrong("P835", "spec.replicatedJobs", "the JobSet has no replicated jobs", fix)
        self.order()
        self.inherit()
        groups = self.groups()
        steps = [self.step(one, groups.get(one.name)) for one in self.jobs.values()]
        extra: dict[str, Any] = {name: frozen(self.spec[name]) for name in _HANDED if self.spec.get(name) is not None}
        self.told()
        enough = self.enough()
        steps, restarts = self.failure(steps, extra)
        if part(self.spec, "startupPolicy").get("startupPolicyOrder") == "InOrder":
            extra["startupPolicy"] = frozen(self.spec["startupPolicy"])
        workflow = around(self, tuple(steps), {"jobset": extra} if extra else None)
        if not restarts:
            return replace(workflow, fail_fast=True, enough=enough)
        whole = Workflow(name=JOBS, steps=tuple(steps), fail_fast=True, enough=enough, source=workflow.source)
        retry = Retry(limit=restarts, backoff=AT_ONCE)
        call = Step(name=JOBS, action=Nested(name=JOBS), retry=retry, cache=PRIVATE, source=workflow.source)
        return replace(workflow, steps=(call,), definitions=(whole,))

    # -- the replicated jobs and their order

    def replicated(self, path: str, data: Mapping[str, Any], number: int) -> None:
        name = self.text(data, "name", path)
        if not name or name != clean(name):
            said = f"{name[:60]!r} is no name for a replicated job" if name else "the replicated job has no name"
            self.wrong("P835", f"{path}.name", said, "use small letters, digits and '-', beginning with a letter")
            return
        if name in self.jobs:
            self.wrong("P835", f"{path}.name", f"two replicated jobs are named {name!r}", "rename one")
            return
        replicas = self.whole(data, "replicas", path)
        spec = part(data, "template", "spec")
        if not isinstance(spec.get("template"), Mapping):
            fix = "give template.spec.template with a spec and containers"
            self.wrong("P835", f"{path}.template", f"the replicated job {name!r} has no pods", fix)
        job = read_job_spec(self, spec, f"{path}.template.spec", indexed=True)
        replicas = 1 if replicas is None else replicas
        if replicas * job.completions > MOST_PODS:
            said = f"{name} has {replicas * job.completions} pods"
            self.wrong("P835", f"{path}.replicas", said, f"at most {MOST_PODS}")
            replicas = 1
        complete: list[str] = []
        ready: list[str] = []
        for here, entry in self.members(data, "dependsOn", path):
            self.depends(here, entry, name, complete, ready)
        group = self.text(data, "groupName", path) or "default"
        self.jobs[name] = _Replicated(name, path, data, replicas, group, complete, ready, [], job)

    def depends(self, path: str, entry: Mapping[str, Any], name: str, complete: list[str], ready: list[str]) -> None:
        on, status = self.text(entry, "name", path), entry.get("status")
        if on == name:
            fix = "remove it, or name an earlier replicated job"
            self.wrong("P833", f"{path}.name", f"the replicated job {name!r} waits for itself", fix)
        elif on not in self.jobs:
            fix = f"name one that stands before it: {listed(self.jobs)}.{nearest(on, self.jobs)}"
            self.wrong("P832", f"{path}.name", f"no replicated job before {name!r} is named {on[:60]!r}", fix)
        elif status == "Complete":
            complete.append(on)
        elif status == "Ready":
            ready.append(on)
            self.changed(path, f"{name} is started together with {on}: {_TOGETHER}", "Complete is waited for.")
        else:
            self.wrong("P835", f"{path}.status", f"the status is {brief(status)}", "say Ready or Complete")

    def order(self) -> None:
        """The order that startupPolicy and executionPolicy add to dependsOn."""
        startup = self.mapping(self.spec, "startupPolicy", "spec").get("startupPolicyOrder")
        execution = self.mapping(self.spec, "executionPolicy", "spec")
        has_execution = self.spec.get("executionPolicy") is not None
        here = "spec.startupPolicy.startupPolicyOrder"
        if startup not in (None, "AnyOrder", "InOrder"):
            self.wrong("P835", here, f"the order is {brief(startup)}", "say AnyOrder or InOrder")
        depends = next((one for one in self.jobs.values() if one.complete or one.ready), None)
        if startup == "InOrder" and has_execution:
            fix = "remove startupPolicy, or say AnyOrder in it: executionPolicy says when the next one starts"
            self.wrong("P835", here, "executionPolicy and startupPolicy InOrder cannot both order the starts", fix)
        elif startup == "InOrder" and depends is not None:
            fix = "remove startupPolicy; dependsOn with status Ready says the same"
            self.wrong("P835", here, f"startupPolicy InOrder and dependsOn (of {depends.name}) exclude each other", fix)
        elif startup == "InOrder" and len(self.jobs) > 1:
            self.changed(here, f"all replicated jobs are {_TOGETHER}", "dependsOn with status Complete is waited for.")
        if execution:
            self.execution(execution)

    def execution(self, policy: Mapping[str, Any]) -> None:
        order, status = policy.get("executionPolicyOrder"), policy.get("replicatedJobsStatus")
        here = "spec.executionPolicy"
        if order not in (None, "AnyOrder", "InOrder"):
            self.wrong(
                "P835", f"{here}.executionPolicyOrder", f"the order is {brief(order)}", "say AnyOrder or InOrder"
            )
        if status not in STATUSES and (status is not None or order == "InOrder"):
            said = "InOrder needs a status to wait for" if status is None else f"the status is {brief(status)}"
            self.wrong("P835", f"{here}.replicatedJobsStatus", said, f"say one of {', '.join(STATUSES)}")
        known = ("executionPolicyOrder", "replicatedJobsStatus")
        for name in policy:
            if name not in known:
                self.lost(f"{here}.{name}", f"there is no field {str(name)[:60]!r}", nearest(str(name), known).strip())
        if order != "InOrder" or status not in STATUSES:
            return
        names = list(self.jobs)
        for before, name in pairwise(names):
            if status == "Succeeded":
                self.jobs[name].complete.append(before)
            elif status == "Failed":
                self.jobs[name].failed.append(before)
            elif status == "Active":
                self.jobs[name].ready.append(before)
        if status == "Active":
            self.changed(here, f"all replicated jobs are {_TOGETHER}", "Succeeded is waited for.")
        elif status == "Suspended":
            said = "nothing is ever suspended on this machine: all replicated jobs are started together"
            self.changed(here, said, "Say Succeeded, to wait for the end of the one before.")

    def inherit(self) -> None:
        """A job that starts together with another waits for the same jobs."""
        for one in self.jobs.values():
            for other in map(self.jobs.__getitem__, one.ready):
                one.complete += [name for name in other.complete if name not in one.complete]
                one.failed += [name for name in other.failed if name not in one.failed]

    def groups(self) -> dict[str, str]:
        """Jobs that become ready at the same moment, if there are several: name -> group."""
        bits = {name: 1 << number for number, name in enumerate(self.jobs)}
        gates: dict[str, int] = {}
        """The jobs that must have ended before, as a bit set."""
        members: dict[int, list[str]] = {}
        for one in self.jobs.values():
            gate = 0
            for name in (*one.complete, *one.failed):
                gate |= gates[name] | bits[name]
            gates[one.name] = gate
            members.setdefault(gate, []).append(one.name)
        several = [names for names in members.values() if len(names) > 1]
        called = clean(self.document.name or "jobset")
        return {name: f"{called}[{number}]" for number, names in enumerate(several) for name in names}

    # -- one of them as a step

    def step(self, one: _Replicated, group: str | None) -> Step:
        counted = self.counted(one)
        template, path = part(one.data, "template", "spec", "template"), f"{one.path}.template.spec.template"
        found = read_pod(self, template, path, self.facts(one, template), one.name)
        retry, timeout = within(one.job.retry, found.deadline, one.job.deadline)
        if retry is not None and one.replicas * one.pods > 1 and one.is_gang:
            said = "a failed pod is tried again together with all pods of its step: they are a gang"
            self.changed(f"{one.path}.template.spec.backoffLimit", said)
        return Step(
            name=one.name,
            action=found.action,
            needs=(
                *(Edge(name, NORMAL) for name in dict.fromkeys(one.complete)),
                *(Edge(name, BAD) for name in dict.fromkeys(one.failed) if name not in one.complete),
            ),
            retry=retry,
            timeout=timeout,
            resources=found.resources,
            placement=found.placement,
            group=group,
            mounts=found.mounts,
            cache=PRIVATE,
            extra={**found.extra, **self.extra(one)},
            source=self.document.source(one.path),
            **counted,
        )

    def counted(self, one: _Replicated) -> dict[str, Any]:
        if one.replicas * one.job.completions == 0:
            self.changed(f"{one.path}.replicas", "it has no pods, so it is skipped, and nobody waits for it")
            return {"each": NONE}
        if one.is_gang:
            return {"replicas": one.replicas * one.job.completions}
        axes = ({"index": Expr.of(f"range({one.job.completions})")},)
        jobs = ({"job": Expr.of(f"range({one.replicas})")},) if one.replicas > 1 else ()
        said = "more completions than run at once: its pods are tasks of their own, not a gang"
        self.changed(f"{one.path}.template.spec.completions", said)
        return {"each": ForEach(axes=(*jobs, *axes), parallel=one.replicas * one.pods)}

    def extra(self, one: _Replicated) -> dict[str, Any]:
        """Fields that only a JobSet has."""
        own: dict[str, Any] = {}
        if one.ready:
            own["dependsOn"] = tuple({"name": name, "status": "Ready"} for name in one.ready)
        if one.replicas > 1 and one.is_gang:
            own["replicas"] = one.replicas
        for name in one.data:
            if name not in ("name", "replicas", "template", "dependsOn"):
                own[str(name)] = frozen(one.data[name])
                self.kept(f"{one.path}.{name}")
        metadata = self.mapping(part(one.data, "template"), "metadata", f"{one.path}.template")
        if metadata:
            own["metadata"] = frozen(metadata)
            self.kept(f"{one.path}.template.metadata")
        return {**({"jobset": own} if own else {}), **({"job": one.job.rest} if one.job.rest else {})}

    # -- what a pod is told about itself

    def facts(self, one: _Replicated, template: Mapping[str, Any]) -> PodFacts:
        many = one.replicas * one.job.completions > 1
        index: Value = "0"
        job: Value = "0"
        if not one.is_gang:
            index, job = INDEX, Expr.of("item.job") if one.replicas > 1 else "0"
        elif one.job.completions > 1:
            index, job = REPLICA, "0" if one.replicas == 1 else None
        elif many:
            job = REPLICA
        if job is None and one.job.indexed:
            said = "JOB_COMPLETION_INDEX counts the pods of all its Jobs here, from 0"
            self.changed(f"{one.path}.replicas", said, "Give each Job a replicated job of its own.")
        fields = facts_of(self.document, template, one.name, (REPLICA if one.is_gang else index) if many else "")
        own = self.labels(one, job)
        if one.job.indexed:
            own["batch.kubernetes.io/job-completion-index"] = index
        for label, value in own.items():
            if value is not None:
                fields[f"metadata.annotations['{label}']"] = fields[f"metadata.labels['{label}']"] = value
        return PodFacts(fields, index if one.job.indexed else None, self.claims)

    @cached_property
    def totals(self) -> dict[str | None, int]:
        """The number of Jobs of each group, and of all."""
        found: dict[str | None, int] = {None: 0}
        for one in self.jobs.values():
            found[one.group] = found.get(one.group, 0) + one.replicas
            found[None] += one.replicas
        return found

    @cached_property
    def earlier(self) -> dict[str, tuple[int, int]]:
        """The number of Jobs before each replicated job: in the JobSet and in its group."""
        found: dict[str, tuple[int, int]] = {}
        seen: dict[str, int] = {}
        before = 0
        for one in self.jobs.values():
            found[one.name] = (before, seen.get(one.group, 0))
            seen[one.group] = seen.get(one.group, 0) + one.replicas
            before += one.replicas
        return found

    def labels(self, one: _Replicated, job: Value) -> dict[str, Value]:
        """The labels that a JobSet puts on its pods."""
        before, earlier = self.earlier[one.name]
        found: dict[str, Value] = {
            "jobset-name": self.document.name,
            "jobset-uid": Expr.of("run.id"),
            "replicatedjob-name": one.name,
            "replicatedjob-replicas": str(one.replicas),
            "global-replicas": str(self.totals[None]),
            "job-index": job,
            "job-global-index": str(before) if job == "0" else job if not before else None,
            "group-name": one.group,
            "group-replicas": str(self.totals[one.group]),
            "job-group-index": str(earlier) if job == "0" else job if not earlier else None,
            "restart-attempt": "0",
        }
        if self.spec.get("coordinator") is not None:
            found["coordinator"] = self.coordinator()
        return {f"{JOBSET_LABEL}{name}": value for name, value in found.items()}

    def coordinator(self) -> str:
        """The address of the coordinator pod."""
        said = part(self.spec, "coordinator")
        subdomain = part(self.spec, "network").get("subdomain") or self.document.name
        numbers = "-".join(str(said.get(name) or 0) for name in ("jobIndex", "podIndex"))
        return f"{self.document.name}-{said.get('replicatedJob')}-{numbers}.{subdomain}"

    @cached_property
    def claims(self) -> dict[str, str]:
        """Volumes that volumeClaimPolicies make for every pod that mounts them."""
        found: dict[str, str] = {}
        for path, policy in self.members(self.spec, "volumeClaimPolicies", "spec"):
            for _, template in self.members(policy, "templates", path):
                name = part(template, "metadata").get("name")
                if isinstance(name, str):
                    found[name] = name
        return found

    # -- what is said of the whole

    def told(self) -> None:
        """Reports the fields that are handed on, and their meaning here."""
        coordinator = self.mapping(self.spec, "coordinator", "spec")
        if coordinator and str(coordinator.get("replicatedJob")) not in self.jobs:
            self.unknown(str(coordinator.get("replicatedJob")), "spec.coordinator.replicatedJob")
        for name in _HANDED:
            if self.spec.get(name) is None:
                continue
            if name == "suspend" and self.spec[name] is True:
                near = "A run begins when it is submitted."
                self.changed("spec.suspend", "it is started, as the queue would do", near)
            elif name in ("network", "coordinator"):
                said = "handed on; on this machine pods have no names that can be looked up: they all are at localhost"
                self.changed(f"spec.{name}", said)
            else:
                self.kept(f"spec.{name}")
        if len(self.jobs) > 1:
            said = "after a failure nothing more is started; what runs is let end, where a JobSet would stop it"
            self.changed("spec.replicatedJobs", said)
        self.addresses()

    def addresses(self) -> None:
        """Reports commands that resolve pods by name: on this machine there is no such name."""
        known = "|".join(re.escape(name) for name in self.jobs)
        pattern = re.compile(rf"\b{re.escape(self.document.name)}-(?:{known})-\d+-\d+\b") if known else None
        for one in self.jobs.values():
            found = _first(pattern, part(one.data, "template", "spec", "template", "spec")) if pattern else ""
            if found:
                self.changed(
                    one.path, f"{found} is the name of a pod; on this machine it is not known", "Use localhost."
                )

    def targets(self, data: Mapping[str, Any], path: str) -> list[str]:
        """Replicated jobs by name; all if none are named."""
        given = data.get("targetReplicatedJobs")
        names = self.words(data, "targetReplicatedJobs", path) if given is not None else []
        for number, name in enumerate(names):
            if name not in self.jobs:
                self.unknown(name, f"{path}.targetReplicatedJobs[{number}]")
        return names or list(self.jobs)

    def unknown(self, name: str, path: str) -> None:
        fix = f"name one of {listed(self.jobs)}.{nearest(name, self.jobs)}"
        self.wrong("P832", path, f"there is no replicated job {name[:60]!r}", fix)

    def enough(self) -> Enough | None:
        """What has to succeed. Whatever else runs then is stopped; a failure before that ends the JobSet, whoever failed."""
        policy = self.mapping(self.spec, "successPolicy", "spec")
        if not policy:
            return None
        here, operator = "spec.successPolicy", policy.get("operator")
        if operator not in ("All", "Any"):
            self.wrong("P835", f"{here}.operator", f"the operator is {brief(operator)}", "say All or Any")
        targets = tuple(dict.fromkeys(self.targets(policy, here)))
        if operator != "Any":
            return Enough(steps=targets) if set(targets) < set(self.jobs) else None
        several = [name for name in targets if name in self.jobs and self.jobs[name].replicas > 1]
        if several:
            said = f"there one Job is enough; on this machine all Jobs of {listed(several)} end together, as one gang"
            self.changed(f"{here}.operator", said, "Give each Job a replicated job of its own.")
        return Enough(steps=targets, of="any")

    def failure(self, steps: list[Step], extra: dict[str, Any]) -> tuple[list[Step], int]:
        """How many times everything is restarted after a failure."""
        policy = self.mapping(self.spec, "failurePolicy", "spec")
        here = "spec.failurePolicy"
        restarts = self.whole(policy, "maxRestarts", here) or 0
        whole = restarts
        rules = list(self.members(policy, "rules", here))
        for path, rule in rules:
            action, targets = rule.get("action"), self.targets(rule, path)
            if action not in ACTIONS:
                fix = f"say one of {', '.join(ACTIONS)}.{nearest(str(action), ACTIONS)}"
                self.wrong("P835", f"{path}.action", f"the action is {brief(action)}", fix)
            elif rule.get("onJobFailureReasons") or rule.get("onJobFailureMessagePatterns"):
                said = "handed on; on this machine it is not looked at why a Job failed, and the rule is passed over"
                self.changed(path, said, _instead(restarts))
            elif action in ("RestartJob", "RestartJobAndIgnoreMaxRestarts"):
                often = restarts if action == "RestartJob" else ENDLESS
                steps = [_tried(step, often) if step.name in targets else step for step in steps]
                self.changed(path, f"{listed(targets)}: tried again by itself")
                whole = 0 if set(targets) >= set(self.jobs) else whole
            elif set(targets) >= set(self.jobs):
                whole = {"FailJobSet": 0, "RestartJobSet": restarts}.get(str(action), ENDLESS)
                break
            else:
                said = "handed on; on this machine it is not looked at which Job failed, and the rule is passed over"
                self.changed(path, said, _instead(restarts))
        rest = {str(name): frozen(value) for name, value in policy.items() if name != "maxRestarts"}
        if rules:  # a JobSet gives them names when it is created
            rest["rules"] = tuple(
                {"name": f"failurePolicyRule{number}", **frozen(rule)} for number, (_, rule) in enumerate(rules)
            )
        if rest:
            extra["failurePolicy"] = rest
            if "restartStrategy" in policy:
                self.kept(f"{here}.restartStrategy")
        if whole:
            said = f"after a failure everything is started again, {min(whole, ENDLESS)} times at most"
            self.kept(f"{here}.maxRestarts", said)
        return steps, min(whole, ENDLESS)


def _instead(restarts: int) -> str:
    return f"Any failure restarts everything, {restarts} times at most." if restarts else "Any failure ends the run."


def _tried(step: Step, often: int) -> Step:
    """A recreated Job has all of its retries again."""
    if not often:
        return step
    tries = step.retry.limit + 1 if step.retry is not None else 1
    limit = min(ENDLESS, tries * (often + 1) - 1)
    retry = Retry(limit=limit, backoff=AT_ONCE) if step.retry is None else replace(step.retry, limit=limit)
    return replace(step, retry=retry)


def _first(pattern: re.Pattern[str], data: Any) -> str:
    """The first text in the data that matches."""
    rest = [data]
    while rest:
        one = rest.pop()
        if isinstance(one, Mapping):
            rest += one.values()
        elif isinstance(one, list):
            rest += one
        elif isinstance(one, str) and (found := pattern.search(one)):
            return found[0]
    return ""
