"""Kueue's own test cases, as Kueue v0.19.2 answered them: one test for each, of every family file in a folder.

The folder is named by PENSTOCK_KUEUE_CASES, or is shared/conformance/kueue beside the repository. A file is a JSON list of cases;
each names its family, and `families/<family>.py` checks it.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "PENSTOCK_KUEUE_CASES"
ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get(VARIABLE) or ROOT.parent / "shared/conformance/kueue")
FAMILIES = {"schedule", "preemption", "flavors", "shares", "quota", "ordering", "requests"}


def _cases() -> list[dict[str, Any]]:
    found = []
    for file in sorted(FOLDER.glob("*.json")):
        content = json.loads(file.read_text())
        if isinstance(content, list):
            found += [
                {"family": file.stem, "id": f"{file.stem}/{number}", **case} for number, case in enumerate(content)
            ]
    return found


CASES = _cases()


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES] or [pytest.param({}, id="none")])
def test_case(case: dict[str, Any]) -> None:
    if not case:
        pytest.skip(f"no cases in {FOLDER}: set {VARIABLE} to the folder of Kueue's conformance cases")
    if case.get("outOfScope"):
        pytest.skip(f"out of scope: {case['outOfScope']}")
    assert case["family"] in FAMILIES, f"no check for the family {case['family']!r}"
    importlib.import_module(f"tests.conformance.families.{case['family']}").check(case)
