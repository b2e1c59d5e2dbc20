"""A command line, run in this process: exit code, stdout, stderr."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.cli.main import run


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def penstock(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> Result:
        code = run(list(args))
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Result(code, captured.out, captured.err)

    return call
