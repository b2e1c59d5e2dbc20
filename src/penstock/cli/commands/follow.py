"""Commands that follow a run from another process than the one that executes it: watch, logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.commands import options

if TYPE_CHECKING:
    from penstock.service.following import RunFollower
    from penstock.service.logs import LogFilter
    from penstock.settings import Settings
    from penstock.store.records import RunRecord, TaskRow
    from penstock.store.sql import Store


@click.command()
@click.argument("name", metavar="RUN")
@click.option("--exit-status", is_flag=True, help="Exit with the result of the run: 0 if it succeeded, 3 if not.")
@options.server
@options.output
def watch(name: str, exit_status: bool, server: str | None, output: str) -> None:
    """Follow RUN live until it is over, from any terminal; then show its result. Ctrl-C ends the watching, not the run.

    \b
    penstock watch @
    penstock watch finetune-3 --exit-status && penstock show finetune-3

    As JSON: nothing until the run is over, then the same as penstock show RUN -o json."""
    from penstock.cli.ui import render
    from penstock.service import stores
    from penstock.service.following import RunFollower
    from penstock.service.run_records import find
    from penstock.service.views.runs import overview

    settings = options.settings_for(server)
    with stores.open_existing(settings) as store:
        follower = RunFollower(store, find(store, name))
        if output == "json":
            follower.wait()
        else:
            _draw(store, follower)
        view = overview(store, follower.run, settings)
        if output == "json":
            render.json_out(view.as_data())
        else:
            from penstock.cli.ui.runs import summary

            summary(view, settings)
    if exit_status and view.state != "succeeded":
        raise click.exceptions.Exit(3)


def _draw(store: Store, follower: RunFollower) -> None:
    import sys

    from penstock.cli.ui.progress import Progress
    from penstock.cli.watching import draw
    from penstock.service.run_records import workflow_of

    with Progress(follower.run.id, workflow_of(store, follower.run), sys.stdout) as progress:
        draw(store, follower, progress, lambda: follower.over)


@click.command()
@click.argument("target", metavar="RUN[/STEP]")
@click.option(
    "-f", "--follow", is_flag=True, help="Go on until the run, or the step or task that was named, has ended."
)
@click.option("--failed", is_flag=True, help="Only tasks that failed.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines of each task.")
@click.option("--grep", metavar="TEXT", help="Only lines that contain TEXT.")
@options.server
@options.output
def logs(
    target: str, follow: bool, failed: bool, tail: int | None, grep: str | None, server: str | None, output: str
) -> None:
    """Show what the tasks of RUN, of one STEP or one task have printed, during the run or any time after it.

    If there are several tasks, each line shows which one it is from. A task that was tried several times shows its last attempt.

    \b
    penstock logs @ -f                 everything, as it is printed
    penstock logs @ --failed --tail 20
    penstock logs '@/train[3]'
    penstock logs @ --grep 'loss='

    As JSON: a list of {task, step, state, attempt, lines}; with -f, one {task, line} on each line."""
    from penstock.service import stores
    from penstock.service.logs import LogFilter
    from penstock.service.run_records import find, split_target
    from penstock.service.views.tasks import check_path

    settings = options.settings_for(server)
    name, path = split_target(target)
    with stores.open_existing(settings) as store:
        run = find(store, name)
        if path:
            check_path(store, run, path)
        chosen = LogFilter(grep, tail)
        if follow:
            _follow_logs(store, run, path, failed, settings, chosen, output == "json")
        else:
            _print_logs(store, run, path, failed, settings, chosen, output == "json")


def _follow_logs(
    store: Store, run: RunRecord, path: str, failed: bool, settings: Settings, chosen: LogFilter, as_json: bool
) -> None:
    from penstock.cli.ui import render
    from penstock.cli.ui.logs import LogPrinter
    from penstock.service.log_tail import LogTail

    tail = LogTail(store, run, path, failed, settings, chosen)
    printer = LogPrinter(as_json, alone=tail.one_task)
    for task, lines in tail.follow():
        printer.put(task, lines)
    if tail.follower.state in ("lost", "stopped"):
        render.note(f"{run.id} is {tail.follower.state}: penstock resume {run.id}")


def _print_logs(
    store: Store, run: RunRecord, path: str, failed: bool, settings: Settings, chosen: LogFilter, as_json: bool
) -> None:
    from penstock.cli.ui import render
    from penstock.cli.ui.logs import LogPrinter
    from penstock.service.task_states import BAD
    from penstock.service.views.tasks import tasks

    rows = tasks(store, run, path, states=BAD if failed else None)
    if len(rows) == 1 and rows[0].state == "reused":
        rows = [_origin(store, rows[0])]
    logged = [row for row in rows if row.info.get("log")]
    printed = zip(logged, chosen.each(settings, [row.info["log"] for row in logged]), strict=True)
    if as_json:
        render.json_out(
            [
                {"task": row.task, "step": row.step, "state": row.state, "attempt": row.attempt, "lines": lines}
                for row, lines in printed
                if lines
            ]
        )
        return
    printer = LogPrinter(False, len(logged) == 1, [row.task for row in logged])
    shown = 0
    for row, lines in printed:
        printer.put(row.task, lines)
        shown += len(lines)
    if not shown:
        reused = sum(row.state == "reused" for row in rows)
        what = f"{path or run.id} has printed nothing" if chosen.text is None else f"no line contains {chosen.text!r}"
        where = f"   ({reused:,} tasks were reused: their logs are with the runs they come from)" if reused else ""
        render.note(what + where)


def _origin(store: Store, row: TaskRow) -> TaskRow:
    """The task that computed a reused result: it has the log."""
    from penstock.cli.ui import render
    from penstock.service.results import executed

    source = row.info.get("from") or {}
    found = executed(store, row)
    if found is None:
        render.note(f"{row.task} was reused from {source.get('run')}, which has been removed")
        return row
    render.note(f"{row.task} was reused from {source['run']}/{source['task']}; this is what it printed there")
    return found
