"""One document → the job that it is: its roles of pods and its pod sets. Called by apply, by the backend of resource steps and by service.sizing.

`pods of what`: given a manifest, `pod_sets` says what a Workload of Kueue would hold.
"""

from __future__ import annotations

from penstock.formats.documents import Document, Library
from penstock.scheduling import fields
from penstock.scheduling.kinds.table import kind_of
from penstock.scheduling.model import JobObject, JobPodSet


def job_object(document: Document, library: Library | None = None) -> JobObject | None:
    """None: this kind makes no pods that we know. `library`: the documents beside it. Raises DocumentError, P887."""
    kind = kind_of(document)
    if kind is None:
        return None
    found = kind.pods(document, library or Library((document,)))
    sets = found.pod_sets
    if sets is None:
        sets = tuple(JobPodSet(role.name, role.count, role.requests, role.pod) for role in found.roles)
    return JobObject(document, kind, found.roles, sets, found.notes, found.unknown)


def pod_sets(document: Document, library: Library | None = None) -> tuple[JobPodSet, ...]:
    """What Kueue counts of an object: name, count and size of each set of pods. Raises DocumentError, P887, also
    for a kind that is not in the table."""
    found = job_object(document, library)
    if found is None or found.unknown:
        message = found.unknown if found else f"{document.kind} is no kind whose pods are known"
        raise fields.wrong(document, ("kind",), message, "name an object of a known kind: penstock explain P887")
    return found.pod_sets
