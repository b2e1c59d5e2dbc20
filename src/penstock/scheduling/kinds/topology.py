"""The topology request of a pod set, from the annotations of its pod template, as Kueue 0.19 builds it. Called by the other modules of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.formats.documents import part
from penstock.scheduling.model import Data

_PREFIX = "kueue.x-k8s.io/podset-"


def topology_of(pod: Data, index: str = "", sub_group: tuple[str, int] | None = None) -> Data | None:
    """None if the template asks for no topology. `index`: the label that numbers the pods. `sub_group`: the label that numbers the jobs, and how many there are."""
    asked = {str(key).removeprefix(_PREFIX): str(value) for key, value in part(pod, "metadata", "annotations").items()}
    found: dict[str, Any] = {}
    if "required-topology" in asked:
        found["required"] = asked["required-topology"]
    elif "preferred-topology" in asked:
        found["preferred"] = asked["preferred-topology"]
    elif "unconstrained-topology" in asked:
        found["unconstrained"] = asked["unconstrained-topology"].lower() in ("1", "t", "true")
    found |= _slices(asked)
    if not found:
        return None
    if index:
        found["podIndexLabel"] = index
    if sub_group is not None:
        found["subGroupIndexLabel"], found["subGroupCount"] = sub_group
    if "group-name" in asked and ("required" in found or "preferred" in found):
        found["podSetGroupName"] = asked["group-name"]
    return found


def _slices(asked: Mapping[str, str]) -> dict[str, Any]:
    size = asked.get("slice-size", "")
    if "slice-required-topology" in asked and size.isascii() and size.isdigit():
        return {"podSetSliceRequiredTopology": asked["slice-required-topology"], "podSetSliceSize": int(size)}
    return {}
