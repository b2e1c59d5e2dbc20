"""What run, resume, retry and cancel do. Called by act, which is only the way to call them, so that a worker can start while
all this is still being imported.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from penstock import service
from penstock.backends.base import find_backend
from penstock.cli import render
from penstock.errors import Problem, UserError, nearest
from penstock.formats.report import Report
from penstock.graph.model import ACTIONS, Workflow
from penstock.plan.make import uninterrupted
from penstock.service import runs
from penstock.service.hosting import Host
from penstock.settings import Settings, read
from penstock.store import liveness
from penstock.store.base import FINAL, Run
from penstock.store.sql import Store

_KINDS = [kind for kind in ACTIONS if kind not in ("workflow", "suspend")]


def run(
    file: str, given: tuple[str, ...], until: tuple[str, ...], fail_fast: bool, fresh: bool, new: bool, detach: bool, dry: bool,
    asked: Mapping[str, str | None], jobs: int | None, on: tuple[str, ...], quiet: bool, output: str, engine: str = "",
) -> None:  # fmt: skip
    """`asked`: queue, priority, unit and queues. `engine`: the id that the engine will have, if its first worker has been started."""
    several = service.workflows_in(file)
    if len(several) > 1:
        worst = 0
        for target in several:
            if not quiet:
                render.note(f"{target}:")
            try:
                run(target, given, until, fail_fast, fresh, new, detach, dry, asked, jobs, on, quiet, output)
            except click.exceptions.Exit as over:
                worst = max(worst, over.exit_code)
        if worst:
            raise click.exceptions.Exit(worst)
        return
    settings = read(jobs=jobs)
    with uninterrupted():
        workflow, report = service.load_with_report(file)
    places = _backends(on)
    if report is not None and not dry:
        places = _on_this_machine(workflow, report, places, file, quiet)
    submission = runs.Submission(
        workflow,
        service.parameters(workflow, given),
        file=file,
        until=until,
        fail_fast=fail_fast,
        fresh=fresh,
        dry=dry,
        on=places,
        **asked,
    )
    functions = submission.pack(settings)
    if detach:
        with runs.open_here(settings) as store:
            _warn(submission.vet(store))
            made = (None if new else submission.unfinished(store)) or submission.record(store)
        pid = runs.spawn(settings, made.id)
        if output == "json":
            render.json_out({"run": made.id, "pid": pid})
        else:
            click.echo(made.id)
            render.note(f"{made.id} runs in the background (process {pid}); penstock watch {made.id}")
        return
    host = Host(settings, submission.options.get("on"), id=engine)

    def follow(session: runs.Session, presses: _Presses) -> None:
        _warn(submission.warnings)
        if session.run.seq > 1 and not quiet:
            render.note(f"continuing {session.run.id}, which was interrupted   (--new starts another run instead)")
        _follow(session, presses, submission.workflow, settings, quiet, output)

    _begun(host, lambda: runs.begin(host, submission, functions, again=not new), follow)


def _on_this_machine(
    workflow: Workflow, report: Report, places: dict[str, str], file: str, quiet: bool
) -> dict[str, str]:
    """Where the steps of a foreign workflow run: in their images if something here can run them, else as plain commands. Refuses what
    cannot be run here at all."""
    from penstock.service.foreign import images_of, unrunnable, why_no_images

    render.entries(service.misspelt(file))
    problems = list(unrunnable(workflow))
    if problems:
        raise UserError(problems)
    differs = [*report.of("lost"), *report.of("changed")]
    if differs and not quiet:
        many = f"{len(differs)} things are" if len(differs) > 1 else "one thing is"
        render.note(f"{many} different here; penstock convert {file} --to penstock -o /dev/null says which")
    if "container" in places:
        return places
    images = images_of(workflow)
    why = why_no_images(images, lambda image: None if quiet else render.note(f"pulling {image}")) if images else ""
    if why and not quiet:
        render.note(f"{why}: commands run on this machine, not in their images   (--on container=container insists)")
    return {**places, "container": "process"} if why else places


def _warn(problems: Sequence[Problem]) -> None:
    for problem in problems:
        render.problem(problem)


def resume(target: str, given: tuple[str, ...], jobs: int | None, quiet: bool, output: str) -> None:
    settings = read(jobs=jobs)
    name, path = runs.split(target)
    with runs.open_here(settings) as store:
        found = runs.find(store, name)
        _refuse_final(found, "retry it" if found.state != "succeeded" else "run it again")
        workflow = runs.workflow_of(store, found)
        alive = _is_alive(store, found)
        rows = runs.suspended(store, found, path) if alive or path else []
        if alive and not rows:
            raise runs.Refused(
                Problem(
                    "P411",
                    f"{runs.busy(store, found).message}, and none of its steps waits to be resumed",
                    f"penstock watch {found.id}",
                )
            )
        if given and len(rows) > 1:
            names = ", ".join(row.task for row in rows)
            raise UserError(
                Problem(
                    "P409", f"several steps wait: {names}", f"say which: penstock resume {found.id}/{rows[0].task} -p …"
                )
            )
        outputs = {row.task: runs.resume_outputs(workflow, row, given) for row in rows}
        if alive:
            for task, values in outputs.items():
                runs.ask(store, found, "resume", {"task": task, "outputs": values})
            _say(output, {"run": found.id, "resumed": list(outputs)}, f"resumed {', '.join(outputs)}")
            return
    host = Host(settings, found.options.get("on"))
    _begun(
        host,
        lambda: runs.go_on(host, found.id, resumed=outputs),
        lambda session, presses: _follow(session, presses, workflow, settings, quiet, output),
    )


def retry(name: str, jobs: int | None, quiet: bool, output: str) -> None:
    settings = read(jobs=jobs)
    with runs.open_here(settings) as store:
        found = runs.find(store, name)
        if found.state == "succeeded":
            _refuse_final(found, "run it again")
        if found.state not in FINAL:
            raise runs.Refused(
                Problem("P413", f"{found.id} is not over: {runs.state_of(store, found)}", f"penstock resume {found.id}")
            )
        workflow = runs.workflow_of(store, found)
    host = Host(settings, found.options.get("on"))
    _begun(
        host,
        lambda: runs.go_on(host, found.id, retried=runs.user() or "somebody"),
        lambda session, presses: _follow(session, presses, workflow, settings, quiet, output),
    )


def cancel(name: str, now: bool, output: str) -> None:
    settings = read()
    with runs.open_here(settings) as store:
        found = runs.find(store, name)
        _refuse_final(found, "there is nothing left to cancel")
        why = f"cancelled by {runs.user() or 'somebody'}"
        if _is_alive(store, found):
            runs.ask(store, found, "cancel", {"message": why, "now": now})
            while (current := store.run_by_number(found.number)) is not None and current.state not in FINAL:
                if runs.owner_alive(store, current) is False:
                    break
                time.sleep(0.05)
            if current is not None and current.state in FINAL:
                _say(output, {"run": found.id, "state": current.state}, f"{found.id} {current.state}")
                return
    host = Host(settings, found.options.get("on"))

    def wait(session: runs.Session, _: _Presses) -> None:
        session.wait()
        host.close()
        _say(output, {"run": found.id, "state": session.state}, f"{found.id} {session.state}")

    _begun(host, lambda: runs.go_on(host, found.id, cancelled=why, now=now), wait)


def _is_alive(store: Store, found: Run) -> bool:
    if runs.owner_alive(store, found) is None:
        render.note(f"{runs.busy(store, found).message}; waiting for a sign of life, at most {liveness.PATIENCE:g} s")
    return runs.owner_watched(store, found)


class _Presses:
    """Ctrl-C and SIGTERM, from before a run begins until it is over: the first lets what runs finish, the second ends it now.

    No exception, and nothing that may not be interrupted: the second comes while the first is being dealt with, and then
    processes would be left behind. Only as long as nothing has begun the second ends everything by an exception."""

    def __init__(self) -> None:
        self.count = 0
        self.session: runs.Session | None = None

    def __enter__(self) -> _Presses:
        self._before = {number: signal.signal(number, self._press) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def begun(self, session: runs.Session) -> None:
        self.session = session
        if self.count:
            session.interrupt()

    def _press(self, number: int, frame: object) -> None:
        self.count += 1
        if self.session is None:
            if self.count > 1:
                raise KeyboardInterrupt
        elif self.count == 1:
            self.session.interrupt()
        else:
            self.session.abandon()


def _begun(host: Host, begin: Callable[[], runs.Session], then: Callable[[runs.Session, _Presses], None]) -> None:
    """Begin, and go on from there. If something goes wrong, the engine is ended in order first."""
    with _Presses() as presses:
        try:
            session = begin()
            presses.begun(session)
            then(session, presses)
        except BaseException:
            host.abandon()
            host.close()
            raise


def _backends(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in given:
        kind, equals, name = item.partition("=")
        if not equals:
            find_backend(kind)
            found.update(dict.fromkeys(_KINDS, kind))
        elif kind not in _KINDS or not name:
            raise UserError(
                Problem(
                    "P409",
                    f"--on {item}: {kind!r} is not a kind of step",
                    f"known: {', '.join(_KINDS)}.{nearest(kind, _KINDS)}",
                )
            )
        else:
            find_backend(name)
            found[kind] = name
    return found


def _refuse_final(found: Run, fix: str) -> None:
    if found.state in FINAL:
        raise runs.Refused(Problem("P413", f"{found.id} is over: it {_past(found.state)}", fix))


def _past(state: str) -> str:
    return {"cancelled": "was cancelled"}.get(state, state)


def _say(output: str, data: Mapping[str, Any], text: str) -> None:
    if output == "json":
        render.json_out(data)
    else:
        click.echo(text)


# -- following ------------------------------------------------------------------------------------------------------------


def _follow(
    session: runs.Session, presses: _Presses, workflow: Workflow, settings: Settings, quiet: bool, output: str
) -> None:
    """Draw the run until it is over, then say how it went and end with its exit code."""
    from penstock.cli.progress import Progress

    gc.freeze()
    gc.enable()
    began = time.monotonic()
    live = session.live
    progress = None if quiet else Progress(session.run.id, workflow)
    line = _Line(session, settings)
    told = False

    said: set[str] = set()
    note = render.note if progress is None else progress.note

    def update() -> None:
        for path, text in list(live.asking.items()):
            if path not in said:
                said.add(path)
                note(text)
        if progress is not None:
            progress.update(live.progress, live.times, time.monotonic() - began, live.state, line.texts())

    try:
        while not session.wait(0.1):
            if presses.count and not told:
                told = True
                _stopping(session, note)
            update()
        session.host.close()
    finally:
        line.close()
        if progress is not None:
            update()
            progress.close()
    session.wait(0)
    _summary(session, settings, time.monotonic() - began, quiet, output)
    if live.error is not None:
        raise runs.Refused(Problem("P411", str(live.error), f"penstock watch {session.run.id}"))
    if session.state != "succeeded":
        raise click.exceptions.Exit(130 if session.state == "stopped" else 3)


class _Line:
    """What of a run in our own hands stands in a queue. The store is read a second time for it, once something does."""

    def __init__(self, session: runs.Session, settings: Settings) -> None:
        self.session = session
        self.settings = settings
        self._store: Store | None = None
        self._looking: Any = None

    def texts(self) -> Mapping[str, str]:
        if self._looking is None:
            engine = self.session.host.engine
            if engine is None or not (engine.lots or engine.waits_for_locks) or self.session.live.finished.is_set():
                return {}
            from penstock.service.why import InLine

            self._store = runs.open_here(self.settings)
            self._looking = InLine(self._store, self.session.run)
        found: Mapping[str, str] = self._looking.texts() if self._store is not None else {}
        return found

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


def _stopping(session: runs.Session, note: Callable[[str], None]) -> None:
    running = sum(tally.get("running", 0) for tally in session.live.progress.values())
    what = f"waiting for {running} running task{'s' if running != 1 else ''}; " if running else ""
    note(f"stopping: {what}Ctrl-C again ends now")


def _summary(session: runs.Session, settings: Settings, seconds: float, quiet: bool, output: str) -> None:
    live = session.live
    outputs = service.shown_outputs(live.outputs_text)
    if output == "json":
        counts = {state: many for state, many in live.counts.items() if many}
        failures = [{"task": path, **data} for path, data in live.failures]
        data = {
            "run": session.run.id,
            "state": session.state,
            "seconds": round(seconds, 3),
            "tasks": counts,
            "outputs": outputs,
            "failures": failures,
        }
        render.json_out(data)
        return
    for name, value in outputs.items():
        click.echo(f"{name}: {value}")
    if session.state in ("failed", "cancelled") and live.failures:
        from penstock.cli.failures import failure_lines

        failure_lines(session.run.id, live.failures, settings)
    elif session.state == "failed" and live.why:
        render.note(f"✗ {live.why}")
    if not quiet:
        for line in _last_words(session, settings, seconds):
            render.note(line)


def _last_words(session: runs.Session, settings: Settings, seconds: float) -> list[str]:
    counts = session.live.counts
    total = {state: counts.get(state, 0) for state in ("succeeded", "reused", "failed", "errored")}
    done = total["succeeded"] + total["reused"]
    parts = [f"{done:,} task{'s' if done != 1 else ''} done"] + (
        [f"{total['reused']:,} of them reused"] if total["reused"] else []
    )
    if total["failed"] + total["errored"]:
        parts.append(f"{total['failed'] + total['errored']:,} failed")
    id, place = session.run.id, runs.place_of(settings)
    mark, word, colour = {
        "succeeded": ("✓", "done", "green"), "failed": ("✗", "failed", "red"), "cancelled": ("✗", "cancelled", "yellow"),
    }.get(session.state, ("⏸", "stopped", "yellow"))  # fmt: skip
    head = render.paint(f"{mark} {id}", sys.stderr, fg=colour, bold=True)
    lines = [f"{head} {word} in {render.duration(seconds)} · {', '.join(parts)} · kept in {place}"]
    if session.state == "succeeded":
        lines.append("  next   penstock show @   penstock show @ --gantt   penstock ls")
    elif session.state == "stopped":
        lines.append(f"  next   penstock resume {id}")
    return lines
