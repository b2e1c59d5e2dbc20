"""A warm pod: it makes call after call of functions until there are none for a while. Started by in_pod; the other end is warm.

The calls are made by the backend `workers`, with one process, as on the engine's own machine: a function that ends its process, or is stopped, takes
only that process with it, and the pod goes on. Here is only what goes between it and the mailbox.

Before a call begins, its key is in the note `begun`, and `closed` has been looked for: an engine that writes `closed` and then reads `begun` knows
of every call whether it may have begun. Several short calls are noted at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock import rights
from penstock.artifacts import values
from penstock.artifacts.blobs import Blobs
from penstock.backends.base import AttemptEnded, AttemptSpec, AttemptStarted, BackendContext, Inbox
from penstock.backends.kubernetes.mailbox import BEGUN, CLOSED, Mailbox
from penstock.backends.local.workers import WorkersBackend
from penstock.expressions.types import parse
from penstock.graph import model
from penstock.graph.model import Outcome

BACK: Final = "back"
"""What became of a call that was taken back before it began."""
LONGEST: Final = 256 * 1024
"""Bytes of a log that travels in a letter. A longer one is a blob."""
GRACE: Final = 20.0
"""Seconds that a function has when the pod is asked to end."""
AWAY: Final = 600.0
"""Seconds for which the store may be away."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds. Requests to a store behind a URL cost time and money."""

    first: float
    """Between two looks for letters while they come …"""
    longest: float
    """… and when none has come for long."""
    noted: float
    """For how long the calls take that are noted at once."""
    spaced: float
    """Between two letters."""


HERE: Final = Pace(0.005, 0.1, 0.02, 0.01)
FAR: Final = Pace(0.1, 2.0, 0.5, 0.2)


@dataclass(slots=True)
class _Call:
    spec: AttemptSpec
    alone: bool
    """It was lost before: should it end the whole pod again, no other call is to be taken for the culprit."""


class WarmServer:
    def __init__(self, blobs: Blobs, mail: Mailbox, idle: float, home: Path) -> None:
        loop = asyncio.get_running_loop()
        rights.make_folder(home)
        self._blobs = blobs
        self._mail = mail
        self._idle = idle
        self._home = home
        self._pace = FAR if mail.is_remote else HERE
        self._inbox = Inbox(loop)
        self._backend = WorkersBackend(
            BackendContext(
                home=home, blobs=blobs, inbox=self._inbox, jobs=1, engine="pod", now=time.time, environ=dict(os.environ)
            )
        )
        self._folder = os.getcwd()
        self._steps: dict[str, model.Step] = {}
        self._seconds: dict[int, float] = {}
        """Step, by its id -> how long a call took lately."""
        self._waiting: deque[_Call] = deque()
        self._noted: deque[_Call] = deque()
        self._running: dict[str, _Call] = {}
        self._begun: dict[str, None] = {}
        self._noting: list[_Call] = []
        self._ends: list[dict[str, Any]] = []
        self._began: list[str] = []
        self._more, self._told = asyncio.Event(), asyncio.Event()
        self._letters = 0
        self._last = loop.time()
        self._ending = False
        self._closed = False

    async def serve(self) -> int:
        """Its exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._terminated)
        await self._post({})  # it is up
        parts = [loop.create_task(part()) for part in (self._read, self._feed, self._hear, self._write)]
        try:
            while not self._is_over():
                await asyncio.wait(parts, timeout=0.1, return_when=asyncio.FIRST_EXCEPTION)
                for part in parts:
                    if part.done():
                        part.result()
        finally:
            for part in parts:
                part.cancel()
            await self._backend.close()
            loop.remove_signal_handler(signal.SIGTERM)
        return 143 if self._ending else 0

    def _is_over(self) -> bool:
        if self._running or self._noting or self._noted or self._waiting or self._ends:
            return False
        return self._ending or self._closed or asyncio.get_running_loop().time() - self._last > self._idle

    def _terminated(self) -> None:
        """The pod is taken away: what is running is lost, whatever it says now."""
        self._ending = True
        self._waiting.clear()
        self._noted.clear()
        for id in self._running:
            self._backend.stop(id, GRACE)

    # -- letters --------------------------------------------------------------------------------------------------------

    async def _persist(self, call: Callable[..., Any], *args: Any) -> Any:
        """Tries for a while, if the store does not answer."""
        deadline, pause = time.monotonic() + AWAY, 0.5
        while True:
            try:
                return await asyncio.to_thread(call, *args)
            except Exception as error:  # each of fsspec's drivers has errors of its own
                gone = isinstance(error, FileNotFoundError) and not self._mail.is_remote
                if gone or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, 10.0)

    async def _read(self) -> None:
        number, pause = 0, self._pace.first
        while True:
            text = await self._persist(self._mail.take, "in", number)
            if text is None:
                await asyncio.sleep(pause)
                pause = min(self._pace.longest, pause * 1.2)
                continue
            number, pause, self._last = number + 1, self._pace.first, asyncio.get_running_loop().time()
            letter = values.loads(text)
            if not self._ending:
                self._waiting.extend(self._call(one) for one in letter.get("calls", ()))
            for key, grace in letter.get("stops", ()):
                self._stop(key, grace)
            self._more.set()

    def _call(self, given: dict[str, Any]) -> _Call:
        step = self._step(given)
        spec = AttemptSpec(
            id=given["key"], run="", task="", attempt=1, step=step, inputs=given["inputs"],
            action=model.Function(module=given["module"], name=given["name"], code=given["code"], env=given["env"]),
            bundle=given["bundle"], working_directory=self._folder,
        )  # fmt: skip
        return _Call(spec, given["alone"])

    def _step(self, given: dict[str, Any]) -> model.Step:
        """The same for calls of the same function: the backend knows by it how long they take."""
        parts = [given[name] for name in ("bundle", "module", "name", "code", "texts", "outputs")]
        text = values.dumps(parts)
        if text not in self._steps:
            inputs = tuple(model.Input(name=name, value=None, type=parse("str")) for name in given["texts"])
            outputs = tuple(model.Output(name=name, type=parse(type_)) for name, type_ in given["outputs"])
            action = model.Function(module=given["module"], name=given["name"], code=given["code"])
            self._steps[text] = model.Step(name=given["name"], action=action, inputs=inputs, outputs=outputs)
        return self._steps[text]

    def _stop(self, key: str, grace: float | None) -> None:
        """None: only if it has not begun."""
        if key in self._running:
            if grace is not None:
                self._backend.stop(key, grace)
            return
        for calls in (self._waiting, self._noting, self._noted):
            for call in list(calls):
                if call.spec.id == key:
                    calls.remove(call)
                    self._tell({"key": key, "outcome": BACK})

    async def _post(self, letter: dict[str, Any]) -> None:
        await self._persist(self._mail.post, "out", self._letters, values.dumps(letter))
        self._letters += 1

    async def _write(self) -> None:
        while True:
            await self._told.wait()
            self._told.clear()
            ends = list(self._ends)
            over = {one["key"] for one in ends}
            began = [key for key in self._began if key not in over]
            self._began = []
            await self._post({"ends": ends, "began": began})
            del self._ends[: len(ends)]  # only now: until then the pod has something to do
            for key in over:
                self._begun.pop(key, None)
            await asyncio.sleep(self._pace.spaced)

    def _tell(self, end: dict[str, Any]) -> None:
        self._ends.append(end)
        self._told.set()

    # -- calls ----------------------------------------------------------------------------------------------------------

    async def _feed(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            self._start()
            self._noting = self._chunk()
            if not self._noting:
                continue
            self._begun |= dict.fromkeys(call.spec.id for call in self._noting)
            self._closed = self._closed or await self._persist(self._note, values.dumps(list(self._begun)))
            if self._closed:
                self._waiting.clear()
            elif not self._ending:
                self._noted.extend(self._noting)
            self._noting = []
            self._more.set()

    def _note(self, text: str) -> bool:
        """Is the mailbox closed?"""
        self._mail.note(BEGUN, text)
        return self._mail.noted(CLOSED) is not None

    def _chunk(self) -> list[_Call]:
        """What is to be noted next: calls that take about as long as a note is worth."""
        if self._noted or not self._waiting or self._closed or self._ending:
            return []
        found: list[_Call] = []
        left = self._pace.noted - sum(self._lasts(one) for one in self._running.values())
        while self._waiting and (left > 0 or not self._running):
            call = self._waiting[0]
            if (call.alone and (found or self._running)) or any(one.alone for one in self._running.values()):
                break
            cost = self._lasts(call)
            if found and cost > left:
                break
            found.append(self._waiting.popleft())
            left -= cost
            if call.alone or left <= 0:
                break
        return found

    def _lasts(self, call: _Call) -> float:
        return self._seconds.get(id(call.spec.step), 1.0)

    def _start(self) -> None:
        while self._noted and self._backend.room_for(self._noted[0].spec.step) > 0:
            call = self._noted.popleft()
            self._running[call.spec.id] = call
            self._backend.start([call.spec])

    async def _hear(self) -> None:
        while True:
            await self._inbox.wait()
            for report in self._inbox.take():
                if isinstance(report, AttemptStarted):
                    self._began.append(report.id)
                    self._told.set()
                else:
                    self._ended(report)
            self._start()
            self._more.set()

    def _ended(self, report: AttemptEnded) -> None:
        call = self._running.pop(report.id)
        self._last = asyncio.get_running_loop().time()
        if self._ending and report.outcome is not Outcome.SUCCEEDED:
            return  # lost: its key is in the note
        before = self._seconds.get(id(call.spec.step), report.seconds)
        self._seconds[id(call.spec.step)] = 0.7 * before + 0.3 * report.seconds
        end: dict[str, Any] = {"key": report.id, "outcome": report.outcome.value, "outputs": report.outputs}
        for name in ("exit_code", "exception", "message", "traceback", "invalid", "lost"):
            if given := getattr(report, name):
                end[name] = given
        end["seconds"] = report.seconds
        if report.log:
            end["log"] = self._log(report)
        self._tell(end)

    def _log(self, report: AttemptEnded) -> Any:
        found = b""
        for name, start, stop in report.log:
            with suppress(OSError), open(self._home / name, "rb") as file:
                file.seek(start)
                found += file.read() if stop is None else file.read(stop - start)
        if len(found) > LONGEST:
            return {"blob": self._blobs.put(found)}
        return found.decode("utf-8", "surrogateescape")


async def serve(blobs: Blobs, given: dict[str, Any], home: Path) -> int:
    mail = Mailbox(blobs.root, given["owner"], given["name"])
    return await WarmServer(blobs, mail, given["idle"], home).serve()
