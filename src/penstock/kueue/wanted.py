"""What an engine wants of a Workload in the cluster, and the one write that comes next on the way there. Called by the backend
kubernetes, again after each write and each change that is seen; and by the engine, which reads what Kueue has decided. Pure.

Nothing is remembered between two calls, so it does not matter who made a Workload, how far he came, or what Kueue did meanwhile. The
protocol is in docs/ideas/kueue-protocol.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.kubernetes.objects import (
    Object,
    Write,
    annotations_of,
    condition,
    holds,
    is_deleted,
    name_of,
    namespace_of,
    part,
    rows,
)
from penstock.kueue import status
from penstock.kueue.kinds import WORKLOADS

ENGINE: Final = "penstock/engine"
SHAPE: Final = "penstock/shape"
PLACE: Final = "penstock/place"
RESERVATION: Final = "penstock/reservation"
"""Annotations: which engine follows it; a digest of its pod sets but for their counts; it only keeps a place in the queue; for people, the run
and what of it it is for."""


@dataclass(frozen=True, slots=True)
class DesiredWorkload:
    """One Workload as its engine wants it. Its pod sets are in the order of `counts`."""

    document: Object
    """As it is created, with its name; the counts in it are those that were asked for last."""
    counts: tuple[int, ...]
    """By pod set: pods that are still needed."""
    whole: bool = True
    """Fewer are of no use."""
    place: bool = False
    """It is not its turn yet: it is switched off, and keeps its place in the queue by the time of its creation."""
    running: bool = False
    """Tasks may run on it: it must not be changed or given back."""


def next_write(wanted: DesiredWorkload | None, seen: Object | None, me: str, now: float) -> Write | None:
    """None: there is nothing to do, or Kueue has the next word. `wanted`: None: it is not needed any more. `me`: the engine; another's
    Workload is taken over if it is wanted, and left alone if not."""
    if seen is None:  # what ran on one that was deleted stops first
        return None if wanted is None or wanted.running else _create(wanted, me)
    if is_deleted(seen):
        return None
    mine = annotations_of(seen).get(ENGINE) == me
    if wanted is None:
        return status.delete(seen, "it is not needed any more") if mine else None
    if not mine:
        if wanted.running:
            return None  # another engine has taken it over, and its run
        return status.patch(seen, _versioned(seen, {"annotations": {ENGINE: me}}), "another engine follows it")
    if wanted.running:
        return _while_running(wanted, seen, now)
    if holds(seen, "Finished"):
        return status.delete(seen, "it was ended by another, and is needed")
    if not is_occupied(seen):
        return _change(wanted, seen)
    if holds(seen, "Evicted"):
        return status.respond(seen, now)
    if wanted.place or not fits(wanted, seen):
        return status.delete(seen, "what was admitted is not what is needed now")
    return None


def _create(wanted: DesiredWorkload, me: str) -> Write:
    meta = part(wanted.document, "metadata")
    notes = {**annotations_of(wanted.document), ENGINE: me}
    spec = dict(part(wanted.document, "spec"))
    if wanted.place:
        notes[PLACE] = "true"
        spec["active"] = False
    body = {"metadata": {**meta, "annotations": notes}, "spec": spec}
    return Write("create", WORKLOADS, namespace_of(wanted.document), name_of(wanted.document), body)


def _while_running(wanted: DesiredWorkload, seen: Object, now: float) -> Write | None:
    if not is_admitted(seen):
        return None  # its tasks are being stopped
    if not holds(seen, "PodsReady"):
        return status.pods_ready(seen, now)
    asked = [(str(one.get("name") or "main"), int(one.get("count") or 0)) for one in rows(seen, "spec", "podSets")]
    gone = {name: max(0, count - left) for (name, count), left in zip(asked, wanted.counts, strict=False)}
    return status.reclaim(seen, gone)


def _change(wanted: DesiredWorkload, seen: Object) -> Write | None:
    """While nothing is reserved it follows what is asked for. What somebody else has switched off stays off."""
    notes: dict[str, Any] = {}
    spec: dict[str, Any] = {}
    now, there = part(wanted.document, "spec"), part(seen, "spec")
    shape = annotations_of(wanted.document).get(SHAPE)
    if shape != annotations_of(seen).get(SHAPE) or _counts(now) != _counts(there):
        notes[SHAPE] = shape
        spec["podSets"] = now.get("podSets")
        if rows(seen, "status", "reclaimablePods"):  # they are of the pods that were asked for before
            body = {**_versioned(seen, {}), "status": {"reclaimablePods": []}}
            return status.patch(seen, body, "asks anew", "status")
    for name in ("queueName", "priority", "priorityClassRef"):
        if now.get(name) is not None and now.get(name) != there.get(name):
            spec[name] = now[name]
    if PLACE in annotations_of(seen) and not wanted.place:
        notes[PLACE] = None
        spec["active"] = True
    if not spec:
        return None
    return status.patch(
        seen, {**_versioned(seen, {"annotations": notes}), "spec": spec}, "what it asks for has changed"
    )


def _counts(spec: Object) -> list[tuple[Any, Any]]:
    return [(one.get("count"), one.get("minCount")) for one in rows(spec, "podSets")]


def _versioned(seen: Object, meta: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": part(seen, "metadata").get("resourceVersion"), **meta}}


# -- what is seen -----------------------------------------------------------------------------------------------------


def is_occupied(seen: Object) -> bool:
    """Does it count against the queue, until that is answered?"""
    return holds(seen, "QuotaReserved") or bool(part(seen, "status", "admission"))


def is_admitted(seen: Object) -> bool:
    """May its pods run?"""
    return holds(seen, "Admitted") and not (holds(seen, "Evicted") or holds(seen, "Finished") or is_deleted(seen))


def room(seen: Object) -> tuple[int, ...]:
    """By pod set: the pods that it holds."""
    given = {str(one.get("name")): int(one.get("count") or 0) for one in _assignments(seen)}
    gone = {str(one.get("name")): int(one.get("count") or 0) for one in rows(seen, "status", "reclaimablePods")}
    found = []
    for one in rows(seen, "spec", "podSets"):
        name, asked = str(one.get("name") or "main"), int(one.get("count") or 0)
        found.append(max(0, min(given.get(name, asked), asked - gone.get(name, 0))))
    return tuple(found)


def fits(wanted: DesiredWorkload, seen: Object) -> bool:
    """Is what it holds what is wanted?"""
    if annotations_of(seen).get(SHAPE) != annotations_of(wanted.document).get(SHAPE):
        return False
    there = room(seen)
    if len(there) != len(wanted.counts):
        return False
    return all(has >= asks if wanted.whole else has > 0 for has, asks in zip(there, wanted.counts, strict=True))


def flavors(seen: Object) -> list[dict[str, str]]:
    """By pod set: resource -> flavor."""
    given = {str(one.get("name")): one for one in _assignments(seen)}
    return [
        {
            str(resource): str(flavor)
            for resource, flavor in part(given.get(str(one.get("name")), {}), "flavors").items()
        }
        for one in rows(seen, "spec", "podSets")
    ]


def _assignments(seen: Object) -> list[Object]:
    return rows(seen, "status", "admission", "podSetAssignments")


def waits_for(seen: Object | None) -> tuple[str, str]:
    """(Kueue's reason, its message). Both empty: Kueue has not said anything."""
    if seen is None:
        return "", ""
    evicted = condition(seen, "Evicted")
    if evicted.get("status") == "True" and (is_occupied(seen) or condition(seen, "Requeued").get("status") == "False"):
        return str(evicted.get("reason", "")), str(evicted.get("message", ""))
    if holds(seen, "QuotaReserved") and not holds(seen, "Admitted"):
        checks = [
            f"{one.get('name')} is {one.get('state')}{': ' if one.get('message') else ''}{one.get('message') or ''}"
            for one in rows(seen, "status", "admissionChecks")
            if one.get("state") != "Ready"
        ]
        return "AdmissionCheck", f"admission check {'; '.join(checks)}" if checks else "it is about to be admitted"
    said = condition(seen, "QuotaReserved")
    return (str(said.get("reason", "")), str(said.get("message", ""))) if said.get("status") == "False" else ("", "")
