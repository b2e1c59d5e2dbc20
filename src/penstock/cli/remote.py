"""Runs on a server, started, taken up and ended from here: `penstock run`, `resume`, `retry` and `cancel` with --server. Called by these commands,
which import it when they run. What is shown is read as it is here, from a Store that asks the server.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import click

from penstock.cli.foreground import ForegroundOptions, backends, refuse_final
from penstock.cli.ui import errors, render
from penstock.cli.ui.progress import Progress
from penstock.cli.ui.run_summary import RunEnd, run_summary
from penstock.cli.watching import draw
from penstock.errors import PlanError, Problem
from penstock.service import parameters, requests, run_records, stores, workflows
from penstock.service.callbacks.entries import with_urls
from penstock.service.following import RunFollower
from penstock.service.remote import placed, submit
from penstock.service.remote_store import connection
from penstock.service.run_records import RunConflict
from penstock.service.views.runs import overview
from penstock.settings import Settings
from penstock.store.records import FINAL, RunRecord
from penstock.store.sql import Store

LOOK = 0.2
"""Seconds between two looks at a run that is not drawn."""
_HERE = ("queues", "dry")
"""Options that mean this machine."""


def run_there(file: str, options: ForegroundOptions, settings: Settings, quiet: bool, output: str) -> None:
    """Raises UserError."""
    began = time.monotonic()
    remote = connection(settings.server)
    if options.submission.get("queues"):
        fix = "leave it out; an admin changes the queues of a server: penstock queue apply FILE"
        raise PlanError(Problem("P409", "--queues does not go with --server", fix))
    workflow, report = workflows.load_with_report(file)
    workflow = with_urls(workflow, options.callbacks)
    if report is not None:
        errors.entries([*report.of("lost"), *report.of("changed")][:10])
    values = parameters.parse(workflow, options.given)
    chosen = {name: value for name, value in options.submission.items() if name != "queues"}
    on = backends(options.on)
    made = submit(remote, workflow, values, {**chosen, "until": list(chosen.get("until") or ()), "on": on})
    id = made["run"]["run"]
    for one in made["warnings"]:
        render.note(f"{one['code']} {one['message']}")
    if options.detach:
        render.result(output, {"run": id, "server": remote.base}, id)
        if output != "json":
            render.note(f"{remote.base}/runs/{id}")
        return
    with stores.open_existing(settings) as store:
        _follow(store, run_records.find(store, id), settings, quiet, output, began)


def resume_there(target: str, given: tuple[str, ...], settings: Settings, quiet: bool, output: str) -> None:
    began = time.monotonic()
    name, path = run_records.split_target(target)
    remote = connection(settings.server)
    with stores.open_existing(settings) as store:
        found = run_records.find(store, name)
        refuse_final(found, "retry it" if found.state != "succeeded" else "run it again")
        workflow = run_records.workflow_of(store, found)
        alive = run_records.owner_alive(store, found) is not False
        rows = requests.suspended_tasks(store, found, path) if alive or path else []
        outputs = requests.values_for(store, found, workflow, rows, given, alive)
        for row in rows:
            step = requests.asked_of(workflow, row)
            values = placed(remote, step, outputs[row.task])
            remote.post(f"runs/{found.id}/resume", {"task": row.task, "params": values})
        if alive:
            render.result(output, {"run": found.id, "resumed": list(outputs)}, f"resumed {', '.join(outputs)}")
            return
        if not rows:
            remote.post(f"runs/{found.id}/resume", {})
        _follow(store, found, settings, quiet, output, began)


def retry_there(name: str, settings: Settings, quiet: bool, output: str) -> None:
    began = time.monotonic()
    with stores.open_existing(settings) as store:
        found = run_records.find(store, name)
        if found.state == "succeeded":
            refuse_final(found, "run it again")
        if found.state not in FINAL:
            message = f"{found.id} is not over: {run_records.state_of(store, found)}"
            raise RunConflict(Problem("P413", message, f"penstock resume {found.id}"))
        connection(settings.server).post(f"runs/{found.id}/retry")
        _follow(store, found, settings, quiet, output, began, since=found.seq)


def cancel_there(name: str, now: bool, settings: Settings, output: str) -> None:
    with stores.open_existing(settings) as store:
        found = run_records.find(store, name)
        refuse_final(found, "there is nothing left to cancel")
        connection(settings.server).post(f"runs/{found.id}/cancel", {"now": now})
        follower = RunFollower(store, found)
        while follower.run.state not in FINAL:
            time.sleep(LOOK)
            follower.news()
        state = follower.run.state
    render.result(output, {"run": found.id, "state": state}, f"{found.id} {state}")


# -- following --------------------------------------------------------------------------------------------------------


def _follow(
    store: Store, run: RunRecord, settings: Settings, quiet: bool, output: str, began: float, since: int = -1
) -> None:
    """Until it is over; then its result, and the exit code. `since`: the number of the event after which it is to be over."""
    stop = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    follower = RunFollower(store, run)

    def over() -> bool:
        return stop.is_set() or (follower.run.state in FINAL and follower.run.seq > since)

    try:
        if quiet:
            _wait(follower, over)
        else:
            with Progress(run.id, run_records.workflow_of(store, run)) as progress:
                draw(store, follower, progress, over)
    finally:
        signal.signal(signal.SIGINT, before)
    place = f"{connection(settings.server).base}/runs/{run.id}"
    if stop.is_set():
        render.note(f"{run.id} goes on there: {place}")
        raise click.exceptions.Exit(130)
    view = overview(store, follower.run, settings)
    end = RunEnd(
        run=run.id,
        state=view.state,
        seconds=time.monotonic() - began,
        counts=view.run.counts,
        outputs=view.outputs,
        failures=view.failures,
    )
    run_summary(end, settings, quiet, output)
    if not quiet and output != "json":
        render.note(f"  page   {place}")
    if view.state != "succeeded":
        raise click.exceptions.Exit(3)


def _wait(follower: RunFollower, over: Callable[[], Any]) -> None:
    while not over():
        time.sleep(LOOK)
        follower.news()
