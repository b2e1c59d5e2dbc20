"""The states of a task, in groups. Imported by the views and the screens."""

from __future__ import annotations

ACTIVE = ("running", "suspended", "retrying", "waiting")
"""It has started and has not ended."""
ENDED = ("succeeded", "reused", "failed", "errored", "skipped", "omitted", "cancelled")
BAD = ("failed", "errored")
