"""How a run ended: at its end, and step by step. Both sides are brought to this form by ours, argo and tekton, and compared here.

A step is known by its path with the indices of loops, as Penstock shows it: `outer[0]/train`. Its outcome is one of

    succeeded, failed, errored (it could not be run),
    skipped    its own condition did not hold, or its loop was empty; of Tekton, everything that was not started
    omitted    it did not come to it: what is before it skipped, failed, or gave nothing
    running    it had not ended when nothing moved any more

What never came to be is not in the list; that is the same as omitted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

NEVER = frozenset({"omitted", "absent"})


@dataclass(frozen=True)
class Step:
    outcome: str
    why: str = ""
    """The reason, in the words of whoever tells it."""
    tries: int = 0
    """How many times it was tried; 0: not told."""
    reason: str = ""
    """The reason, in words that both sides have; empty: none."""


@dataclass
class Told:
    end: str
    """succeeded, failed, refused (nothing was started), endless (it stands still and does not end)."""
    why: str = ""
    steps: dict[str, Step] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    path: str
    """Empty: the run itself."""
    theirs: str
    ours: str
    their_why: str = ""
    our_why: str = ""

    def __str__(self) -> str:
        said = [f"{who}: {text}" for who, text in (("theirs", self.their_why), ("ours", self.our_why)) if text]
        tail = f"   ({' | '.join(said)})" if said else ""
        return f"{self.path or 'the run'}: theirs {self.theirs}, ours {self.ours}{tail}"


def differences(theirs: Told, ours: Told) -> list[Difference]:
    """Empty: they agree."""
    found = []
    if theirs.end != ours.end:
        found.append(Difference("", theirs.end, ours.end, theirs.why, ours.why))
    if "refused" in (theirs.end, ours.end):
        return found  # whoever refuses has no steps
    for path in sorted(theirs.steps.keys() | ours.steps.keys()):
        one, other = (side.steps.get(path, Step("absent")) for side in (theirs, ours))
        said = _differ(one, other)
        if said:
            found.append(Difference(path, *said, one.why, other.why))
    return found


def _differ(one: Step, other: Step) -> tuple[str, str] | None:
    if one.outcome != other.outcome:
        return None if {one.outcome, other.outcome} <= NEVER else (one.outcome, other.outcome)
    if one.reason and other.reason and one.reason != other.reason:
        return f"{one.outcome} ({one.reason})", f"{other.outcome} ({other.reason})"
    if one.tries and other.tries and one.tries != other.tries:
        return f"{one.outcome} after {one.tries} tries", f"{other.outcome} after {other.tries}"
    return None
