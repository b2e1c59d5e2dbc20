"""The command that clears away: gc.

A run that is not finished is never touched, and neither is anything that a record still speaks of, or that is younger than an
hour. --dry-run cannot say which blobs only the runs speak of that would go; when these are gone it is looked again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from penstock.artifacts.blobs import Blobs
from penstock.backends.places import mangled
from penstock.cli import render
from penstock.cli.common import length, look_into, output_option
from penstock.errors import Problem, UserError
from penstock.service import runs
from penstock.settings import Settings, read
from penstock.store import liveness
from penstock.store.base import FINAL, Run
from penstock.store.sql import Store

YOUNG = 3600.0
"""Seconds. What was touched since may belong to something that is not recorded yet."""


@dataclass(slots=True)
class Plan:
    """What is to go."""

    runs: list[Run] = field(default_factory=list)
    blobs: dict[str, int] = field(default_factory=dict)
    folders: dict[Path, int] = field(default_factory=dict)
    kept: int = 0
    """Finished runs that are old enough to go, but are the newest of their workflow."""
    results: int = 0
    database: int = 0
    notes: list[str] = field(default_factory=list)

    def as_data(self, removed: bool) -> dict[str, Any]:
        return {
            "removed": removed, "runs": [run.id for run in self.runs], "results": self.results, "blobs": len(self.blobs),
            "folders": [str(path) for path in self.folders],
            "bytes": {"blobs": sum(self.blobs.values()), "folders": sum(self.folders.values()), "database": self.database},
            "kept": self.kept, "notes": self.notes,
        }  # fmt: skip


@click.command()
@click.option(
    "--older", callback=length, default="30d", show_default=True, metavar="TIME", help="Runs that ended so long ago."
)
@click.option(
    "--keep",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    metavar="N",
    help="But not the newest N of a workflow.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--shared", is_flag=True, help="Also blobs outside the home folder: nobody else keeps anything there.")
@output_option
def gc(older: float, keep: int, dry_run: bool, yes: bool, shared: bool, output: str) -> None:
    """Remove finished runs that are old, and everything that nobody refers to any more: results, blobs, logs, scratch folders.

    A run that is not finished is never touched. Results of a run that is removed can no longer be reused, unless another run has
    them too.

    \b
    penstock gc --dry-run
    penstock gc --older 7d --keep 3 --yes

    As JSON: {removed, runs, results, blobs, folders, bytes: {blobs, folders, database}, kept, notes}."""
    settings = read()
    if not dry_run and not yes and not (render.is_terminal() and os.isatty(0)):
        raise UserError(Problem("P509", "nobody is there to say yes", "--yes removes, --dry-run only shows"))
    now = time.time()
    with look_into(settings) as store:
        plan = Plan()
        plan.runs, plan.kept = doomed(store.runs(), now - older, keep)
        sweep = _Sweep(store, settings, plan, now, shared)
        sweep.look()
        if dry_run:
            _tell(plan, output, removed=False)
            return
        if not yes:
            _tell(plan, "table", removed=False)
            if not (plan.runs or plan.blobs or plan.folders):
                return
            click.confirm("remove this?", abort=True, err=True)
        sweep.remove(now - older)
    _tell(plan, output, removed=True)


def doomed(found: Sequence[Run], before: float, keep: int) -> tuple[list[Run], int]:
    """Finished runs that ended before, without the newest of each workflow; and how many stay only because of that."""
    seen: dict[str, int] = {}
    going, kept = [], 0
    for run in found:  # the newest first
        seen[run.workflow] = seen.get(run.workflow, 0) + 1
        if run.state not in FINAL or run.ended is None or run.ended >= before:
            continue
        if seen[run.workflow] <= keep:
            kept += 1
        else:
            going.append(run)
    return going, kept


class _Sweep:
    def __init__(self, store: Store, settings: Settings, plan: Plan, now: float, shared: bool) -> None:
        self.store = store
        self.settings = settings
        self.plan = plan
        self.now = now
        self.blobs = Blobs(settings.artifacts)
        home, database = settings.home, settings.home / "state.db"
        # Somebody who changes PENSTOCK_STORE now and then has records of one home in two stores, and we see one.
        self.mixed = settings.store != str(home) and database.exists()
        inside = "://" not in settings.artifacts and Path(settings.artifacts).absolute().is_relative_to(home)
        self.sweep_blobs = (inside or shared) and not self.mixed
        if self.mixed:
            plan.notes.append(f"{home} has a store of its own beside {runs.place_of(settings)}: blobs and folders stay")
        elif not self.sweep_blobs:
            plan.notes.append(f"blobs in {settings.artifacts} stay: others may use them   (--shared if not)")

    # -- deciding -----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """As things are now, with the runs that are to go left out of account."""
        folders = self._listed()  # before the records are read: a folder comes after its run is recorded
        gone = {run.number for run in self.plan.runs}
        left = [run for run in self.store.runs() if run.number not in gone]
        if not self.mixed:
            names = self._names(left)
            bundles = {str(run.options.get("bundle") or "").removeprefix("sha256:") for run in left}
            for path in folders:
                if not self._wanted(path, names, bundles) and self._age(path) > YOUNG:
                    self.plan.folders[path] = _size(path)
        if self.sweep_blobs:
            listed = list(self.blobs.all())
            used = self.store.referenced_blobs()
            self.plan.blobs = {
                digest: size for digest, size, at in listed if digest not in used and self.now - at > YOUNG
            }

    def _listed(self) -> list[Path]:
        home = self.settings.home
        found = []
        for place in (home / "logs", home / "work", home / "work" / "outputs", home / "cache" / "bundles"):
            if place.is_dir():
                found += [path for path in sorted(place.iterdir()) if path != home / "work" / "outputs"]
        return found

    def _names(self, left: Iterable[Run]) -> set[str]:
        """What folders and files of logs and scratch are called that are still wanted."""
        names = set()
        for run in left:
            names |= {run.id, mangled(run.id), f"{run.id}.engine.log"}
            if run.engine:
                names.add(run.engine)
            # The logs of functions lie with the engine that ran them.
            for event in self.store.events(run.number):
                if event.kind == "run.started" and "engine" in event.data:
                    names.add(event.data["engine"])
        return names | {engine.id for engine in self.store.engines() if liveness.alive(engine) is not False}

    def _wanted(self, path: Path, names: set[str], bundles: set[str]) -> bool:
        return path.name in (bundles if path.parent.name == "bundles" else names)

    def _age(self, path: Path) -> float:
        try:
            newest = max(
                [path.stat().st_mtime, *(entry.stat().st_mtime for entry in path.iterdir())]
                if path.is_dir()
                else [path.stat().st_mtime]
            )
        except OSError:
            return 0.0
        return self.now - newest

    # -- removing -----------------------------------------------------------------------------------------------------

    def remove(self, before: float) -> None:
        size = _size(self.settings.home / "state.db")
        going = [run for run in self.plan.runs if self._let_go(run)]
        count, self.plan.results = self.store.delete_runs([run.number for run in going], before)
        still = {run.number for run in self.store.runs()}
        self.plan.runs = [run for run in self.plan.runs if run.number not in still]
        # Blobs and folders once more: what was only held by the runs and results that are gone now goes too.
        self.plan.blobs, self.plan.folders = {}, {}
        self.look()
        for digest in list(self.plan.blobs):
            place = self.blobs.local(digest)
            if place is not None and self.now - place.stat().st_mtime < YOUNG:
                del self.plan.blobs[digest]  # written again meanwhile
            else:
                self.blobs.delete(digest)
        for path in self.plan.folders:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        if count and not any(liveness.alive(engine) is not False for engine in self.store.engines()):
            self.store.vacuum()
            self.plan.database = max(0, size - _size(self.settings.home / "state.db"))

    def _let_go(self, run: Run) -> bool:
        """A finished run still has the name of the engine that finished it. Taken from it only if nobody took it before us."""
        me = liveness.identity().id
        if not self.store.take(run.number, me, run.engine):
            return False
        current = self.store.run_by_number(run.number)
        state = run.state if current is None else current.state
        return self.store.release(run.number, me, state) and state in FINAL


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file() and not entry.is_symlink())


def _tell(plan: Plan, output: str, removed: bool) -> None:
    data = plan.as_data(removed)
    if output == "json":
        render.json_out(data)
        return
    size = data["bytes"]
    rows = [
        ["runs", str(len(plan.runs)), _bytes(size["database"]) if removed else "", _few([run.id for run in plan.runs])],
        ["results", str(plan.results), "", ""] if removed else ["results", "?", "", "that no other run has"],
        [
            "blobs",
            str(len(plan.blobs)),
            _bytes(size["blobs"]),
            "" if removed or not plan.runs else "and those that only these runs have",
        ],
        ["folders", str(len(plan.folders)), _bytes(size["folders"]), _few([path.name for path in plan.folders])],
    ]
    render.table(["REMOVED" if removed else "WOULD GO", "HOW MANY", "FREES", "WHICH"], rows)
    if plan.kept:
        render.note(f"kept as the newest of their workflows: {plan.kept}   (--keep 0 removes these too)")
    for note in plan.notes:
        render.note(note)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 5 else f"{', '.join(names[:4])} and {len(names) - 4:,} more"


def _bytes(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
