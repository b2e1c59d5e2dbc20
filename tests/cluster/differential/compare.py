"""Two answers, side by side. Called by run at every quiet point.

An answer has for each Workload: `state` (pending, reserved, admitted, evicted: told to stop and not yet stopped, finished; those that were
deleted are not there), `queue`, `podsets` with count and flavors, and of an eviction `evicted` (its reason), `preempted` (the reason of the
preemption) and `by` (the uid of the Workload it makes room for).
"""

from __future__ import annotations

import json
from typing import Any

Doc = dict[str, Any]


def differences(theirs: dict[str, Doc], ours: dict[str, Doc]) -> list[str]:
    """A line for each Workload that stands otherwise; empty if all is the same."""
    return [
        f"{name}: kueue {_short(theirs.get(name))} | penstock {_short(ours.get(name))}"
        for name in sorted(theirs.keys() | ours.keys())
        if theirs.get(name) != ours.get(name)
    ]


def _short(one: Doc | None) -> str:
    if one is None:
        return "not there"
    parts = [one["state"]]
    for podset in one.get("podsets", ()):
        flavors = ",".join(f"{resource}={flavor}" for resource, flavor in podset["flavors"].items())
        parts.append(f"{podset['name']}x{podset['count']}[{flavors}]")
    parts += [f"{key}={one[key]}" for key in ("evicted", "preempted", "by") if key in one]
    return " ".join(parts)


def side_by_side(theirs: dict[str, Doc], ours: dict[str, Doc], width: int = 90) -> str:
    """All of both answers, with a mark where they differ."""
    lines = [f"  {'':4} {'kueue':{width}} penstock"]
    for name in sorted(theirs.keys() | ours.keys()):
        mark = " " if theirs.get(name) == ours.get(name) else "*"
        lines.append(f"{mark} {name:4} {_short(theirs.get(name)):{width}} {_short(ours.get(name))}")
    return "\n".join(lines)


def dumped(doc: Doc) -> str:
    return json.dumps(doc, indent=1)
