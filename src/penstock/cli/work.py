"""Commands over workflow files: plan, draw, merge, diff."""

from __future__ import annotations

from pathlib import Path

import click

from penstock import service
from penstock.cli import render
from penstock.errors import Problem, UserError

_params = click.option(
    "-p",
    "--param",
    "given",
    multiple=True,
    metavar="KEY=VALUE",
    help="A parameter of the workflow; repeat for more. Lists and numbers are JSON.",
)
_output = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print."
)


@click.command()
@click.argument("file")
@_params
@click.option("--queue", metavar="NAME", help="As if it were run in this queue.")
@click.option("--priority", metavar="NAME|N", help="As if it were run with this priority.")
@click.option(
    "--unit",
    metavar="UNIT",
    help="Cut into reservations by workflow, stage, task or reuse.  [default: as the workflow says, or stage]",
)
@click.option("--queues", metavar="FILE", help="As if the queues of this file were applied.")
@_output
def plan(
    file: str,
    given: tuple[str, ...],
    queue: str | None,
    priority: str | None,
    unit: str | None,
    queues: str | None,
    output: str,
) -> None:
    """Show what FILE would run: steps, stages, what each needs, and the peak against the sum.

    Nothing is run and nothing is written. Where runs are recorded (.penstock), NOW says what a run would do with each step: reuse a
    result, share one that is being computed, or run. Sizes that are only known at run time are marked '?' and explained.

    Of each reservation, IN THE QUEUE says what it would meet if it were asked for now: it fits, it fits in part, it waits and for
    what, or it can never fit.

    As JSON each reservation has its `outlook`: {verdict, queue, tasks, of, behind, stopped, reason}."""
    found = service.plan(file, given, unit, queue, priority)
    render.entries(service.misspelt(file))
    expected = service.expectations(found)
    prospects = service.prospects(found, queues)
    if output == "json":
        data = found.as_data() | ({"now": expected.as_data()} if expected is not None else {})
        for each in data["reservations"]:
            each["outlook"] = prospects[each["name"]].as_data()
        render.json_out(data)
    else:
        render.plan(found, expected, prospects)


@click.command()
@click.argument("file")
@click.option("--to", type=click.Choice(service.DRAWINGS), help="Which kind.  [default: by the name of --out, or tree]")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout.")
def draw(file: str, to: str | None, out: Path | None) -> None:
    """Draw the workflow in FILE as the author wrote it: a fan-out is one box."""
    by_name = {".svg": "svg", ".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid"}
    text = service.draw(file, to or by_name.get(out.suffix if out is not None else "", "tree"))
    _deliver(text, out)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE FILE...")
@_params
@click.option("--name", help="The name of the merged workflow.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="table: what is saved; json: the same as data; yaml: the merged workflow.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the merged workflow to this file (.yaml or .json).",
)
def merge(files: tuple[str, ...], given: tuple[str, ...], name: str | None, output: str, out: Path | None) -> None:
    """Join the workflows in all FILEs into one graph. Steps with the same content stand in it once.

    A parameter goes to every workflow that has it."""
    if out is not None and out.suffix not in (".yaml", ".yml", ".json"):
        raise UserError(
            Problem("P502", f"{str(out)!r} is neither YAML nor JSON", "use a name that ends in .yaml or .json")
        )
    merged = service.merge(files, given, name)
    from penstock.graph import codec

    if out is not None:
        _deliver(
            codec.to_json(merged.workflow) + "\n" if out.suffix == ".json" else codec.to_yaml(merged.workflow), out
        )
    if output == "yaml":
        click.echo(codec.to_yaml(merged.workflow), nl=False)
    elif output == "json":
        render.json_out(merged.as_data())
    else:
        render.merged(merged)


@click.command()
@click.argument("before")
@click.argument("after")
@_params
@_output
def diff(before: str, after: str, given: tuple[str, ...], output: str) -> None:
    """Compare two workflow files, two runs, or one with the other.

    Of files: what would run again and why, and what changes in demand. Of runs: parameters, outcome, outputs, time for each step, and
    what was reused. A file is compared with a run by what was recorded of the run; parameters that are not given are the run's.

    \b
    penstock diff old.py new.py
    penstock diff finetune-3 @
    penstock diff @ flow.py

    As JSON, with a file: {added, removed, renamed, changed, same, demand, params, workflow}. Of two runs: {before, after, plan, steps:
    [{step, before, after, state_before, state_after, reused}], outputs}."""
    sides = [_is_run(before), _is_run(after)]
    if any(sides):
        _diff_runs(before, after, sides, given, output)
        return
    found = service.diff(before, after, given)
    if output == "json":
        render.json_out(found.as_data())
    else:
        render.diff(found)


def _is_run(target: str) -> bool:
    """What is there as a file, or is called like one, is a file."""
    if target.startswith("@"):
        return True
    if "/" in target or ":" in target:
        return False
    return not Path(target).exists() and Path(target).suffix not in (".py", *service.DOCUMENTS)


def _diff_runs(before: str, after: str, sides: list[bool], given: tuple[str, ...], output: str) -> None:
    from penstock.cli.common import look_into
    from penstock.service import runs, views
    from penstock.settings import read

    settings = read()
    with look_into(settings) as store:
        found = [
            runs.find(store, name) if is_run else None for name, is_run in zip((before, after), sides, strict=True)
        ]
        a, b = found
        if a is not None and b is not None:
            if given:
                raise click.UsageError("-p goes with a file; a run has its own parameters.")
            compared = views.compare(store, a, b, settings)
            if output == "json":
                render.json_out(compared.as_data())
            else:
                from penstock.cli.screens import comparison

                comparison(compared)
            return
        changes = views.compare_file(store, before if a is None else a, after if b is None else b, given)
    if output == "json":
        render.json_out(changes.as_data())
    else:
        render.diff(changes)


def _deliver(text: str, out: Path | None) -> None:
    if out is None:
        click.echo(text, nl=not text.endswith("\n"))
        return
    try:
        out.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(
            Problem("P504", f"{str(out)!r} cannot be written: {error.strerror}", "choose another place")
        ) from None
    render.note(f"wrote {out}")
