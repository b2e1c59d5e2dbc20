"""Wrong user code fails type checking, and right user code passes: the annotations are part of the interface."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_wrong_code_fails_where_it_is_marked_and_nowhere_else(tmp_path: Path) -> None:
    source = (HERE / "typing_bad.py").read_text()
    marked = {i for i, line in enumerate(source.splitlines(), 1) if "# wrong" in line}
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            f"--cache-dir={tmp_path}",
            str(HERE / "typing_bad.py"),
            str(HERE / "typing_good.py"),
        ],
        capture_output=True,
        text=True,
        cwd=HERE.parent,
    )
    found = {int(line) for line in re.findall(r"typing_bad\.py:(\d+): error", result.stdout)}
    assert found == marked, result.stdout
    assert "typing_good" not in result.stdout, result.stdout
