"""Which of the times of a schedule that have come get a run. Called by clockwork.

Pure: what is recorded of the schedule, what time it is, and whether the run before is still there -> what is to be done, and what is recorded
next. Whoever writes that down does so only if nobody else has.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from penstock.service.schedules.timing import Timing

CatchUp = Literal["none", "one", "all"]
Overlap = Literal["skip", "wait", "replace", "allow"]
GRACE: Final = 60.0
"""Seconds by which a time may be late and still counts as on time."""
MOST: Final = 100
"""Runs that are made in one transaction."""


class SchedulePolicy(NamedTuple):
    """`catch_up`: what becomes of times that passed while nobody looked: none of them, the last one, or all get a run. `overlap`: what becomes of
    a time that comes while the run before it goes on: it is skipped, it waits, it replaces that run, or both run."""

    catch_up: CatchUp = "none"
    overlap: Overlap = "skip"
    grace: float = GRACE


class Due(NamedTuple):
    """What is recorded of the times of a schedule."""

    next_at: float | None
    waiting: float | None = None


class DueDecision(NamedTuple):
    fires: tuple[float, ...]
    """The times that get a run."""
    after: Due
    """next_at None: there is no further time."""
    replaces: bool = False
    """Runs that go on are to be ended first."""
    note: str = ""
    """Why a time got no run: `late`, `busy`."""


def due(timing: Timing, policy: SchedulePolicy, at: Due, now: float, busy: bool) -> DueDecision | None:
    """`busy`: does a run of this schedule go on? None: there is nothing to do now."""
    if at.waiting is not None:
        return _released(timing, policy, at, at.waiting, now, busy)
    if at.next_at is None or at.next_at > now:
        return None
    if policy.catch_up == "all" and policy.overlap != "replace":
        return _all(timing, policy, at.next_at, now, busy)
    following = Due(timing.after(now))
    time = timing.last(at.next_at, now)
    if time is None or (policy.catch_up == "none" and now - time > policy.grace):
        return DueDecision((), following, note="late")
    if busy and policy.overlap == "skip":
        return DueDecision((), following, note="busy")
    if busy and policy.overlap == "wait":
        return DueDecision((), following._replace(waiting=time))
    return DueDecision((time,), following, replaces=busy and policy.overlap == "replace")


def _all(timing: Timing, policy: SchedulePolicy, first: float, now: float, busy: bool) -> DueDecision | None:
    """Each time that has come, in order."""
    if policy.overlap == "allow":
        times = timing.within(first, now, MOST)
        return DueDecision(tuple(times), Due(timing.after(times[-1] if times else now)))
    following = Due(timing.after(first))
    if not busy:
        return DueDecision((first,), following)
    if policy.overlap == "wait":
        return DueDecision((), following._replace(waiting=first))
    return DueDecision((), Due(timing.after(now)), note="busy")


def _released(
    timing: Timing, policy: SchedulePolicy, at: Due, time: float, now: float, busy: bool
) -> DueDecision | None:
    """One waits. Of those that have come meanwhile, only `all` keeps any."""
    if busy and policy.overlap == "wait":
        return None
    missed = at.next_at is not None and at.next_at <= now and policy.catch_up != "all"
    following = Due(timing.after(now)) if missed else Due(at.next_at)
    return DueDecision((time,), following, note="busy" if missed else "")
