"""A store of each kind, as tests/store has it; and what records and delivers callbacks in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.settings import Settings, read
from penstock.store.sql import Store
from tests.integrator.office import Office
from tests.store.conftest import another, store, where

__all__ = ["another", "office", "settings", "store", "where"]


@pytest.fixture
def settings(where: str, tmp_path: Path) -> Settings:
    return read({"PENSTOCK_CALLBACK_HOSTS": "127.0.0.1"}, home=tmp_path / ".penstock", store=where, jobs=1)


@pytest.fixture
def office(settings: Settings, another: Callable[..., Store]) -> Office:
    return Office(settings, another())
