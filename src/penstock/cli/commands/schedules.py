"""Subcommands of `penstock schedule` for workflows that are run by the clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from penstock.cli.commands import options


def _how(command: Callable[..., Any]) -> Callable[..., Any]:
    """How its runs are made."""
    for one in reversed(
        (
            click.option(
                "--replace", is_flag=True, help="In place of the schedule of this name, with the file as it is now."
            ),
            click.option(
                "--param-due",
                metavar="NAME",
                help="Give this parameter the time that is due: text, or seconds if it is a number.",
            ),
            click.option(
                "--reuse",
                "reused",
                is_flag=True,
                help="Take stored results of steps that did not change.  [default: run them anew]",
            ),
            click.option(
                "--queue", metavar="NAME", help="The queue that admits its runs.  [default: that of the workflow]"
            ),
            click.option("--priority", metavar="NAME|N", help="A priority class, or a number; higher ones go first."),
            click.option(
                "--on",
                multiple=True,
                metavar="KIND=BACKEND",
                help="The backend for steps of a kind, as for penstock run.",
            ),
            click.option("--dry", is_flag=True, help="Its runs execute nothing: every step succeeds at once."),
        )
    ):
        command = one(command)
    return options.params(command)


@click.command()
@click.argument("name")
@click.argument("file")
@click.option(
    "--cron",
    "crons",
    multiple=True,
    metavar="LINE",
    help="Minute hour day month weekday, or @daily …; repeat for more.",
)
@click.option("--zone", metavar="ZONE", help="The time zone of the lines, as Europe/Berlin.  [default: UTC]")
@click.option(
    "--every", callback=options.duration, metavar="TIME", help="Every 10m, 6h, …, from --start on, or from now."
)
@click.option("--start", metavar="WHEN", help="Not before: 2026-12-01, 2026-12-01T06:00.")
@click.option("--end", metavar="WHEN", help="Not after.")
@click.option(
    "--catch-up",
    type=click.Choice(["none", "one", "all"]),
    default="none",
    show_default=True,
    help="Of times at which nobody was there: run none, the last one, or all.",
)
@click.option(
    "--grace",
    callback=options.duration,
    metavar="TIME",
    help="How late a run may begin with --catch-up none.  [default: 1m]",
)
@click.option(
    "--overlap",
    type=click.Choice(["skip", "wait", "replace", "allow"]),
    default="skip",
    show_default=True,
    help="If the run before it goes on: skip this time, wait for that run, cancel that run, or run both.",
)
@click.option("--paused", is_flag=True, help="Run nothing until penstock schedule resume.")
@_how
@options.server
@options.output
def add(
    name: str,
    file: str,
    crons: tuple[str, ...],
    zone: str | None,
    every: float | None,
    start: str | None,
    end: str | None,
    catch_up: str,
    grace: float | None,
    overlap: str,
    paused: bool,
    replace: bool,
    param_due: str | None,
    server: str | None,
    output: str,
    **how: Any,
) -> None:
    """Run the workflow in FILE by the clock, as NAME.

    FILE is read now, with its code: later changes are for --replace. Where clocks are changed, a time that does not exist is due when the clock
    has jumped, one that comes twice the first time; rules for every hour or minute follow the time that passes.

    With --overlap wait at most one time waits; with --catch-up all each does.

    \b
    penstock schedule add nightly flow.py --cron '0 2 * * 1-5' --zone Europe/Berlin -p source=db
    penstock schedule add nightly flow.py --cron '0 2 * * 1-5' --param-due day --replace
    penstock schedule add poll flow.py --every 10m --overlap skip --end 2026-12-31

    As JSON: {schedule, workflow, state, cron, zone, every, anchor, start, end, catch_up, overlap, grace, due_param, next, waiting, last, note, owner,
    digest, created, params, options, runs: [{run, due, state}]}; times are seconds since 1970."""
    from penstock.cli import schedules
    from penstock.cli.ui import render
    from penstock.cli.ui.schedules import next_line
    from penstock.service.schedules.verbs import requested

    asked = requested(
        name,
        crons=crons,
        zone=zone,
        every=every,
        start=start,
        end=end,
        grace=grace,
        policy={"catch_up": catch_up, "overlap": overlap},
        due_param=param_due or "",
        paused=paused,
        replace=replace,
    )
    made = schedules.add(asked, file, how["given"], _options(how), options.settings_for(server))
    render.result(output, made, name)
    if output != "json":
        render.note(next_line(made))


@click.command()
@click.argument("file", metavar="CRONWORKFLOW|CRONJOB")
@click.option("--name", metavar="NAME", help="Of the schedule.  [default: that of the document]")
@_how
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the report as JSON to this file.",
)
@options.server
@options.output
def take(
    file: str,
    name: str | None,
    replace: bool,
    param_due: str | None,
    report: Path | None,
    server: str | None,
    output: str,
    **how: Any,
) -> None:
    """Take over the schedule and the workflow of a CronWorkflow of Argo, or a CronJob of Kubernetes.

    Schedules, zone, concurrencyPolicy, startingDeadlineSeconds and suspend are taken; what is different here is said. If the original is still on a
    cluster, suspend it there: it goes on by itself.

    As JSON: as penstock schedule add, and report."""
    import json

    from penstock.cli import schedules
    from penstock.cli.ui import errors, render
    from penstock.cli.ui.schedules import next_line

    made, found = schedules.taken(
        file, name, replace, param_due or "", how["given"], _options(how), options.settings_for(server)
    )
    if report is not None:
        render.deliver(json.dumps(found.as_data(), indent=2, ensure_ascii=False), report)
    render.result(output, {**made, "report": found.as_data()}, made["schedule"])
    if output != "json":
        errors.entries([*found.of("lost"), *found.of("changed")])
        render.note(next_line(made))


def _options(how: dict[str, Any]) -> dict[str, Any]:
    """Of the runs."""
    names = ("queue", "priority", "on", "dry")
    return {name: how[name] for name in names} | {"fresh": not how["reused"]}


@click.command()
@options.server
@options.output
def ls(server: str | None, output: str) -> None:
    """List schedules, and when each is due next.

    As JSON: a list of what penstock schedule show has, without params, options and runs."""
    from penstock.cli.schedules import desk
    from penstock.cli.ui import render
    from penstock.cli.ui.schedules import schedule_table

    found = desk(options.settings_for(server)).all()
    if output == "json":
        render.json_out(found)
    else:
        schedule_table(found)


@click.command()
@click.argument("name")
@options.server
@options.output
def show(name: str, server: str | None, output: str) -> None:
    """Show a schedule: when, what, its policies, its last runs.

    As JSON: as penstock schedule add."""
    from penstock.cli.schedules import desk
    from penstock.cli.ui import render
    from penstock.cli.ui.schedules import schedule_screen

    found = desk(options.settings_for(server)).show(name)
    if output == "json":
        render.json_out(found)
    else:
        schedule_screen(found)


@click.command(name="next")
@click.argument("name")
@click.option("-n", "--number", type=click.IntRange(1, 500), default=5, show_default=True, help="So many.")
@options.server
@options.output
def next_times(name: str, number: int, server: str | None, output: str) -> None:
    """Show when a schedule is due next, also of one that is paused.

    As JSON: a list of seconds since 1970."""
    from penstock.cli.schedules import desk
    from penstock.cli.ui import render
    from penstock.cli.ui.schedules import time_lines

    here = desk(options.settings_for(server))
    found = here.times(name, number)
    if output == "json":
        render.json_out(found)
    else:
        time_lines(found, here.show(name)["zone"])


@click.command()
@click.argument("name")
@options.server
@options.output
def pause(name: str, server: str | None, output: str) -> None:
    """Run nothing more by this schedule until it is resumed. Times that come meanwhile are not made up for; a run that goes on is left alone.

    As JSON: as one of penstock schedule ls."""
    _change(name, "pause", server, output)


@click.command()
@click.argument("name")
@options.server
@options.output
def resume(name: str, server: str | None, output: str) -> None:
    """Go on with a schedule that was paused.

    As JSON: as one of penstock schedule ls."""
    _change(name, "resume", server, output)


def _change(name: str, verb: str, server: str | None, output: str) -> None:
    from penstock.cli.schedules import desk
    from penstock.cli.ui import render
    from penstock.cli.ui.schedules import next_line

    found = desk(options.settings_for(server)).change(name, verb)
    render.result(output, found, found["state"])
    if output != "json":
        render.note(next_line(found))


@click.command()
@click.argument("name")
@options.server
def rm(name: str, server: str | None) -> None:
    """Remove a schedule. Its runs stay."""
    from penstock.cli.schedules import desk
    from penstock.cli.ui import render

    desk(options.settings_for(server)).remove(name)
    render.note(f"removed {name}; its runs stay")


@click.command()
@click.argument("name")
@options.server
@options.output
def run(name: str, server: str | None, output: str) -> None:
    """Run the workflow of a schedule now, beside its times. A worker executes it.

    As JSON: {run}."""
    from penstock.cli.schedules import desk
    from penstock.cli.ui import render

    made = desk(options.settings_for(server)).run(name)
    render.result(output, {"run": made}, made)


COMMANDS = (add, take, ls, show, next_times, pause, resume, rm, run)
