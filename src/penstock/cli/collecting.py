"""Garbage is collected again, in commands that go on for long. Called by foreground, serving and controller."""

from __future__ import annotations

import gc


def collect_garbage() -> None:
    """`main` has switched it off for what is made at start-up, which is needed until the end and need not be looked at again."""
    gc.freeze()
    gc.enable()
