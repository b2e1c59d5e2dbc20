"""penstock schedule: workflows that are run by the clock; and, where its first word is a file, metadata of Kueue and YuniKorn in manifests of any job
(ADR 35), whose documents go to stdout and the report to stderr."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.commands import schedules

if TYPE_CHECKING:
    from penstock.service.schedule import ScheduleRequest


class _Words(click.Group):
    """What is no subcommand is the FILE of `mark`. A file that is called like a subcommand is `./add`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["mark", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Words)
def schedule() -> None:
    """Run workflows by the clock; or write the metadata of a scheduler into manifests.

    Schedules are kept in the store, and run while penstock worker or penstock serve is there: each time once, however many there are. A schedule
    keeps the workflow, with its code and parameters, as it was when it was added.

    \b
    penstock schedule add nightly flow.py --cron '0 2 * * *' --zone Europe/Berlin --param-due day
    penstock schedule add poll flow.py:poll --every 10m --overlap skip
    penstock schedule take cronworkflow.yaml
    penstock schedule next nightly

    Where the first word is a file, it is that of mark: penstock schedule ray.yaml --with kueue. A file with the name of a subcommand is ./add."""


for _command in schedules.COMMANDS:
    schedule.add_command(_command)


@schedule.command()
@click.argument("file", metavar="FILE|FOLDER|-")
@click.option(
    "--with", "scheduler", default="", metavar="SCHEDULER", help="kueue, yunikorn, or one that you installed."
)
@click.option(
    "--queueconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="What is the same for all jobs of a type: the scheduler, gangs, preemption.",
)
@click.option(
    "--org", "organisation", default="", metavar="NAME", help="The queue is that of NAME for the type of job."
)
@click.option("--queue", default="", metavar="QUEUE", help="This queue, whatever the type of job.")
@click.option(
    "--queues",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The queues, of YuniKorn or Kueue: refuse what can never fit into them.",
)
@click.option(
    "-n", "--namespace", default="", metavar="NS", help="Where documents without a namespace will be created."
)
@click.option(
    "--app", default="", metavar="ID", help="YuniKorn: the application, if it is not to be one for each object."
)
@click.option(
    "--gang", type=click.Choice(["off", "soft", "hard"]), help="Whether pods start together, and in which style."
)
@click.option(
    "--timeout", type=click.IntRange(0), metavar="SECONDS", help="YuniKorn: how long a gang waits for its last pod."
)
@click.option("--priority", default="", metavar="CLASS", help="Kueue: a WorkloadPriorityClass.")
@click.option(
    "--allow-preemption/--no-preemption", "allow_preemption", default=None, help="YuniKorn: may others take its place?"
)
@click.option(
    "--user",
    default="",
    metavar="NAME",
    help="YuniKorn: whose work it is, where YuniKorn trusts the creator of the pods.",
)
@click.option("--group", "groups", multiple=True, metavar="NAME", help="A group of that user; repeat for more.")
@click.option(
    "-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout."
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Write the report as JSON to this file; - is stdout, if the documents go to a file.",
)
@click.option("--strict", is_flag=True, help="Exit with 3 if anything could not be written.")
@click.option("-q", "--quiet", is_flag=True, help="Do not print what was set, and what could not be.")
def mark(file: str, out: Path | None, report: Path | None, strict: bool, quiet: bool, **chosen: Any) -> None:
    """Write the metadata of a scheduler into the manifests in FILE, so that their jobs wait in a queue and start together.

    FILE may have several documents: Pod, Job, CronJob, JobSet, RayCluster, RayJob, SparkApplication, PyTorchJob and the like, MPIJob, TrainJob
    (with its runtime), DaskCluster, DaskJob, AppWrapper, LeaderWorkerSet, Deployment, StatefulSet, workflows of Argo, runs of Tekton. All others
    are written as they are. Only labels, annotations and schedulerNames change; a second time nothing does.

    The queue is QUEUE, or with --org NAME that of the type of job: root.NAME.ray for YuniKorn, NAME.ray for Kueue. Without both it is the one
    that the document names already.

    The word mark may be left out.

    \b
    penstock schedule ray.yaml --with kueue --org lab | kubectl apply -f -
    penstock schedule jobs/ --with yunikorn --org lab --gang hard --timeout 300
    penstock schedule ray.yaml --queueconfig queueconfig.yaml --org lab

    As JSON the report is {counts: {kept, changed, lost}, entries: [{kind, path, message, nearest, file, line}]}; the gangs are among what is kept."""
    import sys

    from penstock.cli.commands.convert import deliver
    from penstock.cli.ui import render
    from penstock.service.schedule import schedule as schedule_file

    if chosen["queue"] and chosen["organisation"]:
        raise click.UsageError("Give --queue or --org, not both.", click.get_current_context())
    found = schedule_file(file, _request(**chosen), sys.stdin.read() if file == "-" else None)
    deliver(found, out, report, quiet)
    for line in () if quiet else found.notes:
        render.note(line)
    if strict and found.report.losses:
        if report is not None and not quiet:
            render.note(f"lost {found.report.losses}; see {report}")
        raise click.exceptions.Exit(3)


def _request(
    scheduler: str, queueconfig: Path | None, queues: Path | None, organisation: str, gang: str | None, **binding: Any
) -> ScheduleRequest:
    """`binding`: the options that are fields of a Binding, by their names."""
    from penstock.scheduling.model import Binding, Style
    from penstock.service.schedule import ScheduleRequest

    styles: dict[str | None, Style] = {"soft": "Soft", "hard": "Hard"}
    bound = Binding(gang=gang != "off", style=styles.get(gang, ""), **binding)
    return ScheduleRequest(scheduler, bound, organisation, queueconfig, queues)
