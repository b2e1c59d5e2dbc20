"""The command doctor."""

from __future__ import annotations

import click

from penstock.cli.commands import options


@click.command()
@click.option("--repair", is_flag=True, help="Put right what can be.")
@options.output
@click.pass_context
def doctor(ctx: click.Context, repair: bool, output: str) -> None:
    """Check the store and everything around it: versions, owners and rights, the database, leases of dead engines, blobs.

    --repair sets rights, makes damaged indexes anew, saves what can be read of a damaged database into a new one (the old file is
    kept), frees what dead engines hold, and removes damaged blobs, so that what needs them runs again. End all runs first.

    Exit code 1: something is wrong and was not repaired.

    \b
    penstock doctor
    penstock doctor --repair -o json

    As JSON: {healthy, home, store, findings: [{check, state: ok|repaired|problem, text, fix}]}."""
    from penstock import __version__
    from penstock.cli.ui.diagnosis import diagnosis
    from penstock.service.doctor import diagnose
    from penstock.settings import read

    found = diagnose(read(), repair, __version__)
    diagnosis(found, output)
    if not found.healthy:
        ctx.exit(1)
