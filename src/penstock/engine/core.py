"""What all parts of an engine share: its state, its backends, and how its facts get into the store. Called by attempts, sharing
and loop, which build on it.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.artifacts.blobs import Blobs
from penstock.artifacts.values import load
from penstock.backends.base import Context, Inbox, Order, make_backend
from penstock.engine.live import Live, extra
from penstock.engine.share import Shares, Who, origin
from penstock.engine.steps import Task
from penstock.graph.model import Action, Function, Pod, Step
from penstock.graph.stored import Stored
from penstock.store import liveness
from penstock.store.base import Batch, Disconnected
from penstock.store.sql import Store

PATIENCE = 600.0
"""Seconds to wait for a database that has gone away."""
SUSPEND = "suspend"
LANES: Mapping[str, str] = {
    "function": "workers", "container": "container", "pod": "container", "script": "process", "resource": "resource", "http": "http", "suspend": SUSPEND,
}  # fmt: skip
"""Which backend runs which kind of step, unless the user says otherwise."""

HOST = ("process", "workers", "inline")
"""Backends that run a step on this machine as it is, whatever image it names."""


def names_image(action: Action) -> bool:
    if isinstance(action, Pod):
        return any(part.image is not None for part in action.parts)
    return getattr(action, "image", None) is not None


class Core:
    def __init__(
        self,
        store: Store,
        home: Path,
        blobs: Blobs,
        *,
        jobs: int,
        id: str = "",
        on: Mapping[str, str] | None = None,
        functions: Mapping[tuple[str, str, str], Callable[..., Any]] | None = None,
        environ: Mapping[str, str] | None = None,
        backends: Mapping[str, Callable[[Context], Any]] | None = None,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.store = store
        self.home = home
        self.blobs = blobs
        self.on = {**LANES, **(on or {})}
        self.now = now
        self.chance = chance
        self.me = liveness.identity(id)
        self.loop = asyncio.get_running_loop()
        self.inbox = Inbox(self.loop)
        self.context = Context(
            home=home, blobs=blobs, inbox=self.inbox, jobs=jobs, engine=self.me.id, now=now, environ=os.environ if environ is None else environ, functions=dict(functions or {}),
        )  # fmt: skip
        self.factories = dict(backends or {})
        """Backends that were handed in, by name: what makes them of a Context."""
        self.backends: dict[str, Any] = {}
        self._at_once: dict[str, bool] = {}
        self.batch = Batch()
        self.lives: dict[int, Live] = {}
        self.shares = Shares()
        self.landed: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        """Results of this very transaction, which the store cannot tell yet."""
        self.orders: dict[str, Who] = {}
        self.ready_orders: dict[str, list[Order]] = {}
        self.due: list[Callable[[], None]] = []
        self.stopping = False
        self.closed = False
        self.failure: BaseException | None = None
        self.watch = liveness.Watch()
        self.asked = 0
        self.keep = False
        self._ids: dict[int, str] = {}
        self.token: object = None
        store.be_patient(PATIENCE)
        store.register(self.me, now())

    def lane_of(self, step: Step) -> str:
        action = step.action
        kind = action.kind
        if kind == "script" and action.image is not None:  # type: ignore[union-attr]
            kind = "container"
        elif isinstance(action, Pod):
            if self.on["pod"] != LANES["pod"]:
                return self.on["pod"]
            kind = "container" if names_image(action) else "script"
        elif isinstance(action, Function):
            if action.image is not None and self.on["container"] != "process":
                kind = "container"
            elif step.replicas > 1:
                return self.on["script"] if self.on["function"] == LANES["function"] else self.on["function"]
        return self.on.get(kind, kind)

    def variant_of(self, step: Step) -> str | None:
        """What an image gives and what this machine gives are two things; what is made up is nothing to be kept."""
        lane = self.lane_of(step)
        if lane == "fake":
            return None
        return "on the host " if names_image(step.action) and lane in HOST else ""

    def fetch(self, stored: Stored) -> Any:
        return load(stored, self.blobs, self.home / "work")

    def backend(self, lane: str) -> Any:
        found = self.backends.get(lane)
        if found is None:
            make = self.factories.get(lane)
            found = make(self.context) if make is not None else make_backend(lane, self.context)
            self.backends[lane] = found
        return found

    def at_once(self, lane: str) -> bool:
        """Does this backend do its work while we wait?"""
        known = self._at_once.get(lane)
        if known is None:
            known = self._at_once[lane] = lane != SUSPEND and hasattr(self.backend(lane), "call")
        return known

    def later(self, call: Callable[[], None]) -> None:
        """Do this in the next turn."""
        self.due.append(call)
        self.inbox.wake()

    def _run_id(self, number: int) -> str:
        live = self.lives.get(number)
        if live is not None:
            return live.run.id
        while number not in self._ids:
            try:
                run = self.store.run_by_number(number)
            except Disconnected:
                self._reconnect()
                continue
            self._ids[number] = f"run {number}" if run is None else run.id
        return self._ids[number]

    def _origin(self, number: int, task: str) -> dict[str, Any]:
        return origin(self._run_id(number), task)

    def _stop_timer(self, task: Task) -> None:
        kept = extra(task)
        if kept.timer is not None:
            kept.timer.cancel()
            kept.timer = None

    def _begin(self) -> bool:
        try:
            self.store.begin()
        except Disconnected:
            self._reconnect()
        return True

    def _commit(self) -> None:
        for live in self.lives.values():
            live.flush()
        while True:
            try:
                self.store.flush(self.batch, self.me.id)
                self.store.commit()
                break
            except Disconnected:
                if self._survives():
                    break
        self.batch.clear()
        self.landed.clear()
        for number in [number for number, live in self.lives.items() if live.ended is not None]:
            self.store.release(number, self.me.id, self.lives.pop(number).state)

    def _survives(self) -> bool:
        """After the database went away in a commit: True if it had been done all the same."""
        while True:
            self._reconnect()
            last = max(self.batch.runs.items(), default=None)
            try:
                if last is None or not self.store.committed(last[0], last[1][0]):
                    return False
                self.store.commit()
                return True
            except Disconnected:
                continue

    def _reconnect(self) -> None:
        while True:
            self.store.reconnect(patience=PATIENCE)
            try:
                self.store.begin()
                return
            except Disconnected:
                continue

    def _dirty(self) -> bool:
        return any(live.dirty for live in self.lives.values())
