"""Lists of results that are zipped: cut to the shortest without a look at their items, which may be objects and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import LocalRunner
from tests.support.source import module

FLOW = """
from pathlib import Path

class Model:
    def __init__(self, n):
        self.n = n

@task
def model(n: int):
    return Model(n)

@task
def write(n: int) -> Path:
    place = Path(f"part-{n}.txt")
    place.write_text("x" * n)
    return place

@task
def use(model, part: Path, name: str) -> str:
    return f"{model.n} {part.read_text()} {name}"

@workflow
def flow(k: int):
    models = [model(i) for i in range(k)]
    parts = [write(i) for i in range(3)]
    return [use(m, p, n) for m, p, n in zip(models, parts, words("a b c d"))]
"""


def test_objects_and_files_are_zipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flow = module(FLOW).flow
    with LocalRunner(home=tmp_path / "home", inline=True) as runner:
        assert runner.run(flow, k=2).result == ["0  a", "1 x b"]
        assert runner.run(flow, k=5).result == ["0  a", "1 x b", "2 xx c"]
