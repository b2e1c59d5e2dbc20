"""What an object says of itself and what its pods printed, for the log of the step. Called by resource."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from penstock.backends.kubectl import Kubectl
from penstock.errors import UserError
from penstock.scheduling.kinds import outcomes

MOST_PODS = 20
"""Pods whose output is kept, of one object."""
LINES = 2000
"""Last lines that are kept of each."""


class StatusLines:
    """Which lines of an object's status are new."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def news(self, object_: Any) -> list[str]:
        """Nothing is said twice in a row; a condition that comes back is said again."""
        now = outcomes.told(object_) if isinstance(object_, Mapping) else []
        found = [line for line in now if line not in self._said]
        self._said = set(now)
        return found


async def printed(kubectl: Kubectl, object_: Mapping[str, Any]) -> list[str]:
    """The output of its pods, each below a line with its name. What cannot be had is said, and is no failure of the step."""
    known = outcomes.ending_of(object_)
    if known is None:
        return []
    namespace = str((object_.get("metadata") or {}).get("namespace") or "")
    is_pod = object_.get("kind") == "Pod"
    try:
        if is_pod:
            pods = [object_]
        else:
            found: dict[str, Mapping[str, Any]] = {}
            for selector in known.pods(object_):
                found |= {one["metadata"]["name"]: one for one in await kubectl.pods(namespace, selector)}
            pods = list(found.values())
    except (UserError, ValueError) as error:
        return [f"the output of its pods cannot be had: {error}"]
    texts = await asyncio.gather(*(_of_pod(kubectl, namespace, one) for one in pods[:MOST_PODS]))
    lines = [line for text in texts for line in text]
    if len(pods) > MOST_PODS:
        lines.append(f"and {len(pods) - MOST_PODS} more pods, whose output is left on the cluster")
    return lines


async def _of_pod(kubectl: Kubectl, namespace: str, pod: Mapping[str, Any]) -> list[str]:
    name = str(pod["metadata"]["name"])
    phase = str((pod.get("status") or {}).get("phase") or "")
    head = f"--- pod {name}{f' ({phase})' if phase else ''}"
    try:
        text = await kubectl.log(namespace, name, LINES)
    except (UserError, ValueError) as error:
        return [head, f"its output cannot be had: {error}"]
    return [head, *text.splitlines()]
