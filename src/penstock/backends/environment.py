"""The environment that processes of tasks inherit. Called once by the engine, and by prestart, which is before it."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.urls import STORE, without_password

_SECRET = "PENSTOCK_SECRET"
"""Variables that begin with it hold secrets or say where they are."""


def for_tasks(environ: Mapping[str, str]) -> dict[str, str]:
    """Without secrets, which a task is given one by one, and without the password of the store."""
    found = {name: value for name, value in environ.items() if not name.startswith(_SECRET)}
    if STORE in found:
        found[STORE] = without_password(found[STORE])
    return found
