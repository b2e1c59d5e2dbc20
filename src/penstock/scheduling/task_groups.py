"""A gang as YuniKorn's task groups: one for each role whose pods must be there in the beginning. Called by yunikorn; the texts are read back by reading.

A group's size is that of the pod that will exist, or its placeholder would be too small for it. YuniKorn drops all groups if one has no members, so a role without members has none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.formats.documents import part
from penstock.graph import quantity
from penstock.scheduling.keys import OF_YUNIKORN
from penstock.scheduling.model import Amounts, GangMember, JobObject, Role

_OTHER: Final = re.compile(r"[^a-z0-9-]+")
PLACEMENT: Final = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints")
REFUSED: Final = ("pods", "vcore")
"""YuniKorn counts these itself: a group that names one collides with it."""


def members_of(job: JobObject) -> tuple[GangMember, ...]:
    """The groups of a gang, in the order of the roles; none for a single pod, or if pods cannot be told apart. A head of Ray alone has one,
    because KubeRay's own plugin would write one."""
    roles = [role for role in job.roles if role.members]
    alone = len(job.roles) < 2 and sum(role.members for role in roles) < 2
    if alone and job.kind.api_group != "ray.io":
        return ()
    if any(role.slot.shared for role in roles):
        return _alike(roles)
    names: set[str] = set()
    found = []
    for role in roles:
        name = group_name(role.group, names)
        names.add(name)
        found.append(GangMember(role.name, name, role.members, role.requests))
    return tuple(found)


def _alike(roles: list[Role]) -> tuple[GangMember, ...]:
    """One group for roles that read the same annotations, if their pods are of one shape."""
    first = roles[0]
    if any(one.requests != first.requests or placement(one) != placement(first) for one in roles):
        return ()
    return (GangMember(first.name, group_name(first.group, ()), sum(one.members for one in roles), first.requests),)


def group_name(text: str, taken: Iterable[str]) -> str:
    """A name that may be part of the name of a placeholder, and is not taken."""
    name = _OTHER.sub("-", text.lower()).strip("-") or "group"
    used, number, found = set(taken), 2, name
    while found in used:
        found, number = f"{name}-{number}", number + 1
    return found


def placement(role: Role) -> Mapping[str, Any]:
    return {name: role.spec[name] for name in PLACEMENT if role.spec.get(name)}


def quantities(requests: Amounts) -> dict[str, str]:
    return {name: quantity.show(amount, name) for name, amount in sorted(requests.items()) if name not in REFUSED}


def as_text(job: JobObject, members: Iterable[GangMember]) -> str:
    """The value of the annotation task-groups."""
    return compact([_group(job, one) for one in members])


def _group(job: JobObject, member: GangMember) -> dict[str, Any]:
    role = next(one for one in job.roles if one.name == member.role)
    found: dict[str, Any] = {
        "name": member.name,
        "minMember": member.count,
        "minResource": quantities(member.requests),
    }
    found |= placement(role)
    own = {
        str(key): str(value)
        for key, value in part(role.pod, "metadata", "labels").items()
        if key not in OF_YUNIKORN and value is not None
    }
    if own:
        found["labels"] = own  # affinity of a placeholder to its like is affinity to labels
    return found


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
