"""The input of a simulation: files -> jobs with their run times, and the queues. Called by `penstock queue simulate`.

Everything that is assumed is a remark, so that a guess is not taken for a measurement.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.admission.model import UNLIMITED, Object
from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import load_value, loads
from penstock.backends.base import AttemptSpec
from penstock.errors import Problem, UserError, nearest
from penstock.formats import registry
from penstock.graph import quantity
from penstock.graph.model import Suspend, Workflow
from penstock.graph.paths import step_of
from penstock.graph.quantity import PLAIN_RESOURCES, RESOURCE_NAME
from penstock.graph.stored import Stored, stored_in
from penstock.plan.expand import Planned
from penstock.plan.make import make
from penstock.service import parameters, stores, workflows
from penstock.service.amounts import GUESS, vector
from penstock.service.machine import GPU, machine
from penstock.service.queues import FILE, Row, is_applied, read_file, rows_of
from penstock.service.simulation.simulate import Seconds, SimulatedJob
from penstock.settings import Settings, read
from penstock.store.sql import Store

LONGEST = 1e9
MOST_RESULTS = 20_000
"""Tasks of a run up to which their results are read."""
_AS_REQUESTED = "recorded tasks ask for as much as the largest of their kind, and those of a kind with the same dependencies are one stage"
_AS_MEASURED = "recorded tasks ask for what each of them used, and a stage of unequal tasks is admitted as a whole"
LOOK_BACK = 10
"""Runs that are searched for the run time of a step: the last run may have reused its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something that the results depend on and that was not measured."""

    text: str
    minor: bool = False
    """Shown only with --verbose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSource:
    """The workflow of one file, and its run times."""

    file: str
    workflow: Workflow
    steps: tuple[str, ...]
    """Paths of the steps whose tasks take time: not those that call a workflow."""
    params: Mapping[str, Any] = field(default_factory=dict)
    runtimes: Mapping[str, float] = field(default_factory=dict)
    """Step path -> seconds, where they are known."""
    run: str = ""
    """The run that they are from."""
    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Task -> its outputs in the last run, where loops or conditions depend on results."""
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSetup:
    """The queues: either objects, or rows as a store has them."""

    name: str
    objects: Sequence[Object] = ()
    documents: Sequence[Row] = ()
    warnings: Sequence[Problem] = ()
    declared: bool = False
    """One queue of a size that the user gave: it is not this machine."""


# -- the workflows ----------------------------------------------------------------------------------------------------


def sources(
    files: Sequence[str],
    given: Sequence[str] = (),
    runtimes: Sequence[str] = (),
    guess: float = GUESS,
    measured: bool = False,
    settings: Settings | None = None,
) -> list[WorkflowSource]:
    """`given`: `key=value`, for every workflow that has the parameter. `runtimes`: `step=seconds`. `measured`: tasks of a
    recording ask for what each of them used, not for what the largest of their kind used. `settings`: where runs are recorded. Raises UserError."""
    made: dict[str, WorkflowSource | Workflow] = {}
    for file in files:
        if file not in made:
            made[file] = _recording(file, measured) or workflows.load(file)
    parameters.check_known([one for one in made.values() if isinstance(one, Workflow)], given)
    where = settings or read()
    found = {}
    for file, one in made.items():
        if isinstance(one, Workflow):
            one = written(file, one, parameters.parse(one, parameters.own_of(one, given)), where)
        found[file] = one
    timed = dict(zip(found, with_times(list(found.values()), runtimes, guess), strict=True))
    return [timed[file] for file in files]


def with_times(found: Sequence[WorkflowSource], runtimes: Sequence[str], guess: float) -> list[WorkflowSource]:
    """`runtimes`: `step=seconds`. Raises UserError."""
    chosen = _chosen(runtimes, found)
    return [_timed(one, chosen, guess) for one in found]


def _recording(file: str, measured: bool) -> WorkflowSource | None:
    """A recorded execution; None if it is something else."""
    path = Path(file)
    if path.suffix != ".json" or not path.is_file():
        return None
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None  # reading it as a workflow reports what is wrong
    return recorded(text, file, measured)


def recorded(text: str, file: str, measured: bool = False) -> WorkflowSource | None:
    """The text of a recorded execution; None if it is something else."""
    known = registry.trace_format(text)
    if known is None:
        return None
    trace = known.read(text, file, by_kind=not measured, grouped=True)
    asked = _AS_MEASURED if measured else _AS_REQUESTED
    name = trace.workflow.name
    notes = [Remark(text=f"{name}: {note.kind}: {note.text} ({note.count:,})", minor=True) for note in trace.notes]
    remarks = (Remark(text=asked), *notes)
    return WorkflowSource(
        file=file,
        workflow=trace.workflow,
        steps=tuple(trace.runtimes),
        runtimes=trace.runtimes,
        remarks=remarks,
    )


def written(file: str, workflow: Workflow, params: Mapping[str, Any], settings: Settings) -> WorkflowSource:
    """A workflow with the times and results of its last runs, as far as they are recorded. Raises UserError."""
    walked = [planned for planned, _ in make(workflow, params).level.walk()]
    steps = {
        planned.path: None
        for planned in walked
        if planned.inner is None and not planned.recursive and planned.runs != "no"
    }
    runtimes, run = _remembered(workflow.name, steps.keys(), settings)
    results, source = _results(workflow.name, settings) if any(map(_depends, walked)) else ({}, "")
    for planned in walked:
        if isinstance(planned.step.action, Suspend) and planned.step.action.duration is not None:
            runtimes[planned.path] = planned.step.action.duration
    return WorkflowSource(
        file=file,
        workflow=workflow,
        steps=tuple(steps),
        params=params,
        runtimes=runtimes,
        run=run,
        results=results,
        remarks=tuple(Remark(text=f"{workflow.name}: {text}") for text in _open(walked, source)),
    )


def _timed(one: WorkflowSource, chosen: Mapping[str, float], guess: float) -> WorkflowSource:
    """With the run times that the user gave, and remarks about the others."""
    given = {path: chosen.get(path, chosen.get(path.rpartition("/")[2])) for path in one.steps} if chosen else {}
    runtimes = {**one.runtimes, **{path: seconds for path, seconds in given.items() if seconds is not None}}
    missing = [path for path in one.steps if path not in runtimes]
    texts = [f"tasks take as long as in {one.run}"] if one.run else []
    if missing:
        which = f"the run time of {_some(missing)} is not recorded" if runtimes else "no run of it is recorded here"
        texts.append(f"{which}: {guess:g} s for each task, which is a guess")
    remarks = (*(Remark(text=f"{one.workflow.name}: {text}") for text in texts), *one.remarks)
    return dataclasses.replace(one, runtimes=runtimes, remarks=remarks)


def _remembered(workflow: str, wanted: Set[str], settings: Settings) -> tuple[dict[str, float], str]:
    """Step -> seconds in the last successful runs, and the newest run that they are from."""
    if not stores.exists(settings):
        return {}, ""
    found: dict[str, float] = {}
    first = ""
    with stores.open_existing(settings) as store:
        for run in store.runs.newest(limit=LOOK_BACK, state="succeeded", workflow=workflow):
            for step, seconds in took(store, run.number).items():
                if step in wanted and step not in found:
                    found[step] = seconds
                    first = first or run.id
            if wanted <= found.keys():
                break
    return found, first


def took(store: Store, run: int) -> dict[str, float]:
    """Step -> mean seconds of its tasks that this run computed."""
    times: dict[str, list[float]] = {}
    for event in store.runs.events(run, kinds=["task.succeeded"]):
        if "seconds" in event.data:
            times.setdefault(step_of(event.task), []).append(event.data["seconds"])
    return {step: math.fsum(some) / len(some) for step, some in times.items()}


def _depends(planned: Planned) -> bool:
    """Does it depend on results how often it runs, or whether?"""
    return planned.tasks.count is None or planned.runs == "maybe"


def _results(workflow: str, settings: Settings) -> tuple[dict[str, dict[str, Any]], str]:
    """Task -> its outputs in the last successful run, and that run. Files and values that are gone are left out: empty ones do."""
    if not stores.exists(settings):
        return {}, ""
    blobs = stores.blobs_of(settings)
    found: dict[str, dict[str, Any]] = {}
    with stores.open_existing(settings) as store:
        run = next(iter(store.runs.newest(limit=1, state="succeeded", workflow=workflow)), None)
        if run is None or sum(run.counts.values()) > MOST_RESULTS:
            return {}, ""
        events = list(store.runs.events(run.number, kinds=["task.succeeded"]))
        known = store.results.lookup([event.data["key"] for event in events if "key" in event.data])
        for event in events:
            if "key" in event.data:
                outputs = known[event.data["key"]].outputs if event.data["key"] in known else {}
            else:
                outputs = loads(json.dumps(event.data.get("outputs", {})))
            found[event.task] = {
                name: load_value(value, blobs, settings.home / "work") if isinstance(value, Stored) else value
                for name, value in outputs.items()
                if _is_there(value, blobs)
            }
    return found, run.id


def _is_there(value: Any, blobs: Blobs) -> bool:
    """Can it be given to a simulated step?"""
    if isinstance(value, Stored):
        return value.kind == "json" and blobs.has(value.digest)
    return not any(True for _ in stored_in(value))


def _open(walked: Iterable[Planned], run: str) -> list[str]:
    """What depends on results: they are those of the last run, or empty."""
    loops, maybe = [], []
    for planned in walked:
        if planned.tasks.count is None:
            loops.append(planned.path)
        elif planned.runs == "maybe":
            maybe.append(planned.path)
    found = []
    if run:
        many = [f"the number of tasks of {_some(loops)}"] if loops else []
        whether = [f"whether {_some(maybe)} runs"] if maybe else []
        return [f"{' and '.join(many + whether)} depends on results; they are those of {run}"] if loops or maybe else []
    if loops:
        found.append(f"the number of tasks of {_some(loops)} is known only at run time; here it has none")
    if maybe:
        found.append(f"whether {_some(maybe)} runs depends on results; here these are empty")
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")


# -- how long a task takes --------------------------------------------------------------------------------------------


def _chosen(given: Iterable[str], found: Iterable[WorkflowSource]) -> dict[str, float]:
    """`STEP=SECONDS` -> by step: its name, or its path where it is inside a called workflow."""
    known = {path for one in found for path in one.steps}
    known |= {path.rpartition("/")[2] for path in known}
    chosen: dict[str, float] = {}
    for item in given:
        name, equals, text = item.rpartition("=")
        if not equals:
            raise _no_runtime(item, "there is no '='", "write --runtime step=seconds")
        if name not in known:
            raise _no_runtime(
                item, f"there is no step {name!r}", f"name a step of the files.{nearest(name, sorted(known))}"
            )
        try:
            chosen[name] = float(text)
        except ValueError:
            chosen[name] = math.nan
        if not 0 <= chosen[name] <= LONGEST:
            raise _no_runtime(item, f"{text[:40]!r} is not a number of seconds", "write for example --runtime train=90")
    return chosen


def _no_runtime(item: str, why: str, fix: str) -> UserError:
    return UserError(Problem("P821", f"--runtime {item[:80]}: {why}", fix))


def run_time(one: WorkflowSource, guess: float = GUESS) -> Seconds:
    """The known run time of a task, or a guess that stays below its time limit."""
    known, results = one.runtimes, one.results

    def seconds(order: AttemptSpec) -> float | tuple[float, Mapping[str, Any]]:
        found = known.get(step_of(order.task))
        if found is None:
            found = guess if order.step.timeout is None else min(guess, order.step.timeout / 2)
        outputs = results.get(order.task)
        return found if outputs is None else (found, outputs)

    return seconds


def jobs(
    found: Sequence[WorkflowSource],
    *,
    guess: float = GUESS,
    every: float = 0.0,
    repeat: int = 1,
    queues: Sequence[str] = (),
    priorities: Sequence[str] = (),
) -> list[SimulatedJob]:
    """The whole list `repeat` times, one job after the other, with queues and priorities in rotation."""
    chosen = [(one, run_time(one, guess)) for one in found] * repeat
    return [
        SimulatedJob(
            workflow=one.workflow,
            seconds=seconds,
            at=number * every,
            params=one.params,
            queue=queues[number % len(queues)] if queues else None,
            priority=workflows.priority_from(priorities[number % len(priorities)]) if priorities else None,
        )
        for number, (one, seconds) in enumerate(chosen)
    ]


# -- the queues -------------------------------------------------------------------------------------------------------


def queue_setup(
    file: str | None, capacity: str | None, found: Sequence[WorkflowSource], settings: Settings | None = None
) -> QueueSetup:
    """The queues of a file, one of a given size, those of the store, or this machine. Raises UserError."""
    if capacity is not None:
        return sized_queue(capacity, found)
    if file is not None:
        return queues_in(read_file(file), file)
    where = settings or read()
    rows, warnings, amounts = _kept(where)
    if rows:
        return QueueSetup(name="the configured queues", documents=rows, warnings=warnings)
    return QueueSetup(name="this machine", objects=machine(amounts))


def sized_queue(capacity: str, found: Sequence[WorkflowSource]) -> QueueSetup:
    """One queue of this size: `cpu=64,memory=256Gi`. Raises UserError."""
    amounts = parse_amounts(capacity)
    # Resources that the user did not name are unlimited.
    every = dict.fromkeys(_asked_for(found), UNLIMITED) | amounts
    return QueueSetup(name=vector(amounts), objects=machine(every), declared=True)


def queues_in(text: str, file: str) -> QueueSetup:
    """Those of a manifest. Raises UserError."""
    rows, warnings = rows_of(None, (text, file))
    return QueueSetup(name=f"the queues of {file}", documents=rows, warnings=warnings)


def queues_of(store: Store, *more: tuple[str, str]) -> QueueSetup:
    """Those of a store, with what manifests (text, file) change; the machine, if there are none. Nothing is stored. Raises UserError."""
    rows = {(kind, name): text for kind, name, _, text in store.queues.queue_objects() if text is not None}
    changed, warnings = rows_of(store, *more) if more else ([], ())
    rows |= {(kind, name): document for kind, name, document in changed}
    if not rows:
        return QueueSetup(name="this machine", objects=machine())
    name = "the configured queues" + (f", changed by {more[0][1]}" if more else "")
    return QueueSetup(name=name, documents=[(kind, key, text) for (kind, key), text in rows.items()], warnings=warnings)


def _kept(settings: Settings) -> tuple[list[Row], tuple[Problem, ...], Mapping[str, int] | None]:
    """The queues of the store, with those of penstock.yaml, which a run would apply first; and what the machine of the store has, if that is
    another one."""
    warnings: tuple[Problem, ...] = ()
    here = Path(FILE)
    if not stores.exists(settings):
        rows, warnings = rows_of(None, (read_file(here), FILE)) if here.is_file() else ([], ())
        return rows, warnings, None
    with stores.open_existing(settings) as store:
        known = {(kind, name): text for kind, name, _, text in store.queues.queue_objects() if text is not None}
        if here.is_file() and not settings.server and not is_applied(store, here, text := read_file(here)):
            more, warnings = rows_of(store, (text, FILE))
            known |= {(kind, name): document for kind, name, document in more}
        amounts = store.queues.capacity() if store.queues.capacity is not None else None
    return [(kind, name, text) for (kind, name), text in known.items()], warnings, amounts


def parse_amounts(text: str, option: str = "--capacity") -> dict[str, int]:
    """`cpu=64,memory=256Gi` -> amounts in the units of queues. `option`: what it is the value of. Raises UserError."""

    def wrong(why: str, fix: str) -> UserError:
        return UserError(Problem("P822", f"{option}: {why}", fix))

    found: dict[str, int] = {}
    for item in text.split(","):
        name, equals, amount = item.strip().partition("=")
        name = GPU if name == "gpu" else name
        if not equals or not name:
            raise wrong(f"{item.strip()[:60]!r} is not an amount", f"write {option} cpu=64,memory=256Gi")
        if not RESOURCE_NAME.match(name):
            known = (*PLAIN_RESOURCES, "gpu")
            raise wrong(
                f"there is no resource {name[:60]!r}",
                f"use cpu, memory, gpu, or a name with a domain: nvidia.com/gpu.{nearest(name, known)}",
            )
        if name in found:
            raise wrong(f"{name} is given twice", "give each resource once")
        try:
            milli = quantity.parse(amount)
        except ValueError as error:
            raise wrong(f"{name}: {error}", "write a quantity such as 2, 500m or 4Gi") from None
        if milli < 0:
            raise wrong(f"{name} is negative", "give an amount of 0 or more")
        found[name] = milli if name == "cpu" else milli // 1000
    return found


def _asked_for(found: Iterable[WorkflowSource]) -> list[str]:
    names = {
        resource
        for one in found
        for workflow in (one.workflow, *one.workflow.definitions)
        for step in (*workflow.steps, *workflow.on_exit)
        for resource in step.resources
    }
    return sorted(names)


def remarks(found: Iterable[WorkflowSource]) -> list[Remark]:
    """Of all files, each once."""
    return list(dict.fromkeys(remark for one in found for remark in one.remarks))
