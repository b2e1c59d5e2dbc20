"""The command about what was asked for, used and paid: penstock usage."""

from __future__ import annotations

import click

from penstock.cli.commands import options


@click.command()
@click.option(
    "--by",
    type=click.Choice(["person", "queue", "flow"]),
    default="person",
    show_default=True,
    help="A line for each person, queue or workflow.",
)
@click.option("--since", callback=options.duration, metavar="TIME", help="The last 30d, 12h.  [default: 30d]")
@click.option(
    "--until", callback=options.duration, metavar="TIME", help="Without the last 2d, 12h.  [default: until now]"
)
@click.option("--person", metavar="NAME", help="Only runs of this person.")
@click.option("--queue", metavar="NAME", help="Only tasks that name this queue.")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--run", metavar="RUN", help="Of one run, step by step; the other options do not count then.")
@options.server
@options.output
def usage(
    by: str,
    since: float | None,
    until: float | None,
    person: str | None,
    queue: str | None,
    workflow: str | None,
    run: str | None,
    server: str | None,
    output: str,
) -> None:
    """What runs asked for and used: core-hours, memory, GPUs, and what they cost.

    Asked for is what the steps declare, times how long their tasks ran, in whole hours of the clock. Used is processor time, where it was
    measured: of commands and functions that ran as processes of this machine. That of containers and pods is not measured, nor is the use
    of memory and GPUs. BUSY is used against asked for, of what was measured.

    \b
    penstock usage                                the last 30 days by person
    penstock usage --by flow --since 7d --person ana
    penstock usage --by queue -o json
    penstock usage --run @                        the last run, step by step

    Prices make it cost something: PENSTOCK_PRICES=cpu=0.04,memory=0.005,gpu=2.5,currency=EUR, for an hour of a core, of a GiB, of a GPU; or
    the same in penstock.yaml. There are none by default.

    As JSON: {by, since, until, prices: {currency, per_hour}, items: [{name, runs, attempts, reused, hours, asked: {RESOURCE: hours},
    cpu_used, cpu_measured, cpu_of_measured, lost, cost}], total, days: [{at, …}], uncounted}. cpu_measured is what was asked for by the
    attempts that asked for cores and whose processor time was measured, cpu_of_measured what these used; lost is asked for by attempts that
    did not succeed. With --run: {run, prices, steps: [{step, queue, …, waste}], total, cost, wasteful: [{step, waste, why}]}."""
    import time

    from penstock.cli.ui import render
    from penstock.cli.ui.usage import cost_table, usage_table
    from penstock.service import prices, stores
    from penstock.service.run_records import find
    from penstock.service.views import usage as views

    settings = options.settings_for(server)
    now = time.time()
    filters = {name: text for name, text in (("person", person), ("queue", queue), ("flow", workflow)) if text}
    first = now - (views.DAYS * 86400.0 if since is None else since)
    counting = render.is_terminal() and output != "json"

    def tell(left: int) -> None:
        if counting:
            render.status(f"reading the logs of {left:,} runs")

    if run is not None:
        with stores.open_existing(settings) as store:
            cost = views.cost_of(store, find(store, run), prices.prices_for(settings))
        if output == "json":
            render.json_out(cost.as_data())
        else:
            cost_table(cost)
        return
    with stores.open_existing(settings) as store:
        last = now if until is None else now - until
        found = views.usage(store, views.way(by), first, last, prices.prices_for(settings), filters, tell=tell)
    if output == "json":
        render.json_out(found.as_data())
    else:
        usage_table(found)
