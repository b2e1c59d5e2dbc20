"""The commands about queues: penstock queue ls, show, apply, convert, drain, resume, delete, simulate; those in queue_time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.commands import options
from penstock.cli.commands.queue_time import history, what_if

if TYPE_CHECKING:
    from penstock.service.views.quotas import QueueReader
    from penstock.settings import Settings

EXPLAINED = 20
"""Waiting Workloads whose reason is shown on a terminal."""
_manifest = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Output format; yaml: Kueue's manifests.",
)


_cluster = click.option("--cluster", is_flag=True, help="The queues of Kueue in the cluster of your kubeconfig.")


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of this file

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from penstock.errors import nearest

            hint = nearest(args[0], self.commands) or f" To see a queue: penstock queue show {args[0]}"
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx) from None


@click.group(cls=_Group, invoke_without_command=True)
@click.pass_context
def queue(ctx: click.Context) -> None:
    """Queues: their quota, who holds it, who waits.

    Queues are Kueue's own objects: ResourceFlavor, ClusterQueue, LocalQueue, Cohort and WorkloadPriorityClass. They are kept in the store
    and shared by all runs on it. As long as there are none, one queue as large as this machine admits everything.

    Without a command: ls."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(ls)


queue.add_command(history)
queue.add_command(what_if)

# -- reading ----------------------------------------------------------------------------------------------------------


@queue.command()
@_cluster
@options.namespace
@options.context
@options.kubeconfig
@options.server
@_manifest
def ls(
    cluster: bool,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    server: str | None,
    output: str,
) -> None:
    """List the ClusterQueues: how many Workloads wait and hold quota, and how much of it is used.

    \b
    active     it admits
    holding    stopped: running Workloads may finish, nothing new starts
    draining   stopped, and running Workloads are evicted
    inactive   it names a flavor or a check that does not exist

    With --cluster, or --context, or --kubeconfig: those of Kueue in a cluster, as they are at this moment.

    As JSON: a list of {queue, kind, cluster_queue, cohort, strategy, state, why, pending, admitted, gated, local_queues, quota: [{flavor,
    resource, nominal, used, borrowed, free, most, borrowing_limit, lending_limit}]}. As YAML: everything that is configured."""
    from penstock.cli.ui import queues, render

    clustered = cluster or bool(namespace or context or kubeconfig)
    reader = _cluster_reader(namespace, context, kubeconfig) if clustered else _reader(server)
    if output == "yaml":
        render.yaml_out(reader.manifests())
        return
    views = reader.all()
    if output == "json":
        render.json_out([view.as_data(workloads=False) for view in views])
    elif not views and clustered:
        render.note("there are no ClusterQueues in this cluster: kubectl apply -f FILE with one")
    elif not views:
        fix = "penstock queue apply FILE with a ClusterQueue, or penstock queue delete --all"
        render.note(f"there are no queues: {fix}")
    else:
        queues.queue_table(views)
        if not reader.source.configured:
            render.note("this machine is the only queue; penstock queue apply FILE makes others")


@queue.command()
@click.argument("name")
@_cluster
@options.namespace
@options.context
@options.kubeconfig
@options.server
@_manifest
def show(
    name: str,
    cluster: bool,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    server: str | None,
    output: str,
) -> None:
    """Show a ClusterQueue or LocalQueue: the quota of each flavor, who holds it, who waits, in order, and why.

    With --cluster, or --context, or --kubeconfig: one of Kueue in a cluster; -n NS: a LocalQueue of that namespace.

    As JSON: the same as ls, and holding: [{workload, run, user, queue, priority, priority_class, pods, since, held, leaving}], waiting:
    [{workload, run, user, queue, priority, priority_class, pods, position, submitted, asks, reason}]. As YAML: the queue as Kueue's
    manifest, with its flavors."""
    from penstock.cli.ui import queues, render

    clustered = cluster or bool(namespace or context or kubeconfig)
    reader = _cluster_reader(namespace, context, kubeconfig) if clustered else _reader(server)
    name = f"{namespace}/{name}" if namespace and f"{namespace}/{name}" in reader.queues.local_queues else name
    if output == "yaml":
        render.yaml_out(reader.manifest(name))
        return
    view = reader.one(name, EXPLAINED if output == "table" and render.is_terminal() else 1000)
    if output == "json":
        render.json_out(view.as_data())
    else:
        queues.queue_view(view)


def _cluster_reader(namespace: str | None, context: str | None, kubeconfig: str | None) -> QueueReader:
    from penstock.cli.cluster import connect, queues_of_cluster

    return queues_of_cluster(connect(context, kubeconfig), namespace)


def _reader(server: str | None) -> QueueReader:
    from penstock.service import stores
    from penstock.service.views.quotas import QueueReader, StoreQueues

    settings = options.settings_for(server)
    if not stores.exists(settings):
        from penstock.service.views.outlook import QueueOverlay
        from penstock.store.memory import MemoryStore

        return QueueReader(StoreQueues(MemoryStore(QueueOverlay(None).rows)))
    store = stores.open_existing(settings)
    click.get_current_context().call_on_close(store.close)
    return QueueReader(StoreQueues(store))


# -- changing ---------------------------------------------------------------------------------------------------------


@queue.command("apply")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@options.server
@options.output
def apply_(files: tuple[str, ...], server: str | None, output: str) -> None:
    """Add or change the objects of all FILEs (- for standard input): Kueue's manifests, YAML or JSON, or the queue configuration of YuniKorn
    (queues.yaml, or the ConfigMap yunikorn-configs).

    Nothing is applied if anything in the files is wrong. Waiting runs are considered again at once; runs that hold more than a
    smaller quota allows go on.

    YuniKorn's queues become Kueue's objects, as penstock queue convert writes them; what they cannot hold is reported. Who may submit is honoured:
    a run that its user may not submit is refused. A new configuration takes the place of the one before.

    As JSON: a list of {kind, name}."""
    import sys

    from penstock.cli.ui import errors
    from penstock.service import queue_changes, queues
    from penstock.service.yunikorn import translated

    sources = [
        (sys.stdin.read(), "standard input") if file == "-" else (queues.read_file(file), file) for file in files
    ]
    settings = options.settings_for(server)
    applied, warnings = queue_changes.apply(settings, sources)
    errors.problems(warnings)
    for text, file in sources:
        other = translated(text, file)
        errors.entries(other.report.of("lost") if other is not None else ())
    _report("applied", applied, settings, output)


@queue.command()
@click.argument("file", metavar="FILE|-")
@click.option("--to", required=True, metavar="SCHEDULER", help="kueue or yunikorn.")
@click.option("--capacity", metavar="AMOUNTS", help="To kueue: what the whole cluster has, as in cpu=64,memory=256Gi.")
@click.option(
    "-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout."
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Write the report as JSON to this file; - is stdout, if the queues go to a file.",
)
@click.option("--strict", is_flag=True, help="Exit with 3 if anything was lost.")
@click.option("-q", "--quiet", is_flag=True, help="Do not print what was changed or lost.")
def convert(
    file: str, to: str, capacity: str | None, out: Path | None, report: Path | None, strict: bool, quiet: bool
) -> None:
    """Write the queue configuration of YuniKorn in FILE as Kueue's objects, or Kueue's objects as a queue configuration.

    A parent queue is a Cohort, a leaf a ClusterQueue with a LocalQueue; guaranteed is nominalQuota, max is nominalQuota and borrowingLimit. What the other
    scheduler has no place for is reported with its line: ACLs, limits of users and groups, placement rules; flavors, admission checks, weights.

    \b
    penstock queue convert queues.yaml --to kueue --capacity cpu=640,memory=2560Gi | kubectl apply -f -
    penstock queue convert kueue.yaml --to yunikorn -o queues.yaml

    As JSON the report is {counts: {kept, changed, lost}, entries: [{kind, path, message, nearest, file, line}]}."""
    import sys

    from penstock.cli.commands.convert import deliver
    from penstock.service import queues, yunikorn
    from penstock.service.simulation.scenario import parse_amounts

    text = sys.stdin.read() if file == "-" else queues.read_file(file)
    amounts = None if capacity is None else parse_amounts(capacity)
    thousandths = amounts and {name: each if name == "cpu" else each * 1000 for name, each in amounts.items()}
    found = yunikorn.convert(text, "standard input" if file == "-" else file, to, thousandths)
    deliver(found, out, report, quiet)
    if strict and found.report.losses:
        raise click.exceptions.Exit(3)


@queue.command()
@click.argument("name")
@click.option("--hold", is_flag=True, help="Running Workloads may finish; only nothing new starts.")
@options.server
@options.output
def drain(name: str, hold: bool, server: str | None, output: str) -> None:
    """Stop a queue: nothing new starts in it, and running Workloads are evicted and wait in the queue again. penstock queue resume NAME
    undoes it.

    Tasks that are ended in this way have not failed: finished work is kept, and they start again when the queue does."""
    _set_stop(name, "hold" if hold else "drain", server, output)


@queue.command()
@click.argument("name")
@options.server
@options.output
def resume(name: str, server: str | None, output: str) -> None:
    """Let a queue that was drained or held admit again."""
    _set_stop(name, "resume", server, output)


def _set_stop(name: str, verb: str, server: str | None, output: str) -> None:
    from penstock.cli.ui import render
    from penstock.service import queue_changes

    settings = options.settings_for(server)
    (kind, called), running, waiting = queue_changes.stop(settings, name, verb)
    words = {
        "resume": f"{name} admits again" + (f"; {waiting:,} waiting" if waiting else ""),
        "hold": f"{name} holds: nothing new starts" + (f", {running:,} may finish" if running else ""),
        "drain": f"{name} drains: nothing new starts" + (f", {running:,} being evicted" if running else ""),
    }
    policy = str(queue_changes.VERBS[verb])
    render.result(output, {"kind": kind, "name": called, "stop": policy}, words[verb])
    if output != "json":
        if verb != "resume":
            render.note(f"  undo   penstock queue resume {name}")
        _note_store(settings)


@queue.command()
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--all", "everything", is_flag=True, help="Everything: only this machine itself is left.")
@options.server
@options.output
def delete(names: tuple[str, ...], everything: bool, server: str | None, output: str) -> None:
    """Remove queues, or other objects by kind: cohort/all, resourceflavor/a100, workloadpriorityclass/high.

    Workloads that hold quota go on; those that wait in a queue that is removed wait until there is one of that name again.

    As JSON: a list of {kind, name}."""
    from penstock.cli.ui import render
    from penstock.service import queue_changes

    if everything == bool(names):
        raise click.UsageError("Name what to delete, or use --all.", click.get_current_context())
    settings = options.settings_for(server)
    gone = queue_changes.delete(settings, names, everything)
    if not gone and output != "json":
        render.note("there are no queues but this machine itself")
    _report("deleted", gone, settings, output)


def _report(verb: str, objects: list[tuple[str, str]], settings: Settings, output: str) -> None:
    from penstock.cli.ui import render

    if output == "json":
        render.json_out([{"kind": kind, "name": name} for kind, name in objects])
        return
    for kind, name in objects:
        called = name.removeprefix("default/") if kind == "LocalQueue" else name
        render.data(f"{verb} {kind} {called}".rstrip())
    _note_store(settings)


def _note_store(settings: Settings) -> None:
    """Names the store if it is not that of the current folder, because others may share it."""
    from penstock.cli.ui import render
    from penstock.service.stores import name_of
    from penstock.settings import FOLDER

    if settings.server or settings.store != str(Path.cwd() / FOLDER):
        render.note(f"  in     {name_of(settings)}")


@queue.command()
@options.output
def access(output: str) -> None:
    """Show who may submit to each queue, who administers it, and what you may.

    The lists are those of YuniKorn's configuration, or of `access:` beside Kueue's objects. A grant counts for all queues below. Where there
    are no lists, everybody may submit; where none names an administrator, everybody who can write to the store is one.

    As JSON: a list of {queue, kind, lists, submit, admin}; submit and admin are about you, admin is null where nobody is named."""
    from penstock.cli.ui import render
    from penstock.service import stores
    from penstock.service.access import listing
    from penstock.service.submission import local_actor
    from penstock.settings import read

    with stores.open_existing(read()) as store:
        found = listing(store, local_actor())
    if output == "json":
        render.json_out(found)
        return
    words = {True: "yes", False: "no", None: "anybody"}
    rows = [
        [one["queue"], "; ".join(one["lists"]) or "no lists", words[one["submit"]], words[one["admin"]]]
        for one in found
    ]
    if rows or not render.is_terminal():
        render.table(["QUEUE", "LISTS", "YOU SUBMIT", "YOU ADMINISTER"], rows)
    else:
        render.note("nobody has said who may what: everybody may submit to all queues")


# -- simulating -------------------------------------------------------------------------------------------------------


@queue.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--queues", metavar="FILE", help="With the queues of this file.  [default: the configured ones, or this machine]"
)
@click.option("--capacity", metavar="AMOUNTS", help="With one queue of this size instead: cpu=64,memory=256Gi.")
@click.option(
    "--queue", "names", multiple=True, metavar="NAME", help="Assigned to the runs in rotation; repeat for more."
)
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
    help="The run time of a task if it is not known.  [default: 60]",
)
@click.option(
    "--runtime",
    "runtimes",
    multiple=True,
    metavar="STEP=SECONDS",
    help="The run time of the tasks of a step; repeat for more.",
)
@click.option(
    "-p", "--param", "given", multiple=True, metavar="KEY=VALUE", help="A parameter, for every workflow that has it."
)
@click.option(
    "--measured",
    is_flag=True,
    help="Tasks of a recording ask for what each of them used, not for what the largest of its kind used.",
)
@click.option("--plot", metavar="FILE", help="Draw usage over time, as .svg or .png.")
@click.option("-v", "--verbose", is_flag=True, help="All remarks on what was assumed.")
@options.server
@options.output
def simulate(
    files: tuple[str, ...], queues: str | None, capacity: str | None, server: str | None, **choices: Any
) -> None:
    """Execute workflows on a virtual clock against the queues, and compare the units.

    FILEs are workflows (Python, YAML, JSON) or recordings in WfFormat, the JSON of wfcommons.org; they are submitted in this order. The
    admission code is the one that runs use; only the tasks are not executed: they take the time that they took in the last run that
    succeeded here, or that was recorded, or --seconds. The queues are empty at the beginning, and nothing is written. With --server, queues and
    earlier runs are those of the server; the simulation runs here.

    \b
    makespan   from the first submission to the last end
    delay      from a run's submission to its first start: mean/longest of the runs
    waiting    how long anything of a run waited in a queue
    stalled    the part of it during which nothing of the run ran
    used       share of the quota, over the makespan
    wasted     reserved and not used, and its share of what was reserved
    preempted  how often a reservation was preempted
    workloads  how many reservations were queued

    A unit whose reservations can never be admitted is reported; if that is true of all units, the exit code is 2.

    As JSON: {queues, capacity, jobs: [{workflow, file, at, queue, priority}], remarks, units: [{unit, makespan, delay: {mean, max},
    waiting, stalled, preemptions, workloads, resources: {NAME: {capacity, utilisation, reserved, used, wasted, peak_reserved,
    peak_used}}, runs: {RUN: {state, tasks, submitted, started, ended, delay, waiting, stalled, preemptions}}} or {unit, refused}]}.
    Times are seconds; reserved, used and wasted are cores, bytes or pieces times seconds."""
    from penstock.cli.simulation import run_simulation

    if queues is not None and capacity is not None:
        raise click.UsageError("Give --queues or --capacity, not both.", click.get_current_context())
    run_simulation(files, queues=queues, capacity=capacity, settings=options.settings_for(server), **choices)
