"""What a new workflow chooses, or its namespace for all in it: the unit, and whether stages or pods wait. Called by `admit` and by engines; pure."""

from __future__ import annotations

from penstock.controller import names
from penstock.controller.objects import NAMESPACES, Lookup, Object, annotations_of, labels_of, namespace_of
from penstock.errors import DocumentError, Problem


def chosen(name: str, obj: Object, lookup: Lookup) -> str | None:
    """A label or an annotation. The workflow comes before its namespace, and a label before an annotation."""
    namespace = lookup.get(NAMESPACES, "", namespace_of(obj)) or {}
    places = (labels_of(obj), annotations_of(obj), labels_of(namespace), annotations_of(namespace))
    found = (place[name] for place in places if place.get(name) is not None)
    return next((str(one) for one in found), None)


def suspends_by_steps(obj: Object, lookup: Lookup) -> bool:
    """Do stages wait? False: their pods do. Raises DocumentError."""
    said = chosen(names.BY_STEPS, obj, lookup)
    if said in (None, "true", "false"):
        return said != "false"
    problem = f"{names.BY_STEPS} is {said!r}"
    fix = f'write {names.BY_STEPS}: "true" (stages wait) or "false" (pods wait), on the workflow or its namespace'
    raise DocumentError(Problem("P886", problem, fix))
