"""Admission checks: functions of other packages that have the last word on a Workload. Called by the scheduler when a Workload gets
quota, and by Admitter again and again as long as a check is pending.

A check is registered under its name as an entry point of the group `penstock.checks`. It is called with the Workload and returns a
CheckState.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from penstock.admission.model import CheckResult, CheckState, Workload


def ask(name: str, workload: Workload) -> CheckResult:
    """A check that raises, or returns what is no CheckState, is asked again later. What went wrong is recorded and shown."""
    found = registered_checks().get(name)
    if found is None:
        return CheckResult(CheckState.PENDING)
    try:
        return CheckResult(CheckState(found.load()(workload)))
    except Exception as error:
        return CheckResult(CheckState.PENDING, f"it raised {type(error).__name__}: {error}")


@cache
def registered_checks() -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group="penstock.checks")}
