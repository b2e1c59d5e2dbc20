"""Every error code is explained, used, and documented."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.errors import catalogue, nearest

SOURCE = Path(__file__).parent.parent / "src" / "penstock"


def test_every_code_that_is_raised_is_explained_and_every_explained_one_is_raised() -> None:
    used = {code for path in SOURCE.rglob("*.py") for code in re.findall(r"\bP\d{3}\b", path.read_text())}
    explained = set(catalogue())
    assert used - explained == set()
    assert explained - used == set()


def test_every_entry_has_a_title_and_a_text() -> None:
    for code, entry in catalogue().items():
        assert set(entry) <= {"title", "text", "wrong", "right"}, code
        assert len(entry["title"]) < 80 and len(entry["text"]) > 40, code


def test_the_nearest_name_is_offered_and_a_far_one_is_not() -> None:
    assert nearest("stpes", ["steps", "params"]) == ' Did you mean "steps"?'
    assert nearest("zzz", ["steps"]) == ""
