"""Runs as the store has them: names, states, owners. And the store itself: whether there is one, what it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import NotFound
from penstock.graph.model import Nested, Script, Step, Workflow
from penstock.service import stores
from penstock.service.run_records import find, owned_problem, owner_alive, seconds_of, split_target, state_of
from penstock.service.workflows import step_at
from penstock.settings import read
from tests.cli.history import Hand

FLOW = Workflow(name="flow", steps=(Step(name="a", action=Script(source="true")),))


def test_a_run_is_found_by_name_or_counted_from_the_last(tmp_path: Path) -> None:
    for _ in range(2):
        Hand(tmp_path, FLOW).close()
    with stores.open_existing(read({}, home=tmp_path)) as store:
        assert [find(store, name).id for name in ("flow-1", "@", "@2")] == ["flow-1", "flow-2", "flow-1"]
        for name in ("@3", "@0", "@x", "flw-1"):
            with pytest.raises(NotFound):
                find(store, name)


def test_the_state_and_the_owner_of_a_run(tmp_path: Path) -> None:
    hand = Hand(tmp_path, FLOW)
    run = hand.write()
    assert state_of(hand.store, run) == "running" and owner_alive(hand.store, run) is True
    assert "flow-1 is being run by process" in owned_problem(hand.store, run).message
    hand.store.peers.forget(hand.me.id)
    assert state_of(hand.store, run) == "lost" and owner_alive(hand.store, run) is False
    hand.finish("failed", took=5.0)
    run = hand.write()
    assert state_of(hand.store, run) == "failed" and seconds_of(run) == pytest.approx(5.0)
    hand.store.close()


def test_a_target_is_a_run_and_a_path() -> None:
    assert split_target("@/train[3]") == ("@", "train[3]") and split_target("flow-1/") == ("flow-1", "")


def test_a_step_inside_a_called_workflow() -> None:
    inner = Workflow(name="inner", steps=(Step(name="x", action=Script(source="true")),))
    outer = Workflow(name="outer", steps=(Step(name="call", action=Nested(name="inner")),), definitions=(inner,))
    assert step_at(outer, "call/x") is inner.steps[0] and step_at(outer, "call/y") is None


def test_reading_makes_no_store(tmp_path: Path) -> None:
    settings = read({}, home=tmp_path / "home")
    assert not stores.exists(settings)
    with pytest.raises(NotFound, match="P505"):
        stores.open_existing(settings)
    assert not (tmp_path / "home").exists()
    stores.open_or_create(settings).close()
    assert stores.exists(settings)


def test_the_name_of_a_store_has_no_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert stores.name_of(read({})) == ".penstock"
    assert stores.name_of(read({"PENSTOCK_STORE": "postgresql://me:secret@host/db?x=1"})) == "host/db"
    assert stores.exists(read({"PENSTOCK_STORE": "postgresql://me:secret@host/db"}))
