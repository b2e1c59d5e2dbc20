"""Commands between formats: convert, gate, ungate. The documents go to stdout, what is to be said about them to stderr."""

from __future__ import annotations

import json
from pathlib import Path

import click

from penstock import service
from penstock.cli import render
from penstock.errors import Problem, UserError
from penstock.formats.report import Report
from penstock.service.foreign import Conversion

SHOWN = 40
"""Entries of a report that are read on a screen; the rest is in --report."""
_out = click.option(
    "-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout."
)
_report = click.option(
    "--report", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path), metavar="FILE",
    help="Write the report as JSON to this file; - is stdout, if the documents go to a file.",
)  # fmt: skip
_quiet = click.option("-q", "--quiet", is_flag=True, help="Say nothing about what was changed or lost.")


@click.command()
@click.argument("file", metavar="FILE|FOLDER")
@click.option("--to", required=True, metavar="FORMAT", help=f"One of {', '.join(service.TARGETS)}.")
@_out
@_report
@click.option("--strict", is_flag=True, help="Exit with 3 if anything was lost.")
@_quiet
def convert(file: str, to: str, out: Path | None, report: Path | None, strict: bool, quiet: bool) -> None:
    """Write the workflow in FILE in another format.

    FILE is Python, a Penstock document, or manifests of Argo Workflows, Tekton, JobSet or Kubernetes Jobs; a FOLDER is all the
    manifests in it. In its own format a manifest comes out as it is, and fields that its project does not know are reported.

    What was changed (done in another way there) and what was lost (cannot be said there) is reported with its line and the nearest equivalent. What cannot be said at all ends the command.

    \b
    penstock convert flow.py --to argo > workflow.yaml
    penstock convert workflow.yaml --to tekton --strict
    penstock convert pipelines/ --to python -o flows.py
    penstock convert workflow.yaml --to argo > /dev/null      checks it: misspelt fields are named

    As JSON the report is {counts: {kept, changed, lost}, entries: [{kind, path, message, nearest, file, line}]}."""
    found = service.convert(file, to)
    _deliver(found, out, report, quiet)
    if strict and found.report.losses:
        if report is not None and not quiet:
            render.note(f"lost {found.report.losses}; {report} says what")
        raise click.exceptions.Exit(3)


@click.command()
@click.argument("file", metavar="FILE|FOLDER")
@click.option(
    "--unit", type=click.Choice(["workflow", "stage", "task"]), default="stage", show_default=True,
    help="What waits: the whole, each stage, or each task.",
)  # fmt: skip
@click.option(
    "--by", type=click.Choice(["suspend", "pods"]), default="suspend", show_default=True,
    help="How an Argo workflow is held: by suspended nodes in its graph, or by scheduling gates on its pods.",
)  # fmt: skip
@_out
@_report
@_quiet
def gate(file: str, unit: str, by: str, out: Path | None, report: Path | None, quiet: bool) -> None:
    """Rewrite the manifests in FILE so that they wait for a queue.

    Argo workflows get a suspended node before each stage, which knows the stage's size and hands on the flavor that was found for it;
    with --by pods each pod gets a scheduling gate; with --unit workflow the workflow begins suspended. Tekton runs begin
    pending, JobSets and Jobs suspended. Exit handlers, hooks and finally tasks are never held. Your own suspends stay as they are.

    The queue is the one in the label kueue.x-k8s.io/queue-name. penstock ungate takes it all back.

    \b
    penstock gate workflow.yaml > gated.yaml
    penstock gate pipelinerun.yaml --unit workflow | kubectl create -f -"""
    _deliver(service.gate(file, unit, by), out, report, quiet)


@click.command()
@click.argument("file", metavar="FILE|FOLDER")
@_out
@_report
@_quiet
def ungate(file: str, out: Path | None, report: Path | None, quiet: bool) -> None:
    """Take back what penstock gate did to the manifests in FILE: they come out as they were."""
    _deliver(service.ungate(file), out, report, quiet)


def _deliver(found: Conversion, out: Path | None, report: Path | None, quiet: bool) -> None:
    if report is not None and str(report) == "-" and out is None:
        raise click.UsageError("--report - needs -o FILE: both would go to stdout.")
    if out is not None:
        _write(out, found.text)
    else:
        click.echo(found.text, nl=False)
    if report is not None:
        text = json.dumps(found.report.as_data(), indent=2, ensure_ascii=False) + "\n"
        click.echo(text, nl=False) if str(report) == "-" else _write(report, text)
    if not quiet and report is None:
        _tell(found.report)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            Problem("P504", f"{str(path)!r} cannot be written: {error.strerror}", "choose another place")
        ) from None
    render.note(f"wrote {path}")


def _tell(report: Report) -> None:
    told = [*report.of("lost"), *report.of("changed")]
    render.entries(told[:SHOWN])
    rest = len(told) - SHOWN + report.unlisted
    if rest > 0:
        render.note(f"… {rest:,} more; --report FILE has them all")
