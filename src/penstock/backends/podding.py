"""How the parts of a pod take turns, whatever runs them. Called by pod (on this machine) and pod_crate (in containers), which do
the running and say what came of it.

Sidecars are started first and stopped last; how one of them ends is nobody's failure. The other parts run when those they need
have ended well, or were skipped: by themselves one after another, with `needs` also side by side. The first failure ends the pod.
A part that goes on on error (`on_error: continue`) has ended well whatever its exit code; but not if its time ran out,
which is a failure in any case.

What a part reads of earlier ones is put into its texts when its turn has come, never before:

    $(steps.PART.results.NAME)        what PART wrote to the file of that result, without a last line end
    $(steps.PART.results.NAME[2])     an element of it, if that is a JSON array; [*]: all, as so many words of the command
    $(steps.PART.results.NAME.key)    a field of it, if that is a JSON object
    $(steps.PART.exitCode.path)       a file with the exit code of PART

`step-PART` means PART too, as Tekton writes it. What names no part of the pod stays as it is: it may be a shell's own.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.backends import places
from penstock.backends.base import LogPart, Order
from penstock.graph.details import before
from penstock.graph.model import Part

_REFERENCE = re.compile(r"""\$\(steps((?:\.[A-Za-z0-9_-]+|\[(?:"[^"\]]*"|'[^'\]]*'|\*|[0-9]+)\])+)\)""")
_SEGMENT = re.compile(r"""\.([A-Za-z0-9_-]+)|\["([^"\]]*)"\]|\['([^'\]]*)'\]|\[(\*|[0-9]+)\]""")
_MARK = "$(steps"
LARGEST = 1_000_000
"""Bytes of a result. More is for files, not for the words of a command."""


class Unwritten(Exception):
    """A part reads what is not there. In a sentence."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a pod has failed."""

    part: str
    code: int | None
    message: str = ""
    """Empty: it is all in the code."""


class Turns:
    """Where one pod stands. `read(part, path)` gives the text of a file that a part has written, None if there is none, and raises
    ValueError with a sentence; `code_path(part)` says where the file with the exit code of a part is for the other parts."""

    def __init__(
        self, parts: Sequence[Part], read: Callable[[Part, str], str | None], code_path: Callable[[str], str]
    ) -> None:
        self.parts = {part.name: part for part in parts}
        self._needs = {name: set(names) for name, names in before(tuple(parts)).items()}
        self._waiting = [part.name for part in parts if not part.sidecar]
        self._sidecars = [part.name for part in parts if part.sidecar]
        self._running: set[str] = set()
        self._done: set[str] = set()
        self._read = read
        self._code_path = code_path
        self.wants_codes = any("exitCode" in text for part in parts for text in _texts(part))
        """Does any part ask for the file with another's exit code?"""
        self.failure: Failure | None = None
        self.skipped: list[str] = []
        """Those that were not wanted, in order; whoever tells the user empties it."""

    @property
    def over(self) -> bool:
        """Nothing more is to be started, and only sidecars may still run."""
        return self.failure is not None or not (self._waiting or self._running)

    def next(self) -> Iterator[Part]:
        """The parts to be started now, with what they read put in. Looked at one by one: whoever cannot start one stops asking."""
        while self._sidecars and self.failure is None:
            yield from self._taken(self._sidecars.pop(0))
        while not self.over:
            name = next((name for name in self._waiting if self._needs[name] <= self._done), None)
            if name is None:
                if not self._running:
                    self.failure = Failure(self._waiting[0], None, "it waits for parts that never run")
                return
            self._waiting.remove(name)
            yield from self._taken(name)

    def _taken(self, name: str) -> Iterator[Part]:
        part = self.parts[name]
        try:
            if any(_MARK in text for text in _texts(part)):
                part = self._filled(part)
        except Unwritten as error:
            self.failure = Failure(name, None, str(error))
            return
        if not all(_holds(test) for test in part.when):
            self._done.add(name)
            self.skipped.append(name)
            return
        if not part.sidecar:
            self._running.add(name)
        yield part

    def ended(self, name: str, code: int, timed_out: bool = False) -> None:
        """A part is over. Of a sidecar nothing follows."""
        part = self.parts[name]
        if part.sidecar:
            return
        self._running.discard(name)
        if timed_out:
            self.failure = self.failure or Failure(name, code, f"timed out after {part.timeout:g} s")
        elif code == 0 or part.on_error == "continue":
            self._done.add(name)
        else:
            self.failure = self.failure or Failure(name, code)

    # -- what it reads of earlier parts -------------------------------------------------------------------------------

    def _filled(self, part: Part) -> Part:
        return replace(
            part,
            command=tuple(self._words(part.command)),
            args=tuple(self._words(part.args)),
            source=None if part.source is None else self._text(part.source),
            env={name: self._text(value) for name, value in part.env.items()},
            workdir=None if part.workdir is None else self._text(part.workdir),
            when=tuple(
                {**test, "input": self._text(test["input"]), "values": list(self._words(test["values"]))}
                for test in part.when
            ),
        )

    def _words(self, words: Sequence[str]) -> Iterator[str]:
        """A word that is nothing but all elements of an array becomes as many words."""
        for word in words:
            found = _REFERENCE.fullmatch(word)
            path = _segments(found[1]) if found is not None else []
            if path[-1:] == ["*"] and self._part(path) is not None:
                yield from (_shown(item) for item in self._array(path))
            else:
                yield self._text(word)

    def _text(self, text: str) -> str:
        return _REFERENCE.sub(self._value, text) if _MARK in text else text

    def _value(self, found: re.Match[str]) -> str:
        path = _segments(found[1])
        part = self._part(path)
        if part is None:
            return found[0]
        if path[1:] == ["exitCode", "path"]:
            return self._code_path(part.name)
        text = self._result(part, path[2])
        if path[3:] in ([], ["*"]):
            return text
        value = _loaded(text)
        for key in path[3:]:
            try:
                value = value[int(key)] if isinstance(value, list) else value[key]
            except (KeyError, IndexError, TypeError, ValueError):
                raise Unwritten(f"the result {path[2]!r} of part {part.name} has no {key!r}") from None
        return _shown(value)

    def _part(self, path: Sequence[str]) -> Part | None:
        """The part that a reference means; None if it is no reference to a part."""
        if len(path) < 3 or (path[1] != "results" and path[1:] != ["exitCode", "path"]):
            return None
        return self.parts.get(path[0]) or self.parts.get(path[0].removeprefix("step-"))

    def _array(self, path: Sequence[str]) -> list[Any]:
        part = self._part(path)
        assert part is not None
        value = _loaded(self._result(part, path[2]))
        if not isinstance(value, list):
            raise Unwritten(f"the result {path[2]!r} of part {part.name} is no JSON array")
        return value

    def _result(self, part: Part, name: str) -> str:
        path = part.results.get(name)
        if path is None:
            raise Unwritten(f"part {part.name} declares no result {name!r}")
        try:
            text = self._read(part, path)
        except ValueError as error:
            raise Unwritten(f"the result {name!r} of part {part.name} {error}") from None
        if text is None:
            raise Unwritten(f"part {part.name} has not written its result {name!r} to {path}")
        return text.removesuffix("\n")


def written(part: Part, text: Callable[[Any], str], moved: Callable[[str], str] = str) -> Part:
    """A part whose values are all text; `moved` puts paths in its texts right, but not in the name of its image."""

    def told(value: Any) -> str:
        return moved(text(value))

    return replace(
        part,
        image=None if part.image in (None, "") else text(part.image),
        command=tuple(map(told, part.command)),
        args=tuple(map(told, part.args)),
        source=None if part.source is None else told(part.source),
        env={name: told(value) for name, value in part.env.items()},
        workdir=None if part.workdir in (None, "") else told(part.workdir),
        when=tuple(
            {
                "input": told(test.get("input", "")),
                "operator": text(test.get("operator", "in")),
                "values": [told(value) for value in _listed(test.get("values", ()))],
            }
            for test in part.when
        ),
    )


def script_words(part: Part, path: str) -> list[str]:
    """The command of a part with a source, which lies at `path`. Its `#!` line is followed here and not left to the kernel: the
    file may lie where nothing can be executed."""
    words = list(part.command) or ["sh"]
    if part.source.startswith("#!"):
        words = part.source[2:].partition("\n")[0].strip().split(None, 1) or words
    return [*words, path, *part.args]


def read_small(path: Path, within: Path | None = None) -> str | None:
    """A small file that a part left; None if there is none. With `within`, links must not lead out of there."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would keep us waiting
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("is not a file")
        if within is not None and not _is_inside(os.path.realpath(f"/proc/self/fd/{handle}"), path, within):
            raise ValueError("is a link that leads elsewhere")
        with open(handle, "rb", closefd=False) as file:
            data = file.read(LARGEST + 1)
    finally:
        os.close(handle)
    if len(data) > LARGEST:
        raise ValueError(f"is larger than {LARGEST:,} bytes: hand it on in a file")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("is not text") from None


def _is_inside(opened: str, path: Path, within: Path) -> bool:
    """Where there is no /proc, the path itself is followed."""
    real = opened if not opened.startswith("/proc/") else os.path.realpath(path)
    return Path(real).is_relative_to(os.path.realpath(within))


def _texts(part: Part) -> Iterator[str]:
    yield from (*part.command, *part.args, *part.env.values())
    if part.source is not None:
        yield part.source
    if part.workdir is not None:
        yield part.workdir
    for test in part.when:
        yield from (test["input"], *test["values"])


def _holds(test: Mapping[str, Any]) -> bool:
    return bool(test["input"] in test["values"]) is (test["operator"] != "notin")


def _segments(text: str) -> list[str]:
    return [next(group for group in found.groups() if group is not None) for found in _SEGMENT.finditer(text)]


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# -- the log ----------------------------------------------------------------------------------------------------------


class Log:
    """Where the parts of one replica print. Parts that run one after another share the log of the task, each below a line with
    its name; a part that may run beside others has a file of its own, headed by the same line. With one part alone there are no
    such lines. What is declared as output is kept apart from what is printed to stderr, as for any command."""

    def __init__(self, home: Path, order: Order, number: int, parts: Sequence[Part]) -> None:
        suffix = f"{number}." if number else ""
        self._home = home
        self._order = order
        self._suffix = suffix
        self.err = places.log_name(order, f"{suffix}log")
        self.out = ""
        """What the printing part prints, if that is an output."""
        plain = [part for part in parts if not part.sidecar]
        needs = before(tuple(parts))
        chained = [needs[part.name] for part in plain] == [(), *((part.name,) for part in plain[:-1])][: len(plain)]
        self._apart = {part.name for part in parts if part.sidecar or not chained}
        self._several = len(parts) > 1
        self.printer = next((part.name for part in plain if part.name == "main"), plain[-1].name if plain else "")
        if any(output.path == "/dev/stdout" for output in order.step.outputs):
            self.out = places.log_name(order, f"{suffix}out")
            (home / self.out).unlink(missing_ok=True)  # of the same attempt, before a crash: not part of what is given
        self._split: tuple[str, int] | None = None
        """Where in which log the part prints whose stdout is kept apart."""
        self._marks: dict[str, int] = {}
        """Bytes of each file that are ours."""
        self.names: list[str] = []
        for part in sorted(parts, key=lambda part: part.sidecar):
            for name in (self._of(part.name), self.out if part.name == self.printer else ""):
                if name and name not in self.names:
                    self.names.append(name)

    def _of(self, part: str) -> str:
        if self._several and part in self._apart:
            return places.log_name(self._order, f"{self._suffix}part-{places.mangled(part)}.log")
        return self.err

    def open(self, part: str) -> tuple[str, str]:
        """(stdout, stderr) of a part that is about to start."""
        err = self._of(part)
        self.note(part, "")
        if self.out and part == self.printer:
            if self._several:
                self._split = err, os.path.getsize(self._home / err)
            return self.out, err
        return err, err

    def note(self, part: str, text: str) -> None:
        """A line of our own."""
        if not self._several:
            return
        name = self._of(part)
        line = f"[{part}] {text}".rstrip().encode() + b"\n"
        with open(self._home / name, "a+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                line = b"\n" + line
            file.write(line)
        self._marks[name] = self._marks.get(name, 0) + len(line)

    def close(self) -> list[LogPart]:
        """What was printed, in the order in which it was. Files in which there is nothing but our own lines go."""
        sizes: dict[str, int] = {}
        for name in self.names:
            with suppress(OSError):
                sizes[name] = os.path.getsize(self._home / name)
        within, split = self._split if self._split is not None and sizes.get(self.out) else ("", 0)
        found: list[LogPart] = []
        for name, size in sizes.items():
            if name == within:  # what the printing part printed stands below its name
                found += [(name, 0, split), (self.out, 0, sizes[self.out])]
                found += [(name, split, size)] if size > split else []
            elif size <= self._marks.get(name, 0):
                with suppress(OSError):
                    os.unlink(self._home / name)
            elif name != self.out or not within:
                found.append((name, 0, size))
        return found
