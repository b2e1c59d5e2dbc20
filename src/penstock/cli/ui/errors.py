"""Errors, warnings and reports of translations on the terminal. Called by main and by the commands."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from penstock.cli.ui.render import clean, data, near, note, paint
from penstock.errors import PenstockError, Problem, UserError

if TYPE_CHECKING:
    from penstock.formats.report import Entry


def error(failure: PenstockError) -> None:
    if not isinstance(failure, UserError):
        note(f"{_red('error')}: {failure}")
        return
    for one in failure.problems:
        problem(one)
    codes = list(dict.fromkeys(problem.code for problem in failure.problems))
    note(f"  more   penstock explain {clean(codes[0])}" + (f"   (and {', '.join(codes[1:])})" if codes[1:] else ""))


def problems(found: Iterable[Problem]) -> None:
    for one in found:
        problem(one)


def problem(problem: Problem) -> None:
    """With its place and its fix."""
    word = problem.severity
    head = paint(f"{word}[{clean(problem.code)}]", sys.stderr, fg="red" if word == "error" else "yellow", bold=True)
    lines = [f"{head}: {clean(problem.message)}"]
    if problem.source is not None:
        column = f":{problem.source.column}" if problem.source.column else ""
        lines.append(f"  at     {clean(near(problem.source.file))}:{problem.source.line}{column}")
    if problem.where:
        lines.append(f"  in     {clean(problem.where)}")
    if problem.excerpt.strip():
        text = clean(problem.excerpt.expandtabs(1))
        margin = len(text) - len(text.lstrip())
        lines.append(f"         {text.strip()}")
        if problem.source is not None and problem.source.column > margin:
            lines.append("         " + " " * (problem.source.column - 1 - margin) + _red("^"))
    lines.append(f"  fix    {clean(problem.fix)}")
    note("\n".join(lines))


def usage(failure: click.UsageError) -> None:
    path = failure.ctx.command_path if failure.ctx is not None else "penstock"
    note(f"{_red('error')}: {failure.format_message()}")
    note(f"  fix    {path} --help")


def internal(failure: Exception) -> None:
    note(f"{_red('error[P900]')}: internal error in Penstock: {type(failure).__name__}: {failure}")
    note("  fix    run it again with PENSTOCK_DEBUG=1 and report what it prints")


def _red(text: str) -> str:
    return paint(text, sys.stderr, fg="red", bold=True)


def entries(found: Iterable[Entry]) -> None:
    """What a translation changed or lost, one line each."""
    for entry in found:
        place = f" ({entry.source})" if entry.source is not None else ""
        nearest = f" {entry.near}" if entry.near else ""
        head = paint(entry.kind, sys.stderr, fg={"lost": "red", "changed": "yellow"}.get(entry.kind, "green"))
        note(f"{head} {clean(entry.path)}: {clean(entry.message)}{place}.{nearest}")


def explanation(code: str, entry: Mapping[str, str]) -> None:
    """An entry of the catalogue of error codes."""
    data(paint(f"{code}  {entry['title']}", bold=True) + "\n")
    for paragraph in entry["text"].strip().split("\n\n"):
        data(textwrap.fill(paragraph, min(shutil.get_terminal_size().columns, 110)) + "\n")
    for name in ("wrong", "right"):
        if entry.get(name):
            data(f"{name}:")
            data("\n".join(f"    {line}" for line in entry[name].rstrip().splitlines()) + "\n")
