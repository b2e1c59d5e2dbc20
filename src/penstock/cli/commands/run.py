"""Commands that execute runs: run, resume, retry, cancel."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import click

from penstock.cli.commands import options


@click.command()
@click.argument("file")
@options.params
@click.option("--until", multiple=True, metavar="STEP", help="Only this step and what it needs; repeat for more.")
@click.option("--fail-fast", is_flag=True, help="After a failure start nothing more.")
@click.option("--fresh", is_flag=True, help="Run every step, even if its result is stored.")
@click.option("-m", "--module", is_flag=True, help="FILE is the name of a module, pkg.flow, as for python -m.")
@click.option("--new", is_flag=True, help="Start a new run, even if the last run of this workflow was interrupted.")
@click.option("--dry", is_flag=True, help="Execute nothing: every step succeeds at once.")
@click.option("-d", "--detach", is_flag=True, help="Run in the background and return at once.")
@click.option("--queue", metavar="NAME", help="The queue that admits it.  [default: that of the workflow]")
@click.option("--priority", metavar="NAME|N", help="A priority class, or a number; higher ones go first.  [default: 0]")
@click.option(
    "--unit",
    metavar="UNIT",
    help="What is admitted together: workflow, stage, task or reuse.  [default: that of the workflow, or stage]",
)
@click.option(
    "--queues", metavar="FILE", help="Apply the queues of this file first.  [default: penstock.yaml, if it exists]"
)
@options.jobs
@click.option(
    "--on",
    multiple=True,
    metavar="KIND=BACKEND",
    help="The backend for steps of a kind: container=process runs commands on this machine instead of in their image, "
    "function=inline calls functions in the engine's process. A backend alone is for steps of every kind.",
)
@click.option(
    "--callback", "callbacks", multiple=True, metavar="URL", help="POST to URL when the run has ended; repeat for more."
)
@options.server
@options.quiet
@options.output
def run(
    file: str,
    given: tuple[str, ...],
    until: tuple[str, ...],
    fail_fast: bool,
    fresh: bool,
    module: bool,
    new: bool,
    dry: bool,
    detach: bool,
    queue: str | None,
    priority: str | None,
    unit: str | None,
    queues: str | None,
    jobs: int | None,
    on: tuple[str, ...],
    callbacks: tuple[str, ...],
    server: str | None,
    quiet: bool,
    output: str,
) -> None:
    """Run the workflow in FILE on this machine, or on a server, and follow it.

    Everything that happens is recorded in .penstock as it happens: after a crash, a kill or Ctrl-C the same command continues where
    it stopped. Steps whose code and inputs have not changed since an earlier run are not run again.

    Steps that ask for cpu, memory or other resources start when their queue admits them. Without queues, this machine's resources are
    shared by all runs here. penstock why @ shows what a run waits for.

    A manifest of Argo Workflows, Tekton, JobSet or Kubernetes runs by the rules of its own system: in its images if podman or docker
    can run them, otherwise, if you allow it when you are asked, as plain commands on this machine. --dry walks through any workflow without
    executing anything, to show its order, conditions and loops; its results are made up, and no later run reuses them.

    With --server the workflow is sent with its code, and the files among its parameters; Ctrl-C leaves it running there.

    Ctrl-C once lets the running tasks finish and leaves the rest for later; twice ends them now."""
    from penstock.backends.registry import prestarted

    settings = options.settings_for(server, jobs)
    if module:
        from penstock.service.workflows import of_module

        file = of_module(file)
    if settings.server:
        from penstock.cli.foreground import ForegroundOptions
        from penstock.cli.remote import run_there

        asked = {
            "until": until,
            "fail_fast": fail_fast,
            "fresh": fresh,
            "dry": dry,
            "queue": queue,
            "priority": priority,
        }
        there = ForegroundOptions(
            given=given,
            submission={**asked, "unit": unit, "queues": queues},
            on=on,
            detach=detach,
            callbacks=callbacks,
        )
        run_there(file, there, settings, quiet, output)
        return
    is_python = file.partition(":")[0].endswith(".py") and Path(file.partition(":")[0]).is_file()
    engine = os.urandom(16).hex() if is_python and not detach else ""
    # A worker takes as long to start as the engine takes to import, so it is started first.
    with prestarted(settings.home, engine) if engine else nullcontext():
        from penstock.cli.foreground import ForegroundOptions, run_file

        chosen = ForegroundOptions(
            given=given,
            submission={
                "until": until,
                "fail_fast": fail_fast,
                "fresh": fresh,
                "dry": dry,
                "queue": queue,
                "priority": priority,
                "unit": unit,
                "queues": queues,
            },
            on=on,
            new=new,
            detach=detach,
            callbacks=callbacks,
        )
        run_file(file, chosen, settings, quiet, output, engine)


@click.command()
@click.argument("target", metavar="RUN[/STEP]")
@options.params
@options.jobs
@options.server
@options.quiet
@options.output
def resume(target: str, given: tuple[str, ...], jobs: int | None, server: str | None, quiet: bool, output: str) -> None:
    """Continue RUN where it stopped, or resume a suspended STEP of it.

    A run that was interrupted, or whose process is gone, is continued by this command. With /STEP, the suspended step is resumed; -p
    gives the values that it asks for. If another process executes the run, all its suspended steps are resumed there, or the one
    named. Of a run that is over, it tells the MLflow server what that was not told."""
    settings = options.settings_for(server, jobs)
    if settings.server:
        from penstock.cli.remote import resume_there

        resume_there(target, given, settings, quiet, output)
        return
    from penstock.cli.foreground import resume_run

    resume_run(target, given, settings, quiet, output)


@click.command()
@click.argument("name", metavar="RUN")
@options.jobs
@options.server
@options.quiet
@options.output
def retry(name: str, jobs: int | None, server: str | None, quiet: bool, output: str) -> None:
    """Try again what failed in RUN, with the same code and parameters. What succeeded is kept.

    If you have changed the code, use `penstock run FILE` instead: it reuses the results of unchanged steps."""
    settings = options.settings_for(server, jobs)
    if settings.server:
        from penstock.cli.remote import retry_there

        retry_there(name, settings, quiet, output)
        return
    from penstock.cli.foreground import retry_run

    retry_run(name, settings, quiet, output)


@click.command()
@click.argument("name", metavar="RUN")
@click.option("--now", is_flag=True, help="Kill running tasks at once and skip the exit handlers.")
@options.server
@options.output
def cancel(name: str, now: bool, server: str | None, output: str) -> None:
    """End RUN. Running tasks get 10 seconds to end and are then killed; exit handlers still run.

    What it has done is kept: penstock retry RUN runs the rest later, and a new run reuses its results."""
    settings = options.settings_for(server)
    if settings.server:
        from penstock.cli.remote import cancel_there

        cancel_there(name, now, settings, output)
        return
    from penstock.cli.foreground import cancel_run

    cancel_run(name, now, settings, output)
