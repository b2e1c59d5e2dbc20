"""Values of inputs and outputs on the terminal. Called by the screens of runs and tasks."""

from __future__ import annotations

import json
from typing import Any


def shown_value(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"$stored"} and "digest" in value["$stored"]:
        return _stored(value["$stored"])
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _stored(stored: dict[str, Any]) -> str:
    """A value that is stored as a blob: what it is, and its path if it is on this machine."""
    from penstock.artifacts.blobs import Blobs
    from penstock.settings import read

    path = Blobs(read().artifacts).local(stored["digest"])
    name = f" {stored['name']}" if stored.get("name") else ""
    return f"<{stored['kind']}{name} of {stored['size']:,} bytes>  {path or stored['digest']}"
