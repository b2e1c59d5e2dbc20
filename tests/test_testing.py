"""penstock.testing, and the page that explains it."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.active_run import ActiveRun
from penstock.engine.engine import Engine
from penstock.graph.model import Script, Step, Suspend, Workflow
from penstock.testing import run_virtually

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "howto" / "test-a-workflow.md"
SLOW = Workflow(name="slow", steps=(Step(name="work", action=Script(source="true")),))
ASKS = Workflow(name="asks", steps=(Step(name="ok", action=Suspend()),))


async def broken(engine: Engine, live: ActiveRun) -> None:
    await asyncio.sleep(10)
    raise LookupError("a mistake in the test")


def test_what_meanwhile_raises_is_raised() -> None:
    with pytest.raises(LookupError, match="a mistake in the test"):
        run_virtually(SLOW, {}, lambda order: 60, meanwhile=broken)


def test_it_is_raised_also_if_the_run_would_wait_forever() -> None:
    with pytest.raises(LookupError, match="a mistake in the test"):
        run_virtually(ASKS, {}, meanwhile=broken)


def test_what_still_goes_on_beside_a_run_that_is_over_is_cancelled() -> None:
    ended: list[str] = []

    async def patient(engine: Engine, live: ActiveRun) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append("cancelled")

    report = run_virtually(SLOW, {}, lambda order: 60, meanwhile=patient)
    assert report.state == "succeeded" and report.seconds == 60 and ended == ["cancelled"]


def test_the_tests_on_the_page_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "finetune")
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    sys.modules.pop("flow", None)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    tests = {name: found for name, found in names.items() if name.startswith("test_")}
    assert len(tests) > 5
    for name, test in tests.items():
        test(tmp_path / name) if "tmp_path" in test.__code__.co_varnames else test()
    sys.modules.pop("flow", None)
