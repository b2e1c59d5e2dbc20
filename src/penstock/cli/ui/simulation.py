"""Results of a simulation of queues: a table for each unit, and a drawing of usage over time. Called by `penstock queue simulate` and, for
the drawing in the docs, by scripts/docs.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence

from penstock.admission.metrics import Measures, ResourceTotal, Spread
from penstock.cli.ui import render
from penstock.cli.ui.render import DIM, Line
from penstock.drawing import charts
from penstock.graph.model import Unit
from penstock.service.amounts import in_table, short_name, vector
from penstock.service.simulation import scenario
from penstock.service.simulation.scenario import QueueSetup, WorkflowSource
from penstock.service.simulation.simulate import SimulatedJob, SimulationResult

_HOUR = 3600.0


class SimulationProgress:
    """One line on stderr that is replaced as tasks end."""

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, unit: Unit, tasks: int) -> None:
        self._shown = True
        render.status(f"{unit}: {tasks:,} tasks")

    def clear(self) -> None:
        if self._shown:
            render.status("")


def simulation(
    found: Sequence[WorkflowSource],
    jobs: Sequence[SimulatedJob],
    setup: QueueSetup,
    results: Sequence[SimulationResult],
    verbose: bool,
) -> None:
    render.note(f"{title(jobs)} on {_setup(setup, results)}")
    _table(results, setup)
    if any(one.refused is None for one in results):
        runs = render.plural(len(jobs), "run")
        render.note(f"delay, waiting and stalled: mean/longest of {runs}; wasted: reserved and not used")
    remarks = [remark for remark in scenario.remarks(found) if verbose or not remark.minor]
    for remark in remarks:
        render.note(f"note: {remark.text}")
    if not verbose and len(remarks) < len(scenario.remarks(found)):
        render.note("note: -v shows what else was guessed, changed or left out")
    for text in failures(results):
        render.note(f"note: {text}")


def title(jobs: Sequence[SimulatedJob]) -> str:
    """`3 × montage, 2 × blast, one every 30s`"""
    counts: dict[str, int] = {}
    for job in jobs:
        counts[job.workflow.name] = counts.get(job.workflow.name, 0) + 1
    names = [f"{many:,} × {name}" for name, many in counts.items()]
    parts = names if len(names) < 5 else [*names[:3], f"{len(jobs) - sum(list(counts.values())[:3]):,} others"]
    every = jobs[1].at if len(jobs) > 1 else 0.0
    return ", ".join(parts) + (f", one every {render.duration(every)}," if every else "")


def _setup(setup: QueueSetup, results: Sequence[SimulationResult]) -> str:
    capacity = {name: amount for name, amount in results[0].capacity.items() if amount}
    return setup.name if setup.declared else f"{setup.name} ({vector(capacity)})"


def failures(results: Sequence[SimulationResult]) -> list[str]:
    """Runs that did not succeed. For example an expression fails because simulated results are empty."""
    found: dict[str, list[str]] = {}
    for one in results:
        for name, outcome in one.runs.items():
            if outcome.state != "succeeded":
                text = f"{name} {outcome.state}" + (f": {outcome.why}" if outcome.why else "")
                found.setdefault(text, []).append(str(one.unit))
    texts = [f"{text} (by {', '.join(units)})" for text, units in found.items()]
    return texts if len(texts) <= 5 else [*texts[:5], f"and {len(texts) - 5:,} more runs did not succeed"]


# -- the table --------------------------------------------------------------------------------------------------------


def _table(results: Sequence[SimulationResult], setup: QueueSetup) -> None:
    measured = {one.unit: one for one in results if one.measures is not None}
    resources = _resources(results)
    head = ["MAKESPAN", "DELAY", "WAITING", "STALLED"]
    for name in resources:
        head += [f"{short_name(name).upper()} USED", f"{short_name(name).upper()} WASTED"]
    head += ["PREEMPTED", "WORKLOADS"]
    rows = {unit: _row(one, resources) for unit, one in measured.items()}
    if not render.is_terminal():
        cells = [[str(one.unit), *rows.get(one.unit, [""] * len(head)), _refusal(one, setup)] for one in results]
        render.table(["UNIT", *head, "NEVER STARTS"], cells)
        return
    first = max(len(word) for word in ("UNIT", *(str(one.unit) for one in results))) + 2
    room = shutil.get_terminal_size().columns - first
    if sum(_widths(head, rows)) - 2 > room:
        head, rows = _narrow(head, {unit: _row(one, resources, brief=True) for unit, one in measured.items()}, room)
    widths = _widths(head, rows)
    if rows:
        columns = ["UNIT".ljust(first), *(cell.ljust(width) for cell, width in zip(head, widths, strict=True))]
        render.print_line([("".join(columns), DIM)])
    for one in results:
        if one.unit not in rows:
            # Not cut to the width of the terminal: the amounts may be at the end.
            text = textwrap.wrap(f"never starts: {_refusal(one, setup)}", max(40, room))
            render.data(str(one.unit).ljust(first) + f"\n{' ' * first}".join(text))
            continue
        line: Line = [(str(one.unit).ljust(first), {})]
        line += [(cell.ljust(width), {}) for cell, width in zip(rows[one.unit], widths, strict=True)]
        render.print_line(line)


def _widths(head: Sequence[str], rows: Mapping[Unit, Sequence[str]]) -> list[int]:
    return [max(map(len, column)) + 2 for column in zip(head, *rows.values(), strict=True)]


def _narrow(head: list[str], rows: dict[Unit, list[str]], room: int) -> tuple[list[str], dict[Unit, list[str]]]:
    """Without columns that are all zero, and if that is not enough, without the least important ones."""
    zero = [name for at, name in enumerate(head) if all(row[at] == "0" for row in rows.values())]
    for name in (*reversed(zero), "WORKLOADS", "DELAY"):
        if name in head and sum(_widths(head, rows)) - 2 > room:
            at = head.index(name)
            head = [*head[:at], *head[at + 1 :]]
            rows = {unit: [*row[:at], *row[at + 1 :]] for unit, row in rows.items()}
    return head, rows


def _resources(results: Sequence[SimulationResult]) -> list[str]:
    """Those that any run reserved or used."""
    totals = [pair for one in results if one.measures is not None for pair in one.measures.totals.items()]
    return in_table({name for name, total in totals if total.peak_reserved or total.peak_used})


def _row(one: SimulationResult, resources: Sequence[str], brief: bool = False) -> list[str]:
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


def _wasted(resource: str, total: ResourceTotal, brief: bool) -> str:
    if not total.wasted:
        return "0"
    share = _percent(total.wasted / total.reserved)
    return share if brief else f"{share}  {over_time(total.wasted, resource)}"


def over_time(value: float, resource: str) -> str:
    """`1,408 cpu s`, `12.3Gi h`: an amount times seconds."""
    unit, size = ("h", _HOUR) if value >= _HOUR * (1000 if resource == "cpu" else 1) else ("s", 1.0)
    text = charts.amount(value / size, resource)
    return f"{text} {unit}" if text.endswith("B") else f"{text} {short_name(resource)} {unit}"


def _refusal(one: SimulationResult, setup: QueueSetup) -> str:
    if one.refused is None:
        return ""
    problems = one.refused.problems
    text = problems[0].message + (f"; and {len(problems) - 1:,} more like it" if len(problems) > 1 else "")
    return text.replace("this machine", "the queue") if setup.declared else text


# -- the drawing ------------------------------------------------------------------------------------------------------


def simulation_svg(jobs: Sequence[SimulatedJob], setup: QueueSetup, results: Sequence[SimulationResult]) -> str:
    resources = _resources(results)
    found = []
    for one in results:
        if one.measures is None:
            found.append(charts.Chart(f"by {one.unit}", (), f"never starts: {_refusal(one, setup)}"))
            continue
        series = [each for each in one.measures.series if each.resource in resources]
        found.append(charts.Chart(f"by {one.unit}", series, _figures(one.measures, resources)))
    return charts.svg(found, title=title(jobs).rstrip(","), note=f"on {_setup(setup, results)}")


def _figures(measures: Measures, resources: Sequence[str]) -> str:
    parts = [f"done after {charts.duration(measures.makespan)}"]
    if measures.waiting.longest:
        parts.append(f"a run waits {charts.duration(measures.waiting.mean)} on average")
    for name in resources:
        total = measures.totals[name]
        if total.wasted:
            parts.append(f"{_percent(total.wasted / total.reserved)} of the reserved {short_name(name)} unused")
    if measures.preemptions:
        parts.append(f"{measures.preemptions:,} preempted")
    return " · ".join(parts)
