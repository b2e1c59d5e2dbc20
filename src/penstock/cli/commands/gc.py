"""The command gc."""

from __future__ import annotations

import click

from penstock.cli.commands import options


@click.command()
@click.option(
    "--older",
    callback=options.duration,
    default="30d",
    show_default=True,
    metavar="TIME",
    help="Runs that ended at least so long ago.",
)
@click.option(
    "--keep",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    metavar="N",
    help="Keep the newest N of each workflow.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--shared", is_flag=True, help="Also blobs outside the home folder, if nobody else uses that place.")
@options.output
def gc(older: float, keep: int, dry_run: bool, yes: bool, shared: bool, output: str) -> None:
    """Remove old runs, and everything that no run refers to any more: results, blobs, logs, scratch folders.

    A run that has not ended is never touched. Results of a run that is removed can no longer be reused, unless another run has
    them too.

    \b
    penstock gc --dry-run
    penstock gc --older 7d --keep 3 --yes

    As JSON: {removed, runs, results, blobs, folders, bytes: {blobs, folders, database}, kept, notes}."""
    import os

    from penstock.cli.ui import render
    from penstock.errors import Problem, UserError

    if not dry_run and not yes and not (render.is_terminal() and os.isatty(0)):
        fix = "--yes removes without asking, --dry-run only shows"
        raise UserError(Problem("P509", "there is no terminal to ask for confirmation", fix))
    _collect(older, keep, dry_run, yes, shared, output)


def _collect(older: float, keep: int, dry_run: bool, yes: bool, shared: bool, output: str) -> None:
    import time

    from penstock.cli.ui import render
    from penstock.cli.ui.cleanup import cleanup_plan
    from penstock.service import stores
    from penstock.service.cleanup import Cleanup
    from penstock.settings import read

    settings = read()
    now = time.time()
    with stores.open_existing(settings) as store:
        cleanup = Cleanup(store, settings, now, now - older, keep, shared)
        cleanup.examine()
        plan = cleanup.plan
        if dry_run:
            cleanup_plan(plan, output, removed=False)
            return
        if not yes:
            cleanup_plan(plan, "table", removed=False)
            if not (plan.runs or plan.blobs or plan.folders):
                return
            render.confirm("remove this?")
        cleanup.remove()
    cleanup_plan(plan, output, removed=True)
