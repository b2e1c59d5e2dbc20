"""Fixtures for tests of every package."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.conformance.summary import pytest_terminal_summary  # noqa: F401
from tests.graph.strategies import MORE
from tests.support.postgres import Server, binaries

# The same examples in every run: a change is judged by what it does, not by luck. PENSTOCK_FUZZ asks for others (`make fuzz` looks further still).
settings.register_profile("penstock", derandomize=not MORE, deadline=None, database=None)
settings.load_profile("penstock")

SLOW = Path(__file__).with_name("slow.txt")
"""What `make test-quick` leaves out, by measured time; scripts/slow-tests writes it. By name alone, so that a test may move."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    names = set(SLOW.read_text().split("\n"))
    for item in items:
        if getattr(item, "originalname", item.name) in names:
            item.add_marker(pytest.mark.slow)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests against a cluster run only where they are named (`make test-cluster`): they need a Kubernetes, which takes long to build."""
    cluster = Path(__file__).parent / "cluster"
    if collection_path != cluster:
        return None
    named = [Path(word.partition("::")[0]).resolve() for word in config.args]
    return None if any(path.is_relative_to(cluster) for path in named) else True


def _note_failed(name: str) -> None:
    """For scripts/again. The workers of xdist say nothing: the process above them hears of every test."""
    place = os.environ.get("PENSTOCK_FAILED")
    if place and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(place, "a") as file:
            file.write(f"{name}\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _note_failed(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _note_failed(f"collecting {report.nodeid.replace('::', ' ')}")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server of our own, one for each worker of pytest."""
    folder = binaries()
    if folder is None:
        pytest.skip("no PostgreSQL on this machine (sudo apt-get install postgresql, or make setup as root)")
    server = Server(folder)
    yield server
    server.close()


@pytest.fixture
def postgres_url(postgres: Server) -> str:
    """A new, empty database."""
    return postgres.database()
