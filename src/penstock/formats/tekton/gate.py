"""Makes Tekton runs wait in a queue, and restores them exactly. Called by tekton.format, for `penstock gate`.

    document     unit        by        what is written
    PipelineRun  workflow    either    spec.status: PipelineRunPending, and annotations that declare what the whole needs
    PipelineRun  stage task  suspend   the label `penstock/gate: taskruns`
    PipelineRun  stage task  pods      the label `penstock/gate: pods`
    TaskRun      any         suspend   spec.status: TaskRunPending
    TaskRun      any         pods      the label `penstock/gate: pods`

The TaskRuns of a PipelineRun do not exist yet. Tekton copies a run's labels to its TaskRuns and their pods: a webhook on their creation finds the
label and sets TaskRunPending, or the scheduling gate `penstock/admission`, except on objects with the label `tekton.dev/memberOf: finally`. A stage is a task of the pipeline with all of
its matrix; its key is the pair of labels (tekton.dev/pipelineRunUID, tekton.dev/pipelineTask). What each needs is in the annotation
`penstock/gate-tasks`, as JSON: [{"task": "train", "n": 3, "resources": {"cpu": "2"}}, …]; `n` is null if only the run knows it.

What asks for nothing needs no quota and does not wait: such a run stays as it is, and such a task of a pipeline gets the label
`penstock/gate: none` in spec.taskRunSpecs, which goes before the label of the run.

The timeout of a pending TaskRun does not run, but that of the PipelineRun does: if the user sets no timeouts, `timeouts.pipeline` becomes "0".
Tekton has TaskRunPending since 1.11. A status that the user has set stays ("held": "user").
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.formats.documents import Document, Library, items, part
from penstock.formats.gates.marks import (
    MAX_RESOURCES,
    NODE_SELECTOR,
    REQUESTS,
    TOLERATION,
    annotate,
    annotations_of,
    begin,
    check_choices,
    declared,
    finish,
    needs,
    refusal,
    say_queue,
    take_back,
    unbounded,
    unneeded,
)
from penstock.formats.gates.peak import Unbounded, peaks
from penstock.formats.pods import requests as pods
from penstock.formats.report import Report
from penstock.graph import quantity

KINDS = ("PipelineRun", "TaskRun")
LABEL = "penstock/gate"
NONE = "none"
"""The value of the label on TaskRuns that do not wait."""
TASKS = "penstock/gate-tasks"
_PENDING = {"PipelineRun": "PipelineRunPending", "TaskRun": "TaskRunPending"}
_RESULT = re.compile(r"\$\(\s*tasks\.([\w-]+)\.")
_DEEPEST = 20
_MOST_TASKS = 10_000


@dataclass(frozen=True, slots=True)
class TaskShape:
    """One task of a pipeline: all TaskRuns of its matrix."""

    name: str
    """`train`, or `child.train` in a pipeline inside the pipeline."""
    count: int | None
    resources: Mapping[str, int]
    """The requests of one TaskRun."""
    path: str
    document: Document = field(repr=False)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    affinity: Mapping[str, Any] = field(default_factory=dict)
    runtime_class: str = ""
    open: tuple[str, ...] = ()

    @property
    def asks(self) -> bool:
        """Does it need quota, as far as can be told before the run?"""
        return bool(self.resources or self.open)

    def as_data(self) -> dict[str, Any]:
        shown = {name: quantity.show(amount, name) for name, amount in sorted(self.resources.items())}
        data: dict[str, Any] = {"task": self.name, "n": self.count, "resources": shown}
        if self.node_selector:
            data["nodeSelector"] = dict(self.node_selector)
        if self.tolerations:
            data["tolerations"] = [dict(one) for one in self.tolerations]
        if self.open:
            data["open"] = list(self.open)
        return data


def gate(
    library: Library, document: Document, unit: str = "stage", by: str = "suspend", report: Report | None = None
) -> dict[str, Any]:
    """The run, waiting. Raises DocumentError, P860 to P869."""
    check_choices(unit, by)
    if document.kind not in KINDS:
        raise refusal(
            document, "P868", "kind", f"{document.kind or 'this'} is not a run", "give a PipelineRun or TaskRun"
        )
    report = Report() if report is None else report
    gated = begin(document)
    mark: dict[str, Any] = {"unit": unit, "by": by}
    whole = unit == "workflow" and document.kind == "PipelineRun"
    shapes = list(shapes_of(library, document))
    if not any(shape.asks for shape in shapes) and not (whole and _declares(document)):
        return unneeded(document, report)
    if whole or (document.kind == "TaskRun" and by == "suspend"):
        mark |= {"by": "suspend", "held": _pending(document, gated, report)}
    else:
        _labelled(document, gated, by, report)
    if whole:
        annotate(gated, _needed(library, document, report))
    else:
        idle = _let_go(document, gated, shapes, report) if LABEL in part(gated["metadata"], "labels") else set()
        waiting = [shape.as_data() for shape in shapes if shape.name not in idle]
        annotate(gated, {TASKS: json.dumps(waiting, separators=(",", ":"), default=str)})
    say_queue(document, report)
    return finish(document, gated, mark)


def ungate(data: Document | Mapping[str, Any]) -> dict[str, Any]:
    """The run as it was. Raises DocumentError, P866."""
    return take_back(data if isinstance(data, Document) else Document(data))


def _pending(document: Document, gated: dict[str, Any], report: Report) -> str:
    """Returns who holds the run."""
    status, pending = document.spec.get("status"), _PENDING[document.kind]
    if status == pending:
        report.kept("spec.status", "you made it wait yourself: only you let it go", document.source("spec.status"))
        return "user"
    if status:
        raise refusal(
            document,
            "P865",
            "spec.status",
            f"spec.status is {status!r} already, so the run cannot be held back by it",
            "take spec.status out",
        )
    gated["spec"]["status"] = pending
    report.changed("spec.status", f"the run waits: {pending}", "", document.source("spec"))
    return "penstock"


def _labelled(document: Document, gated: dict[str, Any], by: str, report: Report) -> None:
    value = "pods" if by == "pods" else "taskruns"
    if LABEL in part(document.metadata, "labels"):
        raise refusal(document, "P860", f"metadata.labels.{LABEL}", f"the label {LABEL} is kept for gates", "remove it")
    gated["metadata"]["labels"] = {**part(document.metadata, "labels"), LABEL: value}
    source = document.source("metadata")
    what = "TaskRuns wait as TaskRunPending" if by == "suspend" else "pods wait with a scheduling gate"
    report.changed(
        f"metadata.labels.{LABEL}", f"its {what}, set by the admission webhook; finally does not wait", "", source
    )
    if document.kind == "TaskRun":
        return
    own = document.spec.get("timeouts") is not None or document.spec.get("timeout") is not None
    if by == "suspend" and not own:
        gated["spec"]["timeouts"] = {"pipeline": "0"}
        report.changed("spec.timeouts.pipeline", 'set to "0": the time that tasks wait would count', "", source)
    else:
        report.changed("spec.timeouts", "the time that tasks wait counts against it", "make it longer", source)


def _declares(document: Document) -> bool:
    """Has the user said what the whole needs?"""
    requests = any(str(name).startswith(REQUESTS) for name in annotations_of(document.data))
    return bool(requests or declared(document, MAX_RESOURCES))


def _let_go(document: Document, gated: dict[str, Any], shapes: list[TaskShape], report: Report) -> set[str]:
    """Tasks that ask for nothing do not wait: a label of their own goes before that of the run. A pipeline inside the pipeline has no
    place for one. Returns their names."""
    idle = [shape for shape in shapes if shape.name and not shape.asks and "." not in shape.name]
    given = gated["spec"].get("taskRunSpecs")
    specs: list[Any] = list(given) if isinstance(given, list) else []
    for shape in idle:
        own = next((one for one in specs if isinstance(one, dict) and one.get("pipelineTaskName") == shape.name), None)
        if own is None:
            own = {"pipelineTaskName": shape.name}
            specs.append(own)
        own["metadata"] = {**part(own, "metadata"), "labels": {**part(own, "metadata", "labels"), LABEL: NONE}}
        report.kept(
            shape.path, f"{shape.name} asks for no resources, so it does not wait", shape.document.source(shape.path)
        )
    if idle:
        gated["spec"]["taskRunSpecs"] = specs
    return {shape.name for shape in idle}


def _needed(library: Library, document: Document, report: Report) -> dict[str, str]:
    """Annotations for the whole run: declared by the user, or else computed."""
    given = {name: declared(document, name) for name in (MAX_RESOURCES, TOLERATION, NODE_SELECTOR)}
    requests = any(str(name).startswith(REQUESTS) for name in annotations_of(document.data))
    for name, value in given.items():
        if value is not None:
            report.kept(f"metadata.annotations.{name}", "taken as you declared it", document.source("metadata"))
    shapes = list(shapes_of(library, document))
    found, places = peak_of(library, document)
    if requests:
        report.kept("metadata.annotations", f"{REQUESTS}… says what it needs", document.source("metadata"))
    elif given[MAX_RESOURCES] is None and places:
        raise unbounded(places)
    selector = _common([shape.node_selector for shape in shapes])
    tolerations = tuple(
        one for one in (shapes[0].tolerations if shapes else ()) if all(one in shape.tolerations for shape in shapes)
    )
    computed = needs(found, tolerations, selector)
    if requests:
        computed.pop(MAX_RESOURCES)
    return {name: text for name, text in computed.items() if given[name] is None}


def _common(maps: list[Mapping[str, str]]) -> dict[str, str]:
    first = maps[0] if maps else {}
    return {name: text for name, text in first.items() if all(one.get(name) == text for one in maps)}


def shapes_of(library: Library, document: Document) -> Iterator[TaskShape]:
    """The shapes of the tasks of a run, without `finally`."""
    if document.kind == "TaskRun":
        run = document.spec
        task = _task(library, run, document, "spec")
        yield _shape("", 1, task, run, document, "spec")
        return
    pipeline = _pipeline(library, document.spec, document, "spec")
    if isinstance(pipeline, str):
        yield TaskShape("", None, {}, "spec", document, open=(pipeline,))
        return
    for number, shape in enumerate(_tasks(library, document.spec, *pipeline, "", ())):
        if number >= _MOST_TASKS:
            raise refusal(
                document,
                "P864",
                "spec",
                f"the run has more than {_MOST_TASKS:,} tasks",
                "queue it whole, with its needs declared",
            )
        yield shape


_Found = tuple[Mapping[str, Any], Document, str]
"""A spec, the document it is written in, and its path."""


def _tasks(
    library: Library,
    run: Mapping[str, Any],
    spec: Mapping[str, Any],
    document: Document,
    path: str,
    prefix: str,
    around: tuple[int, ...],
) -> Iterator[TaskShape]:
    """`around`: the pipelines that this one is called from."""
    for at, task in items(spec, "tasks"):
        here, name = f"{path}.tasks[{at}]", f"{prefix}{task.get('name')}"
        if not _is_pipeline(task):
            found = _task(library, task, document, here)
            yield _shape(name, matrix_size(task), found, _settings(run, str(task.get("name"))), document, here)
            continue
        child = _pipeline(library, task, document, here)
        if isinstance(child, str) or id(child[0]) in around or len(around) > _DEEPEST:
            why = child if isinstance(child, str) else "a pipeline that calls itself"
            yield TaskShape(name, None, {}, here, document, open=(why,))
        else:
            yield from _tasks(library, run, *child, f"{name}.", (*around, id(spec)))


def _is_pipeline(task: Mapping[str, Any]) -> bool:
    return task.get("pipelineSpec") is not None or task.get("pipelineRef") is not None


def _settings(run: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Settings of the run for the pods of one task."""
    template = part(run, "taskRunTemplate", "podTemplate") or part(run, "podTemplate")
    for _, one in items(run, "taskRunSpecs"):
        if one.get("pipelineTaskName") == task:
            own = part(one, "podTemplate") or part(one, "taskPodTemplate")
            return {**one, "podTemplate": {**template, **own}}
    return {"podTemplate": template}


def _pipeline(library: Library, call: Mapping[str, Any], document: Document, path: str) -> _Found | str:
    if isinstance(call.get("pipelineSpec"), Mapping):
        return call["pipelineSpec"], document, f"{path}.pipelineSpec"
    return _referred(library, part(call, "pipelineRef"), "Pipeline")


def _task(library: Library, call: Mapping[str, Any], document: Document, path: str) -> _Found | str:
    if isinstance(call.get("taskSpec"), Mapping):
        return call["taskSpec"], document, f"{path}.taskSpec"
    ref = part(call, "taskRef")
    return _referred(library, ref, str(ref.get("kind") or "Task"))


def _referred(library: Library, ref: Mapping[str, Any], kind: str) -> _Found | str:
    if ref.get("resolver"):
        return f"{kind} by the resolver {ref['resolver']}"
    found = library.find(kind, str(ref.get("name") or ""))
    return (found.spec, found, "spec") if found is not None else f"{kind} {ref.get('name') or 'without a name'}"


def _shape(
    name: str, count: int | None, task: _Found | str, run: Mapping[str, Any], document: Document, path: str
) -> TaskShape:
    template = part(run, "podTemplate")
    placement: dict[str, Any] = {
        "node_selector": {str(key): str(value) for key, value in part(template, "nodeSelector").items()},
        "tolerations": tuple(one for _, one in items(template, "tolerations")),
        "affinity": part(template, "affinity"),
        "runtime_class": str(template.get("runtimeClassName") or ""),
    }
    if isinstance(task, str):
        own = pods.container_resources(run, "computeResources")
        return TaskShape(name, count, own, path, document, open=() if own else (task,), **placement)
    resources, unknown = _resources(task[0], run)
    return TaskShape(name, count, resources, path, document, open=tuple(dict.fromkeys(unknown)), **placement)


def _resources(task: Mapping[str, Any], run: Mapping[str, Any]) -> tuple[dict[str, int], list[str]]:
    """The requests of the pod of one TaskRun. Its steps run one after another, but as containers of one pod their requests add up. What the run
    sets for the whole task replaces the requests of its steps."""
    template = part(task, "stepTemplate")
    total: dict[str, int] = {}
    unknown: list[str] = []
    whole = pods.container_resources(run, "computeResources")
    for listed, settings in (("steps", "stepSpecs"), ("sidecars", "sidecarSpecs")):
        override = {str(one.get("name")): one for _, one in items(run, settings)}
        for _, one in items(task, listed):
            chosen = override.get(str(one.get("name")), one)
            asked, open_ones = _container(chosen, template if listed == "steps" else {})
            if listed == "steps" and whole:
                continue
            unknown += open_ones
            for name, amount in asked.items():
                total[name] = total.get(name, 0) + amount
    for name, amount in whole.items():
        total[name] = total.get(name, 0) + amount
    return {name: amount for name, amount in total.items() if amount}, unknown


def _container(one: Mapping[str, Any], template: Mapping[str, Any]) -> tuple[dict[str, int], list[str]]:
    asked: dict[str, int] = {}
    unknown: list[str] = []
    for field_name in ("resources", "computeResources"):
        for source in (template, one):
            asked |= pods.container_resources(source, field_name)
            for kind in ("limits", "requests"):
                unknown += pods.unknown_amounts(part(source, field_name, kind))
    return asked, unknown


def matrix_size(task: Mapping[str, Any]) -> int | None:
    """The number of TaskRuns of a task; None if only the run knows. Combinations of `include` are all counted as new."""
    matrix = task.get("matrix")
    if not isinstance(matrix, Mapping):
        return 1
    size = 1
    listed = [one.get("value") for _, one in items(matrix, "params")]
    for value in listed:
        if not isinstance(value, list) or any("[*]" in str(item) for item in value):
            return None
        size *= len(value)
    included = sum(1 for _ in items(matrix, "include"))
    return size + included if listed else max(included, 1)


def peak_of(library: Library, document: Document) -> tuple[dict[str, int], list[Unbounded]]:
    """The peak demand of a run, and the places without a bound. `finally` runs after everything else, and is exempt."""
    places: list[Unbounded] = []
    for shape in shapes_of(library, document):
        if shape.open:
            message = f"{', '.join(shape.open)} is not known"
            fix = "" if "resolver" in message else "give its file as well, or "
            places.append(Unbounded(shape.path, shape.document, message, fix))
        elif shape.count is None and shape.resources:
            message = f"how often {shape.name} runs is only known when it runs"
            places.append(Unbounded(shape.path, shape.document, message))
    if document.kind == "TaskRun":
        return dict(next(iter(shapes_of(library, document))).resources), places
    pipeline = _pipeline(library, document.spec, document, "spec")
    return ({} if isinstance(pipeline, str) else _Peak(library, document.spec).of(*pipeline)), places


class _Peak:
    """Peaks of pipelines, each computed once."""

    def __init__(self, library: Library, run: Mapping[str, Any]) -> None:
        self.library = library
        self.run = run
        self.found: dict[int, dict[str, int]] = {}

    def of(self, spec: Mapping[str, Any], document: Document, path: str) -> dict[str, int]:
        if id(spec) not in self.found:
            self.found[id(spec)] = {}  # recursion has been reported already
            tasks = [(f"{path}.tasks[{at}]", task) for at, task in items(spec, "tasks")]
            number = {str(task.get("name")): at for at, (_, task) in enumerate(tasks)}
            edges = [
                (number[name], at)
                for at, (_, task) in enumerate(tasks)
                for name in _needs(task)
                if name in number and number[name] != at
            ]
            self.found[id(spec)] = peaks([self._task(task, document, here) for here, task in tasks], edges)
        return self.found[id(spec)]

    def _task(self, task: Mapping[str, Any], document: Document, path: str) -> dict[str, int]:
        if _is_pipeline(task):
            child = _pipeline(self.library, task, document, path)
            return {} if isinstance(child, str) else self.of(*child)
        found = _task(self.library, task, document, path)
        settings = _settings(self.run, str(task.get("name")))
        shape = _shape("", matrix_size(task), found, settings, document, path)
        count = 1 if shape.count is None else shape.count
        return {name: amount * count for name, amount in shape.resources.items()}


def _needs(task: Mapping[str, Any]) -> set[str]:
    """The tasks before it: those it names, and those whose results it reads."""
    after = task.get("runAfter")
    found = {str(name) for name in after} if isinstance(after, list) else set()
    read = {name: value for name, value in task.items() if name in ("params", "when", "matrix")}
    return found | set(_RESULT.findall(json.dumps(read, default=str)))
