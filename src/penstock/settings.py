"""Where things are kept and how much this machine may do: one object, read once at the edge. Called by service."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import Problem, UserError

FOLDER = ".penstock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    home: Path
    """Logs, artifacts and scratch; and the store, unless that is elsewhere. $PENSTOCK_HOME, or the nearest .penstock."""
    store: str
    """A folder, or postgresql://… $PENSTOCK_STORE."""
    artifacts: str
    """A folder, or any fsspec URL (s3://…). $PENSTOCK_ARTIFACTS."""
    jobs: int
    """How many tasks run here at the same time. $PENSTOCK_JOBS, or the number of processors."""


def read(
    environ: Mapping[str, str] | None = None,
    home: str | Path | None = None,
    store: str | None = None,
    jobs: int | None = None,
) -> Settings:
    env = os.environ if environ is None else environ
    place = Path(home or env.get("PENSTOCK_HOME") or nearest(Path.cwd())).absolute()
    return Settings(
        home=place,
        store=store or env.get("PENSTOCK_STORE") or str(place),
        artifacts=env.get("PENSTOCK_ARTIFACTS") or str(place / "artifacts"),
        jobs=_jobs(env, jobs),
    )


def nearest(folder: Path) -> Path:
    """The .penstock of this folder or of one above it; this folder's, to be made, if there is none."""
    for one in (folder, *folder.parents):
        if (one / FOLDER).is_dir():
            return one / FOLDER
    return folder / FOLDER


def _jobs(env: Mapping[str, str], given: int | None) -> int:
    text = str(given) if given is not None else env.get("PENSTOCK_JOBS", "")
    if text:
        if text.isdecimal() and int(text) > 0:
            return int(text)
        raise UserError(Problem("P407", f"{text!r} is not a number of jobs", "give a whole number above 0, as in -j 4"))
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
