"""Where an attempt's log and scratch folder lie below the home. Called by the backends that need either."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from penstock.backends.base import Order

_UNSAFE = re.compile(r"[^A-Za-z0-9._\[\]=,@+-]")


def mangled(name: str) -> str:
    """A name as one part of a path: readable, never too long, never the same for two names."""
    safe = _UNSAFE.sub("_", name)
    if safe == name and len(safe) <= 150 and not safe.startswith("."):
        return safe
    return f"{safe[:120].lstrip('.')}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def attempt_name(order: Order) -> str:
    return f"{mangled(order.task)}.{order.attempt}"


def log_name(order: Order, suffix: str = "log") -> str:
    """Below the home."""
    return f"logs/{mangled(order.run)}/{attempt_name(order)}.{suffix}"


def work_folder(home: Path, order: Order) -> Path:
    return home / "work" / mangled(order.run) / attempt_name(order)


def volumes_folder(home: Path, run: str) -> Path:
    """What the tasks of a run share. No attempt has this name: theirs end with a number."""
    return home / "work" / mangled(run) / "volumes"
