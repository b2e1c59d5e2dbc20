"""The commands about callbacks: penstock callbacks ls, show, redeliver, deliver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.commands import options

if TYPE_CHECKING:
    from penstock.service.callback_records import CallbackRow


@click.group(invoke_without_command=True)
@click.pass_context
def callbacks(ctx: click.Context) -> None:
    """Callbacks: what was sent when runs ended, what came of it, and sending again.

    A workflow has callbacks under `callbacks`, and penstock run --callback URL gives a run one more. What does not arrive is tried again; what is
    given up stays in this list, as dead.

    Without a command: ls."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(ls)


@callbacks.command()
@click.argument("run", required=False)
@click.option(
    "--state",
    multiple=True,
    type=click.Choice(["new", "done", "dead"]),
    help="Only these: still to be delivered, delivered, given up; repeat for more.",
)
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), help="At most so many.")
@options.output
def ls(run: str | None = None, state: tuple[str, ...] = (), limit: int = 50, output: str = "table") -> None:
    """List callbacks, of RUN or of all runs, the newest first.

    As JSON: a list of {number, run, callback, end, place, state, attempts, error, at, next_at, key, tries}; place is that of the item."""
    from penstock.cli.ui import render
    from penstock.service import callback_records as records
    from penstock.service import stores
    from penstock.service.run_records import find
    from penstock.settings import read

    with stores.open_existing(read()) as store:
        if run is None:
            found = records.page(store, state, limit)
        else:
            found = [one for one in records.of_run(store, find(store, run)) if not state or one.state in state][-limit:]
            found.reverse()
    if output == "json":
        render.json_out([one.as_data() for one in found])
        return
    rows = [_cells(one) for one in found]
    if rows or not render.is_terminal():
        render.table(["N", "RUN", "CALLBACK", "ITEM", "STATE", "ATTEMPTS", "NEXT", "ERROR"], rows)
    else:
        render.note("there are none")


def _cells(one: CallbackRow) -> list[str]:
    import time

    from penstock.cli.ui import render

    wait = None if one.next_at is None else one.next_at - time.time()
    return [
        str(one.number),
        render.clean(one.run),
        render.clean(one.callback),
        "" if one.place is None else str(one.place),
        one.state,
        str(one.attempts),
        "" if wait is None else "now" if wait <= 0 else f"in {render.duration(wait)}",
        render.clean(one.error),
    ]


@callbacks.command()
@click.argument("number", type=int, metavar="N")
@options.output
def show(number: int, output: str) -> None:
    """Show one callback, and every try to deliver it.

    As JSON: as ls, with tries: a list of {outbox, attempt, at, status, error, seconds}; status 0: there was no answer."""
    from penstock.cli.ui import render
    from penstock.service import callback_records as records
    from penstock.service import stores
    from penstock.settings import read

    with stores.open_existing(read()) as store:
        found = records.one(store, number)
    if output == "json":
        render.json_out(found.as_data())
        return
    place = "" if found.place is None else f", item {found.place}"
    render.data(f"{found.callback} of {found.run}, which {_ended(found.end)}{place}: {found.state}")
    render.data(f"idempotency key {found.key}")
    if found.error:
        render.data(render.clean(found.error))
    rows = [
        [str(one.attempt), render.when(one.at), str(one.status or ""), render.duration(one.seconds), one.error or "ok"]
        for one in found.tries
    ]
    render.table(["TRY", "WHEN", "STATUS", "TOOK", ""], [[render.clean(cell) for cell in row] for row in rows])


def _ended(end: str) -> str:
    return {"cancelled": "was cancelled", "invalid": "is invalid"}.get(end, end)


@callbacks.command()
@click.argument("numbers", nargs=-1, type=int, metavar="[N]...")
@click.option("--dead", is_flag=True, help="All that were given up.")
@click.option("--run", metavar="RUN", help="With --dead: only of this run.")
@click.option(
    "--since", callback=options.duration, metavar="TIME", help="With --dead: of runs that ended in the last 24h, 7d."
)
@options.output
def redeliver(numbers: tuple[int, ...], dead: bool, run: str | None, since: float | None, output: str) -> None:
    """Deliver callbacks once more: those with the numbers N, or all that were given up.

    They have the same idempotency keys as before, and all their attempts again. A server or worker of this store delivers them, the next
    penstock run, or penstock callbacks deliver.

    \b
    penstock callbacks redeliver 17 18
    penstock callbacks redeliver --dead --since 24h

    As JSON: {redelivered}."""
    import time

    from penstock.cli.ui import render
    from penstock.errors import Problem, UserError
    from penstock.service import callback_records as records
    from penstock.service import stores
    from penstock.service.run_records import find
    from penstock.service.submission import local_actor
    from penstock.settings import read

    if bool(numbers) == dead or (not dead and (run or since is not None)):
        fix = "penstock callbacks redeliver N…, or --dead with --run or --since if you like"
        raise UserError(Problem("P523", "say which callbacks: their numbers, or --dead", fix))
    now = time.time()
    with stores.open_existing(read()) as store:
        chosen = list(numbers)
        if dead:
            record = None if run is None else find(store, run)
            chosen = records.dead(store, 0.0 if since is None else now - since, record)
        many = records.redeliver(store, chosen, now, local_actor())
    render.result(output, {"redelivered": many}, f"{render.plural(many, 'callback')} to be delivered once more")


@callbacks.command()
@options.output
def deliver(output: str) -> None:
    """Deliver what is due, and return.

    Not needed beside a server or a worker. What fails is tried again later, when this command, or another, runs again.

    As JSON: {done, dead, new}: how many were delivered, were given up, and are still to be delivered."""
    from penstock.cli.ui import render
    from penstock.service import callback_records as records
    from penstock.service import stores
    from penstock.settings import read

    settings = read()
    with stores.open_existing(settings) as store:
        found = records.deliver(store, settings, render.note)
    said = f"{found['done']} delivered, {found['dead']} given up, {found['new']} still to be delivered"
    render.result(output, found, said)
