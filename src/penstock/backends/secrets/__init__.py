"""Secrets: where their texts come from (sources), attempts with the texts in place (reveal), and what is printed without them (mask,
masked_log)."""

from __future__ import annotations

from collections.abc import Mapping

_PREFIX = "PENSTOCK_SECRET"
"""Variables that begin with it hold secrets or say where they are."""


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment as tasks may see it."""
    return {name: value for name, value in environ.items() if not name.startswith(_PREFIX)}
