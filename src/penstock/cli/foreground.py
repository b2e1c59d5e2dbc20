"""Executing runs in this process: start or continue one, handle Ctrl-C, show progress, print the result. Called by the commands run, resume,
retry and cancel, which import it when they run.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from penstock.backends.registry import check as check_backends
from penstock.backends.registry import find_backend, kinds_for
from penstock.cli.collecting import collect_garbage
from penstock.cli.ui import errors, render
from penstock.cli.ui.run_summary import RunEnd, run_summary
from penstock.cli.ui.tracking import tracking_line
from penstock.engine.follow import FOLLOW
from penstock.errors import Problem, UserError, nearest
from penstock.graph.model import ACTIONS, Workflow
from penstock.plan.make import uninterrupted
from penstock.service import access, parameters, requests, run_records, runs, stores, workflows
from penstock.service.callbacks.entries import KIND, with_urls
from penstock.service.hosting import Host
from penstock.service.run_records import RunConflict
from penstock.service.submission import Submission, is_linked, local_actor, user
from penstock.service.tracking import rest
from penstock.service.views.outputs import shown_outputs
from penstock.settings import Settings
from penstock.store import liveness
from penstock.store.records import FINAL, RunRecord
from penstock.store.sql import Store

if TYPE_CHECKING:
    from penstock.formats.report import Report

DIFFERENCES = 10
"""Of a foreign workflow: so many are listed before it runs."""
_KINDS = [kind for kind in ACTIONS if kind not in ("workflow", "suspend")]


# -- run --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ForegroundOptions:
    """What the options of `penstock run` ask for."""

    given: Sequence[str] = ()
    """Parameters: `key=value`."""
    submission: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of Submission."""
    on: Sequence[str] = ()
    """`KIND=BACKEND` or `BACKEND`."""
    new: bool = False
    """Do not continue an interrupted run."""
    detach: bool = False
    callbacks: Sequence[str] = ()
    """URLs that are told how the run has ended."""

    @property
    def dry(self) -> bool:
        return bool(self.submission.get("dry"))


def run_file(
    file: str, options: ForegroundOptions, settings: Settings, quiet: bool, output: str, engine: str = ""
) -> None:
    """`engine`: the id for the engine, if its first worker has been started already."""
    targets = workflows.targets_in(file)
    if len(targets) == 1:
        _run_one(file, options, settings, quiet, output, engine)
        return
    worst = 0
    for target in targets:
        if not quiet:
            render.note(f"{target}:")
        try:
            _run_one(target, options, settings, quiet, output)
        except click.exceptions.Exit as over:
            worst = max(worst, over.exit_code)
    if worst:
        raise click.exceptions.Exit(worst)


def _run_one(
    file: str, options: ForegroundOptions, settings: Settings, quiet: bool, output: str, engine: str = ""
) -> None:
    with uninterrupted():
        workflow, report = workflows.load_with_report(file)
    workflow = with_urls(workflow, options.callbacks)
    on = backends(options.on)
    if report is not None and not options.dry:
        _tell_of_foreign(workflow, report, file, quiet)
    if not options.dry and "container" not in on:
        on = _backends_of_images(workflow, on, settings, quiet, foreign=report is not None)
    if not options.dry:
        check_backends(set(on.values()), settings.home, settings.artifacts, os.environ)
    values = parameters.parse(workflow, options.given)
    submission = Submission(workflow, values, file=file, on=on, scheduler=settings.scheduler, **options.submission)
    functions = submission.pack(settings)
    if options.detach:
        _run_in_background(submission, settings, options.new, output)
        return
    host = Host(settings, submission.options.get("on"), id=engine)

    def follow(session: runs.HostedRun, signals: StopSignals) -> None:
        _tell_of_queues(submission, quiet)
        errors.problems(submission.warnings)
        if session.run.seq > 1 and not quiet:
            render.note(f"continuing {session.run.id}, which was interrupted   (--new starts another run instead)")
        _follow(session, signals, submission.workflow, settings, quiet, output)

    _execute(host, lambda: runs.begin(host, submission, functions, again=not options.new), follow)


def _run_in_background(submission: Submission, settings: Settings, new: bool, output: str) -> None:
    with stores.open_or_create(settings) as store:
        warnings = submission.vet(store)
        _tell_of_queues(submission, output == "json")
        errors.problems(warnings)
        run = (None if new else submission.unfinished(store)) or submission.record(store)
    pid = runs.spawn(settings, run.id)
    render.result(output, {"run": run.id, "pid": pid}, run.id)
    if output != "json":
        render.note(f"{run.id} runs in the background (process {pid}); penstock watch {run.id}")


def _tell_of_queues(submission: Submission, quiet: bool) -> None:
    changed = submission.changed_queues
    if changed and not quiet:
        more = f" and {len(changed) - 6} more" if len(changed) > 6 else ""
        file = submission.queues or "penstock.yaml"
        render.note(f"{file} changed the queues of this store: {', '.join(changed[:6])}{more}")


def backends(given: Sequence[str]) -> dict[str, str]:
    """`KIND=BACKEND` or `BACKEND` -> kind of step -> backend. Raises UserError. Also called by `remote`."""
    found: dict[str, str] = {}
    for item in given:
        kind, equals, name = item.partition("=")
        if not equals:
            found.update(dict.fromkeys(kinds_for(kind), kind))
        elif kind not in _KINDS or not name:
            fix = f"known: {', '.join(_KINDS)}.{nearest(kind, _KINDS)}"
            raise UserError(Problem("P409", f"--on {item}: {kind!r} is not a kind of step", fix))
        else:
            find_backend(name)
            found[kind] = name
    return found


def _tell_of_foreign(workflow: Workflow, report: Report, file: str, quiet: bool) -> None:
    """Raises UserError if a step cannot be run on this machine at all, or no cluster would take the document."""
    from penstock.service.manifests import unrunnable

    errors.entries(workflows.unknown_fields(file))
    problems = [*workflows.refused(file), *unrunnable(workflow)]
    if problems:
        raise UserError(problems)
    differs = [*report.of("lost"), *report.of("changed")]
    if differs and not quiet:
        many = f"{len(differs)} things are" if len(differs) > 1 else "one thing is"
        render.note(f"{many} different here:")
        errors.entries(differs[:DIFFERENCES])
        if len(differs) > DIFFERENCES:
            rest = len(differs) - DIFFERENCES
            render.note(f"… {rest} more; penstock convert {file} --to penstock -o /dev/null lists them")


def _backends_of_images(
    workflow: Workflow, on: dict[str, str], settings: Settings, quiet: bool, foreign: bool
) -> dict[str, str]:
    """Steps with an image run in it. If podman or docker cannot run it, the user is asked whether its commands may run on this machine,
    as the user, with all the user may do. Raises UserError if they may not."""
    from penstock.service import images

    named = images.images_of(workflow)
    if not named:
        return on
    # A manifest's images are pulled before anything runs; those of an author's own workflow when they are needed.
    why = images.why_not_runnable(
        named if foreign else (), lambda image: None if quiet else render.note(f"pulling {image}")
    )
    if not why:
        return on
    if not images.may_use_host(settings):
        question = f"{why}. Run the commands on this machine instead, as you, without their images?"
        images.allow_host(settings, render.confirmed(question), why)
    if not quiet:
        render.note(f"{why}: commands run on this machine, not in their images   (--on container=container insists)")
    return {**on, "container": "process"}


# -- resume, retry, cancel --------------------------------------------------------------------------------------------


def resume_run(target: str, given: tuple[str, ...], settings: Settings, quiet: bool, output: str) -> None:
    name, path = run_records.split_target(target)
    with stores.open_existing(settings) as store:
        found = run_records.find(store, name)
        if found.state in FINAL and not path and _is_left(store, found):
            _go_on_with_chain(found, settings, quiet, output)
            return
        if found.state in FINAL and not path and rest.is_left(store, found):
            place = rest.tell_rest(settings, store, found)
            render.result(output, {"run": found.id, "mlflow": place}, place)
            return
        access.check_run(store, found, local_actor(), "resume")
        refuse_final(found, "retry it" if found.state != "succeeded" else "run it again")
        workflow = run_records.workflow_of(store, found)
        alive = _is_owned(store, found)
        rows = requests.suspended_tasks(store, found, path) if alive or path else []
        outputs = requests.values_for(store, found, workflow, rows, given, alive)
        if alive:
            for task, values in outputs.items():
                requests.ask(store, found, "resume", {"task": task, "outputs": values})
            render.result(output, {"run": found.id, "resumed": list(outputs)}, f"resumed {', '.join(outputs)}")
            return
    host = Host(settings, found.options.get("on"))
    _execute(
        host,
        lambda: runs.go_on(host, found.id, resumed=outputs),
        lambda session, signals: _follow(session, signals, workflow, settings, quiet, output),
    )


def _is_left(store: Store, run: RunRecord) -> bool:
    """Of its chain."""
    if not is_linked(run):
        return False
    from penstock.service.chain_runs import left

    return left(store, run)


def _go_on_with_chain(run: RunRecord, settings: Settings, quiet: bool, output: str) -> None:
    """With what follows from a run that is over."""
    host = Host(settings, run.options.get("on"))
    with StopSignals() as signals:
        try:
            worst = _rest_of_chain(host, run, signals, settings, quiet, output, 0)
            host.end()
            host.close()
        except BaseException:
            host.abandon()
            host.close()
            raise
    if worst:
        raise click.exceptions.Exit(worst)


def retry_run(name: str, settings: Settings, quiet: bool, output: str) -> None:
    with stores.open_existing(settings) as store:
        found = run_records.find(store, name)
        access.check_run(store, found, local_actor(), "retry")
        if found.state == "succeeded":
            refuse_final(found, "run it again")
        if found.state not in FINAL:
            message = f"{found.id} is not over: {run_records.state_of(store, found)}"
            raise RunConflict(Problem("P413", message, f"penstock resume {found.id}"))
        workflow = run_records.workflow_of(store, found)
    host = Host(settings, found.options.get("on"))
    _execute(
        host,
        lambda: runs.go_on(host, found.id, retried=user() or "somebody"),
        lambda session, signals: _follow(session, signals, workflow, settings, quiet, output),
    )


def cancel_run(name: str, now: bool, settings: Settings, output: str) -> None:
    with stores.open_existing(settings) as store:
        found = run_records.find(store, name)
        access.check_run(store, found, local_actor(), "cancel")
        refuse_final(found, "there is nothing left to cancel")
        why = f"cancelled by {user() or 'somebody'}"
        if _is_owned(store, found):
            requests.ask(store, found, "cancel", {"message": why, "now": now})
            while (current := store.runs.by_number(found.number)) is not None and current.state not in FINAL:
                if run_records.owner_alive(store, current) is False:
                    break
                time.sleep(0.05)
            if current is not None and current.state in FINAL:
                render.result(output, {"run": found.id, "state": current.state}, f"{found.id} {current.state}")
                return
    host = Host(settings, found.options.get("on"))

    def wait(session: runs.HostedRun, _: StopSignals) -> None:
        session.wait()
        host.close()
        render.result(output, {"run": found.id, "state": session.state}, f"{found.id} {session.state}")

    _execute(host, lambda: runs.go_on(host, found.id, cancelled=why, now=now), wait)


def _is_owned(store: Store, found: RunRecord) -> bool:
    """Does a living engine own the run? May wait for its heartbeat."""
    if run_records.owner_alive(store, found) is None:
        who = run_records.owned_problem(store, found).message
        render.note(f"{who}; waiting for its heartbeat, at most {liveness.PATIENCE:g} s")
    return run_records.watch_owner(store, found)


def refuse_final(found: RunRecord, fix: str) -> None:
    """Raises RunConflict. Also called by `remote`."""
    if found.state in FINAL:
        word = "was cancelled" if found.state == "cancelled" else found.state
        raise RunConflict(Problem("P413", f"{found.id} is over: it {word}", fix))


# -- an engine in this process ----------------------------------------------------------------------------------------


class StopSignals:
    """SIGINT (Ctrl-C) and SIGTERM while a run is executed: the first lets running tasks finish, the second ends them.

    The handler raises no exception once the run has started: a second signal may arrive while the first is handled, and an exception
    there would leave processes behind. Before that, the second signal raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.count = 0
        self._session: runs.HostedRun | None = None

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def started(self, session: runs.HostedRun) -> None:
        self._session = session
        if self.count:
            session.interrupt()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self._session is None:
            if self.count > 1:
                raise KeyboardInterrupt
        elif self.count == 1:
            self._session.interrupt()
        else:
            self._session.abandon()


def _execute(
    host: Host, begin: Callable[[], runs.HostedRun], then: Callable[[runs.HostedRun, StopSignals], None]
) -> None:
    """Start the run, then follow it. After an exception the engine is stopped in order."""
    with StopSignals() as signals:
        try:
            session = begin()
            signals.started(session)
            then(session, signals)
        except BaseException:
            host.abandon()
            host.close()
            raise


def _follow(
    session: runs.HostedRun, signals: StopSignals, workflow: Workflow, settings: Settings, quiet: bool, output: str
) -> None:
    """Show the progress until the run is over, print the result, and end with the exit code of the run."""
    collect_garbage()
    host, followed = session.host, is_linked(session.run)
    worst = _watch(session, signals, workflow, settings, quiet, output, followed)
    if followed:
        worst = _rest_of_chain(host, session.run, signals, settings, quiet, output, worst)
        host.end()
    host.close()
    if session.run.options.get(FOLLOW):
        _tell_of_callbacks(session, settings)
    told = None if quiet else host.told(session.run.number)
    if told is not None:
        render.note(tracking_line(told, session.run.id))
    if session.live.error is not None:
        raise RunConflict(Problem("P411", str(session.live.error), f"penstock watch {session.run.id}"))
    if worst:
        raise click.exceptions.Exit(worst)


def _rest_of_chain(
    host: Host, first: RunRecord, signals: StopSignals, settings: Settings, quiet: bool, output: str, worst: int
) -> int:
    """The runs that follow by links, one after another; they may be executed at the same time. Returns the exit code."""
    from penstock.service.chain_runs import ChainFollower

    for session in ChainFollower(host, settings, first.number).sessions(lambda: bool(signals.count)):
        with stores.open_existing(settings) as store:
            workflow = run_records.workflow_of(store, session.run)
        signals.started(session)
        worst = max(worst, _watch(session, signals, workflow, settings, quiet, output, True))
    if not quiet:
        from penstock.cli.ui.lineage import not_started

        with stores.open_existing(settings) as store:
            not_started(store, first)
    return worst


def _watch(
    session: runs.HostedRun,
    signals: StopSignals,
    workflow: Workflow,
    settings: Settings,
    quiet: bool,
    output: str,
    keep: bool,
) -> int:
    """`keep`: the engine has more to do afterwards. Returns the exit code of the run."""
    from penstock.cli.ui.progress import Progress

    began = time.monotonic()
    progress = None if quiet else Progress(session.run.id, workflow)
    waits = _LiveWaits(session, settings)
    note = render.note if progress is None else progress.note
    shown: set[str] = set()

    def update(final: bool = False) -> None:
        for path, text in session.asking().items():
            if path not in shown:
                shown.add(path)
                note(text)
        if progress is not None and (final or progress.due):
            now = session.progress()
            texts = {} if final else waits.texts()
            progress.update(now.tallies, now.times, time.monotonic() - began, now.state, texts)

    stopping = False
    try:
        while not session.wait(0.1):
            if signals.count and not stopping:
                stopping = True
                _note_stopping(session, note)
            update()
        if not keep:
            session.host.end()
    finally:
        waits.close()
        if progress is not None:
            update(final=True)
            progress.close()
    session.wait(0)
    run_summary(_end(session, time.monotonic() - began), settings, quiet, output)
    return 0 if session.state == "succeeded" else 130 if session.state == "stopped" else 3


def _tell_of_callbacks(session: runs.HostedRun, settings: Settings) -> None:
    with stores.open_existing(settings) as store:
        many, due = store.deliveries.left(session.run.number, KIND)
    if many:
        wait = f", the first in {render.duration(due - time.time())}" if due > time.time() + 1 else ""
        render.note(f"{render.plural(many, 'callback')} still to be delivered{wait}: penstock callbacks deliver")


def _end(session: runs.HostedRun, seconds: float) -> RunEnd:
    live = session.live
    return RunEnd(
        run=session.run.id,
        state=session.state,
        seconds=seconds,
        counts=live.counts,
        outputs=shown_outputs(live.outputs_text),
        failures=live.failures,
        why=live.why,
    )


def _note_stopping(session: runs.HostedRun, note: Callable[[str], None]) -> None:
    running = sum(tally.get("running", 0) for tally in session.progress().tallies.values())
    what = f"waiting for {running} running task{'s' if running != 1 else ''}; " if running else ""
    note(f"stopping: {what}Ctrl-C again ends now")


class _LiveWaits:
    """The waits of a run that this process executes. The store is opened a second time for them, once something waits."""

    def __init__(self, session: runs.HostedRun, settings: Settings) -> None:
        self.session = session
        self.settings = settings
        self._store: Store | None = None
        self._texts: Callable[[], Mapping[str, str]] | None = None

    def texts(self) -> Mapping[str, str]:
        if self._texts is None:
            if not self.session.has_waits:
                return {}
            from penstock.service.views.waiting import WaitWatcher

            self._store = stores.open_or_create(self.settings)
            self._texts = WaitWatcher(self._store, self.session.run).texts
        return self._texts()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
