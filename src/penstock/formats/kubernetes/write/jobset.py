"""A workflow -> a JobSet (jobset.x-k8s.io/v1alpha2), if a JobSet can express it. Called by kubernetes.format.

A JobSet has gangs that wait for one another to complete, and nothing else: no values pass between steps, and there are no conditions. Each
step becomes a replicated job; its needs become dependsOn with status Complete. Everything that would change the result is refused, with the
step, its line and a fix; everything else that differs is in the report.

A workflow that is one call with a retry becomes failurePolicy.maxRestarts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.errors import InvalidWorkflow, Problem
from penstock.formats import shim
from penstock.formats.base import Written
from penstock.formats.documents import items, part
from penstock.formats.kubernetes.conventions import AT_ONCE, JOBSET_LABEL
from penstock.formats.kubernetes.unroll import PodKind, Unroller
from penstock.formats.kubernetes.write.job import STORAGE
from penstock.formats.kubernetes.write.pod import (
    PodNumbers,
    PodWriter,
    asks_for,
    finished,
    foreign,
    has_index,
    metadata,
    queues,
    retry_fields,
    seconds,
    stop_if_wrong,
)
from penstock.formats.pods.names import label
from penstock.formats.pods.variables import INDEX_FIELD, OURS, REPLICA
from penstock.formats.report import Report
from penstock.formats.values import thawed
from penstock.graph import check
from penstock.graph.model import Enough, Function, Nested, Workflow

API: Final = "jobset.x-k8s.io/v1alpha2"
MOST_NEEDS: Final = 5
"""The most entries of dependsOn."""
MOST_QUEUED: Final = 18
"""The most kinds of pods that Kueue accepts in one JobSet."""
_LONGEST: Final = 63
_JOB_INDEX: Final = f"metadata.annotations['{JOBSET_LABEL}job-index']"
_HANDED: Final = ("network", "coordinator", "managedBy", "suspend", "ttlSecondsAfterFinished")


def write_jobset(workflow: Workflow, bundle: bytes | None = None) -> Written:
    """`bundle` is the author's code, as author.pack made it. Raises UserError with everything that a JobSet cannot express."""
    problems = check.errors(workflow)
    if problems:
        raise InvalidWorkflow(problems)
    return _JobSet(workflow, bundle).written()


class _JobSet:
    def __init__(self, workflow: Workflow, bundle: bytes | None) -> None:
        self.workflow, self.restarts = _unwrapped(workflow)
        unroller = Unroller(self.workflow, "a JobSet")
        self.plains = unroller.run()
        self.report: Report = unroller.report
        self.problems = [*unroller.problems, *shim.missing_code(workflow, bundle, "P857")]
        if not self.plains and not self.problems:
            self.refuse("P855", "steps", "there is nothing in it for a JobSet to run", "give it a step")
        self.kept: Mapping[str, Any] = part(workflow.extra, "jobset")
        self.name, self.names = self.named()
        has_code = any(isinstance(one.step.action, Function) for one in self.plains)
        payload = shim.payload(bundle) if has_code else ""
        self.writer = PodWriter(self.name, self.report, self.problems, payload, "P858")

    def refuse(self, code: str, where: str, message: str, fix: str, plain: PodKind | None = None) -> None:
        source = plain.step.source if plain is not None else self.workflow.source
        self.problems.append(Problem(code, message, fix, where=where, source=source))

    def written(self) -> Written:
        stop_if_wrong(self.problems)
        needs = self.reduced()
        jobs = [self.replicated(plain, needs[plain.name]) for plain in self.plains]
        spec: dict[str, Any] = {name: thawed(self.kept[name]) for name in _HANDED if name in self.kept}
        spec |= self.policies(any(needs.values()))
        spec |= self.volumes()
        spec["replicatedJobs"] = jobs
        self.told()
        stop_if_wrong(self.problems)
        document = {
            "apiVersion": API,
            "kind": "JobSet",
            "metadata": metadata(self.workflow, self.name),
            "spec": spec,
        }
        return Written([*self.writer.beside.values(), document], self.report)

    # -- names

    def named(self) -> tuple[str, dict[str, str]]:
        """Of the JobSet and of each replicated job. The names of pods are made of both and of two numbers, and have 63 characters."""
        digits = max((len(str(self.pods(plain))) for plain in self.plains), default=1)
        generated = len("-abcde") if part(self.workflow.extra, "metadata").get("generateName") else 0
        room = _LONGEST - len("----abcde") - 2 * digits - generated
        longest = max((len(label(plain.name)) for plain in self.plains), default=1)
        name = label(self.workflow.name, max(8, room - min(longest, room // 2)))
        if name != self.workflow.name:
            said = f"called {name}: names in Kubernetes are small letters, digits and '-', and short"
            self.report.changed("name", said, source=self.workflow.source)
        names: dict[str, str] = {}
        taken: set[str] = set()
        for plain in self.plains:
            found = label(plain.name, room - len(name))
            number = 1
            while found in taken:
                number += 1
                found = label(f"{plain.name}-{number}", room - len(name))
            taken.add(found)
            names[plain.name] = found
            if found != plain.name:
                at = f"steps.{plain.step.name}"
                self.report.changed(at, f"{plain.name} is called {found}", source=plain.step.source)
        return name, names

    def pods(self, plain: PodKind) -> int:
        return plain.count if plain.count is not None else plain.step.replicas

    # -- one replicated job

    def replicated(self, plain: PodKind, needs: list[str]) -> dict[str, Any]:
        step, name = plain.step, self.names[plain.name]
        own = part(step.extra, "jobset")
        jobs, completions, parallelism = self.counted(plain)
        spec: dict[str, Any] = {"parallelism": parallelism, "completions": completions}
        spec |= retry_fields(step.retry, step, self.report)
        template = self.writer.template(plain, name, self.numbered(plain, jobs, completions), claimed=True)
        self.limits(plain, spec, template)
        spec |= thawed(part(step.extra, "job"))
        spec["template"] = finished(template, spec)
        around = thawed(part(own, "metadata"))
        found: dict[str, Any] = {"name": name, "replicas": jobs}
        found |= {key: thawed(own[key]) for key in own if key not in ("replicas", "dependsOn", "metadata")}
        depends = [{"name": self.names[one], "status": "Complete"} for one in needs]
        depends += self.ready(plain, set(needs))
        if depends:
            found["dependsOn"] = depends
        if len(depends) > MOST_NEEDS:
            said = f"{step.name} waits for {len(depends)} others; a JobSet takes {MOST_NEEDS}"
            fix = "put a step in between that waits for some of them"
            self.refuse("P858", f"steps.{step.name}.needs", said, fix, plain)
        found["template"] = {**({"metadata": around} if around else {}), "spec": spec}
        return found

    def counted(self, plain: PodKind) -> tuple[int, int, int]:
        """Jobs, and for each its completions and how many run at once."""
        step = plain.step
        if plain.count == 0:
            return 0, step.replicas, step.replicas
        if plain.count is not None:
            return 1, plain.count, min(plain.parallel or plain.count, plain.count)
        jobs = part(step.extra, "jobset").get("replicas")
        if isinstance(jobs, int) and jobs > 1 and step.replicas % jobs == 0:
            each = step.replicas // jobs
            if each == 1 or not asks_for(step, REPLICA):
                return jobs, each, each
        return 1, step.replicas, step.replicas

    def numbered(self, plain: PodKind, jobs: int, completions: int) -> PodNumbers:
        fields = {OURS[0]: INDEX_FIELD}
        if plain.count:
            fields = {OURS[1]: INDEX_FIELD}
        elif jobs > 1:
            fields = {OURS[0]: _JOB_INDEX} if completions == 1 else {}
        if part(plain.step.extra, "job").get("completionMode") == "NonIndexed":
            return PodNumbers({} if not has_index(plain.step) else fields, indexed=False)
        return PodNumbers(fields, indexed=True, always=True, replicas=plain.step.replicas)

    def limits(self, plain: PodKind, spec: dict[str, Any], template: dict[str, Any]) -> None:
        """A limit that ends the tries is the Job's; one that is tried again is the pod's."""
        step = plain.step
        retry, where = step.retry, f"steps.{step.name}"
        if retry is not None and retry.within is not None:
            spec["activeDeadlineSeconds"] = seconds(retry.within, f"{where}.retry.within", step, self.report)
        if step.timeout is not None:
            limit = seconds(step.timeout, f"{where}.timeout", step, self.report)
            if retry is None or "timeout" not in retry.on:
                spec["activeDeadlineSeconds"] = min(limit, spec.get("activeDeadlineSeconds", limit))
            else:
                template["spec"]["activeDeadlineSeconds"] = limit
        if retry is not None and self.pods(plain) > 1:
            said = "a failed pod is tried again by itself, and its Job counts the failures of all its pods"
            self.report.changed(f"{where}.retry", said, source=step.source)

    def ready(self, plain: PodKind, needs: set[str]) -> list[dict[str, str]]:
        """What was read as an order of starts within a stage."""
        entries = part(plain.step.extra, "jobset").get("dependsOn", ())
        names = [str(one.get("name")) for one in entries if isinstance(one, Mapping)]
        if not names:
            return []
        earlier = [one.name for one in self.plains[: self.plains.index(plain)]]
        return [{"name": self.names[one], "status": "Ready"} for one in names if one in earlier and one not in needs]

    def reduced(self) -> dict[str, list[str]]:
        """What each waits for, without those that others of them wait for anyway."""
        number = {plain.name: 1 << at for at, plain in enumerate(self.plains)}
        above: dict[str, int] = {}
        found: dict[str, list[str]] = {}
        for plain in self.plains:
            implied = 0
            for one in plain.needs:
                implied |= above[one]
            found[plain.name] = [one for one in plain.needs if not implied & number[one]]
            above[plain.name] = implied
            for one in plain.needs:
                above[plain.name] |= number[one]
        return found

    # -- what is said of the whole

    def policies(self, ordered: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if "startupPolicy" in self.kept and not ordered:
            found["startupPolicy"] = thawed(self.kept["startupPolicy"])
        for plain in self.plains:
            step = plain.step
            if step.tolerates:
                said = f"{step.name} may fail and the workflow does not; a JobSet fails when one of its Jobs does"
                fix = "let the command end with 0, or write Argo"
                self.refuse("P855", f"steps.{step.name}.tolerates", said, fix, plain)
        if self.workflow.enough is not None:
            found["successPolicy"] = self.success(self.workflow.enough)
        rules = thawed(part(self.kept, "failurePolicy"))
        if self.restarts or rules:
            found["failurePolicy"] = {"maxRestarts": self.restarts, **rules}
        return found

    def success(self, enough: Enough) -> dict[str, Any]:
        for name in enough.steps:
            if name not in self.names:
                said = f"the success of {name} is to be enough; it becomes several replicated jobs, or none"
                self.refuse(
                    "P855", "enough.steps", said, "name steps that are one loop-free pod, or write it otherwise"
                )
        targets = [self.names.get(name, name) for name in enough.steps]
        whole = set(targets) >= set(self.names.values())
        return {"operator": enough.of.capitalize(), **({} if whole else {"targetReplicatedJobs": targets})}

    def volumes(self) -> dict[str, Any]:
        """A claim for each folder that is shared."""
        given = list(thawed(self.kept.get("volumeClaimPolicies", ())))
        known = {
            str(part(template, "metadata").get("name"))
            for policy in given
            for _, template in items(policy, "templates")
        }
        for name, step in self.writer.claims.items():
            called = label(name, letter=False)
            if called in known:
                continue
            said = f"the folder {name} that is shared becomes a claim of 1Gi that many may write to"
            near = "Look at its size, access mode and storage class."
            self.report.changed(f"steps.{step.name}.mounts.{name}", said, near, step.source)
            given.append({"templates": [{"metadata": {"name": called}, "spec": STORAGE}]})
        return {"volumeClaimPolicies": given} if given else {}

    def told(self) -> None:
        workflow = self.workflow
        queues(workflow, self.plains, "a JobSet", self.report)
        foreign(workflow, self.plains, ("jobset",), "a JobSet", self.report)
        if workflow.timeout is not None:
            near = "Give the steps a timeout."
            self.report.lost("timeout", "a JobSet has no time limit as a whole", near, workflow.source)
        if workflow.queue is not None and len(self.plains) > 1:
            said = "Kueue admits a JobSet as a whole: it waits until there is room for all its steps together"
            self.report.changed("queue", said, "Penstock's own queue admits it stage by stage.", workflow.source)
        if workflow.queue is not None and len(self.plains) > MOST_QUEUED:
            said = f"{len(self.plains)} kinds of pods; Kueue takes {MOST_QUEUED} in one JobSet"
            self.report.changed("steps", said, "Write Argo, or several JobSets.", workflow.source)


def _unwrapped(workflow: Workflow) -> tuple[Workflow, int]:
    """If all it does is to call one workflow and to call it again if it fails: that workflow, and how often."""
    if len(workflow.steps) != 1 or workflow.on_exit or workflow.outputs:
        return workflow, 0
    call = workflow.steps[0]
    if (
        not isinstance(call.action, Nested)
        or call.retry is None
        or call.each
        or call.loop
        or call.when
        or call.tolerates
    ):
        return workflow, 0
    inner = next(one for one in workflow.definitions if one.name == call.action.name)
    plain = call.retry.backoff == AT_ONCE and call.retry.when is None and not call.retry.exit_codes
    if inner.params or inner.on_exit or inner.locks or not plain or call.timeout is not None:
        return workflow, 0
    whole = replace(
        workflow, steps=inner.steps, fail_fast=inner.fail_fast, parallel=inner.parallel, enough=inner.enough
    )
    return whole, call.retry.limit
