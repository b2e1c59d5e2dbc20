"""Measures over time, compared with a sum over small steps, for all facts and orders."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.metrics import Fact, Measures, ResourceSeries, RunMeasures, Spread, Time, What, measure
from penstock.admission.model import UNLIMITED
from tests.support.speed import within

Q, A, S, P, E = What.QUEUED, What.ADMITTED, What.STARTED, What.PREEMPTED, What.ENDED


def cpu(amount: int) -> dict[str, int]:
    return {"cpu": amount}


def test_two_runs_on_four_cores() -> None:
    """The second waits for ten seconds, and reserves twice what it uses."""
    found = measure(
        [
            Fact(100, "one", What.SUBMITTED),
            Fact(100, "one", Q, "one/a"),
            Fact(100, "one", A, "one/a", reserved=cpu(4000)),
            Fact(100, "one", S, "one/a", used=cpu(4000)),
            Fact(102, "two", What.SUBMITTED),
            Fact(102, "two", Q, "two/a"),
            Fact(112, "one", E, "one/a", reserved=cpu(-4000), used=cpu(-4000)),
            Fact(112, "two", A, "two/a", reserved=cpu(2000)),
            Fact(112, "two", S, "two/a", used=cpu(1000)),
            Fact(120, "two", E, "two/a", reserved=cpu(-2000), used=cpu(-1000)),
        ],
        cpu(4000),
    )
    assert found.makespan == 20.0
    assert found.runs == {
        "one": RunMeasures(0.0, 0.0, 12.0, 0.0, 0.0, 0.0, 0),
        "two": RunMeasures(2.0, 12.0, 20.0, 10.0, 10.0, 10.0, 0),
    }
    assert (found.delay, found.waiting, found.stalled) == (Spread(5.0, 10.0), Spread(5.0, 10.0), Spread(5.0, 10.0))
    total = found.totals["cpu"]
    assert (total.reserved, total.used, total.wasted) == (4000 * 12 + 2000 * 8, 4000 * 12 + 1000 * 8, 1000 * 8)
    assert total.utilisation == pytest.approx(56_000 / (4000 * 20))
    assert (total.peak_reserved, total.peak_used) == (4000, 4000)
    assert found.series == (ResourceSeries("cpu", 4000, (0.0, 12.0, 20.0), (4000, 2000, 0), (4000, 1000, 0)),)


def test_a_preempted_run_waits_again_and_is_counted() -> None:
    found = measure(
        [
            Fact(0, "r", Q, "w"),
            Fact(1, "r", A, "w"),
            Fact(1, "r", S, "w", cpu(1), cpu(1)),
            Fact(5, "r", P, "w"),
            Fact(6, "r", Q, "w", cpu(-1), cpu(-1)),
            Fact(9, "r", A, "w"),
            Fact(9, "r", S, "w", cpu(1), cpu(1)),
            Fact(12, "r", E, "w", cpu(-1), cpu(-1)),
        ],
        cpu(1),
    )
    assert found.runs["r"] == RunMeasures(0.0, 1.0, 12.0, 1.0, 4.0, 4.0, 1)
    assert found.preemptions == 1


def test_waiting_counts_once_however_many_wait_and_stalled_only_while_nothing_is_used() -> None:
    found = measure(
        [
            Fact(0, "r", Q, "a"),
            Fact(0, "r", Q, "b"),
            Fact(3, "r", A, "a"),
            Fact(3, "r", S, "a", cpu(2), cpu(2)),
            Fact(7, "r", What.CHANGED, "a", cpu(-2), cpu(-2)),
            Fact(8, "r", A, "b"),
            Fact(10, "r", E),
        ],
        cpu(2),
    )
    assert (found.runs["r"].waiting, found.runs["r"].stalled, found.runs["r"].delay) == (8.0, 4.0, 3.0)


def test_a_run_that_never_starts_waits_until_the_end() -> None:
    found = measure([Fact(0, "r", Q, "w"), Fact(4, "other", E)], {})
    assert found.runs["r"] == RunMeasures(0.0, None, None, None, 4.0, 4.0, 0)
    assert found.delay == Spread(0.0, 0.0)


def test_nothing_happened_and_no_time_passed() -> None:
    empty = measure([], cpu(4))
    assert (empty.makespan, empty.runs, empty.totals["cpu"].utilisation) == (0.0, {}, None)
    assert empty.series == (ResourceSeries("cpu", 4, (0.0,), (0,), (0,)),)
    moment = measure([Fact(5.5, "r", S, "w", cpu(3), cpu(3)), Fact(5.5, "r", E, "w", cpu(-3), cpu(-3))], cpu(4))
    assert (moment.makespan, moment.totals["cpu"].used, moment.totals["cpu"].utilisation) == (0.0, 0.0, None)
    assert moment.runs["r"].delay == 0.0


def test_without_a_limit_there_is_no_utilisation() -> None:
    facts = [Fact(0, "", reserved={"cpu": 1, "memory": 1, "gpu": 1}), Fact(1, "")]
    found = measure(facts, {"cpu": None, "memory": UNLIMITED, "pods": 5})
    assert {name: (total.capacity, total.utilisation) for name, total in found.totals.items()} == {
        "cpu": (None, None),
        "gpu": (None, None),
        "memory": (None, None),
        "pods": (5, 0.0),
    }
    assert found.runs == {}


def test_tenths_of_seconds_add_up() -> None:
    """0.1 + 0.2 is not 0.3 for floats; the sum of their exact values is what counts, rounded once."""
    times = [i / 10 for i in range(10_001)]
    facts = [Fact(at, "r", used=cpu(1 if i % 2 == 0 else -1)) for i, at in enumerate(times)]
    exact = sum((Fraction(b) - Fraction(a) for a, b in zip(times[::2], times[1::2], strict=False)), Fraction(0))
    assert measure(facts, cpu(1)).totals["cpu"].used == float(exact)


def test_the_same_whole_however_far_from_zero_the_clock_stands() -> None:
    def at(start: float) -> Measures:
        return measure([Fact(start, "r", Q, "w", cpu(3)), Fact(start + 0.5, "r", E, "w", cpu(-3))], cpu(4))

    assert at(0.0) == at(1_700_000_000.0) == at(-8.0)


# -- against adding up by hand ----------------------------------------------------------------------------------------

quarters = st.integers(0, 160).map(lambda n: n / 4)
vectors = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(-50, 50), max_size=2)
facts_of_any_kind = st.lists(
    st.builds(
        Fact,
        quarters,
        st.sampled_from(["a", "b"]),
        st.sampled_from(What),
        st.sampled_from(["v", "w"]),
        vectors,
        vectors,
    ),
    max_size=25,
)


def slices(facts: Sequence[Fact]) -> list[tuple[float, list[Fact]]]:
    """The whole time in quarters of a second: the start of each, and the facts until then."""
    ordered = sorted(facts, key=lambda fact: fact.time)
    first, last = float(ordered[0].time), float(ordered[-1].time)
    count = int((last - first) * 4)
    return [(first + i / 4, [f for f in ordered if f.time <= first + i / 4]) for i in range(count)]


@given(facts_of_any_kind)
def test_sums_over_time_are_those_of_a_ledger(facts: list[Fact]) -> None:
    found = measure(facts, {"cpu": 7, "memory": 9})
    if not facts:
        return
    parts = slices(facts)
    assert found.makespan == len(parts) / 4
    for name, capacity in (("cpu", 7), ("memory", 9)):
        reserved = [sum(fact.reserved.get(name, 0) for fact in before) for _, before in parts]
        used = [sum(fact.used.get(name, 0) for fact in before) for _, before in parts]
        total = found.totals[name]
        assert (total.reserved, total.used) == (sum(reserved) / 4, sum(used) / 4)
        assert total.wasted == (sum(reserved) - sum(used)) / 4
        expected = sum(used) / (capacity * len(parts)) if parts else None
        assert total.utilisation == (pytest.approx(expected) if expected is not None else None)


@given(facts_of_any_kind)
def test_waiting_is_that_of_a_ledger(facts: list[Fact]) -> None:
    found = measure(facts, {})
    for name, run in found.runs.items():
        waiting = stalled = 0
        for _, before in slices(facts):
            in_line: set[str] = set()
            using: dict[str, int] = {}
            for fact in (fact for fact in before if fact.run == name):
                if fact.what is Q:
                    in_line.add(fact.workload)
                elif fact.what is A:
                    in_line -= {fact.workload}
                elif fact.what is E:
                    in_line = set()
                for resource, amount in fact.used.items():
                    using[resource] = using.get(resource, 0) + amount
            waiting += bool(in_line)
            stalled += bool(in_line) and not any(using.values())
        own = sorted((fact for fact in facts if fact.run == name), key=lambda fact: fact.time)
        starts = [float(fact.time) for fact in own if fact.what is S]
        assert (run.waiting, run.stalled) == (waiting / 4, stalled / 4)
        assert run.delay == (starts[0] - float(own[0].time) if starts else None)
        assert run.preemptions == sum(fact.what is P for fact in own)


@given(facts_of_any_kind)
def test_the_series_says_the_same_as_the_sums(facts: list[Fact]) -> None:
    found = measure(facts, {"cpu": 7})
    for one in found.series:
        total = found.totals[one.resource]
        assert list(one.times) == sorted(set(one.times)) and one.times[0] == 0.0 and one.times[-1] == found.makespan
        spans = [b - a for a, b in zip(one.times, one.times[1:], strict=False)]
        assert sum(v * s for v, s in zip(one.reserved, spans, strict=False)) == total.reserved
        assert sum(v * s for v, s in zip(one.used, spans, strict=False)) == total.used
        assert (total.peak_reserved, total.peak_used) == (max(one.reserved), max(one.used))
        pairs = list(zip(one.reserved, one.used, strict=True))
        assert all(a != b for a, b in zip(pairs[:-1], pairs[1:-1], strict=False))


@given(facts_of_any_kind, st.randoms(use_true_random=False))
def test_the_order_of_facts_of_different_times_does_not_matter(facts: list[Fact], shuffle: random.Random) -> None:
    by_time: dict[Time, list[Fact]] = {}
    for fact in facts:
        by_time.setdefault(fact.time, []).append(fact)
    groups = list(by_time.values())
    shuffle.shuffle(groups)
    assert measure([fact for group in groups for fact in group], cpu(3)) == measure(facts, cpu(3))


def test_a_hundred_thousand_facts_take_less_than_five_seconds() -> None:
    chance = random.Random(1)
    facts = []
    for i in range(25_000):
        start, length = chance.random() * 1e5, chance.random() * 100
        held = {"cpu": 1000, "memory": 2**30}
        back = {name: -amount for name, amount in held.items()}
        facts += [
            Fact(start, f"r{i % 50}", Q, str(i)),
            Fact(start + length / 2, f"r{i % 50}", A, str(i), held),
            Fact(start + length / 2, f"r{i % 50}", S, str(i), {}, held),
            Fact(start + length, f"r{i % 50}", What.CHANGED, str(i), back, back),
        ]
    with within(5):
        found = measure(facts, {"cpu": 10**6, "memory": 2**40})
    assert found.totals["cpu"].wasted == 0.0
    assert len(found.series[0].times) > 49_000
