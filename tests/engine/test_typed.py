"""Engine, backends and stores know each other by their types: nobody asks at run time what somebody can do, or tells mypy what it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import penstock

SOURCE = Path(penstock.__file__).parent


@pytest.mark.parametrize("package", ["engine", "backends", "store"])
def test_no_ability_is_guessed_and_no_type_is_asserted(package: str) -> None:
    found = []
    for file in sorted((SOURCE / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "cast"):
                of_python = isinstance(node.args[0], ast.Name) and node.args[0].id == "signal"  # what this system has
                if not of_python:
                    found.append(f"{file.relative_to(SOURCE)}:{node.lineno} {ast.unparse(node)}")
    assert not found
