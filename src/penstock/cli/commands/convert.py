"""Commands between formats: convert, gate, ungate. Documents go to stdout, reports to stderr."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from penstock.service.conversion import Conversion

SHOWN = 40
"""Entries of a report that are printed; --report writes all."""
_out = click.option(
    "-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout."
)
_report = click.option(
    "--report",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Write the report as JSON to this file; - is stdout, if the documents go to a file.",
)
_quiet = click.option("-q", "--quiet", is_flag=True, help="Do not print what was changed or lost.")


@click.command()
@click.argument("file", metavar="FILE|FOLDER")
@click.option(
    "--to",
    required=True,
    metavar="FORMAT",
    help="One of argo, tekton, jobset, job, asl, penstock, python, mermaid, dot.",
)
@_out
@_report
@click.option("--strict", is_flag=True, help="Exit with 3 if anything was lost.")
@_quiet
def convert(file: str, to: str, out: Path | None, report: Path | None, strict: bool, quiet: bool) -> None:
    """Write the workflow in FILE in another format.

    FILE is Python, a Penstock document, or manifests of Argo Workflows, Tekton, JobSet or Kubernetes Jobs; a FOLDER is all the
    manifests in it. In its own format a manifest is written unchanged, and fields that its project does not know are reported.

    What was changed (is done in another way there) and what was lost (cannot be expressed there) is reported with its line and the
    nearest equivalent. If a step cannot be expressed at all, nothing is written.

    \b
    penstock convert flow.py --to argo > workflow.yaml
    penstock convert workflow.yaml --to tekton --strict
    penstock convert pipelines/ --to python -o flows.py
    penstock convert workflow.yaml --to argo > /dev/null      checks it: reports misspelt fields

    As JSON the report is {counts: {kept, changed, lost}, entries: [{kind, path, message, nearest, file, line}]}."""
    from penstock.cli.ui import render
    from penstock.service.conversion import convert as convert_file

    found = convert_file(file, to)
    deliver(found, out, report, quiet)
    if strict and found.report.losses:
        if report is not None and not quiet:
            render.note(f"lost {found.report.losses}; see {report}")
        raise click.exceptions.Exit(3)


@click.command()
@click.argument("file", metavar="FILE|FOLDER")
@click.option(
    "--unit",
    type=click.Choice(["workflow", "stage", "task"]),
    default="stage",
    show_default=True,
    help="What waits: the whole, each stage, or each task.",
)
@click.option(
    "--by",
    type=click.Choice(["suspend", "pods"]),
    default="suspend",
    show_default=True,
    help="How an Argo workflow waits: at suspended nodes in its graph, or by scheduling gates on its pods.",
)
@_out
@_report
@_quiet
def gate(file: str, unit: str, by: str, out: Path | None, report: Path | None, quiet: bool) -> None:
    """Rewrite the manifests in FILE so that they wait for a queue.

    Argo workflows get a suspended node before each stage, which knows the stage's size and passes on the flavor that was assigned to
    it; with --by pods each pod gets a scheduling gate; with --unit workflow the workflow starts suspended. Tekton runs start pending,
    JobSets and Jobs suspended. Exit handlers, hooks and finally tasks never wait. Your own suspends stay as they are.

    The queue is the one in the label kueue.x-k8s.io/queue-name. penstock ungate removes all of this.

    Something must open the gates, or the workflow waits for ever: `argo resume`, `kubectl patch`, or a controller of your own. Kueue
    itself opens a JobSet or Job that waits as a whole. On a cluster with Penstock's controller (penstock controller) do not gate
    manifests: it holds back whatever has the queue's label, and lets it go when Kueue admits it.

    \b
    penstock gate workflow.yaml > gated.yaml
    penstock gate pipelinerun.yaml --unit workflow | kubectl create -f -"""
    from penstock.service.conversion import gate as gate_file

    found = gate_file(file, unit, by)
    deliver(found, out, report, quiet)
    if not quiet:
        from penstock.cli.ui import render

        for line in found.notes:
            render.note(f"note: {line}")


@click.command()
@click.argument("file", metavar="FILE|FOLDER")
@_out
@_report
@_quiet
def ungate(file: str, out: Path | None, report: Path | None, quiet: bool) -> None:
    """Remove what penstock gate added to the manifests in FILE. The result is the original."""
    from penstock.service.conversion import ungate as ungate_file

    deliver(ungate_file(file), out, report, quiet)


def deliver(found: Conversion, out: Path | None, report: Path | None, quiet: bool) -> None:
    """The documents to stdout or a file, the report to stderr or a file. Called by `penstock schedule` too."""
    from penstock.cli.ui import errors, render

    if report is not None and str(report) == "-" and out is None:
        raise click.UsageError("--report - needs -o FILE: both would go to stdout.")
    render.deliver(found.text, out)
    if report is not None:
        import json

        text = json.dumps(found.report.as_data(), indent=2, ensure_ascii=False)
        render.deliver(text, None if str(report) == "-" else report)
    elif not quiet:
        differences = [*found.report.of("lost"), *found.report.of("changed")]
        errors.entries(differences[:SHOWN])
        rest = len(differences) - SHOWN + found.report.unlisted
        if rest > 0:
            render.note(f"… {rest:,} more; --report FILE has them all")
