"""Commands about payloads: submit, payload, redrive."""

from __future__ import annotations

import click

from penstock.cli.commands import options

_STATES = ("queued", "running", "succeeded", "failed", "cancelled", "invalid")


@click.command()
@click.argument("file")
@click.argument("payload", required=False)
@options.params
@click.option("--replace", is_flag=True, help="Do it again, unless it is in flight.")
@click.option(
    "--payload-version",
    "version",
    type=click.IntRange(0, 1 << 52),
    metavar="N",
    help="Of the identity; what a lower one gave does not count.  [default: that of the workflow]",
)
@click.option("--label", default="", metavar="TEXT", help="What to call it.  [default: its `id`]")
@click.option("--wait", is_flag=True, help="Return when the run is over.")
@click.option("--no-worker", is_flag=True, help="Start no worker: penstock worker or serve executes it.")
@click.option("--queue", metavar="NAME", help="The queue that admits it.  [default: that of the workflow]")
@click.option("--priority", metavar="NAME|N", help="A priority class, or a number; higher ones go first.  [default: 0]")
@click.option(
    "--on", multiple=True, metavar="KIND=BACKEND", help="The backend for steps of a kind, as for penstock run."
)
@options.jobs
@options.server
@options.output
def submit(
    file: str,
    payload: str | None,
    given: tuple[str, ...],
    replace: bool,
    version: int | None,
    label: str,
    wait: bool,
    no_worker: bool,
    queue: str | None,
    priority: str | None,
    on: tuple[str, ...],
    jobs: int | None,
    server: str | None,
    output: str,
) -> None:
    """Have PAYLOAD worked on by the workflow in FILE, unless it is or was already.

    PAYLOAD is a file of JSON, or - for standard input; or the parameter that the workflow calls its payload is given with -p or --params. The
    workflow says what of it counts. A payload that is in flight, has succeeded or is not valid has its run, which is printed; one that has
    failed or was cancelled gets another run. However many submit the same at once, one run is made.

    A worker executes it: one that is there, or one that is started in the background and ends when there is nothing left to do.

    \b
    penstock submit ingest.py scene.json
    cat scene.json | penstock submit ingest.py - --wait

    As JSON: {payload, run, state, attempt, created}. With --wait the exit code is 3 if the run has not succeeded."""
    from penstock.cli.payloads import PayloadOptions, submit_file

    settings = options.settings_for(server, jobs)
    asked = PayloadOptions(
        given=given,
        asked={"replace": replace, "version": version, "label": label},
        submission={"queue": queue, "priority": priority},
        on=on,
        wait=wait,
        worker=not no_worker,
    )
    submit_file(file, payload, asked, settings, output)


@click.group()
def payload() -> None:
    """Payloads: work that is known by what it works on. penstock submit brings them in."""


@payload.command()
@click.option("--state", type=click.Choice(_STATES), help="Only payloads in this state.")
@click.option("--workflow", metavar="NAME", help="Only of this workflow.")
@click.option(
    "--since", callback=options.duration, metavar="TIME", help="Only what ended, or was submitted, within the last 24h."
)
@click.option("--error", default="", metavar="PATTERN", help="Only what failed so: Timeout*.")
@click.option("-n", "--number", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@options.server
@options.output
def ls(
    state: str | None,
    workflow: str | None,
    since: float | None,
    error: str,
    number: int,
    server: str | None,
    output: str,
) -> None:
    """List payloads; those that were submitted last come first.

    \b
    queued      a run waits for a worker
    running     a run works on it
    succeeded, failed, cancelled    how its newest run ended
    invalid     it failed because the payload is not valid: it is not tried again

    As JSON: a list of {payload, workflow, label, state, run, attempts, version, user, created, ended, invalid_after, error}."""
    from penstock.cli.payloads import list_payloads

    list_payloads(options.settings_for(server), state, workflow, since, error, number, output)


@payload.command()
@click.argument("name", metavar="PAYLOAD")
@options.server
@options.output
def show(name: str, server: str | None, output: str) -> None:
    """Show PAYLOAD: its attempts and what happened to it. It is named by its id, or by a run of it.

    As JSON: what payload ls has, and history: [{attempt, run, state, created, ended, user, error}], events: [{seq, at, kind, data}]."""
    from penstock.cli.payloads import show_payload

    show_payload(options.settings_for(server), name, output)


@payload.command()
@click.argument("name", metavar="PAYLOAD")
@click.option("--after", type=float, metavar="SECONDS", help="Only after this time, in seconds since 1970.")
@click.option("--undo", is_flag=True, help="It counts again.")
@options.server
@options.output
def invalidate(name: str, after: float | None, undo: bool, server: str | None, output: str) -> None:
    """What came of PAYLOAD does not count any more: the next submission makes a new run. A run in flight is not touched.

    As JSON: what payload ls has."""
    from penstock.cli.payloads import invalidate_payload

    invalidate_payload(options.settings_for(server), name, None if undo else after or 0.0, output)


@click.command()
@click.option(
    "--state",
    type=click.Choice(["failed", "cancelled", "invalid"]),
    default="failed",
    show_default=True,
    help="How they ended.",
)
@click.option(
    "--since", callback=options.duration, required=True, metavar="TIME", help="They ended within the last 24h, 30m, 2d."
)
@click.option("--workflow", metavar="NAME", help="Only of this workflow.")
@click.option("--error", default="", metavar="PATTERN", help="Only what failed so: Timeout*.")
@click.option("--dry-run", is_flag=True, help="Only show them.")
@click.option("--no-worker", is_flag=True, help="Start no worker: penstock worker or serve executes them.")
@options.jobs
@options.server
@options.output
def redrive(
    state: str,
    since: float,
    workflow: str | None,
    error: str,
    dry_run: bool,
    no_worker: bool,
    jobs: int | None,
    server: str | None,
    output: str,
) -> None:
    """Try again all runs that ended in a certain way.

    A payload gets its next attempt, a new run; only its newest attempt counts. A run without a payload goes on where it failed, as with penstock
    retry. Workers execute them, as with penstock submit.

    \b
    penstock redrive --state failed --since 24h --workflow ingest --error 'Timeout*' --dry-run

    As JSON: {chosen: [RUN], started: [RUN]}."""
    from penstock.cli.payloads import redrive_runs

    selection = {"state": state, "workflow": workflow, "error": error}
    redrive_runs(options.settings_for(server, jobs), selection, since, dry_run, not no_worker, output)
