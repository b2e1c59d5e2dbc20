"""Job, CronJob and Pod of Kubernetes -> a workflow of one step. Called by kubernetes.format; its part about Jobs by read.jobset.

The pods of a Job are tasks of a for-each: `completions` of them, `parallelism` at a time, each with its number in
JOB_COMPLETION_INDEX if the Job is Indexed. A failed pod is retried `backoffLimit` times. Kubernetes counts the failures of
all pods together; here each pod has its own retries. A CronJob is run once, now.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.expressions.parse import Expr
from penstock.formats.base import Read
from penstock.formats.documents import Document, Library, items, part
from penstock.formats.kubernetes.conventions import JOB_BACKOFF, POD_BACKOFF
from penstock.formats.labels import DESCRIPTION, PRIORITY, QUEUE
from penstock.formats.pods.read import PodFacts, counts_replicas, facts_of, read_pod
from penstock.formats.pods.variables import INDEX_FIELD, MOST_PODS, REPLICA
from penstock.formats.reader import LARGEST, DocumentReader
from penstock.formats.values import brief, frozen
from penstock.graph.model import Cache, ForEach, Retry, Step, Value, Workflow

PRIVATE: Final = Cache(enabled=False)
"""Steps of a foreign document run every time."""
ENDLESS: Final = 10_000_000
"""A number of retries that is never reached."""
INDEX: Final = Expr.of("item.index")
NONE: Final = ForEach(axes=({"index": Expr.of("range(0)")},))
"""No pods: the step is skipped."""

_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]+")
_JOB: Final = frozenset(
    {
        "template",
        "parallelism",
        "completions",
        "completionMode",
        "backoffLimit",
        "activeDeadlineSeconds",
        "podFailurePolicy",
    }
)
_HANDED: Final = ("namespace", "generateName", "annotations")


def read_job(library: Library, root: Document) -> Read:
    """A Job, CronJob or Pod as a workflow of one step. Raises DocumentError with everything that is wrong."""
    reader = DocumentReader(library, root)
    if root.kind == "Pod":
        workflow = _pod(reader)
    else:
        path = "spec.jobTemplate.spec" if root.kind == "CronJob" else "spec"
        workflow = _job(reader, part(root.data, *path.split(".")), path)
    reader.stop_if_wrong()
    return Read(workflow, reader.report)


def _pod(reader: DocumentReader) -> Workflow:
    root = reader.document
    name = _step_name(root.spec, root.name)
    facts = PodFacts(facts_of(root, root.data, name))
    # Its metadata is that of the document, which is kept with the workflow.
    found = read_pod(reader, {"spec": reader.mapping(root.data, "spec", "")}, "", facts, name)
    policy = root.spec.get("restartPolicy")
    if policy is None or policy == "Always":
        said = "a Pod that is restarted always has no end; it is run once"
        reader.changed("spec.restartPolicy", said, "Say restartPolicy: Never, or make it a Job.")
    step = Step(
        name=name,
        action=found.action,
        retry=Retry(limit=ENDLESS, backoff=POD_BACKOFF) if policy == "OnFailure" else None,
        timeout=found.deadline,
        resources=found.resources,
        placement=found.placement,
        mounts=found.mounts,
        cache=PRIVATE,
        extra=found.extra,
        source=root.source("spec"),
    )
    return around(reader, (step,))


def _job(reader: DocumentReader, spec: Mapping[str, Any], path: str) -> Workflow:
    root = reader.document
    if not isinstance(spec.get("template"), Mapping):
        reader.wrong("P835", f"{path}.template", "the Job has no pods", "give spec.template with a spec and containers")
    template = part(spec, "template")
    job = read_job_spec(reader, spec, path, indexed=False)
    gang = counts_replicas(part(template, "spec"))
    name = _step_name(part(template, "spec"), root.name)
    counted = _counted(reader, job, path, gang)
    number: Value = REPLICA if counted.get("replicas", 1) > 1 else INDEX if "each" in counted else ""
    fields = facts_of(root, template, name, number)
    if job.indexed:
        fields |= dict.fromkeys((INDEX_FIELD, INDEX_FIELD.replace("annotations", "labels")), number or "0")
    for label in ("batch.kubernetes.io/job-name", "job-name"):
        fields[f"metadata.labels['{label}']"] = root.name
    facts = PodFacts(fields, (number or "0") if job.indexed else None)
    found = read_pod(reader, template, f"{path}.template", facts, name)
    step = Step(
        name=name,
        action=found.action,
        retry=job.retry,
        timeout=found.deadline,
        resources=found.resources,
        placement=found.placement,
        mounts=found.mounts,
        cache=PRIVATE,
        extra={**found.extra, **({"job": job.rest} if job.rest else {})},
        source=root.source(f"{path}.template"),
        **counted,
    )
    if root.kind == "CronJob":
        _once(reader)
    workflow = around(reader, (step,))
    if job.deadline is not None:
        reader.kept(f"{path}.activeDeadlineSeconds", "the time that the whole run has, from its first start")
    if workflow.queue is not None and "each" in counted:
        said = "its pods are let in as room comes free; Kueue waits until there is room for `parallelism` of them"
        reader.changed(f"{path}.parallelism", said)
    return replace(workflow, timeout=job.deadline)


def _counted(reader: DocumentReader, job: JobSpec, path: str, gang: bool) -> dict[str, Any]:
    """How often the step runs."""
    if job.completions == 0:
        return {"each": NONE}
    if job.completions == 1:
        return {}
    if gang:
        return {"replicas": job.completions}
    if job.retry is not None:
        said = "each pod has this many tries of its own; Kubernetes counts the failures of all its pods"
        reader.changed(f"{path}.backoffLimit", said, "Use backoffLimitPerIndex to have the same there.")
    parallel = job.parallelism if job.parallelism < job.completions else None
    return {"each": ForEach(axes=({"index": Expr.of(f"range({job.completions})")},), parallel=parallel)}


def _once(reader: DocumentReader) -> None:
    spec = reader.document.spec
    near = "Let something that knows the time start it."
    reader.changed("spec.schedule", f"run once, now; not at {brief(spec.get('schedule'))}", near)
    for name in spec:
        if name not in ("schedule", "jobTemplate"):
            reader.changed(f"spec.{name}", "of no use to what is run once")


def _step_name(spec: Mapping[str, Any], fallback: str) -> str:
    """The name of its only container, or else that of the document."""
    names = [one.get("name") for kind in ("initContainers", "containers") for _, one in items(spec, kind)]
    return clean(names[0] if len(names) == 1 else fallback)


def clean(name: Any) -> str:
    """A name that the model allows."""
    found = _ILLEGAL.sub("-", name if isinstance(name, str) else "").strip("-_")[:128].strip("-_")
    return found or "job"


# -- the document around it -------------------------------------------------------------------------------------------


def around(reader: DocumentReader, steps: tuple[Step, ...], extra: Mapping[str, Any] | None = None) -> Workflow:
    """The workflow of a document: name, queue, labels and the other fields of the whole."""
    root = reader.document
    metadata = reader.mapping(root.data, "metadata", "")
    labels = {str(key): str(value) for key, value in reader.mapping(metadata, "labels", "metadata").items()}
    annotations = {str(key): value for key, value in reader.mapping(metadata, "annotations", "metadata").items()}
    queue = labels.pop(QUEUE, None) or annotations.pop(QUEUE, None)
    doc = annotations.pop(DESCRIPTION, "")
    handed = {name: metadata[name] for name in _HANDED if metadata.get(name)}
    handed = {**handed, "annotations": annotations} if annotations else {**handed, "annotations": None}
    name = clean(root.name or root.kind.lower())
    if name != root.name:
        handed["name"] = metadata.get("name")
    handed = {key: frozen(value) for key, value in handed.items() if value}
    for key in metadata:
        if key not in ("name", "labels", *_HANDED):
            reader.kept(f"metadata.{key}", "what the cluster keeps of it is no part of the workflow")
    return Workflow(
        name=name,
        steps=steps,
        queue=str(queue) if queue else None,
        priority=labels.pop(PRIORITY, None),
        labels=labels,
        doc=doc if isinstance(doc, str) else "",
        extra={**({"metadata": handed} if handed else {}), **(extra or {})},
        source=root.source(""),
    )


# -- the spec of a Job ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobSpec:
    completions: int
    parallelism: int
    """At least 1."""
    indexed: bool
    retry: Retry | None
    deadline: int | None
    """Seconds that the Job may take, all attempts together."""
    rest: Mapping[str, Any]
    """Fields that the model has no place for."""


def read_job_spec(reader: DocumentReader, spec: Mapping[str, Any], path: str, indexed: bool) -> JobSpec:
    """`indexed`: the default of completionMode."""
    parallelism = reader.whole(spec, "parallelism", path)
    completions = reader.whole(spec, "completions", path)
    mode = reader.text(spec, "completionMode", path)
    if mode not in ("", "Indexed", "NonIndexed"):
        reader.wrong("P835", f"{path}.completionMode", f"there is no mode {mode[:60]!r}", "say Indexed or NonIndexed")
    if parallelism == 0:
        said = "parallelism 0 holds the Job back; it is run as if it said 1"
        reader.changed(f"{path}.parallelism", said, "The queue decides when it starts.")
    if completions is None:
        completions = 1 if parallelism is None else max(1, parallelism)
        if completions > 1 and not indexed:
            said = f"the Job is over when one of {completions} pods has succeeded and all have ended; here all must succeed"
            reader.changed(f"{path}.parallelism", said, "Say how many completions it needs.")
    if completions > MOST_PODS:
        reader.wrong("P835", f"{path}.completions", f"{completions} pods are too many", f"at most {MOST_PODS}")
        completions = 1
    if spec.get("suspend") is True:
        reader.changed(f"{path}.suspend", "it is started, as the queue would do", "A run begins when it is submitted.")
    retry, understood = _retry(reader, spec, path)
    rest = {str(name): frozen(value) for name, value in spec.items() if name not in _JOB and value is not None}
    for name in rest:
        if name != "suspend":
            reader.kept(f"{path}.{name}")
    if not understood:
        rest["podFailurePolicy"] = frozen(spec["podFailurePolicy"])
    if mode == "NonIndexed" and indexed:
        rest["completionMode"] = mode
    deadline = reader.whole(spec, "activeDeadlineSeconds", path, 1)
    is_indexed = mode == "Indexed" if mode else indexed
    return JobSpec(completions, max(1, parallelism or 1), is_indexed, retry, deadline, rest)


def _retry(reader: DocumentReader, spec: Mapping[str, Any], path: str) -> tuple[Retry | None, bool]:
    """When a failed pod is retried, and whether this covers the whole policy."""
    per_index = reader.whole(spec, "backoffLimitPerIndex", path)
    limit = reader.whole(spec, "backoffLimit", path)
    if limit is None:
        limit = 6 if per_index is None else LARGEST
    limit = limit if per_index is None else per_index
    codes: set[int] = set()
    never: set[int] = set()
    rules = list(reader.members(reader.mapping(spec, "podFailurePolicy", path), "rules", f"{path}.podFailurePolicy"))
    for here, rule in rules:
        on = part(rule, "onExitCodes")
        values = on.get("values")
        numbers = {one for one in values if isinstance(one, int)} if isinstance(values, list) else set()
        if rule.get("action") == "FailJob" and on.get("operator") == "In":
            never |= numbers
        elif rule.get("action") == "FailJob" and on.get("operator") == "NotIn" and not codes:
            codes = numbers
        else:
            said = f"{brief(rule.get('action'))} is not looked at: a failed pod is tried again"
            reader.changed(here, said, "FailJob with onExitCodes is.")
    understood = not rules or (
        len(rules) == 1 and bool(codes) and "containerName" not in part(rules[0][1], "onExitCodes")
    )
    if limit == 0:
        return None, not rules
    when = f"!(attempt.exit_code in {sorted(never)})" if never else ""
    return Retry(
        limit=min(limit, ENDLESS),
        backoff=JOB_BACKOFF,
        exit_codes=tuple(sorted(codes)),
        when=Expr.of(when) if when else None,
    ), understood


def within(retry: Retry | None, pod: int | None, job: int | None) -> tuple[Retry | None, float | None]:
    """A step of a JobSet has no run of its own: the Job's deadline limits its retries and each attempt."""
    if job is None:
        return retry, pod
    if retry is not None:
        retry = replace(retry, within=float(job), on=retry.on if pod is not None else ("failed", "errored"))
    return retry, float(job if pod is None else min(job, pod))
