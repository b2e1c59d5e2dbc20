"""What a what-if says, in sentences. Called by the terminal and the page of a queue."""

from __future__ import annotations

from penstock.phrases import duration, plural
from penstock.service.amounts import amount, vector
from penstock.service.simulation.what_if import WhatIf


def sentences(found: WhatIf) -> list[str]:
    change = found.change
    said = []
    if change.quota:
        quota = ", ".join(amount(number, name.rpartition("/")[2]) for name, number in change.quota.items())
        said.append(f"With a quota of {quota} in {found.queue}:")
    if change.tasks:
        said += _tasks(found)
    if found.stopped:
        some = ", ".join(found.stopped[:3]) + (f" and {len(found.stopped) - 3} more" if len(found.stopped) > 3 else "")
        said.append(f"Preempted on the way: {some}.")
    said += _others(found)
    if found.ahead is not None:
        said.append(
            f"Many wait: there was time to look {duration(found.ahead)} ahead, and what starts later is not known."
        )
    said.append(_basis(found))
    return said


def _tasks(found: WhatIf) -> list[str]:
    change = found.change
    what = f"{plural(change.tasks, 'task')} of {vector(change.asks)} for {duration(change.seconds)}"
    if found.never:
        return [f"{what}: never. {found.never[0].upper()}{found.never[1:]}."]
    if found.waits_from is None:
        return [f"{what}: {'it starts' if change.tasks == 1 else 'all start'} at once."]
    said = [f"{what}: {found.at_once:,} at once, the others wait." if found.at_once else f"{what}: they wait."]
    later = [one for one in found.starts if one[0] > 0]
    if later:
        said.append(f"The first that waits starts in {duration(later[0][0])}.")
    if found.started >= change.tasks and later:
        said.append(f"The last starts in {duration(later[-1][0])}.")
    elif not later and not found.at_once:
        said.append("None starts within the time that is looked ahead.")
    elif found.started < change.tasks:
        said.append(f"{found.started:,} have started at the end of the time that is looked ahead.")
    return said


def _others(found: WhatIf) -> list[str]:
    later = [one for one in found.waiting if one.now is not None and (one.then is None or one.then > one.now + 1)]
    sooner = [one for one in found.waiting if one.then is not None and (one.now is None or one.then < one.now - 1)]
    said = []
    if later:
        said.append(
            f"{plural(len(later), 'Workload')} that waits now would start later."
            if len(later) == 1
            else f"{len(later):,} Workloads that wait now would start later."
        )
    if sooner:
        said.append(
            f"{plural(len(sooner), 'Workload')} that waits now would start sooner."
            if len(sooner) == 1
            else f"{len(sooner):,} Workloads that wait now would start sooner."
        )
    return said


def _basis(found: WhatIf) -> str:
    parts = []
    if found.measured:
        parts.append(f"{plural(found.measured, 'run time')} from earlier runs")
    if found.guessed:
        parts.append(f"{found.guessed:,} guessed, a minute each")
    if found.left_out:
        parts.append(f"{plural(found.left_out, 'stage')} whose turn has not come left out")
    return f"Basis: {', '.join(parts) or 'nothing else holds or wants quota here'}."
