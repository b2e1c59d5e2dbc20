"""For each task that may start: reuse a result, share one that is being computed, or run. Called by loop.

What another engine computes for us is told through the store; an engine that has died is buried, and what it held is free.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from penstock.engine.attempts import Attempts
from penstock.engine.live import Live, extra
from penstock.engine.share import Who, origin
from penstock.engine.steps import Task
from penstock.graph.stored import stored_in
from penstock.store import liveness
from penstock.store.base import Disconnected


class Sharing(Attempts):
    def _decide(self, wanted: list[tuple[Live, Task, str]]) -> None:
        if len(wanted) == 1 and self._decide_one(*wanted[0]):
            return
        asks: dict[tuple[bool, bool], list[tuple[str, int, str]]] = {}
        asking: dict[str, tuple[Live, Task, str]] = {}
        twins: list[Who] = []
        plain = []
        for live, task, lane in wanted:
            key = task.key
            if not key or extra(task).order:
                plain.append((live, task, lane))
            elif key in self.landed and not live.fresh:
                outputs, source = self.landed[key]
                self._reuse(live, task, outputs, source)
            elif key in asking:
                twins.append((live, task))
            elif self.shares.join(key, (live, task)) is not None:
                self._wait(live, task, self._shared_with(key))
            else:
                asking[key] = (live, task, lane)
                asks.setdefault((live.fresh, not self.at_once(lane)), []).append((key, live.number, task.path))
        for (fresh, hold), some in asks.items():
            found = self._claim(some, fresh, hold)
            stale = []
            for key, number, path in some:
                live, task, lane = asking[key]
                here = found[key]
                if here.result is not None:
                    if self._usable(task, here.result):
                        self._reuse(live, task, here.result.outputs, self._origin(here.result.run, here.result.task))
                    else:
                        stale.append((key, number, path))
                elif here.holder is not None:
                    self._wait_distant(live, task, here.holder)
                else:
                    plain.append((live, task, lane))
            if stale:
                for key, other in self._claim(stale, True, hold).items():
                    live, task, lane = asking[key]
                    if other.holder is not None:
                        self._wait_distant(live, task, other.holder)
                    else:
                        plain.append((live, task, lane))
        for live, task, lane in plain:
            self._launch(live, task, lane)
        for who in twins:
            self._twin(*who)

    def _decide_one(self, live: Live, task: Task, lane: str) -> bool:
        """The way of chains, where one task is ready at a time. False: it is not as simple as that."""
        key = task.key
        if (
            not key
            or extra(task).order
            or key in self.landed
            or key in self.shares.flights
            or task.step.cache.ttl is not None
        ):
            return False
        asks = [(key, live.number, task.path)]
        found = self._claim(asks, live.fresh, not self.at_once(lane))[key]
        if found.result is not None and not self._whole(found.result.outputs):
            found = self._claim(asks, True, not self.at_once(lane))[key]
        if found.holder is not None:
            self._wait_distant(live, task, found.holder)
        elif found.result is not None:
            self._reuse(live, task, found.result.outputs, self._origin(found.result.run, found.result.task))
        else:
            self._launch(live, task, lane)
        return True

    def _usable(self, task: Task, result: Any) -> bool:
        """Is it young enough, and all there?"""
        ttl = task.step.cache.ttl
        return (ttl is None or 0 <= self.now() - result.at <= ttl) and self._whole(result.outputs)

    def _whole(self, outputs: Mapping[str, Any]) -> bool:
        """Is everything there that a result names? Blobs may have been removed by hand, or lie on another machine."""
        return all(self.blobs.has(stored.digest) for value in outputs.values() for stored in stored_in(value))

    def _claim(self, asks: list[tuple[str, int, str]], fresh: bool, hold: bool = True) -> dict[str, Any]:
        while True:
            try:
                return self.store.claim(asks, self.me.id, fresh, hold)
            except Disconnected:
                self._reconnect()

    def _twin(self, live: Live, task: Task) -> None:
        """The same key as another task of the same handful."""
        if self.shares.join(task.key, (live, task)) is not None:
            self._wait(live, task, self._shared_with(task.key))
        elif task.key in self.shares.distant:
            self.shares.distant[task.key].append((live, task))
            self._wait(live, task, {"why": "shared"})
        else:
            live.machine.again(task)

    def _shared_with(self, key: str) -> dict[str, Any]:
        owner = self.shares.flights[key].owner
        return {"why": "shared", **origin(owner[0].run.id, owner[1].path)}

    def _wait(self, live: Live, task: Task, reason: dict[str, Any]) -> None:
        live.machine.free(task)  # somebody else does its work, on machines of their own
        text = json.dumps({"reason": reason})
        live.log("task.waiting", task.path, text)
        live.row(task, "waiting", text)

    def _wait_distant(self, live: Live, task: Task, holder: Any) -> None:
        self.shares.distant.setdefault(task.key, []).append((live, task))
        self._wait(live, task, {"why": "shared", "engine": holder.engine, **self._origin(holder.run, holder.task)})

    def _reuse(self, live: Live, task: Task, outputs: dict[str, Any], source: dict[str, Any]) -> None:
        live.succeeded(task, outputs, "", None, source)
        live.settle()

    def _look_at_shares(self) -> None:
        """Has anything come of what other engines compute for us?"""
        dead = None
        forgotten = set(self.shares.distant)
        for key, _, _, failure, result, holder in self.store.waiting(self.me.id):
            forgotten.discard(key)
            waiting = self.shares.distant.get(key)
            if waiting is None:
                continue
            if result is not None or failure is not None:
                del self.shares.distant[key]
                for live, task in waiting:
                    self.batch.served.append((key, live.number, task.path))
                    if result is not None:
                        self._reuse(live, task, result.outputs, self._origin(result.run, result.task))
                    else:
                        data = {name: value for name, value in failure.items() if name != "kind"}
                        live.not_succeeded(task, failure["kind"], data)
                        live.settle()
                continue
            if holder is not None:
                dead = self._dead_engines() if dead is None else dead
                if holder.engine not in dead:
                    continue
            # Nobody is at it any more: whoever asks first now gets it.
            del self.shares.distant[key]
            for live, task in waiting:
                self.batch.served.append((key, live.number, task.path))
                live.machine.again(task)
        for key in forgotten:  # somebody has held us for dead: ask again
            for live, task in self.shares.distant.pop(key):
                live.machine.again(task)
        if dead:
            self.bury(dead)

    def _dead_engines(self) -> set[str]:
        dead = set()
        for engine in self.store.engines():
            if engine.id == self.me.id:
                continue
            alive = liveness.alive(engine)
            if alive is False or (alive is None and self.watch.dead(engine.id, engine.beat, time.monotonic())):
                dead.add(engine.id)
        return dead

    def clean(self) -> None:
        """See to what engines left behind that are surely dead."""
        dead = {
            engine.id for engine in self.store.engines() if engine.id != self.me.id and liveness.alive(engine) is False
        }
        if dead:
            self.bury(dead)

    def bury(self, dead: set[str]) -> None:
        """Engines that are gone: end the processes they left behind, and free what they held."""
        from penstock.backends.container import end_orphan_containers
        from penstock.backends.orphans import end_orphans

        end_orphans(self.home, dead)
        end_orphan_containers(self.home, dead)
        for id in dead:
            self.store.forget(id)
