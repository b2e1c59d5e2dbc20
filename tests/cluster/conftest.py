"""Fixtures for tests against real controllers: `testbed("kueue", "kwok")` gives a running instance with these components.

Instances are kept for the next test that asks for the same ones; not more than a few at a time, since each is a Kubernetes of its own.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from testbed import binaries
from testbed.components import programs
from testbed.errors import TestbedError
from testbed.instance import Testbed

KEPT = 2


class Beds:
    def __init__(self) -> None:
        self.running: dict[str, Testbed] = {}
        self.kept_logs: list[str] = []

    def get(self, *names: str, nodes: int = 1, **options: Any) -> Testbed:
        what = ", ".join(names) or "control plane"
        if absent := binaries.missing(programs(names)):
            pytest.skip(f"{what}: not built: {', '.join(absent)}")
        key = json.dumps([sorted(names), nodes, options], sort_keys=True)
        bed = self.running.pop(key, None)
        if bed is None:
            while len(self.running) >= KEPT:
                self.stop(next(iter(self.running)))
            try:
                bed = Testbed.start(*names, nodes=nodes, **options)
            except TestbedError as error:
                if "node" in names and "the real node needs" in str(error):
                    pytest.skip(f"node: {error}")
                raise
        self.running[key] = bed  # the one used last is ended last
        return bed

    def stop(self, key: str, keep: bool = False) -> None:
        bed = self.running.pop(key)
        bed.stop(keep)
        if keep:
            self.kept_logs.append(str(bed.dir / "log"))


_beds = Beds()


@pytest.fixture(scope="session")
def testbed(request: pytest.FixtureRequest) -> Iterator[Callable[..., Testbed]]:
    yield _beds.get
    for key in list(_beds.running):
        _beds.stop(key, keep=bool(request.session.testsfailed))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > float(os.environ.get("PENSTOCK_CLUSTER_DEADLINE", "inf")):
        pytest.skip("the time for the tests is spent")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if told := getattr(session.config, "workeroutput", None):  # in a process of several
        told["kept_logs"] = _beds.kept_logs


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _beds.kept_logs += getattr(node, "workeroutput", {}).get("kept_logs", [])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for log in _beds.kept_logs:
        terminalreporter.write_line(f"logs of a testbed that was up when a test failed: {log}")
