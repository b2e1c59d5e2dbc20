"""Fixtures for tests of every package."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.summary import pytest_terminal_summary  # noqa: F401
from tests.support.postgres import Server, binaries


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
