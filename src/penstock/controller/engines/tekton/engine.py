"""Tekton for the controller: stages of a run, and how one is let go and stopped. Found through the package; pure.

let go    spec.status of its TaskRuns is cleared
stopped   a TaskRun is deleted, in the foreground: its PipelineRun makes it anew, held, without using up a retry. TaskRuns of a matrix would not
          come back, nor would one that stands alone: their pods are removed at once and come back with the gate. Either way only if the pod is as
          it was seen, so one that has just succeeded counts
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

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
from penstock.controller.engines.tekton import adjust as adjusting
from penstock.controller.engines.tekton.runs import (
    PIPELINE_RUNS,
    PIPELINES,
    STATEFUL_SETS,
    TASK_RUNS,
    TASKS,
    PipelineRunTask,
    Runs,
    is_pending,
    kind_of,
    resolved,
    result_of,
)
from penstock.controller.names import QUEUED, STOPPING
from penstock.controller.objects import (
    PODS,
    Lookup,
    Object,
    Write,
    annotations_of,
    controller_of,
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
from penstock.formats.gates.marks import MAX_RESOURCES, NODE_SELECTOR, REQUESTS, TOLERATION, declared
from penstock.formats.pods.requests import amounts
from penstock.formats.tekton.gate import TaskShape, peak_of, shapes_of

WHOLE = "(workflow)"
"""The key of the one stage of a run that is queued as a whole."""


class Tekton:
    name = "tekton"
    main = (PIPELINE_RUNS, TASK_RUNS)
    children = (TASK_RUNS, PIPELINE_RUNS, STATEFUL_SETS)
    library = (PIPELINES, TASKS)

    def queued(self, obj: Object) -> bool:
        """Not what a PipelineRun of ours has made: its labels are copied. Not what another controller runs."""
        inner = controller_of(obj).get("kind") == "PipelineRun" and QUEUED in labels_of(obj)
        return not inner and part(obj, "spec").get("managedBy") in (None, "", "tekton.dev/pipeline")

    def adjust(self, obj: Object, unit: Unit, lookup: Lookup) -> Adjusted:
        return adjusting.adjust(obj, unit, lookup)

    def view(self, seen: Observed, unit: Unit) -> View:
        look = _look(seen, unit)
        paused = is_pending(seen.main) and adjusting.held_by(seen.main) != "penstock"
        try:
            return View(tuple(look.stages()), _outcome(result_of(seen.main)), paused)
        except UserError as error:
            return unread(error, paused)

    def task_of(self, pod: Object, seen: Observed, unit: Unit) -> Task:
        return _look(seen, unit).task_of(pod)

    def open(self, seen: Observed, unit: Unit, stage: Stage, opening: Opening) -> Sequence[Write]:
        look = _look(seen, unit)
        if is_pending(seen.main):
            return (_let_go(seen.main),) if adjusting.held_by(seen.main) == "penstock" else ()
        going = [one for one in look.task_runs(stage.key) if not result_of(one) and not is_deleted(one)]
        held = [one for one in going if is_pending(one)]
        if opening.count is not None:
            held = held[: max(0, opening.count - (len(going) - len(held)))]
        return tuple(_let_go(one) for one in held)

    def stop(self, seen: Observed, unit: Unit, stage: str, tasks: Sequence[str]) -> Sequence[Write] | None:
        look = _look(seen, unit)
        writes: list[Write] = []
        leaving = False
        for one in look.task_runs(stage):
            if tasks and name_of(one) not in tasks:
                continue
            running = [pod for pod in look.runs.pods.get(uid_of(one), ()) if is_active(pod) and not is_gated(pod)]
            if result_of(one):
                # Only what outlives its steps, or a status that somebody else has written.
                writes += [_end(pod) for pod in running if not is_deleted(pod)]
            elif running and not is_deleted(one):
                if look.keeps(one):
                    writes += [_remove(pod) for pod in running]
                else:
                    going = [pod for pod in running if not is_deleted(pod)]
                    writes += [*map(_mark, going), _delete(one), *map(_end, going)]
            leaving = leaving or bool(running) or (is_deleted(one) and not result_of(one))
        return writes if leaving else None


def _look(seen: Observed, unit: Unit) -> _Look:
    found = seen.memo.get(f"tekton/{unit}")
    if not isinstance(found, _Look):
        found = seen.memo[f"tekton/{unit}"] = _Look(seen, unit)
    return found


class _Look:
    """One run, as it is now, in one unit."""

    def __init__(self, seen: Observed, unit: Unit) -> None:
        self.seen, self.unit = seen, unit
        self.main = seen.main
        self.runs = Runs(seen)
        self.static: dict[str, TaskShape] = {}

    # where things belong

    def key_of(self, run: Object) -> str:
        """The stage of a TaskRun. Empty: exempt."""
        if self.runs.is_task:
            return name_of(run)
        path = self.runs.path_of(run)
        task = self.runs.tasks.get(path)
        if task is not None and task.exempt:
            return ""
        if self.unit == "workflow":
            return WHOLE
        return name_of(run) if self.unit == "task" else ".".join(path)

    def task_of(self, pod: Object) -> Task:
        run = self.runs.owner_of(pod)
        if run is not None:
            return Task(self.key_of(run), name_of(run))
        if self.runs.is_assistant(pod):
            return Task("", name_of(pod))
        named = str(labels_of(pod).get("tekton.dev/taskRun") or name_of(pod))
        return Task(WHOLE if self.unit == "workflow" else f"taskrun/{named}", named)

    def task_runs(self, key: str) -> list[Object]:
        """The TaskRuns of a stage; of one that never waits as well, if they were held all the same."""
        if self.runs.is_task:
            return [self.main] if key == name_of(self.main) else []
        exempt = key.removeprefix("exempt/") if key.startswith("exempt/") else None
        if exempt is not None:
            return [one for one in self.runs.all if name_of(one) == exempt and not self.key_of(one)]
        return list(self._by_key.get(key, ()))

    @cached_property
    def _by_key(self) -> dict[str, list[Object]]:
        """By stage, its TaskRuns in the order of their names."""
        found: dict[str, list[Object]] = {}
        for one in sorted(self.runs.all, key=name_of):
            found.setdefault(self.key_of(one), []).append(one)
        return found

    def keeps(self, run: Object) -> bool:
        """Nobody would make this TaskRun anew."""
        task = self.runs.tasks.get(self.runs.path_of(run)) if not self.runs.is_task else None
        return task is None or task.matrix

    # stages

    def stages(self) -> Iterator[Stage]:
        if self.runs.is_task:
            yield self._alone()
            return
        yield from self._exempt()
        if self.unit == "workflow":
            yield self._whole()
            return
        document = resolved(self.main)
        self.static = {one.name: one for one in shapes_of(self.runs.library, document)}
        for task in self.runs.tasks.values():
            if task.exempt:
                continue
            if self.unit == "task":
                yield from self._each(task)
            else:
                yield self._stage(task)
        for path, found in self.runs.task_runs.items():
            if path not in self.runs.tasks:
                for one in found:
                    # Perhaps a task of `finally` that its run has not told of yet: nothing is queued for it before its pod has waited a moment.
                    stage = self._one(one, "")
                    yield replace(stage, known=False, unknown="") if stage.state == "open" else stage

    def _exempt(self) -> Iterator[Stage]:
        """What never waits, and was held at birth: it asks for nothing, so it is let go at once."""
        for one in self.runs.all:
            if not self.key_of(one) and is_pending(one) and not result_of(one):
                yield Stage(f"exempt/{name_of(one)}", name_of(one), "held")

    def _alone(self) -> Stage:
        done = result_of(self.main)
        state: State = "done" if done else "held" if is_pending(self.main) else "open"
        shape = next(iter(shapes_of(self.runs.library, resolved(self.main))))
        key = name_of(self.main)
        return Stage(
            key,
            key,
            state,
            (_shape(shape, 1),),
            not shape.open,
            finished=(1 if done else 0,),
            outcome=_outcome(done),
            unknown=_unknown(shape, 1),
        )

    def _one(self, run: Object, queue: str) -> Stage:
        """A TaskRun that is a stage of its own."""
        shape = self._shape_of(run)
        done = result_of(run)
        state: State = "done" if done else "held" if is_pending(run) and not is_deleted(run) else "open"
        key = ".".join(self.runs.path_of(run)) if self.unit != "task" else name_of(run)
        return Stage(
            key,
            name_of(run),
            state,
            (_shape(shape, 1),),
            not shape.open,
            queue=queue,
            finished=(1 if done else 0,),
            outcome=_outcome(done),
            unknown=_unknown(shape, 1),
        )

    def _each(self, task: PipelineRunTask) -> Iterator[Stage]:
        """By task: each TaskRun, and those that will come if their number is known."""
        there = {name_of(one): one for one in self.runs.task_runs.get(task.path, ())}
        for one in there.values():
            yield self._one(one, task.queue)
        shape = self.static.get(task.key)
        if shape is None or not shape.count or self.runs.is_passed(task) or (task.matrix and there):
            return
        for name in self.runs.expected(task, shape.count):
            if name not in there:
                state: State = "open" if name in self.runs.listed(task) else "ahead"
                yield Stage(name, name, state, (_shape(shape, 1),), not shape.open, queue=task.queue, finished=(0,))

    def _stage(self, task: PipelineRunTask) -> Stage:
        there = self.runs.task_runs.get(task.path, [])
        shape = self._shape_of(there[0]) if there else self.static.get(task.key)
        ends = [result_of(one) for one in there]
        state = self._state(task, there, ends)
        count = self._count(task, there)
        known = shape is not None and not shape.open and count is not None
        shapes = (_shape(shape, count),) if shape is not None and count is not None else ()
        return Stage(
            task.key,
            task.key,
            state,
            shapes,
            known,
            gang=not task.matrix,
            queue=task.queue,
            finished=(sum(map(bool, ends)),) if shapes else (),
            outcome=_outcome("False" if "False" in ends else "True") if state == "done" else "",
            next=tuple(one.key for one in self.runs.tasks.values() if one.after == {task.path} and not one.exempt),
            unknown=_unknown(shape, count),
            by_count=True,
        )

    def _state(self, task: PipelineRunTask, there: Sequence[Object], ends: Sequence[str]) -> State:
        if not there:
            if self.runs.is_passed(task):
                return "done"
            # One that was deleted is made anew in a moment.
            return "open" if not task.matrix and self.runs.listed(task) else "ahead"
        if any(not is_pending(one) or is_deleted(one) for one, end in zip(there, ends, strict=True) if not end):
            return "open"
        if not self._complete(task, there):
            return "ahead"
        return "done" if all(ends) else "held"

    def _complete(self, task: PipelineRunTask, there: Sequence[Object]) -> bool:
        """Are all TaskRuns of a matrix there? They are made one by one, and then named in the status all together."""
        shape = self.static.get(task.key)
        listed, names = self.runs.listed(task), {name_of(one) for one in there}
        named = bool(listed) and names.issuperset(listed)
        return not task.matrix or named or (shape is not None and shape.count == len(names))

    def _count(self, task: PipelineRunTask, there: Sequence[Object]) -> int | None:
        if there and self._complete(task, there):
            return len(there)
        static = self.static.get(task.key)
        return static.count if static is not None else None

    def _shape_of(self, run: Object) -> TaskShape:
        """Of a TaskRun that exists: it has all that the run adds to the task."""
        return next(iter(shapes_of(self.runs.library, resolved(run))))

    # the run as a whole

    def _whole(self) -> Stage:
        going = [one for one in self.runs.all if self.key_of(one) and not result_of(one)]
        state: State = "open"
        if result_of(self.main) or part(self.main, "status").get("finallyStartTime"):
            state = "done"
        elif is_pending(self.main) or (going and all(is_pending(one) and not is_deleted(one) for one in going)):
            state = "held"
        document = Document({**self.main, "kind": "PipelineRun"}, file="PipelineRun")
        held = _declared(document)
        tolerations = declared(document, TOLERATION) or ()
        selector = declared(document, NODE_SELECTOR) or {}
        shape = Shape(1, held, {str(key): str(text) for key, text in selector.items()}, tuple(tolerations))
        return Stage(
            WHOLE,
            name_of(self.main),
            state,
            (shape,),
            outcome=_outcome(result_of(self.main)),
            vector=True,
            needed=(self._needed(held, state),),
        )

    def _needed(self, held: Mapping[str, int], state: State) -> Mapping[str, int]:
        """The most that the tasks which are not over will hold."""
        if state == "done":
            return {}
        document = resolved(self.main)
        spec = self.runs.pipeline
        over = {path[0] for path in self.runs.tasks} - {
            path[0] for path, task in self.runs.tasks.items() if not task.exempt and not self._is_over(task)
        }
        left = {**spec, "tasks": [one for one in rows(spec, "tasks") if str(one.get("name")) not in over]}
        rest = {**{key: value for key, value in document.spec.items() if key != "pipelineRef"}, "pipelineSpec": left}
        peak, places = peak_of(self.runs.library, Document({**document.data, "spec": rest}))
        if places or not spec:
            return held
        return {name: min(amount, peak.get(name, 0)) for name, amount in held.items()}

    def _is_over(self, task: PipelineRunTask) -> bool:
        there = self.runs.task_runs.get(task.path, [])
        return all(result_of(one) for one in there) if there else self.runs.is_passed(task)


def _unknown(shape: TaskShape | None, count: int | None) -> str:
    """Why a task cannot be sized."""
    if shape is None:
        return "its task is not known"
    if shape.open:
        return f"{', '.join(shape.open)} is not known"
    return "" if count is not None else "only the run knows how many TaskRuns its matrix has"


def _declared(document: Document) -> dict[str, int]:
    """What the run holds at most, as its annotations say: computed when it was created, if the user said nothing."""
    found = declared(document, MAX_RESOURCES)
    if found is None:
        listed = annotations_of(document.data).items()
        found = {name.removeprefix(REQUESTS): text for name, text in listed if name.startswith(REQUESTS)}
    return amounts(found)


def _shape(shape: TaskShape, count: int) -> Shape:
    return Shape(count, shape.resources, shape.node_selector, shape.tolerations, shape.affinity, shape.runtime_class)


def _outcome(status: str) -> Outcome:
    return "Succeeded" if status == "True" else "Failed" if status == "False" else ""


def _let_go(run: Object) -> Write:
    """Only as it was seen: a run that was cancelled meanwhile stays so."""
    resource = PIPELINE_RUNS if kind_of(run) == "PipelineRun" else TASK_RUNS
    version = part(run, "metadata").get("resourceVersion")
    body = {"metadata": {"resourceVersion": version}, "spec": {"status": None}}
    return Write("patch", resource, namespace_of(run), name_of(run), body, why="its stage is admitted")


def _delete(run: Object) -> Write:
    """A TaskRun that has ended meanwhile is spared."""
    seen = {"uid": uid_of(run), "resourceVersion": part(run, "metadata").get("resourceVersion")}
    body = {"propagationPolicy": "Foreground", "preconditions": seen}
    return Write("delete", TASK_RUNS, namespace_of(run), name_of(run), body, why="its stage is stopped")


def _mark(pod: Object) -> Write:
    """Refused if the pod has changed: one that has succeeded meanwhile goes on to count, though its TaskRun does not say so yet. The pod is not
    deleted before its TaskRun: if nobody came to delete that, the exit code of the pod would count as a failure."""
    seen = {"resourceVersion": part(pod, "metadata").get("resourceVersion"), "annotations": {STOPPING: "TaskRun"}}
    return Write("patch", PODS, namespace_of(pod), name_of(pod), {"metadata": seen}, why="its stage is stopped")


def _remove(pod: Object) -> Write:
    """At once: a pod that ends by itself with an exit code would count as failed. As it was seen: one that has succeeded meanwhile stays."""
    seen = {"uid": uid_of(pod), "resourceVersion": part(pod, "metadata").get("resourceVersion")}
    body = {"gracePeriodSeconds": 0, "preconditions": seen}
    return Write("delete", PODS, namespace_of(pod), name_of(pod), body, why="its stage is stopped")


def _end(pod: Object) -> Write:
    """Without waiting for the garbage collector, which may take seconds."""
    body = {"preconditions": {"uid": uid_of(pod)}}
    return Write("delete", PODS, namespace_of(pod), name_of(pod), body, why="its stage is stopped")


ENGINE = Tekton()
