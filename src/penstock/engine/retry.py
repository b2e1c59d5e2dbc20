"""Is a failed attempt tried again, and when? Called by Dispatcher. Pure: chance and time are handed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from penstock.expressions.evaluate import EvaluationError, evaluate
from penstock.graph.model import Outcome, Retry

LOST_LIMIT = 3
"""So many times a task may take its worker down with it before it is held to be at fault."""


class AttemptOutcome(Protocol):
    """What is looked at of a report that an attempt has ended (backends.base.AttemptEnded)."""

    outcome: Outcome
    exit_code: int | None
    exception: str
    message: str
    invalid: bool
    seconds: float


def delay(
    policy: Retry | None,
    tries: int,
    report: AttemptOutcome,
    timed_out: bool,
    chance: Callable[[], float],
    since_first: float = 0.0,
) -> float | None:
    """Seconds until the next attempt, or None if this was the last. `tries`: failures so far, this one included; `since_first`:
    how many seconds ago the first attempt began."""
    if policy is None or tries > policy.limit:
        return None
    kind = "timeout" if timed_out else "errored" if report.outcome is Outcome.ERRORED else "failed"
    if kind not in policy.on:
        return None
    if policy.exit_codes and report.exit_code is not None and report.exit_code not in policy.exit_codes:
        return None
    if policy.exceptions and report.exception and not any(_names(name, report.exception) for name in policy.exceptions):
        return None
    if policy.when is not None and not _holds(policy, tries, report, kind):
        return None
    backoff = policy.backoff
    try:
        wait = min(backoff.longest, backoff.initial * backoff.factor ** (tries - 1))
    except OverflowError:
        wait = backoff.longest
    wait = max(0.0, wait * (1 + backoff.jitter * (2 * chance() - 1)))
    if policy.within is not None and since_first + wait > policy.within:
        return None
    return wait


INVALID_INPUT: Final = 65
"""The exit code of a command whose input is not valid (EX_DATAERR), if the run works on a payload."""


def is_invalid(report: AttemptOutcome, timed_out: bool, has_payload: bool) -> bool:
    """Did it fail because its input is not valid? Then it is not tried again. `has_payload`: the workflow says what identifies its payload."""
    if timed_out or report.outcome is not Outcome.FAILED:
        return False
    return report.invalid or (has_payload and report.exit_code == INVALID_INPUT)


def _names(wanted: str, raised: str) -> bool:
    return wanted == raised or wanted == raised.rpartition(".")[2]


def _holds(policy: Retry, tries: int, report: AttemptOutcome, kind: str) -> bool:
    assert policy.when is not None
    attempt = {
        "exit_code": report.exit_code if report.exit_code is not None else -1,
        "message": report.message,
        "number": tries,
        "seconds": report.seconds,
        "outcome": kind if kind == "timeout" else report.outcome.value,
    }
    try:
        return evaluate(policy.when, {"attempt": attempt}) is True
    except EvaluationError:
        return False
