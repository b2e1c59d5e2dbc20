"""Small things that the tests against a cluster share."""

from __future__ import annotations

import secrets
from typing import Any

from testbed.instance import Testbed


def unique(stem: str) -> str:
    """A name nobody else has: tests share a cluster."""
    return f"{stem}-{secrets.token_hex(3)}"


def fresh_namespace(bed: Testbed, labels: dict[str, str] | None = None) -> str:
    """A namespace of its own, usable: its default ServiceAccount is there."""
    name = unique("t")
    bed.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}}])
    bed.wait(
        lambda: bed.found(f"/api/v1/namespaces/{name}/serviceaccounts/default"), f"the default ServiceAccount of {name}"
    )
    return name


def condition(thing: dict[str, Any], kind: str) -> dict[str, Any]:
    """The condition of that type in an object's status; empty where there is none."""
    for entry in thing.get("status", {}).get("conditions", []):
        if entry["type"] == kind:
            found: dict[str, Any] = entry
            return found
    return {}


def is_true(thing: dict[str, Any], kind: str) -> bool:
    return condition(thing, kind).get("status") == "True"
