"""What `penstock queue simulate` does: plays, and prints a table, JSON or a picture. Called by queue, which is only the way to
call it."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from penstock.admission.meter import Measures, Spread, Total
from penstock.cli import render
from penstock.cli.render import DIM, Line
from penstock.errors import Problem, UserError
from penstock.formats import plot as plots
from penstock.graph.model import Unit
from penstock.service import scenario, wording
from penstock.service import simulate as playing
from penstock.service.scenario import Source, Yard
from penstock.service.simulate import Job, Played

_HOUR = 3600.0


def simulate(
    files: Sequence[str],
    queues: str | None,
    capacity: str | None,
    plot: str | None,
    verbose: bool,
    output: str,
    *,
    names: Sequence[str],
    priorities: Sequence[str],
    units: Sequence[str],
    every: float,
    repeat: int,
    seconds: float,
    runtimes: Sequence[str],
    given: Sequence[str],
    measured: bool,
) -> None:
    for option, value in (("--every", every), ("--seconds", seconds)):
        if not value <= scenario.LONGEST:
            raise click.UsageError(f"{option} {value:g}: that is too long.", click.get_current_context())
    if plot is not None:
        _can_draw(Path(plot))
    found = scenario.sources(files, given, runtimes, seconds, measured)
    jobs = scenario.jobs(found, guess=seconds, every=every, repeat=repeat, queues=names, priorities=priorities)
    place = scenario.yard(queues, capacity, found)
    for problem in place.warnings:
        render.problem(problem)
    if names and not place.documents:
        render.note(f"there is one queue only: --queue {names[0]} means nothing")
    progress = _Progress()
    played = playing.simulate(
        jobs,
        place.objects,
        [Unit(unit) for unit in dict.fromkeys(units)] or playing.UNITS,
        place.documents,
        progress if render.is_terminal(sys.stderr) else None,
    )
    progress.clear()
    if output == "json":
        render.json_out(scenario.report(found, jobs, place, played))
    else:
        _screen(found, jobs, place, played, verbose)
    if plot is not None:
        _draw(Path(plot), jobs, place, played)
    if all(one.refused is not None for one in played):
        raise click.exceptions.Exit(2)


class _Progress:
    """One line that is written again and again."""

    shown = False

    def __call__(self, unit: Unit, tasks: int) -> None:
        self.shown = True
        click.echo(f"\r\x1b[K{unit}: {tasks:,} tasks", err=True, nl=False)

    def clear(self) -> None:
        if self.shown:
            click.echo("\r\x1b[K", err=True, nl=False)


# -- the table --------------------------------------------------------------------------------------------------------


def _screen(found: Sequence[Source], jobs: Sequence[Job], place: Yard, played: Sequence[Played], verbose: bool) -> None:
    render.note(f"{title(jobs)} on {_size(place, played)}")
    _table(played, place)
    many = f"{len(jobs):,} run{'s' if len(jobs) != 1 else ''}"
    if any(one.refused is None for one in played):
        render.note(f"delay, waiting and stalled: mean/longest of {many}; wasted: reserved and not used")
    remarks = [remark for remark in scenario.remarks(found) if verbose or not remark.minor]
    for remark in remarks:
        render.note(f"note: {remark.text}")
    if not verbose and len(remarks) < len(scenario.remarks(found)):
        render.note("note: -v says what else was guessed, changed or left out")
    for text in failures(played):
        render.note(f"note: {text}")


def title(jobs: Sequence[Job]) -> str:
    """`3 × montage, 2 × blast, one every 30s`"""
    counts: dict[str, int] = {}
    for job in jobs:
        counts[job.workflow.name] = counts.get(job.workflow.name, 0) + 1
    names = [f"{many:,} × {name}" for name, many in counts.items()]
    parts = names if len(names) < 5 else [*names[:3], f"{len(jobs) - sum(list(counts.values())[:3]):,} others"]
    every = jobs[1].at if len(jobs) > 1 else 0.0
    return ", ".join(parts) + (f", one every {render.duration(every)}," if every else "")


def _size(place: Yard, played: Sequence[Played]) -> str:
    capacity = {name: amount for name, amount in played[0].capacity.items() if amount}
    return place.name if place.declared else f"{place.name} ({wording.vector(capacity)})"


def failures(played: Sequence[Played]) -> list[str]:
    """Runs that did not end well: an expression may not bear empty results."""
    found: dict[str, list[str]] = {}
    for one in played:
        for name, outcome in one.runs.items():
            if outcome.state != "succeeded":
                text = f"{name} {outcome.state}" + (f": {outcome.why}" if outcome.why else "")
                found.setdefault(text, []).append(str(one.unit))
    texts = [f"{text} (by {', '.join(units)})" for text, units in found.items()]
    return texts if len(texts) <= 5 else [*texts[:5], f"and {len(texts) - 5:,} more runs did not succeed"]


def _table(played: Sequence[Played], place: Yard) -> None:
    measured = [one for one in played if one.measures is not None]
    resources = _resources([one.measures for one in measured if one.measures is not None])
    head = ["MAKESPAN", "DELAY", "WAITING", "STALLED"]
    for name in resources:
        head += [f"{_short(name).upper()} USED", f"{_short(name).upper()} WASTED"]
    head += ["PREEMPTED", "WORKLOADS"]
    rows = {one.unit: _row(one, resources) for one in measured}
    if not render.is_terminal():
        click.echo("\t".join(["UNIT", *head, "NEVER STARTS"]))
        for one in played:
            click.echo("\t".join([str(one.unit), *rows.get(one.unit, [""] * len(head)), _refusal(one, place)]))
        return
    first = max(len(word) for word in ("UNIT", *(str(one.unit) for one in played))) + 2
    room = shutil.get_terminal_size().columns - first
    if sum(_widths(head, rows)) - 2 > room:
        head, rows = _narrow(head, {one.unit: _row(one, resources, brief=True) for one in measured}, room)
    widths = _widths(head, rows)
    if rows:
        cells = ["UNIT".ljust(first), *(cell.ljust(width) for cell, width in zip(head, widths, strict=True))]
        render.print_line([("".join(cells), DIM)])
    for one in played:
        if one.unit not in rows:
            # Whatever the width: the amounts may stand at the end.
            text = textwrap.wrap(f"never starts: {_refusal(one, place)}", max(40, room))
            click.echo(str(one.unit).ljust(first) + f"\n{' ' * first}".join(text))
            continue
        line: Line = [(str(one.unit).ljust(first), {})]
        line += [(cell.ljust(width), {}) for cell, width in zip(rows[one.unit], widths, strict=True)]
        render.print_line(line)


def _widths(head: Sequence[str], rows: Mapping[Unit, Sequence[str]]) -> list[int]:
    return [max(map(len, column)) + 2 for column in zip(head, *rows.values(), strict=True)]


def _narrow(head: list[str], rows: dict[Unit, list[str]], room: int) -> tuple[list[str], dict[Unit, list[str]]]:
    """Without columns that say nothing, and if that is not enough, without those that say least."""
    dull = [name for at, name in enumerate(head) if all(row[at] == "0" for row in rows.values())]
    for name in (*reversed(dull), "WORKLOADS", "DELAY"):
        if name in head and sum(_widths(head, rows)) - 2 > room:
            at = head.index(name)
            head = [*head[:at], *head[at + 1 :]]
            rows = {unit: [*row[:at], *row[at + 1 :]] for unit, row in rows.items()}
    return head, rows


def _resources(shown: Sequence[Measures]) -> list[str]:
    """Those that anybody had."""
    found = {name for one in shown for name, total in one.totals.items() if total.peak_reserved or total.peak_used}
    return sorted(found, key=lambda name: ({"cpu": 0, "memory": 1}.get(name, 2), name))


def _short(resource: str) -> str:
    return wording.amount(0, resource).partition(" ")[2]


def _row(one: Played, resources: Sequence[str], brief: bool = False) -> list[str]:
    measures = one.measures
    assert measures is not None
    cells = [render.duration(measures.makespan)]
    cells += [_spread(spread) for spread in (measures.delay, measures.waiting, measures.stalled)]
    for name in resources:
        total = measures.totals[name]
        cells += ["" if total.utilisation is None else _percent(total.utilisation), _wasted(name, total, brief)]
    return [*cells, f"{measures.preemptions:,}", f"{one.workloads:,}"]


def _spread(spread: Spread) -> str:
    if not spread.longest:
        return "0"
    return f"{render.duration(spread.mean)}/{render.duration(spread.longest)}"


def _percent(share: float) -> str:
    if share < 0.001:
        return "<0.1%" if share else "0%"
    return f"{100 * share:.0f}%" if share >= 0.0995 else f"{100 * share:.1f}%"


def _wasted(resource: str, total: Total, brief: bool) -> str:
    if not total.wasted:
        return "0"
    share = _percent(total.wasted / total.reserved)
    return share if brief else f"{share}  {over_time(total.wasted, resource)}"


def over_time(value: float, resource: str) -> str:
    """`1,408 cpu s`, `12.3Gi h`: an amount times seconds."""
    unit, size = ("h", _HOUR) if value >= _HOUR * (1000 if resource == "cpu" else 1) else ("s", 1.0)
    text = plots.amount(value / size, resource)
    return f"{text} {unit}" if text.endswith("B") else f"{text} {_short(resource)} {unit}"


def _refusal(one: Played, place: Yard) -> str:
    if one.refused is None:
        return ""
    problems = one.refused.problems
    text = problems[0].message + (f"; and {len(problems) - 1:,} more like it" if len(problems) > 1 else "")
    return text.replace("this machine", "the queue") if place.declared else text


# -- the picture ------------------------------------------------------------------------------------------------------


def _can_draw(path: Path) -> None:
    """Before anything else is done, which may take long."""
    if path.suffix not in (".svg", ".png"):
        raise UserError(Problem("P823", f"--plot {path}: this is neither SVG nor PNG", "end the name in .svg or .png"))
    if not path.parent.is_dir():
        fix = "make the folder, or choose another place"
        raise UserError(Problem("P504", f"{str(path)!r} cannot be written: there is no folder {path.parent}", fix))
    if path.suffix == ".png":
        plots.png(plots.svg([]))


def _draw(path: Path, jobs: Sequence[Job], place: Yard, played: Sequence[Played]) -> None:
    image = drawn(jobs, place, played)
    data = plots.png(image) if path.suffix == ".png" else image.encode()
    try:
        path.write_bytes(data)
    except OSError as error:
        fix = "choose another place"
        raise UserError(Problem("P504", f"{str(path)!r} cannot be written: {error.strerror}", fix)) from None
    render.note(f"wrote {path}")


def drawn(jobs: Sequence[Job], place: Yard, played: Sequence[Played]) -> str:
    resources = _resources([one.measures for one in played if one.measures is not None])
    charts = []
    for one in played:
        if one.measures is None:
            charts.append(plots.Chart(f"by {one.unit}", (), f"never starts: {_refusal(one, place)}"))
            continue
        series = [each for each in one.measures.series if each.resource in resources]
        charts.append(plots.Chart(f"by {one.unit}", series, _figures(one.measures, resources)))
    return plots.svg(charts, title=title(jobs).rstrip(","), note=f"on {_size(place, played)}")


def _figures(measures: Measures, resources: Sequence[str]) -> str:
    parts = [f"done after {plots.duration(measures.makespan)}"]
    if measures.waiting.longest:
        parts.append(f"a run waits {plots.duration(measures.waiting.mean)} on average")
    for name in resources:
        total = measures.totals[name]
        if total.wasted:
            parts.append(f"{_percent(total.wasted / total.reserved)} of the reserved {_short(name)} unused")
    if measures.preemptions:
        parts.append(f"{measures.preemptions:,} preempted")
    return " · ".join(parts)
