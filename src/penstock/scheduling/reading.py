"""What YuniKorn's shim (1.9) understands of a pod: application, queue, gang, size. Called by apply, to check what a manifest says already, and by tests, to check what we write.

The rules are those of its source (pkg/common/utils, pkg/common/resource, pkg/cache): where it is lenient, so is this; where it drops something without a word, this says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from penstock.formats.documents import part
from penstock.graph import quantity
from penstock.graph.pods import Exact, pod_total
from penstock.scheduling import keys
from penstock.scheduling.model import Data

_UNIQUE: Final = "-uniqueautogen"
_INT64: Final = re.compile(r"[+-]?[0-9]{1,19}\Z", re.A)
_TYPES: Final = {
    "labels": dict,
    "annotations": dict,
    "nodeselector": dict,
    "tolerations": list,
    "affinity": dict,
    "topologyspreadconstraints": list,
}


class Unreadable(ValueError):
    """YuniKorn makes no gang of these task groups. The text says what is wrong: a field, or `not readable`."""


@dataclass(frozen=True, slots=True)
class TaskGroup:
    name: str
    members: int
    ask: Mapping[str, int]
    """Of all members together: vcore in thousandths, the rest in whole units."""


@dataclass(frozen=True, slots=True)
class GangPolicy:
    timeout: int = 0
    style: str = "Soft"
    skipped: tuple[str, ...] = ()
    """Parts of the text that YuniKorn skips or takes for something else."""


@dataclass(frozen=True, slots=True)
class PodReading:
    scheduled: bool
    """Is it YuniKorn's pod?"""
    app: str
    queue: str
    group: str
    groups: tuple[TaskGroup, ...]
    error: str
    policy: GangPolicy
    resource: Mapping[str, int]


def read(pod: Data, namespace: str = "") -> PodReading:
    """A pod, or a pod template as the pod that is made of it."""
    labels, notes = part(pod, "metadata", "labels"), part(pod, "metadata", "annotations")
    spec = part(pod, "spec")
    ours = spec.get("schedulerName") == keys.YUNIKORN
    error = ""
    groups: tuple[TaskGroup, ...] = ()
    try:
        groups = task_groups(_text(notes, keys.GROUPS))
    except Unreadable as wrong:
        error = str(wrong)
    app = application(pod, namespace) if ours else ""
    queue = _text(labels, keys.YK_QUEUE) or _text(notes, keys.YK_QUEUE) or _text(labels, keys.OLD_QUEUE)
    policy = policy_of(_text(notes, keys.PARAMETERS))
    return PodReading(ours, app, queue, _text(notes, keys.GROUP), groups, error, policy, size(spec))


def application(pod: Data, namespace: str = "") -> str:
    labels, notes = part(pod, "metadata", "labels"), part(pod, "metadata", "annotations")
    found = (
        _text(labels, keys.APP)
        or _text(notes, keys.APP)
        or _text(labels, keys.OLD_APP)
        or _text(labels, keys.SPARK_APP)
    )
    if found.endswith(_UNIQUE):
        return f"{found.removesuffix(_UNIQUE)}-{_text(part(pod, 'metadata'), 'uid')}"
    place = _text(part(pod, "metadata"), "namespace") or namespace or "default"
    return found or f"yunikorn-{place}-autogen"[:63]


def _text(data: Data, key: str) -> str:
    found = data.get(key)
    return found if isinstance(found, str) else "" if found is None else str(found)


# -- the gang ---------------------------------------------------------------------------------------------------------


def task_groups(text: str) -> tuple[TaskGroup, ...]:
    """As Go's JSON decoding does it: field names in any case, unknown fields ignored. Raises Unreadable."""
    if not text:
        return ()
    try:
        listed = json.loads(text, parse_float=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Unreadable("not readable") from None
    if listed is None:
        return ()
    if not isinstance(listed, list):
        raise Unreadable("not readable")
    decoded = [_decoded(one) for one in listed]
    for name, members, resources in decoded:
        if not name:
            raise Unreadable("name")
        if resources is None:
            raise Unreadable("minResource")
        if members <= 0:
            raise Unreadable("minMember")
    return tuple(TaskGroup(name, members, _ask(members, found or {})) for name, members, found in decoded)


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _decoded(one: Any) -> tuple[str, int, dict[str, Fraction] | None]:
    """Name, members and resources; None where there are none."""
    if one is None:
        return "", 0, None
    if not isinstance(one, dict):
        raise Unreadable("not readable")
    name, members, resources = "", 0, None
    for key, value in one.items():
        field = key.lower()
        if value is None:
            continue
        if field == "name":
            name = _typed(value, str)
        elif field == "minmember":
            members = _typed(value, int)
            if isinstance(value, bool) or not -(2**31) <= members < 2**31:
                raise Unreadable("not readable")
        elif field == "minresource":
            given = _typed(value, dict)
            resources = (resources or {}) | {str(key): _quantity(amount) for key, amount in given.items()}
        elif field in _TYPES:
            found = _typed(value, _TYPES[field])
            if field in ("labels", "annotations", "nodeselector"):
                for text in found.values():
                    _typed("" if text is None else text, str)
    return name, members, resources


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise Unreadable("not readable")
    return value


def _quantity(value: Any) -> Fraction:
    """Text, or a bare number."""
    if value is None:
        return Fraction(0)
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise Unreadable("not readable")
    try:
        return quantity.exact(value.strip() if isinstance(value, str) else str(value))
    except ValueError:
        raise Unreadable("not readable") from None


def _ask(members: int, resources: Mapping[str, Fraction]) -> dict[str, int]:
    found = {"pods": members}
    for name, amount in resources.items():
        found[_unit(name)[0]] = members * _whole(amount * _unit(name)[1])
    return found


def _unit(name: str) -> tuple[str, int]:
    return ("vcore", 1000) if name == "cpu" else (name, 1)


def _whole(amount: Fraction) -> int:
    """Rounded up, away from zero."""
    return -((-amount).__floor__()) if amount >= 0 else amount.__floor__()


def policy_of(text: str) -> GangPolicy:
    """Split at single spaces and at `=`; what does not parse is the default."""
    timeout, style, skipped = 0, "Soft", []
    for piece in text.split(" ") if text else ():
        name, equals, value = piece.partition("=")
        if not equals or "=" in value:
            skipped.append(piece)
        elif name == keys.TIMEOUT:
            if _INT64.match(value) and -(2**63) <= int(value) < 2**63:
                timeout = int(value)
            else:
                timeout = 0
                skipped.append(piece)
        elif name == keys.STYLE:
            style = value if value in ("Soft", "Hard") else "Soft"
            if style != value:
                skipped.append(piece)
    return GangPolicy(timeout, style, tuple(skipped))


# -- the size ---------------------------------------------------------------------------------------------------------


def size(spec: Data) -> dict[str, int]:
    """Requests only: the API server has put limits there already. cpu as vcore in thousandths; the rest in whole units."""
    total = pod_total(
        [_requests(one) for one in spec.get("containers") or () if isinstance(one, Mapping)],
        [
            (_requests(one), one.get("restartPolicy") == "Always")
            for one in spec.get("initContainers") or ()
            if isinstance(one, Mapping)
        ],
        _exact(part(spec, "resources", "requests")),
        _exact(part(spec, "overhead")),
    )
    found = {"pods": 1}
    for name, amount in total.items():
        found[_unit(name)[0]] = _whole(amount * _unit(name)[1])
    return found


def _requests(container: Data) -> Exact:
    return _exact(part(container, "resources", "requests"))


def _exact(listed: Data) -> dict[str, Fraction]:
    found = {}
    for name, text in listed.items():
        try:
            found[str(name)] = quantity.exact(text)
        except (ValueError, TypeError):
            continue
    return found


# -- what a user should know ------------------------------------------------------------------------------------------


def faults(pod: Data) -> Iterator[tuple[str, str, str]]:
    """(annotation, what YuniKorn makes of it, fix) for everything that it drops or takes otherwise."""
    notes = part(pod, "metadata", "annotations")
    found = read(pod)
    if found.error:
        why = (
            "cannot be read as JSON of task groups"
            if found.error == "not readable"
            else f"has a group without {found.error}"
        )
        yield (
            keys.GROUPS,
            f"it {why}, so YuniKorn makes no gang at all",
            "correct it, or let penstock schedule write it",
        )
    elif found.group and found.groups and found.group not in {one.name for one in found.groups}:
        yield keys.GROUP, f"there is no task group {found.group!r}, so the pod is in no gang", "name one of the groups"
    for piece in found.policy.skipped:
        if piece:
            said = f"YuniKorn does not understand {piece[:60]!r}, and skips it"
            yield keys.PARAMETERS, said, f"write {keys.TIMEOUT}=60 {keys.STYLE}=Hard, with one space between"
    user = notes.get(keys.USER_INFO)
    if user and not is_user_info(str(user)):
        yield (
            keys.USER_INFO,
            "it is not JSON of a user and groups, so the user is nobody",
            '{"user": "sue", "groups": []}',
        )


def is_user_info(text: str) -> bool:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("user"), str) and bool(found["user"])
