"""A terminal, as small as what we draw needs it: text, carriage return, line feed, cursor up, erase, wrapping on and off."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import termios

_TOKEN = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)")


class Terminal(io.StringIO):
    """What is written to it can be looked at as `screen`. Its size is that of a real one, which may change."""

    encoding = "utf-8"  # type: ignore[assignment]

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        super().__init__()
        self._leader, self._follower = pty.openpty()
        self.resize(columns, lines)
        self.cursor_shown = True
        self.wraps = True
        self._read = 0
        self.grid: list[str] = [""]
        self.x = self.y = 0

    def close(self) -> None:
        os.close(self._leader)
        os.close(self._follower)
        super().close()

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._follower

    def resize(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        fcntl.ioctl(self._follower, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    @property
    def screen(self) -> list[str]:
        """Every line that is on the screen or has gone off its top, without blanks at the end."""
        text = self.getvalue()[self._read :]
        self._read += len(text)
        at = 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            assert token, f"unknown: {text[at : at + 20]!r}"
            at = token.end()
            self._do(token)
        return [line.rstrip() for line in self.grid]

    def _do(self, token: re.Match[str]) -> None:
        private, numbers, code, back, feed, words = token.groups()
        if back:
            self.x = 0
        elif feed:
            self.x, self.y = 0, self.y + 1
            if self.y == len(self.grid):
                self.grid.append("")
        elif words:
            self._print(words)
        elif code == "A":
            self.y = max(0, len(self.grid) - self.lines, self.y - int(numbers or 1))
        elif code == "K":
            self.grid[self.y] = self.grid[self.y][: self.x]
        elif code == "J":
            self.grid[self.y] = self.grid[self.y][: self.x]
            del self.grid[self.y + 1 :]
        elif private and numbers == "25":
            self.cursor_shown = code == "h"
        elif private and numbers == "7":
            self.wraps = code == "h"
        else:
            assert code == "m", f"unknown: {token.group()!r}"

    def _print(self, words: str) -> None:
        assert len(words) + self.x <= self.columns, f"wider than the screen: {words!r}"
        line = self.grid[self.y].ljust(self.x)
        self.grid[self.y] = line[: self.x] + words + line[self.x + len(words) :]
        self.x += len(words)
