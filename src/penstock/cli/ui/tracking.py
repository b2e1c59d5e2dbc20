"""What became of a run on the tracking server, at the end of a command that executed it. Called by foreground."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.ui import render

if TYPE_CHECKING:
    from penstock.service.tracking.sender import TrackingState


def tracking_line(told: TrackingState, run: str) -> str:
    if not told.left:
        return f"  mlflow {told.url}"
    why = told.trouble or f"{told.url} takes its time"
    return f"  mlflow {render.plural(told.left, 'event')} still to be told: {why}; the next run does, or: penstock resume {run}"
