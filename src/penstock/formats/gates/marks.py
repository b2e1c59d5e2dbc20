"""The annotations of a gated document. Called by the gates of every format.

`penstock/gate` is for controllers: the unit, the way to wait, and who holds the run. If the user had suspended it already ("held": "user"),
only the user may release it. `penstock/gate-undo` is for `ungate`: see gates.undo.

For a workflow that is queued whole, three annotations declare what it needs. Their names are those of Kueue's KEP-74; each holds JSON:

    kueue.k8s.io/max-resources   {"cpu": "8", "memory": "16Gi"}       the most it holds at one moment
    kueue.k8s.io/toleration      [{"key": "gpu", "operator": "Exists"}]
    kueue.k8s.io/node-selector   {"pool": "gpu"}

If the user has set one (also under kueue.x-k8s.io/, and as `tolerations`), it is kept; otherwise it is computed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.errors import DocumentError, Problem
from penstock.formats.documents import Document, part
from penstock.formats.gates.peak import Unbounded
from penstock.formats.gates.undo import compact, difference, packed, restore, unpacked
from penstock.formats.labels import QUEUE
from penstock.formats.report import Report
from penstock.graph import quantity

UNITS = ("stage", "workflow", "task")
WAYS = ("suspend", "pods")
MARK = "penstock/gate"
UNDO = "penstock/gate-undo"
POD_GATE = "penstock/admission"
"""The scheduling gate of a pod that waits."""
MAX_RESOURCES = "kueue.k8s.io/max-resources"
TOLERATION = "kueue.k8s.io/toleration"
NODE_SELECTOR = "kueue.k8s.io/node-selector"
_ALSO: Mapping[str, tuple[str, ...]] = {
    MAX_RESOURCES: ("kueue.x-k8s.io/max-resources",),
    TOLERATION: ("kueue.k8s.io/tolerations", "kueue.x-k8s.io/toleration", "kueue.x-k8s.io/tolerations"),
    NODE_SELECTOR: ("kueue.x-k8s.io/node-selector",),
}
REQUESTS = "kueue.konflux-ci.dev/requests-"
"""The annotations of tekton-kueue: a declaration like max-resources, one for each resource."""
NEEDS = tuple(one for name, also in _ALSO.items() for one in (name, *also))
"""All names of the three annotations."""
MOST_ANNOTATED = 256 * 1024
"""The most bytes of all annotations of one object, names included."""


def refusal(document: Document, code: str, path: str, message: str, fix: str) -> DocumentError:
    return DocumentError(document.problem(code, path, message, fix))


def copied(value: Any) -> Any:
    """A deep copy of maps and lists."""
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def annotations_of(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return part(data, "metadata", "annotations")


def is_gated(data: Mapping[str, Any]) -> bool:
    return MARK in annotations_of(data)


def begin(document: Document) -> dict[str, Any]:
    """A copy to be changed. Raises DocumentError if the document is gated already, or cannot be restored later."""
    if is_gated(document.data):
        raise refusal(
            document,
            "P861",
            f"metadata.annotations.{MARK}",
            f"this {document.kind} is gated already",
            "take the gates out first: penstock ungate",
        )
    for path, value in (("metadata", document.data.get("metadata")), ("spec", document.data.get("spec"))):
        if not isinstance(value, Mapping):
            raise refusal(document, "P868", path, f"the document has no {path}", f"write {path} as a mapping")
    for name in ("annotations", "labels"):
        if not isinstance(document.metadata.get(name) or {}, Mapping):
            raise refusal(
                document, "P868", f"metadata.{name}", f"{name} is not a mapping", f"write {name} as a mapping"
            )
    found: dict[str, Any] = copied(document.data)
    return found


def unneeded(document: Document, report: Report) -> dict[str, Any]:
    """A copy as it is: what asks for nothing needs no quota, so it does not wait."""
    said = f"{document.kind} {document.name} asks for no resources, so it does not wait"
    report.kept("spec", said, document.source("spec"))
    found: dict[str, Any] = copied(document.data)
    return found


def finish(document: Document, gated: dict[str, Any], mark: Mapping[str, Any]) -> dict[str, Any]:
    """Writes both annotations. Raises DocumentError if there is no room for them."""
    annotate(gated, {MARK: compact(mark)})
    try:
        way = packed(difference(gated, document.data))
    except ValueError:
        raise refusal(
            document,
            "P868",
            "spec",
            "the document has keys or values that are not plain text, numbers, lists or mappings",
            "write keys as text, and dates in quotes",
        ) from None
    annotate(gated, {UNDO: way})
    size = sum(len(str(name).encode()) + len(str(text).encode()) for name, text in annotations_of(gated).items())
    if size > MOST_ANNOTATED:
        raise refusal(
            document,
            "P864",
            "metadata.annotations",
            f"the annotations that ungate needs would take {size:,} bytes, and {MOST_ANNOTATED:,} are allowed",
            "gate the pods instead (--by pods), or queue the workflow whole (--unit workflow)",
        )
    return gated


def annotate(data: dict[str, Any], texts: Mapping[str, str], *path: str) -> None:
    """Adds annotations to metadata, or to the metadata at `path`."""
    here = data
    for name in (*(path or ("metadata",)), "annotations"):
        if not isinstance(here.get(name), dict):
            here[name] = {}
        here = here[name]
    here.update(texts)


def take_back(document: Document) -> dict[str, Any]:
    """The document as it was before it was gated. Raises DocumentError."""
    if not is_gated(document.data):
        raise refusal(
            document,
            "P866",
            "metadata.annotations",
            f"this {document.kind} is not gated",
            "there is nothing to take back",
        )
    data: dict[str, Any] = copied(document.data)
    way = data["metadata"]["annotations"].pop(UNDO, None)
    try:
        restored = restore(data, unpacked(way))
    except ValueError:
        restored = None
    if not isinstance(restored, dict):
        raise refusal(
            document,
            "P866",
            f"metadata.annotations.{UNDO}",
            "the annotation that the gate left for ungate cannot be read",
            "go back to the document as it was before it was gated",
        )
    return restored


def declared(document: Document, name: str, *more: Mapping[str, Any]) -> Any:
    """What the user declares that the whole workflow needs, as data; None without a declaration. `more`: other annotations to search.
    Raises DocumentError if it is not JSON, or not of the right type."""
    for known in (name, *_ALSO[name]):
        for said in (annotations_of(document.data), *more):
            if known in said:
                return _declaration(document, name, known, said[known])
    return None


def _declaration(document: Document, name: str, known: str, text: Any) -> Any:
    try:
        found = json.loads(text) if isinstance(text, str) else None
        if name == MAX_RESOURCES and isinstance(found, dict) and _least(found.values()) < 0:
            found = None
    except (ValueError, TypeError, RecursionError):
        found = None
    if not _fits(name, found):
        example = {MAX_RESOURCES: '{"cpu": "8"}', TOLERATION: '[{"key": "gpu"}]', NODE_SELECTOR: '{"pool": "gpu"}'}[
            name
        ]
        raise refusal(
            document,
            "P867",
            f"metadata.annotations.{known}",
            f"{known} is not what it must be: JSON such as {example}",
            f"write {known}: '{example}'",
        )
    return found


def _least(amounts: Iterable[Any]) -> int:
    return min(map(quantity.parse, amounts), default=0)


def _fits(name: str, found: Any) -> bool:
    """Is it of the right type, and what is in it too?"""
    if name == TOLERATION:
        return isinstance(found, list) and all(isinstance(one, dict) for one in found)
    if name == NODE_SELECTOR:
        return isinstance(found, dict) and all(isinstance(text, str) for text in found.values())
    return isinstance(found, dict)


def needs(
    resources: Mapping[str, int], tolerations: tuple[Mapping[str, Any], ...], selector: Mapping[str, str]
) -> dict[str, str]:
    """The three annotations with computed values; empty ones are left out, except the resources."""
    shown = {name: quantity.show(amount, name) for name, amount in sorted(resources.items())}
    found = {MAX_RESOURCES: compact(shown)}
    if tolerations:
        found[TOLERATION] = compact(list(tolerations))
    if selector:
        found[NODE_SELECTOR] = compact(dict(selector))
    return found


def check_choices(unit: str, by: str) -> None:
    """Raises DocumentError, P869."""
    if unit not in UNITS:
        raise _unknown_choice("unit", unit, UNITS)
    if by not in WAYS:
        raise _unknown_choice("way to wait", by, WAYS)


def _unknown_choice(what: str, given: str, known: tuple[str, ...]) -> DocumentError:
    return DocumentError(Problem("P869", f"there is no {what} {given!r}", f"write one of {', '.join(known)}"))


def unbounded(places: Iterable[Unbounded]) -> DocumentError:
    """The demand of the whole has no bound: the user must declare it."""
    return DocumentError(
        [
            one.document.problem(
                "P863",
                one.path,
                f"there is no bound to what the workflow holds at one moment: {one.message}",
                f'{one.fix}declare it (metadata.annotations: {{{MAX_RESOURCES}: \'{{"cpu": "8"}}\'}}), or queue by stage',
            )
            for one in places
        ]
    )


def say_queue(document: Document, report: Report) -> None:
    source = document.source("metadata")
    name = part(document.metadata, "labels").get(QUEUE)
    if name:
        report.kept(f"metadata.labels.{QUEUE}", f"waits in the queue {name}", source)
    else:
        report.changed("metadata.labels", "no queue is named", f"add the label {QUEUE}, or nothing lets it go", source)
