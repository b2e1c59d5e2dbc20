"""Commands that look things up: ls, show, why, explain."""

from __future__ import annotations

import time

import click

from penstock import service
from penstock.cli import render
from penstock.cli.common import length, look_into, output_option
from penstock.errors import NotFound

_STATES = ("running", "queued", "stopped", "lost", "succeeded", "failed", "cancelled")


@click.command()
@click.option("--state", type=click.Choice(_STATES), multiple=True, help="Only runs in this state; repeat for more.")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--since", callback=length, metavar="TIME", help="Only runs that began within the last 2d, 12h, 30m.")
@click.option("-n", "--number", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@output_option
def ls(state: tuple[str, ...], workflow: str | None, since: float | None, number: int, output: str) -> None:
    """List runs, the newest first.

    \b
    running    an engine works on it
    queued     the same, and all that could start waits in a queue; penstock why RUN
    stopped    interrupted; penstock resume RUN goes on
    lost       the process that ran it is gone; penstock resume RUN goes on
    succeeded, failed, cancelled    it is over

    \b
    penstock ls --state failed --since 2d
    penstock ls --workflow finetune -n 5 -o json

    As JSON: a list of {run, workflow, state, user, created, ended, seconds, tasks: {STATE: how many}}."""
    from penstock.service import runs, views
    from penstock.settings import read

    now = time.time()
    asked = {"running" if one in ("lost", "queued") else one for one in state}
    try:
        with look_into(read()) as store:
            # Which of the running ones are lost or queued shows only when each is looked at.
            limit = None if asked & {"running"} else number
            first = None if since is None else now - since
            rows = store.runs(limit=limit, state=sorted(asked) or None, workflow=workflow, since=first)
            found = [(run, runs.state_of(store, run)) for run in rows]
            if any(shown == "running" for _, shown in found):
                from penstock.service.why import is_queued, queued

                waiting = queued(store)
                found = [(run, "queued" if is_queued(run, shown, waiting) else shown) for run, shown in found]
    except NotFound as error:
        found = []
        if output != "json":
            render.note(error.problems[0].message)
    found = [pair for pair in found if not state or pair[1] in state][:number]
    if output == "json":
        data = [{**views.run_data(run, shown), "seconds": views.seconds_of(run, now)} for run, shown in found]
        render.json_out(data)
        return
    from penstock.cli.screens import run_table

    run_table(found, now)
    if len(found) == number and render.is_terminal():
        render.note(f"the newest {number}; -n shows more")


@click.command()
@click.argument("target", metavar="RUN[/STEP]")
@click.option("--tree", "shape", flag_value="tree", help="Steps, called workflows and items as a tree.")
@click.option("--gantt", "shape", flag_value="gantt", help="When each step, or each task of a STEP, ran.")
@click.option("--events", "shape", flag_value="events", help="Everything that was recorded, in order.")
@output_option
def show(target: str, shape: str | None, output: str) -> None:
    """Show a run: its steps, outputs and failures; or one step, or one task of it.

    RUN is a name as penstock ls shows it; @ is the last run, @2 the one before it.

    \b
    penstock show @                   the last run
    penstock show @ --gantt           when each step ran
    penstock show finetune-3/train    all tasks of a step
    penstock show '@/train[3]'        one task: attempts, outputs, log, traceback

    As JSON, a run: {run, workflow, state, user, created, ended, tasks, params, options, digest, steps: [{step, kind, state, total,
    tasks, started, ended, reason}], outputs, failed, failures}. A step: {run, step, tasks: [...]}. A task: {run, task, step, state,
    attempt, key, started, ended, reason, attempts, inputs, outputs, files}. With --gantt: {run, start, end, bands}. With --events: a
    list of {seq, at, kind, task, data}."""
    from penstock.service import runs
    from penstock.settings import read

    settings = read()
    name, path = runs.split(target)
    with look_into(settings) as store:
        run = runs.find(store, name)
        from penstock.cli.showing import Showing

        Showing(store, run, path, settings, output).show(shape or "")


@click.command()
@click.argument("target", metavar="RUN[/STEP]")
@output_option
def why(target: str, output: str) -> None:
    """Say what a run, a step or a task waits for, and what it has waited for so far.

    In a queue: which one, by which rule, how much of what is short, who has it, who stands before it, and what would help. Otherwise:
    another run that computes the same, the time of the next attempt, somebody who must resume it, steps before it, or an engine.

    \b
    penstock why @
    penstock why finetune-3/train
    penstock why @ -o json

    As JSON: {run, state, step, running, ended, waits: [{path, kind, since, tasks, asks, priority, reason}], history: [{path, workload, from,
    to, outcome, tasks, cluster_queue, held, reasons}], evictions: [{path, at, workload, reason, by}]}. `kind` is queue, lock, slot, shared, retry,
    time, somebody, steps or engine."""
    from penstock.service import runs
    from penstock.settings import read

    name, path = runs.split(target)
    with look_into(read()) as store:
        run = runs.find(store, name)
        from penstock.service.why import why as ask

        found = ask(store, run, path.rstrip("/"))
    if output == "json":
        render.json_out(found.as_data())
        return
    from penstock.cli.reasons import show_why

    show_why(found)


@click.command()
@click.argument("code", required=False)
@output_option
def explain(code: str | None, output: str) -> None:
    """Explain an error CODE, such as P212: what it means, an example, and how to mend it. Without a code, list all."""
    if code is None:
        entries = service.error_codes()
        if output == "json":
            render.json_out(entries)
        else:
            render.table(["CODE", "TITLE"], [[name, entry["title"]] for name, entry in entries.items()])
        return
    entry = service.explain_code(code)
    if output == "json":
        render.json_out({"code": code.strip().upper(), **entry})
    else:
        render.explanation(code.strip().upper(), entry)
