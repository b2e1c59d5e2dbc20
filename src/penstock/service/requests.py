"""Requests to the engine that owns a run: cancel, resume a suspended step. Called by the commands cancel and resume.

An engine is asked through the store, because it may be on another machine.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import NotFound, PlanError, Problem, UserError, nearest
from penstock.graph.model import MISSING, Parameter, Step, Workflow
from penstock.service.parameters import Given, parse
from penstock.service.run_records import RunConflict, owned_problem
from penstock.service.workflows import step_at
from penstock.store.records import FINAL, RunRecord, TaskRow
from penstock.store.sql import Store


def ask(store: Store, run: RunRecord, verb: str, data: Mapping[str, Any], patience: float = 30.0) -> RunRecord:
    """Returns when the engine has read the request. Raises RunConflict if it does not answer within `patience` seconds."""
    number = store.runs.request(run.number, verb, data)
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        current = store.runs.by_number(run.number)
        if current is None or current.state in FINAL or not store.runs.requests(number - 1, [run.number]):
            return current or run
        time.sleep(0.05)
    fix = "if its process hangs, end it (kill -9) and resume the run"
    raise RunConflict(Problem("P412", f"the engine of {run.id} does not answer", fix))


def suspended_tasks(store: Store, run: RunRecord, path: str = "") -> list[TaskRow]:
    """The tasks that wait to be resumed; with `path`, those of this step or this task. Raises NotFound if `path` has none."""
    waiting = store.runs.tasks(run.number, states=["suspended"])
    if path:
        chosen = [row for row in waiting if row.task == path or row.step == path]
        if not chosen:
            known = [row.task for row in waiting]
            fix = f"waiting: {', '.join(known) or 'none'}.{nearest(path, known)}"
            raise NotFound(Problem("P506", f"{run.id} has no step {path!r} that waits to be resumed", fix))
        return chosen
    return waiting


def values_for(
    store: Store, run: RunRecord, workflow: Workflow, rows: Sequence[TaskRow], given: Sequence[str], alive: bool
) -> dict[str, dict[str, Any]]:
    """Suspended task -> values for its outputs, from `name=value` texts. `alive`: an engine owns the run, so there must be one. Raises
    UserError."""
    if alive and not rows:
        message = f"{owned_problem(store, run).message}, and none of its steps waits to be resumed"
        raise RunConflict(Problem("P411", message, f"penstock watch {run.id}"))
    if given and len(rows) > 1:
        names = ", ".join(row.task for row in rows)
        fix = f"name one: penstock resume {run.id}/{rows[0].task} -p …"
        raise UserError(Problem("P409", f"several steps wait: {names}", fix))
    return {row.task: resume_outputs(workflow, row, given) for row in rows}


def asked_of(workflow: Workflow, row: TaskRow) -> Workflow:
    """What a suspended task waits for, as parameters."""
    return outputs_asked(workflow, step_at(workflow, row.step))


def outputs_asked(workflow: Workflow, step: Step | None) -> Workflow:
    declared = step.outputs if step is not None else ()
    return Workflow(name=workflow.name, params=tuple(Parameter(name=o.name, type=o.type) for o in declared))


def resume_outputs(workflow: Workflow, row: TaskRow, given: Sequence[str | Given]) -> dict[str, Any]:
    """`name=value` texts, or values, for the outputs of a suspend step -> values of the declared types. Raises PlanError."""
    step = step_at(workflow, row.step)
    declared = step.outputs if step is not None else ()
    found = parse(asked_of(workflow, row), given)
    for output in declared:
        if output.name not in found:
            if output.default is MISSING:
                message = f"{row.task} waits for a value of {output.name!r}"
                raise PlanError(Problem("P408", message, f"give it: -p {output.name}=…", where=row.task))
            found[output.name] = output.default
    return found
