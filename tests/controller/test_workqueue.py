"""The work queue: no key twice at once, none lost, on a virtual clock; and the same with threads."""

from __future__ import annotations

import threading
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.controller.cluster.workqueue import Schedule, WorkQueue

KEYS = st.sampled_from(["a1", "a2", "a3", "b1", "b2", "c1"])
DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), KEYS),
        st.tuples(st.just("later"), KEYS, st.floats(0, 20)),
        st.tuples(st.just("take")),
        st.tuples(st.just("done"), st.integers(0, 5), st.sampled_from(["", "failed", "again"])),
        st.tuples(st.just("pass"), st.floats(0, 10)),
    ),
    max_size=80,
)


@given(DEEDS)
def test_no_key_twice_at_once_and_none_lost(deeds: list[tuple]) -> None:
    """A model keeps what is owed: a key that was added, or whose time has come, is taken after that moment."""
    schedule: Schedule[str] = Schedule(group=lambda key: key[0])
    now = 0.0
    handled: list[str] = []
    owed: set[str] = set()
    for deed in deeds:
        if deed[0] == "add":
            schedule.add(deed[1])
            owed.add(deed[1])
        elif deed[0] == "later":
            schedule.add_at(deed[1], now + deed[2])
            owed.add(deed[1])
        elif deed[0] == "take":
            key = schedule.take(now)
            if key is not None:
                assert key not in handled
                handled.append(key)
                owed.discard(key)
        elif deed[0] == "done" and handled:
            key = handled.pop(deed[1] % len(handled))
            schedule.done(key, now, failed=deed[2] == "failed", again=5.0 if deed[2] == "again" else None)
            if deed[2]:
                owed.add(key)
        elif deed[0] == "pass":
            now += deed[1]
        assert schedule.remembered <= 5 * 6 + 2 * 6 + 64
    for key in handled:
        schedule.done(key, now)
    taken = set()
    while (key := schedule.take(now + 1000)) is not None:
        taken.add(key)
        schedule.done(key, now + 1000)
    assert owed <= taken
    assert schedule.idle
    assert schedule.next_due() is None
    assert schedule.remembered == 0


def test_a_key_added_while_it_is_handled_is_handled_again_after() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.add("a")
    assert schedule.take(0) == "a"
    schedule.add("a")
    schedule.add("a")
    assert schedule.take(0) is None
    schedule.done("a", 0)
    assert schedule.take(0) == "a"
    schedule.done("a", 0)
    assert schedule.take(0) is None


def test_failures_come_back_later_each_time_until_one_succeeds() -> None:
    schedule: Schedule[str] = Schedule(first=1, longest=10)
    schedule.add("a")
    now, waits = 0.0, []
    for _ in range(6):
        assert schedule.take(now) == "a"
        schedule.done("a", now, failed=True)
        due = schedule.next_due()
        assert due is not None
        assert schedule.take(due - 0.01) is None
        waits.append(due - now)
        now = due
    assert waits == [1, 2, 4, 8, 10, 10]
    assert schedule.take(now) == "a"
    schedule.done("a", now)
    assert schedule.failures("a") == 0
    assert schedule.next_due() is None


def test_one_that_fails_comes_back_for_what_waits_in_it() -> None:
    """A write of it is refused each time; the rest of it asks for a look in a second."""
    schedule: Schedule[str] = Schedule(first=0.1, longest=60.0)
    schedule.add("a")
    now = 0.0
    for _ in range(12):
        assert schedule.take(now) == "a"
        schedule.done("a", now, failed=True, again=1.0)
        due = schedule.next_due()
        assert due is not None and due - now <= 1.0
        now = due
    assert schedule.failures("a") == 12


def test_what_happens_before_makes_the_later_look_void() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.add("a")
    schedule.take(0)
    schedule.done("a", 0, again=30)
    schedule.add("a")
    assert schedule.take(1) == "a"
    schedule.done("a", 1)
    assert schedule.take(100) is None


def test_namespaces_take_turns() -> None:
    schedule: Schedule[str] = Schedule(group=lambda key: key[0])
    for number in range(100):
        schedule.add(f"a{number}")
    schedule.add("b0")
    schedule.add("c0")
    first = [schedule.take(0) for _ in range(4)]
    assert first == ["a0", "b0", "c0", "a1"]


def test_moving_a_key_forward_many_times_needs_no_more_memory() -> None:
    schedule: Schedule[int] = Schedule()
    for round_ in range(1000):
        for key in range(10):
            schedule.add_at(key, 5000.0 - round_)
    assert schedule.remembered < 200


def test_many_threads_handle_every_key_and_none_twice_at_once() -> None:
    queue: WorkQueue[int] = WorkQueue(Schedule(group=lambda key: key % 7))
    at_work: Counter[int] = Counter()
    times: Counter[int] = Counter()
    guard = threading.Lock()
    faults = []

    def work() -> None:
        while (key := queue.take()) is not None:
            with guard:
                at_work[key] += 1
                times[key] += 1
                if at_work[key] > 1:
                    faults.append(key)
                first = times[key] == 1
            if first:
                queue.add(key)  # a change that comes while it is handled
            with guard:
                at_work[key] -= 1
            queue.done(key, again=0.001 if times[key] == 2 else None)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for key in range(300):
        queue.add(key)
    finished = threading.Event()
    for _ in range(2000):
        with guard:
            if len(times) == 300 and all(count >= 3 for count in times.values()):
                break
        finished.wait(0.01)
    queue.close()
    for thread in threads:
        thread.join()
    assert not faults
    assert all(times[key] == 3 for key in range(300))
