"""Commands that look things up: explain."""

from __future__ import annotations

import click

from penstock import service
from penstock.cli import render


@click.command()
@click.argument("code", required=False)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print."
)
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
