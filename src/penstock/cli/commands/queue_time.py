"""The commands about queues over time: penstock queue history, what-if. Registered by queue."""

from __future__ import annotations

import click

from penstock.cli.commands import options


@click.command()
@click.argument("name")
@click.option("--since", callback=options.duration, metavar="TIME", help="The last 1d, 12h, 30m.  [default: 1d]")
@click.option("--until", callback=options.duration, metavar="TIME", help="Without the last 2h.  [default: until now]")
@click.option("--step", callback=options.duration, metavar="TIME", help="Of one line.  [default: what suits the time]")
@options.server
@options.output
def history(
    name: str, since: float | None, until: float | None, step: float | None, server: str | None, output: str
) -> None:
    """How much of a queue was used, borrowed and waited for, over time.

    It is recorded as the queues decide: every 10 seconds for a day, every 5 minutes for a month, every hour for 400 days. What is shorter than
    a second may be missing.

    \b
    penstock queue history team-a
    penstock queue history team-a --since 7d --step 6h -o json

    As JSON: {queue, since, until, step, spans: [{at, waiting: {mean, peak}, quota: [{flavor, resource, used, peak, nominal, borrowed}]}]}.
    used, borrowed and waiting are means over the step."""
    import time

    from penstock.cli.ui import render
    from penstock.cli.ui.queue_time import history_table
    from penstock.service import stores
    from penstock.service.views.quotas import QueueReader, StoreQueues
    from penstock.service.views.series import series

    now = time.time()
    with stores.open_existing(options.settings_for(server)) as store:
        queue = QueueReader(StoreQueues(store)).one(name, 0).cluster_queue
        last = now if until is None else now - until
        found = series(store, queue, now - (86400.0 if since is None else since), last, int(step or 0))
    if output == "json":
        render.json_out(found.as_data())
    else:
        history_table(found)


@click.command("what-if")
@click.argument("name")
@click.option("--tasks", type=click.IntRange(0), default=1, metavar="N", help="So many more tasks.  [default: 1]")
@click.option("--asks", default="", metavar="AMOUNTS", help="What one of them asks for: cpu=2,memory=4Gi,gpu=1.")
@click.option(
    "--for", "seconds", callback=options.duration, metavar="TIME", help="How long one of them runs.  [default: 1m]"
)
@click.option("--gang", is_flag=True, help="All of them start together, or none.")
@click.option("--priority", type=int, default=0, metavar="N", help="Of the tasks.  [default: 0]")
@click.option("--quota", default="", metavar="AMOUNTS", help="If this were the quota of the queue: cpu=64.")
@options.server
@options.output
def what_if(
    name: str,
    tasks: int,
    asks: str,
    seconds: float | None,
    gang: bool,
    priority: int,
    quota: str,
    server: str | None,
    output: str,
) -> None:
    """When would more tasks start in a queue, and who would wait for them? Nothing is submitted.

    The queues go on from what they hold now, by the code that decides in real runs. What runs and waits is taken to last as long as in the
    last runs of its workflow, or a minute. Stages whose turn has not come are left out.

    \b
    penstock queue what-if team-a --tasks 20 --asks gpu=1,cpu=8 --for 30m
    penstock queue what-if team-a --tasks 0 --quota cpu=64

    As JSON: {queue, tasks, asks, seconds, quota, at_once, waits_from, starts: [{in, tasks}], never, waiting: [{workload, run, user,
    starts_in, would_start_in}], preempted, run_times: {measured, guessed}, left_out, ahead}. Times are seconds from now."""
    from penstock.cli.ui import render
    from penstock.cli.ui.queue_time import what_if_view
    from penstock.service import stores
    from penstock.service.amounts import GUESS
    from penstock.service.simulation import what_if as verbs
    from penstock.service.simulation.scenario import parse_amounts

    change = verbs.QueueChange(
        tasks=tasks,
        asks=parse_amounts(asks, "--asks") if asks else {},
        seconds=GUESS if seconds is None else seconds,
        gang=gang,
        priority=priority,
        quota=parse_amounts(quota, "--quota") if quota else {},
    )
    with stores.open_existing(options.settings_for(server)) as store:
        found = verbs.what_if(store, name, change)
    if output == "json":
        render.json_out(found.as_data())
    else:
        what_if_view(found)
