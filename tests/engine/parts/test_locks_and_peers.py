"""LockManager, Peers and TurnTimers, each alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.backends.base import Inbox
from penstock.engine.active_run import ActiveRun
from penstock.engine.journal import Journal
from penstock.engine.locks import LockManager
from penstock.engine.peers import Peers
from penstock.engine.run_names import RunNames
from penstock.engine.timers import TurnTimers
from penstock.graph.model import Lock, Outcome
from penstock.store import liveness
from penstock.store.sql import Store, open_store
from tests.engine.parts.build import Turns, active_run, flow, step


class Gate:
    """Runs whose step needs the same lock, and a LockManager."""

    def __init__(self, store: Store, runs: int = 2) -> None:
        self.journal = Journal(store.journal, "me")
        self.timers = Turns(Inbox(asyncio.get_running_loop()))
        self.active: dict[int, ActiveRun] = {}
        names = RunNames(store.runs, self.journal, self.active)
        self.locks = LockManager(store.locks, self.journal, names, self.timers, self.active, lambda name: 0)
        for _ in range(runs):
            number = store.runs.create("w", "d", "{}", {}, {}, "", 1.0).number
            run = self.active[number] = active_run(
                flow(step("a", locks=(Lock(name="db"),))), self.journal.batch, number=number
            )
            self.locks.adopt(run)

    def admitted(self) -> list[ActiveRun]:
        self.timers.turn()
        wanted = [(run, task, "x") for run in self.active.values() for task in run.state.ready.take("x", 9)]
        return [run for run, _, _ in self.locks.admit(wanted)]


def with_store(tmp_path: Path, scene: Callable[[Store], None]) -> None:
    async def main() -> None:
        with open_store(str(tmp_path)) as store:
            scene(store)

    asyncio.run(main())


def test_one_holds_the_lock_and_the_other_waits_until_it_has_ended(tmp_path: Path) -> None:
    def scene(store: Store) -> None:
        gate = Gate(store)
        one, two = gate.active.values()
        assert gate.admitted() == [], "asked for"
        assert gate.admitted() == [one] and gate.locks.waits
        (task,) = one.state.live.values()
        one.state.ended(task, Outcome.SUCCEEDED, {})
        gate.locks.release_ended()
        gate.timers.turn()
        assert gate.admitted() == [two] and not gate.locks.waits

    with_store(tmp_path, scene)


def test_the_reason_names_the_holder(tmp_path: Path) -> None:
    def scene(store: Store) -> None:
        gate = Gate(store)
        one, two = gate.active.values()
        gate.admitted()
        gate.admitted()
        waiting = [event for event in gate.journal.batch.events if event[3] == "task.waiting"]
        assert [event[0] for event in waiting] == [two.number] and f'"{one.record.id}"' in waiting[0][5]

    with_store(tmp_path, scene)


def test_a_run_that_is_gone_lets_go_of_its_locks(tmp_path: Path) -> None:
    def scene(store: Store) -> None:
        gate = Gate(store)
        one, two = gate.active.values()
        gate.admitted()
        gate.admitted()
        del gate.active[one.number]
        gate.locks.drop(one)
        gate.locks.release_ended()
        gate.timers.turn()
        assert gate.admitted() == [two] and not gate.locks.concerns(one)

    with_store(tmp_path, scene)


def peers_of(store: Store, place: Path, id: str, timers: Any) -> Peers:
    return Peers(
        store.peers,
        Journal(store.journal, id),
        timers,
        asyncio.get_running_loop(),
        place,
        liveness.identity(id),
        lambda: 0.0,
    )


def test_an_engine_that_was_taken_for_dead_registers_again(tmp_path: Path) -> None:
    def scene(store: Store) -> None:
        peers = peers_of(store, tmp_path, "me", Turns(Inbox(asyncio.get_running_loop())))
        forgotten: list[bool] = []
        peers.start(lambda: False, lambda: None, lambda: forgotten.append(True))
        peers.beat()
        assert not forgotten
        store.peers.forget("me")
        peers.beat()
        assert forgotten == [True] and [engine.id for engine in store.peers.engines()] == ["me"]
        peers.stop()

    with_store(tmp_path, scene)


def test_dead_engines_are_found_and_reaped(tmp_path: Path) -> None:
    def scene(store: Store) -> None:
        peers = peers_of(store, tmp_path, "me", Turns(Inbox(asyncio.get_running_loop())))
        store.peers.register(liveness.identity("gone")._replace(pid=2**22 + 1, born="long ago"), 0.0)
        assert peers.dead() == {"gone"}
        peers.reap_certain()
        assert [engine.id for engine in store.peers.engines()] == ["me"] and peers.dead() == set()
        peers.leave()
        assert store.peers.engines() == []

    with_store(tmp_path, scene)


def test_the_store_is_looked_at_when_another_process_wrote(tmp_path: Path) -> None:
    def scene(store: Store) -> None:
        timers = Turns(Inbox(asyncio.get_running_loop()))
        peers = peers_of(store, tmp_path, "me", timers)
        looks: list[object] = []
        peers.start(lambda: False, lambda: looks.append(peers.token), lambda: None)
        peers.poll()
        timers.turn()
        before = len(looks)
        peers.poll()
        timers.turn()
        assert len(looks) == before, "nothing is new"
        with open_store(str(tmp_path)) as other:
            other.runs.create("w", "d", "{}", {}, {}, "", 1.0)
        peers.poll()
        timers.turn()
        assert len(looks) == before + 1
        peers.stop()

    with_store(tmp_path, scene)


def test_timers_act_only_in_a_turn() -> None:
    async def main() -> None:
        inbox = Inbox(asyncio.get_running_loop())
        timers = TurnTimers(asyncio.get_running_loop(), inbox)
        done: list[str] = []
        timers.later(lambda: done.append("now"))
        timers.after(0.0, lambda: done.append("soon"))
        await asyncio.wait_for(inbox.wait(), 10)
        while len(done) < 2:
            await asyncio.sleep(0)
            assert not done or done == ["now"]
            for call in timers.take():
                call()
        assert done == ["now", "soon"] and not timers

    asyncio.run(main())
