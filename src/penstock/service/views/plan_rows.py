"""A plan as rows of text, the same on terminals and pages. Called by `penstock plan` and by the page of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.graph import quantity
from penstock.graph.model import NORMAL, Step
from penstock.graph.paths import parents
from penstock.phrases import listed
from penstock.service.amounts import in_sentence, short_name

if TYPE_CHECKING:
    from penstock.plan.expand import Planned, Size
    from penstock.plan.make import Plan
    from penstock.plan.reserve import Reservation

STEPS = ("STAGE", "STEP", "TASKS", "EACH NEEDS", "RUNS")
RESERVATIONS = ("RESERVATION", "TIMES", "HOLDS EACH", "SUM", "STAGES")
PEAKS = ("PEAK OF", "AT ONCE", "SUM", "WHEN THESE RUN TOGETHER")


def step_rows(found: Plan) -> list[list[str]]:
    """The columns of STEPS."""
    of_step = _stage_names(found)
    return [_step_row(planned, calls, of_step, found) for planned, calls in found.level.walk()]


def reservation_rows(found: Plan) -> list[list[str]]:
    """The columns of RESERVATIONS."""
    return [_reservation_row(each) for each in found.reservations]


def peak_rows(found: Plan) -> list[list[str]]:
    """The columns of PEAKS."""
    rows = []
    for resource in in_sentence(found.peaks):
        peak = found.peaks[resource]
        limit = "at least " if peak.open else "at most " if peak.maybe else ""
        total = ("at least " if peak.open else "") + quantity.short(peak.total, resource)
        who = listed([path for path, _ in peak.steps])
        rows.append([short_name(resource), limit + quantity.short(peak.amount, resource), total, who])
    return rows


def _stage_names(found: Plan) -> dict[str, str]:
    """Step -> the name of its stage: 1, 2a, 2b, 3. Stages with the same number can run at the same time: the number says how many are
    before them at most, so that six stages side by side do not look like one after the other."""
    level: dict[str, int] = {}
    """Of each step; of a call, the last level in it."""
    groups: dict[int, list[int]] = {}
    for number, stage in enumerate(found.stages):  # in topological order
        around = [one for path in stage.steps for one in (path, *parents(path))]
        ups = [one.rpartition("/")[0] + "/" + up if "/" in one else up for one in around for up in found.before_of(one)]
        own = 1 + max((level.get(up, 0) for up in ups), default=0)
        groups.setdefault(own, []).append(number)
        for one in around:
            level[one] = max(level.get(one, 0), own)
    names = {
        number: str(at) if len(members) == 1 else f"{at}{_letters(place)}"
        for at, members in groups.items()
        for place, number in enumerate(members)
    }
    return {path: names[number] for number, stage in enumerate(found.stages) for path in stage.steps}


def _letters(number: int) -> str:
    """0 -> a, 25 -> z, 26 -> aa."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("a") + rest) + text
    return text


def _step_row(planned: Planned, calls: Size, of_step: Mapping[str, str], found: Plan) -> list[str]:
    stage = of_step.get(planned.path, "–")
    tasks = str(planned.tasks) if planned.step.each is None else f"×{planned.tasks}"
    needs = "" if planned.inner is not None else _needs(planned.step)
    return [stage, planned.path, tasks, needs, _runs(planned, calls, found)]


def _needs(step: Step) -> str:
    if not step.resources:
        return "nothing"
    needs = _vector(step.resources)
    return f"{step.replicas} pods together, {needs} each" if step.replicas > 1 else needs


def _runs(planned: Planned, calls: Size, found: Plan) -> str:
    """When and how often a step runs."""
    step = planned.step
    words = []
    before = found.before_of(planned.path)
    if planned.exempt:
        words.append("at the end, never queued")
    elif before:
        words.append("after " + listed([_edge(up, step) for up in before]))
    if planned.runs == "no":
        words.append(f"never: {step.when.text} is false" if step.when is not None else "never: no items")
    elif step.when is not None:
        words.append(f"when {step.when.text}" + ("" if planned.runs == "maybe" else ", which is true"))
    if step.loop is not None:
        words.append(f"while {step.loop.condition.text}, at most {step.loop.max_iterations:,} rounds")
    if step.each is not None and step.each.parallel is not None:
        words.append(f"at most {step.each.parallel} at once")
    if planned.tasks.count is None:
        why = planned.tasks.why
        words.append(f"how many is {why}" if why.startswith("known") else f"how many {why}")
    if calls.count != 1 and step.loop is None and "/" in planned.path:
        words.append(f"in each of {calls} calls")
    return "; ".join(words)


def _edge(up: str, step: Step) -> str:
    """A step that is waited for, with the outcomes that are required of it if they are not the usual ones."""
    required = next((edge.outcomes for edge in step.needs if edge.step == up), NORMAL)
    return up if required == NORMAL else f"{up} ({' or '.join(sorted(required))})"


def _reservation_row(each: Reservation) -> list[str]:
    holds = ("at least " if not each.known else "") + _vector(each.peak)
    if not each.known:
        holds += f" ({each.why})"
    times = "" if each.count.count == 1 else f"×{each.count}"
    return [each.name, times, holds, "" if each.total is None else _vector(each.total), listed(each.stages)]


def _vector(milli: Mapping[str, int]) -> str:
    """Amounts in thousandths, as plans have them."""
    parts = [f"{quantity.short(milli[name], name)} {short_name(name)}" for name in in_sentence(milli)]
    return ", ".join(parts) or "nothing"
