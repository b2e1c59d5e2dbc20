"""Annotations that are text, or that cannot be evaluated: functions get what they declare all the same, wherever their code is."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.artifacts.rebuild import builder, hints_of
from tests.support.declared import Color, Config

if TYPE_CHECKING:
    from nowhere import Frame

ROOT = Path(__file__).parents[2]
SCRIPT = """
import dataclasses, datetime as dt, enum, sys
from typing import TYPE_CHECKING, Optional
from penstock import LocalRunner, task, workflow
if TYPE_CHECKING:
    import nowhere

class Color(enum.Enum):
    RED = "red"

@dataclasses.dataclass
class Base:
    color: Color

@dataclasses.dataclass
class Config(Base):
    day: dt.date
    inner: Optional["Config"] = None
    frame: "nowhere.Frame | None" = None

@task
def use(config: Config, color: Color, day: dt.date, frame: "nowhere.Frame | None" = None) -> str:
    return repr([config, color, day])

@task
def make(color: Color) -> Config:
    return Config(color, dt.date(2024, 5, 17), Config(color, dt.date(2025, 5, 17)))

class Uses:
    def __init__(self, n: int):
        self.n = n

    @task
    def of_an_object(self, config: Config) -> str:
        return repr([self.n, config])

uses = Uses(3)

@workflow
def flow(color: Color = Color.RED):
    made = make(color)
    return [use(made, color, dt.date(2023, 1, 1)), use(Config(Color.RED, dt.date(2022, 1, 1)), Color.RED, dt.date(2023, 1, 1)), uses.of_an_object(made)]

if __name__ == "__main__":
    assert flow.run().result == flow(), (flow.run().result, flow())
"""


@pytest.mark.parametrize("postponed", [True, False], ids=["text", "objects"])
@pytest.mark.parametrize("how", ["as a script", "as a module"])
def test_a_script_gets_what_it_declares(how: str, postponed: bool, tmp_path: Path) -> None:
    """A script, like a notebook, is sent to the workers by value: the names in its annotations must come along."""
    (tmp_path / "script.py").write_text(("from __future__ import annotations\n" if postponed else "") + SCRIPT)
    run = (
        ["script.py"] if how == "as a script" else ["-c", "import script as s; assert s.flow.run().result == s.flow()"]
    )
    done = subprocess.run(
        [sys.executable, *run],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def half_known(color: Color, config: Config, frame: Frame | None = None) -> Frame | None:
    return frame


def test_one_annotation_that_is_not_known_does_not_hide_the_others() -> None:
    shim: dict[str, Any] = {"__name__": "penstock_shim"}
    exec(compile(pkgutil.get_data("penstock.formats", "shim_main.txt") or b"", "shim_main.txt", "exec"), shim)
    assert hints_of(half_known) == shim["hints_of"](half_known) == {"color": Color, "config": Config}
    plain = {"color": "red", "config": {"rate": 1.0, "color": "blue", "since": "2024-05-17"}, "frame": 7}
    build = builder(half_known)
    assert build is not None
    made = build(plain)
    given = {name: ("json", json.dumps(value)) for name, value in plain.items()}
    assert made == shim["fitted"](half_known, given)
    assert made["color"] is Color.RED and made["config"].color is Color.BLUE and made["frame"] == 7
