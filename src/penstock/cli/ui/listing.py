"""A table of runs. Called by `penstock ls`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.cli.ui import render
from penstock.cli.ui.marks import STATES
from penstock.service.run_records import seconds_of
from penstock.service.task_states import BAD
from penstock.store.records import RunRecord

if TYPE_CHECKING:
    from penstock.backends.base import Orphan


def run_table(found: Sequence[tuple[RunRecord, str]], now: float) -> None:
    """`found`: each run with its state."""
    rows = []
    for run, state in found:
        took = seconds_of(run, now if state in ("running", "queued") else None)
        done = run.counts.get("succeeded", 0) + run.counts.get("reused", 0)
        failed = sum(run.counts.get(one, 0) for one in BAD)
        numbers = [f"{many:,}" if many else "" for many in (done, failed, run.counts.get("reused", 0))]
        spent = "" if took is None else render.duration(took)
        rows.append([run.id, state, render.when(run.created, now), spent, *numbers, run.user])
    if rows or not render.is_terminal():
        render.table(["RUN", "STATE", "STARTED", "TOOK", "DONE", "FAILED", "REUSED", "USER"], rows, colours=STATES)
    else:
        render.note("there are no such runs")


def left_behind(orphans: Mapping[str, Sequence[Orphan]]) -> None:
    """Lost runs of which tasks still run, and what to do about it."""
    for run, left in orphans.items():
        names = [f"{one.pid} ({one.task})" if one.task else str(one.pid) for one in left]
        many = "process" if len(left) == 1 else "processes"
        verb, them = ("runs", "it and starts its task") if len(left) == 1 else ("run", "them and starts their tasks")
        render.note(
            f"{run} is lost, but {many} {render.listed(names, 4)} of it still {verb}: penstock resume {run} ends {them} again; "
            f"penstock cancel {run} only ends {'it' if len(left) == 1 else 'them'}"
        )
