"""Retries and limits of a step as fields of its state. Called by steps."""

from __future__ import annotations

import math
from typing import Any, Final

from penstock.formats.report import Report
from penstock.graph.model import Retry, Step

_ALL: Final = frozenset({"failed", "errored", "timeout"})
LONGEST_DELAY: Final = 31_622_400


def retry_rules(step: Step, where: str, report: Report) -> list[dict[str, Any]]:
    """The rules of Retry; none if it is not tried again."""
    retry = step.retry
    if retry is None or retry.limit < 1:
        return []
    backoff = retry.backoff
    first, rate = max(1, math.ceil(backoff.initial)), max(1.0, backoff.factor)
    rule: dict[str, Any] = {
        "ErrorEquals": _errors(retry, step, where, report),
        "IntervalSeconds": first,
        "MaxAttempts": min(retry.limit, 99_999_999),
        "BackoffRate": int(rate) if rate == int(rate) else rate,
    }
    longest = min(math.ceil(backoff.longest), LONGEST_DELAY)
    if rate > 1 and longest > first:
        rule["MaxDelaySeconds"] = longest
    elif longest < first:
        rule["IntervalSeconds"] = max(1, longest)
    if backoff.jitter >= 0.5:
        rule["JitterStrategy"] = "FULL"
    if first != backoff.initial or rate != backoff.factor:
        said = f"it waits whole seconds before it tries again, at least 1: {rule['IntervalSeconds']} at first"
        report.changed(f"{where}.retry.backoff", said, source=step.source)
    if retry.exit_codes or retry.when is not None:
        said = "it is tried again whatever its exit code or message was"
        report.lost(f"{where}.retry", said, "Give the classes of the errors (exceptions).", step.source)
    if retry.within is not None:
        said = "attempts are counted, not timed"
        report.lost(f"{where}.retry.within", said, "Give the workflow a timeout.", step.source)
    return [rule]


def _errors(retry: Retry, step: Step, where: str, report: Report) -> list[str]:
    if retry.exceptions:
        return [one.rpartition(".")[2] for one in retry.exceptions]
    on = frozenset(retry.on)
    if on != _ALL and on & {"failed", "errored"} and not {"failed", "errored"} <= on:
        said = "that it failed and that it could not be run is one error there: both are tried again"
        report.changed(f"{where}.retry.on", said, source=step.source)
    if "timeout" not in on:
        return ["States.TaskFailed"]
    return ["States.Timeout"] if on == {"timeout"} else ["States.ALL"]


def seconds(given: float, where: str, step: Step | None, report: Report) -> int:
    """A limit, in whole seconds."""
    found = min(max(1, math.ceil(given)), 99_999_999)
    if found != given:
        said = f"{given:g} seconds become {found}: a limit is a whole number from 1 on"
        report.changed(where, said, source=None if step is None else step.source)
    return found
