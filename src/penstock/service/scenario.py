"""What a simulation of queues is about: files -> jobs with their run times, and the queues that they meet. Called by
`penstock queue simulate`.

Whatever is assumed on the way is a remark, so that nobody takes a guess for a measurement.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock import service
from penstock.admission.meter import Total
from penstock.admission.model import UNLIMITED, Object
from penstock.backends.base import Order
from penstock.engine.live import step_of
from penstock.errors import PlanError, Problem, UserError, nearest
from penstock.formats import wfformat
from penstock.graph import quantity
from penstock.graph.check import PLAIN_RESOURCES, RESOURCE_NAME
from penstock.graph.model import Suspend, Workflow
from penstock.plan.expand import Planned
from penstock.plan.make import make
from penstock.service import wording
from penstock.service.queueing import FILE, GPU, is_applied, machine, read_file, rows_of
from penstock.service.scratch import Row
from penstock.service.simulate import Job, Played, Seconds
from penstock.settings import read
from penstock.store.sql import Store, open_store

GUESS = 60.0
"""Seconds that a task takes of which nothing is known."""
LONGEST = 1e9
_AS_REQUESTED = "recorded tasks ask for as much as the largest of their kind, and those of a kind that wait for the same are one stage"
_AS_MEASURED = "recorded tasks ask for what each of them took, and a stage of unequal tasks starts as a whole"
LOOK_BACK = 10
"""Runs that are searched for how long a step takes: the last one may have reused some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something that the figures rest on and that was not measured."""

    text: str
    minor: bool = False
    """Shown only to who asks for everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file."""

    file: str
    workflow: Workflow
    steps: tuple[str, ...]
    """Paths of those that take time of their own."""
    params: Mapping[str, Any] = field(default_factory=dict)
    runtimes: Mapping[str, float] = field(default_factory=dict)
    """Seconds, by step path, as far as they are known."""
    run: str = ""
    """The run that says so."""
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Yard:
    """The queues that are played with: either objects, or rows as a store has them."""

    name: str
    objects: Sequence[Object] = ()
    documents: Sequence[Row] = ()
    warnings: Sequence[Problem] = ()
    declared: bool = False
    """One queue that was given by its size: it is not this machine."""


# -- the workflows ----------------------------------------------------------------------------------------------------


def sources(
    files: Sequence[str],
    given: Sequence[str] = (),
    runtimes: Sequence[str] = (),
    guess: float = GUESS,
    measured: bool = False,
) -> list[Source]:
    """`given`: `key=value`, each for every workflow that has this parameter. `runtimes`: `step=seconds`. `measured`: tasks of a
    recording ask for what each of them took, not for what the largest of their kind took. Raises UserError."""
    made: dict[str, Source | Workflow] = {}
    for file in files:
        if file not in made:
            made[file] = _recording(file, measured) or service.load(file)
    written = {file: one for file, one in made.items() if isinstance(one, Workflow)}
    known = {param.name for one in written.values() for param in one.params}
    for item in given:
        name, equals, _ = item.partition("=")
        if equals and name not in known:
            fix = f"known: {', '.join(sorted(known)) or 'none'}.{nearest(name, known)}"
            raise PlanError(Problem("P401", f"none of the workflows has a parameter {name!r}", fix))
    found = {file: one if isinstance(one, Source) else _written(file, one, given) for file, one in made.items()}
    chosen = _chosen(runtimes, found.values())
    timed = {file: _timed(one, chosen, guess) for file, one in found.items()}
    return [timed[file] for file in files]


def _recording(file: str, measured: bool) -> Source | None:
    """A file in WfFormat; None if it is something else."""
    path = Path(file)
    if path.suffix != ".json" or not path.is_file():
        return None
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None  # whoever reads workflows says what is wrong with it
    if not wfformat.claims(text):
        return None
    trace = wfformat.read(text, file, by_kind=not measured, grouped=True)
    asked = _AS_MEASURED if measured else _AS_REQUESTED
    name = trace.workflow.name
    said = [Remark(text=f"{name}: {note.kind}: {note.text} ({note.count:,})", minor=True) for note in trace.notes]
    remarks = (Remark(text=asked), *said)
    return Source(
        file=file,
        workflow=trace.workflow,
        steps=tuple(trace.runtimes),
        runtimes=trace.runtimes,
        remarks=remarks,
    )


def _written(file: str, workflow: Workflow, given: Sequence[str]) -> Source:
    own = {param.name for param in workflow.params}
    params = service.parameters(workflow, [item for item in given if "=" not in item or item.partition("=")[0] in own])
    walked = [planned for planned, _ in make(workflow, params).level.walk()]
    steps = {
        planned.path: None
        for planned in walked
        if planned.inner is None and not planned.recursive and planned.runs != "no"
    }
    runtimes, run = _remembered(workflow.name, steps.keys())
    for planned in walked:
        if isinstance(planned.step.action, Suspend) and planned.step.action.duration is not None:
            runtimes[planned.path] = planned.step.action.duration
    return Source(
        file=file,
        workflow=workflow,
        steps=tuple(steps),
        params=params,
        runtimes=runtimes,
        run=run,
        remarks=tuple(Remark(text=f"{workflow.name}: {text}") for text in _open(walked)),
    )


def _timed(one: Source, chosen: Mapping[str, float], guess: float) -> Source:
    """With what was said by hand, and a word on where the times come from."""
    said = {path: chosen.get(path, chosen.get(path.rpartition("/")[2])) for path in one.steps} if chosen else {}
    runtimes = {**one.runtimes, **{path: seconds for path, seconds in said.items() if seconds is not None}}
    missing = [path for path in one.steps if path not in runtimes]
    texts = [f"tasks take as long as in {one.run}"] if one.run else []
    if missing:
        which = f"how long {_some(missing)} takes is not recorded" if runtimes else "no run of it is recorded here"
        texts.append(f"{which}: {guess:g} s for each task, which is a guess")
    remarks = (*(Remark(text=f"{one.workflow.name}: {text}") for text in texts), *one.remarks)
    return dataclasses.replace(one, runtimes=runtimes, remarks=remarks)


def _remembered(workflow: str, wanted: Set[str]) -> tuple[dict[str, float], str]:
    """How long each step took when the workflow last succeeded, and the run that says so."""
    settings = read()
    if "://" not in settings.store and not Path(settings.store, "state.db").exists():
        return {}, ""
    found: dict[str, float] = {}
    first = ""
    with open_store(settings.store) as store:
        for run in store.runs(limit=LOOK_BACK, state="succeeded", workflow=workflow):
            for step, seconds in _took(store, run.number).items():
                if step in wanted and step not in found:
                    found[step] = seconds
                    first = first or run.id
            if wanted <= found.keys():
                break
    return found, first


def _took(store: Store, run: int) -> dict[str, float]:
    """Seconds, the mean over the tasks of each step that were computed in this run."""
    times: dict[str, list[float]] = {}
    for event in store.events(run, kinds=["task.succeeded"]):
        if "seconds" in event.data:
            times.setdefault(step_of(event.task), []).append(event.data["seconds"])
    return {step: math.fsum(some) / len(some) for step, some in times.items()}


def _open(walked: Iterable[Planned]) -> list[str]:
    """What hangs on results, of which there are none."""
    loops, maybe = [], []
    for planned in walked:
        if planned.tasks.count is None:
            loops.append(planned.path)
        elif planned.runs == "maybe":
            maybe.append(planned.path)
    found = []
    if loops:
        found.append(f"how many tasks {_some(loops)} has is only known when it runs; here there are none")
    if maybe:
        found.append(f"whether {_some(maybe)} runs hangs on results; here these are empty")
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")


# -- how long a task takes --------------------------------------------------------------------------------------------


def _chosen(given: Iterable[str], found: Iterable[Source]) -> dict[str, float]:
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


def takes(one: Source, guess: float = GUESS) -> Seconds:
    """What is known, or a guess, which is never so long that a time limit would end it."""
    known = one.runtimes

    def seconds(order: Order) -> float:
        found = known.get(step_of(order.task))
        if found is not None:
            return found
        return guess if order.step.timeout is None else min(guess, order.step.timeout / 2)

    return seconds


def jobs(
    found: Sequence[Source],
    *,
    guess: float = GUESS,
    every: float = 0.0,
    repeat: int = 1,
    queues: Sequence[str] = (),
    priorities: Sequence[str] = (),
) -> list[Job]:
    """The whole list `repeat` times, one job after the other; queues and priorities are dealt out in turn."""
    chosen = [(one, takes(one, guess)) for one in found] * repeat
    return [
        Job(
            workflow=one.workflow,
            seconds=seconds,
            at=number * every,
            params=one.params,
            queue=queues[number % len(queues)] if queues else None,
            priority=_priority(priorities[number % len(priorities)]) if priorities else None,
        )
        for number, (one, seconds) in enumerate(chosen)
    ]


def _priority(text: str) -> str | int:
    return int(text) if text.removeprefix("-").isdecimal() else text


# -- the queues -------------------------------------------------------------------------------------------------------


def yard(file: str | None, capacity: str | None, found: Sequence[Source]) -> Yard:
    """The queues of a file, one of a given size, those of the store, or this machine. Raises UserError."""
    if capacity is not None:
        amounts = parsed(capacity)
        # What nobody has named does not count.
        every = dict.fromkeys(_asked_for(found), UNLIMITED) | amounts
        return Yard(name=wording.vector(amounts), objects=machine(every), declared=True)
    if file is not None:
        rows, warnings = rows_of(None, (read_file(file), file))
        return Yard(name=f"the queues of {file}", documents=rows, warnings=warnings)
    rows, warnings = _kept()
    if rows:
        return Yard(name="the queues that there are", documents=rows, warnings=warnings)
    return Yard(name="this machine", objects=machine())


def _kept() -> tuple[list[Row], tuple[Problem, ...]]:
    """The queues of the store, with those that a run here would apply first."""
    settings = read()
    warnings: tuple[Problem, ...] = ()
    here = Path(FILE)
    if "://" not in settings.store and not Path(settings.store, "state.db").exists():
        return rows_of(None, (read_file(here), FILE)) if here.is_file() else ([], ())
    with open_store(settings.store) as store:
        rows = {(kind, name): text for kind, name, _, text in store.queue_objects() if text is not None}
        if here.is_file() and not is_applied(store, here, text := read_file(here)):
            more, warnings = rows_of(store, (text, FILE))
            rows |= {(kind, name): document for kind, name, document in more}
    return [(kind, name, text) for (kind, name), text in rows.items()], warnings


def parsed(text: str) -> dict[str, int]:
    """`cpu=64,memory=256Gi` -> amounts as queues count them."""
    found: dict[str, int] = {}
    for item in text.split(","):
        name, equals, amount = item.strip().partition("=")
        name = GPU if name == "gpu" else name
        if not equals or not name:
            raise _no_capacity(f"{item.strip()[:60]!r} is not an amount", "write --capacity cpu=64,memory=256Gi")
        if not RESOURCE_NAME.match(name):
            known = (*PLAIN_RESOURCES, "gpu")
            raise _no_capacity(
                f"there is no resource {name[:60]!r}",
                f"use cpu, memory, gpu, or a name with a domain: nvidia.com/gpu.{nearest(name, known)}",
            )
        if name in found:
            raise _no_capacity(f"{name} is given twice", "give each resource once")
        try:
            milli = quantity.parse(amount)
        except ValueError as error:
            raise _no_capacity(f"{name}: {error}", "write a quantity such as 2, 500m or 4Gi") from None
        if milli < 0:
            raise _no_capacity(f"{name} is below nothing", "give an amount of 0 or more")
        found[name] = milli if name == "cpu" else milli // 1000
    return found


def _no_capacity(why: str, fix: str) -> UserError:
    return UserError(Problem("P822", f"--capacity: {why}", fix))


def _asked_for(found: Iterable[Source]) -> list[str]:
    names = {
        resource
        for one in found
        for workflow in (one.workflow, *one.workflow.definitions)
        for step in (*workflow.steps, *workflow.on_exit)
        for resource in step.resources
    }
    return sorted(names)


# -- as data ----------------------------------------------------------------------------------------------------------


def report(found: Sequence[Source], work: Sequence[Job], place: Yard, played: Sequence[Played]) -> dict[str, Any]:
    """What `-o json` prints: seconds, and amounts as Kubernetes spells them; amounts over time in cores, bytes or pieces times seconds."""
    files = {id(one.workflow): one.file for one in found}
    return {
        "queues": place.name,
        "capacity": {name: _spelled(amount, name) for name, amount in played[0].capacity.items()} if played else {},
        "jobs": [
            {
                "workflow": job.workflow.name,
                "file": files[id(job.workflow)],
                "at": job.at,
                "queue": job.queue,
                "priority": job.priority,
            }
            for job in work
        ],
        "remarks": [remark.text for remark in remarks(found)],
        "units": [_unit(one) for one in played],
    }


def remarks(found: Iterable[Source]) -> list[Remark]:
    """Each once."""
    return list(dict.fromkeys(remark for one in found for remark in one.remarks))


def _unit(one: Played) -> dict[str, Any]:
    if one.refused is not None:
        return {"unit": str(one.unit), "refused": [problem.as_data() for problem in one.refused.problems]}
    measures = one.measures
    assert measures is not None
    return {
        "unit": str(one.unit),
        "makespan": _round(measures.makespan),
        **{
            name: {"mean": _round(spread.mean), "max": _round(spread.longest)}
            for name, spread in (
                ("delay", measures.delay),
                ("waiting", measures.waiting),
                ("stalled", measures.stalled),
            )
        },
        "preemptions": measures.preemptions,
        "workloads": one.workloads,
        "resources": {name: _total(name, total) for name, total in measures.totals.items()},
        "runs": {
            name: {
                "state": one.runs[name].state,
                "tasks": one.runs[name].tasks,
                **{key: _round(value) for key, value in run.as_data().items()},
            }
            for name, run in measures.runs.items()
        },
    }


def _total(resource: str, total: Total) -> dict[str, Any]:
    per = 1000 if resource == "cpu" else 1
    return {
        "capacity": _spelled(total.capacity, resource),
        "utilisation": _round(total.utilisation),
        "reserved": _round(total.reserved / per),
        "used": _round(total.used / per),
        "wasted": _round(total.wasted / per),
        "peak_reserved": wording.spell(total.peak_reserved, resource),
        "peak_used": wording.spell(total.peak_used, resource),
    }


def _spelled(amount: int | None, resource: str) -> str | None:
    return None if amount is None else wording.spell(amount, resource)


def _round(value: float | None) -> float | None:
    """To a millionth: sums of seconds end in noise."""
    return round(value, 6) if isinstance(value, float) else value
