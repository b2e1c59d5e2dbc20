"""Signs and colours of states. Imported by the screens that show runs, steps and tasks."""

from __future__ import annotations

from collections.abc import Mapping

MARKS: Mapping[str, tuple[str, str]] = {
    "": ("·", ""),
    "running": ("▶", "cyan"),
    "suspended": ("⏸", "yellow"),
    "retrying": ("▶", "yellow"),
    "waiting": ("▶", "yellow"),
    "succeeded": ("✓", "green"),
    "reused": ("✓", "green"),
    "failed": ("✗", "red"),
    "errored": ("✗", "red"),
    "skipped": ("·", ""),
    "omitted": ("·", ""),
    "cancelled": ("✗", "yellow"),
    "starting": ("▷", "cyan"),
    "stopped": ("⏸", "yellow"),
    "lost": ("✗", "red"),
    "queued": ("▷", "yellow"),
}
"""State of a run, step or task -> its sign and colour."""
STATES: Mapping[str, str] = {state: colour for state, (_, colour) in MARKS.items() if state and colour}
"""State -> colour, where it has one."""
WORDS: Mapping[str, str] = {"succeeded": "done"}
"""State -> the word for a number of tasks in it, where it is another."""
EMPHASIS: Mapping[str, str] = {
    "failed": "red",
    "errored": "red",
    "suspended": "yellow",
    "retrying": "yellow",
    "cancelled": "yellow",
}
"""State -> colour of a number of tasks in it."""
