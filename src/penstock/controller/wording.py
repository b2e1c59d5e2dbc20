"""What Events of the controller say. Called by `controller.core`. Pure.

An Event is a write, and a stage should need few: so one says what belongs to others too.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.controller.engine import Stage, View
from penstock.controller.objects import Note, condition
from penstock.controller.workload import OwnWorkload

_TOLD = 5
"""Stages that follow which are named."""
_TOO_MUCH = ("> maximum capacity", "unavailable in ClusterQueue")
"""Kueue's words for what no amount of waiting helps."""
_NOWHERE = ("doesn't match node affinity", "untolerated taint")
"""The same, of the places where the pods may run."""
_LATER = ("insufficient unused quota", "topology")
"""And for a flavor where waiting does help."""


def behind(view: View, stage: Stage) -> str:
    """The stages that wait for this one."""
    others = [one.name for one in view.stages if one.state == "ahead" and one.key != stage.key]
    many = "" if len(others) <= _TOLD else f" and {len(others) - _TOLD} more"
    return f"; {', '.join(others[:_TOLD])}{many} will follow" if others else ""


def after(view: View, workloads: Sequence[OwnWorkload], stage: Stage) -> str:
    """The stages that this one has waited for, and that hold nothing any more."""
    ended = {one.stage for one in workloads if one.finished}
    before = [one.name for one in view.stages if stage.key in one.next and one.key in ended]
    return f"; {', '.join(before)} gave back what was held" if before else ""


def name(stages: Sequence[Stage], key: str) -> str:
    return next((one.name for one in stages if one.key == key), key)


def flavors(there: OwnWorkload) -> str:
    found = dict.fromkeys(name for one in there.pod_sets for name in one.flavors)
    return f" (flavor {', '.join(found)})" if found else ""


def unknown(stage: Stage) -> str:
    """Of a stage that nobody can size before its pods are there."""
    what = "So no Workload waits for it before it starts: it is let go, and its pods wait until they are queued by what they ask for."
    fix = (
        "To have it queued before, write its amounts as figures, and loop over lists that are known when it is reached."
    )
    return f"stage {stage.name}: {stage.unknown}. {what} {fix}"


def never_fits(stage: Stage, there: OwnWorkload) -> list[Note]:
    """Of a Workload that waits: whether it waits for nothing, as Kueue says it."""
    said = str(condition(there.obj, "QuotaReserved").get("message") or "")
    if any(words in said for words in _LATER):
        return []
    if any(words in said for words in _TOO_MUCH):
        fix = "Ask for less in a new workflow, or have the quota of the queue raised."
    elif any(words in said for words in _NOWHERE):
        fix = "Choose other nodes in a new workflow (nodeSelector, affinity, tolerations), or have a flavor for these added to the queue."
    else:
        return []
    return [Note("NeverFits", f"stage {stage.name} cannot be admitted: {said}. {fix}", warning=True)]


def stopped(stage: str, workload: str) -> str:
    """Of a stage whose pods ran without quota. `workload`: the one that they counted against, which holds nothing; empty if they had none."""
    why = f"Workload {workload} was deleted, or holds nothing any more" if workload else "somebody has let them go"
    fix = "They wait in the queue again. Leave the Workloads of workflows to the controller; to end the workflow, delete it."
    return f"stage {stage}: pods ran without quota and are stopped: {why}. {fix}"


def unread(problem: str, fix: str) -> str:
    return f"{problem}. None of its pods is let go.{fix and ' '}{fix}"


def no_class(name: str) -> str:
    fix = "Create it; until then it waits with priority 0."
    return f"there is no WorkloadPriorityClass {name!r}. {fix}"
