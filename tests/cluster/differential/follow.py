"""The engine follows Kueue from quiet point to quiet point. Called by run and by whoever looks at a recorded play.

The engine goes its usual way as long as its answers are Kueue's. Where they are not, it may be that things came in another order than usual, one
that Kueue's rules leave open (`ours.Way`), at this point or at one just before: then everything looked the same, but others were parked. So it goes
back a few points and tries the other ways. Only if none of them leads to Kueue's answer the two differ.
"""

from __future__ import annotations

from typing import Any

from tests.cluster.differential.compare import differences
from tests.cluster.differential.ours import USUAL, Ours, State
from tests.cluster.differential.theirs import Phase

_BACK = 4
_TRIES = 1000


class Follower:
    def __init__(self, ours: Ours) -> None:
        self.phases: list[Phase] = []
        self.path = [ours]
        """The engine before each phase, and after the last one."""
        self.searches = 0
        """How often the usual way was not the one."""

    def leads_round(self, phase: Phase) -> bool:
        """Would what was just done send Kueue into a search without an end?"""
        engine = self.path[-1].copy()
        try:
            engine.play(phase.moves, phase.at, phase.batched)
        except (AssertionError, KeyError):
            return False
        return engine.circular()

    def follow(self, phase: Phase) -> tuple[State, list[str]]:
        """The engine's answer, and how it differs."""
        self.phases.append(phase)
        engine = self.path[-1].copy()
        try:
            state = engine.play(phase.moves, phase.at, phase.batched)
        except (AssertionError, KeyError) as error:
            state, lines = {}, [f"the engine: {error!r}"]
        else:
            lines = differences(phase.state, state)
            if not lines:
                engine.learn(phase.reserved)
                self.path.append(engine)
                return state, []
        self._left = _TRIES
        for back in range(min(_BACK, len(self.phases))):
            start = len(self.phases) - 1 - back
            found = self._search(start, self.path[start])
            if found is not None:
                self.path[start + 1 :] = found
                self.searches += 1
                return phase.state, []
        self.path.append(engine)
        return state, lines

    def _search(self, at: int, before: Ours) -> list[Ours] | None:
        """The engine after each phase from `at` on, in a way in which it says all that Kueue has said."""
        if at == len(self.phases):
            return []
        phase = self.phases[at]
        seen: set[Any] = set()
        ways = [USUAL]
        while ways and self._left > 0:
            way = ways.pop(0)
            self._left -= 1
            engine = before.copy()
            try:
                state = engine.play(phase.moves, phase.at, phase.batched, way)
            except (AssertionError, KeyError):
                continue
            if way is USUAL:
                ways = list(engine.ways)
            if differences(phase.state, state) or (hidden := engine.hidden()) in seen:
                continue
            seen.add(hidden)
            engine.learn(phase.reserved)
            rest = self._search(at + 1, engine)
            if rest is not None:
                return [engine, *rest]
        return None
