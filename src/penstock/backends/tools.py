"""Programs of others (podman, docker, kubectl): where they are, and one question to one of them. Called by container and resource,
which have no library for what these programs do: the user has set up the program, its login and its options, not a library.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.backends.processes import kill_group

CONTAINER_TOOLS = ("podman", "docker")
"""In the order in which they are looked for."""
_NOISE = ("See '", "Run '", "For more help")
"""Docker ends what it says with an advice to read its manual."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    code: int
    """Minus the signal's number if one ended it; NO_ANSWER if it could not be started or took too long."""
    out: str
    err: str

    @property
    def line(self) -> str:
        """What it said last, for people."""
        return last_line(self.err) or last_line(self.out) or f"exit code {self.code}"


NO_ANSWER = -1000


def find(environ: Mapping[str, str], variable: str, names: Sequence[str]) -> list[str] | None:
    """The program, with the words that always follow it: as `variable` says, or the first of `names` that is in PATH."""
    try:
        chosen = shlex.split(environ.get(variable, ""))
    except ValueError:  # a quote that is not closed
        return None
    for words in [chosen] if chosen else [[name] for name in names]:
        program = shutil.which(words[0], path=environ.get("PATH", os.defpath))
        if program is not None:
            return [program, *words[1:]]
    return None


async def ask(
    words: Sequence[str], environ: Mapping[str, str], given: str | bytes = b"", seconds: float = 60.0
) -> ToolResult:
    """Runs it to its end, with `given` as its input. Does not outlive the caller: cancelled, it is killed."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            env=environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return ToolResult(NO_ANSWER, "", f"{words[0]} cannot be started: {error}")
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate(given.encode() if isinstance(given, str) else given)
    except TimeoutError:
        name = os.path.basename(words[0])
        return ToolResult(NO_ANSWER, "", f"{name} did not answer within {seconds:g} seconds")
    finally:
        if process.returncode is None:
            kill_group(process.pid, signal.SIGKILL)
            with suppress(asyncio.CancelledError):
                await process.wait()
    return ToolResult(process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"))


def last_line(text: str) -> str:
    """The last line that says something, without the word Error in front."""
    for line in reversed(text.splitlines()):
        line = line.strip()
        if line and not line.startswith(_NOISE):
            for prefix in ("docker: ", "Error: ", "error: ", "Error response from daemon: "):
                line = line.removeprefix(prefix)
            return line if len(line) <= 500 else line[:499] + "…"
    return ""
