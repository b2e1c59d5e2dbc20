"""The leader of a pod whose parts wait for one another: it tells each when its turn is, and hears how it ended. Runs in the helper container
that stores the outputs at the end, started by in_pod; the shell around each part (see shell.led) does what it says. Which part runs when, and what it
reads of others, is what `pods.sequence` says, as on this machine.

For each part there is a folder in the scratch folder of the pod:

    life      a pipe that the container of the part holds open while it lives: `begun`, and its exit code, come through it
    go        a pipe: `run`, or another word if its turn will not come
    stop      a pipe: `term`, then `kill`
    run       what to run, as lines of shell
    exitCode  how it ended, if another part reads that
    ready     is there when the others are
"""

from __future__ import annotations

import json
import os
import selectors
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.backends import folders
from penstock.backends.pods.parts import as_texts, read_small, script_words
from penstock.backends.pods.progress import PodProgress
from penstock.backends.pods.sequence import PodFailure, PodSequence
from penstock.graph.model import Part

GRACE: Final = 2.0
"""Seconds in which parts that are to end may do so by themselves."""
KILLED: Final = 137
"""The exit code of a part whose container is gone without a word."""
LATEST: Final = 10.0
"""Seconds after which a part that was killed counts as ended."""
_REPLICA: Final = "$(PENSTOCK_REPLICA)"


def plan_text(parts: list[Part], results: Mapping[str, Mapping[str, str]]) -> str:
    """What the leader must know. `results`: part -> path of a result -> where that is in the leader's own container."""
    return json.dumps({"parts": [_written(part) for part in parts], "results": results}, ensure_ascii=False)


def _written(part: Part) -> dict[str, Any]:
    names = ("name", "command", "args", "source", "workdir", "needs", "when", "on_error", "timeout", "sidecar")
    found = {name: getattr(part, name) for name in names}
    env = {name: text for name, text in part.env.items() if "$(steps" in text}  # the rest is in its container
    return {**found, "env": env, "results": dict(part.results)}


def parts_of(plan: Mapping[str, Any], replica: str) -> list[Part]:
    def text(value: Any) -> str:
        return str(value).replace(_REPLICA, replica)

    made = []
    for one in plan["parts"]:
        needs = None if one["needs"] is None else tuple(one["needs"])
        made.append(as_texts(Part(**{**one, "needs": needs, "when": tuple(one["when"])}), text))
    return made


class _Notes:
    """The log of a pod is its containers' own; here is what we have to say."""

    def note(self, part: str, text: str) -> None:
        print(f"[{part}] {text}", flush=True)


@dataclass(eq=False, slots=True)
class _Pipes:
    """Of one part."""

    part: Part
    folder: Path
    life: int
    turn: int
    stop: int
    heard: bytes = b""
    told: bool = False
    """To run."""
    code: int | None = None
    gone: bool = False
    timed_out: bool = False
    due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)


class PodLeader:
    """`inside`: the scratch folder. Raises OSError when it is made."""

    def __init__(self, plan: Mapping[str, Any], inside: Path, replica: str, grace: float = GRACE) -> None:
        self._folder = inside / "pod"
        self._inside = inside
        self._grace = grace
        self._results: Mapping[str, Mapping[str, str]] = plan["results"]
        parts = parts_of(plan, replica)
        self._sequence = PodSequence(parts, self._read, lambda name: str(self._of(name) / "exitCode"))
        self._progress = PodProgress(self._sequence, _Notes(), lambda name: self._of(name) / "exitCode")
        self._selector = selectors.DefaultSelector()
        self._pipes = {part.name: self._made(part) for part in parts}
        for pipes in self._pipes.values():
            (pipes.folder / "ready").touch()

    def run(self) -> PodFailure | None:
        """Until all have ended. Raises OSError."""
        while True:
            for part in self._progress.next():
                self._start(self._pipes[part.name], part)
            if self._sequence.over:
                break
            self._turn()
        self._end()
        return self._sequence.failure

    # -- pipes

    def _of(self, name: str) -> Path:
        return self._folder / folders.mangled(name)

    def _made(self, part: Part) -> _Pipes:
        folder = self._of(part.name)
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("life", "go", "stop"):
            os.mkfifo(folder / name)
            os.chmod(folder / name, 0o666)  # the image of a part may run as any user
        life = os.open(folder / "life", os.O_RDONLY | os.O_NONBLOCK)
        turn, stop = (os.open(folder / name, os.O_RDWR) for name in ("go", "stop"))
        pipes = _Pipes(part, folder, life, turn, stop)
        self._selector.register(life, selectors.EVENT_READ, pipes)
        return pipes

    def _turn(self) -> None:
        """Waits until something happens, and takes note of it."""
        now = time.monotonic()
        moments = [moment for pipes in self._pipes.values() for moment, _ in pipes.due]
        for key, _ in self._selector.select(max(0.0, min(moments) - now) if moments else None):
            self._hear(key.data)
        now = time.monotonic()
        for pipes in self._pipes.values():
            ripe = [one for one in pipes.due if one[0] <= now]
            pipes.due = [one for one in pipes.due if one[0] > now]
            for _, act in ripe:
                act()

    def _hear(self, pipes: _Pipes) -> None:
        data = os.read(pipes.life, 4096)
        pipes.heard += data
        while b"\n" in pipes.heard:
            word, _, pipes.heard = pipes.heard.partition(b"\n")
            if word == b"begun":
                if pipes.part.timeout is not None:
                    pipes.due.append((time.monotonic() + pipes.part.timeout, lambda: self._time_out(pipes)))
            elif word.isdigit():
                pipes.code = int(word)
        if not data:
            self._gone(pipes)

    def _gone(self, pipes: _Pipes) -> None:
        """Its container has ended."""
        if pipes.gone:
            return
        pipes.gone = True
        pipes.due = []
        self._selector.unregister(pipes.life)
        if pipes.told:
            self._ended(pipes)

    def _ended(self, pipes: _Pipes) -> None:
        code = KILLED if pipes.code is None else pipes.code
        self._progress.ended(pipes.part.name, code, pipes.timed_out)

    # -- parts

    def _start(self, pipes: _Pipes, part: Part) -> None:
        """`part`: with its references replaced."""
        pipes.told = True
        if pipes.gone:  # it ended before its turn
            self._ended(pipes)
            return
        words = [*part.command, *part.args]
        if part.source is not None:
            script = pipes.folder / "script"
            script.write_text(part.source, encoding="utf-8")
            script.chmod(0o755)
            words = script_words(part, str(script))
        lines = [f"export {name}={shlex.quote(text)}" for name, text in part.env.items()]
        if part.workdir:
            lines.append(f"cd {shlex.quote(part.workdir)} || {{ echo 126 >&9; exit 126; }}")
        lines.append(f"set -- {' '.join(map(shlex.quote, words))}")
        (pipes.folder / "run").write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.write(pipes.turn, b"run\n")

    def _time_out(self, pipes: _Pipes) -> None:
        pipes.timed_out = True
        self._stop(pipes)

    def _stop(self, pipes: _Pipes) -> None:
        os.write(pipes.stop, b"term\n")
        now = time.monotonic() + self._grace
        pipes.due = [(now, lambda: _kill(pipes)), (now + LATEST, lambda: self._gone(pipes))]

    def _end(self) -> None:
        """Those that run are stopped; the others hear that their turn does not come."""
        for pipes in self._pipes.values():
            if not pipes.told:
                os.write(pipes.turn, b"none\n")
            elif not pipes.gone:
                self._stop(pipes)
        while any(pipes.told and not pipes.gone for pipes in self._pipes.values()):
            self._turn()
        for pipes in self._pipes.values():  # a container that comes up later must not wait for us
            for name in ("life", "go"):
                (pipes.folder / name).unlink(missing_ok=True)
            for pipe in (pipes.life, pipes.turn, pipes.stop):
                os.close(pipe)
        self._selector.close()

    def _read(self, part: Part, path: str) -> str | None:
        return read_small(Path(self._results[part.name][path]), self._inside)


def _kill(pipes: _Pipes) -> None:
    os.write(pipes.stop, b"kill\n")
