"""Can pods of this shape run on nodes of this flavor? By taints, node selector and required node affinity. Called by flavors.

Only labels that the flavor has are compared. Other labels are left to the scheduler of the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.admission.model import PodSet, PodToleration, Requirement, ResourceFlavor, Taint

_PLAIN = re.compile(r"0|-?[1-9][0-9]{0,18}")
_LOOSE = re.compile(r"[+-]?[0-9]{1,25}")
"""In affinities, integers may have leading zeros and a plus sign; in tolerations they may not."""


class InvalidAffinity(Exception):
    """An affinity that has no meaning."""


def mismatch(podset: PodSet, flavor: ResourceFlavor) -> tuple[str, str] | None:
    """(kind, detail) of the first mismatch. None if there is none."""
    if flavor.taints and (taint := untolerated(podset, flavor)) is not None:
        return "taint", f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
    if not flavor.labels or (not podset.selector and podset.affinity is None):
        return None
    try:
        matches = _selected(podset, flavor.labels)
    except InvalidAffinity as problem:
        return "invalidAffinity", str(problem)
    return None if matches else ("affinity", "")


def untolerated(podset: PodSet, flavor: ResourceFlavor) -> Taint | None:
    """The first taint that is not tolerated. The flavor's own tolerations count, because they are added to the pods."""
    for taint in flavor.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            tolerates(each, taint) for each in (*podset.tolerations, *flavor.tolerations)
        ):
            return taint
    return None


def tolerates(toleration: PodToleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt":
            bound, value = _integer(toleration.value, _PLAIN), _integer(taint.value, _PLAIN)
            if bound is None or value is None:
                return False
            return value < bound if toleration.operator == "Lt" else value > bound
    return False


def _selected(podset: PodSet, labels: Mapping[str, str]) -> bool:
    if any(labels.get(key, value) != value for key, value in podset.selector.items()):
        return False
    terms = []
    for term in podset.affinity or ():
        known = [requirement for requirement in term if requirement.key in labels]
        if not known:
            return True
        terms.append(known)
    if not terms:
        return True
    problem = None
    for known in terms:
        try:
            met = [meets(requirement, labels) for requirement in known]
            if all(met):
                return True
        except InvalidAffinity as found:
            problem = problem or found
    if problem is not None:
        raise problem
    return False


def meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Raises InvalidAffinity for a requirement that has no meaning."""
    value = labels.get(requirement.key)
    values = requirement.values
    match requirement.operator:
        case "In" | "NotIn":
            if not values:
                raise InvalidAffinity(f"{requirement.key}: {requirement.operator} without values")
            return (value in values) == (requirement.operator == "In")
        case "Exists" | "DoesNotExist":
            if values:
                raise InvalidAffinity(f"{requirement.key}: {requirement.operator} takes no values")
            return (value is not None) == (requirement.operator == "Exists")
        case "Gt" | "Lt":
            bound = _integer(values[0], _LOOSE) if len(values) == 1 else None
            if bound is None:
                raise InvalidAffinity(f"{requirement.key}: {requirement.operator} takes one integer")
            number = None if value is None else _integer(value, _LOOSE)
            if number is None:
                return False
            return number > bound if requirement.operator == "Gt" else number < bound
    raise InvalidAffinity(f"{requirement.key}: {requirement.operator} is not an operator")


def _integer(text: str, form: re.Pattern[str]) -> int | None:
    found = int(text) if form.fullmatch(text) else None
    return found if found is not None and -(2**63) <= found < 2**63 else None
