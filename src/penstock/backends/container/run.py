"""One container, from `create` to its end. Called by backend.

`create`, `cp` of folders that its outputs need (if any), `start --attach`; backend then copies outputs out of it and removes it.
Not `run --rm`: an output may be any path of the container, and whether the command or the tool has failed can be seen only by
inspecting the container afterwards.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from penstock.backends.container.spec import ContainerSpec
from penstock.backends.container.tool import ContainerTool
from penstock.backends.processes import kill_group, signal_name
from penstock.backends.secrets.mask import needles_of
from penstock.backends.secrets.masked_log import MaskedLogs
from penstock.graph.model import Part

_TAIL = 8192
_PULL = ("pull", "manifest unknown", "initializing source", "no such image", "image not known", "short-name")
"""One of these is in what the tools say of an image that they cannot fetch."""


@dataclass(slots=True, eq=False)
class RunningContainer:
    """A replica of a step, or a part of a replica of a pod."""

    spec: ContainerSpec
    number: int
    """Of the replica."""
    part: Part | None = None
    client: asyncio.subprocess.Process | None = None
    """The tool while it creates the container or is attached to it."""
    created: bool = False
    code: int | None = None
    error: str = ""
    """Why it could not be run."""
    printed: str = ""
    """What the tool printed when it failed to start the container."""
    cause: str = ""
    """As AttemptEnded has it, if that is known."""
    lost: bool = False
    """The tool ended before its container."""
    unwanted: bool = False
    """It is being stopped, and how it ends does not matter."""
    timed_out: bool = False
    masked: bool = False
    """A secret was taken out of what it printed as an output."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_sidecar(self) -> bool:
        return self.part is not None and self.part.sidecar


class ContainerRunner:
    """Runs one container after the other, or many at a time. `stopped` is asked whether its attempt was stopped meanwhile."""

    def __init__(self, tool: ContainerTool, home: Path) -> None:
        self.tool = tool
        self._home = home

    async def run(
        self,
        one: RunningContainer,
        stopped: Callable[[], bool],
        started: Callable[[int], None],
        timed_out: Callable[[], None] | None = None,
    ) -> None:
        """From beginning to end. Raises nothing: what is wrong is in `error`. `started` gets the pid of the tool."""
        try:
            await self._create(one, stopped)
            if one.created and not one.error and not stopped():
                await self._attach(one, stopped, started, timed_out)
        except Exception as error:
            one.error = str(error) or type(error).__name__
        finally:
            one.over.set()

    async def _create(self, one: RunningContainer, stopped: Callable[[], bool]) -> None:
        """Takes long if the image must be fetched first."""
        spec, tool = one.spec, self.tool
        words, err = spec.create_words(tool.options), self._home / spec.err
        for _ in range(2):
            before = err.stat().st_size if err.exists() else 0
            code = await self._client(one, words, os.devnull, err, None, spec.hidden)
            message = _tail(err, before)
            if code == 0 or stopped() or "is already in use" not in message:
                break
            # The same attempt, before its engine crashed: no other container has this name.
            os.truncate(err, before)
            await tool.ask("kill", "--signal", "KILL", spec.name)
            await tool.ask("rm", "--force", "--volumes", spec.name)
        one.created = code == 0
        if code != 0:
            one.error = tool.blame(message, code)
            one.cause = "ImagePullError" if any(word in message.lower() for word in _PULL) else ""
        elif spec.folders and not stopped():
            result = await tool.ask("cp", "-", f"{spec.name}:/", given=spec.folders_tar())
            if result.code != 0:
                one.error = tool.blame(result.err, result.code)

    async def _attach(
        self,
        one: RunningContainer,
        stopped: Callable[[], bool],
        started: Callable[[int], None],
        timed_out: Callable[[], None] | None,
    ) -> None:
        spec, home = one.spec, self._home
        before = (home / spec.err).stat().st_size
        words = ["start", "--attach", spec.name]
        timer = None
        if timed_out is not None and one.part is not None and one.part.timeout is not None:
            timer = asyncio.get_running_loop().call_later(one.part.timeout, timed_out)
        one.code = await self._client(one, words, home / spec.out, home / spec.err, started)
        if timer is not None:
            timer.cancel()
        if one.code != 0 and not stopped() and not one.unwanted:
            await self._explain(one, one.code, before)

    async def _explain(self, one: RunningContainer, code: int, before: int) -> None:
        """Is the exit code that of the command, or has the tool failed?"""
        shape = "{{.State.OOMKilled}}|{{.State.StartedAt}}|{{.State.ExitCode}}|{{.State.Running}}"
        result = await self.tool.ask("container", "inspect", "--format", shape, one.spec.name)
        oom, _, said = result.out.strip().partition("|")
        started, _, rest = said.partition("|")
        one.cause = "OutOfMemory" if oom == "true" else ""
        if result.code != 0 or started.startswith("0001-"):
            one.printed = _tail(self._home / one.spec.err, before)
            one.error = self.tool.blame(one.printed, code)
        elif rest == f"{code}|false":
            pass  # the command's own
        elif rest.endswith("|true"):
            how = signal_name(-code) if code < 0 else f"exit code {code}"
            one.error, one.lost = f"{self.tool.name} ended by {how} while its container was running", True
        else:
            one.code = int(rest.partition("|")[0])

    async def _client(
        self,
        one: RunningContainer,
        words: list[str],
        out: str | Path,
        err: Path,
        started: Callable[[int], None] | None,
        hidden: Mapping[str, str] | None = None,
    ) -> int:
        logs = MaskedLogs(asyncio.get_running_loop(), needles_of(one.spec.secrets)) if one.spec.secrets else None
        try:
            client = one.client = await self.tool.attach(words, out, err, hidden or {}, logs)
            if started is not None:
                started(client.pid)
            return await client.wait()
        finally:
            one.client = None
            if logs is not None:
                logs.close()
                one.masked = one.masked or (out != err and str(out) in logs.masked)

    async def until_up(self, one: RunningContainer) -> None:
        """Returns when it runs or has ended. Other containers use its network, and expect its services."""
        while not one.over.is_set():
            if one.created:
                result = await self.tool.ask("container", "inspect", "--format", "{{.State.Running}}", one.spec.name)
                if result.out.strip() == "true":
                    return
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await one.over.wait()

    async def stop(self, one: RunningContainer, grace: float) -> None:
        """Asks first, kills after `grace` seconds. A container that does not run yet cannot be asked, only the tool that creates
        it: so it tries repeatedly."""
        loop = asyncio.get_running_loop()
        deadline, asked = loop.time() + grace, False
        while not one.over.is_set():
            forced = loop.time() >= deadline
            if forced or not asked:
                number = signal.SIGKILL if forced else signal.SIGTERM
                result = await self.tool.ask("kill", "--signal", number.name.removeprefix("SIG"), one.spec.name)
                asked = result.code == 0
                if not asked and one.client is not None:
                    kill_group(one.client.pid, number)
            left = max(0.0, deadline - loop.time())
            with suppress(TimeoutError):
                async with asyncio.timeout(left if asked and left else 0.2):
                    await one.over.wait()

    async def remove(self, containers: list[RunningContainer], alive: bool) -> None:
        """With `alive`, also those that may still run."""
        specs = [one.spec for one in containers if one.created or alive]
        names = [spec.name for spec in specs]
        if not names:
            return
        if alive:  # podman's rm would wait ten seconds for it to end by itself
            await self.tool.ask("kill", "--signal", "KILL", *names)
        # A container whose network others use cannot be removed before them.
        lent = {spec.network for spec in specs if spec.network}
        for group in ([name for name in names if name not in lent], [name for name in names if name in lent]):
            if group:
                await self.tool.ask("rm", "--force", "--volumes", *group)


def _tail(path: Path, start: int) -> str:
    """What was written after `start`, or the end of it."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(start, size - _TAIL))
        return file.read().decode(errors="replace")
