"""What there is of one Tekton run: the tasks of its pipelines, their TaskRuns and pods. Called by tekton.engine; pure.

A TaskRun belongs to the task that its name says: Tekton makes it of the names of run and task. Labels prove nothing, because a user can set
every label of a TaskRun through `taskRunSpecs`, and they get into the status of the PipelineRun. Of `finally` is what has such a name after the
PipelineRun says that `finally` has begun.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.controller.engine import Observed
from penstock.controller.names import QUEUE, QUEUED
from penstock.controller.objects import (
    ApiResource,
    Lookup,
    Object,
    condition,
    controller_of,
    labels_of,
    name_of,
    namespace_of,
    part,
    rows,
    uid_of,
)
from penstock.formats.documents import Document, Library

API = "tekton.dev/v1"
PIPELINE_RUNS = ApiResource(API, "PipelineRun", "pipelineruns", selector=QUEUED)
TASK_RUNS = ApiResource(API, "TaskRun", "taskruns", selector=QUEUED)
PIPELINES = ApiResource(API, "Pipeline", "pipelines")
TASKS = ApiResource(API, "Task", "tasks")
STATEFUL_SETS = ApiResource("apps/v1", "StatefulSet", "statefulsets", selector=QUEUED)
"""Tekton's affinity assistants: they carry the labels of the run, ask for next to nothing, and its pods cannot run without them."""
PENDING = {"PipelineRun": "PipelineRunPending", "TaskRun": "TaskRunPending"}
_TASK = "tekton.dev/pipelineTask"
_RESULT = re.compile(r"\$\(tasks\.([^.)]+)\.results[.\[]")
_LONGEST, _HASH = 63, 32
_MOST_COMBINATIONS = 1024

Path = tuple[str, ...]
"""The names of the tasks that lead to a pipeline inside a pipeline, and of the task in it."""


def kind_of(run: Object) -> str:
    """Items of a list do not say their kind."""
    spec = part(run, "spec")
    return str(run.get("kind") or ("TaskRun" if "taskSpec" in spec or "taskRef" in spec else "PipelineRun"))


def is_pending(run: Object) -> bool:
    return part(run, "spec").get("status") == PENDING[kind_of(run)]


def result_of(run: Object) -> str:
    """`True`, `False`, or empty while it goes on. A try that fails is not the end if another follows."""
    found = str(condition(run, "Succeeded").get("status") or "")
    if found == "False" and kind_of(run) == "TaskRun" and part(run, "spec").get("status") != "TaskRunCancelled":
        tries = rows(run, "status", "retriesStatus")
        if len(tries) < int(part(run, "spec").get("retries") or 0):
            return ""
    return found if found in ("True", "False") else ""


def child_name(parent: str, suffix: str) -> str:
    """The name that Tekton gives to a child: parent and suffix, with a hash in place of what is too long."""
    if len(parent) + len(suffix) <= _LONGEST:
        return parent + suffix
    head = _LONGEST - _HASH
    if head > len(suffix):
        return parent[: head - len(suffix)] + _md5(parent) + suffix
    text = parent[:head] + _md5(parent + suffix)
    return (text + suffix[: max(_LONGEST - len(text), 0)]).rstrip("-._")


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def child_names(parent: str, task: str, count: int) -> list[str]:
    """The names of the TaskRuns of one task."""
    if count == 1:
        return [child_name(parent, f"-{task}")]
    found = []
    for number in range(count):
        name = child_name(parent, f"-{task}-{number}")
        if not name.endswith(f"-{number}"):
            name = f"{child_name(parent, f'-{task}')[: _LONGEST - len(f'-{count}')]}-{number}"
        found.append(name)
    return found


def is_custom(task: Object) -> bool:
    """Run by another controller, as a CustomRun: it has no pod of Tekton's."""
    return any(part(task, name).get("apiVersion") and part(task, name).get("kind") for name in ("taskRef", "taskSpec"))


def resolved(run: Object) -> Document:
    """A run with the pipeline or task that Tekton has found for it, if it has."""
    spec = dict(part(run, "spec"))
    for ref, own in (("pipelineRef", "pipelineSpec"), ("taskRef", "taskSpec")):
        found = part(run, "status", own)
        if found:
            spec.pop(ref, None)
            spec[own] = found
    return Document({**run, "kind": kind_of(run), "spec": spec}, file=f"{kind_of(run)} {name_of(run)}")


def library_of(calls: Iterable[Object], lookup: Lookup, namespace: str) -> Library:
    """The Pipelines and Tasks that these specs name, and those that they name in turn."""
    found: dict[tuple[str, str], Document] = {}
    waiting = list(calls)
    while waiting:
        call = waiting.pop()
        for ref, resource in (("pipelineRef", PIPELINES), ("taskRef", TASKS)):
            name = str(part(call, ref).get("name") or "")
            if not name or part(call, ref).get("resolver") or is_custom(call) or (resource.kind, name) in found:
                continue
            there = lookup.get(resource, namespace, name)
            if there is not None:
                document = Document({**there, "kind": resource.kind}, file=f"{resource.kind} {name}")
                found[resource.kind, name] = document
                waiting += _calls(document.spec)
        waiting += _calls(part(call, "pipelineSpec"))
    return Library(tuple(found.values()))


def _calls(spec: Object) -> list[Object]:
    return [*rows(spec, "tasks"), *rows(spec, "finally")]


@dataclass(frozen=True, slots=True)
class PipelineRunTask:
    """One task of the pipeline, or of a pipeline inside it."""

    path: Path
    matrix: bool
    exempt: bool
    queue: str
    after: frozenset[Path] = frozenset()
    """The tasks of its pipeline that it waits for."""

    @property
    def key(self) -> str:
        return ".".join(self.path)


class Runs:
    """One run with all that belongs to it."""

    def __init__(self, seen: Observed) -> None:
        self.main = seen.main
        self.is_task = kind_of(seen.main) == "TaskRun"
        self.all = [{**one, "kind": "TaskRun"} for one in seen.of("TaskRun")]
        self.pods: dict[str, list[Object]] = {}
        """Of each TaskRun, by uid: its pods."""
        for pod in seen.pods:
            self.pods.setdefault(str(controller_of(pod).get("uid")), []).append(pod)
        self.paths: dict[str, Path] = {uid_of(self.main): ()}
        """Of each PipelineRun, by uid: the tasks that lead to it."""
        self.by_uid = {uid_of(self.main): self.main}
        self._named: dict[str, dict[str, str]] = {}
        inner = [{**one, "kind": "PipelineRun"} for one in seen.of("PipelineRun")]
        calls = [resolved(one).spec for one in (self.main, *inner, *self.all)]
        self.library = library_of(calls, seen.lookup, namespace_of(self.main))
        self._place({uid_of(one): one for one in inner})
        self.sets = {uid_of(one): one for one in seen.of("StatefulSet")}
        self.tasks: dict[Path, PipelineRunTask] = {}
        if not self.is_task:
            for task in self._walk((), resolved(self.main).spec, False, 0):
                self.tasks[task.path] = task
        self._by_uid = {uid_of(one): one for one in self.all}
        self._paths_of = {uid: self._path_of(one) for uid, one in self._by_uid.items()}
        self.task_runs: dict[Path, list[Object]] = {}
        for one in sorted(self.all, key=name_of):
            self.task_runs.setdefault(self.path_of(one), []).append(one)

    def _place(self, children: dict[str, Object]) -> None:
        """Pipelines inside the pipeline, from the outside in."""
        while True:
            more = {}
            for uid, one in children.items():
                parent = str(controller_of(one).get("uid"))
                if uid not in self.paths and parent in self.paths:
                    more[uid] = (*self.paths[parent], self._task_name(one, self.by_uid[parent]))
                    self.by_uid[uid] = one
            if not more:
                return
            self.paths |= more

    def _task_name(self, run: Object, parent: Object) -> str:
        """The task that a child is for: by the name that Tekton has given it, or else what the status of the parent says, or its label."""
        own, name = name_of(run), name_of(parent)
        tasks = self._names(parent)
        if own in tasks:
            return tasks[own]
        number = own.rpartition("-")[2]
        for task in tasks.values() if number.isascii() and number.isdigit() else ():
            if own == child_name(name, f"-{task}-{number}"):
                return task
        for ref in rows(parent, "status", "childReferences"):
            if ref.get("name") == own and ref.get("pipelineTaskName"):
                return str(ref["pipelineTaskName"])
        return str(labels_of(run).get(_TASK) or own)

    def _names(self, parent: Object) -> dict[str, str]:
        """The name of the child of each task, if it has only one -> the task."""
        uid = uid_of(parent)
        if uid not in self._named:
            tasks = [str(one.get("name")) for one in _calls(self._pipeline(self.paths[uid], part(parent, "spec")))]
            self._named[uid] = {child_name(name_of(parent), f"-{task}"): task for task in tasks}
        return self._named[uid]

    def _walk(self, around: Path, call: Object, exempt: bool, depth: int) -> Iterator[PipelineRunTask]:
        spec = self._pipeline(around, call)
        own = {str(one.get("pipelineTaskName")): one for one in rows(call, "taskRunSpecs")}
        for listed, final in (("tasks", False), ("finally", True)):
            for task in rows(spec, listed):
                path = (*around, str(task.get("name")))
                if part(task, "pipelineSpec") or part(task, "pipelineRef"):
                    if depth < 20:
                        yield from self._walk(path, task, exempt or final, depth + 1)
                elif not is_custom(task):
                    queue = _queue_of(own.get(path[-1], {})) or _queue_of(part(task, "taskSpec"))
                    after = frozenset((*around, name) for name in _awaited(task))
                    yield PipelineRunTask(path, bool(part(task, "matrix")), exempt or final, queue, after)

    @property
    def pipeline(self) -> Object:
        """The pipeline of the run; empty while nobody knows it."""
        return self._pipeline((), resolved(self.main).spec)

    def _pipeline(self, path: Path, call: Object) -> Object:
        for run in self._at(path):
            found = part(run, "status", "pipelineSpec")
            if found:
                return found
        if part(call, "pipelineSpec"):
            return part(call, "pipelineSpec")
        document = self.library.find("Pipeline", str(part(call, "pipelineRef").get("name") or ""))
        return document.spec if document is not None and not part(call, "pipelineRef").get("resolver") else {}

    def _at(self, path: Path) -> list[Object]:
        return [self.by_uid[uid] for uid, one in self.paths.items() if one == path]

    # which task

    def path_of(self, run: Object) -> Path:
        """Of a TaskRun: its task. One that no pipeline has is a task of its own."""
        return self._paths_of[uid_of(run)]

    def _path_of(self, run: Object) -> Path:
        parent = self.by_uid.get(str(controller_of(run).get("uid")))
        if parent is None or (parent is self.main and self.is_task):
            return (f"taskrun/{name_of(run)}",)
        path = (*self.paths[uid_of(parent)], self._task_name(run, parent))
        task = self.tasks.get(path)
        if task is None or (task.exempt and not self._is_final(run, parent, path)):
            return (f"taskrun/{name_of(run)}",)
        return path

    def _is_final(self, run: Object, parent: Object, path: Path) -> bool:
        """Is this TaskRun really one of `finally`, or of a pipeline that `finally` calls?"""
        name, pipeline = path[-1], self._pipeline(self.paths[uid_of(parent)], part(parent, "spec"))
        if not _has_name(name_of(run), name_of(parent), name):
            return False
        if name in {str(one.get("name")) for one in rows(pipeline, "finally")}:
            began = bool(part(parent, "status").get("finallyStartTime"))
            # Tekton loses that time now and then if all of `finally` are pipelines.
            return began or (kind_of(run) == "PipelineRun" and self._is_past(parent, pipeline))
        above = self.by_uid.get(str(controller_of(parent).get("uid")))
        return above is not None and self._is_final(parent, above, path[:-1])

    def _is_past(self, parent: Object, pipeline: Object) -> bool:
        """Have all children for the tasks of a pipeline ended?"""
        tasks = {str(one.get("name")) for one in rows(pipeline, "tasks")}
        children = [
            one for one in (*self.all, *self.by_uid.values()) if controller_of(one).get("uid") == uid_of(parent)
        ]
        return all(result_of(one) for one in children if self._task_name(one, parent) in tasks)

    def owner_of(self, pod: Object) -> Object | None:
        """The TaskRun of a pod."""
        uid = str(controller_of(pod).get("uid"))
        return self.main if self.is_task and uid == uid_of(self.main) else self._by_uid.get(uid)

    def is_assistant(self, pod: Object) -> bool:
        """Is it an affinity assistant that Tekton made for this run?"""
        there = self.sets.get(str(controller_of(pod).get("uid")))
        owner = str(controller_of(there or {}).get("uid"))
        return there is not None and name_of(there).startswith("affinity-assistant-") and owner in self.paths

    # how far

    def listed(self, task: PipelineRunTask) -> list[str]:
        """The TaskRuns that the status names for a task."""
        return [
            str(ref.get("name"))
            for run in self._at(task.path[:-1])
            for ref in rows(run, "status", "childReferences")
            if ref.get("pipelineTaskName") == task.path[-1] and ref.get("kind") == "TaskRun"
        ]

    def is_passed(self, task: PipelineRunTask) -> bool:
        """It has no TaskRun and never will: skipped, or the pipeline is past its tasks."""
        for length in range(1, len(task.path) + 1):
            for run in self._at(task.path[: length - 1]):
                skipped = {str(one.get("name")) for one in rows(run, "status", "skippedTasks")}
                over = bool(result_of(run) or part(run, "status").get("finallyStartTime"))
                if task.path[length - 1] in skipped or over:
                    return True
        return False

    def expected(self, task: PipelineRunTask, count: int) -> list[str]:
        """The names that its TaskRuns will have."""
        parent = name_of(self.main)
        for name in task.path[:-1]:
            parent = child_name(parent, f"-{name}")
        return child_names(parent, task.path[-1], count)


def _awaited(task: Object) -> set[str]:
    """The tasks that it names in runAfter, or whose results it reads."""
    named = task.get("runAfter")
    read = _RESULT.findall(json.dumps(task, default=str))
    return {str(one) for one in (*(named if isinstance(named, list) else ()), *read)}


def _has_name(name: str, parent: str, task: str) -> bool:
    """Is it a name that Tekton gives to a TaskRun of this task?"""
    number = name.rpartition("-")[2]
    count = int(number) + 1 if number.isascii() and number.isdigit() and len(number) < 5 else 0
    many = child_names(parent, task, max(count, 2)) if 0 < count <= _MOST_COMBINATIONS else []
    return name in (child_name(parent, f"-{task}"), *many[-2:])


def _queue_of(thing: Object) -> str:
    labels = part(thing, "metadata", "labels")
    return str(labels.get(QUEUED) or labels.get(QUEUE) or "")
