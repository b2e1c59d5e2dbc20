"""What is to follow from the end of a run that is submitted: the option `follow` of its record. Called by Submission.

Each kind of it has a part, which says its entries; engine.follow makes them rows of the outbox.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.graph.model import Workflow
from penstock.service.callbacks import entries as callbacks

PARTS: Final[tuple[Callable[[Workflow], list[dict[str, Any]]], ...]] = (callbacks.entries,)


def entries(workflow: Workflow) -> list[dict[str, Any]]:
    return [entry for part in PARTS for entry in part(workflow)]
