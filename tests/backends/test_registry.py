"""Backends by name, their declared abilities, and what is reaped of dead engines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.artifacts.blobs import Blobs
from penstock.backends.base import Abilities, AttemptSpec, Backend, BackendContext, Inbox
from penstock.backends.registry import OURS, find_backend, kinds_for, make_backend, prestarted, reap
from penstock.errors import PlanError


class Bare:
    """A backend of others, without abilities."""

    def __init__(self, context: BackendContext) -> None:
        self.context = context

    def room(self) -> int:
        return 1

    def start(self, specs: Sequence[AttemptSpec]) -> None: ...

    def stop(self, id: str, grace: float) -> None: ...

    async def close(self) -> None: ...


class Declared(Bare):
    abilities = Abilities()


def made(home: Path, name: str, **factories: type) -> Backend:
    async def main() -> Backend:
        context = BackendContext(
            home=home,
            blobs=Blobs(home / "blobs"),
            inbox=Inbox(asyncio.get_running_loop()),
            jobs=1,
            engine="engine-1",
            now=time.time,
            environ={},
        )
        backend = make_backend(name, context, factories)
        await backend.close()
        return backend

    return asyncio.run(main())


@pytest.mark.parametrize("name", OURS)
def test_each_of_ours_declares_its_abilities(name: str, tmp_path: Path) -> None:
    backend = made(tmp_path, name)
    assert (backend.abilities.call is not None) == (name == "inline")
    assert (backend.abilities.room_for is not None) == (name in ("workers", "process"))
    assert backend.abilities.reports_start == (name in ("process", "kubernetes", "resource"))
    assert (backend.abilities.recorded is not None) == (name == "kubernetes")


def test_one_that_is_handed_in_comes_before_those_installed(tmp_path: Path) -> None:
    assert isinstance(made(tmp_path, "process", process=Declared), Declared)


def test_one_without_abilities_is_refused_and_told_what_to_add(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="'lab' \\(Bare\\) declares no abilities") as error:
        made(tmp_path, "lab", lab=Bare)
    assert error.value.code == "P708" and "abilities = Abilities()" in str(error.value)


def test_a_name_that_is_not_known_is_refused_with_the_nearest() -> None:
    with pytest.raises(PlanError, match="container") as error:
        find_backend("contaner")
    assert error.value.code == "P703"


def test_reaping_engines_that_left_nothing_does_nothing(tmp_path: Path) -> None:
    reap(tmp_path, {"nobody"})
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_no_engine_claims_ends_with_the_block(tmp_path: Path) -> None:
    with prestarted(tmp_path, "engine-1"):
        assert (tmp_path / "logs" / "engine-1" / "worker-1.log").exists()
    assert not (tmp_path / "logs" / "engine-1").exists()


def test_a_backend_that_is_named_alone_is_for_the_kinds_that_it_can_run() -> None:
    assert set(kinds_for("kubernetes")) == {"function", "container", "pod", "script"}
    assert {"http", "resource", "function"} <= set(kinds_for("fake"))
    assert "http" in kinds_for("mine", brought=("mine",))
    with pytest.raises(PlanError) as error:
        kinds_for("kubernets")
    assert error.value.code == "P703" and "kubernetes" in str(error.value)
