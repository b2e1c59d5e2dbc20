"""Rules for one name, number or word. Called by every module of rules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from penstock.errors import Source, nearest
from penstock.graph.check.context import Context
from penstock.graph.limits import LARGEST_COUNT

LONGEST_SECONDS: Final = 10**10


def check_name(context: Context, name: str, pattern: re.Pattern[str], where: str, source: Source | None) -> None:
    if not pattern.match(name):
        context.report(
            "P211",
            f"{name[:140]!r} is not a usable name",
            "use letters, digits, '-' and '_', at most 128, beginning and ending with a letter or digit",
            where,
            source,
        )


def check_unique(context: Context, names: list[str], noun: str, where: str, source: Source | None) -> None:
    """Reports the first name that occurs twice, at `where.name`."""
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        context.report("P210", f"two {noun}s are named {twice!r}", "rename one", f"{where}.{twice}", source)


def check_count(context: Context, value: int | None, where: str, source: Source | None, low: int = 1) -> None:
    if value is not None and not low <= value <= LARGEST_COUNT:
        context.report(
            "P231",
            f"{where.rpartition('.')[2]} is {value}",
            f"give a whole number from {low} to {LARGEST_COUNT}",
            where,
            source,
        )


def check_seconds(context: Context, value: float | None, where: str, source: Source | None) -> None:
    if value is not None and not 0 < value < LONGEST_SECONDS:
        context.report(
            "P231", f"{where.rpartition('.')[2]} is {value} seconds", "give more than 0 seconds", where, source
        )


def check_word(context: Context, value: str, known: tuple[str, ...], where: str, source: Source | None) -> None:
    if value not in known:
        context.report(
            "P233",
            f"{value!r} is not one of {', '.join(known)}",
            f"use one of those.{nearest(value, known)}",
            where,
            source,
        )


def brief(value: object) -> str:
    """A value in a message, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def cycle_path(names: Iterable[str]) -> str:
    """A cycle in a message, back to its first name."""
    first, *rest = names
    return " → ".join([first, *rest, first])
