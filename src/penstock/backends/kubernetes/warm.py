"""One warm pod, as its engine sees it: its Job, the letters to it and from it, and the calls that it has. Made by pool; the other end is serve.

A pod of another engine (`mine` is false) gets no calls. It is listened to by an engine that goes on with calls which it finds there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from penstock import rights
from penstock.artifacts import values
from penstock.backends.base import AttemptEnded, AttemptSpec, AttemptStarted
from penstock.backends.folders import log_name
from penstock.backends.kubernetes.attempt import LOOK, JobContext, asked
from penstock.backends.kubernetes.mailbox import BEGUN, CLOSED, Mailbox
from penstock.backends.kubernetes.outcome import Ended, Running, State, Waiting, judge, refused
from penstock.backends.kubernetes.serve import BACK
from penstock.backends.kubernetes.work import warm_call_of
from penstock.backends.local.function_table import KnownFunction
from penstock.errors import Problem, UserError
from penstock.graph.model import Outcome
from penstock.kubernetes.objects import uid_of

LATE: Final = 30.0
"""Seconds after which a pod that should have stopped a call is deleted."""
SILENT: Final = 120.0
"""Seconds for which a pod may run without a letter."""
AWAY: Final = 300.0
"""Seconds for which the store may be away."""
MOST: Final = 64
"""Calls in a letter."""
_SILENCE: Final = Problem(
    "P904",
    "a warm pod runs, and none of its messages arrives in the artifact store",
    "see that PENSTOCK_KUBERNETES_VOLUME names what PENSTOCK_HOME is on, or that the URL of PENSTOCK_ARTIFACTS is the same store in the pods",
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EnginePace:
    """Seconds."""

    first: float
    """Between two looks for letters while they come …"""
    longest: float
    """… while none comes, and there are calls …"""
    idle: float
    """… and while there are none."""
    ahead: float
    """The calls that a pod has take about so long: at least two of them, for the one that it makes and the next one."""


HERE: Final = EnginePace(0.02, 0.2, 0.5, 0.5)
FAR: Final = EnginePace(0.2, 2.0, 5.0, 3.0)


@dataclass(slots=True, eq=False)
class WarmCall:
    """An attempt that a warm pod makes."""

    spec: AttemptSpec
    key: str
    known: KnownFunction
    wake: asyncio.Event
    """Set when it has ended."""
    ended: AttemptEnded | None = None
    pod: WarmPod | None = None
    cost: float = 0.0
    began: float | None = None
    grace: float | None = None
    """Seconds that it was given when it was stopped."""
    recalled: bool = False

    @property
    def stopped(self) -> bool:
        return self.grace is not None

    def end(self, report: AttemptEnded) -> None:
        self.ended = report
        self.wake.set()

    def cancel(self) -> None:
        self.end(AttemptEnded(id=self.spec.id, outcome=Outcome.CANCELLED, message="stopped before it began"))


class WarmPodOwner(Protocol):
    """What a pod tells."""

    def ended(self, pod: WarmPod, call: WarmCall, end: Mapping[str, Any], log: int) -> None: ...

    def again(self, calls: list[WarmCall]) -> None:
        """They have not begun, and the pod will not begin them."""

    def changed(self) -> None:
        """The pod has less to do, or is up."""

    def waits(self, pod: WarmPod, why: str) -> None: ...

    def over(self, pod: WarmPod, how: Ended) -> None: ...


@dataclass(slots=True)
class _Shelf:
    """Letters that hold what is not recorded yet: number -> keys."""

    letters: dict[int, set[str]] = field(default_factory=dict)
    by_key: dict[str, int] = field(default_factory=dict)

    def add(self, number: int, keys: set[str]) -> None:
        self.letters[number] = keys
        self.by_key |= dict.fromkeys(keys, number)

    def remove(self, key: str) -> int | None:
        """The number of the letter that is of no more use."""
        number = self.by_key.pop(key, None)
        if number is None:
            return None
        self.letters[number].discard(key)
        return None if self.letters[number] else number


class WarmPod:
    def __init__(
        self,
        around: JobContext,
        keeper: WarmPodOwner,
        name: str,
        job: Callable[[], dict[str, Any]] | None,
        uid: str = "",
        engine: str = "",
    ) -> None:
        """`job`: what is to be made; it blocks. None: it is another engine's, with this uid."""
        self.name = name
        self.engine = engine
        self.mine = job is not None
        self.changed = asyncio.Event()
        self.up = not self.mine
        self.gone = self.settled = False
        """Does nothing come from it any more? And is everybody told?"""
        self.begun: set[str] = set()
        """What it may have begun and has not told the end of, when it is gone."""
        self.given: dict[str, WarmCall] = {}
        self.load = 0.0
        self.since = 0.0
        """Loop time of the last letter with calls, or with ends."""
        self.results: dict[str, Mapping[str, Any]] = {}
        """Ends of calls that nobody has asked for yet, in a pod of another engine."""
        self.runs: set[str] = set()
        """Runs whose calls such a pod had."""
        self.unknown: set[str] = set()
        """All calls of such a pod that nobody has recorded."""
        self._around = around
        self._keeper = keeper
        self._job = job
        self._uid = uid
        self._mail = Mailbox(around.context.blobs.root, around.owner, name)
        self.pace = FAR if self._mail.is_remote else HERE
        self._unsent: list[WarmCall] = []
        self._stops: list[tuple[str, float | None]] = []
        self._late: float | None = None
        """When it is deleted, unless the calls that it was told to stop have ended."""
        self._kill: float | None = None
        self._letters = self._heard = 0
        self._in, self._out = _Shelf(), _Shelf()
        self._drops: list[tuple[str, int]] = []
        self._patience: tuple[str, float] | None = None
        self._looked = self._runs = 0.0
        self._removed = False

    # -- what the pool calls ------------------------------------------------------------------------------------------

    def give(self, call: WarmCall) -> None:
        call.pod, call.cost = self, call.known.estimate
        self.given[call.key] = call
        self.load += call.cost
        self.since = asyncio.get_running_loop().time()
        self._unsent.append(call)
        self.changed.set()

    def stop(self, call: WarmCall, grace: float) -> None:
        if call in self._unsent:
            self._unsent.remove(call)
            self._forget(call)
            call.cancel()
        elif self.mine:
            self._stops.append((call.key, grace))
            late = asyncio.get_running_loop().time() + grace + LATE
            self._late = late if self._late is None else min(late, self._late)
        else:
            self.kill(grace)
        self.changed.set()

    def kill(self, grace: float) -> None:
        self._kill = grace
        self.changed.set()

    def recall(self) -> None:
        """Half of what has not begun is wanted elsewhere."""
        calls = [one for one in self.given.values() if one not in self._unsent]
        rest = [one for one in calls[1:] if one.began is None and not one.recalled]
        for call in rest[len(rest) // 2 :]:
            call.recalled = True
            self._stops.append((call.key, None))
        self.changed.set()

    def recorded(self, key: str) -> None:
        self.unknown.discard(key)
        self.results.pop(key, None)
        for box, shelf in (("in", self._in), ("out", self._out)):
            if (number := shelf.remove(key)) is not None:
                self._drops.append((box, number))

    def over_with(self, runs: Set[str]) -> bool:
        """Nobody will ask for calls of these runs any more; of those that its engine has recorded some may be left. Has the pod been made
        for one of them, or had calls of one? Then its engine has lost that run."""
        self.runs |= {key.partition("/")[0] for key in self.unknown}
        self.unknown = {key for key in self.unknown if key.partition("/")[0] not in runs}
        return bool(self.runs & runs)

    @property
    def keeps(self) -> bool:
        """Is there anything in its letters that is not recorded?"""
        return bool(self._out.by_key or self.given or self.unknown)

    def read(self) -> None:
        """The letters of another engine's pod. Blocks."""
        for number in self._mail.numbers("in"):
            text = self._mail.take("in", number)
            self.unknown |= {one["key"] for one in values.loads(text or "{}").get("calls", ())}
        numbers = self._mail.numbers("out")
        for number in numbers:
            for end in values.loads(self._mail.take("out", number) or "{}").get("ends", ()):
                if end.get("outcome") != BACK:
                    self.results[end["key"]] = end
        self.unknown |= set(self.results)
        self._heard = numbers[-1] + 1 if numbers else 0

    def attach(self, call: WarmCall) -> bool:
        """Goes on with a call of another engine's pod. False: that pod is gone and has not begun it."""
        end = self.results.get(call.key)
        if end is not None:
            self._keeper.ended(self, call, end, _write(self._around, call, end))
        elif not self.gone:
            call.pod = self
            self.given[call.key] = call
        else:
            self.unknown.discard(call.key)
            if call.key not in self.begun:
                return False
            call.end(self._lost(call, Ended(Outcome.ERRORED)))
        return True

    # -- its life -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Raises nothing but what is cancelled."""
        try:
            if self._job is not None:
                await self._around.thread(self._mail.make)
                job = await self._around.thread(self._job)
                around = self._around
                found = await around.throttle.submit(
                    lambda: asked(around, self._note, around.cluster.ensure, job),
                    lambda: self._kill is None,
                    around.options.patience,
                    self._note,
                )
                self._uid = uid_of(found[0]) if found is not None else ""
            how = await self._follow()
        except Exception as error:
            how = Ended(Outcome.ERRORED, str(error) or type(error).__name__)
            await self._delete(0.0)
        await self._settle(how)
        self.settled = True

    def _note(self, line: str) -> None:
        self._keeper.waits(self, line)

    async def _follow(self) -> Ended:
        loop = asyncio.get_running_loop()
        made, pause = loop.time(), self.pace.first
        while True:
            self.changed.clear()
            late = self._late is not None and loop.time() > self._late
            if self._kill is not None or late:
                grace, self._kill = self._kill or 0.0, None
                await self._delete(grace)
                return Ended(Outcome.ERRORED, "its warm pod was ended", lost=True)
            if await self._talk():
                pause = self.pace.first
            state = self._state()
            if isinstance(state, Ended) and state.unseen:
                await asked(self._around, self._note, self._around.cluster.look, self.name)
                state = self._state()
            if isinstance(state, Ended):
                return state
            if not self.up and (hopeless := await self._waits_for(state, loop.time() - made)) is not None:
                await self._delete(0.0)
                return hopeless
            self._keeper.changed()
            if not self.changed.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause if self.given or not self.up else self.pace.idle):
                        await self.changed.wait()
            pause = self.pace.first if self._unsent or self._stops else min(1.2 * pause, self.pace.longest)

    async def _delete(self, grace: float) -> None:
        """Returns when nothing of it runs any more, or the cluster does not say so for long."""
        loop = asyncio.get_running_loop()
        until = loop.time() + grace + LATE
        with suppress(UserError):  # the cluster does not answer: the note `closed` holds it up
            await asked(self._around, self._note, self._around.cluster.remove, self.name, grace=grace, any_engine=True)
            while not self._is_gone() and loop.time() < until:
                self.changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await self.changed.wait()

    def _is_gone(self) -> bool:
        job = self._around.cluster.job(self.name)
        return (job is None or uid_of(job) != self._uid) and not self._around.cluster.pods_of(self._uid)

    def _state(self) -> State:
        job = self._around.cluster.job(self.name)
        if job is not None and uid_of(job) != self._uid:
            job = None
        pods = self._around.cluster.pods_of(self._uid)
        return judge(job, pods, 1, self._around.options.image, self._around.options.patience)

    async def _waits_for(self, state: Waiting | Running, since: float) -> Ended | None:
        """Its end, if it has waited long enough to be up."""
        loop = asyncio.get_running_loop()
        if isinstance(state, Running):
            self._runs = self._runs or loop.time()
            silent = loop.time() - self._runs > SILENT
            return Ended(Outcome.ERRORED, str(UserError(_SILENCE))) if silent else None
        if not state.why and since > LOOK[0] and not self._around.cluster.pods_of(self._uid):
            if loop.time() - self._looked < LOOK[1]:
                return None
            self._looked = loop.time()
            message = await asked(self._around, self._note, self._around.cluster.refusal, self._uid)
            if message:
                state = refused(message, False, self._around.options.patience)
        if not state.why:
            return None
        self._note(f"waits: {state.why}")
        if state.patience is None or state.problem is None:
            return None
        if self._patience is None or self._patience[0] != state.problem.code:
            self._patience = (state.problem.code, loop.time())
        if loop.time() - self._patience[1] < state.patience:
            return None
        return Ended(Outcome.ERRORED, str(UserError(state.problem)))

    async def _settle(self, how: Ended) -> None:
        """Nothing more comes from it: what it may have begun is lost, and what it has not begun is free for others."""
        self.gone = True
        for _ in range(3):
            try:
                await self._around.thread(self._mail.note, CLOSED)
                while await self._hear():
                    pass
                self.begun = set(values.loads(await self._around.thread(self._mail.noted, BEGUN) or "[]"))
                break
            except Exception as error:  # its folder was removed, or the store is away: then nobody knows
                _log.debug("%s: %s", self.name, error)
                self.begun = set(self.given)
                await asyncio.sleep(0.2)
        unsent = {call.key for call in self._unsent}
        again: list[WarmCall] = []
        for call in list(self.given.values()):
            self._forget(call)
            self.unknown.discard(call.key)
            if call.stopped:
                call.end(AttemptEnded(id=call.spec.id, outcome=Outcome.CANCELLED, message="stopped"))
            elif call.key in self.begun and call.key not in unsent:
                call.end(self._lost(call, how))
            else:
                again.append(call)
        self._unsent.clear()
        self._keeper.over(self, how)
        if again:
            self._keeper.again(again)
        await self.remove()

    def _lost(self, call: WarmCall, how: Ended) -> AttemptEnded:
        loop = asyncio.get_running_loop()
        said = how.message or "the pod that made this call has ended"
        ended = AttemptEnded(id=call.spec.id, outcome=Outcome.ERRORED, message=said, lost=True)
        ended.preempted = how.preempted
        ended.seconds = loop.time() - call.began if call.began is not None else 0.0
        return ended

    async def remove(self) -> None:
        """Its Job and its letters, when it is over and all that it told is recorded."""
        if not self.gone or self.keeps or self._removed:
            return
        self._removed = True
        with suppress(UserError):
            await asked(self._around, self._note, self._around.cluster.remove, self.name, any_engine=True)
        with suppress(Exception):  # each of fsspec's drivers has errors of its own
            await self._around.thread(self._mail.clear)

    # -- letters ------------------------------------------------------------------------------------------------------

    async def _talk(self) -> bool:
        """Sends what is to be sent, and takes what has come. True: something has."""
        deadline = asyncio.get_running_loop().time() + AWAY
        while True:
            try:
                await self._send()
                return await self._hear()
            except Exception as error:  # each of fsspec's drivers has errors of its own
                if asyncio.get_running_loop().time() > deadline:
                    raise
                self._note(f"the artifact store does not answer: {error}")
            await asyncio.sleep(1.0)

    async def _send(self) -> None:
        while self.up and self.mine and (self._unsent or self._stops):
            calls, self._unsent = self._unsent[:MOST], self._unsent[MOST:]
            stops, self._stops = self._stops, []
            try:
                wrong = await self._around.thread(self._post, calls, stops)
            except BaseException:
                self._unsent, self._stops = calls + self._unsent, stops + self._stops
                raise
            for call in calls:
                if call.key in wrong:
                    self._forget(call)
                    call.end(AttemptEnded(id=call.spec.id, outcome=Outcome.ERRORED, message=wrong[call.key]))
            self._in.add(self._letters, {call.key for call in calls} - set(wrong))
            self._letters += 1
        drops, self._drops = self._drops, []
        if drops:
            await self._around.thread(self._drop, drops)

    def _drop(self, letters: list[tuple[str, int]]) -> None:
        for box, number in letters:
            self._mail.drop(box, number)

    def _post(self, calls: list[WarmCall], stops: list[tuple[str, float | None]]) -> dict[str, str]:
        """Blocks. Returns the calls that cannot be made, with the reason."""
        letter, wrong = [], {}
        for call in calls:
            try:
                letter.append(warm_call_of(call.spec, self._around.context.blobs))
            except Exception as error:
                wrong[call.key] = str(error) or type(error).__name__
        self._mail.post("in", self._letters, values.dumps({"calls": letter, "stops": stops}))
        return wrong

    async def _hear(self) -> bool:
        found = await self._around.thread(self._take)
        for number, letter, logs in found:
            self._letter(number, letter, logs)
        return bool(found)

    def _take(self) -> list[tuple[int, Mapping[str, Any], dict[str, int]]]:
        """Blocks. The letters that have come, and the lengths of the logs in them, which are written."""
        found = []
        while (numbered := self._next()) is not None:
            number, text = numbered
            letter, logs = values.loads(text), {}
            for end in letter.get("ends", ()):
                call = self.given.get(end["key"])
                if call is not None:
                    logs[call.key] = _write(self._around, call, end)
            found.append((number, letter, logs))
            self._heard = number + 1
        return found

    def _next(self) -> tuple[int, str] | None:
        number: int | None = self._heard
        if not self.mine:  # its engine has removed some
            number = next((one for one in self._mail.numbers("out") if one >= self._heard), None)
        text = self._mail.take("out", number) if number is not None else None
        return (number, text) if number is not None and text is not None else None

    def _letter(self, number: int, letter: Mapping[str, Any], logs: Mapping[str, int]) -> None:
        loop = asyncio.get_running_loop()
        self.up = True
        for key in letter.get("began", ()):
            call = self.given.get(key)
            if call is not None and call.began is None:
                call.began = loop.time()
                self._around.context.inbox.put(AttemptStarted(id=call.spec.id))
        kept = set()
        for end in letter.get("ends", ()):
            call = self.given.get(end["key"])
            self.since = loop.time()
            if call is None:
                if not self.mine:
                    self.results[end["key"]] = end
                continue
            self._forget(call)
            if end["outcome"] == BACK:
                self._in.remove(call.key)
                self._taken_back(call)
                continue
            kept.add(call.key)
            self._keeper.ended(self, call, end, logs.get(call.key, 0))
        if self.mine and kept:
            self._out.add(number, kept)
        elif self.mine:
            self._drops.append(("out", number))

    def _taken_back(self, call: WarmCall) -> None:
        if call.stopped:
            call.cancel()
        else:
            self._keeper.again([call])

    def _forget(self, call: WarmCall) -> None:
        self.given.pop(call.key, None)
        self.load = max(0.0, self.load - call.cost) if self.given else 0.0
        if not any(one.stopped for one in self.given.values()):
            self._late = None


def _write(around: JobContext, call: WarmCall, end: Mapping[str, Any]) -> int:
    """The log of a call, below the home. Returns its length."""
    log = end.get("log")
    if not log:
        return 0
    data = around.context.blobs.get(log["blob"]) if isinstance(log, Mapping) else log.encode("utf-8", "surrogateescape")
    path = around.context.home / log_name(call.spec)
    rights.make_folder(path.parent)
    with open(path, "wb", opener=rights.opener) as file:
        file.write(data)
    return len(data)
