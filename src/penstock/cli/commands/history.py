"""Commands about recorded runs: ls, show, get, why."""

from __future__ import annotations

import click

from penstock.cli.commands import options

_STATES = ("starting", "running", "queued", "stopped", "lost", "succeeded", "failed", "cancelled")


@click.command()
@click.option("--state", type=click.Choice(_STATES), multiple=True, help="Only runs in this state; repeat for more.")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option(
    "--since", callback=options.duration, metavar="TIME", help="Only runs that started within the last 2d, 12h, 30m."
)
@click.option("-n", "--number", type=click.IntRange(1), default=20, show_default=True, help="At most so many runs.")
@options.server
@options.output
def ls(
    state: tuple[str, ...], workflow: str | None, since: float | None, number: int, server: str | None, output: str
) -> None:
    """List runs, the newest first.

    \b
    starting   submitted a moment ago; no engine has it yet
    running    an engine executes it
    queued     the same, and all that could start waits in a queue; penstock why RUN
    stopped    interrupted; penstock resume RUN continues it
    lost       the process that executed it is gone; penstock resume RUN continues it
    succeeded, failed, cancelled    it is over

    \b
    penstock ls --state failed --since 2d
    penstock ls --workflow finetune -n 5 -o json

    Of a lost run, tasks may still run although nobody waits for them: their processes are named.

    As JSON: a list of {run, workflow, state, user, created, ended, seconds, tasks: {STATE: how many}}, and of a lost run
    orphans: [{pid, task}]."""
    import time

    from penstock.cli.ui import render
    from penstock.errors import NotFound
    from penstock.service import stores
    from penstock.service.run_records import seconds_of
    from penstock.service.views.listing import run_data, runs_in

    now, settings = time.time(), options.settings_for(server)
    try:
        with stores.open_existing(settings) as store:
            found = runs_in(store, state, workflow, None if since is None else now - since, number)
    except NotFound as error:
        found = []
        if output != "json":
            render.note(error.problems[0].message)
    lost, left = [run for run, shown in found if shown == "lost"], {}
    if lost:
        from penstock.service.stores import home_of
        from penstock.service.views.orphans import orphans_of

        left = orphans_of(home_of(settings), lost)
    if output == "json":
        rows = [{**run_data(run, shown, left.get(run.id, ())), "seconds": seconds_of(run, now)} for run, shown in found]
        render.json_out(rows)
        return
    from penstock.cli.ui.listing import left_behind, run_table

    run_table(found, now)
    left_behind(left)
    if len(found) == number and render.is_terminal():
        render.note(f"the newest {number}; -n shows more")


@click.command()
@click.argument("target", metavar="[RUN[/STEP]]", default="@")
@click.option("--tree", "shape", flag_value="tree", help="Steps, called workflows and items as a tree.")
@click.option("--gantt", "shape", flag_value="gantt", help="When each step, or each task of a STEP, ran.")
@click.option("--events", "shape", flag_value="events", help="Everything that was recorded, in order.")
@click.option("--lineage", "shape", flag_value="lineage", help="The runs of its chain, and links that started none.")
@options.server
@options.output
def show(target: str, shape: str | None, server: str | None, output: str) -> None:
    """Show a run: its steps, outputs and failures; or one step, or one task of it.

    RUN is a name as penstock ls shows it; @ is the last run, @2 the one before it. Without RUN: the last one.

    \b
    penstock show                     the last run
    penstock show @ --gantt           when each step ran
    penstock show finetune-3/train    all tasks of a step
    penstock show '@/train[3]'        one task: attempts, outputs, log, traceback
    penstock show @ --lineage         the runs that it follows from, and that follow from it

    As JSON, a run: {run, workflow, state, user, created, ended, tasks, params, options, digest, steps: [{step, kind, state, total,
    tasks, started, ended, reason}], outputs, failed, failures}. A step: {run, step, tasks: [...]}. A task: {run, task, step, state,
    attempt, key, started, ended, reason, attempts, inputs, outputs, files}. With --gantt: {run, start, end, bands}. With --events: a
    list of {seq, at, kind, task, data}. With --lineage: {root, links: [{run, workflow, state, link, parent, depth, why, error}]}."""
    from penstock.service import stores
    from penstock.service.run_records import find, split_target

    settings = options.settings_for(server)
    name, path = split_target(target)
    with stores.open_existing(settings) as store:
        run = find(store, name)
        from penstock.cli.show import RunScreen

        RunScreen(store, run, path, settings, output == "json").show(shape or "")


@click.command()
@click.argument("target", metavar="RUN[/STEP]")
@click.option(
    "-o", "--output", "where", metavar="FOLDER|json", help="Put files here, or print everything as JSON.  [default: .]"
)
@click.option("--force", is_flag=True, help="Replace files that are there already.")
@options.server
def get(target: str, where: str | None, force: bool, server: str | None) -> None:
    """Fetch what a run, a step or a task gave: files and folders are copied, other values are printed.

    Of a step with several tasks, each task gets a folder of its own: train-3/model.bin. An output is named after a slash if there are
    several.

    \b
    penstock get @                        what the last run returned
    penstock get @/gz -o results          the outputs of the step gz
    penstock get '@/train[3]'             of one task
    penstock get @/split/left             one output of a step
    penstock get @/train -o json | jq .

    As JSON: {run, outputs: [{task, output, value}]}; task is null for an output of the run. A file or folder has {kind, name, size, digest}
    instead of a value, and so has a Python object, which only Python can open: penstock.open_run(RUN)["STEP"].result."""
    from pathlib import Path

    from penstock.cli.ui import render
    from penstock.cli.ui.fetched import fetched
    from penstock.service import stores
    from penstock.service.fetching import as_data, fetch, parts_of
    from penstock.service.run_records import find, split_target

    settings = options.settings_for(server)
    name, path = split_target(target)
    with stores.open_existing(settings) as store:
        run = find(store, name)
        parts = parts_of(store, run, path, settings)
    if where == "json":
        render.json_out(as_data(run, parts))
    else:
        fetched(fetch(parts, Path(where or "."), settings, force), len(parts) == 1)


@click.command()
@click.argument("target", metavar="RUN[/STEP]|KIND/NAME")
@options.namespace
@options.context
@options.kubeconfig
@options.server
@options.output
def why(
    target: str, namespace: str | None, context: str | None, kubeconfig: str | None, server: str | None, output: str
) -> None:
    """Show what a run, a step or a task waits for, and what it has waited for so far; or what an object of a cluster waits for.

    In a queue: which one, by which rule, how much of what is short, who holds it, what is before it in the queue, and what would help.
    Otherwise: another run that computes the same, the time of the next attempt, a user who must resume it, steps before it, or an
    engine.

    KIND/NAME is an object of the cluster of your kubeconfig: workflow, pipelinerun, taskrun, jobset, job, pod, or a Workload of Kueue's; with
    -n, --context or --kubeconfig, of any kind that owns a Workload. The reasons are computed from the live objects of Kueue, for every
    Workload, and Kueue's own words stand below them.

    \b
    penstock why @
    penstock why finetune-3/train
    penstock why @ -o json
    penstock why workflow/nightly -n team-a
    penstock why workload/job-train-3f2a1 -n team-a

    As JSON: {run, state, step, running, ended, waits: [{path, kind, since, tasks, asks, priority, reason}], history: [{path, workload, from,
    to, outcome, tasks, cluster_queue, held, reasons}], evictions: [{path, at, workload, reason, by}]}. `kind` is queue, lock, slot, shared, retry,
    time, somebody, steps, engine, or there (where it is to run). Of a cluster: {object, namespace, part_of, problem, fix, unseen, warning: {reason, message, at}, workloads:
    [{workload, of, stage, state, queue, cluster_queue, since, pods, asks, priority, reason, names, held, running_pods, evicted, kueue: {reason,
    message}}]}. `state` is waiting, checks, leaving, admitted, ahead or over; `names` says what each Workload in `reason` is for; `warning` is the
    last one among the Events."""
    from penstock.cli.ui import render

    if namespace or context or kubeconfig or _names_object(target):
        from penstock.cli.cluster import connect, why_in_cluster

        report = why_in_cluster(connect(context, kubeconfig), target, namespace)
        if output == "json":
            render.json_out(report.as_data())
            return
        from penstock.cli.ui.cluster_why import cluster_report

        cluster_report(report)
        return
    from penstock.service import stores
    from penstock.service.run_records import find, split_target

    name, path = split_target(target)
    settings = options.settings_for(server)
    with stores.open_existing(settings) as store:
        run = find(store, name)
        from penstock.service.stores import home_of
        from penstock.service.views.why import why as waits_of

        found = waits_of(store, run, path, home_of(settings))
    if output == "json":
        render.json_out(found.as_data())
        return
    from penstock.cli.ui.why import wait_report

    wait_report(found)


def _names_object(target: str) -> bool:
    if "/" not in target or target.startswith("@"):
        return False
    from penstock.controller.inspect.kinds import names_object

    return names_object(target)
