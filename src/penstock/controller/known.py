"""The engines that are installed, found by the entry point `penstock.engines`. Called by the shell and by the commands."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from importlib.metadata import entry_points

from penstock.controller.engine import Engine
from penstock.controller.objects import ApiResource
from penstock.errors import Problem, UserError, instead

GROUP = "penstock.engines"
_OURS = "penstock."


def engines(names: Collection[str] = ()) -> list[Engine]:
    """All engines, or those of these names. Raises UserError."""
    found = {point.name: point for point in entry_points(group=GROUP)}
    unknown = [name for name in names if name not in found]
    if unknown:
        raise UserError(Problem("P897", f"there is no engine {unknown[0]!r}", instead(unknown[0], found)))
    return [found[name].load() for name in sorted(found) if not names or name in names]


def other_kinds() -> list[ApiResource]:
    """What users create for the engines of other packages. An engine that cannot be loaded has none: a question about another object is answered."""
    found: list[ApiResource] = []
    for point in entry_points(group=GROUP):
        if not point.module.startswith(_OURS):
            try:
                found += [replace(one, selector="") for one in point.load().main]
            except Exception:  # whatever the package of somebody else does
                continue
    return found
