"""Which failure made a run fail: the first that nobody tolerated or dealt with. Called by ActiveRun when a run has ended. Pure.

It is told from what is kept in any case: the first failure of each step, and how many of its tasks ended how. So it comes out the same when another
engine has folded the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.engine.blueprint import Blueprint, StepPlan

Failures = Mapping[str, tuple[str, Mapping[str, Any]]]
"""Path of a step -> the first of its tasks that failed, and what is known; in the order in which they failed."""
Tallies = Mapping[str, Mapping[str, int]]
"""Path of a step -> its tasks by state."""
_BAD: Final = ("failed", "errored")
_RAN: Final = ("succeeded", "reused", *_BAD)


def deciding(blueprint: Blueprint, firsts: Failures, tallies: Tallies) -> tuple[str, Mapping[str, Any]] | None:
    """(task, what is known of its failure); None: no task failed."""
    return _of(blueprint, "", firsts, tallies) or next(iter(firsts.values()), None)


def _of(blueprint: Blueprint, prefix: str, firsts: Failures, tallies: Tallies) -> tuple[str, Mapping[str, Any]] | None:
    order = {path: number for number, path in enumerate(firsts)}
    found: list[tuple[bool, int, StepPlan]] = []
    for plan in blueprint.plans:
        path = prefix + plan.step.name
        tally = tallies.get(path, {})
        states = {state for state in _BAD if tally.get(state)} - {one.value for one in plan.tolerates}
        if (path in firsts or states) and (states or not tally) and not _handled(blueprint, plan, prefix, tallies):
            first = min((at for one, at in order.items() if one == path or one.startswith(path + "/")), default=None)
            if first is not None:
                found.append((plan.number >= blueprint.main, first, plan))
    for _, _, plan in sorted(found, key=lambda one: one[:2]):
        path = prefix + plan.step.name
        inner = _of(plan.inner, path + "/", firsts, tallies) if plan.inner is not None else None
        decided = inner or firsts.get(path)
        if decided is not None:
            return decided
    return None


def _handled(blueprint: Blueprint, plan: StepPlan, prefix: str, tallies: Tallies) -> bool:
    """Has a step run that asked for its failure? An exit handler has not asked."""
    followers = (blueprint.plans[number] for number in plan.followers)
    return any(
        any(tallies.get(prefix + one.step.name, {}).get(state) for state in _RAN)
        for one in followers
        if not one.step.exempt
    )
