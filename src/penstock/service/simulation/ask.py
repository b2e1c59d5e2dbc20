"""A simulation of workflows that arrive as documents, within limits. Called by the server: by its API, and by the page of a queue.

Whoever asks waits for the answer, and others share the processor: so there are limits to how much is simulated, and for how long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.errors import InvalidWorkflow, PlanError, Problem
from penstock.graph.check import errors
from penstock.graph.model import Unit
from penstock.service import parameters
from penstock.service.amounts import GUESS
from penstock.service.intake import workflow_in
from penstock.service.simulation import scenario
from penstock.service.simulation.report import report
from penstock.service.simulation.scenario import LONGEST, WorkflowSource
from penstock.service.simulation.simulate import UNITS, simulate
from penstock.settings import Settings
from penstock.store.sql import Store

MOST_JOBS: Final = 500
SECONDS: Final = 10.0
"""For all units together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedWorkflow:
    document: str
    """A workflow in Penstock's form, a manifest of another system, or a recording in WfFormat."""
    name: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The options of `penstock queue simulate`."""

    workflows: Sequence[AskedWorkflow]
    queues: str = ""
    """Manifests: what would be different in the queues of the store."""
    instead: bool = False
    """These queues alone, not those of the store."""
    capacity: str = ""
    """One queue of this size instead: `cpu=64,memory=256Gi`."""
    queue: Sequence[str] = ()
    priority: Sequence[str] = ()
    units: Sequence[str] = ()
    every: float = 0.0
    repeat: int = 1
    seconds: float = GUESS
    runtimes: Mapping[str, float] = field(default_factory=dict)
    measured: bool = False


def simulated(
    question: Question, store: Store, settings: Settings, clock: Callable[[], float] = time.monotonic
) -> dict[str, Any]:
    """As `penstock queue simulate -o json`. Raises UserError, P972: it would take too long."""
    if len(question.workflows) * question.repeat > MOST_JOBS:
        fix = f"simulate at most {MOST_JOBS} runs here; penstock queue simulate --server takes any number"
        raise PlanError(Problem("P972", f"{len(question.workflows) * question.repeat:,} runs are to be simulated", fix))
    for name, value in (("every", question.every), ("seconds", question.seconds)):
        if not 0 <= value <= LONGEST:
            raise PlanError(Problem("P821", f"{name} is {value:g}", f"give a number from 0 to {LONGEST:g}"))
    sources = [_source(one, number, question, settings) for number, one in enumerate(question.workflows, 1)]
    runtimes = [f"{step}={seconds!r}" for step, seconds in question.runtimes.items()]
    found = scenario.with_times(sources, runtimes, question.seconds)
    jobs = scenario.jobs(
        found,
        guess=question.seconds,
        every=question.every,
        repeat=question.repeat,
        queues=question.queue,
        priorities=question.priority,
    )
    if question.capacity:
        setup = scenario.sized_queue(question.capacity, found)
    elif question.instead:
        setup = scenario.queues_in(question.queues, "<request>")
    else:
        setup = scenario.queues_of(store, *([(question.queues, "<request>")] if question.queues else []))
    until = clock() + SECONDS

    def look(unit: Unit, ended: int) -> None:
        if clock() > until:
            fix = "simulate fewer runs or one unit, or with penstock queue simulate --server, which computes on your machine"
            raise PlanError(
                Problem("P972", f"after {SECONDS:g} s, {ended:,} tasks were simulated with unit={unit}", fix)
            )

    units = [Unit(unit) for unit in dict.fromkeys(question.units)] or UNITS
    data = report(found, jobs, setup, simulate(jobs, setup.objects, units, setup.documents, look))
    data["warnings"] = [one.as_data() for one in setup.warnings]
    return data


def _source(asked: AskedWorkflow, number: int, question: Question, settings: Settings) -> WorkflowSource:
    file = f"workflows.{number}"
    recording = scenario.recorded(asked.document, file, question.measured)
    if recording is not None:
        return recording
    workflow, _ = workflow_in(asked.document, asked.name)
    problems = errors(workflow)
    if problems:
        raise InvalidWorkflow(problems)
    return scenario.written(file, workflow, parameters.from_python(workflow, asked.params), settings)
