"""The order in which locks are handed out is a policy, chosen by name."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from penstock.errors import StoreError
from penstock.plugins import LockRequest
from penstock.settings import read
from penstock.store.lock_policies import by_priority, find_policy, first_come
from penstock.store.sql import open_store


def backwards(request: LockRequest, number: int) -> int:
    return -number


def order(folder: Path, policy: str) -> list[str]:
    """The tasks in the order in which they get the lock."""
    with open_store(str(folder), lock_policy=policy) as store:
        store.locks.lock("a", [LockRequest(5, "holder", {"m": 1})])
        store.locks.lock("a", [LockRequest(5, "low", {"m": 1}), LockRequest(5, "high", {"m": 1}, priority=9)])
        store.locks.lock("a", [LockRequest(1, "old run", {"m": 1})])
        seen = []
        for _ in range(4):
            (holder,) = store.locks.lock_holders(["m"])["m"]
            seen.append(holder.task)
            store.locks.lock("a", [], [(holder.run, holder.task)])
    return seen


def test_the_default_is_priority_then_the_age_of_the_run(tmp_path: Path) -> None:
    assert order(tmp_path, "priority") == ["holder", "high", "old run", "low"]
    assert read({}).lock_policy == "priority" and find_policy("priority") is by_priority


def test_first_come_looks_at_nothing_else(tmp_path: Path) -> None:
    assert order(tmp_path, "first-come") == ["holder", "low", "high", "old run"]
    assert read({"PENSTOCK_LOCK_POLICY": "first-come"}).lock_policy == "first-come"
    assert find_policy("first-come") is first_come


def test_one_of_another_package_is_found_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("backwards", f"{__name__}:backwards", "penstock.lock_policies")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point])
    assert order(tmp_path, "backwards") == ["holder", "old run", "high", "low"]


def test_a_name_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="known: first-come, priority.*priority") as error:
        open_store(str(tmp_path / "none"), lock_policy="prioritty")
    assert error.value.code == "P608" and not (tmp_path / "none").exists()
