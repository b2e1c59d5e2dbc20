"""Command: audit."""

from __future__ import annotations

import click

from penstock.cli.commands import options


@click.command()
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), help="At most so many.")
@click.option("--person", metavar="NAME", help="Only what this person did.")
@options.output
def audit(limit: int, person: str | None, output: str) -> None:
    """Show who did what through a server of this store: signed in, submitted, cancelled, stopped a queue, gave a token. The newest first.

    What was refused is there too, if somebody was signed in. TOKEN is the id of the token, not the token.

    As JSON: a list of {number, at, person, token, verb, target, status}; status as in HTTP."""
    import time

    from penstock.cli.ui import render
    from penstock.service import stores
    from penstock.service.tokens import audit as entries
    from penstock.settings import read

    with stores.open_existing(read()) as store:
        found = entries(store, limit, person or "")
    if output == "json":
        render.json_out([one._asdict() for one in found])
        return
    now = time.time()
    rows = [
        [
            render.when(one.at, now),
            render.clean(one.person),
            one.token,
            one.verb,
            render.clean(one.target),
            "" if one.status < 400 else f"refused ({one.status})",
        ]
        for one in found
    ]
    if rows or not render.is_terminal():
        render.table(["WHEN", "PERSON", "TOKEN", "DID", "TO", ""], rows)
    else:
        render.note("nobody has done anything through a server of this store")
