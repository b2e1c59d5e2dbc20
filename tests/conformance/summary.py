"""One line for each family at the end of a session: how many of Kueue's cases hold. Called by tests/conftest.py, which pytest reads
even where other processes run the tests.
"""

from __future__ import annotations

from collections import Counter

import pytest

_PREFIX = "tests/conformance/test_kueue.py::test_case["


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, ()):
            node = getattr(report, "nodeid", "")
            if node.startswith(_PREFIX) and "/" in node.removeprefix(_PREFIX):
                family = node.removeprefix(_PREFIX).split("/", 1)[0]
                counts.setdefault(family, Counter())["failed" if outcome == "error" else outcome] += 1
    for family, found in sorted(counts.items()):
        words = ", ".join(f"{found[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))
        terminalreporter.write_line(f"kueue conformance: {family} {words}")
