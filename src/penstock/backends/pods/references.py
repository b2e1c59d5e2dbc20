"""What a part of a pod reads of earlier parts. Called by sequence when the part is about to start, never before:

    $(steps.PART.results.NAME)        what PART wrote to the file of that result, without a last line end
    $(steps.PART.results.NAME[2])     an element of it, if that is a JSON array; [*]: all, as so many words of the command
    $(steps.PART.results.NAME.key)    a field of it, if that is a JSON object
    $(steps.PART.exitCode.path)       a file with the exit code of PART

`step-PART` means PART too, as Tekton writes it. A reference that names no part of the pod stays as it is: it may be a shell's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.backends.pods.parts import texts_of
from penstock.graph.model import Part

_REFERENCE = re.compile(r"""\$\(steps((?:\.[A-Za-z0-9_-]+|\[(?:"[^"\]]*"|'[^'\]]*'|\*|[0-9]+)\])+)\)""")
_SEGMENT = re.compile(r"""\.([A-Za-z0-9_-]+)|\["([^"\]]*)"\]|\['([^'\]]*)'\]|\[(\*|[0-9]+)\]""")
_MARK = "$(steps"

ReadResult = Callable[[Part, str], "str | None"]
"""The text of a file that a part has written; None if there is none. Raises ValueError."""
CodePath = Callable[[str], str]
"""Where the file with the exit code of a part is for the other parts."""


class ResultMissing(Exception):
    """A part reads a result that does not exist. The message is a sentence."""


class PartReferences:
    """Replaces the references in the texts of parts."""

    def __init__(self, parts: Mapping[str, Part], read: ReadResult, code_path: CodePath) -> None:
        self._parts = parts
        self._read = read
        self._code_path = code_path
        self.wants_codes = any("exitCode" in text for part in parts.values() for text in texts_of(part))
        """Does any part read the exit code of another?"""

    def filled(self, part: Part) -> Part:
        """Raises ResultMissing."""
        if not any(_MARK in text for text in texts_of(part)):
            return part
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
        """A word that consists of all elements of an array becomes as many words."""
        for word in words:
            found = _REFERENCE.fullmatch(word)
            path = _segments(found[1]) if found is not None else []
            part = self._part(path) if path[-1:] == ["*"] else None
            if part is not None:
                yield from (_shown(item) for item in self._array(part, path[2]))
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
                raise ResultMissing(f"the result {path[2]!r} of part {part.name} has no {key!r}") from None
        return _shown(value)

    def _part(self, path: Sequence[str]) -> Part | None:
        """The part that a reference names; None if it names none."""
        if len(path) < 3 or (path[1] != "results" and path[1:] != ["exitCode", "path"]):
            return None
        return self._parts.get(path[0]) or self._parts.get(path[0].removeprefix("step-"))

    def _array(self, part: Part, name: str) -> list[Any]:
        value = _loaded(self._result(part, name))
        if not isinstance(value, list):
            raise ResultMissing(f"the result {name!r} of part {part.name} is not a JSON array")
        return value

    def _result(self, part: Part, name: str) -> str:
        path = part.results.get(name)
        if path is None:
            raise ResultMissing(f"part {part.name} declares no result {name!r}")
        try:
            text = self._read(part, path)
        except ValueError as error:
            raise ResultMissing(f"the result {name!r} of part {part.name} {error}") from None
        if text is None:
            raise ResultMissing(f"part {part.name} has not written its result {name!r} to {path}")
        return text.removesuffix("\n")


def _segments(text: str) -> list[str]:
    return [next(group for group in found.groups() if group is not None) for found in _SEGMENT.finditer(text)]


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
