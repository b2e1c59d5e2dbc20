"""Runs a simulation and prints its results. Called by `penstock queue simulate`, which imports it when it runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from penstock.cli.ui import errors, render
from penstock.cli.ui.simulation import SimulationProgress, simulation, simulation_svg
from penstock.drawing import charts
from penstock.errors import Problem, UserError
from penstock.graph.model import Unit
from penstock.service.simulation import scenario
from penstock.service.simulation.report import report
from penstock.service.simulation.simulate import UNITS, simulate
from penstock.settings import Settings


def run_simulation(
    files: Sequence[str],
    *,
    queues: str | None,
    capacity: str | None,
    names: Sequence[str],
    priorities: Sequence[str],
    units: Sequence[str],
    every: float,
    repeat: int,
    seconds: float,
    runtimes: Sequence[str],
    given: Sequence[str],
    measured: bool,
    plot: str | None,
    verbose: bool,
    settings: Settings,
    output: str,
) -> None:
    """The options of the command. Raises UserError; ends with exit code 2 if no unit can be admitted."""
    for option, value in (("--every", every), ("--seconds", seconds)):
        if not value <= scenario.LONGEST:
            raise click.UsageError(f"{option} {value:g}: that is too long.", click.get_current_context())
    picture = None if plot is None else Path(plot)
    if picture is not None:
        _check_picture(picture)
    found = scenario.sources(files, given, runtimes, seconds, measured, settings)
    jobs = scenario.jobs(found, guess=seconds, every=every, repeat=repeat, queues=names, priorities=priorities)
    setup = scenario.queue_setup(queues, capacity, found, settings)
    errors.problems(setup.warnings)
    if names and not setup.documents:
        render.note(f"there is only one queue: --queue {names[0]} has no effect")
    progress = SimulationProgress()
    chosen = [Unit(unit) for unit in dict.fromkeys(units)] or UNITS
    shown = progress if render.is_terminal(sys.stderr) else None
    results = simulate(jobs, setup.objects, chosen, setup.documents, shown)
    progress.clear()
    if output == "json":
        render.json_out(report(found, jobs, setup, results))
    else:
        simulation(found, jobs, setup, results, verbose)
    if picture is not None:
        svg = simulation_svg(jobs, setup, results)
        render.write_file(picture, charts.png(svg) if picture.suffix == ".png" else svg.encode())
    if all(one.refused is not None for one in results):
        raise click.exceptions.Exit(2)


def _check_picture(path: Path) -> None:
    """Before the simulation, which may take long. Raises UserError."""
    if path.suffix not in (".svg", ".png"):
        raise UserError(Problem("P823", f"--plot {path}: this is neither SVG nor PNG", "end the name in .svg or .png"))
    if not path.parent.is_dir():
        fix = "make the folder, or choose another place"
        raise UserError(Problem("P504", f"{str(path)!r} cannot be written: there is no folder {path.parent}", fix))
    if path.suffix == ".png":
        charts.png(charts.svg([]))
