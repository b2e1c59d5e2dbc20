"""Dask's kinds: a scheduler, workers, and the runner of a DaskJob. Called by the table in kinds.

The operator gives every label and annotation of the object to all of its pods, and to no pod others than the rest. So a gang has one task group, and there is one only
if scheduler and workers are alike.
"""

from __future__ import annotations

from penstock.formats.documents import Document, Library
from penstock.scheduling import fields
from penstock.scheduling.model import Data, JobPods, Path, Role, Slot

RUNNER = "it comes when the cluster runs, so a gang that waited for it would never be complete"


def cluster(document: Document, library: Library) -> JobPods:
    return JobPods(tuple(_cluster(document, ("spec",))))


def job(document: Document, library: Library) -> JobPods:
    place: Path = ("spec", "job", "spec")
    runner = Role("job", "job", _pod(document, place), 1, 1, _slot(place), RUNNER)
    return JobPods((*_cluster(document, ("spec", "cluster", "spec")), runner))


def workers(document: Document, library: Library) -> JobPods:
    return JobPods((_workers(document, ("spec", "worker")),))


def _cluster(document: Document, spec: Path) -> list[Role]:
    fields.mapping(document, spec, "it describes the cluster")
    place = (*spec, "scheduler", "spec")
    scheduler = Role("scheduler", "dask", _pod(document, place), 1, 1, _slot(place))
    return [scheduler, _workers(document, (*spec, "worker"))]


def _workers(document: Document, where: Path) -> Role:
    place = (*where, "spec")
    count = fields.count(document, (*where, "replicas"), 1)
    return Role("worker", "dask", _pod(document, place), count, count, _slot(place))


def _pod(document: Document, place: Path) -> Data:
    """A PodSpec without metadata."""
    spec = fields.mapping(document, place, "it says what the pods are")
    fields.check_pod(document, place)
    return {"spec": spec}


def _slot(place: Path) -> Slot:
    return Slot(("metadata", "labels"), ("metadata", "annotations"), (*place, "schedulerName"), shared=True)
