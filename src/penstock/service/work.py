"""Runs that any worker may execute: what is ordered, and what a worker does about it. Called by the server, which gives orders, and by
`workers`.

An order is a row beside the run. It says what is wanted, not who does it: a worker that dies leaves the row, and the next one goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from penstock.errors import Problem
from penstock.service.run_records import RunConflict, owner_alive
from penstock.store.orders import WorkOrder
from penstock.store.records import FINAL, RunRecord
from penstock.store.sql import Store

Action = Literal["drop", "wait", "execute", "retry", "cancel", "ask", "obey"]


def action_of(order: WorkOrder, run: RunRecord | None, owned: bool | None) -> Action:
    """What a worker does now. `owned`: does a living engine own the run? None: that cannot be told yet.

    drop: it is done · wait: somebody else is at it · ask: its owner is asked to cancel it · obey: the order turns into one to execute it."""
    if run is None:
        return "drop"
    over = run.state in FINAL
    if order.verb == "retry":
        if run.seq > int(order.data.get("seq", 0)):
            return "obey"  # somebody has, since that was ordered
        return "drop" if run.state == "succeeded" else "retry" if over else "obey"
    if over:
        return "drop"
    if owned is None or (owned and order.verb != "cancel"):
        return "wait"
    if order.verb == "cancel":
        return "ask" if owned else "cancel"
    return "execute"


# -- what the server orders -------------------------------------------------------------------------------------------


def cancel(store: Store, run: RunRecord, by: str, now: bool = False) -> None:
    """Returns at once; the run ends when its tasks have. Raises RunConflict if it is over."""
    if run.state in FINAL:
        raise RunConflict(Problem("P413", f"{run.id} is over: it {_word(run)}", "there is nothing left to cancel"))
    wish = {"message": f"cancelled by {by}", "now": now}
    if owner_alive(store, run):
        store.runs.request(run.number, "cancel", wish)
    else:
        store.orders.put(run.number, "cancel", wish)


def retry(store: Store, run: RunRecord, by: str) -> None:
    """What failed in it is tried again by the next free worker. Raises RunConflict."""
    if run.state == "succeeded":
        raise RunConflict(Problem("P413", f"{run.id} is over: it succeeded", "submit it again"))
    if run.state not in FINAL:
        raise RunConflict(Problem("P413", f"{run.id} is not over", "cancel it first, or wait for it"))
    store.orders.put(run.number, "retry", {"by": by, "seq": run.seq})


def go_on(store: Store, run: RunRecord) -> None:
    """A run that was interrupted. Raises RunConflict if it is over, or somebody executes it."""
    if run.state in FINAL:
        raise RunConflict(Problem("P413", f"{run.id} is over: it {_word(run)}", "retry it, or submit it again"))
    if owner_alive(store, run) is not False:
        raise RunConflict(Problem("P411", f"{run.id} is being run already", f"penstock watch {run.id}"))
    store.orders.put(run.number, "run", {})


def resume_task(store: Store, run: RunRecord, task: str, outputs: Mapping[str, Any]) -> None:
    """A suspended task, with the values that it waits for. The engine that owns the run is asked; if there is none, the next free worker goes on
    with the run and finds the request."""
    store.runs.request(run.number, "resume", {"task": task, "outputs": dict(outputs)})
    if owner_alive(store, run) is False:
        store.orders.put(run.number, "run", {})


def _word(run: RunRecord) -> str:
    return "was cancelled" if run.state == "cancelled" else run.state
