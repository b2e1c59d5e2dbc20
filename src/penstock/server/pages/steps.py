"""A step of a run for people: its state, its counts as words and as a bar. Called by the pages about a run."""

from __future__ import annotations

import time
from typing import Any

from penstock.phrases import duration
from penstock.server.pages.site import WORDS
from penstock.service.task_states import BAD
from penstock.service.views.outline import StepNode


def shown_step(node: StepNode, stamps: Any, reason: str) -> dict[str, Any]:
    """A row: what the author wrote, however many tasks it has."""
    total = node.total or 0
    counts = [
        (tone, node.count(states))
        for tone, states in (
            ("good", ("succeeded", "reused")),
            ("bad", BAD),
            ("busy", ("running",)),
            ("warn", ("retrying", "suspended", "cancelled")),
            ("wait", ("waiting",)),
        )
    ]
    took = ""
    if stamps:
        end = stamps[1] if node.over and len(stamps) > 1 else time.time()
        took = duration(max(0.0, end - stamps[0])) if node.state not in ("reused", "skipped", "omitted") else ""
    parts, at = [], 0.0
    for tone, many in counts if node.many and total else ():
        if many:
            parts.append((tone, round(at, 2), round(100 * many / total, 2)))
            at += 100 * many / total
    words = [f"{many:,} {WORDS.get(state, state)}" for state, many in node.tally.items() if many and state != "tasks"]
    return {
        "path": node.path,
        "name": node.name,
        "depth": min(node.depth, 8),
        "state": node.state,
        "many": node.many,
        "total": node.total,
        "took": took,
        "reason": reason,
        "bar": parts,
        "counts": " · ".join(words),
    }
