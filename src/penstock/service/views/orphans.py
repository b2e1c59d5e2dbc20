"""Processes of tasks that outlived the engine of a lost run. Called by `penstock ls` and `penstock why`.

They go on until somebody ends them: the next engine that starts on this store does. Only those of this machine are seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from penstock.backends.base import Orphan
from penstock.backends.registry import orphans
from penstock.store.records import RunRecord


def orphans_of(home: Path, lost: Iterable[RunRecord]) -> dict[str, list[Orphan]]:
    """Run -> the first process of each of its tasks that still runs. `lost`: runs whose engine is gone."""
    engines: dict[str, list[str]] = {}
    for run in lost:
        if run.engine:
            engines.setdefault(run.engine, []).append(run.id)
    found: dict[str, list[Orphan]] = {}
    for engine, runs in engines.items():
        every = orphans(home, [engine])
        pids = {one.pid for one in every}
        for one in every:
            # A worker does not say for which of the runs of its engine it works.
            name = one.run or (runs[0] if len(runs) == 1 else "")
            if name in runs and not _belongs(one.pid, pids):
                found.setdefault(name, []).append(one)
    return found


def _belongs(pid: int, pids: set[int]) -> bool:
    """Was it started by another one of these?"""
    try:
        group = os.getpgid(pid)
    except OSError:
        return True  # it has ended
    return group != pid and group in pids
