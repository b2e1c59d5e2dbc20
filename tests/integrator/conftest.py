"""A store for tests of what follows from runs: of each kind for the acceptance tests and what else depends on it, SQLite for the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.settings import Settings, read
from penstock.store.sql import Store
from tests.integrator.office import Office
from tests.store.conftest import another, store

__all__ = ["another", "office", "settings", "store", "where"]
ON_BOTH = (
    "test_t",
    "test_items_are_expanded_once",
    "test_dead_ones",
    "test_a_run_tells_of_its_end",
    "test_a_receiver_that_fails",
)
"""What the names of tests of callbacks begin with that run on both databases; the other tests all do."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" in metafunc.fixturenames:
        callbacks = "test_callback" in metafunc.module.__name__
        both = not callbacks or metafunc.function.__name__.startswith(ON_BOTH)
        metafunc.parametrize("database", ["sqlite", "postgresql"] if both else ["sqlite"])


@pytest.fixture
def where(request: pytest.FixtureRequest, tmp_path: Path, database: str) -> str:
    return str(tmp_path / ".penstock") if database == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def settings(where: str, tmp_path: Path) -> Settings:
    return read({"PENSTOCK_CALLBACK_HOSTS": "127.0.0.1"}, home=tmp_path / ".penstock", store=where, jobs=1)


@pytest.fixture
def office(settings: Settings, another: Callable[..., Store]) -> Office:
    return Office(settings, another())
