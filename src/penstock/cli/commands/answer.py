"""`penstock answer`: what a step that waits for an answer is told, where there is no server to tell it to."""

from __future__ import annotations

import click

from penstock.cli.commands import options


@click.command()
@click.argument("token", metavar="TOKEN")
@options.params
@click.option(
    "--failure", nargs=2, metavar="NAME MESSAGE", help="It has failed: the name of the error, and what went wrong."
)
@click.option("--heartbeat", is_flag=True, help="Somebody is still at it.")
@options.output
def answer(token: str, given: tuple[str, ...], failure: tuple[str, str] | None, heartbeat: bool, output: str) -> None:
    """Answer a step that waits for it, with the TOKEN that it was given ($PENSTOCK_CALLBACK_TOKEN). With - the token is read from
    standard input, so that nobody sees it among the processes.

    Without --failure and --heartbeat it has succeeded; -p gives its outputs.

    \b
    penstock answer - -p scenes=12 < token.txt
    penstock answer $TOKEN --failure OutOfMemory 'killed at 64Gi'

    As JSON: {run, task, status}."""
    import sys
    import time

    from penstock.cli.ui import render
    from penstock.service import answers, stores
    from penstock.service.answers import AnswerGiven

    if sum((failure is not None, heartbeat, bool(given))) > 1:
        raise click.UsageError("Give one of -p, --failure and --heartbeat.")
    text = sys.stdin.readline().strip() if token == "-" else token  # a word of the command line, no secret
    said = AnswerGiven(status="heartbeat" if heartbeat else "success", texts=given)
    if failure is not None:
        said = AnswerGiven(status="failure", error=failure[0], message=failure[1])
    with stores.open_existing(options.settings_for(None)) as store:
        found = answers.answer(store, text, said, time.time())
    line = f"{found.run.id}/{found.task}: {said.status}"
    if not found.owned:
        line += f"   (nobody executes the run: penstock resume {found.run.id})"
    render.result(output, {"run": found.run.id, "task": found.task, "status": said.status}, line)
