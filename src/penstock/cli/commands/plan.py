"""Commands about workflow files: plan, draw, merge, diff."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.commands import options

if TYPE_CHECKING:
    from penstock.settings import Settings


@click.command()
@click.argument("file")
@options.params
@click.option("--queue", metavar="NAME", help="As if it were run in this queue.")
@click.option("--priority", metavar="NAME|N", help="As if it were run with this priority.")
@click.option(
    "--unit",
    metavar="UNIT",
    help="Cut into reservations by workflow, stage, task or reuse.  [default: that of the workflow, or stage]",
)
@click.option("--queues", metavar="FILE", help="As if the queues of this file were applied.")
@click.option(
    "--on",
    type=click.Choice(["kubernetes"]),
    help="As if it were run there: Kueue's queues in the cluster, as they are now.",
)
@options.server
@options.output
def plan(
    file: str,
    given: tuple[str, ...],
    queue: str | None,
    priority: str | None,
    unit: str | None,
    queues: str | None,
    on: str | None,
    server: str | None,
    output: str,
) -> None:
    """Show what FILE would run: steps, stages, what each needs, and the peak demand beside the sum.

    Nothing is run and nothing is written. If runs are recorded here (.penstock), NOW shows what a run would do with each step: reuse a
    result, share one that is being computed, or run. Sizes that are known only at run time are marked '?' and explained.

    For each reservation, IN THE QUEUE shows what would happen if it were requested now: it fits, it fits in part, it waits and for
    what, or it can never fit. With --on kubernetes the cluster is read through kubectl, as `penstock run` would reach it. With --server, what is
    recorded and the queues are those of the server.

    As JSON each reservation has its `outlook`: {verdict, queue, tasks, of, behind, stopped, reason}."""
    from penstock.cli.ui import errors, plans, render
    from penstock.service import workflows
    from penstock.service.plans import access_of, forecast_of, outlook_of, sizes_of
    from penstock.service.plans import plan as plan_file

    found = plan_file(file, given, unit, queue, priority)
    errors.entries(workflows.unknown_fields(file))
    errors.problems(replace(one, severity="warning") for one in workflows.refused(file))
    errors.problems(sizes_of(found))
    settings = options.settings_for(server)
    forecast = forecast_of(found, settings)
    if on is None:
        outlook = outlook_of(found, settings, queues)
        errors.problems(access_of(found, settings, queues))
    else:
        from penstock.cli.cluster import outlook_in_cluster

        outlook = outlook_in_cluster(found)
    if output == "json":
        data = found.as_data() | ({"now": forecast.as_data()} if forecast is not None else {})
        for each in data["reservations"]:
            each["outlook"] = outlook[each["name"]].as_data()
        render.json_out(data)
    else:
        plans.plan(found, forecast, outlook)


@click.command()
@click.argument("file")
@click.option(
    "--to",
    type=click.Choice(["mermaid", "dot", "tree", "svg"]),
    help="The kind of drawing.  [default: by the name of --out, or tree]",
)
@options.out_file
def draw(file: str, to: str | None, out: Path | None) -> None:
    """Draw the workflow in FILE as the author wrote it: a fan-out is one box."""
    from penstock.cli.ui import render
    from penstock.service.workflows import draw as draw_file

    by_name = {".svg": "svg", ".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid"}
    render.deliver(draw_file(file, to or by_name.get(out.suffix if out is not None else "", "tree")), out)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE FILE...")
@options.params
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
    """Join the workflows in all FILEs into one graph, in which steps with the same content occur once.

    A parameter goes to every workflow that has it."""
    from penstock.cli.ui import plans, render
    from penstock.errors import Problem, UserError
    from penstock.graph import codec
    from penstock.service.plans import merge as merge_files

    if out is not None and out.suffix not in (".yaml", ".yml", ".json"):
        fix = "use a name that ends in .yaml or .json"
        raise UserError(Problem("P502", f"{str(out)!r} is neither YAML nor JSON", fix))
    merged = merge_files(files, given, name)
    if out is not None:
        render.deliver(codec.to_json(merged.workflow) if out.suffix == ".json" else codec.to_yaml(merged.workflow), out)
    if output == "yaml":
        render.deliver(codec.to_yaml(merged.workflow), None)
    elif output == "json":
        render.json_out(merged.as_data())
    else:
        plans.merged(merged)


@click.command()
@click.argument("before")
@click.argument("after")
@options.params
@options.server
@options.output
def diff(before: str, after: str, given: tuple[str, ...], server: str | None, output: str) -> None:
    """Compare two workflow files, two runs, or a file with a run.

    Files: what would run again and why, and what changes in demand. Runs: parameters, state, outputs, time of each step, and what was
    reused. A file is compared with the recorded workflow of a run; parameters that are not given are those of the run.

    \b
    penstock diff old.py new.py
    penstock diff finetune-3 @
    penstock diff @ flow.py

    As JSON, with a file: {added, removed, renamed, changed, same, demand, params, workflow}. Of two runs: {before, after, plan, steps:
    [{step, before, after, state_before, state_after, reused}], outputs}."""
    from penstock.cli.ui import plans, render

    sides = [_is_run(before), _is_run(after)]
    if all(sides):
        _diff_runs(before, after, given, options.settings_for(server), output)
        return
    if any(sides):
        from penstock.service import stores
        from penstock.service.run_records import find
        from penstock.service.views.comparison import compare_file

        with stores.open_existing(options.settings_for(server)) as store:
            a, b = (find(store, name) if is_run else name for name, is_run in zip((before, after), sides, strict=True))
            found = compare_file(store, a, b, given)
    else:
        from penstock.service.plans import diff as diff_files

        found = diff_files(before, after, given)
    if output == "json":
        render.json_out(found.as_data())
    else:
        plans.diff(found)


def _is_run(target: str) -> bool:
    """Not if there is such a file, or the name looks like that of a file."""
    if target.startswith("@"):
        return True
    if "/" in target or ":" in target:
        return False
    from penstock.service.manifests import DOCUMENTS

    return not Path(target).exists() and Path(target).suffix not in (".py", *DOCUMENTS)


def _diff_runs(before: str, after: str, given: tuple[str, ...], settings: Settings, output: str) -> None:
    from penstock.cli.ui import render
    from penstock.service import stores
    from penstock.service.run_records import find
    from penstock.service.views.comparison import compare

    if given:
        raise click.UsageError("-p goes with a file; a run has its own parameters.")
    with stores.open_existing(settings) as store:
        found = compare(store, find(store, before), find(store, after), settings)
    if output == "json":
        render.json_out(found.as_data())
        return
    from penstock.cli.ui.comparison import comparison

    comparison(found)
