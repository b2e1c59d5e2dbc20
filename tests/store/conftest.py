"""A store of each kind: every test that takes one runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.store.sql import Store, open_store


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / ".penstock")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def another(where: str) -> Iterator[Callable[..., Store]]:
    """Opens the same store once more, as another process would."""
    opened: list[Store] = []

    def call(busy: float = 60.0) -> Store:
        opened.append(open_store(where, busy))
        return opened[-1]

    yield call
    for store in opened:
        store.close()


@pytest.fixture
def store(another: Callable[..., Store]) -> Store:
    return another()
