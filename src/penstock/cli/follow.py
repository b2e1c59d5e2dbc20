"""Commands that follow a run from another process than the one that runs it: watch, logs.

Both look at the store five times a second, and read it only if somebody has written to it since.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click

from penstock.cli import render
from penstock.cli.common import look_into, output_option
from penstock.service import runs, views
from penstock.settings import Settings, read
from penstock.store.base import FINAL, Run, TaskRow
from penstock.store.sql import Store

POLL = 0.2
LOOK = 2.0
"""Seconds between looks at whether the engine is still alive: its death is not written anywhere."""
PATIENCE = 15.0
"""Seconds that a run may take to get an engine, when it was started in the background a moment ago."""


class Follower:
    """Tells when there is something new about a run."""

    def __init__(self, store: Store, run: Run) -> None:
        self.store = store
        self.run = run
        self.state = runs.state_of(store, run)
        self._token: object = None
        self._looked = time.monotonic()
        self._until = time.monotonic() + PATIENCE

    @property
    def over(self) -> bool:
        """Is nothing more to be expected? A run that was only just submitted is about to begin."""
        if self.state == "stopped" and self.run.seq <= 1:
            return time.monotonic() > self._until
        return self.state in (*FINAL, "stopped", "lost")

    def news(self) -> bool:
        """Has anything been written since the last time?"""
        token = self.store.changed()
        late = time.monotonic() - self._looked > LOOK
        if token == self._token and not late:
            return False
        changed = token != self._token
        self._token = token
        self._looked = time.monotonic()
        current = self.store.run_by_number(self.run.number)
        if current is None:
            raise views.removed(self.run)
        self.run = current
        self.state = runs.state_of(self.store, current)
        return changed


@click.command()
@click.argument("name", metavar="RUN")
@click.option("--exit-status", is_flag=True, help="End with the run's own result: 0 if it succeeded, 3 if not.")
@output_option
def watch(name: str, exit_status: bool, output: str) -> None:
    """Follow RUN live until it is over, from any terminal; then say how it went. Ctrl-C ends the watching, not the run.

    \b
    penstock watch @
    penstock watch finetune-3 --exit-status && penstock show finetune-3

    As JSON: nothing until the run is over, then the same as penstock show RUN -o json."""
    settings = read()
    with look_into(settings) as store:
        run = runs.find(store, name)
        follower = Follower(store, run)
        _watch(store, follower, quiet=output == "json")
        view = views.overview(store, follower.run, settings)
        if output == "json":
            render.json_out(view.as_data())
        else:
            from penstock.cli.screens import summary

            summary(view, settings)
    if exit_status and view.state != "succeeded":
        raise click.exceptions.Exit(3)


def _watch(store: Store, follower: Follower, quiet: bool) -> None:
    if quiet:
        while True:
            follower.news()
            if follower.over:
                return
            time.sleep(POLL)
    from penstock.cli.progress import Progress
    from penstock.service.why import InLine

    reader, line = views.Reader(store, follower.run), InLine(store, follower.run)
    with Progress(follower.run.id, runs.workflow_of(store, follower.run), sys.stdout) as progress:
        rest = 0.0
        while True:
            now = time.monotonic()
            if follower.news() or not reader.tallies or follower.over:
                reader.read()
                rest = time.monotonic() - now
            seconds = views.seconds_of(reader.run, time.time()) or 0.0
            waits = line.texts() if follower.state == "running" else {}
            progress.update(reader.tallies, reader.times, seconds, follower.state, waits)
            if follower.over:
                return
            # A run of a million tasks takes a while to read: then we look less often.
            time.sleep(max(POLL, 4 * rest))


# -- logs -------------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("target", metavar="RUN[/STEP]")
@click.option(
    "-f", "--follow", is_flag=True, help="Go on until the run, or the step or task that was named, has ended."
)
@click.option("--failed", is_flag=True, help="Only tasks that failed.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines of each task.")
@click.option("--grep", metavar="TEXT", help="Only lines with TEXT in them.")
@output_option
def logs(target: str, follow: bool, failed: bool, tail: int | None, grep: str | None, output: str) -> None:
    """Show what the tasks of RUN, of one STEP or one task have printed, during the run or any time after it.

    When there are several tasks, each line says which one it is from. A task that was tried several times shows its last try.

    \b
    penstock logs @ -f                 everything, as it comes
    penstock logs @ --failed --tail 20
    penstock logs '@/train[3]'
    penstock logs @ --grep 'loss='

    As JSON: a list of {task, step, state, attempt, lines}; with -f, one {task, line} on each line."""
    settings = read()
    name, path = runs.split(target)
    with look_into(settings) as store:
        run = runs.find(store, name)
        path = path.rstrip("/")
        if path:
            views.check_path(store, run, path)
        printer = Printer(settings, grep, tail, output)
        if follow:
            Tail(store, run, path, failed, printer).run()
        else:
            _print_logs(store, run, path, failed, printer)


def _print_logs(store: Store, run: Run, path: str, failed: bool, printer: Printer) -> None:
    rows = views.tasks(store, run, path, states=views.BAD if failed else None)
    if len(rows) == 1 and rows[0].state == "reused":
        rows = [_origin(store, rows[0])]
    kept = [row for row in rows if row.info.get("log")]
    if printer.json:
        render.json_out([data for row in kept for data in printer.as_data(row)])
        return
    printer.prefix(kept, alone=len(kept) == 1)
    shown = sum(printer.whole(row) for row in kept)
    if not shown:
        reused = sum(row.state == "reused" for row in rows)
        what = (
            f"{path or run.id} has printed nothing" if printer.grep is None else f"no line has {printer.grep!r} in it"
        )
        render.note(
            what + (f"   ({reused:,} tasks were reused: their logs are with the runs they come from)" if reused else "")
        )


def _origin(store: Store, row: TaskRow) -> TaskRow:
    """A result that was reused has its log where it was computed."""
    source = row.info.get("from") or {}
    earlier = store.run(str(source.get("run")))
    found = None if earlier is None else store.task(earlier.number, str(source.get("task")))
    if found is None:
        render.note(f"{row.task} was reused from {source.get('run')}, which is gone")
        return row
    render.note(f"{row.task} was reused from {source['run']}/{source['task']}; this is what it printed there")
    return found


class Printer:
    """Lines of logs as they go to the screen."""

    def __init__(self, settings: Settings, grep: str | None, tail: int | None, output: str) -> None:
        self.settings = settings
        self.grep = grep
        self.last = tail
        self.json = output == "json"
        self._width = 0
        self._alone = False

    def prefix(self, rows: Sequence[TaskRow], alone: bool) -> None:
        self._alone = alone
        self._width = min(max((len(row.task) for row in rows), default=0), 40)

    def wanted(self, lines: Sequence[str]) -> list[str]:
        return [line for line in lines if self.grep is None or self.grep in line]

    def lines_of(self, row: TaskRow) -> list[str]:
        exact = self.last if self.grep is None else None
        text = runs.log_text(self.settings, row.info.get("log") or (), exact)
        lines = self.wanted(_lines(text))
        return lines if self.last is None else lines[len(lines) - min(self.last, len(lines)) :]

    def as_data(self, row: TaskRow) -> Iterator[dict[str, Any]]:
        lines = self.lines_of(row)
        if lines:
            yield {"task": row.task, "step": row.step, "state": row.state, "attempt": row.attempt, "lines": lines}

    def whole(self, row: TaskRow) -> int:
        lines = self.lines_of(row)
        self.put(row.task, lines)
        return len(lines)

    def put(self, task: str, lines: Sequence[str]) -> None:
        """To a terminal nothing goes that would move its cursor; a pipe gets the bytes as they were."""
        if self.json:
            import json

            for line in lines:
                click.echo(json.dumps({"task": task, "line": line}, ensure_ascii=False))
        elif not render.is_terminal():
            click.echo("".join(f"{line}\n" if self._alone else f"{task}\t{line}\n" for line in lines), nl=False)
        else:
            self._width = max(self._width, min(len(task), 40))
            head = "" if self._alone else render.paint(f"{task:<{self._width}} │ ", dim=True)
            click.echo("".join(f"{head}{render.clean(line.expandtabs())}\n" for line in lines), nl=False)


def _lines(text: str) -> list[str]:
    """Without the colours that some programs insist on, and of a progress bar only the last that it said."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


class Tail:
    """Prints what tasks print, while they do, also those that start later.

    Several tasks share the file of their worker, and where one ends is known only once that is recorded. So of a task that
    runs only what was there a moment ago is printed: had it ended by then, we would know by now."""

    def __init__(self, store: Store, run: Run, path: str, failed: bool, printer: Printer) -> None:
        self.store = store
        self.path = path
        self.failed = failed
        self.printer = printer
        self.follower = Follower(store, run)
        self._at: dict[tuple[str, int], dict[str, int]] = {}
        """(task, attempt) -> file -> how far it has been printed."""
        self._rest: dict[tuple[str, int], bytes] = {}
        self._sizes: dict[str, int] = {}
        self._rows: list[TaskRow] = []
        self._done: set[tuple[str, int]] = set()

    def run(self) -> None:
        self.printer.prefix([], alone=self._one_task())
        self._rows = self._read()
        self._sizes = self._measure()
        first, over = True, False
        while True:
            sizes = self._measure()
            news = self.follower.news()
            if news:
                self._rows = self._read()
                over = bool(self.path) and self._path_over()
            for row in self._rows:
                self._print(row, first)
            self._sizes, first = sizes, False
            if (over or self.follower.over) and not news:  # once more after the last news
                break
            time.sleep(POLL)
        if self.follower.state in ("lost", "stopped"):
            render.note(f"{self.follower.run.id} is {self.follower.state}: penstock resume {self.follower.run.id}")

    def _one_task(self) -> bool:
        return bool(self.path) and self.store.task(self.follower.run.number, self.path) is not None

    def _read(self) -> list[TaskRow]:
        rows = views.tasks(self.store, self.follower.run, self.path, states=views.BAD if self.failed else None)
        return [row for row in rows if row.info.get("log") and (row.task, row.attempt) not in self._done]

    def _path_over(self) -> bool:
        row = self.store.task(self.follower.run.number, self.path)
        if row is not None and row.state in views.ENDED:
            return True
        reader = views.Reader(self.store, self.follower.run)
        reader.read()
        outline = views.Outline(runs.workflow_of(self.store, self.follower.run))
        outline.measure(reader.tallies, self.follower.run.state)
        node = outline.by_path.get(self.path)
        return node is not None and node.over

    def _measure(self) -> dict[str, int]:
        names = {part[0] for row in self._rows for part in row.info["log"] if part[2] is None}
        found = {}
        for name in names:
            try:
                found[name] = (self.printer.settings.home / name).stat().st_size
            except OSError:
                continue
        return found

    def _print(self, row: TaskRow, first: bool) -> None:
        which = row.task, row.attempt
        if which in self._done:
            return
        ended = row.state in views.ENDED
        at = self._at.setdefault(which, {})
        data = self._rest.pop(which, b"")
        for name, start, end in row.info["log"]:
            upto = end if end is not None else None if ended else self._sizes.get(name, 0)
            begin = at.get(name, start)
            try:
                with open(self.printer.settings.home / name, "rb") as file:
                    file.seek(begin)
                    piece = file.read() if upto is None else file.read(max(0, upto - begin))
            except FileNotFoundError:
                continue
            at[name] = begin + len(piece)
            data += piece
        if ended:
            self._done.add(which)
            whole, rest = data, b""
        else:
            whole, line_end, rest = data.rpartition(b"\n")
            whole += line_end
        if rest:
            self._rest[which] = rest
        lines = self.printer.wanted(_lines(whole.decode("utf-8", "replace"))) if whole else []
        if first and self.printer.last is not None:
            lines = lines[len(lines) - min(self.printer.last, len(lines)) :]
        if lines:
            self.printer.put(row.task, lines)
