"""Removing old runs, and everything that no record refers to. Called by `penstock gc`.

A run that has not ended is never touched, nor is anything that a record refers to or that is younger than an hour. Before the runs are
removed it is not known which blobs only they refer to; afterwards the blobs are examined again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.backends.folders import mangled
from penstock.service import stores
from penstock.service.callbacks.entries import KIND
from penstock.service.tracking.rest import untold
from penstock.service.usage import Counter
from penstock.settings import Settings
from penstock.store import liveness
from penstock.store.records import FINAL, RunRecord
from penstock.store.sql import Store

YOUNG = 3600.0
"""Seconds. What was changed more recently may belong to something that is not recorded yet."""


@dataclass(slots=True)
class CleanupPlan:
    """What is to be removed, or was."""

    runs: list[RunRecord] = field(default_factory=list)
    blobs: dict[str, int] = field(default_factory=dict)
    """Digest -> bytes."""
    folders: dict[Path, int] = field(default_factory=dict)
    """Path -> bytes. Logs and scratch folders; some are files."""
    kept: int = 0
    """Runs that are old enough, but are the newest of their workflow."""
    results: int = 0
    database: int = 0
    """Bytes by which the database became smaller."""
    notes: list[str] = field(default_factory=list)

    def as_data(self, removed: bool) -> dict[str, Any]:
        return {
            "removed": removed,
            "runs": [run.id for run in self.runs],
            "results": self.results,
            "blobs": len(self.blobs),
            "folders": [str(path) for path in self.folders],
            "bytes": {
                "blobs": sum(self.blobs.values()),
                "folders": sum(self.folders.values()),
                "database": self.database,
            },
            "kept": self.kept,
            "notes": self.notes,
        }


def old_runs(found: Sequence[RunRecord], before: float, keep: int) -> tuple[list[RunRecord], int]:
    """Runs that ended before a time, without the newest `keep` of each workflow; and how many are kept only for that reason. `found`:
    all runs, the newest first."""
    seen: dict[str, int] = {}
    old, kept = [], 0
    for run in found:
        seen[run.workflow] = seen.get(run.workflow, 0) + 1
        if run.state not in FINAL or run.ended is None or run.ended >= before:
            continue
        if seen[run.workflow] <= keep:
            kept += 1
        else:
            old.append(run)
    return old, kept


class Cleanup:
    """First `examine`, then `remove`. `before`: a time; runs that ended before it are removed, except the newest `keep` of each
    workflow. `shared`: remove blobs outside the home folder too."""

    def __init__(
        self, store: Store, settings: Settings, now: float, before: float, keep: int, shared: bool = False
    ) -> None:
        self.store = store
        self.settings = settings
        self.now = now
        self.before = before
        self.plan = CleanupPlan()
        self.plan.runs, self.plan.kept = old_runs(store.runs.newest(), before, keep)
        self._keep_untold()
        self._blobs = stores.blobs_of(settings)
        home = settings.home
        # If PENSTOCK_STORE was changed, records of this home are in two stores, and we see only one of them.
        self._two_stores = settings.store != str(home) and (home / "state.db").exists()
        own = "://" not in settings.artifacts and Path(settings.artifacts).absolute().is_relative_to(home)
        self._remove_blobs = (own or shared) and not self._two_stores
        if self._two_stores:
            self.plan.notes.append(
                f"{home} has a store of its own beside {stores.name_of(settings)}: blobs and folders are kept"
            )
        elif not self._remove_blobs:
            self.plan.notes.append(
                f"blobs in {settings.artifacts} are kept: others may use them   (--shared removes them)"
            )

    def _keep_untold(self) -> None:
        """Runs of which somebody is still to be told stay."""
        mlflow = "MLflow has not been told all   (penstock resume tells it, PENSTOCK_MLFLOW=no gives it up)"
        callbacks = "callbacks are still to be delivered   (penstock callbacks deliver)"
        for missing, why in ((untold(self.store), mlflow), (self.store.deliveries.runs_left(KIND), callbacks)):
            kept = [run for run in self.plan.runs if run.number in missing]
            if kept:
                self.plan.runs = [run for run in self.plan.runs if run.number not in missing]
                more = f" and {len(kept) - 1} more" if len(kept) > 1 else ""
                self.plan.notes.append(f"{kept[0].id}{more} kept: {why}")

    def examine(self) -> None:
        """Find what no record refers to, the runs to be removed left out."""
        folders = self._folders()  # before the records are read: a run is recorded before its folder is made
        old = {run.number for run in self.plan.runs}
        left = [run for run in self.store.runs.newest() if run.number not in old]
        if not self._two_stores:
            names = self._names(left)
            bundles = {str(run.options.get("bundle") or "").removeprefix("sha256:") for run in left}
            for path in folders:
                used = path.name in (bundles if path.parent.name == "bundles" else names)
                if not used and self._age(path) > YOUNG:
                    self.plan.folders[path] = _size(path)
        if self._remove_blobs:
            for path, size, at in self._blobs.leftovers():
                if self.now - at > YOUNG:
                    self.plan.folders[path] = size
            listed = list(self._blobs.all())
            used_blobs = self.store.maintenance.referenced_blobs()
            self.plan.blobs = {
                digest: size for digest, size, at in listed if digest not in used_blobs and self.now - at > YOUNG
            }

    def _folders(self) -> list[Path]:
        home = self.settings.home
        found = []
        for place in (home / "logs", home / "work", home / "work" / "outputs", home / "cache" / "bundles"):
            if place.is_dir():
                found += [path for path in sorted(place.iterdir()) if path != home / "work" / "outputs"]
        return found

    def _names(self, left: Iterable[RunRecord]) -> set[str]:
        """Names of the log and scratch folders of these runs, and of the engines that are alive."""
        names = set()
        for run in left:
            names |= {
                run.id,
                mangled(run.id),
                f"{run.id}.engine.log",
                os.path.basename(str(run.options.get("place", ""))),
            }
            if run.engine:
                names.add(run.engine)
            # The logs of functions are in the folder of the engine that executed them.
            for event in self.store.runs.events(run.number):
                if event.kind == "run.started" and "engine" in event.data:
                    names.add(event.data["engine"])
        return names | {engine.id for engine in self.store.peers.engines() if liveness.alive(engine) is not False}

    def _age(self, path: Path) -> float:
        try:
            entries = [path, *path.iterdir()] if path.is_dir() else [path]
            return self.now - max(entry.stat().st_mtime for entry in entries)
        except OSError:
            return 0.0

    def remove(self) -> None:
        """Afterwards `plan` has what was removed."""
        size = _size(self.settings.home / "state.db")
        old = [run for run in self.plan.runs if self._release(run)]
        missing = set(self.store.usage.missing(0.0, self.now))
        Counter(self.store).count(run.number for run in old if run.number in missing)  # what they used stays
        self.store.usage.forget(self.now)
        count, self.plan.results = self.store.maintenance.delete_runs([run.number for run in old], self.before)
        still = {run.number for run in self.store.runs.newest()}
        self.plan.runs = [run for run in self.plan.runs if run.number not in still]
        # Again: what only the removed runs and results referred to is removed too.
        self.plan.blobs, self.plan.folders = {}, {}
        self.examine()
        for digest in list(self.plan.blobs):
            place = self._blobs.local(digest)
            if place is not None and self.now - place.stat().st_mtime < YOUNG:
                del self.plan.blobs[digest]  # written again in the meantime
            else:
                self._blobs.delete(digest)
        for path in self.plan.folders:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        if count and not any(liveness.alive(engine) is not False for engine in self.store.peers.engines()):
            self.store.maintenance.vacuum()
            self.plan.database = max(0, size - _size(self.settings.home / "state.db"))

    def _release(self, run: RunRecord) -> bool:
        """A run that has ended still names the engine that executed it. False if another engine has taken it since."""
        me = liveness.identity().id
        if not self.store.runs.take(run.number, me, run.engine):
            return False
        current = self.store.runs.by_number(run.number)
        state = run.state if current is None else current.state
        return self.store.runs.release(run.number, me, state) and state in FINAL


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file() and not entry.is_symlink())
