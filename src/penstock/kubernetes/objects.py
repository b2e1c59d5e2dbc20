"""Objects of the API server as plain data, and what may be written to it. Used by all of `controller` and by the backend `kubernetes`; pure.

An object is the JSON that the API server sends. Nothing here knows how it came or how a write is sent: that is `client`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

WORKFLOW_UID: Final = "penstock/workflow-uid"
"""The label by which a cache finds the Workloads of a workflow: its uid."""
MANAGER: Final = "penstock-controller"
"""The field manager of every write, and the name of the controller's service account."""

Object = Mapping[str, Any]
PatchType = Literal["merge", "json", "apply"]


@dataclass(frozen=True, slots=True)
class ApiResource:
    """A kind of object, and its path in the API."""

    api: str
    """`v1`, or `group/version`."""
    kind: str
    plural: str
    namespaced: bool = True
    selector: str = ""
    """A label selector: only these are watched."""

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        root = f"/apis/{self.api}" if "/" in self.api else f"/api/{self.api}"
        where = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join(piece for piece in (f"{root}{where}/{self.plural}", name, subresource) if piece)


@dataclass(frozen=True, slots=True)
class Write:
    """One request that changes the cluster. Writes of one plan are sent in order.

    After one that is refused, those about the same object are left out, and those that follow from it; the others are sent. A conflict (409), or a
    missing object (404), means that what was seen is out of date: the plan ends, and the workflow is looked at again."""

    verb: Literal["create", "patch", "delete"]
    resource: ApiResource
    namespace: str
    name: str
    body: Object = field(default_factory=dict)
    """The object, the patch, or DeleteOptions."""
    patch: PatchType = "merge"
    subresource: str = ""
    every: float = 0
    """Such a write is sent at most once in so many seconds for one object; in between the workflow is looked at again."""
    why: str = ""
    """For the log."""
    stage: str = ""
    workload: str = ""
    """For the log: whom it is about."""
    follows: bool = False
    """It makes sense only if the write before it was carried out."""


def part(obj: Object, *path: str) -> Object:
    """The mapping at a path; empty where there is none."""
    here: Any = obj
    for name in path:
        here = here.get(name) if isinstance(here, Mapping) else None
    return here if isinstance(here, Mapping) else {}


def rows(obj: Object, *path: str) -> list[Object]:
    """The list of mappings at a path; empty where there is none."""
    found = part(obj, *path[:-1]).get(path[-1])
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def labels_of(obj: Object) -> Object:
    return part(obj, "metadata", "labels")


def annotations_of(obj: Object) -> Object:
    return part(obj, "metadata", "annotations")


def name_of(obj: Object) -> str:
    return str(part(obj, "metadata").get("name", ""))


def namespace_of(obj: Object) -> str:
    return str(part(obj, "metadata").get("namespace", ""))


def uid_of(obj: Object) -> str:
    return str(part(obj, "metadata").get("uid", ""))


def is_deleted(obj: Object) -> bool:
    return bool(part(obj, "metadata").get("deletionTimestamp"))


def controller_of(obj: Object) -> Object:
    """The owner reference that controls the object, or else the first one; empty without owners."""
    owners = rows(obj, "metadata", "ownerReferences")
    return next((one for one in owners if one.get("controller")), owners[0] if owners else {})


def condition(obj: Object, kind: str) -> Object:
    return next((one for one in rows(obj, "status", "conditions") if one.get("type") == kind), {})


def holds(obj: Object, kind: str) -> bool:
    """Is this condition True?"""
    return condition(obj, kind).get("status") == "True"
