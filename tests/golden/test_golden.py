"""The event logs of small workflows are what they were: each is run again and compared with logs/NAME.json, word for word.

A guard for changes to the inside of Penstock. A difference here is a change of behaviour: of what is recorded, in which order, of
the final rows, of keys and digests. If it is meant, record anew and read the difference before it is committed:

    PENSTOCK_RECORD=1 pytest tests/golden
    git diff tests/golden/logs
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Workflow
from tests.golden import control, crashes, flows, foreign, kinds, queues, sharing, trouble
from tests.golden.record import schema, written
from tests.golden.stage import Case, Stage

CASES = [
    case for module in (kinds, flows, trouble, sharing, control, queues, crashes, foreign) for case in module.cases
]
LOGS = Path(__file__).parent / "logs"
SCHEMA = Path(__file__).parent / "schema.sql"
RECORDING = bool(os.environ.get("PENSTOCK_RECORD"))


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for name in list(os.environ):
        if name.startswith("PENSTOCK_"):
            monkeypatch.delenv(name)
    made = Stage(here)
    yield made
    made.close()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_log_is_as_it_was_recorded(case: Case, stage: Stage) -> None:
    case.play(stage)
    found = written(stage.found(case))
    file = LOGS / f"{case.name}.json"
    if RECORDING:
        file.write_text(found, encoding="utf-8")
        return
    known = file.read_text(encoding="utf-8")
    if found != known:
        lines = difflib.unified_diff(known.splitlines(), found.splitlines(), "recorded", "now", lineterm="", n=1)
        pytest.fail("\n".join(list(lines)[:80]), pytrace=False)


def test_the_tables_are_as_they_were(stage: Stage) -> None:
    stage.virtually(Workflow("nothing", []))
    found = schema(stage.home)
    if RECORDING:
        SCHEMA.write_text(found, encoding="utf-8")
    assert found == SCHEMA.read_text(encoding="utf-8")


def test_every_recorded_log_has_its_case() -> None:
    assert {file.stem for file in LOGS.glob("*.json")} == {case.name for case in CASES}
    assert len({case.name for case in CASES}) == len(CASES)
