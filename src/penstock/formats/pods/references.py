"""Documents that a pod refers to by name. Called by the formats with pods in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_FIELDS: Final = {
    "configMapKeyRef": "ConfigMap",
    "configMapRef": "ConfigMap",
    "configMap": "ConfigMap",
    "secretKeyRef": "Secret",
    "secretRef": "Secret",
    "secret": "Secret",
}


def pod_references(field: str, value: Mapping[str, Any]) -> str:
    """The kind of document that a field of a pod refers to; empty if to none."""
    return _FIELDS.get(field, "")
