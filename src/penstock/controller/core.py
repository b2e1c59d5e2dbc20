"""What is seen of one workflow -> what to write. Called by the shell for every change of a workflow, of what it owns, and of its Workloads.

Pure and without a memory: the same observation gives the same plan, so a plan that is half carried out, or carried out twice, does no harm. All
that must be known later is in the cluster. The order is that of Kueue's own job controllers, with "stage" for "job":

    over        what the workflow holds is given back
    strays      pods that run without quota are stopped
    stages      ahead: keep a place · held: queue, then let go · open: ready, give back, answer evictions · done: finish
    pods        those that wait and are covered run; for those that nothing covers a Workload is made
    evictions   those that no stage has answered
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from penstock.controller import evictions, names, wording
from penstock.controller import workload as kueue
from penstock.controller.coverage import (
    Assumed,
    Coverage,
    Grant,
    is_active,
    is_gated,
    opening,
    released,
    requests_of,
)
from penstock.controller.engine import Engine, Observed, Opening, Shape, Stage, Task, Unit, View
from penstock.controller.objects import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    PODS,
    PRIORITIES,
    WORKLOADS,
    Note,
    Object,
    ReconcilePlan,
    Write,
    annotations_of,
    condition,
    is_deleted,
    labels_of,
    name_of,
    namespace_of,
    part,
    rows,
)
from penstock.controller.readiness import readiness
from penstock.controller.sizing import ByTask, all_came, created_at, ended_at, over_for_good, queues_of, shape_of
from penstock.controller.workload import OwnWorkload

MOST_PLACES = 100
"""Workloads that keep a place for stages which are not reached, in one workflow."""
MOST_TASKS = 500
"""Tasks for which one Workload is sized by the pods that wait."""
PATIENCE = 60.0
"""Seconds that a loop waits before a place is made for what may not be admitted with the first part of it."""
SETTLED = 2.0
"""Seconds without a new pod after which the pods of a stage are taken as complete. Times in the cluster are whole seconds."""
CAP = "penstock/workflows"
"""A resource of which every running workflow holds one, if its ClusterQueue covers it."""
RUN = "(run)"
"""The key of the Workload that holds it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything about one workflow at one moment."""

    engine: Engine
    observed: Observed
    unit: Unit
    workloads: Sequence[Object]
    """Those with its uid."""
    assumed: Sequence[Assumed] = ()


def reconcile(seen: Seen) -> ReconcilePlan:
    """What to write now."""
    if is_deleted(seen.observed.main):
        workloads, pods, coverage = _counts(seen)
        return ReconcilePlan(tuple(evictions.left(workloads, coverage, pods, seen.observed.now)))
    view = seen.engine.view(seen.observed, seen.unit)
    return unreadable(seen, view.problem, view.fix) if view.problem else _Turn(seen, view).run()


def unreadable(seen: Seen, problem: str, fix: str = "") -> ReconcilePlan:
    """Nothing of it is let go. An eviction is answered all the same, without the engine."""
    workloads, pods, coverage = _counts(seen)
    waited = [one for one in workloads if evictions.is_open(one)]
    writes = [write for one in waited for write in evictions.answered(one, coverage, pods, seen.observed.now)]
    return ReconcilePlan(tuple(writes), (Note("Refused", wording.unread(problem, fix), warning=True),))


def _counts(seen: Seen) -> tuple[list[OwnWorkload], Sequence[Object], Coverage]:
    """What runs on what, without the engine: each pod says what it counts against."""
    workloads, pods = [OwnWorkload(one) for one in seen.workloads], seen.observed.pods
    told = [(Task("", name_of(pod)), pod) for pod in pods]
    return workloads, pods, Coverage(workloads, told, seen.observed.lookup, seen.assumed)


def may_run(seen: Seen) -> bool:
    """Where workflows are counted, only one that holds its part may have pods."""
    if CAP not in covered_resources(seen.observed):
        return True
    return any(one.stage == RUN and one.runs for one in map(OwnWorkload, seen.workloads))


def covered_resources(observed: Observed) -> frozenset[str]:
    """What the ClusterQueue behind the workflow's queue covers."""
    main, lookup = observed.main, observed.lookup
    local = lookup.get(LOCAL_QUEUES, namespace_of(main), kueue.queue_of(main))
    cluster = lookup.get(CLUSTER_QUEUES, "", str(part(local or {}, "spec").get("clusterQueue", "")))
    groups = rows(cluster or {}, "spec", "resourceGroups")
    return frozenset(str(name) for group in groups for name in group.get("coveredResources") or ())


class _Turn:
    """One look at one workflow."""

    def __init__(self, seen: Seen, view: View) -> None:
        self.seen, self.view = seen, view
        self.engine, self.observed, self.unit = seen.engine, seen.observed, seen.unit
        self.main = seen.observed.main
        self.now = seen.observed.now
        self.queue = kueue.queue_of(self.main)
        self.writes: list[Write] = []
        self.notes: list[Note] = []
        self.again: float | None = None
        self.placed = False
        self.attended: set[str] = set()
        """Workloads whose eviction is being answered, or that end."""
        self.giving: list[tuple[OwnWorkload, dict[str, int]]] = []
        """What is over, by pod set: given back after the pods of this turn have taken what they need."""
        self.workloads = [OwnWorkload(one) for one in seen.workloads]
        self.taken = {one.name for one in self.workloads}
        self.here: dict[str, list[OwnWorkload]] = {}
        """By stage."""
        for each in self.workloads:
            self.here.setdefault(each.stage, []).append(each)
        self.pods = [(seen.engine.task_of(pod, seen.observed, seen.unit), pod) for pod in seen.observed.pods]
        self.tasks = ByTask(self.pods)
        self.stage_of_pod = {name_of(pod): task.stage for task, pod in self.pods}
        self.coverage = Coverage(self.workloads, self.pods, seen.observed.lookup, seen.assumed)
        self.covered = covered_resources(seen.observed)
        self.stages: list[Stage] = []
        self.doubts: dict[str, Write] = {}

    def run(self) -> ReconcilePlan:
        if self.view.over:
            self._over()
            self._exempt_pods()
            self._answer_the_rest(())
            return self._plan()
        stages = self.stages = self._stages()
        stopped = self._go_on_stopping() | self._stop_strays(stages)
        free = self._cap()
        for stage in stages:
            if stage.key not in stopped:
                first = len(self.writes)
                if free or not self._wait_for_the_run(stage):
                    self._stage(stage)
                _stamp(self.writes, stage.key, first)
        self._leftovers({stage.key for stage in stages})
        self._let_pods_go({stage.key: stage for stage in stages}, free)
        self._give_back()
        self._answer_the_rest(stopped)
        return self._plan()

    def _answer_the_rest(self, stopped: Collection[str]) -> None:
        """Evictions of what no engine stops: a daemon that outlives its stage, pods of a stage that was set back or is gone."""
        pods = [pod for _, pod in self.pods]
        for one in self.workloads:
            if evictions.is_open(one) and one.name not in self.attended and one.stage not in stopped:
                writes = evictions.answered(one, self.coverage, pods, self.now)
                if self.coverage.counted(one) and writes:
                    why = "its quota is taken back, and its engine cannot start them again"
                    self._note(
                        "Stopped",
                        f"stage {wording.name(self.stages, one.stage)}: pods are deleted; {why}",
                        warning=True,
                    )
                self.writes += writes
                self._look_again(1.0)

    def _plan(self) -> ReconcilePlan:
        stages = {one.key: one.state for one in self.view.stages}
        over = bool(self.view.over) and not self.writes and not any(one.live for one in self.workloads)
        writes, doubts = tuple(_named(self, one) for one in self.writes), tuple(self.doubts.values())
        return ReconcilePlan(writes, tuple(self.notes), self.again, stages, over, doubts)

    def _look_again(self, seconds: float) -> None:
        self.again = seconds if self.again is None else min(self.again, seconds)

    def _note(self, reason: str, message: str, warning: bool = False) -> None:
        self.notes.append(Note(reason, message, warning))

    # what there is

    def _stages(self) -> list[Stage]:
        """Those of the view, and of pods that belong to none of them. Shapes that ask for nothing are left out unless pods are counted."""
        found = {one.key: self._asking(one) for one in self.view.stages}
        for task, pod in self.pods:
            if task.stage and task.stage not in found and is_active(pod):
                found[task.stage] = Stage(task.stage, task.stage, "open", known=False)
        return list(found.values())

    def _asking(self, stage: Stage) -> Stage:
        if "pods" in self.covered or all(any(one.requests.values()) for one in stage.shapes):
            return stage
        finished = stage.finished or (0,) * len(stage.shapes)
        kept = [(one, done) for one, done in zip(stage.shapes, finished, strict=True) if any(one.requests.values())]
        return replace(stage, shapes=tuple(one for one, _ in kept), finished=tuple(done for _, done in kept))

    def _needs_quota(self, pod: Object) -> bool:
        return "pods" in self.covered or any(requests_of(pod).values())

    def _declared(self, key: str) -> OwnWorkload | None:
        """The Workload of the stage as a whole; one that is not over before one that is, and before a place."""
        here = (one for one in self.here.get(key, ()) if one.tasks is None)
        return min(here, key=lambda one: (not one.live, one.place), default=None)

    def _priority(self) -> tuple[str, int] | None:
        """The class that the workflow names, with its value. Nobody else looks it up. The class is left out if there is none of that name."""
        name = str(labels_of(self.main).get(names.PRIORITY) or "")
        if not name:
            return None
        found = self.observed.lookup.get(PRIORITIES, "", name)
        if found is None:
            self._note("Refused", wording.no_class(name), warning=True)
            return None
        return name, int(found.get("value") or 0)

    def _queue_of(self, stage: Stage) -> str:
        return stage.queue or self.queue

    # writing Workloads

    def _create(self, stage: Stage, *, place: bool = False, tasks: Sequence[str] | None = None) -> None:
        queue = self._queue_of(stage)
        self.writes.append(
            kueue.build(self.main, stage, queue, self._priority(), place=place, tasks=tasks, taken=self.taken)
        )
        if not place:
            self._say_queued(stage)

    def _say_queued(self, stage: Stage) -> None:
        queue = self._queue_of(stage)
        self._say_queue(queue)
        self._note("Queued", f"stage {stage.name} waits in queue {queue}{wording.behind(self.view, stage)}")

    def _say_queue(self, queue: str) -> None:
        if self.observed.lookup.get(LOCAL_QUEUES, namespace_of(self.main), queue) is None:
            where = namespace_of(self.main)
            fix = (
                "Create that LocalQueue, or name another one in the label kueue.x-k8s.io/queue-name of a new workflow."
            )
            self._note("NoQueue", f"there is no LocalQueue {queue!r} in namespace {where}. {fix}", warning=True)

    # over, strays, cap

    def _over(self) -> None:
        for one in self.workloads:
            if one.live:
                self._end(one, self.view.over, "the workflow is over")

    def _end(self, workload: OwnWorkload, outcome: str, message: str) -> None:
        """Gives back what is held, when nothing runs on it any more. From then on no pod gets any of it."""
        if self.coverage.counted(workload) and not workload.place:
            self._look_again(1.0)
            return
        self.attended.add(workload.name)
        self.coverage.forget(workload)
        if workload.place:
            self.writes.append(kueue.delete(workload, "its stage was not needed"))
        else:
            self.writes.append(kueue.finish(workload, outcome, message, self.now))

    def _go_on_stopping(self) -> set[str]:
        """A stop that is half done is carried through, whatever has become of its reason. The answer to an eviction comes in the next turn."""
        if self.view.stopping is None:
            return set()
        key, tasks = self.view.stopping
        self.writes += self.engine.stop(self.observed, self.unit, key, tasks) or ()
        _stamp(self.writes, key)
        self._look_again(0.5)
        return {key}

    def _stop_strays(self, stages: Sequence[Stage]) -> set[str]:
        """Pods that run without quota: somebody deleted the Workload, or let them go. Returns the stages that are being stopped."""
        tasks: dict[str, list[str]] = {}
        gone: dict[str, str] = {}
        for task, pod in self.coverage.strays:
            tasks.setdefault(task.stage, []).append(task.name)
            name = str(annotations_of(pod).get(names.POD_SET) or "").partition("/")[0]
            if name:
                gone[task.stage] = name
                self.doubts[name] = Write("patch", WORKLOADS, namespace_of(self.main), name)
        if self.view.stopping is not None:
            tasks.pop(self.view.stopping[0], None)
        for key, some in tasks.items():
            writes = self.engine.stop(self.observed, self.unit, key, sorted(set(some)))
            if writes:
                self._note("Stopped", wording.stopped(wording.name(stages, key), gone.get(key, "")), warning=True)
                self.writes += [replace(one, stage=key) for one in writes]
            self._look_again(1.0)
        return set(tasks)

    def _cap(self) -> bool:
        """Where workflows are counted, a run waits until it may run at all."""
        if CAP not in self.covered or self.queue == "":
            return True
        stage = Stage(RUN, "the run", "held", (Shape(1, {CAP: 1000}),))
        there = self._declared(RUN)
        if there is None:
            self._create(stage)
            return False
        if there.finished:
            self.writes.append(kueue.delete(there, "the run goes on"))
            return False
        if there.evicted and there.reserved:
            self.attended.add(there.name)
            if any(one.live and one.reserved for one in self.workloads if one is not there):
                self._look_again(1.0)
            else:
                self.writes.append(kueue.respond(there, self.now))
        elif there.runs and not there.ready:
            self.writes.append(kueue.pods_ready(there, self.now))
        return there.runs

    def _wait_for_the_run(self, stage: Stage) -> bool:
        """While the run may not run, its stages hold nothing but a place: what they held, another run may need to end. False: it is over anyway."""
        if stage.state == "done":
            return False
        here = [one for one in self.here.get(stage.key, ()) if one.live]
        if stage.state == "open" or any(self.coverage.counted(one) for one in here):
            writes = self.engine.stop(self.observed, self.unit, stage.key, ())
            if writes is not None:
                self.attended |= {one.name for one in here}
                self.writes += writes
                self._look_again(1.0)
                return True
        if not here:
            self._place(stage)
        for one in here:
            if not one.place and not self.coverage.counted(one):
                self.attended.add(one.name)
                self.writes.append(kueue.delete(one, "the run waits"))
        return True

    # one stage

    def _stage(self, stage: Stage) -> None:
        there = self._declared(stage.key)
        if stage.state == "done":
            if self._successor(stage) is not None and there is not None and there.runs:
                self._look_again(1.0)
                return
            for one in self.here.get(stage.key, ()):
                if one.live:
                    self._end(one, stage.outcome or "Succeeded", f"stage {stage.name} is over")
            return
        if stage.state == "ahead":
            if there is None:
                self._place(stage)
            elif there is not None and there.live and there.reserved and not self.coverage.counted(there):
                # Somebody has set the run back. What it holds, the stage before it may need.
                self.writes.append(kueue.delete(there, "its stage is not reached any more"))
            return
        if there is not None and there.evicted and there.reserved and there.live:
            self._evicted(stage, there)
            return
        if stage.unknown and not stage.known:
            self._note("UnknownSize", wording.unknown(stage), warning=True)
        if stage.state == "held":
            self._held(stage, there)
        else:
            self._open(stage, there)

    def _place(self, stage: Stage) -> None:
        """Keeps one in the queue. One in each turn: a stage that is admitted meanwhile does not wait until there is a place for all that follow."""
        places = sum(one.place for one in self.workloads)
        if not (kueue.asks(stage) or not stage.known) or places >= MOST_PLACES:
            return
        if not self.placed:
            self._create(stage, place=True)
            self.placed = True
        else:
            self._look_again(0.1)

    def _held(self, stage: Stage, there: OwnWorkload | None) -> None:
        """None of its pods runs. It is let go when its Workload is admitted; at once if it asks for nothing, or its size is not known."""
        if not stage.known or not self._asks(stage):
            if there is not None and there.live and (stage.known or not there.place):
                self._end(there, "Succeeded", f"stage {stage.name} needs no quota")
            if not self.view.paused:
                self.writes += self.engine.open(self.observed, self.unit, stage, Opening(None, (), {}, ()))
            return
        if self._inherits(stage, there):
            return
        there = self._queued(stage, there)
        if there is not None and there.runs and not self.view.paused:
            writes = self.engine.open(self.observed, self.unit, stage, opening(self.coverage, there))
            if writes:
                self._note(
                    "Admitted",
                    f"stage {stage.name} is admitted{wording.flavors(there)}{wording.after(self.view, self.workloads, stage)}",
                )
            self.writes += writes

    def _successor(self, stage: Stage) -> Stage | None:
        """By `reuse`: the stage that will take over what this one holds, because it follows and asks for the same."""
        if self.unit != "reuse":
            return None
        later = [one for one in self.stages if one.key in stage.next and one.state in ("ahead", "held") and one.known]
        alike = (one for one in later if self._queue_of(one) == self._queue_of(stage) and kueue.same_needs(one, stage))
        return next(alike, None)

    def _inherits(self, stage: Stage, there: OwnWorkload | None) -> bool:
        """Takes over the reservation of a stage before it that is over. Its own place is not needed then."""
        if there is not None and not there.place:
            return False
        for before in self.stages:
            successor = self._successor(before) if before.state == "done" else None
            held = self._declared(before.key) if successor is not None and successor.key == stage.key else None
            if held is not None and held.runs and not self.coverage.counted(held):
                self.writes += [kueue.delete(there, "its stage takes over a reservation")] if there else []
                self.writes.append(replace(kueue.hand_over(held, stage), follows=there is not None))
                self._note("Admitted", f"stage {stage.name} takes over the reservation of stage {before.name}")
                return True
        return False

    def _queued(self, stage: Stage, there: OwnWorkload | None) -> OwnWorkload | None:
        """A Workload waits for the stage, as large as the stage is now. None if it has to be made first."""
        if there is None:
            self._create(stage)
            return None
        if there.deleted:
            return None
        if there.finished:
            self.writes.append(kueue.delete(there, "its stage is not over"))
            return None
        if there.place:
            self.writes.append(kueue.activate(there, stage, self._queue_of(stage)))
            if all(one.place for one in self.workloads):
                self._say_queued(stage)  # the first one: of the others it is told when they are admitted
            else:
                self._say_queue(self._queue_of(stage))
            return None
        self._keep_rest(stage, there)
        if not there.reserved:
            changed = kueue.resize(there, stage, self._queue_of(stage), self._priority())
            if changed is not None:
                self.writes.append(changed)
            self.notes += wording.never_fits(stage, there)
        return there

    def _keep_rest(self, stage: Stage, there: OwnWorkload) -> None:
        """Of a loop that waits a part may be admitted, and the rest has to queue again: it keeps its place from now on. Not needed if all is admitted."""
        others = [one for one in self.here.get(stage.key, ()) if one.live and one is not there]
        if there.runs and not there.in_part:
            self.writes += [kueue.delete(one, "all of its stage is admitted") for one in others if one.place]
        elif not there.reserved and not others and there.may_start_in_part and not stage.by_count:
            left = PATIENCE - (self.now - created_at(there.obj))
            if left > 0:
                self._look_again(left)
            else:
                self._place(replace(stage, name=f"{names.REST}{stage.name}"))

    def _asks(self, stage: Stage) -> bool:
        return kueue.asks(stage) or ("pods" in self.covered and any(one.count for one in stage.shapes))

    def _open(self, stage: Stage, there: OwnWorkload | None) -> None:
        """Let go. A Workload holds what its pods use; a stage that nobody queued (somebody opened its gate) is queued now, and its pods wait.
        What comes to an open stage later, or was more than was admitted, is let go too."""
        more = not self.view.paused
        if not stage.known or not self._asks(stage):
            if more:
                self.writes += self.engine.open(self.observed, self.unit, stage, Opening(None, (), {}, ()))
            return
        if self._sized_by_pods(stage.key, there):
            if there is not None and there.live:
                self._end(there, "Succeeded", "its pods ask for more than was declared")
            return
        there = self._queued(stage, there)
        if there is None or not there.runs:
            return
        if more:
            self.writes += self.engine.open(self.observed, self.unit, stage, opening(self.coverage, there))
        here = self.tasks.in_stage(stage.key)
        finished = 0 if stage.vector else sum(stage.finished)
        if self._tells_ready(there, here, finished, not stage.gang) and self._successor(stage) is None:
            self.giving.append((there, kueue.ended(stage)))

    def _sized_by_pods(self, key: str, there: OwnWorkload | None) -> bool:
        """All its pods have Workloads of their own, because they ask for more than was declared: the declared one is not needed."""
        sized = [one.tasks for one in self.here.get(key, ()) if one.live and one.tasks is not None]
        if not sized or (there is not None and self.coverage.counted(there)):
            return False
        tasks = {name for name, pod in self.tasks.in_stage(key) if is_active(pod)}
        return bool(tasks) and tasks <= frozenset().union(*sized)

    def _tells_ready(
        self, there: OwnWorkload, pods: Sequence[tuple[str, Object]], finished: int, independent: bool
    ) -> bool:
        """Says whether its pods run, if that has changed. Else True if some did, so what is over may be given back."""
        found = readiness(there, pods, finished, independent, self.now)
        if found.write is not None:
            self.writes.append(found.write)
        elif found.again is not None:
            self._look_again(max(0.5, found.again))
        return found.started and found.write is None

    def _give_back(self) -> None:
        for there, finished in self.giving:
            written = kueue.reclaim(there, self.coverage.spare(there, finished))
            if written is not None:
                self.writes.append(written)
            if written is not None or rows(there.obj, "status", "reclaimablePods"):
                # Said once, as long as it stands in every plan.
                self._note(
                    "Released", f"stage {wording.name(self.stages, there.stage)} gives back what its ended tasks held"
                )

    def _evicted(self, stage: Stage, there: OwnWorkload) -> None:
        """Its pods are stopped, what is finished is kept; when nothing runs any more, the quota goes back and the stage into the queue."""
        why = condition(there.obj, "Evicted")
        self._note("Evicted", f"stage {stage.name}: {why.get('message') or why.get('reason')}", warning=True)
        self.attended.add(there.name)
        tasks = sorted(self.tasks.left(there))
        gone = there.tasks is not None and not tasks
        writes = None if gone else self.engine.stop(self.observed, self.unit, stage.key, tasks)
        if writes is None and not self.coverage.counted(there):
            self.writes.append(kueue.respond(there, self.now))
        else:
            self.writes += writes or ()
            self._look_again(1.0)

    # Workloads that were sized by pods, and those of stages that are gone

    def _leftovers(self, known: set[str]) -> None:
        for one in self.workloads:
            if not one.live or one.name in self.attended:
                continue
            if one.stage in (RUN, self.view.stopping and self.view.stopping[0]):
                continue
            if one.stage not in known:
                self._end(one, "Succeeded", "its stage is gone")
            elif one.tasks is not None:
                self._sized(one)

    def _sized(self, there: OwnWorkload) -> None:
        stage = next(one for one in self.stages if one.key == there.stage)
        if stage.state == "done":
            return
        if there.evicted and there.reserved:
            self._evicted(stage, there)
            return
        mine = self.tasks.left(there)
        here = self.tasks.of(there.stage, mine)
        waits = {name for name, pod in here if is_active(pod)}
        if waits or (mine and there.evicted and not there.runs):
            if there.runs and self._tells_ready(there, here, len(mine - waits), True):
                ended, soon = over_for_good(there.name, here, self.now - SETTLED)
                self.giving.append((there, ended))
                if soon:
                    self._look_again(SETTLED)
            elif not there.reserved:
                self.notes += wording.never_fits(stage, there)
            return
        over = max((ended_at(pod) for _, pod in here), default=0.0)
        if self.now - over < SETTLED:
            self._look_again(SETTLED)  # A retry may follow.
        elif there.reserved:
            self._end(there, "Succeeded", "its tasks are over")
        else:
            self.writes.append(kueue.delete(there, "its pods are gone"))

    # pods

    def _exempt_pods(self) -> None:
        for task, pod in self.pods:
            if is_gated(pod) and is_active(pod) and not is_deleted(pod) and not task.stage:
                self._release(pod, Grant(""))

    def _let_pods_go(self, stages: dict[str, Stage], free: bool) -> None:
        """Each pod that waits: covered, or needs nothing, or is exempt -> it runs. What nothing covers is sized together, by stage."""
        uncovered: dict[str, list[tuple[Task, Object]]] = {}
        for task, pod in sorted(self.pods, key=lambda one: (created_at(one[1]), name_of(one[1]))):
            if not is_gated(pod) or not is_active(pod) or is_deleted(pod):
                continue
            if not task.stage or (free and not self._needs_quota(pod)):
                self._release(pod, Grant(""))
                continue
            if not free:
                continue
            answer = self.coverage.decide(task, pod)
            if isinstance(answer, Grant):
                self._release(pod, answer)
            elif answer == "uncovered":
                uncovered.setdefault(task.stage, []).append((task, pod))
        for key, pods in uncovered.items():
            by_queue, untold = queues_of(pods, self.queue, self._queue_of(stages[key]), self.now)
            if untold:
                self._look_again(0.5)
            for queue, some in by_queue.items():
                self._size(replace(stages[key], queue=queue), some)

    def _release(self, pod: Object, grant: Grant) -> None:
        body = released(pod, grant)
        body.setdefault("metadata", {})["resourceVersion"] = part(pod, "metadata").get("resourceVersion")
        self.writes.append(Write("patch", PODS, namespace_of(pod), name_of(pod), body, why="the pod may run"))

    def _size(self, stage: Stage, pods: Sequence[tuple[Task, Object]]) -> None:
        """A Workload for pods that nothing covers. Of a stage it waits until no more pods come; by task each has its own. The first takes over the place
        of its stage."""
        place = next((one for one in self.here.get(stage.key, ()) if one.place and one.live), None)
        there = self._declared(stage.key)
        if place is not None and place is there and stage.known and stage.state in ("held", "open"):
            self._look_again(0.5)  # It is for the stage as a whole.
            return
        # Of a loop that was admitted in part no more pods come when all are there.
        rest = there is not None and there.runs and there.in_part and all_came(stage, self.pods)
        youngest = max(created_at(pod) for _, pod in pods)
        alone = self.unit == "task"
        if not alone and not rest and self.now - youngest < SETTLED:
            self._look_again(SETTLED)
            return
        each = 1 if alone else MOST_TASKS
        for first in range(0, len(pods), each):
            some = pods[first : first + each]
            sized = replace(stage, shapes=tuple(shape_of(pod) for _, pod in some), vector=False)
            tasks = sorted({task.name for task, _ in some})
            same = (one for one in self.here.get(stage.key, ()) if one.tasks == frozenset(tasks))
            before = next(same, None)
            if before is not None:
                # Its tasks run again. Its name is taken until it is gone.
                self.writes += [kueue.delete(before, "its tasks run again")] if before.finished else []
                self._look_again(0.5)
            elif place is not None and place.name not in self.attended:
                self.attended.add(place.name)
                self.writes.append(kueue.activate(place, sized, self._queue_of(stage), tasks))
                self._say_queued(stage)
            else:
                self._create(sized, tasks=tasks)


def _stamp(writes: list[Write], stage: str, first: int = 0) -> None:
    """The writes from `first` on are for this stage."""
    writes[first:] = [replace(one, stage=one.stage or stage) for one in writes[first:]]


def _named(turn: _Turn, write: Write) -> Write:
    """With stage and Workload, for the log."""
    stage, workload = write.stage, write.workload
    if write.resource == PODS:
        stage = stage or turn.stage_of_pod.get(write.name, "")
        workload = str(annotations_of(write.body).get(names.POD_SET) or "").partition("/")[0]
    elif write.resource == WORKLOADS:
        here = next((one.stage for one in turn.workloads if one.name == write.name), "")
        stage, workload = str(annotations_of(write.body).get(names.STAGE) or here), write.name
    if stage and not workload:
        workload = next((one.name for one in turn.workloads if one.stage == stage and one.tasks is None), "")
    return replace(write, stage=stage, workload=workload)
