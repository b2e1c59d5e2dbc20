"""What a value may read beside the data of its state: the context object, the variables, and chance. Made by walk, read by the language."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from penstock.expressions.plain import EvaluationError
from penstock.formats.asl.language.failures import RUNTIME, StateFailure

BUDGET: Final = 5_000_000
"""The most values that the evaluation of one field may look at or copy."""


class Chance(Protocol):
    """What differs each time. A caller that must repeat itself gives one with a seed."""

    def uuid(self) -> str: ...

    def random(self) -> float: ...


@dataclass(slots=True)
class SeededChance:
    """The same values for the same seed, made of digests."""

    seed: str
    used: int = 0

    def uuid(self) -> str:
        found = self._next().hex()
        return (
            f"{found[:8]}-{found[8:12]}-4{found[13:16]}-{'89ab'[int(found[16], 16) % 4]}{found[17:20]}-{found[20:32]}"
        )

    def random(self) -> float:
        return int.from_bytes(self._next()[:7]) / 2**56

    def _next(self) -> bytes:
        self.used += 1
        return hashlib.sha256(f"{self.seed}/{self.used}".encode()).digest()


@dataclass(frozen=True, slots=True)
class Scope:
    """What all fields of one state see."""

    context: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    chance: Chance = field(default_factory=lambda: SeededChance(""))
    now: Callable[[], str] = lambda: "1970-01-01T00:00:00.000Z"


class Budget:
    """The Meter of one evaluation (see expressions.plain): paths with `..` inside one another would never end."""

    def __init__(self, units: int = BUDGET) -> None:
        self.left = units

    def spend(self, units: int) -> None:
        self.left -= units
        if self.left < 0:
            raise StateFailure(RUNTIME, "the evaluation of the field looks at too many values")

    def equal(self, left: Any, right: Any) -> bool:
        return same(left, right)

    def compare(self, op: str, left: Any, right: Any) -> bool:
        raise EvaluationError(f"{op} is not for regular expressions")


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    return bool(left == right)
