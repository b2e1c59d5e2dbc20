"""Which rule of Retry or Catch takes an error, and how long to wait. Called by walker and inspect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.formats.asl.language.failures import ALL, RUNTIME, TASK_FAILED, TIMEOUT, StateFailure
from penstock.formats.asl.language.scope import Chance

HEARTBEAT: Final = "States.HeartbeatTimeout"
LONGEST: Final = 31_622_400
"""Seconds: a wait before a retry is at most a year and a day."""


def takes(names: Sequence[str], failure: StateFailure) -> bool:
    """Does one of these names stand for the error?"""
    if failure.error == RUNTIME:
        return False  # not even by its own name
    for name in names:
        if name == ALL or name == failure.error:
            return True
        if name == TASK_FAILED and failure.error not in (None, TIMEOUT):
            return True
        if name == HEARTBEAT and failure.where == "heartbeat":
            return True
    return False


def retrier_for(rules: Sequence[Mapping[str, Any]], failure: StateFailure) -> int | None:
    """The number of the first rule that takes the error."""
    return next((at for at, rule in enumerate(rules) if takes(rule["ErrorEquals"], failure)), None)


def catcher_for(rules: Sequence[Mapping[str, Any]], failure: StateFailure) -> int | None:
    return retrier_for(rules, failure)


def may_retry(rule: Mapping[str, Any], used: int) -> bool:
    return bool(used < rule.get("MaxAttempts", 3))


def delay(rule: Mapping[str, Any], used: int, chance: Chance) -> float:
    """Seconds before the next attempt; `used`: how often this rule was used before."""
    interval, rate = rule.get("IntervalSeconds", 1), rule.get("BackoffRate", 2.0)
    longest = min(rule.get("MaxDelaySeconds", LONGEST), LONGEST)
    try:
        wait = min(interval * rate**used, longest)
    except OverflowError:
        wait = longest
    return float(wait * chance.random() if rule.get("JitterStrategy") == "FULL" else wait)
