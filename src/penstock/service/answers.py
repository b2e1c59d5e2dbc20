"""Answers to steps that wait for one, from whoever has the token: success, failure, a sign of life. Called by the server and by
`penstock answer`.

An answer is recorded whether or not an engine executes the run; the one that does, or will, takes it from there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from penstock.artifacts.values import dumps
from penstock.errors import NotFound, Problem, UserError
from penstock.graph.model import Workflow
from penstock.service.parameters import Given
from penstock.service.requests import resume_outputs
from penstock.service.run_records import RunConflict, owner_alive, workflow_of
from penstock.store.records import FINAL, AnswerRow, RunRecord, TaskRow
from penstock.store.sql import Store

LONGEST_TOKEN: Final = 200
LONGEST_MESSAGE: Final = 20_000
_NAME: Final = re.compile(r"[A-Za-z_][\w.:-]{0,199}\Z", re.ASCII)
_NEVER: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
"""What no database and no screen takes."""

Placed = Callable[[Workflow, TaskRow, Mapping[str, Any]], Sequence[Given]]


class AnswerTooLate(UserError):
    """Nobody waits for it any more."""


class AnswerRefused(UserError):
    """It does not fit; the step goes on waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerGiven:
    status: Literal["success", "failure", "heartbeat"]
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Of a success, by name."""
    texts: Sequence[str] = ()
    """The same as `name=value`, of a command line."""
    error: str = "failed"
    message: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    run: RunRecord
    task: str
    owned: bool
    """Is the run executed now? If not, it goes on with the next free worker, or with `penstock resume`."""


def answer(store: Store, token: str, said: AnswerGiven, now: float, placed: Placed | None = None) -> Answered:
    """`placed`: values that come from another machine, as they are here. Raises NotFound, RunConflict, AnswerTooLate, AnswerRefused."""
    row = store.answers.find(token) if len(token) <= LONGEST_TOKEN else None
    if row is None:
        raise unknown()
    run, task = _waiting(store, row, now)
    if said.status == "heartbeat":
        done = store.answers.beat(row, now)
    else:
        data = _data(store, run, task, said, placed)
        done = store.answers.give(row, data, now, order=owner_alive(store, run) is False)
    if not done:
        _waiting(store, store.answers.find(token) or row, now)
        raise _late(row)
    return Answered(run, row.task, owner_alive(store, run) is not False)


def unknown() -> NotFound:
    return NotFound(Problem("P532", "there is no such token", "use the whole token, as the step was given it"))


def _waiting(store: Store, row: AnswerRow, now: float) -> tuple[RunRecord, TaskRow]:
    """Whose answer it is. Raises RunConflict: there is one; AnswerTooLate."""
    if row.state == "answered":
        raise RunConflict(Problem("P533", f"{row.task} is answered already", "an answer is given once"))
    run, task = store.runs.by_number(row.run), store.runs.task(row.run, row.task)
    over = run is None or task is None or run.state in FINAL
    if over or task is None or run is None or row.state == "expired" or row.limit <= now:
        raise _late(row)
    if task.state not in ("running", "suspended") or task.attempt != row.attempt:
        raise _late(row)
    return run, task


def _late(row: AnswerRow) -> AnswerTooLate:
    fix = "penstock show tells how it ended; another attempt of it has another token"
    return AnswerTooLate(Problem("P534", f"{row.task} does not wait for this answer any more", fix))


def _as_given(said: AnswerGiven) -> list[str | Given]:
    return [*said.texts, *(Given(name, "", value, "") for name, value in said.outputs.items())]


def _data(store: Store, run: RunRecord, task: TaskRow, said: AnswerGiven, placed: Placed | None) -> dict[str, Any]:
    if said.status == "failure":
        if not _NAME.match(said.error):
            fix = "give a name of letters, digits, dots, dashes and colons, as in OutOfMemory"
            raise AnswerRefused(Problem("P535", f"{said.error[:60]!r} is no name of an error", fix, where="error"))
        return {"error": said.error, "message": _NEVER.sub(" ", said.message)[:LONGEST_MESSAGE]}
    try:
        json.dumps(dict(said.outputs), allow_nan=False).encode()
        workflow = workflow_of(store, run)
        given = placed(workflow, task, said.outputs) if placed is not None else _as_given(said)
        found = resume_outputs(workflow, task, given)
        return {"outputs": json.loads(dumps(found))}
    except UserError as error:
        first = error.problems[0]
        message = f"the answer does not fit: {first.message}"
        raise AnswerRefused(Problem("P535", message, first.fix, where=f"outputs of {task.task}")) from None
    except (ValueError, RecursionError):
        fix = "send numbers that JSON has, and text that is Unicode"
        raise AnswerRefused(Problem("P535", "the outputs are no JSON", fix, where="outputs")) from None
