"""The commands about queues: penstock queue ls, show, apply, drain, resume, delete, simulate. What they do is in queueing and
simulating, imported when they run."""

from __future__ import annotations

from typing import Any

import click

_output = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print."
)
_manifest = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="How to print; yaml: as a manifest of Kueue's.",
)


class _Queue(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of this file

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from penstock.errors import nearest

            hint = nearest(args[0], self.commands) or f" To see a queue: penstock queue show {args[0]}"
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx) from None


@click.group(cls=_Queue, invoke_without_command=True)
@click.pass_context
def queue(ctx: click.Context) -> None:
    """Queues: what there is to share, who holds it, who waits.

    Queues are Kueue's own objects: ResourceFlavor, ClusterQueue, LocalQueue, Cohort and WorkloadPriorityClass. They are kept in the store
    and shared by all runs on it. As long as there are none, everything is admitted by one queue that is as large as this machine.

    Without a command: ls."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(ls, output="table")


@queue.command()
@_manifest
def ls(output: str) -> None:
    """List the ClusterQueues: how many wait and hold, what is used of what.

    \b
    active     it admits
    holding    stopped: what runs may finish, nothing new starts
    draining   stopped, and what runs is being ended
    inactive   it names a flavor or a check that is not there

    As JSON: a list of {queue, kind, cluster_queue, cohort, strategy, state, why, pending, admitted, gated, local_queues, quota: [{flavor,
    resource, nominal, used, borrowed, free, most, borrowing_limit, lending_limit}]}. As YAML: everything that is configured."""
    from penstock.cli import queueing

    queueing.ls(output)


@queue.command()
@click.argument("name")
@_manifest
def show(name: str, output: str) -> None:
    """Show a ClusterQueue or LocalQueue: quota for each flavor, who holds it, who waits, in order, and why.

    As JSON: the same as of ls, and holding: [{workload, run, user, queue, priority, priority_class, pods, since, held, leaving}], waiting:
    [{workload, run, user, queue, priority, priority_class, pods, position, submitted, asks, reason}]. As YAML: the queue as Kueue has it,
    with its flavors."""
    from penstock.cli import queueing

    queueing.show(name, output)


@queue.command("apply")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@_output
def apply_(files: tuple[str, ...], output: str) -> None:
    """Add or change the objects of all FILEs (- for standard input): Kueue's manifests, YAML or JSON.

    Nothing is applied if anything in the files is wrong. Runs that wait are looked at again at once; runs that hold more than a
    smaller quota allows go on.

    As JSON: a list of {kind, name}."""
    from penstock.cli import queueing

    queueing.apply(files, output)


@queue.command()
@click.argument("name")
@click.option("--hold", is_flag=True, help="What runs may finish; only nothing new starts.")
@_output
def drain(name: str, hold: bool, output: str) -> None:
    """Stop a queue: nothing new starts in it, and what runs is ended and stands in line again. penstock queue resume NAME undoes it.

    Tasks that are ended in this way have not failed: what is done is kept, and they start again when the queue does."""
    from penstock.cli import queueing

    queueing.stop(name, "Hold" if hold else "HoldAndDrain", output)


@queue.command()
@click.argument("name")
@_output
def resume(name: str, output: str) -> None:
    """Let a queue that was drained or held go on."""
    from penstock.cli import queueing

    queueing.stop(name, "None", output)


@queue.command()
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--all", "everything", is_flag=True, help="Everything: back to this machine alone.")
@_output
def delete(names: tuple[str, ...], everything: bool, output: str) -> None:
    """Remove queues, or other objects by kind: cohort/all, resourceflavor/a100, workloadpriorityclass/high.

    What holds quota goes on; what waits in a queue that is gone waits until there is one of that name again.

    As JSON: a list of {kind, name}."""
    from penstock.cli import queueing

    if everything == bool(names):
        raise click.UsageError("Name what is to go, or say --all.", click.get_current_context())
    queueing.delete(names, everything, output)


@queue.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--queues", metavar="FILE", help="With the queues of this file.  [default: those that there are, or this machine]"
)
@click.option("--capacity", metavar="AMOUNTS", help="With one queue of this size instead: cpu=64,memory=256Gi.")
@click.option("--queue", "names", multiple=True, metavar="NAME", help="Dealt out to the runs in turn; repeat for more.")
@click.option("--priority", "priorities", multiple=True, metavar="NAME|N", help="Likewise.")
@click.option(
    "--unit",
    "units",
    multiple=True,
    type=click.Choice(["workflow", "stage", "task", "reuse"]),
    help="Only with this unit; repeat for more.",
)
@click.option(
    "--every",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Between one submission and the next.  [default: 0]",
)
@click.option(
    "--repeat", type=click.IntRange(min=1), default=1, metavar="N", help="The whole list so many times.  [default: 1]"
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    default=60.0,
    metavar="S",
    help="How long a task takes of which nothing is known.  [default: 60]",
)
@click.option(
    "--runtime",
    "runtimes",
    multiple=True,
    metavar="STEP=SECONDS",
    help="How long the tasks of a step take; repeat for more.",
)
@click.option(
    "-p", "--param", "given", multiple=True, metavar="KEY=VALUE", help="A parameter, for every workflow that has it."
)
@click.option(
    "--measured",
    is_flag=True,
    help="Tasks of a recording ask for what each of them took, not for what the largest of its kind took.",
)
@click.option("--plot", metavar="FILE", help="Draw usage over time, as .svg or .png.")
@click.option("-v", "--verbose", is_flag=True, help="All remarks on what was assumed.")
@_output
def simulate(
    files: tuple[str, ...],
    queues: str | None,
    capacity: str | None,
    plot: str | None,
    verbose: bool,
    output: str,
    **options: Any,
) -> None:
    """Play workflows through the queues with a clock that jumps, and compare the units.

    FILEs are workflows (Python, YAML, JSON) or recordings in WfFormat, the JSON of wfcommons.org; they are submitted in this order. The
    admission code is the one that runs use; only the tasks are not run: they take the time that they took in the last run that
    succeeded here, or that was recorded, or --seconds. The queues are empty at the beginning, and nothing is written.

    \b
    makespan   from the first submission to the last end
    delay      from a run's submission to its first start: mean/longest of the runs
    waiting    how long anything of a run stood in line
    stalled    the part of it during which nothing of the run ran
    used       of what there is, over the makespan
    wasted     reserved and not used, and its share of what was reserved
    preempted  how often a reservation was taken back for another
    workloads  how many reservations stood in line

    A unit whose reservations could never be admitted says so; if that is true of all of them, the exit code is 2.

    As JSON: {queues, capacity, jobs: [{workflow, file, at, queue, priority}], remarks, units: [{unit, makespan, delay: {mean, max},
    waiting, stalled, preemptions, workloads, resources: {NAME: {capacity, utilisation, reserved, used, wasted, peak_reserved,
    peak_used}}, runs: {RUN: {state, tasks, submitted, started, ended, delay, waiting, stalled, preemptions}}} or {unit, refused}]}.
    Times are seconds; reserved, used and wasted are cores, bytes or pieces times seconds."""
    from penstock.cli import simulating

    if queues is not None and capacity is not None:
        raise click.UsageError("Give --queues or --capacity, not both.", click.get_current_context())
    simulating.simulate(files, queues, capacity, plot, verbose, output, **options)
