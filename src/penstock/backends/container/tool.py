"""The program that runs containers: podman or docker. Called by run and backend.

It is the first of podman and docker in PATH, or PENSTOCK_CONTAINER_TOOL (a program and, if need be, words that always follow it).
PENSTOCK_CONTAINER_OPTIONS are added to every `create`.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock import rights
from penstock.backends.attempt import CannotRun
from penstock.backends.secrets.masked_log import MaskedLogs
from penstock.backends.tools import CONTAINER_TOOLS, ToolResult, ask, find, last_line
from penstock.errors import Problem, UserError

_COPY_SECONDS = 3600.0


class ContainerTool:
    def __init__(self, environ: Mapping[str, str]) -> None:
        """Raises UserError if there is none, CannotRun if its options cannot be read."""
        chosen = environ.get("PENSTOCK_CONTAINER_TOOL")
        tool = find(environ, "PENSTOCK_CONTAINER_TOOL", CONTAINER_TOOLS)
        if tool is None:
            what = f"there is no {chosen}" if chosen else "neither podman nor docker is in PATH"
            message = f"there is nothing here to run containers with: {what}"
            fix = (
                "install podman or docker, or run the commands on this machine without their images: --on container=process, "
                'LocalRunner(on={"container": "process"}), or PENSTOCK_ON_HOST=yes'
            )
            raise UserError(Problem("P701", message, fix))
        try:
            self.options = shlex.split(environ.get("PENSTOCK_CONTAINER_OPTIONS", ""))
        except ValueError as error:
            raise CannotRun(f"PENSTOCK_CONTAINER_OPTIONS cannot be read: {error}") from None
        self.words = tool
        self._environ = dict(environ)

    @property
    def name(self) -> str:
        return os.path.basename(self.words[0])

    async def ask(self, *words: str, given: bytes = b"", seconds: float = 60.0) -> ToolResult:
        return await ask([*self.words, *words], self._environ, given, seconds)

    async def attach(
        self,
        words: Iterable[str],
        out: str | Path,
        err: Path,
        hidden: Mapping[str, str],
        logs: MaskedLogs | None,
    ) -> asyncio.subprocess.Process:
        """Starts it with its output in files. In a session of its own: Ctrl-C is for the engine. `hidden`: variables of its own
        environment, which it hands on. `logs`: takes secrets out of its output. Raises CannotRun."""
        places = (logs.to(str(out)), logs.to(str(err))) if logs else (out, err)
        with (
            open(places[0], "ab", opener=rights.opener) as stdout,
            open(places[1], "ab", opener=rights.opener) as stderr,
        ):
            try:
                return await asyncio.create_subprocess_exec(
                    *self.words,
                    *words,
                    env={**self._environ, **hidden},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=stderr if out == err else stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise CannotRun(f"{self.name} cannot be started: {error}") from None

    async def copy_out(self, container: str, path: str, to: Path) -> bool:
        """Copies a file or folder out of an ended container. False: it is not there. Raises CannotRun."""
        to.parent.mkdir(parents=True, exist_ok=True)
        result = await self.ask("cp", f"{container}:{path}", str(to), seconds=_COPY_SECONDS)
        missing = any(word in result.err.lower() for word in ("could not be found", "could not find", "no such file"))
        if result.code != 0 and not missing:
            raise CannotRun(self.blame(result.err, result.code))
        return result.code == 0

    def blame(self, message: str, code: int) -> str:
        return f"{self.name}: {last_line(message) or f'exit code {code}'}"
