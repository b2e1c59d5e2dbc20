"""The letters of a path, read one after another. Called by paths, path_filters and intrinsics."""

from __future__ import annotations

import re
from typing import Final

from penstock.formats.asl.language.failures import MalformedText

_NAME: Final = re.compile(r"[^\s.\[\](),'\"?*@&|=<>!$:{}\\]+|\$(?=\w)")
_WHOLE: Final = re.compile(r"\s*(-?\d{1,18})\s*")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
MAX_DEPTH: Final = 40


class Reader:
    """A text and a position in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    @property
    def done(self) -> bool:
        return self.at >= len(self.text)

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, word: str) -> bool:
        if self.text.startswith(word, self.at):
            self.at += len(word)
            return True
        return False

    def expect(self, word: str) -> None:
        if not self.take(word):
            raise self.wrong(f"{word!r} is missing")

    def spaces(self) -> None:
        while self.peek() in (" ", "\t", "\n", "\r") and not self.done:
            self.at += 1

    def name(self) -> str:
        found = _NAME.match(self.text, self.at)
        if found is None:
            raise self.wrong("a name is missing")
        self.at = found.end()
        return found.group()

    def whole(self) -> int | None:
        found = _WHOLE.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return int(found.group(1))

    def number(self) -> int | float | None:
        found = _NUMBER.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        try:
            return int(found.group())
        except ValueError:
            return float(found.group())

    def quoted(self) -> str:
        """A text in quotes of either kind."""
        mark = self.peek()
        if mark not in ("'", '"') or self.done:
            raise self.wrong("a name in quotes is missing")
        self.at += 1
        letters: list[str] = []
        while not self.done:
            letter = self.text[self.at]
            self.at += 1
            if letter == mark:
                return "".join(letters)
            if letter == "\\" and self.peek() == mark and not self.done:  # every other backslash is a letter
                letter = mark
                self.at += 1
            letters.append(letter)
        raise self.wrong(f"{mark} is not closed")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.wrong(f"nested deeper than {MAX_DEPTH}")

    def wrong(self, message: str) -> MalformedText:
        return MalformedText(f"{message}, at character {self.at + 1}")
