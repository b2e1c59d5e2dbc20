"""Executing runs in this process: start one, continue one, own one. Called by the commands run, resume, retry and cancel, by
LocalRunner and by run_virtually.

A run is recorded before anything is executed, so starting and continuing are the same: an engine takes ownership of the run and
replays its log. `HostedRun` is such a run together with the engine that executes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock import rights
from penstock.engine.active_run import ActiveRun
from penstock.engine.blueprint import blueprints
from penstock.engine.engine import Engine
from penstock.engine.follow import FOLLOW
from penstock.errors import Problem
from penstock.plan.make import uninterrupted
from penstock.service import secrets, stores
from penstock.service.hosting import Host
from penstock.service.run_records import (
    RunConflict,
    blueprint_of,
    find,
    owned_problem,
    owner_alive,
    params_of,
    workflow_of,
)
from penstock.service.submission import Functions, Submission
from penstock.settings import Settings
from penstock.store.records import FINAL, RunRecord
from penstock.store.sql import Store


class RunProgress(NamedTuple):
    """How far a run has come. Belongs to the caller: the engine does not change it."""

    state: str
    tallies: dict[str, dict[str, int]]
    """Step path -> number of tasks by state; under `tasks`, how many tasks a looped step has in all."""
    times: dict[str, list[float]]
    """Step path -> when its first task started and when its last ended."""


class HostedRun:
    """A run that this process executes."""

    def __init__(self, host: Host, live: ActiveRun) -> None:
        self.host = host
        self.live = live

    @property
    def run(self) -> RunRecord:
        return self.live.record

    def wait(self, timeout: float | None = None) -> bool:
        """True once the run is over. Raises what ended the engine."""
        return self.host.wait(self.live, timeout)

    @property
    def state(self) -> str:
        return self.live.status

    def progress(self) -> RunProgress:
        """A snapshot. The engine's thread changes its dictionaries at any time; `copy` of a dict is one step for other threads, and
        iterating over it is not."""
        live = self.live
        tallies = {step: tally.copy() for step, tally in live.progress.copy().items()}
        return RunProgress(live.status, tallies, live.times.copy())

    def asking(self) -> dict[str, str]:
        """Suspended tasks that wait to be resumed: path -> what to show the user."""
        return self.live.prompts.copy()

    @property
    def has_waits(self) -> bool:
        """May something wait in a queue or for a lock now?"""
        engine = self.host.engine
        return engine is not None and engine.waits and not self.live.finished.is_set()

    def interrupt(self) -> None:
        """Let running tasks finish, start nothing more."""
        self.host.interrupt()

    def abandon(self) -> None:
        """End running tasks now."""
        self.host.abandon()


def begin(host: Host, submission: Submission, functions: Functions, again: bool = True) -> HostedRun:
    """Record a new run and start it. `again`: if the last run of the same workflow was interrupted, continue that one instead."""
    with uninterrupted():
        ready = blueprints(submission.workflow, submission.links)

    def start(engine: Engine, store: Store) -> ActiveRun:
        submission.warnings = submission.vet(store, cluster=engine.cluster)
        run = submission.unfinished(store) if again else None
        run = run or submission.record(store)
        return engine.adopt(own(store, engine.me.id, run), ready, submission.params)

    return _hosted(host, host.take(start, functions))


def go_on(
    host: Host,
    id: str,
    retried: str = "",
    cancelled: str = "",
    now: bool = False,
    resumed: Mapping[str, Any] | None = None,
) -> HostedRun:
    """Continue a run that no engine owns. `retried`: the user who retries what failed. `cancelled`: why it is to be cancelled; with
    `now`, at once. `resumed`: suspended task -> its outputs."""

    def start(engine: Engine, store: Store) -> ActiveRun:
        run = find(store, id)
        if run.state in FINAL and not retried:  # it ended after the caller looked
            raise RunConflict(Problem("P413", f"{run.id} is over: it {run.state}", f"penstock show {run.id}"))
        if run.options.get("secrets") and not run.options.get("dry") and not cancelled:
            secrets.check(workflow_of(store, run), run.options["secrets"])
        run = own(store, engine.me.id, run)
        live = engine.adopt(run, blueprint_of(store, run), params_of(run), retried)
        if cancelled:
            engine.cancel(live, cancelled, now)
        for path, outputs in (resumed or {}).items():
            engine.resume(live, path, outputs)
        return live

    return _hosted(host, host.take(start))


def _hosted(host: Host, live: ActiveRun) -> HostedRun:
    """What follows from its end is done beside the engine."""
    follows = FOLLOW in live.record.options or live.state.blueprint.awaiting
    if follows and host.beside is None:
        from penstock.service.couriers import Couriers

        host.beside = Couriers(host.settings)
        host.beside.start()
    return HostedRun(host, live)


def own(store: Store, engine: str, run: RunRecord) -> RunRecord:
    """Make this engine (its id) the owner of a run. Raises RunConflict if another engine owns it."""
    if run.state not in FINAL and run.engine and run.engine != engine and owner_alive(store, run) is not False:
        raise RunConflict(owned_problem(store, run))
    if not store.runs.take(run.number, engine, run.engine):
        current = store.runs.by_number(run.number) or run
        raise RunConflict(owned_problem(store, current))
    found = store.runs.by_number(run.number)
    assert found is not None
    if found.state in FINAL and run.state not in FINAL:  # its engine ended it after the caller looked, and let go of it
        store.runs.release(run.number, engine, found.state)
        raise RunConflict(Problem("P413", f"{run.id} is over: it {found.state}", f"penstock show {run.id}"))
    return found


def spawn(settings: Settings, id: str) -> int:
    """Execute a recorded run in a new process that outlives this one. Returns its pid."""
    import subprocess
    import sys

    log = settings.home / "logs" / f"{id}.engine.log"
    rights.make_folder(log.parent)
    words = [sys.executable, "-m", "penstock", "resume", id, "--quiet", "-j", str(settings.jobs)]
    with open(log, "ab", opener=rights.opener) as out:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=stores.child_environment(settings),
            start_new_session=True,
        )
    process.returncode = 0  # tells Popen not to warn that nobody waited for it
    return process.pid
