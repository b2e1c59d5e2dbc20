"""Amazon States Language against what AWS recorded. Each part says how many cases passed (`pytest -s`).

The thresholds are the project's own; the cases are read from PENSTOCK_ASL_CASES (see asl_cases)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest

from penstock.formats.asl.check.machine import check
from penstock.formats.documents import read_text
from tests.formats.asl_cases import FOLDER, cases, fits, inspected, replay, replay_in_rounds, same_end, same_trace


def told(part: str, results: Iterable[tuple[str, bool]], capsys: pytest.CaptureFixture[str]) -> tuple[int, int]:
    """(passed, all), printed with the names of those that failed."""
    listed = list(results)
    failed = [name for name, good in listed if not good]
    with capsys.disabled():
        print(f"\n{part}: {len(listed) - len(failed)} of {len(listed)} passed", *failed, sep="\n    ")
    return len(listed) - len(failed), len(listed)


def test_recorded_executions_end_and_go_as_on_aws(capsys: pytest.CaptureFixture[str]) -> None:
    ends, traces = [], []
    for name, case in cases("recorded"):
        if case.get("replay") is False:
            continue
        run = replay(case)
        ends.append((name, same_end(case, run.ended)))
        traces.append((name, same_trace(case, run)))
    passed, count = told("executions that end as recorded", ends, capsys)
    assert passed >= 0.987 * count
    passed, count = told("executions with the recorded trace", traces, capsys)
    assert passed >= 0.95 * count


def test_rounds_that_are_kept_end_like_the_whole_walk(capsys: pytest.CaptureFixture[str]) -> None:
    results = []
    for name, case in cases("recorded"):
        if case.get("replay") is not False and not case.get("tasks"):
            results.append((name, same_end(case, replay_in_rounds(case))))
    passed, count = told("executions without tasks, in rounds", results, capsys)
    assert passed >= 0.98 * count


def test_comparisons_of_choices(capsys: pytest.CaptureFixture[str]) -> None:
    results = []
    for name, case in cases("choice"):
        for number, one in enumerate(case["cases"]):
            ended = replay({**case, **one}).ended
            results.append((f"{name} {number}", ended is not None and ended.output == one["output"]))
    passed, count = told("comparisons of Choice", results, capsys)
    assert passed == count


def test_single_states(capsys: pytest.CaptureFixture[str]) -> None:
    passed, count = told(
        "single states", [(name, fits(case["expect"], inspected(case))) for name, case in cases("state")], capsys
    )
    assert passed >= 0.95 * count


def test_invalid_definitions_are_refused_at_their_place(capsys: pytest.CaptureFixture[str]) -> None:
    results, places = [], []
    for name, case in cases("invalid"):
        found, expect = _found(case), case["expect"]
        results.append((name, bool(found) != (expect["result"] == "OK")))
        wanted = _places(expect)
        if found and wanted:
            places.append((name, any(_near(one, pointer) for one in wanted for pointer in found)))
    passed, count = told("invalid definitions", results, capsys)
    assert passed >= 0.91 * count
    passed, count = told("invalid definitions, the place where it is said", places, capsys)
    assert passed >= 0.91 * count


def _found(case: dict[str, Any]) -> list[str]:
    express = case.get("type") == "EXPRESS" or "Express" in json.dumps(case["expect"])
    return [one.pointer for one in check(case["definition"], express)]


def _places(expect: dict[str, Any]) -> list[str]:
    said = [one["path"] for one in expect.get("problems", ()) if "path" in one]
    said += [one["location"] for one in expect.get("diagnostics", ())]
    return said + re.findall(r"at (/\S*?)'?$", expect.get("message", ""))


def _near(wanted: str, pointer: str) -> bool:
    return pointer.startswith(wanted) or wanted.startswith(pointer)


def test_every_label_that_aws_refuses_is_refused() -> None:
    for _, case in cases("invalid"):
        for label in case.get("labels", ()):
            case["definition"]["States"]["MapState"]["Label"] = label
            assert check(case["definition"]), label


def test_no_valid_definition_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    results = [(name, not check(case["definition"])) for name, case in (*cases("valid"), *cases("recorded"))]
    for name, case in cases("choice"):
        results += [(name, not check(one.get("definition", case.get("definition")))) for one in case["cases"]]
    for path in sorted((FOLDER / "samples").iterdir()):
        results += [(path.name, not check(dict(one.data))) for one in read_text(path.read_text(), path.name)]
    passed, count = told("valid definitions taken", results, capsys)
    assert passed == count
