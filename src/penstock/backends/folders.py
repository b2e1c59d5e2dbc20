"""Where the logs and scratch folders of attempts are below the home. Called by the backends, and by `penstock gc`."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from penstock.backends.base import AttemptSpec

_UNSAFE = re.compile(r"[^A-Za-z0-9._\[\]=,@+-]")


def mangled(name: str) -> str:
    """A name as one part of a path: readable, not too long, and different for different names."""
    safe = _UNSAFE.sub("_", name)
    if safe == name and len(safe) <= 150 and not safe.startswith("."):
        return safe
    return f"{safe[:120].lstrip('.')}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def attempt_name(spec: AttemptSpec) -> str:
    return f"{mangled(spec.task)}.{spec.attempt}"


def log_name(spec: AttemptSpec, suffix: str = "log") -> str:
    """Below the home."""
    return f"logs/{mangled(spec.run)}/{attempt_name(spec)}.{suffix}"


def work_folder(home: Path, spec: AttemptSpec) -> Path:
    return home / "work" / mangled(spec.run) / attempt_name(spec)


def volumes_folder(home: Path, run: str) -> Path:
    """Folders that the tasks of a run share. No attempt has this name: the names of attempts end with a number."""
    return home / "work" / mangled(run) / "volumes"


def is_below(path: str, folder: str) -> bool:
    """Is it the folder itself, or inside it?"""
    folder = folder.rstrip("/")
    return path == folder or path.startswith(f"{folder}/")
