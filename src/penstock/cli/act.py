"""Commands that make things happen to runs: run, resume, retry, cancel. What they do is in acting, imported when they run."""

from __future__ import annotations

import os
from pathlib import Path

import click

_params = click.option(
    "-p", "--param", "given", multiple=True, metavar="KEY=VALUE",
    help="A parameter of the workflow; repeat for more. Lists and numbers are JSON.",
)  # fmt: skip
_jobs = click.option(
    "-j", "--jobs", type=int, metavar="N", help="Run at most N tasks at a time.  [default: processors]"
)
_on = click.option(
    "--on", multiple=True, metavar="KIND=BACKEND",
    help="Where steps of a kind run: container=process runs commands on this machine instead of in their image, function=inline "
    "calls functions inside the engine. A backend alone is for steps of every kind.",
)  # fmt: skip
_output = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print."
)
_quiet = click.option("-q", "--quiet", is_flag=True, help="No progress.")


@click.command()
@click.argument("file")
@_params
@click.option("--until", multiple=True, metavar="STEP", help="Only this step and what it needs; repeat for more.")
@click.option("--fail-fast", is_flag=True, help="After a failure start nothing more.")
@click.option("--fresh", is_flag=True, help="Run every step, even if its result is known.")
@click.option("--new", is_flag=True, help="Do not continue an interrupted run of the same workflow; start another.")
@click.option("--dry", is_flag=True, help="Walk through it: every step succeeds at once and nothing is run.")
@click.option("-d", "--detach", is_flag=True, help="Run in the background and return at once.")
@click.option("--queue", metavar="NAME", help="The queue that admits it.  [default: as the workflow says]")
@click.option("--priority", metavar="NAME|N", help="A priority class, or a number; more goes first.  [default: 0]")
@click.option(
    "--unit",
    metavar="UNIT",
    help="What is admitted together: workflow, stage, task or reuse.  [default: as the workflow says, or stage]",
)
@click.option(
    "--queues", metavar="FILE", help="Apply the queues of this file first.  [default: penstock.yaml, if it is here]"
)
@_jobs
@_on
@_quiet
@_output
def run(
    file: str, given: tuple[str, ...], until: tuple[str, ...], fail_fast: bool, fresh: bool, new: bool, dry: bool, detach: bool, queue: str | None,
    priority: str | None, unit: str | None, queues: str | None, jobs: int | None, on: tuple[str, ...], quiet: bool, output: str,
) -> None:  # fmt: skip
    """Run the workflow in FILE on this machine and follow it.

    Everything that happens is recorded in .penstock as it happens: after a crash, a kill or Ctrl-C the same command goes on where it
    stopped. Steps whose code and inputs have not changed since an earlier run are not run again.

    Steps that ask for cpu, memory or the like start when their queue has that much to give: without queues, when this machine has,
    together with all other runs here. penstock why @ says what a run waits for.

    A manifest of Argo Workflows, Tekton, JobSet or Kubernetes runs by the rules of its own system: in its images where podman or docker is
    at hand, as plain commands on this machine where not. --dry walks through any workflow without running anything, so that its order, conditions
    and loops can be seen; what it would compute is made up, and nothing of it is kept for later runs.

    Ctrl-C once lets the running tasks finish and leaves the rest for later; twice ends them now."""
    from penstock.backends import prestart
    from penstock.settings import read

    engine = ""
    if file.partition(":")[0].endswith(".py") and Path(file.partition(":")[0]).is_file() and not detach:
        engine = os.urandom(16).hex()
        prestart.start_ahead(read(jobs=jobs).home, engine)
    try:
        from penstock.cli import acting

        asked = {"queue": queue, "priority": priority, "unit": unit, "queues": queues}
        acting.run(file, given, until, fail_fast, fresh, new, detach, dry, asked, jobs, on, quiet, output, engine)
    finally:
        prestart.unclaimed()


@click.command()
@click.argument("target", metavar="RUN[/STEP]")
@_params
@_jobs
@_quiet
@_output
def resume(target: str, given: tuple[str, ...], jobs: int | None, quiet: bool, output: str) -> None:
    """Go on with RUN where it stopped, or let a suspended STEP of it go on.

    A run that was interrupted or whose process is gone is taken up again here. With /STEP, the suspended step is also let go on; -p
    gives the values it asks for. For a run that is alive elsewhere, all its suspended steps go on, or the one named."""
    from penstock.cli import acting

    acting.resume(target, given, jobs, quiet, output)


@click.command()
@click.argument("name", metavar="RUN")
@_jobs
@_quiet
@_output
def retry(name: str, jobs: int | None, quiet: bool, output: str) -> None:
    """Try again what failed in RUN, with the same code and parameters. What succeeded is kept.

    If you have changed the code, `penstock run FILE` again instead: unchanged steps are reused."""
    from penstock.cli import acting

    acting.retry(name, jobs, quiet, output)


@click.command()
@click.argument("name", metavar="RUN")
@click.option("--now", is_flag=True, help="Kill what runs at once and skip the exit handlers.")
@_output
def cancel(name: str, now: bool, output: str) -> None:
    """End RUN for good. Running tasks are asked to end (10 s, then they are made to), exit handlers still run."""
    from penstock.cli import acting

    acting.cancel(name, now, output)
