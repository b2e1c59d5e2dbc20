"""Outputs as screens show them. Called by the views of runs and tasks, and at the end of a run."""

from __future__ import annotations

from typing import Any

from penstock.artifacts.values import loads
from penstock.graph.stored import Stored


def shown_outputs(text: str | None) -> dict[str, Any]:
    """From the text that the store has. A value that is stored as a blob is described, not loaded."""
    return {} if text is None else {name: _shown(value) for name, value in loads(text).items()}


def _shown(value: Any) -> Any:
    if isinstance(value, Stored):
        return f"<{value.kind} of {value.size:,} bytes, {value.digest[:19]}>"
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    return value
