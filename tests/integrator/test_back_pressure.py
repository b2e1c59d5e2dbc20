"""T5.6 of the acceptance tests: an API server that says "quota exceeded" is asked half as often each time, down to a floor, and then as often as
before; and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.backends import breaker
from penstock.backends.breaker import BreakerLimits
from penstock.backends.kubernetes import throttle
from penstock.graph.model import Outcome
from tests.backends.harness import Play, spec_of
from tests.backends.kubernetes.fake_cluster import FakeCluster
from tests.backends.kubernetes.test_backend import cluster, live, step

__all__ = ["cluster"]
FAST = BreakerLimits(most=400.0, floor=25.0, after=0)


def test_t5_6_a_full_quota_halves_the_rate_to_a_floor_and_nothing_is_lost(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "LIMITS", FAST)
    rates: list[float] = []

    class Watched(throttle.Throttle):
        @property  # type: ignore[override]
        def state(self) -> breaker.Breaker:
            return self._state

        @state.setter
        def state(self, new: breaker.Breaker) -> None:
            self._state = new
            rates.append(new.rate)

    monkeypatch.setattr("penstock.backends.kubernetes.backend.Throttle", Watched)
    cluster.most_jobs = 4
    many = 24

    async def story(playing: Play) -> None:
        specs = [spec_of(step("succeed"), attempt=number) for number in range(1, many + 1)]
        playing.backend.start(specs)
        recorded: set[str] = set()

        def done() -> bool:
            new = {spec.id for spec in specs if playing.ended(spec.id)} - recorded
            playing.backend.recorded(sorted(new))  # then its Job is removed, and makes room
            recorded.update(new)
            return len(recorded) == many

        await playing.until(done, 60)
        ended = [playing.ended(spec.id) for spec in specs]
        assert [one.outcome for one in ended if one is not None] == [Outcome.SUCCEEDED] * many

    live(tmp_path, story)
    assert cluster.refused_jobs > 0 and len(cluster.made) == len(set(cluster.made)) == many
    assert min(rates) == FAST.floor and rates[0] == FAST.most
    falls = [(before, after) for before, after in zip(rates, rates[1:], strict=False) if after < before]
    assert all(after == max(FAST.floor, before / 2) for before, after in falls)
    assert any(after > before for before, after in zip(rates, rates[1:], strict=False))


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 100)), max_size=80))
def test_the_rate_stays_between_its_floor_and_its_most_and_recovers(played: list[tuple[bool, float]]) -> None:
    limits = BreakerLimits(most=64.0, floor=0.5, after=3, open_for=10, longest=100)
    state, now, row = breaker.closed(limits), 0.0, 0
    for good, wait in played:
        now = max(now + wait, breaker.due(state))
        state = breaker.sent(state, limits, now)
        before = state.rate
        if good:
            state, row = breaker.succeeded(state, limits), 0
            assert not breaker.is_open(state, now) and state.rate == min(limits.most, before * 2)
        else:
            state, row = breaker.failed(state, limits, now), row + 1
            assert state.rate == max(limits.floor, before / 2)
            assert breaker.is_open(state, now) == (row >= limits.after)
            assert breaker.due(state) - now <= max(limits.longest, 1 / limits.floor)
        assert limits.floor <= state.rate <= limits.most
    for _ in range(10):
        state = breaker.succeeded(state, limits)
    assert state == breaker.closed(limits)


def test_while_it_is_open_there_is_one_probe_and_a_failed_one_opens_it_for_longer() -> None:
    limits = BreakerLimits(most=1000, floor=1000, after=2, open_for=10, longest=25)
    state = breaker.closed(limits)
    for _ in range(2):
        state = breaker.failed(breaker.sent(state, limits, 0.0), limits, 0.0)
    opened = []
    now = 0.0
    for _ in range(4):
        opened.append(breaker.due(state) - now)
        now = breaker.due(state)
        state = breaker.sent(state, limits, now)
        assert breaker.due(state) > now  # no second one beside the probe
        state = breaker.failed(state, limits, now)
    assert opened == [10, 20, 25, 25]
    late = breaker.failed(state, limits, now + 1, probe=False)  # sent before it opened
    assert breaker.due(late) == breaker.due(state)
