"""What is done with schedules: add, look at, pause, resume, remove, run now. Called by the command `schedule`, by the server and by Client.

A schedule keeps the workflow as it was when it was added, with its code: later edits do not reach it until it is added anew.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import NotFound, PlanError, Problem, RunConflict, nearest
from penstock.graph.model import Workflow
from penstock.service.schedules.noun import StoredSchedule, due_kind, due_value
from penstock.service.schedules.policy import GRACE, SchedulePolicy
from penstock.service.schedules.timing import Timing
from penstock.service.schedules.timing import timing as timing_of
from penstock.service.submission import Submission
from penstock.store.records import RunRecord
from penstock.store.schedules import ScheduleRow
from penstock.store.sql import Store

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
RECENT: Final = 10
"""Runs that are shown of a schedule."""
TRIES: Final = 20
"""How often a change is begun anew because somebody else changed the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTerms:
    """What somebody asks for."""

    name: str
    timing: Timing
    policy: SchedulePolicy
    due_param: str = ""
    """The parameter that is given the time."""
    paused: bool = False
    replace: bool = False
    """In place of the one of this name."""


def requested(
    name: str,
    crons: tuple[str, ...] = (),
    zone: str | None = None,
    every: float | None = None,
    start: str | None = None,
    end: str | None = None,
    now: float | None = None,
    grace: float | None = None,
    policy: Mapping[str, Any] | None = None,
    **more: Any,
) -> ScheduleTerms:
    """What was typed or sent, checked. Raises PlanError."""
    if not _NAME.match(name):
        fix = "use letters, digits, - _ and . and begin with a letter or a digit"
        raise PlanError(Problem("P557", f"{name[:80]!r} is no name of a schedule", fix))
    made = timing_of(crons, zone, every, start, end, time.time() if now is None else now)
    if grace is not None and not (0 <= grace < 1e10):
        raise PlanError(Problem("P556", f"{grace:g} seconds is no time to be late", "give 30s, 5m, 1h"))
    rules = SchedulePolicy(**(policy or {}))._replace(grace=GRACE if grace is None else grace)
    return ScheduleTerms(name=name, timing=made, policy=rules, **more)


def with_due(request: ScheduleTerms, workflow: Workflow, params: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The parameters with a time in place of the one that is given it, so that they can be checked. Raises PlanError."""
    return {**params, **due_only(request, workflow, params, now)}


def due_only(request: ScheduleTerms, workflow: Workflow, params: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The parameter that is given the time, with the next one. Raises PlanError."""
    if not request.due_param:
        return {}
    kind = due_kind(workflow, request.due_param)
    if request.due_param in params:
        message = f"the parameter {request.due_param!r} is given the time that is due, and a value"
        raise PlanError(Problem("P556", message, "leave out one of the two"))
    return {request.due_param: due_value(kind, request.timing.after(now) or now, request.timing.zone)}


def add(
    store: Store,
    request: ScheduleTerms,
    submission: Submission,
    now: float,
    noted: Callable[[], object] = lambda: None,
) -> StoredSchedule:
    """`submission`: checked, and its code is stored. `noted`: records more, in the transaction. Raises RunConflict: there is one of this name."""
    text, digest = submission.document()
    param = request.due_param
    params = {name: value for name, value in submission.params.items() if name != param}
    document = {
        "timing": request.timing.as_data(),
        "policy": request.policy._asdict(),
        "params": params,
        "options": submission.options,
        "tracked": submission.tracked,
        "due_param": param,
        "due_kind": due_kind(submission.workflow, param) if param else "",
    }
    next_at, name = None if request.paused else request.timing.after(now), submission.workflow.name
    row = ScheduleRow(
        name=request.name,
        state="paused" if request.paused else "active",
        next_at=next_at,
        waiting=None,
        last_at=None,
        version=1,
        owner=submission.person,
        workflow=name,
        digest=digest,
        document=document,
        note="",
        created=now,
    )

    def written() -> bool:
        before = store.schedules.of(row.name)
        if before is None:
            return store.schedules.put(row, text, noted)
        if not request.replace:
            fix = f"penstock schedule add {row.name} … --replace, or choose another name"
            raise RunConflict(Problem("P555", f"there is a schedule {row.name!r} already", fix))
        kept = row._replace(last_at=before.last_at)
        return store.schedules.change(before, kept, noted, text)

    _until(written, row.name)
    return find(store, row.name)


def find(store: Store, name: str) -> StoredSchedule:
    """Raises NotFound."""
    row = store.schedules.of(name)
    if row is None:
        known = [one.name for one in store.schedules.page(200)]
        fix = f"penstock schedule ls shows them.{nearest(name, known)}"
        raise NotFound(Problem("P554", f"there is no schedule {name[:100]!r}", fix))
    return StoredSchedule.of(row)


def pause(store: Store, name: str) -> StoredSchedule:
    """Times that come until it is resumed are not made up for. A run that goes on is left alone."""

    def written() -> bool:
        before = find(store, name).row
        if before.state == "paused":
            return True
        return store.schedules.change(before, before._replace(state="paused", next_at=None, waiting=None))

    _until(written, name)
    return find(store, name)


def resume(store: Store, name: str, now: float) -> StoredSchedule:
    """Raises PlanError: it has no further time."""

    def written() -> bool:
        found = find(store, name)
        if found.row.state == "active":
            return True
        following = found.timing.after(now)
        if following is None:
            fix = f"add it anew with another end: penstock schedule add {name} … --replace"
            raise RunConflict(Problem("P558", f"the schedule {name!r} is over: it has no further time", fix))
        return store.schedules.change(found.row, found.row._replace(state="active", next_at=following, note=""))

    _until(written, name)
    return find(store, name)


def remove(store: Store, name: str) -> None:
    """Its runs stay. Raises NotFound."""
    _until(lambda: store.schedules.drop(find(store, name).row), name)


def run_now(
    store: Store, name: str, by: str, now: float, noted: Callable[[RunRecord], object] = lambda run: None
) -> RunRecord:
    """A run of its workflow, beside its times: no policy is asked. Raises NotFound."""
    found = find(store, name)

    def recorded() -> RunRecord:
        run = record(store, found, now, None, by)
        noted(run)
        return run

    run, _ = store.orders.submit(recorded, by)
    assert run is not None
    return run


def record(store: Store, found: StoredSchedule, now: float, due: float | None, by: str = "") -> RunRecord:
    """A run of it, which nobody executes yet. `due`: the time that it is made for; None: none."""
    row = found.row
    tracked = row.document["tracked"]
    return store.runs.create(
        row.workflow,
        row.digest,
        store.runs.document(row.digest),
        found.params_at(now if due is None else due),
        found.options_at(due),
        by or row.owner,
        now,
        None if tracked is None else (tracked[0], tracked[1]),
    )


def _until(write: Callable[[], bool], name: str) -> None:
    for _ in range(TRIES):
        if write():
            return
    raise RunConflict(Problem("P558", f"the schedule {name!r} is being changed by somebody else", "try again"))


# -- what is shown ----------------------------------------------------------------------------------------------------


def data(found: StoredSchedule) -> dict[str, Any]:
    """For JSON."""
    row = found.row
    return {
        "schedule": row.name,
        "workflow": row.workflow,
        "state": row.state,
        **found.timing.as_data(),
        **found.policy._asdict(),
        "due_param": found.due_param or None,
        "next": row.next_at,
        "waiting": row.waiting,
        "last": row.last_at,
        "note": row.note,
        "owner": row.owner,
        "digest": row.digest,
        "created": row.created,
    }


def details(store: Store, found: StoredSchedule) -> dict[str, Any]:
    """With its parameters and its last runs."""
    runs = store.schedules.runs_of(found.row.name, RECENT)
    return data(found) | {
        "params": found.row.document["params"],
        "options": found.row.document["options"],
        "runs": [{"run": one.id, "due": one.due, "state": one.state} for one in runs],
    }


def times(found: StoredSchedule, now: float, many: int) -> list[float]:
    """The next ones, also of one that is paused."""
    return found.timing.within(now, float("inf"), many)
