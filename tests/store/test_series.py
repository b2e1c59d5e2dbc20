"""Records of queue use become coarser as they get older, and keep what they say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.service.views.series import series
from penstock.store.queue_use import FINE, KEPT, QueueUse, Use, joined, parsed
from penstock.store.records import WriteBatch
from penstock.store.sql import Store

NAME = "default/nvidia.com/gpu"
DAY = 86400


def look(at: int, used: int, waiting: int = 0) -> QueueUse:
    return QueueUse(at, FINE, Use(waiting, waiting, waiting), {NAME: Use(used, used, used, 8, max(0, used - 8))})


def put(store: Store, *rows: QueueUse) -> None:
    for row in rows:
        batch = WriteBatch()
        batch.queue_use["q"] = ("q", row.width, row.at, row.text())
        store.journal.begin()
        store.journal.flush(batch, "me")
        store.journal.commit()


def values(store: Store, since: int, until: int, step: int) -> list[tuple[int, int, int]]:
    return [(use.mean, use.peak, use.nominal) for _, use in series(store, "q", since, until, step).of(NAME)]


def test_a_row_is_read_as_it_was_written() -> None:
    row = look(70, 12, 3)
    assert parsed(FINE, 70, row.text()) == row


def test_what_has_no_row_is_as_it_was_before(store: Store) -> None:
    put(store, look(1000, 4), look(1100, 10))
    assert [mean for mean, *_ in values(store, 990, 1139, 10)] == [4] * 10 + [10] * 4
    assert values(store, 0, 500, 10) == [], "before the first row nothing is known"
    assert values(store, 1200, 1259, 60) == [(10, 10, 8)]


def test_old_records_are_joined_and_say_the_same(store: Store) -> None:
    begin = 2000 * DAY
    rows = [look(begin + 10 * n, n % 7, n % 3) for n in range(0, 360, 2)]  # an hour
    put(store, *rows, look(begin + 3600, 0))
    before = values(store, begin, begin + 3599, 3600)
    assert before[0][0] == round(sum(n % 7 for n in range(0, 360, 2)) / 180)
    for age, width in ((2 * DAY, 300), (40 * DAY, 3600)):
        while store.series.join(begin + age):
            pass
        _, left = store.series.between("q", begin, begin + 3600)
        assert {row.width for row in left} == {width}
        assert values(store, begin, begin + 3599, 3600)[0][1:] == before[0][1:]
        assert abs(values(store, begin, begin + 3599, 3600)[0][0] - before[0][0]) <= 1
    store.series.join(begin + KEPT[-1][1] + DAY)
    assert store.series.between("q", 0, begin + 500 * DAY) == (None, [])


def test_much_is_joined_in_parts(store: Store) -> None:
    begin = 2000 * DAY
    batch = WriteBatch()
    store.journal.begin()
    for n in range(4500):
        row = look(begin + 10 * n, n % 5)
        batch.queue_use["q"] = ("q", FINE, row.at, row.text())
        store.journal.flush(batch, "me")
    store.journal.commit()
    looks = 0
    while store.series.join(begin + 5 * DAY):
        looks += 1
    assert looks == 2
    _, rows = store.series.between("q", begin, begin + DAY)
    assert {row.width for row in rows} == {300} and len(rows) == 150
    assert all(row.amounts[NAME][:2] == (2, 4) for row in rows)


@given(st.lists(st.tuples(st.integers(0, 59), st.integers(0, 100)), min_size=1, unique_by=lambda one: one[0]))
def test_joining_keeps_the_area_whatever_the_order_of_widths(looks: list[tuple[int, int]]) -> None:
    rows = [look(10 * n, used) for n, used in sorted(looks)]
    exact = [0] * 600
    for row in rows:
        exact[row.at :] = [row.amounts[NAME].last] * (600 - row.at)
    first = rows[0].at
    whole = joined(rows, None, 0, 600)
    halves = [joined([row for row in rows if at <= row.at < at + 300], None, at, 300) for at in (0, 300)]
    assert whole is not None
    use = whole.amounts[NAME]
    assert use.peak == max(used for _, used in looks) and use.last == rows[-1].amounts[NAME].last
    assert abs(use.mean - sum(exact[first:]) / (600 - first)) <= 1
    assert all(half is None or half.amounts[NAME].peak <= use.peak for half in halves)
