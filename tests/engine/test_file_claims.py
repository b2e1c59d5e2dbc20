"""Which of the tasks that returned a file ran at the same time: compared with all pairs of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.backends.base import TakenFiles
from penstock.engine import file_claims
from penstock.engine.file_claims import FileClaims

spans = st.tuples(st.integers(0, 40), st.integers(1, 20), st.sets(st.sampled_from("abcd"), min_size=1))


@settings(max_examples=300, deadline=None)
@given(st.lists(spans, max_size=30), st.integers(1, 8))
def test_every_overlap_is_found_when_the_second_ends(given: list[tuple[int, int, set[str]]], many: int) -> None:
    """However few are kept: what is forgotten overlaps with nothing that is still to end."""
    file_claims._MANY, before = many, file_claims._MANY
    try:
        claims = FileClaims()
        tasks = sorted(((began, began + lasts, paths) for began, lasts, paths in given), key=lambda one: one[1])
        for number, (began, ended, paths) in enumerate(tasks):
            oldest = min((one[0] for one in tasks[number + 1 :]), default=ended)
            task: Any = SimpleNamespace(
                path=str(number), key="", state=SimpleNamespace(scope=SimpleNamespace(owner=None))
            )
            taken = TakenFiles(began, ended, tuple(sorted(paths)))
            clash, others = claims.add(None, task, taken, lambda oldest=oldest: oldest)  # type: ignore[arg-type]
            wanted = {
                str(at)
                for at, (start, end, theirs) in enumerate(tasks[:number])
                if start < ended and began < end and theirs & paths
            }
            assert {one.task for one in others} == wanted
            assert bool(clash) == bool(wanted)
    finally:
        file_claims._MANY = before
