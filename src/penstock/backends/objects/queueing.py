"""Puts the objects of resource steps into the cluster's queue: the metadata that Kueue or YuniKorn reads. Called by resource before it creates an object.

A step has a queue here only if no queue of ours holds quota for it (see AttemptSpec.queue), so quota is held once. Which scheduler: PENSTOCK_SCHEDULER; else Kueue, if the
cluster has a LocalQueue of that name in the object's namespace; else none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.backends.kubectl import Kubectl
from penstock.errors import UserError
from penstock.formats.documents import Document
from penstock.scheduling.apply import ScheduleOptions, queue_of, schedule_one
from penstock.scheduling.model import Binding
from penstock.scheduling.objects import job_object
from penstock.scheduling.registry import scheduler

NONE = "none"


@dataclass(frozen=True, slots=True)
class Queued:
    """A manifest with its metadata, what must be made before it, and what the log says about it."""

    manifest: dict[str, Any]
    before: tuple[Mapping[str, Any], ...] = ()
    lines: tuple[str, ...] = ()


async def queued(kubectl: Kubectl, manifest: dict[str, Any], queue: str, chosen: str) -> Queued:
    """`queue`: of the step; `chosen`: PENSTOCK_SCHEDULER. Raises UserError: no such scheduler, or it cannot take the object."""
    if not queue or chosen == NONE:
        return Queued(manifest)
    document = Document(manifest, "the manifest")
    plugin = scheduler(chosen) if chosen else None
    try:
        job = job_object(document)
    except UserError as error:
        if plugin is not None:
            raise
        return Queued(
            manifest, lines=(f"it is put into no queue: {error.problems[0].message}",)
        )  # the cluster has the last word
    if job is None:
        return Queued(manifest)
    own = queue_of(job)
    if plugin is None:
        if own:
            return Queued(manifest)
        found, line = await _has_local_queue(kubectl, manifest, queue)
        if not found:
            return Queued(manifest, lines=(line,) if line else ())
        plugin = scheduler("kueue")
    result = schedule_one(document, plugin, ScheduleOptions(Binding(queue="" if own else queue)))
    *before, whole = result.documents
    lines = [f"{plugin.name}: {one.message}" for one in result.report.entries if one.kind != "kept"]
    return Queued(dict(whole), tuple(before), tuple(lines))


async def _has_local_queue(kubectl: Kubectl, manifest: Mapping[str, Any], queue: str) -> tuple[bool, str]:
    """Does Kueue have this queue in the namespace of the object? And a line for the log if that cannot be seen."""
    namespace = str((manifest.get("metadata") or {}).get("namespace") or "")
    try:
        return await kubectl.exists("localqueues.kueue.x-k8s.io", queue, namespace), ""
    except (UserError, ValueError) as error:
        return False, f"whether {queue} is a queue of Kueue's cannot be seen, so it is put into none: {error}"
