"""Every example runs, as its README says, and gives what the function gives when it is called plainly."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(
    path.relative_to(EXAMPLES).as_posix() for path in [*EXAMPLES.glob("*.py"), EXAMPLES / "finetune/flow.py"]
)
SCREEN = 60
"""Lines."""


def plainly(file: Path, here: Path) -> Any:
    """The result of calling the workflow function, as JSON has it; None if the example has no function."""
    name = file.stem if file.stem != "flow" else file.parent.name
    code = f"import json, {file.stem} as m; f = getattr(m, {name!r}, None); print(json.dumps(f() if callable(f) else None, default=lambda _: '…'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(file.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", FILES)
def test_it_runs_and_gives_what_plain_python_gives(name: str, tmp_path: Path) -> None:
    def penstock(*words: str) -> str:
        done = subprocess.run([sys.executable, "-m", "penstock", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    penstock("run", str(EXAMPLES / name), "--on", "container=process")
    outputs = json.loads(penstock("show", "@", "-o", "json"))["outputs"]
    assert outputs
    plain = plainly(EXAMPLES / name, tmp_path)
    if plain not in (None, "…"):  # a file: its name says nothing of its content
        assert outputs["result"] == plain


@pytest.mark.parametrize("name", FILES)
def test_it_fits_on_a_screen(name: str) -> None:
    assert (EXAMPLES / name).read_text().count("\n") <= SCREEN


def test_the_readme_lists_all_of_them() -> None:
    listed = re.findall(r"^\| \[([^]]+)\]\(([^)]+)\) \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(name for name, _ in listed) == sorted(link for _, link in listed) == FILES
