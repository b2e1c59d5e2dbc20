"""Commands about Penstock itself: explain, completion."""

from __future__ import annotations

import click

from penstock.cli.commands import options


@click.command()
@click.argument("code", required=False)
@options.output
def explain(code: str | None, output: str) -> None:
    """Explain an error CODE, such as P212: what it means, an example, and how to fix it. Without a code, list all."""
    from penstock.cli.ui import errors, render

    if code is None:
        from penstock.errors import catalogue

        entries = catalogue()
        if output == "json":
            render.json_out(entries)
        else:
            render.table(["CODE", "TITLE"], [[name, entry["title"]] for name, entry in entries.items()])
        return
    from penstock.service.error_codes import explain as explain_code

    name, entry = explain_code(code)
    if output == "json":
        render.json_out({"code": name, **entry})
    else:
        errors.explanation(name, entry)


@click.command()
@click.argument("shell", required=False, metavar="[bash|zsh|fish]")
@click.option("--install", is_flag=True, help="Write it to where the shell finds it, instead of to stdout.")
def completion(shell: str | None, install: bool) -> None:
    """Complete commands, options, runs, steps and parameters with TAB: writes the script for your shell.

    --install writes the script below your home directory and, for bash and zsh, adds one line to ~/.bashrc or ~/.zshrc. Without it, do
    with the script as you like:

    \b
    penstock completion --install                    for the shell that you use
    penstock completion zsh > ~/.zfunc/_penstock     for a folder of your $fpath
    source <(penstock completion bash)               only here and now"""
    from penstock.cli.ui import render
    from penstock.service import completion as scripts

    chosen = scripts.shell_of(shell)
    if not install:
        render.data(scripts.script(chosen), end="")
        return
    for line in scripts.install(chosen):
        render.note(line)
    render.note(f"open a new {chosen} to use it")
