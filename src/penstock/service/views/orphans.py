"""Processes of tasks that outlived the engine of a lost run. Called by `penstock ls` and `penstock why`.

They go on until somebody ends them: the next engine that starts on this store does. Only those of this machine are seen.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.backends.base import Orphan
from penstock.service.home_files import HomeFiles
from penstock.store.records import RunRecord


def orphans_of(home: HomeFiles, lost: Iterable[RunRecord]) -> dict[str, list[Orphan]]:
    """Run -> the first process of each of its tasks that still runs. `lost`: runs whose engine is gone."""
    engines: dict[str, list[str]] = {}
    for run in lost:
        if run.engine:
            engines.setdefault(run.engine, []).append(run.id)
    found: dict[str, list[Orphan]] = {}
    for engine, runs in engines.items():
        for one in home.orphans([engine]):
            # A worker does not say for which of the runs of its engine it works.
            name = one.run or (runs[0] if len(runs) == 1 else "")
            if name in runs:
                found.setdefault(name, []).append(one)
    return found
