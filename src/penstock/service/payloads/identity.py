"""What of a payload counts, and the id that follows from it. Called by submit. Pure.

The id is a UUID of version 5 over the name of the workflow and the canonical JSON of what counts. So whoever has the same payload gets the same id,
on any machine.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Final

from penstock.errors import PlanError, Problem
from penstock.graph.model import Workflow
from penstock.graph.payload_paths import EACH, PayloadIdentity, PayloadPath, parse_path
from penstock.service.payloads.canonical import NotCanonical, canonical

NAMESPACE: Final = uuid.UUID("6a0d5c0b-9f1e-5d53-8a6c-5f5b0f3d2a71")
_OUT: Any = object()
"""Nothing of it counts."""


def identity_of(workflow: Workflow) -> PayloadIdentity:
    """Raises PlanError: it has none."""
    if workflow.payload is None:
        message = f"the workflow {workflow.name!r} does not say what identifies its payload"
        fix = "write @workflow(payload=PayloadIdentity(…)), or `payload:` in the document; or run it: penstock run"
        raise PlanError(Problem("P514", message, fix, source=workflow.source))
    return workflow.payload


def payload_id(workflow: str, identity: PayloadIdentity, payload: Any) -> str:
    """Raises PlanError: it is no JSON, or a path matches nothing."""
    part = counted(identity, payload)
    try:
        text = canonical(part)
    except NotCanonical as error:
        fix = "send plain JSON: maps with text as keys, lists, texts, numbers below 1.8e308, at most 200 levels deep"
        raise PlanError(Problem("P512", f"the payload cannot be used: {error}", fix, where=identity.param)) from None
    return str(uuid.uuid5(NAMESPACE, f"{workflow}\n{text}"))


def counted(identity: PayloadIdentity, payload: Any) -> Any:
    """The part of a payload that identifies it. Raises PlanError."""
    if not identity.include and not identity.exclude:
        return payload
    root = _Node()
    for text in identity.include:
        root.add(parse_path(text), True)
    for text in identity.exclude:
        root.add(parse_path(text), False)
    missing = [text for text in identity.include if not _matches(parse_path(text), payload)]
    if missing:
        fix = "correct the path or the payload; a path that ends in ? may match nothing"
        raise PlanError(
            [Problem("P513", f"{text} matches nothing in the payload", fix, where=identity.param) for text in missing]
        )
    found = _project(payload, root, not identity.include)
    return None if found is _OUT else found


class _Node:
    """A place that paths lead to or through."""

    __slots__ = ("below", "counts")

    def __init__(self) -> None:
        self.counts: bool | None = None
        """None: as what it is in."""
        self.below: dict[str | None, _Node] = {}

    def add(self, path: PayloadPath, counts: bool) -> None:
        node = self
        for part in path.parts:
            node = node.below.setdefault(part, _Node())
        node.counts = counts


def _project(value: Any, node: _Node, counts: bool) -> Any:
    """What counts of a value; the nearest path above a place decides about it. Not deeper than the paths: the rest is taken as it is."""
    if node.counts is not None:
        counts = node.counts
    if type(value) is dict and node.below:
        kept = {key: item for key, item in value.items() if counts and key not in node.below}
        for key, below in node.below.items():
            if key is not EACH and key in value:
                found = _project(value[key], below, counts)
                if found is not _OUT:
                    kept[key] = found
        return kept if kept or counts else _OUT
    if isinstance(value, list | tuple) and EACH in node.below:
        items = [_project(item, node.below[EACH], counts) for item in value]
        if all(item is _OUT for item in items):
            return [] if counts else _OUT
        return [None if item is _OUT else item for item in items]  # so that the others keep their place
    return value if counts else _OUT


def _matches(path: PayloadPath, payload: Any) -> bool:
    if path.optional:
        return True
    level: Iterable[Any] = [payload]
    for part in path.parts:
        if part is EACH:
            level = [item for value in level if isinstance(value, list | tuple) for item in value]
        else:
            level = [value[part] for value in level if type(value) is dict and part in value]
    return any(True for _ in level)
